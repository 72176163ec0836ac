"""Verifying the saved nodes of a scope: each is itself, and leads where it says.

The packs are read once, in order. Children are stored before their parents, so that most links
can be checked at once; the rest (a state taken over from another timeline) at the end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.errors import FormatError, KeyringError, StateIntegrityError
from holdfast.store import refs, rows
from holdfast.store.ledger import Ledger

if TYPE_CHECKING:
    from holdfast.store.verify import _Check

_decode = msgspec.msgpack.Decoder().decode

DAMAGE = (StateIntegrityError, FormatError, KeyringError)
"""What a damaged row leads to: its format or key epoch may be what was hit. A storage that
cannot serve is no damage, and stops the check."""


class NodeCheck:
    """What the saved nodes of one scope really hash to, by their place."""

    def __init__(self, check: _Check, ledger: Ledger) -> None:
        self.check = check
        self.ledger = ledger
        self.hashes: dict[Any, bytes] = {}
        self.packs: set[tuple[int, int]] = set()
        """(timeline, sequence) of the saves that the packs belong to."""
        self._open: list[tuple[Any, bytes, bytes]] = []

    def find(self, kind: str, key: bytes, message: str) -> None:
        """Note a finding in this scope."""
        self.check.find(kind, rows.describe(key), message, str(self.ledger.scope))

    def read(self, timeline: int) -> None:
        """Read all nodes that were saved on a timeline."""
        line = rows.line(b"N", self.ledger.number, timeline)
        low = line
        while page := self.ledger.storage.scan(low, rows.after(line), limit=200):
            for key, row in page:
                self._pack(timeline, key, row)
            low = page[-1][0] + b"\0"

    def _pack(self, timeline: int, key: bytes, row: bytes) -> None:
        sequence, ordinal = rows.sequence_of(key), int.from_bytes(key[14:17], "big")
        self.packs.add((timeline, sequence))
        try:
            for number, data in enumerate(self.ledger.atoms_in(key, row)):
                canonical, hints = _decode(data)
                self.hashes[(timeline, sequence, ordinal, number)] = self.ledger.commit_node(
                    canonical
                )
                self._links(key, _decode(canonical), hints)
        except DAMAGE as error:
            self.find("damage", key, str(error))
        except (msgspec.MsgspecError, ValueError, TypeError, IndexError):
            self.find("damage", key, "a node cannot be read")

    def _links(self, key: bytes, body: list[Any], hints: list[Any]) -> None:
        if body[0]:
            hashes = body[2]
            for number, hint in enumerate(hints):
                self._link(tuple(hint), hashes[32 * number : 32 * number + 32], key)
            return
        for ref, hint in zip(body[2], hints, strict=True):
            if ref[0] >= refs.TREE and refs.is_tree(ref):
                self._link(tuple(hint[-4:]), refs.read_tree(refs.bare(ref))[1], key)

    def _link(self, place: Any, hash_: bytes, key: bytes) -> None:
        found = self.hashes.get(place)
        if found is None:
            self._open.append((place, hash_, key))
        elif found != hash_:
            self.find("damage", key, "a node leads to another node than the one it names")

    def finish(self) -> None:
        """Check the links that were left open."""
        for place, hash_, key in self._open:
            self.expect(place, hash_, key)
        self._open = []

    def expect(self, place: Any, hash_: bytes, key: bytes) -> None:
        """Check that a node lies at a place."""
        if self.hashes.get(place) != hash_:
            self.find("damage", key, "it leads to a node that is missing or another one")
