"""When schedules are due: zones, daylight saving, jitter, and clocks that are set."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.checkpoints import schedule as calendar
from holdfast.checkpoints.schedule import Cron, Done, Every
from holdfast.errors import InvalidInputError


def moment(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp())


def slots(when: Cron, start: str, count: int) -> list[str]:
    found, at = [], moment(start)
    for _ in range(count):
        slot = when.after(at)
        assert slot is not None
        at = slot
        found.append(datetime.fromtimestamp(at, UTC).strftime("%m-%d %H:%M"))
    return found


@pytest.mark.parametrize(
    ("expression", "start", "expected"),
    [
        # three o'clock in Berlin is 02:00 UTC in winter, 01:00 in summer
        ("0 3 * * *", "2026-03-27T12:00+00:00", ["03-28 02:00", "03-29 01:00", "03-30 01:00"]),
        # half past two does not exist on 29 March: it runs right behind the gap
        ("30 2 * * *", "2026-03-28T12:00+00:00", ["03-29 01:00", "03-30 00:30"]),
        # and it comes twice on 25 October: it runs the first time
        ("30 2 * * *", "2026-10-24T12:00+00:00", ["10-25 00:30", "10-26 01:30"]),
        # asked in the second of the two hours, the first is over
        ("30 2 * * *", "2026-10-25T01:10+00:00", ["10-26 01:30"]),
        # With a star it follows the clock on the wall: not in the gap, and in both hours.
        ("*/20 2 * * *", "2026-03-28T12:00+00:00", ["03-30 00:00", "03-30 00:20"]),
        (
            "*/20 2 * * *",
            "2026-10-24T12:00+00:00",
            [f"10-25 0{hour}:{minute}" for hour in (0, 1) for minute in ("00", "20", "40")],
        ),
        # what runs each half hour goes on each half hour
        ("*/30 * * * *", "2026-10-25T00:10+00:00", ["10-25 00:30", "10-25 01:00", "10-25 01:30"]),
        ("*/30 * * * *", "2026-03-29T00:10+00:00", ["03-29 00:30", "03-29 01:00", "03-29 01:30"]),
        # two names of one moment are one slot
        ("0 2,3 * * *", "2026-03-28T12:00+00:00", ["03-29 01:00", "03-30 00:00"]),
    ],
)
def test_daylight_saving(expression: str, start: str, expected: list[str]) -> None:
    assert slots(Cron(expression, "Europe/Berlin"), start, len(expected)) == expected


def test_half_hour_zones_and_leap_days() -> None:
    assert slots(Cron("0 6 * * *", "Asia/Kolkata"), "2026-01-01T00:00+00:00", 1) == ["01-01 00:30"]
    assert slots(Cron("0 0 29 2 *"), "2026-01-01T00:00+00:00", 1) == ["02-29 00:00"]


@pytest.mark.parametrize(
    ("expression", "zone"),
    [
        ("", "UTC"),
        ("0 3 * *", "UTC"),
        ("0 0 3 * * *", "UTC"),  # seconds are no field
        ("60 3 * * *", "UTC"),
        ("0 0 30 2 *", "UTC"),
        ("* * */20 * 1L", "UTC"),  # never, though each field could be
        ("a b c d e", "UTC"),
        ("0 3 * * *", "Europe"),
        ("0 3 * * *", "Mars/Olympus"),
        ("0 3 * * *", "../../etc/passwd"),
        ("0 3 * * *", ""),
        (None, "UTC"),
        ("0 3 * * *", None),
    ],
)
def test_what_can_be_no_calendar_is_refused(expression: Any, zone: Any) -> None:
    with pytest.raises(InvalidInputError):
        calendar.cron(expression, zone, 0.0)


@pytest.mark.parametrize("seconds", [0, -1, 0.01, float("nan"), float("inf"), True, "60", None])
def test_what_can_be_no_interval_is_refused(seconds: Any) -> None:
    with pytest.raises(InvalidInputError):
        calendar.every(seconds, 0.0)


@pytest.mark.parametrize("jitter", [-1, 61, float("nan"), "1", None])
def test_what_can_be_no_jitter_is_refused(jitter: Any) -> None:
    with pytest.raises(InvalidInputError):
        calendar.every(60, jitter)


def test_jitter_spreads_a_thousand_agents_and_is_always_the_same() -> None:
    shifts = [calendar.shift(f"agent:{n}", 30.0) for n in range(1000)]
    assert shifts == [calendar.shift(f"agent:{n}", 30.0) for n in range(1000)]
    assert all(0 <= shift < 30 for shift in shifts)
    seconds = [sum(1 for shift in shifts if int(shift) == n) for n in range(30)]
    assert max(seconds) < 70, "33 in the mean: no second has many more"
    assert calendar.shift("agent:1", 0.0) == 0


def test_intervals_stay_in_step_and_what_was_missed_is_due_once() -> None:
    when = Every(10.0)
    assert calendar.on_grid(when, 100.0, 100.2) == 110.0
    assert calendar.on_grid(when, 100.0, 137.0) == 140.0
    assert calendar.waiting(when, 4.0, 3.0, first=False) == 6.0
    assert calendar.waiting(when, 4.0, 3.0, first=True) == 9.0
    assert calendar.waiting(when, 1e9, 3.0, first=False) == 3.0, "missed: after its jitter"
    assert calendar.waiting(when, -1e9, 3.0, first=False) == 10.0, "a clock that went back"


class Clockwork:
    """A calendar schedule, a clock that can be set, and what has run."""

    def __init__(self, expression: str, now: int) -> None:
        self.when = Cron(expression)
        self.now = now
        self.done: Done = ((now, now),)
        self.ran: list[int] = []

    def look(self) -> None:
        self.done = calendar.believed(self.done, self.now)
        slot = calendar.next_slot(self.when, self.done)
        if slot is not None and slot <= self.now:
            self.ran.append(slot)
            self.done = calendar.done_until(max(slot, self.now))
            again = calendar.next_slot(self.when, self.done)
            assert again is None or again > self.now, "one run for all that was missed"

    def go(self, seconds: int) -> set[int]:
        """Let the clock go on as it should, with a look at each slot; which these were."""
        end, passed = self.now + seconds, set()
        while (slot := self.when.after(self.now)) is not None and slot <= end:
            passed.add(slot)
            self.now = slot
            self.look()
        self.now = end
        return passed


NOW = moment("2026-11-15T10:00:30+00:00")


def test_a_clock_in_2099_for_a_minute_runs_one_slot_and_loses_none() -> None:
    clockwork = Clockwork("0 * * * *", NOW)
    clockwork.now = moment("2099-06-01T12:30+00:00")
    clockwork.look()
    assert len(clockwork.ran) == 1
    for minutes in range(180):
        clockwork.now = NOW + 60 * minutes
        clockwork.look()
    # the slot of eleven o'clock was run while the clock was wrong, for all until 2099
    assert clockwork.ran == [moment(f"2026-11-15T{hour}:00+00:00") for hour in (11, 11, 12)]


JUMPS = st.lists(
    st.tuples(st.integers(-400_000, 400_000), st.integers(1, 200)), min_size=1, max_size=6
)


@given(jumps=JUMPS, expression=st.sampled_from(["* * * * *", "*/7 * * * *", "0 */3 * * *"]))
def test_whatever_is_done_to_the_clock_no_slot_is_left_out(
    jumps: list[tuple[int, int]], expression: str
) -> None:
    clockwork = Clockwork(expression, NOW)
    for jump, minutes in jumps:
        clockwork.now += jump
        clockwork.look()
        passed = clockwork.go(60 * minutes)
        assert passed <= set(clockwork.ran), "none is left out while the clock goes as it should"
