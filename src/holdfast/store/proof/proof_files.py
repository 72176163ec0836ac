"""Files that leave the house: proofs and exported chains; docs/format.md says what is in them.

`holdfast_verify` reads them, and shares no code with this.
"""

from __future__ import annotations

import hashlib
import itertools
import os
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from holdfast.errors import InvalidInputError
from holdfast.store.names import rowkinds
from holdfast.store.names.whole_files import write_whole

PROOF = b"holdfast-proof/1\0"
CHAIN = b"holdfast-chain/1\0"
LARGEST_PROOF = 16 << 20
Opened = tuple[bytes, bytes]
"""Content that somebody committed to, and what opens the commitment (empty in a plain store)."""
_encode = msgspec.msgpack.Encoder().encode


class Proof(msgspec.Struct, array_like=True, frozen=True, repr_omit_defaults=True):
    """That a key had a value, or was absent, in a state that somebody signed.

    It holds all that is needed to check it: `holdfast-verify` does, without the store and without
    a key. Whoever has it can read the value, and what `reveals` names.
    """

    lineage: bytes
    scope_id: bytes
    row: bytes
    """Key of the checkpoint's row: it names scope, timeline and entry by their numbers."""
    envelope: bytes
    body: Opened
    """The checkpoint: name, time, cause, scope."""
    signatures: list[tuple[bytes, bytes]]
    """Public key and signature of each signer; the signature is empty if the envelope has it."""
    key: str
    path: list[Opened]
    """Nodes of the index, from the root down to where the key is, or would be."""
    value: list[Opened]
    """Nodes and atoms of the value, in order; none if it is in the index, or absent."""

    @property
    def sequence(self) -> int:
        """The number of the checkpoint's entry."""
        return rowkinds.sequence_of(self.row)

    @property
    def absent(self) -> bool:
        """Whether it says that the key was not there."""
        return self.key not in self._leaf_keys()

    @property
    def reveals(self) -> tuple[str, ...]:
        """Other keys whose names whoever has the proof can read.

        Of those that lie nearest, values of up to 64 bytes, too.
        """
        found: set[str] = set()
        for node, _ in self.path:
            found.update(msgspec.msgpack.decode(node)[1] or ())
        return tuple(sorted(found - {self.key}))

    def _leaf_keys(self) -> list[str]:
        level, keys = msgspec.msgpack.decode(self.path[-1][0])[:2]
        return [] if level else keys or []

    def to_bytes(self) -> bytes:
        """What `save` writes."""
        data = PROOF + _encode(self)
        return data + hashlib.sha256(data).digest()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it to a file, whole or not at all."""
        write_whole(path, [self.to_bytes()])

    @classmethod
    def from_bytes(cls, data: bytes) -> Proof:
        """The opposite of `to_bytes`. Whether it is true, `holdfast-verify` says, not this."""
        try:
            if not data.startswith(PROOF) or hashlib.sha256(data[:-32]).digest() != data[-32:]:
                raise ValueError
            proof = msgspec.msgpack.decode(data[len(PROOF) : -32], type=cls)
            proof._leaf_keys()
        except (ValueError, TypeError, IndexError, msgspec.MsgspecError):
            raise InvalidInputError(
                "this is no proof, or a damaged one; ask for it again where it was made"
            ) from None
        return proof

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Proof:
        """The proof in a file."""
        try:
            with open(path, "rb") as file:
                return cls.from_bytes(file.read(LARGEST_PROOF))
        except OSError as error:
            raise InvalidInputError(f"cannot read {path}: {error.strerror}") from None

    def __repr__(self) -> str:
        said = "is absent" if self.absent else "has a value"
        return f"<Proof that {self.key!r} {said} at entry {self.sequence}>"


def chain_file(objects: Iterable[Any]) -> Iterator[bytes]:
    """What is in a file of a chain: msgpack objects, and a check against accidents."""
    check = hashlib.sha256()
    for part in itertools.chain([CHAIN], map(_encode, objects)):
        check.update(part)
        yield part
    yield check.digest()
