"""What checkpoints of other scopes rest on is in use: retention keeps it as long as they are."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from store_kit import Between, Place, put_row

import holdfast
from holdfast import Keep, sync
from holdfast.errors import CheckpointValidationError, StillNeededError
from holdfast.storage.contract import Batch
from holdfast.store.names import rowkinds
from holdfast.store.upkeep import prune as pruners
from holdfast.store.upkeep.prune import Pruner
from holdfast.sync.checkpoints import Checkpoints, Retention


def routine(state: sync.State, count: int = 4) -> None:
    for n in range(count):
        state.set("k", n)
        state.checkpoint(str(n), type="routine")
    state.set("k", "end")


def names(state: sync.State) -> list[str]:
    return [one.name for one in state.checkpoints(limit=None)]


def cells(store: sync.Store) -> list[tuple[bytes, bytes]]:
    return store._core.storage.cells(b"R", b"S")


@pytest.mark.spec("K28")
def test_what_another_agent_rests_on_stays_as_long_as_that_does(place: Place) -> None:
    store = place.open()
    a, b, retention = store.agent("a"), store.agent("b"), Retention(store)
    for state in (a, b):
        state.set("k", "then")
    base = b.checkpoint("base", type="routine")
    top = Checkpoints(a).create("top", type="routine", depends_on=[base]).checkpoint
    routine(b)
    assert "'base' stays: agent:a main@2 rests on it" in str(retention.plan(b))
    retention.run(b)
    assert names(b) == ["3", "2", "1", "base"]
    store = place.reopen()
    a, b, retention = store.agent("a"), store.agent("b"), Retention(store)
    done = Checkpoints(a).restore(top, dependencies="exist")
    assert [one.status for one in done.dependencies] == ["moved on"]
    assert b.at(base).get("k") == "then"
    assert store.verify().findings == []
    Checkpoints(a).confirm(done)
    routine(a)
    for state in (a, b):
        retention.run(state, confirm=True)
    assert "top" not in names(a)
    assert names(b) == ["3", "2", "1"]
    assert cells(store) == []
    assert store.verify().findings == []


def test_a_state_that_is_no_checkpoint_is_kept_too(store: sync.Store) -> None:
    a, b, retention = store.agent("a"), store.agent("b"), Retention(store)
    b.set("k", "then")
    made = Checkpoints(a).create("top", depends_on=[b, b])
    routine(b)
    b.declare(Keep(count=0))
    retention.run(b)
    assert b.at(1).get("k") == "then"
    (about,) = Checkpoints(a).inspect(made.checkpoint).dependencies
    assert about.status == "moved on"
    assert store.verify().findings == []


def test_a_chain_goes_from_its_top(store: sync.Store) -> None:
    """What rests on something that rests on something: each is kept by the one above alone."""
    states = [store.agent(name) for name in "abc"]
    below: list[Any] = []
    for state in states:
        state.set("k", "then")
        below = [Checkpoints(state).create("link", type="routine", depends_on=below).checkpoint]
        routine(state)
    retention = Retention(store)
    for state in states[:2]:
        retention.run(state)
        assert "link" in names(state)
    for state in reversed(states):
        retention.run(state)
        assert "link" not in names(state)
    assert cells(store) == []


def test_groups_rest_on_what_they_depend_on(store: sync.Store) -> None:
    a, b, tools = store.agent("a"), store.agent("b"), store.custom("tools")
    for state in (a, b, tools):
        state.set("k", "then")
    base = tools.checkpoint("base", type="routine")
    sync.checkpoints.CheckpointGroups(store).create([a, b], "both", depends_on=[base])
    routine(tools)
    Retention(store).run(tools)
    assert "base" in names(tools)
    store.delete(a)
    Retention(store).run(tools)
    assert "base" in names(tools)
    store.delete(b)
    Retention(store).run(tools)
    assert "base" not in names(tools)


@pytest.mark.parametrize("how", ["delete", "erase"])
@pytest.mark.parametrize("which", ["a", "b"])
def test_a_scope_that_goes_leaves_nothing_behind(place: Place, how: str, which: str) -> None:
    store = place.open()
    a, b = store.agent("a"), store.agent("b")
    for state in (a, b):
        state.set("k", "then")
    base = b.checkpoint("base", type="routine")
    Checkpoints(a).create("top", depends_on=[base])
    routine(b)
    getattr(store, how)(store.agent(which))
    assert store.verify().findings == []
    if which == "a":
        a.set("k", "made again")  # a new one of that name rests on nothing
        a.checkpoint("other")
        Retention(store).run(b)
        assert "base" not in names(b)
    assert (cells(store) == []) == ((which, how) != ("b", "delete"))


def test_a_timeline_that_others_rest_on_is_not_ended(store: sync.Store) -> None:
    a, b = store.agent("a"), store.agent("b")
    b.set("k", 1)
    trial = b.fork("trial")
    trial.set("k", 2)
    base = trial.checkpoint("base", type="routine")
    Checkpoints(a).create("top", depends_on=[base])
    routine(trial)
    assert "base" in [one.name for one in _after(store, trial)]
    with pytest.raises(StillNeededError, match=r"agent:a main@1 rests on it"):
        Retention(store).end(b, "trial")
    store.delete(a)
    Retention(store).end(b, "trial")
    assert store.verify().findings == []


def _after(store: sync.Store, state: sync.State) -> list[holdfast.Checkpoint]:
    Retention(store).run(state)
    return state.checkpoints(limit=None)


def test_prune_does_as_it_is_told(store: sync.Store) -> None:
    a, b = store.agent("a"), store.agent("b")
    b.set("k", 1)
    Checkpoints(a).create("top", depends_on=[b.checkpoint("base")])
    routine(b)
    b.prune(b._handle.place()[2], keep=())
    (about,) = Checkpoints(a).inspect("top").dependencies
    assert about.status == "missing"
    Retention(store).run(b)
    assert store.verify().findings == []


def test_a_checkpoint_that_comes_while_retention_looks_is_seen(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It came behind the moment when retention asked what is in use, and before the anchor."""
    store = place.open()
    a, b = store.agent("a"), store.agent("b")
    b.set("k", "then")
    base = b.checkpoint("base", type="routine")
    routine(b)
    original, came = pruners.rests_of, []
    asked = 0

    def late(line: Any) -> Iterator[Any]:
        nonlocal asked
        asked += 1
        yield from list(original(line))
        if not came:
            came.append(Checkpoints(a).create("top", depends_on=[base]))

    monkeypatch.setattr(pruners, "rests_of", late)
    Retention(store).run(b)
    assert came
    assert asked == 2, "all of them are read before the commit, and before it is tried again"
    assert "base" in names(b)
    assert b.at(base).get("k") == "then"
    assert store.verify().findings == []


def resting(place: Place) -> Any:
    """A store in which a checkpoint of a rests on one of b that its rule lets go; its storage."""
    store = place.open()
    a, b = store.agent("a"), store.agent("b")
    for state in (a, b):
        state.set("k", "then")
    Checkpoints(a).create("top", depends_on=[b.checkpoint("base", type="routine")])
    a.set("k", "later")
    routine(b)
    place.close()
    return place.storage()


@pytest.mark.parametrize("cell", [b"", b"x", None])
def test_a_cell_that_is_damaged_is_named_and_keeps_what_it_may_stand_for(
    place: Place, cell: bytes | None
) -> None:
    storage = resting(place)
    ((key, value),) = storage.cells(b"R", b"S")
    if cell is None:
        cell = value[:10] + bytes([value[10] ^ 255]) + value[11:]
    storage.commit(Batch(cells=[(key, value, cell)]))
    store = place.open()
    (found,) = store.verify().findings
    assert found.place.startswith("dependency (of (scope ")
    retention, b = Retention(store), store.agent("b")
    assert "'base' stays: a scope that cannot be told, entry (scope" in str(retention.plan(b))
    retention.run(b)
    assert names(b) == ["3", "2", "1", "base"]


@pytest.mark.parametrize("pruned", [False, True])
def test_a_cell_that_is_lost_is_named(place: Place, pruned: bool) -> None:
    storage = resting(place)
    if pruned:
        a = place.open().agent("a")
        a.prune(a._handle.place()[2])
        assert names(a) == ["top"]
    assert place.reopen().verify().findings == []
    ((key, value),) = storage.cells(b"R", b"S")
    storage.commit(Batch(cells=[(key, value, None)]))
    (found,) = place.open().verify().findings
    assert "retention would not keep what the checkpoint rests on" in found.message
    assert found.place == rowkinds.describe(key)


def test_what_a_checkpoint_whose_row_is_lost_rests_on_stays(place: Place) -> None:
    storage = resting(place)
    ((key, _),) = storage.cells(b"R", b"S")
    put_row(storage, rowkinds.ends_of(key)[1], None)
    store = place.open()
    b = store.agent("b")
    assert store.verify().findings
    Retention(store).run(b)
    assert "base" in names(b)


@pytest.mark.parametrize("over", ["again", "erase"])
def test_what_came_beside_a_pruning_that_was_killed_is_forgotten(
    place: Place, over: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pruners, "TERM", 0.01)
    storage = resting(place)
    store = place.open()
    b = store.agent("b")
    ledger = b._handle.history.points.line().ledger
    Pruner(ledger).take()
    Checkpoints(store.agent("a")).create("more", depends_on=[b])
    assert len(storage.cells(b"A", b"B")) == 1
    assert store.verify().findings == []
    if over == "again":
        Retention(store).run(b)
    else:
        store.erase(b)
    assert storage.cells(b"A", b"B") == []
    assert store.verify().findings == []


def test_who_rests_keeps_no_pruning_alive_that_was_killed(
    plain: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who prunes next waits while somebody is seen at work, and that is not who rests on it."""
    monkeypatch.setattr(pruners, "TERM", 0.3)
    resting(plain)
    store = plain.open()
    b = store.agent("b")
    Pruner(b._handle.history.points.line().ledger).take()
    done = threading.Event()

    def rest() -> None:
        checkpoints = Checkpoints(plain.open().agent("a"))
        for number in range(100):
            checkpoints.create(f"more {number}", depends_on=["agent:b"])
            if done.wait(0.05):
                return

    beside = threading.Thread(target=rest)
    beside.start()
    Retention(store).run(b)
    waited = beside.is_alive()
    done.set()
    beside.join()
    assert waited, "it was waited for the last of them"


COMMITS = 8
"""More than a run of these tests makes."""


def rested(store: sync.Store, one: sync.Checkpoint) -> bool:
    """Whether a checkpoint may rest on it; refused only because it is gone."""
    try:
        Checkpoints(store.agent("a")).create("top", depends_on=[one])
    except CheckpointValidationError as error:
        assert "pruned" in str(error)
        return False
    return True


def agree(store: sync.Store, base: sync.Checkpoint, accepted: bool) -> None:
    assert (base in store.agent("b").checkpoints(limit=None)) is accepted
    if accepted:
        (about,) = Checkpoints(store.agent("a")).inspect("top").dependencies
        assert about.status == "moved on"
    assert store.verify().findings == []


@pytest.mark.parametrize("commit", range(COMMITS))
def test_resting_between_any_two_commits_of_retention(plain: Place, commit: int) -> None:
    between = Between(plain.storage())
    here, there = plain.open(storage=between), plain.open()
    routine(there.agent("b"), 8)
    base = there.agent("b").checkpoints()[-1]
    outcome: list[bool] = []
    between.before, between.passing = lambda: outcome.append(rested(there, base)), commit
    Retention(here).run(here.agent("b"))
    if not outcome:
        assert commit > 2
        return
    agree(there, base, outcome[0])
    Retention(here).run(here.agent("b"))
    agree(there, base, outcome[0])


@pytest.mark.parametrize("commit", range(2))
def test_retention_between_any_two_commits_of_who_rests(plain: Place, commit: int) -> None:
    between = Between(plain.storage())
    here, there = plain.open(storage=between), plain.open()
    routine(there.agent("b"), 8)
    base = there.agent("b").checkpoints()[-1]
    ran: list[Any] = []
    between.before = lambda: ran.append(Retention(there).run(there.agent("b")))
    between.passing = commit
    accepted = rested(here, base)
    assert accepted is not bool(ran)
    agree(there, base, accepted)


def test_many_who_rest_do_not_keep_retention_from_ending(plain: Place) -> None:
    """Two handles, as two processes have them: what was accepted is there in the end."""
    writer, prune = plain.open(), plain.open()
    b = prune.agent("b")
    routine(b)
    over = threading.Event()

    def rest() -> None:
        while not over.wait(0.005):
            rested(writer, writer.agent("b").checkpoints(limit=None)[-1])
        assert rested(writer, writer.agent("b").checkpoints(limit=None)[-1])  # nobody prunes now

    thread = threading.Thread(target=rest)
    thread.start()
    try:
        for _ in range(10):
            routine(b, 2)
            Retention(prune).run(b)
    finally:
        over.set()
        thread.join()
    found = Checkpoints(writer.agent("a"))
    made = writer.agent("a").checkpoints(limit=None)
    assert made
    for one in made[::20]:
        (about,) = found.inspect(one).dependencies
        assert about.status == "moved on"
    assert writer.verify().findings == []
