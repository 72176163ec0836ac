"""Policies as schedules: their checkpoints come in time, whichever process still runs.

The process that writes to an agent sees at once when a policy is met. For one whose frequency has
an interval a schedule is stored besides, so that the runner of the schedules, in whatever process,
looks at it once an interval: the process that wrote may be gone by then.
"""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.checkpoints.policy.policy import Policy, merged
from holdfast.checkpoints.policy.policy_engine import Engine, stored_policies
from holdfast.checkpoints.schedule.calendar import LONGEST, MOST_JITTER, SHORTEST, Every
from holdfast.checkpoints.schedule.schedule import Schedule, Schedules
from holdfast.store.inner import LineHandle
from holdfast.store.names.scope import RESERVED, Scope

OWNED = RESERVED + "policy/"
"""What names of their schedules begin with."""


def name_of(scope: Scope, id_: str) -> str:
    """The name of a policy's schedule."""
    escaped = id_.replace("%", "%25").replace("/", "%2F")  # where the scope begins is to be told
    return f"{OWNED}{escaped}/{scope}"


def when_of(policy: Policy) -> Every:
    """Its frequency as a schedule's, within what schedules can do."""
    seconds = min(max(policy.frequency.interval / 1000, SHORTEST), LONGEST)
    return Every(seconds, min(policy.frequency.jitter / 1000, seconds, MOST_JITTER))


def is_scheduled(policy: Policy | None) -> bool:
    """Whether it has a schedule: it is in force, and not driven by events alone."""
    return policy is not None and policy.enabled and policy.frequency.interval > 0


def schedule_policies(
    schedules: Schedules, scope: Scope, policies: Iterable[Policy]
) -> list[Schedule]:
    """Store a schedule for each of these policies that has an interval."""
    return [
        schedules.put(
            name_of(scope, policy.id), when_of(policy), str(scope), "main", None, policy=policy.id
        )
        for policy in policies
        if is_scheduled(policy)
    ]


def reconcile(engine: Engine, scope: Scope) -> bool:
    """Store the schedules of an agent's own policies that have none, or another: a restore or an
    import may have brought the policies back while nobody watched. Whether there were any."""
    schedules, found = Schedules(engine.core), False
    for policy in stored_policies(LineHandle(engine.core, scope, "main")).values():
        wanted = is_scheduled(policy) and not engine.refused(policy, own=True)
        if wanted and schedules.when(name_of(scope, policy.id)) != when_of(policy):
            schedule_policies(schedules, scope, [policy])
            found = True
    return found


def follow_policies(engine: Engine, scope: Scope, ids: Iterable[str]) -> None:
    """Let the schedules of some policies be as the policies are now.

    A default policy has one only if it was asked for: `Policies.schedule`.
    """
    schedules = Schedules(engine.core)
    own = stored_policies(LineHandle(engine.core, scope, "main"))
    known = {policy.id: policy for policy in merged(engine.defaults, own)}
    for id_ in ids:
        name, policy = name_of(scope, id_), known.get(id_)
        there = schedules.has(name)
        refused = policy is not None and engine.refused(policy, own=id_ in own)
        if policy is not None and not refused and is_scheduled(policy) and (there or id_ in own):
            schedule_policies(schedules, scope, [policy])
        elif there:
            schedules.discard(name)
