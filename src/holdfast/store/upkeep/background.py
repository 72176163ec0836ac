"""Work in the background of an open store."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from holdfast.errors import StoreClosedError
from holdfast.store.commit.core import Core

log = logging.getLogger("holdfast.background")

_working: ContextVar[tuple[object, ...]] = ContextVar("holdfast_background", default=())


@contextmanager
def at_work(whose: object) -> Iterator[None]:
    """A block that is work of somebody, also what it calls in other threads and tasks."""
    token = _working.set((*_working.get(), whose))
    try:
        yield
    finally:
        _working.reset(token)


def is_at_work(whose: object) -> bool:
    """Whether this is called by the work of somebody, which cannot wait for its own end."""
    return any(one is whose for one in _working.get())


class Background:
    """Does something again and again in a thread, until it is stopped or the store is closed.

    `last` is called behind the last turn, by whoever stops it.
    """

    def __init__(
        self,
        core: Core,
        name: str,
        interval: float,
        turn: Callable[[], Any],
        last: Callable[[], Any] | None = None,
    ) -> None:
        self._core = core
        self._name = name
        self._interval = interval
        self._turn = turn
        self._last = last
        self._end = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin; a second call does nothing."""
        self._core.check_open()
        if self._thread is None:
            # Its own: a turn that stops it, and starts it anew, still sees that it is stopped.
            self._end = threading.Event()
            self._core.closing.append(self.stop)
            self._thread = threading.Thread(
                target=self._work, args=(self._end,), name=self._name, daemon=True
            )
            self._thread.start()

    def stop(self) -> None:
        """End after the turn at work; what that calls does not wait for it."""
        self._end.set()
        if self.stop in self._core.closing:
            self._core.closing.remove(self.stop)
        thread, self._thread = self._thread, None
        if is_at_work(self):
            return
        if thread is not None:
            thread.join()
        if self._last is not None:
            self._last()

    def _work(self, end: threading.Event) -> None:
        while not end.is_set():
            try:
                with at_work(self):
                    self._turn()
            except StoreClosedError:
                return
            except Exception:
                # Whatever it is, the next turn may do better: the storage may serve again.
                log.exception("%s could not do its work just now", self._name)
            end.wait(self._interval)
