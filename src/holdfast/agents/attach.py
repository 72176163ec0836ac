"""Attaching an object to a state, on the blocking face."""

from __future__ import annotations

from collections.abc import Iterable
from types import TracebackType
from typing import Any, Self

from holdfast.agents.attachment import METHODS, Attachment
from holdfast.agents.state.shapes import ExecutionState
from holdfast.errors import Conflict, HoldfastError, InvalidInputError
from holdfast.store.lease.lease import Lease
from holdfast.store.names.arguments import check_awaited, check_not_async, ran
from holdfast.store.state import State


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
        raise InvalidInputError("attach takes a state of holdfast.sync, such as store.agent('7')")
    for name in METHODS:
        check_not_async(getattr(agent, name, None), f"{name} of {type(agent).__name__}")
    return Attached(Attachment(agent, state._handle, fields, lease), state)


class Attached:
    """An agent that is kept: `save` and `restore`, or its whole life, which does both by itself.

        with attach(agent, state, fields=["plan", "memory"]) as kept:
            agent.work()
            kept.save()

    Entering starts it, which restores what was saved; leaving stops it, which saves. It belongs to
    one thread at a time.
    """

    __slots__ = ("_core", "_state")

    def __init__(self, core: Attachment, state: State) -> None:
        self._core = core
        self._state = state

    @property
    def agent(self) -> Any:
        """The agent itself."""
        return self._core.obj

    @property
    def state(self) -> State:
        """Where it is kept."""
        return self._state

    @property
    def status(self) -> str | None:
        """running, paused, stopped or failed, by what this process did; None: not started here."""
        return self._core.status

    def life(self) -> ExecutionState:
        """Where the agent is in its life, as it is stored."""
        return self._core.stored_life()

    # saving and restoring

    def save(self, *, replace: bool = False) -> int | None:
        """Store what differs from what is stored, as one entry; None if nothing does.

        The agent is validated first. `Conflict` if what is stored was changed by somebody else, or
        is of an earlier run and was not restored; with `replace` it is given up for that of now.
        """
        return self._save(None, replace)

    def restore(self) -> bool:
        """Let the agent hold what is stored, and validate it; False if nothing is stored."""
        core, found = self._core, self._core.load()
        if found is None:
            return False
        try:
            made = ran(core.upgrade(found), "upgrade_state")
        except Exception as error:
            raise core.failed(error, "upgrade_state") from error
        with core.taking_up(found, made) as values:
            ran(core.give(values), "apply_persistent_state")
        self.validate()
        return True

    def validate(self) -> None:
        """Raise `AgentValidationError` if `validate_state` of the agent finds it wrong."""
        try:
            answer = self._core.hook("validate_state")
            check_awaited(answer, "validate_state")
        except Exception as error:
            raise self._core.failed(error) from error
        self._core.judge(answer)

    def _save(self, life: ExecutionState | None, replace: bool = False) -> int | None:
        self.validate()
        values = ran(self._core.take(), "get_persistent_state")
        with self._core.fenced():
            plan = self._core.plan_save(values, life, replaced=replace)
            try:
                return self._state._run(plan) if plan is not None else None
            except Conflict as error:
                raise self._core.conflict(error) from error

    # the life

    def start(self, *, restore: bool = True) -> bool:
        """Begin to run: restore what was saved, and save; tells whether there was something.

        If the run before had no end, or ended with an error, `handle_recovery` of the agent is
        called in between. With `restore=False` what is stored is given up for what the agent holds.
        """
        self._core.begin("start")
        found = restore and self.restore()
        if restore and self._core.interrupted:
            ran(self._core.hook("handle_recovery"), "handle_recovery")
        self._save(self._core.lives("running", started=True), replace=not restore)
        return found

    def pause(self) -> None:
        """Save, and rest."""
        self._core.begin("pause")
        self._save(self._core.lives("paused"))

    def resume(self) -> None:
        """Restore what is stored, which somebody may have put back meanwhile, and run again."""
        self._core.begin("resume")
        self.restore()
        self._save(self._core.lives("running"))

    def stop(self) -> None:
        """Save, and end."""
        self._core.begin("stop")
        self._save(self._core.lives("stopped"))

    def fail(self, error: BaseException) -> None:
        """End because of an error: what the agent holds is not saved, the last save stands."""
        with self._core.fenced():
            self._state._run(self._core.plan_fail(error))

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            if self.status in ("running", "paused"):
                self.stop()
            return
        try:
            self.fail(error)
        except HoldfastError as failure:
            error.add_note(f"that the agent failed could not be stored: {failure}")
