"""What a caller asks for, before it has become entries."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import astuple, dataclass
from hashlib import sha256
from time import perf_counter
from typing import Any

import msgspec

from holdfast.errors import ChangeIdError, InvalidValueError
from holdfast.store.commit.stage import Stage
from holdfast.store.journal.directory import Directory
from holdfast.store.journal.entry import Body, touched
from holdfast.store.journal.floor import Anew
from holdfast.store.journal.ledger import Ledger
from holdfast.store.journal.timeline import Timeline
from holdfast.store.lease import Fence, leases_now
from holdfast.store.names import rowkinds
from holdfast.store.names.cause import Cause
from holdfast.store.names.scope import Scope
from holdfast.store.rules.gate_request import Operation, refused
from holdfast.store.tree.split import count_parts
from holdfast.store.tree.tree import Node

MANY = 256
"""Parts that are built in an event loop: some milliseconds."""


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
    fences: tuple[Fence, ...] = msgspec.field(default_factory=leases_now)
    """It is committed only if the cells of these are as they were: leases that it is made under,
    subjects that it seals for."""
    linked: bool = True
    """Its entries name each other; n of them hold n * n names, which not every change needs."""
    shared: bool = False
    """Whether it was asked of the store: then its id is the store's, whatever it touches."""
    relaxed: bool = False
    """Whether a power loss may take it, until the next change that is not so is stored."""

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


class Written(msgspec.Struct, frozen=True, gc=False):
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


class Ticket(msgspec.Struct, eq=False):
    """A change on its way; `done` once its outcome is known."""

    change: Change
    waiter: Any = None
    """The task that waits for it, if one does: the async face wakes it."""
    begun: float = msgspec.field(default_factory=perf_counter)
    done: bool = False
    anew: Anew | None = None
    error: BaseException | None = None
    result: list[Written] = []

    @property
    def special(self) -> bool:
        """Whether it may expect more than that nobody was faster; others are built again."""
        return any(target.special is not None for target in self.change.targets)

    def outcome(self) -> list[Written]:
        """The entries, or the error that says why there are none."""
        if self.error is not None:
            raise self.error
        return self.result


# ---- ids ----------------------------------------------------------------------------------------
# Changes with an id: what was asked for under it, and what that became.


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder().decode


def content_of(core: Directory, targets: Iterable[tuple[Scope, str, Sequence[Operation]]]) -> bytes:
    """16 bytes that stand for operations as they were asked for.

    In which order scopes were named makes no difference. That of the fields of a mapping does: it
    is part of the value. A value that is sealed for a subject counts as one, whatever it is: once
    the subject is erased, nothing here may tell what it was, nor could it be compared.
    """
    digest = sha256()
    for scope, timeline, operations in sorted(targets, key=lambda one: (str(one[0]), one[1])):
        names = [str(scope), timeline, [(o.kind, o.key) for o in operations]]
        digest.update(_encode(names))
        terms = [(o.key, astuple(o.terms)[:5]) for o in operations if o.terms is not None]
        if terms:
            digest.update(_encode(terms))
        for operation in operations:
            value = operation.value if operation.subject is None else ["subject", operation.subject]
            try:
                data = core.codec.encode(core.codec.plain(value))
            except InvalidValueError as error:
                raise refused(core, scope, timeline, operation, error) from None
            digest.update(len(data).to_bytes(8, "big") + data)
    return core.tag(b"content", digest.hexdigest())


def id_tag(core: Directory, ledger: Ledger | None, id: str) -> bytes:
    """What stands for the id of a change of one scope, or of the store (None)."""
    owner = f"{ledger.number:012x}" if ledger is not None else ""
    return core.tag(b"change", f"{owner}\0{id}")


def row_of(core: Directory, ledger: Ledger, body: Body) -> bytes | None:
    """Key of the row that remembers the change of an entry; None if that had no id."""
    if body.change is None:
        return None
    alone = not body.also and not body.reads
    return rowkinds.change(id_tag(core, ledger if alone else None, body.change))


def change_tag(core: Directory, change: Change, id: str) -> bytes:
    """What stands for a change's id; each scope has ids of its own, and so has the store, and one
    that is made again under the name of a deleted one, whoever has deleted it.

    Whose it is, is not for the data to say: sent again, a change may touch more or fewer scopes.
    """
    if change.storewide:
        return id_tag(core, None, id)
    scope = change.targets[0].scope
    ledger = core.ledger(scope, create=True)
    if ledger.birth is None and ledger.over():
        core.forget(ledger)
        ledger = core.ledger(scope, create=True)
    return id_tag(core, ledger, id)


def was_applied(core: Directory, scopes: Sequence[Scope], id: str, *, shared: bool) -> bool:
    """Whether a change of these scopes was applied under an id, as far as is known by now."""
    if shared or len(scopes) > 1:
        return find_outcome(core, id_tag(core, None, id)) is not None
    ledger = core.known(scopes[0])
    return ledger is not None and find_outcome(core, id_tag(core, ledger, id)) is not None


def asked_for(core: Directory, change: Change) -> set[tuple[bytes, bytes]]:
    """`_tags` of each target that it does something to; others were only read."""
    doing = [one for one in change.targets if one.ops or one.special is not None]
    return {_tags(core, str(one.scope), one.timeline) for one in doing}


def _tags(core: Directory, scope: str, timeline: str) -> tuple[bytes, bytes]:
    """What stands for a scope, and for its timeline."""
    return scope_tag(core, scope), core.tag(b"written", f"{scope}\0{timeline}")


def scope_tag(core: Directory, scope: str) -> bytes:
    """What stands for a scope that was written to."""
    return core.tag(b"written", scope)


class Outcome(msgspec.Struct, array_like=True, frozen=True):
    """What a change with an id asked for and became."""

    content: bytes
    """Of `content_of`; empty if the change rests on what it read, which differs each time."""
    places: list[tuple[str, str, int, bytes, int]]
    """(scope, timeline, sequence, hash, time) of its entries."""
    others: list[tuple[bytes, bytes]] = []
    """`_tags` of what it wrote to without an entry: only to keys that are ephemeral. No names: no
    entry leads here from a scope that is erased."""

    def repeated(self, core: Directory, change: Change) -> list[Written]:
        """The entries of the first time; refused if that was another change, or elsewhere."""
        used = {_tags(core, scope, line) for scope, line, *_ in self.places}
        used |= {(scope, line) for scope, line in self.others}
        places = ", ".join(f"{scope} {line}@{number}" for scope, line, number, *_ in self.places)
        elsewhere = {scope for scope, _ in asked_for(core, change) - used}
        why = ""
        if used and elsewhere - {scope for scope, _ in used}:
            why = "for a change of other scopes"
        elif used and elsewhere:
            why = "on another timeline"
        elif self.content and change.content and self.content != change.content:
            why = "for a change with other content"
        if why:
            raise ChangeIdError(
                f"the id {change.id!r} was used before, {why} ({places}), and is used up for all "
                "timelines of a scope; nothing was written: give every change an id of its own"
            )
        return [
            Written(Scope.parse(scope), timeline, sequence, hash_, time, repeated=True)
            for scope, timeline, sequence, hash_, time in self.places
        ]


def outcome(core: Directory, change: Change, written: Iterable[Written]) -> Outcome:
    """What is remembered of a change."""
    places = [(str(w.scope), w.timeline, w.sequence, w.hash, w.time) for w in written]
    others = asked_for(core, change) - {_tags(core, scope, line) for scope, line, *_ in places}
    return Outcome(change.content, places, sorted(others))


def seal_outcome(core: Directory, key: bytes, outcome: Outcome) -> bytes:
    """The row that remembers it."""
    return core.seal_row(key, _encode(outcome))


def find_outcome(core: Directory, tag: bytes) -> Outcome | None:
    """What is remembered under a tag; None if no such change was applied."""
    key = rowkinds.change(tag)
    row = core.storage.get([key])[0]
    return Outcome(*_decode(core.open_row(key, row))) if row is not None else None
