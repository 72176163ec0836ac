"""What goes from one agent to another: put together, put into a state, taken out of one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from datetime import datetime
from typing import Any

from msgspec import Struct, structs

from holdfast.agents.agent_keys import (
    AGENT,
    CONVERSATION,
    CURRENT_TASK,
    HANDOVER_LOG,
    SEEN,
    TASKS,
    loaded,
    stored,
    task_key,
)
from holdfast.agents.state.checks import FORM
from holdfast.agents.tool_calls import open_calls
from holdfast.errors import InvalidInputError
from holdfast.store.inner import (
    SENSITIVE,
    Exact,
    Reader,
    ScopedChange,
    exact,
    identity,
    put,
    sensitive,
)
from holdfast.store.names.scope import Scope, check_key, escape

# ---- handover records ---------------------------------------------------------------------------
# Handovers as data: who offered which task to whom, and what became of it.
#
# Both agents keep the same record of a handover, the giver under `$handover/log/out/`, the taker
# under `$handover/log/in/`; with a task, each keeps how it stands. These are sticky: what was
# handed over stays so when one of the two is restored. What is not sticky is `$handover/seen/`, the
# last handover of a task that the state itself knows of: where it is another than the log's, the
# state was put back to a time before, and `reconcile` makes it fit again.


LOG = HANDOVER_LOG
OUT = LOG + "out/"
IN = LOG + "in/"
WAITING = LOG + "waiting/"
"""Offers to an agent that it has not answered: found without reading those that are."""
STANDINGS = LOG + "tasks/"
PACKAGES = LOG + "packages/"
CARRIED = LOG + "carried/"
"""A key each: what was carried along, with the subject, class and expiry that it has."""

CONTEXTS = ("move", "copy", "none")
OFFERED, ACCEPTED, REFUSED, WITHDRAWN = "offered", "accepted", "refused", "withdrawn"
EXPIRED = "expired"
OVER = ("completed", "failed")
"""States of a task that is no longer to be done."""


@dataclass(frozen=True)
class Handover:
    """A task that one agent handed, or offered, to another."""

    id: str
    task: str
    giver: Scope
    taker: Scope
    status: str
    """offered, accepted, refused, withdrawn or expired"""
    reason: str
    """Why it was offered."""
    answer: str = ""
    """Why it was refused, withdrawn or has expired."""
    offered_at: datetime | None = None
    answered_at: datetime | None = None
    context: str = ""
    """What became of the giver's messages: move, copy or none."""
    messages: int = 0
    """How many of them came with it."""
    before: str = ""
    """The handover that had brought the task to the giver."""
    returns: str = ""
    """The handover that this one gives back."""
    term: float | None = None
    """Seconds without an answer after which the offer expires; None: it never does."""


class Record(Struct, kw_only=True):
    """A handover as it is stored, in both scopes."""

    id: str
    task: str
    giver: str
    taker: str
    status: str = OFFERED
    reason: str = ""
    answer: str = ""
    offered_at: datetime | None = None
    answered_at: datetime | None = None
    context: str = CONTEXTS[0]
    carry: tuple[str, ...] | list[str] = ()
    messages: int = 0
    before: str = ""
    returns: str = ""
    term: float | None = None

    def shown(self) -> Handover:
        """What a caller sees of it."""
        hidden = ("carry", "giver", "taker")
        known = {n: v for n, v in structs.asdict(self).items() if n not in hidden}
        return Handover(giver=Scope.parse(self.giver), taker=Scope.parse(self.taker), **known)


class Standing(Struct, kw_only=True):
    """How a task stands with one agent."""

    handover: str = ""
    """The last one that brought it here, or took it away."""
    away: bool = False
    offer: str = ""
    """The one that is offered and not answered."""
    at: int = 0
    """Where in the conversation its messages begin."""
    first: Any = None
    """The first of them; None if none came along."""
    follows: Any = None
    """The message in front of them, by which they are found after the list was trimmed."""


@dataclass(frozen=True)
class HandoverPackage:
    """What is handed over: a task with all that belongs to it."""

    task: dict[str, Any]
    context: list[Any]
    """Its part of the conversation."""
    carried: dict[str, Any] = field(default_factory=dict)
    """Other keys that go with it; of a package that is stored, their names alone."""
    subtasks: dict[str, Any] = field(default_factory=dict)
    """The tasks below it, at any depth, by their ids."""
    commands: list[Any] = field(default_factory=list)
    """What was done for these tasks, from the execution trace."""

    def data(self) -> dict[str, Any]:
        """What is stored of it; what is carried along lies apart, below `CARRIED`."""
        data = {one.name: getattr(self, one.name) for one in fields(self)}
        return data | {"carried": dict.fromkeys(self.carried)}


@dataclass(frozen=True)
class Reconciled:
    """What it took to make a state fit what was handed over."""

    removed: tuple[str, ...]
    """Tasks that another agent has, and that a restore had brought back."""
    put_back: tuple[str, ...]
    """Tasks that this agent has, and that a restore had taken away; as they came."""


def carried_key(id: str, number: int) -> str:
    """Where the taker keeps what a handover carried along, by its place in the package."""
    return f"{CARRIED}{escape(id)}/{number}"


def record_of(data: Any) -> Record:
    """A record from what is stored."""
    return loaded(Record, data, "a handover")


def standing_of(data: Any) -> Standing:
    """A standing from what is stored; one that says nothing if that is nothing."""
    return loaded(Standing, data or {}, "the standing of a task")


def giver_problems(
    task_id: str, package: HandoverPackage | None, unfinished: Iterable[Any]
) -> list[str]:
    """What keeps a task from being handed over, as its giver's state is."""
    if package is None:
        return [f"there is no task {task_id!r}"]
    status, parent = package.task.get("status"), package.task.get("parent")
    problems = [f"the task {task_id!r} is {status}"] if status in OVER else []
    if parent:
        problems.append(f"the task {task_id!r} is part of {parent!r}: hand that one over")
    problems += [
        f"the tool call {call.id} has no result: let it end, or repair the conversation"
        for call in open_calls(package.context)
    ]
    return problems + [
        f"the effect {effect} is {effect.status}: settle it first"
        for effect in unfinished
        if effect.status in ("unknown", "running")
    ]


def check_task(task: Any) -> str:
    """Refuse what can be no task's id; the key of one that can."""
    key = check_key(task_key(task) if isinstance(task, str) else task, owner=True)
    if key != task_key(task):
        raise InvalidInputError(f"the id {task[:40]!r} of a task {FORM}")
    return key


# ---- handover package ---------------------------------------------------------------------------


COMMANDS = AGENT + "execution_trace/commands"
"""A list: what the agent did, each for a task, which must exist."""


@dataclass(frozen=True)
class Load:
    """What a package is besides what checks see of it."""

    carried: dict[str, Exact]
    """What goes with it, as it is stored."""
    class_: str | None
    """The class of what its task, messages and commands were read from, if that is sensitive."""


def load_of(giver: ScopedChange, record: Record, package: HandoverPackage) -> Load:
    """The load of a package that a giver still has."""
    found = {key: exact(giver, key) for key in package.carried}
    made_of = [CONVERSATION, COMMANDS, *map(task_key, (record.task, *package.subtasks))]
    hidden = any(sensitive(giver, key) for key in made_of)
    return Load({k: one for k, one in found.items() if one}, SENSITIVE if hidden else None)


def kept_of(taker: ScopedChange, record: Record) -> tuple[HandoverPackage, Load] | None:
    """What a taker keeps of what it was given, as it came; what expired since is gone."""
    data = taker.get(PACKAGES + record.id)
    if data is None:
        return None
    package = HandoverPackage(**data)
    keys = {key: carried_key(record.id, number) for number, key in enumerate(package.carried)}
    found = {key: exact(taker, kept) for key, kept in keys.items()}
    return package, Load({k: one for k, one in found.items() if one}, None)


def packed(
    part: ScopedChange, record: Record, standing: Standing
) -> tuple[HandoverPackage | None, int]:
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
    return HandoverPackage(task, messages[start:], carried, subtasks, commands), start


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
    given = HandoverPackage(**part.get(PACKAGES + came.id)).context
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


def keys_of(record: Record, package: HandoverPackage) -> list[str]:
    """The keys that a package takes up."""
    return [*map(task_key, (record.task, *package.subtasks)), *package.carried]


def keep(part: ScopedChange, record: Record, package: HandoverPackage, load: Load) -> None:
    """Note what the taker was given, for when its state is put back to before."""
    part.set(PACKAGES + record.id, package.data(), class_=load.class_)
    for number, key in enumerate(package.carried):
        if key in load.carried:
            put(part, carried_key(record.id, number), load.carried[key])


def give(part: ScopedChange, record: Record, package: HandoverPackage, load: Load) -> None:
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


def take(
    part: ScopedChange, record: Record, package: HandoverPackage, kept: list[Any] | None
) -> None:
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
    package = HandoverPackage(**data) if data is not None else HandoverPackage({}, [])
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


# ---- handover messages --------------------------------------------------------------------------
# Where in a conversation the messages of a task are.
#
# Equal messages are said again and again, and old ones are let go: no single message tells where
# the others begin. What came along is looked for as a whole, behind the message that it followed.
# Where nothing is sure, nothing is cut apart and nothing is removed.


def begins(messages: list[Any], standing: Standing, context: list[Any]) -> int:
    """Where the messages of a task begin in a conversation from which old ones may be gone.

    `context` are those that came along. If they are not found, they or what was in front of them
    are gone, and all that is there may be of the task.
    """
    said, came = _identities(messages), _identities(context)
    before = identity(standing.follows) if standing.follows is not None else None
    found = [
        place
        for place in range(min(standing.at, len(said)) + 1)
        if said[place : place + len(came)] == came
        and (before is None or place == 0 or said[place - 1] == before)
        and (place == standing.at or bool(came) or before is not None)
    ]
    return standing.at if standing.at in found else min(found, default=0)


def without(messages: list[Any], context: list[Any], low: int) -> list[Any]:
    """A conversation of an earlier time without as much of a context as it had then.

    Nothing of the context was in front of the place `low`.
    """
    found, given = _identities(messages), _identities(context)
    for position in range(max(low, len(messages) - len(context)), len(messages)):
        if found[position:] == given[: len(messages) - position]:
            return messages[:position]
    return messages


def known(messages: list[Any], given: list[Any]) -> int:
    """How many of the first messages are the last of those that were given, or all of them.

    One alone that is equal to the last may be a new one, which would be lost.
    """
    said, came = _identities(messages), _identities(given)
    for place in range(len(came)):
        rest = came[place:]
        if said[: len(rest)] == rest and (len(rest) > 1 or not place):
            return len(rest)
    return 0


def _identities(messages: list[Any]) -> list[Any]:
    return [identity(one) for one in messages]
