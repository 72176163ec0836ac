"""Rows of the ring: their keys, and how a key is wrapped under a master.

A wrapped row is format (1), generation (4), epoch (4), nonce (12), ciphertext and tag; sealed
with AES-256-GCM under a key derived from the master for its kind, with lineage, kind, scope
id, generation and epoch as associated data.
"""

from __future__ import annotations

import hashlib
import os

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from holdfast.seal.ring_masters import NONCE, damaged, subkey

FORMAT = 1
ID = 16
STORE, SCOPE, SIGNER, BEFORE, SUBJECT = b"S", b"K", b"P", b"O", b"U"
"""Kinds of rows that hold something wrapped."""
GONE = b"X"
"""Kind of the rows that say that a scope or a subject is erased."""
OWNED = (SCOPE, SUBJECT)
"""Kinds whose rows belong to a scope or a subject, whose id stands in their keys."""
_NAMES = {
    STORE: "store row",
    SCOPE: "scope row",
    SIGNER: "signer row",
    BEFORE: "row of the master before",
    SUBJECT: "subject row",
}
_ROW_HEAD = 9
_TAG = 16

_random = os.urandom
"""The only source of randomness of this module; `holdfast.testing` may replace it."""


def row_key(kind: bytes, generation: int, scope: bytes = b"", epoch: int = 0) -> bytes:
    """Key of a row; only those of scopes and subjects (for whom it is 0) have an epoch."""
    tail = epoch.to_bytes(4, "big") if scope else b""
    return kind + scope + generation.to_bytes(4, "big") + tail


def generation_at(key: bytes) -> int:
    """Where in a row's key the generation stands."""
    return 1 + ID if key[:1] in OWNED else 1


def generation_of(key: bytes) -> int:
    """The generation in a row's key."""
    at = generation_at(key)
    return int.from_bytes(key[at : at + 4], "big")


def scope_of(key: bytes) -> bytes:
    """The id of the scope or subject in a row's key; empty if the row belongs to none."""
    return key[1 : 1 + ID] if key[:1] in OWNED else b""


def epoch_of(key: bytes) -> int:
    """The epoch in the key of a scope's row; 0 of any other."""
    return int.from_bytes(key[5 + ID : 9 + ID], "big")


class Wrap:
    """Wraps and unwraps the rows of one kind under keys derived from the master."""

    __slots__ = ("_aead", "_kind", "_lineage", "_nonce_key")

    def __init__(self, master: bytes, kind: bytes, lineage: bytes) -> None:
        self._aead = AESGCM(subkey(master, b"wrap/" + kind))
        self._nonce_key = subkey(master, b"wrap-nonce/" + kind)
        self._kind = kind
        self._lineage = lineage

    def _bound(self, head: bytes, scope: bytes) -> bytes:
        parts = (self._lineage, self._kind, scope, head)
        return b"holdfast/1/ring\0" + b"".join(bytes((len(p),)) + p for p in parts)

    def wrap(self, plain: bytes, *, generation: int, epoch: int = 0, scope: bytes = b"") -> bytes:
        """The row; the nonce is hedged with the plaintext, as in sealed records."""
        head = _head(generation, epoch)
        bound = self._bound(head, scope)
        state = hashlib.blake2b(bound, key=self._nonce_key, digest_size=NONCE)
        state.update(hashlib.sha256(plain).digest() + _random(16))
        nonce = state.digest()
        return head + nonce + self._aead.encrypt(nonce, plain, bound)

    def unwrap(self, key: bytes, row: bytes) -> bytes:
        """What the row under a key holds; `DamagedRingError` if anything is off."""
        scope = scope_of(key)
        head, nonce = _head(generation_of(key), epoch_of(key)), row[_ROW_HEAD : _ROW_HEAD + NONCE]
        if row[:_ROW_HEAD] != head or len(row) < _ROW_HEAD + NONCE + _TAG:
            raise damaged(_NAMES[self._kind])
        try:
            return self._aead.decrypt(nonce, row[_ROW_HEAD + NONCE :], self._bound(head, scope))
        except InvalidTag:
            raise damaged(_NAMES[self._kind]) from None


def _head(generation: int, epoch: int) -> bytes:
    return bytes((FORMAT,)) + generation.to_bytes(4, "big") + epoch.to_bytes(4, "big")
