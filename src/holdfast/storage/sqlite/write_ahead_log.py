"""Moving the log into the database: beside commits, or until nothing is left in it.

Whoever moves the log on the writing connection keeps everybody else from committing for two syncs.
SQLite itself lets others append to the log meanwhile, if it is moved on another connection.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import apsw

from holdfast.errors import HoldfastError
from holdfast.storage.sqlite import files as files

PATIENCE = 1.0
"""Seconds for which readers who keep the log from being emptied are waited for."""
_PAUSE = 0.02


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
