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
from collections.abc import Iterable, Iterator
from typing import BinaryIO

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from holdfast.errors import (
    DamagedExportError,
    FormatError,
    InvalidInputError,
    KeyMissingError,
    KeyNotNeededError,
    NewerFormatError,
    StateIntegrityError,
    WrongKeyError,
)
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

MAGIC = b"holdfast-export/1\0"
FRAME = 256 * 1024
"""Bytes of content in a frame, at most."""
DESCRIPTION = 4 << 20
"""Bytes of a description, at most."""
_GENERATION = 1
_FRAME_HEAD = 9
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
        return _lengths(method, len(plain), len(stored)) + stored
    lengths = _lengths(NONE, len(plain), NONCE + len(plain) + _TAG)
    return lengths + sealing.seal(number, lengths, plain)


def _lengths(method: int, plain: int, stored: int) -> bytes:
    return bytes([method]) + plain.to_bytes(4, "big") + stored.to_bytes(4, "big")


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
        lengths = self._take(_FRAME_HEAD)
        method = lengths[0]
        plain = int.from_bytes(lengths[1:5], "big")
        stored = int.from_bytes(lengths[5:], "big")
        more = NONCE + _TAG if self._sealing is not None else 0
        if not 0 < plain <= most or stored > plain + more:
            raise damaged("has a frame that is too long")
        data = self._take(stored)
        if self._sealing is not None:
            data = self._sealing.open(self._number, lengths, data)
        self._number += 1
        try:
            return expand(method, data, plain)
        except (StateIntegrityError, FormatError):
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
    except (StateIntegrityError, FormatError):
        raise damaged("says of its key what cannot be") from None
    if key is None:
        raise WrongKeyError("the key does not open this export; give the one that it was made with")
    try:
        return _Sealing(head, master_of(meta, key), meta.lineage)
    except StateIntegrityError:
        raise damaged("holds a wrapped key that does not open") from None
