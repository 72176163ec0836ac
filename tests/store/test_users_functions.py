"""Functions of users that checkpoints call: what they raise is theirs, what did not run is told."""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import Callable
from typing import Any

import pytest

import holdfast
from holdfast import sync
from holdfast.errors import InvalidInputError, StateValidationError

ENDS = [SystemExit, KeyboardInterrupt, asyncio.CancelledError, GeneratorExit]


def _wait(until: Callable[[], Any]) -> None:
    for _ in range(6000):
        if until():
            return
        threading.Event().wait(0.01)
    raise AssertionError("it did not come")


# what did not run


async def _awaited(given: Any) -> None:
    raise AssertionError("nobody awaits it")


class _Object:
    async def __call__(self, given: Any) -> None:
        await _awaited(given)


FORMS = [_awaited, functools.partial(_awaited), _Object()]


@pytest.mark.parametrize("form", FORMS)
def test_what_is_async_is_refused_on_the_blocking_face(form: Any) -> None:
    with sync.open("memory:") as store:
        agent = store.agent("a")
        agent.set("x", 1)
        agent.checkpoint("c")
        checkpoints = sync.checkpoints.Checkpoints(agent)
        for give in (
            lambda: sync.checkpoints.Checkpoints(agent, sync=form),
            lambda: checkpoints.restore("c", validate=form),
            lambda: checkpoints.simulate(form, "c"),
            lambda: checkpoints.operation("o")(form),
        ):
            with pytest.raises(InvalidInputError):
                give()


def test_what_only_gives_something_to_await_has_failed() -> None:
    def form(given: Any) -> Any:
        return _awaited(given)

    with sync.open("memory:") as store:
        agent = store.agent("a")
        agent.set("x", 1)
        result = sync.checkpoints.Checkpoints(agent, sync=form).create("c", sync=True)
        assert (result.synchronized, result.sync_error) == (False, "NotRunError")
        checkpoints = sync.checkpoints.Checkpoints(agent)
        for call in (
            lambda: checkpoints.simulate(form, "c"),
            lambda: checkpoints.operation("o")(form)(1),
        ):
            with pytest.raises(InvalidInputError):
                call()
        with pytest.raises(StateValidationError):
            checkpoints.restore("c", validate=form)


def test_on_the_async_face_whatever_gives_something_to_await_is_awaited() -> None:
    ran: list[Any] = []

    async def work(given: Any) -> None:
        await asyncio.sleep(0)
        ran.append(given)

    class Working:
        async def __call__(self, given: Any) -> None:
            await work(given)

    async def main() -> None:
        for form in (work, functools.partial(work), Working(), lambda given: work(given)):
            ran.clear()
            async with holdfast.open("memory:") as store:
                agent = store.agent("a")
                await agent.set("x", 1)
                made = await holdfast.checkpoints.Checkpoints(agent, sync=form).create(
                    "c", sync=True
                )
                assert made.synchronized
                assert len(ran) == 1

    asyncio.run(main())


async def _later(*_: Any) -> int:
    return 1


@pytest.mark.filterwarnings("error")
def test_update_and_replay_say_that_they_take_plain_functions() -> None:
    with sync.open("memory:") as store:
        state = store.agent("a")
        state.set("k", 0)
        with pytest.raises(InvalidInputError, match="update takes a plain function"):
            state.update("k", _later)
        with pytest.raises(InvalidInputError, match="replay takes a plain function"):
            state.replay(_later, 0)
        assert state.get("k") == 0
