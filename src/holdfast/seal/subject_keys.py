"""Subjects in the ring: a wrapped row with name and key of each, and a mark where one was erased.

Ids are random. A row whose id nothing in the store names was left by somebody who was cut short
before the key was used: nothing is sealed with it.
"""

from __future__ import annotations

from typing import Any, NoReturn

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESSIV

from holdfast.errors import DamagedRecordError
from holdfast.seal.ring import BUSY, GONE, SUBJECT, Ring, damaged, turned
from holdfast.storage.contract import Batch
from holdfast.storage.rows import again


class SubjectRow(msgspec.Struct, array_like=True, frozen=True):
    """What the ring knows of a subject; shows nothing and cannot be pickled."""

    name: str
    key: bytes

    def __repr__(self) -> str:
        return "SubjectRow()"

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise TypeError("keys are not pickled or copied")

    def seal(self, ring: Ring, id: bytes) -> PartSeal:
        """What seals and opens the subject's parts."""
        return PartSeal(self.key, ring.lineage, id)


def put_subject(ring: Ring, id: bytes, row: SubjectRow) -> None:
    """Keep the key of a new subject, which is durable when this returns."""

    def put() -> None:
        ring.look()
        ring.commit(ring.wrapped(SUBJECT, msgspec.msgpack.encode(row), scope=id))

    again(put, BUSY)


def read_subject(ring: Ring, id: bytes) -> SubjectRow | None:
    """The name and key of a subject; None if the ring has none (never made, or erased)."""

    def read() -> SubjectRow | None:
        found = _rows(ring, id)
        for key, row in reversed(found):
            if ring.opens(key):
                try:
                    made = msgspec.msgpack.decode(ring.unwrap(key, row), type=SubjectRow)
                except msgspec.DecodeError:
                    raise damaged("subject row") from None
                if len(made.key) != KEY:
                    raise damaged("subject row")
                return made
        if found:
            raise turned()
        return None

    return ring.read(read)


def holds_subject(ring: Ring, id: bytes) -> bool:
    """Whether the ring has a key of a subject."""
    return bool(_rows(ring, id))


def drop_subject(ring: Ring, id: bytes, *, erased: bool = True) -> int:
    """Remove a subject's key, of all generations; how many rows that were.

    Nothing sealed with it opens any more, but with a copy of the ring made before. The ring then
    says that the subject is `erased`, also to copies of the store that do not know of it: in the
    same commit, so that nobody finds neither.
    """
    mark, count = [(GONE + id, b"")] if erased else [], 0
    while (found := [key for key, _ in _rows(ring, id)]) or mark:
        # A rotation may wrap a row once more meanwhile: it is looked for again.
        ring.storage.commit(Batch(puts=mark, blanks=found, drops=found))
        mark, count = [], count + len(found)
    return count


def says_erased(ring: Ring, id: bytes) -> bool:
    """Whether the ring says that a subject, or a scope, is erased."""
    return ring.storage.get([GONE + id])[0] is not None


def _rows(ring: Ring, id: bytes) -> list[tuple[bytes, bytes]]:
    return ring.storage.scan(SUBJECT + id, SUBJECT + id + b"\xff" * 9)


# ---- subject parts ------------------------------------------------------------------------------
# Parts of values that are sealed for a subject: the person whom they are about.
#
# A part is encoded, then encrypted with AES-256-SIV under the subject's own key, with lineage and
# subject id as associated data. That is deterministic: the same part stays the same record, so that
# setting it again stores nothing, and comparing two states reads no plain text. It stands in a
# value as a registered object of the name `SEALED`, version 1, whose payload is
#
#     subject id (16)  synthetic IV (16)  ciphertext
#
# and everything behind (trees, packs, roots, forks, merges, proofs) handles it as it handles any
# object. Without the key it stays closed, wherever it was copied to.


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
