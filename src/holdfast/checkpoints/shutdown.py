"""The last checkpoints before a process ends: by its own will, with its store, or by a signal."""

from __future__ import annotations

import _thread
import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import FrameType
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Struct

from holdfast.checkpoints.checkpoint_group import Wanted, save_all, switched_off
from holdfast.checkpoints.checkpoint_keys import COLLECTED
from holdfast.checkpoints.schedule import Target, target_of
from holdfast.errors import InvalidInputError
from holdfast.store.inner import Book, Change, Core, Gate, LineHandle, Written
from holdfast.store.names.arguments import check_plain_function, listed, ran
from holdfast.store.names.cause import acting
from holdfast.store.names.items import Checkpoint
from holdfast.store.names.scope import Scope
from holdfast.store.names.threads import read_away, surely, to_the_end
from holdfast.store.state import State

if TYPE_CHECKING:
    from holdfast.store import store as blocking
    from holdfast.store import store_async


ATTEMPTS, PAUSE = 100, 0.1
"""How often, and after how many seconds, a signal that was not heard is sent again."""
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
        store: blocking.Store | store_async.Store,
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
            self._lines[target_of(core, one)] = None
        self._noting = _Noting(self._lines) if scopes is None else None
        if participants is not None and not isinstance(participants, Mapping):
            raise InvalidInputError(
                "participants are objects by their scopes, as in 'custom:queue'"
            )
        given = (participants or {}).items()
        self._participants = [Participation(core, target, one) for target, one in given]
        if len({one.line for one in self._participants}) < len(self._participants):
            raise InvalidInputError(
                "participants have a timeline each: what one holds is kept there"
            )
        self._lines.update((one.line, None) for one in self._participants)
        self._numbers = listed(signals, "signals")
        never = {getattr(signal, name, None) for name in ("SIGKILL", "SIGSTOP")}
        known = signal.valid_signals() - never
        if not all(type(number) is not bool and number in known for number in self._numbers):
            raise InvalidInputError(
                "signals are those of the module `signal`, but not SIGKILL and SIGSTOP, which "
                "nobody can take"
            )
        self._signals = _Signals(self.finish)
        self._lock = threading.Lock()  # block, store and signal may end it at once: one collects
        self._over = True

    def __enter__(self) -> ShutdownCheckpoints:
        self._core.check_writable()
        try:
            self._begin()
            found = self._kept()
            for one, kept in found:
                one.give(kept)
            self._given([one for one, _ in found])
        except BaseException:  # whatever it is: signals and gates are given back
            self.__exit__()
            raise
        return self

    def _taking_part(self) -> list[Participation]:
        return [] if switched_off() else self._participants

    def _begin(self) -> None:
        self._signals = _Signals(self.finish)  # those of a block are not used again
        if self._numbers:
            self._signals.take(self._numbers)
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
            for one in to:
                one.book.step(lambda page: page.delete(_ID))

    def __exit__(self, *_: object) -> None:
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
        except BaseException:  # cancelled, too: signals and gates are given back
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
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


class _Noting(Gate):
    """Notes which timelines were written to."""

    def __init__(self, lines: dict[tuple[Scope, str], None]) -> None:
        self._lines = lines

    def after(self, change: Change, written: Sequence[Written]) -> None:
        self._lines.update(((one.scope, one.timeline), None) for one in written)


# ---- participants -------------------------------------------------------------------------------
# What others hold in memory when a process ends: collected into its last checkpoints, and given
# back at the next start.
#
# It lies under `$shutdown/collected` of a scope of theirs, so the checkpoint that is made of the
# scope covers it. Whoever has been given it back has it: it is removed then, and a start after a
# crash finds nothing that was done before. Nor does one after a restore, for it is sticky.


_ID = "collected"


class Collected(Struct):
    """What was collected of a participant; there is one such record in a timeline."""

    value: Any


class Participant(Protocol):
    """Something that holds what is worth keeping in memory only, such as a queue at work."""

    def collect(self) -> Any:
        """What is to be kept of it: a value as `set` takes it.

        It must change nothing: where a signal is not the end, it is called again at the end, and
        what it gives then takes the place of what it gave before.
        """

    def restore(self, kept: Any, /) -> Any:
        """Take up again what `collect` gave before the last end.

        It may get the same once more: if the block does not begin after all, or the process is
        killed before it is noted who has it.
        """


class Participation:
    """One participant, and the timeline that keeps what it holds."""

    def __init__(self, core: Core, target: Any, participant: Participant) -> None:
        self.line = target_of(core, target)
        self.book = Book(State(LineHandle(core, *self.line)), COLLECTED, Collected)
        self._participant = participant
        for name in ("collect", "restore"):
            function = getattr(participant, name, None)
            check_plain_function(function, f"{name} of what takes part for {self.line[0]}")

    def kept(self) -> list[Any]:
        """What was collected, as the only item; empty if nothing was, or somebody took it."""
        found = self.book.get(_ID)
        return [] if found is None else [found.value]

    def give(self, kept: Any) -> None:
        """Let it have that again."""
        ran(self._participant.restore(kept), "restore of a participant")

    def collect(self) -> list[Any]:
        """What it holds now, as the only item; empty if it cannot say."""
        try:
            return [ran(self._participant.collect(), "collect of a participant")]
        except Exception:
            _log.exception("%s: nothing was collected of what takes part", self.line[0])
            return []

    def keep(self, held: list[Any]) -> None:
        """Store what was collected. What cannot be stored keeps nothing else from being stored."""
        try:
            if held:
                self.book.step(lambda page: page.put(_ID, Collected(held[0])))
        except Exception as error:
            _log.error("%s: what was collected is not kept: %s", self.line[0], error)


# ---- shutdown signals ---------------------------------------------------------------------------
# Signals that a block takes from what they did so far, and gives back when it ends.
#
# Blocks may overlap and end in any order: one that ends while a later one has the signal is left
# out from then on. A process that is forked has the handlers of its parent, but none of the threads
# behind them: there the signals are given back before the first one can come, so that they end the
# child, as whoever sends them expects, and tell the parent nothing. A handler that looks where it
# is would not do: one that is in a long call of an extension runs none before that returns.


_taken: list[TakenSignals] = []
"""What blocks of this process have taken, the newest last."""


class TakenSignals:
    """What one block has taken. It is made for one block, and not used again."""

    def __init__(self, called: Callable[[int, FrameType | None], None]) -> None:
        """`called` is the handler while the block lasts."""
        self._called = called
        self.numbers: dict[int, Any] = {}
        """The signals, and what each did before."""
        self._over = False

    def take(self, numbers: Iterable[int]) -> None:
        """Be called on the signals."""
        check_main_thread()
        _taken.append(self)
        for number in numbers:
            self.numbers[number] = signal.signal(number, self.handle)

    def give_back(self) -> None:
        """Let the signals do what they did; where others have taken them since, it is theirs."""
        self._over = True
        if self in _taken:
            _taken.remove(self)
        for number in self.numbers:
            if signal.getsignal(number) == self.handle:
                signal.signal(number, self.before(number))

    def before(self, number: int) -> Any:
        """What a signal did before this block, and those that have ended since."""
        found = self.numbers.get(number)
        while isinstance(block := getattr(found, "__self__", None), TakenSignals) and block._over:
            found = block.numbers.get(number)
        return signal.SIG_DFL if found is None else found

    def handle(self, number: int, frame: FrameType | None) -> None:
        """The handler. Somebody who took the signal later may call it when the block is over."""
        if self._over:
            self.pass_on(number, frame)
        else:
            self._called(number, frame)

    def pass_on(self, number: int, frame: FrameType | None) -> None:
        """Do what the signal did before."""
        before = self.before(number)
        if callable(before):
            before(number, frame)
        elif before != signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)


class _Signals(TakenSignals):
    """Signals on which something is done before what they did so far.

    A handler runs between two steps of the main thread, which may hold any lock of the store: so it
    only begins a thread, which does the work and sends the signal again.
    """

    def __init__(self, work: Callable[[], Any]) -> None:
        super().__init__(self._heard)
        self._work = work
        self._done = self._passed_on = False
        self._sending = threading.Lock()
        """Held from the look whether a signal was heard until it is sent again: behind `give_back`
        it would do once more what it does without this block, as ending the process."""

    def give_back(self) -> None:
        """Let the signals do what they did."""
        with self._sending:
            super().give_back()
            self._passed_on = True

    def _heard(self, number: int, frame: FrameType | None) -> None:
        if self._done:
            self._passed_on = True
            self.pass_on(number, frame)
        else:  # a `threading.Thread` would take locks to begin, which the main thread may hold
            _thread.start_new_thread(self._work_first, (number,))

    def _work_first(self, number: int) -> None:
        try:
            self._work()
        except Exception:
            _log.exception("no checkpoints could be made on a signal")
        self._done = True
        for _ in range(ATTEMPTS):  # one that comes just before the main thread waits is not heard
            with self._sending:
                if self._passed_on:
                    return
                os.kill(os.getpid(), number)
            time.sleep(PAUSE)


def check_main_thread() -> None:
    """Refuse to take signals where Python gives none."""
    if threading.current_thread() is not threading.main_thread():
        raise InvalidInputError("signals are taken by the main thread only; give signals=()")


_mask = threading.local()


def _hold_back() -> None:
    """Let no signal come to a child before it has given them back: it may be sent at once."""
    _mask.before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())


def _let_come() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, _mask.before)


def _forked() -> None:
    for one in reversed(_taken.copy()):
        TakenSignals.give_back(one)  # of the class: a lock of a block may be held in the parent
    _let_come()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_hold_back, after_in_parent=_let_come, after_in_child=_forked)
