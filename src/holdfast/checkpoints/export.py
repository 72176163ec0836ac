"""Writing a checkpoint to a file; the state is read page by page, and nothing is changed."""

from __future__ import annotations

import hashlib
import os
import struct
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from datetime import datetime
from itertools import islice
from typing import Any

from holdfast.checkpoints.export_file import (
    BYTES,
    DESCRIPTION,
    LIST,
    PIECE,
    VALUE,
    Description,
    Export,
    export_parts,
    public_export,
    record_head,
    sign_description,
)
from holdfast.checkpoints.policy.policy import CIPHER, policy_of
from holdfast.errors import InvalidInputError, LimitExceededError
from holdfast.seal.codec import Typed
from holdfast.seal.compress import NAMES
from holdfast.seal.keys import key_for
from holdfast.seal.subject_keys import ERASED
from holdfast.store.inner import (
    PREFIX,
    ByteTree,
    LineHandle,
    Reader,
    Slot,
    Timeline,
    checkpoint_view,
    derived,
    masks,
    microseconds,
    read_meta,
    refs,
    rules_of,
    tagged,
    write,
)
from holdfast.store.names.arguments import check_flag
from holdfast.store.names.face import writes
from holdfast.store.names.items import MASK, Checkpoint, Masked
from holdfast.store.names.threads import safe_point
from holdfast.store.names.whole_files import whole_file
from holdfast.store.state import State

PAGE = 256
FORMATS = ("holdfast", "json", "protobuf")
Path = str | os.PathLike[str]


Readable = Callable[[Description, "Source", bool], Iterator[bytes]]
"""Makes a document for people: of what is said of a checkpoint, its content, and whether what is
sensitive is shown."""


class Source:
    """A state of the past: its keys and values, the same however often they are read.

    A key that had expired by `time`, by default that of the state's entry, is not there.
    """

    def __init__(
        self, handle: LineHandle, view: Timeline, timeline: str, time: int | None = None
    ) -> None:
        self.reader = Reader(handle.core, handle.scope, timeline, view, time)
        self.codec = handle.core.codec.plain_reader

    @property
    def view(self) -> Timeline:
        """The state; another object once a saved index of it was found damaged."""
        assert self.reader.at is not None
        return self.reader.at

    def slots(self) -> Iterator[tuple[Timeline, str, Slot]]:
        """All keys but those that are declared or derived, in order."""
        view = self.view
        own = ((k, s) for k, s in view.scan() if not (k.startswith(PREFIX) or derived(k)))
        while page := list(islice(own, PAGE)):
            safe_point()
            page = [(key, slot) for key, slot in page if self.reader.judged(slot) is not None]
            view.ledger.fetch_atoms((slot.ref, slot.location) for _, slot in page)
            for key, slot in page:
                yield view, key, view.settled(slot)

    def values(self, reveal: bool) -> Iterator[tuple[str, Slot, Any]]:
        """Keys and values, each of them whole; what is sensitive is masked unless revealed."""
        rules = rules_of((self.reader, self.view))
        for view, key, slot in self.slots():
            masked = masks(self.reader, view, key, [slot], rules, reveal=reveal)
            value = MASK if masked else self.reader.value(view, key, slot, True)
            if (hide := self.reader.core.redact) is not None and not reveal:
                value = hide(value)
            yield key, slot, value

    def tell(self) -> None:
        """Tell gates of the sensitive keys that are about to be read; they may refuse that."""
        if self.reader.core.gates.readers:
            rules = rules_of((self.reader, self.view))
            for view, key, slot in self.slots():
                self.reader.told(view, [(key, slot)], rules)

    def declared(self) -> list[tuple[str, Any]]:
        """What is declared of the scope."""
        return self.reader.items(PREFIX, None, "", True)

    def encode(self, value: Any) -> bytes:
        """A value as it is written."""
        return self.codec.encode(self.codec.plain(value))

    def content(self) -> Iterator[bytes]:
        """The records of an export, in pieces."""
        for found in self.slots():
            yield from self._record(*found)

    def _record(self, view: Timeline, key: str, slot: Slot) -> Iterator[bytes]:
        size, meta = slot.size(), slot.meta
        shape = slot.ref[1] if slot.ref[0] == refs.TREE and size > PIECE else 0
        # Who writes bytes in pieces cannot name a class: those with one were written whole.
        if shape == refs.BYTES and not read_meta(meta).class_:
            found = ByteTree(view.ledger, slot.ref, slot.location)
            yield record_head(key, BYTES, found.size, meta)
            yield from found.pieces()
        elif shape == refs.LIST:
            _, hash_, count, _ = refs.read_tree(slot.ref)
            yield record_head(key, LIST, count, meta)
            trees = view.ledger.trees
            root = trees.load(slot.location, hash_)
            step = max(1, PIECE * count // size)
            for low in range(0, count, step):
                part = list(trees.slice(root, low, min(low + step, count)))
                for item in view.ledger.assemble(refs.LIST, part, self.codec):
                    data = self.encode(item)
                    yield len(data).to_bytes(4, "big") + data
        else:
            # What is sealed for a subject stays so: erasing the subject closes it here, too.
            data = self.encode(view.ledger.value(slot.ref, slot.location, self.codec))
            yield record_head(key, VALUE, len(data), meta) + data

    def measure(self) -> tuple[int, int, bytes]:
        """Keys, bytes and SHA-256 of the content. Every value is read, and so checked."""

        def measured(_: Any) -> tuple[int, int, bytes]:
            keys, size, check = 0, 0, hashlib.sha256()
            for found in self.slots():
                keys += 1
                for piece in self._record(*found):
                    safe_point()
                    size += len(piece)
                    check.update(piece)
            return keys, size, check.digest()

        return self.reader.past_damage(measured)


def line_of(state: Any) -> LineHandle:
    """The timeline of a state or view."""
    handle = getattr(state, "_handle", None)
    if not isinstance(handle, LineHandle):
        raise InvalidInputError(
            f"an export is of a state, as store.agent(...) gives it, not of a "
            f"{type(state).__name__}; so is an import"
        )
    return handle


def export_state(
    handle: LineHandle,
    path: Path,
    *,
    at: Any,
    format: str,
    key: str | None,
    plain: bool,
    unsigned: bool,
    reveal: bool,
    readable: Readable | None = None,
) -> Export:
    """Write a checkpoint to a file; see `export_checkpoint`. `readable` makes another document of
    the format json."""
    if format not in FORMATS:
        raise InvalidInputError(f"unknown format {format!r}; an export is {', '.join(FORMATS)}")
    core = handle.core
    core.check_open()
    _check_asked(handle, format, key, plain, unsigned, reveal)
    view, checkpoint = checkpoint_view(handle, at)
    policy = policy_of(checkpoint)
    if key is None and policy and checkpoint.metadata.get("encryption") == CIPHER:
        raise InvalidInputError(
            f"{handle.scope}: {checkpoint.id} was made by the policy {policy}, which "
            "demands encryption: give key= and no other format, or export another checkpoint"
        )
    handle.history.check_point(view, checkpoint.sequence, "references")
    source = Source(handle, view, checkpoint.timeline)
    if format == "holdfast":
        source.tell()
    elif (hide := core.redact) is not None and not reveal:  # what is written is for people
        texts = {name: hide(getattr(checkpoint, name)) for name in ("name", "description")}
        checkpoint = replace(checkpoint, **texts, metadata=hide(checkpoint.metadata))
    said = _describe(handle, source, checkpoint, signed=format == "holdfast" and not unsigned)
    with key_for(key) as secret:
        if format == "holdfast":
            frame = sign_description(said, core.signer if said.signer else None)
            if len(frame) > DESCRIPTION:
                raise LimitExceededError(
                    f"{handle.scope}: what is declared of it does not fit into an export"
                )
            method = NAMES.get(str(checkpoint.metadata.get("compression")))
            parts: Iterable[bytes] = export_parts(frame, source.content(), secret, method)
        elif format == "json":
            parts = (readable or json_parts)(said, source, reveal)
        else:
            parts = protobuf_parts(said, source, reveal)
        with whole_file(path) as file:
            for part in parts:
                safe_point()
                file.write(part)
    return public_export(said, key is not None)


def _check_asked(
    handle: LineHandle, format: str, key: str | None, plain: bool, unsigned: bool, reveal: bool
) -> None:
    for flag, name in ((plain, "plain"), (unsigned, "unsigned"), (reveal, "reveal")):
        check_flag(flag, name)
    if format != "holdfast" and key is not None:
        raise InvalidInputError(f"a file in the format {format} is not encrypted; leave out key=")
    if format == "holdfast" and reveal:
        raise InvalidInputError("reveal= is for json and protobuf; an export holds all that is")
    if key is not None and plain:
        raise InvalidInputError("give key= or plain=True, not both")
    if handle.core.ring is not None and key is None and not plain:
        raise InvalidInputError(
            f"{handle.scope}: the store is encrypted, and this file would not be; give key= for "
            "the file, or plain=True if it is to be readable by everybody who has it"
        )
    if format == "holdfast" and handle.core.signer is None and not unsigned:
        raise InvalidInputError(
            f"{handle.scope}: this store's signer is not here, so nobody would vouch for the file; "
            "open the store with signer=file:PATH, or give unsigned=True"
        )


def _describe(
    handle: LineHandle, source: Source, checkpoint: Checkpoint, *, signed: bool
) -> Description:
    keys, size, digest = source.measure()
    return Description(
        handle.core.lineage,
        source.view.ledger.id,
        str(handle.scope),
        checkpoint.timeline,
        checkpoint.sequence,
        checkpoint.name,
        checkpoint.type,
        microseconds(checkpoint.time),
        list(checkpoint.tags),
        checkpoint.description,
        source.encode(checkpoint.metadata) if checkpoint.metadata else b"",
        checkpoint.cause,
        bytes.fromhex(checkpoint.hash),
        bytes.fromhex(checkpoint.root),
        handle.core.clock.claimed(),
        keys,
        size,
        digest,
        [(key, source.encode(value)) for key, value in source.declared()],
        handle.core.public if signed else b"",
    )


# ---- exports ------------------------------------------------------------------------------------
# Exports; what they need is loaded when they are first used.


@writes
def export_checkpoint(
    state: State,
    path: str | os.PathLike[str],
    *,
    at: Any = None,
    format: str = "holdfast",
    key: str | None = None,
    plain: bool = False,
    unsigned: bool = False,
    reveal: bool = False,
) -> Export:
    """Write a checkpoint (default: the newest) with all of its state to one file.

    The file stands for itself: whoever has it can take it over into any store. It is signed by the
    store's signer, and encrypted with `key` (`file:PATH`, which is made if it is missing,
    `env:NAME` or `passphrase:TEXT`), which has nothing to do with the store's own. From an
    encrypted store a file without a key is written only with `plain=True`, and where the signer is
    not at hand one without a signature only with `unsigned=True`.

    `format="json"` is for people and `"protobuf"` for other programs: not encrypted, not signed,
    not to be imported, and what is of class sensitive is masked in them unless `reveal` is given.
    Every value is read and checked. Memory is bounded by the longest value, of long bytes and
    lists by a piece; json and protobuf hold values whole.
    """

    return export_state(
        line_of(state),
        path,
        at=at,
        format=format,
        key=key,
        plain=plain,
        unsigned=unsigned,
        reveal=reveal,
    )


# ---- readable -----------------------------------------------------------------------------------
# A checkpoint as one JSON document for people; what JSON lacks is tagged, see `json_values`.
#
# The keys are the members of `state`, in order. What is sensitive is `{"$sensitive": true}`.


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
_MOMENT = {1: "at", 2: "zone", 3: "name"}


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
    if kind is int and -(1 << 63) <= part < 1 << 63:
        return _int(3, (part << 1 ^ part >> 63) & _WORD)
    if kind is int:
        return _bytes(4, part.to_bytes(part.bit_length() // 8 + 1, "big", signed=True))
    if kind is float:
        return _varint(5 << 3 | _DOUBLE) + struct.pack("<d", part)
    if kind is str:
        try:
            return _bytes(6, part.encode())
        except UnicodeEncodeError:
            return _bytes(7, part.encode("utf-8", "surrogatepass"))
    if kind is bytes:
        return _bytes(8, part)
    if kind is datetime:
        found = tagged(part)["$time"]
        said = {"at": found} if isinstance(found, str) else found
        texts = [_bytes(n, said.get(name, "").encode()) for n, name in _MOMENT.items()]
        return _bytes(9, b"".join([*texts, _int(4, part.fold)]))
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
