"""Several agents recovered to one moment: all or none, and their letters come once."""

from __future__ import annotations

import itertools
import threading
from contextlib import suppress
from typing import Any

import pytest
from store_kit import Place

from holdfast import sync
from holdfast.agents import Message, Task
from holdfast.errors import (
    CheckpointNotFoundError,
    HoldfastError,
    MissingError,
    RecoveryFailedError,
    ScopeNotFoundError,
)
from holdfast.storage.wrappers import Fault, Faulty
from holdfast.store.commit.group import Core
from holdfast.store.history.handle import StoreHandle
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


def taken_back(reports: dict[Any, Any]) -> dict[str, int]:
    """How many letters were taken out of whose inbox."""
    steps = {str(scope): report.steps[-1][1].result for scope, report in reports.items()}
    return {scope: n for scope, one in steps.items() if (n := one["letters_taken_back"])}


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
    reports = recovery.recover_group([a, b], "state_corruption")
    assert [state.get("x") for state in (a, b)] == [1, 1]
    assert "agent:b" in reports[a.scope].passed["with a fork"]
    recovery.recover_group([a, b], "state_corruption", point="with a fork")
    assert [state.get("x") for state in (a, b)] == [1, "of the fork"]


@pytest.mark.spec("D51")
def test_a_group_goes_back_to_one_moment_and_its_letters_come_once(store: sync.Store) -> None:
    states = team(store)
    work(states)
    sync.agents.Mailbox(states[1]).send("from outside")
    assert done(states) == [["find it"], ["find it!"], ["find it!!"]]
    reports = sync.recovery.Recovery(store).recover_group(states, "state_corruption")
    assert list(reports) == [state.scope for state in states]
    assert len({report.id for report in reports.values()}) == 1
    for report in reports.values():
        assert (report.success, report.strategy) == (True, "newest_valid")
        assert report.procedure == "group_recovery"
    assert taken_back(reports) == {"agent:searcher": 1, "agent:writer": 1}
    kept = sync.recovery.Recovery(store)
    assert {state.scope: kept.reports(state)[0] for state in states} == reports
    assert [one.status for one in kept.notices()] == ["succeeded"] * 3
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
    assert [recovery.reports(state)[0].status for state in states] == ["failed"] * 3
    store.agent("other").set("done", [])
    with pytest.raises(RecoveryFailedError, match="of a group with all of them"):
        sync.recovery.Recovery(store).recover_group([*states, store.agent("other")], "drift")


def test_what_cannot_be_meant_is_refused_and_leaves_no_report(store: sync.Store) -> None:
    states = team(store)
    recovery = sync.recovery.Recovery(store)
    for point in ("nope", "main@99"):
        with pytest.raises(CheckpointNotFoundError, match="checkpoint of a group called"):
            recovery.recover_group(states, "drift", point=point)
    with pytest.raises(ScopeNotFoundError, match="agent:nobody"):
        recovery.recover_group([*states, "agent:nobody"], "drift")
    assert recovery.statistics().recoveries == 0
    reports = recovery.recover_group(states, "drift", point="together")
    assert "served: named" in str(reports[states[0].scope])


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
        reports = recovery.recover_group([a, b], "drift", point=point)
        assert [one.restored_from for one in reports.values()] == ids[which]
        assert a.get("n") == b.get("n") == made[which].name
    with pytest.raises(CheckpointNotFoundError, match="no part of a group"):
        recovery.recover_group([a, b], "drift", point=a.checkpoint("alone"))
    with pytest.raises(CheckpointNotFoundError, match="of a group called"):
        recovery.recover_group([a, b], "drift", point=ids[0][0])


def test_a_task_that_was_handed_over_since_has_one_owner(store: sync.Store) -> None:
    states = team(store)
    planner, searcher, _ = states
    kept = sync.agents.AgentState(planner)
    kept.put("tasks", "t1", Task(id="t1", title="a search"))
    kept.append("conversation", Message(role="user", content="search"))
    sync.checkpoints.CheckpointGroups(store).create(states, "with the task")
    handovers = sync.agents.Handovers(store)
    handovers.hand_over(planner, searcher, "t1", reason="it searches")
    sync.recovery.Recovery(store).recover_group(states, "state_corruption")
    owners = [state for state in states if sync.agents.AgentState(state).ids("tasks") == ["t1"]]
    assert owners == [searcher]
    assert str(handovers.owner(planner, "t1")) == "agent:searcher"


def test_one_that_ends_at_any_commit_is_all_or_none(place: Place) -> None:
    """And there is nothing to go on with: it is asked for again, or it was done."""
    for nth in itertools.count(1):
        with place.open() as store:
            states = team(store)
            work(states)
            before = done(states)
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
            assert nth > 4
            return
        with place.open() as store:
            states = [store.agent(name) for name in NAMES]
            assert done(states) in (before, [[], [], []]), nth
            for one in store.leases():
                with suppress(MissingError):
                    store.break_lease(one.name)
            recovery = sync.recovery.Recovery(store)
            back = done(states) != before
            assert all(bool(recovery.reports(state)) == back for state in states)
            sync.recovery.boot(store)
            if not back:
                recovery.recover_group(states, "drift")
            assert all(recovery.reports(state)[0].success for state in states)
            assert done(states) == [[], [], []]
            work(states)
            assert done(states) == [["find it"], ["find it!"], ["find it!!"]], nth
            assert store.verify().findings == []
            for name in NAMES:
                store.erase(f"agent:{name}")


def test_what_others_write_meanwhile_is_told_as_lost_and_nothing_is_divided(
    store: sync.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    states = team(store)
    run, writes = Core.run, [lambda: states[2].set("done", ["late"])]

    def overtaken(core: Core, change: Any) -> Any:
        if len(change.targets) > 3 and writes:
            write = threading.Thread(target=writes.pop())
            write.start()
            write.join()
        return run(core, change)

    monkeypatch.setattr(Core, "run", overtaken)
    reports = sync.recovery.Recovery(store).recover_group(states, "drift")
    assert not writes
    assert done(states) == [[], [], []]
    assert [one.lost for one in reports.values()] == ["nothing", "nothing", "1 entries after it"]
