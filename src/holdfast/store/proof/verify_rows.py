"""Verifying what belongs to the store as a whole: directory, feed, what leads to entries, strays.

`Verification` is what all parts of one verification share.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import msgspec

from holdfast.errors import (
    DataKeyRemovedError,
    InvalidInputError,
    ScopeNotFoundError,
    StateIntegrityError,
)
from holdfast.seal.subject_keys import holds_subject, read_subject, says_erased
from holdfast.storage.contract import Storage
from holdfast.storage.rows import each
from holdfast.store.commit.change import row_of
from holdfast.store.commit.group import Core
from holdfast.store.journal import entry
from holdfast.store.journal.directory import numbered, read_tombstone
from holdfast.store.journal.entry import Body
from holdfast.store.journal.feed import GAP, LANES, items_of
from holdfast.store.journal.ledger import Ledger
from holdfast.store.journal.save import Floor
from holdfast.store.names import rowkinds
from holdfast.store.names.cells import cell_at
from holdfast.store.names.scope import Scope
from holdfast.store.names.threads import safe_point
from holdfast.store.proof.cosign import Trust
from holdfast.store.proof.schedule_cells import ScheduleCells, read_count
from holdfast.store.proof.verify_report import DAMAGE, Findings
from holdfast.store.proof.witness import Witness
from holdfast.store.upkeep.holds import DEPENDS, depends_in


class OutOfTime(Exception):
    """The time is used up."""


class Verification(Findings):
    """What the parts of one verification share."""

    def __init__(
        self, core: Core, budget: float | None, progress: Callable[[str, int], None] | None
    ) -> None:
        super().__init__()
        self.core = core
        self.end = time.monotonic() + budget if budget is not None else None
        self.progress = progress
        self.feed = FeedCheck(self)
        self.public = core.public
        self.trust = Trust(frozenset(), 0)
        """Whose signatures are called for, whatever the store's own signer did."""
        self.accounts = Accounts(self)
        self.directory = DirectoryCheck(self)
        self.floors: dict[tuple[int, int], Floor] = {}
        """Below which entry each timeline that was looked at is pruned."""
        self.swept = False
        """Whether the scope that is looked at was being pruned when that began."""
        self.whole = True

    def late(self) -> bool:
        """Whether the time is used up."""
        return self.end is not None and time.monotonic() > self.end

    def pause(
        self,
        ledger: Ledger,
        timeline: int,
        sequence: int,
        stopping: Callable[[], None] = lambda: None,
    ) -> None:
        """Tell how far it is, and stop if the time is used up, or nobody waits any more.

        `stopping` says what only this part of the work knows.
        """
        safe_point()
        if self.progress is not None:
            self.progress(str(ledger.scope), self.report.entries)
        if self.late():
            stopping()
            self.report.resume = f"{ledger.number:x}/{timeline}/{sequence}/{ledger.scope}"
            raise OutOfTime


# ---- accounts -----------------------------------------------------------------------------------
# The rows that lead from a change's id, or a correlation, to entries.


class Accounts:
    """Looks up every row that the entries call for, and counts them.

    If all are there and no more are stored than were called for, nothing was added either.
    """

    def __init__(self, check: Verification) -> None:
        self._check = check
        self._wanted: dict[bytes, tuple[str, str]] = {}
        """Rows that entries call for: what is said if one is missing, and of which scope."""
        self._block: tuple[int, int, int] = (0, 0, -1)
        self._correlations: set[str] = set()
        self._called = dict.fromkeys(
            (kind.key for kind in rowkinds.ROWS if kind.check == rowkinds.CALLED), 0
        )
        """How many rows of each kind the entries call for."""

    def note(self, ledger: Ledger, line: int, sequence: int, body: Body) -> None:
        """Take what an entry calls for into account."""
        if line == 0 and body.ops and body.ops[0][0] == entry.REKEY:
            key = rowkinds.epoch(ledger.number, body.ops[0][1])
            message = "it is missing: a fork could rest on a key that is gone"
            self._wanted[key] = message, str(ledger.scope)
            self._called[b"K"] += 1
        check_noted(self._check, ledger, line, sequence, body)
        if (name := row_of(self._check.core, ledger, body)) is not None:
            self._wanted[name] = "it is missing: its change could be applied once more", ""
            # Of the entries of one change, the first by number that is not erased stands for it.
            others = [other for other in body.also if other[0] not in self._check.directory.erased]
            self._called[b"I"] += all((ledger.number, line) <= other[:2] for other in others)
        if body.cause is not None and body.cause.correlation is not None:
            self._correlation(ledger, line, sequence, body.cause.correlation)

    def _correlation(self, ledger: Ledger, line: int, sequence: int, correlation: str) -> None:
        scope = ledger.number
        block = (scope, line, sequence // rowkinds.BLOCK)
        if block != self._block:
            self._block, self._correlations = block, set()
        if correlation in self._correlations:
            return
        self._correlations.add(correlation)
        self._called[b"R"] += 1
        tag = self._check.core.tag(b"correlation", correlation)
        key = rowkinds.correlation(tag, scope, line, sequence)
        message = "it is missing: entries of a correlation would not be found"
        self._wanted[key] = message, str(ledger.scope)

    def forget(self) -> None:
        """The scope that calls for what was not looked up yet has been erased."""
        self._wanted = {}

    def settle(self) -> None:
        """Look up what was called for since the last time."""
        wanted, self._wanted = self._wanted, {}
        keys = list(wanted)
        for start in range(0, len(keys), 1000):
            page = keys[start : start + 1000]
            for key, row in zip(page, self._check.core.storage.get(page), strict=True):
                if row is None:
                    self._check.find("damage", rowkinds.describe(key), *wanted[key], row=key)

    def compare(self, kind: bytes, stored: int) -> None:
        """Compare the number of rows with what was called for, if all entries were read.

        Entries that are pruned call for nothing, and rows of theirs stay.
        """
        check, called = self._check, self._called[kind]
        pruned = kind != b"K" and any(floor.sequence for floor in check.floors.values())
        if not check.whole or check.report.findings or stored == called or pruned:
            return
        if check.report.unswept:
            return  # what is left of the erased, or is just being dropped
        if stored > called and (check.report.losses or check.feed.moved()):
            return  # those of lost entries stay: an id is applied once; or written since
        before = len(check.directory.erased)
        check.directory.look_again()
        if len(check.directory.erased) == before:
            message = f"{stored} are stored, the entries call for {called}"
            check.find("unaccounted", rowkinds.describe(kind), message)


def check_epochs(check: Verification, ledger: Ledger) -> int:
    """Open the rows that announce a scope's data keys; how many there are."""
    prefix = rowkinds.epoch(ledger.number, 0)[:7]
    found = check.core.storage.scan(prefix, rowkinds.after(prefix))
    for key, row in found:
        with check.noting(key, ledger):
            ledger.open_row(key, row)
    return len(found)


def check_outcomes(check: Verification) -> None:
    """Open the rows of changes with an id."""
    stored = 0
    for key, row in each(check.core.storage.scan, b"I", b"J"):
        with check.noting(key):
            check.core.open_row(key, row)
            stored += 1
    check.accounts.compare(b"I", stored)


def check_correlations(check: Verification) -> None:
    """Find rows of correlations that belong to no scope, or are none."""
    stored = 0
    for key, row in each(check.core.storage.scan, b"R", b"S"):
        number = int.from_bytes(key[17:23], "big")
        if rowkinds.row_kind(key) is None or row:
            # With its scope, by which it heals: what it has to be follows from its key.
            ledger = next((one for one in check.directory.ledgers if one.number == number), None)
            check.row("unaccounted", key, rowkinds.ROW[b"R"].stray, ledger)
        elif not check.directory.is_known(number):
            check.directory.stray(key, number, rowkinds.ROW[b"R"].stray)
        else:
            stored += 1
    check.accounts.compare(b"R", stored)


# ---- cells --------------------------------------------------------------------------------------


def check_cells(check: Verification) -> None:
    """Find cells that are none of ours, or damaged."""
    storage, knows = check.core.storage, check.directory.knows
    odd = [
        key for low, high in rowkinds.gaps(rowkinds.CELLS) for key, _ in storage.cells(low, high)
    ]
    starts = {kind.key: kind for kind in rowkinds.CELLS if kind.check == rowkinds.FORM}
    scopes = {ledger.number for ledger in check.directory.ledgers}
    for start, kind in starts.items():
        for key, cell in each(storage.cells, start, rowkinds.after(start)):
            whole = rowkinds.cell_kind(key)
            scoped = whole is not None and whole.is_scoped
            if whole is None or (start == rowkinds.BESIDE and len(cell) != 8):
                odd.append(key)
            elif not kind.copied and scoped:  # a pin; also of scopes that are still to be made
                check.report.unfinished += rowkinds.scope_of(key) not in scopes
            elif scoped and not knows(rowkinds.scope_of(key)):  # it can be lost with its scope
                check.row("unaccounted", key, "nothing accounts for this cell")
    for key in odd:
        check.stray(key, "cell")
    _schedules(check)
    _rests(check)
    token = b""
    for key, row in check.core.leases.cells():
        ours = rowkinds.cell_kind(key) is not None
        if ours and key == rowkinds.token(key):
            token = key
        if not ours or token != rowkinds.token(key):
            check.find("unaccounted", rowkinds.describe(key), "it belongs to no lease")
            continue
        with check.noting(key, cell=True):
            check.core.leases.check(key, row)
            check.report.leases += key == token


def _schedules(check: Verification) -> None:
    cells, first = ScheduleCells(check.core), rowkinds.SCHEDULES
    for key, row in each(check.core.storage.cells, first, rowkinds.after(first)):
        with check.noting(key, cell=True):
            if key == first:
                read_count(check.core, row)  # the next change of a schedule mends it
            elif rowkinds.cell_kind(key) is not None:
                cells.open(key, row)
            else:
                check.find("unaccounted", rowkinds.describe(key), "it belongs to no schedule")


def check_noted(check: Verification, ledger: Ledger, line: int, sequence: int, body: Body) -> None:
    """Tell which cells are missing that a checkpoint calls for: retention would drop its base."""
    op: list[Any] = body.ops[0] if body.ops else [0]
    if op[0] != entry.CHECKPOINT or len(op) < 7 or DEPENDS.encode() not in op[6]:
        return
    by = rowkinds.entry(rowkinds.line(b"E", ledger.number, line), sequence)
    for noted in depends_in(check.core.codec.decode(op[6])):
        at = _noted_at(check.core, *noted)
        key = rowkinds.rest(at, by)
        missing = at and cell_at(check.core.storage, key) is None
        if missing and not check.directory.ends_now(ledger):
            message = "it is missing: retention would not keep what the checkpoint rests on"
            check.find("damage", rowkinds.describe(key), message)


def _noted_at(core: Core, scope: str, timeline: str, sequence: int, hash_: str) -> bytes:
    """Key of an entry that a checkpoint was said to rest on; empty if it is there no longer."""
    try:
        other = core.known(Scope.parse(scope))
        lines = {} if other is None else {one[1]: one[0] for one in core.timelines(other)}
        if other is None or timeline not in lines or not 0 < sequence < 1 << 40:
            return b""
        key = rowkinds.entry(rowkinds.line(b"E", other.number, lines[timeline]), sequence)
        row = core.storage.get([key])[0]
        same = row and other.entry_hash(key, entry.split_row(row)[0].data).hex() == hash_
    except (InvalidInputError, StateIntegrityError):  # named where it is; or never one of ours
        return b""
    return key if same else b""


def _rests(check: Verification) -> None:
    """Tell what is no cell of this kind, is about scopes that there never were, or misnames one."""
    directory_of = {ledger.number: ledger.tombstone for ledger in check.directory.ledgers}
    for key, directory in each(check.core.storage.cells, b"R", b"S"):
        ends = [rowkinds.scope_of(end) for end in rowkinds.ends_of(key)]
        right = rowkinds.cell_kind(key) is not None and rowkinds.row_kind(directory) is not None
        if not right or not all(check.directory.knows(number) for number in ends):
            check.stray(key, "cell")
        elif directory != directory_of.get(ends[1], directory):
            check.find("damage", rowkinds.describe(key), "it names another scope than it is of")


# ---- directory ----------------------------------------------------------------------------------
# Which scopes there are, and which were erased.
#
# It is read once. Whoever then meets a scope that it did not name has it read again: the scope may
# have been made since, and may even have been erased since. Its tombstone stays.


_decode = msgspec.msgpack.Decoder().decode
AGAIN = "erase it again"


class DirectoryCheck:
    """The scopes that the directory names."""

    def __init__(self, check: Verification) -> None:
        self._check = check
        self._core = check.core
        self.ledgers: list[Ledger] = []
        """Every scope, deleted ones included, erased ones not."""
        self.ended: set[int] = set()
        """Numbers of the scopes that it says are deleted."""
        self.erased: dict[int, bytes] = {}
        """Those that it says are erased, and where the tombstone lies: the feed may name them."""
        self._told: set[bytes] = set()
        """Tombstones of those of which something is left that no sweep would find."""
        self._known: set[int] = set()
        """Numbers of the scopes that are not erased."""

    def run(self) -> None:
        """Read it."""
        lives: dict[bytes, list[tuple[bytes, bytes]]] = {}
        for key, row in each(self._core.storage.scan, b"D", b"E"):
            if rowkinds.row_kind(key) is not None:
                lives.setdefault(key[:21], []).append((key, row))
            else:
                self._check.stray(key)
        for life in lives.values():
            newest, ledger = life[-1][0], None
            if newest[21] == rowkinds.ERASED:
                with self._check.noting(newest):
                    self._tombstone(life)
                continue
            for key, row in life:
                try:
                    if key[21] == rowkinds.THERE:
                        ledger = self._core.ledger_of(key, row)
                        self.ledgers.append(ledger)
                        self._known.add(ledger.number)
                    else:
                        self._core.open_row(key, row)
                        self.ended.update([ledger.number] if ledger is not None else [])
                except ScopeNotFoundError:  # erased since its row was read
                    self.erased[_decode(self._core.open_row(key, row))[1]] = rowkinds.tombstone(key)
                    self._check.whole = False
                except (*DAMAGE, ValueError) as error:
                    self._check.row("damage", key, str(error))
        self.ledgers.sort(key=lambda ledger: (str(ledger.scope), ledger.number))

    def _tombstone(self, life: list[tuple[bytes, bytes]]) -> None:
        """Of a scope that is erased only the tombstone should be there."""
        key, row = life[-1]
        tombstone = read_tombstone(self._core, key, row)
        self.erased[tombstone.number] = key
        self._check.report.erased += 1
        if self._is_unswept(key):
            self._check.report.unswept += 1
            return
        if self._core.ring is not None and self._core.ring.holds(tombstone.id):
            self._check.find("erasure", rowkinds.describe(key), f"its key is in the ring: {AGAIN}")
        for left, _ in life[:-1]:
            self._left(key, left)

    def knows(self, number: int) -> bool:
        """Whether there is, or was, a scope of this number."""
        return self.is_known(number) or number in self.erased

    def is_known(self, number: int) -> bool:
        """Whether there is a scope of this number; it may have been made since it was read."""
        if number not in self._known and number not in self.erased:
            self.look_again()
        return number in self._known

    def stray(self, key: bytes, number: int, message: str) -> None:
        """Find a row of a scope that is not there."""
        if self.is_known(number):
            return
        if number not in self.erased:
            self._check.row("unaccounted", key, message)
        elif not self._is_unswept(self.erased[number]):
            self._left(self.erased[number], key)

    def _is_unswept(self, tombstone: bytes) -> bool:
        """Whether rows of an erased scope may be there: the one that has its name goes last."""
        there = tombstone[:21] + bytes([rowkinds.THERE])
        return self._core.storage.get([there])[0] is not None

    def _left(self, tombstone: bytes, key: bytes) -> None:
        """Find a row of an erased scope, one of each, unless it went before the name did."""
        if tombstone not in self._told and self._core.storage.get([key])[0] is not None:
            self._told.add(tombstone)
            place = rowkinds.describe(key)
            self._check.find("erasure", place, f"left of an erased scope: {AGAIN}")

    def ends_now(self, ledger: Ledger) -> bool:
        """Whether it says of a scope that it is deleted, as of this moment."""
        return self._core.storage.get([rowkinds.deletion(ledger.tombstone)])[0] is not None

    def look_again(self) -> None:
        """Take note of scopes that were made, or erased, since it was read."""
        for number, key in dict(numbered(self._core)).items():
            if key[21] == rowkinds.THERE:
                self._known.add(number)
            elif number not in self.erased:
                self.erased[number] = key
                self._check.whole = False


# ---- feed ---------------------------------------------------------------------------------------
# The feed, and what it says is the newest entry of each timeline.
#
# A store is verified while others write. A scope is judged as of the moment at which the feed was
# read last before it: entries behind those that the feed named then are not looked at. Whatever is
# found lying there is either newer, and then the feed names its entry once it is read again, or it
# belongs to nothing. For rows and the feed's row are committed together.


Head = tuple[int, bytes]
"""(number, hash) of an entry."""


_NOTHING = (0, b"", 0)


class FeedCheck:
    """The lanes, each read once from its first row to its newest."""

    def __init__(self, check: Verification) -> None:
        self._check = check
        self._lanes: dict[int, Head] = {}
        self._heads: dict[tuple[int, int], tuple[int, bytes, int]] = {}
        """Number and hash of the newest entry of each timeline, and how many it has."""
        self._judged: dict[tuple[int, int], tuple[int, bytes, int]] = {}
        self.lines: defaultdict[int, set[int]] = defaultdict(set)
        """Timelines of each scope that the feed names."""

    def run(self, witness: Witness | None = None) -> None:
        """Read what was committed since the last time, and compare it with what a witness saw."""
        for lane in range(LANES):
            expected = witness.lanes.get(lane) if witness is not None else None
            self._read(lane, expected)
            number = self._lanes[lane][0]
            if expected is not None and number < expected[0]:
                message = f"the witness saw {expected[0]} commits, only {number} are here"
                self._check.find("witness", f"feed lane {lane}", f"{message}: it was put back")

    def judged(self, scope: int, timeline: int) -> Head:
        """The newest entry of a timeline that is known of now: that is what it is judged by."""
        found = self._judged[scope, timeline] = self._heads.get((scope, timeline), _NOTHING)
        return found[:2]

    def counted(self, scope: int, timeline: int) -> int:
        """How many entries of a timeline the feed named when it was judged."""
        return self._judged[(scope, timeline)][2]

    def newest(self, scope: int, timeline: int) -> int:
        """The number of the newest entry of a timeline, as of this moment."""
        self.run()
        return self._heads.get((scope, timeline), _NOTHING)[0]

    def moved(self) -> bool:
        """Whether something was committed that has not been looked at; nothing is of the erased."""
        self.run()
        erased = self._check.directory.erased
        return any(
            found[0] > self._judged.get(line, _NOTHING)[0]
            for line, found in self._heads.items()
            if line[0] not in erased
        )

    def _read(self, lane: int, expected: Head | None) -> None:
        number, tag = self._lanes.get(lane, (0, bytes(32)))
        low = rowkinds.feed(lane, number + 1) if number else b"F" + bytes([lane])
        high = rowkinds.after(b"F" + bytes([lane]))
        for key, row in each(self._check.core.storage.scan, low, high):
            if rowkinds.row_kind(key) is None:
                self._check.row("unaccounted", key, rowkinds.ROW[b"F"].stray)
                continue
            self._row(lane, key, row, number, tag)
            number, tag = int.from_bytes(key[2:], "big"), row[-32:]
            if expected is not None and expected[0] == number and expected[1] != tag:
                place = rowkinds.describe(key)
                self._check.find("witness", place, "the witness saw another row here")
        self._lanes[lane] = (number, tag)

    def _row(self, lane: int, key: bytes, row: bytes, number: int, tag: bytes) -> None:
        """Check a row against the one before it, and note the entries that it names."""
        check = self._check
        at = int.from_bytes(key[2:], "big")
        if at != number + 1:
            missing = f"rows {number + 1} to {at - 1} are missing"
            if row == GAP:
                missing = f"rows from {number + 1} on may be missing"
            check.row("feed", key, missing)
        try:
            items = items_of(row)
        except StateIntegrityError as error:  # the lane goes on behind it
            check.row("damage", key, str(error))
            items = []
        if at == number + 1 and not check.core.lanes.fits(lane, at, tag, row):
            changed = "it was changed, or does not follow the row before it"
            check.row("feed", key, changed)
            items = []  # which nobody vouches for
        check.report.feed_rows += 1
        for item in items:
            if not item.entries:
                continue  # a link
            last = item.first + item.entries - 1
            line = (item.scope, item.timeline)
            known, hash_, count = self._heads.get(line, _NOTHING)
            self.lines[item.scope].add(item.timeline)
            newest = (last, item.hash) if known < last else (known, hash_)
            self._heads[line] = *newest, count + item.entries


# ---- strays -------------------------------------------------------------------------------------
# Every row must belong somewhere: to a scope and a timeline that there are.
#
# Only the first row of each is looked for, so that it costs little; what belongs to a timeline is
# accounted for where that is read.


def check_kinds(check: Verification) -> None:
    """Find rows of kinds that there are not."""
    for low, high in rowkinds.gaps(rowkinds.ROWS):
        for key, _ in check.core.storage.scan(low, high, limit=100):
            check.stray(key)


def check_scopes(check: Verification, kind: bytes) -> None:
    """Find rows of scopes that the directory does not name."""
    for key in _firsts(check.core.storage, kind, len(kind) + rowkinds.SCOPE):
        number = rowkinds.scope_of(key)
        prefix = b"P" + key[1:7]
        if len(key) < len(kind) + rowkinds.SCOPE:
            check.stray(key)
        # One with rows that are not finished may be made by the entry to come.
        elif number in check.directory.erased or not check.core.storage.cells(
            prefix, rowkinds.after(prefix), limit=1
        ):
            check.directory.stray(key, number, "it belongs to no scope")


def check_timelines(check: Verification, ledger: Ledger, known: set[int]) -> None:
    """Find rows of timelines that a scope does not have, or of none."""
    scope = ledger.number.to_bytes(rowkinds.SCOPE, "big")
    for kind in (kind for kind in rowkinds.ROWS if kind.is_lined):
        for key in _firsts(check.core.storage, kind.key + scope, len(rowkinds.line(b"E", 0, 0))):
            line, early = rowkinds.line_of(key), rowkinds.sequence_of(key) <= ledger.before
            if len(key) < kind.length or (kind.key == b"E" and early):
                check.row("unaccounted", key, "nothing accounts for this row", ledger)
                continue
            if line == rowkinds.UPLOADS and kind.layout == rowkinds.PACK:
                continue
            if line not in known:  # it may have been forked since they were listed
                known = known | set(readable_timelines(check.core, ledger))
            if line not in known:
                check.row("unaccounted", key, "it belongs to no timeline", ledger)


def _firsts(storage: Storage, prefix: bytes, length: int) -> Iterator[bytes]:
    """The first key of all that begin with the same bytes; of shorter keys, each."""
    low = prefix
    while found := storage.scan(low, rowkinds.after(prefix), limit=1):
        key = found[0][0]
        yield key
        low = rowkinds.after(key[:length]) if len(key) >= length else key + b"\0"


# ---- subjects -----------------------------------------------------------------------------------
# Cells of their names, tombstones, and the ring beside both.


def check_subjects(check: Verification) -> None:
    """Check every subject that is there, and that no key is left of those that are erased."""
    core, ring = check.core, check.core.ring
    for key, row in each(core.storage.scan, b"U", rowkinds.after(b"U")):
        if ring is None or rowkinds.row_kind(key) is None:
            check.stray(key)
            continue
        check.report.subjects_erased += 1
        with check.noting(key):
            core.open_row(key, row)
        # The cell goes last: while it is there, somebody erases it, or was cut short.
        left = holds_subject(ring, key[1:]) and not any(_erasing(check, key[1:]))
        if left and holds_subject(ring, key[1:]):
            check.find("erasure", rowkinds.describe(key), f"its key is in the ring: {AGAIN}")
    for key, cell in core.subjects.cells():
        if ring is None or rowkinds.cell_kind(key) is None:
            check.stray(key, "cell")
            continue
        with check.noting(key, cell=True):
            named = core.subjects.read(key, cell)
            check.report.subjects += not named.erasing
            check.report.unswept += named.erasing
            gone = not named.erasing and read_subject(ring, named.id) is None
            if gone and core.subjects.cell(key) == cell:
                known = says_erased(ring, named.id)
                message = "the ring says that it is erased" if known else "its key is missing"
                check.find("erasure" if known else "damage", rowkinds.describe(key), message)


def _erasing(check: Verification, id: bytes) -> Iterator[bool]:
    """Whether cells say that a subject is being erased."""
    for key, cell in check.core.subjects.cells():
        with suppress(*DAMAGE):  # found and named with the others
            named = check.core.subjects.read(key, cell)
            yield named.erasing and named.id == id


# ---- timelines ----------------------------------------------------------------------------------
# The rows that name a scope's timelines.
#
# Nothing commits to such a row but its seal. What it says of where the timeline starts, the entry
# that began it says, too; a name stands nowhere else. A timeline whose row is damaged or missing is
# looked at like any other: its entries are there.


MAIN = ("main", 0, 0)
"""What the row of the first timeline says."""
_decode_timeline = msgspec.msgpack.Decoder(tuple[str, int, int]).decode


def find_timelines(check: Verification, ledger: Ledger) -> list[int]:
    """Numbers of the timelines that a scope has or must have; what is off with their rows."""
    found: set[int] = set()
    for key, row in _rows(check.core, ledger):
        if len(key) != len(rowkinds.line(b"T", 0, 0)):
            check.row("unaccounted", key, "nothing accounts for this row", ledger)
            continue
        number = rowkinds.line_of(key)
        found.add(number)
        try:
            said, begun = _decode_timeline(ledger.open_row(key, row)), begun_at(ledger, number)
            if begun is not None and begun != (said[1:] if number else said):
                raise StateIntegrityError("it names another start than its first entry")
        except DataKeyRemovedError:
            raise  # nothing of the scope can be read
        except (*DAMAGE, msgspec.MsgspecError) as error:
            check.row("damage", key, str(error), ledger)
    named = check.feed.lines[ledger.number]
    if 0 not in found:
        check.row("damage", rowkinds.line(b"T", ledger.number, 0), "it is missing", ledger)
    for number in sorted(named - found - {0}):
        key = rowkinds.line(b"T", ledger.number, number)
        check.row("feed", key, "it is missing, and the feed names entries of this timeline", ledger)
    return sorted(found | named | {0})


def begun_at(ledger: Ledger, number: int) -> tuple[object, ...] | None:
    """What the row of a timeline must say besides its name: where it starts. Of the first one it is
    all that it says; None if the entry that began it cannot be read."""
    if number == 0:
        return MAIN
    with suppress(*DAMAGE):
        *_, body = ledger.entry_at(number, ledger.before + 1)
        if body.ops[0][0] == entry.FORK:
            return tuple(body.ops[0][1:3])
    return None


def readable_timelines(core: Core, ledger: Ledger) -> dict[int, str]:
    """Names of the timelines whose rows can be read; the others were found and named before."""
    found: dict[int, str] = {}
    for key, row in _rows(core, ledger):
        with suppress(*DAMAGE, msgspec.MsgspecError):
            found[rowkinds.line_of(key)] = _decode_timeline(ledger.open_row(key, row))[0]
    return found


def _rows(core: Core, ledger: Ledger) -> Iterator[tuple[bytes, bytes]]:
    prefix = b"T" + ledger.number.to_bytes(rowkinds.SCOPE, "big")
    return each(core.storage.scan, prefix, rowkinds.after(prefix))
