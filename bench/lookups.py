"""Lookups: what one adds to a set, and how long a question takes among 100,000 values."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Any

from common import Place, Row, at_most, median, place, quantile, told

from holdfast import Lookup, Range

BY_STATUS = Lookup("by_status", prefix="tasks/", terms={"status": "status", "due": "due"})
KEYS = 1000


def run(quick: bool) -> list[Row]:
    """Cost, questions."""
    return [*cost(10 if quick else 30), *questions(10_000 if quick else 100_000)]


def task(number: int) -> dict[str, Any]:
    """A small value whose terms change."""
    return {
        "status": ("open", "done", "late")[number % 3],
        "due": number * 7919 % 100_000,
        "title": f"task number {number} of many",
        "text": "what there is to do " * 5,
    }


# what it adds to a set


def cost(rounds: int) -> list[Row]:
    """Sets of keys that are there, in short turns with and without a lookup of two terms."""
    rows = []
    for durability, turn in (("full", 40), ("normal", 150)):
        with place() as here:
            rows.append(_cost(here, durability, rounds, turn))
    (wall, _), (_, cpu) = rows
    name = "a set with a lookup of two terms at `full`, more"
    return [
        at_most(name, (wall - 1) * 100, 30, "%"),
        told("the same at `normal`, CPU, more", (cpu - 1) * 100, "%"),
    ]


def _cost(here: Place, durability: str, rounds: int, turn: int) -> tuple[float, float]:
    with here.sync(durability) as store:
        plain, kept = store.agent("plain"), store.agent("kept")
        kept.declare(BY_STATUS)
        for state in (plain, kept):
            with state.change() as change:
                for number in range(KEYS):
                    change.set(f"tasks/{number:06}", task(number))
        choose = random.Random(7)

        def sets(state: Any) -> None:
            for _ in range(turn):
                state.set(f"tasks/{choose.randrange(KEYS):06}", task(choose.randrange(KEYS)))

        # Each turn is compared with the one just before it.
        found = [(_spent(sets, plain), _spent(sets, kept)) for _ in range(rounds)]
    return tuple(median(b[n] / a[n] for a, b in found) for n in (0, 1))  # type: ignore[return-value]


def _spent(work: Callable[[Any], None], state: Any) -> tuple[float, float]:
    wall, cpu = time.perf_counter(), time.process_time()
    work(state)
    return time.perf_counter() - wall, time.process_time() - cpu


# questions


def questions(count: int) -> list[Row]:
    """Ten keys, or ten values, by a value and a range, in order."""
    with place() as here, here.sync("normal") as store:
        state = store.agent("a")
        for start in range(0, count, 1000):
            with state.change() as change:
                for number in range(start, start + 1000):
                    change.set(f"tasks/{number:06}", task(number))
        begun = time.perf_counter()
        state.declare(BY_STATUS)
        built = time.perf_counter() - begun
        keys = [_ask(state, number, values=False) for number in range(200)]
        values = [_ask(state, number, values=True) for number in range(200)]
    name = f"a question for 10 of {count:,} values"
    return [
        at_most(name, median(keys), 2, "ms", note=f"p95 {quantile(keys, 0.95):.1f}"),
        told(f"{name}, with them", median(values), "ms"),
        told(f"building a lookup of {count:,} values", built, "s"),
    ]


def _ask(state: Any, number: int, *, values: bool) -> float:
    low = number * 457 % 90_000
    begun = time.perf_counter()
    page = state.find(
        "by_status", status="open", due=Range(ge=low), order="due", limit=10, values=values
    )
    spent = (time.perf_counter() - begun) * 1e3
    if len(page.items) != 10:
        raise RuntimeError(f"{len(page.items)} were found")
    return spent
