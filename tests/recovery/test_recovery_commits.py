"""How little a recovery commits, and the lease that its steps are done under."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from store_kit import Place
from test_recovery_killed import faulty

from holdfast import sync
from holdfast.errors import LeaseLostError
from holdfast.recovery.records import Record
from holdfast.recovery.run import Slot, recovering, recovering_lease
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
        # The lease; that it begins, and the state before; how it ended; the lease.
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


def test_a_slot_that_was_ended_writes_nothing_more_and_others_go_on(place: Place) -> None:
    store, other = place.open(), place.open()
    store.agent("7").set("k", 1)
    go_on = threading.Event()

    def late() -> None:
        assert go_on.wait(SECONDS)
        store.agent("7").set("late", True)

    with recovering(store, AGENT, 0):
        assert owners(store) == {recovering_lease(AGENT): True}
        first, second = Slot(), Slot()
        hangs = first.do(late)
        first.end()
        go_on.set()
        assert isinstance(hangs.exception(SECONDS), LeaseLostError)
        second.do(lambda: store.agent("7").set("k", 2)).result(SECONDS)
        other.break_lease(recovering_lease(AGENT))
        broken = second.do(lambda: store.agent("7").set("k", 3))
        assert isinstance(broken.exception(SECONDS), LeaseLostError)
        second.end()
    assert store.agent("7").items() == [("k", 2)]


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
