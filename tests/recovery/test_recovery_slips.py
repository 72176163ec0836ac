"""Whatever is given, whatever raises: a recovery refuses it clearly, or goes on without it."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Callable, Mapping
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from store_kit import Place, put_row, rows_of

import holdfast
from holdfast import sync
from holdfast.cli.main import main
from holdfast.errors import (
    CriticalStepFailureError,
    InvalidInputError,
    ProcedureValidationError,
)
from holdfast.recovery.records import Records, correlation_of, recovered_agents
from holdfast.store.names.cause import acting

STEPS = [{"type": "locate_checkpoint"}, {"type": "restore_state"}, {"type": "validate_state"}]
QUICK = {"id": "quick", "triggers": ["quick"], "steps": [{"type": "backup_current"}, *STEPS]}


def worked(store: sync.Store, id: str = "7") -> sync.State:
    state = store.agent(id)
    state.set("plan", 1)
    state.checkpoint("good")
    state.set("plan", 2)
    return state


# what is given


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"steps": [{"type": ["a"]}]}, "type of a step is text"),
        ({"steps": [{"type": 5}]}, "type of a step is text"),
        ({"steps": [{"type": "cleanup", "id": ["z"]}]}, "id of a step is text"),
        ({"steps": [{"type": "cleanup", "id": "put\tback"}]}, "U\\+0009"),
        ({"steps": [{"type": "cleanup", "id": "a//b"}]}, "rules of keys"),
        ({"steps": [{"type": "cleanup", "id": "a/"}]}, "rules of keys"),
        ({"steps": [{"type": "cleanup", "id": "e\u0301"}]}, "normal form C"),
        ({"steps": [{"type": "cleanup", "name": 5}]}, "name of a step is text"),
        ({"steps": [{"type": "cleanup", "dependencies": [["y"]]}]}, "dependencies are ids"),
        ({"steps": [{"type": "cleanup", "action": {"d": date(2026, 1, 1)}}]}, "cannot be kept"),
        ({"triggers": [{"type": "drift", "threshold": 5}]}, "threshold is no field of a trigger"),
        ({"steps": [{"type": "cleanup", "timeout": "1m30s"}]}, "or a text like 0.5s or 10m"),
        ({"id": ["p"]}, "id of a procedure is text"),
        ({"name": 5}, "name of a procedure is text"),
        ({1: 2, "zz": 3}, "1 is no field of a procedure, zz is no field"),
    ],
)
def test_a_procedure_that_could_not_run_is_refused_when_it_is_set(
    store: sync.Store, fields: Mapping[Any, Any], why: str
) -> None:
    with pytest.raises(ProcedureValidationError, match=why):
        sync.recovery.Recovery(store).set({**QUICK, **fields})


def test_a_procedure_is_what_it_was_when_it_was_set(store: sync.Store) -> None:
    action = {"strategies": ["newest_valid"]}
    steps = [
        holdfast.recovery.RecoveryStep("backup_current", timeout=500),
        holdfast.recovery.RecoveryStep("locate_checkpoint", action=action),
        holdfast.recovery.RecoveryStep("restore_state"),
    ]
    recovery = sync.recovery.Recovery(store)
    recovery.set(holdfast.recovery.Procedure("p", ("p",), tuple(steps)))
    action["strategies"][:] = ["bogus"]
    assert recovery.recover(worked(store), "p").strategy == "newest_valid"
    with pytest.raises(ProcedureValidationError, match="no strategy is called bogus"):
        recovery.set({**QUICK, "steps": [{"type": "locate_checkpoint", "action": action}]})
    half = recovery.set({**QUICK, "timeout": "0.5s", "backoff": "2s"})
    assert (half.timeout, half.backoff) == (500, 2000)


def test_a_procedure_may_be_made_with_lists(store: sync.Store) -> None:
    made = holdfast.recovery.Procedure(
        "p", ["t"], [holdfast.recovery.RecoveryStep("cleanup", dependencies=[])]
    )  # type: ignore[arg-type]
    assert sync.recovery.Recovery(store).set(made).steps[0].dependencies == ()
    with pytest.raises(ProcedureValidationError, match="triggers is a list"):
        sync.recovery.Recovery(store).set(holdfast.recovery.Procedure("p", "abc", made.steps))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "given",
    [
        {"order": "newest_valid"},
        {"order": []},
        {"order": {"drift": []}},
        {"order": [5]},
        {"order": [["keys"]]},
        {"order": {"drift": "newest_valid"}},
        {"order": {5: ["newest_valid"]}},
        {"order": {"drift": ["nope"]}},
        {"copies": ["sqlite:x.db"]},
        {"copies": 5},
        {"validate": len},
        {"validate": [None]},
        {"defaults": [1]},
        {"defaults": []},
        {"defaults": 0},
        {"defaults": {"d": date(2026, 1, 1)}},
        {"defaults": {"$d": 1}},
        {"strategies": {"mine": 5}},
        {"strategies": [len]},
        {"strategies": ""},
    ],
)
def test_what_a_recovery_cannot_be_made_with_is_refused_at_once(
    store: sync.Store, given: dict[str, Any]
) -> None:
    with pytest.raises(InvalidInputError):
        sync.recovery.Recovery(store, **given)
    with pytest.raises(InvalidInputError):
        sync.recovery.Recovery(store, copies=store)


@pytest.mark.parametrize(
    "call",
    [
        lambda recovery: recovery.recover("agent:7", 5),
        lambda recovery: recovery.plan("agent:7", 5),
        lambda recovery: recovery.recover("agent:7", progress=5),
        lambda recovery: recovery.recover_each("agent:7"),
        lambda recovery: recovery.recover_group("agent:7"),
        lambda recovery: recovery.report("agent:7", 5),
        lambda recovery: recovery.reports("agent:7", -1),
        lambda recovery: recovery.notices(-1),
        lambda recovery: recovery.deliver(recovery._store.agent("7"), "c", 5),
        lambda recovery: recovery.recover("agent:7", procedure=["x"]),
        lambda recovery: recovery.recover(recovery._store.agent("7").at(1)),
        lambda recovery: recovery.resume("agent:7", wait="x"),
        lambda recovery: recovery.health(url=5),
        lambda recovery: recovery.quarantine("agent:7").get(5),
        lambda recovery: sync.recovery.boot(recovery._store, machines=5),
        lambda recovery: sync.recovery.boot(recovery._store, recovery=5),
    ],
)
def test_what_cannot_be_meant_is_refused(
    store: sync.Store, call: Callable[[sync.recovery.Recovery], Any]
) -> None:
    worked(store)
    with pytest.raises(InvalidInputError):
        call(sync.recovery.Recovery(store))
    assert sync.recovery.Recovery(store).reports("agent:7") == []


def test_a_file_with_procedures_that_is_no_text_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = Place("sqlite", tmp_path, sealed=False)
    worked(place.open())
    place.close()
    file = tmp_path / "p.yaml"
    file.write_bytes(b"\xff\xfe")
    assert main(["--store", place.url, "recover", "agent:7", "--procedures", str(file)]) == 2
    assert "UTF-8" in capsys.readouterr().err


# what raises


def test_the_next_strategy_is_tried_if_one_fails(tmp_path: Path, store: sync.Store) -> None:
    state = worked(store)
    gone = sync.open(f"sqlite:{tmp_path / 'copy.db'}")
    gone.close()
    for given, name, why in (
        ({"copies": [gone]}, "copy", "copy 0 failed: StoreClosedError"),
        ({"strategies": {"mine": broken}}, "mine", "failed: OSError: it is gone"),
        (
            {"strategies": {"mine": lambda _: "good"}},
            "mine",
            "a strategy gives a RecoveryTarget, not str",
        ),
    ):
        recovery = sync.recovery.Recovery(store, order=[name, "newest_valid"], **given)  # type: ignore[arg-type]
        plan = recovery.plan(state, "storage_failure")
        report = recovery.recover(state, "storage_failure")
        assert (plan.strategy, report.strategy) == ("newest_valid", "newest_valid")
        assert why in plan.passed[name]
        assert why in report.passed[name]


def broken(context: Any) -> Any:
    raise OSError("it is gone")


def test_a_copy_serves_a_procedure_that_keeps_no_backup(place: Place, tmp_path: Path) -> None:
    store = place.open()
    state = worked(store)
    with sync.open(f"sqlite:{tmp_path / 'copy.db'}") as copy:
        copy.agent("7").set("plan", "of the copy")
        steps = [{"type": "locate_checkpoint", "action": {"strategies": ["copy"]}}, *STEPS[1:]]
        recovery = sync.recovery.Recovery(
            store, copies=[copy], procedures=[{**QUICK, "steps": steps}]
        )
        assert recovery.recover(state, "quick").strategy == "copy"
    assert state.get("plan") == "of the copy"


def test_functions_may_be_async(place: Place) -> None:
    asyncio.run(_async_functions(place))


async def _async_functions(place: Place) -> None:
    worked(place.open())
    place.close()
    told: list[str] = []
    async with holdfast.open(place.url, **place.options()) as store:
        state = store.agent("7")

        async def check(checked: sync.State) -> str | None:
            await asyncio.sleep(0)
            return None if checked.get("plan") == 1 else "the plan is wrong"

        async def strategy(context: Any) -> Any:
            await asyncio.sleep(0)
            raise ValueError("it does not serve")

        async def progress(title: str, how: str) -> None:
            told.append(title)

        async def show(change: Any, notice: holdfast.recovery.RecoveryNotice) -> None:
            await asyncio.sleep(0)
            change.append("seen", notice.agent)

        with warnings.catch_warnings():
            warnings.simplefilter("error")
            recovery = holdfast.recovery.Recovery(
                store,
                validate=[check],
                strategies={"mine": strategy},
                order=["mine", "newest_valid"],
                procedures=[QUICK],
            )
            report = await recovery.recover(state, "quick", progress=progress)
            assert report.passed == {"mine": "failed: ValueError: it does not serve"}
            assert told == [one["type"] for one in QUICK["steps"]]  # type: ignore[index]
            await state.set("plan", 3)
            with pytest.raises(CriticalStepFailureError, match="the plan is wrong"):
                await holdfast.recovery.Recovery(
                    store, validate=[check], order=["as_it_is"], procedures=[QUICK]
                ).recover(state, "quick")
            await holdfast.recovery.Recovery(store).recover(state, "state_corruption")
            dash = store.custom("dash")
            assert await recovery.deliver(dash, "c", show) >= 1
            assert "agent:7" in await dash.get("seen")


# what whoever goes on does not have


def test_who_lacks_a_type_of_step_ends_the_recovery_by_undoing_it(store: sync.Store) -> None:
    state = worked(store)
    killed(store, state)
    report = sync.recovery.Recovery(store).recover(state, "agent_crash")
    assert report.success
    assert state.get("plan") == 2
    ended = sync.recovery.Recovery(store).reports(state)[1]
    assert ended.status == "rolled_back"
    assert "Unknown recovery step type: mine" in ended.why
    killed(store, state)
    assert [one.outcome for one in sync.recovery.boot(store).items] == ["rolled_back"]
    killed(store, state)
    assert [one.status for one in sync.recovery.Recovery(store).resume(state)] == ["rolled_back"]
    assert state.get("plan") == 2
    assert sync.recovery.Recovery(store).resume(state) == []


def killed(store: sync.Store, state: sync.State) -> None:
    """A recovery whose process ends in a step of its own, which has changed the state."""

    def mine(context: Any, action: Any) -> None:
        context.state.set("plan", "half of it")
        raise SystemExit

    steps = [{"type": "backup_current"}, {"type": "mine"}, *STEPS]
    recovery = sync.recovery.Recovery(
        store, steps={"mine": mine}, procedures=[{**QUICK, "steps": steps, "timeout": 300}]
    )
    records = Records(store._handle, state.scope)
    record = records.begin(
        holdfast.recovery.AgentFailure("quick").check(), recovery.select(_quick())
    )
    context = recovery._context(record)
    results = recovery.steps["backup_current"](context, {})
    record.note_result("steps", result_of("backup_current", results))
    with pytest.raises(SystemExit), acting("recovery", correlation=correlation_of(record.id)):
        mine(context, {})


def _quick() -> holdfast.recovery.AgentFailure:
    return holdfast.recovery.AgentFailure("quick").check()


def result_of(step: str, result: Any) -> Any:
    return holdfast.recovery.RecoveryStepResult(step, True, result, "", 0.0, 1)


def test_who_lacks_the_copy_says_so_and_undoes_it(tmp_path: Path, store: sync.Store) -> None:
    state = worked(store)
    with sync.open(f"sqlite:{tmp_path / 'copy.db'}") as copy:
        copy.agent("7").set("plan", "of the copy")
        recovery = sync.recovery.Recovery(store, copies=[copy], order=["copy"], procedures=[QUICK])
        records = Records(store._handle, state.scope)
        record = records.begin(_quick(), recovery.select(_quick()))
        context = recovery._context(record)
        for name in ("backup_current", "locate_checkpoint"):
            found = result_of(name, recovery.steps[name](context, {}))
            record.note_result("steps", found)
            context.results[name] = found
    (report,) = sync.recovery.Recovery(store).resume(state)
    assert report.status == "rolled_back"
    assert "copy 0, in which the state was found, was not given here" in report.why
    assert state.get("plan") == 2


# the directory


def test_a_damaged_row_of_the_directory_stops_nothing_else(place: Place) -> None:
    for name in "abc":
        worked(place.open(), name)
    sync.recovery.Recovery(place.open()).recover("agent:a", "agent_crash")
    lost = damage_directory(place, "agent:b")
    store = place.open()
    recovery = sync.recovery.Recovery(store)
    report = sync.recovery.boot(store)
    assert {"agent:a", "agent:c"} <= report.methods.keys()
    assert [one.outcome for one in report.items] == ["left"]
    assert "holdfast repair --copy URL" in report.left[0].why
    assert recovery.statistics().recoveries == 1
    whole = recovery.health()
    assert [one.next[:26] for one in whole.concerns if one.kind == "damaged_store"] == [
        "holdfast repair --copy URL"
    ]
    own = recovery.health("agent:b").concerns[0]
    assert (own.kind, own.scope) == ("damaged_state", "agent:b")
    assert lost in own.what
    swept = store.sweep()
    assert len(swept.damaged) == 1
    assert recovery.recover("agent:c", "agent_crash").success


def damage_directory(place: Place, scope: str) -> str:
    """Flip a bit of the row of a scope; how it is called."""
    tag = place.open()._core.tag(b"directory", scope)
    place.close()
    storage = place.storage()
    key, row = next(one for one in rows_of(storage, b"D") if one[0][1:17] == tag)
    put_row(storage, key, row[:-3] + bytes([row[-3] ^ 1]) + row[-2:])
    storage.close()
    return tag.hex()


# orders


def test_an_order_may_be_pinned_for_a_kind_of_failure_alone(store: sync.Store) -> None:
    state = worked(store)
    recovery = sync.recovery.Recovery(store, order={"agent_crash": ["newest_valid"]})
    assert recovery.plan(state, "agent_crash").strategy == "newest_valid"
    assert recovery.plan(state, "missed_beats").strategy == "as_it_is"
    rest = sync.recovery.Recovery(store, order={"agent_crash": ["as_it_is"], "": ["newest_valid"]})
    assert rest.plan(state, "agent_crash").strategy == "as_it_is"
    assert rest.plan(state, "missed_beats").strategy == "newest_valid"


# names


@pytest.mark.parametrize("id_", ["n" * 256, "7/0", "x" * 240])
def test_every_legal_id_can_be_recovered(store: sync.Store, id_: str) -> None:
    """Leases of recoveries bear the names of agents: long ones, and ones like those of slots."""
    worked(store, "7")
    state = worked(store, id_)
    assert sync.recovery.Recovery(store).recover(state, "state_corruption").success
    assert state.get("plan") == 1
    assert store.agent("7").get("plan") == 2
    assert sync.recovery.boot(store).left == []
    assert f"agent:{id_}" in map(str, recovered_agents(store._handle))
