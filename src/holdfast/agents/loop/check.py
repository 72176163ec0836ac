"""Whether a loop has kept its agent safe: a look at the checkpoints that it made, without changes.

Looked for are checkpoints that are damaged, routine ones that came too late or too early, and
whether there is one that could be restored. Times are those that were claimed: where a wall clock
was set, they may mislead.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice, pairwise

from holdfast.agents.agent_keys import AGENT, EXECUTION_STATE
from holdfast.checkpoints.locate import Tried, candidates, examine
from holdfast.checkpoints.request import Locator
from holdfast.errors import InvalidInputError, StateIntegrityError
from holdfast.store.inner import LineHandle, handle_of, moment
from holdfast.store.names.arguments import check_count, check_face, check_seconds
from holdfast.store.names.face import reads
from holdfast.store.names.items import Checkpoint
from holdfast.store.state import State

MOST = 100
"""Checkpoints that are looked at, the newest ones."""


@dataclass(frozen=True, slots=True)
class LoopReport:
    """What was seen of an agent's checkpoints."""

    agent: str
    checkpoints: dict[str, int]
    """How many of each type were looked at."""
    components: tuple[str, ...]
    """What of the agent the newest checkpoint covers."""
    restorable: str | None
    """Id of the newest checkpoint of which every value was read and checked."""
    findings: tuple[str, ...]
    """What is wrong; empty when all is well."""

    def markdown(self) -> str:
        """The report for people."""
        lines = [f"## {self.agent}", "", "| checkpoints | |", "| --- | --- |"]
        lines += [f"| {type} | {count} |" for type, count in self.checkpoints.items()]
        lines += ["", f"Covered: {', '.join(self.components) or 'nothing of the agent'}."]
        lines += [f"Restorable: {self.restorable or 'none'}.", ""]
        lines += [f"- {finding}" for finding in self.findings] or ["Nothing was found wrong."]
        return "\n".join(lines) + "\n"


@reads
def check_loop(
    state: State, *, interval: float = 1800.0, tolerance: float = 300.0, limit: int = MOST
) -> LoopReport:
    """Look at the newest checkpoints of an agent: are they whole, and were they made in time?

    Nothing is changed. `report.findings` is empty when all is well.
    """
    check_face(state, State, "check_loop")
    handle = handle_of(state)
    check_seconds(interval, "interval")
    check_seconds(tolerance, "tolerance")
    check_count(limit, "limit")
    if not limit or interval <= tolerance:
        raise InvalidInputError("limit is 1 or more, and interval is longer than tolerance")
    handle.history.points.line()  # a scope that is not there is refused
    unread: list[Tried] = []
    found = list(islice(candidates(handle, Locator(), unread), limit))[::-1]
    findings = [f"{one.id} cannot be read: {one.reason}" for one in unread]
    good: str | None = None
    for one in reversed(found):
        looked = examine(handle, one, "references" if good else "full")
        if not looked.valid:
            findings.append(f"{one.id} ({one.type}) cannot be restored: {looked.reason}")
        elif good is None:
            good = one.id
    if good is None:
        findings.append("there is no checkpoint that could be restored")
    span = timedelta(seconds=interval), timedelta(seconds=tolerance)
    try:
        findings += _intervals(handle, found, *span)
    except StateIntegrityError as error:  # a report tells of damage, and goes on
        findings.append(f"the newest state cannot be read: {error}")
    keys = handle.view(good).reader.keys(AGENT, None, "") if good is not None else []
    covered = tuple(dict.fromkeys(key.removeprefix(AGENT).split("/")[0] for key in keys))
    types = Counter(one.type for one in found)
    return LoopReport(str(handle.scope), dict(types), covered, good, tuple(findings))


def _intervals(
    handle: LineHandle, found: list[Checkpoint], interval: timedelta, tolerance: timedelta
) -> Iterator[str]:
    """Routine checkpoints that came too early, and changes that waited too long for any."""
    for before, after in pairwise(found):
        if after.type != "routine":
            continue
        since = _first_change(handle, before)
        if since is not None and after.time - since > interval + tolerance:
            late = (after.time - since).total_seconds()
            yield f"{after.id} came {late:.0f} s after the first change that it covers"
        begins = before.type in ("routine", "session_start")
        if begins and after.time - before.time < interval - tolerance:
            early = (after.time - before.time).total_seconds()
            yield f"{after.id} came {early:.0f} s after the one before"
    life = handle.reader.get(EXECUTION_STATE, None, None, False) or {}
    if found and life.get("status") == "running":
        now = moment(handle.core.clock.claimed())
        since = _first_change(handle, found[-1])
        if since is not None and now - since > interval + tolerance:
            waits = (now - since).total_seconds()
            yield f"changes wait for a checkpoint since {waits:.0f} s, and the agent is running"


def _first_change(handle: LineHandle, one: Checkpoint) -> datetime | None:
    """When the first entry behind a checkpoint was written."""
    entries = handle.history.log(since=one.sequence + 1, limit=1, newest_first=False)
    return entries[0].time if entries else None
