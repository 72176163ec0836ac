"""Many keys, many scopes, many entries: time to open, bytes of saves, memory."""

from __future__ import annotations

import asyncio
import random
import time
from array import array
from typing import Any

from common import (
    Row,
    at,
    at_least,
    at_most,
    in_child,
    median,
    place,
    timed,
    told,
)

from holdfast.store.proof.verify_report import Report

MEMORY = 150


def run(quick: bool) -> list[Row]:
    """A scope of 1,000,000 keys; 100,000 scopes; 1,000,000 entries; saves at 50,000 keys."""
    return [
        *keys_in_a_scope(100_000 if quick else 1_000_000),
        *saves(50_000, 10_000 if quick else 100_000),
        *many_scopes(3_000 if quick else 100_000),
        *many_entries(30_000 if quick else 1_000_000),
    ]


# keys


def keys_in_a_scope(count: int) -> list[Row]:
    """Build it, open it and use it, each in a process of its own."""
    with place() as here:
        folder = str(here.folder.parent)
        built = in_child("scale:build_keys", folder=folder, count=count)
        used = in_child("scale:use_keys", folder=folder, count=count)
        size = here.bytes()
    name = f"{count:,} keys"
    cpu = f"CPU {used['cpu'] * 1e3:.1f}"
    return [
        at_most(f"{name}: open store and scope", used["open"] * 1e3, 25, "ms", note=cpu),
        at_most(f"{name}: first get", used["first"] * 1e3, 5, "ms"),
        at_most(f"{name}: memory to build", built["memory"], MEMORY, "MB"),
        at_most(f"{name}: memory to open and use", used["memory"], MEMORY, "MB"),
        told(f"{name}: build", built["seconds"], "s", f"{size / 1e6:.0f} MB of files"),
        told(f"{name}: random get, median", used["get"] * 1e3, "ms"),
        told(f"{name}: random set at normal, median", used["set"] * 1e3, "ms"),
    ]


def build_keys(folder: str, count: int) -> dict[str, Any]:
    """Changes of 1,000 keys each."""
    order = array("I", range(count))  # a list of numbers would take 38 MB of what is measured
    random.Random(1).shuffle(order)
    with at(folder).sync() as store:
        start = time.perf_counter()
        for low in range(0, count, 1000):
            with store.change() as change:
                part = change[store.agent("a")]
                for number in order[low : low + 1000]:
                    part.set(f"memory/facts/{number}", {"fact": number})
        return {"seconds": time.perf_counter() - start}


def use_keys(folder: str, count: int) -> dict[str, Any]:
    """Opening, the first get, then gets and sets at random."""
    here = at(folder)
    opened, firsts, used = [], [], []
    for number in range(7):
        start, before = time.perf_counter(), time.process_time()
        store = here.sync("normal")
        state = store.agent("a")
        state._handle.place()
        opened.append(time.perf_counter() - start)
        used.append(time.process_time() - before)
        key = f"memory/facts/{number * count // 7}"
        firsts.append(timed(lambda: state.get(key)))  # noqa: B023
        if number < 6:
            store.close()
    pick = random.Random(2)
    gets = [timed(lambda: state.get(f"memory/facts/{pick.randrange(count)}")) for _ in range(5000)]
    sets = [
        timed(lambda: state.set(f"memory/facts/{pick.randrange(count)}", 1)) for _ in range(5000)
    ]
    store.close()
    return {
        "open": median(opened),
        "cpu": median(used),
        "first": median(firsts),
        "get": median(gets),
        "set": median(sets),
    }


# saves


def saves(keys: int, count: int) -> list[Row]:
    """Bytes of index saves for each entry, when keys are set at random."""
    with place() as here:
        found = in_child(
            "scale:random_sets", folder=str(here.folder.parent), keys=keys, count=count
        )
    return [
        at_most(
            f"index saves at {keys:,} random keys, bytes an entry",
            found["saves"] / count,
            300,
            "B",
            note=f"entries {found['entries'] / count:.0f} B each",
        )
    ]


def random_sets(folder: str, keys: int, count: int) -> dict[str, Any]:
    """Fill a scope, then set keys at random, one an entry."""
    here = at(folder)
    build_keys(folder, keys)
    with here.sync("normal", counted=True) as store:
        assert here.counting is not None
        state = store.agent("a")
        pick = random.Random(3)
        here.counting.reset()
        for number in range(count):
            state.set(f"memory/facts/{pick.randrange(keys)}", {"fact": number})
        return {"saves": here.counting.saves, "entries": here.counting.kinds["E"]}


# scopes


def many_scopes(count: int) -> list[Row]:
    """Make scopes of 10 keys, then touch each again in a new process."""
    with place() as here:
        folder = str(here.folder.parent)
        made = in_child("scale:make_scopes", folder=folder, count=count)
        touched = in_child("scale:touch_scopes", folder=folder, count=count)
        size = here.bytes()
    name = f"{count:,} scopes of 10 keys"
    return [
        at_most(f"{name}: memory to make them", made["memory"], MEMORY, "MB"),
        at_most(f"{name}: memory to touch them", touched["memory"], MEMORY, "MB"),
        told(f"{name}: make", count / made["seconds"], "scopes/s", f"{size / count:.0f} B each"),
        told(f"{name}: get and set in each", count / touched["seconds"], "scopes/s"),
    ]


def make_scopes(folder: str, count: int) -> dict[str, Any]:
    """One change of 10 keys in each, 200 scopes at once."""

    async def make() -> float:
        async with at(folder).open() as store:
            start = time.perf_counter()
            for low in range(0, count, 200):
                await asyncio.gather(*(_ten(store, n) for n in range(low, min(count, low + 200))))
            return time.perf_counter() - start

    return {"seconds": asyncio.run(make())}


async def _ten(store: Any, number: int) -> None:
    async with store.agent(f"a{number}").change() as change:
        for key in range(10):
            change.set(f"key/{key}", {"fact": number})


def touch_scopes(folder: str, count: int) -> dict[str, Any]:
    """A get and a set in each, 200 scopes at once."""

    async def touch() -> float:
        async with at(folder).open() as store:
            start = time.perf_counter()
            for low in range(0, count, 200):
                await asyncio.gather(*(_one(store, n) for n in range(low, min(count, low + 200))))
            return time.perf_counter() - start

    return {"seconds": asyncio.run(touch())}


async def _one(store: Any, number: int) -> None:
    state = store.agent(f"a{number}")
    if await state.get("key/5") != {"fact": number}:
        raise AssertionError("another value came back")
    await state.set("key/5", {"fact": -number})


# entries


def many_entries(count: int) -> list[Row]:
    """Entries over 20,000 keys; then all of them verified, in a process of its own."""
    with place() as here:
        folder = str(here.folder.parent)
        made = in_child("scale:make_entries", folder=folder, count=count)
        opened = in_child("scale:open_entries", folder=folder)
        checked = in_child("scale:verify_entries", folder=folder)
        size = here.bytes()
    name = f"{count:,} entries"
    return [
        at_most(f"{name}: memory to write them", made["memory"], MEMORY, "MB"),
        at_most(f"{name}: memory to open and read", opened["memory"], MEMORY, "MB"),
        at_least(
            f"verify at {name}",
            checked["entries"] / checked["seconds"],
            80_000,
            "entries/s",
            note=f"{checked['findings']} findings",
        ),
        told(f"{name}: memory to verify them", checked["memory"], "MB"),
        told(
            f"{name}: written", count / made["seconds"], "entries/s", f"{size / count:.0f} B each"
        ),
        told(f"{name}: open store and scope", opened["open"] * 1e3, "ms"),
    ]


def make_entries(folder: str, count: int) -> dict[str, Any]:
    """1,000 writers, 20,000 keys, one key an entry."""
    left = iter(range(count))

    async def make() -> float:
        async with at(folder).open() as store:
            state = store.agent("a")

            async def writer() -> None:
                for number in left:
                    key = f"memory/facts/{number * 7919 % 20_000}"
                    await state.set(key, {"fact": number})

            start = time.perf_counter()
            await asyncio.gather(*(writer() for _ in range(1000)))
            return time.perf_counter() - start

    return {"seconds": asyncio.run(make())}


def open_entries(folder: str) -> dict[str, Any]:
    """Opening the store and its scope."""
    here = at(folder)
    opened = []
    for _ in range(7):
        start = time.perf_counter()
        with here.sync() as store:
            store.agent("a")._handle.place()
            opened.append(time.perf_counter() - start)
            store.agent("a").get("memory/facts/7")
    return {"open": median(opened)}


def verify_entries(folder: str) -> dict[str, Any]:
    """Everything in the store, checked."""
    with at(folder).sync() as store:
        start = time.perf_counter()
        report: Report = store.verify()
        seconds = time.perf_counter() - start
    return {"entries": report.entries, "findings": len(report.findings), "seconds": seconds}
