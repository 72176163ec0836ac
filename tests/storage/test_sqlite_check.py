"""The engine's own check finds damage that no read shows, and `verify` tells of it."""

from __future__ import annotations

import os
import sqlite3
import threading
from pathlib import Path
from typing import Any

import pytest

from holdfast import sync
from holdfast.errors import DamagedRecordError, DamagedStorageError, ForeignSchemaError
from holdfast.storage.contract import Batch
from holdfast.storage.sqlite.engine import SqliteStorage


def flip(path: Path, key: bytes, value: bytes) -> None:
    """Change one bit of the table's copy of a key, which lies before its value."""
    data = bytearray(path.read_bytes())
    place = bytes(data).index(key + value)
    data[place + len(key) - 1] ^= 1
    path.write_bytes(data)


def change(path: Path, statement: str) -> int:
    """Change rows at rest, as another program would; how many."""
    with sqlite3.connect(path) as other:
        count = other.execute(statement).rowcount
    other.close()
    return count


def test_a_flip_in_the_tables_copy_of_a_key(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    storage = SqliteStorage(str(path))
    puts = [(b"key %03d" % n, b"value %03d" % n) for n in range(200)]
    storage.commit(Batch(puts=puts, cells=[(b"cell", None, b"content")]))
    assert storage.check() == []
    storage.close()
    flip(path, b"key 123", b"value 123")
    storage = SqliteStorage(str(path))
    assert storage.scan(b"key", b"kez") == puts, "no read shows it"
    assert storage.check()
    storage.close()


@pytest.mark.parametrize("sealed", [False, True], ids=["plain", "sealed"])
def test_verify_reports_what_the_engine_finds(tmp_path: Path, sealed: bool) -> None:
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
        with pytest.raises(DamagedStorageError):  # which of the two keys is right, nobody knows
            store.agent("a").get("k")
        report = store.verify()
        assert ("storage", "store") in {(one.kind, one.place) for one in report.findings}
        assert report.exit_code == 1
    if sealed:
        ring = Path(f"{path}.keys")
        storage = SqliteStorage(str(ring))
        row = storage.scan(b"\0", b"\xff")[-1]
        storage.close()
        flip(ring, *row)
        with sync.open(f"sqlite:{path}", key=key, create=False) as store:
            assert ("storage", "ring") in {(f.kind, f.place) for f in store.verify().findings}


CLASSES = {"text": "cast({0} as text)", "integer": "7", "real": "cast(7 as real)"}


@pytest.mark.parametrize("kind", CLASSES)
@pytest.mark.parametrize("column", ["k", "v"])
def test_a_row_of_another_class(tmp_path: Path, kind: str, column: str) -> None:
    """It is read as bytes, as far as it is found, and the check names it."""
    path = tmp_path / "store.db"
    storage = SqliteStorage(str(path))
    rows = [(b"key %03d\xff" % n, b"value \xff\x00%03d" % n) for n in range(30)]
    storage.commit(Batch(puts=rows, cells=[(key, None, value) for key, value in rows]))
    storage.close()
    for table in ("records", "cells"):
        change(path, f"update {table} set {column}={CLASSES[kind].format(column)} where rowid=9")
    storage = SqliteStorage(str(path))
    key, value = rows[8]
    if column == "v":
        same = kind == "text"
        read = [
            storage.get([key])[0],
            storage.get([key, key])[1],
            dict(storage.scan(b"", b"z"))[key],
        ]
        read.append(dict(storage.cells(b"", b"z"))[key])
        assert {one == value for one in read} == {same}
        assert {type(one) for one in read} == {bytes}
        storage.commit(Batch(cells=[(key, read[3], b"new")], swaps=[(key, read[0] or b"", b"new")]))
        assert storage.get([key]) == [b"new"]
        assert storage.check() == []
    else:
        assert storage.get([key]) == [None]
        assert storage.get([rows[9][0]]) == [rows[9][1]]
        found = storage.check()
        assert len(found) == 2
        assert all(f"its key is {kind}, its value blob" in text for text in found)
    storage.close()


def test_a_row_whose_class_is_neither(tmp_path: Path) -> None:
    """A bit of SQLite's record header makes a value NULL, which its own schema forbids."""
    path = tmp_path / "store.db"
    storage = SqliteStorage(str(path))
    storage.commit(Batch(puts=[(b"key", b"")]))
    storage.close()
    data = bytearray(path.read_bytes())
    at = data.index(b"\x03\x12\x0ckey")  # header of 3 bytes, a blob of 3, a blob of 0
    data[at + 2] = 0
    path.write_bytes(data)
    storage = SqliteStorage(str(path))
    assert storage.get([b"key"]) == storage.get([b"key", b"other"])[:1] == [b""]
    assert storage.get([b"other", b"key"])[0] is None
    assert any("null" in text.lower() for text in storage.check())
    storage.close()


def test_a_schema_that_is_no_text(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    SqliteStorage(str(path)).close()
    data = path.read_bytes()
    path.write_bytes(data.replace(b"BLOB NOT NULL UNIQUE", b"BLOB NOT NULL UNIQU\xc5"))
    with pytest.raises((ForeignSchemaError, DamagedRecordError)):
        SqliteStorage(str(path))


@pytest.mark.parametrize("sealed", [False, True], ids=["plain", "sealed"])
@pytest.mark.parametrize("kind", CLASSES)
def test_rows_of_another_class_stop_nothing(tmp_path: Path, kind: str, sealed: bool) -> None:
    path = tmp_path / "data" / "store.db"
    path.parent.mkdir()
    options: dict[str, Any] = {"key": f"file:{tmp_path / 'key'}" if sealed else None}
    with sync.open(f"sqlite:{path}", **options) as store:
        state = store.agent("a")
        for number in range(5):
            state.set("k", {"n": number, "bytes": b"\xff" * 50})
        point = state.checkpoint("c")
        state.set("k", "new")
        store.agent("b").set("k", "other")
        truth = dict(state.items())
    count = change(
        path,
        f"update records set v={CLASSES[kind].format('v')}  where k<>cast('Mstore' as blob)",
    )
    assert count
    with sync.open(f"sqlite:{path}", **options, create=False) as store:
        state = store.agent("a")
        if kind == "text":  # the bytes are the same, and whole
            assert dict(state.items()) == truth
            assert state.restore(point)
        else:
            calls = (state.log, lambda: state.get("k"), lambda: state.restore("c"))
            for call in (lambda: dict(state.items()), *calls):
                with pytest.raises(DamagedRecordError, match=r"row|entry"):
                    call()
        found = store.verify().findings
        assert sum("both were written as bytes" in one.message for one in found) == min(count, 100)


def test_writers_go_on(tmp_path: Path) -> None:
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


@pytest.mark.parametrize("cut", [4095, 4096, 4097])
def test_a_file_without_half_of_its_last_page_is_damaged(tmp_path: Path, cut: int) -> None:
    """SQLite takes it for a failed read; but there is nothing to wait for."""
    path = tmp_path / "store.db"
    with sync.open(f"sqlite:{path}") as store:
        for number in range(50):
            store.agent("a").set(f"k{number}", os.urandom(9000))
    os.truncate(path, path.stat().st_size - cut)
    with sync.open(f"sqlite:{path}") as store:
        with pytest.raises(DamagedRecordError):
            store.agent("a").get_many([f"k{number}" for number in range(50)])
        assert {finding.kind for finding in store.verify().findings} == {"damage"}
