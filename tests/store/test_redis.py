"""A cache in Redis in front of a store: a hint, and nothing but a hint."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest
from store_kit import Place

from holdfast import sync

LONG = {"text": "a sentence that repeats, a sentence that repeats, " * 20}
"""What does not fit into the index."""


def outcomes(store: sync.Store, call: str = "read") -> dict[str, int]:
    return store.metrics().by("cache", "outcome", call=call)


class Rows:
    """What the cache holds of one store."""

    def __init__(self, server: Any, store: sync.Store) -> None:
        self.client = server.client()
        self._names = f"holdfast:{store.stats()['lineage']}:*"

    def names(self) -> list[bytes]:
        return sorted(self.client.scan_iter(self._names, count=1000))

    def all(self) -> dict[bytes, bytes]:
        return {name: self.client.get(name) for name in self.names()}

    def spoil(self, row: bytes) -> None:
        for name in self.names():
            self.client.set(name, row)


@pytest.fixture
def cached(place: Place, redis: Any) -> Iterator[sync.Store]:
    """A store that is new, and has the cache in front of it."""
    yield place.open(cache=redis.url())


@pytest.mark.spec("K8", "K260")
def test_a_value_comes_from_the_cache(place: Place, cached: sync.Store, redis: Any) -> None:
    cached.agent("a").set("plan", LONG)
    other, counting = place.open_counting(cache=redis.url())
    state = other.agent("a")
    assert state.keys() == ["plan"]
    counting.reset()
    assert state.get("plan") == LONG
    assert counting.calls["get"] == 0
    assert outcomes(other) == {"hit": 1}
    assert outcomes(cached, "write") == {"done": 1}


def test_what_is_read_is_put_there(place: Place, cached: sync.Store, redis: Any) -> None:
    cached.agent("a").set("plan", LONG)
    rows = Rows(redis, cached)
    (name,) = rows.names()
    assert 0 < rows.client.pttl(name) <= 3_600_000
    rows.client.delete(name)
    for expected in ({"miss": 1}, {"hit": 1}):
        other = place.open(cache=redis.url(), cache_ttl=60)
        assert other.agent("a").get("plan") == LONG
        assert outcomes(other) == expected
    assert 0 < rows.client.pttl(name) <= 60_000


@pytest.mark.parametrize("row", [b"", b"x", b"\x01" * 4000, os.urandom(2_000_000)])
def test_rubbish_is_never_damage(place: Place, cached: sync.Store, redis: Any, row: bytes) -> None:
    cached.agent("a").set("plan", LONG)
    rows = Rows(redis, cached)
    good = rows.all()
    rows.spoil(row)
    other = place.open(cache=redis.url())
    assert other.agent("a").get("plan") == LONG
    assert rows.all() == good  # it is put in its place
    assert outcomes(other).get("hit") is None
