"""What an agent's policies cost, and what longer intervals would save.

The checkpoints in the agent's history are the record. A policy with a longer interval would have
waited with each that came too soon behind the one before, and that one would have served all that
came meanwhile. What other policies would have made instead is left out of account.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from holdfast.checkpoints.create import stored_bytes
from holdfast.checkpoints.policy.policies import Policies, agent_scope
from holdfast.checkpoints.policy.policy import DEFAULTS, Policy, policy_of
from holdfast.store.inner import LineHandle, core_of
from holdfast.store.names.face import faced
from holdfast.store.names.threads import safe_point
from holdfast.store.store import Store

LEAST, MOST = 60_000.0, 6 * 3_600_000.0
"""Intervals that are tried: a minute to six hours."""
WORTH = 0.25
"""A proposal saves at least this part of what all policies cost, if any setting does."""


@dataclass(frozen=True, slots=True)
class Cost:
    """What the checkpoints of a policy take."""

    policy: str
    checkpoints: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Proposal:
    """Another interval for a policy, and what it would have saved."""

    policy: Policy
    """As it would be."""
    before: int
    """Bytes of all policies' checkpoints as it is now."""
    saves: int
    """Bytes of them that would have been saved."""
    checkpoints: int
    """Checkpoints that would not have been made."""


@faced
class Optimizer:
    """Says which policies cost most and what longer intervals would save.

    It reads all checkpoints of an agent's history, each time it is asked about an agent.
    """

    def __init__(self, store: Store, *, defaults: Iterable[Policy] = DEFAULTS) -> None:
        self._policies = Policies(store, defaults=defaults, watch=False)
        self._core = core_of(store)

    def costs(self, agent: Any) -> list[Cost]:
        """What policies have cost, the dearest first, by the checkpoints in the history.

        Damaged entries are passed over; `verify` names them.
        """
        count, size = Counter[str](), Counter[str]()
        for policy, _, taken in self._made(agent):
            count[policy] += 1
            size[policy] += taken
        found = [Cost(name, count[name], size[name]) for name in count]
        return sorted(found, key=lambda one: (-one.bytes, one.policy))

    def propose(self, agent: Any) -> list[Proposal]:
        """For each policy the shortest longer interval that is worth it, the best first.

        To take one, give its policy to `Policies.set`.
        """
        made = list(self._made(agent))
        before = sum(taken for _, _, taken in made)
        found: list[Proposal] = []
        for policy in self._policies.list(agent):
            times = sorted(time for name, time, _ in made if name == policy.id)
            if times and policy.enabled:
                each = sum(taken for name, _, taken in made if name == policy.id) / len(times)
                found += _longer(policy, times, each, before)
        return sorted(found, key=lambda one: -one.saves)

    def _made(self, agent: Any) -> Iterator[tuple[str, float, int]]:
        """Policy, time in seconds and bytes of each checkpoint of a policy, the newest first."""
        handle = LineHandle(self._core, agent_scope(self._core, agent), "main")
        self._core.ledger(handle.scope)  # one that is not there has no history: it is misspelt
        history = handle.history
        for line, sequence, envelope, body in history.points.statements(passed=[]):
            safe_point()
            one = history.described(line, "main", sequence, envelope, body)
            if policy := policy_of(one):
                yield policy, body.time / 1_000_000, stored_bytes(handle, one)


def _longer(policy: Policy, times: list[float], each: float, before: int) -> Iterator[Proposal]:
    """The first interval that is worth it; if none is, the one that saves most."""
    best: Proposal | None = None
    now = policy.frequency.interval
    interval = LEAST if now < LEAST else min(now * 2, MOST)
    while now < interval <= MOST:  # each twice the one before, up to the longest that is tried
        other = replace(policy, frequency=replace(policy.frequency, interval=interval))
        # How many there would have been, had each waited for the interval.
        count, last = 0, -math.inf
        for time in times:
            if time > last:  # else the one that had to wait covers it
                count, last = count + 1, max(time, last + interval / 1000)
        fewer = len(times) - count
        found = Proposal(other, before, round(fewer * each), fewer)
        if best is None or found.saves > best.saves:
            best = found
        if found.saves >= WORTH * before:
            break
        now, interval = interval, min(interval * 2, MOST)
    if best is not None and best.saves > 0:
        yield best
