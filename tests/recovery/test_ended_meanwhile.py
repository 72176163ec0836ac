"""An agent that somebody deletes or erases while it is recovered stays that, and the recovery says
so: it has not succeeded, and nothing is written that brings the agent or its records back."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from holdfast import sync
from holdfast.errors import HoldfastError, RecoveryFailedError
from holdfast.recovery import AgentFailure
from holdfast.recovery.agent_group import Together

HOW = ["delete", "erase"]
STEPS = ["backup_current", "locate_checkpoint", "restore_state", "validate_state", "cleanup"]
FAILURE = AgentFailure("state_corruption", "mail of ann@example.org")


def beside(work: Callable[[], Any]) -> None:
    """Do something as somebody else does: in no recovery, and under no lease."""
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


def agent(store: sync.Store, name: str = "7") -> sync.State:
    """One with a checkpoint, and more since."""
    state = store.agent(name)
    state.set("k", 1)
    state.checkpoint("good")
    state.set("k", 2)
    return state


def once(step: str, work: Callable[[], Any]) -> Callable[[str, str], None]:
    """Does something when a step has ended, the first time."""
    done: list[str] = []

    def progress(title: str, what: str) -> None:
        if title == step and not done:
            done.append(step)
            beside(work)

    return progress


def scopes(store: sync.Store) -> list[str]:
    return [str(one.scope) for one in store.scopes().items]


def said_so(recovery: sync.recovery.Recovery, how: str, error: RecoveryFailedError) -> None:
    """What is left of a recovery of an agent that ended."""
    why = f"agent:7 was {how}d since it began"
    assert why in str(error)
    left = [] if how == "erase" else ["failed"]
    assert [(one.status, one.why) for one in recovery.reports("agent:7")] == [
        (status, why) for status in left
    ]
    assert [one.status for one in recovery.notices()] == left


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("step", STEPS)
def test_what_ends_while_it_is_recovered_is_not_recovered(
    store: sync.Store, step: str, how: str
) -> None:
    agent(store)
    recovery = sync.recovery.Recovery(store, defaults={"k": 0})
    progress = once(step, lambda: getattr(store, how)("agent:7"))
    with pytest.raises(RecoveryFailedError) as caught:
        recovery.recover("agent:7", FAILURE, progress=progress)
    said_so(recovery, how, caught.value)
    assert "agent:7" not in scopes(store)
    assert how == "delete" or not any("agent:7" in one for one in scopes(store))
    assert recovery.resume("agent:7") == []


@pytest.mark.parametrize("how", HOW)
def test_another_of_its_name_is_left_alone(store: sync.Store, how: str) -> None:
    agent(store)
    recovery = sync.recovery.Recovery(store)

    def others() -> None:
        getattr(store, how)("agent:7")
        store.agent("7").set("k", "another")

    with pytest.raises(RecoveryFailedError) as caught:
        recovery.recover("agent:7", FAILURE, progress=once("validate_state", others))
    said_so(recovery, how, caught.value)
    assert store.agent("7").items() == [("k", "another")]


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("step", ["backup_current", "restore_state"])
def test_no_copy_brings_it_back(store: sync.Store, step: str, how: str) -> None:
    other = sync.open("memory:")
    agent(store)
    copied = agent(other)
    copied.set("k", 4)
    recovery = sync.recovery.Recovery(store, copies=[other])
    progress = once(step, lambda: getattr(store, how)("agent:7"))
    with pytest.raises(RecoveryFailedError) as caught:
        recovery.recover("agent:7", "storage_failure", progress=progress)
    assert f"agent:7 was {how}d since it began" in str(caught.value)
    assert "agent:7" not in scopes(store)
    other.close()


@pytest.mark.parametrize("how", HOW)
def test_one_that_the_recovery_itself_began_may_end_too(store: sync.Store, how: str) -> None:
    recovery = sync.recovery.Recovery(store, defaults={"k": 0})
    progress = once("restore_state", lambda: getattr(store, how)("agent:7"))
    with pytest.raises(RecoveryFailedError) as caught:
        recovery.recover("agent:7", "agent_crash", progress=progress)
    said_so(recovery, how, caught.value)
    assert "agent:7" not in scopes(store)
    assert recovery.recover("agent:7", "agent_crash").success  # of defaults: another one begins


# groups


def team(store: sync.Store) -> list[sync.State]:
    """Two with a moment in common, and more since."""
    members = [agent(store, "1"), agent(store, "7")]
    sync.checkpoints.CheckpointGroups(store).create(members, "both")
    for member in members:
        member.set("k", 5)
    return members


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("anew", [True, False])
@pytest.mark.parametrize("when", ["_points", "_put_back"])
def test_a_member_of_a_group_that_ends_meanwhile_does_not_come_back(
    store: sync.Store, how: str, anew: bool, when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    members, done = team(store), list[str]()
    known = getattr(Together, when)

    def others() -> None:
        getattr(store, how)("agent:7")
        if anew:
            store.agent("7").set("k", "another")

    def then(self: Together, *given: Any) -> Any:
        result = known(self, *given)
        if not done:
            done.append(when)
            beside(others)
        return result

    monkeypatch.setattr(Together, when, then)
    recovery = sync.recovery.Recovery(store)
    if when == "_points":
        with pytest.raises(HoldfastError):
            recovery.recover_group(members, "state_corruption")
    else:  # it was back, and has ended since
        assert recovery.recover_group(members, "state_corruption")
    assert members[0].get("k") == (5 if when == "_points" else 2)
    if anew:
        assert store.agent("7").items() == [("k", "another")]
    else:
        assert "agent:7" not in scopes(store)
