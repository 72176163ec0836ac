"""Retention on the async face: what reads or writes runs on a thread."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdfast.checkpoints import retention as blocking
from holdfast.checkpoints.retention import RetentionPlan
from holdfast.checkpoints.retention_rules import Rule
from holdfast.store.names.items import Checkpoint, Pruned
from holdfast.store.names.threads import read_away, to_the_end


class Retention:
    """The retention of a store's checkpoints and of its past.

    `rules` take the place of the default ones, by type: `{"manual": Rule(max_count=10)}`.
    """

    def __init__(self, store: Any, *, rules: Mapping[str, Rule] | None = None) -> None:
        self._blocking = blocking.Retention(store, rules=rules)

    async def plan(self, scope: Any) -> RetentionPlan:
        """What would go, and why; nothing is changed."""
        return await read_away(self._blocking.plan, scope)

    async def run(self, what: RetentionPlan | Any, *, confirm: bool = False) -> list[Pruned]:
        """Prune what a plan says, or a new plan of a scope; what has to stay by now stays.

        `confirm=True` answers the questions of the plan; else they are raised as
        `NotConfirmedError`.
        """
        return await to_the_end(self._blocking.run, what, confirm=confirm)

    async def end(self, scope: Any, timeline: str, reason: str | None = None) -> Pruned:
        """End a timeline that nothing needs: a trial, a simulation, a failed import.

        The chain says so, then its content is dropped; its name is not used again. Refused, with
        `StillNeededError`, if a checkpoint of it is pinned, on hold or of an operation that is not
        over, or if any other timeline uses something of it. Cut short, end it again.
        """
        return await to_the_end(self._blocking.end, scope, timeline, reason)

    async def pin(self, checkpoint: Checkpoint, reason: str = "pinned") -> None:
        """Keep a checkpoint whatever the rules say, until it is unpinned."""
        await to_the_end(self._blocking.pin, checkpoint, reason)

    async def unpin(self, checkpoint: Checkpoint) -> bool:
        """Take a pin back; tells whether there was one."""
        return await to_the_end(self._blocking.unpin, checkpoint)

    async def hold(self, checkpoint: Checkpoint, reason: str) -> None:
        """Put a legal hold on a checkpoint: no rule and no unpinning removes it."""
        await to_the_end(self._blocking.hold, checkpoint, reason)

    async def lift(self, checkpoint: Checkpoint) -> bool:
        """Lift a hold; tells whether there was one."""
        return await to_the_end(self._blocking.lift, checkpoint)

    async def clear(self, checkpoint: Checkpoint, reason: str = "cleared") -> None:
        """Let a checkpoint go when retention is run next, whatever its rule says.

        Not one that is pinned, on hold or needed: that stays until it no longer is.
        """
        await to_the_end(self._blocking.clear, checkpoint, reason)

    async def marked(self, scope: Any) -> dict[str, str]:
        """Ids of the checkpoints of a scope that are pinned or on hold, and why."""
        return await read_away(self._blocking.marked, scope)
