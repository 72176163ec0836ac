"""Restores beside others who write all the time, and who have the store open meanwhile."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from store_kit import Between, Place, put_row, rows_of

import holdfast
from holdfast import Lookup, sync
from holdfast.checkpoints import restore_request as partial
from holdfast.errors import Conflict, MissingError


class Beside(holdfast.Gate):
    """Before each piece that a restore writes, somebody else does something."""

    def __init__(self, work: Callable[[int], object]) -> None:
        self.work = work
        self.times = 0

    def before(self, request: holdfast.GateRequest) -> None:
        """Count the pieces."""
        if request.timeline.startswith("restore-") and request.operations[0].kind == "set":
            self.times += 1
            self.work(self.times)


@pytest.fixture
def stores(
    plain: Place, monkeypatch: pytest.MonkeyPatch
) -> tuple[sync.Store, sync.State, sync.State]:
    """One whose restores take many pieces, its state, and the same one in another process."""
    monkeypatch.setattr(partial, "MOST_KEYS", 2)
    store = plain.open()
    state = store.agent("1")
    state.declare(Lookup("by n", "", ["n"]))
    for n in range(9):
        state.set(f"k/{n}", {"n": n})
    state.checkpoint("full")
    for n in range(9):
        state.set(f"k/{n}", {"n": -1})
    return store, state, plain.open().agent("1")


def numbers(found: dict[str, dict[str, int]]) -> dict[str, int]:
    return {key: value["n"] for key, value in found.items()}


def test_what_others_write_to_other_keys_stays(
    stores: tuple[sync.Store, sync.State, sync.State],
) -> None:
    store, state, other = stores

    def work(times: int) -> None:
        other.set("beat", {"n": times})
        other.set(f"new/{times}", {"n": times})
        other.set("k/5", {"n": 100 + times})  # as if that came just before the restore
        other.set("k/late", {"n": 1})

    store.add_gate(gate := Beside(work))
    done = sync.checkpoints.Checkpoints(state).restore("full", prefixes=["k/"])
    assert gate.times == 5
    wanted = {f"k/{n}": n for n in range(9)}
    others = {"beat": 5} | {f"new/{n}": n for n in range(1, 6)}
    assert numbers(dict(state.items())) == wanted | others
    assert state.find("by n", n=5).items == ["beat", "k/5", "new/5"]
    assert state.find("by n", n=105).items == []
    assert done.restored.backup is not None
    assert numbers(dict(state.at(done.restored.backup).items())) == {
        **{f"k/{n}": -1 for n in range(9)},
        **others,
        "k/5": 105,
        "k/late": 1,
    }
    assert done.restored.root == state.root()
    assert len(state.timelines()) == 2
    assert store.verify().findings == []


def test_all_of_another_agent_comes_whatever_is_written_meanwhile(
    stores: tuple[sync.Store, sync.State, sync.State],
) -> None:
    store, state, _ = stores
    target = store.agent("2")
    target.set("beat", {"n": 0})
    store.add_gate(Beside(lambda times: target.set("beat", {"n": times})))
    sync.checkpoints.Checkpoints(target).restore("full", source=state)
    assert numbers(dict(target.items())) == {f"k/{n}": n for n in range(9)}
    assert store.verify().findings == []


@pytest.mark.parametrize("how", ["prefix", "many", "deleted"])
def test_one_that_fails_leaves_no_timeline(
    stores: tuple[sync.Store, sync.State, sync.State], how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, state, other = stores
    monkeypatch.setattr(partial, "MOST_LEFT", 3)

    def work(times: int) -> None:
        if how == "deleted":
            if times == 2:
                store.delete("agent:1")
                other.set("k/1", {"n": 7})
            return
        for n in range(4 if how == "many" else 1):
            other.set(f"many/{n}" if how == "many" else "k", {"n": times})

    store.add_gate(Beside(work))
    with pytest.raises(MissingError if how == "deleted" else Conflict):
        sync.checkpoints.Checkpoints(state).restore("full", prefixes=["k/"])
    assert [one.name for one in state.timelines()] == ["main"]
    assert numbers(dict(state.items(prefix="k/")))["k/1"] == (7 if how == "deleted" else -1)
    assert store.verify().findings == []


@pytest.mark.parametrize("how", ["restore", "group", "hold", "fork"])
def test_one_that_was_deleted_and_made_again_is_left_alone(place: Place, how: str) -> None:
    between = Between(place.storage())
    store, other = place.open(storage=between), place.open()
    state = store.agent("1")
    state.set("x", 1)
    safe = state.checkpoint("safe")
    group = sync.checkpoints.CheckpointGroups(store).create([state])
    sync.checkpoints.Retention(store).pin(safe)
    state.set("x", 2)

    def made_again() -> None:
        other.delete("agent:1")
        other.agent("1").set("y", 5)

    between.before = made_again
    with pytest.raises((MissingError, Conflict)):
        if how == "restore":
            state.restore(safe)
        elif how == "group":
            sync.checkpoints.CheckpointGroups(store).restore(group)
        elif how == "hold":
            sync.checkpoints.Retention(store).hold(safe, "case 7")
        else:
            state.fork("trial", at=safe)
    assert dict(other.agent("1").items()) == {"y": 5}
    assert sync.checkpoints.Retention(other).marked("agent:1") == {}
    assert other.verify().findings == []


@pytest.mark.parametrize("how", ["state", "checkpoints", "group"])
def test_a_restore_that_a_pruning_overtakes_is_done_again(plain: Place, how: str) -> None:
    between = Between(plain.storage())
    store, other = plain.open(storage=between), plain.open()
    state = store.agent("1")
    state.set("x", 1)
    safe = state.checkpoint("safe")
    group = sync.checkpoints.CheckpointGroups(store).create([state])
    state.set("x", 2)
    head = state._handle.place()[2]
    between.before = lambda: other.agent("1").prune(head)
    if how == "state":
        state.restore(safe)
    elif how == "checkpoints":
        sync.checkpoints.Checkpoints(state).restore(safe)
    else:
        sync.checkpoints.CheckpointGroups(store).restore(group)
    assert state.get("x") == 1
    assert store.verify().findings == []


def test_who_has_the_store_open_goes_on_behind_damage_that_another_left_behind(
    place: Place,
) -> None:
    state = place.open().agent("1")
    state.set("x", 1)
    state.checkpoint("safe")
    place.open().agent("1").set("x", 2)  # which the first has not read yet
    storage = place.storage()
    key, row = rows_of(storage, b"E")[-1]
    put_row(storage, key, row[:-3] + bytes([row[-3] ^ 1]) + row[-2:])
    place.open().agent("1").restore("safe", past_damage=True)
    assert state.get("x") == 1
    state.set("x", 3)
    assert place.open().agent("1").get("x") == 3
