"""Operations that restore, merge or delete their own scope, and what groups depend on."""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import Any

import pytest

from holdfast import Sticky, sync
from holdfast.errors import DependencyError, InvalidInputError
from holdfast.sync import CheckpointGroups, Checkpoints


class Broken(Exception):
    """What goes wrong in these tests."""


def all_of(state: sync.State) -> dict[str, Any]:
    return dict(state.items())


@pytest.fixture
def state(store: sync.Store) -> sync.State:
    state = store.agent("1")
    state.declare(Sticky("done/"))
    state.set("x", 1)
    state.checkpoint("old")
    state.set("x", 2)
    state.set("y", 2)
    return state


@pytest.mark.parametrize("how", ["restore", "checkpoints", "part", "merge"])
@pytest.mark.parametrize("killed", [False, True])
def test_a_restore_or_merge_inside_is_undone(
    store: sync.Store, state: sync.State, how: str, killed: bool
) -> None:
    checkpoints = Checkpoints(state)
    before = all_of(state)
    with (
        suppress(Broken),
        checkpoints.operation("try", on_error="keep" if killed else "revert") as run,
    ):
        state.set("z", 3)
        if how == "restore":
            state.restore("old")
        elif how == "merge":
            trial = state.fork("trial")
            trial.set("x", 5)
            state.merge(trial)
        else:
            checkpoints.restore("old", keys=["x"] if how == "part" else [])
        state.set("done/1", "sent")
        state.set("w", 1)
        raise Broken
    if killed:
        assert state.get("x") == (5 if how == "merge" else 1)
        run.reverted = checkpoints.finish(run.checkpoint, "revert")
    assert all_of(state) == before | {"done/1": "sent"}
    assert run.reverted is not None
    assert "x" in run.reverted.done
    whole = how != "part"
    assert [one.key for one in run.reverted.left] == ([] if whole else ["done/1"])
    assert [one.why for one in checkpoints.held()] == ([] if whole else ["restore"])
    assert store.verify().findings == []


def test_not_if_others_wrote_meanwhile(state: sync.State) -> None:
    """Then it is left alone, and named."""
    checkpoints = Checkpoints(state)
    with pytest.raises(Broken) as raised, checkpoints.operation("try") as run:
        back = state.restore("old")
        thread = threading.Thread(target=lambda: state.set("other", 1))
        thread.start()
        thread.join()
        raise Broken
    assert run.reverted is not None
    assert len(run.reverted.left) == 1
    assert "is a restore, which is undone whole" in raised.value.__notes__[0]
    assert all_of(state) == {"x": 1, "other": 1}
    assert back.backup is not None
    assert [one.checkpoint.id for one in checkpoints.held()] == [back.backup.id]


@pytest.mark.parametrize("how", ["delete", "erase", "end"])
@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("fails", [False, True])
def test_a_scope_that_is_deleted_inside_is_not_brought_back(
    store: sync.Store, state: sync.State, how: str, again: bool, fails: bool
) -> None:
    if how == "end":
        if again:
            return  # its name is not used again
        state = state.fork("trial")
    operation = Checkpoints(state).operation("retire")
    run, notes = None, []
    try:
        with operation as run:
            if how == "end":
                Checkpoints(state).finish(run.checkpoint, "keep")  # else it could not be ended
                sync.Retention(store).end(state, "trial")
            else:
                getattr(store, how)(state.scope)
            if again:
                state.set("new", 1)
            if fails:
                raise Broken
    except Broken as error:
        notes = error.__notes__
    assert run is not None
    assert run.outcome == ("kept" if fails else "completed")
    assert len(notes) == fails
    if how == "end":
        assert [one.name for one in store.agent("1").timelines()] == ["main"]
    else:
        assert [str(one.scope) for one in store.scopes().items] == (["agent:1"] if again else [])
        assert all_of(state) == ({"new": 1} if again else {})
        assert state.checkpoints() == []
    assert store.verify().findings == []


def test_what_a_group_rests_on_is_looked_at(store: sync.Store) -> None:
    one, two, tools = store.agent("1"), store.agent("2"), store.agent("tools")
    for state in (one, two, tools):
        state.set("k", 1)
    groups = CheckpointGroups(store)
    made = groups.create([one, two], "both", depends_on=[tools])
    one.set("k", 2)
    tools.set("k", 2)
    with pytest.raises(DependencyError, match="moved on"):
        groups.restore(made, dependencies="unchanged")
    with pytest.raises(InvalidInputError, match="exist, unchanged, ignore"):
        groups.restore(made, dependencies="any")
    groups.restore(made)
    one.set("k", 3)
    store.delete(tools.scope)
    with pytest.raises(DependencyError, match="missing"):
        groups.restore(made)
    assert one.get("k") == 3
    groups.restore(made, dependencies="ignore")
    assert one.get("k") == 1
