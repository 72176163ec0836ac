"""Equal content has equal trees, however it came about: built, edited, spliced or saved."""

from __future__ import annotations

import hashlib
import random
from typing import Any

import pytest

from holdfast.store.journal import slot
from holdfast.store.names.threads import Breath
from holdfast.store.tree.tree import CAP, Node, NodeCache, Place, Trees


class Nothing(NodeCache):
    """A cache that holds nothing, so that every node is read again."""

    def get(self, key: Any) -> None:
        """No node is held."""

    def put(self, key: Any, node: Node) -> None:
        """Hold nothing."""


class Kept:
    """Trees whose nodes are stored in a dict."""

    def __init__(self) -> None:
        self.stored: dict[Place, bytes] = {}
        self.trees = Trees(_commit, _ends, self.stored.__getitem__, Nothing())

    def saved(self, root: Node) -> Node:
        """The tree as a reader finds it: nothing but its root is in memory."""
        nodes: list[Node] = []
        self.trees.unsaved(root, nodes, Breath())
        places: dict[int, Place] = {}
        for node in nodes:
            place = places[id(node)] = (0, 0, 0, len(self.stored))
            self.stored[place] = self.trees.pack(node, places)
        self.trees.settle(nodes, places)
        assert root.place is not None
        return self.trees.unpack(self.stored[root.place], root.hash, root.place)


def _commit(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


def _ends(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=8).digest()


def _ref(number: int) -> bytes:
    return b"\0" + number.to_bytes(4, "big")


@pytest.mark.parametrize("save", [False, True], ids=["in memory", "read again"])
@pytest.mark.parametrize("seed", range(4))
def test_an_index_that_is_edited(seed: int, save: bool) -> None:
    chance, kept = random.Random(seed), Kept()
    trees, root = kept.trees, kept.trees.empty
    content: dict[str, bytes] = {}
    for _ in range(25):
        edits: dict[str, bytes | None] = {}
        for _ in range(chance.choice([1, 3, 40, 400])):
            # Few keys and many: those under `x` are so alike that the bound ends their nodes, too.
            key = chance.choice(["", "x" * 1100, "memory/facts/"]) + str(chance.randrange(900))
            edits[key] = None if chance.random() < 0.3 else _ref(chance.randrange(1 << 30))
        for key, ref in edits.items():
            if ref is None:
                content.pop(key, None)
            else:
                content[key] = ref
        ordered = [(key, edits[key], None) for key in sorted(edits)]
        root = slot.fold(trees, root, ordered)
        fresh = trees.edit(trees.empty, [(key, content[key], None) for key in sorted(content)])
        assert root.hash == fresh.hash
        assert [element[:2] for element in trees.walk(root)] == sorted(content.items())
        if save and content:
            root = kept.saved(root)


@pytest.mark.parametrize("save", [False, True], ids=["in memory", "read again"])
@pytest.mark.parametrize("kinds", [1, 3, 1 << 30], ids=["all equal", "repeating", "all different"])
def test_a_list_that_is_spliced(kinds: int, save: bool) -> None:
    chance, kept = random.Random(kinds), Kept()
    trees = kept.trees

    def some(most: int) -> list[tuple[None, bytes, None]]:
        return [(None, _ref(chance.randrange(kinds)), None) for _ in range(chance.randint(0, most))]

    content = some(3000)
    root = trees.build(content)
    for _ in range(40):
        hunks, position, after = [], 0, []
        for _ in range(chance.randint(1, 12)):
            low = chance.randint(position, len(content))
            remove = min(chance.choice([0, 1, CAP, 300]), len(content) - low)
            new = some(chance.choice([0, 2, 90]))
            hunks.append((low, remove, new))
            after += content[position:low] + new
            position = low + remove
        content = after + content[position:]
        root = trees.splice(root, hunks)
        assert root.hash == trees.build(content).hash
        assert trees.all(root) == content
        if save and content:
            root = kept.saved(root)


@pytest.mark.parametrize("level", [1, 2])
def test_a_list_whose_last_leaf_fills_a_node_to_the_bound(level: int) -> None:
    """What is appended belongs into that leaf, though the node above it has all it can have."""
    trees = Trees(_commit, lambda ref: ref[1:], lambda _: b"", Nothing())
    # An element ends so many levels as its hash, here its own number, ends with times three zeros.
    plain, ending, above = [(None, _ref(1 << 3 * ended), None) for ended in (0, level, level + 1)]
    below = [plain, ending]
    content = [plain, above, *below * (CAP - 1), plain]
    root = trees.build(content)
    for more in ([plain], below, below * CAP):
        content = content + more
        root = trees.splice(root, [(len(content) - len(more), 0, more)])
        assert root.hash == trees.build(content).hash
