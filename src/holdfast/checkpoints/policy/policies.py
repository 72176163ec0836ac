"""Policies: when checkpoints are made by themselves.

    policies = Policies(store)
    policies.set("agent:7", Policy("often", [Condition(...)]))
    for one in policies.explain("agent:7"): print(one.policy.id, one.fires, one.why)

An agent's own policies are kept in its scope under `$policy/`, so that a checkpoint, a restore and
an erasure take them along, and no agent's touch another's. They stand over the two default ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

from holdfast.checkpoints.policy.policy import (
    CIPHER,
    DEFAULTS,
    EMPTY,
    ERRORS,
    METRICS,
    OPERATORS,
    REPORTED,
    Condition,
    Policy,
    PolicyRecord,
    base_of,
    invalid,
    is_number,
    merged,
    plain_id,
    read_policy,
)
from holdfast.checkpoints.policy.policy_engine import (
    Engine,
    Triggered,
    judged,
    policy_book,
    stored_policies,
)
from holdfast.checkpoints.policy.tracker import (
    ASKED,
    ERROR,
    EVENT_TYPES,
    NEVER,
    PolicyEvent,
    Tracker,
)
from holdfast.checkpoints.schedule import (
    LONGEST,
    MOST_JITTER,
    SHORTEST,
    Every,
    Schedule,
    ScheduleInfo,
    Schedules,
)
from holdfast.errors import InvalidInputError, MissingError
from holdfast.seal.compress import LZ4_UP_TO
from holdfast.store.inner import BookPage, Core, LineHandle, Operation, StoreHandle, core_of
from holdfast.store.names.arguments import check_face, check_text, listed
from holdfast.store.names.background import Closable
from holdfast.store.names.face import ends, faced, here, writes
from holdfast.store.names.scope import RESERVED, Scope
from holdfast.store.store import Store

# ---- schedules of policies ----------------------------------------------------------------------
# Policies as schedules: their checkpoints come in time, whichever process still runs.
#
# The process that writes to an agent sees at once when a policy is met. For one whose frequency has
# an interval a schedule is stored besides, so that the runner of the schedules, in whatever
# process, looks at it once an interval: the process that wrote may be gone by then.


OWNED = RESERVED + "policy/"
"""What names of their schedules begin with."""


def name_of(scope: Scope, id_: str) -> str:
    """The name of a policy's schedule."""
    escaped = id_.replace("%", "%25").replace("/", "%2F")  # where the scope begins is to be told
    return f"{OWNED}{escaped}/{scope}"


def schedule_policy(schedules: Schedules, scope: Scope, policy: Policy | None) -> list[Schedule]:
    """Store the schedule of a policy that is in force and has an interval; none of another."""
    if policy is None or not policy.enabled or not policy.frequency.interval:
        return []
    # Within what schedules can do.
    seconds = min(max(policy.frequency.interval / 1000, SHORTEST), LONGEST)
    when = Every(seconds, min(policy.frequency.jitter / 1000, seconds, MOST_JITTER))
    return [schedules.put(name_of(scope, policy.id), when, str(scope), "main", policy=policy.id)]


def follow_policies(engine: Engine, scope: Scope, ids: Iterable[str]) -> None:
    """Let the schedules of some policies be as the policies are now.

    A default policy has one only if it was asked for: `Policies.schedule`.
    """
    schedules = Schedules(engine.core)
    own = stored_policies(LineHandle(engine.core, scope, "main"))
    known = {policy.id: policy for policy in merged(engine.defaults, own)}
    for id_ in ids:
        cells = schedules.cells
        there = cells.get(cells.key_of(name_of(scope, id_))) is not None
        wanted = known.get(id_) if there or id_ in own else None
        if not schedule_policy(schedules, scope, wanted) and there:
            schedules.discard(name_of(scope, id_))


# ---- explain ------------------------------------------------------------------------------------
# What each policy of an agent reads now, and why it fires or does not.


COMPRESSED = f"lz4, zstd above {LZ4_UP_TO // 1024} KiB, where it makes a record smaller"
"""How the store compresses, whatever a policy says: an entry is never written twice."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What a condition reads now."""

    condition: Condition
    value: float | None
    """None if it is not known in this process."""
    met: bool
    why: str


@dataclass(frozen=True, slots=True)
class Explained:
    """One policy of an agent: what it reads, what is in force of it, and why it fires or not."""

    policy: Policy
    source: str
    """own or default"""
    fires: bool
    why: str
    readings: tuple[Reading, ...]
    effective: dict[str, str]
    """What is in force of its encryption and compression: in this store, and in exports."""

    def data(self) -> dict[str, Any]:
        """Plain data."""
        readings = [
            {**one.condition.data(), "value": one.value, "met": one.met, "why": one.why}
            for one in self.readings
        ]
        return {
            **self.policy.data(),
            "source": self.source,
            "fires": self.fires,
            "why": self.why,
            "readings": readings,
            "effective": self.effective,
        }


def _exports(policy: Policy, *, own: bool) -> str:
    """What is in force of a policy's settings for the exports of its checkpoints: for all that it
    writes, the store decides."""
    if own and policy.demands_encryption:
        return "only with a key"
    setting, squeezed = policy.compression, "compressed as it fits"
    if setting is not None:
        squeezed = f"compressed with {setting.algorithm}" if setting.enabled else "not compressed"
    return f"{squeezed}, unless with a key"


def explain(engine: Engine, scope: Scope) -> tuple[Explained, ...]:
    """All policies of an agent, the highest priority first."""
    tracker = engine.tracked(scope)
    ready = [policy.id for policy in engine.ready(tracker)]
    now = engine.core.clock.ticks()
    found = []
    for policy in merged(engine.defaults, tracker.own):
        own = policy.id in tracker.own
        readings = tuple(_reading(tracker, one, now) for one in policy.conditions)
        found.append(
            Explained(
                policy,
                "own" if own else "default",
                ready[:1] == [policy.id],
                _why(tracker, policy, readings, ready, now),
                readings,
                {
                    "encryption": CIPHER if engine.core.ring is not None else "off",
                    "compression": COMPRESSED,
                    "exports": _exports(policy, own=own),
                },
            )
        )
    return tuple(found)


def _reading(tracker: Tracker, condition: Condition, now: float) -> Reading:
    value = tracker.metrics.read(condition, now)
    met = condition.holds(value)
    if condition.operator not in OPERATORS:
        why = f"the operator {condition.operator!r} is not known to this version"
    elif value is None:
        why = f"{condition.metric} has no value in this process: record it"
    else:
        asked = str(condition).removeprefix(f"{condition.metric} ")
        why = f"{condition.metric} is {value:g}, {'' if met else 'not '}{asked}"
        if base_of(condition.metric) in (*REPORTED, ERRORS) and not met:
            why += " (counted in this process)"
    return Reading(condition, value, met, why)


def _why(
    tracker: Tracker, policy: Policy, readings: tuple[Reading, ...], ready: list[str], now: float
) -> str:
    if not policy.enabled:
        return "it is switched off"
    if ready[:1] == [policy.id]:
        return "all of its conditions are met"
    if policy.id in ready:
        return f"{ready[0]} goes first: one checkpoint serves both"
    unmet = [one.why for one in readings if not one.met]
    if unmet:
        return "; ".join(unmet)
    if not tracker.active:
        return "nothing happened since the last checkpoint"
    at = tracker.ready_at(policy, now)
    if at == NEVER:
        return "it has fired, and its conditions were met ever since"
    return f"its conditions are met; it waits another {max(0.0, at - now):.1f} s (its frequency)"


# ---- policies -----------------------------------------------------------------------------------


MOST_POLICIES = 100
"""Policies that an agent may have of its own."""
_BUILT_IN = {metric for metrics in METRICS.values() for metric in metrics}


@faced
class Policies(Closable):
    """The checkpoint policies of a store's agents, at work for as long as the store is open.

    One of them watches a store in a process: it sees this process's writes, and takes note of
    others' when it next looks. With `watch=False` policies are set and explained, and nothing
    fires. `defaults` replaces the two default policies. `metrics` are the names of your own, whose
    values you give with `record`.
    """

    def __init__(
        self,
        store: Store,
        *,
        defaults: Iterable[Policy] = DEFAULTS,
        metrics: Iterable[str] = (),
        watch: bool = True,
    ) -> None:
        check_face(store, Store, "Policies")
        self._core = core_of(store)
        self._closed = False
        own = frozenset(listed(metrics, "metrics"))
        for name in own:
            check_text(name, "the name of a metric", 128, least=1)
            if base_of(name) in _BUILT_IN:
                raise InvalidInputError(f"{name!r} is a metric of Holdfast; choose another name")
        self._engine = Engine(self._core, tuple(listed(defaults, "defaults")), own)
        self._check(self._engine.defaults, plain_is_fine=True)
        if watch:
            self._engine.start()
            self._core.closing.append(self.close)

    @here
    def __enter__(self) -> Self:
        return super().__enter__()

    @ends
    def close(self) -> None:
        """Make the checkpoints that are on their way, and watch no longer.

        Closing the store does the same.
        """
        self._closed = True
        if self.close in self._core.closing:
            self._core.closing.remove(self.close)
        self._engine.stop()

    # an agent's own

    @writes
    def set(self, agent: Any, policy: Policy | Mapping[str, Any]) -> Policy:
        """Give an agent a policy, in place of the one of its id, its own or a default one.

        Refused with `PolicyValidationError`, which lists everything that is wrong.
        """
        scope = agent_scope(self._core, agent)
        made, wrong = (policy, []) if isinstance(policy, Policy) else read_policy(policy)
        if made is None:
            raise invalid(wrong)
        self._check((made,), wrong)
        made = replace(made, conditions=tuple(made.conditions))
        self._put(scope, [made])
        return made

    def _put(
        self,
        scope: Scope,
        policies: Sequence[Policy],
        beside: Sequence[Operation] = (),
        *,
        head: int | None = None,
        reason: str | None = None,
    ) -> None:
        """Write policies that are right in one change, with other operations on the agent's keys.

        With `head`, only if that is still its newest entry; 0: if there is no such agent.
        """
        book = policy_book(self._engine.handle(scope))
        own = book.all()
        if len(own.keys() | {one.id for one in policies}) > max(MOST_POLICIES, len(own)):
            raise InvalidInputError(f"{scope}: an agent has at most {MOST_POLICIES} policies")

        def note(page: BookPage[PolicyRecord]) -> None:
            page.change.head = head
            page.change.operations += beside
            for one in policies:
                page.put(one.id, PolicyRecord(**one.data()))

        book.step(note, reason=reason)
        follow_policies(self._engine, scope, [one.id for one in policies])

    def get(self, agent: Any, id: str) -> Policy | None:
        """The policy that an agent has under an id, its own or a default one."""
        return next((one for one in self.list(agent) if one.id == plain_id(id)), None)

    def list(self, agent: Any) -> list[Policy]:
        """All policies of an agent, the highest priority first; also those that are off."""
        own = stored_policies(self._engine.handle(agent_scope(self._core, agent)))
        return merged(self._engine.defaults, own)

    @writes
    def remove(self, agent: Any, id: str) -> None:
        """Take a policy of its own from an agent; a default one of that id is in force again."""
        scope = agent_scope(self._core, agent)
        check_text(id, "the id of a policy", 128, least=1)
        id = plain_id(id)

        def note(page: BookPage[PolicyRecord]) -> None:
            if not page.exists(id):
                default = any(one.id == id for one in self._engine.defaults)
                hint = "it is a default one: set it with enabled=False" if default else "see list()"
                raise MissingError(f"{scope} has no policy {id!r} of its own; {hint}")
            page.delete(id)

        policy_book(self._engine.handle(scope)).step(note)
        follow_policies(self._engine, scope, [id])

    @writes
    def schedule(self, agent: Any) -> Sequence[ScheduleInfo]:
        """Store a schedule for each policy of an agent that has an interval, default ones too.

        An agent's own policies have theirs from the moment they are set. A `Scheduler` of any
        process then makes their checkpoints in time, also if the process that wrote is gone.
        """
        scope = agent_scope(self._core, agent)
        schedules = Schedules(self._core)
        made = [schedule_policy(schedules, scope, one) for one in self.list(scope)]
        return [schedules.info(one) for some in made for one in some]

    # what happens

    @writes
    def report(self, agent: Any, kind: str, name: str = "") -> None:
        """Tell of an `error`, a `user_action` or a `system_event`, which may have a name."""
        scope = agent_scope(self._core, agent)
        if kind not in (ERROR, *REPORTED):
            raise InvalidInputError(f"unknown kind {kind!r}; report {ERROR}, {', '.join(REPORTED)}")
        check_text(name, "the name of what is reported", 128)
        self._check_watching()
        now = self._core.clock.ticks()
        event = PolicyEvent(kind, name)
        self._engine.tell(scope, event, lambda tracker: tracker.metrics.report(kind, name, now))

    @writes
    def record(self, agent: Any, metric: str, value: float) -> None:
        """Give the newest value of a metric of your own."""
        scope = agent_scope(self._core, agent)
        if metric not in self._engine.metrics:
            raise InvalidInputError(f"unknown metric {metric!r}; name it in metrics=")
        if not is_number(value):
            raise InvalidInputError(f"the value of {metric} is a finite number")
        self._check_watching()

        def note(tracker: Any) -> None:
            tracker.metrics.recorded[metric] = value

        self._engine.tell(scope, PolicyEvent("metric", metric), note)

    def _check_watching(self) -> None:
        if self._closed:
            raise InvalidInputError(
                "these policies are closed, and what they are told is lost; make others"
            )

    # looking

    def evaluate(self, agent: Any, event: PolicyEvent = ASKED) -> Triggered:
        """Whether a policy would fire now, which, and why; nothing is done.

        With an event of your own: if this happened now, with the metrics that it brings along.
        """
        if not isinstance(event, PolicyEvent):
            raise InvalidInputError(
                "an event is made with holdfast.checkpoints.PolicyEvent(type, name, metrics)"
            )
        if event.type not in EVENT_TYPES:
            raise InvalidInputError(f"the type of an event is one of {', '.join(EVENT_TYPES)}")
        check_text(event.name, "the name of an event", 128)
        given = event.metrics
        if not isinstance(given, Mapping) or not all(map(is_number, given.values())):
            raise InvalidInputError("the metrics of an event are finite numbers by their names")
        tracker = self._engine.tracked(agent_scope(self._core, agent))
        return judged(self._engine.ready(tracker, event.metrics), event)

    def explain(self, agent: Any) -> tuple[Explained, ...]:
        """For each policy what each condition reads now, and why it does or does not fire."""
        return explain(self._engine, agent_scope(self._core, agent))

    @here
    def fired(self) -> tuple[tuple[Scope, Triggered], ...]:
        """The last hundred checkpoints that policies made in this process, oldest first."""
        return tuple(self._engine.fired)

    @here
    def errors(self) -> tuple[str, ...]:
        """The last hundred things that went wrong; a policy never fails a write."""
        return tuple(self._engine.errors)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until all that is due is done; False if it took longer than `timeout` seconds."""
        return self._engine.wait(timeout)

    def _check(
        self, policies: Iterable[Policy], wrong: Sequence[str] = (), *, plain_is_fine: bool = False
    ) -> None:
        """Refuse policies with all that is wrong with them, and what was wrong before."""
        encrypted = plain_is_fine or self._core.ring is not None
        found = [*wrong]
        for policy in policies:
            if not isinstance(policy, Policy):
                raise InvalidInputError("a policy is a Policy, or a mapping as of a configuration")
            told = policy.problems(self._engine.metrics, encrypted=encrypted)
            # What could not be read is told already: without it there may be no condition left.
            found += [f"{policy.id}: {text}" for text in told if not (wrong and text == EMPTY)]
        if found:
            raise invalid(found)


def agent_scope(core: Core, agent: Any) -> Scope:
    """The scope of an agent, given as text (`agent:7`), scope or state."""
    line = StoreHandle(core).of(agent)
    if line.scope.kind != "agent":
        raise InvalidInputError(f"{line.scope} is no agent; policies are for scopes like agent:7")
    if line.timeline != "main":
        raise InvalidInputError(
            f"{line.scope}: only the timeline main is watched, not {line.timeline!r}; give the "
            "agent's main state, or the name of its scope"
        )
    return line.scope
