"""An agent that goes on changing what it keeps while it is saved: what is stored is one moment."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

import pydantic
import pytest
from store_kit import Place

import holdfast
from holdfast import sync
from holdfast.agents import StepResult
from holdfast.sync.agents import attach


class Bell(pydantic.BaseModel):
    """Its owner's code runs whenever it is encoded, as that of another thread might."""

    number: int = 0
    rings: ClassVar[list[Callable[[], Any]]] = []

    def model_dump(self, **options: Any) -> dict[str, Any]:
        if self.rings:
            self.rings.pop(0)()
        return super().model_dump(**options)


@dataclass
class Talker:
    talk: Any = field(default_factory=list)
    facts: Any = field(default_factory=dict)
    bell: Bell = field(default_factory=Bell)


@pytest.fixture(autouse=True)
def quiet() -> None:
    Bell.rings = []


def stored(state: sync.State) -> Talker:
    again = Talker()
    attach(again, state).restore()
    return again


def test_what_comes_while_it_is_saved_is_saved_once(store: sync.Store) -> None:
    state, agent = store.agent("7"), Talker([{"n": 0}])
    kept = attach(agent, state)
    kept.save()
    for number in range(1, 6):
        agent.talk.append({"n": 2 * number - 1})
        agent.bell.number = number
        Bell.rings = [lambda number=number: agent.talk.append({"n": 2 * number})]
        kept.save()
    kept.save()
    assert stored(state).talk == [{"n": n} for n in range(11)]


@pytest.mark.parametrize("often", [1, 2, 3])
def test_what_is_changed_and_changed_back(store: sync.Store, often: int) -> None:
    state, agent = store.agent("7"), Talker([{"n": 0}])
    agent.facts = {f"f{n}": {"n": 0} for n in range(32)}
    kept = attach(agent, state)
    kept.save()

    def change(to: Any) -> None:
        agent.talk[-1]["n"] = agent.facts["f3"]["n"] = to

    agent.talk.append({"n": "first"})
    agent.bell.number = 1
    change("first")
    Bell.rings = [*[lambda: None] * (often - 1), lambda: change("second")]
    kept.save()
    change("first")
    kept.save()
    found = stored(state)
    assert (found.talk[-1], found.facts["f3"]) == ({"n": "first"}, {"n": "first"})


def test_threads_of_an_agent(place: Place) -> None:
    state, agent = place.open().agent("7"), Talker()
    over = threading.Event()

    def listen() -> None:
        number = 0
        while not over.is_set():
            agent.talk.append({"n": number, "text": "x" * 500})
            agent.facts[f"f{number}"] = {"n": number}
            number += 1
            over.wait(0.0001)

    listening = threading.Thread(target=listen)
    listening.start()
    try:
        kept = attach(agent, state)
        for _ in range(100):
            kept.save()
    finally:
        over.set()
        listening.join()
    kept.save()
    assert stored(state) == agent


def test_a_loop_looks_at_an_async_agent_between_its_tasks() -> None:
    class Busy(holdfast.agents.Agent):
        persistent = ("talk", "bell")
        bell: Bell

        def __init__(self) -> None:
            self.talk, self.bell = [{"n": 0}], Bell()

        async def step(self) -> StepResult:
            self.bell = Bell(number=self.bell.number + 1)
            Bell.rings.append(lambda: seen.append(threading.current_thread()))
            return StepResult("count", done=self.bell.number == 3)

        async def on_letter(self, mail: Any) -> None:
            await self.step()

    seen: list[threading.Thread] = []

    async def main() -> None:
        async with holdfast.open("memory:") as store:
            await holdfast.agents.Mailbox(store.agent("7")).send("one")
            await holdfast.agents.run(Busy(), store.agent("7"), drift=False)

    asyncio.run(main())
    assert seen == [threading.main_thread()] * 3
