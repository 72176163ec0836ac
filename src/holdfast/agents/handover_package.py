"""What goes from one agent to another: put together, put into a state, taken out of one."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from msgspec import Struct, structs

from holdfast.agents.agent_keys import (
    AGENT,
    CONVERSATION,
    CURRENT_TASK,
    HANDOVER_LOG,
    OWN_HANDOVERS,
    SEEN,
    TASKS,
    task_key,
)
from holdfast.agents.state.checks import FORM
from holdfast.errors import InvalidInputError
from holdfast.store.inner import (
    SENSITIVE,
    Book,
    Books,
    LineHandle,
    ScopedChange,
    identity,
    same,
    sensitive,
)
from holdfast.store.names.scope import Scope, check_key
from holdfast.store.state import State

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

CONTEXTS = ("move", "copy", "none")
OFFERED, ACCEPTED, REFUSED, WITHDRAWN = "offered", "accepted", "refused", "withdrawn"
OVER = ("completed", "failed")
"""States of a task that is no longer to be done."""


class _Known(Struct, kw_only=True):
    """What is told of a handover, and stored of it."""

    id: str
    task: str
    status: str = OFFERED
    """offered, accepted, refused or withdrawn; an earlier version knew expired, too"""
    reason: str = ""
    """Why it was offered."""
    answer: str = ""
    """Why it was refused or withdrawn."""
    offered_at: datetime | None = None
    answered_at: datetime | None = None
    context: str = CONTEXTS[0]
    """What became of the giver's messages: move, copy or none."""
    messages: int = 0
    """How many of them came with it."""
    before: str = ""
    """The handover that had brought the task to the giver."""
    returns: str = ""
    """The handover that this one gives back."""
    term: float | None = None
    """Of offers that an earlier version made; they stand until they are answered, too."""


class Handover(_Known, kw_only=True, frozen=True):  # type: ignore[misc]
    """A task that one agent handed, or offered, to another."""

    giver: Scope
    taker: Scope


class Record(_Known, kw_only=True):
    """A handover as it is stored, in both scopes."""

    giver: str
    taker: str
    carry: tuple[str, ...] | list[str] = ()
    """Other keys that an earlier version took along."""

    def shown(self) -> Handover:
        """What a caller sees of it."""
        known = {name: getattr(self, name) for name in _Known.__struct_fields__}
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
    """The first of them; an earlier version found them by it."""
    follows: Any = None
    """The message in front of them, by which they are found after the list was trimmed."""


class HandoverPackage(Struct, frozen=True):
    """What is handed over: a task with all that belongs to it."""

    task: dict[str, Any]
    context: list[Any]
    """Its part of the conversation."""
    carried: dict[str, Any] = {}
    """Names of other keys that an earlier version took along."""
    subtasks: dict[str, Any] = {}
    """The tasks below it, at any depth, by their ids."""
    commands: list[Any] = []
    """What was done for these tasks, from the execution trace."""


class Side(Books):
    """What one agent keeps of handovers."""

    def __init__(self, line: LineHandle, part: ScopedChange | None = None) -> None:
        own = State(line)
        super().__init__(own, part)
        self.books = {
            where: Book(own, OWN_HANDOVERS, Record, under=where.removeprefix(LOG))
            for where in (OUT, IN)
        }
        self.standings = Book(own, OWN_HANDOVERS, Standing, under=STANDINGS.removeprefix(LOG))
        self.packages = Book(own, OWN_HANDOVERS, HandoverPackage, under=PACKAGES.removeprefix(LOG))

    def record(self, id: str, where: str) -> Record | None:
        """A handover that it gave (`OUT`) or took (`IN`)."""
        return self.of(self.books[where]).get(id)

    def standing(self, task: str) -> Standing:
        """How a task stands here; one that says nothing if that is nothing."""
        return self.of(self.standings).get(task) or Standing()

    def stands(self, task: str, standing: Standing) -> None:
        """Note how a task stands."""
        self.page(self.standings).put(task, standing)


@dataclass(frozen=True)
class Reconciled:
    """What it took to make a state fit what was handed over."""

    removed: tuple[str, ...]
    """Tasks that another agent has, and that a restore had brought back."""
    put_back: tuple[str, ...]
    """Tasks that this agent has, and that a restore had taken away; as they came."""


def check_task(task: Any) -> str:
    """Refuse what can be no task's id; the key of one that can."""
    key = check_key(task_key(task) if isinstance(task, str) else task, owner=True)
    if key != task_key(task):
        raise InvalidInputError(f"the id {task[:40]!r} of a task {FORM}")
    return key


# ---- handover package ---------------------------------------------------------------------------


COMMANDS = AGENT + "execution_trace/commands"
"""A list: what the agent did, each for a task, which must exist."""


def packed(giver: Side, record: Record) -> tuple[HandoverPackage | None, int]:
    """What is to be handed over, and where its messages begin; None if there is no such task.

    Messages that other tasks of the giver need, too, are copied instead of moved.
    """
    part = giver.part
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
    start = begins(messages, giver.standing(record.task))
    if record.returns:  # who gets it back has the messages of which it gave a copy
        came, given = giver.record(record.returns, IN), giver.of(giver.packages).get(record.returns)
        if came is not None and given is not None and came.context == "copy":
            end = start + len(given.context)
            start = end if same(messages[start:end], given.context) else start
    commands = [one for one in part.get(COMMANDS) or [] if one.get("task_id") in ours]
    made = HandoverPackage(task, messages[start:], subtasks=subtasks, commands=commands)
    return made, start


def _tasks(part: ScopedChange) -> dict[str, Any]:
    return {key[len(TASKS) :]: part.get(key) for key in part.keys(TASKS)}


def _below(task: str, tasks: dict[str, Any]) -> list[str]:
    """The tasks below one, at any depth."""
    children: defaultdict[str, list[str]] = defaultdict(list)
    for id, one in tasks.items():
        children[one.get("parent", "")].append(id)
    found = [task]
    for above in found:  # also of those that are found here
        found += [id for id in children[above] if id not in found]
    return found[1:]


def keys_of(record: Record, package: HandoverPackage) -> list[str]:
    """The keys that a package takes up."""
    return [*map(task_key, (record.task, *package.subtasks))]


def keep(taker: Side, giver: ScopedChange, record: Record, package: HandoverPackage) -> None:
    """Note what the taker was given, for when its state is put back to before.

    It is sensitive if something is that it was read from.
    """
    made_of = [CONVERSATION, COMMANDS, *keys_of(record, package)]
    class_ = SENSITIVE if any(sensitive(giver, key) for key in made_of) else None
    taker.page(taker.packages).put(record.id, package, class_=class_)


def give(taker: Side, record: Record, package: HandoverPackage) -> None:
    """Put a package into the taker's state; its messages stand behind those that are there."""
    part = taker.part
    part.set(task_key(record.task), package.task)
    for id, task in package.subtasks.items():
        part.set(task_key(id), task)
    if not part.exists(CURRENT_TASK):
        part.set(CURRENT_TASK, record.task)
    standing = taker.standing(record.task)
    standing.handover, standing.away = record.id, False
    if not record.returns or record.context == "move":  # else it goes on where a copy was kept
        before = conversation(part)
        standing.at, standing.follows = len(before), before[-1] if before else None
    if package.context:
        part.extend(CONVERSATION, package.context)
    if package.commands:
        part.extend(COMMANDS, package.commands)
    taker.stands(record.task, standing)
    part.set(SEEN + record.task, record.id)


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


def take_again(part: ScopedChange, record: Record, taker: Side) -> None:
    """Take what another agent has out of a state that is of before it was given away.

    Tasks below it go with it, also those that were gone by then: without it they are nothing.
    """
    package = taker.packages.get(record.id) or HandoverPackage({}, [])
    tasks = _tasks(part)
    below = {id: tasks[id] for id in _below(record.task, tasks)}
    package = structs.replace(package, subtasks=package.subtasks | below)
    kept = None
    if record.context == "move" and part.exists(task_key(record.task)):  # else: of before it came
        messages = conversation(part)
        rest = without(messages, package.context)
        kept = rest if len(rest) < len(messages) else None
    take(part, record, package, kept)


def conversation(part: ScopedChange) -> list[Any]:
    """The messages that a state holds."""
    return list(part.get(CONVERSATION) or ())


# ---- handover messages --------------------------------------------------------------------------
# Where in a conversation the messages of a task are. Old ones are let go, and equal ones are said
# again: where nothing is sure, nothing is cut apart and nothing is removed.


def begins(messages: list[Any], standing: Standing) -> int:
    """Where the messages of a task begin in a conversation from which old ones may be gone.

    Behind the message that they followed; if that is gone, all that is there may be of the task.
    """
    if standing.follows is None:
        return min(standing.at, len(messages))
    before = identity(standing.follows)
    behind = [at for at, one in enumerate(map(identity, messages), 1) if one == before]
    return standing.at if standing.at in behind else min(behind, default=0)


def without(messages: list[Any], context: list[Any]) -> list[Any]:
    """A conversation of an earlier time without as much of a context as it had then."""
    found, given = ([*map(identity, side)] for side in (messages, context))
    for position in range(max(0, len(messages) - len(context)), len(messages)):
        if found[position:] == given[: len(messages) - position]:
            return messages[:position]
    return messages
