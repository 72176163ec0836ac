"""Cursors: where a named reader of the feed is, kept in a cell.

A cell is no state: a cursor has no history, adds nothing to the feed that it is about, and is not
put back by a restore. It is sealed, and written only while its reader holds its lease, so that of
several processes one goes on where another ended, and none goes back.
"""

from __future__ import annotations

import msgspec

from holdfast.errors import DamagedRecordError
from holdfast.storage.rows import each
from holdfast.store.commit.group import Core
from holdfast.store.lease import Lease
from holdfast.store.names import rowkinds
from holdfast.store.names.cells import cell_at, swap_cells
from holdfast.store.names.items import Position
from holdfast.store.names.rowkinds import after

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(tuple[str, dict[int, int]]).decode


class Cursor:
    """The cursor of one reader, by its name. Names of different features begin differently."""

    def __init__(self, core: Core, name: str) -> None:
        self._core = core
        self._name = name
        self._key = rowkinds.cursor(core.tag(b"cursor", name))

    def get(self) -> Position | None:
        """Where the reader was when it last said so; None if it never did.

        One that cannot be read is damage: beginning anew would tell things twice, or not at all.
        """
        cell = cell_at(self._core.storage, self._key)
        if cell is None:
            return None
        name, position = _read(self._core, self._key, cell)
        if name != self._name:
            place = rowkinds.describe(self._key)
            raise DamagedRecordError(f"{place}: it names another reader", place)
        return position

    def begin(self, position: Position) -> None:
        """Say where the reader begins, if it never was anywhere."""
        self._core.check_writable()
        new = self._core.seal_row(self._key, _encode((self._name, dict(position))))
        swap_cells(self._core.storage, [(self._key, None, new)])

    def put(self, position: Position, lease: Lease) -> bool:
        """Say where the reader is; False if the lease is another's by now, who goes on."""
        self._core.check_writable()
        old = cell_at(self._core.storage, self._key)
        new = self._core.seal_row(self._key, _encode((self._name, dict(position))))
        return swap_cells(
            self._core.storage, [(self._key, old, new), (lease.key, lease.cell, lease.cell)]
        )


def cursors(core: Core, prefix: str) -> dict[str, Position]:
    """Where all readers are whose names begin so, by the rest of their names."""
    low = rowkinds.cursor(b"")
    found = (_read(core, key, cell) for key, cell in each(core.storage.cells, low, after(low)))
    return {name[len(prefix) :]: at for name, at in found if name.startswith(prefix)}


def _read(core: Core, key: bytes, cell: bytes) -> tuple[str, Position]:
    name, position = core.decoded(key, cell, _decode)
    return name, Position(position)
