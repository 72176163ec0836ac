"""A small graph, and what its threads hold."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from langchain_core.messages import AIMessage, HumanMessage
from langgraph.graph import START, MessagesState, StateGraph

from holdfast.integrations.langgraph import HoldfastSaver

SECONDS = 60
Config = dict[str, Any]
Node = Callable[[MessagesState], dict[str, Any]]


def answer(state: MessagesState) -> dict[str, Any]:
    return {"messages": [AIMessage(f"answer {len(state['messages'])} " + "a" * 300)]}


def compiled(saver: HoldfastSaver, node: Node = answer) -> Any:
    builder = StateGraph(MessagesState)
    builder.add_node("answer", node)
    builder.add_edge(START, "answer")
    return builder.compile(checkpointer=saver)


def thread(id: str = "one") -> Config:
    return {"configurable": {"thread_id": id}}


def said(text: str) -> dict[str, Any]:
    return {"messages": [HumanMessage(text)]}


def inputs(saver: HoldfastSaver, id: str = "one") -> list[Any]:
    """What people said, as the newest checkpoint has it."""
    found = saver.get_tuple(thread(id))
    assert found is not None
    # A run puts its input before anything is done with it: then nothing is among the messages yet.
    messages = found.checkpoint["channel_values"].get("messages", [])
    return [message.content for message in messages if isinstance(message, HumanMessage)]
