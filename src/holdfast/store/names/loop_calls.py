"""Functions of users that threads of the async face call, and that may be async."""

from __future__ import annotations

import asyncio
import inspect
from typing import Any

from holdfast.store.names.arguments import check_run
from holdfast.store.names.threads import is_interrupt


class OnLoop:
    """Calls functions from threads; what they give is waited for on the loop that was used last."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None

    def use(self) -> None:
        """Take the loop of who asks."""
        self._loop = asyncio.get_running_loop()

    def wait(self, answer: Any) -> Any:
        """What an answer comes to, in a thread."""
        if not inspect.isawaitable(answer):
            return answer
        assert self._loop is not None
        # Its task acts under the lease and the cause of this thread, whose context it gets.
        given, error = asyncio.run_coroutine_threadsafe(_awaited(answer), self._loop).result()
        if error is not None:
            raise error
        return given

    def wrap(self, function: Any, name: str) -> Any:
        """A plain function in place of one that may be async; None for None."""
        if function is None:
            return None
        check_run(function, name, awaited=True)
        return lambda *arguments: self.wait(function(*arguments))


async def _awaited(answer: Any) -> tuple[Any, BaseException | None]:
    """What an answer comes to, or what would end the loop with all that runs in it."""
    try:
        return await answer, None
    except (SystemExit, KeyboardInterrupt) as error:
        if is_interrupt(error):
            raise
        return None, error
