"""A loss that a timeline tells of: entries that the feed names and that are there no more.

How one is found, and told, stands in `store.upkeep.losses`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

from holdfast.errors import PrunedError, StateIntegrityError
from holdfast.store.journal import entry as entries
from holdfast.store.journal.feed import Position
from holdfast.store.journal.ledger import Ledger
from holdfast.store.names import rowkinds

PAGE = 1000


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
    line = rowkinds.line(b"E", ledger.number, number)
    high = rowkinds.after(line)
    while page := ledger.storage.scan(line, high, limit=PAGE, reverse=True):
        for key, row in page:
            with suppress(PrunedError, StateIntegrityError):
                for op in ledger.open_entry(key, row)[1].ops:
                    if op[0] == entries.LOST:
                        yield told(rowkinds.sequence_of(key), op)
        high = page[-1][0]


def hash_of(ledger: Ledger, key: bytes, row: bytes) -> bytes:
    """The hash of an entry; empty if its envelope cannot be read."""
    try:
        return ledger.entry_hash(key, entries.split_row(row)[0].data)
    except StateIntegrityError:
        return b""
