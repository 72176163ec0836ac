"""Going back past damage: sticky keys that cannot be read any more are those of the point.

A restore leaves sticky keys as they are. If the value of one is damaged, what it leaves could not
be read whole. So the state is put together on a timeline of its own, where those keys are what they
were at the point and the others what they are now, and is adopted in one entry; sticky keys that
others write meanwhile stay.

The part that owns such keys may have something else stand in for them (`STAND_INS`): that nothing
was known at the point of what happened since does not mean that it has not happened.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import NamedTuple

from holdfast.checkpoints.partial import MOST_LEFT, Bringing, new_name
from holdfast.errors import Conflict, StateIntegrityError
from holdfast.store.commit.change import Written
from holdfast.store.commit.lookup_build import settle_after
from holdfast.store.commit.stage import Stage
from holdfast.store.history.diff import index_of
from holdfast.store.history.handle import LineHandle
from holdfast.store.history.restore import beside_pruning
from holdfast.store.journal.timeline import Timeline
from holdfast.store.names.cause import cause_now
from holdfast.store.names.items import Restored
from holdfast.store.read.state_check import leaves
from holdfast.store.rules.declared import PREFIX
from holdfast.store.rules.gates import Operation
from holdfast.store.rules.sticky import Keep, sticky_of, sticky_prefixes
from holdfast.store.tree.difference import tree_changes
from holdfast.store.upkeep.end import ended_if_it_fails

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
        except StateIntegrityError:
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
