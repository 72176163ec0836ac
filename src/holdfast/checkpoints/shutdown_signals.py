"""Signals that a block takes from what they did so far, and gives back when it ends.

Blocks may overlap and end in any order: one that ends while a later one has the signal is left out
from then on. A process that is forked has the handlers of its parent, but none of the threads
behind them: there the signals are given back before the first one can come, so that they end the
child, as whoever sends them expects, and tell the parent nothing.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterable
from types import FrameType
from typing import Any

from holdfast.errors import InvalidInputError

_taken: list[Taken] = []
"""What blocks of this process have taken, the newest last."""
_held_back = threading.local()


class Taken:
    """What one block has taken. It is made for one block, and not used again."""

    def __init__(
        self,
        called: Callable[[int, FrameType | None], None],
        forked: Callable[[], None] = lambda: None,
    ) -> None:
        """`called` is the handler while the block lasts; `forked` is called in a forked process."""
        self._called = called
        self.forked = forked
        self._before: dict[int, Any] = {}
        self._over = False

    def take(self, numbers: Iterable[int]) -> None:
        """Be called on the signals."""
        check_main_thread()
        _taken.append(self)
        for number in numbers:
            self._before[number] = signal.signal(number, self.handle)

    def give_back(self) -> None:
        """Let the signals do what they did; where others have taken them since, it is theirs."""
        self._over = True
        if self in _taken:
            _taken.remove(self)
        for number in self._before:
            if self.has(number):
                signal.signal(number, self.before(number))

    def has(self, number: int) -> bool:
        """Whether a signal comes here first."""
        return bool(signal.getsignal(number) == self.handle)

    def before(self, number: int) -> Any:
        """What a signal did before this block, and those that have ended since."""
        found = self._before.get(number)
        while isinstance(block := getattr(found, "__self__", None), Taken) and block._over:
            found = block._before.get(number)
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

    @property
    def numbers(self) -> Iterable[int]:
        """The signals."""
        return self._before.keys()


def check_main_thread() -> None:
    """Refuse to take signals where Python gives none."""
    if threading.current_thread() is not threading.main_thread():
        raise InvalidInputError("signals are taken by the main thread only; give signals=()")


def _hold_back() -> None:
    """Let no signal come to the child before it has given them back: it may be sent at once."""
    numbers = {number for one in _taken for number in one.numbers}
    _held_back.mask = signal.pthread_sigmask(signal.SIG_BLOCK, numbers) if numbers else None


def _let_come() -> None:
    if _held_back.mask is not None:
        signal.pthread_sigmask(signal.SIG_SETMASK, _held_back.mask)


def _forked() -> None:
    for one in reversed(_taken.copy()):
        one.give_back()
        one.forked()
    _let_come()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_hold_back, after_in_parent=_let_come, after_in_child=_forked)
