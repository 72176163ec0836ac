"""What checkpoints of other scopes rest on: cells, from which retention learns what is in use.

A cell names both ends by their numbers: an entry of one scope, and the checkpoint of another that
rests on it. It is put by the commit that makes the checkpoint, which fails if that entry is pruned
by then, and which whoever prunes that scope notices (`pruner`). It outlives the checkpoint: whoever
asks looks whether that is still there, and retention drops cells that stand for nothing more.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.errors import (
    Conflict,
    InvalidInputError,
    ScopeNotFoundError,
    StateIntegrityError,
)
from holdfast.storage.contract import Batch
from holdfast.store.journal import entry
from holdfast.store.journal.entry import Body
from holdfast.store.names import rowkinds as rows
from holdfast.store.names.scope import Scope
from holdfast.store.names.thread_pauses import Breath
from holdfast.store.upkeep.pruner import notices

if TYPE_CHECKING:
    from holdfast.store.commit.core import Core
    from holdfast.store.commit.stage import Stage
    from holdfast.store.journal.ledger import Ledger
    from holdfast.store.journal.timeline import Timeline
    from holdfast.store.proof.verify import _Check

SLICE = 256
"""Cells that are looked at, or dropped, together."""


DEPENDS = "depends"
"""What the metadata of a checkpoint calls what it rests on."""


def depends_in(metadata: Mapping[str, Any]) -> list[tuple[str, str, int, str]]:
    """(scope, timeline, entry, hash) of what the metadata of a checkpoint says that it rests on.

    Somebody may have put something else there: then nothing.
    """
    noted, kinds = metadata.get(DEPENDS), [str, str, int, str]
    found = noted if type(noted) is list else []
    return [tuple(one) for one in found if type(one) is list and [*map(type, one)] == kinds]


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
        """What people call the checkpoint; which row it is if its scope cannot be told."""
        key = self.directory[:21] + bytes([rows.THERE])
        number = rows.line_of(self.by)
        try:
            ledger = core.ledger_of(key, core.storage.get([key])[0] or b"")
            names = {line: name for line, name, _, _ in core.timelines(ledger)} if number else {}
        except (ScopeNotFoundError, StateIntegrityError):
            return f"a scope that cannot be told, {rows.describe(self.by)},"
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
    stage.cells += notices(core.storage, other.number, at, by)
    stage.cells.append((rows.rest(at, by), None, stage.ledger.tombstone))


def rests_on(ledger: Ledger) -> Iterator[Rest]:
    """The checkpoints that rest on entries of a scope."""
    for key, directory, there in _cells(ledger):
        if there:
            at, by = rows.ends_of(key)
            yield Rest(rows.line_of(at), rows.sequence_of(at), by, directory)


def forget_rests(ledger: Ledger) -> None:
    """Drop the cells of checkpoints that are there no longer."""
    over = [(key, directory, None) for key, directory, there in _cells(ledger) if not there]
    for start in range(0, len(over), SLICE):
        with suppress(Conflict):  # somebody else was faster; what is left goes next time
            ledger.storage.commit(Batch(cells=[*over[start : start + SLICE]]))


def check_noted(check: _Check, ledger: Ledger, line: int, sequence: int, body: Body) -> None:
    """Tell which cells are missing that a checkpoint calls for: retention would drop its base."""
    op: list[Any] = body.ops[0] if body.ops else [0]
    if op[0] != entry.CHECKPOINT or len(op) < 7 or DEPENDS.encode() not in op[6]:
        return
    by = rows.entry(rows.line(b"E", ledger.number, line), sequence)
    for noted in depends_in(check.core.codec.decode(op[6])):
        at = _noted_at(check.core, *noted)
        key = rows.rest(at, by) if at else b""
        if not key or check.core.storage.cells(key, key + b"\0", limit=1):
            continue
        if not check.directory.ends_now(ledger):
            message = "it is missing: retention would not keep what the checkpoint rests on"
            check.find("damage", rows.describe(key), message)


def _noted_at(core: Core, scope: str, timeline: str, sequence: int, hash_: str) -> bytes:
    """Key of an entry that a checkpoint was said to rest on; empty if it is there no longer."""
    try:
        other = core.known(Scope.parse(scope))
        lines = {} if other is None else {one[1]: one[0] for one in core.timelines(other)}
        if other is None or timeline not in lines or not 0 < sequence < 1 << 40:
            return b""
        key = rows.entry(rows.line(b"E", other.number, lines[timeline]), sequence)
        row = core.storage.get([key])[0]
        same = row and other.entry_hash(key, entry.split_row(row)[0].data).hex() == hash_
    except (InvalidInputError, StateIntegrityError):  # named where it is; or never one of ours
        return b""
    return key if same else b""


def check_rests(check: _Check) -> None:
    """Tell what is no cell of this kind, is about scopes that there never were, or misnames one."""
    low = b"R"
    directory_of = {ledger.number: ledger.tombstone for ledger in check.directory.ledgers}
    while page := check.core.storage.cells(low, b"S", limit=1000):
        for key, directory in page:
            ends = [rows.scope_of(end) for end in rows.ends_of(key)]
            right = len(key) == rows.REST and len(directory) == rows.DIRECTORY
            if not right or not all(check.directory.knows(number) for number in ends):
                check.find("unaccounted", rows.describe(key), "nothing accounts for this cell")
            elif directory != directory_of.get(ends[1], directory):
                check.find("damage", rows.describe(key), "it names another scope than it is of")
        low = page[-1][0] + b"\0"


def _cells(ledger: Ledger) -> Iterator[tuple[bytes, bytes, bool]]:
    """Each cell, and whether its checkpoint is there: scope not deleted, entry not pruned.

    Where damage leaves that open it is: nobody can tell, and what it rests on stays.
    """
    breath = Breath()
    low = prefix = rows.rests(ledger.number)
    while page := ledger.storage.cells(low, rows.after(prefix), limit=SLICE):
        wanted = [(rows.deletion(d), d, rows.ends_of(key)[1]) for key, d in page]
        found = iter(ledger.storage.get([key for keys in wanted for key in keys]))
        for key, directory in page:
            deleted, erased, row = next(found), next(found), next(found)
            ended = deleted is not None or erased is not None
            yield key, directory, not ended and _may_be_whole(row)
            breath()
        low = page[-1][0] + b"\0"


def _may_be_whole(row: bytes | None) -> bool:
    """Of what is pruned the envelope stays; a row that is lost or damaged says nothing of it."""
    try:
        return row is None or bool(entry.split_row(row)[1])
    except StateIntegrityError:
        return True  # nobody can tell: what it rests on stays
