"""Asking checks about a state: one that was recovered, or one that may be returned to.

A state that a check refuses is not to be returned to. So checks are asked of what returning to it
would give, with the sticky keys of now, on a timeline of its own (a trial) that is ended then with
all that a check wrote. Where there can be no trial (the newest state is damaged, or there is none),
and of what a repair would make (`keys`, `journal`, `defaults`, a strategy of a user's own), they
are asked once it is put back. A plan writes nothing: there they are asked of a view.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any

from holdfast.checkpoints.restore_request import Bringing, failed
from holdfast.errors import (
    Conflict,
    HoldfastError,
    InvalidInputError,
    LeaseLostError,
    MissingError,
    OutcomeUnknown,
    ReadOnlyError,
    RefusedError,
    StateIntegrityError,
    StoreClosedError,
    Unavailable,
)
from holdfast.recovery.changes_of_others import CHECK
from holdfast.recovery.failures import log
from holdfast.store.inner import LineHandle, end_line
from holdfast.store.names.cause import acting, cause_now
from holdfast.store.names.threads import called
from holdfast.store.state import State

VALIDATE = "validate_state"
"""The type of step that asks them."""
TRIAL = "recovery-trial-"
"""How the names of timelines begin on which checks are asked."""
_REASON = "a trial of a recovery"
UNANSWERED = (OSError, LeaseLostError, OutcomeUnknown, StoreClosedError, Unavailable)
"""Raised by a check that could not be made: that says nothing of the state, and is tried again."""


class Unasked(Unavailable):
    """A check could not be made."""


class Untried(HoldfastError):
    """There can be no trial of a state here; the text says why."""


def refusal(
    checks: Iterable[Callable[[Any], Any]], state: Any, *, later: bool = False
) -> str | None:
    """Why a state is refused; None if it is not.

    With `later` they are asked again once the state is put back: one that wants what there is only
    on the agent's own timeline, or in a state that is no view, refuses nothing now.
    """
    for check in checks:
        try:
            with acting(component=CHECK):
                why = failed(called(check, state))
        except OSError as error:  # its own outside does not answer
            text = f"a check could not be made: {type(error).__name__}: {error}"
            raise Unasked(text[:500]) from error
        except UNANSWERED:  # the store does not answer: no verdict
            raise
        except (Exception, SystemExit) as error:  # a check says no by raising, too
            unfit = later and _is_for_elsewhere(error, state)
            why = None if unfit else f"{type(error).__name__}: {error}"
        if why is not None:
            return why
    return None


def _is_for_elsewhere(error: BaseException, state: Any) -> bool:
    """Whether an error says that this is not the place to ask, and nothing of the state."""
    if isinstance(error, AttributeError):
        return error.obj is state
    # What derives from it says what is wrong with data.
    return type(error) is InvalidInputError or isinstance(error, ReadOnlyError)


class Trials:
    """Asks checks of one state of an agent after the other, on a timeline of its own.

    It is made when the first is asked about, and used again unless a check wrote to it; at the end
    of the block it is ended. Only for who holds the lease under which the agent is recovered.
    """

    def __init__(self, handle: LineHandle) -> None:
        self._handle = handle
        self._line: LineHandle | None = None
        self._head = 0
        """The newest entry of the agent that the timeline began with."""
        self.asked: dict[Any, str | None] = {}
        """What checks said of states."""

    def __enter__(self) -> Trials:
        return self

    def __exit__(self, *error: object) -> None:
        self._end()

    def refused(
        self,
        checks: Iterable[Callable[[Any], Any]],
        source: LineHandle,
        timeline: str,
        sequence: int,
    ) -> str | None:
        """Why what returning to a state of `source` would give is refused; None if it is not.

        Raises `Untried` if that cannot be had without putting it back.
        """
        try:
            line = self._put(source, timeline, sequence)
        except UNANSWERED:  # asked again by the next attempt
            raise
        except (Conflict, MissingError, RefusedError, StateIntegrityError) as error:
            # Asked once it is put back.
            raise Untried(str(error)) from error
        head = line.place()[2]
        try:
            return refusal(checks, State(line), later=True)
        finally:
            if line.place()[2] != head:
                self._end()

    def _put(self, source: LineHandle, timeline: str, sequence: int) -> LineHandle:
        """Put a state on the timeline, as a restore would leave it."""
        handle = self._handle
        if self._line is not None and handle.place()[2] != self._head:
            self._end()  # the agent has other sticky keys, perhaps
        line, fresh = self._line, self._line is None
        if line is None:
            line = self._line = self._begun()
        point = f"{timeline}@{sequence}"
        if source.core is not handle.core:
            then = source.history.points.view(timeline, sequence)
            Bringing(line, then, point, None, None, _REASON).spread()
        elif not fresh or point != f"{handle.timeline}@{self._head}":
            cause = cause_now(reason=_REASON)
            change, finish = line.history.plan_restore(point, verify="none", cause=cause)
            finish(handle.core.run(change))
        return line

    def _begun(self) -> LineHandle:
        handle, history = self._handle, self._handle.history
        end_trials(handle)
        self._head = handle.place()[2]
        name, cause = TRIAL + os.urandom(6).hex(), cause_now(reason=_REASON)
        fork, forked = history.plan_fork(name, self._head, cause)
        line: LineHandle = handle.on(forked(handle.core.run(fork)))
        return line

    def _end(self) -> None:
        line, self._line = self._line, None
        if line is not None:
            _end(line)


def end_trials(handle: LineHandle) -> None:
    """End what a process that was killed, or a step that was given up, has left of trials.

    Only for who holds the lease under which the agent is recovered.
    """
    try:
        for one in handle.history.timelines():
            if is_trial(line := handle.on(one.name)):
                _end(line)
    except HoldfastError as error:  # what is left is ended by the next
        log.warning("%s: timelines of trials may be left behind: %s", handle.scope, error)


def is_trial(line: LineHandle) -> bool:
    """Whether a timeline is one that a recovery made; another may be named like that."""
    if not line.timeline.startswith(TRIAL):
        return False
    first = next(line.history.entries(newest_first=False), None)
    cause = first[2].cause if first is not None else None
    return cause is not None and cause.reason == _REASON


def _end(line: LineHandle) -> None:
    try:
        end_line(line, _REASON)
    except HoldfastError as error:  # the next recovery ends it
        log.warning("%s: the timeline %s is left behind: %s", line.scope, line.timeline, error)


def missing_text(keys: Iterable[str]) -> str:
    """Which keys a state lacks, for people."""
    return f"missing keys: {', '.join(sorted(keys))}"
