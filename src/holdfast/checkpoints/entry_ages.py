"""How old entries are, by time that somebody saw pass.

A wall clock can be wrong by years when a process starts, and nothing in that process would tell.
So an age is the sum of what lies between neighbouring entries, up to now, and of that only counts
what is at most a day, or what one process has seen pass on its monotonic clock. Whatever else a
clock says was seen by nobody: things stay longer by it, and never go earlier.
"""

from __future__ import annotations

from bisect import bisect_left
from contextlib import suppress
from datetime import datetime, timedelta

from holdfast.errors import PointNotFoundError, PrunedError, StateIntegrityError
from holdfast.store.history.handle import LineHandle
from holdfast.store.names import rowkinds
from holdfast.store.read.reader import microseconds

DAY = timedelta(days=1)
_DAY = DAY // timedelta(microseconds=1)


class Ages:
    """Ages of the entries of one timeline, asked for newest first.

    It reads a few entries for each day that has passed, not all of them. Of pruned history only
    kept states tell when they were.
    """

    def __init__(self, line: LineHandle, now: datetime) -> None:
        self._now = now
        self._points = line.history.points
        self._line = self._points.line()
        floor = self._line.floor
        self._first = max(floor.sequence, self._line.ledger.before)
        self._kept = sorted(at for at in floor.bases if at <= self._first)
        self._read: dict[int, tuple[int, bytes, int] | None] = {}
        self._at = self._index(self._line.sequence)
        newest = self._moment(self._at)
        since = microseconds(now) - newest[0] if newest is not None else 0
        self._age = since if abs(since) <= _DAY else 0

    def of(self, sequence: int) -> timedelta:
        """The age of an entry that is not newer than the one asked for before."""
        at = self._index(sequence)
        self._age += self._between(at, self._at)
        self._at = at
        self._read = {at: self._read[at]} if at in self._read else {}
        return timedelta(microseconds=self._age)

    def newest_over(self, age: timedelta) -> int:
        """The newest entry that is over an age; 0 if none is."""
        time = microseconds(self._now - age)
        with suppress(PointNotFoundError):  # all of it is younger
            while True:
                found = self._points.at_time(time)
                missing = age - self.of(found)
                moment = self._moment(self._at)
                if missing <= timedelta(0) or moment is None:
                    return found if missing <= timedelta(0) else 0
                time = moment[0] - missing // timedelta(microseconds=1)
        return 0

    def _index(self, sequence: int) -> int:
        """The place of an entry among those that can be read."""
        if sequence <= self._first:
            return bisect_left(self._kept, sequence)
        return len(self._kept) + sequence - self._first - 1

    def _sequence(self, at: int) -> int:
        """The entry at a place."""
        kept = len(self._kept)
        return self._kept[at] if at < kept else self._first + 1 + at - kept

    def _between(self, low: int, high: int) -> int:
        """Microseconds that were seen to pass from one to the other."""
        before, after = self._moment(low), self._moment(high)
        if low >= high or before is None or after is None:
            return 0
        passed = after[0] - before[0]
        if abs(passed) <= _DAY:
            return passed
        if high - low == 1:
            if self._sequence(high) - self._sequence(low) > 1:
                return 0  # a step may have been noted in what is pruned between them
            return passed if before[1] == after[1] and not after[2] else 0
        middle = (low + high) // 2
        return self._between(low, middle) + self._between(middle, high)

    def _moment(self, at: int) -> tuple[int, bytes, int] | None:
        """Time, writer and the step of its clock; None if the entry cannot be read."""
        if at not in self._read:
            key = rowkinds.entry(self._line.prefix, self._sequence(at))
            row = self._line.ledger.storage.get([key])[0]
            try:
                envelope, body = self._line.ledger.open_entry(key, row or b"")
                self._read[at] = (body.time, envelope.writer, body.step)
            except (PrunedError, StateIntegrityError):
                self._read[at] = None
        return self._read[at]
