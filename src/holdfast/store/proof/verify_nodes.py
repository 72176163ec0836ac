"""Verifying the saved nodes of a scope: each is itself, and leads where it says.

The packs are read once, in order. Children are stored before their parents, so that most links
can be checked at once; the rest (a state taken over from another timeline) at the end.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import msgspec

from holdfast.storage.rows import each
from holdfast.store.journal import entry
from holdfast.store.journal.entry import Body
from holdfast.store.journal.floor import newest_told
from holdfast.store.journal.ledger import Ledger, leaves
from holdfast.store.journal.save import INDEX, read_save
from holdfast.store.journal.slot import Slot
from holdfast.store.journal.timeline import DELTAS
from holdfast.store.names import rowkinds as rows
from holdfast.store.proof.verify_report import DAMAGE, Findings
from holdfast.store.tree import refs
from holdfast.store.tree.tree import Place
from holdfast.store.tree.value import AHEAD


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

    def __init__(self, check: Findings, ledger: Ledger, below: Mapping[int, int]) -> None:
        self.check = check
        self.ledger = ledger
        self._hashes: dict[tuple[int, int, int], bytes] = {}
        """(timeline, sequence, ordinal) of a pack to the hashes of its nodes, joined."""
        self.saved: defaultdict[int, list[int]] = defaultdict(list)
        """The entries of each timeline at which nodes were saved, in order."""
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
        self.check.row(kind, key, message, self.ledger)

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
            prefix = rows.entry(line, number)
            self._read(rows.UPLOADS, prefix, rows.after(prefix))

    def _read(self, timeline: int, low: bytes, high: bytes) -> None:
        for key, row in each(self.ledger.storage.scan, low, high, limit=200):
            self._pack(timeline, key, row)

    def _pack(self, timeline: int, key: bytes, row: bytes) -> None:
        sequence, ordinal = rows.sequence_of(key), int.from_bytes(key[14:17], "big")
        if len(key) != rows.LENGTHS[b"N"]:
            self.find("unaccounted", key, rows.ROW[b"N"].stray)
            return
        if (timeline, sequence, ordinal) in self._hashes:
            return  # something led to it before
        self._hashes[(timeline, sequence, ordinal)] = b""
        if not rows.of_base(key):
            saved = self.saved[timeline]
            at = bisect_left(saved, sequence)
            if saved[at : at + 1] != [sequence]:
                saved.insert(at, sequence)
        commit = self.ledger.commit_node
        try:
            nodes = [_stored(data) for data in self.ledger.atoms_in(key, row)]
            hashes = [commit(node.canonical) for node in nodes]
            self._hashes[(timeline, sequence, ordinal)] = b"".join(hashes)
            for node in nodes if sequence > self._below.get(timeline, 0) else ():
                links = _links(node.canonical)
                to: Any = links.to
                if links.level:
                    for at, place in enumerate(_places(node.hints)):
                        self._link(place, to[32 * at : 32 * at + 32], key)
                elif len(to) != _length(node.hints):
                    raise ValueError("a hint is missing")
                elif to and max(to) >= _TREES:
                    for ref, hint in zip(to, _hints(node.hints), strict=True):
                        if refs.is_tree(ref):
                            root = refs.read_tree(refs.bare(ref))[1]
                            self._link(_hint(hint)[-4:], root, key)
        except DAMAGE as error:
            self.find("damage", key, str(error))
        except (msgspec.MsgspecError, ValueError, TypeError, IndexError):
            self.find("damage", key, "a node cannot be read")

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
        pack = rows.pack(rows.line(b"N", self.ledger.number, place[0]), *place[1:3])
        if place[0] == rows.UPLOADS:
            self.read_upload(place[1])
        elif self._at(place) is None:
            # Saved on another timeline after that was read, or read with its entries, little by
            # little.
            self._read(place[0], pack, rows.after(pack))
        if self._at(place) == hash_ or pack in self._missing:
            return
        if place[:3] not in self._hashes:  # else it was read, and is another one
            self._missing.add(pack)
            self.find("damage", pack, f"it is missing, and {rows.describe(key)} leads to it")
        else:
            self.find("damage", key, "it leads to a node that is another one, or damaged")


def newest_index(ledger: Ledger, timeline: int, last: int) -> int:
    """The entry up to `last` that the newest whole index stands at; 0 if there is none."""
    for key, row in ledger.rows_of(b"S", timeline, last=last, limit=DELTAS + 1, reverse=True):
        with suppress(*DAMAGE):  # found and named when its entry is reached
            if read_save(ledger.open_row(key, row)).kind == INDEX:
                return rows.sequence_of(key)
    return 0


# ---- verify uploads -----------------------------------------------------------------------------
# Verifying long values that were written ahead: each chunk is itself, each row has its entry.
#
# The packs are read once, in order. Nodes of uploads are checked like all others (`verify_nodes`);
# here it is that their leaves lead to the chunks that they name. An entry says how many packs its
# upload has: neither fewer nor more may be stored. Rows under a pin are of a value that is not
# finished, or was given up; they are counted, and are no finding.


class UploadCheck:
    """The uploads of one scope."""

    def __init__(self, check: Findings, nodes: NodeCheck, ledger: Ledger) -> None:
        self.check = check
        self.nodes = nodes
        self.ledger = ledger
        self.named: dict[int, tuple[int, int]] = {}
        """How many packs, and packs of nodes, an entry says that its upload has."""
        self.read: dict[int, int] = {}
        """The newest entry of each timeline that was noted."""
        self.pinned = self._pinned()
        self._hashes: dict[tuple[int, int], bytes] = {}
        """(upload, ordinal) of a pack to the hashes of its chunks, joined."""
        self._damaged: set[int] = set()

    def find(self, kind: str, key: bytes, message: str) -> None:
        """Note a finding in this scope."""
        self.check.row(kind, key, message, self.ledger)
        self._damaged.add(rows.sequence_of(key))

    def note(self, key: bytes, body: Body) -> None:
        """Take an entry without atoms into account: it may name an upload."""
        for op in body.ops:
            if op[0] == entry.SET and type(op[2]) is list and op[2][0] == AHEAD:
                _, ref, place, number, packs, nodes = op[2]
                self.nodes.expect(tuple(place), refs.read_tree(ref)[1], key)
                if number:
                    self.named[number] = packs, nodes

    def note_since(self, read: dict[int, int]) -> None:
        """Note the entries of each timeline behind the one that is given."""
        self.read = read
        for line, sequence in read.items():
            for key, row in self.ledger.rows_of(b"E", line, sequence + 1, limit=200):
                with suppress(*DAMAGE):  # found and named with its timeline
                    self.note(key, self.ledger.open_entry(key, row)[1])

    def run(self) -> None:
        """Check what is stored, once all entries of the scope have been noted."""
        self.nodes.finish()
        self.check.report.unfinished += len(self._pinned())
        stored: dict[int, set[bytes]] = {}
        for kind, look in ((b"V", self._pack), (b"N", self._leaves)):
            for key, row in self.ledger.rows_of(kind, rows.UPLOADS, limit=100):
                stored.setdefault(rows.sequence_of(key), set()).add(key)
                look(key, row)
        # The packs that are there must be those that the entries name.
        for number, counts in self.named.items():
            there = stored.get(number, set())
            for kind, first, count in zip((b"V", b"N"), (1, 0), counts, strict=True):
                line, ordinals = self._line(kind), range(first, first + count)
                wanted = {rows.pack(line, number, ordinal) for ordinal in ordinals}
                for key in sorted(wanted - there):
                    self.find("damage", key, "it is missing: a pack of an upload")
                for key in sorted(key for key in there - wanted if key[:1] == kind):
                    message = f"its entry names {count} packs, and not this one"
                    self.find("unaccounted", key, message)
        unknown = stored.keys() - self.named.keys() - self.pinned - self._pinned()
        # What lost entries named, as a timeline tells, may be used by others.
        lost = any(newest_told(self.ledger, number) is not None for number in self.read)
        if unknown and not lost:
            self.note_since(self.read)  # one may have been finished meanwhile
            for number in sorted(unknown - self.named.keys()):
                key = rows.pack(self._line(b"V"), number, 1)
                lows = [rows.entry(self._line(kind), number) for kind in (b"V", b"N")]
                scan = self.ledger.storage.scan
                if not any(scan(low, rows.after(low), limit=1) for low in lows):
                    continue  # given up meanwhile: its pin went last
                self.find("unaccounted", key, "no entry names these values, and no pin")
        if self._damaged:
            self.check.name_keys(self.ledger, list(self.read), self._uses)

    def _line(self, kind: bytes) -> bytes:
        return rows.line(kind, self.ledger.number, rows.UPLOADS)

    def _pinned(self) -> set[int]:
        """Uploads that are not finished."""
        prefix = b"P" + self.ledger.number.to_bytes(rows.SCOPE, "big")
        cells = each(self.ledger.storage.cells, prefix, rows.after(prefix))
        return {int.from_bytes(key[7:], "big") for key, _ in cells}

    # rows

    def _pack(self, key: bytes, row: bytes) -> None:
        try:
            hashes = [self.ledger.value_hash(atom) for atom in self.ledger.atoms_in(key, row)]
        except DAMAGE as error:
            self.find("damage", key, str(error))
            return
        self.check.report.values += len(hashes)
        name = rows.sequence_of(key), int.from_bytes(key[14:], "big")
        self._hashes[name] = b"".join(hashes)

    def _leaves(self, key: bytes, row: bytes) -> None:
        """Check that the leaves of a pack lead to the chunks that they name."""
        number, ordinal = rows.sequence_of(key), int.from_bytes(key[14:], "big")
        if number not in self.named:
            return  # not finished: what it leads to may be on its way
        elsewhere: dict[Any, list[tuple[int, bytes]]] = {}
        try:
            for index, data in enumerate(self.ledger.atoms_in(key, row)):
                place: Place = (rows.UPLOADS, number, ordinal, index)
                # That it is the right one is checked with its parent.
                hash_ = self.ledger.commit_node(msgspec.msgpack.decode(data)[0])
                node = self.ledger.trees.unpack(data, hash_, place)
                for _, ref, hint in node.elements if node.level == 0 else ():
                    if ref[0] == refs.ATOM and hint[0] != rows.UPLOADS:
                        elsewhere.setdefault(hint[:3], []).append((hint[3], ref))
                    elif ref[0] == refs.ATOM:
                        low, held = 32 * hint[3], self._hashes.get(hint[1:3], b"")
                        if held[low : low + 32] != ref[1:33]:
                            self.find(
                                "damage", key, "it leads to values that are missing or others"
                            )
            self.ledger.check_atoms(elsewhere, read=True)
        except DAMAGE as error:
            self.find("damage", key, str(error))

    def _uses(self, slot: Slot) -> bool:
        """Whether a value has something in a damaged upload; a tree that cannot be read has."""
        try:
            places = [place for _, place in leaves(self.ledger, slot.ref, slot.location)]
        except DAMAGE:
            return True
        lies = [*places, slot.location]
        return any(
            type(p) is tuple and p[0] == rows.UPLOADS and p[1] in self._damaged for p in lies
        )
