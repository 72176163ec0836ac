"""Every recovery ends, says how, and is never taken up again over what was done since."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from store_kit import Hands, Place

from holdfast import sync
from holdfast.errors import (
    HoldfastError,
    InvalidInputError,
    MissingError,
    RecoveryFailedError,
)
from holdfast.recovery.records import Record

NAIVE = datetime.now(UTC).replace(tzinfo=None)
STEPS = [{"type": "backup_current"}, {"type": "locate_checkpoint"}, {"type": "restore_state"}]


class Killed(BaseException):
    """The process is gone."""


def agent(store: sync.Store, name: str = "7") -> sync.State:
    """One with a good checkpoint, and a plan that was set after it."""
    state = store.agent(name)
    state.set("plan", "good")
    state.checkpoint("good")
    state.set("plan", "odd")
    return state


def killed(store: sync.Store, state: sync.State, step: str, failure: str = "drift") -> None:
    """A recovery that ends with a step, and another process long after its lease is over."""

    def progress(title: str, _: str) -> None:
        if title == step:
            raise Killed

    with pytest.raises(Killed):
        sync.recovery.Recovery(store).recover(state, failure, progress=progress)


def team(store: sync.Store) -> list[sync.State]:
    states = [agent(store, "a"), agent(store, "b")]
    for state in states:
        state.set("plan", "good")
    sync.checkpoints.CheckpointGroups(store).create(states, "together")
    for state in states:
        state.set("plan", "odd")
    return states


def test_who_cannot_be_told_of_progress_keeps_nobody_from_being_recovered(
    store: sync.Store, caplog: pytest.LogCaptureFixture
) -> None:
    state = agent(store)

    def progress(step: str, _: str) -> None:
        raise BrokenPipeError(f"nobody hears of {step}")

    report = sync.recovery.Recovery(store).recover(state, "drift", progress=progress)
    assert report.success
    assert "nobody hears of" in caplog.text


@pytest.mark.parametrize("step", ["locate_checkpoint", "restore_state", "update_tracking"])
def test_one_that_was_killed_is_not_taken_up_over_what_was_done_since(
    place: Place, step: str
) -> None:
    store = place.open()
    state = agent(store)
    killed(store, state, step)
    state.set("plan", "the work of a week")
    report = sync.recovery.boot(place.open())
    assert state.get("plan") == "the work of a week"
    (item,) = [one for one in report.items if one.kind == "recovery"]
    assert "others wrote since it began" in item.why
    assert item.outcome == "left", "nothing was rolled back"
    (kept,) = sync.recovery.Recovery(store).reports(state)
    assert kept.status == "failed"
    assert sync.recovery.Recovery(store).resume(state) == []


def test_what_is_no_work_keeps_none_from_being_taken_up(store: sync.Store) -> None:
    state = agent(store)
    killed(store, state, "restore_state")
    state.checkpoint("a schedule made this")
    sync.agents.Mailbox(state).send({"question": "are you there?"})  # which no restore takes back
    (report,) = sync.recovery.Recovery(store).resume(state)
    assert report.success
    assert state.get("plan") == "good"
    assert len(sync.agents.Mailbox(state).waiting()) == 1


@pytest.mark.parametrize("passes", ["read", "swept"])
def test_what_only_time_does_keeps_none_from_being_taken_up(
    timed: sync.Store, hands: Hands, passes: str
) -> None:
    state = agent(timed)
    state.set("login", "ann", ttl=1000, sliding=True)
    state.set("cache", 1, ttl=10)
    state.checkpoint("later")
    state.set("plan", "odd")
    recovery = sync.recovery.Recovery(timed)
    killed(timed, state, "restore_state")
    hands.move(900)
    if passes == "read":
        assert state.get("login") == "ann"
    else:
        assert timed.sweep().keys == 1
    assert state.log(limit=1)[0].cause.actor == "system"
    (report,) = recovery.resume(state)
    assert report.success, report.why
    killed(timed, state, "restore_state")
    state.expire("login", ttl=5)  # somebody wants that
    (report,) = recovery.resume(state)
    assert "others wrote since" in report.why


@pytest.mark.parametrize("step", ["locate_checkpoint", "restore_state", "update_tracking"])
@pytest.mark.parametrize("boot", [False, True])
def test_one_of_an_agent_that_was_deleted_since_has_failed(
    place: Place, step: str, boot: bool
) -> None:
    store = place.open()
    state = agent(store)
    killed(store, state, step)
    store.delete(state.scope)
    other = place.open()
    if boot:
        (item,) = sync.recovery.boot(other).items
        assert (item.scope, item.kind, item.outcome) == (state.scope, "recovery", "left")
    else:
        assert len(sync.recovery.Recovery(other).resume(state.scope)) == 1
    (report,) = sync.recovery.Recovery(other).reports(state.scope)
    assert report.status == "failed"
    assert report.why == "agent:7 was deleted since it began"
    assert sync.recovery.boot(other).items == []
    assert list(other.agent("7").log()) == []


def test_a_name_is_given_to_another_checkpoint_before_one_goes_on(store: sync.Store) -> None:
    state = agent(store)

    def progress(title: str, _: str) -> None:
        raise Killed

    with pytest.raises(Killed):
        sync.recovery.Recovery(store).recover(state, "drift", point="good", progress=progress)
    state.checkpoint("good")
    (report,) = sync.recovery.Recovery(store).resume(state)
    assert report.success
    assert state.get("plan") == "good"


def test_a_check_that_raises_fails_a_group_and_ends_it(place: Place) -> None:
    store = place.open()
    states = team(store)

    def check(state: Any) -> None:
        raise ValueError("a bug in the check")

    recovery = sync.recovery.Recovery(store, validate=[check])
    with pytest.raises(RecoveryFailedError, match="a bug in the check"):
        recovery.recover_group(states, "state_corruption")
    assert [recovery.reports(state)[0].status for state in states] == ["failed"] * 2
    for state in states:
        state.set("plan", "the work of a week")
    assert sync.recovery.boot(place.open()).items == []
    assert [state.get("plan") for state in states] == ["the work of a week"] * 2


@pytest.mark.parametrize("at", ["2026-01-01T00:00:00Z", "lunch", 5.5, -1, 10**9, NAIVE])
def test_what_is_no_time_is_refused_before_anything_is_kept(store: sync.Store, at: Any) -> None:
    states = team(store)
    recovery = sync.recovery.Recovery(store)
    with pytest.raises(InvalidInputError, match="the time to return to"):
        recovery.recover(states[0], "drift", at=at)
    with pytest.raises(InvalidInputError, match="the time to return to"):
        recovery.plan(states[0], "drift", at=at)
    assert recovery.reports(states[0]) == []


def test_what_was_asked_for_and_is_not_there_is_refused(store: sync.Store) -> None:
    state = agent(store)
    recovery = sync.recovery.Recovery(store)
    early = datetime.now(UTC) - timedelta(days=1)
    for what in ({"at": early}, {"point": "nope"}, {"point": 99}, {"point": "other@3"}):
        with pytest.raises(MissingError):
            recovery.recover(state, **what)
        with pytest.raises(MissingError):
            recovery.plan(state, **what)
    with pytest.raises(InvalidInputError, match="either point or at"):
        recovery.recover(state, point="good", at=datetime.now(UTC))
    assert recovery.reports(state) == []
    assert state.get("plan") == "odd"


def test_alarms_tell_of_those_that_never_end(store: sync.Store) -> None:
    state = agent(store)
    killed(store, state, "locate_checkpoint")
    recovery = sync.recovery.Recovery(store)
    found = recovery.statistics()
    assert (found.recoveries, found.running, found.alarms) == (1, 1, ())
    (alarm,) = recovery.statistics(slow=0).alarms
    assert alarm.startswith("agent:7: ")
    assert "has not ended for" in alarm
    recovery.resume(state)
    assert recovery.statistics().succeeded == 1
    with pytest.raises(InvalidInputError, match="slow"):
        recovery.statistics(slow=-1)


def test_every_recovery_that_ends_adds_one_notice(store: sync.Store) -> None:
    state = agent(store)
    recovery = sync.recovery.Recovery(store, validate=[lambda state: None])
    done = [
        recovery.recover(state, kind).id
        for kind in ("agent_crash", "state_corruption", "interrupted_handover", "of my own")
    ]
    bad = sync.recovery.Recovery(store, validate=[lambda state: "no"])
    bad.set({"id": "once", "triggers": ["once"], "steps": [*STEPS, {"type": "validate_state"}]})
    with pytest.raises(HoldfastError):
        bad.recover(state, "once")
    told = recovery.notices()
    assert [one.recovery for one in told] == [*done, recovery.reports(state)[0].id]
    assert [one.status for one in told] == ["succeeded"] * 4 + ["rolled_back"]
    assert [one.failure for one in told][:2] == ["agent_crash", "state_corruption"]


@pytest.mark.spec("K194", "K220")
def test_a_procedure_may_say_more_in_its_notice(store: sync.Store) -> None:
    state = agent(store)
    step = {"type": "notify_systems", "action": {"message": "the cache is cold"}}
    procedure = {"id": "p", "triggers": ["p"], "steps": [*STEPS, step]}
    sync.recovery.Recovery(store, procedures=[procedure]).recover(state, "p")
    assert [one.message for one in sync.recovery.Recovery(store).notices()] == ["the cache is cold"]


def test_a_step_that_was_killed_is_done_again_and_adds_once_by_an_id(store: sync.Store) -> None:
    state = agent(store)
    ends = [True]

    def pay(context: Any, action: Any) -> None:
        id_ = f"pay {context.record.id} {context.record.attempt}"
        with context.state.change(id=id_) as change:
            change.append("paid", 10)

    steps = [*STEPS, {"type": "pay"}]
    recovery = sync.recovery.Recovery(store, steps={"pay": pay})
    recovery.set({"id": "p", "triggers": ["odd"], "steps": steps})
    note = Record.note_result

    def lost(record: Any, part: str, result: Any, hold: bool = False) -> None:
        if result.step == "pay" and ends:
            ends.clear()
            raise Killed
        note(record, part, result, hold)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Record, "note_result", lost)
        with pytest.raises(Killed):
            recovery.recover(state, "odd")
    assert state.get("paid") == [10]
    (report,) = recovery.resume(state)
    assert report.success
    assert state.get("paid") == [10]


def test_what_is_over_holds_nothing_back(store: sync.Store) -> None:
    """Backups of restores are held until they are confirmed: those of recoveries by nobody."""

    def refuse(context: Any, action: Any) -> None:
        raise ValueError("no")

    a, b = agent(store, "a"), agent(store, "b")
    mine = a.restore("good").backup  # somebody else's, which stays held
    assert mine is not None
    failing = {"id": "f", "triggers": ["odd"], "steps": [*STEPS, {"type": "refuse"}], "retries": 1}
    recovery = sync.recovery.Recovery(
        store,
        steps={"refuse": refuse},
        procedures=[{**failing, "backoff": 1}],
        order=["newest_valid"],
    )
    a.set("plan", "odd")
    with pytest.raises(RecoveryFailedError):
        recovery.recover(a, "odd")
    assert recovery.reports(a)[0].status == "rolled_back"
    recovery.recover(a, "corruption_detected", procedure="standard_recovery", point="good")
    assert a.get("plan") == "good"
    groups = sync.checkpoints.CheckpointGroups(store)
    groups.create([a, b], "both")
    for state in (a, b):
        state.set("plan", "odd")
    recovery.recover_group([a, b], "state_corruption", point="both")
    assert a.get("plan") == "good"
    assert [one.checkpoint.id for one in sync.checkpoints.Checkpoints(a).held()] == [mine.id]
    assert sync.checkpoints.Checkpoints(b).held() == []
    assert store.verify().ok
