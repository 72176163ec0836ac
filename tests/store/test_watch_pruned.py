"""Readers of the feed where entries were pruned: told of it, they get past these and no others."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator

import pytest
from store_kit import Place

import holdfast
from holdfast import Entry, Position, sync
from holdfast.errors import PrunedError

Told = tuple[str, str, int]


def told(entry: Entry) -> Told:
    return str(entry.scope), entry.timeline, entry.sequence


def by_line(entries: list[Told]) -> dict[tuple[str, str], list[int]]:
    """Order holds within a timeline."""
    found: dict[tuple[str, str], list[int]] = {}
    for scope, timeline, sequence in entries:
        found.setdefault((scope, timeline), []).append(sequence)
    return found


def busy(store: sync.Store, seed: int = 1) -> list[Told]:
    """Several scopes and timelines, two of them pruned; what can still be had of them."""
    choose = random.Random(seed)
    noisy, shop = store.agent("noisy"), store.session("shop")
    noisy.set("k", 0)
    fork = noisy.fork("side")
    for number in range(60):
        one = choose.choice([noisy, noisy, fork, shop])
        if choose.random() < 0.2:
            with store.change() as change:  # one row of the feed
                for state in choose.sample([noisy, shop], 2):
                    change[state].set("k", number)
        else:
            one.set(f"order/{number % 7}", number)
    for state in (noisy, fork):
        state.checkpoint("c")
        state.prune("c")
        state.set("k", "later")
    shop.set("last", 1)
    return [
        told(entry) for state in (noisy, fork, shop) for entry in reversed(state.log(limit=1000))
    ]


def by_position(read: Callable[[Position], Iterator[Entry]]) -> tuple[list[Told], int]:
    """Read on from what the error says until there is nothing left."""
    found: list[Told] = []
    position, gaps = Position({}), 0
    while True:
        try:
            for entry in read(position):
                assert entry.position is not None
                position = entry.position
                found.append(told(entry))
            return found, gaps
        except PrunedError as error:
            assert isinstance(error.position, Position)
            assert error.position != position
            position, gaps = error.position, gaps + 1


@pytest.mark.parametrize("how", ["feed", "watch"])
def test_nothing_but_what_was_pruned_is_passed_over(place: Place, how: str) -> None:
    store = place.open()
    rest = by_line(busy(store))

    def read(since: Position, past_pruned: bool = False) -> Iterator[Entry]:
        if how == "feed":
            return store.feed(since, past_pruned=past_pruned)
        return iter(store.watch(since=since, timeout=0, past_pruned=past_pruned))

    found, gaps = by_position(read)
    assert gaps > 2
    skipped = [told(entry) for entry in read(Position({}), past_pruned=True)]
    assert by_line(found) == by_line(skipped)
    whole = by_line(skipped)
    assert whole["session:shop", "main"] == list(
        range(1, store.session("shop")._handle.place()[2] + 1)
    )
    for line in rest:
        assert set(rest[line]) <= set(whole[line])


@pytest.mark.parametrize("how", ["feed", "watch"])
def test_in_an_event_loop(place: Place, how: str) -> None:
    """What was read before the gap is given before the error."""
    with place.open() as store:
        busy(store)
        expected = by_line([told(entry) for entry in store.feed(past_pruned=True)])

    async def main() -> None:
        async with holdfast.open(place.url, **place.options()) as store:
            found: list[Told] = []
            position = Position({})
            while True:
                rows = (
                    store.feed(position)
                    if how == "feed"
                    else store.watch(since=position, timeout=0)
                )
                try:
                    async for entry in rows:
                        found.append(told(entry))
                    break
                except PrunedError as error:
                    position = Position(error.position or {})
            assert by_line(found) == expected
            skipped = [told(entry) async for entry in store.feed(past_pruned=True)]
            assert by_line(skipped) == expected
            watch = store.watch(since=Position({}), timeout=0, past_pruned=True)
            assert by_line([told(entry) async for entry in watch]) == expected

    asyncio.run(main())


def test_the_error_names_the_timeline_and_stays(plain: Place) -> None:
    """A watch that is merely asked again passes over nothing."""
    store = plain.open()
    busy(store)
    watch = store.scope("agent:noisy").watch(since=Position({}), timeout=0)
    for _ in range(2):
        with pytest.raises(PrunedError, match=r"entry \d+ of main was pruned.*past_pruned"):
            list(watch)
    with pytest.raises(PrunedError, match=r"of side was pruned"):
        list(store.agent("noisy").on("side").watch(since=Position({}), timeout=0))
    with pytest.raises(PrunedError) as caught:
        store.agent("noisy").at(3)
    assert caught.value.position is None


def test_another_timeline_that_was_pruned_is_not_in_the_way(plain: Place) -> None:
    store = plain.open()
    state = store.agent("a")
    state.set("k", 1)
    pruned, whole = state.fork("pruned"), state.fork("whole")
    for number in range(5):
        pruned.set("k", number)
        whole.set("k", number)
    pruned.prune(pruned.checkpoint("c"))
    found = list(whole.watch(since=Position({}), timeout=0))
    assert [entry.sequence for entry in found] == list(range(1, 7))
    assert {entry.timeline for entry in found} == {"whole"}


@pytest.mark.parametrize("how", ["feed", "watch"])
def test_one_error_for_all_that_was_pruned_of_a_timeline(place: Place, how: str) -> None:
    store = place.open()
    state, other = store.agent("clerk"), store.agent("other")
    for number in range(100):
        state.set("note", number)
    state.prune(90)
    for number in range(20):
        other.set("note", number)
    other.prune(10)

    def read(since: Position) -> Iterator[Entry]:
        if how == "feed":
            return store.feed(since)
        return iter(store.watch(since=since, timeout=0))

    found, gaps = by_position(read)
    assert gaps == 2, "one of each: who reads the state of one does not know of the other"
    whole = [told(entry) for entry in store.feed(past_pruned=True)]
    assert by_line(found) == by_line(whole)
    mine = list(state.watch(since=Position({}), timeout=0, past_pruned=True))
    with pytest.raises(PrunedError) as caught:
        list(state.watch(since=Position({}), timeout=0))
    again = state.watch(since=caught.value.position, timeout=0)
    assert [told(entry) for entry in again] == [told(entry) for entry in mine]
