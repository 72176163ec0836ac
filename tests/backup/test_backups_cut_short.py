"""Cut short anywhere: backups made before are whole, and the next one goes on."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pytest
from backup_kit import Failing, fill, there, values
from store_kit import Place

from holdfast import sync
from holdfast.backup import make as claims
from holdfast.errors import RefusedError, StateIntegrityError, Unavailable
from holdfast.storage import open_storage
from holdfast.storage.contract import Batch
from holdfast.storage.wrappers import Fault, Faulty
from holdfast.store.history.handle import StoreHandle
from holdfast.store.open import META, open_core

KILLED = """
import os, sys
sys.path[:0] = sys.argv[5:]
from backup_kit import Failing
from holdfast import sync
url, folder, call, nth = sys.argv[1:5]
with sync.open(url) as store:
    backups = sync.backup.Backups(store, folder)
    backups._place = Failing(backups._place, int(nth), fail=lambda: os._exit(9), calls=(call,))
    backups.create()
"""


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place("sqlite", tmp_path, sealed=False)


def small(place: Place) -> sync.Store:
    store = sync.open(place.url, durability="normal")
    noise = random.Random(1)
    fill(store, 1, 5)
    with store.agent("noise").change() as change:
        for number in range(3):
            change.set(f"v{number}", noise.randbytes(40_000))
    return store


def test_a_place_that_fails_at_any_call(place: Place, tmp_path: Path) -> None:
    store = small(place)
    url = f"dir:{tmp_path}/backups"
    good = sync.backup.Backups(store, url)
    first = good.create()
    for nth in range(1, 200):
        store.agent("a").set("k", nth)
        failing = sync.backup.Backups(store, url)
        failing._place = Failing(good._place, nth)  # type: ignore[assignment]
        known = {one.id for one in good.list()}
        try:
            failing.create()
        except Unavailable:
            assert {one.id for one in good.list()} == known
            # As a day later: else what is left over would be looked through each time.
            good._place.drop([one.name for one in good._place.objects("pending")])
            claims.collect(good._place)
        else:
            # Its manifest was written, and only the claim behind it could not be taken back.
            break
        assert good.verify(first.id).ok
    assert nth > 5
    assert all(good.verify(one.id).ok for one in good.list())
    last = good.create()
    good.restore(last.id, f"sqlite:{tmp_path}/again.db")
    with sync.open(f"sqlite:{tmp_path}/again.db") as again:
        assert values(again) == values(store)
        assert again.verify().findings == []
    store.close()


def test_deleting_that_fails_at_any_call_leaves_others_whole(place: Place, tmp_path: Path) -> None:
    store = small(place)
    url = f"dir:{tmp_path}/backups"
    good = sync.backup.Backups(store, url)
    kept = good.create()
    for nth in range(1, 200):
        store.agent("a").set("k", nth)
        gone = good.create(full=nth % 2 == 0)
        failing = sync.backup.Backups(store, url)
        failing._place = Failing(good._place, nth)  # type: ignore[assignment]
        try:
            failing.delete(gone.id)
        except Unavailable:
            assert all(good.verify(one.id).ok for one in good.list())
            if gone in good.list():
                good.delete(gone.id)
            else:
                claims.collect(good._place)
            continue
        break
    assert nth > 5
    good.create()
    assert good.prune(1).deleted == (kept.id,)
    (last,) = good.list()
    assert good.verify(last.id).ok
    named = {name for name in there(tmp_path / "backups") if name.startswith("objects/")}
    assert len(named) == last.objects + 1, "objects that nothing names stay for ever"
    store.close()


def test_restoring_that_fails_at_any_call_makes_no_store(place: Place, tmp_path: Path) -> None:
    store = small(place)
    good = sync.backup.Backups(store, f"dir:{tmp_path}/backups")
    made = good.create()
    url = f"sqlite:{tmp_path}/again.db"
    for nth in range(1, 200):
        failing = sync.backup.Backups(store, f"dir:{tmp_path}/backups")
        failing._place = Failing(good._place, nth, onward=False)  # type: ignore[assignment]
        try:
            failing.restore(made.id, url)
        except Unavailable:
            continue
        if failing._place.failed:  # type: ignore[attr-defined]
            Path(f"{tmp_path}/again.db").unlink()  # it could do without that call
            continue
        break
    assert nth > 3  # how many parts there are is chance
    with sync.open(url) as again:
        assert values(again) == values(store)
    store.close()


@pytest.mark.parametrize("call", ["moment", "scan", "cells"])
def test_a_storage_that_fails_while_it_is_read(place: Place, tmp_path: Path, call: str) -> None:
    small(place).close()
    faulty = Faulty(place.storage())
    store = sync.Store(StoreHandle(open_core(place.url, storage=faulty)))
    backups = sync.backup.Backups(store, f"dir:{tmp_path}/backups")
    first = backups.create()
    looks = call == "scan"  # whether anybody wants to be told of backups, which fails none
    faulty.plan = (Fault(call, nth=faulty.calls[call] + 1 + looks),)
    with pytest.raises(Unavailable):
        backups.create()
    assert backups.list() == [first]
    assert backups.create().uploaded < first.uploaded
    store.close()


def test_a_process_that_is_killed_leaves_what_the_next_one_uses(
    place: Place, tmp_path: Path
) -> None:
    store = small(place)
    url = f"dir:{tmp_path}/backups"
    good = sync.backup.Backups(store, url)
    paths = [str(Path(__file__).parents[1] / "store")]
    command = [sys.executable, "-c", KILLED, place.url, url]
    # Before the first object is there, and before the manifest is, which is created behind a claim.
    for where in (("put", "1"), ("create", "2")):
        done = subprocess.run(
            [*command, *where, *paths], env=place.environment(), capture_output=True, timeout=60
        )
        assert done.returncode == 9, done.stderr
        assert good.list() == []
    sent = {name for name in there(tmp_path / "backups") if name.startswith("objects/")}
    assert sent
    made = good.create()
    assert made.type == "incremental"
    assert made.uploaded < made.bytes
    assert good.verify(made.id).ok
    good.restore(made.id, f"sqlite:{tmp_path}/again.db")
    with sync.open(f"sqlite:{tmp_path}/again.db") as again:
        assert values(again) == values(store)
    store.close()


def test_half_a_restored_store_is_none(place: Place, tmp_path: Path) -> None:
    """Killed while it writes: what is there is refused by whoever opens it."""
    store = small(place)
    good = sync.backup.Backups(store, f"dir:{tmp_path}/backups")
    made = good.create()
    url = f"sqlite:{tmp_path}/again.db"
    good.restore(made.id, url)
    half = open_storage(url)
    half.commit(Batch(drops=[META]))
    half.close()
    with pytest.raises(StateIntegrityError):
        sync.open(url)
    with pytest.raises(RefusedError, match="cut short"):
        good.restore(made.id, url)
    store.close()
