"""Boot recovery: what a killed process left unfinished comes to an end, each by its own choice."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from store_kit import Place, put_row, rows_of

import holdfast
from holdfast import sync
from holdfast.agents import MachineArrow, MachineDefinition, MachineState
from holdfast.agents.agent_keys import task_key
from holdfast.errors import HoldfastError, InvalidInputError
from holdfast.recovery import Procedure
from holdfast.recovery.records import Records
from holdfast.store.history.handle import StoreHandle
from holdfast.store.inner import own_change
from holdfast.store.names import rowkinds

KILLED = """
import os, signal, sys
from holdfast.agents import MachineArrow, MachineDefinition, MachineState, RetryPolicy
from holdfast import sync
url, key, signer = sys.argv[1], sys.argv[2] or None, sys.argv[3]
store = sync.open(url, key=key, durability="normal", signer=signer)
state = store.agent("7")
die = lambda step: os.kill(os.getpid(), signal.SIGKILL)
arrow = MachineArrow("sent", work=die, recover="complete")
mail = MachineDefinition("written", {"written": MachineState(on={"send": arrow}),
                                     "sent": MachineState()})
sync.agents.Mailbox(state).send({"order": 17}, id="order-17")
state.set("plan", 1)
machine = sync.agents.Machine(state, mail, "post")
machine.start()
with sync.agents.Mailbox(state, retry=RetryPolicy()).next():
    with sync.checkpoints.Checkpoints(state).operation("deploy"):
        state.set("plan", 2)
        with sync.agents.Effects(state).once("charge", key="order-17"):
            with sync.agents.Effects(state).once("mail"):
                machine.fire("send", to="Ann")
"""


def damage(place: Place, number: int) -> bytes:
    """Flip a bit of an entry behind the store's back; its key."""
    place.close()
    storage = place.storage()
    key, row = rows_of(storage, b"E")[number]
    put_row(storage, key, row[:-3] + bytes([row[-3] ^ 1]) + row[-2:])
    storage.close()
    return key


def post(sent: list[str], **more: Any) -> MachineDefinition:
    """A machine whose work is to send."""
    more = {"recover": "complete"} | more
    arrow = MachineArrow("sent", work=lambda step: sent.append(step.id), **more)
    states = {"written": MachineState(on={"send": arrow}), "sent": MachineState()}
    return MachineDefinition("written", states)


def killed(place: Place) -> sync.Store:
    """A store whose process was killed in the middle of everything."""
    if place.engine == "memory":
        pytest.skip("a process is needed")
    place.open()
    command = [sys.executable, "-c", KILLED, place.url, place.key or "", place.signer]
    assert subprocess.run(command, env=place.environment(), check=False).returncode == -9
    return place.reopen()


@pytest.mark.spec("M73", "M74", "S82", "S83")
def test_everything_a_killed_process_left_is_found_and_settled(place: Place) -> None:
    store = killed(place)
    sent: list[str] = []
    emitted: list[Any] = []
    report = sync.recovery.boot(
        store,
        machines={"post": post(sent)},
        requests=lambda state, letter: emitted.append(letter.content),
    )
    outcomes = {(one.kind, one.what): one.outcome for one in report.items}
    assert outcomes == {
        ("operation", "deploy"): "rolled_back",
        ("transition", "post"): "completed",
        ("effect", "charge order-17"): "retry",
        ("effect", "mail"): "left",
        ("request", "order-17"): "retry",
    }
    state = store.agent("7")
    assert state.get("plan") == 1
    assert len(sent) == 1
    assert sync.agents.Machine(state, post(sent), "post").now().state == "sent"
    assert sync.agents.Effects(state).get("charge", key="order-17").status == "planned"
    assert emitted == [{"order": 17}]
    [letter] = sync.agents.Mailbox(state).waiting()
    assert (letter.id, letter.tries, letter.kind) == ("order-17", 1, "daemon_restart")
    assert [one.what for one in report.left] == ["mail"]
    assert "changes: none is ever unfinished" in str(report)
    again = sync.recovery.boot(store, machines={"post": post(sent)})
    assert {one.kind for one in again.items} == {"effect", "request"}
    assert len(sent) == 1


def test_what_nobody_declared_is_left_to_the_caller(place: Place) -> None:
    store = killed(place)
    sent: list[str] = []
    report = sync.recovery.boot(store)
    assert {(one.kind, one.outcome) for one in report.left} == {
        ("transition", "left"),
        ("effect", "left"),
    }
    report = sync.recovery.boot(store, machines={"post": post(sent, recover="ask")})
    assert "settle it" in str(report)
    report = sync.recovery.boot(
        store, machines={"post": post(sent, recover="roll_back")}, effects=lambda state, one: "done"
    )
    outcomes = {(one.kind, one.what): one.outcome for one in report.items}
    assert outcomes["transition", "post"] == "rolled_back"
    assert outcomes["effect", "mail"] == "completed"
    assert report.left == []
    assert sync.agents.Effects(store.agent("7")).get("mail").status == "done"


def test_work_that_fails_again_keeps_nothing_else_from_being_settled(place: Place) -> None:
    store = killed(place)
    arrow = MachineArrow("sent", work=lambda step: 1 // 0, recover="complete")
    broken = MachineDefinition(
        "written", {"written": MachineState(on={"send": arrow}), "sent": MachineState()}
    )
    report = sync.recovery.boot(store, machines={"post": broken})
    assert ("transition", "left") in {(one.kind, one.outcome) for one in report.items}
    assert ("effect", "retry") in {(one.kind, one.outcome) for one in report.items}
    assert "ZeroDivisionError" in str(report)


def test_functions_that_raise_keep_nothing_else_from_being_settled(place: Place) -> None:
    store = killed(place)
    sync.agents.Mailbox(store.agent("8")).send({"order": 18}, id="order-18")
    seen: list[str] = []

    def requests(state: sync.State, letter: Any) -> None:
        seen.append(letter.id)
        raise ValueError("a bug of the user")

    def effects(state: sync.State, effect: Any) -> str:
        raise ValueError("another one")

    report = sync.recovery.boot(
        store, machines={"post": post([])}, requests=requests, effects=effects
    )
    outcomes = {(one.kind, one.what): (one.outcome, one.why) for one in report.items}
    assert outcomes["effect", "mail"] == ("left", "ValueError: another one")
    assert outcomes["effect", "charge order-17"][0] == "retry"
    assert outcomes["transition", "post"][0] == "completed"
    for id_ in ("order-17", "order-18"):
        assert outcomes["request", id_] == ("left", "ValueError: a bug of the user")
    assert seen == ["order-17", "order-18"]


@pytest.mark.spec("X10", "S81")
def test_the_chain_from_the_newest_state_to_defaults(place: Place, tmp_path: Path) -> None:
    """Catches: `newest_valid` that takes another checkpoint than the latest that is whole."""
    names = ("good", "older", "copied", "lost")
    store = place.open()
    for name in names:
        state = store.agent(name)
        for task in (-1, 0, 1):
            state.set("task", task)
            if name == "older":
                state.checkpoint(f"task {task}")
        state.set("task", 2)
    copy = sync.open(f"sqlite:{tmp_path}/copy.db")
    copy.agent("copied").set("task", 3)
    keys = [key for key, _ in rows_of(store._core.storage, b"E")]
    lost, copied, older = (
        [n for n, key in enumerate(keys) if rowkinds.scope_of(key) == number]
        for name in ("lost", "copied", "older")
        for number in (store._core.ledger(holdfast.Scope("agent", name)).number,)
    )
    for number in (*lost, *copied, older[-1]):
        damage(place, number)
    store = place.open()
    recovery = sync.recovery.Recovery(
        store,
        order=["as_it_is", "newest_valid", "copy", "defaults"],
        copies=[copy],
        defaults={"task": 0},
    )
    with copy:
        report = sync.recovery.boot(store, recovery=recovery)
    assert report.methods == {
        "agent:copied": "backup",
        "agent:good": "primary",
        "agent:lost": "default",
        "agent:older": "checkpoint",
    }
    found = {name: store.agent(name).get("task") for name in names}
    assert found == {"good": 2, "older": 1, "copied": 3, "lost": 0}
    chain = {str(one.scope): one.report for one in report.items if one.report is not None}
    assert {name: set(one.passed) for name, one in chain.items()} == {
        "agent:older": {"as_it_is"},
        "agent:copied": {"as_it_is", "newest_valid"},
        "agent:lost": {"as_it_is", "newest_valid", "copy"},
    }
    assert "everything" in chain["agent:lost"].lost
    for one in chain.values():
        assert [step.step for _, step in one.steps if step.success][-1] == "validate_state"


def test_a_state_that_cannot_be_brought_back_is_named_and_others_are(place: Place) -> None:
    store = place.open()
    store.agent("a").set("k", 1)
    damage(place, 0)
    store = place.open()
    store.agent("b").set("k", 1)
    recovery = sync.recovery.Recovery(
        store,
        procedures=[
            Procedure.of(
                {
                    "id": "once",
                    "triggers": ["corruption_detected"],
                    "steps": [{"type": "backup_current"}, {"type": "locate_checkpoint"}],
                }
            )
        ],
    )
    report = sync.recovery.boot(store, recovery=recovery)
    assert report.methods == {"agent:a": "none", "agent:b": "primary"}
    assert [(one.kind, one.outcome) for one in report.left] == [("state", "left")]


def test_a_recovery_that_was_cut_short_goes_on(place: Place) -> None:
    store = place.open()
    state = store.agent("7")
    state.set("task", 1)
    state.checkpoint("good")
    state.set("task", 2)
    recovery = sync.recovery.Recovery(store)
    failure = holdfast.recovery.AgentFailure("state_corruption").check()
    records = Records(StoreHandle(store._core), state.scope)
    records.begin(failure, recovery.select(failure)).keep()
    report = sync.recovery.boot(store)
    assert [(one.kind, one.outcome) for one in report.items] == [("recovery", "completed")]
    assert state.get("task") == 1


def test_an_agent_that_somebody_runs_is_left_alone(place: Place) -> None:
    store = place.open()
    state = store.agent("7")
    state.set("task", 1)
    running = sync.checkpoints.Checkpoints(state).operation("work")
    with store.lease("agent/7"), running:
        state.set("task", 2)
        report = sync.recovery.boot(place.open())
        assert "somebody runs it" in str(report)
        assert state.get("task") == 2
    assert sync.recovery.boot(place.open()).items == []


def test_a_task_that_a_restore_brought_back_is_taken_out_again(place: Place) -> None:
    store = place.open()
    a, b = store.agent("a"), store.agent("b")
    parts = own_change(a)
    parts.part(a._handle).set(task_key("t1"), {"id": "t1", "status": "running"})
    plan = parts.plan()
    assert plan is not None
    a._run(plan)
    before = a.checkpoint("before")
    handovers = sync.agents.Handovers(store)
    handovers.hand_over(a, b, "t1", reason="it is theirs")
    a.restore(before)
    assert a.exists(task_key("t1"))
    report = sync.recovery.boot(store)
    assert [(one.kind, one.what, one.outcome) for one in report.items] == [
        ("handover", "t1", "completed")
    ]
    assert not a.exists(task_key("t1"))
    assert sync.recovery.boot(store).items == []


@pytest.mark.parametrize("how", ["delete", "erase"])
def test_a_scope_that_goes_meanwhile_keeps_no_other_from_being_settled(
    place: Place, how: str
) -> None:
    store = place.open()
    for name in "abc":
        sync.agents.Mailbox(store.agent(name)).send(name)
    heard = []

    def request(state: sync.State, letter: Any) -> None:
        heard.append(letter.content)
        if letter.content == "a":
            getattr(store, how)("agent:b")

    report = sync.recovery.boot(store, requests=request)
    assert heard == ["a", "c"]
    assert report.left == []
    with pytest.raises(HoldfastError, match="agent:b"):
        sync.recovery.boot(store, scopes=["agent:c", "agent:b"], requests=request)
    assert heard == ["a", "c"]  # what is not there is said before anything is done


@pytest.mark.spec("S80")
def test_nothing_is_done_before_the_system_is_ready(place: Place) -> None:
    store = place.open()
    sync.agents.Mailbox(store.agent("7")).send("hello")
    ready = threading.Event()
    seen: list[str] = []

    def wait() -> None:
        assert ready.wait(60)
        seen.append("ready")

    threading.Timer(0.05, ready.set).start()
    sync.recovery.boot(
        store, ready=wait, requests=lambda state, letter: seen.append(letter.content)
    )
    assert seen == ["ready", "hello"]


@pytest.mark.spec("S76", "S77", "S78", "S79", "S85")
def test_the_last_checkpoints_hold_queue_work_and_session(place: Place) -> None:
    """What waits, what is at work and the session; any scope takes part, unless nothing changed."""
    store = place.open()
    agent, session, other = store.agent("7"), store.session("s1"), store.custom("service")
    idle = store.agent("idle")
    idle.set("k", 1)
    idle.checkpoint("before")
    with sync_shutdown(store, [agent, session, other, idle]) as last:
        sync.agents.Mailbox(agent).send("question")
        sync.agents.Effects(agent).plan("answer", id="1")
        session.set("user", "ann")
        other.set("own", "data")
        made = last.finish()
    assert {str(one.scope) for one in made} == {"agent:7", "session:s1", "custom:service"}
    store = place.reopen()
    there = {str(one.scope): store.scope(one.scope).at(one.id) for one in made}
    assert there["session:s1"].get("user") == "ann"
    assert there["custom:service"].get("own") == "data"
    assert [one["content"] for one in there["agent:7"].get("$mailbox/inbox/messages")] == [
        "question"
    ]
    assert there["agent:7"].keys("$effects/open/")
    kinds = {one.kind: one.outcome for one in sync.recovery.boot(store).items}
    assert kinds == {"effect": "retry", "request": "retry"}


@pytest.mark.spec("S65", "S66")
def test_what_waits_at_a_shutdown_is_in_its_checkpoint_and_emitted_after_the_restart(
    place: Place,
) -> None:
    """Catches: a checkpoint without the mailbox; a boot that emits nothing, or what is done."""
    store = place.open()
    state = store.agent("7")
    with sync_shutdown(store, [state]):
        mailbox = sync.agents.Mailbox(state)
        for number in range(4):
            mailbox.send({"request": number}, id=f"r{number}")
        assert mailbox.process(lambda mail: None, limit=1) == 1
    store = place.reopen()
    state, other = store.agent("7"), store.agent("other")
    [last] = state.checkpoints()
    assert last.metadata["trigger"] == "shutdown"
    sync.agents.Mailbox(state).remove(4)  # since then: the checkpoint knows nothing of it
    sync.checkpoints.Checkpoints(other).restore(last.id, source=state)
    waiting = [letter.content for letter in sync.agents.Mailbox(other).waiting()]
    assert waiting == [{"request": 1}, {"request": 2}, {"request": 3}]
    emitted: list[tuple[str, Any]] = []
    sync.recovery.boot(
        store,
        requests=lambda state, letter: emitted.append((str(state.scope), letter.content)),
    )
    assert emitted == [
        *(("agent:7", {"request": number}) for number in (1, 2)),
        *(("agent:other", content) for content in waiting),
    ]


def sync_shutdown(store: sync.Store, scopes: Any) -> Any:
    """Checkpoints at the end, without signals."""
    return holdfast.checkpoints.ShutdownCheckpoints(store, scopes, signals=())


def test_what_makes_no_sense_is_refused(store: sync.Store) -> None:
    for more in ({"machines": {"m": 1}}, {"wait": -1}, {"check": 2}, {"ready": 1}, {"scopes": [1]}):
        with pytest.raises(InvalidInputError):
            sync.recovery.boot(store, **more)
    with pytest.raises(InvalidInputError, match="open store"):
        sync.recovery.boot("store")
