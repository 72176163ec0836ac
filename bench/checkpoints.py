"""Checkpoints: bytes, time, and how long they hold the event loop."""

from __future__ import annotations

import asyncio
import gc
import time

from common import LoopGaps, Place, Row, at_most, median, place, quantile, timed, told

from holdfast.sync import State


def run(quick: bool) -> list[Row]:
    """At 100 and at 100,000 keys."""
    rows: list[Row] = []
    for keys in (100, 20_000 if quick else 100_000):
        with place() as here:
            with here.sync("normal") as store:
                fill(store.agent("a"), keys)
            rows += few(here, keys)
            if keys > 1000:
                rows += asyncio.run(many(here, keys))
    return rows


def fill(state: State, keys: int) -> None:
    """So many keys, 1,000 a change."""
    for start in range(0, keys, 1000):
        with state.change() as change:
            for number in range(start, min(keys, start + 1000)):
                change.set(f"memory/facts/{number}", {"fact": number})


def few(here: Place, keys: int) -> list[Row]:
    """Bytes and time of a checkpoint after three changed keys, at `normal`."""
    times, sizes = [], []
    with here.sync("normal", counted=True) as store:
        state = store.agent("a")
        state.checkpoint()
        for number in range(100):
            for step in (1, 2, 3):
                state.set(f"memory/facts/{(number * 7919 * step) % keys}", {"fact": -number})
            assert here.counting is not None
            here.counting.reset()
            times.append(timed(lambda: state.checkpoint("before deploy", tags=["deploy"])))
            sizes.append(here.counting.bytes_written - here.counting.saves)
    return [
        at_most(f"checkpoint at {keys:,} keys: records", max(sizes), 500, "B"),
        at_most(
            f"checkpoint at {keys:,} keys, 3 changed, normal",
            median(times) * 1e3,
            1,
            "ms",
            note=f"p95 {quantile(times, 0.95) * 1e3:.2f}",
        ),
    ]


async def many(here: Place, keys: int) -> list[Row]:
    """Time of a checkpoint after 1,000 changed keys, and the event loop meanwhile."""
    times: list[float] = []
    cpus: list[float] = []
    late: list[float] = []
    collecting: list[float] = [0.0]
    gc.collect()
    gc.freeze()  # what was there before is passed over: collecting that is not a checkpoint's doing
    async with here.open() as store:
        state = store.agent("a")
        await state.checkpoint()
        for turn in range(5):
            async with state.change() as change:
                for number in range(1000):
                    change.set(f"memory/facts/{(number * 7919 + turn) % keys}", {"fact": -turn})
            async with LoopGaps() as gaps:
                await asyncio.sleep(0.005)
                start, used = time.perf_counter(), time.process_time()
                await state.checkpoint("many")
                times.append(time.perf_counter() - start)
                cpus.append(time.process_time() - used)
                await asyncio.sleep(0.005)
            late += gaps.late
            collecting += gaps.collecting
    gc.unfreeze()
    return [
        at_most(f"checkpoint at {keys:,} keys, 1,000 changed", median(times) * 1e3, 100, "ms"),
        at_most("event loop held meanwhile, at most", max(late) * 1e3, 20, "ms"),
        told("Python's garbage collection meanwhile, longest", max(collecting) * 1e3, "ms"),
        told("checkpoint after 1,000 changed, greatest of 5", max(times) * 1e3, "ms"),
        told("the same in CPU, median", median(cpus) * 1e3, "ms"),
    ]
