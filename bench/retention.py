"""Retention of many checkpoints beside a writer: its pace, and the writer's longest wait."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from common import Row, at_most, place, quantile, told

from holdfast.checkpoints import RetentionRule
from holdfast.sync import Store
from holdfast.sync.checkpoints import Retention


def run(quick: bool) -> list[Row]:
    """All but ten of 100,000 checkpoints go; another thread of the process writes meanwhile."""
    count = 3_000 if quick else 100_000
    with place() as here:
        with here.sync("normal") as store:
            fill(store, count)
        before = here.bytes()
        with here.sync("normal") as store:
            alone: list[float] = []
            with writing(store, alone):
                time.sleep(1 if quick else 10)
            waits: list[float] = []
            with writing(store, waits):
                started = time.perf_counter()
                Retention(store, rules={"routine": RetentionRule(max_count=10)}).run("agent:a")
                seconds = time.perf_counter() - started
        after = here.bytes()
    return [
        at_most(
            f"longest wait of a writer while {count:,} checkpoints go",
            max(waits) * 1e3,
            50,
            "ms",
            note=f"99 % within {quantile(waits, 0.99) * 1e3:.1f}",
        ),
        told(
            "the same of a writer alone",
            max(alone) * 1e3,
            "ms",
            note=f"99 % within {quantile(alone, 0.99) * 1e3:.1f}",
        ),
        told("retention of a checkpoint", seconds / count * 1e6, "µs"),
        told("size after / before", after / before, note=f"{before:,} bytes before"),
    ]


def fill(store: Store, count: int) -> None:
    """Checkpoints, with a change between them."""
    state = store.agent("a")
    for number in range(count):
        state.set(f"key {number % 100}", f"value {number} " * 20)
        state.checkpoint(f"c{number}", type="routine")
    state.set("end", 1)


@contextmanager
def writing(store: Store, waits: list[float]) -> Iterator[None]:
    """Another thread writes to another scope meanwhile; how long each write took."""
    over = threading.Event()

    def write() -> None:
        other = store.agent("b")
        while not over.is_set():
            started = time.perf_counter()
            other.set("key", len(waits))
            waits.append(time.perf_counter() - started)
            time.sleep(0.001)

    writer = threading.Thread(target=write)
    writer.start()
    yield
    over.set()
    writer.join()
