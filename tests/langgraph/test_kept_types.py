"""A message of which only the type of a part changes is another message."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from langchain_core.messages import AnyMessage, HumanMessage, ToolMessage
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.graph import START, MessagesState, StateGraph

from holdfast.integrations.langgraph import HoldfastSaver


@dataclass
class Draft:
    goal: str


@dataclass
class Approved:
    goal: str


class Colour(enum.Enum):
    RED = "red"


class Name(enum.StrEnum):
    RED = "red"


ID = UUID("12345678-1234-5678-1234-567812345678")
PAIRS: dict[str, tuple[Any, Any]] = {
    "classes": (Draft("x"), Approved("x")),
    "class": ({"goal": "x"}, Draft("x")),
    "tuple": ([1, 2], (1, 2)),
    "set": ([1], {1}),
    "frozenset": ({1}, frozenset([1])),
    "enum": ("red", Colour.RED),
    "text enum": ("red", Name.RED),
    "uuid": (str(ID), ID),
    "date": ("2020-01-02", date(2020, 1, 2)),
    "decimal": ("1.5", Decimal("1.5")),
    "path": ("a/b", Path("a/b")),
    "bytearray": (b"x", bytearray(b"x")),
    "bool": (1, True),
    "float": (1, 1.0),
    "zero": (0.0, -0.0),
    "inside": ({"a": [{"b": (1,)}]}, {"a": [{"b": [1]}]}),
}


def put(saver: HoldfastSaver, config: Any, messages: list[AnyMessage], step: int) -> Any:
    checkpoint = empty_checkpoint()
    checkpoint["channel_values"] = {"messages": messages}
    checkpoint["channel_versions"] = {"messages": step}
    return saver.put(config, checkpoint, {"source": "loop", "step": step}, {"messages": step})


def stored(saver: HoldfastSaver) -> list[Any]:
    found = saver.get_tuple({"configurable": {"thread_id": "one"}})
    assert found is not None
    messages: list[Any] = found.checkpoint["channel_values"]["messages"]
    return messages


@pytest.mark.parametrize("back", [False, True])
@pytest.mark.parametrize("count", [3, 40, 300])
@pytest.mark.parametrize("pair", PAIRS)
def test_a_part_that_changes_its_type_in_place_is_stored(pair: str, count: int, back: bool) -> None:
    before, after = PAIRS[pair][::-1] if back else PAIRS[pair]
    with HoldfastSaver.open("memory:") as saver:
        messages: list[Any] = [HumanMessage(f"m{n}", id=str(n)) for n in range(count)]
        messages[1] = ToolMessage("r", tool_call_id="1", id="1", artifact=before)
        config: Any = {"configurable": {"thread_id": "one", "checkpoint_ns": ""}}
        config = put(saver, config, messages, 1)
        messages.append(HumanMessage("more", id="more"))
        config = put(saver, config, messages, 2)
        assert repr(stored(saver)[1].artifact) == repr(before)
        messages[1].artifact = after
        config = put(saver, config, messages, 3)
        found = stored(saver)[1].artifact
        assert (type(found), repr(found)) == (type(after), repr(after))
        assert len(stored(saver)) == count + 1


@pytest.mark.parametrize("count", [3, 40])
def test_an_extra_field_that_changes_its_type_is_stored(count: int) -> None:
    with HoldfastSaver.open("memory:") as saver:
        messages: list[Any] = [HumanMessage(f"m{n}", id=str(n), seen=[n]) for n in range(count)]
        config: Any = {"configurable": {"thread_id": "one", "checkpoint_ns": ""}}
        config = put(saver, config, messages, 1)
        messages[1].seen = (1,)
        put(saver, config, messages, 2)
        assert [message.seen for message in stored(saver)[:3]] == [[0], (1,), [2]]


def test_a_message_that_a_node_replaces_by_one_of_another_class_inside_is_stored() -> None:
    def draft(_: MessagesState) -> dict[str, Any]:
        return {"messages": [ToolMessage("r", tool_call_id="1", id="T", artifact=Draft("x"))]}

    def approve(_: MessagesState) -> dict[str, Any]:
        return {"messages": [ToolMessage("r", tool_call_id="1", id="T", artifact=Approved("x"))]}

    builder = StateGraph(MessagesState).add_node(draft).add_node(approve)
    builder.add_edge(START, "draft").add_edge("draft", "approve")
    with HoldfastSaver.open("memory:") as saver:
        graph: Any = builder.compile(checkpointer=saver)
        config: Any = {"configurable": {"thread_id": "one"}}
        returned = graph.invoke({"messages": [HumanMessage("go")]}, config)
        assert returned["messages"][1].artifact == Approved("x")
        assert graph.get_state(config).values["messages"][1].artifact == Approved("x")


@pytest.mark.parametrize("count", [1, 3, 40])
def test_texts_that_are_no_unicode_are_stored_wherever_they_stand(count: int) -> None:
    """As a model's answer that was cut within a character leaves them."""
    with HoldfastSaver.open("memory:") as saver:
        odd = "\ud83d"
        messages: list[Any] = [HumanMessage(odd, id=f"{n}{odd}") for n in range(count)]
        config: Any = {"configurable": {"thread_id": "one", "checkpoint_ns": ""}}
        config = put(saver, config, messages, 1)
        messages.append(ToolMessage("r", tool_call_id=odd, id=odd, artifact={odd: [{odd: odd}]}))
        put(saver, config, messages, 2)
        assert stored(saver) == messages


def test_an_id_that_is_no_unicode_goes_through_a_graph() -> None:
    def echo(_: MessagesState) -> dict[str, Any]:
        return {"messages": [HumanMessage("go", id="b\ud83d")]}

    builder = StateGraph(MessagesState).add_node(echo).add_edge(START, "echo")
    with HoldfastSaver.open("memory:") as saver:
        graph: Any = builder.compile(checkpointer=saver)
        config: Any = {"configurable": {"thread_id": "one"}}
        returned = graph.invoke({"messages": [HumanMessage("go", id="a\ud83d")]}, config)
        assert graph.get_state(config).values == returned
