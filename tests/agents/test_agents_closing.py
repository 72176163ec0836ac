"""Agents that are closed while others spawn, run and end some: none runs on."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import holdfast
from holdfast import Worked, sync
from holdfast.agents import registry
from holdfast.errors import InvalidInputError
from holdfast.store.asking import Asking
from holdfast.sync import Agents

LIMIT = 60.0
"""Seconds after which a test that hangs ends."""


class Kept:
    def __init__(self) -> None:
        self.x = 0


def until(condition: Callable[[], Any]) -> None:
    end = time.monotonic() + LIMIT
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


async def until_async(condition: Callable[[], Any]) -> None:
    await asyncio.to_thread(until, condition)


def made(store: sync.Store, make: Callable[[], Any] = Kept) -> Agents:
    agents = Agents(store, {"kept": lambda _: make()}, fields={"kept": ["x"]})
    agents.register("7", kind="kept")
    return agents


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Set once somebody waits for a lease."""
    found, take = threading.Event(), Asking.take

    def noted(self: Asking) -> Any:
        lease = take(self)
        if lease is None:
            found.set()
        return lease

    monkeypatch.setattr(Asking, "take", noted)
    return found


def test_who_waits_to_spawn_one_is_refused(store: sync.Store, waits: threading.Event) -> None:
    agents, other = made(store), made(store)
    other.spawn("7")
    with ThreadPoolExecutor() as pool:
        spawned = pool.submit(agents.spawn, "7", wait=LIMIT)
        assert waits.wait(LIMIT)
        agents.close()
        with pytest.raises(InvalidInputError, match="these Agents are closed"):
            spawned.result(LIMIT)
    other.close()
    assert agents.running() == {}
    assert made(store).spawn("7").agent.x == 0


def test_one_that_is_just_being_made_is_stopped(store: sync.Store) -> None:
    begun, go = threading.Event(), threading.Event()

    def make() -> Kept:
        begun.set()
        assert go.wait(LIMIT)
        return Kept()

    agents = made(store, make)
    with ThreadPoolExecutor() as pool:
        spawned = pool.submit(agents.spawn, "7")
        assert begun.wait(LIMIT)
        closed = pool.submit(agents.close)
        until(lambda: agents._core.closed)
        go.set()
        closed.result(LIMIT)
        assert agents.running() == {}
        assert spawned.result(LIMIT).status == "stopped"
    assert made(store).spawn("7").agent.x == 0


def test_a_loop_that_is_about_to_run_does_not(
    store: sync.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    agents = made(store)

    def closing(*given: Any, **named: Any) -> Any:
        agents.close()
        return sync.Loop(*given, **named)

    monkeypatch.setattr(registry, "Loop", closing)
    with pytest.raises(InvalidInputError, match="these Agents are closed"):
        agents.run("7", signals=())
    assert agents.loops() == {}


def test_a_loop_that_ends_by_itself_meanwhile_is_no_error(store: sync.Store) -> None:
    over = threading.Event()

    class Slow(Kept):
        def validate_state(self) -> None:
            if agents._core.closed:  # while this one is stopped, the other ends
                over.set()
                until(lambda: not agents.loops())

    class Working(Kept):
        def step(self) -> Worked:
            return Worked(done=over.wait(LIMIT))

    kinds: dict[str, Any] = {"slow": lambda _: Slow(), "working": lambda _: Working()}
    agents = Agents(store, kinds, fields={name: ["x"] for name in kinds})
    for id in kinds:
        agents.register(id, kind=id)
    agents.spawn("slow")
    with ThreadPoolExecutor() as pool:
        ran = pool.submit(agents.run, "working", signals=())
        until(agents.loops)
        agents.close()
        assert ran.result(LIMIT).outcome == "done"
    assert (agents.running(), agents.loops()) == ({}, {})


def test_the_async_face(waits: threading.Event) -> None:
    async def main() -> None:
        async with holdfast.open("memory:") as store:
            over = asyncio.Event()

            class Slow(Kept):
                async def validate_state(self) -> None:
                    if agents._core.closed:
                        over.set()
                        await until_async(lambda: not agents.loops())

            class Working(Kept):
                async def step(self) -> Worked:
                    await over.wait()
                    return Worked(done=True)

            kinds: dict[str, Any] = {"slow": lambda _: Slow(), "working": lambda _: Working()}
            fields = {name: ["x"] for name in kinds}
            agents, other = (holdfast.Agents(store, kinds, fields=fields) for _ in range(2))
            for id, kind in (("1", "slow"), ("2", "working"), ("3", "slow")):
                await agents.register(id, kind=kind)
            await agents.spawn("1")
            await other.spawn("3")
            ran = asyncio.create_task(agents.run("2", signals=()))
            spawned = asyncio.create_task(agents.spawn("3", wait=LIMIT))
            await until_async(lambda: agents.loops() and waits.is_set())
            await agents.close()
            with pytest.raises(InvalidInputError, match="these Agents are closed"):
                await spawned
            assert (await ran).outcome == "done"
            await other.stop("3")
            assert (agents.running(), agents.loops()) == ({}, {})

    asyncio.run(asyncio.wait_for(main(), 2 * LIMIT))


def test_the_async_face_stops_one_that_is_just_being_made() -> None:
    async def main() -> None:
        async with holdfast.open("memory:") as store:
            begun, go = asyncio.Event(), asyncio.Event()

            async def make(_: Any) -> Kept:
                begun.set()
                await go.wait()
                return Kept()

            agents = holdfast.Agents(store, {"kept": make}, fields={"kept": ["x"]})
            await agents.register("7", kind="kept")
            spawned = asyncio.create_task(agents.spawn("7"))
            await begun.wait()
            closed = asyncio.create_task(agents.close())
            await until_async(lambda: agents._core.closed)
            go.set()
            await closed
            assert agents.running() == {}
            assert (await spawned).status == "stopped"

    asyncio.run(asyncio.wait_for(main(), LIMIT))
