"""Generic classes, and classes of data that are kept as their text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Generic, TypeVar

import pytest
from langgraph.checkpoint.base import empty_checkpoint
from pydantic import AfterValidator, BaseModel, HttpUrl

from holdfast.errors import InvalidValueError
from holdfast.integrations.langgraph import HoldfastSaver

T = TypeVar("T")


@dataclass
class Box(Generic[T]):
    x: T


class Row(list[T], Generic[T]):
    pass


class Page(BaseModel):
    url: HttpUrl


class Told(BaseModel):
    url: Annotated[str, AfterValidator(lambda text: str(HttpUrl(text)))]


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


def test_an_address_is_refused_with_a_line_that_works() -> None:
    with pytest.raises(InvalidValueError, match=r"Annotated\[str, AfterValidator\(lambda text: "):
        through(Page(url=HttpUrl("http://a.b/c")))
    assert through(Told(url="http://a.b/c")) == Told(url="http://a.b/c")
