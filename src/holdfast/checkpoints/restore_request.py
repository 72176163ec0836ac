"""Restores as they are asked for: located, checked, in part or from elsewhere, recovered."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, NamedTuple

from holdfast.checkpoints.create import (
    Dependency,
    agent_id,
    check_dependencies,
    held_one,
    make,
    release,
    unmet,
)
from holdfast.checkpoints.locate import Tried, candidates, examine, good, locate
from holdfast.checkpoints.partial import MOST_LEFT, Bringing, new_name
from holdfast.checkpoints.request import CheckpointRequest, Locator, RestoreRequest
from holdfast.errors import (
    CheckpointNotFoundError,
    Conflict,
    RestoreValidationError,
    StateIntegrityError,
    StateValidationError,
)
from holdfast.store.inner import (
    PREFIX,
    Diff,
    Keep,
    LineHandle,
    Operation,
    Reader,
    Stage,
    StoreHandle,
    Timeline,
    Written,
    beside_pruning,
    ended_if_it_fails,
    index_of,
    leaves,
    moment,
    restore_state,
    rules_of,
    settle_after,
    sticky_of,
    sticky_prefixes,
    tree_changes,
)
from holdfast.store.names.arguments import unawaited
from holdfast.store.names.cause import cause_now
from holdfast.store.names.items import Checkpoint, Restored, said

FAILED = "the simulation failed"
MOST_NOTED = 50
"""Damaged checkpoints that a recovery notes as set aside, and the length of each reason."""
_REASON = 200


@dataclass(frozen=True, slots=True)
class RestoreResult:
    """What became of a request; one that fails raises instead."""

    success: bool
    """False only of a dry run: the restore is refused, for what `dependencies` says of these."""
    agent_id: str
    restored_from: str
    """The point, TIMELINE@NUMBER; behind the scope, if it is another one."""
    restored_to: str
    """The entry of the restore, TIMELINE@NUMBER; of a dry run, the newest entry."""
    backup_created: str | None
    """Id of the checkpoint of the state before, which is held until `confirm`."""
    restored_at: datetime | None
    """None if nothing was changed."""
    restored: Restored
    dependencies: tuple[Dependency, ...] = ()
    tried: tuple[Tried, ...] = ()
    """Checkpoints that were looked at to find one that is whole."""


@dataclass(frozen=True, slots=True)
class Recovered:
    """What an explicit recovery did: each checkpoint that it tried, and the one it used."""

    result: RestoreResult
    tried: tuple[Tried, ...]
    set_aside: tuple[str, ...]
    """Ids of the damaged ones, which no later recovery tries again."""

    def __str__(self) -> str:
        lines = [
            f"  {one.id} {one.name}: {'whole' if one.valid else one.reason}" for one in self.tried
        ]
        head = f"recovered {self.result.restored_from}, of {len(self.tried)} tried"
        lines += [f"  it rests on {one}" for one in self.result.dependencies]
        passed_over = self.result.restored.passed_over
        lines += [f"  {passed_over}"] if passed_over else []
        return "\n".join([head, *lines])


@dataclass(frozen=True, slots=True)
class Simulation:
    """What a function did to a restored state that nobody else saw."""

    result: Any
    """What the function returned."""
    timeline: str
    """The timeline that it ran on, which stays and can be looked at."""
    diff: Diff
    """What the function changed."""
    restored: RestoreResult


def restore(handle: LineHandle, request: RestoreRequest) -> RestoreResult:
    """Do a restore as it is asked for, but for what it is to be validated with."""
    request.check()
    source = _source(handle, request)
    tried: list[Tried] = []
    point = request.point if request.point is not None else locate(source, request.where, tried)
    timeline, sequence = source.history.points.find(point)
    about = _about(source, timeline, sequence)
    wanted = "ignore" if request.dry_run else request.dependencies
    dependencies = check_dependencies(handle, about, wanted)
    refused = unmet(dependencies, request.dependencies) if request.dry_run else []
    if source.scope == handle.scope and not request.partial:
        restored, written = _whole(handle, f"{timeline}@{sequence}", request)
    else:
        restored, written = _bring(handle, source, timeline, sequence, request)
    return RestoreResult(
        not refused,
        agent_id(handle),
        restored.point,
        f"{handle.timeline}@{restored.sequence}",
        restored.backup.id if restored.backup is not None else None,
        moment(written.time) if written is not None else None,
        restored,
        tuple(dependencies),
        tuple(tried),
    )


def _source(handle: LineHandle, request: RestoreRequest) -> LineHandle:
    return StoreHandle(handle.core).of(request.source) if request.source is not None else handle


def _about(source: LineHandle, timeline: str, sequence: int) -> dict[str, Any]:
    """What the metadata of a point says, if it is a checkpoint."""
    try:
        return source.history.checkpoint_at(timeline, sequence).metadata if sequence else {}
    except CheckpointNotFoundError:
        return {}


def _whole(
    handle: LineHandle, point: str, request: RestoreRequest
) -> tuple[Restored, Written | None]:
    if request.dry_run:
        return handle.history.dry_restore(point, verify=request.verify), None
    how = restore_past_damage if request.past_damage else restore_state
    return how(handle, point, request.verify, request.reason, request.if_head)


def _bring(
    handle: LineHandle, source: LineHandle, timeline: str, sequence: int, request: RestoreRequest
) -> tuple[Restored, Written | None]:
    history = source.history
    then = history.points.view(timeline, sequence)
    _, checked = history.check_point(then, sequence, request.verify)
    label = f"{timeline}@{sequence}"
    if source.scope != handle.scope:
        label = f"{source.scope} {label}"
    rules = rules_of((Reader(source.core, source.scope, timeline, then), then))
    asked = (request.keys, request.prefixes, request.reason)
    bringing = Bringing(handle, then, label, *asked, rules=rules)
    if request.dry_run:
        return bringing.dry_run(request.verify, checked), None
    handle.ask("restore", label)
    restored, written = bringing.run(request.if_head)
    settle_after(handle)
    return replace(restored, verified=request.verify, values_checked=checked), written


# after a restore


def failed(answer: Any) -> str | None:
    """Why a validation failed, by what it returned; None if it did not."""
    if answer is None or answer is True:
        return None
    if unawaited(answer):
        return "it is to be awaited, which holdfast.checkpoints.Checkpoints does"
    return answer if isinstance(answer, str) and answer else "it was not accepted"


def roll_back(handle: LineHandle, result: RestoreResult, why: str) -> StateValidationError:
    """Put back the state before a restore; gives the error to raise."""
    text = f"{handle.scope}: Restored state validation failed: {why}"
    restored = result.restored
    if result.restored_at is None:
        return StateValidationError(f"{text}; nothing had been changed")
    if restored.backup is None:
        return StateValidationError(
            f"{text}; the state before could not be kept, so this one stays: restore another point"
        )
    reason = f"the restore of {restored.point} failed its validation"
    back, _ = restore_state(handle, restored.backup, "references", reason)
    assert back.backup is not None
    between = handle.history.log(
        since=restored.sequence + 1, until=back.backup.sequence - 1, limit=1000
    )
    ids = [restored.backup.id, *([] if between else [back.backup.id])]
    release(handle, ids, "rolled back")
    more = f"; {len(between)} entries of others are kept in {back.backup.id}" if between else ""
    return StateValidationError(f"{text}; the state before is back{more}", back, between)


def confirm(handle: LineHandle, which: Any) -> Checkpoint | None:
    """Say that a restore is good: its backup is no longer held; None if it has none."""
    if isinstance(which, RestoreResult):
        which = which.restored
    if isinstance(which, Recovered):
        which = which.result.restored
    point = which.backup if isinstance(which, Restored) else which
    if point is None and which is not None:
        return None
    found = held_one(handle, point, "restore")
    return release(handle, [found.checkpoint.id], "confirmed")


def recover(handle: LineHandle, where: Locator) -> Recovered:
    """Return to the newest checkpoint that is whole; damaged ones are set aside and named.

    Whatever it rests on: a newer state of its own is worth more than none. The report names that.
    One that was set aside is looked at again if it is named: it may be mended since.
    """
    tried: list[Tried] = []
    aside = _set_aside(handle)
    found: Checkpoint | None = None
    for one in good(handle, where, tried):
        if one.id in aside and where.id is None and where.name is None:
            tried.append(Tried(one.id, one.name, False, f"set aside before: {aside[one.id]}"))
            continue
        tried.append(examine(handle, one))
        if tried[-1].valid:
            found = one
            break
    if found is None:
        names = ", ".join(one.id for one in tried) or "there is none"
        raise CheckpointNotFoundError(
            f"{handle.scope}: no checkpoint is whole ({names}); `verify` says what is damaged"
        )
    request = RestoreRequest(found, past_damage=True, dependencies="ignore", reason="recovery")
    result = restore(handle, request)
    bad = [one for one in tried if not one.valid]
    if any(one.id not in aside for one in bad):
        noted = {one.id: one.reason[:_REASON] for one in bad[:MOST_NOTED]}
        make(handle, CheckpointRequest(f"recovered {found.id}", "recovery"), set_aside=noted)
    return Recovered(result, tuple(tried), tuple(one.id for one in bad))


def _set_aside(handle: LineHandle) -> dict[str, str]:
    """Checkpoints that earlier recoveries found damaged, and why."""
    found: dict[str, str] = {}
    for one in candidates(handle, Locator(type="recovery")):
        found = {**said(one.metadata, "set_aside", {}), **found}
    return found


# simulation


def rehearse(handle: LineHandle, request: RestoreRequest) -> tuple[LineHandle, RestoreResult]:
    """Do a restore on a timeline of its own, which begins with the newest state.

    If it fails, that timeline is ended; if what comes behind it does, the caller ends it.
    """
    problems = request.problems()
    if request.dry_run is True:
        problems.append("a simulation restores, on a timeline of its own: leave out dry_run")
    if request.validate is not None:
        problems.append("what a simulation runs can validate itself: leave out validate")
    if problems:
        raise RestoreValidationError(problems)
    source = _source(handle, request)
    point = request.point if request.point is not None else locate(source, request.where)
    timeline, sequence = source.history.points.find(point)
    handle.ask("fork", "simulation")
    head = handle.place()[2]
    if request.if_head not in (None, head):
        raise Conflict(f"{handle.scope}: its newest entry is {head}, not {request.if_head}")
    fork, forked = handle.history.plan_fork(f"simulation-{os.urandom(6).hex()}", head, cause_now())
    trial = handle.on(forked(handle.core.run(fork)))
    there = replace(
        request, point=f"{timeline}@{sequence}", where=Locator(), source=source.scope, if_head=None
    )
    with ended_if_it_fails(trial, FAILED):
        return trial, restore(trial, there)


def simulated(trial: LineHandle, done: RestoreResult, answer: Any) -> Simulation:
    """What came of running a function on a rehearsed state."""
    return Simulation(answer, trial.timeline, trial.diff(done.restored.sequence, None), done)


# ---- restore past damage ------------------------------------------------------------------------
# Going back past damage: sticky keys that cannot be read any more are those of the point.
#
# A restore leaves sticky keys as they are. If the value of one is damaged, what it leaves could not
# be read whole. So the state is put together on a timeline of its own, where those keys are what
# they were at the point and the others what they are now, and is adopted in one entry; sticky keys
# that others write meanwhile stay.
#
# The part that owns such keys may have something else stand in for them (`STAND_INS`): that nothing
# was known at the point of what happened since does not mean that it has not happened.


StandIn = Callable[[LineHandle, Timeline, str], Operation | None]
"""From a state, the one that damaged keys are taken from, and one of them: what is to be written
for it, if that is not what it held there."""
STAND_INS: dict[str, StandIn] = {}
"""By how keys begin; the parts that own those keys put theirs here."""


class Way(NamedTuple):
    """How to return to a point so that all of what is there then can be read."""

    point: str
    """The point to restore: the one that was asked for, or one that was put together from it."""
    keep: Keep
    """What that restore leaves alone."""
    line: LineHandle
    """Whose newest state has the sticky keys that there will be, unless others write some."""
    damaged: tuple[str, ...] = ()
    """Sticky keys that cannot be read now, and will be those of the point."""
    left: tuple[str, ...] = ()
    """Sticky keys that are other than at the point, and stay."""


def damaged_keys(line: Timeline, prefix: str = "") -> list[str]:
    """Keys that begin with a text and whose values cannot be read; a damaged index raises."""
    found = []
    for key, slot in line.scan(prefix):
        settled = line.settled(slot)
        try:
            for ref, place in leaves(line.ledger, settled.ref, settled.location):
                line.ledger.atom(ref, place)
        except StateIntegrityError:  # that is what is asked
            found.append(key)
    return found


def stand_ins(handle: LineHandle, source: Timeline, keys: Iterable[str]) -> dict[str, Operation]:
    """What is written for some damaged keys that are taken from another state."""
    found = {
        key: function(handle, source, key)
        for key in keys
        for prefix, function in STAND_INS.items()
        if key.startswith(prefix)
    }
    return {key: operation for key, operation in found.items() if operation is not None}


def damaged_sticky(handle: LineHandle) -> list[str]:
    """Sticky keys whose newest values cannot be read.

    None if the newest state cannot be read at all: a restore does not keep its sticky keys.
    """
    points = handle.history.points
    line = points.line()
    if line.stranded is not None:
        return []
    now = points.view(handle.timeline, line.sequence)
    return [key for prefix in sticky_prefixes(now.declared) for key in damaged_keys(now, prefix)]


@contextmanager
def past_damage(handle: LineHandle, point: str, verify: str, reason: str | None) -> Iterator[Way]:
    """How to return to a point (TIMELINE@NUMBER), to be done in the block.

    If it is not done, the timeline on which the state was put together is ended.
    """
    damaged = damaged_sticky(handle)
    if not damaged:
        yield Way(point, sticky_of, handle)
        return
    history, core, cause = handle.history, handle.core, cause_now(reason=reason)
    timeline, sequence = history.points.find(point)
    source = history.points.view(timeline, sequence)
    history.check_point(source, sequence, verify)
    begun = history.points.view(handle.timeline, handle.place()[2])
    fork, forked = history.plan_fork(new_name(), begun.sequence, cause)
    trial = handle.on(forked(core.run(fork)))
    with ended_if_it_fails(trial, "the restore was not done"):
        # First the damaged ones: what is kept of them may be looked at.
        instead = stand_ins(handle, source, damaged)
        Bringing(trial, source, point, damaged, None, reason, sticky=True, instead=instead).spread()
        change, finish = trial.history.plan_restore(point, verify="none", cause=cause)
        left = finish(core.run(change)).left
        yield Way(
            "{1}@{2}".format(*trial.place()),
            lambda stage: _written_since(begun, stage, damaged),
            trial,
            tuple(damaged),
            left,
        )


def _written_since(begun: Timeline, stage: Stage, damaged: list[str]) -> list[str]:
    """Sticky keys that others wrote since the state was put together."""
    trees, before, now = stage.ledger.trees, index_of(begun), stage.fold()
    found: list[str] = []
    for prefix in sticky_of(stage):
        for key, _, _ in tree_changes(trees, before, now, prefix):
            # Keeping what begins with it would keep a damaged key, too; or other keys are sticky.
            if key.startswith(PREFIX) or any(one.startswith(key) for one in damaged):
                raise Conflict(f"{stage.ledger.scope}: {key!r} was written meanwhile; try again")
            found.append(key)
            if len(found) > MOST_LEFT:
                raise Conflict(f"{stage.ledger.scope}: others wrote very many keys; try again")
    return found


def restore_past_damage(
    handle: LineHandle, point: str, verify: str, reason: str | None, if_head: int | None
) -> tuple[Restored, Written]:
    """Return to a point, whatever is damaged now; also what that became."""

    def step() -> tuple[Restored, Written]:
        with past_damage(handle, point, verify, reason) as way:
            change, finish = handle.plan_restore(way.point, verify, reason, if_head, True, way.keep)
            written = handle.core.run(change)
        return _told(finish(written), point, way), written[0]

    done = beside_pruning(step) if if_head is None else step()
    settle_after(handle)
    return done


def _told(done: Restored, point: str, way: Way) -> Restored:
    """What a restore did, in terms of what was asked for."""
    if not way.damaged:
        return done
    keys = ", ".join(way.damaged[:10]) + (" …" if len(way.damaged) > 10 else "")
    return replace(
        done,
        point=point,
        left=tuple(sorted({*way.left, *done.left})),
        passed_over=f"sticky keys that could not be read are those of {point}: {keys}",
    )
