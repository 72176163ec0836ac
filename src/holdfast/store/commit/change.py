"""What a caller asks for, before it has become entries."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import msgspec

from holdfast.store.commit.stage import Stage
from holdfast.store.journal.entry import touched
from holdfast.store.journal.ledger import Ledger
from holdfast.store.journal.timeline import Timeline
from holdfast.store.lease import Fence, leases_now
from holdfast.store.names.cause import Cause
from holdfast.store.names.scope import Scope
from holdfast.store.tree.split import count_parts
from holdfast.store.tree.tree import Node

MANY = 256
"""Parts that are built in an event loop: some milliseconds."""
_done_again: ContextVar[bool] = ContextVar("holdfast_done_again", default=False)


@contextmanager
def done_again() -> Iterator[None]:
    """A block whose changes are made again after a `Conflict`: of that no caller is told, so it is
    not counted."""
    token = _done_again.set(True)
    try:
        yield
    finally:
        _done_again.reset(token)


@dataclass(frozen=True, slots=True)
class Fork:
    """A timeline that a change makes."""

    ledger: Ledger
    name: str
    root: Node
    """The index that it begins with."""
    built: bool
    """Whether all lookups are built that are declared there."""


class Target(msgspec.Struct):
    """What a change does to one timeline of one scope."""

    scope: Scope
    timeline: str = "main"
    ops: list[tuple[Any, ...]] = []
    """("set", key, part), ("append", key, parts), ("delete", key), ("trim", key, which)"""
    expects: dict[str, int] = {}
    """Versions of keys that the change rests on; 0 stands for absent."""
    head: int | None = None
    """The newest entry that the change rests on, if on all of the state."""
    special: Callable[[Stage, Any], Any] | None = None
    """Builds an entry that is not made of operations on keys: a checkpoint, a restore."""
    backup: bool = False
    """Whether a checkpoint of the state before stands in front of its entry, in the same commit."""
    create: bool = True
    """Whether the scope may be brought into being."""
    fork: Fork | None = None
    """The timeline that this change makes."""
    line: Timeline | None = None
    """That timeline itself, once it has a number: nobody else may find it before."""
    stranded: Timeline | None = None
    """The timeline itself, if its state cannot be read and is about to be replaced."""
    ledger: Ledger | None = None
    """By whose keys the values were taken apart."""
    cause: Cause | None = None
    """What gates made of the change's cause, if it is another one."""

    def __repr__(self) -> str:
        # Gates are given changes: what they log holds no values, whatever class they are of.
        ops = [op[:2] for op in self.ops]
        return f"Target({str(self.scope)!r}, {self.timeline!r}, {ops!r})"


class Change(msgspec.Struct):
    """One change: targets that get one entry each, in one commit."""

    targets: list[Target]
    cause: Cause | None = None
    id: str | None = None
    content: bytes = b""
    """What stands for what was asked for under the id; empty if it rests on what was read."""
    attempt: int = 1
    """How often it has been tried, beginning with 1; a gate may ask."""
    fences: tuple[Fence, ...] = msgspec.field(default_factory=leases_now)
    """It is committed only if the cells of these are as they were: leases that it is made under,
    subjects that it seals for."""
    done_again: bool = msgspec.field(default_factory=_done_again.get)
    """Whether it is made again if it fails with a `Conflict`, so that no caller sees that."""
    linked: bool = True
    """Its entries name each other; n of them hold n * n names, which not every change needs."""
    shared: bool = False
    """Whether it was asked of the store: then its id is the store's, whatever it touches."""

    def __repr__(self) -> str:
        return f"Change({self.targets!r}, cause={self.cause!r}, id={self.id!r})"

    @property
    def long(self) -> bool:
        """Whether it writes values of so many parts that it takes long to build."""
        count = 0
        for target in self.targets:
            for op in target.ops:
                if op[0] == "set":
                    count += count_parts(op[2])
                elif op[0] == "append":
                    count += sum(map(count_parts, op[2]))
        return count > MANY

    @property
    def storewide(self) -> bool:
        """Whether its id is one of the store's, and not of its one scope."""
        return self.shared or len(self.targets) > 1


class Written(msgspec.Struct, frozen=True):
    """One entry that a change became."""

    scope: Scope
    timeline: str
    sequence: int
    hash: bytes
    time: int
    repeated: bool = False
    """The change had been applied before, under the same id; this is the entry of then."""
    answer: Any = None
    ops: Sequence[Any] = ()
    """What the entry says was done: some of what is asked for may come to nothing."""

    def __repr__(self) -> str:
        place = f"{str(self.scope)!r}, {self.timeline!r}, {self.sequence}"
        return f"Written({place}, {touched(self.ops)!r}, repeated={self.repeated})"


class Ticket:
    """A change on its way; `done` once its outcome is known."""

    __slots__ = ("begun", "change", "done", "error", "on_done", "rebuilt", "result")

    def __init__(self, change: Change) -> None:
        self.change = change
        self.begun = perf_counter()
        self.done = False
        self.rebuilt = False
        self.error: BaseException | None = None
        self.result: list[Written] = []
        self.on_done: Callable[[Ticket], None] | None = None

    @property
    def special(self) -> bool:
        """Whether it may expect more than that nobody was faster; others are built again."""
        return any(target.special is not None for target in self.change.targets)

    def outcome(self) -> list[Written]:
        """The entries, or the error that says why there are none."""
        if self.error is not None:
            raise self.error
        return self.result
