"""A range of keys, in either direction, of an index and what changed."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from holdfast.store.journal.save import read_slot
from holdfast.store.journal.slot import Slot, slot_of
from holdfast.store.names.scope import SCOPED_LENGTH
from holdfast.store.tree.tree import Node, Trees

if TYPE_CHECKING:
    from holdfast.store.journal.timeline import Timeline

Found = tuple[str, Any]
"""A key, and what is known of it in whatever form that is held: see `slot_from`."""


def behind(prefix: str) -> str:
    """The least text that sorts behind all that begin with one; behind all keys if it is empty."""
    text = prefix.rstrip("\U0010ffff")
    if not text:
        return "\U0010ffff" * (SCOPED_LENGTH + 1)
    last = ord(text[-1]) + 1
    return text[:-1] + chr(last if last != 0xD800 else 0xE000)


def timeline_range(
    timeline: Timeline, low: str, high: str, *, reverse: bool = False
) -> Iterator[Found]:
    """Keys from `low` to below `high`, of one moment."""
    with timeline.lock:
        base = timeline.root()
        below, above = timeline.order
        changed = below.within(timeline.stored, low, high)
        changed |= above.within(timeline.overlay, low, high)
    return _merged(timeline.ledger.trees, base, changed, low, high, reverse)


def staged_range(
    timeline: Timeline, base: Node | None, overlay: Mapping[str, Any], low: str, high: str
) -> Iterator[Found]:
    """Keys from `low` to below `high` where entries are being built: an overlay on the timeline's
    own, or on an index in place of it."""
    with timeline.lock:
        if base is not None:
            changed = _within((overlay,), low, high)
        else:
            base = timeline.root()
            changed = _within((timeline.stored, timeline.overlay, overlay), low, high)
    return _merged(timeline.ledger.trees, base, changed, low, high, False)


def count_below(trees: Trees, root: Node, prefix: str) -> int:
    """How many keys of an index begin with a text."""
    return _below(trees, root, behind(prefix)) - _below(trees, root, prefix)


def _below(trees: Trees, node: Node, key: str) -> int:
    """How many keys sort before one."""
    count = 0
    while True:
        position: int = bisect_left(node.elements, key, key=itemgetter(0))
        if node.level == 0:
            return count + position
        count += sum([int(element[3]) for element in node.elements[:position]])
        if position == len(node.elements):
            return count
        node = trees.load(node.elements[position][2], node.elements[position][1])


def slot_from(found: Found) -> Slot:
    """The slot of what a range gave."""
    key, held = found
    if type(held) is Slot:
        return held
    return slot_of(read_slot(key, held) if type(held) is bytes else held)


def _within(layers: Iterable[Mapping[str, Any]], low: str, high: str) -> dict[str, Any]:
    """What layers, lowest first, say of the keys of a range; what is removed is None or empty."""
    changed: dict[str, Any] = {}
    for layer in layers:
        changed |= {key: held for key, held in layer.items() if low <= key < high}
    return changed


class KeyOrder:
    """The keys of a layer in order: a layer gets more keys, or another takes its place."""

    __slots__ = ("_keys", "_layer")

    def __init__(self) -> None:
        self._layer: Mapping[str, Any] = {}
        self._keys: list[str] = []

    def within(self, layer: Mapping[str, Any], low: str, high: str) -> dict[str, Any]:
        """What the layer says of the keys of a range."""
        if layer is not self._layer:
            self._layer, self._keys = layer, []
        keys = self._keys
        if len(keys) != len(layer):
            keys += islice(layer, len(keys), None)  # new ones come last, and sorting is soon done
            keys.sort()
        found = keys[bisect_left(keys, low) : bisect_left(keys, high)]
        return {key: layer[key] for key in found}


def _merged(
    trees: Trees, base: Node, changed: dict[str, Any], low: str, high: str, reverse: bool
) -> Iterator[Found]:
    mine = sorted(changed, reverse=not reverse)  # the next one last
    for element in trees.walk_back(base, high) if reverse else trees.walk(base, low):
        key = element[0]
        if (key < low) if reverse else (key >= high):
            break
        while mine and ((mine[-1] > key) if reverse else (mine[-1] < key)):
            name = mine.pop()
            if changed[name]:
                yield name, changed[name]
        if mine and mine[-1] == key:
            mine.pop()
            if changed[key]:
                yield key, changed[key]
        else:
            yield key, element
    for name in reversed(mine):
        if changed[name]:
            yield name, changed[name]
