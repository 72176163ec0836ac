"""The types of steps that are there; each takes the context and its action, and returns plain data.

What a step raises becomes a result that says so. Each may be done again after a crash: it leaves
things as if it had been done once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Annotated, Any

from msgspec import Meta, ValidationError, convert

from holdfast.agents.handover import Handovers
from holdfast.checkpoints.create import plan_request
from holdfast.checkpoints.request import CheckpointRequest, RestoreRequest
from holdfast.checkpoints.restore_request import (
    Bringing,
    confirm,
    damaged_sticky,
    put_together,
    restore,
    stand_ins,
)
from holdfast.errors import (
    CheckpointNotFoundError,
    InvalidInputError,
    MissingError,
    RecoveryValidationError,
    ScopeErasedError,
    StateIntegrityError,
    Unavailable,
)
from holdfast.recovery import failure_kinds
from holdfast.recovery.changes_of_others import (
    first_of_others,
    lost_text,
    of_others,
    some,
    together,
)
from holdfast.recovery.context import Context, StepFunction
from holdfast.recovery.failure_kinds import LAST
from holdfast.recovery.heal import BUDGET, copies_of, is_called_for, set_aside
from holdfast.recovery.lost_entries import MOST_NAMED, Salvage, Tails, sticky_replayed
from holdfast.recovery.procedure import Procedure
from holdfast.recovery.records import stays_erased
from holdfast.recovery.strategies import (
    RecoveryTarget,
    check_state,
    is_empty,
    is_erased,
    look,
    missing_text,
    refusal,
    replayed_keys,
    unreadable,
)
from holdfast.storage.rows import again
from holdfast.store.inner import (
    LineHandle,
    StoreHandle,
    core_of,
    handle_of,
    index_of,
    own_change,
    settle_after,
)
from holdfast.store.store import Store


def backup_current(context: Context, action: Mapping[str, Any]) -> dict[str, Any]:
    """Keep the state as it is; one that cannot be read is still in the history, and is named.

    If rows are damaged or lost, they are set aside, as many as are found in `budget` seconds (10),
    and those that a copy of the store still has are healed; that comes first, for whatever is
    written takes the number of a lost entry.
    """
    record = context.record
    result: dict[str, Any] = {"backup": None}
    why = unreadable(context.handle)
    if is_called_for(context.failure, record.data.gone, why):
        record.keep()
        copies = copies_of(context.store.core, context.copies)
        budget = float(action.get("budget", BUDGET))
        result |= set_aside(context.store, context.agent, copies, record.id, budget)
        if record.data.gone is not None:
            tail = Tails(context.store).lost(context.agent)
            record.note(hold=True, gone=tail)
        why = unreadable(context.handle)
        if record.attempt == 1:  # rows that were healed are part of the state before
            healed = context.handle.place()[2]
            record.note(hold=True, head=healed, first=healed)
    handle = context.handle
    head = handle.place()[2]
    if why is not None:
        return {**result, "why": why}
    if is_empty(handle):
        return {**result, "entry": head}  # an entry of ours would be taken for a state of the agent
    request = CheckpointRequest(
        f"before recovery {record.id}", "recovery", trigger=context.failure.kind
    )
    plan = plan_request(handle, request, recovery=record.id)  # held until the recovery is over
    plan[0].targets[0].create = False  # an agent that is no more does not come back by this
    record.flush(along=plan)
    made = plan[1]([])
    if made.sequence - 1 == record.data.head:
        record.note(hold=True, head=made.sequence)  # the state at an entry before it may be pruned
    return {**result, "backup": made.id, "entry": head}


def locate_checkpoint(context: Context, action: Mapping[str, Any]) -> dict[str, Any]:
    """Find a state to return to; `action` may give an order of `strategies` of its own."""
    looked = look(context, context.order(action))
    if looked.target is None:
        reasons = "; ".join(f"{name}: {why}" for name, why in looked.passed.items())
        kind = Unavailable if looked.unreached else CheckpointNotFoundError
        raise kind(f"{context.agent}: no strategy serves: {reasons}"[:2000])
    return {**looked.target.data(), "passed": looked.passed}


def verify_integrity(context: Context, _: Mapping[str, Any]) -> dict[str, Any]:
    """Read and check everything of the state to return to."""
    target = _located(context)
    handle = _line_of(context, target)
    return {"values": check_state(handle, *_place(target.point)) if target.point else 0}


def _located(context: Context) -> RecoveryTarget:
    found = context.result_of("locate_checkpoint")
    lacking = [name for name in RecoveryTarget.__slots__ if name not in found]
    if lacking:
        raise InvalidInputError(
            f"what locate_checkpoint gave has no {', '.join(lacking)}: a step of your own gives "
            "what `RecoveryTarget(…).data()` does"
        )
    known = {name: found[name] for name in RecoveryTarget.__slots__}
    return RecoveryTarget(**known | {"keys": tuple(found["keys"])})


def _place(point: str) -> tuple[str, int]:
    timeline, _, number = point.rpartition("@")
    return timeline, int(number)


def restore_state(context: Context, _: Mapping[str, Any]) -> dict[str, Any]:
    """Return to the state that was found, but for tasks that were handed over since."""
    target = _located(context)
    if target.strategy == failure_kinds.NOTHING:
        return {"restored": None, "lost": "nothing"}
    context.record.flush()
    reason = f"recovery {context.record.id}"
    damaged = _damaged_sticky(context)
    lost = _lost(context, target, damaged)
    more: dict[str, Any] = {"damaged_keys": damaged[:MOST_NAMED]} if damaged else {}
    if target.copy is not None:
        entry, backup = _from_copy(context, target, reason)
    elif target.strategy == failure_kinds.DEFAULTS:
        entry, backup = _defaults(context, reason, damaged)
    elif target.keys:  # damaged keys, sticky ones too, get what they held at the point
        handle = context.handle
        source = handle.history.points.view(*_place(target.point))
        if target.replay:
            salvage = replayed_keys(handle, source.sequence, target.replay, target.keys)[0]
            source, more = salvage.line, more | salvage.result.data()
        instead = stand_ins(handle, source, target.keys)
        bringing = Bringing(
            handle, source, target.point, target.keys, None, reason, sticky=True, instead=instead
        )
        entry, backup = _brought(context, bringing)
    elif target.replay:
        salvage = Salvage(context.handle, _place(target.point)[1], target.replay)
        more |= salvage.replay().data()
        with salvage.put_together(reason) as point:
            entry, backup = _to(context, point, reason)
    else:
        entry, backup = _back(context, target.point, reason, damaged)
    more |= _reconciled(context)
    made = context.store.core.known(context.agent)
    if made is not None and context.record.data.scope is None:  # it may end, too
        context.record.note(hold=True, scope=made.id)
    return {"restored": entry, "backup": backup, "lost": lost, **more}


def _reconciled(context: Context) -> dict[str, Any]:
    """Tasks that were made to fit what was handed over: one of two agents has each, not both."""
    try:
        done = Handovers(Store(context.store)).reconcile(context.handle.scope)
    except StateIntegrityError as error:  # of what the other one keeps: that stops nobody here
        return {"unreconciled": str(error)[:500]}
    tasks = sorted({*done.removed, *done.put_back})
    return {"reconciled": tasks} if tasks else {}


def _damaged_sticky(context: Context) -> list[str]:
    """Sticky keys that cannot be read, and so do not stay."""
    known = (context.had("backup_current") or {}).get("backup") is not None
    if known or context.store.core.known(context.agent) is None:
        return []
    return damaged_sticky(context.handle)


def _lost(context: Context, target: RecoveryTarget, damaged: list[str]) -> str:
    """What returning to a state loses; with what others wrote since the recovery began."""
    head = context.first_head()
    if target.keys:
        return target.lost
    count = sum(1 for _ in of_others(context.handle, context.record.id, head))
    lost = together(target.lost, lost_text(0, count))
    if target.replay or not damaged:  # a replay says it itself
        return lost
    return together(lost, f"what damaged rows held of {some(sorted(damaged))}")


def losing_by(context: Context, target: RecoveryTarget) -> str:
    """What returning to a state would lose, before anything is done."""
    unchanged = target.strategy == failure_kinds.NOTHING
    return target.lost if unchanged else _lost(context, target, _damaged_sticky(context))


def _line_of(context: Context, target: RecoveryTarget) -> LineHandle:
    """The agent where a state was found: here, or in a copy; whoever goes on with a recovery may
    have been given other ones."""
    if target.copy is None:
        return context.handle
    if target.copy >= len(context.copies):
        raise MissingError(f"copy {target.copy}, in which the state was found, was not given here")
    return StoreHandle(core_of(context.copies[target.copy])).line(context.agent)


def _to(context: Context, point: Any, reason: str) -> tuple[str, str | None]:
    """Return to a point. Sticky keys stay; those that cannot be read are those of the point."""
    request = RestoreRequest(point, past_damage=True, dependencies="ignore", reason=reason)
    done = restore(context.handle, request)
    return done.restored_to, done.backup_created


def _back(context: Context, point: Any, reason: str, damaged: list[str]) -> tuple[str, str | None]:
    """Return to a point. Sticky keys that cannot be read are replayed as far as they can be."""
    with sticky_replayed(context.handle, point, reason, damaged=bool(damaged)) as there:
        return _to(context, there, reason)


def _brought(context: Context, bringing: Bringing) -> tuple[str, str | None]:
    handle = context.handle
    handle.ask("restore", bringing.label)
    done = bringing.run(None)[0]
    settle_after(handle)
    return f"{handle.timeline}@{done.sequence}", done.backup.id if done.backup else None


def _from_copy(context: Context, target: RecoveryTarget, reason: str) -> tuple[str, str | None]:
    """Take over what a copy has; its sticky keys and declarations, too, if ours are not there or
    cannot be read."""
    there = _line_of(context, target)
    source = there.history.points.view(*_place(target.point))
    handle = context.handle
    if is_erased(context, there):
        raise ScopeErasedError(stays_erased(context.agent))
    label = f"copy {target.copy}, {target.point}"
    known = (context.had("backup_current") or {}).get("backup") is not None
    if known or unreadable(handle) is None:
        bringing = Bringing(handle, source, label, None, None, reason, sticky=is_empty(handle))
        return _brought(context, bringing)
    with put_together(handle, 0, source, label, reason) as point:
        return _to(context, point, reason)


def _defaults(context: Context, reason: str, damaged: list[str]) -> tuple[str, str | None]:
    there = context.store.core.known(context.agent) is not None
    done = _back(context, 0, reason, damaged) if there else None
    state = context.state
    assert context.defaults is not None
    with state.change(reason=f"{reason}: defaults, because nothing else could be read") as change:
        for key, value in context.defaults.items():
            change.set(key, value)
    if done is None:
        return "{1}@{2}".format(*handle_of(state).place()), None
    return done


def validate_state(context: Context, action: Mapping[str, Any]) -> dict[str, Any]:
    """Read all of the newest state, and ask every check that was given."""
    handle = context.handle
    values = check_state(handle, handle.timeline, handle.place()[2])
    missing = [key for key in action.get("keys", ()) if not handle.reader.exists(key)]
    checks = context.settings.validate
    why = missing_text(missing) if missing else refusal(checks, context.state)
    if why is not None:
        raise RecoveryValidationError(f"{context.agent}: {why}")
    return {"values": values, "checks": len(checks)}


def update_tracking(context: Context, _: Mapping[str, Any]) -> dict[str, Any]:
    """Tell the agent, in its own scope, which recovery it went through.

    Tasks that were handed over since its state was put back, by whomever, are made to fit.
    """
    record = context.record
    said = {
        "recovery": record.id,
        "failure": context.failure.kind,
        "procedure": record.procedure.id,
        "attempt": record.attempt,
    }
    parts = own_change(context.state, reason=f"recovery {record.id}")
    parts.part(context.handle).set(LAST, said)
    plan = parts.plan()
    assert plan is not None
    plan[0].targets[0].create = False  # nor by this
    context.state._run(plan)
    return {"tracked": True, **_reconciled(context)}


def settle_transitions(context: Context, _: Mapping[str, Any]) -> dict[str, Any]:
    """Complete or roll back transitions of machines that did not end, as their arrows declare.

    What nobody declared, or is to be asked about, is `left` to the caller. What was completed is
    done: a step behind this one that fails would put the state back all the same.
    """
    settled, left, wrong = context.settings.machines.settle(context.state)
    # What is raised may have the state put back, and one that was completed would be begun again.
    if wrong is not None and "complete" not in settled.values():
        raise wrong
    return {"settled": settled, "left": left}


def notify_systems(context: Context, action: Mapping[str, Any]) -> dict[str, Any]:
    """Give the notice that dependent systems read a `message`.

    Every recovery adds its notice in the change that ends it: what is said here would be too early
    if the recovery were undone after all.
    """
    message = str(action.get("message", ""))[:2000]
    context.record.note(hold=True, message=message)
    return {"message": message}


def cleanup(context: Context, _: Mapping[str, Any]) -> dict[str, Any]:
    """Let go of what the restore held: the state before is still in its own checkpoint."""
    backup = (context.had("restore_state") or {}).get("backup")
    if backup is None:
        return {"released": 0}
    try:
        confirm(context.handle, backup)
    except MissingError:
        return {"released": 0}  # done before
    return {"released": 1}


def restore_backup(context: Context, _: Mapping[str, Any]) -> dict[str, Any]:
    """Put back the state before the recovery; the rollback of every procedure that names none."""
    handle = context.handle
    head = context.record.data.head
    if head == handle.place()[2]:
        return {"restored": None}  # nothing was written
    if head is None or "why" in (context.had("backup_current") or {}):
        raise StateIntegrityError(
            f"{context.agent}: the state before could not be read, so there is nothing to put back"
        )
    return again(lambda: _put_back(context, head))


def _put_back(context: Context, head: int) -> dict[str, Any]:
    """Return to the state before, unless others wrote since: that stands, and so does the rest."""
    handle = context.handle
    now = handle.place()[2]
    other = first_of_others(handle, context.record.id, head)
    if other is not None:
        raise RecoveryValidationError(
            f"{context.agent}: others wrote meanwhile (entry {other.sequence}), and nothing is "
            f"undone over that; the state before is {handle.timeline}@{head}: restore it, or the "
            "keys of it that you want"
        )
    point = f"{handle.timeline}@{head}"
    then = handle.history.points.view(*handle.history.points.find(point))
    if handle.root() == index_of(then).hash.hex():
        return {"restored": None}
    reason = f"recovery {context.record.id} failed"
    asked = RestoreRequest(
        point, past_damage=True, dependencies="ignore", reason=reason, if_head=now
    )
    return {"restored": restore(handle, asked).restored_to}


STEPS: dict[str, StepFunction] = {
    step.__name__: step
    for step in (
        backup_current,
        locate_checkpoint,
        verify_integrity,
        restore_state,
        validate_state,
        update_tracking,
        notify_systems,
        cleanup,
        settle_transitions,
        restore_backup,
    )
}
LOOKING = frozenset(("backup_current", "locate_checkpoint", "verify_integrity", "validate_state"))
"""Types that leave the state as it is."""
CAREFUL = LOOKING | {"restore_state"}
"""Types of which most change nothing: what steps came to is kept by the first of these that does,
before it does; a crash before that only has them done again."""


# What may be wrong with the steps of a procedure, so far as they are of types that are there.

_NAMES = Annotated[list[str], Meta(min_length=1)]
_FIELDS: dict[str, dict[str, Any]] = {
    "backup_current": {"budget": float},
    "locate_checkpoint": {"strategies": _NAMES},
    "validate_state": {"keys": _NAMES},
    "notify_systems": {"message": str},
}
"""What the actions of steps take that are there without being registered."""


def action_problems(
    procedure: Procedure, types: Mapping[str, StepFunction], strategies: Collection[str]
) -> Iterator[str]:
    """What is wrong with the actions of the steps that are there without being registered."""
    for name, part in procedure.parts():
        for step in part:
            if types.get(step.type) is not STEPS.get(step.type):
                continue  # the user's own says itself what it takes
            taken = _FIELDS.get(step.type, {})
            for field, given in step.action.items():
                if field not in taken:
                    takes = f"it takes {', '.join(taken) or 'nothing'}"
                    yield f"{name}: {step.key}: {field} is no field of its action: {takes}"
                    continue
                try:
                    convert(given, taken[field])
                except ValidationError as error:
                    yield f"{name}: {step.key}: {field}: {error}"
            known = set(map(str, step.action.get("strategies", ()))) - set(strategies)
            if known and step.type == "locate_checkpoint":
                there = ", ".join(strategies)
                names = ", ".join(sorted(known))
                yield f"{name}: {step.key}: no strategy is called {names}; there are {there}"
