"""Schedules as they are stored: what is to run when, and how far it is."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import blake2b
from typing import Any, Protocol
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec

from holdfast.errors import (
    DamagedRecordError,
    InvalidInputError,
    InvalidKeyError,
    ScheduleNotFoundError,
)
from holdfast.store.inner import Core, LineHandle, ScheduleCells, moment
from holdfast.store.names import rowkinds
from holdfast.store.names.arguments import check_own, check_seconds, check_text
from holdfast.store.names.scope import Scope, check_key

# ---- calendar -----------------------------------------------------------------------------------
# When something is due: intervals and calendars, without a store and without waiting.
#
# A **slot** is one occasion of a schedule. Of an interval the slots are numbered; of a calendar
# they are moments, whole seconds since 1970, so that each is there once, whatever the clocks do.
#
# What a calendar schedule has behind it is kept as **stretches** of time. There is one, which
# grows, as long as the clock goes on as clocks should. If slots lie behind a pause or a jump, the
# first of them is run for all, and a new stretch begins where the clock is now: should the clock go
# back, neither is that slot run again nor are those of the right time left out.


SHORTEST, LONGEST = 0.1, 366 * 86_400.0
"""Seconds of an interval."""
MOST_JITTER = 86_400.0
STRETCHES = 8
"""More are kept of no schedule: the oldest is for a clock that goes back behind all others."""

Stretches = tuple[tuple[int, int], ...]


class Every(msgspec.Struct, frozen=True, array_like=True, tag="every"):
    """Each `seconds`, by the monotonic clock; shifted by up to `jitter` seconds."""

    seconds: float
    jitter: float = 0.0

    def __str__(self) -> str:
        return f"every {self.seconds:g} s" + _jitter(self.jitter)


class Cron(msgspec.Struct, frozen=True, array_like=True, tag="cron"):
    """At the minutes that an expression of five fields names, in a zone; later by up to `jitter`.

    In the hour that daylight saving skips, what names that hour runs right behind it; in the hour
    that comes twice, it runs the first time. What runs more than once an hour goes on as ever.
    """

    expression: str
    zone: str = "UTC"
    jitter: float = 0.0

    def __str__(self) -> str:
        return f"{self.expression} {self.zone}" + _jitter(self.jitter)

    def after(self, moment: int) -> int | None:
        """The first slot behind a moment; None if there is none in fifty years."""
        from cronsim import CronSim  # only who has such a schedule pays for loading it

        start = datetime.fromtimestamp(moment, _zone(self.zone))
        found = (int(slot.timestamp()) for slot in CronSim(self.expression, start))
        # In the hour that comes twice it begins with the first, though the second may be meant.
        return next((slot for slot in found if slot > moment), None)


When = Every | Cron


def every(seconds: float, jitter: float) -> Every:
    """An interval, if it can be meant."""
    check_seconds(seconds, "seconds")
    if seconds is None or not SHORTEST <= seconds <= LONGEST:
        raise InvalidInputError(f"an interval has {SHORTEST} to {LONGEST:.0f} seconds")
    return Every(float(seconds), _checked_jitter(jitter, seconds))


def cron(expression: str, zone: str, jitter: float) -> Cron:
    """A calendar, if it can be meant."""
    from cronsim import CronSimError

    check_text(expression, "a cron expression", 256, least=1)
    check_text(zone, "a zone", 64, least=1)
    if len(expression.split()) != 5:
        raise InvalidInputError(
            "a cron expression has five fields, minute hour day month weekday, for example "
            "'0 3 * * *' for three o'clock each night"
        )
    made = Cron(" ".join(expression.split()), zone, _checked_jitter(jitter, MOST_JITTER))
    try:
        never = made.after(int(datetime(2024, 1, 1, tzinfo=UTC).timestamp())) is None
    except CronSimError as error:
        raise InvalidInputError(f"this is no cron expression: {str(error).lower()}") from None
    if never:
        raise InvalidInputError("no day fits this cron expression: it would never run")
    return made


def _checked_jitter(jitter: float, most: float) -> float:
    check_seconds(jitter, "jitter")
    if jitter is None or jitter > most:
        raise InvalidInputError(f"jitter is 0 to {most:g} seconds here")
    return float(jitter)


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise InvalidInputError(
            "there is no such zone here; zones are named as in 'Europe/Berlin' (if none is found, "
            "this machine has no zone database: install the package tzdata)"
        ) from None


def _jitter(seconds: float) -> str:
    return f", jitter {seconds:g} s" if seconds else ""


def shift(name: str, jitter: float) -> float:
    """How much later than others a schedule runs: always the same for one name."""
    part = int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), "big")
    return jitter * part / (1 << 64)


def waiting(when: Every, elapsed: float, moved: float, *, first: bool) -> float:
    """Seconds until an interval is over of which so many are said to have passed.

    Between two processes only wall clocks can tell how many: one that went back makes it no
    longer than the interval, and what is missed waits for its jitter alone.
    """
    left = when.seconds + (moved if first else 0.0) - max(elapsed, 0.0)
    return left if left > 0 else moved


def on_grid(when: Every, due: float, now: float) -> float:
    """When an interval that was due then is due next: in step, also if some were missed."""
    return due + when.seconds * (max(now - due, 0.0) // when.seconds + 1)


def next_slot(when: Cron, done: Stretches, now: int) -> int | None:
    """The first slot that is not done; the clock says behind which stretch to look."""
    here = _stretch_at(done, now)
    slot = when.after(done[here][1] if here is not None else now)
    for begin, end in done:
        if slot is not None and begin <= slot <= end:
            slot = when.after(end)
    return slot


def with_now(done: Stretches, now: int) -> Stretches:
    """Stretches for a clock that stands before all of them: what comes from now on counts."""
    return done if _stretch_at(done, now) is not None else _joined([*done, (now, now)])


def with_slot(when: Cron, done: Stretches, slot: int, now: int) -> Stretches:
    """Stretches after a slot was run at a moment, for itself and for all until then."""
    found = list(with_now(done, slot))
    here = _stretch_at(done, now)
    if here is not None:
        found[here] = (found[here][0], max(found[here][1], slot))
    following = when.after(slot)
    if following is not None and following <= now:
        found.append((now, now))
    return _joined(found)


def _stretch_at(done: Stretches, now: int) -> int | None:
    """The last stretch that has begun."""
    return next((n for n in range(len(done) - 1, -1, -1) if done[n][0] <= now), None)


def _joined(stretches: Sequence[tuple[int, int]]) -> Stretches:
    """In order, without overlaps, not too many."""
    joined: list[tuple[int, int]] = []
    for begin, end in sorted(stretches):
        if joined and begin <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((begin, end))
    return tuple(joined[-STRETCHES:])


# ---- schedule -----------------------------------------------------------------------------------


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
        return shift(f"{self.name}\0{self.scope}", self.when.jitter)

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

    # No book: a schedule is a cell, not a record of a scope. It is neither restored nor forked, and
    # how far it is moves on under the runner's lease.

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

    def infos(self) -> Iterator[ScheduleInfo]:
        """What is told of all schedules, in no order; of one that is damaged, where it lies."""
        self.core.check_open()
        for key, row in self.cells.all():
            try:
                yield self.info(self.open(key, row))
            except DamagedRecordError as error:  # the others are shown all the same
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
        return self.cells.core.seal_row(key, _encode(schedule))

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
            slot = next_slot(when, schedule.done, int(now - schedule.shift))
            if slot is not None and slot + schedule.shift <= now:
                slot = when.after(int(now))
            return None if slot is None else slot + schedule.shift
        moved = 0.0 if schedule.runs else schedule.shift
        return on_grid(when, schedule.at / 1_000_000 + moved, now)


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
