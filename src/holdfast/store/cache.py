"""What was read or written last: bounded, and shared by all scopes of a store."""

from __future__ import annotations

from collections import OrderedDict
from contextlib import suppress
from typing import Any

from holdfast.store.trees import Node


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


class NodeCache:
    """The nodes used last, of all scopes of a store; bounded by their number of elements."""

    def __init__(self, capacity: int = 80_000) -> None:
        self._capacity = capacity
        self._held = 0
        self._nodes: OrderedDict[Any, Node] = OrderedDict()

    def scoped(self, scope: int) -> ScopedNodes:
        """The part of the cache that one scope sees."""
        return ScopedNodes(self, scope)

    def get(self, key: Any) -> Node | None:
        """The node, if it is held; then it is the last to go."""
        node = self._nodes.get(key)
        if node is not None:
            with suppress(KeyError):  # another thread may have made room meanwhile
                self._nodes.move_to_end(key)
        return node

    def put(self, key: Any, node: Node) -> None:
        """Hold a node; those that were not used for longest make room."""
        nodes = self._nodes
        if key not in nodes:
            self._held += len(node.elements) + 1
        nodes[key] = node
        while self._held > self._capacity and nodes:
            try:
                _, old = nodes.popitem(last=False)
            except KeyError:
                return  # another thread is making room
            self._held -= len(old.elements) + 1

    def clear(self) -> None:
        """Forget everything."""
        self._nodes.clear()
        self._held = 0


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
        return 300 + sum(len(part) + 40 for part in data)
    return len(data) + 300
