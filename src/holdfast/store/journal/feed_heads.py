"""Which entry of each timeline the feed names as its newest, and how many it names.

Each lane is read from its end backwards, as far as is asked for, and once; later answers read what
was committed since. A row that cannot be read names nothing: `verify` finds it.
"""

from __future__ import annotations

import threading
from contextlib import suppress

from holdfast.errors import StateIntegrityError
from holdfast.storage.contract import Storage
from holdfast.store.journal.feed import LANES, FeedItem, items_of
from holdfast.store.journal.timeline import Timeline
from holdfast.store.names import rowkinds

PAGE = 1000


class FeedHeads:
    """The newest entries that the feed of a store names."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._lock = threading.Lock()
        self._heads: dict[tuple[int, int], tuple[int, int]] = {}
        self._lanes = [_Lane(lane) for lane in range(LANES)]

    def named(self, scope: int, timeline: int) -> tuple[int, int | None]:
        """The highest number of a timeline's entries, and how many of them there are, as of the
        last look; None as long as a part of the feed was not read."""
        with self._lock:
            newest, count = self._heads.get((scope, timeline), (0, 0))
            return newest, count if all(lane.whole for lane in self._lanes) else None

    def scopes(self) -> set[int]:
        """Numbers of the scopes that the feed names, as of the last look."""
        with self._lock:
            return {scope for scope, _ in self._heads}

    def look(self, depth: int | None = None) -> None:
        """Read what was committed since; of what was before, with `depth`, only so many of the
        newest rows of each lane."""
        with self._lock:
            for lane in self._lanes:
                self._catch_up(lane)
                self._go_back(lane, depth)

    def _catch_up(self, lane: _Lane) -> None:
        if not lane.last and not lane.whole:
            return  # nothing was read yet: it is read from its end
        while page := self._storage.scan(lane.key(lane.last + 1), lane.end, limit=PAGE):
            self._note(page)
            lane.last = _number(page[-1][0])

    def _go_back(self, lane: _Lane, depth: int | None) -> None:
        while not lane.whole and (depth is None or lane.count < depth):
            limit = PAGE if depth is None else min(PAGE, depth - lane.count)
            high = lane.key(lane.first) if lane.last else lane.end
            page = self._storage.scan(lane.key(0), high, limit=limit, reverse=True)
            self._note(page)
            lane.whole = len(page) < limit
            if page:
                lane.count += len(page)
                lane.last = lane.last or _number(page[0][0])
                lane.first = _number(page[-1][0])

    def _note(self, page: list[tuple[bytes, bytes]]) -> None:
        heads = self._heads
        for _, row in page:
            with suppress(StateIntegrityError):
                for item in items_of(row):
                    if not item.entries:
                        continue  # a link
                    line, last = (item.scope, item.timeline), item.first + item.entries - 1
                    newest, count = heads.get(line, (0, 0))
                    heads[line] = max(newest, last), count + item.entries


class _Lane:
    """How much of a lane was read."""

    def __init__(self, lane: int) -> None:
        self._lane = lane
        self.end = rowkinds.after(b"F" + bytes([lane]))
        self.first = self.last = self.count = 0
        self.whole = False
        """Whether it was read from its first row on."""

    def key(self, number: int) -> bytes:
        """Where a row lies."""
        return rowkinds.feed(self._lane, number)


def _number(key: bytes) -> int:
    return int.from_bytes(key[2:], "big")


def names(storage: Storage, scope: int, line: Timeline) -> bool:
    """Whether a commit that the feed names ended with the newest entry of a timeline."""
    wanted = (scope, line.number, line.sequence, line.head)
    for lane in map(_Lane, range(LANES)):
        low = lane.key(0)
        while page := storage.scan(low, lane.end, limit=PAGE):
            for _, row in page:
                with suppress(StateIntegrityError):
                    if any(_ending(item) == wanted for item in items_of(row)):
                        return True
            low = page[-1][0] + b"\0"
    return False


def _ending(item: FeedItem) -> tuple[int, int, int, bytes]:
    return item.scope, item.timeline, item.first + item.entries - 1, item.hash
