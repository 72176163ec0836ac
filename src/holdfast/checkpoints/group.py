"""One checkpoint over several scopes, at one moment: one commit with a checkpoint in each.

The entries name each other, as those of every change over several scopes do, so any one of them
leads to the others. A restore of a group is one commit, too: all scopes go back, or none.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from holdfast.checkpoints.create import check_dependencies, plan_request
from holdfast.checkpoints.request import CheckpointRequest
from holdfast.errors import (
    CheckpointNotFoundError,
    CheckpointValidationError,
    InvalidInputError,
    ScopeNotFoundError,
)
from holdfast.store.commit.change import Change
from holdfast.store.commit.lookup_build import settle_after
from holdfast.store.history.handle import LineHandle, StoreHandle
from holdfast.store.history.restore import beside_pruning
from holdfast.store.names import rowkinds
from holdfast.store.names.cause import cause_now
from holdfast.store.names.items import Checkpoint, Restored, said
from holdfast.store.read.public_entry import DELETED, ENDED, public_entry


@dataclass(frozen=True, slots=True)
class Group:
    """Checkpoints of several scopes that were made at one moment."""

    id: str
    name: str
    checkpoints: tuple[Checkpoint, ...]


def create_group(handles: Sequence[LineHandle], request: CheckpointRequest) -> Group:
    """Make a checkpoint in each of several timelines, in one commit."""
    problems = request.problems()
    places = {(handle.scope, handle.timeline) for handle in handles}
    if not handles or len(places) < len(handles):
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
        plans: list[Any] = [plan_request(handle, request, group=id_) for handle in handles]
        written = handles[0].core.run(Change([plan[0].targets[0] for plan in plans], cause_now()))
        made = tuple(plan[1]([one]) for plan, one in zip(plans, written, strict=True))
        return Group(id_, request.name, made)

    return beside_pruning(step) if request.depends_on else step()


def group_of(handle: StoreHandle, member: Checkpoint) -> Group:
    """The group that a checkpoint is one of."""
    if not isinstance(member, Checkpoint):
        raise InvalidInputError("a group is found by a checkpoint of it, as `checkpoints()` gives")
    id_ = said(member.metadata, "group", "")
    if not id_:
        raise CheckpointNotFoundError(f"{member.scope}: {member.id} is no part of a group")
    beside = made_with(handle, member)
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


def made_with(handle: StoreHandle, member: Checkpoint) -> tuple[tuple[str, str, int], ...]:
    """(scope, timeline, sequence) of what was made in the same commit, of pruned history, too."""
    line = handle.line(member.scope, member.timeline).history.points.line()
    key = rowkinds.entry(line.prefix, member.sequence)
    envelope, body = line.ledger.open_entry(key, line.ledger.storage.get([key])[0])
    return public_entry(handle.core, line.ledger, member.timeline, key, envelope, body).also


def restore_group(
    handle: StoreHandle, group: Group, *, verify: str, dependencies: str, reason: str | None
) -> list[Restored]:
    """Return to the states of a group, in one commit with all the backups."""
    if not isinstance(group, Group):
        raise InvalidInputError("a group is what `create` and `of` give")
    lines = [handle.line(one.scope, one.timeline) for one in group.checkpoints]
    for line, one in zip(lines, group.checkpoints, strict=True):
        check_dependencies(line, one.metadata, dependencies)

    def step() -> list[Restored]:
        plans: list[Any] = [
            line.plan_restore(one, verify, reason, None)
            for line, one in zip(lines, group.checkpoints, strict=True)
        ]
        change = Change([plan[0].targets[0] for plan in plans], cause_now(reason=reason))
        written = handle.core.run(change)
        return [plan[1]([one]) for plan, one in zip(plans, written, strict=True)]

    done = beside_pruning(step)
    for line in lines:
        settle_after(line)
    return done
