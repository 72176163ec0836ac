"""What differs between two states of a scope, values included."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from holdfast.errors import DamagedIndexError
from holdfast.seal.codec import Codec, Typed
from holdfast.store.journal.ledger import Ledger
from holdfast.store.journal.lifetime import Meta
from holdfast.store.journal.slot import meta_of, slot_of
from holdfast.store.journal.timeline import Timeline, folded_at
from holdfast.store.names.items import MASK, LongValue
from holdfast.store.read.reader import Reader, masks, moment, rules_of
from holdfast.store.rules.lookup import derived
from holdfast.store.rules.subjects import alike, shown
from holdfast.store.tree import refs
from holdfast.store.tree.difference import (
    MISSING,
    Diff,
    masked_changes,
    tree_changes,
    value_changes,
)
from holdfast.store.tree.tree import Node


def diff_states(
    before: Reader,
    after: Reader,
    *,
    without: tuple[str, ...] = (),
    reveal: bool = False,
    plain: bool = False,
) -> Diff:
    """What differs between two states of the scope, values included.

    Objects are compared by field; where one is given whole it is built, unless `plain`. Only what
    entries changed is looked at: a key that has expired and was not swept yet is not found by that
    alone. Keys that begin with something of `without` are left out. A saved index that is damaged,
    of either state, costs time.
    """
    how = without, reveal, plain
    return after.past_damage(lambda _: before.past_damage(lambda _: _compared(before, after, *how)))


def _compared(
    before: Reader, after: Reader, without: tuple[str, ...], reveal: bool, plain: bool
) -> Diff:
    old, new = before.now(), after.now()
    assert old is not None
    assert new is not None
    found = Diff(f"{before.timeline}@{old.sequence}", f"{after.timeline}@{new.sequence}")
    ledger, rules = old.ledger, rules_of((before, old), (after, new))
    for key, was, now in tree_changes(ledger.trees, index_of(old), index_of(new)):
        if derived(key) or key.startswith(without):
            continue
        slots = [
            reader.judged(slot_of(element)) if element is not None else None
            for reader, element in ((before, was), (after, now))
        ]
        listed = len(found)
        values = [shown_value(ledger, one.ref, one.location) if one else MISSING for one in slots]
        masked = masks(after, new, key, slots, rules, reveal=reveal)
        if masked:
            masked_changes(key, values[0], values[1], found)
        else:
            show_changes(ledger.codec, key, values, found, plain=plain)
        was_slot, now_slot = slots
        if was_slot and now_slot and was_slot.ref != now_slot.ref and len(found) == listed:
            # Stored values differ that look alike.
            exact = ledger.value(now_slot.ref, now_slot.location, ledger.codec.plain_reader)
            alike(key, MASK if masked else shown(after.core.subjects, exact).value, found)
        if None not in slots:
            expiry_changes(key, meta_of(slots[0]), meta_of(slots[1]), found)
    return found if reveal else redacted_diff(after.core.redact, found)


def redacted_diff(hide: Callable[..., Any] | None, found: Diff) -> Diff:
    """The same as people may see it (`Protection`)."""
    if hide is not None:
        found.changes = [
            replace(one, before=hide(one.before, one.steps), after=hide(one.after, one.steps))
            for one in found.changes
        ]
    return found


def show_changes(
    codec: Codec, key: str, values: Sequence[Any], found: Diff, *, plain: bool = False
) -> None:
    """Add what differs between two values in plain form; objects in it are built, unless `plain`.

    `UnknownTypeError` if one has to be shown whole whose class is not known here.
    """
    first = len(found.changes)
    value_changes(key, key, values[0], values[1], found)
    for at in range(first, len(found.changes) if not plain else first):
        one = found.changes[at]
        sides = [_built(codec, side) for side in (one.before, one.after)]
        found.changes[at] = replace(one, before=sides[0], after=sides[1])


def _built(codec: Codec, value: Any) -> Any:
    """A value of one in plain form; the caller owns it."""
    if type(value) is Typed:
        return codec.build(value.name, value.version, _built(codec, value.value))
    if type(value) is dict:
        return {name: _built(codec, part) for name, part in value.items()}
    return [_built(codec, part) for part in value] if type(value) is list else value


def expiry_changes(key: str, before: Meta, after: Meta, found: Diff) -> None:
    """Add that a key expires at another time."""
    ends = [moment(meta.expires) if meta.expires else MISSING for meta in (before, after)]
    if ends[0] != ends[1]:
        value_changes(key, f"{key} (expires)", ends[0], ends[1], found)


def shown_value(ledger: Ledger, ref: bytes, location: Any) -> Any:
    """A value in plain form for a comparison; for what is too long to be read whole, its hash."""
    if ref[0] == refs.TREE and ref[1] == refs.BYTES:
        _, hash_, count, size = refs.read_tree(ref)
        if size - 3 * count > ledger.codec.limits.size:
            return LongValue(size - 3 * count, hash_.hex())
    return ledger.value(ref, location, ledger.codec.plain_viewer)


def index_of(timeline: Timeline) -> Node:
    """The index of a timeline as one tree, also where a saved one is damaged."""
    try:
        return timeline.folded()
    except DamagedIndexError:  # entries hold the same state
        return folded_at(timeline.ledger, timeline.number, timeline.sequence)
