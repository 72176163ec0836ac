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

from bisect import bisect_left, bisect_right
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
_decode_node = msgspec.msgpack.Decoder(tuple[bytes, list[int | tuple[int, ...]]]).decode


class Node(msgspec.Struct, gc=False, eq=False):
    """An immutable node; `place` is None until it is saved.

    The garbage collector knows neither nodes nor, soon, the tuples in them: an index of many keys
    would make it stop everything for long. There is nothing to collect: no node leads to itself.
    """

    level: int
    elements: tuple[Element, ...]
    hash: bytes
    place: Place | None = None
    weight: int = -1

    @property
    def count(self) -> int:
        """Leaf elements below."""
        elements = self.elements
        return sum([e[3] for e in elements]) if self.level else len(elements)

    @property
    def size(self) -> int:
        """Encoded bytes of all that is below."""
        if self.weight < 0:
            elements = self.elements
            self.weight = sum([e[4] for e in elements]) if self.level else leaf_size(elements)
        return self.weight


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

    def make(self, level: int, elements: Sequence[Element], *, indexed: bool) -> Node:
        """A new node of these elements."""
        hash_ = self._commit(_canonical(level, elements, indexed))
        return Node(level, tuple(elements), hash_)

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
            canonical, hints = _decode_node(data)
            if self._commit(canonical) != hash_:
                raise DamagedIndexError("a node does not match its hash")
            elements = _elements(_decode(canonical), [hint or None for hint in hints])
        except (msgspec.DecodeError, ValueError, TypeError, IndexError):
            raise DamagedIndexError("a node cannot be read") from None
        return Node(elements[0], elements[1], hash_, place)

    @staticmethod
    def canonical(node: Node) -> bytes:
        """The bytes that the hash of a node commits to."""
        # Made again rather than kept: nodes wait in memory for long, and most are never saved.
        elements = node.elements
        indexed = bool(elements) and elements[0][0] is not None
        return _canonical(node.level, elements, indexed=indexed)

    @staticmethod
    def pack(node: Node, places: dict[int, Place]) -> bytes:
        """The bytes to store; `places` says where children that have no place yet will lie."""
        hints = [placed(element[2], places) or 0 for element in node.elements]
        return _encode([Trees.canonical(node), hints])

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

    def walk_back(self, root: Node, end: str | None) -> Iterator[Element]:
        """Leaf elements of an index in falling key order, those below `end` (None: all)."""
        elements = root.elements
        last = _child(elements, end) if end is not None else len(elements)
        if root.level == 0:
            yield from reversed(elements[:last])
            return
        for number, element in enumerate(reversed(elements[: last + 1])):
            inside = end if number == 0 else None
            yield from self.walk_back(self.load(element[2], element[1]), inside)

    def all(self, root: Node) -> list[Element]:
        """Every leaf element."""
        if root.level == 0:
            return list(root.elements)
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
        elements = node.elements
        position, last = 0, len(elements) - 1
        while low < high:
            # What sorts behind the last child's last key belongs into that child's end.
            found = min(bisect_left(elements, keys[low], position, key=_first), last)
            builder.keep_all(node.level, elements[position:found])
            key, hash_, hint = elements[found][:3]
            end = high if found == last else bisect_right(keys, key, low, high)
            self._edit(builder, self.load(hint, hash_), edits, keys, low, end)
            low, position = end, found + 1
        builder.keep_all(node.level, elements[position:])

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
                builder.run(elements[position:found], self.last_end(elements) if last else 0)
                position = found
            if position < total and elements[position][0] == key:
                position += 1
            if ref is not None:
                builder.push((key, ref, hint), self.end_of(key, ref))
        if position < total:
            builder.run(elements[position:], self.last_end(elements))

    def last_end(self, elements: Sequence[Element]) -> int:
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
            node.elements = tuple([_settled(element, places) for element in node.elements])
            self._cache.put(places[id(node)], node)


def _settled(element: Element, places: dict[int, Place]) -> Element:
    hint = element[2]
    if type(hint) is Node or (type(hint) is tuple and type(hint[-1]) is Node):
        return (*element[:2], placed(hint, places), *element[3:])
    return element


def _canonical(level: int, elements: Sequence[Element], indexed: bool) -> bytes:
    """The bytes that a node's hash covers."""
    if level == 0:
        keys = [e[0] for e in elements] if elements and elements[0][0] is not None else None
        return _encode([0, keys, [e[1] for e in elements]])
    named, hashes, _, counts, sizes, ends = zip(*elements, strict=True)
    return _encode(
        [level, named if indexed else None, b"".join(hashes), counts, sizes, bytes(ends)]
    )


def placed(hint: Any, places: dict[int, Place]) -> Any:
    """A hint with places instead of nodes."""
    if type(hint) is Node:
        return hint.place or places[id(hint)]
    if type(hint) is tuple and type(hint[-1]) is Node:
        return (*hint[:-1], *(hint[-1].place or places[id(hint[-1])]))
    return hint


def _elements(body: list[Any], hints: Sequence[Any]) -> tuple[int, tuple[Element, ...]]:
    level = body[0]
    if level == 0:
        keys = body[1] if body[1] is not None else [None] * len(body[2])
        return 0, tuple(zip(keys, body[2], hints, strict=True))
    hashes = body[2]
    split = [hashes[n : n + 32] for n in range(0, len(hashes), 32)]
    keys = body[1] if body[1] is not None else [None] * len(split)
    return level, tuple(zip(keys, split, hints, body[3], body[4], body[5], strict=True))


def _child(elements: Sequence[Element], key: str) -> int:
    return bisect_left(elements, key, key=_first)


def _first(element: Element) -> str:
    return element[0]  # type: ignore[no-any-return]
