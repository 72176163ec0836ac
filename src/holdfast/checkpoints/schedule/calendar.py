"""When something is due: intervals and calendars, without a store and without waiting.

A **slot** is one occasion of a schedule. Of an interval the slots are numbered; of a calendar they
are moments, whole seconds since 1970, so that each is there once, whatever the clocks do.

What a calendar schedule has behind it is kept as **stretches** of time. There is one, which grows,
as long as the clock goes on as clocks should. If slots lie behind a pause or a jump, the first of
them is run for all, and a new stretch begins where the clock is now: should the clock go back,
neither is that slot run again nor are those of the right time left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from hashlib import blake2b
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec

from holdfast.errors import InvalidInputError
from holdfast.store.names.arguments import check_seconds, check_text

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
