"""Steps that are done again when somebody else was faster."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from holdfast.agents.agent_keys import ATTEMPTS
from holdfast.errors import Conflict
from holdfast.store.commit.meter import done_again

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


async def again_async(step: Callable[[], Awaitable[_T]]) -> _T:
    """The same for a step that is awaited."""
    for _ in range(ATTEMPTS - 1):
        try:
            with done_again():
                return await step()
        except Conflict:
            continue
    return await step()
