"""Searching: order and pages, filters, meaning, and what is kept in memory for it."""

from __future__ import annotations

import asyncio
import importlib
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from langgraph.store.base import PutOp, SearchOp

from holdfast import Keep, sync
from holdfast.errors import InvalidInputError, MissingExtraError
from holdfast.integrations.langgraph.store import vectors
from holdfast.integrations.langgraph.store.langgraph_store import SCOPE, HoldfastStore

WORDS = ("cat", "dog", "tea", "sun")


class Embed:
    """Counts words: texts that share words are near to each other."""

    def __init__(self) -> None:
        self.calls: list[list[str]] = []

    def __call__(self, texts: Sequence[str]) -> list[list[float]]:
        self.calls.append(list(texts))
        return [[float(text.count(word)) for word in WORDS] for text in texts]


@pytest.fixture
def base(tmp_path: Path) -> Iterator[sync.Store]:
    with sync.open(f"sqlite:{tmp_path / 'store.db'}", durability="normal") as store:
        yield store


@pytest.fixture
def embed() -> Embed:
    return Embed()


@pytest.fixture
def items(base: sync.Store, embed: Embed) -> HoldfastStore:
    return HoldfastStore(base, {"dims": 4, "embed": embed, "fields": ["text"]})


def keys(hits: Sequence[Any]) -> list[str]:
    return [hit.key for hit in hits]


# order, pages, filters


def test_newest_first_in_pages(base: sync.Store) -> None:
    items = HoldfastStore(base)
    items.batch([PutOp(("a",), str(n), {"n": n}) for n in range(25)])
    items.put(("a",), "3", {"n": 3})
    order = ["3", *(str(n) for n in reversed(range(25)) if n != 3)]
    for store in (items, HoldfastStore(base)):
        pages = [keys(store.search(("a",), limit=10, offset=at)) for at in (0, 10, 20, 30)]
        assert pages == [order[:10], order[10:20], order[20:], []]
        assert store.search(("a",), limit=0) == []
    assert keys(items.search(("a",), filter={"n": {"$lt": 5}}, limit=2, offset=1)) == ["4", "2"]


def test_what_cannot_be_compared_does_not_match(base: sync.Store) -> None:
    items = HoldfastStore(base)
    values = {"int": 7, "text": "x", "none": None, "list": [1], "day": "2030-05-01", "digits": "9"}
    items.batch([PutOp(("a",), name, {"v": value}) for name, value in values.items()])
    items.put(("a",), "absent", {})

    def found(wanted: Any) -> set[str]:
        return set(keys(items.search(("a",), filter={"v": wanted})))

    assert found({"$gt": 5}) == {"int", "digits"}
    assert found({"$gt": "2030-01-01", "$lt": "2030-12-31"}) == {"day"}
    assert found({"$gte": 7, "$lt": 8}) == {"int"}
    assert found(None) == {"none", "absent"}
    assert found({"$ne": 7}) == {*values, "absent"} - {"int"}
    assert found([{"$gt": 0}]) == {"list"}


def test_an_unknown_operator_is_refused_even_where_nothing_is_stored(items: HoldfastStore) -> None:
    with pytest.raises(InvalidInputError, match=r"\$gte.*not '\$near'"):
        items.search(("a",), filter={"v": {"$near": 1}})


def test_filters_follow_what_changes(items: HoldfastStore) -> None:
    for number in range(3):
        items.put(("a",), "k", {"n": number})
        assert keys(items.search((), filter={"n": number})) == ["k"]
    items.batch([PutOp(("a",), f"k{n}", {"n": n % 7}) for n in range(2000)])
    assert len(items.search((), filter={"n": 3}, limit=9999)) == 286
    items.batch([PutOp(("a",), f"k{n}", None) for n in range(1000)])
    items.batch([PutOp(("b",), f"k{n}", {"n": 3, "m": n}) for n in range(10)])
    assert len(items.search(("b",), filter={"n": 3}, limit=9999)) == 10
    assert len(items.search((), filter={"n": {"$gt": 2, "$lt": 4}}, limit=9999)) == 153


# meaning


def test_nearest_first_after_namespace_and_filter(items: HoldfastStore) -> None:
    items.put(("pets", "a"), "cats", {"text": "cat cat cat", "kind": "x"})
    items.put(("pets", "b"), "both", {"text": "cat dog", "kind": "y"})
    items.put(("pets", "b"), "dogs", {"text": "dog", "kind": "x"})
    items.put(("drinks",), "tea", {"text": "tea", "kind": "x"})
    hits = items.search(("pets",), query="cat")
    assert keys(hits) == ["cats", "both", "dogs"]
    assert [hit.score for hit in hits] == pytest.approx([1, 0.5**0.5, 0])
    assert keys(items.search(("pets",), query="cat", filter={"kind": "x"}, limit=1)) == ["cats"]
    assert keys(items.search(("pets", "b"), query="cat", limit=1)) == ["both"]
    assert keys(items.search((), query="cat tea", offset=1, limit=1)) == ["tea"]
    assert keys(items.search(("none",), query="cat")) == []


def test_the_best_of_several_vectors_counts(items: HoldfastStore) -> None:
    value = {"text": "sun", "parts": [{"t": "cat"}, {"t": "dog dog"}]}
    items.put(("a",), "many", value, index=["parts[*].t"])
    items.put(("a",), "one", {"text": "cat dog"})
    items.put(("a",), "none", {"text": "cat"}, index=False)
    hits = items.search(("a",), query="dog")
    assert keys(hits) == ["many", "one", "none"]
    assert [hit.score for hit in hits] == pytest.approx([1, 0.5**0.5, None])
    assert items.search(("a",), query="sun")[0].score == 0
    pages = [keys(items.search(("a",), query="dog", limit=1, offset=at)) for at in range(4)]
    assert pages == [["many"], ["one"], ["none"], []]


def test_a_vector_goes_with_its_item(base: sync.Store, items: HoldfastStore) -> None:
    for key in ("deleted", "unindexed", "changed"):
        items.put(("a",), key, {"text": "cat"})
    items.search(("a",), query="cat")
    items.delete(("a",), "deleted")
    items.put(("a",), "unindexed", {"text": "cat"}, index=False)
    items.put(("a",), "changed", {"text": "dog"})
    fresh = HoldfastStore(base, {"dims": 4, "embed": Embed(), "fields": ["text"]})
    for store in (items, fresh):
        hits = store.search(("a",), query="cat")
        assert [(hit.key, hit.score) for hit in hits] == [("changed", 0), ("unindexed", None)]
    stored = base.scope(SCOPE).keys("vectors/")
    assert stored == ["vectors/a/changed"]


def test_vectors_that_others_write_are_found(tmp_path: Path, embed: Embed) -> None:
    url, index = f"sqlite:{tmp_path / 's.db'}", {"dims": 4, "embed": embed, "fields": ["text"]}
    with sync.open(url) as here, sync.open(url) as there:  # as two processes have it
        mine, theirs = HoldfastStore(here, index), HoldfastStore(there, index)  # type: ignore[arg-type]
        mine.put(("a",), "old", {"text": "cat dog"})
        assert keys(mine.search(("a",), query="cat")) == ["old"]
        theirs.put(("a",), "new", {"text": "cat"})
        assert keys(mine.search(("a",), query="cat")) == ["new", "old"]
        theirs.put(("a",), "old", {"text": "cat"})
        theirs.delete(("a",), "new")
        hits = mine.search(("a",), query="cat")
        assert [(hit.key, hit.score) for hit in hits] == [("old", 1.0)]


def test_a_restore_during_the_first_search_is_followed(
    base: sync.Store, items: HoldfastStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = base.scope(SCOPE)
    items.put(("a",), "kept", {"text": "cat"})
    safe = state.checkpoint("safe")
    items.put(("a",), "undone", {"text": "cat"})
    pages = items._mirror._pages
    restored: list[Any] = []

    def meanwhile(root: str) -> Iterator[tuple[str, Any]]:
        yield from pages(root)
        if not restored:
            restored.append(state.restore(safe))

    monkeypatch.setattr(items._mirror, "_pages", meanwhile)
    assert keys(items.search(("a",), query="cat")) == ["kept"]
    assert restored


def test_put_without_an_index_leaves_no_vector_of_the_old_value(
    base: sync.Store, items: HoldfastStore
) -> None:
    items.put(("a",), "k", {"text": "cat"})
    HoldfastStore(base).put(("a",), "k", {"text": "dog"})
    (hit,) = items.search(("a",), query="cat")
    assert hit.score is None
    assert base.scope(SCOPE).keys("vectors/") == []


def test_vectors_of_another_size_are_passed_over(base: sync.Store, items: HoldfastStore) -> None:
    items.put(("a",), "k", {"text": "cat"})

    def longer(texts: Sequence[str]) -> list[list[float]]:
        return [[1.0] * 7 for _ in texts]

    other = HoldfastStore(base, {"dims": 7, "embed": longer, "fields": ["text"]})
    assert [hit.score for hit in other.search(("a",), query="cat")] == [None]
    other.put(("a",), "k", {"text": "cat"})
    assert [hit.score for hit in other.search(("a",), query="cat")] == pytest.approx([1])


def test_texts_are_embedded_once_and_before_anything_is_written(
    base: sync.Store, items: HoldfastStore, embed: Embed
) -> None:
    puts = [PutOp(("a",), str(n), {"text": f"cat{n % 2}"}) for n in range(6)]
    items.batch([*puts, SearchOp(("a",), query="dog"), SearchOp(("b",), query="dog")])
    assert embed.calls == [["cat0", "cat1"], ["dog"]]
    with pytest.raises(InvalidInputError):
        items.put(("a",), "bad", {"text": "cat", "x": object()})
    assert len(embed.calls) == 2
    with pytest.raises(InvalidInputError, match=r"index=False"):
        HoldfastStore(base, {"dims": 4, "embed": embed}).put(("a",), "raw", {"raw": b"\0"})


@pytest.mark.parametrize(
    "wrong",
    [
        lambda texts: [[1.0] * 3 for _ in texts],
        lambda texts: [[float("nan")] * 4 for _ in texts],
        lambda texts: [],
    ],
)
def test_a_wrong_vector_is_refused_and_nothing_written(
    base: sync.Store, wrong: Callable[..., Any]
) -> None:
    items = HoldfastStore(base, {"dims": 4, "embed": wrong})
    with pytest.raises(InvalidInputError, match="embedding function"):
        items.put(("a",), "k", {"text": "cat"})
    assert items.get(("a",), "k") is None


def test_an_async_embedding_function(base: sync.Store) -> None:
    async def embed(texts: Sequence[str]) -> list[list[float]]:
        await asyncio.sleep(0)
        return [[float(text.count(word)) for word in WORDS] for text in texts]

    async def use() -> None:
        items = HoldfastStore(base, {"dims": 4, "embed": embed, "fields": ["text"]})
        await asyncio.gather(*(items.aput(("a",), word, {"text": word}) for word in WORDS))
        assert keys(await items.asearch(("a",), query="tea", limit=1)) == ["tea"]

    asyncio.run(use())


def test_without_an_index_a_query_is_no_more_than_a_listing(base: sync.Store) -> None:
    items = HoldfastStore(base)
    items.put(("a",), "k", {"text": "cat"}, index=["text"])
    assert [hit.score for hit in items.search(("a",), query="cat")] == [None]


# memory and numpy


def test_only_what_is_searched_is_read(base: sync.Store) -> None:
    HoldfastStore(base).batch([PutOp((f"u{n}",), "k", {"n": n}) for n in range(50)])
    items = HoldfastStore(base)
    assert [hit.value for hit in items.search(("u7",))] == [{"n": 7}]
    assert len(items._mirror._rows) == 1
    HoldfastStore(base).put(("u8",), "more", {"n": 0})
    assert len(items.search(("u7",))) == 1
    assert len(items._mirror._rows) == 1
    assert keys(items.search(("u8",))) == ["more", "k"]
    assert len(items.list_namespaces(limit=99)) == 50


def test_numpy_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "numpy", None)
    with pytest.raises(MissingExtraError, match=r"holdfast\[langgraph\]"):
        importlib.reload(vectors)


@pytest.mark.parametrize("elsewhere", [False, True])
@pytest.mark.parametrize("way", ["prune", "retention"])
def test_a_search_after_the_scope_was_pruned_sees_what_was_put_before(
    tmp_path: Path, way: str, elsewhere: bool
) -> None:
    url = f"sqlite:{tmp_path / 'pruned.db'}"
    with sync.open(url) as store, sync.open(url) as other:
        memory = HoldfastStore(store)
        writer = HoldfastStore(other) if elsewhere else memory
        for key, value in (("city", "Paris"), ("gone", "soon")):
            memory.put(("user",), key, {"is": value})
        assert len(memory.search(("user",))) == 2
        writer.put(("user",), "city", {"is": "Rome"})
        writer.put(("user",), "pet", {"is": "cat"})
        writer.delete(("user",), "gone")
        state = (other if elsewhere else store).scope(SCOPE)
        if way == "prune":
            state.prune(state.log(limit=1)[0].sequence)
        else:
            state.declare(Keep(count=0))
            sync.checkpoints.Retention(other if elsewhere else store).run(state)
        found = {item.key: item.value["is"] for item in memory.search(("user",))}
        assert found == {"city": "Rome", "pet": "cat"}
        writer.put(("user",), "food", {"is": "tea"})
        assert len(memory.search(("user",))) == 3
