"""Both faces of the loop, the mailbox and drift have the same names and arguments."""

from __future__ import annotations

import asyncio
import inspect
from concurrent.futures import ThreadPoolExecutor

import pytest

import holdfast
from holdfast import sync
from holdfast.agents import StepResult
from holdfast.errors import InvalidInputError


@pytest.mark.parametrize("name", ["Drift", "Loop", "Mail", "Mailbox"])
def test_the_faces_are_alike(name: str) -> None:
    one, other = getattr(sync.agents, name), getattr(holdfast.agents, name)
    public = [[word for word in dir(face) if not word.startswith("_")] for face in (one, other)]
    assert public[0] == public[1]
    for word in ("__init__", *public[0]):
        functions = [getattr(face, word) for face in (one, other)]
        arguments = [list(inspect.signature(function).parameters) for function in functions]
        assert arguments[0] == arguments[1], word
        assert word == "__init__" or all(function.__doc__ for function in functions), word


def test_run_is_alike() -> None:
    assert list(inspect.signature(sync.agents.run).parameters) == ["agent", "state", "options"]
    assert list(inspect.signature(holdfast.agents.run).parameters) == ["agent", "state", "options"]


class Once:
    """An agent that is done at once."""

    def step(self) -> StepResult:
        return StepResult("look", done=True)


@pytest.mark.parametrize("stopped", [False, True])
def test_a_loop_that_was_refused_in_a_thread_can_still_run(stopped: bool) -> None:
    """It did not begin, so that a stop() that came before is for the run which does."""
    with sync.open("memory:") as store, ThreadPoolExecutor(1) as pool:
        loop = sync.agents.Loop(store.agent("7"), Once)
        if stopped:
            loop.stop()
        with pytest.raises(InvalidInputError, match="main thread"):
            pool.submit(loop.run).result(60)
        assert loop.run().outcome == ("stopped" if stopped else "done")


@pytest.mark.parametrize("stopped", [False, True])
def test_an_async_loop_that_was_refused_in_a_thread_can_still_run(stopped: bool) -> None:
    async def main() -> None:
        async with holdfast.open("memory:") as store:
            loop = holdfast.agents.Loop(store.agent("7"), Once)
            if stopped:
                loop.stop()
            with pytest.raises(InvalidInputError, match="main thread"):
                await asyncio.to_thread(asyncio.run, loop.run())
            assert (await loop.run()).outcome == ("stopped" if stopped else "done")

    asyncio.run(main())


class Late:
    """An agent whose loop is stopped when it has done its last step, or while that is saved."""

    when = "step"
    stop = staticmethod(lambda: None)

    def __init__(self) -> None:
        self.steps = 0

    def get_persistent_state(self) -> dict[str, int]:
        if self.when == "save" and self.steps:
            self.stop()
        return {"steps": self.steps}

    def apply_persistent_state(self, values: dict[str, int]) -> None:
        self.steps = values["steps"]

    def step(self) -> StepResult:
        self.steps += 1
        if self.when == "step":
            self.stop()
        if self.when == "error":
            self.stop()
            raise KeyboardInterrupt
        return StepResult("look", done=True)


@pytest.mark.parametrize("when", ["step", "save", "error"])
def test_a_stop_that_comes_too_late_ends_the_next_run(
    monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    monkeypatch.setattr(Late, "when", when)
    with sync.open("memory:") as store:
        loop = sync.agents.Loop(store.agent("7"), Late)
        monkeypatch.setattr(Late, "stop", loop.stop)
        if when == "error":
            with pytest.raises(KeyboardInterrupt):
                loop.run()
        else:
            assert loop.run().outcome == "done"
        monkeypatch.setattr(Late, "when", "never")
        assert (loop.run().outcome, loop.run().outcome) == ("stopped", "done")


@pytest.mark.parametrize("when", ["step", "save"])
def test_a_stop_that_comes_too_late_ends_the_next_async_run(
    monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    monkeypatch.setattr(Late, "when", when)

    async def main() -> None:
        async with holdfast.open("memory:") as store:
            loop = holdfast.agents.Loop(store.agent("7"), Late)
            monkeypatch.setattr(Late, "stop", loop.stop)
            assert (await loop.run()).outcome == "done"
            monkeypatch.setattr(Late, "when", "never")
            assert [(await loop.run()).outcome for _ in range(2)] == ["stopped", "done"]

    asyncio.run(main())
