"""Cells of schedules: where they lie, and how they are sealed.

What a schedule says is the business of the layer above: here it is an array that begins with its
name. One cell more counts how often a schedule was added, replaced or removed, so that a runner
sees with one small read that it has to read them all again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.errors import DamagedRecordError, Unavailable
from holdfast.storage.rows import each
from holdfast.store.lease import Lease
from holdfast.store.names import rowkinds as rows
from holdfast.store.names.cells import Swap, cell_at, swap_cells

if TYPE_CHECKING:
    from holdfast.store.commit.group import Core

ATTEMPTS = 50
"""All schedules of a store share one count, so that many at once meet there."""

_encode = msgspec.msgpack.Encoder().encode
_count = msgspec.msgpack.Decoder(list[int]).decode
_fields = msgspec.msgpack.Decoder(list[Any]).decode


class ScheduleCells:
    """The cells of all schedules of one open store."""

    def __init__(self, core: Core) -> None:
        self.core = core

    def key_of(self, name: str) -> bytes:
        """Key of a schedule's cell."""
        return rows.schedule(self.core.tag(b"schedule", name))

    def get(self, key: bytes) -> bytes | None:
        """A cell as it is stored; None if there is none."""
        return cell_at(self.core.storage, key)

    def all(self) -> Iterator[tuple[bytes, bytes]]:
        """Keys and cells of all schedules, as they are stored."""
        return each(self.core.storage.cells, rows.SCHEDULES + b"\0", rows.after(rows.SCHEDULES))

    def count(self) -> bytes | None:
        """A cell that differs as soon as a schedule was added, replaced or removed."""
        return self.get(rows.SCHEDULES)

    def open(self, key: bytes, row: bytes) -> bytes:
        """What a cell says, if it is its own."""
        plain = self.core.open_row(key, row)
        try:
            named = self.key_of(_fields(plain)[0]) == key
        except (msgspec.DecodeError, IndexError, AttributeError):
            place = rows.describe(key)
            raise DamagedRecordError(f"{place}: it cannot be decoded", place) from None
        if not named:
            raise DamagedRecordError(f"{rows.describe(key)}: it names another schedule")
        return plain

    def replace(self, name: str, made: Callable[[bytes | None], bytes | None]) -> bool:
        """Put what `made` gives for what is there (both plain; None: absent), and count it.

        If both are equal nothing is written; tells whether something was. What is damaged counts as
        absent: this is how it is mended. Done under a lease, it is done only if that is held.
        """
        self.core.check_writable()
        key = self.key_of(name)
        for _ in range(ATTEMPTS):
            counted, old = self.count(), self.get(key)
            before, damaged = None, False
            try:
                before = self.open(key, old) if old is not None else None
            except DamagedRecordError:  # putting another is how it is mended
                damaged = True
            after = made(before)
            if after == before and not damaged:
                return False
            new = self.core.seal_row(key, after) if after is not None else None
            try:
                number = read_count(self.core, counted) if counted is not None else 0
            except (DamagedRecordError, msgspec.DecodeError):
                number = self.core.clock.claimed()  # more than it can have been
            next_ = self.core.seal_row(rows.SCHEDULES, _encode([number + 1]))
            swaps: list[Swap] = [(key, old, new), (rows.SCHEDULES, counted, next_)]
            if swap_cells(self.core.storage, [*swaps, *self.core.leases.expected()]):
                return True
            self.core.leases.stand()
        raise Unavailable("schedules do not stand still; try again")

    def advance(self, swaps: list[Swap], lease: Lease) -> bool:
        """Swap cells, if the lease is still held by whom it was; all of them or none."""
        return swap_cells(self.core.storage, [*swaps, (lease.key, lease.cell, lease.cell)])


def read_count(core: Core, cell: bytes) -> int:
    """How often schedules were added, replaced or removed."""
    return _count(core.open_row(rows.SCHEDULES, cell))[0]
