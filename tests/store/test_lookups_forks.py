"""Forks of points at which a lookup was not whole build it on their own timeline."""

from __future__ import annotations

import asyncio

import pytest
from store_kit import Place

import holdfast
from holdfast import Lookup, sync
from holdfast.errors import LookupNotBuiltError

BY = Lookup("by", prefix="t/", terms=["s"])


def restored(state: sync.State) -> int:
    """The entry of a restore to a state that knew no lookup."""
    state.set("t/1", {"s": 1})
    safe = state.checkpoint("before the lookup")
    state.declare(BY)
    state.set("t/2", {"s": 1})
    return state.restore(safe).sequence


def test_fork_at_the_entry_of_a_restore_has_its_lookup(place: Place) -> None:
    store = place.open()
    state = store.agent("a")
    entry = restored(state)
    with pytest.raises(LookupNotBuiltError):
        state.at(entry).find("by", s=1)
    fork = state.fork("f", at=entry)
    assert fork.find("by", s=1).items == ["t/1"]
    fork.set("t/9", {"s": 1})
    assert fork.find("by", s=1).items == ["t/1", "t/9"]
    assert state.find("by", s=1).items == ["t/1"]
    assert store.verify().ok


def test_fork_while_a_lookup_is_built_has_it_whole(store: sync.Store) -> None:
    state = store.agent("a")
    with state.change() as change:
        for number in range(1200):
            change.set(f"t/{number:04}", {"s": number % 2})
    declared = state.declare(BY)
    for entry in range(declared, state._handle.place()[2] + 1):
        fork = state.fork(f"at {entry}", at=entry)
        assert len(fork.find("by", s=1).items) == 600
    assert store.verify().ok


def test_fork_of_what_is_whole_is_one_entry(store: sync.Store) -> None:
    state = store.agent("a")
    state.declare(BY)
    state.set("t/1", {"s": 1})
    fork = state.fork("f")
    assert [entry.kinds for entry in fork.log(limit=1)] == [("fork",)]
    assert fork.find("by", s=1).items == ["t/1"]


def test_fork_at_the_entry_of_a_restore_has_its_lookup_async(place: Place) -> None:
    entry = restored(place.open().agent("a"))

    async def main() -> None:
        async with holdfast.open(place.url, **place.options()) as store:
            fork = await store.agent("a").fork("f", at=entry)
            assert (await fork.find("by", s=1)).items == ["t/1"]

    asyncio.run(main())
