"""Crash-testing an agent: what it kills, what it compares, what it finds."""

from __future__ import annotations

import base64
import math
import os
import time
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import sync
from holdfast.agents import MachineArrow, MachineDefinition, MachineState
from holdfast.errors import InvalidInputError, KeyMissingError
from holdfast.testing import crash


def careful(store: sync.Store) -> None:
    """Goes on where it was."""
    state = store.agent("1")
    while state.get("step", 0) < 4:
        with state.change() as change:
            step = change.get("step", 0)
            change.append("done", step)
            change.set("step", step + 1)


async def careful_too(store: holdfast.Store) -> None:
    """The same, on the async face."""
    state = store.agent("1")
    while await state.get("step", 0) < 4:
        async with state.change() as change:
            step = await change.get("step", 0)
            change.append("done", step)
            change.set("step", step + 1)


def careless(store: sync.Store) -> None:
    """Two writes where one is meant: between them a step is done and not counted."""
    state = store.agent("1")
    while state.get("step", 0) < 4:
        state.append("done", state.get("step", 0))
        state.update("step", lambda step: step + 1, default=0)


def shouting(store: sync.Store, world: Path) -> None:
    """Tells the world first, and remembers it after."""
    state = store.agent("1")
    while state.get("told", 0) < 3:
        with (world / "told").open("a") as file:
            file.write(f"{state.get('told', 0)}\n")
        state.update("told", lambda told: told + 1, default=0)


@pytest.mark.parametrize("run", [careful, careful_too])
def test_an_agent_that_goes_on_where_it_was(run: Any) -> None:
    report = crash(run)
    assert report.ok, str(report)
    assert report.commits >= 4
    assert report.kills == 2 * report.commits, "before and after each"


def test_what_was_done_twice_is_found() -> None:
    report = crash(careless)
    assert not report.ok
    assert {one.why for one in report.findings} == {"agent:1 done differs"}
    text = str(report)
    assert "killed after commit" in text
    assert f"{len(report.findings)} findings" in text


def test_an_agent_that_is_killed_while_it_recovers() -> None:
    """Its way back is two writes where one is meant: a single kill in a trial does not meet it."""

    def prepare(store: sync.Store) -> None:
        store.agent("1").set("money", 100)

    def recovering(store: sync.Store) -> None:
        state = store.agent("1")
        if state.get("step") == "paying":
            state.update("money", lambda money: money + 5)
            state.set("step", "ready")
        if state.get("step") != "paid":
            with state.change() as change:
                change.set("money", change.get("money") - 5)
                change.set("step", "paying")
            state.set("step", "paid")

    once = crash(recovering, prepare=prepare)
    assert once.ok, str(once)


def test_what_happens_outside_between_two_commits_is_found() -> None:
    """Seen by the kill before the commit that would have remembered it, and by no other."""
    report = crash(shouting)
    assert {one.why for one in report.findings} == {"file told differs"}
    assert {one.kill[0] for one in report.findings} == {"before"}
    assert crash(shouting, moments=("after",)).ok


def test_the_same_in_an_encrypted_store(tmp_path: Path) -> None:
    report = crash(careful, every=2, key=f"file:{tmp_path / 'key'}", folder=tmp_path / "trials")
    assert report.ok, str(report)
    assert report.kills == 2 * ((report.commits + 1) // 2)
    assert (tmp_path / "trials" / "after-1" / "store.db").exists(), "a folder that is given stays"


@pytest.mark.parametrize("given", [True, False])
def test_a_key_in_the_environment(monkeypatch: pytest.MonkeyPatch, given: bool) -> None:
    """It is gone once it is read, and every run needs it."""
    monkeypatch.setenv("CRASH_KEY", base64.b64encode(b"k" * 32).decode())
    monkeypatch.setenv("HOLDFAST_KEY", "env:" + ("NO_SUCH_VARIABLE" if given else "CRASH_KEY"))
    report = crash(careful, every=3, **({"key": "env:CRASH_KEY"} if given else {}))
    assert report.ok, str(report)
    assert "CRASH_KEY" not in os.environ


def test_what_is_not_equal_to_itself_is_the_same() -> None:
    def run(store: sync.Store) -> None:
        store.agent("1").set("loss", [math.nan])

    assert crash(run).ok
    assert crash(run, see=lambda store: store.agent("1").get("loss")).ok


def test_prepared_and_seen_by_functions_of_ones_own() -> None:
    def run(store: sync.Store) -> None:
        store.agent("1").update("n", lambda n: n if n >= 8 else n + 1)
        store.agent("1").set("time", time.time())

    def prepare(store: sync.Store) -> None:
        store.agent("1").set("n", 7)

    assert not crash(run, prepare=prepare).ok, "a time differs each time"
    report = crash(run, prepare=prepare, see=lambda store: store.agent("1").get("n"))
    assert report.ok, str(report)


def test_agents_that_do_not_end() -> None:
    def stuck(store: sync.Store) -> None:
        if store.agent("1").get("begun"):
            time.sleep(60)
        store.agent("1").set("begun", True)

    def clumsy(store: sync.Store) -> None:
        if store.agent("1").get("begun"):
            raise RuntimeError("begun already")
        store.agent("1").set("begun", True)

    report = crash(stuck, moments=("after",), timeout=5)
    assert "did not come to its end in 5 s" in report.findings[-1].why
    report = crash(clumsy, moments=("after",))
    assert "RuntimeError: begun already" in report.findings[-1].why


def test_an_agent_that_ends_its_own_process() -> None:
    def always(store: sync.Store) -> None:
        store.agent("1").set("begun", True)
        os._exit(0)

    def again(store: sync.Store) -> None:
        if store.agent("1").get("begun"):
            os._exit(0)
        store.agent("1").set("begun", True)

    with pytest.raises(InvalidInputError, match="ended its own process instead of coming back"):
        crash(always)
    report = crash(again, moments=("after",))
    assert "ended its own process" in report.findings[-1].why


LIGHTS = MachineDefinition(
    "red",
    {
        "red": MachineState(on={"go": MachineArrow("green", keep=("cars",))}),
        "green": MachineState(on={"go": MachineArrow("end", work=lambda step: None)}),
        "end": MachineState(),
    },
)


@pytest.mark.parametrize("how", ["careful", "state", "data", "work"])
def test_machines_are_compared(how: str) -> None:
    """Where they are and their data; not the number of a version, which tells of attempts."""

    def run(store: sync.Store) -> None:
        machine = sync.agents.Machine(store.agent("1"), LIGHTS)
        if how == "state" and machine.now() is not None:
            return
        if how != "work" and machine.recover().how == "ask":
            machine.settle("complete")
        now = machine.now() or machine.start()
        if now.state == "red":
            machine.fire("go", cars=1)
            now = machine.now() or now
        if now.state == "green" and now.pending is None:
            machine.fire("go")

    def counting(store: sync.Store) -> None:
        machine = sync.agents.Machine(store.agent("1"), LIGHTS)
        for _ in range(2):
            now = machine.now() or machine.start(cars=0)
            machine.save({"cars": now.data["cars"] + 1})

    report = crash(counting if how == "data" else run)
    assert report.ok == (how == "careful"), str(report)
    assert all("$machine/main/" in one.why for one in report.findings)


def reads(store: sync.Store) -> Any:
    """Runs when it is read, which nobody does."""
    yield careful(store)


def looks(store: sync.Store) -> None:
    """Commits nothing."""
    store.agent("1").get("step", 0)


class Careful:
    """An object that is an async agent."""

    async def __call__(self, store: holdfast.Store) -> None:
        await careful_too(store)


def test_what_never_ran_did_not_stand_the_test() -> None:
    with pytest.raises(InvalidInputError, match="is a generator"):
        crash(reads)
    with pytest.raises(InvalidInputError, match="commits nothing"):
        crash(looks)
    with pytest.raises(InvalidInputError, match="to be awaited"):
        crash(lambda store: careful_too(store))
    report = crash(Careful())
    assert report.ok, str(report)
    assert report.commits == crash(careful_too).commits


async def _awaited(store: sync.Store) -> Any:
    raise AssertionError("nobody awaits it")


def _read(store: sync.Store) -> Any:
    yield store.agent("1").get("step")


@pytest.mark.parametrize("name", ["prepare", "see"])
@pytest.mark.parametrize("given", [_awaited, _read, lambda s: _awaited(s), lambda s: _read(s)])
def test_what_prepares_or_sees_nothing_is_refused(name: str, given: Any) -> None:
    with pytest.raises(InvalidInputError, match=name):
        crash(careful, **{name: given})


def test_a_folder_takes_the_trials_of_one_test(tmp_path: Path) -> None:
    assert crash(careful, every=4, folder=tmp_path).ok
    with pytest.raises(InvalidInputError, match="give a folder without trials"):
        crash(careful, every=4, folder=tmp_path)


def test_slips() -> None:
    def broken(store: sync.Store) -> None:
        raise ZeroDivisionError

    with pytest.raises(InvalidInputError, match="fails without being killed"):
        crash(broken)
    for wrong in (
        {"every": 0},
        {"moments": ()},
        {"moments": ("during",)},
        {"timeout": "1"},
        {"prepare": lambda: None},
        {"see": lambda: None},
    ):
        with pytest.raises(InvalidInputError):
            crash(careful, **wrong)
    with pytest.raises(InvalidInputError, match="run takes the store, or the store and the world"):
        crash(lambda: None)
    with pytest.raises(InvalidInputError, match="every is a whole number from 1 up"):
        crash(careful, every=0)
    with pytest.raises(TypeError, match="nope"):
        crash(careful, nope=1)
    with pytest.raises(InvalidInputError, match=r"^key is text, not bytes"):
        crash(careful, key=b"k")
    with pytest.raises(KeyMissingError):
        crash(careful, key="env:NO_SUCH_VARIABLE")
    with pytest.raises(InvalidInputError):
        crash(None)  # type: ignore[arg-type]
