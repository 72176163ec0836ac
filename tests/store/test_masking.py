"""What is sensitive for one of the states that are looked at, or for the newest, is shown nowhere.

Each point and each timeline has its own declarations.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from store_kit import Place

import holdfast
from holdfast import Classed, Sticky, sync
from holdfast.errors import MergeConflictError

SECRET = "hunter2-hunter2-hunter2"
CARDS = Classed("billing/", "sensitive")


class Noting(holdfast.Gate):
    """Which keys were read."""

    def __init__(self) -> None:
        self.read: list[tuple[str, ...]] = []

    def reading(self, reading: holdfast.GateReading) -> None:
        self.read.append(reading.keys)


def hidden(*shown: Any) -> None:
    """Check that something is told of a key, and nothing of what it is."""
    for one in shown:
        assert "billing/card" in repr(one)
        assert SECRET not in f"{one} {one!r}", one


@pytest.fixture
def state(store: sync.Store) -> sync.State:
    """main@1, and a checkpoint before the class is declared; then the secret."""
    state = store.agent("a")
    state.set("plan", 1)
    state.checkpoint("before")
    state.declare(CARDS)
    state.set("billing/card", SECRET)
    return state


def test_until_a_point_before_the_class_was_declared(state: sync.State) -> None:
    now = state._handle.place()[2]
    whole = sync.checkpoints.Checkpoints(state).restore("before", dry_run=True).restored
    part = (
        sync.checkpoints.Checkpoints(state)
        .restore("before", keys=["billing/card"], dry_run=True)
        .restored
    )
    for diff in (
        state.restore("before", dry_run=True).diff,
        state.diff(now, "before"),
        state.diff("before"),
        whole.diff,
        part.diff,
    ):
        hidden(diff)


@pytest.mark.parametrize("known", [False, True])
def test_what_another_timeline_declares_since_a_point_comes_along(
    store: sync.Store, known: bool
) -> None:
    """Unless this timeline has said something of the prefix itself."""
    state = store.agent("a")
    state.set("plan", 1)
    if known:
        state.declare(Classed("billing/", "standard"))
    fork = state.fork("other")
    fork.set("billing/card", SECRET)
    point = f"other@{fork._handle.place()[2]}"
    fork.declare(CARDS)
    planned = state.restore(point, dry_run=True)
    done = state.restore(point)
    assert (planned.root, planned.keys) == (done.root, done.keys)
    assert state._handle.reader.class_of("billing/card") == ("standard" if known else "sensitive")
    if not known:
        hidden(state.diff("main@1"), planned.diff)
    assert store.verify().ok


def test_what_is_declared_now_holds_for_what_was_written_before(
    store: sync.Store, tmp_path: Path
) -> None:
    state, gate = store.agent("a"), Noting()
    state.set("billing/card", SECRET)
    state.set("billing/card", SECRET + "!")
    state.checkpoint("then")
    state.set("billing/card", 1)
    other = state.fork("other", at="then")
    state.declare(CARDS)
    view = state.at("then")
    assert view._handle.reader.class_of("billing/card") == "sensitive"
    hidden(state.diff(1, 2), view.item("billing/card"), state.restore(1, dry_run=True).diff)
    hidden(state.revert(entries=[4], dry_run=True).diff, other.diff("main@1", 1))

    store.add_gate(gate)
    view.get("billing/card")
    assert gate.read.pop() == ("billing/card",)
    assert SECRET in str(state.diff(1, 2, reveal=True))
    assert set(gate.read.pop()) == {"billing/card"}

    file = tmp_path / "export.json"
    for reveal in (False, True):
        sync.checkpoints.export_checkpoint(
            state, file, at="then", format="json", plain=True, reveal=reveal
        )
        assert (SECRET in file.read_text()) is reveal
        assert json.loads(file.read_text())["state"].keys() == {"billing/card"}
    assert gate.read.pop() == ("billing/card",)
    sync.checkpoints.export_checkpoint(state, tmp_path / "e", at="then", plain=True)
    assert gate.read == [("billing/card",)]


def test_what_a_class_was_taken_back_from_since(state: sync.State) -> None:
    state.delete("billing/card")
    state.undeclare(CARDS)
    hidden(state.diff(4), state.diff(4, 6), state.revert(entries=[5], dry_run=True).diff)
    state.set("billing/card", "4")
    assert "'4'" in str(state.diff(6)), "by no state that is looked at, nor by the newest"


def test_the_past_is_read_where_the_newest_state_is_gone(store: sync.Store) -> None:
    state = store.agent("a")
    state.set("billing/card", SECRET)
    fork = state.fork("f")
    fork.set("billing/card", 1)
    view = fork.at(fork._handle.place()[2])
    sync.checkpoints.Retention(store).end(state, "f")
    assert view.get("billing/card") == 1
    assert view._handle.reader.class_of("billing/card") == "standard"


Declares = Callable[[sync.State, sync.State], None]


def on_the_fork(main: sync.State, fork: sync.State) -> None:
    fork.declare(CARDS)


def on_the_fork_later(main: sync.State, fork: sync.State) -> None:
    """Behind the point that is merged."""
    fork.set("later", 1)
    fork.declare(CARDS)


def on_main(main: sync.State, fork: sync.State) -> None:
    main.declare(CARDS)


@pytest.fixture(params=[on_the_fork, on_the_fork_later, on_main])
def sides(store: sync.Store, request: pytest.FixtureRequest) -> tuple[sync.State, sync.State]:
    """Two timelines that have both changed a key, which is sensitive on one of them."""
    declares: Declares = request.param
    main = store.agent("a")
    main.set("billing/card", SECRET)
    fork = main.fork("f")
    fork.set("billing/card", SECRET + " theirs")
    fork.set("billing/new", SECRET)
    main.set("billing/card", SECRET + " ours")
    declares(main, fork)
    return main, fork


def test_a_merge_shows_nothing_of_what_is_sensitive_on_one_side(
    store: sync.Store, sides: tuple[sync.State, sync.State]
) -> None:
    main, fork = sides
    gate = Noting()
    store.add_gate(gate)
    point = "f@3"
    with pytest.raises(MergeConflictError) as caught:
        main.merge(point)
    hidden(caught.value.conflicts, main.diff(point), fork.diff(main))
    for strategy in ("ask", "theirs"):
        merged = main.merge(point, strategy=strategy, dry_run=True)
        hidden(merged, merged.conflicts)
        assert SECRET not in f"{merged.diff} {merged.diff!r}"
    assert gate.read == []
    main.merge(point, strategy=lambda conflict: conflict.theirs, dry_run=True)
    assert set(gate.read) == {("billing/card",) * 3}


def test_what_is_merged_stays_sensitive(
    store: sync.Store, sides: tuple[sync.State, sync.State], tmp_path: Path
) -> None:
    main, _ = sides
    before = main._handle.place()[2]
    main.merge("f@3", strategy="theirs")
    assert main.keys("billing") == ["billing/card", "billing/new"]
    for key in ("billing/card", "billing/new"):
        assert main._handle.reader.class_of(key) == "sensitive"
        assert SECRET not in str(main.item(key))
    hidden(main.diff(before))
    gate = Noting()
    store.add_gate(gate)
    main.get("billing/new")
    assert gate.read == [("billing/new",)]
    assert not main.merge("f@3").keys, "there is nothing new"
    assert store.verify().findings == []


def test_parts_of_both_sides_stay_sensitive(store: sync.Store) -> None:
    """Though one of them named another class for it."""
    main = store.agent("a")
    main.set("billing/card", {"a": 1, "b": 1})
    main.declare(CARDS)
    fork = main.fork("f")
    fork.set("billing/card", {"a": 2, "b": 1}, class_="standard")
    main.set("billing/card", {"a": 1, "b": SECRET})
    main.merge(fork)
    assert main.get("billing/card") == {"a": 2, "b": SECRET}
    assert main._handle.reader.class_of("billing/card") == "sensitive"


def test_some_keys_of_another_timeline_stay_sensitive(
    sides: tuple[sync.State, sync.State],
) -> None:
    main, _ = sides
    checkpoints = sync.checkpoints.Checkpoints(main)
    hidden(checkpoints.restore("f@3", keys=["billing/card"], dry_run=True).restored.diff)
    checkpoints.restore("f@3", prefixes=["billing/"])
    assert main.get("billing/new") == SECRET
    assert {main._handle.reader.class_of(key) for key in main.keys("billing/")} == {"sensitive"}
    again = checkpoints.restore("f@3", prefixes=["billing/"])
    assert again.backup_created is None, "nothing differs"


def test_a_later_value_goes_by_the_rules_of_its_timeline(plain: Place) -> None:
    main = plain.open().agent("a")
    main.set("x", 1)
    fork = main.fork("f")
    fork.declare(CARDS)
    fork.set("billing/card", [SECRET])
    main.merge(fork)
    main.append("billing/card", 1)
    assert main._handle.reader.class_of("billing/card") == "sensitive"
    main.set("billing/card", "public")
    assert main._handle.reader.class_of("billing/card") == "standard"


@pytest.mark.parametrize("how", ["adopt", "restore", "checkpoints"])
def test_a_timeline_that_is_taken_over_whole_stays_sensitive(place: Place, how: str) -> None:
    store = place.open()
    main, gate = store.agent("a"), Noting()
    main.declare(Sticky("done/"), Classed("open/", "standard"))
    main.set("done/1", 1)
    fork = main.fork("f")
    fork.declare(CARDS, Classed("open/", "sensitive"), Classed("in/", "external"))
    fork.set("billing/card", SECRET)
    fork.set("done/1", 2)
    before = main._handle.place()[2]
    dry = main.restore(fork, dry_run=True)
    hidden(dry.diff)
    if how == "adopt":
        done = main.adopt("f")
    elif how == "restore":
        done = main.restore(fork)
    else:
        done = sync.checkpoints.Checkpoints(main).restore(fork).restored
    assert done.root == dry.root == main.root()
    assert done.keys == dry.keys
    assert main.items() == [("billing/card", SECRET), ("done/1", 1)]
    assert main.declared() == [CARDS, Classed("open/", "standard"), Sticky("done/")]
    hidden(main.item("billing/card"), main.diff(before))
    store.add_gate(gate)
    main.get("billing/card")
    assert gate.read == [("billing/card",)]
    assert done.backup is not None
    main.restore(done.backup)
    assert main.keys() == ["done/1"]
    main.adopt("f")
    assert [one.kinds for one in main.log(limit=2)] == [("restore",), ("checkpoint",)]
    assert store.verify().findings == []
    main = place.open().agent("a")
    assert main._handle.reader.class_of("billing/card") == "sensitive"
