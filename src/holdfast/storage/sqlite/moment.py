"""Ranges of rows of a SQLite file, and one moment of all of them.

A moment is one long read on a connection of its own. It holds up nobody, but as long as it lasts
the log cannot be shortened, which others try in vain with each commit: whoever copies all rows
puts them on a disk first, and takes them elsewhere afterwards.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import apsw

from holdfast.errors import Unavailable
from holdfast.storage.batch import check_range
from holdfast.storage.sqlite import files as files
from holdfast.storage.sqlite import guard as guard
from holdfast.storage.sqlite import process_fork as forks

# Damage, or another program, may have left text, a number or NULL where bytes were put. Such a
# row is read as bytes all the same, which its seal then judges; `check` tells of it.
K, V = "CAST(k AS BLOB)", "CAST(v AS BLOB)"
SCAN = f"SELECT {K}, {V} FROM records WHERE k>=? AND k<? ORDER BY k LIMIT ?"
SCAN_DOWN = f"SELECT {K}, {V} FROM records WHERE k>=? AND k<? ORDER BY k DESC LIMIT ?"
CELLS = f"SELECT {K}, {V} FROM cells WHERE k>=? AND k<? ORDER BY k LIMIT ?"


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


class Still:
    """One moment, as long as its connection is open."""

    def __init__(self, path: str, patience: files.Patience) -> None:
        self._path = path
        self._lock = threading.Lock()
        with self._lock:
            forks.join(self, self._lock)
            self._connection = files.connect(path, patience, write=False)

    def close(self) -> None:
        """Let go of the file."""
        with self._lock:
            files.close_all([self._connection])

    def scan(
        self, low: bytes, high: bytes, *, limit: int = 1000, reverse: bool = False
    ) -> list[tuple[bytes, bytes]]:
        return self._range(SCAN_DOWN if reverse else SCAN, low, high, limit)

    def cells(self, low: bytes, high: bytes, *, limit: int = 1000) -> list[tuple[bytes, bytes]]:
        return self._range(CELLS, low, high, limit)

    def _range(self, sql: str, low: bytes, high: bytes, limit: int) -> list[tuple[bytes, bytes]]:
        check_range(low, high, limit)
        return guard.sound(self.rows(sql, low, high, limit), low, high, self._path)

    def rows(self, sql: str, *values: bytes | int) -> guard.Rows:
        """What a statement gives."""
        try:
            with self._lock:
                return self._connection.execute(sql, values).fetchall()  # type: ignore[return-value]
        except apsw.Error as error:
            raise guard.translate(error, self._path) from None
