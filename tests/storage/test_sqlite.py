"""The SQLite engine refuses what it cannot trust, and says which file and what to do."""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import apsw
import pytest

from holdfast.errors import (
    DamagedRecordError,
    DamagedStorageError,
    ForeignSchemaError,
    NewerFormatError,
    NotAStoreError,
    ReadOnlyError,
    StoreClosedError,
    StoreLockedError,
    StoreNotFoundError,
    UnsafePlaceError,
)
from holdfast.storage import open_storage
from holdfast.storage.contract import Batch
from holdfast.storage.sqlite import files, guard
from holdfast.storage.sqlite.engine import SqliteStorage


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


def make(path: Path, rows: int = 1) -> None:
    storage = SqliteStorage(str(path))
    storage.commit(Batch(puts=[(b"k%d" % n, bytes(500)) for n in range(rows)]))
    storage.close()


def sql(path: Path, *statements: str) -> None:
    """Change the file at rest, as another program would."""
    connection = sqlite3.connect(path)
    for statement in statements:
        connection.execute(statement)
    connection.commit()
    connection.close()


def contents(folder: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in folder.iterdir() if p.suffix != ".lock"}


def test_pragmas_and_schema(path: Path) -> None:
    storage = SqliteStorage(str(path))

    def pragma(connection: apsw.Connection, name: str) -> object:
        return connection.execute(f"PRAGMA {name}").get

    for connection in (storage._reader, storage._writer):
        names = ("page_size", "auto_vacuum", "journal_mode", "synchronous", "secure_delete")
        assert [pragma(connection, n) for n in names] == [8192, 2, "wal", 2, 1]
        more = ("trusted_schema", "mmap_size", "cell_size_check", "application_id")
        assert [pragma(connection, n) for n in more] == [0, 0, 1, 0x486F6C64]
        assert pragma(connection, "user_version") == 1
        assert connection.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, -1) == 1
        assert connection.config(apsw.SQLITE_DBCONFIG_ENABLE_TRIGGER, -1) == 0
        assert connection.config(apsw.SQLITE_DBCONFIG_ENABLE_VIEW, -1) == 0
    storage.close()
    normal = SqliteStorage(str(path), durability="normal")
    assert pragma(normal._writer, "synchronous") == 1
    normal.close()
    assert sorted(p.name for p in path.parent.iterdir()) == ["store.db", "store.db.lock"]


def test_only_a_turn_that_need_not_be_durable_is_not_synced(path: Path) -> None:
    storage = SqliteStorage(str(path))

    def level() -> object:
        return storage._writer.pragma("synchronous")

    with storage.turn(durable=False):
        assert level() == 1
        storage.commit(Batch(puts=[(b"a", b"1")]))
    assert level() == 2
    with pytest.raises(KeyError), storage.turn(durable=False):
        raise KeyError
    assert level() == 2
    with storage.turn():
        assert level() == 2
    assert storage.get([b"a"]) == [b"1"]
    storage.close()


@pytest.mark.parametrize(
    ("statement", "error"),
    [
        ("CREATE TABLE extra(x)", ForeignSchemaError),
        ("CREATE VIEW extra AS SELECT 1", ForeignSchemaError),
        ("CREATE INDEX extra ON records(v)", ForeignSchemaError),
        (
            "CREATE TRIGGER extra AFTER INSERT ON records BEGIN DELETE FROM records; END",
            ForeignSchemaError,
        ),
        ("DROP TABLE cells", ForeignSchemaError),
        ("PRAGMA user_version=2", NewerFormatError),
        ("PRAGMA user_version=0", DamagedStorageError),
        ("PRAGMA application_id=7", NotAStoreError),
    ],
)
def test_foreign_schema_is_refused(path: Path, statement: str, error: type[Exception]) -> None:
    make(path)
    sql(path, statement)
    before = contents(path.parent)
    with pytest.raises(error, match=r"store\.db"):
        SqliteStorage(str(path))
    assert contents(path.parent) == before


@pytest.mark.parametrize("mode", ["delete", "wal"])
def test_database_of_another_program(path: Path, mode: str) -> None:
    sql(path, f"PRAGMA journal_mode={mode}", "CREATE TABLE theirs(x)")
    before = contents(path.parent)
    with pytest.raises(NotAStoreError, match="another program"):
        SqliteStorage(str(path))
    assert contents(path.parent) == before
    assert [p.name for p in path.parent.iterdir()] == ["store.db"]


@pytest.mark.parametrize("content", [b"x", b"some text\n" * 2000, bytes(8192)])
def test_not_a_database(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with pytest.raises(NotAStoreError):
        SqliteStorage(str(path))
    assert contents(path.parent) == {"store.db": content}


def test_empty_file_becomes_a_store_only_when_allowed(path: Path) -> None:
    path.touch()
    with pytest.raises(NotAStoreError, match="create=True"):
        SqliteStorage(str(path), create=False)
    make(path)
    assert path.stat().st_size > 0


@pytest.mark.parametrize("keep", [8192, 8192 * 3, 8192 * 6 + 100])
def test_truncated_file(path: Path, keep: int) -> None:
    make(path, rows=400)
    os.truncate(path, keep)

    def use() -> None:
        storage = SqliteStorage(str(path))
        try:
            storage.scan(b"k", b"l")
        finally:
            storage.close()

    with pytest.raises(DamagedRecordError, match="backup"):
        use()


def test_overwritten_page_is_damage(path: Path) -> None:
    make(path, rows=400)
    with path.open("r+b") as file:
        file.seek(8192 * 5)
        file.write(b"\xaa" * 8192 * 20)
    storage = SqliteStorage(str(path))
    with pytest.raises(DamagedRecordError):
        storage.scan(b"k", b"l")
    storage.close()


def test_missing_places(tmp_path: Path) -> None:
    with pytest.raises(StoreNotFoundError, match="no-such-folder"):
        SqliteStorage(str(tmp_path / "no-such-folder" / "store.db"))
    with pytest.raises(StoreNotFoundError, match="create=True"):
        SqliteStorage(str(tmp_path / "store.db"), create=False)
    with pytest.raises(StoreNotFoundError):
        SqliteStorage(str(tmp_path / "store.db"), read_only=True)
    with pytest.raises(NotAStoreError, match="folder"):
        SqliteStorage(str(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_version_is_known_while_another_thread_commits(path: Path) -> None:
    """Else whoever reads beside a commit, and its sync, looks for new entries each time."""
    storage, other = SqliteStorage(str(path)), SqliteStorage(str(path))
    beside = ThreadPoolExecutor(1)

    def asked() -> object:
        return beside.submit(storage.version).result()

    before = storage.version()
    with storage.turn():
        assert asked() != before, "nothing was noted for a first one who asks"
    with storage.turn():
        assert [asked(), asked()] == [before, before]
        storage.commit(Batch(puts=[(b"own", b"")]))
        assert asked() != before, "who may commit since is not known before the turn ends"
    assert asked() == before, "its own commit is not counted"
    other.commit(Batch(puts=[(b"of another", b"")]))
    with storage.turn():
        assert asked() != before
    with storage.turn():
        now = asked()
        assert now == asked() != before
    assert storage.version() == now
    beside.shutdown()
    other.close()
    storage.close()


def test_opened_for_reading(path: Path) -> None:
    make(path)
    reader = SqliteStorage(str(path), read_only=True)
    assert reader.get([b"k0"]) == [bytes(500)]
    with pytest.raises(ReadOnlyError):
        reader.commit(Batch(puts=[(b"x", b"")]))
    writer = SqliteStorage(str(path))
    before = reader.version()
    writer.commit(Batch(puts=[(b"x", b"")]))
    assert reader.version() != before
    assert reader.get([b"x"]) == [b""]
    writer.close()
    reader.close()


@pytest.mark.parametrize("kind", ["nfs4", "cifs", "9p", "fuse.sshfs", "fuseblk"])
def test_shared_mounts_are_refused(path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    device = os.stat(path.parent).st_dev
    table = path.parent / "mountinfo"
    number = f"{os.major(device)}:{os.minor(device)}"
    table.write_text(
        f"22 1 0:999 / /proc rw - proc proc rw\n36 1 {number} / /x rw,shared:1 - {kind} src rw\n"
    )
    monkeypatch.setattr(guard, "MOUNTS", str(table))
    with pytest.raises(UnsafePlaceError, match=kind):
        SqliteStorage(str(path))
    assert not path.exists()


def test_own_mount_table_is_read(tmp_path: Path) -> None:
    assert guard.mount_type("/proc") == "proc"
    assert guard.mount_type(str(tmp_path)) not in ("", "proc")


def test_another_connection_holds_the_store(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "BUSY_SECONDS", 0.1)
    storage = SqliteStorage(str(path))
    holder = SqliteStorage(str(path))
    with holder.turn():
        started = time.monotonic()
        with pytest.raises(StoreLockedError, match="try again"):
            storage.commit(Batch(puts=[(b"a", b"")]))
        assert time.monotonic() - started > 0.09, "it has waited for the other"
        assert storage.get([b"a"]) == [None]
    storage.commit(Batch(puts=[(b"a", b"")]))
    assert holder.get([b"a"]) == [b""]
    holder.close()
    storage.close()


def test_what_is_read_in_a_turn_stays_true(path: Path) -> None:
    one, two = SqliteStorage(str(path)), SqliteStorage(str(path))
    done = threading.Event()

    def other() -> None:
        two.commit(Batch(puts=[(b"b", b"")]))
        done.set()

    thread = threading.Thread(target=other)
    with one.turn():
        thread.start()
        assert not done.wait(0.02)
        assert one.get([b"b"]) == [None]
        one.commit(Batch(puts=[(b"a", b"")], absent=[b"b"]))
    thread.join()
    assert one.get([b"a", b"b"]) == [b"", b""]
    one.close()
    two.close()


def test_reads_do_not_wait_for_a_commit(path: Path) -> None:
    storage = SqliteStorage(str(path))
    storage.commit(Batch(puts=[(b"a", b"1")]))
    entered, leave = threading.Event(), threading.Event()

    def hold() -> None:
        with storage.turn():
            entered.set()
            leave.wait(60)

    thread = threading.Thread(target=hold)
    thread.start()
    assert entered.wait(60)
    assert storage.get([b"a"]) == [b"1"]
    storage.version()
    leave.set()
    thread.join()
    storage.close()


def test_log_stays_small(path: Path) -> None:
    storage = SqliteStorage(str(path), durability="normal")
    wal = Path(f"{path}-wal")
    largest = 0
    for number in range(1500):
        storage.commit(Batch(puts=[(b"%06d" % number, os.urandom(900))]))
        largest = max(largest, wal.stat().st_size)
    assert largest <= 2 << 20
    for number in range(4):
        large = [(b"L%d/%d" % (number, n), os.urandom(1 << 20)) for n in range(4)]
        storage.commit(Batch(puts=large))
        assert wal.stat().st_size <= 2 << 20
    storage.close()


def test_log_stays_small_beside_readers(path: Path) -> None:
    storage, other = SqliteStorage(str(path), durability="normal"), SqliteStorage(str(path))
    stop, read_once = threading.Event(), threading.Event()

    def read() -> None:
        while not stop.is_set():
            other.scan(b"0", b"9", limit=50)
            read_once.set()

    thread = threading.Thread(target=read)
    thread.start()
    try:
        largest = 0
        for number in range(600):
            storage.commit(Batch(puts=[(b"%06d" % number, os.urandom(900))]))
            largest = max(largest, Path(f"{path}-wal").stat().st_size)
            if number % 8 == 0:  # one that is held up in a read rightly keeps the log
                read_once.clear()
                assert read_once.wait(60)
    finally:
        stop.set()
        thread.join()
    assert largest <= 2 << 20
    storage.close()
    other.close()


def test_drops_give_room_back(path: Path) -> None:
    storage = SqliteStorage(str(path), durability="normal")
    keys = [b"%06d" % n for n in range(2000)]
    storage.commit(Batch(puts=[(key, bytes(4000)) for key in keys]))
    full = storage.size()
    for at in range(0, 2000, 100):
        storage.commit(Batch(drops=keys[at : at + 100]))
    storage.close()
    assert path.stat().st_size < full / 4


def test_dropped_bytes_are_gone_from_the_file(path: Path) -> None:
    storage = SqliteStorage(str(path))
    storage.commit(Batch(puts=[(b"a", b"find-me" * 100), (b"b", b"x")]))
    storage.commit(Batch(drops=[b"a"]))
    storage.close()
    assert b"find-me" not in path.read_bytes()


def test_replaced_schema_while_open_is_not_run(path: Path) -> None:
    """A trigger planted while the store is open does not run on our connection."""
    storage = SqliteStorage(str(path))
    planted = apsw.Connection(str(path))
    planted.execute("CREATE TRIGGER t AFTER INSERT ON records BEGIN DELETE FROM records; END")
    planted.close()
    storage.commit(Batch(puts=[(b"a", b"1")]))
    assert storage.get([b"a"]) == [b"1"]
    storage.close()
    with pytest.raises(ForeignSchemaError, match="trigger"):
        SqliteStorage(str(path))


def test_version_is_cheap(path: Path) -> None:
    """It asks one thing of one connection, which reads no page."""
    storage, asked = SqliteStorage(str(path)), list[str]()

    def note(_: object, sql: str, __: object) -> bool:
        asked.append(sql)
        return True

    for connection in (storage._reader, storage._writer):
        connection.exec_trace = note
    for _ in range(200):
        storage.version()
    assert asked == ["PRAGMA data_version"] * 200
    storage.close()


def test_default_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    open_storage("sqlite:").close()
    assert (tmp_path / "holdfast.db").stat().st_size >= 2 * files.PAGE


def test_link_and_file_are_one_store(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (tmp_path / "link.db").symlink_to(folder / "store.db")
    linked = SqliteStorage(str(tmp_path / "link.db"))
    direct = SqliteStorage(str(folder / "store.db"))
    linked.commit(Batch(puts=[(b"a", b"1")]))
    assert direct.get([b"a"]) == [b"1"]
    assert linked._files[1] == direct._files[1] is not None
    linked.close()
    direct.close()
    assert sorted(p.name for p in folder.iterdir()) == ["store.db", "store.db.lock"]


class Broken:
    """Fails where the log is moved; everything else goes to the real connection."""

    def __init__(self, inner: apsw.Connection) -> None:
        self.inner = inner

    def __getattr__(self, name: str) -> object:
        return getattr(self.inner, name)

    def wal_checkpoint(self, **_: object) -> None:
        raise apsw.IOError("disk I/O error")


def test_a_long_log_of_drops_is_moved_while_others_commit(path: Path) -> None:
    storage = SqliteStorage(str(path))
    keys = [b"%06d" % number for number in range(2000)]
    for low in range(0, 2000, 50):
        storage.commit(Batch(puts=[(key, bytes(4000)) for key in keys[low : low + 50]]))
    kept: list[bytes] = []
    over = threading.Event()

    def write() -> None:
        while not over.is_set():
            kept.append(b"kept %d" % len(kept))
            storage.commit(Batch(puts=[(kept[-1], b"")]))

    writer = threading.Thread(target=write)
    writer.start()
    for low in range(0, 2000, 50):
        storage.commit(Batch(drops=keys[low : low + 50]))
    over.set()
    writer.join()
    assert storage._mover.connection is not None
    wal = Path(f"{path}-wal")
    for _ in range(files.WAL_PAGES):
        if wal.stat().st_size < 2 * files.WAL_BYTES:
            break
        # Whoever moved the log was held up, and others went on: one of the next commits cuts it.
        kept.append(b"kept %d" % len(kept))
        storage.commit(Batch(puts=[(kept[-1], b"")]))
    assert wal.stat().st_size < 2 * files.WAL_BYTES
    assert [key for key, _ in storage.scan(b"", b"z", limit=10_000)] == sorted(kept)
    storage.close()
    assert sorted(p.name for p in path.parent.iterdir()) == ["store.db", "store.db.lock"]


def test_a_log_that_cannot_be_moved_beside_commits_ends_the_handle(path: Path) -> None:
    storage = SqliteStorage(str(path))
    keys = [b"%06d" % number for number in range(800)]
    storage.commit(Batch(puts=[(key, bytes(8000)) for key in keys]))
    storage._mover.move()
    assert storage._mover.connection is not None
    storage._mover.connection = Broken(storage._mover.connection)  # type: ignore[assignment]
    storage.commit(Batch(drops=keys[:400]))
    with pytest.raises(StoreClosedError, match="moving the log"):
        storage.get([b"a"])
    again = SqliteStorage(str(path))
    assert [key for key, _ in again.scan(b"", b"z")] == keys[400:]
    again.close()


def test_failed_checkpoint_ends_the_handle_but_not_the_commit(path: Path) -> None:
    storage = SqliteStorage(str(path))
    storage.commit(Batch(puts=[(b"a", b"1")]))
    storage._writer = Broken(storage._writer)  # type: ignore[assignment]
    storage._shorten()
    with pytest.raises(StoreClosedError, match="moving the log"):
        storage.get([b"a"])
    storage.close()
    again = SqliteStorage(str(path))
    assert again.get([b"a"]) == [b"1"]
    again.close()


def test_odd_names(tmp_path: Path) -> None:
    for name in ("with space.db", "q?mode=ro#x.db", "ünï.db", "file:a.db"):
        storage = open_storage(f"sqlite:{tmp_path / name}")
        storage.commit(Batch(puts=[(b"a", b"1")]))
        storage.close()
        assert (tmp_path / name).exists()


def test_what_is_no_file_is_no_store(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.db"
    os.mkfifo(pipe)
    for path in (str(pipe), os.devnull):
        for create in (True, False):
            with pytest.raises(NotAStoreError, match="name a file"):
                SqliteStorage(path, create=create)
    assert os.listdir(tmp_path) == ["pipe.db"]


def test_no_lock_is_left_where_no_store_could_be_made(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setitem(files.TABLES, "records", "no SQL")
        with pytest.raises(ForeignSchemaError):
            SqliteStorage(str(path))
    assert os.listdir(path.parent) == []


def test_a_lock_that_was_taken_away_meanwhile_is_taken_anew(path: Path) -> None:
    """Two processes never hold two files for one store."""
    failed = guard.StoreLock(str(path), optional=False)
    waiting = guard.StoreLock(str(path), optional=False)
    failed.remove()
    failed.release()
    later = guard.StoreLock(str(path), optional=False)
    alone: list[bool] = []
    for lock in (waiting, later):
        lock.share(lambda: bool(alone), alone.append)
    assert alone == [True]  # the one that came second found the first there
    waiting.remove()  # in use: it stays
    assert os.path.exists(f"{path}.lock")
