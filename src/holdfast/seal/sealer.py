"""Commitments to content, and sealed records.

    byte 0     0x10 | flags: 1 encrypted, 2+4 compression method, 8 writer outside
    encrypted  epoch (varint), writer (16, unless outside), plain length (varint),
               nonce (12), ciphertext and tag (16)
    plain      plain length (varint), payload, check (16)

All before the nonce (or payload) is the header, and each bit of it is authenticated together
with the associated data, which is the record's place and is made by the store. In a plain
store the check finds accidents; only commitments and signatures find a forger.

Writer key = HMAC-SHA-256(data key, "holdfast/writer" || writer); no record is sealed under a
data key itself. The nonce is a keyed hash of place, header, commitment and fresh randomness:
a cloned machine that repeats its random numbers repeats a nonce only for the same content in
the same place.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from holdfast.errors import (
    DamagedRecordError,
    DataKeyRemovedError,
    InvalidInputError,
    KeyMissingError,
)
from holdfast.seal.compress import NONE, PADDED, SMALLEST, expand, pad, squeeze

WRITER = 16
NONCE = 12
TAG = 16
RECORDS_PER_WRITER = 1 << 28
"""Then it draws a new key: far below the 2^32 records at which nonces of one key may repeat."""
CACHED_WRITERS = 256

_FORMAT = 0x10
_ENCRYPTED, _OUTSIDE = 1, 8
_METHOD_SHIFT = 1
_METHODS = 3 << _METHOD_SHIFT

_random = os.urandom
"""The only source of randomness of this module; `holdfast.testing` may replace it."""


def new_writer() -> bytes:
    """A fresh writer: 16 random bytes."""
    return _random(WRITER)


# --- varints --------------------------------------------------------------------------------

_SMALL = [bytes((n,)) for n in range(128)]


def write_varint(n: int) -> bytes:
    """Seven bits a byte, lowest first; 0 <= n < 2**63."""
    if 0 <= n < 128:
        return _SMALL[n]
    if 128 <= n < 16384:
        return bytes((n & 127 | 128, n >> 7))
    if not 0 <= n < 1 << 63:
        raise InvalidInputError("a varint holds numbers from 0 to 2**63 - 1")
    out = bytearray()
    while n > 127:
        out.append(n & 127 | 128)
        n >>= 7
    out.append(n)
    return bytes(out)


_SHORT = [write_varint(n) for n in range(1024)]
"""Ready made: of most lengths and all key epochs."""


def read_varint(data: bytes, pos: int) -> tuple[int, int]:
    """(number, position after it); ValueError if cut short, over 9 bytes or not the shortest."""
    if pos < len(data) and data[pos] < 128:
        return data[pos], pos + 1
    if pos + 1 < len(data) and 0 < data[pos + 1] < 128:
        return data[pos] & 127 | data[pos + 1] << 7, pos + 2
    n = shift = 0
    for at in range(pos, min(pos + 9, len(data))):
        byte = data[at]
        n |= (byte & 127) << shift
        if byte < 128:
            if byte == 0 and at > pos:
                break
            return n, at + 1
        shift += 7
    raise ValueError("not a varint")


# --- commitments ----------------------------------------------------------------------------

_PREFIX = b"holdfast/1/"
_KEYED = b"holdfast/1/keyed\0"


class Commitments:
    """32-byte commitments to content: SHA-256 without a key; with one, built on it.

    With a key, the *opening* of content is keyed BLAKE2b of its SHA-256, and its commitment is
    SHA-256 of both. So nobody without the key can guess content from a commitment, and yet one
    commitment can be opened to somebody: content and opening, and nothing of the key.

    A plain store gives the scope's random `salt`, from which its boundary key is made; the
    salt is not part of commitments, so that equal content has equal commitments.
    """

    __slots__ = ("_domains", "_key", "boundary_key")

    def __init__(self, key: bytes | None, *, salt: bytes = b"") -> None:
        self._key = key
        self._domains: dict[bytes, Callable[[bytes], bytes]] = {}
        self.boundary_key = self.domain(b"boundary-key")(salt)

    def domain(self, label: bytes) -> Callable[[bytes], bytes]:
        """The function from data to its commitment under this label."""
        made = self._domains.get(label)
        if made is None:
            prefix = _prefix(label)
            made = _hasher(prefix) if self._key is None else _keyed_hasher(self._key, prefix)
            self._domains[label] = made
        return made

    def opening(self, label: bytes, data: bytes) -> bytes:
        """What shows somebody without the key that a commitment is one to this data; empty if
        there is no key, and nothing to show."""
        if self._key is None:
            return b""
        digest = _hasher(_prefix(label))(data)
        return hashlib.blake2b(digest, key=self._key, digest_size=32).digest()

    def tag(self, label: bytes, data: bytes) -> bytes:
        """A 16-byte tag of data; its domain is apart from that of a commitment."""
        return self.domain(b"tag/" + label)(data)[:16]


def _prefix(label: bytes) -> bytes:
    if not label or b"\0" in label:
        raise InvalidInputError("a domain's label is not empty and holds no NUL")
    return _PREFIX + label + b"\0"


def _hasher(prefix: bytes) -> Callable[[bytes], bytes]:
    copy = hashlib.sha256(prefix).copy

    def commit(data: bytes) -> bytes:
        state = copy()
        state.update(data)
        return state.digest()

    return commit


def _keyed_hasher(key: bytes, prefix: bytes) -> Callable[[bytes], bytes]:
    """See `Commitments`; states are prepared once, for this is done for every record."""
    if len(key) != 32:
        raise InvalidInputError("a commitment key has 32 bytes")
    content = hashlib.sha256(prefix).copy
    keyed = hashlib.blake2b(key=key, digest_size=32).copy
    last = hashlib.sha256(_KEYED).copy

    def commit(data: bytes) -> bytes:
        state = content()
        state.update(data)
        digest = state.digest()
        opening = keyed()
        opening.update(digest)
        state = last()
        state.update(opening.digest() + digest)
        return state.digest()

    return commit


# --- seals ----------------------------------------------------------------------------------


def _damaged(what: str) -> DamagedRecordError:
    return DamagedRecordError(f"a record cannot be opened: {what}")


class PlainSeal:
    """The seal of a store without a key: compressed, checked against accidents."""

    __slots__ = ("writer",)

    encrypted = False
    epoch = 0

    def __init__(self, writer: bytes) -> None:
        self.writer = writer
        """Whose key seals now; a plain record does not depend on it."""

    def know(self, epoch: int) -> None:
        """An entry was made under this key epoch: nothing is sealed under older ones any more.

        A plain store has no keys.
        """

    def seal(
        self,
        ad: bytes,
        plain: bytes,
        commitment: bytes,
        *,
        writer_outside: bool = False,
        writer: bytes | None = None,
        compress: bool = True,
        quiet: bool = False,
    ) -> bytes:
        """The sealed record. `ad` is its place, `commitment` that of the plain bytes.

        With `writer_outside` the record does not hold its writer: the caller keeps it, passes
        it as `writer` here (because the seal's own may change between two calls) and again to
        `open`. One that is `quiet` says little by its length: it is not compressed, and padded.

        Commitment and writer have no part in a plain record, and a quiet one is not padded: who
        has it can read it.
        """
        small = len(plain) < SMALLEST or not compress or quiet
        method, payload = (NONE, plain) if small else squeeze(plain)
        head = _SMALL[_FORMAT | method << _METHOD_SHIFT] + write_varint(len(plain))
        return head + payload + _plain_check(ad, head, payload)

    def open(self, ad: bytes, sealed: bytes, writer: bytes | None = None, start: int = 0) -> bytes:
        """The plain bytes. What stands before `start` belongs to the associated data.

        Raises `DamagedRecordError` if anything is off, `KeyMissingError` if the record names a
        key epoch that is not there.
        """
        try:
            first = sealed[start]
            length, at = read_varint(sealed, start + 1)
        except (IndexError, ValueError):
            raise _damaged("its header is damaged") from None
        if first & ~6 != _FORMAT or len(sealed) < at + TAG:
            raise _damaged("it is not a record of a plain store, or its header is damaged")
        payload = sealed[at:-TAG]
        if sealed[-TAG:] != _plain_check(ad + sealed[:start], sealed[start:at], payload):
            raise _damaged("it was changed, or belongs to another place")
        return expand(first >> _METHOD_SHIFT & 3, payload, length)


_check_state = hashlib.sha256(b"holdfast/1/plain-record\0").copy


def _plain_check(ad: bytes, head: bytes, payload: bytes) -> bytes:
    state = _check_state()
    state.update(len(ad).to_bytes(8, "big") + ad + head)
    state.update(payload)
    return state.digest()[:TAG]


def sealed_under(sealed: bytes, start: int = 0) -> tuple[int, bool, bool]:
    """(key epoch, whether it is packed somehow, whether quiet) of an encrypted record's header."""
    try:
        method = sealed[start] >> _METHOD_SHIFT & 3
        return read_varint(sealed, start + 1)[0], method != NONE, method == PADDED
    except (IndexError, ValueError):
        raise _damaged("its header is damaged") from None


class _Keys(NamedTuple):
    """What one writer seals with."""

    aead: AESGCM
    nonce_state: Callable[[], hashlib.blake2b]


class KeySeal:
    """AES-256-GCM under keys derived from a scope's data keys. Safe for threads.

    Records are sealed under the newest epoch and opened under exactly the epoch they name. One
    that is not known is looked up with `reload`, and what that gives is used from then on. After
    2**28 records it draws a new writer by itself.
    """

    __slots__ = ("_count", "_data_keys", "_keys_of", "_reload", "epoch", "writer")

    encrypted = True

    def __init__(
        self,
        data_keys: dict[int, bytes],
        epoch: int,
        writer: bytes,
        reload: Callable[[], dict[int, bytes]] | None = None,
    ) -> None:
        if epoch not in data_keys or any(len(key) != 32 for key in data_keys.values()):
            raise InvalidInputError("a seal needs data keys of 32 bytes, one of the epoch given")
        self._data_keys = dict(data_keys)
        self.epoch = epoch
        self._keys_of = lru_cache(CACHED_WRITERS)(self._derive)
        self._reload = reload
        self._take(writer)

    def know(self, epoch: int) -> None:
        """Seal under this epoch, or a later one, from now on; what was known stays known.

        Old keys are kept as long as this object: somebody may hold rows that were read before
        they were sealed again.
        """
        if epoch > self.epoch and self._reload is not None:
            self._data_keys = {**self._data_keys, **self._reload()}
            self.epoch = max(self._data_keys)

    def _take(self, writer: bytes) -> None:
        if len(writer) != WRITER:
            raise InvalidInputError(f"a writer has {WRITER} bytes")
        self._count = 0
        self.writer = writer
        """Whose key seals now; it may change after any call of `seal`."""

    def _derive(self, epoch: int, writer: bytes) -> _Keys:
        self.know(epoch)
        data_key = self._data_keys.get(epoch)
        if data_key is None:
            what = f"a record was sealed under key epoch {epoch}, which the ring does not hold"
            if 0 < epoch < self.epoch:
                raise DataKeyRemovedError(
                    f"{what} any more: it was removed when the scope was resealed. If these are "
                    "files of before that, open them with a copy of the ring of their time; if "
                    "not, the record is damaged: `holdfast verify` shows what it touches"
                )
            raise KeyMissingError(
                f"{what}; open the store with the ring that has it. If this is that ring, the "
                "record is damaged: `holdfast verify` shows what it touches"
            )
        seal_key = hmac.digest(data_key, b"holdfast/writer" + writer, "sha256")
        nonce_key = hmac.digest(data_key, b"holdfast/nonce" + writer, "sha256")
        state = hashlib.blake2b(key=nonce_key, digest_size=NONCE)
        return _Keys(AESGCM(seal_key), state.copy)

    def seal(
        self,
        ad: bytes,
        plain: bytes,
        commitment: bytes,
        *,
        writer_outside: bool = False,
        writer: bytes | None = None,
        compress: bool = True,
        quiet: bool = False,
    ) -> bytes:
        """See `PlainSeal.seal`."""
        if writer is None:
            writer = self.writer
        elif not writer_outside:
            raise InvalidInputError("writer= goes with writer_outside=True")
        epoch = self.epoch  # once: another thread may learn of a newer one
        aead, nonce_state = self._keys_of(epoch, writer)
        if quiet:
            plain = pad(plain)
            method, payload = PADDED, plain
        else:
            small = len(plain) < SMALLEST or not compress
            method, payload = (NONE, plain) if small else squeeze(plain)
        first = _FORMAT | _ENCRYPTED | method << _METHOD_SHIFT
        prefix = _SHORT[epoch] if epoch < 1024 else write_varint(epoch)
        length = _SHORT[len(plain)] if len(plain) < 1024 else write_varint(len(plain))
        if writer_outside:
            head = _SMALL[first | _OUTSIDE] + prefix + length
        else:
            head = _SMALL[first] + prefix + writer + length
        bound = ad + head + _SMALL[len(head)]
        # The header stands in the nonce's hash too: the same content, compressed and not, are
        # two plaintexts to the cipher.
        state = nonce_state()
        state.update(len(bound).to_bytes(4, "big") + bound + commitment + _random(16))
        nonce = state.digest()
        self._count += 1
        if self._count >= RECORDS_PER_WRITER:
            self._take(new_writer())
        return head + nonce + aead.encrypt(nonce, payload, bound)

    def open(self, ad: bytes, sealed: bytes, writer: bytes | None = None, start: int = 0) -> bytes:
        """See `PlainSeal.open`."""
        try:
            first, epoch, at = sealed[start], sealed[start + 1], start + 2
            if epoch >= 128:
                epoch, at = read_varint(sealed, start + 1)
            if not first & _OUTSIDE:
                writer = sealed[at : at + WRITER]
                at += WRITER
            length = sealed[at]
            if length < 128:
                at += 1
            else:
                length, at = read_varint(sealed, at)
        except (IndexError, ValueError):
            raise _damaged("its header is damaged") from None
        if first & ~14 != _FORMAT | _ENCRYPTED or len(sealed) < at + NONCE + TAG:
            raise _damaged("it is not an encrypted record, or its header is damaged")
        if writer is None or len(writer) != WRITER:
            raise _damaged("its writer is kept outside and was not given")
        bound = ad + sealed[:at] + _SMALL[at - start]
        begin = at + NONCE
        try:
            payload = self._keys_of(epoch, writer).aead.decrypt(
                sealed[at:begin], sealed[begin:], bound
            )
        except InvalidTag:
            raise _damaged("it was changed, or belongs to another place or key") from None
        if not first & _METHODS and len(payload) == length:
            return payload
        return expand(first >> _METHOD_SHIFT & 3, payload, length)


Seal = PlainSeal | KeySeal
"""What turns the plain bytes of a record into bytes at rest and back."""
