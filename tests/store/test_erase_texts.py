"""What is said of scopes that were erased, and an erase that is not waited for."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from store_kit import Place, rows_of

from holdfast.errors import InvalidInputError, KeyMissingError


def test_verify_lists_how_many_were_erased(place: Place) -> None:
    store = place.open()
    for name in ("1", "2", "3"):
        store.agent(name).set("k", 1)
    assert "erased" not in str(store.verify())
    store.erase("agent:1")
    store.erase("agent:2")
    assert "2 scopes erased" in str(store.verify())


def test_files_of_before_an_erase_with_the_ring_of_today(tmp_path: Path) -> None:
    place = Place("sqlite", tmp_path, sealed=True)
    store = place.open()
    store.agent("1").set("k", 1)
    place.close()
    shutil.copy(place.path, tmp_path / "old.db")
    store = place.open()
    store.erase("agent:1")
    place.close()
    shutil.copy(tmp_path / "old.db", place.path)
    with pytest.raises(KeyMissingError, match="the ring says that agent:1 was erased"):
        place.open().agent("1").get("k")
    place.close()


def test_what_is_no_position(plain: Place) -> None:
    with pytest.raises(InvalidInputError, match="leave it out to begin now"):
        plain.open().watch(since=3)  # type: ignore[arg-type]


def test_an_erase_that_is_not_waited_for(place: Place) -> None:
    store, other = place.open(), place.open()
    with store.acting("bot", correlation="run"), store.change(id="once") as change:
        change["agent:1"].set("k", "content")
    for number in range(300):
        store.agent("1").set("k", number)
    store.agent("2").set("k", 2)
    assert other.agent("1").get("k") == 299
    done = store.erase("agent:1", wait=False)
    assert done.key_removed is place.sealed
    assert (done.rows == 0) is place.sealed, "of a plain store the rows are the content"
    assert any("sweep() drops them" in text for text in done.open) is place.sealed
    for handle in (store, other, place.open()):
        assert handle.agent("1").get("k") is None
    left = rows_of(place.storage(), b"E")
    assert (len(left) > 300) is place.sealed
    store.agent("1").set("k", "of a new scope with the name")
    report = store.verify()
    assert report.ok, str(report)
    assert report.unswept == (1 if place.sealed else 0)
    assert ("sweep does that" in str(report)) is place.sealed
    swept = other.sweep()
    assert swept.erased == report.unswept
    assert (swept.rows > 300) is place.sealed
    assert len(rows_of(place.storage(), b"E")) == 2
    assert store.agent("1").get("k") == "of a new scope with the name"
    report = store.verify()
    assert report.ok, str(report)
    assert report.unswept == 0
    assert other.sweep().rows == 0
