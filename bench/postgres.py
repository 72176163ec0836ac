"""A store in PostgreSQL beside bare inserts; only where HOLDFAST_BENCH_POSTGRES names a server.

HOLDFAST_BENCH_POSTGRES=postgresql://USER@HOST/DATABASE python bench/run.py --only postgres
"""

from __future__ import annotations

import os
import time

from common import Row, in_turns, told

from holdfast import sync

URL = "HOLDFAST_BENCH_POSTGRES"


def run(quick: bool) -> list[Row]:
    """One set at a time, in turns with inserts of as many bytes and the same durability."""
    server = os.environ.get(URL)
    if not server:
        return []
    rows: list[Row] = []
    for durability, level in (("full", "on"), ("normal", "off")):
        rows += _measured(server, durability, level, 100 if quick else 500)
    return rows


def _measured(server: str, durability: str, level: str, count: int) -> list[Row]:
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
        finally:
            bare.execute(f"DROP TABLE {schema}_bare")
            bare.execute(f"DROP SCHEMA IF EXISTS {schema} CASCADE")
    return [
        told(f"PostgreSQL, {durability}: a set", sets * 1000, "ms"),
        told(f"PostgreSQL, {durability}: a bare insert", inserts * 1000, "ms"),
        told(f"PostgreSQL, {durability}: a get", gets * 1000, "ms"),
    ]
