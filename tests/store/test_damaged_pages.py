"""Damage of SQLite's own index: neither a read nor a write goes by it, and `verify` finds it."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast import sync
from holdfast.errors import StateIntegrityError
from holdfast.storage.sqlite.engine import SqliteStorage
from holdfast.storage.sqlite.files import PAGE

LAST = 100
LEAF_OF_AN_INDEX = 10


def misplaced(file: Path, entry: int) -> bytes:
    """The file with the key of an entry and one of the feed in each other's place in the index:
    who walks along the entries meets the feed, and takes it for the end."""
    storage = SqliteStorage(str(file))
    keys = [key for key, _ in storage.scan(b"", b"\xff", limit=1000)]
    storage.close()
    data = bytearray(file.read_bytes())
    size = len(keys).to_bytes(2, "big")
    pages = (page for page in range(PAGE, len(data), PAGE) if data[page] == LEAF_OF_AN_INDEX)
    start = next(page for page in pages if data[page + 3 : page + 5] == size) + 8
    first = next(at for at, key in enumerate(keys) if key[:1] == b"E")
    one, other = (start + 2 * at for at in (first + entry - 1, len(keys) - 5))
    assert keys[len(keys) - 5][:1] in b"FST"
    data[one : one + 2], data[other : other + 2] = data[other : other + 2], data[one : one + 2]
    return bytes(data)


@pytest.mark.parametrize("sealed", [False, True], ids=["plain", "sealed"])
def test_an_index_that_hides_the_newest_rows(tmp_path: Path, sealed: bool) -> None:
    """No read shows an older value, no write is taken on top of it, and `verify` finds it."""
    file = tmp_path / "data" / "store.db"
    file.parent.mkdir()
    key = f"file:{tmp_path / 'key'}" if sealed else None
    with sync.open(f"sqlite:{file}", key=key) as store:
        for number in range(1, LAST + 1):
            store.agent("a").set("n", number)
    good = file.read_bytes()
    for entry in range(LAST - 30, LAST, 3):
        file.write_bytes(misplaced(file, entry))
        with sync.open(f"sqlite:{file}", key=key, create=False) as store:
            state = store.agent("a")
            with pytest.raises(StateIntegrityError):
                state.get("n")
            with pytest.raises(StateIntegrityError):
                state.set("m", 1)
            assert not store.verify().ok
        file.write_bytes(good)
