"""Trimming lists."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from store_kit import Place

import holdfast
from holdfast import Ephemeral, sync
from holdfast.errors import Conflict, InvalidInputError
from holdfast.store.journal.timeline import Timeline

ITEMS = [{"n": n, "text": "x" * 50} for n in range(500)]


@pytest.fixture
def state(store: sync.Store) -> sync.State:
    return store.agent("1")


@pytest.mark.parametrize("items", [ITEMS, ITEMS[:10], list(range(20)), ["x" * 9000] * 20])
def test_the_oldest_items_go(state: sync.State, items: list[Any]) -> None:
    state.set("l", items)
    assert state.trim("l", before=3) == 3
    assert state.get("l") == items[3:]
    assert state.log(limit=1)[0].operations == (("trim", "l"),)
    assert state.trim("l", keep_last=6) == len(items) - 9
    assert state.get("l") == items[-6:]
    assert (state.length("l"), state.tail("l", 2), state.slice("l", 0, 1)) == (
        6,
        items[-2:],
        items[-6:-5],
    )
    head = state._handle.place()
    assert state.trim("l", keep_last=6) == state.trim("l", keep_last=100) == 0
    assert state.trim("l", before=0) == state.trim("nothing", keep_last=0) == 0
    assert state._handle.place() == head, "where nothing goes, nothing is written"
    assert state.trim("l", before=100) == 6
    assert (state.get("l"), state.exists("l")) == ([], True)
    state.append("l", 1)
    assert state.get("l") == [1]
    assert [entry.sequence for entry in state.log(kind="trim")] == [4, 3, 2]
    assert state.at(1).get("l") == items, "the past has them"


@pytest.mark.parametrize("left", [0, 1, 3, 15, 16, 17, 18, 60, 300])
def test_a_trimmed_list_is_the_same_as_one_that_was_set(store: sync.Store, left: int) -> None:
    """Equal content has equal roots, however it came about."""
    state = store.agent("1")
    state.set("l", ITEMS)
    state.trim("l", keep_last=left)
    trimmed = state.root()
    state.set("l", ITEMS[len(ITEMS) - left :])
    assert state.root() == trimmed
    state.set("l", [])
    state.extend("l", ITEMS[len(ITEMS) - left :])
    assert state.root() == trimmed


def test_in_a_change(state: sync.State) -> None:
    state.extend("l", ITEMS)
    with state.change() as change:
        change.append("l", "new")
        change.trim("l", keep_last=3)
        assert change.get("l") == [*ITEMS[-2:], "new"]
        change.trim("l", before=1)
        change.append("l", "newer")
        change.trim("nothing", keep_last=3)
        assert not change.exists("nothing")
        assert change.keys() == ["l"]
    assert state.get("l") == [ITEMS[-1], "new", "newer"]
    assert state.keys() == ["l"]
    with pytest.raises(Conflict), state.change() as change:
        change.trim("l", before=len(change.get("l")) - 1)
        state.append("l", "meanwhile")


def test_versions(state: sync.State) -> None:
    version = state.extend("l", [1, 2, 3])
    state.append("l", 4)
    with pytest.raises(Conflict):
        state.trim("l", before=1, if_version=version)
    item = state.item("l")
    assert item is not None
    assert state.trim("l", before=1, if_version=item.version) == 1


def test_what_is_refused(state: sync.State) -> None:
    state.set("n", 1)
    state.set("l", [1])
    for wrong in ({}, {"keep_last": 1, "before": 1}, {"keep_last": -1}, {"before": True}):
        with pytest.raises(InvalidInputError):
            state.trim("l", **wrong)
    with pytest.raises(InvalidInputError, match="not a list"):
        state.trim("n", keep_last=0)
    with pytest.raises(InvalidInputError, match="not a list"), state.change() as change:
        change.trim("n", keep_last=0)
    assert (state.get("n"), state.get("l")) == (1, [1])


def test_others_see_it_and_it_verifies(place: Place) -> None:
    mine, theirs = (place.open().agent("1") for _ in range(2))
    mine.extend("l", ITEMS)
    safe = mine.checkpoint("safe")
    assert theirs.trim("l", keep_last=200) == 300
    assert mine.get("l") == ITEMS[-200:]
    mine.append("l", "new")
    theirs.trim("l", keep_last=2)
    assert mine.get("l") == [ITEMS[-1], "new"]
    assert place.reopen().agent("1").get("l") == [ITEMS[-1], "new"]
    state = place.open().agent("1")
    done = state.revert(entries=[4 + 1])
    assert done.done == ["l"]
    assert state.get("l") == [*ITEMS[-200:], "new"]
    state.restore(safe)
    assert state.get("l") == ITEMS
    assert place.open().verify().findings == []


def test_an_ephemeral_list(state: sync.State) -> None:
    state.declare(Ephemeral("tmp/"))
    state.extend("tmp/l", ITEMS)
    assert state.trim("tmp/l", keep_last=3) == 497
    assert state.trim("tmp/l", before=1) == 1
    assert state.get("tmp/l") == ITEMS[-2:]
    assert state.trim("tmp/nothing", keep_last=3) == 0
    assert state._handle.place()[2] == 1


def test_it_costs_the_same_however_long_the_list_is(plain: Place) -> None:
    store, counting = plain.open_counting()
    state = store.agent("1")
    for start in range(0, 40_000, 4000):
        state.extend("l", list(range(start, start + 4000)))
    state.set("n", "what was due to be saved is saved with this")
    written = counting.bytes_written
    assert state.trim("l", before=20_000) == 20_000
    assert counting.bytes_written - written < 500
    assert state.slice("l", 0, 2) == [20_000, 20_001]


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("extend"), st.integers(0, 120)),
        st.tuples(st.just("keep_last"), st.integers(0, 150)),
        st.tuples(st.just("before"), st.integers(0, 150)),
        st.tuples(st.just("set"), st.integers(0, 150)),
        st.tuples(st.just("change"), st.integers(0, 60)),
        st.tuples(st.just("checkpoint"), st.just(0)),
    ),
    max_size=25,
)


@settings(max_examples=40)
@given(STEPS)
def test_against_a_plain_list(steps: list[tuple[str, int]]) -> None:
    with sync.open("memory:", durability="normal") as store:
        state = store.agent("1")
        now: list[Any] = []
        state.set("l", [])
        for place, (kind, number) in enumerate(steps):
            fresh = [{"place": place, "n": n} for n in range(number)]
            if kind == "extend":
                state.extend("l", fresh)
                now = now + fresh
            elif kind == "set":
                state.set("l", fresh)
                now = fresh
            elif kind == "keep_last":
                assert state.trim("l", keep_last=number) == max(len(now) - number, 0)
                now = now[max(len(now) - number, 0) :]
            elif kind == "before":
                assert state.trim("l", before=number) == min(len(now), number)
                now = now[number:]
            elif kind == "change":
                with state.change() as change:
                    change.extend("l", fresh)
                    change.trim("l", keep_last=number)
                    change.append("l", place)
                now = [*(now + fresh)[max(len(now) + len(fresh) - number, 0) :], place]
            else:
                state.checkpoint("c")
            assert (state.get("l"), state.length("l")) == (now, len(now))
        line = state._handle.reader.now()
        assert line is not None
        assert Timeline(line.ledger, 0).load(saves=False).folded().hash.hex() == state.root()
        assert store.verify().findings == []
        root = state.root()
        state.delete("l")
        state.set("l", now)
        assert state.root() == root


def test_async_face(place: Place) -> None:
    async def main() -> None:
        async with holdfast.open(place.url, **place.options()) as store:
            state = store.agent("1")
            await state.extend("l", ITEMS)
            assert await state.trim("l", keep_last=100) == 400
            assert await state.trim("l", keep_last=100) == 0
            async with state.change() as change:
                change.trim("l", keep_last=1)
            assert await state.get("l") == ITEMS[-1:]

    asyncio.run(main())
