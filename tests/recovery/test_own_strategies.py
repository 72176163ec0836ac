"""Strategies of a user's own, written with what is public."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from store_kit import Place

import holdfast
from holdfast import Target, Unfit, sync
from holdfast.errors import (
    InvalidInputError,
    RecoveryFailedError,
    StoreClosedError,
    Unavailable,
)
from holdfast.recovery.failures import kind_of
from holdfast.recovery.strategy_order import Proposal


def worked(store: sync.Store) -> sync.State:
    state = store.agent("7")
    state.set("k", 1)
    state.checkpoint("good")
    state.set("k", 2)
    state.set("other", 3)
    return state


def recovered(store: sync.Store, given: Any, **more: Any) -> holdfast.RecoveryReport:
    """What becomes of a recovery by a strategy that gives something, or raises it."""

    def mine(context: Any) -> Any:
        if isinstance(given, Exception):
            raise given
        return given

    recovery = sync.Recovery(store, strategies={"mine": mine}, order=["mine"], **more)
    return recovery.recover(worked(store), "state_corruption")


@pytest.mark.parametrize(
    ("given", "point", "left"),
    [
        (Target("mine", "main@1", "a lot"), "main@1", {"k": 1}),
        (Target("mine", "good", "a lot"), "main@2", {"k": 1}),
        (Target("named", "main@2", "a lot"), "main@2", {"k": 1}),
        (Target("as_it_is", "main@2", "a lot"), "main@2", {"k": 1}),
        (Target("mine", "main@2", "a lot", keys=("k",)), "main@2", {"k": 1, "other": 3}),
        (Target("mine", "main@2", "a lot", replay=3), "main@2", {"k": 2}),
    ],
)
def test_what_it_gives_is_returned_to(
    store: sync.Store, given: Target, point: str, left: dict[str, Any]
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
        (OfALibrary("the server is away"), 4),
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
    recovery = sync.Recovery(store, strategies={"mine": fails}, copies=[copy])
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
        (Unfit("the moon is full"), "mine: the moon is full"),
        ("main@1", "a strategy gives a Target, not str"),
        (Target("mine", "main@99", "x"), "has entries"),
        (Target("mine", "nothing", "x"), "no checkpoint is named 'nothing'"),
        (Target("mine", "main@1", None), "what is lost is text"),  # type: ignore[arg-type]
        (Target("mine", "main@1", "x", copy=5), "there is no copy 5"),
        (Target("mine", "main@1", "x", copy=-1), "number of a copy"),
        (Target("mine", "main@1", "x", keys=(1,)), "a key is text"),  # type: ignore[arg-type]
        (Target("mine", "main@1", "x", replay=99), "nothing to replay up to entry 99"),
        (Target("mine", "main@1", "x", keys=("k",), replay=2), "with all keys"),
        (Target("defaults", "", "x"), "no checkpoint is named ''"),
    ],
)
def test_what_cannot_be_returned_to_does_not_serve(store: sync.Store, given: Any, why: str) -> None:
    with pytest.raises(RecoveryFailedError, match="no strategy serves") as caught:
        recovered(store, given)
    assert why in str(caught.value)
    assert store.agent("7").get("k") == 2


def test_one_that_is_async_serves_the_async_face(place: Place) -> None:
    async def mine(context: Any) -> Target:
        await asyncio.sleep(0)
        return Target("mine", "good", "what came since")

    async def main() -> None:
        async with holdfast.open(place.url, **place.options()) as store:
            state = store.agent("7")
            await state.set("k", 1)
            await state.checkpoint("good")
            await state.set("k", 2)
            recovery = holdfast.Recovery(store, strategies={"mine": mine}, order=["mine"])
            report = await recovery.recover(state, "state_corruption")
            assert (report.strategy, report.lost) == ("mine", "what came since")
            assert await state.get("k") == 1

    asyncio.run(main())


@pytest.mark.parametrize(
    ("first", "second", "served", "asked"),
    [
        ("nothing", "1 entry", "journal", ["journal"]),
        ("9 entries", "1 entry", "keys", ["journal", "keys"]),
        ("9 entries", None, "journal", ["journal", "keys"]),
        (None, "1 entry", "keys", ["journal", "keys"]),
    ],
)
def test_one_that_comes_before_its_turn_serves_at_once_only_if_it_loses_nothing(
    store: sync.Store,
    monkeypatch: pytest.MonkeyPatch,
    first: str | None,
    second: str | None,
    served: str,
    asked: list[str],
) -> None:
    state = store.agent("7")
    for n in range(3):
        state.set("k", n)
    known = kind_of("corruption_detected").strategies
    assert known[:2] == ("keys", "journal")
    learned = Proposal("", ("journal", "keys", *known[2:]), known, 9, 0.0, 1.0)
    monkeypatch.setattr(sync.Recovery, "_proposed", lambda *_: learned)
    seen: list[str] = []

    def mine(name: str, lost: str | None) -> Any:
        def find(context: Any) -> Target:
            seen.append(name)
            if lost is None:
                raise Unfit("not here")
            return Target(name, "main@1", lost)

        return find

    strategies = {"journal": mine("journal", first), "keys": mine("keys", second)}
    recovery = sync.Recovery(store, strategies=strategies)
    assert recovery.plan(state, "corruption_detected").strategy == served
    assert seen == asked
    assert recovery.recover(state, "corruption_detected").strategy == served
