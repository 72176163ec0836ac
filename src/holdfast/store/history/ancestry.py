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
from dataclasses import dataclass

from holdfast.errors import PrunedError
from holdfast.store.journal.entry import Body
from holdfast.store.journal.ledger import Ledger
from holdfast.store.journal.timeline import Timeline

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
        """Take note of a timeline as it is in memory; the point where it stands.

        One whose newest state cannot be read does not know where it comes from.
        """
        if line.stranded is None:
            known = self._known.setdefault(line.number, [])
            known.append((line.sequence, line.origin, line.merged))
        return self._normal((line.number, line.sequence))

    def origin(self, point: Point) -> int:
        """The newest restore or fork of a timeline, as seen from a point; 0 if there is none."""
        return self.at(self._normal(point))[0]

    def common(self, ours: Point, theirs: Point) -> list[Point]:
        """The newest points that both have come by: one, unless they were merged crosswise.

        There is always one, if only the empty state that all timelines of a scope begin with.
        """
        search = _Search(self, self._normal(ours), self._normal(theirs))
        found = search.run()
        return sorted(
            point
            for point in found
            if not any(other != point and self.includes(other, point) for other in found)
        )

    def includes(self, point: Point, older: Point) -> bool:
        """Whether a state has another one in its past, or is it."""
        older = self._normal(older)
        wanted = (older[0], self.at(older)[0])
        waiting, seen = [self._normal(point)], set()
        while waiting:
            point = waiting.pop()
            if point in seen:
                continue
            seen.add(point)
            origin, merged = self.at(point)
            if (point[0], origin) == wanted and point[1] >= older[1]:
                return True
            waiting += [parent for _, parent in self.parents(point[0], origin, merged)]
        return False

    def parents(self, timeline: int, origin: int, merged: int) -> Iterator[tuple[int, Point]]:
        """(entry, where it leads to) for what a chain has from elsewhere, up to a merge."""
        while merged:
            op = self._body((timeline, merged)).ops[0]
            yield merged, self._normal((op[1], op[2]))
            merged = op[4]
        if origin:
            op = self._body((timeline, origin)).ops[0]
            yield origin, self._normal((op[1], op[2]))

    def at(self, point: Point) -> tuple[int, int]:
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
        return self.at(point)

    def _normal(self, point: Point) -> Point:
        """The point; of all timelines' beginnings, which are one empty state, that of `main`."""
        return point if point[1] > self._ledger.before else (0, self._ledger.before)

    def _body(self, point: Point) -> Body:
        found = self._bodies.get(point)
        if found is None:
            *_, found = self._ledger.entry_at(*point)
            self._bodies[point] = found
        return found


@dataclass
class _Way:
    """A way back from a point that one side has come by."""

    side: int
    point: Point
    chain: _Chain
    known: int
    """How far the side has gone along the chain before: what is older was followed then."""
    parents: Iterator[tuple[int, Point]]
    first: bool
    """Whether it is the side's own line, and no branch that was merged into it."""


class _Search:
    """Looks for what two points have in common, both at once, the newest of each chain first."""

    def __init__(self, ancestry: Ancestry, ours: Point, theirs: Point) -> None:
        self.ancestry = ancestry
        self.reached: dict[_Chain, list[int]] = {}
        """How far up each side has come by a chain; -1 if not at all."""
        self.led: dict[_Chain, list[tuple[int, Point]]] = {}
        self.chains: dict[Point, _Chain] = {}
        self.shared: set[Point] = set()
        """Older than something that both have: nothing new can be found from there."""
        self.cut: dict[Point, PrunedError] = {}
        """Where the way back ends: that matters unless it is known to be older than something
        that both have."""
        self.waiting: deque[_Way] = deque()
        for side, point in enumerate((ours, theirs)):
            self._go(side, point, first=True)

    def run(self) -> list[Point]:
        """Points that both have; some may be older than others."""
        while self.waiting and not self._over(0) and not self._over(1):
            self._step(self.waiting.popleft())
        for point, error in self.cut.items():
            if point not in self.shared:
                raise error
        both = [(chain[0], min(marks)) for chain, marks in self.reached.items()]
        return [point for point in both if point[1] >= 0]

    def _over(self, side: int) -> bool:
        """Whether nothing that a side has still to follow can matter.

        The other side has followed all its ways, and all that it came by continues something that
        both have. What is left is the first side's line before the merges that led there. None of
        it can have come by anything newer: a timeline that has a point is not merged with it again.
        """
        marks = self.reached.values()
        return all(way.first and way.side == side for way in self.waiting) and all(
            min(pair) >= 0 for pair in marks if pair[1 - side] >= 0
        )

    def _go(self, side: int, point: Point, *, first: bool) -> None:
        origin, merged = self.ancestry.at(point)
        chain = self.chains[point] = (point[0], origin)
        marks = self.reached.setdefault(chain, [-1, -1])
        before = marks[side]
        if point[1] <= before:
            return
        marks[side] = point[1]
        for at, parent in self.led.setdefault(chain, []):
            if at <= min(marks):
                self._share(parent)
        parents = self.ancestry.parents(point[0], origin, merged)
        self.waiting.append(_Way(side, point, chain, before, parents, first))

    def _step(self, way: _Way) -> None:
        at, parent = next(way.parents, (-1, way.point))
        if at <= max(way.known, min(self.reached[way.chain])) or way.point in self.shared:
            return  # followed before, or older than what both have; and so is what comes next
        self.led[way.chain].append((at, parent))
        self.waiting.append(way)
        if parent not in self.shared:
            try:
                self._go(way.side, parent, first=way.first and at == way.chain[1])
            except PrunedError as error:
                self.cut[parent] = error

    def _share(self, point: Point) -> None:
        waiting = [point]
        while waiting:
            point = waiting.pop()
            if point not in self.shared:
                self.shared.add(point)
                older = self.led.get(self.chains.get(point, (-1, -1)), [])
                waiting += [parent for at, parent in older if at <= point[1]]
