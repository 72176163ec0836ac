"""Writes to an agent's components: checked, noted, and committed as one change.

What a draft reads is expected, so rules that look at other components hold also beside other
writers; whoever runs it begins anew on a conflict.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from functools import partial
from typing import Any

from holdfast.agents.agent_keys import CURRENT_TASK
from holdfast.agents.state import checks as rules
from holdfast.agents.state.checks import build, plain, problems, stored
from holdfast.agents.state.components import SCHEMA, TASK_HISTORY, Component, by_id
from holdfast.errors import AgentValidationError, InvalidInputError, MissingError
from holdfast.store.inner import MISSING, Meter, Operation, ScopedChange, same, trim_of
from holdfast.store.names.face import faced, here

_ENDED = ("completed", "failed")


@faced
class Draft:
    """A change of an agent's components; see `AgentState.change`.

    On the async face its reads are awaited.
    """

    def __init__(
        self,
        part: ScopedChange,
        components: Mapping[str, Component],
        now: datetime,
        meter: Meter,
    ) -> None:
        self._part = part
        self._meter = meter
        self._components = components
        self._now = now

    # reading

    @here(awaited=True)
    def get(self, name: str) -> Any:
        """A component as it is, with what is noted here; it is expected to stay so."""
        return find(self._components, name).read(self._part)

    @here(awaited=True)
    def item(self, name: str, id: str) -> Any:
        """One item of a keyed component, or None; it is expected to stay so."""
        return keyed(self._components, name).item(self._part, id)

    # writing

    @here
    def set(self, name: str, value: Any) -> None:
        """Set a component as a whole; only what differs is written. None removes it."""
        component = find(self._components, name)
        if value is None:
            keys = [component.key, *self._part.keys(component.below)]
            if component.form == "tasks":
                keys += [CURRENT_TASK, TASK_HISTORY]
            for key in keys:
                self._store(key, None)
            return
        data, found = _fitted(component.whole, value, name)
        if component.form == "tasks" and not found:
            found = rules.stack_problems(data)
        if component.name == "context_window" and not found:
            found = rules.window_problems(data, len(data.get("messages", ())))
        self._refuse(name, found)
        self._versioned(component, replaced=True)
        self._whole(component, data)

    @here
    def append(self, path: str, *items: Any) -> None:
        """Add items to a list: a component (`conversation`), or a list of one.

        Such a list is named COMPONENT/FIELD, like `execution_trace/commands`.
        """
        component, key, kind = list_at(self._components, path)
        fits = [_fitted(kind, item, f"{path}[{number}]") for number, item in enumerate(items)]
        self._refuse(path, [text for _, wrong in fits for text in wrong])
        if not (made := [data for data, _ in fits]):
            return
        self._versioned(component)
        self._note(Operation("append", key, made))
        if path != "context_window/messages":
            return
        settings, length = self._part.get(component.key, {}), self._part.length(key)
        most = settings.get("max_size", 100)
        if settings.get("window_type", "sliding") != "sliding":
            self._refuse("the window is full", rules.window_problems(settings, length))
        elif length > most:
            self._note(Operation("trim", key, trim_of(most, None)))

    @here
    def put(self, name: str, id: str, item: Any) -> None:
        """Set one item of a keyed component. A task that has ended is current no longer."""
        component = keyed(self._components, name)
        id = component.id_of(id)
        data, wrong = _fitted(component.item_type, item, f"{name}.{id}")
        self._refuse(f"{name}.{id}", wrong)
        self._versioned(component)
        self._put_item(component, id, data)

    @here
    def remove(self, name: str, id: str) -> None:
        """Remove one item of a keyed component; `MissingError` if it is not there."""
        component = keyed(self._components, name)
        id = component.id_of(id)
        key = component.below + id
        self._versioned(component)
        if not self._part.exists(key):
            raise MissingError(f"{name} has no {id!r}")
        self._note(Operation("delete", key))
        if component.form == "tasks" and self._part.get(CURRENT_TASK) == id:
            self._note(Operation("delete", CURRENT_TASK))

    @here
    def update_task(self, id: str, **fields: Any) -> None:
        """Change fields of a task. One that is started becomes the current one, one that has
        ended is current no longer; the history is told of a new status."""
        id = self._components["tasks"].id_of(id)
        known = self.item("tasks", id)
        if known is None:
            raise MissingError(f"there is no task {id!r}; put it first")
        data = {**plain(known), **plain(fields), "updated_at": self._now}
        status, current = data.get("status", "pending"), self._part.get(CURRENT_TASK)
        self.put("tasks", id, data)
        if status == "running" and current != id and "status" in fields:
            self._note(Operation("set", CURRENT_TASK, id))

    # the end

    def finish(self) -> None:
        """Refuse what breaks a rule; called before it is committed."""
        tasks, found = self._touched("tasks"), list[str]()
        for name, touched in (("tasks", tasks), ("goals", self._touched("goals"))):
            found += rules.item_problems(name, self._concerned(name, touched), self._has(name))
            below = self._components[name].below
            item = partial(lambda below, id: self._part.get(below + id), below)
            found += rules.circle_problems(name, touched, item)
        key = self._components["execution_trace"].below + "commands"
        commands = [
            command
            for one in self._part.operations
            if one.key == key and one.kind in ("set", "append")
            for command in one.value
        ]
        if gone := [id for id, task in tasks.items() if task is None]:
            commands += [one for one in self._part.get(key, []) if one["task_id"] in gone]
        found += rules.command_problems(commands, self._has("tasks"))
        self._refuse("the change", list(dict.fromkeys(found)))  # each of them once

    def _has(self, name: str) -> rules.Has:
        below = self._components[name].below
        return lambda id: rules.in_form(id) and self._part.exists(below + id)

    def _touched(self, name: str) -> dict[str, Any]:
        """Items that are written here by their ids; None for one that is removed."""
        below = self._components[name].below
        keys = [one.key for one in self._part.operations if one.key.startswith(below)]
        return {key.removeprefix(below): self._part.get(key) for key in keys}

    def _concerned(self, name: str, touched: dict[str, Any]) -> list[tuple[str, Any]]:
        """Items that are put, and those that name one that is removed."""
        found = {id: item for id, item in touched.items() if item is not None}
        if gone := touched.keys() - found.keys():
            below = self._components[name].below
            for key in self._part.keys(below):
                item = self._part.get(key)
                if not gone.isdisjoint(rules.links(item)):
                    found[key.removeprefix(below)] = item
        return list(found.items())

    # how forms are written

    def _whole(self, component: Component, data: Any) -> None:
        if component.form == "tasks":
            current = data.get("current")
            self._items(component, by_id(data), told=False)
            self._store(CURRENT_TASK, current["id"] if current else None)
            self._store(TASK_HISTORY, data.get("history") or None)
        elif component.form == "keyed":
            self._items(component, data)
        elif component.form == "list":
            self._store(component.key, data)
        else:
            lists = {name: data.get(name) for name in component.lists}
            for name, items in lists.items():
                self._store(component.below + name, items or None)
            rest = data
            if component.lists:
                rest = {name: part for name, part in data.items() if name not in lists}
            self._store(component.key, rest)

    def _items(self, component: Component, data: dict[str, Any], *, told: bool = True) -> None:
        name, forms = component.name, [id for id in data if component.id_of(id) != id]
        # Two of them may be one, and what is read back would be another mapping.
        self._refuse(name, [f"{name}.{id}: {rules.FORM}" for id in forms])
        stood = [key.removeprefix(component.below) for key in self._part.keys(component.below)]
        for id in stood:
            if id not in data:
                self._note(Operation("delete", component.below + id))
        for id, item in data.items():
            self._put_item(component, id, item, told=told)

    def _put_item(self, component: Component, id: str, data: Any, *, told: bool = True) -> None:
        key = component.below + id
        if component.form == "tasks" and told:
            before = self._part.get(key)
            was = before.get("status", "pending") if before is not None else None
            status = data.get("status", "pending")
            if was != status:
                event = {"task_id": id, "status": status, "was": was, "time": self._now}
                self._note(Operation("append", TASK_HISTORY, [event]))
            if status in _ENDED and self._part.get(CURRENT_TASK) == id:
                self._note(Operation("delete", CURRENT_TASK))
        self._write(key, data)

    def _store(self, key: str, value: Any) -> None:
        """Write what differs; None removes it."""
        if value is not None:
            self._write(key, value)
        elif self._part.exists(key):
            self._note(Operation("delete", key))

    def _write(self, key: str, value: Any) -> None:
        """Write what differs: nothing, what came behind a list, or all of it."""
        before = self._part.get(key, MISSING)
        lists = isinstance(before, list) and isinstance(value, list)
        if lists and len(value) > len(before) and same(value[: len(before)], before):
            self._note(Operation("append", key, value[len(before) :]))
        elif before is MISSING or not same(before, value):
            self._note(Operation("set", key, value))

    def _versioned(self, component: Component, *, replaced: bool = False) -> None:
        """Note the version of a component that is written; what stays is brought up to it."""
        versions = self._part.get(SCHEMA, {})
        known = versions.get(component.name, 1)
        if known == component.version:
            return
        found = component.stored(self._part)  # refuses to write what is of a newer version
        self._note(Operation("set", SCHEMA, {**versions, component.name: component.version}))
        if found is None:
            return
        if component.form == "record":
            for key in self._part.keys(component.below):
                if key.removeprefix(component.below) not in component.lists:
                    self._note(Operation("delete", key))
        if not replaced:
            self._whole(component, stored(component.whole, component.built(found)))

    def _refuse(self, what: str, found: list[str]) -> None:
        """Refuse what something is wrong with."""
        if found:
            error = AgentValidationError(f"{what} is refused, nothing was written", found)
            raise self._meter.invalid("agent_state", error)

    def _note(self, operation: Operation) -> None:
        # Not by its own methods: they would copy what was made for this change alone.
        self._part._check_open()
        self._part.operations.append(operation)


def _fitted(kind: Any, given: Any, path: str) -> tuple[Any, list[str]]:
    """What is stored of a value, and all that is wrong with it."""
    data = plain(given)
    found = problems(kind, data, path)
    return (data if found else stored(kind, build(kind, data))), found


def find(components: Mapping[str, Component], name: str) -> Component:
    """The component of a name."""
    found = components.get(name) if isinstance(name, str) else None
    if found is None:
        known = ", ".join(components)
        raise InvalidInputError(f"there is no component {str(name)[:80]!r}; there are {known}")
    return found


def keyed(components: Mapping[str, Component], name: str) -> Component:
    """The component of a name, which has items by ids."""
    found = find(components, name)
    if found.form not in ("keyed", "tasks"):
        raise InvalidInputError(f"the component {name!r} has no items by ids; set it as a whole")
    return found


def list_at(components: Mapping[str, Component], path: str) -> tuple[Component, str, Any]:
    """The component, the key and the type of the items of a list."""
    name, _, field = str(path).partition("/")
    component = find(components, name)
    if not field and component.form == "list":
        return component, component.key, component.type
    if field in component.lists:
        return component, component.below + field, component.lists[field]
    known = [one.name for one in components.values() if one.form == "list"]
    known += [f"{one.name}/{field}" for one in components.values() for field in one.lists]
    raise InvalidInputError(f"{str(path)[:80]!r} is no list; lists are {', '.join(known)}")
