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

from holdfast.errors import DamagedRecordError
from holdfast.store.refs import element_size

FANOUT_BITS = 3
"""A node has 2**3 elements on average: the best compromise of bytes written and depth."""
CAP = 64
"""Most elements of a node, so that no content can make one long."""
LONG_KEY = 1024
"""A mapping's key longer than this ends its leaf, which bounds the bytes of a node."""

Key = str | int | None
Place = tuple[int, int, int, int]
Element = tuple[Any, ...]
Hunk = tuple[int, int, Sequence[Element]]
"""(position, how many to remove, what to put there)"""

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder().decode


class Node:
    """An immutable node; `place` is None until it is saved."""

    __slots__ = ("canonical", "count", "elements", "hash", "level", "place", "size")

    def __init__(self, level: int, elements: list[Element], canonical: bytes, hash_: bytes) -> None:
        self.level = level
        self.elements = elements
        self.canonical: bytes | None = canonical
        self.hash = hash_
        self.place: Place | None = None
        if level:
            self.count: int = sum([e[3] for e in elements])
            self.size: int = sum([e[4] for e in elements])
        else:
            self.count = len(elements)
            self.size = sum([element_size(e[0], e[1]) for e in elements])


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
        if level == 0:
            keys = [e[0] for e in elements] if elements and elements[0][0] is not None else None
            body: list[Any] = [0, keys, [e[1] for e in elements]]
        else:
            body = [
                level,
                [e[0] for e in elements] if indexed else None,
                b"".join([e[1] for e in elements]),
                [e[3] for e in elements],
                [e[4] for e in elements],
                bytes([e[5] for e in elements]),
            ]
        canonical = _encode(body)
        return Node(level, elements, canonical, self._commit(canonical))

    def load(self, hint: Any, hash_: bytes) -> Node:
        """The node that a hint leads to, checked against its hash."""
        if type(hint) is Node:
            return hint
        node = self._cache.get(hint)
        if node is None:
            node = self.unpack(self._fetch(hint), hash_, hint)
            self._cache.put(hint, node)
        elif node.hash != hash_:
            raise DamagedRecordError("a node is not the one that its parent names")
        return node

    def unpack(self, data: bytes, hash_: bytes, place: Place) -> Node:
        """The node stored as `data`, checked against its hash."""
        try:
            canonical, hints = _decode(data)
            if self._commit(canonical) != hash_:
                raise DamagedRecordError("a node does not match its hash")
            elements = _elements(_decode(canonical), [_hint(h) for h in hints])
        except (msgspec.DecodeError, ValueError, TypeError, IndexError):
            raise DamagedRecordError("a node cannot be read") from None
        node = Node(elements[0], elements[1], canonical, hash_)
        node.canonical = None
        node.place = place
        return node

    @staticmethod
    def pack(node: Node, places: dict[int, Place]) -> bytes:
        """The bytes to store; `places` says where children that have no place yet will lie."""
        return _encode([node.canonical, [placed(e[2], places) or 0 for e in node.elements]])

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
        builder = _Builder(self, indexed=False)
        for element in elements:
            builder.push(element, self.end_of(element[0], element[1]))
        return builder.finish()

    def splice(self, root: Node, hunks: Sequence[Hunk]) -> Node:
        """The tree after replacing ranges by position; hunks are in order and apart."""
        splicer = _Splicer(self, hunks)
        splicer.feed(root, 0)
        splicer.insert(root.count)
        return splicer.builder.finish()

    def edit(self, root: Node, edits: Sequence[tuple[str, bytes | None, Any]]) -> Node:
        """The index after setting (ref, hint) or removing (None) keys; edits sorted by key."""
        if not edits:
            return root
        builder = _Builder(self, indexed=True)
        keys = [e[0] for e in edits]
        self._edit(builder, root, edits, keys, 0, len(edits))
        return builder.finish()

    def _edit(
        self,
        builder: _Builder,
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
        builder: _Builder,
        node: Node,
        edits: Sequence[tuple[str, bytes | None, Any]],
        low: int,
        high: int,
    ) -> None:
        elements = node.elements
        position, total = 0, len(elements)
        while position < total or low < high:
            if low < high and (position == total or edits[low][0] <= elements[position][0]):
                key, ref, hint = edits[low]
                if position < total and elements[position][0] == key:
                    position += 1
                if ref is not None:
                    builder.push((key, ref, hint), self.end_of(key, ref))
                low += 1
            else:
                element = elements[position]
                position += 1
                # Inside a leaf only the last element can end anything.
                end = self.end_of(element[0], element[1]) if position == total else 0
                builder.push(element, end)

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
            node.canonical = None
            self._cache.put(places[id(node)], node)


def placed(hint: Any, places: dict[int, Place]) -> Any:
    """A hint with places instead of nodes."""
    if type(hint) is Node:
        return hint.place or places[id(hint)]
    if type(hint) is tuple and type(hint[-1]) is Node:
        return (*hint[:-1], *(hint[-1].place or places[id(hint[-1])]))
    return hint


class _Builder:
    """Cuts a stream of elements into nodes, level by level."""

    __slots__ = ("indexed", "made", "open", "tail", "trees")

    def __init__(self, trees: Trees, *, indexed: bool) -> None:
        self.trees = trees
        self.indexed = indexed
        self.open: list[list[Element]] = [[]]
        self.made: list[int] = [0]
        # The old tree's right edge ended because nothing followed. It can be taken over as it
        # is only if nothing follows now either, so it waits here until that is known.
        self.tail: tuple[int, Element] | None = None

    def push(self, element: Element, end: int) -> None:
        """Add a leaf element."""
        while self.tail is not None:
            self._open_tail()
        self._push(0, element, end)

    def keep(self, level: int, element: Element) -> None:
        """Take over a whole subtree, where the levels below begin afresh here."""
        while self.tail is not None:
            self._open_tail()
        while len(self.open) <= level:
            self.open.append([])
            self.made.append(0)
        for below in range(level):
            if self.open[below]:
                self._unfold(element)
                return
        if element[5] >= level:
            self._push(level, element, element[5])
        else:
            self.tail = (level, element)

    def finish(self) -> Node:
        """The root of all that was added."""
        if self.tail is not None:
            level, element = self.tail
            self.tail = None
            self._push(level, element, element[5])
        level = 0
        while any(self.open[n] or self.made[n] for n in range(level + 1, len(self.open))):
            chunk = self.open[level]
            if chunk:
                self.open[level] = []
                self._close(level, chunk, chunk[-1][5] if level else 0)
            level += 1
        chunk = self.open[level]
        if not chunk:
            return self.trees.empty
        if level and len(chunk) == 1:
            root = self.trees.load(chunk[0][2], chunk[0][1])
        else:
            root = self.trees.make(level, chunk, indexed=self.indexed)
        while root.level and len(root.elements) == 1:
            root = self.trees.load(root.elements[0][2], root.elements[0][1])
        return root

    def _push(self, level: int, element: Element, end: int) -> None:
        chunk = self.open[level]
        chunk.append(element)
        if end > level or len(chunk) >= CAP:
            self.open[level] = []
            self._close(level, chunk, end)

    def _close(self, level: int, chunk: list[Element], end: int) -> None:
        node = self.trees.make(level, chunk, indexed=self.indexed)
        self.made[level] += 1
        if level + 1 == len(self.open):
            self.open.append([])
            self.made.append(0)
        key = chunk[-1][0] if self.indexed else None
        self._push(level + 1, (key, node.hash, node, node.count, node.size, end), end)

    def _open_tail(self) -> None:
        assert self.tail is not None
        level, element = self.tail
        self.tail = None
        node = self.trees.load(element[2], element[1])
        if len(node.elements) >= CAP:
            self._push(level, element, element[5])  # ended by the bound, so it is whole
        else:
            self._unfold(element)

    def _unfold(self, element: Element) -> None:
        node = self.trees.load(element[2], element[1])
        if node.level:
            for child in node.elements:
                self.keep(node.level, child)
            return
        final = len(node.elements) - 1
        for number, leaf in enumerate(node.elements):
            self._push(0, leaf, element[5] if number == final else 0)


class _Splicer:
    """Feeds a tree to a builder, with ranges replaced on the way."""

    __slots__ = ("builder", "hunks", "next", "skip", "trees")

    def __init__(self, trees: Trees, hunks: Sequence[Hunk]) -> None:
        self.trees = trees
        self.builder = _Builder(trees, indexed=False)
        self.hunks = hunks
        self.next = 0
        self.skip = 0  # elements before this position are removed

    def insert(self, position: int) -> None:
        """Put in what belongs before `position`, and note what is removed from there on."""
        while self.next < len(self.hunks) and self.hunks[self.next][0] == position:
            _, remove, new = self.hunks[self.next]
            for element in new:
                self.builder.push(element, self.trees.end_of(element[0], element[1]))
            self.skip = position + remove
            self.next += 1

    def feed(self, node: Node, at: int) -> None:
        if node.level:
            for element in node.elements:
                self._feed_child(node.level, element, at)
                at += element[3]
            return
        final = len(node.elements) - 1
        for number, element in enumerate(node.elements):
            self.insert(at)
            if at >= self.skip:
                end = self.trees.end_of(element[0], element[1]) if number == final else 0
                self.builder.push(element, end)
            at += 1

    def _feed_child(self, level: int, element: Element, at: int) -> None:
        after = at + element[3]
        if self.next == len(self.hunks) or self.hunks[self.next][0] >= after:
            if self.skip >= after:
                return  # removed whole: not even loaded
            if self.skip <= at:
                self.builder.keep(level, element)
                return
        self.feed(self.trees.load(element[2], element[1]), at)


def _hint(stored: Any) -> Any:
    return None if stored == 0 else tuple(stored)


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
