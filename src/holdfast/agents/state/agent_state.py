"""The typed state of an agent, on the blocking face."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from holdfast.agents.again import again
from holdfast.agents.state.capture import Captured, Persisted, capture, persisted
from holdfast.agents.state.component_reader import Reading
from holdfast.agents.state.components import Component
from holdfast.agents.state.draft import Draft
from holdfast.store.names.arguments import check_run
from holdfast.store.state import State, View


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

    def get(self, name: str) -> Any:
        """A component as an object; if nothing is stored, as its type is without arguments.

        Those that are optional (`emotional_state`, `state`) are None then.
        """
        return self._reading.get(name)

    def load(self) -> dict[str, Any]:
        """All components of which something is stored, of one moment."""
        return self._reading.load()

    def item(self, name: str, id: str) -> Any:
        """One item of a component that has them by ids; None if it is not there."""
        return self._reading.item(name, id)

    def ids(self, name: str) -> list[str]:
        """The ids of the items of a component."""
        return self._reading.ids(name)

    def tail(self, path: str, count: int) -> list[Any]:
        """The last items of a list (`conversation`, `execution_trace/commands`)."""
        return self._reading.tail(path, count)

    def length(self, path: str) -> int:
        """Number of items of a list."""
        return self._reading.length(path)

    # writing

    def set(self, name: str, value: Any) -> None:
        """Set a component as a whole: an object of its type or plain data; None removes it.

        Only what differs is written. `AgentValidationError` tells everything that is wrong.
        """
        self._write(lambda draft: draft.set(name, value))

    def update(self, name: str, function: Callable[[Any], Any]) -> Any:
        """Set a component to what a function makes of it; run again when somebody was faster.

        Returns what the function returned last.
        """
        check_run(function, "what update takes", awaited=False)

        def change(draft: Draft) -> Any:
            made = function(draft.get(name))
            draft.set(name, made)
            return made

        return self._write(change)

    def append(self, path: str, *items: Any) -> None:
        """Add items to a list (`conversation`, `execution_trace/commands`).

        A sliding context window lets go of its oldest messages; a fixed one that is full refuses.
        """
        self._write(lambda draft: draft.append(path, *items))

    def put(self, name: str, id: str, item: Any) -> None:
        """Set one item of a component that has them by ids.

        A task that has ended is current no longer. None is a value like others, where the type
        allows it: `remove` removes.
        """
        self._write(lambda draft: draft.put(name, id, item))

    def remove(self, name: str, id: str) -> None:
        """Remove one item; `MissingError` if it is not there."""
        self._write(lambda draft: draft.remove(name, id))

    def update_task(self, id: str, **fields: Any) -> None:
        """Change fields of a task, such as `status`, `progress`, `result` or `error`.

        One that is started becomes the current one, one that has ended is current no longer.
        """
        self._write(lambda draft: draft.update_task(id, **fields))

    @contextmanager
    def change(
        self,
        *,
        reason: str | None = None,
        actor: str | None = None,
        correlation: str | None = None,
        id: str | None = None,
    ) -> Iterator[Draft]:
        """Several writes as one entry, committed when the block ends without an error.

        What is read inside is expected: if somebody changes it before, `Conflict`.
        """
        draft, parts = self._reading.draft(
            reason=reason, actor=actor, correlation=correlation, id=id
        )
        yield draft
        draft.finish()
        plan = parts.plan()
        if plan is not None:
            self._state._run(plan)

    def _write(self, function: Callable[[Draft], Any]) -> Any:
        def step() -> Any:
            draft, parts = self._reading.draft()
            made = function(draft)
            draft.finish()
            plan = parts.plan()
            if plan is not None:
                self._state._run(plan)
            return made

        return again(step)

    # looking at all of it

    def problems(self) -> list[str]:
        """All that is wrong with what is stored, by types and rules, each with its path."""
        return self._reading.problems()

    def validate(self) -> None:
        """Raise `AgentValidationError` if something is wrong with what is stored."""
        self._reading.validate()

    def capture(self, checkpoint: Any, *, verify: str = "full") -> Captured:
        """All that a checkpoint covers and all that is known of it, as one object."""
        return capture(self._reading, checkpoint, verify)

    def persisted(self) -> Persisted | None:
        """The state as one flat record; None if nothing was ever written."""
        return persisted(self._reading)
