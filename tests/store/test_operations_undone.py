"""Operations that restore, merge or delete their own scope, and what groups depend on."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from store_kit import Place

from holdfast import Lookup, Sticky, sync
from holdfast.errors import DependencyError, InvalidInputError
from holdfast.sync.checkpoints import CheckpointGroups, Checkpoints


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
            checkpoints.restore("old", keys=["x"] if how == "part" else None)
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


def test_all_keys_that_went_back_are_named(plain: Place) -> None:
    """However many there are; what is sticky is not among them, nor the terms of lookups."""
    state = plain.open().agent("a")
    state.declare(Sticky("done/"), Lookup("by_n", prefix="k/", terms={"n": "n"}))
    keys = [f"k/{number:04}" for number in range(1500)]
    for value in (1, 2):
        with state.change() as change:
            for key in keys:
                change.set(key, {"n": value})
        state.checkpoint(f"c{value}")
    with suppress(Broken), Checkpoints(state).operation("try") as run:
        state.set("done/1", "sent")
        state.restore("c1")
        raise Broken
    assert run.reverted is not None
    assert run.reverted.done == keys
    assert state.get(keys[-1]) == {"n": 2}


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
                sync.checkpoints.Retention(store).end(state, "trial")
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


def test_what_others_write_while_it_is_undone_is_kept(
    state: sync.State, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Going back whole rests on nobody else having written: up to the moment it is done."""
    history = type(state._handle.history)
    entries, written = history.entries, []

    def then_another_writes(self: Any, **given: Any) -> Iterator[Any]:
        yield from entries(self, **given)
        if not written:
            written.append(threading.Thread(target=lambda: state.set("theirs", 1)))
            written[0].start()
            written[0].join()

    with pytest.raises(Broken) as raised, Checkpoints(state).operation("try") as run:
        state.restore("old")
        monkeypatch.setattr(history, "entries", then_another_writes)
        raise Broken
    assert written
    assert all_of(state) == {"x": 1, "theirs": 1}
    assert run.reverted is not None
    assert "is a restore, which is undone whole" in raised.value.__notes__[0]


def test_what_it_made_and_removed_again_is_no_note(state: sync.State) -> None:
    checkpoints = Checkpoints(state)
    with pytest.raises(Broken) as raised, checkpoints.operation("try") as run:
        state.set("t", 1)
        state.delete("t")
        state.set("x", 3)
        raise Broken
    assert not hasattr(raised.value, "__notes__")
    assert run.reverted is not None
    assert (run.reverted.done, run.reverted.left) == (["x"], [])


@pytest.mark.parametrize("how", ["whole", "part", "set"])
def test_what_somebody_else_restored_meanwhile_stays(state: sync.State, how: str) -> None:
    """Also if it was restored to the value that the operation gave it."""
    state.set("done/sent", 1)

    def restore() -> None:
        if how == "whole":
            state.restore("old")
        elif how == "part":
            Checkpoints(state).restore("old", keys=["x"])
        else:
            state.set("x", 1)

    def other(work: Any) -> None:
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()

    with pytest.raises(Broken) as raised, Checkpoints(state).operation("o") as running:
        state.set("x", 1)
        other(restore)
        raise Broken
    assert running.reverted is not None
    assert [one.key for one in running.reverted.left] == ["x"]
    assert "x" in raised.value.__notes__[0]
    assert state.get("x") == 1
    if how == "whole":
        assert not state.diff("old").keys.count("x")


def test_what_can_never_be_undone_is_not_said_to_be_tried_again(state: sync.State) -> None:
    checkpoints = Checkpoints(state)
    with pytest.raises(Broken) as raised, checkpoints.operation("o") as running:
        state.set("x", 3)
        state.prune(state.log(limit=1)[0].sequence)
        raise Broken
    assert running.outcome == "failed"
    (note,) = raised.value.__notes__
    assert "tries again" not in note
    assert running.checkpoint.id in note
    assert "keep" in note
