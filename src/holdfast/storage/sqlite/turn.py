"""The turn of one thread to write to a SQLite file."""

from __future__ import annotations

import threading
from collections.abc import Callable


class Turn:
    """A write transaction that is begun early; the first commit inside uses and ends it.

    The thread that takes the turn is the one that commits in it. What a signal's handler raises
    there, Ctrl-C before all, gives the turn back, unless it comes at the very moment at which the
    turn is left: then no other thread can write until the handle is opened anew.
    """

    __slots__ = ("_begin", "_end", "_held", "_lock")

    def __init__(
        self, lock: threading.RLock, begin: Callable[[], None], end: Callable[[], None]
    ) -> None:
        self._lock, self._begin, self._end = lock, begin, end
        self._held = False

    def __enter__(self) -> None:
        try:
            # Not by a call, behind which an interrupt can come before its result is noted.
            [self._held] = map(self._lock.acquire, (True,))
            self._begin()
        except BaseException:
            self.__exit__()
            raise

    def __exit__(self, *_: object) -> None:
        try:
            if self._held:
                self._end()
        finally:
            if self._held:
                self._held = False
                self._lock.release()
