"""Restoring, beside whoever prunes: what rests on an older state is done again if need be."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from holdfast.errors import Conflict, HoldfastError, LookupNotFoundError
from holdfast.store.commit.change import Change, Target, Written, done_again
from holdfast.store.commit.lookup_terms import Step, check_values, declared_lookup, present
from holdfast.store.commit.stage import Keep, Stage, sticky_of
from holdfast.store.history.diff import index_of
from holdfast.store.history.handle import UPDATES, ChangeParts, LineHandle
from holdfast.store.journal.entry import Body
from holdfast.store.names.cause import cause_now
from holdfast.store.names.items import Restored
from holdfast.store.names.threads import safe_point, undivided
from holdfast.store.read.change_block import ScopedChange, exact, put
from holdfast.store.read.reader import Reader
from holdfast.store.rules.gate_request import Asked, Operation
from holdfast.store.rules.lookup import BUILT, Lookup, check_lookup_name
from holdfast.store.rules.sticky import ATTACHED, DONE, EFFECTS, FIELDS, OPEN, Sticky
from holdfast.store.tree.difference import tree_changes

if TYPE_CHECKING:
    from holdfast.store.journal.timeline import Timeline

PAUSE = 0.001
"""Seconds between two attempts."""
_Made = TypeVar("_Made")


def beside_pruning(step: Callable[[], _Made]) -> _Made:
    """Do what rests on older states; again if one of them is being pruned, or was."""
    for _ in range(UPDATES - 1):
        try:
            with done_again():
                return step()
        except Conflict:  # who prunes was faster: what is kept now is looked at anew
            time.sleep(PAUSE)
    return step()


def restore_state(
    handle: LineHandle,
    point: Any,
    verify: str,
    reason: str | None,
    if_head: int | None = None,
    past_damage: bool = False,
    keep: Keep = sticky_of,
) -> tuple[Restored, Written]:
    """Return to a point, verified and backed up; also what that became. See `State.restore`."""

    def step() -> tuple[Restored, Written]:
        plan = partial(handle.plan_restore, point, verify, reason)
        change, finish = plan(if_head, past_damage, keep)  # first: what is refused writes nothing
        # Who says what stays has another state than one of the scope's own past.
        joined = join(handle, point, if_head) if keep is sticky_of else None
        if joined is not None:
            change, finish = plan(None if if_head is None else joined, past_damage, keep)
        written = handle.core.run(change)
        return finish(written), written[0]

    done = beside_pruning(step) if if_head is None else step()
    settle_after(handle)
    return done


# ---- lookup settle ------------------------------------------------------------------------------
# Bringing a state's lookups in line with what is declared, entry by entry.


def settle_lookups(handle: LineHandle) -> None:
    """Bring all lookups in line with what is declared: build what is not whole, remove the rest."""
    timeline = handle.reader.now()
    if timeline is None:
        return
    declared = {one.name for one in timeline.declared.of(Lookup)}
    for name in sorted(declared | present(timeline)):
        _settle(handle, name)


def settle_after(handle: LineHandle) -> None:
    """Like `settle_lookups`, behind something that is done and stays so if this fails.

    Then a question says that the lookup is not built, and what to do.
    """
    with suppress(HoldfastError), undivided():
        settle_lookups(handle)


def rebuild_lookup(handle: LineHandle, name: str) -> None:
    """Remove the terms of a lookup and build it anew from the values."""
    name = check_lookup_name(name)
    handle.ask("rebuild", name)
    lookup = declared_lookup(handle.reader.declared(), name)
    if lookup is None:
        raise LookupNotFoundError(f"{handle.scope} declares no lookup {name!r}")
    check_values(handle.reader.now(), lookup)

    def forget(stage: Stage, body: Body) -> None:
        if stage.slot(BUILT + name) is not None:
            stage.add([("delete", BUILT + name)], body)

    _run(handle, forget, f"rebuild of lookup {name}")
    _settle(handle, name)


def _settle(handle: LineHandle, name: str) -> None:
    """Build a lookup, or remove it, entry by entry."""
    step = Step(name)
    while (timeline := handle.reader.now()) is not None and step.wanted(timeline):
        safe_point()
        _run(handle, step.take, f"building of lookup {name}")


def _run(handle: LineHandle, special: Any, reason: str) -> None:
    handle.core.check_writable()
    target = Target(handle.scope, handle.timeline, special=special, create=False)
    handle.core.run(Change([target], cause_now(reason=reason)))


# ---- owned records ------------------------------------------------------------------------------
# What happened on another timeline has happened: its records come along with its state.
#
# Effects are sticky, so that going back does not undo them. A state that comes from another
# timeline (an adoption, a restore to a point of a fork, a merge) tells what was done there: it
# would be done again here, if the records of it stayed behind. Those that this timeline has itself
# stay as they are.


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
