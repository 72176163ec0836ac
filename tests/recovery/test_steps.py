"""Each type of step does what its name says."""

from __future__ import annotations

import os
from typing import Any

import pytest
from store_kit import Place, put_row, rows_of

from holdfast import sync
from holdfast.agents import Task
from holdfast.errors import CriticalStepFailureError, RecoveryFailedError
from holdfast.recovery import AgentFailure
from holdfast.store.names import rowkinds


def agent(store: sync.Store) -> sync.State:
    """One with a good checkpoint, and a plan that was set after it."""
    state = store.agent("7")
    state.set("task", {"id": 1})
    state.checkpoint("good")
    state.set("plan", "bad")
    return state


def run(store: sync.Store, *types: str, **more: Any) -> dict[str, Any]:
    """What steps of these types come to."""
    steps = [{"type": one} for one in types]
    procedure = {"id": "p", "triggers": [], "steps": steps}
    recovery = sync.recovery.Recovery(store, procedures=[procedure], **more)
    report = recovery.recover("agent:7", AgentFailure("state_corruption"), procedure="p")
    return {one.step: dict(one.result) for _, one in report.steps}


@pytest.mark.spec("K188", "K214")
def test_backup_current_keeps_the_state_as_it_is(store: sync.Store) -> None:
    state = agent(store)
    result = run(store, "backup_current")["backup_current"]
    made = next(one for one in state.checkpoints() if one.id == result["backup"])
    assert (made.type, made.name[:15]) == ("recovery", "before recovery")
    assert state.at(made).get("plan") == "bad"


@pytest.mark.spec("K189", "K215")
def test_locate_checkpoint_finds_where_to_go_and_says_why_not_elsewhere(store: sync.Store) -> None:
    agent(store)
    result = run(store, "backup_current", "locate_checkpoint")["locate_checkpoint"]
    assert (result["strategy"], result["point"]) == ("newest_valid", "main@2")
    assert result["passed"] == {}
    order = {"strategies": ["named", "keys", "newest_valid"]}
    locate = {"type": "locate_checkpoint", "action": order}
    procedure = {"id": "look", "triggers": ["look"], "steps": [{"type": "backup_current"}, locate]}
    report = sync.recovery.Recovery(store, procedures=[procedure]).recover("agent:7", "look")
    assert (
        report.passed
        == dict(report.steps[-1][1].result["passed"])
        == {
            "named": "nobody named a point",
            "keys": "no key of the newest state is damaged",
        }
    )


@pytest.mark.spec("K190", "K216")
def test_verify_integrity_reads_all_of_the_state_to_return_to(plain: Place) -> None:
    place = plain
    agent(place.open())
    steps = ("backup_current", "locate_checkpoint", "spoil", "verify_integrity")

    def spoil(context: Any, action: Any) -> None:
        core = context.handle.core
        ledger = core.ledger(context.agent)
        key = rowkinds.entry(rowkinds.line(b"E", ledger.number, 0), 1)
        storage = place.storage()
        row = storage.get([key])[0]
        assert row is not None
        put_row(storage, key, row[:-3] + bytes([row[-3] ^ 1]) + row[-2:])
        storage.close()
        core.forget(ledger)

    found = run(place.open(), *steps[:2], "verify_integrity")["verify_integrity"]
    assert found == {"values": 1}
    with pytest.raises(RecoveryFailedError, match="verify_integrity - DamagedRecordError"):
        run(place.open(), *steps, steps={"spoil": spoil})


@pytest.mark.spec("K191", "K217", "K196")
def test_restore_state_returns_to_it(store: sync.Store) -> None:
    state = agent(store)
    result = run(store, "backup_current", "locate_checkpoint", "restore_state")["restore_state"]
    assert state.get("plan") is None
    assert result["restored"].startswith("main@")
    assert result["lost"] == "1 entries after it"


@pytest.mark.spec("K192", "K218", "K172")
def test_validate_state_asks_every_check(store: sync.Store) -> None:
    agent(store)
    asked: list[Any] = []
    checks = [lambda state: asked.append(state.get("task")), lambda state: True]
    assert run(store, "validate_state", validate=checks)["validate_state"]["checks"] == 2
    assert asked == [{"id": 1}]
    with pytest.raises(CriticalStepFailureError, match="no plan"):
        run(store, "validate_state", validate=[lambda state: "no plan"])


@pytest.mark.spec("K193", "K219")
def test_update_tracking_tells_the_agent_which_recovery_it_went_through(store: sync.Store) -> None:
    state = agent(store)
    run(store, "update_tracking")
    said = state.get("$recovery/last")
    assert said["failure"] == "state_corruption"
    assert said["recovery"] == sync.recovery.Recovery(store).reports(state)[0].id
    state.restore("good")
    assert state.get("$recovery/last") == said


@pytest.mark.spec("K195", "K221")
def test_cleanup_lets_go_of_what_the_restore_held(store: sync.Store) -> None:
    state = agent(store)
    steps = ("backup_current", "locate_checkpoint", "restore_state")
    held: list[int] = []

    def look(context: Any, action: Any) -> None:
        held.append(
            sum(one.why == "restore" for one in sync.checkpoints.Checkpoints(context.state).held())
        )

    own = {"look": look}
    result = run(store, *steps, "cleanup", "look", steps=own)["cleanup"]
    assert result["released"] >= 1
    state.set("plan", "bad again")
    run(store, *steps, "look", steps=own)
    assert held == [0, 1]
    assert (
        sync.checkpoints.Checkpoints(state).held() == []
    )  # without it, the end of the recovery does it


@pytest.mark.spec("K204", "K205")
def test_every_recovery_comes_to_an_end_that_is_kept(store: sync.Store) -> None:
    agent(store)
    run(store, "validate_state")
    with pytest.raises(CriticalStepFailureError) as caught:
        run(store, "validate_state", validate=[lambda state: "no"])
    recovery = sync.recovery.Recovery(store)
    reports = recovery.reports("agent:7")
    assert [one.status for one in reports] == ["rolled_back", "succeeded"]
    assert all(one.finished_at is not None for one in reports)
    assert caught.value.recovery == reports[0].id
    assert recovery.statistics().running == 0


@pytest.mark.parametrize("kind", ["state_corruption", "interrupted_handover"])
def test_a_task_that_was_handed_over_is_not_had_by_two_afterwards(place: Place, kind: str) -> None:
    store = place.open()
    giver, taker = store.agent("giver"), store.agent("taker")
    sync.agents.AgentState(giver).put("tasks", "t1", Task(id="t1", title="refund"))
    safe = giver.checkpoint("safe")
    sync.agents.Handovers(store).hand_over(giver, taker, "t1", reason="theirs")
    if kind == "interrupted_handover":
        giver.restore(safe)  # by hand: both have it
    assert sync.recovery.Recovery(store).recover(giver, kind).success
    assert sync.agents.AgentState(giver).ids("tasks") == []
    assert sync.agents.AgentState(taker).ids("tasks") == ["t1"]


def test_damage_keeps_no_handover_from_being_recovered(place: Place) -> None:
    store = place.open()
    giver, taker = store.agent("giver"), store.agent("taker")
    sync.agents.AgentState(giver).put("tasks", "t1", Task(id="t1", title="refund"))
    giver.set("notes", "few")
    safe = giver.checkpoint("safe")
    sync.agents.Handovers(store).hand_over(giver, taker, "t1", reason="theirs")
    giver.restore(safe)
    giver.set("notes", os.urandom(50_000))
    place.close()
    storage = place.storage()
    for key, row in rows_of(storage, b"V"):
        put_row(storage, key, row[:-3] + bytes([row[-3] ^ 1]) + row[-2:])
    storage.close()
    store = place.open()
    report = sync.recovery.Recovery(store).recover("agent:giver", "interrupted_handover")
    assert (report.strategy, report.attempts) == ("journal", 1)
    giver, taker = store.agent("giver"), store.agent("taker")
    assert giver.get("notes") == "few"
    assert sync.agents.AgentState(giver).ids("tasks") == []
    assert sync.agents.AgentState(taker).ids("tasks") == ["t1"]
