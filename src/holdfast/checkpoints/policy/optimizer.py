"""What an agent's policies cost, what longer intervals would save, and intervals that adapt.

The checkpoints in the agent's history are the record. A policy with a longer interval would have
waited with each that came too soon behind the one before, and that one would have served all that
came meanwhile. What other policies would have made instead is left out of account.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from holdfast.checkpoints.create import stored_bytes
from holdfast.checkpoints.policy.policies import Policies, agent_scope
from holdfast.checkpoints.policy.policy import DEFAULTS, Policy, is_number, policy_of
from holdfast.checkpoints.policy.policy_engine import stored_policies
from holdfast.errors import InvalidInputError
from holdfast.store.inner import LineHandle, core_of
from holdfast.store.names.face import faced, writes
from holdfast.store.names.threads import safe_point
from holdfast.store.store import Store

LEAST, MOST = 60_000.0, 6 * 3_600_000.0
"""Intervals that are tried if no bounds are given: a minute to six hours."""
WORTH = 0.25
"""A proposal saves at least this part of what all policies cost, if any setting does."""


@dataclass(frozen=True, slots=True)
class Cost:
    """What the checkpoints of a policy take."""

    policy: str
    checkpoints: int
    bytes: int


class Costs(list[Cost]):
    """What policies have cost, the dearest first, as far as the history can be read."""

    def __init__(self, found: Iterable[Cost], unread: Iterable[str]) -> None:
        super().__init__(found)
        self.unread = tuple(unread)
        """Checkpoints that are damaged, and may be of policies."""


@dataclass(frozen=True, slots=True)
class Proposal:
    """Another interval for a policy, and what it would have saved."""

    policy: Policy
    """As it would be."""
    before: int
    """Bytes of all policies' checkpoints as it is now."""
    after: int
    """The same as it would have been."""
    checkpoints: int
    """Checkpoints that would not have been made."""

    @property
    def saves(self) -> int:
        """Bytes that would have been saved."""
        return self.before - self.after


@faced
class Optimizer:
    """Says which policies cost most and what longer intervals would save.

    It reads all checkpoints of an agent's history, each time it is asked about an agent.
    """

    def __init__(self, store: Store, *, defaults: Iterable[Policy] = DEFAULTS) -> None:
        self._policies = Policies(store, defaults=defaults, watch=False)
        self._core = core_of(store)

    def costs(self, agent: Any) -> Costs:
        """What policies have cost, the dearest first, by the checkpoints in the history.

        Damaged entries are passed over, and named in `unread`.
        """
        count, size = Counter[str](), Counter[str]()
        unread: list[tuple[int, str]] = []
        for policy, _, taken in self._made(agent, unread):
            count[policy] += 1
            size[policy] += taken
        found = [Cost(name, count[name], size[name]) for name in count]
        dearest = sorted(found, key=lambda one: (-one.bytes, one.policy))
        return Costs(dearest, (f"entry {number}: {why}" for number, why in unread))

    def propose(
        self, agent: Any, bounds: Mapping[str, tuple[float, float]] | None = None
    ) -> list[Proposal]:
        """For each policy the shortest longer interval that is worth it, the best first.

        `bounds` are the least and the most interval, in milliseconds, by the policies' ids; then
        no others are touched.
        """
        policies = self._policies.list(agent)
        _check_bounds(bounds, policies)
        made = list(self._made(agent, []))
        before = sum(taken for _, _, taken in made)
        found: list[Proposal] = []
        for policy in policies:
            times = sorted(time for name, time, _ in made if name == policy.id)
            if times and policy.enabled and (bounds is None or policy.id in bounds):
                least, most = (bounds or {}).get(policy.id, (LEAST, MOST))
                each = sum(taken for name, _, taken in made if name == policy.id) / len(times)
                found += _longer(policy, times, each, before, least, most)
        return sorted(found, key=lambda one: -one.saves)

    @writes
    def adapt(self, agent: Any, bounds: Mapping[str, tuple[float, float]]) -> list[Proposal]:
        """Set the best of the intervals that are proposed within the bounds, one policy at a time.

        Gives what was set; empty if nothing would be saved. The one that is set in place of a
        default policy demands no encryption of exports either.
        """
        if bounds is None:
            raise InvalidInputError("adapt needs bounds; `propose` tells what it would do without")
        found = []
        for one in self.propose(agent, bounds)[:1]:
            own = stored_policies(LineHandle(self._core, agent_scope(self._core, agent), "main"))
            demands = self._core.ring is not None and one.policy.id in own
            policy = one.policy if demands else replace(one.policy, encryption=None)
            found.append(replace(one, policy=self._policies.set(agent, policy)))
        return found

    def _made(self, agent: Any, unread: list[tuple[int, str]]) -> Iterator[tuple[str, float, int]]:
        """Policy, time in seconds and bytes of each checkpoint of a policy, the newest first."""
        handle = LineHandle(self._core, agent_scope(self._core, agent), "main")
        self._core.ledger(handle.scope)  # one that is not there has no history: it is misspelt
        history = handle.history
        for line, sequence, envelope, body in history.points.statements(passed=unread):
            safe_point()
            one = history.described(line, "main", sequence, envelope, body)
            if policy := policy_of(one):
                yield policy, body.time / 1_000_000, stored_bytes(handle, one)


def _longer(
    policy: Policy, times: list[float], each: float, before: int, least: float, most: float
) -> Iterator[Proposal]:
    """The first interval that is worth it; if none is, the one that saves most."""
    best: Proposal | None = None
    for interval in _intervals(policy.frequency.interval, least, most):
        other = replace(policy, frequency=replace(policy.frequency, interval=interval))
        fewer = len(times) - _left(times, interval / 1000)
        found = Proposal(other, before, before - round(fewer * each), fewer)
        if best is None or found.saves > best.saves:
            best = found
        if found.saves >= WORTH * before:
            break
    if best is not None and best.saves > 0:
        yield best


def _left(times: list[float], interval: float) -> int:
    """How many checkpoints there would have been, had each waited for the interval."""
    count, last = 0, -math.inf
    for time in times:
        if time > last:  # else the one that had to wait covers it
            count, last = count + 1, max(time, last + interval)
    return count


def _intervals(now: float, least: float, most: float) -> Iterator[float]:
    """Longer intervals within bounds, each twice the one before; the longest is the upper bound."""
    interval = least if least > now else min(now * 2, most)
    while now < interval <= most:
        yield interval
        now, interval = interval, min(interval * 2, most)


def _check_bounds(
    bounds: Mapping[str, tuple[float, float]] | None, policies: Sequence[Policy]
) -> None:
    if bounds is None:
        return
    if not isinstance(bounds, Mapping):
        raise InvalidInputError(
            'bounds are intervals by the ids of policies: {"id": (least, most)}'
        )
    known = [policy.id for policy in policies]
    for name, pair in bounds.items():
        if name not in known:
            raise InvalidInputError(
                f"bounds are of policies that the agent has, which are {', '.join(known)}"
            )
        right = isinstance(pair, tuple | list) and len(pair) == 2 and all(map(is_number, pair))
        if not right or not 0 < pair[0] <= pair[1]:
            raise InvalidInputError(
                f"the bounds of {name!r} are two intervals in milliseconds, the shorter first"
            )
