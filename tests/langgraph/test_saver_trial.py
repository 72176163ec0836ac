"""What a first trial broke: looking while a run is under way, deleting under it, odd ids."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.graph import START, MessagesState, StateGraph

from holdfast import sync
from holdfast.errors import Conflict
from holdfast.integrations.langgraph import HoldfastSaver, HoldfastStore


class Notes(TypedDict):
    xs: Annotated[list[str], lambda old, new: old + new]


def chain(saver: HoldfastSaver, *names: str, slow: Any = None) -> Any:
    builder = StateGraph(Notes)
    before = START
    for name in names:
        builder.add_node(name, slow or (lambda state, name=name: {"xs": [name]}))
        builder.add_edge(before, name)
        before = name
    return builder.compile(checkpointer=saver)


CONFIG: Any = {"configurable": {"thread_id": "t"}}


@pytest.mark.parametrize("look", ["history", "state"])
@pytest.mark.parametrize("other", ["invoke", "update"])
def test_looking_at_a_thread_does_not_license_what_a_run_puts(look: str, other: str) -> None:
    with sync.open("memory:") as store:
        graph = chain(HoldfastSaver(store), "a", "b", "c")
        graph.invoke({"xs": ["0"]}, CONFIG)

        def meddle() -> None:
            if other == "invoke":
                graph.invoke({"xs": ["OTHER"]}, CONFIG)
            else:
                graph.update_state(CONFIG, {"xs": ["OTHER"]}, as_node="c")

        with pytest.raises(Conflict, match="run's input, which an earlier step stored"):
            for number, _ in enumerate(graph.stream({"xs": ["slow"]}, CONFIG, durability="sync")):
                if number == 0:
                    thread = threading.Thread(target=meddle)
                    thread.start()
                    thread.join()
                if look == "history":
                    list(graph.get_state_history(CONFIG))
                else:
                    graph.get_state(CONFIG)
        assert "OTHER" in graph.get_state(CONFIG).values["xs"]


def test_a_run_under_way_does_not_bring_back_a_thread_that_was_deleted() -> None:
    with sync.open("memory:") as store:
        saver = HoldfastSaver(store)
        begun, go_on = threading.Event(), threading.Event()

        def wait(state: Notes) -> dict[str, Any]:
            begun.set()
            go_on.wait(60)
            return {"xs": ["x"]}

        chain(saver, "a").invoke({"xs": ["PRIVATE"]}, CONFIG)
        graph = chain(saver, "n", slow=wait)
        errors: list[BaseException] = []

        def run() -> None:
            try:
                graph.invoke({"xs": ["y"]}, CONFIG)
            except Conflict as error:
                errors.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        assert begun.wait(60)
        saver.delete_thread("t")
        go_on.set()
        thread.join(60)
        assert "deleted" in str(errors[0])
        assert saver.get_tuple(CONFIG) is None


@pytest.mark.parametrize(
    "id", ["", "%", "%25", "a..b", "...", "a/../b", "\ud800", "é" * 40, "/", "x" * 246]
)
def test_odd_thread_ids(id: str) -> None:
    with sync.open("memory:") as store:
        saver = HoldfastSaver(store)
        chain(saver, "a").invoke({"xs": ["0"]}, {"configurable": {"thread_id": id}})
        assert list(saver.thread_ids()) == [id]


def test_vectors_of_another_size_are_passed_over_also_if_it_divides() -> None:
    with sync.open("memory:") as store:
        old = {"cat": [0.0, 0.0, 1.0, 0.0]}
        first: Any = {"dims": 4, "embed": lambda texts: [old[text] for text in texts]}
        HoldfastStore(store, index={**first, "fields": ["text"]}).put(("a",), "k", {"text": "cat"})
        new = {"dog": [1.0, 0.0]}
        then: Any = {"dims": 2, "embed": lambda texts: [new[text] for text in texts]}
        found = HoldfastStore(store, index={**then, "fields": ["text"]}).search(("a",), query="dog")
        assert [item.score for item in found] == [None]


def test_a_serializer_of_ones_own_takes_messages_too(tmp_path: Path) -> None:
    """Short lists and long ones, grown, edited in place, and read in another process."""
    url = f"sqlite:{tmp_path / 'threads.db'}"
    for opened in range(2):
        with HoldfastSaver.open(url, serde=JsonPlusSerializer()) as saver:
            builder = StateGraph(MessagesState)
            builder.add_node("answer", lambda state: {"messages": [AIMessage("b" * 100)]})
            builder.add_edge(START, "answer")
            graph = builder.compile(checkpointer=saver)
            for turn in range(12):
                found = graph.invoke({"messages": [HumanMessage(f"{opened} {turn}")]}, CONFIG)
            said = graph.get_state(CONFIG).values["messages"]
            assert said == found["messages"]
            assert len(said) == 24 * (opened + 1)
            assert len(list(graph.get_state_history(CONFIG))[-2].values["messages"]) == 1
