"""Checking a state: each node of its index, and that each value is there and is itself.

Values are opened and hashed, never built. Those of one record are checked together, so that no
record is opened twice for values that lie near each other in the state.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from holdfast.store.journal.ledger import Ledger
from holdfast.store.tree import refs
from holdfast.store.tree.tree import Element, Node

AT_ONCE = 4096
"""Values that wait until their records are read: what bounds the memory."""


def check_values(ledger: Ledger, root: Node, *, read: bool, seen: set[Any] | None = None) -> int:
    """Check every node of an index, and that each value is there (`read`: and is itself).

    `seen` are places of nodes that were checked before and are passed over; new ones are added.
    """
    check = _Check(ledger, read, seen)
    check.tree(root)
    check.settle()
    return check.found


def leaves(ledger: Ledger, ref: bytes, location: Any) -> Iterator[tuple[bytes, Any]]:
    """(ref, place) of every atom that a value is made of."""
    ref = refs.bare(ref)
    if ref[0] != refs.TREE:
        yield ref, location
        return
    trees = ledger.trees
    for element in trees.all(trees.load(location, refs.read_tree(ref)[1])):
        yield from leaves(ledger, element[1], element[2])


class _Check:
    def __init__(self, ledger: Ledger, read: bool, seen: set[Any] | None) -> None:
        self.ledger = ledger
        self.seen = seen
        self.read = read
        self.found = 0
        self.waiting = 0
        self.records: dict[Any, list[tuple[int, bytes]]] = {}
        """(timeline, sequence, ordinal) to (index, ref) of the atoms that must lie there."""

    def tree(self, root: Node) -> None:
        """Take in what a tree holds; loading a node checks it."""
        if self.seen is not None and root.place is not None:
            if root.place in self.seen:
                return
            self.seen.add(root.place)
        if root.level:
            load = self.ledger.trees.load
            for element in root.elements:
                self.tree(load(element[2], element[1]))
            return
        self.leaf(root.elements)
        if self.waiting >= AT_ONCE:
            self.settle()

    def leaf(self, elements: Sequence[Element]) -> None:
        records = self.records
        for _, ref, hint in elements:
            if ref[0] == refs.META:
                ref = refs.read_described(ref)[1]
            if ref[0] == refs.ATOM:
                record = hint[-4:-1]  # behind the entry that wrote a key, if it stands there
                if record in records:
                    records[record].append((hint[-1], ref))
                else:
                    records[record] = [(hint[-1], ref)]
            elif ref[0] != refs.ATOM_INLINE:
                self.inner(refs.bare(ref), hint)
        self.found += len(elements)
        self.waiting += len(elements)

    def inner(self, ref: bytes, hint: Any) -> None:
        """Take in a value that is a tree itself; it counts as what it holds."""
        if ref[0] != refs.TREE:
            return
        if type(hint) is not Node:
            hint = hint[-1] if type(hint[-1]) is Node else hint[-4:]
        self.found -= 1
        self.tree(self.ledger.trees.load(hint, refs.read_tree(ref)[1]))

    def settle(self) -> None:
        """Look at the records of all that waits, in the order in which they are stored."""
        records, self.records, self.waiting = self.records, {}, 0
        self.ledger.check_atoms(records, read=self.read)
