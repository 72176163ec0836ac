"""What is refused says where and what to do, and leaves nothing behind."""

from __future__ import annotations

import asyncio
import warnings
from pathlib import Path, PurePosixPath
from typing import Any, TypedDict

import numpy
import pytest
from graph_kit import compiled, said, thread
from langgraph.graph import START, StateGraph

from holdfast.errors import InvalidInputError, InvalidValueError
from holdfast.integrations.langgraph import HoldfastSaver, HoldfastStore


class State(TypedDict, total=False):
    other: Any


@pytest.mark.parametrize("durability", ["async", "exit"])
@pytest.mark.parametrize(("value", "path"), [(object(), r"\$"), ({"a": [object()]}, r"\$\.a\[0\]")])
def test_a_value_that_is_refused_is_named_with_its_channel(
    durability: str, value: Any, path: str
) -> None:
    with HoldfastSaver.open("memory:") as saver:
        builder = StateGraph(State).add_node("n", lambda state: {"other": value})
        graph = builder.add_edge(START, "n").compile(checkpointer=saver)
        wanted = rf"^thread 'one': 'other' cannot take this value: {path}: a object"
        with pytest.raises(InvalidValueError, match=wanted):
            graph.invoke({"other": 1}, thread(), durability=durability)


def test_an_opening_serves_one_block_at_a_time(tmp_path: Path) -> None:
    opening = HoldfastSaver.open(f"sqlite:{tmp_path / 'threads.db'}")
    with opening as saver:
        with pytest.raises(InvalidInputError, match="open already"):
            opening.__enter__()
        compiled(saver).invoke(said("x"), thread())
    with opening as saver:  # one block after the other
        assert saver.get_tuple(thread()) is not None

    async def main() -> None:
        async with opening:
            with pytest.raises(InvalidInputError, match="open already"):
                await opening.__aenter__()

    asyncio.run(main())


@pytest.mark.parametrize(
    ("given", "match"),
    [({"limit": -1}, "limit"), ({"offset": -1}, "offset"), ({"query": 5}, "query is text")],
)
def test_searches_that_cannot_be_meant(given: Any, match: str) -> None:
    with HoldfastStore.open("memory:") as store:
        store.put(("a",), "k", {"v": 1})
        with pytest.raises(InvalidInputError, match=match):
            store.search(("a",), **given)
        if "query" not in given:
            with pytest.raises(InvalidInputError, match=match):
                store.list_namespaces(**given)


@pytest.mark.parametrize("gives", [None, [None], ["text"]])
def test_an_embedding_function_that_gives_no_vectors(gives: Any) -> None:
    index: Any = {"dims": 2, "embed": lambda texts: gives}
    with HoldfastStore.open("memory:", index=index) as store:
        with pytest.raises(InvalidInputError, match="the embedding function"):
            store.put(("a",), "k", {"v": "text"})
        assert store.get(("a",), "k") is None


@pytest.mark.parametrize("minutes", [1e9, 1e12, 1e308, 10**400])
def test_a_time_to_live_beyond_all_times_spoils_no_namespace(minutes: float) -> None:
    with HoldfastStore.open("memory:") as store:
        store.put(("a",), "long", {"v": 1}, ttl=500_000_000)
        with pytest.raises(InvalidInputError, match="a thousand years"):
            store.put(("a",), "k", {"v": 1}, ttl=minutes)
        assert [item.key for item in store.search(("a",))] == ["long"]


@pytest.mark.parametrize(
    ("value", "instead"),
    [
        (PurePosixPath("a"), r"use str\(...\)"),
        (numpy.float32(1), r"use .item\(\)"),
        (numpy.arange(2), r"use .tolist\(\)"),
        (object(), "convert it to a dict, or to a dataclass that is registered"),
    ],
)
def test_what_a_memory_cannot_take_comes_with_advice_that_helps(value: Any, instead: str) -> None:
    with HoldfastStore.open("memory:") as store, pytest.raises(InvalidValueError, match=instead):
        store.put(("a",), "k", {"v": value})


# ---- what a memory is asked for in a wrong way -------------------------------------------------


def test_wrong_requests_to_a_memory_are_refused_with_what_is_meant() -> None:
    def huge(texts: Any) -> list[list[float]]:
        return [[1e39, 1.0]] * len(texts)

    anything: Any
    with HoldfastStore.open("memory:") as memory:
        anything = memory
        for wrong, meant in (
            (lambda: anything.search((), filter=[1]), "a filter is a mapping"),
            (lambda: anything.search("users"), "a namespace is a tuple"),
            (lambda: anything.put(("users",), "one", [1]), "an item is a mapping"),
            (lambda: anything.batch(None), "several"),
        ):
            with pytest.raises(InvalidInputError, match=meant):
                wrong()
        memory.put(("users",), "one", {"n": 10**300, "text": "a"})
        assert memory.search((), filter={"n": {"$gt": 10**400}}) == []
        assert len(memory.search((), filter={"n": {"$gt": 10**299}})) == 1
    with (
        warnings.catch_warnings(action="error"),
        HoldfastStore.open("memory:", index={"dims": 2, "embed": huge}) as memory,
        pytest.raises(InvalidInputError, match="2 finite numbers"),
    ):
        memory.put(("users",), "one", {"text": "a"})
