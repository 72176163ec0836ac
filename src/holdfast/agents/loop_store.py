"""What a loop does to the store: checkpoints, restarts, reports. All of it blocks.

Under `$loop/`, which restores leave alone, lies the note of a restart that is asked for. It is
written before anything is undone and removed when all of it is done: whichever process runs the
agent next finishes a restart that was cut short. Until then no rule of retention removes the
checkpoint: a mark among the pins of the scope, written and removed with the note, says so.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from holdfast.agents.keys import AGENT, LOOP, own_change, sticky
from holdfast.agents.looping import LoopSettings
from holdfast.agents.mailbox_keeping import Box
from holdfast.agents.retrying import again
from holdfast.checkpoints.making import beside_pruning, make
from holdfast.checkpoints.marks import PREFIX, stand
from holdfast.checkpoints.marks import RESTART as ASKED
from holdfast.checkpoints.requests import CheckpointRequest
from holdfast.checkpoints.restoring import confirm
from holdfast.checkpoints.retention import Retention
from holdfast.checkpoints.rules import Rule
from holdfast.checkpoints.saving import Wanted, save_all
from holdfast.errors import (
    CheckpointNotFoundError,
    MissingError,
    NotConfirmedError,
    PointNotFoundError,
)
from holdfast.store.arguments import check_own
from holdfast.store.blocking import State, Store
from holdfast.store.handles import ChangeParts, LineHandle, StoreHandle
from holdfast.store.history import Plan
from holdfast.store.items import Checkpoint, Restored
from holdfast.store.reading import moment
from holdfast.store.sticky import sticky_prefixes
from holdfast.store.writing import ScopedChange

log = logging.getLogger("holdfast.loop")

RESTART = LOOP + "restart"
ATTACHED = AGENT + "attached"
"""The agent's own fields, of which the agent itself keeps or drops single ones."""
PAGE = 1000


@dataclass(frozen=True, slots=True)
class Restart:
    """A restart that is asked for: from which checkpoint, and whether with clean context."""

    checkpoint: str
    clean: bool
    reason: str


class LoopStore:
    """One timeline, as a loop uses it."""

    def __init__(
        self,
        handle: LineHandle,
        settings: LoopSettings,
        retention: Mapping[str, Rule] | None,
        report_to: LineHandle | None,
    ) -> None:
        self._handle = handle
        self._state = State(handle)
        self._settings = settings
        self._retention = None
        if retention is not None:
            self._retention = Retention(Store(StoreHandle(handle.core)), rules=retention)
        self._restored: Restored | None = None
        check_own(handle.core, "the state that report_to names", report_to)
        self._report_to = Box(report_to, 0, 1) if report_to is not None else None

    def commit(self, plan: Plan | None) -> Any:
        """Commit a change, if there is one."""
        if plan is None:
            return None
        change, finish = plan
        return finish(self._handle.core.run(change))

    # checkpoints

    def save(self, name: str, type: str, trigger: str) -> Checkpoint | None:
        """A checkpoint, if anything was written since the last one."""
        wanted = Wanted(self._handle.scope, self._handle.timeline, name, type, {"trigger": trigger})
        [saved] = save_all(self._handle.core, [wanted])
        if saved.error is not None:
            raise saved.error
        return saved.checkpoint

    def routine(self) -> Checkpoint | None:
        """The routine checkpoint; then those that are too many go, if that was asked for."""
        made = self.save("routine", "routine", "interval")
        if self._retention is not None:
            try:
                self._retention.run(self._handle.scope)
            except NotConfirmedError as error:
                log.warning("nothing was removed by retention: %s", error)
        return made

    def recovery(self, trigger: str, **about: Any) -> Checkpoint:
        """A recovery checkpoint, before anything is done about what went wrong."""
        request = CheckpointRequest(f"recovery: {trigger}", "recovery", trigger, metadata=about)
        made = make(self._handle, request)
        log.warning("%s: Recovery point created: %s", self._handle.scope, made.id)
        if self._report_to is not None:
            content = {"agent": str(self._handle.scope), "event": trigger, "checkpoint": made.id}
            sender = str(self._handle.scope)
            plan, _ = self._report_to.plan_send(content | about, sender, made.id)
            self.commit(plan)
        return made

    def last_good(self) -> Checkpoint:
        """The newest checkpoint that was not made because something went wrong."""
        for one in self._handle.history.checkpoints():
            if one.type != "recovery":  # as backups of restores are, too
                return one
        raise CheckpointNotFoundError(f"{self._handle.scope}: there is no checkpoint to restore")

    # restarts

    def ask_restart(self, checkpoint: Any, clean: bool, reason: str) -> None:
        """Note that the agent is to be started again from a checkpoint."""
        timeline, sequence = self._handle.history.points.find(checkpoint)
        point = f"{timeline}@{sequence}"
        note = {"checkpoint": point, "clean": clean, "reason": reason}
        note["time"] = moment(self._handle.core.clock.claimed())

        def step() -> None:  # as a pin does, it stands on the state that it is about
            parts = own_change(self._state, reason=f"restart: {reason}")
            part = self._unasked(parts)
            part.operations += sticky(self._handle, LOOP)
            part.set(RESTART, note)
            main = self._main(parts)
            main.operations += sticky(self._line(), PREFIX)
            main.set(_mark(point), reason)
            plan = parts.plan()
            assert plan is not None
            stand(self._line(), plan[0], point)
            self.commit(plan)

        beside_pruning(step)

    def _unasked(self, parts: ChangeParts) -> ScopedChange:
        """Note in a change that no restart is asked for, and that no checkpoint is held for one."""
        part = parts.part(self._handle)
        note = part.get(RESTART)
        if note is not None:
            part.delete(RESTART)
            self._main(parts).delete(_mark(note["checkpoint"]))
        return part

    def _main(self, parts: ChangeParts) -> ScopedChange:
        """Where the marks of retention lie, whichever timeline this is."""
        return parts.part(self._line())

    def _line(self) -> LineHandle:
        return StoreHandle(self._handle.core).line(self._handle.scope)

    def withdraw_restart(self) -> bool:
        """Take back that a restart is asked for; whether one was."""
        return self._no_restart("restart withdrawn")

    def _no_restart(self, reason: str) -> bool:
        def step() -> bool:
            parts = own_change(self._state, reason=reason)
            self._unasked(parts)
            plan = parts.plan()
            self.commit(plan)
            return plan is not None

        return again(step)

    def restart(self) -> Restart | None:
        """The restart that is asked for, by whomever."""
        note = self._handle.reader.get(RESTART, None, None, False)
        return Restart(note["checkpoint"], note["clean"], note["reason"]) if note else None

    def put_back(self, restart: Restart) -> None:
        """Let the state be that of the checkpoint, if it is not, and without what is to go."""
        alone = sticky_prefixes(self._handle.reader.declared())
        try:
            found = self._state.diff(restart.checkpoint).keys
            if any(not key.startswith(alone) for key in found):
                reason = f"restart: {restart.reason}"
                self._restored = self._state.restore(restart.checkpoint, reason=reason)
        except MissingError as error:
            raise PointNotFoundError(
                f"{self._handle.scope}: it is to be started again from {restart.checkpoint} "
                f"({restart.reason}), which is not there any more ({error}); call restart() of a "
                "Loop with another checkpoint, or withdraw_restart() to go on from what is saved"
            ) from error
        if restart.clean:
            self._clean()

    def _clean(self) -> None:
        for prefix in ("", AGENT):
            after = ""
            while page := self._state.keys(prefix, limit=PAGE, after=after):
                after = page[-1]
                parts = own_change(self._state, reason="clean context")
                part = parts.part(self._handle)
                for key in page:
                    if not key.startswith(ATTACHED) and not self._settings.survives(key):
                        part.delete(key)
                self.commit(parts.plan())

    def restarted(self) -> None:
        """Note that the restart is done, and has proved good: its backup is let go."""
        self._no_restart("restarted")
        if self._restored is not None:
            confirm(self._handle, self._restored)
            self._restored = None


def _mark(point: str) -> str:
    return f"{PREFIX}{ASKED}/{point}"


def joined(plan: Plan, more: Plan | None) -> Plan:
    """Two changes of the same timeline as one; the first may have other scopes behind its own."""
    if more is None:
        return plan
    change, finish = plan
    [target] = more[0].targets
    change.targets[0].ops += target.ops
    change.targets[0].expects |= target.expects

    def both(written: Any) -> Any:
        more[1](written)
        return finish(written)

    return change, both
