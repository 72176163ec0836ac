"""What an agent's policies cost, what other settings would save, and intervals that adapt.

The agent's own history is the record: its writes are led once more through the same tracker that
watches agents, on the clock that the entries tell, with other settings. So what is predicted is
what would have been, had the agent lived the same days under them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.checkpoints.policy.policies import Policies, agent_scope
from holdfast.checkpoints.policy.policy import (
    DEFAULTS,
    MEMORY,
    OPERATIONS,
    RATIO,
    SINCE,
    Policy,
    invalid,
    is_number,
)
from holdfast.checkpoints.policy.policy_engine import LATEST, stored_policies
from holdfast.checkpoints.policy.tracker import NEVER, Basis, Metrics, Tracker, counted
from holdfast.errors import DamagedRecordError, InvalidInputError, StateIntegrityError
from holdfast.storage.rows import each
from holdfast.store.inner import LineHandle, Timeline, core_of, entry, floor_of, shown
from holdfast.store.names import rowkinds
from holdfast.store.names.arguments import listed
from holdfast.store.names.face import faced, writes
from holdfast.store.names.scope import Scope
from holdfast.store.names.threads import safe_point
from holdfast.store.store import Store

if TYPE_CHECKING:
    from holdfast.store.inner import Body, Core


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


@faced
class Optimizer:
    """Says which policies cost most and what other settings would save.

    It reads all of an agent's history, each time it is asked about an agent; `record` keeps what it
    reads, and can be asked about in its place. Policies over what is reported, recorded or asked
    for are not predicted: they count as often as they fired.
    """

    def __init__(self, store: Store, *, defaults: Iterable[Policy] = DEFAULTS) -> None:
        self._policies = Policies(store, defaults=defaults, watch=False)
        self._core = core_of(store)

    def record(self, agent: Any) -> PolicyRecording:
        """What an agent did, without the values: times, keys and sizes; memory grows with it.

        A damaged entry is raised: what happened has to be known. Pruned history is not read.
        """
        scope = agent_scope(self._core, agent)
        self._core.ledger(scope)  # one that is not there has no history: it is misspelt
        try:
            return record(self._core, scope, tuple(self._policies.list(scope)))
        except StateIntegrityError as error:  # with the way out
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
        if isinstance(agent, PolicyRecording):
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

    def _longer(
        self,
        recorded: PolicyRecording,
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

    def _recorded(self, subject: Any) -> PolicyRecording:
        return subject if isinstance(subject, PolicyRecording) else self.record(subject)


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


def _replayed(recorded: PolicyRecording, policies: Sequence[Policy]) -> list[Cost]:
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
    recorded: PolicyRecording, policies: Sequence[Policy], clock: list[float]
) -> tuple[Tracker, _Replay]:
    """The agent at the beginning of a recording, under the policies that can be replayed."""
    tracker = Tracker(recorded.scope, frozenset(), lambda: clock[0])
    metrics = tracker.metrics = _Replay()
    metrics.basis = Basis(0, None, 0, clock[0])
    tracker.follow([policy for policy in policies if _predictable(policy)], {})
    return tracker, metrics


def _lag(recorded: PolicyRecording) -> float:
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


# ---- activity -----------------------------------------------------------------------------------
# What an agent did, as its journal tells: when which keys were written, and how much each takes.
#
# No values: of each only whether it is the same as one that the key had before. So a recording can
# be kept, handed on and led through policies (`optimizer`) where the agent's state may not go; what
# keys are called is in it.


FORMAT = "holdfast-recording/1"


class Step(msgspec.Struct, frozen=True, array_like=True):
    """One entry of an agent's journal."""

    time: float
    """Seconds since 1970, as claimed."""
    writes: tuple[tuple[str, int, int], ...]
    """(key, bytes, which) of each key that was written: bytes with its name, 0 where the key went;
    equal numbers are equal values of the key."""
    policy: str | None = None
    """The policy whose checkpoint it is; empty: somebody else's; None: no checkpoint."""
    bytes: int = 0
    """What the entry takes in the store."""


@dataclass(frozen=True, slots=True)
class PolicyRecording:
    """What an agent did, and the policies that it had when it was recorded."""

    scope: Scope
    policies: tuple[Policy, ...]
    steps: tuple[Step, ...]

    def data(self) -> dict[str, Any]:
        """Plain data, for JSON; `PolicyRecording.of` reads it."""
        return {
            "format": FORMAT,
            "scope": str(self.scope),
            "policies": [policy.data() for policy in self.policies],
            "steps": msgspec.to_builtins(self.steps),
        }

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> PolicyRecording:
        """A recording of plain data."""
        if not isinstance(data, Mapping) or data.get("format") != FORMAT:
            raise InvalidInputError(f"this is no recording; `data()` of one has format {FORMAT}")
        try:
            steps = msgspec.convert(data.get("steps"), tuple[Step, ...])
        except msgspec.ValidationError as error:
            raise InvalidInputError(f"this recording cannot be read: {error}") from None
        if any(later.time < earlier.time for earlier, later in pairwise(steps)):
            raise InvalidInputError("the steps of a recording are in the order of their times")
        policies = tuple(map(Policy.of, listed(data.get("policies", ()), "policies")))
        for policy in policies:
            given = {condition.metric for condition in policy.conditions}
            if problems := policy.problems(given, encrypted=True):
                raise invalid([f"{policy.id}: {text}" for text in problems])
        return cls(Scope.parse(data.get("scope", "")), policies, steps)


def record(core: Core, scope: Scope, policies: tuple[Policy, ...]) -> PolicyRecording:
    """The agent's history; memory grows with its entries."""
    return PolicyRecording(scope, policies, tuple(_steps(core, scope)))


def _steps(core: Core, scope: Scope) -> Iterator[Step]:
    now = LineHandle(core, scope, "main").reader.now()
    if now is None:
        return
    line = Timeline(now.ledger, 0)
    if now.floor.sequence:  # what is before was pruned: it begins with what was there
        line.load(now.floor.sequence)
    begun = {key for key, _ in line.scan()}
    known: dict[str, dict[bytes, int]] = {}
    latest = 0.0
    low = rowkinds.entry(line.prefix, line.sequence + 1)
    for key, row in each(now.ledger.storage.scan, low, rowkinds.after(line.prefix), limit=200):
        body = line.follow(key, row)
        latest = max(latest, body.time / 1_000_000)  # a clock that went back stands still
        writes = tuple(_writes(line, body, known, begun))
        begun = set()
        yield Step(latest, writes, _policy(core, body), len(row))


def checkpoint_costs(core: Core, scope: Scope, unread: list[str]) -> Iterator[tuple[str, int]]:
    """Policy and bytes of each checkpoint of a policy; what cannot be read is noted.

    The newest state is not asked for: behind damage there may be none.
    """
    ledger = core.ledger(scope)  # one that is not there has no history: it is misspelt
    line = rowkinds.line(b"E", ledger.number, 0)
    due = max(floor_of(ledger, 0).sequence, ledger.before) + 1
    low = rowkinds.entry(line, due)
    for key, row in each(ledger.storage.scan, low, rowkinds.after(line), limit=200):
        safe_point()
        found = rowkinds.sequence_of(key)
        if found > due:
            unread.append(f"entries {due} to {found - 1}: missing")
        due = found + 1
        try:
            policy = _policy(core, ledger.open_entry(key, row)[1])
        except StateIntegrityError as error:  # it may have been a checkpoint: it is named
            unread.append(f"entry {found}: {type(error).__name__}")
            continue
        if policy:
            yield policy, len(row)


def _policy(core: Core, body: Body) -> str | None:
    """Whose checkpoint an entry is."""
    policy = None
    for op in body.ops:
        if op[0] == entry.CHECKPOINT:
            data = core.codec.decode(op[6]) if len(op) > 6 and op[6] else {}
            policy = str(data.get("policy", ""))
    return policy


def _writes(
    line: Timeline, body: Body, known: dict[str, dict[bytes, int]], begun: set[str]
) -> Iterator[tuple[str, int, int]]:
    if any(op[0] in (entry.RESTORE, entry.FORK) for op in body.ops):
        keys = {*known, *(key for key, _ in line.scan())}
    else:
        keys = begun.union(key for _, key in shown(body.ops) if key)
    for key in sorted(filter(counted, keys)):
        slot, values = line.slot(key), known.setdefault(key, {b"": 0})
        kept = slot.described() + bytes(len(slot.tail or ())) if slot is not None else b""
        size = slot.size() + len(key) + 1 if slot is not None else 0
        yield key, size, values.setdefault(kept, len(values))
