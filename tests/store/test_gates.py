"""Gates say no by raising; what they say or do besides is never taken for a yes."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from store_kit import Place

import holdfast
from holdfast import sync
from holdfast.errors import GateRefusedError, InvalidInputError, InvalidValueError


class Asked(holdfast.Gate):
    """A gate that answers what a function says."""

    def __init__(self, answer: Callable[[holdfast.GateRequest], Any]) -> None:
        self.answer = answer

    def before(self, request: holdfast.GateRequest) -> Any:
        return self.answer(request)


async def later() -> None:
    return None


class Reads(holdfast.Gate):
    def reading(self, reading: Any) -> Any:
        return False


@pytest.mark.parametrize("answer", [False, True, 0, "", [], "no", 5, object()])
def test_an_answer_that_is_no_request_refuses(store: sync.Store, answer: Any) -> None:
    state = store.agent("1")
    state.set("k", 1)
    store.add_gate(Asked(lambda _: answer))
    for call in (
        lambda: state.set("k", 2),
        lambda: state.checkpoint("c"),
        lambda: state.restore(1),
        lambda: store.delete(state),
    ):
        with pytest.raises(GateRefusedError, match=f"gave {type(answer).__name__}"):
            call()
    assert (state.get("k"), state._handle.place()[2]) == (1, 1)


@pytest.mark.filterwarnings("error")
def test_an_async_gate_is_refused(store: sync.Store) -> None:
    async def method(*_: Any) -> None:
        return None

    for name in ("before", "after", "reading"):
        gate = type("Later", (holdfast.Gate,), {name: method})()
        with pytest.raises(InvalidInputError, match=r"Later\..* is async"):
            store.add_gate(gate)
    store.agent("1").set("k", 1)
    store.add_gate(Asked(lambda _: later()))
    with pytest.raises(GateRefusedError, match="not async"):
        store.agent("1").set("k", 2)


def test_an_answer_about_a_read_refuses_it(store: sync.Store) -> None:
    state = store.agent("1")
    state.set("password", "p")
    store.add_gate(Reads())
    with pytest.raises(GateRefusedError, match="gave bool"):
        state.get("password")


BROKEN: dict[str, tuple[str, Any]] = {
    "no operations": ("operations", None),
    "a number": ("operations", [5]),
    "a tuple": ("operations", ()),
    "no scope": ("scope", "agent:1"),
    "no timeline": ("timeline", None),
}


@pytest.mark.parametrize("returned", [True, False])
@pytest.mark.parametrize("what", BROKEN)
def test_what_is_no_request_any_more_refuses(store: sync.Store, what: str, returned: bool) -> None:
    name, value = BROKEN[what]

    def broken(request: holdfast.GateRequest) -> holdfast.GateRequest | None:
        setattr(request, name, value)
        return request if returned else None

    store.add_gate(Asked(broken))
    with pytest.raises(GateRefusedError, match="something else of a request"):
        store.agent("1").set("k", 1)
    assert not store.agent("1").exists("k")


def test_a_key_that_a_gate_breaks_is_refused(store: sync.Store) -> None:
    def broken(request: holdfast.GateRequest) -> None:
        request.operations[0].key = 5  # type: ignore[assignment]

    store.add_gate(Asked(broken))
    with pytest.raises(GateRefusedError, match="something else"):
        store.agent("1").set("k", 1)


def test_a_gate_changes_its_own_copy(store: sync.Store) -> None:
    state, seen = store.agent("1"), []

    def adding(request: holdfast.GateRequest) -> None:
        for operation in request.operations:
            operation.value["items"].append("by the gate")
        seen.append(len(request.operations))
        request.operations.append(holdfast.Operation("set", "more", 1))

    store.add_gate(Asked(adding))
    mine: dict[str, Any] = {"items": [1]}
    state.set("k", mine)
    with state.change() as change:
        change.set("j", mine)
    assert mine == {"items": [1]}, "the caller's own object stays as it was"
    assert state.get("k") == state.get("j") == {"items": [1, "by the gate"]}
    assert (seen, state.get("more")) == ([1, 1], 1)


@pytest.mark.parametrize("gated", [True, False])
def test_what_cannot_be_copied_is_refused_as_a_value(store: sync.Store, gated: bool) -> None:
    if gated:
        store.add_gate(Asked(lambda _: None))
    deep: Any = 1
    for _ in range(100_000):
        deep = [deep]
    round_: list[Any] = []
    round_.append(round_)
    for value in (threading.Lock(), (n for n in ()), deep, round_):
        with pytest.raises(InvalidValueError):
            store.agent("1").set("k", value)
        with pytest.raises(InvalidValueError), store.agent("1").change() as change:
            change.set("k", value)


SENT: dict[str, tuple[str, Any]] = {
    "another scope": ("scope", holdfast.Scope("agent", "2")),
    "another timeline": ("timeline", "trial"),
}


@pytest.mark.parametrize("where", SENT)
def test_a_gate_sends_no_change_elsewhere(store: sync.Store, where: str) -> None:
    state = store.agent("1")
    state.set("k", 0)
    trial = state.fork("trial")
    store.add_gate(Asked(lambda request: setattr(request, *SENT[where])))
    with pytest.raises(GateRefusedError, match="Asked sends the change to"):
        state.set("k", 1)
    assert state.get("k") == trial.get("k") == 0
    assert not store.agent("2").exists("k")


UNDOABLE: dict[str, tuple[str, str]] = {
    "a bad key": ("key", "../k"),
    "a reserved key": ("key", "$mine"),
    "no operation": ("kind", "nonsense"),
    "another kind of change": ("kind", "restore"),
}


@pytest.mark.parametrize("what", UNDOABLE)
def test_an_operation_that_cannot_be_names_its_gate(store: sync.Store, what: str) -> None:
    name, value = UNDOABLE[what]
    store.add_gate(Asked(lambda request: setattr(request.operations[0], name, value)))
    with pytest.raises(GateRefusedError, match="the gate Asked made of a request what cannot be"):
        store.agent("1").set("k", 1)


def test_the_cause_that_a_gate_gives_is_the_entrys(place: Place) -> None:
    store = place.open()
    state, other = store.agent("1"), store.agent("2")

    def stamped(request: holdfast.GateRequest) -> None:
        if str(request.scope) == "agent:1":
            request.cause = holdfast.Cause(actor="gate", correlation="by the gate")
        elif request.cause is not None:
            request.cause = None

    store.add_gate(Asked(stamped))
    with store.acting("ann", correlation="run"):
        state.set("k", 1)
        with store.change() as change:
            change[state].set("k", 2)
            change[other].set("k", 2)
        with state.open_write("long") as sink:
            sink.write(b"x" * 3_000_000)
    assert [entry.cause.actor for entry in state.log()] == ["gate"] * 3
    assert [entry.cause.actor for entry in other.log()] == [None]
    assert len(store.correlated("by the gate")) == 3
    assert store.correlated("run") == []
    assert store.verify().ok
    store.add_gate(Asked(lambda request: setattr(request, "cause", "me")))
    with pytest.raises(GateRefusedError, match="something else of a request"):
        state.set("k", 3)
