"""The connection of a SQLite file that reads, for one thread at a time.

An exception can come between any two steps of the thread that reads: Ctrl-C, whatever else a
signal's handler raises. A transaction that it left open would show the rows of then for good, so
that each read looks first whether one is.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import apsw


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
            except BaseException:
                with suppress(apsw.Error):
                    self._settle()  # now, for an open read keeps the log from being shortened
                raise

    def _settle(self) -> None:
        """End a transaction that is open still."""
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")
