"""What a recovery leaves in the scope of the agent that went through it.

Only that is sticky. How far a consumer of notices has read is kept under the same prefix, and goes
back together with what the consumer wrote: else it would never get again what it has lost.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from holdfast.agents.again import again
from holdfast.agents.agent_keys import own_change, sticky
from holdfast.errors import StateIntegrityError
from holdfast.recovery.changes_of_others import theirs
from holdfast.recovery.records import PREFIX
from holdfast.store.names.scope import RESERVED
from holdfast.store.rules.gates import Operation
from holdfast.store.rules.sticky import Sticky
from holdfast.store.state import State

if TYPE_CHECKING:
    from holdfast.recovery.context import Context

LAST = PREFIX + "last"
"""In the agent's scope: the recovery that it went through last. No restore takes it back."""


def narrow(state: State) -> None:
    """Let only what must be be sticky: stores of before have declared all of the prefix."""
    wide, handle = Sticky(PREFIX), state._handle

    def step() -> None:
        with suppress(StateIntegrityError):  # then nobody knows, and it is seen to later
            if wide in handle.reader.declared().all:
                parts = own_change(state, reason="only what a recovery tells the agent stays")
                parts.part(handle).operations += [
                    Operation("delete", wide.key),
                    *sticky(handle, LAST),
                ]
                plan = parts.plan()
                assert plan is not None
                state._run(plan)

    again(step)


def untold(context: Context, point: str) -> None:
    """Before a restore undoes a recovery: the agent knows nothing of it, and those keys are sticky
    that were at a point.

    Else what a step declared sticky would stay as the step left it. What parts of this library
    declare stays: that is about what has happened in the world.
    """
    handle, left = context.handle, theirs(context)
    if "" in left:
        return  # somebody else put the whole state back: that stands
    then = handle.view(point).reader
    with suppress(StateIntegrityError):  # of the newest state: the restore puts back what it can
        now = handle.reader.declared()
        wanted: dict[str, Any] = dict.fromkeys(one.key for one in now.of(Sticky) if _own(one))
        wanted |= {one.key: one.data() for one in then.declared().of(Sticky) if _own(one)}
        wanted[LAST] = then.get(LAST, None, None, True)
        parts = own_change(context.state, reason=f"recovery {context.record.id} failed")
        part = parts.part(handle)
        for key in wanted.keys() - left.keys():
            if (value := wanted[key]) == part.get(key):
                continue
            if value is None:
                part.delete(key)
            else:
                part.set(key, value)
        plan = parts.plan()
        if plan is not None:
            context.state._run(plan)


def _own(one: Sticky) -> bool:
    """Whether a step of a user's own, or a recovery, declared it."""
    return one.prefix == LAST or not one.prefix.startswith(RESERVED)
