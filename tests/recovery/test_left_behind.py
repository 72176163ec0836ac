"""What a restore left behind is not returned to, unless somebody says so."""

from __future__ import annotations

import pytest
from store_kit import Place, put_row, rows_of

from holdfast import Scope, sync
from holdfast.checkpoints.locate import Lineage
from holdfast.errors import CheckpointNotFoundError, RecoveryFailedError
from holdfast.recovery import agent_group
from holdfast.store.history.handle import LineHandle

FAILURE = "state_corruption"


def undone(store: sync.Store) -> sync.State:
    """An agent whose newest checkpoint was left, with work since."""
    state = store.agent("7")
    state.set("k", "good")
    state.checkpoint("first")
    state.set("k", "poisoned")
    state.checkpoint("second")
    state.restore("first")
    state.set("k", "good work since")
    return state


def test_a_recovery_does_not_return_to_what_was_undone(store: sync.Store) -> None:
    state = undone(store)
    report = sync.recovery.Recovery(store).recover(state, FAILURE)
    assert (report.strategy, report.restored_from) == ("newest_valid", "main@2")
    assert state.get("k") == "good"
    assert report.lost == "2 entries after it"  # the restore, and what came then
    sync.recovery.Recovery(store).recover(state, FAILURE, point="second")
    assert state.get("k") == "poisoned"


def test_returning_into_it_takes_it_up_again(store: sync.Store) -> None:
    state = undone(store)
    state.restore("second")
    assert sync.recovery.Recovery(store).recover(state, FAILURE).restored_from == "main@4"


def test_a_fork_that_was_adopted_has_its_own_past(store: sync.Store) -> None:
    state = undone(store)
    trial = state.fork("trial", at="first")
    trial.set("k", "trial")
    state.restore(f"trial@{trial._handle.place()[2]}")
    assert sync.recovery.Recovery(store).recover(state, FAILURE).restored_from == "main@2"


def test_none_is_left_if_all_of_them_were_left(store: sync.Store) -> None:
    state = store.agent("7")
    state.set("k", 1)
    state.checkpoint("only")
    state.restore(1)
    recovery = sync.recovery.Recovery(store, order=["newest_valid"])
    with pytest.raises(RecoveryFailedError, match="those that a restore left behind are not asked"):
        recovery.recover(state, FAILURE)
    assert recovery.recover(state, FAILURE, point="only").success


def test_the_newest_good_checkpoint_is_none_of_them(store: sync.Store) -> None:
    checkpoints = sync.checkpoints.Checkpoints(undone(store))
    assert checkpoints.locate(valid=True).name == "first"
    assert checkpoints.locate(valid=True, name="second").name == "second"
    assert checkpoints.recover().restored_from == "main@2"
    state = store.agent("8")
    state.set("k", 1)
    state.checkpoint("only")
    state.restore(1)
    with pytest.raises(CheckpointNotFoundError):
        sync.checkpoints.Checkpoints(state).recover()


def test_it_is_known_though_the_newest_state_is_damaged(place: Place) -> None:
    state = undone(place.open())
    newest = state.set("k", "newest")
    place.close()
    storage = place.storage()
    key, row = rows_of(storage, b"E")[newest - 1]
    put_row(storage, key, row[:-3] + bytes([row[-3] ^ 1]) + row[-2:])
    storage.close()
    store = place.open()
    recovery = sync.recovery.Recovery(store, order=["newest_valid"])
    assert recovery.recover("agent:7", "corruption_detected").restored_from == "main@2"


def test_a_group_that_was_left_is_passed_over(store: sync.Store) -> None:
    states = [store.agent(name) for name in "ab"]
    groups, recovery = sync.checkpoints.CheckpointGroups(store), sync.recovery.Recovery(store)
    for name in ("first", "second"):
        for state in states:
            state.set("k", name)
        groups.create(states, name)
    recovery.recover_group(states, FAILURE, point="first")
    report = recovery.recover_group(states, FAILURE)[states[0].scope]
    assert [state.get("k") for state in states] == ["first", "first"]
    assert "a restore left it behind" in report.passed["second"]
    recovery.recover_group(states, FAILURE, point="second")
    assert [state.get("k") for state in states] == ["second", "second"]
    reports = recovery.recover_group(states, FAILURE)
    assert all("second" not in report.passed for report in reports.values())


def test_the_restores_of_an_agent_are_read_once_for_all_groups(
    store: sync.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    states, read = [store.agent(name) for name in "ab"], list[Scope]()
    for state in states:
        state.set("k", 1)
    for number in range(5):
        sync.checkpoints.CheckpointGroups(store).create(states, f"left-{number}")
    for state in states:
        state.restore(1)

    def reading(handle: LineHandle) -> Lineage:
        read.append(handle.scope)
        return Lineage(handle)

    monkeypatch.setattr(agent_group, "Lineage", reading)
    with pytest.raises(RecoveryFailedError, match="left it behind"):
        sync.recovery.Recovery(store).recover_group(states, FAILURE)
    assert len(read) == len(set(read)) >= 1


def test_what_is_lost_is_counted_without_what_changed_nothing(store: sync.Store) -> None:
    state = store.agent("7")
    state.set("k", 1)
    state.checkpoint("good")
    state.checkpoint("of nothing", type="recovery")
    recovery = sync.recovery.Recovery(store)
    assert [recovery.recover(state, FAILURE).lost for _ in range(3)] == ["nothing"] * 3
    state.set("k", 2)
    sync.agents.Mailbox(state).send("stays")
    assert recovery.recover(state, FAILURE).lost == "1 entries after it"
    assert recovery.recover(state, FAILURE).lost == "nothing"
