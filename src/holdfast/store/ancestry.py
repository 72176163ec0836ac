"""Where two states of a scope have their last common past.

A state comes from the one before it; after a restore or a fork from the one that it names, and
after a merge from both. So the past of a state is made of chains: entries of a timeline since a
restore or fork. What an agent did before it was restored is no past of the state that it has now.

Chains are followed from the newest entry back, and only as far as the two sides differ. Merges
and origins are found by the numbers that an index save and a merge keep, not by reading entries.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

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
        self._known: dict[int, list[tuple[int, int, int]]] = {}
        """For timelines: an entry, the restore or fork before it, the newest merge since that."""
        self._bodies: dict[Point, Body] = {}

    def know(self, line: Timeline) -> Point:
        """Take note of a timeline as it is in memory; the point where it stands."""
        self._known.setdefault(line.number, []).append((line.sequence, line.origin, line.merged))
        return self._normal((line.number, line.sequence))

    def origin(self, point: Point) -> int:
        """The newest restore or fork of a timeline, as seen from a point; 0 if there is none."""
        return self._at(self._normal(point))[0]

    def common(self, ours: Point, theirs: Point) -> list[Point]:
        """The newest points that both have come by: one, unless they were merged crosswise.

        There is always one, if only the empty state that all timelines of a scope begin with.
        """
        reached: dict[_Chain, list[int]] = {}
        led: dict[Point, list[Point]] = {}
        shared: set[Point] = set()
        waiting = deque([(0, self._normal(ours)), (1, self._normal(theirs))])
        while waiting:
            side, point = waiting.popleft()
            if point in shared:
                continue  # older than something that both have
            origin, merged = self._at(point)
            marks = reached.setdefault((point[0], origin), [-1, -1])
            before = marks[side]
            marks[side] = max(before, point[1])
            for at, parent in self._parents(point[0], origin, merged):
                led.setdefault(point, []).append(parent)
                if at <= min(marks):
                    _share(parent, shared, led)
                elif before < at:
                    waiting.append((side, parent))
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
        timeline, sequence = point
        for high, origin, merged in self._known.get(timeline, ()):
            if origin <= sequence <= high:
                while merged > sequence:
                    merged = self._body((timeline, merged)).ops[0][4]
                return origin, merged
        self.know(Timeline(self._ledger, timeline).load(sequence))
        return self._at(point)

    def _normal(self, point: Point) -> Point:
        """The point; of all timelines' beginnings, which are one empty state, that of `main`."""
        return point if point[1] > self._ledger.before else (0, self._ledger.before)

    def _body(self, point: Point) -> Body:
        found = self._bodies.get(point)
        if found is None:
            key = rows.entry(rows.line(b"E", self._ledger.number, point[0]), point[1])
            found = self._ledger.open_entry(key, self._ledger.storage.get([key])[0])[1]
            self._bodies[point] = found
        return found


def _share(point: Point, shared: set[Point], led: dict[Point, list[Point]]) -> None:
    """Take note that both sides have a point, and so all that it was found to come from."""
    waiting = [point]
    while waiting:
        point = waiting.pop()
        if point not in shared:
            shared.add(point)
            waiting += led.get(point, ())
