"""A storage with a cache of records in front of it."""

from __future__ import annotations

from dataclasses import replace
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
        # A read may wait for the network of the cache, so that no event loop may make it.
        self.limits = replace(storage.limits, embedded=False)

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


def engine_of(storage: Storage) -> Storage:
    """The engine itself, behind a cache or without one."""
    return storage.inner if isinstance(storage, Cached) else storage
