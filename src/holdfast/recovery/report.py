"""What a recovery found, tried, did and lost, for people and programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol

from holdfast.recovery import report_page
from holdfast.recovery.failures import COPY, DEFAULTS, Failure
from holdfast.recovery.records import FAILED, SUCCEEDED, Record
from holdfast.recovery.step_result import RecoveryStepResult
from holdfast.recovery.tails import MAIN, tail_text
from holdfast.store.names.scope import Scope


class Ending:
    """How something ended, and when."""

    __slots__ = ()

    status: str
    started_at: datetime
    finished_at: datetime | None

    @property
    def success(self) -> bool:
        """Whether all was recovered."""
        return self.status == SUCCEEDED

    @property
    def seconds(self) -> float:
        """How long it took, by the wall clock; 0 while it runs."""
        end = self.finished_at
        return (end - self.started_at).total_seconds() if end is not None else 0.0


@dataclass(frozen=True, slots=True)
class RecoveryReport(Ending):
    """One recovery from its failure to its end, or to where it stands."""

    id: str
    agent: Scope
    status: str
    """running, succeeded, rolled_back or failed"""
    failure: Failure
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
    """Whether a checkpoint that covers it is there and signed; None until it ended, or if that is
    not known of an older one."""

    @property
    def warning(self) -> str:
        """What somebody should look at though it succeeded; empty if there is nothing."""
        if self.success and self.strategy == DEFAULTS:
            return "it begins with defaults, for no other state served"
        return ""

    @property
    def about(self) -> str:
        """Whom it is about."""
        return str(self.agent)

    def markdown(self) -> str:
        """The report as a page of Markdown; what users wrote is escaped."""
        return report_page.page_of(self).markdown()

    def html(self) -> str:
        """The report as one page of HTML that needs nothing else; what users wrote is escaped."""
        return report_page.page_of(self).html()

    def __str__(self) -> str:
        head = f"recovery {self.id} of {self.agent}: {self.status} ({self.procedure})"
        lines = [f"  failure: {self.failure.kind} ({self.failure.severity})"]
        if self.strategy is not None:
            how = "served" if self.success else "tried last"
            lines.append(f"  {how}: {self.strategy}, {self.restored_from or 'nothing'}")
        lines += [f"  passed over: {name}: {why}" for name, why in self.passed.items()]
        lines.append(f"  lost: {self.lost}")
        lines += [f"  warning: {self.warning}"] if self.warning else []
        lines += [f"  transition of {name}: {how}" for name, how in self.transitions.items()]
        if self.why:
            lines.append(f"  why: {self.why}")
        for part, one in self.steps:
            said = "done" if one.success else "left out" if one.skipped else one.error
            lines.append(f"  {one.attempt}. {part}: {one.step}: {said} ({one.seconds:.3f} s)")
        return "\n".join([head, *lines])


def report_of(record: Record) -> RecoveryReport:
    """The report of a recovery as it is kept."""
    data = record.data
    results = record.all_results()
    found = next(iter(_of_last(record, results, "locate_checkpoint")), {})  # that is put back
    lost = "nothing"
    if record.status in (SUCCEEDED, FAILED):  # else what was put back is undone
        done = _of_last(record, results, "restore_state")
        restored = data if data.get("lost") or not done else done[-1]
        lost = str(restored.get("lost", "nothing"))
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
        _with_rows(results, with_tail(record, found.get("strategy"), lost)),
        str(data.get("why", "")),
        data["started_at"],
        data.get("finished_at"),
        _transitions(record, results),
        data.get("signed"),
    )


def _transitions(
    record: Record, results: Sequence[tuple[str, RecoveryStepResult]]
) -> dict[str, str]:
    found: dict[str, str] = {}
    for one in _of_last(record, results, "settle_transitions"):
        settled, left = one.get("settled"), one.get("left")
        if isinstance(settled, Mapping) and isinstance(left, Mapping):  # else a user's own type
            found |= {**settled, **{name: f"left: {why}" for name, why in left.items()}}
    return found


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
    """What a recovery loses, with the tail that was lost before; a copy lacks what it lacks."""
    gone = record.gone or {}
    if strategy == COPY:
        gone = {name: tail for name, tail in gone.items() if name != MAIN}
    parts = [tail_text(gone)] if gone else []
    parts += record.data.get("unanchored", ())
    parts += [lost] if lost != "nothing" else []
    return "; ".join([*parts, *record.data.get("tasks", ())]) or "nothing"


def _with_rows(results: Sequence[tuple[str, RecoveryStepResult]], lost: str) -> str:
    """The same with what was lost with damaged rows, in whichever attempt they were mended."""
    told = [one.result.get("lost_rows") for _, one in results if one.success]
    texts = [str(text) for some in told if isinstance(some, list) for text in some]
    parts = [*([lost] if lost != "nothing" else []), *dict.fromkeys(texts)]
    return "; ".join(parts) or "nothing"


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


class Told(Protocol):
    """What statistics need to know of a recovery, of one agent or of a group."""

    @property
    def id(self) -> str: ...
    @property
    def about(self) -> str: ...
    @property
    def status(self) -> str: ...
    @property
    def why(self) -> str: ...
    @property
    def success(self) -> bool: ...
    @property
    def seconds(self) -> float: ...
    @property
    def started_at(self) -> datetime: ...
    @property
    def finished_at(self) -> datetime | None: ...


def statistics_of(reports: Sequence[Told], slow: float, now: datetime) -> RecoveryStatistics:
    """Count reports; `slow` are the seconds that one may take."""
    ended = [one for one in reports if one.finished_at is not None]
    alarms = [
        f"{one.about}: {one.id} took {one.seconds:.0f} s" for one in ended if one.seconds > slow
    ]
    alarms += [f"{one.about}: {one.id} {one.status}: {one.why}" for one in ended if not one.success]
    for one in reports:
        since = (now - one.started_at).total_seconds()
        if one.finished_at is None and since > slow:
            alarms.append(f"{one.about}: {one.id} has not ended for {since:.0f} s")
    return RecoveryStatistics(
        len(reports),
        sum(one.success for one in ended),
        len(reports) - len(ended),
        sum(one.seconds for one in ended) / len(ended) if ended else 0.0,
        max((one.seconds for one in ended), default=0.0),
        tuple(alarms),
    )
