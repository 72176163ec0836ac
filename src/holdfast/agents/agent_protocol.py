"""What an agent of any framework may have, so that it can be attached. All of it is optional.

On the async face each of these methods may be `async`.
"""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable


@runtime_checkable
class PersistentAgent(Protocol):
    """An agent that says itself what is kept of it.

    Beside these it may have `validate_state()`, which raises or returns a list of problems if the
    agent is in no state to be saved; `handle_recovery()`, called with what was saved of it, if
    anything was, when the run before did not end in order, and by a loop after each refresh and
    restart; `state_version`, a whole number that is raised when what it
    keeps changes, and `upgrade_state(version, values)`, which makes values of today of older ones.
    """

    def get_persistent_state(self) -> Any:
        """What is to be kept: a mapping from names to values."""

    def apply_persistent_state(self, values: Any) -> Any:
        """Take up again what was kept."""
