"""Handovers as data: who offered which task to whom, and what became of it.

Both agents keep the same record of a handover, the giver under `$handover/log/out/`, the taker
under `$handover/log/in/`; with a task, each keeps how it stands. These are sticky: what was handed
over stays so when one of the two is restored. What is not sticky is `$handover/seen/`, the last
handover of a task that the state itself knows of: where it is another than the log's, the state was
put back to a time before, and `reconcile` makes it fit again.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from datetime import datetime
from typing import Any

from msgspec import Struct, structs

from holdfast.agents.agent_keys import task_key
from holdfast.agents.flat_records import loaded
from holdfast.agents.state.state_rules import FORM
from holdfast.agents.tool_calls import open_calls
from holdfast.errors import InvalidInputError
from holdfast.store.inner import HANDOVER_LOG
from holdfast.store.names.scope import Scope, check_key, escape

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
