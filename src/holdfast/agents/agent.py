"""A base class for agents that keep themselves, on the blocking face."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from holdfast.agents.attached import Attached, attach
from holdfast.errors import InvalidInputError
from holdfast.store.state import State


class Agent:
    """An agent whose attributes named in `persistent` are kept in the state it is given.

        class Greeter(Agent):
            persistent = ("greeted",)

    `start` restores and saves, `pause` and `stop` save, `resume` restores. Override
    `validate_state`, `handle_recovery`, or `get_persistent_state` and `apply_persistent_state`
    where more is to be done.
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

    def validate_state(self) -> Any:
        """Raise, or return a list of problems, if it is in no state to be saved."""
        return None

    def handle_recovery(self) -> None:
        """Called when the run before did not end in order; it holds what was saved, if anything.

        A loop calls it after each refresh and restart, too.
        """
        return

    # keeping it

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
