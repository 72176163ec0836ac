"""What differs between two points, as data and for people."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from typing import Any

import pytest
from store_kit import Place

import holdfast
from holdfast import Registry, ValueLimits, sync
from holdfast.errors import MergeConflictError, UnknownTypeError

LONG = [{"n": n, "text": "x" * 50} for n in range(300)]


@pytest.fixture
def state(store: sync.Store) -> sync.State:
    return store.agent("1")


def test_diff_is_nested(state: sync.State) -> None:
    state.set("plan", {"goal": "ship", "steps": [{"done": False}, {"done": False}], "n": 1})
    state.set("old", [1, 2, 3])
    state.set("same", LONG)
    point = state.checkpoint()
    state.set("plan", {"goal": "ship", "steps": [{"done": True}, {"done": False}], "n": 1.0})
    state.delete("old")
    state.set("new", {"a": 1})
    diff = state.diff(point)
    assert diff
    assert len(diff) == 4
    assert diff.keys == ["new", "old", "plan"]
    assert {(d.path, d.kind) for d in diff} == {
        ("new", "added"),
        ("old", "removed"),
        ("plan.steps[0].done", "changed"),
        ("plan.n", "changed"),
    }
    by_path = {d.path: d for d in diff}
    assert (by_path["plan.n"].before, by_path["plan.n"].after) == (1, 1.0)
    assert by_path["old"].before == [1, 2, 3]
    text = str(diff)
    assert re.match(r"--- main@4\n\+\+\+ main@7\n", text)
    assert "+ new: {'a': 1}" in text
    assert "- old: [1, 2, 3]" in text
    assert "~ plan.steps[0].done: False → True" in text
    back = state.diff(state, point)
    assert {(d.path, d.kind) for d in back} >= {("new", "removed"), ("old", "added")}
    assert not state.diff(point, "main@3")
    assert not state.diff(state)
    assert str(state.diff(state)).count("\n") == 1


def test_diff_inside_long_lists(state: sync.State) -> None:
    state.set("k", LONG)
    changed = [*LONG[:100], {"n": -1}, *LONG[100:200], *LONG[201:]]
    state.set("k", changed)
    found = [(d.path, d.kind) for d in state.diff(1)]
    assert found == [("k[100]", "added"), ("k[200]", "removed")]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        (1, True),
        (0.0, -0.0),
        ([1], [1.0]),
        (
            datetime(2024, 1, 1, 12, tzinfo=UTC),
            datetime.fromisoformat("2024-01-01T13:00+01:00"),
        ),
        (
            [{"t": datetime(2024, 1, 1, tzinfo=UTC)}],
            [{"t": datetime.fromisoformat("2024-01-01T01:00+01:00")}],
        ),
        ({1: "a"}, {"1": "a"}),
        (None, []),
        ("", b""),
    ],
    ids=repr,
)
def test_what_is_equal_in_python_may_still_differ(
    state: sync.State, before: Any, after: Any
) -> None:
    """States with different roots are never said to be the same."""
    state.set("k", before)
    first = state.root()
    state.set("k", after)
    assert state.root() != first
    assert state.diff(1)
    assert state.diff(1).keys == ["k"]


def test_a_diff_is_bounded(state: sync.State) -> None:
    state.set("k", list(range(5000)))
    state.set("k", [n + 0.5 for n in range(5000)])
    diff = state.diff(1)
    assert len(diff.changes) == 1000
    assert len(diff) == 5000
    assert "4000 more" in str(diff)
    state.set("t", "x" * 5000)
    assert all(len(line) < 200 for line in str(state.diff(2)).splitlines())


def test_all_keys_that_differ_are_named(state: sync.State) -> None:
    state.set("long", list(range(2000)))
    state.set("same", 1)
    point = state.checkpoint()
    names = [f"k{n:04}" for n in range(1500)]
    with state.change() as change:
        change.set("long", [n + 0.5 for n in range(2000)])
        change.set("same", 1)
        for name in names:
            change.set(name, 1)
    diff = state.diff(point)
    assert diff.keys == [*names, "long"]
    assert len(diff.changes) == 1000
    assert len(diff) == 1501
    assert set(state.restore(point, dry_run=True).diff.keys) == {*names, "long"}


def test_the_order_is_told_beside_what_changed(state: sync.State) -> None:
    state.set("k", {"in": {"a": 1, "b": 2, "c": 3}})
    state.set("k", {"in": {"b": 2, "d": 4, "a": 9}})
    assert [(one.path, one.kind) for one in state.diff(1)] == [
        ("k.in.a", "changed"),
        ("k.in.c", "removed"),
        ("k.in.d", "added"),
        ("k.in", "changed"),
    ]
    assert list(state.diff(1).changes[-1].after) == ["b", "d", "a"]
    state.set("k", {"in": {"b": 2, "e": 4, "a": 9}})
    assert [one.path for one in state.diff(2)] == ["k.in.d", "k.in.e"]


def test_long_texts_are_shown_where_they_differ(store: sync.Store) -> None:
    state, head = store.agent("a"), "a careful assistant that answers questions about the sea. " * 3
    state.set("text", f"{head}Always ask.")
    state.set("bytes", bytes(200) + b"a")
    state.set("messages", [{"content": f"{head}one"}])
    point = state._handle.place()[2]
    state.set("text", f"{head}Never ask.")
    state.set("bytes", bytes(200) + b"b")
    state.set("messages", [{"content": f"{head}two"}])
    found = str(state.diff(point))
    assert "Always ask.' → …" in found
    assert "Never ask.'" in found
    assert "\\x00a' → …" in found
    assert "one' → …" in found
    assert max(map(len, found.splitlines())) < 200
    trial = state.fork("trial")
    trial.set("text", f"{head}Ask theirs.")
    state.set("text", f"{head}Ask ours.")
    with pytest.raises(MergeConflictError) as refused:
        state.merge("trial")
    told = str(refused.value.conflicts[0])
    assert "Never ask.'" in told
    assert "Ask ours.'" in told
    assert "Ask theirs.'" in told


def test_the_way_into_a_value_as_data(store: sync.Store) -> None:
    state = store.agent("a")
    names: list[str | int] = ["a.b", "", "x y", 5, "5", "plain"]
    state.set("k", {name: [{"in": 0}] for name in names})
    point = state._handle.place()[2]
    state.set("k", {name: [{"in": 1}] for name in names})
    changes = list(state.diff(point))
    assert [change.steps for change in changes] == [(name, 0, "in") for name in names]
    paths = [change.path for change in changes]
    assert len(set(paths)) == len(names)
    assert paths[0] == "k['a.b'][0].in"
    assert paths[3:] == ["k.5[0].in", "k['5'][0].in", "k.plain[0].in"]
    state.delete("k")
    assert next(iter(state.diff(point))).steps == ()


@dataclass
class Plan:
    goal: str
    steps: list[str]


class Mood(Enum):
    GOOD = "good"
    BAD = "bad"


def test_registered_objects_are_compared_by_field(place: Place) -> None:
    registry = Registry()
    registry.register(Plan, name="plan")
    registry.register(Mood, name="mood")
    with place.open(registry=registry) as store:
        state = store.agent("a")
        state.set("plan", Plan("ship", ["a", "b", "c"]))
        state.set("mood", Mood.GOOD)
        state.checkpoint("c")
        state.set("plan", Plan("ship", ["a", "c"]))
        state.set("mood", Mood.BAD)
        state.set("new", [Plan("rest", [])])
        mood, new, plan = state.diff("c")
        assert (plan.path, plan.steps, plan.kind) == ("plan.steps[1]", ("steps", 1), "removed")
        assert (mood.before, mood.after) == (Mood.GOOD, Mood.BAD)
        assert new.after == [Plan("rest", [])]
    with place.open() as store:  # a program without the classes
        state = store.agent("a")
        with pytest.raises(UnknownTypeError):
            state.diff("c")
        mood, new, plan = state.diff("c", plain=True)
        assert plan.before == "b"
        assert (type(mood.after), mood.after.name) == (holdfast.Typed, "mood")
        assert new.after[0].value == {"goal": "rest", "steps": []}


def _nested(levels: int, leaf: Any, *, lists: bool) -> Any:
    for _ in range(levels):
        leaf = [leaf] if lists else {"a": leaf}
    return leaf


@pytest.mark.parametrize("lists", [True, False])
def test_values_as_deep_as_they_may_be_are_compared(lists: bool) -> None:
    with sync.open("memory:", limits=ValueLimits(depth=400)) as store:
        state = store.agent("a")
        state.set("k", _nested(398, 1, lists=lists))
        point, fork = state.checkpoint(), state.fork("f")
        state.set("k", _nested(398, 2, lists=lists))
        (change,) = state.diff(point)
        assert (change.before, change.after) == (1, 2)
        fork.set("k", _nested(398, 3, lists=lists))
        assert state.restore(point, dry_run=True)
        state.merge(fork, strategy="theirs")
        assert state.get("k") == _nested(398, 3, lists=lists)


def test_numbers_of_thousands_of_digits_are_not_shown(store: sync.Store) -> None:
    state = store.agent("a")
    state.set("k", [10**5000])
    point = state.checkpoint()
    state.set("k", [10**5001, {"n": [10**5000]}])
    shown = str(state.diff(point))
    assert "~ k[0]: <int with a number that is too long to be shown>" in shown
    assert "+ k[1]: <dict with a number that is too long to be shown>" in shown
