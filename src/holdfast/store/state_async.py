"""The async face of a scope's state.

Reads of embedded engines run in the event loop: they take microseconds. What may take long
(restore, diff, log, long values) leaves it.
"""

from __future__ import annotations

import asyncio
import io
import logging
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import suppress
from datetime import datetime, timedelta
from math import inf
from typing import TYPE_CHECKING, Any, Self

from holdfast.errors import InvalidInputError, StoreClosedError
from holdfast.storage.contract import Storage
from holdfast.store import state as blocking
from holdfast.store.commit.change import Change as Asked
from holdfast.store.commit.change import Ticket
from holdfast.store.commit.group import Core
from holdfast.store.history.checkpoint import Plan
from holdfast.store.history.handle import LineHandle
from holdfast.store.journal.lifetime import asked_terms
from holdfast.store.long import PIECE, LongReader, LongWriter, as_bytes, check_piece, sought
from holdfast.store.names.arguments import listed
from holdfast.store.names.face import asynchronous, made
from holdfast.store.names.threads import (
    HERE,
    MUCH,
    TooMuch,
    here_or_away,
    read_away,
    surely,
    to_the_end,
)
from holdfast.store.read.change_block import ScopedChange
from holdfast.store.tree.value import copied, copied_plain, is_longer

if TYPE_CHECKING:  # a stub alone, which scripts/stubs.py writes
    from holdfast.store.made import MadeChangePart, MadeState, MadeView

    ChangePart = MadeChangePart
else:
    MadeView, MadeState = made(blocking.View), made(blocking.State)
    ChangePart = asynchronous(ScopedChange)


class View(MadeView):
    """The state of one timeline as it was at one entry; it cannot be changed."""

    _blocking: blocking.View
    _handle: LineHandle
    _storage: Storage

    @classmethod
    def _of(cls, found: blocking.View) -> Self:
        """The async face of a blocking view."""
        view = cls.__new__(cls)
        view._blocking = found
        view._handle = found._handle
        view._storage = found._storage
        return view

    async def get_many(self, keys: Iterable[str], *, plain: bool = False) -> dict[str, Any]:
        names = listed(keys, "get_many")  # an iterator gives them once, and it may be begun anew
        return await here_or_away(self._storage, self._handle.reader.get_many, names, plain)

    def open_read(self, key: str) -> ReadStream:
        return ReadStream(self._handle, key)


class State(View, MadeState):
    """A handle on one timeline of one scope. Making one touches nothing."""

    _blocking: blocking.State
    _run: Callable[..., Awaitable[Any]]

    @classmethod
    def _of(cls, found: blocking.View) -> Self:
        """The async face of a blocking state; it commits as its store does."""
        state = super()._of(found)
        state._run = pump_of(found._handle.core).commit
        return state

    async def _write(
        self, plan: Callable[..., Plan], key: str, value: Any, subject: str | None, *args: Any
    ) -> Any:
        """Plan and commit a change to a value as it is now, whatever its owner does while it waits.

        If nothing waits before it is encoded, for a network, a subject's key or a thread, it need
        not be copied. What is long is encoded on a thread, if it is plain data.
        """
        own = copied_plain(value) if is_longer(value, MUCH) else None
        if own is not None:
            return await self._run(await to_the_end(plan, key, own, *args, subject))
        if subject is None and self._storage.limits.embedded:
            HERE.left = MUCH
            try:
                made = plan(key, value, *args, subject)
            except TooMuch:
                made = await to_the_end(plan, key, value, *args, subject)
            finally:
                HERE.left = inf
        else:
            value = copied(value)
            away = to_the_end
            made = await here_or_away(self._storage, plan, key, value, *args, subject, away=away)
        return await self._run(made)

    async def set(
        self,
        key: str,
        value: Any,
        *,
        if_version: int | None = None,
        ttl: float | timedelta | None = None,
        expires: datetime | None = None,
        sliding: bool = False,
        class_: str | None = None,
        subject: str | None = None,
    ) -> int:
        terms = None
        if ttl is not None or expires is not None or sliding is not False or class_ is not None:
            terms = asked_terms(ttl, expires, sliding, class_)
        return await self._write(self._handle.plan_set, key, value, subject, if_version, terms)  # type: ignore[no-any-return]

    async def append(self, key: str, item: Any, *, subject: str | None = None) -> int:
        return await self._write(self._handle.plan_extend, key, [item], subject)  # type: ignore[no-any-return]

    async def extend(self, key: str, items: Iterable[Any], *, subject: str | None = None) -> int:
        return await self._write(self._handle.plan_extend, key, listed(items, "extend"), subject)  # type: ignore[no-any-return]

    def open_write(self, key: str, *, if_version: int | None = None) -> WriteStream:
        return WriteStream(self._handle, key, if_version)


# ---- commits ------------------------------------------------------------------------------------
# Commits for the async face: where they run, and who is woken.
#
# At `full` a commit waits for the disk and runs on the store's one writer thread; at `normal` it
# runs in the loop, once for all changes that wait at that moment, unless one of them may take long.


log = logging.getLogger("holdfast.store")
AT_ONCE = 128
"""Tasks that are woken before others of their loop get a turn: they take about 2 ms."""


class _Waiter:
    """A task that waits for a change. Its future is made anew if cancelling has used it up."""

    __slots__ = ("future", "loop", "told")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.future: asyncio.Future[None] = loop.create_future()
        self.told = False

    async def again(self) -> None:
        """Wait on, after the first wait was cancelled, however often that happens again."""
        while not self.told:
            self.future = self.loop.create_future()
            with suppress(asyncio.CancelledError):
                await self.future


class Pump:
    """Commits what waits, and wakes the tasks that wait for it."""

    def __init__(self, core: Core, mode: str) -> None:
        self._core = core
        self._inline = mode == "inline"
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None
        self._stopped = False
        self._lock = threading.Lock()  # several loops commit through one thread
        self._scheduled: set[asyncio.AbstractEventLoop] = set()
        self._long = 0
        """Changes under way that no loop may commit, nor wait for: all others go with them."""
        core.later = self.later
        core.pump = self

    async def commit(self, plan: Plan, away: bool = False) -> Any:
        """Commit a change; cancelling withdraws it only while it waits.

        `away` is for what may take long to build: it is never done in the loop, nor is what writes
        long values.
        """
        change, finish = plan
        core, loop = self._core, asyncio.get_running_loop()
        if self._stopped:
            raise StoreClosedError("the store is closed; open it again")
        if core.closed or core.read_only:
            core.check_writable()
        waiter = _Waiter(loop)
        ticket = Ticket(change, waiter)
        long = self._inline and (away or change.long)
        if long:
            self._count(1)
        try:
            core.committer.submit(ticket)
            self._start(loop)
            await waiter.future
        except asyncio.CancelledError:
            if not core.committer.withdraw(ticket):
                await waiter.again()  # it is on its way: its outcome stands, then the task ends
                with suppress(Exception):  # if nothing was committed, there is nothing to know
                    finish(ticket.outcome())
            raise
        finally:
            if long:
                self._count(-1)
        return finish(ticket.outcome())

    def _count(self, more: int) -> None:
        with self._lock:
            self._long += more

    def later(self, change: Asked) -> None:
        """Commit a change that nobody waits for; in a thread without a loop, at once."""
        ticket = Ticket(change)
        self._core.committer.submit(ticket)
        try:
            self._start(asyncio.get_running_loop())
        except RuntimeError:
            self._core.committer.drive(ticket)

    def _start(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._inline and not self._long:
            if loop not in self._scheduled:
                self._scheduled.add(loop)
                loop.call_soon(self._drain, loop)
            return
        if self._thread is None:
            with self._lock:
                if self._thread is None:
                    self._thread = threading.Thread(
                        target=self._work, name="holdfast-writer", daemon=True
                    )
                    self._thread.start()
        if not self._wake.is_set():
            self._wake.set()

    def _drain(self, loop: asyncio.AbstractEventLoop) -> None:
        self._scheduled.discard(loop)
        if self._long:
            self._start(loop)
        else:
            self._core.committer.drain()

    def _work(self) -> None:
        while True:
            self._wake.wait()
            # Cleared before looking: what comes later sets it again.
            self._wake.clear()
            try:
                self._core.committer.drain()
            except BaseException:  # who waits is told; without this thread all others would hang
                log.exception("a change ended the thread that writes, which goes on")
                self._wake.set()
            if self._stopped:
                return

    def wake(self, waiting: list[_Waiter]) -> None:
        """Wake the tasks whose changes have an outcome: one call into a loop for all of a group."""
        by_loop: dict[asyncio.AbstractEventLoop, list[_Waiter]] = {}
        for waiter in waiting:
            by_loop.setdefault(waiter.loop, []).append(waiter)
        for loop, some in by_loop.items():
            with suppress(RuntimeError):  # the loop is gone, and with it who waited
                loop.call_soon_threadsafe(_tell, loop, some)

    def stop(self) -> None:
        """Commit what waits and end the writer thread."""
        self._core.committer.drain()
        self._stopped = True
        if self._thread is not None:
            self._wake.set()
            self._thread.join()


def _tell(loop: asyncio.AbstractEventLoop, waiting: list[_Waiter]) -> None:
    """Wake tasks; called in their loop, whose others get a turn between a few and the rest."""
    if len(waiting) > AT_ONCE:
        loop.call_soon(_tell, loop, waiting[AT_ONCE:])
    for waiter in waiting[:AT_ONCE]:
        waiter.told = True
        if not waiter.future.done():
            waiter.future.set_result(None)


def pump_of(core: Core) -> Pump:
    """What commits for the async face of a store; a store that was opened blocking gets one."""
    pump: Pump | None = core.pump
    return pump if pump is not None else Pump(core, "thread")


# ---- long values --------------------------------------------------------------------------------
# Long values on the async face: what cuts, hashes or waits leaves the event loop.


class WriteStream:
    """Bytes on their way to a key: `async with state.open_write(key) as f: await f.write(data)`.

    The key changes when the block ends; with an error, nothing happens to it. A write that is
    cancelled ends it, too: what follows in the block is refused. Tasks take turns, each with a
    whole piece.
    """

    def __init__(self, handle: LineHandle, key: str, if_version: int | None) -> None:
        self._writer = LongWriter(handle, key, if_version)
        self._closed = False
        self._turn = asyncio.Lock()  # pieces of several tasks go in whole

    @property
    def version(self) -> int | None:
        """The entry that it became, which is the key's new version; None before it is closed."""
        return self._writer.version

    @property
    def size(self) -> int:
        """How many bytes were written."""
        return self._writer.size

    async def write(self, data: bytes | bytearray | memoryview) -> int:
        """Add bytes; returns how many."""
        data = as_bytes(data)
        async with self._turn:
            if self._writer.holds(len(data)):
                return self._writer.write(data)
            try:
                return await to_the_end(self._writer.write, data)
            except asyncio.CancelledError:
                # Nobody is told whether it was written: going on would leave it out, or double it.
                await surely(self._writer.abort, "a write was cancelled")
                raise

    async def close(self) -> None:
        """Let the key have what was written; a second call does nothing."""
        if not self._closed:
            self._closed = True
            await surely(self._writer.commit)

    async def abort(self) -> None:
        """Forget what was written."""
        self._closed = True
        await surely(self._writer.abort)

    async def __aenter__(self) -> WriteStream:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            await self.abort()
        else:
            await self.close()


class ReadStream:
    """The bytes under a key as they are when it is opened: `async with state.open_read(key) as f`.

    `async for piece in f` gives all that is left, in pieces. Tasks take turns.
    """

    def __init__(self, handle: LineHandle, key: str) -> None:
        self._handle = handle
        self._key = key
        self._opened: LongReader | None = None
        self._at = 0
        self._turn = asyncio.Lock()  # nobody moves the place between a read and its step

    @property
    def _reader(self) -> LongReader:
        if self._opened is None:
            raise InvalidInputError(
                f"{self._handle.scope}: {self._key!r} is not open; use `async with`"
            )
        return self._opened

    @property
    def size(self) -> int:
        """How many bytes there are."""
        return self._reader.size

    @property
    def version(self) -> int:
        """The version of the key that is read."""
        return self._reader.version

    async def read(self, size: int | None = -1) -> bytes:
        """So many bytes, fewer only at the end; all that is left if none is given."""
        reader = self._reader
        async with self._turn:
            stop = reader.size if size is None or size < 0 else self._at + size
            if reader.holds(self._at, stop):
                found = reader.read(self._at, stop)
            else:
                found = await to_the_end(reader.read, self._at, stop)
            self._at += len(found)
        return found

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Go to a place; returns where it is."""
        self._at = sought(self._at, self.size, offset, whence)
        return self._at

    def tell(self) -> int:
        """Where the next read begins."""
        return self._at

    async def chunks(self, size: int = PIECE) -> AsyncIterator[bytes]:
        """All that is left, in pieces of this size."""
        check_piece(size)
        while piece := await self.read(size):
            yield piece

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self.chunks()

    async def __aenter__(self) -> ReadStream:
        self._opened = await read_away(LongReader, self._handle.reader, self._key)
        self._at = 0
        return self

    async def __aexit__(self, *_: object) -> None:
        self._opened = None
