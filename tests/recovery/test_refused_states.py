"""A state that a check refuses is not returned to: the next one is, or nothing is changed."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from store_kit import Place, put_row, rows_of

import holdfast
from holdfast import sync
from holdfast.errors import (
    CriticalStepFailureError,
    HoldfastError,
    InvalidInputError,
    RecoveryFailedError,
    Unavailable,
)
from holdfast.recovery import AgentFailure
from holdfast.recovery.steps import restore_state
from holdfast.recovery.strategies import RecoveryTarget

STEPS = ("backup_current", "locate_checkpoint", "verify_integrity", "restore_state")


def recoverer(store: Any, *more: Any, made: Any = sync.recovery.Recovery, **given: Any) -> Any:
    """A recovery whose procedure never pauses, and is given no retries unless it says so."""
    retries = given.pop("retries", 0)
    steps = [{"type": one} if isinstance(one, str) else one for one in (*STEPS, *more)]
    kinds = ["agent_crash", "state_corruption", "corruption_detected", "drift"]
    quick = {"id": "quick", "triggers": kinds, "steps": steps, "retries": retries, "backoff": 1}
    return made(store, procedures=[quick], **given)


def tried(report: Any) -> list[tuple[str, str]]:
    """The strategy and the point of each attempt."""
    found = [one.result for _, one in report.steps if one.step == "locate_checkpoint"]
    return [(one["strategy"], one["point"]) for one in found if one]


@pytest.mark.spec("M112", "M113")
@pytest.mark.parametrize("kind", ["agent_crash", "state_corruption"])
def test_the_newest_state_that_every_check_takes_is_returned_to(
    store: sync.Store, kind: str
) -> None:
    state = store.agent("7")
    state.set("n", 0)
    state.checkpoint("good")
    for n in range(1, 7):
        state.set("n", n)
        state.checkpoint(f"odd {n}")
    state.set("n", 7)
    recovery = recoverer(store, "validate_state", validate=[lambda now: now.get("n") == 0])
    assert recovery.plan(state, kind).point == "main@2"
    report = recovery.recover(state, kind)
    assert (report.strategy, report.restored_from, report.attempts) == ("newest_valid", "main@2", 1)
    assert report.lost == "7 entries after it"
    assert state.get("n") == 0
    if kind == "agent_crash":
        assert "it was not accepted" in report.passed["as_it_is"]


@pytest.mark.spec("M113")
def test_defaults_are_what_is_left_if_every_state_is_refused(store: sync.Store) -> None:
    state = store.agent("7")
    for n in range(3):
        state.set("n", n)
        state.checkpoint(f"odd {n}")
    given = {"validate": [lambda now: now.get("n") == -1], "defaults": {"n": -1}}
    report = recoverer(store, "validate_state", **given).recover(state, "agent_crash")
    assert (report.strategy, report.attempts) == ("defaults", 1)
    assert state.get("n") == -1
    assert list(report.passed) == [
        "as_it_is",
        "journal",
        "keys",
        "newest_valid",
        "copy",
    ]
    for one in ("main@2", "main@4", "main@6"):
        assert f"{one}: it was not accepted" in report.passed["newest_valid"]


def test_keys_that_are_missing_are_looked_for_before_anything_is_put_back(
    store: sync.Store,
) -> None:
    state = store.agent("7")
    state.set("plan", "good")
    state.checkpoint("good")
    state.delete("plan")
    state.checkpoint("without")
    step = {"type": "validate_state", "action": {"keys": ["plan"]}}
    report = recoverer(store, step).recover(state, "agent_crash")
    assert (report.restored_from, report.attempts) == ("main@2", 1)
    assert "missing keys: plan" in report.passed["as_it_is"]


def test_checks_that_are_async_are_asked_in_the_same_way(place: Place) -> None:
    async def check(now: Any) -> bool:
        return bool(now.get("n") == 0)

    async def main() -> None:
        async with holdfast.open(place.url, **place.options()) as store:
            state = store.agent("7")
            await state.set("n", 0)
            await state.checkpoint("good")
            await state.set("n", 1)
            made = holdfast.recovery.Recovery
            recovery = recoverer(store, "validate_state", made=made, validate=[check])
            report = await recovery.recover(state, "agent_crash")
            assert (report.strategy, report.attempts) == ("newest_valid", 1)
            assert await state.get("n") == 0

    asyncio.run(main())


def test_if_all_is_refused_the_state_is_where_it_was_and_nothing_is_waited_for(
    store: sync.Store,
) -> None:
    state = store.agent("7")
    state.set("n", 0)
    state.checkpoint("good")
    state.set("n", 1)
    asked: list[int] = []

    def check(now: Any) -> str:
        asked.append(now.get("n"))
        return "never"

    recovery = sync.recovery.Recovery(
        store, validate=[check], defaults={"n": 5}
    )  # pauses, if it retries
    with pytest.raises(CriticalStepFailureError, match="no other state is left to try") as caught:
        recovery.recover(state, "agent_crash")
    assert "the state before it is back" in str(caught.value)
    assert state.get("n") == 1
    assert 5 in asked
    report = recovery.reports(state)[0]
    assert report.status == "rolled_back"
    assert tried(report) == [("defaults", "")]  # of the others it was known before
    assert "served" not in str(report)
    assert "served" not in str(report)


def test_a_check_that_cannot_be_made_is_made_again_and_loses_nothing(store: sync.Store) -> None:
    state = store.agent("7")
    state.set("n", 0)
    state.checkpoint("good")
    state.set("n", 1)
    down = [True, True]

    def check(now: Any) -> None:
        if down:
            raise ConnectionError(f"nobody answers ({down.pop()})")

    recovery = recoverer(store, "validate_state", validate=[check], retries=3)
    report = recovery.recover(state, "agent_crash")
    assert (report.strategy, report.lost, report.attempts) == ("as_it_is", "nothing", 3)


def test_a_check_that_writes_is_asked_once_the_state_is_there(store: sync.Store) -> None:
    state = store.agent("7")
    state.set("n", 0)

    def check(now: Any) -> None:
        now.set("checked", True)

    report = recoverer(store, "validate_state", validate=[check]).recover(state, "agent_crash")
    assert report.strategy == "as_it_is"
    assert state.get("checked") is True


@pytest.mark.spec("M113")
def test_of_what_cannot_be_asked_before_each_is_tried_once_and_no_retry_is_used(
    store: sync.Store,
) -> None:
    """A check that looks only at what is there now refuses it, and each state in its turn."""
    state = store.agent("7")
    for n in range(3):
        state.set("n", n)
        state.checkpoint(f"c{n}")

    def check(now: Any) -> bool:
        return not isinstance(now, sync.State) or now.get("n") == 0

    recovery = recoverer(store, "validate_state", validate=[check])
    report = recovery.recover(state, "agent_crash")
    assert state.get("n") == 0
    assert tried(report) == [
        ("as_it_is", "main@7"),
        ("journal", "main@6"),
        ("newest_valid", "main@6"),
        ("newest_valid", "main@4"),
        ("newest_valid", "main@2"),
    ]
    assert report.lost == "2 entries after it"
    state.set("n", 9)
    with pytest.raises(RecoveryFailedError, match="no other state is left to try"):
        recovery.recover(state, AgentFailure("agent_crash", point="c2"))
    assert recovery.reports(state)[0].attempts == 1
    assert state.get("n") == 9


@pytest.mark.parametrize(
    "api",
    [sync.agents.Mailbox, sync.agents.Drift, sync.agents.Effects, sync.checkpoints.Checkpoints],
)
def test_a_check_gets_a_state_that_everything_can_be_made_of(store: sync.Store, api: Any) -> None:
    state = store.agent("7")
    state.set("n", 0)
    state.checkpoint("good")
    state.set("n", -1)

    def check(now: Any) -> bool:
        api(now)
        return isinstance(now, sync.State) and now.get("n") == 0

    report = recoverer(store, "validate_state", validate=[check]).recover(state, "drift")
    assert (report.strategy, report.attempts) == ("newest_valid", 1)
    assert [one.name for one in state.timelines()] == ["main"]  # the trial is over


def test_a_check_sees_the_sticky_keys_of_now(store: sync.Store) -> None:
    """A restore leaves them alone, so what they were then is no reason to refuse a state."""
    state = store.agent("7")
    state.declare(holdfast.Sticky("sent/"))
    state.set("n", 0)
    state.checkpoint("good")
    state.set("sent/1", True)
    state.set("n", -1)

    def check(now: Any) -> bool:
        return now.get("sent/1") is True and now.get("n") == 0

    recovery = recoverer(store, "validate_state", validate=[check])
    assert recovery.plan(state, "drift").strategy == "newest_valid"
    assert recovery.recover(state, "drift").strategy == "newest_valid"
    assert state.get("n") == 0


@pytest.mark.parametrize("way", ["check", "step"])
def test_what_only_could_not_be_asked_is_put_back_again(store: sync.Store, way: str) -> None:
    state = store.agent("7")
    for n in range(3):
        state.set("n", n)
        state.checkpoint(f"c{n}")
    state.set("n", 9)
    down = [1]

    def check(now: Any) -> None:
        if down and isinstance(now, sync.State):
            raise ConnectionError(f"nobody answers ({down.pop()})")

    def step(context: Any, action: Any) -> None:
        check(context.state)

    given: Any = {"validate": [check]} if way == "check" else {"steps": {"mine": step}}
    last = "validate_state" if way == "check" else "mine"
    steps = [{"type": one} for one in (*STEPS, last)]
    quick = {"id": "quick", "triggers": ["drift"], "steps": steps, "retries": 1, "backoff": 1}
    report = sync.recovery.Recovery(store, procedures=[quick], **given).recover(state, "drift")
    assert tried(report) == [("newest_valid", "main@6")] * 2
    assert state.get("n") == 2


def test_a_strategy_of_ones_own_that_was_refused_is_not_asked_again(store: sync.Store) -> None:
    state = store.agent("7")
    state.set("n", 0)
    state.checkpoint("good")
    state.set("n", 1)

    def newest(context: Any) -> RecoveryTarget:
        return RecoveryTarget("mine", f"main@{context.handle.place()[2]}", "nothing")

    given = {"strategies": {"mine": newest}, "order": ["mine", "newest_valid"]}
    check = {"validate": [lambda now: now.get("n") == 0]}
    report = recoverer(store, "validate_state", **given, **check).recover(state, "drift")
    assert (report.strategy, report.attempts) == ("newest_valid", 2)


def test_a_check_that_cannot_be_made_is_said_by_plans_and_groups(store: sync.Store) -> None:
    states = [store.agent("7"), store.agent("8")]
    for one in states:
        one.set("n", 0)
    sync.checkpoints.CheckpointGroups(store).create(states, "good")

    def check(now: Any) -> None:
        raise ConnectionError("nobody answers")

    recovery = recoverer(store, "validate_state", validate=[check])
    with pytest.raises(Unavailable, match="could not be made: ConnectionError: nobody answers"):
        recovery.plan(states[0], "drift")
    with pytest.raises(Unavailable, match="could not be made: ConnectionError"):
        recovery.recover_group(states, "drift")
    for odd in ([1], {"x": 1}, 1.5):
        with pytest.raises(InvalidInputError, match="a group of checkpoints, its name or id"):
            recovery.recover_group(states, "drift", point=odd)


def damaged(place: Place) -> sync.Store:
    """An agent whose items and total do not fit any more once a damaged entry is left out."""
    with place.open() as store:
        state = store.agent("7")
        state.set("total", 1)
        state.set("items", [1])
        state.checkpoint("good")
        state.set("items", [1, 2])
        state.set("total", 2)
        state.set("x", 1)
    place.close()
    storage = place.storage()
    key, row = rows_of(storage, b"E")[3]
    put_row(storage, key, row[:-3] + bytes([row[-3] ^ 1]) + row[-2:])
    storage.close()
    return place.open()


def fits(now: Any) -> bool:
    return bool(now.get("total") == len(now.get("items")))


def test_a_repair_that_is_refused_gives_way_to_the_next_state(place: Place) -> None:
    store = damaged(place)
    state = store.agent("7")
    recovery = recoverer(store, "validate_state", validate=[fits], defaults={})
    report = recovery.recover(state, "corruption_detected")
    assert report.success
    assert tried(report) == [("journal", "main@3"), ("newest_valid", "main@3")]
    assert dict(state.items()) == {"total": 1, "items": [1]}
    assert "it was not accepted" in report.passed["journal"]
    assert report.lost == "3 entries after it"


def test_if_the_state_before_cannot_be_read_what_loses_least_stands(place: Place) -> None:
    store = damaged(place)
    state = store.agent("7")
    given = {"validate": [lambda now: "never"], "defaults": {"total": 0}}
    recovery = recoverer(store, "validate_state", **given)
    with pytest.raises(RecoveryFailedError, match="could not be read: what journal made stands"):
        recovery.recover(state, "corruption_detected")
    assert dict(state.items()) == {"total": 2, "items": [1], "x": 1}
    assert recovery.reports(state)[0].status == "failed"
    assert recovery.reports(state)[0].lost == "what entry 4 did"
    good = recoverer(store, "validate_state", validate=[fits])
    assert good.recover(state, "corruption_detected").restored_from == "main@3"
    assert dict(state.items()) == {"total": 1, "items": [1]}


def test_what_a_restore_lost_that_failed_behind_its_commit_is_told(place: Place) -> None:
    store = damaged(place)
    state = store.agent("7")

    def put_back(context: Any, action: Any) -> None:
        restore_state(context, action)
        raise OSError("the disk went away")

    recovery = recoverer(store, steps={"restore_state": put_back})
    with pytest.raises(RecoveryFailedError, match="what journal made stands"):
        recovery.recover(state, "corruption_detected")
    assert dict(state.items()) == {"total": 2, "items": [1], "x": 1}
    assert recovery.reports(state)[0].lost == "what entry 4 did"


def test_a_strategy_that_could_not_be_tried_is_tried_again(store: sync.Store) -> None:
    state = store.agent("7")
    state.set("n", 0)
    state.checkpoint("good")
    down = [1]

    def mine(context: Any) -> Any:
        if down:
            raise OSError(f"no answer ({down.pop()})")
        return context.strategies["newest_valid"](context)

    given = {"strategies": {"mine": mine}, "order": ["mine"], "retries": 1}
    assert recoverer(store, **given).recover(state, "drift").attempts == 2
    with pytest.raises(HoldfastError, match="no strategy serves"):
        recoverer(store, order=["named"], retries=3).recover(state, "drift")
