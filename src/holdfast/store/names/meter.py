"""What an open store counts and times, in memory of a fixed bound.

One mechanism for all of it: a **measure** has series, one for each combination of its labels, and
a series has a count, a sum of seconds and a histogram. The store tells of saves and commits; what
stands above it tells of transitions, recoveries and what it refuses. `Store.metrics` gives all of
it as one snapshot, on which alerts (of `recovery.setup`) and exports stand.

Labels are names from definitions and kinds of errors, never values, ids of agents or texts that a
caller gave, so that they can leave the process. A measure that has more series than `MOST` counts
the others together by their outcome; their other labels are `OTHER`.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import frexp
from operator import sub
from time import perf_counter
from typing import Any, TypeVar

from holdfast.errors import InvalidInputError

MOST = 500
"""Series of one measure, before others are counted together."""
OTHER = "(other)"
_LEAST = -17
"""The first bucket ends at two to this power: 8 microseconds."""
BOUNDS = tuple(2.0**power for power in range(_LEAST, 9))
"""Seconds at which buckets end, each twice the one before; behind the last is one more."""
_LAST = len(BOUNDS)
_E = TypeVar("_E", bound=Exception)
_Sums = tuple[int, float, tuple[int, ...]]
"""Count, seconds and buckets of a series."""
_NOTHING: _Sums = 0, 0.0, (0,) * (_LAST + 1)


@dataclass(frozen=True, slots=True, eq=False)
class Measure:
    """Something that is counted, and perhaps timed."""

    name: str
    labels: tuple[str, ...]
    text: str
    """What it is."""
    good: str = ""
    """The `outcome` that is no failure; empty if there are no outcomes."""


SAVES = Measure(
    "saves",
    ("outcome",),
    "changes, from when they were asked for until they were durable or failed",
    good="saved",
)
COMMITS = Measure("commits", (), "commits of the storage, each of all changes that waited")
TRANSITIONS = Measure(
    "transitions",
    ("machine", "kind", "trigger", "from_state", "to_state", "outcome"),
    "transitions of machines that were tried",
    good="succeeded",
)
RECOVERIES = Measure(
    "recoveries", ("failure", "outcome"), "recoveries that came to an end", good="succeeded"
)
CHECKPOINTS = Measure(
    "checkpoints", ("outcome",), "checkpoints that came by themselves", good="saved"
)
INVALID = Measure("validation_failures", ("what",), "states that were refused as not valid")
CACHE = Measure("cache", ("call", "result"), "records asked of, and given to, a cache in Redis")
EVENTS_LOGGED = Measure(
    "events", ("outcome",), "events of a log, written or dropped", good="logged"
)
HOOKS = Measure("hooks", ("hook", "outcome"), "events that hooks were told of", good="done")
MEASURES = {
    one.name: one
    for one in (
        SAVES,
        COMMITS,
        CHECKPOINTS,
        TRANSITIONS,
        RECOVERIES,
        INVALID,
        CACHE,
        EVENTS_LOGGED,
        HOOKS,
    )
}
SAVED = ("saved",)
MOST_TOLD = 1000
"""What may wait to be counted."""


class _Series:
    __slots__ = ("buckets", "count", "seconds")

    def __init__(self) -> None:
        self.count = 0
        self.seconds = 0.0
        self.buckets = [0] * (_LAST + 1)


class Meter:
    """Counts and times for one open store. Thread safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # who commits tells without it (`_told`)
        self._known: dict[Measure, dict[tuple[str, ...], _Series]] = {
            measure: {} for measure in MEASURES.values()
        }
        self._begun = perf_counter()
        self._told: list[tuple[Measure, tuple[str, ...], float]] = []
        self.tell = self._told.append
        """Note that something happened and how long it took: cheap, and counted when it is read."""

    def add(
        self,
        measure: Measure,
        labels: tuple[str, ...] = (),
        seconds: float | None = None,
        count: int = 1,
    ) -> None:
        """Note that something happened, and how long it took if that is known."""
        with self._lock:
            self._add(measure, labels, seconds, count)

    def settle(self, most: int = 0) -> None:
        """Count what was told, if that is more than so much."""
        told = self._told
        if len(told) > most:
            with self._lock:
                # What is told meanwhile, by whoever commits, stays behind what is taken here.
                taken = told[:]
                del told[: len(taken)]
                for measure, labels, seconds in taken:
                    self._add(measure, labels, seconds)

    def invalid(self, what: str, error: _E) -> _E:
        """Note that something is refused as not valid; gives the error back, to be raised."""
        self.add(INVALID, (what,))
        return error

    def _add(
        self, measure: Measure, labels: tuple[str, ...], seconds: float | None, count: int = 1
    ) -> None:
        known = self._known[measure]
        series = known.get(labels)
        if series is None:
            if len(known) >= MOST:
                labels = _folded(measure, labels)
            series = known.setdefault(labels, _Series())
        series.count += count
        if seconds is not None:
            series.seconds += seconds
            place = frexp(seconds)[1] - _LEAST if seconds else 0
            series.buckets[0 if place < 0 else place if place < _LAST else _LAST] += 1

    def read(self) -> Metrics:
        """All that was counted so far."""
        self.settle()
        with self._lock:
            series = {
                measure: {
                    labels: (one.count, one.seconds, tuple(one.buckets))
                    for labels, one in known.items()
                }
                for measure, known in self._known.items()
            }
            return Metrics(perf_counter() - self._begun, series)


@dataclass(frozen=True, slots=True)
class Latency:
    """How long something took, each time that it happened; exact to a factor of two."""

    count: int
    """How often it was timed."""
    seconds: float
    """In sum."""
    buckets: tuple[int, ...]
    """How often it ended within each of `bounds` and not within the one before; the last: later."""
    bounds: tuple[float, ...] = BOUNDS

    @property
    def mean(self) -> float:
        """Seconds on average; 0 if it never happened."""
        return self.seconds / self.count if self.count else 0.0

    def quantile(self, share: float) -> float:
        """Seconds within which this share of them ended, as the buckets tell: 0.99 for all but one
        in a hundred; 0 if it never happened."""
        if type(share) not in (int, float) or not 0 <= share <= 1:
            raise InvalidInputError("a quantile is a share from 0 to 1")
        wanted = share * self.count
        done, low = 0, 0.0
        for count, high in zip(self.buckets, self.bounds, strict=False):
            if count and done + count >= wanted:
                return low + (high - low) * max(0.0, wanted - done) / count
            done, low = done + count, high
        return low if self.count else 0.0


@dataclass(frozen=True, slots=True)
class Metrics:
    """What one open store counted, as it was at one moment."""

    seconds: float
    """How long was counted: since the store was opened, or between two snapshots."""
    _series: Mapping[Measure, Mapping[tuple[str, ...], _Sums]] = field(repr=False)

    def count(self, name: str, **labels: str) -> int:
        """How often it happened, with these labels: `count("transitions", outcome="failed")`."""
        return sum(one[0] for _, one in self._fitting(name, labels))

    def by(self, name: str, label: str, **labels: str) -> dict[str, int]:
        """How often it happened with each value of a label."""
        found: dict[str, int] = {}
        for known, one in self._fitting(name, labels, label):
            value = known[label]
            found[value] = found.get(value, 0) + one[0]
        return found

    def latency(self, name: str, **labels: str) -> Latency:
        """How long it took."""
        sums = [one for _, one in self._fitting(name, labels)]
        buckets = tuple(map(sum, zip(*(one[2] for one in sums), strict=True)))
        seconds = sum((one[1] for one in sums), 0.0)
        return Latency(sum(buckets), seconds, buckets or _NOTHING[2])

    def share(self, name: str, **labels: str) -> float | None:
        """How large a part of all of them has these labels; None if it never happened.

        `share("recoveries", outcome="succeeded")` is the rate at which recoveries succeed.
        """
        some, every = self.count(name, **labels), self.count(name)
        return some / every if every else None

    def since(self, before: Metrics) -> Metrics:
        """What was counted since an earlier snapshot of the same open store."""
        if not isinstance(before, Metrics) or before.seconds > self.seconds:
            raise InvalidInputError("since() takes an earlier snapshot of the same store")
        then = before._series
        series = {
            measure: {
                labels: (one[0] - old[0], one[1] - old[1], tuple(map(sub, one[2], old[2])))
                for labels, one in known.items()
                if one[0] > (old := then[measure].get(labels, _NOTHING))[0]
            }
            for measure, known in self._series.items()
        }
        return Metrics(self.seconds - before.seconds, series)

    def figures(self) -> dict[str, float]:
        """Numbers of which each is worse the greater it is, but for plain counts.

        Of each measure: how often (`saves`), the share that did not end well (`saves_failed`), and
        seconds (`saves_p50`, `saves_p99`); only those that are known.
        """
        found: dict[str, float] = {}
        for name, measure in MEASURES.items():
            every = self.count(name)
            found[name] = every
            if measure.good and every:
                found[f"{name}_failed"] = 1 - self.count(name, outcome=measure.good) / every
            taken = self.latency(name)
            if taken.count:
                found[f"{name}_p50"], found[f"{name}_p99"] = map(taken.quantile, (0.5, 0.99))
        return found

    def data(self) -> dict[str, Any]:
        """All of it as plain data, for an export."""
        return {
            "seconds": self.seconds,
            "figures": self.figures(),
            "bounds": list(BOUNDS),
            "series": [
                {
                    "name": measure.name,
                    "labels": dict(zip(measure.labels, labels, strict=True)),
                    "count": one[0],
                    "seconds": one[1],
                    "buckets": list(one[2]),
                }
                for measure, known in self._series.items()
                for labels, one in known.items()
            ],
        }

    def __str__(self) -> str:
        lines = [f"{name}: {figure:.4g}" for name, figure in self.figures().items()]
        return "\n".join([f"counted for {self.seconds:.4g} s", *lines])

    def _fitting(
        self, name: str, wanted: Mapping[str, str], *more: str
    ) -> Iterable[tuple[dict[str, str], _Sums]]:
        measure = MEASURES.get(name) if isinstance(name, str) else None
        if measure is None:
            known = ", ".join(MEASURES)
            raise InvalidInputError(f"there is no measure {str(name)[:80]!r}; there are {known}")
        unknown = [label for label in (*wanted, *more) if label not in measure.labels]
        if unknown:
            has = ", ".join(measure.labels) or "none"
            raise InvalidInputError(f"{name} has no label {str(unknown[0])[:80]!r}; it has {has}")
        for values, one in self._series[measure].items():
            labels = dict(zip(measure.labels, values, strict=True))
            if all(labels[label] == value for label, value in wanted.items()):
                yield labels, one


def _folded(measure: Measure, labels: tuple[str, ...]) -> tuple[str, ...]:
    """The labels of what would be one series too many. How it ended stays exact, except that kinds
    of errors, which have no bound of their own, are no more told apart."""
    return tuple(
        value if name == "outcome" and (len(labels) > 1 or value == measure.good) else OTHER
        for name, value in zip(measure.labels, labels, strict=True)
    )
