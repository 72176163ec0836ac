"""A procedure at work: its steps in order, each with its time, then its checks; undone if it fails.

Each step runs on a thread of its own under a lease of its own. One that takes too long is given up:
its lease is broken, so nothing that it writes later is taken, and the recovery goes on or ends
without it. Python cannot end the thread itself; it runs until it returns.
"""

from __future__ import annotations

import contextvars
import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from holdfast.errors import (
    CriticalStepFailureError,
    HoldfastError,
    InvalidInputError,
    LeaseHeldError,
    LeaseLostError,
    RecoveryFailedError,
    RecoveryValidationError,
)
from holdfast.recovery.background import called
from holdfast.recovery.context import Context, StepFunction
from holdfast.recovery.procedure import ROLLBACK, Procedure, RecoveryStep
from holdfast.recovery.records import FAILED, ROLLED_BACK, SUCCEEDED, Record, RecoveryStepResult
from holdfast.store.blocking import Store
from holdfast.store.reading import moment

LONGEST_PAUSE = 60.0
"""Seconds between two attempts, at most."""
STEP_LEASE = 30.0

Progress = Callable[[str, str], None]


def lease_name(agent: object) -> str:
    """The lease under which an agent is recovered, one recovery at a time."""
    return f"recovery/{agent}"


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
        self._store = Store(context.store)
        self._end = time.monotonic() + self.procedure.timeout / 1000

    def run(self) -> None:
        """Do it; raises `RecoveryFailedError` if it did not succeed, after it was undone."""
        pause = self.procedure.backoff / 1000
        while True:
            why = self._attempt()
            if why is None:
                return
            left = self.procedure.retries + 1 - self.record.attempt
            over = time.monotonic() + pause >= self._end
            undone = self._roll_back()
            if undone is not None:
                text = f"{why}; it could not be undone: {undone}"
                self._finish(FAILED, text)
                raise RecoveryFailedError(self._text(text), self.record.id) from None
            if left <= 0 or over:
                more = "the time is used up" if over and left > 0 else "no attempt is left"
                self._finish(ROLLED_BACK, f"{why}; {more}")
                raise self._error(why, more)
            time.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)
            self.record.note(attempt=self.record.attempt + 1)

    def _attempt(self) -> str | None:
        """One attempt; why it failed, None if it did not."""
        self.context.results = self.record.done("steps")
        try:
            self._part("steps", self.procedure.steps)
            self._part("validation", self.procedure.validation)
        except (CriticalStepFailureError, RecoveryValidationError) as error:
            return str(error)
        self._finish(SUCCEEDED, "")
        return None

    def _roll_back(self) -> str | None:
        """Undo the attempt; why that failed, None if it did not."""
        found = self.context.results.get("locate_checkpoint")
        point = found.result.get("point") if found is not None and found.success else None
        restored = any(
            step.type == "restore_state" and step.key in self.context.results
            for step in self.procedure.steps
        )
        if point and restored:
            self.record.note(bad=[*self.record.data.get("bad", ()), point])
        if not restored:
            return None  # nothing was changed yet
        try:
            self._part("rollback", self.procedure.rollback or ROLLBACK)
        except CriticalStepFailureError as error:
            return str(error)
        return None

    def _finish(self, status: str, why: str) -> None:
        now = moment(self.context.store.core.clock.claimed())
        self.record.note(status=status, why=why, finished_at=now)

    def _text(self, why: str) -> str:
        return f"{self.context.agent}: recovery {self.record.id} failed: {why}"

    def _error(self, why: str, more: str) -> RecoveryFailedError:
        text = f"{self._text(why)}; {more}; the state before it is back"
        kind = RecoveryFailedError
        if why.startswith(RecoveryValidationError.TEXT):
            kind = RecoveryValidationError
        elif why.startswith(CriticalStepFailureError.TEXT):
            kind = CriticalStepFailureError
        return kind(text, self.record.id)

    # the steps of one part

    def _part(self, part: str, steps: tuple[RecoveryStep, ...]) -> None:
        """Do the steps, those that depend on none of the others side by side."""
        needs = self.procedure.needs(steps)
        done = self.record.done(part)
        waiting = {step.key: step for step in steps if step.key not in done}
        slots = list(range(len(steps)))
        running: dict[str, _Work] = {}
        ended: queue.SimpleQueue[tuple[str, RecoveryStepResult]] = queue.SimpleQueue()
        broken = next((s for s in steps if s.critical and _failed(done.get(s.key))), None)
        while running or (waiting and broken is None):
            if broken is None:
                for key in [key for key in waiting if all(n in done for n in needs[key])]:
                    step = waiting.pop(key)
                    lost = next((n for n in needs[key] if not done[n].success), None)
                    if lost is not None:
                        text = f"{lost} failed"
                        skipped = RecoveryStepResult(
                            key, False, {}, text, 0.0, self.record.attempt, True
                        )
                        if not self._take(part, step, skipped, done):
                            broken = broken or step
                    else:
                        running[key] = _Work(self, part, step, slots.pop(0), ended)
            if not running:
                continue
            result = self._next(running, ended)
            work = running.pop(result.step)
            slots.insert(0, work.slot)
            if not self._take(part, work.step, result, done):
                broken = broken or work.step
        if broken is not None:
            raise self._failure(part, broken, done[broken.key])

    def _failure(self, part: str, step: RecoveryStep, result: RecoveryStepResult) -> HoldfastError:
        if part == "validation":
            text = f"{RecoveryValidationError.TEXT}: {step.title}: {result.error}"
            return RecoveryValidationError(text, self.record.id)
        text = f"{CriticalStepFailureError.TEXT}: {step.title} - {result.error}"
        return CriticalStepFailureError(text, self.record.id)

    def _take(
        self,
        part: str,
        step: RecoveryStep,
        result: RecoveryStepResult,
        done: dict[str, RecoveryStepResult],
    ) -> bool:
        try:
            self.record.note_result(part, result)
        except InvalidInputError as error:
            text = f"its result cannot be kept: {error}"
            result = replace(result, success=False, result={}, error=text)
            self.record.note_result(part, result)
        done[step.key] = result
        if part == "steps":
            self.context.results[step.key] = result
        if self._progress is not None:
            self._progress(step.title, "done" if result.success else result.error)
        return result.success or not step.critical

    def _next(self, running: dict[str, _Work], ended: Any) -> RecoveryStepResult:
        """The next result: of a step that ended, or of one whose time is over."""
        while True:
            first = min(running.values(), key=lambda work: work.end)
            try:
                key, result = ended.get(timeout=max(0.0, first.end - time.monotonic()))
            except queue.Empty:
                return first.give_up()
            if key in running:  # one that was given up may come to an end, too
                return result  # type: ignore[no-any-return]

    # one step

    def execute(self, step: RecoveryStep) -> dict[str, Any]:
        """What a step comes to."""
        answer = called(self._types[step.type], self.context, step.action)
        result = dict(answer) if isinstance(answer, Mapping) else {}
        for name, wanted in step.validation.items():
            if name not in result or result[name] != wanted:
                raise RecoveryValidationError(f"its result is not valid: {name}")
        return result

    @contextmanager
    def step_lease(self, name: str) -> Iterator[None]:
        """A step's own lease; whoever holds it is one that was given up, or of a process that died.

        For all steps are done by whoever holds the lease of the agent.
        """
        try:
            asked = self._store.lease(name, duration=STEP_LEASE, wait=0)
            asked.__enter__()
        except LeaseHeldError:
            self._store.break_lease(name)
            asked = self._store.lease(name, duration=STEP_LEASE, wait=STEP_LEASE)
            asked.__enter__()
        try:
            yield
        finally:
            asked.__exit__(None, None, None)

    def left(self) -> float:
        """Seconds until the procedure's time is over."""
        return self._end - time.monotonic()


class _Work:
    """A step on its thread."""

    def __init__(
        self, running: Running, part: str, step: RecoveryStep, slot: int, ended: Any
    ) -> None:
        self._running = running
        self.step = step
        self.slot = slot
        self._ended = ended
        self._begun = time.monotonic()
        seconds = step.timeout / 1000
        if part != "rollback":  # there is always time to undo
            seconds = min(seconds, max(0.0, running.left()))
        self.end = self._begun + seconds
        self._lease = f"{lease_name(running.context.agent)}/{slot}"
        context = contextvars.copy_context()
        name = f"recovery {step.key}"
        threading.Thread(target=context.run, args=(self._run,), name=name, daemon=True).start()

    def _run(self) -> None:
        running, step = self._running, self.step
        result: dict[str, Any] = {}
        error = ""
        try:
            with running.step_lease(self._lease):
                result = running.execute(step)
        except LeaseLostError:
            error = "it was given up"
        except Exception as wrong:
            error = f"{type(wrong).__name__}: {wrong}"[:1000]
        self._ended.put((step.key, self._result(not error, result, error)))

    def _result(self, success: bool, result: dict[str, Any], error: str) -> RecoveryStepResult:
        seconds = time.monotonic() - self._begun
        attempt = self._running.record.attempt
        return RecoveryStepResult(self.step.key, success, result, error, seconds, attempt)

    def give_up(self) -> RecoveryStepResult:
        """Its time is over: what it writes from now on is refused."""
        self._running._store.break_lease(self._lease)
        return self._result(False, {}, f"it took more than {self.end - self._begun:.3g} s")


def _failed(result: RecoveryStepResult | None) -> bool:
    return result is not None and not result.success
