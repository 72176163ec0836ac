"""Writing a checkpoint to a file; the state is read page by page, and nothing is changed."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

from holdfast.checkpoints.export.export_records import (
    BYTES,
    LIST,
    PIECE,
    VALUE,
    Description,
    Export,
    public_export,
    record_head,
    sign_description,
)
from holdfast.checkpoints.export.file import DESCRIPTION, export_parts
from holdfast.checkpoints.policy.policy import CIPHER
from holdfast.checkpoints.retention_rules import policy_of
from holdfast.errors import DamagedIndexError, InvalidInputError, LimitExceededError
from holdfast.seal.compress import NAMES
from holdfast.seal.keys import key_for
from holdfast.store.inner import (
    PREFIX,
    ByteTree,
    LineHandle,
    Reader,
    Rules,
    Slot,
    Timeline,
    checkpoint_view,
    derived,
    masks,
    microseconds,
    read_meta,
    refs,
    rules_of,
)
from holdfast.store.names.arguments import check_flag
from holdfast.store.names.face import reads, writes
from holdfast.store.names.items import MASK
from holdfast.store.names.threads import safe_point
from holdfast.store.names.whole_files import whole_file

if TYPE_CHECKING:
    from holdfast.checkpoints.export.read import Imported
    from holdfast.store.names.items import Checkpoint
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

    def slots(self) -> Iterator[tuple[Timeline, str, Slot]]:
        """All keys but those that are declared or derived, in order."""
        view = self.reader.at
        assert view is not None
        own = ((k, s) for k, s in view.scan() if not (k.startswith(PREFIX) or derived(k)))
        while page := list(islice(own, PAGE)):
            safe_point()
            page = [(key, slot) for key, slot in page if self.reader.judged(slot) is not None]
            view.ledger.fetch_atoms((slot.ref, slot.location) for _, slot in page)
            for key, slot in page:
                yield view, key, view.settled(slot)

    def values(self, reveal: bool) -> Iterator[tuple[str, Slot, Any]]:
        """Keys and values, each of them whole; what is sensitive is masked unless revealed."""
        rules = self._rules()
        for view, key, slot in self.slots():
            masked = masks(self.reader, view, key, [slot], rules, reveal=reveal)
            yield key, slot, MASK if masked else self.reader.value(view, key, slot, True)

    def tell(self) -> None:
        """Tell gates of the sensitive keys that are about to be read; they may refuse that."""
        if self.reader.core.gates.readers:
            rules = self._rules()
            for view, key, slot in self.slots():
                self.reader.told(view, [(key, slot)], rules)

    def _rules(self) -> Rules:
        view = self.reader.at
        assert view is not None
        return rules_of((self.reader, view))

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
        try:
            return self._measure()
        except DamagedIndexError:
            self.reader.rebuild()
            return self._measure()

    def _measure(self) -> tuple[int, int, bytes]:
        keys, size, check = 0, 0, hashlib.sha256()
        for found in self.slots():
            keys += 1
            for piece in self._record(*found):
                safe_point()
                size += len(piece)
                check.update(piece)
        return keys, size, check.digest()


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
            from holdfast.checkpoints.export.readable import json_parts

            parts = (readable or json_parts)(said, source, reveal)
        else:
            from holdfast.checkpoints.export.readable import protobuf_parts

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
    view = source.reader.at
    assert view is not None
    return Description(
        handle.core.lineage,
        view.ledger.id,
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


LIMIT = 1 << 30
"""Bytes of content that an import takes unless it is told another limit."""


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


@writes
def import_checkpoint(
    state: State,
    path: str | os.PathLike[str],
    *,
    key: str | None = None,
    trust: Sequence[str] | None = None,
    untrusted: bool = False,
    limit: int = LIMIT,
    reason: str | None = None,
) -> Imported:
    """Let the state be what is in an exported file, of whatever scope and store.

    The file must be signed by one of the public keys in `trust` (default: the store's own signer);
    with `untrusted=True` it is taken whoever signed it, if anybody did. What came from a scope that
    was erased in this store is refused, as is more content than `limit` bytes.

    It is read into a timeline of its own, compared there with what was signed, and then restored
    from: all or nothing, sticky keys and declarations left alone, and `restore(result.backup)`
    undoes it. A scope that declares nothing gets the declarations of the file.
    """
    from holdfast.checkpoints.export.read import import_state

    return import_state(
        line_of(state),
        path,
        key=key,
        trust=trust,
        untrusted=untrusted,
        limit=limit,
        reason=reason,
    )


@reads
def inspect_export(
    path: str | os.PathLike[str], *, key: str | None = None, trust: Sequence[str] | None = None
) -> Export:
    """What is in an exported file, without a store. All of it is read and checked.

    With `trust`, a file that none of these public keys signed is refused; without, `Export.signer`
    is whoever says so.
    """
    from holdfast.checkpoints.export.read import inspect_file

    return inspect_file(path, key=key, trust=trust)
