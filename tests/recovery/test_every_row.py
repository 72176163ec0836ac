"""Every kind of row that a store has, changed or missing, and a whole copy: what heals, and how."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from store_kit import Place, put_row, rows_of

from holdfast import sync
from holdfast.cli.main import main
from holdfast.errors import StateIntegrityError
from holdfast.recovery import heal
from holdfast.seal.signer import Signer
from holdfast.store.names import rowkinds

HOWS = ["changed", "missing"]
HEALED = [kind.key for kind in rowkinds.ROWS if kind.heal != rowkinds.NONE]
SEALED = (b"K", b"U")
"""Kinds that only an encrypted store has."""
UNSEEN = {(b"C", "missing"), (b"U", "missing")}
"""Nothing says that they must be there: docs/finding-failure.md."""


class World:
    """A store with rows of every kind, and a whole copy of it."""

    def __init__(self, folder: Path, *, sealed: bool) -> None:
        self.place = Place("sqlite", folder, sealed=sealed)
        _fill(self.place, folder)
        self.place.close()
        self._clean = folder / "clean"
        shutil.copytree(self.place.path.parent, self._clean)
        (folder / "twin").mkdir()
        self.twin = Place("sqlite", folder / "twin", sealed=sealed)
        self.twin.key, self.twin.signer = self.place.key, self.place.signer
        shutil.rmtree(self.twin.path.parent)
        shutil.copytree(self._clean, self.twin.path.parent)

    def some(self, kind: bytes) -> list[tuple[bytes, bytes]]:
        """Rows of a kind that are damaged one after the other: all of those that name something,
        of the others the first and the last."""
        storage = self.twin.storage()
        found = rows_of(storage, kind)
        storage.close()
        return found if kind in (b"D", b"T") or len(found) < 2 else [found[0], found[-1]]

    def damage(self, key: bytes, row: bytes, how: str) -> None:
        """Put the store back as it was made, but for one row."""
        self.close()
        shutil.rmtree(self.place.path.parent)
        shutil.copytree(self._clean, self.place.path.parent)
        changed = row[:-3] + bytes([row[-3] ^ 1]) + row[-2:] if row else b"x"
        storage = self.place.storage()
        put_row(storage, key, changed if how == "changed" else None)
        storage.close()

    def is_whole(self, key: bytes, row: bytes) -> bool:
        """Whether the row is what it was, and so is all else."""
        store = self.place.reopen()
        return store._core.storage.get([key]) == [row] and store.verify().ok

    def command(self, *words: str) -> int:
        """Run the command line on the store."""
        key = ["--key", self.place.key] if self.place.key else []
        place = ["--store", self.place.url, "--signer", self.place.signer, *key]
        return main([*place, *words])

    def close(self) -> None:
        """Close all handles."""
        self.place.close()
        self.twin.close()


def _fill(place: Place, folder: Path) -> None:
    store = place.open()
    state = store.agent("7")
    with store.acting("me", correlation="run"):
        for n in range(20):
            state.set(f"k{n}", {"n": n})
    with state.change(id="once") as change:
        change.set("once", 1)
    state.set("long", [f"line {n}" * 30 for n in range(100)])
    Signer.create(folder / "other.key")
    state.cosign(state.checkpoint("safe"), signer=f"file:{folder / 'other.key'}")
    side = state.fork("side")
    side.set("x", 7)
    side.fork("deep").set("x", 8)
    with state.open_write("file") as file:
        file.write(bytes(range(256)) * 5000)
    if place.sealed:
        store.rotate("agent:7")
        state.set("who", "Ada", subject="user:1")
        store.erase_subject("user:1")
    pruned = store.agent("pruned")
    points = []
    for letter in "xyz":
        for n in range(12):
            pruned.set(f"k{n}", [letter * 50] * 40)
        points.append(pruned.checkpoint(letter))
        pruned.prune(points[-1], keep=points[:1])
    pruned.set("more", 1)
    for name in ("deleted", "erased"):
        store.agent(name).set("k", 1)
    store.delete("agent:deleted")
    store.erase("agent:erased")
    assert store.verify().ok


@pytest.fixture(scope="module", params=["plain", "sealed"])
def world(request: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """One for all tests: each begins with the store as it was made."""
    made = World(tmp_path_factory.mktemp("world"), sealed=request.param == "sealed")
    yield made
    made.close()


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("kind", HEALED, ids=lambda kind: kind.decode())
def test_a_scrubber_heals_every_kind_of_row(world: World, kind: bytes, how: str) -> None:
    found = world.some(kind)
    assert bool(found) == (world.place.sealed or kind not in SEALED)
    for key, row in found:
        world.damage(key, row, how)
        store = world.place.open()
        assert store.verify().ok == ((kind, how) in UNSEEN)
        done = sync.recovery.Scrubber(store, copies=[world.twin.open()], budget=600).slice()
        assert done is not None
        if (kind, how) not in UNSEEN:
            assert world.is_whole(key, row), rowkinds.describe(key)
            assert key.hex() in {one.row for one in done.healed}


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("kind", HEALED, ids=lambda kind: kind.decode())
def test_repair_heals_every_kind_of_row(world: World, kind: bytes, how: str) -> None:
    for key, row in world.some(kind)[0 if kind in (b"D", b"T") else -1 :]:
        world.damage(key, row, how)
        unseen = (kind, how) in UNSEEN
        assert world.command("verify") == (0 if unseen else 1)
        words = ("repair", "--copy", world.twin.url)
        assert world.command(*words, "--dry-run") == (0 if unseen else 1)
        assert world.command(*words, "--yes") == 0
        assert unseen or world.is_whole(key, row), rowkinds.describe(key)


@pytest.mark.parametrize("how", HOWS)
def test_rows_that_a_scrubber_leaves_come_back_by_a_repair_with_a_copy(
    world: World, how: str
) -> None:
    key, row = world.some(b"F")[0]
    world.damage(key, row, how)
    done = sync.recovery.Scrubber(
        world.place.open(), copies=[world.twin.open()], budget=600
    ).slice()
    assert done is not None
    assert done.findings
    assert not done.healed
    world.close()
    code = world.command("repair", "--copy", world.twin.url, "--yes")
    with world.place.open() as store:
        left = store.verify().findings
    assert (code, bool(left)) == ((1, True) if how == "missing" else (0, False))


def test_the_signature_that_a_checkpoint_calls_for_comes_back(tmp_path: Path) -> None:
    place = Place("sqlite", tmp_path, sealed=False)
    place.signer = f"hybrid:{tmp_path / 'both.key'}"
    state = place.open().agent("7")
    state.set("k", 1)
    state.checkpoint("signed by two")
    twin = _copied(place, tmp_path / "twin")
    storage = place.storage()
    key, row = rows_of(storage, b"C")[0]
    put_row(storage, key, None)
    storage.close()
    store = place.open()
    assert [one.kind for one in store.verify().findings] == ["signature"]
    done = sync.recovery.Scrubber(store, copies=[twin.open()], budget=600).slice()
    assert done is not None
    assert store._core.storage.get([key]) == [row]
    assert store.verify().ok
    place.close()
    twin.close()


# ---- rows of timelines ---------------------------------------------------------------------------


def _copied(place: Place, folder: Path) -> Place:
    place.close()
    folder.mkdir()
    twin = Place("sqlite", folder, sealed=place.sealed)
    shutil.rmtree(twin.path.parent)
    shutil.copytree(place.path.parent, twin.path.parent)
    twin.key, twin.signer = place.key, place.signer
    return twin


@pytest.fixture(params=["plain", "sealed"])
def forked(request: Any, tmp_path: Path) -> Iterator[Place]:
    """A store with an agent that was forked."""
    place = Place("sqlite", tmp_path, sealed=request.param == "sealed")
    state = place.open().agent("7")
    state.set("x", 1)
    state.checkpoint("c")
    state.fork("side").set("x", 7)
    state.set("x", 2)
    place.close()
    yield place
    place.close()


def _spoil(place: Place, kind: bytes, number: int, how: str) -> tuple[bytes, bytes]:
    storage = place.storage()
    key, row = rows_of(storage, kind)[number]
    changed = row[:-3] + bytes([row[-3] ^ 1]) + row[-2:]
    put_row(storage, key, changed if how == "changed" else None)
    storage.close()
    return key, row


@pytest.mark.parametrize("how", HOWS)
def test_the_row_of_main_is_made_again_without_a_copy(forked: Place, how: str) -> None:
    key, _ = _spoil(forked, b"T", 0, how)
    store = forked.open()
    done = sync.recovery.Scrubber(store, budget=600).slice()
    assert done is not None
    assert [(one.row, one.copy, one.lost) for one in done.healed] == [(key.hex(), None, "")]
    store = forked.reopen()
    assert store.verify().ok
    assert [one.name for one in store.agent("7").timelines()] == ["main", "side"]
    assert store.agent("7").fork("new").get("x") == 2


@pytest.mark.parametrize("how", HOWS)
def test_a_timeline_whose_name_is_lost_gets_another(forked: Place, how: str) -> None:
    _spoil(forked, b"T", 1, how)
    store = forked.open()
    recovery = sync.recovery.Recovery(store)
    assert [one.next for one in recovery.health().concerns if one.kind == "damaged_state"] == [
        "holdfast repair agent:7"
    ]
    report = recovery.recover("agent:7", "corruption_detected")
    assert report.lost == "the name of timeline 1, which is called 'timeline-1' now"
    store = forked.reopen()
    assert store.verify().ok
    state = store.agent("7")
    assert [one.name for one in state.timelines()] == ["main", "timeline-1"]
    assert (state.get("x"), state.on("timeline-1").get("x")) == (2, 7)
    assert state.fork("new").get("x") == 2


def test_a_timeline_that_cannot_be_named_is_told_as_lost(forked: Place) -> None:
    _spoil(forked, b"T", 1, "changed")
    storage = forked.storage()
    numbers = [rowkinds.line_of(key) for key, _ in rows_of(storage, b"E")]
    storage.close()
    _spoil(forked, b"E", numbers.index(1), "changed")
    report = sync.recovery.Recovery(forked.open()).recover("agent:7", "corruption_detected")
    assert "timeline 1, whose row and first entry are damaged" in report.lost


@pytest.mark.parametrize("how", HOWS)
def test_a_recovery_takes_the_name_from_a_copy(forked: Place, tmp_path: Path, how: str) -> None:
    twin = _copied(forked, tmp_path / "twin")
    _spoil(forked, b"T", 1, how)
    store = forked.open()
    recovery = sync.recovery.Recovery(store, copies=[twin.open()])
    assert recovery.recover("agent:7", "corruption_detected").lost == "nothing"
    assert forked.reopen().agent("7").on("side").get("x") == 7
    twin.close()


def test_a_fork_that_a_copy_made_by_itself_gives_no_name(forked: Place, tmp_path: Path) -> None:
    """Both have a timeline 2 that starts at the same entry: another one."""
    twin = _copied(forked, tmp_path / "twin")
    forked.open().agent("7").fork("mine")
    twin.open().agent("7").fork("theirs")
    forked.close()
    twin.close()
    key, _ = _spoil(forked, b"T", 2, "changed")
    done = sync.recovery.Scrubber(forked.open(), copies=[twin.open()], budget=600).slice()
    assert done is not None
    assert [(one.row, one.copy) for one in done.healed] == [(key.hex(), None)]
    names = [one.name for one in forked.open().agent("7").timelines()]
    assert "theirs" not in names
    assert "timeline-2" in names
    twin.close()


def test_a_row_that_names_another_start_than_the_first_entry_is_found(forked: Place) -> None:
    store = forked.open()
    ledger = store.agent("7")._handle.history.points.line().ledger
    storage = forked.storage()
    key = rows_of(storage, b"T")[1][0]
    put_row(storage, key, ledger.seal_row(key, b"\x93\xa4side\x00\x01", ledger.commit_line))
    storage.close()
    found = forked.reopen().verify().findings
    assert [(one.row, one.kind) for one in found] == [(key.hex(), "damage")]
    assert "another start" in found[0].message


# ---- rows of the directory -----------------------------------------------------------------------


@pytest.fixture(params=["plain", "sealed"])
def two(request: Any, tmp_path: Path) -> Iterator[tuple[Place, Place, bytes]]:
    """A store in which the row of agent 7 is missing, a whole copy, and the key of the row."""
    place = Place("sqlite", tmp_path, sealed=request.param == "sealed")
    for name in ("7", "8"):
        place.open().agent(name).set("x", name)
    key = rowkinds.directory(place.open()._core.tag(b"directory", "agent:7"), 1, rowkinds.THERE)
    twin = _copied(place, tmp_path / "twin")
    storage = place.storage()
    put_row(storage, key, None)
    storage.close()
    yield place, twin, key
    place.close()
    twin.close()


def test_boot_names_a_scope_that_the_directory_lacks(two: tuple[Place, Place, bytes]) -> None:
    place, twin, key = two
    left = sync.recovery.boot(place.open()).left
    assert [one.kind for one in left] == ["state"]
    assert "the directory does not" in left[0].why
    assert sync.recovery.boot(place.open(), check=False).left == []
    done = sync.recovery.Scrubber(place.open(), copies=[twin.open()], budget=600).slice()
    assert done is not None
    assert [(one.scope, one.row) for one in done.healed] == [(None, key.hex())]
    assert sync.recovery.boot(place.reopen()).left == []
    assert place.open().agent("7").get("x") == "7"


def test_a_recovery_finds_an_agent_that_the_directory_lacks(
    two: tuple[Place, Place, bytes],
) -> None:
    place, twin, _ = two
    store = place.open()
    recovery = sync.recovery.Recovery(store, copies=[twin.open()])
    assert recovery.recover("agent:7", "corruption_detected").lost == "nothing"
    assert store.agent("7").get("x") == "7"
    assert store.verify().ok  # and nothing of the old one lies about


def test_a_scope_made_since_under_the_name_is_not_overwritten(
    two: tuple[Place, Place, bytes],
) -> None:
    place, twin, _ = two
    place.open().agent("7").set("x", "anew")
    done = sync.recovery.Scrubber(place.reopen(), copies=[twin.open()], budget=600).slice()
    assert done is not None
    assert not done.healed
    assert any("not in the directory" in one.message for one in done.findings)
    assert place.reopen().agent("7").get("x") == "anew"


def test_a_scope_that_a_copy_erased_is_not_erased_by_healing(tmp_path: Path) -> None:
    place = Place("sqlite", tmp_path, sealed=False)
    place.open().agent("7").set("x", 1)
    key = rowkinds.directory(place.open()._core.tag(b"directory", "agent:7"), 1, rowkinds.THERE)
    twin = _copied(place, tmp_path / "twin")
    twin.open().erase("agent:7")
    storage = place.storage()
    put_row(storage, key, None)
    storage.close()
    done = sync.recovery.Scrubber(place.open(), copies=[twin.open()], budget=600).slice()
    assert done is not None
    assert not done.healed
    assert done.findings
    place.close()
    twin.close()


def test_a_deletion_that_a_copy_made_by_itself_is_not_taken(forked: Place, tmp_path: Path) -> None:
    twin = _copied(forked, tmp_path / "twin")
    twin.open().delete("agent:7")
    _spoil(forked, b"E", 0, "changed")
    done = sync.recovery.Scrubber(forked.open(), copies=[twin.open()], budget=600).slice()
    assert done is not None
    assert len(done.healed) == 1
    assert forked.reopen().agent("7").get("x") == 2
    twin.close()


def test_nothing_is_put_into_a_scope_that_is_erased_meanwhile(
    forked: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    twin = _copied(forked, tmp_path / "twin")
    key, _ = _spoil(forked, b"E", 0, "missing")
    fitting, other = heal._fitting, forked.open()

    def slow(*given: Any) -> Any:
        found = fitting(*given)
        if found:
            other.erase("agent:7", despite_holds=True)
        return found

    monkeypatch.setattr(heal, "_fitting", slow)
    done = sync.recovery.Scrubber(forked.open(), copies=[twin.open()], budget=600).slice()
    assert done is not None
    assert not done.healed
    assert forked.open()._core.storage.get([key]) == [None]
    twin.close()


def test_a_damaged_name_stops_what_needs_it_until_it_is_mended(forked: Place) -> None:
    """Why the row matters though all entries are there."""
    _spoil(forked, b"T", 1, "changed")
    state = forked.open().agent("7")
    with pytest.raises(StateIntegrityError):
        state.timelines()
    with pytest.raises(StateIntegrityError):
        state.fork("new")
    assert state.get("x") == 2
