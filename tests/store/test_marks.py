"""Pins and holds beside a retention that runs elsewhere: what was accepted is kept."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from secrets import token_hex
from typing import Any

import pytest
from store_kit import Between, Place, put_row, rows_of

import holdfast
from holdfast import Ephemeral, Sticky, sync
from holdfast.checkpoints import CheckpointRequest
from holdfast.checkpoints.create import make, release
from holdfast.errors import Conflict, InvalidInputError, PrunedError, StillNeededError
from holdfast.store.journal.timeline import DELTA_EVERY
from holdfast.sync.checkpoints import Checkpoints, Retention

COMMITS = 12
"""More than a run of these tests makes."""


def filled(store: sync.Store, timeline: str = "main") -> list[sync.Checkpoint]:
    state = store.agent("1")
    if timeline != "main":
        state.set("x", -1)
        state = state.fork(timeline)
    made = []
    for n in range(8):
        state.set("x", n)
        made.append(state.checkpoint(f"n{n}", type="routine"))
    return made


def held(store: sync.Store, one: sync.Checkpoint) -> bool:
    """Whether a hold was accepted; it may only be refused because the checkpoint is gone."""
    try:
        Retention(store).hold(one, "case 7")
    except PrunedError:
        return False
    return True


@pytest.mark.parametrize("timeline", ["main", "trial"])
@pytest.mark.parametrize("commit", range(COMMITS))
def test_a_hold_between_any_two_commits_of_a_run_is_kept(
    plain: Place, commit: int, timeline: str
) -> None:
    between = Between(plain.storage())
    here, there = plain.open(storage=between), plain.open()
    one = filled(there, timeline)[2]
    outcome = []
    between.before, between.passing = lambda: outcome.append(held(there, one)), commit
    Retention(here).run(here.agent("1"))
    if not outcome:
        assert commit > 3
        return
    seen = there.agent("1").on(timeline)
    assert (one.id in Retention(there).marked(seen)) is outcome[0]
    assert (one.name in [found.name for found in seen.checkpoints()]) is outcome[0]
    if outcome[0]:
        assert seen.at(one).get("x") == 2
        Retention(here).run(here.agent("1"))
        assert seen.at(one).get("x") == 2
        assert there.verify().ok
    else:
        with pytest.raises(PrunedError):
            seen.at(one)


@pytest.mark.parametrize("timeline", ["main", "trial"])
@pytest.mark.parametrize("commit", range(3))
def test_a_run_between_any_two_commits_of_a_hold_refuses_it(
    plain: Place, commit: int, timeline: str
) -> None:
    between = Between(plain.storage())
    here, there = plain.open(storage=between), plain.open()
    one = filled(there, timeline)[2]
    ran = []
    between.before = lambda: ran.append(Retention(there).run(there.agent("1")))
    between.passing = commit
    accepted = held(here, one)
    assert accepted is not bool(ran)
    seen = there.agent("1").on(timeline)
    assert (one.id in Retention(there).marked(seen)) is accepted
    assert (one.name in [found.name for found in seen.checkpoints()]) is accepted


@pytest.mark.parametrize("commit", range(6))
def test_a_timeline_with_a_hold_is_not_ended_whenever_it_came(plain: Place, commit: int) -> None:
    between = Between(plain.storage())
    here, there = plain.open(storage=between), plain.open()
    one = filled(there, "trial")[2]
    outcome = []
    between.before, between.passing = lambda: outcome.append(held(there, one)), commit
    try:
        Retention(here).end("agent:1", "trial")
        ended = True
    except (StillNeededError, Conflict):
        ended = False
    names = [info.name for info in there.agent("1").timelines()]
    assert ("trial" not in names) is ended
    if outcome and outcome[0]:
        assert not ended
        assert there.agent("1").on("trial").at(one).get("x") == 2
        assert there.agent("1").on("trial").get("x") == 7
    assert there.verify().ok


# who may not remove what is marked


def test_a_hold_or_a_pin_is_not_pruned_by_hand_either(place: Place) -> None:
    store = place.open()
    state = store.agent("1")
    kept = []
    for n in range(4):
        state.set("x", n)
        kept.append(state.checkpoint(f"c{n}"))
    state.set("x", 9)
    retention = Retention(store)
    retention.hold(kept[1], "case 7")
    retention.pin(kept[2])
    head = state._handle.place()[2]
    for dry_run in (True, False):
        for keep, named in (([], kept[1]), ([kept[1]], kept[2])):
            with pytest.raises(StillNeededError, match=named.id):
                state.prune(head, keep=iter(keep), dry_run=dry_run)
    assert len(state.checkpoints()) == 4
    state.prune(head, keep=[kept[1], kept[2]])
    assert [state.at(one).get("x") for one in kept[1:3]] == [1, 2]
    retention.lift(kept[1])
    retention.unpin(kept[2])
    state.prune(state._handle.place()[2], keep=[])
    assert state.checkpoints() == []
    assert store.verify().findings == []


class Broken(Exception):
    """What goes wrong in these tests."""


def restored(state: sync.State) -> tuple[sync.Checkpoint, Callable[[], Any]]:
    done = state.restore(state.checkpoints()[-1])
    assert done.backup is not None
    return done.backup, lambda: Checkpoints(state).confirm(done)


def restored_in_part(state: sync.State) -> tuple[sync.Checkpoint, Callable[[], Any]]:
    backup = Checkpoints(state).restore(state.checkpoints()[-1], keys=["x"]).restored.backup
    assert backup is not None
    return backup, lambda: Checkpoints(state).confirm(backup)


def running(state: sync.State) -> tuple[sync.Checkpoint, Callable[[], Any]]:
    block = Checkpoints(state).operation("deploy")
    return block.__enter__().checkpoint, lambda: block.__exit__(None, None, None)


def left_open(state: sync.State) -> tuple[sync.Checkpoint, Callable[[], Any]]:
    with suppress(Broken), Checkpoints(state).operation("deploy", on_error="keep") as run:
        raise Broken
    return run.checkpoint, lambda: Checkpoints(state).finish(run.checkpoint, "keep")


def recovering(state: sync.State) -> tuple[sync.Checkpoint, Callable[[], Any]]:
    one = make(state._handle, CheckpointRequest("before", "recovery"), recovery="r1")
    return one, lambda: release(state._handle, [one.id], "succeeded")


@pytest.mark.parametrize("timeline", ["main", "trial"])
@pytest.mark.parametrize("use", [restored, restored_in_part, running, left_open, recovering])
def test_what_is_in_use_is_not_pruned_by_hand_by_any_process(
    place: Place, use: Callable[[sync.State], Any], timeline: str
) -> None:
    here, there = place.open(), place.open()
    filled(here, timeline)
    state, other = here.agent("1").on(timeline), there.agent("1").on(timeline)
    one, end = use(state)
    before = dict(state.at(one).items())
    state.set("x", "on")
    for dry_run in (True, False):
        with pytest.raises(StillNeededError, match=f"{one.id} is held"):
            other.prune(other._handle.place()[2], keep=[], dry_run=dry_run)
    assert len(other.checkpoints(limit=None)) == 9
    other.prune(other._handle.place()[2], keep=[one])
    assert other.checkpoints(limit=None) == [one]
    assert dict(other.at(one).items()) == before
    end()
    other.set("x", "after")
    other.prune(other._handle.place()[2], keep=[])
    assert other.checkpoints() == []
    assert there.verify().findings == []


def test_async_prune_asks_the_same(place: Place) -> None:
    async def head(state: holdfast.State) -> int:
        return (await state.log(limit=1))[0].sequence

    async def work() -> None:
        async with holdfast.open(place.url, **place.options()) as store:
            state = store.agent("1")
            await state.set("x", 1)
            done = await state.restore(await state.checkpoint("c"))
            await state.set("x", 2)
            with pytest.raises(StillNeededError, match="not confirmed"):
                await state.prune(await head(state), keep=[])
            await holdfast.checkpoints.Checkpoints(state).confirm(done)
            await state.prune(await head(state), keep=[])
            assert [one.type for one in await state.checkpoints()] == ["post_operation"]

    asyncio.run(work())


def test_what_damage_leaves_open_is_not_pruned_by_hand_and_stops_nobody(place: Place) -> None:
    """Whether the entry behind it was a restore, nobody can tell."""
    state = place.open().agent("1")
    state.set("x", 1)
    state.checkpoint("c")
    one = state.checkpoint("own", type="recovery")
    state.set("y", token_hex(300))
    for n in range(DELTA_EVERY):  # what is saved behind the damage does without it
        state.set("y", n)
    state.checkpoint("later")
    state.set("x", 2)
    place.close()
    key, row = max(rows_of(place.storage(), b"E"), key=lambda one: len(one[1]))
    put_row(place.storage(), key, row[:-1] + bytes([row[-1] ^ 1]))
    state = place.open().agent("1")
    with pytest.raises(StillNeededError, match=f"{one.id} is held"):
        state.prune("later", keep=[])
    state.prune("later", keep=[one])
    assert [found.name for found in state.checkpoints()] == ["later", "own"]


@pytest.mark.parametrize("name", ["cafe\u0301", "a..b", "x\\y", "/a//b/"])
def test_a_mark_is_obeyed_on_a_timeline_that_no_key_can_name(place: Place, name: str) -> None:
    store = place.open()
    state = store.agent("1")
    state.set("x", -1)
    fork = state.fork(name)
    state.set("x", -2)
    twin = state.fork("caf\u00e9")
    made = []
    for n in range(7):
        fork.set("x", n)
        made.append(fork.checkpoint(f"n{n}", type="routine"))
        twin.set("x", f"another {n}")
        twin.checkpoint(f"t{n}")
    fork.set("x", 9)
    retention = Retention(place.open())  # another process knows of no names yet
    retention.hold(made[0], "case 7")
    retention.pin(made[1])
    retention.clear(made[6])
    assert retention.marked("agent:1") == {
        made[0].id: "on hold: case 7",
        made[1].id: "pinned: pinned",
    }
    with pytest.raises(StillNeededError, match="is on hold"):
        fork.prune(fork._handle.place()[2], keep=[made[1]])
    with pytest.raises(StillNeededError):
        retention.end("agent:1", name)
    with pytest.raises(StillNeededError) as told:
        store.delete("agent:1")
    assert made[0].id in str(told.value)
    retention.run("agent:1")
    assert [one.name for one in fork.checkpoints()] == ["n5", "n4", "n1", "n0"]
    assert [fork.at(one).get("x") for one in made[:2]] == [0, 1]
    assert len(twin.checkpoints()) == 7
    assert state.keys("$retention/clear/") == []
    assert (retention.lift(made[0]), retention.unpin(made[1])) == (True, True)
    assert (retention.lift(made[0]), retention.marked("agent:1")) == (False, {})
    retention.end("agent:1", name)
    assert store.verify().ok


def test_a_hold_put_while_somebody_prunes_by_hand_is_kept(plain: Place) -> None:
    between = Between(plain.storage())
    here, there = plain.open(storage=between), plain.open()
    state = here.agent("1")
    state.set("x", 1)
    one = state.checkpoint("one")
    state.set("x", 2)
    between.before = lambda: Retention(there).hold(one, "case 7")
    state.prune(state._handle.place()[2], keep=[])
    assert there.agent("1").at(one).get("x") == 1
    assert there.verify().findings == []


@pytest.mark.parametrize("how", ["delete", "erase"])
def test_a_scope_with_a_hold_is_neither_deleted_nor_erased(place: Place, how: str) -> None:
    store = place.open()
    state = store.agent("1")
    state.set("x", 1)
    one = state.checkpoint("one")
    retention = Retention(store)
    retention.pin(one)
    retention.hold(one, "case 7")
    remove = getattr(store, how)
    with pytest.raises(StillNeededError, match=one.id):
        remove("agent:1")
    assert state.at(one).get("x") == 1
    if how == "erase":
        assert store.erase("agent:1", despite_holds=True).rows
    else:
        retention.lift(one)
        store.delete("agent:1")
    assert not store.scopes().items
    assert store.verify().findings == []


def damaged(place: Place) -> sync.Store:
    """A store with a scope whose checkpoint is on hold, and whose newest entry is damaged."""
    state = place.open().agent("1")
    state.set("x", 1)
    Retention(place.open()).hold(state.checkpoint("one"), "case 7")
    state.set("x", 2)
    storage = place.storage()
    key, row = rows_of(storage, b"E")[-1]
    put_row(storage, key, row[:-1] + bytes([row[-1] ^ 1]))
    return place.reopen()


def test_a_scope_that_cannot_tell_of_holds_is_not_erased(place: Place) -> None:
    store = damaged(place)
    with pytest.raises(StillNeededError, match=r"on hold cannot be read.*despite_holds=True"):
        store.erase("agent:1")
    assert store.agent("1").at("one").get("x") == 1
    assert store.erase("agent:1", despite_holds=True).rows
    assert store.verify().findings == []


def test_a_scope_whose_saved_index_is_damaged_tells_of_holds(place: Place) -> None:
    store = place.open()
    state = store.agent("1")
    for n in range(600):
        state.set(f"x{n}", n)
    one = state.checkpoint("one")
    Retention(store).hold(one, "case 7")
    storage = store._core.storage
    for kind in (b"S", b"N"):
        for key, row in rows_of(storage, kind):
            put_row(storage, key, row[:-1] + bytes([row[-1] ^ 1]))
    store = place.reopen()
    with pytest.raises(StillNeededError, match=f"{one.id} is on hold"):
        store.erase("agent:1")


def test_a_restore_past_damage_says_that_marks_may_be_lost(place: Place) -> None:
    state = damaged(place).agent("1")
    done = state.restore("one", past_damage=True)
    assert "Pins and holds" in done.passed_over
    assert "Pins and holds" in str(
        sync.checkpoints.Checkpoints(damaged(place).agent("1")).recover()
    )


@pytest.mark.parametrize("how", ["correlation", "actor", "entries", "store"])
@pytest.mark.parametrize("what", ["put", "lifted"])
def test_a_revert_leaves_marks_alone(place: Place, how: str, what: str) -> None:
    store = place.open()
    state, retention = store.agent("1"), Retention(store)
    state.set("x", 1)
    one = state.checkpoint("one")
    if what == "lifted":
        retention.hold(one, "case 7")
        retention.pin(one, "shipped")
    before = state._handle.place()[2]
    with store.acting("clerk", correlation="run 1"):
        state.set("x", 2)
        if what == "put":
            retention.hold(one, "case 7")
            retention.pin(one, "shipped")
        else:
            retention.lift(one)
            retention.unpin(one)
    marked = retention.marked(state)
    assert bool(marked) is (what == "put")
    if how == "store":
        (done,) = store.revert(correlation="run 1")
    else:
        named = {"correlation": "run 1", "actor": "clerk"}
        entries = range(before + 1, state._handle.place()[2] + 1)
        done = state.revert(**{how: named.get(how, entries)})
    assert done.done == ["x"]
    assert {left.key for left in done.left} == {f"$retention/{k}/{one.id}" for k in ("hold", "pin")}
    assert all("`Retention.lift`" in left.why for left in done.left)
    assert state.get("x") == 1
    assert retention.marked(state) == marked
    if what == "put":
        with pytest.raises(StillNeededError, match=one.id):
            store.delete("agent:1")


@pytest.mark.parametrize("how", ["restore", "adopt", "merge"])
def test_going_back_leaves_marks_alone_whatever_is_declared(place: Place, how: str) -> None:
    store = place.open()
    state, retention = store.agent("1"), Retention(store)
    state.set("x", 1)
    first = state.checkpoint("first")
    trial = state.fork("trial")
    trial.set("x", 2)
    one = state.checkpoint("one")
    retention.hold(one, "case 7")
    marked = retention.marked(state)
    assert one.id in marked
    state.undeclare(Sticky("$retention/"))
    if how == "restore":
        state.restore(first)
    else:
        getattr(state, how)("trial")
    assert retention.marked(state) == marked
    with pytest.raises(StillNeededError, match=one.id):
        store.delete("agent:1")
    assert store.verify().findings == []


@pytest.mark.parametrize("prefix", ["$retention/", "$retention/hold/", "$r", "$effects/"])
def test_what_parts_rely_on_is_not_declared_ephemeral(store: sync.Store, prefix: str) -> None:
    state, retention = store.agent("1"), Retention(store)
    one = state.checkpoint("one")
    with pytest.raises(InvalidInputError, match="parts of Holdfast"):
        state.declare(Ephemeral(prefix))
    retention.hold(one, "case 7")
    assert one.id in retention.marked(state)


def test_a_hold_put_while_somebody_deletes_holds_or_is_refused(plain: Place) -> None:
    between = Between(plain.storage())
    here, there = plain.open(storage=between), plain.open()
    state = here.agent("1")
    state.set("x", 1)
    one = state.checkpoint("one")
    between.before = lambda: Retention(there).hold(one, "case 7")
    with pytest.raises(StillNeededError):
        here.delete("agent:1")
    assert there.agent("1").at(one).get("x") == 1
