"""Taking over an export: what is in a file becomes the state of a scope, or nothing happens.

1. Who signed the description is compared with whom the caller trusts, and the tombstones with the
   scope that it came from, before anything else of the file is looked at.
2. The file is read to its end: every length, key and value is checked, and nothing is written.
3. It is read again, into a timeline of its own that begins empty, in entries of bounded size.
4. The state of that timeline is measured as an export of it would be: it must be what was signed.
5. One restore makes it the state of the scope. The state before is kept as a checkpoint.
6. A scope of which nothing is declared gets what the file declares, in an entry of its own. Before
   the restore, the file's sticky keys would have been left alone.

Whatever fails before the restore leaves the state as it was, and the timeline is ended; after a
kill it is left, and nobody looks at it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from holdfast.checkpoints.export import Path, Source, line_of
from holdfast.checkpoints.export_file import (
    PIECE,
    Content,
    Description,
    Export,
    ExportFile,
    damaged,
    public_export,
    read_description,
)
from holdfast.errors import (
    HoldfastError,
    InvalidInputError,
    LimitExceededError,
    ReadOnlyError,
    ScopeErasedError,
    StateIntegrityError,
)
from holdfast.seal.codec import Codec, Unbuilt, ValueLimits
from holdfast.seal.keys import key_for
from holdfast.seal.signer import check_vouched
from holdfast.seal.subject_keys import SEALED
from holdfast.store.inner import (
    PREFIX,
    TABLE,
    Asked,
    Classed,
    Declaration,
    LineHandle,
    LongWriter,
    Meta,
    Operation,
    Stage,
    Terms,
    Trust,
    build_change,
    derived,
    ended_if_it_fails,
    erased_ids,
    has_sealed,
    parse_declared,
    restore_state,
    sticky_of,
    terms_of,
)
from holdfast.store.names.arguments import check_count, check_flag
from holdfast.store.names.cause import cause_now
from holdfast.store.names.face import reads, writes
from holdfast.store.names.items import Checkpoint
from holdfast.store.names.scope import RESERVED, Scope
from holdfast.store.names.threads import safe_point, undivided
from holdfast.store.names.whole_files import check_path
from holdfast.store.state import State

LIMIT = 1 << 30
"""Bytes of content that an import takes unless it is told another limit."""
OPERATIONS = 1000
"""Keys that one entry of an import writes, at most."""


@dataclass(frozen=True, slots=True)
class Imported:
    """What an import did."""

    scope: Scope
    timeline: str
    sequence: int
    """The entry that gave the scope the state of the file."""
    export: Export
    """What the file says."""
    backup: Checkpoint | None
    """The state before: restore it to undo the import."""
    staged: str
    """The timeline into which the file was read."""
    root: str
    """Commitment to the state now, in hexadecimal: that of the export, if this is its scope and
    no sticky or declared key is different here."""
    left: tuple[str, ...]
    """Keys that differ from those in the file, and were left alone: sticky ones, and the policies
    of an agent into which another one's file was read."""
    declarations: int
    """How many declarations were taken over: none unless nothing was declared here."""


@contextmanager
def _opened(path: Path, key: str | None) -> Iterator[tuple[ExportFile, Description]]:
    # A pipe without a writer would be waited for.
    if not os.path.isfile(check_path(path)):
        why = "it is no regular file" if os.path.exists(path) else "there is no such file"
        raise InvalidInputError(f"cannot read {path!r}: {why}")
    try:
        with open(path, "rb") as file, key_for(key) as source:
            found = ExportFile(file, source)
            yield found, read_description(found.description)
    except OSError as error:
        raise InvalidInputError(f"cannot read {path!r}: {error.strerror}") from None


@reads
def inspect_export(
    path: str | os.PathLike[str], *, key: str | None = None, trust: Sequence[str] | None = None
) -> Export:
    """What is in an exported file, without a store. All of it is read and checked.

    With `trust`, a file that none of these public keys signed is refused; without, `Export.signer`
    is whoever says so.
    """
    with _opened(path, key) as (file, said):
        if trust is not None:
            check_vouched("this export", said.signer, Trust.of(trust, None).keys)
        limits = ValueLimits()
        Content(file, said, limits).give(_Check(Codec(Unbuilt(), limits)))
        return public_export(said, file.encrypted)


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
    handle = line_of(state)
    if handle.reader.at is not None:
        raise ReadOnlyError(f"{handle.scope}: a view of the past cannot be changed; fork it")
    core = handle.core
    core.check_writable()
    check_flag(untrusted, "untrusted")
    cause_now(reason=reason)  # refused now, if it cannot be one
    trusted = Trust.of(trust, None).keys if trust is not None else frozenset([core.public])
    with _opened(path, key) as (file, said):
        if not untrusted:
            check_vouched("this export", said.signer, trusted)
        export, declared = _checked(handle, file, said, limit)
        reason = reason or f"import of {said.scope} {export.checkpoint}"[:4096]
        new = not handle.place()[2]
        if new:
            state.checkpoint("before import", type="migration")  # only what is there can be forked
        rules = handle.reader.declared().all or declared
        name = f"import-{said.digest.hex()[:8]}-{os.urandom(4).hex()}"
        with ended_if_it_fails(handle.on(name), "the import was not taken over"):
            staged = _staged(handle, name, file, said, reason, rules)
            _check_erased(handle, said)
            safe_point()
            moved = TABLE.index.moves if new and said.lineage != core.lineage else ()
            alone = partial(_left_alone, moved=moved, own=export.scope == handle.scope)
            done = restore_state(handle, staged, "references", reason, keep=alone)[0]
    declared = () if handle.reader.stored_keys(PREFIX) else declared
    if declared:
        with undivided():  # the state is that of the file by now
            state.declare(*declared)
    return Imported(
        handle.scope,
        handle.timeline,
        done.sequence,
        export,
        done.backup,
        staged.timeline,
        done.root,
        done.left,
        len(declared),
    )


def _left_alone(stage: Stage, *, moved: Sequence[str], own: bool) -> tuple[str, ...]:
    """What stays as it is; the file may hold that a restart is asked for, of another scope.

    So do the policies, unless they are its own: each agent has its own. Who moves to another store
    takes along what was collected: nobody there has been given it.
    """
    alone = (*sticky_of(stage), *TABLE.index.left_behind(own=own))
    return tuple(one for one in alone if one not in moved)


def _checked(
    handle: LineHandle, file: ExportFile, said: Description, limit: int
) -> tuple[Export, tuple[Declaration, ...]]:
    """What a file says and declares, after all of it was read: it could be taken over."""
    check_count(limit, "limit")
    _check_erased(handle, said)
    if said.size > limit:
        raise LimitExceededError(
            f"this export holds {said.size} bytes, {limit} are taken at most; give limit= if "
            "you know that it is as large as it should be"
        )
    export, codec = public_export(said, file.encrypted), handle.core.codec.plain_reader
    found = [(key, codec.decode(data)) for key, data in said.declared]
    if not all(key.startswith(PREFIX) for key, _ in found):
        raise damaged("declares under a key that is not for that")
    declared = parse_declared(handle.scope, found, lambda data: data).all
    foreign = said.lineage != handle.core.lineage
    Content(file, said, codec.limits).give(_Check(codec, foreign=foreign))
    file.rewind()
    return export, declared


def _check_erased(handle: LineHandle, said: Description) -> None:
    if said.scope_id in erased_ids(handle.core):
        raise ScopeErasedError(
            f"what is in this export was erased in this store, with {said.scope}; it stays erased: "
            "nothing was taken over"
        )


def _staged(
    handle: LineHandle,
    name: str,
    file: ExportFile,
    said: Description,
    reason: str,
    rules: tuple[Declaration, ...],
) -> State:
    """A new timeline whose state is what is in the file.

    Of the rules that will hold, those about classes hold here, too: what is sensitive is stored as
    that from the start.
    """
    staged = State(handle).fork(name, at=0)
    staged.declare(*(rule for rule in rules if isinstance(rule, Classed)))
    line = handle.on(name)
    stage = _Stage(line, reason)
    Content(file, said, handle.core.codec.limits).give(stage)
    stage.flush()
    view = line.view(line.place()[2]).reader.at
    assert view is not None
    # Keys that have expired since the checkpoint count as they did then.
    if Source(line, view, name, said.time).measure() != (said.keys, said.size, said.digest):
        raise StateIntegrityError(
            f"{handle.scope}: what was written to the timeline {name} is not what the export "
            "holds, and nothing was taken over; does a gate change what is written?"
        )
    return staged


class _Check:
    """Looks whether everything could be taken over."""

    def __init__(self, codec: Codec, *, foreign: bool = False) -> None:
        self._codec = codec
        self._foreign = foreign

    def value(self, key: str, data: bytes, meta: Meta) -> None:
        """A value."""
        if key.startswith(PREFIX) or derived(key):
            raise damaged("holds a key that is never exported")
        try:
            found = self._codec.decode(data)
        except LimitExceededError:
            raise
        except HoldfastError:
            raise damaged("holds a value that cannot be read") from None
        if self._foreign and SEALED.encode() in data and has_sealed(found):
            raise InvalidInputError(
                f"this export holds, under {key!r}, what is sealed for a subject of the store that "
                "it came from, and no other store can open that; nothing was taken over"
            )

    def pieces(self, key: str, pieces: Iterator[bytes], meta: Meta) -> None:
        """Long bytes."""
        if key.startswith(RESERVED) or meta.class_:
            raise damaged("holds long bytes where they are never exported")
        for _ in pieces:
            pass

    def items(self, key: str, items: Iterator[bytes], meta: Meta) -> None:
        """A long list."""
        for item in items:
            self.value(key, item, meta)


class _Stage:
    """Writes what is read into a timeline."""

    def __init__(self, line: LineHandle, reason: str) -> None:
        self._line = line
        self._reason = reason
        self._decode = line.core.codec.plain_reader.decode
        self._operations: list[Operation] = []
        self._size = 0

    def value(self, key: str, data: bytes, meta: Meta) -> None:
        """A value: with others, in one entry."""
        self._note("set", key, self._decode(data), len(data) + len(key), terms_of(meta))

    def pieces(self, key: str, pieces: Iterator[bytes], meta: Meta) -> None:
        """Long bytes, which are not held."""
        self.flush()
        writer = LongWriter(self._line, key, None)
        for piece in pieces:
            writer.write(piece)
        writer.commit()
        self._expire(key, meta)

    def items(self, key: str, items: Iterator[bytes], meta: Meta) -> None:
        """A long list, which grows. It expires when it is whole: what has expired begins anew."""
        self._note("set", key, [], len(key), terms_of(Meta(class_=meta.class_)))
        for data in items:
            last = self._operations[-1] if self._operations else None
            if last is not None and (last.kind, last.key) == ("append", key):
                last.value.append(self._decode(data))
                self._grow(len(data))
            else:
                self._note("append", key, [self._decode(data)], len(data))
        self._expire(key, meta)

    def _expire(self, key: str, meta: Meta) -> None:
        if meta.expires or meta.schema:
            self._note("expire", key, None, len(key), terms_of(meta))

    def _note(self, kind: str, key: str, value: Any, size: int, terms: Terms | None = None) -> None:
        self._operations.append(Operation(kind, key, value, terms))
        self._grow(size)

    def _grow(self, size: int) -> None:
        self._size += size
        if self._size >= PIECE or len(self._operations) >= OPERATIONS:
            self.flush()

    def flush(self) -> None:
        """Commit what waits."""
        line = self._line
        target: Asked = (line.scope, line.timeline, self._operations, {}, None)
        if self._operations:
            cause = cause_now(reason=self._reason)
            line.core.run(build_change(line.core, [target], cause=cause))
        self._operations, self._size = [], 0
