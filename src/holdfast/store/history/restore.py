"""Restoring, beside whoever prunes: what rests on an older state is done again if need be."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Protocol, TypeVar

from holdfast.errors import Conflict, HoldfastError, LookupNotFoundError
from holdfast.storage.rows import again
from holdfast.store.commit.change import Change, Written, build_change
from holdfast.store.commit.stage import Keep, Stage, sticky_of
from holdfast.store.history.diff import index_of
from holdfast.store.history.handle import ChangeParts, LineHandle
from holdfast.store.journal.entry import Body
from holdfast.store.journal.ledger import Ledger
from holdfast.store.names.cause import Cause, cause_now
from holdfast.store.names.items import Restored
from holdfast.store.names.threads import safe_point, undivided
from holdfast.store.read.change_block import ScopedChange, exact, put
from holdfast.store.read.lookup_terms import Step, check_values, declared_lookup, present
from holdfast.store.read.reader import Reader
from holdfast.store.rules.gates import Asked, Operation
from holdfast.store.rules.lookup import BUILT, Lookup, check_lookup_name
from holdfast.store.rules.owned import TABLE, Owned
from holdfast.store.rules.sticky import sticky_along
from holdfast.store.tree.difference import tree_changes

PAUSE = 0.001
"""Seconds between two attempts."""
_Made = TypeVar("_Made")


def beside_pruning(step: Callable[[], _Made]) -> _Made:
    """Do what rests on older states; again if one of them is being pruned, or was: then what is
    kept now is looked at anew."""
    return again(step, pause=PAUSE)


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

    handle.write(forget, f"rebuild of lookup {name}")
    _settle(handle, name)


def _settle(handle: LineHandle, name: str) -> None:
    """Build a lookup, or remove it, entry by entry."""
    step = Step(name)
    while (timeline := handle.reader.now()) is not None and step.wanted(timeline):
        safe_point()
        handle.core.check_writable()
        handle.write(step.take, f"building of lookup {name}")


# ---- owned records ------------------------------------------------------------------------------
# What happened on another timeline has happened: its records come along with its state.
#
# Such records (`Owned`, UNION) are mostly sticky, so that going back does not undo them. A state
# that comes from another timeline (an adoption, a restore to a point of a fork, a merge) tells what
# was done there: it would be done again here, if the records of it stayed behind. Those that this
# timeline has itself stay as they are.


def join(handle: LineHandle, point: Any, if_head: int | None) -> int | None:
    """Before a state of another timeline is taken over: take over which records it knows of.

    Gives the entry that says so; None if none is needed.
    """
    points = handle.history.points
    timeline, sequence = points.find(point)
    line = points.line()
    if timeline == handle.timeline or line.stranded is not None:
        return None
    then = points.view(timeline, sequence)
    missing = {}  # records of the other state that are not known here
    for rule in TABLE.index.union:
        trees, states = line.ledger.trees, (index_of(line), index_of(then))
        for key, ours, theirs in tree_changes(trees, *states, rule.prefix):
            if ours is None and theirs is not None and not is_further(line.slot, rule, key):
                missing[key] = rule
    if not missing:
        return None
    reason = f"what happened on {timeline}, as {timeline}@{sequence} knows it"
    parts = ChangeParts(handle, cause_now(None, reason), None, owner=True)
    part, there = parts.part(handle), ScopedChange(handle.view(f"{timeline}@{sequence}").reader)
    part.head = if_head
    for key, rule in missing.items():
        found = exact(there, key)
        if found is not None and not part.exists(key):
            put(part, key, found)
            for phase in range(rule.phase(key)):
                if part.exists(rule.in_phase(key, phase)):
                    part.delete(rule.in_phase(key, phase))
    plan = parts.plan()
    return handle.core.run(plan[0])[0].sequence if plan is not None else None


def is_further(known: Callable[[str], Any], rule: Owned, key: str) -> bool:
    """Whether the record of a key is known in a later phase."""
    later = range(rule.phase(key) + 1, len(rule.phases))
    return any(known(rule.in_phase(key, phase)) is not None for phase in later)


def told(asked: Asked, reader: Reader) -> Asked:
    """What is asked for of a timeline, so that whoever owns what comes there notices it.

    Where records come that restores leave alone, they do so from then on; a key by which their
    owner knows that all is as it was is written again.
    """
    scope, timeline, operations, expects, head = asked
    operations = [*operations, *sticky_along(operations, reader.declared)]
    expects = dict(expects)
    rules = [TABLE.index.rule(one.key) for one in operations]
    keys = {one.key for one in operations}
    for key in {rule.signal for rule in rules if rule is not None and rule.signal} - keys:
        found = reader.versioned([key]).get(key)
        if found is not None:
            operations.append(Operation("set", key, found[0]))
            expects[key] = found[1]
    return scope, timeline, operations, expects, head


class Looked(Protocol):
    """What was looked at of a timeline, and is to be written there."""

    handle: LineHandle
    ledger: Ledger
    operations: list[Operation]
    expects: dict[str, int]


def seen_change(found: Sequence[Looked], cause: Cause | None, attempt: int) -> Change:
    """A change of timelines that were looked at, if their scopes are those that they were."""
    asked = []
    for one in found:
        at = one.handle
        # A gate may change the operations, so it gets a list of its own.
        wanted = at.scope, at.timeline, list(one.operations), one.expects, None
        asked.append(told(wanted, at.reader))
    core = found[0].handle.core
    change = build_change(core, asked, cause=cause, looked=True, attempt=attempt)
    for one, target in zip(found, change.targets, strict=True):
        target.create = False  # a scope that is deleted meanwhile does not come back
        if target.ledger is None or target.ledger.number != one.ledger.number:
            raise Conflict(f"{target.scope} was deleted meanwhile", [str(target.scope)])
    return change
