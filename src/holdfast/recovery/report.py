"""What a recovery found, tried, did and lost, for people and programs."""

from __future__ import annotations

import html as entities
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from holdfast.recovery.changes_of_others import together
from holdfast.recovery.context import Context
from holdfast.recovery.failures import COPY, DEFAULTS, AgentFailure
from holdfast.recovery.lost_entries import MAIN, tail_text
from holdfast.recovery.procedure import Procedure, RecoveryStep
from holdfast.recovery.records import (
    FAILED,
    SUCCEEDED,
    Record,
    RecoveryStepResult,
    notices_scope,
    scope_of,
)
from holdfast.recovery.strategies import COPY_LACKS, Looked, look
from holdfast.store.names.scope import Scope

# The page of a report: Markdown, and HTML that needs nothing but itself. Whatever users or their
# functions wrote (messages, reasons, names) is escaped in both.

_SPECIAL = re.compile(r"([\\`*_\[\]<>|&~#])")
_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>{title}</title>
<style>
body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem;
  color: #1c1c1c; background: #fff; }}
table {{ border-collapse: collapse; width: 100%; margin: 1rem 0; }}
th, td {{ text-align: left; vertical-align: top; padding: .3rem .6rem;
  border-bottom: 1px solid #ccc; overflow-wrap: anywhere; }}
.succeeded, .done {{ color: #17652f; }}
.failed, .rolled_back {{ color: #a3191f; }}
@media (prefers-color-scheme: dark) {{
  body {{ color: #e8e8e8; background: #161616; }}
  .succeeded, .done {{ color: #7fd69a; }} .failed, .rolled_back {{ color: #ff9ea2; }}
}}
</style>
</head>
<body>
{body}
</body>
</html>
"""


@dataclass(frozen=True, slots=True)
class Page:
    """What a page tells."""

    title: str
    status: str
    facts: Sequence[tuple[str, str]]
    """Names and what is known; what is empty is left out."""
    passed: Mapping[str, str]
    """What did not serve, and why."""
    columns: Sequence[str]
    steps: Sequence[Sequence[str]]
    """A row for each step; the cell under `outcome` says how it ended."""

    def text(self) -> str:
        """The page for a terminal."""
        lines = [self.title]
        lines += [f"  {name}: {text}" for name, text in self.facts if text]
        lines += [f"  passed over: {name}: {why}" for name, why in self.passed.items()]
        return "\n".join([*lines, *(f"  {' | '.join(row)} s" for row in self.steps)])

    def markdown(self) -> str:
        """The page as Markdown."""
        lines = [f"# {_mark(self.title)}", ""]
        lines += [f"- **{_mark(name)}**: {_mark(text)}" for name, text in self.facts if text]
        if self.passed:
            lines += ["", "## What did not serve", ""]
            lines += [f"- **{_mark(name)}**: {_mark(why)}" for name, why in self.passed.items()]
        lines += ["", "## Steps", "", _row(self.columns), _row(["---"] * len(self.columns))]
        lines += [_row([_mark(cell) for cell in row]) for row in self.steps]
        return "\n".join(lines) + "\n"

    def html(self) -> str:
        """The page as HTML without scripts, pictures or links to elsewhere."""
        title = _text(self.title)
        facts = [
            _cells([name, text], self.status if name == "status" else "")
            for name, text in self.facts
            if text
        ]
        body = [f"<h1>{title}</h1>", _table((), facts)]
        if self.passed:
            rows = [_cells([name, why]) for name, why in self.passed.items()]
            body += ["<h2>What did not serve</h2>", _table(("what", "why"), rows)]
        rows = [_cells(row, "done" if "done" in row else "failed") for row in self.steps]
        body += ["<h2>Steps</h2>", _table(self.columns, rows)]
        return _PAGE.format(title=title, body="\n".join(body))


def kept_as(signed: bool | None) -> str:
    """What is said in front of the scope that keeps a report."""
    if signed is None:
        return "kept in"
    return "kept and signed in" if signed else "kept, unsigned, in"


def _mark(text: str) -> str:
    return _SPECIAL.sub(r"\\\1", " ".join(text.split()))


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _text(text: str) -> str:
    return entities.escape(" ".join(text.split()))


def _cells(cells: Sequence[str], kind: str = "") -> str:
    named = f' class="{entities.escape(kind)}"' if kind else ""
    return f"<tr{named}>{''.join(f'<td>{_text(cell)}</td>' for cell in cells)}</tr>"


def _table(headings: Sequence[str], rows: Sequence[str]) -> str:
    head = "".join(f"<th>{name}</th>" for name in headings)
    return "\n".join(["<table>", *([f"<tr>{head}</tr>"] if head else []), *rows, "</table>"])


# What became of the recovery of one agent.


class Ending(ABC):
    """How a recovery, of one agent or of a group, ended, and when."""

    __slots__ = ()

    id: str
    status: str
    failure: AgentFailure
    why: str
    started_at: datetime
    finished_at: datetime | None
    signed: bool | None

    @property
    @abstractmethod
    def about(self) -> str:
        """Whom it is about."""

    @abstractmethod
    def _page(self) -> Page:
        """The page that tells of it."""

    @property
    def success(self) -> bool:
        """Whether all was recovered."""
        return self.status == SUCCEEDED

    @property
    def seconds(self) -> float:
        """How long it took, by the wall clock; 0 while it runs."""
        end = self.finished_at
        return (end - self.started_at).total_seconds() if end is not None else 0.0

    def __str__(self) -> str:
        return self._page().text()

    def markdown(self) -> str:
        """The report as a page of Markdown; what users wrote is escaped."""
        return self._page().markdown()

    def html(self) -> str:
        """The report as one page of HTML that needs nothing else; what users wrote is escaped."""
        return self._page().html()

    def _facts(self, scope: Scope, *own: tuple[str, str]) -> list[tuple[str, str]]:
        """What a page tells, with what is told of one kind of report alone; `scope` keeps it."""
        failure, ended = self.failure, self.finished_at
        return [
            ("status", self.status),
            ("recovery", self.id),
            ("failure", f"{failure.kind} ({failure.severity})"),
            ("message", failure.message),
            *own,
            ("started", self.started_at.isoformat()),
            ("finished", ended.isoformat() if ended is not None else ""),
            ("took", f"{self.seconds:.3f} s" if ended is not None else ""),
            (kept_as(self.signed), str(scope)),
        ]


@dataclass(frozen=True, slots=True)
class RecoveryReport(Ending):
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

    def _page(self) -> Page:
        served = f"{self.strategy}, {self.restored_from or 'nothing'}" if self.strategy else ""
        facts = self._facts(
            scope_of(self.agent),
            ("agent", str(self.agent)),
            *((f"evidence: {name}", str(it)) for name, it in self.failure.evidence.items()),
            ("procedure", self.procedure),
            ("attempts", str(self.attempts)),
            ("served" if self.success else "tried last", served),
            ("lost", self.lost),
            ("warning", self.warning),
            *((f"transition of {name}", how) for name, how in self.transitions.items()),
            ("why it did not succeed", self.why),
        )
        title = f"Recovery of {self.agent}: {self.status.replace('_', ' ')}"
        columns = ("attempt", "part", "step", "outcome", "seconds")
        steps = [
            [str(one.attempt), part, one.step, one.outcome, f"{one.seconds:.3f}"]
            for part, one in self.steps
        ]
        return Page(title, self.status, facts, self.passed, columns, steps)


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
    """What a recovery loses, with the tail that was lost before; a copy may have some of that."""
    gone = record.gone or {}
    if strategy == COPY and COPY_LACKS in lost:
        gone = {name: tail for name, tail in gone.items() if name != MAIN}
    return together(tail_text(gone), lost)


def _with_rows(results: Sequence[tuple[str, RecoveryStepResult]], lost: str) -> str:
    """The same with what was lost with damaged rows, in whichever attempt they were mended."""
    told = [one.result.get("lost_rows") for _, one in results if one.success]
    texts = [str(text) for some in told if isinstance(some, list) for text in some]
    return together(lost, *dict.fromkeys(texts))


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


def statistics_of(reports: Sequence[Ending], slow: float, now: datetime) -> RecoveryStatistics:
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


# What became of the recovery of several agents together.


@dataclass(frozen=True, slots=True)
class GroupRecoveryReport(Ending):
    """One recovery of several agents, from its failure to its end, or to where it stands."""

    id: str
    agents: tuple[Scope, ...]
    status: str
    """running, succeeded or failed; one that failed has changed nothing, unless `why` says that all
    are back and cannot be read whole"""
    failure: AgentFailure
    strategy: str | None
    points: Mapping[str, str]
    """The point that each was put back to, by its scope; none if they were left as they are."""
    passed: Mapping[str, str]
    """Moments that did not serve, and why."""
    unsent: Mapping[str, int]
    """How many letters between them were taken out of whose inbox, because they are sent again."""
    lost: Mapping[str, str]
    """By the scope: newest entries that were lost before it began, which the feed names, and what
    going back lost."""
    steps: Mapping[str, float]
    """What was done (`set_aside`, `look`, `put_back`, `reconcile`, `check`), and how many seconds
    it took."""
    why: str
    """Why it failed; or, of one that succeeded, what was left undone, who goes back further than
    the time that was asked for, or why the agents, as they are, are not of one moment: one has lost
    entries, and there was nothing to return to."""
    started_at: datetime
    finished_at: datetime | None
    signed: bool | None = None
    """Whether the checkpoint that ended it was signed; None until it ended, or if that is
    not known of an older one."""

    @property
    def about(self) -> str:
        """Whom it is about."""
        return f"a group of {len(self.agents)} agents"

    def _page(self) -> Page:
        facts = self._facts(
            notices_scope(),
            ("served", self.strategy or ""),
            *((str(scope), self.points.get(str(scope), "as it is")) for scope in self.agents),
            *((f"lost of {scope}", what) for scope, what in self.lost.items()),
            *((f"letters to {scope} taken back", str(n)) for scope, n in self.unsent.items()),
            ("why", self.why),
        )
        title = f"Recovery of {len(self.agents)} agents: {self.status}"
        steps = [[step, "done", f"{took:.3f}"] for step, took in self.steps.items()]
        columns = ("step", "outcome", "seconds")
        return Page(title, self.status, facts, self.passed, columns, steps)


def _lost(data: Mapping[str, Any]) -> dict[str, str]:
    """What each agent lost, of those that lost something."""
    before = {agent: tail_text(tail) for agent, tail in data.get("gone", {}).items()}
    back = {agent: text for agent, text in data.get("lost", {}).items() if text != "nothing"}
    every = {agent: [before.get(agent, ""), back.get(agent, "")] for agent in data["agents"]}
    return {agent: "; ".join(filter(None, texts)) for agent, texts in every.items() if any(texts)}


def group_report(id_: str, data: Mapping[str, Any]) -> GroupRecoveryReport:
    """The report of a recovery of a group as it is kept."""
    usual: dict[str, Any] = {
        "strategy": None,
        "points": {},
        "passed": {},
        "unsent": {},
        "steps": {},
        "why": "",
    }
    given: dict[str, Any] = {name: data.get(name, value) for name, value in usual.items()}
    ended: dict[str, Any] = {
        name: data.get(name) for name in ("status", "started_at", "finished_at", "signed")
    }
    agents, failure = tuple(map(Scope.parse, data["agents"])), AgentFailure.of(data["failure"])
    return GroupRecoveryReport(id_, agents, failure=failure, lost=_lost(data), **given, **ended)


# What a recovery would do.


def looked_for(context: Context, steps: Iterable[RecoveryStep]) -> Looked:
    """What the steps of a procedure that look for a state would come to.

    What the first finds that finds something is put back; a critical one that does not ends it.
    """
    looked = Looked()
    for step in steps:
        looked = look(context, context.order(step.action))
        if looked.target is not None or step.critical:
            break
    return looked


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
