"""The one structure for everything long: a scope's index, and lists, mappings and bytes.

A tree is a sequence of elements cut into nodes. What ends a node follows from a keyed hash
of the element (of its key, where it has one) and a hard bound counted from the last end, so
equal content has equal nodes and an equal root however it came about. Nodes are never
changed: an edit makes new nodes along the changed paths and shares the rest.

Words used here:
- element: a leaf's `(key, ref, hint)`; an inner node's `(last key, child's hash, hint, count,
  size, end)`. Only indexes keep keys in inner nodes; lists have none at all.
- ref: the canonical bytes that say what a value is (see `refs.py`). Hashes cover refs.
- hint: where it lies. Never hashed: what a hint leads to is checked against the hash.
- end: how many levels an element closes, from its keyed hash.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Protocol

import msgspec

from holdfast.errors import DamagedIndexError
from holdfast.store.building import Builder, Element, Hunk, Splicer
from holdfast.store.refs import leaf_size

FANOUT_BITS = 3
"""A node has 2**3 elements on average: the best compromise of bytes written and depth."""
LONG_KEY = 1024
"""A mapping's key longer than this ends its leaf, which bounds the bytes of a node."""

Key = str | int | None
Place = tuple[int, int, int, int]

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder().decode
_decode_stored = msgspec.msgpack.Decoder(tuple[bytes, list[tuple[int, ...] | int]]).decode
"""The canonical form of a node, and its hints; 0 stands for none."""


class Node:
    """An immutable node; `place` is None until it is saved."""

    __slots__ = ("_size", "count", "elements", "hash", "level", "place")

    def __init__(self, level: int, elements: list[Element], hash_: bytes) -> None:
        self.level = level
        self.elements = elements
        self.hash = hash_
        self.place: Place | None = None
        self.count: int = sum([e[3] for e in elements]) if level else len(elements)
        self._size = -1

    @property
    def size(self) -> int:
        """Encoded bytes of all that is below."""
        if self._size < 0:
            elements = self.elements
            self._size = sum([e[4] for e in elements]) if self.level else leaf_size(elements)
        return self._size


class Nodes(Protocol):
    """Where nodes that were read or saved are kept."""

    def get(self, key: Any) -> Node | None:
        """The node at a place, if it is held."""

    def put(self, key: Any, node: Node) -> None:
        """Hold the node at a place."""


class Trees:
    """Makes, reads and edits the trees of one scope.

    `commit` is the scope's commitment for nodes, `ends` the keyed hash that decides where
    nodes end, `fetch` reads the stored bytes of a node by its place.
    """

    def __init__(
        self,
        commit: Callable[[bytes], bytes],
        ends: Callable[[bytes], bytes],
        fetch: Callable[[Place], bytes],
        cache: Nodes,
    ) -> None:
        self._commit = commit
        self._ends = ends
        self._fetch = fetch
        self._cache = cache
        self.empty = self.make(0, [], indexed=False)

    # nodes

    def end_of(self, key: Key, ref: bytes) -> int:
        """How many levels this element closes."""
        if key is None:
            data = ref
        elif type(key) is str:
            data = key.encode("utf-8", "surrogatepass")
        else:
            data = b"\0" + str(key).encode()
        number = int.from_bytes(self._ends(data), "big")
        end = ((number & -number).bit_length() - 1) // FANOUT_BITS if number else 20
        if end == 0 and len(data) > LONG_KEY and key is not None:
            return 1
        return end

    def make(self, level: int, elements: list[Element], *, indexed: bool) -> Node:
        """A new node of these elements."""
        return Node(level, elements, self._commit(_canonical(level, elements, indexed)))

    def load(self, hint: Any, hash_: bytes) -> Node:
        """The node that a hint leads to, checked against its hash."""
        if type(hint) is Node:
            return hint
        node = self._cache.get(hint)
        if node is None:
            node = self.unpack(self._fetch(hint), hash_, hint)
            self._cache.put(hint, node)
        elif node.hash != hash_:
            raise DamagedIndexError("a node is not the one that its parent names")
        return node

    def unpack(self, data: bytes, hash_: bytes, place: Place) -> Node:
        """The node stored as `data`, checked against its hash."""
        try:
            canonical, hints = _decode_stored(data)
            if self._commit(canonical) != hash_:
                raise DamagedIndexError("a node does not match its hash")
            elements = _elements(_decode(canonical), [h or None for h in hints])
        except (msgspec.DecodeError, ValueError, TypeError, IndexError):
            raise DamagedIndexError("a node cannot be read") from None
        node = Node(elements[0], elements[1], hash_)
        node.place = place
        return node

    @staticmethod
    def pack(node: Node, places: dict[int, Place]) -> bytes:
        """The bytes to store; `places` says where children that have no place yet will lie."""
        elements = node.elements
        # Made again rather than kept: nodes wait in memory for long, and most are never saved.
        canonical = _canonical(node.level, elements, indexed=elements[0][0] is not None)
        return _encode([canonical, [placed(e[2], places) or 0 for e in elements]])

    # reading

    def find(self, root: Node, key: str) -> Element | None:
        """The element of an index under a key."""
        node = root
        while node.level:
            position = _child(node.elements, key)
            if position == len(node.elements):
                return None
            element = node.elements[position]
            node = self.load(element[2], element[1])
        position = _child(node.elements, key)
        if position < len(node.elements) and node.elements[position][0] == key:
            return node.elements[position]
        return None

    def walk(self, root: Node, start: str = "") -> Iterator[Element]:
        """Leaf elements of an index in key order from `start` on (or of a list, all)."""
        if root.level == 0:
            first = _child(root.elements, start) if start else 0
            yield from root.elements[first:]
            return
        first = _child(root.elements, start) if start else 0
        for number, element in enumerate(root.elements[first:]):
            yield from self.walk(self.load(element[2], element[1]), "" if number else start)

    def all(self, root: Node) -> list[Element]:
        """Every leaf element."""
        if root.level == 0:
            return root.elements[:]
        found: list[Element] = []
        for element in root.elements:
            found += self.all(self.load(element[2], element[1]))
        return found

    def slice(self, root: Node, low: int, high: int) -> Iterator[Element]:
        """Leaf elements low..high by position."""
        if low >= high:
            return
        if root.level == 0:
            yield from root.elements[max(low, 0) : high]
            return
        at = 0
        for element in root.elements:
            after = at + element[3]
            if after > low:
                if at >= high:
                    return
                yield from self.slice(self.load(element[2], element[1]), low - at, high - at)
            at = after

    def nodes(self, root: Node) -> Iterator[Node]:
        """Every node of a tree, parents first; loads them one after the other."""
        yield root
        if root.level:
            for element in root.elements:
                yield from self.nodes(self.load(element[2], element[1]))

    # making and editing

    def build(self, elements: Iterable[Element]) -> Node:
        """A tree of a sequence of elements."""
        builder = Builder(self, indexed=False)
        for element in elements:
            builder.push(element, self.end_of(element[0], element[1]))
        return builder.finish()

    def splice(self, root: Node, hunks: Sequence[Hunk]) -> Node:
        """The tree after replacing ranges by position; hunks are in order and apart."""
        splicer = Splicer(self, hunks)
        splicer.feed(root, 0)
        splicer.insert(root.count)
        return splicer.builder.finish()

    def edit(self, root: Node, edits: Sequence[tuple[str, bytes | None, Any]]) -> Node:
        """The index after setting (ref, hint) or removing (None) keys; edits sorted by key."""
        if not edits:
            return root
        builder = Builder(self, indexed=True)
        keys = [e[0] for e in edits]
        self._edit(builder, root, edits, keys, 0, len(edits))
        return builder.finish()

    def _edit(
        self,
        builder: Builder,
        node: Node,
        edits: Sequence[tuple[str, bytes | None, Any]],
        keys: list[str],
        low: int,
        high: int,
    ) -> None:
        if node.level == 0:
            self._edit_leaf(builder, node, edits, low, high)
            return
        last = len(node.elements) - 1
        for number, element in enumerate(node.elements):
            # What sorts behind the last child's last key belongs into that child's end.
            end = high if number == last else _after(keys, element[0], low, high)
            if end == low:
                builder.keep(node.level, element)
            else:
                child = self.load(element[2], element[1])
                self._edit(builder, child, edits, keys, low, end)
                low = end

    def _edit_leaf(
        self,
        builder: Builder,
        node: Node,
        edits: Sequence[tuple[str, bytes | None, Any]],
        low: int,
        high: int,
    ) -> None:
        elements = node.elements
        position, total = 0, len(elements)
        for key, ref, hint in edits[low:high]:
            found = bisect_left(elements, key, position, key=_first)
            if found > position:
                last = found == total
                builder.run(elements[position:found], self._last_end(elements) if last else 0)
                position = found
            if position < total and elements[position][0] == key:
                position += 1
            if ref is not None:
                builder.push((key, ref, hint), self.end_of(key, ref))
        if position < total:
            builder.run(elements[position:], self._last_end(elements))

    def _last_end(self, elements: list[Element]) -> int:
        """Inside a leaf only the last element can end anything."""
        return self.end_of(elements[-1][0], elements[-1][1])

    # saving

    def unsaved(self, root: Node, found: list[Node]) -> None:
        """Add the nodes of a tree that have no place yet, children before parents."""
        if root.place is not None:
            return
        for element in root.elements:
            child = element[2]
            if type(child) is tuple:
                child = child[-1]
            if type(child) is Node:
                self.unsaved(child, found)
        found.append(root)

    def settle(self, saved: Sequence[Node], places: dict[int, Place]) -> None:
        """After nodes were stored: note their places and let go of their children."""
        for node in saved:
            node.place = places[id(node)]
        for node in saved:
            elements = node.elements
            for number, element in enumerate(elements):
                hint = element[2]
                if type(hint) is Node or (type(hint) is tuple and type(hint[-1]) is Node):
                    elements[number] = (*element[:2], placed(hint, places), *element[3:])
            self._cache.put(places[id(node)], node)


def _canonical(level: int, elements: list[Element], indexed: bool) -> bytes:
    """The bytes that a node's hash covers."""
    if level == 0:
        keys = [e[0] for e in elements] if elements and elements[0][0] is not None else None
        return _encode([0, keys, [e[1] for e in elements]])
    return _encode(
        [
            level,
            [e[0] for e in elements] if indexed else None,
            b"".join([e[1] for e in elements]),
            [e[3] for e in elements],
            [e[4] for e in elements],
            bytes([e[5] for e in elements]),
        ]
    )


def placed(hint: Any, places: dict[int, Place]) -> Any:
    """A hint with places instead of nodes."""
    if type(hint) is Node:
        return hint.place or places[id(hint)]
    if type(hint) is tuple and type(hint[-1]) is Node:
        return (*hint[:-1], *(hint[-1].place or places[id(hint[-1])]))
    return hint


def _elements(body: list[Any], hints: list[Any]) -> tuple[int, list[Element]]:
    level = body[0]
    if level == 0:
        keys = body[1] if body[1] is not None else [None] * len(body[2])
        return 0, list(zip(keys, body[2], hints, strict=True))
    hashes = body[2]
    split = [hashes[n : n + 32] for n in range(0, len(hashes), 32)]
    keys = body[1] if body[1] is not None else [None] * len(split)
    return level, list(zip(keys, split, hints, body[3], body[4], body[5], strict=True))


def _child(elements: list[Element], key: str) -> int:
    return bisect_left(elements, key, key=_first)


def _first(element: Element) -> str:
    return element[0]  # type: ignore[no-any-return]


def _after(keys: list[str], key: str, low: int, high: int) -> int:
    """The first edit behind `key`."""
    while low < high:
        middle = (low + high) // 2
        if keys[middle] <= key:
            low = middle + 1
        else:
            high = middle
    return low
