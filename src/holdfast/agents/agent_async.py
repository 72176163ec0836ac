"""A base class for agents that keep themselves, and what attaches others, on the async face.

By hand: users write subclasses of the one, whose methods they override, as `async def` too; the
other takes what the blocking one refuses, agents with async methods.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from holdfast.agents import Attached
from holdfast.agents import attached as blocking
from holdfast.errors import InvalidInputError
from holdfast.store.inner import Lease, handle_of
from holdfast.store.names.face import given
from holdfast.store.state_async import State


def attach(
    agent: Any,
    state: State,
    *,
    fields: Iterable[str] | None = None,
    lease: Lease | None = None,
) -> Attached:
    """Keep an agent, an object of any class, in a state. Nothing is touched yet.

    `fields` are the attributes that are kept. Without them, the agent says so itself (see
    `PersistentAgent`), or it is a dataclass, a msgspec Struct or a pydantic model, of which all
    fields are. What is written is under the lease, if one is given.
    """
    if not isinstance(state, State):
        raise InvalidInputError("attach takes a state of holdfast.open, such as store.agent('7')")
    core = blocking.Attachment(agent, handle_of(state), fields, lease)
    made: Attached = given(blocking.Attached(core, state._blocking))
    return made


class Agent:
    """An agent whose attributes named in `persistent` are kept in the state it is given.

        class Greeter(Agent):
            persistent = ("greeted",)

    `start` restores and saves, `pause` and `stop` save, `resume` restores. Override
    `validate_state`, `handle_recovery`, or `get_persistent_state` and `apply_persistent_state`
    where more is to be done. They may be async.
    """

    persistent: ClassVar[tuple[str, ...]] = ()
    _kept: Attached | None = None

    def set_state(self, state: State) -> None:
        """Say where it is kept. Nothing is touched yet."""
        self._kept = attach(self, state)

    @property
    def kept(self) -> Attached:
        """The agent as it is attached to its state."""
        if self._kept is None:
            raise InvalidInputError(
                f"{type(self).__name__} has no state yet: set_state(store.agent('7')) first"
            )
        return self._kept

    # what is kept

    def get_persistent_state(self) -> Mapping[str, Any]:
        """What is to be kept: the attributes named in `persistent`."""
        return {name: getattr(self, name) for name in self.persistent}

    def apply_persistent_state(self, values: Mapping[str, Any]) -> None:
        """Take up again what was kept."""
        for name, value in values.items():
            setattr(self, name, value)

    async def validate_state(self) -> Any:
        """Raise, or return a list of problems, if it is in no state to be saved."""
        return None

    async def handle_recovery(self) -> None:
        """Called when the run before did not end in order; it holds what was saved, if anything.

        A loop calls it after each refresh and restart, too.
        """
        return

    # keeping it

    async def persist_state(self) -> None:
        """Store what differs from what is stored."""
        await self.kept.save()

    async def restore_state(self) -> bool:
        """Hold what is stored; tells whether there was something."""
        return await self.kept.restore()

    async def start(self) -> bool:
        """Begin to run: restore what was saved, and save; tells whether there was something."""
        return await self.kept.start()

    async def pause(self) -> None:
        """Save, and rest."""
        await self.kept.pause()

    async def resume(self) -> None:
        """Restore what is stored, and run again."""
        await self.kept.resume()

    async def stop(self) -> None:
        """Save, and end."""
        await self.kept.stop()
