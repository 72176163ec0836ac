"""Parts of values that are sealed for a subject: the person whom they are about.

A part is encoded, then encrypted with AES-256-SIV under the subject's own key, with lineage and
subject id as associated data. That is deterministic: the same part stays the same record, so that
setting it again stores nothing, and comparing two states reads no plain text. It stands in a value
as a registered object of the name `SEALED`, version 1, whose payload is

    subject id (16)  synthetic IV (16)  ciphertext

and everything behind (trees, packs, roots, forks, merges, proofs) handles it as it handles any
object. Without the key it stays closed, wherever it was copied to.
"""

from __future__ import annotations

from typing import Any, NoReturn

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESSIV

from holdfast.errors import DamagedRecordError

SEALED = "$sealed"
"""The name of the type that a sealed part has among objects."""
ID = 16
KEY = 64
SHORTEST = ID + 16 + 1


class ErasedPart:
    """What `ERASED` is: it stands for a part whose subject was erased."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "ERASED"

    def __reduce__(self) -> str:
        return "ERASED"  # a copy of it is itself


ERASED = ErasedPart()


class PartSeal:
    """Seals and opens the parts of one subject; shows nothing and cannot be pickled."""

    __slots__ = ("_bound", "_siv", "id")

    def __init__(self, key: bytes, lineage: bytes, id: bytes) -> None:
        self.id = id
        self._siv = AESSIV(key)
        self._bound = [b"holdfast/1/part", lineage, id]

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise TypeError("keys are not pickled or copied")

    def seal(self, plain: bytes) -> bytes:
        """The payload of a part with these encoded bytes."""
        return self.id + self._siv.encrypt(plain, self._bound)

    def open(self, payload: bytes) -> bytes:
        """The encoded bytes in a payload of this subject."""
        try:
            return self._siv.decrypt(payload[ID:], self._bound)
        except (InvalidTag, ValueError):
            raise DamagedRecordError(
                "a part that is sealed for a subject does not open; it was sealed in another "
                "store, or is damaged"
            ) from None
