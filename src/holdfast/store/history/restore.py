"""Restoring, beside whoever prunes: what rests on an older state is done again if need be."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from holdfast.errors import Conflict
from holdfast.store.commit.change import Written, done_again
from holdfast.store.commit.stage import Keep, sticky_of
from holdfast.store.history.handle import UPDATES, LineHandle
from holdfast.store.history.lookup_settle import settle_after
from holdfast.store.history.owned_records import join
from holdfast.store.names.items import Restored

PAUSE = 0.001
"""Seconds between two attempts."""
_Made = TypeVar("_Made")


def beside_pruning(step: Callable[[], _Made]) -> _Made:
    """Do what rests on older states; again if one of them is being pruned, or was."""
    for _ in range(UPDATES - 1):
        try:
            with done_again():
                return step()
        except Conflict:
            time.sleep(PAUSE)
    return step()


def restore_state(
    handle: LineHandle,
    point: Any,
    verify: str,
    reason: str | None,
    if_head: int | None = None,
    past_damage: bool = False,
    keep: Keep = sticky_of,
) -> tuple[Restored, Written]:
    """Return to a point, verified and backed up; also what that became. See `State.restore`."""

    def step() -> tuple[Restored, Written]:
        plan = partial(handle.plan_restore, point, verify, reason)
        change, finish = plan(if_head, past_damage, keep)  # first: what is refused writes nothing
        # Who says what stays has another state than one of the scope's own past.
        joined = join(handle, point, if_head) if keep is sticky_of else None
        if joined is not None:
            change, finish = plan(None if if_head is None else joined, past_damage, keep)
        written = handle.core.run(change)
        return finish(written), written[0]

    done = beside_pruning(step) if if_head is None else step()
    settle_after(handle)
    return done
