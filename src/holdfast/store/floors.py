"""Floors: below which entry a timeline was pruned, and what is kept there.

An anchor is an entry that says so. Row `A` leads to the newest one, so that nobody has to look for
it; numbers of anchors have no gaps, so that whoever rests on what the newest one left expects that
there is no row of the next number. See `pruning` for how entries are pruned.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from holdfast.errors import (
    Conflict,
    DamagedRecordError,
    PrunedError,
    ScopeNotFoundError,
    StateIntegrityError,
)
from holdfast.store import entries, rows
from holdfast.store.saves import Save, read_save

if TYPE_CHECKING:
    from holdfast.store.ledger import Ledger
    from holdfast.store.stage import Stage
    from holdfast.store.timeline import Timeline

_decode = msgspec.msgpack.Decoder(int).decode


class Floor(NamedTuple):
    """What the newest anchor of a timeline says."""

    number: int
    """Which of the timeline's anchors it is; 0 if it has none."""
    sequence: int
    """Entries up to this one are pruned."""
    anchor: int
    """The entry that says so."""
    bases: dict[int, bytes]
    """Entries up to the floor, the last one included, whose states are kept: what their saved
    indexes are committed to."""

    def holds(self, sequence: int, before: int) -> bool:
        """Whether the state at an entry can be had; `before` is the number before the first."""
        return sequence >= self.sequence or sequence <= before or sequence in self.bases


NO_FLOOR = Floor(0, 0, 0, {})


def floor_of(ledger: Ledger, timeline: int) -> Floor:
    """The floor of a timeline as it is stored now."""
    found = _newest(ledger, timeline)
    while found:
        number = int.from_bytes(found[0][0][9:13], "big")
        known = ledger.floors.get(timeline, NO_FLOOR)
        if known.number == number:
            return known
        try:
            floor = ledger.floors[timeline] = _read(ledger, timeline, number, *found[0])
            return floor
        except StateIntegrityError:
            before, found = found, _newest(ledger, timeline)
            if found == before:
                raise
            # It was pruned again meanwhile: that drops the content of the anchor before.
    return NO_FLOOR


def _newest(ledger: Ledger, timeline: int) -> list[tuple[bytes, bytes]]:
    """The row that leads to the newest anchor, if there is one."""
    line = rows.line(b"A", ledger.number, timeline)
    return ledger.storage.scan(line, rows.after(line), limit=1, reverse=True)


def _read(ledger: Ledger, timeline: int, number: int, key: bytes, row: bytes) -> Floor:
    try:
        sequence = _decode(ledger.open_row(key, row))
        entry = rows.entry(rows.line(b"E", ledger.number, timeline), sequence)
        stored = ledger.storage.get([entry])[0]
        if stored is not None and not entries.split_row(stored)[1]:
            raise ledger.damage(entry, "the content of an anchor is missing")
        op = ledger.open_entry(entry, stored)[1].ops[0]
        if op[0] != entries.PRUNE:
            raise ledger.damage(key, "it leads to an entry that is no anchor")
        return announced_floor(Floor(number - 1, 0, 0, {}), sequence, op)
    except (msgspec.MsgspecError, IndexError):
        raise ledger.damage(key, "it cannot be read") from None


def announced_floor(before: Floor, anchor: int, op: list[Any]) -> Floor:
    """The floor that an anchor announces; one that is older than what is known changes nothing."""
    if anchor <= before.anchor:
        return before
    return Floor(before.number + 1, op[1], anchor, dict(op[3]))


def read_base(ledger: Ledger, timeline: int, sequence: int, commitment: bytes) -> Save:
    """The saved index of an entry that is kept, as its anchor committed to it."""
    key = rows.entry(rows.line(b"B", ledger.number, timeline), sequence)
    plain = ledger.open_row(key, ledger.storage.get([key])[0])
    if ledger.commit_save(plain) != commitment:
        raise ledger.damage(key, "it is not the one that its anchor names")
    return read_save(plain)


def pruned(ledger: Ledger, timeline: str, sequence: int, floor: Floor) -> PrunedError:
    """The error for a point below the floor."""
    kept = sorted(at for at in floor.bases if at < floor.sequence)
    also = f"; below it {', '.join(map(str, kept[-10:]))} are kept" if kept else ""
    return PrunedError(
        f"{ledger.scope}: entry {sequence} of {timeline} was pruned: the anchor at entry "
        f"{floor.anchor} says so. History begins behind entry {floor.sequence}{also}"
    )


def stand_on(stage: Stage, source: Timeline, sequence: int, number: int) -> None:
    """Let a commit that rests on an older state fail if that is pruned meanwhile, or deleted.

    `number` is that of the newest anchor when it was found that the state is kept.
    """
    ledger = stage.ledger
    if ledger.number != source.ledger.number:
        raise ScopeNotFoundError(
            f"{ledger.scope} was deleted meanwhile; one that is made again under its name is new"
        )
    coming = ledger.pruning.get(source.number, NO_FLOOR)
    if not coming.holds(sequence, ledger.before):
        raise Conflict(f"{ledger.scope}: entry {sequence} is being pruned; try again")
    stage.absent.append(rows.anchor(ledger.number, source.number, number + 1))


def stand_beside_pruning(stage: Stage, anchors: int) -> None:
    """Refuse what shares parts with a value that was read before the timeline was pruned."""
    line = stage.timeline
    if line.floor.number != anchors or line.number in stage.ledger.pruning:
        raise Conflict(
            f"{stage.ledger.scope}: the timeline was pruned while this value was written, and "
            "parts that it shares with the one before may be gone; write it again"
        )


def name_of(ledger: Ledger, timeline: int) -> str:
    """What people call a timeline; its number if that cannot be read."""
    if timeline == 0:
        return "main"
    key = rows.line(b"T", ledger.number, timeline)
    try:
        name: str = msgspec.msgpack.decode(ledger.open_row(key, ledger.storage.get([key])[0]))[0]
    except (StateIntegrityError, msgspec.DecodeError):
        return f"timeline {timeline}"
    return name


def no_body(ledger: Ledger, key: bytes) -> PrunedError | DamagedRecordError:
    """The error for an entry whose row is the envelope alone."""
    timeline, sequence = rows.line_of(key), rows.sequence_of(key)
    floor = floor_of(ledger, timeline)
    if sequence <= floor.sequence:
        return pruned(ledger, name_of(ledger, timeline), sequence, floor)
    return DamagedRecordError("its body is missing, and no anchor says that it was pruned")
