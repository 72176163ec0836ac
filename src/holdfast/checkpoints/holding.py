"""Checkpoints that something still needs: nothing may remove them until they are released.

Three kinds are held from the moment they are made: the checkpoint before an operation, until the
operation is over, the backup of a restore, until the restore is confirmed, and the state before a
recovery, until the recovery is over. A release is a
checkpoint itself, of type `post_operation`, that names what it releases and why: it is an entry of
the same history, so it is signed, verified and never half there, and no restore takes it back.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from holdfast.checkpoints.making import make, plan_request
from holdfast.checkpoints.requests import CheckpointRequest, said
from holdfast.errors import CheckpointNotFoundError, PrunedError
from holdfast.store import entries, rows
from holdfast.store.breathing import Breath
from holdfast.store.handles import LineHandle
from holdfast.store.history import Plan
from holdfast.store.items import Checkpoint


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


def held(handle: LineHandle, since: int = 0) -> list[Held]:
    """Checkpoints of a timeline, from an entry on, that are not released yet, newest first."""
    released: set[str] = set()
    found = []
    history, breath = handle.history, Breath()
    for line, sequence, envelope, body in history.points.statements():
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
        elif is_backup(handle, one):
            found.append(Held(one, "restore"))
    return found


def held_one(handle: LineHandle, which: Any, why: str) -> Held:
    """The one that is given, if it is held for this reason."""
    timeline, sequence = handle.history.points.find(which)
    id_ = f"{timeline}@{sequence}"
    for one in held(handle):
        if one.checkpoint.id == id_ and one.why == why:
            return one
    wanted = "the backup of a restore" if why == "restore" else "the checkpoint of an operation"
    raise CheckpointNotFoundError(
        f"{handle.scope}: {id_} is not {wanted} that is still needed; `held()` lists those"
    )


def release(
    handle: LineHandle, ids: list[str], outcome: str, name: str = "", **more: str
) -> Checkpoint:
    """Let checkpoints go, and say what became of what they were made for."""
    request = CheckpointRequest(name, "post_operation")
    return make(handle, request, releases=ids, outcome=outcome, **more)


def plan_release(handle: LineHandle, ids: list[str], outcome: str, name: str) -> Plan:
    """The change that lets checkpoints go."""
    request = CheckpointRequest(name, "post_operation")
    return plan_request(handle, request, releases=ids, outcome=outcome)


def is_backup(handle: LineHandle, one: Checkpoint) -> bool:
    """Whether it was made by a restore: the next entry, of the same commit, is that restore."""
    if one.type != "recovery":
        return False
    if "restores" in one.metadata:
        return True
    line = handle.history.points.line()
    key = rows.entry(line.prefix, one.sequence + 1)
    row = line.ledger.storage.get([key])[0]
    if row is None:
        return False
    try:
        _, body = line.ledger.open_entry(key, row)
    except PrunedError:
        return False  # a restore would have stayed
    return any(op[0] == entries.RESTORE for op in body.ops)
