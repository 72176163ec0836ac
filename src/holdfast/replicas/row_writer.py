"""Rows on their way to a replica, in commits of bounded size."""

from __future__ import annotations

from holdfast.errors import Conflict, ReplicaSplitError
from holdfast.replicas.replica_cell import Claim
from holdfast.storage.contract import Batch
from holdfast.store.names import rowkinds
from holdfast.store.names.cells import Swap
from holdfast.store.names.threads import safe_point

SIZE = 4 << 20
"""Bytes that are committed together, or a little more."""
ROWS = 2000


class Writer:
    """Collects what is to be written, and commits it when there is enough."""

    def __init__(self, claim: Claim) -> None:
        self.storage = claim.storage
        self.rows = claim.beating(claim.storage)
        """The same, for reading much of it."""
        self._claim = claim
        self._batch = Batch()
        self._waiting = 0
        self.sent = self.removed = self.bytes = 0

    def put(self, key: bytes, row: bytes) -> None:
        """Write a row that the replica does not have."""
        self._batch.puts.append((key, row))
        self._batch.absent.append(key)
        self._add(row)

    def swap(self, key: bytes, old: bytes, new: bytes) -> None:
        """Write a row in the place of another."""
        self._batch.swaps.append((key, old, new))
        self._add(new)

    def drop(self, key: bytes) -> None:
        """Remove a row."""
        self._batch.drops.append(key)
        self._waiting += len(key)

    def cell(self, swap: Swap) -> None:
        """Write or remove a cell."""
        self._batch.cells.append(swap)
        self._waiting += len(swap[2] or b"")

    def _add(self, row: bytes) -> None:
        self.bytes += len(row)
        self._waiting += len(row)

    @property
    def full(self) -> bool:
        """Whether there is enough for a commit."""
        batch = self._batch
        count = len(batch.puts) + len(batch.swaps) + len(batch.drops) + len(batch.cells)
        return self._waiting >= SIZE or count >= ROWS

    def ease(self) -> None:
        """Commit, if there is enough."""
        if self.full:
            self.flush()

    def flush(self, *, whole: bool | None = None) -> None:
        """Commit what waits."""
        safe_point()
        batch, self._batch, self._waiting = self._batch, Batch(), 0
        if not (batch.puts or batch.swaps or batch.drops or batch.cells) and whole is None:
            return
        try:
            self._claim.commit(batch, whole=whole)
        except Conflict as conflict:
            if rowkinds.FOLLOWS in conflict.keys:
                raise
            raise split() from None
        self.sent += len(batch.puts) + len(batch.swaps)
        self.removed += len(batch.drops)


def split() -> ReplicaSplitError:
    """The error for a replica that holds what its source does not."""
    return ReplicaSplitError(
        "the replica holds commits that the store does not: somebody wrote to it, or the store "
        "was put back to an older state or lost its newest entries. Nothing was overwritten. Look "
        "at both; then promote the replica and use it instead, recover the store with it as a "
        "copy, or have it made anew (remake) and lose what only it holds"
    )
