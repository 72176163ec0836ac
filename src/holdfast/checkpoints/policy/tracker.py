"""One agent under its policies: which of them are met, and when it is worth looking again.

Looking at ten policies behind every write would cost more than the write. But a policy cannot fire
before the first of its conditions that does not hold does, and how far off that is, is known: so
many operations, so many bytes, so much time. The tracker sleeps until the nearest of these; a
write only counts down.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from holdfast.checkpoints.policy.conditions import (
    ERRORS,
    MEMORY,
    OPERATIONS,
    PROCESS,
    RATIO,
    REPORTED,
    SINCE,
    Condition,
    base_of,
)
from holdfast.checkpoints.policy.metrics import Metrics, operations_in
from holdfast.checkpoints.policy.policy import PREFIX, Policy
from holdfast.store.inner import Atom
from holdfast.store.names.scope import RESERVED

if TYPE_CHECKING:
    from collections.abc import Collection

    from holdfast.store.inner import Timeline
    from holdfast.store.names.scope import Scope

NEVER = math.inf
NOTHING: Mapping[str, float] = {}
POLL = 1.0
"""Seconds between two looks at what can only be found out by looking, while the agent is active."""
_RISING = ("greater_than", "greater_than_or_equal", "equals")


EVENT_TYPES = (
    "state_change",
    "time_interval",
    "user_action",
    "system_event",
    "error",
    "metric",
    "asked",
)


@dataclass(frozen=True, slots=True)
class PolicyEvent:
    """What made the policies be looked at."""

    type: str
    """One of `EVENT_TYPES`."""
    name: str = ""
    metrics: Mapping[str, float] = field(default_factory=dict)
    """Values that it brings along: what is evaluated with it reads these instead."""


WRITE = PolicyEvent("state_change")
TIMER = PolicyEvent("time_interval")
ASKED = PolicyEvent("asked")


class Tracker:
    """What is known of one agent. Not for several threads at once: the engine has the lock."""

    def __init__(self, scope: Scope, sampled: Collection[str], ticks: Callable[[], float]) -> None:
        self.scope = scope
        self._ticks = ticks
        self.metrics = Metrics()
        self.stale = True
        """What is counted is not what is stored: measure anew before looking."""
        self.firing: tuple[list[Policy], PolicyEvent, int] | None = None
        """Whose checkpoint is on its way, and behind which one: nothing else fires meanwhile."""
        self.event = TIMER
        """What made the worker look next."""
        self.rests = 0.0
        """Until when nothing is tried, because something failed."""
        self.active = False
        """Something happened since the last checkpoint: else there is nothing to keep."""
        self.sequence = 0
        self.policies: list[Policy] = []
        self.own: dict[str, Policy] = {}
        self.followed: dict[str, Policy] = {}
        """Own policies as the schedules know them."""
        self.at_operations = self.spare = self.due = NEVER
        """When to look again: at so many operations, after so many bytes, at that time."""
        self._sampled = sampled
        self._looked_at = 0
        self._met: dict[str, float] = {}
        """Since when the conditions of a policy are met."""
        self._fired: dict[str, float] = {}
        self._served: set[str] = set()
        """Policies that have fired, were not ended by that, and were met without a break since."""

    def follow(self, policies: list[Policy], own: dict[str, Policy]) -> None:
        """Take up the agent's policies as they are now."""
        self.own = own
        self.policies = [policy for policy in policies if policy.enabled]
        self.metrics.watch(one for policy in self.policies for one in policy.conditions)

    def note(self, ops: Sequence[tuple[Any, ...]], sequence: int, made: Sequence[Any]) -> bool:
        """Note a write: what was asked for, and what its entry says was done.

        Tells whether to look at the policies.
        """
        if sequence != self.sequence + 1:
            if sequence <= self.sequence:
                return False  # it was read already
            self.stale = True  # others write, too
            return True
        self.sequence = sequence
        metrics, spare, others = self.metrics, self.spare, 0
        for op in ops:
            key, value = op[1], op[-1]
            if not key:
                continue  # a merge says first what it merges
            metrics.fresh.add(key)
            if spare is not NEVER:
                if type(value) is Atom and value.encoded and len(op) == 3 and op[0] == "set":
                    spare -= len(value.encoded) + len(key) + 1
                else:
                    spare -= self._most(op)
            if key[0] == RESERVED and key.startswith(PREFIX):
                self.stale = True  # the policies are others now: all is read anew
                others += 1
        self.spare = spare
        if others < len(ops):
            self.active = True
        more = 1 if len(ops) == len(made) == 1 else len(operations_in(made))
        more -= others  # no operations of the agent's
        metrics.operations = count = metrics.operations + more
        if metrics.windows:
            metrics.happened(OPERATIONS, self._ticks(), more)
        return count >= self.at_operations or spare <= 0 or self.stale

    def _most(self, op: tuple[Any, ...]) -> float:
        """The most bytes that it can add to what is changed; NEVER: that must be looked up."""
        if op[0] == "append" and op[1] in self.metrics.changed:
            parts = op[2]
            if all(type(part) is Atom and part.encoded is not None for part in parts):
                return sum(len(part.encoded) for part in parts)
        return NEVER

    # looking

    def look(self, line: Timeline, now: float) -> list[Policy]:
        """Policies that fire now, the highest priority first; and when to look again."""
        self.metrics.settle(line)
        ready = []
        for policy in self.policies:
            if not self.met(policy, now):
                self._met.pop(policy.id, None)
                self._served.discard(policy.id)
                continue
            self._met.setdefault(policy.id, now)
            if now >= self.ready_at(policy, now):
                ready.append(policy)
        if not self.active:
            ready = []
        self._plan(now)
        self._looked_at = self.metrics.operations
        return ready

    def choose(self, line: Timeline, now: float) -> list[Policy]:
        """Policies whose checkpoint is on its way and those that are met since, the highest
        priority first: it covers what was written since, too.

        None of those before, if there is another checkpoint now.
        """
        before, _, behind = self.firing or ([], None, 0)
        ready = self.look(line, now)
        if self.metrics.basis.checkpoint == behind:
            ready += before
        return [policy for policy in self.policies if policy in ready]

    def met(self, policy: Policy, now: float, given: Mapping[str, float] = NOTHING) -> bool:
        """Whether all conditions of a policy hold; `given` are metrics that are read elsewhere."""
        return all(
            one.holds(given[one.metric] if one.metric in given else self.metrics.read(one, now))
            for one in policy.conditions
        )

    def ready_at(self, policy: Policy, now: float) -> float:
        """When a policy whose conditions are met may fire; NEVER: when they are met anew."""
        interval = policy.frequency.interval / 1000
        fired = self._fired.get(policy.id)
        if not interval and policy.id in self._served:
            return NEVER
        waited = self._met.get(policy.id, now) + self.share(policy)
        return max(waited, fired + interval) if fired is not None else waited

    def waits(self, policy: Policy, now: float) -> float | None:
        """Seconds until a policy may fire by its schedule; 0: now; None: time alone won't do.

        Its jitter is in the schedule.
        """
        kind, amount = self._next(policy, now)
        if self.met(policy, now):
            fired = self._fired.get(policy.id, -NEVER)
            return max(0.0, fired + policy.frequency.interval / 1000 - now)
        if kind == "time":
            return max(amount - now, 0.001)
        return None if kind in ("bytes", "operations") else policy.frequency.interval / 1000

    def remember(self, fired: Mapping[str, float]) -> None:
        """Take in when policies fired, in whatever process that was."""
        for id_, at in fired.items():
            self._fired[id_] = max(at, self._fired.get(id_, at))

    def share(self, policy: Policy) -> float:
        """Seconds of the jitter that this agent waits."""
        if not policy.frequency.jitter:
            return 0.0
        text = f"{self.scope}\0{policy.id}".encode("utf-8", "surrogatepass")
        part = int.from_bytes(hashlib.sha256(text).digest()[:4], "big") / 2**32
        return part * policy.frequency.jitter / 1000

    def fired(self, policies: Sequence[Policy], now: float) -> None:
        """A checkpoint was made, which serves all policies that were ready."""
        for policy in policies:
            self._fired[policy.id] = now
            self._met.pop(policy.id, None)
            if not any(map(_begins_anew, policy.conditions)):
                self._served.add(policy.id)

    # when to look again

    def _plan(self, now: float) -> None:
        self.at_operations = self.spare = self.due = NEVER
        for policy in self.policies:
            kind, amount = self._next(policy, now)
            if kind == "bytes":
                self.spare = min(self.spare, max(amount, 1.0))
            elif kind == "operations":
                self.at_operations = min(self.at_operations, amount)
            elif kind == "time" and self.active:
                self.due = min(self.due, amount)
            elif kind == "poll" and self.metrics.operations != self._looked_at:
                self.due = min(self.due, now + POLL)
            elif kind in ("time", "poll"):
                self.at_operations = min(self.at_operations, self.metrics.operations + 1)

    def _next(self, policy: Policy, now: float) -> tuple[str, float]:
        """What must happen before a policy can fire: (bytes, operations, time, poll or told)."""
        for condition in policy.conditions:
            value = self.metrics.read(condition, now)
            if not condition.holds(value):
                return self._until(condition, value)
        ready = self.ready_at(policy, now)
        return ("poll", 0) if ready == NEVER else ("time", ready)

    def _until(self, condition: Condition, value: float | None) -> tuple[str, float]:
        metric, threshold = condition.metric, condition.threshold
        if metric == PROCESS or metric in self._sampled:
            return "poll", 0
        if value is None:
            return "told", 0
        rising = condition.operator in _RISING and value <= threshold
        if metric == SINCE:
            at = self.metrics.basis.since + threshold / 1000 + 0.001  # behind it, by any rounding
            return ("time", at) if rising else _TOLD
        if metric == OPERATIONS and rising:
            more = math.floor(threshold) + 1 if condition.operator == "greater_than" else threshold
            return "operations", self.metrics.operations + max(1, math.ceil(more - value))
        if metric == RATIO and rising:
            return "bytes", threshold * self.metrics.basis.size - self.metrics.bytes
        if metric == MEMORY and rising:
            return "bytes", threshold - value
        if metric in (RATIO, MEMORY, ERRORS) or condition.span is not None:
            return "poll", 0
        return _TOLD

    # explaining

    def readings(self, policy: Policy, now: float) -> Iterator[tuple[Condition, float | None]]:
        """What each condition of a policy reads."""
        for condition in policy.conditions:
            yield condition, self.metrics.read(condition, now)

    def samples(self) -> set[str]:
        """Metrics of the policies that must be asked for."""
        wanted = {one.metric for policy in self.policies for one in policy.conditions}
        return {metric for metric in wanted if metric == PROCESS or metric in self._sampled}


_TOLD = ("told", 0.0)


def _begins_anew(condition: Condition) -> bool:
    """Whether a checkpoint ends it: it waits for something to grow that is counted from there."""
    since = condition.metric in (SINCE, RATIO) or (
        condition.span is None and base_of(condition.metric) in (OPERATIONS, *REPORTED)
    )
    return since and condition.operator in _RISING


def is_reported(metric: str) -> bool:
    """Whether a metric counts what is reported in this process."""
    return base_of(metric) in (*REPORTED, ERRORS)
