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
which is damaged; and only as far as somebody has seen it pass (`holdfast.checkpoints.retention`).
A plan that would remove more than a fifth of a scope's checkpoints by age alone, or the newest of
any type, is not run unless it is confirmed.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from holdfast.checkpoints.group import made_with
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
from holdfast.store.inner import (
    REASONS,
    RETENTION,
    Body,
    Change,
    LineHandle,
    Need,
    Operation,
    Stage,
    StoreHandle,
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
from holdfast.store.names.arguments import check_flag, check_text
from holdfast.store.names.face import faced, writes
from holdfast.store.names.items import TYPES, Checkpoint, Pruned, said
from holdfast.store.names.scope import Scope
from holdfast.store.names.threads import Breath, safe_point
from holdfast.store.read.points import DELETED
from holdfast.store.store import Store

# ---- rules --------------------------------------------------------------------------------------
# Rules of retention: which checkpoints go, and what keeps them nevertheless.


@dataclass(frozen=True)
class RetentionRule:
    """When a checkpoint may go: it is over a limit, and nothing below keeps it.

    Several limits: `match="any"` takes one that is over any of them, `"all"` only one that is over
    all that are given. Without a limit nothing goes. Counts are of checkpoints of one timeline that
    share the rule: a type (with a trigger that has a rule of its own or not), or a policy.
    """

    max_age: timedelta | None = None
    max_count: int | None = None
    match: str = "any"
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
        for name, least in (("max_count", 0), ("min_count", 0)):
            value = getattr(self, name)
            if value is not None and (type(value) is not int or value < least):
                raise InvalidInputError(f"{name} is a whole number of {least} or more")
        if self.match not in ("any", "all"):
            raise InvalidInputError("match is 'any' or 'all' of the limits")
        if self.min_importance is not None and self.min_importance not in PRIORITIES:
            raise InvalidInputError(f"min_importance is one of {', '.join(PRIORITIES)}")

    def over(self, number: int, age: timedelta | None) -> str:
        """Why one may go, that is the `number`-th newest: "", `count`, `age` or `count and age`.

        Without an age the clock cannot be trusted, and none counts as over.
        """
        limits: dict[str, bool] = {}
        if self.max_count is not None:
            limits["count"] = number >= self.max_count
        if self.max_age is not None:
            limits["age"] = age is not None and age > self.max_age
        if not limits or (self.match == "all" and not all(limits.values())):
            return ""
        return " and ".join(name for name, over in limits.items() if over)


DEFAULTS: Mapping[str, RetentionRule] = {
    "routine": RetentionRule(max_count=3),
    "recovery": RetentionRule(max_age=timedelta(days=7)),
    "pre_operation": RetentionRule(until_released=True),
    "post_operation": RetentionRule(until_released=True),  # when what it releases is gone
    "automatic:shutdown": RetentionRule(max_count=5),
}
"""By type; one with a trigger stands behind a colon. All other types stay, unless a checkpoint says
otherwise in its metadata (`retention`), as those of policies do."""


def rules_of(given: Mapping[str, RetentionRule] | None) -> dict[str, RetentionRule]:
    """The rules of all types: the default ones, and those given in their place."""
    found = dict(DEFAULTS)
    if given is None:
        return found
    for name, rule in given.items() if isinstance(given, Mapping) else [(given, given)]:
        if str(name).partition(":")[0] not in TYPES or not isinstance(rule, RetentionRule):
            raise InvalidInputError(
                "rules are holdfast.checkpoints.RetentionRule(...) by the type of checkpoints, "
                f"which is {', '.join(TYPES)}; a trigger may stand behind it: automatic:shutdown"
            )
        found[name] = rule
    return found


Group = tuple[str, ...]
"""What checkpoints that are counted together have in common."""


class RuleBook:
    """The rules of a scope's checkpoints: by type, and what each one says itself.

    What a checkpoint says (its metadata, or the policy that made it, as that is now) takes the
    place of a default rule. Beside a rule that was given for its type both are in force: it goes if
    either lets it go and neither keeps it.
    """

    def __init__(
        self, given: Mapping[str, RetentionRule] | None, policies: Mapping[str, Mapping[str, Any]]
    ) -> None:
        self._given = given or {}
        self._rules = rules_of(given)
        self._policies = policies
        """What policies say of their checkpoints, by their ids."""

    def of(self, one: Checkpoint) -> list[tuple[RetentionRule, Group]]:
        """The rules in force for a checkpoint, and with which others each counts it."""
        trigger = str(one.metadata.get("trigger", ""))
        name = f"{one.type}:{trigger}"
        if name not in self._rules:
            name = one.type
        policy = policy_of(one)
        own = _own(self._policies.get(policy, one.metadata.get("retention")))
        if own is None:
            return [(self._rules.get(name, RetentionRule()), (name,))]
        # Those of a policy are counted together, of whatever type they were when it made them.
        group = ("policy", policy) if policy else ("own", name, repr(own))
        found: list[tuple[RetentionRule, Group]] = [(own, group)]
        return [*found, (self._rules[name], (name,))] if name in self._given else found


def _own(said: Any) -> RetentionRule | None:
    """What a checkpoint says itself; what cannot be used is no reason to remove it."""
    if not isinstance(said, Mapping):
        return None
    try:
        return RetentionRule(
            _age(said.get("max_age")),
            said.get("max_count"),
            min_count=said.get("min_count", 0),
        )
    except (InvalidInputError, TypeError, ValueError):
        return RetentionRule()


def _age(seconds: Any) -> timedelta | None:
    try:
        return timedelta(seconds=seconds) if seconds is not None else None
    except OverflowError:
        return None  # longer than anything lasts: by its age it never goes


def importance(one: Checkpoint) -> int:
    """The rank of a checkpoint's priority."""
    said = one.metadata.get("priority", "medium")
    return PRIORITIES.index(said) if said in PRIORITIES else 1


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
        stage.add(main.core.prepared(stage.ledger, target), body)

    target.special = special


# ---- needs --------------------------------------------------------------------------------------
# What of a timeline is in use: no rule removes it.


@dataclass(frozen=True, slots=True)
class Judged:
    """A checkpoint, and what becomes of it."""

    checkpoint: Checkpoint
    stays: bool
    why: str


class Needs:
    """The checkpoints of a timeline that are in use, and why."""

    def __init__(self, line: LineHandle) -> None:
        self._line = line
        now = line.history.points.line()  # what begins after this is behind it
        self._floor, self._before = now.floor, now.ledger.before
        self._found: dict[int, Need] = {}
        self.begun = now.sequence
        """Behind this entry nothing is pruned: undoing an operation takes all that it wrote, and
        undoing a recovery what others wrote meanwhile."""
        self.entries: set[int] = set()
        """What others rest on and no checkpoint was found at, of those that were asked about."""
        for need in needs(line, RETENTION):
            self._found.setdefault(need.at, need)
            if need.reason == "dependency":
                self.entries.add(need.at)
            if REASONS[need.reason].onward:
                self.begun = min(self.begun, need.at)

    def why(self, one: Checkpoint) -> str:
        """Why a checkpoint stays whatever the rules say; empty if it need not."""
        self.entries.discard(one.sequence)
        if need := self._found.get(one.sequence):
            return need.text
        return REASONS["since"].text if one.sequence >= self.begun else ""

    def released(self, one: Checkpoint) -> Iterator[str]:
        """Ids that a checkpoint lets go: what it releases, and itself once all of that is gone."""
        ids = list(map(str, said(one.metadata, "releases", [])))
        yield from ids
        if ids and one.type == "post_operation" and not any(map(self._there, ids)):
            yield one.id

    def _there(self, id_: str) -> bool:
        timeline, _, number = id_.rpartition("@")
        if timeline != self._line.timeline or not number.isdecimal():
            return True  # nobody here can tell
        return self._floor.holds(int(number), self._before)


class Together:
    """Keeps the members of a group while any other one stays: they are restored together.

    `staying` gives the checkpoints of a scope that stay by themselves. So members whose rules all
    let them go do go, one scope after the other. Where damage leaves open what stays of another
    scope, the members here stay, and all else of this one goes by its rules.
    """

    def __init__(self, handle: StoreHandle, staying: Callable[[str], Iterable[Checkpoint]]) -> None:
        self._handle = handle
        self._staying = staying
        self._known: dict[str, set[str] | None] = {}
        """Of each scope, the groups of which a member stays by itself; None: nobody can tell."""

    def judged(self, one: Judged) -> Judged:
        """What becomes of a checkpoint, its group considered."""
        group = said(one.checkpoint.metadata, "group", "")
        if one.stays or not group:
            return one
        for scope, _, _ in made_with(self._handle, one.checkpoint):
            if scope == DELETED:
                continue
            if scope not in self._known:
                self._known[scope] = self._groups(scope)
            known = self._known[scope]
            if known is None:
                why = f"{scope} is damaged, so nobody can tell whether it keeps one of its group"
                return Judged(one.checkpoint, True, why)
            if group in known:
                return Judged(one.checkpoint, True, f"{scope} keeps another one of its group")
        return one

    def _groups(self, scope: str) -> set[str] | None:
        try:
            return {said(other.metadata, "group", "") for other in self._staying(scope)}
        except StateIntegrityError:  # then what may be needed stays
            return None


# ---- retention ----------------------------------------------------------------------------------


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


@faced
class Retention:
    """The retention of a store's checkpoints and of its past.

    `rules` take the place of the default ones, by type: `{"manual": RetentionRule(max_count=10)}`.
    """

    def __init__(self, store: Store, *, rules: Mapping[str, RetentionRule] | None = None) -> None:
        if not isinstance(store, Store):
            raise InvalidInputError("Retention takes an open store")
        self._handle = handle_of(store)
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
        lines, tallies = [], []
        together = Together(self._handle, self._staying)
        for line in found:
            with suppress(TimelineNotFoundError):  # ended meanwhile
                tally = Tally(line.timeline)
                needs = Needs(line)
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
        for line in found:
            with suppress(TimelineNotFoundError):  # ended meanwhile
                for one in self._judged(main, line, Needs(line), trusted):
                    if one.stays:
                        yield one.checkpoint

    @writes
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

    def _forget(self, plan: RetentionPlan) -> None:
        """Take back that checkpoints were cleared which are gone now."""
        stay = {one.checkpoint.id for line in plan.lines for one in line.judged if one.stays}
        cleared = self._cleared(plan.scope)
        if over := sorted(cleared.keys() - stay):
            gone = [Operation("delete", cleared[id_]) for id_ in over]
            self._write(self._line(plan.scope), gone)

    def _mark(self, kind: str, checkpoint: Checkpoint, reason: str) -> None:
        """Mark a checkpoint; refused if it is gone by the time of the commit."""
        # No book: a mark is a text, not a mapping, and its change stands on the checkpoint's entry.
        main = self._main(checkpoint)
        check_text(reason, "the reason", 1000)
        main.history.points.find(checkpoint)
        key = mark_key(main, kind, checkpoint.id)
        beside_pruning(lambda: self._write(main, [Operation("set", key, reason)], checkpoint))

    def _unmark(self, kind: str, checkpoint: Checkpoint) -> bool:
        main = self._main(checkpoint)
        main.history.points.find(checkpoint)
        key = mark_key(main, kind, checkpoint.id)
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

    def _main(self, checkpoint: Checkpoint) -> LineHandle:
        if not isinstance(checkpoint, Checkpoint):
            raise InvalidInputError(
                "give a checkpoint, as checkpoint() and checkpoints() return it"
            )
        return self._handle.line(checkpoint.scope)


def _said(main: LineHandle) -> dict[str, dict[str, float]]:
    """What an agent's own policies say of their checkpoints now, by their ids."""
    if main.scope.kind != "agent":
        return {}
    return {id_: policy.retention.kept() for id_, policy in stored_policies(main).items()}


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
    rules: list[tuple[RetentionRule, int]],
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
    of = next((f" ({tag})" for tag in one.tags if tag.startswith("policy:")), "")
    return Judged(one, not over, f"over its {over}" if over else f"within its rule{of}")


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


# ---- entry ages ---------------------------------------------------------------------------------
# How old entries are, by time that somebody saw pass.
#
# A wall clock can be wrong by years when a process starts, and nothing in that process would tell.
# So an age is the sum of what lies between neighbouring entries, up to now, and of that only counts
# what is at most a day, or what one process has seen pass on its monotonic clock. Whatever else a
# clock says was seen by nobody: things stay longer by it, and never go earlier.


DAY = timedelta(days=1)
_DAY = DAY // timedelta(microseconds=1)


class Ages:
    """Ages of the entries of one timeline, asked for newest first.

    It reads a few entries for each day that has passed, not all of them. Of pruned history only
    kept states tell when they were.
    """

    def __init__(self, line: LineHandle, now: datetime) -> None:
        self._now = now
        self._points = line.history.points
        self._line = self._points.line()
        floor = self._line.floor
        self._first = max(floor.sequence, self._line.ledger.before)
        self._kept = sorted(at for at in floor.bases if at <= self._first)
        self._read: dict[int, tuple[int, bytes, int] | None] = {}
        self._at = self._index(self._line.sequence)
        newest = self._moment(self._at)
        since = microseconds(now) - newest[0] if newest is not None else 0
        self._age = since if abs(since) <= _DAY else 0

    def of(self, sequence: int) -> timedelta:
        """The age of an entry that is not newer than the one asked for before."""
        at = self._index(sequence)
        self._age += self._between(at, self._at)
        self._at = at
        self._read = {at: self._read[at]} if at in self._read else {}
        return timedelta(microseconds=self._age)

    def newest_over(self, age: timedelta) -> int:
        """The newest entry that is over an age; 0 if none is."""
        time = microseconds(self._now - age)
        with suppress(PointNotFoundError):  # all of it is younger
            while True:
                found = self._points.at_time(time)
                missing = age - self.of(found)
                moment = self._moment(self._at)
                if missing <= timedelta(0) or moment is None:
                    return found if missing <= timedelta(0) else 0
                time = moment[0] - missing // timedelta(microseconds=1)
        return 0

    def _index(self, sequence: int) -> int:
        """The place of an entry among those that can be read."""
        if sequence <= self._first:
            return bisect_left(self._kept, sequence)
        return len(self._kept) + sequence - self._first - 1

    def _sequence(self, at: int) -> int:
        """The entry at a place."""
        kept = len(self._kept)
        return self._kept[at] if at < kept else self._first + 1 + at - kept

    def _between(self, low: int, high: int) -> int:
        """Microseconds that were seen to pass from one to the other."""
        before, after = self._moment(low), self._moment(high)
        if low >= high or before is None or after is None:
            return 0
        passed = after[0] - before[0]
        if abs(passed) <= _DAY:
            return passed
        if high - low == 1:
            if self._sequence(high) - self._sequence(low) > 1:
                return 0  # a step may have been noted in what is pruned between them
            return passed if before[1] == after[1] and not after[2] else 0
        middle = (low + high) // 2
        return self._between(low, middle) + self._between(middle, high)

    def _moment(self, at: int) -> tuple[int, bytes, int] | None:
        """Time, writer and the step of its clock; None if the entry cannot be read."""
        if at not in self._read:
            key = rowkinds.entry(self._line.prefix, self._sequence(at))
            row = self._line.ledger.storage.get([key])[0]
            try:
                envelope, body = self._line.ledger.open_entry(key, row or b"")
                self._read[at] = (body.time, envelope.writer, body.step)
            except (PrunedError, StateIntegrityError):
                # what cannot be read tells no time: things stay longer
                self._read[at] = None
        return self._read[at]
