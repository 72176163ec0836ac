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
from holdfast import sync
from holdfast.agents import StepResult
from holdfast.agents import agent_registry as registry
from holdfast.errors import InvalidInputError
from holdfast.store.lease import Asking
from holdfast.sync.agents import Agents

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
        until(lambda: agents._closed)
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
        return sync.agents.Loop(*given, **named)

    monkeypatch.setattr(registry, "Loop", closing)
    with pytest.raises(InvalidInputError, match="these Agents are closed"):
        agents.run("7", signals=())
    assert agents.loops() == {}


def test_a_loop_that_ends_by_itself_meanwhile_is_no_error(store: sync.Store) -> None:
    over = threading.Event()

    class Slow(Kept):
        def validate_state(self) -> None:
            if agents._closed:  # while this one is stopped, the other ends
                over.set()
                until(lambda: not agents.loops())

    class Working(Kept):
        def step(self) -> StepResult:
            return StepResult(done=over.wait(LIMIT))

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


def test_agents_that_all_close_in_their_steps_wait_for_no_other(store: sync.Store) -> None:
    both = threading.Barrier(2)

    class Closing(Kept):
        def step(self) -> StepResult:
            both.wait(LIMIT)
            agents.close()
            return StepResult()

    agents = made(store, Closing)
    agents.register("8", kind="kept")
    with ThreadPoolExecutor() as pool:
        runs = [pool.submit(agents.run, id, signals=()) for id in ("7", "8")]
        assert [run.result(LIMIT).outcome for run in runs] == ["stopped", "stopped"]


@pytest.mark.parametrize("how", ["itself", "a task"])
def test_the_async_face_waits_for_none_that_closes(how: str) -> None:
    async def main() -> None:
        async with holdfast.open("memory:") as store:
            both = 0
            begun = asyncio.Event()

            class Closing:
                async def step(self) -> StepResult:
                    nonlocal both
                    both += 1
                    if both == 2:
                        begun.set()
                    await begun.wait()
                    if how == "itself":
                        await agents.close()
                    else:
                        await asyncio.create_task(agents.close())
                    return StepResult()

            agents = holdfast.agents.Agents(store, {"closing": lambda _: Closing()})
            for id in ("7", "8"):
                await agents.register(id, kind="closing")
            runs = [agents.run(id, signals=()) for id in ("7", "8")]
            ended = await asyncio.gather(*runs)
            assert [one.outcome for one in ended] == ["stopped", "stopped"]

    asyncio.run(asyncio.wait_for(main(), LIMIT))


def test_agents_that_are_made_or_stopped_may_ask_for_others() -> None:
    async def main() -> None:
        async with holdfast.open("memory:") as store:

            class Boss(Kept):
                def __init__(self, helpers: list[Kept]) -> None:
                    super().__init__()
                    self.helpers = helpers

                async def validate_state(self) -> None:
                    if agents._blocking._closed:
                        await agents.get("late")

            async def boss(_: Any) -> Boss:
                one = await agents.get("1")
                return Boss([one, *await asyncio.gather(*map(agents.get, "1223"))])

            kinds: dict[str, Any] = {"kept": lambda _: Kept(), "boss": boss}
            agents = holdfast.agents.Agents(store, kinds, fields={name: ["x"] for name in kinds})
            for id in (*"123", "late"):
                await agents.register(id, kind="kept")
            await agents.register("boss", kind="boss")
            made, beside = await asyncio.gather(agents.get("boss"), agents.get("3"))
            assert made.helpers == [(await agents.get(id)) for id in "11223"]
            assert beside is made.helpers[-1]
            with pytest.raises(InvalidInputError, match="these Agents are closed"):
                await agents.close()
            assert agents.running() == {}

    asyncio.run(asyncio.wait_for(main(), LIMIT))


def test_a_close_that_was_cut_short_can_be_done_again(store: sync.Store) -> None:
    cut: list[int] = []

    class Slow(Kept):
        def validate_state(self) -> None:
            if self.x and not cut:
                cut.append(1)
                raise KeyboardInterrupt

    agents = made(store, Slow)
    agents.get("7").x = 5
    with pytest.raises(KeyboardInterrupt):
        agents.close()
    assert list(agents.running()) == ["7"]
    agents.close()
    assert agents.running() == {}
    assert made(store).get("7").x == 5


def test_a_cancelled_close_can_be_done_again() -> None:
    async def main() -> None:
        async with holdfast.open("memory:") as store:
            begun = asyncio.Event()

            class Slow(Kept):
                async def validate_state(self) -> None:
                    if self.x and not begun.is_set():
                        begun.set()
                        await asyncio.Event().wait()

            agents = holdfast.agents.Agents(
                store, {"slow": lambda _: Slow()}, fields={"slow": ["x"]}
            )
            await agents.register("7", kind="slow")
            (await agents.get("7")).x = 5
            closing = asyncio.create_task(agents.close())
            await begun.wait()
            closing.cancel()
            with pytest.raises(asyncio.CancelledError):
                await closing
            assert list(agents.running()) == ["7"]
            await agents.close()
            assert agents.running() == {}
            async with holdfast.agents.Agents(
                store, agents._blocking._kinds, fields={"slow": ["x"]}
            ) as more:
                assert (await more.get("7")).x == 5

    asyncio.run(asyncio.wait_for(main(), LIMIT))


def test_the_async_face(waits: threading.Event) -> None:
    async def main() -> None:
        async with holdfast.open("memory:") as store:
            over = asyncio.Event()

            class Slow(Kept):
                async def validate_state(self) -> None:
                    if agents._blocking._closed:
                        over.set()
                        await until_async(lambda: not agents.loops())

            class Working(Kept):
                async def step(self) -> StepResult:
                    await over.wait()
                    return StepResult(done=True)

            kinds: dict[str, Any] = {"slow": lambda _: Slow(), "working": lambda _: Working()}
            fields = {name: ["x"] for name in kinds}
            agents, other = (holdfast.agents.Agents(store, kinds, fields=fields) for _ in range(2))
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

            agents = holdfast.agents.Agents(store, {"kept": make}, fields={"kept": ["x"]})
            await agents.register("7", kind="kept")
            spawned = asyncio.create_task(agents.spawn("7"))
            await begun.wait()
            closed = asyncio.create_task(agents.close())
            await until_async(lambda: agents._blocking._closed)
            go.set()
            await closed
            assert agents.running() == {}
            assert (await spawned).status == "stopped"

    asyncio.run(asyncio.wait_for(main(), LIMIT))


def test_what_makes_an_agent_may_close_all(store: sync.Store) -> None:
    def make() -> Kept:
        agents.close()
        return Kept()

    agents = made(store, make)
    assert agents.spawn("7").status == "stopped"
    assert agents.running() == {}
    assert made(store).spawn("7").agent.x == 0


def test_the_async_face_lets_what_makes_an_agent_close_all() -> None:
    async def main() -> None:
        async with holdfast.open("memory:") as store:

            async def make(_: Any) -> Kept:
                await asyncio.create_task(agents.close())
                return Kept()

            agents = holdfast.agents.Agents(store, {"kept": make}, fields={"kept": ["x"]})
            await agents.register("7", kind="kept")
            assert (await agents.spawn("7")).status == "stopped"
            assert agents.running() == {}

    asyncio.run(asyncio.wait_for(main(), LIMIT))


def test_a_task_that_outlives_the_making_of_an_agent_is_waited_for() -> None:
    async def main() -> None:
        async with holdfast.open("memory:") as store:
            begun, go = asyncio.Event(), asyncio.Event()
            tasks: list[asyncio.Task[Any]] = []

            async def first(_: Any) -> Kept:
                tasks.append(asyncio.create_task(agents.spawn("slow")))
                await begun.wait()
                raise LookupError

            async def slow(_: Any) -> Kept:
                begun.set()
                await go.wait()
                return Kept()

            kinds: dict[str, Any] = {"first": first, "slow": slow}
            agents = holdfast.agents.Agents(store, kinds, fields={name: ["x"] for name in kinds})
            for id in kinds:
                await agents.register(id, kind=id)
            with pytest.raises(LookupError):
                await agents.spawn("first")
            closed = asyncio.create_task(agents.close())
            for _ in range(100):  # nothing else would keep it from ending
                await asyncio.sleep(0)
            assert not closed.done()
            go.set()
            await closed
            assert agents.running() == {}
            assert (await tasks[0]).status == "stopped"

    asyncio.run(asyncio.wait_for(main(), LIMIT))
