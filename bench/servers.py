"""A store on a server: what a set costs there, and how often the server is asked for it; only where
an environment variable names one.

HOLDFAST_BENCH_POSTGRES=postgresql://USER@HOST/DATABASE python bench/run.py --only servers
HOLDFAST_BENCH_MONGODB=mongodb://HOST python bench/run.py --only servers
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

from common import Row, at_most, in_turns, told

from holdfast import sync

POSTGRES, MONGODB = "HOLDFAST_BENCH_POSTGRES", "HOLDFAST_BENCH_MONGODB"


class Asked:
    """How often a server was asked, and how many statements that were."""

    trips = statements = 0


def run(quick: bool) -> list[Row]:
    """Each server that is named."""
    rows: list[Row] = []
    if server := os.environ.get(POSTGRES):
        for durability, level in (("full", "on"), ("normal", "off")):
            rows += _beside_inserts(server, durability, level, 100 if quick else 500)
    if server := os.environ.get(MONGODB):
        url = f"{server.rstrip('/')}/bench_{time.time_ns()}"
        asked = _mongodb()
        with sync.open(url) as store:
            rows += _trips("MongoDB", store, asked, 3, 3)
    return rows


def _beside_inserts(server: str, durability: str, level: str, count: int) -> list[Row]:
    """One set at a time, in turns with inserts of as many bytes and the same durability."""
    import psycopg

    schema = f"bench_{time.time_ns()}"
    url = f"{server}{'&' if '?' in server else '?'}schema={schema}"
    with psycopg.connect(server, autocommit=True) as bare:
        bare.execute(f"SET synchronous_commit = {level}")
        bare.execute(f"CREATE TABLE {schema}_bare (k bytea PRIMARY KEY, v bytea)")
        try:
            with sync.open(url, durability=durability) as store:
                state = store.agent("a")
                insert = f"INSERT INTO {schema}_bare VALUES (%s, %s)"
                sets, inserts, gets = in_turns(
                    count,
                    lambda n: state.set("plan", {"step": n, "text": "x" * 200}),
                    lambda _: bare.execute(insert, (os.urandom(16), os.urandom(400))),
                    lambda _: state.get("plan"),
                )
                with _postgres() as asked:
                    counted = _trips(f"PostgreSQL, {durability}", store, asked, 1, 5)
        finally:
            bare.execute(f"DROP TABLE {schema}_bare")
            bare.execute(f"DROP SCHEMA IF EXISTS {schema} CASCADE")
    return [
        told(f"PostgreSQL, {durability}: a set", sets * 1000, "ms"),
        told(f"PostgreSQL, {durability}: a bare insert", inserts * 1000, "ms"),
        told(f"PostgreSQL, {durability}: a get", gets * 1000, "ms"),
        *counted,
    ]


def _trips(name: str, store: Any, asked: Asked, trips: int, statements: int) -> list[Row]:
    """What a set, an append and a get ask of the server, once the scope is there."""
    state = store.agent("a")
    state.set("plan", {"step": 0})
    state.append("log", "begun")
    rows = []
    calls: dict[str, Callable[[int], object]] = {
        "a set": lambda n: state.set("plan", {"step": n}),
        "an append": lambda n: state.append("log", n),
        "a get": lambda _: state.get("plan"),
    }
    for what, call in calls.items():
        asked.trips = asked.statements = 0
        for number in range(20):
            call(number)
        most = (trips, statements) if what != "a get" else (1, 1)
        rows += [
            at_most(f"{name}: round trips of {what}", asked.trips / 20, most[0], goal=True),
            at_most(f"{name}: statements of {what}", asked.statements / 20, most[1], goal=True),
        ]
    return rows


@contextmanager
def _postgres() -> Iterator[Asked]:
    from holdfast.storage.postgres.link import Link

    asked, flight = Asked(), Link.flight

    def counted(link: Link, statements: Any, deadline: float) -> Any:
        asked.trips += 1
        asked.statements += len(statements)
        return flight(link, statements, deadline)

    with mock.patch.object(Link, "flight", counted):
        yield asked


def _mongodb() -> Asked:
    from pymongo import monitoring

    asked = Asked()

    class Listener(monitoring.CommandListener):
        """Every command is a trip of its own."""

        def started(self, _: Any) -> None:
            asked.trips += 1
            asked.statements += 1

        def succeeded(self, _: Any) -> None:
            """Counted already."""

        failed = succeeded

    monitoring.register(Listener())  # of clients that are made from now on
    return asked
