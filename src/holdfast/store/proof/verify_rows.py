"""Verifying the rows that lead from a change's id, or a correlation, to entries."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.errors import (
    DataKeyRemovedError,
    InvalidInputError,
    ScopeNotFoundError,
    StateIntegrityError,
)
from holdfast.seal.subject_keys import holds_subject, read_subject, says_erased
from holdfast.store.commit.core import Core
from holdfast.store.commit.outcome import Outcome, id_tag
from holdfast.store.journal import entry
from holdfast.store.journal.directory import Tombstone, by_number, read_tombstone
from holdfast.store.journal.entry import Body
from holdfast.store.journal.feed import LANES, items_of
from holdfast.store.journal.ledger import Ledger
from holdfast.store.journal.save import NO_FLOOR
from holdfast.store.names import rowkinds
from holdfast.store.names.scope import Scope
from holdfast.store.names.threads import safe_point
from holdfast.store.proof.verify_nodes import DAMAGE
from holdfast.store.proof.verify_uploads import is_pinned
from holdfast.store.upkeep.holds import DEPENDS, depends_in

if TYPE_CHECKING:
    from holdfast.store.proof.verify import _Check
    from holdfast.store.proof.witness import Witness


class Accounts:
    """Looks up every row that the entries call for, and counts them.

    If all are there and no more are stored than were called for, nothing was added either.
    """

    def __init__(self, check: _Check) -> None:
        self._check = check
        self._wanted: dict[bytes, tuple[str, str]] = {}
        """Rows that entries call for: what is said if one is missing, and of which scope."""
        self._block: tuple[int, int, int] = (0, 0, -1)
        self._correlations: set[str] = set()
        self.ids = 0
        self.epochs = 0
        self.stored_epochs = 0
        self.correlations = 0
        self._lines: dict[tuple[str, str], list[tuple[int, int, int]]] | None = None
        """(number before the first entry, scope, timeline) for each that has had a name."""

    def note(self, ledger: Ledger, line: int, sequence: int, body: Body) -> None:
        """Take what an entry calls for into account."""
        if line == 0 and body.ops and body.ops[0][0] == entry.REKEY:
            key = rowkinds.epoch(ledger.number, body.ops[0][1])
            message = "it is missing: a fork could rest on a key that is gone"
            self._wanted[key] = message, str(ledger.scope)
            self.epochs += 1
        check_noted(self._check, ledger, line, sequence, body)
        if body.change is not None:
            self._id(ledger, line, sequence, body)
        if body.cause is not None and body.cause.correlation is not None:
            self._correlation(ledger, line, sequence, body.cause.correlation)

    def _id(self, ledger: Ledger, line: int, sequence: int, body: Body) -> None:
        assert body.change is not None
        alone = not body.also and not body.reads
        tag = id_tag(self._check.core, ledger if alone else None, body.change)
        message = "it is missing: its change could be applied once more"
        self._wanted[rowkinds.change(tag)] = message, ""
        # Of the entries of one change, the first by number that is not erased stands for it.
        others = [other for other in body.also if other[0] not in self._check.directory.erased]
        stands = all((ledger.number, line) <= other[:2] for other in others)
        self.ids += stands and not self._is_pruned(ledger.number, line, sequence)

    def _correlation(self, ledger: Ledger, line: int, sequence: int, correlation: str) -> None:
        scope = ledger.number
        block = (scope, line, sequence // rowkinds.BLOCK)
        if block != self._block:
            self._block, self._correlations = block, set()
        if correlation in self._correlations:
            return
        self._correlations.add(correlation)
        self.correlations += self.counts_block(scope, line, block[2])
        tag = self._check.core.tag(b"correlation", correlation)
        key = rowkinds.correlation(tag, scope, line, sequence)
        message = "it is missing: entries of a correlation would not be found"
        self._wanted[key] = message, str(ledger.scope)

    def _is_pruned(self, scope: int, line: int, sequence: int) -> bool:
        return sequence <= self._check.floors.get((scope, line), NO_FLOOR).sequence

    def counts_block(self, scope: int, line: int, block: int) -> bool:
        """Whether all entries of a block can say which correlations they have."""
        return not self._is_pruned(scope, line, max(block * rowkinds.BLOCK, 1))

    def of_pruned(self, plain: bytes) -> bool:
        """Whether the entry that stands for a change with an id is pruned."""
        if not any(floor.sequence for floor in self._check.floors.values()):
            return False
        if self._lines is None:
            self._lines = {}
            for ledger in self._check.directory.ledgers:
                for number, name in readable_timelines(self._check.core, ledger).items():
                    named = self._lines.setdefault((str(ledger.scope), name), [])
                    named.append((ledger.before, ledger.number, number))
        found: list[tuple[int, int, int]] = []
        for scope, name, sequence, *_ in Outcome(*msgspec.msgpack.decode(plain)).places:
            lives = [life for life in self._lines.get((scope, name), ()) if life[0] < sequence]
            if lives:
                found.append((*max(lives)[1:], sequence))
        return bool(found) and self._is_pruned(*min(found))

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

    def compare(self, kind: bytes, stored: int, called: int) -> None:
        """Compare the number of rows with what was called for, if all entries were read."""
        report = self._check.report
        if report.findings or report.unswept or stored == called:
            return
        if self._check.leftovers:
            return  # what is left of the erased, or is just being dropped
        if stored > called and report.losses:
            return  # those of entries that are lost stay: a change with an id is applied once
        if stored > called and self._check.feed.moved():
            return  # rows of entries that were written since
        if not self._check.directory.erased_meanwhile():
            what = rowkinds.describe(kind)
            message = f"{stored} are stored, the entries call for {called}"
            self._check.find("unaccounted", what, message)


def check_noted(check: _Check, ledger: Ledger, line: int, sequence: int, body: Body) -> None:
    """Tell which cells are missing that a checkpoint calls for: retention would drop its base."""
    op: list[Any] = body.ops[0] if body.ops else [0]
    if op[0] != entry.CHECKPOINT or len(op) < 7 or DEPENDS.encode() not in op[6]:
        return
    by = rowkinds.entry(rowkinds.line(b"E", ledger.number, line), sequence)
    for noted in depends_in(check.core.codec.decode(op[6])):
        at = _noted_at(check.core, *noted)
        key = rowkinds.rest(at, by) if at else b""
        if not key or check.core.storage.cells(key, key + b"\0", limit=1):
            continue
        if not check.directory.ends_now(ledger):
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


def check_rests(check: _Check) -> None:
    """Tell what is no cell of this kind, is about scopes that there never were, or misnames one."""
    low = b"R"
    directory_of = {ledger.number: ledger.tombstone for ledger in check.directory.ledgers}
    while page := check.core.storage.cells(low, b"S", limit=1000):
        for key, directory in page:
            ends = [rowkinds.scope_of(end) for end in rowkinds.ends_of(key)]
            right = len(key) == rowkinds.REST and len(directory) == rowkinds.DIRECTORY
            if not right or not all(check.directory.knows(number) for number in ends):
                check.find("unaccounted", rowkinds.describe(key), "nothing accounts for this cell")
            elif directory != directory_of.get(ends[1], directory):
                check.find("damage", rowkinds.describe(key), "it names another scope than it is of")
        low = page[-1][0] + b"\0"


# ---- verify directory ---------------------------------------------------------------------------
# Verifying the directory: which scopes there are, and which were erased.
#
# It is read once. Whoever then meets a scope that it did not name has it read again: the scope may
# have been made since, and may even have been erased since. Its tombstone stays.


_decode = msgspec.msgpack.Decoder().decode
_Rows = list[tuple[bytes, bytes]]


class DirectoryCheck:
    """The scopes that the directory names."""

    def __init__(self, check: _Check) -> None:
        self._check = check
        self._core = check.core
        self.ledgers: list[Ledger] = []
        """Every scope, deleted ones included, erased ones not."""
        self.ended: set[int] = set()
        """Numbers of the scopes that it says are deleted."""
        self.erased: dict[int, bytes] = {}
        """Those that it says are erased, and where the tombstone lies: the feed may name them."""
        self._unswept: set[int] = set()
        """Those of the erased whose rows are left for a sweep."""
        self._known: set[int] = set()
        """Numbers of the scopes that are not erased."""

    def run(self) -> None:
        """Read it."""
        for ledger in self._ledgers():
            self.ledgers.append(ledger)
            self._known.add(ledger.number)
        self.ledgers.sort(key=lambda ledger: (str(ledger.scope), ledger.number))

    def knows(self, number: int) -> bool:
        """Whether there is, or was, a scope of this number."""
        return self.is_known(number) or number in self.erased

    def is_known(self, number: int) -> bool:
        """Whether there is a scope of this number; it may have been made since it was read."""
        if number not in self._known and number not in self.erased:
            self._look_again()
        return number in self._known

    def name_of(self, number: int) -> str:
        """The scope of a number; empty if there was none when the directory was read."""
        return next((str(one.scope) for one in self.ledgers if one.number == number), "")

    def stray(self, key: bytes, number: int, message: str) -> None:
        """Find a row of a scope that is not there."""
        if self.is_known(number):
            return
        if number not in self.erased:
            self._check.find("unaccounted", rowkinds.describe(key), message)
        elif number not in self._unswept:
            at = self.erased[number]
            with suppress(*DAMAGE):  # found and named before
                tombstone = read_tombstone(self._core, at, self._core.storage.get([at])[0] or b"")
                self._check.leftovers.row(key, tombstone, at)

    def ends_now(self, ledger: Ledger) -> bool:
        """Whether it says of a scope that it is deleted, as of this moment."""
        return self._core.storage.get([rowkinds.deletion(ledger.tombstone)])[0] is not None

    def erased_meanwhile(self) -> bool:
        """Whether a scope was erased since it was read."""
        found = by_number(self._core).items()
        return any(key[21] == rowkinds.ERASED and n not in self.erased for n, (key, _) in found)

    def _look_again(self) -> None:
        newest: dict[int, bytes] = {}
        for key, row in self._rows():
            with suppress(*DAMAGE, ValueError):  # found and named before
                if key[21] == rowkinds.THERE:
                    newest[_decode(self._core.open_row(key, row))[1]] = key
                elif key[21] == rowkinds.ERASED:
                    newest[read_tombstone(self._core, key, row).number] = key
        for number, key in newest.items():
            if key[21] == rowkinds.THERE:
                self._known.add(number)
            elif number not in self.erased:
                self.erased[number] = key
                self._check.whole = False

    def _ledgers(self) -> Iterator[Ledger]:
        """Every scope, deleted ones included, erased ones not."""
        core = self._core
        opened: tuple[bytes, int] = (b"", 0)
        for key, row in self._not_erased():
            try:
                if key[21] == rowkinds.THERE:
                    ledger = core.ledger_of(key, row)
                    opened = (key[:21], ledger.number)
                    yield ledger
                else:
                    core.open_row(key, row)
                    if opened[0] == key[:21]:
                        self.ended.add(opened[1])
            except ScopeNotFoundError:  # erased since its row was read
                self.erased[_decode(core.open_row(key, row))[1]] = rowkinds.tombstone(key)
                self._check.whole = False
            except (*DAMAGE, ValueError) as error:
                self._check.find("damage", rowkinds.describe(key), str(error), row=key)

    def _not_erased(self) -> Iterator[tuple[bytes, bytes]]:
        """Rows of scopes that are not erased; of the others only the tombstone should be there."""
        life: _Rows = []
        for key, row in self._rows(tell=True):
            if life and life[0][0][:21] != key[:21]:
                yield from self._unless_erased(life)
                life = []
            life.append((key, row))
        yield from self._unless_erased(life)

    def _rows(self, *, tell: bool = False) -> Iterator[tuple[bytes, bytes]]:
        low = b"D"
        while page := self._core.storage.scan(low, b"E", limit=1000):
            for key, row in page:
                if len(key) == rowkinds.DIRECTORY:
                    yield key, row
                elif tell:
                    place = rowkinds.describe(key)
                    self._check.find("unaccounted", place, "nothing accounts for this row")
            low = page[-1][0] + b"\0"

    def _unless_erased(self, life: _Rows) -> _Rows:
        """The directory rows of one scope; none if it is erased, which is checked."""
        if not life or life[-1][0][21] != rowkinds.ERASED:
            return life
        key, row = life[-1]
        try:
            tombstone = read_tombstone(self._core, key, row)
        except DAMAGE as error:
            self._check.find("damage", rowkinds.describe(key), str(error), row=key)
            return []
        self.erased[tombstone.number] = key
        self._check.report.erased += 1
        if is_unswept(self._core, tombstone, key):
            # What it held is closed, and a sweep finds it by a row: it was not waited for.
            self._unswept.add(tombstone.number)
            self._check.report.unswept += 1
            return []
        if self._core.ring is not None and self._core.ring.holds(tombstone.id):
            self._check.leftovers.key_of_scope(tombstone, key)
        for left, _ in life[:-1]:
            self._check.leftovers.row(left, tombstone, key)
        return []


# ---- verify feed --------------------------------------------------------------------------------
# Verifying the feed, and what it says is the newest entry of each timeline.
#
# A store is verified while others write. A scope is judged as of the moment at which the feed was
# read last before it: entries behind those that the feed named then are not looked at. Whatever is
# found lying there is either newer, and then the feed names its entry once it is read again, or it
# belongs to nothing. For rows and the feed's row are committed together.


Head = tuple[int, bytes]
"""(number, hash) of an entry."""


class _Named:
    """What the feed names of a timeline: number and hash of its newest entry, and how many."""

    __slots__ = ("count", "hash", "last")

    def __init__(self) -> None:
        self.last, self.hash, self.count = 0, b"", 0


class FeedCheck:
    """The lanes, each read once from its first row to its newest."""

    def __init__(self, check: _Check) -> None:
        self._check = check
        self._lanes: dict[int, Head] = {}
        self._heads: dict[tuple[int, int], _Named] = {}
        self._judged: dict[tuple[int, int], tuple[int, int]] = {}
        self.lines: dict[int, set[int]] = {}
        """Timelines of each scope that the feed names."""

    def run(self, witness: Witness | None) -> None:
        """Read all lanes, and compare them with what a witness saw."""
        for lane in range(LANES):
            expected = witness.lanes.get(lane) if witness is not None else None
            self._read(lane, expected)
            number = self._lanes[lane][0]
            if expected is not None and number < expected[0]:
                self._check.find(
                    "witness",
                    f"feed lane {lane}",
                    f"the witness saw {expected[0]} commits, only {number} are here: "
                    "it was put back",
                )

    def catch_up(self) -> None:
        """Read what was committed since."""
        for lane in range(LANES):
            self._read(lane, None)

    def named(self, scope: int) -> set[int]:
        """Timelines of a scope that the feed names."""
        return self.lines.get(scope, set())

    def judged(self, scope: int, timeline: int) -> Head:
        """The newest entry of a timeline that is known of now: that is what it is judged by."""
        line = scope, timeline
        found = self._heads.get(line, _Named())
        self._judged[line] = found.last, found.count
        return found.last, found.hash

    def counted(self, scope: int, timeline: int) -> int:
        """How many entries of a timeline the feed named when it was judged."""
        return self._judged[(scope, timeline)][1]

    def newest(self, scope: int, timeline: int) -> int:
        """The number of the newest entry of a timeline, as of this moment."""
        self.catch_up()
        return self._heads.get((scope, timeline), _Named()).last

    def moved(self) -> bool:
        """Whether something was committed that has not been looked at; nothing is of the erased."""
        self.catch_up()
        erased = self._check.directory.erased
        return any(
            found.last > self._judged.get(line, (0, 0))[0]
            for line, found in self._heads.items()
            if line[0] not in erased
        )

    def _read(self, lane: int, expected: Head | None) -> None:
        number, tag = self._lanes.get(lane, (0, bytes(32)))
        low = rowkinds.feed(lane, number + 1) if number else b"F" + bytes([lane])
        high = rowkinds.after(b"F" + bytes([lane]))
        while page := self._check.core.storage.scan(low, high, limit=1000):
            for key, row in page:
                if len(key) != rowkinds.FEED:
                    place = rowkinds.describe(key)
                    self._check.find("unaccounted", place, "nothing accounts for this row", row=key)
                    continue
                self._row(lane, key, row, number, tag)
                number, tag = int.from_bytes(key[2:], "big"), row[-32:]
                if expected is not None and expected[0] == number and expected[1] != tag:
                    place = rowkinds.describe(key)
                    self._check.find("witness", place, "the witness saw another row here")
            low = page[-1][0] + b"\0"
        self._lanes[lane] = (number, tag)

    def _row(self, lane: int, key: bytes, row: bytes, number: int, tag: bytes) -> None:
        """Check a row against the one before it, and note the entries that it names."""
        check = self._check
        at = int.from_bytes(key[2:], "big")
        if at != number + 1:
            missing = f"rows {number + 1} to {at - 1} are missing"
            check.find("feed", rowkinds.describe(key), missing)
        try:
            items = items_of(row)
        except StateIntegrityError as error:
            check.find("damage", rowkinds.describe(key), str(error))
            items = []
        if at == number + 1 and check.core.lanes.tag_of(lane, at, tag, row[:-32]) != row[-32:]:
            changed = "it was changed, or does not follow the row before it"
            check.find("feed", rowkinds.describe(key), changed)
        check.report.feed_rows += 1
        for item in items:
            if not item.entries:
                continue  # a link
            last = item.first + item.entries - 1
            line = (item.scope, item.timeline)
            found = self._heads.get(line)
            if found is None:
                found = self._heads[line] = _Named()
                self.lines.setdefault(item.scope, set()).add(item.timeline)
            found.count += item.entries
            if found.last < last:
                found.last, found.hash = last, item.hash


# ---- verify leftovers ---------------------------------------------------------------------------
# Verifying that nothing is left of what was erased, while somebody may just be erasing it.
#
# What is left is noted, together with what erasing changes as it goes on. It is told when the check
# ends, if it is still there and nothing of that has changed for a while: then erasing was cut
# short. A check with a budget does not wait for longer than that: the next one looks at it again.
# Whoever erases shows that it goes on: it drops rows, or else changes the scope's cell `A`.


PATIENCE = 2.0
"""Seconds without any change after which erasing counts as cut short. It is many times as long as
`erasing.BEAT`, and longer than the ring's log is waited for. Time in which this process itself
stood still is not among them: who erases may have stood still with it."""
AGAIN = "erasing it was cut short; erase it again"
_PAUSE = 0.02
_STANDING = "left/"

_There = Callable[[], bool]


class _Erased:
    """One that is erased, and what was found of it."""

    def __init__(self, trace: Callable[[], object]) -> None:
        self.trace = trace
        self.seen = trace()
        self.found: list[tuple[str, str, _There]] = []

    def goes_on(self) -> bool:
        """Whether somebody was at it since it was first looked at."""
        return self.trace() != self.seen

    def sign(self, name: bytes) -> str:
        """By which it is known in another call, for as long as nobody is at it."""
        return hashlib.sha256(name + repr(self.seen).encode()).hexdigest()[:12]

    def still(self) -> list[tuple[str, str, _There]]:
        """What is still there of what was found."""
        return [one for one in self.found if one[2]()]


@dataclass(frozen=True, slots=True)
class Standing:
    """Those that nobody was at when the time was used up, for whoever resumes."""

    since: float
    signs: frozenset[str]

    def __str__(self) -> str:
        """As `verify(resume=)` takes it."""
        return f"{_STANDING}{self.since:.3f}/{','.join(sorted(self.signs))}"


def read_standing(text: str | None) -> Standing | None:
    """Read it; None if the text stands for something else."""
    since, _, signs = (text or "").removeprefix(_STANDING).partition("/")
    if text is None or not text.startswith(_STANDING) or not since.replace(".", "", 1).isdecimal():
        return None
    return Standing(float(since), frozenset(signs.split(",")))


class Leftovers:
    """What was found of scopes and subjects that are erased."""

    def __init__(self, check: _Check) -> None:
        self._check = check
        self._core = check.core
        self._erased: dict[bytes, _Erased] = {}

    def __bool__(self) -> bool:
        return bool(self._erased)

    def row(self, key: bytes, tombstone: Tombstone, at: bytes) -> None:
        """Note a row of an erased scope; `at`: where its tombstone lies."""

        def there() -> bool:
            swept_later = is_unswept(self._core, tombstone, at)
            return not swept_later and self._core.storage.get([key])[0] is not None

        self._scope(
            tombstone, at, rowkinds.describe(key), f"left of an erased scope: {AGAIN}", there
        )

    def key_of_scope(self, tombstone: Tombstone, at: bytes) -> None:
        """Note that the ring holds the key of an erased scope."""
        message = f"the key of an erased scope is in the ring: {AGAIN}"
        self._scope(
            tombstone, at, rowkinds.describe(at), message, lambda: _has_key(self._core, tombstone)
        )

    def cell_of_subject(self, key: bytes, cell: bytes, id: bytes) -> None:
        """Note the cell of a subject that says that it is being erased."""
        place, subjects = rowkinds.describe(key), self._core.subjects
        trace = lambda: (subjects.cell(key), self._holds(id))  # noqa: E731
        self._note(b"cell" + key, trace, place, AGAIN, lambda: subjects.cell(key) == cell)

    def key_of_subject(self, tombstone: bytes) -> None:
        """Note that the ring holds the key of an erased subject."""
        message = f"the key of an erased subject is in the ring: {AGAIN}"
        there = lambda: self._holds(tombstone[1:])  # noqa: E731
        self._note(tombstone, there, rowkinds.describe(tombstone), message, there)

    def settle(self, end: float | None, before: Standing | None = None) -> str | None:
        """Tell what is left of those that nobody is at; that is waited for.

        If `end` comes first, nothing is told, and another call goes on with what this one returns.
        """
        now = time.time()
        since = now if before is None else min(before.since, now)
        over = time.monotonic() + PATIENCE - (now - since)
        waiting = {erased.sign(name): erased for name, erased in self._erased.items()}
        waiting = {sign: erased for sign, erased in waiting.items() if erased.still()}
        if before is not None:
            waiting = {sign: erased for sign, erased in waiting.items() if sign in before.signs}
        while waiting := {sign: one for sign, one in waiting.items() if not one.goes_on()}:
            if time.monotonic() >= over:
                break
            if end is not None and time.monotonic() >= end:
                return str(Standing(since, frozenset(waiting)))
            safe_point()
            begun = time.monotonic()
            time.sleep(_PAUSE)
            over += max(0.0, time.monotonic() - begun - _PAUSE)
        for erased in waiting.values():
            for place, message, _ in erased.still():
                self._check.find("erasure", place, message)
        return None

    def _scope(
        self, tombstone: Tombstone, at: bytes, place: str, message: str, there: _There
    ) -> None:
        self._note(at, lambda: _trace(self._core, tombstone, at), place, message, there)

    def _note(
        self, name: bytes, trace: Callable[[], object], place: str, message: str, there: _There
    ) -> None:
        if name not in self._erased:
            self._erased[name] = _Erased(trace)
        self._erased[name].found.append((place, message, there))

    def _holds(self, id: bytes) -> bool:
        return self._core.ring is not None and holds_subject(self._core.ring, id)


def is_unswept(core: Core, tombstone: Tombstone, at: bytes) -> bool:
    """Whether the rows of an erased scope may be there: its key is gone, and a sweep finds them."""
    there = at[:21] + bytes([rowkinds.THERE])
    gone = core.ring is not None and not core.ring.holds(tombstone.id)
    return gone and core.storage.get([there])[0] is not None


def _has_key(core: Core, tombstone: Tombstone) -> bool:
    return core.ring is not None and core.ring.holds(tombstone.id)


def _trace(core: Core, tombstone: Tombstone, at: bytes) -> object:
    """What erasing a scope changes: its key, its directory rows, the first rows, who is at it."""
    number = tombstone.number.to_bytes(rowkinds.SCOPE, "big")
    directory = core.storage.scan(at[:21], rowkinds.after(at[:21]))
    first = [
        core.storage.scan(kind + number, rowkinds.after(kind + number), limit=1)
        for kind in rowkinds.OF_SCOPE
    ]
    cell = core.storage.cells(
        rowkinds.pruner(tombstone.number), rowkinds.pruner(tombstone.number) + b"\0"
    )
    names = [[key for key, _ in page] for page in (directory, *first)]
    return _has_key(core, tombstone), names, cell


# ---- verify strays ------------------------------------------------------------------------------
# Verifying that every row belongs somewhere: to a scope and a timeline that there are.
#
# Only the first row of each is looked for, so that it costs little; what belongs to a timeline is
# accounted for where that is read.


_OF_TIMELINE = (b"E", b"V", b"S", b"N", b"C", b"A", b"B")
_WITH_UPLOADS = (b"V", b"N")


def check_kinds(check: _Check) -> None:
    """Find rows of kinds that there are not."""
    for kind in (b"G", b"H", b"J", b"L", b"M", b"O", b"P", b"Q"):
        for key, _ in check.core.storage.scan(kind, rowkinds.after(kind), limit=100):
            if key != b"Mstore":
                check.find("unaccounted", rowkinds.describe(key), "nothing accounts for this row")
    for low, high in ((b"", b"A"), (b"W", b"\xff" * 64)):
        for key, _ in check.core.storage.scan(low, high, limit=100):
            check.find("unaccounted", rowkinds.describe(key), "nothing accounts for this row")


def check_scopes(check: _Check, kind: bytes) -> None:
    """Find rows of scopes that the directory does not name."""
    low = kind
    while found := check.core.storage.scan(low, rowkinds.after(kind), limit=1):
        key = found[0][0]
        if len(key) < len(kind) + rowkinds.SCOPE:
            check.find(
                "unaccounted", rowkinds.describe(key), "nothing accounts for this row", row=key
            )
            low = key + b"\0"
            continue
        number = rowkinds.scope_of(key)
        if number in check.directory.erased or not is_pinned(check.core.storage, number):
            check.directory.stray(key, number, "it belongs to no scope")
        low = rowkinds.after(key[:7])


def check_timelines(check: _Check, ledger: Ledger, known: set[int]) -> None:
    """Find rows of timelines that a scope does not have, or of none."""
    for kind in _OF_TIMELINE:
        prefix = low = kind + ledger.number.to_bytes(rowkinds.SCOPE, "big")
        while found := check.core.storage.scan(low, rowkinds.after(prefix), limit=1):
            key = found[0][0]
            line, least = rowkinds.line_of(key), rowkinds.LENGTHS.get(kind, 10)
            if len(key) < least or (kind == b"E" and rowkinds.sequence_of(key) <= ledger.before):
                _find(check, ledger, key, "nothing accounts for this row")
                low = key + b"\0"
                continue
            if line == rowkinds.UPLOADS and kind in _WITH_UPLOADS:
                break  # the last one
            if line not in known:
                known = known | _now(check, ledger)
            if line not in known:
                _find(check, ledger, key, "it belongs to no timeline")
            low = rowkinds.after(key[:9])


def _now(check: _Check, ledger: Ledger) -> set[int]:
    """The timelines as of this moment: one may have been forked since they were listed."""
    return set(readable_timelines(check.core, ledger))


def _find(check: _Check, ledger: Ledger, key: bytes, message: str) -> None:
    check.find("unaccounted", rowkinds.describe(key), message, str(ledger.scope), row=key)


# ---- verify subjects ----------------------------------------------------------------------------
# Verifying subjects: cells of their names, tombstones, and the ring beside both.


def check_subjects(check: _Check) -> None:
    """Check every subject that is there, and that nothing is left of those that are erased."""
    _tombstones(check)
    core, ring = check.core, check.core.ring
    for key, cell in core.subjects.cells():
        place = rowkinds.describe(key)
        if ring is None or len(key) != rowkinds.SUBJECT:
            check.find("unaccounted", place, "nothing accounts for this cell")
            continue
        try:
            named = core.subjects.read(key, cell)
            if named.erasing:
                check.leftovers.cell_of_subject(key, cell, named.id)
                continue
            check.report.subjects += 1
            if read_subject(ring, named.id) is None and core.subjects.cell(key) == cell:
                known = says_erased(ring, named.id)
                message = "the ring says that it is erased" if known else "its key is missing"
                check.find("erasure" if known else "damage", place, message)
        except DAMAGE as error:
            check.find("damage", place, str(error))


def _tombstones(check: _Check) -> None:
    core, ring = check.core, check.core.ring
    low = b"U"
    while page := core.storage.scan(low, rowkinds.after(b"U"), limit=1000):
        for key, row in page:
            place = rowkinds.describe(key)
            if ring is None or len(key) != rowkinds.SUBJECT_TOMBSTONE:
                check.find("unaccounted", place, "nothing accounts for this row")
                continue
            check.report.subjects_erased += 1
            try:
                core.open_row(key, row)
            except DAMAGE as error:
                check.find("damage", place, str(error), row=key)
            if holds_subject(ring, key[1:]):
                check.leftovers.key_of_subject(key)
        low = page[-1][0] + b"\0"


# ---- verify timelines ---------------------------------------------------------------------------
# Verifying the rows that name a scope's timelines.
#
# Nothing commits to such a row but its seal. What it says of where the timeline starts, the entry
# that began it says, too; a name stands nowhere else. A timeline whose row is damaged or missing is
# looked at like any other: its entries are there.


MAIN = ("main", 0, 0)
"""What the row of the first timeline says."""
_decode_timeline = msgspec.msgpack.Decoder(tuple[str, int, int]).decode


def find_timelines(check: _Check, ledger: Ledger) -> list[int]:
    """Numbers of the timelines that a scope has or must have; what is off with their rows."""
    found: set[int] = set()
    for key, row in _rows(check.core, ledger):
        if len(key) != len(rowkinds.line(b"T", 0, 0)):
            _find_timeline(check, ledger, "unaccounted", key, "nothing accounts for this row")
            continue
        number = rowkinds.line_of(key)
        found.add(number)
        try:
            said, begun = _decode_timeline(ledger.open_row(key, row)), begun_at(ledger, number)
            if begun is not None and begun != (said[1:] if number else said):
                raise StateIntegrityError("it names another start than its first entry")
        except DataKeyRemovedError:
            raise  # nothing of the scope can be read
        except DAMAGE as error:
            _find_timeline(check, ledger, "damage", key, str(error))
        except msgspec.MsgspecError:
            _find_timeline(check, ledger, "damage", key, "it cannot be read")
    if 0 not in found:
        _find_timeline(
            check, ledger, "damage", rowkinds.line(b"T", ledger.number, 0), "it is missing"
        )
    for number in sorted(check.feed.named(ledger.number) - found - {0}):
        message = "it is missing, and the feed names entries of this timeline"
        _find_timeline(check, ledger, "feed", rowkinds.line(b"T", ledger.number, number), message)
    return sorted(found | check.feed.named(ledger.number) | {0})


def begun_at(ledger: Ledger, number: int) -> tuple[object, ...] | None:
    """What the row of a timeline must say besides its name: where it starts. Of the first one it is
    all that it says; None if the entry that began it cannot be read."""
    if number == 0:
        return MAIN
    key = rowkinds.entry(rowkinds.line(b"E", ledger.number, number), ledger.before + 1)
    with suppress(*DAMAGE):
        op = ledger.open_entry(key, ledger.storage.get([key])[0])[1].ops[0]
        if op[0] == entry.FORK:
            return tuple(op[1:3])
    return None


def readable_timelines(core: Core, ledger: Ledger) -> dict[int, str]:
    """Names of the timelines whose rows can be read; the others were found and named before."""
    found: dict[int, str] = {}
    for key, row in _rows(core, ledger):
        with suppress(*DAMAGE, msgspec.MsgspecError):
            found[rowkinds.line_of(key)] = _decode_timeline(ledger.open_row(key, row))[0]
    return found


def _rows(core: Core, ledger: Ledger) -> Iterator[tuple[bytes, bytes]]:
    prefix = low = b"T" + ledger.number.to_bytes(rowkinds.SCOPE, "big")
    while page := core.storage.scan(low, rowkinds.after(prefix), limit=1000):
        yield from page
        low = page[-1][0] + b"\0"


def _find_timeline(check: _Check, ledger: Ledger, kind: str, key: bytes, message: str) -> None:
    check.find(kind, rowkinds.describe(key), message, str(ledger.scope), row=key)
