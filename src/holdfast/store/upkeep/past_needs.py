"""State that is made of its past: what must not be pruned as long as it is so.

Most state is whole by itself, and its past can go. A part of Holdfast that keeps only changes for a
while, to be put together when they are read, says so in the state, with a key of its own (`Owned`,
needs) for each thing of that kind: its value is the first entry of main that is needed. Pruning
main stops before it, for the newest state and for every other one that is to stay, of whatever
timeline. The key is state like any other: it is restored, forked and erased with what it speaks of.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from holdfast.errors import StateIntegrityError
from holdfast.store.commit.stage import Stage
from holdfast.store.journal.save import BEFORE, DELTA, Save
from holdfast.store.journal.timeline import Timeline, behind, count_below, slot_from, timeline_range
from holdfast.store.rules.owned import TABLE
from holdfast.store.upkeep.holds import saves_of


class PastNeeds:
    """What states of a scope need of a timeline that is pruned, but what is gone already.

    Older states are looked at only if what is saved of the timeline tells that there are such keys
    in any: most scopes have none, and reading the state of every checkpoint takes long. A key that
    was set and deleted between two saves without a restore may be missed.
    """

    def __init__(self, line: Timeline) -> None:
        self._ledger = line.ledger
        self._number = line.number
        self._gone = max(line.floor.sequence, line.ledger.before)
        self._known: dict[tuple[int, int], list[int]] = {}
        self._noted = line.number == 0 and (bool(self.of(line)) or self._saved())

    def of(self, state: Timeline | Stage) -> list[int]:
        """The entries from which on a state is made of its past; none if it is whole."""
        if self._number:
            return []  # such keys speak of main
        held: list[Any] = []
        for prefix in TABLE.index.needs:
            if isinstance(state, Stage):
                held += state.range(prefix, behind(prefix))
            else:
                held += timeline_range(state, prefix, behind(prefix))
        slots = map(slot_from, held)
        found = [self._ledger.value(slot.ref, slot.location, None) for slot in slots]
        return [entry for entry in found if type(entry) is int and entry > self._gone]

    def of_points(self, points: Iterable[tuple[int, int]]) -> Iterator[int]:
        """The same of the states at some (timeline, entry); each is read once."""
        for point in points if self._noted else ():
            if point not in self._known:
                self._known[point] = self._of_point(*point)
            yield from self._known[point]

    def _of_point(self, timeline: int, entry: int) -> list[int]:
        if timeline == self._number and entry <= self._gone:
            return []  # what came before it is pruned, all of it
        try:
            return self.of(Timeline(self._ledger, timeline).load(entry))
        except StateIntegrityError:
            return []  # a state that cannot be read keeps nothing; `verify` names the damage

    def _saved(self) -> bool:
        """Whether what is saved of the timeline tells of keys that say so."""
        try:
            found = saves_of(self._ledger, self._number, self._gone + 1)
            return any(self._tells(at, save) for at, save in found)
        except StateIntegrityError:
            return True  # then the states themselves are looked at

    def _tells(self, at: int, save: Save) -> bool:
        if save.kind == DELTA:
            return any(key.startswith(TABLE.index.needs) for key in save.keys)
        if save.kind == BEFORE and self._of_point(self._number, at - 1):
            return True  # a restore took it away
        trees = self._ledger.trees
        if not save.place:
            return False
        root = trees.load(tuple(save.place), save.root)
        return any(count_below(trees, root, prefix) for prefix in TABLE.index.needs)
