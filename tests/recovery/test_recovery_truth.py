"""Reports and plans say what really is, and undoing undoes what the recovery did, no more."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from store_kit import Place

from holdfast import Sticky, sync
from holdfast.errors import (
    CriticalStepFailureError,
    ProcedureValidationError,
    RecoveryFailedError,
)

STEPS = [{"type": "backup_current"}, {"type": "locate_checkpoint"}, {"type": "restore_state"}]


def agent(store: sync.Store) -> sync.State:
    """One with a good checkpoint, and more since."""
    state = store.agent("7")
    state.set("k", 1)
    state.checkpoint("good")
    state.set("k", 2)
    state.set("z", 3)
    return state


def fail(context: Any, action: Any) -> None:
    raise RuntimeError("no")


def made(store: sync.Store, steps: list[Any], **more: Any) -> sync.recovery.Recovery:
    """A recovery whose procedure `p` has these steps."""
    extra = {name: more.pop(name) for name in ("rollback", "validation") if name in more}
    procedure = {"id": "p", "triggers": ["p"], "steps": steps, **extra}
    types = {"fail": fail, "nothing": lambda context, action: None, **more.pop("types", {})}
    return sync.recovery.Recovery(store, steps=types, procedures=[procedure], **more)


def test_steps_with_ids_are_reported_like_others(store: sync.Store) -> None:
    state = agent(store)
    steps = [
        {"type": "backup_current", "id": "keep"},
        {"type": "locate_checkpoint", "id": "find"},
        {"type": "restore_state", "id": "put back"},
    ]
    report = made(store, steps).recover(state, "p", point="good")
    assert (report.strategy, report.restored_from) == ("named", "main@2")
    assert report.lost == "2 entries after it"


@pytest.mark.parametrize("undo", [{"type": "fail", "critical": False}, {"type": "nothing"}])
def test_a_rollback_that_puts_nothing_back_is_no_rollback(store: sync.Store, undo: Any) -> None:
    state = agent(store)
    recovery = made(store, [*STEPS, {"type": "fail"}], rollback=[undo])
    with pytest.raises(RecoveryFailedError, match=r"it is not undone: .* the keys k, z") as caught:
        recovery.recover(state, "p", point="good")
    assert "is back" not in str(caught.value)
    report = recovery.reports(state)[0]
    assert report.status == "failed"
    assert report.lost == "2 entries after it"
    assert state.get("k") == 1


@pytest.mark.spec("K181", "K202")
@pytest.mark.parametrize("part", ["steps", "validation"])
def test_a_procedure_that_says_itself_how_it_is_undone_is_undone_by_that(
    store: sync.Store, part: str
) -> None:
    state = agent(store)

    def put_back(context: Any, action: Any) -> dict[str, Any]:
        context.state.restore(context.result_of("backup_current")["backup"])
        context.state.set(action["key"], action["value"])
        return {"undone": True}

    undo: dict[str, Any] = {"type": "put_back", "action": {"key": "z", "value": 3}}
    steps = STEPS if part == "validation" else [*STEPS, {"type": "fail"}]
    checks = [{"type": "fail"}] if part == "validation" else []
    more: dict[str, Any] = {"validation": checks, "types": {"put_back": put_back}}
    recovery = made(store, steps, rollback=[undo], **more)
    with pytest.raises(RecoveryFailedError, match="the state before it is back"):
        recovery.recover(state, "p", point="good")
    assert dict(state.items()) == {"k": 2, "z": 3}
    report = recovery.reports(state)[0]
    assert (report.status, report.lost) == ("rolled_back", "nothing")
    assert [one.result for name, one in report.steps if name == "rollback"] == [{"undone": True}]
    undo["action"]["value"] = 4
    with pytest.raises(RecoveryFailedError, match="the keys z"):
        made(store, steps, rollback=[undo], **more).recover(state, "p")


def test_a_procedure_that_was_to_restore_and_did_not_has_not_succeeded(store: sync.Store) -> None:
    state = agent(store)
    steps = [{"type": "fail"}, {"type": "locate_checkpoint"}, {"type": "restore_state"}]
    for step, before in zip(steps[1:], steps, strict=False):
        step["dependencies"] = [before["type"]]
    recovery = made(store, [{**step, "critical": False} for step in steps])
    with pytest.raises(RecoveryFailedError, match="nothing was restored"):
        recovery.recover(state, "p", point="good")
    assert recovery.reports(state)[0].status == "rolled_back"
    assert state.get("k") == 2


def test_what_others_write_meanwhile_outlives_the_undoing(place: Place) -> None:
    store, other = place.open(), place.open()
    state = agent(store)
    state.append("log", "a")

    def before(context: Any, action: Any) -> None:
        _elsewhere(other, "early", "order 16")

    def check(found: Any) -> str | None:
        if not isinstance(found, sync.State):
            return None  # it is asked before, of what may be put back
        other.agent("7").set("paid", "order 17")
        other.agent("7").set("k", "theirs")
        return "it is not good"

    steps = [STEPS[0], {"type": "before"}, *STEPS[1:], {"type": "validate_state"}]
    recovery = made(store, steps, types={"before": before}, validate=[check])
    head = state._handle.place()[2]
    with pytest.raises(RecoveryFailedError, match="others wrote meanwhile"):
        recovery.recover(state, "p", point="good")
    assert (state.get("k"), state.get("paid")) == ("theirs", "order 17")
    report = recovery.reports(state)[0]
    assert report.status == "failed"
    assert "1 entries that others wrote meanwhile" in report.lost  # before it was put back
    before = next(point for point in report.why.split() if point.startswith("main@"))
    assert state.at(before.rstrip(":")).get("log") == ["a"]
    assert int(before[5:].rstrip(":")) >= head
    assert store.verify().ok


def _elsewhere(store: sync.Store, key: str, value: Any) -> None:
    """As a client of its own writes."""
    import threading

    thread = threading.Thread(target=lambda: store.agent("7").set(key, value))
    thread.start()
    thread.join()


def test_what_a_recovery_passes_over_of_others_is_counted(place: Place) -> None:
    store, other = place.open(), place.open()
    state = agent(store)

    def before(context: Any, action: Any) -> None:
        _elsewhere(other, "paid", "order 17")

    steps = [STEPS[0], {"type": "before"}, *STEPS[1:]]
    report = made(store, steps, types={"before": before}).recover(state, "p", point="good")
    assert report.lost == "2 entries after it; 1 entries that others wrote meanwhile"


def test_a_state_that_others_put_back_meanwhile_stands(place: Place) -> None:
    store, other = place.open(), place.open()
    state = agent(store)

    def check(found: Any) -> str | None:
        if not isinstance(found, sync.State):
            return None  # it is asked before, of what may be put back
        other.agent("7").restore(1)
        return "it is not good"

    recovery = made(store, [*STEPS, {"type": "validate_state"}], validate=[check])
    with pytest.raises(RecoveryFailedError, match="others wrote meanwhile"):
        recovery.recover(state, "p", point="good")
    assert dict(state.items()) == {"k": 1}
    assert recovery.reports(state)[0].status == "failed"


def test_the_number_of_an_entry_is_not_taken_for_a_name(store: sync.Store) -> None:
    state = store.agent("7")
    for n in range(1, 6):
        state.set("k", n)
    named = state.checkpoint("3")
    recovery = sync.recovery.Recovery(store)
    entry = state.log()[-2]
    for point, expected in ((3, 3), ("3", 5), (named, 5), (entry, 2), (state.at(4), 4)):
        plan = recovery.plan(state, "drift", point=point)
        report = recovery.recover(state, "drift", point=point)
        assert state.get("k") == expected
        assert plan.point == report.restored_from
        assert recovery.reports(state, 1)[0].failure.point == report.failure.point


def test_a_plan_looks_as_the_procedure_does(store: sync.Store) -> None:
    state = agent(store)
    state.checkpoint("newer")
    state.set("k", 5)
    find = {"type": "locate_checkpoint", "action": {"strategies": ["newest_valid", "defaults"]}}
    recovery = made(store, [STEPS[0], find, STEPS[2]])
    plan = recovery.plan(state, "p")
    assert (plan.strategy, plan.point) == ("newest_valid", "main@5")
    named = recovery.plan(state, "p", point="good")
    assert (named.strategy, named.point) == ("named", "main@2")
    report = recovery.recover(state, "p", point="good")
    assert (report.strategy, report.restored_from) == ("named", "main@2")
    looks = made(store, [{"type": "validate_state"}]).plan(state, "p")
    assert looks.strategy is None
    assert "looks for no state" in str(looks)


@pytest.mark.parametrize(
    ("type", "action", "text"),
    [
        ("locate_checkpoint", {"strategies": ["newst"]}, "no strategy is called newst"),
        ("locate_checkpoint", {"strategies": "newest_valid"}, "Expected `array`, got `str`"),
        ("locate_checkpoint", {"strategies": [["a"]]}, "Expected `str`, got `array`"),
        ("backup_current", {"budget": "long"}, "Expected `float`, got `str`"),
        ("validate_state", {"keys": "k"}, "Expected `array`, got `str`"),
        ("notify_systems", {"message": ["k"]}, "message: Expected `str`"),
        ("notify_systems", {"message": 5}, "message: Expected `str`"),
        ("locate_checkpoint", {"strategy": ["newest_valid"]}, "it takes strategies"),
        ("restore_state", {"timeout": 5}, "timeout is no field of its action: it takes nothing"),
    ],
)
def test_actions_that_cannot_be_done_are_refused_when_they_are_set(
    store: sync.Store, type: str, action: Any, text: str
) -> None:
    with pytest.raises(ProcedureValidationError, match=text):
        made(store, [{"type": type, "action": action}])
    mine = {"validate_state": lambda context, action: None}
    made(store, [{"type": "validate_state", "action": {"keys": 5}}], types=mine)


def test_strategies_of_ones_own_may_be_named(store: sync.Store) -> None:
    state = agent(store)

    def mine(context: Any) -> Any:
        return context.strategies["as_it_is"](context)

    find = {"type": "locate_checkpoint", "action": {"strategies": ["mine"]}}
    recovery = made(store, [find], strategies={"mine": mine})
    assert recovery.recover(state, "p").strategy == "as_it_is"


def test_what_would_end_a_process_ends_a_step(store: sync.Store) -> None:
    state = agent(store)

    def leave(context: Any, action: Any) -> None:
        raise SystemExit(3)

    recovery = made(store, [*STEPS, {"type": "leave"}], types={"leave": leave})
    with pytest.raises(CriticalStepFailureError, match="SystemExit: 3"):
        recovery.recover(state, "p", point="good")
    assert state.get("k") == 2


def test_what_another_timeline_and_a_copy_lack_is_said(tmp_path: Path) -> None:
    place = Place("sqlite", tmp_path, sealed=False)
    with place.open() as store:
        state = store.agent("7")
        state.set("plan", "good")
        state.checkpoint("good")
    copy = tmp_path / "copy.db"
    for path in place.path.parent.glob(f"{place.path.name}*"):
        shutil.copy(path, copy.with_name(path.name.replace(place.path.name, copy.name)))
    store = place.open()
    state = store.agent("7")
    state.set("plan", "better")
    state.fork("trial").set("plan", "bold")
    state.set("plan", "odd")
    state.set("plan", "odder")
    with (
        sync.open(f"sqlite:{copy}", **place.options()) as there,
        sync.open(f"sqlite:{tmp_path}/other.db") as other,
    ):
        other.agent("7").set("plan", "elsewhere")
        for order, copies, lost in (
            ("copy", [there], "3 entries after it"),
            ("copy", [other], "what the copy lacks"),
        ):
            recovery = sync.recovery.Recovery(store, copies=copies, order=[order])
            assert recovery.plan(state, "drift").lost == lost


@pytest.mark.parametrize("rollback", [[], [{"type": "nothing"}]])
def test_what_a_step_declares_sticky_is_not_said_to_be_undone(
    store: sync.Store, rollback: list[Any]
) -> None:
    state = store.agent("7")
    state.set("plan", "good")

    def step(context: Any, action: Any) -> None:
        context.state.set("plan", "half")
        context.state.declare(Sticky("plan"))
        raise RuntimeError("it does not work")

    recovery = sync.recovery.Recovery(store, steps={"step": step, "nothing": lambda *_: None})
    steps = [{"type": "backup_current"}, {"type": "step"}]
    recovery.set({"id": "p", "triggers": ["odd"], "steps": steps, "rollback": rollback})
    with pytest.raises(RecoveryFailedError, match="other than before are the keys plan"):
        recovery.recover(state, "odd")
    assert recovery.reports(state)[0].status == "failed"


@pytest.mark.parametrize(
    "correlation", ["recovery/ticket-7", "recovery/20261116T173354.000000-00ff"]
)
def test_work_whose_correlation_looks_like_a_recovery_is_lost_as_any_other(
    store: sync.Store, correlation: str
) -> None:
    state = store.agent("7")
    state.set("k", 1)
    state.checkpoint("good")
    with store.acting("ops", correlation=correlation):
        state.set("orders", [1])
        state.set("paid", True)
    recovery = sync.recovery.Recovery(store)
    assert recovery.plan(state, "state_corruption").lost == "2 entries after it"
    assert recovery.recover(state, "state_corruption").lost == "2 entries after it"
    assert recovery.recover(state, "state_corruption", point="good").lost == "nothing", "its own"
