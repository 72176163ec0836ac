"""Appends that build on an append which is not stored yet."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import holdfast
from holdfast import sync
from holdfast.errors import InvalidInputError, MissingError

# Encoded between 64 and 1024 bytes together, the list is one atom beside the index.
ITEMS = ["a" * 90, "b" * 90, "c" * 90]


@pytest.mark.parametrize("before", [[], ["x"], ["x" * 90]])
def test_appends_of_one_change(store_url: str, before: list[Any]) -> None:
    with sync.open(store_url) as store:
        state = store.agent("a")
        if before:
            state.set("l", before)
        with state.change() as change:
            for item in ITEMS:
                change.append("l", item)
        assert state.get("l") == before + ITEMS
        with state.change() as change:
            change.set("l", ITEMS)
            change.append("l", "d")
        assert state.get("l") == [*ITEMS, "d"]
        assert store.verify().ok


def test_appends_of_one_commit(store_url: str) -> None:
    async def run() -> None:
        async with holdfast.open(store_url, durability="normal") as store:
            state = store.agent("a")
            await asyncio.gather(*(state.append("l", f"{n:90}") for n in range(20)))
            assert await state.get("l") == [f"{n:90}" for n in range(20)]
            assert (await store.verify()).ok

    asyncio.run(run())


@pytest.mark.parametrize("item", [1, "x" * 20, {"a": [None, b"b", 1 << 70]}, ["y" * 90]])
def test_a_list_that_grew_is_the_list_that_was_set(store_url: str, item: Any) -> None:
    """Also where it gets longer than its header of one byte tells, and too long to be one atom."""
    with sync.open(store_url) as store:
        state = store.agent("a")
        for count in range(1, 60):
            state.append("l", item)
            assert state.get("l") == [item] * count
            if count in (15, 16, 59):
                grown = state.checkpoint(f"{count}")
                state.set("l", [item] * count)
                assert not state.diff(grown).changes
        assert store.verify().ok


def test_what_is_no_list_does_not_grow(store_url: str) -> None:
    with sync.open(store_url) as store:
        state = store.agent("a")
        for value in ("text", 7, {"a": 1}, None, "x" * 200, {"a": "x" * 200}):
            state.set("l", value)
            with pytest.raises(InvalidInputError, match="not a list"):
                state.append("l", 1)
            assert state.get("l") == value


def test_what_fails_half_way_leaves_no_trace_in_its_group(store_url: str) -> None:
    """Those before it are committed without it, and those behind it follow."""

    async def run() -> None:
        async with holdfast.open(store_url, durability="normal") as store:
            state = store.agent("a")
            await state.set("text", "x")
            jobs = [state.append("l", n) for n in range(20)]
            jobs.insert(5, state.append("text", 1))
            jobs.insert(12, state.expire("nothing", ttl=5))
            done = await asyncio.gather(*jobs, return_exceptions=True)
            failed = [type(one) for one in done if isinstance(one, BaseException)]
            assert failed == [InvalidInputError, MissingError]
            assert await state.get("l") == list(range(20))
            assert (await store.verify()).ok

    asyncio.run(run())
