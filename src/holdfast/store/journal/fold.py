"""Working many changes into an index without holding up other threads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from holdfast.store.journal.slot import Slot
from holdfast.store.names.thread_pauses import SHORT, Breath
from holdfast.store.tree.tree import Node, Trees

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


def edits_of(
    overlay: dict[str, Slot | None], settled: Callable[[Slot], Slot]
) -> list[tuple[str, Any, Any]]:
    """An overlay as edits of an index, in key order."""
    found: list[tuple[str, Any, Any]] = []
    for key in sorted(overlay):
        slot = overlay[key]
        if slot is not None:
            slot = settled(slot)
        found.append((key, slot.described(), slot.hint()) if slot else (key, None, None))
    return found
