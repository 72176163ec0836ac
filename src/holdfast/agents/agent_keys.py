"""Keys that this layer owns in an agent's scope, and changes that may write them.

A component that is a small mapping is one key, `$agent/<component>`; what grows is a list, or a key
each, below it. So a checkpoint, a restore, a fork and an erasure take everything along. A user's
own change cannot write such keys; this layer's is made so, for both faces:

    parts = own_change(state)                 # or of a store: one change over several scopes
    part = parts.part(handle_of(state))          # what is read is expected, writes are noted
    part.set(IDENTITY, {...})
    part.operations += sticky(handle_of(state), EFFECTS)     # a restore leaves these alone
    plan = parts.plan()                       # None if nothing was noted
    if plan is not None:
        state._run(plan)                      # on the async face: await state._run(plan)

Whoever gets a `Conflict` begins again with new reads, `ATTEMPTS` times; then it is the caller's.
"""

from __future__ import annotations

from typing import Any

from holdfast.store.inner import (
    EFFECTS,
    LOOP,
    MACHINE,
    TASKS,
    ChangeParts,
    LineHandle,
    Operation,
    Sticky,
    handle_of,
)
from holdfast.store.inner import UPDATES as ATTEMPTS
from holdfast.store.names.cause import cause_now

__all__ = [
    "AGENT",
    "ATTEMPTS",
    "CONVERSATION",
    "CURRENT_TASK",
    "DRIFT",
    "EFFECTS",
    "EXECUTION_STATE",
    "HANDOVER",
    "IDENTITY",
    "LOOP",
    "MACHINE",
    "MAILBOX",
    "MEMORY",
    "OPERATIONAL_CONTEXT",
    "TASKS",
    "own_change",
    "sticky",
    "task_key",
]

AGENT = "$agent/"
HANDOVER = "$handover/"
MAILBOX = "$mailbox/"
DRIFT = "$drift/"

IDENTITY = AGENT + "identity"
CONVERSATION = AGENT + "conversation"
"""A list: one `shapes.Message` an item, the newest last."""
CURRENT_TASK = AGENT + "current_task"
"""The id of the task that is at work; absent if there is none."""
OPERATIONAL_CONTEXT = AGENT + "operational_context"
MEMORY = AGENT + "memory/"
EXECUTION_STATE = AGENT + "execution_state"


def task_key(id: str) -> str:
    """Where the task of an id is kept."""
    return TASKS + id


def own_change(
    of: Any,
    *,
    reason: str | None = None,
    actor: str | None = None,
    correlation: str | None = None,
    id: str | None = None,
) -> ChangeParts:
    """A change of a State or Store (of either face) that may write keys of this layer."""
    return ChangeParts(handle_of(of), cause_now(actor, reason, correlation), id, owner=True)


def sticky(handle: LineHandle, prefix: str) -> list[Operation]:
    """What a change has to write so that restores leave a prefix alone; mostly nothing."""
    wanted = Sticky(prefix)
    if wanted in handle.reader.declared().all:
        return []
    return [Operation("set", wanted.key, wanted.data())]
