"""What checkpoints of other scopes rest on: cells, from which retention learns what is in use.

A cell names both ends by their numbers: an entry of one scope, and the checkpoint of another that
rests on it. It is put by the commit that makes the checkpoint, which fails if that entry is pruned
by then, and which whoever prunes that scope notices (`pruner`). It outlives the checkpoint: whoever
asks looks whether that is still there, and retention drops cells that stand for nothing more.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from holdfast.errors import Conflict, StateIntegrityError
from holdfast.storage.contract import Batch
from holdfast.store import entries, rows
from holdfast.store.breathing import Breath
from holdfast.store.pruner import notice

if TYPE_CHECKING:
    from holdfast.store.core import Core
    from holdfast.store.ledger import Ledger
    from holdfast.store.stage import Stage
    from holdfast.store.timeline import Timeline
    from holdfast.store.verify import _Check

SLICE = 256
"""Cells that are looked at, or dropped, together."""


class Rest(NamedTuple):
    """A checkpoint that rests on an entry of another scope."""

    timeline: int
    sequence: int
    """The entry that it rests on."""
    by: bytes
    """Key of the checkpoint's entry."""
    directory: bytes
    """Key of the tombstone that its scope would have."""

    def name(self, core: Core) -> str:
        """What people call the checkpoint."""
        key = self.directory[:21] + bytes([rows.THERE])
        ledger = core.ledger_of(key, core.storage.get([key])[0] or b"")
        number = int.from_bytes(self.by[7:9], "big")
        names = {line: name for line, name, _, _ in core.timelines(ledger)} if number else {}
        return f"{ledger.scope} {names.get(number, 'main')}@{rows.sequence_of(self.by)}"


def rest_on(core: Core, stage: Stage, line: Timeline, sequence: int, anchors: int) -> None:
    """Let the next entry of a stage, a checkpoint, rest on an entry of another scope.

    `anchors` is the number of the newest anchor when it was found that the state there is kept.
    """
    other = line.ledger
    if other.number in core.announcing:
        raise Conflict(f"{other.scope}: it is being pruned; try again")
    at = rows.entry(line.prefix, sequence)
    by = rows.entry(stage.timeline.prefix, stage.sequence + 1)
    stage.absent.append(rows.anchor(other.number, line.number, anchors + 1))
    stage.cells.append(notice(core.storage, other.number))
    stage.cells.append((rows.rest(at, by), None, stage.ledger.tombstone))


def rests_on(ledger: Ledger) -> Iterator[Rest]:
    """The checkpoints that rest on entries of a scope."""
    for key, directory, there in _cells(ledger):
        if there:
            at, by = rows.ends_of(key)
            yield Rest(int.from_bytes(at[7:9], "big"), rows.sequence_of(at), by, directory)


def forget_rests(ledger: Ledger) -> None:
    """Drop the cells of checkpoints that are there no longer."""
    over = [(key, directory, None) for key, directory, there in _cells(ledger) if not there]
    for start in range(0, len(over), SLICE):
        with suppress(Conflict):  # somebody else was faster; what is left goes next time
            ledger.storage.commit(Batch(cells=[*over[start : start + SLICE]]))


def check_rests(check: _Check) -> None:
    """Tell what is no cell of this kind, or is about scopes that there never were."""
    low = b"R"
    while page := check.core.storage.cells(low, b"S", limit=1000):
        for key, directory in page:
            ends = [rows.scope_of(end) for end in rows.ends_of(key)]
            right = len(key) == rows.REST and len(directory) == rows.DIRECTORY
            if not right or not all(check.knows(number) for number in ends):
                check.find("unaccounted", rows.describe(key), "nothing accounts for this cell")
        low = page[-1][0] + b"\0"


def _cells(ledger: Ledger) -> Iterator[tuple[bytes, bytes, bool]]:
    """Each cell, and whether its checkpoint is there: scope not deleted, entry not pruned."""
    breath = Breath()
    low = prefix = rows.rests(ledger.number)
    while page := ledger.storage.cells(low, rows.after(prefix), limit=SLICE):
        wanted = [(rows.deletion(d), d, rows.ends_of(key)[1]) for key, d in page]
        found = iter(ledger.storage.get([key for keys in wanted for key in keys]))
        for key, directory in page:
            deleted, erased, row = next(found), next(found), next(found)
            ended = deleted is not None or erased is not None or row is None
            yield key, directory, not ended and _is_whole(row or b"")
            breath()
        low = page[-1][0] + b"\0"


def _is_whole(row: bytes) -> bool:
    try:
        return bool(entries.split_row(row)[1])
    except StateIntegrityError:
        return True  # nobody can tell: what it rests on stays
