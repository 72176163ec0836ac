"""The scheduler of the async face; `holdfast` itself exports it."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType

from holdfast.checkpoints.policy.policies_async import Policies
from holdfast.checkpoints.retention_rules import Rule
from holdfast.checkpoints.schedule import scheduler as blocking
from holdfast.checkpoints.schedule.runner import Job, Run
from holdfast.checkpoints.schedule.schedule import ScheduleInfo, Target
from holdfast.errors import InvalidInputError
from holdfast.store.names.arguments import by_name
from holdfast.store.names.loop_calls import OnLoop
from holdfast.store.names.threads import read_away, surely, to_the_end
from holdfast.store.store_async import Store


class Scheduler:
    """Checkpoints and jobs at intervals and by the calendar; see `holdfast.sync.Scheduler`.

    What is due is run in a thread, so that cancelling a task neither stops nor tears what is being
    saved. What a job gives to be awaited runs in the event loop in which `start` was called.
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
            raise InvalidInputError(
                "a scheduler is made from an open store: await holdfast.open(...) first, and take "
                "holdfast.sync.Scheduler for a store of holdfast.sync"
            )
        self._calls = OnLoop()
        called = {
            name: self._calls.wrap(job, f"the job {name!r}")
            for name, job in by_name(jobs, "jobs").items()
        }
        if policies is not None and not isinstance(policies, Policies):
            raise InvalidInputError("policies takes a holdfast.Policies of the same store")
        under = policies._blocking if policies is not None else None
        self._blocking = blocking.Scheduler(
            store._blocking, jobs=called, policies=under, rules=rules, lease=lease
        )

    async def __aenter__(self) -> Scheduler:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.stop()

    async def every(
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
        return await to_the_end(
            lambda: self._blocking.every(
                seconds, target, jitter=jitter, job=job, name=name, retention=retention
            )
        )

    async def cron(
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
        return await to_the_end(
            lambda: self._blocking.cron(
                expression,
                target,
                zone=zone,
                jitter=jitter,
                job=job,
                name=name,
                retention=retention,
            )
        )

    async def remove(self, name: str) -> None:
        """Remove a schedule; what it made stays."""
        await to_the_end(self._blocking.remove, name)

    async def schedules(self) -> list[ScheduleInfo]:
        """All schedules of the store, by their names; what is damaged is among them, and named."""
        return await read_away(self._blocking.schedules)

    async def start(self) -> None:
        """Begin to run what is due."""
        self._calls.use()
        self._blocking.start()

    async def stop(self) -> None:
        """Stop running, after what is being saved or done just now; another may take over."""
        await surely(self._blocking.stop)

    @property
    def running(self) -> bool:
        """Whether this process runs the schedules, as far as it knows; if not, another may."""
        return self._blocking.running

    async def run_due(self) -> list[Run]:
        """Run what is due now, if no other process does so; for loops of your own.

        From then on this process is the runner, until `stop`.
        """
        self._calls.use()
        return await to_the_end(self._blocking.run_due)
