"""A state, a point or a position of another store is refused, wherever one is taken."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from store_kit import Place

import holdfast
from holdfast import sync
from holdfast.errors import InvalidInputError, ReadOnlyError


def filled(store: sync.Store) -> sync.Store:
    """A store with an agent that has a fork, a letter and a checkpoint."""
    state = store.agent("x")
    state.set("k", "before")
    state.checkpoint("c")
    state.fork("trial")
    store.agent("y").set("balance", 100)
    return store


def changed(store: sync.Store, state: Any) -> None:
    with store.change() as change:
        change[state].set("k", "elsewhere")


def sent(store: sync.Store, to: sync.State) -> None:
    box = sync.agents.Mailbox(store.agent("x"))
    box.send("letter")
    with box.next() as mail:
        assert mail is not None
        mail.send(to, "answer")


CALLS: dict[str, Callable[[sync.Store, sync.State, sync.State], Any]] = {
    "change": lambda s, _, other: changed(s, other),
    "change of a view": lambda s, _, other: changed(s, other.at(1)),
    "adopt": lambda _, mine, other: mine.adopt(other),
    "restore": lambda _, mine, other: mine.restore(other),
    "restore a view": lambda _, mine, other: mine.restore(other.at(1)),
    "at": lambda _, mine, other: mine.at(other),
    "diff": lambda _, mine, other: mine.diff(other),
    "diff until": lambda _, mine, other: mine.diff(1, other),
    "merge": lambda _, mine, other: mine.merge(other.on("trial")),
    "fork": lambda _, mine, other: mine.fork("new", at=other),
    "prune": lambda _, mine, other: mine.prune(other),
    "prove": lambda _, mine, other: mine.prove("k", at=other),
    "delete": lambda s, _, other: s.delete(other),
    "erase": lambda s, _, other: s.erase(other),
    "group": lambda s, _, other: sync.checkpoints.CheckpointGroups(s).create([other], "g"),
    "restore from": lambda _, mine, other: sync.checkpoints.Checkpoints(mine).restore(
        1, source=other
    ),
    "rests on": lambda _, mine, other: sync.checkpoints.Checkpoints(mine).create(
        "d", depends_on=[other]
    ),
    "retention": lambda s, _, other: sync.checkpoints.Retention(s).plan(other),
    "policies": lambda s, _, other: sync.checkpoints.Policies(s, watch=False).list(other),
    "audit": lambda s, _, other: sync.access.Audit(s).reads(other),
    "recover": lambda s, _, other: sync.recovery.Recovery(s).recover(other, "crash"),
    "reports": lambda s, _, other: sync.recovery.Recovery(s).reports(other),
    "health": lambda s, _, other: sync.recovery.Recovery(s).health(other),
    "boot": lambda s, _, other: sync.recovery.boot(s, scopes=[other]),
    "hand over": lambda s, mine, other: sync.agents.Handovers(s).offer(
        mine, other, "t", reason="r"
    ),
    "mail": lambda s, _, other: sent(s, other),
}


@pytest.mark.parametrize("what", CALLS)
def test_a_state_of_another_store_is_refused(what: str, tmp_path: Any) -> None:
    (tmp_path / "b").mkdir()
    here = filled(Place("memory", tmp_path, sealed=False).open())
    there = filled(Place("memory", tmp_path / "b", sealed=False).open())
    before = [store.agent(id).root() for store in (here, there) for id in "xy"]
    for other in (there.agent("x"), there.agent("y")):
        with pytest.raises(InvalidInputError, match="another store"):
            CALLS[what](here, here.agent("x"), other)
    kept = [store.agent(id).get("k") for store in (here, there) for id in "xy"]
    assert kept == ["before", None] * 2
    if what != "mail":  # which wrote the letter before
        assert before == [store.agent(id).root() for store in (here, there) for id in "xy"]


def test_a_view_ends_no_scope(store: sync.Store) -> None:
    view = filled(store).agent("x").at(1)
    for call in (store.delete, store.erase, lambda one: changed(store, one)):
        with pytest.raises(ReadOnlyError, match="view"):
            call(view)  # type: ignore[arg-type]
    assert store.agent("x").exists("k")


def test_the_same_store_opened_twice_is_two(plain: Place) -> None:
    one, two = filled(plain.open()), plain.open()
    with pytest.raises(InvalidInputError, match="opened once more"):
        changed(one, two.agent("x"))
    changed(one, two.agent("x").scope)
    changed(one, one.agent("x"))
    assert two.agent("x").get("k") == "elsewhere"


def test_a_position_knows_its_store(place: Place, tmp_path: Any) -> None:
    (tmp_path / "b").mkdir()
    here, there = place.open(), Place("memory", tmp_path / "b", sealed=False).open()
    empty = there.position()
    for store in (here, there):
        store.agent("x").set("k", 1)
    for foreign in (empty, there.position(), next(there.feed()).position):
        with pytest.raises(InvalidInputError, match="position of another store"):
            list(here.feed(since=foreign))
        with pytest.raises(InvalidInputError, match="position of another store"):
            here.watch(since=foreign, timeout=0)
    kept = dict(here.position())
    here.agent("x").set("k", 2)
    assert [one.sequence for one in place.reopen().feed(since=holdfast.Position(kept))] == [2]
    assert len(list(place.open().feed(since={}))) == 2, "an empty one is the beginning of any store"


def test_a_position_ahead_of_the_feed_is_refused(plain: Place) -> None:
    store = plain.open()
    store.agent("x").set("k", 1)
    ahead = {lane: number + (lane < 16) for lane, number in store.position().items()}
    with pytest.raises(InvalidInputError, match="ahead"):
        list(store.feed(since=ahead))
    with pytest.raises(InvalidInputError, match="ahead"):
        store.watch(since=ahead, timeout=0)


def test_the_async_face_refuses_them_too() -> None:
    asyncio.run(refused_by_the_async_face())


async def refused_by_the_async_face() -> None:
    async with holdfast.open("memory:") as here, holdfast.open("memory:") as there:
        await there.agent("y").set("balance", 100)
        await here.agent("y").set("balance", 5)
        mine, other = here.agent("y"), there.agent("y")
        with pytest.raises(InvalidInputError, match="another store"):
            async with here.change() as change:
                change[other].set("balance", 1)
        for call in (
            lambda: mine.adopt(other),
            lambda: mine.restore(other),
            lambda: mine.diff(other),
            lambda: mine.merge(other),
            lambda: here.delete(other),
            lambda: here.erase(other),
            lambda: holdfast.recovery.Recovery(here).reports(other),
            lambda: holdfast.agents.Handovers(here).history(other),
        ):
            with pytest.raises(InvalidInputError, match="another store"):
                await call()
        position = await there.position()
        with pytest.raises(InvalidInputError, match="another store"):
            _ = [entry async for entry in here.feed(since=position)]
        assert (await mine.get("balance"), await other.get("balance")) == (5, 100)
