"""The loop of an agent, told once for both faces.

`Turns.run` is a generator that asks for what it cannot do itself: to `Call` a function of the
agent, which may be async, to do `Work` on the store, which blocks, and to `Wait`. A face answers,
or throws the error in.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from functools import partial
from typing import Any

from holdfast.agents.attachment import Attachment
from holdfast.agents.drift_keeping import Keeping
from holdfast.agents.keys import ATTEMPTS
from holdfast.agents.loop_store import LoopStore, Restart, joined, log
from holdfast.agents.looping import (
    Clocks,
    LoopResult,
    LoopSettings,
    Worked,
    agent_by,
    step_of,
)
from holdfast.agents.mailbox_keeping import Box, Taken
from holdfast.agents.protocols import PersistentAgent
from holdfast.agents.retrying import again
from holdfast.errors import (
    Conflict,
    HoldfastError,
    InvalidInputError,
    LeaseLostError,
    StoreClosedError,
)
from holdfast.store.arguments import check_own
from holdfast.store.asking import Asking, given_back
from holdfast.store.copied import copied
from holdfast.store.handles import LineHandle
from holdfast.store.history import Plan
from holdfast.store.lease_names import running_lease
from holdfast.store.leasing import Lease

ENDS = (LeaseLostError, StoreClosedError)
"""Errors after which trying again is in vain: another runs the agent, or the store is closed."""
LAST = ("shutdown", "automatic", "shutdown")
"""Name, type and trigger of the checkpoint with which a loop ends."""

WAITS = "%s: another runs it, or was killed: waiting until its lease is given back or runs out"
"""Said once, so that nobody takes a loop that waits for one that hangs."""


@dataclass(frozen=True, slots=True)
class Call:
    """A function of the agent is to be called; if it is async, its answer is waited for."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True)
class Work:
    """A function that reads or writes the store, and blocks."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...] = ()
    undo: Callable[[Any], object] | None = None
    """Called with what it gave, if the loop was cancelled meanwhile."""


@dataclass(frozen=True, slots=True)
class Wait:
    """So many seconds are to pass, or the loop is to be stopped."""

    seconds: float


Asked = Call | Work | Wait
Part = Generator[Asked, Any, Any]


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

    def __post_init__(self) -> None:
        check_own(self.handle.core, "that drift", self.drift and self.drift._handle)


class Turns:
    """One run of a loop."""

    def __init__(self, running: Running) -> None:
        self._running = running
        self._handle = running.handle
        self._settings = running.settings
        self._store = running.store
        self._agent: Any = None
        self._kept: Attachment | None = None
        self._lease: Lease | None = None
        self._ticks = running.handle.core.clock.ticks
        self._clocks = Clocks(running.settings, self._ticks())
        self._new: dict[str, Any] | None = None
        """What the agent held before anything was restored, if some of it may not survive."""
        self._tries = 0
        """How often a letter has failed that ended the turn and will be tried again."""
        self.result = LoopResult()
        self.stopped = False
        """Set by whoever wants the loop to end after what it is doing."""

    def run(self) -> Generator[Asked, Any, LoopResult]:
        """The whole run: one holder of the lease, from its first to its last checkpoint."""
        self._lease = lease = yield from self._leased()
        if lease is None:
            self.result.outcome = "stopped"
            return self.result
        try:
            with lease.fencing():
                yield from self._begin()
                try:
                    while not self.result.outcome:
                        yield from self._turn()
                except BaseException as error:
                    yield from self._ended_by(error)
                    raise
                yield from self._end()
        finally:
            lease.release()
        return self.result

    def _leased(self) -> Generator[Asked, Any, Lease | None]:
        """The lease, which is waited for; None if the loop is stopped meanwhile."""
        name = running_lease(self._handle.scope, self._handle.timeline)
        duration = self._settings.lease
        asking = Asking(self._handle.core, name, duration, 2 * duration, None)
        told = False
        while not self.stopped:
            lease = yield Work(asking.take, undo=given_back)
            if lease is not None:
                return lease  # type: ignore[no-any-return]
            if not told:
                told = True
                log.warning(WAITS, self._handle.scope)
            yield Wait(asking.pause())
        return None

    # beginning and ending

    def _begin(self) -> Part:
        restart = yield Work(self._store.restart)
        if restart is not None:
            yield Work(self._store.put_back, (restart,))
        yield from self._made(restart)
        if self._kept is not None:
            yield from self._saved(self._kept.lives("running", started=True))
        yield from self._finished(restart)
        first = ("session start", "session_start", "start")
        yield from self._note_checkpoint(Work(self._store.save, first))
        self._clocks.refreshed(self._ticks())

    def _made(self, restart: Restart | None) -> Part:
        """The agent, made or at hand, with what is stored of it."""
        given = self._running.agent
        at_hand = hasattr(given, "step") and not isinstance(given, type)
        self._agent = given if at_hand else None
        if not at_hand:
            self._agent = yield Call(agent_by, (given, self._running.state))
            if not callable(getattr(self._agent, "step", None)):
                kind = type(self._agent).__name__
                raise InvalidInputError(f"a loop runs an agent with step(); {kind} has none")
        self._kept = self._attachment()
        if self._kept is not None:
            self._kept.begin("start")
            if self._settings.survive is not None and not (at_hand and self._new is not None):
                self._new = copied((yield Call(self._kept.take)))
            yield from self._loaded(restart)

    def _attachment(self) -> Attachment | None:
        """What keeps the agent; None if it keeps nothing of its own."""
        if self._running.fields is None and hasattr(self._agent, "set_state"):
            self._agent.set_state(self._running.state)  # a holdfast.Agent has its own
            return self._agent.kept._core  # type: ignore[no-any-return]
        if self._running.fields is None and not isinstance(self._agent, PersistentAgent):
            return None
        return Attachment(self._agent, self._handle, self._running.fields, self._lease)

    def _loaded(self, restart: Restart | None) -> Part:
        assert self._kept is not None
        values = yield Work(self._kept.load)
        if values is None:
            return
        if restart is not None and restart.clean and self._settings.survive is not None:
            stay = {name: one for name, one in values.items() if name in self._settings.survive}
            values = copied(self._new or {}) | stay
        yield Call(self._kept.give, (values,))
        if restart is not None or self._kept.interrupted:
            yield Call(self._kept.hook, ("handle_recovery",))
        yield from self._validated()

    def _validated(self) -> Part:
        assert self._kept is not None
        try:
            answer = yield Call(self._kept.hook, ("validate_state",))
        except Exception as error:
            raise self._kept.failed(error) from error
        self._kept.judge(answer)

    def _planned(self, life: Any = None) -> Part:
        """A change that stores what the agent holds, if that is fit for it; None for nothing.

        It is made where the agent's own functions run: none of its tasks changes anything between.
        """
        if self._kept is None:
            return None
        yield from self._validated()
        values = yield Call(self._kept.take)
        return (yield Call(partial(self._kept.plan_save, values, life, replaced=False)))

    def _saved(self, life: Any = None) -> Part:
        plan = yield from self._planned(life)
        yield Work(self._store.commit, (plan,))

    def _finished(self, restart: Restart | None) -> Part:
        if restart is None:
            return
        self.result.restarts += 1
        if self._running.drift is not None:
            yield Work(self._commit, (self._running.drift.reset,))
        yield Work(self._store.restarted)

    def _end(self) -> Part:
        """What the loop leaves behind: the agent saved and at rest, and a checkpoint of that.

        Of a restart, all that is as the next process needs it.
        """
        if self.result.outcome == "restart":
            return
        if self._kept is not None and self.result.outcome != "drifted":
            yield from self._saved(self._kept.lives("stopped"))
        yield from self._note_checkpoint(Work(self._store.save, LAST))

    def _ended_by(self, error: BaseException) -> Part:
        """Whatever ends the loop: what was saved stands, and becomes a checkpoint if it can be."""
        if isinstance(error, ENDS):
            return
        try:
            yield Work(self._leave, (error,))
        except HoldfastError as failure:
            error.add_note(f"{self._handle.scope}: no last checkpoint: {failure}")

    def _leave(self, error: BaseException) -> None:
        if self._kept is not None:
            self._store.commit(self._kept.plan_fail(error))
        self._store.save(*LAST)

    # turns

    def _turn(self) -> Part:
        """One cycle and what is due around it."""
        if self.stopped:
            self.result.outcome = "stopped"
            return
        self._tries = 0
        try:
            restart = yield Work(self._store.restart)
            if restart is not None:
                yield from self._restart(restart)
                return
            yield from self._due()
            if not self.result.outcome:
                yield from self._cycle()
        except ENDS:
            raise
        except Exception as error:
            yield from self._failed(error)

    def _due(self) -> Part:
        due = self._clocks.due(self._ticks())
        if due == "routine":
            yield from self._note_checkpoint(Work(self._store.routine))
            self._clocks.saved(self._ticks())
        elif due == "refresh":
            self._clocks.drifts = 0
            made = yield from self._note_checkpoint(Work(self._store.recovery, ("refresh",)))
            yield Work(self._store.ask_restart, (made.id, False, "refresh"))
            restart = yield Work(self._store.restart)
            yield from self._restart(restart)

    def _restart(self, restart: Restart) -> Part:
        """Go on from a checkpoint: here, with an agent made anew, or in another process."""
        self.result.checkpoint = restart.checkpoint
        if self._settings.restart == "process":
            self.result.outcome = "restart"
            return
        yield Work(self._store.put_back, (restart,))
        yield from self._made(restart)
        if self._kept is not None:
            yield from self._saved(self._kept.lives("running"))
        yield from self._finished(restart)
        self._clocks.refreshed(self._ticks())

    def _cycle(self) -> Part:
        begun = self._ticks()
        letters = yield from self._letters()
        check = getattr(self._agent, "check_tasks", None)
        if callable(check):
            yield Call(check)
        step = step_of((yield Call(self._agent.step)))
        yield from self._saved()
        self._clocks.errors = 0
        if step.done:
            self.result.outcome = "done"
        if step.idle and not letters:
            if not step.done:
                yield Wait(self._clocks.pause(self._ticks()))
            return
        self.result.cycles += 1
        yield from self._judged(step, self._ticks() - begun, failed=False)

    def _letters(self) -> Generator[Asked, Any, int]:
        work = getattr(self._agent, "on_letter", None)
        count = conflicts = 0
        while callable(work) and count < self._settings.letters and not self.stopped:
            taken = yield Work(self._running.box.take)
            if taken is None:
                break
            try:
                yield Call(work, (self._running.mail(self._running.state, taken),))
                saved = yield from self._planned()
                yield Work(self._done, (taken, saved))
            except Conflict:
                conflicts += 1
                if conflicts == ATTEMPTS:
                    raise
                yield from self._put_back()
                continue
            except Exception as error:
                yield Work(self._letter_failed, (taken, error))
                self._tries = 0 if self._running.box.last_try(taken) else taken.letter.tries + 1
                raise
            count, conflicts = count + 1, 0
            self.result.letters += 1
        return count

    def _done(self, taken: Taken, saved: Plan | None) -> None:
        """A letter is done, what it led to and what the agent holds now: one change."""
        self._store.commit(joined(self._running.box.plan_done(taken), saved))

    def _letter_failed(self, taken: Taken, error: Exception) -> None:
        self._commit(lambda: self._running.box.plan_failed(taken, error))

    def _judged(self, step: Worked, seconds: float | None, *, failed: bool) -> Part:
        """Note the cycle; if it shows a drift, do about it what is to be done."""
        drift = self._running.drift
        if drift is None:
            return
        fields = {
            "action": step.action,
            "task": step.task,
            "progress": step.progress,
            "seconds": seconds,
            "failed": failed,
            "signals": dict(step.signals),
        }
        alarms = yield Work(self._noted, (drift, fields))
        if not alarms or self.result.outcome:
            return
        self.result.alarms = alarms
        log.warning("%s: drift: %s", self._handle.scope, ", ".join(one.kind for one in alarms))
        about = {"kinds": [one.kind for one in alarms], "why": [one.why for one in alarms]}
        made = yield from self._note_checkpoint(
            Work(lambda: self._store.recovery("drift", **about))
        )
        choice = self._settings.on_drift
        if callable(choice):
            choice = yield Call(choice, (alarms,))
        if choice == "refresh" and self._clocks.drifted():
            self.result.outcome = "drifted"
        elif choice == "refresh":
            yield Work(self._store.ask_restart, (made.id, True, "drift"))

    def _noted(self, drift: Keeping, fields: dict[str, Any]) -> Any:
        found: list[Any] = []

        def plan() -> Any:
            made, found[:] = drift.note(fields)
            return made

        self._commit(plan)
        return found

    # errors

    def _failed(self, error: Exception) -> Part:
        """A recovery checkpoint, a pause, and on from what is saved; or the end, after too many."""
        kind = type(error).__name__
        self.result.errors += 1
        log.error("%s: Error during operation: %s", self._handle.scope, kind, exc_info=error)
        wait = self._clocks.failed(self._tries)
        try:
            yield from self._judged(Worked(), None, failed=True)
            made = yield from self._note_checkpoint(
                Work(lambda: self._store.recovery("error", error=kind))
            )
            error.add_note(f"{self._handle.scope}: recovery checkpoint {made.id}")
            if wait is not None and self._settings.on_error == "restore":
                good = yield Work(self._store.last_good)
                yield Work(self._store.ask_restart, (good.id, False, "error"))
            elif wait is not None:
                yield from self._put_back()
        except ENDS:
            raise
        except HoldfastError as failure:
            log.error("%s: nothing could be saved after it: %s", self._handle.scope, failure)
        if wait is None:
            error.add_note(f"{self._handle.scope}: {self._clocks.errors} errors in a row; gave up")
            raise error
        yield Wait(wait)

    def _put_back(self) -> Part:
        """Let the agent hold what is saved: what a failed cycle changed in it is gone."""
        if self._kept is not None:
            values = yield Work(self._kept.load)
            if values is not None:
                yield Call(self._kept.give, (values,))

    # storing

    def _commit(self, planned: Callable[[], Any]) -> None:
        """Commit what rests on reads; planned again when somebody was faster."""
        again(lambda: self._store.commit(planned()))

    def _note_checkpoint(self, work: Work) -> Part:
        made = yield work
        if made is not None:
            self.result.checkpoint = made.id
        return made
