"""Rows of the feed in order, from a position on and as they come, in bounded memory.

The lanes are read one after the other while others commit. A row is handed out when it is known
that none of its timelines has an earlier entry that was not handed out:
- of a timeline that was met before, the number of its next entry is known;
- of one that is new, whatever comes before a row was committed before it, so that a look at all
  lanes that began after the row was read has found it; also what its links (`behind`) lead to.

A timeline that tells of entries which it lost has given their numbers again. If numbers of it come
twice, or its rows do not follow each other, each of them is judged: those of lost entries are
handed out as they come, the others in their order; links to it are not waited for.

What is held: some rows of each lane, and a number for each timeline that is met on the way.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping
from typing import Protocol

from holdfast.errors import DamagedRecordError
from holdfast.store.journal.feed import LANES, FeedItem, Lanes

Row = tuple[int, int, list[FeedItem]]
"""Lane, number and what was committed."""
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


class Judge(Protocol):
    """Who knows what timelines have lost."""

    def tells(self, scope: int, timeline: int) -> bool:
        """Whether a timeline tells, as of now, that it lost something."""

    def left(self, item: FeedItem, lane: int, number: int) -> FeedItem | None:
        """What a row names without what is told to be lost; None if nothing is left."""


class Tail:
    """Reads all lanes behind a position."""

    def __init__(self, lanes: Lanes, position: Mapping[int, int], judge: Judge) -> None:
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
        self._spans: dict[tuple[int, int], tuple[int, int, int]] = {}
        """Of each timeline of the last look: its first number, the one behind its last, how many
        there are between them."""
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
                self._tidy()
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

    def _tidy(self) -> None:
        """Everything was handed out, so whatever comes next of any timeline is its next."""
        if len(self._next) > LINES and not self._waiting():
            self._next.clear()

    # handing out

    def _take(self) -> Row | None:
        for turn in range(LANES):
            lane = (self._lane + turn) % LANES
            held = self._held[lane]
            if not held:
                if self._at[lane] == self._looked[lane]:
                    continue
                self._refill(lane)
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
        here = self._standing(lane, number, items)
        return all(self._follows(item) for item in here)

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

    def _refill(self, lane: int) -> None:
        last = self._looked[lane]
        page = self._lanes.read(lane, self._at[lane], min(PAGE, last - self._at[lane]))
        self._held[lane].extend((number, items) for number, items, _ in page if number <= last)
        if not self._held[lane]:
            raise DamagedRecordError(f"lane {lane} of the feed has lost rows; run verify")

    # looking

    def _look(self) -> bool:
        """Read every lane to its end; whether anything was there."""
        self._count = self._lanes.count
        token = self._lanes.token()
        found = False
        self._held_back = False
        fresh: dict[tuple[int, int], int] = {}
        self._spans = {}
        for lane in range(LANES):
            found = self._look_at(lane, fresh) or found
        for line, (low, high, count) in self._spans.items():
            if count > high - low and self._judge.tells(*line):  # numbers that come twice
                self._cut.add(line)
                known = fresh if line in fresh else self._next
                known[line] = self._lowest(line)
        self._spans = {}
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

    def _look_at(self, lane: int, fresh: dict[tuple[int, int], int]) -> bool:
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
            for _, items, _ in page:
                self._note(items, fresh)
            if page:
                held = self._held[lane]
                behind = held[-1][0] if held else self._at[lane]
                if behind == self._looked[lane] and len(held) < PAGE:
                    held.extend((number, items) for number, items, _ in page)
                self._looked[lane] = page[-1][0]
            if not full:
                return self._looked[lane] > begun

    def _note(self, items: list[FeedItem], fresh: dict[tuple[int, int], int]) -> None:
        for item in items:
            if not item.entries:
                continue  # of a link's timeline there may be nothing that was not read
            line, end = (item.scope, item.timeline), item.first + item.entries
            low, high, count = self._spans.get(line, (item.first, end, 0))
            self._spans[line] = min(low, item.first), max(high, end), count + item.entries
            if line not in self._next:
                known = self._unsure if line in self._unsure else fresh
                known[line] = min(item.first, known.get(line, item.first))
