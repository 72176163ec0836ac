"""Several agents put back to one moment, a group of checkpoints: all of them, or none.

A group is looked at whole before anything is changed: every value of every agent is read, and every
check asked. Then one commit puts all of them back and ends the recovery in the records of each. So
there is nothing to undo, and nothing to go on with: a process that ends before it has changed
nothing. What is left to do after it, `boot` does, too.

What the agents told each other, or themselves, since the moment is undone with the rest. A letter
that one of them sent while it processed another will be sent again when that is processed again: it
is taken back in the same commit. Letters from elsewhere stay, and so do those that were sent by
themselves: those are facts, and sent again under their id they are still one. Tasks that were
handed over since stay where they are.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from holdfast.agents.handover import Handovers
from holdfast.agents.mailbox_records import letters_taken_back
from holdfast.checkpoints.checkpoint_group import Group, group_of
from holdfast.checkpoints.locate import Lineage, candidates
from holdfast.checkpoints.request import Locator
from holdfast.errors import CheckpointNotFoundError, InvalidInputError, RecoveryFailedError
from holdfast.recovery import failure_kinds
from holdfast.recovery.changes_of_others import changes_after, lost_text
from holdfast.recovery.context import Settings
from holdfast.recovery.failure_kinds import AgentFailure
from holdfast.recovery.lost_entries import MAIN
from holdfast.recovery.procedure import LOCATE, RESTORE, Procedure
from holdfast.recovery.records import (
    FAILED,
    SUCCEEDED,
    Record,
    Records,
    RecoveryStepResult,
    correlation_of,
    follow,
    letting_go,
    new_id,
    planned,
)
from holdfast.recovery.report import RecoveryReport, report_of
from holdfast.recovery.strategies import (
    UNFIT,
    RecoveryTarget,
    UnfitTarget,
    check_state,
    refusal,
)
from holdfast.storage.rows import again
from holdfast.store.inner import (
    Asked,
    Change,
    StoreHandle,
    Target,
    build_change,
    moment,
    settle_after,
)
from holdfast.store.names.cause import acting, cause_now
from holdfast.store.names.items import Checkpoint, said
from holdfast.store.names.scope import Scope
from holdfast.store.state import State
from holdfast.store.store import Store

GROUP = Procedure("group_recovery", (), (LOCATE, RESTORE), name="several agents at one moment")
"""What the reports of members name; it is done here, and not by a run of steps."""
Points = Mapping[Scope, tuple[str, int]]
"""Where each agent was at a moment."""


def named_group(point: Any) -> Any:
    """What a group is known by, in every agent of it: its id, or the name that was given.

    The id of a checkpoint as a text is neither: each agent has one of that number.
    """
    if isinstance(point, Group):
        return point.id
    if isinstance(point, Checkpoint):
        id_ = said(point.metadata, "group", "")
        if not id_:
            raise CheckpointNotFoundError(
                f"{point.scope}: {point.id} is no part of a group, so it is no moment of several "
                "agents; CheckpointGroups.create makes one"
            )
        return id_
    if point is not None and type(point) is not str:
        raise InvalidInputError(
            "the point of several agents is a group of checkpoints, its name or id, or a "
            f"checkpoint of it, not {type(point).__name__}"
        )
    return point


class Together:
    """One recovery of several agents of a store."""

    def __init__(
        self, store: StoreHandle, settings: Settings, scopes: Iterable[Scope], failure: AgentFailure
    ) -> None:
        self._store = store
        self._checks = settings.validate
        self._scopes = sorted(set(scopes), key=str)
        self._failure = replace(failure, point=named_group(failure.point))
        self._lines = {scope: store.line(scope) for scope in self._scopes}
        self._known: dict[Scope, Lineage] = {}
        """Of the scopes that were asked about before: one reads all its restores."""
        if not self._scopes:
            raise InvalidInputError("a group has one or more agents")
        named = self._failure.point  # refused before anything is kept, if it is not there
        if named is not None and not any(True for one in self._scopes for _ in self._of(one)):
            raise CheckpointNotFoundError(
                f"none of the agents has a checkpoint of a group called {named!r}; make one with "
                "CheckpointGroups.create, or leave `point` out"
            )

    def run(self) -> dict[Scope, RecoveryReport]:
        """Do it, under their leases."""
        begun = time.monotonic()
        # One record for each agent, all of one id, of which nothing is kept before the end.
        known = [Records(self._store, scope) for scope in self._scopes]
        newest = max((one.id for each in known for one in each.all(1)), default="")
        id_ = new_id(moment(self._store.core.clock.claimed()), newest)
        records = [each.draft(self._failure, GROUP, id_) for each in known]
        for record in records:
            record.begin()
        passed: dict[str, str] = {}
        with acting("recovery", correlation=correlation_of(id_)):
            points = self._moment(passed)
            found = time.monotonic() - begun
            if points is None:
                why = "; ".join(f"{name}: {text}" for name, text in passed.items())
                for record in records:
                    self._note(record, LOCATE.key, {}, found, why[:1000])
                self._end(records, FAILED, why)
                raise RecoveryFailedError(
                    f"recovery {id_} of {len(records)} agents failed, and changed nothing: there "
                    f"is no moment to return to: {why}"[:2000],
                    id_,
                )
            again(lambda: self._put_back(records, points, passed, found))
            # Handed-over tasks are made to fit, and the states before let go; else boot does so.
            Handovers(Store(self._store))._reconcile(list(self._lines.values()))
            held = [
                letting_go(self._lines[one.agent], one.id, one.data.first or 0, SUCCEEDED)
                for one in records
            ]
            if targets := [one for plan in held if plan is not None for one in plan[0].targets]:
                self._store.core.run(Change(targets, cause_now()))
        return {record.agent: report_of(record) for record in records}

    # looking for a moment

    def _of(self, scope: Scope) -> Iterator[Checkpoint]:
        """Checkpoints of an agent that are part of a group: all, or those of the one named."""
        named = self._failure.point
        for one in candidates(self._lines[scope], Locator()):
            id_ = said(one.metadata, "group", "")
            if id_ and (named is None or named in (one.name, id_)):
                yield one

    def _moment(self, passed: dict[str, str]) -> Points | None:
        """The newest moment that serves; `passed` gets those that do not, and why."""
        for one in self._of(self._scopes[0]):
            try:
                points = self._points(group_of(self._store, one).checkpoints)
                for scope, (timeline, sequence) in points.items():
                    check_state(self._lines[scope], timeline, sequence)
                    view = State(self._lines[scope]).at(f"{timeline}@{sequence}")
                    if why := refusal(self._checks, view):
                        raise UnfitTarget(f"{scope}: {why}")
            except UNFIT as error:  # damaged, refused, not whole, or not meant: an older may serve
                passed[one.name or one.id] = str(error)[:500]
                continue
            return points
        passed.setdefault("group", "no other checkpoint is of a group with all of them")
        return None

    def _points(self, members: Collection[Checkpoint]) -> Points:
        """Where the agents were; refused if that is not what somebody who named no group means."""
        points = {made.scope: (made.timeline, made.sequence) for made in members}
        if not points.keys() >= set(self._scopes):
            raise UnfitTarget("not all of the agents are part of that group")
        points = {scope: points[scope] for scope in self._scopes}
        if self._failure.point is not None:
            return points
        aside = [str(scope) for scope, (line, _) in points.items() if line != MAIN]
        if aside:
            raise UnfitTarget(
                f"that of {', '.join(aside)} is of another timeline; name it as the point to "
                "return to it"
            )
        for scope, (_, sequence) in points.items():
            if scope not in self._known:
                self._known[scope] = Lineage(self._lines[scope])
            if sequence not in self._known[scope]:
                raise UnfitTarget("a restore left it behind; name it as the point to return to it")
        return points

    # putting them back

    def _put_back(
        self, records: Sequence[Record], points: Points, passed: Mapping[str, str], found: float
    ) -> None:
        """One commit: all of them, their inboxes, and the end of the recovery."""
        begun = time.monotonic()
        strategy = failure_kinds.NAMED if self._failure.point is not None else failure_kinds.NEWEST
        plans: list[Any] = []
        for record in records:
            handle, (timeline, sequence) = self._lines[record.agent], points[record.agent]
            point, head = f"{timeline}@{sequence}", handle.place()[2]
            lost = f"what came after {point}"
            if timeline == handle.timeline:
                lost = lost_text(changes_after(handle, sequence, head), 0)
            plans.append(handle.plan_restore(point, "full", f"recovery {record.id}", head))
            target = plans[-1][0].targets[0]
            members = {str(one) for one in self._scopes}
            operations, count = letters_taken_back(
                handle.reader, handle.view(point).reader, members
            )
            if operations:  # an entry behind that of the restore changes the inbox
                asked: Asked = (handle.scope, handle.timeline, operations, {}, None)
                follow(target, build_change(handle.core, [asked], cause=cause_now()).targets[0])
            target_data = RecoveryTarget(strategy, point, lost).data()
            record.data.first = head
            self._note(record, LOCATE.key, {**target_data, "passed": dict(passed)}, found)
            done = {"restored": point, "lost": lost, "letters_taken_back": count}
            self._note(record, RESTORE.key, done, time.monotonic() - begun)
        targets = [plan[0].targets[0] for plan in plans]
        written = self._end(records, SUCCEEDED, "", targets)
        for record, plan, one in zip(records, plans, written[-len(targets) :], strict=True):
            plan[1]([one])
            settle_after(self._lines[record.agent])

    # what is kept

    def _note(
        self, record: Record, step: str, result: dict[str, Any], seconds: float, error: str = ""
    ) -> None:
        at = record.data.started_at
        found = RecoveryStepResult(step, not error, result, error, seconds, 1, executed_at=at)
        record.note_result("steps", found, hold=True)

    def _end(
        self, records: Sequence[Record], status: str, why: str, along: Sequence[Target] = ()
    ) -> Sequence[Any]:
        pages = [record.ending(status, why) for record in records]
        notices = [record.notice() for record in records]
        change = planned(self._store, pages, notices=notices, along=along)
        written = self._store.core.run(change)
        for record in records:
            record.ended()
        return written
