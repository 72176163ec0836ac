"""Any agent attaches: what it holds is saved, comes back, and its life is known."""

from __future__ import annotations

import asyncio
import math
import random
from collections import Counter, defaultdict, deque, namedtuple
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, timezone
from enum import IntEnum, StrEnum
from pathlib import Path, PurePath
from typing import Any

import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st
from store_kit import Place, rows_of, same

import holdfast
from holdfast import sync
from holdfast.agents import PersistentAgent
from holdfast.agents.agent_keys import ATTACHED
from holdfast.agents.attached import Attachment
from holdfast.errors import (
    AgentValidationError,
    Conflict,
    InvalidInputError,
    InvalidValueError,
    LimitExceededError,
    NewerFormatError,
)
from holdfast.store.inner import own_change
from holdfast.sync.agents import Agent, attach


class Plain:
    """A class that knows nothing of Holdfast."""

    def __init__(self) -> None:
        self.plan: Any = {"step": 1}
        self.log: Any = []
        self.facts: Any = {}
        self.client = object()


FIELDS = ["plan", "log", "facts"]


def held(agent: Plain) -> dict[str, Any]:
    return {name: getattr(agent, name) for name in FIELDS}


@pytest.mark.spec("M56", "M57", "M58", "M61", "M62")
def test_a_class_that_cannot_be_changed(place: Place) -> None:
    agent = Plain()
    kept = attach(agent, place.open().agent("7"), fields=FIELDS)
    assert not kept.restore()
    agent.log += [{"said": "hi"}]
    agent.facts = {f"fact {n}": n for n in range(100)}
    assert kept.save() == 1
    assert kept.save() is None
    again = Plain()
    assert attach(again, place.reopen().agent("7"), fields=FIELDS).restore()
    assert same(held(again), held(agent))


def test_only_what_differs_is_written(store: sync.Store) -> None:
    state = store.agent("7")
    agent = Plain()
    agent.facts = {f"f{n}": {"n": n} for n in range(LONG)}
    agent.log = [{"n": n} for n in range(3)]
    kept = attach(agent, state, fields=FIELDS)
    kept.save()

    def written() -> list[tuple[str, str]]:
        kept.save()
        entry = state.log(limit=1)[0]
        return sorted(key.removeprefix(ATTACHED) for key in entry.keys if key != ATTACHED)

    agent.log.append({"n": 3})
    assert written() == ["/log"]
    agent.facts["f5"]["n"] = 50
    assert written() == ["/facts"]
    agent.facts["new"] = 1
    del agent.facts["f0"]
    assert written() == ["/facts"]
    agent.plan["step"] = 2
    assert written() == ["/plan"]
    agent.log[0]["n"] = 9
    assert written() == ["/log"]
    agent.log[1]["n"] = 8  # as long as before, when it is encoded
    agent.log.append({"n": 4})
    assert written() == ["/log"]
    again = Plain()
    attach(again, state, fields=FIELDS).restore()
    assert same(held(again), held(agent))


LONG = 32
"""Items of a long mapping."""
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False)
    | st.text(max_size=5)
    | st.binary(max_size=5)
    | st.datetimes(timezones=st.just(UTC)),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=5,
)
WIDE = st.dictionaries(st.text(max_size=4), VALUES, min_size=LONG, max_size=LONG + 4)


@given(st.lists(st.tuples(VALUES, st.lists(VALUES, max_size=20), VALUES | WIDE), max_size=4))
def test_what_is_saved_is_what_comes_back(turns: list[tuple[Any, Any, Any]]) -> None:
    with sync.open("memory:") as store:
        state = store.agent("7")
        agent = Plain()
        kept = attach(agent, state, fields=FIELDS)
        kept.save()
        for plan, log, facts in turns:
            agent.plan, agent.facts = plan, facts
            agent.log = agent.log + log if isinstance(plan, bool) else log
            kept.save()
            again = Plain()
            attach(again, state, fields=FIELDS).restore()
            assert same(held(again), held(agent))
        assert state.keys() == []


def test_long_lists_that_grow(store: sync.Store) -> None:
    """Around the lengths at which an encoded list has another head."""
    state = store.agent("7")
    agent = Plain()
    kept = attach(agent, state, fields=FIELDS)
    for length in (14, 15, 16, 17, 65_534, 65_536, 65_540):
        agent.log += [0] * (length - len(agent.log))
        kept.save()
        assert state.length(ATTACHED + "/log") == length
        if length > 14:
            assert state.log(limit=1)[0].kinds[0] == "append"
    assert state.get(ATTACHED + "/log") == agent.log


class Mood(msgspec.Struct):
    name: str
    seen: set[str] = set()


class Model(pydantic.BaseModel):
    size: int = 1


@dataclass
class Typed:
    mood: Mood
    at: tuple[int, int] = (0, 0)
    models: list[Model] = field(default_factory=list)
    by_name: dict[str, Mood] = field(default_factory=dict)
    when: datetime | None = None
    share: float = 0.5
    anything: Any = None


def test_fields_with_types_come_back_as_such(store: sync.Store) -> None:
    agent = Typed(Mood("calm", {"a"}), (1, 2), [Model(size=3)], {"x": Mood("y")})
    agent.when = datetime(2026, 5, 1, 12, tzinfo=timezone(timedelta(hours=2)))
    kept = attach(agent, store.agent("7"))
    kept.save()
    agent.models.append(Model(size=4))
    agent.share = math.nan
    agent.by_name |= {str(n): Mood("z") for n in range(LONG)}
    kept.save()
    again = Typed(Mood(""))
    attach(again, store.agent("7")).restore()
    assert math.isnan(again.share)
    agent.share = again.share = 0.0
    assert again == agent
    assert again.when.utcoffset() == timedelta(hours=2)
    agent.anything = (1, 2)
    with pytest.raises(InvalidValueError, match="tuple"):
        kept.save()
    agent.anything = None
    agent.at = [5, 6]  # type: ignore[assignment]
    with pytest.raises(AgentValidationError, match="'at' would not come back"):
        kept.save()
    agent.at = (3, 4)
    kept.save()


class Other:
    """Fields of types that msgspec does not know."""

    value: Any

    def __init__(self, value: Any) -> None:
        self.value = value


@pytest.mark.parametrize(
    ("hint", "value"),
    [
        (PurePath, PurePath("/a")),
        (list[PurePath], [PurePath("/a")]),
        (deque, deque([1])),
        (complex, 1j),
        (range, range(3)),
        (Callable, print),
        (dict[str, int], {1: 2}),
        (dict[str, set[PurePath]], {"a": {PurePath("/a")}}),
    ],
)
def test_a_type_that_cannot_be_stored_is_refused(store: sync.Store, hint: Any, value: Any) -> None:
    kind = type("Kind", (Other,), {"__annotations__": {"value": hint}})
    with pytest.raises(AgentValidationError, match="would not come back as it is; value"):
        attach(kind(value), store.agent("7"), fields=["value"]).save()
    assert store.agent("7").keys("$agent/") == []


class Color(StrEnum):
    RED = "red"


class Number(IntEnum):
    ONE = 1


class Items(list[Any]):
    pass


Pair = namedtuple("Pair", ["a", "b"])


@dataclass
class Bag:
    things: list[Any]


@pytest.mark.parametrize(
    ("hint", "value", "told"),
    [
        (dict, defaultdict(int, a=1), "value: a defaultdict would come back as dict"),
        (dict[str, int], Counter("a"), "value: a Counter would come back as dict"),
        (list[dict[str, int]], [Counter("a")], "value[0]: a Counter would come back as dict"),
        (list[int], Items([1]), "value: a Items would come back as list"),
        (tuple[int, ...], Pair(1, 2), "value: a Pair would come back as tuple"),
        (list, [Color.RED], "value[0]: a Color would come back as str"),
        (dict[str, Any], {"a": [Number.ONE]}, "value.a[0]: a Number would come back as int"),
        (dict[Any, int], {Color.RED: 1}, "value (a key): a Color would come back as str"),
        (set[Any], {Color.RED}, "value (an item): a Color would come back as str"),
        (Bag, Bag([Color.RED]), "value.things[0]: a Color would come back as str"),
    ],
)
def test_what_is_equal_and_of_another_type_is_refused(
    store: sync.Store, hint: Any, value: Any, told: str
) -> None:
    """Where it would come back as what its type is built from, and equal to that."""
    kind = type("Kind", (Other,), {"__annotations__": {"value": hint}})
    with pytest.raises(AgentValidationError) as caught:
        attach(kind(value), store.agent("7"), fields=["value"]).save()
    assert caught.value.problems == (told,)
    assert store.agent("7").keys("$agent/") == []


@pytest.mark.parametrize(
    ("hint", "value"),
    [
        (dict[Color, list[Number]], {Color.RED: [Number.ONE]}),
        (frozenset[Color], frozenset({Color.RED})),
        (list[float], [1, 0.5]),
        (set[float], {1, 0.5}),
        (dict[int, str], {1: "a"}),
    ],
)
def test_what_the_type_names_comes_back(store: sync.Store, hint: Any, value: Any) -> None:
    kind = type("Kind", (Other,), {"__annotations__": {"value": hint}})
    attach(kind(value), store.agent("7"), fields=["value"]).save()
    again = kind(None)
    attach(again, store.agent("7"), fields=["value"]).restore()
    assert again.value == value


@pytest.mark.parametrize("hint", [Any, list, list[Any], list[list[Any]]])
def test_what_contains_itself_is_refused(store: sync.Store, hint: Any) -> None:
    kind = type("Kind", (Other,), {"__annotations__": {"value": hint}})
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises((LimitExceededError, AgentValidationError), match="contains itself"):
        attach(kind(endless), store.agent("7"), fields=["value"]).save()


class Free:
    """Keeps whatever mapping it holds."""

    def __init__(self, values: dict[str, Any] | None = None) -> None:
        self.values = values or {}

    def get_persistent_state(self) -> dict[str, Any]:
        return self.values

    def apply_persistent_state(self, values: dict[str, Any]) -> None:
        self.values = values


def test_a_name_with_a_slash_is_no_item_of_another_field(store: sync.Store) -> None:
    values = {"docs": {f"n{n}": n for n in range(LONG)}, "docs/n3": "other", "docs%2Fn3": 1}
    values |= {"a/": 1, "/a": 2}
    agent = Free(values)
    kept = attach(agent, store.agent("7"))
    kept.save()
    again = Free()
    attach(again, store.agent("7")).restore()
    assert again.values == values
    del values["docs/n3"]
    kept.save()
    attach(again, store.agent("7")).restore()
    assert again.values == values


@pytest.mark.parametrize("name", ["", "a\nb", "..", "x" * 600, "e\u0301", 5])
def test_names_that_no_field_can_have(store: sync.Store, name: Any) -> None:
    with pytest.raises(InvalidInputError, match="name of a field"):
        attach(Free({name: 1}), store.agent("7")).save()


@pytest.mark.spec("M48", "M59", "M60", "M63", "M64")
def test_an_agent_that_says_itself_what_it_keeps(place: Place) -> None:
    class Own:
        def __init__(self) -> None:
            self.n = 0
            self.told: list[str] = []

        def get_persistent_state(self) -> dict[str, Any]:
            return {"n": self.n}

        def apply_persistent_state(self, values: dict[str, Any]) -> None:
            self.n = values["n"]

        def validate_state(self) -> list[str]:
            return ["n: is below 0"] if self.n < 0 else []

        def handle_recovery(self) -> None:
            self.told.append("recovered")
            self.n += 100

    assert isinstance(Own(), PersistentAgent)
    agent = Own()
    kept = attach(agent, place.open().agent("7"))
    assert not kept.start()
    agent.n = -1
    with pytest.raises(AgentValidationError, match="n: is below 0"):
        kept.save()
    agent.n = 5
    kept.save()
    agent.n = 6  # and then its process ends
    again = Own()
    kept = attach(again, place.reopen().agent("7"))
    assert kept.start()
    assert (again.n, again.told) == (105, ["recovered"])
    life = kept.life()
    assert (life.status, life.starts, life.recoveries) == ("running", 2, 1)
    kept.stop()
    third = Own()
    attach(third, place.reopen().agent("7")).start()
    assert (third.n, third.told) == (105, [])


@pytest.mark.spec("L47", "L48", "L49", "L50")
def test_an_agent_tells_what_is_kept_and_takes_it_up_again(place: Place) -> None:
    """Catches: a save that does not ask `get_persistent_state`, or does so for another agent; a
    restore that sets attributes in place of calling `apply_persistent_state`."""

    class Planner:
        def __init__(self) -> None:
            self.talk: list[str] = []
            self.calls: list[str] = []

        def get_persistent_state(self) -> dict[str, Any]:
            self.calls.append("get")
            return {"conversation_history": list(self.talk), "words": sum(map(len, self.talk))}

        def apply_persistent_state(self, values: dict[str, Any]) -> None:
            self.calls.append("apply")
            assert values.pop("words") == sum(map(len, values["conversation_history"]))
            self.talk = values["conversation_history"]

    class Half:
        def get_persistent_state(self) -> dict[str, Any]:
            return {}

    store = place.open()
    for id_, said in (("7", ["hello"]), ("8", ["good", "bye"])):
        agent = Planner()
        assert isinstance(agent, PersistentAgent)
        kept = attach(agent, store.agent(id_))
        assert kept.agent_id == id_
        assert not kept.restore()
        agent.talk += said
        kept.save()
        assert "get" in agent.calls
    assert not isinstance(Half(), PersistentAgent)
    with pytest.raises(InvalidInputError, match="apply_persistent_state"):
        attach(Half(), store.agent("9"))
    store = place.reopen()
    for id_, said in (("7", ["hello"]), ("8", ["good", "bye"])):
        again = Planner()
        kept = attach(again, store.agent(id_))
        assert (kept.restore(), kept.agent_id) == (True, id_)
        assert again.talk == said
        assert again.calls.count("apply") == 1
        assert not hasattr(again, "words")


class Greeter(Agent):
    persistent = ("greeted", "mood")

    def __init__(self) -> None:
        self.greeted: list[str] = []
        self.mood = "calm"

    def greet(self, name: str) -> None:
        self.greeted.append(name)


@pytest.mark.spec("L62", "L63", "L64", "L65", "L66")
def test_the_life_of_an_agent(place: Place) -> None:
    store = place.open()
    agent = Greeter()
    with pytest.raises(InvalidInputError, match="set_state"):
        agent.start()
    agent.set_state(store.agent("7"))
    assert not agent.start()
    agent.greet("ann")
    agent.pause()
    assert store.agent("7").get(f"{ATTACHED}/greeted") == ["ann"]
    agent.greet("lost")
    agent.resume()  # what is stored counts
    assert agent.greeted == ["ann"]
    agent.greet("bob")
    agent.stop()
    again = Greeter()
    again.set_state(place.reopen().agent("7"))
    assert again.start()
    assert again.greeted == ["ann", "bob"]
    again.greet("cy")
    again.persist_state()
    again.greeted = []
    assert again.restore_state()
    assert again.greeted == ["ann", "bob", "cy"]
    again.kept.pause()
    other = Greeter()
    other.set_state(place.reopen().agent("7"))
    other.resume()
    assert other.greeted == ["ann", "bob", "cy"]
    assert other.kept.life().status == "running"


def test_steps_that_cannot_be_taken(store: sync.Store) -> None:
    agent = Greeter()
    agent.set_state(store.agent("7"))
    for step in (agent.pause, agent.resume, agent.stop):
        with pytest.raises(InvalidInputError, match="not possible"):
            step()
    agent.start()
    with pytest.raises(InvalidInputError, match="start is not possible, the agent is running"):
        agent.start()
    agent.pause()
    with pytest.raises(InvalidInputError):
        agent.pause()
    agent.stop()
    agent.start()


def test_an_error_ends_the_run_and_the_last_save_stands(store: sync.Store) -> None:
    agent = Greeter()
    with pytest.raises(ZeroDivisionError), attach(agent, store.agent("7")) as kept:
        agent.greet("ann")
        kept.save()
        agent.greet("half")
        raise ZeroDivisionError
    life = kept.life()
    assert (life.status, life.error) == ("failed", "ZeroDivisionError")
    again = Greeter()
    with attach(again, store.agent("7")) as kept:
        assert again.greeted == ["ann"]
    assert kept.life().status == "stopped"


def test_what_somebody_else_changed_is_not_overwritten(place: Place) -> None:
    mine, theirs = Plain(), Plain()
    first = attach(mine, place.open().agent("7"), fields=FIELDS)
    first.save()
    safe = place.open().agent("7").checkpoint()
    second = attach(theirs, place.open().agent("7"), fields=FIELDS)
    with pytest.raises(Conflict, match="has not taken it up"):
        second.save()
    second.restore()
    theirs.plan = "theirs"
    second.save()
    mine.log.append(1)
    with pytest.raises(Conflict, match=r"call restore\(\)"):
        first.save()
    first.restore()
    assert (mine.plan, mine.log) == ("theirs", [])
    mine.log.append(1)
    first.save()
    place.open().agent("7").restore(safe)
    mine.log.append(2)
    with pytest.raises(Conflict, match="a restore"):
        first.save()
    third = attach(Plain(), place.open().agent("7"), fields=FIELDS)
    third.agent.plan = "new"
    third.save(replace=True)
    first.restore()
    assert held(mine) == {"plan": "new", "log": [], "facts": {}}


def test_who_is_overtaken_between_look_and_commit_is_told_what_to_do(
    store: sync.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not to read a key again that agents do not read themselves."""
    mine, theirs = Plain(), Plain()
    first, second = (attach(one, store.agent("7"), fields=FIELDS) for one in (mine, theirs))
    first.save()
    second.restore()
    plan = Attachment.planned

    def planned(self: Attachment, *given: Any) -> Any:
        found = yield from plan(self, *given)
        if self.obj is mine:
            theirs.plan = "theirs"
            second.save()
        return found

    monkeypatch.setattr(Attachment, "planned", planned)
    mine.log.append(1)
    with pytest.raises(Conflict, match=r"call restore\(\)"):
        first.save()
    assert first.restore()
    assert (mine.plan, mine.log) == ("theirs", [])


@pytest.mark.parametrize("size", [2, LONG + 8])
def test_a_restore_of_one_field_is_noticed_by_who_keeps_the_agent(
    store: sync.Store, size: int
) -> None:
    state, agent = store.agent("7"), Plain()
    kept = attach(agent, state, fields=["plan", "log"])
    agent.plan, agent.log = {f"k{number}": 0 for number in range(size)}, ["a"]
    kept.start()
    state.checkpoint("then")
    agent.plan["k0"] = 1
    kept.save()
    sync.checkpoints.Checkpoints(state).restore("then", prefixes=[f"{ATTACHED}/plan"])
    agent.log.append("b")
    with pytest.raises(Conflict, match="a restore"):
        kept.save()
    assert kept.restore()
    assert (agent.plan["k0"], agent.log) == (0, ["a"])
    agent.log.append("b")
    kept.save()
    again = Plain()
    attach(again, state, fields=["plan", "log"]).start()
    assert (again.plan, again.log) == (agent.plan, ["a", "b"])


def put_back(state: sync.State, *keys: str) -> None:
    """As a recovery does with damaged keys: they are what they were at a checkpoint."""
    parts, then = own_change(state), state.at("then")
    part = parts.part(state._handle)
    for key in keys:
        if then.exists(key):
            part.set(key, then.get(key))
        else:
            part.delete(key)
    state._run(parts.plan())


@pytest.mark.parametrize("names", [["b", "a"], None])
def test_a_mapping_whose_items_lie_apart_becomes_one_value(
    store: sync.Store, names: list[str] | None
) -> None:
    """As an earlier version kept long ones; the names of one may be those of another state."""
    state, agent = store.agent("7"), Plain()
    parts = own_change(state)
    part = parts.part(state._handle)
    part.set(ATTACHED, {"fields": ["plan", "log"], "apart": ["plan"], "version": 1, "saves": 1})
    part.set(f"{ATTACHED}/log", ["x"])
    for key, value in {"plan/a": 1, "plan/b": 2, **({"plan": names} if names else {})}.items():
        part.set(f"{ATTACHED}/{key}", value)
    state._run(parts.plan())
    kept = attach(agent, state, fields=["plan", "log"])
    assert kept.restore()
    assert (list(agent.plan.items()), agent.log) == (
        [("b", 2), ("a", 1)] if names else [("a", 1), ("b", 2)],
        ["x"],
    )
    kept.save()
    assert state.get(f"{ATTACHED}/plan") == {"a": 1, "b": 2}
    assert state.keys(f"{ATTACHED}/") == [f"{ATTACHED}/log", f"{ATTACHED}/plan"]
    again = Plain()
    attach(again, state, fields=["plan", "log"]).restore()
    assert again.plan == agent.plan
    assert kept.save() is None


def test_a_field_that_is_gone_stays_what_the_agent_begins_with(store: sync.Store) -> None:
    state, agent, again = store.agent("7"), Plain(), Plain()
    agent.plan, agent.log = {"step": 2}, ["a"]
    state.set("k", 1)
    state.checkpoint("then")
    attach(agent, state, fields=FIELDS).save()
    put_back(state, f"{ATTACHED}/plan")
    kept = attach(again, state, fields=FIELDS)
    assert kept.restore()
    assert (again.plan, again.log) == (Plain().plan, ["a"])
    kept.save()
    assert state.get(f"{ATTACHED}/plan") == Plain().plan


@pytest.mark.parametrize("strategy", ["ours", "theirs"])
def test_a_mapping_that_grew_on_both_sides_of_a_merge(store: sync.Store, strategy: str) -> None:
    state, agent, other = store.agent("7"), Plain(), Plain()
    kept = attach(agent, state, fields=FIELDS)
    agent.plan = {f"k{number}": 0 for number in range(LONG)}
    kept.save()
    trial = attach(other, state.fork("trial"), fields=FIELDS)
    trial.restore()
    other.plan |= {"theirs": 1, "more": 1}
    trial.save()
    agent.plan["ours"] = 1
    agent.plan.pop("k0")
    kept.save()
    state.merge("trial", strategy=strategy)
    assert kept.restore()
    assert strategy in agent.plan


@pytest.mark.parametrize("size", [2, LONG + 8])
def test_a_merge_is_noticed_by_who_keeps_the_agent(store: sync.Store, size: int) -> None:
    """Also if both lines were saved equally often, so that the first key is the same on both."""
    state, agent, other = store.agent("7"), Plain(), Plain()
    kept = attach(agent, state, fields=FIELDS)
    agent.plan, agent.log = {f"k{number}": 0 for number in range(size)}, ["a"]
    kept.save()
    trial = attach(other, state.fork("trial"), fields=FIELDS)
    trial.restore()
    other.plan["k0"] = 1
    other.log.append("of the fork")
    trial.save()
    agent.facts = {"of": "main"}
    kept.save()
    done = state.merge("trial")
    assert ATTACHED not in done.keys, "told are those that are another now"
    agent.log.append("b")
    with pytest.raises(Conflict, match="a merge"):
        kept.save()
    assert kept.restore()
    assert (agent.plan["k0"], agent.log) == (1, ["a", "of the fork"])
    assert agent.facts == {"of": "main"}
    agent.log.append("b")
    kept.save()
    assert state.get(f"{ATTACHED}/log") == ["a", "of the fork", "b"]


def test_a_revert_is_noticed_by_who_keeps_the_agent(store: sync.Store) -> None:
    state, agent = store.agent("7"), Plain()
    kept = attach(agent, state, fields=FIELDS)
    kept.save()
    agent.plan = {"step": 2}
    wrong = kept.save()
    agent.log.append("later")
    kept.save()
    done = state.revert(entries=[wrong])
    assert done.done == [f"{ATTACHED}/plan"]
    agent.log.append("more")
    with pytest.raises(Conflict, match="a revert"):
        kept.save()
    assert kept.restore()
    assert held(agent) == {"plan": {"step": 1}, "log": ["later"], "facts": {}}
    agent.log.append("more")
    kept.save()


def test_versions_of_a_class(store: sync.Store) -> None:
    class Old:
        words = "a b"

    class New:
        state_version = 2
        words: Any = ()

        def upgrade_state(self, version: int, values: dict[str, Any]) -> dict[str, Any]:
            return {"words": values["words"].split()}

    attach(Old(), store.agent("7"), fields=["words"]).save()
    new = New()
    kept = attach(new, store.agent("7"), fields=["words"])
    kept.start()
    assert new.words == ["a", "b"]
    assert store.agent("7").get(f"{ATTACHED}/words") == ["a", "b"]
    third = New()
    attach(third, store.agent("7"), fields=["words"]).restore()
    assert third.words == ["a", "b"]
    with pytest.raises(NewerFormatError, match="update it"):
        attach(Old(), store.agent("7"), fields=["words"]).restore()


def test_other_fields_stay_when_some_are_named(store: sync.Store) -> None:
    agent = Plain()
    agent.facts = {f"f{n}": n for n in range(LONG)}
    attach(agent, store.agent("7"), fields=FIELDS).save()
    less = Plain()
    kept = attach(less, store.agent("7"), fields=["plan"])
    kept.restore()
    assert less.facts == {}
    less.plan = 2
    kept.save()
    attach(less, store.agent("7"), fields=FIELDS).restore()
    assert (less.plan, less.facts) == (2, agent.facts)


def test_making_things_touches_nothing(store: sync.Store) -> None:
    state = store.agent("7")
    typed = sync.agents.AgentState(state)
    kept = attach(Plain(), state, fields=FIELDS)
    agents = sync.agents.Agents(store)
    assert typed.get("tasks").tasks() == []
    assert (typed.load(), typed.problems(), typed.persisted()) == ({}, [], None)
    assert not kept.restore()
    assert (kept.life().status, agents.list(), agents.running()) == ("created", [], {})
    assert state._handle.place()[2] == 0
    assert store.scopes().items == []


def test_what_cannot_be_attached(store: sync.Store) -> None:
    with pytest.raises(InvalidInputError, match=r"say what is kept of Plain: attach\("):
        attach(Plain(), store.agent("7"))
    with pytest.raises(InvalidInputError, match="several names"):
        attach(Plain(), store.agent("7"), fields="plan")
    with pytest.raises(InvalidInputError, match="has no nope"):
        attach(Plain(), store.agent("7"), fields=["nope"]).save()
    with pytest.raises(InvalidInputError, match="a state of the same face"):
        attach(Plain(), store)  # type: ignore[arg-type]
    with pytest.raises(InvalidValueError):
        attach(Plain(), store.agent("7"), fields=["client"]).save()
    assert not store.agent("7").exists(ATTACHED)


def test_a_lost_lease_ends_saving(plain: Place) -> None:
    store = plain.open()
    agent = Plain()
    with store.lease("agents/7") as lease:
        kept = attach(agent, store.agent("7"), fields=FIELDS, lease=lease)
        kept.start()
        plain.open().break_lease("agents/7")
        agent.plan = "late"
        with pytest.raises(holdfast.HoldfastError, match="lost"):
            kept.save()
    assert store.agent("7").get(f"{ATTACHED}/plan") == {"step": 1}


def test_the_async_face(place: Place) -> None:
    class Slow:
        def __init__(self) -> None:
            self.n = 0
            self.told: list[str] = []

        async def get_persistent_state(self) -> dict[str, Any]:
            await asyncio.sleep(0)
            return {"n": self.n}

        async def apply_persistent_state(self, values: dict[str, Any]) -> None:
            await asyncio.sleep(0)
            self.n = values["n"]

        async def validate_state(self) -> None:
            if self.n < 0:
                raise ValueError("secret")

        async def handle_recovery(self) -> None:
            self.told.append("recovered")

    class Talker(holdfast.agents.Agent):
        persistent = ("lines",)

        def __init__(self) -> None:
            self.lines: list[str] = []

        def handle_recovery(self) -> None:  # type: ignore[override]
            self.lines.append("recovered")

    async def main() -> None:
        async with holdfast.open(place.url, **place.options()) as store:
            agent = Slow()
            kept = holdfast.agents.attach(agent, store.agent("7"))
            assert not await kept.restore()
            assert not await kept.start()
            agent.n = -1
            with pytest.raises(AgentValidationError, match=r"validate_state raised ValueError$"):
                await kept.save()
            agent.n = 3
            await kept.save()
            async with holdfast.agents.attach(Slow(), store.agent("7")) as other:
                assert (other.agent.n, other.agent.told) == (3, ["recovered"])
                await other.pause()
                await other.resume()
            assert (await other.life()).status == "stopped"
            with pytest.raises(Conflict):
                await kept.save()
            await kept.save(replace=True)
            with pytest.raises(KeyError):
                async with holdfast.agents.attach(Slow(), store.agent("7")):
                    raise KeyError
            assert (await other.life()).error == "KeyError"

            talker = Talker()
            talker.set_state(store.agent("8"))
            assert not await talker.start()
            talker.lines.append("hi")
            await talker.persist_state()
            again = Talker()
            again.set_state(store.agent("8"))
            assert await again.start()
            assert again.lines == ["hi", "recovered"]
            await again.pause()
            await again.resume()
            await again.stop()

    asyncio.run(main())


@pytest.mark.parametrize("name", ["Attached", "Agent"])
def test_both_faces_are_equal(name: str) -> None:
    mine, theirs = vars(getattr(sync.agents, name)), vars(getattr(holdfast.agents, name))
    plain = {one for one in mine if not one.startswith("_")}
    assert plain == {one for one in theirs if not one.startswith("_")}
    for one in plain:
        assert getattr(mine[one], "__doc__", "") == getattr(theirs[one], "__doc__", ""), one


def test_a_save_is_whole_or_not_at_all(place: Place) -> None:
    """Every save is one entry: at any entry, the fields belong together."""
    state = place.open().agent("7")
    agent = Plain()
    kept = attach(agent, state, fields=FIELDS)
    turns = random.Random(3)
    for turn in range(20):
        agent.plan = turn
        agent.log = [*agent.log, turn] if turns.random() < 0.7 else [turn]
        agent.facts = {str(n): turn for n in range(turns.randrange(2 * LONG))}
        kept.save()
    for entry in range(1, state._handle.place()[2] + 1):
        view = state.at(entry)
        again = Plain()
        with pytest.raises(InvalidInputError):
            attach(again, view, fields=FIELDS)  # type: ignore[arg-type]
        turn = view.get(f"{ATTACHED}/plan")
        assert view.tail(f"{ATTACHED}/log", 1) == [turn]
        assert set(view.get(f"{ATTACHED}/facts").values()) <= {turn}


def test_a_field_that_is_sensitive_by_its_name_is_treated_so(tmp_path: Path) -> None:
    place = Place("sqlite", tmp_path, sealed=True)
    state = place.open().agent("7")

    class Night(holdfast.Gate):
        def reading(self, reading: Any) -> None:
            raise holdfast.errors.GateRefusedError("nobody reads secrets at night")

    def stored(token: str) -> list[int]:
        known = dict(rows_of(place.storage(), b"E"))
        attach(Free({"api_token": token}), state).save(replace=True)
        return [len(row) for key, row in rows_of(place.storage(), b"E") if key not in known]

    stored("")
    assert stored("a" * 30) == stored("b" * 70), "padded"
    state.set("plain", 1)
    assert str(state.diff(1)).count("<sensitive>") == 2
    store = place.open()
    store.add_gate(Night())
    with pytest.raises(holdfast.errors.GateRefusedError):
        attach(Free(), store.agent("7")).restore()
    place.close()


def test_what_cannot_be_stored_is_told_with_its_field(store: sync.Store) -> None:
    with pytest.raises(InvalidValueError) as caught:
        attach(Plain(), store.agent("7"), fields=["plan", "client"]).save()
    assert str(caught.value).startswith("agent:7: '$agent/attached/client' cannot take this value")
    assert store.agent("7").keys("$agent/") == [], "nothing of it is stored"


def test_what_could_not_be_given_back_is_not_attached(store: sync.Store) -> None:
    @dataclass(frozen=True)
    class Frozen:
        count: int = 0

    class FrozenStruct(msgspec.Struct, frozen=True):
        count: int = 0

    class FrozenModel(pydantic.BaseModel, frozen=True):
        count: int = 0

    for made in (Frozen(), FrozenStruct(), FrozenModel()):
        with pytest.raises(InvalidInputError, match="whose fields cannot be set"):
            attach(made, store.agent("7"))
        with pytest.raises(InvalidInputError, match="whose fields cannot be set"):
            attach(made, store.agent("7"), fields=["count"])


def test_a_property_that_cannot_be_set_is_refused_before_anything_is_saved(
    store: sync.Store,
) -> None:
    class Derived:
        def __init__(self) -> None:
            self.parts = [1]

        @property
        def total(self) -> int:
            return sum(self.parts)

        @property
        def first(self) -> int:
            return self.parts[0]

        @first.setter
        def first(self, value: int) -> None:
            self.parts[0] = value

    state = store.agent("7")
    with pytest.raises(InvalidInputError, match="total of Derived is a property"):
        sync.agents.attach(Derived(), state, fields=["parts", "total"])
    sync.agents.attach(Derived(), state, fields=["first"]).start()
