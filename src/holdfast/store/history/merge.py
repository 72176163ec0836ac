"""Bringing what another timeline has become into this one.

The two have a newest common past. A key that only the other timeline changed since is taken over;
one that both changed is merged part by part; see `merge_values`. Only keys that the other timeline
changed are looked at, found by comparing trees. All of it becomes one entry, which names the entry
that was merged: from then on that is common past, so that merging again brings only what is new.

What was looked at is expected: if somebody changes one of these keys, or restores or merges, before
the entry is durable, it is looked at again. Sides are called ours (this timeline, which gets the
entry) and theirs (the other one, which stays as it is).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from holdfast.errors import (
    Conflict,
    InvalidInputError,
    LimitExceededError,
    MergeConflictError,
    PrunedError,
)
from holdfast.storage.rows import ATTEMPTS
from holdfast.store.history.checkpoint import History
from holdfast.store.history.diff import expiry_changes, redacted_diff
from holdfast.store.history.handle import LineHandle
from holdfast.store.history.merge_values import Decide, Steps, merge_meta, merge_values, meta_along
from holdfast.store.history.restore import is_further, seen_change
from holdfast.store.journal.declared import PREFIX
from holdfast.store.journal.entry import Body
from holdfast.store.journal.ledger import Ledger
from holdfast.store.journal.lifetime import KEEP, Meta, terms_of
from holdfast.store.journal.slot import Slot, meta_of, ref_of, said_of
from holdfast.store.journal.timeline import Timeline
from holdfast.store.names.arguments import check_flag, check_plain_function, check_timeline
from holdfast.store.names.cause import cause_now
from holdfast.store.names.items import MASK, Entry
from holdfast.store.names.scope import Scope
from holdfast.store.read.reader import Reader, rules_of
from holdfast.store.rules.classes import sensitive
from holdfast.store.rules.ephemeral import ephemeral_prefixes
from holdfast.store.rules.gates import Operation
from holdfast.store.rules.lookup import derived
from holdfast.store.rules.owned import TABLE, Owned
from holdfast.store.rules.sticky import sticky_prefixes
from holdfast.store.rules.subjects import Shown, opened_changes, shown
from holdfast.store.tree.difference import (
    DELETED,
    Diff,
    contrast,
    differing,
    masked_changes,
    same,
    tree_changes,
)


@dataclass(frozen=True, slots=True)
class MergeConflict:
    """One thing that both timelines changed in different ways.

    Values are as `get(…, plain=True)` gives them; `DELETED` stands where there is none, `ERASED`
    for what was sealed for a subject that is erased. Those of class sensitive are masked; a
    function that decides has them in the attributes, and `repr` and `str` do not show them.
    """

    key: str
    path: str
    """The key, then the way into the value: `plan.steps[3].done`."""
    base: Any
    """What it was when both had it in common; `DELETED` also if that cannot be said."""
    ours: Any
    theirs: Any
    our_entry: Entry | None
    """The entry that wrote the key on our side: its time, its cause. None if there is none: the key
    is not there; `log(key=…)` tells what removed it."""
    their_entry: Entry | None
    sensitive: bool = False
    """Whether the key is of class sensitive."""

    def masked(self) -> MergeConflict:
        """The same without values, or where in them it is: for keys of class sensitive."""
        names = ("base", "ours", "theirs")
        hidden: dict[str, Any] = {
            name: MASK for name in names if getattr(self, name) is not DELETED
        }
        return replace(self, path=self.key, **hidden)

    def __repr__(self) -> str:
        one = self.masked() if self.sensitive else self
        named = ((name, getattr(one, name)) for name in self.__slots__)
        return f"MergeConflict({', '.join(f'{name}={value!r}' for name, value in named)})"

    def __str__(self) -> str:
        one = self.masked() if self.sensitive else self
        base, ours, theirs = contrast(one.base, one.ours, one.theirs)
        return (
            f"{one.path}: was {base}\n"
            f"  ours: {ours}{_told(one.our_entry)}\n"
            f"  theirs: {theirs}{_told(one.their_entry)}"
        )


def _told(entry: Entry | None) -> str:
    if entry is None:
        return ""
    who = f" by {entry.cause.actor}" if entry.cause.actor else ""
    when = entry.time.isoformat(" ", "seconds")
    return f"  ({entry.timeline}@{entry.sequence}{who}, {when})"


# ---- merge --------------------------------------------------------------------------------------


STRATEGIES = ("ask", "ours", "theirs")
Strategy = str | Callable[[MergeConflict], Any]


@dataclass(frozen=True, slots=True)
class Merged:
    """What a merge did, or would do."""

    scope: Scope
    timeline: str
    point: str
    """What was merged, TIMELINE@SEQUENCE."""
    base: tuple[str, ...]
    """The newest common past; more than one if the two were merged crosswise before."""
    keys: list[str]
    """Keys that were written."""
    conflicts: list[MergeConflict]
    """What both had changed in different ways, and the strategy decided."""
    entry: int | None
    """The entry that it became; None if there was nothing to merge, or of a dry run."""
    dry_run: bool = False
    diff: Any = None
    """Of a dry run: what would change. Where nobody has decided, nothing."""
    left: tuple[str, ...] = ()
    """Sticky and ephemeral keys that the other timeline has changed, which were left alone."""

    def __str__(self) -> str:
        if self.entry is None and not self.dry_run:
            head = f"{self.scope}: nothing of {self.point} is new to {self.timeline}"
        else:
            keys = f"{len(self.keys)} keys" if len(self.keys) != 1 else "1 key"
            into = f"{self.timeline}@{self.entry}" if self.entry is not None else self.timeline
            done = "would change by" if self.dry_run else "changed by"
            head = f"{self.scope}: {keys} {done} merging {self.point} into {into}"
        return "\n".join([head, *(f"  {key}" for key in self.keys), *map(str, self.conflicts)])


def merge_state(
    handle: LineHandle,
    other: Any,
    *,
    strategy: Strategy,
    dry_run: bool,
    reason: str | None,
) -> Merged:
    """Look and commit until nobody was faster in between."""
    check_flag(dry_run, "dry_run")
    if strategy not in STRATEGIES:
        if not callable(strategy):
            raise InvalidInputError(f"strategy is {', '.join(STRATEGIES)} or a function")
        check_plain_function(strategy, "a strategy")
    points = handle.history.points
    if isinstance(other, str) and "@" not in other:
        check_timeline(other)
        point = other, points.line(other).sequence  # of a timeline, the newest entry
    else:
        point = points.find(other)
    if not dry_run:
        handle.ask("merge", f"{point[0]}@{point[1]}")
    for attempt in range(1, ATTEMPTS + 1):
        merging = handle.reader.past_damage(partial(Merging, handle, point, strategy))
        if dry_run or not merging.changed:
            return merging.result(None, dry_run=dry_run)
        if strategy == "ask" and merging.conflicts:
            paths = [conflict.path for conflict in merging.conflicts]
            shown = ", ".join(paths[:5]) + (f" and {len(paths) - 5} more" if paths[5:] else "")
            raise MergeConflictError(
                f"{handle.scope}: {merging.label} and {handle.timeline} have both changed {shown}; "
                "nothing was merged. Give a strategy: ours, theirs or a function",
                merging.conflicts,
            )
        try:
            return merging.result(_commit(merging, reason, attempt))
        except Conflict:  # what was looked at has changed: looked at again
            if attempt == ATTEMPTS:
                raise
    raise AssertionError


def _commit(merging: Merging, reason: str | None, attempt: int) -> int:
    cause = cause_now(reason=reason if reason is not None else f"merge of {merging.label}")
    # Its hash binds the history that this one rests on.
    their_hash = bytes.fromhex(merging.entry(merging.theirs).hash)
    try:
        change = seen_change([merging], cause, attempt)
        operation = ("merge", "", merging.theirs, their_hash, merging.rests)
        change.targets[0].ops.insert(0, operation)
        return merging.handle.core.run(change)[0].sequence
    except LimitExceededError as error:
        raise LimitExceededError(
            f"{error}. What differs between two timelines is merged as one entry: `adopt` takes "
            "over another timeline whole, whatever its size"
        ) from None


class Merging:
    """What it takes to merge a point of another timeline, seen from the newest entry of this."""

    def __init__(
        self, handle: LineHandle, point: tuple[str, int], strategy: Strategy, saves: bool
    ) -> None:
        self.handle = handle
        self.strategy = strategy
        self.label = f"{point[0]}@{point[1]}"
        self.points = handle.history.points
        self.line = self.points.line()
        self.ledger = self.line.ledger
        self.ancestry = Ancestry(self.ledger)
        with self.line.lock:
            self.head = self.line.sequence
            self.rests = (self.ledger.number, self.line.origin, self.line.merged)
            self.ours = self.ancestry.know(self.line)
        other = self.points.line(point[0])
        with other.lock:
            self.ancestry.know(other)
        self.theirs: Point = (other.number, point[1])
        self.bases = self.ancestry.common(self.ours, self.theirs)
        self.saves = saves
        self.changed: dict[str, tuple[list[Slot | None], Slot | None]] = {}
        self.conflicts: list[MergeConflict] = []
        self.operations: list[Operation] = []
        self.expects: dict[str, int] = {}
        self.left: list[str] = []
        self.diff = Diff(f"{self.handle.timeline}@{self.head}", "merged")
        self.time = self.handle.core.clock.checked()
        self._settle()

    # deciding

    def _settle(self) -> None:
        """Decide for each key."""
        self.changed = self._changed()
        for key, (bases, theirs) in self.changed.items():
            if self._follows(key):
                continue
            ours = self._settled(self.line, key)
            self.expects[key] = self.line.version(ours)
            self._merge_key(key, bases, ours, theirs)
        for operation in list(self.operations):
            beside = TABLE.index.along(operation.key)
            if beside is not None and (beside not in self.changed or self._follows(beside)):
                # It comes from where the key does, as if only theirs had changed it.
                ours = self._settled(self.line, beside)
                self.expects[beside] = self.line.version(ours)
                theirs = self._settled(self._view(self.theirs), beside)
                self._merge_key(beside, [ours], ours, theirs)

    def _follows(self, key: str) -> bool:
        """Whether a key comes from the side that another one is taken from as it is."""
        first = TABLE.index.leader(key)
        return first in self.changed and _whole(first)

    def _changed(self) -> dict[str, tuple[list[Slot | None], Slot | None]]:
        """Keys that theirs has changed since any of the bases: what each was there, and is."""
        if self.theirs in self.bases:
            return {}
        bases = [self._view(base) for base in self.bases]
        now = self._view(self.theirs)
        there = Reader(self.handle.core, self.handle.scope, self._name(self.theirs[0]), now)
        self.their_rules = rules_of((there, now))
        self.rules = list(dict.fromkeys([self.line.declared, *self.their_rules]))
        keys: set[str] = set()
        for was in bases:
            keys |= differing(was.overlay, now.overlay) | differing(was.stored, now.stored)
            differ = tree_changes(self.ledger.trees, was.root(), now.root())
            keys.update(key for key, _, _ in differ)
        found: dict[str, tuple[list[Slot | None], Slot | None]] = {}
        alone = sticky_prefixes(self.line.declared) + ephemeral_prefixes(self.line.declared)
        for key in sorted(keys):
            if derived(key):
                continue  # the terms of what is merged follow from it
            before = [self._settled(was, key) for was in bases]
            after = self._settled(now, key)
            if all(said_of(slot) == said_of(after) for slot in before):
                continue
            rule = TABLE.index.rule(key)
            if rule is not None and rule.merge == Owned.UNION:
                comes = self._joins(rule, key, before, after)
            else:
                comes = not key.startswith(alone)
            if comes:
                found[key] = (before, after)
            elif not key.startswith(PREFIX):
                self.left.append(key)
        return found

    def _joins(
        self, rule: Owned, key: str, before: Sequence[Slot | None], after: Slot | None
    ) -> bool:
        """Whether a record comes from the other side: one that is not known here.

        And that one has left a phase, which it does but the last, if it stands as it was here.
        """
        ours = self._settled(self.line, key)
        if after is None:
            last = rule.phase(key) == len(rule.phases) - 1
            same = all(said_of(slot) == said_of(ours) for slot in before)
            return not last and ours is not None and same
        if ours is not None or any(slot is not None for slot in before):
            return False
        return not is_further(lambda one: self._settled(self.line, one), rule, key)

    def _view(self, point: Point) -> Timeline:
        if self.saves:
            return self.points.view(self._name(point[0]), point[1])
        return Timeline(self.ledger, point[0]).load(point[1], saves=False)

    def _merge_key(
        self, key: str, bases: list[Slot | None], ours: Slot | None, theirs: Slot | None
    ) -> None:
        refs, mine = [ref_of(slot) for slot in bases], ref_of(ours)
        if said_of(ours) == said_of(theirs):
            return
        here, there = self._value(key, ours), self._value(key, theirs)
        decide = self._decider(key, [ours, theirs, *bases])
        if mine == ref_of(theirs):
            value = here
        elif set(refs) == {mine}:
            value = there
        elif len(set(refs)) > 1:
            # Merged crosswise, and then not alike: nothing says which of them it was before.
            value = decide(key, (), DELETED, here, there)
        elif _whole(key):
            value = decide(key, (), self._value(key, bases[0]), here, there)
        else:
            value = merge_values(key, self._value(key, bases[0]), here, there, decide)
        masked, declared = sensitive(key, [ours, theirs], self.rules), self.line.declared
        along = meta_along(key, meta_of(theirs), self.their_rules, declared)
        if value is here and mine != ref_of(theirs):
            meta = meta_of(ours)
        elif value is there and mine != ref_of(theirs):
            meta = along
        else:
            meta = merge_meta(key, [meta_of(one) for one in bases], meta_of(ours), along, declared)
            if mine != ref_of(theirs):  # made of both: by no schema was it checked
                meta = meta._replace(schema=0)
        self._write(key, here, value, meta_of(ours), meta, masked)

    def _write(
        self, key: str, before: Any, after: Any, old: Meta, meta: Meta, masked: bool
    ) -> None:
        """Note that a key becomes a value, with the expiry and class that come with it."""
        stays = before is not DELETED and meta in (old, old._replace(schema=0))
        terms = KEEP if stays else terms_of(meta)
        known = len(before) if type(before) is list else 0
        if same(before, after):
            if after is DELETED or stays:
                return
            # Its class is part of what it is; how long it lasts is not.
            kind = "expire" if meta.class_ == old.class_ else "set"
            self.operations.append(Operation(kind, key, after if kind == "set" else None, terms))
        elif after is DELETED:
            self.operations.append(Operation("delete", key))
        elif stays and known and type(after) is list and same(before, after[:known]):
            self.operations.append(Operation("append", key, after[known:]))
        else:
            self.operations.append(Operation("set", key, after, terms))
        if masked:
            masked_changes(key, before, after, self.diff)
        else:
            opened_changes(self.handle.core.subjects, key, before, after, self.diff)
        if before is not DELETED and after is not DELETED:
            expiry_changes(key, old, meta, self.diff)

    # conflicts

    def _decider(self, key: str, slots: list[Slot | None]) -> Decide:
        """`slots` are ours, theirs and those of the bases."""
        masked = sensitive(key, slots, self.rules)

        def decide(path: str, steps: Steps, base: Any, here: Any, there: Any) -> Any:
            mine, other = [
                self.entry((slot.timeline, slot.sequence)) if slot is not None else None
                for slot in slots[:2]
            ]
            was, *sides = [shown(self.handle.core.subjects, value) for value in (base, here, there)]
            ours, theirs = (side.value for side in sides)
            conflict = MergeConflict(key, path, was.value, ours, theirs, mine, other, masked)
            # A function decides by the values themselves; people are shown what they may see.
            told, hide = conflict.masked() if masked else conflict, self.handle.core.redact
            if hide is not None and not masked:  # `Protection`
                names = ("base", "ours", "theirs")
                told = replace(told, **{one: hide(getattr(told, one), steps) for one in names})
            self.conflicts.append(told)
            if masked and callable(self.strategy):
                found = [(key, slot) for slot in slots if slot is not None]
                self.handle.reader.told(self.line, found, self.rules)
            if callable(self.strategy):
                decided = self.strategy(conflict)
                return _as_stored(self.handle.scope, key, decided, sides, was)
            return sides[self.strategy == "theirs"].stored

        return decide

    def entry(self, point: Point) -> Entry:
        """An entry for people."""
        history = History(self.handle.core, self.handle.scope, self._name(point[0]))
        return history.entry(*self.ledger.entry_at(*point))

    def _name(self, timeline: int) -> str:
        return self.handle.core.numbers.timeline(self.ledger, timeline) or "?"

    # what comes of it

    def result(self, entry: int | None, *, dry_run: bool = False) -> Merged:
        """What there is to say, once it is known which entry it became."""
        return Merged(
            self.handle.scope,
            self.handle.timeline,
            self.label,
            tuple(f"{self._name(timeline)}@{number}" for timeline, number in self.bases),
            sorted(operation.key for operation in self.operations),
            self.conflicts,
            entry,
            dry_run,
            redacted_diff(self.handle.core.redact, self.diff) if dry_run else None,
            tuple(self.left),
        )

    def _settled(self, line: Timeline, key: str) -> Slot | None:
        """What is known of a key; one that has expired by now counts as absent on every side."""
        slot = line.slot(key)
        return line.settled(slot) if slot is not None and not slot.over(self.time) else None

    def _value(self, key: str, slot: Slot | None) -> Any:
        """A value in plain form: what is written again is exactly what was stored."""
        if slot is None:
            return DELETED
        try:
            return self.ledger.value(slot.ref, slot.location, self.ledger.codec.plain_reader)
        except LimitExceededError:
            raise LimitExceededError(
                f"{self.handle.scope}: the value of {key!r} is too long to be merged, and nothing "
                "was; `adopt` takes over another timeline whole"
            ) from None


def _whole(key: str) -> bool:
    """Whether a key, and what comes along with it, is taken from one of the two sides as it is."""
    rule = TABLE.index.rule(key)
    return rule is not None and rule.merge == Owned.WHOLE


def _as_stored(scope: Scope, key: str, decided: Any, sides: Sequence[Shown], base: Shown) -> Any:
    """What to write, in plain form, for what a function has decided on seeing these values.

    Nothing that was sealed for a subject on a side becomes open by a decision: then, and of what is
    taken whole, it is one of the values, as that is stored.
    """
    values = list(sides) if _whole(key) else [*sides, base]
    if not _whole(key) and (decided is DELETED or not any(one.ids for one in values)):
        return decided
    # Where an open and a sealed one look alike, the sealed one is meant.
    for one in sorted(values, key=lambda one: not one.ids):
        if same(decided, one.value):
            return one.stored
    raise InvalidInputError(
        f"{scope}: what the function returned for {key!r} is of neither side: its owner wants it "
        "from one of them as it is, or it is sealed for a subject; nothing was merged. Return "
        "conflict.ours or conflict.theirs, and set the key afterwards"
    )


# ---- ancestry -----------------------------------------------------------------------------------
# Where two states of a scope have their last common past.
#
# A state comes from the one before it; after a restore or a fork from the one that it names, and
# after a merge from both. So the past of a state is made of chains: entries of a timeline since a
# restore or fork. What an agent did before it was restored is no past of the state that it has now.
#
# Chains are followed from the newest entry back, and only as far as the two sides differ. Merges
# and origins are found by the numbers that an index save and a merge keep, not by reading entries.


Point = tuple[int, int]
"""Number of the timeline, and entry."""
_Chain = tuple[int, int]
"""Number of the timeline, and the restore or fork that the chain begins with (0: its start)."""


class Ancestry:
    """The past of some states of one scope, read as far as it is asked for."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._known: dict[int, list[tuple[int, int, int]]] = {}
        """For timelines: an entry, the restore or fork before it, the newest merge since that."""
        self._bodies: dict[Point, Body] = {}

    def know(self, line: Timeline) -> Point:
        """Take note of a timeline as it is in memory; the point where it stands.

        One whose newest state cannot be read does not know where it comes from.
        """
        if line.stranded is None:
            known = self._known.setdefault(line.number, [])
            known.append((line.sequence, line.origin, line.merged))
        return self._normal((line.number, line.sequence))

    def origin(self, point: Point) -> int:
        """The newest restore or fork of a timeline, as seen from a point; 0 if there is none."""
        return self.at(self._normal(point))[0]

    def common(self, ours: Point, theirs: Point) -> list[Point]:
        """The newest points that both have come by: one, unless they were merged crosswise.

        There is always one, if only the empty state that all timelines of a scope begin with.
        """
        search = _Search(self, self._normal(ours), self._normal(theirs))
        found = search.run()
        return sorted(
            point
            for point in found
            if not any(other != point and self.includes(other, point) for other in found)
        )

    def includes(self, point: Point, older: Point) -> bool:
        """Whether a state has another one in its past, or is it."""
        older = self._normal(older)
        wanted = (older[0], self.at(older)[0])
        waiting, seen = [self._normal(point)], set()
        while waiting:
            point = waiting.pop()
            if point in seen:
                continue
            seen.add(point)
            origin, merged = self.at(point)
            if (point[0], origin) == wanted and point[1] >= older[1]:
                return True
            waiting += [parent for _, parent in self.parents(point[0], origin, merged)]
        return False

    def parents(self, timeline: int, origin: int, merged: int) -> Iterator[tuple[int, Point]]:
        """(entry, where it leads to) for what a chain has from elsewhere, up to a merge."""
        while merged:
            op = self._body((timeline, merged)).ops[0]
            yield merged, self._normal((op[1], op[2]))
            merged = op[4]
        if origin:
            op = self._body((timeline, origin)).ops[0]
            yield origin, self._normal((op[1], op[2]))

    def at(self, point: Point) -> tuple[int, int]:
        """The newest restore or fork before a point, and the newest merge since that."""
        if point[1] <= self._ledger.before:
            return 0, 0
        timeline, sequence = point
        for high, origin, merged in self._known.get(timeline, ()):
            if origin <= sequence <= high:
                while merged > sequence:
                    merged = self._body((timeline, merged)).ops[0][4]
                return origin, merged
        self.know(Timeline(self._ledger, timeline).load(sequence))
        return self.at(point)

    def _normal(self, point: Point) -> Point:
        """The point; of all timelines' beginnings, which are one empty state, that of `main`."""
        return point if point[1] > self._ledger.before else (0, self._ledger.before)

    def _body(self, point: Point) -> Body:
        found = self._bodies.get(point)
        if found is None:
            *_, found = self._ledger.entry_at(*point)
            self._bodies[point] = found
        return found


@dataclass
class _Way:
    """A way back from a point that one side has come by."""

    side: int
    point: Point
    chain: _Chain
    known: int
    """How far the side has gone along the chain before: what is older was followed then."""
    parents: Iterator[tuple[int, Point]]
    first: bool
    """Whether it is the side's own line, and no branch that was merged into it."""


class _Search:
    """Looks for what two points have in common, both at once, the newest of each chain first."""

    def __init__(self, ancestry: Ancestry, ours: Point, theirs: Point) -> None:
        self.ancestry = ancestry
        self.reached: dict[_Chain, list[int]] = {}
        """How far up each side has come by a chain; -1 if not at all."""
        self.led: dict[_Chain, list[tuple[int, Point]]] = {}
        self.chains: dict[Point, _Chain] = {}
        self.shared: set[Point] = set()
        """Older than something that both have: nothing new can be found from there."""
        self.cut: dict[Point, PrunedError] = {}
        """Where the way back ends: that matters unless it is known to be older than something
        that both have."""
        self.waiting: deque[_Way] = deque()
        for side, point in enumerate((ours, theirs)):
            self._go(side, point, first=True)

    def run(self) -> list[Point]:
        """Points that both have; some may be older than others."""
        while self.waiting and not self._over(0) and not self._over(1):
            self._step(self.waiting.popleft())
        for point, error in self.cut.items():
            if point not in self.shared:
                raise error
        both = [(chain[0], min(marks)) for chain, marks in self.reached.items()]
        return [point for point in both if point[1] >= 0]

    def _over(self, side: int) -> bool:
        """Whether nothing that a side has still to follow can matter.

        The other side has followed all its ways, and all that it came by continues something that
        both have. What is left is the first side's line before the merges that led there. None of
        it can have come by anything newer: a timeline that has a point is not merged with it again.
        """
        marks = self.reached.values()
        return all(way.first and way.side == side for way in self.waiting) and all(
            min(pair) >= 0 for pair in marks if pair[1 - side] >= 0
        )

    def _go(self, side: int, point: Point, *, first: bool) -> None:
        origin, merged = self.ancestry.at(point)
        chain = self.chains[point] = (point[0], origin)
        marks = self.reached.setdefault(chain, [-1, -1])
        before = marks[side]
        if point[1] <= before:
            return
        marks[side] = point[1]
        for at, parent in self.led.setdefault(chain, []):
            if at <= min(marks):
                self._share(parent)
        parents = self.ancestry.parents(point[0], origin, merged)
        self.waiting.append(_Way(side, point, chain, before, parents, first))

    def _step(self, way: _Way) -> None:
        at, parent = next(way.parents, (-1, way.point))
        if at <= max(way.known, min(self.reached[way.chain])) or way.point in self.shared:
            return  # followed before, or older than what both have; and so is what comes next
        self.led[way.chain].append((at, parent))
        self.waiting.append(way)
        if parent not in self.shared:
            try:
                self._go(way.side, parent, first=way.first and at == way.chain[1])
            except PrunedError as error:
                self.cut[parent] = error

    def _share(self, point: Point) -> None:
        waiting = [point]
        while waiting:
            point = waiting.pop()
            if point not in self.shared:
                self.shared.add(point)
                older = self.led.get(self.chains.get(point, (-1, -1)), [])
                waiting += [parent for at, parent in older if at <= point[1]]
