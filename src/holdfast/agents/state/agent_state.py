"""The typed state of an agent."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from holdfast.agents.agent_keys import CURRENT_TASK
from holdfast.agents.machines.machine_records import DATA, MAIN, NOW, machine_key
from holdfast.agents.state import checks as rules
from holdfast.agents.state.checks import build, problems
from holdfast.agents.state.components import SCHEMA, Component, table
from holdfast.agents.state.draft import Draft, find, keyed, list_at
from holdfast.checkpoints.locate import Description, describe
from holdfast.errors import AgentValidationError, HoldfastError, InvalidInputError
from holdfast.store.inner import (
    ChangeParts,
    LineHandle,
    Reader,
    handle_of,
    made,
    moment,
    own_change,
    own_steps,
)
from holdfast.store.names.face import (
    Blocks,
    Steps,
    ask,
    check,
    commit,
    faced,
    give,
    quick,
    step_block,
    steps,
)
from holdfast.store.state import State, View


@faced
class AgentState:
    """The components of an agent: its conversation, tasks, goals, memory and so on, by type.

    Made from a State; made from a View, it reads the past. Making one touches nothing. Each
    component has keys of its own below `$agent/`: it is read and changed alone, and a checkpoint,
    a restore and a fork take all of them along. `components` are your own, beside the built-in
    ones.
    """

    def __init__(self, state: State | View, components: Iterable[Component] = ()) -> None:
        if not isinstance(getattr(state, "_handle", None), LineHandle):
            raise InvalidInputError("give the state of an agent, such as store.agent('7')")
        self._state: Any = state
        self._handle: LineHandle = handle_of(state)
        self._components: Mapping[str, Component] = table(components)
        self._storage = self._handle.core.storage

    def _moment(self) -> Reader:
        """All keys as they are at one moment, however long the reading takes."""
        reader = self._handle.reader
        place = self._handle.place()[2] if reader.at is None else 0
        return self._handle.view(place).reader if place else reader

    # reading

    @quick
    def get(self, name: str) -> Any:
        """A component as an object; if nothing is stored, as its type is without arguments.

        Those that are optional (`emotional_state`, `state`) are None then.
        """
        return find(self._components, name).read(self._moment())

    @quick
    def load(self) -> dict[str, Any]:
        """All components of which something is stored, of one moment."""
        moment = self._moment()
        found = [(one, one.stored(moment)) for one in self._components.values()]
        return {one.name: one.built(data) for one, data in found if data is not None}

    @quick
    def item(self, name: str, id: str) -> Any:
        """One item of a component that has them by ids; None if it is not there."""
        return keyed(self._components, name).item(self._moment(), id)

    @quick
    def ids(self, name: str) -> list[str]:
        """The ids of the items of a component."""
        return keyed(self._components, name).ids(self._moment())

    @quick
    def tail(self, path: str, count: int) -> list[Any]:
        """The last items of a list (`conversation`, `execution_trace/commands`)."""
        component, key, kind = list_at(self._components, path)
        if (old := self._old(component, path)) is not None:
            return old[-count:] if count else []
        found = self._handle.reader.tail(key, count, False)
        try:
            return [build(kind, item) for item in found]
        except Exception as error:  # of the library that builds, or of the class itself
            wrong = problems(list.__class_getitem__(kind), found, path)
            text = f"{self._handle.scope}: what is stored in {path!r} is not as its type"
            raise AgentValidationError(text, wrong) from error

    @quick
    def length(self, path: str) -> int:
        """Number of items of a list."""
        component, key, _ = list_at(self._components, path)
        old = self._old(component, path)
        return len(old) if old is not None else self._handle.reader.length(key)

    def _old(self, component: Component, path: str) -> list[Any] | None:
        """A list that another version of its component wrote: only the whole can be upgraded."""
        if component.version_in(self._handle.reader) == component.version:
            return None
        whole = component.read(self._moment())
        _, _, field = path.partition("/")
        found: list[Any] = getattr(whole, field) if field else whole
        return found

    # writing

    @steps
    def set(self, name: str, value: Any) -> Steps[None]:
        """Set a component as a whole: an object of its type or plain data; None removes it.

        Only what differs is written. `AgentValidationError` tells everything that is wrong.
        """
        yield from self._write(lambda draft: draft.set(name, value))

    @steps
    def update(self, name: str, function: Callable[[Any], Any]) -> Steps[Any]:
        """Set a component to what a function makes of it; run again when somebody was faster.

        Returns what the function returned last.
        """
        yield check(function, "what update takes")

        def change(draft: Draft) -> Steps[Any]:
            made = yield ask(function, draft.get(name))
            draft.set(name, made)
            return made

        return (yield from self._write(change))

    @steps
    def append(self, path: str, *items: Any) -> Steps[None]:
        """Add items to a list (`conversation`, `execution_trace/commands`).

        A sliding context window lets go of its oldest messages; a fixed one that is full refuses.
        """
        yield from self._write(lambda draft: draft.append(path, *items))

    @steps
    def put(self, name: str, id: str, item: Any) -> Steps[None]:
        """Set one item of a component that has them by ids.

        A task that has ended is current no longer. None is a value like others, where the type
        allows it: `remove` removes.
        """
        yield from self._write(lambda draft: draft.put(name, id, item))

    @steps
    def remove(self, name: str, id: str) -> Steps[None]:
        """Remove one item; `MissingError` if it is not there."""
        yield from self._write(lambda draft: draft.remove(name, id))

    @steps
    def update_task(self, id: str, **fields: Any) -> Steps[None]:
        """Change fields of a task, such as `status`, `progress`, `result` or `error`.

        One that is started becomes the current one, one that has ended is current no longer.
        """
        yield from self._write(lambda draft: draft.update_task(id, **fields))

    @step_block
    def change(
        self,
        *,
        reason: str | None = None,
        actor: str | None = None,
        correlation: str | None = None,
        id: str | None = None,
    ) -> Blocks[Draft]:
        """Several writes as one entry, committed when the block ends without an error.

        What is read inside is expected: if somebody changes it before, `Conflict`.
        """
        draft, parts = self._draft(reason=reason, actor=actor, correlation=correlation, id=id)
        yield give(draft)
        draft.finish()
        plan = parts.plan()
        if plan is not None:
            yield commit(self._state, plan)

    def _write(self, function: Callable[[Draft], Any]) -> Steps[Any]:
        """Note in a draft what a function does there, which may have steps, and commit it."""

        def note(parts: ChangeParts) -> Steps[Any]:
            draft = self._drafted(parts)
            made = function(draft)
            if isinstance(made, Generator):
                made = yield from made
            draft.finish()
            return made

        return (yield from own_steps(self._state, note))

    def _draft(self, **cause: Any) -> tuple[Draft, ChangeParts]:
        """A draft, and the change that it becomes."""
        parts = own_change(self._state, **cause)
        return self._drafted(parts), parts

    def _drafted(self, parts: ChangeParts) -> Draft:
        core = self._handle.core
        now = moment(core.clock.claimed())
        return Draft(parts.part(self._handle), self._components, now, core.meter)

    # looking at all of it

    def problems(self) -> list[str]:
        """All that is wrong with what is stored, by types and rules, each with its path."""
        moment = self._moment()
        sound: dict[str, Any] = {}
        found: list[str] = []
        for name, component in self._components.items():
            try:
                data = component.stored(moment)
            except (HoldfastError, AttributeError, TypeError) as error:
                found.append(f"{name}: {error}")
                continue
            wrong = component.problems(data) if data is not None else []
            found += wrong
            if not wrong:
                sound[name] = data
        if "tasks" not in sound:
            sound.pop("execution_trace", None)  # of its tasks, nothing can be said
            return found + rules.all_problems(sound, {}, None)
        below = self._components["tasks"].below
        tasks = {key.removeprefix(below): moment.get(key) for key in moment.keys(below)}
        return found + rules.all_problems(sound, tasks, moment.get(CURRENT_TASK))

    def validate(self) -> None:
        """Raise `AgentValidationError` if something is wrong with what is stored."""
        if found := self.problems():
            error = AgentValidationError(
                f"{self._handle.scope}: the stored state is not valid", found
            )
            raise self._handle.core.meter.invalid("stored_state", error)

    def capture(self, checkpoint: Any, *, verify: str = "full") -> Captured:
        """All that a checkpoint covers and all that is known of it, as one object."""
        about = describe(self._handle, checkpoint, verify)
        point = about.checkpoint
        then = AgentState(View(self._handle.view(point)))
        then._components = self._components
        components = then.load()
        identity = components.get("identity")
        return Captured(
            point.id,
            point.scope.id,
            identity.version if identity is not None else "",
            round(point.time.timestamp() * 1000),
            components,
            about,
        )

    def persisted(self) -> Persisted | None:
        """The state as one flat record; None if nothing was ever written."""
        handle = self._handle
        sequence = handle.place()[2]
        if not sequence:
            return None
        source, known = handle.view(sequence).reader, self._components
        read = {name: known[name].read(source) for name in FLAT}
        # Where it is: as its machine has it, if it has one, else as the component says.
        now, state = source.get(machine_key(MAIN, NOW)), read.pop("state")
        state_name, state_data = ("", None) if state is None else (state.name, state.data)
        if now is not None:
            state_name, state_data = now["state"], source.get(machine_key(MAIN, DATA))
        [newest] = handle.history.log(limit=1, until=sequence)
        identity = known["identity"].read(source)
        return Persisted(
            agent_id=handle.scope.id,
            state_name=state_name,
            state_data=state_data,
            **read,
            schema_version=max(source.get(SCHEMA, {}).values(), default=1),
            version=sequence,
            created_at=identity.created_at or moment(made(handle.core, handle.scope)),
            updated_at=newest.time,
        )


# ---- captured -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Captured:
    """The state of an agent at a checkpoint."""

    state_id: str
    agent_id: str
    version: str
    """Of the agent, as its identity said then."""
    timestamp: int
    """Milliseconds since 1970."""
    components: dict[str, Any]
    """Those of which something was stored, as objects."""
    about: Description
    """Where it comes from, how long it is kept, what it rests on, and whether it is what was
    written: as `Checkpoints.inspect` says."""


@dataclass(frozen=True, slots=True)
class Persisted:
    """The state of an agent as one flat record."""

    agent_id: str
    state_name: str
    """Of the agent's machine, if it has one that is named `main`; else of the component `state`.
    Empty if the agent is in no named state."""
    state_data: Any
    conversation: list[Any]
    configuration: dict[str, Any]
    tool_usage: dict[str, Any]
    execution_state: Any
    metadata: dict[str, Any]
    schema_version: int
    """The highest version of a component that was written; 1 if all are of the first."""
    version: int
    """The newest entry: it grows with every change."""
    created_at: datetime
    """As its identity says; if it has none, when its scope was made."""
    updated_at: datetime


FLAT = ("state", "conversation", "configuration", "tool_usage", "execution_state", "metadata")
"""The components that such a record holds."""
