"""Comparing and swapping cells, an unknown outcome settled; and counting what no feed names."""

from __future__ import annotations

from holdfast.errors import Conflict, OutcomeUnknown, Unavailable
from holdfast.storage.contract import Batch, Moment, Storage
from holdfast.storage.rows import again
from holdfast.store.names import rowkinds

Swap = tuple[bytes, bytes | None, bytes | None]
"""A cell's key, what it is expected to hold, and what it is to hold; None: it is absent."""


def cell_at(storage: Moment, key: bytes) -> bytes | None:
    """What a cell holds; None if there is none."""
    return dict(storage.cells(key, key + b"\0", limit=1)).get(key)


def row_at(storage: Moment, key: bytes) -> bytes | None:
    """The record under a key; None if there is none."""
    return dict(storage.scan(key, key + b"\0", limit=1)).get(key)


def swap_cells(storage: Storage, cells: list[Swap], *, beside: Batch | None = None) -> bool:
    """Compare and swap; an unknown outcome is settled by the first cell.

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
                landed = unknown is not None and cell_at(storage, key) == new
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
        batch.cells = asked.copy()
        for key in sorted(keys):
            held = cell_at(storage, key)
            count = int.from_bytes(held or b"", "big") + 1
            batch.cells.append((key, held, count.to_bytes(8, "big")))
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
