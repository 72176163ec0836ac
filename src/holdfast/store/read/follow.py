"""Following what is committed, over all scopes: the feed, and the entries of a correlation.

Entries are read by the numbers that the feed names, so that those of a scope which has been
deleted since, its deletion included, are found like any other. Those of an erased scope are
passed over, also where only the ring says so: in a copy of the store's files made before.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import suppress
from copy import copy
from datetime import datetime
from typing import NamedTuple

from holdfast.errors import (
    DamagedRecordError,
    HoldfastError,
    InvalidInputError,
    KeyMissingError,
    PrunedError,
    ScopeNotFoundError,
)
from holdfast.store.commit.core import Core
from holdfast.store.journal.entry import Body, Envelope
from holdfast.store.journal.feed import LANES, FeedItem
from holdfast.store.journal.ledger import Ledger
from holdfast.store.journal.tombstones import erased_since, numbers_of
from holdfast.store.names import rowkinds as rows
from holdfast.store.names.arguments import check_bounds, check_flag, check_limit, check_text
from holdfast.store.names.items import Entry, Position
from holdfast.store.names.scope import Scope
from holdfast.store.read.feed_tail import Row, Tail
from holdfast.store.read.public_entry import public_entry
from holdfast.store.upkeep.losses import Loss, all_told, hash_of

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
        low = prefix
        while page := core.storage.scan(low, rows.after(prefix), limit=1000):
            for key, _ in page:
                number = int.from_bytes(key[17:23], "big")
                block = int.from_bytes(key[25:29], "big") * rows.BLOCK
                line = int.from_bytes(key[23:25], "big")
                found += [
                    entry
                    for entry in self._entries(number, line, max(1, block), block + rows.BLOCK - 1)
                    if entry.cause.correlation == correlation
                    and (since is None or entry.time >= since)
                    and (until is None or entry.time <= until)
                ]
            low = page[-1][0] + b"\0"
        found.sort(key=lambda entry: (entry.time, str(entry.scope), entry.sequence))
        return found[:limit]

    def _entries(self, number: int, line: int, low: int, high: int) -> Iterator[Entry]:
        """Entries low..high of a timeline, as far as they are there; none of an erased scope."""
        for _, opened in self._opened(number, line, low, high):
            if isinstance(opened, KeyMissingError):
                raise opened
            if not isinstance(opened, PrunedError):
                yield public_entry(self.core, *opened)

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
        while low <= high:
            page = ledger.storage.scan(
                rows.entry(prefix, low), rows.entry(prefix, high) + b"\0", limit=200
            )
            if ledger.erased():  # asked for after reading: what is given was there before
                self._ledgers.pop(number, None)  # with its keys
                return
            for key, row in page:
                try:
                    yield key, _Opened(ledger, name, key, *ledger.open_entry(key, row))
                except (PrunedError, KeyMissingError) as error:
                    yield key, error
                except ScopeNotFoundError:
                    return  # erased since
            if len(page) < 200:
                return
            low = rows.sequence_of(page[-1][0]) + 1

    def ledger(self, number: int) -> Ledger | None:
        """The scope, opened; None if it is erased."""
        ledger = self._ledgers.get(number)
        if ledger is not None:
            self._ledgers.move_to_end(number)
            return ledger
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
