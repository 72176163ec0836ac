"""Schemas: what one of ten fields adds to a set, and a migration beside reading and setting."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Any

from common import Place, Row, at_most, median, place, told

from holdfast.schemas import Convert, Move, Number, Schema, Step, Text
from holdfast.sync.schemas import Migrations

KEYS = 1000
FIELDS = {f"text{n}": Text(max_length=100) for n in range(5)} | {
    f"n{n}": Number() for n in range(5)
}
TEN = Schema("ten", prefix="p/", fields=FIELDS)


def run(quick: bool) -> list[Row]:
    """Cost, migration."""
    return [*cost(10 if quick else 30), *migration(2_000 if quick else 10_000)]


def value(number: int) -> dict[str, Any]:
    """A value of ten fields."""
    return {name: f"text {number}" if name[0] == "t" else number for name in FIELDS}


def cost(rounds: int) -> list[Row]:
    """Sets of keys that are there, in short turns with and without a schema."""
    found = []
    for durability, turn in (("full", 40), ("normal", 150)):
        with place() as here:
            found.append(_cost(here, durability, rounds, turn))
    (wall, _), (_, cpu) = found
    name = "a set with a schema of ten fields at `full`, more"
    return [
        at_most(name, (wall - 1) * 100, 10, "%"),
        told("the same at `normal`, CPU, more", (cpu - 1) * 100, "%"),
    ]


def _cost(here: Place, durability: str, rounds: int, turn: int) -> tuple[float, float]:
    with here.sync(durability) as store:
        plain, kept = store.agent("plain"), store.agent("kept")
        kept.declare(TEN)
        choose = random.Random(7)

        def sets(state: Any) -> None:
            for _ in range(turn):
                state.set(f"p/{choose.randrange(KEYS):06}", value(choose.randrange(KEYS)))

        for state in (plain, kept):
            sets(state)
        # Each turn is compared with the one just before it.
        found = [(_spent(sets, plain), _spent(sets, kept)) for _ in range(rounds)]
    return tuple(median(b[n] / a[n] for a, b in found) for n in (0, 1))  # type: ignore[return-value]


def _spent(work: Callable[[Any], None], state: Any) -> tuple[float, float]:
    wall, cpu = time.perf_counter(), time.process_time()
    work(state)
    return time.perf_counter() - wall, time.process_time() - cpu


def migration(count: int) -> list[Row]:
    """Two transforms of each value, and the same values read and set again in batches of 100."""
    old = Schema("p", 1, prefix="p/", fields={**FIELDS, "n0": Text()})
    fields = {name: one for name, one in FIELDS.items() if name != "text0"} | {"name": Text()}
    steps = [Step(1, 2, [Convert("n0", "parse_int"), Move("text0", "name")])]
    newer = Schema("p", 2, prefix="p/", fields=fields, steps=steps)

    def filled(state: Any) -> Any:
        for start in range(0, count, 100):
            made = range(start, start + 100)
            state.set_many({f"p/{n:06}": {**value(n), "n0": str(n)} for n in made})
        return state

    def again(state: Any) -> None:
        keys = state.keys("p/")
        for start in range(0, count, 100):
            found = state.get_many(keys[start : start + 100])
            for one in found.values():
                one["n0"], one["name"] = int(one["n0"]), one.pop("text0")
            state.set_many(found)

    ratios, took = [], []
    with place() as here, here.sync("normal") as store:
        for turn in range(5):
            plain, kept = filled(store.agent(f"plain{turn}")), store.agent(f"kept{turn}")
            kept.declare(old)
            filled(kept).declare(newer)
            by_hand = _spent(again, plain)
            led = _spent(lambda state: Migrations(store).run(str(state.scope), "p"), kept)
            ratios.append(led[1] / by_hand[1])
            took.append(led[0])
    name = f"migrating {count:,} keys, CPU, times reading and setting them"
    return [
        at_most(name, median(ratios), 2.5, "x", goal=True),
        told("the same, seconds", median(took), "s"),
    ]
