"""What each policy of an agent reads now, and why it fires or does not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from holdfast.checkpoints.policy.conditions import OPERATORS, Condition
from holdfast.checkpoints.policy.policy import CIPHER, Policy, merged
from holdfast.checkpoints.policy.tracker import NEVER, Tracker, is_reported
from holdfast.seal.compress import LZ4_UP_TO

if TYPE_CHECKING:
    from holdfast.checkpoints.policy.policy_engine import Engine
    from holdfast.store.inner import Core
    from holdfast.store.names.scope import Scope

COMPRESSED = f"lz4, zstd above {LZ4_UP_TO // 1024} KiB, where it makes a record smaller"
"""How the store compresses, whatever a policy says: an entry is never written twice."""

REFUSED = "it demands encryption, and this store is plain: it is not in force here"


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


def effective(core: Core, policy: Policy, *, own: bool) -> dict[str, str]:
    """What is in force of a policy's settings: the store decides for all that it writes, the
    policy for the exports of its checkpoints."""
    setting = policy.compression
    squeezed = (
        "compressed as it fits" if setting is None else f"compressed with {setting.algorithm}"
    )
    if setting is not None and not setting.enabled:
        squeezed = "not compressed"
    demanded = own and policy.demands_encryption
    return {
        "encryption": CIPHER if core.ring is not None else "off",
        "compression": COMPRESSED,
        "exports": "only with a key" if demanded else f"{squeezed}, unless with a key",
    }


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
                REFUSED
                if engine.refused(policy, own=own)
                else _why(tracker, policy, readings, ready, now),
                readings,
                effective(engine.core, policy, own=own),
            )
        )
    return tuple(found)


def _reading(tracker: Tracker, condition: Condition, now: float) -> Reading:
    value = tracker.metrics.read(condition, now)
    met = condition.holds(value)
    if condition.operator not in OPERATORS:
        why = f"the operator {condition.operator!r} is not known to this version"
    elif value is None and condition.metric in tracker.metrics.unknown:
        told = tracker.metrics.unknown[condition.metric]
        why = f"{condition.metric} has no value: its function {told}"
    elif value is None:
        why = f"{condition.metric} has no value in this process: record it, or give its function"
    else:
        why = f"{condition.metric} is {value:g}, {'' if met else 'not '}{_asked(condition)}"
        if is_reported(condition.metric) and not met:
            why += " (counted in this process)"
    return Reading(condition, value, met, why)


def _asked(condition: Condition) -> str:
    return str(condition).removeprefix(f"{condition.metric} ")


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
