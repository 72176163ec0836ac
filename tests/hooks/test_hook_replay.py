"""Replaying hooks over the journal: what they would give, and what they gave."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from store_kit import Hands

from holdfast import Operation, sync
from holdfast.errors import InvalidInputError
from holdfast.sync.hooks import (
    Cache,
    Cancel,
    Changed,
    Continue,
    Fork,
    HookContext,
    Hooks,
    Modified,
    Redirect,
    Replace,
    Retry,
    Skipped,
    TimeRange,
)


@pytest.mark.spec("L76", "L77", "X48")
def test_each_mode_tells_the_hook_which_it_is_and_writes_nothing(
    store: sync.Store, hooks: Hooks
) -> None:
    seen: list[tuple[Any, ...]] = []

    @hooks.background("k")
    def hook(event: Changed, context: HookContext) -> None:
        seen.append((context.replay, dict(context.params), event.old, event.new, event.entry))

    state = store.agent("a")
    state.set("k", 1)
    state.set("k", 2)
    hooks.drain()
    then = [("", {}, None, 1, 1), ("", {}, 1, 2, 2)]
    assert seen == then
    position = store.position()
    for mode in ("exact", "modified", "simulate", "debug"):
        seen.clear()
        report = hooks.replay("hook", mode=mode)
        assert seen == [(mode, *one[1:]) for one in then]
        assert (report.hook, report.mode, len(report.results)) == ("hook", mode, 2)
        assert all((one.seconds > 0) == (mode == "debug") for one in report.results)
    assert store.position() == position, "nothing was written, also no result"
    assert hooks.metrics()["hook"].runs == 2, "nor counted"
    with pytest.raises(InvalidInputError, match="exact, modified, simulate, debug"):
        hooks.replay("hook", mode="fast")


@pytest.mark.spec("L79")
def test_params_reach_the_hook_and_are_never_written(store: sync.Store, hooks: Hooks) -> None:
    @hooks.before("k")
    def limit(event: Changed, context: HookContext) -> Cancel | None:
        return Cancel("too much") if event.new > context.params.get("limit", 100) else None

    state = store.agent("a")
    for number in (1, 50):
        state.set("k", number)
    position = store.position()
    report = hooks.replay("limit", mode="modified", params={"limit": 10})
    assert [one.result for one in report.results] == ["Continue", "Cancel"]
    assert report.results[1].value == Cancel("too much")
    assert (state.get("k"), store.position()) == (50, position)
    for mode in ("exact", "debug"):
        with pytest.raises(InvalidInputError, match="params go with"):
            hooks.replay("limit", mode=mode, params={"limit": 10})
    assert [one.result for one in hooks.replay("limit").results] == ["Continue"] * 2


@pytest.mark.spec("X48")
def test_results_are_compared_with_those_of_then(store: sync.Store, hooks: Hooks) -> None:
    def first(event: Changed, context: HookContext) -> Skipped | None:
        return Skipped("odd") if event.new % 2 else None

    hooks.background("k", name="judge")(first)
    state = store.agent("a")
    for number in range(4):
        state.set("k", number)
    hooks.drain()
    same = hooks.replay("judge", mode="exact")
    assert same.differences == ()
    assert [one.before for one in same.results] == ["Continue", "Skipped"] * 2
    hooks.remove("judge")

    def second(event: Changed, context: HookContext) -> Skipped | None:
        if event.new == 3:
            raise ValueError("three")
        return Skipped("odd") if event.new == 2 else None

    hooks.background("k", name="judge")(second)
    report = hooks.replay("judge", mode="exact")
    found = [(one.event["entry"], one.before, one.result) for one in report.differences]
    assert found == [
        (2, "Skipped", "Continue"),
        (3, "Continue", "Skipped"),
        (4, "Skipped", "failed"),
    ]
    [failure] = report.failures
    assert failure.error == "ValueError: three"
    text = str(report)
    assert "4 events, 3 differ, 1 failed" in text
    assert "agent:a main@2 k: Skipped then, Continue now" in text


@pytest.mark.spec("X43", "L73")
@pytest.mark.parametrize(
    "result",
    [
        *(Continue(), Modified(9), Cancel("no"), Redirect("x")),
        *(Replace([Operation("set", "x", 1)]), Cache("k", 60), Skipped("why")),
    ],
)
def test_what_a_hook_in_front_gives_in_a_replay_is_told_and_not_done(
    store: sync.Store, hooks: Hooks, result: Any
) -> None:
    state = store.agent("a")
    state.set("k", 1)
    hooks.before("k", name="hook")(lambda event, context: result)
    [one] = hooks.replay("hook", mode="exact").results
    assert (one.result, one.value, one.before, one.same) == (
        *(type(result).__name__, result),
        *("", True),
    )
    assert (state.get("k"), state.exists("x")) == (1, False)
    hooks.replay("hook")
    assert hooks.metrics()["hook"].skipped == 0
    assert hooks.named("hook").cached("k") is False


@pytest.mark.spec("X43")
@pytest.mark.parametrize(
    ("result", "behind"),
    [(Retry(), True), (Fork(["hook"]), True), (Retry(), False), (Fork([]), False), (7, True)],
)
def test_retry_and_fork_in_a_replay_are_told_or_refused_as_where_the_hook_stands(
    store: sync.Store, hooks: Hooks, result: Any, behind: bool
) -> None:
    calls = []
    store.agent("a").set("k", 1)
    add = hooks.background("k", name="hook") if behind else hooks.before("k", name="hook")
    add(lambda event, context: (calls.append(1), result)[1])
    [one] = hooks.replay("hook").results
    if behind and result != 7:
        assert (one.result, one.error) == (type(result).__name__, "")
    else:
        assert one.result == "failed"
        assert "HookResultError: the hook hook gave" in one.error
    assert len(calls) == 1, "it is not called again, nor are others"


@pytest.mark.spec("L77", "L78")
def test_a_replay_is_about_the_time_that_is_asked_for(timed: sync.Store, hands: Hands) -> None:
    hooks = Hooks(timed)
    hooks.before("k", name="hook")(lambda event, context: None)
    state = timed.agent("a")
    for number in range(5):
        state.set("k", number)
        timed.agent("b").set("k", number)
        hands.move(60)

    def replayed(*bounds: Any) -> list[Any]:
        found = hooks.replay("hook", *bounds).results
        return [(one.event["scope"][-1], one.event["entry"]) for one in found]

    assert replayed(TimeRange(hands.time(60), hands.time(120))) == [
        ("a", 2),
        ("b", 2),
        ("a", 3),
        ("b", 3),
    ]
    assert len(replayed(hands.time(60))) == 8
    assert len(replayed(TimeRange(None, hands.time(0)))) == 2
    assert len(replayed()) == 10
    for bad in ("yesterday", datetime(2020, 1, 1)):  # noqa: DTZ001
        with pytest.raises(InvalidInputError):
            hooks.replay("hook", bad)  # type: ignore[arg-type]


@pytest.mark.spec("L78")
def test_the_last_hour_begins_an_hour_ago() -> None:
    before = datetime.now(UTC)
    found = TimeRange.last_hour()
    assert found.since is not None
    assert found.until is None
    assert before <= found.since + timedelta(hours=1) <= datetime.now(UTC)


@pytest.mark.spec("L76")
def test_forks_are_replayed_too_and_scopes_that_do_not_fit_are_not(
    store: sync.Store, hooks: Hooks
) -> None:
    state = store.agent("a")
    state.set("k", 1)
    state.fork("trial").set("k", 2)
    store.custom("c").set("k", 3)
    hooks.before("k", scope="agent:*", name="hook")(lambda event, context: None)
    found = [(one.event["timeline"], one.event["key"]) for one in hooks.replay("hook").results]
    assert found == [("main", "k"), ("trial", "k")]


@pytest.mark.spec("L67")
def test_the_log_of_changes_is_a_view_of_the_journal(store: sync.Store, hooks: Hooks) -> None:
    state = store.agent("a")
    with store.acting("planner", reason="revised"):
        state.set("plan", 1)
    state.set("plan", 2)
    state.set("secret", 3)
    store.custom("c").set("plan", 4)
    state.delete("plan")
    found = hooks.changes("plan", scope="agent:*")
    assert [(one.kind, one.old, one.new, one.entry) for one in found] == [
        ("delete", 2, None, 4),
        ("set", 1, 2, 2),
        ("set", None, 1, 1),
    ]
    assert (found[2].cause.actor, found[2].cause.reason) == ("planner", "revised")
    assert len(hooks.changes()) == 5
    assert [one.entry for one in hooks.changes("plan", scope="agent:*", limit=1)] == [4]
    assert hooks.list() == []
