"""Both faces of the loop, the mailbox and drift have the same names and arguments."""

from __future__ import annotations

import inspect

import pytest

import holdfast
from holdfast import sync


@pytest.mark.parametrize("name", ["Drift", "Loop", "Mail", "Mailbox"])
def test_the_faces_are_alike(name: str) -> None:
    one, other = getattr(sync, name), getattr(holdfast, name)
    public = [[word for word in dir(face) if not word.startswith("_")] for face in (one, other)]
    assert public[0] == public[1]
    for word in ("__init__", *public[0]):
        functions = [getattr(face, word) for face in (one, other)]
        arguments = [list(inspect.signature(function).parameters) for function in functions]
        assert arguments[0] == arguments[1], word
        assert word == "__init__" or all(function.__doc__ for function in functions), word


def test_run_is_alike() -> None:
    assert list(inspect.signature(sync.run).parameters) == ["agent", "state", "options"]
    assert list(inspect.signature(holdfast.run).parameters) == ["agent", "state", "options"]
