"""Proofs that leave the house: one key of one signed state, checkable without the store.

A checkpoint's signature covers the root of the index, and the root covers every node on the way to
a key and every part of its value. So those nodes and parts, with the checkpoint, are a proof. In
an encrypted store each of them comes with what opens its commitment, and with nothing of any key.
"""

from __future__ import annotations

import hashlib
import itertools
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.errors import (
    CheckpointNotFoundError,
    Conflict,
    InvalidInputError,
    LimitExceededError,
    StateIntegrityError,
    TimelineNotFoundError,
)
from holdfast.storage.rows import each
from holdfast.store.history.checkpoint import fold_once
from holdfast.store.journal import entry
from holdfast.store.journal.feed import LANES
from holdfast.store.journal.floor import all_told, anchored_floor
from holdfast.store.journal.ledger import Ledger
from holdfast.store.journal.slot import slot_of
from holdfast.store.journal.timeline import Timeline
from holdfast.store.names import rowkinds
from holdfast.store.names.arguments import check_flag
from holdfast.store.names.scope import check_key
from holdfast.store.names.whole_files import write_whole
from holdfast.store.proof.cosign import signatures_of
from holdfast.store.read.reader import Reader
from holdfast.store.rules.ephemeral import refuse_ephemeral
from holdfast.store.rules.lookup import derived
from holdfast.store.tree import refs
from holdfast.store.tree.tree import Element, Node

if TYPE_CHECKING:
    from holdfast.store.history.handle import LineHandle
    from holdfast.store.names.items import Checkpoint


MOST = 1 << 20
"""Bytes of a value that a proof carries at most."""


def prove_key(handle: LineHandle, key: str, at: Any) -> Proof:
    """The proof of what a key was at a checkpoint (default: the newest); see `State.prove`."""
    key = check_key(key, owner=True)
    handle.core.check_open()
    if derived(key):
        raise InvalidInputError(
            f"{handle.scope}: what a lookup keeps is the store's own; prove a key that it is about"
        )
    source, checkpoint = checkpoint_view(handle, at)
    refuse_ephemeral(source.declared, key, "proof")
    ledger, sequence = source.ledger, checkpoint.sequence
    row, envelope, _ = ledger.entry_at(source.number, sequence)
    statement = envelope.statement
    assert statement is not None
    if statement.algorithm == entry.UNSIGNED:
        raise InvalidInputError(
            f"{handle.scope}: the checkpoint at entry {sequence} is not signed, so nobody vouches "
            "for it; open the store with its signer and make another"
        )
    root = fold_once(source)
    if root.hash != statement.root:
        raise StateIntegrityError(
            f"{handle.scope}: the checkpoint at entry {sequence} names another state than its "
            "entries give; run `holdfast verify`"
        )
    path, leaf = _path(ledger, root, key)
    element = next((e for e in leaf if e[0] == key), None)
    # What lies beside it is shown, too, if it is short: for a gate that is a read of it.
    read = [(e[0], slot_of(e)) for e in leaf if refs.bare(e[1])[0] == refs.ATOM_INLINE]
    value: list[Opened] = []
    if element is not None:
        slot = source.settled(slot_of(element))
        size = refs.size_of(slot.ref)
        if size > MOST:
            raise LimitExceededError(
                f"{handle.scope}: the value of {key!r} has {size} bytes, a proof carries {MOST}; "
                "keep what is to be proven under a key of its own, or prove a key that holds its "
                "hash"
            )
        read = [(key, slot), *(one for one in read if one[0] != key)]
        value = list(_parts(ledger, slot.ref, slot.location))
    Reader(handle.core, handle.scope, handle.timeline, source).told(source, read)
    body = _plain_body(ledger, row)
    return Proof(
        handle.core.lineage,
        ledger.id,
        row,
        envelope.data,
        (body, ledger.opening(b"body", body)),
        signatures_of(handle.core, ledger, row, envelope),
        key,
        path,
        value,
    )


def checkpoint_view(handle: LineHandle, at: Any) -> tuple[Timeline, Checkpoint]:
    """A checkpoint (default: the newest that the state has come by), and the state at it."""
    points = handle.history.points
    timeline, sequence = _newest(handle) if at is None else points.find(at)
    checkpoint = handle.history.checkpoint_at(timeline, sequence)
    return points.view(timeline, sequence), checkpoint


def _newest(handle: LineHandle) -> tuple[str, int]:
    """The newest checkpoint that the present state has come by.

    Not simply the newest one: after a restore that is the restore's backup, of the state that was
    left behind. What a restore or a fork went back to is the past of what came after it.
    """
    points = handle.history.points
    name, line = handle.timeline, points.line()
    names = {number: name for name, number in handle.core.names(line.ledger).items()}
    while line.checkpoint <= line.origin:
        if not line.origin:
            raise CheckpointNotFoundError(
                f"{handle.scope}: the present state has come by no checkpoint yet; make one, or "
                "say with `at` which is meant"
            )
        *_, body = line.ledger.entry_at(line.number, line.origin)
        _, number, sequence, *_ = body.ops[0]
        name = names[number]
        try:
            line = points.view(name, sequence)
        except TimelineNotFoundError:
            raise CheckpointNotFoundError(
                f"{handle.scope}: the present state has come by no checkpoint since it was taken "
                f"over from the timeline {name}, which was ended since; make one, or say with `at` "
                "which is meant"
            ) from None
    return name, line.checkpoint


def _plain_body(ledger: Ledger, row: bytes) -> bytes:
    """The bytes that the envelope commits to; they have been opened and checked before."""
    stored = ledger.storage.get([row])[0]
    assert stored is not None
    envelope, _ = entry.split_row(stored)
    return ledger.seal.open(ledger.ad(row), stored, envelope.writer, len(envelope.data))


def _path(ledger: Ledger, root: Node, key: str) -> tuple[list[Opened], Sequence[Element]]:
    """The nodes to look at for a key, and the elements of the leaf where it is, or would be."""
    node, found = root, [_node(ledger, root)]
    while node.level:
        child = next((e for e in node.elements if e[0] >= key), None)
        if child is None:
            return found, ()
        node = ledger.trees.load(child[2], child[1])
        found.append(_node(ledger, node))
    return found, node.elements


def _node(ledger: Ledger, node: Node) -> Opened:
    plain = ledger.trees.canonical(node)
    return plain, ledger.opening(b"node", plain)


def _parts(ledger: Ledger, ref: bytes, location: Any) -> Iterator[Opened]:
    """What a value is made of, in the order in which a reader who goes down needs it."""
    ref = refs.bare(ref)
    if ref[0] == refs.ATOM:
        data = ledger.atom(ref, location)
        yield data, ledger.opening(b"value", data)
    elif ref[0] == refs.TREE:
        yield from _tree(ledger, ledger.trees.load(location, refs.read_tree(ref)[1]))


def _tree(ledger: Ledger, node: Node) -> Iterator[Opened]:
    yield _node(ledger, node)
    for element in node.elements:
        if node.level:
            yield from _tree(ledger, ledger.trees.load(element[2], element[1]))
        else:
            yield from _parts(ledger, element[1], element[2])


def export_chain(handle: LineHandle, path: str | os.PathLike[str], feed: bool) -> int:
    """Write the envelopes of a timeline to a file; see `State.export_chain`."""
    check_flag(feed, "feed")
    core = handle.core
    core.check_open()
    # The lanes first: then the chain has all that they name.
    ends = {lane: core.lanes.end(lane)[0] for lane in range(LANES)} if feed else {}
    line = handle.history.points.line()
    first, last = line.ledger.before + 1, line.sequence

    def objects() -> Iterator[Any]:
        yield core.lineage, line.ledger.id, line.prefix, first, last - first + 1
        signed: list[Any] = []
        rows = line.ledger.rows_of(b"E", line.number, first, last)
        for sequence in range(first, last + 1):
            key, row = next(rows, (b"", b""))
            if key != rowkinds.entry(line.prefix, sequence):
                raise line.ledger.damage(rowkinds.entry(line.prefix, sequence), "it is missing")
            envelope, body = entry.split_row(row)
            yield envelope.data, int(bool(body))
            found = signatures_of(core, line.ledger, key, envelope)
            signed += [(sequence, *one) for one in found]
        yield len(signed)
        yield from signed
        # What shows that bodies that are not there were pruned: the newest anchor, opened. It is
        # asked for behind the entries: whoever pruned one of them meanwhile had announced it.
        floor = anchored_floor(line.ledger, line.number)
        if floor.anchor > line.sequence:
            raise Conflict(f"{line.ledger.scope} was pruned while it was exported; export it again")
        yield _opened_body(line, floor.anchor) if floor.number else ()
        if feed:
            told = (one.at for one in all_told(line.ledger, line.number) if one.at <= last)
            yield from (_opened_body(line, at) for at in itertools.islice(told, 1))
        lanes = [(lane, end) for lane, end in ends.items() if end]
        yield len(lanes)
        for lane, end in lanes:
            yield lane, end
            yield from _lane(handle, lane, end)

    write_whole(path, chain_file(objects()))
    return last - first + 1


def _opened_body(line: Timeline, sequence: int) -> tuple[int, bytes, bytes]:
    """An entry's body, with what shows that it is the one that its envelope commits to."""
    body = _plain_body(line.ledger, rowkinds.entry(line.prefix, sequence))
    return sequence, body, line.ledger.opening(b"body", body)


def _lane(handle: LineHandle, lane: int, end: int) -> Iterator[Opened]:
    """Rows of a lane: what they name, and what opens their tags."""
    core, before = handle.core, bytes(32)
    rows = each(core.storage.scan, rowkinds.feed(lane, 1), rowkinds.feed(lane, end + 1))
    for number in range(1, end + 1):
        key, row = next(rows, (b"", b""))
        if key != rowkinds.feed(lane, number):
            raise StateIntegrityError(
                f"rows of the feed are missing in lane {lane}; run `holdfast verify`"
            )
        named = bytes([lane]) + number.to_bytes(6, "big") + before + row[:-32]
        yield row[:-32], core.commitments.opening(b"feed", named)
        before = row[-32:]


# ---- proof files --------------------------------------------------------------------------------
# Files that leave the house: proofs and exported chains; docs/format.md says what is in them.
#
# `holdfast_verify` reads them, and shares no code with this.


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
