"""Since when this process has itself seen something unchanged, on its own monotonic clock.

What runs out, a lease or an offer, does so for who has watched it for the whole of its term: wall
clocks are never compared, neither between machines nor with themselves. Another process begins to
count when it first looks, so that it may be late and is never early.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable

from holdfast.store.names.clock import Clock

SEEN = 10_000
"""Things of which it is remembered since when they are unchanged, however long nobody asks."""
KEPT = 86_400.0
"""Seconds since somebody last asked after which those that are more are forgotten. Not earlier: who
looks at more things in turn would find each one forgotten, and none would ever run out."""


class Lapses:
    """What one open store has seen, and since when."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
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

    def forget(self, name: Hashable) -> None:
        """It is over, and nobody will ask again."""
        with self._lock:
            self._seen.pop(name, None)
