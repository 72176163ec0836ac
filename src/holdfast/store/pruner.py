"""Who prunes a scope now, as a cell says, and who is told when something comes to rest on it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

from holdfast.errors import Conflict
from holdfast.storage.contract import Batch, Storage
from holdfast.store import rows
from holdfast.store.beside import commit_beside
from holdfast.store.ledger import gone
from holdfast.store.swapping import Swap

if TYPE_CHECKING:
    from holdfast.store.ledger import Ledger

ATTEMPTS = 20
TOKEN = 16
PAGE = 256
"""Cells that are read, or dropped, together."""


class Pruner:
    """The right to prune a scope; whoever takes it next takes it away.

    Its cell holds a random token, and behind that how often somebody came to rest on the scope
    since (`notices`): what was found to be needed before that may no longer be all. What came is
    named by cells of their own, so that nothing else has to be read in the commit that asks.
    """

    def __init__(self, ledger: Ledger) -> None:
        self.key = rows.pruner(ledger.number)
        self.cell = os.urandom(TOKEN)
        """What the cell holds."""
        self.inherited = False
        """Whether somebody had it who did not come to an end, on whichever timeline."""
        self._ledger = ledger
        self._storage = ledger.storage

    def take(self) -> None:
        """Be the one who prunes the scope; whoever did before is told by its next commit.

        Who has it still, and begins anew, keeps it.
        """
        for _ in range(ATTEMPTS):
            held = _held(self._storage, self.key)
            if held is not None and held[:TOKEN] == self.cell[:TOKEN]:
                self.cell = held
                return
            self.cell, tombstone = os.urandom(TOKEN), [self._ledger.tombstone]
            try:
                self._storage.commit(Batch(cells=[(self.key, held, self.cell)], absent=tombstone))
                self.inherited = held is not None
                self._forget(mine=False)  # of others who were cut short
                return
            except Conflict:
                if self._ledger.erased():
                    raise gone(self._ledger.scope) from None
        raise Conflict(f"{self._ledger.scope}: others prune it, too; try again")

    def commit(self, batch: Batch) -> bool:
        """Commit, if it is still the one who prunes; False if rows were sealed again meanwhile."""
        batch.absent.append(self._ledger.tombstone)
        return self._commit(batch, leave=False)

    def leave(self) -> None:
        """All is pruned."""
        self._commit(Batch(), leave=True)
        self._forget(mine=True)

    def came(self, timeline: int) -> set[int]:
        """Entries of a timeline that others came to rest on since it was taken."""
        mine = rows.arrivals(self._ledger.number, self.cell[:TOKEN])
        named = (rows.arrived_at(key) for page in self._pages(mine) for key, _ in page)
        return {sequence for line, sequence in named if line == timeline}

    def _pages(self, prefix: bytes) -> Iterator[list[tuple[bytes, bytes]]]:
        low = prefix + b"\0" if prefix == self.key else prefix
        while page := self._storage.cells(low, rows.after(prefix), limit=PAGE):
            yield page
            low = page[-1][0] + b"\0"

    def _forget(self, *, mine: bool) -> None:
        """Drop what came while it pruned, or what others left."""
        own = rows.arrivals(self._ledger.number, self.cell[:TOKEN])
        for page in self._pages(own if mine else self.key):
            over = [(key, by, None) for key, by in page if mine or not key.startswith(own)]
            with suppress(Conflict):  # somebody else was faster
                self._storage.commit(Batch(cells=[*over]))

    def _commit(self, batch: Batch, *, leave: bool) -> bool:
        asked = batch.cells
        for _ in range(ATTEMPTS):
            batch.cells = [*asked, (self.key, self.cell, None if leave else self.cell)]
            try:
                commit_beside(self._storage, batch)
                return True
            except Conflict as conflict:
                if self._ledger.erased():
                    raise gone(self._ledger.scope) from None
                if self.key not in conflict.keys:
                    return False
            self.look()
        raise Conflict(f"{self._ledger.scope}: others rest on it again and again; prune it again")

    def look(self) -> bytes:
        """What the cell holds, as others have counted in it; refused if it is somebody's own."""
        found = _held(self._storage, self.key) or b""
        if found[:TOKEN] != self.cell[:TOKEN]:
            raise Conflict(
                f"{self._ledger.scope}: another process prunes this scope now, and goes on"
            )
        self.cell = found
        return found


def notices(storage: Storage, scope: int, at: bytes, by: bytes) -> list[Swap]:
    """What a commit that comes to rest on an entry expects, and tells whoever prunes its scope."""
    key = rows.pruner(scope)
    held = _held(storage, key)
    if held is None:
        return [(key, None, None)]
    count = int.from_bytes(held[TOKEN:], "big") + 1
    told = held[:TOKEN] + count.to_bytes(8, "big")
    return [(key, held, told), (rows.arrival(scope, held[:TOKEN], at, by), None, by)]


def taken_over(storage: Storage, scope: int) -> Swap:
    """What puts a new token into the cell of a scope, whoever it says prunes that now."""
    key = rows.pruner(scope)
    return key, _held(storage, key), os.urandom(TOKEN)


def _held(storage: Storage, key: bytes) -> bytes | None:
    return dict(storage.cells(key, key + b"\0", limit=1)).get(key)
