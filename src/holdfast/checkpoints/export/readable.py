"""A checkpoint as one JSON document for people; what JSON lacks is tagged, see `json_values`.

The keys are the members of `state`, in order. What is sensitive is `{"$sensitive": true}`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Any

from holdfast.checkpoints.export.export_records import public_export
from holdfast.seal.codec import Typed
from holdfast.seal.subject_keys import ERASED
from holdfast.store.inner import read_meta, tagged, write
from holdfast.store.names.items import Masked

if TYPE_CHECKING:
    from holdfast.checkpoints.export.export_records import Description
    from holdfast.checkpoints.export.write import Source


FORMAT = "holdfast-checkpoint/1"


def json_parts(said: Description, source: Source, reveal: bool) -> Iterator[bytes]:
    """The document in pieces: one for each key."""
    about = public_export(said, encrypted=False)
    head = {
        "format": FORMAT,
        "scope": said.scope,
        "checkpoint": {
            "id": about.checkpoint,
            "name": said.name,
            "type": said.type,
            "time": about.time.isoformat(),
            "tags": said.tags,
            "description": said.description,
            "metadata": tagged(about.metadata),
            "actor": said.cause.actor,
            "reason": said.cause.reason,
            "correlation": said.cause.correlation,
            "root": about.root,
            "hash": about.hash,
        },
        "store": about.store,
        "exported": about.exported.isoformat(),
        "keys": said.keys,
        "declared": {key: tagged(value) for key, value in source.declared()},
    }
    yield write(head, indent=2).removesuffix("\n}").encode() + b',\n  "state": {'
    between = "\n    "
    for key, _, value in source.values(reveal):
        # A line break is always one of the layout: within text it is escaped.
        text = write(tagged(value), indent=2).replace("\n", "\n    ")
        yield f"{between}{write(key)}: {text}".encode()
        between = ",\n    "
    yield b"\n  }\n}\n"


# ---- readable protobuf --------------------------------------------------------------------------
# A checkpoint as one Protocol Buffers message; `checkpoint.proto` beside this says what is in it.
#
# Written by hand: five ways to write a field are all that it takes, and a message whose entries are
# written one after the other needs no more memory than the longest value.


_VARINT, _DOUBLE, _BYTES = 0, 1, 2
_WORD = (1 << 64) - 1


def protobuf_parts(said: Description, source: Source, reveal: bool) -> Iterator[bytes]:
    """The message in pieces: one for each key."""
    texts: dict[int, str | None]
    texts = {1: FORMAT, 3: said.scope, 4: said.timeline, 6: said.name, 7: said.type}
    texts |= {10: said.description, 12: said.cause.actor, 13: said.cause.reason}
    texts |= {14: said.cause.correlation}
    for number, text in texts.items():
        yield _bytes(number, (text or "").encode())
    for number, data in ((2, said.lineage), (15, said.root), (16, said.hash)):
        yield _bytes(number, data)
    for number, count in ((5, said.sequence), (8, said.time), (17, said.exported), (18, said.keys)):
        yield _int(number, count)
    for tag in said.tags:
        yield _bytes(9, tag.encode())
    yield _bytes(11, _value(public_export(said, encrypted=False).metadata))
    for key, declared in source.declared():
        yield _bytes(19, _bytes(1, key.encode()) + _bytes(2, _value(declared)))
    for key, slot, content in source.values(reveal):
        meta = read_meta(slot.meta)
        terms = _int(3, meta.expires) + _bytes(4, meta.class_.encode())
        yield _bytes(20, _bytes(1, key.encode()) + _bytes(2, _value(content)) + terms)


def _value(part: Any) -> bytes:
    """The content of a Value."""
    kind = type(part)
    if part is None:
        return _int(1, 1)
    if kind is bool:
        return _int(2, part)
    if kind is int:
        return _whole(part)
    if kind is float:
        return _varint(5 << 3 | _DOUBLE) + struct.pack("<d", part)
    if kind is str:
        return _text(part)
    if kind is bytes:
        return _bytes(8, part)
    if kind is datetime:
        return _bytes(9, _moment(part))
    if kind is list:
        return _bytes(10, b"".join(_bytes(1, _value(one)) for one in part))
    if kind is Typed:
        fields = _bytes(3, _value(part.value))
        return _bytes(12, _bytes(1, part.name.encode()) + _int(2, part.version) + fields)
    if kind is Masked:
        return _int(13, 1)
    if part is ERASED:
        return _int(14, 1)
    pairs = (_bytes(1, _value(key)) + _bytes(2, _value(one)) for key, one in part.items())
    return _bytes(11, b"".join(_bytes(1, pair) for pair in pairs))


def _whole(number: int) -> bytes:
    if -(1 << 63) <= number < 1 << 63:
        return _int(3, (number << 1 ^ number >> 63) & _WORD)
    return _bytes(4, number.to_bytes(number.bit_length() // 8 + 1, "big", signed=True))


def _text(text: str) -> bytes:
    try:
        return _bytes(6, text.encode())
    except UnicodeEncodeError:
        return _bytes(7, text.encode("utf-8", "surrogatepass"))


def _moment(time: datetime) -> bytes:
    found = tagged(time)["$time"]
    said = {"at": found} if isinstance(found, str) else found
    texts = [_bytes(n, said.get(name, "").encode()) for n, name in ((1, "at"), (2, "zone"))]
    return b"".join([*texts, _bytes(3, said.get("name", "").encode()), _int(4, time.fold)])


def _bytes(number: int, data: bytes) -> bytes:
    return _varint(number << 3 | _BYTES) + _varint(len(data)) + data


def _int(number: int, value: int) -> bytes:
    return _varint(number << 3 | _VARINT) + _varint(value & _WORD)


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)
