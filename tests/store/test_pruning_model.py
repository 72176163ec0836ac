"""Pruning against a plain model: every state that is kept is what it was, and no other is there."""

from __future__ import annotations

import random
from typing import Any

import pytest
from store_kit import Place, same

from holdfast import sync
from holdfast.errors import PrunedError, StillNeededError
from holdfast.store.journal import timeline as timelines

LONG = "a text that does not fit beside a key " * 3


class Model:
    """What each entry's state was, by timeline; and which of them must still be there."""

    def __init__(self, store: sync.Store, random_: random.Random) -> None:
        self.state = store.agent("1")
        self.random = random_
        self.states: dict[str, dict[int, Any]] = {"main": {}}
        self.checkpoints: dict[str, set[int]] = {"main": set()}
        self.backups: set[tuple[str, int]] = set()
        """Of restores: nobody confirms them."""
        self.sources: list[tuple[tuple[str, int], tuple[str, int]]] = []
        """(restore or fork, what it began from)"""
        self.floors = {"main": 0}
        self.kept: dict[str, set[int]] = {"main": set()}
        self.names = 0

    def line(self, name: str) -> sync.State:
        return self.state if name == "main" else self.state.on(name)

    def note(self, name: str) -> int:
        line = self.line(name)
        sequence: int = line._handle.place()[2]
        self.states[name][sequence] = dict(line.items())
        return sequence

    def there(self, name: str) -> list[int]:
        return [n for n in self.states[name] if n >= self.floors[name] or n in self.kept[name]]

    def step(self) -> None:
        name = self.random.choice(list(self.states))
        line = self.line(name)
        before = line._handle.place()[2]
        self.random.choice([self.set, self.set, self.append, self.other, self.prune])(name, line)
        after = line._handle.place()[2]
        for sequence in range(before + 1, after + 1):  # a restore writes two entries
            view = line.at(sequence)
            self.states[name][sequence] = dict(view.items())

    def set(self, _: str, line: sync.State) -> None:
        number = self.random.randrange(1000)
        key = f"k{self.random.randrange(6)}"
        value = self.random.choice(
            [number, f"{LONG}{number}", [f"{n}{LONG}" for n in range(number % 40)], {"n": number}]
        )
        with line.change(correlation=f"c{number % 3}") as change:
            change.set(key, value)
            if number % 7 == 0:
                change.delete(f"k{number % 5}")

    def append(self, _: str, line: sync.State) -> None:
        line.extend("list", [f"{self.random.random()}{LONG}" for _ in range(5)])
        if self.random.random() < 0.2:
            with line.open_write("long") as file:
                file.write(self.random.randbytes(1_200_000))

    def other(self, name: str, line: sync.State) -> None:
        if not self.states[name]:
            return
        chosen = self.random.random()
        source = self.random.choice(list(self.states))
        if chosen < 0.4 or not self.there(source):
            made = line.checkpoint(f"c{self.names}")
            self.checkpoints[name].add(made.sequence)
            return
        at = self.random.choice(self.there(source))
        if chosen < 0.8 or len(self.states) > 2:
            done = line.restore(f"{source}@{at}")
            assert done.backup is not None
            self.checkpoints[name].add(done.backup.sequence)
            self.backups.add((name, done.backup.sequence))
            self.sources.append(((name, done.sequence), (source, at)))
        else:
            self.names += 1
            fork = f"f{self.names}"
            self.line(source).fork(fork, at=at)
            self.states[fork], self.checkpoints[fork], self.kept[fork] = {}, set(), set()
            self.floors[fork] = 0
            self.sources.append(((fork, self.note(fork)), (source, at)))

    def prune(self, name: str, line: sync.State) -> None:
        there = [n for n in self.there(name) if n >= self.floors[name]]
        if not there:
            return
        last = self.random.choice(there)
        keep = None
        kept = {n for n in self.checkpoints[name] if n in self.there(name)}
        if self.random.random() < 0.5:
            held = {n for at, n in self.backups if at == name}
            keep = [n for n in self.there(name) if n in held or self.random.random() < 0.2]
            kept = set(keep)
            if held and min(held) < last:
                with pytest.raises(StillNeededError):
                    line.prune(last, keep=kept - {min(held)})
        floors = self.floors | {name: max(self.floors[name], last)}
        used = {at for (n, r), (s, at) in self.sources if s == name and r > floors[n]}
        planned = line.prune(last, keep=keep, dry_run=True)
        done = line.prune(last, keep=keep)
        assert (done.floor, done.entries) == (planned.floor, planned.entries)
        assert done.kept == planned.kept
        self.floors = floors
        self.kept[name] = {n for n in kept | used | {last} if n <= floors[name]}
        assert set(done.kept) == {n for n in self.kept[name] if n < floors[name]}

    def check(self, store: sync.Store) -> None:
        assert store.verify().findings == []
        for name, states in self.states.items():
            line = store.agent("1") if name == "main" else store.agent("1").on(name)
            there = self.there(name)
            for sequence, expected in states.items():
                if sequence in there:
                    view = line.at(sequence)
                    found = dict(view.items())
                    assert same(found, expected), (name, sequence)
                    assert all(view.item(key) is not None for key in found)
                else:
                    with pytest.raises(PrunedError, match="anchor"):
                        line.at(sequence)
            listed = {found.sequence for found in line.checkpoints()}
            assert listed == self.checkpoints[name] & set(there)


@pytest.mark.parametrize("seed", range(3))
def test_what_is_kept_stays_as_it_was(
    place: Place, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also for another process, and one that opens the store anew."""
    monkeypatch.setattr(timelines, "DELTA_EVERY", 5)
    random_ = random.Random(seed)
    store, other = place.open(), place.open()
    model = Model(store, random_)
    store.agent("1").set("first", LONG)
    model.note("main")
    for number in range(70):
        model.step()
        if number % 23 == 22:
            model.check(other)
    model.check(store)
    model.check(place.open())
