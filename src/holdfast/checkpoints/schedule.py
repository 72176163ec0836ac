"""Schedules as they are stored: what is to run when, and how far it is."""

from __future__ import annotations

import os
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
    MissingError,
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
# A calendar schedule knows up to which moment its slots are done. If several lie behind that, the
# first of them is run for all. If the clock goes back, it goes on from there: a slot that comes
# again makes no second checkpoint, for its checkpoint has an id.


SHORTEST, LONGEST = 0.1, 366 * 86_400.0
"""Seconds of an interval."""
MOST_JITTER = 86_400.0
Done = tuple[tuple[int, int], ...]
"""Of a calendar: up to which moment its slots are done, twice, as the last item."""


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

        try:
            zone = ZoneInfo(self.zone)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            raise InvalidInputError(
                "there is no such zone here; zones are named as in 'Europe/Berlin' (if none is "
                "found, this machine has no zone database: install the package tzdata)"
            ) from None
        start = datetime.fromtimestamp(moment, zone)
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


def _jitter(seconds: float) -> str:
    return f", jitter {seconds:g} s" if seconds else ""


def shift(name: str, jitter: float) -> float:
    """How much later than others a schedule or a policy runs: always the same for one name."""
    text = name.encode("utf-8", "surrogatepass")
    return jitter * int.from_bytes(blake2b(text, digest_size=8).digest(), "big") / (1 << 64)


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


def next_slot(when: Cron, done: Done) -> int | None:
    """The first slot that is not done."""
    return when.after(done[-1][1])


def done_until(moment: int) -> Done:
    """That all slots up to a moment are done."""
    return ((moment, moment),)


def believed(done: Done, now: int) -> Done:
    """The same; if that lies ahead, the clock went back, and what comes from now on counts."""
    return done if done and done[-1][1] <= now else done_until(now)


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
    """A checkpoint is made of it; None: it is of an older version, and runs a job no longer."""
    timeline: str
    job: str | None
    """Of an older version."""
    runs: int = 0
    at: int = 0
    """Microseconds since 1970, as claimed, of the last run; before the first one, of the adding."""
    done: Done = ()
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
    def target(self) -> tuple[Any, ...]:
        """What it is of, whenever that is."""
        return (self.scope, self.timeline, self.policy, self.retention)


@dataclass(frozen=True, slots=True)
class ScheduleInfo:
    """What the storage says of a schedule."""

    name: str
    when: When | None = None
    """None only if it is damaged."""
    scope: str | None = None
    """Of what checkpoints are made."""
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
        scope: str,
        timeline: str,
        *,
        policy: str | None = None,
        retention: bool = False,
    ) -> Schedule:
        """Add a schedule, or give one another time; one that says the same goes on as it is."""
        now = self.core.clock.claimed()
        name = check_name(name, owner=policy is not None)
        done = done_until(now // 1_000_000) if isinstance(when, Cron) else ()
        new = Schedule(
            name, os.urandom(16), when, scope, timeline, None, at=now, done=done, policy=policy,
            retention=retention,
        )  # fmt: skip
        kept = new
        key = self.cells.key_of(name)

        def made(before: bytes | None) -> bytes:
            nonlocal kept
            old = None
            with suppress(DamagedRecordError):  # then it is replaced
                old = self.decode(key, before) if before is not None else None
            if old is not None and old.scope is not None and old.target != new.target:
                raise InvalidInputError(
                    f"there is a schedule {name!r} already, of something else: give this one "
                    "another name=, or remove that one"
                )
            kept = old if old is not None and (old.when, old.target) == (when, new.target) else new
            return before if before is not None and kept is old else _encode(new)

        self.cells.replace(name, made)
        return kept

    def remove(self, name: str) -> None:
        """Remove a schedule, also one that is damaged."""
        if not self.discard(check_name(name, owner=True)):
            raise MissingError(f"there is no schedule {name!r}; `schedules()` lists them")

    def discard(self, name: str) -> bool:
        """Remove a schedule, if there is one."""
        return self.cells.replace(name, lambda _: None)

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
        when, now = schedule.when, self.core.clock.claimed() / 1_000_000
        due: float | None
        if isinstance(when, Cron):
            slot = next_slot(when, believed(schedule.done, int(now - schedule.shift)))
            if slot is not None and slot + schedule.shift <= now:
                slot = when.after(int(now))
            due = None if slot is None else slot + schedule.shift
        else:
            moved = 0.0 if schedule.runs else schedule.shift
            due = on_grid(when, schedule.at / 1_000_000 + moved, now)
        return ScheduleInfo(
            schedule.name,
            schedule.when,
            schedule.scope,
            schedule.runs,
            moment(schedule.at) if schedule.runs else None,
            None if due is None else moment(int(due * 1_000_000)),
            schedule.failed,
            schedule.policy,
            schedule.retention,
            schedule.timeline,
        )


def check_name(name: str, *, owner: bool = False) -> str:
    """The name of a schedule, which follows the rules of keys."""
    try:
        return check_key(name, owner=owner)
    except InvalidKeyError as error:
        raise InvalidInputError(
            f"the name of a schedule follows the rules of keys: {error}"
        ) from None


def target_of(core: Core, target: Target) -> tuple[Scope, str]:
    """(scope, timeline) of what checkpoints are to be made; a state of another store is refused."""
    if isinstance(target, Scope | str):
        return Scope.parse(target), "main"
    scope, timeline = getattr(target, "scope", None), getattr(target, "timeline", None)
    if not isinstance(scope, Scope) or not isinstance(timeline, str):
        raise InvalidInputError("a checkpoint is made of a state, or of a scope as in 'agent:7'")
    line = getattr(target, "_handle", target)
    if isinstance(line, LineHandle):
        check_own(core, f"that state of {scope}", line)
    return scope, timeline
