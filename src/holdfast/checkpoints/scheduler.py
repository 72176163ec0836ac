"""The scheduler."""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.checkpoints.group import Saved, Wanted, save_all, still
from holdfast.checkpoints.policy.policies import Policies
from holdfast.checkpoints.policy.policy_engine import Engine
from holdfast.checkpoints.retention import Retention, RetentionRule
from holdfast.checkpoints.schedule import (
    Cron,
    Schedule,
    ScheduleInfo,
    Schedules,
    Target,
    When,
    cron,
    every,
    next_slot,
    on_grid,
    target_of,
    waiting,
    with_now,
    with_slot,
)
from holdfast.errors import (
    HoldfastError,
    InvalidInputError,
    LeaseLostError,
    OutcomeUnknown,
    ScopeNotFoundError,
    StateIntegrityError,
    StoreClosedError,
    Unavailable,
)
from holdfast.store.inner import Asking, Core, Lease, core_of
from holdfast.store.names.arguments import by_name, check_flag, check_plain_function, ran
from holdfast.store.names.background import Background, Startable
from holdfast.store.names.cause import acting
from holdfast.store.names.cells import Swap
from holdfast.store.names.face import calls, ends, faced, here, writes
from holdfast.store.names.items import Checkpoint
from holdfast.store.names.scope import Scope
from holdfast.store.names.threads import is_interrupt, safe_point, undivided
from holdfast.store.store import Store

if TYPE_CHECKING:
    from holdfast.store.names.threads import OnLoop


# ---- runner -------------------------------------------------------------------------------------
# Running schedules: one runner among all processes, one timer.
#
# Whoever holds the lease `LEASE` runs what is due; the others look now and then whether it is free.
# All that a runner writes is under the lease: checkpoints, what jobs write, and the cells that say
# how far schedules are. A slot's checkpoint has an id made from schedule and slot. So a runner that
# was stopped and overtaken can write nothing, and one that takes over after a kill between a
# checkpoint and its cell makes no second one.
#
# Slots in which an agent had written nothing since its last checkpoint are left out, and nothing is
# stored of them: whoever takes over finds the same. So idle agents cost next to nothing.


LEASE = "holdfast/schedules"
"""Held by the process that runs the schedules of a store."""
LOOK = 1.0
"""Seconds after which a runner looks what others added, and the others whether it is gone."""
GRAIN = 0.1
"""Seconds between two turns: what is due meanwhile is run together."""
TOGETHER = 256
"""Schedules that are run together: their checkpoints share a commit."""
STEP = 1.0
"""Seconds by which wall and monotonic clock may drift before what is due is computed anew."""
FIRST_RETRY, LAST_RETRY = 1.0, 60.0
"""Seconds after which a slot is tried again that the storage could not serve."""

NOTHING = ("unchanged", "unmet", "overtaken", "absent", "disabled")
"""Outcomes of which nothing is stored."""
_PASSING = (Unavailable, OutcomeUnknown)
"""Errors after which the same slot is tried again."""
_log = logging.getLogger("holdfast.schedules")


@dataclass(frozen=True, slots=True)
class Run:
    """One occasion of a schedule; what a job is called with."""

    schedule: str
    slot: int
    """Of an interval, its number from 1 on; of a calendar, its moment in seconds since 1970."""
    id: str
    """The same however often this slot is tried: for `change(id=run.id)`."""
    outcome: str = "due"
    """Once it was its turn: saved, repeated (saved before), unchanged (since the last checkpoint),
    unmet (the conditions of its policy), overtaken (by another checkpoint), absent (no such scope
    or policy), disabled (by the environment), done, unknown job (in this process) or failed."""
    checkpoint: Checkpoint | None = None
    error: str | None = None
    """The name of the error."""


Job = Callable[[Run], Any]


@dataclass(slots=True, eq=False)
class _Entry:
    """A schedule, and when it is due."""

    key: bytes
    cell: bytes
    """As it is stored."""
    schedule: Schedule
    due: float = 0.0
    """By the monotonic clock."""
    head: tuple[bytes, int] | None = None
    """Where the timeline ended when nothing was left to save."""
    retry: float = FIRST_RETRY
    slot: int = 0
    """Which is being run."""


class Runner:
    """What is due, and running it; used by one thread at a time."""

    def __init__(
        self,
        core: Core,
        jobs: Mapping[str, Job],
        duration: float,
        engine: Engine,
        retention: Retention,
    ) -> None:
        self.core = core
        self.jobs = jobs
        self.engine = engine
        self.retention = retention
        self.schedules = Schedules(core)
        self._asking = Asking(core, LEASE, duration, None, None)
        self._lease: Lease | None = None
        self._entries: dict[bytes, _Entry] = {}
        self._counted: bytes | None = None
        self._fresh = True
        """All cells have to be read again."""
        self._until = 0.0
        """What is due until then is run."""
        self._look = 0.0
        """When to look what others added."""
        self._offset = 0.0
        """By which the wall clock is ahead of the monotonic one."""

    # turns

    def turn(self, *, more: bool = False) -> tuple[list[Run], float]:
        """Run some of what is due, if this is the runner; seconds to wait for the next turn.

        0: not all of it was run. With `more`, only of what was due in the turn before.
        """
        lease = self._held()
        if lease is None:
            return [], LOOK
        try:
            with lease.fencing(), acting("scheduler"):
                self._follow()
                if not more:
                    self._until = self.core.clock.ticks()
                ran = self._run(self._due(), lease)
        except LeaseLostError:
            self.release()
            return [], LOOK
        except BaseException:
            self._forget()  # what was due and is not run yet is found again
            raise
        if (due := self._next_due()) <= self._until:
            return ran, 0.0
        return ran, min(max(due - self.core.clock.ticks(), GRAIN), LOOK)

    @property
    def held(self) -> bool:
        """Whether this is the runner, as far as it knows."""
        return self._lease is not None and self._lease.held

    def stir(self) -> None:
        """Something was added or removed: look in the next turn."""
        self._look = 0.0

    def release(self) -> None:
        """Let another be the runner.

        Said to the lease also if it may be lost: who keeps an error that has seen it, as a log
        does, must not have it renewed for ever.
        """
        if self._lease is not None:
            self._lease.release()
        self._lease = None
        self._forget()

    def _forget(self) -> None:
        self._entries, self._fresh = {}, True

    def _held(self) -> Lease | None:
        if self._lease is not None and not self._sure(self._lease):
            self.release()
        if self._lease is None:
            self._lease = self._asking.take()
        return self._lease

    def _sure(self, lease: Lease) -> bool:
        """Whether it is known to be held; a runner that slept asks before it goes on."""
        if not lease.held and not lease.over:
            lease.beat()
        return lease.held

    # what there is

    def _follow(self) -> None:
        """Take in what was added or removed, and a clock that was set."""
        ticks = self.core.clock.ticks()
        if self._fresh or ticks >= self._look:
            self._look = ticks + LOOK
            counted = self.schedules.cells.count()
            if self._fresh or counted != self._counted:
                self._read()
                self._counted, self._fresh = counted, False
        offset = self.core.clock.claimed() / 1_000_000 - ticks
        if abs(offset - self._offset) > STEP:
            self._offset = offset
            for entry in self._entries.values():
                if isinstance(entry.schedule.when, Cron):
                    self._plan(entry)

    def _read(self) -> None:
        before, self._entries = self._entries, {}
        for key, row in self.schedules.cells.all():
            entry = before.get(key)
            if entry is None or entry.cell != row:
                try:
                    entry = _Entry(key, row, self.schedules.open(key, row))
                except StateIntegrityError:
                    # The others still run; `verify` names it.
                    _log.exception("a schedule cannot be read")
                    continue
                self._plan(entry)
            self._entries[key] = entry

    def _plan(self, entry: _Entry) -> None:
        """Find out when a schedule is due, from how far it is said to be."""
        schedule, ticks = entry.schedule, self.core.clock.ticks()
        if isinstance(schedule.when, Cron):
            self._plan_cron(entry, schedule.when, ticks)
            return
        elapsed = (self.core.clock.claimed() - schedule.at) / 1_000_000
        wait = waiting(schedule.when, elapsed, schedule.shift, first=not schedule.runs)
        entry.due = ticks + wait

    def _plan_cron(self, entry: _Entry, when: Cron, ticks: float) -> None:
        now = self._own_time(entry.schedule)
        done = with_now(entry.schedule.done, int(now))
        entry.schedule = msgspec.structs.replace(entry.schedule, done=done)
        try:
            slot = next_slot(when, done, int(now))
        except InvalidInputError:  # no such zone on this machine
            _log.exception("the schedule %r cannot be run here", entry.schedule.name)
            slot = None
        entry.due = math.inf
        if slot is not None:
            entry.due = ticks + (entry.schedule.shift if slot <= now else slot - now)

    def _own_time(self, schedule: Schedule) -> float:
        """The wall clock, set back by what jitter makes the schedule later."""
        return self.core.clock.claimed() / 1_000_000 - schedule.shift

    def _due(self) -> list[_Entry]:
        """Schedules whose time has come; some of them if they are many."""
        ready = [entry for entry in self._entries.values() if entry.due <= self._until]
        ready.sort(key=lambda entry: entry.due)
        return [entry for entry in ready[:TOGETHER] if self._choose(entry)]

    def _next_due(self) -> float:
        return min((entry.due for entry in self._entries.values()), default=math.inf)

    def _choose(self, entry: _Entry) -> bool:
        """Set the slot to run; False if the wall clock says that it is not yet time."""
        schedule = entry.schedule
        if not isinstance(schedule.when, Cron):
            entry.slot = schedule.runs + 1
            return True
        now = int(self._own_time(schedule))
        slot = next_slot(schedule.when, schedule.done, now)
        if slot is None or slot > now:
            self._plan(entry)
            return False
        entry.slot = slot
        return True

    # running

    def _run(self, due: list[_Entry], lease: Lease) -> list[Run]:
        saving = [entry for entry in due if entry.schedule.saves]
        working = [entry for entry in due if not entry.schedule.saves]
        ran = self._save(saving, lease)
        for entry in working:
            if not self._sure(lease):
                raise lease.lost()
            ran.append(self._work(entry, lease))
        return ran

    def _save(self, due: list[_Entry], lease: Lease) -> list[Run]:
        """Checkpoints of what has been written since the last ones."""
        heads = [entry.head for entry in due]
        outcomes = {
            entry.key: Saved("unchanged", head=head)
            for entry, head, same in zip(due, heads, still(self.core, heads), strict=True)
            if same
        }
        asked = [(entry, self._asked(entry)) for entry in due if entry.key not in outcomes]
        outcomes.update((entry.key, what) for entry, what in asked if isinstance(what, Saved))
        plans = [(entry, *what) for entry, what in asked if not isinstance(what, Saved)]
        made = save_all(self.core, [wanted for _, wanted, _ in plans])
        for (entry, _, noted), saved in zip(plans, made, strict=True):
            outcomes[entry.key] = saved
            if saved.outcome == "saved":
                noted()
        ran, store = [], []
        for entry in due:
            saved = outcomes[entry.key]
            entry.head = saved.head
            if isinstance(saved.error, LeaseLostError | StoreClosedError):
                raise saved.error
            ran.append(_ran(entry, saved))
            if isinstance(saved.error, _PASSING):
                self._again(entry)
            elif saved.outcome in NOTHING:
                entry.schedule = self._advanced(entry, runs=entry.schedule.runs)
                self._next(entry, saved.again)
            else:
                store.append((entry, ran[-1].error))
        self._store(store, lease)
        return ran

    def _asked(self, entry: _Entry) -> tuple[Wanted, Callable[[], None]] | Saved:
        """The checkpoint of a slot, and what to do once it is made; or why there is none."""
        schedule = entry.schedule
        if schedule.policy is None:
            return _wanted(entry), lambda: None
        try:
            return self.engine.scheduled(Scope.parse(schedule.scope or ""), schedule.policy)
        except HoldfastError as error:
            return Saved("failed", error=error)

    def _retain(self, run: Run, schedule: Schedule) -> Any:
        with suppress(ScopeNotFoundError):  # until there is one
            self.retention.run(schedule.scope)

    def _work(self, entry: _Entry, lease: Lease) -> Run:
        run, schedule = _due_run(entry), entry.schedule
        job = self.jobs.get(schedule.job or "")
        if schedule.retention:
            job = partial(self._retain, schedule=schedule)
        if job is None:
            # Another process may have it: the slot is not used up.
            _log.error(
                "the schedule %r runs the job %r, which is not named in jobs= of this process",
                run.schedule,
                entry.schedule.job,
            )
            self._again(entry)
            return replace(run, outcome="unknown job")
        told = None
        try:
            ran(job(run), f"the job {schedule.job!r}")
        except (LeaseLostError, StoreClosedError):
            raise
        except BaseException as error:  # also what would end the program, or this thread
            if is_interrupt(error):
                raise
            _log.exception("the job of the schedule %r failed", run.schedule)
            told = type(error).__name__
            if isinstance(error, _PASSING):
                self._again(entry)
                return replace(run, outcome="failed", error=told)
        self._store([(entry, told)], lease)
        return replace(run, outcome="failed" if told else "done", error=told)

    def _again(self, entry: _Entry) -> None:
        """The storage could not serve: the same slot, after a while."""
        entry.due = self.core.clock.ticks() + entry.retry
        entry.retry = min(2 * entry.retry, LAST_RETRY)

    def _advanced(self, entry: _Entry, *, runs: int, failed: str | None = None) -> Schedule:
        """The schedule behind the slot that was run."""
        schedule = entry.schedule
        done = schedule.done
        if isinstance(schedule.when, Cron):
            now = int(self._own_time(schedule))
            done = with_slot(schedule.when, done, entry.slot, now)
        at = self.core.clock.claimed() if runs > schedule.runs else schedule.at
        return msgspec.structs.replace(schedule, runs=runs, at=at, done=done, failed=failed)

    def _next(self, entry: _Entry, again: float | None = None) -> None:
        """When it is due next: on its grid, or `again` seconds from now if that is sooner."""
        entry.retry = FIRST_RETRY
        if isinstance(entry.schedule.when, Cron):
            self._plan(entry)
        else:
            now = self.core.clock.ticks()
            due = on_grid(entry.schedule.when, entry.due, now)
            entry.due = due if again is None else min(due, now + again)

    def _store(self, ended: list[tuple[_Entry, str | None]], lease: Lease) -> None:
        """Say in the cells how far these schedules are, if the lease is still held."""
        swaps: list[Swap] = []
        for entry, failed in ended:
            entry.schedule = self._advanced(entry, runs=entry.schedule.runs + 1, failed=failed)
            new = self.schedules.seal(entry.key, entry.schedule)
            swaps.append((entry.key, entry.cell, new))
            entry.cell = new
            self._next(entry)
        fresh, self._fresh = self._fresh, True  # if it fails, the cells say how far they are
        if not swaps or self.schedules.cells.advance(swaps, lease):
            self._fresh = fresh
            return
        # The lease is lost, or one of them was removed or replaced: which, each says for itself.
        for swap in swaps:
            self.schedules.cells.advance([swap], lease)
        if not self._still_mine(lease):
            raise lease.lost()

    def _still_mine(self, lease: Lease) -> bool:
        return dict(self.core.storage.cells(lease.key, lease.key + b"\0")).get(lease.key) == (
            lease.cell
        )


def _due_run(entry: _Entry) -> Run:
    schedule = entry.schedule
    id = f"schedule/{schedule.id.hex()}/{entry.slot}"
    return Run(schedule.name, entry.slot, id)


def _ran(entry: _Entry, saved: Saved) -> Run:
    run = _due_run(entry)
    error = type(saved.error).__name__ if saved.error is not None else None
    return replace(run, outcome=saved.outcome, checkpoint=saved.checkpoint, error=error)


def _wanted(entry: _Entry) -> Wanted:
    schedule, run = entry.schedule, _due_run(entry)
    metadata = {"trigger": "schedule", "schedule": run.schedule, "slot": run.slot}
    scope = Scope.parse(schedule.scope or "")
    return Wanted(scope, schedule.timeline, run.schedule, "scheduled", metadata, run.id)


# ---- scheduler ----------------------------------------------------------------------------------


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
        self._core.check_store()
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
        return self._put(every(seconds, jitter), target, job, name, retention)

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
        return self._put(cron(expression, zone, jitter), target, job, name, retention)

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
