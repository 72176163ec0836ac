"""Reading and writing one scope."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from pydantic import BaseModel
from store_kit import Place, same

from holdfast import Registry, sync
from holdfast.errors import Conflict, InvalidInputError, InvalidValueError, UnknownTypeError


@pytest.fixture
def state(store: sync.Store) -> sync.State:
    return store.agent("1")


LONG = [{"role": "user", "content": f"message {n} " * 8} for n in range(400)]


@pytest.mark.spec("L22", "L23", "L24", "L25")
def test_set_get_delete_keys(place: Place) -> None:
    state = place.open().agent("1")
    assert state.get("k") is None
    assert state.get("k", "default") == "default"
    assert state.set("k", {"a": 1}) == 1
    assert state.set("j", None) == 2
    assert state.get("k", "default") == {"a": 1}
    assert state.get("j", "default") is None, "a stored None is not an absent key"
    assert state.exists("j")
    assert state.keys() == ["j", "k"]
    assert state.delete("k") is True
    assert state.delete("k") is False
    assert not state.exists("k")
    state = place.reopen().agent("1")
    assert state.keys() == ["j"]
    assert state.get("k") is None


@pytest.mark.spec("L26")
@pytest.mark.parametrize(
    "value",
    [None, True, 0, -1, 1.5, "", "text", [], {}, [[]], {"a": {"b": [None, True, 1, 1.0, "x"]}}],
    ids=repr,
)
def test_any_json(place: Place, value: Any) -> None:
    place.open().agent("1").set("k", value)
    assert same(place.open().agent("1").get("k"), value)


def test_get_many_and_items(state: sync.State) -> None:
    for number in range(20):
        state.set(f"a/{number:02}", number)
        state.set(f"b/{number:02}", LONG[:number])
    assert state.get_many(["a/01", "missing", "b/02", "a/01"]) == {"a/01": 1, "b/02": LONG[:2]}
    assert state.items("a/1") == [(f"a/{n}", n) for n in range(10, 20)]
    assert state.items("a/", limit=2, after="a/05") == [("a/06", 6), ("a/07", 7)]
    assert state.items("c") == []


def test_keys_by_prefix_in_pages(state: sync.State) -> None:
    names = sorted([f"p/{n}" for n in range(30)] + ["o", "p", "p0", "q/1", "p/"[:1] + ".x"])
    for name in names:
        state.set(name, 1)
    assert state.keys() == names
    under = [name for name in names if name.startswith("p/")]
    assert state.keys("p/") == under
    found: list[str] = []
    while page := state.keys("p/", limit=7, after=found[-1] if found else ""):
        found += page
    assert found == under
    assert state.keys("p/", limit=0) == []
    assert state.keys("p/", after="p/29") == [name for name in under if name > "p/29"]
    assert state.keys("p/", after="a") == under
    assert state.keys("p/", after="z") == []


class Mood(enum.Enum):
    CALM = "calm"


@dataclass
class Plan:
    goal: str
    steps: list[int]


class Point(msgspec.Struct):
    x: int
    y: float = 0.5


class Model(BaseModel):
    name: str
    tags: list[str] = []


def registry() -> Registry:
    made = Registry()
    for cls in (Mood, Plan, Point, Model):
        made.register(cls, name=cls.__name__)
    return made


def test_typed_get(state: sync.State) -> None:
    state.set("plan", {"goal": "ship", "steps": [1]})
    state.set("mood", "calm")
    state.set("point", {"x": 1, "y": 2.0})
    state.set("model", {"name": "a"})
    assert state.get("plan", as_=Plan) == Plan("ship", [1])
    assert state.get("mood", as_=Mood) is Mood.CALM
    assert state.get("point", as_=Point) == Point(1, 2.0)
    assert state.get("model", as_=Model) == Model(name="a")
    assert state.get("missing", as_=Plan) is None
    with pytest.raises(InvalidValueError, match=r"^agent:1: 'model' does not fit Plan"):
        state.get("model", as_=Plan)


def test_registered_types(place: Place) -> None:
    values = [Mood.CALM, Plan("g", [1]), Point(1), Model(name="n", tags=["t"])]
    long = Plan("g", list(range(3000)))
    place.open(registry=registry()).agent("1").set("k", {"values": values, "long": long})
    found = place.open(registry=registry()).agent("1").get("k")
    assert found == {"values": values, "long": long}
    assert [type(v) for v in found["values"]] == [Mood, Plan, Point, Model]
    assert type(found["long"]) is Plan
    with pytest.raises(UnknownTypeError):
        place.open(registry=Registry()).agent("1").get("k")


def test_item(place: Place) -> None:
    store = place.open()
    state = store.agent("1")
    before = datetime.now(UTC)
    assert state.item("k") is None
    with store.acting("planner", reason="because", correlation="run"):
        version = state.set("k", LONG)
    item = place.reopen().agent("1").item("k")
    assert item is not None
    assert (item.key, item.value, item.version) == ("k", LONG, version)
    assert before <= item.time <= datetime.now(UTC)
    assert (item.cause.actor, item.cause.reason, item.cause.correlation) == (
        "planner",
        "because",
        "run",
    )
    assert item.expires is None


# ---- lists ---------------------------------------------------------------------------------


def test_append_extend_tail_slice_length(place: Place) -> None:
    state = place.open().agent("1")
    model: list[Any] = []
    assert (state.length("l"), state.tail("l", 3), state.slice("l")) == (0, [], [])
    for number in range(700):
        item = {"n": number, "text": "x" * (number % 90)}
        if number % 7 == 0:
            state.extend("l", [item, number])
            model += [item, number]
        else:
            state.append("l", item)
            model.append(item)
        if number % 50 == 0:
            assert state.length("l") == len(model)
            assert state.tail("l", 5) == model[-5:]
    for again in (
        lambda: state,
        lambda: place.open().agent("1"),
        lambda: place.reopen().agent("1"),
    ):
        seen = again()
        assert seen.get("l") == model
        assert seen.length("l") == len(model)
        assert seen.tail("l", 10_000) == model
        assert seen.tail("l", 0) == []
        for low, high in [(0, 1), (5, 300), (-3, None), (None, -790), (300, 200), (799, 900)]:
            assert seen.slice("l", low, high) == model[low:high]


def test_append_needs_a_list(state: sync.State) -> None:
    state.set("text", "abc")
    state.set("map", {"a": 1})
    state.set("long", {f"k{n}": "v" * 50 for n in range(100)})
    for key in ("text", "map", "long"):
        for call in (
            lambda key=key: state.append(key, 1),
            lambda key=key: state.tail(key, 1),
            lambda key=key: state.slice(key, 0, 1),
            lambda key=key: state.length(key),
        ):
            with pytest.raises(InvalidInputError, match="not a list"):
                call()
    with pytest.raises(InvalidInputError):
        state.tail("missing", -1)
    assert state.get("text") == "abc"
    assert state._handle.place()[2] == 3, "nothing was written"


def test_extend_by_nothing_changes_nothing(state: sync.State) -> None:
    state.set("l", [1])
    for key in ("l", "absent"):
        assert state.extend(key, []) == 1
    assert state.items() == [("l", [1])]
    assert state._handle.place()[2] == 1
    with state.change() as change:
        change.extend("l", [])
        change.set("k", 1)
    assert state.items() == [("k", 1), ("l", [1])]


def test_lists_of_every_make_grow_alike(state: sync.State) -> None:
    """A list that was set, appended to or both: the same value and the same root."""
    state.set("k", LONG[:300])
    for item in LONG[300:]:
        state.append("k", item)
    grown = state.root()
    state.set("k", LONG)
    assert state.root() == grown
    assert state.get("k") == LONG


# ---- versions ------------------------------------------------------------------------------


def test_if_version(state: sync.State) -> None:
    assert state.set("k", "a", if_version=0) == 1
    with pytest.raises(Conflict) as caught:
        state.set("k", "b", if_version=0)
    assert caught.value.keys == ("k",)
    assert state.set("other", 1) == 2
    assert state.set("k", "b", if_version=1) == 3, "other keys do not disturb"
    with pytest.raises(Conflict):
        state.set("k", "c", if_version=1)
    with pytest.raises(Conflict):
        state.delete("k", if_version=1)
    assert state.get("k") == "b"
    assert state.delete("k", if_version=3)
    assert state.set("k", "d", if_version=0) == 5
    with pytest.raises(Conflict):
        state.set("absent", 1, if_version=4)
    assert state._handle.place()[2] == 5


@pytest.mark.parametrize("bad", ["1", 1.0, -1, True])
def test_versions_are_numbers(state: sync.State, bad: Any) -> None:
    state.set("k", 1)
    with pytest.raises(InvalidInputError):
        state.set("k", 2, if_version=bad)
    with pytest.raises(InvalidInputError):
        state.delete("k", if_version=bad)
    assert state.get("k") == 1


def test_a_version_never_comes_back(place: Place) -> None:
    """A restore brings the old value back, not the old version: whoever read before it loses."""
    state = place.open().agent("1")
    state.set("k", "first")
    old = state.item("k")
    assert old is not None
    point = state.checkpoint("point")
    state.set("k", "second")
    state.restore(point)
    for seen in (state, place.open().agent("1")):
        item = seen.item("k")
        assert item is not None
        assert item.value == "first"
        assert item.version > old.version
        with pytest.raises(Conflict):
            seen.set("k", "lost update", if_version=old.version)
    assert state.set("k", "third", if_version=item.version)
    trial = state.fork("trial")
    forked = trial.item("k")
    assert forked is not None
    assert trial.set("k", "fourth", if_version=forked.version) == 2
    with pytest.raises(Conflict):
        trial.set("k", "lost", if_version=forked.version)


@pytest.mark.spec("L127")
def test_update(state: sync.State) -> None:
    assert state.update("n", lambda value: value + 1, default=0) == 1
    assert state.update("n", lambda value: value + 1) == 2
    assert state.get("n") == 2


@pytest.mark.spec("L127")
def test_update_is_tried_again_when_somebody_was_faster(place: Place) -> None:
    a, b = place.open().agent("1"), place.open().agent("1")
    a.set("n", 0)
    seen: list[int] = []

    def slow(value: int) -> int:
        seen.append(value)
        if len(seen) <= 3:
            b.update("n", lambda other: other + 10)
        return value + 1

    assert a.update("n", slow) == 31
    assert seen == [0, 10, 20, 30]
    assert b.get("n") == 31


def test_update_that_fails_changes_nothing(state: sync.State) -> None:
    state.set("n", [1])

    def broken(value: list[int]) -> None:
        value.append(2)
        raise KeyError("mine")

    with pytest.raises(KeyError):
        state.update("n", broken)
    assert state.get("n") == [1]
    assert state._handle.place()[2] == 1
