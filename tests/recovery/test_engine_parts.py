"""What an engine of recoveries is made of: each part does its work, and can be another one."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from store_kit import Place, put_row, rows_of

from holdfast import Checkpoint, sync
from holdfast.checkpoints import RetentionRule
from holdfast.errors import (
    CriticalStepFailureError,
    HoldfastError,
    PolicyValidationError,
    RecoveryFailedError,
)
from holdfast.recovery import AgentFailure, Procedure, RecoveryStep
from holdfast.recovery.failure_kinds import CORRUPTION, FAILURES, SEVERITIES, found_failure
from holdfast.recovery.strategies import STRATEGIES
from holdfast.store.proof.verify_report import Finding

STEPS = ("backup_current", "locate_checkpoint", "restore_state", "validate_state")


def agent(store: sync.Store) -> sync.State:
    """One with a good checkpoint, and a plan that was set after it."""
    state = store.agent("7")
    state.set("plan", "good")
    state.checkpoint("good")
    state.set("plan", "odd")
    return state


def procedure(*types: str, **more: Any) -> dict[str, Any]:
    """A procedure `p` of steps of these types."""
    return {"id": "p", "triggers": ["p"], "steps": [{"type": one} for one in types], **more}


@pytest.mark.spec("K170", "K174", "K175")
def test_procedures_strategies_checks_monitor_and_rollback_are_given_and_used(
    store: sync.Store,
) -> None:
    state = agent(store)
    used: list[str] = []

    def first_entry(context: Any) -> Any:
        used.append("strategy")
        return context.strategies["newest_valid"](context)

    def check(found: Any) -> str | None:
        if not isinstance(found, sync.State):
            return None  # it is asked before, of what may be put back
        used.append(f"check of {found.get('plan')}")
        return "it is not good"

    def undo(context: Any, action: Any) -> None:
        used.append("rollback")
        context.state.restore(context.result_of("backup_current")["backup"])

    recovery = sync.recovery.Recovery(
        store,
        strategies={"mine": first_entry},
        order=["mine"],
        validate=[check],
        steps={"undo": undo},
    )
    recovery.set(procedure(*STEPS, rollback=[{"type": "undo"}]))  # as configured for its trigger
    assert recovery.procedures()[0].id == "p"
    told: list[str] = []
    with pytest.raises(CriticalStepFailureError, match="it is not good"):
        recovery.recover(state, "p", progress=lambda step, how: told.append(step))
    assert used == ["strategy", "check of good", "rollback", "strategy"]  # which finds nothing else
    assert told == [*STEPS, "undo", *STEPS[:2]]
    assert state.get("plan") == "odd"
    numbers = recovery.statistics(state)
    assert (numbers.recoveries, numbers.succeeded, numbers.running) == (1, 0, 0)


@pytest.mark.spec("K171")
def test_without_strategies_of_ones_own_there_are_those_of_every_kind(store: sync.Store) -> None:
    state = agent(store)
    for kind, known in FAILURES.items():
        order = known.strategies
        assert set(order) <= STRATEGIES.keys()
        plan = sync.recovery.Recovery(store, defaults={}).plan(state, kind)
        assert plan.strategy in order


@pytest.mark.spec("K178", "K179")
def test_each_trigger_leads_to_the_steps_of_its_procedure(store: sync.Store) -> None:
    state = agent(store)
    done: list[str] = []
    types = {name: lambda context, action, name=name: done.append(name) for name in "abc"}
    recovery = sync.recovery.Recovery(store, steps=types)
    recovery.set({**procedure("a", "b"), "triggers": ["one", {"type": "two"}]})
    recovery.set({**procedure("c"), "id": "q", "triggers": ["two"]})
    assert [step.type for step in recovery.select(AgentFailure("one")).steps] == ["a", "b"]
    recovery.recover(state, "one")
    assert done == ["a", "b"]
    recovery.recover(state, "two")  # that of the procedure set last
    assert done == ["a", "b", "c"]
    assert recovery.select(AgentFailure("of nobody")).id == "standard_recovery"


@pytest.mark.spec("K184", "K187")
def test_every_field_of_a_step_counts(store: sync.Store) -> None:
    state = agent(store)
    seen: list[tuple[str, Any]] = []
    free = threading.Event()

    def step(context: Any, action: Mapping[str, Any]) -> dict[str, Any]:
        seen.append((action["as"], sorted(context.results)))
        if action.get("waits"):
            free.wait(60)
        if action.get("fails"):
            raise ValueError("it does not work")
        return {"sound": action["as"]}

    def made(name: str, **more: Any) -> RecoveryStep:
        action = {"as": name, **more.pop("action", {})}
        return RecoveryStep("step", id=name, name=f"step {name}", action=action, **more)

    def recovered(*steps: RecoveryStep) -> Any:
        chosen = Procedure("p", ("p",), steps)
        assert Procedure.of(chosen.data()) == chosen
        recovery = sync.recovery.Recovery(store, steps={"step": step}, procedures=[chosen])
        told: list[str] = []
        try:
            return recovery.recover(state, "p", progress=lambda name, _: told.append(name)), told
        except CriticalStepFailureError:
            return recovery.reports(state)[0], told

    fails, waits = {"fails": True}, {"waits": True}
    report, told = recovered(
        made("a", action=fails, critical=False),
        made("b", dependencies=()),
        made("c", dependencies=("b",), validation={"sound": "other"}, critical=False),
        made("d", dependencies=("b",), action=waits, timeout=50.0, critical=False),
        made("e", dependencies=("a",), critical=False),
    )
    found = {one.step: one for _, one in report.steps}
    assert report.success
    assert sorted(told) == [f"step {name}" for name in "abcde"]
    assert "it does not work" in found["a"].error
    assert found["b"].result == {"sound": "b"}
    assert "not valid: sound" in found["c"].error
    assert "took more than" in found["d"].error
    assert found["e"].skipped
    assert "b" in dict(seen)["c"]
    report, _ = recovered(made("a", action=fails), made("b", dependencies=("a",)))
    assert report.status == "rolled_back"
    assert "step a" in report.why
    free.set()


@pytest.mark.spec("K198")
def test_steps_know_the_request_the_target_and_what_came_before(store: sync.Store) -> None:
    state = agent(store)
    seen: dict[str, Any] = {}

    def look(context: Any, action: Any) -> dict[str, Any]:
        seen.update(
            agent=context.agent,
            failure=context.failure,
            began=context.record.data.started_at,
            before=set(context.results),
            target=context.result_of("locate_checkpoint")["point"],
        )
        return {"looked": True}

    begun = datetime.now(UTC)
    recovery = sync.recovery.Recovery(store, steps={"look": look})
    recovery.set(procedure("backup_current", "locate_checkpoint", "look", "restore_state"))
    asked = AgentFailure("p", "it makes no sense", "high", point="good", evidence={"by": "me"})
    report = recovery.recover(state, asked)
    assert seen["agent"] == state.scope
    assert seen["failure"] == replace(asked, point="main@2")  # whatever bears the name later
    assert seen["began"] == report.started_at
    assert (seen["began"] - begun).total_seconds() > -1
    assert seen["before"] == {"backup_current", "locate_checkpoint"}
    assert seen["target"] == report.restored_from == "main@2"
    assert {one.step for _, one in report.steps} == {*seen["before"], "look", "restore_state"}


@pytest.mark.spec("X12")
def test_each_kind_of_corruption_has_its_repair(place: Place) -> None:
    for finding, kind in CORRUPTION.items():
        found = found_failure([Finding(finding, "a row", "it is damaged", "agent:7")])
        assert found is not None
        assert found.kind == kind
        assert found.severity in ("high", "critical")
        assert sync.recovery.Recovery(place.open()).select(found).id in (
            "damaged_state",
            "lost_storage",
        )
    partial = found_failure([Finding("damage", "a row", "it is damaged", "agent:7", ("plan",))])
    assert partial is not None
    assert partial.kind == "partial_corruption"
    state = agent(place.open())
    state.set("other", 1)
    place.close()
    storage = place.storage()
    key, row = rows_of(storage, b"E")[2]
    put_row(storage, key, row[:-3] + bytes([row[-3] ^ 1]) + row[-2:])
    storage.close()
    store = place.open()
    failure = found_failure(store.verify("agent:7").findings)
    assert failure is not None
    report = sync.recovery.Recovery(store).recover("agent:7", failure)
    assert (report.strategy, report.lost) == ("journal", "what entry 3 did")
    assert dict(store.agent("7").items("p")) == {"plan": "good"}
    assert store.agent("7").get("other") == 1


@pytest.mark.spec("X13")
def test_each_kind_of_failure_has_its_severity_and_its_way(place: Place, tmp_path: Path) -> None:
    ways = {
        "state_corruption": ("critical", "newest_valid"),  # rolled back
        "memory_leak": ("medium", "as_it_is"),  # begun again
        "network_partition": ("medium", "as_it_is"),  # or synchronised from a copy
        "storage_failure": ("critical", "copy"),  # from a backup
        "unknown": ("medium", "as_it_is"),
    }
    store = place.open()
    state = agent(store)
    with sync.open(f"sqlite:{tmp_path}/copy.db") as copy:
        copy.agent("7").set("plan", "of the copy")
        recovery = sync.recovery.Recovery(store, copies=[copy])
        for kind, (severity, strategy) in ways.items():
            report = recovery.recover(state, kind)
            assert (report.failure.severity, report.strategy) == (severity, strategy), kind
    assert {one.severity for one in FAILURES.values()} <= set(SEVERITIES)
    report = sync.recovery.Recovery(store).recover(state, AgentFailure("unknown", severity="low"))
    assert report.failure.severity == "low"


@pytest.mark.spec("K182", "X20")
def test_a_step_that_never_ends_is_ended_at_the_time_of_its_procedure(store: sync.Store) -> None:
    state = agent(store)
    free = threading.Event()
    wrote: list[type] = []

    def hang(context: Any, action: Any) -> None:
        free.wait(60)
        try:
            context.state.set("late", True)
        except HoldfastError as error:
            wrote.append(type(error))
        finally:
            over.set()

    over = threading.Event()
    steps = {"hang": hang}
    short = procedure("hang", timeout=200, retries=5)
    short["steps"][0]["timeout"] = "10m"
    recovery = sync.recovery.Recovery(store, steps=steps, procedures=[short])
    with pytest.raises(CriticalStepFailureError, match=r"hang - it took more than .*used up"):
        recovery.recover(state, "p")
    assert not over.is_set()
    assert recovery.reports(state)[0].attempts == 1
    free.set()
    assert over.wait(60)
    assert wrote
    assert state.get("late") is None


@pytest.mark.spec("K206")
@pytest.mark.parametrize("way", ["good", "step", "check", "rollback", "time"])
def test_whatever_way_a_recovery_ends_nothing_of_it_runs_on(store: sync.Store, way: str) -> None:
    state = agent(store)

    def fail(context: Any, action: Any) -> None:
        raise ValueError("no")

    free = threading.Event()

    def wait(context: Any, action: Any) -> None:
        free.wait(60)

    types = [*STEPS, *{"step": ["fail"], "rollback": ["fail"], "time": ["wait"]}.get(way, [])]
    made = procedure(*types, rollback=[{"type": "fail"}] if way == "rollback" else [])
    made["steps"][-1]["timeout"] = 100 if way == "time" else "1m"
    checks = [lambda found: "no"] if way == "check" else []
    steps = {"fail": fail, "wait": wait}
    recovery = sync.recovery.Recovery(store, steps=steps, procedures=[made], validate=checks)
    try:
        recovery.recover(state, "p")
    except HoldfastError:
        assert way != "good"
    (report,) = recovery.reports(state)
    assert report.status == {"good": "succeeded", "rollback": "failed"}.get(way, "rolled_back")
    assert report.finished_at is not None
    assert recovery.statistics(slow=0).running == 0
    assert [one.name for one in store.leases() if one.owner] == []
    assert recovery.resume(state) == []
    assert len(recovery.notices()) == 1
    free.set()


@pytest.mark.spec("X20")
def test_what_the_documents_left_open_is_kept(store: sync.Store) -> None:
    state = agent(store)
    policies = sync.checkpoints.Policies(store, watch=False)
    when = {
        "type": "state_change",
        "metric": "state_change_ratio",
        "operator": "greater_than",
        "threshold": 0.5,
    }
    policies.set("agent:7", {"id": "mine", "conditions": [when]})
    assert "mine" in [one.id for one in policies.list("agent:7")]
    assert "mine" not in [one.id for one in policies.list("agent:8")]
    with pytest.raises(PolicyValidationError, match="no conditions"):
        policies.set("agent:7", {"id": "always", "conditions": []})

    tried: list[int] = []

    def half(context: Any, action: Any) -> None:
        tried.append(1)
        context.state.set("plan", "half")
        raise OSError("the disk went away")

    made = procedure("backup_current", "half", retries=2, backoff=1)
    recovery = sync.recovery.Recovery(store, steps={"half": half}, procedures=[made])
    with pytest.raises(CriticalStepFailureError, match="the state before it is back"):
        recovery.recover(state, "p")
    assert (len(tried), state.get("plan")) == (3, "odd")
    failed = [one for _, one in recovery.reports(state)[0].steps if not one.success]
    assert [one.step for one in failed] == ["half"] * 3

    def no_peer(checkpoint: Checkpoint) -> None:
        raise ConnectionError("nobody answers")

    shared = sync.checkpoints.Checkpoints(state, sync=no_peer).create("shared", sync=True)
    assert not shared.synchronized

    state.restore("good")  # until it is confirmed; a recovery lets go of its own when it ends
    held = {one.checkpoint.id for one in sync.checkpoints.Checkpoints(state).held()}
    assert held
    for number in range(30):
        state.set("k", number)
        state.checkpoint(f"later {number}", type="recovery")
    strict = sync.checkpoints.Retention(store, rules={"recovery": RetentionRule(max_count=1)})
    strict.run(state)
    left = {one.id for one in state.checkpoints(type="recovery")}
    assert held <= left
    assert len(left) == len(held) + 1
    for one in sync.checkpoints.Checkpoints(state).held():
        sync.checkpoints.Checkpoints(state).confirm(one.checkpoint)
    strict.run(state)
    assert not held & {one.id for one in state.checkpoints()}


@pytest.mark.spec("X20")
@pytest.mark.parametrize("before", [("backup_current",), STEPS, (*STEPS, "cleanup")])
@pytest.mark.parametrize("most", [0, 1])
def test_the_state_before_is_kept_from_retention_until_a_recovery_is_over(
    store: sync.Store, before: tuple[str, ...], most: int
) -> None:
    """Whether it fails after the state was put back, or after a step of its own wrote."""
    state = agent(store)
    root = state.root()
    rules = {kind: RetentionRule(max_count=most) for kind in ("recovery", "manual")}
    strict = sync.checkpoints.Retention(store, rules=rules)

    def write(context: Any, action: Any) -> None:
        context.state.set("plan", "half")

    def prune(context: Any, action: Any) -> None:
        (one,) = [
            one for one in sync.checkpoints.Checkpoints(state).held() if one.why == "recovery"
        ]
        assert one.checkpoint.metadata["recovery"] == context.record.id
        strict.run(state)

    def fail(context: Any, action: Any) -> None:
        raise ValueError("no")

    steps = {"write": write, "prune": prune, "fail": fail}
    for last in ((), ("fail",)):
        made = procedure(*before, "write", "prune", *last)
        recovery = sync.recovery.Recovery(store, steps=steps, procedures=[made])
        if last:
            with pytest.raises(CriticalStepFailureError, match="the state before it is back"):
                recovery.recover(state, "p")
            assert state.root() == root
        else:
            assert recovery.recover(state, "p").success
            root = state.root()
        assert not [
            one for one in sync.checkpoints.Checkpoints(state).held() if one.why == "recovery"
        ]
    state.set("plan", "later")
    strict.run(state)
    left = [one for one in state.checkpoints() if "recovery" in one.metadata]
    assert len(left) <= most
    assert store.verify().ok


@pytest.mark.parametrize(
    "located",
    [
        None,
        {"where": "good"},
        {"strategy": "mine", "point": "main@2", "copy": None},
        {"seconds": 5, "passed": ["x"]},
    ],
)
def test_a_state_that_own_steps_put_back_and_a_check_refuses_is_undone(
    store: sync.Store, located: Any
) -> None:
    """Whatever they say of it; the next recoveries are as any other."""
    state = agent(store)
    tried: list[int] = []

    def locate(context: Any, action: Any) -> Any:
        return located

    def restore(context: Any, action: Any) -> None:
        tried.append(1)
        context.state.restore("good")

    steps = {"locate_checkpoint": locate, "restore_state": restore}
    made = procedure(*STEPS, retries=1, backoff=1, timeout="60s")
    recovery = sync.recovery.Recovery(
        store, steps=steps, procedures=[made], validate=[lambda _: "no"]
    )
    with pytest.raises(CriticalStepFailureError, match=r"no attempt is left; the state before it"):
        recovery.recover(state, "p")
    again = located is not None and "point" in located  # once: it is the same state again
    assert len(tried) == 2 + again
    assert state.get("plan") == "odd"
    assert recovery.reports(state)[0].status == "rolled_back"
    assert recovery.resume(state) == []
    for _ in range(6):
        assert sync.recovery.Recovery(store).recover(state, "p").success


def test_what_our_steps_rest_on_has_to_be_said_by_an_own_one(store: sync.Store) -> None:
    made = procedure("locate_checkpoint", "restore_state")
    steps = {"locate_checkpoint": lambda context, action: {"point": "good"}}
    recovery = sync.recovery.Recovery(store, steps=steps, procedures=[made])
    with pytest.raises(CriticalStepFailureError, match="has no strategy, lost, keys"):
        recovery.recover(agent(store), "p")


@pytest.mark.parametrize("given", [None, {"done": True}, {"backup": "good"}])
def test_a_recovery_with_an_own_backup_is_undone(store: sync.Store, given: Any) -> None:
    state = agent(store)
    steps = {"backup_current": lambda context, action: given, "fail": lambda *_: 1 / 0}
    made = procedure("backup_current", "locate_checkpoint", "restore_state", "fail", retries=0)
    recovery = sync.recovery.Recovery(store, steps=steps, procedures=[made], order=["newest_valid"])
    with pytest.raises(RecoveryFailedError, match="the state before it is back"):
        recovery.recover(state, "p")  # whatever its backup is of
    assert state.get("plan") == "odd"


@pytest.mark.parametrize("first", ["newest_valid", "copy"])
def test_of_two_steps_that_find_a_state_the_first_that_does_is_put_back(
    store: sync.Store, first: str
) -> None:
    """So the plan and the report say; the copy that one looks for is not there."""
    state = agent(store)
    made = procedure("backup_current", "locate_checkpoint", "locate_checkpoint", "restore_state")
    for step, id, strategy in zip(
        made["steps"][1:3], ("one", "two"), (first, "as_it_is"), strict=True
    ):
        step |= {"id": id, "critical": False, "action": {"strategies": [strategy]}}
        step["dependencies"] = ["backup_current"]
    made["steps"][3]["dependencies"] = ["one", "two"] if first == "newest_valid" else ["two"]
    recovery = sync.recovery.Recovery(store, procedures=[made])
    plan = recovery.plan(state, "p")
    report = recovery.recover(state, "p")
    served = first if first == "newest_valid" else "as_it_is"
    assert plan.strategy == report.strategy == served
    assert plan.lost == report.lost
    good = served == "newest_valid"
    assert state.get("plan") == ("good" if good else "odd")
    assert report.lost == ("1 entries after it" if good else "nothing")
