"""A procedure at work: its steps in order, each with its time, then its checks; undone if it fails.

Steps run in threads, as many as run side by side. A step that takes too long is given up: nothing
that it writes later is taken, and the recovery goes on or ends without it. Python cannot end the
thread itself; it runs until it returns.
"""

from __future__ import annotations

import contextvars
import copy
import queue
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from typing import Any, NoReturn, TypeVar

from holdfast.errors import (
    CheckpointNotFoundError,
    CriticalStepFailureError,
    HoldfastError,
    InvalidInputError,
    LeaseLostError,
    MissingError,
    RecoveryFailedError,
    RecoveryValidationError,
    StateIntegrityError,
    Unavailable,
)
from holdfast.recovery.changes_of_others import changed_since, named, theirs
from holdfast.recovery.context import Context, StepFunction
from holdfast.recovery.failures import log
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
from holdfast.store.inner import lease_name, leases_now, moment
from holdfast.store.names.threads import called
from holdfast.store.store import Store

T = TypeVar("T")
LEASE = 30.0
"""Seconds after which the recovery of a process that died can be taken up by another."""


def recovering_lease(agent: object) -> str:
    """The lease under which an agent is recovered, one recovery at a time."""
    return lease_name("recovery", str(agent))


def recovering(store: Store, agent: object, wait: float) -> AbstractContextManager[Any]:
    """A block under the lease of an agent's recovery."""
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
        run = partial(contextvars.copy_context().run, self._run)
        threading.Thread(target=run, name="holdfast-recovery", daemon=True).start()

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

SHORTEST_PAUSE, LONGEST_PAUSE = 0.1, 60.0
"""Seconds between two attempts, at most; and at least, if storage does not answer."""
OUTAGE = 30.0
"""Seconds; after as long an outage of storage, leases are lost, too."""
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
        self._slots: list[Slot] = []
        self._idle: list[Slot] = []

    def run(self) -> None:
        """Do it; raises `RecoveryFailedError` if it did not succeed, after it was undone.

        If storage does not answer just when something is to be kept, it goes on from what was
        done, as whoever takes up a recovery that was killed; it waits for `OUTAGE` in all.
        """
        pause, waited = max(self.procedure.backoff / 1000, SHORTEST_PAUSE), 0.0
        while True:
            try:
                if waited:
                    self.record.flush()  # what could not be kept before
                self._attempts()
                return
            except Unavailable as error:
                waited += pause
                if waited > OUTAGE or time.monotonic() + pause >= self._end:
                    raise
                log.warning("%s: recovery %s waits: %s", self.context.agent, self.record.id, error)
            finally:
                self._close()
            time.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    def _close(self) -> None:
        for slot in self._slots:  # what is still being done is refused if it writes
            slot.end()
        self._slots, self._idle = [], []

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
        text = f"{why}; it {undone}" if undone is not None else why + self._left()
        self.record.finish(ROLLED_BACK if undone is None else FAILED, text)

    def _attempts(self) -> None:
        pause = self.procedure.backoff / 1000
        while (why := self._attempt()) is not None:
            self.record.end_with_agent()  # then there is nothing to undo, or to try again
            verdict = self._broken.verdict if self._broken is not None else ""
            refused = verdict == REFUSED and self._another_is_next()
            if refused:
                self.record.note(hold=True, refusal=why)
            undone = self._roll_back(refused)
            if undone is not None:
                self._fail(f"{why}; it {undone}")
            rest = 0.0 if refused else pause  # then another state is next
            refusals = len(self.record.data.get("bad", ()))
            left = self.procedure.retries + 1 + refusals - self.record.attempt
            over = time.monotonic() + rest >= self._end
            if verdict == HOPELESS or (refused and self.context.failure.names_state):
                refusal = str(self.record.data.get("refusal", why))
                more = "" if refusal == why else f"; {why}"
                self._give_up(refusal, f"no other state is left to try{more}")
            if left <= 0 or over:
                self._give_up(why, "the time is used up" if left > 0 else "no attempt is left")
            if rest:
                time.sleep(rest)
                pause = min(2 * pause, LONGEST_PAUSE)
            self.record.note(attempt=self.record.attempt + 1)

    def _give_up(self, why: str, more: str) -> NoReturn:
        text = f"{why}; {more}{self._left()}"
        if self.record.unread:
            self.record.note(hold=True, lost=self.record.data.get("unread_lost"))
            stands = f"the state before could not be read: {self.record.unread} stands"
            self._fail(f"{text}; {stands}")
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
            self._part("steps", self.procedure.steps)
            self._part("validation", self.procedure.validation)
        except (CriticalStepFailureError, RecoveryValidationError) as error:
            # The attempt failed; it is undone by the caller.
            return str(error)
        restoring = [step.key for step in self.procedure.steps if step.type == RESTORE]
        results = self.context.results
        if restoring and not any(results[key].success for key in restoring):
            return f"nothing was restored: {restoring[0]}: {results[restoring[0]].error}"
        if self.record.gone is not None:
            self.record.end_with_agent()
            self.record.note()  # before it is told: then nobody finds it again
            tell_tail(self.context.handle, self.record.gone, self.record.id)
        self.record.finish(SUCCEEDED, "")
        return None

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
        if self._nothing_to_put_back():
            # A restore that failed behind its commit says nothing: then what was found does.
            lost = (self.context.had(RESTORE) or found).get("lost", "nothing")
            made = f"what {found.get('strategy', 'it')} made"
            head = self.context.handle.place()[2]  # that is what later attempts are undone to
            self.record.note(unread=made, unread_lost=lost, head=head)
            return None
        return self._undo()

    def _another_is_next(self) -> bool:
        """Whether the state that was found can be barred, so that another one is found instead.

        A step of a user's own may say nothing of what it found, or find the same again.
        """
        found = self.context.had(LOCATE)
        return found is not None and self.record.bars(found)

    def _nothing_to_put_back(self) -> bool:
        """Whether something was written over a state that could not be read."""
        backup = self.context.had(BACKUP)
        if backup is None or "why" not in backup or self.procedure.rollback:
            return False
        return bool(self.context.handle.place()[2] != self.record.data.get("head"))

    def _undo(self) -> str | None:
        steps = self.procedure.rollback
        known = all(step.type in self._types for step in steps)
        try:
            self._part("rollback", steps if steps and known else ROLLBACK)
        except CriticalStepFailureError as error:  # the undoing failed: told, and left as it is
            return f"could not be undone: {error}"
        return self._not_back()

    def _not_back(self) -> str | None:
        """What is not as it was before the recovery; None if all of it is.

        Steps of a rollback may come to their end and put nothing back.
        """
        head = self.record.data.get("head")
        try:
            if head is None:
                raise StateIntegrityError("the state before is not known")
            changed = changed_since(self.context.handle, head)
        except (MissingError, StateIntegrityError) as error:  # nothing to compare with
            return f"is not known to be undone, for that cannot be compared: {error}"
        left = theirs(self.context.handle, self.record)
        wrong = [key for key in changed if key not in left and "" not in left]
        return f"is not undone: other than before are the keys {named(wrong)}" if wrong else None

    def _left(self) -> str:
        """What others wrote meanwhile, which stands."""
        left = theirs(self.context.handle, self.record)
        return f"; others wrote meanwhile, and that stands: {named(left)}" if left else ""

    def _text(self, why: str) -> str:
        return f"{self.context.agent}: recovery {self.record.id} failed: {why}"

    # the steps of one part

    def _part(self, part: str, steps: tuple[RecoveryStep, ...]) -> None:
        """Do the steps, those that depend on none of the others side by side."""
        if not steps:
            return
        needs = self.procedure.needs(steps)
        done = self.record.done(part)
        waiting = {step.key: step for step in steps if step.key not in done}
        running: dict[Future[RecoveryStepResult], _Work] = {}
        ended = ((step, done[step.key]) for step in steps if step.key in done)
        broken = next((step for step, one in ended if step.critical and not one.success), None)
        while running or (waiting and broken is None):
            ready = [key for key in waiting if all(n in done for n in needs[key])]
            for key in ready if broken is None else ():
                step = waiting.pop(key)
                lost = next((n for n in needs[key] if not done[n].success), None)
                if lost is None:
                    work = self._begin(part, step)
                    running[work.future] = work
                    continue
                text, attempt = f"{lost} failed", self.record.attempt
                skipped = RecoveryStepResult(key, False, {}, text, 0.0, attempt, True)
                if not self._take(part, step, skipped, done):
                    broken = broken or step
            if running:
                step, result = self._next(running)
                if not self._take(part, step, result, done):
                    broken = broken or step
        if broken is not None:
            raise self._failure(part, broken, done[broken.key])

    def _begin(self, part: str, step: RecoveryStep) -> _Work:
        if step.type not in LOOKING and part != "rollback":
            self.record.end_with_agent()  # it would be brought back
        if not self._ours(step):
            self.record.flush()
        elif step.type != BACKUP:  # which keeps the beginning with the backup, in one commit
            self.record.keep()
        if not self._idle:
            self._idle.append(Slot())
            self._slots += self._idle
        return _Work(self, part, step, self._idle.pop())

    def _next(
        self, running: dict[Future[RecoveryStepResult], _Work]
    ) -> tuple[RecoveryStep, RecoveryStepResult]:
        """The next result: of a step that ended, or of one whose time is over."""
        first = min(running.values(), key=lambda work: work.end)
        ended = wait(running, max(0.0, first.end - time.monotonic()), FIRST_COMPLETED).done
        work = running.pop(ended.pop() if ended else first.future)
        if not work.future.done():
            return work.step, work.give_up()
        self._idle.append(work.slot)
        return work.step, work.future.result()

    def _ours(self, step: RecoveryStep) -> bool:
        """Whether a step sees to it that results are kept before it changes something."""
        return step.type in CAREFUL and self._types.get(step.type) is STEPS[step.type]

    def _failure(self, part: str, step: RecoveryStep, result: RecoveryStepResult) -> HoldfastError:
        self._broken = result
        if part == "validation":
            text = f"{RecoveryValidationError.TEXT}: {step.title}: {result.error}"
            error = RecoveryValidationError(text, self.record.id)
            return self.context.store.core.meter.invalid("recovery", error)
        text = f"{CriticalStepFailureError.TEXT}: {step.title} - {result.error}"
        return CriticalStepFailureError(text, self.record.id)

    def _take(
        self,
        part: str,
        step: RecoveryStep,
        result: RecoveryStepResult,
        done: dict[str, RecoveryStepResult],
    ) -> bool:
        hold = self._ours(step) and not result.result.get("restored")
        try:
            self.record.note_result(part, result, hold)
        except InvalidInputError as error:
            text = f"its result cannot be kept: {error}"
            result = replace(result, success=False, result={}, error=text)
            self.record.note_result(part, result)
        done[step.key] = result
        if part == "steps":
            self.context.results[step.key] = result
        self._tell(step.title, "done" if result.success else result.error)
        return result.success or not step.critical

    def _tell(self, step: str, what: str) -> None:
        """Tell whoever wants to know; if they cannot take it, the recovery goes on all the same."""
        if self._progress is None:
            return
        try:
            called(self._progress, step, what)
        except Exception:
            log.warning("%s: progress was not told", self.context.agent, exc_info=True)

    # one step

    def execute(self, step: RecoveryStep) -> dict[str, Any]:
        """What a step comes to."""
        answer = called(self._types[step.type], self.context, step.action)
        return dict(answer) if isinstance(answer, Mapping) else {}

    def verdict(self, part: str, step: RecoveryStep, error: BaseException) -> str:
        """What the error of a step says of the attempt, beside that it failed."""
        if step.type == LOCATE and isinstance(error, CheckpointNotFoundError):
            return HOPELESS
        checks = part == "validation" or step.type == VALIDATE
        said = isinstance(error, Exception | SystemExit)  # that of a check ends no process
        if checks and said and not isinstance(error, UNANSWERED):
            return REFUSED
        return ""

    def left(self) -> float:
        """Seconds until the procedure's time is over."""
        return self._end - time.monotonic()


class _Work:
    """A step in its slot."""

    def __init__(self, running: Running, part: str, step: RecoveryStep, slot: Slot) -> None:
        self._running = running
        self._part = part
        self.step = step
        self.slot = slot
        self._checked: dict[str, bool] = {}
        self._begun = time.monotonic()
        self._executed_at = moment(running.context.store.core.clock.claimed())
        seconds = step.timeout / 1000
        if part != "rollback":  # there is always time to undo
            seconds = min(seconds, max(0.0, running.left()))
        self.end = self._begun + seconds
        self.future = slot.do(self._run)

    def _run(self) -> RecoveryStepResult:
        running, step = self._running, self.step
        result: dict[str, Any] = {}
        error = verdict = ""
        try:
            result = running.execute(step)
            self._checked = {
                name: name in result and result[name] == wanted
                for name, wanted in step.validation.items()
            }
            for name in [name for name, good in self._checked.items() if not good]:
                raise RecoveryValidationError(f"its result is not valid: {name}")
        except LeaseLostError:
            error = "it was given up"
        except BaseException as wrong:  # also one that would end a process: here it ends a step
            error = f"{type(wrong).__name__}: {wrong}"[:1000]
            verdict = running.verdict(self._part, step, wrong)
        return self._result(not error, result, error, verdict)

    def _result(
        self, success: bool, result: dict[str, Any], error: str, verdict: str = ""
    ) -> RecoveryStepResult:
        return RecoveryStepResult(
            self.step.key,
            success,
            result,
            error,
            time.monotonic() - self._begun,
            self._running.record.attempt,
            verdict=verdict,
            validation=self._checked,
            executed_at=self._executed_at,
        )

    def give_up(self) -> RecoveryStepResult:
        """Its time is over: what it writes from now on is refused."""
        self.slot.end()
        return self._result(False, {}, f"it took more than {self.end - self._begun:.3g} s")
