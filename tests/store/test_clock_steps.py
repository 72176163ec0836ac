"""A step of the wall clock is noted in the next entry, whoever asked for the time before."""

from __future__ import annotations

import math
from datetime import UTC, datetime

import pytest

import holdfast
from holdfast import sync
from holdfast.errors import InvalidInputError
from holdfast.store.reading import moment


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


@pytest.mark.parametrize("bad", [-1e12, 1e12, 1e20, math.inf, -math.inf, math.nan])
def test_what_is_no_time_is_refused(store_url: str, bad: float) -> None:
    hands = Hands()
    with sync.open(store_url, clock=holdfast.Clock(hands, lambda: 0.0)) as store:
        state = store.agent("a")
        state.set("k", 1)
        hands.time = bad
        for call in (lambda: state.set("k", 2), lambda: store.agent("b").set("k", 1)):
            with pytest.raises(InvalidInputError, match="the clock says"):
                call()
        hands.time = Hands.time
        state.set("k", 3)
        assert [entry.clock_step for entry in state.log()] == [0, 0]
        assert (state.get("k"), store.verify().ok) == (3, True)
    with pytest.raises(InvalidInputError, match="the clock says"):
        holdfast.Clock(lambda: bad)


def test_times_at_the_ends_of_the_calendar_are_read(store_url: str) -> None:
    hands = Hands()
    with sync.open(store_url, clock=holdfast.Clock(hands, lambda: 0.0)) as store:
        for hands.time in (-62_135_596_800.0, 253_402_300_799.0):
            store.agent("a").set("k", hands.time)
        assert [entry.time.year for entry in store.agent("a").log()] == [9999, 1]
    assert moment(10**30) == datetime.max.replace(tzinfo=UTC)
    assert moment(-(10**30)) == datetime.min.replace(tzinfo=UTC)
