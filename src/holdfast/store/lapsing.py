"""Since when this process has itself seen something unchanged, on its own monotonic clock.

What runs out, a lease or an offer, does so for who has watched it for the whole of its term: wall
clocks are never compared, neither between machines nor with themselves. Another process begins to
count when it first looks, so that it may be late and is never early.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable

from holdfast.store.clock import Clock

SEEN = 10_000
"""Things of which it is remembered since when they are unchanged: those first seen latest."""


class Lapses:
    """What one open store has seen, and since when."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._seen: OrderedDict[Hashable, tuple[Hashable, float]] = OrderedDict()

    def lapsed(self, name: Hashable, content: Hashable, latest: float) -> bool:
        """Whether something was seen, with this content, at or before a moment of this clock; if it
        was not seen so yet, that is remembered from now on."""
        with self._lock:
            seen = self._seen.get(name)
            if seen is not None and seen[0] == content:
                return seen[1] <= latest
            self._seen[name] = content, self._clock.ticks()
            self._seen.move_to_end(name)
            if len(self._seen) > SEEN:
                self._seen.popitem(last=False)
        return False
