"""Undoing what some entries did, and nothing else.

A revert gives each key that the entries changed the value it had before the first of them, as
one new entry. A key that somebody else changed since is left alone and named: what they wrote
may rest on what is undone, and only people can say. The values are expected to be what was
looked at, so that nobody who is faster is overwritten; then it looks again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

from holdfast.errors import (
    Conflict,
    DamagedIndexError,
    InvalidInputError,
    PointNotFoundError,
    PrunedError,
    RefusedError,
    TimelineNotFoundError,
)
from holdfast.storage.rows import ATTEMPTS, each
from holdfast.store.history.handle import LineHandle, StoreHandle
from holdfast.store.history.restore import restore_state, seen_change
from holdfast.store.journal import entry as entries
from holdfast.store.journal.declared import PREFIX, Declared
from holdfast.store.journal.entry import Body
from holdfast.store.journal.lifetime import READ, terms_of
from holdfast.store.journal.slot import Slot, meta_of, said_of
from holdfast.store.journal.timeline import DELTA_EVERY, Timeline
from holdfast.store.names import rowkinds
from holdfast.store.names.arguments import check_flag, check_text, listed
from holdfast.store.names.cause import cause_now
from holdfast.store.names.items import Entry, Left, Reverted
from holdfast.store.names.scope import RESERVED, Scope
from holdfast.store.read.reader import masks
from holdfast.store.read.watch import Follower
from holdfast.store.rules.ephemeral import ephemeral_prefixes
from holdfast.store.rules.gates import Operation
from holdfast.store.rules.lookup import derived
from holdfast.store.rules.owned import TABLE, Owned
from holdfast.store.rules.sticky import sticky_prefixes
from holdfast.store.rules.subjects import opened_changes
from holdfast.store.tree.difference import MISSING, Diff, masked_changes

FOLLOWED = 5000
"""Entries that one copy of a state follows before it is loaded anew: what it holds is bounded."""
_STAYS = {
    entries.CHECKPOINT: "changed no key: a checkpoint stays",
    entries.FORK: "began this timeline: that stays",
    entries.RESTORE: "is a restore, which is undone whole: restore entry {}, the state before it",
    entries.MERGE: "is a merge, and what it brought counts as known: merging that timeline again "
    "does not bring it back; to merge anew, restore to before the merge instead",
    entries.REKEY: "changed no key: the new data key stays",
    entries.GONE: "deleted the scope: that stays",
    entries.END: "ended its timeline: that stays",
    entries.PRUNE: "pruned what was before it: that does not come back",
    entries.LOST: "changed no key: it tells of entries that were lost",
    entries.TAKEN: "changed no key: it stands for an entry that was lost",
    entries.SPOILT: "changed no key: it states which rows are damaged for good",
}
"""Why an operation that names no key is not undone."""
_WHOLE = frozenset({"restore", "merge"})
"""Kinds of entries that undoing the newest change undoes by a restore."""
AS_BEFORE = "it is what it was before"
"""Of a key that is left: there is nothing to undo."""
_PRUNED = "stays: what was before it is pruned, and does not come back"
_BUILT = "built or removed a lookup, which follows from what is declared"
Choice = Callable[[int, Body], bool]
"""Whether an entry, by its number and body, is one of those to undo."""


def revert_state(
    handle: LineHandle,
    *,
    correlation: str | None,
    entries: Iterable[Any] | None,
    actor: str | None,
    dry_run: bool,
    reason: str | None,
    operation: bool = False,
) -> Reverted:
    """Undo entries of one timeline.

    As those of an operation, what they wrote to sticky keys stays, and what others restored since.
    """
    check_flag(dry_run, "dry_run")
    if sum(given is not None for given in (correlation, entries, actor)) != 1:
        raise InvalidInputError("revert takes one of correlation=, entries= and actor=")
    numbers = listed(entries, "entries") if entries is not None else None

    def look() -> list[Undoing]:
        undoing = Undoing(handle, operation, alone=True)
        if numbers is not None:
            undoing.choose_numbers(_numbers(handle, numbers))
        elif correlation is not None:
            undoing.choose_correlation(correlation)
        else:
            check_text(actor, "an actor", least=1)
            undoing.choose_cause(undoing.ledger.before + 1, "actor", str(actor))
        undoing.note_together()
        return [undoing]

    if numbers is not None:
        what = f"{len(numbers)} entries" if len(numbers) != 1 else "one entry"
    else:
        what = f"correlation {correlation}" if correlation is not None else f"actor {actor}"
    return reverted(look, dry_run, reason, what)[0]


def undo_newest(handle: LineHandle, reason: str | None) -> Reverted:
    """Undo the newest entry that changed something of the user's own; see `State.undo`."""
    at = f"{handle.scope}, timeline {handle.timeline}"
    found = (handle.history.entry(*one) for one in handle.history.entries())
    # What features note for themselves is none: much of it, such as an effect, stays anyway.
    mine = (
        one
        for one in found
        if any(not key.startswith(RESERVED) for key in one.keys) or _WHOLE.intersection(one.kinds)
    )
    newest = next(mine, None)
    if newest is None:
        raise PointNotFoundError(
            f"{at}: there is no change to undo, of keys that are yours; `log()` shows the entries"
        )
    number = newest.sequence
    reason = reason if reason is not None else f"undo of entry {number}"
    if not _WHOLE.isdisjoint(newest.kinds):
        sequence = restore_state(handle, number - 1, "full", reason)[0].sequence
        done = handle.diff(sequence - 1, sequence).keys
        return Reverted(handle.scope, handle.timeline, done, [], sequence)
    undone = revert_state(
        handle, correlation=None, entries=[number], actor=None, dry_run=False, reason=reason
    )
    if undone.entry is None and undone.left:
        why = undone.left[0]
        raise RefusedError(f"{at}: entry {number} is not undone: {why.key or 'it'}: {why.why}")
    return undone


def reverted(
    look: Callable[[], list[Undoing]], dry_run: bool, reason: str | None, what: str
) -> list[Reverted]:
    """Look and commit until nobody was faster in between."""
    cause = cause_now(reason=reason if reason is not None else f"revert of {what}"[:4096])
    for attempt in range(1, ATTEMPTS + 1):
        found = look()
        if not dry_run:
            for undoing in found:
                undoing.core.check_writable()
        results = [undoing.settle(dry_run) for undoing in found]
        wanted = [undoing for undoing in found if undoing.operations]
        if dry_run or not wanted:
            return results
        try:
            written = wanted[0].core.run(seen_change(wanted, cause, attempt))
        except (Conflict, TimelineNotFoundError):  # one that has ended since is left alone
            if attempt == ATTEMPTS:
                raise
            continue
        numbers = {(one.scope, one.timeline): one.sequence for one in written}
        return [
            undoing.result(numbers.get((undoing.scope, undoing.handle.timeline)))
            for undoing in found
        ]
    raise AssertionError


def _numbers(handle: LineHandle, points: list[Any]) -> set[int]:
    """The numbers of entries given as points of this timeline."""
    found = set()
    for point in points:
        if not isinstance(point, int | str | Entry) or isinstance(point, bool):
            raise InvalidInputError(
                f"entries are numbers or entries of the log, not {type(point).__name__}"
            )
        timeline, sequence = handle.history.points.find(point)
        if timeline != handle.timeline:
            raise InvalidInputError(
                f"{handle.scope}: entry {sequence} is of timeline {timeline!r}, not of "
                f"{handle.timeline!r}: revert it on that timeline"
            )
        if type(point) is int and point != sequence:
            raise PointNotFoundError(f"{handle.scope}: there is no entry {point}")
        found.add(sequence)
    if not found:
        raise InvalidInputError("entries is empty: name at least one")
    return found


def nobody(where: str, what: str) -> str:
    """What to say where there is nothing to undo."""
    return f"{where}: no entry carries {what}; `log()` shows causes"


def _ruled(key: str, declared: Declared, operation: bool, alone: bool, moves: bool) -> str:
    """Why a key is left alone, which would come back or go if it `moves`; empty if it is not."""
    if key.startswith(PREFIX):
        return "it is a declaration, which stays: `declare` and `undeclare` change it"
    if key.startswith(ephemeral_prefixes(declared)):
        return "it is ephemeral by now: what was stored under it does not come back"
    if operation and key.startswith(sticky_prefixes(declared)):
        return "it is sticky: what it tells of has happened, and stays so"
    rule = TABLE.index.rule(key)
    stays = {Owned.NEVER: True, Owned.TOGETHER: alone, Owned.VALUE: moves}
    return rule.why if rule is not None and stays.get(rule.revert) else ""


class Undoing:
    """What it takes to undo some entries of one timeline, seen from its newest entry."""

    def __init__(self, handle: LineHandle, operation: bool = False, *, alone: bool = False) -> None:
        self.handle = handle
        self.operation = operation
        self.alone = alone
        """Whether nothing is undone in other scopes."""
        self.core, self.scope = handle.core, handle.scope
        points = handle.history.points
        line = points.line()
        self.head = line.sequence
        self.floor = line.floor.sequence
        """What was before this entry and those below it is not known any more."""
        self.now = points.view(handle.timeline, self.head)
        self.ledger = self.now.ledger
        self.first: dict[str, int] = {}
        """The first of the entries that changed each key."""
        self.others: dict[str, int] = {}
        """The newest entry of somebody else that changed the key since."""
        self.restores: dict[int, bool] = {}
        """Restores since, and whether they are among the entries to undo."""
        self.stays: dict[str, list[int]] = {}
        """Entries of which something stays, by the reason."""
        self.together: list[int] = []
        self.left: list[Left] = []
        self.operations: list[Operation] = []
        self.expects: dict[str, int] = {}
        self.declared: dict[str, Declared] = {}
        """Of a dry run: what was declared before the first of the entries that changed a key."""
        self._entries: dict[int, Entry] = {}

    # which entries

    def choose_numbers(self, numbers: set[int]) -> None:
        """Those with these numbers."""
        self._scan(min(numbers), lambda sequence, _: sequence in numbers, "that number")

    def choose_correlation(self, correlation: str) -> None:
        """All that carry a correlation; its rows say where the first of them is."""
        check_text(correlation, "a correlation", least=1)
        tag = self.core.tag(b"correlation", correlation)
        low = rowkinds.correlation(tag, self.ledger.number, self.now.number, 0)
        page = self.core.storage.scan(low, rowkinds.after(low[:25]), limit=1)
        start = int.from_bytes(page[0][0][25:29], "big") * rowkinds.BLOCK if page else self.head + 1
        self.choose_cause(max(start, self.ledger.before + 1), "correlation", correlation)

    def choose_cause(self, low: int, name: str, said: str) -> None:
        """All from an entry on whose cause has an actor, or a correlation, of this name."""

        def chosen(_: int, body: Body) -> bool:
            return getattr(body.cause, name, None) == said

        self._scan(low, chosen, f"the {name} {said!r}")

    def _scan(self, low: int, chosen: Choice, what: str) -> None:
        """Note, oldest first, what the entries changed and who changed it since."""
        pruned: list[int] = []  # of which the content is there still
        at, high = (rowkinds.entry(self.now.prefix, one) for one in (low, self.floor + 1))
        for row, data in each(self.core.storage.scan, at, high, limit=200) if at < high else ():
            with suppress(PrunedError):
                sequence, (_, body) = rowkinds.sequence_of(row), self.ledger.open_entry(row, data)
                pruned += [sequence] if chosen(sequence, body) else []
        if found := bool(pruned):
            self.stays[_PRUNED] = pruned
        for row, _, body in self.handle.history.entries(
            newest_first=False, low=max(low, self.floor + 1), high=self.head
        ):
            sequence = rowkinds.sequence_of(row)
            mine = chosen(sequence, body)
            found = found or mine
            for op, (_, key) in zip(body.ops, entries.touched(body.ops), strict=True):
                if mine or op[0] != entries.META or body.cause != READ:  # which is no change
                    self._note(sequence, op[0], key, mine)
            if mine and body.ops and all(derived(key) for _, key in entries.touched(body.ops)):
                self.stays.setdefault(_BUILT, []).append(sequence)
            if mine and body.also:
                self.together.append(sequence)
        if not found:
            if self.floor > self.ledger.before:
                what = f"{what}, as far as they are there: they are pruned up to {self.floor}"
            raise PointNotFoundError(nobody(str(self.scope), what))

    def _note(self, sequence: int, code: int, key: str, mine: bool) -> None:
        if derived(key):
            return  # it follows what it was derived from
        if code == entries.RESTORE and (self.first or mine):
            self.restores[sequence] = mine
        if code not in entries.KEYED:
            if mine:
                self.stays.setdefault(_STAYS[code].format(sequence - 1), []).append(sequence)
        elif mine:
            self.first.setdefault(key, sequence)
        elif key in self.first:
            self.others[key] = sequence

    def note_together(self) -> None:
        """Say which entries are half of a change whose other half is not undone here."""
        for sequence in self.together[-1:]:
            entry = self._entry(sequence)
            places = ", ".join(f"{scope} {line}@{number}" for scope, line, number in entry.also)
            more = f" (and {len(self.together) - 1} more)" if len(self.together) > 1 else ""
            why = f"entry {sequence}{more} was made together with {places}, which is not undone"
            if entry.cause.correlation is not None:
                how = f"reverting the correlation {entry.cause.correlation!r} undoes both"
            else:
                how = "revert that one, too"
            self.left.append(Left("", f"{why}; {how}", entry))

    # what becomes of it

    def settle(self, dry_run: bool) -> Reverted:
        """Decide for each key; also where the saved index is damaged, and entries must do."""
        try:
            diff = self._decide(dry_run, saves=True)
        except DamagedIndexError:  # entries hold the same states: begun anew from them
            self.operations, self.expects = [], {}
            self.left = [one for one in self.left if not one.key]
            self.now = self._at(self.head, saves=False)
            diff = self._decide(dry_run, saves=False)
        for why, numbers in self.stays.items():
            shown = ", ".join(map(str, numbers[:5])) + (", …" if len(numbers) > 5 else "")
            self.left.append(Left("", f"entry {shown} {why}", self._entry(numbers[-1])))
        return self.result(None, dry_run=dry_run, diff=diff)

    def result(self, entry: int | None, *, dry_run: bool = False, diff: Any = None) -> Reverted:
        """What there is to say, once it is known which entry it became."""
        done = [operation.key for operation in self.operations]
        return Reverted(self.scope, self.handle.timeline, done, self.left, entry, dry_run, diff)

    def _decide(self, dry_run: bool, *, saves: bool) -> Diff | None:
        diff = Diff(f"{self.handle.timeline}@{self.head}", "reverted") if dry_run else None
        before = self._slots_before(saves, dry_run)
        moved = self._moved(saves)
        declared = self.now.declared
        for key in sorted(self.first):
            was, now = before[key], self._settled(self.now, key)
            # What goes along with a key that stays, stays with it.
            places = (key, TABLE.index.leader(key) or key)
            since = max(line.get(one, 0) for line in (self.others, moved) for one in places)
            moves = (was is None) != (now is None)
            why = _ruled(key, declared, self.operation, self.alone, moves)
            if why or said_of(was) == said_of(now):
                why = why or AS_BEFORE
                self.left.append(Left(key, why, self._entry(since or self.first[key])))
            elif since:
                entry = self._entry(since)
                who = f" by {entry.cause.actor}" if entry.cause.actor else ""
                how = "a restore set it" if moved.get(key) == since else "it was changed"
                self.left.append(Left(key, f"{how} since, at entry {since}{who}", entry))
            else:
                value = self._value(key, was)
                operation = Operation("delete", key)
                if was is not None:
                    operation = Operation("set", key, value, terms_of(meta_of(was)))
                self.operations.append(operation)
                self.expects[key] = self.now.version(self.handle.reader.live(self.now, key))
                if diff is None:
                    continue
                shown, rules = self._value(key, now), [declared, self.declared[key]]
                if masks(self.handle.reader, self.now, key, [now, was], rules):
                    masked_changes(key, shown, value, diff)
                else:
                    opened_changes(self.core.subjects, key, shown, value, diff)
        return diff

    # the past

    def _slots_before(self, saves: bool, dry_run: bool) -> dict[str, Slot | None]:
        """What each key was before the first of the entries that changed it.

        For a dry run, which shows it, also what was declared then is noted.
        """
        groups: dict[int, list[str]] = {}
        for key, sequence in self.first.items():
            groups.setdefault(sequence, []).append(key)
        found: dict[str, Slot | None] = {}
        line: Timeline | None = None
        loaded = 0
        for sequence in sorted(groups):
            target = sequence - 1
            far = line is None or target - line.sequence > DELTA_EVERY or target - loaded > FOLLOWED
            if line is None or far:
                line, loaded = self._at(target, saves), target
            else:
                self._follow(line, target)
            found |= {key: self._settled(line, key) for key in groups[sequence]}
            if dry_run:
                self.declared |= dict.fromkeys(groups[sequence], line.declared)
        return found

    def _moved(self, saves: bool) -> dict[str, int]:
        """The newest restore that set a key without naming it.

        For an operation, one of somebody else sets all keys, also those that are what they were:
        undoing one of them would undo a part of it.
        """
        found: dict[str, int] = {}
        alone = sticky_prefixes(self.now.declared)
        for sequence, mine in self.restores.items():
            keys = [key for key, first in self.first.items() if first < sequence]
            if self.operation and not mine:
                found |= {key: sequence for key in keys if not key.startswith(alone)}
            elif keys:
                line = self._at(sequence - 1, saves)
                before = {key: self._settled(line, key) for key in keys}
                self._follow(line, sequence)
                for key, was in before.items():
                    now = self._settled(line, key)
                    if said_of(was) != said_of(now):
                        found[key] = sequence
        return found

    def _at(self, sequence: int, saves: bool) -> Timeline:
        line = Timeline(self.ledger, self.now.number)
        return line.load(sequence, saves=saves) if sequence > self.ledger.before else line

    def _follow(self, line: Timeline, target: int) -> None:
        first = line.sequence + 1
        for key, row in self.ledger.rows_of(b"E", line.number, first, target, limit=200):
            line.follow(key, row)
        if line.sequence < target:
            raise self.ledger.damage(rowkinds.entry(line.prefix, target), "it is missing")

    def _settled(self, line: Timeline, key: str) -> Slot | None:
        slot = line.slot(key)
        return line.settled(slot) if slot is not None else None

    def _value(self, key: str, slot: Slot | None) -> Any:
        """A value in plain form: what is written again is exactly what was stored."""
        if slot is None:
            return MISSING
        return self.ledger.value_of(key, slot, self.core.codec.plain_reader)

    def _entry(self, sequence: int) -> Entry:
        if sequence not in self._entries:
            opened = self.ledger.entry_at(self.now.number, sequence)
            self._entries[sequence] = self.handle.history.entry(*opened)
        return self._entries[sequence]


# ---- revert store -------------------------------------------------------------------------------
# Undoing a correlation in all scopes of a store, as one change.


def revert_store(
    handle: StoreHandle, correlation: str, *, dry_run: bool, reason: str | None
) -> list[Reverted]:
    """Undo the entries of a correlation in all scopes and timelines, as one change."""
    check_flag(dry_run, "dry_run")
    check_text(correlation, "a correlation", least=1)
    lost: list[Reverted] = []

    def look() -> list[Undoing]:
        lost.clear()
        found: dict[tuple[Scope, str], list[Entry]] = {}
        for entry in Follower(handle.core).correlated(correlation, None, None, None):
            found.setdefault((entry.scope, entry.timeline), []).append(entry)
        if not found:
            raise PointNotFoundError(nobody("this store", f"the correlation {correlation!r}"))
        made = []
        for (scope, timeline), those in found.items():
            line = handle.core.current(scope)
            before = line.ledger.before if line is not None else rowkinds.LAST_SEQUENCE
            there = {entry.sequence for entry in those if entry.sequence > before}
            why = "the scope was deleted since, and stays so"
            if there:
                try:
                    undoing = Undoing(handle.line(scope, timeline))
                    undoing.choose_numbers(there)
                    made.append(undoing)
                except TimelineNotFoundError:
                    there, why = set(), "the timeline was ended since, and stays so"
            if gone := [entry for entry in those if entry.sequence not in there]:
                entry = max(gone, key=lambda one: one.sequence)
                lost.append(Reverted(scope, timeline, [], [Left("", why, entry)], None, dry_run))
        return made

    done = reverted(look, dry_run, reason, f"correlation {correlation}")
    return sorted(done + lost, key=lambda one: (str(one.scope), one.timeline))
