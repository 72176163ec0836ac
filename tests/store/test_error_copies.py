"""Errors that are copied, or come from another process, say what they said."""

from __future__ import annotations

import copy
import importlib
import inspect
import pickle
import pkgutil
from typing import Any

import pytest

import holdfast
from holdfast.errors import HoldfastError


def kinds() -> list[type[HoldfastError]]:
    """All classes of errors, wherever they are defined."""
    for module in pkgutil.walk_packages(holdfast.__path__, "holdfast."):
        if "integrations" not in module.name and not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    found, left = [], [HoldfastError]
    while left:
        kind = left.pop()
        found.append(kind)
        left += kind.__subclasses__()
    return sorted(set(found), key=lambda kind: kind.__qualname__)


def made(kind: type[HoldfastError]) -> HoldfastError:
    """An error of a class, with something for each thing that it holds."""
    given: dict[str, Any] = {"problems": ["one thing", "another"], "conflicts": []}
    names = [
        name
        for name, one in inspect.signature(kind.__init__).parameters.items()
        if name != "self" and one.kind is one.POSITIONAL_OR_KEYWORD
    ]
    return kind(*(given.get(name, f"some {name}") for name in names or ["text"]))


@pytest.mark.parametrize("kind", kinds(), ids=lambda kind: kind.__qualname__)
def test_a_copy_is_like_the_error(kind: type[HoldfastError]) -> None:
    error = made(kind)
    error.add_note("noted")
    for again in (
        pickle.loads(pickle.dumps(error)),  # noqa: S301
        copy.copy(error),
        copy.deepcopy(error),
    ):
        assert type(again) is kind
        assert str(again) == str(error)
        assert again.args == error.args
        assert vars(again) == vars(error)
