"""Letting checkpoints go that were held: see `holdfast.store.held`."""

from __future__ import annotations

from typing import Any

from holdfast.checkpoints.making import plan_request
from holdfast.checkpoints.requests import CheckpointRequest
from holdfast.checkpoints.saving import only_behind
from holdfast.errors import CheckpointNotFoundError
from holdfast.store.handles import LineHandle
from holdfast.store.held import Held, held
from holdfast.store.history import Plan
from holdfast.store.items import Checkpoint


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
    handle: LineHandle,
    ids: list[str],
    outcome: str,
    name: str = "",
    *,
    behind: int | None = None,
    **more: str,
) -> Checkpoint:
    """Let checkpoints go, and say what became of what they were made for.

    `behind`: the entry that must still be the newest checkpoint; else it is a `Conflict`.
    """
    change, finish = plan_release(handle, ids, outcome, name, **more)
    if behind is not None:
        target = change.targets[0]
        target.special = only_behind(target, behind)
    return finish(handle.core.run(change))  # type: ignore[no-any-return]


def plan_release(handle: LineHandle, ids: list[str], outcome: str, name: str, **more: str) -> Plan:
    """The change that lets checkpoints go."""
    request = CheckpointRequest(name, "post_operation")
    return plan_request(handle, request, releases=ids, outcome=outcome, **more)
