"""What a loop decides, without any I/O: when what is due, how long to wait, when to give up."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from holdfast.agents.drift import Cycle, DriftAlarm
from holdfast.agents.retry import RetryPolicy
from holdfast.errors import InvalidInputError
from holdfast.store.names.arguments import check_count, check_flag, check_seconds

ON_DRIFT = ("refresh", "checkpoint")
RESTARTS = ("here", "process")


@dataclass(frozen=True, slots=True)
class StepResult:
    """What an agent says of one unit of work, for the loop and for `Drift`."""

    action: str = ""
    """What was done; equal texts are the same action."""
    task: str = ""
    progress: float | None = None
    """How far the task is, in any unit that grows."""
    signals: Mapping[str, float] = field(default_factory=dict)
    idle: bool = False
    """There was nothing to do: the loop waits a moment, and the cycle is not judged."""
    done: bool = False
    """The agent has done what it is for: the loop ends. Run again, it takes steps again."""

    def __post_init__(self) -> None:
        check_flag(self.idle, "idle")
        check_flag(self.done, "done")
        Cycle.of(self.action, self.task, self.progress, None, False, self.signals)


def step_of(answer: Any) -> StepResult:
    """What an agent's `step` returned, as a StepResult."""
    if answer is None:
        return StepResult()
    if isinstance(answer, str):
        return StepResult(answer)
    if not isinstance(answer, StepResult):
        raise InvalidInputError(
            "step() returns a holdfast.agents.StepResult, the name of its action, or nothing, not "
            f"{type(answer).__name__}"
        )
    return answer


def agent_by(make: Callable[..., Any], state: Any) -> Any:
    """The agent that a class or a function makes, from its state or, if it takes none, without."""
    try:
        inspect.signature(make).bind(state)
    except TypeError:
        return make()
    except ValueError:
        pass  # what is written in C may not say what it takes
    return make(state)


@dataclass(frozen=True, slots=True)
class LoopSettings:
    """Every interval and limit of a loop; None switches one off."""

    routine: float | None = 1800.0
    """Seconds between routine checkpoints."""
    refresh: float | None = 7200.0
    """Seconds after which the agent is made anew, after a recovery checkpoint; they begin again."""
    idle: float = 1.0
    """Seconds to wait when there was nothing to do."""
    backoff: float = 1.0
    """Seconds to wait after an error; twice as long after each further one in a row."""
    longest_backoff: float = 60.0
    max_errors: int = 5
    """Errors in a row after which the loop gives up; a letter that fails counts once, when it is
    set aside."""
    max_drifts: int = 3
    """Refreshes because of drift, in the time of one `refresh`, after which the loop ends."""
    letters: int = 100
    """Letters that are processed before each step, at most."""
    on_drift: str = "refresh"
    """After the recovery checkpoint: `refresh` with clean context, or nothing more (`checkpoint`).
    """
    restart: str = "here"
    """Where a refresh goes on: `here`, or in another `process`, for which this loop ends."""
    retry: RetryPolicy | None = None
    """What is done about letters that fail; None: 5 attempts each, whatever the failure is."""
    lease: float = 30.0
    """Seconds without a sign after which another process may run the agent."""

    def __post_init__(self) -> None:
        for name in ("routine", "refresh", "idle", "backoff", "longest_backoff", "lease"):
            number = getattr(self, name)
            check_seconds(number, name)
            if number is None and name not in ("routine", "refresh"):
                raise InvalidInputError(f"{name} is a number of seconds")
            if number == 0 and name in ("routine", "refresh"):
                raise InvalidInputError(f"{name} is more than 0 seconds, or None for never")
        if not isinstance(self.retry, RetryPolicy | None):
            raise InvalidInputError("retry is a RetryPolicy")
        for name in ("max_errors", "max_drifts", "letters"):
            check_count(getattr(self, name), name)
        for name, known in (("on_drift", ON_DRIFT), ("restart", RESTARTS)):
            if getattr(self, name) not in known:
                raise InvalidInputError(f"{name} is {' or '.join(known)}")


class Clocks:
    """When what is due, by a monotonic clock, and how often something went wrong in a row."""

    def __init__(self, settings: LoopSettings, now: float) -> None:
        self._settings = settings
        self._routine = self._session = now
        self._errors = self._letters = 0
        self.drifts = 0

    @property
    def errors(self) -> int:
        """Errors in a row; letters that failed are among them."""
        return self._errors + self._letters

    def due(self, now: float) -> str | None:
        """`refresh` or `routine`, if it is time for it."""
        settings = self._settings
        if settings.refresh is not None and now - self._session >= settings.refresh:
            return "refresh"
        if settings.routine is not None and now - self._routine >= settings.routine:
            return "routine"
        return None

    def saved(self, now: float) -> None:
        """A checkpoint was made: the time to the next routine one begins anew."""
        self._routine = now

    def refreshed(self, now: float) -> None:
        """The agent was made anew: the time of the session begins anew."""
        self._session = self._routine = now

    def worked(self) -> None:
        """A step was done: errors are counted anew."""
        self._errors = self._letters = 0

    def read(self) -> None:
        """A letter was done: those that failed before it were bad ones, each by itself."""
        self._letters = 0

    def failed(self, tries: int | None = None) -> float | None:
        """Seconds to wait after one more error in a row; None: it is time to give up.

        `tries`, if it was a letter: how often one has failed that will be tried again. That is no
        reason to give up, for it is set aside before long: 0.
        """
        if tries is None:
            self._errors += 1
        elif not tries:
            self._letters += 1
        if self.errors >= self._settings.max_errors:
            return None
        wait = self._settings.backoff * 2.0 ** min((tries or self.errors) - 1, 60)
        return min(wait, self._settings.longest_backoff)

    def drifted(self) -> bool:
        """Note a refresh because of drift; whether there were too many."""
        self.drifts += 1
        return self.drifts > self._settings.max_drifts

    def pause(self, now: float) -> float:
        """Seconds to wait when there is nothing to do: not longer than until something is due."""
        settings = self._settings
        left = [settings.idle]
        if settings.refresh is not None:
            left.append(self._session + settings.refresh - now)
        if settings.routine is not None:
            left.append(self._routine + settings.routine - now)
        return max(min(left), 0.0)


@dataclass(slots=True)
class LoopResult:
    """How a loop ended, and what it did."""

    outcome: str = ""
    """done (the agent said so), stopped (by `stop()` or a signal), restart (another process is to
    go on from `checkpoint`) or drifted (refreshing did not help)"""
    cycles: int = 0
    letters: int = 0
    errors: int = 0
    restarts: int = 0
    """How often the agent was made anew from a checkpoint, the one of another process included."""
    alarms: list[DriftAlarm] = field(default_factory=list)
    """Those of the last drift."""
    checkpoint: str | None = None
    """Id of the last checkpoint that the loop made."""
