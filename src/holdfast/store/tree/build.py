"""Cutting a sequence of elements into the nodes of a tree.

The cut depends on the elements alone: see `trees` for the words. Parts of an old tree whose
elements did not change are taken over whole, without being loaded.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from holdfast.store.tree.tree import Node, Trees


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
