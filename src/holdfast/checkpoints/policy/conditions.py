"""Conditions: what a policy looks at, and how it compares it.

A condition names a kind, a metric of that kind, an operator and a threshold. All conditions of a
policy must hold. Times are milliseconds, sizes bytes.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Any

RATIO = "state_change_ratio"
"""Bytes of the keys that differ from the last checkpoint ÷ bytes of the state then. Each key counts
once, with its name and all of its value (of one that is gone, as it was then); 1.0 if there was no
checkpoint."""
SINCE = "time_since_last_checkpoint"
"""Milliseconds since the last checkpoint of any type, or since the agent's first entry."""
MEMORY = "memory_usage"
"""Bytes of the agent's state as it is encoded, keys included."""
PROCESS = "process_memory"
"""Bytes of memory that this process takes, asked for at most once a second."""
OPERATIONS = "operation_count"
"""Sets, appends, trims and deletes since the last checkpoint, or within the time window."""
ERRORS = "error_rate"
"""Errors ÷ (errors + operations) within the time window (without one: of five minutes)."""
ACTIONS = "user_action"
EVENTS = "system_event"
"""How often it was reported since the last checkpoint, or within the time window; behind a colon
may stand which: `system_event:low_disk`."""

METRICS = {
    "state_change": (RATIO,),
    "time_interval": (SINCE,),
    "memory_usage": (MEMORY, PROCESS),
    "operation_count": (OPERATIONS,),
    "error_rate": (ERRORS,),
    "user_action": (ACTIONS,),
    "system_event": (EVENTS,),
}
"""Kinds of conditions, and the metrics of each."""
WINDOWED = (OPERATIONS, ERRORS, ACTIONS, EVENTS)
"""Metrics of what happens, which can be counted within a time window."""
REPORTED = (ACTIONS, EVENTS)
"""Kinds that are told; they take users' own metrics, too."""
ERROR_WINDOW = 300_000.0

OPERATORS: dict[str, Callable[[float, float], bool]] = {
    "greater_than": operator.gt,
    "less_than": operator.lt,
    "equals": operator.eq,
    "greater_than_or_equal": operator.ge,
    "less_than_or_equal": operator.le,
}
SIGNS = dict(zip(OPERATORS, (">", "<", "=", "≥", "≤"), strict=True))
LONGEST = 366 * 86_400_000.0
"""Of a window or an interval."""


@dataclass(frozen=True, slots=True)
class Condition:
    """One comparison of a metric with a threshold."""

    type: str
    metric: str
    operator: str
    threshold: float
    window: float | None = None
    """Milliseconds that are looked back; None: to the last checkpoint."""

    @property
    def span(self) -> float | None:
        """The window that counts: an error rate always has one."""
        return ERROR_WINDOW if self.window is None and self.metric == ERRORS else self.window

    def holds(self, value: float | None) -> bool:
        """Whether it is met; not if the value is not known, nor by an operator that is not."""
        compare = operator.ge if self._passes else OPERATORS.get(self.operator)
        return compare is not None and value is not None and compare(value, self.threshold)

    @property
    def _passes(self) -> bool:
        """Whether it is about a count that grows until there is a checkpoint: one that is more
        when it is looked at has been equal before."""
        counted = self.span is None and base_of(self.metric) in (OPERATIONS, *REPORTED)
        return counted and self.operator == "equals" and self.threshold >= 1

    def __str__(self) -> str:
        within = f" within {self.span:g} ms" if self.span is not None else ""
        return f"{self.metric} {SIGNS.get(self.operator, '?')} {self.threshold:g}{within}"

    def data(self) -> dict[str, Any]:
        """Plain data; what is left out has its default."""
        found = {name: getattr(self, name) for name in ("type", "metric", "operator", "threshold")}
        return found if self.window is None else {**found, "window": self.window}

    def problems(self, own: Collection[str]) -> Iterator[str]:
        """All that is wrong with it; `own` are the user's metrics."""
        kinds = METRICS.get(self.type) if isinstance(self.type, str) else None
        if kinds is None:
            yield f"unknown type {self.type!r}; a condition is {', '.join(METRICS)}"
        elif not self._fits(kinds, own):
            more = " or one of your own, given as metrics=" if self.type in REPORTED else ""
            yield f"unknown metric {self.metric!r} of {self.type}; use {', '.join(kinds)}{more}"
        if not isinstance(self.operator, str) or self.operator not in OPERATORS:
            yield f"unknown operator {self.operator!r}; use {', '.join(OPERATORS)}"
        if not is_number(self.threshold):
            time = self.metric == SINCE
            text = ' of milliseconds; in a configuration also a text like "30s" or "1h"'
            yield f"the threshold is a finite number{text if time else ''}"
        if self.window is not None:
            if not is_number(self.window) or not 0 < self.window <= LONGEST:
                yield "a time window is more than 0 ms and at most a year"
            elif base_of(self.metric) not in WINDOWED:
                yield f"a time window is for {', '.join(WINDOWED)}, which count what happens"

    def _fits(self, metrics: tuple[str, ...], own: Collection[str]) -> bool:
        if not isinstance(self.metric, str):
            return False
        if self.type not in REPORTED:
            return self.metric in metrics
        return self.metric in own or base_of(self.metric) in metrics


def base_of(metric: object) -> str:
    """The metric without what stands behind a colon."""
    return metric.partition(":")[0] if isinstance(metric, str) else ""


def is_number(value: object) -> bool:
    """Whether it is a finite number that can be compared."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return math.isfinite(value) if isinstance(value, float) else value.bit_length() < 1000
