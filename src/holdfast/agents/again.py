"""Steps that are done again when somebody else was faster, and those that a state is asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from holdfast.agents.agent_keys import ATTEMPTS
from holdfast.errors import Conflict
from holdfast.store.inner import done_again, handle_of
from holdfast.store.names.face import Step, Steps, ask

if TYPE_CHECKING:
    from holdfast.store.inner import Plan
    from holdfast.store.names.threads import OnLoop
    from holdfast.store.state import State

_T = TypeVar("_T")


def again(step: Callable[[], _T]) -> _T:
    """Do a step that reads and commits; with new reads after each `Conflict`, `ATTEMPTS` times."""
    for _ in range(ATTEMPTS - 1):
        try:
            with done_again():
                return step()
        except Conflict:
            continue
    return step()


def again_in_steps(step: Callable[[], Steps[_T]]) -> Steps[_T]:
    """The same for a part of a method of steps."""
    for _ in range(ATTEMPTS - 1):
        try:
            with done_again():
                return (yield from step())
        except Conflict:
            continue
    return (yield from step())


def commit(state: State, plan: Plan) -> Step:
    """A step that commits a change as its face does: in a loop, with those that wait then, too."""

    def run(own: Any) -> Any:
        if own is state:
            return state._run(plan)
        from holdfast.store.inner import pump_of

        return pump_of(handle_of(state).core).commit(plan)

    return ask(run, state)


def look(state: State, function: Callable[..., Any], *args: Any, planned: bool = False) -> Step:
    """A step that reads: in the loop, and on a thread if it turns out long; it may run twice.

    With `planned` it makes a change, for which functions of users may be called: those have their
    end.
    """

    def run(own: Any) -> Any:
        if own is state:
            return function(*args)
        from holdfast.store.names.threads import here_or_away, read_away, to_the_end

        away = to_the_end if planned else read_away
        return here_or_away(handle_of(state).core.storage, function, *args, away=away)

    return ask(run, state)


class MayWait(NamedTuple):
    """An argument on the async face that holds functions of users: there they may be async."""

    given: Any


def may_wait(given: Any, _: OnLoop) -> MayWait:
    """Mark such an argument, for `calls`; functions that are steps run in the loop."""
    return MayWait(given)
