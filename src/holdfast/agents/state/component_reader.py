"""Reading an agent's components, for both faces; nothing here waits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Protocol, Self

from holdfast.agents.agent_keys import CURRENT_TASK, own_change
from holdfast.agents.state import rules
from holdfast.agents.state.checks import build, problems
from holdfast.agents.state.components import Component, table
from holdfast.agents.state.draft import Draft, find, keyed, list_at
from holdfast.errors import AgentValidationError, HoldfastError, InvalidInputError
from holdfast.store.history.handle import ChangeParts, LineHandle
from holdfast.store.read.reader import Reader


class HasHandle(Protocol):
    """A State or View of either face."""

    _handle: LineHandle


class Moment:
    """The keys of a scope as a reader sees them; a `Source`."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    def get(self, key: str, default: Any = None) -> Any:
        """The value of a key, or the default."""
        return self._reader.get(key, default, None, False)

    def keys(self, prefix: str = "") -> list[str]:
        """Keys that begin with a text, in order."""
        return self._reader.keys(prefix, None, "")


class Reading:
    """The components of one agent: reads, and drafts of what to write."""

    def __init__(self, handle: LineHandle, components: Mapping[str, Component]) -> None:
        self._handle = handle
        self.components = components

    @classmethod
    def of(cls, state: HasHandle, own: Iterable[Component]) -> Self:
        """Of a State or View, with the built-in components and others."""
        if not isinstance(getattr(state, "_handle", None), LineHandle):
            raise InvalidInputError("give the state of an agent, such as store.agent('7')")
        return cls(state._handle, table(own))

    @property
    def handle(self) -> LineHandle:
        """Where it is stored."""
        return self._handle

    def at(self, handle: LineHandle) -> Reading:
        """The same components at another point."""
        return Reading(handle, self.components)

    def now(self) -> datetime:
        """The time of the store's clock."""
        return datetime.fromtimestamp(self.handle.core.clock.claimed() / 1_000_000, UTC)

    # reading

    def moment(self) -> Moment:
        """All keys as they are at one moment, however long the reading takes."""
        if self.handle.reader.at is not None:
            return Moment(self.handle.reader)
        place = self.handle.place()[2]
        return Moment(self.handle.view(place).reader if place else self.handle.reader)

    def get(self, name: str) -> Any:
        """A component as an object."""
        return find(self.components, name).read(self.moment())

    def load(self) -> dict[str, Any]:
        """All components that are stored, as objects, of one moment."""
        moment = self.moment()
        found = {
            name: (component, component.stored(moment))
            for name, component in self.components.items()
        }
        return {
            name: component.built(data)
            for name, (component, data) in found.items()
            if data is not None
        }

    def item(self, name: str, id: str) -> Any:
        """One item of a keyed component; None if it is not there."""
        return keyed(self.components, name).item(self.moment(), id)

    def ids(self, name: str) -> list[str]:
        """The ids of a keyed component, in order."""
        return keyed(self.components, name).ids(self.moment())

    def tail(self, path: str, count: int) -> list[Any]:
        """The last items of a list, without reading the rest."""
        component, key, kind = list_at(self.components, path)
        if component.version_in(Moment(self.handle.reader)) != component.version:
            return self._upgraded(component, path)[-count:] if count else []
        found = self.handle.reader.tail(key, count, False)
        try:
            return [build(kind, item) for item in found]
        except Exception as error:  # of the library that builds, or of the class itself
            wrong = problems(list.__class_getitem__(kind), found, path)
            text = f"{self.handle.scope}: what is stored in {path!r} is not as its type"
            raise AgentValidationError(text, wrong) from error

    def length(self, path: str) -> int:
        """Number of items of a list."""
        component, key, _ = list_at(self.components, path)
        if component.version_in(Moment(self.handle.reader)) != component.version:
            return len(self._upgraded(component, path))
        return self.handle.reader.length(key)

    def _upgraded(self, component: Component, path: str) -> list[Any]:
        """A list of a component that another version wrote, which is upgraded as a whole."""
        whole = component.read(self.moment())
        _, _, field = path.partition("/")
        found: list[Any] = getattr(whole, field) if field else whole
        return found

    # checking

    def problems(self) -> list[str]:
        """All that is wrong with what is stored, by types and rules, each with its path."""
        moment = self.moment()
        sound: dict[str, Any] = {}
        found: list[str] = []
        for name, component in self.components.items():
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
        below = self.components["tasks"].below
        tasks = {key.removeprefix(below): moment.get(key) for key in moment.keys(below)}
        return found + rules.all_problems(sound, tasks, moment.get(CURRENT_TASK))

    def validate(self) -> None:
        """Raise `AgentValidationError` with all that is wrong."""
        if found := self.problems():
            error = AgentValidationError(
                f"{self.handle.scope}: the stored state is not valid", found
            )
            raise self.handle.core.meter.invalid("stored_state", error)

    # writing

    def draft(self, **cause: Any) -> tuple[Draft, ChangeParts]:
        """A draft, and the change that it becomes."""
        parts = own_change(self, **cause)
        meter = self.handle.core.meter
        return Draft(parts.part(self.handle), self.components, self.now(), meter), parts
