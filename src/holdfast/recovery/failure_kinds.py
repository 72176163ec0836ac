"""What can go wrong with an agent, how grave it is, and which strategies answer it.

The kinds are names, and users may add their own: one that is unknown here is answered as `unknown`.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from holdfast.errors import InvalidInputError
from holdfast.store.inner import Finding, Owned
from holdfast.store.names.arguments import check_moment, check_text

log = logging.getLogger("holdfast.recovery")
"""Where recoveries tell of what they pass over, and go on."""
PREFIX = "$recovery/"
"""What recoveries write, in scopes of their own and in those of agents."""
OWNED = Owned(PREFIX, beside=True)
LAST = str(OWNED.part("last", restore=Owned.STAY))
"""In the agent's scope: the recovery that it went through last. No restore takes it back.

Only that is sticky. How far a consumer of notices has read is kept under the same prefix, and goes
back together with what the consumer wrote: else it would never get again what it has lost."""
KEPT_ALERTS, KEPT_PROCEDURES = OWNED.part("alerts/"), OWNED.part("procedures/")
SIGHTINGS = PREFIX + "watch/open/"
"""In the scope of notices: what is out of bounds, what was set for an agent, or for all, and what
was found and is not answered yet."""
SEVERITIES = ("low", "medium", "high", "critical")

NEWEST, NAMED, TIME, KEYS, JOURNAL, COPY, DEFAULTS, NOTHING = (
    "newest_valid",
    "named",
    "point_in_time",
    "keys",
    "journal",
    "copy",
    "defaults",
    "as_it_is",
)
"""Names of the strategies; `strategies` says what each does."""
ORDER = (NAMED, TIME, NOTHING, KEYS, JOURNAL, NEWEST, COPY, DEFAULTS)
"""The stated order: what was asked for by name or time, then whatever loses least."""


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of failure: how grave it is, and the order of strategies that answer it."""

    severity: str
    strategies: tuple[str, ...]
    about: str


_RESTART = (NOTHING, JOURNAL, KEYS, NEWEST, COPY, DEFAULTS)
_ROLLBACK = (NEWEST, JOURNAL, COPY, DEFAULTS)
_REPAIR = (KEYS, JOURNAL, NEWEST, COPY, DEFAULTS)

FAILURES: dict[str, Kind] = {
    "agent_crash": Kind("high", _RESTART, "its process ended without saying so"),
    "corruption_detected": Kind("critical", _REPAIR, "what is stored is not what was written"),
    "state_corruption": Kind("critical", _ROLLBACK, "the state makes no sense, though it is whole"),
    "memory_leak": Kind("medium", _RESTART, "its process holds more and more memory"),
    "network_partition": Kind(
        "medium", (NOTHING, COPY, JOURNAL, KEYS, NEWEST), "others were not heard"
    ),
    "storage_failure": Kind(
        "critical", (COPY, KEYS, JOURNAL, NEWEST, DEFAULTS), "storage lost rows"
    ),
    "failed_transition": Kind("medium", _ROLLBACK, "a transition of its machine did not end"),
    "interrupted_handover": Kind("medium", _RESTART, "a handover did not end"),
    "drift": Kind("medium", _ROLLBACK, "it repeats itself, stalls, or errs too often"),
    "validation_failed": Kind("high", _ROLLBACK, "its state breaks its own rules"),
    "error_rate": Kind("medium", _ROLLBACK, "too many of its operations fail"),
    "missed_beats": Kind("high", _RESTART, "it has not been heard for too long"),
    "hash_mismatch": Kind("critical", _REPAIR, "content does not match its commitment"),
    "signature_invalid": Kind("critical", _REPAIR, "a checkpoint is not signed as it should be"),
    "structure_invalid": Kind("critical", _REPAIR, "entries are missing, moved or cannot be read"),
    "data_inconsistent": Kind("high", _REPAIR, "an index says something else than the entries"),
    "partial_corruption": Kind("high", _REPAIR, "some keys are damaged, others are not"),
    "unknown": Kind("medium", ORDER, "nobody said what it was"),
}

CORRUPTION = {
    "damage": "hash_mismatch",
    "signature": "signature_invalid",
    "chain": "structure_invalid",
    "feed": "structure_invalid",
    "unaccounted": "structure_invalid",
    "root": "data_inconsistent",
    "lookup": "data_inconsistent",
    "storage": "storage_failure",
}
"""Which kind of corruption a finding of `verify` is."""
DAMAGED = frozenset((*CORRUPTION.values(), "corruption_detected", "partial_corruption"))
"""Kinds of failure in which rows are looked at, and damaged ones set aside."""


@dataclass(frozen=True, slots=True)
class AgentFailure:
    """Something that went wrong with an agent."""

    kind: str = "unknown"
    message: str = ""
    severity: str = ""
    """By default that of its kind."""
    point: Any = None
    """The point that is to be returned to, if somebody said so: a checkpoint, its name or id, an
    entry or its number; for a group of agents, a group of checkpoints, its name or one of it. A
    recovery of one agent keeps it as TIMELINE@NUMBER, whatever bears its name later."""
    at: Any = None
    """The time that is to be returned to, if somebody said so."""
    evidence: Mapping[str, Any] = field(default_factory=dict)
    """Plain data that is kept with the report; never values of the state."""

    def check(self) -> AgentFailure:
        """The failure with its severity; refused if it cannot be used."""
        check_text(self.kind, "the kind of a failure", 100, least=1)
        check_text(self.message, "the message of a failure", 2000)
        severity = self.severity or kind_of(self.kind).severity
        if severity not in SEVERITIES:
            raise InvalidInputError(f"the severity is one of {', '.join(SEVERITIES)}")
        if self.at is not None:
            check_moment(self.at, "the time to return to")
        if self.point == "":
            raise InvalidInputError("the point to return to has a name; it is empty")
        if not isinstance(self.evidence, Mapping):
            raise InvalidInputError("the evidence of a failure is a mapping")
        return replace(self, severity=severity)

    @property
    def names_state(self) -> bool:
        """Whether somebody said what is to be returned to: then nothing else is."""
        return self.point is not None or self.at is not None

    def data(self) -> dict[str, Any]:
        """Plain data, kept with the recovery."""
        point = self.point
        if not isinstance(point, str | int | None):  # an entry's number is no checkpoint's name
            point = getattr(point, "id", str(point))
        more = {"point": point, "at": self.at, "message": self.message or None}
        found = {**more, "evidence": dict(self.evidence) or None}
        told = {name: one for name, one in found.items() if one is not None}
        return {"kind": self.kind, "severity": self.severity, **told}


def kind_of(name: str) -> Kind:
    """What is known of a kind of failure."""
    return FAILURES.get(name, FAILURES["unknown"])


def grouped(findings: Sequence[Finding]) -> dict[str, list[Finding]]:
    """Findings by their scopes; those about the store itself under the empty text."""
    found: dict[str, list[Finding]] = {}
    for one in findings:
        found.setdefault(one.scope, []).append(one)
    return found


def found_failure(findings: Sequence[Finding]) -> AgentFailure | None:
    """The failure that findings of `verify` amount to; None if there are none."""
    if not findings:
        return None
    kinds = sorted({CORRUPTION.get(one.kind, "hash_mismatch") for one in findings})
    named = sorted({key for one in findings for key in one.keys})
    evidence = {
        "findings": [f"{one.kind}: {one.place}: {one.message}"[:300] for one in findings[:50]],
        "count": len(findings),
        "kinds": kinds,
        "keys": named[:50],
    }
    kind = "partial_corruption" if named and kinds == ["hash_mismatch"] else kinds[0]
    first = findings[0]
    return AgentFailure(kind, f"{first.place}: {first.message}"[:1000], evidence=evidence).check()
