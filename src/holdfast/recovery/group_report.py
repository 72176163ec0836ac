"""What became of the recovery of several agents together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from holdfast.recovery.failures import Failure
from holdfast.recovery.records import notices_scope
from holdfast.recovery.report import Ending
from holdfast.recovery.report_page import Page, kept_as
from holdfast.recovery.tails import tail_text
from holdfast.store.names.scope import Scope


@dataclass(frozen=True, slots=True)
class GroupRecoveryReport(Ending):
    """One recovery of several agents, from its failure to its end, or to where it stands."""

    id: str
    agents: tuple[Scope, ...]
    """Those that others rest on before those: the order in which to start them again."""
    status: str
    """running, succeeded or failed; one that failed has changed nothing, unless `why` says that all
    are back and cannot be read whole, or that one was deleted or erased and the others are back"""
    failure: Failure
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
    """Whether a checkpoint that covers it is there and signed; None until it ended, or if that is
    not known of an older one."""

    @property
    def about(self) -> str:
        """Whom it is about."""
        return f"a group of {len(self.agents)} agents"

    def __str__(self) -> str:
        lines = [f"recovery {self.id} of {len(self.agents)} agents: {self.status}"]
        lines.append(f"  failure: {self.failure.kind} ({self.failure.severity})")
        lines += [f"  served: {self.strategy}"] if self.strategy is not None else []
        lines += [f"  {scope}: {self.points.get(str(scope), 'as it is')}" for scope in self.agents]
        lines += [f"  passed over: {name}: {why}" for name, why in self.passed.items()]
        lines += [f"  taken back: {n} letters to {scope}" for scope, n in self.unsent.items()]
        lines += [f"  lost: {scope}: {what}" for scope, what in self.lost.items()]
        lines += [f"  why: {self.why}"] if self.why else []
        lines += [f"  {step} ({took:.3f} s)" for step, took in self.steps.items()]
        return "\n".join(lines)

    def markdown(self) -> str:
        """The report as a page of Markdown; what users wrote is escaped."""
        return self._page().markdown()

    def html(self) -> str:
        """The report as one page of HTML that needs nothing else; what users wrote is escaped."""
        return self._page().html()

    def _page(self) -> Page:
        failure, ended = self.failure, self.finished_at
        facts = [
            ("status", self.status),
            ("recovery", self.id),
            ("failure", f"{failure.kind} ({failure.severity})"),
            ("message", failure.message),
            ("served", self.strategy or ""),
            *((str(scope), self.points.get(str(scope), "as it is")) for scope in self.agents),
            *((f"lost of {scope}", what) for scope, what in self.lost.items()),
            *((f"letters to {scope} taken back", str(n)) for scope, n in self.unsent.items()),
            ("why", self.why),
            ("started", self.started_at.isoformat()),
            ("finished", ended.isoformat() if ended is not None else ""),
            ("took", f"{self.seconds:.3f} s" if ended is not None else ""),
            (kept_as(self.signed), str(notices_scope())),
        ]
        title = f"Recovery of {len(self.agents)} agents: {self.status}"
        steps = [[step, "done", f"{took:.3f}"] for step, took in self.steps.items()]
        columns = ("step", "outcome", "seconds")
        return Page(title, self.status, facts, self.passed, columns, steps)


def _lost(data: Mapping[str, Any]) -> dict[str, str]:
    """What each agent lost, of those that lost something."""
    before = {agent: tail_text(tail) for agent, tail in data.get("gone", {}).items()}
    kept = data.get("unanchored", {})
    back = {agent: text for agent, text in data.get("lost", {}).items() if text != "nothing"}
    tasks = data.get("tasks", {})
    every = {
        agent: [
            *(before.get(agent, ""), *kept.get(agent, ())),
            *(back.get(agent, ""), *tasks.get(agent, ())),
        ]
        for agent in data["agents"]
    }
    return {agent: "; ".join(filter(None, texts)) for agent, texts in every.items() if any(texts)}


def group_report(id_: str, data: Mapping[str, Any]) -> GroupRecoveryReport:
    """The report of a recovery of a group as it is kept."""
    return GroupRecoveryReport(
        id_,
        tuple(Scope.parse(one) for one in data["agents"]),
        data["status"],
        Failure.of(data["failure"]),
        data.get("strategy"),
        data.get("points", {}),
        data.get("passed", {}),
        data.get("unsent", {}),
        _lost(data),
        data.get("steps", {}),
        data.get("why", ""),
        data["started_at"],
        data.get("finished_at"),
        data.get("signed"),
    )
