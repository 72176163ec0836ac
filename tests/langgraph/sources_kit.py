"""Graphs whose threads LangGraph's own savers keep, to be imported from there."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypedDict

from langchain_core.messages import AIMessage, RemoveMessage
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.types import Command, Send, interrupt


@dataclass
class Plan:
    """A class of a user's own, which only a program that imports this module knows."""

    goal: str
    steps: list[str]


class State(MessagesState):
    """What the graphs keep."""

    plan: Plan
    seen: Annotated[list[str], operator.add]


def config(thread: str, **more: Any) -> Any:
    return {"configurable": {"thread_id": thread, **more}}


def talking() -> StateGraph[Any]:
    """Answers, and adds to a plan; several tasks at once, one of them in a subgraph."""

    def answer(state: State) -> Any:
        text = f"answer to {state['messages'][-1].content}"
        return {"messages": [AIMessage(text)], "plan": Plan("ship", [text])}

    def fan_out(_: State) -> list[Send]:
        return [Send("look", {"at": place}) for place in ("here", "there")]

    def look(found: dict[str, str]) -> Any:
        return {"seen": [found["at"]]}

    def inner(state: State) -> Any:
        return {"seen": [f"inside {len(state['seen'])}"]}

    below = StateGraph(State).add_node("inner", inner).add_edge(START, "inner")
    graph = StateGraph(State).add_node("answer", answer).add_node("look", look)
    graph.add_node("below", below.compile(checkpointer=True)).add_edge(START, "answer")
    graph.add_conditional_edges("answer", fan_out, ["look"])
    return graph.add_edge("look", "below").add_edge("below", END)


def asking() -> StateGraph[Any]:
    """Asks a person, and waits; something else is done by then."""

    def ask(_: State) -> Any:
        return {"messages": [AIMessage(f"you said {interrupt('really?')}")]}

    def work(_: State) -> Any:
        return {"seen": ["worked"]}

    graph = StateGraph(State).add_node("ask", ask).add_node("work", work)
    return graph.add_edge(START, "ask").add_edge(START, "work")


def fold(kept: list[str], updates: Sequence[list[str]]) -> list[str]:
    return [*kept, *(item for update in updates for item in update)]


class Counted(TypedDict):
    """A channel of which only what was written is stored, and its value now and then."""

    log: Annotated[list[str], DeltaChannel(fold, list, snapshot_frequency=3)]


def counting() -> StateGraph[Any]:
    graph = StateGraph(Counted)
    graph.add_node("count", lambda state: {"log": [f"counted {len(state['log'])}"]})
    return graph.add_edge(START, "count")


def make_threads(saver: BaseCheckpointSaver[Any]) -> None:
    """Threads with subgraphs, branches, an interrupt, delta channels and odd names."""
    graph = talking().compile(checkpointer=saver)
    for turn in range(3):
        graph.invoke({"messages": [("human", f"turn {turn} " + "x" * 300)]}, config("talk"))
    first = next(iter(graph.get_state(config("talk")).values["messages"]))
    graph.update_state(config("talk"), {"messages": [RemoveMessage(first.id)]}, as_node="below")
    older = [*graph.get_state_history(config("talk"))][4]
    branch = graph.update_state(older.config, {"seen": ["branch"]}, as_node="below")
    graph.invoke(Command(goto="answer"), branch)
    graph.invoke({"messages": [("human", "ä")]}, config("team/7: ünï"))
    counted = counting().compile(checkpointer=saver)
    for turn in range(4):
        counted.invoke({"log": [f"turn {turn}"]}, config("count"))
    asking().compile(checkpointer=saver).invoke({"messages": [("human", "?")]}, config("ask"))


def make_sqlite(path: Path) -> None:
    """A file of LangGraph's SQLite saver with such threads."""
    with SqliteSaver.from_conn_string(str(path)) as saver:
        make_threads(saver)
