"""What a timeline knows of a key."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import msgspec

from holdfast.store.journal.declared import PREFIX
from holdfast.store.journal.lifetime import NONE, Meta, read_meta
from holdfast.store.names.threads import SHORT, Breath
from holdfast.store.tree import refs
from holdfast.store.tree.difference import tree_changes
from holdfast.store.tree.tree import Element, Node, Trees


class Slot(msgspec.Struct, gc=False, eq=False):
    """What an overlay says of a key: what its value is, where it lies, which entry wrote it."""

    ref: bytes
    location: Any
    timeline: int
    sequence: int
    tail: tuple[Element, ...] | None = None
    """Items appended to a list since its tree was made."""
    meta: bytes = b""
    """What else is known of the key: see `journal.lifetime`."""

    def described(self) -> bytes:
        """The ref that stands in the index."""
        return refs.described(self.meta, self.ref) if self.meta else self.ref

    def over(self, now: int) -> bool:
        """Whether the key has expired."""
        return bool(self.meta) and read_meta(self.meta).over(now)

    def with_meta(self, meta: bytes) -> Slot:
        """The same value under other terms; it keeps its version."""
        return Slot(self.ref, self.location, self.timeline, self.sequence, self.tail, meta)

    def hint(self) -> Any:
        """The hint that stands beside the ref in the index."""
        at = (self.timeline, self.sequence)
        location = self.location
        if location is None:
            return at
        if type(location) is Node:
            return (*at, location)
        if self.ref[0] == refs.ATOM and location[:2] == at:
            return (*at, *location[2:])
        return (*at, *location)

    def size(self) -> int:
        """Encoded bytes of the value, near enough."""
        return refs.size_of(self.ref) + sum(refs.size_of(item[1]) for item in self.tail or ())

    def length(self) -> int | None:
        """Number of items, if it is a list kept as a tree."""
        if self.ref[0] != refs.TREE or self.ref[1] != refs.LIST:
            return None
        return refs.read_tree(self.ref)[2] + (len(self.tail) if self.tail else 0)


def meta_of(slot: Slot | None) -> Meta:
    """What is known of a key besides its value."""
    return read_meta(slot.meta) if slot is not None else NONE


def ref_of(slot: Slot | None) -> bytes | None:
    """What a key's value is committed to, if it has one."""
    return slot.ref if slot is not None else None


def said_of(slot: Slot | None) -> bytes | None:
    """All that an index says of a key, apart from which entry wrote it."""
    return slot.described() if slot is not None else None


def slots_in(nodes: Iterable[Node]) -> Iterator[dict[str, bytes]]:
    """The keys in each leaf among some nodes, with what is known of them besides their values.

    Fields of mappings look like keys here; who asks must not mind.
    """
    for node in nodes:
        if node.level == 0:
            yield {
                key: refs.read_described(ref)[0] if ref[0] == refs.META else b""
                for key, ref, *_ in node.elements
                if type(key) is str and key
            }


def slot_of(element: Element) -> Slot:
    """The slot that an index element describes."""
    _, ref, hint = element
    location: Any = hint[2:]
    if not location:
        location = None
    elif len(location) == 1:
        location = location[0]
    elif len(location) == 2:
        location = hint
    if ref[0] == refs.META:
        meta, ref = refs.read_described(ref)
        return Slot(ref, location, hint[0], hint[1], None, meta)
    return Slot(ref, location, hint[0], hint[1])


# ---- fold ---------------------------------------------------------------------------------------
# Working many changes into an index without holding up other threads.


SLICE = 64
"""Keys that are folded into a tree without a pause: some 2 or 3 ms."""


def fold(trees: Trees, root: Node, edits: list[tuple[str, bytes | None, Any]]) -> Node:
    """The index after edits in key order, made in slices that share few nodes.

    Between two slices the interpreter is left to other threads for a moment.
    """
    breath = Breath(SHORT)
    for start in range(0, len(edits), SLICE):
        breath()
        root = trees.edit(root, edits[start : start + SLICE])
    return root


def edit_of(key: str, slot: Slot | None) -> tuple[str, bytes | None, Any]:
    """What an overlay says of a key, as an edit of an index."""
    return (key, slot.described(), slot.hint()) if slot is not None else (key, None, None)


class Kept(NamedTuple):
    """A state to return to, with the sticky keys of now."""

    root: Node
    prefixes: tuple[str, ...]
    """What was left alone; empty if there nothing differs."""
    keys: tuple[str, ...]
    """Sticky keys that differ from what they were then, without those of declarations."""


def keep_sticky(trees: Trees, then: Node, now: Node, prefixes: tuple[str, ...]) -> Kept:
    """The index of then with the keys of now under some prefixes."""
    edits = [
        (key, after[1] if after else None, after[2] if after else None)
        for prefix in prefixes
        for key, _, after in tree_changes(trees, then, now, prefix)
    ]
    if not edits:
        return Kept(then, (), ())
    keys = tuple(key for key, _, _ in edits if not key.startswith(PREFIX))
    return Kept(fold(trees, then, edits), prefixes, keys)
