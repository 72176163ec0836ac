"""Policies: what is set, what fires, and what is said of it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from store_kit import Place

import holdfast
from holdfast import sync
from holdfast.checkpoints import Condition, Policy, PolicyFrequency, PolicyRetention, PolicySetting
from holdfast.checkpoints.policy.policy import DEFAULTS
from holdfast.errors import InvalidInputError, MissingError, PolicyValidationError, Unavailable

A = "agent:a"


class Hands:
    """A clock that goes when it is told to."""

    def __init__(self) -> None:
        self.at = 1000.0

    def __call__(self) -> float:
        return self.at

    def clock(self) -> holdfast.Clock:
        return holdfast.Clock(lambda: 1_700_000_000 + self.at, self)


@pytest.fixture
def hands() -> Hands:
    return Hands()


@pytest.fixture
def watched(place: Place, hands: Hands) -> Iterator[tuple[sync.Store, sync.checkpoints.Policies]]:
    """A store with the default policies at work, and a clock to move."""
    store = place.open(clock=hands.clock())
    with sync.checkpoints.Policies(store) as policies:
        yield store, policies


def alone(store: sync.Store, *policies: Policy, **more: Any) -> sync.checkpoints.Policies:
    """These policies for every agent, and no others."""
    return sync.checkpoints.Policies(store, defaults=policies, **more)


def when(type: str, metric: str, operator: str, threshold: float, **more: Any) -> Condition:
    return Condition(type, metric, operator, threshold, **more)


def count(operator: str, threshold: float, **more: Any) -> Condition:
    return when("operation_count", "operation_count", operator, threshold, **more)


def made(store: sync.Store, policies: sync.checkpoints.Policies, agent: str = "a") -> int:
    assert policies.wait(60)
    assert policies.errors() == ()
    return len(store.agent(agent).checkpoints())


# the default ones


@pytest.mark.spec("K160", "K161", "K162", "K163")
def test_default_time_based_policy() -> None:
    policy = DEFAULTS[0]
    assert (policy.id, policy.name) == ("default-time-based", "Time-based Checkpoint")
    assert policy.conditions == (
        when("time_interval", "time_since_last_checkpoint", "greater_than", 300_000),
    )
    assert policy.frequency == PolicyFrequency(300_000, 30_000)
    assert policy.retention == PolicyRetention(86_400_000, 100)
    assert policy.compression == PolicySetting(True, "lz4")
    assert policy.encryption == PolicySetting(True, "AES-256-GCM")
    assert policy.priority == "medium"


@pytest.mark.spec("K164", "K165", "K166", "K167")
def test_default_state_change_policy() -> None:
    policy = DEFAULTS[1]
    assert (policy.id, policy.name) == ("default-state-change", "State Change Checkpoint")
    assert policy.conditions == (when("state_change", "state_change_ratio", "greater_than", 0.1),)
    assert policy.frequency == PolicyFrequency(0, 0)
    assert policy.retention == PolicyRetention(604_800_000, 50)
    assert policy.compression == PolicySetting(True, "lz4")
    assert policy.encryption == PolicySetting(True, "AES-256-GCM")
    assert policy.priority == "high"


# an agent's own


@pytest.mark.spec("K144", "K145")
def test_own_policies_stand_over_the_defaults(place: Place) -> None:
    store = place.open()
    policies = sync.checkpoints.Policies(store, watch=False)
    own = Policy("default-state-change", (count("greater_than", 5),), priority="critical")
    more = Policy("more", (count("equals", 3),), "Three", priority="low")
    policies.set(A, own)
    policies.set(store.agent("a"), more)
    again = sync.checkpoints.Policies(place.reopen(), watch=False)
    assert [one.id for one in again.list(A)] == [
        "default-state-change",
        "default-time-based",
        "more",
    ]
    assert again.get(A, "default-state-change") == own
    assert again.get(A, "more") == more
    assert again.list("agent:b") == sync.checkpoints.Policies(place.open(), watch=False).list(
        "agent:c"
    )
    assert {one.id for one in again.list("agent:b")} == {one.id for one in DEFAULTS}
    again.remove(A, "default-state-change")
    assert again.get(A, "default-state-change") == DEFAULTS[1]
    with pytest.raises(MissingError, match="enabled=False"):
        again.remove(A, "default-state-change")
    with pytest.raises(MissingError, match="no policy 'other'"):
        again.remove(A, "other")
    assert again.get(A, "other") is None


def test_policies_are_state_of_the_agent(place: Place) -> None:
    store = place.open()
    state = store.agent("a")
    policies = sync.checkpoints.Policies(store, watch=False)
    state.set("k", 1)
    before = state.checkpoint("before")
    policies.set(A, Policy("mine", (count("greater_than", 5),)))
    assert policies.get(A, "mine") is not None
    assert state.keys() == ["k"]
    state.restore(before)
    assert policies.get(A, "mine") is None
    assert store.verify().findings == []


@pytest.mark.spec("K117", "K143")
def test_everything_that_is_wrong_is_listed(place: Place) -> None:
    store = place.open()
    policies = sync.checkpoints.Policies(store, watch=False)
    bad = Policy(
        "bad",
        (
            Condition("state_change", "mood", "greater_than", 1),
            Condition("moon_phase", "x", "about", float("nan")),
            Condition("memory_usage", "memory_usage", "equals", 1, 5),
        ),
        frequency=PolicyFrequency(-1),
        retention=PolicyRetention(0, 0),
        encryption=PolicySetting(True, "ROT13"),
        priority="urgent",
    )
    with pytest.raises(PolicyValidationError) as caught:
        policies.set(A, bad)
    problems = caught.value.problems
    assert str(caught.value).startswith("Invalid checkpoint policies: ")
    for part in (
        "condition 1: unknown metric 'mood'",
        "condition 2: unknown type 'moon_phase'",
        "condition 2: unknown operator 'about'",
        "condition 2: the threshold is a finite number",
        "condition 3: a time window is for",
        "the interval is from 0 ms",
        "max_age is more than 0 ms",
        "max_count is a whole number",
        "encryption is AES-256-GCM",
        "unknown priority 'urgent'",
    ):
        assert [one for one in problems if part in one], part
    assert any("this store is plain" in one for one in problems) is not place.sealed
    with pytest.raises(PolicyValidationError, match="it has no conditions"):
        policies.set(A, Policy("none", ()))
    since = ("time_interval", "time_since_last_checkpoint", "greater_than", "5x")
    with pytest.raises(PolicyValidationError, match=r'of milliseconds; .* a text like "30s"'):
        policies.set(A, Policy("late", (Condition(*since),)))  # type: ignore[arg-type]
    with pytest.raises(PolicyValidationError) as caught:
        policies.set(A, {"id": "x", "conditions": [{"type": "x"}], "retantion": {}})
    assert len(caught.value.problems) == 4
    with pytest.raises(InvalidInputError, match="is no agent"):
        policies.set("session:a", DEFAULTS[0])
    assert store.scopes().items == []


# firing


@pytest.mark.spec("K148", "K149", "K152", "K169")
def test_a_change_of_a_tenth_makes_a_checkpoint_that_says_why(
    watched: tuple[sync.Store, sync.checkpoints.Policies],
) -> None:
    store, policies = watched
    state = store.agent("a")
    with state.change() as change:
        for number in range(20):
            change.set(f"k{number:02}", "x" * 100)
    assert made(store, policies) == 1  # there was none: the ratio is 1.0
    state.set("k00", "y" * 100)
    state.set("k00", "z" * 100)  # each key counts once
    state.set("k01", "x" * 100)  # it is what it was
    assert made(store, policies) == 1
    state.set("k01", "y" * 100)
    result = policies.evaluate(A)
    assert (result.triggered, result.policies) == (False, ())
    assert (result.reason, result.event.type) == ("No policies triggered", "asked")
    assert made(store, policies) == 1  # two of twenty are a tenth, and no more
    state.delete("k02")
    assert made(store, policies) == 2
    newest = state.checkpoints()[0]
    reason = "Policy State Change Checkpoint triggered by state_change"
    assert (newest.type, newest.description) == ("automatic", reason)
    assert newest.tags == ("policy:default-state-change",)
    assert newest.metadata["policy"] == "default-state-change"
    assert newest.metadata["trigger"] == "state_change"
    assert newest.metadata["retention"] == {"max_age": 604_800, "max_count": 50}
    assert newest.metadata["readings"][0]["value"] == pytest.approx(0.15)
    assert newest.cause.actor == "holdfast.policies"
    scope, last = policies.fired()[-1]
    assert (str(scope), last.triggered, last.reason) == (A, True, reason)
    assert [one.id for one in last.policies] == ["default-state-change"]
    assert store.verify().findings == []


@pytest.mark.spec("K168")
def test_time_alone_makes_a_checkpoint_of_what_was_written(
    watched: tuple[sync.Store, sync.checkpoints.Policies], hands: Hands
) -> None:
    store, policies = watched
    state = store.agent("a")
    state.set("k", "x" * 1000)
    assert made(store, policies) == 1
    hands.at += 1000
    assert made(store, policies) == 1  # nothing was written since
    state.set("t", 1)
    assert made(store, policies) == 1
    hands.at += 30  # whatever its share of the jitter is
    assert made(store, policies) == 2
    newest = state.checkpoints()[0]
    assert newest.metadata["policy"] == "default-time-based"
    assert newest.description == "Policy Time-based Checkpoint triggered by time_interval"
    state.set("t", 2)
    hands.at += 299
    assert made(store, policies) == 2
    hands.at += 2  # from now on it waits for its share
    assert policies.wait(60)
    hands.at += 30
    assert made(store, policies) == 3


@pytest.mark.spec("K150")
def test_of_several_the_highest_priority_fires_alone(place: Place) -> None:
    store = place.open()
    two = count("greater_than_or_equal", 2)
    ranks = ("medium", "critical", "low", "high")
    with alone(store, *(Policy(f"p-{rank}", (two,), priority=rank) for rank in ranks)) as policies:
        state = store.agent("a")
        state.set("k", 1)
        assert made(store, policies) == 0
        state.set("k", 2)
        assert made(store, policies) == 1
        assert state.checkpoints()[0].metadata["policy"] == "p-critical"
        assert [len(result.policies) for _, result in policies.fired()] == [1]


@pytest.mark.spec("K151", "K122")
def test_all_conditions_must_be_met(place: Place, hands: Hands) -> None:
    store = place.open(clock=hands.clock())
    late = when("time_interval", "time_since_last_checkpoint", "greater_than", 60_000)
    with alone(store, Policy("p", (count("greater_than", 2), late))) as policies:
        state = store.agent("a")
        for number in range(10):
            state.set("k", number)
        assert made(store, policies) == 0
        hands.at += 61
        assert made(store, policies) == 1
        hands.at += 61
        state.set("k", 1)
        assert made(store, policies) == 1
        state.set("k", 2)
        state.set("k", 3)
        assert made(store, policies) == 2


def test_setting_a_policy_is_nothing_to_keep(plain: Place, hands: Hands) -> None:
    """No checkpoint comes of it alone, also if another process looks at the agent anew."""
    store = plain.open(clock=hands.clock())
    late = when("time_interval", "time_since_last_checkpoint", "greater_than", 60_000)
    state = store.agent("a")
    for _ in range(2):
        with alone(store, Policy("late", (late,))) as policies:
            state.set("k", 1)
            assert policies.wait(60)
            state.checkpoint("then")
            before = made(store, policies)
            policies.set(A, Policy("other", (count("greater_than", 1000),)))
            hands.at += 61
            assert made(store, policies) == before
            assert not policies.evaluate(A).triggered
            with state.change() as change:
                change.set("k", 2)
            assert made(store, policies) == before + 1
            policies.remove(A, "other")
            hands.at += 61
            assert made(store, policies) == before + 1


@pytest.mark.spec("K153", "K154", "K155", "K156", "K157")
@pytest.mark.parametrize(
    ("operator", "fires"),
    [
        ("greater_than", [4, 5]),
        ("greater_than_or_equal", [3, 4, 5]),
        ("equals", [3, 4, 5]),  # of a count that is past it: it was equal before
        ("less_than", [1, 2]),
        ("less_than_or_equal", [1, 2, 3]),
        ("about", []),
    ],
)
def test_each_operator(plain: Place, operator: str, fires: list[int]) -> None:
    condition = count(operator, 3)
    assert [n for n in range(1, 6) if condition.holds(n)] == fires
    exactly = when("custom", "mine", operator, 3)
    assert (operator != "equals") or [n for n in range(1, 6) if exactly.holds(n)] == [3]
    if operator == "about":
        return
    store = plain.open()
    with alone(store, Policy("p", (condition,))) as policies:
        state = store.agent("a")
        for number in range(1, 6):
            state.set("k", number)
            assert made(store, policies) == (1 if number >= fires[0] else 0) or number > fires[0]
        first = state.checkpoints()[-1]
        assert first.sequence == fires[0] + 1


@pytest.mark.spec("K158")
def test_an_operator_that_is_not_known_is_never_met(plain: Place) -> None:
    assert not Condition("operation_count", "operation_count", "about", 0).holds(1)
    store = plain.open()
    policies = sync.checkpoints.Policies(store, watch=False)
    state = store.agent("a")
    policies.set(A, Policy("p", (count("less_than_or_equal", 9),)))
    handle = state._handle  # as a newer version may have written it
    data = {**policies.list(A)[-1].data(), "id": "p"}
    data["conditions"][0]["operator"] = "about"
    change, _ = handle._plan([holdfast.Operation("set", "$policy/p", data)], lambda _: None)
    handle.core.run(change)
    found = {one.policy.id: one for one in policies.explain(A)}["p"]
    assert not found.fires
    assert "'about' is not known" in found.why


def test_one_agents_policies_never_touch_anothers(place: Place) -> None:
    store = place.open()
    with alone(store) as policies:
        policies.set("agent:a", Policy("p", (count("equals", 1),)))
        for name in ("b", "a1", "aa"):
            for number in range(20):
                store.agent(name).set("k", number)
            store.session(name).set("k", 1)
        store.session("a").set("k", 1)
        store.agent("b").checkpoint("mine")
        assert [made(store, policies, name) for name in ("a1", "aa", "b")] == [0, 0, 1]
        store.agent("a").checkpoint("reset")
        store.agent("a").set("k", 1)
        assert made(store, policies, "a") >= 2
        assert {str(scope) for scope, _ in policies.fired()} == {"agent:a"}


@pytest.mark.spec("K123")
def test_a_policy_that_stays_met_waits_for_its_interval(plain: Place, hands: Hands) -> None:
    store = plain.open(clock=hands.clock())
    big = when("memory_usage", "memory_usage", "greater_than", 1000)
    with alone(store, Policy("p", (big,), frequency=PolicyFrequency(60_000))) as policies:
        state = store.agent("a")
        state.set("k", "x" * 900)
        assert made(store, policies) == 0
        state.set("l", "x" * 900)
        assert made(store, policies) == 1
        for _ in range(3):
            state.append("log", 1)
            assert made(store, policies) == 1
        hands.at += 61
        assert made(store, policies) == 2
    with alone(store, Policy("p", (big,))) as policies:  # no interval: once, until it was unmet
        state.set("k", "y" * 900)
        assert made(store, policies) == 3
        state.set("k", "z" * 900)
        hands.at += 10
        assert made(store, policies) == 3
        state.delete("l")
        hands.at += 10
        assert made(store, policies) == 3
        state.set("l", "z" * 900)
        hands.at += 10
        assert made(store, policies) == 4


@pytest.mark.spec("K123")
def test_jitter_spreads_agents_and_stays_the_same_for_each(plain: Place, hands: Hands) -> None:
    store = plain.open(clock=hands.clock())
    minute = when("time_interval", "time_since_last_checkpoint", "greater_than", 60_000)
    frequency = PolicyFrequency(60_000, 100_000)
    with alone(store, Policy("p", (minute,), frequency=frequency)) as policies:
        for number in range(50):
            store.agent(f"n{number}").set("k", 1)
        seen = []
        for _ in range(17):
            hands.at += 10
            assert policies.wait(60)
            seen.append(len(policies.fired()))
    assert (seen[4], seen[-1]) == (0, 50)
    assert max(b - a for a, b in pairwise(seen)) < 15


@pytest.mark.spec("K140", "K141", "K139", "K134")
def test_what_is_reported(place: Place, hands: Hands) -> None:
    store = place.open(clock=hands.clock())
    rules = (
        Policy("asked", (when("user_action", "user_action:save", "equals", 1),)),
        Policy("twice", (when("system_event", "system_event", "equals", 2, window=10_000),)),
        Policy("bad", (when("error_rate", "error_rate", "greater_than", 0.5, window=10_000),)),
    )
    with alone(store, *rules) as policies:
        state = store.agent("a")
        state.set("k", 1)
        policies.report(A, "user_action", "look")
        assert made(store, policies) == 0
        policies.report(A, "user_action", "save")
        assert made(store, policies) == 1
        first = state.checkpoints()[0]
        assert (first.type, first.metadata["event"]) == ("triggered", "save")
        assert first.description == "Policy asked triggered by user_action"
        policies.report(A, "system_event")
        hands.at += 11
        policies.report(A, "system_event")
        assert made(store, policies) == 1
        hands.at += 1
        policies.report(A, "system_event")
        assert made(store, policies) == 2
        hands.at += 100
        state.set("k", 2)
        policies.report(A, "error")
        assert made(store, policies) == 2
        policies.report(A, "error")
        assert made(store, policies) == 3
        assert state.checkpoints()[0].metadata["policy"] == "bad"
        with pytest.raises(InvalidInputError, match="unknown kind"):
            policies.report(A, "weather")


def test_metrics_of_your_own(plain: Place, hands: Hands) -> None:
    store = plain.open(clock=hands.clock())
    rule = Policy("hot", (when("system_event", "heat", "greater_than", 90),))
    with alone(store, rule, metrics=["heat"]) as policies:
        state = store.agent("a")
        state.set("k", 1)
        assert made(store, policies) == 0
        assert "record it" in policies.explain(A)[0].why
        policies.record(A, "heat", 80)
        assert made(store, policies) == 0
        policies.record(A, "heat", 91)
        assert made(store, policies) == 1
        assert state.checkpoints()[0].metadata["policy"] == "hot"
        for name, value in (("other", 1), ("heat", float("inf")), ("heat", True)):
            with pytest.raises(InvalidInputError):
                policies.record(A, name, value)
    with pytest.raises(InvalidInputError, match="choose another name"):
        sync.checkpoints.Policies(store, metrics=["error_rate"])


def test_keys_with_an_expiry_count_like_others(plain: Place) -> None:
    store = plain.open()
    rule = Policy("p", (when("memory_usage", "memory_usage", "greater_than", 300),))
    with alone(store, rule) as policies:
        state = store.agent("a")
        for number in range(3):
            state.set(f"k{number}", "x" * 80, ttl=3600)
            assert made(store, policies) == 0
        state.set("k3", "x" * 80, ttl=3600)
        assert made(store, policies) == 1
        assert (
            state.checkpoints()[0].metadata["readings"][0]["value"]
            == store._core.timeline(store._core.ledger(state.scope)).folded().size
        )


def test_a_policy_set_while_it_runs_counts_at_once(place: Place) -> None:
    store = place.open()
    with alone(store) as policies:
        state = store.agent("a")
        state.set("k", 1)
        assert made(store, policies) == 0
        policies.set(A, Policy("p", (count("greater_than", 2),)))
        state.set("k", 2)
        assert made(store, policies) == 0
        state.set("k", 3)
        assert made(store, policies) == 1
        policies.set(A, Policy("p", (count("greater_than", 0),), enabled=False))
        state.set("k", 4)
        assert made(store, policies) == 1


def test_writers_of_other_processes_are_noticed(plain: Place, hands: Hands) -> None:
    store, other = plain.open(clock=hands.clock()), plain.open()
    with alone(store, Policy("p", (count("greater_than_or_equal", 5),))) as policies:
        store.agent("a").set("k", 1)
        assert made(store, policies) == 0
        for number in range(3):
            other.agent("a").set("k", number)
        assert made(store, policies) == 0
        store.agent("a").set("k", 2)
        assert made(store, policies) == 1
        other.agent("a").checkpoint("theirs")
        for number in range(4):
            store.agent("a").set("k", number)
        assert made(store, policies) == 2
        store.agent("a").set("k", 5)
        assert made(store, policies) == 3


def test_two_processes_make_one_checkpoint(plain: Place, hands: Hands) -> None:
    one, two = plain.open(clock=hands.clock()), plain.open(clock=hands.clock())
    minute = when("time_interval", "time_since_last_checkpoint", "greater_than", 60_000)
    with alone(one, Policy("p", (minute,))) as first, alone(two, Policy("p", (minute,))) as second:
        for store, policies in ((one, first), (two, second)):
            store.agent("a").set("k", 1)
            assert policies.wait(60)
        hands.at += 61
        assert first.wait(60)
        assert second.wait(60)
        assert len(one.agent("a").checkpoints()) == 1
        assert (first.errors(), second.errors()) == ((), ())


def test_a_checkpoint_rests_on_the_one_its_policy_was_judged_by(plain: Place) -> None:
    store, other = plain.open(), plain.open()

    class Meanwhile(holdfast.Gate):
        """Another process is faster, at the last moment."""

        def before(self, request: holdfast.GateRequest) -> None:
            if request.operations[0].kind == "checkpoint":
                other.agent("a").checkpoint("theirs")

    store.add_gate(Meanwhile())
    with alone(store, Policy("p", (count("greater_than_or_equal", 2),))) as policies:
        state = store.agent("a")
        state.set("k", 1)
        state.set("k", 2)
        assert policies.wait(60)
        assert [one.name for one in state.checkpoints()] == ["theirs"]
        assert (policies.errors(), policies.fired()) == ((), ())


def test_what_cannot_be_measured_is_not_tried_with_every_write(
    plain: Place, hands: Hands, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = []

    def fails(handle: Any) -> Any:
        tried.append(handle)
        raise Unavailable("not now")

    store = plain.open(clock=hands.clock())
    with alone(store, Policy("p", (count("greater_than_or_equal", 1),))) as policies:
        with monkeypatch.context() as patch:
            patch.setattr("holdfast.checkpoints.policy.policy_engine.measure", fails)
            for number in range(50):
                store.agent("a").set("k", number)
                assert policies.wait(60)
            assert len(tried) == 1
        hands.at += 6
        assert policies.wait(60)
        assert len(store.agent("a").checkpoints()) == 1
        assert policies.errors() == ("agent:a: Unavailable",)


def test_a_busy_agent_never_has_two_on_their_way(place: Place) -> None:
    store = place.open()
    with alone(store, Policy("p", (count("greater_than_or_equal", 1),))) as policies:
        state = store.agent("a")
        for number in range(200):
            state.set(f"k{number}", number)
        assert policies.wait(60)
        kinds = [entry.kinds for entry in state.log(limit=None, newest_first=False)]
        assert kinds[-1] == ("checkpoint",)
        pairs = pairwise(kinds)
        assert all(pair != (("checkpoint",), ("checkpoint",)) for pair in pairs)
        assert policies.errors() == ()
    assert store.verify().findings == []


def test_a_checkpoint_that_fails_fails_no_write(plain: Place, hands: Hands) -> None:
    class No(holdfast.Gate):
        def before(self, request: holdfast.GateRequest) -> None:
            if request.operations[0].kind == "checkpoint":
                raise holdfast.HoldfastError("not now")

    store = plain.open(clock=hands.clock())
    gate = No()
    store.add_gate(gate)
    with alone(store, Policy("p", (count("greater_than_or_equal", 1),))) as policies:
        state = store.agent("a")
        state.set("k", 1)
        assert policies.wait(60)
        assert policies.errors() == ("agent:a: HoldfastError",)
        store.remove_gate(gate)
        hands.at += 6
        assert policies.wait(60)
        assert len(state.checkpoints()) == 1


def test_a_restart_goes_on_from_the_last_checkpoint(place: Place, hands: Hands) -> None:
    if place.engine == "memory":
        keeper = place.storage()  # what lives in memory lives as long as a handle
    rules = (
        Policy("n", (count("greater_than_or_equal", 4),)),
        Policy("r", (when("state_change", "state_change_ratio", "greater_than_or_equal", 0.9),)),
    )
    store = place.open(clock=hands.clock())
    with store.agent("a").change() as change:
        for number in range(10):
            change.set(f"k{number}", "x" * 50)
    store.agent("a").checkpoint("base")
    for number in range(3):
        store.agent("a").set(f"k{number}", "y" * 50)
    hands.at += 7
    store = place.open(clock=hands.clock())
    with alone(store, *rules) as policies:
        found = {one.policy.id: one for one in policies.explain(A)}
        assert found["n"].readings[0].value == 3
        assert found["r"].readings[0].value == pytest.approx(0.3)
        store.agent("a").set("k9", "y" * 50)
        assert made(store, policies) == 2
    if place.engine == "memory":
        keeper.close()


# explaining


def test_explain_says_what_is_read_and_why(
    watched: tuple[sync.Store, sync.checkpoints.Policies],
) -> None:
    store, policies = watched
    state = store.agent("a")
    state.set("k", "x" * 10_000)
    assert made(store, policies) == 1
    state.set("t", 1)
    policies.set(A, Policy("off", (count("greater_than", 0),), enabled=False))
    change, time, off = (
        {one.policy.id: one for one in policies.explain(A)}[name]
        for name in ("default-state-change", "default-time-based", "off")
    )
    assert (change.source, off.source) == ("default", "own")
    assert not change.fires
    assert change.why.startswith("state_change_ratio is 0.")
    assert "not > 0.1" in change.why
    assert "not > 300000" in time.why
    assert (off.fires, off.why) == (False, "it is switched off")
    encrypted = store._core.ring is not None
    assert change.effective["encryption"] == ("AES-256-GCM" if encrypted else "off")
    assert change.data()["readings"][0]["met"] is False
    assert policies.explain("agent:nobody")[0].fires is False
    assert [str(one.scope) for one in store.scopes().items] == [A]


def test_the_async_face(tmp_path: Path) -> None:
    async def work() -> None:
        async with holdfast.open(f"sqlite:{tmp_path / 'a.db'}", durability="normal") as store:
            async with holdfast.checkpoints.Policies(store) as policies:
                state = store.agent("a")
                await policies.set(state, Policy("p", (count("equals", 2),), priority="low"))
                assert [one.id for one in await policies.list(A)][-1] == "p"
                assert await policies.get(A, "p") is not None
                assert await policies.wait(60)
                await state.set("k", "x" * 10_000)
                assert await policies.wait(60)
                assert len(await state.checkpoints()) == 1
                assert (await policies.evaluate(A)).triggered is False
                assert [one.fires for one in await policies.explain(A)] == [False] * 3
                await policies.report(A, "user_action")
                await policies.remove(A, "p")
                assert policies.errors() == ()
                assert len(policies.fired()) == 1
            await state.set("k", "y" * 10_000)
            assert len(await state.checkpoints()) == 1

    asyncio.run(work())


# as the documents have it


@pytest.mark.spec("K119", "K120", "K121", "K127", "K128")
def test_all_that_a_policy_says_is_kept(place: Place) -> None:
    data = {
        "policyId": "p-1",
        "name": "Nightly",
        "conditions": [count("greater_than", 5).data()],
        "frequency": {"interval": "1h", "jitter": "5m"},
        "retention": {"maxAge": "7d", "maxCount": 9, "minCount": 2},
        "compression": {"enabled": True, "algorithm": "zstd"},
        "priority": "critical",
    }
    sync.checkpoints.Policies(place.open(), watch=False).set(A, data)
    kept = sync.checkpoints.Policies(place.reopen(), watch=False).get(A, "p-1")
    assert kept == Policy(
        "p-1",
        (count("greater_than", 5),),
        "Nightly",
        PolicyFrequency(3_600_000, 300_000),
        PolicyRetention(604_800_000, 9, 2),
        PolicySetting(True, "zstd"),
        None,
        "critical",
    )
    ranks = sync.checkpoints.Policies(place.open(), watch=False)
    for priority in ("low", "medium", "high"):
        ranks.set(A, {**data, "policyId": priority, "priority": priority})
    own = [one.priority for one in ranks.list(A) if not one.id.startswith("default")]
    assert own == ["critical", "high", "medium", "low"]
    with pytest.raises(PolicyValidationError, match="unknown priority 'urgent'"):
        ranks.set(A, {**data, "priority": "urgent"})


@pytest.mark.spec("K129", "K130", "K131", "K132", "K133")
def test_a_condition_needs_all_of_its_fields_and_each_counts(place: Place) -> None:
    whole = count("greater_than", 2).data()
    policies = sync.checkpoints.Policies(place.open(), watch=False)
    for name in ("type", "metric", "operator", "threshold"):
        less = {key: value for key, value in whole.items() if key != name}
        with pytest.raises(PolicyValidationError, match=f"a condition needs '{name}'"):
            policies.set(A, {"id": "p", "conditions": [less]})
    place.open().agent("a").set("task", 1)
    for change, fires in (
        ({}, False),
        ({"threshold": 0}, True),
        ({"operator": "less_than"}, True),
        ({"type": "memory_usage", "metric": "memory_usage"}, True),
    ):
        alone_ = alone(place.open(), Policy.of({"id": "p", "conditions": [{**whole, **change}]}))
        assert alone_.evaluate(A).triggered is fires
        alone_.close()


@pytest.mark.spec("K67", "K113", "K114", "K159")
def test_policies_triggers_scheduler_optimizer_and_validator_are_one_engine(
    place: Place, hands: Hands
) -> None:
    store = place.open(clock=hands.clock())
    hot = Policy("hot", (when("system_event", "heat", "greater_than", 70),))
    timed = Policy(
        "timed",
        (when("time_interval", "time_since_last_checkpoint", "greater_than", 60_000),),
        frequency=PolicyFrequency(60_000),
    )
    policies = sync.checkpoints.Policies(
        store, defaults=(hot, timed), metrics=["heat"], watch=False
    )
    assert [one.id for one in policies.list(A)] == ["hot", "timed"]
    with pytest.raises(PolicyValidationError):  # the validator
        policies.set(A, Policy("empty", ()))
    store.agent("a").set("task", 1)
    event = holdfast.checkpoints.PolicyEvent(
        "system_event", "sensor", {"heat": 71}
    )  # a trigger, with its metrics
    result = policies.evaluate(A, event)
    assert (result.triggered, result.event, result.policies) == (True, event, (hot,))
    assert result.reason == "Policy hot triggered by system_event"
    cold = holdfast.checkpoints.PolicyEvent("system_event", "sensor", {"heat": 69})
    assert not policies.evaluate(A, cold).triggered
    with pytest.raises(InvalidInputError, match=r"holdfast\.checkpoints\.PolicyEvent"):
        policies.evaluate(A, "system_event")  # type: ignore[arg-type]
    policies.schedule(A)
    scheduler = sync.checkpoints.Scheduler(store, policies=policies)
    scheduler.run_due()
    hands.at += 61
    assert [ran.outcome for ran in scheduler.run_due()] == ["saved"]
    scheduler.stop()
    (cost,) = sync.checkpoints.Optimizer(store, defaults=(timed,)).costs(A)
    assert (cost.policy, cost.checkpoints) == ("timed", 1)


@pytest.mark.spec("K104")
def test_a_restored_state_is_what_is_watched_from_then_on(
    watched: tuple[sync.Store, sync.checkpoints.Policies],
) -> None:
    store, policies = watched
    state = store.agent("a")
    policies.set(A, Policy("big", (when("memory_usage", "memory_usage", "greater_than", 10_000),)))
    state.set("a", "x" * 1000)

    def size() -> float:
        assert policies.wait(60)
        found = next(one for one in policies.explain(A) if one.policy.id == "big")
        value = found.readings[0].value
        assert value is not None
        return value

    before, then = state.checkpoint("then"), size()
    state.set("b", "y" * 5000)
    assert size() > then + 5000
    state.restore(before)
    assert size() == then
    state.set("c", "z" * 100)
    assert then + 100 < size() < then + 200
