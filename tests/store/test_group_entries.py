"""What a group of changes becomes: entries as anybody would make them, seen once they are stored."""

from __future__ import annotations

import asyncio
import random
import threading
from pathlib import Path
from typing import Any

import pytest
from store_kit import Place

import holdfast
from holdfast import sync
from holdfast.seal.sealer import sealed_under
from holdfast.storage.contract import Batch
from holdfast.storage.memory import MemoryStorage
from holdfast.storage.wrappers import Around
from holdfast.store.commit.change import Ticket
from holdfast.store.journal import entry
from holdfast.store.names import rowkinds
from holdfast.store.rules.gates import Operation


def some_value(chance: random.Random, depth: int = 0) -> Any:
    """A value of any kind, now and then one of several rows."""
    kind = chance.randrange(9 if depth < 3 else 6)
    if kind == 6:
        return [some_value(chance, depth + 1) for _ in range(chance.choice([0, 3, 40]))]
    if kind == 7:
        return {f"k{n}": some_value(chance, depth + 1) for n in range(chance.choice([0, 2, 20]))}
    if kind == 8:
        return chance.randbytes(chance.choice([0, 40, 9000]))
    return [None, True, chance.randrange(1 << 40), 0.5, "text " * chance.randrange(40), "ü"][kind]


def submitted(state: sync.State, operations: list[Operation]) -> Ticket:
    """A change that waits for the next group."""
    handle = state._handle
    return handle.core.submit(handle._plan(operations, lambda written: written)[0])


@pytest.mark.parametrize("seed", range(3))
def test_entries_of_groups_are_those_that_the_format_says(store: sync.Store, seed: int) -> None:
    """Each is made anew from what it says, and is the same to the byte; each names the one before
    it, in its group as well."""
    chance, state = random.Random(seed), store.agent("a")
    core, scopes = state._handle.core, [store.agent("a"), store.agent("b").on("main")]
    for _ in range(12):
        with store.acting("who", correlation="run") if chance.random() < 0.4 else store.acting():
            for _ in range(chance.choice([1, 2, 9])):
                key = f"k{chance.randrange(12)}"
                kind = chance.choice(["set", "set", "append", "delete"])
                value = some_value(chance)
                if kind == "append":
                    key, value = f"list{chance.randrange(3)}", [value]
                submitted(chance.choice(scopes), [Operation(kind, key, value)])
        core.committer.drain()
    for one in scopes:
        ledger = core.ledger(one.scope)
        line = core.timeline(ledger)
        before = entry.first_hash(ledger.prefix, line.prefix)
        rows = core.storage.scan(line.prefix, rowkinds.after(line.prefix))
        assert len(rows) == line.sequence
        for key, row in rows:
            found, _ = entry.split_row(row)
            plain = ledger.seal.open(ledger.ad(key), row, found.writer, len(found.data))
            assert entry.encode_body(entry.decode_body(plain)) == plain
            made = (found.writer, found.epoch, before, ledger.commit_body(plain))
            assert entry.make_envelope(*made) == found.data
            before = ledger.entry_hash(key, found.data)
        assert before == line.head
    assert store.verify().ok


def test_a_rule_is_followed_in_the_very_group_that_declares_it(store: sync.Store) -> None:
    state = store.agent("a")
    state.set("k", 1)
    assert state.declared() == []
    rule = holdfast.Ephemeral("e/")
    submitted(state, [Operation("set", rule.key, rule.data())])
    submitted(state, [Operation("set", "e/x", 1)])
    store._core.committer.drain()
    assert state.get("e/x") == 1
    assert state._handle.reader.stored_keys("e/") == []
    state.undeclare(rule)
    submitted(state, [Operation("set", "e/x", 2)])
    store._core.committer.drain()
    assert state._handle.reader.stored_keys("e/") == ["e/x"]


def test_batches_of_the_store_are_checked_wherever_tests_run() -> None:
    twice = [(b"k", b"1"), (b"k", b"2")]
    with pytest.raises(holdfast.errors.InvalidInputError, match="twice"):
        MemoryStorage().commit(Batch(puts=twice, own=True))


class Held(Around):
    """Commits wait until they may go on."""

    def __init__(self) -> None:
        super().__init__(MemoryStorage())
        self.waits, self.go = threading.Event(), threading.Event()
        self.go.set()

    def commit(self, batch: Batch) -> None:
        self.waits.set()
        assert self.go.wait(10)
        super().commit(batch)


def test_nobody_is_told_before_the_commit() -> None:
    async def main() -> None:
        held = Held()
        async with holdfast.open("memory:", storage=held, commit="thread") as store:
            state = store.agent("a")
            await state.set("k", 0)
            await asyncio.to_thread(store._core.committer.drain)  # nothing is on its way now
            held.go.clear()
            held.waits.clear()
            tasks = [asyncio.create_task(state.set(f"k{n}", n)) for n in range(20)]
            await asyncio.to_thread(held.waits.wait, 60)
            await asyncio.sleep(0.02)
            assert not any(task.done() for task in tasks)
            assert held.get([b"never"]) == [None]
            held.go.set()
            assert sorted(await asyncio.gather(*tasks)) == list(range(2, 22))

    asyncio.run(main())


def test_nothing_is_sealed_under_the_key_of_before_a_rotation(tmp_path: Path) -> None:
    """Not by those either who had the scope open and have just sealed under that key."""
    sealed = Place("sqlite", tmp_path, sealed=True)
    one, other = sealed.open(), sealed.open()
    state = other.agent("a")
    state.set("k", 1)
    assert one.rotate("agent:a") == 2
    first = state.set("k", 2)
    core = other._core
    ledger = core.ledger(state.scope)
    key = rowkinds.entry(rowkinds.line(b"E", ledger.number, 0), first)
    row = core.storage.get([key])[0]
    assert row is not None
    envelope, _ = entry.split_row(row)
    assert (envelope.epoch, sealed_under(row, len(envelope.data))[0]) == (2, 2)
    assert other.verify().ok
    sealed.close()
