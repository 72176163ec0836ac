"""Work whose transition is not made: it is undone, or it stays open under its own id."""

from __future__ import annotations

from collections.abc import Callable
from math import nan
from typing import Any

import pytest
from store_kit import Place

from holdfast import sync
from holdfast.agents import (
    MachineArrow,
    MachineDefinition,
    MachineIntent,
    MachineRule,
    MachineState,
    MachineStep,
)
from holdfast.errors import (
    Conflict,
    IncompleteTransitionError,
    RefusedError,
    Unavailable,
)

Done = dict[str, int]


class Killed(BaseException):
    """Stands for the end of the process: nothing catches it."""


def paying(
    work: Callable[[MachineStep], Any],
    undo: Callable[[MachineStep], Any] | None = None,
    paid: MachineState | None = None,
) -> MachineDefinition:
    """A machine that pays, and would rather do it again with the same id than twice."""
    arrow = MachineArrow("paid", work=work, undo=undo, recover="complete")
    cart = MachineState(on={"pay": arrow})
    return MachineDefinition("cart", {"cart": cart, "paid": paid or MachineState()})


def state_of(machine: sync.agents.Machine) -> str:
    now = machine.now()
    assert now is not None
    return now.state


def pending_of(machine: sync.agents.Machine) -> MachineIntent | None:
    now = machine.now()
    assert now is not None
    return now.pending


@pytest.mark.parametrize("undoes", [False, True])
def test_a_completion_that_fails_forgets_nothing(store: sync.Store, undoes: bool) -> None:
    """What the first attempt did may stand: it is undone, or the next one has the same id."""
    paid: Done = {}
    ends: list[BaseException | None] = [Killed(), ConnectionError(), None]

    def work(step: MachineStep) -> None:
        end = ends.pop(0)
        if not isinstance(end, ConnectionError):
            paid[step.id] = paid.get(step.id, 0) + 1
        if end is not None:
            raise end

    undo = (lambda step: paid.pop(step.id)) if undoes else None
    machine = sync.agents.Machine(store.agent("1"), paying(work, undo))
    with pytest.raises(Killed):
        machine.fire("pay")
    with pytest.raises(ConnectionError) as caught:
        machine.recover()
    notes = getattr(caught.value, "__notes__", [])
    assert any("still open" in note for note in notes) is not undoes
    assert (pending_of(machine) is None) is undoes
    assert machine.transitions()[-1].error == "ConnectionError: "
    if undoes:
        assert paid == {}
        machine.fire("pay")
    else:
        with pytest.raises(IncompleteTransitionError):
            machine.fire("pay")
        assert machine.recover().how == "complete"
    assert (state_of(machine), len(paid)) == ("paid", 1)
    assert machine.validate() == ()


REFUSED: dict[str, tuple[Any, MachineState]] = {
    "a rule": ({"receipt": 5}, MachineState(rules=(MachineRule("receipt", pattern="r.*"),))),
    "what cannot be stored": ({"receipt": object()}, MachineState()),
    "no mapping": ("r1", MachineState()),
    "entering": (None, MachineState(enter=lambda step: step.data["receipt"] and None)),
}


@pytest.mark.parametrize("why", REFUSED)
def test_work_that_was_done_stays_open_if_its_outcome_is_refused(
    store: sync.Store, why: str
) -> None:
    """Nothing undoes it: another transition would do it again, under another id."""
    paid: Done = {}
    wrong, there = REFUSED[why]

    def work(step: MachineStep) -> Any:
        paid[step.id] = paid.get(step.id, 0) + 1
        return wrong if paid[step.id] == 1 else {"receipt": "r1"}

    machine = sync.agents.Machine(store.agent("1"), paying(work, paid=there))
    with pytest.raises((RefusedError, KeyError)) as caught:
        machine.fire("pay")
    assert "'pay' is still open" in caught.value.__notes__[0]
    assert pending_of(machine) is not None
    assert machine.recover().how == "complete"
    assert (state_of(machine), list(paid.values())) == ("paid", [2])


def test_an_error_before_the_work_leaves_nothing_open(store: sync.Store) -> None:
    paid: Done = {}
    definition = paying(lambda step: paid.update({step.id: 1}))
    cart = MachineState(on=definition.states["cart"].on, exit=lambda step: 1 / 0)
    definition = MachineDefinition("cart", definition.states | {"cart": cart})
    machine = sync.agents.Machine(store.agent("1"), definition)
    with pytest.raises(ZeroDivisionError):
        machine.fire("pay")
    assert (paid, pending_of(machine)) == ({}, None)


@pytest.mark.parametrize("undoes", [False, True])
def test_work_whose_end_conflicts_is_undone_or_open(store: sync.Store, undoes: bool) -> None:
    """Somebody changed, once, what the work has read: the next attempt makes the transition."""
    state, paid = store.agent("1"), Done()
    state.set("price", 1)

    def work(step: MachineStep) -> None:
        assert step.change.get("price") in (1, 2)
        paid[step.id] = paid.get(step.id, 0) + 1
        if state.get("price") == 1:
            state.set("price", 2)

    undo = (lambda step: paid.pop(step.id)) if undoes else None
    machine = sync.agents.Machine(state, paying(work, undo))
    with pytest.raises(Conflict, match="rests on") as caught:
        machine.fire("pay")
    notes = getattr(caught.value, "__notes__", [])
    assert any("still open" in note for note in notes) is not undoes
    assert machine.transitions()[-1].outcome == "overtaken"
    if undoes:
        assert (paid, pending_of(machine)) == ({}, None)
        machine.fire("pay")
    else:
        assert machine.recover().how == "complete"
    assert (state_of(machine), len(paid)) == ("paid", 1)
    assert machine.validate() == ()


@pytest.mark.parametrize("undoes", [False, True])
def test_who_was_taken_for_dead_does_not_undo_it(place: Place, undoes: bool) -> None:
    """Another has ended it meanwhile: an error of the first attempt is the first one's alone."""
    undone: list[str] = []
    undo = (lambda step: undone.append(step.id)) if undoes else None
    other = sync.agents.Machine(place.open().agent("1"), paying(lambda step: None, undo))

    def slow(step: MachineStep) -> None:
        other.recover()
        raise ValueError("too late")

    machine = sync.agents.Machine(place.open().agent("1"), paying(slow, undo))
    with pytest.raises(ValueError, match="too late") as caught:
        machine.fire("pay")
    assert getattr(caught.value, "__notes__", []) == []
    assert (undone, state_of(machine), pending_of(machine)) == ([], "paid", None)


def test_work_may_change_its_input(store: sync.Store) -> None:
    def work(step: MachineStep) -> None:
        step.input["to"].append("Bob")
        raise ValueError

    machine = sync.agents.Machine(store.agent("1"), paying(work))
    with pytest.raises(ValueError):  # noqa: PT011
        machine.fire("pay", to=["Ann"])
    assert pending_of(machine) is None


@pytest.mark.parametrize("undoes", [False, True])
def test_work_on_what_is_not_equal_to_itself_is_ended(store: sync.Store, undoes: bool) -> None:
    undone: list[str] = []

    def work(step: MachineStep) -> None:
        raise ConnectionError

    undo = (lambda step: undone.append(step.id)) if undoes else None
    machine = sync.agents.Machine(store.agent("1"), paying(work, undo))
    with pytest.raises(ConnectionError):
        machine.fire("pay", price=nan)
    assert (pending_of(machine), len(undone)) == (None, undoes)


def test_an_undo_that_was_not_tried_has_not_failed(
    store: sync.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    undone: list[str] = []

    def unreadable() -> None:
        raise Unavailable("the disk is away")

    def work(step: MachineStep) -> None:
        monkeypatch.setattr(machine._book, "look", unreadable)
        raise ConnectionError

    machine = sync.agents.Machine(
        store.agent("1"), paying(work, lambda step: undone.append(step.id))
    )
    with pytest.raises(ConnectionError) as caught:
        machine.fire("pay")
    assert undone == []
    assert "what it has begun could not be read (Unavailable)" in caught.value.__notes__[0]
    assert "'pay' is still open" in caught.value.__notes__[0]
    monkeypatch.undo()
    assert pending_of(machine) is not None
