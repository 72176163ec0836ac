"""Long values that are never finished: killed, stopped, failed; what is swept and what is not."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from store_kit import Place, rows_of, stop_process

from holdfast import sync
from holdfast.errors import Conflict, DiskFullError, HoldfastError, StoreLockedError
from holdfast.storage.contract import Batch
from holdfast.storage.wrappers import MODES, Fault, Faulty
from holdfast.store import long as uploads
from holdfast.store import long as write
from holdfast.store.history.handle import StoreHandle
from holdfast.store.names import rowkinds
from holdfast.store.open import open_core
from holdfast.store.rules import upload_pins as pins


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(write, "SHORT", 60_000)
    monkeypatch.setattr(uploads, "PIECE", 40_000)
    monkeypatch.setattr(uploads, "COMMIT", 100_000)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pins, "BEAT", 0.05)
    monkeypatch.setattr(pins, "TERM", 0.6)


def noise(size: int, seed: int = 1) -> bytes:
    return random.Random(seed).randbytes(size)


def left(place: Place) -> tuple[int, int]:
    """Rows of uploads and pins that are stored."""
    storage = place.storage()
    keys = [key for kind in (b"V", b"N") for key, _ in rows_of(storage, kind)]
    found = sum(int.from_bytes(key[7:9], "big") == rowkinds.UPLOADS for key in keys)
    cells = len(storage.cells(b"P", b"Q"))
    storage.close()
    return found, cells


STREAM = """
import random, sys, time
from holdfast import sync
from holdfast.store.rules import upload_pins as pins
pins.BEAT = 0.05
path, scope = sys.argv[1:3]
store = sync.open("sqlite:" + path, durability="normal")
state = store.agent(scope)
file = state.open_write("k")
draw = random.Random(1)
for _ in range(12):
    file.write(draw.randbytes(1 << 20))
print("written", flush=True)
for line in sys.stdin:
    if line == "write\\n":
        try:
            for _ in range(8):
                file.write(draw.randbytes(1 << 20))
            file.close()
            print("closed", flush=True)
        except Exception as error:
            print(type(error).__name__, error, flush=True)
"""


def start(place: Place, scope: str) -> subprocess.Popen[str]:
    """Another process that has written much of a long value and then waits."""
    child = subprocess.Popen(
        [os.path.realpath(sys.executable), "-c", STREAM, str(place.path), scope],
        env=place.environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "written\n"
    return child


@pytest.fixture
def plain_file(tmp_path: Path) -> Place:
    return Place("sqlite", tmp_path, sealed=False)


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("scope", ["there", "new"])
def test_killed_in_the_middle(plain_file: Place, scope: str) -> None:
    """Nothing is seen, nothing is damaged, and a sweep leaves no trace."""
    place = plain_file
    place.open().agent("there").set("k", b"before")
    child = start(place, scope)
    child.kill()
    child.communicate()
    store = place.open()
    assert store.agent("there").get("k") == b"before"
    assert not store.agent("new").exists("k")
    found, cells = left(place)
    assert (found > 10, cells) == (True, 1)
    report = store.verify()
    assert (report.findings, report.unfinished) == ([], 1)
    assert "no damage" in str(report)
    assert store.sweep().waiting == 1
    swept = store.sweep(wait=True)
    assert (swept.uploads, swept.rows, swept.waiting) == (1, found, 0)
    assert left(place) == (0, 0)
    report = store.verify()
    assert (report.findings, report.unfinished) == ([], 0)
    place.close()


class Beaten:
    """A clock that goes on when another process has beaten: however slow that is, it is in time."""

    def __init__(self, place: Place) -> None:
        self._storage = place.storage()
        self._now = 0.0

    def monotonic(self) -> float:
        return self._now

    def sleep(self, seconds: float) -> None:
        before, end = self._cells(), time.monotonic() + 60
        while self._cells() == before:
            assert time.monotonic() < end, "it does not beat"
            time.sleep(0.01)
        self._now += seconds

    def _cells(self) -> list[tuple[bytes, bytes]]:
        return self._storage.cells(b"P", b"Q")


@pytest.mark.usefixtures("impatient")
def test_a_writer_that_lives_is_not_swept(
    plain_file: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long it writes nothing: its beat goes on."""
    place = plain_file
    place.open().agent("1").set("k", b"before")
    child = start(place, "1")
    with monkeypatch.context() as patch:
        patch.setattr(pins, "time", Beaten(place))
        swept = place.open().sweep(wait=True)
    assert (swept.uploads, swept.waiting) == (0, 1)
    out, _ = child.communicate("write\n")
    assert out == "closed\n"
    draw = random.Random(1)
    expected = b"".join(draw.randbytes(1 << 20) for _ in range(20))
    store = place.reopen()
    assert store.agent("1").get("k") == expected
    assert store.verify().findings == []
    place.close()


@pytest.mark.usefixtures("impatient")
def test_a_writer_that_was_stopped_is_told(plain_file: Place) -> None:
    """SIGSTOP for longer than the term: swept, and when it wakes it can write nothing more."""
    place = plain_file
    place.open().agent("1").set("k", b"before")
    child = start(place, "1")
    store = place.open()
    while True:
        stop_process(child.pid)
        try:
            assert store.sweep(wait=True).uploads == 1
            break
        except StoreLockedError:  # it was stopped in the middle of a commit: elsewhere, then
            os.kill(child.pid, signal.SIGCONT)
            time.sleep(0.2)
    os.kill(child.pid, signal.SIGCONT)
    out, _ = child.communicate("write\n")
    assert out.startswith("Conflict")
    assert "swept" in out
    store = place.open()
    assert store.agent("1").get("k") == b"before"
    assert left(place) == (0, 0)
    assert store.verify().findings == []
    place.close()


@pytest.mark.usefixtures("impatient")
def test_what_others_left_is_swept_on_the_way(plain_file: Place) -> None:
    """A process that writes long values itself clears away what a dead one has left."""
    place = plain_file
    store = place.open()
    child = start(place, "1")
    child.kill()
    child.communicate()
    with store.agent("2").open_write("k") as file:
        file.write(noise(300_000))
        end = time.monotonic() + 60
        while left(place)[1] > 1 and time.monotonic() < end:
            time.sleep(0.05)
        assert left(place)[1] == 1
    assert store.agent("2").get("k") == noise(300_000)
    assert store.verify().findings == []
    place.close()


@pytest.mark.usefixtures("impatient")
def test_a_file_that_was_let_go_of_is_cleared_away(place: Place) -> None:
    store = place.open()
    file = store.agent("1").open_write("k")
    file.write(noise(300_000))
    assert left(place)[1] == 1
    del file
    end = time.monotonic() + 60
    while left(place) != (0, 0) and time.monotonic() < end:
        time.sleep(0.05)
    assert left(place) == (0, 0)


def test_a_sweep_that_is_cut_short_is_finished(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next one goes on at once: the pin says that it was swept."""
    monkeypatch.setattr(pins, "SLICE", 1)
    monkeypatch.setattr(pins, "BEAT", 3600.0)  # a beat would be one of the commits counted below
    faulty = Faulty(place.storage())
    store = sync.Store(StoreHandle(open_core(place.url, storage=faulty, **place.options())))
    file = store.agent("1").open_write("k")
    file.write(noise(500_000))
    before = left(place)[0]
    faulty.plan = (Fault("commit", faulty.calls["commit"] + 4, onward=True),)
    file.abort()
    faulty.plan = ()
    assert 0 < left(place)[0] < before
    other = place.open()
    assert other.verify().findings == []
    assert other.sweep().uploads == 1
    assert left(place) == (0, 0)
    store.close()


@pytest.mark.parametrize("mode", MODES)
def test_every_storage_call_fails_once(place: Place, mode: str) -> None:
    """It is written whole or not at all; an unknown outcome is settled; nothing is damaged."""
    place.open().agent("1").set("k", noise(200_000, 3))
    outcomes = set()
    for nth in range(1, 60):
        faulty = Faulty(place.storage())
        store = sync.Store(StoreHandle(open_core(place.url, storage=faulty, **place.options())))
        state = store.agent("1")
        before, after = state.get("k"), noise(250_000, nth)
        faulty.plan = (Fault("*", faulty.calls["*"] + nth, mode),)
        try:
            with state.open_write("k") as file:
                for start in range(0, len(after), 50_000):
                    file.write(after[start : start + 50_000])
            expected = after
        except HoldfastError as error:
            assert "injected" in str(error)
            expected = before
        failed = bool(faulty.failed)
        faulty.plan = ()
        outcomes.add((failed, expected is after))
        assert state.get("k") == expected
        other = place.open()
        assert other.agent("1").get("k") == expected
        store.close()
        if not failed:
            break
    assert (False, True) in outcomes
    assert (True, False) in outcomes
    report = place.open().verify()
    assert report.findings == []


def test_the_pin_is_expected_by_the_entry(place: Place) -> None:
    """Whoever takes the pin away keeps the entry from being written, in the last moment, too."""
    store = place.open()
    state = store.agent("1")
    file = state.open_write("k")
    file.write(noise(300_000))
    storage = place.storage()
    ((key, value),) = storage.cells(b"P", b"Q")
    storage.commit(Batch(cells=[(key, value, pins.SWEPT)]))
    storage.close()
    with pytest.raises(Conflict, match="write it again"):
        file.close()
    assert not state.exists("k")


@pytest.mark.parametrize("late", [False, True])
def test_the_data_key_is_rotated_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, late: bool
) -> None:
    """No row of it stays under a key that leaves the ring, wherever it is when that happens.

    `late`: when the rows are sealed and on their way to the storage, where only the commit itself
    can tell.
    """
    place = Place("sqlite", tmp_path, sealed=True)
    place.open().agent("1").set("k", b"before")
    state, other = place.open().agent("1"), place.open()
    commits = 0

    def rotate() -> None:
        other.rotate("agent:1")
        other.reseal("agent:1")

    def seal_again(upload: uploads.Upload) -> None:
        nonlocal commits
        sealed(upload)
        commits += 1
        if commits % 2:  # the second attempt gets through
            rotate()

    sealed = uploads.Upload._seal_again
    if late:
        monkeypatch.setattr(uploads.Upload, "_seal_again", seal_again)
    data = noise(900_000)
    with state.open_write("k") as file:
        for start in range(0, len(data), 90_000):
            file.write(data[start : start + 90_000])
            if start % 180_000 == 0 and not late:
                rotate()
    assert commits > 2 or not late
    store = place.reopen()
    assert store.agent("1").get("k") == data
    assert store.verify().findings == []
    assert store.verify().unfinished == 0
    place.close()


def test_verify_beside_writers(place: Place) -> None:
    """What is on its way, or just finished, is never taken for damage."""
    store, other = place.open(), place.open()
    store.agent("1").set("k", 1)
    stop = threading.Event()

    def work() -> None:
        for number in range(1, 60):  # bounded: what is written is what is to be verified
            if stop.is_set():
                return
            file = store.agent("1").open_write(f"k{number % 3}")
            file.write(noise(200_000, number))
            (file.abort if number % 4 == 0 else file.close)()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        for _ in range(12):
            assert other.verify().findings == []
    finally:
        stop.set()
        thread.join()


FULL = """
import os, random, sys
from holdfast import sync
from holdfast.errors import *
path = sys.argv[1]
store = sync.open("sqlite:" + path, durability="normal")
state = store.agent("1")
state.set("k", b"before")
try:
    with state.open_write("k") as file:
        while True:
            file.write(os.urandom(1 << 20))
except HoldfastError as error:
    print(type(error).__name__, flush=True)
assert state.get("k") == b"before"
open(path + ".ballast", "wb").close()
state.set("small", b"goes on")
store.close()
store = sync.open("sqlite:" + path, durability="normal")
assert state is not None and store.agent("1").get("small") == b"goes on"
assert store.verify().findings == []
print("went on", flush=True)
"""


@pytest.mark.skipif(not shutil.which("unshare"), reason="needs a user namespace that may mount")
def test_a_full_disk(tmp_path: Path) -> None:
    """It says so, nothing is seen of it, and the store goes on."""
    room = tmp_path / "room"
    room.mkdir()
    shell = f'mount -t tmpfs -o size=24m tmpfs {room} && exec "$@"'
    code = FULL.replace(
        'state.set("k", b"before")',
        'state.set("k", b"before")\nopen(path + ".ballast", "wb").write(bytes(8_000_000))',
    )
    program = [os.path.realpath(sys.executable), "-c", code]
    done = subprocess.run(
        ["unshare", "-Urm", "sh", "-c", shell, "sh", *program, str(room / "store.db")],
        env=Place("sqlite", tmp_path, sealed=False).environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    if "mount" in done.stderr:
        pytest.skip("may not mount")
    assert done.stdout.split("\n")[:-1] == [DiskFullError.__name__, "went on"], done.stderr
