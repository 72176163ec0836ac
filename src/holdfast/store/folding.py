"""Working many changes into an index without holding up other threads."""

from __future__ import annotations

import threading
from time import sleep
from typing import Any

from holdfast.store.trees import Node, Trees

SLICE = 64
"""Keys that are folded into a tree without a pause: some 3 ms."""
PAUSE = 0.0001


def fold(trees: Trees, root: Node, edits: list[tuple[str, bytes | None, Any]]) -> Node:
    """The index after edits in key order, made in slices that share few nodes.

    Between two slices the interpreter is left to other threads for a moment: an event loop
    would otherwise wait until it is taken away from this thread, each time anew.
    """
    for start in range(0, len(edits), SLICE):
        if start and threading.active_count() > 1:
            sleep(PAUSE)
        root = trees.edit(root, edits[start : start + SLICE])
    return root
