"""Procedures at work: order, time, attempts, checks, undoing; what is told of them."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from store_kit import Hands

import holdfast
from holdfast import sync
from holdfast.errors import (
    CriticalStepFailureError,
    HoldfastError,
    LeaseHeldError,
    MissingError,
    RecoveryFailedError,
    RecoveryValidationError,
    ScopeNotFoundError,
)
from holdfast.recovery import AgentFailure, Procedure, run
from holdfast.recovery import recovery as engine
from holdfast.recovery.run import recovering_lease


def agent(store: sync.Store) -> sync.State:
    """One with a good checkpoint, and a plan that was set after it."""
    state = store.agent("7")
    state.set("task", {"id": 1})
    state.checkpoint("good")
    state.set("plan", "bad")
    return state


class Steps:
    """Types of steps that note that they were done."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.fail: dict[str, int] = {}
        """How often each of them fails, at first."""

    def step(self, context: Any, action: Mapping[str, Any]) -> dict[str, Any]:
        """One that notes itself."""
        name = str(action["name"])
        self.done.append(name)
        if self.fail.get(name, 0) > 0:
            self.fail[name] -= 1
            raise ValueError(f"{name} does not work")
        return {"name": name, "agent": str(context.agent)}

    def made(self, store: sync.Store, **procedure: Any) -> sync.recovery.Recovery:
        """A recovery with a procedure `p` of such steps."""
        data = {"id": "p", "triggers": ["mine"], "backoff": 1, **procedure}
        return sync.recovery.Recovery(store, steps={"note": self.step}, procedures=[data])


def note(name: str, /, **more: Any) -> dict[str, Any]:
    return {"id": name, "type": "note", "action": {"name": name}, **more}


@pytest.mark.spec("K197", "K200", "K210")
def test_steps_are_done_in_order_and_their_results_kept(store: sync.Store) -> None:
    steps = Steps()
    recovery = steps.made(store, steps=[note("a"), note("b"), note("c")])
    report = recovery.recover(agent(store), "mine")
    assert report.procedure == "p"
    assert steps.done == ["a", "b", "c"]
    assert [(one.step, one.success, one.result["name"]) for _, one in report.steps] == [
        ("a", True, "a"),
        ("b", True, "b"),
        ("c", True, "c"),
    ]


@pytest.mark.spec("K177")
def test_every_field_of_a_procedure_counts(store: sync.Store) -> None:
    """Catches: any field that `Procedure.of` or `data` leaves out, or that a run does not ask."""
    state, steps = agent(store), Steps()
    whole: dict[str, Any] = {
        "id": "p",
        "name": "The whole of it",
        "triggers": ["mine", "theirs"],
        "steps": [note("work")],
        "validation": [note("check")],
        "rollback": [note("undo")],
        "timeout": 60_000,
        "retries": 1,
    }

    def run_with(fails: int, failure: str = "mine", **other: Any) -> tuple[str, list[str]]:
        """How it ends if the check fails so often, and what was done."""
        steps.done.clear()
        steps.fail = {"check": fails}
        made = Procedure.of(whole | {"backoff": 1} | other)
        recovery = steps.made(store, **made.data())
        assert recovery.plan(state, failure).procedure.title == "The whole of it"
        with suppress(RecoveryFailedError):
            recovery.recover(state, failure)
        report = recovery.reports(state)[0]
        assert report.procedure == made.id
        return report.status, steps.done[:]

    once = ["work", "check"]
    assert run_with(0) == run_with(0, "theirs", id="q") == ("succeeded", once)
    assert run_with(0, steps=[note("a"), note("b")]) == ("succeeded", ["a", "b", "check"])
    assert run_with(1) == ("succeeded", [*once, "undo", *once])
    assert run_with(9) == ("rolled_back", [*once, "undo"] * 2)
    assert run_with(9, retries=0) == ("rolled_back", [*once, "undo"])
    assert run_with(9, validation=[]) == ("succeeded", ["work"])
    assert run_with(9, rollback=[], retries=0) == ("rolled_back", once)
    assert run_with(1, timeout=30_000, backoff=60_000) == ("rolled_back", [*once, "undo"])


@pytest.mark.spec("K185", "K209")
def test_what_depends_on_a_failed_step_is_left_out_and_the_rest_is_done(store: sync.Store) -> None:
    steps = Steps()
    steps.fail = {"b": 9}
    recovery = steps.made(
        store,
        steps=[
            note("a"),
            note("b", critical=False),
            note("c", critical=False, dependencies=["b"]),
            note("d"),
            note("e", critical=False, dependencies=["c"]),
        ],
    )
    report = recovery.recover(agent(store), "mine")
    assert report.success
    assert steps.done == ["a", "b", "d"]
    found = {one.step: one for _, one in report.steps}
    assert "b does not work" in found["b"].error
    assert found["c"].skipped
    assert found["c"].error == "b failed"
    assert found["e"].error == "c failed"


def test_success_is_said_only_of_a_procedure_that_came_to_what_it_is_for(store: sync.Store) -> None:
    """Though no step of it was critical. Catches: refusals, or failures of all, that are passed
    over at the end."""
    state = agent(store)
    state.set("plan", "bad")

    def refuse(found: Any) -> str | None:
        return "it is not sound" if isinstance(found, sync.State) else None

    def recovered(*types: str, **more: Any) -> str:
        steps = [{"type": one, "critical": False} for one in types]
        recovery = sync.recovery.Recovery(store, steps={"fail": fail}, **more)
        recovery.set({"id": "p", "triggers": ["p"], "steps": steps})
        with suppress(RecoveryFailedError):
            recovery.recover(state, "p", point="good" if "restore_state" in types else None)
        return recovery.reports(state)[0].status

    def fail(context: Any, action: Any) -> None:
        raise ValueError("it does not work")

    restoring = ("locate_checkpoint", "restore_state", "validate_state")
    assert recovered(*restoring, validate=[refuse]) == "rolled_back"
    assert state.get("plan") == "bad"
    assert recovered("fail", "restore_state") == "rolled_back"
    assert recovered("fail") == "rolled_back"
    assert recovered("fail", "cleanup") == "succeeded"
    assert recovered("fail", *restoring) == "succeeded"
    assert state.get("plan") is None


@pytest.mark.spec("K211", "K212")
def test_a_step_is_done_then_its_result_is_validated(store: sync.Store) -> None:
    steps = Steps()
    recovery = steps.made(
        store,
        steps=[
            note("a", validation={"name": "a"}),
            note("b", validation={"name": "b", "other": 1}, critical=False),
            note("c", critical=False, dependencies=["b"]),
        ],
    )
    before = datetime.now(UTC)
    report = recovery.recover(agent(store), "mine")
    good, bad, left = (one for _, one in recovery.report("agent:7", report.id).steps)
    assert steps.done == ["a", "b"]
    assert (good.success, good.validation) == (True, {"name": True})
    assert (bad.success, bad.validation) == (False, {"name": True, "other": False})
    assert bad.error == "RecoveryValidationError: its result is not valid: other"
    assert good.executed_at is not None
    assert bad.executed_at is not None
    assert before <= good.executed_at <= bad.executed_at <= datetime.now(UTC)
    assert good.seconds > 0
    assert (left.skipped, left.executed_at, left.validation) == (True, None, {})


@pytest.mark.spec("K183")
def test_an_attempt_that_fails_is_made_again_as_often_as_is_said(store: sync.Store) -> None:
    steps = Steps()
    steps.fail = {"a": 2}
    recovery = steps.made(store, steps=[note("a")], retries=2)
    assert recovery.recover(agent(store), "mine").attempts == 3
    steps.fail = {"a": 9}
    steps.done.clear()
    with pytest.raises(CriticalStepFailureError, match="a does not work") as caught:
        recovery.recover(agent(store), "mine")
    assert steps.done == ["a"] * 3
    report = recovery.report("agent:7", caught.value.recovery)
    assert [(one.attempt, one.success) for part, one in report.steps if part == "steps"] == [
        (1, False),
        (2, False),
        (3, False),
    ]


def test_the_time_of_a_procedure_ends_its_attempts(
    store: sync.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    hands = Hands()
    time = SimpleNamespace(monotonic=lambda: hands.passed, sleep=hands.move)
    monkeypatch.setattr(run, "time", time)
    steps = Steps()
    steps.fail = {"a": 10_000}
    recovery = steps.made(store, steps=[note("a")], retries=100, timeout="300s", backoff="40s")
    with pytest.raises(CriticalStepFailureError, match="the time is used up"):
        recovery.recover(agent(store), "mine")
    assert hands.passed == 280, "40 seconds, then a minute each time; for another is no time left"
    assert steps.done == ["a"] * 6


@pytest.mark.spec("K180", "K201", "K203")
def test_a_check_that_fails_undoes_the_recovery(store: sync.Store) -> None:
    state = agent(store)
    data = sync.recovery.Recovery(store).select(AgentFailure("agent_crash")).data()
    steps = Steps()
    steps.fail = {"check": 9}
    recovery = steps.made(
        store, steps=data["steps"], validation=[note("check", name="the plan is sound")]
    )
    with pytest.raises(RecoveryValidationError, match="Recovery validation failed: the plan is"):
        recovery.recover(state, AgentFailure("mine", point="good"))
    assert state.get("plan") == "bad"
    report = recovery.reports(state)[0]
    assert report.status == "rolled_back"
    assert report.lost == "nothing"
    assert [part for part, _ in report.steps][-1] == "rollback"


def test_a_procedure_may_say_itself_how_it_is_undone(store: sync.Store) -> None:
    steps = Steps()
    steps.fail = {"fail": 9}
    standard = sync.recovery.Recovery(store).select(AgentFailure("agent_crash")).data()["steps"]
    recovery = steps.made(store, steps=[*standard, note("fail")], rollback=[note("undo")])
    with pytest.raises(CriticalStepFailureError):
        recovery.recover(agent(store), "mine")
    assert steps.done == ["fail", "undo"]


def test_what_cannot_be_undone_is_said(store: sync.Store) -> None:
    steps = Steps()
    steps.fail = {"fail": 9, "undo": 9}
    standard = sync.recovery.Recovery(store).select(AgentFailure("agent_crash")).data()["steps"]
    recovery = steps.made(store, steps=[*standard, note("fail")], rollback=[note("undo")])
    with pytest.raises(RecoveryFailedError, match="it could not be undone"):
        recovery.recover(agent(store), "mine")
    assert recovery.reports("agent:7")[0].status == "failed"
    assert any("could not be undone" in one for one in recovery.statistics().alarms)


def test_a_restore_that_throws_half_way_is_undone(store: sync.Store) -> None:
    state = agent(store)

    def half(context: Any, action: Any) -> None:
        context.state.set("task", "half")
        raise OSError("the disk went away")

    standard = sync.recovery.Recovery(store).select(AgentFailure("agent_crash")).data()
    recovery = sync.recovery.Recovery(store, steps={"restore_state": half})
    recovery.set({**standard, "id": "p", "retries": 0})
    with pytest.raises(CriticalStepFailureError, match="the disk went away"):
        recovery.recover(state, procedure="p")
    assert state.get("task") == {"id": 1}
    assert state.get("plan") == "bad"


def test_what_steps_of_ones_own_wrote_is_undone_too(store: sync.Store) -> None:
    state = agent(store)

    def write(context: Any, action: Any) -> None:
        context.state.set("plan", "half")

    def fail(context: Any, action: Any) -> None:
        raise OSError("no")

    steps = [{"type": "write"}, {"type": "fail"}]
    data = {"id": "p", "triggers": [], "steps": steps}
    recovery = sync.recovery.Recovery(
        store, steps={"write": write, "fail": fail}, procedures=[data]
    )
    with pytest.raises(CriticalStepFailureError, match="the state before it is back"):
        recovery.recover(state, procedure="p")
    assert state.get("plan") == "bad"


def test_a_step_whose_result_is_not_as_demanded_has_failed(store: sync.Store) -> None:
    recovery = Steps().made(store, steps=[note("a", validation={"name": "b"})])
    with pytest.raises(CriticalStepFailureError, match="its result is not valid: name"):
        recovery.recover(agent(store), "mine")


def test_a_result_that_cannot_be_kept_is_a_failure(store: sync.Store) -> None:
    data = {"id": "p", "triggers": [], "steps": [{"type": "odd"}]}
    odd = {"odd": lambda context, action: {"a": object()}}
    recovery = sync.recovery.Recovery(store, steps=odd, procedures=[data])
    with pytest.raises(CriticalStepFailureError, match="cannot be kept"):
        recovery.recover(agent(store), procedure="p")


def test_one_recovery_at_a_time(store: sync.Store) -> None:
    state = agent(store)
    held: list[type] = []

    def other() -> None:
        try:
            sync.recovery.Recovery(store).recover(state, "agent_crash")
        except HoldfastError as error:
            held.append(type(error))

    with store.lease(recovering_lease(state.scope), duration=30):
        thread = threading.Thread(target=other)
        thread.start()
        thread.join(60)
    assert held == [LeaseHeldError]
    assert sync.recovery.Recovery(store).recover(state, "agent_crash").success


def test_a_plan_says_what_would_be_done_and_writes_nothing(store: sync.Store) -> None:
    state = agent(store)
    before = store.verify().entries
    plan = sync.recovery.Recovery(store).plan(state, "state_corruption")
    assert (plan.procedure.id, plan.strategy) == ("damaged_state", "newest_valid")
    assert plan.lost == "1 entries after it"
    assert "restore_state" in str(plan)
    assert store.verify().entries == before


@pytest.mark.spec("K215", "M53")
def test_a_point_that_is_named_is_returned_to(store: sync.Store) -> None:
    state = agent(store)
    item = state.item("plan")
    assert item is not None
    state.set("plan", "worse")
    report = sync.recovery.Recovery(store).recover(state, "state_corruption", point="good")
    assert report.strategy == "named"
    assert state.get("plan") is None
    report = sync.recovery.Recovery(store).recover(state, "state_corruption", at=item.time)
    assert report.strategy == "point_in_time"
    assert state.get("plan") == "bad"


@pytest.mark.spec("K173", "K199")
def test_progress_times_and_rates_are_told(store: sync.Store) -> None:
    state = agent(store)
    told: list[tuple[str, str]] = []
    recovery = sync.recovery.Recovery(store)
    report = recovery.recover(state, "agent_crash", progress=lambda *step: told.append(step))
    assert told == [(step.type, "done") for step in recovery.select(report.failure).steps]
    assert report.seconds > 0
    assert report.finished_at is not None
    steps = Steps()
    steps.fail = {"a": 9}
    with pytest.raises(HoldfastError):
        steps.made(store, steps=[note("a")]).recover(state, "mine")
    found = recovery.statistics()
    assert (found.recoveries, found.succeeded, found.running) == (2, 1, 0)
    assert found.success_rate == 0.5
    assert found.longest >= found.seconds > 0
    assert len(found.alarms) == 1


@pytest.mark.spec("K207")
def test_a_report_holds_what_was_done_how_long_it_took_and_what_was_restored() -> None:
    """Catches: `found.get("point")` of the report as None; the id of the recovery in place of the
    procedure's; times that are not those of the beginning and the end; steps that are left out."""
    hands = Hands()
    store = sync.open("memory:", clock=hands.clock)
    state = agent(store)
    good = state.at("good")

    def wait(context: Any, action: Any) -> None:
        hands.move(7)

    def refuse(context: Any, action: Any) -> None:
        raise ValueError("it is not sound")

    recovery = sync.recovery.Recovery(store, steps={"wait": wait, "refuse": refuse})
    steps = ("backup_current", "locate_checkpoint", "wait", "restore_state", "validate_state")
    procedure = {"id": "p", "triggers": ["mine"], "steps": [{"type": one} for one in steps]}
    recovery.set(procedure)
    hands.move(60)
    report = recovery.recover(state, "mine", point="good")
    assert (report.success, report.agent, report.procedure) == (True, state.scope, "p")
    assert [(part, one.step) for part, one in report.steps] == [("steps", one) for one in steps]
    assert (report.seconds, report.finished_at) == (7, hands.time(67))
    assert report.restored_from is not None
    restored = state.at(report.restored_from)
    assert (
        dict(restored.items()) == dict(good.items()) == dict(state.items()) == {"task": {"id": 1}}
    )
    assert report.root == good.root() == state.root()
    assert recovery.report(state, report.id) == report
    state.set("plan", "bad")
    recovery.set(procedure | {"validation": [{"type": "refuse"}]})
    with pytest.raises(RecoveryValidationError) as caught:
        recovery.recover(state, "mine", point="good")
    failed = recovery.report(state, caught.value.recovery)
    assert (failed.success, failed.procedure, failed.seconds) == (False, "p", 7)
    assert failed.root is None
    assert state.get("plan") == "bad"


def test_dependent_systems_hear_of_each_recovery_exactly_once(store: sync.Store) -> None:
    state = agent(store)
    recovery = sync.recovery.Recovery(store)
    for _ in range(3):
        recovery.recover(state, "state_corruption", point="good")
    watcher = store.custom("dashboard")
    heard: list[str] = []

    def hear(change: Any, notice: holdfast.recovery.RecoveryNotice) -> None:
        heard.append(notice.recovery)
        if len(heard) == 2:
            raise ConnectionError("the network is gone")
        change.append("seen", notice.recovery)

    with pytest.raises(ConnectionError):
        recovery.deliver(watcher, "dashboard", hear)
    assert recovery.deliver(watcher, "dashboard", hear) == 2
    assert recovery.deliver(watcher, "dashboard", hear) == 0
    ids = [one.id for one in reversed(recovery.reports(state))]
    assert watcher.get("seen") == ids
    assert [one.recovery for one in recovery.notices()] == ids


def test_a_report_is_under_a_signature(store: sync.Store) -> None:
    report = sync.recovery.Recovery(store).recover(agent(store), "agent_crash")
    scope = store.scope("custom:$recovery/agent:7")
    made = scope.checkpoints()[0]
    assert made.name == f"recovery {report.id}"
    assert store.verify().ok


def test_what_is_not_there_is_said(store: sync.Store) -> None:
    recovery = sync.recovery.Recovery(store)
    with pytest.raises(MissingError, match="standard_recovery"):
        recovery.recover(agent(store), procedure="nothing")
    with pytest.raises(ScopeNotFoundError, match="agent:nobody"):
        recovery.recover("agent:nobody", "agent_crash")
    with pytest.raises(MissingError, match="no recovery 'x'"):
        recovery.report("agent:7", "x")
    with pytest.raises(holdfast.HoldfastError, match="no strategy is called 'fly'"):
        sync.recovery.Recovery(store, order=["fly"])
    assert Procedure.of(recovery.procedures()[0].data()) == recovery.procedures()[0]


def test_both_faces_have_the_same_names_and_arguments() -> None:
    one, two = holdfast.recovery.Recovery, engine.Recovery
    names = {name for name in dir(one) if not name.startswith("_")}
    assert names == {name for name in dir(two) if not name.startswith("_")}
    for name in names:
        left, right = getattr(one, name), getattr(two, name)
        assert list(inspect.signature(left).parameters) == list(
            inspect.signature(right).parameters
        ), name
        assert inspect.getdoc(left) == inspect.getdoc(right), name


def test_the_async_face(tmp_path: Any) -> None:
    async def main() -> None:
        async with holdfast.open(f"sqlite:{tmp_path}/a.db") as store:
            state = store.agent("7")
            await state.set("task", 1)
            await state.checkpoint("good")
            await state.set("plan", "bad")

            async def mine(context: Any, action: Any) -> dict[str, Any]:
                await asyncio.sleep(0)
                return {"awaited": True}

            recovery = holdfast.recovery.Recovery(store, steps={"mine": mine})
            standard = (await recovery.select(AgentFailure("agent_crash"))).data()
            steps = [*standard["steps"], {"type": "mine"}]
            recovery.set({"id": "p", "triggers": ["mine"], "steps": steps})
            report = await recovery.recover(state, AgentFailure("mine", point="good"))
            assert report.steps[-1][1].result == {"awaited": True}
            assert await state.get("plan") is None
            assert (await recovery.reports(state)) == [report]
            assert (await recovery.statistics()).succeeded == 1
            assert await recovery.quarantine(state).list() == []

    asyncio.run(main())


def test_a_late_step_does_not_hold_up_the_next_recovery(store: sync.Store) -> None:
    state = agent(store)
    release, over = threading.Event(), threading.Event()

    def stuck(context: Any, action: Any) -> None:
        release.wait(60)
        over.set()

    data = {"id": "p", "triggers": [], "steps": [{"type": "stuck", "timeout": 50}]}
    recovery = sync.recovery.Recovery(store, steps={"stuck": stuck}, procedures=[data])
    with pytest.raises(CriticalStepFailureError, match="took more than"):
        recovery.recover(state, procedure="p")
    assert recovery.recover(state, "agent_crash").success
    assert not over.is_set(), "it waited for the step that is stuck"
    release.set()
