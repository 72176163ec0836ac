"""The rows of the ring that say which masters open it: one of each generation.

    M + generation   record  msgpack [format, kind, lineage, generation, argon cost, salt,
                             wrapped master, key check] and a 16-byte checksum
    R + generation   record  the same of a master that was retired, without a wrapped master
    G                cell    the oldest and the newest generation that open the ring, 4 bytes each

Whether a key is the right one is decided by a key check (HMAC) before anything is unwrapped, so
that a wrong key, a retired one and a damaged ring are different errors.
"""

from __future__ import annotations

import hashlib
import hmac
import os

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from holdfast.errors import (
    Conflict,
    DamagedRingError,
    KeyMissingError,
    KeyRetiredError,
    NewerFormatError,
    WrongKeyError,
)
from holdfast.seal.keys import (
    DEFAULT_ARGON,
    KEY,
    PASSPHRASE,
    RAW,
    SALT,
    Argon,
    KeySource,
    check_argon,
    derive,
)
from holdfast.storage.contract import Storage
from holdfast.storage.rows import again

FORMAT = 1
NONCE = 12
BUSY = "the ring is always changed by others; try again"
_RETIRED_LOOKED_AT = 8
"""Retired masters that a key which does not fit is compared with, newest first."""

META, RETIRED, GENERATIONS = b"M", b"R", b"G"
Span = tuple[int, int]
"""The oldest and the newest generation that open a ring; equal unless its master is rotated."""

_random = os.urandom
"""The only source of randomness of this module; `holdfast.testing` may replace it."""


class Meta(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """What is known of a master without the key."""

    format: int
    kind: int
    lineage: bytes
    generation: int
    argon: tuple[int, int, int] | None
    salt: bytes
    wrapped: bytes
    check: bytes

    def head(self) -> bytes:
        """What the key check and the wrap of the master cover."""
        cost = self.argon or (0, 0, 0)
        numbers = (self.format, self.kind, self.generation, *cost)
        return self.lineage + b"".join(n.to_bytes(4, "big") for n in numbers) + self.salt


def subkey(key: bytes, label: bytes, data: bytes = b"") -> bytes:
    """A key, or a check, for one purpose."""
    return hmac.digest(key, b"holdfast/1/" + label + b"\0" + data, "sha256")


def damaged(row: str) -> DamagedRingError:
    """The error for a row that is not as it was written."""
    return DamagedRingError(
        f"the {row} of the ring is damaged; put the ring back from a copy", f"ring: {row}"
    )


def new_meta(source: KeySource, lineage: bytes, generation: int) -> tuple[Meta, bytes]:
    """The row of a new master, and the master; a key file that is missing is made here."""
    secret = source.load(create=True)
    meta = Meta(FORMAT, source.kind, lineage, generation, None, b"", b"", b"")
    if source.kind == RAW:
        key = master = secret.reveal()
    else:
        cost = DEFAULT_ARGON
        meta.argon = (cost.memory, cost.passes, cost.lanes)
        meta.salt = _random(SALT)
        key, master = derive(secret, meta.salt, cost), _random(KEY)
        # Under a fresh random salt the key is used once, so a random nonce cannot repeat.
        nonce = _random(NONCE)
        sealed = AESGCM(subkey(key, b"wrap/M")).encrypt(nonce, master, meta.head())
        meta.wrapped = nonce + sealed
    meta.check = subkey(key, b"key-check", meta.head())
    return meta, master


def fitting(meta: Meta, source: KeySource) -> bytes | None:
    """The key that the source gives, if it is the one of this row."""
    if source.kind != meta.kind:
        return None
    if meta.kind == RAW:
        key = source.load().reveal()
    else:
        cost = Argon(*(meta.argon or (0, 0, 0)))
        check_argon(cost)
        key = derive(source.load(), meta.salt, cost)
    fits = hmac.compare_digest(subkey(key, b"key-check", meta.head()), meta.check)
    return key if fits else None


def master_of(meta: Meta, key: bytes) -> bytes:
    """The master that a fitting key opens."""
    if meta.kind == RAW:
        return key
    nonce, sealed = meta.wrapped[:NONCE], meta.wrapped[NONCE:]
    try:
        return AESGCM(subkey(key, b"wrap/M")).decrypt(nonce, sealed, meta.head())
    except (InvalidTag, ValueError):
        raise damaged("meta row") from None


def no_key() -> KeyMissingError:
    """The error for an encrypted store that is opened without a key."""
    return KeyMissingError("the store is encrypted: give its key with key= or HOLDFAST_KEY")


_OLDER = (
    ". If it is the right one, the ring beside the store, which is of this store and does not "
    "know the key, is an older copy: put today's ring back"
)


def wrong_key(metas: list[Meta], source: KeySource) -> WrongKeyError:
    """The error for a key that opens none of these rows."""
    if all(meta.kind != source.kind for meta in metas):
        wanted = "passphrase:TEXT" if metas[-1].kind == PASSPHRASE else "file:PATH or env:NAME"
        return WrongKeyError(
            f"this store is opened with {wanted}, another kind of key was given{_OLDER}"
        )
    return WrongKeyError(
        "the key does not open this store; give the one it was created with, or that its master "
        f"was rotated to{_OLDER}"
    )


def _checksum(packed: bytes) -> bytes:
    return hashlib.sha256(b"holdfast/1/ring-meta\0" + packed).digest()[:16]


def pack_meta(meta: Meta) -> bytes:
    """The row's bytes."""
    packed = msgspec.msgpack.encode(meta)
    return packed + _checksum(packed)


def unpack_meta(row: bytes, generation: int) -> Meta:
    """The checksum is for accidents, so that a flipped bit is not reported as a wrong key."""
    packed, found = row[:-16], row[-16:]
    if found != _checksum(packed):
        raise damaged("meta row")
    try:
        if msgspec.msgpack.decode(packed)[0] != FORMAT:
            raise NewerFormatError("the ring was written by a newer version; update holdfast")
        meta = msgspec.msgpack.decode(packed, type=Meta)
        meta.head()
    except (msgspec.DecodeError, ValueError, LookupError, TypeError, OverflowError):
        raise damaged("meta row") from None
    if meta.kind not in (RAW, PASSPHRASE):
        raise NewerFormatError("the ring uses a kind of key that this version does not know")
    if meta.generation != generation:
        raise damaged("meta row")
    return meta


# --- which of them open a ring ---------------------------------------------------------------


def pack_span(span: Span) -> bytes:
    """The cell's content."""
    return span[0].to_bytes(4, "big") + span[1].to_bytes(4, "big")


def read_span(storage: Storage) -> Span:
    """Which generations open the ring."""
    found = storage.cells(GENERATIONS, GENERATIONS + b"\0")
    content = found[0][1] if found else b""
    span = int.from_bytes(content[:4], "big"), int.from_bytes(content[4:], "big")
    if len(content) != 8 or not 0 <= span[1] - span[0] <= 1:
        raise damaged("generation cell")
    return span


def stored_masters(storage: Storage) -> list[tuple[bytes, bytes]]:
    """The rows of the masters that open the ring, oldest first."""
    return storage.scan(META, META + b"\xff" * 5)


def read_masters(storage: Storage) -> tuple[Span, list[Meta]]:
    """Which generations open the ring, and what is known of each master, oldest first."""

    def read() -> tuple[Span, list[tuple[bytes, bytes]]]:
        found = stored_masters(storage)
        if not found:
            raise KeyMissingError(
                "the store is encrypted and its ring, which holds the wrapped keys, is missing or "
                "empty; put it back from a copy"
            )
        span = read_span(storage)
        if stored_masters(storage) != found:
            raise Conflict("the master was rotated between the reads")
        return span, found

    span, found = again(read, BUSY)
    metas = [unpack_meta(row, int.from_bytes(key[1:], "big")) for key, row in found]
    if [meta.generation for meta in metas] != sorted(set(span)):
        raise damaged("generation cell")
    return span, metas


def retired(newest: int) -> KeyRetiredError:
    """The error for a master that opened the ring once."""
    return KeyRetiredError(
        f"this master key was retired; the store is at generation {newest} of its master: open "
        "it with the key that it was rotated to"
    )


def was_retired(storage: Storage, source: KeySource) -> bool:
    """Whether the key opened this ring once."""
    rows = storage.scan(RETIRED, RETIRED + b"\xff" * 5, limit=_RETIRED_LOOKED_AT, reverse=True)
    metas = (unpack_meta(row, int.from_bytes(key[1:], "big")) for key, row in rows)
    return any(fitting(meta, source) is not None for meta in metas)
