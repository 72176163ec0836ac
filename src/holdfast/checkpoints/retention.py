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
which is damaged. A plan that would remove more than a fifth of a scope's checkpoints by age alone,
or the newest of any type, is not run unless it is confirmed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from holdfast.checkpoints.policy.policy import PRIORITIES, policy_of
from holdfast.checkpoints.policy.policy_engine import stored_policies
from holdfast.errors import (
    InvalidInputError,
    NotConfirmedError,
    PointNotFoundError,
    PrunedError,
    StateIntegrityError,
    TimelineNotFoundError,
)
from holdfast.storage.rows import again
from holdfast.store.inner import (
    REASONS,
    RETENTION,
    Body,
    Change,
    LineHandle,
    Need,
    Operation,
    Stage,
    beside_pruning,
    end_line,
    forget_rests,
    handle_of,
    kept_past,
    mark_key,
    marked,
    marks_of,
    microseconds,
    moment,
    needs,
    prune_state,
    stand_on,
)
from holdfast.store.names import rowkinds
from holdfast.store.names.arguments import check_face, check_flag, check_text
from holdfast.store.names.face import faced, writes
from holdfast.store.names.items import TYPES, Checkpoint, Pruned, said
from holdfast.store.names.scope import Scope
from holdfast.store.names.threads import Breath, safe_point
from holdfast.store.store import Store

# ---- rules --------------------------------------------------------------------------------------
# Rules of retention: which checkpoints go, and what keeps them nevertheless.


@dataclass(frozen=True)
class RetentionRule:
    """When a checkpoint may go: it is over a limit, and nothing below keeps it.

    Of several limits one is enough. Without a limit nothing goes. Counts are of checkpoints of one
    timeline that share the rule: a type (with a trigger that has a rule of its own or not), or a
    policy.
    """

    max_age: timedelta | None = None
    max_count: int | None = None
    min_count: int = 0
    """So many of the newest always stay."""
    min_importance: str | None = None
    """One of this priority (low, medium, high, critical) or above stays."""
    until_released: bool = False
    """Goes once it is released, whatever its age and number; a release once that is gone."""

    def __post_init__(self) -> None:
        if self.max_age is not None and (
            type(self.max_age) is not timedelta or self.max_age <= timedelta(0)
        ):
            raise InvalidInputError("max_age is a timedelta of more than 0")
        for name in ("max_count", "min_count"):
            value = getattr(self, name)
            if value is not None and (type(value) is not int or value < 0):
                raise InvalidInputError(f"{name} is a whole number of 0 or more")
        if self.min_importance is not None and self.min_importance not in PRIORITIES:
            raise InvalidInputError(f"min_importance is one of {', '.join(PRIORITIES)}")

    def over(self, number: int, age: timedelta | None) -> str:
        """Why one may go, that is the `number`-th newest: "", `count`, `age` or `count and age`.

        Without an age the clock cannot be trusted, and none counts as over.
        """
        count = self.max_count is not None and number >= self.max_count
        aged = self.max_age is not None and age is not None and age > self.max_age
        return " and ".join(["count"] * count + ["age"] * aged)


DEFAULTS: Mapping[str, RetentionRule] = {
    "routine": RetentionRule(max_count=3),
    "recovery": RetentionRule(max_age=timedelta(days=7)),
    "pre_operation": RetentionRule(until_released=True),
    "post_operation": RetentionRule(until_released=True),  # when what it releases is gone
    "automatic:shutdown": RetentionRule(max_count=5),
}
"""By type; one with a trigger stands behind a colon. All other types stay, unless a checkpoint says
otherwise in its metadata (`retention`), as those of policies do."""


Group = tuple[str, ...]
"""What checkpoints that are counted together have in common."""


def _own(said: Any) -> RetentionRule | None:
    """What a checkpoint says itself; what cannot be used is no reason to remove it."""
    if not isinstance(said, Mapping):
        return None
    age, seconds = None, said.get("max_age")
    try:
        with suppress(OverflowError):  # longer than anything lasts: by its age it never goes
            age = timedelta(seconds=seconds) if seconds is not None else None
        return RetentionRule(age, said.get("max_count"), said.get("min_count", 0))
    except (InvalidInputError, TypeError, ValueError):
        return RetentionRule()


# ---- marks --------------------------------------------------------------------------------------
# Marks on checkpoints: pinned, on hold, cleared; keys of the scope that no restore takes back.
#
# A mark stands on the state that it keeps, as a fork does: it is committed only if that is not
# pruned by then, and whoever prunes looks at the marks in the commit that announces what goes
# (`holdfast.store.upkeep.prune`). So one that was accepted is kept, whatever runs beside it.


def stand(main: LineHandle, change: Change, point: Any) -> None:
    """Let a change that writes a mark to a main timeline fail if its point is pruned by then."""
    points = main.history.points
    timeline, sequence = points.find(point)
    line, anchors = points.line(timeline), points.anchors(timeline, sequence)
    place = (main.scope, main.timeline)
    target = next(one for one in change.targets if (one.scope, one.timeline) == place)

    def special(stage: Stage, body: Body) -> None:
        stand_on(stage, line, sequence, anchors)
        stage.add(target.prepared(stage.ledger), body)

    target.special = special


# ---- needs --------------------------------------------------------------------------------------
# What of a timeline is in use: no rule removes it.


@dataclass(frozen=True, slots=True)
class JudgedCheckpoint:
    """A checkpoint, and what becomes of it."""

    checkpoint: Checkpoint
    stays: bool
    why: str


class Needs:
    """The checkpoints of a timeline that are in use, and why."""

    def __init__(self, line: LineHandle) -> None:
        self._line = line
        self._now = now = line.history.points.line()  # what begins after this is behind it
        self._found: dict[int, Need] = {}
        self.begun = now.sequence
        """Behind this entry nothing is pruned: undoing an operation takes all that it wrote, and
        undoing a recovery what others wrote meanwhile."""
        for need in needs(line, RETENTION):
            self._found.setdefault(need.at, need)
            if REASONS[need.reason].onward:
                self.begun = min(self.begun, need.at)

    def why(self, one: Checkpoint) -> str:
        """Why a checkpoint stays whatever the rules say; empty if it need not."""
        if need := self._found.get(one.sequence):
            return need.text
        return REASONS["since"].text if one.sequence >= self.begun else ""

    def released(self, one: Checkpoint) -> Iterator[str]:
        """Ids that a checkpoint lets go: what it releases, and itself once all of that is gone."""
        ids = list(map(str, said(one.metadata, "releases", [])))
        yield from ids
        if not ids or one.type != "post_operation":
            return
        for id_ in ids:
            timeline, _, number = id_.rpartition("@")
            if timeline != self._line.timeline or not number.isdecimal():
                return  # nobody here can tell
            if self._now.floor.holds(int(number), self._now.ledger.before):
                return
        yield one.id


# ---- retention ----------------------------------------------------------------------------------


DAY = timedelta(days=1)
LOOKED_AT = 100
"""Newest entries of which the clocks are compared."""
AGED = "over its age"
"""Why one goes that is over no count."""
MOST = 0.2
"""Part of a scope's checkpoints that may go by age alone without being asked about."""


@dataclass(frozen=True, slots=True)
class LinePlan:
    """What is to become of one timeline."""

    timeline: str
    judged: tuple[JudgedCheckpoint, ...]
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


@faced
class Retention:
    """The retention of a store's checkpoints and of its past.

    `rules` take the place of the default ones, by type: `{"manual": RetentionRule(max_count=10)}`.
    """

    def __init__(self, store: Store, *, rules: Mapping[str, RetentionRule] | None = None) -> None:
        check_face(store, Store, "Retention")
        self._handle = handle_of(store)
        given = rules if rules is not None else {}
        known = list(given.items()) if isinstance(given, Mapping) else [(rules, rules)]
        for name, rule in known:
            if str(name).partition(":")[0] not in TYPES or not isinstance(rule, RetentionRule):
                raise InvalidInputError(
                    "rules are holdfast.checkpoints.RetentionRule(...) by the type of checkpoints, "
                    f"which is {', '.join(TYPES)}; a trigger may stand behind it: "
                    "automatic:shutdown"
                )
        self._given = dict(known)
        self.rules = {**DEFAULTS, **self._given}

    # what is to go

    def plan(self, scope: Any) -> RetentionPlan:
        """What would go, and why; nothing is changed."""
        handle = self._line(scope)
        handle.history.points.line()  # a scope that is not there has no plan
        found = [handle.on(info.name) for info in handle.history.timelines()]
        now = moment(self._handle.core.clock.claimed())
        trusted = now if _confirmed(found, now) else None
        notes = []
        if trusted is None:
            notes.append(
                f"the newest entries do not confirm that it is {now:%Y-%m-%d}, so nothing goes "
                "because of its age"
            )
        lines = []
        for line in found:
            with suppress(TimelineNotFoundError):  # ended meanwhile
                needs = Needs(line)
                judged = tuple(self._judged(handle, line, needs, trusted))
                lines.append(LinePlan(line.timeline, judged, _floor(line, needs, judged, trusted)))
        return RetentionPlan(handle.scope, tuple(lines), tuple(_questions(lines)), tuple(notes))

    @writes
    def run(self, what: RetentionPlan | Any, *, confirm: bool = False) -> list[Pruned]:
        """Prune what a plan says, or a new plan of a scope; what has to stay by now stays.

        `confirm=True` answers the questions of the plan; else they are raised as
        `NotConfirmedError`.
        """
        check_flag(confirm, "confirm")
        done: list[Pruned] = []

        def step() -> RetentionPlan:
            # As it is now, and no more than was asked for, if that is a plan.
            asked = what if isinstance(what, RetentionPlan) else None
            plan = self.plan(what if asked is None else asked.scope)
            questions = (asked or plan).questions
            if asked is not None:
                plan = _both(plan, asked)
            if questions and not confirm:
                raise NotConfirmedError(f"{plan.scope}: {'; '.join(questions)}")
            for line in plan.lines:
                safe_point()
                with suppress(TimelineNotFoundError):  # ended meanwhile
                    done.extend(self._prune(self._line(plan.scope).on(line.timeline), line))
            return plan

        # Others may prune further than was planned; each time less is left for this one.
        plan = again(step, on=PrunedError)
        # Take back that checkpoints were cleared which are gone now.
        stay = {one.checkpoint.id for line in plan.lines for one in line.judged if one.stays}
        cleared = self._cleared(plan.scope)
        if over := sorted(cleared.keys() - stay):
            gone = [Operation("delete", cleared[id_]) for id_ in over]
            self._write(self._line(plan.scope), gone)
        forget_rests(self._line(plan.scope).history.points.line().ledger)
        return done

    def _prune(self, line: LineHandle, plan: LinePlan) -> Iterator[Pruned]:
        now = line.history.points.line()
        cell = rowkinds.pruner(now.ledger.number)
        # One whose pruning may not have come to its end goes on from its floor.
        begun = now.ledger.storage.cells(cell, cell + b"\0", limit=1)
        if floor := plan.floor or (now.floor.sequence if begun else 0):
            yield prune_state(
                line,
                floor,
                keep=[one.checkpoint.sequence for one in plan.judged if one.stays],
                dry_run=False,
                reason="retention",
                deed=RETENTION,
            )

    @writes
    def end(self, scope: Any, timeline: str, reason: str | None = None) -> Pruned:
        """End a timeline that nothing needs: a trial, a simulation, a failed import.

        The chain says so, then its content is dropped; its name is not used again. Refused, with
        `StillNeededError`, if a checkpoint of it is pinned, on hold or of an operation that is not
        over, or if any other timeline uses something of it, or a checkpoint of another scope rests
        on it. Cut short, end it again.
        """
        return end_line(self._line(scope).on(timeline), reason)

    def _line(self, scope: Any) -> LineHandle:
        return self._handle.line(self._handle.of(scope).scope)

    def _judged(
        self, main: LineHandle, line: LineHandle, needs: Needs, now: datetime | None
    ) -> Iterator[JudgedCheckpoint]:
        """What becomes of the checkpoints of a timeline, newest first."""
        cleared = self._cleared(main.scope)
        counted = Counter[Group]()
        own = stored_policies(main) if main.scope.kind == "agent" else {}
        policies = {id_: one.retention.kept() for id_, one in own.items()}
        released: set[str] = set()
        history, breath = line.history, Breath()
        for at, sequence, envelope, body in history.points.statements():
            one = history.described(at, line.timeline, sequence, envelope, body)
            released.update(needs.released(one))
            rule, group = self._rule_of(one, policies)
            number, counted[group] = counted[group], counted[group] + 1
            if why := needs.why(one):
                yield JudgedCheckpoint(one, True, why)
            elif one.id in cleared:
                yield JudgedCheckpoint(one, False, "cleared")
            else:
                age = now - one.time if now is not None else None
                yield _judge(one, rule, number, released, age)
            breath()
            safe_point()

    def _rule_of(
        self, one: Checkpoint, policies: Mapping[str, Mapping[str, Any]]
    ) -> tuple[RetentionRule, Group]:
        """The rule in force for a checkpoint, and with which others it is counted.

        It is the one that was given for its type; else what it says itself (its metadata, or the
        policy that made it, as that is now); else the default one.

        A member of a group goes by what it says itself alone: its type has no part in it, for the
        others of the group may be of scopes that have made more of that type, or fewer.
        """
        name = f"{one.type}:{one.metadata.get('trigger', '')}"
        if name not in self.rules:
            name = one.type
        grouped = bool(said(one.metadata, "group", ""))
        policy = policy_of(one)
        own = _own(policies.get(policy, one.metadata.get("retention")))
        if own is not None and (grouped or name not in self._given):
            # Those of a policy are counted together, of whatever type they were when it made them.
            return own, ("policy", policy) if policy else ("own", name, repr(own))
        return RetentionRule() if grouped else self.rules.get(name, RetentionRule()), (name,)

    # marks

    @writes
    def pin(self, checkpoint: Checkpoint, reason: str = "pinned") -> None:
        """Keep a checkpoint whatever the rules say, until it is unpinned."""
        self._mark("pin", checkpoint, reason)

    @writes
    def unpin(self, checkpoint: Checkpoint) -> bool:
        """Take a pin back; tells whether there was one."""
        return self._unmark("pin", checkpoint)

    @writes
    def hold(self, checkpoint: Checkpoint, reason: str) -> None:
        """Put a legal hold on a checkpoint: no rule and no unpinning removes it."""
        self._mark("hold", checkpoint, reason)

    @writes
    def lift(self, checkpoint: Checkpoint) -> bool:
        """Lift a hold; tells whether there was one."""
        return self._unmark("hold", checkpoint)

    def marked(self, scope: Any) -> dict[str, str]:
        """Ids of the checkpoints of a scope that are pinned, on hold or to go on from, and why.

        `State.why_kept` tells of all that keeps one.
        """
        found: dict[str, str] = {}
        for id_, need in marked(self._line(scope)):
            found.setdefault(id_, need.text)
        return found

    @writes
    def clear(self, checkpoint: Checkpoint, reason: str = "cleared") -> None:
        """Let a checkpoint go when retention is run next, whatever its rule says.

        Not one that is pinned, on hold or needed: that stays until it no longer is.
        """
        self._mark("clear", checkpoint, reason)

    def _cleared(self, scope: Any) -> dict[str, str]:
        """Ids of checkpoints that are to go, and the keys that say so."""
        return dict(marks_of(self._line(scope), "clear"))

    def _mark(self, kind: str, checkpoint: Checkpoint, reason: str) -> None:
        """Mark a checkpoint; refused if it is gone by the time of the commit."""
        # No book: a mark is a text, not a mapping, and its change stands on the checkpoint's entry.
        main, key = self._marking(kind, checkpoint)
        check_text(reason, "the reason", 1000)
        beside_pruning(lambda: self._write(main, [Operation("set", key, reason)], checkpoint))

    def _unmark(self, kind: str, checkpoint: Checkpoint) -> bool:
        main, key = self._marking(kind, checkpoint)
        if main.reader.get(key) is None:
            return False
        self._write(main, [Operation("delete", key)])
        return True

    def _write(
        self, main: LineHandle, operations: list[Operation], on: Checkpoint | None = None
    ) -> None:
        change, _ = main._plan(operations, main._version)
        if on is not None:
            stand(main, change, on)
        main.core.run(change)

    def _marking(self, kind: str, checkpoint: Checkpoint) -> tuple[LineHandle, str]:
        """Where the mark of a checkpoint that is there stands, and its key."""
        if not isinstance(checkpoint, Checkpoint):
            raise InvalidInputError(
                "give a checkpoint, as checkpoint() and checkpoints() return it"
            )
        main = self._handle.line(checkpoint.scope)
        main.history.points.find(checkpoint)
        return main, mark_key(main, kind, checkpoint.id)


def _floor(
    line: LineHandle, needs: Needs, judged: tuple[JudgedCheckpoint, ...], now: datetime | None
) -> int:
    """The entry behind the newest checkpoint that goes, and what `Keep` declares."""
    head = line.place()[2]
    floor = max((one.checkpoint.sequence + 1 for one in judged if not one.stays), default=0)
    goes = floor > 0
    keep = kept_past(line.reader.declared())
    if keep is not None and keep.count is not None:
        floor = max(floor, head - keep.count)
    elif keep is not None and keep.age is not None and now is not None:
        with suppress(PointNotFoundError):  # all of it is younger
            floor = max(floor, line.history.points.at_time(microseconds(now - keep.age)))
    floor = min(floor, needs.begun)
    below = line.history.points.line().floor.sequence
    return max(floor, below) if goes or floor > below else 0


def _judge(
    one: Checkpoint, rule: RetentionRule, number: int, released: set[str], age: timedelta | None
) -> JudgedCheckpoint:
    """Whether it stays by its rule, which counts so many newer ones."""
    if number < rule.min_count:
        return JudgedCheckpoint(one, True, f"one of the newest {rule.min_count}")
    least, has = rule.min_importance, one.metadata.get("priority")
    rank = PRIORITIES.index(has if has in PRIORITIES else "medium")
    if least is not None and rank >= PRIORITIES.index(least):
        return JudgedCheckpoint(one, True, f"its priority is {least} or above")
    if rule.until_released:
        done = one.id in released
        return JudgedCheckpoint(one, not done, "no longer needed" if done else "not released")
    over = rule.over(number, age)
    of = next((f" ({tag})" for tag in one.tags if tag.startswith("policy:")), "")
    return JudgedCheckpoint(one, not over, f"over its {over}" if over else f"within its rule{of}")


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


def _questions(lines: list[LinePlan]) -> Iterator[str]:
    total = sum(len(line.judged) for line in lines)
    aged = [one for line in lines for one in line.judged if one.why == AGED]
    if len(aged) > MOST * total:
        yield f"{len(aged)} of {total} checkpoints would go because of their age alone"
    for line in lines:
        newest = {one.checkpoint.type: one for one in reversed(line.judged)}
        for type_ in (type_ for type_, one in newest.items() if one.why == AGED):
            yield f"the newest {type_} one of {line.timeline} would go because of its age"


def _both(now: RetentionPlan, asked: RetentionPlan) -> RetentionPlan:
    """What two plans agree on: the floors of the one that was asked for, what goes in both."""
    gone = {one.id for one in asked.removed}
    floors = {line.timeline: line.floor for line in asked.lines}
    lines = []
    for line in now.lines:
        judged = tuple(
            one
            if one.stays or one.checkpoint.id in gone
            else JudgedCheckpoint(one.checkpoint, True, "it was to stay when this was planned")
            for one in line.judged
        )
        lines.append(LinePlan(line.timeline, judged, min(floors.get(line.timeline, 0), line.floor)))
    return RetentionPlan(now.scope, tuple(lines))
