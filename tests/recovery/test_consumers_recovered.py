"""Consumers of notices that are agents themselves, and are put back like others."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast import sync


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
    sync.recovery.Recovery(store).recover(captain, "state_corruption")
    return captain


def all_seen(store: sync.Store, state: sync.State) -> bool:
    return state.get("seen") == [one.recovery for one in sync.recovery.Recovery(store).notices()]


def test_a_restore_takes_back_what_was_read_with_what_was_written(
    store: sync.Store, captain: sync.State
) -> None:
    recovery = sync.recovery.Recovery(store)
    recovery.deliver(captain, "captain", see)
    captain.checkpoint("read")
    recovery.recover("agent:worker", "state_corruption")
    assert recovery.deliver(captain, "captain", see) == 1
    last = captain.get("$recovery/last")
    captain.restore("read")
    assert captain.get("$recovery/last") == last
    assert recovery.deliver(captain, "captain", see) == 1
    assert all_seen(store, captain)


def test_a_consumer_that_is_recovered_gets_again_what_it_lost(
    store: sync.Store, captain: sync.State
) -> None:
    recovery = sync.recovery.Recovery(store)
    for _ in range(3):
        recovery.recover("agent:worker", "state_corruption")
        recovery.deliver(captain, "captain", see)
        recovery.recover(captain, "drift")
        recovery.deliver(captain, "captain", see)
        assert all_seen(store, captain)
