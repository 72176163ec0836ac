"""What can be asked about recoveries of a store: nothing here recovers anything."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from holdfast.errors import MissingError, RecoveryFailedError, StateIntegrityError
from holdfast.recovery.damaged_records import readable
from holdfast.recovery.group import Together
from holdfast.recovery.group_report import GroupRecoveryReport
from holdfast.recovery.health import BUDGET, Health, health_of
from holdfast.recovery.notices import PAGE, Notice, deliver, notices
from holdfast.recovery.quarantine import Quarantine
from holdfast.recovery.records import (
    GROUPS,
    Record,
    Records,
    given_scope,
    notices_scope,
)
from holdfast.recovery.recovered_scopes import recovered_agents
from holdfast.recovery.report import (
    SLOW,
    RecoveryReport,
    RecoveryStatistics,
    report_of,
    statistics_of,
)
from holdfast.recovery.setup.placement import Placement
from holdfast.store.history.handle import LineHandle, StoreHandle
from holdfast.store.names.arguments import (
    check_count,
    check_function,
    check_limit,
    check_seconds,
    check_text,
)
from holdfast.store.read.reader import moment
from holdfast.store.state import State

_Report = TypeVar("_Report", RecoveryReport, GroupRecoveryReport)


def _told(records: Records, record: Record) -> RecoveryReport:
    return _still_signed(report_of(record), records.handle, record.key)


def _still_signed(report: _Report, line: LineHandle, key: str) -> _Report:
    """A report that is signed only if a checkpoint behind it is there: that may be lost since."""
    if not report.signed or line.reader.version(key) < line.history.points.line().checkpoint:
        return report
    return replace(report, signed=False)


class Looking:
    """What became of recoveries, who is told, and how it is; a part of `Recovery`."""

    _handle: StoreHandle
    _together: Together

    def reports(self, agent: Any, limit: int | None = None) -> list[RecoveryReport]:
        """What became of an agent's recoveries, the newest first."""
        check_limit(limit)
        records = Records(self._handle, given_scope(self._handle, agent))
        return readable(records.all(limit), partial(_told, records))

    def report(self, agent: Any, id: str) -> RecoveryReport:
        """What became of one recovery."""
        check_text(id, "the id of a recovery", 100, least=1)
        records = Records(self._handle, given_scope(self._handle, agent))
        return _told(records, records.get(id))

    def _named_by(self, agent: Any, error: RecoveryFailedError) -> RecoveryReport | None:
        """The report that an error names, as far as there is one of this agent to be read."""
        with suppress(MissingError, StateIntegrityError):
            if error.recovery:
                return self.report(agent, error.recovery)
        return None

    def group_reports(self, limit: int | None = None) -> list[GroupRecoveryReport]:
        """What became of the recoveries of groups, the newest first."""
        check_limit(limit)
        pages = readable([notices_scope()], lambda _: self._together.reports(limit))
        line = self._handle.line(notices_scope())
        return [_still_signed(one, line, GROUPS + one.id) for page in pages for one in page]

    def statistics(self, agent: Any = None, *, slow: float = SLOW) -> RecoveryStatistics:
        """How recoveries went, of one agent or of all, with groups that it was part of.

        Alarms tell of those that failed, took longer than `slow` seconds, or are still running
        after that time.
        """
        check_seconds(slow, "slow")
        wanted = given_scope(self._handle, agent) if agent is not None else None
        agents = [wanted] if wanted is not None else recovered_agents(self._handle)
        found = [one for scope in agents for one in self.reports(scope)]
        groups = [one for one in self.group_reports() if wanted is None or wanted in one.agents]
        return statistics_of([*found, *groups], slow, moment(self._handle.core.clock.claimed()))

    # those who want to know

    def notices(self, since: int = 0, limit: int = PAGE) -> list[Notice]:
        """Notices of recoveries of the whole store that ended, from a number on."""
        check_count(since, "since")
        check_count(limit, "limit")
        return notices(self._handle, since, limit)

    def deliver(self, state: Any, consumer: str, function: Callable[[Any, Notice], Any]) -> int:
        """Give a consumer each notice exactly once; how many there were.

        `function` gets a change of the consumer's state and the notice: what it writes there is
        committed together with the note that the notice was had, in whatever process.
        """
        check_function(function, "the function that gets notices")
        return deliver(self._handle, State(self._handle.of(state)), consumer, function)

    # how it is, and what was damaged

    def health(
        self,
        agent: Any = None,
        *,
        budget: float = BUDGET,
        url: str = "",
        key: str | None = None,
        signer: str | None = None,
        durability: str = "full",
    ) -> Health:
        """How healthy the store, or one agent, is: from 0 to 100, with reasons and next steps.

        `budget` is for `verify`, in seconds, and again for the agents one by one. With what the
        store was opened with (`url`, `key`, `signer`, `durability`), it is also told whether
        secrets lie beside the store and whether the disk is full.
        """
        check_seconds(budget, "budget")
        for what, text in {"url": url, "key": key or "", "signer": signer or ""}.items():
            check_text(text, what)
        scope = given_scope(self._handle, agent) if agent is not None else None
        placement = Placement(url, key, signer, durability)
        return health_of(self._handle, scope, budget=budget, placement=placement)

    def quarantine(self, agent: Any) -> Quarantine:
        """The damaged rows of an agent that recoveries set aside: list, get, release."""
        return Quarantine(self._handle, given_scope(self._handle, agent))
