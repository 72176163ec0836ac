"""Erasing a scope: its content is gone, whoever looks, and what stays is said."""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
import threading
from contextlib import nullcontext, suppress
from pathlib import Path

import apsw
import pytest
from store_kit import Place, put_row, rows_of

import holdfast
from holdfast import sync
from holdfast.errors import (
    Conflict,
    HoldfastError,
    MissingError,
    OutcomeUnknown,
    ReadOnlyError,
    ScopeNotFoundError,
    Unavailable,
)
from holdfast.storage import open_storage
from holdfast.storage.contract import Batch, Storage
from holdfast.storage.wrappers import Fault, Faulty
from holdfast.store.history.handle import StoreHandle
from holdfast.store.open import open_core
from holdfast.store.upkeep import erase

SECRET = "the words that nobody may find again"
KINDS = (b"T", b"E", b"V", b"S", b"N", b"R", b"I")


def fill(store: sync.Store, name: str = "agent:a", entries: int = 0) -> sync.State:
    """A scope with rows of every kind and several timelines."""
    state = store.scope(name)
    with store.acting("tester", correlation="run"):
        state.set("k", SECRET)
        state.set("text", SECRET * 1000)
        state.extend("list", [{"n": n, "text": f"{SECRET} {n}"} for n in range(300)])
    with state.change(id="once") as change:
        change.set("k2", SECRET)
    safe = state.checkpoint(SECRET)
    state.fork("trial", at=safe).set("k", f"{SECRET} of trial")
    state.restore(safe)
    for number in range(entries):
        state.set(f"n{number % 7}", number)
    return state


def left(storage: Storage) -> dict[bytes, int]:
    """How many rows there are of each kind that belongs to scopes."""
    return {kind: n for kind in KINDS if (n := len(rows_of(storage, kind)))}


def ring_rows(place: Place) -> list[tuple[bytes, bytes]]:
    return rows_of(open_storage(f"{place.url}.keys", durability="normal"), b"K")


def test_only_the_tombstone_stays(place: Place) -> None:
    store = place.open()
    fill(store, entries=600)
    result = store.erase("agent:a")
    assert result.lives == 1
    assert result.rows > 600
    assert result.bytes > 20_000
    assert result.key_removed == place.sealed
    assert result.open
    assert left(place.storage()) == {}
    assert [key[21] for key, _ in rows_of(place.storage(), b"D")] == [2]
    if place.sealed:
        assert ring_rows(place) == []
    assert store.scopes().items == []
    assert store.agent("a").get("k") is None
    assert store.correlated("run") == list(store.feed()) == []
    assert store.verify().findings == []
    assert place.reopen().verify().findings == []
    assert place.open().verify().erased == 1


def test_others_are_untouched(place: Place) -> None:
    store = place.open()
    fill(store)
    other = fill(store, "agent:b")
    before, entries = other.items(), len(list(store.feed()))
    long = len(other.log(limit=None))
    witness = store.witness()
    store.erase(store.agent("a"))
    assert other.items() == before
    assert len(store.correlated("run")) == 3
    assert 0 < len(list(store.feed())) < entries
    store = place.reopen()
    assert store.agent("b").items() == before
    assert store.verify(expect=witness).findings == []
    with store.agent("b").change(id="once") as change:
        change.set("k2", SECRET)
    assert len(store.agent("b").log(limit=None)) == long


def test_the_name_can_be_used_again(place: Place) -> None:
    store = place.open()
    state = fill(store)
    version = state.item("k").version  # type: ignore[union-attr]
    store.erase("agent:a")
    with pytest.raises(Conflict):
        state.set("k", 1, if_version=version)
    assert state.set("k", "new") > version
    with state.change(id="once") as change:
        change.set("k2", "new")
    assert place.reopen().agent("a").items() == [("k", "new"), ("k2", "new")]
    assert place.open().verify().findings == []


def test_all_lives_are_erased(place: Place) -> None:
    store = place.open()
    for _ in range(3):
        fill(store)
        store.delete("agent:a")
    fill(store)
    assert store.erase("agent:a").lives == 4
    assert left(place.storage()) == {}
    again = store.erase("agent:a")
    assert (again.lives, again.rows, again.key_removed) == (4, 0, False)
    fill(store)
    store.delete("agent:a")
    assert store.erase("agent:a").lives == 5
    assert left(place.storage()) == {}
    assert place.reopen().verify().findings == []


def test_a_scope_that_never_was(place: Place) -> None:
    with pytest.raises(ScopeNotFoundError):
        place.open().erase("agent:never")


def test_refused(place: Place) -> None:
    store = place.open()
    fill(store)

    class No(holdfast.Gate):
        def before(self, request: holdfast.GateRequest) -> None:
            raise holdfast.errors.GateRefusedError(request.operations[0].kind)

    gate = No()
    store.add_gate(gate)
    with pytest.raises(holdfast.errors.GateRefusedError, match="erase scope"):
        store.erase("agent:a")
    store.remove_gate(gate)
    with pytest.raises(ReadOnlyError):
        place.open(read_only=True).erase("agent:a")
    assert store.agent("a").get("k") == SECRET


def test_changes_over_several_scopes(place: Place) -> None:
    """What tells of a shared change stays as long as one of its scopes does."""
    store = place.open()
    with store.change(id="both") as change:
        change[store.agent("a")].set("k", 1)
        change[store.agent("b")].set("k", 1)
    result = store.erase("agent:a")
    assert any("shared" in text for text in result.open)
    assert store.verify().findings == []
    with store.change(id="both") as change:  # applied once, also now
        change[store.agent("a")].set("k", 1)
        change[store.agent("b")].set("k", 1)
    assert store.agent("a").get("k") is None
    assert not any("shared" in text for text in store.erase("agent:b").open)
    assert left(place.storage()) == {}
    assert place.reopen().verify().findings == []


def test_its_name_stands_in_no_change_that_left_it_no_entry(place: Place) -> None:
    """What is remembered of a change's id says only by a tag whose ephemeral keys it wrote to."""
    store = place.open()
    alice, other = store.agent("alice@example.com"), store.agent("b")
    alice.declare(holdfast.Ephemeral("tmp/"))
    with store.change(id="both") as change:
        change[alice].set("tmp/x", 1)
        change[other].set("tmp/x", 1)
    with alice.change(id="alone") as alone:
        alone.set("tmp/x", 2)
    store.erase(alice)
    core = store._core
    for key, row in rows_of(core.storage, b"I"):
        assert b"alice" not in core.open_row(key, row)
    with store.change(id="both") as change:  # it is known all the same
        change[alice].set("tmp/x", 1)
        change[other].set("tmp/x", 1)
    assert change.repeated
    assert store.verify().findings == []


@pytest.mark.parametrize("sealed", [False, True])
def test_no_byte_of_it_is_in_the_files(tmp_path: Path, sealed: bool) -> None:
    place = Place("sqlite", tmp_path, sealed=sealed)
    store = place.open()
    fill(store, "agent:b")
    secret = "unique: " + "q7Zk" * 10
    state = store.agent("a-name-to-forget")
    state.set("k", secret)
    for number in range(400):
        state.set(f"more{number}", secret + str(number) * 50)
    size = place.path.stat().st_size
    wrapped = [row for _, row in ring_rows(place)] if sealed else []
    assert len(wrapped) == (2 if sealed else 0)
    store.erase(state)
    place.close()
    content = b"".join(path.read_bytes() for path in place.path.parent.iterdir())
    assert content.count(b"unique: ") == 0
    assert content.count(b"a-name-to-forget") == 0
    assert sum(row in content for row in wrapped) == (1 if sealed else 0)
    if not sealed:
        assert b"the words" in content, "the other scope is there, so looking finds something"
    assert place.path.stat().st_size < size


@pytest.mark.parametrize("sealed", [False, True])
@pytest.mark.parametrize("wait", [True, False])
def test_nor_while_the_store_is_open(tmp_path: Path, sealed: bool, wait: bool) -> None:
    """The engine's log, too, holds neither the key nor, in a plain store, the content."""
    place = Place("sqlite", tmp_path, sealed=sealed)
    store, other = place.open(), place.open()
    store.agent("a").set("k", SECRET)
    assert other.agent("a").get("k") == SECRET
    wrapped = [row for _, row in ring_rows(place)]
    assert len(wrapped) == (1 if sealed else 0)
    result = store.erase("agent:a", wait=wait)
    assert not any("logs" in text for text in result.open)
    content = b"".join(path.read_bytes() for path in place.path.parent.iterdir())
    assert SECRET.encode() not in content
    assert not any(row in content or row[-32:] in content for row in wrapped)


def test_a_reader_who_keeps_the_log_is_told_of(tmp_path: Path) -> None:
    place = Place("sqlite", tmp_path, sealed=True)
    store = place.open()
    for name in ("a", "b"):
        store.agent(name).set("k", SECRET)
    wrapped = [row for _, row in ring_rows(place)]
    reader = apsw.Connection(f"{place.path}.keys", flags=apsw.SQLITE_OPEN_READONLY)
    reader.execute("BEGIN").execute("SELECT count(*) FROM records").fetchall()
    assert any("logs of the engine" in text for text in store.erase("agent:a").open)
    reader.close()
    assert not any("logs of the engine" in text for text in store.erase("agent:b").open)
    content = b"".join(path.read_bytes() for path in place.path.parent.iterdir())
    assert not any(row in content for row in wrapped)


def test_space_is_given_back(tmp_path: Path) -> None:
    place = Place("sqlite", tmp_path, sealed=False)
    store = place.open()
    store.agent("b").set("k", 1)
    place.reopen().close()
    small = place.path.stat().st_size
    store = place.reopen()
    for number in range(50):
        store.agent("a").set(f"k{number}", noise(60_000, number))
    store.erase("agent:a")
    place.close()
    assert place.path.stat().st_size < small + 200_000


def noise(length: int, seed: int) -> bytes:
    return random.Random(seed).randbytes(length)


# ---- others who have it open ---------------------------------------------------------------


def test_readers_elsewhere_see_that_it_is_gone(place: Place) -> None:
    store, other = place.open(), place.open()
    fill(store, entries=50)
    states = [other.agent("a"), other.agent("a").on("trial")]
    for state in states:
        assert SECRET in state.get("k")
    store.erase("agent:a")
    assert other.agent("a").get("k") is None
    assert other.agent("a").keys() == []
    assert states[0].log() == states[0].checkpoints() == []
    for call in (lambda: states[0].at(3), lambda: states[1].restore(3), states[0].root):
        with pytest.raises(ScopeNotFoundError):
            call()
    assert list(other.feed()) == []
    with pytest.raises(ScopeNotFoundError):
        states[0].fork("more", at=2)


def test_a_view_that_was_never_read(place: Place) -> None:
    store, other = place.open(), place.open()
    fill(store, entries=50)
    view = other.agent("a").at(4)
    store.erase("agent:a")
    with pytest.raises(ScopeNotFoundError, match="erased"):
        view.items()


def test_writers_elsewhere_begin_anew(place: Place) -> None:
    """As after a deletion: nothing that was acknowledged is lost, nothing joins the old one."""
    store, other = place.open(), place.open()
    fill(store)
    state = other.agent("a")
    version = state.item("k").version  # type: ignore[union-attr]
    store.erase("agent:a")
    with pytest.raises(Conflict):
        state.set("k", 1, if_version=version)
    with pytest.raises(MissingError):
        state.on("trial").set("k", 1)
    state.set("k", "new")
    assert store.agent("a").items() == [("k", "new")]
    assert place.reopen().verify().findings == []


class Late:
    """A storage whose lock holds nobody back, and that erases right before a commit."""

    def __init__(self, storage: Storage) -> None:
        self._inner = storage
        self.before = lambda: None

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)

    def turn(self) -> object:
        return nullcontext()

    def commit(self, batch: Batch) -> None:
        act, self.before = self.before, lambda: None
        act()
        self._inner.commit(batch)


@pytest.mark.parametrize("sealed", [False, True])
def test_a_writer_that_is_just_about_to_commit(tmp_path: Path, sealed: bool) -> None:
    """Between looking and committing all rows went: only the tombstone can stop it."""
    place = Place("memory", tmp_path, sealed=sealed)
    store = place.open()
    late = Late(place.storage())
    core = open_core(place.url, storage=late, **place.options())  # type: ignore[arg-type]
    writer = sync.Store(StoreHandle(core)).agent("a")
    for write in (
        lambda: writer.set("k", "late"),
        lambda: writer.checkpoint("late"),
        lambda: writer.fork("late"),
        lambda: writer.delete("k"),
    ):
        fill(store)
        assert writer.get("k") == SECRET
        late.before = lambda: store.erase("agent:a")
        try:
            write()
        except ScopeNotFoundError:
            assert left(place.storage()) == {}
        assert [n for n, _ in place.open().agent("a").items()] in ([], ["k"])
        assert place.open().agent("a").get("k") in (None, "late")
        assert place.open().verify().findings == []


@pytest.mark.one_place
def test_writers_and_readers_race(place: Place) -> None:
    """Threads with handles of their own; the values of a life that is over never come back."""
    errors: list[BaseException] = []
    over = threading.Event()
    fill(place.open())
    stores = [place.open() for _ in range(4)]

    def work(store: sync.Store, write: bool) -> None:
        state = store.agent("a")
        while not over.is_set():
            try:
                if write:
                    state.append("log", "x" * 200)
                    state.checkpoint("c")
                else:
                    state.items()
                    state.log(limit=5)
                    list(store.feed())
            except (ScopeNotFoundError, Unavailable):
                pass
            except BaseException as error:
                errors.append(error)
                return

    threads = [
        threading.Thread(target=work, args=(one, n % 2 == 0)) for n, one in enumerate(stores)
    ]
    for thread in threads:
        thread.start()
    eraser = place.open()
    for _ in range(15):
        with suppress(ScopeNotFoundError):
            eraser.erase("agent:a")
    over.set()
    for thread in threads:
        thread.join()
    assert errors == []
    eraser.erase("agent:a")
    assert left(place.storage()) == {}
    assert place.reopen().verify().findings == []


def test_verify_meanwhile(place: Place) -> None:
    store, other = place.open(), place.open()
    for _ in range(4):
        fill(store, entries=200)
        store.agent("b").set("k", SECRET)
        eraser = threading.Thread(target=store.erase, args=("agent:a",))
        eraser.start()
        found = []
        while eraser.is_alive():
            found += other.verify().findings
        eraser.join()
        assert found == [], "nothing was cut short"
        assert other.verify().findings == []


# ---- cut short ------------------------------------------------------------------------------


@pytest.mark.one_place
def test_every_storage_call_fails_once(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever fails, others are unhurt, the scope is whole or gone, and once more finishes."""
    monkeypatch.setattr(erase, "SLICE", 8)
    nth = 0
    done = False
    while not done:
        nth += 1
        name = f"agent:a{nth}"
        store = place.open()
        other = store.agent("b")
        other.set("k", nth)
        mine = left(place.storage())
        fill(store, name)
        faulty = Faulty(place.storage())
        eraser = sync.Store(StoreHandle(open_core(place.url, storage=faulty, **place.options())))
        mode = ("before", "ambiguous-applied", "ambiguous-lost")[nth % 3]
        faulty.plan = (Fault("*", faulty.calls["*"] + nth, mode),)
        with suppress(Unavailable, OutcomeUnknown):
            eraser.erase(name)
        done = not faulty.failed
        fresh = place.open()
        assert fresh.agent("b").get("k") == other.get("k") == nth
        value = fresh.scope(name).get("k")
        assert value in (None, SECRET)
        report = fresh.verify()
        assert {finding.kind for finding in report.findings} <= {"erasure"}
        if value is None and left(place.storage()) != mine:
            assert report.findings or report.unswept
        place.open().erase(name)
        assert left(place.storage()) == mine
        assert [e.scope.id for e in place.open().feed()] == ["b"] * nth
        report = place.open().verify()
        assert (report.findings, report.unswept) == ([], 0)
        place.close()
        eraser.close()
    assert nth > 20


def test_the_ring_fails(tmp_path: Path) -> None:
    place = Place("memory", tmp_path, sealed=True)
    store = place.open()
    fill(store)
    ring = store._core.ring
    assert ring is not None
    inner = ring.storage
    ring.storage = Faulty(inner, Fault("commit"))
    with pytest.raises(Unavailable):
        store.erase("agent:a")
    ring.storage = inner
    report = store.verify()
    assert (report.findings, report.unswept) == ([], 1)
    kept = rows_of(inner, b"K")
    assert store.erase("agent:a").key_removed
    inner.commit(Batch(puts=kept))
    assert [f.message for f in store.verify().findings] == [
        "its key is in the ring: erase it again"
    ]
    assert store.erase("agent:a").key_removed
    assert store.verify().findings == []


KILLED = """
import os, sys
from holdfast import sync
from holdfast.storage.sqlite import engine as sqlite
commits, commit = int(sys.argv[2]), sqlite.SqliteStorage.commit
from holdfast.store.upkeep import erase as erasing
erasing.SLICE = 8
store = sync.open("sqlite:" + sys.argv[1], key=sys.argv[3] or None, durability="normal")
def counted(self, batch):
    global commits
    commits -= 1
    if commits < 0:
        os._exit(9)
    commit(self, batch)
sqlite.SqliteStorage.commit = counted
store.erase("agent:a")
"""


@pytest.mark.parametrize("sealed", [False, True])
def test_killed_at_each_commit(tmp_path: Path, sealed: bool) -> None:
    place = Place("sqlite", tmp_path, sealed=sealed)
    for commits in range(7):
        fill(place.open())
        place.close()
        done = subprocess.run(
            [sys.executable, "-c", KILLED, str(place.path), str(commits), place.key or ""],
            env=place.environment(),
            check=False,
            timeout=60,
        )
        assert done.returncode == 9
        store = place.open()
        assert store.agent("a").get("k") == (SECRET if commits == 0 else None)
        report = store.verify()
        assert bool(report.findings or report.unswept) == (commits > 0)
        store.erase("agent:a")
        assert left(place.storage()) == {}
        report = store.verify()
        assert (report.findings, report.unswept) == ([], 0)
        place.close()


# ---- verify ---------------------------------------------------------------------------------


def test_rows_that_vanished_without_a_tombstone_are_damage(place: Place) -> None:
    store = place.open()
    fill(store)
    fill(store, "agent:b")
    store.erase("agent:a")
    place.close()
    storage = place.storage()
    ((key, row),) = [(k, r) for k, r in rows_of(storage, b"D") if k[21] == 2]
    put_row(storage, key, None)
    assert place.open().verify().findings
    put_row(storage, key, row)
    assert place.reopen().verify().findings == []
    for kind in (b"E", b"V", b"S", b"N", b"T", b"D"):
        found = [(k, r) for k, r in rows_of(storage, kind) if k != key]
        for one, _ in found:
            storage.commit(Batch(drops=[one]))
        assert place.reopen().verify().findings, kind
        storage.commit(Batch(puts=found))
    assert place.reopen().verify().findings == []


def test_what_is_left_is_a_finding(place: Place) -> None:
    """Rows of an erased scope that come back, from an old copy for example."""
    store = place.open()
    fill(store, entries=300)
    storage = place.storage()
    kept = [pair for kind in KINDS[:6] for pair in rows_of(storage, kind)]
    kept += rows_of(storage, b"D")
    store.erase("agent:a")
    for kind in sorted({key[:1] for key, _ in kept}):
        mine = [pair for pair in kept if pair[0][:1] == kind]
        storage.commit(Batch(puts=mine))
        report = place.reopen().verify()
        if kind == b"D":  # as after an erase that is not waited for
            assert (report.findings, report.unswept) == ([], 1)
        else:
            assert {finding.kind for finding in report.findings} == {"erasure"}, kind
            assert all("erase it again" in finding.message for finding in report.findings)
        assert place.open().agent("a").get("k") is None
        if kind == b"R":
            storage.commit(Batch(drops=[key for key, _ in mine]))
        place.open().erase("agent:a")
        assert place.open().verify().findings == []


def test_ending_a_scope_costs_each_timeline_the_same(place: Place) -> None:
    """The last entries of a thousand forks do not name each other."""
    store, longest = place.open(), []
    for name, forks in (("a", 2), ("b", 80)):
        state = store.agent(name)
        state.set("k", 1)
        for number in range(forks):
            state.fork(f"f{number}")
        before = {key for key, _ in rows_of(place.storage(), b"E")}
        store.delete(state)
        ended = [row for key, row in rows_of(place.storage(), b"E") if key not in before]
        assert len(ended) == forks + 1
        longest.append(max(map(len, ended)))
    assert longest[1] < longest[0] + 8


def test_a_damaged_scope_can_be_erased(place: Place) -> None:
    store = place.open()
    fill(store)
    fill(store, "agent:b")
    place.close()
    storage = place.storage()
    number = max(key[1:7] for key, _ in rows_of(storage, b"E"))
    mine = [key for key, _ in rows_of(storage, b"E") if key[1:7] == number]
    put_row(storage, mine[2], None)
    put_row(storage, mine[4], b"damaged")
    store = place.open()
    names = ("agent:a", "agent:b")
    (name,) = {f.scope for f in store.verify().findings if f.scope}
    store.erase(name)
    assert store.verify().findings == []
    (other,) = set(names) - {name}
    assert store.scope(other).get("k") == SECRET
    assert len(store.correlated("run")) == 3


def test_async(place: Place) -> None:
    async def run() -> None:
        async with holdfast.open(place.url, **place.options()) as store:
            state = store.agent("a")
            await state.set("k", SECRET)
            result = await store.erase(state)
            assert isinstance(result, holdfast.store.names.items.Erased)
            assert await state.get("k") is None
            assert (await store.verify()).findings == []
            with pytest.raises(HoldfastError):
                await store.erase("agent:never")

    asyncio.run(run())
    assert left(place.storage()) == {}
