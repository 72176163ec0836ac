"""Which nodes may have run on top of a checkpoint that an update made, or a fork."""

from __future__ import annotations

import logging
import operator
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest
from graph_kit import thread
from langgraph.graph import START, StateGraph

from holdfast import sync
from holdfast.integrations.langgraph import HoldfastSaver
from holdfast.integrations.langgraph.look import Looking


class Sum(TypedDict):
    x: Annotated[int, operator.add]


def one(_: Sum) -> dict[str, int]:
    return {"x": 1}


def graph(store: Any) -> Any:
    builder = StateGraph(Sum)
    for name in "abcd":
        builder.add_node(name, one)
    builder.add_edge(START, "a").add_edge(START, "b")
    builder.add_edge(["a", "b"], "c").add_edge("c", "d")
    return builder.compile(checkpointer=HoldfastSaver(store))


def check(store: Any) -> tuple[str, ...]:
    """What is told of a thread is what LangGraph would run."""
    made = graph(store)
    coming: tuple[str, ...] = tuple(sorted(made.get_state(thread()).next))
    assert tuple(made.checkpointer.may_have_run(thread())) == coming
    looking = Looking(store)
    past = looking.past(looking.thread("one"), "")
    seen = looking.see(past, looking.find(past, None))
    assert (tuple(seen.next), tuple(seen.may_have_run)) == (coming, coming)
    return coming


def test_what_comes_after_an_update_is_known() -> None:
    with sync.open("memory:") as store:
        made = graph(store)
        made.invoke({"x": 1}, thread())
        assert check(store) == ()
        found = []
        for node in "abcd":
            made.update_state(thread(), {"x": 5}, as_node=node)
            found.append(check(store))
        assert found == [(), ("c",), ("c", "d"), ("c",)]


@pytest.mark.parametrize("copied", [False, True])
def test_what_comes_after_a_fork_is_known(copied: bool) -> None:
    with sync.open("memory:") as store:
        made = graph(store)
        made.invoke({"x": 1}, thread())
        for point in [*made.get_state_history(thread())]:
            values, node = (None, "__copy__") if copied else ({"x": 1}, (point.next or ("d",))[0])
            made.update_state(point.config, values, as_node=node)
            check(store)


def test_a_node_that_may_have_run_after_an_update_is_named_on_resume(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    url = f"sqlite:{tmp_path / 'threads.db'}"
    with sync.open(url) as store:
        made = graph(store)
        made.invoke({"x": 1}, thread())
        made.update_state(thread(), {"x": 5}, as_node="c")
    with sync.open(url) as store, caplog.at_level(logging.WARNING):
        assert list(HoldfastSaver(store).may_have_run(thread())) == ["d"]
        graph(store).invoke(None, thread())
    assert "these nodes have stored nothing: d" in caplog.text
