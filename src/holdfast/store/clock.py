"""The clock of a store: claimed time for people, never for order."""

from __future__ import annotations

import time
from collections.abc import Callable

STEP = 60.0
"""Seconds of disagreement with the monotonic clock that are worth a note in the entry."""


def _passed() -> float:
    """Seconds that have passed, those in which the machine slept included."""
    if hasattr(time, "CLOCK_BOOTTIME"):
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.monotonic()


class Clock:
    """Wall time in microseconds, watched against the monotonic clock."""

    def __init__(
        self,
        wall: Callable[[], float] = time.time,
        monotonic: Callable[[], float] | None = None,
    ) -> None:
        self._wall = wall
        self._monotonic = monotonic or time.monotonic
        self._passed = monotonic or _passed
        self._offset = wall() - self._monotonic()
        self._believed = wall() - self._passed()

    def claimed(self) -> int:
        """Microseconds since 1970, for what is no entry: a step is left for the next entry."""
        return int(self._wall() * 1_000_000)

    def checked(self) -> int:
        """Microseconds since 1970 by which expiry is judged: never ahead of what has passed.

        A wall clock that jumps forward is not followed for as long as the store is open: nothing
        expires by a jump. One that is set back is followed, and what had expired is there again.
        """
        wall, passed = self._wall(), self._passed()
        if wall - passed > self._believed + STEP:
            wall = self._believed + passed
        elif wall - passed > self._believed:
            self._believed = wall - passed
        return int(wall * 1_000_000)

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
