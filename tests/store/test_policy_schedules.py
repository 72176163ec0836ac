"""Policies as schedules: their checkpoints come in time, whoever wrote, and go by their rules."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from itertools import pairwise

import pytest
from store_kit import Hands, Place

import holdfast
from holdfast import sync
from holdfast.checkpoints import Condition, Policy, PolicyFrequency, PolicyRetention, RetentionRule
from holdfast.errors import InvalidInputError, Unavailable
from holdfast.storage.wrappers import Fault, Faulty
from holdfast.store.history.handle import StoreHandle
from holdfast.store.open import open_core

A = "agent:a"
SINCE = Condition("time_interval", "time_since_last_checkpoint", "greater_than", 60_000)
MINUTE = Policy("minute", (SINCE,), frequency=PolicyFrequency(60_000))
OFF = tuple(
    Policy(f"default-{name}", (SINCE,), enabled=False) for name in ("time-based", "state-change")
)


@pytest.fixture
def hands() -> Hands:
    return Hands()


def pass_(hands: Hands, scheduler: sync.checkpoints.Scheduler, seconds: float) -> list[str]:
    """Let time pass under a scheduler; the outcomes that are more than a look."""
    found = []
    for _ in range(round(seconds / 5)):
        hands.move(5)
        found += [ran.outcome for ran in scheduler.run_due() if ran.outcome != "unmet"]
    return found


def policies_of(store: sync.Store) -> list[str]:
    return [one.metadata["policy"] for one in store.agent("a").checkpoints()]


def test_policies_whose_names_run_together_have_schedules_of_their_own(place: Place) -> None:
    store = place.open()
    policies = sync.checkpoints.Policies(store, defaults=(), watch=False)
    policies.set("agent:2", replace(MINUTE, id="x/agent:1"))
    policies.set("agent:1/agent:2", replace(MINUTE, id="x"))
    scheduler = sync.checkpoints.Scheduler(store)
    found = {(info.scope, info.policy) for info in scheduler.schedules()}
    assert found == {("agent:2", "x/agent:1"), ("agent:1/agent:2", "x")}
    policies.remove("agent:1/agent:2", "x")
    assert [info.scope for info in scheduler.schedules()] == ["agent:2"]


@pytest.mark.spec("K115", "K136")
def test_a_policy_fires_though_its_process_is_gone(place: Place, hands: Hands) -> None:
    with (
        place.open(clock=hands.clock) as gone,
        sync.checkpoints.Policies(gone, defaults=()) as policies,
    ):
        policies.set(A, MINUTE)
        gone.agent("a").set("task", {"step": 1})
    store = place.open(clock=hands.clock)
    scheduler = sync.checkpoints.Scheduler(
        store, policies=sync.checkpoints.Policies(store, defaults=(), watch=False)
    )
    (info,) = scheduler.schedules()
    assert (info.scope, info.policy) == (A, "minute")
    assert pass_(hands, scheduler, 50) == []
    assert pass_(hands, scheduler, 30) == ["saved"]
    (made,) = store.agent("a").checkpoints()
    assert (made.type, made.metadata["policy"]) == ("automatic", "minute")
    assert made.metadata["trigger"] == "time_interval"
    assert made.description == "Policy minute triggered by time_interval"
    assert set(pass_(hands, scheduler, 600)) == {"unchanged"}  # nobody writes: no other one
    scheduler.stop()
    assert store.verify().findings == []


def test_it_keeps_its_pace_and_missed_ones_are_one(place: Place, hands: Hands) -> None:
    store = place.open(clock=hands.clock)
    state = store.agent("a")
    sync.checkpoints.Policies(store, defaults=OFF, watch=False).set(A, MINUTE)
    scheduler = sync.checkpoints.Scheduler(
        store, policies=sync.checkpoints.Policies(store, defaults=OFF, watch=False)
    )
    for number in range(60):
        state.set("task", number)
        pass_(hands, scheduler, 20)
    times = [one.time.timestamp() for one in reversed(state.checkpoints())]
    assert all(60 <= later - earlier <= 70 for earlier, later in pairwise(times))
    assert len(times) >= 16
    state.set("task", "the last")
    scheduler.stop()
    hands.move(86_400)
    again = sync.checkpoints.Scheduler(place.open(clock=hands.clock))
    assert pass_(hands, again, 120).count("saved") == 1
    again.stop()


def test_of_several_processes_one_makes_it(place: Place, hands: Hands) -> None:
    stores = [place.open(clock=hands.clock) for _ in range(3)]
    watching = [sync.checkpoints.Policies(store, defaults=OFF) for store in stores]
    watching[0].set(A, MINUTE)
    schedulers = [
        sync.checkpoints.Scheduler(store, policies=policies)
        for store, policies in zip(stores, watching, strict=True)
    ]
    for number in range(4):
        stores[number % 3].agent("a").set("task", number)
        for _ in range(15):
            hands.move(5)
            for policies in watching:
                assert policies.wait(60)
            for scheduler in schedulers:
                scheduler.run_due()
    made = [one.time.timestamp() for one in reversed(stores[0].agent("a").checkpoints())]
    assert 3 <= len(made) <= 5
    assert all(later - earlier >= 60 for earlier, later in pairwise(made))
    for policies, scheduler in zip(watching, schedulers, strict=True):
        assert policies.errors() == ()
        scheduler.stop()
        policies.close()


def test_not_again_before_its_interval_whichever_process_was_first(
    place: Place, hands: Hands
) -> None:
    each = Condition("operation_count", "operation_count", "greater_than_or_equal", 1)
    watched, other = place.open(clock=hands.clock), place.open(clock=hands.clock)
    scheduler = sync.checkpoints.Scheduler(
        other, policies=sync.checkpoints.Policies(other, defaults=OFF, watch=False)
    )
    with sync.checkpoints.Policies(watched, defaults=OFF) as policies:
        policies.set(A, Policy("each", (each,), frequency=PolicyFrequency(60_000)))
        pass_(hands, scheduler, 50)
        watched.agent("a").set("task", 1)
        assert policies.wait(60)
    other.agent("a").set("task", 2)
    pass_(hands, scheduler, 120)
    scheduler.stop()
    later, first = (one.time.timestamp() for one in other.agent("a").checkpoints())
    assert 60 <= later - first <= 70


@pytest.mark.spec("K146")
def test_each_policy_has_its_trigger_once_it_is_set(place: Place, hands: Hands) -> None:
    """An event, a count of writes, a time: each makes its own checkpoint, of that agent only."""
    store = place.open(clock=hands.clock)
    state, other = store.agent("a"), store.agent("b")
    event = Condition("system_event", "system_event:low_disk", "greater_than_or_equal", 1)
    count = Condition("operation_count", "operation_count", "greater_than_or_equal", 4)
    with sync.checkpoints.Policies(store, defaults=OFF) as policies:
        seen: list[str] = []

        def new() -> list[tuple[str, str]]:
            assert policies.wait(60)
            made = [one for one in state.checkpoints() if one.id not in seen]
            seen.extend(one.id for one in made)
            return [(one.metadata["policy"], one.metadata["trigger"]) for one in made]

        for one in (state, other):
            one.set("k", 0)
            policies.report(one, "system_event", "low_disk")
        assert new() == []  # nothing listens yet
        for policy in (Policy("disk", (event,)), Policy("writes", (count,)), MINUTE):
            policies.set(A, policy)
        scheduler = sync.checkpoints.Scheduler(store, policies=policies)
        new()
        for n in range(4):
            assert new() == []
            state.set("k", n)
        assert new() == [("writes", "state_change")]
        state.set("k", 5)
        policies.report(A, "system_event", "low_disk")
        assert new() == [("disk", "system_event")]
        state.set("k", 6)
        pass_(hands, scheduler, 70)  # by the schedule, or by a timer of this process
        assert new() == [("minute", "time_interval")]
        scheduler.stop()
    assert other.checkpoints() == []


@pytest.mark.spec("K75")
def test_default_ones_are_scheduled_when_asked_for(place: Place, hands: Hands) -> None:
    store = place.open(clock=hands.clock)
    policies = sync.checkpoints.Policies(store, watch=False)
    store.agent("a").set("task", "x" * 100)
    first = store.agent("a").checkpoint("first")
    store.agent("a").set("n", 1)  # less than a tenth: time alone asks for a checkpoint
    made = policies.schedule(A)
    assert [(one.policy, one.when.seconds, one.when.jitter) for one in made] == [
        ("default-time-based", 300, 30)
    ]
    assert policies.schedule(A) == made
    scheduler = sync.checkpoints.Scheduler(store, policies=policies)
    assert pass_(hands, scheduler, 340) == ["saved"]
    scheduler.stop()
    newest, *older = store.agent("a").checkpoints()
    assert (newest.metadata["policy"], older) == ("default-time-based", [first])


def test_schedules_follow_the_policies(place: Place, hands: Hands) -> None:
    store = place.open(clock=hands.clock)
    scheduler = sync.checkpoints.Scheduler(store)
    state = store.agent("a")
    state.set("task", 1)
    before = state.checkpoint("before")

    def whens() -> list[str]:
        return [str(one.when) for one in scheduler.schedules()]

    with sync.checkpoints.Policies(store, defaults=OFF) as policies:
        policies.set(A, MINUTE)
        assert whens() == ["every 60 s"]
        policies.set(A, Policy("minute", (SINCE,), frequency=PolicyFrequency(120_000, 5_000)))
        assert whens() == ["every 120 s, jitter 5 s"]
        policies.set(A, Policy("minute", (SINCE,)))  # by events alone
        assert whens() == []
        policies.set(A, MINUTE)
        after = state.checkpoint("after")
        state.restore(before)  # which has no such policy: its schedule is left, and does nothing
        assert pass_(hands, scheduler, 70) == ["absent"]
        state.restore(after)
        assert whens() == ["every 60 s"]
        policies.set(A, Policy("minute", (SINCE,), enabled=False))
        assert whens() == []
        policies.set(A, MINUTE)
        policies.remove(A, "minute")
        assert whens() == []


def test_the_highest_priority_fires_by_schedule_too(place: Place, hands: Hands) -> None:
    store = place.open(clock=hands.clock)
    policies = sync.checkpoints.Policies(store, defaults=OFF, watch=False)
    for priority in ("low", "critical", "medium"):
        often = PolicyFrequency(60_000)
        policies.set(A, Policy(priority, (SINCE,), frequency=often, priority=priority))
    store.agent("a").set("task", 1)
    scheduler = sync.checkpoints.Scheduler(store, policies=policies)
    pass_(hands, scheduler, 90)
    scheduler.stop()
    assert policies_of(store) == ["critical"]


def test_an_erased_agent_and_a_removed_schedule(place: Place, hands: Hands) -> None:
    store = place.open(clock=hands.clock)
    policies = sync.checkpoints.Policies(store, defaults=OFF, watch=False)
    policies.set(A, MINUTE)
    scheduler = sync.checkpoints.Scheduler(store)
    if place.sealed:
        store.erase(A)
        assert pass_(hands, scheduler, 180) == ["absent"] * 3
    (info,) = scheduler.schedules()
    scheduler.remove(info.name)
    assert scheduler.schedules() == []
    scheduler.stop()


@pytest.mark.parametrize("nth", range(1, 9))
def test_storage_that_fails_while_a_policy_is_set(place: Place, hands: Hands, nth: int) -> None:
    """Set or not; set again it has its schedule, and what is left is whole."""
    faulty = Faulty(place.storage())
    core = open_core(place.url, storage=faulty, **place.options(clock=hands.clock))
    store = sync.Store(StoreHandle(core))
    store.agent("a").set("task", 1)
    policies = sync.checkpoints.Policies(store, defaults=OFF, watch=False)
    faulty.plan = (Fault("*", faulty.calls["*"] + nth),)
    with suppress(Unavailable):
        policies.set(A, MINUTE)
    scheduler = sync.checkpoints.Scheduler(store, policies=policies)
    if scheduler.schedules():
        assert policies.get(A, "minute") == MINUTE
    policies.set(A, MINUTE)
    assert [one.policy for one in scheduler.schedules()] == ["minute"]
    assert pass_(hands, scheduler, 70) == ["saved"]
    scheduler.stop()
    assert store.verify().findings == []
    store.close()


# retention


def test_retention_by_schedule(place: Place, hands: Hands) -> None:
    """Checkpoints of a policy go by its retention, in whatever process has the scheduler."""
    store = place.open(clock=hands.clock)
    state = store.agent("a")
    policies = sync.checkpoints.Policies(store, defaults=OFF, watch=False)
    policies.set(
        A, Policy("minute", (SINCE,), "", PolicyFrequency(60_000), PolicyRetention(max_count=3))
    )
    scheduler = sync.checkpoints.Scheduler(store, policies=policies)
    info = scheduler.every(600, A, retention=True)
    assert (info.name, info.scope, info.retention) == (f"retention/{A}", A, True)
    for number in range(20):
        state.set("task", number)
        pass_(hands, scheduler, 60)
    scheduler.stop()
    assert 3 <= len(state.checkpoints()) <= 13
    assert all(one.runs for one in scheduler.schedules())
    assert store.verify().findings == []
    with pytest.raises(InvalidInputError, match="retention is of a scope"):
        scheduler.every(60, state.fork("trial"), retention=True)


def test_what_has_to_be_confirmed_stays(place: Place, hands: Hands) -> None:
    store = place.open(clock=hands.clock)
    state = store.agent("a")
    for number in range(4):
        state.set("task", number)
        state.checkpoint(str(number))
    hands.move(7200)
    state.set("task", "since")
    rules = {"manual": RetentionRule(max_age=timedelta(hours=1))}
    scheduler = sync.checkpoints.Scheduler(store, rules=rules)
    scheduler.every(60, A, retention=True)
    scheduler.every(60, "agent:nobody", retention=True)
    hands.move(61)
    outcomes = {ran.schedule: ran.outcome for ran in scheduler.run_due()}
    assert outcomes == {f"retention/{A}": "failed", "retention/agent:nobody": "done"}
    assert {one.failed for one in scheduler.schedules()} == {None, "NotConfirmedError"}
    assert len(state.checkpoints()) == 4
    scheduler.stop()


def test_the_async_face(place: Place, hands: Hands) -> None:
    async def work() -> None:
        options = place.options(clock=hands.clock)
        async with (
            holdfast.open(place.url, **options) as store,
            holdfast.checkpoints.Policies(store, defaults=OFF) as policies,
        ):
            await policies.set(A, MINUTE)
            (info,) = await policies.schedule(A)
            scheduler = holdfast.checkpoints.Scheduler(store, policies=policies)
            await scheduler.every(60, A, retention=True)
            assert {one.policy for one in await scheduler.schedules()} == {"minute", None}
            with pytest.raises(InvalidInputError, match=r"holdfast\.checkpoints\.Policies"):
                holdfast.checkpoints.Scheduler(store, policies=3)  # type: ignore[arg-type]
            await scheduler.remove(info.name)

    asyncio.run(work())
