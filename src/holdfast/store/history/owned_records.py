"""What happened on another timeline has happened: its records come along with its state.

Effects are sticky, so that going back does not undo them. A state that comes from another timeline
(an adoption, a restore to a point of a fork, a merge) tells what was done there: it would be done
again here, if the records of it stayed behind. Those that this timeline has itself stay as they
are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.store.commit.exact_values import exact, put
from holdfast.store.commit.request import ScopedChange
from holdfast.store.history.diff import index_of
from holdfast.store.history.handle import ChangeParts, LineHandle
from holdfast.store.names.cause import cause_now
from holdfast.store.rules.gates import Operation
from holdfast.store.rules.owned_keys import DONE, EFFECTS, OPEN
from holdfast.store.rules.sticky import Sticky
from holdfast.store.tree.difference import tree_changes

if TYPE_CHECKING:
    from holdfast.store.journal.timeline import Timeline


def join(handle: LineHandle, point: Any, if_head: int | None) -> int | None:
    """Before a state of another timeline is taken over: take over which effects it knows of.

    Gives the entry that says so; None if none is needed.
    """
    points = handle.history.points
    timeline, sequence = points.find(point)
    line = points.line()
    if timeline == handle.timeline or line.stranded is not None:
        return None
    missing = _missing(line, points.view(timeline, sequence))
    if not missing:
        return None
    reason = f"which effects {timeline}@{sequence} knows of"
    parts = ChangeParts(handle, cause_now(None, reason), None, owner=True)
    part, then = parts.part(handle), ScopedChange(handle.view(f"{timeline}@{sequence}").reader)
    part.head = if_head
    declared = Sticky(EFFECTS)
    if declared not in line.declared.all:
        part.operations.append(Operation("set", declared.key, declared.data()))
    for key in missing:
        found = exact(then, key)
        if found is not None and not part.exists(key):
            put(part, key, found)
            if part.exists(OPEN + key.removeprefix(DONE)):
                part.delete(OPEN + key.removeprefix(DONE))
    plan = parts.plan()
    return handle.core.run(plan[0])[0].sequence if plan is not None else None


def _missing(line: Timeline, then: Timeline) -> list[str]:
    """Records of another state of effects that are not known here."""
    found = tree_changes(line.ledger.trees, index_of(line), index_of(then), EFFECTS)
    missing = [key for key, ours, theirs in found if ours is None and theirs is not None]
    return [
        key
        for key in missing
        if key.startswith(DONE) or line.slot(DONE + key.removeprefix(OPEN)) is None
    ]
