"""Classes that check themselves when they are made: what they refuse is told like all the rest."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from store_kit import Place

import holdfast
from holdfast import sync
from holdfast.agents import Component
from holdfast.errors import AgentValidationError, InvalidValueError

SECRET = "s3cr3t"
BAD = {"low": 5, "high": 1, "name": SECRET}


class Unread(Exception):
    """What a class of a user's own raises."""


def _check(one: Any) -> None:
    if one.name == "unread":
        raise Unread(SECRET)
    if one.low > one.high:
        raise ValueError(f"Expected {one.low} - at `{one.name}`")


class Range(msgspec.Struct):
    low: int = 0
    high: int = 1
    name: str = ""

    def __post_init__(self) -> None:
        _check(self)


@dataclasses.dataclass
class Data:
    low: int = 0
    high: int = 1
    name: str = ""

    def __post_init__(self) -> None:
        _check(self)


class Unchecked(msgspec.Struct):
    low: int = 0
    high: int = 1
    name: str = ""


def components(kind: Any) -> list[Component]:
    return [
        Component("record", kind, optional=True),
        Component("keyed", kind, form="keyed"),
        Component("list", kind, form="list"),
        Component("deep", dict[str, list[kind | None]]),
    ]


def refused(call: Callable[[], Any], *paths: str, kind: str = "ValueError") -> None:
    with pytest.raises(AgentValidationError) as caught:
        call()
    assert caught.value.problems == tuple(f"{path}: {kind} was raised" for path in paths)
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize("kind", [Range, Data])
@pytest.mark.parametrize(("name", "error"), [(SECRET, "ValueError"), ("unread", "Unread")])
def test_what_a_class_refuses_is_told_with_its_path(
    store: sync.Store, kind: Any, name: str, error: str
) -> None:
    bad = {**BAD, "name": name}
    typed = sync.agents.AgentState(store.agent("a"), components=components(kind))
    refused(lambda: typed.set("record", bad), "record", kind=error)
    refused(lambda: typed.put("keyed", "x", bad), "keyed.x", kind=error)
    refused(lambda: typed.set("keyed", {"x": bad}), "keyed.x", kind=error)
    refused(lambda: typed.append("list", {}, bad), "list[1]", kind=error)
    refused(lambda: typed.set("list", [bad, {}, bad]), "list[0]", "list[2]", kind=error)
    refused(lambda: typed.set("deep", {"x": [None, bad]}), "deep.x[1]", kind=error)
    changed = kind()
    changed.low = 5
    refused(lambda: typed.set("record", changed), "record")
    with pytest.raises(AgentValidationError) as caught:
        typed.set("list", [bad, {"low": "x"}])
    told = (f"list[0]: {error} was raised", "list[1].low: Expected `int`, got `str`")
    assert caught.value.problems == told
    assert typed.load() == {}


@pytest.mark.parametrize(("name", "error"), [(SECRET, "ValueError"), ("unread", "Unread")])
def test_what_is_stored_is_found_before_it_is_read(
    store: sync.Store, name: str, error: str
) -> None:
    bad = {**BAD, "name": name}
    state = store.agent("a")
    before = sync.agents.AgentState(state, components=components(Unchecked))
    before.set("record", bad)
    before.put("keyed", "x", bad)
    before.append("list", {}, bad)
    typed = sync.agents.AgentState(state, components=components(Range))
    refused(lambda: typed.get("record"), "record", kind=error)
    refused(lambda: typed.get("keyed"), "keyed.x", kind=error)
    refused(lambda: typed.item("keyed", "x"), "keyed.x", kind=error)
    refused(lambda: typed.get("list"), "list[1]", kind=error)
    refused(lambda: typed.tail("list", 1), "list[0]", kind=error)
    refused(lambda: typed.load(), "record", kind=error)
    refused(lambda: typed.validate(), "record", "keyed.x", "list[1]", kind=error)


class Agent:
    held: Data

    def __init__(self) -> None:
        self.held = Data()


def test_an_agent_whose_field_would_not_be_made_again_is_not_saved(place: Place) -> None:
    with place.open() as store:
        agent = Agent()
        keeper = sync.agents.attach(agent, store.agent("a"), fields=["held"])
        keeper.start()
        agent.held.low, agent.held.name = 9, SECRET
        refused(lambda: keeper.save(), "held")
        refused(lambda: keeper.stop(), "held")
        agent.held.low = 0
        keeper.stop()

    async def body() -> None:
        async with holdfast.open(place.url, **place.options()) as store:
            keeper = holdfast.agents.attach(agent, store.agent("a"), fields=["held"])
            await keeper.start()
            agent.held.low = 9
            for call in (keeper.save, keeper.stop):
                with pytest.raises(AgentValidationError) as caught:
                    await call()
                assert caught.value.problems == ("held: ValueError was raised",)
            agent.held.low = 0
            await keeper.stop()

    asyncio.run(body())


def test_a_value_read_as_such_a_class_repeats_nothing(store: sync.Store) -> None:
    state = store.agent("a")
    state.set("range", BAD)
    state.set("ranges", {"x": [BAD]})
    with pytest.raises(InvalidValueError) as caught:
        state.get("range", as_=Range)
    assert "ValueError was raised at $" in str(caught.value)
    assert SECRET not in str(caught.value)
    with pytest.raises(InvalidValueError) as caught:
        state.get("ranges", as_=dict[str, list[Range]])
    assert caught.value.path == "$[...][0]"
    assert SECRET not in str(caught.value)
