"""Changes of stored rows that the feed does not name: they are counted, in a cell for each scope.

What adds entries extends the feed. What does not (dropping what was pruned or erased, sealing rows
again, signatures beside a checkpoint, healing) raises the count of the scope whose rows it changes,
in the same commit; for rows that belong to no scope there is one count more. So whoever keeps a
copy up to date finds by the feed and by these counts all that it has to look at.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from holdfast.errors import Conflict
from holdfast.storage.contract import Batch, Storage
from holdfast.store.names import rowkinds
from holdfast.store.names.cells import Swap, cell_at

ATTEMPTS = 50
FAR = 1 << 32
"""More than is counted while somebody looks."""


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
    for _ in range(ATTEMPTS):
        batch.cells = [*asked, *(_next(storage, key) for key in sorted(keys))]
        try:
            storage.commit(batch)
            return
        except Conflict as conflict:
            others = tuple(key for key in conflict.keys if key not in keys)
            if others or not conflict.keys:
                conflict.keys = others
                raise
    raise Conflict("others were always faster to change rows of the same scope; try again", [])


def _next(storage: Storage, key: bytes) -> Swap:
    held = cell_at(storage, key)
    return key, held, (_number(held) + 1).to_bytes(8, "big")


def _number(count: bytes | None) -> int:
    return int.from_bytes(count or b"", "big")


def is_same(one: Storage, other: Storage) -> bool:
    """Whether two storages are one, by whatever names: what the first counts, the second shows.

    It counts far ahead, for rows that belong to no scope, which has copies look at those once more.
    """
    for _ in range(ATTEMPTS):
        held = cell_at(one, rowkinds.BESIDE)
        far = max(_number(held), _number(cell_at(other, rowkinds.BESIDE))) + FAR
        try:
            one.commit(Batch(cells=[(rowkinds.BESIDE, held, far.to_bytes(8, "big"))]))
        except Conflict:
            continue
        return _number(cell_at(other, rowkinds.BESIDE)) >= far
    raise Conflict("others were always faster to change rows of the store; try again", [])


def odd_counts(storage: Storage, known: Callable[[int], bool]) -> Iterator[bytes]:
    """Keys of cells of this kind that count nothing, or for a scope that there never was."""
    low = rowkinds.BESIDE
    while page := storage.cells(low, rowkinds.after(rowkinds.BESIDE)):
        for key, count in page:
            whole = key == rowkinds.BESIDE or (len(key) == 7 and known(rowkinds.scope_of(key)))
            if not whole or len(count) != 8:
                yield key
        low = page[-1][0] + b"\0"
