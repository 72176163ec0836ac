"""Work in the background of an open store."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

from holdfast.errors import StoreClosedError
from holdfast.store.core import Core

log = logging.getLogger("holdfast.background")


class Background:
    """Does something again and again in a thread, until it is stopped or the store is closed."""

    def __init__(self, core: Core, name: str, interval: float, turn: Callable[[], Any]) -> None:
        self._core = core
        self._name = name
        self._interval = interval
        self._turn = turn
        self._end = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin; a second call does nothing."""
        self._core.check_writable()
        if self._thread is None:
            self._end.clear()
            self._core.closing.append(self.stop)
            self._thread = threading.Thread(target=self._work, name=self._name, daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """End after the turn at work."""
        self._end.set()
        if self.stop in self._core.closing:
            self._core.closing.remove(self.stop)
        thread, self._thread = self._thread, None
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def _work(self) -> None:
        while not self._end.is_set():
            try:
                self._turn()
            except StoreClosedError:
                return
            except Exception:
                # Whatever it is, the next turn may do better: the storage may serve again.
                log.exception("%s could not do its work just now", self._name)
            self._end.wait(self._interval)
