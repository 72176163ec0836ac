"""An entry: a clear envelope around a sealed body.

The envelope can be checked, copied and witnessed without a key; its hash, chained, is what
history rests on. It covers a commitment to the body, not the sealed bytes, so that a body can
be sealed again under another key, erased or pruned without breaking the chain. Of an entry that was
pruned, the row is the envelope alone.

Envelope, before the sealed body:

| bytes | what |
| --- | --- |
| 1 | format of the entry: 1 |
| 1 | flags: bit 0 a checkpoint's statement follows |
| 16 | writer |
| varint | key epoch when it was written |
| 32 | hash of the entry before |
| 32 | commitment to the body |
| 110 | the statement of a checkpoint, if flagged |

Statement: algorithm (1), root (32), key id of the signer (8), signature (64), sequence of the
checkpoint before (5).
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import astuple

from holdfast.errors import DamagedRecordError
from holdfast.seal.sealer import read_varint, write_varint
from holdfast.store.names import rowkinds
from holdfast.store.names.cause import Cause

FORMAT = 1
STATEMENT = 110
UNSIGNED, ED25519, HYBRID = 0, 1, 2
"""Which signatures of its signer a checkpoint must have: none; Ed25519, in the envelope; Ed25519
and ML-DSA-65, in a row beside it. It is covered by all of them, so that none can be left out."""
_SIGNATURE_FROM_END = 69

# operations
SET, APPEND, PATCH, DELETE, CHECKPOINT, RESTORE, FORK = range(1, 8)
GONE, REKEY, MERGE, META, PRUNE, END, LOST, TAKEN, SPOILT = range(8, 17)
KEYED = frozenset((SET, APPEND, PATCH, DELETE, META))
"""Those that name a key."""
STAY = frozenset((RESTORE, FORK, GONE, REKEY, MERGE, LOST, SPOILT))
"""Those whose entries stay whole when a timeline is pruned."""
APPENDED, TRIMMED = 1, 2
"""How a list that is set or patched came about, behind the operation; 0 is left out."""
NAMES = {
    SET: "set",
    APPEND: "append",
    PATCH: "set",
    DELETE: "delete",
    CHECKPOINT: "checkpoint",
    RESTORE: "restore",
    FORK: "fork",
    GONE: "delete scope",
    REKEY: "rotate key",
    MERGE: "merge",
    META: "expire",
    PRUNE: "prune",
    END: "end timeline",
    LOST: "note a loss",
    TAKEN: "take a lost number",
    SPOILT: "state a loss",
}
MARKS = {APPENDED: "append", TRIMMED: "trim"}
KINDS = tuple(dict.fromkeys([*NAMES.values(), *MARKS.values()]))
"""What operations are called."""

_encode = msgspec.msgpack.Encoder().encode
_statement = struct.Struct(">B32s8s64s")


class Body(msgspec.Struct, array_like=True, gc=False):
    """What an entry says; sealed. Fields at the end are left out where they are empty."""

    time: int
    """Microseconds since 1970, as the writer's clock claimed."""
    ops: list[Any] = []
    atoms: list[bytes] = []
    cause: Cause | None = None
    save: tuple[int, int, bytes] | None = None
    """(sequence, 0 index or 1 delta, hash): a save written with this entry."""
    packs: list[bytes] = []
    """Commitments to the packs that hold more atoms."""
    change: str | None = None
    also: list[tuple[int, int, int]] = []
    """Entries of other scopes in the same change: (scope, timeline, sequence)."""
    reads: list[tuple[int, int, int]] = []
    """Heads of other timelines that this change rests on, or of its own: its id is the store's."""
    step: int = 0
    """Seconds by which the wall clock stepped against the monotonic one, if over a minute."""


read_body = msgspec.msgpack.Decoder(Body).decode
"""The same as `decode_body`, where what cannot be read is an error of msgspec."""


class Statement(NamedTuple):
    """What a checkpoint states in clear: the root, and who signed it."""

    algorithm: int
    root: bytes
    key_id: bytes
    signature: bytes
    previous: int

    def pack(self) -> bytes:
        """The 110 bytes that stand in the envelope."""
        return _statement.pack(*self[:4]) + self.previous.to_bytes(5, "big")

    @classmethod
    def unpack(cls, data: bytes) -> Statement:
        """The opposite of `pack`."""
        previous = int.from_bytes(data[105:110], "big")
        return cls._make((*_statement.unpack_from(data), previous))


class Envelope(NamedTuple):
    """The clear part of an entry's row."""

    data: bytes
    """The envelope's own bytes."""
    writer: bytes
    epoch: int
    before: bytes
    commitment: bytes
    statement: Statement | None


def make_envelope(
    writer: bytes, epoch: int, before: bytes, commitment: bytes, statement: Statement | None = None
) -> bytes:
    """The envelope's bytes."""
    head = b"\1\1" if statement else NO_STATEMENT
    tail = statement.pack() if statement else b""
    return b"".join((head, writer, write_varint(epoch), before, commitment, tail))


clear_part = struct.Struct(">BB16sB32s32s").unpack_from
"""(format, flags, writer, key epoch, hash before, commitment) of a row, at one stroke. It holds if
flags are 0 and the epoch is below 128: then the envelope has `CLEAR` bytes."""
CLEAR = 83
NO_STATEMENT = b"\1\0"
"""How a row begins that is no checkpoint's."""


def split_row(row: bytes) -> tuple[Envelope, bytes]:
    """Envelope and sealed body of an entry's row."""
    if len(row) < CLEAR:
        raise DamagedRecordError("an entry's row is too short" if row else rowkinds.HELD)
    if row[0] != FORMAT:
        raise DamagedRecordError(f"it says that it has format {row[0]}; there is only {FORMAT}")
    if row[1] > 1:
        raise DamagedRecordError("it has flags that do not exist")
    try:
        epoch, at = (row[18], 19) if row[18] < 128 else read_varint(row, 18)
    except ValueError:
        raise DamagedRecordError("an entry's envelope is damaged") from None
    end = at + 64 + (STATEMENT if row[1] else 0)
    if len(row) < end:
        raise DamagedRecordError("an entry's row is too short")
    statement = Statement.unpack(row[at + 64 : end]) if row[1] else None
    data = row[:end]
    envelope = Envelope(
        data, row[2:18], epoch, row[at : at + 32], row[at + 32 : at + 64], statement
    )
    return envelope, row[end:]


def same_entry(one: bytes, other: bytes) -> bool:
    """Whether two rows hold the same entry; the body may have been sealed again since."""
    return one == other or split_row(one)[0].data == split_row(other)[0].data


def first_hash(prefix: bytes, line: bytes) -> bytes:
    """What the first entry of a timeline names as the entry before it."""
    return hashlib.sha256(b"holdfast/first/1\0" + prefix + line).digest()


def signed_text(prefix: bytes, key: bytes, envelope: bytes) -> bytes:
    """What a checkpoint's signature covers: all of the envelope but the signature itself.

    The place binds store, scope, timeline and sequence; the commitment binds name, type, tags
    and time; the hash before binds all of the history up to here; the statement binds the root
    and which signatures there must be.
    """
    unsigned = envelope[:-_SIGNATURE_FROM_END] + bytes(64) + envelope[64 - _SIGNATURE_FROM_END :]
    return b"".join((b"holdfast/checkpoint/1\0", prefix, key, unsigned))


def encode_body(body: Body) -> bytes:
    """The bytes of a body, before sealing. A cause that says nothing is none."""
    rest = (body.save, body.packs, body.change, body.also, body.reads, body.step)
    cause = body.cause and _trimmed(list(astuple(body.cause)))
    return _encode([body.time, body.ops, body.atoms, *_trimmed([cause or None, *rest])])


def _trimmed(fields: list[Any]) -> list[Any]:
    while fields and not fields[-1]:
        fields.pop()
    return fields


def decode_body(data: bytes) -> Body:
    """The opposite of `encode_body`."""
    try:
        return read_body(data)
    except msgspec.MsgspecError:
        raise DamagedRecordError("an entry's body cannot be read") from None


class _Atoms(msgspec.Struct, array_like=True, gc=False):
    """What `Body` begins with, of which only the atoms are wanted."""

    time: int
    ops: msgspec.Raw = msgspec.Raw()
    atoms: list[bytes] = []


_read_atoms = msgspec.msgpack.Decoder(_Atoms).decode


def decode_atoms(data: bytes) -> list[bytes]:
    """The atoms of a body; the rest is not looked at."""
    try:
        return _read_atoms(data).atoms
    except msgspec.MsgspecError:
        raise DamagedRecordError("an entry's body cannot be read") from None


def touched(ops: Sequence[Any]) -> list[tuple[str, str]]:
    """(operation, key) of each operation; the key is empty where it has none."""
    return [(_name(op), op[1] if op[0] in KEYED else "") for op in ops]


def shown(ops: Sequence[Any]) -> list[tuple[str, str]]:
    """The same for people: the terms of a value that was just set are part of that."""
    found = touched(ops)
    alone = [op[0] != META or not n or ops[n - 1][1:2] != op[1:2] for n, op in enumerate(ops)]
    return [pair for pair, stands in zip(found, alone, strict=True) if stands]


def _name(op: list[Any]) -> str:
    # A short list is written whole when it is changed; a mark behind the shape says how.
    if op[0] in (SET, PATCH) and len(op) > 3 and op[3]:
        return MARKS.get(op[3], "?")
    return NAMES.get(op[0], "?")
