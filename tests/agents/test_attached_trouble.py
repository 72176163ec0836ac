"""An attached agent whose stored keys come from different states, or whose restore fails."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec
import pydantic
import pytest
from store_kit import Place

import holdfast
from holdfast import sync
from holdfast.agents import StepResult
from holdfast.agents.agent_keys import ATTACHED
from holdfast.errors import Conflict
from holdfast.sync.agents import Agent, attach

PLAN = f"{ATTACHED}/plan"


class Planner:
    def __init__(self) -> None:
        self.plan: Any = {f"k{number:02}": number for number in range(40)}

    def step(self) -> StepResult:
        return StepResult("x", done=True)


def planned(state: sync.State) -> Any:
    """What an agent that is started anew holds, which saves it twice."""
    for _ in range(2):
        agent = Planner()
        with attach(agent, state, fields=["plan"]):
            pass
        sync.agents.run(Planner, state, fields=["plan"])
    return agent.plan


def restored(state: sync.State, agent: Planner, kept: sync.agents.Attached) -> None:
    safe = state.checkpoint()
    agent.plan |= {"x": 1, "y": 2}
    kept.save()
    sync.checkpoints.Checkpoints(state).restore(safe, keys=[PLAN])


def merged(strategy: str) -> Callable[..., None]:
    """The fork removes an item that the line moves to the end."""

    def change(state: sync.State, agent: Planner, kept: sync.agents.Attached) -> None:
        agent.plan["x"] = 1
        kept.save()
        other = Planner()
        trial = attach(other, state.fork("trial"), fields=["plan"])
        trial.restore()
        del other.plan["x"]
        other.plan["y"] = 2
        trial.save()
        agent.plan["x"] = agent.plan.pop("x") + 1
        kept.save()
        state.merge("trial", strategy=strategy)

    return change


@pytest.mark.parametrize(
    ("change", "there"),
    [
        (restored, {}),
        (merged("theirs"), {"y": 2}),
        (merged("ours"), {"x": 2, "y": 2}),
    ],
)
def test_an_item_that_came_or_went_alone(
    plain: Place, change: Callable[..., None], there: dict[str, int]
) -> None:
    """What is stored decides, for the agent and the loop alike."""
    store = plain.open()
    state, agent = store.agent("7"), Planner()
    kept = attach(agent, state, fields=["plan"])
    kept.start()
    change(state, agent, kept)
    with pytest.raises(Conflict, match=r"call restore\(\)"):
        kept.save()
    assert kept.restore()
    assert agent.plan == Planner().plan | there
    assert planned(state) == agent.plan
    assert sorted(state.get(PLAN)) == sorted(agent.plan)


@pytest.mark.parametrize(("strategy", "there"), [("ours", 4000), ("theirs", 5000)])
def test_an_item_that_only_one_side_of_a_merge_removed(
    store: sync.Store, strategy: str, there: int
) -> None:
    state, agent, other = store.agent("7"), Planner(), Planner()
    kept = attach(agent, state, fields=["plan"])
    kept.save()
    trial = attach(other, state.fork("trial"), fields=["plan"])
    trial.restore()
    other.plan["k01"] = 5000
    del other.plan["k02"]
    trial.save()
    agent.plan["k02"] = 4000
    del agent.plan["k01"]
    kept.save()
    state.merge("trial", strategy=strategy)
    assert kept.restore()
    [found] = [agent.plan[name] for name in ("k01", "k02") if name in agent.plan]
    assert found == there
    assert planned(state) == agent.plan


def test_an_item_of_a_mapping_that_a_merge_made_short(place: Place) -> None:
    """What the other side added is not lost from sight."""
    state, agent, other = place.open().agent("7"), Planner(), Planner()
    kept = attach(agent, state, fields=["plan"])
    kept.save()
    trial = attach(other, state.fork("trial"), fields=["plan"])
    trial.restore()
    other.plan = {"only": 1}
    trial.save()
    agent.plan["new"] = 2
    kept.save()
    state.merge("trial", strategy="theirs")
    assert kept.restore()
    assert agent.plan == {"only": 1, "new": 2}
    assert planned(state) == agent.plan
    assert state.get(PLAN) == agent.plan


def test_an_item_of_a_mapping_that_a_merge_made_something_else(store: sync.Store) -> None:
    state, agent, other = store.agent("7"), Planner(), Planner()
    kept = attach(agent, state, fields=["plan"])
    kept.save()
    trial = attach(other, state.fork("trial"), fields=["plan"])
    trial.restore()
    other.plan = "none"
    trial.save()
    agent.plan["new"] = 2
    kept.save()
    state.merge("trial", strategy="theirs")
    assert planned(state) == "none"


# a restore that fails


class Forgetful:
    """Its own functions fail while `bad`."""

    bad = False

    def __init__(self) -> None:
        self.memory: list[Any] = []

    def get_persistent_state(self) -> dict[str, Any]:
        return {"memory": self.memory}

    def apply_persistent_state(self, values: dict[str, Any]) -> None:
        if self.bad:
            raise ConnectionError
        self.memory = values["memory"]


def test_what_an_agent_could_not_take_up_is_not_overwritten(place: Place) -> None:
    state, agent, again = place.open().agent("7"), Forgetful(), Forgetful()
    agent.memory = [1, 2]
    attach(agent, state).save()
    kept = attach(again, state)
    again.bad = True
    for step in (kept.restore, kept.start):
        with pytest.raises(ConnectionError):
            step()
        again.memory = ["new"]
        with pytest.raises(Conflict, match="has not taken it up"):
            kept.save()
    assert state.get(f"{ATTACHED}/memory") == [1, 2]
    again.bad = False
    kept.restore()
    assert again.memory == [1, 2]
    again.memory.append(3)
    assert kept.save() is not None


async def failing_async(url: str) -> None:
    async with holdfast.open(url) as store:
        state, agent, again = store.agent("7"), Forgetful(), Forgetful()
        agent.memory = [1, 2]
        await holdfast.agents.attach(agent, state).save()
        kept = holdfast.agents.attach(again, state)
        again.bad = True
        with pytest.raises(ConnectionError):
            await kept.restore()
        with pytest.raises(Conflict, match="has not taken it up"):
            await kept.save()
        assert await state.get(f"{ATTACHED}/memory") == [1, 2]


def test_what_an_agent_could_not_take_up_is_not_overwritten_async(plain: Place) -> None:
    asyncio.run(failing_async(plain.url))


def test_a_resume_that_failed_does_not_let_the_stop_overwrite(store: sync.Store) -> None:
    class Kept(Forgetful, Agent):  # type: ignore[misc]
        pass

    state, agent, other = store.agent("7"), Kept(), Kept()
    for one in (agent, other):
        one.set_state(state)
    agent.start()
    agent.pause()
    other.restore_state()
    other.memory = [777]
    other.persist_state()
    agent.bad = True
    with pytest.raises(ConnectionError):
        agent.resume()
    with pytest.raises(Conflict):
        agent.stop()
    assert state.get(f"{ATTACHED}/memory") == [777]


def test_an_agent_that_took_up_half_is_not_saved(store: sync.Store) -> None:
    """Not even if nobody else saved since it last did."""

    class Half:
        def __init__(self) -> None:
            self.one: Any = 1
            self.full = False

        @property
        def two(self) -> Any:
            return self.__dict__.get("_two", 2)

        @two.setter
        def two(self, value: Any) -> None:
            if self.full:
                raise ConnectionError
            self._two = value

    state, agent = store.agent("7"), Half()
    kept = attach(agent, state, fields=["one", "two"])
    kept.save()
    agent.one, agent.two, agent.full = 10, 20, True
    with pytest.raises(ConnectionError):
        kept.restore()
    assert (agent.one, agent.two) == (1, 20)
    with pytest.raises(Conflict, match="has not taken it up"):
        kept.save()


def test_a_loop_whose_agent_could_not_take_up_what_another_saved(store: sync.Store) -> None:
    """It tries again; what the other saved is not overwritten."""
    state, fails = store.agent("7"), [True]

    class Worker(Forgetful):
        def apply_persistent_state(self, values: dict[str, Any]) -> None:
            if 777 in values["memory"] and fails:
                fails.pop()
                raise ConnectionError
            super().apply_persistent_state(values)

        def step(self) -> StepResult:
            self.memory.append(len(self.memory))
            if len(self.memory) == 2:
                other = Forgetful()
                kept = attach(other, state)
                kept.restore()
                other.memory = [777, 778, 779]
                kept.save()
            return StepResult("x", progress=len(self.memory), done=len(self.memory) > 4)

    worker = Worker()
    sync.agents.run(worker, state, backoff=0.001)
    assert state.get(f"{ATTACHED}/memory")[:3] == [777, 778, 779]
    assert not fails


# fields of before


class Named:
    def __init__(self) -> None:
        self.name, self.other = "precious", "stays"


def upgraded(self: Any, version: int, values: dict[str, Any]) -> dict[str, Any]:
    """Keeps what it does not know."""
    values["title"] = values.pop("name")
    return values


class Titled:
    state_version = 2
    upgrade_state = upgraded

    def __init__(self) -> None:
        self.title = ""

    def step(self) -> StepResult:
        return StepResult("x", done=True)


@dataclass
class TitledData:
    title: str = ""
    upgrade_state = upgraded


class TitledStruct(msgspec.Struct):
    title: str = ""

    def upgrade_state(self, version: int, values: dict[str, Any]) -> dict[str, Any]:
        return upgraded(self, version, values)


class TitledModel(pydantic.BaseModel):
    title: str = ""

    def upgrade_state(self, version: int, values: dict[str, Any]) -> dict[str, Any]:
        return upgraded(self, version, values)


for kind in (TitledData, TitledStruct, TitledModel):
    kind.state_version = 2  # type: ignore[attr-defined]


@pytest.mark.parametrize("kind", [Titled, TitledData, TitledStruct, TitledModel])
def test_an_upgrade_is_given_fields_that_have_another_name_today(
    store: sync.Store, kind: type[Any]
) -> None:
    """What it leaves out is gone with the next save; what it returns beside the fields stays."""
    state = store.agent("7")
    attach(Named(), state, fields=["name", "other"]).save()
    fields = ["title"] if kind is Titled else None
    for _ in range(2):
        agent = kind()
        with attach(agent, state, fields=fields):
            assert agent.title == "precious"
    assert state.keys(f"{ATTACHED}/") == [f"{ATTACHED}/other", f"{ATTACHED}/title"]
    old = Named()
    old.other, old.state_version = "", 2  # type: ignore[attr-defined]
    attach(old, state, fields=["other"]).restore()
    assert old.other == "stays"


def test_an_upgrade_in_a_loop_is_given_them_too(store: sync.Store) -> None:
    state, made = store.agent("7"), []
    attach(Named(), state, fields=["name"]).save()

    def make() -> Titled:
        made.append(Titled())
        return made[-1]

    sync.agents.run(make, state, fields=["title"])
    assert made[-1].title == "precious"
