"""A hostile cache against a plain model: whatever lies there, reads are right."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from store_kit import Place
from test_redis import LONG, Rows, results

pytestmark = pytest.mark.usefixtures("cached_files")

KEYS = ("plan", "notes", "log")


class Foe:
    """Somebody who owns the cache, and keeps all that ever lay there."""

    def __init__(self, rows: Rows, chance: random.Random) -> None:
        self.rows = rows
        self.chance = chance
        self.seen: dict[bytes, list[bytes]] = {}

    def act(self) -> None:
        there = {name: row for name, row in self.rows.all().items() if row}
        for name, row in there.items():
            self.seen.setdefault(name, []).append(row)
        names = self.chance.sample(sorted(there), len(there) // 2)
        for name in names:
            getattr(self, self.chance.choice(["drop", "cut", "flip", "swap", "replay", "other"]))(
                name, there[name]
            )

    def drop(self, name: bytes, _: bytes) -> None:
        self.rows.client.delete(name)

    def cut(self, name: bytes, row: bytes) -> None:
        self.rows.put({name: row[: self.chance.randrange(len(row))]})

    def flip(self, name: bytes, row: bytes) -> None:
        at = self.chance.randrange(len(row))
        self.rows.put({name: row[:at] + bytes([row[at] ^ 1 << at % 8]) + row[at + 1 :]})

    def swap(self, name: bytes, _: bytes) -> None:
        self.rows.put({name: self.chance.choice(self.chance.choice(sorted(self.seen.values())))})

    def replay(self, name: bytes, _: bytes) -> None:
        self.rows.put({name: self.chance.choice(self.seen[name])})

    def other(self, name: bytes, _: bytes) -> None:
        self.rows.client.delete(name)
        self.rows.client.lpush(name, "no record")


@pytest.mark.parametrize("sealed", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_reads_are_those_of_a_plain_model(
    tmp_path: Path, redis: Any, sealed: bool, seed: int
) -> None:
    chance = random.Random(seed)
    place = Place("sqlite", tmp_path, sealed=sealed)
    stores = [place.open(cache=redis.url()) for _ in range(2)]
    states = [store.agent("a") for store in stores]
    foe = Foe(Rows(redis, place), chance)
    model: dict[str, Any] = {}
    past: list[tuple[int, dict[str, Any]]] = []
    for number in range(80):
        state, key = chance.choice(states), chance.choice(KEYS)
        value = {"number": number, "random": chance.random(), **LONG}
        if key == "log":
            state.append(key, value)
            model = model | {key: [*model.get(key, []), value]}
        elif chance.random() < 0.1:
            state.delete(key)
            model = {k: v for k, v in model.items() if k != key}
        else:
            state.set(key, value)
            model = model | {key: value}
        past.append((state._handle.place()[2], model))
        if number % 8 == 7:
            foe.act()
            for store in stores:
                store._core.atoms.clear()
        assert dict(chance.choice(states).items()) == model
        point, then = chance.choice(past)
        assert dict(chance.choice(states).at(point).items()) == then
    if sealed:
        stores[0].rotate("agent:a")
        stores[0].reseal("agent:a")
        foe.act()
        foe.rows.put({name: rows[0] for name, rows in foe.seen.items()})
        place.close()
        stores = [place.open(cache=redis.url())]
        assert dict(stores[0].agent("a").items()) == model
    assert stores[0].verify().ok
    assert results(stores[0])["wrong"] > 0
    place.close()
