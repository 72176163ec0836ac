"""Policies: what ten of them add to a write, and what ten thousand agents cost while idle."""

from __future__ import annotations

import time
from typing import Any

from common import Row, at_most, median, place, told

from holdfast.checkpoints import Condition, Policy
from holdfast.sync.checkpoints import Policies

AGENTS = 10_000
TEN = (
    ("time_interval", "time_since_last_checkpoint", 3_600_000),
    ("time_interval", "time_since_last_checkpoint", 7_200_000),
    ("state_change", "state_change_ratio", 0.5),
    ("state_change", "state_change_ratio", 0.9),
    ("memory_usage", "memory_usage", 1e9),
    ("memory_usage", "memory_usage", 2e9),
    ("operation_count", "operation_count", 1e6),
    ("operation_count", "operation_count", 2e6),
    ("user_action", "user_action", 3),
    ("system_event", "system_event:low_disk", 1),
)


def run(quick: bool) -> list[Row]:
    """The gate, idle agents."""
    return [*gate(5 if quick else 15), *idle(1000 if quick else AGENTS, 2 if quick else 10)]


def ten() -> tuple[Policy, ...]:
    """Policies of all kinds that are hardly ever met."""
    return tuple(
        Policy(f"p{n}", (Condition(kind, metric, "greater_than", threshold),))
        for n, (kind, metric, threshold) in enumerate(TEN)
    )


def gate(rounds: int) -> list[Row]:
    """What the gate spends on a write, as the writes come.

    Most writes are only noted, and counted by one of them or by the worker: what is told is the
    median of rounds of 64, and that with the processor's time of the worker.
    """
    with place() as here, here.sync("normal") as store:
        state = store.agent("a")
        with state.change() as change:
            for number in range(1000):
                change.set(f"keys/{number:04}", {"text": "what the agent knows " * 10})
        with Policies(store, defaults=ten()) as policies:
            state.set("first", 0)  # its first checkpoint
            policies.wait()
            engine, spent, beside = policies._engine, [], []
            after, turn = engine.after, engine._background._turn

            def timed(change: Any, written: Any) -> None:
                begun = time.perf_counter()
                after(change, written)
                spent.append(time.perf_counter() - begun)

            def timed_turn() -> Any:
                cpu = time.thread_time()
                pause = turn()
                beside.append(time.thread_time() - cpu)
                return pause

            engine.after = timed  # type: ignore[method-assign]
            engine._background._turn = timed_turn
            for number in range(200 * rounds):
                text = f"{number} " * 10
                state.set(f"keys/{number % 200 * 7 % 1000:04}", {"text": text})
            policies.wait()
            if len(state.checkpoints()) != 1:
                raise RuntimeError("a policy fired")
    by_64 = [sum(spent[n : n + 64]) / 64e-6 for n in range(0, len(spent) - 63, 64)]
    worker = sum(beside) / len(spent) * 1e6
    return [
        at_most("ten policies behind a write", median(by_64), 2, "µs"),
        told("the same with the worker's part", median(by_64) + worker, "µs"),
    ]


def idle(agents: int, seconds: float) -> list[Row]:
    """CPU of a process whose agents have the default policies and do nothing."""
    with place() as here, here.sync("normal") as store, Policies(store) as policies:
        for number in range(agents):
            store.agent(f"a{number}").set("task", {"number": number})
        policies.wait()
        for number in range(agents):  # so little that the time alone asks for a checkpoint
            store.agent(f"a{number}").set("t", number % 2)
        policies.wait()
        cpu, begun = time.process_time(), time.perf_counter()
        time.sleep(seconds)
        used = (time.process_time() - cpu) / (time.perf_counter() - begun)
    name = f"{agents:,} idle agents with the default policies, CPU"
    return [at_most(name, used * 100, 1, "%")]
