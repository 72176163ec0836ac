"""A procedure at work: its steps in order, each with its time, then its checks; undone if it fails.

Steps run in a thread. A step that takes too long is given up: nothing that it writes later is
taken, and the recovery goes on or ends without it. Python cannot end the thread itself; it runs
until it returns.
"""

from __future__ import annotations

import contextvars
import copy
import queue
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, wait
from contextlib import AbstractContextManager, suppress
from typing import Any, NoReturn, TypeVar

from msgspec.structs import replace

from holdfast.errors import (
    CheckpointNotFoundError,
    CriticalStepFailureError,
    InvalidInputError,
    LeaseLostError,
    MissingError,
    RecoveryFailedError,
    RecoveryValidationError,
    StateIntegrityError,
)
from holdfast.recovery.changes_of_others import changed_since, some
from holdfast.recovery.context import Context, StepFunction
from holdfast.recovery.failure_kinds import log
from holdfast.recovery.lost_entries import tell_tail
from holdfast.recovery.procedure import ROLLBACK, Procedure, RecoveryStep
from holdfast.recovery.records import (
    FAILED,
    HOPELESS,
    REFUSED,
    ROLLED_BACK,
    SUCCEEDED,
    Record,
    RecoveryStepResult,
)
from holdfast.recovery.steps import CAREFUL, LOOKING, STEPS
from holdfast.recovery.strategies import UNANSWERED, VALIDATE
from holdfast.store.inner import announced, core_of, lease_name, leases_now, moment
from holdfast.store.names.threads import called
from holdfast.store.store import Store

T = TypeVar("T")
LEASE = 30.0
"""Seconds after which the recovery of a process that died can be taken up by another."""


def recovering_lease(agent: object) -> str:
    """The lease under which an agent is recovered, one recovery at a time."""
    return lease_name("recovery", str(agent))


def recovering(store: Store, agent: object, wait: float) -> AbstractContextManager[Any]:
    """A block under the lease of an agent's recovery; what it has lost is told there."""
    core_of(store).lanes.recovered.add(str(agent))
    return store.lease(recovering_lease(agent), duration=LEASE, wait=wait)


class Slot:
    """A thread that does one step after the other, under the lease of the recovery.

    It can be given up by itself, though the lease is held: what it does is under one of its own
    with the same token, which is over then.
    """

    def __init__(self) -> None:
        self._lease = copy.copy(leases_now()[-1])
        self._work: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        # A daemon: a step that hangs does not keep the process from ending. Starting one takes a
        # tenth of a millisecond, for a whole recovery most often.
        run = contextvars.copy_context().run
        threading.Thread(
            target=run, args=(self._run,), name="holdfast-recovery", daemon=True
        ).start()

    def do(self, work: Callable[[], T]) -> Future[T]:
        """Let the thread do something, and give what it gives or raises."""
        future: Future[T] = Future()

        def answered() -> None:
            try:
                future.set_result(work())
            except BaseException as error:  # raised where it is waited for
                future.set_exception(error)

        self._work.put(answered)
        return future

    def _run(self) -> None:
        with self._lease.fencing():
            while (work := self._work.get()) is not None:
                work()

    def end(self) -> None:
        """What it writes from now on is refused; its thread ends once its step returns.

        What is on its way is stored before whatever this process commits next, which is that it
        was given up, or what undoes it.
        """
        self._lease.over = True
        self._work.put(None)


# a procedure at work

LONGEST_PAUSE = 60.0
"""Seconds between two attempts, at most."""
BACKUP, LOCATE, RESTORE = "backup_current", "locate_checkpoint", "restore_state"
Progress = Callable[[str, str], Any]
"""Gets the title of each step that ended, and how; may be async."""


class Running:
    """One recovery, from where it stands to its end."""

    def __init__(
        self,
        context: Context,
        types: Mapping[str, StepFunction],
        progress: Progress | None = None,
    ) -> None:
        self.context = context
        self.record: Record = context.record
        self.procedure: Procedure = context.record.procedure
        self._types = types
        self._progress = progress
        self._end = time.monotonic() + self.procedure.timeout / 1000
        self._broken: RecoveryStepResult | None = None
        """What the step came to that ended this attempt."""
        self._slot: Slot | None = None

    def run(self) -> None:
        """Do it; raises `RecoveryFailedError` if it did not succeed, after it was undone.

        If storage does not answer just when something is to be kept, that is raised, and whoever
        resumes it goes on from what was done.
        """
        try:
            self._attempts()
        finally:
            self._close()

    def _close(self) -> None:
        if self._slot is not None:  # what is still being done is refused if it writes
            self._slot.end()
            self._slot = None

    def abandon(self, why: str) -> None:
        """End it without going on, and undo it; then it is over, and another can be begun.

        Steps that are not known here may have changed the state without leaving a result, and
        a rollback that needs them cannot be done: the state before is put back.
        """
        self.record.end_with_agent()
        self.context.results = self.record.done("steps")
        try:
            undone = self._undo()
        finally:
            self._close()
        text = f"{why}; it {undone}" if undone is not None else why
        self.record.finish(ROLLED_BACK if undone is None else FAILED, text)

    def _attempts(self) -> None:
        pause = self.procedure.backoff / 1000
        while (why := self._attempt()) is not None:
            self.record.end_with_agent()  # then there is nothing to undo, or to try again
            verdict = self._broken.verdict if self._broken is not None else ""
            # Whether the state that was found can be barred, so that another one is found instead:
            # a step of a user's own may say nothing of what it found, or find the same again.
            found = self.context.had(LOCATE) if verdict == REFUSED else None
            refused = found is not None and self.record.bars(found)
            if refused:
                self.record.note(hold=True, refusal=why)
            undone = self._roll_back(refused)
            if undone is not None:
                self._fail(f"{why}; it {undone}")
            rest = 0.0 if refused else pause  # then another state is next
            refusals = len(self.record.data.bad)
            left = self.procedure.retries + 1 + refusals - self.record.attempt
            over = time.monotonic() + rest >= self._end
            if verdict == HOPELESS or (refused and self.context.failure.names_state):
                refusal = self.record.data.refusal or why
                more = "" if refusal == why else f"; {why}"
                self._give_up(refusal, f"no other state is left to try{more}")
            if left <= 0 or over:
                self._give_up(why, "the time is used up" if left > 0 else "no attempt is left")
            if rest:
                time.sleep(rest)
                pause = min(2 * pause, LONGEST_PAUSE)
            self.record.note(attempt=self.record.attempt + 1)

    def _give_up(self, why: str, more: str) -> NoReturn:
        text = f"{why}; {more}"
        if stands := self.record.data.unread:
            self._fail(f"{text}; the state before could not be read: {stands} stands")
        self.record.finish(ROLLED_BACK, text)
        kinds = (RecoveryValidationError, CriticalStepFailureError)
        kind = next((one for one in kinds if why.startswith(one.TEXT)), RecoveryFailedError)
        raise kind(self._text(f"{text}; the state before it is back"), self.record.id)

    def _fail(self, text: str) -> NoReturn:
        self.record.finish(FAILED, text)
        raise RecoveryFailedError(self._text(text), self.record.id)

    def _attempt(self) -> str | None:
        """One attempt; why it failed, None if it did not."""
        self.context.results = self.record.done("steps")
        self._broken = None
        try:
            results = self._part("steps", self.procedure.steps)
            checked = self._part("validation", self.procedure.validation)
        except (CriticalStepFailureError, RecoveryValidationError) as error:
            # The attempt failed; it is undone by the caller.
            return str(error)
        if (missed := self._missed(results, checked)) is not None:
            return missed
        self.record.end_with_agent()
        if self.record.data.gone is not None:
            self.record.note()  # before it is told: then nobody finds it again
            tell_tail(self.context.handle, self.record.data.gone, self.record.id)
        with suppress(StateIntegrityError):  # its procedure was to mend something else
            self.record.note(hold=True, root=self.context.handle.root())
        self.record.finish(SUCCEEDED, "")
        return None

    def _missed(
        self, results: Mapping[str, RecoveryStepResult], checked: Mapping[str, RecoveryStepResult]
    ) -> str | None:
        """Why the procedure did not come to what it is for, though no critical step failed; None if
        it did: a state is put back, if it restores one, and no check has refused it."""
        for one in (*results.values(), *checked.values()):
            if one.verdict == REFUSED:
                self._broken = one
                return f"{RecoveryValidationError.TEXT}: {one.step}: {one.error}"
        steps = self.procedure.steps
        meant = [step.key for step in steps if step.type == RESTORE] or list(results)
        if any(results[key].success for key in meant):
            return None
        what = "restored" if any(step.type == RESTORE for step in steps) else "done"
        return f"nothing was {what}: {meant[0]}: {results[meant[0]].error}"

    def _roll_back(self, refused: bool) -> str | None:
        """Undo the attempt; why that failed, None if it did not.

        What a check refused is not put back again in the same way; anything else may be: that a
        step failed, or a check could not be made, says nothing of the state.
        """
        results = self.context.results
        checked = self.record.done("validation")  # a check of a user's own may have written
        begun = [step for step in self.procedure.steps if step.key in results]
        tried = [step for step in self.procedure.validation if step.key in checked]
        if all(step.type in LOOKING and self._ours(step) for step in (*begun, *tried)):
            return None  # nothing was changed yet
        found = self.context.had(LOCATE) or {}
        restoring = any(step.type == RESTORE for step in begun)
        if refused and restoring and self._broken is not None:
            self.record.bar(found, self._broken.error)
        now = self.context.handle.place()[2]
        unread = "why" in (self.context.had(BACKUP) or {}) and not self.procedure.rollback
        if unread and now != self.record.data.head:
            # The state before cannot be read, so what was made of it stands, and the next attempt
            # goes on from that. A restore that failed behind its commit says nothing of it.
            lost = (self.context.had(RESTORE) or found).get("lost")
            made = f"what {found.get('strategy', 'it')} made"
            self.record.note(unread=made, unread_lost=lost, head=now)
            return None
        return self._undo()

    def _undo(self) -> str | None:
        steps = self.procedure.rollback
        known = all(step.type in self._types for step in steps)
        core, about = self.context.store.core, {"scope": str(self.context.agent)}
        try:
            with announced(core, "rollback.", **about, recovery=self.record.id):
                self._part("rollback", steps if steps and known else ROLLBACK)
        except CriticalStepFailureError as error:  # the undoing failed: told, and left as it is
            return f"could not be undone: {error}"
        # Steps of a rollback may come to their end and put nothing back.
        head = self.record.data.head
        try:
            if head is None:
                raise StateIntegrityError("the state before is not known")
            wrong = changed_since(self.context.handle, head)
        except (MissingError, StateIntegrityError) as error:  # nothing to compare with
            return f"is not known to be undone, for that cannot be compared: {error}"
        keys = some(sorted(wrong))
        return f"is not undone: other than before are the keys {keys}" if wrong else None

    def _text(self, why: str) -> str:
        return f"{self.context.agent}: recovery {self.record.id} failed: {why}"

    # the steps of one part

    def _part(self, part: str, steps: tuple[RecoveryStep, ...]) -> dict[str, RecoveryStepResult]:
        """Do the steps, each behind those that it waits for; one that was done before is not."""
        needs = self.procedure.needs(steps)
        done = self.record.done(part)
        waiting = {step.key: step for step in steps}
        while waiting:
            # The first that can be done: a step waits for the one before it, or for those it names.
            key = next(key for key in waiting if not waiting.keys() & set(needs[key]))
            step = waiting.pop(key)
            if key not in done:
                # Only what names a step that failed is left out, not what comes after it.
                lost = next((n for n in step.dependencies or () if not done[n].success), None)
                if lost is None:
                    result = self._do(part, step)
                else:
                    text, attempt = f"{lost} failed", self.record.attempt
                    result = RecoveryStepResult(key, False, {}, text, 0.0, attempt, True)
                done[key] = self._take(part, step, result)
            if step.critical and not done[key].success:
                self._broken, id_ = done[key], self.record.id
                if part == "validation":
                    text = f"{RecoveryValidationError.TEXT}: {step.title}: {done[key].error}"
                    error = RecoveryValidationError(text, id_)
                    raise self.context.store.core.meter.invalid("recovery", error)
                text = f"{CriticalStepFailureError.TEXT}: {step.title} - {done[key].error}"
                raise CriticalStepFailureError(text, id_)
        return done

    def _do(self, part: str, step: RecoveryStep) -> RecoveryStepResult:
        if step.type not in LOOKING and part != "rollback":
            self.record.end_with_agent()  # it would be brought back
        if not self._ours(step):
            self.record.flush()
        elif step.type != BACKUP:  # which keeps the beginning with the backup, in one commit
            self.record.keep()
        begun, at = time.monotonic(), moment(self.context.store.core.clock.claimed())
        seconds = step.timeout / 1000
        if part != "rollback":  # there is always time to undo
            seconds = min(seconds, max(0.0, self._end - begun))
        self._slot = self._slot or Slot()
        future = self._slot.do(lambda: self._execute(part, step))
        wait([future], seconds)
        late = f"it took more than {seconds:.3g} s"
        made = RecoveryStepResult(step.key, False, {}, late, 0.0, self.record.attempt)
        if future.done():
            made = future.result()
        else:  # its time is over: what it writes from now on is refused
            self._close()
        return replace(made, seconds=time.monotonic() - begun, executed_at=at)

    def _execute(self, part: str, step: RecoveryStep) -> RecoveryStepResult:
        """What a step comes to, in its thread."""
        result, checked, error, verdict = dict[str, Any](), dict[str, bool](), "", ""
        try:
            answer = called(self._types[step.type], self.context, step.action)
            result = dict(answer) if isinstance(answer, Mapping) else {}
            checked = {
                name: name in result and result[name] == wanted
                for name, wanted in step.validation.items()
            }
            for name in [name for name, good in checked.items() if not good]:
                raise RecoveryValidationError(f"its result is not valid: {name}")
        except LeaseLostError:
            error = "it was given up"
        except BaseException as wrong:  # also one that would end a process: here it ends a step
            error = f"{type(wrong).__name__}: {wrong}"[:1000]
            checks = part == "validation" or step.type == VALIDATE
            said = isinstance(wrong, Exception | SystemExit)  # that of a check ends no process
            if step.type == LOCATE and isinstance(wrong, CheckpointNotFoundError):
                verdict = HOPELESS
            elif checks and said and not isinstance(wrong, UNANSWERED):
                verdict = REFUSED
            elif step.type == RESTORE and step.critical and isinstance(wrong, StateIntegrityError):
                verdict = REFUSED  # it cannot be put back: another one may
        attempt = self.record.attempt
        return RecoveryStepResult(
            step.key, not error, result, error, 0.0, attempt, verdict=verdict, validation=checked
        )

    def _ours(self, step: RecoveryStep) -> bool:
        """Whether a step sees to it that results are kept before it changes something."""
        return step.type in CAREFUL and self._types.get(step.type) is STEPS[step.type]

    def _take(
        self, part: str, step: RecoveryStep, result: RecoveryStepResult
    ) -> RecoveryStepResult:
        hold = self._ours(step) and not result.result.get("restored")
        try:
            self.record.note_result(part, result, hold)
        except InvalidInputError as error:
            text = f"its result cannot be kept: {error}"
            result = replace(result, success=False, result={}, error=text)
            self.record.note_result(part, result)
        if part == "steps":
            self.context.results[step.key] = result
        try:
            if self._progress is not None:
                called(self._progress, step.title, "done" if result.success else result.error)
        except Exception:  # who cannot take it keeps no recovery from going on
            log.warning("%s: progress was not told", self.context.agent, exc_info=True)
        return result
