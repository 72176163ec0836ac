"""A checkpoint is read while the next one is put: what is given is all of one of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from graph_kit import checkpoint
from langchain_core.messages import HumanMessage

from holdfast.integrations.langgraph import HoldfastSaver
from holdfast.integrations.langgraph.thread import Past, Thread
from holdfast.integrations.langgraph.thread_records import Space

WHERE: Any = {"configurable": {"thread_id": "one", "checkpoint_ns": ""}}
MESSAGES = [HumanMessage(f"{n}", id=f"{n}") for n in range(300)]
Read = Callable[[HoldfastSaver], Any]


def newest(saver: HoldfastSaver) -> Any:
    return saver.get_tuple(WHERE)


def listed(saver: HoldfastSaver) -> Any:
    return next(saver.list(WHERE))


def meanwhile(monkeypatch: pytest.MonkeyPatch, name: str, act: Callable[[], Any]) -> list[Any]:
    """Let something happen before a thread's method is called for the first time; its outcome."""
    real = getattr(Thread, name)
    done: list[Any] = []

    def method(self: Thread, *arguments: Any) -> Any:
        if not done:
            done.append(None)  # what happens may call the method itself
            done[0] = act()
        return real(self, *arguments)

    monkeypatch.setattr(Thread, name, method)
    return done


@pytest.mark.parametrize(("known", "name"), [(False, "holding"), (True, "values_of")])
@pytest.mark.parametrize(("first", "then"), [(3, 5), (20, 25), (120, 300), (200, 100)])
@pytest.mark.parametrize("read", [newest, listed])
def test_messages_are_those_of_the_checkpoint_that_is_read(
    monkeypatch: pytest.MonkeyPatch, read: Read, first: int, then: int, known: bool, name: str
) -> None:
    with HoldfastSaver.open("memory:") as saver:
        before = checkpoint(messages=MESSAGES[:first])
        config = saver.put(WHERE, before, {}, {})
        if not known:
            saver._known.cache_clear()
        after = checkpoint(messages=MESSAGES[:then])
        done = meanwhile(monkeypatch, name, lambda: saver.put(config, after, {}, {}))
        found = read(saver).checkpoint
        assert done
        assert found["id"] == before["id"]
        assert found["channel_values"]["messages"] == MESSAGES[:first]
        assert saver.get_tuple(WHERE).checkpoint["channel_values"]["messages"] == MESSAGES[:then]


@pytest.mark.parametrize(
    ("read", "name"), [(newest, "_calls"), (newest, "pending"), (listed, "pending")]
)
def test_writes_are_those_of_the_checkpoint_that_is_read(
    monkeypatch: pytest.MonkeyPatch, read: Read, name: str
) -> None:
    with HoldfastSaver.open("memory:") as saver:
        before, after = checkpoint(x=1), checkpoint(x=2)
        config = saver.put(WHERE, before, {}, {})
        saver.put_writes(config, [("x", 2)], "task")
        written = {before["id"]: [("task", "x", 2)], after["id"]: []}
        done = meanwhile(monkeypatch, name, lambda: saver.put(config, after, {}, {}))
        found = read(saver)
        assert done
        assert found.pending_writes == written[found.checkpoint["id"]]


def test_writes_stay_with_a_checkpoint_that_is_no_longer_the_newest_when_it_is_read() -> None:
    with HoldfastSaver.open("memory:") as saver:
        before = checkpoint(x=1)
        config = saver.put(WHERE, before, {}, {})
        saver.put_writes(config, [("x", 2)], "task")
        thread = saver._thread("one")
        past = Past(thread, Space(""))
        saver.put(config, checkpoint(x=2), {}, {})
        found = past.at(-1)
        assert found.record.id == before["id"]
        assert thread.pending(found) == [("task", "x", 2)]
        assert thread.values(Space(""), found) == {"x": 1}
