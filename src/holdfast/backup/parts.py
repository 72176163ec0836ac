"""Rows as objects: cut where the rows say, so that a change sends only what lies near it.

An object holds rows in the order of their tables and keys: table (1), length of the key (1), length
of the content (4), key, content. A row ends an object with a chance that grows with its size, by
a hash of its key: that does not depend on what stands before, so that of two moments of a store
all objects are equal but those that hold a changed row. One that grows too long ends anyway.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import msgspec

from holdfast.errors import DamagedBackupError
from holdfast.storage.contract import LAST, MAX_KEY, MAX_RECORD, Moment

RECORDS, CELLS, RING, RING_CELLS = range(4)
"""Tables: those of the store, and those of its ring."""
USUAL = 64 * 1024
"""Bytes of an object, on average, in a large store."""
LONGEST = 16 * USUAL
"""Bytes at which an object ends in any case."""
MOST = LONGEST + MAX_RECORD + MAX_KEY + 6
"""Bytes that an object can have."""
_HEAD = struct.Struct(">BBI")
_PAGE = 256


class Row(NamedTuple):
    """A row of a store, or of its ring."""

    table: int
    key: bytes
    content: bytes


class Part(msgspec.Struct, array_like=True, frozen=True):
    """An object of a backup."""

    run: str
    """Whose object it is."""
    hash: bytes
    size: int
    rows: int

    @property
    def name(self) -> str:
        """Where it lies."""
        return f"objects/{self.run}/{self.hash.hex()}"


def rows_at(moment: Moment, records: int, cells: int) -> Iterator[Row]:
    """All rows of a moment, as those of two tables."""
    for table, read in ((records, moment.scan), (cells, moment.cells)):
        low = b""
        while page := read(low, LAST, limit=_PAGE):
            for key, content in page:
                yield Row(table, key, content)
            low = page[-1][0] + b"\0"


def packed(rows: Iterable[Row]) -> Iterator[tuple[bytes, int]]:
    """The objects of rows, each with the number of rows in it."""
    waiting, count, table = bytearray(), 0, -1
    for row in rows:
        if waiting and row.table != table:
            yield bytes(waiting), count
            waiting, count = bytearray(), 0
        table = row.table
        waiting += _HEAD.pack(table, len(row.key), len(row.content)) + row.key + row.content
        count += 1
        if len(waiting) >= LONGEST or _ends(row):
            yield bytes(waiting), count
            waiting, count = bytearray(), 0
    if waiting:
        yield bytes(waiting), count


def _ends(row: Row) -> bool:
    chance = (len(row.key) + len(row.content)) / USUAL
    return int.from_bytes(hashlib.sha256(row.key).digest()[:6], "big") < chance * (1 << 48)


def unpacked(data: bytes, place: str) -> Iterator[Row]:
    """The rows in an object; nothing of it is believed."""
    at = 0
    while at < len(data):
        if at + _HEAD.size > len(data):
            raise damaged(place)
        table, key, content = _HEAD.unpack_from(data, at)
        at += _HEAD.size
        end = at + key + content
        if table > RING_CELLS or key > MAX_KEY or content > MAX_RECORD or end > len(data):
            raise damaged(place)
        yield Row(table, data[at : at + key], data[at + key : end])
        at = end


def damaged(place: str) -> DamagedBackupError:
    """The error for an object that is not as it was written."""
    return DamagedBackupError(
        f"{place} is not as it was written; use another backup, or make a new one"
    )
