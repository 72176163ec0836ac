"""A step of the wall clock is noted in the next entry of each timeline, and makes nothing older as
long as it is among the newest."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta

import pytest

import holdfast
from holdfast import sync
from holdfast.checkpoints import RetentionRule
from holdfast.errors import InvalidInputError
from holdfast.store.journal import directory
from holdfast.store.read.reader import moment

YEARS = 10 * 365 * 86400


class Hands:
    """A wall clock that is moved by hand."""

    time = 1_700_000_000.0

    def __call__(self) -> float:
        return self.time


def test_a_step_is_noted_once_in_each_timeline(store_url: str) -> None:
    """By how much its own last entry was before, whatever was written elsewhere meanwhile."""
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
        for one in (store.agent("new"), state, state):
            one.set("k", 2)
            steps.append(one.log()[0].clock_step)
        assert steps == [-3600, 3600, 7200, 3600, 0]
        assert store.verify().ok


def test_a_jump_makes_nothing_older(store_url: str) -> None:
    """Few of many checkpoints, so that no question would keep them."""
    hands = Hands()
    with sync.open(store_url, clock=holdfast.Clock(hands, lambda: 0.0)) as store:
        state = store.agent("a")
        for n in range(60):
            state.set("k", n)
            state.checkpoint(f"old {n}", type="manual" if n < 5 else "triggered")
        hands.time += YEARS
        store.agent("b").set("k", 1)
        state.set("k", "end")
        state.checkpoint("new")
        state.set("k", "on")
        plan = sync.checkpoints.Retention(
            store, rules={"manual": RetentionRule(max_age=timedelta(30))}
        ).plan(state)
        assert (plan.removed, "nothing goes because of its age" in plan.notes[0]) == ((), True)


def test_a_step_is_noted_again_rather_than_forgotten(
    store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of more timelines than are remembered."""
    monkeypatch.setattr(directory, "LEDGERS", 2)
    hands = Hands()
    with sync.open(store_url, clock=holdfast.Clock(hands, lambda: 0.0)) as store:
        agents = [store.agent(str(n)) for n in range(4)]
        for agent in agents:
            agent.set("k", 1)
        hands.time += 3600
        for agent in agents * 2:
            agent.set("k", 2)
        for agent in agents:
            assert 3600 in {entry.clock_step for entry in agent.log()}


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
