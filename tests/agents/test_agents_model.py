"""An agent's typed state against a plain model, and saving while the storage fails."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from store_kit import Place

from holdfast import sync
from holdfast.agents import Message, Task
from holdfast.agents.state.shapes import Command
from holdfast.errors import AgentValidationError, HoldfastError, MissingError
from holdfast.storage.wrappers import Fault, Faulty
from holdfast.store.history.handle import StoreHandle
from holdfast.store.open import open_core
from holdfast.sync.agents import AgentState, attach

IDS = st.sampled_from("abc")
STATUS = st.sampled_from(["pending", "running", "completed", "failed"])
STEPS = st.one_of(
    st.tuples(st.just("put"), IDS, st.sampled_from(["", "a", "b"])),
    st.tuples(st.just("status"), IDS, STATUS),
    st.tuples(st.just("remove"), IDS),
    st.tuples(st.just("command"), IDS),
    st.tuples(st.just("say"), st.integers()),
    st.tuples(st.just("checkpoint")),
    st.tuples(st.just("restore")),
)


class Model:
    """Tasks, who is current, commands and messages, as plain as can be."""

    def __init__(self) -> None:
        self.tasks: dict[str, Task] = {}
        self.current: str | None = None
        self.commands: list[str] = []
        self.said: list[int] = []

    def copy(self) -> Model:
        other = Model()
        other.tasks, other.current = dict(self.tasks), self.current
        other.commands, other.said = list(self.commands), list(self.said)
        return other

    def put(self, id: str, parent: str) -> bool:
        if parent and (parent not in self.tasks or id in self.above(parent)):
            return False
        self.tasks[id] = Task(id=id, parent=parent)
        return True

    def above(self, id: str) -> list[str]:
        """A task, its parent, and so on."""
        return [id, *self.above(self.tasks[id].parent)] if id else []

    def status(self, id: str, status: Any) -> bool:
        if id not in self.tasks:
            return False
        parent = self.tasks[id].parent
        self.tasks[id] = Task(id=id, parent=parent, status=status)
        if status == "running":
            self.current = id
        elif status in ("completed", "failed") and self.current == id:
            self.current = None
        return True

    def remove(self, id: str) -> bool:
        if id not in self.tasks or id in self.commands:
            return False
        if any(task.parent == id for task in self.tasks.values()):
            return False
        del self.tasks[id]
        self.current = None if self.current == id else self.current
        return True

    def command(self, id: str) -> bool:
        if id not in self.tasks:
            return False
        self.commands.append(id)
        return True

    def say(self, number: int) -> bool:
        self.said.append(number)
        return True


@given(st.lists(STEPS, max_size=25))
def test_it_does_what_the_model_does(steps: list[tuple[Any, ...]]) -> None:
    with sync.open("memory:") as store:
        state = store.agent("7")
        state.set("x", 1)
        agent = AgentState(state)
        model = Model()
        kept, then = state.checkpoint(), model.copy()
        does: dict[str, Callable[..., None]] = {
            "put": lambda id, parent: agent.put("tasks", id, Task(id=id, parent=parent)),
            "status": lambda id, status: agent.update_task(id, status=status),
            "remove": lambda id: agent.remove("tasks", id),
            "command": lambda id: agent.append(
                "execution_trace/commands", Command(id="c", task_id=id)
            ),
            "say": lambda number: agent.append("conversation", Message(role="u", content=number)),
        }
        for name, *given_ in steps:
            if name == "checkpoint":
                kept, then = state.checkpoint(), model.copy()
            elif name == "restore":
                state.restore(kept)
                model = then.copy()
            elif getattr(model, name)(*given_):
                does[name](*given_)
            else:
                with pytest.raises((AgentValidationError, MissingError)):
                    does[name](*given_)
        stack = agent.get("tasks")
        assert {task.id: (task.parent, task.status) for task in stack.tasks()} == {
            id: (task.parent, task.status) for id, task in model.tasks.items()
        }
        agent.validate()
        assert (stack.current.id if stack.current else None) == model.current
        commands = agent.get("execution_trace").commands
        assert [one.task_id for one in commands] == model.commands
        assert [one.content for one in agent.get("conversation")] == model.said


class Counter:
    def __init__(self) -> None:
        self.n: Any = 0
        self.log: list[int] = []
        self.wide: dict[str, int] = {}


FIELDS = ["n", "log", "wide"]


def test_a_save_that_fails_leaves_the_one_before(place: Place) -> None:
    """At whatever call the storage fails: the agent that comes back is of one save, and whole."""
    first = attach(Counter(), place.open().agent("7"), fields=FIELDS)
    first.start()
    first.stop()
    for nth in range(1, 12):
        faulty = Faulty(place.storage())
        store = sync.Store(StoreHandle(open_core(place.url, storage=faulty, **place.options())))
        agent = Counter()
        kept = attach(agent, store.agent("7"), fields=FIELDS)
        kept.start()
        faulty.plan = (Fault("*", faulty.calls["*"] + nth),)
        saved = agent.n
        for _ in range(4):
            agent.n += 1
            agent.log.append(agent.n)
            agent.wide = {str(one): agent.n for one in range(40)}
            try:
                kept.save()
                saved = agent.n
            except HoldfastError as error:
                assert "injected" in str(error)
        assert len(faulty.failed) == 1
        again = Counter()
        attach(again, place.open().agent("7"), fields=FIELDS).restore()
        assert again.n == saved
        assert again.log[-1] == saved
        assert set(again.wide.values()) == {saved}
        kept.stop()
        store.close()
    assert place.open().verify().findings == []
