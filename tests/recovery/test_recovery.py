"""A recovery from its failure to its report."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from holdfast import sync
from holdfast.errors import (
    CriticalStepFailureError,
    ProcedureValidationError,
    UnknownStepTypeError,
)
from holdfast.recovery.procedure import STANDARD, Procedure
from holdfast.recovery.recovery import Recovery


def agent(store: sync.Store) -> sync.State:
    """One with a good checkpoint, and a plan that was set after it."""
    state = store.agent("7")
    state.set("task", {"id": 1})
    state.checkpoint("good")
    state.set("plan", "bad")
    return state


@pytest.mark.spec("K266", "K267", "K268", "K272", "K273")
def test_the_standard_procedure_has_its_exact_values() -> None:
    assert STANDARD.triggers == ("agent_crash", "corruption_detected")
    assert [(step.type, step.timeout, step.critical) for step in STANDARD.steps] == [
        ("backup_current", 30_000, True),
        ("locate_checkpoint", 60_000, True),
        ("verify_integrity", 30_000, True),
        ("restore_state", 120_000, True),
        ("validate_state", 60_000, True),
    ]
    assert (STANDARD.timeout, STANDARD.retries) == (300_000, 3)


YAML = """
agent_state:
  recovery:
    procedures:
      - name: "standard_recovery"
        triggers:
          - type: "agent_crash"
          - type: "corruption_detected"
        steps:
          - {type: "backup_current", timeout: 30000, critical: true}
          - {type: "locate_checkpoint", timeout: 60000, critical: true}
          - {type: "verify_integrity", timeout: 30000, critical: true}
          - {type: "restore_state", timeout: 120000, critical: true}
          - {type: "validate_state", timeout: 60000, critical: true}
        timeout: 300000
        retries: 3
"""


@pytest.mark.spec("K269", "K270", "K271")
def test_a_configuration_file_gives_the_same_procedure() -> None:
    (found,) = Procedure.from_yaml(YAML)
    assert found.data() == {**STANDARD.data(), "name": "standard_recovery"}
    with pytest.raises(ProcedureValidationError, match="no procedures"):
        Procedure.from_yaml("a: 1")
    with pytest.raises(ProcedureValidationError, match="speed is no field"):
        Procedure.from_yaml("id: a\nsteps: []\nspeed: 3")


def test_two_procedures_of_one_id_are_refused(store: sync.Store) -> None:
    one = "{id: a, steps: [{type: cleanup}]}"
    with pytest.raises(ProcedureValidationError, match="two have the id 'a'"):
        Procedure.from_yaml(f"procedures: [{one}, {one.replace('a,', 'b,')}, {one}]")
    (made,) = Procedure.from_yaml(one)
    with pytest.raises(ProcedureValidationError, match="two have the id 'a'"):
        sync.recovery.Recovery(store, procedures=[made, made.data()])
    recovery = sync.recovery.Recovery(store, procedures=[made])
    assert recovery.set(made) == made  # that says that it takes the place of the other


def test_a_whole_configuration_gives_its_procedures_and_none_of_its_other_lists() -> None:
    page = Path(__file__).parents[2] / "docs" / "configuration.md"
    _, _, rest = page.read_text(encoding="utf-8").partition("```yaml\n")
    (found,) = Procedure.from_yaml(rest.partition("```")[0])
    assert [step.type for step in found.steps] == [
        *("backup_current", "locate_checkpoint", "restore_state", "validate_state"),
    ]
    with pytest.raises(ProcedureValidationError, match="no procedures"):
        Procedure.from_yaml("checkpointing:\n  policies: [{name: often, conditions: []}]")


def test_a_bad_state_goes_back_to_the_newest_checkpoint_that_is_whole(store: sync.Store) -> None:
    state = agent(store)
    report = Recovery(store).recover(state, "state_corruption")
    assert report.success
    assert report.strategy == "newest_valid"
    assert state.get("plan") is None
    assert state.get("task") == {"id": 1}
    assert Recovery(store).reports(state)[0] == report
    assert store.verify().ok


def test_a_crashed_agent_whose_state_is_whole_loses_nothing(store: sync.Store) -> None:
    state = agent(store)
    report = Recovery(store).recover(state, "agent_crash")
    assert report.procedure == "standard_recovery"
    assert (report.strategy, report.lost) == ("as_it_is", "nothing")
    assert state.get("plan") == "bad"


@pytest.mark.spec("K202", "K208")
def test_a_recovery_that_fails_its_check_is_undone_and_says_so(store: sync.Store) -> None:
    state = agent(store)
    recovery = Recovery(store, validate=[lambda state: "it is not good"], defaults={"plan": "new"})
    text = "Critical recovery step failed: validate_state - .*it is not good"
    with pytest.raises(CriticalStepFailureError, match=text):
        recovery.recover(state, "state_corruption", procedure="standard_recovery")
    assert state.get("plan") == "bad"
    report = recovery.reports(state)[0]
    assert report.status == "rolled_back"
    done = [(one.attempt, part, one.step) for part, one in report.steps if one.success]
    assert done.index((1, "rollback", "restore_backup")) > done.index((1, "steps", "restore_state"))


@pytest.mark.spec("K186")
def test_what_a_step_writes_after_its_time_is_refused(store: sync.Store) -> None:
    state = agent(store)
    go_on, over, given_up = threading.Event(), threading.Event(), threading.Event()

    def beside(context: Any, action: Any) -> None:
        assert given_up.wait(60)

    def told(step: str, status: str) -> None:
        if step == "slow":
            given_up.set()

    def slow(context: Any, action: Any) -> None:
        go_on.wait(60)
        try:
            context.state.set("late", True)
        finally:
            over.set()

    steps = [
        {"type": "slow", "timeout": 50, "critical": False, "dependencies": []},
        # Of the two, it is the first one's time that is over first, however long a machine stalls.
        {"type": "beside", "timeout": 60_000, "dependencies": []},
    ]
    procedures = [{"id": "p", "triggers": [], "steps": steps, "retries": 0}]
    recovery = Recovery(store, steps={"slow": slow, "beside": beside}, procedures=procedures)
    report = recovery.recover(state, procedure="p", progress=told)
    assert report.success
    assert report.steps[0][1].error == "it took more than 0.05 s"
    assert not over.is_set()
    go_on.set()
    assert over.wait(60)
    assert state.get("late") is None


@pytest.mark.spec("K213")
def test_a_procedure_is_refused_when_it_is_set(store: sync.Store) -> None:
    recovery = Recovery(store)
    with pytest.raises(UnknownStepTypeError, match="fly"):
        recovery.set({"id": "p", "triggers": [], "steps": [{"type": "fly"}]})
    circle = [
        {"id": "a", "type": "cleanup", "dependencies": ["b"]},
        {"id": "b", "type": "cleanup", "dependencies": ["a"]},
    ]
    with pytest.raises(ProcedureValidationError, match="wait for each other") as caught:
        recovery.set({"id": "p", "triggers": [], "steps": circle, "retries": -1})
    assert len(caught.value.problems) == 2
