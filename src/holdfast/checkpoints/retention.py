"""Retention: old checkpoints go, and with them the history that only they needed.

A plan says of every checkpoint whether it stays and why, and up to where each timeline is to be
pruned. Running it prunes (`holdfast.store.upkeep.prune`): announced by an anchor, in small commits,
beside readers and writers; cut short, run it again.

What never goes: what is pinned or on hold; what a checkpoint of another scope rests on, as long as
that one is there; the checkpoint of an operation that is not over, and all history behind it, by
which the operation is undone; the backup of a restore that is not confirmed (a later checkpoint's
metadata names in `releases` what it lets go); what a timeline starts from; the newest `min_count`
of a rule.

Clocks are not believed easily. An age counts only if the newest entry of the scope is less than a
day away from now, and no clock has jumped by as much in the last hundred of a timeline, none of
which is damaged; and only as far as somebody has seen it pass (`holdfast.checkpoints.entry_ages`).
A plan that would remove more than a fifth of a scope's checkpoints by age alone, or the newest of
any type, is not run unless it is confirmed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from holdfast.checkpoints.entry_ages import DAY, Ages
from holdfast.checkpoints.marks import Marks
from holdfast.checkpoints.needs import Judged, Needs, Together, rests_of
from holdfast.checkpoints.policy.policy_engine import stored_policies
from holdfast.checkpoints.retention_rules import (
    PRIORITIES,
    Group,
    Rule,
    RuleBook,
    importance,
    rules_of,
)
from holdfast.errors import (
    InvalidInputError,
    NotConfirmedError,
    PrunedError,
    StateIntegrityError,
    StillNeededError,
    TimelineNotFoundError,
)
from holdfast.store.history.handle import LineHandle, StoreHandle
from holdfast.store.names import rowkinds
from holdfast.store.names.arguments import check_flag
from holdfast.store.names.items import Checkpoint, Pruned
from holdfast.store.names.scope import Scope
from holdfast.store.names.thread_pauses import Breath
from holdfast.store.names.threads import safe_point
from holdfast.store.read.reader import moment
from holdfast.store.rules.checkpoint_holds import REASONS, held
from holdfast.store.rules.checkpoint_marks import marked_entries
from holdfast.store.rules.gates import Operation
from holdfast.store.rules.keep import kept_past
from holdfast.store.upkeep.dependencies import forget_rests
from holdfast.store.upkeep.end import end_line
from holdfast.store.upkeep.prune import Needed, prune_state

ATTEMPTS = 20
LOOKED_AT = 100
MOST = 0.2
"""Part of a scope's checkpoints that may go by age alone without being asked about."""


@dataclass(frozen=True, slots=True)
class LinePlan:
    """What is to become of one timeline."""

    timeline: str
    judged: tuple[Judged, ...]
    """Newest first."""
    floor: int
    """Entries before this one are to be pruned; 0: none."""


@dataclass(frozen=True, slots=True)
class RetentionPlan:
    """What retention would do to a scope."""

    scope: Scope
    lines: tuple[LinePlan, ...]
    questions: tuple[str, ...] = ()
    """Why it is not run unless it is confirmed."""
    notes: tuple[str, ...] = field(default=())

    @property
    def removed(self) -> tuple[Checkpoint, ...]:
        """The checkpoints that would go."""
        return tuple(one.checkpoint for line in self.lines for one in line.judged if not one.stays)

    def __str__(self) -> str:
        total = sum(len(line.judged) for line in self.lines)
        lines = [f"{self.scope}: {len(self.removed)} of {total} checkpoints go"]
        for line in self.lines:
            if line.floor:
                lines.append(f"  {line.timeline}: history before entry {line.floor} is pruned")
            for one in line.judged:
                what = "stays" if one.stays else "goes"
                named = f"{one.checkpoint.id} {one.checkpoint.type} {one.checkpoint.name!r}"
                lines.append(f"  {named} {what}: {one.why}")
        lines += [f"  note: {note}" for note in self.notes]
        lines += [f"  to be confirmed: {question}" for question in self.questions]
        return "\n".join(lines)


class Retention:
    """The retention of a store's checkpoints and of its past: the blocking face.

    `rules` take the place of the default ones, by type: `{"manual": Rule(max_count=10)}`.
    """

    def __init__(self, store: Any, *, rules: Mapping[str, Rule] | None = None) -> None:
        handle = getattr(store, "_handle", None)
        if not isinstance(handle, StoreHandle):
            raise InvalidInputError("Retention takes an open store")
        self._handle = handle
        self.rules = rules_of(rules)
        self._given = dict(rules or {})

    # what is to go

    def plan(self, scope: Any) -> RetentionPlan:
        """What would go, and why; nothing is changed."""
        return self._planned(scope, whole=True)

    def _planned(self, scope: Any, *, whole: bool) -> RetentionPlan:
        """A plan; one that is not whole names only what stays.

        A hundred thousand checkpoints that go would be as many objects, and a garbage collection
        that looks through them a pause for every thread.
        """
        handle = self._line(scope)
        handle.history.points.line()  # a scope that is not there has no plan
        found, now, trusted = self._lines(handle)
        notes = []
        if trusted is None:
            notes.append(
                f"the newest entries do not confirm that it is {now:%Y-%m-%d}, so nothing goes "
                "because of its age"
            )
        lines, tallies, marked = [], [], self.marked(handle.scope)
        together = Together(self._handle, self._staying)
        for line in found:
            with suppress(TimelineNotFoundError):  # ended meanwhile
                tally = Tally(line.timeline)
                needs = Needs(handle, line, marked)
                judged = map(together.judged, self._judged(handle, line, needs, trusted))
                kept = tuple(one for one in map(tally.count, judged) if whole or one.stays)
                lines.append(LinePlan(line.timeline, kept, _floor(line, needs, tally, trusted)))
                tallies.append(tally)
                if others := [at for at in needs.entries if at < lines[-1].floor]:
                    notes.append(
                        f"of {line.timeline}, {len(others)} states that are no checkpoints stay, "
                        "for checkpoints of other scopes rest on them"
                    )
        return RetentionPlan(handle.scope, tuple(lines), tuple(_questions(tallies)), tuple(notes))

    def _lines(self, main: LineHandle) -> tuple[list[LineHandle], datetime, datetime | None]:
        """The timelines of a scope, what time it is, and the same if it can be believed."""
        found = [main.on(info.name) for info in main.history.timelines()]
        now = moment(self._handle.core.clock.claimed())
        trusted = now if _confirmed(found, now) else None
        return found, now, trusted

    def _staying(self, scope: str) -> Iterator[Checkpoint]:
        """Checkpoints of a scope that stay by what is said of them there."""
        main = self._handle.line(scope)
        found, _, trusted = self._lines(main)
        marked = self.marked(scope)
        for line in found:
            with suppress(TimelineNotFoundError):  # ended meanwhile
                for one in self._judged(main, line, Needs(main, line, marked), trusted):
                    if one.stays:
                        yield one.checkpoint

    def run(self, what: RetentionPlan | Any, *, confirm: bool = False) -> list[Pruned]:
        """Prune what a plan says, or a new plan of a scope; what has to stay by now stays.

        `confirm=True` answers the questions of the plan; else they are raised as
        `NotConfirmedError`.
        """
        check_flag(confirm, "confirm")
        done: list[Pruned] = []
        for left in reversed(range(ATTEMPTS)):
            try:
                plan = self._to_run(what, confirm)
                for line in plan.lines:
                    safe_point()
                    with suppress(TimelineNotFoundError):  # ended meanwhile
                        done += self._prune(self._line(plan.scope).on(line.timeline), line)
                break
            except PrunedError:  # somebody else pruned further since it was planned
                if not left:
                    raise
        self._forget(plan)
        forget_rests(self._line(plan.scope).history.points.line().ledger)
        return done

    def _to_run(self, what: RetentionPlan | Any, confirm: bool) -> RetentionPlan:
        """A plan as of now, and no more than was asked for, if that is a plan."""
        asked = what if isinstance(what, RetentionPlan) else None
        scope = what if asked is None else asked.scope
        now = self._planned(scope, whole=asked is not None)
        plan = now if asked is None else _both(now, asked)
        questions = (asked or now).questions
        if questions and not confirm:
            raise NotConfirmedError(f"{plan.scope}: {'; '.join(questions)}")
        return plan

    def _prune(self, line: LineHandle, plan: LinePlan) -> Iterator[Pruned]:
        if floor := plan.floor or _cut_short(line):
            yield prune_state(
                line,
                floor,
                keep=[one.checkpoint.sequence for one in plan.judged if one.stays],
                dry_run=False,
                reason="retention",
                needed=self._needed(line),
                rested=_rested(line),
            )

    def end(self, scope: Any, timeline: str, reason: str | None = None) -> Pruned:
        """End a timeline that nothing needs: a trial, a simulation, a failed import.

        The chain says so, then its content is dropped; its name is not used again. Refused, with
        `StillNeededError`, if a checkpoint of it is pinned, on hold or of an operation that is not
        over, or if any other timeline uses something of it, or a checkpoint of another scope rests
        on it. Cut short, end it again.
        """
        line = self._line(scope).on(timeline)
        for id_, why in self.marked(line.scope).items():
            if id_.rpartition("@")[0] == timeline:
                raise StillNeededError(f"{line.scope}: {id_} is {why}; {timeline} cannot be ended")
        for rest in rests_of(line):
            raise StillNeededError(
                f"{line.scope}: {timeline} cannot be ended: {rest.name(self._handle.core)} rests "
                f"on its entry {rest.sequence}"
            )
        for one in held(line):
            if one.why == "operation":
                raise StillNeededError(
                    f"{line.scope}: {timeline} cannot be ended: of its checkpoint "
                    f"{one.checkpoint.id} {REASONS['operation']}"
                )
        return end_line(line, reason, self._needed(line), _rested(line))

    def _line(self, scope: Any) -> LineHandle:
        return self._handle.line(self._handle.of(scope).scope)

    def _judged(
        self, main: LineHandle, line: LineHandle, needs: Needs, now: datetime | None
    ) -> Iterator[Judged]:
        """What becomes of the checkpoints of a timeline, newest first."""
        cleared = self._cleared(main.scope)
        ages = Ages(line, now) if now is not None else None
        counted: dict[Group, int] = {}
        book = RuleBook(self._given, _said(main))
        released: set[str] = set()
        history, breath = line.history, Breath()
        for at, sequence, envelope, body in history.points.statements():
            one = history.described(at, line.timeline, sequence, envelope, body)
            released.update(needs.released(one))
            rules = [(rule, counted.get(group, 0)) for rule, group in book.of(one)]
            counted.update((group, counted.get(group, 0) + 1) for _, group in book.of(one))
            why = needs.why(one)
            if not why and one.id in cleared:
                yield Judged(one, False, "cleared")
            else:
                aged = ages is not None and any(rule.max_age is not None for rule, _ in rules)
                age = ages.of(one.sequence) if ages is not None and aged else None
                yield _judge(one, rules, why, released, age)
            breath()
            safe_point()

    # marks

    def pin(self, checkpoint: Checkpoint, reason: str = "pinned") -> None:
        """Keep a checkpoint whatever the rules say, until it is unpinned."""
        self._marks(checkpoint).add("pin", checkpoint, reason)

    def unpin(self, checkpoint: Checkpoint) -> bool:
        """Take a pin back; tells whether there was one."""
        return self._marks(checkpoint).remove("pin", checkpoint)

    def hold(self, checkpoint: Checkpoint, reason: str) -> None:
        """Put a legal hold on a checkpoint: no rule and no unpinning removes it."""
        self._marks(checkpoint).add("hold", checkpoint, reason)

    def lift(self, checkpoint: Checkpoint) -> bool:
        """Lift a hold; tells whether there was one."""
        return self._marks(checkpoint).remove("hold", checkpoint)

    def marked(self, scope: Any) -> dict[str, str]:
        """Ids of the checkpoints of a scope that are pinned, on hold or to go on from, and why."""
        return Marks(self._line(scope)).needed()

    def clear(self, checkpoint: Checkpoint, reason: str = "cleared") -> None:
        """Let a checkpoint go when retention is run next, whatever its rule says.

        Not one that is pinned, on hold or needed: that stays until it no longer is.
        """
        self._marks(checkpoint).add("clear", checkpoint, reason)

    def _cleared(self, scope: Any) -> dict[str, str]:
        """Ids of checkpoints that are to go, and the keys that say so."""
        return dict(Marks(self._line(scope)).of("clear"))

    def _forget(self, plan: RetentionPlan) -> None:
        """Take back that checkpoints were cleared which are gone now."""
        line = self._line(plan.scope)
        stay = {one.checkpoint.id for line in plan.lines for one in line.judged if one.stays}
        cleared = self._cleared(plan.scope)
        ops = [Operation("delete", cleared[id_]) for id_ in sorted(cleared.keys() - stay)]
        if ops:
            self._run(line._plan(ops, line._version))

    def _needed(self, line: LineHandle) -> Needed:
        """Gives the entries of a timeline that are pinned or on hold when it is asked."""
        return lambda: marked_entries(line)

    def _marks(self, checkpoint: Checkpoint) -> Marks:
        if not isinstance(checkpoint, Checkpoint):
            raise InvalidInputError(
                "give a checkpoint, as checkpoint() and checkpoints() return it"
            )
        return Marks(self._handle.line(checkpoint.scope))

    def _run(self, plan: Any) -> None:
        if plan is not None:
            change, finish = plan
            finish(self._handle.core.run(change))


def _said(main: LineHandle) -> dict[str, dict[str, float]]:
    """What an agent's own policies say of their checkpoints now, by their ids."""
    if main.scope.kind != "agent":
        return {}
    return {id_: policy.retention.kept() for id_, policy in stored_policies(main).items()}


def _rested(line: LineHandle) -> Needed:
    """Gives the entries of a timeline that checkpoints of other scopes rest on."""
    return lambda: {one.sequence for one in rests_of(line)}


def _cut_short(line: LineHandle) -> int:
    """The floor of a timeline whose pruning may not have come to its end; else 0."""
    timeline = line.history.points.line()
    cell = rowkinds.pruner(timeline.ledger.number)
    begun = timeline.ledger.storage.cells(cell, cell + b"\0", limit=1)
    return timeline.floor.sequence if begun else 0


def _floor(line: LineHandle, needs: Needs, tally: Tally, now: datetime | None) -> int:
    """The entry behind the newest checkpoint that goes, and what `Keep` declares."""
    head = line.place()[2]
    floor = tally.newest + 1
    keep = kept_past(line.reader.declared())
    if keep is not None and keep.count is not None:
        floor = max(floor, head - keep.count)
    elif keep is not None and keep.age is not None and now is not None:
        floor = max(floor, Ages(line, now).newest_over(keep.age))
    floor = min(floor, needs.begun)
    below = line.history.points.line().floor.sequence
    return max(floor, below) if tally.gone or floor > below else 0


def _judge(
    one: Checkpoint,
    rules: list[tuple[Rule, int]],
    why: str,
    released: set[str],
    age: timedelta | None,
) -> Judged:
    """Whether it stays, by each of its rules and how many newer ones that counts."""
    if why:
        return Judged(one, True, why)
    for rule, number in rules:
        if number < rule.min_count:
            return Judged(one, True, f"one of the newest {rule.min_count}")
        least = rule.min_importance
        if least is not None and importance(one) >= PRIORITIES.index(least):
            return Judged(one, True, f"its priority is {least} or above")
    if any(rule.until_released for rule, _ in rules):
        done = one.id in released
        return Judged(one, not done, "no longer needed" if done else "not released")
    # One that is over a count goes, whatever the clock says; only what is left goes by age alone.
    reasons = sorted(filter(None, (rule.over(n, age) for rule, n in rules)), reverse=True)
    over = reasons[0] if reasons else ""
    return Judged(one, not over, f"over its {over}" if over else "within its rule")


def _confirmed(lines: list[LineHandle], now: datetime) -> bool:
    """Whether the newest entries of a scope confirm what time it is; a damaged one does not."""
    newest = []
    for line in lines:
        try:
            newest.append(line.history.log(limit=LOOKED_AT))
        except TimelineNotFoundError:
            continue  # ended meanwhile
        except StateIntegrityError:
            return False
    if not any(found and abs(now - found[0].time) <= DAY for found in newest):
        return False
    steps = [abs(entry.clock_step) for found in newest for entry in found]
    return max(steps) < DAY.total_seconds()


class Tally:
    """Counts what becomes of the checkpoints of a timeline, newest first."""

    def __init__(self, timeline: str) -> None:
        self.timeline = timeline
        self.total = self.gone = self.aged = 0
        """All, those that go, and those of them that go because of their age alone."""
        self.newest = -1
        """The newest entry that goes."""
        self.first: dict[str, bool] = {}
        """Of each type, whether the newest one goes because of its age alone."""

    def count(self, one: Judged) -> Judged:
        """Count one, and hand it on."""
        aged = not one.stays and one.why == "over its age"
        self.total += 1
        self.gone += not one.stays
        self.aged += aged
        self.first.setdefault(one.checkpoint.type, aged)
        if not one.stays:
            self.newest = max(self.newest, one.checkpoint.sequence)
        return one


def _questions(tallies: list[Tally]) -> Iterator[str]:
    total, aged = (sum(getattr(one, name) for one in tallies) for name in ("total", "aged"))
    if aged > MOST * total:
        yield f"{aged} of {total} checkpoints would go because of their age alone"
    for tally in tallies:
        for type_ in (type_ for type_, goes in tally.first.items() if goes):
            yield f"the newest {type_} one of {tally.timeline} would go because of its age"


def _both(now: RetentionPlan, asked: RetentionPlan) -> RetentionPlan:
    """What two plans agree on: the floors of the one that was asked for, what goes in both."""
    gone = {one.id for one in asked.removed}
    floors = {line.timeline: line.floor for line in asked.lines}
    lines = []
    for line in now.lines:
        judged = tuple(
            one
            if one.stays or one.checkpoint.id in gone
            else Judged(one.checkpoint, True, "it was to stay when this was planned")
            for one in line.judged
        )
        lines.append(LinePlan(line.timeline, judged, min(floors.get(line.timeline, 0), line.floor)))
    return RetentionPlan(now.scope, tuple(lines))
