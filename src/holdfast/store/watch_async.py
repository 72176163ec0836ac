"""The async face of watching."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from datetime import datetime
from itertools import islice
from types import TracebackType

from holdfast.errors import HoldfastError
from holdfast.store import state
from holdfast.store.commit.core import Core
from holdfast.store.history.handle import LineHandle, StoreHandle
from holdfast.store.names.items import Entry, Position
from holdfast.store.names.scope import Scope
from holdfast.store.names.threads import here_or_away, read_away, to_the_end
from holdfast.store.read.follow import Follower
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


class LineFollowing:
    """The part of a state that follows it."""

    _handle: LineHandle

    def watch(
        self,
        *,
        prefix: str = "",
        pattern: str | None = None,
        since: Position | None = None,
        timeout: float | None = None,
        past_pruned: bool = False,
    ) -> Watch:
        """Entries of this timeline as they are committed; see `Store.watch`."""
        line = self._handle
        place = (line.core, line.scope, line.timeline)
        return Watch(*place, prefix, pattern, since, timeout, past_pruned)


class StoreFollowing:
    """The part of a store that follows what is committed."""

    _handle: StoreHandle
    _core: Core
    _blocking: state.Store

    async def position(self) -> Position:
        """Where the feed ends now."""
        return await read_away(self._blocking.position)

    async def feed(
        self, since: Position | None = None, *, past_pruned: bool = False
    ) -> AsyncIterator[Entry]:
        """Every entry committed since a position (the beginning); go on from `entry.position`.

        Gap-free in any process. Entries of one timeline come in order, a scope that is made again
        behind the end of the one before. It ends where the feed ends; ask again with the last
        position, or use `watch`. What was pruned: see there.
        """
        rows = self._blocking.feed(since, past_pruned=past_pruned)
        error: HoldfastError | None = None
        while error is None:
            page, error = await to_the_end(_take, rows, 200)
            for entry in page:
                yield entry
            if not page and error is None:
                return
        raise error

    def watch(
        self,
        scope: Scope | str | None = None,
        *,
        prefix: str = "",
        pattern: str | None = None,
        since: Position | None = None,
        timeout: float | None = None,
        past_pruned: bool = False,
    ) -> Watch:
        """Entries as they are committed, by any process, from now or from a position on.

        Of one scope with all its timelines, or of all; with a `prefix` or a shell-like `pattern`
        (`*` also stands for `/`), those that changed such a key. A restore, a fork and the end
        of a scope name no keys and are always given. None is ever left out. Each entry carries
        the position behind it. Without an entry for `timeout` seconds the watch ends. Where
        entries were pruned, `PrunedError` has the position behind them, or with `past_pruned` they,
        and nothing else, are passed over.
        """
        name = self._handle.line(scope).scope if scope is not None else None
        return Watch(self._core, name, None, prefix, pattern, since, timeout, past_pruned)

    async def correlated(
        self,
        correlation: str,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        limit: int | None = None,
    ) -> list[Entry]:
        """Entries of all scopes that carry this correlation, by their time."""
        follower = Follower(self._core)
        return await read_away(follower.correlated, correlation, since, until, limit)


def _take(rows: Iterator[Entry], count: int) -> tuple[list[Entry], HoldfastError | None]:
    """Entries, and why there are no more: what came before an error is given before it."""
    found: list[Entry] = []
    try:
        for entry in islice(rows, count):
            found.append(entry)
    except HoldfastError as error:
        return found, error
    return found, None
