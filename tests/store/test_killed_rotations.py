"""A process that turns keys ends at each of its commits; the next one goes on where it was."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from store_kit import Place

from holdfast import sync
from holdfast.errors import KeyRetiredError, WrongKeyError

KILLED = """
import os, sys
from holdfast import sync
from holdfast.seal import master_rotation as turning
from holdfast.storage.sqlite import engine as sqlite
from holdfast.store.upkeep import rotate as rekeying
turning.SLICE, rekeying.SLICE = 4, 40
commits, commit = int(sys.argv[2]), sqlite.SqliteStorage.commit
store = sync.open("sqlite:" + sys.argv[1], key=sys.argv[3], durability="normal")
def counted(self, batch):
    global commits
    commits -= 1
    if commits < 0:
        os._exit(9)
    commit(self, batch)
sqlite.SqliteStorage.commit = counted
if sys.argv[4]:
    store.rotate_master(sys.argv[4])
else:
    store.rotate("agent:0")
    store.reseal("agent:0")
"""


def killed(place: Place, commits: int, new: str = "") -> bool:
    """Whether the process was ended before it was done."""
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(place.path), str(commits), place.key or "", new],
        env=place.environment(),
        check=False,
        timeout=60,
    )
    assert done.returncode in (0, 9)
    return done.returncode == 9


def made(folder: Path) -> Place:
    folder.mkdir()
    place = Place("sqlite", folder, sealed=True)
    store = place.open()
    for n in range(6):
        store.agent(str(n)).set("k", n)
    for n in range(90):
        store.agent("0").set(f"k{n}", n)
    place.close()
    return place


def check(store: sync.Store) -> None:
    assert [store.agent(str(n)).get("k") for n in range(6)] == list(range(6))
    assert [store.agent("0").get(f"k{n}") for n in range(90)] == list(range(90))
    assert store.verify().ok


def test_rotation_of_the_master_killed_at_each_commit(tmp_path: Path) -> None:
    for commits in range(30):
        place = made(tmp_path / str(commits))
        new = f"file:{place.folder / 'new.key'}"
        if not killed(place, commits, new):
            break
        opened = []
        for key in (place.key, new):
            try:
                with place.open(key=key) as store:
                    check(store)
                    opened.append(key)
            except (WrongKeyError, KeyRetiredError):
                continue
        assert opened, f"killed at commit {commits}: no key opens the store"
        with place.open(key=opened[-1]) as store:
            store.rotate_master(new)
            assert store.keyring().left == 0
        with place.open(key=new) as store:
            check(store)
        with pytest.raises(KeyRetiredError):
            place.open()
    assert commits > 5


def test_rotation_and_resealing_of_data_killed_at_each_commit(tmp_path: Path) -> None:
    for commits in range(30):
        place = made(tmp_path / str(commits))
        if not killed(place, commits):
            break
        with place.open() as store:
            check(store)
            store.agent("0").set("since", 1)
            store.rotate("agent:0")
            store.reseal("agent:0")
            assert store.keyring().data_keys == store.keyring().scopes
            check(store)
    assert commits > 4
