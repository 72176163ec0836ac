"""The scheduler."""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass

import msgspec

from holdfast.checkpoints.checkpoint_group import Saved, Wanted, save_all, still
from holdfast.checkpoints.policy.policies import Policies
from holdfast.checkpoints.retention import Retention, RetentionRule
from holdfast.checkpoints.schedule import (
    Cron,
    Schedule,
    ScheduleInfo,
    Schedules,
    Target,
    When,
    believed,
    cron,
    done_until,
    every,
    next_slot,
    on_grid,
    target_of,
    waiting,
)
from holdfast.errors import (
    DamagedRecordError,
    HoldfastError,
    InvalidInputError,
    LeaseLostError,
    OutcomeUnknown,
    ScopeNotFoundError,
    StateIntegrityError,
    StoreClosedError,
    Unavailable,
)
from holdfast.store.inner import Asking, Lease, core_of
from holdfast.store.names import rowkinds
from holdfast.store.names.arguments import check_face, check_flag
from holdfast.store.names.background import Background, Startable
from holdfast.store.names.cause import acting
from holdfast.store.names.cells import Swap
from holdfast.store.names.face import ends, faced, here, writes
from holdfast.store.names.items import Checkpoint
from holdfast.store.names.scope import Scope
from holdfast.store.names.threads import undivided
from holdfast.store.store import Store

# ---- runner -------------------------------------------------------------------------------------
# Running schedules: one runner among all processes, one timer.
#
# Whoever holds the lease `LEASE` runs what is due; the others look now and then whether it is free.
# All that a runner writes is under the lease: checkpoints, what retention drops, and the cells that
# say how far schedules are. A slot's checkpoint has an id made from schedule and slot. So a runner
# that was stopped and overtaken can write nothing, and one that takes over after a kill between a
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
class ScheduledRun:
    """One occasion of a schedule, and what became of it."""

    schedule: str
    slot: int
    """Of an interval, its number from 1 on; of a calendar, its moment in seconds since 1970."""
    id: str
    """The same however often this slot is tried."""
    outcome: str = "due"
    """saved, repeated (saved before), unchanged (since the last checkpoint), unmet (the conditions
    of its policy), overtaken (by another checkpoint), absent (no such scope or policy), disabled
    (by the environment), done (retention) or failed."""
    checkpoint: Checkpoint | None = None
    error: str | None = None
    """The name of the error."""


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

    @property
    def id(self) -> str:
        """The same however often this slot is tried."""
        return f"schedule/{self.schedule.id.hex()}/{self.slot}"


# ---- scheduler ----------------------------------------------------------------------------------


@faced
class Scheduler(Startable):
    """Checkpoints at intervals and by the calendar, in one of several processes.

    Inside its block, or between `start` and `stop`, a thread runs what is due, if no other process
    does so already; the others take over when that one ends or is no more. Schedules are stored:
    they outlive processes, and what was missed meanwhile is run once. Schedules of policies follow
    `policies`, which knows your defaults and metrics (without it: the two default policies, no
    metrics of your own); retention that is scheduled follows `rules`, as `Retention` does. `lease`
    is the time in seconds after which another process takes over from one that is gone.

    Also of the async face, what is due is run in a thread, so that cancelling a task neither stops
    nor tears what is being saved.
    """

    def __init__(
        self,
        store: Store,
        *,
        policies: Policies | None = None,
        rules: Mapping[str, RetentionRule] | None = None,
        lease: float = 30.0,
    ) -> None:
        check_face(store, Store, "Scheduler")
        self._core = core_of(store)
        self._core.check_store()
        if policies is not None and not isinstance(policies, Policies):
            raise InvalidInputError(
                "policies takes a holdfast.checkpoints.Policies of the same store; where that is "
                "of holdfast.sync, a holdfast.sync.checkpoints.Policies"
            )
        self._engine = (policies or Policies(store, watch=False))._engine
        self._retention = Retention(store, rules=rules)
        self._schedules = Schedules(self._core)
        self._asking = Asking(self._core, LEASE, lease, None, None)
        self._lease: Lease | None = None
        self._entries: dict[bytes, _Entry] = {}
        self._counted: bytes | None = None
        self._fresh = True
        """All cells have to be read again."""
        self._look = 0.0
        """When to look what was added or removed."""
        self._offset = 0.0
        """By which the wall clock is ahead of the monotonic one."""
        self._lock = threading.RLock()
        """Held by whoever runs what is due."""
        self._background = Background(
            self._core, "holdfast-schedules", LOOK, self._turn, self._let_go
        )

    # schedules

    @writes
    def every(
        self,
        seconds: float,
        target: Target,
        *,
        jitter: float = 0.0,
        name: str | None = None,
        retention: bool = False,
    ) -> ScheduleInfo:
        """Make a checkpoint of `target` each so many seconds.

        By the monotonic clock: setting the wall clock neither leaves out nor repeats any. With
        `jitter` schedules that begin together are spread over so many seconds, each by its name.
        A slot in which nothing was written since the last checkpoint makes none. A schedule of the
        same target and name (by default that of the scope) gets this interval, and goes on as it is
        if it has it.
        With `retention` no checkpoints are made: those of `target` that may go are let go. What has
        to be confirmed stays, and the schedule says `failed`: NotConfirmedError.
        """
        return self._put(every(seconds, jitter), target, name, retention)

    @writes
    def cron(
        self,
        expression: str,
        target: Target,
        *,
        zone: str = "UTC",
        jitter: float = 0.0,
        name: str | None = None,
        retention: bool = False,
    ) -> ScheduleInfo:
        """The same by the calendar: `cron("0 3 * * *", agent, zone="Europe/Berlin")`.

        Each moment that the expression names is run once, through daylight saving and whatever
        else is done to clocks; of several that were missed, one is run.
        """
        return self._put(cron(expression, zone, jitter), target, name, retention)

    def _put(self, when: When, target: Target, name: str | None, retention: bool) -> ScheduleInfo:
        check_flag(retention, "retention")
        scope, timeline = target_of(self._core, target)
        if retention and timeline != "main":
            raise InvalidInputError("retention is of a scope, with all of its timelines")
        line = f"{scope}" if timeline == "main" else f"{scope}/{timeline}"
        name = name or (f"retention/{scope}" if retention else line)
        made = self._schedules.put(name, when, str(scope), timeline, retention=retention)
        self._stir()
        return self._schedules.info(made)

    @writes
    def remove(self, name: str) -> None:
        """Remove a schedule; what it made stays."""
        self._schedules.remove(name)
        self._stir()

    def _stir(self) -> None:
        self._look = 0.0
        self._background.wake()

    def schedules(self) -> list[ScheduleInfo]:
        """All schedules of the store, by their names; what is damaged is among them, and named."""
        self._core.check_open()
        found = []
        for key, row in self._schedules.cells.all():
            try:
                found.append(self._schedules.info(self._schedules.open(key, row)))
            except DamagedRecordError as error:  # the others are shown all the same
                found.append(ScheduleInfo(rowkinds.describe(key), damage=str(error)))
        return sorted(found, key=lambda info: info.name)

    # running

    @here(awaited=True)
    def start(self) -> None:
        """Begin to run what is due, in a thread, until `stop` or the end of the store."""
        self._core.check_writable()
        self._background.start()

    @ends
    def stop(self) -> None:
        """Stop running, after what is being saved or done just now; another may take over."""
        self._background.stop()
        self._let_go()

    @property
    def running(self) -> bool:
        """Whether this process runs the schedules, as far as it knows; if not, another may."""
        return self._lease is not None and self._lease.held

    @writes
    def run_due(self) -> list[ScheduledRun]:
        """Run what is due now, if no other process does so, in this thread; for loops of your own.

        From then on this process is the runner, until `stop`.
        """
        with self._lock, undivided():
            return self._turned()[0]

    def _turn(self) -> float:
        with self._lock:
            return self._turned()[1]

    # turns

    def _turned(self) -> tuple[list[ScheduledRun], float]:
        """Run what is due, if this is the runner; seconds to wait for the next turn."""
        if self._lease is not None and not self._sure(self._lease):
            self._let_go()
        lease = self._lease = self._lease or self._asking.take()
        if lease is None:
            return [], LOOK
        ran: list[ScheduledRun] = []
        try:
            with lease.fencing(), acting("scheduler"):
                self._follow()
                now = self._core.clock.ticks()
                ready = [entry for entry in self._entries.values() if entry.due <= now]
                # Checkpoints are made before old ones are let go.
                ready.sort(key=lambda entry: (entry.schedule.retention, entry.due))
                due = [entry for entry in ready if self._choose(entry)]
                while due:
                    ran += self._run(due[:TOGETHER], lease)
                    due = due[TOGETHER:]
        except LeaseLostError:
            self._let_go()
            return [], LOOK
        except BaseException:
            self._forget()  # what was due and is not run yet is found again
            raise
        next_due = min((entry.due for entry in self._entries.values()), default=math.inf)
        return ran, min(max(next_due - self._core.clock.ticks(), GRAIN), LOOK)

    def _let_go(self) -> None:
        """Let another be the runner.

        Said to the lease also if it may be lost: who keeps an error that has seen it, as a log
        does, must not have it renewed for ever.
        """
        with self._lock:
            if self._lease is not None:
                self._lease.release()
            self._lease = None
            self._forget()

    def _forget(self) -> None:
        self._entries, self._fresh = {}, True

    def _sure(self, lease: Lease) -> bool:
        """Whether it is known to be held; a runner that slept asks before it goes on."""
        if not lease.held and not lease.over:
            lease.beat()
        return lease.held

    # what there is

    def _follow(self) -> None:
        """Take in what was added or removed, and a clock that was set."""
        ticks = self._core.clock.ticks()
        if self._fresh or ticks >= self._look:
            self._look = ticks + LOOK
            counted = self._schedules.cells.count()
            if self._fresh or counted != self._counted:
                before, self._entries = self._entries, {}
                for key, row in self._schedules.cells.all():
                    self._read(key, row, before.get(key))
                self._counted, self._fresh = counted, False
        offset = self._core.clock.claimed() / 1_000_000 - ticks
        if abs(offset - self._offset) > STEP:
            self._offset = offset
            for entry in self._entries.values():
                if isinstance(entry.schedule.when, Cron):
                    self._plan(entry)

    def _read(self, key: bytes, row: bytes, entry: _Entry | None) -> None:
        if entry is None or entry.cell != row:
            try:
                entry = _Entry(key, row, self._schedules.open(key, row))
            except StateIntegrityError:
                # The others still run; `verify` names it.
                _log.exception("a schedule cannot be read")
                return
            self._plan(entry)
        self._entries[key] = entry

    def _plan(self, entry: _Entry) -> None:
        """Find out when a schedule is due, from how far it is said to be."""
        schedule, ticks = entry.schedule, self._core.clock.ticks()
        if not isinstance(schedule.when, Cron):
            elapsed = (self._core.clock.claimed() - schedule.at) / 1_000_000
            wait = waiting(schedule.when, elapsed, schedule.shift, first=not schedule.runs)
            entry.due = ticks + wait
            return
        now = self._own_time(schedule)
        done = believed(schedule.done, int(now))
        entry.schedule = msgspec.structs.replace(schedule, done=done)
        try:
            slot = next_slot(schedule.when, done)
        except InvalidInputError:  # no such zone on this machine
            _log.exception("the schedule %r cannot be run here", schedule.name)
            slot = None
        entry.due = math.inf
        if slot is not None:
            entry.due = ticks + (schedule.shift if slot <= now else slot - now)

    def _own_time(self, schedule: Schedule) -> float:
        """The wall clock, set back by what jitter makes the schedule later."""
        return self._core.clock.claimed() / 1_000_000 - schedule.shift

    def _choose(self, entry: _Entry) -> bool:
        """Set the slot to run; False if the wall clock says that it is not yet time."""
        schedule = entry.schedule
        if not isinstance(schedule.when, Cron):
            entry.slot = schedule.runs + 1
            return True
        now = int(self._own_time(schedule))
        slot = next_slot(schedule.when, schedule.done)
        if slot is None or slot > now:
            self._plan(entry)
            return False
        entry.slot = slot
        return True

    # running

    def _run(self, due: list[_Entry], lease: Lease) -> list[ScheduledRun]:
        """Checkpoints of what has been written since the last ones, and retention."""
        if not self._sure(lease):
            raise lease.lost()
        heads = [entry.head for entry in due]
        outcomes = {
            entry.key: Saved("unchanged", head=head)
            for entry, head, same in zip(due, heads, still(self._core, heads), strict=True)
            if same
        }
        asked = [(entry, self._asked(entry)) for entry in due if entry.key not in outcomes]
        outcomes.update((entry.key, what) for entry, what in asked if isinstance(what, Saved))
        plans = [(entry, *what) for entry, what in asked if not isinstance(what, Saved)]
        made = save_all(self._core, [wanted for _, wanted, _ in plans])
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
            error = type(saved.error).__name__ if saved.error is not None else None
            what = (saved.outcome, saved.checkpoint, error)
            ran.append(ScheduledRun(entry.schedule.name, entry.slot, entry.id, *what))
            if isinstance(saved.error, _PASSING):
                # The storage could not serve: the same slot, after a while.
                entry.due = self._core.clock.ticks() + entry.retry
                entry.retry = min(2 * entry.retry, LAST_RETRY)
            elif saved.outcome in NOTHING:
                entry.schedule = self._advanced(entry, runs=entry.schedule.runs)
                self._next(entry, saved.again)
            else:
                store.append((entry, error))
        self._store(store, lease)
        return ran

    def _asked(self, entry: _Entry) -> tuple[Wanted, Callable[[], None]] | Saved:
        """The checkpoint of a slot, and what to do once it is made; or why there is none."""
        schedule = entry.schedule
        if schedule.scope is None:
            return Saved("absent")  # a job, of an older version
        scope = Scope.parse(schedule.scope)
        try:
            if schedule.retention:
                with suppress(ScopeNotFoundError):  # until there is one
                    self._retention.run(scope)
                return Saved("done")
            if schedule.policy is not None:
                return self._engine.scheduled(scope, schedule.policy)
        except HoldfastError as error:
            return Saved("failed", error=error)
        name, line = schedule.name, schedule.timeline
        metadata = {"trigger": "schedule", "schedule": name, "slot": entry.slot}
        return Wanted(scope, line, name, "scheduled", metadata, entry.id), lambda: None

    def _advanced(self, entry: _Entry, *, runs: int, failed: str | None = None) -> Schedule:
        """The schedule behind the slot that was run."""
        schedule = entry.schedule
        done = schedule.done
        if isinstance(schedule.when, Cron):
            done = done_until(max(entry.slot, int(self._own_time(schedule))))
        at = self._core.clock.claimed() if runs > schedule.runs else schedule.at
        return msgspec.structs.replace(schedule, runs=runs, at=at, done=done, failed=failed)

    def _next(self, entry: _Entry, again: float | None = None) -> None:
        """When it is due next: on its grid, or `again` seconds from now if that is sooner."""
        entry.retry = FIRST_RETRY
        if isinstance(entry.schedule.when, Cron):
            self._plan(entry)
        else:
            now = self._core.clock.ticks()
            due = on_grid(entry.schedule.when, entry.due, now)
            entry.due = due if again is None else min(due, now + again)

    def _store(self, ended: list[tuple[_Entry, str | None]], lease: Lease) -> None:
        """Say in the cells how far these schedules are, if the lease is still held."""
        swaps: list[Swap] = []
        for entry, failed in ended:
            entry.schedule = self._advanced(entry, runs=entry.schedule.runs + 1, failed=failed)
            new = self._schedules.seal(entry.key, entry.schedule)
            swaps.append((entry.key, entry.cell, new))
            entry.cell = new
            self._next(entry)
        fresh, self._fresh = self._fresh, True  # if it fails, the cells say how far they are
        if not swaps or self._schedules.cells.advance(swaps, lease):
            self._fresh = fresh
            return
        # The lease is lost, or one of them was removed or replaced: which, each says for itself.
        for swap in swaps:
            self._schedules.cells.advance([swap], lease)
        now = dict(self._core.storage.cells(lease.key, lease.key + b"\0"))
        if now.get(lease.key) != lease.cell:
            raise lease.lost()
