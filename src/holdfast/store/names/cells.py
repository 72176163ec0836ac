"""Comparing and swapping cells: an unknown outcome is settled, and what comes at once goes at once.

A swap is a commit of its own, which waits for the disk. Where many leases are taken and given back
at one moment, those that wait for each other go down in one commit.
"""

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
    storage: Storage, cells: list[Swap], *, sent: bool = False, beside: Batch | None = None
) -> bool:
    """Compare and swap; an unknown outcome is settled by the first cell, also that of an earlier
    call, if the same was `sent` by one.

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
            except (
                Conflict
            ) as conflict:  # or it landed at an earlier call, whose outcome nobody knew
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
    """One swap on its way."""

    __slots__ = ("answer", "cells", "error", "sent")

    def __init__(self, cells: list[Swap]) -> None:
        self.cells = cells
        self.sent = False
        """Whether somebody who was interrupted may have stored it: then it goes alone."""
        self.answer: bool | None = None
        self.error: Exception | None = None

    @property
    def done(self) -> bool:
        return self.answer is not None or self.error is not None


class Swaps:
    """The swaps of one open store, by any number of threads."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._waiting: deque[_Asked] = deque()
        self._lock = threading.Lock()

    def run(self, cells: list[Swap]) -> bool:
        """Compare and swap, together with what others wait for; False if a cell was another.

        Ctrl-C ends the call of its thread alone: others do themselves what is theirs.
        """
        asked = _Asked(cells)
        try:
            self._waiting.append(asked)
            while not asked.done:
                with self._lock:
                    if not asked.done:
                        self._commit_waiting()
        except BaseException:  # Ctrl-C: nobody waits for this one's answer any more
            with self._lock, suppress(ValueError):
                self._waiting.remove(asked)
            raise
        if asked.error is not None:
            raise asked.error
        return bool(asked.answer)

    def _commit_waiting(self) -> None:
        group: list[_Asked] = []
        try:
            self._take(group)
            if len(group) == 1 or not self._try(group):
                for asked in group:  # one of them stands in the way of the others
                    self._try([asked])
        except BaseException:  # Ctrl-C: what others wait for is theirs to do, in the same order
            self._waiting.extendleft(reversed([one for one in group if not one.done]))
            raise

    def _take(self, group: list[_Asked]) -> None:
        keys: set[bytes] = set()
        while self._waiting and len(group) < GROUP:
            one = self._waiting[0]
            mine = {cell[0] for cell in one.cells}
            if keys & mine or (group and (one.sent or group[0].sent)):
                break  # it rests on what one of these makes of a cell, or is to go alone
            keys |= mine
            # In one step: Ctrl-C comes before it or behind it.
            group.extend(map(deque.popleft, (self._waiting,)))

    def _try(self, group: list[_Asked]) -> bool:
        """Commit some together; False if that has to be done one by one."""
        answer: bool | None = None
        error: Exception | None = None
        sent = len(group) == 1 and group[0].sent
        for one in group:
            one.sent = True
        try:
            cells = [cell for one in group for cell in one.cells]
            answer = swap_cells(self._storage, cells, sent=sent)
        except Exception as wrong:
            error = wrong
        if answer or error is not None or len(group) == 1:
            for one in group:
                one.answer, one.error = answer, error
        return bool(answer) or error is not None


# ---- cell counts --------------------------------------------------------------------------------
# Changes of stored rows that the feed does not name: they are counted, in a cell for each scope.
#
# What adds entries extends the feed. What does not (dropping what was pruned or erased, sealing
# rows again, signatures beside a checkpoint, healing) raises the count of the scope whose rows it
# changes, in the same commit; for rows that belong to no scope there is one count more. So whoever
# keeps a copy up to date finds by the feed and by these counts all that it has to look at.


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


def is_same(one: Storage, other: Storage) -> bool:
    """Whether two storages are one, by whatever names: what the first counts, the second shows.

    It counts far ahead, for rows that belong to no scope, which has copies look at those once more.
    """

    def count() -> int:
        held = cell_at(one, rowkinds.BESIDE)
        far = max(_number(held), _number(cell_at(other, rowkinds.BESIDE))) + FAR
        one.commit(Batch(cells=[(rowkinds.BESIDE, held, far.to_bytes(8, "big"))]))
        return far

    far = again(count, "others were always faster to change rows of the store; try again")
    return _number(cell_at(other, rowkinds.BESIDE)) >= far
