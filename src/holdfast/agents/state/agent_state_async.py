"""The typed state of an agent, on the async face."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any

from holdfast.agents.again import again_async
from holdfast.agents.state.capture import Captured, Persisted, capture, persisted
from holdfast.agents.state.component_reader import Reading
from holdfast.agents.state.components import Component
from holdfast.agents.state.draft import Draft
from holdfast.store.names.arguments import check_function
from holdfast.store.names.threads import read_away
from holdfast.store.state_async import State, View


class AsyncDraft:
    """A change of an agent's components; see `AgentState.change`. Reads are awaited."""

    def __init__(self, draft: Draft) -> None:
        self._draft = draft
        self.set = draft.set
        self.append = draft.append
        self.put = draft.put
        self.remove = draft.remove
        self.update_task = draft.update_task

    async def get(self, name: str) -> Any:
        """A component as it is, with what is noted here; it is expected to stay so."""
        return self._draft.get(name)

    async def item(self, name: str, id: str) -> Any:
        """One item of a keyed component, or None; it is expected to stay so."""
        return self._draft.item(name, id)


class AgentState:
    """The components of an agent: its conversation, tasks, goals, memory and so on, by type.

    Made from a State; made from a View, it reads the past. Making one touches nothing. Each
    component has keys of its own below `$agent/`: it is read and changed alone, and a checkpoint,
    a restore and a fork take all of them along. `components` are your own, beside the built-in
    ones.
    """

    def __init__(self, state: State | View, components: Iterable[Component] = ()) -> None:
        self._state: Any = state
        self._reading = Reading.of(state, components)

    # reading

    async def get(self, name: str) -> Any:
        """A component as an object; if nothing is stored, as its type is without arguments.

        Those that are optional (`emotional_state`, `state`) are None then.
        """
        return await self._state._do(self._reading.get, name)

    async def load(self) -> dict[str, Any]:
        """All components of which something is stored, of one moment."""
        return await self._state._do(self._reading.load)  # type: ignore[no-any-return]

    async def item(self, name: str, id: str) -> Any:
        """One item of a component that has them by ids; None if it is not there."""
        return await self._state._do(self._reading.item, name, id)

    async def ids(self, name: str) -> list[str]:
        """The ids of the items of a component."""
        return await self._state._do(self._reading.ids, name)  # type: ignore[no-any-return]

    async def tail(self, path: str, count: int) -> list[Any]:
        """The last items of a list (`conversation`, `execution_trace/commands`)."""
        return await self._state._do(self._reading.tail, path, count)  # type: ignore[no-any-return]

    async def length(self, path: str) -> int:
        """Number of items of a list."""
        return await self._state._do(self._reading.length, path)  # type: ignore[no-any-return]

    # writing

    async def set(self, name: str, value: Any) -> None:
        """Set a component as a whole: an object of its type or plain data; None removes it.

        Only what differs is written. `AgentValidationError` tells everything that is wrong.
        """
        await self._write(lambda draft: draft.set(name, value))

    async def update(self, name: str, function: Callable[[Any], Any]) -> Any:
        """Set a component to what a function makes of it; run again when somebody was faster.

        Returns what the function returned last.
        """
        check_function(function, "what update takes")

        async def change(draft: Draft) -> Any:
            made = function(draft.get(name))
            if inspect.isawaitable(made):
                made = await made
            draft.set(name, made)
            return made

        return await self._write(change)

    async def append(self, path: str, *items: Any) -> None:
        """Add items to a list (`conversation`, `execution_trace/commands`).

        A sliding context window lets go of its oldest messages; a fixed one that is full refuses.
        """
        await self._write(lambda draft: draft.append(path, *items))

    async def put(self, name: str, id: str, item: Any) -> None:
        """Set one item of a component that has them by ids.

        A task that has ended is current no longer. None is a value like others, where the type
        allows it: `remove` removes.
        """
        await self._write(lambda draft: draft.put(name, id, item))

    async def remove(self, name: str, id: str) -> None:
        """Remove one item; `MissingError` if it is not there."""
        await self._write(lambda draft: draft.remove(name, id))

    async def update_task(self, id: str, **fields: Any) -> None:
        """Change fields of a task, such as `status`, `progress`, `result` or `error`.

        One that is started becomes the current one, one that has ended is current no longer.
        """
        await self._write(lambda draft: draft.update_task(id, **fields))

    @asynccontextmanager
    async def change(
        self,
        *,
        reason: str | None = None,
        actor: str | None = None,
        correlation: str | None = None,
        id: str | None = None,
    ) -> AsyncIterator[AsyncDraft]:
        """Several writes as one entry, committed when the block ends without an error.

        What is read inside is expected: if somebody changes it before, `Conflict`.
        """
        draft, parts = self._reading.draft(
            reason=reason, actor=actor, correlation=correlation, id=id
        )
        yield AsyncDraft(draft)
        draft.finish()
        plan = parts.plan()
        if plan is not None:
            await self._state._run(plan)

    async def _write(self, function: Callable[[Draft], Any]) -> Any:
        async def step() -> Any:
            draft, parts = self._reading.draft()
            made = function(draft)
            if inspect.isawaitable(made):
                made = await made
            draft.finish()
            plan = parts.plan()
            if plan is not None:
                await self._state._run(plan)
            return made

        return await again_async(step)

    # looking at all of it

    async def problems(self) -> list[str]:
        """All that is wrong with what is stored, by types and rules, each with its path."""
        return await read_away(self._reading.problems)

    async def validate(self) -> None:
        """Raise `AgentValidationError` if something is wrong with what is stored."""
        await read_away(self._reading.validate)

    async def capture(self, checkpoint: Any, *, verify: str = "full") -> Captured:
        """All that a checkpoint covers and all that is known of it, as one object."""
        return await read_away(capture, self._reading, checkpoint, verify)

    async def persisted(self) -> Persisted | None:
        """The state as one flat record; None if nothing was ever written."""
        return await read_away(persisted, self._reading)
