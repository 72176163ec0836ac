"""Policies go on: whatever is written, and whatever goes wrong with one agent's."""

from __future__ import annotations

from typing import Any

import pytest
from store_kit import Hands, Place

from holdfast import sync
from holdfast.checkpoints import Condition, Policy
from holdfast.checkpoints.policy import policy_engine
from holdfast.checkpoints.policy.policy import DEFAULTS

METRIC = Policy("own", (Condition("system_event", "own", "greater_than", 0),))
CHANGED = Policy("changed", (Condition("state_change", "state_change_ratio", "greater_than", 0.1),))


def test_a_merge_is_counted_like_other_writes(place: Place) -> None:
    """What it brings makes its agent's policies fire, and those of others still do."""
    store = place.open()
    with sync.checkpoints.Policies(store) as policies:
        one, other = store.agent("one"), store.agent("other")
        one.set("k", 1)
        other.set("k", 1)
        assert policies.wait(60)
        one.fork("side").set("long", "x" * 1000)
        one.merge("side")
        assert policies.wait(60)
        assert one.checkpoints()[0].metadata["policy"] == "default-state-change"
        assert one.at(one.checkpoints()[0]).get("long") == "x" * 1000
        other.set("k", "x" * 1000)
        assert policies.wait(60)
        assert len(other.checkpoints()) == 2
        assert policies.errors() == ()


@pytest.mark.parametrize("closes", ["policies", "store"])
def test_closing_makes_the_checkpoints_that_are_on_their_way(plain: Place, closes: str) -> None:
    """Also those of agents that nobody has measured yet."""
    store = plain.open()
    each = Policy("own", (Condition("operation_count", "operation_count", "equals", 1),))
    policies = sync.checkpoints.Policies(store, defaults=(each,))
    agents = [f"a{n}" for n in range(8)]
    for agent in agents:
        store.agent(agent).set("k", 1)
    (policies if closes == "policies" else store).close()
    assert store._core.closing == []
    store = plain.reopen()
    for agent in agents:
        (made,) = store.agent(agent).checkpoints()
        assert made.metadata["policy"] == "own"
    assert policies.errors() == ()


def test_a_write_that_cannot_be_counted_is_told_and_read_again(
    plain: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither the writer nor other agents see anything of it."""
    from holdfast.checkpoints.policy.tracker import Tracker

    note = Tracker.note

    def fails(tracker: Tracker, *given: Any) -> bool:
        if tracker.scope.id == "bad":
            raise IndexError
        return note(tracker, *given)

    store = plain.open()
    with sync.checkpoints.Policies(store, defaults=(CHANGED,)) as policies:
        bad, good = store.agent("bad"), store.agent("good")
        bad.set("k", 1)
        good.set("k", 1)
        assert policies.wait(60)
        monkeypatch.setattr(Tracker, "note", fails)
        bad.set("k", "x" * 100)
        good.set("k", "x" * 100)
        assert policies.wait(60)
        assert len(good.checkpoints()) == 2
        assert policies.errors() == ("agent:bad: IndexError",)
        monkeypatch.undo()
        assert policies.evaluate("agent:bad").triggered  # nothing of it is lost


# which policy a checkpoint is of


def test_writes_without_a_pause_do_not_put_a_checkpoint_off(
    plain: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It covers what is written while it is on its way."""
    store = plain.open()
    state = store.agent("a")
    save = policy_engine.save_all

    def while_another_writes(*given: Any) -> Any:
        state.set("k", 1)
        return save(*given)

    monkeypatch.setattr(policy_engine, "save_all", while_another_writes)
    with sync.checkpoints.Policies(store, defaults=(CHANGED,)) as policies:
        state.set("k", 1)
        assert policies.wait(60)
        assert [one.sequence for one in state.checkpoints()] == [3]
        assert policies.errors() == ()


def test_one_that_was_met_and_is_not_any_more_has_its_checkpoint(
    plain: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was written since is covered, and takes nothing from what was met."""
    store = plain.open()
    state = store.agent("a")
    save, written = policy_engine.save_all, []

    def once_another_write_came(*given: Any) -> Any:
        if not written:
            written.append(state.set("k", 2))
        return save(*given)

    monkeypatch.setattr(policy_engine, "save_all", once_another_write_came)
    exactly = Policy("one", (Condition("operation_count", "operation_count", "equals", 1),))
    with sync.checkpoints.Policies(store, defaults=(exactly,)) as policies:
        state.set("k", 1)
        assert policies.wait(60)
        assert [one.sequence for one in state.checkpoints()] == [3]


@pytest.mark.parametrize("seconds", [0, 400])
def test_nothing_follows_a_checkpoint_made_by_hand_as_one_was_on_its_way(
    place: Place, hands: Hands, monkeypatch: pytest.MonkeyPatch, seconds: float
) -> None:
    """Nothing was written since: neither does what stays met fire again, nor does time alone."""
    save = policy_engine.save_all
    store = place.open(clock=hands.clock)
    state = store.agent("1")
    asked: list[Any] = []

    def once_one_was_made(core: Any, wanted: Any) -> Any:
        if not asked:
            state.checkpoint("by hand")
        asked.append(wanted)
        return save(core, wanted)

    monkeypatch.setattr(policy_engine, "save_all", once_one_was_made)
    filled = Policy("filled", (Condition("memory_usage", "memory_usage", "greater_than", 1),))
    with sync.checkpoints.Policies(store, defaults=(*DEFAULTS, filled)) as policies:
        state.set("k", 1)
        assert policies.wait(60)
        hands.move(seconds)
        assert policies.wait(60)
        assert [one.name for one in state.checkpoints()] == ["by hand"]
        assert len(asked) == 1
        state.set("k", 2)  # what is written later has its own
        assert policies.wait(60)
        assert len(state.checkpoints()) == 2
        assert policies.errors() == ()
