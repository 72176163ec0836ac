"""Watching: entries as they are committed, in any process, from a position on.

A watch reads the feed. It keeps no queue that could overflow: who is slow falls behind and
catches up. A commit of this process wakes it at once; commits of others are noticed by asking
the storage now and then, at first often, then every 25 ms.
"""

from __future__ import annotations

import fnmatch
import re
import threading
import time
from collections import deque
from collections.abc import Iterator
from unicodedata import normalize

from holdfast.errors import HoldfastError, InvalidInputError
from holdfast.store.commit.core import Core
from holdfast.store.names.arguments import check_filters, check_prefixes, check_seconds
from holdfast.store.names.background import Closable
from holdfast.store.names.face import faced
from holdfast.store.names.items import Entry, Position
from holdfast.store.names.scope import Scope
from holdfast.store.read.follow import Follower, Place, Tail

SHORTEST, LONGEST = 0.001, 0.025
"""Seconds between two looks at the storage while nothing happens."""
ENTRIES, ROWS = 64, 256
"""What is read at once at most: entries that fit, rows of the feed that are passed over."""
WHOLE = frozenset(("restore", "fork", "delete scope"))
"""Entries that name no key and may change any."""


class Wanted:
    """Which entries a watch gives, by their keys."""

    def __init__(self, prefix: str, pattern: str | None) -> None:
        check_prefixes(prefix=prefix)
        check_filters(pattern=pattern)
        if pattern == "":
            raise InvalidInputError("no key fits an empty pattern; leave it out for all keys")
        self._prefix = normalize("NFC", prefix)
        text = fnmatch.translate(normalize("NFC", pattern)) if pattern is not None else ""
        self._fits = re.compile(text).match if text else None

    def __call__(self, entry: Entry) -> bool:
        if self._fits is None and not self._prefix:
            return True
        if any(self._key(key) for key in entry.keys):
            return True
        return not WHOLE.isdisjoint(entry.kinds)

    def _key(self, key: str) -> bool:
        return key.startswith(self._prefix) and (self._fits is None or bool(self._fits(key)))


class Watching:
    """What both faces of a watch share."""

    def __init__(
        self,
        core: Core,
        scope: Scope | None,
        timeline: str | None,
        prefix: str,
        pattern: str | None,
        since: Position | None,
        timeout: float | None,
        past_pruned: bool,
    ) -> None:
        core.check_open()
        self._wanted = Wanted(prefix, pattern)
        check_seconds(timeout, "timeout")
        self._core = core
        self._timeout = timeout
        self._follower = Follower(core, scope, timeline, past_pruned=past_pruned)
        self._place = Place(core, since) if since is not None else Place.now(core)
        self._position = self._place.position
        self._ready: deque[Entry] = deque()
        self._tail: Tail | None = None
        self._reading: Iterator[Entry | bool] | None = None
        self._midway = False
        """Whether reading has stopped at its own bound: what follows needs no new commit."""
        self._lock = threading.Lock()
        self._closed = False

    @property
    def position(self) -> Position:
        """Where the watch is: behind the entry that it gave last, and what did not fit since."""
        return Position(self._position)

    def _over(self) -> bool:
        return self._closed or bool(self._core.closed)

    def _pop(self) -> Entry:
        entry = self._ready.popleft()
        self._position = entry.position or self._position
        return entry

    def _pause(self, end: float | None) -> float:
        """Seconds to let pass before reading on, unless it is to end before that."""
        due = self._tail.due() if self._tail is not None and not self._midway else 0.0
        return due if end is None or time.monotonic() + due < end else 0.0

    def _stirred(self) -> bool:
        """Whether reading on is worth while."""
        return self._midway or self._tail is None or self._tail.stirred()

    def _near(self) -> bool:
        """Whether there can be little to read: the last look was just now."""
        return self._tail is not None and self._tail.near()

    def _called(self) -> bool:
        """Whether there is a reason not to wait; only that the bell would not ring again."""
        return self._over() or self._tail is None or self._tail.called()

    def _fill(self) -> bool:
        """Read on; whether to go on at once. What was read is there also if nobody waits now."""
        with self._lock:
            try:
                self._midway = True
                while len(self._ready) < ENTRIES:
                    if self._reading is None:
                        self._reading = self._read()
                    found = next(self._reading)
                    if isinstance(found, bool):
                        self._midway = found
                        if not self._ready:
                            self._position = self._place.position
                        return found or bool(self._ready)
                    self._ready.append(found)
            except BaseException as error:
                self._reading = self._tail = None  # reading goes on from the place reached
                if self._over() and isinstance(error, HoldfastError):
                    return False
                if not self._ready or not isinstance(error, HoldfastError):
                    raise
            return True

    def _read(self) -> Iterator[Entry | bool]:
        """Entries that fit; between them True if there is more, False if there is none now."""
        tail = self._tail = Tail(self._core.lanes, self._place.rows, self._follower)
        passed = 0
        while True:
            row = tail.next()
            if row is None:
                yield False
                continue
            for entry in self._follower.row(self._place, row, tail):
                if self._wanted(entry):
                    yield entry
            passed += 1
            if passed % ROWS == 0:
                yield True


@faced(by_hand="holdfast.store.state_async:Watch")
class Watch(Watching, Closable):
    """Entries as they are committed: `for entry in watch`.

    It waits for the next entry without end, or ends when none came for `timeout` seconds; then
    it can be iterated again and goes on. It also ends when it or the store is closed, by any
    thread. Nothing is held in the storage for it.
    """

    def __iter__(self) -> Watch:
        return self

    def __next__(self) -> Entry:
        end = time.monotonic() + self._timeout if self._timeout is not None else None
        pause = SHORTEST
        while True:
            if self._over():
                raise StopIteration
            if self._ready:
                return self._pop()
            if (due := self._pause(end)) > 0:
                time.sleep(due)
            if self._fill():
                continue
            left = end - time.monotonic() if end is not None else LONGEST
            if left <= 0:
                raise StopIteration
            self._wait(min(pause, left))
            pause = min(2 * pause, LONGEST)

    def _wait(self, seconds: float) -> None:
        rung = threading.Event()
        self._core.lanes.bell.add(rung.set)
        try:
            if not self._called():
                rung.wait(seconds)
        finally:
            self._core.lanes.bell.remove(rung.set)

    def close(self) -> None:
        """End the watch, also one that waits in another thread."""
        self._closed = True
        self._core.lanes.bell.ring()
