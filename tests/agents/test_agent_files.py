"""A checkpoint of an agent as a file for people."""

from __future__ import annotations

import asyncio
import json
import os
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import Classed, sync
from holdfast.agents.state.shapes import Decision, OperationalContext, Task, TaskStack
from holdfast.errors import CheckpointNotFoundError, InvalidInputError
from holdfast.sync.agents import AgentState, Mailbox, export_agent


def busy(store: sync.Store, name: str = "7") -> sync.State:
    """An agent in the middle of its work."""
    state = store.agent(name)
    typed = AgentState(state)
    task = Task(id="t1", status="running", progress=0.375, data={"repository": "x"})
    typed.set("tasks", TaskStack(current=task, pending=[Task(id="t2")]))
    typed.set(
        "operational_context",
        OperationalContext(
            goals=["ship"], constraints=["no force"], decisions=[Decision(what="y")]
        ),
    )
    typed.put("short_term_memory", "seen", [1, 2])
    typed.put("session_memory", "user", "Ada")
    box = Mailbox(state)
    for number in range(3):
        box.send(number, id=f"letter-{number}")
    box.process(lambda mail: None, limit=1)
    return state


def read(path: str | Path) -> Any:
    return json.loads(Path(path).read_text())


@pytest.mark.spec("D3", "D4")
def test_checkpoints_are_made_found_kept_in_a_folder_and_restored_by_one_manager(
    store: sync.Store, tmp_path: Path
) -> None:
    """Catches: `create`, `locate` or `restore` that takes another type; a file that is not there,
    or tells of another checkpoint; retention that does not go by the type."""
    folder = tmp_path / "runtime" / "agent_comms" / "checkpoints"
    folder.mkdir(parents=True)
    state = busy(store)
    typed, manager = AgentState(state), sync.checkpoints.Checkpoints(state)
    for number in range(5):
        typed.put("session_memory", "user", f"user {number}")
        kind = "recovery" if number == 3 else "routine"
        made = manager.create(f"{number}", type=kind).checkpoint
        assert export_agent(state, folder, at=made.id, plain=True)
    found = sorted((read(path) for path in folder.iterdir()), key=lambda one: one["timestamp"])
    types = [one["checkpoint_type"] for one in found]
    assert types == ["routine", "routine", "routine", "recovery", "routine"]
    users = [one["state"]["memory"]["session"]["user"] for one in found]
    assert users == [f"user {number}" for number in range(5)]
    latest = {kind: manager.locate(type=kind) for kind in ("routine", "recovery")}
    assert {kind: one.name for kind, one in latest.items()} == {"routine": "4", "recovery": "3"}
    assert [one["checkpoint"] for one in found[3:]] == [latest["recovery"].id, latest["routine"].id]
    manager.restore(found[3]["checkpoint"])
    assert typed.item("session_memory", "user") == "user 3"
    typed.put("session_memory", "user", "somebody else")
    plan = sync.checkpoints.Retention(store).plan(state)
    assert [one.name for one in plan.removed] == ["0"], "of routine ones the last three stay"


@pytest.mark.spec("X50", "X51")
def test_what_is_in_the_file_and_what_it_is_called(store: sync.Store, tmp_path: Path) -> None:
    state = busy(store)
    made = state.checkpoint("noon", type="routine")
    AgentState(state).put("session_memory", "user", "somebody else, later")
    path = export_agent(state, tmp_path, plain=True)
    assert Path(path).parent == tmp_path
    assert Path(path).name == f"7_{made.time.astimezone(UTC):%Y%m%d%H%M%S}_routine.checkpoint"
    assert re.fullmatch(r"7_\d{14}_routine\.checkpoint", Path(path).name)
    found = read(path)
    assert datetime.fromisoformat(found.pop("timestamp")) == made.time
    assert found == {
        "agent_id": "7",
        "checkpoint_type": "routine",
        "version": "1.0",
        "checkpoint": made.id,
        "state": {
            "current_task": {
                "id": "t1",
                "status": "running",
                "progress_percentage": 37.5,
                "context": {"repository": "x"},
            },
            "mailbox": {"last_processed_id": "letter-0", "pending_count": 2},
            "operational_context": {
                "goals": ["ship"],
                "constraints": ["no force"],
                "decisions": [{"what": "y"}],
            },
            "memory": {"short_term": {"seen": [1, 2]}, "session": {"user": "Ada"}},
        },
    }


def test_an_agent_that_has_nothing_yet(store: sync.Store, tmp_path: Path) -> None:
    state = store.agent("new")
    state.set("mine", 1)
    with pytest.raises(CheckpointNotFoundError):
        export_agent(state, tmp_path, plain=True)
    state.checkpoint("first")
    assert read(export_agent(state, tmp_path, plain=True))["state"] == {
        "current_task": None,
        "mailbox": {"last_processed_id": None, "pending_count": 0},
        "operational_context": {"goals": [], "constraints": [], "decisions": []},
        "memory": {"short_term": {}, "session": {}},
    }


@pytest.mark.spec("X50", "X57")
def test_files_of_one_second_and_of_like_names(tmp_path: Path) -> None:
    """None overwrites another's; the same one is replaced."""
    clock = holdfast.Clock(lambda: 1_700_000_000.0, lambda: 0.0)
    with sync.open("memory:", clock=clock) as store:
        names = []
        for name in ("agent-1", "agent-10", "a/b"):
            state = busy(store, name)
            for label in ("one", "two"):
                made = state.checkpoint(label)
                path = export_agent(state, tmp_path, at=label)
                assert read(path)["checkpoint"] == made.id
                names.append(os.path.basename(path))
            again = [export_agent(state, tmp_path, at=label) for label in ("one", "two")]
            assert list(map(os.path.basename, again)) == names[-2:]
        assert sorted(os.listdir(tmp_path)) == sorted(set(names))
        assert len(set(names)) == 6
        assert names[4] == "a%2Fb_20231114221320_manual.checkpoint"


def test_forks_of_one_second_have_files_of_their_own(tmp_path: Path) -> None:
    """Their entries have the same numbers."""
    clock = holdfast.Clock(lambda: 1_700_000_000.0, lambda: 0.0)
    with sync.open("memory:", clock=clock) as store:
        main = busy(store, "7")
        made = {}
        for name in ("one", "two", "t" * 100):
            fork = main.fork(name)
            fork.set("own", name)
            id = fork.checkpoint("noon").id
            path = export_agent(fork, tmp_path)
            assert export_agent(fork, tmp_path) == path
            made[path] = id
        assert len(made) == 3
        assert {path: read(path)["checkpoint"] for path in made} == made
        Path(path).write_text("of somebody else")
        assert export_agent(fork, tmp_path) != path
        assert Path(path).read_text() == "of somebody else"


@pytest.mark.parametrize("id", ["ä" * 60, "a" * 240, "x/y" * 50], ids=["quoted", "long", "slashes"])
def test_ids_that_are_too_long_for_a_name_of_a_file(tmp_path: Path, id: str) -> None:
    """Two that begin alike have files of their own."""
    clock = holdfast.Clock(lambda: 1_700_000_000.0, lambda: 0.0)
    with sync.open("memory:", clock=clock) as store:
        paths = []
        for name in (id, id + "2"):
            state = busy(store, name)
            state.checkpoint("noon")
            paths.append(export_agent(state, tmp_path))
            assert export_agent(state, tmp_path) == paths[-1]
        assert [read(path)["agent_id"] for path in paths] == [id, id + "2"]
        assert len(os.listdir(tmp_path)) == 2


def test_a_current_task_that_is_sensitive_is_not_said_to_be_none(
    store: sync.Store, tmp_path: Path
) -> None:
    state = busy(store)
    state.declare(Classed("$agent/current_task", "sensitive"))
    state.checkpoint("noon")
    shown = read(export_agent(state, tmp_path, plain=True))["state"]
    assert shown["current_task"] == {"$sensitive": True}
    revealed = read(export_agent(state, tmp_path, plain=True, reveal=True))["state"]
    assert revealed["current_task"]["id"] == "t1"


def test_what_is_sensitive_is_masked(store: sync.Store, tmp_path: Path) -> None:
    state = busy(store)
    state.declare(Classed("$agent/memory/session/", "sensitive"))
    state.checkpoint("noon")
    shown = read(export_agent(state, tmp_path, plain=True))["state"]["memory"]
    assert shown == {"short_term": {"seen": [1, 2]}, "session": {"user": {"$sensitive": True}}}
    revealed = read(export_agent(state, tmp_path, plain=True, reveal=True))["state"]["memory"]
    assert revealed["session"] == {"user": "Ada"}


def test_what_is_refused(tmp_path: Path) -> None:
    with sync.open("memory:", key="passphrase:correct horse") as store:
        state = busy(store)
        state.checkpoint("noon")
        with pytest.raises(InvalidInputError, match="plain=True"):
            export_agent(state, tmp_path)
        with pytest.raises(InvalidInputError, match="no such folder"):
            export_agent(state, tmp_path / "nowhere", plain=True)
        with pytest.raises(InvalidInputError, match="is no agent"):
            export_agent(store.workflow("w"), tmp_path, plain=True)
        with pytest.raises(InvalidInputError, match="of a state"):
            export_agent("agent:7", tmp_path, plain=True)  # type: ignore[arg-type]
        with pytest.raises(InvalidInputError, match="reveal"):
            export_agent(state, tmp_path, plain=True, reveal="yes")  # type: ignore[arg-type]
    assert os.listdir(tmp_path) == []


def test_async(tmp_path: Path) -> None:
    async def main() -> None:
        async with holdfast.open("memory:") as store:
            state = store.agent("7")
            await state.set("k", 1)
            await state.checkpoint("noon")
            path = await holdfast.agents.export_agent(state, tmp_path)
            assert read(path)["agent_id"] == "7"

    asyncio.run(main())
    assert holdfast.agents.export_agent.__doc__ == export_agent.__doc__
