"""Watching: what it costs the writers, how soon others are heard, how fast one catches up."""

from __future__ import annotations

import asyncio
import json
import subprocess
import time
from collections.abc import Awaitable, Callable
from typing import Any

from common import (
    Place,
    Row,
    at,
    at_most,
    median,
    place,
    quantile,
    start_child,
    timed,
    told,
    writers,
)

WRITERS = 64


def run(quick: bool) -> list[Row]:
    """Cost, delay, catching up."""
    return [*cost(7 if quick else 15), *delay(50 if quick else 300), *catching_up(quick)]


# what it costs the writers


def cost(rounds: int) -> list[Row]:
    """64 writers at `full`, in short turns with and without a watch of everything elsewhere."""
    with place() as here:
        found = asyncio.run(_cost(here, rounds))
    # Each turn is compared with the one without a watch just before it.
    watched, inside, idle = (
        (median(one / alone for one, alone in zip(turns, found[0], strict=True)) - 1) * 100
        for turns in found[1:]
    )
    name = "64 writers, a watch of all in another process"
    return [
        at_most(f"{name}: CPU of the writers, more", watched, 5, "%"),
        told("the same, a watch of another scope in the same process", idle, "%"),
        told("the same, a watch of all in the same process", inside, "%"),
        told("CPU of one set, nobody watches", median(found[0]) * 1e6, "µs"),
    ]


async def _cost(here: Place, rounds: int) -> tuple[list[float], ...]:
    found: tuple[list[float], ...] = ([], [], [], [])
    async with here.open() as store:
        state = store.agent("a")
        await state.set("first", 1)
        await store.agent("b").set("first", 1)

        async def work() -> float:
            begun = time.process_time()
            load = await writers(
                WRITERS, 0.4, lambda w, n: state.set(f"k/{w}/{n % 16}", {"fact": n})
            )
            return (time.process_time() - begun) / load.done

        await work()
        for _ in range(rounds):
            found[0].append(await work())
            child = start_child("watch:follow", folder=str(here.folder.parent))
            await asyncio.sleep(0.7)
            found[1].append(await work())
            _end(child)
            found[2].append(await _beside(store.watch(), work))
            found[3].append(await _beside(store.watch("agent:b"), work))
    return found


async def _beside(watch: Any, work: Callable[[], Awaitable[float]]) -> float:
    async def follow() -> None:
        async for _ in watch:
            pass

    task = asyncio.create_task(follow())
    await asyncio.sleep(0.05)
    spent = await work()
    await watch.close()
    await task
    return spent


def follow(folder: str) -> dict[str, Any]:
    """Watch everything until nothing comes any more."""
    seen = 0
    with at(folder).sync() as store:
        for _ in store.watch(timeout=1.5):
            seen += 1
    return {"seen": seen}


def _end(child: subprocess.Popen[str]) -> int:
    out, _ = child.communicate()
    return int(json.loads(out.splitlines()[-1])["seen"])


# how soon


def delay(count: int) -> list[Row]:
    """From before a commit in another process until the entry is given here."""
    with place() as here, here.sync() as store:
        state = store.agent("w")
        state.set("sent", 0.0)
        watch = state.watch(timeout=30)
        child = start_child("watch:send", folder=str(here.folder.parent), count=count)
        late = []
        for _ in range(count):
            entry = next(watch)
            late.append((time.time() - state.at(entry).get("sent")) * 1e3)
        child.communicate()
    note = f"median {median(late):.1f}, greatest {max(late):.0f}"
    name = "a commit of another process is heard, p95"
    return [at_most(name, quantile(late, 0.95), 100, "ms", note=note)]


def send(folder: str, count: int) -> None:
    """Write the time now and then."""
    with at(folder).sync() as store:
        for number in range(count):
            store.agent("w").set("sent", time.time())
            time.sleep(0.01 + number % 7 / 100)


# catching up


def catching_up(quick: bool) -> list[Row]:
    """Reading what was written while nobody read, groups of 64 entries in a commit."""
    count = 10_000 if quick else 100_000
    with place() as here, here.sync("normal") as store:
        begin = store.position()
        asyncio.run(_fill(here, count))
        seconds = timed(lambda: list_of(store, begin, count))
    return [told(f"catching up with {count:,} entries", count / seconds, "entries/s")]


def list_of(store: Any, begin: Any, count: int) -> None:
    """Read them all; one that is missing is an error."""
    seen = sum(1 for _ in store.watch(since=begin, timeout=0))
    if seen != count:
        raise RuntimeError(f"{seen} of {count} entries were given")


async def _fill(here: Place, count: int) -> None:
    left = iter(range(count))
    async with here.open("normal") as store:

        async def writer() -> None:
            for number in left:
                await store.agent("a").set(f"k{number % 1000}", {"fact": number})

        await asyncio.gather(*(writer() for _ in range(WRITERS)))
