"""Consumers of notices that are agents themselves, and are put back like others."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast import Sticky, sync
from holdfast.agents.agent_keys import own_change
from holdfast.store.rules.gates import Operation


def see(change: Any, notice: Any) -> None:
    change.append("seen", notice.recovery)


@pytest.fixture
def captain(store: sync.Store) -> sync.State:
    """A consumer that has been recovered once, as any agent may be."""
    worker, captain = store.agent("worker"), store.agent("captain")
    worker.set("task", 1)
    worker.checkpoint("good")
    captain.set("seen", [])
    captain.checkpoint("start")
    sync.Recovery(store).recover(captain, "state_corruption")
    return captain


def declared_as_before(state: sync.State) -> None:
    """As stores of before have it: all of the prefix is sticky."""
    wide, narrow = Sticky("$recovery/"), Sticky("$recovery/last")
    parts = own_change(state)
    parts.part(state._handle).operations += [
        Operation("set", wide.key, wide.data()),
        Operation("delete", narrow.key),
    ]
    plan = parts.plan()
    assert plan is not None
    state._run(plan)


def all_seen(store: sync.Store, state: sync.State) -> bool:
    return state.get("seen") == [one.recovery for one in sync.Recovery(store).notices()]


@pytest.mark.parametrize("before", [False, True])
def test_a_restore_takes_back_what_was_read_with_what_was_written(
    store: sync.Store, captain: sync.State, before: bool
) -> None:
    if before:
        declared_as_before(captain)
    recovery = sync.Recovery(store)
    recovery.deliver(captain, "captain", see)
    captain.checkpoint("read")
    recovery.recover("agent:worker", "state_corruption")
    assert recovery.deliver(captain, "captain", see) == 1
    last = captain.get("$recovery/last")
    captain.restore("read")
    assert captain.get("$recovery/last") == last
    assert recovery.deliver(captain, "captain", see) == 1
    assert all_seen(store, captain)


@pytest.mark.parametrize("before", [False, True])
def test_a_consumer_that_is_recovered_gets_again_what_it_lost(
    store: sync.Store, captain: sync.State, before: bool
) -> None:
    recovery = sync.Recovery(store)
    for _ in range(3):
        recovery.recover("agent:worker", "state_corruption")
        recovery.deliver(captain, "captain", see)
        if before:
            declared_as_before(captain)
        recovery.recover(captain, "drift")
        recovery.deliver(captain, "captain", see)
        assert all_seen(store, captain)
