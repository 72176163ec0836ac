"""Following what is committed, over all scopes: the feed, a watch, the entries of a correlation.

Entries are read by the numbers that the feed names, so that those of a scope which has been
deleted since, its deletion included, are found like any other. Those of an erased scope are
passed over, also where only the ring says so: in a copy of the store's files made before.
"""

from __future__ import annotations

import fnmatch
import re
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from copy import copy
from datetime import datetime
from itertools import chain, islice
from typing import NamedTuple
from unicodedata import normalize

from holdfast.errors import (
    DamagedRecordError,
    HoldfastError,
    InvalidInputError,
    KeyMissingError,
    PrunedError,
    ScopeNotFoundError,
)
from holdfast.storage.rows import Read, each, pages
from holdfast.store.commit.group import Core
from holdfast.store.journal.directory import erased_since, numbers_of
from holdfast.store.journal.entry import Body, Envelope
from holdfast.store.journal.feed import LANES, FeedItem, Lanes
from holdfast.store.journal.floor import Loss, all_told, hash_of
from holdfast.store.journal.ledger import Ledger
from holdfast.store.names import rowkinds as rows
from holdfast.store.names.arguments import (
    check_bounds,
    check_filters,
    check_flag,
    check_limit,
    check_prefixes,
    check_seconds,
    check_text,
)
from holdfast.store.names.background import Closable
from holdfast.store.names.face import Steps, faced, here, led, pause, planned, wait, write
from holdfast.store.names.items import Entry, Position
from holdfast.store.names.scope import Scope
from holdfast.store.read.points import public_entry

MOST_OTHERS = 100_000
LEDGERS = 500
"""Scopes that a reader keeps open."""
MARKS = 2 * LANES
STORE = 3 * LANES
"""Under this number a position says of which store it is."""


def check_position(position: object) -> None:
    """Refuse what is no position: reading on from it would pass over entries, or repeat them."""
    if not isinstance(position, dict) or not all(
        type(lane) is int and 0 <= lane <= STORE and type(number) is int and number >= 0
        for lane, number in position.items()
    ):
        raise InvalidInputError(
            "since is a position, as `store.position()` and `entry.position` give it; leave it "
            "out to begin now (with `feed`: at the beginning)"
        )


class Place:
    """Where a reader of the feed is, exactly: also between the entries of one commit.

    Its `position` has for each lane the number of the last row that was read to its end, and under
    LANES + lane how many entries of the row behind it; under MARKS + lane a part of a hash, of the
    row that was read last, wholly or in part; and under STORE which store it is of. An empty one is
    the beginning of any.
    """

    def __init__(self, core: Core, position: Mapping[int, int]) -> None:
        check_position(position)
        self._store = int.from_bytes(core.lineage[:6], "big")
        if position and position.get(STORE) != self._store:
            raise InvalidInputError(
                "since is a position of another store; begin with `store.position()` of this one, "
                "or leave it out to begin now (with `feed`: at the beginning)"
            )
        self.position = Position({lane: n for lane, n in position.items() if n})
        self.position[STORE] = self._store
        self._mark = 0
        if not all(self._is_here(core, lane) for lane in range(LANES)):
            raise InvalidInputError(
                "since lies ahead of this store, or where others have written since: it was put "
                "back to an older copy. Compare with a witness, or leave it out to begin now"
            )

    @classmethod
    def now(cls, core: Core) -> Place:
        """Where the feed ends now."""
        place = cls(core, {})
        for lane, number in core.lanes.position().items():
            place.position[lane] = number
            for _, items, _ in core.lanes.read(lane, number - 1, 1):
                place.position[MARKS + lane] = _mark(items)
        return place

    def _is_here(self, core: Core, lane: int) -> bool:
        """Whether the store has the row of a lane that was read last, and so much of it."""
        within = self.position.get(LANES + lane, 0)
        last = self.position.get(lane, 0) + (within > 0)
        if last == 0:
            return True
        if last >= 1 << 48:
            return False
        found = core.lanes.read(lane, last - 1, 1)
        if not found or found[0][0] != last:
            return bool(found)  # there are later ones: then it is lost, which `verify` tells
        items = found[0][1]
        here = within < sum(item.entries for item in items)
        return here and self.position.get(MARKS + lane) == _mark(items)

    @property
    def rows(self) -> dict[int, int]:
        """For each lane the number of the last row that was read to its end."""
        return {lane: n for lane, n in self.position.items() if lane < LANES}

    def begin(self, row: Row) -> int:
        """Go on to a row: how many of its entries were read already."""
        lane, number, items = row
        self._mark = _mark(items)
        follows = number == self.position.get(lane, 0) + 1
        return self.position.get(LANES + lane, 0) if follows else 0

    def within(self, lane: int, entries: int) -> Position:
        """The position where so many entries of the next row of a lane are read."""
        return Position({**self.position, LANES + lane: entries, MARKS + lane: self._mark})

    def end(self, lane: int, number: int) -> Position:
        """The position where a row is read to its end."""
        position = Position(self.position)
        position.pop(LANES + lane, None)
        position[lane] = number
        position[MARKS + lane] = self._mark
        return position


def _mark(items: list[FeedItem]) -> int:
    """What tells a row from another of its number: each names an entry by its hash."""
    return int.from_bytes(items[-1].hash[:6], "big")


class _Opened(NamedTuple):
    """An entry as it is stored, and what it belongs to."""

    ledger: Ledger
    timeline: str
    key: bytes
    envelope: Envelope
    body: Body


_Closed = PrunedError | KeyMissingError
"""Why an entry that is there cannot be given."""


def _refused(error: _Closed) -> _Closed:
    if isinstance(error, KeyMissingError):
        return type(error)(f"{error}. To go on behind what this key closes: since=error.position")
    return PrunedError(
        f"{error}. Read the state as it is, and go on behind what was pruned: with "
        "past_pruned=True, or since=error.position"
    )


class Follower:
    """Reads entries of any scope by its number; of one scope only, if one is given.

    What was pruned is refused, or with `past_pruned` passed over.
    """

    def __init__(
        self,
        core: Core,
        scope: Scope | None = None,
        timeline: str | None = None,
        *,
        past_pruned: bool = False,
    ) -> None:
        self.core = core
        self._past_pruned = check_flag(past_pruned, "past_pruned")
        self._scope = scope
        self._timeline = timeline
        self._mine: set[int] = set()
        self._others: set[int] = set()
        self._ledgers: OrderedDict[int, Ledger] = OrderedDict()
        self._told: dict[tuple[int, int], tuple[object, list[Loss]]] = {}
        """What timelines tell of losses, and the state of the feed as of which they were asked."""
        self.ahead: dict[bytes, bytes] = {}
        """Rows of entries that were read ahead: one by one takes three times as long."""
        self._standing: set[int] = set()
        """Scopes that were not erased after that."""

    def feed(self, since: dict[int, int]) -> Iterator[Entry]:
        """Entries committed since a position, each with the position to go on from."""
        self.core.check_open()
        place = Place(self.core, since)
        tail = Tail(self.core.lanes, place.rows, self)
        goal = tail.goal()
        while not tail.reached(goal):
            row = tail.next()
            if row is None:
                return
            yield from self.row(place, row, tail)

    def row(self, place: Place, row: Row, tail: Tail) -> Iterator[Entry]:
        """Entries of a row that were not read yet, each with the position after it.

        Where some cannot be given, the error has the position behind all of that timeline that
        follow and cannot be given either: `tail`, which gives the next rows, is used up by that.
        """
        try:
            yield from self._row(place, row)
        except (PrunedError, KeyMissingError) as gap:
            self._go_behind(gap, place, row, tail)
            raise

    def read_ahead(self, row: Row, tail: Tail) -> None:
        """Read at once what `row` and the next ones, up to a pause, name alone of a timeline."""
        named = chain(row[2], tail.held(row[0]))
        mine = (one for one in named if one.entries == 1 and self._wanted(one))
        keys: list[bytes] = []
        for one in islice(mine, ENTRIES):
            keys.append(rows.entry(rows.line(b"E", one.scope, one.timeline), one.first))
            if keys[0] in self.ahead:
                return
        found = self.core.storage.get(keys) if keys else []
        self.ahead = {key: row for key, row in zip(keys, found, strict=True) if row is not None}
        self._standing.clear()

    def _go_behind(self, gap: _Closed, place: Place, row: Row | None, tail: Tail) -> None:
        """Move the position of an error on, over rows that hold nothing but more of the same.

        What another timeline has lost is for an error of its own: whoever reads the state of the
        one that is named would not learn of it.
        """
        ahead, line = copy(place), None
        while row is not None and gap.position and gap.position.get(row[0]) == row[1]:
            lines = [(item.scope, item.timeline) for item in row[2] if item.entries]
            line = line or lines[-1]
            ahead.position = Position(gap.position)
            row = tail.next()
            items = [item for item in row[2] if item.entries] if row is not None else []
            mine = [item for item in items if self._wanted(item)]
            if row is None or any((item.scope, item.timeline) != line for item in mine):
                return
            try:
                for _ in self._row(ahead, row):
                    return
                gap.position = ahead.position
            except type(gap) as more:
                gap.position = more.position or gap.position
            except HoldfastError:
                return  # for who comes to it

    def _row(self, place: Place, row: Row) -> Iterator[Entry]:
        lane, number, items = row
        begun = place.begin(row)
        total = sum(item.entries for item in items)
        before = 0
        for item in items:
            low = item.first + max(0, begun - before)
            high = item.first + item.entries - 1
            alone = item.entries == 1
            given = low <= high and self._wanted(item)
            if given and not alone:
                with suppress(KeyMissingError):  # told of below, with the position
                    here = self._here(item, lane, number)
                    high = here.first + here.entries - 1 if here is not None else 0
            if given:
                missing = high - low + 1
                gap: _Closed | None = None
                for key, opened in self._opened(item.scope, item.timeline, low, high):
                    missing -= 1
                    read = before + rows.sequence_of(key) - item.first + 1
                    last = read == total
                    position = place.end(lane, number) if last else place.within(lane, read)
                    if isinstance(opened, PrunedError) and self._past_pruned:
                        continue
                    if gap is not None and type(opened) is not type(gap):
                        raise gap
                    if isinstance(opened, _Closed):
                        gap = gap or _refused(opened)
                        gap.position = position
                        continue
                    entry = public_entry(self.core, *opened, position)
                    other = alone and entry.hash != item.hash.hex()
                    if other and self._here(item, lane, number) is None:
                        continue
                    place.position = Position(position)  # the entry's own is the caller's
                    yield entry
                if gap is not None:
                    raise gap
                if missing > 0 and self._here(item, lane, number) and self._not_erased(item.scope):
                    raise self._missing(item)
            before += item.entries
        place.position = place.end(lane, number)

    def tells(self, scope: int, timeline: int) -> bool:
        """Whether a timeline tells, as of now, that it lost something; an erased one may have."""
        line, token = (scope, timeline), self.core.lanes.token()
        ledger = self._not_erased(scope)
        if ledger is None:
            return True
        if self._told.get(line, (None,))[0] != token:
            try:
                self._told[line] = token, list(all_told(ledger, timeline))
            except ScopeNotFoundError:  # erased since
                return True
        return bool(self._told[line][1])

    def left(self, item: FeedItem, lane: int, number: int) -> FeedItem | None:
        """What a row names without what is told to be lost, or erased; None if nothing is left.

        Of what is neither it is not asked here whether it is the entry that the row names.
        """
        if self._is_named(item):
            return item
        if self._not_erased(item.scope) is None:
            return None
        told = self._told.get((item.scope, item.timeline), (None, []))[1]
        losses = [loss for loss in told if number <= loss.position.get(lane, 0)]
        if not losses:
            return item
        entries = losses[-1].first - item.first  # the oldest is the one that it was lost with
        return item._replace(entries=entries) if 0 < entries < item.entries else None

    def _is_named(self, item: FeedItem) -> bool:
        """Whether the entry that a commit ended with is the one that the feed names."""
        ledger = self.ledger(item.scope)
        if ledger is None:
            return False  # of what is erased nothing is given
        key = rows.entry(rows.line(b"E", item.scope, item.timeline), item.first + item.entries - 1)
        row = ledger.storage.get([key])[0]
        return row is not None and hash_of(ledger, key, row) == item.hash

    def _here(self, item: FeedItem, lane: int, number: int) -> FeedItem | None:
        """What a row names, without what its timeline tells to be lost; None if nothing is left.

        If nobody tells of it, others may have its numbers: then nothing is given in its place.
        """
        if self._is_named(item):
            return item
        if self.tells(item.scope, item.timeline):
            left = self.left(item, lane, number)
            if left != item:
                return left
        raise self._missing(item)

    def _missing(self, item: FeedItem) -> DamagedRecordError:
        what = rows.describe(rows.entry(rows.line(b"E", item.scope, item.timeline), item.first))
        return DamagedRecordError(
            f"{what}: what the feed names here is lost; run verify, and recover the scope"
        )

    def _not_erased(self, number: int) -> Ledger | None:
        """The scope, opened; None if it is erased as of now."""
        ledger = self.ledger(number)
        if ledger is not None and ledger.erased():
            del self._ledgers[number]
            return None
        return ledger

    def _wanted(self, item: FeedItem) -> bool:
        """Whether it is of the scope and timeline that were given."""
        if self._scope is None:
            return True
        if self._timeline is not None and (self._timeline == "main") != (item.timeline == 0):
            return False
        if item.scope not in self._mine and item.scope not in self._others:
            self._mine = numbers_of(self.core, self._scope)
            if item.scope not in self._mine:
                if len(self._others) >= MOST_OTHERS:
                    self._others.clear()
                self._others.add(item.scope)
        if item.scope not in self._mine or self._timeline in (None, "main"):
            return item.scope in self._mine
        try:
            ledger = self.ledger(item.scope)
        except KeyMissingError:
            return True  # it may be: who reads it is told, with the position to go on from
        return ledger is not None and self._name(ledger, item.timeline) == self._timeline

    def correlated(
        self,
        correlation: str,
        since: datetime | None,
        until: datetime | None,
        limit: int | None,
    ) -> list[Entry]:
        """Entries of all scopes that carry a correlation, by claimed time."""
        core = self.core
        core.check_open()
        check_text(correlation, "a correlation")
        check_bounds(numbers=False, since=since, until=until)
        check_limit(limit)
        prefix = b"R" + core.tag(b"correlation", correlation)
        found: list[Entry] = []
        for key, _ in each(core.storage.scan, prefix, rows.after(prefix)):
            number = int.from_bytes(key[17:23], "big")
            block = int.from_bytes(key[25:29], "big") * rows.BLOCK
            line = int.from_bytes(key[23:25], "big")
            for _, opened in self._opened(number, line, max(1, block), block + rows.BLOCK - 1):
                if isinstance(opened, KeyMissingError):
                    raise opened
                if not isinstance(opened, PrunedError):
                    entry = public_entry(self.core, *opened)
                    early = since is not None and entry.time < since
                    late = until is not None and entry.time > until
                    if entry.cause.correlation == correlation and not early and not late:
                        found.append(entry)
        found.sort(key=lambda entry: (entry.time, str(entry.scope), entry.sequence))
        return found[:limit]

    def _opened(
        self, number: int, line: int, low: int, high: int
    ) -> Iterator[tuple[bytes, _Opened | _Closed]]:
        """Entries of a timeline, each with its row's key; of one that cannot be had the error."""
        prefix = rows.line(b"E", number, line)
        try:
            ledger = self.ledger(number)
            name = self._name(ledger, line) if ledger is not None else None
        except KeyMissingError as error:
            yield from ((rows.entry(prefix, at), error) for at in range(low, high + 1))
            return
        if ledger is None or name is None:
            return
        first, behind = rows.entry(prefix, low), rows.entry(prefix, high + 1)
        ahead = self.ahead.pop(first, None) if low == high else None
        read: Read = ledger.storage.scan if ahead is None else lambda *_, **__: [(first, ahead)]
        for page in pages(read, first, behind, limit=200):
            if ahead is None or number not in self._standing:
                # Asked for after reading: what is given was there before.
                if ledger.erased():
                    self._ledgers.pop(number, None)  # with its keys
                    return
                self._standing.add(number)
            for key, row in page:
                try:
                    yield key, _Opened(ledger, name, key, *ledger.open_entry(key, row))
                except (PrunedError, KeyMissingError) as error:
                    yield key, error
                except ScopeNotFoundError:
                    return  # erased since

    def ledger(self, number: int) -> Ledger | None:
        """The scope, opened; None if it is erased, or may not be read."""
        ledger = self._ledgers.get(number) or self._found(number)
        if ledger is not None:
            self._ledgers.move_to_end(number)
            guard = self.core.guard
            return ledger if guard is None or "" in guard.held(ledger.scope) else None
        return None

    def _found(self, number: int) -> Ledger | None:
        key = self.core.numbers.row(number)
        if key is None:
            raise DamagedRecordError(f"the directory knows no scope of number {number:x}")
        row, tombstone = self.core.storage.get([key, rows.tombstone(key)])
        if tombstone is not None:
            return None
        if row is None:
            raise DamagedRecordError(f"{rows.describe(key)}: it is missing")
        try:
            ledger = self._ledgers[number] = self.core.ledger_of(key, row)
        except ScopeNotFoundError:
            return None  # erased since
        except KeyMissingError:
            if erased_since(self.core, key, row):
                return None
            raise
        if len(self._ledgers) > LEDGERS:
            self._ledgers.popitem(last=False)
        return ledger

    def _name(self, ledger: Ledger, line: int) -> str | None:
        """The name of a timeline; None if the scope is erased."""
        name = self.core.numbers.timeline(ledger, line)
        if name is None and not ledger.erased():
            raise DamagedRecordError(
                f"{ledger.scope}: the feed names timeline {line}, which is missing"
            )
        return name


# ---- feed tail ----------------------------------------------------------------------------------
# Rows of the feed in order, from a position on and as they come, in bounded memory.
#
# The lanes are read one after the other while others commit. A row is handed out when it is known
# that none of its timelines has an earlier entry that was not handed out:
# - of a timeline that was met before, the number of its next entry is known;
# - of one that is new, whatever comes before a row was committed before it, so that a look at all
#   lanes that began after the row was read has found it; also what its links (`behind`) lead to.
#
# A timeline that tells of entries which it lost has given their numbers again. If numbers of it
# come twice, or its rows do not follow each other, each of them is judged: those of lost entries
# are handed out as they come, the others in their order; links to it are not waited for.
#
# What is held: some rows of each lane, and a number for each timeline that is met on the way.


Row = tuple[int, int, list[FeedItem]]
"""Lane, number and what was committed."""
_Spans = dict[tuple[int, int], tuple[int, int, int]]
"""Of each timeline of a look: its first number, the one behind its last, how many there are."""
PAGE = 500
LINES = 10_000
"""Timelines whose numbers are kept when there is nothing left to read."""
PACE = 0.02
"""Seconds between two looks: beside a busy writer each of them would find one commit."""
NEAR = 0.05
"""Seconds in which others commit so little that an event loop may read it itself."""
FEW = 500
"""Rows, and entries of them, that it may have to read besides."""
LOOK = 1.0
"""Seconds after which to look although nothing seems to have changed."""


class Tail:
    """Reads all lanes behind a position."""

    def __init__(self, lanes: Lanes, position: Mapping[int, int], judge: Follower) -> None:
        self._lanes = lanes
        self._judge = judge
        self._cut: set[tuple[int, int]] = set()
        """Timelines whose rows are judged."""
        self._at = [position.get(lane, 0) for lane in range(LANES)]
        self._looked = list(self._at)
        self._held: list[deque[tuple[int, list[FeedItem]]]] = [deque() for _ in range(LANES)]
        self._lane = 0
        self._next: dict[tuple[int, int], int] = {}
        self._unsure: dict[tuple[int, int], int] = {}
        """Timelines of the last look: an earlier row of theirs may have been overlooked."""
        self._held_back = False
        self._token: object = None
        self._count = 0
        self._last_look = float("-inf")

    def next(self) -> Row | None:
        """The next row, or None if there is none now."""
        while True:
            row = self._take()
            if row is not None:
                return row
            waiting = self._waiting()
            if not waiting and not self._unsure and not self.stirred():
                return None
            unsure = bool(self._unsure)
            found = self._look()
            if found:
                continue
            if self._held_back or not (waiting or unsure):
                # All was handed out: whatever comes next of any timeline is its next.
                if len(self._next) > LINES and not self._waiting():
                    self._next.clear()
                return None
            if not unsure and not self._go_on_behind_losses():
                raise DamagedRecordError("rows of the feed contradict each other; run verify")

    def stirred(self) -> bool:
        """Whether there may be something new: else a look is not worth while."""
        if time.monotonic() >= self._last_look + LOOK:
            return True
        return self._lanes.token() != self._token

    def due(self) -> float:
        """Seconds until it is worth while to go on."""
        return 0.0 if self._waiting() else self._last_look + PACE - time.monotonic()

    def near(self) -> bool:
        """Whether all that was there a moment ago was handed out, or almost."""
        if time.monotonic() >= self._last_look + NEAR or sum(self._looked) - sum(self._at) > FEW:
            return False
        held = (item.entries for rows in self._held for _, items in rows for item in items)
        return sum(held) <= FEW

    def held(self, lane: int) -> Iterator[FeedItem]:
        """What the next rows of a lane name, of those that are at hand."""
        return (item for _, items in islice(self._held[lane], ENTRIES - 1) for item in items)

    def called(self) -> bool:
        """Whether this process has committed since the last look."""
        return self._lanes.count != self._count

    def goal(self) -> list[int]:
        """Where the lanes end now; `reached` says when all of it was handed out."""
        self._look()
        return list(self._looked)

    def reached(self, goal: list[int]) -> bool:
        """Whether every row up to there was handed out."""
        return all(at >= number for at, number in zip(self._at, goal, strict=True))

    def _waiting(self) -> bool:
        return any(at < looked for at, looked in zip(self._at, self._looked, strict=True))

    # handing out

    def _take(self) -> Row | None:
        for turn in range(LANES):
            lane = (self._lane + turn) % LANES
            held = self._held[lane]
            if not held:
                at, last = self._at[lane], self._looked[lane]
                if at == last:
                    continue
                page = self._lanes.read(lane, at, min(PAGE, last - at))
                held.extend((number, items) for number, items, _ in page if number <= last)
                if not held:
                    raise DamagedRecordError(f"lane {lane} of the feed has lost rows; run verify")
            number, items = held[0]
            if self._ready(lane, number, items):
                held.popleft()
                for item in self._standing(lane, number, items):
                    if item.entries:
                        self._next[(item.scope, item.timeline)] = item.first + item.entries
                self._at[lane] = number
                self._lane = lane
                return lane, number, items
        return None

    def _ready(self, lane: int, number: int, items: list[FeedItem]) -> bool:
        """Whether all that comes before a row was handed out."""
        return all(self._follows(item) for item in self._standing(lane, number, items))

    def _follows(self, item: FeedItem) -> bool:
        line = item.scope, item.timeline
        if item.entries:
            return self._next.get(line) == item.first
        # A link, to what may be long read, or lost.
        known = self._next.get(line, self._unsure.get(line))
        return known is None or known >= item.first or line in self._cut

    def _standing(self, lane: int, number: int, items: list[FeedItem]) -> list[FeedItem]:
        """What a row names, without what is lost."""
        if not self._cut:
            return items
        found = (
            self._judge.left(item, lane, number)
            if item.entries and (item.scope, item.timeline) in self._cut
            else item
            for item in items
        )
        return [item for item in found if item is not None]

    def _go_on_behind_losses(self) -> bool:
        """Find the next entry of timelines that tell of a loss; False if that is not in the way."""
        first = [(lane, *held[0]) for lane, held in enumerate(self._held) if held]
        for line in {(item.scope, item.timeline) for _, _, items in first for item in items}:
            if self._judge.tells(*line):
                self._cut.add(line)
                self._next[line] = self._lowest(line)
        return any(self._ready(*row) for row in first)

    def _lowest(self, line: tuple[int, int]) -> int:
        """The lowest number in rows of a timeline that were not handed out, of what is here."""
        found = []
        for lane, looked in enumerate(self._looked):
            at = self._at[lane]
            while at < looked and (page := self._lanes.read(lane, at, PAGE)):
                for number, items, _ in page:
                    mine = [item for item in items if (item.scope, item.timeline) == line]
                    found += [item.first for item in self._standing(lane, number, mine)]
                at = page[-1][0]
        return min(found, default=0)

    # looking

    def _look(self) -> bool:
        """Read every lane to its end; whether anything was there."""
        self._count = self._lanes.count
        token = self._lanes.token()
        self._held_back = False
        fresh: dict[tuple[int, int], int] = {}
        spans: _Spans = {}
        found = sum(self._look_at(lane, fresh, spans) for lane in range(LANES)) > 0
        for line, (low, high, count) in spans.items():
            if count > high - low and self._judge.tells(*line):  # numbers that come twice
                self._cut.add(line)
                known = fresh if line in fresh else self._next
                known[line] = self._lowest(line)
        if self._held_back:
            for line, first in fresh.items():
                self._unsure[line] = min(first, self._unsure.get(line, first))
        else:
            self._next.update(self._unsure)
            self._unsure = fresh
            if token == self._lanes.token():  # nobody committed meanwhile
                self._next.update(fresh)
                self._unsure = {}
        self._token = token
        self._last_look = time.monotonic()
        return found

    def _look_at(self, lane: int, fresh: dict[tuple[int, int], int], spans: _Spans) -> bool:
        begun = self._looked[lane]
        while True:
            page = self._lanes.read(lane, self._looked[lane], PAGE)
            full = len(page) == PAGE
            # Asked for after reading: a row that is seen here while its commit is still on its
            # way through this process would be ahead of what a `get` returns.
            flying = self._lanes.flying
            if flying is not None and flying[0] == lane and page and page[-1][0] >= flying[1]:
                page = [row for row in page if row[0] < flying[1]]
                full = False
                self._held_back = True
            for item in (item for _, items, _ in page for item in items):
                if not item.entries:
                    continue  # of a link's timeline there may be nothing that was not read
                line, end = (item.scope, item.timeline), item.first + item.entries
                low, high, count = spans.get(line, (item.first, end, 0))
                spans[line] = min(low, item.first), max(high, end), count + item.entries
                if line not in self._next:
                    known = self._unsure if line in self._unsure else fresh
                    known[line] = min(item.first, known.get(line, item.first))
            if page:
                held = self._held[lane]
                behind = held[-1][0] if held else self._at[lane]
                if behind == self._looked[lane] and len(held) < PAGE:
                    held.extend((number, items) for number, items, _ in page)
                self._looked[lane] = page[-1][0]
            if not full:
                return self._looked[lane] > begun


# ---- watch --------------------------------------------------------------------------------------
# Watching: entries as they are committed, in any process, from a position on.
#
# A watch reads the feed. It keeps no queue that could overflow: who is slow falls behind and
# catches up. A commit of this process wakes it at once; commits of others are noticed by asking
# the storage now and then, at first often, then every 25 ms.


SHORTEST, LONGEST = 0.001, 0.025
"""Seconds between two looks at the storage while nothing happens."""
ENTRIES, ROWS = 64, 256
"""After how much reading pauses: entries that fit, with all of their commit; rows of the feed."""
WHOLE = frozenset(("restore", "fork", "delete scope"))
"""Entries that name no key and may change any."""


def wanted_by(prefix: str, pattern: str | None) -> Callable[[Entry], bool]:
    """Which entries a watch gives, by their keys."""
    check_prefixes(prefix=prefix)
    check_filters(pattern=pattern)
    if pattern == "":
        raise InvalidInputError("no key fits an empty pattern; leave it out for all keys")
    begins, text = normalize("NFC", prefix), "*" if pattern is None else normalize("NFC", pattern)
    fits = re.compile(fnmatch.translate(text)).match

    def wanted(entry: Entry) -> bool:
        named = any(key.startswith(begins) and fits(key) for key in entry.keys)
        return named or not WHOLE.isdisjoint(entry.kinds)

    return wanted if begins or pattern is not None else lambda _: True


@faced
class Watch(Closable):
    """Entries as they are committed: `for entry in watch`, or `async for`.

    It waits for the next entry without end, or ends when none came for `timeout` seconds; then
    it can be iterated again and goes on. It also ends when it or the store is closed, by any
    thread or task. A wait that is cancelled loses nothing: the next one goes on. Nothing is held in
    the storage for it.
    """

    def __init__(
        self,
        core: Core,
        scope: Scope | None,
        timeline: str | None,
        prefix: str,
        pattern: str | None,
        since: Position | None,
        timeout: float | None,
        past_pruned: bool,
    ) -> None:
        core.check_open()
        if core.guard is not None and scope is not None:
            core.guard.check(scope)
        self._wanted = wanted_by(prefix, pattern)
        check_seconds(timeout, "timeout")
        self._core = core
        self._storage = core.storage  # by which `face` leads the steps
        self._timeout = timeout
        self._follower = Follower(core, scope, timeline, past_pruned=past_pruned)
        self._place = Place(core, since) if since is not None else Place.now(core)
        self._position = self._place.position
        self._ready: deque[Entry] = deque()
        self._tail: Tail | None = None
        self._midway = False
        """Whether reading has stopped at its own bound: what follows needs no new commit."""
        self._lock = threading.Lock()  # threads of one watch take turns: each entry is given once
        self._closed = False

    @property
    def position(self) -> Position:
        """Where the watch is: behind the entry that it gave last, and what did not fit since."""
        return Position(self._position)

    def _over(self) -> bool:
        return self._closed or bool(self._core.closed)

    def _stirred(self) -> bool:
        """Whether reading on is worth while."""
        try:
            return self._midway or self._tail is None or self._tail.stirred()
        except HoldfastError:
            if self._over():
                return False
            raise

    def _called(self) -> bool:
        """Whether there is a reason not to wait; only that the bell would not ring again."""
        return self._over() or self._tail is None or self._tail.called()

    def _fill(self) -> bool:
        """Read on; whether to go on at once. What was read is there also if nobody waits now."""
        with self._lock:
            try:
                self._follower.ahead.clear()  # long ago, perhaps, and of what is erased since
                if self._tail is None:
                    self._tail = Tail(self._core.lanes, self._place.rows, self._follower)
                for _ in range(ROWS):
                    row = self._tail.next()
                    if row is None:
                        self._midway = False
                        break
                    self._midway = True
                    self._follower.read_ahead(row, self._tail)
                    found = self._follower.row(self._place, row, self._tail)
                    self._ready.extend(filter(self._wanted, found))
                    if len(self._ready) >= ENTRIES:
                        return True
                if not self._ready:
                    self._position = self._place.position
                return self._midway or bool(self._ready)
            except BaseException as error:
                self._tail = None  # reading goes on from the place reached
                if self._over() and isinstance(error, HoldfastError):
                    return False
                if not self._ready or not isinstance(error, HoldfastError):
                    raise
            return True

    def __iter__(self) -> Watch:
        return self

    def __next__(self) -> Entry:
        entry = led(self._next())
        if entry is None:
            raise StopIteration
        return entry

    def _next(self) -> Steps[Entry | None]:
        """The steps to the next entry; None at the end."""
        end = time.monotonic() + self._timeout if self._timeout is not None else None
        rest = SHORTEST
        while not self._over():
            if self._ready:
                entry = self._ready.popleft()
                self._position = entry.position or self._position
                return entry
            due = self._tail.due() if self._tail is not None and not self._midway else 0.0
            if due > 0 and (end is None or time.monotonic() + due < end):
                yield pause(due)
            if (yield planned(self._stirred)):
                # Here if it can only be a little, else where no event loop waits for it.
                few = self._tail is not None and self._tail.near()
                few = few and self._storage.limits.embedded
                if few and self._midway:
                    yield pause(0)  # others have their turn between two parts
                if self._fill() if few else (yield write(self._fill)):
                    continue
            left = end - time.monotonic() if end is not None else LONGEST
            if left <= 0:
                return None
            yield wait(self._core.lanes.bell, self._called, min(rest, left))
            rest = min(2 * rest, LONGEST)
        return None

    @here(awaited=True)
    def close(self) -> None:
        """End the watch, also one that another thread or task waits for."""
        self._closed = True
        self._core.lanes.bell.ring()
