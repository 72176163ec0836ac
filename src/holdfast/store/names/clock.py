"""The clock of a store: claimed time for people, never for order."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from functools import partial

from holdfast.errors import InvalidInputError

STEP = 60.0
"""Seconds of disagreement with the monotonic clock that are worth a note in the entry."""

EARLIEST, LATEST = -62_135_596_800.0, 253_402_300_799.0
"""Seconds since 1970 of the first and the last second that a datetime can name."""


_passed: Callable[[], float] = time.monotonic
"""Seconds that have passed, those in which the machine slept included."""
if hasattr(time, "CLOCK_BOOTTIME"):
    _passed = partial(time.clock_gettime, time.CLOCK_BOOTTIME)


def _microseconds(wall: float) -> int:
    """A time in whole microseconds; refused if no calendar has it."""
    if not EARLIEST <= wall <= LATEST:  # nan is neither
        raise InvalidInputError(
            f"the clock says {wall} seconds since 1970, which is no time between the years 1 and "
            "9999; set the machine's clock, or mend the one that the store was opened with"
        )
    return int(wall * 1_000_000)


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
        _microseconds(wall())  # refused now rather than with the first write
        self.begun = self._believed = wall() - self._passed()
        """How far ahead of what has passed the wall clock was at first."""

    def claimed(self) -> int:
        """Microseconds since 1970, for what is no entry: a step is left for the next entry."""
        return _microseconds(self._wall())

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
        return _microseconds(wall)

    def ticks(self) -> float:
        """Seconds of the monotonic clock: for lengths of time in this process alone."""
        return self._monotonic()

    def now(self) -> tuple[int, float]:
        """(microseconds since 1970, seconds by which the wall clock is ahead of what has passed).

        The second tells only something when it is compared: see `Timeline.told`.
        """
        wall = self._wall()
        if not EARLIEST <= wall <= LATEST:
            _microseconds(wall)
        return int(wall * 1_000_000), wall - self._passed()


# ---- lapses -------------------------------------------------------------------------------------
# Since when this process has itself seen something unchanged, on its own monotonic clock.
#
# What runs out, a lease or an offer, does so for who has watched it for the whole of its term: wall
# clocks are never compared, neither between machines nor with themselves. Another process begins to
# count when it first looks, so that it may be late and is never early.


SEEN = 10_000
"""Things of which it is remembered since when they are unchanged, however long nobody asks."""
KEPT = 86_400.0
"""Seconds since somebody last asked after which those that are more are forgotten. Not earlier: who
looks at more things in turn would find each one forgotten, and none would ever run out."""


class Lapses:
    """What one open store has seen, and since when."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()  # what is asked for moves to the end
        self._seen: OrderedDict[Hashable, tuple[Hashable, float, float]] = OrderedDict()
        """Content, since when it is so, and when it was last asked for; the latest at the end."""

    def lapsed(self, name: Hashable, content: Hashable, latest: float) -> bool:
        """Whether something was seen, with this content, at or before a moment of this clock; if it
        was not seen so yet, that is remembered from now on."""
        with self._lock:
            now = self._clock.ticks()
            seen = self._seen.pop(name, None)
            since = seen[1] if seen is not None and seen[0] == content else now
            self._seen[name] = content, since, now
            if len(self._seen) > SEEN:
                oldest = next(iter(self._seen))
                if self._seen[oldest][2] <= now - KEPT:
                    del self._seen[oldest]
        return seen is not None and seen[0] == content and since <= latest
