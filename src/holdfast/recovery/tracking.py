"""What a recovery leaves in the scope of the agent that went through it.

Only that is sticky. How far a consumer of notices has read is kept under the same prefix, and goes
back together with what the consumer wrote: else it would never get again what it has lost.
"""

from __future__ import annotations

from contextlib import suppress

from holdfast.agents.keys import own_change, sticky
from holdfast.agents.retrying import again
from holdfast.errors import StateIntegrityError
from holdfast.recovery.records import PREFIX
from holdfast.store.blocking import State
from holdfast.store.gates import Operation
from holdfast.store.sticky import Sticky

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
