"""Carrying out what routines ask for, in an event loop."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, TypeVar

from holdfast.agents.machines.drive import Call, Read, Routine
from holdfast.store.names.arguments import ran
from holdfast.store.names.threads import read_away

if TYPE_CHECKING:
    from holdfast.store.state_async import State

_T = TypeVar("_T")


async def drive_async(state: State, routine: Routine[_T]) -> _T:
    """Lead a routine to its end; functions of the user may be async, and run in the loop."""
    try:
        asked = next(routine)
        while True:
            try:
                if isinstance(asked, Read):
                    if asked.long:
                        answer = await read_away(asked.function)
                    else:
                        answer = await state._do(asked.function)
                elif isinstance(asked, Call):
                    answer = asked.function(asked.argument)
                    if inspect.isawaitable(answer):
                        answer = await answer
                    answer = ran(answer, "a function of a machine")
                else:
                    answer = await state._run(asked.plan)
            except BaseException as error:
                asked = routine.throw(error)
            else:
                asked = routine.send(answer)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
