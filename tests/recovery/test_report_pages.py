"""Reports say all that is known."""

from __future__ import annotations

import logging

import pytest
from store_kit import Place

from holdfast import sync


def test_a_recovery_that_succeeded_says_what_was_lost_and_how_long_steps_took(
    store: sync.Store,
) -> None:
    state = store.agent("7")
    state.set("plan", 1)
    state.checkpoint("good")
    state.set("plan", 2)
    report = sync.recovery.Recovery(store).recover(state, "state_corruption")
    text = str(report)
    assert "lost: 1 entries after it" in text
    assert "served: newest_valid, main@2" in text
    assert "1 | steps | restore_state | done | 0." in text


@pytest.mark.parametrize("signed", [True, False])
def test_a_page_says_signed_only_of_what_is(place: Place, signed: bool) -> None:
    store = place.open()
    states = [store.agent("7"), store.agent("8")]
    for state in states:
        state.set("plan", 1)
    store._core.signer = store._core.signer if signed else None  # as one that is not here
    recovery = sync.recovery.Recovery(store)
    sync.checkpoints.CheckpointGroups(store).create(states, "both")
    alone = recovery.recover("agent:7", "agent_crash")
    scope = "custom:$recovery/agent:7"
    for report in (alone, recovery.recover_group(states, "agent_crash")[states[0].scope]):
        assert report.signed == signed == bool(store.scope(scope).checkpoints()[0].signed_by)
        page = str(report)
        assert ("kept and signed in" in page) == signed
        assert ("kept, unsigned, in" in page) == (not signed)


def test_that_an_agent_begins_with_defaults_is_said_and_logged(
    store: sync.Store, caplog: pytest.LogCaptureFixture
) -> None:
    state = store.agent("7")
    state.set("plan", 1)
    recovery = sync.recovery.Recovery(
        store, defaults={"plan": 0}, order=["newest_valid", "defaults"]
    )
    with caplog.at_level(logging.WARNING, "holdfast.recovery"):
        report = recovery.recover(state, "state_corruption")
    assert state.get("plan") == 0
    assert "defaults" in report.warning
    assert "warning" in str(report)
    assert [report.id in one.getMessage() for one in caplog.records] == [True]
    state.checkpoint("good")
    caplog.clear()
    assert recovery.recover(state, "state_corruption").warning == ""
    assert not caplog.records
