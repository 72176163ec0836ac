"""What a backup is, as a signed JSON document: `{"backup": {...}, "signature": "..."}`.

The signature is over the bytes of the first value as they stand. It is made by the store's signer,
so that whoever can write the place can delete backups, but make or change none.
"""

from __future__ import annotations

import hashlib
import os
import re
import struct
from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import datetime, timedelta
from itertools import groupby
from typing import NamedTuple

import msgspec

from holdfast.backup.place import Place
from holdfast.errors import (
    BackupNotFoundError,
    DamagedBackupError,
    InvalidInputError,
    NewerFormatError,
    StateIntegrityError,
)
from holdfast.seal.signer import Signer, check_vouched
from holdfast.storage.contract import LAST, MAX_KEY, MAX_RECORD, Moment
from holdfast.storage.rows import each

# ---- parts --------------------------------------------------------------------------------------
# Rows as objects: cut where the rows say, so that a change sends only what lies near it.
#
# An object holds rows in the order of their tables and keys: table (1), length of the key (1),
# length of the content (4), key, content. A row ends an object with a chance that grows with its
# size, by a hash of its key: that does not depend on what stands before, so that of two moments of
# a store all objects are equal but those that hold a changed row. One that grows too long ends
# anyway.


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
        for key, content in each(read, b"", LAST, limit=_PAGE):
            yield Row(table, key, content)


def packed(rows: Iterable[Row]) -> Iterator[tuple[bytes, int]]:
    """The objects of rows, each with the number of rows in it."""
    for table, some in groupby(rows, lambda row: row.table):
        waiting, count = bytearray(), 0
        for _, key, content in some:
            waiting += _HEAD.pack(table, len(key), len(content)) + key + content
            count += 1
            chance = (len(key) + len(content)) / USUAL
            drawn = int.from_bytes(hashlib.sha256(key).digest()[:6], "big")
            if len(waiting) >= LONGEST or drawn < chance * (1 << 48):
                yield bytes(waiting), count
                waiting, count = bytearray(), 0
        if waiting:
            yield bytes(waiting), count


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


# ---- manifest -----------------------------------------------------------------------------------


FORMAT = 1
LARGEST = 1 << 20
"""Bytes of a manifest, at most."""
LONGEST_LIST = 1 << 30
"""Bytes of the list of a backup's objects, at most: enough for a terabyte."""
_DOMAIN = b"holdfast/backup/1\0"
_NONE = (StateIntegrityError, NewerFormatError, BackupNotFoundError, ValueError, OverflowError)
"""What is no backup that another can come behind."""
_TIME = "%Y%m%dT%H%M%S%f"
_ID = re.compile(r"\d{8}T\d{12}Z-[0-9a-f]{8}")
_decode_parts = msgspec.msgpack.Decoder(list[Part]).decode


class Backup(msgspec.Struct, frozen=True, kw_only=True):
    """A backup, as its manifest describes it."""

    id: str
    name: str
    created: datetime
    """By the clock of the process that made it."""
    type: str
    """full (all was sent), or incremental: only what the place did not have, from other backups or
    from one that was cut short."""
    parent: str
    """Of an incremental one, the newest backup of the store before it; empty if there is none,
    because all that was sent before was cut short."""
    lineage: str
    """Of which store it is."""
    encrypted: bool
    keys: bool
    """The wrapped keys of the ring are in it."""
    signer: str
    """The public key of who signed it; empty if nobody did."""
    rows: int
    bytes: int
    """Of all of its rows."""
    objects: int
    uploaded: int
    """Bytes that were sent for it."""
    parts: Part
    """The object that lists the others."""
    format: int = FORMAT


class _Signed(msgspec.Struct):
    backup: msgspec.Raw
    signature: str


def new_id(created: datetime) -> str:
    """The id of a backup made at a time: by its order, they are ordered."""
    return f"{created.strftime(_TIME)}Z-{os.urandom(4).hex()}"


def next_id(place: Place, created: datetime, lineage: str, signer: str) -> str:
    """The id of a backup made now: behind those of its store and signer, whatever clocks said.

    One that was made under a clock years ahead would count as the newest for years, and those made
    since would be pruned before it.
    """
    id = new_id(created)
    for other in ids(place):
        if other < id:
            break
        with suppress(*_NONE):
            found = read(place, other)
            if (found.lineage, found.signer) == (lineage, signer):
                then = datetime.strptime(other.partition("-")[0], f"{_TIME}%z")
                return new_id(then + timedelta(microseconds=1))
    return id


def is_id(text: object) -> bool:
    """Whether it may be the id of a backup, and part of a name."""
    return isinstance(text, str) and _ID.fullmatch(text) is not None


def path_of(id: str) -> str:
    """Where the manifest of a backup lies."""
    if not is_id(id):
        raise InvalidInputError("a backup is named by its id, as `list()` shows it")
    return f"backups/{id}.json"


def sign(backup: Backup, signer: Signer | None) -> bytes:
    """The bytes of a manifest."""
    data = msgspec.json.encode(backup)
    signature = signer.sign(_DOMAIN + data).hex() if signer is not None else ""
    return msgspec.json.encode(_Signed(msgspec.Raw(data), signature))


def ids(place: Place) -> list[str]:
    """The ids of all backups at a place, newest first."""
    names = [one.name.rpartition("/")[2] for one in place.objects("backups")]
    found = [name.removesuffix(".json") for name in names if name.endswith(".json")]
    return sorted(filter(is_id, found), reverse=True)


def read(place: Place, id: str) -> Backup:
    """A backup, if who is named in its manifest signed it."""
    name = path_of(id)
    try:
        data = place.get(name, LARGEST)
    except BackupNotFoundError:
        raise BackupNotFoundError(
            f"there is no backup {id} at {place.address}; `list()` shows those that are there"
        ) from None
    try:
        signed = msgspec.json.decode(data, type=_Signed)
        if msgspec.json.decode(bytes(signed.backup), type=_Version).format > FORMAT:
            raise NewerFormatError(f"backup {id} was made by a newer version; update holdfast")
        found = msgspec.json.decode(bytes(signed.backup), type=Backup)
        public, signature = bytes.fromhex(found.signer), bytes.fromhex(signed.signature)
    except (msgspec.MsgspecError, ValueError):
        raise damaged(name) from None
    right = found.id == id and is_run(found.parts) and found.parts.size <= LONGEST_LIST
    if not right or bool(public) != bool(signature):
        raise damaged(name)
    if public and not Signer.verify(public, _DOMAIN + bytes(signed.backup), signature):
        raise DamagedBackupError(f"{name} has a signature that does not fit: it was changed")
    return found


class _Version(msgspec.Struct):
    format: int


def is_run(part: Part) -> bool:
    """Whether the name of an object is one of ours."""
    return is_id(part.run) and len(part.hash) == 32


def check_signer(backup: Backup, trusted: frozenset[bytes]) -> None:
    """Refuse a backup that nobody signed who is trusted."""
    check_vouched(f"backup {backup.id}", bytes.fromhex(backup.signer), trusted)


def object_of(place: Place, part: Part) -> bytes:
    """The bytes of an object, which are what their hash says."""
    data = place.get(part.name, part.size)
    if len(data) != part.size or hashlib.sha256(data).digest() != part.hash:
        raise damaged(part.name)
    return data


def parts_of(place: Place, backup: Backup) -> list[Part]:
    """All objects of a backup that hold rows."""
    try:
        parts = _decode_parts(object_of(place, backup.parts))
    except msgspec.MsgspecError:
        raise damaged(backup.parts.name) from None
    right = all(is_run(part) and 0 < part.size <= MOST and part.rows > 0 for part in parts)
    if not right or len(parts) != backup.objects or sum(p.rows for p in parts) != backup.rows:
        raise damaged(backup.parts.name)
    return parts


def rows_of(place: Place, part: Part) -> list[Row]:
    """The rows in an object of a backup."""
    rows = list(unpacked(object_of(place, part), part.name))
    if len(rows) != part.rows:
        raise damaged(part.name)
    return rows


def in_order(rows: list[Row], last: tuple[int, bytes], name: str) -> tuple[int, bytes]:
    """The place of the last of these rows, if each is behind the one before, and `last`."""
    for row in rows:
        if (row.table, row.key) <= last:
            raise damaged(name)
        last = row.table, row.key
    return last
