"""Backups are deleted beside others that are made, and what is still needed stays."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from backup_kit import Failing, fill, there
from store_kit import Hands, Place

from holdfast import sync
from holdfast.backup import make as claims
from holdfast.backup import manifest
from holdfast.errors import (
    BackupNotFoundError,
    InvalidInputError,
    Unavailable,
    UntrustedSignerError,
)
from holdfast.seal.signer import Signer


def files(tmp_path: Path) -> dict[str, bytes]:
    return there(tmp_path / "backups")


@pytest.mark.spec("L108", "L116", "L117", "L118")
def test_old_backups_are_pruned_and_some_always_stay(tmp_path: Path, hands: Hands) -> None:
    place = Place("memory", tmp_path, sealed=False)
    store = place.open(clock=hands.clock)
    backups = sync.backup.Backups(store, f"dir:{tmp_path}/backups")
    month, day = timedelta(days=30), 86_400
    made = []
    for number in range(8):
        store.agent("a").set("n", number)
        made.insert(0, backups.create(f"b{number}"))
        hands.move(6 * day)
    # The newest is 6 days old, the fifth 30, and three are older.
    assert backups.prune(1, max_age=month).deleted == tuple(one.id for one in made[5:])
    assert backups.list() == made[:5]
    # A clock ten years ahead: by age alone none would stay.
    hands.move(3650 * day)
    assert backups.prune(5, max_age=month).deleted == ()
    assert backups.prune(4, max_age=month).deleted == (made[4].id,)
    assert len(backups.prune(2).deleted) == 2
    assert backups.list() == made[:2]
    assert all(backups.verify(one.id).ok for one in made[:2])
    for wrong in (0, -1, True, "2"):
        with pytest.raises(InvalidInputError):
            backups.prune(wrong)  # type: ignore[arg-type]
    for one in made[:2]:
        backups.delete(one.id)
    assert files(tmp_path) == {}
    with pytest.raises(BackupNotFoundError):
        backups.delete(made[0].id)
    place.close()


def test_a_clock_that_jumps_makes_no_backup_old(tmp_path: Path, hands: Hands) -> None:
    place = Place("memory", tmp_path, sealed=False)
    store = place.open(clock=hands.clock)
    backups = sync.backup.Backups(store, f"dir:{tmp_path}/backups")
    made = [backups.create(f"b{number}").name for number in range(4)]
    hands.wall += 3650 * 86_400
    assert backups.prune(2, max_age=timedelta(days=30)).deleted == ()
    assert [one.name for one in backups.list()] == made[::-1]
    place.close()


def test_a_backup_with_a_date_of_the_future_is_not_the_newest_for_ever(
    tmp_path: Path, hands: Hands
) -> None:
    place = Place("memory", tmp_path, sealed=False)
    store = place.open(clock=hands.clock)
    backups = sync.backup.Backups(store, f"dir:{tmp_path}/backups")
    hands.wall += 3650 * 86_400
    ahead = backups.create("ahead")
    hands.wall -= 3650 * 86_400
    for number in range(3):
        store.agent("a").set("n", number)
        later = backups.create(f"later {number}")
        assert later.created < ahead.created
        assert backups.list()[0] == later
    backups.prune(1)
    assert backups.list() == [later]
    place.close()


def test_stores_that_share_a_place_leave_each_other_alone(tmp_path: Path) -> None:
    found = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        place = Place("memory", tmp_path / name, sealed=False)
        store = place.open()
        fill(store, 1, 5)
        found.append((store, sync.backup.Backups(store, f"dir:{tmp_path}/backups")))
    (one, first), (_, second) = found
    kept = second.create()
    for _ in range(3):
        first.create()
    assert len(first.prune(1).deleted) == 2
    assert second.verify(kept.id).ok
    assert first.list()[0].lineage != kept.lineage
    url = f"sqlite:{tmp_path}/again.db"
    with pytest.raises(UntrustedSignerError):
        first.restore(kept.id, url)
    second.restore(kept.id, url)
    one.close()


def test_without_a_store_so_many_stay_of_each(tmp_path: Path) -> None:
    url, made = f"dir:{tmp_path}/backups", []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        place = Place("memory", tmp_path / name, sealed=False)
        store = place.open()
        fill(store, 1, 5)
        made.append([sync.backup.Backups(store, url).create() for _ in range(2)])
        place.close()
    alone = sync.backup.Backups(None, url)
    assert set(alone.prune(1).deleted) == {older.id for older, _ in made}
    assert {one.id for one in alone.list()} == {newer.id for _, newer in made}


@pytest.mark.parametrize("signer", ["nobody", "a stranger"])
def test_what_a_stranger_put_there_does_not_count_as_newer(
    simple: tuple[sync.Store, sync.backup.Backups], tmp_path: Path, signer: str
) -> None:
    _, backups = simple
    older, newer = backups.create(), backups.create()
    stranger = Signer.from_seed(bytes(32)) if signer == "a stranger" else None
    public = stranger.public.hex() if stranger is not None else ""
    id = "20990101T000000000000Z-00000000"
    forged = msgspec.structs.replace(newer, id=id, signer=public)
    path = tmp_path / "backups" / manifest.path_of(id)
    path.write_bytes(manifest.sign(forged, stranger))
    assert [one.id for one in backups.list()] == [id, newer.id, older.id]
    for with_store in (backups, sync.backup.Backups(None, f"dir:{tmp_path}/backups")):
        assert with_store.prune(2).deleted == ()
    assert backups.prune(1).deleted == (older.id,)
    assert backups.verify(newer.id).ok


@pytest.mark.parametrize("damage", ["manifest", "list"])
def test_a_backup_is_deleted_though_another_one_is_damaged(
    simple: tuple[sync.Store, sync.backup.Backups], tmp_path: Path, damage: str
) -> None:
    """What that one names may be needed: no object goes while it cannot be read."""
    store, backups = simple
    other = backups.create()
    store.agent("agent-0").set("facts/1", 1)
    gone = backups.create()
    path = manifest.path_of(other.id) if damage == "manifest" else other.parts.name
    lost = tmp_path / "backups" / path
    content = lost.read_bytes()
    lost.write_bytes(content[:50])
    before = {name for name in files(tmp_path) if name.startswith("objects/")}
    done = backups.delete(gone.id)
    assert (done.deleted, done.objects, done.bytes) == ((gone.id,), 0, 0)
    assert path in done.notes[0]
    assert before == {name for name in files(tmp_path) if name.startswith("objects/")}
    lost.write_bytes(content)
    assert backups.prune(1).objects > 0  # what was left goes now
    assert backups.verify(other.id).ok


def test_deleting_takes_nothing_from_who_makes_a_backup_meanwhile(
    simple: tuple[sync.Store, sync.backup.Backups], tmp_path: Path
) -> None:
    """At whatever moment of the making the backup is deleted that it rests on."""
    store, backups = simple
    other = sync.backup.Backups(store, f"dir:{tmp_path}/backups")
    for nth in range(1, 100):
        first = backups.create(full=True)
        store.agent("agent-0").set("facts/1", nth)
        beside = Failing(
            backups._place, nth, onward=False, fail=lambda id=first.id: other.delete(id)
        )
        backups._place = beside  # type: ignore[assignment]
        made = backups.create()
        backups._place = beside._inner
        assert backups.verify(made.id).ok, nth
        if not beside.failed:
            break
        backups.delete(made.id)
        assert not [name for name in files(tmp_path) if name.startswith(("pending", "doomed"))]
    assert nth > 5


def test_making_a_backup_takes_nothing_from_what_is_deleted_meanwhile(
    simple: tuple[sync.Store, sync.backup.Backups], tmp_path: Path
) -> None:
    """The other way round: a backup is made at whatever moment of a deletion."""
    store, backups = simple
    other = sync.backup.Backups(store, f"dir:{tmp_path}/backups")
    for nth in range(1, 100):
        first = backups.create(full=True)
        made: list[Any] = []
        beside = Failing(
            backups._place, nth, onward=False, fail=lambda into=made: into.append(other.create())
        )
        backups._place = beside  # type: ignore[assignment]
        backups.delete(first.id)
        backups._place = beside._inner
        if not made:
            break
        assert backups.verify(made[0].id).ok, nth
        backups.delete(made[0].id)
        store.agent("agent-0").set("facts/1", nth)
    assert nth > 5


def test_two_who_delete_at_once_get_along(
    simple: tuple[sync.Store, sync.backup.Backups], tmp_path: Path
) -> None:
    store, backups = simple
    other = sync.backup.Backups(store, f"dir:{tmp_path}/backups")
    for nth in range(1, 100):
        ids = []
        for number in range(3):
            store.agent("agent-0").set("facts/1", [nth, number])
            ids.append(backups.create().id)
        beside = Failing(backups._place, nth, onward=False, fail=lambda id=ids[1]: other.delete(id))
        backups._place = beside  # type: ignore[assignment]
        backups.delete(ids[0])
        backups._place = beside._inner
        assert backups.verify(ids[2]).ok
        for one in backups.list():
            backups.delete(one.id)
        assert files(tmp_path) == {}
        if not beside.failed:
            break
    assert nth > 5


def a_day_passes(tmp_path: Path) -> None:
    """For all claims and dooms that are there."""
    for folder in ("pending", "doomed"):
        for path in (tmp_path / "backups" / folder).rglob("*"):
            if path.is_file():
                then = path.stat().st_mtime - 25 * 3600
                os.utime(path, (then, then))


def ended(call: Callable[[], object]) -> bool:
    """Whether a call says that it lasted too long."""
    try:
        call()
    except Unavailable as error:
        assert "over a day" in str(error)
        return True
    return False


def test_a_claim_of_somebody_who_was_killed_ends(
    simple: tuple[sync.Store, sync.backup.Backups], tmp_path: Path
) -> None:
    _, backups = simple
    made = backups.create()
    claims.claim(backups._place, "20200101T000000000000Z-00000000", [made.id])
    assert backups.delete(made.id).objects == 0
    a_day_passes(tmp_path)
    assert claims.collect(backups._place)[0] >= 2
    assert files(tmp_path) == {}


def test_who_slept_for_a_day_makes_no_backup_of_what_was_deleted(
    simple: tuple[sync.Store, sync.backup.Backups], tmp_path: Path
) -> None:
    store, backups = simple
    other = sync.backup.Backups(store, f"dir:{tmp_path}/backups")
    for nth in range(1, 100):
        first = other.create()
        store.agent("agent-0").set("facts/1", nth)

        def sleep(id: str = first.id) -> None:
            a_day_passes(tmp_path)
            other.delete(id)

        # The list of its objects is the last that is put there before the manifest.
        beside = Failing(other._place, nth, onward=False, fail=sleep, calls=("put",))
        backups._place = beside  # type: ignore[assignment]
        if not ended(backups.create):
            break
        assert other.list() == []
    assert not beside.failed
    assert nth > 2


def test_who_slept_for_a_day_deletes_nothing_that_is_used_again(
    simple: tuple[sync.Store, sync.backup.Backups], tmp_path: Path
) -> None:
    store, backups = simple
    other = sync.backup.Backups(store, f"dir:{tmp_path}/backups")
    late = 0
    for nth in range(1, 100):
        first = backups.create(full=True)
        made: list[Any] = []

        def sleep(into: list[Any] = made) -> None:
            # Somebody else removes what counts no more, and a backup rests on what is there.
            marks = [one.name for one in other._place.objects("doomed")]
            other._place.drop(marks)
            into.append(other.create())

        beside = Failing(
            other._place, nth, onward=False, fail=sleep, calls=("put", "get", "objects", "folders")
        )
        backups._place = beside  # type: ignore[assignment]
        late += ended(lambda id=first.id: backups.delete(id))  # type: ignore[misc]
        if not made:
            break
        assert other.verify(made[0].id).ok, nth
        other.delete(made[0].id)
        store.agent("agent-0").set("facts/1", nth)
    assert nth > 5
    assert late


def test_an_object_that_is_gone_before_it_is_synced_is_told_as_a_run_that_lasted_too_long(
    simple: tuple[sync.Store, sync.backup.Backups],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store, backups = simple
    other = sync.backup.Backups(store, f"dir:{tmp_path}/backups")
    first, safe = other.create(), backups._place._store.sync  # type: ignore[union-attr]

    def slow(name: str) -> None:
        if name.startswith("objects/") and other.list():
            a_day_passes(tmp_path)
            other.delete(first.id)
        safe(name)

    monkeypatch.setattr(backups._place._store, "sync", slow)
    assert ended(lambda: backups.create(full=True))
    assert other.list() == []
