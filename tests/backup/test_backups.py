"""Backups in a folder: whole, of one moment, incremental, signed, and stores made of them."""

from __future__ import annotations

import asyncio
import random
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest
from backup_kit import fill, open_at, restored, there, values
from store_kit import Place, put_row, rows_of

import holdfast
from holdfast import sync
from holdfast.errors import (
    BackupNotFoundError,
    DamagedBackupError,
    ErasedError,
    InvalidInputError,
    KeyMissingError,
    RefusedError,
    UntrustedSignerError,
)


@pytest.fixture
def backups(store: sync.Store, tmp_path: Path) -> sync.backup.Backups:
    fill(store)
    return sync.backup.Backups(store, f"file://{tmp_path}/backups")


def files(tmp_path: Path) -> dict[str, bytes]:
    return there(tmp_path / "backups")


@pytest.mark.spec("L7", "L100", "L109", "L112", "L114")
def test_a_backup_holds_all_of_a_store(
    backups: sync.backup.Backups, store: sync.Store, place: Place
) -> None:
    made = backups.create("nightly", keys=place.sealed)
    assert backups.list() == [made]
    assert (made.name, made.type, made.encrypted) == ("nightly", "full", place.sealed)
    before = values(store)
    checkpoint = store.agent("agent-1").checkpoints()[0]
    store.agent("agent-1").set("later", 1)
    again = restored(backups, made.id, place, "again")
    assert values(again) == before
    assert again.identity() == store.identity()
    assert again.agent("agent-1").checkpoints() == [checkpoint]
    again.agent("agent-1").restore(checkpoint)
    again.agent("agent-1").set("goes", "on")
    assert again.verify().findings == []
    assert backups.verify(made.id).ok


@pytest.mark.spec("L99")
def test_a_snapshot_is_of_one_moment_small_sealed_and_kept_as_long_as_is_said(
    tmp_path: Path,
) -> None:
    """Catches: rows of a backup that are of two moments; rows that are sent open or not compressed;
    `prune` that keeps too much, or too little."""
    place = Place("sqlite", tmp_path, sealed=True)
    store = place.open()
    one, other = store.agent("one"), store.agent("other")
    one.set("text", "the same words again, " * 20_000)
    other.set("plan", "a secret plan")
    assert len(one.get("text")) == 440_000
    backups = sync.backup.Backups(store, f"file://{tmp_path}/backups")
    small = sync.backup.Backups(store, f"file://{tmp_path}/small").create()
    assert small.bytes < 40_000, "of 440,000"
    stop = threading.Event()

    def write() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            with store.change() as change:
                change[one].set("number", number)
                change[other].set("number", number)

    writer = threading.Thread(target=write)
    writer.start()
    made = [backups.create(keys=True) for _ in range(4)]
    stop.set()
    writer.join(60)
    numbers = []
    for backup in made:
        again = restored(backups, backup.id, place, f"again-{backup.id}")
        found = [again.agent(name).get("number", 0) for name in ("one", "other")]
        assert found[0] == found[1], "both sides of a change, or neither"
        numbers.append(found[0])
        assert again.agent("one").get("text") == "the same words again, " * 20_000
    assert numbers == sorted(numbers)
    assert numbers[-1] > numbers[0]
    content = b"".join(files(tmp_path).values())
    assert b"a secret plan" not in content
    assert b"the same words" not in content
    assert len(backups.prune(4).deleted) == 0
    assert sorted(backups.prune(2).deleted) == sorted(one.id for one in made[:2])
    assert [found.id for found in backups.list()] == [made[3].id, made[2].id]
    assert all(backups.verify(found.id).ok for found in backups.list())
    place.close()


@pytest.mark.spec("L110", "L111")
def test_a_second_backup_sends_only_what_is_new(
    backups: sync.backup.Backups, store: sync.Store, place: Place
) -> None:
    noise = random.Random(1)
    with store.agent("large").change() as change:
        for number in range(60):
            change.set(f"v{number}", noise.randbytes(30_000))
    first = backups.create(keys=place.sealed)
    assert first.bytes > 1_000_000
    assert first.uploaded >= first.bytes
    store.agent("agent-2").delete("facts/7")
    store.agent("agent-2").set("facts/8", "other")
    second = backups.create(keys=place.sealed)
    assert (second.type, second.parent) == ("incremental", first.id)
    assert second.uploaded < first.uploaded * 0.75
    same = backups.create(keys=place.sealed)
    assert same.uploaded < 20_000
    whole = backups.create(full=True, keys=place.sealed)
    assert (whole.type, whole.parent) == ("full", "")
    # Deletions are in it, and what it shares with one that is deleted stays.
    backups.delete(first.id)
    again = restored(backups, second.id, place, "again")
    assert values(again) == values(store)
    assert again.agent("agent-2").get("facts/7") is None


def test_nothing_of_an_encrypted_store_can_be_read_at_the_place(
    tmp_path: Path,
) -> None:
    place = Place("sqlite", tmp_path, sealed=True)
    store = place.open()
    fill(store)
    backups = sync.backup.Backups(store, f"dir:{tmp_path}/backups", encryption=True)
    made = backups.create()
    everything = b"".join(files(tmp_path).values())
    assert b"secret fact" not in everything
    assert b"agent-1" not in everything
    url = f"sqlite:{tmp_path}/again.db"
    done = backups.restore(made.id, url)
    assert f"{tmp_path}/again.db.keys" in str(done)
    with pytest.raises(KeyMissingError):
        sync.open(url, create=False, **place.options())
    before = values(store)
    place.close()
    shutil.copy(f"{place.path}.keys", tmp_path / "again.db.keys")
    again = open_at(url, place)
    assert values(again) == before
    assert again.verify().findings == []
    place.close()


def test_keys_are_in_a_backup_wrapped_and_only_if_asked_for(tmp_path: Path) -> None:
    place = Place("sqlite", tmp_path, sealed=True)
    store = place.open()
    fill(store)
    backups = sync.backup.Backups(store, f"dir:{tmp_path}/backups")
    plain, keys = backups.create(), backups.create(keys=True)
    assert (plain.keys, keys.keys) == (False, True)
    store.rotate_master(f"file:{tmp_path}/new.key")
    url = f"sqlite:{tmp_path}/again.db"
    backups.restore(keys.id, url)
    assert (tmp_path / "again.db.keys").stat().st_mode & 0o777 == 0o600
    with sync.open(url, key=place.key, signer=place.signer, create=False) as again:
        assert values(again) == values(store)
    place.close()


def test_a_plain_store_is_not_backed_up_where_encryption_is_asked_for(
    plain: Place, tmp_path: Path
) -> None:
    store = plain.open()
    with pytest.raises(InvalidInputError, match="encryption was asked for"):
        sync.backup.Backups(store, f"dir:{tmp_path}/backups", encryption=True)
    backups = sync.backup.Backups(store, f"dir:{tmp_path}/backups")
    with pytest.raises(InvalidInputError, match="no keys"):
        backups.create(keys=True)


def test_what_was_erased_since_does_not_come_back(
    backups: sync.backup.Backups, store: sync.Store, place: Place, tmp_path: Path
) -> None:
    made = backups.create(keys=place.sealed)
    kept = values(store)["agent:agent-2"]
    store.erase("agent:agent-1")
    store.agent("agent-1").set("new", "life")
    url = f"sqlite:{tmp_path}/again.db"
    done = backups.restore(made.id, url)
    assert done.erased == 1
    again = open_at(url, place)
    assert "agent:agent-1" not in values(again)
    assert again.agent("agent-1").get("facts/1") is None
    assert dict(again.agent("agent-2").items()) == kept
    assert again.verify().findings == []
    again.sweep()
    assert again.verify().findings == []
    again.close()
    if not place.sealed:
        assert b"secret fact 1 " not in (tmp_path / "again.db").read_bytes()
    # Who does not know the store cannot know what was erased there, and says so.
    trust = [store.identity().rpartition(":")[2]]
    alone = sync.backup.Backups(None, f"dir:{tmp_path}/backups", trust=trust)
    told = alone.restore(made.id, f"sqlite:{tmp_path}/alone.db")
    assert told.erased is None
    assert "was not at hand" in str(told)


def test_erased_subjects_stay_erased(tmp_path: Path) -> None:
    place = Place("sqlite", tmp_path, sealed=True)
    store = place.open()
    store.agent("a").set("mail", "hers", subject="user:1")
    backups = sync.backup.Backups(store, f"dir:{tmp_path}/backups")
    made = backups.create(keys=True)
    store.erase_subject("user:1")
    url = f"sqlite:{tmp_path}/again.db"
    assert backups.restore(made.id, url).erased == 1
    again = open_at(url, place)
    with pytest.raises(ErasedError):
        again.agent("a").get("mail")
    assert again.verify().findings == []
    place.close()


def test_a_store_is_made_only_where_nothing_is(
    simple: tuple[sync.Store, sync.backup.Backups], tmp_path: Path
) -> None:
    _, backups = simple
    made = backups.create()
    url = f"sqlite:{tmp_path}/other.db"
    sync.open(url).close()
    before = (tmp_path / "other.db").read_bytes()
    with pytest.raises(RefusedError, match="already"):
        backups.restore(made.id, url)
    assert (tmp_path / "other.db").read_bytes() == before


@pytest.mark.spec("L113")
def test_damage_is_found_and_named(
    simple: tuple[sync.Store, sync.backup.Backups], tmp_path: Path
) -> None:
    _, backups = simple
    made = backups.create()
    folder = tmp_path / "backups"
    whole = files(tmp_path)
    names = [name for name in whole if name.startswith("objects/")]
    assert len(names) >= 2
    for number, name in enumerate(names):
        data = bytearray(whole[name])
        data[number * 7919 % len(data)] ^= 1 << number % 8
        for wrong in (bytes(data), whole[name][:-1], whole[name] + b"\0", None):
            if wrong is None:
                (folder / name).unlink()
            else:
                (folder / name).write_bytes(wrong)
            report = backups.verify(made.id)
            assert not report.ok
            assert any(name in finding for finding in report.findings), (name, report)
            url = f"sqlite:{tmp_path}/again-{number}.db"
            with pytest.raises((DamagedBackupError, BackupNotFoundError), match=name):
                backups.restore(made.id, url)
        (folder / name).write_bytes(whole[name])
    # What was refused has left nothing behind, so that it can be done again there.
    backups.restore(made.id, f"sqlite:{tmp_path}/again-0.db")


def test_a_manifest_that_was_changed_is_refused(
    simple: tuple[sync.Store, sync.backup.Backups], tmp_path: Path
) -> None:
    _, backups = simple
    made = backups.create("mine")
    path = tmp_path / "backups" / "backups" / f"{made.id}.json"
    whole = path.read_bytes()
    wrong = [whole.replace(b'"mine"', b'"ours"'), whole[:-2] + b'0"', whole[:50], b"[]"]
    wrong.append(whole.replace(made.signer.encode(), b""))
    for one in wrong:
        path.write_bytes(one)
        assert not backups.verify(made.id).ok
        with pytest.raises(DamagedBackupError):
            backups.restore(made.id, f"sqlite:{tmp_path}/again.db")
        assert backups.list() == []
        assert backups.damaged() == (made.id,)
    path.write_bytes(whole)
    assert backups.verify(made.id).ok


def test_only_backups_of_those_who_are_trusted_are_taken(tmp_path: Path) -> None:
    place = Place("sqlite", tmp_path, sealed=False)
    store = place.open()
    fill(store, 1)
    url = f"dir:{tmp_path}/backups"
    made = sync.backup.Backups(store, url).create()
    place.close()
    unsigned = sync.open(place.url)  # without its signer
    nobody = sync.backup.Backups(unsigned, url)
    with pytest.raises(UntrustedSignerError, match="unsigned=True"):
        nobody.create()
    bare = nobody.create(unsigned=True)
    unsigned.close()
    alone = sync.backup.Backups(None, url)
    with pytest.raises(InvalidInputError, match="open store"):
        alone.create()
    for id in (made.id, bare.id):
        with pytest.raises(UntrustedSignerError):
            alone.restore(id, f"sqlite:{tmp_path}/again.db")
        assert not alone.verify(id).ok
    trusting = sync.backup.Backups(None, url, trust=[made.signer])
    assert trusting.verify(made.id).ok
    trusting.restore(made.id, f"sqlite:{tmp_path}/again.db")
    alone.restore(bare.id, f"sqlite:{tmp_path}/bare.db", untrusted=True)


@pytest.mark.parametrize(
    "url", ["", "backups", "dir:", "ftp://a/b", "s3://", "s3://key:secret@bucket", "s3://B", 7]
)
def test_places_that_are_none(plain: Place, url: Any) -> None:
    with pytest.raises(InvalidInputError) as caught:
        sync.backup.Backups(plain.open(), url)
    assert "secret" not in str(caught.value)


def test_slips_are_refused(simple: tuple[sync.Store, sync.backup.Backups], tmp_path: Path) -> None:
    _, backups = simple
    made = backups.create()
    for wrong in ("../x", "", 7, None):
        for call in (backups.verify, backups.delete, lambda id: backups.restore(id, "sqlite:x")):
            with pytest.raises(InvalidInputError):
                call(wrong)  # type: ignore[arg-type]
    missing = "20200101T000000000000Z-00000000"
    for call in (backups.verify, backups.delete, lambda id: backups.restore(id, "sqlite:x")):
        with pytest.raises(BackupNotFoundError):
            call(missing)
    with pytest.raises(InvalidInputError):
        backups.create(7)  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError):
        backups.restore(made.id, 7)  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError):
        sync.backup.Backups("store", f"dir:{tmp_path}/backups")
    with pytest.raises(InvalidInputError, match="bucket"):
        sync.backup.Backups(None, f"dir:{tmp_path}/backups", region="eu")


@pytest.mark.spec("L102")
def test_a_folder_may_be_named_from_here(
    simple: tuple[sync.Store, sync.backup.Backups], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, _ = simple
    monkeypatch.chdir(tmp_path)
    backups = sync.backup.Backups(store, "dir:./backups")
    monkeypatch.chdir("/")
    made = backups.create()
    assert f"backups/{made.id}.json" in files(tmp_path)


def test_both_faces(tmp_path: Path) -> None:
    async def run() -> None:
        async with holdfast.open(f"sqlite:{tmp_path}/a.db") as store:
            await store.agent("a").set("k", 1)
            backups = holdfast.backup.Backups(store, f"dir:{tmp_path}/backups")
            made = await backups.create("async")
            assert await backups.list() == [made]
            assert await backups.damaged() == ()
            assert (await backups.verify(made.id)).ok
            done = await backups.restore(made.id, f"sqlite:{tmp_path}/b.db")
            assert done.rows == made.rows
            assert (await backups.prune(1)).deleted == ()
            assert (await backups.delete(made.id)).deleted == (made.id,)
        async with holdfast.open(f"sqlite:{tmp_path}/b.db") as again:
            assert await again.agent("a").get("k") == 1

    asyncio.run(run())


def test_a_store_made_of_a_backup_heals_the_damaged_one(tmp_path: Path) -> None:
    place = Place("sqlite", tmp_path, sealed=False)
    store = place.open()
    fill(store, 1)
    backups = sync.backup.Backups(store, f"dir:{tmp_path}/backups")
    made = backups.create()
    key, row = rows_of(place.storage(), b"E")[5]
    put_row(place.storage(), key, row[:-1] + bytes([row[-1] ^ 1]))
    broken = place.reopen()
    assert broken.verify().findings
    copy = restored(sync.backup.Backups(broken, f"dir:{tmp_path}/backups"), made.id, place, "copy")
    assert sync.recovery.Scrubber(broken, copies=[copy]).slice() is not None
    assert broken.verify().findings == []
    place.close()


def test_a_small_store_has_incremental_backups_too(
    backups: sync.backup.Backups, store: sync.Store
) -> None:
    """All of it fits into one object, which a change makes another: nothing is shared."""
    store.agent("1").set("k", 1)
    first = backups.create()
    store.agent("1").set("k", 2)
    second = backups.create()
    assert [(one.type, one.parent) for one in (first, second)] == [
        ("full", ""),
        ("incremental", first.id),
    ]
    assert backups.create(full=True).type == "full"
