"""State machines: what a transition costs beside a set."""

from __future__ import annotations

import time
from collections.abc import Callable

from common import Row, at_most, median, place, told

from holdfast.agents import MachineDefinition, MachineState
from holdfast.sync.agents import Machine

TURNS = MachineDefinition(
    initial="thinking",
    states={
        "thinking": MachineState(on={"act": "acting"}),
        "acting": MachineState(on={"think": "thinking"}),
    },
)


def run(quick: bool) -> list[Row]:
    """A transition against a set of a small value, in turns so that both see the same machine."""
    rows: list[Row] = []
    for durability in ("full", "normal"):
        pairs = _compared(durability, 15 if quick else 60)
        ratio = median(transition / set_ for set_, transition in pairs)
        rows.append(at_most(f"a transition against a set, {durability}", ratio, 1.5))
        cost = median(transition for _, transition in pairs)
        rows.append(told(f"a transition, {durability}", cost * 1e6, "µs"))
    return rows


def _compared(durability: str, rounds: int) -> list[tuple[float, float]]:
    """Seconds for a set and for a transition, of each round."""
    with place() as here, here.sync(durability) as store:
        state = store.agent("a")
        machine = Machine(state, TURNS)
        machine.start()

        def write(number: int) -> None:
            state.set("plan", {"goal": "ship", "step": number, "note": "what comes next"})

        def step(number: int) -> None:
            machine.fire("think" if number % 2 else "act")

        _round(write), _round(step)
        return [(_round(write), _round(step)) for _ in range(rounds)]


def _round(function: Callable[[int], None], count: int = 50) -> float:
    """Seconds for each of some calls."""
    begun = time.perf_counter()
    for number in range(count):
        function(number)
    return (time.perf_counter() - begun) / count
