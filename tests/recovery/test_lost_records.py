"""What is kept of recoveries lost its newest entry: that is told of no report, and mended."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from store_kit import Place, put_row

from holdfast import Scope, sync
from holdfast.recovery.records import notices_scope, scope_of
from holdfast.store.names import rowkinds

AGENT = Scope("agent", "7")


def recovered(place: Place) -> None:
    """An agent that was recovered, alone and as one of a group."""
    with place.open() as store:
        states = [store.agent("7"), store.agent("8")]
        for state in states:
            state.set("k", 1)
        sync.checkpoints.CheckpointGroups(store).create(states, "good")
        recovery = sync.recovery.Recovery(store)
        recovery.recover(AGENT, "state_corruption")
        recovery.recover_group(states, "state_corruption")
        assert recovery.reports(AGENT)[0].signed
        assert recovery.group_reports()[0].signed


def lose_newest(place: Place, scope: Scope) -> None:
    """Drop the newest entry of a scope: of what recoveries keep, the checkpoint that signs it."""
    with place.open() as store:
        line = store._handle.line(scope).history.points.line()
        assert line.checkpoint == line.sequence
        key = rowkinds.entry(line.prefix, line.sequence)
    place.close()
    storage = place.storage()
    put_row(storage, key, None)
    storage.close()


WAYS: dict[str, Callable[[sync.Store], object]] = {
    "crash": lambda store: sync.recovery.Recovery(store).recover(AGENT, "agent_crash"),
    "damage": lambda store: sync.recovery.Recovery(store).recover(AGENT, "corruption_detected"),
    "each": lambda store: sync.recovery.Recovery(store).recover_each([AGENT], "agent_crash"),
    "resume": lambda store: sync.recovery.Recovery(store).resume(AGENT),
    "boot": sync.recovery.boot,
}


@pytest.mark.parametrize("way", WAYS)
def test_whoever_is_next_mends_it(place: Place, way: str) -> None:
    recovered(place)
    lose_newest(place, scope_of(AGENT))
    store = place.open()
    recovery = sync.recovery.Recovery(store)
    assert recovery.reports(AGENT)[0].signed is False
    assert not store.verify().ok
    WAYS[way](store)
    assert store.verify().ok
    first = recovery.reports(AGENT)[-1]
    assert first.signed  # a checkpoint behind it covers it again
    assert recovery.report(AGENT, first.id).signed
    (mended,) = recovery.reports(scope_of(AGENT))
    assert "which the feed names" in mended.lost
    WAYS[way](store)
    assert recovery.reports(scope_of(AGENT)) == [mended]  # it is told once


def test_a_group_is_not_signed_by_what_is_lost(place: Place) -> None:
    recovered(place)
    lose_newest(place, notices_scope())
    store = place.open()
    assert sync.recovery.Recovery(store).group_reports()[0].signed is False
    sync.recovery.boot(store)
    assert sync.recovery.Recovery(store).group_reports()[0].signed
    assert store.verify().ok
