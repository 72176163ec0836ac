"""The optimizer: what it predicts is what comes of it, on a week of writes.

The week is made up (bursts on working days, by a seeded generator), and the prediction shares the
tracker with what is measured: this shows that the replay is faithful, not how agents behave.
"""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest

from holdfast import Clock, Condition, Policy, PolicyFrequency, sync
from holdfast.checkpoints.optimizer import Cost
from holdfast.checkpoints.policy import DEFAULTS
from holdfast.errors import InvalidInputError

WEEK = json.loads(Path(__file__).with_name("week_of_writes.json").read_text())
"""[seconds, key, bytes or null for a delete] of each write, in order."""
A = "agent:a"
_numbers = itertools.count()


def live(*policies: Policy, watch: bool = True) -> sync.Store:
    """Live the week once more, under policies or none."""
    at = [0.0]
    clock = Clock(lambda: 1_700_000_000 + at[0], lambda: at[0])
    store = sync.open(f"memory:week-{next(_numbers)}", clock=clock)
    watching = sync.Policies(store, defaults=policies if watch else ())
    state = store.agent("a")
    for number, (seconds, key, size) in enumerate(WEEK):
        quiet = at[0] + 3000  # by then no alarm is left
        while at[0] < seconds:  # in small steps, so that alarms come at their time
            at[0] = min(seconds, at[0] + 20) if at[0] < quiet else seconds
            assert watching.wait(20)
        if size is None:
            state.delete(key)
        else:
            state.set(key, f"{number:06}" + "x" * size)
        assert watching.wait(20)
    assert watching.errors() == ()
    watching.close()
    return store


def total(costs: list[Cost]) -> int:
    return sum(one.bytes for one in costs)


@pytest.mark.spec("K116")
def test_a_predicted_week_is_what_it_costs_and_a_proposal_saves_what_it_says() -> None:
    with live(watch=False) as quiet, live(*DEFAULTS) as busy:
        predicted = sync.Optimizer(quiet).predict(A)
        measured = sync.Optimizer(busy).costs(A)
        assert {one.policy for one in measured} == {one.id for one in DEFAULTS}
        assert total(predicted) == pytest.approx(total(measured), rel=0.2)
        for one in measured:
            same = next(other for other in predicted if other.policy == one.policy)
            assert same.checkpoints == pytest.approx(one.checkpoints, rel=0.2)
        proposals = sync.Optimizer(busy).propose(A)
    assert {one.policy.id for one in proposals} == {one.id for one in DEFAULTS}
    for best in proposals:
        assert best.saves >= 0.25 * best.before > 0
        settings = [best.policy if one.id == best.policy.id else one for one in DEFAULTS]
        with live(*settings) as frugal:
            saved = total(measured) - total(sync.Optimizer(frugal).costs(A))
            assert saved == pytest.approx(best.saves, rel=0.2)


def test_intervals_adapt_within_bounds() -> None:
    often = Policy(
        "often",
        (Condition("operation_count", "operation_count", "greater_than_or_equal", 2),),
        frequency=PolicyFrequency(30_000),
    )
    with live(often) as store:
        optimizer = sync.Optimizer(store, defaults=(often,))
        assert optimizer.propose(A, {"other": (1, 2)}) == []
        done = optimizer.adapt(A, {"often": (60_000, 120_000)})
        assert [one.policy.id for one in done] == ["often"]
        interval = sync.Policies(store, watch=False).get(A, "often").frequency.interval
        assert 60_000 <= interval <= 120_000
        assert interval == done[0].policy.frequency.interval
        assert optimizer.adapt(A, {"often": (interval, interval)}) == []
        with pytest.raises(InvalidInputError, match="the shorter first"):
            optimizer.propose(A, {"often": (5, 1)})
        assert optimizer.costs("agent:nobody") == optimizer.predict("agent:nobody") == []
