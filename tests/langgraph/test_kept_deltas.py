"""States of a thread that stay when its scope is pruned, though delta channels made them of it."""

from __future__ import annotations

from typing import Any

import pytest
from graph_kit import thread
from test_pruned_deltas import graph, values

from holdfast import Keep, sync
from holdfast.errors import PrunedError

SCOPE = "langgraph/one"


def turns(store: Any, often: int, *numbers: int) -> None:
    for number in numbers:
        graph(store, often).invoke({"log": [f"in {number}"]}, thread())


def last(state: Any) -> int:
    return int(state.log(limit=1)[0].sequence)


def goes_on(store: Any, often: int, good: list[str]) -> None:
    """The thread holds what it held, and the next turn adds to that."""
    assert values(store, often) == good
    turns(store, often, 99)
    assert values(store, often) == [*good, "in 99", f"step {len(good) + 1}"]
    assert store.verify().ok


@pytest.mark.parametrize("way", ["checkpoint", "hold", "pin", "named", "behind", "source", "fork"])
def test_what_stays_is_whole(way: str) -> None:
    with sync.open("memory:") as store:
        state, retention = store.custom(SCOPE), sync.checkpoints.Retention(store)
        turns(store, 4, 0, 1, 2)
        good = values(store, 4)
        kept = state.checkpoint("good")
        if way == "hold":
            retention.hold(kept, "case 7")
        elif way == "pin":
            retention.pin(kept, "shipped")
        elif way == "fork":
            state.fork("trial")
        turns(store, 4, *range(3, 9))
        keep: list[Any] | None = [] if way == "fork" else None
        if way == "pin":
            state.declare(Keep(count=0))
            retention.run(state)
        elif way == "behind":  # the floor is below the checkpoint, and above what that needs
            assert state.prune(kept.sequence - 1, keep=[]).floor < kept.sequence - 1
        elif way == "source":
            state.restore(kept)
            turns(store, 4, *range(3, 9))
            state.prune(kept.sequence + 1, keep=[])
        else:
            state.prune(last(state), keep=[kept] if way == "named" else keep)
        if way == "fork":
            state.adopt("trial")
        else:
            state.restore(kept)
        goes_on(store, 4, good)


def test_the_point_that_is_pruned_to_is_whole() -> None:
    with sync.open("memory:") as store:
        state = store.custom(SCOPE)
        turns(store, 4, 0, 1, 2)
        good, point = values(store, 4), last(state)
        turns(store, 4, *range(3, 9))
        assert 0 < state.prune(point, keep=[]).floor < point
        state.restore(point)
        goes_on(store, 4, good)


def test_a_fork_that_is_pruned_itself_keeps_what_it_is_made_of() -> None:
    with sync.open("memory:") as store:
        state = store.custom(SCOPE)
        turns(store, 4, 0, 1, 2)
        good = values(store, 4)
        trial = state.fork("trial")
        trial.prune(trial.set("note", 1), keep=[])
        trial.set("note", 2)
        turns(store, 4, *range(3, 9))
        state.prune(last(state), keep=[])
        state.adopt("trial")
        goes_on(store, 4, good)


def test_the_backup_of_a_restore_is_whole() -> None:
    """Also if the thread was empty before: no later state tells that there were such channels."""
    with sync.open("memory:") as store:
        state = store.custom(SCOPE)
        state.set("note", 1)
        empty = state.checkpoint("empty")
        turns(store, 4, 0, 1, 2)
        good = values(store, 4)
        done = state.restore(empty)
        assert done.backup is not None
        state.prune(last(state))
        state.restore(done.backup)
        goes_on(store, 4, good)


def test_what_is_kept_no_longer_gives_its_past_free() -> None:
    with sync.open("memory:") as store:
        state = store.custom(SCOPE)
        turns(store, 4, 0, 1, 2)
        kept = state.checkpoint("good")
        turns(store, 4, *range(3, 9))
        assert state.prune(last(state)).floor < kept.sequence
        assert state.prune(last(state), keep=[]).floor > kept.sequence


def test_a_restore_that_is_committed_with_the_anchor_is_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The newest state is that of the commit, not the one that was looked at before."""
    with sync.open("memory:") as store:
        state = store.custom(SCOPE)
        turns(store, 4, *range(9))
        whole, head = values(store, 4), last(state)
        point = state.prune(head, keep=[], dry_run=True).floor
        assert point  # its state stays, but not what that is made of
        restored: list[Any] = []

        def together(change: Any) -> Any:
            monkeypatch.undo()
            plan = state._handle.plan_restore(point, "full", None, None)
            restored.append(state._handle.core.submit(plan[0]))
            return state._handle.core.run(change)

        monkeypatch.setattr(state._handle.core, "run", together)
        state.prune(head, keep=[])
        assert restored[0].outcome()
        good = values(store, 4)
        assert good
        assert good == whole[: len(good)]
        assert store.verify().ok


def test_a_state_whose_past_is_gone_is_refused() -> None:
    """Nothing is added to a thread that would seem to be empty."""
    with sync.open("memory:") as store:
        state = store.custom(SCOPE)
        turns(store, 4, 0, 1, 2, 3)
        before = values(store, 4)
        floor = state.prune(last(state), keep=[]).floor
        assert floor
        done = state.restore(floor)
        with pytest.raises(PrunedError, match="restore its backup"):
            values(store, 4)
        with pytest.raises(PrunedError):
            turns(store, 4, 99)
        state.restore(done.backup)
        goes_on(store, 4, before)
