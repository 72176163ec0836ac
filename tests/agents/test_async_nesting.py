"""The lock that may be taken again: nobody else is in while whoever had it, or its tasks, are."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any

import pytest

from holdfast.agents.lock_async import NestingLock

LIMIT = 60.0
"""Seconds after which a test that hangs ends."""


def run(main: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(main, LIMIT))


async def settled() -> None:
    """All that can go on without anybody else has done so."""
    for _ in range(50):
        await asyncio.sleep(0)


class Nested:
    """Blocks in each other, each in a task that the one around it has begun."""

    def __init__(self, lock: NestingLock, depth: int) -> None:
        self._lock = lock
        self._ends = [asyncio.get_running_loop().create_future() for _ in range(depth)]
        self._tasks: list[asyncio.Task[None]] = []
        self._inside = asyncio.Event()

    async def begin(self) -> None:
        self._tasks.append(asyncio.create_task(self._block(0)))
        await self._inside.wait()

    async def _block(self, number: int) -> None:
        async with self._lock.held():
            if number + 1 < len(self._ends):
                self._tasks.append(asyncio.create_task(self._block(number + 1)))
            else:
                self._inside.set()
            await self._ends[number]

    async def end(self, number: int, how: str = "well") -> None:
        if how == "cancelled":
            self._tasks[number].cancel()
        elif how == "error":
            self._ends[number].set_exception(ValueError())
        else:
            self._ends[number].set_result(None)
        with suppress(ValueError, asyncio.CancelledError):
            await self._tasks[number]


async def taken(lock: NestingLock, told: list[str]) -> None:
    async with lock.held():
        told.append("in")


@pytest.mark.parametrize("how", ["well", "error", "cancelled"])
@pytest.mark.parametrize("order", [(0,), (0, 1), (1, 0), (0, 1, 2), (2, 0, 1), (1, 2, 0, 3)])
def test_the_last_one_out_lets_others_in(order: tuple[int, ...], how: str) -> None:
    async def main() -> None:
        lock, told = NestingLock(), list[str]()
        nested = Nested(lock, len(order))
        await nested.begin()
        other = asyncio.create_task(taken(lock, told))
        for number in order:
            await settled()
            assert told == []
            await nested.end(number, how)
        await other
        assert told == ["in"]
        await taken(lock, told)  # and nobody is left in it

    run(main())


def test_who_waits_inside_goes_on_when_the_block_is_over() -> None:
    async def main() -> None:
        lock, told = NestingLock(), list[str]()
        go, inside = asyncio.Event(), asyncio.Event()

        async def slow() -> None:
            async with lock.held():
                inside.set()
                await go.wait()
                told.append("slow")

        async with lock.held():
            first = asyncio.create_task(slow())
            await inside.wait()
            second, never = (asyncio.create_task(taken(lock, told)) for _ in range(2))
            await settled()
        never.cancel()
        await settled()
        assert told == []
        go.set()
        await asyncio.gather(first, second)
        assert told == ["slow", "in"]
        await taken(lock, told)

    run(main())


def test_a_task_that_is_in_may_wait_for_what_needs_the_lock() -> None:
    async def main() -> None:
        lock, told = NestingLock(), list[str]()
        over = asyncio.Event()

        async def outlives() -> None:
            async with lock.held():
                await over.wait()
                await taken(lock, told)
                await asyncio.gather(*(taken(lock, told) for _ in range(3)))

        async with lock.held():
            task = asyncio.create_task(outlives())
            await settled()
        over.set()
        await task
        assert told == ["in"] * 4

    run(main())


def test_two_locks_know_nothing_of_each_other() -> None:
    async def main() -> None:
        one, other, told = NestingLock(), NestingLock(), list[str]()
        async with one.held():
            nested = Nested(other, 2)
            await nested.begin()
            await nested.end(0)
        await taken(one, told)
        waits = asyncio.create_task(taken(other, told))
        await settled()
        assert told == ["in"]
        await nested.end(1)
        await waits

    run(main())


@pytest.mark.parametrize("seed", range(20))
def test_those_who_are_in_began_each_other(seed: int) -> None:
    """Whatever tasks begin each other, take the lock, end, fail and are cancelled."""

    async def main() -> None:
        pick, lock, tasks = random.Random(seed), NestingLock(), list[asyncio.Task[None]]()
        inside, count = set[object](), 0

        async def task(within: tuple[object, ...]) -> None:
            for _ in range(pick.randrange(3)):
                await asyncio.sleep(0)
            async with lock.held():
                assert inside <= set(within)
                block = object()
                inside.add(block)
                try:
                    await work((*within, block))
                finally:
                    inside.remove(block)

        async def work(chain: tuple[object, ...]) -> None:
            nonlocal count
            for _ in range(pick.randrange(6)):
                if count < 60 and pick.random() < 0.6:
                    count += 1
                    tasks.append(asyncio.create_task(task(chain)))
                    if pick.random() < 0.2:
                        tasks[-1].cancel()
                    elif pick.random() < 0.3:
                        await asyncio.wait([tasks[-1]])
                await asyncio.sleep(0)
                if pick.random() < 0.1:
                    raise ValueError

        tasks += [asyncio.create_task(task(())) for _ in range(4)]
        while waiting := [one for one in tasks if not one.done()]:
            await asyncio.wait(waiting)
        wrong = [one for one in tasks if not one.cancelled() and one.exception()]
        assert all(isinstance(one.exception(), ValueError) for one in wrong)
        await taken(lock, [])

    run(main())
