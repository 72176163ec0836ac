"""Recovery: from a failure that was found to an agent that runs again, alone and with others."""

from __future__ import annotations

import time

from agents_state import FIELDS, Talker
from common import Row, at_most, median, place, told

from holdfast.sync import Store
from holdfast.sync.agents import attach
from holdfast.sync.recovery import Recovery

AGENTS = 1000


def run(quick: bool) -> list[Row]:
    """One agent of 1 MB, and a thousand small ones."""
    return [*alone(3 if quick else 9), *fleet(100 if quick else AGENTS)]


def alone(rounds: int) -> list[Row]:
    """From the failure to the agent in memory again: as it was, or put back to a checkpoint."""
    with place() as here:
        with here.sync("full") as store:
            state = store.agent("a")
            agent = Talker()
            kept = attach(agent, state, fields=FIELDS)
            kept.start()
            for _ in range(10):
                agent.work()
                kept.save()
            state.checkpoint("good")
            agent.work()
            kept.save()
            kept.stop()
        crashed = [_seconds(here.sync("full"), "agent_crash") for _ in range(rounds)]
        put_back = [_seconds(here.sync("full"), "state_corruption") for _ in range(rounds)]
    return [
        at_most("crash found to running again, 1 MB", _median(crashed, 0), 200, "ms"),
        told("of that, CPU", _median(crashed, 1), "ms"),
        at_most("the same, put back to a checkpoint", _median(put_back, 0), 200, "ms"),
        told("of that, CPU", _median(put_back, 1), "ms"),
    ]


def _median(rounds: list[tuple[float, float]], which: int) -> float:
    """Of one of two figures, in milliseconds."""
    return median(one[which] for one in rounds) * 1e3


def _seconds(opened: Store, failure: str) -> tuple[float, float]:
    """Seconds, and those of CPU, in a process that has read nothing of the agent yet."""
    again = Talker()
    with opened as store:
        state = store.agent("a")
        begun, used = time.perf_counter(), time.process_time()
        if not Recovery(store).recover(state, failure).success:
            raise RuntimeError("it was not recovered")
        attach(again, state, fields=FIELDS).restore()
        return time.perf_counter() - begun, time.process_time() - used


def fleet(count: int) -> list[Row]:
    """Agents that crashed at once, each recovered with its report."""
    with place() as here:
        with here.sync("normal") as store:
            for first in range(0, count, 100):
                with store.change() as change:
                    for number in range(first, first + 100):
                        change[f"agent:{number}"].set("task", {"id": number})
            for number in range(count):
                store.agent(str(number)).checkpoint("good")
        with here.sync("full") as store:
            begun, used = time.perf_counter(), time.process_time()
            found = Recovery(store).recover_each(
                (f"agent:{number}" for number in range(count)), "agent_crash"
            )
            took, used = time.perf_counter() - begun, time.process_time() - used
    if not all(getattr(one, "success", False) for one in found.values()):
        raise RuntimeError("some were not recovered")
    return [
        at_most(f"{count:,} crashed agents recovered", took, 10 * count / AGENTS, "s"),
        told("CPU for each of them", used / count * 1e3, "ms"),
    ]
