"""A base class for agents that keep themselves."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from holdfast.agents.attached import Attached, attach
from holdfast.errors import InvalidInputError
from holdfast.store.names.face import asynchronous, faced
from holdfast.store.state import State

if TYPE_CHECKING:
    from holdfast.agents import Attached as AsyncAttached
    from holdfast.store.state_async import State as AsyncState

_State = TypeVar("_State")
_Attached = TypeVar("_Attached")


class Keeping(Generic[_State, _Attached]):
    """What an agent has on both faces: what of it is kept, and where."""

    persistent: ClassVar[tuple[str, ...]] = ()
    _attach: Callable[[Any, _State], _Attached]
    _kept: _Attached | None = None

    def set_state(self, state: _State) -> None:
        """Say where it is kept. Nothing is touched yet."""
        self._kept = self._attach(self, state)

    @property
    def kept(self) -> _Attached:
        """The agent as it is attached to its state."""
        if self._kept is None:
            raise InvalidInputError(
                f"{type(self).__name__} has no state yet: set_state(store.agent('7')) first"
            )
        return self._kept

    def get_persistent_state(self) -> Mapping[str, Any]:
        """What is to be kept: the attributes named in `persistent`."""
        return {name: getattr(self, name) for name in self.persistent}

    def apply_persistent_state(self, values: Mapping[str, Any]) -> None:
        """Take up again what was kept."""
        for name, value in values.items():
            setattr(self, name, value)


if TYPE_CHECKING:
    _Awaited = Keeping[AsyncState, AsyncAttached]
else:
    _Awaited = Keeping


@faced(by_hand="holdfast.agents.agent:AsyncAgent")
class Agent(Keeping[State, Attached]):
    """An agent whose attributes named in `persistent` are kept in the state it is given.

        class Greeter(Agent):
            persistent = ("greeted",)

    `start` restores and saves, `pause` and `stop` save, `resume` restores. Override
    `validate_state`, `handle_recovery`, or `get_persistent_state` and `apply_persistent_state`
    where more is to be done.
    """

    _attach = staticmethod(attach)

    def validate_state(self) -> Any:
        """Raise, or return a list of problems, if it is in no state to be saved."""
        return None

    def handle_recovery(self) -> None:
        """Called when the run before did not end in order; it holds what was saved, if anything.

        A loop calls it after each refresh and restart, too.
        """
        return

    def persist_state(self) -> None:
        """Store what differs from what is stored."""
        self.kept.save()

    def restore_state(self) -> bool:
        """Hold what is stored; tells whether there was something."""
        return self.kept.restore()

    def start(self) -> bool:
        """Begin to run: restore what was saved, and save; tells whether there was something."""
        return self.kept.start()

    def pause(self) -> None:
        """Save, and rest."""
        self.kept.pause()

    def resume(self) -> None:
        """Restore what is stored, and run again."""
        self.kept.resume()

    def stop(self) -> None:
        """Save, and end."""
        self.kept.stop()


class AsyncAgent(_Awaited):
    """An agent whose attributes named in `persistent` are kept in the state it is given.

        class Greeter(Agent):
            persistent = ("greeted",)

    `start` restores and saves, `pause` and `stop` save, `resume` restores. Override
    `validate_state`, `handle_recovery`, or `get_persistent_state` and `apply_persistent_state`
    where more is to be done. They may be async.
    """

    # By hand: users write subclasses, whose methods they override, as `async def` too.

    _attach = staticmethod(asynchronous(attach))

    async def validate_state(self) -> Any:
        """Raise, or return a list of problems, if it is in no state to be saved."""
        return None

    async def handle_recovery(self) -> None:
        """Called when the run before did not end in order; it holds what was saved, if anything.

        A loop calls it after each refresh and restart, too.
        """
        return

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
