"""Strategies of a user's own, written with what is public."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from store_kit import Place

import holdfast
from holdfast import sync
from holdfast.errors import (
    InvalidInputError,
    RecoveryFailedError,
    StoreClosedError,
    Unavailable,
)
from holdfast.recovery import RecoveryTarget, UnfitTarget


def worked(store: sync.Store) -> sync.State:
    state = store.agent("7")
    state.set("k", 1)
    state.checkpoint("good")
    state.set("k", 2)
    state.set("other", 3)
    return state


def recovered(store: sync.Store, given: Any, **more: Any) -> holdfast.recovery.RecoveryReport:
    """What becomes of a recovery by a strategy that gives something, or raises it."""

    def mine(context: Any) -> Any:
        if isinstance(given, Exception):
            raise given
        return given

    recovery = sync.recovery.Recovery(store, strategies={"mine": mine}, order=["mine"], **more)
    return recovery.recover(worked(store), "state_corruption")


@pytest.mark.parametrize(
    ("given", "point", "left"),
    [
        (RecoveryTarget("mine", "main@1", "a lot"), "main@1", {"k": 1}),
        (RecoveryTarget("mine", "good", "a lot"), "main@2", {"k": 1}),
        (RecoveryTarget("named", "main@2", "a lot"), "main@2", {"k": 1}),
        (RecoveryTarget("as_it_is", "main@2", "a lot"), "main@2", {"k": 1}),
        (RecoveryTarget("mine", "main@2", "a lot", keys=("k",)), "main@2", {"k": 1, "other": 3}),
        (RecoveryTarget("mine", "main@2", "a lot", replay=3), "main@2", {"k": 2}),
    ],
)
def test_what_it_gives_is_returned_to(
    store: sync.Store, given: RecoveryTarget, point: str, left: dict[str, Any]
) -> None:
    report = recovered(store, given)
    assert (report.strategy, report.restored_from, report.lost) == ("mine", point, "a lot")
    assert dict(store.agent("7").items()) == left


class OfALibrary(Exception):
    """Nobody here knows what it says."""


@pytest.mark.parametrize(
    ("error", "attempts"),
    [
        (ValueError("a bug"), 1),
        (KeyError("a bug"), 1),
        (InvalidInputError("a bug"), 1),
        (StoreClosedError("for good"), 1),
        (OSError("the disk is away"), 4),
        (Unavailable("the server is away"), 4),
        (OfALibrary("nobody knows"), 1),
    ],
)
@pytest.mark.parametrize("where", ["strategy", "copy"])
def test_what_cannot_change_by_waiting_is_told_at_once(
    place: Place, error: Exception, attempts: int, where: str
) -> None:
    store, copy = place.open(), sync.open("memory:")

    def fails(*given: Any, **more: Any) -> Any:
        raise error

    copy._core.known = fails  # type: ignore[method-assign]
    recovery = sync.recovery.Recovery(store, strategies={"mine": fails}, copies=[copy])
    first = "mine" if where == "strategy" else "copy"
    order = {"type": "locate_checkpoint", "action": {"strategies": [first, "defaults"]}}
    steps = [order, {"type": "restore_state"}]
    recovery.set({"id": "p", "triggers": ["odd"], "steps": steps, "retries": 3, "backoff": 1})
    state = worked(store)
    with pytest.raises(RecoveryFailedError, match="no strategy serves") as caught:
        recovery.recover(state, "odd")
    [report] = recovery.reports(state)
    assert (report.attempts, report.status) == (attempts, "rolled_back")
    assert type(error).__name__ in str(caught.value)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (UnfitTarget("the moon is full"), "mine: the moon is full"),
        ("main@1", "a strategy gives a RecoveryTarget, not str"),
        (RecoveryTarget("mine", "main@99", "x"), "has entries"),
        (RecoveryTarget("mine", "nothing", "x"), "no checkpoint is named 'nothing'"),
        (RecoveryTarget("mine", "main@1", None), "what is lost is text"),  # type: ignore[arg-type]
        (RecoveryTarget("mine", "main@1", "x", copy=5), "there is no copy 5"),
        (RecoveryTarget("mine", "main@1", "x", copy=-1), "number of a copy"),
        (RecoveryTarget("mine", "main@1", "x", keys=(1,)), "a key is text"),  # type: ignore[arg-type]
        (RecoveryTarget("mine", "main@1", "x", replay=99), "nothing to replay up to entry 99"),
        (RecoveryTarget("mine", "main@1", "x", keys=("k",), replay=2), "with all keys"),
        (RecoveryTarget("defaults", "", "x"), "no checkpoint is named ''"),
    ],
)
def test_what_cannot_be_returned_to_does_not_serve(store: sync.Store, given: Any, why: str) -> None:
    with pytest.raises(RecoveryFailedError, match="no strategy serves") as caught:
        recovered(store, given)
    assert why in str(caught.value)
    assert store.agent("7").get("k") == 2


def test_one_that_is_async_serves_the_async_face(place: Place) -> None:
    async def mine(context: Any) -> RecoveryTarget:
        await asyncio.sleep(0)
        return RecoveryTarget("mine", "good", "what came since")

    async def main() -> None:
        async with holdfast.open(place.url, **place.options()) as store:
            state = store.agent("7")
            await state.set("k", 1)
            await state.checkpoint("good")
            await state.set("k", 2)
            recovery = holdfast.recovery.Recovery(store, strategies={"mine": mine}, order=["mine"])
            report = await recovery.recover(state, "state_corruption")
            assert (report.strategy, report.lost) == ("mine", "what came since")
            assert await state.get("k") == 1

    asyncio.run(main())
