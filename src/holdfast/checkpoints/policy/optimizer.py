"""What an agent's policies cost, what other settings would save, and intervals that adapt.

The agent's own history is the record: its writes are led once more through the same tracker that
watches agents, on the clock that the entries tell, with other settings. So what is predicted is
what would have been, had the agent lived the same days under them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

from holdfast.checkpoints.policy.activity import Recording, Step, checkpoint_costs, record
from holdfast.checkpoints.policy.conditions import MEMORY, OPERATIONS, RATIO, SINCE, is_number
from holdfast.checkpoints.policy.metrics import Basis, Metrics
from holdfast.checkpoints.policy.policies import Policies, agent_scope
from holdfast.checkpoints.policy.policy import DEFAULTS, Policy
from holdfast.checkpoints.policy.policy_engine import LATEST, stored_policies
from holdfast.checkpoints.policy.tracker import NEVER, Tracker
from holdfast.errors import DamagedRecordError, InvalidInputError, StateIntegrityError
from holdfast.store.history.handle import LineHandle
from holdfast.store.names.arguments import listed

MOST_LAG = 1.0
"""Seconds that a checkpoint is thought to be behind what it is made for, at most."""
BYTES = 450
"""What a checkpoint takes, where there is none in the history to measure it by."""
LEAST, MOST = 60_000.0, 6 * 3_600_000.0
"""Intervals that are tried if no bounds are given: a minute to six hours."""
WORTH = 0.25
"""A proposal saves at least this part of what all policies cost, if any setting does."""
REPLAYED = (SINCE, RATIO, MEMORY, OPERATIONS)
"""Metrics that follow from the history; others are known only while the agent runs."""


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
        """Entries that are damaged or missing, and may have been checkpoints of policies."""


@dataclass(frozen=True, slots=True)
class Proposal:
    """Another interval for a policy, and what it would save in the same time."""

    policy: Policy
    """As it would be."""
    before: int
    """Bytes of all policies' checkpoints as it is now, predicted."""
    after: int
    """The same as it would be."""
    checkpoints: int
    """Checkpoints that would not be made."""

    @property
    def saves(self) -> int:
        """Bytes that would be saved."""
        return self.before - self.after


class Optimizer:
    """Says which policies cost most and what other settings would save.

    It reads all of an agent's history, each time it is asked about an agent; `record` keeps what it
    reads, and can be asked about in its place. Policies over what is reported, recorded or asked
    for are not predicted: they count as often as they fired.
    """

    def __init__(self, store: Any, *, defaults: Iterable[Policy] = DEFAULTS) -> None:
        self._policies = Policies(store, defaults=defaults, watch=False)
        self._core = store._core

    def record(self, agent: Any) -> Recording:
        """What an agent did, without the values: times, keys and sizes; memory grows with it.

        A damaged entry is raised: what happened has to be known. Pruned history is not read.
        """
        scope = agent_scope(self._core, agent)
        self._core.ledger(scope)  # one that is not there has no history: it is misspelt
        try:
            return record(self._core, scope, tuple(self._policies.list(scope)))
        except StateIntegrityError as error:
            raise DamagedRecordError(
                f"{error}. What happened there cannot be led through policies: prune the history "
                "up to behind it, or ask for costs(), which passes it over",
                getattr(error, "place", ""),
            ) from error

    def costs(self, agent: Any) -> Costs:
        """What policies have cost, the dearest first, by the checkpoints in the history.

        Damaged entries are passed over, and named in `unread`.
        """
        unread: list[str] = []
        if isinstance(agent, Recording):
            found: Iterable[tuple[str, int]] = (
                (step.policy, step.bytes) for step in agent.steps if step.policy
            )
        else:
            found = checkpoint_costs(self._core, agent_scope(self._core, agent), unread)
        count: Counter[str] = Counter()
        size: Counter[str] = Counter()
        for policy, taken in found:
            count[policy] += 1
            size[policy] += taken
        return Costs(_sorted(Cost(name, count[name], size[name]) for name in count), unread)

    def predict(self, agent: Any, policies: Sequence[Policy] | None = None) -> list[Cost]:
        """What policies (those that the agent has) would have cost, the dearest first."""
        found = self._recorded(agent)
        if policies is None:
            return _replayed(found, found.policies)
        given = listed(policies, "predict")
        self._policies._check(given, plain_is_fine=True)
        return _replayed(found, given)

    def propose(
        self, agent: Any, bounds: Mapping[str, tuple[float, float]] | None = None
    ) -> list[Proposal]:
        """For each policy the shortest longer interval that is worth it, the best first.

        `bounds` are the least and the most interval, in milliseconds, by the policies' ids; then
        no others are touched.
        """
        recorded = self._recorded(agent)
        _check_bounds(bounds, recorded.policies)
        before = _replayed(recorded, recorded.policies)
        found: list[Proposal] = []
        for policy in recorded.policies:
            if policy.enabled and _predictable(policy) and (bounds is None or policy.id in bounds):
                least, most = (bounds or {}).get(policy.id, (LEAST, MOST))
                found += self._longer(recorded, policy, before, least, most)
        return sorted(found, key=lambda one: -one.saves)

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

    def _longer(
        self,
        recorded: Recording,
        policy: Policy,
        before: list[Cost],
        least: float,
        most: float,
    ) -> Iterator[Proposal]:
        """The first interval that is worth it; if none is, the one that saves most."""
        best: Proposal | None = None
        for interval in _intervals(policy.frequency.interval, least, most):
            other = replace(policy, frequency=replace(policy.frequency, interval=interval))
            policies = [other if one is policy else one for one in recorded.policies]
            after = _replayed(recorded, policies)
            made = sum(one.checkpoints for one in before) - sum(one.checkpoints for one in after)
            found = Proposal(other, _bytes(before), _bytes(after), made)
            if best is None or found.saves > best.saves:
                best = found
            if found.saves >= WORTH * found.before:
                break
        if best is not None and best.saves > 0:
            yield best

    def _recorded(self, subject: Any) -> Recording:
        return subject if isinstance(subject, Recording) else self.record(subject)


def _intervals(now: float, least: float, most: float) -> Iterator[float]:
    """Longer intervals within bounds, each twice the one before; the longest is the upper bound."""
    interval = least if least > now else min(now * 2, most)
    while now < interval <= most:
        yield interval
        now, interval = interval, min(interval * 2, most)


class _Replay(Metrics):
    """Metrics of a record: what keys take is told, not looked up."""

    def __init__(self) -> None:
        super().__init__()
        self.now: dict[str, tuple[int, int]] = {}
        self.then: dict[str, tuple[int, int]] = {}

    def write(self, step: Step) -> None:
        """Take in what an entry of the recording wrote."""
        self.now.update((key, (size, what)) for key, size, what in step.writes)
        self.fresh.update(key for key, _, _ in step.writes)
        self.operations += len(step.writes)
        self.happened(OPERATIONS, step.time, len(step.writes))

    def settle(self, line: Any) -> None:
        """Count the keys that were written."""
        for key in self.fresh:
            now, then = self.now.get(key, (0, 0)), self.then.get(key, (0, 0))
            changed = 0 if now == then else now[0] or then[0]
            self.bytes += changed - self.changed.get(key, (0, 0, None))[0]
            self.growth += now[0] - then[0] - self.changed.get(key, (0, 0, None))[1]
            self.changed[key] = (changed, now[0] - then[0], None)
        self.fresh.clear()

    def checkpoint(self, now: float) -> None:
        """There is a checkpoint."""
        self.settle(None)
        size = self.basis.size + self.growth
        for key in self.changed:
            self.then[key] = self.now.get(key, (0, 0))
        self.begin(Basis(self.basis.checkpoint + 1, _THERE, size, now))


_THERE: Any = object()
"""Stands for the tree of a state, of which only the size is asked for."""


def _replayed(recorded: Recording, policies: Sequence[Policy]) -> list[Cost]:
    """What policies cost over a recording, the dearest first."""
    steps = recorded.steps
    seen = [step.bytes for step in steps if step.policy]
    each = sum(seen) / len(seen) if seen else BYTES
    known = {policy.id for policy in policies if policy.enabled and not _predictable(policy)}
    clock = [steps[0].time if steps else 0.0]
    tracker, metrics = _begun(recorded, policies, clock)
    made: Counter[str] = Counter()
    lag, coming = _lag(recorded), NEVER
    """When the checkpoint that is on its way is made: it covers what is written until then."""

    def look(now: float) -> None:
        nonlocal coming
        clock[0] = now
        if coming == NEVER and tracker.look(None, now):  # type: ignore[arg-type]
            coming = now + lag

    def fire() -> None:
        nonlocal coming
        now, coming = max(coming, clock[0]), NEVER
        clock[0] = now
        ready = tracker.look(None, now)  # type: ignore[arg-type]
        if ready:
            made[ready[0].id] += 1
            checkpoint(now)
            tracker.fired(ready, now)
            tracker.look(None, now)  # type: ignore[arg-type]

    def checkpoint(now: float) -> None:
        nonlocal coming
        metrics.checkpoint(now)
        tracker.active, coming = False, NEVER

    def until(time: float) -> None:
        """What happens before the next entry."""
        while (tracker.due if coming == NEVER else coming) <= time:
            if coming != NEVER:
                fire()
            else:
                look(max(tracker.due, clock[0]))

    for step in steps:
        until(step.time)
        if step.policy is not None and (not step.policy or step.policy in known):
            made[step.policy] += bool(step.policy)
            checkpoint(step.time)
        if step.writes:
            metrics.write(step)
            tracker.active = True
            look(step.time)
    until(clock[0] + lag)
    return _sorted(Cost(name, count, round(count * each)) for name, count in made.items() if count)


def _begun(
    recorded: Recording, policies: Sequence[Policy], clock: list[float]
) -> tuple[Tracker, _Replay]:
    """The agent at the beginning of a recording, under the policies that can be replayed."""
    tracker = Tracker(recorded.scope, frozenset(), lambda: clock[0])
    metrics = tracker.metrics = _Replay()
    metrics.basis = Basis(0, None, 0, clock[0])
    tracker.follow([policy for policy in policies if _predictable(policy)], {})
    return tracker, metrics


def _lag(recorded: Recording) -> float:
    """Seconds from the write by which a policy was met to its checkpoint, as they were.

    What an agent writes meanwhile, in a burst, shares that checkpoint.
    """
    clock = [recorded.steps[0].time if recorded.steps else 0.0]
    tracker, metrics = _begun(recorded, recorded.policies, clock)
    met, lags = NEVER, []
    for step in recorded.steps:
        clock[0] = step.time
        if step.policy is not None:
            lags += [step.time - met] if step.policy and met != NEVER else []
            metrics.checkpoint(step.time)
            tracker.fired([one for one in recorded.policies if one.id == step.policy], step.time)
            tracker.active, met = False, NEVER
        if step.writes:
            metrics.write(step)
            tracker.active = True
            if met == NEVER and tracker.look(None, step.time):  # type: ignore[arg-type]
                met = step.time
    return min(median(lags), MOST_LAG) if lags else LATEST


def _predictable(policy: Policy) -> bool:
    return all(condition.metric in REPLAYED for condition in policy.conditions)


def _sorted(costs: Iterable[Cost]) -> list[Cost]:
    return sorted(costs, key=lambda one: (-one.bytes, one.policy))


def _bytes(costs: list[Cost]) -> int:
    return sum(one.bytes for one in costs)


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
