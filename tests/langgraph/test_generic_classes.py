"""Generic classes, and classes of data that are kept as their text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import pytest
from langgraph.checkpoint.base import empty_checkpoint

from holdfast.integrations.langgraph import HoldfastSaver

T = TypeVar("T")


@dataclass
class Box(Generic[T]):
    x: T


class Row(list[T], Generic[T]):
    pass


def through(value: Any) -> Any:
    config: Any = {"configurable": {"thread_id": "one", "checkpoint_ns": ""}}
    checkpoint = empty_checkpoint()
    checkpoint["channel_values"] = {"c": value}
    checkpoint["channel_versions"] = {"c": 1}
    with HoldfastSaver.open("memory:") as saver:
        saver.put(config, checkpoint, {"source": "input", "step": 1}, {"c": 1})
        found = saver.get_tuple(config)
        assert found is not None
        return found.checkpoint["channel_values"]["c"]


@pytest.mark.parametrize("value", [Box[int](3), Box(3), Row[int]([1, 2]), [Box[str]("a")]])
def test_objects_of_generic_classes_come_back(value: Any) -> None:
    found = through(value)
    assert type(found) is type(value)
    assert found == value
