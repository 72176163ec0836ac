"""Pruning: what stays, what is told, and that nothing else can pass for it."""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from store_kit import Place, put_row, rows_of

import holdfast
import holdfast_verify
from holdfast import sync
from holdfast.errors import (
    Conflict,
    InvalidInputError,
    OutcomeUnknown,
    PrunedError,
    ReadOnlyError,
    StillNeededError,
    Unavailable,
)
from holdfast.storage.contract import Batch
from holdfast.storage.wrappers import MODES, Fault, Faulty
from holdfast.store.history.handle import StoreHandle
from holdfast.store.journal import entry as entries
from holdfast.store.journal.timeline import Timeline
from holdfast.store.names import rowkinds
from holdfast.store.open import open_core
from holdfast.store.read.points import Points
from holdfast.store.upkeep import prune
from holdfast.store.upkeep import prune as pruner
from holdfast.store.upkeep.prune import Pruner

LONG = "more than fits beside a key, so that it lies in the row of its entry " * 2


def fill(state: sync.State, start: int, stop: int) -> None:
    for n in range(start, stop):
        state.set(f"k{n % 3}", f"{n} {LONG}")


@pytest.fixture
def state(store: sync.Store) -> sync.State:
    """Forty entries; a checkpoint is entry 11."""
    state = store.agent("1")
    fill(state, 0, 10)
    state.checkpoint("early")
    fill(state, 10, 39)
    return state


def test_what_is_pruned_and_what_stays(store: sync.Store, state: sync.State) -> None:
    early = dict(state.at("early").items())
    done = state.prune(30, reason="long ago")
    assert (done.floor, done.anchor, done.kept) == (30, 41, (11,))
    assert done.entries > 15
    assert done.bytes > 2000
    assert "30" in str(done)
    assert "agent:1" in str(done)
    assert state.get("k2") == f"38 {LONG}"
    assert state.at(30).get("k0")
    assert state.at(35).get("k0")
    assert dict(state.at("early").items()) == early
    assert state.item("k1") is not None
    with pytest.raises(PrunedError, match=r"anchor at entry 41.*behind entry 30.*11"):
        state.at(20)
    log = state.log(limit=None)
    assert [log[0].kinds, log[0].cause.reason, log[-1].sequence] == [("prune",), "long ago", 31]
    report = store.verify()
    assert report.findings == []
    assert report.pruned == done.entries
    assert report.pruning == 0
    assert "pruned" in str(report)


def test_a_dry_run_writes_nothing(place: Place, state: sync.State) -> None:
    before = [rows_of(place.storage(), bytes([kind])) for kind in b"AEVSNBCFT"]
    planned = state.prune(30, dry_run=True)
    assert [rows_of(place.storage(), bytes([kind])) for kind in b"AEVSNBCFT"] == before
    done = state.prune(30)
    assert (planned.floor, planned.kept, planned.entries) == (done.floor, done.kept, done.entries)
    assert planned.dry_run
    assert planned.anchor == 0
    assert "would" in str(planned)


def test_checkpoints_are_kept_as_asked(store: sync.Store, state: sync.State) -> None:
    late = state.checkpoint("late")
    fill(state, 40, 50)
    assert state.prune(45, keep=["early"]).kept == (11,)
    assert [c.name for c in state.checkpoints()] == ["early"]
    with pytest.raises(PrunedError):
        state.restore(late)
    done = state.restore("early")
    assert done.keys == 3
    assert state.prune(45, keep=[]).kept == (11,)  # the restore began from it
    sync.checkpoints.Checkpoints(state).confirm(done)
    fill(state, 50, 60)
    assert state.prune(state._handle.place()[2], keep=[]).kept == ()
    assert store.verify().findings == []


def test_a_restore_can_be_undone_after_pruning(store: sync.Store, state: sync.State) -> None:
    before = dict(state.items())
    done = state.restore(20)
    state.prune(state._handle.place()[2])
    assert done.backup is not None
    state.restore(done.backup)
    assert dict(state.items()) == before
    assert store.verify().findings == []


def test_forks_keep_what_they_rest_on(place: Place, store: sync.Store, state: sync.State) -> None:
    fork = state.fork("other", at=15)
    wanted = dict(fork.items())
    fork.set("mine", LONG)
    assert state.prune(39, keep=[]).kept == (15,)
    for one in (store, place.open()):
        other = one.agent("1").on("other")
        assert {key: other.get(key) for key in other.keys("k")} == wanted
        assert one.verify().findings == []
    fork.prune(fork._handle.place()[2])
    assert state.prune(39, keep=[]).kept == ()
    assert {key: fork.get(key) for key in fork.keys("k")} == wanted
    assert store.verify().findings == []


def test_merging_goes_on(store: sync.Store, state: sync.State) -> None:
    fork = state.fork("other")
    fork.set("theirs", 1)
    fill(state, 40, 60)
    state.prune(50)
    state.merge("other")
    fork.set("theirs", 2)
    state.prune(state._handle.place()[2])
    state.merge("other")
    assert state.get("theirs") == 2
    assert store.verify().findings == []


def test_what_looks_back_is_told(store: sync.Store, state: sync.State) -> None:
    state.prune(30)
    for look in (
        lambda: state.diff(5),
        lambda: state.fork("x", at=5),
        lambda: state.revert(entries=[5]),
        lambda: list(store.feed(since={})),
        lambda: state.at(state.log(newest_first=False, limit=1)[0].time.replace(year=2020)),
    ):
        with pytest.raises(PrunedError, match="anchor at entry 41"):
            look()
    assert state.diff(30)


def test_nothing_to_prune(store: sync.Store, state: sync.State) -> None:
    assert state.prune(0).floor == 0
    done = state.prune(30)
    again = state.prune(30)
    assert (again.anchor, again.entries, again.rows) == (done.anchor, 0, 0)
    assert state.prune(11).floor == 30
    assert store.verify().findings == []


def test_what_is_refused(place: Place, state: sync.State) -> None:
    state.fork("other")
    with pytest.raises(InvalidInputError, match="each timeline"):
        state.prune("other@1")
    with pytest.raises(InvalidInputError, match="dry_run"):
        state.prune(5, dry_run="yes")  # type: ignore[arg-type]
    with pytest.raises(ReadOnlyError):
        place.open(read_only=True).agent("1").prune(5)


def test_ids_and_correlations(store: sync.Store) -> None:
    """A change is not applied twice because it is old; what is found is what can be read."""
    state = store.agent("1")
    for n in range(600):
        with store.change(id=f"c{n}", correlation=f"r{n % 4}") as change:
            change[state].set("k", f"{n} {LONG}")
    state.prune(550)
    with store.change(id="c7", correlation="r3") as change:
        change[state].set("k", f"7 {LONG}")
    assert state.get("k") == f"599 {LONG}"
    found = store.correlated("r1")
    assert [entry.sequence for entry in found][-1] == 598
    assert len(found) < 20
    assert store.verify().findings == []


def test_other_changes_of_the_whole_scope(place: Place, store: sync.Store) -> None:
    """Keys are rotated, the scope is deleted, made again and erased as before."""
    state = store.agent("1")
    fill(state, 0, 20)
    if place.sealed:
        store.rotate("agent:1")
    state.prune(state._handle.place()[2])
    fill(state, 20, 30)
    if place.sealed:
        store.rotate("agent:1")
        store.reseal("agent:1")
        assert store.keyring().data_keys == 1
    assert store.verify().findings == []
    state.prune(state._handle.place()[2])
    assert place.open().agent("1").get("k2") == f"29 {LONG}"
    store.delete("agent:1")
    assert store.verify().findings == []
    store.agent("1").set("k", 1)
    store.erase("agent:1")
    assert store.verify().findings == []
    storage = place.storage()
    assert not any(rows_of(storage, kind) for kind in rowkinds.OF_SCOPE)
    assert storage.cells(b"A", b"B") == []


def test_long_values(store: sync.Store, place: Place) -> None:
    state = store.agent("1")
    first, second = bytes(3) + b"a" * 2_000_000, b"b" * 2_000_000
    for data in (first, second):
        with state.open_write("file") as file:
            file.write(data)
    size = len(rows_of(place.storage(), b"V"))
    state.prune(state._handle.place()[2], keep=[])
    assert len(rows_of(place.storage(), b"V")) < size
    assert state.get("file") == second
    assert store.verify().findings == []
    assert store.verify().unfinished == 0


def test_a_long_value_that_was_begun_before(store: sync.Store) -> None:
    """It may share parts with a value that is gone."""
    state = store.agent("1")
    with state.open_write("file") as file:
        file.write(b"a" * 2_000_000)
    late = state.open_write("file")
    late.write(b"a" * 2_000_000)
    state.set("file", 1)
    state.prune(state._handle.place()[2])
    late.write(b"c")
    with pytest.raises(Conflict, match="write it again"):
        late.close()
    assert store.verify().findings == []


# ---- others who are at it, too -------------------------------------------------------------------


def test_a_process_that_stood_below_the_floor_goes_on(place: Place, state: sync.State) -> None:
    other = place.open().agent("1")
    fork = place.open().agent("1")
    assert other.get("k0")
    view = fork.at(12)
    assert view.get("k0")
    old = fork.at(5)
    fill(state, 40, 80)
    state.prune(75, keep=[])
    other.set("mine", 1)
    assert (other.get("mine"), other.get("k1")) == (1, state.get("k1"))
    for read in (lambda: fork.fork("x", at=12), lambda: fork.restore(12), lambda: old.get("k2")):
        with pytest.raises((PrunedError, Conflict)):
            read()
    with pytest.raises(PrunedError):
        fork.at(12)
    assert place.open().verify().findings == []


def test_a_fork_that_was_planned_before_is_not_committed(place: Place, state: sync.State) -> None:
    """Its commit expects that nobody has pruned since."""
    handle = place.open()._handle
    for plan in ("fork", "restore"):
        history = handle.line("agent:1").history
        if plan == "fork":
            change, _ = history.plan_fork("late", 20, None)
        else:
            change, _ = history.plan_restore(25, verify="none", cause=None)
        state.prune(22 if plan == "fork" else 30, keep=[])
        with pytest.raises(Conflict):
            handle.core.run(change)
    assert place.open().verify().findings == []


def test_beside_writers_and_forks(place: Place) -> None:
    """Writers, readers and those who fork go on; every state that they end with is whole."""
    store = place.open()
    fill(store.agent("1"), 0, 60)
    stop = threading.Event()
    wrong: list[BaseException] = []

    def work(number: int) -> None:
        state = place.open().agent("1")
        count = 0
        try:
            # Bounded: what is written is what is to be pruned, however slow that is.
            while not stop.is_set() and count < 1500:
                count += 1
                state.set(f"w{number}", f"{count} {LONG}")
                state.get(f"w{number}")
                with suppress(Conflict, PrunedError):
                    if number == 1 and count < 30:
                        at = state._handle.place()[2] - count % 50
                        state.fork(f"f{count}", at=at).set("own", LONG)
                    elif number == 0 and count % 5 == 0:
                        done = state.restore(state._handle.place()[2] - count % 30)
                        sync.checkpoints.Checkpoints(state).confirm(done)
                    state.at(state._handle.place()[2] - 20).get("k1")
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    state = store.agent("1")
    for _ in range(6):
        with suppress(Conflict, StillNeededError):  # a restore that is about to be confirmed
            state.prune(max(0, state._handle.place()[2] - 10), keep=[])
    stop.set()
    for thread in threads:
        thread.join()
    assert wrong == []
    for one in (store, place.open()):
        assert one.verify().findings == []
        for info in one.agent("1").timelines():
            line = one.agent("1").on(info.name)
            assert all(value is not None for _, value in line.items())


def test_verify_beside_pruning(place: Place) -> None:
    """What goes while it looks is no finding."""
    store, other = place.open(), place.open()
    state = store.agent("1")
    fill(state, 0, 100)
    wrong: list[BaseException] = []

    def work() -> None:
        try:
            for _ in range(10):
                with state.open_write("file") as file:
                    file.write(random.randbytes(1_100_000))
                fill(state, 0, 20)
                state.prune(state._handle.place()[2] - 5, keep=[])
        except BaseException as error:
            wrong.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    while thread.is_alive():
        assert other.verify().findings == []
    thread.join()
    assert wrong == []
    assert other.verify().findings == []


def test_who_prunes_later_takes_over(
    place: Place, state: sync.State, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From one who stands still, and is told by its next commit; nothing is done twice."""
    monkeypatch.setattr(pruner, "TERM", 0.01)
    handle = place.open()._handle.line("agent:1")
    mine = Pruner(handle.history.points.line().ledger)
    first = prune._Pruning(handle, mine, 30, None, "retention", False)
    assert state.prune(30).floor == 30
    with pytest.raises(Conflict, match="another process"):
        first._commit(Batch())
    assert place.open().verify().findings == []


def test_who_prunes_between_the_look_and_the_right_to_prune_is_seen(
    place: Place, state: sync.State, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What another one announced meanwhile is what the later one begins with."""
    other, take, done = place.open().agent("1"), Pruner.take, []
    assert other.get("k0")

    def late(self: Pruner) -> None:
        if not done:
            done.append(1)
            state.prune(20)
        take(self)

    monkeypatch.setattr(Pruner, "take", late)
    assert other.prune(30).floor == 30
    for again in (place.open(), place.open()):
        assert again.verify().findings == []
        again.agent("1").set("k0", "still written")
        assert again.agent("1").at("early").get("k0").startswith("9 ")


@pytest.mark.parametrize("how", ["prune", "end", "retention"])
def test_who_takes_over_on_another_timeline_finishes_both(
    place: Place, state: sync.State, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """Nobody else comes back for what was begun: without its token it looks like tampering."""
    state.fork("other")
    state.fork("fork").set("mine", LONG)
    state.prune(15, keep=[])
    other = place.open()

    def cut_short(*_: Any) -> Any:
        raise Unavailable("the process was killed")

    with monkeypatch.context() as patch:
        patch.setattr(prune._Pruning, "_slices", cut_short)
        for line, at in ((state, 30), (state.on("other"), 1)):
            with pytest.raises(Unavailable):
                line.prune(at, keep=[])
    assert other.verify().pruning == 1
    if how == "prune":
        other.agent("1").on("fork").prune(1)
    elif how == "end":
        sync.checkpoints.Retention(other).end("agent:1", "fork")
    else:
        sync.checkpoints.Retention(other).run("agent:1")
    report = place.open().verify()
    assert (report.findings, report.pruning) == ([], 0)
    done = state.prune(30, keep=[])
    assert (done.entries, done.rows) == (0, 0), "all is dropped"


def test_one_that_begins_anew_takes_over_from_nobody(
    place: Place, state: sync.State, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own token is in the cell; that is nobody who was cut short."""
    run, found = prune._Pruning.run, []

    def conflicts(self: Any, reason: Any) -> Any:
        found.append((self.pruner.inherited, self.pruner.cell[:16]))
        if len(found) < 3:
            raise prune._Again
        return run(self, reason)

    monkeypatch.setattr(prune._Pruning, "run", conflicts)
    state.prune(30)
    assert found == [(False, found[0][1])] * 3
    assert place.open().verify().pruning == 0


# ---- cut short -----------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
def test_storage_that_fails_at_each_call(plain: Place, mode: str) -> None:
    """Whatever fails, the store verifies, all that is kept is there, and the next one goes on."""
    store = plain.open()
    state = store.agent("1")
    fill(state, 0, 20)
    state.checkpoint("c")
    reached = 0
    for nth in range(1, 6000, 1 if mode != "before" else 13):
        fill(state, 0, 3)
        faulty = Faulty(plain.storage())
        options = plain.options()
        broken = sync.Store(StoreHandle(open_core(plain.url, storage=faulty, **options)))
        last = broken.agent("1")._handle.place()[2]
        call = "commit" if mode != "before" else "*"
        faulty.plan = (Fault(call, faulty.calls[call] + nth, mode),)
        with suppress(Unavailable, OutcomeUnknown):
            broken.agent("1").prune(last - 2)
        broken.close()
        assert plain.open().verify().findings == []
        assert state.get("k1") == f"1 {LONG}"
        assert state.at("c").get("k1") == f"19 {LONG}"
        if not faulty.failed:
            break
        reached += 1
    assert 4 < reached < 400
    state.prune(state._handle.place()[2])
    assert store.verify().findings == []
    assert store.verify().pruning == 0


KILLED = """
import os, sys
from holdfast import sync
from holdfast.storage.sqlite import engine as sqlite
from holdfast.store.upkeep import prune as pruning
pruning.SLICE = 8
commits, commit = int(sys.argv[2]), sqlite.SqliteStorage.commit
store = sync.open("sqlite:" + sys.argv[1], key=sys.argv[3] or None, durability="normal")
def counted(self, batch):
    global commits
    commits -= 1
    if commits < 0:
        os._exit(9)
    commit(self, batch)
sqlite.SqliteStorage.commit = counted
store.agent("1").prune(35)
"""


def test_a_process_killed_at_each_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pruner, "TERM", 0.01)
    for commits in range(40):
        folder = tmp_path / str(commits)
        folder.mkdir()
        place = Place("sqlite", folder, sealed=bool(commits % 2))
        with place.open() as store:
            state = store.agent("1")
            fill(state, 0, 10)
            state.checkpoint("early")
            with state.open_write("file") as file:
                file.write(b"x" * 1_100_000)
            state.delete("file")
            fill(state, 10, 40)
        done = subprocess.run(
            [sys.executable, "-c", KILLED, str(place.path), str(commits), place.key or ""],
            env=place.environment(),
            check=False,
            timeout=60,
        )
        assert done.returncode in (0, 9)
        with place.open() as store:
            state = store.agent("1")
            assert store.verify().findings == []
            assert state.at("early").get("k0") == f"9 {LONG}"
            state.prune(35)
            store.sweep()
            report = store.verify()
            assert (report.findings, report.pruning, report.unfinished) == ([], 0, 0)
            with pytest.raises(PrunedError):
                state.at(20)
        if done.returncode == 0:
            break
    assert commits > 6


# ---- not what it seems ---------------------------------------------------------------------------


def places(place: Place, kind: bytes) -> dict[int, bytes]:
    return {rowkinds.sequence_of(key): key for key, _ in rows_of(place.storage(), kind)}


def found(place: Place) -> list[str]:
    return sorted({finding.kind for finding in place.open().verify().findings})


def strip(place: Place, sequence: int) -> None:
    """Drop the body of an entry behind the store's back."""
    storage = place.storage()
    key = places(place, b"E")[sequence]
    row = storage.get([key])[0]
    assert row is not None
    put_row(storage, key, entries.split_row(row)[0].data)


def test_a_body_dropped_without_an_anchor(place: Place, state: sync.State) -> None:
    state.prune(30)
    strip(place, 33)
    assert found(place) == ["damage"]
    with pytest.raises(holdfast.HoldfastError, match="no anchor says"):
        place.open().agent("1").log(limit=None)


def test_a_kept_body_dropped_below_the_floor(place: Place, state: sync.State) -> None:
    """What kept values or keys rest on is missed, although an anchor covers the place."""
    state.set("short", 1)
    fill(state, 40, 50)
    state.prune(45)
    for sequence in (41, 10):  # it wrote `short`, inline; and a value of the checkpoint
        storage = place.storage()
        row = storage.get([places(place, b"E")[sequence]])[0]
        assert row is not None
        assert entries.split_row(row)[1]
        strip(place, sequence)
        assert found(place) == ["damage"]
        put_row(storage, places(place, b"E")[sequence], row)
    assert found(place) == []


@pytest.mark.parametrize("kind", [b"A", b"B"])
def test_rows_of_an_anchor_that_are_missing(place: Place, state: sync.State, kind: bytes) -> None:
    state.prune(30)
    for key, row in rows_of(place.storage(), kind):
        put_row(place.storage(), key, None)
        assert found(place)
        put_row(place.storage(), key, row)
        put_row(place.storage(), key[:-1] + b"\x77", row)
        assert found(place)
        put_row(place.storage(), key[:-1] + b"\x77", None)
    assert found(place) == []


def test_an_envelope_dropped_below_the_floor(place: Place, state: sync.State) -> None:
    state.prune(30)
    put_row(place.storage(), places(place, b"E")[5], None)
    assert "chain" in found(place)


def test_the_chain_stays_whole(store: sync.Store, state: sync.State, tmp_path: Path) -> None:
    """A chain and a witness from before fit what is exported after, without a key."""
    witness = store.witness()
    state.prune(30)
    assert store.verify(expect=witness).findings == []
    path = tmp_path / "a.chain"
    assert state.export_chain(path, feed=True) == 41
    seen = tmp_path / "witness"
    seen.write_text(witness)
    pin = store.identity().rpartition(":")[2]
    assert holdfast_verify.main([str(path), str(seen), "--pin", pin]) == 0


def test_who_has_the_chain_alone_tells_pruning_from_taking_away(
    place: Place, state: sync.State, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Bodies that are gone lie below an anchor, which the chain holds; else they were taken."""
    state.checkpoint("signed")
    path = str(tmp_path / "a.chain")

    def verdict() -> dict[str, Any]:
        state.export_chain(path)
        holdfast_verify.main([path, "--json"])
        return dict(json.loads(capsys.readouterr().out)[0])

    def take_body(number: int) -> None:
        key = places(place, b"E")[number]
        row = dict(rows_of(place.storage(), b"E"))[key]
        put_row(place.storage(), key, entries.split_row(row)[0].data)

    assert verdict()["pruned"] == 0
    done = state.prune(30)
    found = verdict()
    assert found["valid"]
    assert found["pruned"] == done.entries > 15
    assert f"{done.entries} are pruned" in found["told"]
    for number in (done.floor, 35):  # a state that the anchor keeps, and one behind it
        before = rows_of(place.storage(), b"E")
        take_body(number)
        found = verdict()
        assert not found["valid"]
        assert "no anchor names" in found["told"]
        for key, row in before:
            put_row(place.storage(), key, row)
    assert verdict()["valid"]
    for key, _ in rows_of(place.storage(), b"A"):
        put_row(place.storage(), key, None)
    assert not verdict()["valid"]


def test_space_is_given_back(tmp_path: Path) -> None:
    place = Place("sqlite", tmp_path, sealed=False)
    with place.open() as store:
        state = store.agent("1")
        for n in range(1500):
            state.set(f"k{n % 10}", random.Random(n).randbytes(1000))
    size = place.path.stat().st_size
    with place.open() as store:
        store.agent("1").prune(1500)
    assert place.path.stat().st_size < size * 0.6
    with place.open() as store:
        assert store.verify().findings == []


def test_the_async_face(place: Place) -> None:
    async def main() -> None:
        async with holdfast.open(place.url, **place.options()) as store:
            state = store.agent("1")
            for n in range(20):
                await state.set("k", f"{n} {LONG}")
            assert (await state.prune(15, dry_run=True)).entries == 14
            assert (await state.prune(15)).entries == 14
            assert await state.get("k") == f"19 {LONG}"
            with pytest.raises(PrunedError):
                state.at(5)
            assert (await store.verify()).findings == []

    asyncio.run(main())


@pytest.mark.parametrize(
    ("how", "nth"), [("fork", 1), ("fork", 2), ("fork", 3), *(("restore", n) for n in range(1, 5))]
)
def test_what_is_pruned_between_looking_and_resting_on_it_is_not_rested_on(
    place: Place, monkeypatch: pytest.MonkeyPatch, how: str, nth: int
) -> None:
    """Another handle prunes right behind one of the looks at the timeline."""
    state, other = place.open().agent("1"), place.open().agent("1")
    fill(state, 0, 30)
    look, looks = Points.line, 0

    def line(points: Points, name: str | None = None) -> Timeline:
        nonlocal looks
        found = look(points, name)
        if points.core is state._handle.core:
            looks += 1
            if looks == nth:
                other.prune(25, keep=[])
        return found

    monkeypatch.setattr(Points, "line", line)
    with suppress(Conflict, PrunedError):
        state.restore(10) if how == "restore" else state.fork("f", at=10)
    monkeypatch.undo()
    assert looks >= nth
    store = place.open()
    store.agent("1").prune(28, keep=[])
    assert store.verify().findings == []


def test_who_prunes_again_and_again_leaves_nothing_behind(place: Place) -> None:
    """It looks only at what it left whole the last time: another process, which looks at all of the
    past, finds nothing more to drop, and what is held of timelines that ended is nothing."""
    store = place.open()
    state = store.agent("a")
    for turn in range(8):
        for number in range(12):
            state.set(f"k{(turn * 5 + number) % 17}", f"{turn} {number} " * 20)
        safe = state.checkpoint(f"turn {turn}")
        state.fork(f"trial {turn}").set("k1", turn)
        sync.checkpoints.Retention(store).end(state, f"trial {turn}")
        state.prune(safe, keep=[safe])
    ledger = state._handle.history.points.line().ledger
    assert ledger.whole[0][1]
    again = place.open().agent("a").prune(safe, keep=[safe])
    assert (again.entries, again.rows) == (0, 0)
    assert [one.name for one in state.timelines()] == ["main"]
    assert set(ledger.timelines) == {0}
    assert place.open().verify().findings == []
