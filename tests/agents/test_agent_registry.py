"""The registry: durable identities, running agents known by their lease, spawned on demand."""

from __future__ import annotations

import asyncio
import json
import math
import os
import signal
import subprocess
import sys
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
from store_kit import Hands, Place, put_row, rows_of, same

import holdfast
from holdfast import sync
from holdfast.agents import StepResult
from holdfast.errors import (
    AgentValidationError,
    InvalidInputError,
    LeaseHeldError,
    LeaseLostError,
    MissingError,
)
from holdfast.sync.agents import Agent, Agents


class Greeter(Agent):
    persistent = ("greeted",)

    def __init__(self) -> None:
        self.greeted: list[str] = []
        self.recovered = False

    def greet(self, name: str) -> None:
        self.greeted.append(name)

    def handle_recovery(self) -> None:
        self.recovered = True


class Counter:
    """Knows nothing of Holdfast."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.count = 0


KINDS: dict[str, Any] = {
    "greeter": lambda identity: Greeter(),
    "counter": lambda identity: Counter(identity.name),
}
FIELDS = {"counter": ["count"]}


def registry(store: sync.Store, **more: Any) -> Agents:
    return Agents(store, KINDS, fields=FIELDS, **more)


@pytest.mark.spec("S39", "S42", "S43", "S46", "S48")
def test_agents_are_spawned_on_demand(place: Place) -> None:
    agents = registry(place.open())
    made = agents.register("7", kind="greeter", name="Seven", metadata={"lang": "en"})
    assert agents.running() == {}
    agents.get("7").greet("ann")
    assert list(agents.running()) == ["7"]
    assert agents.get("7") is agents.running()["7"].agent
    agents.close()
    assert agents.running() == {}

    again = registry(place.reopen())  # after a restart: known, and not running
    assert again.running() == {}
    assert again.identity("7") == made
    assert again.get("7").greeted == ["ann"]
    assert not again.get("7").recovered


@pytest.mark.spec("S47", "S49", "S50")
def test_identities_come_back_and_running_agents_do_not(place: Place) -> None:
    agents = registry(place.open())
    agents.register("7", kind="greeter", name="Seven")
    agents.register("8", kind="counter", name="Eight")
    agents.get("8").count = 3
    agents.running()["8"].save()
    agents.get("8").count = 4  # never saved: its process ends
    again = registry(place.reopen(), duration=0.2)
    assert [(one.id, one.identity.name, one.here) for one in again.list()] == [
        ("7", "Seven", False),
        ("8", "Eight", False),
    ]
    assert again.get("8", wait=60).count == 3
    assert again.get("8").name == "Eight"


def test_who_they_are(timed: sync.Store, hands: Hands) -> None:
    agents = registry(timed)
    assert agents.identity("7") is None
    first = agents.register("7", kind="greeter", version="1")
    assert first.created_at == hands.time(0)
    hands.move(5)
    entries = timed.agent("7")._handle.place()[2]
    assert agents.register("7", kind="greeter", version="1") == first
    assert timed.agent("7")._handle.place()[2] == entries
    assert agents.register("7", kind="greeter", version="2").created_at == hands.time(0)
    with pytest.raises(InvalidInputError, match="give the new one another id"):
        agents.register("7", kind="counter")
    with pytest.raises(AgentValidationError, match="identity"):
        agents.register("8", name=8)  # type: ignore[arg-type]
    timed.agent("9").set("x", 1)  # an agent without an identity
    agents.register("90", kind="counter")
    assert [one.id for one in agents.list()] == ["7", "90"]
    assert [one.id for one in agents.list(kind="counter")] == ["90"]
    assert [one.id for one in agents.list(prefix="9")] == ["90"]
    assert [one.id for one in agents.list(limit=1)] == ["7"]
    assert [one.id for one in agents.list(after="7")] == ["90"]


def test_who_it_is_and_how_it_lives_are_not_restored(store: sync.Store) -> None:
    state = store.agent("7")
    state.set("x", 1)
    before = state.checkpoint("before")
    agents = registry(store)
    agents.register("7", kind="greeter")
    agents.spawn("7").save()
    state.restore(before)
    assert agents.identity("7") is not None
    [info] = agents.list()
    assert (info.status, info.here) == ("running", True)


@pytest.mark.spec("S51")
def test_an_agent_runs_in_one_place(plain: Place) -> None:
    here, there = registry(plain.open()), registry(plain.open())
    here.register("7", kind="greeter")
    here.spawn("7")
    with pytest.raises(LeaseHeldError):
        there.spawn("7")
    [info] = there.list()
    assert (info.status, info.here) == ("running", False)
    assert info.owner is not None
    here.stop("7")
    [info] = there.list()
    assert (info.status, info.owner) == ("stopped", None)
    there.get("7").greet("bob")
    plain.open().break_lease("agent/7")
    with pytest.raises(LeaseLostError):
        there.close()  # another may run it by now: what it holds is not written
    assert here.get("7").greeted == []
    with pytest.raises(MissingError, match="does not run here"):
        there.stop("7")


def test_an_agent_whose_lease_is_lost_is_spawned_anew(plain: Place) -> None:
    agents = registry(plain.open())
    agents.register("7", kind="greeter")
    stale = agents.get("7")
    stale.greet("ann")
    agents.running()["7"].save()
    plain.open().break_lease("agent/7")
    stale.greet("late")
    with pytest.raises(LeaseLostError):
        agents.running()["7"].save()
    assert agents.running() == {}
    assert agents.get("7") is not stale
    assert agents.get("7").greeted == ["ann"]
    agents.close()


@pytest.mark.parametrize("end", ["stop", "fail"])
def test_an_agent_that_ended_by_itself_is_spawned_anew(plain: Place, end: str) -> None:
    agents = registry(plain.open())
    agents.register("7", kind="greeter")
    over = agents.get("7")
    over.greet("ann")
    agents.running()["7"].save()
    agents.running()["7"].fail(ValueError()) if end == "fail" else over.stop()
    assert agents.running() == {}
    assert [one.here for one in agents.list()] == [False]
    again = agents.get("7")
    assert (again is over, again.greeted) == (False, ["ann"])
    assert again is agents.get("7")
    again.greet("bob")
    over.greet("nobody hears it")
    with pytest.raises(LeaseLostError):
        over.start()
    agents.close()
    assert plain.open().agent("7").get("$agent/attached/greeted") == ["ann", "bob"]


def test_an_agent_that_ended_by_itself_can_be_stopped_or_run(plain: Place) -> None:
    class Worker(Greeter):
        def step(self) -> StepResult:
            self.greet("in a loop")
            return StepResult("greet", done=True)

    agents = Agents(plain.open(), {"worker": lambda _: Worker()})
    agents.register("7", kind="worker")
    agents.get("7").stop()
    agents.stop("7")
    other = Agents(plain.open(), {"worker": lambda _: Worker()})
    other.get("7").stop()
    assert other.run("7", signals=()).cycles == 1
    assert agents.get("7").greeted == ["in a loop"], "no lease is left behind"
    agents.close()
    other.close()


@pytest.mark.spec("S41", "S52", "S53")
def test_a_running_agent_is_found_without_the_storage(place: Place, tmp_path: Path) -> None:
    """Only what is to outlive the process is written: who an agent is, and what it saves."""
    store, counting = place.open_counting()
    agents = registry(store, duration=3600)
    for number in range(20):
        agents.register(str(number), kind="greeter")
        agents.spawn(str(number))
    counting.calls.clear()
    for number in range(20):
        agents.get(str(number)).greet("ann")
    assert len(agents.running()) == 20
    assert not counting.calls, "a lookup does not even read"
    for number in range(20):
        agents.register(str(number), kind="greeter")
    agents.export_identities(tmp_path / "identities.json", plain=True)
    assert counting.calls["commit"] == 0, "what is known is not written again"
    agents.register("3", kind="greeter", name="Three")
    assert counting.calls["commit"] == 1


def test_threads_share_a_registry(plain: Place) -> None:
    agents = registry(plain.open())
    for number in range(5):
        agents.register(str(number), kind="greeter")
    found: list[Any] = []

    def work() -> None:
        found.extend(agents.get(str(number)) for number in range(5))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 20
    assert len({id(one) for one in found}) == 5


def test_what_cannot_be_spawned(store: sync.Store) -> None:
    agents = Agents(store)
    with pytest.raises(MissingError, match="register it first"):
        agents.get("7")
    agents.register("7", kind="greeter")
    with pytest.raises(InvalidInputError, match="is of the kind 'greeter', which is not given"):
        agents.get("7")
    with pytest.raises(InvalidInputError, match="kinds are names and functions"):
        Agents(store, {"x": 1})  # type: ignore[dict-item]
    with pytest.raises(InvalidInputError, match="fields are of kinds"):
        Agents(store, KINDS, fields={"other": ["x"]})
    with pytest.raises(InvalidInputError, match="takes an open store"):
        Agents(store.agent("7"))  # type: ignore[arg-type]

    def fails(identity: Any) -> Any:
        raise ZeroDivisionError

    broken = Agents(store, {"greeter": fails})
    with pytest.raises(ZeroDivisionError):
        broken.spawn("7")
    assert registry(store).get("7").greeted == []  # no lease was left behind


def test_identities_in_a_file_are_exact(plain: Place, tmp_path: Path) -> None:
    metadata = {
        "nan": math.nan,
        "raw": b"\xff",
        "then": datetime(2026, 1, 1, tzinfo=UTC),
        "numbers": {1: 2},
        "big": 2**70,
        "$map": {"$bytes": "text"},
    }
    registry(plain.open()).register("7", metadata=metadata)
    registry(plain.open()).export_identities(tmp_path / "i.json")
    with sync.open("memory:") as other:
        registry(other).import_identities(tmp_path / "i.json")
        found = registry(other).identity("7")
        assert same(msgspec.structs.asdict(found)["metadata"], metadata)
        assert found.created_at == registry(plain.open()).identity("7").created_at


@pytest.mark.spec("S40", "S45")
@pytest.mark.skipif(sys.platform == "win32", reason="there are no limits of this kind")
def test_a_file_of_identities_is_replaced_whole_or_not_at_all(tmp_path: Path) -> None:
    import resource

    file = tmp_path / "identities.json"
    with sync.open("memory:") as store, registry(store) as agents:
        agents.register("7", kind="greeter")
        agents.export_identities(file)
        before = file.read_bytes()
        for number in range(50):
            agents.register(f"more-{number}", kind="greeter")
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 100, limits[1]))
        try:
            with pytest.raises(InvalidInputError, match="cannot be written"):
                agents.export_identities(file)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert file.read_bytes() == before
    assert list(tmp_path.iterdir()) == [file], "nothing lies beside it"


@pytest.mark.spec("S40", "S45")
def test_identities_as_a_file(place: Place, tmp_path: Path) -> None:
    agents = registry(place.open())
    agents.register("7", kind="greeter", name="Sieben ☺", metadata={"n": 1})
    agents.register("8", kind="counter")
    file = tmp_path / "identities.json"
    if place.options().get("key"):
        with pytest.raises(InvalidInputError, match=r"the store is encrypted.*plain=True"):
            agents.export_identities(file)
        assert not file.exists()
    assert agents.export_identities(file, plain=True) == 2
    shown = json.loads(file.read_text())
    assert shown["agents"]["7"]["name"] == "Sieben ☺"
    assert "\n  " in file.read_text()
    assert [one.name for one in tmp_path.iterdir() if "identities" in one.name] == [file.name]
    with sync.open("memory:") as other:
        into = registry(other)
        into.register("8", kind="counter", name="mine")
        assert into.import_identities(file) == 1
        assert into.identity("7") == agents.identity("7")
        assert into.identity("8").name == "mine"  # type: ignore[union-attr]
        for text in ("{", '{"format": "x", "agents": {}}', '{"format": 1}', "[]"):
            file.write_text(text)
            with pytest.raises(InvalidInputError):
                into.import_identities(file)
        with pytest.raises(InvalidInputError, match="cannot read"):
            into.import_identities(tmp_path / "none.json")
        with pytest.raises(InvalidInputError, match="cannot be written"):
            into.export_identities(tmp_path / "none" / "x.json")


def test_one_that_is_damaged_hides_no_other(plain: Place, tmp_path: Path) -> None:
    agents = registry(plain.open())
    for id in "123":
        agents.register(id, kind="greeter")
    plain.close()
    storage = plain.storage()
    key, row = rows_of(storage, b"E")[0]
    put_row(storage, key, row[:-3] + bytes([row[-3] ^ 1]) + row[-2:])
    agents = registry(plain.open())
    found = agents.list(kind="greeter")
    assert [one.id for one in found] == ["1", "2", "3"]
    [damaged] = [one for one in found if one.damage]
    assert (damaged.status, f"agent:{damaged.id}" in damaged.damage) == ("damaged", True)
    assert {one.identity.kind for one in found if one is not damaged} == {"greeter"}
    file = tmp_path / "identities.json"
    assert agents.export_identities(file) == 2
    assert list(json.loads(file.read_text())["damaged"]) == [damaged.id]
    with sync.open("memory:") as other:
        assert registry(other).import_identities(file) == 2


RUNNER = """
import sys, time
sys.path.insert(0, sys.argv[1])
from test_agent_registry import registry
from holdfast import sync
store = sync.open(sys.argv[2], durability="normal")
agents = registry(store, duration=10)
agent = agents.get("7", wait=60)
agent.greet("ann")
agents.running()["7"].save()
agent.greet("half")
print("ready", flush=True)
time.sleep(60)
"""


@pytest.mark.spec("M5", "M7", "M12", "M14")
def test_a_killed_process_loses_its_agents_to_another(tmp_path: Path) -> None:
    place = Place("sqlite", tmp_path, sealed=False)
    agents = registry(place.open(), duration=10)
    agents.register("7", kind="greeter")
    folders = str(Path(__file__).parent)
    child = subprocess.Popen(
        [sys.executable, "-c", RUNNER, folders, place.url],
        stdout=subprocess.PIPE,
        text=True,
        env={**place.environment(), "PYTHONPATH": os.pathsep.join([*sys.path, folders])},
    )
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        with pytest.raises(LeaseHeldError):
            agents.spawn("7")
        child.send_signal(signal.SIGKILL)
        child.wait()
        agent = agents.get("7", wait=60)
    finally:
        child.kill()
        child.wait()
        child.stdout.close()  # type: ignore[union-attr]
    assert agent.greeted == ["ann"]
    assert agent.recovered
    place.close()


def test_the_async_face(place: Place, tmp_path: Path) -> None:
    class Talker(holdfast.agents.Agent):
        persistent = ("lines",)

        def __init__(self) -> None:
            self.lines: list[str] = []

        async def step(self) -> StepResult:
            return StepResult("talk", done=True)

    async def main() -> None:
        options = place.options()
        async with holdfast.open(place.url, **options) as store:
            kinds = {"talker": lambda identity: Talker()}
            async with holdfast.agents.Agents(store, kinds, duration=5) as agents:
                await agents.register("7", kind="talker", name="Seven")
                both = await asyncio.gather(agents.get("7"), agents.get("7"))
                assert both[0] is both[1]
                both[0].lines.append("hi")
                assert list(agents.running()) == ["7"]
                [info] = await agents.list()
                assert (info.here, info.status) == (True, "running")
                assert await agents.export_identities(tmp_path / "who.json", plain=True) == 1
                assert await agents.import_identities(tmp_path / "who.json") == 0
                other = holdfast.agents.Agents(store, kinds)
                with pytest.raises(LeaseHeldError):
                    await other.spawn("7")
                await agents.stop("7")
                assert (await other.get("7")).lines == ["hi"]
                await other.close()
                with pytest.raises(MissingError):
                    await agents.get("8")
                over = await agents.get("7")
                await over.stop()
                assert agents.running() == {}
                again = await agents.get("7")
                assert again is not over
                again.lines.append("again")
            assert (await store.agent("7").get("$agent/attached/lines")) == ["hi", "again"]
            async with holdfast.agents.Agents(store, kinds) as agents:
                await (await agents.get("7")).stop()
                assert (await agents.run("7", signals=())).cycles == 1
            assert (await agents.identity("7")).name == "Seven"
            with pytest.raises(InvalidInputError, match="these Agents are closed"):
                await agents.get("7")

    asyncio.run(main())
