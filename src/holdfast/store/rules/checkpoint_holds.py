"""Checkpoints that something still needs: nothing may remove them until they are released.

Three kinds are held from the moment they are made: the checkpoint before an operation, until the
operation is over, the backup of a restore, until the restore is confirmed, and the state before a
recovery, until the recovery is over. A release is a checkpoint itself, of type `post_operation`,
that names in its metadata (`releases`) what it releases: it is an entry of the same history, so it
is signed, verified and never half there, and no restore takes it back. The layer above makes and
releases them; here is what has to look at them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from holdfast.errors import PrunedError, StateIntegrityError
from holdfast.store.journal import entry
from holdfast.store.names import rowkinds
from holdfast.store.names.items import Checkpoint, said
from holdfast.store.names.thread_pauses import Breath

if TYPE_CHECKING:
    from holdfast.store.history.handle import LineHandle

REASONS = {
    "operation": "its operation is not over",
    "restore": "the backup of a restore that is not confirmed",
    "recovery": "the state before a recovery that is not over",
}


@dataclass(frozen=True, slots=True)
class Held:
    """A checkpoint that is needed."""

    checkpoint: Checkpoint
    why: str
    """operation, restore or recovery"""
    operation: str = ""
    """Of an operation that is not over: what its entries carry in their causes."""
    on_error: str = ""
    """Of an operation: what is to be done if it does not end well, revert or keep."""


def held(
    handle: LineHandle, since: int = 0, *, passed: list[tuple[int, str]] | None = None
) -> list[Held]:
    """Checkpoints of a timeline, from an entry on, that are not released yet, newest first.

    One behind which damage leaves open whether it is the backup of a restore counts as that.
    `passed`: see `Points.statements`.
    """
    released: set[str] = set()
    found = []
    history, breath = handle.history, Breath()
    for line, sequence, envelope, body in history.points.statements(passed=passed):
        if sequence < since:
            break
        breath()
        one = history.described(line, handle.timeline, sequence, envelope, body)
        released.update(map(str, said(one.metadata, "releases", [])))
        if one.id in released:
            continue
        operation = said(one.metadata, "operation", "")
        if one.type == "pre_operation" and operation:
            on_error = said(one.metadata, "on_error", "")
            found.append(Held(one, "operation", operation, on_error))
        elif one.type == "recovery" and said(one.metadata, "recovery", ""):
            found.append(Held(one, "recovery"))
        elif _may_be_backup(handle, one):
            found.append(Held(one, "restore"))
    return found


def _may_be_backup(handle: LineHandle, one: Checkpoint) -> bool:
    try:
        return is_backup(handle, one)
    except StateIntegrityError:
        return True


def is_backup(handle: LineHandle, one: Checkpoint) -> bool:
    """Whether it was made by a restore: the next entry, of the same commit, is that restore."""
    if one.type != "recovery":
        return False
    if "restores" in one.metadata:
        return True
    line = handle.history.points.line()
    key = rowkinds.entry(line.prefix, one.sequence + 1)
    row = line.ledger.storage.get([key])[0]
    if row is None:
        return False
    try:
        _, body = line.ledger.open_entry(key, row)
    except PrunedError:
        return False  # a restore would have stayed
    return any(op[0] == entry.RESTORE for op in body.ops)
