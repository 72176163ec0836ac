"""The connection of a SQLite file that reads, for one thread at a time.

An exception can come between any two steps of the thread that reads: Ctrl-C, whatever else a
signal's handler raises. A transaction that it left open would show the rows of then for good, so
that each read looks first whether one is.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import apsw

from holdfast.errors import HoldfastError, Unavailable
from holdfast.storage.batch import Ranges
from holdfast.storage.rows import Row
from holdfast.storage.sqlite import files as files
from holdfast.storage.sqlite import guard as guard
from holdfast.storage.sqlite import process_fork as forks


class Reading:
    """Reads on one connection. A statement that is not read to its end goes with its cursor, so
    that each read has one of its own."""

    def __init__(self, connection: apsw.Connection, lock: threading.Lock) -> None:
        self._connection = connection
        self.lock = lock

    def rows(self, sql: str, *values: bytes | int) -> list[Any]:
        """What a statement gives."""
        with self.lock:
            self._settle()
            return self._connection.execute(sql, values).fetchall()

    def many(self, sql: str, keys: Sequence[bytes]) -> list[Any]:
        """What a statement gives for each of the keys, at one moment."""
        with self.lock:
            self._settle()
            try:
                self._connection.execute("BEGIN")  # one snapshot costs less than one a key
                found = self._connection.executemany(sql, [(key,) for key in keys]).fetchall()
                self._connection.execute("COMMIT")
                return found
            except BaseException:  # now, for an open read keeps the log from being shortened
                with suppress(apsw.Error):
                    self._settle()
                raise

    def _settle(self) -> None:
        """End a transaction that is open still."""
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")


# ---- write ahead log ----------------------------------------------------------------------------
# Moving the log into the database: beside commits, or until nothing is left in it.
#
# Whoever moves the log on the writing connection keeps everybody else from committing for two
# syncs. SQLite itself lets others append to the log meanwhile, if it is moved on another
# connection.


PATIENCE = 1.0
"""Seconds for which readers who keep the log from being emptied are waited for."""
_PAUSE = 0.02
"""Seconds between two tries, in which others can commit."""


def persist(emptied: Callable[[], bool]) -> bool:
    """Try to empty the log, with pauses in which others can commit; whether it worked."""
    until = time.monotonic() + PATIENCE
    while not emptied():
        if time.monotonic() >= until:
            return False
        time.sleep(_PAUSE)
    return True


class LogMover:
    """Moves what is in the log when it is called; opened when it is first needed."""

    def __init__(self, path: str, patience: files.Patience, *, full: bool) -> None:
        self._path = path
        self._patience = patience
        self._full = full
        self.lock = threading.Lock()  # nothing is locked inside, so it can be taken anywhere
        self._closed = False
        self.connection: apsw.Connection | None = None

    def move(self) -> int:
        """Pages at the log's beginning that are in the database now; 0 if that is not known.

        An `apsw.Error` means that a write or a sync failed.
        """
        with self.lock:
            if self._closed:
                return 0
            try:
                if self.connection is None:
                    self.connection = files.connect(self._path, self._patience, write=True)
                    files.configure(self.connection, self._path, full=self._full)
                return self.connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)[1]
            except (apsw.BusyError, apsw.LockedError, apsw.FullError, HoldfastError):
                return 0  # tried again by a later commit

    def close(self, *, quietly: bool = False) -> None:
        """Let go of the file; quietly: without touching it, as its storage has failed."""
        with self.lock:
            self._closed = True
            if self.connection is not None:
                if quietly:
                    self.connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
                files.close_all([self.connection])
                self.connection = None


# ---- moment -------------------------------------------------------------------------------------
# Ranges of rows of a SQLite file, and one moment of all of them.
#
# A moment is one long read on a connection of its own. It holds up nobody, but as long as it lasts
# the log cannot be shortened, which others try in vain with each commit: whoever copies all rows
# puts them on a disk first, and takes them elsewhere afterwards.


# Damage, or another program, may have left text, a number or NULL where bytes were put. Such a
# row is read as bytes all the same, which its seal then judges; `check` tells of it.
K, V = "CAST(k AS BLOB)", "CAST(v AS BLOB)"
RANGES = {
    (table, reverse): f"SELECT {K}, {V} FROM {table} WHERE k>=? AND k<? ORDER BY k{down} LIMIT ?"
    for table in ("records", "cells")
    for reverse, down in ((False, ""), (True, " DESC"))
}


@contextmanager
def moment(path: str, patience: files.Patience, mine: guard.Pair) -> Iterator[Still]:
    """The rows as they are now, however long that is looked at; of the files that are `mine`."""
    still = Still(path, patience)
    try:
        still.rows("BEGIN")
        still.rows("SELECT 1 FROM cells LIMIT 1")  # from the first read on
        if guard.replaced(path, mine):  # perhaps by those of another store
            raise Unavailable(
                f"{path!r} or its -wal file was replaced or removed since the store was opened; "
                "open it again"
            )
        yield still
    finally:
        still.close()


class Still(Ranges):
    """One moment, as long as its connection is open."""

    def __init__(self, path: str, patience: files.Patience) -> None:
        self._path = path
        self._lock = threading.Lock()  # threads share the connection, and a fork waits for it
        with self._lock:
            forks.join(self, self._lock)
            self._connection = files.connect(path, patience, write=False)

    def close(self) -> None:
        """Let go of the file."""
        with self._lock:
            files.close_all([self._connection])

    def _rows(self, table: str, low: bytes, high: bytes, limit: int, reverse: bool) -> list[Row]:
        found = self.rows(RANGES[table, reverse], low, high, limit)
        return guard.sound(found, low, high, self._path)

    def rows(self, sql: str, *values: bytes | int) -> guard.Rows:
        """What a statement gives."""
        try:
            with self._lock:
                return self._connection.execute(sql, values).fetchall()  # type: ignore[return-value]
        except apsw.Error as error:
            raise guard.translate(error, self._path) from None


# ---- version ------------------------------------------------------------------------------------
# Whether anybody else has committed to a SQLite file, also asked while this process commits.


VERSION = "PRAGMA data_version"  # apsw's own data_version() does not see other processes


class Versions:
    """What two connections say of the file: the writing one does not count its own commits, but
    only one thread at a time can ask it; the reading one counts every commit."""

    def __init__(self, reading: Reading, writing: apsw.Cursor) -> None:
        self._reading, self._writing = reading, writing
        self.wanted = False
        """Whether somebody asked while another thread was committing."""
        self._began: tuple[object, object] = (None, None)
        """What the writing and the reading connection said when a commit began."""

    def now(self) -> object:
        """The version; who asks holds the writing connection."""
        return self._writing.execute(VERSION).get

    def beside(self) -> object:
        """The version while another thread commits: the one with which a commit began, if nobody,
        not even that one, has committed anything since; else "perhaps" has to do."""
        self.wanted = True
        version, unchanged = self._began
        return version if self._read() == unchanged else object()

    def begin(self) -> None:
        """A commit begins: from now on nobody else can commit. Called if somebody has `wanted` that
        meanwhile, for it takes as long as two reads."""
        self.wanted = False
        self._began = self.now(), self._read()

    def _read(self) -> object:
        return self._reading.rows(VERSION)[0][0]
