"""The SQLite engine under real faults: kill, failed syncs, full and read-only disks.

Each runs in a process of its own, started here, so that a broken one cannot spoil the rest.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import apsw
import pytest

import holdfast.errors
from holdfast.errors import DamagedStorageError, StorageReadOnlyError, Unavailable
from holdfast.storage.contract import Batch
from holdfast.storage.sqlite import guard
from holdfast.storage.sqlite.engine import SqliteStorage

SOURCE = str(Path(holdfast.errors.__file__).parents[1])
PRELUDE = """
import os, signal, sys
from holdfast.errors import *
from holdfast.storage.contract import Batch
from holdfast.storage.sqlite.engine import SqliteStorage
path = sys.argv[1]
def say(*words): print(*words, flush=True)
def put(storage, number, size=100):
    storage.commit(Batch(puts=[(b"%06d" % number, bytes(size))], absent=[b"%06d" % number]))
def outcome(call):
    try: call()
    except HoldfastError as error: return type(error).__name__
    return "ok"
"""
strace = pytest.mark.skipif(not shutil.which("strace"), reason="needs strace")


def can_mount() -> bool:
    if not shutil.which("unshare"):
        return False
    probe = ["unshare", "-Urm", "mount", "-t", "tmpfs", "tmpfs", "/mnt"]
    return subprocess.run(probe, capture_output=True, check=False).returncode == 0


mounts = pytest.mark.skipif(not can_mount(), reason="needs a user namespace that may mount")


def command(code: str, path: Path, *before: str) -> list[str]:
    return [*before, os.path.realpath(sys.executable), "-c", PRELUDE + code, str(path)]


def environment() -> dict[str, str]:
    paths = [SOURCE, *(p for p in sys.path if p.endswith("site-packages"))]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}


def start(code: str, path: Path, *before: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command(code, path, *before),
        env=environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run(code: str, path: Path, *before: str) -> list[str]:
    """Run to the end; the lines it printed."""
    process = start(code, path, *before)
    out, errors = process.communicate(timeout=120)
    assert process.returncode in (0, -signal.SIGKILL), errors
    return out.splitlines()


def found(path: Path) -> list[int]:
    storage = SqliteStorage(str(path))
    rows = storage.scan(b"0", b"9", limit=100_000)
    storage.close()
    return [int(key) for key, _ in rows]


KILLED = """
storage = SqliteStorage(path, durability=%r)
for number in range(20):
    put(storage, number)
say("done")
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("level", ["full", "normal"])
def test_leftover_log_after_kill(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, level: str
) -> None:
    path, wal = tmp_path / "store.db", tmp_path / "store.db-wal"
    assert run(KILLED % level, path) == ["done"]
    assert wal.stat().st_size > 0
    rewritten: list[int] = []
    rewrite = guard.rewrite_wal

    def spy(place: str) -> None:
        before = wal.read_bytes()
        rewrite(place)
        assert wal.read_bytes() == before
        rewritten.append(len(before))

    monkeypatch.setattr(guard, "rewrite_wal", spy)
    storage = SqliteStorage(str(path))
    assert rewritten
    assert wal.stat().st_size == 0
    second = SqliteStorage(str(path))
    storage.commit(Batch(puts=[(b"x", b"")]))
    third = SqliteStorage(str(path))
    assert len(rewritten) == 1, "the log of a store in use must not be written by hand"
    for handle in (storage, second, third):
        handle.close()
    assert found(path) == list(range(20))


FRAME = 24 + guard.PAGE


def flipped(log: bytes, at: int) -> bytes:
    return log[:at] + bytes([log[at] ^ 4]) + log[at + 1 :]


@pytest.mark.parametrize("level", ["full", "normal"])
def test_commits_behind_damage_in_a_leftover_log_are_not_dropped_silently(
    tmp_path: Path, level: str
) -> None:
    """Whichever byte of a frame or of the log's own header is changed; nothing is touched."""
    path, wal, kept = (tmp_path / f"store.db{end}" for end in ("", "-wal", "-wal.damaged"))
    run(KILLED % level, path)
    whole, file = wal.read_bytes(), path.read_bytes()
    middle = 32 + len(whole) // FRAME // 2 * FRAME
    for zeroes in (56, 512, 32 + FRAME):  # the header, and the one of the first frame
        wal.write_bytes(damaged := bytes(zeroes) + whole[zeroes:])
        with pytest.raises(DamagedStorageError, match="commits in it"):
            SqliteStorage(str(path))
        kept.write_bytes(damaged)
        assert found(path) == list(range(20)), "later frames have the pages of the first one"
        path.write_bytes(file)
    for at in (0, 3, 10, 17, 30, 32 + 4000, *(middle + n for n in (1, 5, 9, 17, 23, 24, 8000))):
        wal.write_bytes(damaged := flipped(whole, at))
        for read_only in (False, True):
            with pytest.raises(DamagedStorageError, match=r"commits in it.* repair --yes`"):
                SqliteStorage(str(path), read_only=read_only)
        assert (wal.read_bytes(), path.read_bytes()) == (damaged, file)
    for size in (1, 10, 20, 31, 32, 33, 60, 32 + FRAME - 1):  # cut off: nothing can be told
        wal.write_bytes(whole[:size])
        SqliteStorage(str(path), read_only=True).close()
    for at in (0, 3, 10, 17, 30, *(middle + n for n in (1, 5, 9, 17, 23, 24, 8000))):
        for place, data in ((path, file), (wal, damaged := flipped(whole, at))):
            place.write_bytes(data)
        kept.write_bytes(damaged)  # as `repair` does
        lost = sum(not frame for frame in guard.mended_log(str(kept)))
        assert lost == (at == middle + 1), "the number of the page that it is alone"
        kept.write_bytes(flipped(damaged, len(whole) - 9))  # the last commit, too
        unsure = sum(not frame for frame in guard.mended_log(str(kept)))
        assert unsure > lost, "whether it had returned, nobody can tell"
        kept.write_bytes(damaged)
        assert found(path) == list(range(20)), at
        assert kept.read_bytes() == damaged


def torn(log: bytes, start: int, draw: random.Random) -> bytes:
    """A log of which some sectors from a place on never came to the disk."""
    made = bytearray(log)
    for sector in range(start // 512, len(log) // 512 + 1):
        if draw.random() < 0.5:
            low, high = max(start, sector * 512), min(len(log), (sector + 1) * 512)
            made[low:high] = bytes(max(0, high - low))
    return bytes(made)


@pytest.mark.parametrize("level", ["full", "normal"])
def test_what_a_power_loss_tears_is_no_damage_of_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, level: str
) -> None:
    """At `full` that is the last commit; at `normal` any, and then nothing can be told."""
    path, wal = tmp_path / "store.db", tmp_path / "store.db-wal"
    run(KILLED % level, path)
    whole, file, lock = wal.read_bytes(), path.read_bytes(), (tmp_path / "store.db.lock")
    said, draw = lock.read_bytes(), random.Random(1)
    frames = range(32, len(whole), FRAME)
    ends = [at + FRAME for at in frames if whole[at + 4 : at + 8] != bytes(4)]
    start = ends[-2] if level == "full" else 32
    monkeypatch.setattr(guard, "this_boot", lambda: "another start of the machine")
    for _ in range(30):
        for name, data in ((path, file), (wal, torn(whole, start, draw)), (lock, said)):
            name.write_bytes(data)
        there = found(path)
        assert there == list(range(len(there)))
        assert level == "normal" or len(there) >= 19
    for name, data in ((path, file), (wal, flipped(whole, ends[-4] + 4000)), (lock, said)):
        name.write_bytes(data)
    with nullcontext() if level == "normal" else pytest.raises(DamagedStorageError):
        found(path)


def test_the_lock_tells_whether_a_power_loss_may_have_torn_commits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may, once any handle did not sync, until somebody opened the file alone; of another start
    of the machine than the one in which the log was begun nothing is taken for granted."""
    path, lock = tmp_path / "store.db", tmp_path / "store.db.lock"
    for how in ("joined", "relaxed"):
        monkeypatch.setattr(guard, "this_boot", lambda: "a" * 36)
        first = SqliteStorage(str(path))
        assert lock.read_text() == "a" * 36 + " full"
        monkeypatch.setattr(guard, "this_boot", lambda: "later")
        others = []
        if how == "joined":
            others += [SqliteStorage(str(path), durability="normal"), SqliteStorage(str(path))]
        else:
            with first.turn(durable=False):
                first.commit(Batch(puts=[(b"1", b"")]))
        assert lock.read_text() == "a" * 36 + " some"
        for one in (first, *others):
            one.close()


def test_what_killed_writers_left_behind_commits_of_others_is_no_damage_of_the_log(
    tmp_path: Path,
) -> None:
    """Two were killed before their commits returned; what others committed there was shorter."""
    SqliteStorage(str(tmp_path / "store.db")).close()
    first = apsw.Connection(str(tmp_path / "store.db"))
    first.execute("PRAGMA journal_mode=WAL; PRAGMA wal_autocheckpoint=0").fetchall()
    first.execute("INSERT INTO records VALUES(x'30', x'')")
    logs, held = [], [first]
    for pages in (1, 12, 24):
        place = tmp_path / f"{pages}.db"
        for end in ("", "-wal"):
            shutil.copy(tmp_path / f"store.db{end}", f"{place}{end}")
        held.append(apsw.Connection(str(place)))
        row = (b"1", bytes(guard.PAGE * pages))
        held[-1].execute("INSERT INTO records VALUES(?, ?)", row)
        logs.append(Path(f"{place}-wal").read_bytes())
    short, longer, longest = logs
    left = short + longer[len(short) :] + longest[len(longer) :]
    shutil.copy(tmp_path / "1.db", tmp_path / "left.db")
    shutil.copy(tmp_path / "store.db.lock", tmp_path / "left.db.lock")
    (tmp_path / "left.db-wal").write_bytes(left)
    storage = SqliteStorage(str(tmp_path / "left.db"))
    assert storage.get([b"0", b"1"]) == [b"", bytes(guard.PAGE)]
    storage.close()
    for one in held:
        one.close()


def test_log_in_use_elsewhere_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the other program is no Holdfast and does not know the lock file."""
    path = tmp_path / "store.db"
    SqliteStorage(str(path)).close()

    def never(place: str) -> None:
        raise AssertionError("wrote the log of a database in use")

    monkeypatch.setattr(guard, "rewrite_wal", never)
    ours = "storage = SqliteStorage(path); put(storage, 1); say('held'); sys.stdin.read()"
    theirs = """
import sqlite3
other = sqlite3.connect(path)
other.execute("INSERT INTO records VALUES(?, ?)", (b"000001", b""))
other.commit(); say('held'); sys.stdin.read()
"""
    for code in (ours, theirs):
        process = start(code, path)
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        assert (tmp_path / "store.db-wal").stat().st_size > 0
        storage = SqliteStorage(str(path))
        assert storage.get([b"000001"]) != [None]
        storage.commit(Batch(drops=[b"000001"]))
        process.communicate(timeout=120)
        storage.close()


def test_log_that_cannot_be_written_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "store.db"
    run(KILLED % "full", path)

    def broken(_fd: int) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", broken)
        with pytest.raises(StorageReadOnlyError, match="log"):
            SqliteStorage(str(path))
        reader = SqliteStorage(str(path), read_only=True)
        assert reader.get([b"000019"]) == [bytes(100)]
        reader.close()
    assert found(path) == list(range(20))


KILLED_IN_CREATION = "storage = SqliteStorage(path); put(storage, 1); say('done')"


@strace
@pytest.mark.parametrize("number", range(1, 11))
def test_kill_while_creating(tmp_path: Path, number: int) -> None:
    """Whenever creation is killed, the next one makes or finds a whole store."""
    path = tmp_path / "store.db"
    inject = f"inject=fdatasync:signal=KILL:when={number}"
    tracing = ("strace", "-f", "-qqq", "-o", "/dev/null", "-e", "trace=fdatasync", "-e", inject)
    said = run(KILLED_IN_CREATION, path, *tracing)
    storage = SqliteStorage(str(path))
    assert storage.get([b"000001"]) == [bytes(100)] if said else True
    storage.commit(Batch(puts=[(b"x", b"")]))
    storage.close()


FAILING_SYNC = """
try: storage = SqliteStorage(path)
except HoldfastError as error: say("open", type(error).__name__); sys.exit()
for number in range(6):
    result = outcome(lambda: put(storage, number))
    if result != "ok":
        say(number, result)
        say(number + 1, outcome(lambda: put(storage, number + 1)))
        say("get", outcome(lambda: storage.get([b"x"])))
        again = SqliteStorage(path)
        put(again, 100)
        again.close()
        break
    say(number, result)
storage.close()
"""


@strace
@pytest.mark.parametrize("number", [1, 4, 9, 10, 11, 12, 13, 14])
def test_failed_sync(tmp_path: Path, number: int) -> None:
    """A failed sync is an unknown outcome, ends the handle, and loses nothing else."""
    path = tmp_path / "store.db"
    inject = f"inject=fdatasync:error=EIO:when={number}"
    tracing = ("-f", "-qqq", "-o", "/dev/null", "-e", "trace=fdatasync", "-e", inject)
    said = [line.split() for line in run(FAILING_SYNC, path, "strace", *tracing)]
    acknowledged = [int(words[0]) for words in said if words[1] == "ok" and words[0] != "get"]
    there = found(path)
    assert set(acknowledged) <= set(there)
    failed = [words[1] for words in said if words[1] != "ok"]
    if number in (11, 13):  # 12 syncs the folder, which SQLite does not mind and we did before
        assert failed == ["OutcomeUnknown", "StoreClosedError", "StoreClosedError"]
        assert 100 in there
    else:
        assert set(failed) <= {"Unavailable", "OutcomeUnknown", "StoreClosedError"}


@strace
def test_failed_sync_of_the_folder(tmp_path: Path) -> None:
    tracing = ("-f", "-qqq", "-o", "/dev/null", "-e", "trace=fsync", "-e", "inject=fsync:error=EIO")
    said = run(FAILING_SYNC, tmp_path / "store.db", "strace", *tracing)
    assert said == ["open Unavailable"]


UNLINKED = """
import sqlite3
storage = SqliteStorage(path)
put(storage, 1)
other = sqlite3.connect(path)
other.execute("SELECT count(*) FROM records").fetchall()
other.close()
try: put(storage, 2)
except OutcomeUnknown as error: say("sqlite3 module" in str(error))
say(outcome(lambda: put(storage, 3)))
storage.close()
again = SqliteStorage(path)
put(again, 4)
again.close()
"""


def test_log_unlinked_by_the_standard_module(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    assert run(UNLINKED, path) == ["True", "StoreClosedError"]
    assert {1, 4} <= set(found(path))


@pytest.mark.parametrize("what", ["database", "log"])
@pytest.mark.parametrize("how", ["replaced", "moved", "removed"])
def test_replaced_database(tmp_path: Path, what: str, how: str) -> None:
    """Noticed before the next commit is acknowledged, also if the folder looks as it did before."""
    path, other = tmp_path / "store.db", tmp_path / "other.db"
    SqliteStorage(str(other)).close()
    storage = SqliteStorage(str(path))
    storage.commit(Batch(puts=[(b"a", b"")]))
    times = os.stat(tmp_path)
    file = path if what == "database" else tmp_path / "store.db-wal"
    if how == "replaced":
        os.replace(other, file)
    elif how == "moved":
        os.rename(file, tmp_path / "elsewhere")
    else:
        os.remove(file)
    os.utime(tmp_path, ns=(times.st_atime_ns, times.st_mtime_ns))
    with pytest.raises(holdfast.errors.OutcomeUnknown, match="replaced"):
        storage.commit(Batch(puts=[(b"b", b"")]))
    storage.close()


@pytest.mark.parametrize("whose", ["another's", "its own"])
@pytest.mark.parametrize("turn", [False, True], ids=["at once", "in its turn"])
def test_a_key_is_not_taken_for_absent_once_it_is_there(
    tmp_path: Path, whose: str, turn: bool
) -> None:
    """It is looked for once only while nobody could have put it."""
    one, other = SqliteStorage(str(tmp_path / "a.db")), SqliteStorage(str(tmp_path / "a.db"))
    for number in range(3):
        one.commit(Batch(puts=[(b"%d" % number, b"")], absent=[b"end"], own=True))
    putter = other if whose == "another's" else one
    putter.commit(Batch(puts=[(b"end", b"")], own=True))
    with one.turn() if turn else nullcontext(), pytest.raises(holdfast.errors.Conflict) as told:
        if turn:
            one.version()
        one.commit(Batch(puts=[(b"last", b"")], absent=[b"end"], own=True))
    assert told.value.keys == (b"end",)
    assert one.get([b"last"]) == [None]
    putter.commit(Batch(drops=[b"end"]))
    one.commit(Batch(puts=[(b"last", b"")], absent=[b"end"], own=True))
    one.close()
    other.close()


STANDARD = """
import sqlite3
if sys.argv[2:]:
    other = SqliteStorage(path)
    put(other, 2)
    other.close()
    sys.exit()
storage = SqliteStorage(path, read_only=True)
storage.version()
same = sqlite3.connect(path)
same.execute("SELECT count(*) FROM records").fetchall()
same.close()  # and with it goes the lock of this process
other = [sys.executable, "-c", sys.orig_argv[2], path, "other"]
os.waitpid(os.spawnv(os.P_NOWAIT, sys.executable, other), 0)
storage._look_at = 0.0
try: storage.version()
except StoreClosedError as error: say(error)
say(outcome(storage.version), outcome(lambda: storage.scan(b"0", b"9")))
storage.close()
"""


def test_a_process_that_only_reads_notices_that_the_log_was_taken_away(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    storage = SqliteStorage(str(path))
    storage.commit(Batch(puts=[(b"1", b"")]))
    storage.close()
    why, *after = run(STANDARD, path)
    assert "the standard sqlite3 module" in why
    assert why.endswith("; open it again")
    assert after == ["StoreClosedError StoreClosedError"]


FULL = """
import shutil
storage = SqliteStorage(path)
ballast = path + ".ballast"
with open(ballast, "wb") as file: file.write(bytes(300_000))
number = 0
while (result := outcome(lambda: put(storage, number, 9000))) == "ok": number += 1
say(number, result, outcome(lambda: storage.get([b"x"])))
say(len(storage.scan(b"0", b"9")))
os.unlink(ballast)
say(outcome(lambda: put(storage, number, 9000)))
storage.close()
shutil.copy(path, sys.argv[2])
"""


@mounts
def test_full_disk(tmp_path: Path) -> None:
    """Nothing is applied, what was acknowledged stays, and it goes on when there is room."""
    room, copy = tmp_path / "room", tmp_path / "copy.db"
    room.mkdir()
    shell = f'mount -t tmpfs -o size=1m tmpfs {room} && exec "$@"'
    line = command(FULL, room / "store.db", "unshare", "-Urm", "sh", "-c", shell, "sh")
    result = subprocess.run(
        [*line, str(copy)],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    first, rows, later = result.stdout.splitlines()
    number, error, reading = first.split()
    assert (error, reading, rows, later) == ("DiskFullError", "ok", number, "ok")
    assert found(copy) == list(range(int(number) + 1))


NO_ROOM = """
folder, ballast, older = os.path.dirname(path), path + ".ballast", path + ".older"
put(SqliteStorage(older), 0)
for free in range(0, 31, 2):
    status = os.statvfs(folder)
    with open(ballast, "wb") as file: file.write(bytes((status.f_bavail - free) * status.f_frsize))
    made = outcome(lambda: SqliteStorage(path).close())
    left = os.path.exists(path) and not os.path.getsize(path)
    left |= os.path.exists(path + ".lock") and not os.path.exists(path)
    opened = outcome(lambda: SqliteStorage(older, read_only=True).close())
    os.unlink(ballast)
    say(made, opened, left, outcome(lambda: SqliteStorage(path).close()))
    for name in os.listdir(folder):
        if not name.startswith(os.path.basename(older)): os.unlink(os.path.join(folder, name))
"""


@mounts
def test_no_room_to_begin(tmp_path: Path) -> None:
    """Neither to make a file nor to open one: it is said; no empty file is left, nor a lock."""
    room = tmp_path / "room"
    room.mkdir()
    shell = f'mount -t tmpfs -o size=1m tmpfs {room} && exec "$@"'
    lines = run(NO_ROOM, room / "store.db", "unshare", "-Urm", "sh", "-c", shell, "sh")
    made, opened, left, later = (set(column) for column in zip(*map(str.split, lines), strict=True))
    assert made == {"DiskFullError", "ok"}
    assert opened <= {"DiskFullError", "ok"}
    assert left == {"False"}
    assert later == {"ok"}


SHORT = """
import resource
storage = SqliteStorage(path)
resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, resource.RLIM_INFINITY))
number = 0
while (result := outcome(lambda: put(storage, number, 5000))) == "ok": number += 1
say(number, result)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
storage.close()
"""


def test_short_write(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    (line,) = run(SHORT, path)
    number, error = line.split()
    assert error in ("DiskFullError", "OutcomeUnknown")
    there = found(path)
    assert there[: int(number)] == list(range(int(number)))
    assert error == "OutcomeUnknown" or len(there) == int(number)


READ_ONLY = """
say(outcome(lambda: SqliteStorage(path)))
say(outcome(lambda: SqliteStorage(path + ".new")))
reader = SqliteStorage(path, read_only=True)
say(reader.get([b"k"])[0].decode())
reader.close()
"""


@mounts
def test_read_only_folder(tmp_path: Path) -> None:
    room = tmp_path / "room"
    room.mkdir()
    storage = SqliteStorage(str(room / "store.db"))
    storage.commit(Batch(puts=[(b"k", b"there")]))
    storage.close()
    (room / "store.db.lock").unlink()
    shell = f'mount --bind {room} {room} && mount -o remount,ro,bind {room} && exec "$@"'
    said = run(READ_ONLY, room / "store.db", "unshare", "-Urm", "sh", "-c", shell, "sh")
    assert said == ["StorageReadOnlyError", "StorageReadOnlyError", "there"]


def test_place_that_takes_no_file() -> None:
    with pytest.raises(Unavailable):
        SqliteStorage("/proc/self/store.db")


LOCKED = """
import sqlite3
other = sqlite3.connect(path, isolation_level=None)
other.execute("BEGIN EXCLUSIVE")
say("held"); sys.stdin.read()
"""


def test_other_program_locks_the_database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "BUSY_SECONDS", 0.1)
    path = tmp_path / "store.db"
    storage = SqliteStorage(str(path))
    process = start(LOCKED, path)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    with pytest.raises(holdfast.errors.StoreLockedError, match="close it there"):
        storage.commit(Batch(puts=[(b"a", b"")]))
    process.communicate(timeout=120)
    storage.commit(Batch(puts=[(b"a", b"")]))
    storage.close()


BUSY = """
import threading
storage = SqliteStorage(path, durability="normal")
over = threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), over.set()), daemon=True).start()
number = 0
while not over.is_set():
    put(storage, number)
    number += 1
    if number == 10: say("busy")
storage.close()
"""
BESIDE = """
storage = SqliteStorage(path, durability="normal")
def others():
    return int(storage.scan(b"000000", b"500000", limit=1, reverse=True)[0][0])
for number in range(100):
    before = others()
    put(storage, 500000 + number)
    say(others() - before)
storage.close()
"""


def test_two_processes_share_fairly(tmp_path: Path) -> None:
    """Commits of one wait for few of another that never pauses. A process that is held up waits for
    many, so that the five which waited longest do not count."""
    path = tmp_path / "store.db"
    SqliteStorage(str(path)).close()
    busy = start(BUSY, path)
    assert busy.stdout is not None
    assert busy.stdout.readline() == "busy\n"
    waited = sorted(map(int, run(BESIDE, path)))
    assert busy.poll() is None
    _, errors = busy.communicate(timeout=120)
    assert busy.returncode == 0, errors
    assert len(waited) == 100
    assert sum(waited[:95]) < 9 * 95, "it gets less than a tenth"


def test_several_processes_create_at_once(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    code = "storage = SqliteStorage(path); put(storage, os.getpid()); storage.close(); say('ok')"
    processes = [start(code, path) for _ in range(4)]
    for process in processes:
        out, errors = process.communicate(timeout=120)
        assert out == "ok\n", errors
    assert len(found(path)) == 4
