"""Long work in Python beside other threads: it rests often enough that they get their turn.

A thread that only computes gives way after five milliseconds, and another one has to wait for
that several times: a writer once behind each call into the storage, an event loop two or three
times until a task that slept goes on.
"""

from __future__ import annotations

import threading
import time

WORK = 0.001
REST = 0.0005
SHORT = 0.0001
"""Seconds: how long it works, how long it rests, and how long where somebody waits for it."""


class Breath:
    """Called once an item: rests if it has worked for a while and there are other threads."""

    def __init__(self, rest: float = REST) -> None:
        self._rest = rest
        self._since = time.perf_counter()

    def __call__(self) -> None:
        if time.perf_counter() - self._since > WORK:
            if threading.active_count() > 1:
                time.sleep(self._rest)
            self._since = time.perf_counter()
