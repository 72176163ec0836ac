"""The right to write to a replica, and what a replica says of itself: one cell.

The cell holds whether the replica is whole, who writes to it now, if anybody does, and a count that
every commit of theirs raises. All that is written expects the cell as it was: so of two who sync
one replica at once, the second either waits for the first or, if that stands still, takes over, and
then nothing of the first lands any more.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import suppress

import msgspec

from holdfast.errors import (
    Conflict,
    DamagedRecordError,
    HoldfastError,
    InvalidInputError,
    RefusedError,
    ReplicaSplitError,
)
from holdfast.storage.contract import Batch, Moment, Storage
from holdfast.storage.rows import again
from holdfast.store.names import rowkinds
from holdfast.store.names.cells import Swap, cell_at
from holdfast.store.names.threads import safe_point
from holdfast.store.open import META

STILL = 2.0
"""Seconds after which somebody who commits nothing is taken for cut short."""
LONGEST = 30.0
"""Seconds to wait for somebody who goes on."""


class Mark(msgspec.Struct, array_like=True, frozen=True):
    """What the cell holds."""

    format: int
    whole: bool
    """False as long as the replica is being made: then it is no store yet."""
    token: bytes
    """Of who writes to it now; empty if nobody does."""
    count: int


_encode = msgspec.msgpack.Encoder().encode
_decoder = msgspec.msgpack.Decoder(Mark)


def cell_of(storage: Moment) -> bytes | None:
    """What a storage holds that says that it is a replica; None if it is none."""
    return cell_at(storage, rowkinds.FOLLOWS)


def mark_of(storage: Moment) -> tuple[bytes | None, Mark | None]:
    """What a storage says of itself as a replica, as it is stored and read; None if it is none."""
    held = cell_of(storage)
    if held is None:
        return None, None
    try:
        return held, _decoder.decode(held)
    except msgspec.MsgspecError:
        raise DamagedRecordError(
            "the cell that says that this is a replica cannot be read: make it anew (remake), or "
            "promote it if its store is lost",
            "replica",
        ) from None


class Claim:
    """The right to write to one replica. Used by one thread.

    With `anew`, what the replica says of itself need not be readable.
    """

    def __init__(self, storage: Storage, *, anew: bool = False) -> None:
        self.storage = storage
        self._anew = anew
        self.whole = False
        self._token = os.urandom(16)
        self._count = 0
        self._held: bytes | None = None
        self._found: bytes | None = None
        """What the cell held before this took it."""
        self._shown = time.monotonic()

    def take(self, check: Callable[[], None]) -> None:
        """Be the one who writes, also to a storage in which nothing is yet.

        `check` refuses what may not be written to. It is asked again whenever somebody else was
        there: what is waited for may have been promoted meanwhile, which is not to be undone.
        """

        def step() -> None:
            held, mark = self._wait()
            store = self.storage.get([META])[0] is not None
            check()
            self._held = self._found = held
            self.whole, self._count = (mark.whole, mark.count) if mark is not None else (store, 0)
            # Without a cell nothing else tells whether a store was made there since, or ended.
            expected = [META] if held is None else []
            self.commit(Batch(present=expected) if store else Batch(absent=expected))

        again(step, "others write to this replica again and again; try again")

    def _wait(self) -> tuple[bytes | None, Mark | None]:
        """The cell, once nobody writes or whoever did stands still."""
        begun = seen = time.monotonic()
        last, mark = self._look()
        while mark is not None and mark.token and time.monotonic() < seen + STILL:
            safe_point()
            if time.monotonic() > begun + LONGEST:
                raise RefusedError("another process brings this replica up to date, and goes on")
            time.sleep(0.05)
            held, mark = self._look()
            if held != last:
                last, seen = held, time.monotonic()
        return last, mark

    def _look(self) -> tuple[bytes | None, Mark | None]:
        try:
            return mark_of(self.storage)
        except DamagedRecordError:  # it is made anew
            if not self._anew:
                raise
        return cell_of(self.storage), Mark(1, False, b"", 0)

    def commit(self, batch: Batch, *, whole: bool | None = None) -> None:
        """Commit to the replica, if nobody else has taken over."""
        whole = self.whole if whole is None else whole
        try:
            self._swap(batch, Mark(1, whole, self._token, self._count + 1))
        except Conflict as conflict:  # of its own cell: somebody else writes now
            if rowkinds.FOLLOWS not in conflict.keys:
                raise
            raise Conflict(
                "another process took this replica over and goes on, or promoted it; sync it again",
                [rowkinds.FOLLOWS],
            ) from None
        self.whole = whole

    def beating(self, rows: Iterator[tuple[bytes, bytes]]) -> Iterator[tuple[bytes, bytes]]:
        """Much that is read while this is held: others see that it goes on, though nothing is
        committed. A single page is to take less than half of `STILL`."""
        for row in rows:
            if time.monotonic() > self._shown + STILL / 2:
                safe_point()
                self.commit(Batch())
            yield row

    def check_other(self, source: Storage) -> None:
        """Refuse what is the source itself, by another name; then the cell is as it was found."""
        if cell_of(source) == self._held:
            self.storage.commit(Batch(cells=[(rowkinds.FOLLOWS, self._held, self._found)]))
            raise InvalidInputError("this is the place of the store itself; name another one")

    def release(self) -> None:
        """Let others write; if that fails, they wait until this stands still."""
        with suppress(HoldfastError):
            self._swap(Batch(), Mark(1, self.whole, b"", self._count + 1))

    def _swap(self, batch: Batch, mark: Mark) -> None:
        new = _encode(mark)
        batch.cells.append((rowkinds.FOLLOWS, self._held, new))
        self.storage.commit(batch)
        self._held, self._count = new, mark.count
        self._shown = time.monotonic()


# ---- row writer ---------------------------------------------------------------------------------
# Rows on their way to a replica, in commits of bounded size.


SIZE = 4 << 20
"""Bytes that are committed together, or a little more."""
ROWS = 2000


class Writer:
    """Collects what is to be written, and commits it when there is enough."""

    def __init__(self, claim: Claim) -> None:
        self.storage = claim.storage
        self.claim = claim
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

    def ease(self) -> None:
        """Commit, if there is enough."""
        batch = self._batch
        count = len(batch.puts) + len(batch.swaps) + len(batch.drops) + len(batch.cells)
        if self._waiting >= SIZE or count >= ROWS:
            self.flush()

    def flush(self, *, whole: bool | None = None) -> None:
        """Commit what waits."""
        safe_point()
        batch, self._batch, self._waiting = self._batch, Batch(), 0
        if not (batch.puts or batch.swaps or batch.drops or batch.cells) and whole is None:
            return
        try:
            self.claim.commit(batch, whole=whole)
        except Conflict as conflict:  # of a row that the source does not account for
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
