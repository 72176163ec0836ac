"""What is long is taken apart and put together on threads, not in the event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest
from store_kit import Place

import holdfast
from holdfast.errors import InvalidValueError
from holdfast.seal.codec import Codec
from holdfast.seal.registry import Registry
from holdfast.store.commit.stage import Stage
from holdfast.store.read.reader import MANY
from holdfast.store.tree.value import copied, copied_plain, is_longer

Test = Callable[[holdfast.Store], Coroutine[Any, Any, None]]
Call = Callable[[holdfast.State], Awaitable[Any]]
COUNT = 2000
"""Messages: some hundred KB together."""


@dataclass
class Note:
    text: str


REGISTRY = Registry()
REGISTRY.register(Note, name="note")


def messages(count: int = COUNT) -> list[dict[str, Any]]:
    return [
        {"n": n, "role": "user", "content": "word " * 30, "meta": {"n": n}} for n in range(count)
    ]


class Threads:
    """Which thread encodes, decodes and builds entries, and how often."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls: list[int] = []
        self.built: list[int] = []
        for name in ("decode", "encode"):
            monkeypatch.setattr(Codec, name, _noting(getattr(Codec, name), self.calls))
        for name in ("_set", "_append"):
            monkeypatch.setattr(Stage, name, _noting(getattr(Stage, name), self.built))

    async def of(self, asked: Awaitable[Any]) -> tuple[int, int]:
        """How many values something encodes and decodes in this thread, and in all."""
        self.calls.clear()
        self.built.clear()
        await asked
        return self.calls.count(threading.get_ident()), len(self.calls)


def _noting(function: Callable[..., Any], calls: list[int]) -> Callable[..., Any]:
    def noting(*args: Any, **named: Any) -> Any:
        made = function(*args, **named)
        several = len(made) if isinstance(made, list) else 1  # decoded at one stroke
        calls.extend([threading.get_ident()] * several)
        return made

    return noting


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> Threads:
    return Threads(monkeypatch)


@pytest.fixture(params=["inline", "thread"])
def go(request: pytest.FixtureRequest, place: Place) -> Callable[[Test], None]:
    """Runs a coroutine with an open store, once for each place where commits may run."""

    def run(test: Test) -> None:
        async def main() -> None:
            options = place.options(commit=request.param, registry=REGISTRY)
            async with holdfast.open(place.url, **options) as store:
                await test(store)

        asyncio.run(main())

    return run


async def _changed(state: holdfast.State) -> None:
    async with state.change() as change:
        value = await change.get("long")
        change.set("long", value[1:])
        change.extend("more", value)


READS: dict[str, Call] = {
    "get": lambda state: state.get("long"),
    "get, of the past": lambda state: state.at(state._handle.place()[2]).get("long"),
    "get, typed": lambda state: state.get("long", as_=list[dict[str, Any]]),
    "get_many": lambda state: state.get_many(["short", "long"]),
    "get_many, of an iterator": lambda state: state.get_many(iter(["short", "long"])),
    "item": lambda state: state.item("long"),
    "items": lambda state: state.items("l"),
    "items, of some length each": lambda state: state.items("some/"),
    "slice": lambda state: state.slice("long", 5),
    "tail": lambda state: state.tail("long", COUNT - 5),
}
WRITES: dict[str, Call] = {
    "set": lambda state: state.set("new", messages()),
    "set within": lambda state: state.set("new", {"all": {"messages": messages()}}),
    "set again": lambda state: state.set("long", [*messages(), {"n": -1}]),
    "append": lambda state: state.append("new", messages()),
    "extend": lambda state: state.extend("long", messages()),
    "update": lambda state: state.update("long", lambda value: value[1:]),
    "change": _changed,
}


@pytest.mark.parametrize("name", [*READS, *WRITES])
def test_what_is_long_leaves_the_loop(
    name: str, threads: Threads, go: Callable[[Test], None]
) -> None:
    async def test(store: holdfast.Store) -> None:
        state = store.agent("1")
        await state.set("short", {"n": 1})
        await state.set("long", messages())
        for number in range(20):
            await state.set(f"some/{number}", messages(50))
        here, all_ = await threads.of({**READS, **WRITES}[name](state))
        assert all_ - here > (500 if name != "set again" else 0)
        # What is small beside it is read here, and of several values the first ones.
        assert here < (500 if "some" in name else 10)
        assert bool(threads.built) == (name in WRITES)
        assert threading.get_ident() not in threads.built
        assert (await store.verify()).findings == []

    go(test)


def test_what_is_short_stays_in_the_loop(threads: Threads, go: Callable[[Test], None]) -> None:
    async def test(store: holdfast.Store) -> None:
        state = store.agent("1")
        await state.set("long", messages())
        await state.set("list", messages(20))
        calls: list[Awaitable[Any]] = [
            state.get("list"),
            state.tail("long", 50),
            state.slice("long", 10, 20),
            state.items("list"),
        ]
        for call in calls:
            here, all_ = await threads.of(call)
            assert here == all_ > 0

    go(test)


def test_they_come_back_as_they_were(go: Callable[[Test], None]) -> None:
    async def test(store: holdfast.Store) -> None:
        state, value = store.agent("1"), messages()
        value[7]["at"] = datetime(2026, 5, 4, tzinfo=UTC)
        value[8]["raw"] = b"\0\1"
        await state.set("k", value)
        assert await state.get("k") == value
        assert await state.update("k", lambda found: found[:-1]) == value[:-1]
        await state.extend("k", value[-1:])
        assert await state.slice("k", 3, -3) == value[3:-3]
        assert await state.tail("k", len(value) + 1) == value
        assert await state.tail("k", 0) == []
        async with state.change() as change:
            assert await change.get("k") == value
            change.set("k", {"in": value})
        assert await state.get("k") == {"in": value}
        assert (await store.verify()).findings == []

    go(test)


@pytest.mark.parametrize("item", [{"n": 0}, Note("x")], ids=["plain", "object"])
def test_what_was_meant_is_what_it_was_when_asked(item: Any, go: Callable[[Test], None]) -> None:
    async def test(store: holdfast.Store) -> None:
        state, meant = store.agent("1"), [*messages(), item]
        calls: list[Callable[[list[Any]], Awaitable[Any]]] = [
            lambda value: state.set("k", value),
            lambda value: state.set("k", value),
            lambda value: state.extend("l", value),
            lambda value: state.append("m", value),
        ]
        for call in calls:
            value = copied(meant)
            asked = asyncio.ensure_future(call(value))
            await asyncio.sleep(0)
            value[0]["meta"]["n"] = -1
            del value[100:]
            await asked
        found = [await state.get("k"), await state.get("l"), *await state.get("m")]
        assert found == [meant] * 3

    go(test)


def test_a_value_that_is_refused_is_refused_alike(go: Callable[[Test], None]) -> None:
    async def test(store: holdfast.Store) -> None:
        state = store.agent("1")
        for bad in (bytearray(b"x"), (1,), {1.5: 2}, object()):
            with pytest.raises(InvalidValueError, match=rf"\[{COUNT}\]\.x"):
                await state.set("k", [*messages(), {"x": bad}])
        assert await state.get("k") is None

    go(test)


class Told(holdfast.Gate):
    """Notes what it is asked and told of."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.read: list[str] = []

    def before(self, request: holdfast.GateRequest) -> None:
        self.asked += [one.key for one in request.operations]

    def reading(self, reading: holdfast.GateReading) -> None:
        self.read += reading.keys


def test_gates_are_told_once(threads: Threads, go: Callable[[Test], None]) -> None:
    async def test(store: holdfast.Store) -> None:
        state, gate = store.agent("1"), Told()
        await state.declare(holdfast.Classed("vault/", "sensitive"))
        store.add_gate(gate)
        calls: list[Call] = [
            lambda state: state.set("vault/k", messages()),
            lambda state: state.get("vault/k"),
            lambda state: state.tail("vault/k", COUNT),
            lambda state: state.items("vault/"),
            lambda state: state.update("vault/k", lambda value: value[1:]),
        ]
        for call in calls:
            here, all_ = await threads.of(call(state))
            assert here < 10 < all_
        async with state.change() as change:
            await change.get("vault/k")
            change.set("vault/k", messages())
        assert gate.asked == ["vault/k"] * 3
        assert gate.read == ["vault/k"] * 5

    go(test)


def test_many_keys(go: Callable[[Test], None]) -> None:
    async def test(store: holdfast.Store) -> None:
        state, names = store.agent("1"), [f"k/{number:05}" for number in range(MANY + 5)]
        async with state.change() as change:
            for name in names:
                change.set(name, 1)
        await state.set("l", 1)
        assert await state.keys("k/") == names
        assert await state.items("k/") == [(name, 1) for name in names]
        for limit in (0, 1, MANY - 1, MANY, MANY + 1, MANY + 5, MANY + 6, None):
            assert await state.keys("k/", limit=limit) == names[:limit]
            assert await state.keys("k/", limit=limit, after=names[2]) == names[3:][:limit]
        assert list(await state.get_many(iter(names))) == names

    go(test)


def test_a_long_read_that_is_cancelled_is_left(
    monkeypatch: pytest.MonkeyPatch, place: Place
) -> None:
    begun, go_on = threading.Event(), threading.Event()
    decode = Codec.decode

    def waiting(self: Codec, data: bytes) -> Any:
        if threading.current_thread() is not threading.main_thread():
            begun.set()
            assert go_on.wait(60)
        return decode(self, data)

    async def test() -> None:
        async with holdfast.open(place.url, **place.options()) as store:
            await store.shared.set("k", messages())
            monkeypatch.setattr(Codec, "decode", waiting)
            task = asyncio.ensure_future(store.shared.get("k"))
            assert await asyncio.to_thread(begun.wait, 60)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            go_on.set()
            assert await store.shared.get("k") == messages()

    asyncio.run(test())


def test_a_function_of_a_long_update_has_its_end(place: Place) -> None:
    begun, go_on, ended = threading.Event(), threading.Event(), threading.Event()

    def slowly(value: list[Any]) -> list[Any]:
        begun.set()
        assert go_on.wait(60)
        ended.set()
        return value[1:]

    async def test() -> None:
        async with holdfast.open(place.url, **place.options()) as store:
            await store.shared.set("k", messages())
            task = asyncio.ensure_future(store.shared.update("k", slowly))
            assert await asyncio.to_thread(begun.wait, 60)
            for _ in range(3):
                task.cancel()
                await asyncio.sleep(0)
            assert not task.done()
            go_on.set()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert ended.is_set()
            assert await store.shared.get("k") == messages()

    asyncio.run(test())


def test_a_short_write_beside_a_long_one_does_not_hold_the_loop(
    monkeypatch: pytest.MonkeyPatch, go: Callable[[Test], None]
) -> None:
    begun, go_on = threading.Event(), threading.Event()
    build = Stage._set

    def waiting(*args: Any) -> Any:
        if args[2] == "long":
            begun.set()
            assert go_on.wait(60)
        return build(*args)

    async def test(store: holdfast.Store) -> None:
        a, b = store.agent("a"), store.agent("b")
        await b.set("short", 0)
        monkeypatch.setattr(Stage, "_set", waiting)
        long = asyncio.ensure_future(a.set("long", messages()))
        assert await asyncio.to_thread(begun.wait, 60)
        short = asyncio.ensure_future(b.set("short", 1))
        for _ in range(5):
            await asyncio.sleep(0)
        assert await b.get("short") == 0
        assert not go_on.is_set()
        go_on.set()
        await asyncio.gather(long, short)
        assert [await a.get("long"), await b.get("short")] == [messages(), 1]
        await b.set("short", 2)

    go(test)


def test_how_long_a_value_is() -> None:
    itself: list[Any] = []
    itself.append(itself)
    assert not is_longer(itself, 1 << 16)
    assert not is_longer({"a": "x" * 100, "b": [1, 2.5, None, True]}, 200)
    assert is_longer({"a": ["x" * 201]}, 200)
    assert is_longer([{}] * 201, 200)
    assert is_longer([Note("")] * 20, 1000)
    assert is_longer(b"x" * 201, 200)


def test_a_plain_copy() -> None:
    value = {"a": [1, {"b": [b"x"]}], "c": datetime(2026, 1, 1, tzinfo=UTC)}
    made = copied_plain(value)
    assert made == value
    assert made is not None
    assert made["a"] is not value["a"]
    assert made["a"][1]["b"] is not value["a"][1]["b"]
    for part in (Note("x"), bytearray(b"x"), (1,), {1}):
        assert copied_plain([part]) is None
