"""Watching: what it costs the writers, how soon others are heard, how fast one catches up."""

from __future__ import annotations

import asyncio
import random
import sys
import time
from collections.abc import Awaitable, Callable
from itertools import chain, count, islice
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
    return [*cost(15 if quick else 60), *delay(50 if quick else 300), *catching_up(quick)]


# what it costs the writers

SLICE, MARGIN = 0.1, 0.04
"""Seconds in which writers are measured, and by which a process beside them begins before and
ends after that."""
PACE = 0.02
"""Seconds between two reads of the process that reads another store, as a watch has."""


def cost(rounds: int) -> list[Row]:
    """What a watch of everything takes from 64 writers, and what any other process takes.

    Commits run on the event loop, so that each is of exactly 64 sets: else the figure would be
    that of the size of groups, which changes with whatever else runs.
    """
    with place() as here, place() as apart:
        asyncio.run(_fill(apart, 10_000))
        found = asyncio.run(_cost(here, apart, rounds))

    def more(kind: str, than: str = "alone") -> float:
        pairs = zip(found[kind], found[than], strict=True)
        return (median(one / other for one, other in pairs) - 1) * 100

    name = "64 writers, a watch of all in another process"
    return [
        at_most(f"{name}: CPU of the writers, more", more("watch"), 5, "%"),
        told("the same, it reads as much of another store instead", more("apart"), "%"),
        told("the same, the watch against reading another store", more("watch", "apart"), "%"),
        told("the same, a watch of another scope in the same process", more("idle"), "%"),
        told("the same, a watch of all in the same process", more("inside"), "%"),
        told("CPU of one set, nobody watches", median(found["alone"]) * 1e6, "µs"),
    ]


async def _cost(here: Place, apart: Place, rounds: int) -> dict[str, list[float]]:
    """CPU of one set, by what runs beside; each kind once a round, in changing order."""
    async with here.open(commit="inline") as store:
        state = store.agent("a")
        await state.set("first", 1)
        await store.agent("b").set("first", 1)

        async def work() -> float:
            begun = time.process_time()
            load = await writers(
                WRITERS, SLICE, lambda w, n: state.set(f"k/{w}/{n % 16}", {"fact": n})
            )
            return (time.process_time() - begun) / load.done

        with _Beside(here, apart) as beside:
            kinds: dict[str, Callable[[], Awaitable[float]]] = {
                "alone": work,
                "watch": lambda: beside.during("watch", work),
                "apart": lambda: beside.during("apart", work),
                "inside": lambda: _inside(store.watch(), work),
                "idle": lambda: _inside(store.watch("agent:b"), work),
            }
            found: dict[str, list[float]] = {kind: [] for kind in kinds}
            await kinds["watch"]()
            for _ in range(rounds):
                for kind in random.sample(list(kinds), len(kinds)):
                    found[kind].append(await kinds[kind]())
    return found


async def _inside(watch: Any, work: Callable[[], Awaitable[float]]) -> float:
    async def follow() -> None:
        async for _ in watch:
            pass

    task = asyncio.create_task(follow())
    await asyncio.sleep(MARGIN)
    spent = await work()
    await watch.close()
    await task
    return spent


class _Beside:
    """Another process that has both stores open, and reads one of them when it is told to."""

    def __init__(self, here: Place, apart: Place) -> None:
        folders = {"here": str(here.folder.parent), "apart": str(apart.folder.parent)}
        self._child = start_child("watch:beside", **folders)
        self._last = 0
        self._ask("nothing", 0)

    async def during(self, kind: str, work: Callable[[], Awaitable[float]]) -> float:
        """Do the work while it reads: what is committed, or as many entries of the other store."""
        self._tell(kind, self._last)
        await asyncio.sleep(MARGIN)
        spent = await work()
        seen = self._answer()
        if kind == "watch":
            self._last = seen
        return spent

    def _tell(self, kind: str, entries: int) -> None:
        assert self._child.stdin is not None
        self._child.stdin.write(f"{kind} {entries}\n")
        self._child.stdin.flush()

    def _answer(self) -> int:
        assert self._child.stdout is not None
        return int(self._child.stdout.readline())

    def _ask(self, kind: str, entries: int) -> None:
        self._tell(kind, entries)
        self._answer()

    def __enter__(self) -> _Beside:
        return self

    def __exit__(self, *_: object) -> None:
        self._child.communicate()


def beside(here: str, apart: str) -> None:
    """Read as told by each line of the input; answer with how many entries were read."""
    with at(here).sync() as watched, at(apart).sync() as other:
        for line in sys.stdin:
            kind, entries = line.split()
            end = time.monotonic() + SLICE + 2 * MARGIN
            seen = 0
            if kind == "watch":
                seen = _watch_until(watched, end)
            elif kind == "apart":
                seen = _read_until(other, end, int(entries))
            print(seen, flush=True)


def _watch_until(store: Any, end: float) -> int:
    seen = 0
    with store.watch(timeout=PACE) as watch:
        while time.monotonic() < end:
            for _ in watch:
                seen += 1
                if time.monotonic() >= end:
                    break
    return seen


def _read_until(store: Any, end: float, entries: int) -> int:
    """Read so many until then, a part each time, as one who watches does."""
    endless = chain.from_iterable(store.feed() for _ in count())
    begun, seen = time.monotonic(), 0
    while (now := time.monotonic()) < end:
        due = round(entries * (now - begun) / (end - begun))
        seen += sum(1 for _ in islice(endless, due - seen))
        time.sleep(PACE)
    return seen


# how soon


def delay(number: int) -> list[Row]:
    """From before a commit in another process until the entry is given here."""
    with place() as here, here.sync() as store:
        state = store.agent("w")
        state.set("sent", 0.0)
        watch = state.watch(timeout=30)
        child = start_child("watch:send", folder=str(here.folder.parent), count=number)
        late = []
        for _ in range(number):
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
