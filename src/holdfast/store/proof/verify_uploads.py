"""Verifying long values that were written ahead: each chunk is itself, each row has its entry.

The packs are read once, in order. Nodes of uploads are checked like all others (`verify_nodes`);
here it is that their leaves lead to the chunks that they name. An entry says how many packs its
upload has: neither fewer nor more may be stored. Rows under a pin are of a value that is not
finished, or was given up; they are counted, and are no finding.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.storage.contract import Storage
from holdfast.store.journal import entry
from holdfast.store.journal.entry import Body
from holdfast.store.journal.floor import newest_told
from holdfast.store.journal.ledger import Ledger
from holdfast.store.journal.slot import Slot
from holdfast.store.names import rowkinds
from holdfast.store.proof.verify_nodes import DAMAGE, NodeCheck
from holdfast.store.proof.verify_report import name_keys
from holdfast.store.read.state_check import leaves
from holdfast.store.tree import refs
from holdfast.store.tree.tree import Place
from holdfast.store.tree.value import AHEAD

if TYPE_CHECKING:
    from holdfast.store.proof.verify import _Check


def check_pins(check: _Check) -> None:
    """Count pins of scopes that are still to be made, and find what only looks like one."""
    low = b"P"
    known = {ledger.number for ledger in check.directory.ledgers}
    while page := check.core.storage.cells(low, b"Q"):
        for key, _ in page:
            if len(key) != 12:
                check.find("unaccounted", rowkinds.describe(key), "nothing accounts for this cell")
            elif int.from_bytes(key[1:7], "big") not in known:
                check.report.unfinished += 1
        low = page[-1][0] + b"\0"


def is_pinned(storage: Storage, scope: int) -> bool:
    """Whether a scope has rows that are not finished: it may be made by the entry to come."""
    prefix = b"P" + scope.to_bytes(rowkinds.SCOPE, "big")
    return bool(storage.cells(prefix, rowkinds.after(prefix), limit=1))


class UploadCheck:
    """The uploads of one scope."""

    def __init__(self, check: _Check, nodes: NodeCheck, ledger: Ledger) -> None:
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
        self.check.find(kind, rowkinds.describe(key), message, str(self.ledger.scope), row=key)
        self._damaged.add(rowkinds.sequence_of(key))

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
            prefix = rowkinds.line(b"E", self.ledger.number, line)
            low = rowkinds.entry(prefix, sequence + 1)
            while page := self.ledger.storage.scan(low, rowkinds.after(prefix), limit=200):
                for key, row in page:
                    with suppress(*DAMAGE):  # found and named with its timeline
                        self.note(key, self.ledger.open_entry(key, row)[1])
                low = page[-1][0] + b"\0"

    def run(self) -> None:
        """Check what is stored, once all entries of the scope have been noted."""
        self.nodes.finish()
        self.check.report.unfinished += len(self._pinned())
        stored: dict[int, set[bytes]] = {}
        for kind, look in ((b"V", self._pack), (b"N", self._leaves)):
            for key, row in self._rows(kind):
                stored.setdefault(rowkinds.sequence_of(key), set()).add(key)
                look(key, row)
        for number, counts in self.named.items():
            self._compare(number, counts, stored.get(number, set()))
        unknown = stored.keys() - self.named.keys() - self.pinned - self._pinned()
        if unknown and not self._tells():
            self.note_since(self.read)  # one may have been finished meanwhile
            for number in sorted(unknown - self.named.keys()):
                key = rowkinds.pack(self._line(b"V"), number, 1)
                if not self._is_stored(number):
                    continue  # given up meanwhile: its pin went last
                self.find("unaccounted", key, "no entry names these values, and no pin")
        if self._damaged:
            name_keys(self.check, self.ledger, list(self.read), self._uses)

    def _tells(self) -> bool:
        """Whether a timeline tells of a loss: what lost entries named may be used by others."""
        return any(newest_told(self.ledger, number) is not None for number in self.read)

    def _is_stored(self, number: int) -> bool:
        prefixes = [rowkinds.entry(self._line(kind), number) for kind in (b"V", b"N")]
        scan = self.ledger.storage.scan
        return any(scan(prefix, rowkinds.after(prefix), limit=1) for prefix in prefixes)

    def _line(self, kind: bytes) -> bytes:
        return rowkinds.line(kind, self.ledger.number, rowkinds.UPLOADS)

    def _rows(self, kind: bytes) -> Iterator[tuple[bytes, bytes]]:
        line = low = self._line(kind)
        while page := self.ledger.storage.scan(low, rowkinds.after(line), limit=100):
            yield from page
            low = page[-1][0] + b"\0"

    def _pinned(self) -> set[int]:
        """Uploads that are not finished."""
        found = set()
        prefix = low = b"P" + self.ledger.number.to_bytes(rowkinds.SCOPE, "big")
        while page := self.ledger.storage.cells(low, rowkinds.after(prefix)):
            found |= {int.from_bytes(key[7:], "big") for key, _ in page}
            low = page[-1][0] + b"\0"
        return found

    # rows

    def _pack(self, key: bytes, row: bytes) -> None:
        try:
            hashes = [self.ledger.value_hash(atom) for atom in self.ledger.atoms_in(key, row)]
        except DAMAGE as error:
            self.find("damage", key, str(error))
            return
        self.check.report.values += len(hashes)
        name = rowkinds.sequence_of(key), int.from_bytes(key[14:], "big")
        self._hashes[name] = b"".join(hashes)

    def _leaves(self, key: bytes, row: bytes) -> None:
        """Check that the leaves of a pack lead to the chunks that they name."""
        number, ordinal = rowkinds.sequence_of(key), int.from_bytes(key[14:], "big")
        if number not in self.named:
            return  # not finished: what it leads to may be on its way
        elsewhere: dict[Any, list[tuple[int, bytes]]] = {}
        try:
            for index, data in enumerate(self.ledger.atoms_in(key, row)):
                place: Place = (rowkinds.UPLOADS, number, ordinal, index)
                node = self.ledger.trees.unpack(data, _hash_of(self.ledger, data), place)
                for _, ref, hint in node.elements if node.level == 0 else ():
                    if ref[0] == refs.ATOM and hint[0] != rowkinds.UPLOADS:
                        elsewhere.setdefault(hint[:3], []).append((hint[3], ref))
                    elif ref[0] == refs.ATOM:
                        self._chunk(key, ref, hint)
            self.ledger.check_atoms(elsewhere, read=True)
        except DAMAGE as error:
            self.find("damage", key, str(error))

    def _chunk(self, key: bytes, ref: bytes, place: Place) -> None:
        held = self._hashes.get(place[1:3], b"")
        if held[32 * place[3] : 32 * place[3] + 32] != ref[1:33]:
            self.find("damage", key, "it leads to values that are missing or others")

    def _compare(self, number: int, named: tuple[int, int], stored: set[bytes]) -> None:
        """Compare the packs that are there with those that its entry names."""
        for kind, first, count in zip((b"V", b"N"), (1, 0), named, strict=True):
            line, ordinals = self._line(kind), range(first, first + count)
            wanted = {rowkinds.pack(line, number, ordinal) for ordinal in ordinals}
            for key in sorted(wanted - stored):
                self.find("damage", key, "it is missing: a pack of an upload")
            for key in sorted(key for key in stored - wanted if key[:1] == kind):
                self.find("unaccounted", key, f"its entry names {count} packs, and not this one")

    def _uses(self, slot: Slot) -> bool:
        """Whether a value has something in a damaged upload; a tree that cannot be read has."""
        try:
            places = [place for _, place in leaves(self.ledger, slot.ref, slot.location)]
        except DAMAGE:
            return True
        lies = [*places, slot.location]
        return any(
            type(p) is tuple and p[0] == rowkinds.UPLOADS and p[1] in self._damaged for p in lies
        )


def _hash_of(ledger: Ledger, data: bytes) -> bytes:
    """The hash of a stored node; that it is the right one is checked with its parent."""
    canonical: bytes = msgspec.msgpack.decode(data)[0]
    return ledger.commit_node(canonical)
