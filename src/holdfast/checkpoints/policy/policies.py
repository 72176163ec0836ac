"""Policies: when checkpoints are made by themselves.

    policies = Policies(store)
    policies.set("agent:7", Policy("often", [Condition(...)]))
    for one in policies.explain("agent:7"): print(one.policy.id, one.fires, one.why)

An agent's own policies are kept in its scope under `$policy/`, so that a checkpoint, a restore and
an erasure take them along, and no agent's touch another's. They stand over the two default ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import Any, Self

from holdfast.checkpoints.policy.conditions import METRICS, REPORTED, base_of, is_number
from holdfast.checkpoints.policy.explain import Explained, explain
from holdfast.checkpoints.policy.metrics import ERROR
from holdfast.checkpoints.policy.policy import (
    DEFAULTS,
    EMPTY,
    PREFIX,
    Policy,
    invalid,
    merged,
    plain_id,
    read_policy,
)
from holdfast.checkpoints.policy.policy_engine import (
    Engine,
    Sampler,
    Triggered,
    judged,
    stored_policies,
)
from holdfast.checkpoints.policy.policy_schedules import follow_policies, schedule_policies
from holdfast.checkpoints.policy.tracker import ASKED, EVENT_TYPES, PolicyEvent
from holdfast.checkpoints.schedule.schedule import ScheduleInfo, Schedules
from holdfast.errors import InvalidInputError, MissingError
from holdfast.store.inner import Asked, Core, Operation, StoreHandle, build_change, core_of
from holdfast.store.names.arguments import check_function, check_text, is_async, listed
from holdfast.store.names.cause import cause_now
from holdfast.store.names.face import ends, faced, here, writes
from holdfast.store.names.scope import Scope
from holdfast.store.store import Store

MOST_POLICIES = 100
"""Policies that an agent may have of its own."""
_BUILT_IN = {metric for metrics in METRICS.values() for metric in metrics}


@faced
class Policies:
    """The checkpoint policies of a store's agents, at work for as long as the store is open.

    One of them watches a store in a process: it sees this process's writes, and takes note of
    others' when it next looks. With `watch=False` policies are set and explained, and nothing
    fires. `defaults` replaces the two default policies. `metrics` are your own: a function of
    the scope, or None for a value that is given with `record`.
    """

    def __init__(
        self,
        store: Store,
        *,
        defaults: Iterable[Policy] = DEFAULTS,
        metrics: Mapping[str, Sampler | None] | None = None,
        watch: bool = True,
    ) -> None:
        if not isinstance(store, Store):
            raise InvalidInputError("Policies takes an open store")
        if metrics is not None and not isinstance(metrics, Mapping):
            raise InvalidInputError("metrics is a mapping of names to functions, or to None")
        self._core = core_of(store)
        self._closed = False
        own = dict(metrics or {})
        for name, ask in own.items():
            _check_metric(name, ask)
        self._engine = Engine(self._core, tuple(listed(defaults, "defaults")), own)
        self._check(self._engine.defaults, plain_is_fine=True)
        if watch:
            self._engine.changed = partial(follow_policies, self._engine)
            self._core.gates.add(self._engine)
            self._core.closing.append(self.close)

    @here
    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @ends
    def close(self) -> None:
        """Make the checkpoints that are on their way, and watch no longer.

        Closing the store does the same.
        """
        self._closed = True
        if self.close in self._core.closing:
            self._core.closing.remove(self.close)
        self._core.gates.remove(self._engine)
        self._engine.catch_up()
        self._engine.worker.stop()

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
        own = stored_policies(self._engine.handle(scope))
        if len(own.keys() | {one.id for one in policies}) > max(MOST_POLICIES, len(own)):
            raise InvalidInputError(f"{scope}: an agent has at most {MOST_POLICIES} policies")
        sets = [Operation("set", one.key, one.data()) for one in policies]
        asked: Asked = (scope, "main", [*beside, *sets], {}, head)
        self._core.run(build_change(self._core, [asked], cause=cause_now(reason=reason)))
        follow_policies(self._engine, scope, [one.id for one in policies])
        for one in policies:
            self._engine.followed(scope, one.id, one)

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
        handle = self._engine.handle(scope)
        check_text(id, "the id of a policy", 128, least=1)
        id = plain_id(id)
        if not handle.reader.exists(PREFIX + id):
            default = any(one.id == id for one in self._engine.defaults)
            hint = "it is a default one: set it with enabled=False" if default else "see list()"
            raise MissingError(f"{scope} has no policy {id!r} of its own; {hint}")
        change, _ = handle._plan([Operation("delete", PREFIX + id)], lambda _: None)
        self._core.run(change)
        follow_policies(self._engine, scope, [id])
        self._engine.followed(scope, id, None)

    @writes
    def schedule(self, agent: Any) -> Sequence[ScheduleInfo]:
        """Store a schedule for each policy of an agent that has an interval, default ones too.

        An agent's own policies have theirs from the moment they are set. A `Scheduler` of any
        process then makes their checkpoints in time, also if the process that wrote is gone.
        """
        scope = agent_scope(self._core, agent)
        schedules = Schedules(self._core)
        made = schedule_policies(schedules, scope, self.list(scope))
        return [schedules.info(one) for one in made]

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
        _check_event(event)
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
        self._engine.catch_up()
        return self._engine.worker.wait(timeout)

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


def _check_event(event: object) -> None:
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


def _check_metric(name: object, ask: object) -> None:
    check_text(name, "the name of a metric", 128, least=1)
    if base_of(name) in _BUILT_IN:
        raise InvalidInputError(f"{name!r} is a metric of Holdfast; choose another name")
    if ask is not None:
        check_function(ask, f"the metric {name!r}")
        if is_async(ask):
            raise InvalidInputError(
                f"the metric {name!r} is an `async def`, which nobody awaits on either face: give "
                "a plain function, or None and `record` its values"
            )
