"""The thread that removes expired items now and then."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress

from holdfast.errors import StoreClosedError

_log = logging.getLogger(__name__)


class Sweeper:
    """Calls a function every so many seconds, in one thread at most."""

    def __init__(self, sweep: Callable[[], int]) -> None:
        self._sweep = sweep
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._future: Future[None] = Future()

    def start(self, seconds: float) -> Future[None]:
        """A future that is done when the sweeper has ended; cancelling it ends the sweeper."""
        with self._lock:
            if self._thread is not None and self._thread.is_alive() and not self._stop.is_set():
                return self._future
            stop, future = threading.Event(), Future[None]()
            future.add_done_callback(lambda _: stop.set())
            self._stop, self._future = stop, future
            self._thread = threading.Thread(
                target=self._run, args=(seconds, stop, future), name="holdfast-ttl", daemon=True
            )
            self._thread.start()
            return future

    def _run(self, seconds: float, stop: threading.Event, future: Future[None]) -> None:
        while not stop.wait(seconds):
            try:
                self._sweep()
            except StoreClosedError:
                break
            except Exception:  # a sweep that fails is tried again; nothing depends on it
                _log.exception("sweeping expired items failed; it is tried again")
        with suppress(InvalidStateError):  # it was cancelled, perhaps just now
            future.set_result(None)

    def stop(self, timeout: float | None) -> bool:
        """End it; tells whether it has ended in time."""
        self._stop.set()
        thread = self._thread
        if thread is None or thread is threading.current_thread():
            return True
        thread.join(timeout)
        return not thread.is_alive()
