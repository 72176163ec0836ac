"""Going back: time travel, restore, and how long it takes to verify a state."""

from __future__ import annotations

import asyncio
import random
from functools import partial
from typing import Any

import msgspec
from common import Place, Row, at_most, cpu, median, message, place, timed, told

from holdfast.sync import State


def run(quick: bool) -> list[Row]:
    """Any of 100,000 entries; a restore; 1 MB verified."""
    points = travel(20_000 if quick else 100_000, 60 if quick else 300)
    return [*points, *restores(), *whole_states()]


def travel(count: int, points: int) -> list[Row]:
    """A get at a point, for points all over the history, each for the first time."""
    with place() as here:
        asyncio.run(write(here, count))
        pick = random.Random(4)
        cold: list[float] = []
        used: list[float] = []
        with here.sync() as store:
            state = store.agent("a")
            last = state._handle.place()[2]
            for _ in range(points):
                at = pick.randrange(last // 20, last)
                key = f"memory/facts/{pick.randrange(1000)}"
                used.append(cpu(lambda: cold.append(timed(lambda: state.at(at).get(key)))))  # noqa: B023
    return [
        at_most(
            f"time travel to any of {count:,} entries",
            max(cold) * 1e3,
            20,
            "ms",
            note=f"greatest of {points}; median {median(cold) * 1e3:.1f}",
        ),
        told("the same in CPU", max(used) * 1e3, "ms", f"median {median(used) * 1e3:.1f}"),
    ]


async def write(here: Place, count: int) -> None:
    """Entries over 5,000 keys."""
    left = iter(range(count))
    async with here.open("normal") as store:
        state = store.agent("a")

        async def writer() -> None:
            for number in left:
                await state.set(f"memory/facts/{number * 7919 % 5000}", {"fact": number})

        await asyncio.gather(*(writer() for _ in range(64)))


# restore

COUNT = 2000


def restores() -> list[Row]:
    """1 MB as one value, as a list, as 2,000 values of one change and of one change each.

    The measure is the CPU in which msgspec decodes the same 2,000 as one value. Records are what
    decoding is about; texts are only copied by it, so that any check takes longer: they are told.
    """
    pick, rows = random.Random(5), []
    kinds = {
        "records": [record(pick, number) for number in range(COUNT)],
        "texts": [message(number, 500) for number in range(COUNT)],
    }
    for kind, data in kinds.items():
        packed = msgspec.msgpack.encode(data)
        decode = median([cpu(lambda: msgspec.msgpack.decode(packed)) for _ in range(30)])  # noqa: B023
        size = f"{len(packed) / 1e6:.2f} MB of {kind}"
        rows.append(told(f"decoding {size}, CPU", decode * 1e3, "ms"))
        for shape, groups in _shapes(data, packed).items():
            with place() as here:
                entry, warm, cold = _restore(here, groups)
            what = f"a restore of {size} as {shape} / decoding it"
            note = f"in a store just opened {cold / decode:.2g}; CPU {warm * 1e3:.2f} ms"
            must = kind == "records" and len(groups) == 1
            make: Any = partial(at_most, limit=2) if must else told
            rows.append(make(what, warm / decode, note=note))
    rows.append(at_most("a restore's entry", median(entry) * 1e3, 5, "ms", note=_greatest(entry)))
    return rows


def record(pick: random.Random, number: int) -> dict[str, Any]:
    """About 470 bytes of a task's state, in small parts."""
    paths = [f"src/part{pick.randrange(50)}/file{pick.randrange(500)}.py" for _ in range(4)]
    return {
        "id": f"task-{number:05}",
        "state": pick.choice(["open", "running", "done", "failed"]),
        "attempts": number % 5,
        "cost": pick.random(),
        "approved": number % 3 == 0,
        "depends": [pick.randrange(number + 1) for _ in range(6)],
        "tool": {"name": "search", "limit": pick.randrange(100), "dry": False, "paths": paths},
        "timings": [pick.random() for _ in range(12)],
        "labels": {f"l{label}": pick.randrange(1000) for label in range(6)},
        "history": [
            {"at": 1_763_200_000 + number * 7 + step, "by": "planner", "what": "moved"}
            for step in range(3)
        ],
    }


def whole_states() -> list[Row]:
    """All 2,700 keys of a state read, warm: records of small parts, and texts that are told."""
    pick, rows = random.Random(5), []
    kinds = {
        "records": [record(pick, number) for number in range(2700)],
        "texts": [message(number, 370) for number in range(2700)],
    }
    for kind, data in kinds.items():
        packed = msgspec.msgpack.encode(data)
        with place() as here, here.sync("normal") as store:
            state = store.agent("a")
            with state.change() as change:
                for number, item in enumerate(data):
                    change.set(f"memory/{number}", item)
            pairs = [
                (cpu(lambda: state.items("memory/")), cpu(lambda: msgspec.msgpack.decode(packed)))  # noqa: B023
                for _ in range(15)
            ]
        ours, theirs = median([one for one, _ in pairs]), median([one for _, one in pairs])
        note = f"CPU {ours * 1e3:.2f} and {theirs * 1e3:.2f} ms"
        what = f"2,700 keys, {len(packed) / 1e6:.1f} MB of {kind}, read / decoding it"
        texts = kind == "texts"
        rows.append(
            told(what, ours / theirs, note=note)
            if texts
            else at_most(what, ours / theirs, 2, note=note)
        )
    return rows


def _shapes(data: list[Any], packed: bytes) -> dict[str, list[dict[str, Any]]]:
    """Changes, by what they make of the data."""
    values = {f"memory/{number}": item for number, item in enumerate(data)}
    return {
        "one value": [{"all": packed}],
        "a list of 2,000": [{"all": data}],
        "2,000 values": [values],
        "2,000 values, each of its own entry": [{key: value} for key, value in values.items()],
    }


def _greatest(times: list[float]) -> str:
    return f"least {min(times) * 1e3:.2f}, greatest of {len(times)} {max(times) * 1e3:.2f}"


def _restore(here: Place, groups: list[dict[str, Any]]) -> tuple[list[float], float, float]:
    """Seconds of restores that check nothing; CPU of those that check all, warm and cold."""
    entry: list[float] = []
    cold: list[float] = []

    def restored(state: State) -> float:
        state.set("other", len(cold))
        return cpu(lambda: state.restore(safe))

    with here.sync("normal") as store:
        state = store.agent("a")
        for group in groups:
            with state.change() as change:
                for key, value in group.items():
                    change.set(key, value)
        safe = state.checkpoint("safe")
        warm = [restored(state) for _ in range(9)]
        for number in range(20):
            state.set("other", number)
            entry.append(timed(lambda: state.restore(safe, verify="none")))
    for _ in range(5):
        with here.sync("normal") as store:
            cold.append(restored(store.agent("a")))
    return entry, median(warm), median(cold)
