"""Files that were cut off or overwritten: the error names the file and says what to do."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from holdfast import sync
from holdfast.errors import DamagedRecordError, DamagedRingError, NotAStoreError
from holdfast.storage.sqlite.engine import SqliteStorage


def made(file: Path, **options: Any) -> None:
    """A store with one key, closed again."""
    with sync.open(f"sqlite:{file}", **options) as store:
        store.agent("a").set("k", "words")


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("key", [None, "passphrase:some words"])
@pytest.mark.parametrize("left", [0, 10, 99])
def test_a_store_that_was_cut_to_nothing(tmp_path: Path, left: int, key: str | None) -> None:
    file = tmp_path / "store.db"
    made(file, key=key)
    os.truncate(file, left)
    before = contents(tmp_path)
    for more in ({"create": True}, {"create": False}, {"read_only": True}):
        with pytest.raises(NotAStoreError, match=rf"{left} bytes.*was cut off.*remove both"):
            sync.open(f"sqlite:{file}", key=key, **more)
        assert contents(tmp_path) == before
    file.unlink()
    Path(f"{file}.keys" if key else f"{file}.sign").unlink()
    with sync.open(f"sqlite:{file}") as store:
        assert store.agent("a").get("k") is None


@pytest.mark.parametrize("way", ["empty", "other", "half", "head", "zeroed"])
def test_a_ring_that_is_none_any_more(tmp_path: Path, way: str) -> None:
    file = tmp_path / "data" / "store.db"
    file.parent.mkdir()
    key = f"file:{tmp_path / 'key'}"
    made(file, key=key)
    ring = Path(f"{file}.keys")
    good = ring.read_bytes()
    zeroed = b"".join(good[at : at + 100] + bytes(3996) for at in range(0, len(good), 4096))
    bad = {"empty": b"", "other": b"other" * 999, "half": good[: len(good) // 2]}
    ring.write_bytes({**bad, "head": good[:100], "zeroed": zeroed}[way])
    with pytest.raises(DamagedRingError, match="put the ring back from a copy"):
        sync.open(f"sqlite:{file}", key=key)
    for end in ("-wal", "-shm"):
        Path(f"{ring}{end}").unlink(missing_ok=True)
    ring.write_bytes(good)
    with sync.open(f"sqlite:{file}", key=key) as store:
        assert store.agent("a").get("k") == "words"


def test_a_ring_that_is_found_damaged_after_opening(tmp_path: Path) -> None:
    """Whichever page of its file it is: the store's own recovery does nothing for it."""
    file = tmp_path / "data" / "store.db"
    file.parent.mkdir()
    key = f"file:{tmp_path / 'key'}"
    with sync.open(f"sqlite:{file}", key=key) as store:
        for number in range(60):
            store.agent(str(number)).set("k", number)
    ring = Path(f"{file}.keys")
    good = ring.read_bytes()
    late = 0
    for at in range(4096, len(good), 4096):
        for end in ("-wal", "-shm"):
            Path(f"{ring}{end}").unlink(missing_ok=True)
        ring.write_bytes(good[:at] + b"\xff" + good[at + 1 :])
        try:
            store = sync.open(f"sqlite:{file}", key=key)
        except DamagedRingError:
            continue
        with store:
            for number in range(60):
                try:
                    assert store.agent(str(number)).get("k") == number
                except DamagedRecordError as error:
                    late += 1
                    assert type(error) is DamagedRingError
                    assert "put the ring back from a copy" in str(error)
    assert late


def test_an_encrypted_store_whose_file_is_missing(tmp_path: Path) -> None:
    """Nothing is made in its place, with the key or without it."""
    file, key = tmp_path / "store.db", "passphrase:some long passphrase"
    made(file, key=key)
    good = file.read_bytes()
    file.unlink()
    before = contents(tmp_path)
    for options in ({"key": key}, {}):
        with pytest.raises(DamagedRecordError, match="file is missing, its ring is there"):
            sync.open(f"sqlite:{file}", **options)
        assert contents(tmp_path) == before
    file.write_bytes(good)
    with sync.open(f"sqlite:{file}", key=key) as store:
        assert store.agent("a").get("k") == "words"


def test_no_plain_store_is_made_beside_a_ring(tmp_path: Path) -> None:
    """Not in a file without a store either, in which one was begun or from which it was taken."""
    file = tmp_path / "store.db"
    made(file, key="passphrase:some long passphrase")
    file.unlink()
    SqliteStorage(str(file)).close()
    before = contents(tmp_path)
    with pytest.raises(DamagedRecordError, match="ring"):
        sync.open(f"sqlite:{file}")
    assert contents(tmp_path) == before
