"""The typed state of an agent: components that are read and changed alone."""

from __future__ import annotations

import asyncio
import dataclasses
import enum
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import msgspec
import pydantic
import pytest
from store_kit import Hands, Place

import holdfast
from holdfast import sync
from holdfast.agents import Component, Message, Task, ToolCall
from holdfast.agents.agent_keys import task_key
from holdfast.agents.state import shapes
from holdfast.agents.state.components import BUILT_IN
from holdfast.agents.state.shapes import Command, Goal, TaskStack
from holdfast.errors import (
    AgentValidationError,
    Conflict,
    InvalidInputError,
    InvalidKeyError,
    InvalidValueError,
    LimitExceededError,
    MissingError,
    NewerFormatError,
    ReadOnlyError,
)
from holdfast.store.inner import own_change
from holdfast.sync.agents import AgentState

THEN = datetime(2026, 1, 2, tzinfo=UTC)

WHOLE: dict[str, Any] = {
    "identity": shapes.Identity(name="seven", kind="greeter", version="1.2", created_at=THEN),
    "context_window": shapes.ContextWindow(
        messages=[Message(role="user", content="hi")], max_size=5, window_type="fixed"
    ),
    "episodic_memory": shapes.EpisodicMemory(
        episodes=[shapes.Episode(id="e1", summary="met", importance=0.9)],
        summaries=[shapes.Summary(text="all well", episodes=["e1"])],
        relationships=[shapes.Link(source="e1", target="ann", kind="with")],
        max_retention=30.0,
    ),
    "tasks": TaskStack(
        current=Task(id="t1", status="running", progress=0.5),
        pending=[Task(id="t2", parent="t1")],
        completed=[Task(id="t3", status="completed", result={"n": 1})],
        failed=[Task(id="t4", status="failed", error="no network")],
        history=[shapes.TaskEvent(task_id="t1", status="running", was="pending", time=THEN)],
    ),
    "execution_trace": shapes.ExecutionTrace(
        decisions=[shapes.Decision(what="greet", why="asked")],
        commands=[Command(id="c1", task_id="t1", name="say", arguments={"text": "hi"})],
        results=[shapes.CommandResult(command_id="c1", value=3)],
        errors=[shapes.TraceError(message="slow", command_id="c1")],
        performance={"seconds": 1.5},
    ),
    "emotional_state": shapes.EmotionalState(
        primary_emotion="calm", intensity=0.2, adaptation_level=1.0, history=[
            shapes.Emotion(emotion="joy", intensity=1.0, time=THEN)
        ],
    ),
    "goals": {
        "g1": Goal(id="g1", type="long-term", priority=1.0, deadline=THEN),
        "g2": Goal(id="g2", status="paused", progress=0.1, dependencies=["g1"]),
    },
    "configuration": {"model": "m", "temperature": 0.3, "deep": {"a": [1, None]}},
    "capabilities": shapes.Capabilities(tools=["search"], skills=["haiku"], limits={"calls": 3}),
    "relationships": {"agent:8": shapes.Relationship(kind="spawned", strength=1.0)},
    "conversation": [
        Message(role="user", content="find it"),
        Message(role="assistant", tool_calls=[ToolCall(id="1", name="search", arguments={})]),
        Message(role="tool", tool_call_id="1", content=["a", b"bytes"]),
    ],
    "operational_context": shapes.OperationalContext(
        goals=["ship"], constraints=["no spam"], decisions=[shapes.Decision(what="wait")]
    ),
    "short_term_memory": {"last": "hello", "n": 3},
    "session_memory": {"user": {"name": "ann"}},
    "state": shapes.Situation(name="awaiting_topic", data={"asked": True}),
    "execution_state": shapes.ExecutionState(status="paused", starts=2, since=THEN),
    "tool_usage": {"search": shapes.ToolUsage(calls=4, errors=1, seconds=2.5, last_used=THEN)},
    "metadata": {"owner": "ann"},
}  # fmt: skip


def filled(state: sync.State) -> AgentState:
    agent = AgentState(state)
    with agent.change() as change:
        for name, value in WHOLE.items():
            change.set(name, value)
    return agent


@pytest.mark.spec("K30", "K31", "K32", "K33", "K34")
def test_everything_that_is_set_comes_back_after_a_restart(place: Place) -> None:
    assert {one.name for one in BUILT_IN} == set(WHOLE)
    filled(place.open().agent("7"))
    agent = AgentState(place.reopen().agent("7"))
    assert agent.load() == WHOLE
    assert {name: agent.get(name) for name in WHOLE} == WHOLE
    assert agent.problems() == []


@pytest.mark.spec("K35", "K36", "K37", "K38", "K39")
def test_each_component_is_read_and_changed_alone(place: Place) -> None:
    store, counting = place.open_counting()
    state = store.agent("7")
    agent = filled(state)
    for name, value in WHOLE.items():
        before = {key: state.item(key).version for key in state.keys("$agent/")}
        agent.set(name, value)
        after = {key: state.item(key).version for key in state.keys("$agent/")}
        assert before == after, f"{name}: setting the same writes nothing"
    agent.put("goals", "g2", Goal(id="g2", progress=0.5))
    assert state.log(limit=1)[0].keys == ("$agent/goals/g2",)
    agent.set("capabilities", shapes.Capabilities(tools=["search", "mail"], skills=["haiku"]))
    assert set(state.log(limit=1)[0].keys) == {
        "$agent/capabilities",
        "$agent/capabilities/tools",
    }
    agent.set("configuration", {"model": "other"})
    assert agent.get("emotional_state") == WHOLE["emotional_state"]
    agent.set("emotional_state", None)
    assert agent.get("emotional_state") is None
    assert "emotional_state" not in agent.load()
    counting.calls.clear()
    agent.get("configuration")
    assert sum(counting.calls.values()) <= 3


@pytest.mark.spec("D16", "D18", "D19", "D20", "D21")
def test_restores_forks_and_views_take_all_of_it_along(store: sync.Store) -> None:
    state = store.agent("7")
    agent = filled(state)
    safe = state.checkpoint("safe")
    with agent.change() as change:
        for name in WHOLE:
            change.set(name, None)
    assert agent.load() == {}
    assert AgentState(state.at(safe)).load() == WHOLE
    assert AgentState(state.fork("trial", at=safe)).load() == WHOLE
    state.restore(safe)
    assert agent.load() == WHOLE
    with pytest.raises(ReadOnlyError):
        AgentState(state.at(safe)).append("conversation", Message(role="user"))


@pytest.mark.spec("D22", "M20", "M21", "M22", "M23")
def test_the_flat_record(timed: sync.Store, hands: Hands) -> None:
    state = timed.agent("7")
    agent = AgentState(state)
    assert agent.persisted() is None
    agent.put("session_memory", "user", {"name": "ann"})
    assert agent.get("session_memory") == {"user": {"name": "ann"}}
    hands.move(60)
    agent.set("state", {"name": "awaiting_topic", "data": {"asked": True}})
    agent.append("conversation", Message(role="user", content="hi"))
    agent.set("metadata", {"owner": "ann"})
    found = agent.persisted()
    assert found is not None
    assert (found.agent_id, found.state_name, found.state_data) == (
        "7",
        "awaiting_topic",
        {"asked": True},
    )
    assert found.conversation == [Message(role="user", content="hi")]
    assert (found.version, found.metadata) == (state._handle.place()[2], {"owner": "ann"})
    assert (found.created_at, found.updated_at) == (hands.time(0), hands.time(60))
    state.prune(state._handle.place()[2])
    assert state.log(limit=1, newest_first=False)[0].time > found.created_at
    assert agent.persisted().created_at == found.created_at  # type: ignore[union-attr]


@pytest.mark.spec("M19", "M27", "M28", "L51", "L57")
def test_the_flat_record_is_plain_data_and_back(store: sync.Store) -> None:
    agent = filled(store.agent("7"))
    found = agent.persisted()
    assert found is not None
    data = msgspec.json.decode(msgspec.json.encode(found.conversation[:2]))
    assert msgspec.convert(data, list[Message]) == WHOLE["conversation"][:2]
    assert dataclasses.replace(found) == found
    assert found.metadata == WHOLE["metadata"]


@pytest.mark.spec("L59", "L60", "M15", "M16", "M18")
def test_state_conversation_and_metadata_lie_apart(timed: sync.Store, hands: Hands) -> None:
    state = timed.agent("7")
    agent = AgentState(state)
    agent.set("identity", {"name": "seven", "created_at": THEN})
    hands.move(60)
    agent.set("state", {"name": "idle"})
    agent.append("conversation", Message(role="user", content="hi"))
    agent.set("metadata", {"owner": "ann"})
    assert state.keys("$agent/") == [
        "$agent/conversation",
        "$agent/identity",
        "$agent/metadata",
        "$agent/state",
    ]
    assert state.get("$agent/conversation") == [{"role": "user", "content": "hi"}]
    found = agent.persisted()
    assert found is not None
    assert (found.created_at, found.updated_at) == (THEN, hands.time(60))


@pytest.mark.spec("L52", "L53", "L54", "L55", "L56")
def test_the_flat_record_has_what_the_runtime_keeps(store: sync.Store) -> None:
    agent = filled(store.agent("7"))
    found = agent.persisted()
    assert found is not None
    assert found.agent_id == "7"
    assert found.conversation == WHOLE["conversation"]
    assert found.configuration == WHOLE["configuration"]
    assert found.tool_usage == WHOLE["tool_usage"]
    assert found.execution_state == WHOLE["execution_state"]


@pytest.mark.spec("X1")
def test_a_context_window_slides_refuses_or_grows(store: sync.Store) -> None:
    agent = AgentState(store.agent("7"))
    window = agent.get("context_window")
    assert (window.max_size, window.window_type, window.current_size) == (100, "sliding", 0)
    agent.set("context_window", shapes.ContextWindow(max_size=3, compression_threshold=0.6))
    for number in range(5):
        agent.append("context_window/messages", Message(role="user", content=number))
        assert agent.get("context_window").due == (number >= 1)
    assert [m.content for m in agent.get("context_window").messages] == [2, 3, 4]
    three = agent.get("context_window").messages
    agent.set(
        "context_window", shapes.ContextWindow(messages=three, max_size=3, window_type="fixed")
    )
    with pytest.raises(AgentValidationError, match="4 of them, at most 3"):
        agent.append("context_window/messages", Message(role="user"))
    with pytest.raises(AgentValidationError):
        agent.set("context_window", shapes.ContextWindow(messages=three, max_size=2))
    assert agent.get("context_window").current_size == 3
    agent.update("context_window", lambda it: msgspec.structs.replace(it, window_type="adaptive"))
    agent.append("context_window/messages", Message(role="user"))
    assert agent.get("context_window").current_size == 4


@pytest.mark.spec("X2")
def test_episodic_memory_is_checked(store: sync.Store) -> None:
    agent = AgentState(store.agent("7"))
    agent.append("episodic_memory/episodes", shapes.Episode(id="e1"))
    agent.append("episodic_memory/summaries", shapes.Summary(text="so far", episodes=["e1"]))
    agent.append("episodic_memory/relationships", shapes.Link(source="e1", target="e2"))
    found = agent.get("episodic_memory")
    assert (len(found.episodes), len(found.summaries), found.relationships[0].target) == (
        1,
        1,
        "e2",
    )
    with pytest.raises(AgentValidationError) as refused:
        agent.set("episodic_memory", {"episodes": [{"importance": 2}], "max_retention": 0})
    assert refused.value.problems == (
        "episodic_memory.episodes[0].id: is missing",
        "episodic_memory.episodes[0].importance: Expected `float` <= 1.0",
        "episodic_memory.max_retention: Expected `float` > 0.0",
    )
    assert agent.get("episodic_memory") == found


@pytest.mark.spec("X3")
def test_a_task_stands_in_one_place(timed: sync.Store, hands: Hands) -> None:
    agent = AgentState(timed.agent("7"))
    with pytest.raises(AgentValidationError, match="'a' stands in pending, too") as refused:
        agent.set("tasks", TaskStack(pending=[Task(id="a")], failed=[Task(id="a")]))
    assert len(refused.value.problems) == 2
    agent.put("tasks", "a", Task(id="a", title="first"))
    agent.put("tasks", "b", Task(id="b", parent="a"))
    hands.move(1)
    agent.update_task("a", status="running")
    agent.update_task("a", progress=0.5)
    stack = agent.get("tasks")
    assert (stack.current.id, stack.current.progress) == ("a", 0.5)
    assert [task.id for task in stack.pending] == ["b"]
    agent.update_task("a", status="completed", progress=1.0, result="done")
    agent.update_task("b", status="failed", error="no time")
    stack = agent.get("tasks")
    assert stack.current is None
    assert (stack.completed[0].result, stack.failed[0].error) == ("done", "no time")
    told = [(event.task_id, event.was, event.status) for event in stack.history]
    assert told == [
        ("a", None, "pending"),
        ("b", None, "pending"),
        ("a", "pending", "running"),
        ("a", "running", "completed"),
        ("b", "pending", "failed"),
    ]
    assert stack.history[2].time == hands.time(1)
    assert agent.item("tasks", "a").title == "first"
    assert agent.ids("tasks") == ["a", "b"]


@pytest.mark.parametrize("status", ["completed", "failed"])
def test_a_task_that_is_put_as_ended_is_current_no_longer(store: sync.Store, status: Any) -> None:
    agent = AgentState(store.agent("7"))
    agent.put("tasks", "t", Task(id="t"))
    agent.update_task("t", status="running")
    agent.put("tasks", "t", Task(id="t", status=status))
    stack = agent.get("tasks")
    assert (stack.current, [one.id for one in getattr(stack, status)]) == (None, ["t"])
    assert agent.problems() == []
    agent.set("tasks", stack)


def test_none_is_an_item_like_others_where_its_type_allows_it(store: sync.Store) -> None:
    agent = AgentState(store.agent("7"))
    agent.put("short_term_memory", "answer", None)
    assert agent.get("short_term_memory") == {"answer": None}
    agent.put("short_term_memory", "answer", 42)
    agent.put("short_term_memory", "answer", None)
    assert (agent.ids("short_term_memory"), agent.item("short_term_memory", "answer")) == (
        ["answer"],
        None,
    )
    before = store.agent("7")._handle.place()
    agent.put("short_term_memory", "answer", None)
    assert store.agent("7")._handle.place() == before, "nothing differs"
    agent.set("session_memory", {"a": None, "b": 1})
    assert agent.get("session_memory") == {"a": None, "b": 1}
    agent.remove("short_term_memory", "answer")
    assert agent.ids("short_term_memory") == []
    with pytest.raises(AgentValidationError):
        agent.put("goals", "g", None)


def test_tasks_are_refused_that_cannot_be(store: sync.Store) -> None:
    agent = AgentState(store.agent("7"))
    with pytest.raises(AgentValidationError, match="there is no task 'z'"):
        agent.put("tasks", "a", Task(id="a", parent="z"))
    with pytest.raises(AgentValidationError, match="is another one"):
        agent.put("tasks", "a", Task(id="b"))
    with pytest.raises(MissingError):
        agent.update_task("a", progress=0.5)
    with pytest.raises(MissingError):
        agent.remove("tasks", "a")
    with pytest.raises(InvalidKeyError):
        agent.put("tasks", "../x", Task(id="../x"))
    agent.put("tasks", "a", Task(id="a"))
    with pytest.raises(AgentValidationError, match="progress"):
        agent.update_task("a", progress=2)
    agent.update_task("a", status="running")
    agent.remove("tasks", "a")
    assert agent.get("tasks").tasks() == []


def test_what_others_name_is_not_removed(store: sync.Store) -> None:
    agent = AgentState(store.agent("7"))
    agent.put("tasks", "p", Task(id="p"))
    agent.put("tasks", "c", Task(id="c", parent="p"))
    agent.set("goals", {"a": Goal(id="a"), "b": Goal(id="b", dependencies=["a"])})
    for remove in (
        lambda: agent.remove("tasks", "p"),
        lambda: agent.set("tasks", {"pending": [{"id": "c", "parent": "p"}]}),
    ):
        with pytest.raises(AgentValidationError, match=r"tasks.c.parent: there is no task 'p'"):
            remove()
    for remove in (
        lambda: agent.remove("goals", "a"),
        lambda: agent.set("goals", {"b": Goal(id="b", dependencies=["a"])}),
    ):
        with pytest.raises(AgentValidationError, match=r"goals.b.dependencies: there is no goal"):
            remove()
    with agent.change() as change:
        change.remove("tasks", "p")
        change.remove("tasks", "c")
        change.remove("goals", "a")
        change.put("goals", "a", Goal(id="a", status="paused"))
    assert (agent.ids("tasks"), agent.ids("goals")) == ([], ["a", "b"])
    agent.set("goals", None)
    agent.validate()


def test_nothing_is_below_itself(store: sync.Store) -> None:
    agent = AgentState(store.agent("7"))
    with pytest.raises(AgentValidationError, match="a: is below itself: a -> a"):
        agent.put("tasks", "a", Task(id="a", parent="a"))
    for id, parent in (("a", ""), ("b", "a"), ("c", "b")):
        agent.put("tasks", id, Task(id=id, parent=parent))
    with pytest.raises(AgentValidationError, match="a: is below itself: a -> c -> b -> a"):
        agent.update_task("a", parent="c")
    agent.set("goals", {"a": Goal(id="a"), "b": Goal(id="b", dependencies=["a"])})
    with (
        pytest.raises(AgentValidationError, match=r"goals.b: is below itself: b -> a -> b"),
        agent.change() as change,
    ):
        change.put("goals", "c", Goal(id="c", dependencies=["b", "a"]))
        change.put("goals", "a", Goal(id="a", dependencies=["b"]))
    assert agent.problems() == []
    parts = own_change(store.agent("7"))
    for id, parent in (("a", "b"), ("x", "y"), ("y", "x"), ("z", "y")):
        parts.part(store.agent("7")._handle).set(task_key(id), {"id": id, "parent": parent})
    store.agent("7")._run(parts.plan())
    assert agent.problems() == [
        "tasks.a: is below itself: a -> b -> a",
        "tasks.x: is below itself: x -> y -> x",
    ]


def test_ids_that_only_look_alike_are_not_the_same(store: sync.Store) -> None:
    """As names of files on some systems are. What names a task would name none, later on."""
    apart, whole = "re\u0301sume\u0301", "r\u00e9sum\u00e9"
    state = store.agent("7")
    agent = AgentState(state)

    def refused(call: Callable[[], Any], *paths: str) -> None:
        with pytest.raises(AgentValidationError) as caught:
            call()
        assert [text.partition(":")[0] for text in caught.value.problems] == list(paths)
        assert all("normal form C" in text for text in caught.value.problems)
        assert agent.problems() == []

    refused(lambda: agent.put("tasks", apart, Task(id=apart)), f"tasks.{whole}.id")
    refused(lambda: agent.set("tasks", {"pending": [{"id": apart}]}), f"tasks.{apart}")
    refused(lambda: agent.set("goals", {apart: Goal(id=apart)}), f"goals.{apart}")
    refused(lambda: agent.set("session_memory", {apart: 1, whole: 2}), f"session_memory.{apart}")
    assert agent.load() == {}

    agent.put("tasks", apart, Task(id=whole))
    agent.update_task(apart, status="running")
    assert agent.get("tasks").current.id == whole
    assert {one.task_id for one in agent.get("tasks").history} == {whole}
    refused(lambda: agent.put("tasks", "c", Task(id="c", parent=apart)), "tasks.c.parent")
    command = {"id": "1", "task_id": apart}
    commands = "execution_trace/commands"
    refused(lambda: agent.append(commands, command), "execution_trace.commands")
    agent.put("goals", whole, Goal(id=whole))
    goal = Goal(id="g", dependencies=[apart])
    refused(lambda: agent.put("goals", "g", goal), "goals.g.dependencies")
    with pytest.raises(InvalidInputError, match="normal form C"):
        sync.agents.Handovers(store).offer(state, "agent:8", apart, reason="yours")
    assert agent.item("tasks", apart).id == whole
    agent.remove("tasks", apart)
    assert agent.ids("tasks") == []
    assert agent.problems() == []


@pytest.mark.spec("X4")
def test_the_task_of_every_command_exists(store: sync.Store) -> None:
    agent = AgentState(store.agent("7"))
    with pytest.raises(AgentValidationError, match="there is no task 't'"):
        agent.append("execution_trace/commands", Command(id="c", task_id="t"))
    with pytest.raises(AgentValidationError, match="there is no task 't'"):
        agent.set("execution_trace", {"commands": [{"id": "c", "task_id": "t"}]})
    with agent.change() as change:  # in which order is all the same
        change.append("execution_trace/commands", Command(id="c", task_id="t"))
        change.put("tasks", "t", Task(id="t"))
    for remove in (
        lambda: agent.remove("tasks", "t"),
        lambda: agent.set("tasks", TaskStack()),
        lambda: agent.set("tasks", None),
    ):
        with pytest.raises(AgentValidationError, match="there is no task 't'"):
            remove()
    assert agent.problems() == []
    assert [one.id for one in agent.tail("execution_trace/commands", 5)] == ["c"]


@pytest.mark.spec("X5")
def test_moods_and_goals_keep_their_ranges(store: sync.Store) -> None:
    agent = AgentState(store.agent("7"))
    with pytest.raises(AgentValidationError) as refused:
        agent.set(
            "emotional_state",
            {"intensity": 1.5, "adaptation_level": -0.1, "history": [{"intensity": "x"}]},
        )
    assert [text.partition(":")[0] for text in refused.value.problems] == [
        "emotional_state.primary_emotion",
        "emotional_state.intensity",
        "emotional_state.adaptation_level",
        "emotional_state.history[0].emotion",
        "emotional_state.history[0].intensity",
    ]
    bad = {"id": "g", "type": "odd", "priority": 2, "progress": -1, "status": "x", "deadline": "y"}
    with pytest.raises(AgentValidationError) as refused:
        agent.put("goals", "g", bad)
    assert len(refused.value.problems) == 5
    with pytest.raises(AgentValidationError, match="there is no goal 'h'"):
        agent.put("goals", "g", Goal(id="g", dependencies=["h"]))
    agent.set("goals", {"g": Goal(id="g", dependencies=["h"]), "h": Goal(id="h")})
    assert agent.get("goals")["g"].dependencies == ["h"]


@pytest.mark.spec("M6", "M10", "M44", "M49", "M51")
def test_what_is_wrong_is_told_whole_and_without_values(store: sync.Store) -> None:
    state = store.agent("7")
    agent = filled(state)
    before = state.root()
    secret = "hunter2-secret"
    with pytest.raises(AgentValidationError) as refused:
        agent.set("tasks", {"pending": [{"id": "x", "status": secret, "progress": secret}]})
    assert len(refused.value.problems) == 2
    assert secret not in str(refused.value)
    with pytest.raises(AgentValidationError):
        agent.set("state", {"name": 4, "data": secret})
    with pytest.raises(AgentValidationError, match=r"identity: has no field 'nam'"):
        agent.set("identity", {"nam": "x"})
    assert state.root() == before
    # Somebody writes past the types: what is stored is looked at as a whole.
    handle = state._handle
    for key, value in (
        ("$agent/execution_state", {"status": "lost"}),
        ("$agent/current_task", "gone"),
        ("$agent/goals/g1", {"id": "g9"}),
        ("$agent/tasks/t9", {"id": "t9", "parent": "t0"}),
        ("$agent/execution_trace/commands", [{"id": "c", "task_id": "t0"}]),
    ):
        plan = handle._plan([holdfast.Operation("set", key, value)], handle._version)
        state._run(plan)
    found = agent.problems()
    assert len(found) == 4 + 1
    with pytest.raises(AgentValidationError) as refused:
        agent.validate()
    assert refused.value.problems == tuple(found)


@pytest.mark.parametrize("path", ["conversation", "execution_trace/commands"])
def test_the_tail_of_a_list_that_is_not_as_its_type(store: sync.Store, path: str) -> None:
    state = store.agent("7")
    parts = own_change(state)
    parts.part(state._handle).append(f"$agent/{path}", {"a secret": 1})
    plan = parts.plan()
    assert plan is not None
    state._run(plan)
    with pytest.raises(AgentValidationError, match="not as its type") as caught:
        AgentState(state).tail(path, 5)
    assert path in str(caught.value)
    assert caught.value.problems


def test_names_that_are_none(store: sync.Store) -> None:
    agent = AgentState(store.agent("7"))
    with pytest.raises(InvalidInputError, match="there is no component 'nope'; there are identity"):
        agent.get("nope")
    with pytest.raises(InvalidInputError, match="is no list; lists are conversation"):
        agent.append("goals", {})
    with pytest.raises(InvalidInputError, match="no items by ids"):
        agent.put("conversation", "x", {})
    with pytest.raises(InvalidInputError, match="give the state of an agent"):
        AgentState(store)  # type: ignore[arg-type]


class Notes(msgspec.Struct):
    title: str
    lines: list[str] = []


class Profile(pydantic.BaseModel):
    name: str
    age: int = 0


@dataclasses.dataclass
class Place_:
    where: str
    visits: list[int] = dataclasses.field(default_factory=list)


OWN = (
    Component("notes", Notes, optional=True),
    Component("profiles", Profile, form="keyed"),
    Component("places", Place_, form="list"),
)


def test_components_of_ones_own(store: sync.Store) -> None:
    agent = AgentState(store.agent("7"), components=OWN)
    assert agent.get("notes") is None
    agent.set("notes", Notes("t", ["a"]))
    agent.append("notes/lines", "b")
    agent.put("profiles", "ann", Profile(name="ann", age=3))
    agent.append("places", Place_("here", [1]))
    assert agent.get("notes") == Notes("t", ["a", "b"])
    assert agent.get("profiles") == {"ann": Profile(name="ann", age=3)}
    assert agent.get("places") == [Place_("here", [1])]
    with pytest.raises(AgentValidationError) as refused:
        agent.set("profiles", {"a": {"age": "x"}, "b": {"name": 3}})
    assert len(refused.value.problems) == 3
    with pytest.raises(AgentValidationError, match=r"places\[0\].visits\[1\]"):
        agent.append("places", {"where": "x", "visits": [1, "y"]})
    with pytest.raises(InvalidInputError, match="already"):
        AgentState(store.agent("7"), components=[Component("goals", Notes)])


def test_a_mapping_that_may_stand_for_one_class_has_its_fields_alone(store: sync.Store) -> None:
    """Catches: a field that is misspelt is left out, and what was given is lost."""
    own = Component("places", Place_ | str, form="list")
    agent = AgentState(store.agent("7"), components=[own])
    agent.append("places", "anywhere")
    with pytest.raises(AgentValidationError, match=r"places\[0\]: has no field 'visit'"):
        agent.append("places", {"where": "here", "visit": [1]})
    with pytest.raises(AgentValidationError) as refused:
        agent.set("places", [{"where": 1, "visits": "x"}])
    assert len(refused.value.problems) == 2
    assert agent.get("places") == ["anywhere"]


def test_a_component_of_ones_own_lies_where_no_other_does(store: sync.Store) -> None:
    """Else setting it would make another task the current one, or write over other parts."""
    with pytest.raises(InvalidInputError, match="record, list or keyed"):
        Component("mine", TaskStack, form="tasks")
    for own in (
        Component("mine", Notes, key="$agent/identity"),
        Component("mine", str, key="$agent/current_task"),
    ):
        with pytest.raises(InvalidInputError, match="follows from its name"):
            AgentState(store.agent("7"), components=[own])


class Mood(enum.Enum):
    CALM = "calm"
    ANGRY = "angry"


@dataclasses.dataclass
class Spots:
    seen: set[str] = dataclasses.field(default_factory=set)
    at: tuple[int, int] = (0, 0)
    moods: dict[str, Mood] = dataclasses.field(default_factory=dict)
    more: list[frozenset[int]] = dataclasses.field(default_factory=list)
    other: Any = None


class Bag(pydantic.BaseModel):
    seen: set[str] = set()
    spots: list[Spots] = []


def test_sets_tuples_and_enums_come_back_where_the_type_says_so(store: sync.Store) -> None:
    own = [Component("spots", Spots), Component("bags", Bag, form="keyed")]
    agent = AgentState(store.agent("7"), components=own)
    spots = Spots({"a", "b"}, (1, 2), {"x": Mood.ANGRY}, [frozenset([3])])
    agent.set("spots", spots)
    agent.append("spots/more", {4, 5})
    agent.put("bags", "b", Bag(seen={"c"}, spots=[spots]))
    spots.more.append(frozenset([4, 5]))
    assert agent.get("spots") == spots
    assert agent.item("bags", "b").seen == {"c"}
    assert agent.item("bags", "b").spots[0].at == (1, 2)
    agent.validate()
    with pytest.raises(InvalidValueError, match="set"):
        agent.set("spots", Spots(other={1}))
    assert agent.get("spots") == spots


def test_what_contains_itself_is_refused(store: sync.Store) -> None:
    agent = AgentState(store.agent("7"))
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(LimitExceededError, match="contains itself"):
        agent.put("short_term_memory", "x", endless)
    with pytest.raises(LimitExceededError, match="contains itself"):
        agent.set("configuration", {"x": endless})


@pytest.mark.spec("L58")
def test_components_have_versions(store: sync.Store) -> None:
    state = store.agent("7")

    class Old(msgspec.Struct):
        text: str
        marks: list[str] = []

    class New(msgspec.Struct):
        words: list[str]

    def upgrade(version: int, data: Any) -> Any:
        assert version == 1
        return {"words": data["text"].split() + data.get("marks", [])}

    old = AgentState(state, components=[Component("draft", Old)])
    new = AgentState(state, components=[Component("draft", New, version=2, upgrade=upgrade)])
    old.set("draft", Old("a", ["b"]))
    assert new.get("draft") == New(["a", "b"])
    assert old.get("draft") == Old("a", ["b"])
    assert new.tail("draft/words", 1) == ["b"]
    new.append("draft/words", "c")
    assert new.get("draft") == New(["a", "b", "c"])
    assert state.keys("$agent/") == ["$agent/draft", "$agent/draft/words", "$agent/schema"]
    found = new.persisted()
    assert found is not None
    assert found.schema_version == 2
    for refused in (lambda: old.get("draft"), lambda: old.set("draft", Old("x"))):
        with pytest.raises(NewerFormatError, match="update it"):
            refused()
    assert new.get("draft") == New(["a", "b", "c"])


def test_single_items_and_ids_are_upgraded_too(store: sync.Store) -> None:
    class Cents(msgspec.Struct):
        amount: int = 0

    class Price(msgspec.Struct):
        euros: int

    def upgrade(version: int, data: Any) -> Any:
        if isinstance(data, list):
            return [{"euros": one["amount"] // 100} for one in data if one["amount"]]
        return {f"new {id}": {"euros": one["amount"] // 100} for id, one in data.items()}

    state = store.agent("shop")
    forms = {"prices": "keyed", "paid": "list"}
    old = AgentState(state, [Component(name, Cents, form) for name, form in forms.items()])  # type: ignore[arg-type]
    new = AgentState(
        state,
        [Component(name, Price, form, version=2, upgrade=upgrade) for name, form in forms.items()],  # type: ignore[arg-type]
    )
    for id in ("tea", "cake"):
        old.put("prices", id, Cents(500))
    old.append("paid", Cents(500), Cents())
    assert new.item("prices", "new tea") == Price(5) == new.get("prices")["new tea"]
    assert new.item("prices", "tea") is None
    assert new.ids("prices") == ["new cake", "new tea"] == list(new.get("prices"))
    assert new.length("paid") == 1 == len(new.tail("paid", 5)), "as many as are read"
    with new.change() as draft:
        assert draft.item("prices", "new cake") == Price(5)
    with pytest.raises(MissingError):
        new.remove("prices", "tea")
    assert old.ids("prices") == ["cake", "tea"], "nothing was written by that"
    new.remove("prices", "new tea")
    assert new.get("prices") == {"new cake": Price(5)}, "the rest is brought up to it"
    for read in (lambda: old.item("prices", "new cake"), lambda: old.ids("prices")):
        with pytest.raises(NewerFormatError):
            read()
    same = AgentState(state, [Component("prices", Cents, "keyed", version=2)])
    with pytest.raises(AgentValidationError, match="euros"):
        same.item("prices", "new cake")


@pytest.mark.parametrize("form", ["record", "list", "keyed"])
def test_an_upgrade_that_returns_nothing_loses_nothing(store: sync.Store, form: Any) -> None:
    class Note(msgspec.Struct):
        text: str = ""

    def forgets(version: int, data: Any) -> None:
        pass

    whole = {"record": Note("a"), "list": [Note("a")], "keyed": {"x": Note("a")}}[form]
    state = store.agent("7")
    old = AgentState(state, [Component("notes", Note, form)])
    old.set("notes", whole)
    new = AgentState(state, [Component("notes", Note, form, version=2, upgrade=forgets)])
    with pytest.raises(AgentValidationError, match="returned nothing"):
        new.get("notes")
    writes = {
        "record": lambda: new.update("notes", lambda note: note),
        "list": lambda: new.append("notes", Note("b")),
        "keyed": lambda: new.put("notes", "y", Note("b")),
    }
    with pytest.raises(AgentValidationError, match="returned nothing"):
        writes[form]()
    assert "returned nothing" in new.problems()[0]
    assert old.get("notes") == whole
    with pytest.raises(InvalidInputError, match="several"):
        AgentState(state, components=5)  # type: ignore[arg-type]


def test_changes_beside_each_other_are_all_kept(plain: Place) -> None:
    plain.open().agent("7").set("x", 1)

    def work(number: int) -> None:
        agent = AgentState(plain.open().agent("7"))
        for turn in range(10):
            agent.append("conversation", Message(role="user", content=[number, turn]))
            agent.update("metadata", lambda found: {"n": found.get("n", 0) + 1})

    threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    agent = AgentState(plain.open().agent("7"))
    assert agent.length("conversation") == 30
    assert agent.get("metadata") == {"n": 30}


def test_a_change_expects_what_it_read(store: sync.Store) -> None:
    agent = AgentState(store.agent("7"))
    with pytest.raises(Conflict), agent.change(reason="plan") as change:
        change.set("metadata", {"n": len(change.get("goals"))})
        agent.put("goals", "g", Goal(id="g"))
    assert agent.get("metadata") == {}
    with agent.change(reason="plan") as change:
        change.set("metadata", {"n": len(change.get("goals"))})
    assert agent.get("metadata") == {"n": 1}
    with pytest.raises(InvalidInputError, match="over"):
        change.set("metadata", {})


def test_the_async_face(place: Place) -> None:
    async def main() -> None:
        async with holdfast.open(place.url, **place.options()) as store:
            state = store.agent("7")
            agent = holdfast.agents.AgentState(state)
            async with agent.change(reason="all") as change:
                for name, value in WHOLE.items():
                    change.set(name, value)
                assert await change.get("state") == WHOLE["state"]
                assert (await change.item("goals", "g1")).type == "long-term"
            assert await agent.load() == WHOLE
            assert await agent.get("goals") == WHOLE["goals"]
            assert await agent.item("goals", "g1") == WHOLE["goals"]["g1"]
            assert await agent.ids("goals") == ["g1", "g2"]
            await agent.append("conversation", Message(role="user", content="more"))
            assert (await agent.tail("conversation", 1))[0].content == "more"
            assert await agent.length("conversation") == 4
            await agent.update_task("t2", status="running")

            async def counted(found: Any) -> Any:
                await asyncio.sleep(0)
                return {**found, "n": found.get("n", 0) + 1}

            await asyncio.gather(*(agent.update("metadata", counted) for _ in range(5)))
            assert (await agent.get("metadata"))["n"] == 5
            await agent.put("goals", "g3", Goal(id="g3"))
            await agent.remove("goals", "g3")
            await agent.set("emotional_state", None)
            assert await agent.problems() == []
            await agent.validate()
            safe = await state.checkpoint("safe")
            assert (await agent.capture(safe)).components["tasks"].current.id == "t2"
            assert (await agent.persisted()).state_name == "awaiting_topic"

    asyncio.run(main())


def test_both_faces_are_equal() -> None:
    mine, theirs = vars(AgentState), vars(holdfast.agents.AgentState)
    public = [[name for name in face if not name.startswith("_")] for face in (mine, theirs)]
    assert public[0] == public[1]
    for name in public[0]:
        assert mine[name].__doc__ == theirs[name].__doc__, name


def refused(write: Callable[[], Any]) -> set[str]:
    with pytest.raises(AgentValidationError) as error:
        write()
    assert len(set(error.value.problems)) == len(error.value.problems), "each of them once"
    return set(error.value.problems)


def test_all_items_that_are_wrong_are_told(store: sync.Store) -> None:
    agent = sync.agents.AgentState(store.agent("7"))
    items = {"content": 1}, {"role": "user", "content": "fine"}, {"role": ""}
    found = refused(lambda: agent.append("conversation", *items))
    assert {text.split(":")[0] for text in found} == {
        "conversation[0].role",
        "conversation[2].role",
    }
    commands = {"id": "c1", "task_id": "no", "name": "x"}, {"id": 5, "task_id": "no", "name": "x"}
    found = refused(lambda: agent.append("execution_trace/commands", *commands))
    assert {text.split(":")[0] for text in found} == {
        "execution_trace/commands[1].id",
    }
    assert store.agent("7")._handle.place()[2] == 0
