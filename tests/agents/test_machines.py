"""State machines: what a trigger does, what is refused, and what is kept of it."""

from __future__ import annotations

import contextlib
import itertools
import threading
from copy import deepcopy
from dataclasses import replace
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from machine_kit import HAIKU
from store_kit import Hands, Place

from holdfast import Gate, GateRequest, sync
from holdfast.agents import MachineArrow, MachineDefinition, MachineRule, MachineState, MachineStep
from holdfast.errors import (
    Conflict,
    GateRefusedError,
    InvalidInputError,
    InvalidValueError,
    MachineDataError,
    TransitionRefusedError,
)


def two(**arrow: Any) -> MachineDefinition:
    """Two states, and an arrow there."""
    return MachineDefinition(
        "here",
        {"here": MachineState(on={"go": MachineArrow("there", **arrow)}), "there": MachineState()},
    )


@pytest.mark.spec("M1", "M5", "M17", "M21", "M73")
def test_a_machine_goes_its_way_and_is_there_after_a_restart(place: Place) -> None:
    machine = sync.agents.Machine(place.open().agent("poet"), HAIKU)
    assert machine.now() is None
    made = machine.fire("topic", topic="rain")
    assert (made.from_state, made.to_state, made.trigger) == (
        "awaiting_topic",
        "generating",
        "topic",
    )
    now = machine.now()
    assert now is not None
    assert (now.state, now.data, now.version) == ("generating", {"lines": [], "topic": "rain"}, 2)
    assert now.prompt == "A haiku about rain …"

    machine = sync.agents.Machine(place.reopen().agent("poet"), HAIKU)
    assert machine.now() == now
    machine.fire("done")
    machine.fire("no")
    log = machine.transitions()
    assert [(one.number, one.kind, one.to_state, one.version) for one in log] == [
        (1, "start", "awaiting_topic", 1),
        (2, "step", "generating", 2),
        (3, "step", "complete", 3),
        (4, "step", "goodbye", 4),
    ]
    assert machine.validate() == ()


@pytest.mark.spec("M18", "M22", "M24", "M25", "M27")
def test_what_a_snapshot_tells(timed: sync.Store, hands: Hands) -> None:
    state = timed.agent("poet")
    machine = sync.agents.Machine(state, HAIKU, "haiku")
    started = machine.start(mood="calm")
    assert (started.agent_id, started.machine) == ("agent:poet", "haiku")
    assert (started.created_at, started.updated_at) == (hands.time(), hands.time())
    hands.move(60)
    saved = machine.save(metadata={"model": "none"})
    assert (saved.created_at, saved.updated_at) == (hands.time(), hands.time(60))
    assert (saved.data, saved.metadata) == ({"mood": "calm"}, {"model": "none"})
    hands.wall -= 600  # the clock is set back
    assert machine.save({"mood": "gay"}).updated_at == hands.time()
    assert machine.validate() == ()


@pytest.mark.spec("M31", "M32", "M33", "M34", "M41")
def test_what_a_transition_tells(timed: sync.Store, hands: Hands) -> None:
    machine = sync.agents.Machine(timed.agent("poet"), HAIKU, "haiku")
    machine.start()
    hands.move(5)
    made = machine.fire("topic", topic="rain")
    [found] = machine.transitions(since=2)
    assert found == made
    assert (found.agent_id, found.machine, found.kind) == ("agent:poet", "haiku", "step")
    assert (found.from_state, found.to_state, found.trigger) == (
        "awaiting_topic",
        "generating",
        "topic",
    )
    assert (found.timestamp, found.success, found.error) == (hands.time(5), True, None)


@pytest.mark.spec("M19", "M20", "M29", "M99")
def test_what_is_kept_can_be_copied_written_out_and_read_back(place: Place) -> None:
    machine = sync.agents.Machine(place.open().agent("poet"), HAIKU)
    machine.fire("topic", topic="rain")
    with pytest.raises(TransitionRefusedError):
        machine.fire("yes")
    now = machine.now()
    assert now is not None
    assert now.agent_id == "agent:poet"
    for one in (now, *machine.transitions()):
        written = msgspec.json.encode(one)
        assert msgspec.json.decode(written, type=type(one)) == deepcopy(one) == one
    log = machine.transitions()
    again = sync.agents.Machine(place.reopen().agent("poet"), HAIKU)
    assert (again.now(), again.transitions()) == (now, log)


@pytest.mark.spec("M44", "M48", "M49", "M71", "X25")
def test_a_snapshot_is_judged_by_its_definition(store: sync.Store) -> None:
    definition = MachineDefinition(
        "a",
        {"a": MachineState(check=lambda data: None if data.get("n", 0) < 3 else ["n: too many"])},
    )
    good = sync.agents.Machine(store.agent("1"), definition).start(n=1)
    assert definition.validate_state(good) == ()
    for change, problem in (
        ({"agent_id": ""}, "its agent has no name"),
        ({"state": ""}, "its state has no name"),
        ({"state": "b"}, "there is no state 'b'"),
        ({"version": -1}, "its version -1 is negative"),
        (
            {"updated_at": good.created_at - timedelta(seconds=1)},
            "it was changed before it was made",
        ),
        ({"data": {"n": 3}}, "n: too many"),
        ({"data": {"a": [{"": 1}]}}, "data.a[0]: a name is empty, or no text"),
        ({"data": []}, "data is a mapping"),
    ):
        assert problem in definition.validate_state(replace(good, **change))


@pytest.mark.spec("M30", "M35", "M36", "M37", "M45")
def test_refused_attempts_are_in_the_log(timed: sync.Store, hands: Hands) -> None:
    machine = sync.agents.Machine(timed.agent("poet"), HAIKU)
    machine.start()
    with pytest.raises(
        TransitionRefusedError, match=r"leads nowhere from 'awaiting_topic'; 'topic' do"
    ):
        machine.fire("done")
    hands.move(1)
    with pytest.raises(TransitionRefusedError) as refused:
        machine.fire("topic", topic="!")
    assert refused.value.problems == ("topic: say it in a few words",)
    start, first, second = machine.transitions()
    assert (first.success, first.to_state, first.trigger) == (False, "", "done")
    assert (second.success, second.to_state, second.version) == (False, "generating", 1)
    assert second.error is not None
    assert second.error.startswith(
        "TransitionRefusedError: agent:poet: the machine 'main' does not"
    )
    assert second.timestamp == hands.time(1)
    assert len({start.id, first.id, second.id}) == 3
    now = machine.now()
    assert now is not None
    assert (now.state, now.version) == ("awaiting_topic", 1)
    assert machine.transitions(success=False) == [first, second]


@pytest.mark.spec("M8", "M74", "M100")
@pytest.mark.parametrize("where", ["guard", "exit", "action", "enter"])
def test_an_error_of_a_function_leaves_the_machine_where_it_was(
    store: sync.Store, where: str
) -> None:
    fail = [True]

    def function(step: MachineStep) -> Any:
        step.data["half"] = True
        step.change.set("note", "half done")
        if fail[0]:
            raise ValueError("no network")
        return True if where == "guard" else {"by": where}

    on = {"go": MachineArrow("b", **{where: function} if where in ("guard", "action") else {})}
    definition = MachineDefinition(
        "a",
        {
            "a": MachineState(on=on, exit=function if where == "exit" else None),
            "b": MachineState(enter=function if where == "enter" else None),
        },
    )
    state = store.agent("1")
    machine = sync.agents.Machine(state, definition)
    before = machine.start(kept=1)
    with pytest.raises(ValueError, match="no network"):
        machine.fire("go")
    assert machine.now() == before
    assert not state.exists("note")
    assert machine.transitions()[-1].error == "ValueError: no network"
    fail[0] = False
    machine.fire("go")
    now = machine.now()
    assert now is not None
    assert now.state == "b"
    assert now.data == {"kept": 1, "half": True} | ({} if where == "guard" else {"by": where})
    assert state.get("note") == "half done"


def test_functions_are_called_in_order_with_the_same_step(store: sync.Store) -> None:
    called: list[tuple[str, str, str, dict[str, Any]]] = []

    def note(name: str) -> Any:
        def function(step: MachineStep) -> Any:
            called.append((name, step.origin, step.target, dict(step.input)))
            return True if name == "guard" else {name: len(called)}

        return function

    definition = MachineDefinition(
        "a",
        {
            "a": MachineState(
                on={"go": MachineArrow("b", guard=note("guard"), action=note("action"))},
                exit=note("exit"),
                enter=note("never"),
            ),
            "b": MachineState(enter=note("enter")),
        },
    )
    machine = sync.agents.Machine(store.agent("1"), definition)
    machine.start()
    called.clear()
    machine.fire("go", n=1)
    assert [name for name, *_ in called] == ["guard", "exit", "action", "enter"]
    assert {tuple(rest[:2]) for _, *rest in called} == {("a", "b")}
    now = machine.now()
    assert now is not None
    assert now.data == {"never": 1, "exit": 2, "action": 3, "enter": 4}


@pytest.mark.parametrize("answer", [False, None, 0, "too late", ""])
def test_a_guard_says_yes_with_true_alone(store: sync.Store, answer: Any) -> None:
    machine = sync.agents.Machine(store.agent("1"), two(guard=lambda step: answer))
    with pytest.raises(TransitionRefusedError) as refused:
        machine.fire("go")
    assert refused.value.problems == (answer if answer == "too late" else "its guard says no",)


@pytest.mark.spec("X25", "M50")
def test_rules_allow_lists_and_self_transitions(store: sync.Store) -> None:
    loop = {"a": MachineState(on={"again": "a"})}
    with pytest.raises(InvalidInputError, match="again=True"):
        MachineDefinition("a", loop)
    definition = MachineDefinition(
        "open",
        {
            "open": MachineState(
                on={
                    "note": MachineArrow("open", again=True, keep=("text",)),
                    "close": MachineArrow("closed", actors=("chief",), keep=("why",)),
                },
                accepts=(MachineRule("text", pattern="[a-z ]+"),),
            ),
            "closed": MachineState(
                rules=(MachineRule("why", allow=("done", "late"), required=True),),
                only_from=("open",),
            ),
        },
    )
    machine = sync.agents.Machine(store.agent("1"), definition)
    assert machine.fire("note", text="fine").to_state == "open"
    with pytest.raises(TransitionRefusedError, match="text: does not match"):
        machine.fire("note", text="Fine!")
    with pytest.raises(TransitionRefusedError, match="text: is not text"):
        machine.fire("note", text=7)
    with pytest.raises(TransitionRefusedError, match="'close' is for chief alone"):
        machine.fire("close", why="done")
    assert not machine.can("close", why="done")
    with store.acting("chief"):
        assert machine.can("close", why="whatever")
        with pytest.raises(MachineDataError) as wrong:
            machine.fire("close", why="whatever")
        assert wrong.value.problems == ("why: is none of the allowed values",)
        machine.fire("close", why="late")
    assert definition.validate_transition("closed", "open") == (
        "no arrow leads from 'closed' to 'open'",
    )
    assert machine.validate() == ()


@pytest.mark.spec("M6", "M10", "M51", "M76", "M101")
def test_data_that_break_the_rules_are_never_stored(store: sync.Store) -> None:
    definition = MachineDefinition(
        "a",
        {
            "a": MachineState(
                rules=(MachineRule("order.city", pattern="[A-Z].*", required=True),),
                check=lambda data: ["count: too many"] if data.get("count", 0) > 3 else None,
                data={"order": {"city": "Oslo"}},
            )
        },
    )
    machine = sync.agents.Machine(store.agent("1"), definition)
    before = machine.start(count=1)
    for data, problems in (
        ({"order": {}}, ("order.city: is missing",)),
        ({"order": {"city": "oslo"}}, ("order.city: does not match its pattern",)),
        ({"order": {"city": "Oslo"}, "count": 9}, ("count: too many",)),
        (
            {"order": {"city": "Oslo", "": 1}, "list": [{" ": 2}]},
            (
                "data.order: a name is empty, or no text",
                "data.list[0]: a name is empty, or no text",
            ),
        ),
    ):
        with pytest.raises(MachineDataError) as wrong:
            machine.save(data)
        assert wrong.value.problems == problems
        assert "oslo" not in str(wrong.value)
    with pytest.raises(InvalidInputError):
        machine.save(["a"])  # type: ignore[arg-type]
    assert machine.now() == before


def test_what_cannot_be_stored_is_a_failed_attempt(store: sync.Store) -> None:
    machine = sync.agents.Machine(store.agent("1"), two(action=lambda step: {"x": {1, 2}}))
    with pytest.raises(InvalidValueError):
        machine.fire("go")
    last = machine.transitions()[-1]
    assert (last.success, last.to_state) == (False, "there")


class Strict(Gate):
    """A gate that lets no machine get there."""

    def before(self, request: GateRequest) -> GateRequest:
        for one in request.operations:
            if one.key.endswith("/now") and one.value["state"] == "there":
                raise GateRefusedError("nobody gets there")
        return request


class Renaming(Gate):
    """A gate that sends machines elsewhere."""

    def before(self, request: GateRequest) -> GateRequest:
        for one in request.operations:
            if one.key.endswith("/now") and one.value["state"] == "b":
                one.value = {**one.value, "state": "c"}
        return request


def test_gates_stand_before_machines(store: sync.Store) -> None:
    machine = sync.agents.Machine(store.agent("1"), two())
    machine.start()
    gate = Strict()
    store.add_gate(gate)
    with pytest.raises(GateRefusedError):
        machine.fire("go")
    assert machine.transitions()[-1].error == "GateRefusedError: nobody gets there"
    store.remove_gate(gate)
    ring = {name: MachineState(on={"go": to}) for name, to in ("ab", "bc", "ca")}
    other = sync.agents.Machine(store.agent("2"), MachineDefinition("a", ring))
    other.start()
    store.add_gate(Renaming())
    other.fire("go")
    now = other.now()
    assert now is not None
    assert now.state == "c"
    assert other.fire("go").to_state == "a"


@pytest.mark.spec("M75")
def test_who_is_slower_gets_a_conflict_and_is_in_the_log(place: Place) -> None:
    one, other = place.open(), place.open()
    away = sync.agents.Machine(other.agent("1"), HAIKU)

    def slow(step: MachineStep) -> bool:
        away.fire("topic", topic="snow")
        return True

    states = {**HAIKU.states}
    states["awaiting_topic"] = MachineState(
        on={"topic": MachineArrow("generating", guard=slow, keep=("topic",))}
    )
    machine = sync.agents.Machine(one.agent("1"), MachineDefinition("awaiting_topic", states))
    machine.start()
    with pytest.raises(Conflict, match="somebody changed what 'topic' rests on"):
        machine.fire("topic", topic="rain")
    now = machine.now()
    assert now is not None
    assert (now.state, now.data["topic"], now.version) == ("generating", "snow", 2)
    assert [(log.success, log.version) for log in machine.transitions()] == [
        (True, 1),
        (True, 2),
        (False, 2),
    ]
    assert machine.validate() == ()


def test_what_another_process_did_is_seen_before_anything_is_refused(place: Place) -> None:
    """The quick way rests on what was last seen; a refusal never does."""
    here = sync.agents.Machine(place.open().agent("1"), HAIKU)
    there = sync.agents.Machine(place.open().agent("1"), HAIKU)
    here.fire("topic", topic="rain")
    there.fire("done")
    assert here.fire("yes").from_state == "complete"  # from its own view: generating
    assert there.fire("topic", topic="snow").from_state == "awaiting_topic"
    here.fire("done")
    with pytest.raises(TransitionRefusedError):
        there.fire("done")
    assert there.validate() == ()


def test_failed_attempts_of_others_do_not_hold_a_transition_up(place: Place) -> None:
    here = sync.agents.Machine(place.open().agent("1"), HAIKU)
    there = sync.agents.Machine(place.open().agent("1"), HAIKU)
    here.fire("topic", topic="rain")
    with pytest.raises(TransitionRefusedError):
        there.fire("yes")
    assert here.fire("done").number == 4
    assert [one.version for one in here.transitions()] == [1, 2, 2, 3]


@pytest.mark.spec("X28", "M110")
def test_threads_allocate_every_version_once(place: Place) -> None:
    ring = MachineDefinition(
        "a", {"a": MachineState(on={"go": "b"}), "b": MachineState(on={"go": "a"})}
    )
    store = place.open()
    sync.agents.Machine(store.agent("1"), ring).start()
    done = []

    def work() -> None:
        machine = sync.agents.Machine(store.agent("1"), ring)
        for _ in range(15):
            with contextlib.suppress(Conflict):
                done.append(machine.fire("go").version)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    machine = sync.agents.Machine(store.agent("1"), ring)
    assert sorted(done) == list(range(2, len(done) + 2))
    assert machine.validate() == ()
    log = machine.transitions(success=True, limit=None)
    assert all(a.to_state == b.from_state for a, b in itertools.pairwise(log))


def test_several_machines_of_one_agent_do_not_touch_each_other(store: sync.Store) -> None:
    state = store.agent("1")
    one, other = (
        sync.agents.Machine(state, HAIKU, "one"),
        sync.agents.Machine(state, two(), "other"),
    )
    one.fire("topic", topic="rain")
    other.fire("go")
    assert [one.now().state, other.now().state] == ["generating", "there"]  # type: ignore[union-attr]
    assert len(one.transitions()) == len(other.transitions()) == 2
    assert state.keys() == []  # all under its own prefix
    for wrong in ("", "a/b", 7, "a" * 101, "a\0b"):
        with pytest.raises(InvalidInputError):
            sync.agents.Machine(state, HAIKU, wrong)  # type: ignore[arg-type]


def test_a_fork_goes_its_own_way(store: sync.Store) -> None:
    state = store.agent("1")
    machine = sync.agents.Machine(state, HAIKU)
    machine.fire("topic", topic="rain")
    trial = sync.agents.Machine(state.fork("trial"), HAIKU)
    trial.fire("done")
    assert trial.now().state == "complete"  # type: ignore[union-attr]
    assert machine.now().state == "generating"  # type: ignore[union-attr]
    assert trial.version(1).state == "awaiting_topic"
    assert trial.version(3).state == "complete"


def test_slips(store: sync.Store) -> None:
    state = store.agent("1")
    machine = sync.agents.Machine(state, HAIKU)
    calls: list[Any] = [
        lambda: sync.agents.Machine(store, HAIKU),  # type: ignore[arg-type]
        lambda: sync.agents.Machine(state, {"initial": "a"}),  # type: ignore[arg-type]
        lambda: machine.fire(""),
        lambda: machine.fire(["topic"]),  # type: ignore[arg-type]
        lambda: machine.can(["topic"]),  # type: ignore[arg-type]
        lambda: machine.settle("somehow"),
        lambda: machine.settle("done"),
        lambda: machine.transitions(since="yesterday"),  # type: ignore[arg-type]
        lambda: machine.transitions(limit=-1),
        lambda: machine.transitions(success="yes"),  # type: ignore[arg-type]
        lambda: machine.version("1"),  # type: ignore[arg-type]
        lambda: machine.replay(-1),
        lambda: machine.clean("now"),  # type: ignore[arg-type]
    ]
    for call in calls:
        with pytest.raises(InvalidInputError):
            call()
    for call in (lambda: machine.save({}), lambda: machine.replay(1)):
        with pytest.raises(TransitionRefusedError, match="never started"):
            call()
    assert state._handle.place()[2] == 0
    machine.start()
    with pytest.raises(TransitionRefusedError, match="started already"):
        machine.start(mood="calm")
    assert machine.start().version == 1
