"""The life of an agent: created, running, paused, stopped or failed. Nothing here waits."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from holdfast.agents.agent_keys import EXECUTION_STATE, sticky
from holdfast.agents.state.checks import build, plain, told
from holdfast.agents.state.shapes import ExecutionState
from holdfast.errors import AgentValidationError, HoldfastError, InvalidInputError
from holdfast.store.inner import LineHandle, Operation, Plan

BEGINS = {
    "start": (None, "stopped", "failed"),
    "pause": ("running",),
    "resume": (None, "paused"),
    "stop": ("running", "paused"),
}
"""In which states of this process's own a step of the life may be taken; None: not begun here."""


class Living:
    """An object that lives in a state, whether or not anything of it is kept there.

    Where it is in its life, and what it says itself when it is asked.
    """

    __slots__ = ("handle", "life", "obj", "status")

    def __init__(self, obj: Any, handle: LineHandle) -> None:
        self.obj = obj
        self.handle = handle
        self.status: str | None = None
        """By what this process did; None: not started here."""
        self.life = ExecutionState()

    def begin(self, step: str) -> None:
        """Refuse a step of the life that cannot be taken now; read where the life is."""
        if self.status not in BEGINS[step]:
            raise InvalidInputError(
                f"{self.handle.scope}: {step} is not possible, the agent is "
                f"{self.status or 'not started here'}"
            )
        self.life = self.stored_life()
        if step == "resume" and self.life.status != "paused":
            raise InvalidInputError(
                f"{self.handle.scope}: resume is not possible, the agent is {self.life.status}"
            )

    def stored_life(self) -> ExecutionState:
        """Where the life is, as it is stored."""
        stored = self.handle.reader.get(EXECUTION_STATE, None, None, False)
        return ExecutionState() if stored is None else build(ExecutionState, stored)

    @property
    def interrupted(self) -> bool:
        """Whether the run before, by what `begin` read, had no end, or ended with an error."""
        return self.life.status in ("running", "failed")

    def lives(self, status: Any, *, started: bool = False, error: str = "") -> ExecutionState:
        """The life with another status."""
        now = datetime.fromtimestamp(self.handle.core.clock.claimed() / 1_000_000, UTC)
        life = self.life
        return ExecutionState(
            status=status,
            since=now,
            starts=life.starts + started,
            recoveries=life.recoveries + (started and self.interrupted),
            error=error,
        )

    def plan_life(self, life: ExecutionState) -> Plan:
        """Note where the life is, and nothing else of the agent."""

        def finish(_: Any) -> None:
            self.life, self.status = life, life.status

        return self.handle._plan(self._lived(life), finish)

    def plan_fail(self, error: BaseException) -> Plan:
        """Note that the run ended with an error; what the object holds is not saved."""
        return self.plan_life(self.lives("failed", error=type(error).__name__))

    def _lived(self, life: ExecutionState) -> list[Operation]:
        """Write where the life is. A restore leaves it alone: what has happened, happened."""
        written = Operation("set", EXECUTION_STATE, plain(life))
        return [*sticky(self.handle, EXECUTION_STATE), written]

    # what the object says itself

    def hook(self, name: str) -> Any:
        """What a method of the object returns; None if it has none of that name."""
        found = getattr(self.obj, name, None)
        return found() if callable(found) else None

    def judge(self, answer: Any) -> None:
        """Refuse what `validate_state` says is wrong."""
        try:
            found = told(answer, "validate_state")
        except Exception as error:  # of a generator
            raise self.failed(error) from error
        if found:
            raise self._invalid("the agent is not valid", found)

    def failed(self, error: Exception, what: str = "validate_state") -> Exception:
        """What becomes of an error of such a method."""
        if isinstance(error, AgentValidationError):
            return self.handle.core.meter.invalid("agent", error)
        if isinstance(error, HoldfastError):
            return error
        kind = type(error).__name__
        return self._invalid(f"{what} raised {kind}")

    def _invalid(self, text: str, found: list[str] | None = None) -> AgentValidationError:
        error = AgentValidationError(f"{self.handle.scope}: {text}", found or [])
        return self.handle.core.meter.invalid("agent", error)
