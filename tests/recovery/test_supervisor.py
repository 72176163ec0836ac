"""One document starts all that runs beside an agent; what dies is started again, and stops well."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from store_kit import Place, put_row, rows_of

import holdfast
from holdfast import sync
from holdfast.checkpoints.retention import Retention
from holdfast.errors import ConfigurationError, InvalidInputError, MissingError
from holdfast.recovery import Configuration
from holdfast.recovery.setup.supervisor import Chore
from holdfast.store.names import rowkinds

QUICK = {"watchdog": "100ms", "retention": "100ms", "expiry": "100ms", "alerts": "100ms"}
EVERY = {
    "name": "each",
    "conditions": [
        {
            "type": "operation_count",
            "metric": "operation_count",
            "operator": "greater_than_or_equal",
            "threshold": 1,
        }
    ],
    "retention": {"max_count": 2},
}


def document(**sections: Any) -> dict[str, Any]:
    return {"agent_id": "7", "intervals": QUICK, **sections}


def until(true: Callable[[], Any]) -> None:
    end = time.monotonic() + 60
    while not true():
        assert time.monotonic() < end
        time.sleep(0.01)


def part(running: Any, name: str) -> Any:
    return next(one for one in running.status().parts if one.name == name)


def test_what_a_document_asks_for_is_done_without_anybody_doing_it(tmp_path: Path) -> None:
    """Catches: a part left out of the table; retention, sweep or backup that is never run."""
    before = set(threading.enumerate())
    file = tmp_path / "agents.json"
    storage = {
        "primary": {"connection": str(tmp_path / "a.db")},
        "backup": {
            "type": "file",
            "path": str(tmp_path / "backups"),
            "interval": "50ms",
            "keep": 2,
        },
    }
    file.write_text(json.dumps(document(storage=storage, checkpointing={"policies": [EVERY]})))
    with sync.recovery.set_up(file) as running:
        state, made = running.state, 0
        for number in range(9):
            state.set("n", number)
            until(lambda made=made: running.status().checkpoint not in ("", made))
            made = running.status().checkpoint
        state.set("soon gone", 1, ttl=0.01)
        until(lambda: len(running.list(tag="policy:each")) <= 3)  # 2, and the newest of a moment
        until(lambda: any(one.cause.actor == "system" for one in state.log()))
        until(lambda: len(list(running.backups.list())) == 2)
        assert state.exists("n")
        assert not state.exists("soon gone")
        status = running.status()
        assert status.ok, str(status)
        names = [one.name for one in status.parts]
        assert names == [
            *("alerts", "audit", "watchdog", "scheduler", "retention", "expiry", "backups")
        ]
        assert "retention: running" in str(status)
    left = {one.name for one in set(threading.enumerate()) - before}
    assert not {name for name in left if name.startswith("holdfast-")}
    with sync.open(f"sqlite:{tmp_path}/a.db") as store:
        assert store.verify().ok


def concerns(running: Any) -> str:
    """What `health` says of alerts."""
    found = running.recovery.health().concerns
    return "; ".join(one.what for one in found if one.kind == "alert")


def test_a_part_that_dies_is_started_again_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches: a part that is not made anew; a count that is not kept; an alert that stays."""
    broken, events = threading.Event(), list[Any]()
    run = Retention.run

    def failing(self: Any, what: Any, **more: Any) -> Any:
        if broken.is_set():
            raise ZeroDivisionError("of the part")
        return run(self, what, **more)

    monkeypatch.setattr(Retention, "run", failing)
    with (
        sync.open("memory:") as store,
        sync.recovery.set_up(
            document(), store=store, initial={"k": 1}, on_alert=events.append
        ) as running,
    ):
        until(lambda: part(running, "retention").state == "running")
        first = running._supervisor.part("retention")
        broken.set()
        until(lambda: part(running, "retention").restarts > 0)
        assert part(running, "retention").state == "failing"
        assert "ZeroDivisionError: of the part" in part(running, "retention").error
        until(lambda: "started again 1 times" in concerns(running))
        assert "part/retention: ZeroDivisionError: of the part" in concerns(running)
        broken.clear()
        until(lambda: part(running, "retention").state == "running")
        assert running._supervisor.part("retention") is not first
        until(lambda: [one["status"] for one in events] == ["firing", "resolved"])
        assert {one["alert"] for one in events} == {"part/retention"}
        assert concerns(running) == ""
        watchdog = running._supervisor.part("watchdog")
        watchdog._background._end.set()  # its thread ends, whoever did that
        watchdog._background.wake()
        until(lambda: part(running, "watchdog").restarts == 1)
        until(lambda: part(running, "watchdog").state == "running")
        assert running._supervisor.part("watchdog") is not watchdog


def test_one_of_several_processes_does_each_job_and_another_takes_over(tmp_path: Path) -> None:
    """Catches: chores without a lease, or with one that is not given back."""
    place = Place("sqlite", tmp_path, sealed=False)
    done: list[str] = []
    stores = [place.open(), sync.open(place.url)]
    chores = [
        Chore(store._core, "job", 0.01, lambda name=name: done.append(name), 5)
        for name, store in zip("ab", stores, strict=True)
    ]
    chores[0].start()
    until(lambda: len(done) > 3)
    chores[1].start()
    until(lambda: chores[1]._background.turns > 0)
    assert (chores[0].acting, chores[1].acting, set(done)) == (True, False, {"a"})
    chores[0].stop()
    until(lambda: "b" in done)
    chores[1].stop()
    with sync.recovery.set_up(document(), store=stores[0]) as one:
        until(lambda: part(one, "retention").state == part(one, "watchdog").state == "running")
        with sync.recovery.set_up(document(), store=stores[1]) as other:
            until(lambda: part(other, "retention").state == "waiting")
            one._supervisor.stop()
            for name in ("retention", "watchdog", "scheduler", "alerts"):
                until(lambda name=name: part(other, name).state == "running")
    stores[1].close()
    place.close()


def test_a_job_that_meets_a_lease_of_another_in_its_work_says_so() -> None:
    """Catches: it is taken for the job's own lease, and nobody learns that the work is not done."""
    with sync.open("memory:") as store, store.lease("backups"):

        def work() -> None:
            with store.lease("backups", wait=0):
                pytest.fail("two have it")

        chore = Chore(store._core, "job", 60, work, 5)
        chore.start()
        until(lambda: chore._background.error)
        assert "another holds the lease 'backups'" in chore._background.error
        assert chore.acting
        chore.stop()


def harm(place: Place, state: Any) -> None:
    """Change a bit of the newest entry of the agent."""
    storage, head = place.storage(), state._handle.history.points.line()
    key = rowkinds.entry(head.prefix, head.sequence)
    row = dict(rows_of(storage, b"E"))[key]
    put_row(storage, key, row[:-1] + bytes([row[-1] ^ 1]))


def recovered(running: Any) -> None:
    until(lambda: running.recovery.reports("agent:7"))
    until(lambda: running.status().unanswered == ())
    report = running.recovery.reports("agent:7")[0]
    assert (report.success, report.failure.kind) == (True, "hash_mismatch")
    assert running.state.get("plan")[0] in "xy"


def test_alerts_are_told_though_what_is_kept_of_them_is_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Catches: a part that dies of the damage again and again; a status that nobody can ask."""
    broken, run = threading.Event(), Retention.run

    def failing(self: Any, what: Any, **more: Any) -> Any:
        if broken.is_set():
            raise ZeroDivisionError("of the part")
        return run(self, what, **more)

    monkeypatch.setattr(Retention, "run", failing)
    place, events = Place("sqlite", tmp_path, sealed=False), list[Any]()
    broken.set()
    with sync.recovery.set_up(document(), store=place.open(), on_alert=events.append) as running:
        until(lambda: events)
    harm(place, place.reopen().scope("custom:$recovery"))
    quiet = sync.recovery.set_up(document(), store=place.reopen(), start=False)
    assert not quiet.status().parts[0].restarts, "what is damaged is passed over"
    quiet.close()
    del events[:]
    with sync.recovery.set_up(document(), store=place.reopen(), on_alert=events.append) as running:
        until(lambda: running.status().alerts)
        broken.clear()
        until(lambda: "resolved" in [one["status"] for one in events])
        assert part(running, "alerts").restarts == 0
    place.close()


@pytest.mark.parametrize("when", ["at the start", "while it runs"])
def test_damage_is_found_and_recovered_by_itself(tmp_path: Path, when: str) -> None:
    """Catches: findings of the scrubber, or of setting up, that reach no watchdog."""
    place = Place("sqlite", tmp_path, sealed=False)
    scrub = document(integrity={"tamper_detection": True, "scrub_interval": "100ms"})
    assert Configuration.of(document(integrity={"tamper_detection": True})).scrub_interval == 60
    with sync.recovery.set_up(scrub, store=place.open(), start=when[0] == "w") as running:
        running.policies.close()  # so that nobody but this test writes
        running.state.set("plan", "x" * 3000)
        running.checkpoint("good")
        running.state.set("plan", "y" * 3000)
        harm(place, running.state)
        if when[0] == "w":
            recovered(running)
    place.close()
    if when[0] == "a":
        with sync.recovery.set_up(document(), store=place.open()) as running:
            assert not running.report.success
            recovered(running)
        place.close()


def test_nonsense_in_the_state_is_found_and_taken_back(tmp_path: Path) -> None:
    """Catches: checks that only a recovery asks; a state that was mended meanwhile, taken back."""

    def sane(view: Any) -> Any:
        return view.get("n", 0) >= 0

    place = Place("sqlite", tmp_path, sealed=False)
    with sync.recovery.set_up(document(), store=place.open(), validate=[sane]) as running:
        running.state.set("n", 5)
        running.checkpoint("good")
        assert running.validate() == []
        running.state.set("n", -1)
        until(lambda: running.recovery.reports("agent:7"))
        until(lambda: running.status().unanswered == ())
        (report,) = running.recovery.reports("agent:7")
        assert (report.failure.kind, report.success) == ("validation_failed", True)
        assert running.state.get("n") == 5
        head = running.status().current_state
        running.state.set("n", 6)
        time.sleep(0.3)
        assert (running.state.get("n"), len(running.recovery.reports("agent:7"))) == (6, 1), head
    place.close()


def test_an_agent_runs_beside_its_parts_and_is_started_again() -> None:
    """Catches: a loop that is not begun anew, or not stopped; two agents without ids."""
    steps, wrong = list[int](), threading.Event()

    class Counter:
        def __init__(self, state: Any) -> None:
            self.n = 0

        def get_persistent_state(self) -> dict[str, Any]:
            return {"n": self.n}

        def apply_persistent_state(self, values: dict[str, Any]) -> None:
            self.n = values["n"]

        def step(self) -> str:
            if wrong.is_set():
                raise SystemExit("it ends itself")
            self.n += 1
            steps.append(self.n)
            time.sleep(0.01)
            return "count"

    with sync.open("memory:") as store:
        with sync.recovery.set_up(document(), store=store, agents=[Counter]) as running:
            until(lambda: len(steps) > 3)
            wrong.set()
            until(lambda: part(running, "agent 7").restarts > 0)
            wrong.clear()
            count = len(steps)
            until(lambda: len(steps) > count + 1 and part(running, "agent 7").state == "running")
            assert steps[count] == steps[count - 1] + 1, "it goes on from what was saved"
        count = len(steps)
        time.sleep(0.1)
        assert len(steps) == count
        with pytest.raises(InvalidInputError, match="by their ids"):
            sync.recovery.set_up(document(), store=store, agents=[Counter, Counter])


def test_the_async_face_runs_the_same(tmp_path: Path) -> None:
    """Catches: functions of the user that nobody awaits; parts that outlive their block."""
    events = list[Any]()
    file = tmp_path / "agents.toml"
    file.write_text(
        f'agent_id = "7"\n[storage.primary]\nconnection = "{tmp_path}/a.db"\n'
        '[synchronization]\nenabled = true\n[intervals]\nalerts = "50ms"\n'
        "[monitoring.alert_thresholds]\nsync_lag = 60000\n"
    )

    class Worker:
        steps = 0

        async def step(self) -> str:
            await asyncio.sleep(0.01)
            Worker.steps += 1
            return "work"

    async def told(event: dict[str, Any]) -> None:
        await asyncio.sleep(0)
        events.append(event)

    async def work() -> None:
        async with holdfast.recovery.set_up(
            str(file), initial={"k": 1}, agents=[Worker], on_alert=told
        ) as running:
            assert await running.state.get("k") == 1
            made = await running.checkpoint("one")
            assert [one.id for one in await running.list(limit=1)] == [made.checkpoint.id]
            await running.state.set("k", 2)
            await running.restore(name="one")
            assert await running.state.get("k") == 1
            assert await running.validate() == []
            assert (await running.recover("agent_crash")).success
            assert len(await running.history(limit=2)) == 2
            with pytest.raises(InvalidInputError, match="there are no replicas"):
                await running.synchronise()
            await asyncio.to_thread(until, lambda: events and Worker.steps > 2)
            status = await running.status()
            assert (status.agent_id, status.ok) == ("7", False)
            assert [one.name for one in status.alerts] == ["sync_lag"]
        assert "0 replicas are named, 1 are wanted" in events[0]["what"]

    asyncio.run(work())
    with pytest.raises(ConfigurationError, match=r"nothing\.yaml cannot be read"):
        sync.recovery.set_up(tmp_path / "nothing.yaml")


@pytest.mark.spec("K176")
def test_procedures_are_kept_for_an_agent_or_for_all(tmp_path: Path) -> None:
    """Catches: procedures that only the process knows that set them; one agent's for another."""
    place = Place("sqlite", tmp_path, sealed=False)
    steps = [{"type": "locate_checkpoint"}, {"type": "restore_state"}]
    with sync.recovery.set_up(
        document(recovery={"procedures": [{"id": "p", "triggers": ["lost"], "steps": steps}]}),
        store=place.open(),
        initial={"n": 1},
    ) as running:
        recovery = running.recovery
        recovery.keep({"id": "q", "triggers": ["lost", "found"], "steps": steps})
        with pytest.raises(holdfast.HoldfastError, match="Unknown recovery step type"):
            recovery.keep({"id": "r", "triggers": ["lost"], "steps": [{"type": "dance"}]})
    store = place.reopen()
    store.agent("8").set("n", 1)
    other = sync.recovery.Recovery(store)
    for agent, kind, wanted in (
        ("agent:7", "lost", "p"),
        ("agent:8", "lost", "q"),
        ("agent:7", "found", "q"),
        ("agent:7", "agent_crash", "standard_recovery"),
    ):
        assert other.plan(agent, kind).procedure.id == wanted
    assert other.recover("agent:8", "lost").procedure == "q"
    with pytest.raises(MissingError):
        other.recover("agent:8", "lost", procedure="p")
    other.drop("q")
    with pytest.raises(holdfast.errors.MissingError, match="no procedure 'q' is kept"):
        other.drop("q")
    assert other.plan("agent:8", "lost").procedure.id == "standard_recovery"
    assert next(one.id for one in other.procedures("agent:7")) == "p"
    place.close()
