"""Checkpoints of many scopes at one moment, in one storage commit, each with its own outcome."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from holdfast.errors import Conflict, HoldfastError, TimelineNotFoundError
from holdfast.store.commit.change import Target, Ticket
from holdfast.store.commit.core import Core
from holdfast.store.commit.stage import Stage
from holdfast.store.history.handle import LineHandle
from holdfast.store.journal.entry import Body
from holdfast.store.names import rowkinds
from holdfast.store.names.items import Checkpoint
from holdfast.store.names.scope import Scope

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
    head: int | None = None
    """With `behind`: the entry that must still be the newest of all."""


@dataclass(slots=True)
class Saved:
    """What became of it."""

    outcome: str
    """saved, repeated (it was made before, under the same id), unchanged (nothing was written
    since the checkpoint before), overtaken (there is a newer checkpoint than the one it was to be
    behind), moved (its timeline does not end where it was to), unmet (the conditions of its policy
    are not), absent (there is no such scope, timeline or policy), disabled (by the environment) or
    failed"""
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
    return [plan if isinstance(plan, Saved) else _finished(core, *plan) for plan in plans]


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
    if one.behind is not None:
        target.special = _behind(target, one.behind, one.head)
    return Ticket(change), finish, line.prefix


class _Overtaken(Conflict):
    """There is a newer checkpoint."""


class _Moved(Conflict):
    """There is a newer entry."""


def _behind(target: Target, checkpoint: int, head: int | None) -> Callable[[Stage, Body], Any]:
    """Build it only where the newest checkpoint, and the newest entry, are still these."""
    build = target.special
    assert build is not None

    def special(stage: Stage, body: Body) -> Any:
        if stage.checkpoint != checkpoint:
            raise _Overtaken(f"{target.scope}: there is another checkpoint since")
        if head is not None and stage.sequence != head:
            raise _Moved(f"{target.scope}: there is another entry since")
        return build(stage, body)

    return special


def _finished(core: Core, ticket: Ticket, finish: Callable[[Any], Any], prefix: bytes) -> Saved:
    core.committer.drive(ticket)
    try:
        written = ticket.outcome()
    except _Overtaken:
        return Saved("overtaken")
    except _Moved:
        return Saved("moved")
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
