"""Data keys are rotated and old records sealed again, while others read and write."""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import apsw
import pytest
from store_kit import Place, put_row, rows_of

import holdfast
from holdfast import sync
from holdfast.errors import (
    Conflict,
    DamagedRecordError,
    DataKeyRemovedError,
    KeyNotNeededError,
    OutcomeUnknown,
    ScopeNotFoundError,
    Unavailable,
)
from holdfast.seal.sealer import sealed_under
from holdfast.storage.contract import Storage
from holdfast.storage.wrappers import Fault, Faulty
from holdfast.store.history.handle import StoreHandle
from holdfast.store.journal import entry as entries
from holdfast.store.open import open_core
from holdfast.store.upkeep import rotate

KINDS = (b"E", b"V", b"S", b"N", b"T", b"K")


@pytest.fixture(params=["memory", "sqlite"])
def sealed(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """A place for an encrypted store."""
    made = Place(request.param, tmp_path, sealed=True)
    yield made
    made.close()


def epochs(storage: Storage) -> dict[int, int]:
    """How many rows of scopes are sealed under each epoch."""
    found: dict[int, int] = {}
    for kind in KINDS:
        for _, row in rows_of(storage, kind):
            start = len(entries.split_row(row)[0].data) if kind == b"E" else 0
            epoch = sealed_under(row, start)[0]
            found[epoch] = found.get(epoch, 0) + 1
    return found


def fill(store: sync.Store, name: str = "1", count: int = 300) -> Any:
    """A scope with packs, saves, nodes, a checkpoint and a fork; what is in it."""
    state = store.agent(name)
    for n in range(count):
        state.set(f"k{n % 40}", {"n": n})
    state.set("long", [f"item {n}" * 3 for n in range(2000)])
    state.set("text", "x" * 20_000)
    state.checkpoint("safe")
    state.fork("trial").set("k1", "on the fork")
    state.append("log", 1)
    return dict(state.items())


def proofs(store: sync.Store, name: str = "1") -> list[Any]:
    """What may not change: every entry's hash, roots, checkpoints."""
    state = store.agent(name)
    found: list[Any] = [state.root(), state.on("trial").root()]
    found += [entry.hash for entry in state.log(limit=None) if "rotate key" not in entry.kinds]
    return found + [c.root for c in state.checkpoints()]


def test_a_new_key_for_what_is_written_from_now_on(sealed: Place) -> None:
    store, other = sealed.open(), sealed.open()
    content = fill(store)
    assert dict(other.agent("1").items()) == content
    before, root = epochs(sealed.storage()), store.agent("1").root()
    assert list(before) == [1]
    assert store.rotate("agent:1") == 2
    assert store.agent("1").root() == root
    other.agent("1").set("k0", "of a process that held the old key")
    other.agent("1").on("trial").set("k0", "there, too")
    after = epochs(sealed.storage())
    assert after[1] == before[1]
    assert after[2] >= 5, "two announcements, two entries, and the row of the key"
    assert store.keyring().data_keys == 2
    assert dict(sealed.open().agent("1").items()) == {**content, "k0": other.agent("1").get("k0")}
    newest = store.agent("1").log(limit=2)
    assert newest[1].kinds == ("rotate key",)
    assert store.verify().ok
    assert other.rotate("agent:1") == 3
    assert store.rotate("agent:1") == 4


def test_reseal_leaves_nothing_under_the_old_key(sealed: Place) -> None:
    store, other = sealed.open(), sealed.open()
    content = fill(store)
    assert dict(other.agent("1").items()) == content
    proven = proofs(store)
    store.rotate("agent:1")
    [result] = store.reseal("agent:1")
    assert result.epoch == 2
    assert result.rows > 300
    assert result.keys_removed == 1
    assert list(epochs(sealed.storage())) == [2]
    assert store.keyring().data_keys == 1
    for handle in (store, other, sealed.open()):
        assert dict(handle.agent("1").items()) == content
        assert handle.agent("1").on("trial").get("k1") == "on the fork"
        assert handle.agent("1").at("safe").get("k1") == content["k1"]
        assert proofs(handle) == proven
    report = sealed.open().verify()
    assert report.ok, str(report)
    assert report.signed == 1
    [again] = store.reseal("agent:1")
    assert (again.rows, again.keys_removed) == (0, 0)
    other.agent("1").restore("safe")
    assert store.verify().ok


def test_raw_files_hold_no_record_under_the_old_key(tmp_path: Path) -> None:
    place = Place("sqlite", tmp_path, sealed=True)
    store = place.open()
    fill(store)
    storage = place.storage()
    old = [row for kind in KINDS for _, row in rows_of(storage, kind)]
    storage.close()
    ring = store._core.ring
    assert ring is not None
    wrapped = [row for _, row in ring.storage.scan(b"K", b"L")]
    other = place.open()
    assert other.agent("1").get("k1") is not None
    store.rotate("agent:1")
    assert not any("logs" in text for text in store.reseal("agent:1")[0].open)
    for running in (True, False):  # the engine's logs, too, while others have the store open
        if not running:
            place.close()
        content = b"".join(p.read_bytes() for p in place.path.parent.iterdir())
        assert not [row for row in old if row[-40:] in content]
        assert not [row for row in wrapped if row[9:] in content]


@pytest.mark.parametrize("file", ["store.db", "store.db.keys"])
def test_a_reader_who_keeps_a_log_is_told_of(tmp_path: Path, file: str) -> None:
    place = Place("sqlite", tmp_path, sealed=True)
    store = place.open()
    for name in ("1", "2"):
        store.agent(name).set("k", 1)
    store.rotate()
    reader = apsw.Connection(f"{place.path.with_name(file)}", flags=apsw.SQLITE_OPEN_READONLY)
    reader.execute("BEGIN").execute("SELECT count(*) FROM records").fetchall()
    assert any("logs of the engine" in text for text in store.reseal("agent:1")[0].open)
    reader.close()
    for one in store.reseal():
        assert not any("logs of the engine" in text for text in one.open)
    place.close()


def test_a_copy_made_before_does_not_open_with_todays_ring(tmp_path: Path) -> None:
    place = Place("sqlite", tmp_path, sealed=True)
    fill(place.open())
    place.close()
    copy = place.path.read_bytes()
    store = place.open()
    store.rotate("agent:1")
    store.reseal("agent:1")
    place.close()
    place.path.write_bytes(copy)
    with pytest.raises(DataKeyRemovedError, match="removed when the scope was resealed") as raised:
        place.open().agent("1").get("k1")
    assert "with a copy of the ring of their time" in str(raised.value)
    assert "restore a checkpoint" not in str(raised.value), "nothing is damaged"
    old = place.open()
    with pytest.raises(DataKeyRemovedError, match=r"since=error\.position") as stopped:
        list(old.feed())
    assert stopped.value.position is not None
    report = old.verify()
    assert [(one.kind, one.scope) for one in report.findings] == [("damage", "agent:1")], str(
        report
    )
    place.close()


def test_one_record_that_names_a_removed_key_is_damage(sealed: Place) -> None:
    store = sealed.open()
    store.agent("1").set("k", 1)
    store.rotate("agent:1")
    store.reseal("agent:1")
    storage = sealed.storage()
    key, row = rows_of(storage, b"E")[0]
    at = len(entries.split_row(row)[0].data) + 1
    assert sealed_under(row, at - 1)[0] == row[at] == 2
    put_row(storage, key, row[:at] + b"\x01" + row[at + 1 :])
    with pytest.raises(DamagedRecordError):
        sealed.open().agent("1").log()


@pytest.mark.parametrize("where", ["store", "ring"])
@pytest.mark.parametrize("mode", ["before", "ambiguous-applied"])
def test_cut_short_anywhere_it_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str, mode: str
) -> None:
    monkeypatch.setattr(rotate, "SLICE", 40)
    cuts = 0
    for nth in range(1, 200):
        folder = tmp_path / str(nth)
        folder.mkdir()
        place = Place("memory", folder, sealed=True)
        with place.open() as store:
            content = fill(store, count=60)
            proven = proofs(store)
        core = open_core(place.url, **place.options())
        assert core.ring is not None
        fault = Fault("commit", nth, mode, onward=True)
        if where == "ring":
            core.ring.storage = Faulty(core.ring.storage, fault)
        else:
            core.storage = Faulty(core.storage, fault)
        cut = sync.Store(StoreHandle(core))
        try:
            cut.rotate("agent:1")
            cut.reseal("agent:1")
            break
        except (Unavailable, OutcomeUnknown):
            cuts += 1
        with place.open() as after:
            assert dict(after.agent("1").items()) == content
            assert proofs(after) == proven
            after.agent("1").set("k0", "written since")
            report = after.verify()
            assert report.ok, str(report)
            after.rotate("agent:1")
            [done] = after.reseal("agent:1")
            assert set(epochs(place.storage())) == {done.epoch}
            assert after.keyring().data_keys == 1
            assert after.verify().ok
    assert cuts >= (2 if where == "ring" else 4)


def test_reseal_does_not_bring_back_what_was_erased(
    sealed: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, other = sealed.open(), sealed.open()
    fill(store)
    store.rotate("agent:1")
    again = rotate.sealed_again

    def erase_meanwhile(*args: Any) -> bytes | None:
        if other.scopes().items:
            other.erase("agent:1")
        return again(*args)

    monkeypatch.setattr(rotate, "sealed_again", erase_meanwhile)
    with pytest.raises(ScopeNotFoundError):
        store.reseal("agent:1")
    assert not epochs(sealed.storage())
    assert store.verify().ok


def test_a_row_that_changed_since_it_was_read_is_not_overwritten(
    sealed: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two reseal at once, to keys of their own: the older one must not win."""
    store, other = sealed.open(), sealed.open()
    fill(store)
    store.rotate("agent:1")
    again = rotate.sealed_again
    done: list[int] = []

    def overtaken(*args: Any) -> bytes | None:
        made = again(*args)
        if not done:
            done.append(other.rotate("agent:1"))
            done.append(other.reseal("agent:1")[0].rows)
        return made

    monkeypatch.setattr(rotate, "sealed_again", overtaken)
    store.reseal("agent:1")
    assert set(epochs(sealed.storage())) == {3}
    assert sealed.open().verify().ok


@pytest.mark.parametrize("resealed", [True, False])
def test_a_stale_fork_is_made_under_the_new_key(sealed: Place, resealed: bool) -> None:
    """It meets the new key when it gets its number, or else is refused and tried again."""
    store, stale = sealed.open(), sealed.open()
    fill(store)
    handle = stale.agent("1")._handle
    assert stale.agent("1").get("k1") is not None
    change, _ = handle.plan_fork("late", None)
    store.rotate("agent:1")
    if resealed:
        store.reseal("agent:1")
        stale._core.run(change)
    else:
        with pytest.raises(Conflict):
            stale._core.run(change)
        stale.agent("1").fork("late")
    stale.agent("1").on("late").set("k", 1)
    if not resealed:
        store.reseal("agent:1")
    assert list(epochs(sealed.storage())) == [2]
    assert sealed.open().agent("1").on("late").get("k") == 1
    store.rotate("agent:1")
    assert store.reseal("agent:1")[0].epoch == 3
    assert store.verify().ok


def test_a_stale_restore_past_damage_is_made_under_the_new_key(sealed: Place) -> None:
    """The announcement cannot be read; that there is a new key, its envelope says."""
    store, stale = sealed.open(), sealed.open()
    state = store.agent("1")
    state.set("k", 1)
    state.checkpoint("safe")
    assert stale.agent("1").get("k") == 1
    store.rotate("agent:1")
    storage = sealed.storage()
    key, row = rows_of(storage, b"E")[-1]
    start = len(entries.split_row(row)[0].data)
    put_row(storage, key, row[:start] + b"\xff" + row[start + 1 :])
    stale.agent("1").restore("safe", past_damage=True)
    newest = rows_of(storage, b"E")[-1][1]
    assert sealed_under(newest, len(entries.split_row(newest)[0].data))[0] == 2


def test_damage_keeps_the_old_key(sealed: Place) -> None:
    store = sealed.open()
    fill(store)
    storage = sealed.storage()
    key, row = rows_of(storage, b"V")[3]
    put_row(storage, key, row[:-1] + bytes([row[-1] ^ 1]))
    store.rotate("agent:1")
    with pytest.raises(DamagedRecordError, match="old key stays"):
        store.reseal("agent:1")
    assert epochs(storage)[1] == 1
    assert store.keyring().data_keys == 2
    put_row(storage, key, row)
    assert store.reseal("agent:1")[0].rows == 1


def test_an_entry_that_was_resealed_meanwhile_is_not_applied_twice(sealed: Place) -> None:
    """Its outcome was unknown; before it is settled somebody has sealed it again."""
    other = sealed.open()
    other.agent("1").set("log", [])
    core = open_core(sealed.url, **sealed.options())
    inner = core.storage

    class Late(Faulty):
        def get(self, keys: Any) -> Any:
            if self.failed and keys[0][:1] == b"E" and self.plan:
                self.plan = ()
                other.rotate("agent:1")
                other.reseal("agent:1")
            return super().get(keys)

    core.storage = Late(inner, Fault("commit", 1, "ambiguous-applied"))
    store = sync.Store(StoreHandle(core))
    store.agent("1").append("log", "once")
    assert other.agent("1").get("log") == ["once"]
    store.close()


def test_all_scopes_and_what_is_refused(sealed: Place) -> None:
    store = sealed.open()
    for n in range(5):
        store.agent(str(n)).set("k", n)
    store.delete("agent:4")
    assert store.rotate() == 4
    assert [one.epoch for one in store.reseal()] == [2] * 4
    assert store.keyring().data_keys == 5
    assert [store.agent(str(n)).get("k") for n in range(4)] == [0, 1, 2, 3]
    for call in (store.rotate, store.reseal):
        for name in ("agent:4", "agent:none"):
            with pytest.raises(ScopeNotFoundError):
                call(name)
    store.erase("agent:0")
    assert store.verify().ok
    with sync.open("memory:") as plain, pytest.raises(KeyNotNeededError):
        plain.rotate("agent:1")


def test_async(sealed: Place) -> None:
    async def run() -> None:
        async with holdfast.open(sealed.url, **sealed.options()) as store:
            await store.agent("1").set("k", 1)
            assert await store.rotate("agent:1") == 2
            assert (await store.reseal("agent:1"))[0].epoch == 2
            assert await store.rotate() == 1
            assert [one.epoch for one in await store.reseal()] == [3]
            assert await store.agent("1").get("k") == 1

    asyncio.run(run())


@pytest.mark.parametrize("seed", range(4))
def test_both_rotations_at_once(sealed: Place, seed: int) -> None:
    """Any order of steps leaves a store that the new key opens whole."""
    choice = random.Random(seed)
    store = sealed.open()
    fill(store, count=20)
    content = dict(store.agent("1").items())
    key = f"file:{sealed.folder / 'new.key'}"
    store.begin_rotation(key)
    for _ in range(6):
        choice.choice([store.rotate, store.reseal])("agent:1")
        if choice.random() < 0.3:
            store.begin_rotation(key)
    store.finish_rotation()
    choice.choice([store.rotate, store.reseal])("agent:1")
    with sealed.reopen(key=key) as again:
        assert dict(again.agent("1").items()) == content
        assert again.verify().ok


WRITER = """
import os, sys
from holdfast import sync
url, key, new, name, stop = sys.argv[1:]
store = sync.open(url, key=key, durability="normal", create=False)
mine, shared = store.agent(name), store.agent("shared")
mine.set("n", 0)
print("ready", flush=True)
store.add_key(new)
n = 0
while n < 50 or not os.path.exists(stop):
    n += 1
    mine.set("n", n)
    shared.append("log", [name, n])
    shared.set(f"last/{name}", n)
    assert shared.get(f"last/{name}") == n
    if n % 20 == 0:
        shared.fork(f"{name}-{n}").set("n", n)
print(n, flush=True)
store.close()
"""


def test_four_processes_write_through_it(tmp_path: Path) -> None:
    place = Place("sqlite", tmp_path, sealed=True)
    store = place.open()
    store.agent("shared").set("log", [])
    new, stop = f"file:{tmp_path / 'new.key'}", str(tmp_path / "stop")
    children = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, place.url, place.key or "", new, f"w{n}", stop],
            env=place.environment(),
            stdout=subprocess.PIPE,
            text=True,
        )
        for n in range(4)
    ]
    try:
        for child in children:
            assert child.stdout is not None
            assert child.stdout.readline() == "ready\n"
        for _ in range(3):
            store.rotate("agent:shared")
            store.reseal("agent:shared")
        store.rotate_master(new)
        store.rotate()
        store.reseal()
        Path(stop).touch()
        counts = [int(child.communicate(timeout=60)[0]) for child in children]
        assert [child.returncode for child in children] == [0, 0, 0, 0]
    finally:
        for child in children:
            child.kill()
    place.close()
    with place.open(key=new) as again:
        log = again.agent("shared").get("log")
        for n, count in enumerate(counts):
            assert again.agent(f"w{n}").get("n") == count
            assert [at for name, at in log if name == f"w{n}"] == list(range(1, count + 1))
        assert again.verify().ok
        again.reseal()
        shared = again._core.ledger(again.agent("shared").scope)
        storage = place.storage()
        assert set(epochs(storage)) == {2, 5}, "of the four and of the shared scope"
        storage.close()
        assert shared.seal.epoch == 5
