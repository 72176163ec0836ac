"""Background hooks: told of everything, in order, behind the writers, and never in their way."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from store_kit import Place

import holdfast
from holdfast import sync
from holdfast.errors import HookBehindError, InvalidInputError, Unavailable
from holdfast.hooks import hook_runner
from holdfast.hooks.hook import kept_results
from holdfast.sync.hooks import (
    BreakerSettings,
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
)


def until(met: Callable[[], Any]) -> None:
    """Wait for something that comes."""
    end = time.monotonic() + 30
    while not met():
        assert time.monotonic() < end, "it never came"
        time.sleep(0.005)


@pytest.mark.spec("L74", "L128", "L129")
def test_it_is_told_of_each_change_with_its_values_cause_and_entry(
    store: sync.Store, hooks: Hooks
) -> None:
    seen: list[tuple[Any, ...]] = []
    state = store.agent("a")
    state.set("k", 0)

    @hooks.background("k", scope="agent:*")
    def watcher(event: Changed, context: HookContext) -> None:
        seen.append((event.kind, event.old, event.new, event.entry, event.cause.actor))

    with store.acting("planner"):
        state.set("k", 1)
    state.set("other", 1)
    store.custom("c").set("k", 1)
    state.set("k", [2])
    state.append("k", 3)
    state.delete("k")
    hooks.drain()
    assert seen == [
        ("set", 0, 1, 2, "planner"),
        ("set", 1, [2], 4, seen[1][4]),
        ("append", [2], [2, 3], 5, seen[1][4]),
        ("delete", [2, 3], None, 6, seen[1][4]),
    ]
    assert hooks.metrics()["watcher"].runs == 4
    assert store.metrics().count("hooks", hook="watcher", outcome="done") == 4


@pytest.mark.spec("L75", "L70")
def test_a_change_of_critical_config_triggers_a_backup(
    store: sync.Store, hooks: Hooks, tmp_path: Any
) -> None:
    (tmp_path / "backups").mkdir()
    backups = sync.backup.Backups(store, f"dir:{tmp_path}/backups")
    hook = sync.hooks.backup_on_change(backups)
    hooks.background("critical_config", name="backup on change")(hook)
    state = store.agent("a")
    state.set("notes", 1)
    hooks.drain()
    assert backups.list() == []
    state.set("critical_config", {"limit": 5})
    hooks.drain()
    [made] = backups.list()
    assert made.name == "agent:a critical_config"
    backups.restore(made.id, f"sqlite:{tmp_path}/other.db")
    report = hooks.replay("backup on change", mode="simulate")
    assert [(one.result, one.before) for one in report.results] == [("Skipped", "Continue")]
    assert len(backups.list()) == 1, "a replay that simulates makes none"


@pytest.mark.spec("L128", "X49")
def test_async_hooks_must_drain_on_stop_and_no_writer_waits_for_them(
    store: sync.Store, hooks: Hooks
) -> None:
    go, seen = threading.Event(), []

    @hooks.background("k")
    def slow(event: Changed, context: HookContext) -> None:
        go.wait(30)
        seen.append(event.new)

    state = store.agent("a")
    for number in range(250):
        state.set("k", number)  # all of this ends while the hook is at its first event
    assert seen == []
    go.set()
    hooks.stop()
    assert seen == list(range(250))
    state.set("k", "later")
    assert hooks.list() == []
    assert hooks.metrics()["slow"].runs == 250, "what was counted is told still"


def test_without_draining_it_goes_on_where_it_was(store: sync.Store, hooks: Hooks) -> None:
    """One that ends within a batch is told none of it twice, and what it gave is kept."""
    seen: list[int] = []
    begun, go = threading.Event(), threading.Event()

    def slow(event: Changed, context: HookContext) -> None:
        seen.append(event.new)
        if event.new == 2:
            begun.set()
            go.wait(30)

    since, state = store.position(), store.agent("a")
    for number in range(5):
        state.set("k", number)
    hooks.background("k", since=since)(slow)
    runner = hooks.named("slow").runner
    assert begun.wait(30)
    ending = threading.Thread(target=hooks.stop, kwargs={"drain": False})
    ending.start()
    until(lambda: not runner._background.alive)
    go.set()
    ending.join()
    assert seen == [0, 1, 2]
    state.set("k", 5)
    hooks.background("k")(slow)
    hooks.drain()
    assert seen == list(range(6))
    assert len(kept_results(store, "slow", "results", 100)) == 6


@pytest.mark.parametrize("face", ["blocking", "async"])
def test_one_that_fails_keeps_no_store_open_and_is_told_the_rest_later(
    place: Place, face: str
) -> None:
    settings = BreakerSettings(open=3600)

    def failing(event: Changed, context: HookContext) -> None:
        raise ValueError("down")

    async def work() -> None:
        async with holdfast.open(place.url, **place.options()) as store:
            hooks = holdfast.hooks.Hooks(store)
            hooks.background("k", name="h", breaker=settings)(failing)
            for number in range(4):
                await store.agent("a").set("k", number)
            await asyncio.to_thread(until, lambda: hooks.metrics()["h"].breaker == "open")

    begun = time.monotonic()
    if face == "async":
        asyncio.run(work())
    else:
        with place.open() as store:
            hooks = Hooks(store)
            hooks.background("k", name="h", breaker=settings)(failing)
            for number in range(4):
                store.agent("a").set("k", number)
            until(lambda: hooks.metrics()["h"].breaker == "open")
    assert time.monotonic() - begun < 15
    seen: list[int] = []
    with place.open() as store:
        hooks = Hooks(store)
        hooks.background("k", name="h")(lambda event, context: seen.append(event.new))
        hooks.stop()
    assert seen[-3:] == [1, 2, 3]


@pytest.mark.spec("X43", "L73")
@pytest.mark.parametrize(
    "result", [Modified(1), Cancel("no"), Redirect("x"), Replace([]), "yes", True]
)
def test_what_makes_no_sense_behind_is_a_failure_that_is_kept(
    store: sync.Store, hooks: Hooks, result: Any
) -> None:
    hooks.background("k", name="odd")(lambda event, context: result)
    store.agent("a").set("k", 1)
    hooks.drain()
    [failed] = hooks.failed("odd")
    assert "odd gave" in failed["error"]
    assert "behind a change" in failed["error"]
    assert (failed["scope"], failed["key"], failed["entry"]) == ("agent:a", "k", 1)
    assert store.agent("a").get("k") == 1
    assert store.metrics().count("hooks", hook="odd", outcome="failed") == 1


@pytest.mark.spec("X43")
@pytest.mark.parametrize("result", [None, Continue(), Skipped("why"), Cache("x", 1)])
def test_what_says_that_all_is_well_is_kept_by_its_name(
    store: sync.Store, hooks: Hooks, result: Any
) -> None:
    hooks.background("k", name="fine")(lambda event, context: result)
    store.agent("a").set("k", 1)
    hooks.drain()
    assert hooks.failed("fine") == []
    [told] = hooks.replay("fine").results
    assert told.before == type(result).__name__ if result is not None else "Continue"
    assert hooks.metrics()["fine"].skipped == isinstance(result, Skipped)


@pytest.mark.spec("X43")
def test_retry_is_called_again_so_often_and_no_more(store: sync.Store, hooks: Hooks) -> None:
    attempts: list[tuple[str, int]] = []

    @hooks.background("*")
    def again(event: Changed, context: HookContext) -> Retry | None:
        attempts.append((event.key, context.attempt))
        if event.key == "once" and context.attempt == 2:
            return None
        return Retry(delay=0.01, max_attempts=4)

    state = store.agent("a")
    state.set("once", 1)
    state.set("never", 1)
    hooks.drain()
    assert attempts == [("once", 1), ("once", 2), *(("never", n) for n in (1, 2, 3, 4))]
    [failed] = hooks.failed("again")
    assert failed["key"] == "never"
    assert "4 times" in failed["error"]
    for bad in ({"delay": 61}, {"delay": -1}, {"max_attempts": 0}):
        with pytest.raises(InvalidInputError):
            Retry(**bad)  # type: ignore[arg-type]


@pytest.mark.spec("X43")
def test_fork_calls_further_background_hooks_with_the_same_event(
    store: sync.Store, hooks: Hooks
) -> None:
    seen: list[tuple[str, Any]] = []
    hooks.background("nothing", name="mail")(lambda e, c: seen.append((c.hook, e.new)))
    hooks.background("nothing", name="page")(lambda e, c: seen.append((c.hook, e.new)))
    hooks.before("nothing", name="front")(lambda e, c: None)
    hooks.background("k", name="split")(lambda e, c: Fork(["mail", "page"]))
    hooks.background("bad", name="bad")(lambda e, c: Fork(["front", "missing", "mail"]))
    store.agent("a").set("k", 1)
    hooks.drain()
    assert seen == [("mail", 1), ("page", 1)]
    store.agent("a").set("bad", 2)
    hooks.drain()
    assert seen[2:] == [("mail", 2)]
    error = hooks.failed("bad")[0]["error"]
    assert "front stands in front" in error
    assert "no hook 'missing'" in error


@pytest.mark.spec("X43")
def test_what_fork_calls_has_its_own_time_and_is_called_once(
    store: sync.Store, hooks: Hooks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock of who calls it does not run on; and it keeps nobody for longer than its own."""
    monkeypatch.setattr(hook_runner, "WAIT", 0.1)
    seen: list[str] = []
    looked, go = threading.Event(), threading.Event()

    @hooks.background("k", name="split", timeout=0.05)
    def split(event: Changed, context: HookContext) -> Fork:
        seen.append("split")
        return Fork(["patient", "hanging"])

    @hooks.background("none", name="patient", timeout=30)
    def patient(event: Changed, context: HookContext) -> None:
        seen.append("patient")
        looked.wait(30)

    @hooks.background("none", name="hanging", timeout=0.05)
    def hanging(event: Changed, context: HookContext) -> None:
        seen.append("hanging")
        go.wait(30)

    runner = hooks.named("split").runner
    judge = runner._judge

    def judged(*args: Any) -> None:
        if "patient" in seen:
            looked.set()  # whoever takes what lasts too long for hung has looked again
        judge(*args)

    runner._judge = judged
    store.agent("a").set("k", 1)
    hooks.drain()
    assert seen == ["split", "patient", "hanging"]
    [failed] = hooks.failed("split")
    assert failed["error"] == "hanging: TimeoutError: it took longer than 0.05 s"
    assert hooks.metrics()["patient"].failures == 0
    go.set()


@pytest.mark.spec("X43")
def test_cache_behind_leaves_it_untold_of_such_keys(store: sync.Store, hooks: Hooks) -> None:
    seen: list[str] = []

    @hooks.background("*")
    def once(event: Changed, context: HookContext) -> Cache:
        seen.append(event.key)
        return Cache(event.key, 3600)

    for key in ("a", "a", "b", "a"):
        store.agent("a").set(key, 1)
    hooks.drain()
    assert seen == ["a", "b"]
    assert hooks.metrics()["once"].skipped == 2


@pytest.mark.spec("L202")
def test_what_raises_is_told_three_times_then_set_aside_and_the_next_is_told(
    store: sync.Store, hooks: Hooks
) -> None:
    attempts: list[tuple[int, int]] = []

    @hooks.background("k")
    def broken(event: Changed, context: HookContext) -> None:
        attempts.append((event.new, context.attempt))
        if event.new == 1:
            raise SystemExit("whatever it is")

    for number in (1, 2):
        store.agent("a").set("k", number)
    hooks.drain()
    assert attempts == [(1, 1), (1, 2), (1, 3), (2, 1)]
    [failed] = hooks.failed("broken")
    assert failed["error"] == "SystemExit: whatever it is"
    metrics = hooks.metrics()["broken"]
    assert (metrics.runs, metrics.failures, metrics.error) == (4, 3, failed["error"])


def test_what_hangs_is_left_behind_and_counts_as_a_failure(store: sync.Store, hooks: Hooks) -> None:
    hung, seen = threading.Event(), []

    @hooks.background("k", timeout=0.1, max_concurrent=1)
    def hanging(event: Changed, context: HookContext) -> None:
        if event.new == 1:
            hung.wait(60)
        seen.append((event.new, context.attempt))

    store.agent("a").set("k", 1)
    store.agent("a").set("k", 2)
    hooks.drain()
    assert seen == [(2, 1)]
    assert "longer than 0.1 s" in hooks.failed("hanging")[0]["error"]
    hung.set()
    until(lambda: len(seen) == 4)  # those that were left behind come to their end
    metrics = hooks.metrics()["hanging"]
    assert (metrics.runs, metrics.failures) == (4, 3), "and are not counted as well done"


@pytest.mark.spec("L200", "L202")
def test_one_that_is_always_too_slow_has_its_breaker_opened(
    store: sync.Store, hooks: Hooks
) -> None:
    settings = BreakerSettings(failures=3, open=3600)

    @hooks.background("k", timeout=0.05, breaker=settings)
    def slow(event: Changed, context: HookContext) -> None:
        time.sleep(0.1)

    for number in range(3):
        store.agent("a").set("k", number)
    until(lambda: hooks.metrics()["slow"].breaker == "open")
    found = [str(one.what) for one in sync.recovery.Recovery(store).health().concerns]
    assert any(one.startswith("the hook slow failed again and again") for one in found)
    with pytest.raises(Unavailable, match="longer than"):
        hooks.named("slow").runner.drain(0.2)
    hooks.stop(drain=False)  # does not wait for it


@pytest.mark.spec("L130", "L131")
def test_a_batch_is_told_when_it_is_full_or_after_the_interval(
    store: sync.Store, hooks: Hooks
) -> None:
    sizes: dict[str, list[int]] = {"standard": [], "small": []}
    go = threading.Event()

    def told(event: Changed, context: HookContext) -> None:
        go.wait(30)

    hooks.background("*", name="standard")(told)
    hooks.background("*", name="small", batch_size=7)(told)
    for name, seen in sizes.items():
        runner = hooks.named(name).runner
        inner, kept = runner._run, seen

        def run(lines: Any, inner: Any = inner, kept: Any = kept) -> bool:
            kept.append(sum(len(line.events) for line in lines))
            return bool(inner(lines))

        runner._run = run
    state = store.agent("a")
    for number in range(250):
        state.set("k", number)
    go.set()
    hooks.drain()
    assert sum(sizes["standard"]) == sum(sizes["small"]) == 250
    assert max(sizes["standard"]) == 100
    assert max(sizes["small"]) == 7
    told_alone = len(sizes["standard"])
    state.set("k", "alone")
    hooks.drain()
    assert sizes["standard"][told_alone:] == [1], "it does not wait until a batch is full"
    with state.change() as change:
        for number in range(120):
            change.set(f"k/{number}", number)
    hooks.drain()
    assert sizes["small"][-1] == 120, "an entry is told whole"


@pytest.mark.spec("L130", "L131", "L132")
def test_what_is_not_said_has_the_stated_values(store: sync.Store, hooks: Hooks) -> None:
    hooks.background("k", name="plain")(lambda event, _: None)
    hook = hooks.named("plain")
    assert (hook.batch_size, hook.flush_interval) == (100, 0.05)
    assert (hook.max_concurrent, hook.timeout) == (10, 5.0)
    assert (hook.max_queue_size, hook.on_behind) == (10_000, "alert")
    assert hook.breaker.settings == BreakerSettings.STANDARD


def test_others_traffic_keeps_no_event_waiting(store: sync.Store, hooks: Hooks) -> None:
    told, end = threading.Event(), threading.Event()
    hooks.background("rare")(lambda event, context: told.set())
    other = store.agent("busy")

    def write() -> None:
        while not end.is_set():
            other.set("common", 1)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        store.agent("a").set("rare", 1)
        assert told.wait(30)
        hooks.drain()
    finally:
        end.set()
        writer.join()


@pytest.mark.spec("L128")
def test_events_of_a_scope_come_in_order_and_scopes_beside_each_other(
    store: sync.Store, hooks: Hooks
) -> None:
    seen: dict[str, list[int]] = {}
    meeting = threading.Barrier(3)

    @hooks.background("k", max_concurrent=3)
    def told(event: Changed, context: HookContext) -> None:
        if event.new == 0:
            meeting.wait(30)  # three of them, or it breaks
        time.sleep(0.001 * (event.new % 3))
        seen.setdefault(event.scope.id, []).append(event.new)

    with store.change() as change:
        for agent in "abc":
            change[store.agent(agent)].set("k", 0)
    for number in range(1, 20):
        for agent in "abc":
            store.agent(agent).set("k", number)
    hooks.drain()
    assert seen == {agent: list(range(20)) for agent in "abc"}
    assert hooks.metrics()["told"].failures == 0


def test_no_more_calls_at_once_than_declared(store: sync.Store, hooks: Hooks) -> None:
    at_once, most, lock = 0, 0, threading.Lock()

    @hooks.background("k", max_concurrent=2)
    def told(event: Changed, context: HookContext) -> None:
        nonlocal at_once, most
        with lock:
            at_once += 1
            most = max(most, at_once)
        time.sleep(0.01)
        with lock:
            at_once -= 1

    with store.change() as change:
        for agent in range(8):
            change[store.agent(str(agent))].set("k", 0)
    hooks.drain()
    assert most == 2


@pytest.mark.spec("L132", "X49")
def test_async_hooks_must_honour_max_queue_size_and_warn_or_refuse(
    store: sync.Store, hooks: Hooks, caplog: pytest.LogCaptureFixture
) -> None:
    go = threading.Event()

    def stuck(event: Changed, context: HookContext) -> None:
        go.wait(60)

    hooks.background("a", name="patient", max_queue_size=3)(stuck)
    state = store.agent("x")
    for number in range(20):
        state.set("a", number)
    until(lambda: hooks.metrics()["patient"].behind > 3)
    until(lambda: "the hook patient is" in caplog.text)
    assert store.metrics().count("hooks", hook="patient", outcome="behind") == 1
    state.set("a", 20)  # an alert, and nothing more

    hooks.background("b", name="strict", max_queue_size=3, on_behind="refuse")(stuck)
    for number in range(5):
        state.set("b", number)
    until(lambda: hooks.metrics()["strict"].behind > 3)
    with pytest.raises(HookBehindError, match=r"the background hook strict is \d+ commits behind"):
        state.set("b", 5)
    state.set("c", 1)  # it is not told of this
    assert state.get("b") == 4
    go.set()
    hooks.drain()
    until(lambda: hooks.metrics()["strict"].behind <= 3)
    state.set("b", 6)
    assert hooks.named("patient").max_queue_size == 3


@pytest.mark.spec("L132")
def test_one_that_is_behind_refuses_an_agents_own_state_if_it_is_told_of_that(
    store: sync.Store, hooks: Hooks
) -> None:
    hooks.background(on="agent_state.saved", name="h", max_queue_size=0, on_behind="refuse")(print)
    hook = hooks.named("h")
    hook.runner.stop()
    hook.metrics.behind = 1
    store.agent("a").set("k", 1)
    with pytest.raises(HookBehindError):
        sync.agents.attach(Worker(), store.agent("a"), fields=["task"]).save()


class Worker:
    """An agent of a user's."""

    def __init__(self) -> None:
        self.task = "write"


def test_the_feed_is_a_queue_that_drops_nothing(store: sync.Store, hooks: Hooks) -> None:
    seen: list[int] = []
    hooks.background("k", max_queue_size=10)(lambda event, _: seen.append(event.new))
    for number in range(1000):
        store.agent("a").set("k", number)
    hooks.drain()
    assert seen == list(range(1000))


def test_two_handles_with_one_hook_are_told_of_each_event_once(place: Place) -> None:
    one, two = place.open(), place.open()
    seen: list[tuple[str, int]] = []
    for name, store in (("one", one), ("two", two)):

        def told(event: Changed, context: HookContext, name: str = name) -> None:
            seen.append((name, event.new))

        hooks = Hooks(store)
        hooks.background("k", name="shared")(told)
    for number in range(20):
        (one if number % 2 else two).agent("a").set("k", number)
    hooks.drain()
    assert sorted(number for _, number in seen) == list(range(20))
    assert len({name for name, _ in seen}) == 1, "one of them holds the lease"
    one.close()
    hooks.drain()
    two.agent("a").set("k", 20)
    until(lambda: (("two", 20) in seen) or (("one", 20) in seen))
    assert ("two", 20) in seen, "the other one goes on when it ends"


def test_a_new_hook_begins_now_or_at_a_position(store: sync.Store, hooks: Hooks) -> None:
    state = store.agent("a")
    begun = store.position()
    state.set("k", 1)
    now: list[int] = []
    then: list[int] = []
    hooks.background("k", name="now")(lambda event, _: now.append(event.new))
    hooks.background("k", name="then", since=begun)(lambda event, _: then.append(event.new))
    state.set("k", 2)
    hooks.drain()
    assert (now, then) == ([2], [1, 2])


def test_one_thousand_results_are_kept(store: sync.Store, hooks: Hooks) -> None:
    hooks.background("k/*", name="many")(lambda event, _: None)
    state = store.agent("a")
    for part in range(14):
        with state.change() as change:
            for number in range(100):
                change.set(f"k/{part}/{number}", number)
        hooks.drain()
    kept = kept_results(store, "many", "results", 5000)
    assert 1000 <= len(kept) <= 1250
    assert (kept[0]["key"], kept[999]["entry"]) == ("k/13/99", 5)


@pytest.mark.parametrize(
    "more",
    [
        {"batch_size": 0},
        {"batch_size": "many"},
        {"max_concurrent": 0},
        {"timeout": "long"},
        {"flush_interval": -1},
        {"max_queue_size": -1},
        {"on_behind": "panic"},
    ],
)
def test_bad_settings_are_refused_when_they_are_given(hooks: Hooks, more: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputError):
        hooks.background("k", **more)
    assert hooks.list() == []


def test_a_blocking_store_takes_no_async_hook(hooks: Hooks) -> None:
    async def waits(event: Changed, context: HookContext) -> None: ...

    with pytest.raises(InvalidInputError, match="async def"):
        hooks.background("k")(waits)


@pytest.mark.spec("L71", "L129")
def test_on_the_async_face_a_background_hook_may_be_async(plain: Place) -> None:
    async def work() -> None:
        async with holdfast.open(plain.url, **plain.options()) as store:
            hooks = holdfast.hooks.Hooks(store)
            seen: list[Any] = []

            @hooks.background("k")
            async def told(event: Changed, context: HookContext) -> Skipped:
                await asyncio.sleep(0)
                seen.append((event.old, event.new, context.replay))
                return Skipped("seen")

            state = store.agent("a")
            for number in range(3):
                await state.set("k", number)
            await hooks.drain()
            assert seen == [(None, 0, ""), (0, 1, ""), (1, 2, "")]
            report = await hooks.replay("told", mode="exact")
            assert [one.result for one in report.results] == ["Skipped"] * 3
            assert report.differences == ()
            assert [one.new for one in await hooks.changes("k")] == [2, 1, 0]
            await hooks.stop()

    asyncio.run(work())
