"""The scheduler of the blocking face; `holdfast.sync` exports it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from types import TracebackType

from holdfast.checkpoints.policy.policies import Policies
from holdfast.checkpoints.retention import Retention
from holdfast.checkpoints.retention_rules import Rule
from holdfast.checkpoints.schedule import calendar
from holdfast.checkpoints.schedule.calendar import When
from holdfast.checkpoints.schedule.runner import LOOK, Job, Run, Runner
from holdfast.checkpoints.schedule.schedule import ScheduleInfo, Target, target_of
from holdfast.errors import InvalidInputError, StoreClosedError
from holdfast.store.names.arguments import by_name, check_flag, check_plain_function
from holdfast.store.names.threads import safe_point, undivided
from holdfast.store.state import Store

_log = logging.getLogger("holdfast.schedules")


class Scheduler:
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
    """

    def __init__(
        self,
        store: Store,
        *,
        jobs: Mapping[str, Job] | None = None,
        policies: Policies | None = None,
        rules: Mapping[str, Rule] | None = None,
        lease: float = 30.0,
    ) -> None:
        if not isinstance(store, Store):
            raise InvalidInputError("a scheduler of holdfast.sync is made from a store of it")
        self._jobs = by_name(jobs, "jobs")
        for name, job in self._jobs.items():
            check_plain_function(job, f"the job {name!r}")
        self._core = store._core
        if policies is not None and not isinstance(policies, Policies):
            raise InvalidInputError("policies takes a holdfast.sync.Policies of the same store")
        engine = (policies or Policies(store, watch=False))._engine
        self._runner = Runner(self._core, self._jobs, lease, engine, Retention(store, rules=rules))
        self._schedules = self._runner.schedules
        self._lock = threading.RLock()
        """Held by whoever uses the runner; a job may stop its own scheduler."""
        self._wake = threading.Event()
        self._stopped = False
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Scheduler:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    # schedules

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

    def remove(self, name: str) -> None:
        """Remove a schedule; what it made stays."""
        self._schedules.remove(name)
        self._stir()

    def _stir(self) -> None:
        self._runner.stir()
        self._wake.set()

    def schedules(self) -> list[ScheduleInfo]:
        """All schedules of the store, by their names; what is damaged is among them, and named."""
        return sorted(self._schedules.infos(), key=lambda info: info.name)

    # running

    def start(self) -> None:
        """Begin to run what is due, in a thread, until `stop` or the end of the store."""
        self._core.check_writable()
        if self._thread is None:
            self._stopped = False
            self._core.closing.append(self.stop)
            self._thread = threading.Thread(
                target=self._work, name="holdfast-schedules", daemon=True
            )
            self._thread.start()

    def stop(self) -> None:
        """Stop running, after what is being saved or done just now; another may take over."""
        self._stopped = True
        self._wake.set()
        if self.stop in self._core.closing:
            self._core.closing.remove(self.stop)
        thread, self._thread = self._thread, None
        if thread is not None and thread is not threading.current_thread():
            thread.join()
        with self._lock:
            self._runner.release()

    @property
    def running(self) -> bool:
        """Whether this process runs the schedules, as far as it knows; if not, another may."""
        return self._runner.held

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

    def _work(self) -> None:
        try:
            while not self._stopped:
                pause = LOOK
                try:
                    with self._lock:
                        pause = self._runner.turn()[1]
                except StoreClosedError:
                    return
                except BaseException:
                    # Whatever it is, schedules go on: the storage may serve again in a moment.
                    _log.exception("schedules could not be run just now")
                if pause:
                    self._wake.wait(pause)
                    self._wake.clear()
        finally:
            with self._lock:
                self._runner.release()  # whatever ended this: another takes over
