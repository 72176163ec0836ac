"""Reading on: past what was erased, in a store that was put back, and at what it costs."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from store_kit import Between, Place, put_row, rows_of

import holdfast
from holdfast import Position, sync
from holdfast.errors import DamagedRecordError, InvalidInputError, KeyMissingError
from holdfast.store.history.handle import StoreHandle
from holdfast.store.journal import directory
from holdfast.store.open import open_core
from holdfast.store.read.watch import LANES, MARKS

# ---- what is erased ------------------------------------------------------------------------


class Cut(Exception):
    """An eraser goes no further."""


def erase_in_part(place: Place, scope: str, commits: int) -> bool:
    """Erase as one does who is killed behind so many commits; False if it was done before that."""

    def cut() -> None:
        raise Cut

    between: Any = Between(place.storage())
    between.passing, between.before = commits, cut
    store = sync.Store(StoreHandle(open_core(place.url, storage=between, **place.options())))
    try:
        store.erase(scope)
    except Cut:
        return True
    return False


def test_a_scope_erased_in_part_is_passed_over_by_who_stands_in_it(place: Place) -> None:
    store, commits, was_cut = place.open(), 0, True
    while was_cut:
        commits += 1  # the first of them puts the tombstone
        begin = store.position()
        for number in range(80):
            store.session(str(commits)).set("k", number)
        store.agent("keep").set("k", commits)
        reader = place.open()
        readers = [reader.watch(since=begin, timeout=0), reader.feed(begin)]
        assert [next(one).sequence for one in readers] == [1, 1]
        was_cut = erase_in_part(place, f"session:{commits}", commits)
        for one in [*readers, reader.feed(begin), place.open().watch(since=begin, timeout=0)]:
            scopes = [str(entry.scope) for entry in one]
            assert scopes[-1] == "agent:keep"
            assert len(scopes) <= 64  # a watch has read so many ahead
        store = place.reopen()
    assert commits > 1


def test_commits_of_many_entries_are_passed_over_when_they_are_erased_in_part(place: Place) -> None:
    async def write() -> None:
        async with holdfast.open(place.url, **place.options()) as store:
            for _ in range(5):
                await asyncio.gather(*(store.session("x").set(f"k{n}", n) for n in range(50)))
            await store.agent("keep").set("k", 1)

    asyncio.run(write())
    reader = place.open()
    readers = [reader.feed(), reader.watch(since=Position(), timeout=0)]
    assert [str(next(one).scope) for one in readers] == ["session:x"] * 2
    assert erase_in_part(place, "session:x", 2)
    assert [[str(entry.scope) for entry in one][-1] for one in readers] == ["agent:keep"] * 2


def test_an_async_watch_passes_over_what_is_erased_in_part(place: Place) -> None:
    async def work() -> list[str]:
        async with holdfast.open(place.url, **place.options()) as store:
            for number in range(150):
                await store.session("x").set("k", number)
            await store.agent("keep").set("k", 1)
            watch = store.watch(since=Position(), timeout=0)
            await anext(watch)
            await asyncio.to_thread(erase_in_part, place, "session:x", 2)
            return [str(entry.scope) async for entry in watch]

    scopes = asyncio.run(work())
    assert scopes[-1] == "agent:keep"
    assert len(scopes) <= 64


def test_nothing_is_read_of_a_scope_once_its_erase_has_returned(place: Place) -> None:
    """Whoever had it open has its keys: `wait=False` leaves the rows."""
    store, reader = place.open(), place.open()
    with store.acting("bot", correlation="c"):
        for number in range(150):
            store.session("x").set("k", number)
    store.session("x").fork("trial").set("k", 1)
    watch, feed = reader.watch(since=Position(), timeout=0), reader.feed()
    assert [next(watch).sequence, next(feed).sequence] == [1, 1]
    store.erase("session:x", wait=False)
    assert list(feed) == reader.correlated("c") == []
    assert len(list(watch)) == 63  # which were read before


# ---- positions in a store that was put back ------------------------------------------------


@pytest.fixture(params=[False, True], ids=["plain", "sealed"])
def kept(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    """A place whose files can be put back."""
    made = Place("sqlite", tmp_path, sealed=request.param)
    yield made
    made.close()


def write_at(store: sync.Store, lane: int, number: int) -> None:
    """Write until a lane has so many rows."""
    while store.position().get(lane, 0) < number:
        store._core.lanes.move()
        store.agent("new").set("k", number)


def test_a_position_of_what_was_put_back_is_refused(kept: Place) -> None:
    """Also once others have written where it lies; else their entries would be passed over."""
    store = kept.open()
    store.agent("a").set("k", 0)
    kept.close()
    data, copy = kept.path.parent, kept.folder / "copy"
    shutil.copytree(data, copy)
    store = kept.open()
    begin = store.position()
    with store.change() as change:
        for name in "abc":
            change[store.agent(name)].set("k", 1)
    behind = [entry.position for entry in store.feed(begin)]
    assert [len(list(store.feed(position))) for position in behind] == [2, 1, 0]
    kept.close()
    shutil.rmtree(data)
    shutil.copytree(copy, data)
    store = kept.open()
    assert list(store.feed(begin)) == []
    lane = next(lane for lane in range(LANES) if behind[-1].get(lane) != begin.get(lane))
    for written in (False, True):
        if written:
            write_at(store, lane, behind[-1][lane] + 1)
        for position in behind:
            for read in (store.feed, lambda since: store.watch(since=since, timeout=0)):
                with pytest.raises(InvalidInputError, match="put back"):
                    list(read(position))
    assert list(store.feed(begin))[-1].position == store.position()


def test_a_position_behind_more_than_a_commit_has_is_refused(store: sync.Store) -> None:
    with store.change() as change:
        for name in "ab":
            change[store.agent(name)].set("k", 1)
    first, last = [entry.position for entry in store.feed()]
    (lane,) = [lane for lane in range(LANES) if lane in last]
    assert first[LANES + lane] == 1
    far = {lane: 1 << 80}
    for bad in ({LANES + lane: 2}, {LANES + lane: 50}, {MARKS + lane: 1}, {MARKS + lane: 0}, far):
        with pytest.raises(InvalidInputError, match="put back"):
            list(store.feed(Position({**first, **bad})))
    with pytest.raises(InvalidInputError, match="put back"):
        list(store.feed(Position({**last, LANES + lane: 1})))
    assert len(list(store.feed(first))) == 1


# ---- names ---------------------------------------------------------------------------------


def test_names_of_a_change_over_scopes_are_right_whatever_became_of_them(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(directory, "ROWS", 3)
    monkeypatch.setattr(directory, "NAMES", 2)
    store, other = place.open(), place.open()
    names = ["a", "b", "c", "d", "e"]
    store.agent("e").set("k", 0)
    targets = [*(store.agent(name) for name in names), store.agent("e").fork("trial")]
    with store.change() as change:
        for target in targets:
            change[target].set("k", 1)
    want = {(f"agent:{name}", "main") for name in names} | {("agent:e", "trial")}

    def check() -> None:
        for reader in (store, other, place.open()):
            (entry,) = [entry for entry in reader.agent("a").log() if entry.also]
            assert {(scope, line) for scope, line, _ in entry.also} == want - {("agent:a", "main")}

    check()
    for done in (other.delete, other.erase, store.delete, store.erase):
        name = names.pop()
        done(f"agent:{name}")
        gone = {one for one in want if one[0] == f"agent:{name}"}
        want = (want - gone) | {("deleted", line if line == "main" else "?") for _, line in gone}
        check()
        store.agent(name).set("k", "another scope of this name")
        check()


def test_names_cost_no_reading_of_the_directory(plain: Place) -> None:
    """Neither for each entry of a change over scopes, nor for each fork of a fork."""
    store = plain.open()
    for number in range(1500):
        store.session(str(number)).set("k", 1)
    store.agent("1").set("k", 1)
    base = store.agent("1").fork("base")
    reader, counting = plain.open_counting()
    watch = reader.watch(timeout=0)
    with store.change() as change:
        change[store.agent("1")].set("k", 1)
        change[store.agent("2")].set("k", 1)
    assert len(list(watch)) == 2
    for number in range(30):
        base.fork(f"try{number}")
        with store.change() as change:
            change[store.agent("1")].set("k", number)
            change[store.agent("2")].set("k", number)
    counting.reset()
    seen = list(watch)
    assert len(seen) == 90
    assert {entry.point for entry in seen if "fork" in entry.kinds} == {"base@1"}
    assert (
        sorted(entry.also[0][0] for entry in seen if entry.also)
        == ["agent:1"] * 30 + ["agent:2"] * 30
    )
    assert counting.calls["scan"] <= 90 + 2 * LANES + 2  # an entry each, the feed, the timelines


@pytest.mark.parametrize("which", [0, 2, 4])
def test_no_missing_entry_is_passed_over(place: Place, which: int) -> None:
    store = place.open()
    for number in range(5):
        store.agent("7").set(f"order/{number}", number)
    storage = place.storage()
    key, row = rows_of(storage, b"E")[which]
    put_row(storage, key, None)
    for read in (store.feed, lambda: store.agent("7").watch(since=Position({}), timeout=0)):
        given = iter(read())
        assert [next(given).sequence for _ in range(which)] == list(range(1, which + 1))
        with pytest.raises(DamagedRecordError, match="is lost"):
            next(given)
    put_row(storage, key, row)
    assert [entry.sequence for entry in store.feed()] == [1, 2, 3, 4, 5]


def test_nor_one_of_a_commit_of_several(place: Place) -> None:
    store = place.open()

    async def together() -> None:
        async with holdfast.open(place.url, **place.options()) as other:
            await asyncio.gather(*(other.agent("7").set(f"k{n}", n) for n in range(20)))

    asyncio.run(together())
    storage = place.storage()
    found = rows_of(storage, b"E")
    assert len(found) == 20
    put_row(storage, found[10][0], None)
    with pytest.raises(DamagedRecordError, match="is lost"):
        list(store.feed())


def test_whoever_watches_a_fork_goes_on_past_what_has_no_key(tmp_path: Path) -> None:
    sealed = Place("sqlite", tmp_path, sealed=True)
    store = sealed.open()
    store.agent("a").set("k", 0)
    fork = store.agent("a").fork("f")
    begin = store.position()
    fork.set("k", 1)
    core = store._core
    assert core.ring is not None
    core.ring.drop_epochs(core.ledger(fork.scope).id, 1 << 32)  # as in a ring of before it was made
    sealed.close()
    watching = sealed.open().agent("a").on("f")
    with pytest.raises(KeyMissingError) as refused:
        next(watching.watch(since=begin, timeout=0))
    assert refused.value.position is not None
    assert list(watching.watch(since=refused.value.position, timeout=0)) == []
    sealed.close()
