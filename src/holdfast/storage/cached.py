"""A storage with a cache of records in front of it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import TYPE_CHECKING

from holdfast.errors import OutcomeUnknown
from holdfast.storage.contract import Batch, Moment, Storage

if TYPE_CHECKING:
    from holdfast.storage.redis_cache import RedisCache


class Cached:
    """The storage itself, but that what leaves it leaves the cache, too.

    Its reads are the engine's: all that is decided by rows is decided by those. Who knows what a
    record must be asks `cache` for it first, and puts there what it had to read from the engine.
    """

    def __init__(self, storage: Storage, cache: RedisCache) -> None:
        self.inner = storage
        self.cache = cache
        # A read may wait for the network of the cache, so that no event loop may make it.
        self.limits = replace(storage.limits, embedded=False)

    def get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        return self.inner.get(keys)

    def scan(
        self, low: bytes, high: bytes, *, limit: int = 1000, reverse: bool = False
    ) -> list[tuple[bytes, bytes]]:
        return self.inner.scan(low, high, limit=limit, reverse=reverse)

    def cells(self, low: bytes, high: bytes, *, limit: int = 1000) -> list[tuple[bytes, bytes]]:
        return self.inner.cells(low, high, limit=limit)

    def commit(self, batch: Batch) -> None:
        try:
            self.inner.commit(batch)
        except OutcomeUnknown:  # what is missing in a cache is no loss
            self._forget(batch)
            raise
        self._forget(batch)

    def _forget(self, batch: Batch) -> None:
        if batch.drops or batch.blanks or batch.swaps:
            self.cache.drop({*batch.drops, *batch.blanks, *(swap[0] for swap in batch.swaps)})

    def version(self) -> object:
        return self.inner.version()

    def turn(self) -> AbstractContextManager[object]:
        return self.inner.turn()

    def moment(self) -> AbstractContextManager[Moment]:
        return self.inner.moment()

    def size(self) -> int:
        return self.inner.size()

    def check(self) -> list[str]:
        return self.inner.check()

    def settle(self) -> bool:
        return self.inner.settle()

    def close(self) -> None:
        try:
            self.inner.close()
        finally:
            self.cache.close()


def engine_of(storage: Storage) -> Storage:
    """The engine itself, behind a cache or without one."""
    return storage.inner if isinstance(storage, Cached) else storage
