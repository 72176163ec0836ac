"""What recoveries keep of themselves may be damaged, too: it stands in nobody's way."""

from __future__ import annotations

import logging
import shlex
import shutil
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from store_kit import Hands, Place, put_row, rows_of

import holdfast
from holdfast import Scope, sync
from holdfast.cli.main import main
from holdfast.errors import (
    DamagedRecordError,
    GateRefusedError,
    InvalidInputError,
    RecoveryFailedError,
    Unavailable,
)
from holdfast.recovery import AgentFailure, RecoveryReport, records
from holdfast.recovery import recovery as engine
from holdfast.recovery.procedure import STANDARD
from holdfast.recovery.records import RUNNING, Records, RecoveryStepResult, recovered_agents
from holdfast.recovery.watchdog import Sighting
from holdfast.store.commit.change import Change, Target
from holdfast.store.commit.group import Core
from holdfast.store.history.handle import ChangeParts, StoreHandle
from holdfast.store.names.cause import cause_now


def number_of(core: Core, scope: str) -> bytes:
    """How the rows of a scope's entries begin."""
    return next(b"E" + n.to_bytes(6, "big") for one, n, *_ in core.scopes() if str(one) == scope)


def damage(place: Place, scope: str, number: int) -> bytes:
    """Flip a bit of an entry of a scope behind the store's back."""
    first = number_of(place.open()._core, scope)
    place.close()
    storage = place.storage()
    key, row = [one for one in rows_of(storage, b"E") if one[0].startswith(first)][number]
    put_row(storage, key, row[:-3] + bytes([row[-3] ^ 1]) + row[-2:])
    storage.close()
    return key


def lose(place: Place, scope: str, newest: int = 1) -> None:
    """Drop the newest entries of a scope behind the store's back."""
    first = number_of(place.open()._core, scope)
    place.close()
    storage = place.storage()
    for key, _ in [one for one in rows_of(storage, b"E") if one[0].startswith(first)][-newest:]:
        put_row(storage, key, None)
    storage.close()


def worked(place: Place) -> sync.State:
    state = place.open().agent("7")
    state.set("plan", 1)
    state.checkpoint("good")
    state.set("plan", 2)
    return state


@pytest.mark.parametrize("number", [0, 1, 2, -1])
def test_damaged_records_keep_no_agent_from_being_recovered(place: Place, number: int) -> None:
    worked(place)
    for _ in range(2):
        sync.recovery.Recovery(place.open()).recover("agent:7", "agent_crash")
    damage(place, "custom:$recovery/agent:7", number)
    checks = [lambda state: state.exists("plan")]
    recovery = sync.recovery.Recovery(place.open(), defaults={"plan": 0}, validate=checks)
    assert recovery.plan("agent:7", "agent_crash").strategy == "as_it_is"
    assert not [one for one in sync.recovery.boot(place.open()).items if one.outcome == "left"]
    assert recovery.recover("agent:7", "agent_crash").success
    assert recovery.recover("agent:7", "state_corruption").success
    assert place.open().agent("7").get("plan") == 1
    assert [one.success for one in recovery.reports("agent:7")[:2]] == [True, True]
    assert recovery.statistics().running == 0
    mended = recovery.reports("custom:$recovery/agent:7")
    assert [one.success for one in mended] == [True]
    assert recovery.quarantine("custom:$recovery/agent:7").list()
    assert not list(place.open().custom("$recovery/agent:7").keys("plan"))


def test_looking_at_damaged_records_passes_over_them_with_a_warning(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    worked(place)
    recovery = sync.recovery.Recovery(place.open())
    recovery.recover("agent:7", "agent_crash")
    damage(place, "custom:$recovery/agent:7", 1)
    recovery = sync.recovery.Recovery(place.open())
    with caplog.at_level(logging.WARNING, "holdfast.recovery"):
        assert recovery.reports("agent:7") == []
    assert "custom:$recovery/agent:7" in caplog.text
    assert recovery.statistics().recoveries == 0
    concerns = {one.scope: one for one in recovery.health().concerns if "damaged" in one.kind}
    assert list(concerns) == ["custom:$recovery/agent:7"]
    assert concerns["custom:$recovery/agent:7"].next == "holdfast repair custom:$recovery/agent:7"


def test_every_step_that_doctor_proposes_for_damaged_records_works(tmp_path: Path) -> None:
    place = Place("sqlite", tmp_path, sealed=False)
    worked(place)
    for _ in range(2):
        sync.recovery.Recovery(place.open()).recover("agent:7", "agent_crash")
    place.close()
    shutil.copytree(place.path.parent, tmp_path / "copy")
    copy = f"sqlite:{tmp_path / 'copy' / place.path.name}"
    damage(place, "custom:$recovery/agent:7", 2)
    damage(place, "agent:7", 1)
    for _ in range(5):
        found = sync.recovery.Recovery(place.open()).health().concerns
        place.close()
        step = next((one.next for one in found if one.next.startswith("holdfast repair")), None)
        if step is None:
            break
        words = shlex.split(step.partition(";")[0].replace("URL", copy))[1:]
        # What a repair without a copy leaves of the past is for the next step, with one.
        assert run(place, *words, "--yes") == (0 if "--copy" in words else 1), step
        assert run(place, "recovery", "list") == 0
        assert run(place, "recovery", "stats") == 0
    assert place.open().verify().ok
    assert sync.recovery.Recovery(place.open()).recover("agent:7", "agent_crash").success
    place.close()


def run(place: Place, *words: str) -> int:
    """The exit code of a command."""
    return main(["--store", place.url, *words])


def test_recovering_the_records_themselves_changes_nothing_but_damage(store: sync.Store) -> None:
    state = store.agent("7")
    state.set("plan", 1)
    state.checkpoint("good")
    recovery = sync.recovery.Recovery(
        store, defaults={"plan": 0}, validate=[lambda _: "no agent is well"]
    )
    plain = sync.recovery.Recovery(store)
    first = plain.recover(state, "agent_crash").id
    for kind in ("state_corruption", "drift", "agent_crash"):
        report = recovery.recover("custom:$recovery/agent:7", kind)
        assert (report.strategy, report.lost) == ("as_it_is", "nothing")
    assert [one.id for one in plain.reports(state)] == [first]
    assert plain.recover(state, "state_corruption").success
    with pytest.raises(InvalidInputError, match="keeps what recoveries did"):
        recovery.recover("custom:$recovery/agent:7", point="good")
    assert "agent:7" in map(str, recovered_agents(store._handle))


class Closed(holdfast.Gate):
    """Lets nobody write to what is kept of the recoveries of one agent."""

    def before(self, request: holdfast.GateRequest) -> None:
        if request.scope.id == "$recovery/agent:7":
            raise GateRefusedError("closed")


def test_records_that_cannot_be_mended_fail_the_recovery_of_their_agent_alone(
    place: Place, hands: Hands, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "STANDARD", replace(STANDARD, retries=0))  # and so no pauses
    store, failure, closed = place.open(clock=hands.clock), AgentFailure("agent_crash"), Closed()
    for name in "78":
        store.agent(name).set("plan", 1)
        assert sync.recovery.Recovery(store).recover(f"agent:{name}", failure).success
    damage(place, "custom:$recovery/agent:7", -1)
    store = place.open(clock=hands.clock)
    store.add_gate(closed)
    recovery = sync.recovery.Recovery(store)
    with pytest.raises(RecoveryFailedError, match=r"^agent:7: recoveries cannot be kept") as error:
        recovery.recover("agent:7", failure)
    assert error.value.recovery == "", "none of this agent was begun"
    done = recovery.recover_each(["agent:7", "agent:8"], failure)
    assert isinstance(done[Scope("agent", "7")], RecoveryFailedError)
    assert isinstance(done[Scope("agent", "8")], RecoveryReport)

    watchdog = sync.recovery.Watchdog(store, recovery)
    for name in "78":
        watchdog._sightings.add(Sighting(Scope("agent", name), failure))
    told = {one.agent.id: one.outcome for one in watchdog.look()}
    assert told == {"7": "failed", "8": "recovered"}
    [left] = watchdog.unanswered()
    assert (left.agent.id, left.tries) == ("7", 1)
    store.remove_gate(closed)
    hands.move(2)
    assert [one.outcome for one in watchdog.look()] == ["recovered"]


def test_others_are_told_of_an_end_though_the_agent_is_damaged_at_that_moment(
    store: sync.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its state before stays held then. The notice is for others, and comes all the same."""

    def damaged(*_: Any) -> None:
        raise DamagedRecordError("just now")

    def letting_go(line: Any, *_: Any) -> Any:
        return Change([Target(line.scope, special=damaged)]), lambda _: None

    state = store.agent("7")
    state.set("plan", 1)
    state.checkpoint("good")
    monkeypatch.setattr(records, "letting_go", letting_go)
    recovery = sync.recovery.Recovery(store)
    report = recovery.recover("agent:7", "state_corruption")
    assert [(one.recovery, one.status) for one in recovery.notices()] == [(report.id, "succeeded")]


def test_an_error_that_names_the_recovery_of_another_hides_no_answer(store: sync.Store) -> None:
    """As one that passes through a strategy or a step that recovers somebody else."""
    recovery = sync.recovery.Recovery(store)

    def recover(scope: Scope, *_: Any, **__: Any) -> Any:
        raise RecoveryFailedError(f"{scope}: no", "20260101T000000.000000-abcd")

    for name in "78":
        store.agent(name).set("plan", 1)
    recovery._recover = recovery.recover = recover  # type: ignore[assignment,method-assign]
    done = recovery.recover_each(["agent:7"])
    assert isinstance(done[Scope("agent", "7")], RecoveryFailedError)
    watchdog = sync.recovery.Watchdog(store, recovery)
    for name in "78":
        watchdog._sightings.add(Sighting(Scope("agent", name), AgentFailure("corruption_detected")))
    assert [one.outcome for one in watchdog.look()] == ["failed", "failed"]
    assert [one.tries for one in watchdog.unanswered()] == [1, 1]


def test_a_recovery_whose_procedure_is_lost_is_ended_and_undone(place: Place) -> None:
    state = worked(place)
    store = place.open()
    records = Records(store._handle, state.scope)
    recovery = sync.recovery.Recovery(store)
    failure = AgentFailure("agent_crash").check()
    record = records.begin(failure, recovery.select(failure))
    record.keep()  # and its process was killed
    drop(records, f"$recovery/{record.id}/procedure")
    reports = sync.recovery.Recovery(place.open()).resume("agent:7")
    assert [(one.id, one.status) for one in reports] == [(record.id, "rolled_back")]
    assert "damaged" in reports[0].why
    assert not any(one.status == RUNNING for one in records.all())
    assert recovery.recover("agent:7", "agent_crash").success


def drop(records: Records, key: str) -> None:
    parts = ChangeParts(StoreHandle(records.handle.core), cause_now(), None, owner=True)
    parts.part(records.handle).delete(key)
    plan = parts.plan()
    assert plan is not None
    records.handle.core.run(plan[0])


@pytest.mark.parametrize("lost", [False, True])
def test_mending_the_list_of_notices_keeps_what_can_be_read(place: Place, lost: bool) -> None:
    """All of its entries are those of recoveries; that does not make it an empty one."""
    worked(place)
    for _ in range(3):
        sync.recovery.Recovery(place.open()).recover("agent:7", "agent_crash")
    if lost:
        lose(place, "custom:$recovery")
    recovery = sync.recovery.Recovery(place.open())
    before = recovery.notices()
    assert len(before) == 3 - lost
    report = recovery.recover("custom:$recovery")
    assert report.strategy == "as_it_is"
    assert recovery.notices()[: len(before)] == before
    assert place.open().verify().ok


def test_what_is_noted_while_another_thread_keeps_things_is_kept(
    store: sync.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One keeps all that is held while the result of another comes in."""
    record = Records(StoreHandle(store._core), Scope("agent", "7")).begin(AgentFailure(), STANDARD)
    run = Core.run
    come_in = [RecoveryStepResult(step, True, {}, "", 0.0, 1) for step in ("other", "third")]
    threads: list[threading.Thread] = []

    def write(core: Core, change: Any) -> Any:
        written = run(core, change)
        if come_in:
            one = come_in.pop()
            threads.append(threading.Thread(target=record.note_result, args=("steps", one, True)))
            threads[-1].start()
            threads[-1].join(0.3)  # long enough to come in, if nothing keeps it from that
        return written

    monkeypatch.setattr(Core, "run", write)
    record.note_result("steps", RecoveryStepResult("one", True, {}, "", 0.0, 1))
    record.note(message="more")
    for thread in threads:
        thread.join(60)
    record.flush()
    assert set(record.done("steps")) == {"one", "other", "third"}


def spoiled(store: sync.Store, monkeypatch: pytest.MonkeyPatch, first: int, times: int) -> Any:
    """A recovery of two attempts, to which storage does not answer from a write of its on."""
    state = store.agent("7")
    state.set("plan", 1)
    state.checkpoint("good")
    state.set("plan", 2)
    done: list[str] = []
    writes: list[int] = []
    planned = records.planned

    def plan(*given: Any, **more: Any) -> Any:
        writes.append(1)
        if first <= len(writes) < first + times:
            raise Unavailable("not now")
        return planned(*given, **more)

    def own(context: Any, action: Any) -> None:
        done.append("own")
        if len(done) == 1:
            raise ValueError("only once")

    types = ("backup_current", "locate_checkpoint", "restore_state", "own", "validate_state")
    made = {"id": "p", "triggers": ["p"], "steps": [{"type": one} for one in types]}
    recovery = sync.recovery.Recovery(
        store,
        steps={"own": own},
        order=["newest_valid"],
        procedures=[made | {"retries": 2, "backoff": 1}],
    )
    monkeypatch.setattr(records, "planned", plan)
    return recovery, state, done, writes


@pytest.mark.parametrize("first", range(2, 10))
def test_an_outage_is_raised_and_leaves_a_recovery_to_be_resumed(
    store: sync.Store, monkeypatch: pytest.MonkeyPatch, first: int
) -> None:
    """Whatever is to be kept just then: who goes on does nothing twice that was done."""
    recovery, state, done, writes = spoiled(store, monkeypatch, first, 1000)
    with pytest.raises(Unavailable, match="not now"):
        recovery.recover(state, "p")
    assert recovery.reports(state)[0].status == "running"
    writes.extend([1] * 1000)
    (report,) = recovery.resume(state)
    assert (report.status, state.get("plan")) == ("succeeded", 1)
    assert done == ["own", "own"]
    last = [one.success for _, one in report.steps if one.attempt == report.attempts]
    assert last == [True] * 5
    assert [one.status for one in recovery.notices()] == ["succeeded"]
    assert store.verify().ok


def see(change: Any, notice: holdfast.recovery.RecoveryNotice) -> None:
    """What a consumer does with a notice."""
    change.append("seen", notice.recovery)


@pytest.mark.parametrize("read", [3, 6])
@pytest.mark.parametrize("how", ["the newest dropped", "the newest", "in between"])
def test_damage_of_the_list_of_notices_gives_none_twice_and_hides_no_later_one(
    plain: Place, how: str, read: int
) -> None:
    worked(plain)
    store = plain.open()
    recovery, dashboard = sync.recovery.Recovery(store), store.custom("dashboard")
    for _ in range(read):
        recovery.recover("agent:7", "agent_crash")
    assert recovery.deliver(dashboard, "d", see) == read
    for _ in range(6 - read):
        recovery.recover("agent:7", "agent_crash")
    scope = "custom:$recovery"
    if how == "the newest dropped":
        lose(plain, scope, 2)
    for number in {"the newest": (-1, -2), "in between": (1, 2)}.get(how, ()):
        damage(plain, scope, number)
    store = plain.open()
    recovery, dashboard = sync.recovery.Recovery(store), store.custom("dashboard")
    later = [recovery.recover("agent:7", "agent_crash").id for _ in range(3)]
    recovery.deliver(dashboard, "d", see)
    seen = dashboard.get("seen")
    assert len(seen) == len(set(seen))
    assert set(later) <= set(seen)
    assert {one.recovery for one in recovery.notices()} <= set(seen)
    assert recovery.deliver(dashboard, "d", see) == 0
