"""The async face: the same store, without holding the loop."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import random
import string
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from store_kit import Place

import holdfast
from holdfast import sync
from holdfast.errors import (
    ChangeIdError,
    Conflict,
    InvalidInputError,
    LimitExceededError,
    ReadOnlyError,
    StoreClosedError,
)
from holdfast.store import state, state_async, store_async
from holdfast.store import store as blocking
from holdfast.store.names.face import asynchronous
from holdfast.store.read.change_block import ScopedChange

_letters = random.Random(5).choices(string.ascii_letters, k=1_800_000)
HUGE = {"".join(_letters[n : n + 200]): n for n in range(0, len(_letters), 200)}
"""A mapping whose names do not fit into one entry."""
Test = Callable[[holdfast.Store], Coroutine[Any, Any, None]]


@pytest.fixture(params=["inline", "thread"])
def go(request: pytest.FixtureRequest, place: Place) -> Callable[[Test], None]:
    """Runs a coroutine with an open store, once for each place where commits may run."""

    def run(test: Test) -> None:
        async def main() -> None:
            options = place.options(commit=request.param)
            async with holdfast.open(place.url, **options) as store:
                await test(store)

        asyncio.run(main())

    return run


@pytest.mark.spec("M38", "M39", "M40", "M121")
def test_everything_once(go: Callable[[Test], None]) -> None:
    async def test(store: holdfast.Store) -> None:
        state = store.agent("researcher-7")
        assert await state.set("plan", {"step": 3}) == 1
        assert await state.append("talk", {"role": "user"}) == 2
        assert await state.extend("talk", [1, 2]) == 3
        assert await state.get("plan") == {"step": 3}
        assert await state.get_many(["plan", "no"]) == {"plan": {"step": 3}}
        item = await state.item("plan")
        assert item is not None
        assert await state.exists("plan")
        assert await state.keys() == ["plan", "talk"]
        assert len(await state.items()) == 2
        assert await state.tail("talk", 1) == [2]
        assert await state.slice("talk", 0, 1) == [{"role": "user"}]
        assert await state.length("talk") == 3
        assert await state.update("n", lambda n: n + 1, default=0) == 1
        with pytest.raises(Conflict):
            await state.set("plan", 1, if_version=9)
        async with state.change(actor="a") as change:
            assert await change.get("plan") == {"step": 3}
            assert await change.exists("plan")
            assert await change.length("talk") == 3
            assert await change.tail("talk", 1) == [2]
            change.set("plan", {"step": 4})
            change.append("talk", 3)
            change.extend("talk", [4])
            change.delete("n")
            assert await change.keys() == ["plan", "talk"]
        async with store.change(id="h") as both:
            both[state].set("k", 1)
            both[store.agent("b")].set("k", 1)
        assert (len(both.entries), both.repeated) == (2, False)
        for value, refused in ((1, None), (2, ChangeIdError)):
            with pytest.raises(refused) if refused else contextlib.nullcontext():
                async with store.change(id="h") as again:
                    again[state].set("k", value)
                    again[store.agent("b")].set("k", 1)
            assert again.repeated is (refused is None)
        for repeated in (False, True):
            async with state.change(id="once") as change:
                change.set("once", 1)
            assert change.repeated is repeated
        await state.delete("once")
        safe = await state.checkpoint("safe", type="pre_operation", tags=["t"])
        assert await state.checkpoints(tag="t") == [safe]
        root = await state.root()
        await state.delete("plan")
        assert (await state.diff(safe)).keys == ["plan"]
        dry = await state.restore(safe, dry_run=True)
        assert dry.dry_run
        result = await state.restore(safe)
        assert await state.root() == root == result.root
        assert await state.at(safe).get("plan") == {"step": 4}
        trial = await state.fork("what-if", at=safe)
        await trial.set("plan", "other")
        await state.adopt(trial)
        assert await state.get("plan") == "other"
        assert [line.name for line in await state.timelines()] == ["main", "what-if"]
        assert (await state.log(limit=1))[0].kinds == ("restore",)
        assert await state.replay(lambda n, _: n + 1, 0) == state._handle.place()[2]
        with store.acting("x", correlation="run"):
            await state.set("k", 2)
        assert len(await store.correlated("run")) == 1
        entries = [entry async for entry in store.feed()]
        assert len(entries) == sum([state._handle.place()[2], 2, 1])
        assert entries[-1].position == await store.position()
        assert len((await store.scopes()).items) == 2
        kept = await store.agent("b").item("k")
        await store.delete("agent:b")
        await store.agent("b").set("k", "made again")
        with pytest.raises(Conflict):
            await store.agent("b").set("k", "overwritten", if_version=kept.version)
        await store.delete("agent:b")
        assert (await store.verify(expect=await store.witness())).findings == []
        assert (await store.verify(state)).entries >= state._handle.place()[2]
        assert (await store.stats())["scopes"] == 1
        assert store.identity()

    go(test)


def test_many_tasks_at_once(go: Callable[[Test], None]) -> None:
    async def test(store: holdfast.Store) -> None:
        async def work(mine: int) -> None:
            with store.acting(f"task-{mine}"):
                for number in range(10):
                    await store.shared.append("l", [mine, number])
                    await store.agent(str(mine)).set("k", number)
                    assert await store.agent(str(mine)).get("k") == number

        await asyncio.gather(*(work(mine) for mine in range(20)))
        found = await store.shared.get("l")
        assert len(found) == 200
        for mine in range(20):
            assert [n for who, n in found if who == mine] == list(range(10))
        log = await store.shared.log(limit=None)
        assert {entry.cause.actor for entry in log} == {f"task-{n}" for n in range(20)}
        assert (await store.verify()).findings == []

    go(test)


def test_one_that_fails_fails_alone(go: Callable[[Test], None]) -> None:
    """Changes that are committed together do not share their errors."""

    async def test(store: holdfast.Store) -> None:
        state = store.agent("1")
        await state.set("k", 0)
        results = await asyncio.gather(
            state.set("a", 1),
            state.set("k", 1, if_version=99),
            state.set("b", HUGE),
            state.append("k", 1),
            state.set("c", 1),
            store.agent("2").set("k", 1),
            return_exceptions=True,
        )
        assert [type(result) for result in results] == [
            int,
            Conflict,
            LimitExceededError,
            InvalidInputError,
            int,
            int,
        ]
        assert await state.items() == [("a", 1), ("c", 1), ("k", 0)]
        assert (await store.verify()).findings == []

    go(test)


def test_tasks_that_update_one_key(go: Callable[[Test], None]) -> None:
    async def test(store: holdfast.Store) -> None:
        await asyncio.gather(
            *(store.shared.update("n", lambda n: n + 1, default=0) for _ in range(30))
        )
        assert await store.shared.get("n") == 30

    go(test)


def test_what_was_meant_is_what_it_was_when_asked(go: Callable[[Test], None]) -> None:
    async def test(store: holdfast.Store) -> None:
        value = {"rows": [{"n": n} for n in range(200)]}
        for _ in range(3):
            asked = asyncio.ensure_future(store.shared.set("k", value))
            await asyncio.sleep(0)
            value["rows"][0]["n"] = -1
            value["rows"].append({"n": 0})
            await asked
            assert await store.shared.get("k") == {"rows": [{"n": n} for n in range(200)]}
            value["rows"][0]["n"] = 0
            value["rows"].pop()

    go(test)


def test_a_cancelled_task(go: Callable[[Test], None]) -> None:
    """Cancelled before it is on its way, nothing was written; else all of it, and nothing hangs."""

    async def test(store: holdfast.Store) -> None:
        state = store.agent("1")
        await state.set("k", 0)
        for wait in range(4):
            before = state._handle.place()[2]
            task = asyncio.ensure_future(state.set("k", wait + 1))
            for _ in range(wait):
                await asyncio.sleep(0)
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
            now = await state.get("k")
            assert state._handle.place()[2] - before == (now == wait + 1)
            await state.set("k", 0)
        assert (await store.verify()).findings == []
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01), state.change() as change:
                change.set("k", "never")
                await asyncio.sleep(1)
        assert await state.get("k") == 0

    go(test)


def test_an_exception_in_a_block(go: Callable[[Test], None]) -> None:
    async def test(store: holdfast.Store) -> None:
        with pytest.raises(KeyError):
            async with store.agent("1").change() as change:
                change.set("k", 1)
                raise KeyError
        with pytest.raises(KeyError):
            async with store.change() as both:
                both[store.agent("1")].set("k", 1)
                raise KeyError
        assert (await store.scopes()).items == []

    go(test)


def test_several_loops_and_a_blocking_handle(place: Place) -> None:
    async def opened() -> holdfast.Store:
        return await holdfast.open(place.url, **place.options())

    store = asyncio.run(opened())
    other = place.open()
    errors: list[BaseException] = []

    async def work(mine: int) -> None:
        for number in range(25):
            await store.shared.append("l", [mine, number])
            assert [mine, number] in await store.shared.tail("l", 400)

    def loop(mine: int) -> None:
        try:
            asyncio.run(work(mine))
        except BaseException as error:
            errors.append(error)

    def block() -> None:
        for number in range(25):
            other.shared.append("l", [9, number])

    threads = [threading.Thread(target=loop, args=(mine,)) for mine in range(3)]
    threads.append(threading.Thread(target=block))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not errors
    assert other.shared.length("l") == 100
    asyncio.run(store.close())
    assert other.verify().findings == []


def test_closing(place: Place) -> None:
    async def main() -> None:
        store = await holdfast.open(place.url, **place.options())
        state = store.agent("1")
        waiting = [asyncio.ensure_future(state.append("l", number)) for number in range(5)]
        await asyncio.sleep(0)
        await store.close()
        await store.close()
        assert sorted(await asyncio.gather(*waiting)) == [1, 2, 3, 4, 5]
        with pytest.raises(StoreClosedError):
            await state.get("l")
        with pytest.raises(StoreClosedError):
            await state.set("l", 1)
        reader = await holdfast.open(place.url, **place.options(read_only=True))
        assert await reader.agent("1").get("l") == [0, 1, 2, 3, 4]
        with pytest.raises(ReadOnlyError):
            await reader.agent("1").set("l", 1)
        await reader.close()

    asyncio.run(main())


def test_where_commits_run_is_said(place: Place) -> None:
    async def main() -> None:
        with pytest.raises(InvalidInputError, match="commit"):
            await holdfast.open(place.url, **place.options(commit="nonsense"))

    asyncio.run(main())


# ---- both faces ----------------------------------------------------------------------------

FACES = {
    "State": (state_async.State, state.State),
    "View": (state_async.View, state.View),
    "Store": (store_async.Store, blocking.Store),
    "Change": (asynchronous(blocking.Change), blocking.Change),
    "ScopedChange": (state_async.ChangePart, ScopedChange),
}


def public(cls: type) -> set[str]:
    return {name for name in dir(cls) if not name.startswith("_")}


@pytest.mark.parametrize("name", FACES)
def test_both_faces_have_the_same_names_and_arguments(name: str) -> None:
    one, two = FACES[name]
    assert public(one) == public(two)
    for method in public(one):
        left, right = getattr(one, method), getattr(two, method)
        if not callable(left):
            continue
        a, b = inspect.signature(left), inspect.signature(right)
        assert list(a.parameters) == list(b.parameters), method
        for parameter in a.parameters:
            mine, other = a.parameters[parameter], b.parameters[parameter]
            assert (mine.kind, mine.default) == (other.kind, other.default), method
        assert inspect.getdoc(left) == inspect.getdoc(right), method


def test_both_ways_to_open_take_the_same_arguments() -> None:
    one, two = inspect.signature(holdfast.open), inspect.signature(sync.open)
    names = [
        name for name in one.parameters if name != "commit"
    ]  # blocking ones run where they are
    assert names == list(two.parameters)
    for name in names:
        assert one.parameters[name].default == two.parameters[name].default
