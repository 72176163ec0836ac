"""Routines: generators that ask for what they need, and what carries it out.

So what a machine does is written once. A routine is answered with what it asked for, or the error
of it is raised where it asked.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from holdfast.store.names.arguments import ran

if TYPE_CHECKING:
    from holdfast.store.history.checkpoint import Plan
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


def drive(state: State, routine: Routine[_T]) -> _T:
    """Lead a routine to its end in this thread."""
    try:
        asked = next(routine)
        while True:
            try:
                if isinstance(asked, Read):
                    answer = asked.function()
                elif isinstance(asked, Call):
                    answer = ran(asked.function(asked.argument), "a function of a machine")
                else:
                    answer = state._run(asked.plan)
            except BaseException as error:
                asked = routine.throw(error)
            else:
                asked = routine.send(answer)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
