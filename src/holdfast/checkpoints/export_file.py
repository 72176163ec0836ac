"""The file around an export: frames of bounded size, sealed if a key is given, and a check.

    magic    "holdfast-export/1" and a NUL
    head     length (2), then nothing, or what is needed to derive the key from a key file or a
             passphrase: the same row as in a ring, see `seal.masters`
    frames   compression (1), plain length (4), stored length (4), stored bytes
    check    SHA-256 of all that stands before it

The first frame is the description, which says how much follows; the others hold the content. A
sealed frame is nonce, ciphertext and tag of AES-256-GCM under a key that only this file has, bound
to all that stands before the frames and to the frame's number and lengths. What is sealed is not
compressed: a secret and what somebody else has written would be squeezed together, and the length
would tell whether they are alike.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any, BinaryIO, Protocol

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from holdfast.errors import (
    DamagedExportError,
    FormatError,
    HoldfastError,
    InvalidInputError,
    KeyMissingError,
    KeyNotNeededError,
    LimitExceededError,
    NewerFormatError,
    StateIntegrityError,
    WrongKeyError,
)
from holdfast.seal.codec import Codec, Unbuilt, ValueLimits
from holdfast.seal.compress import NONE, expand, squeeze
from holdfast.seal.keys import KeySource
from holdfast.seal.ring import (
    NONCE,
    fitting,
    master_of,
    new_meta,
    pack_meta,
    subkey,
    unpack_meta,
)
from holdfast.seal.signer import Signer
from holdfast.store.inner import LATEST, Meta, check_class, moment, read_meta
from holdfast.store.names.cause import Cause
from holdfast.store.names.clock import EARLIEST
from holdfast.store.names.scope import Scope, check_key
from holdfast.store.names.threads import safe_point

MAGIC = b"holdfast-export/1\0"
FRAME = 256 * 1024
"""Bytes of content in a frame, at most."""
DESCRIPTION = 4 << 20
"""Bytes of a description, at most."""
_GENERATION = 1
_LENGTHS = struct.Struct(">BII")
"""Compression, plain and stored length of a frame."""
_CHECK = 32
_TAG = 16

_random = os.urandom
"""The only source of randomness of this module; `holdfast.testing` may replace it."""


def damaged(what: str) -> DamagedExportError:
    """The error for a file that is not as it was written."""
    return DamagedExportError(
        f"this export {what}: it was changed, or cut short; get it again from where it was made"
    )


class _Sealing:
    """Seals the frames of one file."""

    def __init__(self, head: bytes, master: bytes, id: bytes) -> None:
        self._head = MAGIC + head
        self._aead = AESGCM(subkey(master, b"export/seal", id))
        self._nonce_key = subkey(master, b"export/nonce", id)

    def _bound(self, number: int, lengths: bytes) -> bytes:
        return self._head + number.to_bytes(8, "big") + lengths

    def seal(self, number: int, lengths: bytes, plain: bytes) -> bytes:
        """Nonce, ciphertext and tag; the nonce is hedged with the content, as in records."""
        bound = self._bound(number, lengths)
        state = hashlib.blake2b(bound, key=self._nonce_key, digest_size=NONCE)
        state.update(hashlib.sha256(plain).digest() + _random(16))
        nonce = state.digest()
        return nonce + self._aead.encrypt(nonce, plain, bound)

    def open(self, number: int, lengths: bytes, sealed: bytes) -> bytes:
        """What was sealed as this frame of this file."""
        try:
            bound = self._bound(number, lengths)
            return self._aead.decrypt(sealed[:NONCE], sealed[NONCE:], bound)
        except (InvalidTag, ValueError):
            raise damaged("has a frame that does not open") from None


# --- writing ---------------------------------------------------------------------------------


def export_parts(
    description: bytes,
    content: Iterable[bytes],
    source: KeySource | None,
    method: int | None = None,
) -> Iterator[bytes]:
    """What is in a file; sealed if there is a key, whose file is made if it is missing.

    `method` compresses one that is not sealed, instead of what fits the length of a frame.
    """
    head, sealing = b"\0\0", None
    if source is not None:
        id = _random(16)
        meta, master = new_meta(source, id, _GENERATION)
        packed = pack_meta(meta)
        head = len(packed).to_bytes(2, "big") + packed
        sealing = _Sealing(head, master, id)
    check = hashlib.sha256()
    check.update(MAGIC + head)
    yield MAGIC + head
    for number, plain in enumerate(_frames(description, content)):
        part = _frame(plain, number, sealing, method)
        check.update(part)
        yield part
    yield check.digest()


def _frames(description: bytes, content: Iterable[bytes]) -> Iterator[bytes]:
    yield description
    waiting = bytearray()
    for piece in content:
        waiting += piece
        while len(waiting) >= FRAME:
            yield bytes(waiting[:FRAME])
            del waiting[:FRAME]
    if waiting:
        yield bytes(waiting)


def _frame(plain: bytes, number: int, sealing: _Sealing | None, wanted: int | None) -> bytes:
    if sealing is None:
        method, stored = squeeze(plain, wanted)
        return _LENGTHS.pack(method, len(plain), len(stored)) + stored
    lengths = _LENGTHS.pack(NONE, len(plain), NONCE + len(plain) + _TAG)
    return lengths + sealing.seal(number, lengths, plain)


# --- reading ---------------------------------------------------------------------------------


class ExportFile:
    """A file that is read from its beginning to its end, as often as it is asked for.

    Nothing of it is believed: every length is bounded before anything is read or expanded.
    """

    def __init__(self, file: BinaryIO, source: KeySource | None) -> None:
        self._file = file
        self._sealing: _Sealing | None = None
        self._restart()
        if self._take(len(MAGIC)) != MAGIC:
            raise InvalidInputError(
                "this is no export of a checkpoint; `export_checkpoint` makes one"
            )
        length = self._take(2)
        packed = self._take(int.from_bytes(length, "big"))
        self._sealing = _opened(length + packed, packed, source)
        self._start = len(MAGIC) + len(length) + len(packed)
        self.description = self._frame(DESCRIPTION)

    @property
    def encrypted(self) -> bool:
        """Whether it opens with a key only."""
        return self._sealing is not None

    def rewind(self) -> None:
        """Begin again, behind the description, which must be the same."""
        self._restart()
        self._take(self._start)
        if self._frame(DESCRIPTION) != self.description:
            raise damaged("was changed while it was read")

    def _restart(self) -> None:
        self._file.seek(0)
        self._check = hashlib.sha256()
        self._number = 0
        self._buffer = memoryview(b"")

    def read(self, size: int) -> bytes:
        """The next bytes of the content, exactly so many."""
        found = bytearray()
        while len(found) < size:
            if not self._buffer:
                self._buffer = memoryview(self._frame(FRAME))
            wanted = size - len(found)
            found += self._buffer[:wanted]
            self._buffer = self._buffer[wanted:]
        return bytes(found)

    def finish(self) -> None:
        """Refuse what has more in it than was read, or another check."""
        wanted = self._check.digest()
        if self._buffer:
            raise damaged("holds more than it says")
        found = self._file.read(_CHECK + 1)
        if not hmac.compare_digest(found, wanted):
            raise damaged("does not have the check that its content gives")

    def _take(self, size: int) -> bytes:
        found = self._file.read(size)
        if len(found) != size:
            raise damaged("ends too early")
        self._check.update(found)
        return found

    def _frame(self, most: int) -> bytes:
        lengths = self._take(_LENGTHS.size)
        method, plain, stored = _LENGTHS.unpack(lengths)
        more = NONCE + _TAG if self._sealing is not None else 0
        if not 0 < plain <= most or stored > plain + more:
            raise damaged("has a frame that is too long")
        data = self._take(stored)
        if self._sealing is not None:
            data = self._sealing.open(self._number, lengths, data)
        self._number += 1
        try:
            return expand(method, data, plain)
        except (StateIntegrityError, FormatError):  # in words of the export
            raise damaged("has a frame that cannot be expanded") from None


def _opened(head: bytes, packed: bytes, source: KeySource | None) -> _Sealing | None:
    """What opens the frames; None if they are not sealed."""
    if not packed:
        if source is not None:
            raise KeyNotNeededError(
                "this export is not encrypted, and a key was given; leave the key out if that "
                "is what you expect of it"
            )
        return None
    try:
        meta = unpack_meta(packed, _GENERATION)
        if source is None:
            raise KeyMissingError("this export is encrypted: give the key that it was made with")
        key = fitting(meta, source)
    except NewerFormatError:
        raise NewerFormatError("this export was made by a newer version; update holdfast") from None
    except (StateIntegrityError, FormatError):  # in words of the export
        raise damaged("says of its key what cannot be") from None
    if key is None:
        raise WrongKeyError("the key does not open this export; give the one that it was made with")
    try:
        return _Sealing(head, master_of(meta, key), meta.lineage)
    except StateIntegrityError:  # in words of the export
        raise damaged("holds a wrapped key that does not open") from None


# ---- export records -----------------------------------------------------------------------------
# What an export says: a description that somebody signs, and one record for each key.
#
# The description names the content by its size and its SHA-256, and stands in front. So whoever
# reads a file knows, before anything else of it is looked at, who vouches for it and how much there
# is. The content is one record after the other, in the order of their keys:
#
#     length (2), then msgpack [key, kind, size, meta], then by kind
#     0  a value: its encoding, `size` bytes
#     1  long bytes: themselves, `size` bytes
#     2  a long list: `size` items, each length (4) and encoding
#
# The meta says when the key expires and which class its write named, as in an index (`lifetimes`).
# Not in it: keys that had expired by the time of the checkpoint, what is declared of the scope,
# which the description has, and what a lookup has derived from values, which is made again where
# it is needed.


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
                lows = range(0, size, PIECE)
                sink.pieces(key, (self._read(min(PIECE, size - low)) for low in lows), meta)
            elif kind == LIST:
                each = (self._read(4) for _ in range(size))
                sink.items(key, (self._value(int.from_bytes(one, "big")) for one in each), meta)
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
            found = read_meta(meta)
            # What a key can have, written as it is written here.
            for time in (found.expires, found.term):
                if type(time) is not int or not 0 <= time <= LATEST:
                    raise ValueError
            if found.class_:
                check_class(found.class_)
            if found.pack() != meta:
                raise ValueError
            return key, kind, size, found
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
