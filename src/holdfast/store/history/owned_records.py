"""What happened on another timeline has happened: its records come along with its state.

Effects are sticky, so that going back does not undo them. A state that comes from another timeline
(an adoption, a restore to a point of a fork, a merge) tells what was done there: it would be done
again here, if the records of it stayed behind. Those that this timeline has itself stay as they
are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.store.history.diff import index_of
from holdfast.store.history.handle import ChangeParts, LineHandle
from holdfast.store.names.cause import cause_now
from holdfast.store.read.change_block import ScopedChange, exact, put
from holdfast.store.read.reader import Reader
from holdfast.store.rules.gate_request import Asked, Operation
from holdfast.store.rules.sticky import ATTACHED, DONE, EFFECTS, FIELDS, OPEN, Sticky
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


def told(asked: Asked, reader: Reader) -> Asked:
    """What is asked for of a timeline, so that who keeps an agent there notices it.

    Where records of effects come to, restores leave them alone from then on.
    """
    scope, timeline, operations, expects, head = asked
    keys = {one.key for one in operations}
    sticky = Sticky(EFFECTS)
    if any(key.startswith(EFFECTS) for key in keys) and sticky not in reader.declared().all:
        operations = [*operations, Operation("set", sticky.key, sticky.data())]
        asked = scope, timeline, operations, expects, head
    if ATTACHED in keys or not any(key.startswith(FIELDS) for key in keys):
        return asked
    found = reader.versioned([ATTACHED]).get(ATTACHED)
    if found is None:
        return asked
    again = Operation("set", ATTACHED, found[0])
    return scope, timeline, [*operations, again], {**expects, ATTACHED: found[1]}, head
