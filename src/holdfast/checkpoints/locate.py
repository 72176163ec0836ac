"""Finding a checkpoint by what is known of it; damaged ones are passed over and named."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import Any

from holdfast.checkpoints.request import Locator
from holdfast.errors import (
    CheckpointNotFoundError,
    InvalidInputError,
    MissingError,
    StateIntegrityError,
)
from holdfast.store.inner import BEFORE, Ledger, LineHandle, is_backup, read_save
from holdfast.store.names import rowkinds
from holdfast.store.names.arguments import check_limit
from holdfast.store.names.items import Checkpoint


@dataclass(frozen=True, slots=True)
class Tried:
    """A checkpoint that was looked at when one that is whole was wanted."""

    id: str
    name: str
    valid: bool
    reason: str = ""
    """What is wrong with it; empty if nothing is."""


def locate(handle: LineHandle, where: Locator, tried: list[Tried] | None = None) -> Checkpoint:
    """The newest checkpoint that fits; `tried` is told of each whose content was looked at."""
    problems = where.problems()
    if problems:
        raise InvalidInputError(", ".join(problems))
    noted: list[Tried] = [] if tried is None else tried
    for found in (good if where.valid else candidates)(handle, where, noted):
        if where.valid:
            noted.append(examine(handle, found))
            if not noted[-1].valid:
                continue
        return found
    passed = ", ".join(one.id for one in noted)
    more = f"; damaged: {passed}" if passed else "; `checkpoints()` lists them"
    raise CheckpointNotFoundError(f"{handle.scope}: there is no checkpoint ({where}){more}")


def find(handle: LineHandle, where: Locator, limit: int | None = None) -> list[Checkpoint]:
    """All checkpoints that fit, newest first."""
    check_limit(limit)
    problems = where.problems()
    if problems:
        raise InvalidInputError(", ".join(problems))
    whole = (
        one for one in candidates(handle, where) if not where.valid or examine(handle, one).valid
    )
    return list(islice(whole, limit))


def candidates(
    handle: LineHandle, where: Locator, noted: list[Tried] | None = None
) -> Iterator[Checkpoint]:
    """Checkpoints that fit, newest first, whole or not; `noted` gets those that cannot be read."""
    if where.id is not None:
        timeline, _, number = where.id.rpartition("@")
        if not timeline or not number.isdecimal():
            raise InvalidInputError("the id of a checkpoint is TIMELINE@NUMBER")
        timeline, sequence = handle.history.points.find(where.id)
        last = _last_before(handle.on(timeline), where.before)
        found = handle.history.checkpoint_at(timeline, sequence)
        if (last is None or sequence <= last) and fits(found, where):
            yield found
        return
    last = _last_before(handle, where.before)
    history = handle.history
    passed: list[tuple[int, str]] = []
    for line, sequence, envelope, body in history.points.statements(passed=passed):
        if noted is not None:
            names = [(f"{handle.timeline}@{number}", why) for number, why in passed]
            noted += [Tried(id, "", False, why) for id, why in names]
        passed.clear()
        one = history.described(line, handle.timeline, sequence, envelope, body)
        if (last is None or sequence <= last) and fits(one, where):
            yield one
    if noted is not None:
        noted += [Tried(f"{handle.timeline}@{number}", "", False, why) for number, why in passed]


def good(handle: LineHandle, where: Locator, noted: list[Tried]) -> Iterator[Checkpoint]:
    """Those of `candidates` that somebody may want back who does not say which.

    Not the backups of restores, nor what else a restore left behind: that was left on purpose, and
    to return to the newest of it would undo the restore, and the next time that. They are given if
    they are named; whoever says before which point or time looks at all that was left there.
    """
    named = where.id is not None or where.name is not None or where.type is not None
    then = where.at is not None or where.before is not None
    known = None if named or then else Lineage(handle)
    for one in candidates(handle, where, noted):
        left = known is not None and one.sequence not in known
        if named or not (left or is_backup(handle, one)):
            yield one


def fits(one: Checkpoint, where: Locator) -> bool:
    """Whether a checkpoint is what a locator says, but for an entry that it lies before."""
    return (
        (where.name is None or one.name == where.name)
        and (where.type is None or one.type == where.type)
        and (where.tag is None or where.tag in one.tags)
        and (where.trigger is None or one.metadata.get("trigger") == where.trigger)
        and (where.at is None or one.time <= where.at)
        and (not isinstance(where.before, datetime) or one.time < where.before)
    )


def _last_before(handle: LineHandle, before: Any) -> int | None:
    """The last entry before a point; None if a time is given, which each one is compared with."""
    if before is None or isinstance(before, datetime):
        return None
    timeline, sequence = handle.history.points.find(before)
    if timeline != handle.timeline:
        raise InvalidInputError(
            f"{handle.scope}: that point is of timeline {timeline!r}; look there for what is before"
        )
    return sequence - 1


def examine(handle: LineHandle, found: Checkpoint, verify: str = "full") -> Tried:
    """Look at all that a checkpoint covers. A storage that does not answer is not damage."""
    history = handle.history
    try:
        source = history.points.view(found.timeline, found.sequence)
        history.check_point(source, found.sequence, verify)
    except StateIntegrityError as error:  # an older one may be whole
        return Tried(found.id, found.name, False, str(error))
    return Tried(found.id, found.name, True)


# ---- lineage ------------------------------------------------------------------------------------
# Which entries of a timeline its newest state comes from.
#
# A restore leaves a stretch behind: the entries after the point it returned to, up to itself.
# Whoever asks for the newest good state does not mean one that was left on purpose. A restore that
# returns into such a stretch takes it up again. An import leaves nothing: its timeline begins
# empty, so what was before it is what there was, and no state that somebody returned from.


class Lineage:
    """The stretches of a timeline that its newest state, or that at an entry, comes from."""

    def __init__(self, handle: LineHandle, at: int | None = None) -> None:
        self._stretches = list(_stretches(handle, at))

    def __contains__(self, sequence: int) -> bool:
        return any(low <= sequence <= high for low, high in self._stretches)


def _stretches(handle: LineHandle, at: int | None) -> Iterator[tuple[int, int]]:
    """First and last entry of each, the newest first; also if the newest state is damaged.

    Where a restore cannot be read any more, nobody knows what it left: nothing, then.
    """
    line = handle.history.points.line()
    ledger = line.ledger
    timeline, last = line.number, line.sequence if at is None else at
    while last > ledger.before:
        try:
            origin = _origin(ledger, timeline, last)
            first = origin
            key = rowkinds.entry(rowkinds.line(b"E", ledger.number, timeline), origin)
            came = (
                ledger.open_entry(key, ledger.storage.get([key])[0])[1].ops[0] if origin else None
            )
        except (MissingError, StateIntegrityError):  # nobody knows what it left
            first, came = 0, None
        own = timeline == line.number
        if own:
            yield first, last
            before = first - 1
        if came is None:
            return
        timeline, last = came[1], came[2]
        if last <= ledger.before and not own:  # it came from outside
            timeline, last = line.number, before


def _origin(ledger: Ledger, timeline: int, sequence: int) -> int:
    """The newest restore or fork up to an entry, which the index saved last names; 0 if none."""
    line = rowkinds.line(b"S", ledger.number, timeline)
    low, high = rowkinds.entry(line, 0), rowkinds.entry(line, sequence) + b"\0"
    for key, row in ledger.storage.scan(low, high, limit=1, reverse=True):
        save = read_save(ledger.open_row(key, row))
        return rowkinds.sequence_of(key) if save.kind == BEFORE else save.origin
    return 0
