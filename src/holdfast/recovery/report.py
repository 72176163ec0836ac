"""What a recovery found, tried, did and lost, for people and programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from holdfast.recovery.changes_of_others import together
from holdfast.recovery.failure_kinds import COPY, DEFAULTS, OWNED, AgentFailure
from holdfast.recovery.lost_entries import MAIN, tail_text
from holdfast.recovery.procedure import Procedure
from holdfast.recovery.records import (
    FAILED,
    SUCCEEDED,
    Record,
    RecoveryStepResult,
)
from holdfast.recovery.strategies import COPY_LACKS
from holdfast.store.names.scope import Scope

_KEPT = {None: "kept in", True: "kept and signed in", False: "kept, unsigned, in"}
"""What is said in front of the scope that keeps a report, by whether it is signed."""

# What became of the recovery of one agent.


@dataclass(frozen=True, slots=True)
class RecoveryReport:
    """One recovery from its failure to its end, or to where it stands."""

    id: str
    agent: Scope
    status: str
    """running, succeeded, rolled_back or failed"""
    failure: AgentFailure
    procedure: str
    attempts: int
    steps: tuple[tuple[str, RecoveryStepResult], ...]
    """(part, result) of each step of each attempt."""
    strategy: str | None
    """The strategy of the last attempt that found a state; it served if the recovery succeeded."""
    restored_from: str | None
    passed: dict[str, str]
    """Strategies that did not serve, and why."""
    lost: str
    """What the agent lost."""
    why: str
    """Why it did not succeed; empty if it did."""
    started_at: datetime
    finished_at: datetime | None
    transitions: dict[str, str] = field(default_factory=dict)
    """What became of open transitions, by the names of their machines: complete, roll_back, or left
    to the caller, with the reason (`left: …`)."""
    signed: bool | None = None
    """Whether the checkpoint that ended it was signed; None until it ended, or if that is
    not known of an older one."""
    root: str | None = None
    """The root of the recovered state, which `state.root()` and checkpoints of it name; None if it
    did not succeed, or an older version recovered it."""

    @property
    def success(self) -> bool:
        """Whether its procedure came to what it is for."""
        return self.status == SUCCEEDED

    @property
    def seconds(self) -> float:
        """How long it took, by the wall clock; 0 while it runs."""
        end = self.finished_at
        return (end - self.started_at).total_seconds() if end is not None else 0.0

    def __str__(self) -> str:
        served = f"{self.strategy}, {self.restored_from or 'nothing'}" if self.strategy else ""
        failure, ended = self.failure, self.finished_at
        facts = [
            ("status", self.status),
            ("recovery", self.id),
            ("failure", f"{failure.kind} ({failure.severity})"),
            ("message", failure.message),
            ("agent", str(self.agent)),
            *((f"evidence: {name}", str(it)) for name, it in failure.evidence.items()),
            ("procedure", self.procedure),
            ("attempts", str(self.attempts)),
            ("served" if self.success else "tried last", served),
            ("root of the recovered state", self.root or ""),
            ("lost", self.lost),
            ("warning", self.warning),
            *((f"transition of {name}", how) for name, how in self.transitions.items()),
            ("why it did not succeed", self.why),
            ("started", self.started_at.isoformat()),
            ("finished", ended.isoformat() if ended is not None else ""),
            ("took", f"{self.seconds:.3f} s" if ended is not None else ""),
            (_KEPT[self.signed], str(OWNED.scope_beside(self.agent))),
        ]
        lines = [f"Recovery of {self.agent}: {self.status.replace('_', ' ')}"]
        lines += [f"  {name}: {text}" for name, text in facts if text]
        lines += [f"  passed over: {name}: {why}" for name, why in self.passed.items()]
        for part, one in self.steps:
            row = (str(one.attempt), part, one.step, one.outcome, f"{one.seconds:.3f} s")
            lines.append(f"  {' | '.join(row)}")
        return "\n".join(lines)

    @property
    def warning(self) -> str:
        """What somebody should look at though it succeeded; empty if there is nothing."""
        if self.success and self.strategy == DEFAULTS:
            return "it begins with defaults, for no other state served"
        return ""


def report_of(record: Record) -> RecoveryReport:
    """The report of a recovery as it is kept."""
    data = record.data
    results = record.all_results()
    found = next(iter(_of_last(record, results, "locate_checkpoint")), {})  # that is put back
    lost = "nothing"
    if record.status in (SUCCEEDED, FAILED):  # else what was put back is undone
        done = _of_last(record, results, "restore_state")
        lost = str(done[-1].get("lost", "nothing")) if done else "nothing"
    if record.status == FAILED and data.unread_lost:  # what was made of the state before stands
        lost = data.unread_lost
    # What was lost with damaged rows, in whichever attempt they were mended.
    rows = [one.result.get("lost_rows") for _, one in results if one.success]
    texts = [str(text) for some in rows if isinstance(some, list) for text in some]
    lost = together(with_tail(record, found.get("strategy"), lost), *dict.fromkeys(texts))
    transitions: dict[str, str] = {}
    for one in _of_last(record, results, "settle_transitions"):
        settled, left = one.get("settled"), one.get("left")
        if isinstance(settled, Mapping) and isinstance(left, Mapping):  # else a user's own type
            transitions |= {**settled, **{name: f"left: {why}" for name, why in left.items()}}
    return RecoveryReport(
        record.id,
        record.agent,
        record.status,
        record.failure,
        record.procedure.id,
        record.attempt,
        tuple(results),
        found.get("strategy"),
        found.get("point"),
        dict(passed) if isinstance(passed := found.get("passed"), Mapping) else {},
        lost,
        data.why,
        data.started_at,
        data.finished_at,
        transitions,
        data.signed,
        data.root,
    )


def _of_last(
    record: Record, results: Sequence[tuple[str, RecoveryStepResult]], type: str
) -> list[Mapping[str, Any]]:
    """What the steps of a type came to in the last attempt, in their order, if they succeeded."""
    keys = {step.key for step in record.procedure.steps if step.type == type}
    return [
        one.result
        for part, one in results
        if part == "steps" and one.step in keys and one.attempt == record.attempt and one.success
    ]


def with_tail(record: Record, strategy: str | None, lost: str) -> str:
    """What a recovery loses, with the tail that was lost before; a copy may have some of that."""
    gone = record.data.gone or {}
    if strategy == COPY and COPY_LACKS in lost:
        gone = {name: tail for name, tail in gone.items() if name != MAIN}
    return together(tail_text(gone), lost)


SLOW = 300.0
"""Seconds that a recovery may take before it is an alarm."""


@dataclass(frozen=True, slots=True)
class RecoveryStatistics:
    """How recoveries went."""

    recoveries: int
    succeeded: int
    running: int
    seconds: float
    """Of those that came to an end, in the mean."""
    longest: float
    alarms: tuple[str, ...]
    """What took longer than it should, failed, or is still running after that time."""

    @property
    def success_rate(self) -> float:
        """Of those that came to an end; 1.0 if there were none."""
        ended = self.recoveries - self.running
        return self.succeeded / ended if ended else 1.0


# What a recovery would do.


@dataclass(frozen=True, slots=True)
class RecoveryPlan:
    """What a recovery would do."""

    agent: Scope
    failure: AgentFailure
    procedure: Procedure
    strategy: str | None
    """None if none serves."""
    point: str | None
    lost: str | None
    """None if none serves: then nothing is changed, and nothing is recovered."""
    passed: dict[str, str]
    """Strategies that would not serve, and why."""
    keys: tuple[str, ...] = ()
    """The keys that would go back, if not all of them."""
    healed: int = 0
    """Damaged or lost rows that copies of the store would give back before."""

    @property
    def serves(self) -> bool:
        """Whether it would come to a state, as far as that shows before, or looks for none."""
        return self.lost is not None

    def __str__(self) -> str:
        head = f"{self.agent}: {self.failure.kind} is answered by {self.procedure.id}"
        lines = [f"  {step.key}" for step in self.procedure.steps]
        lines += [f"  passed over: {name}: {why}" for name, why in self.passed.items()]
        none = "none serves" if self.passed else "the procedure looks for no state"
        served = f"{self.strategy}, {self.point or 'nothing'}" if self.strategy else none
        lines += [f"  healed from copies: {self.healed} rows"] if self.healed else []
        keys = [f"  keys: {', '.join(self.keys)}"] if self.keys else []
        lost = [f"  lost: {self.lost}"] if self.lost is not None else []
        return "\n".join([head, *lines, f"  strategy: {served}", *keys, *lost])
