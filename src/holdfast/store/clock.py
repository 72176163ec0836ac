"""The clock of a store: claimed time for people, never for order."""

from __future__ import annotations

import time
from collections.abc import Callable

STEP = 60.0
"""Seconds of disagreement with the monotonic clock that are worth a note in the entry."""


class Clock:
    """Wall time in microseconds, watched against the monotonic clock."""

    def __init__(
        self,
        wall: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._wall = wall
        self._monotonic = monotonic
        self._offset = wall() - monotonic()

    def claimed(self) -> int:
        """Microseconds since 1970, for what is no entry: a step is left for the next entry."""
        return int(self._wall() * 1_000_000)

    def ticks(self) -> float:
        """Seconds of the monotonic clock: for lengths of time in this process alone."""
        return self._monotonic()

    def now(self) -> tuple[int, int]:
        """(microseconds since 1970, seconds by which the wall clock has just stepped)."""
        wall = self._wall()
        offset = wall - self._monotonic()
        step = offset - self._offset
        if abs(step) < STEP:
            return int(wall * 1_000_000), 0
        self._offset = offset
        return int(wall * 1_000_000), round(step)
