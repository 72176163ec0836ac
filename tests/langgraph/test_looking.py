"""What `holdfast langgraph diff` says of messages that changed places."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.messages import HumanMessage
from langgraph.checkpoint.base import empty_checkpoint

from holdfast import sync
from holdfast.integrations.langgraph import HoldfastSaver
from holdfast.integrations.langgraph.look import Looking, difference


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        ("abcd", "abcd", set()),
        ("ab", "ba", {("removed", 1, "b"), ("added", 0, "b")}),
        ("abcd", "bcda", {("removed", 0, "a"), ("added", 3, "a")}),
        ("abcd", "dabc", {("removed", 3, "d"), ("added", 0, "d")}),
        ("abc", "xc", {("removed", 0, "a"), ("removed", 1, "b"), ("added", 0, "x")}),
    ],
)
def test_messages_that_changed_places_are_told(
    before: str, after: str, told: set[tuple[str, int, str]]
) -> None:
    config: Any = {"configurable": {"thread_id": "one", "checkpoint_ns": ""}}
    with sync.open("memory:") as store:
        saver = HoldfastSaver(store)
        for step, ids in enumerate((before, after), 1):
            checkpoint = empty_checkpoint()
            messages = [HumanMessage(f"text {id}", id=id) for id in ids]
            checkpoint["channel_values"] = {"messages": messages}
            checkpoint["channel_versions"] = {"messages": step}
            config = saver.put(config, checkpoint, {"source": "loop", "step": step}, {})
        looking = Looking(store)
        past = looking.past(looking.thread("one"), "")
        found = difference(looking.see(past, past.at(0)), looking.see(past, past.at(1)))
        assert {
            (one.kind, int(one.path[len("messages[") : -1]), (one.after or one.before).value["id"])
            for one in found.changes
        } == told
