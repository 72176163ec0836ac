"""Putting a cache in front of a store while it is opened."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from holdfast.errors import InvalidInputError
from holdfast.storage.cached import Cached
from holdfast.storage.contract import Storage
from holdfast.storage.redis_url import Address
from holdfast.store.arguments import is_seconds

if TYPE_CHECKING:
    from holdfast.storage.redis_cache import RedisCache

HOUR = 3600.0
LONGEST = 30 * 24 * HOUR
"""Seconds for which a cache may be told to keep what it holds."""


@dataclass(frozen=True, slots=True)
class CachePlan:
    """Which cache is to stand in front of a store."""

    address: Address
    ttl: float
    kind: type[RedisCache]

    @classmethod
    def of(cls, cache: object, ttl: object) -> CachePlan | None:
        """What the arguments of `open` ask for; refused before anything is touched."""
        if not is_seconds(ttl, 0.001, LONGEST):
            raise InvalidInputError(
                "cache_ttl is seconds, a thousandth at least and 30 days at most"
            )
        if cache is None:
            return None
        if not isinstance(cache, str):
            raise InvalidInputError(
                "a cache is named by text, for example 'redis://localhost:6379'"
            )
        address = Address.of(cache)
        from holdfast.storage.redis_cache import RedisCache  # with a driver that not all have

        return cls(address, float(ttl), RedisCache)  # type: ignore[arg-type]

    def before(self, storage: Storage, lineage: bytes, instance: bytes) -> Cached:
        """The storage of a store behind the cache; one that does not answer is logged."""
        prefix = f"holdfast:{lineage.hex()}:{instance.hex()}:"
        cached = Cached(storage, self.kind(self.address, prefix, self.ttl))
        cached.cache.reach()
        return cached
