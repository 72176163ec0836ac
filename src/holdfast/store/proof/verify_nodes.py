"""Verifying the saved nodes of a scope: each is itself, and leads where it says.

The packs are read once, in order. Children are stored before their parents, so that most links
can be checked at once; the rest (a state taken over from another timeline) at the end.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.errors import FormatError, KeyMissingError, PrunedError, StateIntegrityError
from holdfast.store.journal.ledger import Ledger
from holdfast.store.journal.save import INDEX, read_save
from holdfast.store.journal.timeline import DELTAS
from holdfast.store.names import rowkinds as rows
from holdfast.store.tree import refs

if TYPE_CHECKING:
    from holdfast.store.proof.verify import _Check


class _Stored(msgspec.Struct, array_like=True, gc=False):
    """A node as it is stored; most of its hints lead to values and are only counted."""

    canonical: bytes
    hints: msgspec.Raw


class _Links(msgspec.Struct, array_like=True, gc=False):
    """What a node leads to; its keys are skipped, and so is what stands behind."""

    level: int
    keys: msgspec.Raw
    to: list[bytes] | bytes
    """The refs of a leaf, or the hashes of children, joined."""


_stored = msgspec.msgpack.Decoder(_Stored).decode
_links = msgspec.msgpack.Decoder(_Links).decode
_hints = msgspec.msgpack.Decoder(list[msgspec.Raw]).decode
_hint = msgspec.msgpack.Decoder(tuple[int, ...]).decode
_places = msgspec.msgpack.Decoder(list[tuple[int, int, int, int]]).decode
"""The places of an inner node's children."""

_TREES = bytes([refs.TREE])
"""Refs of atoms sort before this, those of all that may be a tree behind it."""

DAMAGE = (StateIntegrityError, FormatError, KeyMissingError, PrunedError)
"""What a damaged row leads to: its format or key epoch may be what was hit, or it was pruned while
it was looked at, and then the scope is looked at again. A storage that cannot serve, or a key that
was retired, is no damage, and stops the check."""


def damaged_row(error: Exception, otherwise: bytes) -> bytes:
    """The row that an error is about, if it says which."""
    return bytes.fromhex(getattr(error, "row", "")) or otherwise


def _length(array: msgspec.Raw) -> int:
    """How many items a list has that was not taken apart."""
    head = memoryview(array)
    if head[0] & 0xF0 == 0x90:
        return head[0] & 15
    return int.from_bytes(head[1:3], "big") if head[0] == 0xDC else len(_hints(array))


class NodeCheck:
    """What the saved nodes of one scope really hash to, by their place."""

    def __init__(self, check: _Check, ledger: Ledger, below: Mapping[int, int]) -> None:
        self.check = check
        self.ledger = ledger
        self._hashes: dict[tuple[int, int, int], bytes] = {}
        """(timeline, sequence, ordinal) of a pack to the hashes of its nodes, joined."""
        self._packs: set[tuple[int, int]] = set()
        """(timeline, sequence) of the saves that the packs belong to."""
        self._open: list[tuple[tuple[int, ...], bytes, bytes]] = []
        """(place, hash, row) of links to nodes that had not been read."""
        self._below = below
        """Up to which entry each timeline is pruned. Nodes saved there may be left over: only what
        is kept leads to them, and what they lead to may be gone."""
        self._uploads: set[int] = set()
        """Uploads whose nodes were read: only those that something leads to."""
        self._missing: set[bytes] = set()
        """Packs that something leads to and that are not there; told of once."""

    def find(self, kind: str, key: bytes, message: str) -> None:
        """Note a finding in this scope."""
        self.check.find(kind, rows.describe(key), message, str(self.ledger.scope), row=key)

    def saved(self, timeline: int) -> list[int]:
        """The entries of a timeline at which nodes were saved."""
        return sorted(sequence for line, sequence in self._packs if line == timeline)

    def read(self, timeline: int, first: int = 0, last: int | None = None) -> None:
        """Read the nodes that were saved on a timeline, all or those at some of its entries."""
        prefix = rows.line(b"N", self.ledger.number, timeline)
        high = rows.after(prefix) if last is None else rows.entry(prefix, last + 1)
        self._read(timeline, rows.entry(prefix, first) if first else prefix, high)

    def read_upload(self, number: int) -> None:
        """Read the nodes of an upload, if that has not been done."""
        if number not in self._uploads:
            self._uploads.add(number)
            line = rows.line(b"N", self.ledger.number, rows.UPLOADS)
            self._read_all(rows.UPLOADS, rows.entry(line, number))

    def _read_all(self, timeline: int, prefix: bytes) -> None:
        self._read(timeline, prefix, rows.after(prefix))

    def _read(self, timeline: int, low: bytes, high: bytes) -> None:
        while page := self.ledger.storage.scan(low, high, limit=200):
            for key, row in page:
                self._pack(timeline, key, row)
            low = page[-1][0] + b"\0"

    def _pack(self, timeline: int, key: bytes, row: bytes) -> None:
        sequence, ordinal = rows.sequence_of(key), int.from_bytes(key[14:17], "big")
        if len(key) != rows.LENGTHS[b"N"]:
            self.find("unaccounted", key, "no save uses these nodes")
            return
        if (timeline, sequence, ordinal) in self._hashes:
            return  # something led to it before
        self._hashes[(timeline, sequence, ordinal)] = b""
        if not rows.of_base(key):
            self._packs.add((timeline, sequence))
        commit = self.ledger.commit_node
        try:
            nodes = [_stored(data) for data in self.ledger.atoms_in(key, row)]
            hashes = [commit(node.canonical) for node in nodes]
            self._hashes[(timeline, sequence, ordinal)] = b"".join(hashes)
            for node in nodes if sequence > self._below.get(timeline, 0) else ():
                links = _links(node.canonical)
                to: Any = links.to
                if links.level:
                    self._children(key, to, _places(node.hints))
                elif len(to) != _length(node.hints):
                    raise ValueError("a hint is missing")
                elif to and max(to) >= _TREES:
                    self._trees(key, to, _hints(node.hints))
        except DAMAGE as error:
            self.find("damage", key, str(error))
        except (msgspec.MsgspecError, ValueError, TypeError, IndexError):
            self.find("damage", key, "a node cannot be read")

    def _children(self, key: bytes, hashes: bytes, places: list[Any]) -> None:
        held: Any = self._hashes.get
        at = 0
        for place in places:
            hash_ = hashes[at : at + 32]
            at += 32
            low = 32 * place[3]
            if held(place[:3], b"")[low : low + 32] != hash_:
                self._link(place, hash_, key)

    def _trees(self, key: bytes, links: Any, hints: list[msgspec.Raw]) -> None:
        for ref, hint in zip(links, hints, strict=True):
            if refs.is_tree(ref):
                self._link(_hint(hint)[-4:], refs.read_tree(refs.bare(ref))[1], key)

    def _link(self, place: Any, hash_: bytes, key: bytes) -> None:
        found = self._at(place)
        if found is None:
            self._open.append((place, hash_, key))
        elif found != hash_:
            self.find("damage", key, "a node leads to another node than the one it names")

    def _at(self, place: Any) -> bytes | None:
        """The hash of the node at a place, if it was read."""
        held = self._hashes.get(place[:3])
        if held is None:
            return None
        at = 32 * place[3]
        return held[at : at + 32] or None

    def finish(self) -> None:
        """Check the links that were left open."""
        while self._open:
            links, self._open = self._open, []
            for place, hash_, key in links:
                self.expect(place, hash_, key)

    def expect(self, place: Any, hash_: bytes, key: bytes) -> None:
        """Check that a node lies at a place."""
        if place[0] == rows.UPLOADS:
            self.read_upload(place[1])
        elif self._at(place) is None:
            # Saved on another timeline after that was read, or read with its entries, little by
            # little.
            line = rows.line(b"N", self.ledger.number, place[0])
            self._read_all(place[0], rows.pack(line, *place[1:3]))
        if self._at(place) == hash_:
            return
        pack = rows.pack(rows.line(b"N", self.ledger.number, place[0]), *place[1:3])
        if pack in self._missing:
            return
        if place[:3] not in self._hashes:  # else it was read, and is another one
            self._missing.add(pack)
            self.find("damage", pack, f"it is missing, and {rows.describe(key)} leads to it")
        else:
            self.find("damage", key, "it leads to a node that is another one, or damaged")


def newest_index(ledger: Ledger, timeline: int, last: int) -> int:
    """The entry up to `last` that the newest whole index stands at; 0 if there is none."""
    line = rows.line(b"S", ledger.number, timeline)
    high = rows.entry(line, last + 1)
    while page := ledger.storage.scan(line, high, limit=DELTAS + 1, reverse=True):
        for key, row in page:
            try:
                if read_save(ledger.open_row(key, row)).kind == INDEX:
                    return rows.sequence_of(key)
            except DAMAGE:
                continue  # found and named when its entry is reached
        high = page[-1][0]
    return 0
