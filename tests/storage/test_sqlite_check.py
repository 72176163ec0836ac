"""The engine's own check finds damage that no read shows, and `verify` tells of it."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from holdfast import sync
from holdfast.storage import sqlite_check
from holdfast.storage.contract import Batch
from holdfast.storage.sqlite import SqliteStorage


def flip(path: Path, key: bytes, value: bytes) -> None:
    """Change one bit of the table's copy of a key, which lies before its value."""
    data = bytearray(path.read_bytes())
    place = bytes(data).index(key + value)
    data[place + len(key) - 1] ^= 1
    path.write_bytes(data)


@pytest.fixture(params=["whole", "in slices"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "in slices":
        monkeypatch.setattr(sqlite_check, "LONGEST", 0.0)
        monkeypatch.setattr(sqlite_check, "_OPERATIONS", 1)
        monkeypatch.setattr(sqlite_check, "_SLICE", 7)
    return str(request.param)


def test_a_flip_in_the_tables_copy_of_a_key(tmp_path: Path, way: str) -> None:
    path = tmp_path / "store.db"
    storage = SqliteStorage(str(path))
    puts = [(b"key %03d" % n, b"value %03d" % n) for n in range(200)]
    storage.commit(Batch(puts=puts, cells=[(b"cell", None, b"content")]))
    assert storage.check() == []
    storage.close()
    flip(path, b"key 123", b"value 123")
    storage = SqliteStorage(str(path))
    assert storage.scan(b"key", b"kez") == puts, "no read shows it"
    found = storage.check()
    assert found
    if way == "in slices":
        assert found == ["row 124 of records: its key is not the one in the index"]
    storage.close()


@pytest.mark.parametrize("sealed", [False, True], ids=["plain", "sealed"])
def test_verify_reports_what_the_engine_finds(tmp_path: Path, way: str, sealed: bool) -> None:
    path = tmp_path / "data" / "store.db"
    path.parent.mkdir()
    key = f"file:{tmp_path / 'key'}" if sealed else None
    with sync.open(f"sqlite:{path}", key=key) as store:
        store.agent("a").set("k", 1)
        assert store.verify().ok
    storage = SqliteStorage(str(path))
    row = storage.scan(b"E", b"F")[0]
    storage.close()
    flip(path, *row)
    with sync.open(f"sqlite:{path}", key=key, create=False) as store:
        assert store.agent("a").get("k") == 1
        report = store.verify()
        assert {(one.kind, one.place) for one in report.findings} == {("storage", "store")}
        assert report.exit_code == 1
        assert store.verify("agent:a").ok, "of the whole store alone"
    if sealed:
        ring = Path(f"{path}.keys")
        storage = SqliteStorage(str(ring))
        row = storage.scan(b"\0", b"\xff")[-1]
        storage.close()
        flip(ring, *row)
        with sync.open(f"sqlite:{path}", key=key, create=False) as store:
            assert ("storage", "ring") in {(f.kind, f.place) for f in store.verify().findings}


def test_writers_go_on(tmp_path: Path, way: str) -> None:
    storage = SqliteStorage(str(tmp_path / "store.db"), durability="normal")
    stop = threading.Event()
    counts = [0]

    def write() -> None:
        while not stop.is_set():
            storage.commit(Batch(puts=[(b"%d" % counts[0], bytes(3000))]))
            counts[0] += 1

    thread = threading.Thread(target=write)
    thread.start()
    try:
        for _ in range(10):
            before = counts[0]
            assert storage.check() == []
            while counts[0] == before:
                pass
    finally:
        stop.set()
        thread.join()
    storage.close()
