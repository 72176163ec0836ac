"""An agent that lived in a folder of files becomes a typed agent."""

from __future__ import annotations

import asyncio
import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from store_kit import Place

import holdfast
from holdfast import sync
from holdfast.agents import folder as folder_files
from holdfast.errors import (
    AgentValidationError,
    HoldfastError,
    InvalidInputError,
    ReadOnlyError,
)
from holdfast.storage.wrappers import Fault, Faulty
from holdfast.store.history.handle import StoreHandle
from holdfast.store.open import open_core
from holdfast.sync.agents import AgentState, Drift, Mailbox, import_folder

TASKS: list[dict[str, Any]] = [
    {"task_id": "T-0", "assigned_agent": "agent-10", "status": "in_progress"},
    {
        "task_id": "T-1",
        "assigned_agent": "agent-1",
        "status": "IN_PROGRESS",
        "name": "find the leak",
        "progress_percentage": 40,
        "created_at": "2025-05-01T10:00:00Z",
    },
    {"task_id": "T-2", "assigned_to": "agent-1", "status": "BLOCKED", "priority": "HIGH"},
    {"task_id": "T-3", "assigned_agent": "agent-1", "status": "completed"},
]
CONTEXT = {
    "goals": ["ship", {"description": "keep it fast", "weight": 3}],
    "constraints": ["no force push"],
    "decisions": ["use SQLite", {"decision": "wait", "reason": "tests are red"}],
    "mood": "calm",
}
MEMORY = {
    "short_term": ["saw a stack trace", {"file": "a.py"}],
    "session": {"user": "Ada", "a/b": 1},
    "habits": ["tea"],
}
STATUS = {
    "agents": {"agent-1": {"cycle_count": 120}, "agent-10": {"cycle_count": 7}},
    "system": {"drift_threshold": 250},
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """As the agents of such a system leave it."""
    root = tmp_path / "project" / "runtime"
    inbox = root / "agent_comms" / "agent_mailboxes" / "agent-1" / "inbox"
    (inbox / "processed").mkdir(parents=True)
    data = root / "agent_data" / "agent-1"
    data.mkdir(parents=True)
    write(root / "working_tasks.json", TASKS)
    write(data / "context.json", CONTEXT)
    write(data / "memory.json", MEMORY)
    write(root / "agent_status.json", STATUS)
    for place in (inbox, inbox / "processed"):
        (place / ".keep").touch()
    write(inbox / "processed" / "msg-001.json", {"content": "old"})
    write(inbox / "processed" / "msg-002.json", {"content": "older"})
    said = {"content": "look", "from": "captain", "timestamp": "2025-05-14T06:12:35.135908Z"}
    write(inbox / "msg-003.json", said)
    (inbox / "note.md").write_text("read me")
    return tmp_path / "project"


def write(path: Path, data: Any) -> None:
    path.write_text(json.dumps(data))


def inbox_of(folder: Path) -> Path:
    return folder / "runtime/agent_comms/agent_mailboxes/agent-1/inbox"


@pytest.mark.spec("X52")
def test_all_of_it_is_taken_up_in_one_change(place: Place, folder: Path) -> None:
    store = place.open()
    state = store.agent("agent-1")
    made = import_folder(state, folder)
    assert state._handle.place()[2] == 1, "one entry"
    typed = AgentState(state)
    tasks = typed.get("tasks")
    assert (tasks.current.id, tasks.current.status) == ("T-1", "running")
    assert (tasks.current.title, tasks.current.progress) == ("find the leak", 0.4)
    assert tasks.current.created_at == datetime(2025, 5, 1, 10, tzinfo=UTC)
    assert [one.id for one in tasks.pending] == ["T-2"]
    assert tasks.pending[0].data == TASKS[2], "all that the file says of it"
    assert [one.id for one in tasks.completed] == ["T-3"]
    context = typed.get("operational_context")
    assert context.goals == ["ship", "keep it fast"]
    assert context.constraints == ["no force push"]
    assert [(one.what, one.why) for one in context.decisions] == [
        ("use SQLite", ""),
        ("wait", "tests are red"),
    ]
    assert context.notes["mood"] == "calm"
    assert context.notes["as_it_was"]["goals"] == CONTEXT["goals"]
    memory = MEMORY["short_term"]
    assert typed.get("short_term_memory") == {"000001": memory[0], "000002": memory[1]}
    assert typed.get("session_memory") == {"user": "Ada", "a%2Fb": 1, "habits": ["tea"]}
    mailbox = Mailbox(state)
    status = mailbox.status()
    assert (status.received, status.processed, status.waiting) == (4, 2, 2)
    assert status.last_processed_id == "msg-002.json"
    first, second = mailbox.waiting()
    assert (first.id, first.sender) == ("msg-003.json", "captain")
    assert first.content["content"] == "look"
    assert first.time == datetime(2025, 5, 14, 6, 12, 35, 135908, tzinfo=UTC)
    assert (second.id, second.content) == ("note.md", "read me")
    assert Drift(state).status().cycles == 120
    assert typed.get("configuration") == {"drift_threshold": 250}
    assert (made.tasks, made.waiting, made.processed, made.memory) == (3, 2, 2, 5)
    assert (made.context, made.cycles, made.drift_threshold) == (True, 120, 250)
    assert made.changed
    assert typed.problems() == []
    assert store.verify().findings == []


@pytest.mark.spec("X52")
def test_the_threshold_is_300_and_an_agent_beyond_it_is_astray(
    store: sync.Store, folder: Path
) -> None:
    write(folder / "runtime/agent_status.json", {"agents": {"agent-1": {"cycle_count": 300}}})
    state = store.agent("agent-1")
    assert import_folder(state, folder).drift_threshold == 300
    most = AgentState(state).get("configuration")["drift_threshold"]
    assert [alarm.kind for alarm in Drift(state, max_cycles=most).note("work")] == ["cycles"]


def test_a_second_import_changes_nothing_whatever_happened_meanwhile(
    place: Place, folder: Path
) -> None:
    store = place.open()
    state = store.agent("agent-1")
    import_folder(state, folder)
    safe = state.checkpoint()
    typed, mailbox = AgentState(state), Mailbox(state)
    typed.update_task("T-1", status="completed")
    typed.put("session_memory", "user", "Bob")
    assert mailbox.process(lambda mail: None) == 2
    Drift(state).note("work")
    store = place.reopen()
    state = store.agent("agent-1")
    before = state._handle.place()[2]
    made = import_folder(state, folder)
    assert not made.changed
    assert state._handle.place()[2] == before
    assert Mailbox(state).status().waiting == 0
    state.restore(safe)
    assert not import_folder(state, folder).changed
    assert Mailbox(state).status().received == 4


def test_after_a_restore_to_before_it_letters_are_not_taken_up_twice(
    store: sync.Store, folder: Path
) -> None:
    state = store.agent("agent-1")
    state.set("k", 1)
    safe = state.checkpoint()
    import_folder(state, folder)
    state.restore(safe)
    assert [one.id for one in Mailbox(state).waiting()] == ["msg-003.json", "note.md"]
    made = import_folder(state, folder)
    assert (made.tasks, made.waiting, made.processed) == (3, 0, 0)
    status = Mailbox(state).status()
    assert (status.received, status.processed, status.waiting) == (4, 2, 2)


def test_letters_processed_in_the_folder_never_wait_behind_those_that_were_here(
    store: sync.Store, folder: Path
) -> None:
    state = store.agent("agent-1")
    Mailbox(state).send("own", id="own")
    safe = state.checkpoint()
    for _ in range(2):
        import_folder(state, folder)
        assert [one.id for one in Mailbox(state).waiting()] == ["own", "msg-003.json", "note.md"]
        assert Mailbox(state).process(lambda mail: None) == 3
        state.restore(safe)
    status = Mailbox(state).status()
    assert (status.received, status.processed, status.waiting) == (5, 2, 3)


def test_a_message_may_be_rewritten_once_it_is_processed(store: sync.Store, folder: Path) -> None:
    """There is nothing to be done with it; it is by its name the one that is here."""
    state = store.agent("agent-1")
    import_folder(state, folder)
    write(inbox_of(folder) / "processed" / "msg-001.json", {"content": "old", "done": "at noon"})
    assert not import_folder(state, folder).changed


def test_letters_that_are_new_in_the_folder_are_added(store: sync.Store, folder: Path) -> None:
    state = store.agent("agent-1")
    import_folder(state, folder)
    os.rename(inbox_of(folder) / "msg-003.json", inbox_of(folder) / "processed" / "msg-003.json")
    write(inbox_of(folder) / "processed" / "msg-004.json", 4)
    write(inbox_of(folder) / "msg-005.json", 5)
    made = import_folder(state, folder)
    assert (made.tasks, made.waiting, made.processed, made.memory) == (0, 1, 1, 0)
    assert [one.id for one in Mailbox(state).waiting()] == [
        "msg-003.json",
        "note.md",
        "msg-005.json",
    ]


@pytest.mark.parametrize("name", ["working_tasks.json", "agent_data/agent-1/memory.json"])
def test_files_that_have_changed_since_change_nothing(
    store: sync.Store, folder: Path, name: str
) -> None:
    """What the agent has here counts: nothing of it is overwritten by what the files say."""
    state = store.agent("agent-1")
    import_folder(state, folder)
    before = AgentState(state).load()
    write(folder / "runtime" / name, [] if name.startswith("work") else {})
    write(inbox_of(folder) / "msg-005.json", 5)
    assert import_folder(state, folder).waiting == 1
    assert AgentState(state).load() == before
    assert import_folder(store.agent("again"), folder, agent="agent-1").waiting == 3


def test_an_agent_that_works_here_keeps_what_it_has(store: sync.Store, folder: Path) -> None:
    state = store.agent("agent-1")
    AgentState(state).set("configuration", {"model": "x"})
    AgentState(state).put("tasks", "own", {"id": "own"})
    AgentState(state).update_task("own", status="running")
    Mailbox(state).send("own", id="own")
    for _ in range(3):
        Drift(state).note("work")
    write(folder / "runtime/agent_status.json", {"agents": {"agent-1": {"cycle_count": 2}}})
    assert import_folder(state, folder).cycles is None
    assert Drift(state).status().cycles == 3
    assert AgentState(state).get("configuration") == {"model": "x", "drift_threshold": 300}
    assert AgentState(state).get("tasks").current.id == "own"
    assert [one.id for one in Mailbox(state).waiting()] == ["own", "msg-003.json", "note.md"]


BAD = {
    "working_tasks.json": ["{", '{"tasks": 1}', "[1]", '[{"assigned_agent": "agent-1"}]'],
    "agent_data/agent-1/context.json": ["[]", '{"goals": "all"}', "nul"],
    "agent_data/agent-1/memory.json": [
        '{"short_term": 1}',
        '{"session": {"x": 1}, "x": 2}',
        '{"session": {"..": 1}}',
        '{"session": {"": 1}}',
        '{"session": {"e\\u0301": 1, "\\u00e9": 2}}',
        '{"session": ' + "[" * 500 + "]" * 500 + "}",
        '{"session": ' + "[" * 50_000 + "]" * 50_000 + "}",
    ],
    "agent_status.json": ['{"agents": {"agent-1": {"cycle_count": -1}}}', '{"agents": []}'],
    "agent_comms/agent_mailboxes/agent-1/inbox/bad.json": [
        "{",
        '{"timestamp": "0001-01-01T00:00:00+14:00"}',
        '{"timestamp": "9999-12-31T23:59:59-10:00"}',
    ],
    "agent_comms/agent_mailboxes/agent-1/inbox/msg-001.json": ["1"],
}


@pytest.mark.spec("X52")
@pytest.mark.parametrize(("name", "text"), [(n, t) for n, texts in BAD.items() for t in texts])
def test_a_bad_file_is_named_and_nothing_is_imported(
    store: sync.Store, folder: Path, name: str, text: str
) -> None:
    path = folder / "runtime" / name
    path.write_text(text)
    state = store.agent("agent-1")
    with pytest.raises(AgentValidationError, match="nothing was imported") as caught:
        import_folder(state, folder)
    [problem] = caught.value.problems
    assert problem.startswith(f"{path}: ")
    assert state._handle.place()[2] == 0


def test_all_bad_files_are_named(store: sync.Store, folder: Path) -> None:
    for name in BAD:
        (folder / "runtime" / name).write_text("{")
    with pytest.raises(AgentValidationError) as caught:
        import_folder(store.agent("agent-1"), folder)
    assert len(caught.value.problems) == len(BAD)


def test_what_is_too_large_is_refused(
    store: sync.Store, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("LARGEST", "MOST_BYTES"):
        with monkeypatch.context() as patch:
            patch.setattr(folder_files, name, 100)
            with pytest.raises(AgentValidationError, match="MiB"):
                import_folder(store.agent("agent-1"), folder)


def test_what_is_not_there_is_left_as_it_is(store: sync.Store, folder: Path) -> None:
    """Each file may be missing; a folder in which nothing is of the agent is a mistake."""
    made = import_folder(store.agent("agent-10"), folder / "runtime")
    assert (made.tasks, made.waiting, made.cycles, made.context) == (1, 0, 7, False)
    with pytest.raises(InvalidInputError, match="nothing of the agent"):
        import_folder(store.agent("agent-11"), folder)
    for wrong in (folder / "none", 7):
        with pytest.raises(InvalidInputError):
            import_folder(store.agent("agent-1"), wrong)  # type: ignore[arg-type]
    for name in ("..", "a/b", ""):
        with pytest.raises(InvalidInputError):
            import_folder(store.agent("agent-1"), folder, agent=name)
    with pytest.raises(InvalidInputError, match="no agent"):
        import_folder(store.session("1"), folder)


def test_under_another_name(store: sync.Store, folder: Path) -> None:
    assert import_folder(store.agent("seven"), folder, agent="agent-1").tasks == 3


def test_thousands_of_letters(place: Place, folder: Path) -> None:
    for number in range(2000):
        (inbox_of(folder) / f"many-{number:05}.txt").write_text("x" * 200)
    state = place.open().agent("agent-1")
    assert import_folder(state, folder).waiting == 2002
    assert len(Mailbox(state).waiting()) == 2002


def test_what_is_read_only_is_not_written(plain: Place, folder: Path) -> None:
    if plain.engine == "memory":
        pytest.skip("a file is needed")
    plain.open().agent("agent-1").set("k", 1)
    with (
        sync.open(plain.url, **plain.options(), read_only=True) as store,
        pytest.raises(ReadOnlyError),
    ):
        import_folder(store.agent("agent-1"), folder)


def test_a_crash_at_any_storage_call_leaves_all_or_nothing(place: Place, folder: Path) -> None:
    for nth in range(1, 60):
        faulty = Faulty(place.storage(), Fault("*", nth, "ambiguous-applied", onward=True))
        name = f"crash-{nth}"
        try:
            core = open_core(place.url, storage=faulty, **place.options())
            import_folder(sync.Store(StoreHandle(core)).agent(name), folder, agent="agent-1")
        except HoldfastError:
            pass
        store = place.open()
        state = store.agent(name)
        assert state._handle.place()[2] in (0, 1)
        import_folder(state, folder, agent="agent-1")
        assert Mailbox(state).status().received == 4
        assert len(AgentState(state).get("tasks").tasks()) == 3
        store.close()
        if not faulty.failed:
            break
    else:
        raise AssertionError("the last round had nothing left to fail")


def test_the_async_face(plain: Place, folder: Path) -> None:
    async def main() -> None:
        async with holdfast.open(plain.url, **plain.options()) as store:
            state = store.agent("agent-1")
            assert (await holdfast.agents.import_folder(state, folder)).tasks == 3
            assert not (await holdfast.agents.import_folder(state, str(folder))).changed

    asyncio.run(main())
