"""One checkpoint over several scopes, at one moment: one commit with a checkpoint in each.

The entries name each other, as those of every change over several scopes do, so any one of them
leads to the others. A restore of a group is one commit, too: all scopes go back, or none.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from holdfast.checkpoints.create import check_dependencies, plan_request
from holdfast.checkpoints.request import CheckpointRequest, checkpoint_request
from holdfast.errors import (
    CheckpointNotFoundError,
    CheckpointValidationError,
    Conflict,
    HoldfastError,
    InvalidInputError,
    ScopeNotFoundError,
    TimelineNotFoundError,
)
from holdfast.store.inner import (
    CHECKPOINTS,
    ENDED,
    Body,
    Change,
    Core,
    LineHandle,
    Plan,
    Stage,
    StoreHandle,
    Ticket,
    beside_pruning,
    handle_of,
    public_entry,
    settle_after,
)
from holdfast.store.names import rowkinds
from holdfast.store.names.arguments import check_face, listed
from holdfast.store.names.cause import cause_now
from holdfast.store.names.face import faced, writes
from holdfast.store.names.items import Checkpoint, Restored, said
from holdfast.store.names.scope import Scope
from holdfast.store.read.points import DELETED
from holdfast.store.store import Store


@dataclass(frozen=True, slots=True)
class Group:
    """Checkpoints of several scopes that were made at one moment."""

    id: str
    name: str
    checkpoints: tuple[Checkpoint, ...]


def group_of(handle: StoreHandle, member: Checkpoint) -> Group:
    """The group that a checkpoint is one of."""
    if not isinstance(member, Checkpoint):
        raise InvalidInputError("a group is found by a checkpoint of it, as `checkpoints()` gives")
    id_ = said(member.metadata, "group", "")
    if not id_:
        raise CheckpointNotFoundError(f"{member.scope}: {member.id} is no part of a group")
    line = handle.line(member.scope, member.timeline).history.points.line()
    key = rowkinds.entry(line.prefix, member.sequence)
    envelope, body = line.ledger.open_entry(key, line.ledger.storage.get([key])[0])
    beside = public_entry(handle.core, line.ledger, member.timeline, key, envelope, body).also
    if any(scope == DELETED or timeline == ENDED for scope, timeline, _ in beside):
        raise CheckpointNotFoundError(
            f"{member.scope}: the group of {member.id} is not whole: a scope of it was deleted, or "
            "a timeline ended, since; restore those that are left one by one"
        )
    others = [
        handle.line(scope, timeline).history.checkpoint_at(timeline, sequence)
        for scope, timeline, sequence in beside
    ]
    found = sorted([member, *others], key=lambda one: (str(one.scope), one.timeline))
    if any(one.metadata.get("group") != id_ for one in found):
        raise CheckpointNotFoundError(f"{member.scope}: the group of {member.id} is not whole")
    return Group(id_, member.name, tuple(found))


@faced
class CheckpointGroups:
    """Checkpoints over several scopes of one store, each made and restored in one commit."""

    def __init__(self, store: Store) -> None:
        check_face(store, Store, "CheckpointGroups")
        self._handle = handle_of(store)

    @writes
    def create(
        self,
        states: Iterable[Any],
        request: CheckpointRequest | str = "",
        **fields: Any,
    ) -> Group:
        """One checkpoint in each state, at one moment; a state or a scope that is there."""
        handles = [self._handle.of(state) for state in listed(states, "a group")]
        asked = checkpoint_request(request, fields)
        problems = asked.problems()
        if not handles or len({(one.scope, one.timeline) for one in handles}) < len(handles):
            problems.append("a group has one or more states, each once")
        if problems:
            raise CheckpointValidationError(problems)
        for handle in handles:
            if handle.core.known(handle.scope) is None:  # perhaps misspelt; nothing is made of it
                raise ScopeNotFoundError(
                    f"there is no scope {handle.scope} in this store; write to it before"
                )
        id_ = os.urandom(8).hex()

        def step() -> Group:
            plans = [plan_request(handle, asked, group=id_) for handle in handles]
            return Group(id_, asked.name, tuple(self._run(plans)))

        return beside_pruning(step) if asked.depends_on else step()

    def of(self, member: Checkpoint) -> Group:
        """The group that a checkpoint is one of."""
        return group_of(self._handle, member)

    @writes
    def restore(
        self,
        group: Group,
        *,
        verify: str = "full",
        dependencies: str = "exist",
        reason: str | None = None,
    ) -> list[Restored]:
        """Return to all states of a group, or to none."""
        if not isinstance(group, Group):
            raise InvalidInputError("a group is what `create` and `of` give")
        members = [(self._handle.line(one.scope, one.timeline), one) for one in group.checkpoints]
        for line, one in members:
            check_dependencies(line, one.metadata, dependencies)

        def step() -> list[Restored]:
            plans = [line.plan_restore(one, verify, reason, None) for line, one in members]
            return self._run(plans, reason)

        done = beside_pruning(step)
        for line, _ in members:
            settle_after(line)
        return done

    def _run(self, plans: Sequence[Plan], reason: str | None = None) -> list[Any]:
        """Do what is planned of each in one change; what each gives."""
        change = Change([plan[0].targets[0] for plan in plans], cause_now(reason=reason))
        written = self._handle.core.run(change)
        return [plan[1]([one]) for plan, one in zip(plans, written, strict=True)]


# ---- group save ---------------------------------------------------------------------------------
# Checkpoints of many scopes at one moment, in one storage commit, each with its own outcome.


SWITCH = "HOLDFAST_CHECKPOINTS_DISABLED"
"""With this variable of the environment set, no checkpoints are made that nobody calls for."""
_log = logging.getLogger("holdfast.checkpoints")


@dataclass(frozen=True, slots=True)
class Wanted:
    """A checkpoint to be made."""

    scope: Scope
    timeline: str
    name: str
    type: str
    metadata: dict[str, Any] = field(default_factory=dict)
    id: str | None = None
    """It is made once, however often it is asked for under this id."""
    tags: tuple[str, ...] = ()
    description: str = ""
    behind: int | None = None
    """The entry that must still be the newest checkpoint (0: none); then it is made whether or not
    something was written since."""


@dataclass(slots=True)
class Saved:
    """What became of it."""

    outcome: str
    """saved, repeated (it was made before, under the same id), unchanged (nothing was written
    since the checkpoint before), overtaken (there is a newer checkpoint than the one it was to be
    behind), unmet (the conditions of its policy are not), absent (there is no such scope, timeline
    or policy), disabled (by the environment) or failed"""
    checkpoint: Checkpoint | None = None
    error: HoldfastError | None = None
    head: tuple[bytes, int] | None = None
    """Where the timeline ended, for `still`."""
    again: float | None = None
    """Of one that is unmet: seconds after which it may be met, if that is known."""


def save_all(core: Core, wanted: Sequence[Wanted]) -> list[Saved]:
    """Make checkpoints of what was written since the last ones; all that wait share a commit.

    Those of policies, schedules, loops and shutdowns, which come by themselves: all of them pass
    here, and none that a user or a recovery makes.
    """
    if switched_off():
        _log.info("no checkpoint is made by itself: %s is set", SWITCH)
        return [Saved("disabled") for _ in wanted]
    plans = [_plan(core, one) for one in wanted]
    for plan in plans:
        if not isinstance(plan, Saved):
            core.committer.submit(plan[0])
    done = [plan if isinstance(plan, Saved) else _finished(core, *plan) for plan in plans]
    for one in done:
        if one.outcome in ("saved", "failed"):
            core.meter.add(CHECKPOINTS, (one.outcome,))
    return done


def switched_off() -> bool:
    """Whether the environment wants no checkpoints that come by themselves."""
    return os.environ.get(SWITCH, "").strip().lower() not in ("", "0", "false", "no", "off")


def _plan(core: Core, one: Wanted) -> Saved | tuple[Ticket, Callable[[Any], Any], bytes]:
    try:
        core.check_writable()
        line = core.current(one.scope, one.timeline)
        if line is None:
            return Saved("absent")
        if line.checkpoint == line.sequence and one.behind is None:
            return Saved("unchanged", head=(line.prefix, line.sequence))
        handle = LineHandle(core, one.scope, one.timeline)
        change, finish = handle.plan_checkpoint(
            one.name, one.type, one.tags, one.description, one.metadata
        )
    except TimelineNotFoundError:
        return Saved("absent")
    except HoldfastError as error:
        return Saved("failed", error=error)
    change.id = one.id
    target = change.targets[0]
    target.create = False
    build, behind = target.special, one.behind
    assert build is not None

    def special(stage: Stage, body: Body) -> Any:
        if stage.checkpoint != behind:
            raise _Overtaken(f"{target.scope}: there is another checkpoint since")
        return build(stage, body)

    if behind is not None:
        target.special = special
    return Ticket(change), finish, line.prefix


class _Overtaken(Conflict):
    """There is a newer checkpoint."""


def _finished(core: Core, ticket: Ticket, finish: Callable[[Any], Any], prefix: bytes) -> Saved:
    core.committer.drive(ticket)
    try:
        written = ticket.outcome()
    except _Overtaken:
        return Saved("overtaken")
    except HoldfastError as error:
        return Saved("failed", error=error)
    if written[0].repeated:
        return Saved("repeated")
    return Saved("saved", finish(written), head=(prefix, written[0].sequence))


def still(core: Core, heads: Sequence[tuple[bytes, int] | None]) -> list[bool]:
    """Whether timelines still end where they did; one small read for all of them.

    The last entry must be there, too: an erased scope ends nowhere.
    """
    asked = [head or (b"E", 0) for head in heads]
    keys = [rowkinds.entry(prefix, number + more) for prefix, number in asked for more in (0, 1)]
    found = core.storage.get(keys)
    return [
        head is not None and found[2 * n] is not None and found[2 * n + 1] is None
        for n, head in enumerate(heads)
    ]
