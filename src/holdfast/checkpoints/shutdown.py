"""The last checkpoints before a process ends: by its own will, with its store, or by a signal."""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any

from holdfast.checkpoints.group_save import Wanted, save_all, switched_off
from holdfast.checkpoints.participants import (
    Participant,
    Participation,
    note_taken,
    participations,
)
from holdfast.checkpoints.schedule.schedule import Target, target_of
from holdfast.checkpoints.shutdown_signals import Taken, check_main_thread
from holdfast.errors import InvalidInputError
from holdfast.store.commit.change import Change, Written
from holdfast.store.commit.core import Core
from holdfast.store.names.arguments import listed
from holdfast.store.names.cause import acting
from holdfast.store.names.items import Checkpoint
from holdfast.store.names.scope import Scope
from holdfast.store.names.threads import read_away, surely, to_the_end
from holdfast.store.rules.gates import Gate

if TYPE_CHECKING:
    from holdfast.store import state, store_async

ATTEMPTS, PAUSE = 100, 0.1
"""How often, and after how many seconds, a signal that was not heard is sent again."""
CALLED = 0x80
"""Set in the number of a signal that was heard by the handler, not from the interpreter."""
_log = logging.getLogger("holdfast.shutdown")


class ShutdownCheckpoints:
    """Automatic checkpoints, with the trigger `shutdown`, of what was written since the last ones.

    They are made when the block ends or the store is closed, whichever comes first, and on SIGTERM;
    what happened before on that signal happens then (by default the process ends). If that lets the
    program go on, what it still writes has its checkpoint at the end of the block. Of the scopes
    given, or of all timelines that this store has written to meanwhile; its other processes have
    their own. For both faces: `with` or `async with`. The block is begun in the main thread, which
    alone can take signals, or with `signals=()`. Nothing helps against SIGKILL or a power failure;
    what was written is durable without these checkpoints, too.

    `participants`, by scopes, are asked by `collect()` for what they hold in memory only, which is
    stored and covered by the checkpoint of their scope; at the beginning of the next block it is
    given back by `restore(kept)`, once: again only if the block does not begin or the process is
    killed before that is noted, or is killed behind a signal that did not end it. They are plain
    functions; on a signal `collect` is called in another thread, and again at the end of the block
    if that is reached: it must change nothing.
    """

    def __init__(
        self,
        store: state.Store | store_async.Store,
        scopes: Iterable[Target] | None = None,
        *,
        signals: Iterable[int] = (signal.SIGTERM,),
        participants: Mapping[Target, Participant] | None = None,
    ) -> None:
        core = getattr(store, "_core", None)
        if not isinstance(core, Core):
            raise InvalidInputError("checkpoints on shutdown are made from an open store")
        self._core = core
        self._lines: dict[tuple[Scope, str], None] = {}
        for one in () if scopes is None else listed(scopes, "scopes"):
            scope, timeline = target_of(core, one)
            self._lines[Scope.parse(scope or ""), timeline] = None
        self._noting = _Noting(self._lines) if scopes is None else None
        self._participants = participations(core, participants)
        self._lines.update((one.line, None) for one in self._participants)
        self._signals = _Signals(_checked(signals), self.finish)
        self._lock = threading.Lock()
        self._over = True

    def __enter__(self) -> ShutdownCheckpoints:
        self._core.check_writable()
        try:
            self._begin()
            found = self._kept()
            for one, kept in found:
                one.give(kept)
            self._given([one for one, _ in found])
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def _taking_part(self) -> list[Participation]:
        return [] if switched_off() else self._participants

    def _begin(self) -> None:
        self._signals.take()
        if self._noting is not None:
            self._core.gates.add(self._noting)
        self._core.closing.append(self._end)

    def _kept(self) -> list[tuple[Participation, Any]]:
        return [(one, kept) for one in self._taking_part() for kept in one.kept()]

    def _given(self, to: list[Participation]) -> None:
        """Note that all have what was kept for them: the last step, for then nobody else has it.

        From here on they are asked again at the end, also if that comes before the block is run.
        """
        with self._lock:
            self._over = False
            note_taken(self._core, to)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self._end()
        finally:
            self._leave()

    async def __aenter__(self) -> ShutdownCheckpoints:
        self._core.check_writable()
        try:
            self._begin()
            found = await read_away(self._kept)
            for one, kept in found:
                one.give(kept)  # here, where what it holds is at home
            await to_the_end(self._given, [one for one, _ in found])
        except BaseException:
            await self.__aexit__(None, None, None)
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            taking_part = [] if self._over else self._taking_part()
            await surely(self._end, [one.collect() for one in taking_part])
        finally:
            self._leave()

    def finish(self) -> list[Checkpoint]:
        """Make the checkpoints now, where something was written since the last ones."""
        return self._finish(None)

    def _finish(self, collected: list[list[Any]] | None) -> list[Checkpoint]:
        with self._lock:
            if self._over:
                return []
            with acting("shutdown"):
                taking_part = self._taking_part()
                if collected is None:
                    collected = [one.collect() for one in taking_part]
                for one, held in zip(taking_part, collected, strict=True):
                    one.keep(held)
                wanted = [
                    Wanted(scope, timeline, "shutdown", "automatic", {"trigger": "shutdown"})
                    for scope, timeline in list(self._lines)
                ]
                made = save_all(self._core, wanted)
        for asked, saved in zip(wanted, made, strict=True):
            if saved.error is not None:
                _log.error("%s: no checkpoint on shutdown: %s", asked.scope, saved.error)
        return [saved.checkpoint for saved in made if saved.checkpoint is not None]

    def _end(self, collected: list[list[Any]] | None = None) -> None:
        """What goes wrong must keep neither the store from closing nor an error from being seen."""
        try:
            self._finish(collected)
        except Exception:
            _log.exception("no checkpoints could be made on shutdown")
        self._over = True

    def _leave(self) -> None:
        self._signals.give_back()
        if self._noting is not None:
            self._core.gates.remove(self._noting)
        if self._end in self._core.closing:
            self._core.closing.remove(self._end)


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
    only wakes a thread, which does the work and sends the signal again. And it runs when that
    thread next does a step: a signal that comes just before it begins to wait does not end the
    wait. So the thread hears of signals from the interpreter itself (`set_wakeup_fd`), unless that
    is in use: then whoever uses it ends the wait.
    """

    def __init__(self, numbers: list[int], work: Any) -> None:
        self._numbers = numbers
        self._work = work
        self._taken: Taken | None = None
        self._done = False
        self._passed_on = False
        self._pipe: tuple[int, int] | None = None
        self._sending = threading.RLock()
        """Held from the look whether a signal was heard until it is sent again: behind `give_back`
        it would do once more what it does without this block, as ending the process."""

    def take(self) -> None:
        """Be called on the signals."""
        if not self._numbers:
            return
        check_main_thread()
        self._done = self._passed_on = False
        self._taken = Taken(self._called, self._forked)
        self._pipe = os.pipe()
        os.set_blocking(self._pipe[1], False)
        others = signal.set_wakeup_fd(self._pipe[1], warn_on_full_buffer=False)
        if others != -1:
            signal.set_wakeup_fd(others)
        threading.Thread(
            target=self._wait,
            args=(self._pipe[0], self._taken),
            name="holdfast-shutdown",
            daemon=True,
        ).start()
        self._taken.take(self._numbers)

    def give_back(self) -> None:
        """Let the signals do what they did."""
        with self._sending:
            if self._taken is not None:
                self._taken.give_back()
        if self._pipe is not None:
            self._unplug(self._pipe[1])
            self._pipe = None  # the thread ends, and closes its side

    def _unplug(self, end: int) -> None:
        others = signal.set_wakeup_fd(-1)
        if others != end:
            signal.set_wakeup_fd(others)
        os.close(end)

    def _forked(self) -> None:
        """Let go, in a forked process, of what leads to the thread in its parent."""
        self._sending = threading.RLock()  # the thread may have had it
        if self._pipe is not None:
            self._unplug(self._pipe[1])
            os.close(self._pipe[0])
            self._pipe = None

    def _called(self, number: int, frame: FrameType | None) -> None:
        if not self._done and self._pipe is not None:
            with suppress(OSError):  # it is full, of signals
                os.write(self._pipe[1], bytes([CALLED | number]))
            return
        self._passed_on = True
        assert self._taken is not None
        self._taken.pass_on(number, frame)

    def _wait(self, end: int, taken: Taken) -> None:
        try:
            while told := os.read(end, 1):  # of all that have a handler, and of some twice
                number = told[0] & ~CALLED
                # Where somebody else has taken it since, as a loop does, it is theirs.
                mine = told[0] & CALLED or taken.has(number)
                if number in self._numbers and mine and not self._done:
                    self._pass_on(number, taken)
        finally:
            os.close(end)

    def _pass_on(self, number: int, taken: Taken) -> None:
        try:
            self._work()
        except Exception:
            _log.exception("no checkpoints could be made on a signal")
        self._done = True
        os.kill(os.getpid(), number)
        for _ in range(ATTEMPTS):  # this one, too, may come just before a wait
            time.sleep(PAUSE)
            with self._sending:
                if self._passed_on or not taken.has(number):
                    return
                os.kill(os.getpid(), number)
