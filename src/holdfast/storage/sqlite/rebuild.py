"""Mending a SQLite file whose own structure is damaged, before anybody opens it as a store.

If the index alone is damaged, it is made anew in its place. Else every row that can be read goes
into a new file, which takes the old one's place; that stays beside it as `PATH.damaged`. Rows are
read from the pages themselves, so that neither the schema nor the tree above them has to be sound:

- of a page that is whole its cells are taken; of another one, each cell whose lengths agree,
  whatever the header says, and bytes that belong to none are searched for rows that the index
  names;
- where the key in the table and that in the index differ, the table's is taken, and the index's is
  told of: whoever can open the row finds out which one it was sealed under;
- of two rows of one key the newer one is taken, and the older one is told of, with what it holds:
  whoever can open rows finds out which one is whole.

What a row holds is not judged here: `verify` does, and heals from copies what is missing.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import TypeVar

import apsw

from holdfast import errors
from holdfast.storage.sqlite import files as files
from holdfast.storage.sqlite import guard as guard
from holdfast.storage.sqlite import process_fork as forks
from holdfast.storage.sqlite.index_path import Broken, shape_of

PAGE = files.PAGE
_DOUBTS = """
SELECT CAST(t.k AS BLOB), CAST(i.k AS BLOB) FROM records AS i INDEXED BY sqlite_autoindex_records_1
JOIN records AS t NOT INDEXED ON t.rowid = i.rowid WHERE i.k >= x'' AND t.k IS NOT i.k LIMIT 100
"""
_BEGIN = guard.MAGIC + PAGE.to_bytes(2, "big")
"""How each file begins; else SQLite may take its log for another's, and remove it."""
_MAPS = PAGE // 5 + 1  # each so many pages there is one that maps others
_ROOTS = {3: ("records", False), 4: ("records", True), 5: ("cells", False), 6: ("cells", True)}
"""Where each table, and its index, begins: in every file, for all are made in the same way."""
_COUNT = "SELECT count(*) FROM sqlite_schema"
_HAS = "SELECT count(*) FROM records WHERE k=?"
_LOCK = threading.Lock()
"""A fork waits for it: no thread is inside SQLite, or writes the file, then."""
_T = TypeVar("_T")


@dataclass
class Mended:
    """What was done to a file."""

    path: str
    kept: str = ""
    """Where the old file is, if a new one took its place."""
    before: bool = False
    """Whether that was an earlier time."""
    rows: int = 0
    lost: list[bytes] = field(default_factory=list)
    """Keys of records that the index names and no page has."""
    cells: list[bytes] = field(default_factory=list)
    """The same of cells."""
    older: list[tuple[bytes, bytes]] = field(default_factory=list)
    """Keys of records of which there were two rows, and what the older one held."""
    doubts: list[tuple[bytes, bytes]] = field(default_factory=list)
    """Of a record, the key in the table, under which it is now, and the one in the index."""
    cut: int = 0
    """Pages that the file said it had, and that were cut off: what they held, and no index names,
    cannot be told."""

    def __str__(self) -> str:
        rebuilt = "rebuilt before" if self.before else f"rebuilt from {self.rows} rows"
        kept = f"the old file is kept as {self.kept} until `holdfast repair --confirm`"
        if not os.path.exists(self.kept):
            kept = f"the old file, {self.kept}, is removed"
        if self.path.endswith("-wal"):  # of which nothing is made
            return f"{self.path}: {kept}"
        return f"{self.path}: " + (f"{rebuilt}; {kept}" if self.kept else "its index is made anew")


def _has_rows(path: str) -> bool:
    """Whether any page holds rows that look like ours; the first one says nothing any more."""
    with open(path, "rb") as file:
        pages = iter(partial(file.read, PAGE), b"")
        return any(
            Salvage(iter((b"", b"", page))).found["records"] for page in pages if page[0] == 13
        )


def look(path: str) -> list[str]:
    """What is wrong with a store's file, also if it cannot be opened, or is gone, and what lies
    beside it shows that it was there; another file is refused."""
    page = guard.beginning(path, PAGE) if os.path.exists(path) else b""
    number = guard.APPLICATION_ID.to_bytes(4, "big")
    ours = page[68:72] == number or any(sql.encode() in page for sql in files.TABLES.values())
    # A header that is whole says whose it is; noise in its place does not.
    other = len(page) >= 100 and page.startswith(guard.MAGIC)
    if not ours and (other or not (guard.was_store(path) or _has_rows(path))):
        raise guard.not_a_store(path)
    if len(page) < PAGE:
        return ["the file was cut off"]
    if not page.startswith(_BEGIN):
        return ["the header of the file is damaged"]
    with _LOCK:
        forks.join(_LOCK, _LOCK)
        connection = files.connect(path, _patience, write=False)
        try:
            files.check_schema(connection, path)
        except (errors.FormatError, errors.DamagedStorageError, apsw.Error) as error:
            # Damage, unless somebody added something, or a newer version made it.
            foreign = isinstance(error, errors.ForeignSchemaError)
            added = foreign and connection.execute(_COUNT).get > len(files.SCHEMA)
            if added or isinstance(error, errors.NewerFormatError):
                raise
            return [str(error)]
        finally:
            connection.close()
    if not (found := files.check(path, _patience)) and (behind := guard.pages_behind(path)):
        return [f"{behind} pages lie behind the end that its header names"]
    return found


@contextmanager
def mend(path: str, needed: Mapping[bytes, bytes]) -> Iterator[Mended]:
    """Mend a file that `look` finds something wrong with; nobody may have it open, and nobody but
    this process can open it until this is left.

    A new file may lack rows that copies have. It is opened by nobody before they are put in, not
    even if this process is killed: it says of itself that it is not finished. Where this is left
    by an error, it stays so, and is made again.

    `needed` are records that a new file has to have, whatever is left of the old one: what a copy
    has of each, or nothing.
    """
    path = os.path.realpath(path)
    lock = guard.StoreLock(path, optional=False)
    try:
        if not lock.keep() or guard.in_use(path):
            raise errors.StoreLockedError(
                f"{path!r} is in use; close the store everywhere, then repair it"
            )
        guard.ALONE.add(path)
        with _LOCK:
            forks.join(_LOCK, _LOCK)
            fd = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o600)
            with open(fd, "r+b") as file:
                file.write(_BEGIN)
                file.seek(60)
                again = file.read(4) == guard.UNFINISHED.to_bytes(4, "big")
            mended = _reindexed(path)  # which also moves the log into it
            if mended is None or again:
                mended = _rebuilt(path, needed, again)
        yield mended
        if mended.kept:
            _say_format(path, guard.FORMAT)
    finally:
        guard.ALONE.discard(path)
        lock.release()


def _say_format(path: str, number: int) -> None:
    """Write the format's number into a file that nobody has open, and that has no log."""
    with open(path, "r+b") as file:
        file.seek(60)
        file.write(number.to_bytes(4, "big"))
        os.fsync(file)


def mended_before(path: str) -> Mended | None:
    """The same of a file that was made anew before, as long as the old one is kept beside it: who
    mended it may have been killed before they could tell of it, or have had no copy."""
    kept = os.path.realpath(path) + ".damaged"
    return survey(path) if os.path.exists(kept) and not os.path.samefile(kept, path) else None


def survey(path: str) -> Mended:
    """What is left in a file, or in the old one beside it that it was made of."""
    path = os.path.realpath(path)
    told = Mended(path, path + ".damaged", before=True)
    salvage = _salvage(told) if os.path.exists(path) else Salvage(iter(()))
    for table in files.TABLES:
        deque(salvage.rows(table, told), maxlen=0)
    return told


def _patience(_tries: int) -> bool:
    return False


def _reindexed(path: str) -> Mended | None:
    """Make the index anew, if nothing else is damaged."""
    try:
        connection = files.connect(path, _patience, write=True)
        try:
            files.check_schema(connection, path)
            mended = Mended(path)
            with suppress(apsw.CorruptError):  # so that it is the index that is damaged
                mended.doubts += connection.execute(_DOUBTS)
            connection.execute("PRAGMA synchronous=EXTRA; BEGIN IMMEDIATE; REINDEX")
            if connection.execute("PRAGMA integrity_check(1)").get != "ok":
                return None
            connection.execute("COMMIT")
        finally:
            connection.close()
        return mended if not (files.check(path, _patience) or guard.pages_behind(path)) else None
    except (apsw.Error, errors.HoldfastError):  # two rows of one key, or more than the index
        return None


def _salvage(mended: Mended) -> Salvage:
    """What is left in the old file."""
    place = mended.kept if os.path.exists(mended.kept) else mended.path
    with open(place, "rb") as file:
        header = file.read(100)
        if header[24:28] == header[92:96]:  # else SQLite does not believe its own number, either
            said = int.from_bytes(header[28:32], "big")
            mended.cut = max(0, said - os.path.getsize(place) // PAGE)
        file.seek(0)
        return Salvage(iter(partial(file.read, PAGE), b""))


def _rebuilt(path: str, needed: Mapping[bytes, bytes], again: bool) -> Mended:
    """Make a new file of a damaged one, whose log SQLite has moved into it as it was closed; or
    again, of what it was made of, as it was not finished."""
    mended, new = Mended(path, path + ".damaged"), path + ".new"
    others = os.path.exists(mended.kept) and not os.path.samefile(mended.kept, path)
    if others and not again:
        raise errors.RefusedError(f"{mended.kept!r} is there from a repair before: move it away")
    guard.remove(new)
    files.create(new, _patience, private=True)
    guard.give(new, path)
    connection = files.connect(new, _patience, write=True)
    try:
        found = _salvage(mended)
        connection.execute("PRAGMA synchronous=EXTRA; BEGIN")
        for table in files.TABLES:
            put = f"INSERT INTO {table} VALUES(?,?)"
            connection.executemany(put, found.rows(table, mended))
        spare = [(key, row) for key, row in needed.items() if row]
        connection.executemany("INSERT OR IGNORE INTO records VALUES(?,?)", spare)
        gone = [key for key in needed if not connection.execute(_HAS, (key,)).get]
        connection.execute("COMMIT")
        connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    finally:
        connection.close()
    _say_format(new, guard.UNFINISHED)
    if gone or not (mended.rows or spare):
        guard.remove(new)
        left = "the row that says what a store is, is not" if mended.rows else "no row is left"
        raise errors.DamagedStorageError(
            f"{left} in the file {path!r}: repair it with a copy of the store (--copy), or "
            "put it back from a backup",
            place=path,
        )
    if guard.file_size(path + "-wal"):
        guard.remove(new)
        raise guard.damaged(path)
    with suppress(FileExistsError):  # this was cut short before
        os.link(path, mended.kept)
    os.replace(new, path)
    guard.sync_folder(path)
    return mended


class Salvage:
    """The rows in a file's pages, whatever leads to them."""

    def __init__(self, data: Iterator[bytes]) -> None:
        self._pages = pages = {
            number: page
            for number, page in enumerate(data, 1)
            if number > 1 and (number - 2) % _MAPS
        }
        self._above = {
            int.from_bytes(page[at : at + 4], "big"): number
            for number, page in pages.items()
            if page[0] in (2, 5)
            for at in (8, *_pointers(page, 12))
        }
        owners = {n: self._owner(n) for n in pages}
        self._named: dict[str, dict[int, set[bytes]]] = {name: {} for name in files.TABLES}
        """Keys by row, as the indexes name them."""
        for number, (table, index) in owners.items():
            for key, row in self._index_cells(pages[number]) if index else ():
                self._named[table].setdefault(row, set()).add(key)
        self.found: dict[str, dict[tuple[int, bytes], bytes]] = {name: {} for name in files.TABLES}
        for number, (table, index) in owners.items():
            if not index and pages[number][0]:
                for row, key, value in self._table_cells(pages[number], self._named[table]):
                    self.found[table].setdefault((row, key), value)

    def rows(self, table: str, mended: Mended) -> Iterator[tuple[bytes, bytes]]:
        """Key and value of each row of a table, the oldest first; notes what is lost."""
        found, named = self.found[table], self._named[table]
        known = set().union(*named.values())
        newest: dict[bytes, bytes] = {}
        for (row, key), value in sorted(found.items()):
            before = newest.pop(key, value)
            if before != value and table == "records":
                mended.older.append((key, before))
            newest[key] = value
            if table == "records" and key not in known:
                mended.doubts += [(key, other) for other in named.get(row, ())]
        lost = known - newest.keys() - {other for _, other in mended.doubts}
        mended.doubts = [one for one in mended.doubts if one[1] not in newest]
        (mended.lost if table == "records" else mended.cells).extend(sorted(lost))
        mended.rows += len(newest)
        yield from newest.items()

    def _owner(self, number: int) -> tuple[str, bool]:
        """The table that a page belongs to, and whether it is one of its index."""
        at = number
        for _ in range(20):
            if at in _ROOTS:
                return _ROOTS[at]
            at = self._above.get(at, 0)
        return "records", self._pages[number][0] in (2, 10)

    def _index_cells(self, page: bytes) -> Iterator[tuple[bytes, int]]:
        head, child = (12, 4) if page[0] == 2 else (8, 0)
        cells: dict[int, tuple[tuple[bytes, int], int]] = {}
        for at in _pointers(page, head):
            start = at + child
            with suppress(Broken):
                body, middle, end = (start + part for part in shape_of(page[start : start + 5]))
                if end > len(page):
                    continue  # the file was cut off in the middle of it
                row = int.from_bytes(page[middle:end], "big", signed=True)
                row = row if end > middle else page[body - 1] - 8
                cells[at] = (page[body:middle], row), end
        yield from (cell for cell, _ in (_all_of(page, cells) or cells).values())

    def _table_cells(
        self, page: bytes, named: dict[int, set[bytes]]
    ) -> Iterator[tuple[int, bytes, bytes]]:
        found = ((at, self._cell(page, at)) for at in _pointers(page, 8))
        cells = {at: cell for at, cell in found if cell is not None}
        if whole := _all_of(page, cells):
            yield from (cell for cell, _ in whole.values())
            return
        covered = bytearray(len(page))
        for at, (cell, end) in cells.items():
            yield cell
            covered[at:end] = b"\1" * (end - at)
        at = 8
        while 0 <= (at := covered.find(0, at)) < len(page) - 4:
            other = self._cell(page, at) if page[at] else None
            if other is not None and other[0][1] in named.get(other[0][0], ()):
                yield other[0]
                at = other[1] - 1
            at += 1

    def _cell(self, page: bytes, at: int) -> tuple[tuple[int, bytes, bytes], int] | None:
        """(row, key, value) that begin at a place, and where they end; None if nothing does."""
        size, start = _varint(page, at)
        row, start = _varint(page, start)
        local = size
        if size > PAGE - 35:  # not all of it fits on its own page
            least = (PAGE - 12) * 32 // 255 - 23
            local = least + (size - least) % (PAGE - 4)
            local = local if local <= PAGE - 35 else least
        end = start + local + (4 if local < size else 0)
        if not 4 <= size <= (2 << 20) or end > len(page):
            return None
        payload = page[start : start + local]
        if local < size:
            payload += self._overflow(int.from_bytes(page[end - 4 : end], "big"), size - local)
        header, k = _varint(payload, 0)
        key_kind, k = _varint(payload, k)
        value_kind, k = _varint(payload, k)
        key_size, value_size = (key_kind - 12) // 2, (value_kind - 12) // 2
        middle = header + key_size
        if not (k == header and 0 <= key_size <= 64 and value_size >= 0):
            return None
        if middle + value_size != size or len(payload) != size:
            return None
        return (row, payload[header:middle], payload[middle:]), end

    def _overflow(self, number: int, size: int) -> bytes:
        found = b""
        while len(found) < size and (page := self._pages.get(number)):
            found += page[4 : 4 + size - len(found)]
            number = int.from_bytes(page[:4], "big") if len(page) == PAGE else 0
        return found


def _pointers(page: bytes, head: int) -> Iterator[int]:
    """Where cells begin, whatever the header says of how many there are: up to the first one."""
    lowest, at = PAGE, head
    while at < lowest:
        place = int.from_bytes(page[at : at + 2], "big")
        if at < place < PAGE - 3:
            yield place
            lowest = min(lowest, place)
        at += 2


def _all_of(page: bytes, cells: dict[int, tuple[_T, int]]) -> dict[int, tuple[_T, int]]:
    """Of what may be cells, with their ends, those that the header counts; none if the page is not
    whole: they and the free room that it tells of have to fill it.

    Behind the last pointer, older ones are left, which lead into the middle of other cells.
    """
    if len(page) < PAGE:  # the file was cut off in the middle of it
        return {}
    found = dict(islice(cells.items(), int.from_bytes(page[3:5], "big")))
    free, at = page[7], int.from_bytes(page[1:3], "big")
    while 8 <= at < PAGE - 3:
        free += int.from_bytes(page[at + 2 : at + 4], "big")
        before, at = at, int.from_bytes(page[at : at + 2], "big")
        if 0 < at <= before:
            return {}
    used = sum(max(end - start, 4) for start, (_, end) in found.items())
    return found if used + free == PAGE - int.from_bytes(page[5:7], "big") else {}


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """One of SQLite's numbers, and where it ends."""
    value = 0
    for end, byte in enumerate(data[at : at + 9], at + 1):
        if end == at + 9:
            return value << 8 | byte, end
        value = value << 7 | byte & 127
        if byte < 128:
            return value, end
    return 0, at + 1
