"""Stores with a cache in Redis and without, in turns; only where HOLDFAST_BENCH_REDIS names one.

HOLDFAST_BENCH_REDIS=redis://HOST:PORT/0 HOLDFAST_BENCH_POSTGRES=postgresql://USER@HOST/DATABASE \
    python bench/run.py --only redis_cache
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from common import Row, in_turns, message, place, told
from postgres import URL as POSTGRES

from holdfast import sync

URL = "HOLDFAST_BENCH_REDIS"
MESSAGES = 200
Call = Callable[[int], object]


def run(quick: bool) -> list[Row]:
    """Reads of what is not in memory, and writes, on SQLite and on PostgreSQL if one is named."""
    cache = os.environ.get(URL)
    if not cache:
        return []
    rows: list[Row] = []
    with place() as here:
        rows += _measured("SQLite", here.url, cache, quick)
    if server := os.environ.get(POSTGRES):
        with _schema(server) as url:
            rows += _measured("PostgreSQL", url, cache, quick)
    return rows


@contextmanager
def _schema(server: str) -> Iterator[str]:
    import psycopg

    name = f"bench_{time.time_ns()}"
    yield f"{server}{'&' if '?' in server else '?'}schema={name}"
    with psycopg.connect(server, autocommit=True) as bare:
        bare.execute(f"DROP SCHEMA IF EXISTS {name} CASCADE")


def _measured(engine: str, url: str, cache: str, quick: bool) -> list[Row]:
    count = 50 if quick else 300
    with sync.open(url) as bare, sync.open(url, cache=cache) as near:
        _fill(near)
        stores = (bare, near)
        rows = _compared(engine, "a value", count, *(_reading(s, "get", "plan") for s in stores))
        listed = (_reading(s, "tail", "log", MESSAGES) for s in stores)
        rows += _compared(engine, f"{MESSAGES} items of a list", count // 5, *listed)
        rows += _compared(engine, "a set", count, *(_setting(s, n) for n, s in enumerate(stores)))
        first = (_opening(url, None), _opening(url, cache))
        rows += _compared(engine, "opening a store and a value", count // 5, *first)
        hits = near.metrics().share("cache", call="read", outcome="hit") or 0.0
        return [*rows, told(f"{engine}: reads that the cache answered", 100 * hits, "%")]


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


def _opening(url: str, cache: str | None) -> Call:
    def read(_: int) -> None:
        with sync.open(url, cache=cache) as store:
            store.agent("a").get("plan")

    return read


def _compared(engine: str, what: str, count: int, bare: Call, near: Call) -> list[Row]:
    without, with_ = in_turns(count, bare, near)
    return [
        told(f"{engine}, {what}, without", without * 1000, "ms"),
        told(f"{engine}, {what}, with a cache", with_ * 1000, "ms", f"{with_ / without:.2f} times"),
    ]
