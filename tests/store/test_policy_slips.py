"""What is given to policies, rules, the optimizer and groups and cannot be meant is told, whole."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

import holdfast
from holdfast import sync
from holdfast.checkpoints import Condition, Policy, PolicySetting
from holdfast.errors import InvalidInputError, PolicyValidationError, ScopeNotFoundError

A = "agent:a"
OFTEN: Any = (Condition("operation_count", "operation_count", "greater_than", 3),)
STAR: Any = "default-state-change"


@pytest.fixture
def open_store() -> sync.Store:
    store = sync.open("memory:")
    store.agent("a").set("k", 1)
    return store


@pytest.mark.parametrize(
    ("made", "told"),
    [
        (lambda no: Policy("p", OFTEN, frequency=no), "frequency is PolicyFrequency"),
        (lambda no: Policy("p", OFTEN, retention=no), "retention is PolicyRetention"),
        (lambda no: Policy("p", no), "conditions is a list"),
        (lambda no: Policy("p", (no,)), r"made with Condition\(\.\.\.\)"),
        (lambda _: Policy("p", OFTEN, compression="lz4"), "PolicySetting"),  # type: ignore[arg-type]
        (lambda _: Policy("p", OFTEN, compression=PolicySetting("no", "lz4")), "True or False"),  # type: ignore[arg-type]
    ],
)
def test_parts_of_a_policy(
    open_store: sync.Store, made: Callable[[Any], Policy], told: str
) -> None:
    with pytest.raises(PolicyValidationError, match=told):
        sync.checkpoints.Policies(open_store, watch=False).set(A, made(None))
    with pytest.raises(PolicyValidationError, match=told):
        sync.checkpoints.Policies(open_store, watch=False, defaults=[made(None)])


def test_all_that_is_wrong_is_listed_at_once(open_store: sync.Store) -> None:
    """Also what is wrong with the form of a configuration and with what it says."""
    policies = sync.checkpoints.Policies(open_store, watch=False)
    wrong = {
        "id": "p",
        "conditions": [{"type": "x"}],
        "speed": 1,
        "priority": "zz",
        "frequency": {"interval": -1},
    }
    with pytest.raises(PolicyValidationError) as caught:
        policies.set(A, wrong)
    for told in ("'speed'", "'metric'", "priority 'zz'", "interval is from 0"):
        assert told in str(caught.value)
    with pytest.raises(PolicyValidationError) as caught:
        policies.set(A, Policy("p", (5,), priority="zz"))  # type: ignore[arg-type]
    assert len(caught.value.problems) == 2
    assert policies.get(A, "p") is None


def test_rules(open_store: sync.Store) -> None:
    for wrong in ([1], 5, {"manual": 1}, {5: 1}, "manual"):
        for made in (sync.checkpoints.Retention, sync.checkpoints.Scheduler):
            with pytest.raises(InvalidInputError, match="by the type of checkpoints"):
                made(open_store, rules=wrong)  # type: ignore[arg-type]


def test_the_optimizer(open_store: sync.Store) -> None:
    optimizer = sync.checkpoints.Optimizer(open_store)
    for ask in (optimizer.costs, optimizer.propose):
        with pytest.raises(ScopeNotFoundError, match="agent:none"):
            ask("agent:none")


def test_groups(open_store: sync.Store) -> None:
    groups = sync.checkpoints.CheckpointGroups(open_store)
    state = open_store.agent("a")
    for wrong in (state, A, 5, None, [5]):
        with pytest.raises(InvalidInputError):
            groups.create(wrong)  # type: ignore[arg-type]
    for missing in ("agent:misspelt", open_store.agent("misspelt")):
        with pytest.raises(ScopeNotFoundError, match="agent:misspelt"):
            groups.create([state, missing])
    assert [str(one.scope) for one in open_store.scopes().items] == [A]
    assert state.checkpoints() == []
    with pytest.raises(InvalidInputError, match="checkpoint of it"):
        groups.of("main@1")  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match="`create` and `of`"):
        groups.restore("main@1")  # type: ignore[arg-type]


def test_groups_async() -> None:
    async def main() -> None:
        async with holdfast.open("memory:") as store:
            state = store.agent("a")
            await state.set("k", 1)
            groups = holdfast.checkpoints.CheckpointGroups(store)
            with pytest.raises(InvalidInputError, match="takes several"):
                await groups.create(state)  # type: ignore[arg-type]
            with pytest.raises(ScopeNotFoundError):
                await groups.create([state, "agent:misspelt"])

    asyncio.run(main())


def test_what_policies_are_made_from(open_store: sync.Store) -> None:
    for store in (5, "memory:", None):
        with pytest.raises(InvalidInputError, match="an open store"):
            sync.checkpoints.Policies(store)
        with pytest.raises(InvalidInputError, match="an open store"):
            holdfast.checkpoints.Policies(store)
    for metrics in ("ab", 5, [7]):
        with pytest.raises(InvalidInputError, match="metric"):
            sync.checkpoints.Policies(open_store, metrics=metrics)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("event", "told"),
    [
        ("asked", r"holdfast\.checkpoints\.PolicyEvent"),
        (holdfast.checkpoints.PolicyEvent("party"), "the type of an event"),
        (holdfast.checkpoints.PolicyEvent(["asked"]), "the type of an event"),  # type: ignore[arg-type]
        (holdfast.checkpoints.PolicyEvent("asked", 5), "the name of an event"),  # type: ignore[arg-type]
        (holdfast.checkpoints.PolicyEvent("asked", "", 5), "finite numbers"),  # type: ignore[arg-type]
        (holdfast.checkpoints.PolicyEvent("asked", "", {"error_rate": "high"}), "finite numbers"),  # type: ignore[dict-item]
        (
            holdfast.checkpoints.PolicyEvent("asked", "", {"error_rate": float("nan")}),
            "finite numbers",
        ),
    ],
)
def test_events(open_store: sync.Store, event: Any, told: str) -> None:
    policies = sync.checkpoints.Policies(open_store, watch=False)
    with pytest.raises(InvalidInputError, match=told):
        policies.evaluate(A, event)
    policies.evaluate(A, holdfast.checkpoints.PolicyEvent("system_event", "x", {"error_rate": 0.5}))


def test_only_the_main_timeline_is_watched(open_store: sync.Store) -> None:
    """Nothing is written to main, nor told of it, for who gives a fork."""
    fork = open_store.agent("a").fork("side")
    policies, before = (
        sync.checkpoints.Policies(open_store, watch=False),
        open_store.agent("a").log(limit=1),
    )
    for ask in (
        lambda: policies.set(fork, Policy("p", OFTEN)),
        lambda: policies.list(fork),
        lambda: policies.get(fork, "p"),
        lambda: policies.evaluate(fork),
        lambda: policies.explain(fork),
        lambda: policies.report(fork, "error"),
        lambda: sync.checkpoints.Optimizer(open_store).costs(fork),
    ):
        with pytest.raises(InvalidInputError, match="only the timeline main is watched"):
            ask()
    assert open_store.agent("a").log(limit=1) == before


def test_closed_policies_are_told_nothing(open_store: sync.Store) -> None:
    policies = sync.checkpoints.Policies(open_store, metrics=["m"])
    policies.close()
    for tell in (
        lambda: policies.report(A, "error"),
        lambda: policies.record(A, "m", 1),
    ):
        with pytest.raises(InvalidInputError, match="are closed"):
            tell()
    assert policies.list(A)


def test_an_id_is_one_however_its_accents_are_written(open_store: sync.Store) -> None:
    """Everything goes by the id as its key has it: schedules, retention, what is its own."""
    apart, whole = "cafe\u0301", "caf\u00e9"
    seldom = holdfast.checkpoints.PolicyFrequency(1_000_000)
    reported = (Condition("user_action", "user_action", "greater_than", 0),)
    with sync.checkpoints.Policies(open_store, defaults=()) as policies:
        policies.set(A, Policy(apart, reported, frequency=seldom))
        policies.set(
            A, Policy(whole, reported, retention=holdfast.checkpoints.PolicyRetention(max_count=1))
        )
        assert [one.id for one in policies.list(A)] == [whole]
        assert policies.get(A, apart) == policies.get(A, whole) is not None
        assert [(one.policy.id, one.source) for one in policies.explain(A)] == [(whole, "own")]
        for number in range(3):
            open_store.agent("a").set("k", number)
            policies.report(A, "user_action", "x")
            assert policies.wait(60)
        open_store.agent("a").set("k", "end")
        made = open_store.agent("a").checkpoints()
        assert list(sync.checkpoints.Retention(open_store).plan(A).removed) == made[1:]
        policies.set(A, Policy(apart, reported, frequency=seldom))
        assert len(sync.checkpoints.Scheduler(open_store).schedules()) == 1
        policies.remove(A, apart)
        assert (policies.list(A), sync.checkpoints.Scheduler(open_store).schedules()) == ([], [])
