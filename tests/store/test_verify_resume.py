"""Verifying in slices: every slice gets on, and together they say what one run says."""

from __future__ import annotations

from pathlib import Path

import pytest
from store_kit import Place, put_row, rows_of

from holdfast import sync


def slices(store: sync.Store) -> list[int]:
    """Entries checked by each slice of a run that may never take any time."""
    found, resume = [], None
    while True:
        report = store.verify(budget=0, resume=resume)
        assert report.findings == []
        found.append(report.entries)
        assert len(found) < 100, "it does not get on"
        if report.resume is None:
            return found
        assert report.exit_code == 3
        assert report.resume != resume
        resume = report.resume


def test_many_small_scopes_are_checked_in_slices(tmp_path: Path) -> None:
    with sync.open(f"sqlite:{tmp_path / 'a.db'}", durability="normal") as store:
        for number in range(12):
            store.agent(str(number)).set("key", number)
        store.agent("5").fork("other")
        found = slices(store)
        assert len(found) > 10
        assert sum(found) == store.verify().entries == 13


def test_a_long_timeline_between_short_ones(tmp_path: Path) -> None:
    with sync.open(f"sqlite:{tmp_path / 'a.db'}", durability="normal") as store:
        for name in ("a", "b", "c"):
            for number in range(1100 if name == "b" else 1):
                store.agent(name).set("key", number)
        assert sum(slices(store)) == 1102


def long_lists(store: sync.Store) -> sync.State:
    """A scope whose entries each take long: every list fills some packs and nodes."""
    state = store.agent("a")
    for number in range(8):
        state.set(f"list/{number}", [f"{number} item {n}" for n in range(1500)])
    state.checkpoint("c")
    state.fork("other").append("list/0", "more")
    state.append("list/1", "more")
    return state


def test_the_time_is_looked_at_between_long_entries(place: Place) -> None:
    with place.open() as store:
        long_lists(store)
        found = slices(store)
        assert len(found) > 8
        assert sum(found) == store.verify().entries == 12


@pytest.mark.parametrize("kind", [b"E", b"V", b"N", b"S"])
def test_slices_find_what_a_whole_run_finds(plain: Place, kind: bytes) -> None:
    with plain.open() as store:
        long_lists(store)
        store.agent("a").set("more", 1)
    storage = plain.storage()
    stored = rows_of(storage, kind)
    for key, row in (stored[len(stored) // 2], stored[-1]):
        put_row(storage, key, row[:-1] + bytes([row[-1] ^ 1]))
    with plain.open() as store:
        whole = {(one.kind, one.place, one.message) for one in store.verify().findings}
        report = store.verify(budget=0)
        found = report.findings
        while report.resume is not None:
            report = store.verify(budget=0, resume=report.resume)
            found += report.findings
    assert whole
    assert {(one.kind, one.place, one.message) for one in found} == whole


def test_slices_name_the_keys_that_use_what_is_damaged(plain: Place) -> None:
    with plain.open() as store:
        state = store.agent("a")
        for name in ("first", "second"):
            state.set(name, [{"n": n, "text": name * 20} for n in range(60)])
            for number in range(250):
                state.set("small", number)
    storage = plain.storage()
    for key, row in rows_of(storage, b"V"):
        put_row(storage, key, row[:-1] + bytes([row[-1] ^ 1]))
    with plain.open() as store:
        named = [one.keys for one in store.verify().findings if one.keys]
        report = store.verify(budget=0)
        found = report.findings
        while report.resume is not None:
            report = store.verify(budget=0, resume=report.resume)
            found += report.findings
    assert named == [("first", "second")]
    assert [one.keys for one in found if one.keys] == [("first",), ("second",)]
