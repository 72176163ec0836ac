"""`delete_for_runs` takes out all that a run stored, also what it wrote on top of others."""

from __future__ import annotations

import operator
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest
from graph_kit import compiled, said, thread
from langgraph.graph import START, StateGraph
from langgraph.types import Command, interrupt

from holdfast import sync
from holdfast.integrations.langgraph import HoldfastSaver


class Work(TypedDict):
    done: Annotated[list[str], operator.add]


def asking(saver: HoldfastSaver, *, nested: bool = False) -> Any:
    def ask(state: Work) -> dict[str, Any]:
        answer = interrupt("?")
        if answer == "bad":
            raise ZeroDivisionError
        return {"done": [answer]}

    builder = StateGraph(Work).add_node("ask", ask).add_edge(START, "ask")
    if nested:
        inner = builder.compile()
        builder = StateGraph(Work).add_node("inner", inner).add_edge(START, "inner")
    return builder.compile(checkpointer=saver)


def run(id: Any, name: str = "one") -> Any:
    return {**thread(name), "metadata": {"run_id": id}}


@pytest.mark.parametrize("nested", [False, True])
def test_a_question_can_be_answered_anew(nested: bool) -> None:
    with HoldfastSaver.open("memory:") as saver:
        graph = asking(saver, nested=nested)
        graph.invoke({"done": []}, run("r1"))
        graph.invoke(Command(resume="wrong"), run("r2"))
        saver.delete_for_runs(["r2"])
        assert [task.interrupts[0].value for task in graph.get_state(thread()).tasks] == ["?"]
        assert graph.invoke(Command(resume="right"), run("r3"))["done"] == ["right"]
        older = [found.values["done"] for found in graph.get_state_history(thread())]
        assert ["wrong"] not in older


def test_a_run_that_only_answered_and_failed_is_found(tmp_path: Path) -> None:
    url = f"sqlite:{tmp_path / 'threads.db'}"
    with HoldfastSaver.open(url) as saver:
        graph = asking(saver)
        graph.invoke({"done": []}, run("r1"))
        with pytest.raises(ZeroDivisionError):
            graph.invoke(Command(resume="bad"), run("r2"))
        saver.copy_thread("one", "two")
    with HoldfastSaver.open(url) as saver:
        saver.delete_for_runs(["r2"])
    with HoldfastSaver.open(url) as saver:
        graph = asking(saver)
        for name in ("one", "two"):
            (task,) = graph.get_state(thread(name)).tasks
            assert task.error is None
            assert graph.invoke(Command(resume="good"), run("r3", name))["done"] == ["good"]


def test_what_a_run_wrote_on_an_older_checkpoint_is_gone_from_there(tmp_path: Path) -> None:
    url = f"sqlite:{tmp_path / 'threads.db'}"

    def pending(saver: HoldfastSaver) -> dict[str, list[Any]]:
        found = saver.list(thread())
        return {one.checkpoint["id"]: one.pending_writes or [] for one in found}

    with HoldfastSaver.open(url) as saver:
        graph = asking(saver)
        graph.invoke({"done": ["in"]}, run("r1"))
        asked = pending(saver)
        graph.invoke(Command(resume="wrong"), run("r2"))
        graph.invoke({"done": ["more"]}, run("r3"))
        saver.delete_for_runs(["r2"])
        graph.invoke({"done": ["again"]}, run("r4"))
    with HoldfastSaver.open(url) as saver:
        graph = asking(saver)
        now = pending(saver)
        assert {id: now[id] for id in asked} == asked
        saver.delete_for_runs(["r3", "r4"])
        assert pending(saver) == asked
        assert graph.invoke(Command(resume="right"), run("r5"))["done"] == ["in", "right"]
        now = pending(saver)
        before = {id: [write[1] for write in writes] for id, writes in now.items()}
        assert {*now} > {*asked}
        assert all("wrong" not in str(writes) for writes in now.values())
        newest = max(asked)
        assert before[newest].count("__interrupt__") == 1
    with sync.open(url) as store:
        assert store.verify().ok


@pytest.mark.parametrize(("given", "wanted"), [(7, "7"), ("7", 7), (7.5, 7.5), ("a\0b", "a\0b")])
def test_runs_whose_ids_are_no_plain_texts(given: Any, wanted: Any) -> None:
    with HoldfastSaver.open("memory:") as saver:
        graph = compiled(saver)
        graph.invoke(said("x"), run(given))
        graph.invoke(said("y"), thread())
        saver.delete_for_runs([wanted])
        assert len(list(saver.list(thread()))) == 3
