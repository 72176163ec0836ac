"""Routines: generators that ask for what they need, and what carries it out.

So what a machine does is written once. A routine is answered with what it asked for, or the error
of it is raised where it asked.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass, field
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from holdfast.agents.again import commit, look
from holdfast.agents.machines.machine_rules import broken
from holdfast.store.names.cause import cause_now
from holdfast.store.names.face import Step, Steps, ask, read

if TYPE_CHECKING:
    from holdfast.agents.machines.definition import MachineArrow, MachineDefinition
    from holdfast.store.inner import Plan, ScopedChange
    from holdfast.store.state import State


class Read(NamedTuple):
    """Look at what is stored; `long` if it may look at a lot."""

    function: Callable[[], Any]
    long: bool = False


class Call(NamedTuple):
    """Call a function of the user."""

    function: Callable[..., Any]
    argument: Any


class Commit(NamedTuple):
    """Commit a change."""

    plan: Plan


_T = TypeVar("_T")
Routine = Generator[Read | Call | Commit, Any, _T]


def drive(state: State, routine: Routine[_T]) -> Steps[_T]:
    """A routine as steps of a face: functions of users run in the loop, and may be async there."""
    try:
        asked = next(routine)
        while True:
            try:
                answer = yield _step(state, asked)
            except BaseException as error:  # whatever it is, the routine has its own handlers
                asked = routine.throw(error)
            else:
                asked = routine.send(answer)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]


def _step(state: State, asked: Read | Call | Commit) -> Step:
    if isinstance(asked, Call):
        return ask(asked.function, asked.argument, what="a function of a machine")
    if isinstance(asked, Commit):
        return commit(state, asked.plan)
    return read(asked.function) if asked.long else look(state, asked.function)


# ---- step ---------------------------------------------------------------------------------------
# One transition on its way: what guards and actions are given, and what may be followed.


@dataclass(slots=True)
class MachineStep:
    """What guards, actions and work are given.

    An action may change `data` and `metadata`, or return a mapping of fields for the data. What it
    writes with `change` (`step.change.set("haiku", text)`) is part of the transition: it is stored
    with it, or not at all; what is read there must not change until then.
    """

    id: str
    """Of the transition; the same when interrupted work is done again."""
    machine: str
    trigger: str
    origin: str
    target: str
    input: dict[str, Any]
    """What the trigger brought along."""
    change: ScopedChange = field(repr=False)
    data: dict[str, Any] = field(default_factory=dict, repr=False)
    metadata: dict[str, Any] = field(default_factory=dict, repr=False)
    attempt: int = 1
    """Greater if the work was begun before and interrupted."""
    begun: float = field(default_factory=perf_counter, repr=False)
    """When this attempt began, on a clock that only tells how long something takes."""


def refusals(
    definition: MachineDefinition, state: str, trigger: str, input: dict[str, Any]
) -> Iterator[str]:
    """What speaks against a trigger in a state, but for what its guard says."""
    here = definition.states.get(state)
    arrow = definition.arrow(state, trigger)
    if here is None:
        yield f"the state {state!r} is not in the definition any more"
        return
    if arrow is None:
        known = [name for origin, name, _ in definition.arrows() if origin == state]
        leads = f"{', '.join(map(repr, known))} do" if known else "nothing does"
        yield f"{trigger!r} leads nowhere from {state!r}; {leads}"
        return
    if arrow.actors:
        cause = cause_now()
        if cause is None or cause.actor not in arrow.actors:
            yield f"{trigger!r} is for {', '.join(arrow.actors)} alone; see Store.acting"
    yield from unaccepted(definition, state, arrow, input)


def unaccepted(
    definition: MachineDefinition, state: str, arrow: MachineArrow, input: dict[str, Any]
) -> Iterable[str]:
    """What the rules of a state and of an arrow have against what a trigger brings along."""
    return broken((*definition.states[state].accepts, *arrow.accepts), input)


def concerns_data(definition: MachineDefinition, state: str, arrow: MachineArrow) -> bool:
    """Whether the machine's data has to be known to follow an arrow."""
    here, there = definition.states[state], definition.states[arrow.to]
    asked = (arrow.guard, arrow.action, arrow.work, arrow.keep, here.exit)
    return any(asked) or any((there.enter, there.data, there.rules, there.check))


def is_bare(definition: MachineDefinition, state: str, arrow: MachineArrow) -> bool:
    """Whether an arrow can be followed without asking anything or anybody."""
    asked = (arrow.accepts, arrow.actors, definition.states[state].accepts)
    return not any(asked) and not concerns_data(definition, state, arrow)


def wanted(answer: Any) -> str | None:
    """Why a guard says no; None if it says yes."""
    if answer is True:
        return None
    return answer if isinstance(answer, str) and answer else "its guard says no"
