"""A copy of the store's files made before, opened with today's ring."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from store_kit import Place

import holdfast
from holdfast import Entry, Position, sync
from holdfast.errors import KeyMissingError


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    made = Place("sqlite", tmp_path, sealed=True)
    yield made
    made.close()


def ring_of(place: Place) -> Path:
    return place.path.with_name("store.db.keys")


def filled(place: Place) -> None:
    """Three scopes, also changed together; the one in the middle is to go."""
    store = place.open()
    for number in range(3):
        for state in (store.agent("1"), store.session("e"), store.agent("2")):
            state.set("k", number)
        with store.change() as change:
            change["session:e"].set("both", number)
            change["agent:2"].set("both", number)
        with store.session("e").change() as more:
            more.set("a", number)
    place.close()


def told(entries: Iterator[Entry]) -> list[tuple[str, int]]:
    return [(str(entry.scope), entry.sequence) for entry in entries]


def watched(store: sync.Store, since: Position) -> Iterator[Entry]:
    return iter(store.watch(since=since, timeout=0))


READERS: list[Callable[[sync.Store, Position], Iterator[Entry]]] = [
    lambda store, since: store.feed(since),
    watched,
]


@pytest.mark.parametrize("wait", [True, False])
def test_what_the_ring_says_is_erased_is_passed_over(place: Place, wait: bool) -> None:
    filled(place)
    copy = place.path.read_bytes()
    store = place.open()
    store.erase("session:e", wait=wait)
    rest = sorted(told(store.feed()))
    place.close()
    place.path.write_bytes(copy)
    old = place.open()
    old.agent("3").set("k", 1)
    for read in READERS:
        assert sorted(told(read(old, Position({})))) == [*rest, ("agent:3", 1)]
    with pytest.raises(KeyMissingError, match="the ring says that session:e was erased"):
        old.session("e").get("k")
    old.erase("session:e")
    assert old.verify().ok

    async def over() -> list[tuple[str, int]]:
        async with holdfast.open(place.url, **place.options()) as other:
            return [(str(e.scope), e.sequence) async for e in other.feed()]

    assert sorted(asyncio.run(over())) == [*rest, ("agent:3", 1)]


@pytest.mark.parametrize("read", READERS)
def test_without_key_and_mark_the_error_has_the_position_behind(
    place: Place, read: Callable[[sync.Store, Position], Iterator[Entry]]
) -> None:
    first = place.open()
    first.agent("1").set("k", 0)
    place.close()
    shutil.copy(ring_of(place), place.folder / "ring")
    filled(place)
    every = sorted(told(place.open().feed()))
    place.close()
    shutil.copy(place.folder / "ring", ring_of(place))  # an older one: it has one scope's key
    store = place.open()
    found: list[Entry] = []
    position, refused = Position({}), 0
    while refused < 50:
        try:
            for entry in read(store, position):
                found.append(entry)
            break
        except KeyMissingError as error:
            assert error.position is not None
            assert "since=error.position" in str(error)
            position, refused = Position(error.position), refused + 1
    assert refused > 3
    assert sorted(told(iter(found))) == [one for one in every if one[0] == "agent:1"]
    with pytest.raises(KeyMissingError):
        list(read(store, Position({})))
