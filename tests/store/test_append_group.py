"""Appends that build on an append which is not stored yet."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import holdfast
from holdfast import sync

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
