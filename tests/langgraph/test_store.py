"""What users of LangGraph's store rely on: items, batches, names, both faces, several processes."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from langgraph.store.base import GetOp, InvalidNamespaceError, ListNamespacesOp, PutOp, SearchOp

import holdfast
from holdfast import sync
from holdfast.errors import InvalidInputError, InvalidValueError
from holdfast.integrations.langgraph.store.langgraph_store import SCOPE, HoldfastStore

KINDS = ["memory", "sqlite", "sealed"]


@pytest.fixture(params=KINDS)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, dict[str, Any]]:
    """URL and options of a store that does not exist yet."""
    options: dict[str, Any] = {"durability": "normal"}
    if request.param == "sealed":
        options["key"] = f"file:{tmp_path / 'master.key'}"
    folder = tmp_path / "data"
    folder.mkdir()
    url = f"memory:{tmp_path.name}-{os.getpid()}"
    return (url if request.param == "memory" else f"sqlite:{folder / 'store.db'}"), options


@pytest.fixture
def base(place: tuple[str, dict[str, Any]]) -> Iterator[sync.Store]:
    with sync.open(place[0], **place[1]) as store:
        yield store


@pytest.fixture
def items(base: sync.Store) -> HoldfastStore:
    return HoldfastStore(base)


def found(items: HoldfastStore, *prefix: str, **more: Any) -> list[str]:
    return [item.key for item in items.search(prefix, **more)]


# items


def test_what_is_put_is_got_listed_and_found(items: HoldfastStore) -> None:
    items.put(("users", "7"), "prefs", {"theme": "dark", "size": [1, {"a": None}]})
    item = items.get(("users", "7"), "prefs")
    assert item is not None
    assert item.value == {"theme": "dark", "size": [1, {"a": None}]}
    assert (item.namespace, item.key) == (("users", "7"), "prefs")
    assert item.created_at == item.updated_at
    assert abs((datetime.now(UTC) - item.created_at).total_seconds()) < 60
    (hit,) = items.search(("users",))
    assert hit.dict() == {**item.dict(), "score": None}
    assert items.list_namespaces() == [("users", "7")]
    assert items.get(("users",), "7") is None


def test_what_json_lacks_comes_back_as_it_was(items: HoldfastStore) -> None:
    value = {"raw": b"\0\xff", "at": datetime(2030, 1, 2, tzinfo=UTC), "big": 2**80, "f": 1e300}
    items.put(("a",), "k", value)
    item = items.get(("a",), "k")
    assert item is not None
    assert item.value == value
    assert items.search(("a",), filter={"raw": b"\0\xff"})[0].value == value


def test_created_at_stays_when_an_item_is_put_again(items: HoldfastStore) -> None:
    items.put(("a",), "k", {"n": 1})
    first = items.get(("a",), "k")
    items.put(("a",), "k", {"n": 2})
    second = items.get(("a",), "k")
    assert first is not None
    assert second is not None
    assert second.created_at == first.created_at
    assert second.updated_at > first.updated_at
    items.delete(("a",), "k")
    items.put(("a",), "k", {"n": 3})
    third = items.get(("a",), "k")
    assert third is not None
    assert third.created_at > second.updated_at


def test_none_deletes_and_absent_is_no_error(items: HoldfastStore) -> None:
    items.put(("a",), "k", {"n": 1})
    items.search(())
    items.delete(("a",), "k")
    items.delete(("a",), "never")
    assert items.get(("a",), "k") is None
    assert items.search(()) == []
    assert items.list_namespaces() == []


def test_results_belong_to_the_caller(items: HoldfastStore) -> None:
    value = {"list": [1, {"deep": 2}]}
    items.put(("a",), "k", value)
    value["list"].append(3)
    for read in (lambda: items.get(("a",), "k"), lambda: items.search(("a",))[0]):
        item: Any = read()
        assert item.value == {"list": [1, {"deep": 2}]}
        item.value["list"][1]["deep"] = "changed"
        item.value["more"] = True
        assert read().value == {"list": [1, {"deep": 2}]}


NAMES = [
    "plain", "with space", "a/b", "a%2Fb", "%", "a%", "..", "a..b", "...", "\\", "//", "$x", "__x",
    "tab\tnul\x00", "\u00e9", "e\u0301", "\ufb01", "A\u030a", "\u1100\u1161", "\u65e5\u672c",
    "\U0001f469\u200d\U0001f467", "\ud800", " ", "*", "", "x" * 300, "\u65e5" * 300,
]  # fmt: skip


def test_names_are_any_text(items: HoldfastStore) -> None:
    ops = [PutOp((a, "sub"), b, {"a": a, "b": b}) for a in NAMES for b in NAMES]
    items.batch(ops)
    got = items.batch([GetOp((a, "sub"), b) for a in NAMES for b in NAMES])
    assert [item.value for item in got] == [op.value for op in ops]  # type: ignore[union-attr]
    for name in NAMES:
        hits = items.batch([SearchOp((name,), limit=1000)])[0]
        assert {hit.key for hit in hits} == set(NAMES)  # type: ignore[union-attr]
        assert {hit.namespace for hit in hits} == {(name, "sub")}  # type: ignore[union-attr]
    listed = items.batch([ListNamespacesOp(limit=1000)])[0]
    assert set(listed) == {(name, "sub") for name in NAMES}  # type: ignore[arg-type]


def test_a_prefix_ends_at_a_label(items: HoldfastStore) -> None:
    for labels in [("foo",), ("foo", "bar"), ("foobar",), ("FOO",)]:
        items.put(labels, "k", {"n": "/".join(labels)})
    assert {hit.namespace for hit in items.search(("foo",))} == {("foo",), ("foo", "bar")}
    assert {hit.namespace for hit in items.search(())} == {
        ("foo",), ("foo", "bar"), ("foobar",), ("FOO",),
    }  # fmt: skip


def test_names_that_langgraph_refuses_are_refused(items: HoldfastStore) -> None:
    for bad in [(), ("a.b",), ("",), ("langgraph", "x"), (7,)]:
        with pytest.raises(InvalidNamespaceError):
            items.put(bad, "k", {})  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match="not int"):
        items.batch([GetOp((7,), "k")])  # type: ignore[arg-type]


# batches


def test_a_batch_reads_before_it_writes_and_the_last_put_counts(items: HoldfastStore) -> None:
    items.put(("a",), "k", {"n": 0})
    ops: list[Any] = [
        PutOp(("a",), "k", {"n": 1}),
        GetOp(("a",), "k"),
        PutOp(("a",), "k", {"n": 2}),
        SearchOp(("a",)),
        PutOp(("b",), "k", {"n": 3}),
        ListNamespacesOp(),
        PutOp(("c",), "gone", {"n": 4}),
        PutOp(("c",), "gone", None),
    ]
    first, got, _, hits, _, listed, *_ = items.batch(ops)
    assert first is None
    assert got.value == {"n": 0}  # type: ignore[union-attr]
    assert [hit.value for hit in hits] == [{"n": 0}]  # type: ignore[union-attr]
    assert listed == [("a",)]
    after = items.batch([GetOp(("a",), "k"), GetOp(("b",), "k"), GetOp(("c",), "gone")])
    assert [item and item.value for item in after] == [{"n": 2}, {"n": 3}, None]  # type: ignore[union-attr]


def test_a_batch_is_one_entry_or_none(base: sync.Store, items: HoldfastStore) -> None:
    items.batch([PutOp(("a",), str(n), {"n": n}) for n in range(50)])
    assert base.scope(SCOPE)._handle.place()[2] == 1
    bad = {"deep": [{"x": object()}]}
    with pytest.raises(InvalidValueError) as refused:
        items.batch([PutOp(("a",), "new", {"n": 1}), PutOp(("a",), "bad", bad)])
    assert refused.value.path == "$.deep[0].x"
    assert "'bad'" in str(refused.value)
    assert base.scope(SCOPE)._handle.place()[2] == 1
    assert items.get(("a",), "new") is None
    items.batch([GetOp(("a",), "1"), SearchOp(("a",))])
    assert base.scope(SCOPE)._handle.place()[2] == 1
    with pytest.raises(InvalidInputError):
        items.batch(["get"])  # type: ignore[list-item]


def test_a_batch_is_never_seen_in_halves(base: sync.Store) -> None:
    writer, reader = HoldfastStore(base), HoldfastStore(base)
    stop = threading.Event()
    writer.batch([PutOp(("a",), k, {"n": 0}) for k in "xy"])

    def write() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            writer.batch([PutOp(("a",), k, {"n": number}) for k in "xy"])

    thread = threading.Thread(target=write)
    thread.start()
    try:
        for _ in range(150):
            hits, x, y = reader.batch([SearchOp(("a",)), GetOp(("a",), "x"), GetOp(("a",), "y")])
            seen = {item.value["n"] for item in [*hits, x, y]}  # type: ignore[union-attr, misc]
            assert len(seen) == 1
    finally:
        stop.set()
        thread.join()


# the scope


def test_a_restore_takes_the_items_along(base: sync.Store, items: HoldfastStore) -> None:
    items.put(("a",), "k", {"n": 1})
    safe = base.scope(SCOPE).checkpoint("safe")
    items.put(("a",), "k", {"n": 2})
    items.put(("b",), "k", {"n": 3})
    assert len(items.search(())) == 2
    base.scope(SCOPE).restore(safe)
    assert [hit.value for hit in items.search(())] == [{"n": 1}]
    base.delete(SCOPE)
    assert items.search(()) == []
    items.put(("c",), "k", {"n": 4})
    assert [hit.namespace for hit in items.search(())] == [("c",)]
    assert base.verify().ok


def test_stores_in_other_scopes_are_apart(base: sync.Store, items: HoldfastStore) -> None:
    other = HoldfastStore(base, scope="custom:other")
    other.put(("a",), "k", {"n": 1})
    assert items.search(()) == []
    assert found(other) == ["k"]


def test_only_an_open_store_is_taken() -> None:
    with pytest.raises(InvalidInputError, match=r"HoldfastStore\.open"):
        HoldfastStore("sqlite:x.db")  # type: ignore[arg-type]


# both faces


def test_all_calls_in_both_faces_over_both_kinds(place: tuple[str, dict[str, Any]]) -> None:
    url, options = place

    async def use(items: HoldfastStore) -> None:
        await items.aput(("a", "b"), "k", {"n": 1})
        items.put(("a", "b"), "m", {"n": 2})  # a sync call in a running loop
        one = await items.aget(("a", "b"), "k")
        assert one is not None
        assert one.value == {"n": 1}
        assert items.get(("a", "b"), "m").value == {"n": 2}  # type: ignore[union-attr]
        assert [i.key for i in await items.asearch(("a",), filter={"n": {"$gt": 1}})] == ["m"]
        assert found(items, "a") == ["m", "k"]
        assert await items.alist_namespaces(max_depth=1) == [("a",)]
        await items.adelete(("a", "b"), "k")
        await asyncio.gather(*(items.aput(("c",), str(n), {"n": n}) for n in range(20)))
        assert len(await items.asearch(("c",), limit=50)) == 20
        for key in "m":
            items.delete(("a", "b"), key)
        await asyncio.gather(*(items.adelete(("c",), str(n)) for n in range(20)))
        assert await items.asearch(()) == []

    async def over_both() -> None:
        for commit in ("thread", "inline"):
            async with holdfast.open(url, commit=commit, **options) as store:
                await asyncio.wait_for(use(HoldfastStore(store)), 60)
        with sync.open(url, **options) as blocking:
            await asyncio.wait_for(use(HoldfastStore(blocking)), 60)
        async with HoldfastStore.open(url, **options) as items:
            await asyncio.wait_for(use(items), 60)

    asyncio.run(over_both())


def test_open_closes_what_it_opened(place: tuple[str, dict[str, Any]]) -> None:
    url, options = place
    with HoldfastStore.open(url, **options) as items:
        items.put(("a",), "k", {"n": 1})
    with pytest.raises(holdfast.errors.StoreClosedError):
        items.get(("a",), "k")
    with pytest.raises(InvalidInputError), HoldfastStore.open(url, index={"dims": 0}, **options):
        pass


# several processes

CHILD = """
import sys
from holdfast.integrations.langgraph.store.langgraph_store import HoldfastStore
url, key = sys.argv[1:3]
with HoldfastStore.open(url, key=key or None, durability="normal") as items:
    assert [hit.value for hit in items.search(("shared",))] == [{"n": 1}]
    for line in sys.stdin:
        name, number = line.split()
        if number == "none":
            items.delete(("shared",), name)
        else:
            items.put(("shared",), name, {"n": int(number)})
        print(sorted((hit.key, hit.value["n"]) for hit in items.search(("shared",))), flush=True)
"""


@pytest.mark.parametrize("sealed", [False, True])
def test_the_next_search_sees_what_another_process_wrote(tmp_path: Path, sealed: bool) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    url = f"sqlite:{folder / 'store.db'}"
    key = f"file:{tmp_path / 'master.key'}" if sealed else None
    source = str(Path(holdfast.__file__).parents[1])
    with HoldfastStore.open(url, key=key, durability="normal") as items:
        items.put(("shared",), "mine", {"n": 1})
        items.put(("elsewhere",), "mine", {"n": 5})
        assert found(items, "shared") == ["mine"]
        child = subprocess.Popen(
            [sys.executable, "-c", CHILD, url, key or ""],
            env={**os.environ, "PYTHONPATH": source},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        with child:
            assert child.stdin is not None
            assert child.stdout is not None
            for line in ["theirs 2", "mine 3", "mine none", "theirs 4"]:
                child.stdin.write(line + "\n")
                child.stdin.flush()
                answer = child.stdout.readline().strip()
                hits = items.search(("shared",))
                assert str(sorted((hit.key, hit.value["n"]) for hit in hits)) == answer
                items.put(("elsewhere",), line, {"n": 1})
        assert child.returncode == 0
        assert len(items.search(("elsewhere",))) == 5
