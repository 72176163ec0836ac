"""What was read or written last: bounded, and shared by all scopes of a store."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from holdfast.store.tree.split import Branch, remembered
from holdfast.store.tree.tree import Node


class AtomCache:
    """Checked plain bytes by place. Decoded anew for each reader, so none can change another's.

    The oldest go first when the bound is reached. Races between threads cost a miss, never a
    wrong answer: an entry is only used if it carries the ref that the reader expects.
    """

    def __init__(self, capacity: int = 6 << 20) -> None:
        self._capacity = capacity
        self._held = 0
        # A plain dict finds its oldest item ever more slowly, the more were removed before it.
        self._items: OrderedDict[Any, tuple[bytes, Any]] = OrderedDict()
        self.hits = 0
        self.misses = 0

    def get(self, key: Any) -> tuple[bytes, Any] | None:
        """(ref, bytes) held under a place."""
        found = self._items.get(key)
        if found is None:
            self.misses += 1
        else:
            self.hits += 1
        return found

    def holds(self, key: Any, ref: bytes) -> bool:
        """Whether a place is held with this ref."""
        found = self._items.get(key)
        return found is not None and found[0] == ref

    def put(self, key: Any, ref: bytes, data: Any) -> None:
        """Hold bytes; what alone would fill an eighth of the cache is not held."""
        weight = _weight(data)
        if weight > self._capacity >> 3:
            return
        if key not in self._items:
            self._held += weight
        self._items[key] = (ref, data)
        while self._held > self._capacity:
            try:
                _, (_, old) = self._items.popitem(last=False)
            except KeyError:
                return  # another thread is making room
            self._held -= _weight(old)

    def clear(self) -> None:
        """Forget everything."""
        self._items.clear()
        self._held = 0


class MemoCache:
    """What long values of keys looked like, so that setting them again compares faster."""

    def __init__(self, capacity: int = 16 << 20) -> None:
        self._capacity = capacity
        self._held = 0
        self._memos: OrderedDict[tuple[int, str], tuple[Branch, int]] = OrderedDict()

    def get(self, scope: int, key: str) -> Branch | None:
        """What a key was set to last."""
        found = self._memos.get((scope, key))
        return found[0] if found else None

    def note(self, scope: int, parts: dict[str, Branch]) -> None:
        """Keep what keys have been set to; those that were set longest ago make room."""
        for key, part in parts.items():
            name = (scope, key)
            self._held -= self._memos.pop(name, (None, 0))[1]
            made = remembered(part)
            if made is not None:
                self._memos[name] = made
                self._held += made[1]
            while self._held > self._capacity and self._memos:
                self._held -= self._memos.popitem(last=False)[1][1]


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

    def scoped(self, scope: int) -> ScopedNodes:
        """The part of the cache that one scope sees."""
        return ScopedNodes(self, scope)

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


class ScopedNodes:
    """A view of the store's node cache for one scope."""

    def __init__(self, shared: NodeCache, scope: int) -> None:
        self._shared = shared
        self._scope = scope

    def get(self, key: Any) -> Node | None:
        """The node of this scope at a place."""
        return self._shared.get((self._scope, key))

    def put(self, key: Any, node: Node) -> None:
        """Hold a node of this scope."""
        self._shared.put((self._scope, key), node)


def _weight(data: Any) -> int:
    if type(data) is list:
        return 300 + 40 * len(data) + sum(map(len, data))
    return len(data) + 300
