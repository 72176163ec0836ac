"""The turn of one thread to write to a SQLite file."""

from __future__ import annotations

import threading
from collections.abc import Callable


class Turn:
    """A write transaction that is begun early; the first commit inside uses and ends it.

    The thread that takes the turn is the one that commits in it. Whatever a signal's handler raises
    there, Ctrl-C before all, no other thread may wait for it for ever.
    """

    __slots__ = ("_begin", "_end", "_held", "_lock", "_thread")

    def __init__(
        self, lock: threading.RLock, begin: Callable[[], None], end: Callable[[], None]
    ) -> None:
        self._lock, self._begin, self._end = lock, begin, end
        self._thread = 0
        self._held = False

    def __enter__(self) -> None:
        try:
            self._thread = threading.get_ident()
            # Not by a call, behind which an interrupt can come before its result is noted.
            [self._held] = map(self._lock.acquire, (True,))
            self._begin()
        except BaseException:
            self._leave()
            raise

    def __exit__(self, *_: object) -> None:
        self._leave()

    def __del__(self) -> None:
        # An interrupt came where the turn was to be left. Its transaction, if there is one still,
        # is the next one's to end, for this may be late.
        if self._thread == threading.get_ident():
            self._release()

    def _leave(self) -> None:
        try:
            if self._held:
                self._end()
        finally:
            self._release()

    def _release(self) -> None:
        if self._held:
            self._held = False
            self._lock.release()
