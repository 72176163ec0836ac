"""What a loop runs, and with what."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Any

from holdfast.agents.again import again
from holdfast.agents.agent_keys import AGENT, LOOP, own_change, sticky
from holdfast.agents.attached import METHODS
from holdfast.agents.drift import Keeping
from holdfast.agents.handover import HandoverBook
from holdfast.agents.loop.decide import LoopSettings
from holdfast.agents.mailbox import Box, Taken
from holdfast.checkpoints.create import make, release
from holdfast.checkpoints.group import Wanted, save_all
from holdfast.checkpoints.request import CheckpointRequest
from holdfast.checkpoints.retention import Retention, RetentionRule, stand
from holdfast.errors import (
    InvalidInputError,
    LeaseLostError,
    MissingError,
    NotConfirmedError,
    PointNotFoundError,
    StateIntegrityError,
    StoreClosedError,
)
from holdfast.store.inner import (
    DELETED,
    ChangeParts,
    LineHandle,
    Plan,
    Reader,
    ScopedChange,
    StoreHandle,
    beside_pruning,
    copied,
    held,
    mark_key,
    moment,
    same,
    sticky_prefixes,
)
from holdfast.store.inner import RESTART as ASKED
from holdfast.store.names.arguments import check_not_async, check_own, check_run, check_text
from holdfast.store.names.items import Checkpoint, Entry
from holdfast.store.state import State
from holdfast.store.store import Store

# ---- loop store ---------------------------------------------------------------------------------
# What a loop does to the store: checkpoints, restarts, reports. All of it blocks.
#
# Under `$loop/`, which restores leave alone, lies the note of a restart that is asked for. It is
# written before anything is undone and removed when all of it is done: whichever process runs the
# agent next finishes a restart that was cut short. Until then no rule of retention removes the
# checkpoint: a mark among the pins of the scope, written and removed with the note, says so.
#
# A refresh is a restart that goes on from the newest state: its checkpoint is there to go back to,
# and says what of the context is old. What anybody writes after it stays.


log = logging.getLogger("holdfast.loop")

ENDS = (LeaseLostError, StoreClosedError)
"""Errors after which trying again is in vain: another runs the agent, or the store is closed."""
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
    failed: bool = False
    """Because of an error: that the work failed is not forgotten."""
    restores: bool = True
    """Whether the state becomes that of the checkpoint; not of a refresh."""
    time: datetime | None = None
    """When it was asked for, by which one is told from another."""
    asked_at: int = field(default=0, compare=False)
    """The entry that asked for it; after a restore, that of the restore."""

    @property
    def cause(self) -> str:
        """The reason that the entries carry by which it is carried out."""
        return f"restart: {self.reason}"


class LoopStore:
    """One timeline, as a loop uses it."""

    def __init__(
        self,
        handle: LineHandle,
        settings: LoopSettings,
        retention: Mapping[str, RetentionRule] | None,
        report_to: LineHandle | None,
    ) -> None:
        self._handle = handle
        self._state = State(handle)
        self._settings = settings
        self._retention = None
        if retention is not None:
            self._retention = Retention(self._store(), rules=retention)
        check_own(handle.core, "the state that report_to names", report_to)
        self._report_to = Box(report_to, 0) if report_to is not None else None

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
        """A recovery checkpoint, before anything is done about what went wrong.

        That somebody cannot be told of it keeps nothing from being done.
        """
        request = CheckpointRequest(f"recovery: {trigger}", "recovery", trigger, metadata=about)
        made = make(self._handle, request)
        log.warning("%s: Recovery point created: %s", self._handle.scope, made.id)
        if self._report_to is not None:
            agent = str(self._handle.scope)
            content = {"agent": agent, "event": trigger, "checkpoint": made.id} | about
            try:
                self.commit(self._report_to.plan_send(content, agent, None)[0])
            except ENDS:
                raise
            except Exception as error:
                log.error("%s: no report of %s: %s", self._handle.scope, made.id, error)
        return made

    def last_good(self) -> Checkpoint | None:
        """The newest checkpoint that was not made because something went wrong.

        None if somebody restored the state since: what is of before that is not wanted any more.
        """
        history = self._handle.history
        for one in history.checkpoints():
            if one.type != "recovery":  # as backups of restores are, too
                restored = history.log(kind="restore", since=one.sequence + 1, limit=1)
                return None if restored else one
        return None

    # restarts

    def ask_restart(self, checkpoint: Any, clean: bool, reason: str) -> None:
        """Note that somebody wants the agent to be started again from a checkpoint."""
        self._ask(checkpoint, Restart("", clean, reason), instead=True)

    def ask_return(self, checkpoint: Any, clean: bool, reason: str, failed: bool) -> None:
        """The same for the loop itself; a restart that is asked for already comes first."""
        self._ask(checkpoint, Restart("", clean, reason, failed), instead=False)

    def ask_refresh(self, checkpoint: Any, clean: bool, reason: str) -> None:
        """Note that the loop wants to make the agent anew; as `ask_return`, but undoes nothing."""
        self._ask(checkpoint, Restart("", clean, reason, restores=False), instead=False)

    def _ask(self, checkpoint: Any, wanted: Restart, *, instead: bool) -> None:
        check_text(wanted.reason, "the reason of a restart", 1000)
        timeline, sequence = self._handle.history.points.find(checkpoint)
        point = f"{timeline}@{sequence}"
        note = {"checkpoint": point, "clean": wanted.clean, "reason": wanted.reason}
        note |= {"failed": wanted.failed, "restores": wanted.restores}
        note["timeline"] = self._handle.timeline
        note["time"] = moment(self._handle.core.clock.claimed())

        def step() -> None:  # as a pin does, it stands on the state that it is about
            parts = own_change(self._state, reason=wanted.cause)
            part = parts.part(self._handle)
            if self._is_own(part.get(RESTART)) and not instead:
                return
            self._unasked(parts)
            part.operations += sticky(self._handle, LOOP)
            part.set(RESTART, note)
            main = self._main(parts)
            main.set(mark_key(self._line(), ASKED, point), wanted.reason)
            plan = parts.plan()
            assert plan is not None
            stand(self._line(), plan[0], point)
            self.commit(plan)

        beside_pruning(step)

    def _unasked(self, parts: ChangeParts, asked_at: int | None = None) -> None:
        """Note in a change that no restart is asked for, and that no checkpoint is held for one."""
        part = parts.part(self._handle)
        note = part.get(RESTART)
        if self._is_own(note):
            part.delete(RESTART, if_version=asked_at)
            self._main(parts).delete(mark_key(self._line(), ASKED, note["checkpoint"]))

    def _main(self, parts: ChangeParts) -> ScopedChange:
        """Where the marks of retention lie, whichever timeline this is."""
        return parts.part(self._line())

    def _store(self) -> Store:
        return Store(StoreHandle(self._handle.core))

    def _line(self) -> LineHandle:
        return StoreHandle(self._handle.core).line(self._handle.scope)

    def withdraw_restart(self) -> bool:
        """Take back that a restart is asked for; whether one was."""

        def step() -> bool:
            parts = own_change(self._state, reason="restart withdrawn")
            self._unasked(parts)
            plan = parts.plan()
            self.commit(plan)
            return plan is not None

        return again(step)

    def restart(self) -> Restart | None:
        """The restart that is asked for, by whomever."""
        found = self._handle.reader.versioned([RESTART]).get(RESTART)
        if found is None or not self._is_own(found[0]):
            return None
        note, version = found
        return Restart(
            note["checkpoint"],
            note["clean"],
            note["reason"],
            note["failed"],
            note["restores"],
            note["time"],
            version,
        )

    def _is_own(self, note: Any) -> bool:
        """Whether a note is there, and not one that a fork took along from where it comes from."""
        return note is not None and note["timeline"] == self._handle.timeline

    def put_back(self, restart: Restart) -> None:
        """Let the state be as the restart wants it; done again, it changes nothing more."""
        try:
            if restart.restores:
                self._restore(restart)
            if restart.clean:
                self._clean(restart)
        except MissingError as error:
            raise PointNotFoundError(
                f"{self._handle.scope}: it is to be started again from {restart.checkpoint} "
                f"({restart.reason}), which is not there any more ({error}); call restart() of a "
                "Loop with another checkpoint, or withdraw_restart() to go on from what is saved"
            ) from error

    def _restore(self, restart: Restart) -> None:
        """Return to the checkpoint, once, and let tasks be where they were handed to since."""
        alone = sticky_prefixes(self._handle.reader.declared())
        found = self._state.diff(restart.checkpoint).keys
        # If it was restored before the restart was cut short, once more would undo more.
        if any(not key.startswith(alone) for key in found) and not self._restores(restart):
            self._state.restore(restart.checkpoint, reason=restart.cause)
        if self._handle.timeline == "main":  # a fork takes no part in handovers
            try:
                HandoverBook(self._store()).reconcile(self._handle)
            except StateIntegrityError as error:  # of what another keeps: that stops nobody here
                log.warning("%s: not reconciled with handovers: %s", self._handle.scope, error)

    def _restores(self, restart: Restart) -> list[Entry]:
        """The entries by which a restart was carried out, in whichever process."""
        wanted = (restart.checkpoint, restart.cause)
        done = self._handle.history.log(kind="restore", since=restart.asked_at, limit=None)
        return [one for one in done if (one.point, one.cause.reason) == wanted]

    def _clean(self, restart: Restart) -> None:
        """Remove what does not survive, as far as the checkpoint has it."""
        then = self._handle.view(restart.checkpoint).reader
        alone = (ATTACHED + "/", *sticky_prefixes(self._handle.reader.declared()))
        for prefix in ("", AGENT):
            after = ""
            while page := self._state.keys(prefix, limit=PAGE, after=after):
                after = page[-1]
                gone = [
                    key
                    for key in page
                    if key != ATTACHED
                    and not key.startswith(alone)
                    and not self._settings.survives(key)
                ]
                again(partial(self._let_go, gone, then))

    def _let_go(self, keys: list[str], then: Reader) -> None:
        parts = own_change(self._state, reason="clean context")
        part = parts.part(self._handle)
        versions = self._handle.reader.versions(keys)
        for key, version, old in zip(keys, versions, then.versions(keys), strict=True):
            if version == old and then.timeline == self._handle.timeline:
                part.delete(key, if_version=version)
            elif old:
                _without(part, key, then.get(key))
        self.commit(parts.plan())

    def restarted(self, restart: Restart) -> None:
        """Note that a restart is done, and has proved good: its backup is let go.

        One that was asked for meanwhile stays, and is the next.
        """
        self._confirm(restart)

        def step() -> None:
            found = self.restart()
            if found is not None and found == restart:
                parts = own_change(self._state, reason="restarted")
                self._unasked(parts, found.asked_at)
                self.commit(parts.plan())

        again(step)

    def _confirm(self, restart: Restart) -> None:
        """Before the note goes: whoever finishes a restart that was cut short does this, too."""
        before = {one.sequence - 1 for one in self._restores(restart)}  # by the same commit
        ids = [
            one.checkpoint.id
            for one in (held(self._handle, min(before)) if before else [])
            if one.why == "restore" and one.checkpoint.sequence in before
        ]
        if ids:
            release(self._handle, ids, "confirmed")


def _without(part: ScopedChange, key: str, old: Any) -> None:
    """Remove an old value; what was written since stays, of a list what came behind."""
    now = part.get(key, DELETED)
    if same(now, old):
        part.delete(key)
    elif isinstance(now, list) and isinstance(old, list) and same(now[: len(old)], old):
        part.trim(key, keep_last=len(now) - len(old))


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


# ---- loop run -----------------------------------------------------------------------------------


CALLED = ("step", "on_letter", "check_tasks")
"""What an agent has for a loop to call."""


@dataclass(frozen=True, slots=True)
class Running:
    """What a loop runs, and with what."""

    handle: LineHandle
    state: Any
    """Of the face that runs it: what a factory and letters are given."""
    agent: Any
    fields: tuple[str, ...] | None
    settings: LoopSettings
    store: LoopStore
    box: Box
    mail: Callable[[Any, Taken], Any]
    drift: Keeping | None
    awaits: bool
    """Whether the face awaits what the agent's functions give."""
    first: list[dict[str, Any] | None] = field(default_factory=list)
    """What an agent at hand held before it was first run here; None: what had been stored of it
    was given to it, and nobody knows."""

    def __post_init__(self) -> None:
        check_own(self.handle.core, "that drift", self.drift and self.drift._handle)

    @property
    def at_hand(self) -> bool:
        """Whether it is an agent, not what makes one."""
        return hasattr(self.agent, "step") and not isinstance(self.agent, type)

    def before(self) -> dict[str, Any]:
        """What an agent at hand is to hold where nothing is stored of it yet."""
        if self.first[0] is None:
            raise InvalidInputError(
                f"{self.handle.scope}: it is to be started again from before it was first saved, "
                "and the object that runs holds what came later; give the loop what makes the "
                "agent, a class or function, or call withdraw_restart()"
            )
        return copied(self.first[0])

    def check(self, agent: Any) -> None:
        """Refuse an agent whose functions would not have run when their call is over."""
        kind = type(agent).__name__
        if not callable(getattr(agent, "step", None)):
            raise InvalidInputError(f"a loop runs an agent with step(); {kind} has none")
        for name in CALLED:
            if callable(function := getattr(agent, name, None)):
                check_run(function, f"{name} of {kind}", awaited=self.awaits)
        for name in () if self.awaits else METHODS:
            check_not_async(getattr(agent, name, None), f"{name} of {kind}")
