"""Hooks that are there already, and what hooks are measured by."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest
from store_kit import Place

import holdfast
from holdfast import sync
from holdfast.errors import HookCancelledError, InvalidInputError, RecoveryFailedError
from holdfast.hooks.hook import hook_records
from holdfast.sync.hooks import (
    Changed,
    HookContext,
    Hooks,
    backup_on_change,
    persistence,
    validation,
)
from holdfast.sync.schemas import Schema, Text


class Worker:
    """An agent of a user's."""

    def __init__(self) -> None:
        self.task = "write"


@pytest.mark.spec("L69")
def test_values_are_validated_against_a_schema_in_any_scope(
    store: sync.Store, hooks: Hooks
) -> None:
    schema = Schema("note", version=1, prefix="n/", fields={"text": Text(max_length=5)})
    hooks.before("notes/*", name="valid notes")(validation(schema))
    for state in (store.agent("a"), store.custom("c")):
        state.set("notes/1", {"text": "short"})
        with pytest.raises(HookCancelledError, match="text"):
            state.set("notes/1", {"text": "too long"})
        state.append("notes/list", {"text": "ok"})
        with pytest.raises(HookCancelledError):
            state.append("notes/list", {"text": "too long"})
        assert state.get("notes/1") == {"text": "short"}
        assert state.get("notes/list") == [{"text": "ok"}]
        assert state.delete("notes/1")
        state.set("other", {"text": "too long"})
    with pytest.raises(InvalidInputError, match="Schema"):
        validation({"type": "object"})


@pytest.mark.spec("L68")
def test_attached_agents_are_saved_behind_changes_of_their_scope(
    store: sync.Store, hooks: Hooks
) -> None:
    worker, state = Worker(), store.agent("a")
    attached = sync.agents.attach(worker, state, fields=["task"])
    hooks.background("turn", name="keep agents")(persistence({"agent:a": attached}))
    worker.task = "read"
    state.set("turn", 1)
    store.agent("b").set("turn", 1)
    hooks.drain()
    assert hooks.failed("keep agents") == []
    assert hooks.metrics()["keep agents"].skipped == 1, "nobody is attached to the other"
    again = Worker()
    sync.agents.attach(again, state, fields=["task"]).restore()
    assert again.task == "read"
    worker.task = "simulated"
    hooks.replay("keep agents", mode="simulate")
    sync.agents.attach(again, state, fields=["task"]).restore()
    assert again.task == "read"
    with pytest.raises(InvalidInputError, match="method save"):
        persistence({"agent:a": worker})


@pytest.mark.spec("L70", "L75")
def test_on_the_async_face_a_backup_is_made_too(plain: Place, tmp_path: Path) -> None:
    async def work() -> None:
        async with holdfast.open(plain.url, **plain.options()) as store:
            hooks = holdfast.hooks.Hooks(store)
            backups = holdfast.backup.Backups(store, f"dir:{tmp_path}/backups")
            hooks.background("critical_config", name="backup")(backup_on_change(backups))
            await store.agent("a").set("critical_config", 1)
            await hooks.drain()
            assert [one.name for one in await backups.list()] == ["agent:a critical_config"]
            await hooks.stop()

    asyncio.run(work())


@pytest.mark.spec("L198", "L199")
def test_metrics_tell_runs_failures_and_the_mean_time_of_each(
    store: sync.Store, hooks: Hooks, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter(range(0, 1000, 2))
    monkeypatch.setattr("holdfast.hooks.hook.perf_counter", lambda: next(clock))

    @hooks.before("k")
    def front(event: Changed, context: HookContext) -> None:
        if event.new == 2:
            raise ValueError("two")

    hooks.background("k", name="behind")(lambda event, _: None)
    assert hooks.metrics()["front"].mean_seconds == 0.0
    state = store.agent("a")
    for number in (1, 2, 3):
        try:
            state.set("k", number)
        except holdfast.HoldfastError:
            assert number == 2
    hooks.drain()
    found = hooks.metrics()
    assert (found["front"].runs, found["front"].failures) == (3, 1)
    assert (found["front"].seconds, found["front"].mean_seconds) == (6.0, 2.0)
    assert found["front"].error == "ValueError: two"
    assert (found["behind"].runs, found["behind"].failures) == (2, 0)
    assert found["behind"].mean_seconds > 0
    found["front"].runs = 99
    assert hooks.metrics()["front"].runs == 3, "what is given is a copy"
    counted = store.metrics().by("hooks", "outcome", hook="front")
    assert counted == {"done": 2, "failed": 1}
    assert store.metrics().count("hooks", hook="behind") == 2


def test_any_process_can_tell_of_hooks_behind(place: Place) -> None:
    store, other = place.open(), place.open()
    hooks, go = Hooks(store), threading.Event()
    hooks.background("k", name="one")(lambda event, _: go.wait(30) and None)
    assert [(one["name"], one["told"]) for one in hook_records(other)] == [("one", 0)]
    for number in range(3):
        store.agent("a").set("k", number)
    [record] = hook_records(other)
    assert record["behind"] >= 2
    go.set()
    hooks.stop()
    [record] = hook_records(other)
    assert (record["told"], record["results"], record["error"]) == (3, {"Continue": 3}, "")


@pytest.mark.spec("X44")
def test_the_rollback_of_a_recovery_is_told_of(store: sync.Store, hooks: Hooks) -> None:
    seen: list[tuple[str, Any]] = []
    hooks.background(on="rollback.*", name="all")(lambda e, _: seen.append((e.name, e.new)))
    state = store.agent("a")
    state.set("k", 3)
    recovery = sync.recovery.Recovery(
        store,
        validate=[lambda found: found.get("k") != 99 or "not that"],
        steps={"mark": lambda context, action: context.state.set("k", 99) and {}},
        procedures=[
            {
                "id": "p",
                "triggers": ["p"],
                "steps": [{"type": "backup_current"}, {"type": "mark", "id": "m"}],
            }
        ],
    )
    with pytest.raises(RecoveryFailedError):
        recovery.recover(state, "p")
    hooks.drain()
    assert [name for name, _ in seen] == ["rollback.started", "rollback.completed"]
    assert {told["scope"] for _, told in seen} == {"agent:a"}
    assert state.get("k") == 3
