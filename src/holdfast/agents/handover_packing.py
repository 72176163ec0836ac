"""What goes from one agent to another: put together, put into a state, taken out of one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from holdfast.agents.handover_records import (
    PACKAGES,
    SEEN,
    STANDINGS,
    Package,
    Record,
    Standing,
    begins,
)
from holdfast.agents.keys import AGENT, CONVERSATION, CURRENT_TASK, TASKS, task_key
from holdfast.agents.records import stored
from holdfast.store.writing import ScopedChange

COMMANDS = AGENT + "execution_trace/commands"
"""A list: what the agent did, each for a task, which must exist."""


def packed(part: ScopedChange, record: Record, standing: Standing) -> tuple[Package | None, int]:
    """What is to be handed over, and where its messages begin; None if there is no such task."""
    task = part.get(task_key(record.task))
    if not isinstance(task, dict):
        return None, 0
    tasks = {key[len(TASKS) :]: part.get(key) for key in part.keys(TASKS)}
    subtasks = {id: tasks[id] for id in _below(record.task, tasks)}
    messages = part.get(CONVERSATION) or [] if record.context != "none" else []
    start = begins(messages, standing)
    if record.returns and record.context == "copy":
        start += standing.came  # its giver has those
    ours = {record.task, *subtasks}
    commands = [one for one in part.get(COMMANDS) or [] if one.get("task_id") in ours]
    carried = {key: part.get(key) for key in record.carry if part.exists(key)}
    return Package(task, messages[start:], carried, subtasks, commands), start


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


def give(part: ScopedChange, record: Record, package: Package) -> None:
    """Put a package into the taker's state; its messages stand behind those that are there."""
    part.set(task_key(record.task), package.task)
    for id, task in package.subtasks.items():
        part.set(task_key(id), task)
    if not part.exists(CURRENT_TASK):
        part.set(CURRENT_TASK, record.task)
    count = len(package.context)
    standing = Standing(handover=record.id, at=part.length(CONVERSATION), came=count)
    if package.context:
        standing.first = package.context[0]
        part.extend(CONVERSATION, package.context)
    if package.commands:
        part.extend(COMMANDS, package.commands)
    for key, value in package.carried.items():
        if not part.exists(key):
            part.set(key, value)
    part.set(STANDINGS + record.task, stored(standing))
    part.set(SEEN + record.task, record.id)
    part.set(PACKAGES + record.id, package.data())


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


def conversation(part: ScopedChange) -> list[Any]:
    """The messages that a state holds."""
    found: Iterable[Any] = part.get(CONVERSATION) or ()
    return list(found)
