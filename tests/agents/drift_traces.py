"""Made-up work of agents, normal and drifting, and how well drift is found in it.

Run as a program it prints the table of drift_figures.md, from far more cycles than the test takes.

Every trace is normal work of one of the kinds below, and from some cycle on a drift of one kind.
Normal work has tasks one after the other, each a few dozen cycles long. What is random is drawn
from a generator with a fixed seed: the table is the same wherever it is made.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import msgspec

from holdfast.agents.drift import WINDOW, Cycle, DriftAlarm, DriftSignal, Signs

SIGNS = Signs(signals=(DriftSignal("tokens"),))
WITHIN = 20
FULL = (40, 20_000)
"""Traces of each pair of normal work and drift, and cycles of normal work, for drift_figures.md."""
ACTIONS = ("read", "search", "edit", "test", "ask", "plan", "write", "run")


@dataclass(frozen=True)
class Work:
    """One kind of normal work."""

    says: str
    actions: Callable[[random.Random, int, str], str]
    """From the number of the cycle and the action before."""
    advances: float = 0.6
    """The share of cycles in which the task gets further."""
    falls: float = 0.02
    fails: float = 0.03
    spread: float = 0.3
    """Of the logarithm of a cycle's time."""
    spikes: float = 0.0
    """The share of cycles that take 10 times as long."""


def _any(rng: random.Random, number: int, before: str) -> str:
    return rng.choice(ACTIONS)


def _favourites(rng: random.Random, number: int, before: str) -> str:
    return rng.choices(ACTIONS, weights=[12, 6, 4, 3, 2, 2, 1, 1])[0]


def _bursts(rng: random.Random, number: int, before: str) -> str:
    return before if before and rng.random() < 0.5 else rng.choice(ACTIONS)


def _round(rng: random.Random, number: int, before: str) -> str:
    return ("plan", "edit", "test")[number % 3]


NORMAL = {
    "varied": Work("any of eight actions", _any),
    "favourites": Work("a few actions make up most", _favourites),
    "bursts": Work("half of the actions repeat the one before", _bursts),
    "rounds": Work("always plan, edit, test", _round, advances=0.7),
    "hard": Work("progress in half of the cycles, a tenth fail", _any, 0.5, 0.04, 0.10),
    "uneven": Work("times spread wide, some ten times as long", _any, spread=0.7, spikes=0.03),
}

LEVELS = {action: 0.5 * 1.6**number for number, action in enumerate(ACTIONS)}


def normal(work: Work, rng: random.Random) -> Iterator[Cycle]:
    """Normal work without end."""
    number, task, progress, action = 0, 0, 0.0, ""
    while True:
        number += 1
        action = work.actions(rng, number, action)
        if progress >= 1.0 or number == 1:
            task, progress = task + 1, 0.0
        chance = rng.random()
        if chance < work.advances:
            progress = min(1.0, progress + rng.uniform(0.01, 0.08))
        elif chance < work.advances + work.falls:
            progress = max(0.0, progress - rng.uniform(0.01, 0.04))
        seconds = LEVELS[action] * rng.lognormvariate(0, work.spread)
        yield Cycle(
            number=number,
            action=action,
            task=f"task-{task}",
            progress=progress,
            seconds=seconds * (10 if rng.random() < work.spikes else 1),
            failed=rng.random() < work.fails,
            signals={"tokens": rng.gauss(1000, 150)},
        )


Drift = Callable[[random.Random, Cycle, Cycle, int], Cycle]
"""From the normal cycle, the last one before the drift, and how many drifted before."""


def _loop(length: int, noise: float = 0.0) -> Drift:
    def drift(rng: random.Random, cycle: Cycle, start: Cycle, count: int) -> Cycle:
        if rng.random() >= noise:
            cycle = replace_cycle(cycle, action=ACTIONS[count % length])
        return replace_cycle(cycle, task=start.task, progress=start.progress)

    return drift


def _stall(rng: random.Random, cycle: Cycle, start: Cycle, count: int) -> Cycle:
    return replace_cycle(cycle, task=start.task, progress=start.progress)


def _falling(rng: random.Random, cycle: Cycle, start: Cycle, count: int) -> Cycle:
    assert start.progress is not None
    return replace_cycle(cycle, task=start.task, progress=start.progress - 0.02 * (count + 1))


def _swinging(rng: random.Random, cycle: Cycle, start: Cycle, count: int) -> Cycle:
    assert start.progress is not None
    progress = start.progress - 0.05 * (count % 2 == 0)
    return replace_cycle(cycle, task=start.task, progress=progress)


def _failing(share: float) -> Drift:
    return lambda rng, cycle, start, count: replace_cycle(cycle, failed=rng.random() < share)


def _slower(growth: float) -> Drift:
    def drift(rng: random.Random, cycle: Cycle, start: Cycle, count: int) -> Cycle:
        assert cycle.seconds is not None
        return replace_cycle(cycle, seconds=cycle.seconds * growth ** (count + 1))

    return drift


def _three_times(rng: random.Random, cycle: Cycle, start: Cycle, count: int) -> Cycle:
    assert cycle.seconds is not None
    return replace_cycle(cycle, seconds=cycle.seconds * 3)


def _tokens(rng: random.Random, cycle: Cycle, start: Cycle, count: int) -> Cycle:
    return replace_cycle(cycle, signals={"tokens": cycle.signals["tokens"] * 1.05 ** (count + 1)})


def replace_cycle(cycle: Cycle, **fields: object) -> Cycle:
    """A cycle with some fields changed."""
    return msgspec.structs.replace(cycle, **fields)


DRIFTS: dict[str, tuple[str, Drift]] = {
    "one action": ("the same action without progress", _loop(1)),
    "loop of 2": ("two actions in turn without progress", _loop(2)),
    "loop of 3": ("three actions in turn without progress", _loop(3)),
    "loop of 5": ("five actions in turn without progress", _loop(5)),
    "loop with noise": ("two actions in turn, a tenth others", _loop(2, 0.1)),
    "stall": ("actions as ever, no progress", _stall),
    "falling": ("progress falls in every cycle", _falling),
    "swinging": ("progress goes to and fro", _swinging),
    "most fail": ("seven of ten cycles fail", _failing(0.7)),
    "all fail": ("every cycle fails", _failing(1.0)),
    "slower": ("each cycle takes 10 % longer than the last", _slower(1.10)),
    "three times": ("cycles take three times as long", _three_times),
    "own signal": ("tokens grow by 5 % a cycle", _tokens),
}


class Watching:
    """Leads cycles through the signs as `holdfast.agents.Drift` does, without a store."""

    def __init__(self, signs: Signs = SIGNS) -> None:
        self._signs = signs
        self._cycles: list[Cycle] = []
        self._alarmed: dict[str, int] = {}
        self._said = False

    def note(self, cycle: Cycle, *, judge: bool = True) -> list[DriftAlarm]:
        """The alarms that a cycle raises."""
        self._cycles = [*self._cycles[-WINDOW + 1 :], cycle.after(self._cycles)]
        self._said = self._said or cycle.progress is not None
        found = []
        if judge:
            found = self._signs.judge(self._cycles, self._alarmed, progress=self._said)
        self._alarmed.update((alarm.kind, alarm.cycle) for alarm in found)
        return found


def delay(name: str, work: Work, seed: int, before: int) -> int | None:
    """Cycles from the beginning of a drift to its alarm; None if it is not found in time."""
    rng = random.Random(f"{name} {work.says} {seed}")
    source, watching = normal(work, rng), Watching()
    for _ in range(before):
        start = next(source)
        watching.note(start, judge=False)
    for count in range(WITHIN):
        if watching.note(DRIFTS[name][1](rng, next(source), start, count)):
            return count + 1
    return None


def false_alarms(work: Work, cycles: int, seed: int = 0, *, told: bool = True) -> list[DriftAlarm]:
    """The alarms that normal work raises; `told`: whether it says its progress."""
    source, watching = normal(work, random.Random(f"{work.says} {seed}")), Watching()
    noted = (next(source) for _ in range(cycles))
    given = (one if told else replace_cycle(one, progress=None) for one in noted)
    return [alarm for one in given for alarm in watching.note(one)]


def found(name: str, each: int) -> list[int | None]:
    """The delays of a drift, in each kind of normal work, with different lengths before it."""
    return [
        delay(name, work, seed, before=60 + 17 * (seed % 12))
        for work in NORMAL.values()
        for seed in range(each)
    ]


def table(each: int, cycles: int) -> str:
    """The figures of drift_figures.md."""
    lines = [
        "| drift | found in 20 cycles | cycles, median | slowest |",
        "| --- | --- | --- | --- |",
    ]
    for name, (says, _) in DRIFTS.items():
        delays = found(name, each)
        seen = sorted(one for one in delays if one is not None)
        share = 100 * len(seen) / len(delays)
        lines.append(f"| {name}: {says} | {share:.1f} % | {seen[len(seen) // 2]} | {seen[-1]} |")
    head = ["normal work", "cycles", "false alarms", "without its progress"]
    lines += ["", f"| {' | '.join(head)} |", "| --- | --- | --- | --- |"]
    for name, work in NORMAL.items():
        counts = [len(false_alarms(work, cycles, told=told)) for told in (True, False)]
        lines.append(f"| {name}: {work.says} | {cycles:,} | {counts[0]} | {counts[1]} |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(table(*(map(int, sys.argv[1:]) if len(sys.argv) > 1 else FULL)))
