"""The async face of watching."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from types import TracebackType

from holdfast.errors import HoldfastError
from holdfast.store.names.items import Entry
from holdfast.store.names.threads import here_or_away, to_the_end
from holdfast.store.read.watch import LONGEST, SHORTEST, Watching


class Watch(Watching):
    """Entries as they are committed: `async for entry in watch`.

    It waits for the next entry without end, or ends when none came for `timeout` seconds; then
    it can be iterated again and goes on. It also ends when it or the store is closed. A wait
    that is cancelled loses nothing: the next one goes on. Nothing is held in the storage for it.
    """

    def __aiter__(self) -> Watch:
        return self

    async def __anext__(self) -> Entry:
        end = time.monotonic() + self._timeout if self._timeout is not None else None
        pause = SHORTEST
        while True:
            if self._over():
                raise StopAsyncIteration
            if self._ready:
                return self._pop()
            if (due := self._pause(end)) > 0:
                await asyncio.sleep(due)
            if await here_or_away(self._core.storage, self._worth_while) and await self._go_on():
                continue
            left = end - time.monotonic() if end is not None else LONGEST
            if left <= 0:
                raise StopAsyncIteration
            await self._wait(min(pause, left))
            pause = min(2 * pause, LONGEST)

    async def _go_on(self) -> bool:
        """Read on: here if it can only be a little, else in a thread."""
        if self._near() and self._core.storage.limits.embedded:
            if self._midway:
                await asyncio.sleep(0)  # others have their turn between two parts
            return self._fill()
        return await to_the_end(self._fill)

    def _worth_while(self) -> bool:
        try:
            return self._stirred()
        except HoldfastError:
            if self._over():
                return False
            raise

    async def _wait(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        rung: asyncio.Future[None] = loop.create_future()

        def wake() -> None:
            with suppress(RuntimeError):  # the loop is gone, and with it who waited
                loop.call_soon_threadsafe(_done, rung)

        timer = loop.call_later(seconds, _done, rung)
        self._core.lanes.bell.add(wake)
        try:
            if not self._called():
                await rung
        finally:
            timer.cancel()
            self._core.lanes.bell.remove(wake)

    async def close(self) -> None:
        """End the watch, also one that another task waits for."""
        self._closed = True
        self._core.lanes.bell.ring()

    async def __aenter__(self) -> Watch:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()


def _done(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
