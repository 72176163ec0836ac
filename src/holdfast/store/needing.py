"""State that is made of its past: what must not be pruned as long as it is so.

Most state is whole by itself, and its past can go. A part of Holdfast that keeps only changes for a
while, to be put together when they are read, says so in the state, with a key below `$needs/` for
each thing of that kind: its value is the first entry that is needed. Pruning stops before it. The
key is state like any other: it is restored, forked and erased with what it speaks of.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.store.timeline import Timeline

NEEDS = "$needs/"


def oldest_needed(line: Timeline) -> int | None:
    """The first entry of a timeline that its newest state is made of; None if it is whole."""
    with line.lock:
        slots = [line.settled(slot) for _, slot in line.scan(NEEDS)]
    found = [line.ledger.value(slot.ref, slot.location, None) for slot in slots]
    return min((entry for entry in found if type(entry) is int), default=None)
