"""Asking checks about a state: one that was recovered, or one that may be returned to.

A state that a check refuses is not to be returned to. So checks are asked of a view of each before
it is put back, unless sticky keys, which stay, are others by now; and of the agent itself once it
is put back. A group goes back in one commit, so there they are asked before, of what returning
would give, on a timeline of its own (a trial).
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from holdfast.checkpoints.restore_request import failed
from holdfast.errors import (
    HoldfastError,
    InvalidInputError,
    LeaseLostError,
    OutcomeUnknown,
    ReadOnlyError,
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
_REASON = "a trial of a recovery"
_TRIAL = re.compile("recovery-trial-[0-9a-f]{12}")
UNANSWERED = (OSError, LeaseLostError, OutcomeUnknown, StoreClosedError, Unavailable)
"""Raised by a check that could not be made: that says nothing of the state, and is tried again."""


class Unasked(Unavailable):
    """A check could not be made."""


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


@contextmanager
def trial(handle: LineHandle, point: str) -> Iterator[State]:
    """What returning to a point would give, with the sticky keys of now, on a timeline of its own
    that is ended behind the block with all that a check wrote."""
    name, cause = f"recovery-trial-{os.urandom(6).hex()}", cause_now(reason=_REASON)
    fork, forked = handle.history.plan_fork(name, handle.place()[2], cause)
    line = handle.on(forked(handle.core.run(fork)))
    try:
        change, finish = line.history.plan_restore(point, verify="none", cause=cause)
        finish(handle.core.run(change))
        yield State(line)
    finally:
        _end(line)


def is_trial(timeline: str) -> bool:
    """Whether a timeline was made for a trial, by its name."""
    return _TRIAL.fullmatch(timeline) is not None


def end_trials(handle: LineHandle) -> None:
    """End what a process that was killed, or a look that was given up, has left of trials.

    Only for who holds the lease under which the agent is recovered.
    """
    for one in handle.history.timelines():
        if is_trial(one.name):
            _end(handle.on(one.name))


def _end(line: LineHandle) -> None:
    try:
        end_line(line, _REASON)
    except HoldfastError as error:  # the next recovery of a group ends it
        log.warning("%s: the timeline %s is left behind: %s", line.scope, line.timeline, error)


def missing_text(keys: Iterable[str]) -> str:
    """Which keys a state lacks, for people."""
    return f"missing keys: {', '.join(sorted(keys))}"
