"""Schedules as they are stored: what is to run when, and how far it is."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

import msgspec

from holdfast.checkpoints.schedule import calendar
from holdfast.checkpoints.schedule.calendar import Cron, Stretches, When
from holdfast.errors import (
    DamagedRecordError,
    InvalidInputError,
    InvalidKeyError,
    ScheduleNotFoundError,
)
from holdfast.store.inner import Core, LineHandle, ScheduleCells, moment
from holdfast.store.names import rowkinds
from holdfast.store.names.arguments import check_own
from holdfast.store.names.scope import Scope, check_key


class Line(Protocol):
    """A state of either face."""

    @property
    def scope(self) -> Scope: ...

    @property
    def timeline(self) -> str: ...


Target = Line | Scope | str
"""Of what checkpoints are made."""


class Schedule(msgspec.Struct, frozen=True, array_like=True):
    """The cell of a schedule."""

    name: str
    id: bytes
    """Random: slots of a schedule that is added anew are others."""
    when: When
    scope: str | None
    """A checkpoint is made of it; None: a job is run."""
    timeline: str
    job: str | None
    runs: int = 0
    at: int = 0
    """Microseconds since 1970, as claimed, of the last run; before the first one, of the adding."""
    done: Stretches = ()
    """Of a calendar: the time whose slots are done."""
    failed: str | None = None
    """The name of the error with which it ended last."""
    policy: str | None = None
    """The id of the policy that decides whether a checkpoint is made."""
    retention: bool = False
    """Retention of the scope is run, and no checkpoint made."""

    @property
    def shift(self) -> float:
        """By how many seconds its jitter makes it later."""
        return calendar.shift(f"{self.name}\0{self.scope}", self.when.jitter)

    @property
    def saves(self) -> bool:
        """Whether checkpoints are made by it."""
        return self.scope is not None and not self.retention

    def same(self, other: Schedule) -> bool:
        """Whether both say the same, however far they are."""
        return self.when == other.when and self.is_of(other)

    def is_of(self, other: Schedule) -> bool:
        """Whether both are about the same, whenever that is."""
        return self._about() == other._about()

    def _about(self) -> tuple[Any, ...]:
        return (self.scope, self.timeline, self.job, self.policy, self.retention)


@dataclass(frozen=True, slots=True)
class ScheduleInfo:
    """What the storage says of a schedule."""

    name: str
    when: When | None = None
    """None only if it is damaged."""
    scope: str | None = None
    """Of what checkpoints are made; None if a job is run."""
    job: str | None = None
    runs: int = 0
    last: datetime | None = None
    """When it ran last, by the clock of the process that did it."""
    next: datetime | None = None
    """When it is due, by the clock of this process; of an interval about."""
    failed: str | None = None
    """The name of the error with which the last run ended; None if all went well."""
    policy: str | None = None
    """The policy that decides whether a checkpoint is made; None if no policy does."""
    retention: bool = False
    """Whether it is the retention of the scope that is run."""
    timeline: str = "main"
    """Of the scope."""
    damage: str | None = None
    """What is wrong with its cell: only where that lies is known, which is its `name` here. It does
    not run until it is added again, or removed, by its own name."""


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Schedule).decode


class Schedules:
    """The schedules of one open store, for adding, removing and looking."""

    def __init__(self, core: Core) -> None:
        self.core = core
        self.cells = ScheduleCells(core)

    def put(
        self,
        name: str,
        when: When,
        scope: str | None,
        timeline: str,
        job: str | None,
        *,
        policy: str | None = None,
        retention: bool = False,
        named: bool = True,
    ) -> Schedule:
        """Add or replace a schedule; one that says the same already goes on as it is.

        If nobody gave it its name, one of something else that has it is not replaced.
        """
        now = self.core.clock.claimed()
        name = check_name(name, owner=policy is not None)
        done = ((now // 1_000_000,) * 2,) if isinstance(when, Cron) else ()
        new = Schedule(
            name, os.urandom(16), when, scope, timeline, job, at=now, done=done, policy=policy,
            retention=retention,
        )  # fmt: skip
        kept = new
        key = self.cells.key_of(name)

        def made(before: bytes | None) -> bytes:
            nonlocal kept
            old = self._read(key, before)
            if old is not None and not named and not old.is_of(new):
                raise InvalidInputError(
                    f"there is a schedule {name!r} already, of something else: give this one "
                    "another name="
                )
            kept = old if old is not None and old.same(new) else new
            return before if before is not None and kept is old else _encode(new)

        self.cells.replace(name, made)
        return kept

    def _read(self, key: bytes, before: bytes | None) -> Schedule | None:
        with suppress(DamagedRecordError):  # then it is replaced
            return self.decode(key, before) if before is not None else None
        return None

    def remove(self, name: str) -> None:
        """Remove a schedule, also one that is damaged."""
        if not self.discard(check_name(name, owner=True)):
            raise ScheduleNotFoundError(f"there is no schedule {name!r}; `schedules()` lists them")

    def discard(self, name: str) -> bool:
        """Remove a schedule, if there is one."""
        return self.cells.replace(name, lambda _: None)

    def has(self, name: str) -> bool:
        """Whether there is a schedule of this name."""
        return self.cells.get(self.cells.key_of(name)) is not None

    def when(self, name: str) -> When | None:
        """When the schedule of a name runs; None if there is none that can be read."""
        key = self.cells.key_of(name)
        row = self.cells.get(key)
        with suppress(DamagedRecordError):
            return self.open(key, row).when if row is not None else None
        return None

    def infos(self) -> Iterator[ScheduleInfo]:
        """What is told of all schedules, in no order; of one that is damaged, where it lies."""
        self.core.check_open()
        for key, row in self.cells.all():
            try:
                yield self.info(self.open(key, row))
            except DamagedRecordError as error:
                yield ScheduleInfo(rowkinds.describe(key), damage=str(error))

    def open(self, key: bytes, row: bytes) -> Schedule:
        """The schedule that a cell holds."""
        return self.decode(key, self.cells.open(key, row))

    def decode(self, key: bytes, plain: bytes) -> Schedule:
        """The same from its plain bytes."""
        try:
            return _decode(plain)
        except msgspec.DecodeError:
            place = rowkinds.describe(key)
            raise DamagedRecordError(f"{place}: it cannot be decoded", place) from None

    def seal(self, key: bytes, schedule: Schedule) -> bytes:
        """What is stored of a schedule."""
        return self.cells.seal(key, _encode(schedule))

    def info(self, schedule: Schedule) -> ScheduleInfo:
        """What is told of a schedule."""
        due = self._due(schedule, self.core.clock.claimed() / 1_000_000)
        return ScheduleInfo(
            schedule.name,
            schedule.when,
            schedule.scope,
            schedule.job,
            schedule.runs,
            moment(schedule.at) if schedule.runs else None,
            None if due is None else moment(int(due * 1_000_000)),
            schedule.failed,
            schedule.policy,
            schedule.retention,
            schedule.timeline,
        )

    def _due(self, schedule: Schedule, now: float) -> float | None:
        """About when a schedule is due, in seconds since 1970, behind now."""
        when = schedule.when
        if isinstance(when, Cron):
            slot = calendar.next_slot(when, schedule.done, int(now - schedule.shift))
            if slot is not None and slot + schedule.shift <= now:
                slot = when.after(int(now))
            return None if slot is None else slot + schedule.shift
        moved = 0.0 if schedule.runs else schedule.shift
        return calendar.on_grid(when, schedule.at / 1_000_000 + moved, now)


def check_name(name: str, *, owner: bool = False) -> str:
    """The name of a schedule, which follows the rules of keys."""
    try:
        return check_key(name, owner=owner)
    except InvalidKeyError as error:
        raise InvalidInputError(
            f"the name of a schedule follows the rules of keys: {error}"
        ) from None


def target_of(core: Core, target: Target | None) -> tuple[str | None, str]:
    """(scope, timeline) of what checkpoints are to be made; a state of another store is refused."""
    if target is None or isinstance(target, Scope):
        return str(target) if target else None, "main"
    if isinstance(target, str):
        return str(Scope.parse(target)), "main"
    scope, timeline = getattr(target, "scope", None), getattr(target, "timeline", None)
    if not isinstance(scope, Scope) or not isinstance(timeline, str):
        raise InvalidInputError("a checkpoint is made of a state, or of a scope as in 'agent:7'")
    line = getattr(target, "_handle", target)
    if isinstance(line, LineHandle):
        check_own(core, f"that state of {scope}", line)
    return str(scope), timeline
