"""Storage in one SQLite file, through apsw.

Two connections: reads do not wait for a commit's sync. At `full` a commit that returned
survives power loss, at `normal` the end of the process (kill -9) only.

Not promised: anything once another SQLite library opens the file in the same process (its
close drops this one's locks; once that has done harm, the next commit and reads after a moment
notice and say so), and copies of the file without its `-wal`.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NoReturn

import apsw

from holdfast.errors import (
    DamagedStorageError,
    DiskFullError,
    HoldfastError,
    OutcomeUnknown,
    StoreClosedError,
    Unavailable,
)
from holdfast.storage import contract
from holdfast.storage.batch import (
    Ranges,
    check_batch,
    check_durability,
    check_own,
    conflict,
    differs,
    forked,
    opened_for_reading,
)
from holdfast.storage.contract import Batch, Limits, Moment
from holdfast.storage.sqlite import connection, files, guard, process_fork
from holdfast.storage.sqlite.connection import RANGES, VERSION, Reading, V, Versions
from holdfast.storage.sqlite.index_path import Broken, IndexPath, newest_found

_GET = f"SELECT {V} FROM records WHERE k=?"
_GET_MANY = f"SELECT (SELECT ifnull({V}, x'') FROM records WHERE k=?)"
_CELL = f"SELECT {V} FROM cells WHERE k=?"
_PUT = "INSERT INTO records VALUES(?,?)"
_BLANK = f"UPDATE records SET v=zeroblob(length({V})) WHERE k=?"
_SWAP = "UPDATE records SET v=? WHERE k=?"
_DROP = "DELETE FROM records WHERE k=?"
_LAST = "SELECT max(rowid) FROM records"
_MOVE = "UPDATE records SET rowid=(SELECT max(rowid) FROM records)+1 WHERE {}"
_NEXT = "SELECT rowid, length(v) FROM records NOT INDEXED WHERE rowid>? ORDER BY rowid LIMIT ?"
_NUMBER = 5
"""Bytes at a key's end in which the next one of its kind differs: another entry, another row."""
_PROVEN = (b"E", b"F", b"D")
"""What is asked for by its newest: entries, the feed, and which scopes there are."""
_READ = {b"E": 9, b"D": 17}
"""What is proven for reads, too, and how much of a key names the timeline or the scope."""
_ENDS = b"\xff" * _NUMBER
_PLACES = 50_000
"""What is known to be sound, or absent: some megabytes. Then all of it is asked for anew."""
_VACUUM_PAGES = 64
"""Free pages that a commit gives back beside those of its own rows, so that none pile up."""
_LOOKED, _TOGETHER, _SPARSE = 8, 128, 1.15
"""Rows that are looked at for each that goes; those of them that are moved or left together; and
how far apart their numbers are then. Measured, 39 % of the pages were empty without it."""
_CHECKPOINT_SECONDS = 0.02
"""For which moving the log waits for readers: whoever commits waits as long."""
_LOOK_SECONDS = 0.02
"""Between two looks at whether the files are still there, which cost as much as the read."""
_REPLACED = (
    "the database or its -wal file was replaced or removed, as happens when the standard sqlite3 "
    "module opens and closes the file in this process"
)


class SqliteStorage(Ranges):
    """A handle on one SQLite file; several handles and processes may share the file."""

    limits = Limits("sqlite", durability=("full", "normal"), shared=True)

    def __init__(
        self,
        path: str,
        *,
        durability: str = "full",
        create: bool = True,
        read_only: bool = False,
        private: bool = False,
    ) -> None:
        check_durability(durability, self.limits)
        # SQLite names the log after the file behind a symbolic link, and so do lock and checks.
        self.path = os.path.realpath(path)
        self._full = durability == "full"
        self._read_only = read_only
        self._private = private
        self._pid = contract.process_number
        self._dead = ""
        self._damaged = False
        self._sound: set[bytes] = set()  # places to which the index was found to lead
        self._path: IndexPath | None = None
        self._busy_seconds = guard.BUSY_SECONDS
        self._busy_until = 0.0
        self._wal_pages = 0
        self._look_at = 0.0
        self._had_log = True
        self._write_lock = threading.RLock()  # of the writing connection: commits, moving the log
        self._read_lock = threading.Lock()  # of what proves the index: readers ask, too
        self._begun = False
        self._version: object = None  # what was asked for in the transaction that is open now
        self._absent: set[bytes] = set()  # found so, and nobody else has committed since
        self._absent_at: object = None
        self._mover = connection.LogMover(self.path, self._on_busy, full=self._full)
        self._create = create and not read_only
        with self._write_lock:
            process_fork.join(self, self._write_lock, self._read_lock, self._mover.lock)
            process_fork.check(self.path)
            guard.check_file(self.path, create=self._create)
            self._lock = guard.StoreLock(self.path, optional=read_only)
            try:
                self._lock.share(self._ready, self._prepare)
                if not self._full and not self._read_only:
                    self._lock.note(full=False, alone=False)
                self._open()
            except BaseException:  # whatever it is, it leaves the folder as it was
                self._tidy()
                if not os.path.exists(self.path):
                    self._lock.remove()
                self._lock.release()
                raise

    # -- the contract ------------------------------------------------------------------

    def get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        self._usable()
        try:
            if len(keys) == 1:
                rows = self._reading.rows(_GET, keys[0])
                return [(rows[0][0] or b"") if rows else None]
            return [value for (value,) in self._reading.many(_GET_MANY, keys)]
        except apsw.Error as error:
            self._reading_failed(error)

    def commit(self, batch: Batch) -> None:
        if not batch.own or check_own:
            check_batch(batch, self.limits)
        if self._pid != contract.process_number or self._dead:
            self._usable()
        if self._read_only:
            raise opened_for_reading()
        with self._write_lock:
            if self._damaged:
                raise guard.damaged(self.path)
            try:
                if self._begun and self._writer.in_transaction:
                    self._begun = False
                else:
                    self._begin()
                self._apply(batch)
                self._finish()
            except BaseException as error:  # a conflict, Ctrl-C: nothing of the batch may stay
                self._rollback()
                if isinstance(error, apsw.IOError):  # after one this handle is not trusted any more
                    self._die(f"writing {self.path!r} failed")
                if isinstance(error, apsw.Error):
                    raise self._translated(error) from None
                raise
        if (batch.drops or batch.swaps) and self._wal_pages >= files.WAL_PAGES // 2:
            self._shorten_beside()

    def version(self) -> object:
        if self._pid != contract.process_number or self._dead:
            self._usable()
        mine = False
        try:
            # Not by a call, behind which an interrupt can come before its result is noted.
            [mine] = map(self._write_lock.acquire, (False,))
            if time.monotonic() >= self._look_at:
                if self._replaced():  # in these files nobody else commits any more
                    if mine:  # else a later call ends the handle
                        self._die(_REPLACED)
                    raise StoreClosedError(f"this storage ended because {_REPLACED}; open it again")
                self._look_at = time.monotonic() + _LOOK_SECONDS
            if not mine:
                return self._versions.beside()
            self._version = version = self._write_cursor.execute(VERSION).get
            return version
        except apsw.Error as error:
            self._reading_failed(error)
        finally:
            if mine:
                self._write_lock.release()

    def turn(self, *, durable: bool = True) -> AbstractContextManager[None]:
        if self._pid != contract.process_number or self._dead:
            self._usable()
        if self._read_only:
            return nullcontext()
        return Turn(self, relaxed=self._full and not durable)

    def moment(self) -> AbstractContextManager[Moment]:
        self._usable()
        return connection.moment(self.path, self._on_busy, self._files)

    def size(self) -> int:
        self._usable()
        return guard.file_size(self.path) + guard.file_size(self.path + "-wal")

    def check(self) -> list[str]:
        self._usable()
        try:
            found = files.check(self.path, self._on_busy)
            self._damaged = self._damaged or bool(found)
            return found
        except apsw.Error as error:
            self._reading_failed(error)

    def settle(self) -> bool:
        self._usable()
        return not self._read_only and connection.persist(self._emptied)

    def close(self) -> None:
        if self._pid != contract.process_number:
            return
        with self._write_lock:
            if self._dead:
                return
            if not self._read_only:
                self._checkpoint(apsw.SQLITE_CHECKPOINT_TRUNCATE)
            self._release("this storage is closed; open it again")
            self._tidy()

    def _tidy(self) -> None:
        if self._read_only and not self._had_log:
            files.remove_empty_log(self.path, self._on_busy)

    # -- opening -----------------------------------------------------------------------

    def _ready(self) -> bool:
        return guard.file_size(self.path) > 0 or not self._create

    def _prepare(self, alone: bool) -> None:
        """Create the file, or, if nobody at all has it open, make a leftover log safe."""
        write = not self._read_only
        if write and (not self._ready() or (alone and guard.half_made(self.path))):
            files.create(self.path, self._on_busy, private=self._private)
        elif alone and guard.file_size(self.path + "-wal") and not guard.in_use(self.path):
            guard.check_log(self.path, self._lock)
            if write:
                files.settle_log(self.path, self._on_busy)
        if alone and not guard.in_use(self.path) and guard.pages_behind(self.path):
            raise guard.damaged(self.path)  # what is read would be older than what it holds
        if write and alone and not guard.file_size(self.path + "-wal"):
            self._lock.note(full=self._full, alone=True)

    def _open(self) -> None:
        opened: list[apsw.Connection] = []
        self._had_log = os.path.exists(self.path + "-wal")
        try:
            opened.append(files.connect(self.path, self._on_busy, write=not self._read_only))
            files.check_schema(opened[0], self.path)
            files.configure(opened[0], self.path, full=self._full)
            opened.insert(0, files.connect(self.path, self._on_busy, write=False))
            files.configure(opened[0], self.path, full=self._full)
            if self._full and not self._read_only:
                # The log's name must be on the disk before a commit in it is acknowledged.
                guard.sync_folder(self.path)
        except BaseException as error:  # whatever it is, nobody else closes them
            files.close_all(opened)
            if isinstance(error, OSError):
                told = f"the folder of {self.path!r} cannot be synced ({error.strerror})"
                raise Unavailable(f"{told}; check the disk") from None
            if isinstance(error, apsw.Error):
                raise guard.translate(error, self.path) from None
            raise
        self._reader, self._writer = opened
        self._reading = Reading(self._reader, self._read_lock)
        self._write_cursor = self._writer.cursor()
        self._versions = Versions(self._reading, self._write_cursor)
        self._writer.set_wal_hook(self._on_wal)
        self._files = guard.pair(self.path)
        guard.remember(self._files[0])
        try:
            self._damaged = not newest_found(self._reader)
        except (apsw.CorruptError, apsw.TooBigError):  # or a length that was changed
            self._damaged = True  # it can be read as far as that goes

    # -- reading -----------------------------------------------------------------------

    def _rows(
        self, table: str, low: bytes, high: bytes, limit: int, reverse: bool
    ) -> list[tuple[bytes, bytes]]:
        self._usable()
        try:
            place = low[: _READ.get(low[:1], 0)]
            if place and place not in self._sound and high >= place + _ENDS:
                self._prove(place, high)
            found = self._reading.rows(RANGES[table, reverse], low, high, limit)
            return guard.sound(found, low, high, self.path)
        except apsw.Error as error:
            self._reading_failed(error)
        except DamagedStorageError:  # nothing may be written onto that
            self._damaged = True
            raise

    def _reading_failed(self, error: apsw.Error) -> NoReturn:
        if self._dead:
            raise StoreClosedError(self._dead) from None
        raise self._translated(error) from None

    def _translated(self, error: apsw.Error) -> HoldfastError:
        """Our error for one of SQLite; once the file is damaged, nothing more is written."""
        told = guard.translate(error, self.path)
        self._damaged = self._damaged or isinstance(told, DamagedStorageError)
        return told

    # -- committing --------------------------------------------------------------------

    def _begin(self) -> None:
        if self._pid != contract.process_number or self._dead:
            self._usable()  # again: the handle may have died while we waited for the lock
        self._begun, self._version = False, None
        try:
            if self._writer.in_transaction:
                self._write_cursor.execute("ROLLBACK")  # an interrupt left it
            self._write_cursor.execute("BEGIN IMMEDIATE")
            if self._versions.wanted:
                self._versions.begin()
        except apsw.IOError as error:
            self._die(f"reading {self.path!r} failed")
            raise self._translated(error) from None
        except BaseException as error:  # also Ctrl-C: a transaction left open would lock out others
            self._rollback()
            if isinstance(error, apsw.Error):
                raise self._translated(error) from None
            raise

    def _apply(self, batch: Batch) -> None:
        cursor, rows = self._write_cursor, dict(batch.puts)
        for key in batch.absent:
            if key[:-_NUMBER] not in self._sound:
                self._prove(key[:-_NUMBER], key)
            # What is both expected absent and put is checked by the insert itself.
            if key not in rows and not self._is_absent(key):
                raise conflict(self._failed(batch))
        if (batch.present or batch.cells or batch.swaps) and self._unmet(batch):
            raise conflict(self._failed(batch))
        if batch.puts:
            if not self._absent.isdisjoint(rows):
                self._absent.difference_update(rows)
            try:
                cursor.executemany(_PUT, batch.puts)
            except apsw.ConstraintError:
                self._put_slowly(batch)
        if batch.blanks:
            cursor.executemany(_BLANK, [(key,) for key in batch.blanks])
        if batch.swaps or batch.drops:
            self._remove(batch)
        for key, expected, new in batch.cells:
            if new is None and expected is not None:
                cursor.execute("DELETE FROM cells WHERE k=?", (key,))
            elif expected is None and new is not None:
                cursor.execute("INSERT INTO cells VALUES(?,?)", (key, new))
            elif new != expected:
                cursor.execute("UPDATE cells SET v=? WHERE k=?", (new, key))

    def _is_absent(self, key: bytes) -> bool:
        """Whether there is no record of a key; asked once, as long as nobody else commits."""
        if self._version is None:
            self._version = self._versions.now()
        if self._version != self._absent_at or len(self._absent) >= _PLACES:
            self._absent.clear()
            self._absent_at = self._version
        if key not in self._absent:
            if self._value(_GET, key) is not None:
                return False
            self._absent.add(key)
        return True

    def _remove(self, batch: Batch) -> None:
        cursor = self._write_cursor
        if batch.swaps:
            cursor.executemany(_SWAP, [(new, key) for key, _, new in batch.swaps])
        # A row that became shorter leaves a hole where nothing new is ever put: it moves on.
        short = [(key,) for key, old, new in batch.swaps if 8 * len(new) < 7 * len(old)]
        drops = [(key,) for key in batch.drops]
        if short:
            cursor.executemany(_MOVE.format("k=?"), short)
        if drops:
            cursor.executemany(_DROP, drops)
        if holes := len(drops) + len(short):
            self._close_up(_LOOKED * holes)
            # A record seldom fills a page: so many are given back that none pile up.
            cursor.execute(f"PRAGMA incremental_vacuum({_VACUUM_PAGES + holes})").fetchall()

    def _close_up(self, most: int) -> None:
        """Move the rows that are left, where many have gone, behind all others: SQLite gives back
        whole pages alone. Each time elsewhere, so that no process has to come to an end."""
        cursor = self._write_cursor
        first = random.randrange(1 + (cursor.execute(_LAST).get or 0))
        rows: list[Any] = cursor.execute(_NEXT, (first, most)).fetchall()
        for at in range(0, len(rows), _TOGETHER):
            some = rows[at : at + _TOGETHER]
            if some[-1][0] - some[0][0] > _SPARSE * len(some):
                moved = [(row,) for row, size in some if size < files.PAGE]
                cursor.executemany(_MOVE.format("rowid=?"), moved)

    def _prove(self, place: bytes, key: bytes) -> None:
        """Make sure, once for each timeline, lane and name, that no row is hidden where the newest
        one is read, or one is about to be put; see `index_path`."""
        if place[:1] in _PROVEN:
            with self._read_lock:  # a reader may ask beside the writer
                self._path = self._path or IndexPath(self.path, self._on_busy)
                try:
                    self._path.check("records", key)
                except Broken:
                    self._damaged = True
                    raise guard.damaged(self.path) from None
        if len(self._sound) >= _PLACES:
            self._sound.clear()
        self._sound.add(place)

    def _put_slowly(self, batch: Batch) -> None:
        """Some put was there already: find out which, and what that means."""
        self._rollback()
        self._begin()
        if failed := self._failed(batch):
            raise conflict(failed)
        for key, value in batch.puts:
            found = self._value(_GET, key)
            if found is None:
                self._write_cursor.execute(_PUT, (key, value))
            elif found != value:
                raise differs(key)

    def _failed(self, batch: Batch) -> list[bytes]:
        return [k for k in batch.absent if self._value(_GET, k) is not None] + self._unmet(batch)

    def _unmet(self, batch: Batch) -> list[bytes]:
        failed = [k for k in batch.present if self._value(_GET, k) is None]
        failed += [k for k, expected, _ in batch.cells if self._value(_CELL, k) != expected]
        failed += [k for k, expected, _ in batch.swaps if self._value(_GET, k) != expected]
        return failed

    def _value(self, sql: str, key: bytes) -> bytes | None:
        rows: list[Any] = self._write_cursor.execute(sql, (key,)).fetchall()
        return (rows[0][0] or b"") if rows else None

    def _finish(self) -> None:
        try:
            self._write_cursor.execute("COMMIT")
        except apsw.FullError:
            # The log's last frame was not written, so nothing of this can ever be applied.
            self._rollback()
            raise DiskFullError(
                f"no room is left for {self.path!r}; nothing was applied: free some space and "
                "try again"
            ) from None
        except apsw.BusyError as error:
            self._rollback()
            raise self._translated(error) from None
        except apsw.Error:
            self._unknown("a write or sync of the file failed")
        if self._replaced():
            self._unknown(_REPLACED)
        if self._wal_pages >= files.WAL_PAGES:
            self._shorten()

    def _replaced(self) -> bool:
        """Whether other files are there now, asked before each acknowledgement.

        Both files themselves, each time: what their folder tells is cheaper by two microseconds,
        and can be put back, as tools that copy a folder with its times do.
        """
        try:
            file, log = os.stat(self.path), os.stat(self.path + "-wal")
            if ((file.st_dev, file.st_ino), (log.st_dev, log.st_ino)) == self._files:
                return False
        except OSError:
            pass  # perhaps there was no log, either, when it was opened
        return guard.replaced(self.path, self._files)

    def _rollback(self) -> None:
        if self._pid != contract.process_number:
            return  # the parent's, who goes on with it
        try:
            if self._writer.in_transaction:
                self._write_cursor.execute("ROLLBACK")
        except apsw.Error:
            self._die(f"rolling back in {self.path!r} failed")

    def _shorten(self) -> None:
        large = guard.file_size(self.path + "-wal") > files.WAL_BYTES
        mode = apsw.SQLITE_CHECKPOINT_TRUNCATE if large else apsw.SQLITE_CHECKPOINT_PASSIVE
        self._checkpoint(mode)

    def _shorten_beside(self) -> None:
        """Who drops many rows moves the log before it falls to others, and they go on writing;
        only what they added meanwhile is moved while they wait."""
        try:
            moved = self._mover.move()
            with self._write_lock:
                if self._wal_pages > moved and not self._dead:
                    self._shorten()
        except apsw.Error:
            with self._write_lock:
                self._die(f"moving the log into {self.path!r} failed")

    def _emptied(self) -> bool:
        with self._write_lock:
            self._usable()
            return self._checkpoint(apsw.SQLITE_CHECKPOINT_TRUNCATE)

    def _checkpoint(self, mode: int) -> bool:
        """Move the log into the database, as far as readers allow. The commit before stands
        whatever happens here, but a failed write ends the handle: a second sync would lie."""
        self._busy_seconds = _CHECKPOINT_SECONDS
        try:
            self._writer.wal_checkpoint(mode=mode)
            return True
        except (apsw.BusyError, apsw.LockedError, apsw.FullError):
            pass  # tried again by a later commit
        except apsw.Error:
            self._die(f"moving the log into {self.path!r} failed")
        finally:
            self._busy_seconds = guard.BUSY_SECONDS
        return False

    # -- the handle's life -------------------------------------------------------------

    def _usable(self) -> None:
        if self._pid != contract.process_number:
            raise forked()
        if self._dead:
            raise StoreClosedError(self._dead)

    def _unknown(self, why: str) -> NoReturn:
        self._die(why)
        raise OutcomeUnknown(
            f"the commit to {self.path!r} may or may not have been applied: {why}; "
            "open the store again to see"
        ) from None

    def _die(self, why: str) -> None:
        """End the handle and let go of the file at once, so that opening it again finds
        nobody there and can make the log safe. Nothing more is written to it."""
        if self._dead:
            return
        for one in (self._reader, self._writer):
            one.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        self._mover.close(quietly=True)
        self._release(f"this storage ended because {why}; open it again")

    def _release(self, why: str) -> None:
        with self._reading.lock:
            if self._dead:
                return  # a failed checkpoint while closing has released everything already
            self._dead = why
            self._mover.close()
            mine = [self._path.connection] if self._path else []
            files.close_all([*mine, self._reader, self._writer])
            guard.forget(self._files[0])
            self._lock.release()

    def _on_busy(self, tries: int) -> bool:
        now = time.monotonic()
        if tries == 0:
            self._busy_until = now + self._busy_seconds
        if now >= self._busy_until:
            return False
        time.sleep(guard.RETRY_SECONDS)
        return True

    def _on_wal(self, _connection: apsw.Connection, _name: str, pages: int) -> int:
        self._wal_pages = pages
        return apsw.SQLITE_OK


class Turn:
    """A write transaction that is begun early; the first commit inside uses and ends it.

    The thread that takes the turn is the one that commits in it. What a signal's handler raises
    there, Ctrl-C before all, gives the turn back, unless it comes at the very moment at which the
    turn is left: then no other thread can write until the handle is opened anew.

    A `relaxed` one is not synced by itself: the next sync is of the whole log.
    """

    __slots__ = ("_engine", "_held", "_relaxed")

    def __init__(self, engine: SqliteStorage, *, relaxed: bool = False) -> None:
        self._engine = engine
        self._held = False
        self._relaxed = relaxed

    def __enter__(self) -> None:
        engine = self._engine
        try:
            # Not by a call, behind which an interrupt can come before its result is noted.
            [self._held] = map(engine._write_lock.acquire, (True,))
            if self._relaxed:  # the level cannot be changed within a transaction
                engine._lock.note(full=False, alone=False)
                engine._write_cursor.execute("PRAGMA synchronous=NORMAL")
            engine._begin()
            engine._begun = True
        except BaseException:  # Ctrl-C before all: the block is not entered, so nothing leaves it
            self.__exit__()
            raise

    def __exit__(self, *_: object) -> None:
        try:
            engine = self._engine
            if self._held and not engine._dead and engine._writer.in_transaction:
                engine._rollback()
            if self._relaxed and self._held and not engine._dead:
                engine._write_cursor.execute("PRAGMA synchronous=FULL")
        finally:
            if self._held:
                self._held = False
                self._engine._write_lock.release()
