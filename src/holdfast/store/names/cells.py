"""Comparing and swapping cells, an unknown outcome settled; and counting what no feed names."""

from __future__ import annotations

import threading
from collections import deque
from contextlib import suppress

from holdfast.errors import Conflict, OutcomeUnknown, Unavailable
from holdfast.storage.contract import Batch, Moment, Storage
from holdfast.storage.rows import again
from holdfast.store.names import rowkinds

GROUP = 64
"""Swaps that go down together, at most."""
Swap = tuple[bytes, bytes | None, bytes | None]
"""A cell's key, what it is expected to hold, and what it is to hold; None: it is absent."""


def cell_at(storage: Moment, key: bytes) -> bytes | None:
    """What a cell holds; None if there is none."""
    return dict(storage.cells(key, key + b"\0", limit=1)).get(key)


def row_at(storage: Moment, key: bytes) -> bytes | None:
    """The record under a key; None if there is none."""
    return dict(storage.scan(key, key + b"\0", limit=1)).get(key)


def swap_cells(
    storage: Storage, cells: list[Swap], *, beside: Batch | None = None, sent: bool = False
) -> bool:
    """Compare and swap; an unknown outcome, also one of before (`sent`), is settled by the first
    cell.

    The rows of a batch `beside` go along; a conflict with what that expects is raised.
    What it expects never comes back once it is gone, and nobody else writes equal bytes. So the
    same batch can be sent again, and after a conflict the cell says whether an earlier one landed.
    """
    batch = beside or Batch()
    batch.cells = cells
    key, _, new = cells[0]
    unknown: OutcomeUnknown | None = None
    for _ in range(5):
        try:
            try:
                storage.commit(batch)
            except Conflict as conflict:  # or it landed before, and nobody knew
                landed = (sent or unknown is not None) and cell_at(storage, key) == new
                if not landed and beside is not None and key not in conflict.keys:
                    raise  # the cell is as it was: its owner can go on
                return landed
            return True
        except OutcomeUnknown as error:
            unknown = error
        except Unavailable:
            if unknown is None:
                raise
    assert unknown is not None
    raise unknown


class _Asked:
    """A swap on its way."""

    def __init__(self, cells: list[Swap]) -> None:
        self.cells = cells
        self.answer: bool | Exception | None = None


class Swaps:
    """The swaps of one open store: those that wait for each other go down in one commit.

    A commit waits for the disk, and many leases are taken and given back at one moment.
    """

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._waiting: deque[_Asked] = deque()
        self._lock = threading.Lock()

    def run(self, cells: list[Swap]) -> bool:
        """Compare and swap; False if a cell was another. Of cells that are taken out of use, or
        get bytes that nobody else writes."""
        mine = _Asked(cells)
        self._waiting.append(mine)
        try:
            with self._lock:
                if mine.answer is None:
                    self._commit(mine)
        finally:
            self._waiting.remove(mine)
        if isinstance(mine.answer, Exception):
            raise mine.answer
        return bool(mine.answer)

    def _commit(self, mine: _Asked) -> None:
        group, keys = [mine], {cell[0] for cell in mine.cells}
        for one in self._waiting.copy():
            theirs = {cell[0] for cell in one.cells}
            if one.answer is None and not keys & theirs and len(group) < GROUP:
                group.append(one)
                keys |= theirs
        if len(group) > 1:
            with suppress(Conflict, OutcomeUnknown, Unavailable):  # then each has its own answer
                if swap_cells(self._storage, [cell for one in group for cell in one.cells]):
                    for one in group:
                        one.answer = True
                    return
        for one in group:
            try:
                # It may have landed with others', by who was interrupted then, or did not know.
                one.answer = swap_cells(self._storage, one.cells, sent=True)
            except Exception as error:
                one.answer = error


# ---- cell counts --------------------------------------------------------------------------------
# Changes of stored rows that the feed does not name: they are counted, in a cell for each scope.
#
# What adds entries extends the feed. What does not (dropping what was pruned or erased, sealing
# rows again, signatures beside a checkpoint, healing) raises the count of the scope whose rows it
# changes, in the same commit; for rows that belong to no scope there is one count more. So whoever
# keeps a copy up to date finds by the feed and by these counts all that it has to look at.


def commit_beside(storage: Storage, batch: Batch) -> None:
    """Commit a batch that extends no lane, and count it.

    A conflict names what the batch itself expects: others who count at the same moment are waited
    for.
    """
    changed = [*batch.drops, *batch.blanks]
    changed += [key for key, _ in batch.puts]
    changed += [key for key, _, _ in batch.swaps]
    keys = {rowkinds.beside(key) for key in changed}
    asked = batch.cells

    def commit() -> None:
        batch.cells = [*asked, *(_next(storage, key) for key in sorted(keys))]
        storage.commit(batch)

    def counted_alone(conflict: Conflict) -> bool:
        others = tuple(key for key in conflict.keys if key not in keys)
        alone = bool(conflict.keys) and not others
        conflict.keys = others
        return alone

    again(
        commit,
        "others were always faster to change rows of the same scope; try again",
        when=counted_alone,
    )


def _next(storage: Storage, key: bytes) -> Swap:
    held = cell_at(storage, key)
    return key, held, (_number(held) + 1).to_bytes(8, "big")


def _number(count: bytes | None) -> int:
    return int.from_bytes(count or b"", "big")
