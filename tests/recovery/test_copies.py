"""What is taken from copies of a store: the newest there is, and never less than is here."""

from __future__ import annotations

import shutil
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from store_kit import Place, put_row, rows_of

from holdfast import sync


@pytest.fixture
def home(tmp_path: Path) -> Any:
    """A store in files, which can be copied."""
    place = Place("sqlite", tmp_path, sealed=True)
    yield place
    place.close()


def write(place: Place, first: int, last: int) -> None:
    """Entries of the agent, each with its number."""
    with place.open() as store:
        for n in range(first, last + 1):
            store.agent("7").set("k", n)


def copied(place: Place, name: str) -> str:
    """A copy of the store's files."""
    place.close()
    to = place.path.with_name(name)
    for path in place.path.parent.glob(f"{place.path.name}*"):
        shutil.copy(path, to.with_name(path.name.replace(place.path.name, to.name)))
    return f"sqlite:{to}"


def damage(place: Place, number: int, *, lost: bool) -> None:
    """Lose the entries of the agent from a number on, or spoil that one alone."""
    storage = place.storage()
    for key, row in rows_of(storage, b"E")[number - 1 :]:
        put_row(storage, key, None if lost else row[:-3] + bytes([row[-3] ^ 1]) + row[-2:])
        if not lost:
            break
    storage.close()


def recovered(place: Place, *urls: str, kind: str = "storage_failure") -> tuple[Any, int]:
    """The report of a recovery with copies, and the state after it."""
    store = place.open()
    with ExitStack() as stack:
        copies = [stack.enter_context(sync.open(url, **place.options())) for url in urls]
        report = sync.Recovery(store, copies=copies).recover("agent:7", kind)
    assert store.verify().ok or kind == "state_corruption"
    return report, store.agent("7").get("k")


@pytest.mark.parametrize("kind", ["storage_failure", "network_partition"])
def test_a_store_that_has_all_that_copies_have_keeps_it(home: Place, kind: str) -> None:
    write(home, 1, 8)
    old = copied(home, "old.db")
    write(home, 9, 12)
    new = copied(home, "new.db")
    write(home, 13, 14)
    report, k = recovered(home, old, new, kind=kind)
    assert (report.lost, k) == ("nothing", 14)
    if kind == "storage_failure":
        assert report.passed["copy"] == "copy 1: all that it has is here"


@pytest.mark.parametrize("turned", [False, True])
def test_the_newest_of_several_copies_is_taken(home: Place, tmp_path: Path, turned: bool) -> None:
    write(home, 1, 2)
    urls = []
    (tmp_path / "copies").mkdir()
    for name, k in (("old", 10), ("new", 11)):
        url = f"sqlite:{tmp_path}/copies/{name}.db"
        with sync.open(url, **home.options()) as there:
            there.agent("7").set("k", k)
        urls.append(url)
    report, k = recovered(home, *(reversed(urls) if turned else urls))
    assert (report.strategy, report.lost, k) == ("copy", "what the copy lacks", 11)


@pytest.mark.parametrize(
    ("at", "lost"), [(16, "entries 17 to 22"), (14, "entries 15 to 22"), (10, "entries 15 to 22")]
)
def test_of_an_old_copy_and_a_lost_tail_it_is_said_what_is_lost(
    home: Place, at: int, lost: str
) -> None:
    write(home, 1, at)
    old = copied(home, "old.db")
    write(home, at + 1, 22)
    home.close()
    damage(home, 15, lost=True)
    report, k = recovered(home, old)
    assert report.lost == f"{lost}, which the feed names"
    assert k == max(at, 14)


def test_a_copy_that_went_its_own_way_is_not_taken_for_ours(home: Place) -> None:
    write(home, 1, 10)
    url = copied(home, "other.db")
    with sync.open(url, **home.options()) as there:
        for n in range(2):
            there.agent("7").set("k", f"elsewhere {n}")
    write(home, 11, 14)
    home.close()
    damage(home, 11, lost=True)
    report, k = recovered(home, url)
    assert report.strategy == "copy"
    assert report.lost == "what the copy lacks"
    assert k == "elsewhere 1"
