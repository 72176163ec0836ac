"""Checkpoints that were listed: values are read late, and are what they are to any reader."""

from __future__ import annotations

import copy
import json
import pickle
from collections.abc import Callable
from typing import Any, TypedDict

import msgspec
import ormsgpack
import pytest
from graph_kit import thread
from langgraph.checkpoint.base import CheckpointTuple
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.graph import START, StateGraph
from pydantic import TypeAdapter

from holdfast.integrations.langgraph import HoldfastSaver


class State(TypedDict):
    v: int


def filled() -> Any:
    saver = HoldfastSaver.open("memory:")
    builder = StateGraph(State).add_node("n", lambda state: {"v": state["v"] + 1})
    return saver, builder.add_edge(START, "n")


def through_serde(value: Any) -> Any:
    serde = JsonPlusSerializer()
    return serde.loads_typed(serde.dumps_typed(value))


READERS: dict[str, Callable[[Any], Any]] = {
    "json": lambda value: json.loads(json.dumps(value)),
    "pydantic": TypeAdapter(Any).dump_python,
    "pydantic json": lambda value: json.loads(TypeAdapter(Any).dump_json(value)),
    "msgspec": lambda value: msgspec.json.decode(msgspec.json.encode(value)),
    "builtins": msgspec.to_builtins,
    "ormsgpack": lambda value: ormsgpack.unpackb(ormsgpack.packb(value)),
    "serde": through_serde,
    "pickle": lambda value: pickle.loads(pickle.dumps(value)),  # noqa: S301
    "deepcopy": copy.deepcopy,
}


@pytest.mark.parametrize("reader", READERS.values(), ids=READERS)
def test_whoever_reads_a_listed_checkpoint_reads_its_values(reader: Callable[[Any], Any]) -> None:
    opening, builder = filled()
    with opening as saver:
        builder.compile(checkpointer=saver).invoke({"v": 1}, thread())
        whole = saver.get_tuple(thread()).checkpoint
        values = reader(next(saver.list(thread())).checkpoint["channel_values"])
        assert values == {"v": 2}
        if reader is not READERS["builtins"]:
            checkpoint = reader(next(saver.list(thread())).checkpoint)
            assert checkpoint["channel_values"] == whole["channel_values"]


def test_a_listed_tuple_is_one_by_all_its_ways() -> None:
    opening, builder = filled()
    with opening as saver:
        builder.compile(checkpointer=saver).invoke({"v": 1}, thread())

        def listed() -> Any:
            return next(saver.list(thread()))

        whole = CheckpointTuple(*listed())
        assert type(whole.checkpoint["channel_values"]) is dict
        assert whole.checkpoint["channel_values"] == {"v": 2}
        assert listed() == whole
        assert whole == listed()
        assert listed() == listed()
        assert not listed() != whole  # noqa: SIM202
        assert listed()[1] == listed()[-4] == listed()[1:2][0] == whole.checkpoint
        _, checkpoint, *_ = listed()
        assert checkpoint == whole.checkpoint
        assert listed()._asdict() == whole._asdict()
        assert listed()._replace(metadata={}) == whole._replace(metadata={})
        for same in (copy.copy(listed()), pickle.loads(pickle.dumps(listed()))):  # noqa: S301
            assert (type(same), same) == (CheckpointTuple, whole)
        assert repr(listed()) == repr(whole)


def test_what_was_not_read_is_never_taken_for_a_value() -> None:
    """Who reads a listed tuple past Python meets something that cannot be written."""
    opening, builder = filled()
    with opening as saver:
        builder.compile(checkpointer=saver).invoke({"v": 1}, thread())
        for write in (msgspec.json.encode, TypeAdapter(Any).dump_json):
            with pytest.raises((TypeError, ValueError), match=r"Unread"):
                write(next(saver.list(thread())))
