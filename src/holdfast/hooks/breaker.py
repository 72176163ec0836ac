"""The circuit breaker: what fails again and again is left alone for a while, then tried again.

One class for hooks, observations and notifications. It only counts and tells; who has one asks
`allow()` before each call and says how it ended.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic
from typing import ClassVar

from holdfast.errors import InvalidInputError
from holdfast.store.names.arguments import check_count, check_seconds

CLOSED, OPEN, HALF_OPEN = "closed", "open", "half_open"


@dataclass(frozen=True, slots=True)
class BreakerSettings:
    """When a breaker opens, for how long, and what closes it again.

    `BreakerSettings.STANDARD` and `BreakerSettings.STRICT` are the two sets of values that are
    known by name.
    """

    STANDARD: ClassVar[BreakerSettings]
    STRICT: ClassVar[BreakerSettings]

    failures: int = 5
    """So many in a row, or within `window` seconds, open it."""
    open: float = 30.0
    """Seconds for which nothing is let through."""
    half_open: float = 10.0
    """Seconds that one call, let through to try, may take; one that takes longer has failed."""
    successes: int = 1
    """So many of those close it."""
    window: float | None = None
    """Seconds after which a failure counts no more; None: until a success."""
    slow: float | None = None
    """Seconds from which on a call counts as a failure, whatever it gave; None: never."""

    def __post_init__(self) -> None:
        for name in ("failures", "successes"):
            check_count(getattr(self, name), name, 1)
        for name in ("open", "half_open", "window", "slow"):
            check_seconds(getattr(self, name), name)


BreakerSettings.STANDARD = BreakerSettings()
BreakerSettings.STRICT = BreakerSettings(
    failures=3, open=15.0, half_open=15.0, successes=2, window=30.0, slow=0.05
)


class Breaker:
    """Closed: all is let through. Open: nothing. Half open: one call at a time, to try.

    Thread safe. `clock` gives seconds that never go back.
    """

    def __init__(
        self,
        settings: BreakerSettings = BreakerSettings.STANDARD,
        *,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        if not isinstance(settings, BreakerSettings):
            raise InvalidInputError("a breaker takes BreakerSettings")
        self.settings = settings
        self.opened = 0
        """How often it has opened."""
        self._clock = clock
        self._lock = threading.Lock()  # calls of several threads are counted together
        self._failed: deque[float] = deque(maxlen=settings.failures)
        self._state = CLOSED
        self._until = 0.0
        self._good = 0

    @property
    def state(self) -> str:
        """closed, open or half_open"""
        with self._lock:
            return self._now()

    def allow(self) -> bool:
        """Whether to make a call now; who does says with `success` or `failure` how it ended."""
        with self._lock:
            state = self._now()
            if state == HALF_OPEN:
                if self._until > self._clock():
                    return False  # one is on its way already
                self._until = self._clock() + self.settings.half_open
            return state != OPEN

    def wait(self) -> float:
        """Seconds until a call may be let through."""
        with self._lock:
            return max(0.0, self._until - self._clock()) if self._now() != CLOSED else 0.0

    def success(self, seconds: float = 0.0) -> None:
        """A call ended well, after so many seconds."""
        if self.settings.slow is not None and seconds >= self.settings.slow:
            self.failure()
            return
        with self._lock:
            if self._now() == HALF_OPEN:
                self._good += 1
                self._until = 0.0
                if self._good == self.settings.successes:
                    self._state = CLOSED
            elif self.settings.window is None:
                self._failed.clear()

    def failure(self) -> None:
        """A call failed."""
        with self._lock:
            now, window = self._clock(), self.settings.window
            trial = self._now() == HALF_OPEN
            self._failed.append(now)
            full = len(self._failed) == self.settings.failures
            if trial or (full and (window is None or now - self._failed[0] <= window)):
                self._open(now)

    def _open(self, now: float) -> None:
        self._state, self._until = OPEN, now + self.settings.open
        self._good = 0
        self.opened += 1
        self._failed.clear()

    def _now(self) -> str:
        """The state, as time has made it."""
        now = self._clock()
        if self._state == OPEN and now >= self._until:
            self._state, self._until = HALF_OPEN, 0.0
        elif self._state == HALF_OPEN and self._until and now >= self._until:
            self._open(now)  # the call that was to try it never came back
        return self._state
