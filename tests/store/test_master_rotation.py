"""The master key is rotated while others write; what each key opens, and what errors say."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import apsw
import pytest
from store_kit import Place, put_row

import holdfast
from holdfast import sync
from holdfast.errors import (
    DamagedRingError,
    InvalidInputError,
    KeyMissingError,
    KeyNotNeededError,
    KeyRetiredError,
    KeyRetiringError,
    ReadOnlyError,
    WrongKeyError,
)
from holdfast.seal.ring import read_masters
from holdfast.storage import open_storage


@pytest.fixture(params=["memory", "sqlite"])
def sealed(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """A place for an encrypted store."""
    return Place(request.param, tmp_path, sealed=True)


def new_key(place: Place, name: str = "new") -> str:
    return f"file:{place.folder / name}.key"


def interrupt(*_: object, **__: object) -> bool:
    raise KeyboardInterrupt


def test_the_master_is_rotated_in_two_steps(sealed: Place) -> None:
    store = sealed.open()
    store.agent("1").set("k", "before")
    late, warned = sealed.open(), sealed.open()
    assert late.agent("1").get("k") == warned.agent("1").get("k") == "before"
    new = new_key(sealed)
    assert store.keyring() == holdfast.store.upkeep.rotate.Keyring(1, False, True, 1, 1, 0, 0, 0)
    store.begin_rotation(new)
    assert store.keyring() == holdfast.store.upkeep.rotate.Keyring(2, True, True, 1, 1, 0, 0, 0)
    assert not late.keyring().new_key_held

    late.agent("1").set("k", "meanwhile")
    with pytest.raises(KeyRetiringError):
        late.agent("2").set("k", 1)
    late.agent("1").set("k", "still")
    warned.add_key(new)
    warned.agent("2").set("k", 2)
    other = sealed.open(key=new)
    other.agent("3").set("k", 3)
    assert [late.agent(n).get("k") for n in "123"] == ["still", 2, 3]

    store.finish_rotation()
    assert store.keyring() == holdfast.store.upkeep.rotate.Keyring(2, False, True, 3, 3, 0, 1, 0)
    for handle in (store, warned, other):
        handle.agent("1").append("log", 1)
        handle.scope(f"custom:{id(handle)}").set("k", 1)
    late.agent("1").append("log", 1)  # what it has open stays open
    with pytest.raises(KeyRetiredError):
        late.agent("4").set("k", 1)
    assert late.agent("1").length("log") == 4
    store.rotate("agent:1")
    with pytest.raises(KeyRetiredError):
        late.agent("1").length("log")  # not with a new data key
    late.add_key(new)
    assert late.agent("1").length("log") == 4

    sealed.close()
    with pytest.raises(KeyRetiredError, match="rotated to"):
        sealed.open()
    with sealed.open(key=new) as again:
        assert [again.agent(n).get("k") for n in "123"] == ["still", 2, 3]
        assert again.verify().ok


def test_a_writer_that_lacks_the_new_key_fails_alone(sealed: Place) -> None:
    """Changes of one group: the one that needs a new key fails, the others do not."""
    rotator, late = sealed.open(), sealed.open()
    late.agent("old").set("k", 0)
    core = late._core
    plans = [late.agent(name)._handle.plan_set("k", 1, None) for name in ("old", "fresh", "old")]
    rotator.begin_rotation(new_key(sealed))
    tickets = [core.submit(change) for change, _ in plans]
    core.committer.drain()
    assert [type(ticket.error) for ticket in tickets] == [type(None), KeyRetiringError, type(None)]
    assert late.agent("old").get("k") == 1


def test_async(sealed: Place) -> None:
    async def run() -> None:
        async with holdfast.open(sealed.url, **sealed.options()) as store:
            await store.agent("1").set("k", 1)
            await store.begin_rotation(new_key(sealed))
            await store.add_key(new_key(sealed))
            assert (await store.keyring()).rotating
            await store.finish_rotation()
            await store.rotate_master(new_key(sealed, "third"))
            assert (await store.keyring()).generation == 3
            assert await store.agent("1").get("k") == 1

    asyncio.run(run())
    assert sealed.open(key=new_key(sealed, "third")).agent("1").get("k") == 1


def test_wrong_missing_retired_and_damaged_are_told_apart(tmp_path: Path) -> None:
    place = Place("sqlite", tmp_path, sealed=True)
    store = place.open()
    store.agent("1").set("k", 1)
    new = new_key(place)
    store.rotate_master(new)
    place.close()
    sync.open(f"sqlite:{tmp_path}/data/other.db", key=new_key(place, "other")).close()

    with pytest.raises(WrongKeyError):
        place.open(key=new_key(place, "other"))
    with pytest.raises(KeyMissingError, match="encrypted"):
        place.open(key=None)
    with pytest.raises(KeyMissingError, match="is not there"):
        place.open(key=new_key(place, "nowhere"))
    with pytest.raises(KeyRetiredError):
        place.open()
    ring = place.path.with_name("store.db.keys")
    good = ring.read_bytes()
    rows = open_storage(f"sqlite:{ring}")
    key, row = rows.scan(b"S", b"T")[0]
    put_row(rows, key, row[:-1] + bytes([row[-1] ^ 1]))
    rows.close()
    with pytest.raises(DamagedRingError, match="put the ring back"):
        place.open(key=new)
    ring.unlink()
    with pytest.raises(KeyMissingError, match="ring"):
        place.open(key=new)
    ring.write_bytes(good)
    assert place.open(key=new).agent("1").get("k") == 1
    place.close()


@pytest.mark.parametrize("before", ["file", "passphrase"])
def test_an_older_ring_does_not_know_the_new_key(tmp_path: Path, before: str) -> None:
    place = Place("sqlite", tmp_path, sealed=True)
    if before == "passphrase":
        place.key = "passphrase:the words of before"
    store = place.open()
    store.agent("1").set("k", 1)
    place.close()
    ring = place.path.with_name("store.db.keys")
    older = ring.read_bytes()
    place.open().rotate_master(new_key(place))
    place.close()
    today = ring.read_bytes()
    ring.write_bytes(older)
    with pytest.raises(WrongKeyError, match="is an older copy: put today's ring back"):
        place.open(key=new_key(place))
    ring.write_bytes(today)
    assert place.open(key=new_key(place)).agent("1").get("k") == 1
    place.close()


def test_what_is_refused(sealed: Place, tmp_path: Path) -> None:
    store = sealed.open()
    with pytest.raises(InvalidInputError, match="new one"):
        store.rotate_master(sealed.key or "")
    with pytest.raises(InvalidInputError):
        store.rotate_master("hush")
    with pytest.raises(InvalidInputError):
        store.begin_rotation(None)  # type: ignore[arg-type]
    reader = sealed.open(read_only=True)
    with pytest.raises(ReadOnlyError):
        reader.rotate_master(new_key(sealed))
    with sync.open("memory:") as plain:
        with pytest.raises(KeyNotNeededError):
            plain.rotate_master(new_key(sealed))
        with pytest.raises(KeyNotNeededError):
            plain.keyring()
    store.finish_rotation()  # nothing is under way: nothing happens
    assert store.keyring().generation == 1
    sealed.close()


def test_no_wrap_under_the_old_master_is_left_in_the_raw_file(tmp_path: Path) -> None:
    place = Place("sqlite", tmp_path, sealed=True)
    store = place.open()
    for n in range(300):
        store.agent(str(n)).set("k", n)
    ring = store._core.ring
    assert ring is not None
    wraps = [row for key, row in ring.storage.scan(b"K", b"L", limit=1000)]
    other = place.open()
    assert other.agent("1").get("k") == 1
    done = store.rotate_master(new_key(place))
    assert (done.generation, done.rows) == (2, 301)  # that of the store key, too
    assert not any("logs" in text for text in done.open)
    for running in (True, False):  # the engine's log, too, while others have the store open
        if not running:
            place.close()
        files = [p.read_bytes() for p in place.path.parent.iterdir() if p.is_file()]
        for row in wraps:
            assert not any(row[9:] in content or row[30:46] in content for content in files)


def test_nor_is_a_master_that_a_passphrase_opened(tmp_path: Path) -> None:
    place = Place("sqlite", tmp_path, sealed=True)
    store = place.open(key="passphrase:the words of before")
    store.agent("1").set("k", 1)
    ring = store._core.ring
    assert ring is not None
    wrapped = read_masters(ring.storage)[1][0].wrapped
    store.begin_rotation(new_key(place))
    handed = ring.storage.scan(b"O", b"P")[0][1]
    store.finish_rotation()
    files = [p.read_bytes() for p in place.path.parent.iterdir() if p.is_file()]
    assert not any(wrapped in content or handed[-32:] in content for content in files)
    place.close()


def test_a_reader_who_keeps_the_log_is_told_of(tmp_path: Path) -> None:
    place = Place("sqlite", tmp_path, sealed=True)
    store = place.open()
    store.agent("1").set("k", 1)
    store.begin_rotation(new_key(place))
    reader = apsw.Connection(f"{place.path}.keys", flags=apsw.SQLITE_OPEN_READONLY)
    reader.execute("BEGIN").execute("SELECT count(*) FROM records").fetchall()
    assert any("logs of the engine" in text for text in store.finish_rotation().open)
    reader.close()
    for again in (store.finish_rotation(), store.rotate_master(new_key(place))):
        assert again.rows == 0
        (copies,) = again.open
        assert copies.startswith("copies of the ring made before still open with the old key")
    place.close()


def test_killed_before_the_log_is_emptied_the_same_call_empties_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = Place("sqlite", tmp_path, sealed=True)
    store, _ = place.open(), place.open()  # the other one keeps the log there
    store.agent("1").set("k", 1)
    ring = store._core.ring
    assert ring is not None
    wraps = [row for _, row in ring.storage.scan(b"K", b"L", limit=1000)]

    def files() -> list[bytes]:
        return [p.read_bytes() for p in place.path.parent.iterdir() if p.is_file()]

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(type(store._core), "settle", interrupt)
        store.rotate_master(new_key(place))
    assert any(row[9:] in content for row in wraps for content in files())
    done = store.rotate_master(new_key(place))
    assert (done.generation, done.rows) == (2, 0)
    assert not any(row[9:] in content for row in wraps for content in files())
    with pytest.raises(InvalidInputError, match="new one"):
        store.rotate_master(place.key or "")  # that of before
    assert store.agent("1").get("k") == 1
    place.close()


WRITER = """
import os, sys
from holdfast import sync
url, key, new, name, stop = sys.argv[1:]
store = sync.open(url, key=key, durability="normal", create=False)
mine, shared = store.agent(name), store.agent("shared")
mine.set("n", 0)
shared.length("log")  # whoever has the old key only goes on with the scopes that it knows
print("ready", flush=True)
if new:
    store.add_key(new)
n = 0
while n < 50 or not os.path.exists(stop):
    n += 1
    mine.set("n", n)
    shared.append("log", [name, n])
    if new:
        store.session(f"{name}-{n}").set("n", n)
print(n, flush=True)
store.close()
"""


def test_four_processes_write_through_it(tmp_path: Path) -> None:
    """Two have the new key as well and make scopes all the time; two have the old one only."""
    place = Place("sqlite", tmp_path, sealed=True)
    store = place.open()
    store.agent("shared").set("log", [])
    new, stop = new_key(place), str(tmp_path / "stop")
    children = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, place.url, place.key or "", given, f"w{n}", stop],
            env=place.environment(),
            stdout=subprocess.PIPE,
            text=True,
        )
        for n, given in enumerate(("", "", new, new))
    ]
    try:
        for child in children:
            assert child.stdout is not None
            assert child.stdout.readline() == "ready\n"
        store.begin_rotation(new)
        store.agent("shared").append("log", ["begun", 0])
        store.finish_rotation()
        store.agent("shared").append("log", ["finished", 0])
        Path(stop).touch()
        counts = [int(child.communicate(timeout=60)[0]) for child in children]
        assert [child.returncode for child in children] == [0, 0, 0, 0]
    finally:
        for child in children:
            child.kill()
            child.communicate()
    place.close()
    with place.open(key=new) as again:
        log = again.agent("shared").get("log")
        for n, count in enumerate(counts):
            assert again.agent(f"w{n}").get("n") == count
            assert [at for name, at in log if name == f"w{n}"] == list(range(1, count + 1))
        assert all(again.session(f"w3-{n}").get("n") == n for n in range(1, counts[3] + 1))
        assert again.verify().ok


def test_a_third_key_while_a_rotation_is_under_way(sealed: Place) -> None:
    store = sealed.open()
    store.begin_rotation(new_key(sealed))
    with pytest.raises(KeyMissingError, match="finish the rotation first"):
        store.begin_rotation(new_key(sealed, "third"))
    assert not (sealed.folder / "third.key").exists()
    with pytest.raises(InvalidInputError, match="finish that rotation first"):
        store.begin_rotation("passphrase:a third one, of many words")
    store.begin_rotation(new_key(sealed))
    store.finish_rotation()
    sealed.close()
