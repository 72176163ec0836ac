"""How little a recovery commits, and the leases of its steps, which come with that of the agent."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from store_kit import Place
from test_recovery_killed import faulty

from holdfast import sync
from holdfast.errors import LeaseHeldError, LeaseLostError
from holdfast.recovery.records import Record
from holdfast.recovery.run import Slot, recovering, recovering_lease
from holdfast.store.lease import Asking, Lease, leases_now, taken
from holdfast.store.names.scope import Scope

SECONDS = 60
"""After which something hangs."""
AGENT = Scope("agent", "7")


def owners(store: sync.Store) -> dict[str, bool]:
    """Leases, and whether somebody holds them."""
    return {one.name: one.owner is not None for one in store.leases()}


def test_a_recovery_that_finds_all_well_commits_four_times(place: Place) -> None:
    with place.open() as store:
        store.agent("7").set("task", 1)
    store, storage = faulty(place)
    recovery = sync.recovery.Recovery(store)
    for _ in range(2):
        before = storage.calls["commit"]
        report = recovery.recover("agent:7", "agent_crash")
        # Leases; that it begins, and the state before; how it ended; leases.
        assert storage.calls["commit"] - before == 4
        assert report.success
    assert set(owners(store).values()) == {False}
    assert len(recovery.reports("agent:7")) == 2
    storage.close()


def test_the_beginning_is_kept_before_a_step_of_a_users_own(store: sync.Store) -> None:
    state = store.agent("7")
    state.set("task", 1)
    seen: list[str] = []

    def mine(context: Any, action: Any) -> None:
        seen.extend(one.status for one in sync.recovery.Recovery(store).reports("agent:7"))

    recovery = sync.recovery.Recovery(store, steps={"mine": mine})
    steps: list[Any] = [{"type": "mine"}, {"type": "backup_current"}]
    recovery.set({"id": "p", "triggers": ["odd"], "steps": steps})
    recovery.recover(state, "odd")
    assert seen == ["running"]


@pytest.fixture
def both(store: sync.Store) -> Iterator[Lease]:
    """The lease of an agent's recovery, with that of its first slot."""
    with recovering(store, AGENT, 0):
        yield leases_now()[-1]


def test_leases_that_are_taken_along_are_given_back_along(store: sync.Store) -> None:
    with recovering(store, AGENT, 0):
        assert owners(store) == {
            recovering_lease(AGENT): True,
            recovering_lease(AGENT, "0"): True,
        }
        with pytest.raises(LeaseHeldError):
            taken(Asking(store._core, recovering_lease(AGENT, "0"), 30, 0, None))
    assert set(owners(store).values()) == {False}
    with recovering(store, AGENT, 0):
        assert [one.term for one in store.leases()] == [2, 2]


def test_what_is_taken_along_is_taken_from_who_has_it(place: Place) -> None:
    store, other = place.open(), place.open()
    slot = taken(Asking(other._core, recovering_lease(AGENT, "0"), 30, 0, None))
    with recovering(store, AGENT, 0), slot.fencing(), pytest.raises(LeaseLostError):
        other.agent("7").set("late", True)
    own = taken(Asking(store._core, recovering_lease(AGENT, "0"), 30, 0, None))
    with recovering(store, AGENT, 0):
        assert own.over


def test_nothing_is_taken_along_if_the_first_is_held(place: Place) -> None:
    store, other = place.open(), place.open()
    slot = taken(Asking(other._core, recovering_lease(AGENT, "0"), 30, 0, None))
    with other.lease(recovering_lease(AGENT)), pytest.raises(LeaseHeldError):  # noqa: SIM117
        with recovering(store, AGENT, 0):
            pytest.fail("two recover it")
    with slot.fencing():
        other.agent("7").set("k", 1)
    slot.release()


def test_a_slot_that_is_given_up_or_busy_hands_its_lease_to_nobody(
    store: sync.Store, both: Lease
) -> None:
    store.agent("7").set("k", 1)
    go_on, over = threading.Event(), threading.Event()
    refused: list[bool] = []

    def late() -> None:
        assert go_on.wait(SECONDS)
        try:
            store.agent("7").set("late", True)
            refused.append(False)
        except LeaseLostError:
            refused.append(True)
        over.set()

    name = recovering_lease(AGENT, "0")
    first = Slot(store, name)
    assert first._lease is both.along
    first.close(idle=True)
    again = Slot(store, name)
    assert again._lease is both.along
    again.do(late)
    again.close(idle=False)  # its step is still at work
    third = Slot(store, name)
    assert third._lease is not both.along
    go_on.set()
    assert over.wait(SECONDS)
    assert refused == [True]
    third.close(idle=True)
    assert owners(store)[name] is False


def test_what_came_with_a_lease_that_others_broke_is_given_back(place: Place) -> None:
    store, other = place.open(), place.open()
    with recovering(store, AGENT, 0):
        other.break_lease(recovering_lease(AGENT))
        assert owners(other)[recovering_lease(AGENT, "0")]
    assert not any(owners(other).values())


def test_a_backup_is_made_also_if_a_step_beside_kept_the_beginning(
    store: sync.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = store.agent("7")
    state.set("k", 1)
    state.checkpoint("good")
    note = Record.note

    def kept_meanwhile(record: Record, *, hold: bool = False, **fields: Any) -> None:
        note(record, hold=hold, **fields)
        record.flush()

    monkeypatch.setattr(Record, "note", kept_meanwhile)
    report = sync.recovery.Recovery(store).recover("agent:7", "agent_crash")
    assert report.success
    assert len(state.checkpoints(type="recovery")) == 1
