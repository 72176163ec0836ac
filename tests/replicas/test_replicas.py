"""Replicas follow a store row for row; what cannot be followed is refused, and nothing is lost."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from random import Random
from typing import Any

import pytest
from backup_kit import fill, values
from replica_kit import assert_same
from store_kit import Place, put_row, rows_of

import holdfast
from holdfast import sync
from holdfast.errors import (
    InvalidInputError,
    ReadOnlyError,
    StoreNotFoundError,
    Unavailable,
)
from holdfast.replicas import replicas
from holdfast.storage import open_storage


def at(place: Place, name: str = "copy") -> str:
    return f"sqlite:{place.folder}/{name}.db"


def opened(place: Place, url: str) -> sync.Store:
    """A replica as a store of its own: promoted, with the ring of the store put beside it."""
    sync.replicas.promote_replica(url)
    store = sync.open(url, create=False, **place.options())
    place._open.append(store)
    return store


def test_why_a_sync_failed_is_told_until_one_succeeds(
    store: sync.Store, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Catches: an alert that resolves, and fires again, with each try."""
    fill(store)
    copied = sync.replicas.Replicas(store, [at(place)])
    assert copied.sync().ok
    told: list[str | None] = []

    def full(*_: Any, **__: Any) -> None:
        told.append(copied.status()[0].error)
        raise Unavailable("no room is left")

    with monkeypatch.context() as patch:
        patch.setattr(replicas, "sync", full)
        copied.sync()
        copied.sync()
    assert told == [None, "Unavailable: no room is left"]
    assert copied.sync().ok
    assert copied.status()[0].error is None


@pytest.mark.spec("K225")
def test_a_replica_is_the_store_row_for_row(store: sync.Store, place: Place) -> None:
    fill(store)
    replicas = sync.replicas.Replicas(store, [at(place), at(place, "second")])
    report = replicas.sync()
    assert report.ok
    assert [one.made for one in report.replicas] == [True, True]
    agent = store.agent("agent-1")
    agent.set("later", 1)
    agent.set("long", b"x" * 3_000_000)
    with agent.open_write("longer") as file:  # its rows come ahead of its entry
        file.write(Random(7).randbytes(9_000_000))
    agent.fork("trial").set("tried", True)
    with store.change(id="both") as change:
        change[agent].set("a", 1)
        change[store.agent("new")].set("b", 2)
    assert [one.entries for one in replicas.status()] == [7, 7]
    assert [one.made for one in replicas.sync().replicas] == [False, False]
    for url in (at(place), at(place, "second")):
        assert_same(store, url)
    assert all(one.whole and not one.entries for one in replicas.status())
    assert sum(one.rows for one in replicas.sync().replicas) == 0


def test_what_is_changed_without_the_feed_follows_too(store: sync.Store, place: Place) -> None:
    fill(store)
    agent, other = store.agent("agent-1"), store.agent("other")
    for number in range(300):
        with store.acting("a", correlation=f"run-{number % 3}"):
            agent.set(f"facts/{number % 7}", {"n": number})
    other.set("private", "x")
    with other.change(id="once", correlation="run-1") as change:
        change.set("private", "y")
    replicas = sync.replicas.Replicas(store, [at(place)])
    replicas.sync()
    agent.prune(290, keep=["filled"])
    agent.cosign("filled", signer=f"file:{_signer(place)}")
    assert replicas.sync().ok
    assert_same(store, at(place))
    store.erase("agent:other")
    if place.sealed:
        store.rotate("agent:agent-1")
        store.reseal("agent:agent-1")
    assert replicas.sync().replicas[0].removed > 0
    assert_same(store, at(place))
    store.delete("agent:agent-2")
    replicas.sync()
    store.erase("agent:agent-2")
    assert replicas.sync().ok
    assert_same(store, at(place))
    (again,) = replicas.sync(full=True).replicas
    assert (again.rows, again.removed, again.findings) == (0, 0, ())


def _signer(place: Place) -> Path:
    path = place.folder / "co.key"
    if not path.exists():
        with sync.open("memory:", signer=f"file:{path}"):
            pass
    return path


@pytest.mark.parametrize("sealed", [False, True])
def test_a_replica_is_read_and_once_promoted_is_the_store(tmp_path: Path, sealed: bool) -> None:
    """The store's storage is lost: the agent goes on with the replica."""
    place = Place("sqlite", tmp_path, sealed=sealed)
    store = place.open()
    fill(store)
    before, url = values(store), at(place)
    sync.replicas.Replicas(store, [url]).sync()
    place.close()
    if sealed:
        shutil.copy(f"{place.path}.keys", f"{tmp_path}/copy.db.keys")
    shutil.rmtree(place.path.parent)
    with pytest.raises(ReadOnlyError, match="replica"):
        sync.open(url, create=False, **place.options())
    with sync.open(url, read_only=True, **place.options()) as looked:
        assert values(looked) == before
    again = opened(place, url)
    assert values(again) == before
    again.agent("agent-0").restore("filled")
    again.agent("agent-0").set("goes", "on")
    assert again.verify().findings == []
    with pytest.raises(InvalidInputError, match="no replica"):
        sync.replicas.promote_replica(url)
    place.close()


def test_a_replica_that_went_its_own_way_is_not_overwritten(tmp_path: Path) -> None:
    place = Place("sqlite", tmp_path, sealed=False)
    store = place.open()
    fill(store, 1, 5)
    url = at(place)
    replicas = sync.replicas.Replicas(store, [url])
    replicas.sync()
    with opened(place, url) as split:
        split.agent("agent-0").set("only here", 1)
    (one,) = replicas.sync().replicas
    assert one.error is not None
    assert one.error.startswith("ReplicaSplitError")
    (status,) = replicas.status()
    assert not status.whole
    assert "store of its own" in str(status.error)
    with sync.open(url) as kept:
        assert kept.agent("agent-0").get("only here") == 1
    assert replicas.sync(remake=url).ok
    assert_same(store, url)
    place.close()


def test_a_store_that_was_put_back_does_not_take_its_replica_along(tmp_path: Path) -> None:
    place = Place("sqlite", tmp_path, sealed=False)
    store = place.open()
    fill(store, 1, 5)
    place.close()
    shutil.copy(place.path, tmp_path / "old.db")
    store = place.open()
    store.agent("agent-0").set("newer", 1)
    assert sync.replicas.Replicas(store, [at(place)]).sync().ok
    place.close()
    for extra in ("-wal", "-shm"):
        Path(f"{place.path}{extra}").unlink(missing_ok=True)
    shutil.copy(tmp_path / "old.db", place.path)
    store = place.open()
    replicas = sync.replicas.Replicas(store, [at(place)])
    assert "ReplicaSplitError" in str(sync.replicas.Replicas(store, [at(place)]).status()[0])
    assert "ReplicaSplitError" in str(replicas.sync().replicas[0].error)
    store.agent("another").set("other", 2)
    (status,) = sync.replicas.Replicas(store, [at(place)]).status()
    assert (status.whole, status.entries) == (True, None)  # it can be promoted
    assert "ReplicaSplitError" in str(status)
    assert "ReplicaSplitError" in str(replicas.sync().replicas[0].error)
    with sync.open(at(place), read_only=True) as kept:
        assert kept.agent("agent-0").get("newer") == 1
    place.close()


def test_damage_of_the_store_does_not_spread(tmp_path: Path) -> None:
    place = Place("sqlite", tmp_path, sealed=False)
    store = place.open()
    fill(store, 2, 30)
    replicas = sync.replicas.Replicas(store, [at(place)])
    replicas.sync()
    key, row = next(one for one in rows_of(place.storage(), b"V"))
    put_row(place.storage(), key, row[:-1] + bytes([row[-1] ^ 1]))
    gone, _ = rows_of(place.storage(), b"E")[3]
    put_row(place.storage(), gone, None)
    store.agent("agent-1").set("more", 1)
    (one,) = replicas.sync(full=True).replicas
    assert one.error is None
    assert len(one.findings) == 2
    with sync.open(at(place), read_only=True) as copy:
        assert copy.verify().findings == []
        assert copy.agent("agent-1").get("more") == 1
        assert store.verify().findings
        scrubber = sync.recovery.Scrubber(store, copies=replicas.copies())
        while not scrubber.slice().finished:
            pass
    assert store.verify().findings == []
    replicas.sync()
    assert replicas.sync(full=True).ok
    place.close()


@pytest.mark.spec("K228")
def test_a_checkpoint_is_synchronized_once_enough_replicas_hold_it(tmp_path: Path) -> None:
    place = Place("sqlite", tmp_path, sealed=False)
    store = place.open()
    lost = f"sqlite:{tmp_path}/no/such/folder.db"
    state = store.agent("a")
    state.set("x", 1)
    one = sync.replicas.Replicas(store, [at(place), lost], factor=2)
    made = sync.checkpoints.Checkpoints(state, sync=one.hold).create("first", sync=True)
    assert made.synchronized
    assert sync.open(at(place), read_only=True).agent("a").checkpoints()[0].name == "first"
    all_of = sync.replicas.Replicas(store, [at(place), lost])
    made = sync.checkpoints.Checkpoints(state, sync=all_of.hold).create("second", sync=True)
    assert not made.synchronized
    with pytest.raises(Unavailable, match="1 replicas hold it, 2 must"):
        all_of.hold()
    place.close()


@pytest.mark.spec("K234", "K239")
def test_following_brings_what_is_written(tmp_path: Path) -> None:
    async def main() -> None:
        async with holdfast.open(f"sqlite:{tmp_path}/a.db") as store:
            replicas = holdfast.replicas.Replicas(store, [f"sqlite:{tmp_path}/b.db"], interval=0.02)
            async with replicas.following():
                await store.agent("a").set("x", 1)
                for _ in range(3000):
                    (status,) = await replicas.status()
                    if status.whole and not status.entries:
                        break
                    await asyncio.sleep(0.02)
                assert status.entries == 0  # nobody called `sync`
                await store.agent("a").set("x", 2)
            (copy,) = await replicas.copies()
            assert await copy.agent("a").get("x") == 2
            assert (await copy.verify()).findings == []
        await holdfast.replicas.promote_replica(f"sqlite:{tmp_path}/b.db")
        async with holdfast.open(f"sqlite:{tmp_path}/b.db") as again:
            await again.agent("a").set("x", 3)

    asyncio.run(main())


def test_what_is_no_replica_is_left_alone(store: sync.Store, place: Place) -> None:
    fill(store, 1, 3)
    with sync.open(at(place, "other")) as other:
        other.agent("a").set("x", 1)
    (one,) = sync.replicas.Replicas(store, [at(place, "other")]).sync().replicas
    assert "another store is there" in str(one.error)
    with sync.open(at(place, "other")) as other:
        assert other.agent("a").get("x") == 1
    same = sync.replicas.Replicas(store, [place.url])
    assert "ReplicaSplitError" in str(same.sync().replicas[0].error)
    assert "the store itself" in str(same.sync(remake=place.url).replicas[0].error)
    store.agent("agent-0").set("goes", "on")
    assert store.verify().findings == []
    for urls in ("sqlite:x.db", [], [3], ["memory:"], ["sqlite:a.db", "sqlite:./a.db"]):
        with pytest.raises(InvalidInputError):
            sync.replicas.Replicas(store, urls)  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match="factor"):
        sync.replicas.Replicas(store, ["sqlite:a.db"], factor=3)


def test_a_replica_that_was_cut_short_is_no_store_yet(tmp_path: Path) -> None:
    place = Place("sqlite", tmp_path, sealed=False)
    store = place.open()
    fill(store, 1, 3)
    (status,) = sync.replicas.Replicas(store, [at(place)]).status()
    assert not status.whole
    assert status.error is None
    from holdfast.replicas.replica_cell import Claim

    storage = open_storage(at(place))
    Claim(storage).take(lambda: None)
    for attempt in (sync.open, sync.replicas.promote_replica):
        with pytest.raises(StoreNotFoundError):
            attempt(at(place))
    storage.close()
    place.close()


def test_a_sample_of_what_was_copied_is_compared_each_time(place: Place) -> None:
    """So that damage of a replica is noticed, though nothing is written to the store any more."""
    store = place.open()
    store.agent("a").set("k", 1)
    replicas = sync.replicas.Replicas(store, [at(place)])
    assert replicas.sync().replicas[0].compared == 0
    whole = replicas.sync().replicas[0]
    assert whole.ok
    assert whole.compared > 0
    assert "a sample of" in str(whole)
    copy = open_storage(at(place))
    key, row = rows_of(copy, b"E")[-1]
    put_row(copy, key, row[:-3] + bytes([row[-3] ^ 1]) + row[-2:])
    copy.close()
    found = [replicas.sync().replicas[0] for _ in range(60)]
    assert any("has it otherwise" in text for one in found for text in one.findings)
    assert replicas.sync(full=True).replicas[0].rows == 1
    assert all(replicas.sync().ok for _ in range(20))
