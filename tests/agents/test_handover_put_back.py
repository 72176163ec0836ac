"""Handovers of an agent whose state was put back in part: reconcile makes each task one agent's."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import pytest
from handover_kit import busy, heard, put, say, tasks

from holdfast import sync
from holdfast.checkpoints import restore_request as partial
from holdfast.errors import HandoverValidationError

PUT_BACK: dict[str, Callable[[sync.State], object]] = {
    "some": lambda state: sync.checkpoints.Checkpoints(state).restore(
        "before", prefixes=["$agent/"]
    ),
    "tasks": lambda state: sync.checkpoints.Checkpoints(state).restore(
        "before", prefixes=["$agent/tasks/"]
    ),
    "one key": lambda state: sync.checkpoints.Checkpoints(state).restore(
        "before", keys=["$agent/tasks/t1"]
    ),
    "both": lambda state: sync.checkpoints.Checkpoints(state).restore(
        "before", prefixes=["$agent/"], keys=["$handover/seen/t1"]
    ),
}


@pytest.mark.parametrize("how", PUT_BACK)
@pytest.mark.parametrize("pieces", [False, True])
def test_a_giver_of_whom_some_keys_were_put_back(
    store: sync.Store, monkeypatch: pytest.MonkeyPatch, how: str, pieces: bool
) -> None:
    """Also if that is too much for one entry, and is put together on a timeline of its own."""
    ada, bob = busy(store), store.agent("bob")
    handovers = sync.agents.Handovers(store)
    ada.checkpoint("before")
    handovers.hand_over(ada, bob, "t1", reason="x")
    if pieces:
        monkeypatch.setattr(partial, "MOST_KEYS", 1)
    PUT_BACK[how](ada)
    assert (tasks(ada), tasks(bob)) == (["t1"], ["t1"])
    with pytest.raises(HandoverValidationError, match=r"was handed on: reconcile\(\)"):
        handovers.offer(ada, "agent:cid", "t1", reason="not mine to give")
    assert handovers.reconcile(ada).removed == ("t1",)
    assert (tasks(ada), tasks(bob)) == ([], ["t1"])
    assert handovers.reconcile(ada).removed == ()


@pytest.mark.parametrize("how", PUT_BACK)
def test_a_taker_of_whom_some_keys_were_put_back(store: sync.Store, how: str) -> None:
    ada, bob = busy(store), store.agent("bob")
    handovers = sync.agents.Handovers(store)
    put(bob, own={"id": "own"})
    bob.checkpoint("before")
    handovers.hand_over(ada, bob, "t1", reason="x")
    PUT_BACK[how](bob)
    assert (tasks(ada), tasks(bob)) == ([], ["own"])
    assert handovers.reconcile(bob).put_back == ("t1",)
    assert (tasks(ada), tasks(bob)) == ([], ["own", "t1"])
    assert sync.agents.AgentState(bob).problems() == []


def test_what_was_done_since_the_handover_stays_so(store: sync.Store) -> None:
    """A state of after it knows it: what is brought from there, the agent itself did."""
    ada, bob = busy(store), store.agent("bob")
    handovers = sync.agents.Handovers(store)
    handovers.hand_over(ada, bob, "t1", reason="x")
    agent = sync.agents.AgentState(bob)
    agent.remove("tasks", "t1")
    bob.checkpoint("removed")
    put(bob, t1={"id": "t1", "title": "another of that name"})
    sync.checkpoints.Checkpoints(bob).restore("removed", prefixes=["$agent/"])
    assert handovers.reconcile(bob).put_back == ()
    assert tasks(bob) == []


def test_a_fork_of_before_that_was_merged(store: sync.Store) -> None:
    ada, bob = busy(store), store.agent("bob")
    handovers = sync.agents.Handovers(store)
    trial = ada.fork("trial")
    sync.agents.AgentState(trial).update_task("t1", progress=0.5)
    say(trial, "more")
    handovers.hand_over(ada, bob, "t1", reason="x")
    ada.merge("trial", strategy="theirs")
    assert (tasks(ada), tasks(bob)) == (["t1"], ["t1"])
    assert handovers.reconcile(ada).removed == ("t1",)
    assert (tasks(ada), tasks(bob)) == ([], ["t1"])


def test_a_fork_of_after_that_was_merged(store: sync.Store) -> None:
    """What was done on it with a task that the agent has, was done by the agent."""
    ada, bob = busy(store), store.agent("bob")
    handovers = sync.agents.Handovers(store)
    handovers.hand_over(ada, bob, "t1", reason="x")
    trial = bob.fork("trial")
    sync.agents.AgentState(trial).remove("tasks", "t1")
    bob.set("meanwhile", 1)
    bob.merge("trial")
    assert handovers.reconcile(bob).put_back == ()
    assert tasks(bob) == []


@pytest.mark.parametrize("side", ["ada", "bob"])
def test_an_operation_that_failed_around_a_handover(store: sync.Store, side: str) -> None:
    ada, bob = busy(store), store.agent("bob")
    handovers = sync.agents.Handovers(store)
    put(bob, own={"id": "own"})
    with (
        suppress(ZeroDivisionError),
        sync.checkpoints.Checkpoints(store.agent(side)).operation("deploy"),
    ):
        handovers.hand_over(ada, bob, "t1", reason="x")
        raise ZeroDivisionError
    assert ("t1" in tasks(ada)) == ("t1" in tasks(bob)), "both have it, or neither"
    done = handovers.reconcile(store.agent(side))
    assert done.removed + done.put_back == ("t1",)
    assert (tasks(ada), tasks(bob)) == ([], ["own", "t1"])
    assert heard(bob) == ["hello", "it is about money"]


@pytest.mark.parametrize("side", ["ada", "bob"])
@pytest.mark.parametrize("recovering", [False, True])
def test_a_revert_of_one_side_of_a_handover(store: sync.Store, side: str, recovering: bool) -> None:
    """The record is of both agents and stays, so that it is seen, and made to fit."""
    ada, bob = busy(store), store.agent("bob")
    handovers = sync.agents.Handovers(store)
    put(bob, own={"id": "own"})
    handovers.hand_over(ada, bob, "t1", reason="x")
    done = store.agent(side).revert(entries=store.agent(side).log(limit=1))
    assert "$agent/tasks/t1" in done.done
    why = {one.why for one in done.left if one.key.startswith("$handover/log/")}
    assert len(why) == 1
    assert "`reconcile` makes the state fit it" in why.pop()
    assert ("t1" in tasks(ada)) == ("t1" in tasks(bob)), "both have it, or neither"
    assert handovers.offers(bob) == []
    if recovering:
        assert (
            sync.recovery.Recovery(store).recover(f"agent:{side}", "interrupted_handover").success
        )
    else:
        settled = handovers.reconcile(store.agent(side))
        assert settled.removed + settled.put_back == ("t1",)
    assert (tasks(ada), tasks(bob)) == ([], ["own", "t1"])
    assert handovers.owner(ada, "t1").id == handovers.owner(bob, "t1").id == "bob"


def test_a_revert_of_both_sides_undoes_a_handover(store: sync.Store) -> None:
    ada, bob = busy(store), store.agent("bob")
    handovers = sync.agents.Handovers(store)
    with store.acting("boss", correlation="run"):
        handovers.hand_over(ada, bob, "t1", reason="x")
    store.revert(correlation="run")
    assert handovers.reconcile(ada) == handovers.reconcile(bob)
    assert (tasks(ada), tasks(bob)) == (["t1"], [])
    assert handovers.history(ada) == handovers.history(bob) == []
    handovers.hand_over(ada, bob, "t1", reason="x")
    assert (tasks(ada), tasks(bob)) == ([], ["t1"])
