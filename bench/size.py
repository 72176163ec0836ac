"""What an agent's work takes on disk, and whether it slows down as it grows."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

from common import Row, at_most, encoded, message, place, told, words

from holdfast.sync import State

KEYS = 200
MiB = 1 << 20


@dataclass
class Turns:
    """What the turns of an agent changed, and how long each took."""

    changed: int = 0
    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)


def run(quick: bool) -> list[Row]:
    """1,000 turns: each appends a message, changes two keys and makes a checkpoint."""
    count = 300 if quick else 1000
    with place() as here:
        with here.sync() as store:
            turns = work(store.agent("a"), count)
            opened = here.bytes()
        closed = here.bytes()
    with place() as here:
        with here.sync() as store:
            apart = work(store.agent("a"), count, one_change=False)
        apart_bytes = here.bytes()
    return [
        at_most(f"{count} turns: files after close / bytes changed", closed / turns.changed, 2.5),
        at_most(
            f"{count} turns: files while open, beyond 2.5 times",
            (opened - 2.5 * turns.changed) / MiB,
            2,
            "MiB",
        ),
        at_most("last hundred turns / first hundred", slower(turns.wall), 1.3),
        told("the same in CPU", slower(turns.cpu)),
        told("a turn, median", sorted(turns.wall)[count // 2] * 1e3, "ms"),
        told("four entries a turn: files after close / bytes changed", apart_bytes / apart.changed),
    ]


def work(state: State, count: int, *, one_change: bool = True) -> Turns:
    """So many turns, on a state of 200 keys."""
    turns = Turns()
    with state.change() as change:
        for number in range(KEYS):
            change.set(f"memory/facts/{number}", value(number))
            turns.changed += encoded(value(number))
    for number in range(count):
        say = message(number, 650)
        new = {
            f"memory/facts/{(number * step) % KEYS}": value(number + 10 * step) for step in (7, 13)
        }
        turns.changed += encoded(say) + sum(map(encoded, new.values()))
        wall, cpu = time.perf_counter(), time.process_time()
        if one_change:
            with state.change() as change:
                _write(change, say, new)
        else:
            _write(state, say, new)
        state.checkpoint(f"turn {number}", type="automatic")
        turns.wall.append(time.perf_counter() - wall)
        turns.cpu.append(time.process_time() - cpu)
    return turns


def _write(where: Any, say: dict[str, Any], new: dict[str, Any]) -> None:
    where.append("conversation", say)
    for key, made in new.items():
        where.set(key, made)


def value(number: int) -> dict[str, Any]:
    """What a key of the agent holds."""
    return {"fact": words(100, number), "sure": 0.5, "seen": number}


def slower(times: list[float]) -> float:
    """The last hundred against the first."""
    return sum(times[-100:]) / sum(times[:100])
