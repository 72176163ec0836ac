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
from dataclasses import dataclass
from itertools import chain, repeat
from operator import itemgetter
from typing import Any, NamedTuple, Protocol

import msgspec

from holdfast.errors import DamagedIndexError
from holdfast.store.names.threads import Breath
from holdfast.store.tree.refs import leaf_size, size_of

FANOUT_BITS = 3
"""A node has 2**3 elements on average: the best compromise of bytes written and depth."""
LONG_KEY = 1024
"""A mapping's key longer than this ends its leaf, which bounds the bytes of a node."""

Key = str | int | None
Place = tuple[int, int, int, int]
Edit = tuple[str, bytes | None, Any]
"""A key, and what becomes of it: (ref, hint), or None if it goes."""

_first = itemgetter(0)

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


class _Cut(NamedTuple):
    """A part of an index in which keys come or go, so that its nodes are cut anew."""

    level: int
    elements: Sequence[Element]
    """With those children replaced already whose keys stay."""
    inside: Sequence[tuple[int, _Cut]]
    """Children, by their place, in which keys come or go."""
    low: int = 0
    high: int = 0
    """Which edits concern a leaf."""


@dataclass(eq=False, repr=False)
class Trees:
    """Makes, reads and edits the trees of one scope.

    `_commit` is the scope's commitment for nodes, `_ends` the keyed hash that decides where
    nodes end, `_fetch` reads the stored bytes of a node by its place. The cache is one for all
    scopes, told apart by their numbers.
    """

    _commit: Callable[[bytes], bytes]
    _ends: Callable[[bytes], bytes]
    _fetch: Callable[[Place], bytes]
    _cache: NodeCache
    _scope: int = 0

    def __post_init__(self) -> None:
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

    def make(
        self, level: int, elements: Sequence[Element], *, indexed: bool, weight: int = -1
    ) -> Node:
        """A new node of these elements; `weight` is its size, if that is known."""
        hash_ = self._commit(_canonical(level, elements, indexed))
        return Node(level, tuple(elements), hash_, None, weight)

    def load(self, hint: Any, hash_: bytes) -> Node:
        """The node that a hint leads to, checked against its hash."""
        if type(hint) is Node:
            return hint
        place = (self._scope, hint)
        node = self._cache.get(place)
        if node is None:
            node = self.unpack(self._fetch(hint), hash_, hint)
            self._cache.put(place, node)
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
        first = _child(root.elements, start) if start else 0
        if root.level == 0:
            yield from root.elements[first:]
            return
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
        elements = list(root.elements)
        for level in reversed(range(root.level)):
            nodes = [self.load(element[2], element[1]) for element in elements]
            if {node.level for node in nodes} != {level}:
                raise DamagedIndexError("a node does not stand on the level below its parent")
            elements = list(chain.from_iterable([node.elements for node in nodes]))
        return elements

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

    def edit(self, root: Node, edits: Sequence[Edit]) -> Node:
        """The index after setting (ref, hint) or removing (None) keys; edits sorted by key."""
        if not edits:
            return root
        made = self._replaced(root, edits, [e[0] for e in edits], 0, len(edits))
        if isinstance(made, Node):
            return made
        builder = Builder(self, indexed=True)
        self._edit(builder, made, edits)
        return builder.finish()

    def _replaced(
        self, node: Node, edits: Sequence[Edit], keys: list[str], low: int, high: int
    ) -> Node | _Cut:
        """The subtree after edits, where all of its keys stay; else what is to be cut anew.

        An index is cut by its keys alone, so that other values change no cut.
        """
        elements: list[Element] = list(node.elements)
        position, last, weight = 0, len(elements) - 1, node.size
        if node.level == 0:
            for edit in edits[low:high]:
                position = bisect_left(elements, edit[0], position, key=_first)
                if edit[1] is None or position > last or elements[position][0] != edit[0]:
                    return _Cut(0, node.elements, (), low, high)
                weight += size_of(edit[1]) - size_of(elements[position][1])
                elements[position] = edit
            return self.make(0, elements, indexed=True, weight=weight)
        inside: list[tuple[int, _Cut]] = []
        while low < high:
            # What sorts behind the last child's last key belongs into that child's end.
            found = min(bisect_left(elements, keys[low], position, key=_first), last)
            key, hash_, hint, count, size, end = elements[found]
            until = high if found == last else bisect_right(keys, key, low, high)
            child = self.load(hint, hash_)
            if child.weight < 0:
                child.weight = size
            changed = self._replaced(child, edits, keys, low, until)
            if isinstance(changed, Node):
                weight += changed.weight - size
                elements[found] = (key, changed.hash, changed, count, changed.weight, end)
            else:
                inside.append((found, changed))
            low, position = until, found + 1
        if inside:
            return _Cut(node.level, elements, inside)
        return self.make(node.level, elements, indexed=True, weight=weight)

    def _edit(self, builder: Builder, cut: _Cut, edits: Sequence[Edit]) -> None:
        if cut.level == 0:
            self._edit_leaf(builder, cut.elements, edits[cut.low : cut.high])
            return
        position = 0
        for found, inner in cut.inside:
            builder.keep_all(cut.level, cut.elements[position:found])
            self._edit(builder, inner, edits)
            position = found + 1
        builder.keep_all(cut.level, cut.elements[position:])

    def _edit_leaf(
        self, builder: Builder, elements: Sequence[Element], edits: Sequence[Edit]
    ) -> None:
        position, total = 0, len(elements)
        for key, ref, hint in edits:
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

    def unsaved(self, root: Node, found: list[Node], breath: Breath) -> None:
        """Add the nodes of a tree that have no place yet, children before parents."""
        if root.place is not None:
            return
        breath()
        for element in root.elements:
            child = element[2]
            if type(child) is tuple:
                child = child[-1]
            if type(child) is Node:
                self.unsaved(child, found, breath)
        found.append(root)

    def own(self, root: Node) -> Node:
        """The same tree with nodes of its own where they are not saved yet.

        A node knows one place. Where another timeline saves those that this one holds, too, this
        one would save trees that lead there, and nobody could tell when that other one is pruned.
        """
        if root.place is not None:
            return root
        elements = tuple([(*e[:2], self._own_hint(e[2]), *e[3:]) for e in root.elements])
        return Node(root.level, elements, root.hash, None, root.weight)

    def _own_hint(self, hint: Any) -> Any:
        if type(hint) is Node:
            return self.own(hint)
        if type(hint) is tuple and type(hint[-1]) is Node:
            return (*hint[:-1], self.own(hint[-1]))
        return hint

    def settle(self, saved: Sequence[Node], places: dict[int, Place]) -> None:
        """After nodes were stored: note their places and let go of their children."""
        for node in saved:
            node.place = places[id(node)]
        for node in saved:
            node.elements = tuple([_settled(element, places) for element in node.elements])
            self._cache.put((self._scope, places[id(node)]), node)


def _settled(element: Element, places: dict[int, Place]) -> Element:
    hint = element[2]
    if type(hint) is Node or (type(hint) is tuple and type(hint[-1]) is Node):
        return (*element[:2], placed(hint, places), *element[3:])
    return element


def _canonical(level: int, elements: Sequence[Element], indexed: bool) -> bytes:
    """The bytes that a node's hash covers."""
    if level == 0:
        keys, refs, _ = zip(*elements, strict=False) if elements else ((None,), (), ())
        return _encode([0, keys if keys[0] is not None else None, refs])
    named, hashes, _, counts, sizes, ends = zip(*elements, strict=False)
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
        keys = body[1] or repeat(None, len(body[2]))
        return 0, tuple(zip(keys, body[2], hints, strict=True))
    hashes = body[2]
    split = [hashes[n : n + 32] for n in range(0, len(hashes), 32)]
    keys = body[1] if body[1] is not None else [None] * len(split)
    return level, tuple(zip(keys, split, hints, body[3], body[4], body[5], strict=True))


def _child(elements: Sequence[Element], key: str) -> int:
    return bisect_left(elements, key, key=_first)


# ---- building -----------------------------------------------------------------------------------
# Cutting a sequence of elements into the nodes of a tree.
#
# The cut depends on the elements alone: the words are above. Parts of an old tree whose
# elements did not change are taken over whole, without being loaded.


class Maker(Protocol):
    """What a builder makes nodes with, and gets those back that it has to look into."""

    empty: Node

    def make(self, level: int, elements: Sequence[Element], *, indexed: bool) -> Node:
        """A new node of these elements; it may have a place already."""

    def load(self, hint: Any, hash_: bytes) -> Node:
        """The node that a hint leads to."""


CAP = 64
"""Most elements of a node, so that no content can make one long."""

Element = tuple[Any, ...]
Hunk = tuple[int, int, Sequence[Element]]
"""(position, how many to remove, what to put there)"""


class Builder:
    """Cuts a stream of elements into nodes, level by level."""

    __slots__ = ("indexed", "made", "open", "tail", "trees")

    def __init__(self, trees: Maker, *, indexed: bool) -> None:
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

    def run(self, elements: Sequence[Element], end: int) -> None:
        """Add leaf elements of which only the last can end anything."""
        while self.tail is not None:
            self._open_tail()
        chunk = self.open[0]
        if len(chunk) + len(elements) < CAP:
            chunk += elements
            if end:
                self.open[0] = []
                self._close(0, chunk, end)
            return
        for element in elements[:-1]:
            self._push(0, element, 0)
        self._push(0, elements[-1], end)

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

    def keep_all(self, level: int, elements: Sequence[Element]) -> None:
        """Take over neighbouring subtrees of one node, of which only the last can end a node."""
        for number, element in enumerate(elements):
            rest = elements[number:] if number else elements
            if self._run_fits(level, rest):
                chunk = self.open[level]
                chunk += rest
                if chunk[-1][5] > level:
                    self.open[level] = []
                    self._close(level, chunk, chunk[-1][5])
                return
            self.keep(level, element)

    def _run_fits(self, level: int, elements: Sequence[Element]) -> bool:
        """Whether subtrees can be added in one go: all whole, and beginning where nodes begin."""
        return (
            self.tail is None
            and len(self.open) > level
            and not any(self.open[:level])
            and len(self.open[level]) + len(elements) < CAP
            and min([element[5] for element in elements]) >= level
        )

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
        hint = node.place or node  # one that is stored already need not be held
        self._push(level + 1, (key, node.hash, hint, node.count, node.size, end), end)

    def _open_tail(self) -> None:
        assert self.tail is not None
        level, element = self.tail
        self.tail = None
        if self._whole(level, element):
            self._push(level, element, element[5])
        else:
            self._unfold(element)

    def _whole(self, level: int, element: Element) -> bool:
        """Whether a subtree would end here whatever followed: by its last element, or by the bound.

        A node that the last leaf filled to the bound is not whole as long as that leaf is not: what
        follows belongs into the leaf first.
        """
        if level <= element[5]:
            return True
        node = self.trees.load(element[2], element[1])
        return len(node.elements) >= CAP and (
            node.level == 0 or self._whole(node.level, node.elements[-1])
        )

    def _unfold(self, element: Element) -> None:
        node = self.trees.load(element[2], element[1])
        if node.level:
            for child in node.elements:
                self.keep(node.level, child)
            return
        self.run(node.elements, element[5])


class Splicer:
    """Feeds a tree to a builder, with ranges replaced on the way."""

    __slots__ = ("builder", "hunks", "next", "skip", "trees")

    def __init__(self, trees: Trees, hunks: Sequence[Hunk]) -> None:
        self.trees = trees
        self.builder = Builder(trees, indexed=False)
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
        """Add a subtree that begins at a position, with what is to be replaced in it."""
        if node.level:
            self._feed_children(node, at)
            return
        elements, after = node.elements, at + len(node.elements)
        position = max(at, self.skip)
        while position < after:
            self.insert(position)
            if self.skip > position:
                position = self.skip
                continue
            following = self.hunks[self.next][0] if self.next < len(self.hunks) else after
            stop = min(following, after)
            end = self.trees.last_end(elements) if stop == after else 0
            self.builder.run(elements[position - at : stop - at], end)
            position = stop

    def _feed_children(self, node: Node, at: int) -> None:
        """Children that stay as they are are taken over together, and not loaded."""
        elements, first = node.elements, 0
        for number, element in enumerate(elements):
            after = at + element[3]
            ahead = self.next == len(self.hunks) or self.hunks[self.next][0] >= after
            if not (ahead and self.skip <= at):
                self.builder.keep_all(node.level, elements[first:number])
                first = number + 1
                if not (ahead and self.skip >= after):  # else removed whole
                    self.feed(self.trees.load(element[2], element[1]), at)
            at = after
        self.builder.keep_all(node.level, elements[first:])


class NodeCache:
    """The nodes used last, of all scopes of a store; bounded by their number of elements.

    Two generations, each of half the capacity: what is used is in the young one, and when that
    is full it becomes the old one, whose nodes go unless they are used again. A list in order of
    use would cost more at every hit than the hit itself.
    """

    def __init__(self, capacity: int = 80_000) -> None:
        self._half = capacity // 2
        self._held = 0
        self._young: dict[Any, Node] = {}
        self._old: dict[Any, Node] = {}

    def get(self, key: Any) -> Node | None:
        """The node, if it is held; then it is among the last to go."""
        node = self._young.get(key)
        if node is None:
            node = self._old.get(key)
            if node is not None:
                self.put(key, node)
        return node

    def put(self, key: Any, node: Node) -> None:
        """Hold a node; those that were not used for long make room."""
        if key not in self._young:
            self._held += len(node.elements) + 1
        self._young[key] = node
        if self._held > self._half:
            self._old, self._young, self._held = self._young, {}, 0

    def clear(self) -> None:
        """Forget everything."""
        self._old, self._young, self._held = {}, {}, 0
