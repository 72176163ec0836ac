"""Forks: many timelines at one moment from one large state, and what each of them writes."""

from __future__ import annotations

import asyncio
import time

from common import Place, Row, at_most, encoded, median, message, place, told

from holdfast.sync import State

ROUNDS = 9


def run(quick: bool) -> list[Row]:
    """1,000 forks of an agent of 100 MB in a second, beside those of an agent with one key."""
    forks, megabytes = (200, 10) if quick else (1000, 100)
    with place() as here:
        with here.sync("normal") as store:
            fill(store.agent("large"), megabytes)
            store.agent("small").set("k", 1)
        large, small = asyncio.run(at_one_moment(here, forks))
        size = written(here)
    ratio = median(one / other for one, other in zip(large[1:], small[1:], strict=True))
    name = f"{forks:,} forks at one moment of an agent of {megabytes} MB"
    first = f"the first {forks:,}, in a store just opened: {large[0]:.2f}"
    return [
        at_most(name, median(large[1:]), forks / 1000, "s", note=first),
        at_most("the same, against an agent with one key", ratio, 1.5, "×"),
        told("records of one fork of it", size, "B"),
    ]


def fill(state: State, megabytes: int) -> None:
    """A conversation of that size, 1 MB of messages a key."""
    count = 1_000_000 // encoded(message(0))
    for part in range(megabytes):
        first = part * count
        state.extend(f"conversation/{part}", [message(first + n) for n in range(count)])


async def at_one_moment(here: Place, forks: int) -> tuple[list[float], list[float]]:
    """Seconds until all are durable, of the large and of the small agent in turn."""
    found: tuple[list[float], list[float]] = ([], [])
    async with here.open() as store:
        for number in range(ROUNDS):
            for name, times in zip(("large", "small"), found, strict=True):
                state = store.agent(name)
                begun = time.perf_counter()
                await asyncio.gather(*(state.fork(f"{number}/{n}") for n in range(forks)))
                times.append(time.perf_counter() - begun)
    return found


def written(here: Place) -> float:
    """Bytes of records that one more fork writes."""
    with here.sync(counted=True) as store:
        state = store.agent("large")
        state.fork("first")
        assert here.counting is not None
        here.counting.reset()
        state.fork("second")
        return here.counting.bytes_written
