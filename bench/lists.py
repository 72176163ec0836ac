"""Long lists: appending, the tail, and setting a whole list again with little changed."""

from __future__ import annotations

import asyncio
import gc
import random
from collections.abc import Awaitable, Callable
from typing import Any

from common import (
    LoopGaps,
    Place,
    Row,
    at_most,
    cpu,
    encoded,
    median,
    message,
    place,
    quantile,
    timed,
    told,
)

from holdfast.sync import State

Messages = list[dict[str, Any]]
SIZE = 1000
NEW = 1_000_000
"""Numbers of messages from here on are new to the list."""


def fresh(number: int) -> dict[str, Any]:
    """A message that does not compress, so that its own bytes can be told from the rest."""
    return {**message(number), "content": random.Random(number).randbytes(490)}


def run(quick: bool) -> list[Row]:
    """Append and tail at 100,000 items; 1,000 messages set again; the event loop beside 10 MB."""
    return [
        *appends(20_000 if quick else 100_000, 200 if quick else 600),
        *again(quick),
        *asyncio.run(beside(10_000 if quick else 50_000)),
    ]


# append and tail


def appends(long: int, rounds: int) -> list[Row]:
    """The cost of an append to a long and to a short list, in turn; and tails of the long one."""
    with place() as here:
        with here.sync("normal") as store:
            grow(store.agent("a"), long)
        with here.sync() as store:
            costs = compare(store.agent("a"), rounds)
            warm = [timed(lambda: store.agent("a").tail("long", 50)) for _ in range(100)]
        cold = [cold_tail(here) for _ in range(15)]
    wall = {key: sum(pair[0] for pair in costs[key]) / rounds for key in costs}
    used = {key: sum(pair[1] for pair in costs[key]) / rounds for key in costs}
    return [
        at_most(
            f"append at {long:,} items / at 10",
            wall["long"] / wall["short"],
            1.5,
            note=f"{wall['long'] * 1e6:.0f} and {wall['short'] * 1e6:.0f} µs",
        ),
        told("the same in CPU", used["long"] / used["short"], note=f"{used['long'] * 1e6:.0f} µs"),
        at_most("tail of 50, warm", median(warm) * 1e3, 1, "ms"),
        at_most(
            "tail of 50, cold",
            median(cold) * 1e3,
            3,
            "ms",
            note=f"greatest of {len(cold)}: {max(cold) * 1e3:.2f}",
        ),
    ]


def grow(state: State, long: int) -> None:
    """Make the long list."""
    state.set("other", 1)
    for start in range(0, long, 1000):
        state.extend("long", [message(n) for n in range(start, start + 1000)])


def compare(state: State, rounds: int) -> dict[str, list[tuple[float, float]]]:
    """(seconds, CPU) of appends to the long list and to one of 10 to 20 items, in turn."""
    costs: dict[str, list[tuple[float, float]]] = {"long": [], "short": []}
    for number in range(rounds):
        if number % 10 == 0:
            state.set("short", [message(n) for n in range(10)])
        for key in costs:
            item = message(NEW + number)
            wall: list[float] = []
            used = cpu(lambda: wall.append(timed(lambda: state.append(key, item))))  # noqa: B023
            costs[key].append((wall[0], used))
    return costs


def cold_tail(here: Place) -> float:
    """Seconds of the first tail in a store just opened; its scope is open, its list is not."""
    with here.sync() as store:
        state = store.agent("a")
        state.get("other")
        return timed(lambda: state.tail("long", 50))


# setting again


def _changed(old: Messages) -> Messages:
    return [fresh(NEW + n) if n % 100 == 50 else item for n, item in enumerate(old)]


def _inserted(old: Messages) -> Messages:
    return [new for n, item in enumerate(old) for new in _after(n, item)]


def _after(number: int, item: dict[str, Any]) -> Messages:
    return [item, fresh(NEW + number)] if number % 100 == 50 else [item]


def _removed(old: Messages) -> Messages:
    return [item for n, item in enumerate(old) if n % 100 != 50]


CASES: dict[str, tuple[Callable[[Messages], Messages], int]] = {
    "one more": (lambda old: [*old, fresh(NEW)], 1),
    "one changed": (lambda old: [*old[:500], fresh(NEW), *old[501:]], 1),
    "10 changed": (_changed, 10),
    "10 inserted": (_inserted, 10),
    "10 removed": (_removed, 10),
    "window slid by 10": (lambda old: [*old[10:], *(fresh(NEW + n) for n in range(10))], 2),
}
"""How a list of 1,000 is changed, and in how many places."""


def again(quick: bool) -> list[Row]:
    """The worst of all cases, each alone and inside another value."""
    names = ["one more", "10 changed", "window slid by 10"] if quick else list(CASES)
    found: dict[str, dict[str, float]] = {}
    for name in names:
        for nested in (False, True):
            found[name + (", nested" if nested else "")] = set_again(name, nested)
    return [
        _worst("1,000 messages again: records beyond the new items", found, "beyond", 1536, "B"),
        _worst("at the next index save, for each place changed", found, "save", 5120, "B"),
        _worst("CPU, warm", found, "warm", 4, "ms"),
        _worst("CPU, cold", found, "cold", 15, "ms"),
        *(
            told(
                f"again, {name}: beyond the items, save, CPU warm and cold",
                case["beyond"],
                "B",
                note=f"{case['save']:.0f} B, {case['warm']:.1f} and {case['cold']:.1f} ms",
            )
            for name, case in found.items()
        ),
    ]


def _worst(
    figure: str, found: dict[str, dict[str, float]], what: str, limit: float, unit: str
) -> Row:
    name = max(found, key=lambda name: found[name][what])
    return at_most(figure, found[name][what], limit, unit, note=f"worst: {name}")


def set_again(name: str, nested: bool) -> dict[str, float]:
    """Bytes and CPU of setting a list again: in the process that set it, and in a new one."""
    change, places = CASES[name]

    def wrap(items: Messages) -> Any:
        return {"agent": {"goal": "ship", "messages": items}} if nested else items

    old = [message(n) for n in range(SIZE)]
    new = change(old)
    items = sum(encoded(item) for item in new if item not in old)
    warm, cold, beyond, saves = [], [], [], []
    with place() as here:
        for _ in range(5):
            with here.sync("normal", counted=True) as store:
                state, counting = store.agent("a"), here.counting
                assert counting is not None
                _set_and_save(state, here, wrap(old))
                counting.reset()
                warm.append(cpu(lambda: state.set("list", wrap(new))))  # noqa: B023
                beyond.append(counting.bytes_written - items - counting.saves)
                saves.append(_until_save(state, here))
                _set_and_save(state, here, wrap(old))
            with here.sync("normal") as store:
                state = store.agent("a")
                state.get("other")
                cold.append(cpu(lambda: state.set("list", wrap(new))))  # noqa: B023
                assert state.get("list") == wrap(new)
    return {
        "beyond": max(beyond),
        "save": max(saves) / places,
        "warm": median(warm) * 1e3,
        "cold": quantile(cold, 0.5) * 1e3,
    }


def _set_and_save(state: State, here: Place, value: Any) -> None:
    state.set("list", value)
    _until_save(state, here)


def _until_save(state: State, here: Place) -> int:
    """Write small entries until the index has been saved; the bytes of that save."""
    counting = here.counting
    assert counting is not None
    counting.reset()
    for number in range(5000):
        state.set("other", number)
        if counting.saves:
            return counting.saves
    raise AssertionError("the index is never saved")


# the event loop


async def beside(count: int) -> list[Row]:
    """How long the event loop is held while so many messages of 200 bytes are read and written."""
    first, late = {"role": "user", "content": "", "number": -1, "tokens": 0}, {}
    collecting: list[float] = [0.0]
    items = [message(number, 200) for number in range(count)]
    with place() as here:
        async with here.open() as store:
            state = store.agent("a")
            await state.set("other", 1)
            calls: dict[str, Callable[[], Awaitable[Any]]] = {
                "set": lambda: state.set("list", items),
                "set again, one changed": lambda: state.set("list", [first, *items[1:]]),
                "get": lambda: state.get("list"),
                "slice": lambda: state.slice("list"),
                "extend": lambda: state.extend("list", items),
            }
            for name, call in calls.items():
                gc.collect()
                gc.freeze()  # as beside a checkpoint
                async with LoopGaps() as gaps:
                    await asyncio.sleep(0.005)
                    await call()
                    await asyncio.sleep(0.005)
                gc.unfreeze()
                late[name] = max(gaps.late) * 1e3
                collecting += gaps.collecting
    worst = {False: "get", True: "set"}
    for name, held in late.items():
        writes = name not in ("get", "slice")
        if held > late[worst[writes]]:
            worst[writes] = name
    what = f"{count:,} messages, {{}}: event loop held, at most"
    return [
        at_most(what.format("read"), late[worst[False]], 50, "ms", note=f"worst: {worst[False]}"),
        at_most(what.format("written"), late[worst[True]], 100, "ms", note=f"worst: {worst[True]}"),
        told("Python's garbage collection meanwhile, longest", max(collecting) * 1e3, "ms"),
    ]
