"""What goes from one agent to another: put together, put into a state, taken out of one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from holdfast.agents.agent_keys import AGENT, CONVERSATION, CURRENT_TASK, TASKS, task_key
from holdfast.agents.handover_messages import begins, known, without
from holdfast.agents.handover_records import (
    IN,
    OUT,
    OVER,
    PACKAGES,
    STANDINGS,
    Package,
    Record,
    Standing,
    carried_key,
    record_of,
    standing_of,
)
from holdfast.agents.records import stored
from holdfast.store.commit.exact_values import Exact, exact, put, sensitive
from holdfast.store.commit.request import ScopedChange
from holdfast.store.read.reader import Reader
from holdfast.store.rules.classes import SENSITIVE
from holdfast.store.rules.owned_keys import SEEN

COMMANDS = AGENT + "execution_trace/commands"
"""A list: what the agent did, each for a task, which must exist."""


@dataclass(frozen=True)
class Load:
    """What a package is besides what checks see of it."""

    carried: dict[str, Exact]
    """What goes with it, as it is stored."""
    class_: str | None
    """The class of what its task, messages and commands were read from, if that is sensitive."""


def load_of(giver: ScopedChange, record: Record, package: Package) -> Load:
    """The load of a package that a giver still has."""
    found = {key: exact(giver, key) for key in package.carried}
    made_of = [CONVERSATION, COMMANDS, *map(task_key, (record.task, *package.subtasks))]
    hidden = any(sensitive(giver, key) for key in made_of)
    return Load({k: one for k, one in found.items() if one}, SENSITIVE if hidden else None)


def kept_of(taker: ScopedChange, record: Record) -> tuple[Package, Load] | None:
    """What a taker keeps of what it was given, as it came; what expired since is gone."""
    data = taker.get(PACKAGES + record.id)
    if data is None:
        return None
    package = Package(**data)
    keys = {key: carried_key(record.id, number) for number, key in enumerate(package.carried)}
    found = {key: exact(taker, kept) for key, kept in keys.items()}
    return package, Load({k: one for k, one in found.items() if one}, None)


def packed(part: ScopedChange, record: Record, standing: Standing) -> tuple[Package | None, int]:
    """What is to be handed over, and where its messages begin; None if there is no such task.

    Messages that other tasks of the giver need, too, are copied instead of moved.
    """
    task = part.get(task_key(record.task))
    if not isinstance(task, dict):
        return None, 0
    tasks = _tasks(part)
    subtasks = {id: tasks[id] for id in _below(record.task, tasks)}
    ours = {record.task, *subtasks}
    others = [one for id, one in tasks.items() if id not in ours]
    if record.context == "move" and any(one.get("status") not in OVER for one in others):
        record.context = "copy"
    messages = conversation(part) if record.context != "none" else []
    start = begins(messages, standing, _came(part, standing))
    if record.returns:
        start += _known(part, record, messages[start:])
    commands = [one for one in part.get(COMMANDS) or [] if one.get("task_id") in ours]
    carried = {key: part.get(key) for key in record.carry if part.exists(key)}
    return Package(task, messages[start:], carried, subtasks, commands), start


def _came(part: ScopedChange, standing: Standing) -> list[Any]:
    """The messages that came with a task to where its standing says that they begin."""
    id = standing.handover
    while id and (data := part.get(IN + id)) is not None:
        record = record_of(data)
        if begins_there(record):
            return list((part.get(PACKAGES + id) or {}).get("context", ()))
        gave = part.get(OUT + record.returns)
        id = record_of(gave).before if gave is not None else ""
    return [standing.first] if standing.first is not None else []


def begins_there(record: Record) -> bool:
    """Whether the messages of a task begin where those stand that a handover brought.

    What comes back to where a copy was kept goes on there instead.
    """
    return not record.returns or record.context == "move"


def _known(part: ScopedChange, record: Record, context: list[Any]) -> int:
    """How many messages who gets a task back has, because it gave a copy of them."""
    came = record_of(part.get(IN + record.returns))
    given = Package(**part.get(PACKAGES + came.id)).context
    return known(context, given) if came.context == "copy" else 0


def _tasks(part: ScopedChange) -> dict[str, Any]:
    return {key[len(TASKS) :]: part.get(key) for key in part.keys(TASKS)}


def _below(task: str, tasks: dict[str, Any]) -> list[str]:
    """The tasks below one, at any depth."""
    children: dict[str, list[str]] = {}
    for id, one in tasks.items():
        children.setdefault(one.get("parent", ""), []).append(id)
    found: list[str] = []
    waiting = [task]
    while waiting:
        new = [id for id in children.get(waiting.pop(), ()) if id != task and id not in found]
        found += new
        waiting += new
    return found


def keys_of(record: Record, package: Package) -> list[str]:
    """The keys that a package takes up."""
    return [*map(task_key, (record.task, *package.subtasks)), *package.carried]


def keep(part: ScopedChange, record: Record, package: Package, load: Load) -> None:
    """Note what the taker was given, for when its state is put back to before."""
    part.set(PACKAGES + record.id, package.data(), class_=load.class_)
    for number, key in enumerate(package.carried):
        if key in load.carried:
            put(part, carried_key(record.id, number), load.carried[key])


def give(part: ScopedChange, record: Record, package: Package, load: Load) -> None:
    """Put a package into the taker's state; its messages stand behind those that are there."""
    part.set(task_key(record.task), package.task)
    for id, task in package.subtasks.items():
        part.set(task_key(id), task)
    if not part.exists(CURRENT_TASK):
        part.set(CURRENT_TASK, record.task)
    standing = standing_of(part.get(STANDINGS + record.task))
    standing.handover, standing.away = record.id, False
    if begins_there(record):
        place(standing, conversation(part), package.context)
    if package.context:
        part.extend(CONVERSATION, package.context)
    if package.commands:
        part.extend(COMMANDS, package.commands)
    for key, one in load.carried.items():
        if not part.exists(key):
            put(part, key, one)
    part.set(STANDINGS + record.task, stored(standing))
    part.set(SEEN + record.task, record.id)


def place(standing: Standing, before: list[Any], context: list[Any]) -> None:
    """Note that the messages of a task begin behind those of before."""
    standing.at = len(before)
    standing.first = context[0] if context else None
    standing.follows = before[-1] if before else None


def take(part: ScopedChange, record: Record, package: Package, kept: list[Any] | None) -> None:
    """Take a package out of the giver's state, whose conversation is what is kept then."""
    for key in keys_of(record, package):
        part.delete(key)
    ours = {record.task, *package.subtasks}
    if part.get(CURRENT_TASK) in ours:
        part.delete(CURRENT_TASK)
    commands = part.get(COMMANDS) or []
    rest = [one for one in commands if one.get("task_id") not in ours]
    if len(rest) < len(commands):
        part.set(COMMANDS, rest)
    if kept is not None:
        part.set(CONVERSATION, kept)
    part.set(SEEN + record.task, record.id)


def take_again(part: ScopedChange, record: Record, taker: Reader) -> None:
    """Take what another agent has out of a state that is of before it was given away.

    Tasks below it go with it, also those that were gone by then: without it they are nothing.
    """
    data = taker.get(PACKAGES + record.id)
    package = Package(**data) if data is not None else Package({}, [])
    tasks = _tasks(part)
    package.subtasks.update({id: tasks[id] for id in _below(record.task, tasks)})
    kept = None
    if record.context == "move":
        messages = conversation(part)
        rest = without(messages, package.context, _low(part, record, len(messages)))
        kept = rest if len(rest) < len(messages) else None
    take(part, record, package, kept)


def _low(part: ScopedChange, record: Record, length: int) -> int:
    """In front of which place a state of before a handover had none of the messages handed over."""
    if record.before and not part.exists(task_key(record.task)):
        return length  # it is of before they came
    standing = standing_of(part.get(STANDINGS + record.task))
    here = standing.handover == record.id and part.get(SEEN + record.task, "") == record.before
    return standing.at if here else 0


def conversation(part: ScopedChange) -> list[Any]:
    """The messages that a state holds."""
    found: Iterable[Any] = part.get(CONVERSATION) or ()
    return list(found)
