"""A step of the wall clock is noted in the next entry, whoever asked for the time before."""

from __future__ import annotations

import holdfast
from holdfast import sync


class Hands:
    """A wall clock that is moved by hand."""

    time = 1_700_000_000.0

    def __call__(self) -> float:
        return self.time


def test_step_is_noted_in_the_next_entry(store_url: str) -> None:
    hands = Hands()
    clock = holdfast.Clock(hands, lambda: 0.0)
    with sync.open(store_url, clock=clock) as store:
        state = store.agent("a")
        point = state.checkpoint("first") if state.set("k", 1) else None
        steps = []
        hands.time -= 3600
        store.witness()  # asks for the time and makes no entry
        store.agent("new").set("k", 1)  # so does making a scope
        steps.append(store.agent("new").log()[0].clock_step)
        hands.time += 7200
        state.fork("trial", at=point)
        steps.append(state.on("trial").log()[0].clock_step)
        state.set("k", 2)
        steps.append(state.log()[0].clock_step)
        assert steps == [-3600, 7200, 0]
        assert store.verify().ok
