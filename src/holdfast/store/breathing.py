"""Long work in Python beside threads that write: it rests often enough that they get their turn.

A thread that only computes gives way after five milliseconds, and one that writes has to wait for
that several times: once behind each call into the storage.
"""

from __future__ import annotations

import time

WORK = 0.001
REST = 0.0005
"""Seconds."""


class Breath:
    """Called once an item: rests if it has worked for a while."""

    def __init__(self) -> None:
        self._since = time.perf_counter()

    def __call__(self) -> None:
        if time.perf_counter() - self._since > WORK:
            time.sleep(REST)
            self._since = time.perf_counter()
