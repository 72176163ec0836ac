"""What one process remembers of a thread that another one puts back, or deletes and makes again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from graph_kit import said, thread
from langchain_core.messages import AIMessage
from langgraph.graph import START, MessagesState, StateGraph

from holdfast import sync
from holdfast.integrations.langgraph import HoldfastSaver

SCOPE = "langgraph/one"
Stores = tuple[Any, Any]


def echo(state: MessagesState) -> dict[str, Any]:
    return {"messages": [AIMessage(f"re {state['messages'][-1].content}")]}


def graph(store: Any) -> Any:
    builder = StateGraph(MessagesState).add_node(echo).add_edge(START, "echo")
    return builder.compile(checkpointer=HoldfastSaver(store))


def texts(found: Any) -> list[str]:
    return [message.content for message in found["messages"]]


def stored(store: Any) -> list[str]:
    """The newest state, read by a saver that remembers nothing."""
    return texts(graph(store).get_state(thread()).values)


@pytest.fixture(params=[False, True], ids=["plain", "encrypted"])
def stores(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Stores]:
    """One store, opened as two processes would."""
    key = f"file:{tmp_path / 'key'}" if request.param else None
    (tmp_path / "data").mkdir()
    url = f"sqlite:{tmp_path / 'data' / 'threads.db'}"
    with sync.open(url, key=key) as here, sync.open(url, key=key) as there:
        yield here, there


def delete(store: Any) -> None:
    HoldfastSaver(store).delete_thread("one")


def put_back(store: Any) -> None:
    state = store.custom(SCOPE)
    state.restore("begun")


@pytest.mark.parametrize("change", [delete, put_back])
@pytest.mark.parametrize("turns", [1, 3, 12])
def test_messages_are_stored_as_they_are_after_another_process_made_the_thread_anew(
    stores: Stores, turns: int, change: Callable[[Any], None]
) -> None:
    here, there = stores
    ours, theirs = graph(here), graph(there)
    ours.invoke(said("begin"), thread())
    there.custom(SCOPE).checkpoint("begun")
    for turn in range(turns):
        ours.invoke(said(f"old {turn}"), thread())
    change(there)
    for turn in range(turns + 2):
        theirs.invoke(said(f"new {turn}"), thread())
    for turn in range(turns):
        returned = ours.invoke(said(f"old {turn}"), thread())
        assert stored(there) == texts(returned)
    new = [text for turn in range(turns + 2) for text in (f"new {turn}", f"re new {turn}")]
    old = [text for turn in range(turns) for text in (f"old {turn}", f"re old {turn}")]
    begun = ["begin", "re begin"] if change is put_back else []
    assert stored(here) == begun + new + old
    assert texts(ours.get_state(thread()).values) == begun + new + old


def test_what_was_listed_before_a_thread_was_put_back_is_still_what_it_was(stores: Stores) -> None:
    here, there = stores
    ours, theirs = graph(here), graph(there)
    ours.invoke(said("begin"), thread())
    there.custom(SCOPE).checkpoint("begun")
    ours.invoke(said("old"), thread())
    listed = iter(ours.checkpointer.list(thread()))
    assert texts(next(listed).checkpoint["channel_values"]) == [
        "begin",
        "re begin",
        "old",
        "re old",
    ]
    put_back(there)
    theirs.invoke(said("new"), thread())
    values = next(listed).checkpoint["channel_values"]
    assert texts(values) == ["begin", "re begin", "old"]
