"""Schedules over a store: what runs when, once, and what survives."""

from __future__ import annotations

import asyncio
import threading
import time
from datetime import UTC, datetime
from typing import Any

import pytest
from store_kit import Place

import holdfast
from holdfast import Clock, sync
from holdfast.checkpoints import Cron, Every, ScheduledRun
from holdfast.checkpoints import checkpoint_group as group
from holdfast.checkpoints import scheduler as runner
from holdfast.checkpoints.schedule import Schedules
from holdfast.errors import (
    GateRefusedError,
    InvalidInputError,
    MissingError,
    OutcomeUnknown,
    ReadOnlyError,
    StorageReadOnlyError,
    StoreClosedError,
    Unavailable,
)
from holdfast.storage.contract import Batch
from holdfast.storage.wrappers import MODES, Fault, Faulty
from holdfast.store.history.handle import StoreHandle
from holdfast.store.open import open_core

START = datetime(2026, 11, 15, 10, 0, 30, tzinfo=UTC).timestamp()


class Time:
    """Both clocks of a process; `go` lets time pass, `set` only sets the wall clock."""

    def __init__(self) -> None:
        self.wall, self.ticks = START, 1000.0
        self.clock = Clock(lambda: self.wall, lambda: self.ticks)

    def go(self, seconds: float) -> None:
        self.wall += seconds
        self.ticks += seconds


@pytest.fixture
def clock() -> Time:
    return Time()


def schedule_cells(place: Place) -> dict[bytes, bytes]:
    return dict(place.storage().cells(b"CT", b"CU"))


def outcomes(runs: list[ScheduledRun]) -> list[tuple[str, str]]:
    return [(run.schedule, run.outcome) for run in runs]


# intervals and calendars


@pytest.mark.spec("K61", "K115")
def test_an_interval_makes_checkpoints_of_type_scheduled(place: Place, clock: Time) -> None:
    store = place.open(clock=clock.clock)
    agent = store.agent("1")
    agent.set("k", 1)
    scheduler = sync.checkpoints.Scheduler(store)
    told = scheduler.every(300, agent)
    assert (told.name, told.when, told.scope, told.runs) == ("agent:1", Every(300), "agent:1", 0)
    assert scheduler.run_due() == []
    clock.go(299)
    assert scheduler.run_due() == []
    clock.go(1)
    (run,) = scheduler.run_due()
    assert (run.outcome, run.slot) == ("saved", 1)
    (made,) = agent.checkpoints()
    assert (run.checkpoint, made.type, made.name) == (made, "scheduled", "agent:1")
    assert made.metadata == {"trigger": "schedule", "schedule": "agent:1", "slot": 1}
    assert made.cause.actor == "scheduler"
    agent.set("k", 2)
    clock.go(300)
    assert outcomes(scheduler.run_due()) == [("agent:1", "saved")]
    (info,) = scheduler.schedules()
    assert (info.runs, info.failed) == (2, None)
    assert info.last == datetime.fromtimestamp(clock.wall, UTC)
    assert info.next == datetime.fromtimestamp(clock.wall + 300, UTC)
    assert store.verify().findings == []


def test_what_did_not_change_gets_no_checkpoint_and_writes_nothing(
    place: Place, clock: Time
) -> None:
    store = place.open(clock=clock.clock)
    agent = store.agent("1")
    agent.set("k", 1)
    scheduler = sync.checkpoints.Scheduler(store)
    scheduler.every(300, agent)
    scheduler.cron("*/5 * * * *", "agent:never-written")
    clock.go(300)
    assert ("agent:1", "saved") in outcomes(scheduler.run_due())
    before = schedule_cells(place), agent._handle.place()
    for _ in range(3):
        clock.go(300)
        ran = dict(outcomes(scheduler.run_due()))
        assert ran == {"agent:1": "unchanged", "agent:never-written": "absent"}
    assert (schedule_cells(place), agent._handle.place()) == before
    agent.set("k", 2)
    store.agent("never-written").set("k", 1)
    clock.go(300)
    assert dict(outcomes(scheduler.run_due())) == {
        "agent:1": "saved",
        "agent:never-written": "saved",
    }


def test_an_agent_that_is_erased_and_begins_anew(place: Place, clock: Time) -> None:
    store = place.open(clock=clock.clock)
    agent = store.agent("1")
    scheduler = sync.checkpoints.Scheduler(store)
    scheduler.every(60, agent)
    for end in (store.erase, store.delete):
        agent.set("k", 1)
        clock.go(60)
        assert outcomes(scheduler.run_due()) == [("agent:1", "saved")]
        end(agent)
        clock.go(60)
        assert outcomes(scheduler.run_due()) == [("agent:1", "absent")]
    agent.set("k", 1)
    clock.go(60)
    assert outcomes(scheduler.run_due()) == [("agent:1", "saved")]


def test_a_calendar_in_a_zone(place: Place, clock: Time) -> None:
    store = place.open(clock=clock.clock)
    agent = store.agent("1")
    scheduler = sync.checkpoints.Scheduler(store)
    told = scheduler.cron("0 3 * * *", agent, zone="Europe/Berlin", name="nightly")
    assert told.when == Cron("0 3 * * *", "Europe/Berlin")
    assert told.next == datetime(2026, 11, 16, 2, tzinfo=UTC)
    for number in range(3):
        agent.set("k", number)
        clock.go(3600 * 16 - 31 if not number else 3600 * 24 - 1)
        assert scheduler.run_due() == []
        clock.go(1)
        (run,) = scheduler.run_due()
        assert (run.outcome, run.slot) == ("saved", int(clock.wall))
    assert len(agent.checkpoints(type="scheduled")) == 3


def test_another_timeline_of_a_scope(store: sync.Store) -> None:
    agent = store.agent("1")
    agent.set("k", 1)
    trial = agent.fork("trial")
    trial.set("k", 2)
    scheduler = sync.checkpoints.Scheduler(store)
    assert scheduler.every(0.1, trial).name == "agent:1/trial"
    time.sleep(0.11)
    scheduler.run_due()
    assert [one.timeline for one in trial.checkpoints(type="scheduled")] == ["trial"]
    scheduler.stop()


# clocks that are set


@pytest.mark.parametrize("jump", [10 * 365 * 86_400, -10 * 365 * 86_400, 3600, -3600])
def test_an_interval_does_not_care_for_the_wall_clock(clock: Time, jump: float) -> None:
    with sync.open("memory:", clock=clock.clock) as store:
        agent = store.agent("1")
        scheduler = sync.checkpoints.Scheduler(store)
        scheduler.every(60, agent)
        for number in range(10):
            agent.set("k", number)
            if number == 5:
                clock.wall += jump
            clock.go(30)
            assert scheduler.run_due() == []
            clock.go(30)
            assert outcomes(scheduler.run_due()) == [("agent:1", "saved")]
        scheduler.stop()


@pytest.mark.parametrize("jump", [10 * 365 * 86_400, 3600])
def test_a_clock_that_jumps_ahead_and_back_neither_skips_nor_repeats(
    clock: Time, jump: float
) -> None:
    with sync.open("memory:", clock=clock.clock) as store:
        agent, scheduler = store.agent("1"), sync.checkpoints.Scheduler(store)
        scheduler.cron("*/10 * * * *", agent)
        for minute in range(180):
            clock.wall += {60: jump, 65: -jump}.get(minute, 0)
            clock.go(60)
            agent.set("minute", minute)
            scheduler.run_due()
        scheduler.stop()
        slots = [one.metadata["slot"] for one in agent.checkpoints()][::-1]
    assert slots == [int(START) - 30 + 600 * number for number in range(1, 19)]


def test_missed_slots_run_once_after_a_restart(place: Place, clock: Time) -> None:
    store = place.open(clock=clock.clock)
    agent = store.agent("1")
    first = sync.checkpoints.Scheduler(store)
    first.every(60, agent, name="minutes")
    first.cron("0 * * * *", agent, name="hours")
    agent.set("k", 1)
    clock.go(60)
    assert outcomes(first.run_due()) == [("minutes", "saved")]
    place.close()
    clock.go(5 * 3600)
    clock.ticks = 5.0  # another boot
    store = place.open(clock=clock.clock)
    agent = store.agent("1")
    agent.set("k", 2)
    second = sync.checkpoints.Scheduler(store)
    assert sorted(outcomes(second.run_due())) == [("hours", "saved"), ("minutes", "saved")]
    agent.set("k", 3)
    assert second.run_due() == [], "one for all that were missed"
    clock.go(60)
    assert outcomes(second.run_due()) == [("minutes", "saved")]
    assert store.verify().findings == []


def test_after_a_restart_a_clock_that_went_back_delays_at_most_one_interval(
    place: Place, clock: Time
) -> None:
    store = place.open(clock=clock.clock)
    store.agent("1").set("k", 1)
    sync.checkpoints.Scheduler(store).every(60, "agent:1")
    place.close()
    clock.wall -= 10 * 365 * 86_400
    scheduler = sync.checkpoints.Scheduler(place.open(clock=clock.clock))
    assert scheduler.run_due() == []
    clock.go(60)
    assert outcomes(scheduler.run_due()) == [("agent:1", "saved")]


def test_a_thousand_agents_do_not_fire_together(clock: Time) -> None:
    with sync.open("memory:", clock=clock.clock) as store:
        scheduler = sync.checkpoints.Scheduler(store)
        for number in range(1000):
            store.agent(str(number)).set("k", 1)
            scheduler.every(300, f"agent:{number}", jitter=30)
        most, total = 0, 0
        for _ in range(331):
            clock.go(1)
            ran = len(scheduler.run_due())
            most, total = max(most, ran), total + ran
        assert total == 1000
        assert most < 70
        scheduler.stop()


class Behind(holdfast.Gate):
    """Does something in front of each checkpoint, and something behind it."""

    def __init__(self, behind: Any = None, before: Any = None) -> None:
        self._behind, self._before = behind, before

    def before(self, request: Any) -> None:
        if self._before is not None and request.operations[0].kind == "checkpoint":
            self._before()

    def after(self, change: Any, written: Any) -> None:
        if self._behind is not None and change.targets[0].special is not None:
            self._behind()


# one runner


def test_only_one_of_two_runs_and_the_other_takes_over(place: Place, clock: Time) -> None:
    stores = place.open(clock=clock.clock), place.open(clock=clock.clock)
    agent = stores[0].agent("1")
    agent.set("k", 1)
    first, second = (sync.checkpoints.Scheduler(store) for store in stores)
    first.every(1, agent)
    assert first.run_due() == second.run_due() == []
    clock.go(1)
    assert second.run_due() == []
    assert outcomes(first.run_due()) == [("agent:1", "saved")]
    first.stop()
    agent.set("k", 2)
    clock.go(1)
    assert outcomes(second.run_due()) == [("agent:1", "saved")]
    assert second.schedules()[0].runs == 2
    second.stop()


def test_a_runner_that_was_overtaken_writes_nothing(place: Place, clock: Time) -> None:
    stores = [place.open(clock=clock.clock) for _ in range(2)]
    agent, taken = stores[1].agent("1"), list[ScheduledRun]()
    agent.set("k", 1)

    def overtaken() -> None:
        stores[1].break_lease(runner.LEASE)  # as if this one had been stopped for long
        taken.extend(second.run_due())

    first, second = (sync.checkpoints.Scheduler(store) for store in stores)
    stores[0].add_gate(Behind(before=overtaken))
    first.every(60, agent.scope)
    clock.go(60)
    assert first.run_due() == []
    assert outcomes(taken) == [("agent:1", "saved")]
    assert [one.metadata["slot"] for one in agent.checkpoints()] == [1]
    assert second.schedules()[0].runs == 1
    assert first.run_due() == [], "the other is the runner now"
    clock.go(60)
    agent.set("k", 2)
    assert outcomes(second.run_due()) == [("agent:1", "saved")]


def test_a_runner_that_was_overtaken_does_not_say_how_far_it_came(
    place: Place, clock: Time
) -> None:
    first, second = (place.open(clock=clock.clock) for _ in range(2))
    first.agent("1").set("k", 1)
    first.add_gate(Behind(lambda: second.break_lease(runner.LEASE)))
    overtaken = sync.checkpoints.Scheduler(first)
    overtaken.every(60, "agent:1")
    clock.go(60)
    assert overtaken.run_due() == []
    assert overtaken.schedules()[0].runs == 0, "another decides whether it is done"


def test_a_kill_between_the_checkpoint_and_its_cell_makes_no_second_one(
    place: Place, clock: Time, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = place.open(clock=clock.clock)
    agent = store.agent("1")
    agent.set("k", 1)
    scheduler = sync.checkpoints.Scheduler(store)
    scheduler.every(60, agent)
    scheduler.run_due()
    clock.go(60)
    with monkeypatch.context() as patch:
        patch.setattr(
            runner.Scheduler, "_store", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt)
        )
        with pytest.raises(KeyboardInterrupt):
            scheduler.run_due()
    assert len(agent.checkpoints()) == 1
    store = place.reopen(clock=clock.clock)
    agent = store.agent("1")
    agent.set("k", 2)
    again = sync.checkpoints.Scheduler(store)
    assert outcomes(again.run_due()) == [("agent:1", "repeated")]
    assert len(agent.checkpoints()) == 1
    clock.go(60)
    assert outcomes(again.run_due()) == [("agent:1", "saved")]
    assert store.verify().findings == []


# schedules


def test_adding_the_same_again_goes_on_and_another_replaces(place: Place, clock: Time) -> None:
    store = place.open(clock=clock.clock)
    store.agent("1").set("k", 1)
    scheduler = sync.checkpoints.Scheduler(store)
    scheduler.every(60, "agent:1")
    clock.go(60)
    scheduler.run_due()
    before = schedule_cells(place)
    assert scheduler.every(60, "agent:1").runs == 1
    assert schedule_cells(place) == before
    assert scheduler.every(30, "agent:1").runs == 0
    clock.go(30)
    store.agent("1").set("k", 2)
    assert outcomes(scheduler.run_due()) == [("agent:1", "saved")]


def test_what_another_adds_and_removes_is_followed(place: Place, clock: Time) -> None:
    stores = [place.open(clock=clock.clock) for _ in range(2)]
    stores[0].agent("1").set("k", 1)
    first, second = (sync.checkpoints.Scheduler(store) for store in stores)
    first.run_due()
    second.every(60, "agent:1")
    second.every(60, "agent:1", name="twin")
    first.run_due()
    second.remove("twin")
    clock.go(60)
    assert outcomes(first.run_due()) == [("agent:1", "saved")]
    with pytest.raises(MissingError, match=r"schedules\(\)"):
        first.remove("twin")
    second.remove("agent:1")
    clock.go(60)
    assert first.run_due() == first.schedules() == []
    assert stores[0].verify().findings == []


def test_one_that_is_removed_while_it_runs_stays_removed(place: Place, clock: Time) -> None:
    store = place.open(clock=clock.clock)
    scheduler = sync.checkpoints.Scheduler(store)
    for name in ("once", "other"):
        store.agent(name).set("k", 1)
        scheduler.every(60, store.agent(name), name=name)
    there = ["once"]
    store.add_gate(Behind(lambda: scheduler.remove(there.pop()) if there else None))
    clock.go(60)
    assert sorted(outcomes(scheduler.run_due())) == [("once", "saved"), ("other", "saved")]
    assert [(info.name, info.runs) for info in scheduler.schedules()] == [("other", 1)]
    clock.go(60)
    assert outcomes(scheduler.run_due()) == [("other", "unchanged")]


def test_names_and_scopes_do_not_show_in_an_encrypted_store(place: Place) -> None:
    store = place.open()
    sync.checkpoints.Scheduler(store).every(60, "agent:patient-4711", name="visit-12")
    stored = b"".join(key + cell for key, cell in schedule_cells(place).items())
    for name in (b"patient-4711", b"visit-12"):
        assert (name in stored) is not place.sealed


def test_cells_that_are_changed_moved_or_added_are_found(place: Place) -> None:
    store = place.open()
    scheduler = sync.checkpoints.Scheduler(store)
    scheduler.every(60, "agent:1", name="a")
    scheduler.every(60, "agent:1", name="b")
    storage = place.storage()
    cells = schedule_cells(place)
    assert (len(cells), store.verify().findings) == (3, [])
    keys = Schedules(store._core).cells
    one, other = keys.key_of("a"), keys.key_of("b")
    for key in (one, b"CT"):
        changed = cells[key][:-1] + bytes([cells[key][-1] ^ 1])
        for found in (changed, cells[other]):
            storage.commit(Batch(cells=[(key, cells[key], found)]))
            assert [finding.kind for finding in store.verify().findings] == ["damage"]
            storage.commit(Batch(cells=[(key, found, cells[key])]))
    for key in (b"CR", b"CT1", one + b"0", b"CU"):
        storage.commit(Batch(cells=[(key, None, b"?")]))
        assert [finding.kind for finding in store.verify().findings] == ["unaccounted"]
        storage.commit(Batch(cells=[(key, b"?", None)]))
    assert store.verify().findings == []


def test_a_damaged_schedule_does_not_keep_others_from_running(place: Place, clock: Time) -> None:
    store = place.open(clock=clock.clock)
    scheduler = sync.checkpoints.Scheduler(store)
    scheduler.every(60, "agent:1", name="a")
    scheduler.every(60, "agent:1", name="b")
    key = Schedules(store._core).cells.key_of("b")
    storage, row = place.storage(), schedule_cells(place)[key]
    storage.commit(Batch(cells=[(key, row, row[:-1] + bytes([row[-1] ^ 1]))]))
    clock.go(60)
    assert outcomes(scheduler.run_due()) == [("a", "absent")]


@pytest.mark.parametrize(
    "arguments",
    [
        {"seconds": 60, "target": None},
        {"seconds": 60, "target": 7},
        {"seconds": 60, "target": "nonsense"},
        {"seconds": 60, "target": "agent:1", "name": "$reserved"},
        {"seconds": 0, "target": "agent:1"},
    ],
)
def test_what_can_be_no_schedule_is_refused(store: sync.Store, arguments: dict[str, Any]) -> None:
    scheduler = sync.checkpoints.Scheduler(store)
    with pytest.raises(InvalidInputError):
        scheduler.every(**arguments)
    assert scheduler.schedules() == []


def test_what_can_be_no_scheduler_is_refused(store: sync.Store, place: Place) -> None:
    with pytest.raises(InvalidInputError):
        sync.checkpoints.Scheduler(store, lease=0.01)
    with pytest.raises(InvalidInputError):
        sync.checkpoints.Scheduler("sqlite:")  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError):
        holdfast.checkpoints.Scheduler(store)  # type: ignore[arg-type]
    reading = sync.checkpoints.Scheduler(place.open(read_only=True))
    assert reading.schedules() == []
    for refused in (reading.start, reading.run_due, lambda: reading.every(60, "agent:1")):
        with pytest.raises(ReadOnlyError):
            refused()


# failures


class No(holdfast.Gate):
    def before(self, request: Any) -> None:
        if any(one.kind == "checkpoint" for one in request.operations):
            raise GateRefusedError("not now")


def test_a_refusal_is_told_and_the_next_slot_tried(store: sync.Store, place: Place) -> None:
    store.agent("1").set("k", 1)
    scheduler = sync.checkpoints.Scheduler(store)
    scheduler.every(0.1, "agent:1")
    gate = No()
    store.add_gate(gate)
    time.sleep(0.11)
    (run,) = scheduler.run_due()
    assert (run.outcome, run.error) == ("failed", "GateRefusedError")
    assert scheduler.schedules()[0].failed == "GateRefusedError"
    store.remove_gate(gate)
    time.sleep(0.11)
    assert outcomes(scheduler.run_due()) == [("agent:1", "saved")]
    assert scheduler.schedules()[0].failed is None
    scheduler.stop()


@pytest.mark.parametrize("error", [Unavailable, StorageReadOnlyError])
def test_what_the_storage_could_not_serve_is_tried_again_with_pauses(
    clock: Time, monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    with sync.open("memory:", clock=clock.clock) as store:
        agent = store.agent("1")
        agent.set("k", 1)
        scheduler = sync.checkpoints.Scheduler(store)
        scheduler.every(600, agent)
        clock.go(600)
        with monkeypatch.context() as patch:
            patch.setattr(group, "_finished", lambda *_: group.Saved("failed", error=error("x")))
            for pause in (1, 2, 4, 8):
                assert outcomes(scheduler.run_due()) == [("agent:1", "failed")]
                clock.go(pause - 0.5)
                assert scheduler.run_due() == []
                clock.go(0.5)
        assert outcomes(scheduler.run_due()) == [("agent:1", "repeated")], "it had been made"
        assert len(agent.checkpoints()) == 1
        scheduler.stop()


@pytest.mark.parametrize("mode", MODES)
def test_whichever_call_fails_each_slot_is_done_once(plain: Place, mode: str) -> None:
    for nth in range(1, 45, 3):
        clock = Time()
        faulty = Faulty(plain.storage())
        core = open_core(plain.url, storage=faulty, **plain.options(clock=clock.clock))
        store = sync.Store(StoreHandle(core))
        agent = store.agent(f"{mode}-{nth}")
        agent.set("k", 0)
        scheduler = sync.checkpoints.Scheduler(store)
        scheduler.every(60, agent, name="agent")
        faulty.plan = (Fault("*", faulty.calls["*"] + nth, mode),)
        for number in range(1, 31):
            clock.go(20)
            try:
                scheduler.run_due()
                agent.set("k", number)
            except (Unavailable, OutcomeUnknown):
                continue  # it goes on
        assert len(faulty.failed) == 1
        made = [one.metadata["slot"] for one in agent.checkpoints()]
        assert made == list(range(len(made), 0, -1))
        assert len(made) >= 7
        for info in scheduler.schedules():
            scheduler.remove(info.name)
        store.close()
    assert plain.open().verify().findings == []


# threads and loops


def wait_for(done: Any) -> None:
    end = time.monotonic() + 60
    while not done():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_a_thread_runs_what_is_due_and_stops(place: Place) -> None:
    store = place.open()
    agent = store.agent("1")
    with sync.checkpoints.Scheduler(store) as scheduler:
        thread = scheduler._background._thread
        scheduler.every(0.1, agent)
        for number in range(3):
            agent.set("k", number)
            wait_for(lambda count=number: len(agent.checkpoints()) > count)
    count = len(agent.checkpoints())
    agent.set("k", "after")
    time.sleep(0.3)
    assert len(agent.checkpoints()) == count
    assert [info.owner for info in store.leases()] == [None]
    assert thread is not None
    assert not thread.is_alive()


def test_what_takes_longer_than_its_interval_runs_once_a_call(clock: Time) -> None:
    with sync.open("memory:", clock=clock.clock) as store:
        store.add_gate(Behind(lambda: clock.go(25)))
        scheduler = sync.checkpoints.Scheduler(store)
        scheduler.every(10, "agent:slow")
        for number in range(3):
            clock.go(10)
            store.agent("slow").set("k", number)
            assert outcomes(scheduler.run_due()) == [("agent:slow", "saved")]
        scheduler.stop()


def test_closing_the_store_ends_the_thread(place: Place) -> None:
    store = place.open()
    scheduler = sync.checkpoints.Scheduler(store)
    scheduler.every(0.1, "agent:1")
    scheduler.start()
    thread = scheduler._background._thread
    assert thread is not None
    store.close()
    thread.join(60)
    assert not thread.is_alive()
    scheduler.stop()
    with pytest.raises(StoreClosedError):
        scheduler.every(1, "agent:1")


def test_stopping_waits_for_what_is_being_saved(store: sync.Store) -> None:
    begun, ended = threading.Event(), threading.Event()

    def saving() -> None:
        begun.set()
        wait_for(
            lambda: scheduler._background._end.is_set()
        )  # else it would be over, and run again, before that
        time.sleep(0.2)
        ended.set()

    store.agent("1").set("k", 1)
    store.add_gate(Behind(saving))
    with sync.checkpoints.Scheduler(store) as scheduler:
        scheduler.every(0.1, "agent:1")
        assert begun.wait(60)
    assert ended.is_set()
    assert scheduler.schedules()[0].runs == 1


@pytest.mark.parametrize("commit", ["thread", "inline"])
def test_the_async_face(plain: Place, commit: str) -> None:
    async def main() -> None:
        async with holdfast.open(plain.url, **plain.options(commit=commit)) as store:
            agent = store.agent("1")
            await agent.set("k", 1)
            async with holdfast.checkpoints.Scheduler(store) as scheduler:
                await scheduler.every(0.1, agent)
                await scheduler.cron("0 3 * * *", agent, zone="Europe/Berlin", name="nightly")
                for _ in range(600):
                    if await agent.checkpoints():
                        break
                    await asyncio.sleep(0.1)
                await scheduler.remove("nightly")
                names = [info.name for info in await scheduler.schedules()]
                assert names == ["agent:1"]
            (made,) = await agent.checkpoints()
            assert (made.type, made.cause.actor) == ("scheduled", "scheduler")
            assert (await store.verify()).findings == []

    asyncio.run(main())


def test_cancelling_does_not_tear_what_is_being_saved(plain: Place) -> None:
    saving_now, go_on = threading.Event(), threading.Event()

    class Slow(holdfast.Gate):
        def before(self, request: Any) -> None:
            if any(one.kind == "checkpoint" for one in request.operations):
                saving_now.set()
                go_on.wait(60)

    async def main() -> None:
        async with holdfast.open(plain.url, **plain.options()) as store:
            agent = store.agent("1")
            await agent.set("k", 1)
            store.add_gate(Slow())
            scheduler = holdfast.checkpoints.Scheduler(store)
            await scheduler.every(0.1, agent)
            await asyncio.sleep(0.11)
            task = asyncio.create_task(scheduler.run_due())
            assert await asyncio.to_thread(saving_now.wait, 60)
            task.cancel()
            asyncio.get_running_loop().call_later(0.05, go_on.set)  # it is told behind that
            with pytest.raises(asyncio.CancelledError):
                await task
            await scheduler.stop()
            assert len(await agent.checkpoints()) == 1
            assert (await scheduler.schedules())[0].runs == 1

    asyncio.run(main())


def test_no_schedule_takes_the_place_of_something_elses(place: Place) -> None:
    store = place.open()
    for name in ("team", "team/worker", "7"):
        store.agent(name).set("k", 1)
    scheduler = sync.checkpoints.Scheduler(store)
    scheduler.every(300, store.agent("team/worker"))
    fork = store.agent("team").fork("worker")
    with pytest.raises(InvalidInputError, match="give this one another name="):
        scheduler.every(60, fork)
    scheduler.every(60, fork, name="worker of team")
    scheduler.every(60, "agent:7")
    with pytest.raises(InvalidInputError, match="another name="):
        scheduler.every(60, "agent:team", name="agent:7")
    scheduler.every(90, "agent:7")
    known = {info.name: info.when.seconds for info in scheduler.schedules()}  # type: ignore[union-attr]
    assert known == {"agent:team/worker": 300, "worker of team": 60, "agent:7": 90}


def test_states_of_another_store_are_refused(place: Place) -> None:
    store = place.open()
    with sync.open("memory:") as other:
        state = other.agent("a")
        state.set("k", 1)
        with pytest.raises(InvalidInputError, match="of another store"):
            sync.checkpoints.Scheduler(store).every(60, state)
        with pytest.raises(InvalidInputError, match="of another store"):
            holdfast.checkpoints.ShutdownCheckpoints(store, [state])
