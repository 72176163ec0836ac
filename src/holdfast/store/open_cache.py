"""Putting a cache in front of a store while it is opened."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from holdfast.errors import InvalidInputError
from holdfast.storage.contract import Storage
from holdfast.storage.wrappers.cache import Cached
from holdfast.storage.wrappers.redis_url import FORM, Address
from holdfast.store.names.arguments import is_seconds

if TYPE_CHECKING:
    from holdfast.storage.wrappers.redis import RedisCache

HOUR = 3600.0
LONGEST = 30 * 24 * HOUR
"""Seconds for which a cache may be told to keep what it holds."""


@dataclass(frozen=True, slots=True)
class CachePlan:
    """Which cache is to stand in front of a store."""

    address: Address
    ttl: float

    @classmethod
    def of(cls, cache: object, ttl: float) -> CachePlan | None:
        """What the arguments of `open` ask for; refused before anything is touched."""
        if not is_seconds(ttl, 0.001, LONGEST):
            raise InvalidInputError("cache_ttl is seconds, from a thousandth to 30 days of them")
        if cache is None:
            return None
        if not isinstance(cache, str):
            raise InvalidInputError(f"a cache is given as text: {FORM}")
        return cls(Address.of(cache), float(ttl))

    @staticmethod
    def driver() -> type[RedisCache]:
        """What talks to the server; refused where it is not installed."""
        from holdfast.storage.wrappers.redis import RedisCache

        return RedisCache

    def before(self, storage: Storage, lineage: bytes, instance: bytes) -> Cached:
        """The storage of a store behind the cache; a server that does not answer is logged."""
        prefix = f"holdfast:{lineage.hex()}:{instance.hex()}:"
        cache = self.driver()(self.address, prefix, self.ttl)
        cache.reach()
        return Cached(storage, cache)
