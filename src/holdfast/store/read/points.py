"""Points: naming an entry of any timeline of a scope."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any

from msgspec import structs

from holdfast.errors import (
    CheckpointNotFoundError,
    DamagedIndexError,
    DamagedRecordError,
    InvalidInputError,
    PointNotFoundError,
    PrunedError,
    ScopeNotFoundError,
    StateIntegrityError,
    TimelineNotFoundError,
)
from holdfast.storage.rows import each
from holdfast.store.commit.group import Core
from holdfast.store.journal import entry
from holdfast.store.journal.entry import Body, Envelope
from holdfast.store.journal.floor import floor_of, pruned
from holdfast.store.journal.ledger import Ledger
from holdfast.store.journal.save import BEFORE, Floor, read_save
from holdfast.store.journal.timeline import Timeline
from holdfast.store.names import rowkinds
from holdfast.store.names.arguments import check_own
from holdfast.store.names.cause import Cause
from holdfast.store.names.items import Checkpoint, Entry, Position
from holdfast.store.names.scope import Scope
from holdfast.store.read.reader import microseconds, moment
from holdfast.store.rules.lookup import derived
from holdfast.store.rules.sticky import sticky_prefixes

VIEWS = 8
"""Older states that a scope keeps in memory, for who asks for one again."""
_HASH = re.compile("[0-9a-f]{64}")


class Points:
    """Finds points of one scope, as seen from one of its timelines."""

    def __init__(self, core: Core, scope: Scope, timeline: str) -> None:
        self.core = core
        self.scope = scope
        self.timeline = timeline

    def line(self, name: str | None = None, *, past: bool = True) -> Timeline:
        """A timeline that is up to date; refused if there is none, or if who asks for its `past`
        may not read all of the scope: that is not told apart by keys.

        If its state cannot be made because entries are damaged, it can still be looked back on.
        """
        name = name or self.timeline
        try:
            if past and self.core.guard is not None:
                self.core.guard.check(self.scope)
            timeline = self.core.current(self.scope, name)
        except StateIntegrityError as error:  # only the newest state is out of reach
            timeline = self.core.stranded(self.scope, name, error)
        if timeline is None:
            raise ScopeNotFoundError(f"there is no scope {self.scope} in this store")
        return timeline

    def past_damage(self) -> Timeline:
        """The timeline, for who goes back whatever is damaged: it can only be looked back on, too,
        if what a restore takes from it can be read neither in its saved index nor from entries."""
        line = self.line()
        with suppress(DamagedIndexError):  # entries may have it all
            return _restorable(line)
        try:
            self.core.reload(self.scope, self.timeline, saves=False)
            return _restorable(self.line())
        except StateIntegrityError as error:  # they have not, or they are pruned
            return self.core.stranded(self.scope, self.timeline, error)

    def find(self, point: Any) -> tuple[str, int]:
        """(timeline, sequence) of a point.

        A point is a sequence number, a time, a checkpoint, its id (TIMELINE@SEQUENCE), its name
        or its hash, an entry, or a state or view (whose newest entry is meant).
        """
        if isinstance(point, Checkpoint | Entry):
            if point.scope != self.scope:
                raise PointNotFoundError(
                    f"that point belongs to {point.scope}, not to {self.scope}"
                )
            self._checked(point.timeline, point.sequence)
            line = self.line(point.timeline)
            key = rowkinds.entry(line.prefix, point.sequence)
            row = line.ledger.storage.get([key])[0]
            if row is None:
                raise line.ledger.damage(key, "it is missing")
            envelope, _ = entry.split_row(row)
            if line.ledger.entry_hash(key, envelope.data).hex() != point.hash:
                raise PointNotFoundError(
                    f"{self.scope}: entry {point.sequence} of {point.timeline} is not the one "
                    "given; is that one of another store?"
                )
            return point.timeline, point.sequence
        if isinstance(point, bool):
            raise InvalidInputError("True and False are no points")
        if isinstance(point, int):
            return self._checked(self.timeline, point)
        if isinstance(point, datetime):
            return self.timeline, self.at_time(microseconds(point))
        if isinstance(point, str):
            return self._named(point)
        handle = getattr(point, "_handle", point)
        place = getattr(handle, "place", None)
        if callable(place):
            check_own(self.core, "that point", handle)
            scope, timeline, sequence = place()
            if scope != self.scope:
                raise PointNotFoundError(f"that point belongs to {scope}, not to {self.scope}")
            return self._checked(timeline, sequence)  # a view may be of a scope that has ended
        raise InvalidInputError(
            f"{type(point).__name__} is no point; give an entry's number, a time, a checkpoint or "
            "its name"
        )

    def _checked(self, timeline: str, sequence: int) -> tuple[str, int]:
        sequence, _ = self._held(timeline, sequence)
        return timeline, sequence

    def _held(self, timeline: str, sequence: int) -> tuple[int, Floor]:
        """The number of an entry, and the floor by which its state can be had."""
        line = self.line(timeline)
        first, head = line.ledger.before, line.sequence
        sequence = sequence or first  # 0 is the empty state before the first entry
        if not first <= sequence <= head:
            again = ": it was deleted and made again since" if 0 <= sequence < first else ""
            raise PointNotFoundError(
                f"{self.scope}: timeline {timeline} has entries {first + 1} to {head}, "
                f"not {sequence}{again}"
            )
        floor = line.floor
        if not floor.holds(sequence, first):
            raise pruned(line.ledger, timeline, sequence, floor)
        return sequence, floor

    def anchors(self, timeline: str, sequence: int) -> int:
        """How often a timeline was pruned; what rests on an entry that is kept expects no more.

        Counted by the very floor that was found to keep it: one that came since may not.
        """
        return self._held(timeline, sequence)[1].number

    def _named(self, text: str) -> tuple[str, int]:
        timeline, at, number = text.rpartition("@")
        missing: TimelineNotFoundError | None = None
        if at and _numeral(number) and timeline:
            try:
                return self._checked(timeline, int(number))
            except TimelineNotFoundError as error:
                missing = error  # unless it is a checkpoint's name: "release@2"
        hashed, passed = _HASH.fullmatch(text) is not None, list[tuple[int, str]]()
        for line, sequence, envelope, body in self.statements(passed=passed):
            key = rowkinds.entry(line.prefix, sequence)
            if hashed and line.ledger.entry_hash(key, envelope.data).hex() == text:
                return self.timeline, sequence  # no other has it
            named = any(op[0] == entry.CHECKPOINT and op[1] == text for op in body.ops)
            if named and not passed:
                return self.timeline, sequence
            if passed and (named or not hashed):  # a hash may still be found behind it
                break
        if passed:  # a damaged one on the way may be the one that is meant
            raise StateIntegrityError(
                f"{passed[0][1]}. It is a checkpoint whose name cannot be read: give the one that "
                f"is meant by its id ({self.timeline}@NUMBER; `checkpoints()` lists them)"
            )
        if missing is not None:
            raise missing
        if _numeral(text):
            return self._checked(self.timeline, int(text))
        raise CheckpointNotFoundError(
            f"{self.scope}: no checkpoint is named {text!r}; `checkpoints()` lists them"
        )

    def statements(
        self, *, passed: list[tuple[int, str]] | None = None
    ) -> Iterator[tuple[Timeline, int, Envelope, Body]]:
        """Entries of this timeline that are checkpoints, newest first.

        One whose body is damaged is passed over: `verify` names it, the others can be used.
        With `passed`, those are noted there with what is wrong, and a missing one is no end.
        """
        try:
            line = self.line()
        except ScopeNotFoundError:
            return
        sequence, floor = line.checkpoint, line.floor
        while sequence := _kept(floor, sequence):
            key = rowkinds.entry(line.prefix, sequence)
            row = line.ledger.storage.get([key])[0]
            if row is None and passed is None:
                raise line.ledger.damage(key, "it is missing")
            try:
                envelope, body = line.ledger.open_entry(key, row)
            except PrunedError:
                floor = floor_of(line.ledger, line.number)  # another one, since this began
                if _kept(floor, sequence) == sequence:
                    raise
                continue
            except DamagedRecordError as error:  # the others can be used
                if passed is not None:
                    passed.append((sequence, str(error)))
                sequence = self._statement_before(line, sequence)
                continue
            if envelope.statement is not None:
                yield line, sequence, envelope, body
                sequence = envelope.statement.previous
            elif sequence > floor.sequence:
                raise line.ledger.damage(key, "it should be a checkpoint, and is none")
            else:
                sequence -= 1  # something else is kept here

    def _statement_before(self, line: Timeline, sequence: int) -> int:
        """The checkpoint before a damaged one, whose own word for it is not to be trusted."""
        low, high = (rowkinds.entry(line.prefix, at) for at in (1, sequence))
        for key, row in each(line.ledger.storage.scan, low, high, limit=256, reverse=True):
            with suppress(DamagedRecordError):  # what cannot be read at all is none
                if entry.split_row(row)[0].statement is not None:
                    return rowkinds.sequence_of(key)
        return 0

    def at_time(self, time: int) -> int:
        """The last entry, by sequence, whose claimed time is not later.

        Saves say between which times their entries lie, so that whole blocks are passed over;
        never a binary search, because clocks step.
        """
        timeline = self.line()
        ledger, floor = timeline.ledger, timeline.floor
        high = timeline.sequence
        saves = ledger.rows_of(b"S", timeline.number, floor.sequence + 1, limit=64, reverse=True)
        for key, row in saves:
            save = read_save(ledger.open_row(key, row))
            sequence = rowkinds.sequence_of(key) - (save.kind == BEFORE)
            answer = self._in_block(timeline, sequence, high, time)
            if answer is not None:
                return answer
            high = min(high, sequence)
            if save.earliest > time:
                high = save.previous  # all of the block below is later
        answer = self._in_block(timeline, max(ledger.before, floor.sequence), high, time)
        if answer is None and floor.sequence:
            raise pruned(ledger, self.timeline, floor.sequence, floor)
        if answer is None:
            raise PointNotFoundError(f"{self.scope}: that time lies before the first entry")
        return answer

    def _in_block(self, timeline: Timeline, low: int, high: int, time: int) -> int | None:
        """The last entry of low+1..high that is not later than a time."""
        first, behind = (rowkinds.entry(timeline.prefix, at + 1) for at in (low, high))
        for key, row in each(timeline.ledger.storage.scan, first, behind, limit=256, reverse=True):
            if timeline.ledger.open_entry(key, row)[1].time <= time:
                return rowkinds.sequence_of(key)
        return None

    def view(self, timeline: str, sequence: int) -> Timeline:
        """The state at an entry. The last few are kept: forks of one point share its tree.

        One that was had before the timeline was pruned, perhaps by another process, is not used
        any more: its nodes may lie where nothing is now.
        """
        line = self.line(timeline)
        kept: dict[tuple[int, int, int], Timeline] = line.ledger.views
        name = line.number, sequence, line.floor.number
        found = kept.get(name)
        if found is not None:
            return found
        with line.ledger.viewing:  # who wants the same one waits for it instead of reading it too
            found = kept.get(name) or _still(line, sequence)
            if found is None:
                found = Timeline(line.ledger, line.number)
                if sequence:
                    found.load(sequence)
            kept[name] = found
            while len(kept) > VIEWS:
                kept.pop(next(iter(kept)))
        return found


def _restorable(line: Timeline) -> Timeline:
    """The timeline, of which all can be read that a restore takes from it: its index as one tree,
    and the keys that stay. Damage apart from these is in nobody's way."""
    if line.stranded is None:
        line.folded()
        for prefix in sticky_prefixes(line.declared):
            deque(line.scan(prefix), 0)
    return line


def _numeral(text: str) -> bool:
    """Whether it can be an entry's number; one of thousands of digits takes long to read."""
    return text.isdecimal() and len(text) < 20


def _kept(floor: Floor, sequence: int) -> int:
    """The newest entry up to this one that is not pruned and may be a checkpoint; 0 if none."""
    if sequence > floor.sequence or sequence in floor.bases:
        return sequence
    return max((at for at in floor.bases if at < sequence), default=0)


def _still(line: Timeline, sequence: int) -> Timeline | None:
    """A copy of a timeline that stays as it is, if it stands at this entry: nothing is read."""
    with line.lock:
        if line.sequence != sequence or line.stranded is not None:
            return None
        copy = Timeline(line.ledger, line.number)
        copy.take_over(line)
        copy.overlay = dict(line.overlay)
        return copy


# ---- public entry -------------------------------------------------------------------------------
# Entries as users see them: names in place of numbers, and no values.


NO_CAUSE = Cause()
DELETED, HIDDEN, ENDED = "deleted", "hidden", "?"
"""What stands for the name of a scope that is there no longer, or that may not be seen, and of such
a timeline."""


def public_entry(
    core: Core,
    ledger: Ledger,
    timeline: str,
    key: bytes,
    envelope: Envelope,
    body: Body,
    position: Position | None = None,
) -> Entry:
    """An entry for people."""
    cause, point = body.cause or NO_CAUSE, ""
    if core.redact is not None and cause.reason is not None:
        cause = structs.replace(cause, reason=core.redact(cause.reason))
    for op in body.ops:
        if op[0] in (entry.RESTORE, entry.FORK, entry.MERGE):
            point = f"{core.numbers.timeline(ledger, op[1]) or '?'}@{op[2]}"
            break
    return Entry(
        ledger.scope,
        timeline,
        rowkinds.sequence_of(key),
        moment(body.time),
        tuple(pair for pair in entry.shown(body.ops) if not derived(pair[1])),
        cause,
        ledger.entry_hash(key, envelope.data).hex(),
        body.change,
        _place_names(core, body.also) if body.also else (),
        body.step,
        point,
        position,
    )


def _place_names(
    core: Core, places: Sequence[tuple[int, int, int]]
) -> tuple[tuple[str, str, int], ...]:
    """(scope, timeline, sequence) with names for numbers, where they are still known."""
    names = core.numbers.scopes(number for number, _, _ in places)
    found = []
    for number, line, sequence in places:
        scope, name = names.get(number), None if line else "main"
        if scope is not None and core.guard is not None and not core.guard.seen(Scope.parse(scope)):
            scope, name = HIDDEN, ENDED
        elif scope is not None and name is None:
            ledger = core.known(Scope.parse(scope))
            if ledger is not None and ledger.number == number:
                name = core.numbers.timeline(ledger, line)
        found.append((scope or DELETED, name or ENDED, sequence))
    return tuple(found)
