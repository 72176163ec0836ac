"""The newest common past of two states, against all of history read and compared."""

from __future__ import annotations

from random import Random

import pytest

from holdfast import sync
from holdfast.store.history.merge import Ancestry, Point


class Past:
    """The past of every state of a scope, from what its entries say."""

    def __init__(self, state: sync.State) -> None:
        self.numbers = {info.name: number for number, info in enumerate(state.timelines())}
        self.parents: dict[Point, list[Point]] = {}
        for info in state.timelines():
            for entry in state.on(info.name).log(limit=None):
                here = (self.numbers[info.name], entry.sequence)
                found = [(here[0], here[1] - 1)]
                if entry.point:
                    name, _, number = entry.point.rpartition("@")
                    from_ = (self.numbers[name], int(number))
                    found = [*found, from_] if "merge" in entry.kinds else [from_]
                self.parents[here] = [one if one[1] else (0, 0) for one in found]

    def of(self, point: Point) -> set[Point]:
        seen: set[Point] = set()
        waiting = [point]
        while waiting:
            point = waiting.pop()
            if point not in seen:
                seen.add(point)
                waiting += self.parents.get(point, [])
        return seen

    def common(self, ours: Point, theirs: Point) -> list[Point]:
        both = self.of(ours) & self.of(theirs)
        return sorted(one for one in both if not any(o != one and one in self.of(o) for o in both))


@pytest.mark.parametrize("seed", range(30))
def test_it_is_what_reading_everything_gives(seed: int) -> None:
    random = Random(seed)
    with sync.open("memory:", durability="normal") as store:
        state = store.agent("a")
        state.set("start", 0)
        names = ["main"]
        for number in range(60):
            line = state.on(random.choice(names))
            other = state.on(random.choice(names))
            roll = random.random()
            point = f"{other.timeline}@{random.randint(1, other._handle.place()[2])}"
            if roll < 0.08 and len(names) < 5:
                names.append(f"f{number}")
                state.fork(names[-1], at=point)
            elif roll < 0.16:
                line.restore(point, verify="none")
            elif roll < 0.30:
                line.merge(point, strategy="theirs")
            elif roll < 0.50:
                line.merge(other, strategy="ours")
            else:
                line.set(f"k{random.randrange(4)}", number)
        past = Past(state)
        ledger = state._handle.history.points.line().ledger
        points = [
            (number, sequence)
            for number, name in enumerate(names)
            for sequence in range(1, state.on(name)._handle.place()[2] + 1)
        ]
        for _ in range(150):
            ours, theirs = random.choice(points), random.choice(points)
            same_state = past_points(past, Ancestry(ledger).common(ours, theirs))
            assert same_state == past_points(past, past.common(ours, theirs)), (ours, theirs)
        assert store.verify().ok


def past_points(past: Past, points: list[Point]) -> list[Point]:
    """Points, with the entry of a restore or fork as the entry whose state it has."""
    found = []
    for point in points:
        parents = past.parents.get(point, [])
        while len(parents) == 1 and parents[0] != (point[0], point[1] - 1):
            point, parents = parents[0], past.parents.get(parents[0], [])
        found.append(point)
    return sorted(found)


def test_merging_the_same_again_and_again_reads_no_more_each_time() -> None:
    with sync.open("memory:", durability="normal") as store:
        main = store.agent("a")
        main.set("start", 0)
        trial = main.fork("trial")
        for number in range(50):
            trial.set("k", number)
            main.merge(trial)
            if number % 3 == 0:
                main.set("m", number)
                trial.merge(main)
        line = main._handle.history.points.line()
        ancestry = Ancestry(line.ledger)
        here, there = (ancestry.know(one._handle.history.points.line()) for one in (main, trial))
        assert ancestry.common(here, there) == [there]
        assert len(ancestry._bodies) < 6


def test_what_is_pruned_and_older_than_the_common_past_does_not_matter(store: sync.Store) -> None:
    state = store.agent("1")
    for n in range(50):
        state.set("k", n)
    sync.checkpoints.Checkpoints(state).confirm(state.restore(20))
    state.set("k", "after the restore")
    state.prune(state._handle.place()[2], keep=[])
    trial = state.fork("trial")
    trial.set("theirs", 1)
    state.set("ours", 1)
    state.merge(trial)
    assert dict(state.items()) == {"k": "after the restore", "ours": 1, "theirs": 1}
    assert store.verify().ok
