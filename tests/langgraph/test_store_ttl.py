"""Time to live: expired items are absent at once, reads renew, sweeps remove."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from datetime import timedelta
from typing import Any

import pytest
from langgraph.store.base import GetOp, SearchOp

import holdfast
from holdfast import sync
from holdfast.errors import DiskFullError, InvalidInputError
from holdfast.integrations.langgraph.store.langgraph_store import SCOPE, HoldfastStore
from holdfast.sync.access import Access


class Hands:
    """A wall clock that is moved by hand."""

    time = 1_700_000_000.0

    def __call__(self) -> float:
        return self.time

    def move(self, minutes: float) -> None:
        self.time += 60 * minutes


@pytest.fixture
def hands() -> Hands:
    return Hands()


@pytest.fixture
def base(store_url: str, hands: Hands) -> Iterator[sync.Store]:
    clock = holdfast.Clock(hands, hands)
    with sync.open(store_url, clock=clock, durability="normal") as store:
        yield store


@pytest.fixture
def items(base: sync.Store) -> HoldfastStore:
    return HoldfastStore(base, ttl={"default_ttl": 10})


def entries(base: sync.Store) -> int:
    return base.scope(SCOPE)._handle.place()[2]


def test_expired_is_absent_at_once(items: HoldfastStore, hands: Hands) -> None:
    items.put(("a",), "k", {"n": 1})
    items.put(("b",), "forever", {"n": 2}, ttl=None)
    items.put(("c",), "longer", {"n": 3}, ttl=20)
    assert len(items.search((), refresh_ttl=False)) == 3
    hands.move(10)
    assert items.get(("a",), "k") is None
    assert {hit.key for hit in items.search((), refresh_ttl=False)} == {"forever", "longer"}
    assert items.list_namespaces() == [("b",), ("c",)]
    hands.move(1000)
    assert [hit.key for hit in items.search(())] == ["forever"]


def test_an_item_put_over_an_expired_one_is_new(items: HoldfastStore, hands: Hands) -> None:
    items.put(("a",), "k", {"n": 1})
    first = items.get(("a",), "k")
    hands.move(11)
    items.put(("a",), "k", {"n": 2}, ttl=None)
    second = items.get(("a",), "k")
    assert first is not None
    assert second is not None
    assert second.created_at - first.created_at >= timedelta(minutes=11)
    hands.move(1000)
    assert items.get(("a",), "k") is not None


def test_reads_renew(items: HoldfastStore, hands: Hands) -> None:
    items.put(("a",), "got", {"n": 1})
    items.put(("a",), "found", {"n": 2})
    items.put(("a",), "left", {"n": 3})
    for _ in range(5):
        hands.move(6)
        assert items.get(("a",), "got") is not None
        assert [hit.key for hit in items.search((), filter={"n": 2})] == ["found"]
    assert items.get(("a",), "left") is None
    hands.move(6)
    assert items.get(("a",), "got", refresh_ttl=False) is not None
    hands.move(6)
    assert items.get(("a",), "got") is None


def test_a_renewal_changes_neither_value_nor_times(items: HoldfastStore, hands: Hands) -> None:
    items.put(("a",), "k", {"n": 1})
    before = items.get(("a",), "k")
    hands.move(6)
    items.get(("a",), "k")
    hands.move(6)
    assert items.get(("a",), "k") == before


def test_renewing_is_one_change_a_batch_and_rare(
    base: sync.Store, items: HoldfastStore, hands: Hands
) -> None:
    for number in range(20):
        items.put(("a",), str(number), {"n": number})
    before = entries(base)
    for _ in range(50):
        items.get(("a",), "1")
        items.search(("a",), limit=20)
    assert entries(base) == before
    hands.move(2)
    items.batch([SearchOp(("a",), limit=20), *(GetOp(("a",), str(n)) for n in range(20))])
    assert entries(base) == before + 1
    items.batch([SearchOp(("a",), limit=20)])
    assert entries(base) == before + 1


def test_refresh_on_read_can_be_off_by_default(base: sync.Store, hands: Hands) -> None:
    items = HoldfastStore(base, ttl={"default_ttl": 10, "refresh_on_read": False})
    items.put(("a",), "k", {"n": 1})
    hands.move(6)
    assert items.get(("a",), "k") is not None
    hands.move(6)
    assert items.get(("a",), "k") is None


def test_a_renewal_never_undoes_a_put(
    base: sync.Store, items: HoldfastStore, hands: Hands, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = HoldfastStore(base)
    items.put(("a",), "k", {"n": 1})
    hands.move(6)
    reader = items._handle.reader
    versioned = reader.versioned
    met: list[int] = []

    def slow(keys: Any) -> Any:
        found = versioned(keys)
        if not met:
            other.put(("a",), "k", {"n": 2}, ttl=10)  # between the read and its renewal
        met.append(1)
        return found

    monkeypatch.setattr(reader, "versioned", slow)
    items.get(("a",), "k")
    assert len(met) == 2
    item = items.get(("a",), "k")
    assert item is not None
    assert item.value == {"n": 2}


def test_a_renewal_that_cannot_be_written_fails_no_read(
    items: HoldfastStore, hands: Hands, monkeypatch: pytest.MonkeyPatch
) -> None:
    items.put(("a",), "k", {"n": 1})
    hands.move(6)

    def full(change: Any) -> Any:
        raise DiskFullError("no room is left")

    monkeypatch.setattr(items._core, "run", full)
    assert items.get(("a",), "k") is not None
    with pytest.raises(DiskFullError):
        items.put(("a",), "m", {"n": 1})


def test_a_store_opened_for_reading_renews_nothing(tmp_path: Any, hands: Hands) -> None:
    url, clock = f"sqlite:{tmp_path / 'store.db'}", holdfast.Clock(hands, hands)
    with HoldfastStore.open(url, clock=clock) as items:
        items.put(("a",), "k", {"n": 1}, ttl=10)
    hands.move(6)
    with HoldfastStore.open(url, clock=clock, read_only=True) as items:
        assert items.get(("a",), "k") is not None
        assert len(items.search(())) == 1


def test_who_may_only_read_renews_nothing(
    base: sync.Store, items: HoldfastStore, hands: Hands
) -> None:
    items.put(("a",), "k", {}, ttl=10)
    access = Access(base)
    access.grant("ann", SCOPE, "read")
    mine = HoldfastStore(access.as_("ann"))
    hands.move(6)
    assert mine.get(("a",), "k") is not None
    assert [one.key for one in mine.search(("a",))] == ["k"]
    hands.move(5)
    assert mine.get(("a",), "k") is None


def test_a_sweep_removes_what_is_expired(
    base: sync.Store, items: HoldfastStore, hands: Hands
) -> None:
    for number in range(30):
        items.put(("a",), str(number), {"n": number}, ttl=10 if number % 3 else None)
    assert items.sweep_ttl() == 0
    hands.move(10)
    assert items.sweep_ttl() == 20
    assert items.sweep_ttl() == 0
    assert len(base.scope(SCOPE).keys()) == 10
    assert len(items.search((), limit=99)) == 10
    assert asyncio.run(items.asweep_ttl()) == 0


def test_the_sweeper_runs_until_it_is_stopped(
    items: HoldfastStore, hands: Hands, monkeypatch: pytest.MonkeyPatch
) -> None:
    items.put(("a",), "k", {"n": 1})
    hands.move(11)
    swept = threading.Event()
    sweep = items.sweep_ttl

    def noted(_: HoldfastStore) -> int:
        count = sweep()
        swept.set()
        return count

    monkeypatch.setattr(HoldfastStore, "sweep_ttl", noted)
    future = items.start_ttl_sweeper(0.0005)
    assert items.start_ttl_sweeper(0.0005) is future
    assert swept.wait(60)
    assert items.stop_ttl_sweeper(60)
    assert future.result(60) is None
    assert items.stop_ttl_sweeper()
    again = items.start_ttl_sweeper(60)
    assert again.cancel()
    assert items.stop_ttl_sweeper(60)


def test_without_a_configuration_nothing_sweeps(base: sync.Store) -> None:
    future: Future[None] = HoldfastStore(base).start_ttl_sweeper()
    assert future.done()


def test_a_time_to_live_is_a_number_of_minutes(items: HoldfastStore) -> None:
    for wrong in (-1, float("nan"), float("inf"), "5", True):
        with pytest.raises(InvalidInputError, match="minutes"):
            items.put(("a",), "k", {"n": 1}, ttl=wrong)  # type: ignore[arg-type]
    items.put(("a",), "k", {"n": 1}, ttl=0.5)
