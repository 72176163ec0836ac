"""Policies as the documents give them: none at all, an agent's own, those of a configuration."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from store_kit import Hands, Place

from holdfast import sync
from holdfast.checkpoints import Condition, Policy, PolicyFrequency, PolicyRetention, PolicySetting
from holdfast.errors import InvalidInputError, PolicyValidationError

A = "agent:a"
TIME_BASED: dict[str, Any] = {
    "name": "time_based",
    "conditions": [
        {
            "type": "time_interval",
            "threshold": 300000,
            "metric": "time_since_last_checkpoint",
            "operator": "greater_than",
        }
    ],
    "frequency": {"interval": 300000, "jitter": 30000},
    "retention": {"max_age": "7d", "max_count": 100},
    "compression": {"enabled": True, "algorithm": "lz4"},
    "encryption": {"enabled": True, "algorithm": "AES-256-GCM"},
    "priority": "medium",
}
STATE_CHANGE: dict[str, Any] = {
    "name": "state_change",
    "conditions": [
        {
            "type": "state_change",
            "threshold": 0.1,
            "metric": "state_change_ratio",
            "operator": "greater_than",
        }
    ],
    "retention": {"max_age": "30d", "max_count": 50},
    "priority": "high",
}
MINUTE = Condition("time_interval", "time_since_last_checkpoint", "greater_than", 60_000)
WRITES = Condition("operation_count", "operation_count", "greater_than_or_equal", 3)
AT_ONCE = {
    "conditions": [
        {
            "type": "operation_count",
            "threshold": 0,
            "metric": "operation_count",
            "operator": "greater_than",
        }
    ],
    "frequency": {},
}
"""In place of the document's conditions, where time is not what is looked at."""


@pytest.fixture
def sealed(tmp_path: Path) -> Place:
    """A store as the document's policies ask for one: encrypted."""
    return Place("memory", tmp_path, sealed=True)


def by_policy(store: sync.Store, agent: str = "a") -> list[str]:
    """The policies that made an agent's checkpoints, oldest first."""
    return [one.metadata["policy"] for one in reversed(store.agent(agent).checkpoints())]


@pytest.mark.spec("K118")
@pytest.mark.parametrize("given", [None, (), (Policy("writes", (WRITES,)),)])
def test_an_engine_that_is_given_no_policies_has_the_default_ones(
    place: Place, hands: Hands, given: tuple[Policy, ...] | None
) -> None:
    """Catches: `defaults: Iterable[Policy] = ()` of `Policies`."""
    store = place.open(clock=hands.clock)
    config: dict[str, Any] = {} if given is None else {"defaults": given}
    with sync.checkpoints.Policies(store, **config) as policies:
        for number in range(3):
            store.agent("a").set("task", f"{number}" * 100)
            assert policies.wait(60)
        hands.move(331)
        assert policies.wait(60)
        made = by_policy(store)
    if given is None:
        assert made == ["default-state-change"] * 3
    else:
        assert made == [one.id for one in given]
    costs = sync.checkpoints.Optimizer(store, **config).costs(A)
    assert [one.policy for one in costs if one.checkpoints] == list(dict.fromkeys(made))
    with pytest.raises(PolicyValidationError):
        sync.checkpoints.Policies(store, defaults=(Policy("empty", ()),))


@pytest.mark.spec("K142")
def test_an_agents_stored_policies_are_merged_checked_listened_to_and_scheduled(
    place: Place, hands: Hands
) -> None:
    """Catches: `merged(self._engine.defaults, {})` in `Policies.list`; `schedule` of the defaults
    alone; a `Policies` that does not start to watch."""
    with place.open(clock=hands.clock) as gone:
        own = sync.checkpoints.Policies(gone, defaults=(), watch=False)
        own.set(A, Policy("timed", (MINUTE,), frequency=PolicyFrequency(120_000)))
        own.set(A, Policy("writes", (WRITES,), priority="high"))
    defaults = (
        Policy("timed", (MINUTE,), frequency=PolicyFrequency(60_000)),
        Policy("hourly", (MINUTE,), frequency=PolicyFrequency(3_600_000)),
        Policy("writes", (WRITES,), enabled=False),
    )
    store = place.open(clock=hands.clock)
    wrong = Policy("wrong", (Condition("weather", "rain", "above", 1),))
    with pytest.raises(PolicyValidationError, match="Invalid checkpoint policies: wrong: "):
        sync.checkpoints.Policies(store, defaults=(*defaults, wrong))
    with sync.checkpoints.Policies(store, defaults=defaults) as policies:
        merged = [(one.id, one.frequency.interval, one.enabled) for one in policies.list(A)]
        assert merged == [
            ("writes", 0, True),
            ("timed", 120_000, True),
            ("hourly", 3_600_000, True),
        ]
        scheduled = {one.policy: one.when.seconds for one in policies.schedule(A) if one.when}
        assert scheduled == {"hourly": 3600, "timed": 120}
        for number in range(3):
            store.agent("a").set("task", number)
        assert policies.wait(60)
        assert by_policy(store) == ["writes"]
        store.agent("b").set("task", 1)
    scheduler = sync.checkpoints.Scheduler(store)
    found = {(one.scope, one.policy) for one in scheduler.schedules()}
    assert found == {(A, "timed"), (A, "hourly")}
    scheduler.stop()


@pytest.mark.spec("K261", "K262")
def test_the_documents_time_based_policy_fires_after_five_minutes_and_its_share_of_jitter(
    sealed: Place, hands: Hands
) -> None:
    """Catches: `frequency` of a configuration left at its default, a `jitter` of 0, `max_age` or
    `max_count` of a policy that retention does not read."""
    store = sealed.open(clock=hands.clock)
    agents = [f"a{number}" for number in range(12)]
    with sync.checkpoints.Policies(store, defaults=()) as policies:
        for name in agents:
            policies.set(f"agent:{name}", TIME_BASED)
            store.agent(name).set("task", 1)
        moments: dict[str, list[float]] = {name: [] for name in agents}
        for second in range(5, 1005, 5):
            hands.move(5)
            assert policies.wait(60)
            for name in agents:
                while len(store.agent(name).checkpoints()) > len(moments[name]):
                    moments[name].append(second)
                    store.agent(name).set("task", second)
        assert policies.errors() == ()
    for first, second, *_ in moments.values():
        assert 300 < first <= 335
        assert 300 < second - first <= 335
    assert len({first for first, *_ in moments.values()}) > 3, "they do not fire together"
    state = store.agent("a0")
    retention = sync.checkpoints.Retention(store)
    hands.move(6 * 86_400)
    state.set("task", "later")
    assert retention.plan(state).removed == ()
    hands.move(86_400)
    assert len(retention.plan(state).removed) == len(state.checkpoints()) > 1
    state = store.agent("b")
    with sync.checkpoints.Policies(store, defaults=()) as policies:
        policies.set(state, TIME_BASED | AT_ONCE)
        for number in range(103):
            state.set("task", number)
            assert policies.wait(60)
    assert len(state.checkpoints()) == 103
    assert len(retention.plan(state).removed) == 3


@pytest.mark.spec("K263")
def test_the_documents_compression_encryption_and_priority_are_in_force(
    sealed: Place, hands: Hands, tmp_path: Path
) -> None:
    """Catches: any of the three keys of a configuration that is read and not kept."""
    store = sealed.open(clock=hands.clock)
    state = store.agent("a")
    with sync.checkpoints.Policies(store, defaults=()) as policies:
        one = policies.set(A, TIME_BASED)
        assert (one.compression, one.encryption, one.priority) == (
            PolicySetting(True, "lz4"),
            PolicySetting(True, "AES-256-GCM"),
            "medium",
        )
        state.set("task", 3)
        for _ in range(2):  # from when it is noticed it waits for its share
            hands.move(350)
            assert policies.wait(60)
        made = state.checkpoints()[0]
        assert (made.metadata["policy"], made.metadata["compression"]) == ("time_based", "lz4")
        with pytest.raises(InvalidInputError, match=r"time_based.*, which demands encryption"):
            sync.checkpoints.export_checkpoint(state, tmp_path / "out", plain=True)
    ranks = sync.checkpoints.Policies(store, defaults=(), watch=False)
    ranks.set("agent:b", TIME_BASED | AT_ONCE)
    store.agent("b").set("task", 1)
    for priority, first in (("low", "time_based"), ("high", "high")):
        ranks.set("agent:b", TIME_BASED | AT_ONCE | {"name": priority, "priority": priority})
        assert [found.id for found in ranks.evaluate("agent:b").policies] == [first]
    plain = sync.checkpoints.Policies(sync.open("memory:"), watch=False)
    with pytest.raises(PolicyValidationError, match="this store is plain"):
        plain.set(A, TIME_BASED)


@pytest.mark.spec("K264")
def test_the_documents_state_change_policy_fires_above_a_tenth_and_keeps_fifty(
    place: Place, hands: Hands
) -> None:
    """Catches: a `threshold` or an `operator` that is not read, `max_count` or `max_age` neither,
    and a default put in place of what the document leaves out."""
    store = place.open(clock=hands.clock)
    state = store.agent("a")
    with sync.checkpoints.Policies(store, defaults=()) as policies:
        two = policies.set(A, STATE_CHANGE)
        assert (two.frequency, two.compression, two.encryption) == (PolicyFrequency(), None, None)
        assert (two.retention, two.priority) == (PolicyRetention(30 * 86_400_000, 50), "high")
        state.set("text", "x" * 10_000)
        assert policies.wait(60)
        assert by_policy(store) == ["state_change"]
        for length, made in ((900, 1), (1200, 2)):  # of 10,000: less than a tenth, and more
            state.set("more", "y" * length)
            assert policies.wait(60)
            assert len(state.checkpoints()) == made
        for number in range(53):
            state.set("text", f"{number % 10}" * 10_000)
            assert policies.wait(60)
    assert len(state.checkpoints()) == 55
    retention = sync.checkpoints.Retention(store)
    assert len(retention.plan(state).removed) == 5
    hands.move(29 * 86_400)
    assert len(retention.plan(state).removed) == 5
    hands.move(2 * 86_400)
    state.set("text", "now")
    assert len(retention.plan(state).removed) == 55
