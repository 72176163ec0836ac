"""Floors: below which entry a timeline was pruned, and what is kept there.

An anchor is an entry that says so. Row `A` leads to the newest one, so that nobody has to look for
it; numbers of anchors have no gaps, so that whoever rests on what the newest one left expects that
there is no row of the next number. See `store.upkeep.prune` for how entries are pruned.

If the row or the anchor is lost, `verify` says so. What can still be known without it stands in for
it, so that the scope can be looked back on and recovered: a state that is kept counts if something
else vouches for it (`_vouched`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from hashlib import sha256
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import msgspec

from holdfast.errors import (
    DamagedRecordError,
    FormatError,
    HoldfastError,
    KeyMissingError,
    PrunedError,
    StateIntegrityError,
)
from holdfast.storage.rows import each
from holdfast.store.journal import entry as entries
from holdfast.store.journal.feed import Position
from holdfast.store.journal.ledger import Ledger
from holdfast.store.journal.save import NO_FLOOR, Floor, Save, read_save
from holdfast.store.names import rowkinds

if TYPE_CHECKING:
    from holdfast.store.journal.ledger import Ledger

_decode = msgspec.msgpack.Decoder(int).decode
_T = TypeVar("_T")


MOST_ANEW = 100
"""How often something begins anew because others prune: each time they have, so this is plenty."""
LOST = b""
"""What stands for the commitment of a state that was lost with its anchor."""


def floor_of(ledger: Ledger, timeline: int) -> Floor:
    """The floor of a timeline as it is stored now, or as it can be told without its anchor."""
    try:
        return anchored_floor(ledger, timeline)
    except StateIntegrityError:
        # A lost anchor must not cost the state: `verify` names it, and a copy heals it.
        return _without_anchor(ledger, timeline)


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
            # If it was pruned again meanwhile, that has dropped the content of this anchor.
            before, found = found, _newest(ledger, timeline)
            if found == before:
                raise
    return NO_FLOOR


def newest_anchor_row(ledger: Ledger, timeline: int) -> bytes:
    """Key of the row that leads to the newest anchor, readable or not; empty if there is none."""
    return next((key for key, _ in _newest(ledger, timeline)), b"")


class Anew:
    """How often something was read again because rows of it were missing or damaged.

    What is pruned while it is read, or since its index was read, is missing and no damage. So as
    long as others prune the scope meanwhile, whoever reads begins anew, and tells of nothing.
    """

    def __init__(self) -> None:
        self._seen: dict[int, tuple[list[bytes], int]] = {}
        self._left = MOST_ANEW

    def times(self, ledger: Ledger) -> int:
        """How often it failed since anything of the scope was pruned, with this time."""
        prefix = b"A" + ledger.number.to_bytes(rowkinds.SCOPE, "big")
        found = [key for key, _ in each(ledger.storage.scan, prefix, rowkinds.after(prefix))]
        anchors, times = self._seen.get(ledger.number, (found, 0))
        if found != anchors and self._left:
            self._left, times = self._left - 1, 0
        self._seen[ledger.number] = (found, times + 1)
        return times + 1


def beside_pruning(ledger: Ledger, step: Callable[[], _T]) -> _T:
    """Do what reads kept states of a scope; again if others have pruned them meanwhile."""
    anew = Anew()
    while True:
        try:
            return step()
        except (PrunedError, StateIntegrityError):
            if anew.times(ledger) > 1:  # nothing was pruned: so it is as the error says
                raise


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


def _without_anchor(ledger: Ledger, timeline: int) -> Floor:
    """The floor of a timeline that was pruned and whose anchor cannot be read.

    `anchor` is 0, and of the states that were kept it has those that something else vouches for;
    the newest one is always named, by `LOST` if nothing does.
    """
    number = _number_of(newest_anchor_row(ledger, timeline))
    line = rowkinds.line(b"E", ledger.number, timeline)
    newest = ledger.storage.scan(line, rowkinds.after(line), limit=1, reverse=True)
    head = rowkinds.sequence_of(newest[0][0]) if newest else 0
    last, bases = 0, dict[int, bytes]()
    for key, row in ledger.rows_of(b"B", timeline):
        if rowkinds.sequence_of(key) > head:
            break  # it was lost together with the newest entries
        last = rowkinds.sequence_of(key)
        with suppress(StateIntegrityError):  # nothing rests on one that cannot be read
            plain = ledger.open_row(key, row)
            if _vouched(ledger, timeline, last, read_save(plain)):
                bases[last] = ledger.commit_save(plain)
    if last:
        bases.setdefault(last, LOST)
    return Floor(number, last, 0, bases)


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
        return f"timeline {timeline}"  # it is for an error's text, which must not fail itself
    return name


def no_body(ledger: Ledger, key: bytes) -> PrunedError | DamagedRecordError:
    """The error for an entry whose row is the envelope alone."""
    timeline, sequence = rowkinds.line_of(key), rowkinds.sequence_of(key)
    floor = floor_of(ledger, timeline)
    if sequence <= floor.sequence:
        return pruned(ledger, name_of(ledger, timeline), sequence, floor)
    return DamagedRecordError("its body is missing, and no anchor says that it was pruned")


# ---- losses -------------------------------------------------------------------------------------
# A loss that a timeline tells of: entries that the feed names and that are there no more.
#
# How one is found, and told, stands in `store.upkeep.losses`.


class Loss(NamedTuple):
    """Entries of a timeline that are lost."""

    first: int
    last: int
    """The lowest and the highest number of an entry that is lost."""
    head: int
    """The newest entry that the timeline had then."""
    surplus: int
    """How many more entries the feed named, all in all, than the timeline had."""
    position: Position
    """How far the feed was read."""
    at: int = 0
    """The entry that says so; 0 if none does."""

    def __str__(self) -> str:
        return loss_text(self.first, self.last)

    def operation(self) -> list[object]:
        """What the entry that tells of it says."""
        lanes = sorted(self.position.items())
        return [entries.LOST, self.first, self.last, self.head, self.surplus, lanes]


def loss_text(first: int, last: int) -> str:
    """What is lost, for people."""
    if first == last:
        return f"entry {first}, which the feed names"
    return f"entries {first} to {last}, which the feed names"


def told(sequence: int, op: list[object]) -> Loss:
    """What an entry says is lost."""
    _, first, last, head, surplus, lanes = op
    return Loss(first, last, head, surplus, dict(lanes), sequence)  # type: ignore[arg-type, call-overload]


def newest_told(ledger: Ledger, number: int) -> Loss | None:
    """The newest loss that a timeline tells of."""
    return next(all_told(ledger, number), None)


def all_told(ledger: Ledger, number: int) -> Iterator[Loss]:
    """The losses that a timeline tells of, the newest first; what cannot be read is passed over."""
    for key, row in ledger.rows_of(b"E", number, reverse=True):
        with suppress(PrunedError, StateIntegrityError):  # `verify` names it
            for op in ledger.open_entry(key, row)[1].ops:
                if op[0] == entries.LOST:
                    yield told(rowkinds.sequence_of(key), op)


def hash_of(ledger: Ledger, key: bytes, row: bytes) -> bytes:
    """The hash of an entry; empty if its envelope cannot be read."""
    try:
        return ledger.entry_hash(key, entries.split_row(row)[0].data)
    except StateIntegrityError:
        return b""  # like no other: whoever compares takes it for another entry


# ---- stated losses ------------------------------------------------------------------------------
# Rows of the past that are damaged for good: nobody has a copy, and somebody has said so.
#
# A checkpoint of main names them, each with what was found there and how the row was then. So it
# hides neither what is found of another row, nor anything else of this one, nor a later change.


class Stated(NamedTuple):
    """What a statement says of one row."""

    kind: str
    """What `verify` found: damage, chain, root, signature or unaccounted."""
    key: bytes
    print: bytes
    """By which the row is known again; empty if it is missing."""

    def fits(self, ledger: Ledger) -> bool:
        """Whether the row is as it was then."""
        return row_print(self.key, ledger.storage.get([self.key])[0]) == self.print


_UNREAD = (FormatError, KeyMissingError, PrunedError, StateIntegrityError)
"""What stands in the way of reading an entry: it states nothing then, and `verify` names it."""


def row_print(key: bytes, row: bytes | None) -> bytes:
    """By what a row is known again, also an entry of which only the envelope is left."""
    if row is None:
        return b""
    if key[:1] == b"E":
        with suppress(StateIntegrityError):  # one that cannot be read is known by all of it
            row = entries.split_row(row)[0].data
    return sha256(row).digest()[:16]


def stated(
    ledger: Ledger, trusted: Callable[[bytes, entries.Envelope], bool] = lambda *_: True
) -> dict[tuple[str, bytes], tuple[int, Stated]]:
    """All that statements of a scope say, with the entry of each, by what was found and the row."""
    found: dict[tuple[str, bytes], tuple[int, Stated]] = {}
    for key, row in ledger.rows_of(b"E", 0):
        if row[1:2] != b"\1":
            continue  # no checkpoint
        with suppress(*_UNREAD):  # what cannot be read states nothing
            envelope, body = ledger.open_entry(key, row)
            said = [one for op in body.ops if op[0] == entries.SPOILT for one in op[1]]
            if said and trusted(key, envelope):
                all_of = (Stated(*one) for one in said)
                found |= {(one.kind, one.key): (rowkinds.sequence_of(key), one) for one in all_of}
    return found


def is_stated(ledger: Ledger, error: HoldfastError) -> bool:
    """Whether what cannot be read is so because of a loss that was stated."""
    found = stated(ledger)
    row = bytes.fromhex(getattr(error, "row", ""))
    # A gap is found at the entry behind it.
    gap = bool(row) and ledger.storage.get([row])[0] is None
    return any(not row or key == row or (gap and kind == "chain") for kind, key in found)
