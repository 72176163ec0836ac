"""Attaching an object to a state, on the async face."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Iterable
from types import TracebackType
from typing import Any, Self

from holdfast.agents import attach as blocking
from holdfast.agents.attachment import Attachment
from holdfast.agents.state.shapes import ExecutionState
from holdfast.errors import Conflict, HoldfastError, InvalidInputError
from holdfast.store.lease.lease import Lease
from holdfast.store.names.arguments import ran
from holdfast.store.names.threads import surely
from holdfast.store.state import State as BlockingState
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
    return Attached(Attachment(agent, state._handle, fields, lease), state)


class Attached:
    """An agent that is kept: `save` and `restore`, or its whole life, which does both by itself.

        async with attach(agent, state, fields=["plan", "memory"]) as kept:
            await agent.work()
            await kept.save()

    Entering starts it, which restores what was saved; leaving stops it, which saves. It belongs to
    one task at a time; methods of the agent may be async.
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

    async def life(self) -> ExecutionState:
        """Where the agent is in its life, as it is stored."""
        return await self._state._do(self._core.stored_life)

    # saving and restoring

    async def save(self, *, replace: bool = False) -> int | None:
        """Store what differs from what is stored, as one entry; None if nothing does.

        The agent is validated first. `Conflict` if what is stored was changed by somebody else, or
        is of an earlier run and was not restored; with `replace` it is given up for that of now.
        """
        return await self._save(None, replace)

    async def restore(self) -> bool:
        """Let the agent hold what is stored, and validate it; False if nothing is stored."""
        core, found = self._core, await self._state._do(self._core.load)
        if found is None:
            return False
        try:
            made = await _answer(core.upgrade(found))
        except Exception as error:
            raise core.failed(error, "upgrade_state") from error
        with core.taking_up(found, made) as values:
            ran(await _answer(core.give(values)), "apply_persistent_state")
        await self.validate()
        return True

    async def validate(self) -> None:
        """Raise `AgentValidationError` if `validate_state` of the agent finds it wrong."""
        try:
            answer = await _answer(self._core.hook("validate_state"))
        except Exception as error:
            raise self._core.failed(error) from error
        self._core.judge(answer)

    async def _save(self, life: ExecutionState | None, replace: bool = False) -> int | None:
        await self.validate()
        values = await _answer(self._core.take())
        with self._core.fenced():
            plan = self._core.plan_save(values, life, replaced=replace)
            try:
                return await self._state._run(plan) if plan is not None else None
            except Conflict as error:
                raise self._core.conflict(error) from error

    # the life

    async def start(self, *, restore: bool = True) -> bool:
        """Begin to run: restore what was saved, and save; tells whether there was something.

        If the run before had no end, or ended with an error, `handle_recovery` of the agent is
        called in between. With `restore=False` what is stored is given up for what the agent holds.
        """
        self._core.begin("start")
        found = restore and await self.restore()
        if restore and self._core.interrupted:
            ran(await _answer(self._core.hook("handle_recovery")), "handle_recovery")
        await self._save(self._core.lives("running", started=True), replace=not restore)
        return found

    async def pause(self) -> None:
        """Save, and rest."""
        self._core.begin("pause")
        await self._save(self._core.lives("paused"))

    async def resume(self) -> None:
        """Restore what is stored, which somebody may have put back meanwhile, and run again."""
        self._core.begin("resume")
        await self.restore()
        await self._save(self._core.lives("running"))

    async def stop(self) -> None:
        """Save, and end."""
        self._core.begin("stop")
        await self._save(self._core.lives("stopped"))

    async def fail(self, error: BaseException) -> None:
        """End because of an error: what the agent holds is not saved, the last save stands."""
        await surely(blocking.Attached(self._core, BlockingState(self._core.handle)).fail, error)

    async def __aenter__(self) -> Self:
        try:
            await self.start()
        except asyncio.CancelledError as error:
            if self.status == "running":  # it was begun, and nobody is there to end it
                await self.fail(error)
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            if self.status in ("running", "paused"):
                await self.stop()
            return
        try:
            await self.fail(error)
        except HoldfastError as failure:
            error.add_note(f"that the agent failed could not be stored: {failure}")


async def _answer(given: Any) -> Any:
    return await given if inspect.isawaitable(given) else given
