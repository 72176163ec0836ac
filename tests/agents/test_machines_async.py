"""The async face of machines: the same names, functions that may be async."""

from __future__ import annotations

import asyncio
import inspect
from typing import Any

import pytest
from machine_kit import HAIKU
from store_kit import Place

import holdfast
from holdfast import sync
from holdfast.agents import MachineArrow, MachineDefinition, MachineState, MachineStep
from holdfast.errors import IncompleteTransitionError, InvalidInputError, TransitionRefusedError


def test_both_faces_are_the_same() -> None:
    for name, blocking in vars(sync.agents.Machine).items():
        if name.startswith("_") or not callable(blocking):
            continue
        other = getattr(holdfast.agents.Machine, name)
        assert inspect.signature(blocking).parameters.keys() == (
            inspect.signature(other).parameters.keys()
        )
        assert blocking.__doc__ == other.__doc__


@pytest.mark.spec("M38")
@pytest.mark.parametrize("commit", ["inline", "thread"])
def test_everything_once(place: Place, commit: str) -> None:
    called: list[str] = []

    async def later(step: MachineStep) -> dict[str, Any]:
        await asyncio.sleep(0)
        called.append(step.trigger)
        return {"by": "later"}

    async def allowed(step: MachineStep) -> bool:
        return step.input["n"] > 1

    definition = MachineDefinition(
        "a",
        {
            "a": MachineState(
                on={
                    "go": MachineArrow("b", guard=allowed, action=lambda step: {"n": 1}),
                    "work": MachineArrow("b", work=later, recover="complete"),
                }
            ),
            "b": MachineState(enter=later, on={"back": "a"}),
        },
    )

    async def main() -> None:
        options = place.options(commit=commit)
        async with holdfast.open(place.url, **options) as store:
            state = store.agent("1")
            machine = holdfast.agents.Machine(state, definition)
            assert await machine.now() is None
            assert (await machine.start(x=1)).version == 1
            with pytest.raises(TransitionRefusedError):
                await machine.fire("go", n=1)
            assert (await machine.fire("go", n=2)).version == 2
            assert (await machine.now()).data == {"x": 1, "n": 1, "by": "later"}  # type: ignore[union-attr]
            await machine.fire("back")
            assert await machine.can("work")
            await machine.fire("work")
            assert called == ["go", "work", "work"]
            assert (await machine.save({"x": 2}, metadata={"m": 1})).metadata == {"m": 1}
            assert (await machine.roll_back(1)).state == "a"
            assert (await machine.version(4)).state == "b"
            assert (await machine.replay(1, until=3)).state == "b"
            assert await machine.entry(1) == "main@1"
            assert len(await machine.transitions()) == 8
            assert await machine.validate() == ()
            assert await machine.clean() == 0
            assert (await machine.recover()).how == "nothing"
            with pytest.raises(InvalidInputError):
                holdfast.agents.Machine(sync.open("memory:").agent("1"), HAIKU)  # type: ignore[arg-type]

    asyncio.run(main())


def test_work_that_is_cancelled_stays_open(place: Place) -> None:
    """Nobody knows how far it came: that is for recovery, not a failed attempt."""
    begun = asyncio.Event()

    async def slow(step: MachineStep) -> None:
        begun.set()
        await asyncio.sleep(60)

    definition = MachineDefinition(
        "a",
        {"a": MachineState(on={"go": MachineArrow("b", work=slow)}), "b": MachineState()},
    )

    async def main() -> None:
        async with holdfast.open(place.url, **place.options()) as store:
            machine = holdfast.agents.Machine(store.agent("1"), definition)
            task = asyncio.create_task(machine.fire("go"))
            await begun.wait()
            with pytest.raises(IncompleteTransitionError):
                await machine.fire("go")
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            now = await machine.now()
            assert now is not None
            assert now.pending is not None
            assert (await machine.settle("roll_back")).how == "roll_back"
            assert [one.success for one in await machine.transitions()] == [True, False]

    asyncio.run(main())
