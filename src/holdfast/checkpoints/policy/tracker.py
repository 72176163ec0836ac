"""One agent under its policies: which of them are met, and when it is worth looking again.

Looking at ten policies behind every write would cost more than the write: a write is only counted,
and what was written in a few milliseconds is looked at together. Where nothing is written, a policy
cannot fire before the first of its conditions that does not hold does, and for what only takes time
it is known when that is.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.checkpoints.policy.policy import (
    ACTIONS,
    ERRORS,
    EVENTS,
    MEMORY,
    OPERATIONS,
    PREFIX,
    RATIO,
    SINCE,
    Condition,
    Policy,
    base_of,
    policy_of,
)
from holdfast.checkpoints.schedule import shift
from holdfast.store.inner import (
    BUILT,
    TERMS,
    derived,
    index_of,
    refs,
    shown,
    tree_changes,
)
from holdfast.store.names.scope import RESERVED

if TYPE_CHECKING:
    from holdfast.store.inner import LineHandle, Node, Timeline, Trees
    from holdfast.store.names.scope import Scope


# ---- metrics ------------------------------------------------------------------------------------
# Metrics of one agent, kept up with every write at next to no cost.
#
# The tree of the state at the last checkpoint is remembered (`Basis`), so that what a key was then
# can be looked up at any time: a write only notes its keys, and bytes are counted when it matters.
# What is noted twice counts once, and what is again as it was then counts nothing. Terms of lookups
# and policies are no change of the agent's, and their bytes are not among its own.


BESIDE = (TERMS, BUILT, PREFIX)
"""What begins keys that are not the agent's own: of lookups, and policies."""
ERROR = "error"
"""What `report` takes besides user actions and system events."""
MOST_KEYS = 100_000
"""Changed keys that are told apart; what comes behind them counts as often as it is written."""
MOST_ENTRIES = 10_000
"""Entries that are read back for the operations since the last checkpoint, after opening and when
others wrote; what lies before them is not counted."""
MOST_MADE = 16
"""Checkpoints that are read back for when policies fired in other processes, or before opening."""
MOST_NAMES = 1000
"""Names of reported actions and events that are told apart."""
BUCKETS = 64
"""A time window is exact to so small a part of it."""


@dataclass(frozen=True, slots=True)
class Basis:
    """The state at the last checkpoint, to which the present one is compared."""

    checkpoint: int
    """Its entry; 0 if there is none."""
    root: Node | None
    size: int
    since: float
    """When that was, on this process's monotonic clock, in seconds."""
    life: int = 0
    """The entry before the first of the scope, which may have been deleted and made anew."""

    def same(self, other: Basis) -> bool:
        """Whether both are the same checkpoint."""
        return (self.checkpoint, self.life) == (other.checkpoint, other.life)


class Window:
    """How much happened within the last so many milliseconds."""

    def __init__(self, span: float) -> None:
        self._step = span / 1000 / BUCKETS
        self._counts: dict[int, int] = {}

    def add(self, now: float, count: int = 1) -> None:
        """Note that something happened."""
        slot = int(now // self._step)
        counts = self._counts
        counts[slot] = counts.get(slot, 0) + count
        if len(counts) > 2 * BUCKETS:
            self._counts = {at: n for at, n in counts.items() if at > slot - BUCKETS}

    def total(self, now: float) -> int:
        """How much there was."""
        oldest = int(now // self._step) - BUCKETS
        return sum(count for slot, count in self._counts.items() if slot > oldest)


class Metrics:
    """What happened to one agent since its last checkpoint."""

    def __init__(self) -> None:
        self.basis = Basis(0, None, 0, 0.0)
        self.fresh: set[str] = set()
        """Keys that were written and not counted yet."""
        self.changed: dict[str, tuple[int, int, bytes | None]] = {}
        """(bytes that count as changed, bytes by which it grew, what it was) of each key."""
        self.bytes = self.growth = 0
        """Sums of the first two."""
        self.operations = 0
        self.told: Counter[str] = Counter()
        """What was reported since the last checkpoint."""
        self.recorded: dict[str, float] = {}
        """Newest values of metrics that are given, not counted."""
        self.windows: dict[tuple[str, float], Window] = {}

    def begin(self, basis: Basis, keys: Iterable[str] = (), operations: int = 0) -> None:
        """Count from a checkpoint on, behind which there may be some changes already.

        If it is the one before, there are not fewer operations than were counted: some of those
        whose entries are pruned by now are known here alone.
        """
        if basis.same(self.basis):
            operations = max(operations, self.operations)
        else:
            self.told.clear()
        self.basis = basis
        self.fresh, self.changed = set(keys), {}
        self.bytes = self.growth = 0
        self.operations = operations

    def watch(self, conditions: Iterable[Condition]) -> None:
        """Count within the windows that conditions look at, and no others."""
        wanted: dict[tuple[str, float], Window] = {}
        for condition in conditions:
            if condition.span is None:
                continue
            names = (ERRORS, OPERATIONS) if condition.metric == ERRORS else (condition.metric,)
            for name in names:
                place = (name, condition.span)
                wanted[place] = self.windows.get(place) or Window(condition.span)
        self.windows = wanted

    def happened(self, metric: str, now: float, count: int = 1) -> None:
        """Note operations, errors, actions or events in the windows that look at them."""
        for (name, _), window in self.windows.items():
            if name == metric:
                window.add(now, count)

    def report(self, kind: str, name: str, now: float) -> None:
        """Note an error, a user action or a system event."""
        if kind == ERROR:
            self.happened(ERRORS, now)
            return
        for metric in (kind, f"{kind}:{name}") if name else (kind,):
            if metric in self.told or len(self.told) < MOST_NAMES:
                self.told[metric] += 1
            self.happened(metric, now)

    # counting

    def settle(self, line: Timeline) -> None:
        """Count the keys that were written since this was last done."""
        for key in filter(counted, self.fresh):
            old = self.changed.get(key)
            then = old[2] if old is not None else None
            if old is None and self.basis.root is not None:  # what it was at the last checkpoint
                found = line.ledger.trees.find(self.basis.root, key)
                then = found[1] if found is not None else None
            slot = line.slot(key)
            before = _size(key, then) if then is not None else 0
            now = 0
            same = slot is None and then is None
            if slot is not None:
                ref = slot.described()
                now = _size(key, ref)
                if slot.tail:
                    now += sum(refs.size_of(one[1]) for one in slot.tail)
                same = not slot.tail and then == ref
            changed, growth = 0 if same else now or before, now - before
            self.bytes += changed - (old[0] if old is not None else 0)
            self.growth += growth - (old[1] if old is not None else 0)
            if old is not None or len(self.changed) < MOST_KEYS:
                self.changed[key] = (changed, growth, then)
        self.fresh.clear()

    def read(self, condition: Condition, now: float) -> float | None:
        """What a condition reads; None if that is not known here. `settle` first."""
        metric = condition.metric
        if metric == SINCE:
            return max(0.0, (now - self.basis.since) * 1000)
        if metric == RATIO and self.basis.root is not None and self.basis.size:
            return self.bytes / self.basis.size
        if metric == RATIO:  # of nothing, all that is there is new
            return 1.0 if self.basis.root is None or self.bytes else 0.0
        if metric == MEMORY:
            return self.basis.size + self.growth
        if metric == ERRORS:
            errors = self._within(ERRORS, condition, now)
            done = self._within(OPERATIONS, condition, now)
            return errors / (errors + done) if errors else 0.0
        if condition.span is not None:
            return self._within(metric, condition, now)
        if metric == OPERATIONS:
            return self.operations
        if base_of(metric) in (ACTIONS, EVENTS):
            return self.told[metric]
        return self.recorded.get(metric)

    def _within(self, metric: str, condition: Condition, now: float) -> int:
        window = self.windows.get((metric, condition.span or 0.0))
        return window.total(now) if window is not None else 0


def _size(key: str, ref: bytes) -> int:
    """Bytes of a key and its value as a state's size counts them."""
    return refs.size_of(ref) + len(key) + 1


def basis_now(line: Timeline, ticks: float) -> Basis:
    """The basis behind a checkpoint that is the newest entry: nothing is read."""
    root = index_of(line)
    size = own_size(line.ledger.trees, root)
    return Basis(line.sequence, root, size, ticks, line.ledger.before)


def own_size(trees: Trees, root: Node) -> int:
    """Bytes of the keys and values of a state that are the agent's own."""
    return root.size - sum(_below(trees, root, prefix) for prefix in BESIDE)


def _below(trees: Trees, node: Node, prefix: str) -> int:
    """Bytes of what a prefix begins; only the nodes at its two ends are looked into."""
    if not node.level:
        return refs.leaf_size([one for one in node.elements if one[0].startswith(prefix)])
    total, before = 0, ""
    for last, hash_, hint, _, size, _ in node.elements:
        if before.startswith(prefix) and last.startswith(prefix):
            total += size
        elif last >= prefix and (before < prefix or before.startswith(prefix)):
            total += _below(trees, trees.load(hint, hash_), prefix)
        before = last
    return total


class Measured(NamedTuple):
    """What is stored of an agent, up to an entry."""

    basis: Basis
    keys: set[str]
    """Keys that differ from the last checkpoint."""
    operations: int
    head: int
    fired: dict[str, float]
    """When the policies fired that made the last checkpoints, on this process's clock."""


def measure(handle: LineHandle) -> Measured:
    """Count from what is stored what was changed since the newest checkpoint. An entry that is
    pruned counts as one operation."""
    core = handle.core
    line = handle.reader.now()
    ticks, claimed = core.clock.ticks(), core.clock.claimed()
    if line is None:
        return Measured(Basis(0, None, 0, ticks), set(), 0, 0, {})
    with line.lock:
        checkpoint, head = line.checkpoint, line.sequence
    first = checkpoint or line.ledger.before + 1
    entries = handle.history.entries(newest_first=False, low=first, high=first)
    made = next((body.time for _, _, body in entries), claimed)
    since = ticks - max(0, claimed - made) / 1_000_000
    view = handle.history.points.view
    root = index_of(view(handle.timeline, checkpoint)) if checkpoint else None
    size = own_size(line.ledger.trees, root) if root is not None else 0
    basis = Basis(checkpoint, root, size, since, line.ledger.before)
    below = root if root is not None else line.ledger.trees.empty
    changes = tree_changes(line.ledger.trees, below, index_of(view(handle.timeline, head)))
    keys = set(islice((key for key, _, _ in changes if counted(key)), MOST_KEYS))
    found = handle.history.entries(newest_first=True, low=first, high=head)
    count = sum(sum(map(counted, operations_in(b.ops))) for _, _, b in islice(found, MOST_ENTRIES))
    count += max(0, line.floor.sequence - (checkpoint or line.ledger.before))
    return Measured(basis, keys, count, head, _fired(handle, ticks, claimed))


def operations_in(ops: Sequence[Any]) -> list[str]:
    """The key of each operation that an entry tells of; what lookups add is none."""
    return [key for _, key in shown(ops) if key and not derived(key)]


def _fired(handle: LineHandle, ticks: float, claimed: int) -> dict[str, float]:
    found: dict[str, float] = {}
    history = handle.history
    for line, sequence, envelope, body in islice(history.points.statements(), MOST_MADE):
        one = history.described(line, handle.timeline, sequence, envelope, body)
        policy = policy_of(one)
        if policy:
            found.setdefault(policy, ticks - max(0, claimed - body.time) / 1_000_000)
    return found


def counted(key: str) -> bool:
    """Whether a key is the agent's own: neither a term of a lookup nor a policy."""
    return not key.startswith(BESIDE)


# ---- tracker ------------------------------------------------------------------------------------


NEVER = math.inf
NOTHING: Mapping[str, float] = {}
POLL = 1.0
"""Seconds between two looks at what a time window holds, while the agent is active."""
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

    def __init__(self, scope: Scope, ticks: Callable[[], float]) -> None:
        self.scope = scope
        self._ticks = ticks
        self.metrics = Metrics()
        self.stale = True
        """What is counted is not what is stored: measure anew before looking."""
        self.event = TIMER
        """What made the thread look next."""
        self.alarm = NEVER
        """When the thread looks next, if nothing else makes it."""
        self.rests = 0.0
        """Until when nothing is tried, because something failed."""
        self.active = False
        """Something happened since the last checkpoint: else there is nothing to keep."""
        self.sequence = 0
        self.policies: list[Policy] = []
        self.own: dict[str, Policy] = {}
        self.due = NEVER
        """When to look again though nothing is written."""
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

    def note(self, ops: Sequence[tuple[Any, ...]], sequence: int, made: Sequence[Any]) -> None:
        """Note a write: what was asked for, and what its entry says was done."""
        if sequence != self.sequence + 1:
            self.stale |= sequence > self.sequence  # others write, too; else it was read already
            return
        self.sequence = sequence
        metrics, others = self.metrics, 0
        for op in ops:
            key = op[1]
            if not key:
                continue  # a merge says first what it merges
            metrics.fresh.add(key)
            if key[0] == RESERVED and key.startswith(PREFIX):
                self.stale = True  # the policies are others now: all is read anew
                others += 1
        if others < len(ops):
            self.active = True
        more = 1 if len(ops) == len(made) == 1 else len(operations_in(made))
        more -= others  # no operations of the agent's
        metrics.operations += more
        if metrics.windows:
            metrics.happened(OPERATIONS, self._ticks(), more)

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
        self.due = NEVER
        if self.active:
            self.due = min((self._next(policy, now) for policy in self.policies), default=NEVER)
        return ready if self.active else []

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
        # This agent's share of the jitter.
        share = shift(f"{self.scope}\0{policy.id}", policy.frequency.jitter / 1000)
        waited = self._met.get(policy.id, now) + share
        return max(waited, fired + interval) if fired is not None else waited

    def waits(self, policy: Policy, now: float) -> float | None:
        """Seconds until a policy may fire by its schedule; 0: now; None: time alone won't do.

        Its jitter is in the schedule.
        """
        if self.met(policy, now):
            fired = self._fired.get(policy.id, -NEVER)
            return max(0.0, fired + policy.frequency.interval / 1000 - now)
        at = self._next(policy, now)
        return max(at - now, 0.001) if at < NEVER else None

    def remember(self, fired: Mapping[str, float]) -> None:
        """Take in when policies fired, in whatever process that was."""
        for id_, at in fired.items():
            self._fired[id_] = max(at, self._fired.get(id_, at))

    def fired(self, policies: Sequence[Policy], now: float) -> None:
        """A checkpoint was made, which serves all policies that were ready."""
        for policy in policies:
            self._fired[policy.id] = now
            self._met.pop(policy.id, None)
            # A checkpoint ends what waits for something to grow that is counted from there.
            if not any(
                (one.counted or one.metric in (SINCE, RATIO)) and one.operator in _RISING
                for one in policy.conditions
            ):
                self._served.add(policy.id)

    # when to look again

    def _next(self, policy: Policy, now: float) -> float:
        """When to look at a policy again; NEVER: when something is written or told."""
        for condition in policy.conditions:
            value = self.metrics.read(condition, now)
            if condition.holds(value):
                continue
            threshold = condition.threshold
            rising = condition.operator in _RISING and value is not None and value <= threshold
            if condition.metric == SINCE and rising:  # behind it, by any rounding
                return self.metrics.basis.since + threshold / 1000 + 0.001
            # What a window holds grows when something happens, and gets less by itself.
            less = condition.span is not None and not condition.operator.startswith("greater")
            return now + POLL if less else NEVER
        return self.ready_at(policy, now)
