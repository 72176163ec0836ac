"""A storage with a cache of records in front of it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from holdfast.errors import OutcomeUnknown
from holdfast.storage.contract import Batch, Storage
from holdfast.storage.wrappers.base import Around

if TYPE_CHECKING:
    from holdfast.storage.wrappers.redis import RedisCache


class Cached(Around):
    """The storage itself, but that what leaves it leaves the cache, too.

    Its reads are the engine's: all that is decided by rows is decided by those. Who knows what a
    record must be asks `cache` for it first, and puts there what it had to read from the engine.
    """

    def __init__(self, storage: Storage, cache: RedisCache) -> None:
        super().__init__(storage)
        self.cache = cache

    def commit(self, batch: Batch) -> None:
        try:
            super().commit(batch)
        except OutcomeUnknown:  # what is missing in a cache is no loss
            self._forget(batch)
            raise
        self._forget(batch)

    def _forget(self, batch: Batch) -> None:
        if batch.drops or batch.blanks or batch.swaps:
            self.cache.drop({*batch.drops, *batch.blanks, *(swap[0] for swap in batch.swaps)})

    def close(self) -> None:
        try:
            super().close()
        finally:
            self.cache.close()


# ---- cache filler -------------------------------------------------------------------------------
# Giving records to a cache behind whoever had them, so that nobody waits for that.


MOST = 8 << 20
"""Bytes that wait at most; what is more is left out."""
Rows = list[tuple[bytes, bytes]]


class Filler:
    """A thread that writes what it is given, in few calls. It begins with the first record.

    `write` is called with records, one call at a time; it bounds its own time and does not raise.
    """

    def __init__(self, write: Callable[[Rows], None]) -> None:
        self._write = write
        self._waiting: dict[bytes, bytes] = {}
        self._held = 0
        self._calls = 0
        self._writing = self._over = False
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def add(self, rows: Iterable[tuple[bytes, bytes]]) -> int:
        """Have records written; how many are left out because too much waits already."""
        left = 0
        with self._changed:
            for key, row in rows:
                if self._over or self._held + len(row) > MOST:
                    left += 1
                    continue
                self._held += len(row) - len(self._waiting.get(key, b""))
                self._waiting[key] = row
            if self._waiting and self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name="holdfast-cache", daemon=True
                )
                self._thread.start()
            self._changed.notify_all()
        return left

    def forget(self, keys: Iterable[bytes]) -> None:
        """Leave records out that wait; when it returns, none of them is on its way any more."""
        with self._changed:
            for key in keys:
                self._held -= len(self._waiting.pop(key, b""))
            now = self._calls
            self._changed.wait_for(lambda: not self._writing or self._calls > now)

    def close(self) -> None:
        """Wait until all that was given is written, and end the thread."""
        with self._changed:
            self._over = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while rows := self._next():
            try:
                self._write(rows)
            finally:
                with self._changed:
                    self._writing = False
                    self._changed.notify_all()

    def _next(self) -> Rows:
        """What waits, waited for; nothing if it is over."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._over)
            rows, self._waiting, self._held = list(self._waiting.items()), {}, 0
            self._writing = bool(rows)
            self._calls += 1
            return rows
