"""What a loop runs, and with what."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from holdfast.agents.attachment import METHODS
from holdfast.agents.drift_cycles import Keeping
from holdfast.agents.loop.decide import LoopSettings
from holdfast.agents.loop.loop_store import LoopStore
from holdfast.agents.mailbox_book import Box, Taken
from holdfast.errors import InvalidInputError
from holdfast.store.history.handle import LineHandle
from holdfast.store.names.arguments import check_not_async, check_own, check_run
from holdfast.store.tree.value_copy import copied

CALLED = ("step", "on_letter", "check_tasks")
"""What an agent has for a loop to call."""


@dataclass(frozen=True, slots=True)
class Running:
    """What a loop runs, and with what."""

    handle: LineHandle
    state: Any
    """Of the face that runs it: what a factory and letters are given."""
    agent: Any
    fields: tuple[str, ...] | None
    settings: LoopSettings
    store: LoopStore
    box: Box
    mail: Callable[[Any, Taken], Any]
    drift: Keeping | None
    awaits: bool
    """Whether the face awaits what the agent's functions give."""
    first: list[dict[str, Any] | None] = field(default_factory=list)
    """What an agent at hand held before it was first run here; None: what had been stored of it
    was given to it, and nobody knows."""

    def __post_init__(self) -> None:
        check_own(self.handle.core, "that drift", self.drift and self.drift._handle)

    @property
    def at_hand(self) -> bool:
        """Whether it is an agent, not what makes one."""
        return hasattr(self.agent, "step") and not isinstance(self.agent, type)

    def before(self) -> dict[str, Any]:
        """What an agent at hand is to hold where nothing is stored of it yet."""
        if self.first[0] is None:
            raise InvalidInputError(
                f"{self.handle.scope}: it is to be started again from before it was first saved, "
                "and the object that runs holds what came later; give the loop what makes the "
                "agent, a class or function, or call withdraw_restart()"
            )
        return copied(self.first[0])

    def check(self, agent: Any) -> None:
        """Refuse an agent whose functions would not have run when their call is over."""
        kind = type(agent).__name__
        if not callable(getattr(agent, "step", None)):
            raise InvalidInputError(f"a loop runs an agent with step(); {kind} has none")
        for name in CALLED:
            if callable(function := getattr(agent, name, None)):
                check_run(function, f"{name} of {kind}", awaited=self.awaits)
        for name in () if self.awaits else METHODS:
            check_not_async(getattr(agent, name, None), f"{name} of {kind}")
