"""What an export says: a description that somebody signs, and one record for each key.

The description names the content by its size and its SHA-256, and stands in front. So whoever
reads a file knows, before anything else of it is looked at, who vouches for it and how much there
is. The content is one record after the other, in the order of their keys:

    length (2), then msgpack [key, kind, size, meta], then by kind
    0  a value: its encoding, `size` bytes
    1  long bytes: themselves, `size` bytes
    2  a long list: `size` items, each length (4) and encoding

The meta says when the key expires and which class its write named, as in an index (`lifetimes`).
Not in it: keys that had expired by the time of the checkpoint, what is declared of the scope, which
the description has, and what a lookup has derived from values, which is made again where it is
needed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

import msgspec

from holdfast.checkpoints.export.file import ExportFile, damaged
from holdfast.errors import HoldfastError, LimitExceededError
from holdfast.seal.codec import Codec, Unbuilt, ValueLimits
from holdfast.seal.signer import Signer
from holdfast.store.inner import LATEST, Meta, check_class, moment, read_meta
from holdfast.store.names.cause import Cause
from holdfast.store.names.clock import EARLIEST
from holdfast.store.names.scope import Scope, check_key
from holdfast.store.names.threads import safe_point

VALUE, BYTES, LIST = 0, 1, 2
PIECE = 1 << 20
"""Values of more bytes than this are written and read in pieces, if they are bytes or lists."""
_DOMAIN = b"holdfast/export/1\0"
_HEAD = tuple[str, int, int, bytes]
_encode = msgspec.msgpack.Encoder().encode


class Description(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    """What is said of a checkpoint that left its store."""

    lineage: bytes
    scope_id: bytes
    """Of this life of the scope: a tombstone names it, too."""
    scope: str
    timeline: str
    sequence: int
    name: str
    type: str
    time: int
    tags: list[str]
    description: str
    metadata: bytes
    """Encoded as values are."""
    cause: Cause
    hash: bytes
    root: bytes
    exported: int
    keys: int
    size: int
    """Bytes of the content."""
    digest: bytes
    """SHA-256 of the content: equal for equal states, in whatever store."""
    declared: list[tuple[str, bytes]]
    """What is declared of the scope, encoded as values are, under its keys."""
    signer: bytes
    """The public key of who signed this; empty if nobody did."""


@dataclass(frozen=True, slots=True)
class Export:
    """What a file says of the checkpoint in it."""

    scope: Scope
    """Whose checkpoint it was."""
    timeline: str
    sequence: int
    name: str
    type: str
    time: datetime
    tags: tuple[str, ...]
    description: str
    metadata: dict[str, Any]
    cause: Cause
    root: str
    """Commitment to the whole state where it was made, in hexadecimal."""
    hash: str
    store: str
    """The lineage of the store that it was made in, in hexadecimal."""
    exported: datetime
    keys: int
    bytes: int
    """Of keys and values, as they are written."""
    digest: str
    """SHA-256 of keys and values, in hexadecimal: equal for equal states, in whatever store."""
    signer: str
    """The public key of who signed the file, in hexadecimal; empty if nobody did."""
    encrypted: bool

    @property
    def checkpoint(self) -> str:
        """The checkpoint's id where it was made."""
        return f"{self.timeline}@{self.sequence}"


def sign_description(description: Description, signer: Signer | None) -> bytes:
    """The first frame of a file."""
    data = _encode(description)
    return _encode((data, signer.sign(_DOMAIN + data) if signer is not None else b""))


def read_description(frame: bytes) -> Description:
    """What the first frame says, if who is named in it signed it."""
    try:
        data, signature = msgspec.msgpack.decode(frame, type=tuple[bytes, bytes])
        found = msgspec.msgpack.decode(data, type=Description)
        fits = len(found.digest) == 32 and len(found.lineage) == len(found.scope_id) == 16
        known = EARLIEST * 1_000_000 <= found.time <= LATEST
        if not fits or not known or found.size < 0 or found.keys < 0 or found.sequence < 0:
            raise ValueError
    except (msgspec.MsgspecError, ValueError):
        raise damaged("has a description that cannot be read") from None
    if bool(signature) != bool(found.signer):
        raise damaged("is signed by halves")
    if signature and not Signer.verify(found.signer, _DOMAIN + data, signature):
        raise damaged("has a signature that does not fit")
    return found


def public_export(said: Description, encrypted: bool) -> Export:
    """What a description says, for people."""
    try:
        return Export(
            Scope.parse(said.scope),
            said.timeline,
            said.sequence,
            said.name,
            said.type,
            moment(said.time),
            tuple(said.tags),
            said.description,
            Codec(Unbuilt()).decode(said.metadata) if said.metadata else {},
            said.cause,
            said.root.hex(),
            said.hash.hex(),
            said.lineage.hex(),
            moment(said.exported),
            said.keys,
            said.size,
            said.digest.hex(),
            said.signer.hex(),
            encrypted,
        )
    except (HoldfastError, OverflowError):
        raise damaged("has a description that cannot be") from None


# --- records ---------------------------------------------------------------------------------


def record_head(key: str, kind: int, size: int, meta: bytes = b"") -> bytes:
    """What stands in front of the content of a record."""
    packed = _encode((key, kind, size, meta))
    return len(packed).to_bytes(2, "big") + packed


class Sink(Protocol):
    """What takes up the records of a file; all that it is given must be read to its end."""

    def value(self, key: str, data: bytes, meta: Meta) -> None:
        """A value, encoded."""

    def pieces(self, key: str, pieces: Iterator[bytes], meta: Meta) -> None:
        """Long bytes."""

    def items(self, key: str, items: Iterator[bytes], meta: Meta) -> None:
        """Items of a long list, encoded."""


class Content:
    """The content of a file, which is read once, and is what its description says."""

    def __init__(self, file: ExportFile, said: Description, limits: ValueLimits) -> None:
        self._file = file
        self._said = said
        self._limits = limits
        self._left = said.size
        self._hash = hashlib.sha256()

    def give(self, sink: Sink) -> None:
        """Lead every record to a sink; refused if anything is not as it should be."""
        keys, last = 0, ""
        while self._left:
            key, kind, size, meta = self._head()
            if key <= last:
                raise damaged("has keys that are not in order")
            if kind == VALUE:
                sink.value(key, self._value(size), meta)
            elif kind == BYTES:
                self._bound(size, self._limits.long)
                sink.pieces(key, self._pieces(size), meta)
            elif kind == LIST:
                sink.items(key, self._items(size), meta)
            else:
                raise damaged("has a record of a kind that is not known")
            keys, last = keys + 1, key
        if keys != self._said.keys or self._hash.digest() != self._said.digest:
            raise damaged("does not hold what its description says")
        self._file.finish()

    def _read(self, size: int) -> bytes:
        if size > self._left:
            raise damaged("holds more than its description says")
        safe_point()
        found = self._file.read(size)
        self._left -= size
        self._hash.update(found)
        return found

    def _head(self) -> tuple[str, int, int, Meta]:
        packed = self._read(int.from_bytes(self._read(2), "big"))
        try:
            key, kind, size, meta = msgspec.msgpack.decode(packed, type=_HEAD)
            if check_key(key, owner=True) != key or size < 0:
                raise ValueError
            return key, kind, size, _checked_meta(meta)
        except (msgspec.MsgspecError, ValueError, HoldfastError):
            raise damaged("has a record that cannot be read") from None

    def _bound(self, size: int, most: int) -> None:
        if size > most:
            raise LimitExceededError(
                f"this export holds a value of {size} bytes, {most} are allowed; open the store "
                "with limits=holdfast.ValueLimits(...) to take it"
            )

    def _value(self, size: int) -> bytes:
        self._bound(size, self._limits.size)
        return self._read(size)

    def _pieces(self, size: int) -> Iterator[bytes]:
        while size:
            piece = self._read(min(size, PIECE))
            size -= len(piece)
            yield piece

    def _items(self, count: int) -> Iterator[bytes]:
        for _ in range(count):
            yield self._value(int.from_bytes(self._read(4), "big"))


def _checked_meta(packed: bytes) -> Meta:
    """What a record says of its key, if a key can have that."""
    found = read_meta(packed)
    times = (found.expires, found.term)
    if any(type(time) is not int or not 0 <= time <= LATEST for time in times):
        raise ValueError
    if found.class_:
        check_class(found.class_)
    if found.pack() != packed:
        raise ValueError
    return found
