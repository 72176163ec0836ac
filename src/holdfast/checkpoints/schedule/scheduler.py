"""The scheduler."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self

from holdfast.checkpoints.policy.policies import Policies
from holdfast.checkpoints.retention import Retention
from holdfast.checkpoints.retention_rules import RetentionRule
from holdfast.checkpoints.schedule import calendar
from holdfast.checkpoints.schedule.calendar import When
from holdfast.checkpoints.schedule.runner import LOOK, Job, Run, Runner
from holdfast.checkpoints.schedule.schedule import ScheduleInfo, Target, target_of
from holdfast.errors import InvalidInputError
from holdfast.store.inner import core_of
from holdfast.store.names.arguments import by_name, check_flag, check_plain_function
from holdfast.store.names.background import Background, Startable
from holdfast.store.names.face import calls, ends, faced, here, writes
from holdfast.store.names.threads import safe_point, undivided
from holdfast.store.store import Store

if TYPE_CHECKING:
    from holdfast.store.names.threads import OnLoop


def _on_loop(jobs: Any, loop: OnLoop) -> Any:
    """Jobs that may be async, as plain functions: what they give to be awaited runs in the loop."""
    return {
        name: loop.wrap(job, f"the job {name!r}") for name, job in by_name(jobs, "jobs").items()
    }


@faced
class Scheduler(Startable):
    """Checkpoints and jobs at intervals and by the calendar, in one of several processes.

    Inside its block, or between `start` and `stop`, a thread runs what is due, if no other process
    does so already; the others take over when that one ends or is no more. Schedules are stored:
    they outlive processes, and what was missed meanwhile is run once. `jobs` are the functions
    that this process can run, by their names; give all processes the same, for one that this
    process was not given waits until another is the runner. They are called with a
    `Run`, one after the other, at least once for each slot that is run: what they write to the
    store is refused once another process has taken over, and done once with `change(id=run.id)`.
    A job that raises has run, unless the storage could not serve it; the name of its error is
    kept. Schedules of policies follow `policies`, which knows your defaults and metrics (without
    it: the two default policies, no metrics of your own); retention that is scheduled follows
    `rules`, as `Retention` does. `lease` is the time in seconds after which another process takes
    over from one that is gone.

    Also of the async face, what is due is run in a thread, so that cancelling a task neither stops
    nor tears what is being saved. There jobs may be async: what they give to be awaited runs in the
    event loop in which `start` was called.
    """

    @calls(jobs=_on_loop)
    def __init__(
        self,
        store: Store,
        *,
        jobs: Mapping[str, Job] | None = None,
        policies: Policies | None = None,
        rules: Mapping[str, RetentionRule] | None = None,
        lease: float = 30.0,
    ) -> None:
        if not isinstance(store, Store):
            raise InvalidInputError("a scheduler is made from an open store of the same face")
        self._jobs = by_name(jobs, "jobs")
        for name, job in self._jobs.items():
            check_plain_function(job, f"the job {name!r}")
        self._core = core_of(store)
        if policies is not None and not isinstance(policies, Policies):
            raise InvalidInputError(
                "policies takes a holdfast.checkpoints.Policies of the same store; where that is "
                "of holdfast.sync, a holdfast.sync.checkpoints.Policies"
            )
        engine = (policies or Policies(store, watch=False))._engine
        self._runner = Runner(self._core, self._jobs, lease, engine, Retention(store, rules=rules))
        self._schedules = self._runner.schedules
        self._lock = threading.RLock()
        """Held by whoever uses the runner; a job may stop its own scheduler."""
        self._background = Background(
            self._core, "holdfast-schedules", LOOK, self._turn, self._release
        )

    @calls()
    @here
    def __enter__(self) -> Self:
        return super().__enter__()

    # schedules

    @writes
    def every(
        self,
        seconds: float,
        target: Target | None = None,
        *,
        jitter: float = 0.0,
        job: str | None = None,
        name: str | None = None,
        retention: bool = False,
    ) -> ScheduleInfo:
        """Make a checkpoint of `target` (or run a job) each so many seconds.

        By the monotonic clock: setting the wall clock neither leaves out nor repeats any. With
        `jitter` schedules that begin together are spread over so many seconds, each by its name.
        A slot in which nothing was written since the last checkpoint makes none. A schedule of the
        same name (by default that of the scope, or the job) is replaced, unless it says the same.
        With `retention` no checkpoints are made: those of `target` that may go are let go. What has
        to be confirmed stays, and the schedule says `failed`: NotConfirmedError.
        """
        return self._put(calendar.every(seconds, jitter), target, job, name, retention)

    @writes
    def cron(
        self,
        expression: str,
        target: Target | None = None,
        *,
        zone: str = "UTC",
        jitter: float = 0.0,
        job: str | None = None,
        name: str | None = None,
        retention: bool = False,
    ) -> ScheduleInfo:
        """The same by the calendar: `cron("0 3 * * *", agent, zone="Europe/Berlin")`.

        Each moment that the expression names is run once, through daylight saving and whatever
        else is done to clocks; of several that were missed, one is run.
        """
        return self._put(calendar.cron(expression, zone, jitter), target, job, name, retention)

    def _put(
        self,
        when: When,
        target: Target | None,
        job: str | None,
        name: str | None,
        retention: bool,
    ) -> ScheduleInfo:
        check_flag(retention, "retention")
        scope, timeline = target_of(self._schedules.core, target)
        if (scope is None) == (job is None):
            raise InvalidInputError("give either what a checkpoint is made of, or job=")
        if retention and (scope is None or timeline != "main"):
            raise InvalidInputError("retention is of a scope, with all of its timelines")
        if job is not None and (not isinstance(job, str) or not job):
            raise InvalidInputError("a job is given by its name; jobs= has the functions")
        if job is not None and self._jobs and job not in self._jobs:
            raise InvalidInputError(f"this scheduler has no job {job!r}; name it in jobs=")
        default = job or (f"{scope}" if timeline == "main" else f"{scope}/{timeline}")
        if retention:
            default = f"retention/{scope}"
        made = self._schedules.put(
            name or default, when, scope, timeline, job, retention=retention, named=bool(name)
        )
        self._stir()
        return self._schedules.info(made)

    @writes
    def remove(self, name: str) -> None:
        """Remove a schedule; what it made stays."""
        self._schedules.remove(name)
        self._stir()

    def _stir(self) -> None:
        self._runner.stir()
        self._background.wake()

    def schedules(self) -> list[ScheduleInfo]:
        """All schedules of the store, by their names; what is damaged is among them, and named."""
        return sorted(self._schedules.infos(), key=lambda info: info.name)

    # running

    @calls()
    @here(awaited=True)
    def start(self) -> None:
        """Begin to run what is due, in a thread, until `stop` or the end of the store."""
        self._core.check_writable()
        self._background.start()

    @ends
    def stop(self) -> None:
        """Stop running, after what is being saved or done just now; another may take over."""
        self._background.stop()
        self._release()  # also if a job stops it, whose turn is not waited for

    def _release(self) -> None:
        with self._lock:
            self._runner.release()

    @property
    def running(self) -> bool:
        """Whether this process runs the schedules, as far as it knows; if not, another may."""
        return self._runner.held

    @calls()
    @writes
    def run_due(self) -> list[Run]:
        """Run what is due now, if no other process does so, in this thread; for loops of your own.

        From then on this process is the runner, until `stop`.
        """
        found: list[Run] = []
        with self._lock:
            while True:
                safe_point()
                with undivided():
                    ran, pause = self._runner.turn(more=bool(found))
                found += ran
                if pause:
                    return found

    def _turn(self) -> float:
        with self._lock:
            return float(self._runner.turn()[1])
