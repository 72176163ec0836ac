"""A base class for agents that keep themselves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from holdfast.agents.attached import attach
from holdfast.errors import InvalidInputError
from holdfast.store.names.face import asynchronous, faced


class Keeping:
    """What an agent has on both faces."""

    # Written by hand for both faces: users write subclasses, whose methods they override, as
    # `async def` too. What the attached agent gives back is what is awaited there.

    persistent: ClassVar[tuple[str, ...]] = ()
    _attach: Any
    _kept: Any = None

    def set_state(self, state: Any) -> None:
        """Say where it is kept. Nothing is touched yet."""
        self._kept = self._attach(self, state)

    @property
    def kept(self) -> Any:
        """The agent as it is attached to its state: what `attach` gives."""
        if self._kept is None:
            raise InvalidInputError(
                f"{type(self).__name__} has no state yet: set_state(store.agent('7')) first"
            )
        return self._kept

    def get_persistent_state(self) -> Any:
        """What is to be kept: the attributes named in `persistent`."""
        return {name: getattr(self, name) for name in self.persistent}

    def apply_persistent_state(self, values: Mapping[str, Any]) -> Any:
        """Take up again what was kept."""
        for name, value in values.items():
            setattr(self, name, value)

    def validate_state(self) -> Any:
        """Raise, or return a list of problems, if it is in no state to be saved."""
        return None

    def handle_recovery(self) -> Any:
        """Called when the run before did not end in order; it holds what was saved, if anything.

        A loop calls it after each refresh and restart, too.
        """
        return None

    def persist_state(self) -> Any:
        """Store what differs from what is stored."""
        return self.kept.save()

    def restore_state(self) -> Any:
        """Hold what is stored; tells whether there was something."""
        return self.kept.restore()

    def start(self) -> Any:
        """Begin to run: restore what was saved, and save; tells whether there was something."""
        return self.kept.start()

    def pause(self) -> Any:
        """Save, and rest."""
        return self.kept.pause()

    def resume(self) -> Any:
        """Restore what is stored, and run again."""
        return self.kept.resume()

    def stop(self) -> Any:
        """Save, and end."""
        return self.kept.stop()


@faced(by_hand="holdfast.agents.agent:AsyncAgent")
class Agent(Keeping):
    """An agent whose attributes named in `persistent` are kept in the state it is given.

        class Greeter(Agent):
            persistent = ("greeted",)

    `start` restores and saves, `pause` and `stop` save, `resume` restores. Override
    `validate_state`, `handle_recovery`, or `get_persistent_state` and `apply_persistent_state`
    where more is to be done.
    """

    _attach = staticmethod(attach)


class AsyncAgent(Keeping):
    """An agent whose attributes named in `persistent` are kept in the state it is given.

        class Greeter(Agent):
            persistent = ("greeted",)

    `start` restores and saves, `pause` and `stop` save, `resume` restores. Override
    `validate_state`, `handle_recovery`, or `get_persistent_state` and `apply_persistent_state`
    where more is to be done. They may be async, and all that reads or writes is awaited.
    """

    _attach = staticmethod(asynchronous(attach))
