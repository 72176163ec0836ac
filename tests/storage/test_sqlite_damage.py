"""Damage to SQLite's own structure: nothing is written onto it, and a file is mended."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest

from holdfast import sync
from holdfast.errors import (
    ChainError,
    DamagedStorageError,
    ForeignSchemaError,
    NotAStoreError,
    RefusedError,
    StoreLockedError,
)
from holdfast.storage.contract import Batch
from holdfast.storage.sqlite import rebuild
from holdfast.storage.sqlite.engine import SqliteStorage
from holdfast.storage.sqlite.files import PAGE
from holdfast.storage.sqlite.index_path import NEWEST

LEAF_INDEX, LEAF_TABLE = 10, 13


def table(path: Path) -> list[Any]:
    """Every row, by the table alone."""
    connection = apsw.Connection(str(path))
    try:
        names = ("records", "cells")
        return [(n, *row) for n in names for row in connection.execute(f"SELECT k, v FROM {n}")]
    finally:
        connection.close()


def hide(path: Path, key: bytes) -> None:
    """Change one bit of a key in the index, so that its row is not found under it any more."""
    data = bytearray(path.read_bytes())
    for page in range(PAGE, len(data), PAGE):
        if data[page] == LEAF_INDEX and (at := data.find(key, page, page + PAGE)) >= 0:
            data[at + len(key) - 1] ^= 1
            path.write_bytes(data)
            return
    raise AssertionError("the index has no such key")


def flip(path: Path, at: int, bit: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1 << bit
    path.write_bytes(data)


def mend(path: str) -> rebuild.Mended:
    """A file that was mended, and that others open again."""
    with rebuild.mend(path, {}) as done:
        return done


@pytest.fixture
def made(tmp_path: Path) -> Path:
    """A store of several scopes; the newest entries of the first lie below many others."""
    path = tmp_path / "store.db"
    with sync.open(f"sqlite:{path}", durability="normal") as store:
        for name in ("first", "second", "third"):
            for number in range(NEWEST):
                store.agent(name).set("count", number)
            store.agent(name).set("text", [os.urandom(3000).hex() for _ in range(4)])
    return path


def test_what_the_index_hides_is_not_written_onto(made: Path) -> None:
    """Each agent in turn: one that was written to last, and one that was not for long."""
    before = made.read_bytes()
    for row in [row for row in table(made) if row[1][:1] == b"E" and row[1][9:] == b"\0\0\0\0\x41"]:
        made.write_bytes(before)
        hide(made, row[1])
        refused = 0
        with sync.open(f"sqlite:{made}", create=False) as store:
            for name in ("first", "second", "third"):
                try:
                    assert store.agent(name).set("count", "new") == NEWEST + 2
                except DamagedStorageError as error:
                    assert "holdfast --store" in str(error)
                    assert "repair" in str(error)
                    refused += 1
                except ChainError:
                    refused += 1
            assert refused
        keys = [one[:2] for one in table(made)]
        assert len(set(keys)) == len(keys)


def test_the_index_is_asked_for_every_place(tmp_path: Path) -> None:
    """Not only for the first one that a process writes to."""
    path = tmp_path / "rows.db"
    storage = SqliteStorage(str(path))
    for number in range(3 * NEWEST):
        key = b"E" + bytes([number % 3]) * 8 + number.to_bytes(5, "big")
        storage.commit(Batch(puts=[(key, b"row")], absent=[key]))
    storage.close()
    hidden = b"E" + bytes(8) + (NEWEST - 1).to_bytes(5, "big")
    hidden = max(row[1] for row in table(path) if row[1] < hidden and row[1][1] == 0)
    hide(path, hidden)
    storage = SqliteStorage(str(path))
    other = b"E" + bytes([2]) * 8 + b"\xff" * 5
    storage.commit(Batch(puts=[(other, b"row")], absent=[other]))
    with pytest.raises(DamagedStorageError):
        storage.commit(Batch(puts=[(hidden, b"again")], absent=[hidden]))
    with pytest.raises(DamagedStorageError):
        storage.commit(Batch(puts=[(b"x", b"")]))
    storage.close()


def test_a_cell_that_is_not_counted_is_missed(tmp_path: Path) -> None:
    """Its page says that it has one cell less: neither keys nor their order show that."""
    path = tmp_path / "rows.db"
    storage = SqliteStorage(str(path))
    last = b"E" + b"\xfe" * 13
    storage.commit(Batch(puts=[(last, b"")]))
    for number in range(NEWEST):
        storage.commit(Batch(puts=[(b"D" + number.to_bytes(13, "big"), b"")]))
    storage.close()
    data = bytearray(path.read_bytes())
    pages = [page for page in range(PAGE, len(data), PAGE) if data[page] == LEAF_INDEX]
    page = next(page for page in pages if data[page + 4] == NEWEST + 1)
    data[page + 4] ^= 1
    path.write_bytes(data)
    storage = SqliteStorage(str(path))
    assert storage.get([last]) == [None]
    with pytest.raises(DamagedStorageError):
        storage.commit(Batch(puts=[(last, b"again")], absent=[last]))
    storage.close()


def test_a_newest_row_that_is_hidden_is_noticed_on_opening(tmp_path: Path) -> None:
    path = tmp_path / "rows.db"
    storage = SqliteStorage(str(path))
    storage.commit(Batch(puts=[(b"key-1", b""), (b"key-2", b"")]))
    storage.close()
    hide(path, b"key-2")  # as key-3
    storage = SqliteStorage(str(path))
    with pytest.raises(DamagedStorageError):
        storage.commit(Batch(puts=[(b"unrelated", b"")]))
    storage.close()


def test_a_sound_store_is_left_alone(made: Path) -> None:
    assert rebuild.look(str(made)) == []


def flips(path: Path, seed: int) -> Iterator[tuple[int, int]]:
    """Bits in pages of the index, in headers of pages, in pointers and in the schema."""
    data, draw = path.read_bytes(), random.Random(seed)
    pages = [page for page in range(PAGE, len(data), PAGE) if data[page] in (2, 5, 10, 13)]
    index = [page for page in pages if data[page] in (2, 10)]
    for _ in range(15):
        yield draw.choice(index) + draw.randrange(PAGE), draw.randrange(8)
        yield draw.choice(pages) + draw.randrange(30), draw.randrange(8)
        yield draw.randrange(PAGE - 500, PAGE), draw.randrange(8)


def test_structure_is_mended_without_a_copy(made: Path) -> None:
    before, truth = made.read_bytes(), sorted(table(made))
    mended = 0
    for at, bit in flips(made, 7):
        made.write_bytes(before)
        flip(made, at, bit)
        if rebuild.look(str(made)):
            done = mend(str(made))
            mended += 1
            assert done.lost == done.older == []
            if done.kept:
                assert Path(done.kept).exists()
                os.remove(done.kept)
        assert rebuild.look(str(made)) == []
        assert sorted(table(made)) == truth, (at, bit)
    assert mended > 10


def test_cells_are_kept_and_the_newer_of_two_rows(tmp_path: Path) -> None:
    path = tmp_path / "rows.db"
    storage = SqliteStorage(str(path))
    storage.commit(Batch(puts=[(b"key-a", b"older")], cells=[(b"cell", None, b"kept")]))
    storage.commit(Batch(puts=[(b"key-b", b"newer")]))
    storage.close()
    data = path.read_bytes().replace(b"key-bnewer", b"key-anewer")
    path.write_bytes(data)
    hide(path, b"key-a")
    done = mend(str(path))
    assert done.older == [(b"key-a", b"older")]
    rows = [("records", b"key-a", b"newer"), ("cells", b"cell", b"kept")]
    assert table(path) == rows
    assert done.rows == 2


def test_what_lay_in_a_page_before_is_no_row(tmp_path: Path) -> None:
    """Old pointers stay behind the last one, and lead into the middle of rows of today."""
    path, rng = tmp_path / "store.db", random.Random(3)
    rows: dict[bytes, bytes] = {}
    storage = SqliteStorage(str(path))
    for number in range(200):
        changed = rng.sample(sorted(rows), len(rows) // 8)
        drops = changed[::2]
        swaps = [(key, rows[key], rows[key][:150]) for key in changed[1::2]]
        names = [b"E%d-%d" % (number, one) for one in range(5)]
        puts = [(name, rng.randbytes(rng.randrange(100, 3500))) for name in names]
        storage.commit(Batch(puts=puts, drops=drops, swaps=swaps))
        rows.update([*puts, *((key, new) for key, _, new in swaps)])
        for key in drops:
            del rows[key]
    storage.close()
    data = path.read_bytes()
    path.write_bytes(data.replace(b"CREATE TABLE records", b"CREATE TABLF records"))
    done = mend(str(path))
    assert done.kept
    assert (done.lost, done.older, done.doubts) == ([], [], [])
    assert {key: value for _, key, value in table(path)} == rows


def test_a_row_in_whose_middle_a_file_was_cut_off_is_none(made: Path) -> None:
    truth, data = table(made), made.read_bytes()
    keys = {row[1] for row in truth}
    leaves = [at for at in range(6 * PAGE, len(data), PAGE) if data[at] in (13, 10)]
    for at in [page + size for page in leaves[-2:] for size in range(5, PAGE, 293)]:
        made.write_bytes(data[:at])
        done = mend(str(made))
        if done.kept:  # else SQLite made up the end of the last row, which its seal tells of
            assert set(table(made)) <= set(truth), at
            assert keys.issuperset(done.lost), at
            os.remove(done.kept)


def test_a_key_of_another_class_in_the_index(tmp_path: Path) -> None:
    """One bit makes it a text, and its bytes need not be one."""
    path = tmp_path / "rows.db"
    storage = SqliteStorage(str(path))
    storage.commit(Batch(puts=[(b"key-\xff", b"kept")]))
    storage.close()
    data = bytearray(path.read_bytes())
    at = data.index(b"\x16\x09key-\xff")  # the class of the key, and of the number of its row
    data[at] ^= 1
    path.write_bytes(data)
    assert rebuild.look(str(path))
    mend(str(path))
    assert table(path) == [("records", b"key-\xff", b"kept")]


def test_what_no_page_has_is_named(made: Path) -> None:
    data = bytearray(made.read_bytes())
    pages = [page for page in range(PAGE * 6, len(data), PAGE) if data[page] == LEAF_TABLE]
    data[pages[1] : pages[1] + PAGE] = bytes(PAGE)
    truth = sorted(table(made))
    made.write_bytes(data)
    assert rebuild.look(str(made))
    done = mend(str(made))
    left = table(made)
    assert done.lost
    assert sorted(done.lost) == sorted(row[1] for row in truth if row not in left)


def test_cells_that_no_page_has_are_named(tmp_path: Path) -> None:
    path = tmp_path / "rows.db"
    storage = SqliteStorage(str(path))
    storage.commit(Batch(puts=[(b"key", b"kept")], cells=[(b"cell", None, b"a cell")]))
    storage.close()
    data = path.read_bytes()
    at = next(
        page
        for page in range(PAGE, len(data), PAGE)
        if data[page] == LEAF_TABLE and b"cella cell" in data[page : page + PAGE]
    )
    path.write_bytes(data[:at] + bytes(PAGE) + data[at + PAGE :])
    done = mend(str(path))
    assert (done.cells, done.lost) == ([b"cell"], [])
    assert table(path) == [("records", b"key", b"kept")]


@pytest.mark.parametrize("step", ["create", "link", "replace", "sync_folder"])
def test_a_rebuild_that_is_killed_is_done_again(
    made: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """What it left behind is in nobody's way, and the damaged file is not lost."""
    truth = sorted(table(made))
    data = bytearray(made.read_bytes())
    data[100:108] = bytes(8)  # the header of the first page, which leads to everything
    made.write_bytes(data)
    places = {"create": rebuild.files, "sync_folder": rebuild.guard}
    real = getattr(places.get(step, os), step)

    def killed(*args: Any, **more: Any) -> None:
        real(*args, **more)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(places.get(step, os), step, killed)
        with pytest.raises(KeyboardInterrupt):
            mend(str(made))
    if rebuild.look(str(made)):
        mend(str(made))
    assert sorted(table(made)) == truth
    assert Path(f"{made}.damaged").exists()
    assert not Path(f"{made}.new").exists()


def test_what_is_in_the_log_is_kept(made: Path, tmp_path: Path) -> None:
    store = sync.open(f"sqlite:{made}", create=False)
    store.agent("first").set("in the log", True)
    there = tmp_path / "there"
    there.mkdir()
    for end in ("", "-wal"):
        (there / f"store.db{end}").write_bytes(Path(f"{made}{end}").read_bytes())
    store.close()
    flip(there / "store.db", 16, 3)  # the size of pages: SQLite would take the log for another's
    with pytest.raises(DamagedStorageError):
        SqliteStorage(str(there / "store.db"))
    assert rebuild.look(str(there / "store.db"))
    mend(str(there / "store.db"))
    assert sorted(table(there / "store.db")) == sorted(table(made))


def test_files_that_are_none_of_ours_are_refused(made: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.db"
    other.write_bytes(b"no database at all" * 1000)
    with pytest.raises(NotAStoreError):
        rebuild.look(str(other))
    connection = apsw.Connection(str(made))
    connection.execute("CREATE TABLE added(x)")
    connection.close()
    with pytest.raises(ForeignSchemaError):
        rebuild.look(str(made))


def test_an_open_file_and_one_that_was_kept_are_left_alone(made: Path) -> None:
    with sync.open(f"sqlite:{made}", create=False), pytest.raises(StoreLockedError):
        mend(str(made))
    flip(made, PAGE - 30, 1)
    Path(f"{made}.damaged").write_bytes(b"of before")
    with pytest.raises(RefusedError, match="from a repair before"):
        mend(str(made))
    assert Path(f"{made}.damaged").read_bytes() == b"of before"
