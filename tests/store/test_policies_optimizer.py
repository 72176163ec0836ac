"""The optimizer: what it proposes saves what it says, on the recorded week of an agent.

The agent ran in a store and was recorded; its words are made up.
"""

from __future__ import annotations

import asyncio
import itertools

import pytest
from store_kit import Place, rows_of
from week_of_an_agent import recorded

import holdfast
from holdfast import Clock, sync
from holdfast.checkpoints import Condition, Policy
from holdfast.checkpoints.policy.optimizer import Cost
from holdfast.checkpoints.policy.policy import DEFAULTS
from holdfast.storage.contract import Batch

WEEK = recorded()
A = "agent:a"
_numbers = itertools.count()


def value(key: str, size: int, which: int) -> str:
    """A text that takes as much as what was recorded, and differs where that did."""
    length = size - len(key) - 1
    head = 1 if length <= 32 else 2 if length <= 257 else 3
    return f"{which} ".ljust(length - head, "x")[: length - head]


def live(*policies: Policy, watch: bool = True) -> sync.Store:
    """Live the week once more, in a store, under policies or none."""
    start = WEEK[0].time
    at = [0.0]
    clock = Clock(lambda: start + at[0], lambda: at[0])
    store = sync.open(f"memory:week-{next(_numbers)}", clock=clock)
    watching = sync.checkpoints.Policies(store, defaults=policies if watch else ())
    state = store.agent("a")
    for step in WEEK:
        quiet = at[0] + 3000  # by then no alarm is left
        end = step.time - start
        while at[0] < end:  # in small steps, so that alarms come at their time
            at[0] = min(end, at[0] + 20) if at[0] < quiet else end
            assert watching.wait(60)
        if step.policy == "":
            state.checkpoint("by hand")
        elif step.writes:
            with state.change() as change:
                for key, size, which in step.writes:
                    if size:
                        change.set(key, value(key, size, which))
                    else:
                        change.delete(key)
        assert watching.wait(60)
    assert watching.errors() == ()
    watching.close()
    return store


def total(costs: list[Cost]) -> int:
    return sum(one.bytes for one in costs)


@pytest.mark.spec("K116")
def test_a_proposal_saves_what_it_says() -> None:
    with live(*DEFAULTS) as store:
        optimizer = sync.checkpoints.Optimizer(store)
        measured = optimizer.costs(A)
        assert {one.policy for one in measured} == {one.id for one in DEFAULTS}
        # and it is what it cost when the agent really ran
        assert total(measured) == pytest.approx(sum(s.bytes for s in WEEK if s.policy), rel=0.2)
        best = optimizer.propose(A)[0]
    assert best.policy.id == "default-state-change"
    assert best.before == total(measured)
    assert best.saves >= 0.25 * best.before
    settings = [best.policy if one.id == best.policy.id else one for one in DEFAULTS]
    with live(*settings) as frugal:
        saved = total(measured) - total(sync.checkpoints.Optimizer(frugal).costs(A))
        assert saved == pytest.approx(best.saves, rel=0.25)


def test_the_async_face_proposes() -> None:
    async def work() -> None:
        async with holdfast.open("memory:optimized-async") as store:
            await store.agent("a").set("plan", 1)
            optimizer = holdfast.checkpoints.Optimizer(store)
            assert (await optimizer.costs(A), await optimizer.propose(A)) == ([], [])

    asyncio.run(work())


def test_costs_after_damage_tell_what_is_known(place: Place) -> None:
    store = place.open()
    often = Policy("often", (Condition("operation_count", "operation_count", "greater_than", 0),))
    state = store.agent("a")
    with sync.checkpoints.Policies(store, defaults=(often,)) as policies:
        for n in range(4):
            state.set("k", n)
            assert policies.wait(60)
    (whole,) = sync.checkpoints.Optimizer(store).costs(A)
    made = [one.sequence for one in state.checkpoints()]
    assert whole.checkpoints == len(made) == 4
    place.close()
    storage = place.storage()
    entries = rows_of(storage, b"E")
    entries = [one for one in entries if len(one[0]) == 14]
    damaged, dropped = entries[made[1] - 1], entries[made[2] - 1]
    storage.commit(Batch(drops=[damaged[0], dropped[0]]))
    storage.commit(Batch(puts=[(damaged[0], damaged[1][:-1] + bytes([damaged[1][-1] ^ 1]))]))
    found = sync.checkpoints.Optimizer(place.open()).costs(A)
    assert [(one.policy, one.checkpoints) for one in found] == [("often", 2)]
