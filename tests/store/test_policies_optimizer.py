"""The optimizer: what it predicts is what comes of it, on the recorded week of an agent.

The agent ran in a store and was recorded by the feature itself (`week_of_an_agent.py`). Its words
are made up, and the prediction shares the tracker with what is measured: this shows that recording
and replay are faithful, not how agents behave.
"""

from __future__ import annotations

import asyncio
import itertools
import math
from pathlib import Path
from typing import Any

import pytest
from store_kit import Place, rows_of
from week_of_an_agent import recorded

import holdfast
from holdfast import Clock, sync
from holdfast.checkpoints import Condition, Policy, PolicyFrequency, PolicyRecording, PolicySetting
from holdfast.checkpoints.policy.optimizer import Cost
from holdfast.checkpoints.policy.policy import CIPHER, DEFAULTS
from holdfast.errors import DamagedRecordError, HoldfastError, InvalidInputError
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
    start = WEEK.steps[0].time
    at = [0.0]
    clock = Clock(lambda: start + at[0], lambda: at[0])
    store = sync.open(f"memory:week-{next(_numbers)}", clock=clock)
    watching = sync.checkpoints.Policies(store, defaults=policies if watch else ())
    state = store.agent("a")
    for step in WEEK.steps:
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
def test_a_predicted_week_is_what_it_costs_and_a_proposal_saves_what_it_says() -> None:
    with live(*DEFAULTS) as busy:
        optimizer = sync.checkpoints.Optimizer(busy)
        predicted, measured = optimizer.predict(WEEK), optimizer.costs(A)
        assert {one.policy for one in measured} == {one.id for one in DEFAULTS}
        assert total(predicted) == pytest.approx(total(measured), rel=0.2)
        # and both are what it cost when the agent really ran
        assert total(predicted) == pytest.approx(total(optimizer.costs(WEEK)), rel=0.2)
        for one in measured:
            same = next(other for other in predicted if other.policy == one.policy)
            assert same.checkpoints == pytest.approx(one.checkpoints, rel=0.2)
        proposals = optimizer.propose(WEEK)
    assert "default-state-change" in {one.policy.id for one in proposals}
    for best in proposals:
        settings = [best.policy if one.id == best.policy.id else one for one in DEFAULTS]
        with live(*settings) as frugal:
            saved = total(measured) - total(sync.checkpoints.Optimizer(frugal).costs(A))
            assert saved == pytest.approx(best.saves, rel=0.2)


def test_a_recording_of_the_same_week_is_the_same() -> None:
    """Times, keys and sizes, and nothing of the values."""
    with live(watch=False) as store:
        again = sync.checkpoints.Optimizer(store).record(A)
    done = [step for step in again.steps if step.writes]
    wanted = [step for step in WEEK.steps if step.writes]
    for a, b in zip(done, wanted, strict=True):
        assert abs(a.time - b.time) < 0.001
        for (key, size, _), (other, wanted_size, _) in zip(a.writes, b.writes, strict=True):
            assert key == other
            assert size == pytest.approx(wanted_size, abs=64)  # long texts are cut elsewhere
    assert PolicyRecording.of(again.data()) == again


def test_what_a_recording_says() -> None:
    with sync.open("memory:recorded") as store:
        state = store.agent("a")
        state.set("plan", "the secret")
        state.set("plan", "another")
        before = state.checkpoint("c")
        state.set("plan", "the secret")  # again
        state.append("list", 1)
        state.delete("plan")
        state.restore(before)
        found = sync.checkpoints.Optimizer(store).record(state)
        assert "secret" not in str(found.data())
        assert [[(key, which) for key, _, which in step.writes] for step in found.steps] == [
            [("plan", 1)],
            [("plan", 2)],
            [],
            [("plan", 1)],
            [("list", 1)],
            [("plan", 0)],
            [],  # the backup
            [("list", 0), ("plan", 2)],
        ]
        assert [step.policy for step in found.steps][2] == ""
        state.prune(state.log(limit=1)[0].sequence)
        pruned = sync.checkpoints.Optimizer(store).record(state)
        assert [key for key, _, _ in pruned.steps[0].writes] == ["plan"]
    wrong = {**found.data(), "steps": [[5, [], None, 0], [4, [], None, 0]]}
    for data in ({}, {"format": "other"}, wrong, {**wrong, "steps": [["x"]]}):
        with pytest.raises(InvalidInputError):
            PolicyRecording.of(data)


def test_the_async_face_records() -> None:
    async def work() -> None:
        async with holdfast.open("memory:recorded-async") as store:
            await store.agent("a").set("plan", 1)
            optimizer = holdfast.checkpoints.Optimizer(store)
            found = await optimizer.record(A)
            assert [step.writes[0][0] for step in found.steps] == ["plan"]
            assert await optimizer.predict(found) == await optimizer.predict(A)

    asyncio.run(work())


def test_intervals_adapt_within_bounds() -> None:
    often = Policy(
        "often",
        (Condition("operation_count", "operation_count", "greater_than_or_equal", 2),),
        frequency=PolicyFrequency(30_000),
    )
    with live(often) as store:
        optimizer = sync.checkpoints.Optimizer(store, defaults=(often,))
        with pytest.raises(InvalidInputError, match="which are often"):
            optimizer.propose(A, {"other": (1, 2)})
        done = optimizer.adapt(A, {"often": (60_000, 120_000)})
        assert [one.policy.id for one in done] == ["often"]
        interval = sync.checkpoints.Policies(store, watch=False).get(A, "often").frequency.interval
        assert 60_000 <= interval <= 120_000
        assert interval == done[0].policy.frequency.interval
        assert optimizer.adapt(A, {"often": (interval, interval)}) == []
        with pytest.raises(InvalidInputError, match="the shorter first"):
            optimizer.propose(A, {"often": (5, 1)})


def busy(tmp_path: Path, *policies: Policy) -> sync.Store:
    """An encrypted store whose agent wrote every 20 seconds, under no policy but these."""
    now = [1_800_000_000.0]
    clock = Clock(lambda: now[0], lambda: now[0])
    store = sync.open("memory:", clock=clock, key=f"file:{tmp_path / 'key'}")
    for n in range(200):
        now[0] += 20
        store.agent("a").set("k", n)
    with sync.checkpoints.Policies(store, defaults=(), watch=False) as setting:
        for policy in policies:
            setting.set(A, policy)
    return store


EACH = Policy(
    "each",
    (Condition("operation_count", "operation_count", "greater_than_or_equal", 1),),
    frequency=PolicyFrequency(60_000),
    encryption=PolicySetting(True, CIPHER),
)


@pytest.mark.parametrize(
    ("bounds", "interval"),
    [
        ((61_000, 119_000), 119_000),
        ((100_000, 119_000), 100_000),
        ((60_000, 90_000), 90_000),
        ((60_000, 120_000), 120_000),
        ((1_000, 60_000), None),
        ((1_000, 30_000), None),
    ],
)
def test_bounds_may_be_narrow(
    tmp_path: Path, bounds: tuple[float, float], interval: float | None
) -> None:
    with busy(tmp_path, EACH) as store:
        found = sync.checkpoints.Optimizer(store, defaults=()).propose(A, {"each": bounds})
        told = [] if interval is None else [interval]
        assert [one.policy.frequency.interval for one in found] == told


@pytest.mark.parametrize("own", [False, True])
def test_adapting_demands_no_encryption_that_was_not_demanded(tmp_path: Path, own: bool) -> None:
    """A default policy says that it is encrypted, and lets exports be plain all the same."""
    with busy(tmp_path, *[EACH] * own) as store:
        optimizer = sync.checkpoints.Optimizer(store, defaults=() if own else (EACH,))
        (done,) = optimizer.adapt(A, {"each": (100_000, 200_000)})
        with sync.checkpoints.Policies(store, defaults=()) as policies:
            assert policies.get(A, "each") == done.policy
            assert done.policy.demands_encryption == own
            store.agent("a").set("k", "one more")
            assert policies.wait(60)
        (made, *_) = store.agent("a").checkpoints()
        assert made.metadata["policy"] == "each"
        assert made.metadata.get("encryption") == ("AES-256-GCM" if own else None)


def test_costs_after_damage_tell_what_is_known_and_name_what_is_not(place: Place) -> None:
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
    store = place.open()
    found = sync.checkpoints.Optimizer(store).costs(A)
    assert [(one.policy, one.checkpoints) for one in found] == [("often", 2)]
    assert [one.partition(":")[0] for one in found.unread] == [
        f"entries {made[2]} to {made[2]}",
        f"entry {made[1]}",
    ]
    with pytest.raises(DamagedRecordError, match="prune the history up to behind it"):
        sync.checkpoints.Optimizer(store).predict(A)  # what happened has to be known for that


def burst(found: PolicyRecording, lag: float) -> PolicyRecording:
    """Turns of twenty writes each, one in 5 ms; a checkpoint `lag` behind the first, and so on."""
    steps: list[Any] = []
    for turn in range(30):
        start, coming = 60.0 * turn, math.inf
        for n in range(20):
            now = start + n * 0.005
            if now >= coming:
                steps.append([coming, [], "default-state-change", 450])
                coming = math.inf
            steps.append([now, [[f"part/{n}", 200, turn + 1]], None, 300])
            coming = min(coming, now + lag)
        steps.append([coming, [], "default-state-change", 450])
    return PolicyRecording.of({**found.data(), "steps": steps})


@pytest.mark.parametrize("lag", [0.02, 0.05, 0.2])
def test_what_is_written_in_a_burst_shares_a_checkpoint(lag: float) -> None:
    with sync.open("memory:") as store:
        store.agent("a").set("x", 1)
        optimizer = sync.checkpoints.Optimizer(store)
        bursts = burst(optimizer.record("agent:a"), lag)
        measured = sum(1 for step in bursts.steps if step.policy)
        (predicted,) = optimizer.predict(bursts)
        assert predicted.checkpoints == pytest.approx(measured, rel=0.2)


@pytest.mark.parametrize(
    "policies",
    [
        None,
        5,
        [{"id": "p", "conditions": [{"threshold": []}]}],
        [
            {
                "id": "p",
                "conditions": [
                    {
                        "type": "operation_count",
                        "metric": "operation_count",
                        "operator": "greater_than",
                        "threshold": 1,
                    }
                ],
                "frequency": {"interval": {}},
            }
        ],
    ],
)
def test_a_recording_with_wrong_policies_is_refused(policies: Any) -> None:
    with sync.open("memory:") as store:
        store.agent("a").set("x", 1)
        data = sync.checkpoints.Optimizer(store).record("agent:a").data()
        with pytest.raises(HoldfastError):
            PolicyRecording.of({**data, "policies": policies})
