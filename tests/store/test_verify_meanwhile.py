"""Verifying while others erase and prune: what they are about to drop is no damage."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from store_kit import Place, put_row

from holdfast import sync
from holdfast.errors import DamagedRecordError, StateIntegrityError
from holdfast.storage.contract import Batch
from holdfast.storage.wrappers import Faulty
from holdfast.store.history.handle import StoreHandle
from holdfast.store.journal import entry
from holdfast.store.journal.floor import anchored_floor
from holdfast.store.names import rowkinds
from holdfast.store.open import open_core
from holdfast.store.upkeep import erase as erasing
from holdfast.store.upkeep import prune as pruning

BOTH = pytest.mark.parametrize("sealed", [False, True], ids=["plain", "sealed"])
Turn = Callable[[sync.Store, int], None]


def erase(store: sync.Store, turn: int) -> None:
    store.session("short").set("k", turn)
    store.session("short").fork("f").set("k", turn)
    store.erase("session:short")


def erase_and_sweep(store: sync.Store, turn: int) -> None:
    store.session("swept").set("k", turn)
    store.erase("session:swept", wait=False)
    if turn % 4 == 0:
        store.sweep()


def erase_subject(store: sync.Store, turn: int) -> None:
    store.agent("of many").append("list", turn, subject="ann")
    store.erase_subject("ann")


def prune(store: sync.Store, turn: int) -> None:
    state = store.agent("pruned")
    state.set("k", turn)
    state.append("list", turn)
    state.prune(state.checkpoint(f"c{turn}"))


@pytest.mark.parametrize("engine", ["memory", "sqlite"])
@BOTH
def test_beside_those_who_erase_and_prune_nothing_is_found(
    engine: str, sealed: bool, tmp_path: Path
) -> None:
    place = Place(engine, tmp_path, sealed=sealed)
    turns: list[Turn] = [erase, prune, *([erase_and_sweep, erase_subject] if sealed else [])]
    reader = place.open()
    for number in range(300):
        reader.agent("b").set(f"k{number % 20}", number)
    over, end = threading.Event(), time.monotonic() + 4

    def work(turn: Turn) -> int:
        store, done = place.open(), 0
        while not done or not over.is_set():
            done += 1
            turn(store, done)
        return done

    with ThreadPoolExecutor(len(turns)) as pool:
        running = [pool.submit(work, turn) for turn in turns]
        found = [reader.verify().findings]
        while time.monotonic() < end:
            found.append(reader.verify().findings)
        over.set()
    assert all(done.result() for done in running)
    assert found == [[]] * len(found)
    assert reader.verify().findings == []
    place.close()


def test_beside_one_who_prunes_and_is_held_up_before_the_anchor(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The nodes of its bases are there, at the newest entry, and no entry says so yet."""
    store = place.open()
    reports, announce = [], pruning._Pruning._special

    def held_up(*given: Any) -> Any:
        reports.append(store.verify())
        return announce(*given)

    monkeypatch.setattr(pruning._Pruning, "_special", held_up)
    prune(store, 1)
    assert [(report.findings, report.pruning) for report in reports] == [([], 1)]


def prune_twice(store: sync.Store, turn: int) -> None:
    prune(store, turn)
    prune(store, turn + 1)


@pytest.mark.parametrize("work", [erase, prune_twice])
def test_when_the_time_is_used_up_what_was_found_is_judged_as_well(
    place: Place, work: Turn
) -> None:
    """The scope is erased or pruned after its floors were read; then the budget ends inside it."""
    store, calls = place.open(), 0
    for name in ("session:short", "agent:pruned"):
        state = store.scope(name)
        for number in range(1100):
            state.set(f"k{number % 9}", number)
            if number == 500:
                state.prune(state.checkpoint("p"))
        state.fork("g").set("k", 1)
        state.fork("h").set("k", 1)
    scope = "session:short" if work is erase else "agent:pruned"

    def meanwhile(at: str, _: int) -> None:
        nonlocal calls
        calls += at == scope
        if at == scope and calls == 1:
            work(store, 1)
        if at == scope and calls == 2:
            time.sleep(1)

    report = store.verify(budget=1, progress=meanwhile)
    assert report.findings == []
    assert report.resume is not None
    while report.resume is not None:
        report = store.verify(budget=0, resume=report.resume)
        assert report.findings == []


def test_an_entry_that_was_overwritten_meanwhile_and_ends_the_check_of_its_scope(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = place.open()
    store.agent("a").set("k", 1)

    def failing(*_: object) -> None:
        store.erase("agent:a")
        raise DamagedRecordError("it says that it has format 0; there is only 1", "entry 1")

    monkeypatch.setattr("holdfast.store.proof.verify.UploadCheck.run", failing)
    assert store.verify().findings == []


def test_damage_is_told_where_the_time_is_used_up_beside_one_who_prunes(place: Place) -> None:
    store = place.open()
    for number in range(1200):
        store.agent("a").set(f"k{number % 9}", number)
    prune(store, 1)
    number = store._core.ledger(store.agent("a").scope).number
    line = rowkinds.line(b"E", number, 0)
    key, row = place.storage().scan(line, rowkinds.after(line), limit=1000)[-1]
    put_row(place.storage(), key, row[:-1] + bytes([row[-1] ^ 1]))
    place.storage().commit(Batch(cells=[(rowkinds.pruner(number), None, bytes(16))]))
    store = place.reopen()
    report = store.verify(budget=0)
    findings = list(report.findings)
    while report.resume is not None:
        report = store.verify(budget=0, resume=report.resume)
        findings += report.findings
    assert ("damage", key.hex()) in {(f.kind, f.row) for f in findings}


def test_a_scope_that_was_made_and_erased_meanwhile(place: Place) -> None:
    store, calls = place.open(), 0
    for name in "bcd":
        store.agent(name).set("k", 1)

    def meanwhile(_: str, __: int) -> None:
        nonlocal calls
        calls += 1
        erase(store, calls)

    assert store.verify(progress=meanwhile).findings == []
    assert calls


class Slow(Faulty):
    """A storage that takes its time to overwrite content."""

    def commit(self, batch: Batch) -> None:
        if batch.blanks:
            time.sleep(0.06)
        super().commit(batch)


def test_an_erase_that_takes_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also while no row goes: content is overwritten before anything is dropped."""
    monkeypatch.setattr(erasing, "SLICE", 1)
    place = Place("memory", tmp_path, sealed=False)
    store = place.open()
    for number in range(60):
        store.agent("a").set("k", number)
    slow = Slow(place.storage())
    eraser = sync.Store(StoreHandle(open_core(place.url, storage=slow, **place.options())))
    work = threading.Thread(target=eraser.erase, args=("agent:a",))
    work.start()
    reports = []
    while work.is_alive():
        reports.append(store.verify())
    work.join()
    assert [report.findings for report in reports] == [[]] * len(reports)
    assert any(report.erased for report in reports), "it was under way"
    assert store.verify().findings == []
    eraser.close()
    place.close()


def test_one_that_stands_still_was_cut_short(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = Place("memory", tmp_path, sealed=False)
    store = place.open()
    store.agent("a").set("k", 1)
    monkeypatch.setattr("holdfast.store.upkeep.erase._Erasure.clear", lambda *_: None)
    store.erase("agent:a")
    report = store.verify()
    assert (report.findings, report.unswept) == ([], 1)
    assert "1 erases are not finished" in str(report)
    monkeypatch.undo()
    assert store.sweep().erased == 1
    report = store.verify()
    assert (report.findings, report.unswept) == ([], 0)
    place.close()


def test_damage_is_found_beside_one_who_prunes_all_the_time(place: Place) -> None:
    """What pruning drops is found at most once at a place; damage each time."""
    store = place.open()
    state = store.agent("a")
    for number in range(40):
        state.set(f"k{number}", number)
    prune(store, 1)
    store.agent("pruned").set("k", "damaged")
    number = store._core.ledger(store.agent("pruned").scope).number
    line = rowkinds.line(b"E", number, 0)
    key, row = place.storage().scan(line, rowkinds.after(line), limit=1, reverse=True)[0]
    put_row(place.storage(), key, row[:-1] + bytes([row[-1] ^ 1]))
    cell = rowkinds.pruner(number)
    place.storage().commit(Batch(cells=[(cell, None, bytes(16))]))
    findings = place.reopen().verify().findings
    assert ("damage", key.hex()) in {(f.kind, f.row) for f in findings}


def test_an_anchor_whose_content_is_missing_is_named(place: Place) -> None:
    store = place.open()
    for turn in range(20):
        store.agent("pruned").set("k", turn)
    state = store.agent("pruned")
    anchor = state.prune(state.checkpoint("c")).anchor
    key = rowkinds.entry(rowkinds.line(b"E", store._core.ledger(state.scope).number, 0), anchor)
    place.close()
    storage = place.storage()
    row = storage.get([key])[0]
    assert row is not None
    put_row(storage, key, entry.split_row(row)[0].data)
    store = place.open()
    with pytest.raises(StateIntegrityError, match="no anchor says that it was pruned"):
        store.agent("pruned").get("k")
    found = store.verify().findings
    assert key.hex() in {finding.row for finding in found}
    assert any("content of an anchor is missing" in finding.message for finding in found)


class Between(Faulty):
    """A storage in which others do something just before a row is read for the first time."""

    awaited = b""
    others: Callable[[], object] | None = None

    def get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        if self.others is not None and self.awaited in keys:
            others, self.others = self.others, None
            others()
        return super().get(keys)


def test_an_anchor_that_is_pruned_just_before_it_is_read(place: Place) -> None:
    store = place.open()
    for turn in range(4):
        prune(store, turn)
    state = store.agent("pruned")
    number = store._core.ledger(state.scope).number
    anchor = state.prune(state.checkpoint("the last")).anchor
    storage = Between(place.storage())
    storage.awaited = rowkinds.entry(rowkinds.line(b"E", number, 0), anchor)
    storage.others = lambda: prune(store, 5)
    reader = sync.Store(StoreHandle(open_core(place.url, storage=storage, **place.options())))
    assert anchored_floor(reader._core.ledger(state.scope), 0).anchor > anchor
    assert storage.others is None
    assert reader.verify().findings == []
    reader.close()
