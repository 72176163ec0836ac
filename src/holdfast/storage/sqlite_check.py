"""What SQLite itself finds wrong with a file: pages, free pages, and the two copies of each key.

A row's key is in the table and in its index. Reads go by the index, so that a change of the
table's copy shows in none of them.

The whole check is one long read. It holds up nobody, but as long as it lasts the log cannot be
shortened: if it takes longer than `LONGEST`, it is given up, and the copies of the keys are
compared in slices, each a read of its own. Then what only the whole check looks at (free pages,
pages that nothing leads to) is not looked at.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import apsw

from holdfast.storage import sqlite_files as files

LONGEST = 2.0
"""Seconds; about a gigabyte."""
MOST = 100
"""Findings that are told at most."""
_SLICE = 10_000
_OPERATIONS = 1_000_000
"""Operations of SQLite between two looks at the clock: each takes the interpreter's lock, for which
a thread that checks beside others has to wait."""
_DIFFERS = """
SELECT rowid FROM {0} AS t NOT INDEXED WHERE rowid > ?1 AND rowid <= ?2 AND NOT EXISTS (
SELECT 1 FROM {0} AS i INDEXED BY sqlite_autoindex_{0}_1 WHERE i.k = t.k AND i.rowid = t.rowid)
LIMIT ?3
"""


def check(path: str, patience: files.Patience) -> list[str]:
    """What is wrong with the file; a connection of its own keeps other reads going."""
    connection = files.connect(path, patience, write=False)
    end = time.monotonic() + LONGEST
    connection.set_progress_handler(lambda: time.monotonic() >= end, _OPERATIONS)
    try:
        found = [str(text) for (text,) in connection.execute(f"PRAGMA integrity_check({MOST})")]
        return [] if found == ["ok"] else found
    except apsw.InterruptError:
        connection.set_progress_handler(None)
        return [text for table in files.TABLES for text in _differing(connection, table)][:MOST]
    except apsw.CorruptError as error:
        return [str(error)]
    finally:
        files.close_all([connection])


def _differing(connection: apsw.Connection, table: str) -> Iterator[str]:
    """Rows whose key is another one in the table than in its index, slice by slice."""
    sql = _DIFFERS.format(table)
    low = 0
    try:
        last = connection.execute(f"SELECT max(rowid) FROM {table}").get or 0
        while low < last:
            rows = connection.execute(sql, (low, low + _SLICE, MOST)).fetchall()
            yield from (
                f"row {row} of {table}: its key is not the one in the index" for (row,) in rows
            )
            low += _SLICE
    except apsw.CorruptError as error:
        yield str(error)
