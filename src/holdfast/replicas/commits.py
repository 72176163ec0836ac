"""What the source has committed behind a replica's position, by its feed.

A row of the feed names the entries of one commit; their numbers give most rows that came with it,
and their bodies the others: ids of changes, correlations, data keys, anchors, long values. Rows of
the feed are taken in an order in which each follows what it rests on, and some of them are written
together. A replica's commit ends only where nothing is owed: where every entry is there that those
written refer to and, of a timeline that was pruned since, the anchor that says so. Long values are
written first, under a pin, as their writer did.
"""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.errors import DamagedRecordError, StateIntegrityError
from holdfast.replicas.compare import Judge, Row, paged
from holdfast.replicas.replica_cell import SIZE, Writer, split
from holdfast.storage.contract import Moment
from holdfast.store.inner import AHEAD, LANES, FeedItem, Lanes, Tail, entry, id_tag
from holdfast.store.names import rowkinds as rows
from holdfast.store.names.cells import Swap, cell_at, row_at

Line = tuple[int, int]
"""Scope and timeline."""
PIN = bytes(16) + b"\0\0\0\0\0\0\0\1"
"""What pins a long value in a replica: of no writer, so that nobody waits for it for long."""
GET = 500
"""Rows that are asked for together."""


class Still:
    """A moment as a storage whose feed can be read."""

    def __init__(self, moment: Moment) -> None:
        self.scan = moment.scan

    def version(self) -> object:
        """It never changes."""
        return 0


Ends = dict[int, tuple[int, bytes]]


def ends(storage: Moment) -> Ends:
    """For each lane that is used the number of its newest row, and the row."""
    found = {}
    for lane in range(LANES):
        low = b"F" + bytes([lane])
        for key, row in storage.scan(low, rows.after(low), limit=1, reverse=True):
            found[lane] = int.from_bytes(key[2:], "big"), row
    return found


def check_ends(source: Moment, replica: Ends) -> None:
    """Refuse if the newest rows of a replica's feed, read before the moment, are not in that."""
    for lane, (number, row) in replica.items():
        if row_at(source, rows.feed(lane, number)) != row:
            raise split()


class Commits:
    """Writes to a replica what the source has committed since."""

    def __init__(self, judge: Judge, writer: Writer, rests: dict[bytes, list[Swap]]) -> None:
        self._judge = judge
        self._core = judge.core
        self._rests = rests
        """Cells that come with a checkpoint, by its key; those that were written are gone."""
        self._moment = judge.moment
        self._writer = writer
        self._rows: dict[bytes, bytes] = {}
        self._size = 0
        self._gone: set[bytes] = set()
        self._pins: list[bytes] = []
        self._cells: list[Swap] = []
        self._owed: set[tuple[int, int, int]] = set()
        self._reached: dict[Line, int] = {}
        self._met: set[Line] = set()
        self._ends: Ends = {}
        self.erased: set[int] = set()
        """Scopes that are entombed: what the replica has of them goes."""
        self.unread = False
        """Whether there are entries whose content could not tell which rows came with them."""

    def check(self) -> None:
        """Refuse if the replica holds what the source does not; `run` goes on where it ends."""
        self._ends = ends(self._writer.storage)
        check_ends(self._moment, self._ends)

    def run(self) -> None:
        """Bring the replica up to the moment."""
        position = {lane: number for lane, (number, _) in self._ends.items()}
        tags = {lane: row[-32:] for lane, (_, row) in self._ends.items()}
        lanes = Lanes(Still(self._moment), self._core.commitments.domain(b"feed"))  # type: ignore[arg-type]
        tail = Tail(lanes, position, self._judge.follower)
        while (found := tail.next()) is not None:
            lane, number, items = found
            key = rows.feed(lane, number)
            row = row_at(self._moment, key) or b""
            if lanes.tag_of(lane, number, tags.get(lane, bytes(32)), row[:-32]) != row[-32:]:
                raise DamagedRecordError(
                    f"{rows.describe(key)}: it does not follow the one before; nothing behind it "
                    "was copied: run verify on the store"
                )
            tags[lane] = row[-32:]
            for item in items:
                if item.entries:
                    self._item(item)
            self._add(key, row)
            if self._size >= SIZE and not self._owes():
                self._flush()
        self._flush()

    # what came with a commit

    def _item(self, item: FeedItem) -> None:
        scope, timeline = line = item.scope, item.timeline
        name = self._core.numbers.row(scope)
        if name is None:
            raise DamagedRecordError(
                f"the directory knows no scope of number {scope:x}; nothing behind it was copied: "
                "run verify on the store"
            )
        if self._judge.entombed(scope):
            self._copy(rows.tombstone(name))
            self.erased.add(scope)
            return
        name = rows.directory(name[1:17], int.from_bytes(name[17:21], "big"), rows.THERE)
        last = item.first + item.entries - 1
        self._reached[line] = max(last, self._reached.get(line, 0))
        if line not in self._met:
            self._met.add(line)
            self._copy(name)
            self._copy(rows.line(b"T", scope, timeline))
            anchor = self._judge.floor(scope, timeline).anchor
            if anchor >= item.first:
                self._owed.add((scope, timeline, anchor))
        for kind in (kind for kind in rows.LENGTHS if kind not in (b"E", b"B")):
            # A save stands behind the entry before the one that it came with.
            first = item.first - (kind in (b"S", b"N"))
            for key, row in self._range(kind, line, first, last):
                if not rows.of_base(key):
                    self._check(key, row)
        for key, row in self._range(b"E", line, item.first, last):
            self._entry(name, key, row)

    def _range(
        self, kind: bytes, line: Line, first: int, last: int
    ) -> Iterator[tuple[bytes, bytes]]:
        prefix = rows.line(kind, *line)
        return paged(self._moment.scan, rows.entry(prefix, first), rows.entry(prefix, last + 1))

    def _entry(self, name: bytes, key: bytes, row: bytes) -> None:
        try:
            body = self._judge.body(key, row)
        except StateIntegrityError:  # it stays out of the replica, and is named
            self.unread = not self._judge.sends(key, row)
            return
        self._add(key, row)
        self._cells += self._rests.pop(key, [])
        if body is None:
            self.unread = True
            return
        scope, timeline = rows.scope_of(key), rows.line_of(key)
        # Rows that lead to it by a correlation, or the id of its change.
        if body.cause is not None and body.cause.correlation is not None:
            tag = self._core.tag(b"correlation", body.cause.correlation)
            self._copy(rows.correlation(tag, scope, timeline, rows.sequence_of(key)))
        if body.change is not None:
            alone = not body.also and not body.reads
            ledger = self._judge.ledger(scope) if alone else None
            self._copy(rows.change(id_tag(self._core, ledger, body.change)))
        self._owed.update(body.also, body.reads)
        for op in body.ops:
            if op[0] in (entry.RESTORE, entry.FORK, entry.MERGE):
                self._owed.add((scope, op[1], op[2]))
            elif op[0] == entry.GONE:
                self._copy(rows.deletion(name))
            elif op[0] == entry.REKEY:
                self._copy(rows.epoch(scope, op[1]))
            elif op[0] == entry.PRUNE:
                self._anchored(scope, timeline)
            elif op[0] == entry.SET and type(op[2]) is list and op[2][0] == AHEAD and op[2][3]:
                self._upload(rows.pin(scope, op[2][3]))

    def _anchored(self, scope: int, timeline: int) -> None:
        """What an anchor brings: the row that leads to it, and the states that it keeps. What led
        to the one before goes with the same commit."""
        for kind in (b"A", b"B"):
            prefix = rows.line(kind, scope, timeline)
            for key, _ in paged(self._writer.storage.scan, prefix, rows.after(prefix)):
                if row_at(self._moment, key) is None:
                    self._gone.add(key)
            for key, row in paged(self._moment.scan, prefix, rows.after(prefix)):
                self._check(key, row)
                if kind == b"B":
                    nodes = rows.line(b"N", scope, timeline)
                    sequence = rows.sequence_of(key)
                    low = rows.pack(nodes, sequence, rows.BASES)
                    for node in paged(self._moment.scan, low, rows.entry(nodes, sequence + 1)):
                        self._check(*node)

    def _upload(self, pin: bytes) -> None:
        """Write a long value ahead of its entry."""
        held = cell_at(self._writer.storage, pin)
        part: list[Row] = []
        size = 0
        for kind in (b"V", b"N"):
            prefix = rows.pinned(pin, kind)
            for key, row in paged(self._moment.scan, prefix, rows.after(prefix)):
                if not self._judge.sends(key, row):
                    continue
                part.append((key, row))
                size += len(row)
                if size >= SIZE:
                    held = self._ahead(pin, held, part)
                    part, size = [], 0
        self._ahead(pin, held, part)
        self._pins.append(pin)

    def _ahead(self, pin: bytes, held: bytes | None, part: list[Row]) -> bytes | None:
        """Write some of its rows; what the pin holds then."""
        there = self._writer.storage.get([key for key, _ in part]) if part else []
        new = [row for row, before in zip(part, there, strict=True) if before is None]
        if not new:
            return held
        for key, row in new:
            self._writer.put(key, row)
        self._writer.cell((pin, held, PIN))
        self._writer.flush()
        return PIN

    # writing

    def _copy(self, key: bytes) -> None:
        row = row_at(self._moment, key)
        if row is not None:
            self._check(key, row)

    def _check(self, key: bytes, row: bytes) -> None:
        if self._judge.sends(key, row):
            self._add(key, row)

    def _add(self, key: bytes, row: bytes) -> None:
        self._rows[key] = row
        self._size += len(key) + len(row)

    def _owes(self) -> bool:
        """Whether something that is to be written refers to what is not there yet."""
        self._owed = {one for one in self._owed if not self._is_there(*one)}
        return bool(self._owed)

    def _is_there(self, scope: int, timeline: int, sequence: int) -> bool:
        line = scope, timeline
        prefix = rows.line(b"E", *line)
        if line not in self._reached:
            found = self._writer.storage.scan(prefix, rows.after(prefix), limit=1, reverse=True)
            self._reached[line] = rows.sequence_of(found[0][0]) if found else 0
        if self._reached[line] >= sequence:
            return True
        # What the source does not have itself will not come.
        return row_at(self._moment, rows.entry(prefix, sequence)) is None

    def _flush(self) -> None:
        keys = sorted(self._rows)
        for start in range(0, len(keys), GET):
            some = keys[start : start + GET]
            for key, before in zip(some, self._writer.storage.get(some), strict=True):
                row = self._rows[key]
                if before is None:
                    self._writer.put(key, row)
                elif before != row and key[:1] in (b"E", b"F") and not _same(key, before, row):
                    raise split()
        for key in sorted(self._gone):
            self._writer.drop(key)
        for pin in self._pins:
            held = cell_at(self._writer.storage, pin)
            if held is not None:
                self._writer.cell((pin, held, None))
        for swap in self._cells:
            self._writer.cell(swap)
        self._rows, self._size, self._gone, self._pins, self._cells = {}, 0, set(), [], []
        self._writer.flush()


def _same(key: bytes, one: bytes, other: bytes) -> bool:
    """Whether two rows are of one entry; which of them is to stand is judged elsewhere."""
    try:
        return key[:1] == b"E" and entry.same_entry(one, other)
    except DamagedRecordError:  # damage is no split: it is judged as that
        return True
