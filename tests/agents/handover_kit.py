"""What the tests of handovers share."""

from __future__ import annotations

from typing import Any

from holdfast import sync
from holdfast.agents.agent_keys import CONVERSATION, CURRENT_TASK, TASKS, task_key
from holdfast.store.inner import own_change


def put(state: Any, **values: Any) -> None:
    """Write keys of the layer: `conversation`, `current_task`, and tasks by their ids."""
    parts = own_change(state)
    part = parts.part(state._handle)
    for name, value in values.items():
        known = {"conversation": CONVERSATION, "current_task": CURRENT_TASK}
        part.set(known.get(name) or task_key(name), value)
    plan = parts.plan()
    assert plan is not None
    state._handle.core.run(plan[0])


def say(state: Any, *texts: str) -> None:
    """Go on with the conversation."""
    parts = own_change(state)
    parts.part(state._handle).extend(CONVERSATION, [message(text) for text in texts])
    plan = parts.plan()
    assert plan is not None
    state._handle.core.run(plan[0])


def message(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def heard(state: sync.State) -> list[str]:
    """The conversation, as texts."""
    return [one["content"] for one in state.get(CONVERSATION, [])]


def tasks(state: sync.State) -> list[str]:
    return [key[len(TASKS) :] for key in state.keys(TASKS)]


def busy(store: sync.Store) -> sync.State:
    """An agent with a task and a conversation of two messages."""
    ada = store.agent("ada")
    put(ada, t1={"id": "t1", "status": "running"}, current_task="t1")
    say(ada, "hello", "it is about money")
    return ada
