"""Components: what an agent's state is made of, and under which keys each of them lies.

A component has one of these forms:

    record   one key, `$agent/<name>`; fields that are lists lie apart, `$agent/<name>/<field>`,
             so that they grow by appending
    list     one key whose value is a list
    keyed    a key for each item, `$agent/<name>/<id>`
    tasks    like keyed, with the id of the current one and the history beside it

Nothing here reads or writes: a `Source` gives the values of keys.
"""

from __future__ import annotations

import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, Protocol

from holdfast.agents.agent_keys import AGENT, CURRENT_TASK, MEMORY
from holdfast.agents.state import shapes
from holdfast.agents.state.checks import (
    build,
    fields_of,
    is_structured,
    item_type,
    placed,
    problems,
)
from holdfast.errors import (
    AgentValidationError,
    HoldfastError,
    InvalidInputError,
    NewerFormatError,
)
from holdfast.store.names.arguments import check_name, check_plain_function, listed, ran
from holdfast.store.names.scope import check_key

SCHEMA = AGENT + "schema"
"""The version of each component that was written with one."""
TASK_HISTORY = AGENT + "task_history"
Form = Literal["record", "list", "keyed", "tasks"]


class Source(Protocol):
    """Values of keys, all of one moment."""

    def get(self, key: str, default: Any = None) -> Any:
        """The value of a key, or the default."""

    def keys(self, prefix: str = "") -> list[str]:
        """Keys that begin with a text, in order."""


@dataclass(frozen=True)
class Component:
    """A part of an agent's state: its name, its type and its form.

    The type is a msgspec Struct, a dataclass, a pydantic model or a type made of them; of a list or
    keyed component, the type of an item. Raise `version` when the type changes: what an older
    version wrote is led through `upgrade(stored_version, data)`, plain data in and out, whenever
    it is read, and is stored anew when it is next set.
    """

    name: str
    type: Any
    form: Form = "record"
    optional: bool = False
    """Reads as None while there is none; others as their type without arguments makes them."""
    version: int = 1
    upgrade: Callable[[int, Any], Any] | None = None
    key: str = ""

    def __post_init__(self) -> None:
        check_name(self.name, "the name of a component")
        made = typing.get_origin(self.type) is not None or hasattr(self.type, "__value__")
        if not made and not callable(self.type):
            raise InvalidInputError(
                f"the type of the component {self.name!r} is a class, or made of classes: "
                "list[str], int | None; not a value"
            )
        if self.upgrade is not None:
            check_plain_function(self.upgrade, f"upgrade of the component {self.name!r}")
        # Of tasks there is one component: which one is current, and their history, lie apart.
        tasks = self.form == self.name == "tasks"
        if self.form not in ("record", "list", "keyed") and not tasks:
            raise InvalidInputError("the form of a component is record, list or keyed")
        if type(self.version) is not int or self.version < 1:
            raise InvalidInputError("the version of a component is a whole number from 1 up")
        if not self.key:
            object.__setattr__(self, "key", check_key(AGENT + self.name, owner=True))

    @cached_property
    def lists(self) -> dict[str, Any]:
        """Fields of a record that lie apart, and the types of their items."""
        if self.form != "record" or not is_structured(self.type):
            return {}
        found = {name: item_type(hint) for name, hint in fields_of(self.type).items()}
        return {name: item for name, item in found.items() if item is not None}

    @property
    def below(self) -> str:
        """What the keys of its items or lists begin with."""
        return self.key + "/"

    def read(self, source: Source) -> Any:
        """Its value as an object; None, or what its type makes, if nothing is stored."""
        found = self.stored(source)
        if found is not None:
            return self.built(found)
        if self.form == "list":
            return []
        if self.form == "keyed":
            return {}
        return None if self.optional else self.built({})

    def stored(self, source: Source) -> Any:
        """What is stored of it, as plain data and of the version of today; None if nothing is."""
        version = self.version_in(source)
        if version == self.version or self.form != "record":
            found = _FORMS[self.form](self, source)
        else:  # the fields of the type were others
            keys = source.keys(self.below)
            apart = {key.removeprefix(self.below): source.get(key) for key in keys}
            found = _joined(source.get(self.key), apart)
        if version == self.version or found is None:
            return found
        return self._upgraded(version, found)

    def version_in(self, source: Source) -> int:
        """The version that was written last."""
        found: int = source.get(SCHEMA, {}).get(self.name, 1)
        return found

    def ids(self, source: Source) -> list[str]:
        """The ids of its items, in order."""
        if self.version_in(source) == self.version:
            return [key.removeprefix(self.below) for key in source.keys(self.below)]
        return sorted(self._items(source))

    def id_of(self, id: str) -> str:
        """An id as its items have it: like all keys, in Unicode normal form C."""
        if type(id) is not str or not id:
            raise InvalidInputError(f"an id of {self.name} is text, and not empty")
        return check_key(self.below + id, owner=True).removeprefix(self.below)

    def item(self, source: Source, id: str) -> Any:
        """One of its items as an object; None if it is not there."""
        id = self.id_of(id)
        if self.version_in(source) == self.version:
            found = source.get(self.below + id)
        else:
            found = self._items(source).get(id)
        if found is None:
            return None
        wrong = problems(self.item_type, found, f"{self.name}.{id}")
        if wrong:
            raise AgentValidationError(f"an item of {self.name!r} is not as its type", wrong)
        return build(self.item_type, found)

    def _items(self, source: Source) -> dict[str, Any]:
        """What another version has stored, by ids: only the whole can be upgraded."""
        found = self.stored(source)
        if found is None:
            return {}
        self._check(found)
        return by_id(found) if self.form == "tasks" else found

    def _upgraded(self, version: int, found: Any) -> Any:
        if version > self.version:
            raise NewerFormatError(
                f"the component {self.name!r} was written in version {version}, and this program "
                f"knows {self.version}; update it"
            )
        if self.upgrade is None:
            return found
        unread = f"the component {self.name!r} of version {version} cannot be read"
        try:
            made = ran(self.upgrade(version, found), f"upgrade of the component {self.name!r}")
        except HoldfastError:
            raise
        except Exception as error:
            wrong = f"its upgrade raised {type(error).__name__}"
            raise AgentValidationError(unread, [wrong]) from error
        if made is None:  # not returned by mistake: it would read as if nothing was stored
            raise AgentValidationError(unread, ["its upgrade returned nothing"])
        return made

    def built(self, data: Any) -> Any:
        """The object that plain data stand for; `AgentValidationError` if they do not fit."""
        self._check(data)
        return build(self.whole, data)

    def _check(self, data: Any) -> None:
        found = self.problems(data)
        if found:
            raise AgentValidationError(f"the component {self.name!r} is not as its type", found)

    @property
    def item_type(self) -> Any:
        """The type of an item of a keyed component."""
        return shapes.Task if self.form == "tasks" else self.type

    @property
    def whole(self) -> Any:
        """The type of the value as a whole."""
        if self.form == "list":
            return list.__class_getitem__(self.type)
        return dict.__class_getitem__((str, self.type)) if self.form == "keyed" else self.type

    def problems(self, data: Any) -> list[str]:
        """All that is wrong with plain data, by the type alone."""
        return problems(self.whole, data, self.name)


def _record(component: Component, source: Source) -> Any:
    found = source.get(component.key)
    lists = {name: source.get(component.below + name) for name in component.lists}
    return _joined(found, {name: items for name, items in lists.items() if items is not None})


def _joined(found: Any, apart: dict[str, Any]) -> Any:
    return {**found, **apart} if isinstance(found, dict) else apart or found


def _keyed(component: Component, source: Source) -> Any:
    below = component.below
    found = {key.removeprefix(below): source.get(key) for key in source.keys(below)}
    return found or None


def _tasks(component: Component, source: Source) -> Any:
    """Tasks by their ids as a stack, plain data both; what names no task stays away."""
    tasks = _keyed(component, source) or {}
    current = source.get(CURRENT_TASK)
    history = source.get(TASK_HISTORY)
    if not tasks and current is None and history is None:
        return None
    made: dict[str, Any] = {"history": history or []}
    for id, task in tasks.items():
        status = task.get("status", "pending") if isinstance(task, dict) else "pending"
        if id == current:
            made["current"] = task
        else:
            made.setdefault(status if status in shapes.TASK_PLACES else "pending", []).append(task)
    return made


def by_id(stack: Mapping[str, Any]) -> dict[str, Any]:
    """The tasks of a stack by their ids, plain data both."""
    return {task["id"]: task for _, task in placed(stack)}


_FORMS: dict[str, Callable[[Component, Source], Any]] = {
    "record": _record,
    "list": lambda component, source: source.get(component.key),
    "keyed": _keyed,
    "tasks": _tasks,
}

_WORDS = dict[str, Any]
BUILT_IN = (
    Component("identity", shapes.Identity),
    Component("context_window", shapes.ContextWindow),
    Component("episodic_memory", shapes.EpisodicMemory),
    Component("tasks", shapes.TaskStack, form="tasks"),
    Component("execution_trace", shapes.ExecutionTrace),
    Component("emotional_state", shapes.EmotionalState, optional=True),
    Component("goals", shapes.Goal, form="keyed"),
    Component("configuration", _WORDS),
    Component("capabilities", shapes.Capabilities),
    Component("relationships", shapes.Relationship, form="keyed"),
    Component("conversation", shapes.Message, form="list"),
    Component("operational_context", shapes.OperationalContext),
    Component("short_term_memory", Any, form="keyed", key=MEMORY + "short_term"),
    Component("session_memory", Any, form="keyed", key=MEMORY + "session"),
    Component("state", shapes.Situation, optional=True),
    Component("execution_state", shapes.ExecutionState),
    Component("tool_usage", shapes.ToolUsage, form="keyed"),
    Component("metadata", _WORDS),
)
_TAKEN = {"schema", "task_history", "current_task", "memory", "attached"}


def table(own: Iterable[Component] = ()) -> dict[str, Component]:
    """All components by name: the built-in ones and a user's own."""
    found = {one.name: one for one in BUILT_IN}
    for one in listed(own, "components"):
        if not isinstance(one, Component):
            raise InvalidInputError('components are made like Component("notes", Notes)')
        if one.name in found.keys() | _TAKEN:
            raise InvalidInputError(f"there is a component {one.name!r} already; name it otherwise")
        if one.key != check_key(AGENT + one.name, owner=True):
            raise InvalidInputError(
                f"where {one.name!r} is kept follows from its name: give no key"
            )
        found[one.name] = one
    return found
