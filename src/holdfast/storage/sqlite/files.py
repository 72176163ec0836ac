"""Making, checking and opening the SQLite file: schema, pragmas, the log after a crash."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from urllib.parse import quote

import apsw

from holdfast.errors import HoldfastError
from holdfast.storage.sqlite import guard as guard
from holdfast.storage.sqlite import process_fork as forks

PAGE = guard.PAGE
WAL_PAGES = 224
"""Pages in the log at which a commit moves them into the database."""
WAL_BYTES = 31 << 16
"""Size of the log file at which a commit also shortens it."""
TABLES = {
    name: f"CREATE TABLE {name}(k BLOB NOT NULL UNIQUE, v BLOB NOT NULL)"
    for name in ("records", "cells")
}
SCHEMA = {("table", name, name, sql) for name, sql in TABLES.items()} | {
    ("index", f"sqlite_autoindex_{name}_1", name, None) for name in TABLES
}
_SAFETY = (
    (apsw.SQLITE_DBCONFIG_DEFENSIVE, 1),
    (apsw.SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0),
    (apsw.SQLITE_DBCONFIG_ENABLE_TRIGGER, 0),
    (apsw.SQLITE_DBCONFIG_ENABLE_VIEW, 0),
)

Patience = Callable[[int], bool]
"""SQLite's busy handler: told how often it was asked, says whether to try once more."""


def connect(
    path: str, patience: Patience, *, write: bool, create: bool = False, vfs: str | None = None
) -> apsw.Connection:
    """A connection on which nothing planted in the schema is run or believed; only for one who
    has joined `process_fork`."""
    flags = apsw.SQLITE_OPEN_READWRITE if write else apsw.SQLITE_OPEN_READONLY
    name = path
    if create:
        flags |= apsw.SQLITE_OPEN_CREATE
    elif not write and guard.frozen(path):
        # Reading with a log takes a file beside the database, which cannot be made here, and
        # nobody can write here either.
        flags |= apsw.SQLITE_OPEN_URI
        name = f"file:{quote(path)}?immutable=1"
    try:
        connection = apsw.Connection(name, flags=flags, vfs=vfs)
    except apsw.Error as error:
        raise guard.translate(error, path) from None
    forks.opened(connection, path)
    connection.set_busy_handler(patience)
    for option, value in _SAFETY:
        connection.config(option, value)
    _run(connection, "mmap_size=0", "cell_size_check=ON", "trusted_schema=OFF")
    return connection


def create(path: str, patience: Patience, *, private: bool) -> None:
    """Make the tables in one transaction before a log exists, so that the header in the
    file alone always tells whose it is. What an earlier try left is rolled back by the read.
    If it fails, it leaves no file: only whoever holds the lock exclusively creates one.
    """
    new = not os.path.exists(path)
    if private or new:
        # First, and not by SQLite: what it puts beside a file is as open to others as that is.
        with suppress(OSError):  # which SQLite meets as well, and says
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o600))
            os.chmod(path, 0o600)
    connection = connect(path, patience, write=True, create=True)
    try:
        _run(connection, f"page_size={PAGE}", "synchronous=EXTRA")
        if connection.execute("PRAGMA page_count").get:
            check_schema(connection, path)
        else:
            # No `with connection`: where the disk is full, SQLite has ended the transaction
            # already, and the savepoint that apsw goes back to is not there any more.
            connection.execute("BEGIN")
            # Inside, because it writes: a file with this and no tables would look foreign.
            numbers = f"application_id={guard.APPLICATION_ID}", f"user_version={guard.FORMAT}"
            _run(connection, "auto_vacuum=INCREMENTAL", *numbers)
            for sql in TABLES.values():
                connection.execute(sql)
            connection.execute("COMMIT")
        _run(connection, "journal_mode=WAL")
        new = False
    except apsw.Error as error:
        raise guard.translate(error, path) from None
    finally:
        connection.close()
        if new:
            guard.remove(path)


def settle_log(path: str, patience: Patience) -> None:
    """Make what a crash left in the log durable, and move it into the database."""
    guard.rewrite_wal(path)
    connection = connect(path, patience, write=True)
    try:
        _run(connection, "synchronous=FULL")
        check_schema(connection, path)
        connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    except apsw.Error as error:
        raise guard.translate(error, path) from None
    finally:
        connection.close()


def remove_empty_log(path: str, patience: Patience) -> None:
    """Take away a log that reading made: SQLite does so as a connection that may write is closed,
    if nobody else has the file open. Where that is not allowed, the log stays."""
    if os.path.exists(path + "-wal") and not guard.file_size(path + "-wal"):
        with suppress(apsw.Error, HoldfastError):
            connection = connect(path, patience, write=True)
            try:
                connection.execute("SELECT count(*) FROM sqlite_schema").fetchall()
            finally:
                connection.close()


def check_schema(connection: apsw.Connection, path: str) -> None:
    """Refuse a file that holds anything but our two tables, and leave it as it is."""
    application = connection.execute("PRAGMA application_id").get
    number = connection.execute("PRAGMA user_version").get
    guard.check_format(path, application, number)
    try:
        found = set(connection.execute("SELECT type, name, tbl_name, sql FROM sqlite_schema"))
    except UnicodeDecodeError:
        raise guard.foreign(path, "a table whose name is no text") from None
    for row in sorted(found ^ SCHEMA, key=str):
        if guard.file_size(path + "-wal"):
            # The last one to close moves the log into the database, unless told otherwise.
            connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        raise guard.foreign(path, f"the {row[0]} {row[1]!r}")


def configure(connection: apsw.Connection, path: str, *, full: bool) -> None:
    """Settings of a connection; a writing one also makes sure of the log."""
    if not connection.readonly("main"):
        mode = connection.execute("PRAGMA journal_mode=WAL").get
        if mode != "wal":
            raise guard.foreign(path, f"the journal mode {mode!r}")
        # A commit moves the log itself: SQLite's own way hides a failed sync.
        _run(connection, "wal_autocheckpoint=0", f"journal_size_limit={WAL_PAGES * PAGE}")
    _run(
        connection,
        f"synchronous={'FULL' if full else 'NORMAL'}",
        "secure_delete=ON",
        "cache_size=-8192",
    )
    if full and sys.platform == "darwin":
        _run(connection, "fullfsync=ON", "checkpoint_fullfsync=ON")
    # A first read, so that the log exists and its identity can be taken.
    connection.execute("SELECT count(*) FROM sqlite_schema").fetchall()


def close_all(connections: Sequence[apsw.Connection]) -> None:
    """Close, in this order; what SQLite cannot close in order is closed by force."""
    for connection in connections:
        try:
            connection.close()
        except apsw.Error:
            connection.close(True)


def _run(connection: apsw.Connection, *pragmas: str) -> None:
    for pragma in pragmas:
        connection.execute(f"PRAGMA {pragma}").fetchall()


# ---- file check ---------------------------------------------------------------------------------
# What is wrong with a file beside what its rows hold: pages, free pages, the two copies of each
# key, and rows that hold something else than bytes.
#
# A row's key is in the table and in its index. Reads go by the index, so that a change of the
# table's copy shows in none of them. Nor does it show in reads if bytes became text of the same
# bytes, which one bit of SQLite's own can do.
#
# SQLite's check is one long read. It holds up nobody, but as long as it lasts, about two seconds a
# gigabyte, the log cannot be shortened.


MOST = 100
"""Findings that are told at most."""
_NO_BYTES = """
SELECT rowid, typeof(k), typeof(v), hex(k) FROM {0} NOT INDEXED
WHERE NOT (typeof(k) = 'blob' AND typeof(v) = 'blob') LIMIT ?
"""


def check(path: str, patience: Patience) -> list[str]:
    """What is wrong with the file; a connection of its own keeps other reads going."""
    lock = threading.Lock()  # a fork waits for it: no thread is inside SQLite then
    with lock:
        forks.join(lock, lock)
        connection = connect(path, patience, write=False)
        found: list[str] = []
        try:
            for (text,) in connection.execute(f"PRAGMA integrity_check({MOST})"):
                found += [line for line in text.splitlines() if line[:1] != "*"]  # no headings
            if found == ["ok"]:
                found = []
            for table in TABLES:
                for row, key, value, name in connection.execute(_NO_BYTES.format(table), (MOST,)):
                    found.append(
                        f"row {row} of {table} ({name.lower()}): its key is {key}, its value "
                        f"{value}; both were written as bytes"
                    )
        except apsw.Error as error:
            if not guard.is_damage(error):
                raise
            found.append(str(error))
        finally:
            close_all([connection])
    return found[:MOST]
