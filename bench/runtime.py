"""The runtime: entities, events and requests beside a daemon's own design on bare SQLite.

The baseline has tables of entities, properties and relationships with indexes, which commits each
entity, and a table of events, which commits each hundred; both sync every commit. Where commits
are counted against each other, each takes 2 ms longer than the disk of the machine, on both sides:
see `common.Synced`.
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
from common import SYNC, Place, Row, at_least, at_most, cpu, median, place, timed, told

from holdfast.runtime import Entities
from holdfast.sync.runtime import Entities as BlockingEntities
from holdfast.sync.runtime import Events, Requests

TABLES = """
PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL;
CREATE TABLE entities(id TEXT PRIMARY KEY, type TEXT, created REAL, updated REAL);
CREATE TABLE properties(entity TEXT REFERENCES entities(id), name TEXT, value TEXT, kind TEXT,
                        PRIMARY KEY(entity, name));
CREATE TABLE relationships(a TEXT, b TEXT, type TEXT, metadata TEXT, PRIMARY KEY(a, b, type));
CREATE TABLE events(id TEXT PRIMARY KEY, time REAL, name TEXT, type TEXT, data TEXT, client TEXT,
                    correlation TEXT, session TEXT);
CREATE INDEX by_type ON entities(type);
CREATE INDEX by_value ON properties(name, value);
CREATE INDEX by_end ON relationships(b);
CREATE INDEX by_time ON events(time); CREATE INDEX by_name ON events(name);
CREATE INDEX by_correlation ON events(correlation); CREATE INDEX by_session ON events(session);
"""
WRITERS = 64


def run(quick: bool) -> list[Row]:
    """Entities, events, requests."""
    return [
        *entities(320 if quick else 3_200, 2_000 if quick else 100_000),
        *events(5_000 if quick else 40_000),
        *requests(40 if quick else 200),
    ]


def bare(here: Place) -> apsw.Connection:
    """The baseline's database, in the same folder."""
    connection = apsw.Connection(str(Path(here.folder) / "bare.db"))
    list(connection.execute(TABLES))  # it goes on only as it is read
    return connection


def properties(number: int) -> dict[str, Any]:
    """Five of them."""
    return {
        "name": f"agent {number}",
        "load": number / 7,
        "group": number // 10,
        "busy": number % 2 == 0,
        "about": {"role": "writes", "since": number},
    }


def bare_entities(connection: apsw.Connection, count: int) -> float:
    """Entities that the baseline makes in a second."""

    def make(number: int) -> None:
        with connection:
            id = f"agent_{number:08x}"
            connection.execute("INSERT INTO entities VALUES(?,?,?,?)", (id, "agent", 1.0, 1.0))
            for name, value in properties(number).items():
                row = (id, name, json.dumps(value), type(value).__name__)
                connection.execute("INSERT INTO properties VALUES(?,?,?,?)", row)
        time.sleep(SYNC)

    return count / timed(lambda: [make(number) for number in range(count)])


async def ours(here: Place, count: int) -> float:
    """The same through the async face, 64 at once."""
    async with here.open(synced=True) as store:
        made = Entities(store.custom("fleet"))
        await made.create("agent", id="first")

        async def writer(first: int) -> None:
            for number in range(first, count, WRITERS):
                await made.create("agent", properties(number))

        begun = time.perf_counter()
        await asyncio.gather(*(writer(number) for number in range(WRITERS)))
        return count / (time.perf_counter() - begun)


def of_both(work: Callable[[], float], count: int) -> tuple[float, float]:
    """What work gives, and microseconds of CPU of each of so many parts."""
    before = time.process_time()
    return work(), (time.process_time() - before) / count * 1e6


def entities(count: int, many: int) -> list[Row]:
    """Made 64 at once, found among many, traversed."""
    with place() as here:
        theirs, their_cpu = of_both(lambda: bare_entities(bare(here), count), count)
        rate, our_cpu = of_both(lambda: asyncio.run(ours(here, count)), count)
    with place() as here, here.sync("normal") as store:
        made = BlockingEntities(store.custom("fleet"))
        for first in range(0, many, 1000):
            made.bulk_create(
                {"type": "agent", "id": f"e{n}", "properties": properties(n)}
                for n in range(first, min(many, first + 1000))
            )
        asked = [
            timed(lambda n=n: made.query("agent", where={"group": n % (many // 10)}))
            for n in range(7, 107)
        ]
        for n in range(1, 1001):
            made.relate("e0", "knows", f"e{n}")
        walked = median(timed(lambda: made.traverse("e0", depth=2)) for _ in range(5))
    name = "entities of five properties, 64 at once / the same tables on SQLite, a sync of 2 ms"
    return [
        told("one of them, CPU", our_cpu, "µs", note=f"on SQLite {their_cpu:.0f} µs"),
        at_least(name, rate / theirs, 2, note=f"{rate:,.0f} and {theirs:,.0f} a second"),
        at_least("the same", rate / theirs, 5, goal=True),
        at_most(f"entities by type and property, 10 of {many:,}", median(asked) * 1e3, 3, "ms"),
        at_most("1,000 neighbours traversed, depth 2", walked * 1e3, 50, "ms", goal=True),
    ]


def bare_events(connection: apsw.Connection, count: int) -> float:
    """Events that the baseline writes in a second, a commit per hundred."""

    def write() -> None:
        for first in range(0, count, 100):
            with connection:
                connection.executemany(
                    "INSERT INTO events VALUES(?,?,?,?,?,?,?,?)",
                    [
                        (f"e{n}", time.time(), f"agent:{n % 50}", "agent",
                         json.dumps({"n": n, "session_id": f"s{n % 20}"}), "bench", f"r{n // 10}",
                         f"s{n % 20}")
                        for n in range(first, first + 100)
                    ],
                )  # fmt: skip

    return count / timed(write)


def events(count: int) -> list[Row]:
    """One emitted, many written, the ring asked."""
    with place() as here:
        theirs = bare_events(bare(here), count)
        with here.sync() as store:
            log = Events(store)

            def write() -> None:
                for n in range(count):
                    data = {"n": n, "session_id": f"s{n % 20}"}
                    log.write(f"agent:{n % 50}", data, client="bench", correlation=f"r{n // 10}")
                log.flush()

            rate = count / timed(write)
            emitted = []
            for n in range(4000):
                begun = time.perf_counter()
                log.emit("agent:1", {"n": n})
                emitted.append(time.perf_counter() - begun)
            log.flush()
            for n in range(10_000):
                log.write(f"agent:{n % 100}", {"n": n})
            asked = median(
                timed(lambda: log.query("agent:7", limit=100, reverse=True)) for _ in range(200)
            )
            log.stop()
    beside = beside_questions(10 if count < 10_000 else 30)
    note = f"{rate:,.0f} and {theirs:,.0f} a second"
    return [
        at_most("an event emitted, the median", median(emitted) * 1e6, 10, "µs"),
        at_least("events durable / a table with a commit per 100", rate / theirs, 0.4, note=note),
        at_least("events durable", rate, 20_000, "/s", goal=True),
        at_least("questions of the ring, 100 of 10,000 by pattern", 1 / asked, 5_700, "/s"),
        at_most("a set at a sync of 2 ms beside 100 such questions a second", beside, 1.05),
    ]


def beside_questions(turns: int) -> float:
    """What a set takes while the ring is asked again and again, of what it takes without."""
    taken: dict[bool, list[float]] = {True: [], False: []}
    with place() as here, here.sync(synced=True) as store:
        log, state, asking = Events(store), store.agent("a"), [True]
        for n in range(10_000):
            log.write(f"agent:{n % 100}", {"n": n})
        log.flush()

        def ask() -> None:
            while asking[0]:
                log.query("agent:7", limit=100, reverse=True)
                time.sleep(0.01)

        for turn in range(2 * turns):
            asking[0] = bool(turn % 2)
            thread = threading.Thread(target=ask)
            thread.start()
            taken[asking[0]] += [timed(lambda n=n: state.set("k", n)) for n in range(50)]
            asking[0] = False
            thread.join()
        log.stop()
    return median(taken[True]) / median(taken[False])


def requests(count: int) -> list[Row]:
    """From submit to answer, beside a commit; sessions that are idle."""
    with place() as here, here.sync(synced=True) as store:
        commits = [timed(lambda n=n: store.agent("a").set("k", n)) for n in range(count)]
        asked = Requests(store, lambda request: request.content)
        asked.start()

        def answered(number: int) -> None:
            asked.result(asked.submit("s", number), timeout=60)

        taken = [timed(lambda n=n: answered(n)) for n in range(count)]
        asked.stop()
    many, spent = (1_000, 2.0) if count < 100 else (10_000, 5.0)
    with place() as here, here.sync("normal") as store:
        asked = Requests(store, lambda request: request.content)
        asked.start()
        rest = cpu(lambda: time.sleep(spent)) / spent * 100
        for one in [asked.submit(f"idle{n}", n) for n in range(many)]:
            asked.result(one, timeout=600)
        while asked._desks or asked.sessions():
            time.sleep(0.1)
        idle = cpu(lambda: time.sleep(spent)) / spent * 100
        asked.stop()
    ratio = median(taken) / median(commits)
    note = f"{median(taken) * 1e3:.2f} ms and {median(commits) * 1e3:.2f} ms"
    return [
        at_most("a request, submit to answer / a commit, a sync of 2 ms", ratio, 4, note=note),
        told(f"{many:,} idle sessions, CPU", idle, "%", note=f"with none {rest:.2f} %"),
    ]
