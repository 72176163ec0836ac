"""The types of steps that are there; each takes the context and its action, and returns plain data.

What a step raises becomes a result that says so. Each may be done again after a crash: it leaves
things as if it had been done once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdfast.agents.keys import own_change, sticky
from holdfast.checkpoints.bringing import Bringing
from holdfast.checkpoints.making import make
from holdfast.checkpoints.requests import CheckpointRequest, RestoreRequest
from holdfast.checkpoints.restoring import RestoreResult, confirm, failed, restore
from holdfast.errors import (
    CheckpointNotFoundError,
    MissingError,
    RecoveryValidationError,
    StateIntegrityError,
)
from holdfast.recovery import failures, notices
from holdfast.recovery.background import called
from holdfast.recovery.context import Context, StepFunction
from holdfast.recovery.quarantine import Quarantine
from holdfast.recovery.records import PREFIX
from holdfast.recovery.salvaging import Salvage
from holdfast.recovery.strategies import Target, check_state, look, readable
from holdfast.store.cause import cause_now
from holdfast.store.differing import index_of
from holdfast.store.handles import ChangeParts, LineHandle, StoreHandle
from holdfast.store.verify import verify_store

LAST = PREFIX + "last"
"""In the agent's scope: the recovery that it went through last. No restore takes it back."""


def backup_current(context: Context, action: Mapping[str, Any]) -> dict[str, Any]:
    """Keep the state as it is; one that cannot be read is still in the history, and is named.

    If rows are damaged, they are set aside, as many as are found in `budget` seconds (10).
    """
    handle = context.handle
    result: dict[str, Any] = {"backup": None}
    try:
        head = handle.place()[2]
        context.record.note(hold=True, head=head)
        check_state(handle, handle.timeline, head)
        name = f"before recovery {context.record.id}"
        request = CheckpointRequest(name, "recovery", trigger=context.failure.kind)
        result = {"backup": make(handle, request).id, "entry": head}
    except StateIntegrityError as error:
        result["why"] = str(error)[:500]
    if result["backup"] is None or context.failure.kind in failures.DAMAGED:
        budget = float(action.get("budget", 10))
        found = verify_store(handle.core, context.agent, budget=budget).findings
        result["quarantined"] = Quarantine(context.store, context.agent).add(
            found, context.record.id
        )
    return result


def locate_checkpoint(context: Context, action: Mapping[str, Any]) -> dict[str, Any]:
    """Find a state to return to; `action` may give an order of strategies of its own."""
    order = tuple(action.get("strategies", ())) or context.order()
    looked = look(context, order)
    if looked.target is None:
        reasons = "; ".join(f"{name}: {why}" for name, why in looked.passed.items())
        raise CheckpointNotFoundError(f"{context.agent}: no strategy serves: {reasons}"[:2000])
    return {**looked.target.data(), "passed": looked.passed, "seconds": looked.seconds}


def verify_integrity(context: Context, action: Mapping[str, Any]) -> dict[str, Any]:
    """Read and check everything of the state to return to."""
    del action
    target = Target.of(context.result_of("locate_checkpoint"))
    handle = context.handle
    if target.copy is not None:
        handle = _copy(context, target.copy)
    if not target.point:
        return {"values": 0}
    timeline = target.point.rpartition("@")[0]
    return {"values": check_state(handle, timeline, _number(target.point))}


def _number(point: str) -> int:
    return int(point.rpartition("@")[2])


def restore_state(context: Context, action: Mapping[str, Any]) -> dict[str, Any]:
    """Return to the state that was found."""
    del action
    target = Target.of(context.result_of("locate_checkpoint"))
    if target.strategy == failures.NOTHING:
        return {"restored": None, "lost": "nothing"}
    context.record.flush()
    reason = f"recovery {context.record.id}"
    if target.copy is not None:
        entry, backup = _from_copy(context, target, reason)
    elif target.strategy == failures.DEFAULTS:
        entry, backup = _defaults(context, reason)
    else:
        request = RestoreRequest(
            target.point,
            keys=target.keys,
            past_damage=not target.keys,
            dependencies="ignore",
            reason=reason,
        )
        done = restore(context.handle, request)
        entry, backup = done.restored_to, done.backup_created
        if target.replay:
            salvage = Salvage(context.handle, _number(target.point), target.replay)
            salvage.replay()
            brought = salvage.bring(reason)
            entry = f"{context.handle.timeline}@{brought.sequence}"
            # The damage that made a replay needed had kept the restore from having one.
            backup = backup or (brought.backup.id if brought.backup is not None else None)
    return {"restored": entry, "backup": backup, "lost": target.lost}


def _copy(context: Context, number: int) -> LineHandle:
    """The agent in a copy; whoever goes on with a recovery may have been given other ones."""
    if number >= len(context.copies):
        raise MissingError(f"copy {number}, in which the state was found, was not given here")
    return StoreHandle(context.copies[number]._core).line(context.agent)


def _from_copy(context: Context, target: Target, reason: str) -> tuple[str, str | None]:
    assert target.copy is not None
    there = _copy(context, target.copy)
    source = there.history.points.view("main", _number(target.point))
    handle = context.handle
    if (context.had("backup_current") or {}).get("backup") is None and not readable(handle):
        _empty(context, reason)  # what cannot be read cannot be compared
    label = f"copy {target.copy}, {target.point}"
    done = Bringing(handle, source, label, (), (), reason).run(None)[0]
    return f"{handle.timeline}@{done.sequence}", done.backup.id if done.backup else None


def _empty(context: Context, reason: str) -> RestoreResult:
    request = RestoreRequest(0, past_damage=True, dependencies="ignore", reason=reason)
    return restore(context.handle, request)


def _defaults(context: Context, reason: str) -> tuple[str, str | None]:
    done = _empty(context, reason)
    state = context.state
    assert context.defaults is not None
    with state.change(reason=f"{reason}: defaults, because nothing else could be read") as change:
        for key, value in context.defaults.items():
            change.set(key, value)
    return done.restored_to, done.backup_created


def validate_state(context: Context, action: Mapping[str, Any]) -> dict[str, Any]:
    """Read all of the newest state, and ask every check that was given."""
    handle = context.handle
    values = check_state(handle, handle.timeline, handle.place()[2])
    missing = [key for key in action.get("keys", ()) if not handle.reader.exists(key)]
    if missing:
        raise RecoveryValidationError(f"{context.agent}: missing keys: {', '.join(missing)}")
    for check in context.settings.validate:
        why = failed(called(check, context.state))
        if why is not None:
            raise RecoveryValidationError(f"{context.agent}: {why}")
    return {"values": values, "checks": len(context.settings.validate)}


def update_tracking(context: Context, action: Mapping[str, Any]) -> dict[str, Any]:
    """Tell the agent, in its own scope, which recovery it went through."""
    del action
    handle, record = context.handle, context.record
    said = {
        "recovery": record.id,
        "failure": context.failure.kind,
        "procedure": record.procedure.id,
        "attempt": record.attempt,
    }
    parts = own_change(context.state, reason=f"recovery {record.id}")
    part = parts.part(handle)
    part.set(LAST, said)
    part.operations += sticky(handle, PREFIX)
    plan = parts.plan()
    assert plan is not None
    context.state._run(plan)
    return {"tracked": True}


def notify_systems(context: Context, action: Mapping[str, Any]) -> dict[str, Any]:
    """Add a notice to the list that dependent systems read; once, however often it is done."""
    del action
    record, store = context.record, context.store
    handle = store.line(notices.scope())
    cause = cause_now(reason=f"recovery {record.id}")
    parts = ChangeParts(store, cause, f"recovery-notice/{record.id}", owner=True)
    notice = {
        "agent": str(context.agent),
        "recovery": record.id,
        "failure": context.failure.kind,
        "severity": context.failure.severity,
    }
    parts.part(handle).append(notices.NOTICES, notice)
    plan = parts.plan()
    assert plan is not None
    change, finish = plan
    finish(store.core.run(change))
    return {"notified": 1}


def cleanup(context: Context, action: Mapping[str, Any]) -> dict[str, Any]:
    """Let go of what the restore held: the state before is still in its own checkpoint."""
    del action
    backup = (context.had("restore_state") or {}).get("backup")
    if backup is None:
        return {"released": 0}
    try:
        confirm(context.handle, backup)
    except MissingError:
        return {"released": 0}  # done before
    return {"released": 1}


def restore_backup(context: Context, action: Mapping[str, Any]) -> dict[str, Any]:
    """Put back the state before the recovery; the rollback of every procedure that names none."""
    del action
    handle = context.handle
    found = context.had("backup_current")
    point = found["backup"] if found is not None else None
    head = context.record.data.get("head")
    if point is None and head == handle.place()[2]:
        return {"restored": None}  # nothing was written
    if point is None and found is None and head is not None:
        point = f"{handle.timeline}@{head}"
    if point is None:
        raise StateIntegrityError(
            f"{context.agent}: the state before could not be read, so there is nothing to put back"
        )
    then = handle.history.points.view(*handle.history.points.find(point))
    if handle.root() == index_of(then).hash.hex():
        return {"restored": None}
    reason = f"recovery {context.record.id} failed"
    request = RestoreRequest(point, past_damage=True, dependencies="ignore", reason=reason)
    return {"restored": restore(handle, request).restored_to}


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
        restore_backup,
    )
}

LOOKING = frozenset(("backup_current", "locate_checkpoint", "verify_integrity", "validate_state"))
"""Types that leave the state as it is."""
CAREFUL = LOOKING | {"restore_state"}
"""Types of which most change nothing: what steps came to is kept by the first of these that does,
before it does; a crash before that only has them done again."""
