"""Ephemeral keys: they live in the process only."""

from __future__ import annotations

import asyncio
import os
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from store_kit import Place, rows_of

import holdfast
from holdfast import Ephemeral, Sticky, sync
from holdfast.errors import Conflict, InvalidInputError, LimitExceededError
from holdfast.store.rules import ephemeral

LONG = [{"n": n, "text": "x" * 50} for n in range(300)]


@pytest.fixture
def state(store: sync.Store) -> sync.State:
    state = store.agent("1")
    state.declare(Ephemeral("tmp/"))
    return state


def test_they_are_read_like_any_other(state: sync.State) -> None:
    state.set("k", 1)
    head = state._handle.place()
    version = state.set("tmp/a", {"n": 1})
    state.set("tmp/long", LONG)
    state.append("tmp/list", 1)
    state.extend("tmp/list", [2, 3])
    assert state._handle.place() == head, "no entry comes of it"
    assert state.get("tmp/a") == {"n": 1}
    assert state.get("tmp/long") == LONG
    assert state.get("tmp/no", 7) == 7
    assert (state.exists("tmp/a"), state.exists("tmp/no")) == (True, False)
    assert state.keys() == ["k", "tmp/a", "tmp/list", "tmp/long"]
    assert state.keys("tmp/", limit=2) == ["tmp/a", "tmp/list"]
    assert state.keys(after="tmp/a") == ["tmp/list", "tmp/long"]
    assert dict(state.items("tmp/l")) == {"tmp/list": [1, 2, 3], "tmp/long": LONG}
    assert state.get_many(["k", "tmp/a"]) == {"k": 1, "tmp/a": {"n": 1}}
    assert (state.tail("tmp/list", 2), state.length("tmp/list")) == ([2, 3], 3)
    assert state.slice("tmp/long", 1, 3) == LONG[1:3]
    item = state.item("tmp/a")
    assert item is not None
    assert item.version == version
    assert abs((item.time - datetime.now(UTC)).total_seconds()) < 60
    assert state.update("tmp/count", lambda n: n + 1, 0) == 1
    assert state.update("tmp/count", lambda n: n + 1, 0) == 2
    assert state.delete("tmp/a")
    assert not state.delete("tmp/a")
    assert state.get("tmp/a") is None
    assert state._handle.place() == head


def test_what_is_returned_belongs_to_the_caller(state: sync.State) -> None:
    mine = [1, 2]
    state.set("tmp/a", mine)
    mine.append(3)
    state.get("tmp/a").append(4)
    assert state.get("tmp/a") == [1, 2]


def test_versions(state: sync.State) -> None:
    version = state.set("tmp/a", 1)
    with pytest.raises(Conflict):
        state.set("tmp/a", 2, if_version=0)
    later = state.set("tmp/a", 2, if_version=version)
    assert later > version
    with pytest.raises(Conflict):
        state.delete("tmp/a", if_version=version)
    assert state.delete("tmp/a", if_version=later)
    assert state.set("tmp/a", 3, if_version=0) > later


@pytest.mark.spec("L120")
def test_nobody_else_sees_them_and_nothing_is_stored(place: Place) -> None:
    mine, theirs = (place.open().agent("1") for _ in range(2))
    mine.declare(Ephemeral("tmp/"))
    mine.set("k", 1)
    before = everything(place)
    mine.set("tmp/needle-key", "needle-value" * 100)
    mine.append("tmp/needle-list", {"needle-item": 1})
    assert everything(place) == before
    mine.checkpoint("safe")
    assert theirs.keys() == ["k"]
    theirs.set("tmp/theirs", 1)
    assert mine.keys() == ["k", "tmp/needle-key", "tmp/needle-list"]
    assert mine.at("safe").keys() == ["k"]
    assert mine.fork("trial").keys() == ["k"]
    assert not mine.diff(2)
    again = place.reopen().agent("1")
    assert again.keys() == ["k"]
    assert place.open().verify().findings == []
    place.close()
    for path in place.folder.rglob("*"):
        if path.is_file():
            assert b"needle" not in path.read_bytes()


def everything(place: Place) -> list[tuple[bytes, bytes]]:
    storage = place.storage()
    return [pair for kind in range(ord("A"), ord("Z")) for pair in rows_of(storage, bytes([kind]))]


def test_a_change_of_both_kinds(place: Place) -> None:
    store, counting = place.open_counting()
    state = store.agent("1")
    state.declare(Ephemeral("tmp/"))
    with state.change() as change:
        change.set("k", 1)
        change.set("tmp/a", 1)
        change.append("tmp/a2", "x")
        assert change.get("tmp/a") == 1
        assert state.get("tmp/a") is None, "not before the commit"
    assert state.log(limit=1)[0].keys == ("k",)
    assert (state.get("k"), state.get("tmp/a"), state.get("tmp/a2")) == (1, 1, ["x"])

    with pytest.raises(RuntimeError), state.change() as change:
        change.set("k", 2)
        change.set("tmp/a", 2)
        raise RuntimeError
    with pytest.raises(Conflict), state.change() as change:
        change.set("tmp/a", 2)
        change.set("k", 2, if_version=99)
    with pytest.raises(InvalidInputError, match="not a list"), state.change() as change:
        change.set("k", 2)
        change.append("tmp/a", 2)
    assert (state.get("k"), state.get("tmp/a")) == (1, 1), "all or nothing"

    with pytest.raises(Conflict), state.change() as change:
        change.set("k", change.get("tmp/a") + 1)
        state.set("tmp/a", 5)
    with store.change() as both:
        both[state].set("tmp/a", 6)
        both[store.agent("2")].set("k", 1)
    assert [str(one.scope) for one in both.entries] == ["agent:2"]
    assert state.get("tmp/a") == 6
    with store.change() as none:
        none[state].set("tmp/a", 7)
    assert none.entries == []
    assert counting.applied >= 3


def test_a_change_that_is_repeated_is_not_applied_again(state: sync.State) -> None:
    for _ in range(2):
        with state.change(id="once") as change:
            change.append("tmp/list", 1)
            change.append("list", 1)
    assert (state.get("tmp/list"), state.get("list")) == ([1], [1])


def test_a_restore_ends_them(place: Place) -> None:
    mine, theirs = (place.open().agent("1") for _ in range(2))
    mine.declare(Ephemeral("tmp/"))
    safe = mine.checkpoint("safe")
    mine.set("tmp/a", 1)
    theirs.set("tmp/b", 1)
    mine.restore(safe)
    assert mine.keys() == []
    assert theirs.keys() == [], "also where another process restored"
    mine.set("tmp/a", 2)
    assert mine.get("tmp/a") == 2


def test_declaring_and_taking_back(state: sync.State) -> None:
    state.set("cache/a", 1)
    with pytest.raises(InvalidInputError, match="delete them"):
        state.declare(Ephemeral("cache/"))
    state.delete("cache/a")
    state.declare(Ephemeral("cache/"), Sticky("tmp/x"))
    state.set("cache/a", 2)
    state.set("tmp/a", 1)
    assert state.undeclare(Ephemeral("cache/")) == 1
    assert state.keys() == ["tmp/a"]
    state.set("cache/a", 3)
    assert state.log(limit=1)[0].keys == ("cache/a",)
    state.set("tmp/a", 2)
    state.undeclare(Ephemeral("tmp/"))
    state.declare(Ephemeral("tmp/"))
    assert not state.exists("tmp/a"), "what was taken back does not come back with the rule"
    with pytest.raises(InvalidInputError, match=r"\$declared/"):
        Ephemeral("$dec")
    with pytest.raises(InvalidInputError, match="declarations"):
        Ephemeral("")


def test_a_writer_that_is_late_does_not_store(place: Place) -> None:
    """Its change is built after the other's declaration is known, whatever it knew before."""
    mine, theirs = (place.open().agent("1") for _ in range(2))
    theirs.set("k", 1)
    plan = theirs._handle.plan_set("tmp/needle", "needle", None)
    mine.declare(Ephemeral("tmp/"))
    theirs._handle.core.run(plan[0])
    assert theirs.get("tmp/needle") == "needle"
    assert mine.keys() == ["k"]


def test_a_deleted_scope_takes_them_along(place: Place) -> None:
    store = place.open()
    state = store.agent("1")
    state.declare(Ephemeral("tmp/"))
    state.set("tmp/a", 1)
    (store.erase if place.sealed else store.delete)("agent:1")
    assert state.keys() == []
    assert store._core.ephemerals._bytes == 0
    state.declare(Ephemeral("tmp/"))
    assert state.keys() == []


def test_they_are_bounded(state: sync.State, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ephemeral, "MOST_BYTES", 10_000)
    state.set("tmp/a", "x" * 6000)
    with pytest.raises(LimitExceededError, match="ephemeral"):
        state.set("tmp/b", "x" * 6000)
    assert state.keys() == ["tmp/a"]
    state.set("tmp/a", "y" * 6000)
    state.set("tmp/a", 1)
    state.set("tmp/b", "x" * 6000)
    for _ in range(5):
        state.delete("tmp/b")
        state.set("tmp/b", "x" * 6000)


def test_threads_lose_nothing(state: sync.State) -> None:
    def work() -> None:
        for _ in range(50):
            state.update("tmp/count", lambda n: n + 1, 0)
            state.append("tmp/list", 1)
            state.set("k", 1)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert state.get("tmp/count") == 200
    assert state.length("tmp/list") == 200


def test_async_face(place: Place) -> None:
    async def main() -> None:
        async with holdfast.open(place.url, **place.options()) as store:
            state = store.agent("1")
            await state.declare(Ephemeral("tmp/"))
            await asyncio.gather(*(state.append("tmp/a", n) for n in range(50)))
            assert await state.length("tmp/a") == 50
            async with state.change() as change:
                change.set("tmp/b", await change.get("tmp/a"))
            assert await state.get("tmp/b") == await state.get("tmp/a")
            assert state._handle.place()[2] == 1

    asyncio.run(main())


KEYS = st.sampled_from(["a", "tmp/a", "tmp/b", "u/a", "z"])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("set"), KEYS),
        st.tuples(st.just("append"), KEYS),
        st.tuples(st.just("delete"), KEYS),
        st.tuples(st.just("restore"), st.just("")),
        st.tuples(st.just("reopen"), st.just("")),
        st.tuples(st.just("change"), KEYS),
    ),
    max_size=30,
)


@settings(max_examples=40)
@given(STEPS)
def test_against_a_plain_model(steps: list[tuple[str, str]]) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        place = Place("memory", Path(folder), sealed=False)
        held = place.open()
        try:
            _check_steps(place, steps)
        finally:
            held.close()
            place.close()


def _check_steps(place: Place, steps: list[tuple[str, str]]) -> None:
    state = place.open().agent("1")
    state.declare(Ephemeral("tmp/"), Ephemeral("u/"))
    safe = state.checkpoint("empty")
    now: dict[str, Any] = {}
    for number, (kind, key) in enumerate(steps):
        if kind == "set":
            state.set(key, [number])
            now[key] = [number]
        elif kind == "append":
            state.append(key, number)
            now[key] = [*now.get(key, []), number]
        elif kind == "delete":
            assert state.delete(key) == (now.pop(key, None) is not None)
        elif kind == "restore":
            state.restore(safe)
            now = {}
        elif kind == "reopen":
            state = place.open().agent("1")
            now = {key: value for key, value in now.items() if not key.startswith(("tmp/", "u/"))}
        else:
            with state.change() as change:
                change.append(key, change.length(key))
                change.set("tmp/a", [change.get("a")])
            now[key] = [*now.get(key, []), len(now.get(key, []))]
            now["tmp/a"] = [now.get("a")]
        assert state.items() == sorted(now.items())


@pytest.mark.parametrize("meanwhile", [False, True])
def test_a_long_value_is_not_stored_under_an_ephemeral_key(
    place: Place, monkeypatch: pytest.MonkeyPatch, meanwhile: bool
) -> None:
    """Nor a part of it, unless its writing began before that was declared: then it ends with it."""
    monkeypatch.setattr("holdfast.store.long.SHORT", 10)
    store = place.open()
    state = store.agent("1")
    state.set("k", 1)
    if not meanwhile:
        state.declare(Ephemeral("tmp/"))
    file = state.open_write("tmp/x")
    if meanwhile:
        file.write(os.urandom(400_000))
        state.declare(Ephemeral("tmp/"))
    with pytest.raises(InvalidInputError, match="ephemeral"):
        file.write(os.urandom(400_000))
        file.close()
    assert not list(rows_of(store._core.storage, b"V"))
    file.abort()
    assert state.keys("tmp/") == []
    assert store.verify().unfinished == 0
    with state.open_write("tmp/x") as short:
        short.write(b"x" * 9)
    assert state.get("tmp/x") == b"x" * 9
