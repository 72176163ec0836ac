"""What is wrong with a file beside what its rows hold: pages, free pages, the two copies of each
key, and rows that hold something else than bytes.

A row's key is in the table and in its index. Reads go by the index, so that a change of the
table's copy shows in none of them. Nor does it show in reads if bytes became text of the same
bytes, which one bit of SQLite's own can do.

SQLite's whole check is one long read. It holds up nobody, but as long as it lasts the log cannot be
shortened: if it takes longer than `LONGEST`, it is given up, and the copies of the keys are
compared in slices, each a read of its own. Then what only the whole check looks at (free pages,
pages that nothing leads to) is not looked at.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import apsw

from holdfast.storage.sqlite import files as files
from holdfast.storage.sqlite import process_fork as forks

LONGEST = 2.0
"""Seconds; about a gigabyte."""
MOST = 100
"""Findings that are told at most."""
_SLICE = 10_000
_OPERATIONS = 1_000_000
"""Operations of SQLite between two looks at the clock: each takes the interpreter's lock, for which
a thread that checks beside others has to wait."""
_LOWEST = -(1 << 63)
_NEXT = "NOT INDEXED WHERE rowid > ? ORDER BY rowid LIMIT ?"
_DIFFERS = """
SELECT rowid FROM {0} AS t NOT INDEXED WHERE rowid > ?1 AND rowid <= ?2 AND NOT EXISTS (
SELECT 1 FROM {0} AS i INDEXED BY sqlite_autoindex_{0}_1 WHERE i.k = t.k AND i.rowid = t.rowid)
LIMIT ?3
"""
_NO_BYTES = """
SELECT rowid, typeof(k), typeof(v), hex(k) FROM {0} NOT INDEXED WHERE rowid > ?1 AND rowid <= ?2
AND NOT (typeof(k) = 'blob' AND typeof(v) = 'blob') LIMIT ?3
"""


def check(path: str, patience: files.Patience) -> list[str]:
    """What is wrong with the file; a connection of its own keeps other reads going."""
    lock = threading.Lock()
    with lock:
        forks.join(lock, lock)
        return _check(files.connect(path, patience, write=False))


def _check(connection: apsw.Connection) -> list[str]:
    try:
        found = _pages(connection)
        for table in files.TABLES:
            for row, key, value, name in _slices(connection, table, _NO_BYTES, found):
                found.append(
                    f"row {row} of {table} ({name.lower()}): its key is {key}, its value {value}; "
                    "both were written as bytes"
                )
        return found[:MOST]
    finally:
        files.close_all([connection])


def _pages(connection: apsw.Connection) -> list[str]:
    """SQLite's own check, or, where it takes too long, of the keys alone."""
    end = time.monotonic() + LONGEST
    connection.set_progress_handler(lambda: time.monotonic() >= end, _OPERATIONS)
    try:
        found = [str(text) for (text,) in connection.execute(f"PRAGMA integrity_check({MOST})")]
        return [] if found == ["ok"] else found
    except apsw.InterruptError:
        connection.set_progress_handler(None)
        found = []
        for table in files.TABLES:
            for (row,) in _slices(connection, table, _DIFFERS, found):
                found.append(f"row {row} of {table}: its key is not the one in the index")
        return found
    except apsw.CorruptError as error:
        return [str(error)]
    finally:
        connection.set_progress_handler(None)


def _slices(
    connection: apsw.Connection, table: str, sql: str, found: list[str]
) -> Iterator[tuple[Any, ...]]:
    """Rows of the table that the query gives, slice by slice, each a read of its own; what SQLite
    cannot read is added to what was found, and ends it."""
    low, end = _LOWEST, f"SELECT max(r) FROM (SELECT rowid AS r FROM {table} {_NEXT})"
    try:
        while len(found) < MOST:
            high = connection.execute(end, (low, _SLICE)).get
            if high is None or high <= low:
                return
            yield from connection.execute(sql.format(table), (low, high, MOST)).fetchall()
            low = high
    except apsw.CorruptError as error:
        found.append(str(error))
