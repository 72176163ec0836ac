"""Ending a timeline: its content goes and the chain says so; nothing that others use is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from store_kit import Between, Place, put_row, rows_of

import holdfast
from holdfast import Keep, sync
from holdfast.errors import (
    CheckpointNotFoundError,
    CheckpointValidationError,
    Conflict,
    GateRefusedError,
    InvalidInputError,
    PrunedError,
    ScopeNotFoundError,
    StillNeededError,
    TimelineNotFoundError,
    Unavailable,
)
from holdfast.storage.wrappers import Fault, Faulty
from holdfast.store.commit.group import Core
from holdfast.store.history.handle import StoreHandle
from holdfast.store.names import rowkinds
from holdfast.store.open import open_core
from holdfast.store.upkeep import end
from holdfast.store.upkeep.prune import prune_state
from holdfast.sync.checkpoints import Checkpoints, Retention, export_checkpoint, import_checkpoint


def begun(store: sync.Store) -> tuple[sync.State, sync.State]:
    """A state, and a trial of it with content of its own."""
    state = store.agent("1")
    for number in range(30):
        state.set(f"k{number}", f"value {number} " * 30)
    trial = state.fork("trial")
    for number in range(60):
        trial.set(f"k{number}", f"trial {number} " * 60)
    trial.set("list", [{"n": n} for n in range(2000)])
    return state, trial


def lines(state: sync.State) -> list[str]:
    return [one.name for one in state.timelines()]


def content(place: Place) -> list[bytes]:
    """Keys of rows of the trial that hold more than an envelope."""
    storage = place.storage()
    found = [key for kind in (b"V", b"N", b"S", b"B", b"C") for key, _ in rows_of(storage, kind)]
    return [key for key in found if int.from_bytes(key[7:9], "big") == 1]


def test_what_it_held_is_gone_and_the_store_verifies(place: Place) -> None:
    store = place.open()
    state, trial = begun(store)
    before, witness = dict(state.items()), store.witness()
    held = len(content(place))
    done = Retention(store).end(state, "trial", "it led nowhere")
    assert done.entries >= 60
    assert done.bytes > 0
    assert lines(state) == ["main"]
    assert dict(state.items()) == before
    assert store.verify(expect=witness).ok
    assert len(content(place)) < min(held, 4)  # what is empty has a saved index, too
    other = place.open().agent("1")
    for use in (
        lambda: trial.get("k1"),
        lambda: trial.set("k1", 1),
        lambda: other.on("trial").set("k1", 1),
        lambda: other.on("trial").checkpoint("late"),
        lambda: other.restore("trial@40"),
        lambda: Retention(store).end(state, "trial"),
    ):
        with pytest.raises(TimelineNotFoundError, match="was ended"):
            use()
    with pytest.raises(Conflict, match="already"):
        state.fork("trial")


def ended_by(place: Place, state: sync.State) -> None:
    Retention(place.open()).end(state.scope, "f", "it led nowhere")  # another handle's memory


def pruned_by(place: Place, state: sync.State) -> None:
    fork = place.open().agent("1").on("f")
    fork.set("doc", "short")
    fork.prune(fork._handle.place()[2], keep=[])


@pytest.mark.parametrize("away", [ended_by, pruned_by])
@pytest.mark.parametrize("then", ["write", "fork", "adopt"])
def test_nothing_that_others_hold_in_memory_goes_with_it(
    place: Place, away: Callable[[Place, sync.State], None], then: str
) -> None:
    """What was not saved yet when the fork was made was saved by the fork alone."""
    store = place.open()
    state = store.agent("1")
    for number in range(50):
        state.set(f"k/{number:05}", number)
    state.set("doc", [f"text {number}" for number in range(600)])
    point = state.checkpoint("good")
    state.fork("f").set("note", "another way")
    away(place, state)
    if then != "write":
        second = state.fork("g", at=point)
        second.set("note", "a second way")
        if then == "adopt":
            sync.checkpoints.Checkpoints(state).confirm(state.adopt("g"))
    for number in range(600):
        state.set("k", number)
    whole = state.items()
    assert store.verify().findings == []
    state.prune(state._handle.place()[2], keep=[])
    again = place.reopen()
    assert again.agent("1").items() == whole
    assert again.verify().findings == []


def test_the_feed_names_its_entries(store: sync.Store) -> None:
    state, _ = begun(store)
    position = store.position()
    Retention(store).end(state, "trial")
    told = [one.kinds for one in store.feed(since=position)]
    assert told == [("restore",), ("prune",), ("end timeline",)]


def test_life_goes_on(place: Place) -> None:
    """Forks, pruning, a new data key, deleting: all that goes through every timeline."""
    store = place.open()
    state, _ = begun(store)
    Retention(store).end(state, "trial")
    second = state.fork("second")
    second.set("k1", "second")
    if place.sealed:
        store.rotate("agent:1")
    state.declare(Keep(count=1))
    Retention(store).run(state)
    assert lines(state) == ["main", "second"]
    assert second.get("k1") == "second"
    point = state.checkpoint("since")
    assert Checkpoints(state).inspect("since").checkpoint == point
    assert store.stats()["entries"] > 0
    assert store.verify().ok
    store = place.reopen()
    highest = max(one.head for one in store.agent("1").timelines())
    store.delete("agent:1")
    again = store.agent("1").set("k", 1)
    assert again > highest + 30  # no number is given twice, also none of what has ended
    assert store.verify().ok


def test_what_others_use_keeps_it(store: sync.Store) -> None:
    state, trial = begun(store)
    retention = Retention(store)
    with pytest.raises(InvalidInputError, match="main cannot be ended"):
        retention.end(state, "main")
    with pytest.raises(TimelineNotFoundError):
        retention.end(state, "nobody")
    pinned = trial.checkpoint("precious")
    retention.pin(pinned, "shipped")
    with pytest.raises(StillNeededError, match="pinned: shipped"):
        retention.end(state, "trial")
    retention.unpin(pinned)
    child = trial.fork("child")
    with pytest.raises(StillNeededError, match="child began from it; prune that one past it"):
        retention.end(state, "trial")
    child.set("k1", 1)
    retention.end(state, "child")
    assert lines(state) == ["main", "trial"]
    assert store.verify().ok


def test_an_operation_that_is_not_over_keeps_it(store: sync.Store) -> None:
    state, trial = begun(store)
    with Checkpoints(trial).operation("deploy"):
        trial.set("k1", 1)
        with pytest.raises(StillNeededError, match="its operation is not over"):
            Retention(store).end(state, "trial")
    Retention(store).end(state, "trial")


def test_what_was_adopted_or_merged_stays(store: sync.Store) -> None:
    state, trial = begun(store)
    sync.checkpoints.Checkpoints(state).confirm(state.restore(trial))
    with pytest.raises(StillNeededError, match="main began from it"):
        Retention(store).end(state, "trial")
    state.set("end", 1)
    state.prune(state._handle.place()[2], keep=[])
    with pytest.raises(StillNeededError, match="hold what was written on it"):
        Retention(store).end(state, "trial")
    assert state.get("k59") == "trial 59 " * 60
    for key in list(state.keys()):
        state.set(key, "anew")
    state.prune(state._handle.place()[2], keep=[])
    Retention(store).end(state, "trial")
    other = state.fork("other")
    other.set("merged", 1)
    state.merge(other)
    with pytest.raises(StillNeededError, match="main was merged with it"):
        Retention(store).end(state, "other")
    assert store.verify().ok


def test_a_proof_by_the_newest_checkpoint_says_if_that_was_on_an_ended_timeline(
    store: sync.Store,
) -> None:
    state = store.agent("1")
    state.set("k", 1)
    trial = state.fork("trial")
    trial.set("k", 2)
    trial.checkpoint("there")
    state.adopt("trial")
    backup = state.checkpoints()[0]
    state.set("k", 3)
    assert state.prove("k").sequence == trial.checkpoints()[0].sequence
    state.prune(state._handle.place()[2], keep=[backup])
    Retention(store).end(state, "trial")
    with pytest.raises(CheckpointNotFoundError, match=r"timeline trial, which was ended.*make one"):
        state.prove("k")
    state.checkpoint("anew")
    assert not state.prove("k").absent


COMMITS = 4
"""More than an end makes before it announces what goes."""


@pytest.mark.parametrize("what", ["hold", "fork", "restore", "rest"])
@pytest.mark.parametrize("commit", range(COMMITS))
def test_what_comes_to_need_it_meanwhile_leaves_it_as_it_was(
    plain: Place, commit: int, what: str
) -> None:
    """Between any two commits of an end somebody else needs a state of it, or is too late."""
    between = Between(plain.storage())
    here, there = plain.open(storage=between), plain.open()
    state, trial = begun(there)
    trial.declare(holdfast.Sticky("spent/"))
    trial.set("spent/1", 7)
    point = trial.checkpoint("precious")
    trial.set("since", 1)
    before = dict(trial.items())
    needs = {
        "hold": lambda: Retention(there).hold(point, "case 7"),
        "fork": lambda: trial.fork("child", at=point),
        "restore": lambda: state.restore(point),
        "rest": lambda: Checkpoints(there.agent("2")).create("rests", depends_on=[point]),
    }
    there.agent("2").set("k", 1)
    needed: list[bool] = []

    def come() -> None:
        try:
            needs[what]()
        except (CheckpointValidationError, PrunedError, TimelineNotFoundError):
            needed.append(False)
        else:
            needed.append(True)

    between.before, between.passing = come, commit
    try:
        Retention(here).end("agent:1", "trial")
        ended = True
    except StillNeededError as error:
        ended = False
        assert "child" in str(error) or "case 7" in str(error) or "is what it was" in str(error)
    assert needed == [not ended] or not needed
    if not ended:
        for store in (here, there):
            assert dict(store.agent("1").on("trial").items()) == before
            assert store.agent("1").on("trial").declared() == [holdfast.Sticky("spent/")]
            assert store.agent("1").at(point).get("spent/1") == 7
    assert there.verify().ok


def test_what_somebody_wrote_meanwhile_is_not_taken_back(
    store: sync.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    state, trial = begun(store)
    point = trial.checkpoint("precious")
    last = trial._handle.place()[2]

    def meanwhile(*given: Any, **named: Any) -> Any:
        trial.set("late", 1)
        Retention(store).hold(point, "case 7")
        return prune_state(*given, **named)

    monkeypatch.setattr(end, "prune_state", meanwhile)
    with pytest.raises(StillNeededError, match=f"left empty .*the state at trial@{last}"):
        Retention(store).end(state, "trial")
    assert dict(trial.items()) == {"late": 1}
    assert state.at(f"trial@{last}").get("k59") == "trial 59 " * 60
    assert store.verify().ok


def test_whatever_fails_it_can_be_ended_again(place: Place) -> None:
    """A fault at each call to the storage in turn: nothing of others is lost, and it goes on."""
    store = place.open()
    state, _ = begun(store)
    before = dict(state.items())
    nth = 0
    while "trial" in lines(state):
        nth += 5
        faulty = Faulty(place.storage())
        core = open_core(place.url, storage=faulty, **place.options())
        broken = sync.Store(StoreHandle(core))
        faulty.plan = (Fault("*", faulty.calls["*"] + nth),)
        try:
            Retention(broken).end("agent:1", "trial")
        except (Unavailable, Conflict):
            faulty.plan = ()
            assert store.verify().ok
        assert dict(state.items()) == before
        broken.close()
    assert nth > 50
    assert store.verify().ok


def test_an_entry_behind_the_end_is_found(tmp_path: Path) -> None:
    """Somebody who has the signer and a plain store goes on with what was ended."""
    place = Place("memory", tmp_path, sealed=False)
    store = place.open()
    state, trial = begun(store)
    Retention(store).end(state, "trial")
    line = trial._handle.core.timeline(trial._handle.core.ledger(trial.scope), "trial")
    line.gone = False
    trial.set("k1", "late")
    found = place.reopen().verify().findings
    assert [one.kind for one in found] == ["chain"]
    assert "behind the entry that ends its timeline" in str(found[0])
    place.close()


def test_a_missing_end_is_found(place: Place) -> None:
    store = place.open()
    state, _ = begun(store)
    Retention(store).end(state, "trial")
    storage = place.storage()
    place.close()
    last = max(key for key, _ in rows_of(storage, b"E") if key[7:9] == b"\0\1")
    put_row(storage, last, None)
    assert rowkinds.sequence_of(last) > 60
    assert any(one.kind == "feed" for one in place.open().verify().findings)


class NoBytes(holdfast.Gate):
    """Lets no bytes in."""

    def before(self, request: holdfast.GateRequest) -> None:
        if any(operation.key == "bytes" for operation in request.operations):
            raise GateRefusedError("no bytes here")


def test_an_import_that_fails_leaves_no_timeline(store: sync.Store, tmp_path: Path) -> None:
    source = store.agent("source")
    source.set("a", "x" * 1000)
    source.set("bytes", b"y" * 1000)
    source.checkpoint("good")
    export_checkpoint(source, tmp_path / "x", plain=True)
    store.add_gate(NoBytes())
    state = store.agent("2")
    state.set("mine", 1)
    with pytest.raises(GateRefusedError):
        import_checkpoint(state, tmp_path / "x")
    assert lines(state) == ["main"]
    assert store.verify().ok


def test_a_simulation_is_ended(store: sync.Store) -> None:
    state, _ = begun(store)
    good = state.checkpoint("good")
    state.set("k1", "since")
    done = Checkpoints(state).simulate(lambda trial: trial.set("k2", "tried"), good)
    Retention(store).end(state, done.timeline)
    assert lines(state) == ["main", "trial"]
    assert store.verify().ok


@pytest.mark.parametrize("nth", [1, 2, 3])
@pytest.mark.parametrize(
    "call",
    [
        lambda store: store.agent("1").timelines(),
        lambda store: store.stats(),
        lambda store: store.sweep(),
        lambda store: Retention(store).plan("agent:1"),
        lambda store: Retention(store).run("agent:1"),
    ],
)
def test_who_goes_over_all_timelines_beside_it(
    plain: Place, monkeypatch: pytest.MonkeyPatch, call: Callable[[sync.Store], Any], nth: int
) -> None:
    """The nth time that timelines are listed, one of them is ended right behind that."""
    store, other = plain.open(), plain.open()
    state = store.agent("1")
    state.set("k", 1)
    for number in range(1, 4):
        state.fork(f"f{number}").checkpoint("safe")
    store.agent("2").set("over", 1, ttl=0.001)
    listed, asked = Core.lines, []

    def meanwhile(core: Core, ledger: Any) -> Any:
        found = listed(core, ledger)
        if core is store._handle.core:
            asked.append(1)
            if len(asked) == nth:
                Retention(other).end("agent:1", "f2")
        return found

    monkeypatch.setattr(Core, "lines", meanwhile)
    call(store)
    monkeypatch.undo()
    assert lines(state) == ["main", "f1", *(["f2"] if nth > len(asked) else []), "f3"]
    assert store.verify().ok


def test_slips(store: sync.Store) -> None:
    state, _ = begun(store)
    for timeline, reason in ((5, None), ("", None), ("trial", 7)):
        with pytest.raises(InvalidInputError):
            Retention(store).end(state, timeline, reason)  # type: ignore[arg-type]
    with pytest.raises(ScopeNotFoundError):
        Retention(store).end("agent:nobody", "trial")
    assert lines(state) == ["main", "trial"]


def test_async(place: Place) -> None:
    async def work() -> None:
        async with holdfast.open(place.url, **place.options()) as store:
            state = store.agent("1")
            await state.set("k", 1)
            trial = await state.fork("trial")
            await trial.set("k", 2)
            done = await holdfast.checkpoints.Retention(store).end(state, "trial", "over")
            assert done.timeline == "trial"
            assert [one.name for one in await state.timelines()] == ["main"]

    asyncio.run(work())
