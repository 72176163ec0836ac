"""Stores with a cache in Redis and without, in turns; only where HOLDFAST_BENCH_REDIS names one.

HOLDFAST_BENCH_REDIS=redis://HOST:PORT/0 HOLDFAST_BENCH_POSTGRES=postgresql://USER@HOST/DATABASE \
    python bench/run.py --only redis_cache
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from common import Place, Row, in_turns, message, place, told
from postgres import URL as POSTGRES

from holdfast import sync
from holdfast.storage import Storage, open_storage
from holdfast.storage.wrappers import Counting

URL = "HOLDFAST_BENCH_REDIS"
MESSAGES = 200
AWAY = 0.002
Call = Callable[[int], object]


def run(quick: bool) -> list[Row]:
    """Reads of what is not in memory, and writes: PostgreSQL, and a storage far away."""
    cache = os.environ.get(URL)
    if not cache:
        return []
    rows: list[Row] = []
    if server := os.environ.get(POSTGRES):
        with place() as here, _schema(server, here) as url:
            rows += _Case("PostgreSQL", url, here.key, cache).rows(quick)
    with place() as here:
        rows += _Far(f"{AWAY * 1000:g} ms away", here.url, here.key, cache).rows(quick)
    return rows


@contextmanager
def _schema(server: str, here: Place) -> Iterator[str]:
    import psycopg

    name = f"bench_{time.time_ns()}"
    ring = here.folder / "bench.keys"
    yield f"{server}{'&' if '?' in server else '?'}schema={name}&ring={ring}"
    with psycopg.connect(server, autocommit=True) as bare:
        bare.execute(f"DROP SCHEMA IF EXISTS {name} CASCADE")


class _Case:
    """One storage, with the cache and without."""

    def __init__(self, name: str, url: str, key: str, cache: str) -> None:
        self.name, self.url, self.key, self.cache = name, url, key, cache

    def open(self, cache: str | None) -> sync.Store:
        return sync.open(self.url, key=self.key, cache=cache)

    def rows(self, quick: bool) -> list[Row]:
        count = 50 if quick else 300
        with self.open(None) as bare, self.open(self.cache) as near:
            _fill(near)
            both = (bare, near)
            rows = self._compared("a value", count, [_reading(s, "get", "plan") for s in both])
            items = [_reading(store, "tail", "log", MESSAGES) for store in both]
            rows += self._compared(f"{MESSAGES} items of a list", count // 5, items)
            sets = [_setting(store, number) for number, store in enumerate(both)]
            rows += self._compared("a set", count, sets)
            first = [self._opening(None), self._opening(self.cache)]
            rows += self._compared("opening a store and a value", count // 5, first)
            read = near.metrics().by("cache", "result", call="read")
        hits = 100 * read.get("hit", 0) / sum(read.values())
        return [*rows, told(f"{self.name}: records that the cache had", hits, "%")]

    def _opening(self, cache: str | None) -> Call:
        def read(_: int) -> None:
            with self.open(cache) as store:
                store.agent("a").get("plan")

        return read

    def _compared(self, what: str, count: int, calls: Sequence[Call]) -> list[Row]:
        without, near = in_turns(count, *calls)
        what = f"{self.name}, {what}"
        return [
            told(f"{what}, without", without * 1000, "ms"),
            told(f"{what}, with a cache", near * 1000, "ms", f"{near / without:.2f} times"),
        ]


class _Away(Counting):
    """A storage of which each call takes a while."""

    def __init__(self, storage: Storage) -> None:
        super().__init__(storage)
        self.limits = replace(storage.limits, embedded=False)

    def _count(self, name: str) -> None:
        super()._count(name)
        time.sleep(AWAY)


class _Far(_Case):
    def open(self, cache: str | None) -> sync.Store:
        storage: Any = _Away(open_storage(self.url))
        return sync.open(self.url, key=self.key, cache=cache, storage=storage)


def _fill(store: sync.Store) -> None:
    state = store.agent("a")
    state.set("plan", message(0, 2000))
    for number in range(MESSAGES):
        state.append("log", message(number))
    state.checkpoint("filled")


def _reading(store: sync.Store, method: str, *arguments: object) -> Call:
    state = store.agent("a")

    def read(_: int) -> None:
        store._core.atoms.clear()  # the index stays in memory, as it mostly does
        getattr(state, method)(*arguments)

    read(0)
    return read


def _setting(store: sync.Store, number: int) -> Call:
    state = store.agent(f"writer-{number}")
    return lambda step: state.set("plan", message(step, 2000))
