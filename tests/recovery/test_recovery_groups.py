"""Several agents recovered to one moment: all or none, and their letters come once."""

from __future__ import annotations

import asyncio
import itertools
import threading
from typing import Any

import pytest
from store_kit import Hands, Place

import holdfast
from holdfast import sync
from holdfast.agents import Message, Task
from holdfast.errors import (
    CheckpointNotFoundError,
    HoldfastError,
    InvalidInputError,
    LeaseLostError,
    LeaseNotFoundError,
    PointNotFoundError,
    RecoveryFailedError,
    ScopeNotFoundError,
)
from holdfast.recovery import agent_group as together
from holdfast.storage.wrappers import Fault, Faulty
from holdfast.store.history.handle import StoreHandle
from holdfast.store.names.face import given
from holdfast.store.open import open_core

NAMES = ("planner", "searcher", "writer")


def team(store: sync.Store) -> list[sync.State]:
    """Agents with a checkpoint of one moment; the writer rests on the searcher."""
    states = [store.agent(name) for name in NAMES]
    for state in states:
        state.set("done", [])
    sync.agents.Mailbox(states[0]).send("find it")
    sync.checkpoints.CheckpointGroups(store).create(states, "together")
    return states


def work(states: list[sync.State]) -> None:
    """Letters go from one to the next, each with what was done for it."""
    planner, searcher, writer = states

    def pass_on(mail: Any, to: sync.State | None) -> None:
        mail.change.append("done", mail.content)
        if to is not None:
            mail.send(to, f"{mail.content}!")

    sync.agents.Mailbox(planner).process(lambda mail: pass_on(mail, searcher))
    sync.agents.Mailbox(searcher).process(lambda mail: pass_on(mail, writer))
    sync.agents.Mailbox(writer).process(lambda mail: pass_on(mail, None))


def done(states: list[sync.State]) -> list[list[str]]:
    """What each has done."""
    return [state.get("done") for state in states]


def test_a_fork_is_taken_for_a_member_only_if_its_group_is_named(store: sync.Store) -> None:
    a, b = store.agent("a"), store.agent("b")
    groups = sync.checkpoints.CheckpointGroups(store)
    for state in (a, b):
        state.set("x", 1)
    groups.create([a, b], "good")
    side = b.fork("side")
    side.set("x", "of the fork")
    groups.create([a, side], "with a fork")
    for state in (a, b):
        state.set("x", 2)
    recovery = sync.recovery.Recovery(store)
    report = recovery.recover_group([a, b], "state_corruption")
    assert [state.get("x") for state in (a, b)] == [1, 1]
    assert "agent:b" in report.passed["with a fork"]
    recovery.recover_group([a, b], "state_corruption", point="with a fork")
    assert [state.get("x") for state in (a, b)] == [1, "of the fork"]


@pytest.mark.spec("D51")
def test_a_group_goes_back_to_one_moment_and_its_letters_come_once(store: sync.Store) -> None:
    states = team(store)
    work(states)
    sync.agents.Mailbox(states[1]).send("from outside")
    assert done(states) == [["find it"], ["find it!"], ["find it!!"]]
    report = sync.recovery.Recovery(store).recover_group(states, "state_corruption")
    assert report.success
    assert report.strategy == "newest_valid"
    assert dict(report.unsent) == {"agent:searcher": 1, "agent:writer": 1}
    assert done(states) == [[], [], []]
    assert [one.content for one in sync.agents.Mailbox(states[1]).waiting()] == ["from outside"]
    work(states)
    assert done(states) == [
        ["find it"],
        ["from outside", "find it!"],
        ["from outside!", "find it!!"],
    ]
    assert store.verify().ok


def test_without_a_moment_that_is_good_for_all_nothing_is_changed(store: sync.Store) -> None:
    states = team(store)
    work(states)
    before = done(states)

    def check(state: Any) -> str | None:
        return "it has done nothing" if str(state.scope) == "agent:writer" else None

    recovery = sync.recovery.Recovery(store, validate=[check])
    with pytest.raises(RecoveryFailedError, match=r"changed nothing.*it has done nothing"):
        recovery.recover_group(states, "state_corruption")
    assert done(states) == before
    assert recovery.group_reports()[0].status == "failed"
    store.agent("other").set("done", [])
    with pytest.raises(RecoveryFailedError, match="of a group with all of them"):
        sync.recovery.Recovery(store).recover_group([*states, store.agent("other")], "drift")


def test_what_cannot_be_meant_is_refused_and_leaves_no_report(store: sync.Store) -> None:
    states = team(store)
    recovery = sync.recovery.Recovery(store)
    for point in ("nope", 3, "main@99"):
        with pytest.raises(CheckpointNotFoundError, match="checkpoint of a group called"):
            recovery.recover_group(states, "drift", point=point)
    with pytest.raises(ScopeNotFoundError, match="agent:nobody"):
        recovery.recover_group([*states, "agent:nobody"], "drift")
    assert recovery.group_reports() == []
    assert recovery.statistics().recoveries == 0
    report = recovery.recover_group(states, "drift", point="together")
    assert "served: named" in str(report)


@pytest.mark.parametrize("face", ["blocking", "async"])
def test_a_check_that_hangs_ends_the_recovery_of_a_group(
    place: Place, face: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And what it writes later is refused, and its members can be recovered at once."""
    store = place.open()
    states = team(store)
    states[1].set("done", ["odd"])
    begun, goes_on, ended = threading.Event(), threading.Event(), threading.Event()
    refused: list[type[BaseException]] = []
    wait_for = together.wait_for

    def wait(looked: Any, seconds: float) -> None:
        assert begun.wait(60)  # the time is over while the check is made, and not before
        wait_for(looked, seconds)

    def hang(state: Any) -> None:
        begun.set()
        assert goes_on.wait(60)
        try:
            state.set("note", "too late")
        except HoldfastError as error:
            refused.append(type(error))
        ended.set()

    monkeypatch.setattr(together, "wait_for", wait)
    try:
        with pytest.raises(RecoveryFailedError, match=r"changed nothing.*more than 0\.05 s"):
            if face == "blocking":
                recovery = sync.recovery.Recovery(store, validate=[hang])
                recovery.recover_group(states, "state_corruption", timeout=0.05)
            else:
                checked = holdfast.recovery.Recovery(given(store), validate=[hang])
                asyncio.run(checked.recover_group(states, "state_corruption", timeout=0.05))
    finally:
        goes_on.set()
    assert ended.wait(60)
    assert refused == [LeaseLostError]
    assert done(states) == [[], ["odd"], []]
    recovery = sync.recovery.Recovery(store)
    assert recovery.group_reports()[0].status == "failed"
    assert recovery.recover_group(states, "state_corruption").success
    assert done(states) == [[], [], []]
    with pytest.raises(InvalidInputError, match="timeout"):
        recovery.recover_group(states, "state_corruption", timeout=-1)


@pytest.mark.parametrize("which", [0, 1])
def test_a_group_may_be_named_by_itself_or_by_a_checkpoint_of_any_agent(
    store: sync.Store, which: int
) -> None:
    """The same number may be that of another group's checkpoint in another agent."""
    a, b = store.agent("a"), store.agent("b")
    a.set("n", 1)
    for n in range(3):
        b.set("n", n)
    groups, recovery = sync.checkpoints.CheckpointGroups(store), sync.recovery.Recovery(store)
    made = []
    for n in ("one", "two"):
        a.set("n", n)
        b.set("n", n)
        made.append(groups.create([a, b], n))
    ids = [[one.id for one in group.checkpoints] for group in made]
    assert ids[0][1] != ids[0][0]
    for point in (made[which], *made[which].checkpoints, made[which].name):
        a.set("n", "odd")
        b.set("n", "odd")
        report = recovery.recover_group([a, b], "drift", point=point)
        assert dict(report.points) == dict(zip(("agent:a", "agent:b"), ids[which], strict=True))
        assert a.get("n") == b.get("n") == made[which].name
    with pytest.raises(CheckpointNotFoundError, match="no part of a group"):
        recovery.recover_group([a, b], "drift", point=a.checkpoint("alone"))
    with pytest.raises(CheckpointNotFoundError, match="of a group called"):
        recovery.recover_group([a, b], "drift", point=ids[0][0])


def test_a_named_group_or_a_time_can_be_asked_for(store: sync.Store) -> None:
    states = team(store)
    work(states)
    item = states[2].item("done")
    assert item is not None
    sync.checkpoints.CheckpointGroups(store).create(states, "later")
    for state in states:
        state.set("done", "nonsense")
    recovery = sync.recovery.Recovery(store)
    recovery.recover_group(states, "drift", at=item.time)
    assert done(states) == [["find it"], ["find it!"], ["find it!!"]]
    recovery.recover_group(states, "drift", point="together")
    assert done(states) == [[], [], []]
    assert [one.strategy for one in recovery.group_reports()] == ["named", "point_in_time"]


def test_a_change_of_several_is_on_one_side_of_a_time_whatever_clocks_say(place: Place) -> None:
    """The machine that moves the money is two seconds ahead, so by each agent's own history it did
    so before the time for one of them, and after it for the other."""
    right, ahead = Hands(), Hands()
    ahead.wall += 2
    store, other = place.open(clock=right.clock), place.open(clock=ahead.clock)
    states = [store.agent("a"), store.agent("b"), store.agent("c")]
    for state in states:
        state.set("money", 100)
    sync.agents.Mailbox(states[0]).send("first")
    right.move(10)
    ahead.move(10)
    a, b, c = (other.agent(one) for one in "abc")
    with other.change() as change:  # which is divided only once that of a and b is undone
        change[b].set("money", 50)
        change[c].set("money", 150)
    with other.change() as change:
        change[a].set("money", 50)
        change[b].set("money", 100)
    with sync.agents.Mailbox(a).next() as mail:
        mail.change.set("did", mail.content)
        mail.send(b, "second")
    right.move(1)
    for name in "ac":
        store.agent(name).set("note", "by the right clock, so before the time")
    right.move(5)
    report = sync.recovery.Recovery(store).recover_group(states, "drift", at=right.time(11.5))
    assert [state.get("money") for state in states] == [100, 100, 100]
    assert states[0].get("did") is None
    assert [one.content for one in sync.agents.Mailbox(states[0]).waiting()] == ["first"]
    assert not sync.agents.Mailbox(states[1]).waiting()
    assert "agent:a by 3 entries" in report.why
    assert "agent:c by 2 entries" in report.why
    assert store.verify().ok


def test_a_time_before_which_only_a_part_of_a_first_change_lies_is_refused(place: Place) -> None:
    right, ahead = Hands(), Hands()
    ahead.wall += 2
    store, other = place.open(clock=right.clock), place.open(clock=ahead.clock)
    store.agent("a").set("money", 100)
    with other.change() as change:
        change[other.agent("a")].set("money", 50)
        change[other.agent("b")].set("money", 50)
    right.move(1)
    store.agent("b").set("note", "by the right clock")
    recovery = sync.recovery.Recovery(store)
    with pytest.raises(PointNotFoundError, match="its first entry is of a change of several"):
        recovery.recover_group(["agent:a", "agent:b"], "drift", at=right.time(1))
    assert recovery.group_reports() == []
    assert [store.agent(one).get("money") for one in "ab"] == [50, 50]


def test_a_task_that_was_handed_over_since_has_one_owner(store: sync.Store) -> None:
    states = team(store)
    planner, searcher, _ = states
    kept = sync.agents.AgentState(planner)
    kept.put("tasks", "t1", Task(id="t1", title="a search"))
    kept.append("conversation", Message(role="user", content="search"))
    sync.checkpoints.CheckpointGroups(store).create(states, "with the task")
    handovers = sync.agents.Handovers(store)
    handovers.hand_over(planner, searcher, "t1", reason="it searches")
    assert sync.recovery.Recovery(store).recover_group(states, "state_corruption").success
    owners = [state for state in states if sync.agents.AgentState(state).ids("tasks") == ["t1"]]
    assert owners == [searcher]
    assert str(handovers.owner(planner, "t1")) == "agent:searcher"


def test_one_that_ends_at_any_commit_is_all_or_none_and_is_ended_by_another(place: Place) -> None:
    for nth in itertools.count(1):
        with place.open() as store:
            states = team(store)
            work(states)
            before = done(states)
            known = len(sync.recovery.Recovery(store).group_reports())
        storage = Faulty(place.storage())
        dying = sync.Store(StoreHandle(open_core(place.url, storage=storage, **place.options())))
        storage.plan = (Fault("commit", storage.calls["commit"] + nth, onward=True),)
        try:
            sync.recovery.Recovery(dying).recover_group([f"agent:{one}" for one in NAMES], "drift")
        except HoldfastError:
            ended = False
        else:
            ended = True
        finally:
            storage.plan = ()
            storage.close()
        if ended:
            assert nth > 5
            return
        with place.open() as store:
            states = [store.agent(name) for name in NAMES]
            assert done(states) in (before, [[], [], []]), nth
            for one in store.leases():
                try:
                    store.break_lease(one.name)
                except LeaseNotFoundError:
                    continue
            recovery = sync.recovery.Recovery(store)
            begun = len(recovery.group_reports()) > known
            if nth % 2:
                recovery.resume_groups()
            else:
                sync.recovery.boot(store)
            if not begun:
                recovery.recover_group(states, "drift")  # it had not begun
            assert recovery.group_reports(1)[0].success
            assert recovery.resume_groups() == []
            assert done(states) == [[], [], []]
            work(states)
            assert done(states) == [["find it"], ["find it!"], ["find it!!"]], nth
            assert store.verify().findings == []
            for name in NAMES:
                store.delete(f"agent:{name}")
