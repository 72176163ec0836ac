"""The same operations on LangGraph's own `InMemoryStore` and on ours give the same answers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given
from langgraph.store.base import (
    BaseStore,
    GetOp,
    ListNamespacesOp,
    MatchCondition,
    Op,
    PutOp,
    SearchOp,
)
from langgraph.store.memory import InMemoryStore

from holdfast import sync
from holdfast.integrations.langgraph.store.langgraph_store import HoldfastStore

labels = st.sampled_from(["a", "b", "a/b", "%", "ä", "x" * 150])
namespaces = st.lists(labels, min_size=1, max_size=3).map(tuple)
keys = st.sampled_from(["k", "m", "k/m", "", "..", "y" * 200])
scalars = st.sampled_from([None, True, False, 0, 1, 2.5, "1", "x", "", float("nan"), 2**70])
inner = st.recursive(
    scalars,
    lambda more: st.lists(more, max_size=2) | st.dictionaries(st.sampled_from("pq"), more),
    max_leaves=3,
)
values = st.dictionaries(st.sampled_from(["n", "s", "t"]), inner, max_size=3)
numbers = st.sampled_from([0, 1, 2.5, "1"])
operators = st.fixed_dictionaries({}, optional={"$eq": inner, "$ne": inner})
ordered = st.dictionaries(st.sampled_from(["$gt", "$gte", "$lt", "$lte"]), numbers, min_size=1)
conditions = inner | operators.filter(bool)
filters = st.none() | st.dictionaries(st.sampled_from(["n", "s", "missing"]), conditions)

puts = st.tuples(namespaces, keys, st.none() | values).map(lambda asked: PutOp(*asked))
gets = st.tuples(namespaces, keys).map(lambda asked: GetOp(*asked))
searches = st.tuples(st.just(()) | namespaces, filters).map(lambda asked: SearchOp(*asked, 1000))
matching = st.builds(
    MatchCondition,
    st.sampled_from(["prefix", "suffix"]),
    st.lists(labels | st.just("*"), min_size=1, max_size=2).map(tuple),
)
listings = st.tuples(
    st.none() | st.lists(matching, max_size=2).map(tuple), st.none() | st.integers(1, 3)
).map(lambda asked: ListNamespacesOp(*asked, 1000))
batches = st.lists(st.lists(puts | puts | gets | searches | listings, max_size=5), max_size=5)


def plain(item: Any) -> Any:
    return item and (item.namespace, item.key, repr(item.value))  # nan is not equal to itself


def answers(store: BaseStore, ops: list[Op]) -> list[Any]:
    """What can be compared: found items come in another order there."""
    found: list[Any] = []
    for op, result in zip(ops, store.batch(ops), strict=True):
        ordered = isinstance(op, SearchOp)
        found.append(sorted(map(plain, result)) if ordered else plain(result))  # type: ignore[arg-type]
    return found


def namespaces_of(store: InMemoryStore, ops: list[Op]) -> list[Any]:
    """What it lists once it has forgotten namespaces that are empty, as ours does at once."""
    for name in [name for name, inside in store._data.items() if not inside]:
        del store._data[name]
    return [store.batch([op])[0] for op in ops]


@given(script=batches)
def test_same_operations_same_answers(script: list[list[Op]]) -> None:
    theirs = InMemoryStore()
    with sync.open("memory:") as base:
        ours = HoldfastStore(base)
        for ops in script:
            lists = [op for op in ops if isinstance(op, ListNamespacesOp)]
            others = [op for op in ops if not isinstance(op, ListNamespacesOp)]
            assert ours.batch(lists) == namespaces_of(theirs, lists)
            assert answers(ours, others) == answers(theirs, others)
        again = HoldfastStore(base)  # as another process, which reads everything anew
        everything: list[Op] = [SearchOp((), limit=1000)]
        assert answers(again, everything) == answers(theirs, everything)


@given(found=st.lists(numbers | st.floats(allow_nan=False), max_size=8), wanted=ordered)
def test_same_order_of_numbers(found: list[Any], wanted: dict[str, Any]) -> None:
    theirs = InMemoryStore()
    ops = [PutOp(("a",), str(at), {"n": value}) for at, value in enumerate(found)]
    with sync.open("memory:") as base:
        ours = HoldfastStore(base)
        for store in (theirs, ours):
            store.batch(ops)
        search = {"filter": {"n": wanted}, "limit": 100}
        assert sorted(map(plain, ours.search(("a",), **search))) == sorted(
            map(plain, theirs.search(("a",), **search))
        )


def _embed(texts: Iterable[str]) -> list[list[float]]:
    return [[text.count("a") + 0.5, text.count("b"), len(text) / 7] for text in texts]


texts = st.text("abc ", min_size=1, max_size=6)
documents = st.fixed_dictionaries({"text": texts, "kind": st.sampled_from("xy")})


@given(
    items=st.lists(st.tuples(labels, keys, documents), max_size=12, unique_by=lambda i: i[:2]),
    query=texts,
    limit=st.integers(1, 12),
    wanted=st.sampled_from([None, {"kind": "x"}, {"kind": {"$ne": "x"}}]),
)
def test_same_nearest_items(items: Any, query: str, limit: int, wanted: Any) -> None:
    index: Any = {"dims": 3, "embed": _embed, "fields": ["text"]}
    theirs = InMemoryStore(index=index)
    with sync.open("memory:") as base:
        ours = HoldfastStore(base, index)
        for label, key, value in items:
            for store in (theirs, ours):
                store.put((label,), key, value, index=False if value["text"] == "c" else None)
        mine = ours.search((), query=query, limit=limit, filter=wanted)
        expected = theirs.search((), query=query, limit=limit, filter=wanted)
        scores = [hit.score for hit in expected]
        assert [hit.score for hit in mine] == pytest.approx(scores, abs=1e-5)
        everyone = theirs.search((), query=query, limit=100, filter=wanted)
        score = {(hit.namespace, hit.key): hit.score for hit in everyone}
        for hit in mine:  # of equal scores, either may come first
            assert hit.score == pytest.approx(score[hit.namespace, hit.key], abs=1e-5)
        assert len({(hit.namespace, hit.key) for hit in mine}) == len(mine)
