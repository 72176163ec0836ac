"""Whether SQLite's index leads to where a key belongs: asked before something is put there, and
before a reader takes what is found there for the newest.

A bit that flips in an index hides rows: a cell that is not counted any more, a pointer to another
page, a key that sorts elsewhere. SQLite looks at what it passes on its way only as far as it has
to, so that it finds an older row or none, and would put a second row of one key beside the hidden
one. Here the pages from the root to the place are looked at as they lie in the file, or its log:

- each byte of a page belongs to one cell, to the room between, or to what is free;
- its keys ascend, and lie between those of the page above that lead here;
- the rows of the table that the keys on both sides of the place name have these keys.

So no row of the table that belongs to the place is hidden, unless more than the index is damaged.
SQLite reads the pages itself, on a connection of its own through a VFS that notes them.
"""

from __future__ import annotations

import struct
import threading
from bisect import bisect_left
from collections.abc import Iterator
from functools import lru_cache
from operator import ge
from typing import Any

import apsw

from holdfast.storage.sqlite import files as files

_VFS = "holdfast-noting"
_LEAF, _INNER = 10, 2
_SEEK = "SELECT rowid FROM {0} INDEXED BY sqlite_autoindex_{0}_1 WHERE k=?"
_AGREES = """
SELECT 1 FROM {0} AS i INDEXED BY sqlite_autoindex_{0}_1
JOIN {0} AS t NOT INDEXED ON t.rowid = i.rowid WHERE i.k = ? AND t.k = i.k
"""
_NEWEST = """
SELECT count(*) FROM (SELECT rowid AS r, k FROM {0} NOT INDEXED ORDER BY rowid DESC LIMIT {1}) AS t
WHERE NOT EXISTS
(SELECT 1 FROM {0} AS i INDEXED BY sqlite_autoindex_{0}_1 WHERE i.k = t.k AND i.rowid = t.r)
"""
_ANY = "SELECT 1 FROM {0} NOT INDEXED LIMIT 1"
NEWEST = 64  # rows of each table that are looked up as a store is opened
_HEADER = struct.Struct(">xHHH")
_SIZES = {1: 1, 2: 2, 3: 3, 4: 4, 5: 6, 6: 8, 8: 0, 9: 0}  # of a row's number, by its kind
_noted = threading.local()
_registered: list[apsw.VFS] = []  # SQLite knows it for as long as it is held


class _File(apsw.VFSFile):
    def xRead(self, amount: int, offset: int) -> bytes:
        data = super().xRead(amount, offset)
        if amount == files.PAGE and offset:  # the first page of a file is in no index
            vars(_noted).setdefault("pages", []).append(data)
        return data


class _Noting(apsw.VFS):
    def xOpen(self, name: Any, flags: list[int]) -> apsw.VFSFile:
        return _File("", name, flags)


class Broken(Exception):
    """A page of the index is not as SQLite leaves one, or leads elsewhere than to its place."""


def newest_found(connection: apsw.Connection) -> bool:
    """Whether the index finds the newest rows of each table."""
    return not any(connection.execute(_NEWEST.format(table, NEWEST)).get for table in files.TABLES)


class IndexPath:
    """The way from the root of an index to places in it. For one thread at a time."""

    def __init__(self, path: str, patience: files.Patience) -> None:
        if _VFS not in apsw.vfs_names():
            _registered.append(_Noting(_VFS, ""))
        self.connection = files.connect(path, patience, write=False, vfs=_VFS)

    def check(self, table: str, key: bytes) -> None:
        """Raise `Broken`, or an `apsw.Error`, if a row of this key could be hidden."""
        execute = self.connection.execute
        if self.connection.in_transaction:
            execute("ROLLBACK")  # an interrupt left it
        execute("PRAGMA shrink_memory; BEGIN")  # what is held is not read again; at one moment
        try:
            _noted.pages = []
            execute(_SEEK.format(table), (key,)).fetchall()
            low, high, ended = b"", b"", False
            for page in [page for page in _noted.pages if page[0] in (_LEAF, _INNER)]:
                keys = read_page(page)
                if not keys:
                    break  # that of an empty table
                if ended or keys[0] <= low or (high and keys[-1] >= high):
                    raise Broken("a page of the index lies in another's place")
                at = bisect_left(keys, key)
                for beside in keys[max(0, at - 1) : at + 1]:
                    if not execute(_AGREES.format(table), (beside,)).get:
                        raise Broken("index and table differ")
                low = keys[at - 1] if at else low
                high = keys[at] if at < len(keys) else high
                ended = page[0] == _LEAF or high == key
            if not ended and execute(_ANY.format(table)).get:
                raise Broken("the index ends before its leaves")
        finally:
            execute("ROLLBACK")


@lru_cache(64)  # those near the root are on the way to many places
def read_page(page: bytes) -> list[bytes]:
    """The keys on a page of an index, if its cells and what is free fill it."""
    leaf = page[0] == _LEAF
    head, child = (8, 0) if leaf else (12, 4)
    free, count, content = _HEADER.unpack_from(page)
    if not head + 2 * count <= content <= len(page) or not (leaf or count):
        raise Broken("the header of a page of the index is damaged")
    keys: list[bytes] = []
    extents: list[tuple[int, int]] = []
    for at in struct.unpack_from(f">{count}H", page, head):
        start = at + child
        body, middle, end = shape_of(page[start : start + 5])
        keys.append(page[start + body : start + middle])
        extents.append((at, start + end))
    extents += _free(page, free)
    extents.sort()
    room = page[7]  # of pieces that are too small to be blocks
    last = content
    for at, end in extents:
        room += end - at
        if at < last:
            raise Broken("cells of the index overlap")
        last = end
    if room != len(page) - content or last > len(page):
        raise Broken("the cells of a page of the index do not fill it")
    if any(map(ge, keys, keys[1:])):
        raise Broken("keys of the index are out of order")
    return keys


@lru_cache(1024)
def shape_of(header: bytes) -> tuple[int, int, int]:
    """Where, in a cell that begins like this, its key begins and ends and the row's number ends."""
    length, size, kind, number, more = header.ljust(5)
    if kind > 127:  # a key of more than 57 bytes, whose length takes two
        kind, number = (kind & 127) << 7 | number, more
    middle = size + 1 + (kind - 12) // 2
    end = middle + _SIZES.get(number, 99)
    if end != length + 1 or size not in (3, 4) or kind < 12 or kind & 1:
        raise Broken("a cell of the index is damaged")
    return size + 1, middle, end


def _free(page: bytes, at: int) -> Iterator[tuple[int, int]]:
    """Where the free blocks of a page lie; each names the next one, behind it."""
    while at:
        after, size = (int.from_bytes(page[n : n + 2], "big") for n in (at, at + 2))
        yield at, at + size
        if after and after < at + size:
            raise Broken("the free blocks of a page of the index are damaged")
        at = after
