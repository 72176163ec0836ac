"""The feed: which entries were committed, in lanes that every commit extends by one row.

Row: for each timeline in the commit its scope number (6), timeline (2), first sequence (5),
number of entries (3) and the hash of the last (32), behind the commit's links (see `link`); then
a tag (32) over lane, number, the tag of the row before and the row. So a lane is a chain, and its
newest tag vouches for all of it.
A store has 16 lanes; a process stays on one until it meets another there.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from itertools import chain
from typing import NamedTuple

from holdfast.errors import DamagedRecordError, StateIntegrityError
from holdfast.storage.contract import Moment, Storage
from holdfast.storage.rows import PAGE, each
from holdfast.store.names import rowkinds

LANES = 16
"""So that processes that write at once seldom meet: each keeps to a lane until it meets another."""
ITEM = 48
GAP = bytes(32)
"""A row that names nothing, far behind rows that may be lost: the lane goes on from it."""
NEWEST = 8
"""Rows of each lane that are compared with a timeline before a process first writes to it."""
Position = dict[int, int]
"""For each lane the number of the last row that was read."""


class FeedItem(NamedTuple):
    """Consecutive entries of one timeline in one commit.

    Without entries it is a link: what else is in the row comes behind what is before `first`.
    """

    scope: int
    timeline: int
    first: int
    entries: int
    hash: bytes


class Bell:
    """Wakes whoever waits for the next commit of this process. Without it they wake later."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # who comes while it rings is woken by it or stays
        self.waiting: set[Callable[[], object]] = set()

    def add(self, wake: Callable[[], object]) -> None:
        """Have a function called, once, when it rings; it may not fail."""
        with self._lock:
            self.waiting.add(wake)

    def remove(self, wake: Callable[[], object]) -> None:
        """Wait no longer."""
        with self._lock:
            self.waiting.discard(wake)

    def ring(self) -> None:
        """Something has happened."""
        if self.waiting:
            with self._lock:
                waiting, self.waiting = self.waiting, set()
            for wake in waiting:
                wake()


class Lanes:
    """Reads and extends the lanes of one store."""

    def __init__(self, storage: Storage, tag: Callable[[bytes], bytes]) -> None:
        self.storage = storage
        self._tag = tag
        self._lane = -1
        self._number = 0
        self._last = b""
        self.count = 0
        """Commits of this process that were tried."""
        self.flying: tuple[int, int] | None = None
        """Lane and number of a row that may be stored while its entries are not published here."""
        self.bell = Bell()
        self._named: FeedHeads | None = None
        self.recovered: set[str] = set()
        """Scopes that this process recovers: they are written to, whatever they have lost."""

    def named(self, scope: int, timeline: int) -> int:
        """The newest entry of a timeline that one of the newest rows of the feed named when this
        process first asked; 0 if none did."""
        if self._named is None:
            self._named = FeedHeads(self)
            self._named.look(NEWEST)
        return self._named.named(scope, timeline)[0]

    def fits(self, lane: int, number: int, before: bytes, row: bytes) -> bool:
        """Whether a row follows the one with this tag, and is as it was written."""
        return self.tag_of(lane, number, before, row[:-32]) == row[-32:]

    def tag_of(self, lane: int, number: int, before: bytes, items: bytes) -> bytes:
        """The tag of a row."""
        return self._tag(bytes([lane]) + number.to_bytes(6, "big") + before + items)

    def next_row(self, items: Iterable[tuple[int, int, int, int, bytes]]) -> tuple[bytes, bytes]:
        """The row that the next commit adds: of what a `FeedItem` has."""
        if self._lane < 0:
            self.move()
        parts = []
        for scope, timeline, first, entries, hash_ in items:
            place = scope << 80 | timeline << 64 | first << 24 | entries
            parts.append(place.to_bytes(16, "big") + hash_)
        number = self._number + 1
        self.flying = self._lane, number
        data, at = b"".join(parts), bytes([self._lane]) + number.to_bytes(6, "big")
        return b"F" + at, data + self._tag(at + self._last + data)

    def committed(self, row: bytes) -> None:
        """The row is durable: the next one follows it."""
        self._number += 1
        self._last = row[-32:]

    def settled(self) -> None:
        """What was on its way is published, or was not applied."""
        if self.flying is not None:
            self.count += 1  # first: who sees neither has missed nothing
            self.flying = None
            if self.bell.waiting:
                self.bell.ring()

    def token(self, version: object = None) -> object:
        """While it stays equal nothing was committed, neither by others nor by this process;
        `version` is the storage's now, if it was asked."""
        now = self.storage.version() if version is None else version
        return self.count, self.flying, now

    def move(self) -> None:
        """Go to the end of a lane: the one used so far, or another after meeting somebody."""
        lane = (self._lane + 1 + os.urandom(1)[0] % (LANES - 1)) % LANES
        number, last = self.end(lane)  # if this fails, the lane used so far stands
        self._lane, self._number, self._last = lane, number, last

    def end(self, lane: int, moment: Moment | None = None) -> tuple[int, bytes]:
        """Number and tag of a lane's newest row, now or at a moment."""
        low, high = rowkinds.feed(lane, 0), rowkinds.after(b"F" + bytes([lane]))
        found = (moment or self.storage).scan(low, high, limit=1, reverse=True)
        if not found:
            return 0, bytes(32)
        return _number(found[0][0]), found[0][1][-32:]

    def position(self) -> Position:
        """Where all lanes end now, such that all that comes before is before it, too.

        If others commit while one lane is read after the other, the end of a later lane may rest
        on a row of an earlier one: then all are read at one moment, which takes longer.
        """
        token = self.token()
        ends = {lane: n for lane in range(LANES) if (n := self.end(lane)[0])}
        if self.token() != token:
            with self.storage.moment() as moment:
                ends = {lane: n for lane in range(LANES) if (n := self.end(lane, moment)[0])}
        return ends

    def read(
        self, lane: int, after: int, limit: int = 1000
    ) -> list[tuple[int, list[FeedItem], bytes]]:
        """Rows of a lane behind a number: (number, items, tag)."""
        found = self.storage.scan(
            rowkinds.feed(lane, after + 1), rowkinds.after(b"F" + bytes([lane])), limit=limit
        )
        return [(_number(key), items_of(row), row[-32:]) for key, row in found]


def items_of(row: bytes) -> list[FeedItem]:
    """What a row names."""
    if len(row) < 32 or (len(row) - 32) % ITEM:
        raise DamagedRecordError("a feed row cannot be read")
    return [
        FeedItem(
            int.from_bytes(row[at : at + 6], "big"),
            int.from_bytes(row[at + 6 : at + 8], "big"),
            int.from_bytes(row[at + 8 : at + 13], "big"),
            int.from_bytes(row[at + 13 : at + 16], "big"),
            row[at + 16 : at + 48],
        )
        for at in range(0, len(row) - 32, ITEM)
    ]


def link(scope: int, timeline: int, last: int) -> FeedItem:
    """What comes with it in a commit is behind this entry of a timeline."""
    return FeedItem(scope, timeline, last + 1, 0, bytes(32))


def end_of(storage: Storage, scope: int) -> FeedItem | None:
    """The link to the end of a deleted scope; None if it was erased since: nobody reads it."""
    line = rowkinds.line(b"E", scope, 0)
    newest = storage.scan(line, rowkinds.after(line), limit=1, reverse=True)
    return link(scope, 0, rowkinds.sequence_of(newest[0][0])) if newest else None


class FeedHeads:
    """Which entry of each timeline the feed of a store names as its newest, and how many it names.

    A row that cannot be read, or was changed, names nothing: `verify` finds it.
    """

    def __init__(self, lanes: Lanes) -> None:
        self._lanes = lanes
        self._heads: dict[tuple[int, int], tuple[int, int]] = {}
        self._whole = False

    def named(self, scope: int, timeline: int) -> tuple[int, int | None]:
        """The highest number of a timeline's entries, and how many of them there are, as of the
        last look; None if a part of the feed was not read then."""
        newest, count = self._heads.get((scope, timeline), (0, 0))
        return newest, count if self._whole else None

    def scopes(self) -> set[int]:
        """Numbers of the scopes that the feed names, as of the last look."""
        return {scope for scope, _ in self._heads}

    def look(self, depth: int | None = None) -> None:
        """Read the feed; with `depth`, only so many of the newest rows of each lane."""
        heads: dict[tuple[int, int], tuple[int, int]] = {}
        whole, page = True, min(PAGE, depth + 1 if depth else PAGE)
        for lane in range(LANES):
            low, high = rowkinds.feed(lane, 0), rowkinds.after(b"F" + bytes([lane]))
            found = each(self._lanes.storage.scan, low, high, limit=page, reverse=True)
            behind: tuple[int, bytes] | None = None
            left = depth
            for key, row in chain(found, [(low, bytes(32))]):
                if behind is not None:
                    if left == 0:
                        whole = False
                        break
                    left = None if left is None else left - 1
                    number, data = behind
                    follows = _number(key) + 1 == number
                    with suppress(StateIntegrityError):  # `verify` names it; the others tell more
                        if not follows or self._lanes.fits(lane, number, row[-32:], data):
                            _note(heads, items_of(data))
                behind = _number(key), row
        self._heads, self._whole = heads, whole


def _note(heads: dict[tuple[int, int], tuple[int, int]], items: Iterable[FeedItem]) -> None:
    for item in items:
        if item.entries:  # else it is a link
            line, last = (item.scope, item.timeline), item.first + item.entries - 1
            newest, count = heads.get(line, (0, 0))
            heads[line] = max(newest, last), count + item.entries


def _number(key: bytes) -> int:
    return int.from_bytes(key[2:], "big")
