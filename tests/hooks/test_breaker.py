"""The breaker: when it opens, for how long, and what closes it, by a clock that is moved by hand."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.errors import InvalidInputError
from holdfast.hooks import Breaker, BreakerSettings


class Clock:
    """Seconds, by hand."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.mark.spec("L201")
def test_the_standard_values_five_failures_thirty_seconds_ten_to_try(clock: Clock) -> None:
    breaker = Breaker(clock=clock)
    for _ in range(4):
        assert breaker.allow()
        breaker.failure()
    breaker.success()
    for _ in range(4):
        breaker.failure()
    assert breaker.state == "closed", "five in a row, not five in all"
    breaker.failure()
    assert (breaker.state, breaker.opened, breaker.wait()) == ("open", 1, 30.0)
    clock.now += 29.9
    assert not breaker.allow()
    clock.now += 0.1
    assert breaker.state == "half_open"
    assert breaker.allow()
    assert not breaker.allow(), "one call at a time, to try"
    clock.now += 9.9
    assert breaker.state == "half_open"
    clock.now += 0.1
    assert (breaker.state, breaker.opened) == ("open", 2), "the call never came back"
    clock.now += 30
    assert breaker.allow()
    breaker.success()
    assert (breaker.state, breaker.wait()) == ("closed", 0.0)
    assert all(breaker.allow() for _ in range(3))


@pytest.mark.spec("L200", "L202")
def test_a_trial_that_fails_opens_it_again(clock: Clock) -> None:
    breaker = Breaker(BreakerSettings(failures=1, open=5), clock=clock)
    breaker.failure()
    clock.now += 5
    assert breaker.allow()
    breaker.failure()
    assert (breaker.state, breaker.wait()) == ("open", 5.0)


@pytest.mark.spec("X48")
def test_the_strict_values_three_failures_two_successes_slow_calls(clock: Clock) -> None:
    breaker = Breaker(BreakerSettings.STRICT, clock=clock)
    breaker.failure()
    clock.now += 31
    breaker.failure()
    breaker.success(0.049)
    breaker.failure()
    assert breaker.state == "closed", "the first was over thirty seconds ago"
    breaker.success(0.05)  # a call that is as slow has failed
    assert (breaker.state, breaker.wait()) == ("open", 15.0)
    clock.now += 15
    for expected in ("half_open", "closed"):
        assert breaker.allow()
        breaker.success()
        assert breaker.state == expected


@pytest.mark.spec("X48", "L201")
def test_both_sets_of_values_are_known_by_name() -> None:
    standard, strict = BreakerSettings.STANDARD, BreakerSettings.STRICT
    assert standard == BreakerSettings() == BreakerSettings(5, 30.0, 10.0, 1, None, None)
    assert (strict.failures, strict.successes, strict.window) == (3, 2, 30.0)
    assert (strict.open, strict.slow) == (15.0, 0.05)


@pytest.mark.parametrize(
    "bad",
    [{"failures": 0}, {"successes": 0}, {"open": -1}, {"slow": "fast"}, {"failures": 1.5}],
)
def test_bad_values_are_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputError):
        BreakerSettings(**bad)
    with pytest.raises(InvalidInputError):
        Breaker(17)  # type: ignore[arg-type]
