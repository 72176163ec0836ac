"""What differs between two points, as data and for people."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

import pytest

from holdfast import sync

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
