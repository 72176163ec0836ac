"""A SQLite file that is open when the process forks: the child opens it anew.

Each runs in a process of its own; a child of it that hangs is ended by its alarm.
"""

from __future__ import annotations

from pathlib import Path

from test_sqlite_faults import found, run

FORKS = """
import os, signal, threading
from holdfast.storage.sqlite import process_fork as sqlite_forks
def forked(work):
    "A child that does this work, and a call that waits for it and says how it went."
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        code = 1
        try:
            work()
            code = 0
        except HoldfastError as error:
            say(type(error).__name__, error)
        finally:
            os._exit(code)
    return lambda: os.waitpid(child, 0)[1]
def pipe():
    "Calls that wait for a word, and that give it."
    ends = os.pipe()
    return lambda: os.read(ends[0], 1), lambda: os.write(ends[1], b"x")
"""


FORKED = """
storage = SqliteStorage(path)
put(storage, 1)
child = os.fork()
if child == 0:
    calls = [lambda: put(storage, 2), lambda: storage.get([b"a"]), storage.version, storage.size,
             lambda: storage.scan(b"a", b"b"), lambda: storage.turn().__enter__()]
    say(*{outcome(call) for call in calls})
    storage.close()
    own = SqliteStorage(path)
    put(own, 3)
    own.close()
    del storage
    sys.exit()
os.waitpid(child, 0)
put(storage, 4)
say("parent", len(storage.scan(b"0", b"9")))
storage.close()
"""


def test_fork(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    assert run(FORKED, path) == ["StoreForkedError", "parent 3"]
    assert found(path) == [1, 3, 4]


def test_a_parent_that_closes_takes_nothing_from_its_child(tmp_path: Path) -> None:
    """Neither what it writes nor what others write behind its reads."""
    path = tmp_path / "store.db"
    code = """
if sys.argv[2:]:
    other = SqliteStorage(path)
    put(other, int(sys.argv[2]))
    other.close()
    sys.exit()
storage = SqliteStorage(path)
put(storage, 1)
ready, tell_ready = pipe()
closed, tell_closed = pipe()
def work():
    own, reader = SqliteStorage(path), SqliteStorage(path, read_only=True)
    say(len(reader.scan(b"0", b"9")))
    put(own, 2)
    tell_ready()
    closed()
    for number in (4, 6, 8):
        put(own, number - 1)
        other = [sys.executable, "-c", sys.orig_argv[2], path, str(number)]
        os.waitpid(os.spawnv(os.P_NOWAIT, sys.executable, other), 0)
        say(len(reader.scan(b"0", b"9")))
wait = forked(work)
ready()
storage.close()
say(os.path.exists(path + "-wal"))  # for the child has it open
tell_closed()
say(wait())
"""
    assert run(FORKS + code, path) == ["1", "True", "4", "6", "8", "0"]
    assert found(path) == [1, 2, 3, 4, 5, 6, 7, 8]


def test_a_child_that_only_reads_sees_what_others_write(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    code = """
if sys.argv[2:]:
    storage = SqliteStorage(path)
    put(storage, int(sys.argv[2]))
    storage.close()
    sys.exit()
storage = SqliteStorage(path)
ready, tell_ready = pipe()
closed, tell_closed = pipe()
def work():
    own = SqliteStorage(path)
    say(len(own.scan(b"0", b"9")))
    tell_ready()
    closed()
    for number in range(3):
        other = [sys.executable, "-c", sys.orig_argv[2], path, str(number)]
        os.waitpid(os.spawnv(os.P_NOWAIT, sys.executable, other), 0)
        say(len(own.scan(b"0", b"9")))
wait = forked(work)
ready()
storage.close()
tell_closed()
say(wait())
"""
    assert run(FORKS + code, path) == ["0", "1", "2", "3", "0"]


BUSY = """
import time
from itertools import count
stop, acknowledged, failed = threading.Event(), [], []
storage = SqliteStorage(path, durability="normal")
def again(work):
    def loop():
        try:
            for number in count():
                if stop.is_set(): return
                work(number)
        except BaseException as error:
            failed.append(error)
    thread = threading.Thread(target=loop)
    thread.start()
    return thread
def write(number):
    put(storage, number)
    acknowledged.append(number)
def read(number): storage.get([b"0", b"1"]); storage.scan(b"0", b"9"); storage.version()
def look(number):
    with storage.moment() as moment:
        moment.scan(b"0", b"9", limit=5)
        time.sleep(0.001)
        moment.scan(b"0", b"9", limit=5)
def check(number): assert storage.check() == []
def open_and_close(number):
    with_key = SqliteStorage(path + ".keys", durability="normal")
    put(with_key, number)
    with_key.close()
def work(number):
    own, keys = SqliteStorage(path), SqliteStorage(path + ".keys")
    put(own, number)
    put(keys, number)
    def below():
        mine = SqliteStorage(path)
        put(mine, number + 1)
        mine.close()
    wait = forked(below)
    put(own, number + 2)
    assert wait() == 0
def fork(numbers):
    for number in numbers:
        if forked(lambda: work(number))() == 0:
            acknowledged.extend(range(number, number + 3))
threads = [again(work) for work in (write, read, look, check, open_and_close)]
while not acknowledged: time.sleep(0.01)
sqlite_forks.LONGEST = 60.0  # to end a hang only
parts = [range(low, low + 30, 5) for low in (500_000, 600_000)]
others = [threading.Thread(target=fork, args=(part,)) for part in parts]
for other in others: other.start()
for other in others: other.join()
stop.set()
for thread in threads: thread.join()
there = {int(key) for key, _ in storage.scan(b"0", b"9", limit=100_000)}
say(failed, set(acknowledged) <= there, len([n for n in there if n >= 500_000]))
storage.close()
"""


def test_forks_while_all_else_goes_on(tmp_path: Path) -> None:
    """Commits, reads, moments, checks, another file that is opened and closed, forks of two
    threads and of children: each child opens both files and writes."""
    assert run(FORKS + BUSY, tmp_path / "store.db") == ["[] True 36"]


def test_a_fork_in_a_turn_leaves_the_file_to_the_parent(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    code = """
storage, other = SqliteStorage(path), SqliteStorage(path + ".other")
put(storage, 1)
def work():
    say(outcome(lambda: put(storage, 9)))
    put(SqliteStorage(path + ".other"), 2)
    own = SqliteStorage(path)
with storage.turn():
    say(forked(work)())
    put(storage, 3)
say(forked(lambda: put(SqliteStorage(path), 4))())
put(storage, 5)
"""
    said = run(FORKS + code, path)
    assert said[0] == "StoreForkedError"
    assert said[1].startswith("StoreForkedError")
    assert "'spawn'" in said[1]
    assert said[2:] == ["256", "0"]
    assert found(path) == [1, 3, 4, 5]


def test_a_fork_waits_only_so_long_for_a_call(tmp_path: Path) -> None:
    """The parent goes on; the child opens a file that was not open."""
    path = tmp_path / "store.db"
    code = """
storage = SqliteStorage(path)
sqlite_forks.LONGEST = 0.2
begun, end = threading.Event(), threading.Event()
def long():
    with storage.turn():
        begun.set()
        end.wait(60)
        put(storage, 1)
thread = threading.Thread(target=long)
thread.start()
assert begun.wait(60)
def below():
    say(outcome(lambda: SqliteStorage(path)))
def work():
    put(SqliteStorage(path + ".new"), 1)
    say(forked(below)())
    SqliteStorage(path)
say(forked(work)())
end.set()
thread.join()
say(forked(lambda: put(SqliteStorage(path), 2))())
put(storage, 3)
"""
    said = run(FORKS + code, path)
    assert said[:2] == ["StoreForkedError", "0"]
    assert said[2].startswith("StoreForkedError")
    assert said[3:] == ["256", "0"]
    assert found(path) == [1, 2, 3]


def test_a_fork_in_a_moment_ends_it_in_the_child_alone(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    code = """
storage = SqliteStorage(path)
put(storage, 1)
with storage.moment() as moment:
    def work():
        say(outcome(lambda: moment.scan(b"0", b"9")))
        own = SqliteStorage(path)
        put(own, 2)
        own.close()
    say(forked(work)())
    say(len(moment.scan(b"0", b"9")), len(storage.scan(b"0", b"9")))
storage.close()
say(os.path.exists(path + "-wal"))
"""
    assert run(FORKS + code, path) == ["StoreClosedError", "0", "1 2", "False"]


def test_a_child_keeps_nobody_from_preparing_the_file(tmp_path: Path) -> None:
    """A lock of a file that another thread opens at the fork would be held by the child, too."""
    path = tmp_path / "store.db"
    code = """
import fcntl
from holdfast.storage.sqlite import guard as sqlite_guard
sqlite_forks.LONGEST = 0.2
begun, end = threading.Event(), threading.Event()
def slow(self, alone):
    begun.set()
    end.wait(60)
    raise StoreLockedError("given up")
real, SqliteStorage._prepare = SqliteStorage._prepare, slow
thread = threading.Thread(target=lambda: outcome(lambda: SqliteStorage(path)))
thread.start()
assert begun.wait(60)
ready, tell_ready = pipe()
done, tell_done = pipe()
def work():
    tell_ready()
    done()
wait = forked(work)
ready()
end.set()
thread.join()
with open(path + ".lock", "w") as file:
    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
tell_done()
say(wait())
"""
    assert run(FORKS + code, path) == ["0"]
