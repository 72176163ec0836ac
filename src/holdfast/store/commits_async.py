"""Commits for the async face: where they run, and who is woken.

At `full` a commit waits for the disk and runs on the store's one writer thread; at `normal` it
runs in the loop, once for all changes that wait at that moment, unless one of them may take long.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from holdfast.errors import StoreClosedError
from holdfast.store.commit.change import Change, Ticket
from holdfast.store.commit.core import Core
from holdfast.store.history.checkpoint import Plan
from holdfast.store.names.threads import TogetherAway, to_the_end
from holdfast.store.rules.subjects import check_subject

log = logging.getLogger("holdfast.store")


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

    def tell(self) -> None:
        """Wake the task; called in its loop."""
        self.told = True
        if not self.future.done():
            self.future.set_result(None)


class Pump:
    """Commits what waits, and wakes the tasks that wait for it."""

    def __init__(self, core: Core, mode: str) -> None:
        self._core = core
        self._inline = mode == "inline"
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None
        self._stopped = False
        self._lock = threading.Lock()
        self._done: dict[asyncio.AbstractEventLoop, list[_Waiter]] = {}
        self._scheduled: set[asyncio.AbstractEventLoop] = set()
        self._long = 0
        """Changes under way that no loop may commit, nor wait for: all others go with them."""
        self.plan = TogetherAway[Plan]().read
        core.later = self.later
        core.pump = self

    async def commit(self, plan: Plan, *, away: bool = False) -> Any:
        """Commit a change; cancelling withdraws it only while it waits.

        `away` is for what may take long to build: it is never done in the loop, nor is what writes
        long values.
        """
        if not self._inline or not (away or plan[0].long):
            return await self._commit(plan)
        with self._lock:
            self._long += 1
        try:
            return await self._commit(plan)
        finally:
            with self._lock:
                self._long -= 1

    async def _commit(self, plan: Plan) -> Any:
        change, finish = plan
        loop = asyncio.get_running_loop()
        if self._stopped:
            raise StoreClosedError("the store is closed; open it again")
        waiter = _Waiter(loop)
        ticket = Ticket(change)
        ticket.on_done = lambda _: self._finished(waiter)
        self._core.check_writable()
        self._core.committer.submit(ticket)
        self._start(loop)
        try:
            await waiter.future
        except asyncio.CancelledError:
            if not self._core.committer.withdraw(ticket):
                await waiter.again()  # it is on its way: its outcome stands, then the task ends
                with suppress(Exception):  # if nothing was committed, there is nothing to know
                    finish(ticket.outcome())
            raise
        return finish(ticket.outcome())

    def later(self, change: Change) -> None:
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

    def _finished(self, waiter: _Waiter) -> None:
        """Wake the waiting task; one call into the loop serves all that finish together."""
        loop = waiter.loop
        with self._lock:
            waiting = self._done.get(loop)
            if waiting is None:
                self._done[loop] = [waiter]
            else:
                waiting.append(waiter)
        if waiting is None:
            try:
                loop.call_soon_threadsafe(self._resolve, loop)
            except RuntimeError:
                with self._lock:
                    self._done.pop(loop, None)  # the loop is gone, and with it who waited

    def _resolve(self, loop: asyncio.AbstractEventLoop) -> None:
        with self._lock:
            waiting = self._done.pop(loop, [])
        for waiter in waiting:
            waiter.tell()

    def stop(self) -> None:
        """Commit what waits and end the writer thread."""
        self._core.committer.drain()
        self._stopped = True
        if self._thread is not None:
            self._wake.set()
            self._thread.join()


def pump_of(core: Core) -> Pump:
    """What commits for the async face of a store; a store that was opened blocking gets one."""
    pump: Pump | None = core.pump
    return pump if pump is not None else Pump(core, "thread")


async def subjects_made(core: Core, names: Iterable[str | None]) -> None:
    """Let subjects be there before a change is built: making one waits for the disk."""
    for name in names:
        if name is not None and not core.subjects.holds(check_subject(name)):
            core.check_writable()
            await to_the_end(core.subjects.of, check_subject(name))
