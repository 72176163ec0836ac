"""Cells of leases and schedules that are damaged: the others go on, and they can be mended."""

from __future__ import annotations

from typing import Any

import pytest
from store_kit import Hands, Place

from holdfast import sync
from holdfast.checkpoints.scheduler import LEASE
from holdfast.errors import DamagedRecordError
from holdfast.storage.contract import Batch


def flip(place: Place, low: bytes, length: int) -> None:
    """Flip a bit in each cell whose key begins so and is so long."""
    storage = place.storage()
    for key, row in storage.cells(low, low + b"\xff" * 32):
        if len(key) == length:
            storage.commit(Batch(cells=[(key, row, row[:-1] + bytes([row[-1] ^ 1]))]))


TOKENS, SCHEDULES, COUNT = (b"CL", 19), (b"CT", 18), (b"CT", 2)


@pytest.mark.parametrize("given_back", [True, False])
def test_a_damaged_lease_is_named_and_can_be_broken(place: Place, given_back: bool) -> None:
    store = place.open()
    with store.lease("mine") as lease:
        term = lease.term
        if not given_back:
            flip(place, *TOKENS)
    if given_back:
        flip(place, *TOKENS)
    with store.lease("other"):
        pass
    damaged, other = store.leases()
    assert (damaged.name.split()[0], other.name) == ("lease", "other")
    assert damaged.damage is not None
    assert other.damage is None
    with pytest.raises(DamagedRecordError, match="break_lease"), store.lease("mine", wait=0):
        pass
    assert store.break_lease("mine") is None
    with store.lease("mine", wait=0) as again:
        assert again.term > term
    assert store.verify().findings == []


def test_a_damaged_lease_can_be_removed(place: Place) -> None:
    store = place.open()
    for name in ("mine", "other"):
        with store.lease(name):
            pass
    storage = place.storage()
    key = store._core.leases.key_of("mine")
    row = dict(storage.cells(key, key + b"\0"))[key]
    storage.commit(Batch(cells=[(key, row, row[:-1] + bytes([row[-1] ^ 1]))]))
    (finding,) = store.verify().findings
    assert finding.place.startswith("lease (")
    assert store._core.leases.drop_damaged() == 1
    assert store.verify().findings == []
    assert [lease.name for lease in store.leases()] == ["other"]


def test_a_lease_that_is_mended_meanwhile_stays(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was broken and taken by another between the look and the removal."""
    store = place.open()
    with store.lease("mine"):
        pass
    flip(place, *TOKENS)
    leases = store._core.leases
    read = leases._cells

    def mended_first(key: bytes) -> Any:
        monkeypatch.setattr(leases, "_cells", read)
        store.break_lease("mine")
        leases.take("mine", 30, "another")
        return read(key)

    monkeypatch.setattr(leases, "_cells", mended_first)
    assert leases.drop_damaged() == 0
    (lease,) = store.leases()
    assert (lease.owner, lease.damage) == ("another", None)


def test_a_damaged_schedule_is_named_replaced_or_removed(place: Place) -> None:
    hands = Hands()
    store = place.open(clock=hands.clock)
    scheduler = sync.checkpoints.Scheduler(store)
    agents = [store.agent(name) for name in ("a", "b")]
    for agent in agents:
        agent.set("x", 1)
        scheduler.every(10, agent)
    flip(place, *SCHEDULES)
    scheduler.every(10, store.agent("c"))
    store.agent("c").set("x", 1)
    found = scheduler.schedules()
    assert [one.damage is None for one in found].count(True) == 1
    assert all(one.name.startswith("schedule (") for one in found if one.damage is not None)
    assert all(one.place.startswith("schedule (") for one in store.verify().findings)
    hands.move(11)
    assert [run.schedule for run in scheduler.run_due()] == ["agent:c"]
    scheduler.remove("agent:a")
    scheduler.every(10, agents[1])
    assert [one.name for one in scheduler.schedules()] == ["agent:b", "agent:c"]
    assert store.verify().findings == []


def test_the_count_of_schedules_is_mended_by_the_next_change(place: Place) -> None:
    store = place.open()
    scheduler = sync.checkpoints.Scheduler(store)
    scheduler.every(10, store.agent("a"))
    scheduler.run_due()
    flip(place, *COUNT)
    assert [one.place for one in store.verify().findings] == ["count of schedules"]
    scheduler.every(10, store.agent("b"))
    assert store.verify().findings == []


def test_the_lease_of_the_schedules_can_be_broken(place: Place) -> None:
    hands = Hands()
    store = place.open(clock=hands.clock)
    agent = store.agent("a")
    agent.set("x", 1)
    scheduler = sync.checkpoints.Scheduler(store)
    scheduler.every(10, agent)
    scheduler.run_due()
    scheduler.stop()
    flip(place, *TOKENS)
    hands.move(11)
    with pytest.raises(DamagedRecordError, match="break_lease"):
        scheduler.run_due()
    store.break_lease(LEASE)
    assert [run.outcome for run in scheduler.run_due()] == ["saved"]
