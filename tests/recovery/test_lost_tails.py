"""Newest entries that were dropped: nothing but the feed knows of them, and the report says so."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from store_kit import Place, put_row, rows_of

from holdfast import sync
from holdfast.recovery.tails import Tails
from holdfast.store.feed_heads import FeedHeads

ALL = {"k": 1, "paid": "order 17"}


def worked(place: Place, more: int = 1) -> None:
    """An agent with a checkpoint and entries behind it."""
    with place.open() as store:
        state = store.agent("7")
        state.set("k", 1)
        state.checkpoint("good")
        for _ in range(more):
            state.set("paid", "order 17")


def drop(place: Place, count: int = 1) -> None:
    """Lose the newest entries of the agent."""
    place.close()
    storage = place.storage()
    for key, _ in rows_of(storage, b"E")[-count:]:
        put_row(storage, key, None)
    storage.close()


@pytest.mark.parametrize("kind", ["corruption_detected", "agent_crash", "state_corruption"])
def test_what_was_lost_is_named_and_its_trace_is_kept(place: Place, kind: str) -> None:
    worked(place, 3)
    drop(place, 2)
    store = place.open()
    recovery = sync.Recovery(store)
    lost = "entries 4 to 5, which the feed names"
    assert lost in recovery.plan("agent:7", kind).lost
    report = recovery.recover("agent:7", kind)
    assert report.success
    assert lost in report.lost
    assert lost in recovery.reports("agent:7")[0].lost
    (aside,) = recovery.quarantine("agent:7").list()
    assert "entry 4" in aside.place
    assert aside.content is None
    assert recovery.recover("agent:7", "agent_crash").lost == "nothing"  # it is told once


def test_procedures_without_a_backup_tell_of_it_too(place: Place) -> None:
    worked(place)
    drop(place)
    steps = [{"type": "validate_state"}]
    procedure = {"id": "look", "triggers": ["look"], "steps": steps}
    recovery = sync.Recovery(place.open(), procedures=[procedure])
    assert recovery.recover("agent:7", "look").lost == "entry 3, which the feed names"


@pytest.mark.parametrize("kind", ["corruption_detected", "agent_crash"])
def test_a_copy_gives_back_what_was_lost(tmp_path: Path, kind: str) -> None:
    place = Place("sqlite", tmp_path, sealed=True)
    worked(place, 3)
    place.close()
    copied = tmp_path / "copy.db"
    for path in place.path.parent.glob(f"{place.path.name}*"):
        shutil.copy(path, copied.with_name(path.name.replace(place.path.name, copied.name)))
    drop(place, 2)
    store = place.open()
    with sync.open(f"sqlite:{copied}", **place.options()) as copy:
        report = sync.Recovery(store, copies=[copy]).recover("agent:7", kind)
    assert report.lost == "nothing"
    assert dict(store.agent("7").items()) == ALL
    assert store.verify().ok


def test_boot_and_health_do_not_take_what_is_left_for_the_newest_state(place: Place) -> None:
    worked(place, 40)
    drop(place, 30)
    store = place.open()
    concerns = {one.kind for one in sync.Recovery(store).health("agent:7").concerns}
    assert "damaged_state" in concerns
    report = sync.boot(store)
    assert report.methods["agent:7"] != "primary"
    (item,) = report.items
    assert "entries 13 to 42, which the feed names" in item.why
    again = sync.boot(store)  # though the feed still names more entries than there are
    assert again.methods["agent:7"] == "primary"
    assert again.items == []


def test_the_feed_is_read_once_and_as_far_as_is_asked(place: Place) -> None:
    store = place.open()
    states: list[Any] = [store.agent(str(n)) for n in range(3)]
    for _ in range(5):
        for state in states:
            state.set("k", 1)
    number = states[0]._handle.history.points.line().ledger.number
    heads = FeedHeads(store._core.storage)
    assert heads.newest(number, 0, 1) == 0
    assert heads.newest(number, 0, 3) == 5
    other = place.open()
    other.agent("0").set("k", 2)
    other.agent("0").set("k", 3)
    assert heads.newest(number, 0, 3) == 7
    assert heads.newest(number, 0) == 7
    assert heads.newest(number, 1) == 0
    assert Tails(store._handle).lost(states[0].scope) is None


def test_a_group_tells_of_it_too(place: Place) -> None:
    worked(place, 3)
    drop(place, 2)
    store = place.open()
    store.agent("8").set("k", 1)
    recovery = sync.Recovery(store)
    report = recovery.recover_group(["agent:7", "agent:8"], "agent_crash")
    assert report.lost == {"agent:7": "entries 4 to 5, which the feed names"}
    assert "entries 4 to 5" in str(report)
    assert len(recovery.quarantine("agent:7").list()) == 1
    assert recovery.recover_group(["agent:7", "agent:8"], "agent_crash").lost == {}
