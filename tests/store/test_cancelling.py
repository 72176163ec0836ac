"""Cancelling an async call: what changes something has its end before the task is told.

The mechanism by itself; `test_cancelled_calls.py` holds every call to it.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from holdfast.store.names.threads import (
    Stopped,
    read_away,
    safe_point,
    surely,
    to_the_end,
    undivided,
)


class Slow:
    """Work that begins, waits to be let go, and says what it did."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.go_on = threading.Event()
        self.ended = False

    def __call__(self) -> str:
        self.begun.set()
        assert self.go_on.wait(60)
        self.ended = True
        return "done"


async def thrice(task: asyncio.Task[Any]) -> None:
    """Cancel a task three times, each time after it could act on the one before."""
    for _ in range(3):
        task.cancel()
        await asyncio.sleep(0.01)


async def cancelled(task: asyncio.Task[Any]) -> None:
    with pytest.raises(asyncio.CancelledError):
        await task


async def begun(slow: Slow) -> None:
    while not slow.begun.is_set():  # noqa: ASYNC110
        await asyncio.sleep(0.001)


@pytest.mark.parametrize("call", [to_the_end, surely])
def test_it_is_told_when_the_work_has_ended(call: Callable[..., Coroutine[Any, Any, str]]) -> None:
    async def test() -> None:
        slow = Slow()
        task = asyncio.create_task(call(slow))
        await begun(slow)
        await thrice(task)
        assert not task.done()
        slow.go_on.set()
        await cancelled(task)
        assert slow.ended

    asyncio.run(test())


def test_what_has_not_begun_never_begins_unless_it_must() -> None:
    async def test() -> None:
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
        first, second, third = Slow(), Slow(), Slow()
        running = asyncio.create_task(to_the_end(first))
        await begun(first)
        waiting = asyncio.create_task(to_the_end(second))
        closing = asyncio.create_task(surely(third))
        await asyncio.sleep(0.01)
        waiting.cancel()
        await cancelled(waiting)  # though the only thread is taken
        await thrice(closing)
        for one in (first, second, third):
            one.go_on.set()
        assert await running == "done"
        await cancelled(closing)
        assert third.ended
        assert not second.begun.is_set()

    asyncio.run(test())


def test_what_nobody_can_have_any_more_is_undone() -> None:
    async def test() -> None:
        slow, undoing, undone = Slow(), Slow(), []

        def undo(found: str) -> None:
            undone.append(found)
            undoing()

        task = asyncio.create_task(to_the_end(slow, undo=undo))
        await begun(slow)
        task.cancel()
        slow.go_on.set()
        await begun(undoing)
        await thrice(task)
        assert not task.done()
        undoing.go_on.set()
        await cancelled(task)
        assert undone == ["done"]
        assert undoing.ended
        assert await to_the_end(lambda: 1, undo=undone.append) == 1
        assert undone == ["done"]

    asyncio.run(test())


def test_long_work_stops_at_a_safe_point_but_not_inside_what_is_undivided() -> None:
    steps: list[str] = []
    started, told = threading.Event(), threading.Event()

    def work() -> None:
        with undivided():
            started.set()
            while not told.wait(0.005):
                safe_point()
            safe_point()
            steps.append("undivided")
        safe_point()
        steps.append("never")

    async def test() -> None:
        task = asyncio.create_task(to_the_end(work))
        while not started.is_set():  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        await thrice(task)
        told.set()
        await cancelled(task)

    asyncio.run(test())
    assert steps == ["undivided"]
    safe_point()  # nobody's work: it goes on


def test_a_stop_passes_what_takes_errors_and_lets_it_clean_up() -> None:
    cleaned: list[str] = []
    started = threading.Event()

    def work() -> None:
        try:
            while True:
                started.set()
                with contextlib.suppress(Exception):
                    safe_point()
                time.sleep(0.001)
        except Stopped:
            cleaned.append("yes")
            raise

    async def test() -> None:
        task = asyncio.create_task(to_the_end(work))
        while not started.is_set():  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        task.cancel()
        await cancelled(task)

    asyncio.run(test())
    assert cleaned == ["yes"]


def test_a_read_is_left_at_once_and_told_to_stop() -> None:
    said: list[Any] = []
    stopped = threading.Event()
    started = threading.Event()

    def read() -> None:
        started.set()
        try:
            while True:
                safe_point()
                time.sleep(0.001)
        finally:
            stopped.set()

    async def test() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, about: said.append(about))
        task = asyncio.create_task(read_away(read))
        while not started.is_set():  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        task.cancel()
        await cancelled(task)
        assert await to_the_end(stopped.wait, 60)

    asyncio.run(test())
    assert said == []


def test_an_error_beside_the_cancellation_is_its_cause() -> None:
    def work() -> None:
        started.set()
        assert go_on.wait(60)
        raise KeyError("k")

    started, go_on = threading.Event(), threading.Event()

    async def test() -> None:
        task = asyncio.create_task(to_the_end(work))
        while not started.is_set():  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        task.cancel()
        await asyncio.sleep(0.01)
        go_on.set()
        with pytest.raises(asyncio.CancelledError) as found:
            await task
        assert isinstance(found.value.__cause__, KeyError)

    asyncio.run(test())


def test_time_limits_say_that_they_are_over() -> None:
    async def test() -> None:
        slow = Slow()

        async def run_out(limit: asyncio.Timeout) -> None:
            await begun(slow)  # what has not begun would never begin
            limit.reschedule(asyncio.get_running_loop().time())
            while not limit.expired():  # noqa: ASYNC110
                await asyncio.sleep(0.001)
            slow.go_on.set()

        with pytest.raises(TimeoutError):
            async with asyncio.timeout(None) as limit:
                running = asyncio.create_task(run_out(limit))
                await to_the_end(slow)
        await running
        assert slow.ended

    asyncio.run(test())
