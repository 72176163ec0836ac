"""Rules that concern several parts of an agent's state at once, over plain data."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any
from unicodedata import is_normalized

from holdfast.agents.state.shapes import TASK_PLACES

Has = Callable[[str], bool]
"""Whether there is something of an id."""
FORM = "is not in Unicode normal form C, in which ids are kept"


def in_form(id: str) -> bool:
    """Whether an id is as it is kept: another one that looks alike is none of that name."""
    return is_normalized("NFC", id)


def _none(what: str, id: str) -> str:
    return f"there is no {what} {id!r}" + ("" if in_form(id) else f": that {FORM}")


def _own_id(kept: str, id: str) -> list[str]:
    if id == kept:
        return []
    return ["id: is another one" if in_form(id) else f"id: {FORM}"]


def stack_problems(stack: Mapping[str, Any]) -> list[str]:
    """A task stands in one place, and its status fits it."""
    found: list[str] = []
    seen: dict[str, str] = {}
    for place, task in placed(stack):
        id, status = task["id"], task.get("status", "pending")
        if id in seen:
            found.append(f"tasks.{place}: the task {id!r} stands in {seen[id]}, too")
        seen[id] = place
        fits = status in ("pending", "running") if place == "current" else status == place
        if not fits:
            found.append(f"tasks.{place}: the task {id!r} has the status {status!r}")
    return found


def placed(stack: Mapping[str, Any]) -> Iterable[tuple[str, Any]]:
    """The tasks of a stack, each with its place."""
    if stack.get("current") is not None:
        yield "current", stack["current"]
    for place in TASK_PLACES:
        tasks = stack.get(place, ())
        yield from ((place, task) for task in (tasks if isinstance(tasks, list | tuple) else ()))


def stack_with(stack: Mapping[str, Any], sound: Callable[[Any], bool]) -> dict[str, Any]:
    """A stack without those of its tasks that are not sound."""
    found: dict[str, Any] = {place: [] for place in TASK_PLACES}
    for place, task in placed(stack):
        if sound(task):
            if place == "current":
                found[place] = task
            else:
                found[place].append(task)
    return found


def task_problems(tasks: Iterable[tuple[str, Any]], has: Has) -> list[str]:
    """A task has the id that it is kept under, and its parent exists."""
    found = []
    for id, task in tasks:
        found += [f"tasks.{id}.{text}" for text in _own_id(id, task["id"])]
        if (parent := task.get("parent")) and not has(parent):
            found.append(f"tasks.{id}.parent: {_none('task', parent)}")
    return found


def goal_problems(goals: Iterable[tuple[str, Any]], has: Has) -> list[str]:
    """A goal has the id that it is kept under, and what it depends on exists."""
    found = []
    for id, goal in goals:
        found += [f"goals.{id}.{text}" for text in _own_id(id, goal["id"])]
        found += [
            f"goals.{id}.dependencies: {_none('goal', other)}"
            for other in goal.get("dependencies", ())
            if not has(other)
        ]
    return found


def links(item: Any) -> list[str]:
    """The ids of others that a task (its parent) or a goal (what it depends on) names."""
    if not isinstance(item, dict):
        return []
    return [one for one in (item.get("parent"), *item.get("dependencies", ())) if one]


def circle_problems(
    name: str, ids: Iterable[str], item: Callable[[str], Any], most: int = 100
) -> list[str]:
    """No task is below itself, and no goal waits for itself, by whatever way from these ids on."""
    found: list[str] = []
    done: set[str] = set()
    for start in ids:
        way = {start: iter(links(item(start)))} if start not in done else {}
        while way and len(found) < most:
            last = next(reversed(way))
            other = next(way[last], None)
            if other is None:
                done.add(last)
                del way[last]
            elif other in way:
                ring = list(way)[list(way).index(other) :]
                found.append(f"{name}.{other}: is below itself: {' -> '.join([*ring, other])}")
            elif other not in done:
                way[other] = iter(links(item(other)))
    return found


def command_problems(commands: Iterable[Any], has: Has) -> list[str]:
    """The task of every command exists."""
    return [
        f"execution_trace.commands: of {command['id']!r} {_none('task', command['task_id'])}"
        for command in commands
        if not has(command["task_id"])
    ]


def window_problems(window: Mapping[str, Any], messages: int) -> list[str]:
    """No more messages than fit, unless the window adapts."""
    most = window.get("max_size", 100)
    if messages > most and window.get("window_type", "sliding") != "adaptive":
        return [f"context_window.messages: {messages} of them, at most {most}"]
    return []


def all_problems(
    data: Mapping[str, Any], tasks: Mapping[str, Any], current: str | None
) -> list[str]:
    """All that is wrong with components that are each as their type says.

    `tasks` are those of the stack by the ids that they are kept under.
    """
    goals = data.get("goals") or {}
    trace = data.get("execution_trace") or {}
    window = data.get("context_window") or {}
    lost = current is not None and current not in tasks
    return [
        *([f"current_task: there is no task {current!r}"] if lost else []),
        *stack_problems(data.get("tasks") or {}),
        *task_problems(tasks.items(), tasks.__contains__),
        *goal_problems(goals.items(), goals.__contains__),
        *circle_problems("tasks", tasks, tasks.get),
        *circle_problems("goals", goals, goals.get),
        *command_problems(trace.get("commands", ()), tasks.__contains__),
        *window_problems(window, len(window.get("messages", ()))),
    ]
