"""Floors: below which entry a timeline was pruned, and what is kept there.

An anchor is an entry that says so. Row `A` leads to the newest one, so that nobody has to look for
it; numbers of anchors have no gaps, so that whoever rests on what the newest one left expects that
there is no row of the next number. See `store.upkeep.prune` for how entries are pruned.

If the row or the anchor is lost, `verify` says so. What can still be known without it stands in for
it, so that the scope can be looked back on and recovered: the chain may have the anchor itself, and
a state that is kept counts if something else vouches for it (`_vouched`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from holdfast.errors import (
    DamagedRecordError,
    PrunedError,
    StateIntegrityError,
)
from holdfast.store.journal import entry as entries
from holdfast.store.journal.save import Save, read_save
from holdfast.store.names import rowkinds

if TYPE_CHECKING:
    from holdfast.store.journal.ledger import Ledger

_decode = msgspec.msgpack.Decoder(int).decode


class Floor(NamedTuple):
    """What the newest anchor of a timeline says."""

    number: int
    """Which of the timeline's anchors it is; 0 if it has none."""
    sequence: int
    """Entries up to this one are pruned."""
    anchor: int
    """The entry that says so; 0 if there is none, or it is lost."""
    bases: dict[int, bytes]
    """Entries up to the floor, the last one included, whose states are kept: what their saved
    indexes are committed to."""

    def holds(self, sequence: int, before: int) -> bool:
        """Whether the state at an entry can be had; `before` is the number before the first."""
        return sequence >= self.sequence or sequence <= before or sequence in self.bases


NO_FLOOR = Floor(0, 0, 0, {})
LOST = b""
"""What stands for the commitment of a state that was lost with its anchor."""
PAGE = 500


def floor_of(ledger: Ledger, timeline: int) -> Floor:
    """The floor of a timeline as it is stored now, or as it can be told without its anchor."""
    try:
        return anchored_floor(ledger, timeline)
    except StateIntegrityError:
        number = _number_of(newest_anchor_row(ledger, timeline))
    known = ledger.unanchored.get(timeline, NO_FLOOR)
    if known.number != number:
        known = ledger.unanchored[timeline] = _without_anchor(ledger, timeline, number)
    return known


def anchored_floor(ledger: Ledger, timeline: int) -> Floor:
    """What the newest anchor says; raises if it, or the row that leads to it, cannot be read."""
    found = _newest(ledger, timeline)
    while found:
        number = _number_of(found[0][0])
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


def newest_anchor_row(ledger: Ledger, timeline: int) -> bytes:
    """Key of the row that leads to the newest anchor, readable or not; empty if there is none."""
    return next((key for key, _ in _newest(ledger, timeline)), b"")


def _number_of(key: bytes) -> int:
    """The number of an anchor, by the key of the row that leads to it; 0 without one."""
    return int.from_bytes(key[9:13], "big")


def _newest(ledger: Ledger, timeline: int) -> list[tuple[bytes, bytes]]:
    """The row that leads to the newest anchor, if there is one."""
    line = rowkinds.line(b"A", ledger.number, timeline)
    return ledger.storage.scan(line, rowkinds.after(line), limit=1, reverse=True)


def _read(ledger: Ledger, timeline: int, number: int, key: bytes, row: bytes) -> Floor:
    try:
        sequence = _decode(ledger.open_row(key, row))
        entry = rowkinds.entry(rowkinds.line(b"E", ledger.number, timeline), sequence)
        stored = ledger.storage.get([entry])[0]
        if stored is not None and not entries.split_row(stored)[1]:
            raise ledger.damage(entry, "the content of an anchor is missing")
        op = ledger.open_entry(entry, stored)[1].ops[0]
        if op[0] != entries.PRUNE:
            raise ledger.damage(key, "it leads to an entry that is no anchor")
        return announced_floor(Floor(number - 1, 0, 0, {}), sequence, op)
    except (msgspec.MsgspecError, IndexError):
        raise ledger.damage(key, "it cannot be read") from None


def _without_anchor(ledger: Ledger, timeline: int, number: int) -> Floor:
    """The floor of a timeline that was pruned and whose anchor cannot be found by its row.

    The anchor's own, if the chain still has it. Else `anchor` is 0, and of the states that were
    kept it has those that something else vouches for; the one at the floor is always named, by
    `LOST` if nothing does. `sequence` is 0 if there is no other sign of pruning.
    """
    line = rowkinds.line(b"E", ledger.number, timeline)
    newest = ledger.storage.scan(line, rowkinds.after(line), limit=1, reverse=True)
    bases, last = _bases_left(ledger, timeline, rowkinds.sequence_of(newest[0][0]) if newest else 0)
    anchor, bare = _anchor_left(ledger, timeline, last)
    if anchor is not None:
        return announced_floor(Floor(number - 1, 0, 0, {}), *anchor)
    if sequence := max(last, bare):
        bases.setdefault(sequence, LOST)
    return Floor(number, sequence, 0, bases)


def _all_rows(
    ledger: Ledger, line: bytes, *, reverse: bool = False
) -> Iterator[tuple[bytes, bytes]]:
    """All rows of a timeline of one kind, however many they are."""
    low, high = line, rowkinds.after(line)
    while page := ledger.storage.scan(low, high, limit=PAGE, reverse=reverse):
        yield from page
        low, high = (low, page[-1][0]) if reverse else (page[-1][0] + b"\0", high)


def _anchor_left(
    ledger: Ledger, timeline: int, last: int
) -> tuple[tuple[int, list[Any]] | None, int]:
    """The newest anchor (its number, and what it says) if the chain shows it for certain, and the
    newest entry without a body; `last` is the newest state that is kept.

    One that stands before an entry which cannot be read, or before where the row leads, may be an
    older one, and so may one whose floor is another.
    """
    expected = 0
    led, certain = _led_to(ledger, timeline), True
    for key, row in _all_rows(ledger, rowkinds.line(b"E", ledger.number, timeline), reverse=True):
        sequence = rowkinds.sequence_of(key)
        certain = certain and expected in (0, sequence) and sequence >= led
        expected = sequence - 1
        try:
            whole = bool(entries.split_row(row)[1])
            if not whole and sequence != led:
                return None, sequence
            certain = certain and whole
            ops = ledger.open_entry(key, row)[1].ops if certain else []
        except StateIntegrityError:
            certain = False
            continue
        if ops and ops[0][0] == entries.PRUNE:
            certain = ops[0][1] >= last
            if certain:
                return (sequence, ops[0]), 0
    return None, 0


def _led_to(ledger: Ledger, timeline: int) -> int:
    """The entry to which the row of the newest anchor leads; 0 if that cannot be read."""
    for key, row in _newest(ledger, timeline):
        with suppress(StateIntegrityError, msgspec.MsgspecError):
            return _decode(ledger.open_row(key, row))
    return 0


def _bases_left(ledger: Ledger, timeline: int, newest: int) -> tuple[dict[int, bytes], int]:
    """The states kept of a timeline, up to its newest entry, that something vouches for; and the
    number of the last one, vouched for or not."""
    found: dict[int, bytes] = {}
    last = 0
    for key, row in _all_rows(ledger, rowkinds.line(b"B", ledger.number, timeline)):
        if rowkinds.sequence_of(key) > newest:
            break
        last = rowkinds.sequence_of(key)
        with suppress(StateIntegrityError):
            plain = ledger.open_row(key, row)
            if _vouched(ledger, timeline, last, read_save(plain)):
                found[last] = ledger.commit_save(plain)
    return found, last


def _vouched(ledger: Ledger, timeline: int, at: int, base: Save) -> bool:
    """Whether the state that is kept at an entry is the one there, though no anchor says so.

    It must stand behind just that entry of the chain. Then in an encrypted store only who has the
    key can have written it; in a plain one it takes a checkpoint there that names the same state.
    """
    key = rowkinds.entry(rowkinds.line(b"E", ledger.number, timeline), at)
    row = ledger.storage.get([key])[0]
    if row is None:
        return False
    envelope = entries.split_row(row)[0]
    if ledger.entry_hash(key, envelope.data) != base.head:
        return False
    statement = envelope.statement
    return ledger.seal.encrypted if statement is None else statement.root == base.root


def announced_floor(before: Floor, anchor: int, op: list[Any]) -> Floor:
    """The floor that an anchor announces; one that is older than what is known changes nothing."""
    if anchor <= before.anchor:
        return before
    return Floor(before.number + 1, op[1], anchor, dict(op[3]))


def read_base(ledger: Ledger, timeline: int, sequence: int, commitment: bytes) -> Save:
    """The saved index of an entry that is kept, as its anchor committed to it."""
    key = rowkinds.entry(rowkinds.line(b"B", ledger.number, timeline), sequence)
    if commitment == LOST:
        raise ledger.damage(key, "its anchor was lost, and nothing else vouches for this state")
    plain = ledger.open_row(key, ledger.storage.get([key])[0])
    if ledger.commit_save(plain) != commitment:
        raise ledger.damage(key, "it is not the one that its anchor names")
    return read_save(plain)


def pruned(ledger: Ledger, timeline: str, sequence: int, floor: Floor) -> PrunedError:
    """The error for a point below the floor."""
    kept = sorted(at for at in floor.bases if at < floor.sequence)
    also = f"; below it {', '.join(map(str, kept[-10:]))} are kept" if kept else ""
    said = f"the anchor at entry {floor.anchor} says so" if floor.anchor else "its anchor is lost"
    return PrunedError(
        f"{ledger.scope}: entry {sequence} of {timeline} was pruned: {said}. History begins behind "
        f"entry {floor.sequence}{also}"
    )


def name_of(ledger: Ledger, timeline: int) -> str:
    """What people call a timeline; its number if that cannot be read."""
    if timeline == 0:
        return "main"
    key = rowkinds.line(b"T", ledger.number, timeline)
    try:
        name: str = msgspec.msgpack.decode(ledger.open_row(key, ledger.storage.get([key])[0]))[0]
    except (StateIntegrityError, msgspec.DecodeError):
        return f"timeline {timeline}"
    return name


def no_body(ledger: Ledger, key: bytes) -> PrunedError | DamagedRecordError:
    """The error for an entry whose row is the envelope alone."""
    timeline, sequence = rowkinds.line_of(key), rowkinds.sequence_of(key)
    floor = floor_of(ledger, timeline)
    if sequence <= floor.sequence:
        return pruned(ledger, name_of(ledger, timeline), sequence, floor)
    return DamagedRecordError("its body is missing, and no anchor says that it was pruned")
