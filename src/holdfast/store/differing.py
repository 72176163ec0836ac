"""What differs between two states of a scope, values included."""

from __future__ import annotations

from typing import Any

from holdfast.errors import DamagedIndexError
from holdfast.store import refs
from holdfast.store.compare import MISSING, Diff, Difference, tree_changes, value_changes
from holdfast.store.items import LongValue
from holdfast.store.ledger import Ledger
from holdfast.store.lookups import derived
from holdfast.store.slots import slot_of
from holdfast.store.timeline import Timeline, folded_at
from holdfast.store.trees import Node


def diff_states(
    before: Timeline, after: Timeline, old: str, new: str, *, without: tuple[str, ...] = ()
) -> Diff:
    """What differs between two states of the scope, values included.

    Keys that begin with something of `without` are left out.
    """
    found = Diff(old, new)
    ledger = before.ledger
    for key, was, now in tree_changes(ledger.trees, index_of(before), index_of(after)):
        if derived(key) or key.startswith(without):
            continue
        values = []
        for element in (was, now):
            slot = slot_of(element) if element is not None else None
            values.append(shown_value(ledger, slot.ref, slot.location) if slot else MISSING)
        listed = len(found)
        value_changes(key, key, values[0], values[1], found)
        if len(found) == listed:  # what differs is sealed for erased subjects
            found.changes.append(Difference(key, key, "changed", values[0], values[1]))
    return found


def shown_value(ledger: Ledger, ref: bytes, location: Any) -> Any:
    """A value for a comparison; what is too long to be read whole is stood for by its hash."""
    if ref[0] == refs.TREE and ref[1] == refs.BYTES:
        _, hash_, count, size = refs.read_tree(ref)
        if size - 3 * count > ledger.codec.limits.size:
            return LongValue(size - 3 * count, hash_.hex())
    return ledger.value(ref, location)


def index_of(timeline: Timeline) -> Node:
    """The index of a timeline as one tree, also where a saved one is damaged."""
    try:
        return timeline.folded()
    except DamagedIndexError:
        return folded_at(timeline.ledger, timeline.number, timeline.sequence)
