"""What is asked of a recovery is done, or refused with what to do: points, checks, procedures."""

from __future__ import annotations

import datetime as dt
import sys
from typing import Any

import pytest

from holdfast import sync
from holdfast.errors import InvalidInputError, ProcedureValidationError, RecoveryFailedError
from holdfast.recovery import AgentFailure

RESTORING = [{"type": "backup_current"}, {"type": "locate_checkpoint"}, {"type": "restore_state"}]


def agent(store: sync.Store) -> sync.State:
    """One with two checkpoints, and more since."""
    state = store.agent("7")
    state.set("k", 1)
    state.checkpoint("good")
    state.set("k", 2)
    state.checkpoint("newer")
    state.set("k", 3)
    return state


def procedure(steps: list[Any], **more: Any) -> dict[str, Any]:
    return {"id": "p", "triggers": ["p"], "steps": steps, **more}


@pytest.mark.parametrize("steps", [["locate_checkpoint"], ["backup_current", "validate_state"]])
def test_a_point_is_refused_if_the_procedure_restores_nothing(
    store: sync.Store, steps: list[str]
) -> None:
    state = agent(store)
    made = procedure([{"type": one} for one in steps])
    recovery = sync.recovery.Recovery(store, procedures=[made])
    for asked in ({"point": "good"}, {"at": dt.datetime.now(dt.UTC)}):
        with pytest.raises(InvalidInputError, match=r"restores nothing.*standard_recovery"):
            recovery.recover(state, "p", **asked)
        with pytest.raises(InvalidInputError, match="restores nothing"):
            recovery.plan(state, "p", **asked)
    assert recovery.reports(state) == []
    assert recovery.recover(state, "p").success
    assert recovery.recover(state, "p", procedure="standard_recovery", point="good").success
    assert state.get("k") == 1


def test_a_step_of_ones_own_may_return_to_a_point(store: sync.Store) -> None:
    state = agent(store)
    recovery = sync.recovery.Recovery(
        store,
        steps={"back": lambda context, action: context.state.restore(context.failure.point) and {}},
        procedures=[procedure([{"type": "backup_current"}, {"type": "back"}])],
    )
    assert recovery.recover(state, "p", point="good").success
    assert state.get("k") == 1


def test_a_failure_with_a_point_and_a_time_beside_it_is_refused(store: sync.Store) -> None:
    state, now = agent(store), dt.datetime.now(dt.UTC)
    recovery = sync.recovery.Recovery(store)
    for failure, asked in (
        (AgentFailure(point="good"), {"at": now}),
        (AgentFailure(at=now), {"point": 2}),
    ):
        with pytest.raises(InvalidInputError, match="give either point or at"):
            recovery.recover(state, failure, **asked)  # type: ignore[arg-type]
    recovery.recover(state, AgentFailure(point="newer"), point="good")  # the one beside it stands
    assert state.get("k") == 1


def test_evidence_that_cannot_be_kept_is_refused_at_once(store: sync.Store) -> None:
    state = agent(store)
    recovery = sync.recovery.Recovery(store)
    failure = AgentFailure("drift", evidence={"seen": object()})
    for call in (recovery.recover, recovery.plan):
        with pytest.raises(InvalidInputError, match=r"evidence.*seen"):
            call(state, failure)  # type: ignore[operator]
    with pytest.raises(InvalidInputError, match="evidence"):
        recovery.recover_group([state], failure)
    with pytest.raises(InvalidInputError, match="evidence"):
        recovery.recover_each([state], failure)
    assert recovery.reports(state) == []


def test_checks_are_asked_whatever_the_procedure(store: sync.Store) -> None:
    state = agent(store)
    recovery = sync.recovery.Recovery(
        store,
        validate=[lambda seen: seen.get("k") == 1 or "not that"],
        procedures=[procedure(RESTORING)],
    )
    assert recovery.plan(state, "p").point == "main@2"
    report = recovery.recover(state, "p")
    assert (report.restored_from, state.get("k")) == ("main@2", 1)
    assert [one.step for part, one in report.steps if part == "validation"] == ["validate_state"]


def test_a_state_that_checks_refuse_is_not_left_behind_by_a_step_of_ones_own(
    store: sync.Store,
) -> None:
    state = agent(store)
    own = {"type": "mark", "id": "validate_state"}  # whose id is that of the step that is added
    recovery = sync.recovery.Recovery(
        store,
        validate=[lambda seen: seen.get("k") != 99 or "not that"],
        steps={"mark": lambda context, action: context.state.set("k", 99) and {}},
        procedures=[procedure([{"type": "backup_current"}], validation=[own])],
    )
    with pytest.raises(RecoveryFailedError, match="not that"):
        recovery.recover(state, "p")
    assert recovery.reports(state)[0].status == "rolled_back"
    assert state.get("k") == 3


def test_a_check_that_exits_refuses_without_retries(store: sync.Store) -> None:
    state, asked = agent(store), []

    def check(seen: Any) -> None:
        asked.append(seen.get("k"))
        if seen.get("k") != 1:
            sys.exit("not that")

    report = sync.recovery.Recovery(store, validate=[check]).recover(state, "drift")
    assert (report.restored_from, report.attempts) == ("main@2", 1)
    assert asked == [2, 1, 1]  # two states before, and what was put back


def test_two_procedures_of_one_id_are_refused(store: sync.Store) -> None:
    twice = [procedure(RESTORING), procedure([{"type": "backup_current"}])]
    with pytest.raises(ProcedureValidationError, match="two have the id 'p'"):
        sync.recovery.Recovery(store, procedures=twice)
    standing = {**twice[0], "id": "standard_recovery"}  # in place of one that is there
    assert sync.recovery.Recovery(store, procedures=[standing]).procedures()[0].triggers == ("p",)
