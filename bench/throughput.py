"""How much a second: writers in tasks, a blocking writer, reads. Goals, not musts."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

from common import LoopGaps, Row, at_least, at_most, place, quantile, timed, told, words, writers
from machine import bare

KEYS = 1000


def run(quick: bool) -> list[Row]:
    """All goals, each with bare apsw measured right after it."""
    seconds = 1.5 if quick else 5.0
    return [
        *group(64, 1, seconds, 25_000),
        *group(1000, 1, seconds, 30_000),
        *group(1000, 1000, seconds, 14_000),
        told("event-loop gap p99 of a loop that only computes", asyncio.run(busy(seconds)), "ms"),
        *blocking("normal", seconds),
        *blocking("full", seconds),
        *reads(5_000 if quick else 20_000),
    ]


def value(number: int) -> dict[str, Any]:
    """A small value, about 100 bytes."""
    return {"fact": "the quick brown fox jumps over the lazy dog", "step": number, "sure": 0.5}


# writers in tasks


def group(count: int, scopes: int, seconds: float, least: float) -> list[Row]:
    """So many writers over so many scopes, at `full`, on the writer thread and in the loop."""
    thread = asyncio.run(_group(count, scopes, seconds, "thread"))
    inline = asyncio.run(_group(count, scopes, seconds, "inline"))
    plain, cheap = bare(round(thread["batch"]), round(thread["row"]), "full", seconds / 2)
    where = "one scope" if scopes == 1 else f"{scopes:,} scopes"
    name = f"{count:,} writers, {where}"
    note = f"{thread['batch']:.0f} a commit; inline {inline['rate']:,.0f}"
    rows = [at_least(name, thread["rate"], least, "sets/s", goal=True, note=note)]
    rows.append(told(f"{name}: CPU of a set", thread["cpu"] * 1e6, "µs", note="all threads"))
    rows.append(told(f"{name}: the same / bare apsw", 1 / thread["cpu"] / cheap))
    ratio = thread["rate"] / plain
    bare_note = f"bare {plain:,.0f} rows/s of {thread['row']:.0f} B"
    if count == 64:
        rows.append(at_least(f"{name} / bare apsw", ratio, 0.16, goal=True, note=bare_note))
    else:
        rows.append(told(f"{name} / bare apsw", ratio, note=bare_note))
    most = 4 if count == 64 else 20
    gap = at_most(f"{name}: event-loop gap p99", thread["gap"] * 1e3, most, "ms", goal=True)
    return [*rows, gap, told(f"{name}: the same, inline", inline["gap"] * 1e3, "ms")]


async def _group(count: int, scopes: int, seconds: float, mode: str) -> dict[str, float]:
    with place() as here:
        async with here.open(counted=True, commit=mode) as store:
            states = [store.agent(f"a{number}") for number in range(scopes)]
            await asyncio.gather(*(state.set("first", 1) for state in states))

            async def work(writer: int, number: int) -> None:
                key = f"memory/facts/{(writer + number * 61) % KEYS}"
                await states[writer % scopes].set(key, value(number))

            assert here.counting is not None
            here.counting.reset()
            busy = time.process_time()
            async with LoopGaps() as gaps:
                load = await writers(count, seconds, work)
            busy = time.process_time() - busy
            written = here.counting.bytes_written
            applied = here.counting.applied
    return {
        "rate": load.rate,
        "gap": quantile(gaps.late, 0.99),
        "batch": load.done / applied,
        "row": written / load.done,
        "cpu": busy / load.done,
    }


async def busy(seconds: float) -> float:
    """The gap, in ms, beside tasks that only compute: what the machine adds to those above."""
    end = time.perf_counter() + seconds

    async def work() -> None:
        while time.perf_counter() < end:
            begun = time.perf_counter()
            while time.perf_counter() < begun + 0.0002:
                pass
            await asyncio.sleep(0)

    async with LoopGaps() as gaps:
        await asyncio.gather(*(work() for _ in range(4)))
    return quantile(gaps.late, 0.99) * 1e3


# one blocking writer


def blocking(durability: str, seconds: float) -> list[Row]:
    """One writer through the blocking face."""
    with place() as here, here.sync(durability, counted=True) as store:
        state = store.agent("a")
        state.set("first", 1)
        assert here.counting is not None
        here.counting.reset()
        count = 0
        spent, busy = 0.0, time.process_time()
        while spent < seconds:
            spent += timed(lambda: _sets(state, count, 200))  # noqa: B023
            count += 200
        busy = (time.process_time() - busy) / count
        row = here.counting.bytes_written / count
    plain, cheap = bare(1, round(row), durability, seconds / 2)
    note = f"bare {plain:,.0f}"
    name = f"one blocking writer, {durability}"
    rate, least = count / spent, 0.28 if durability == "normal" else 0.6
    return [
        at_least(f"{name} / bare apsw", rate / plain, least, goal=True, note=note),
        told(f"{name}: the same of CPU", 1 / busy / cheap, note=f"{busy * 1e6:.0f} µs a set"),
        told(name, rate, "sets/s"),
    ]


def _sets(state: Any, first: int, count: int) -> None:
    for number in range(first, first + count):
        state.set(f"memory/facts/{number % KEYS}", value(number))


# reads


def reads(keys: int) -> list[Row]:
    """Reads from the cache, with the check for other processes, and from SQLite."""
    with place() as here:
        asyncio.run(_fill(here, keys))
        with here.sync() as store:
            state = store.agent("a")
            state.keys()  # the index is in memory, the values are not
            names = [f"memory/facts/{n * 7919 % keys}" for n in range(keys)]
            cold = keys / timed(lambda: _each(state.get, names))
            few = names[:500]
            _each(state.get, few)
            warm = 50_000 / timed(lambda: _each(state.get, few * 100))
    return [
        at_least("reads from the cache", warm, 100_000, "gets/s", goal=True),
        at_least("reads from SQLite", cold, 25_000, "gets/s", goal=True),
    ]


async def _fill(here: Any, keys: int) -> None:
    left = iter(range(keys))
    async with here.open("normal") as store:
        state = store.agent("a")

        async def writer() -> None:
            for number in left:
                await state.set(f"memory/facts/{number}", {"fact": words(300, number)})

        await asyncio.gather(*(writer() for _ in range(64)))


def _each(get: Callable[[str], Any], names: list[str]) -> None:
    for name in names:
        get(name)
