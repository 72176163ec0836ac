"""Every method with every wrong argument: an error of Holdfast that says what to do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from holdfast import sync
from holdfast.agents import Component, Message, StepResult
from holdfast.errors import HoldfastError, InternalError
from holdfast.sync.agents import Agents, AgentState, attach

ODD = (None, 3, -1, "", "a//b", "..", "\ud800", b"x", [], {}, 1.5, object(), True, "x" * 600)


class Plain:
    def __init__(self) -> None:
        self.n = 0


CALLS: dict[str, Callable[[sync.Store, Any], Any]] = {
    "state": lambda store, odd: AgentState(odd),
    "components": lambda store, odd: AgentState(store.agent("7"), components=[odd]),
    "get": lambda store, odd: AgentState(store.agent("7")).get(odd),
    "item name": lambda store, odd: AgentState(store.agent("7")).item(odd, "g"),
    "item id": lambda store, odd: AgentState(store.agent("7")).item("goals", odd),
    "ids": lambda store, odd: AgentState(store.agent("7")).ids(odd),
    "tail": lambda store, odd: AgentState(store.agent("7")).tail(odd, 1),
    "tail count": lambda store, odd: AgentState(store.agent("7")).tail("conversation", odd),
    "length": lambda store, odd: AgentState(store.agent("7")).length(odd),
    "set name": lambda store, odd: AgentState(store.agent("7")).set(odd, {}),
    "set identity": lambda store, odd: AgentState(store.agent("7")).set("identity", odd),
    "set tasks": lambda store, odd: AgentState(store.agent("7")).set("tasks", odd),
    "set goals": lambda store, odd: AgentState(store.agent("7")).set("goals", odd),
    "set conversation": lambda store, odd: AgentState(store.agent("7")).set("conversation", odd),
    "set window": lambda store, odd: AgentState(store.agent("7")).set("context_window", odd),
    "update": lambda store, odd: AgentState(store.agent("7")).update("goals", odd),
    "append": lambda store, odd: AgentState(store.agent("7")).append(odd, Message(role="u")),
    "append item": lambda store, odd: AgentState(store.agent("7")).append("conversation", odd),
    "put": lambda store, odd: AgentState(store.agent("7")).put("goals", odd, {"id": odd}),
    "put item": lambda store, odd: AgentState(store.agent("7")).put("goals", "g", odd),
    "remove": lambda store, odd: AgentState(store.agent("7")).remove("goals", odd),
    "update_task": lambda store, odd: AgentState(store.agent("7")).update_task(odd, progress=1),
    "capture": lambda store, odd: AgentState(store.agent("7")).capture(odd),
    "component": lambda store, odd: Component(odd, dict),
    "component version": lambda store, odd: Component("x", dict, version=odd),
    "component form": lambda store, odd: Component("x", dict, form=odd),
    "component type": lambda store, odd: AgentState(
        store.agent("7"), components=[Component("x", odd)]
    ).set("x", {}),
    "component upgrade": lambda store, odd: _upgraded(store, odd),
    "worked action": lambda store, odd: StepResult(odd),
    "worked task": lambda store, odd: StepResult(task=odd),
    "worked progress": lambda store, odd: StepResult(progress=odd),
    "worked signals": lambda store, odd: StepResult(signals=odd),
    "worked idle": lambda store, odd: StepResult(idle=odd),
    "worked done": lambda store, odd: StepResult(done=odd),
    "drift failed": lambda store, odd: sync.agents.Drift(store.agent("7")).note(failed=odd),
    "drift progress": lambda store, odd: sync.agents.Drift(store.agent("7")).note(progress=odd),
    "drift signals": lambda store, odd: sync.agents.Drift(store.agent("7")).note(signals=odd),
    "loop signals": lambda store, odd: _run(store, signals=[odd]),
    "loop restart": lambda store, odd: _run(store, restarted=odd),
    "loop reason": lambda store, odd: _run(store, reason=odd),
    "attach": lambda store, odd: attach(Plain(), odd, fields=["n"]),
    "attach object": lambda store, odd: attach(odd, store.agent("7")),
    "attach fields": lambda store, odd: attach(Plain(), store.agent("7"), fields=odd).save(),
    "attach field": lambda store, odd: attach(Plain(), store.agent("7"), fields=[odd]).save(),
    "agents": lambda store, odd: Agents(odd),
    "agents kinds": lambda store, odd: Agents(store, {odd: odd} if isinstance(odd, str) else odd),
    "agents duration": lambda store, odd: _spawn(store, duration=odd),
    "register": lambda store, odd: Agents(store).register(odd),
    "register name": lambda store, odd: Agents(store).register("7", name=odd),
    "register metadata": lambda store, odd: Agents(store).register("7", metadata=odd),
    "identity": lambda store, odd: Agents(store).identity(odd),
    "list": lambda store, odd: Agents(store).list(kind=odd),
    "list prefix": lambda store, odd: Agents(store).list(prefix=odd),
    "list limit": lambda store, odd: Agents(store).list(limit=odd),
    "list after": lambda store, odd: Agents(store).list(after=odd),
    "get agent": lambda store, odd: Agents(store).get(odd),
    "wait": lambda store, odd: _spawn(store, wait=odd),
    "stop": lambda store, odd: Agents(store).stop(odd),
    "export": lambda store, odd: Agents(store).export_identities(odd),
    "import": lambda store, odd: Agents(store).import_identities(odd),
}


def _spawn(store: sync.Store, *, duration: Any = 30.0, wait: Any = 0) -> None:
    kinds: dict[str, Any] = {"plain": lambda identity: Plain()}
    agents = Agents(store, kinds, fields={"plain": ["n"]}, duration=duration)
    agents.register("8", kind="plain")
    agents.spawn("8", wait=wait)
    agents.close()


def _upgraded(store: sync.Store, odd: Any) -> None:
    state = store.agent("7")
    AgentState(state, components=[Component("x", dict)]).set("x", {"a": 1})
    newer = Component("x", dict, version=2, upgrade=odd)
    AgentState(state, components=[newer]).get("x")
    AgentState(
        state, components=[Component("x", dict, version=2, upgrade=lambda version, data: odd)]
    ).get("x")


class Done:
    def step(self) -> StepResult:
        return StepResult(done=True)


def _run(store: sync.Store, *, signals: Any = (), restarted: Any = None, reason: Any = "") -> None:
    state = store.agent("7")
    loop = sync.agents.Loop(state, Done(), signals=signals)
    if restarted is not None or reason != "":
        point = state.checkpoint("c") if restarted is None else restarted
        loop.restart(point, reason=reason)
    loop.run()


@pytest.mark.parametrize("name", CALLS)
def test_slips(name: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with sync.open("memory:") as store:
        for odd in ODD:
            try:
                CALLS[name](store, odd)
            except HoldfastError as error:
                assert not isinstance(error, InternalError)
                assert str(error), odd
            store.agent("7").set("still", "usable")
