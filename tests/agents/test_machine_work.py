"""Transitions with work inside: the intent, the outcome, and what a crash in between leaves."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
from store_kit import Place

from holdfast import sync
from holdfast.agents import MachineArrow, MachineDefinition, MachineRule, MachineState, MachineStep
from holdfast.errors import (
    Conflict,
    HoldfastError,
    IncompleteTransitionError,
    InvalidValueError,
    LeaseLostError,
    OutcomeUnknown,
    RefusedError,
    TransitionRefusedError,
    Unavailable,
)
from holdfast.storage.wrappers import Fault, Faulty
from holdfast.store.history.handle import StoreHandle
from holdfast.store.open import open_core

Done = dict[str, int]


class Killed(BaseException):
    """Stands for the end of the process: nothing catches it."""


def publishing(done: Done, recover: str, *, kill: str = "") -> MachineDefinition:
    """A machine that publishes; `done` counts, by the transition's id, what happened outside."""

    def work(step: MachineStep) -> dict[str, Any]:
        if kill == "before":
            raise Killed
        done[step.id] = done.get(step.id, 0) + 1
        if kill == "after":
            raise Killed
        step.change.set("published", step.input["title"])
        return {"url": f"/{step.input['title']}", "attempt": step.attempt}

    def undo(step: MachineStep) -> None:
        done.pop(step.id, None)

    arrow = MachineArrow("published", work=work, undo=undo, recover=recover)
    return MachineDefinition(
        "draft",
        {
            "draft": MachineState(on={"publish": arrow, "drop": "dropped"}),
            "published": MachineState(),
            "dropped": MachineState(),
        },
    )


def crashed(place: Place, done: Done, recover: str, kill: str = "after") -> sync.agents.Machine:
    """A machine whose process ended in the middle of its work; opened again."""
    machine = sync.agents.Machine(place.open().agent("1"), publishing(done, recover, kill=kill))
    with pytest.raises(Killed):
        machine.fire("publish", title="rain")
    return sync.agents.Machine(place.reopen().agent("1"), publishing(done, recover))


def state_of(machine: sync.agents.Machine) -> str:
    now = machine.now()
    assert now is not None
    return now.state


def test_work_that_ends_well_leaves_no_intent(store: sync.Store) -> None:
    done: Done = {}
    machine = sync.agents.Machine(store.agent("1"), publishing(done, "ask"))
    made = machine.fire("publish", title="rain")
    assert done == {made.id: 1}
    now = machine.now()
    assert now is not None
    assert (now.state, now.data, now.pending) == (
        "published",
        {"url": "/rain", "attempt": 1},
        None,
    )
    assert store.agent("1").get("published") == "rain"
    assert machine.recover().how == "nothing"


@pytest.mark.spec("M55")
def test_an_incomplete_transition_is_found_on_load(place: Place) -> None:
    machine = crashed(place, {}, "ask")
    now = machine.now()
    assert now is not None
    assert now.state == "draft"
    assert now.pending is not None
    assert (now.pending.trigger, now.pending.to_state) == ("publish", "published")
    assert now.pending.input == {"title": "rain"}
    calls: list[Any] = [
        lambda: machine.fire("publish", title="snow"),
        lambda: machine.fire("drop"),
        lambda: machine.save({}),
        lambda: machine.roll_back(1),
        lambda: machine.replay(1),
    ]
    for call in calls:
        with pytest.raises(IncompleteTransitionError, match="between 'draft' and 'published'"):
            call()
    assert not machine.can("drop")
    assert machine.recover().how == "ask"
    assert state_of(machine) == "draft"


@pytest.mark.spec("M12", "M70", "M103")
def test_an_incomplete_transition_is_completed_by_choice(place: Place) -> None:
    done: Done = {}
    machine = crashed(place, done, "complete", kill="before")
    found = machine.recover()
    assert (found.how, list(done.values())) == ("complete", [1])
    assert found.snapshot is not None
    assert (found.snapshot.state, found.snapshot.pending) == ("published", None)
    assert found.snapshot.data == {"url": "/rain", "attempt": 2}
    assert found.intent is not None
    assert found.intent.id in done  # the same id: what takes it as a key does it once
    assert machine.transitions()[-1].id == found.intent.id
    assert machine.validate() == ()


@pytest.mark.spec("M52")
def test_an_incomplete_transition_is_rolled_back_by_choice(place: Place) -> None:
    done: Done = {}
    machine = crashed(place, done, "roll_back")
    assert len(done) == 1
    assert machine.recover().how == "roll_back"
    assert done == {}
    assert state_of(machine) == "draft"
    last = machine.transitions()[-1]
    assert (last.success, last.error) == (False, "interrupted, and rolled back")
    machine.fire("drop")
    assert machine.validate() == ()


@pytest.mark.parametrize("how", ["complete", "done", "roll_back"])
def test_the_caller_decides(place: Place, how: str) -> None:
    done: Done = {}
    machine = crashed(place, done, "ask")
    found = machine.settle(how, note="by hand")
    assert found.snapshot is not None
    assert found.how == ("roll_back" if how == "roll_back" else "complete")
    if how == "roll_back":
        assert (found.snapshot.state, done) == ("draft", {})
    else:
        assert found.snapshot.state == "published"
        assert list(done.values()) == [2 if how == "complete" else 1]
        assert found.snapshot.data["note"] == "by hand"


@pytest.mark.parametrize("url", [("a", "tuple"), "ftp://x"])
def test_data_that_are_refused_leave_what_is_done_open(place: Place, url: Any) -> None:
    """What is known to be done is not undone because somebody described it wrongly."""
    done: Done = {}
    definition = publishing(done, "ask", kill="after")
    checked = MachineState(rules=(MachineRule("url", pattern="http.*"),))
    definition = MachineDefinition("draft", definition.states | {"published": checked})
    machine = sync.agents.Machine(place.open().agent("1"), definition)
    with pytest.raises(Killed):
        machine.fire("publish", title="rain")
    with pytest.raises(RefusedError):
        machine.settle("done", url=url)
    now = machine.now()
    assert now is not None
    assert (now.state, now.pending is not None, list(done.values())) == ("draft", True, [1])
    assert machine.transitions()[-1].success is False
    settled = machine.settle("done", url="http://x").snapshot
    assert settled is not None
    assert (settled.state, settled.data["url"], list(done.values())) == (
        "published",
        "http://x",
        [1],
    )


def test_an_error_of_the_work_is_a_failed_attempt_and_undone(store: sync.Store) -> None:
    undone: list[str] = []

    def work(step: MachineStep) -> None:
        raise ValueError("no paper")

    arrow = MachineArrow("b", work=work, undo=lambda step: undone.append(step.id))
    definition = MachineDefinition("a", {"a": MachineState(on={"go": arrow}), "b": MachineState()})
    machine = sync.agents.Machine(store.agent("1"), definition)
    with pytest.raises(ValueError, match="no paper"):
        machine.fire("go")
    last = machine.transitions()[-1]
    assert (last.error, undone) == ("ValueError: no paper", [last.id])
    assert machine.now().pending is None  # type: ignore[union-attr]


def test_undoing_that_fails_leaves_it_open(store: sync.Store) -> None:
    def fail(step: MachineStep) -> None:
        raise ValueError

    def broken(step: MachineStep) -> None:
        raise KeyError

    arrow = MachineArrow("b", work=broken, undo=fail, recover="roll_back")
    definition = MachineDefinition("a", {"a": MachineState(on={"go": arrow}), "b": MachineState()})
    machine = sync.agents.Machine(store.agent("1"), definition)
    with pytest.raises(KeyError) as caught:
        machine.fire("go")
    assert "its undo failed, too (ValueError)" in caught.value.__notes__[0]
    with pytest.raises(ValueError):  # noqa: PT011
        machine.recover()
    told = [(one.trigger, one.error and one.error[:8]) for one in machine.transitions()]
    assert told == [("", None), ("go", "KeyError"), ("go", "ValueErr")], "every attempt"
    now = machine.now()
    assert now is not None
    assert now.pending is not None
    assert now.pending.attempt == 2


def test_who_was_taken_for_dead_cannot_end_it(place: Place) -> None:
    """A slow worker whose transition another has taken over gets a conflict, and no second end."""
    done: Done = {}
    other = sync.agents.Machine(place.open().agent("1"), publishing(done, "complete"))

    def slow(step: MachineStep) -> None:
        assert other.recover().how == "complete"

    slowly = MachineDefinition(
        "draft",
        {
            "draft": MachineState(on={"publish": MachineArrow("published", work=slow)}),
            "published": MachineState(),
        },
    )
    machine = sync.agents.Machine(place.open().agent("1"), slowly)
    with pytest.raises(Conflict, match="rests on"):
        machine.fire("publish", title="rain")
    assert [one.success for one in machine.transitions()] == [True, True, False]
    assert state_of(machine) == "published"
    assert machine.validate() == ()


def test_who_lost_the_lease_undoes_nothing(place: Place) -> None:
    """What was begun is for the next holder, who may just be completing it."""
    done: Done = {}
    store, other = place.open(), place.open()
    machine = sync.agents.Machine(store.agent("1"), publishing(done, "complete", kill=""))

    def slow(step: MachineStep) -> None:
        done[step.id] = 1
        other.break_lease("agent 1")

    arrow = MachineArrow("published", work=slow, undo=lambda step: done.clear())
    slowly = MachineDefinition(
        "draft", {"draft": MachineState(on={"publish": arrow}), "published": MachineState()}
    )
    with pytest.raises(LeaseLostError), store.lease("agent 1"):
        sync.agents.Machine(store.agent("1"), slowly).fire("publish", title="rain")
    assert len(done) == 1
    assert machine.now().pending is not None  # type: ignore[union-attr]
    assert machine.recover().how == "complete"
    assert machine.validate() == ()


def test_work_whose_outcome_cannot_be_stored_is_undone(store: sync.Store) -> None:
    undone: list[str] = []
    arrow = MachineArrow(
        "b", work=lambda step: {"x": object()}, undo=lambda step: undone.append(step.id)
    )
    definition = MachineDefinition("a", {"a": MachineState(on={"go": arrow}), "b": MachineState()})
    machine = sync.agents.Machine(store.agent("1"), definition)
    with pytest.raises(InvalidValueError):
        machine.fire("go")
    last = machine.transitions()[-1]
    assert (last.success, undone) == (False, [last.id])
    assert machine.now().pending is None  # type: ignore[union-attr]


@pytest.mark.parametrize("recover", ["complete", "roll_back", "ask"])
def test_a_restore_leaves_an_intent_open(place: Place, recover: str) -> None:
    """The work may be half done in the world; going back does not undo that."""
    done: Done = {}
    state = place.open().agent("1")
    machine = sync.agents.Machine(state, publishing(done, recover, kill="after"))
    state.set("k", 1)
    early = state.checkpoint("early")
    machine.start()
    safe = state.checkpoint("safe")
    with pytest.raises(Killed):
        machine.fire("publish", title="rain")
    state = place.reopen().agent("1")
    machine = sync.agents.Machine(state, publishing(done, recover))
    state.restore(safe)
    assert machine.now().pending is not None  # type: ignore[union-attr]
    state.restore(early)
    assert machine.now() is None
    with pytest.raises(IncompleteTransitionError):
        machine.start()
    assert machine.recover().how == "ask"  # the machine is not where the work began
    with pytest.raises(TransitionRefusedError, match="not in 'draft' any more"):
        machine.settle("complete")
    machine.settle("roll_back")
    assert machine.fire("drop").to_state == "dropped"
    state.restore(safe)
    assert machine.now().pending is None  # type: ignore[union-attr]


def test_an_arrow_that_is_gone_is_for_the_caller(place: Place) -> None:
    crashed(place, {}, "complete")
    smaller = MachineDefinition("draft", {"draft": MachineState()})
    machine = sync.agents.Machine(place.open().agent("1"), smaller)
    assert machine.recover().how == "ask"
    with pytest.raises(TransitionRefusedError, match="no such arrow any more"):
        machine.settle("done")
    assert machine.settle("roll_back").snapshot.state == "draft"  # type: ignore[union-attr]


# ---- killed at every storage call ----------------------------------------------------------


class Dying(Faulty):
    """Storage that nobody reaches any more, once a call has failed."""

    def _next(self, call: str) -> str:
        return "before" if self.failed else super()._next(call)


def cut(place: Place, fault: Fault, run: Callable[[sync.State], Any]) -> bool:
    """Run something on storage that ends at a call; whether it came to that."""
    dying = Dying(place.storage())
    store = sync.Store(StoreHandle(open_core(place.url, storage=dying, **place.options())))
    dying.plan = (Fault(fault.call, dying.calls[fault.call] + fault.nth, fault.mode),)
    try:
        run(store.agent("1"))
    except (Unavailable, OutcomeUnknown):
        return True
    finally:
        with suppress(HoldfastError):
            store.close()
    return bool(dying.failed)


def each_cut(plain: Place, kind: str) -> Iterator[tuple[Place, Fault]]:
    """A new place for each call at which it can end; who uses them says when it was the last."""
    call, _, mode = kind.partition(" ")
    for nth in range(1, 1000):
        place = Place(plain.engine, plain.folder, sealed=False)
        if place.engine == "sqlite":
            place.url = f"sqlite:{plain.folder / f'{nth}.db'}"
        yield place, Fault(call, nth, mode)
        place.close()
    raise AssertionError("it never came to an end")


def agreed(place: Place, done: Done, recover: str) -> tuple[str, str]:
    """Open it again and recover: world, state and log agree. What recovery did, and the state."""
    machine = sync.agents.Machine(place.open().agent("1"), publishing(done, recover))
    found = machine.recover()
    log = machine.transitions()
    state = found.snapshot.state if found.snapshot is not None else ""
    assert machine.validate() == ()
    assert found.snapshot is None or found.snapshot.pending is None
    last = log[-1] if log else None
    ended = "" if last is None else last.to_state if last.success else last.from_state
    assert state == ended
    assert (state == "published") == bool(done)
    assert place.open().agent("1").get("published") == ("rain" if done else None)
    return found.how, state


KINDS = ["* before", "commit ambiguous-applied", "commit ambiguous-lost"]


@pytest.mark.spec("M55", "M70", "M103")
@pytest.mark.parametrize("recover", ["complete", "roll_back"])
@pytest.mark.parametrize("kind", KINDS)
def test_killed_at_every_storage_call(plain: Place, kind: str, recover: str) -> None:
    """Afterwards it is either where it was or where it was going, and so is the world."""
    ends = set()
    for place, fault in each_cut(plain, kind):
        done: Done = {}
        definition = publishing(done, recover)
        reached = cut(
            place,
            fault,
            lambda s, d=definition: sync.agents.Machine(s, d).fire("publish", title="rain"),
        )
        ends.add(agreed(place, done, recover))
        assert sum(done.values()) <= 2
        if not reached:
            break
    settled = ("complete", "published") if recover == "complete" else ("roll_back", "draft")
    assert {("nothing", "published"), settled} <= ends
    if kind == "* before":
        assert ("nothing", "") in ends


@pytest.mark.parametrize("recover", ["complete", "roll_back"])
@pytest.mark.parametrize("kind", KINDS)
def test_recovery_killed_at_every_storage_call(plain: Place, kind: str, recover: str) -> None:
    ends = set()
    for place, fault in each_cut(plain, kind):
        done: Done = {}
        crashed(place, done, recover)
        place.close()
        definition = publishing(done, recover)
        reached = cut(place, fault, lambda s, d=definition: sync.agents.Machine(s, d).recover())
        ends.add(agreed(place, done, recover))
        if not reached:
            break
    state = "published" if recover == "complete" else "draft"
    assert ends == {(recover, state), ("nothing", state)}
