"""Where two states of a scope have their last common past.

A state comes from the one before it; after a restore or a fork from the one that it names, and
after a merge from both. So the past of a state is made of chains: entries of a timeline since a
restore or fork. What an agent did before it was restored is no past of the state that it has now.

Chains are followed from the newest entry back, and only as far as the two sides differ. Merges
and origins are found by the numbers that an index save and a merge keep, not by reading entries.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush

from holdfast.store import rows
from holdfast.store.entries import Body
from holdfast.store.ledger import Ledger
from holdfast.store.timeline import Timeline

Point = tuple[int, int]
"""Number of the timeline, and entry."""
_Chain = tuple[int, int]
"""Number of the timeline, and the restore or fork that the chain begins with (0: its start)."""


class Ancestry:
    """The past of some states of one scope, read as far as it is asked for."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._known: dict[Point, tuple[int, int]] = {}

    def know(self, line: Timeline) -> Point:
        """Take note of a timeline as it is in memory; the point where it stands."""
        point = self._normal((line.number, line.sequence))
        self._known[point] = (line.origin, line.merged)
        return point

    def origin(self, point: Point) -> int:
        """The newest restore or fork of a timeline, as seen from a point; 0 if there is none."""
        return self._at(self._normal(point))[0]

    def common(self, ours: Point, theirs: Point) -> list[Point]:
        """The newest points that both have come by: one, unless they were merged crosswise.

        There is always one, if only the empty state that all timelines of a scope begin with.
        """
        reached: dict[_Chain, list[int]] = {}
        shared: set[Point] = set()
        waiting: list[tuple[int, Point, int]] = []
        for side, point in enumerate((ours, theirs)):
            heappush(waiting, (-self._time(point), self._normal(point), side))
        while waiting:
            _, point, side = heappop(waiting)
            if point in shared:
                continue  # older than something that both have
            origin, merged = self._at(point)
            marks = reached.setdefault((point[0], origin), [-1, -1])
            before = marks[side]
            marks[side] = max(before, point[1])
            for at, parent in self._parents(point[0], origin, merged):
                if at <= min(marks):
                    shared.add(parent)
                elif before < at:
                    # The newest first, as far as clocks can tell: the order only spares effort.
                    heappush(waiting, (-self._time(parent), parent, side))
        found = [(chain[0], min(marks)) for chain, marks in reached.items() if min(marks) >= 0]
        return sorted(
            point
            for point in found
            if not any(other != point and self.includes(other, point) for other in found)
        )

    def includes(self, point: Point, older: Point) -> bool:
        """Whether a state has another one in its past, or is it."""
        older = self._normal(older)
        wanted = (older[0], self._at(older)[0])
        waiting, seen = [self._normal(point)], set()
        while waiting:
            point = waiting.pop()
            if point in seen:
                continue
            seen.add(point)
            origin, merged = self._at(point)
            if (point[0], origin) == wanted and point[1] >= older[1]:
                return True
            waiting += [parent for _, parent in self._parents(point[0], origin, merged)]
        return False

    def _parents(self, timeline: int, origin: int, merged: int) -> Iterator[tuple[int, Point]]:
        """(entry, where it leads to) for what a chain has from elsewhere, up to a merge."""
        while merged:
            op = self._body((timeline, merged)).ops[0]
            yield merged, self._normal((op[1], op[2]))
            merged = op[4]
        if origin:
            op = self._body((timeline, origin)).ops[0]
            yield origin, self._normal((op[1], op[2]))

    def _at(self, point: Point) -> tuple[int, int]:
        """The newest restore or fork before a point, and the newest merge since that."""
        if point[1] <= self._ledger.before:
            return 0, 0
        found = self._known.get(point)
        if found is None:
            line = Timeline(self._ledger, point[0]).load(point[1])
            found = self._known[point] = (line.origin, line.merged)
        return found

    def _normal(self, point: Point) -> Point:
        """The point; of all timelines' beginnings, which are one empty state, that of `main`."""
        return point if point[1] > self._ledger.before else (0, self._ledger.before)

    def _time(self, point: Point) -> int:
        return self._body(point).time if point[1] > self._ledger.before else 0

    def _body(self, point: Point) -> Body:
        key = rows.entry(rows.line(b"E", self._ledger.number, point[0]), point[1])
        return self._ledger.open_entry(key, self._ledger.storage.get([key])[0])[1]
