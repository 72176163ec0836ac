"""Comparing a range of rows on both sides, page by page, and taking over what differs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache, cached_property
from itertools import islice

import msgspec

from holdfast.errors import (
    DamagedRecordError,
    HoldfastError,
    KeyMissingError,
    StateIntegrityError,
)
from holdfast.replicas.replica_cell import Writer
from holdfast.seal.sealer import sealed_under
from holdfast.storage.contract import LAST, Moment
from holdfast.storage.rows import each
from holdfast.store.inner import NO_FLOOR, Body, Core, Floor, Follower, Ledger, announced_floor
from holdfast.store.inner import entry as entries
from holdfast.store.names import rowkinds
from holdfast.store.names.cells import row_at
from holdfast.store.open import META

# ---- judge --------------------------------------------------------------------------------------
# Which differences between a store and its replica are taken over.
#
# A row is sent only if it opens in its place, as far as the keys for it are there. One that the
# replica has is replaced only by the same content, sealed under a newer data key, or if it does not
# open itself; of an entry, the body may go. One is removed only if the store says itself that it is
# gone: a tombstone, or an anchor with the row below its floor. All else is damage, on one side or
# the other: it is told, and nothing is changed.


_sequence = msgspec.msgpack.Decoder(int).decode


class Judge:
    """Knows what the source, as of a moment, says of its rows."""

    def __init__(self, core: Core, moment: Moment) -> None:
        self.core = core
        self.moment = moment
        self._found: dict[str, None] = {}
        """What is wrong, and left as it is."""
        self.follower = Follower(core)
        self.floor = cache(self._floor)
        self.entombed = cache(self._entombed)
        self._pinned = cache(self._pins)

    def note(self, key: bytes, what: str) -> None:
        """Note what is wrong with a row, and left as it is."""
        self._found[f"{rowkinds.describe(key)}: {what}"] = None

    def told(self) -> tuple[str, ...]:
        """What was noted, for people."""
        more = len(self._found) - KEPT
        return (*islice(self._found, KEPT), *([f"and {more} more"] if more > 0 else []))

    # what is whole

    def ledger(self, scope: int) -> Ledger | None:
        """A scope, opened; None if nothing of it can be: erased, or its keys are not here."""
        try:
            return self.follower.ledger(scope)
        except (KeyMissingError, DamagedRecordError):  # then its rows are believed as they are
            return None

    def body(self, key: bytes, row: bytes) -> Body | None:
        """What an entry says; None if it was pruned, or its key is not here."""
        envelope, sealed = entries.split_row(row)
        ledger = self.ledger(rowkinds.scope_of(key))
        if ledger is None or not sealed:
            return None
        try:
            start = len(envelope.data)
            return ledger.open_body(key, row, start, envelope.writer, envelope.commitment)
        except KeyMissingError:
            return None

    def whole(self, key: bytes, row: bytes) -> bool:
        """Whether a row opens in its place; if the key for that is not here, it is believed."""
        kind = rowkinds.ROW.get(key[:1])
        try:
            if kind is None or kind.sealed == rowkinds.PLAIN:
                return kind is None or kind.heal != rowkinds.DERIVED or not row
            if kind.check == rowkinds.CHAIN:
                self.body(key, row)
            elif kind.sealed == rowkinds.STORE_KEY:
                self.core.open_row(key, row)
            elif (ledger := self.ledger(rowkinds.scope_of(key))) is not None:
                ledger.seal.open(ledger.ad(key), row)
            return True
        except KeyMissingError:
            return True
        except StateIntegrityError:  # that is what is asked
            return False

    def sends(self, key: bytes, row: bytes) -> bool:
        """Whether a row is whole; what is not stays out of the replica, and is named."""
        if not (whole := self.whole(key, row)):
            self.note(key, "it is damaged in the store, and was not copied")
        return whole

    # what may go

    def _entombed(self, scope: int) -> bool:
        """Whether a scope is erased, as of the moment."""
        key = self.core.numbers.row(scope)
        return key is not None and self._has(rowkinds.tombstone(key))

    def _floor(self, scope: int, timeline: int) -> Floor:
        """The floor of a timeline, as of the moment."""
        line = rowkinds.line(b"A", scope, timeline)
        found = self.moment.scan(line, rowkinds.after(line), limit=1, reverse=True)
        ledger = self.ledger(scope)
        if not found or ledger is None:
            return NO_FLOOR
        key, row = found[0]
        try:
            anchor = _sequence(ledger.seal.open(ledger.ad(key), row))
            entry = rowkinds.entry(rowkinds.line(b"E", scope, timeline), anchor)
            body = self.body(entry, row_at(self.moment, entry) or b"")
            number = int.from_bytes(key[9:13], "big")
            if body is not None and body.ops[0][0] == entries.PRUNE:
                return announced_floor(Floor(number - 1, 0, 0, {}), anchor, body.ops[0])
        except (HoldfastError, msgspec.MsgspecError, IndexError):
            pass  # damaged: then nothing says that anything was pruned
        return NO_FLOOR

    def _pins(self, scope: int) -> set[int]:
        """Numbers of the uploads of a scope that no entry names yet, or that are given up."""
        prefix = rowkinds.pin(scope, 0)[:7]
        pins = each(self.moment.cells, prefix, rowkinds.after(prefix))
        return {int.from_bytes(key[7:], "big") for key, _ in pins}

    def counts(self, key: bytes) -> bool:
        """Whether a row that the source has is part of the store: not on its way, nor erased."""
        if key[:1] not in rowkinds.OF_SCOPE:
            return True
        scope = rowkinds.scope_of(key)
        if key[:1] in (b"V", b"N") and rowkinds.line_of(key) == rowkinds.UPLOADS:
            return rowkinds.sequence_of(key) not in self._pinned(scope) and not self.entombed(scope)
        return not self.entombed(scope)

    def may_go(self, key: bytes) -> bool:
        """Whether the source says itself that a row that it does not have is gone."""
        kind = key[:1]
        if kind == b"D":
            return rowkinds.state_of(key) != rowkinds.ERASED and self._has(rowkinds.tombstone(key))
        if kind == b"I":
            return self._anything_erased
        if kind == b"R":
            scope, timeline = int.from_bytes(key[17:23], "big"), int.from_bytes(key[23:25], "big")
            last = (int.from_bytes(key[25:29], "big") + 1) * rowkinds.BLOCK - 1
            return self.entombed(scope) or last <= self.floor(scope, timeline).sequence
        if kind not in rowkinds.OF_SCOPE:
            return False
        return self.entombed(rowkinds.scope_of(key)) or self._below(kind, key)

    def _below(self, kind: bytes, key: bytes) -> bool:
        scope, timeline = rowkinds.scope_of(key), rowkinds.line_of(key)
        if kind in (b"E", b"T", b"K"):
            return False
        if timeline == rowkinds.UPLOADS:
            anchors = b"A" + key[1:7]
            return bool(self.moment.scan(anchors, rowkinds.after(anchors), limit=1))
        floor = self.floor(scope, timeline)
        if kind == b"A":
            return int.from_bytes(key[9:13], "big") < floor.number
        sequence = rowkinds.sequence_of(key)
        if kind == b"B" or rowkinds.of_base(key):
            return sequence not in floor.bases or kind == b"N"
        return sequence <= floor.sequence

    def _has(self, key: bytes) -> bool:
        return row_at(self.moment, key) is not None

    @cached_property
    def _anything_erased(self) -> bool:
        names = each(self.moment.scan, b"D", b"E")
        return any(rowkinds.state_of(key) == rowkinds.ERASED for key, _ in names)

    # what may become of a row

    def replaces(self, key: bytes, new: bytes, old: bytes) -> bool:
        """Whether the source's row is to stand in the place of the replica's."""
        try:
            if key[:1] == b"E":
                return self._replaces_entry(key, new, old)
            newer = self._epoch(key, new) > self._epoch(key, old)
        except StateIntegrityError:  # which of the two is whole decides
            newer = False
        return self.whole(key, new) and (newer or not self.whole(key, old))

    def _epoch(self, key: bytes, row: bytes, start: int = 0) -> int:
        """Of the data key that a row is sealed under."""
        sealed = self.core.ring is not None and key[:1] in rowkinds.OF_SCOPE
        return sealed_under(row, start)[0] if sealed else 0

    def _replaces_entry(self, key: bytes, new: bytes, old: bytes) -> bool:
        envelope, body = entries.split_row(new)
        if not body:
            pruned = (
                rowkinds.sequence_of(key)
                <= self.floor(rowkinds.scope_of(key), rowkinds.line_of(key)).sequence
            )
            return pruned and old.startswith(envelope.data)
        start = len(envelope.data)
        if not self.whole(key, new):
            return False
        if not self.whole(key, old):
            return True
        same = old.startswith(envelope.data) and len(old) > start
        return same and self._epoch(key, new, start) > self._epoch(key, old, start)


# ---- compare ------------------------------------------------------------------------------------


Row = tuple[bytes, bytes]
Difference = tuple[bytes, bytes | None, bytes | None]
"""Key, what the source has, what the replica has."""
PAGE = 256
"""Rows that are read together."""
KEPT = 100
"""Findings that are told; the others are counted."""


def paged(read: Callable[..., list[Row]], low: bytes, high: bytes) -> Iterator[Row]:
    """Rows of a range, in small pages: a row may be long."""
    return each(read, low, high, limit=PAGE)


def differences(
    source: Iterator[Row], replica: Iterator[Row], counts: Callable[[bytes], bool]
) -> Iterator[Difference]:
    """What differs between two ranges, in the order of keys."""
    mine, theirs = next(source, None), next(replica, None)
    while mine is not None or theirs is not None:
        if theirs is None or (mine is not None and mine[0] < theirs[0]):
            assert mine is not None
            if counts(mine[0]):
                yield mine[0], mine[1], None
            mine = next(source, None)
        elif mine is None or theirs[0] < mine[0]:
            yield theirs[0], None, theirs[1]
            theirs = next(replica, None)
        else:
            if not counts(mine[0]):
                yield mine[0], None, theirs[1]
            elif mine[1] != theirs[1]:
                yield mine[0], mine[1], theirs[1]
            mine, theirs = next(source, None), next(replica, None)


class Comparison:
    """Brings ranges of a replica's rows to what its source has."""

    def __init__(self, judge: Judge, writer: Writer) -> None:
        self._judge = judge
        self._writer = writer

    def between(self, low: bytes, high: bytes) -> Iterator[Difference]:
        """What differs in a range."""
        beating = self._writer.claim.beating
        source = beating(paged(self._judge.moment.scan, low, high))
        replica = beating(paged(self._writer.storage.scan, low, high))
        return differences(source, replica, self._judge.counts)

    def copy(self) -> None:
        """Make all rows equal, whatever the replica has, but the one that makes it a store."""
        for key, mine, theirs in self.between(b"", LAST):
            if key == META:
                continue
            if mine is None:
                self._writer.drop(key)
            elif not self._judge.sends(key, mine):
                if theirs is not None and not self._judge.whole(key, theirs):
                    self._writer.drop(key)
            elif theirs is None:
                self._writer.put(key, mine)
            else:
                self._writer.swap(key, theirs, mine)
            self._writer.ease()

    def take_over(self, low: bytes, high: bytes) -> None:
        """Make a range equal, as far as the source accounts for what differs."""
        for key, mine, theirs in self.between(low, high):
            if key[:1] in (b"M", b"F"):
                self._judge.note(key, "it is not the same in the replica; make that anew")
            elif mine is None:
                if self._judge.may_go(key):
                    self._writer.drop(key)
                else:
                    self._judge.note(key, "it is missing in the store; the replica keeps it")
            elif theirs is None:
                if self._judge.sends(key, mine):
                    self._writer.put(key, mine)
            elif self._judge.replaces(key, mine, theirs):
                self._writer.swap(key, theirs, mine)
            else:
                self._judge.note(key, "store and replica differ; one of them is damaged")
            self._writer.ease()
