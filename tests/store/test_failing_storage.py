"""Storage that fails for a moment, is full or may not be written."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from store_kit import Place

from holdfast import ValueLimits, sync
from holdfast.errors import (
    LimitExceededError,
    StorageReadOnlyError,
    Unavailable,
)
from holdfast.storage.wrappers import Fault, Faulty
from holdfast.store.history.handle import StoreHandle
from holdfast.store.open import open_core


@pytest.fixture
def unencrypted(tmp_path: Path) -> Path:
    """A plain store, closed again."""
    path = tmp_path / "data" / "plain.db"
    path.parent.mkdir()
    with sync.open(f"sqlite:{path}", durability="normal") as store:
        store.agent("1").set("k", "plain words")
    return path


@pytest.mark.spec("L204")
def test_a_passing_fault_is_no_damage(place: Place) -> None:
    """What cannot be served now is `Unavailable` and was not applied; then all goes on."""
    place.open().agent("1").set("k", "start")
    for nth in range(1, 12):
        faulty = Faulty(place.storage())
        store = sync.Store(StoreHandle(open_core(place.url, storage=faulty, **place.options())))
        state = store.agent("1")
        expected = state.get("k")
        faulty.plan = (Fault("*", faulty.calls["*"] + nth),)
        for number in range(4):
            try:
                state.set("k", [nth, number])
                expected = [nth, number]
                assert state.get("k") == expected
            except Unavailable as error:
                assert "injected" in str(error)
        assert len(faulty.failed) == 1
        assert state.get("k") == expected
        assert place.open().agent("1").get("k") == expected
        store.close()
    assert place.open().verify().findings == []


FILL = """
import os, sys
from holdfast import sync
from holdfast.errors import *
path = sys.argv[1]
store = sync.open("sqlite:" + path, durability="normal")
state = store.agent("1")
state.set("k", "before")
%s
number = 0
try:
    while True:
        state.set(f"big{number}", os.urandom(50_000))
        number += 1
except HoldfastError as error:
    print(type(error).__name__, flush=True)
"""
GO_ON = """
assert state.get("k") == "before" and len(state.keys("big")) == number > 0
os.unlink(path + ".ballast")
state.set("k", "after")
store.close()
with sync.open("sqlite:" + path, durability="normal") as store:
    state = store.agent("1")
    assert state.get("k") == "after" and len(state.keys("big")) == number
    assert len(state.get(f"big{number - 1}")) == 50_000
    assert store.verify().findings == []
print("went on")
"""


def said(code: str, path: Path, *before: str) -> list[str]:
    """What a program that uses a store says."""
    done = subprocess.run(
        [*before, os.path.realpath(sys.executable), "-c", code, str(path)],
        env=Place("sqlite", path.parent, sealed=False).environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split("\n")[:-1]


def can_mount() -> bool:
    if not shutil.which("unshare"):
        return False
    probe = ["unshare", "-Urm", "mount", "-t", "tmpfs", "tmpfs", "/mnt"]
    return subprocess.run(probe, capture_output=True, check=False).returncode == 0


@pytest.mark.skipif(not can_mount(), reason="needs a user namespace that may mount")
def test_a_full_disk(tmp_path: Path) -> None:
    """Nothing of the change is applied, and it goes on as soon as there is room."""
    room = tmp_path / "room"
    room.mkdir()
    ballast = 'open(path + ".ballast", "wb").write(bytes(2_000_000))'
    shell = f'mount -t tmpfs -o size=4m tmpfs {room} && exec "$@"'
    code = FILL % ballast + GO_ON
    found = said(code, room / "store.db", "unshare", "-Urm", "sh", "-c", shell, "sh")
    assert found == ["DiskFullError", "went on"]


def test_a_write_that_is_cut_short(tmp_path: Path) -> None:
    """Real: a file may not grow beyond a limit. Whether the rest arrived is not guessed."""
    limit = (
        "import resource, signal\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, 400_000))"
    )
    assert said(FILL % limit, tmp_path / "store.db") == ["OutcomeUnknown"]
    with sync.open(f"sqlite:{tmp_path / 'store.db'}", durability="normal") as store:
        assert store.agent("1").get("k") == "before"
        assert store.agent("1").keys("big")
        assert store.verify().findings == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_cannot_be_written(unencrypted: Path) -> None:
    unencrypted.parent.chmod(0o500)
    try:
        with pytest.raises(StorageReadOnlyError):
            sync.open(f"sqlite:{unencrypted}").agent("1").set("k", 1)
    finally:
        unencrypted.parent.chmod(0o700)


def test_limits_are_configured(place: Place) -> None:
    store = place.open(limits=ValueLimits(size=1000))
    with pytest.raises(LimitExceededError, match="1000"):
        store.agent("1").set("k", "x" * 1001)
    place.open().agent("1").set("k", "x" * 1001)
