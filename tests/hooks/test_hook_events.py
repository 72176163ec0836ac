"""Names of events: what a hook is told of in the life of an agent, and of its store."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from store_kit import Hands, Place

from holdfast import sync
from holdfast.errors import HoldfastError, UntrustedSignerError
from holdfast.sync.backup import Backups
from holdfast.sync.hooks import Changed, HookContext, Hooks
from holdfast.sync.schemas import Convert, Migrations, Number, Schema, Step, Text


class Worker:
    """An agent of a user's."""

    def __init__(self) -> None:
        self.task = "write"


@pytest.fixture
def told(store: sync.Store, hooks: Hooks) -> list[Changed]:
    """All events, as a background hook is told of them."""
    seen: list[Changed] = []

    @hooks.background(on="*", name="all")
    def watcher(event: Changed, context: HookContext) -> None:
        seen.append(event)

    return seen


def names(hooks: Hooks, told: list[Changed]) -> list[str]:
    """Their names, each once in a row; then begin anew."""
    hooks.drain()
    found = [one.name for one in told]
    told.clear()
    return [one for at, one in enumerate(found) if found[at - 1 : at] != [one]]


@pytest.mark.spec("X44")
def test_the_events_of_an_agents_life_have_their_names_in_order(
    store: sync.Store, hooks: Hooks, told: list[Changed], tmp_path: Path
) -> None:
    state = store.agent("a")
    state.set("plan", 1)
    sync.agents.attach(Worker(), state, fields=["task"]).save()
    safe = state.checkpoint("safe")
    state.set("plan", 2)
    state.restore(safe)
    hooks.drain()  # the order is that of each scope: what backups tell lies in another one
    backups = Backups(store, f"dir:{tmp_path}/backups")
    made = backups.create("first")
    assert backups.verify(made.id).ok
    backups.restore(made.id, f"sqlite:{tmp_path}/other.db")
    backups.create("second")
    backups.prune(1)
    hooks.drain()
    state.prune(before=state.log(limit=1)[0].sequence)
    hooks.drain()
    store.delete("agent:a")
    assert names(hooks, told) == [
        *("state.changed", "agent_state.saved", "state.changed", "restore.completed"),
        *("backup.started", "backup.progress", "backup.completed"),
        *("validation.started", "validation.completed", "restore.started", "restore.completed"),
        *("backup.started", "backup.progress", "backup.completed"),
        *("cleanup.started", "backup.deleted", "cleanup.completed"),
        *("agent_state.deleted",),
    ]


@pytest.mark.spec("X44")
def test_what_is_told_of_a_backup_says_which(
    store: sync.Store, hooks: Hooks, told: list[Changed], tmp_path: Path
) -> None:
    backups = Backups(store, f"dir:{tmp_path}/backups")
    made = backups.create("nightly")
    backups.delete(made.id)
    hooks.drain()
    assert [(one.name, one.new) for one in told if one.name != "backup.progress"] == [
        ("backup.started", {"name": "nightly"}),
        ("backup.completed", {"name": "nightly", "id": made.id}),
        ("backup.deleted", {"id": made.id}),
    ]
    assert {(str(one.scope), one.key) for one in told} == {("custom:$told", "")}
    found = hooks.changes(on="backup.*")
    assert [one.name for one in found] == [one.name for one in reversed(told)]


@pytest.mark.spec("X44")
def test_what_fails_is_told_of_as_failed(
    store: sync.Store, hooks: Hooks, told: list[Changed], tmp_path: Path
) -> None:
    backups = Backups(store, f"dir:{tmp_path}/backups")
    made = backups.create("first")
    for path in (tmp_path / "backups").rglob("*"):
        if path.is_file() and "objects" in path.parts:
            path.write_bytes(b"damaged")
    assert not backups.verify(made.id).ok
    with pytest.raises(HoldfastError):
        backups.restore(made.id, f"sqlite:{tmp_path}/other.db")
    signer, store._core.signer = store._core.signer, None
    with pytest.raises(UntrustedSignerError):
        backups.create("second")
    store._core.signer = signer
    found = names(hooks, told)
    assert found[3:] == [
        *("validation.started", "validation.failed", "restore.started", "restore.failed"),
        *("backup.started", "backup.failed"),
    ]


@pytest.mark.spec("X44")
def test_migrations_are_told_of_from_their_start_to_their_end(
    store: sync.Store, hooks: Hooks, told: list[Changed]
) -> None:
    state = store.agent("a")
    state.declare(Schema("age", version=1, prefix="ages/", fields={"age": Text()}))
    state.set("ages/1", {"age": "17"})
    state.set("ages/2", {"age": "old"})
    steps = [Step(1, 2, [Convert("age", "parse_int")])]
    newer = Schema(
        "age", version=2, prefix="ages/", fields={"age": Number()}, steps=steps, compatible="none"
    )
    state.declare(newer)
    migrations = Migrations(store)
    migrations.run("agent:a", "age", dry_run=True)
    assert "migration_started" not in names(hooks, told)
    migrations.run("agent:a", "age")
    hooks.drain()
    failed = [one for one in told if one.name == "migration_failed"]
    assert failed[0].new["scope"] == "agent:a"
    assert "ages/2" in failed[0].new["error"]
    found = [one for one in names(hooks, told) if one.startswith("migration_")]
    ends = ["migration_failed", "migration_rollback_completed"]
    assert found == ["migration_started", "migration_step_completed", *ends]
    state.delete("ages/2")
    state.set("other", 1)
    migrations.run("agent:a", "age", batch_size=1)
    hooks.drain()
    found = [(one.name, one.new.get("migrated")) for one in told if "migration_" in one.name]
    assert found == [
        ("migration_started", None),
        ("migration_step_completed", 1),
        ("migration_completed", 1),
    ]
    told.clear()
    migrations.run("agent:a", "age")
    assert names(hooks, told) == ["migration_started", "migration_completed"], "nothing was left"


@pytest.mark.spec("X44")
def test_events_of_a_migration_are_of_its_scope_and_what_it_takes_over_is_one_restore(
    store: sync.Store, hooks: Hooks, told: list[Changed]
) -> None:
    mine: list[str] = []
    front: list[tuple[str, str]] = []
    for scope in ("agent:a", "agent:*"):
        made = hooks.background(on="migration_*", scope=scope, name=scope)
        made(lambda event, _: mine.append(event.name))
    hooks.background(on="migration_*", scope="agent:b", name="other")(lambda event, _: mine.clear())
    wanted = ("state.changed", "restore.*")
    hooks.before(on=wanted, name="f")(lambda event, _: front.append((event.name, event.timeline)))
    state = store.agent("a")
    for version, field in ((1, Text()), (2, Number())):
        steps = [Step(1, 2, [Convert("age", "parse_int")])][: version - 1]
        fields = {"age": field}
        state.declare(
            Schema("age", version, prefix="ages/", fields=fields, steps=steps, compatible="none")
        )
        if version == 1:
            state.set("ages/1", {"age": "17"})
    hooks.drain()
    told.clear()
    front.clear()
    Migrations(store).run("agent:*", "age")
    hooks.drain()
    assert state.get("ages/1") == {"age": 17}
    names = ["migration_started", "migration_step_completed", "migration_completed"]
    assert sorted(mine) == sorted(2 * names)
    assert {str(one.scope) for one in told} == {"agent:a"}
    assert {one.timeline for one in told} == {"main"}
    assert sorted(one.name for one in told) == sorted([*names, "restore.completed"])
    assert front == [("restore.started", "main")]
    found = hooks.changes(on="migration_*", scope="agent:a")
    assert [one.name for one in reversed(found)] == names


@pytest.mark.spec("X44")
def test_a_sweep_and_a_deletion_are_told_of_once(timed: sync.Store, hands: Hands) -> None:
    seen: list[tuple[str, str, str, str]] = []
    hooks = Hooks(timed)

    @hooks.background(on=["state.changed", "cleanup.*", "agent_state.deleted"])
    def watcher(event: Changed, context: HookContext) -> None:
        seen.append((event.name, event.timeline, event.key, event.kind))

    state = timed.agent("a")
    state.set("k", 1, ttl=10)
    hooks.drain()
    seen.clear()
    state.sweep()
    hands.move(11)
    assert timed.sweep().keys == 1
    for name in ("one", "two"):
        state.fork(name)
    timed.delete("agent:a")
    hooks.stop()
    assert seen == [
        ("state.changed", "main", "k", "delete"),
        ("cleanup.completed", "main", "", "sweep"),
        ("agent_state.deleted", "main", "", "delete scope"),
    ]


@pytest.mark.spec("X44")
def test_in_front_restores_and_cleanups_are_told_of_as_they_start(
    store: sync.Store, hooks: Hooks
) -> None:
    seen: list[tuple[str, str]] = []
    wanted = ("restore.*", "cleanup.*", "agent_state.*")
    hooks.before(on=wanted, name="all")(lambda event, _: seen.append((event.name, event.kind)))
    state = store.agent("a")
    state.set("k", 1)
    state.restore(state.checkpoint("safe"))
    state.prune(before=state.log(limit=1)[0].sequence)
    state.sweep()
    assert seen == [
        ("restore.started", "restore"),
        ("cleanup.started", "prune"),
        ("cleanup.started", "sweep"),
    ]


def test_nothing_is_written_for_events_that_nobody_asked_for(place: Place, tmp_path: Path) -> None:
    store = place.open()
    hooks = Hooks(store)
    hooks.background("k", name="plain")(lambda event, _: None)
    backups = Backups(store, f"dir:{tmp_path}/backups")
    before = store.position()
    backups.create("quiet")
    assert store.position() == before
    hooks.background(on="backup.completed", name="listens")(lambda event, _: None)
    between: Any = store.position()
    backups.create("told")
    hooks.drain()
    assert store.position() != between
    assert hooks.metrics()["listens"].runs == 1
    hooks.stop()
    hooks = Hooks(store)
    backups.create("told behind")
    hooks.background(on="backup.completed", name="listens")(lambda event, _: None)
    hooks.drain()
    assert hooks.metrics()["listens"].runs == 1, "what happened meanwhile is told, too"
    hooks.stop()
    assert store.verify().ok
