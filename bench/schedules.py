"""Schedules: what many idle agents cost in one process."""

from __future__ import annotations

import time

from common import Row, at_most, cpu, place, told

from holdfast import Clock, sync

INTERVAL = 300


class Shifted:
    """Clocks that go as they should, but for the time that is skipped."""

    def __init__(self) -> None:
        self.skipped = 0.0
        self.clock = Clock(self.wall, lambda: time.monotonic() + self.skipped)

    def wall(self) -> float:
        """The time of day, ahead by what was skipped."""
        return time.time() + self.skipped


def run(quick: bool) -> list[Row]:
    """CPU of 10,000 agents with a checkpoint each five minutes, none of which writes."""
    agents, seconds = (2_000, 4.0) if quick else (10_000, 20.0)
    shifted = Shifted()
    with place() as here, sync.open(here.url, durability="normal", clock=shifted.clock) as store:
        scheduler = sync.checkpoints.Scheduler(store)
        for first in range(0, agents, 500):
            with store.change() as change:
                for number in range(first, first + 500):
                    change[f"agent:{number}"].set("k", number)
        for number in range(agents):
            scheduler.every(INTERVAL, f"agent:{number}", jitter=INTERVAL)
        scheduler.run_due()
        shifted.skipped += 2 * INTERVAL
        start = time.perf_counter()
        saved = sum(one.outcome == "saved" for one in scheduler.run_due())
        took = time.perf_counter() - start
        assert saved == agents
        with scheduler:
            used = cpu(lambda: time.sleep(seconds))
    share = 100 * used / seconds
    name = f"{agents:,} idle agents with a checkpoint each {INTERVAL} s: CPU"
    return [
        at_most(name, share, agents / 10_000, "%"),
        told("a checkpoint of each of them, all at once", took, "s"),
    ]
