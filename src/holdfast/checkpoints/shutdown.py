"""The last checkpoints before a process ends: by its own will, with its store, or by a signal."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import threading
from collections.abc import Iterable, Sequence
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any

from holdfast.checkpoints.saving import Wanted, save_all
from holdfast.checkpoints.schedules import Target, target_of
from holdfast.errors import InvalidInputError
from holdfast.store.arguments import listed
from holdfast.store.cause import acting
from holdfast.store.change import Change, Written
from holdfast.store.core import Core
from holdfast.store.gates import Gate
from holdfast.store.items import Checkpoint
from holdfast.store.scopes import Scope

if TYPE_CHECKING:
    from holdfast.store import async_store, blocking

_log = logging.getLogger("holdfast.shutdown")


class ShutdownCheckpoints:
    """Automatic checkpoints, with the trigger `shutdown`, of what was written since the last ones.

    They are made once: when the block ends, when the store is closed, or on SIGTERM, whichever
    comes first; on SIGTERM what happened before on that signal happens then (by default the process
    ends). Of the scopes given, or of all timelines that this store has written to meanwhile; its
    other processes have their own. For both faces: `with` or `async with`. The block is begun in
    the main thread, which alone can take signals, or with `signals=()`. Nothing helps against
    SIGKILL or a power failure; what was written is durable without these checkpoints, too.
    """

    def __init__(
        self,
        store: blocking.Store | async_store.Store,
        scopes: Iterable[Target] | None = None,
        *,
        signals: Iterable[int] = (signal.SIGTERM,),
    ) -> None:
        core = getattr(store, "_core", None)
        if not isinstance(core, Core):
            raise InvalidInputError("checkpoints on shutdown are made from an open store")
        self._core = core
        self._lines: dict[tuple[Scope, str], None] = {}
        for one in () if scopes is None else listed(scopes, "scopes"):
            scope, timeline = target_of(one)
            self._lines[Scope.parse(scope or ""), timeline] = None
        self._noting = _Noting(self._lines) if scopes is None else None
        self._signals = _Signals(_checked(signals), self.finish)
        self._lock = threading.Lock()
        self._over = True

    def __enter__(self) -> ShutdownCheckpoints:
        self._core.check_writable()
        self._signals.take()
        self._over = False
        if self._noting is not None:
            self._core.gates.add(self._noting)
        self._core.closing.append(self._finish_quietly)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self._finish_quietly()
        finally:
            self._leave()

    async def __aenter__(self) -> ShutdownCheckpoints:
        return self.__enter__()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            await asyncio.shield(asyncio.to_thread(self._finish_quietly))
        finally:
            self._leave()

    def finish(self) -> list[Checkpoint]:
        """Make the checkpoints now, if they have not been made; those of which there is one."""
        with self._lock:
            if self._over:
                return []
            self._over = True
            with acting("shutdown"):
                wanted = [
                    Wanted(scope, timeline, "shutdown", "automatic", {"trigger": "shutdown"})
                    for scope, timeline in list(self._lines)
                ]
                made = save_all(self._core, wanted)
        for one, saved in zip(wanted, made, strict=True):
            if saved.error is not None:
                _log.error("%s: no checkpoint on shutdown: %s", one.scope, saved.error)
        return [saved.checkpoint for saved in made if saved.checkpoint is not None]

    def _finish_quietly(self) -> None:
        """What goes wrong must keep neither the store from closing nor an error from being seen."""
        try:
            self.finish()
        except Exception:
            _log.exception("no checkpoints could be made on shutdown")

    def _leave(self) -> None:
        self._signals.give_back()
        if self._noting is not None:
            self._core.gates.remove(self._noting)
        if self._finish_quietly in self._core.closing:
            self._core.closing.remove(self._finish_quietly)


def _checked(signals: Iterable[int]) -> list[int]:
    """Signals that a process can take."""
    numbers = listed(signals, "signals")
    never = {getattr(signal, name, None) for name in ("SIGKILL", "SIGSTOP")}
    if not all(type(n) is not bool and n in signal.valid_signals() - never for n in numbers):
        raise InvalidInputError(
            "signals are those of the module `signal`, but not SIGKILL and SIGSTOP, which nobody "
            "can take"
        )
    return numbers


class _Noting(Gate):
    """Notes which timelines were written to."""

    def __init__(self, lines: dict[tuple[Scope, str], None]) -> None:
        self._lines = lines

    def after(self, change: Change, written: Sequence[Written]) -> None:
        self._lines.update(((one.scope, one.timeline), None) for one in written)


class _Signals:
    """Signals on which something is done before what they did so far.

    A handler runs between two steps of the main thread, which may hold any lock of the store: so it
    only wakes a thread, which does the work and sends the signal again.
    """

    def __init__(self, numbers: list[int], work: Any) -> None:
        self._numbers = numbers
        self._work = work
        self._before: dict[int, Any] = {}
        self._done = False
        self._pipe: tuple[int, int] | None = None

    def take(self) -> None:
        """Be called on the signals."""
        if not self._numbers:
            return
        if threading.current_thread() is not threading.main_thread():
            raise InvalidInputError("signals are taken by the main thread only; give signals=()")
        self._pipe = os.pipe()
        threading.Thread(
            target=self._wait, args=(self._pipe[0],), name="holdfast-shutdown", daemon=True
        ).start()
        for number in self._numbers:
            self._before[number] = signal.signal(number, self._called)

    def give_back(self) -> None:
        """Let the signals do what they did."""
        for number, before in self._before.items():
            if signal.getsignal(number) == self._called:
                signal.signal(number, before if before is not None else signal.SIG_DFL)
        self._before = {}
        if self._pipe is not None:
            os.close(self._pipe[1])  # the thread ends, and closes its side
            self._pipe = None

    def _called(self, number: int, frame: FrameType | None) -> None:
        if not self._done and self._pipe is not None:
            os.write(self._pipe[1], bytes([number]))
            return
        before = self._before.get(number, signal.SIG_DFL)
        if callable(before):
            before(number, frame)
        elif before != signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

    def _wait(self, end: int) -> None:
        try:
            told = os.read(end, 1)
            if told:
                try:
                    self._work()
                except Exception:
                    _log.exception("no checkpoints could be made on a signal")
                self._done = True
                os.kill(os.getpid(), told[0])
        finally:
            os.close(end)
