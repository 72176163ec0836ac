"""Letting checkpoints go that were held: see `holdfast.store.upkeep.holds`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from holdfast.checkpoints.create import plan_request
from holdfast.checkpoints.request import CheckpointRequest
from holdfast.errors import CheckpointNotFoundError
from holdfast.store.inner import Body, Held, LineHandle, Plan, Stage, held
from holdfast.store.names.items import Checkpoint


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
    check: Callable[[Stage], None] | None = None,
    **more: str,
) -> Checkpoint:
    """Let checkpoints go, and say what became of what they were made for.

    `check` is asked in the commit, and raises if that is not to be.
    """
    change, finish = plan_release(handle, ids, outcome, name, **more)
    target = change.targets[0]
    made: Any = target.special

    def special(stage: Stage, body: Body) -> None:
        if check is not None:
            check(stage)
        made(stage, body)

    target.special = special
    return finish(handle.core.run(change))  # type: ignore[no-any-return]


def plan_release(handle: LineHandle, ids: list[str], outcome: str, name: str, **more: str) -> Plan:
    """The change that lets checkpoints go."""
    request = CheckpointRequest(name, "post_operation")
    return plan_request(handle, request, releases=ids, outcome=outcome, **more)
