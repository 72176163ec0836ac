"""Effects and handovers are the same on both faces: names, arguments and what is said of them."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

import holdfast
from holdfast import sync


def public(kind: type) -> dict[str, Any]:
    return {name: thing for name, thing in vars(kind).items() if not name.startswith("_")}


def shape(function: Any) -> list[tuple[str, Any, Any]]:
    found = inspect.signature(function).parameters.values()
    return [(one.name, one.kind, one.default) for one in found]


@pytest.mark.parametrize("name", ["Effects", "Handovers"])
def test_both_faces_are_equal(name: str) -> None:
    ours, theirs = getattr(holdfast.agents, name), getattr(sync.agents, name)
    assert list(public(ours)) == list(public(theirs))
    assert inspect.getdoc(ours) == inspect.getdoc(theirs)
    assert shape(ours) == shape(theirs)
    for method, made in public(ours).items():
        other = public(theirs)[method]
        assert inspect.getdoc(made) == inspect.getdoc(other)
        assert shape(made) == shape(other)
        assert inspect.iscoroutinefunction(made) or method in ("once", "tool")
        assert not inspect.iscoroutinefunction(other)
