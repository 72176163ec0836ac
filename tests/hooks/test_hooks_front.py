"""Hooks in front of changes: what they see, what they may give, and what becomes of it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from store_kit import Place

import holdfast
from holdfast import Operation, sync
from holdfast.errors import (
    GateRefusedError,
    HoldfastError,
    HookCancelledError,
    HookResultError,
    InvalidInputError,
)
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


def giving(hooks: Hooks, result: Any, keys: str = "k", **more: Any) -> None:
    """A hook that gives one thing."""
    more.setdefault("name", "giver")
    hooks.before(keys, **more)(lambda event, context: result)


@pytest.mark.spec("L5", "L71", "L74")
def test_a_hook_sees_the_old_and_the_new_value_who_asked_and_where(
    store: sync.Store, hooks: Hooks
) -> None:
    seen: list[Changed] = []
    contexts: list[HookContext] = []

    @hooks.before("plan/*", scope="agent:*")
    def watcher(event: Changed, context: HookContext) -> None:
        _ = event.old, event.new
        seen.append(event)
        contexts.append(context)

    state = store.agent("a")
    state.set("plan/1", {"n": 1})
    state.set("other", 1)
    store.custom("c").set("plan/1", 1)
    with store.acting("planner", correlation="run-7"):
        state.set("plan/1", {"n": 2})
    state.append("plan/l", "x")
    state.delete("plan/1")
    told = [(one.name, str(one.scope), one.timeline, one.key, one.kind) for one in seen]
    place = ("state.changed", "agent:a", "main")
    assert told == [
        (*place, "plan/1", "set"),
        (*place, "plan/1", "set"),
        (*place, "plan/l", "append"),
        (*place, "plan/1", "delete"),
    ]
    assert [one.old for one in seen] == [None, {"n": 1}, None, {"n": 2}]
    assert [one.new for one in seen] == [{"n": 1}, {"n": 2}, ["x"], None]
    assert (seen[1].cause.actor, seen[1].cause.correlation) == ("planner", "run-7")
    assert all(one.entry is None for one in seen)
    assert {one.hook for one in contexts} == {"watcher"}
    assert not any(one.replay for one in contexts)


@pytest.mark.spec("L72")
def test_what_a_hook_keeps_in_its_context_is_there_the_next_time(
    store: sync.Store, hooks: Hooks
) -> None:
    @hooks.before("k")
    def count(event: Changed, context: HookContext) -> Modified:
        context.data["n"] = context.data.get("n", 0) + 1
        return Modified(context.data["n"])

    state = store.agent("a")
    for _ in range(3):
        state.set("k", "x")
    assert state.get("k") == 3


@pytest.mark.spec("L73", "X43")
@pytest.mark.parametrize("result", [None, Continue(), Skipped("nothing to do")])
def test_nothing_continue_and_skipped_leave_a_change_as_it_is(
    store: sync.Store, hooks: Hooks, result: Any
) -> None:
    giving(hooks, result)
    store.agent("a").set("k", 1)
    assert store.agent("a").get("k") == 1
    assert hooks.metrics()["giver"].skipped == isinstance(result, Skipped)
    assert hooks.metrics()["giver"].runs == 1


@pytest.mark.spec("X43")
def test_modified_is_what_is_written(store: sync.Store, hooks: Hooks) -> None:
    giving(hooks, Modified({"tidied": True}))
    giving(hooks, Modified(["p", "q"]), "list", name="items")
    state = store.agent("a")
    state.set("k", 1)
    state.append("list", "x")
    assert state.get("k") == {"tidied": True}
    assert state.get("list") == ["p", "q"]
    with pytest.raises(HookResultError, match="a delete has no value"):
        state.delete("k")
    assert state.get("k") == {"tidied": True}


@pytest.mark.spec("X43", "X49")
@pytest.mark.parametrize("what", ["set", "append", "delete", "change"])
def test_a_hooks_cancel_must_be_visible_to_the_caller_also_of_a_delete(
    store: sync.Store, hooks: Hooks, what: str
) -> None:
    state = store.agent("a")
    state.set("k", [1])
    giving(hooks, Cancel("not today"), name="guard")
    with pytest.raises(HookCancelledError, match="not today") as caught:
        if what == "set":
            state.set("k", 2)
        elif what == "append":
            state.append("k", 2)
        elif what == "delete":
            state.delete("k")
        else:
            with state.change() as change:
                change.set("other", 1)
                change.set("k", 2)
    assert (caught.value.hook, caught.value.reason) == ("guard", "not today")
    assert state.get("k") == [1]
    assert not state.exists("other"), "all of a change is refused"


@pytest.mark.spec("X49")
def test_delete_must_run_hooks_and_one_that_passes_it_deletes(
    store: sync.Store, hooks: Hooks
) -> None:
    kinds: list[tuple[str, Any]] = []
    hooks.before("k", name="watcher")(lambda event, _: kinds.append((event.kind, event.old)))
    state = store.agent("a")
    state.set("k", 1)
    assert state.delete("k") is True
    assert not state.exists("k")
    assert kinds == [("set", None), ("delete", 1)]


@pytest.mark.spec("X43")
def test_redirect_does_it_to_another_key_of_the_scope(store: sync.Store, hooks: Hooks) -> None:
    giving(hooks, Redirect("elsewhere"))
    state = store.agent("a")
    state.set("k", 1)
    assert (state.get("k"), state.get("elsewhere")) == (None, 1)
    for bad in ("", "$machine/x"):
        with pytest.raises(InvalidInputError):
            Redirect(bad)


@pytest.mark.spec("X43")
def test_replace_does_other_operations_instead_of_the_whole_change(
    store: sync.Store, hooks: Hooks
) -> None:
    giving(hooks, Replace([Operation("set", "a", 1), Operation("set", "b", 2)]))
    state = store.agent("a")
    state.set("k", 1)
    with state.change() as change:
        change.set("c", 3)
        change.set("k", 1)
    keys = state.keys()
    assert {key: state.get(key) for key in keys} == {"a": 1, "b": 2}
    with pytest.raises(InvalidInputError, match="Operation"):
        Replace([("set", "a", 1)])  # type: ignore[list-item]


@pytest.mark.spec("X43")
@pytest.mark.parametrize(
    "way", [Redirect("guarded/x"), Replace([Operation("set", "guarded/x", 1)])]
)
def test_a_cancel_wins_over_a_later_redirect_or_replace(
    store: sync.Store, hooks: Hooks, way: Redirect | Replace
) -> None:
    giving(hooks, Cancel("guarded"), "guarded/*", name="guard", priority="highest")
    giving(hooks, way, "inbox/*", name="way")
    state = store.agent("a")
    with pytest.raises(HookCancelledError, match="guard"):
        state.set_many({"other": 1, "inbox/1": 1})
    assert state.keys() == []


@pytest.mark.spec("X43")
def test_redirects_may_go_against_the_order_but_not_in_a_circle(
    store: sync.Store, hooks: Hooks
) -> None:
    for at in range(3, 0, -1):  # each leads to one that was asked before
        giving(hooks, Redirect(f"k{at}"), f"k{at - 1}", name=f"to {at}")
    hooks.before("own/*")(lambda event, context: Redirect(f"own/{event.key}"))
    state = store.agent("a")
    state.set("k0", 1)
    state.set("own/a", 1)
    assert state.keys() == ["k3", "own/own/a"], "who gave it is not asked about it"
    giving(hooks, Redirect("k0"), "k3", name="back")
    with pytest.raises(HookResultError, match="in a circle; the last was "):
        state.set("k0", 1)


@pytest.mark.spec("X43")
def test_cache_leaves_a_hook_unasked_about_such_keys_for_a_while(
    store: sync.Store, hooks: Hooks, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    monkeypatch.setattr("holdfast.hooks.hook.monotonic", lambda: now[0])
    asked: list[str] = []

    @hooks.before("*")
    def careful(event: Changed, context: HookContext) -> Cache | None:
        asked.append(event.key)
        return Cache("known/*", 60) if event.key.startswith("known/") else None

    state = store.agent("a")
    for key in ("known/1", "known/2", "new", "known/1"):
        state.set(key, 1)
    assert asked == ["known/1", "new"]
    assert hooks.metrics()["careful"].skipped == 2
    now[0] += 61
    state.set("known/2", 1)
    assert asked == ["known/1", "new", "known/2"]


@pytest.mark.spec("X43", "L73")
@pytest.mark.parametrize("result", [Retry(), Fork(["x"]), "yes", 17, Cancel])
def test_what_makes_no_sense_in_front_is_refused_and_names_the_hook(
    store: sync.Store, hooks: Hooks, result: Any
) -> None:
    giving(hooks, result, name="odd one")
    with pytest.raises(HookResultError, match="odd one"):
        store.agent("a").set("k", 1)
    assert not store.agent("a").exists("k")
    assert hooks.metrics()["odd one"].failures == 1


def test_what_a_hook_makes_wrongly_names_the_hook(store: sync.Store, hooks: Hooks) -> None:
    def wrong(make: Any) -> None:
        hooks.before("k", name="odd one")(lambda event, context: make())
        with pytest.raises(GateRefusedError, match="the hook odd one"):
            state.set("k", 2)
        hooks.remove("odd one")

    state = store.agent("a")
    state.set("k", 1)
    wrong(lambda: Redirect(""))
    wrong(lambda: Replace([("set", "a", 1)]))  # type: ignore[list-item]
    wrong(lambda: Replace([Operation("set", "", 1)]))
    giving(hooks, Modified(2), name="odd one")
    with pytest.raises(HookResultError, match="the hook odd one gave Modified, and a delete"):
        state.delete("k")
    assert state.items() == [("k", 1)]


@pytest.mark.spec("X43")
def test_five_priorities_and_each_sees_what_those_before_it_left(
    store: sync.Store, hooks: Hooks
) -> None:
    for priority in ("low", "highest", "normal", "lowest", "high"):

        def hook(event: Changed, context: HookContext) -> Modified:
            return Modified([*event.new, context.hook])

        hooks.before("k", name=priority, priority=priority)(hook)
    state = store.agent("a")
    state.set("k", [])
    order = ["highest", "high", "normal", "low", "lowest"]
    assert state.get("k") == order
    assert hooks.list() == order
    with pytest.raises(InvalidInputError, match="highest, high"):
        hooks.before("k", priority="urgent")(print)


@pytest.mark.spec("X43")
@pytest.mark.parametrize("first", ["highest", "lowest"])
def test_any_cancel_wins_then_the_last_modified(
    store: sync.Store, hooks: Hooks, first: str
) -> None:
    giving(hooks, Modified("by high"), name="one", priority="high")
    giving(hooks, Modified("by low"), name="two", priority="low")
    state = store.agent("a")
    state.set("k", "x")
    assert state.get("k") == "by low"
    giving(hooks, Cancel("no"), name="never", priority=first)
    with pytest.raises(HookCancelledError):
        state.set("k", "y")
    assert state.get("k") == "by low"


def test_a_hook_that_raises_refuses_the_change_and_is_named(
    store: sync.Store, hooks: Hooks
) -> None:
    def broken(event: Changed, context: HookContext) -> None:
        raise ValueError("I am broken")

    hooks.before("k")(broken)
    with pytest.raises(GateRefusedError, match=r"hook broken failed with ValueError: I am broken"):
        store.agent("a").set("k", 1)
    assert not store.agent("a").exists("k")
    store.agent("a").set("other", 1)
    assert store.metrics().by("hooks", "outcome", hook="broken") == {"failed": 1}


@pytest.mark.spec("L200", "L202")
def test_one_that_fails_again_and_again_is_passed_over_or_refuses_as_declared(
    store: sync.Store, hooks: Hooks
) -> None:
    def broken(event: Changed, context: HookContext) -> None:
        raise ValueError("I am broken")

    settings = BreakerSettings(failures=2, open=3600)
    hooks.before("skip", name="a", breaker=settings)(broken)
    hooks.before("stay", name="b", breaker=settings, on_open="refuse")(broken)
    state = store.agent("a")
    for _ in range(2):
        for key in ("skip", "stay"):
            with pytest.raises(GateRefusedError, match="I am broken"):
                state.set(key, 1)
    state.set("skip", 1)
    assert state.get("skip") == 1
    with pytest.raises(GateRefusedError, match=r"hook b has failed too often.*I am broken"):
        state.set("stay", 1)
    assert not state.exists("stay")
    metrics = hooks.metrics()
    assert [metrics[name].breaker for name in "ab"] == ["open", "open"]
    assert [metrics[name].passed_over for name in "ab"] == [1, 1]
    assert [metrics[name].opened for name in "ab"] == [1, 1]
    assert metrics["a"].runs == metrics["a"].failures == 2
    assert store.metrics().count("hooks", hook="a", outcome="passed_over") == 1
    health = sync.recovery.Recovery(store).health()
    told = {one.kind: one.what for one in health.concerns}
    assert "the hook" in told["hook_left_out"]


def test_hooks_in_front_know_when_scopes_are_restored_forked_and_deleted(
    store: sync.Store, hooks: Hooks
) -> None:
    names: list[str] = []
    hooks.before(on="*", name="all")(lambda event, _: names.append(event.name))
    hooks.before(on="fork", name="no forks")(lambda event, _: Cancel("no forks here"))
    state = store.agent("a")
    state.set("k", 1)
    safe = state.checkpoint("safe")
    state.restore(safe)
    with pytest.raises(HookCancelledError, match="no forks here"):
        state.fork("f")
    store.delete("agent:a")
    assert names == ["state.changed", "checkpoint", "restore.started", "fork", "delete scope"]
    hooks.before(on="erase scope", name="kept")(lambda event, _: Cancel("kept"))
    with pytest.raises(HookCancelledError, match="agent:b: the hook kept") as refused:
        store.agent("b").set("k", 1)
        store.erase("agent:b")
    assert "$" not in str(refused.value)
    assert names[5:] == ["state.changed", "erase scope"]


@pytest.mark.spec("X15")
def test_on_state_save_and_on_state_restore_are_called_before_both(
    store: sync.Store, hooks: Hooks
) -> None:
    seen: list[tuple[str, str]] = []

    @hooks.on_state_save(scope="agent:*")
    def saving(event: Changed, context: HookContext) -> Any:
        seen.append((event.name, event.key))
        return Cancel("secrets stay out") if event.new == "secret" else None

    @hooks.on_state_restore()
    def restoring(event: Changed, context: HookContext) -> Any:
        seen.append((event.name, event.key))
        return Cancel("not now") if context.data else None

    state = store.agent("a")
    state.set("k", 1)
    with pytest.raises(HookCancelledError):
        state.set("k", "secret")
    agent = sync.agents.attach(Worker(), state, fields=["task"])
    agent.save()
    safe = state.checkpoint("safe")
    state.restore(safe)
    hooks.named("restoring").data["busy"] = True
    with pytest.raises(HookCancelledError, match="not now"):
        state.restore(safe)
    assert seen[:2] == [("state.changed", "k")] * 2
    assert ("agent_state.saved", "$agent/attached/task") in seen
    assert seen[-2:] == [("restore.started", "")] * 2


class Worker:
    """An agent of a user's."""

    def __init__(self) -> None:
        self.task = "write"


def test_the_state_of_an_agent_can_be_refused_and_not_changed(
    store: sync.Store, hooks: Hooks
) -> None:
    giving(hooks, Modified("x"), "*", on="agent_state.saved")
    with pytest.raises(HookResultError, match="not change it"):
        sync.agents.attach(Worker(), store.agent("a"), fields=["task"]).save()


def test_long_bytes_are_asked_about_once_when_all_of_them_are_there(
    store: sync.Store, hooks: Hooks, tmp_path: Path
) -> None:
    seen: list[Any] = []
    hooks.before("file")(lambda event, _: seen.append(event.new))
    (tmp_path / "film").write_bytes(bytes(3_000_000))
    store.agent("a").put_file("file", tmp_path / "film")
    assert [one.size for one in seen] == [3_000_000]
    hooks.before("film", name="no")(lambda event, _: Cancel(f"{event.new.size} bytes"))
    with pytest.raises(HookCancelledError, match="3000000 bytes"):
        store.agent("a").put_file("film", tmp_path / "film")
    assert store.agent("a").get("film") is None
    assert store.verify().ok


def test_without_hooks_a_change_asks_nobody(store: sync.Store, hooks: Hooks) -> None:
    gates = store._core.gates
    assert gates.front == []
    giving(hooks, None)
    assert len(gates.front) == 1
    giving(hooks, None, name="second")
    assert len(gates.front) == 1
    hooks.remove("giver")
    hooks.remove("second")
    assert gates.front == []
    hooks.background("k", name="behind")(print)
    assert gates.front == [], "hooks behind stand in no gate"


def test_what_cannot_be_a_hook_is_refused_when_it_is_set(store: sync.Store, hooks: Hooks) -> None:
    async def waits(event: Changed, context: HookContext) -> None: ...

    with pytest.raises(InvalidInputError, match="async def"):
        hooks.before("k")(waits)
    with pytest.raises(InvalidInputError):
        hooks.before("k")(17)
    for bad in ("", [], "*" * 9, "x" * 201, 7):
        with pytest.raises(InvalidInputError):
            hooks.before(bad, name="n")(print)  # type: ignore[arg-type]
    for wrong, said in (
        ({"on": "state.chanegd"}, "no event is named like 'state.chanegd'; there are agent_"),
        ({"on": ["fork", "restored.*"]}, "no event is named like"),
        ({"scope": "agnt:*"}, "no scope is named like 'agnt:*'; kinds are global, agent"),
    ):
        for put in (hooks.before, hooks.background):
            with pytest.raises(InvalidInputError, match=said.replace("*", r"\*")):
                put("k", name="n", **wrong)  # type: ignore[arg-type]
    for alone in (lambda event: None, lambda: None, lambda event, context, more: None):
        with pytest.raises(InvalidInputError, match=r"is called with \(event, context\)"):
            hooks.before("k", name="n")(alone)
    for bare in (hooks.before, hooks.background, hooks.on_state_save):
        with pytest.raises(InvalidInputError, match="write it with parentheses: @hooks"):
            bare(print)
    hooks.before("k", name="n")(print)
    with pytest.raises(InvalidInputError, match="already"):
        hooks.before("k", name="n")(print)
    with pytest.raises(InvalidInputError, match="on_open"):
        hooks.before("k", name="m", on_open="wait")(print)
    with pytest.raises(InvalidInputError, match="Cancel"):
        Cancel("")
    with pytest.raises(InvalidInputError, match="same face"):
        Hooks("sqlite:x")  # type: ignore[arg-type]
    with pytest.raises(HoldfastError, match="there is no hook 'x' here; there are n"):
        hooks.remove("x")


def test_a_pattern_that_matches_nothing_is_seen_in_the_metrics(
    store: sync.Store, hooks: Hooks
) -> None:
    giving(hooks, Cancel("never"), "no/such/key")
    store.agent("a").set("k", 1)
    assert hooks.metrics()["giver"].runs == 0


def test_both_faces_have_the_same_hooks_in_front(plain: Place) -> None:
    async def work() -> None:
        async with holdfast.open(plain.url, **plain.options()) as store:
            hooks = holdfast.hooks.Hooks(store)

            @hooks.before("k")
            def tidy(event: Changed, context: HookContext) -> Modified | Cancel:
                return Modified(event.new + 1) if event.new < 5 else Cancel("too much")

            with pytest.raises(InvalidInputError, match="parentheses"):
                hooks.background(print)
            with pytest.raises(InvalidInputError, match="plain function on both faces"):

                @hooks.before("k")
                async def waits(event: Changed, context: HookContext) -> None: ...

            state = store.agent("a")
            await state.set("k", 1)
            assert await state.get("k") == 2
            with pytest.raises(HookCancelledError):
                await state.set("k", 7)
            assert hooks.metrics()["tidy"].runs == 2
            await hooks.stop()
            await state.set("k", 7)
            assert await state.get("k") == 7

    asyncio.run(work())
