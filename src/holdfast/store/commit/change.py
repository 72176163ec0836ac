"""What a caller asks for: checked, led through the gates and taken apart into a change.

A change becomes an entry in three files: this one, `stage`, which makes the entries, and `group`,
which commits all that waits at one moment.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import astuple, dataclass, replace
from hashlib import sha256
from time import perf_counter
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.errors import (
    ChangeIdError,
    Conflict,
    DamagedRecordError,
    HoldfastError,
    InternalError,
    InvalidInputError,
    InvalidValueError,
    OutcomeUnknown,
    Unavailable,
)
from holdfast.storage.contract import Storage
from holdfast.store.commit.stage import Stage, staged_length
from holdfast.store.journal.directory import Directory
from holdfast.store.journal.entry import Body, touched
from holdfast.store.journal.floor import Anew
from holdfast.store.journal.ledger import Ledger
from holdfast.store.journal.lifetime import NEVER, READ, Terms
from holdfast.store.journal.slot import meta_of
from holdfast.store.journal.timeline import Timeline
from holdfast.store.lease import Fence, leases_now
from holdfast.store.names import rowkinds
from holdfast.store.names.arguments import check_text
from holdfast.store.names.cause import Cause
from holdfast.store.names.scope import Scope, check_key, owned_key
from holdfast.store.rules.ephemeral import Ephemerals
from holdfast.store.rules.gates import Asked, GateRequest, Operation, judged, refused
from holdfast.store.rules.keep import check_trim, going
from holdfast.store.rules.subjects import Subject
from holdfast.store.tree.split import count_parts
from holdfast.store.tree.tree import Node
from holdfast.store.tree.value import copied

if TYPE_CHECKING:
    from holdfast.store.commit.group import Core

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

    def prepared(self, ledger: Ledger) -> list[tuple[Any, ...]]:
        """The operations, taken apart under the keys that the scope has now."""
        if self.ledger is not ledger and self.ledger is not None:
            again = ledger.splitter.again
            made: list[tuple[Any, ...]] = []
            for op in self.ops:
                if op[0] == "set":
                    made.append(("set", op[1], again(op[2]), *op[3:]))
                elif op[0] == "append":
                    made.append(("append", op[1], [again(part) for part in op[2]]))
                else:
                    made.append(op)
            self.ops, self.ledger = made, ledger
        return self.ops

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


# ---- requests -----------------------------------------------------------------------------------
# From what a caller asks for to a change that can be committed.


MOST_OPERATIONS = 100_000


def build_change(
    core: Core,
    targets: Sequence[Asked],
    *,
    cause: Cause | None = None,
    id: str | None = None,
    looked: bool = False,
    shared: bool = False,
    attempt: int = 1,
) -> Change:
    """A change of what is asked for in each scope; `looked` says that it rests on reads.

    `shared`: it is asked of the store, so that its id is the store's.
    """
    if core.closed or core.read_only:
        core.check_writable()
    content = b""
    subjects: dict[str, Subject] = {}
    if id is not None:
        check_text(id, "the id of a change", 256, least=1)
        if not looked:  # what was read may be another value by now, and the change the same
            content = content_of(core, [(t[0], t[1], t[2]) for t in targets])
    made = []
    for scope, timeline, operations, expects, head in targets:
        if len(operations) > MOST_OPERATIONS:
            raise InvalidInputError(f"a change has at most {MOST_OPERATIONS} operations")
        due, sealed = cause, False
        if core.gates.front and operations:
            own = [replace(one, value=copied(one.value)) for one in operations]
            request = ask_gates(core, GateRequest(scope, timeline, own, cause, attempt))
            operations, due = request.operations, request.cause
        for operation in operations:
            sealed = sealed or operation.subject is not None
        if sealed:
            if id is not None and was_applied(core, [one[0] for one in targets], id, shared=shared):
                # It will only be found: a subject that was erased since does not come back for it.
                made.append(Target(scope, timeline, special=_not_found))
                continue
            operations = core.subjects.sealed(scope, operations, subjects)
        target = build_target(core, scope, timeline, operations, expects, head)
        if due != cause:
            target.cause = due or Cause()
        made.append(target)
    change = Change(made, cause, id, content, shared=shared)
    if subjects:
        change.fences += tuple(subjects.values())
    return change


def _not_found(stage: Stage, _: Body) -> None:
    """What a change that was applied becomes if nobody knows of that when it is committed."""
    raise Conflict(f"{stage.ledger.scope} was erased and made again meanwhile; send it again")


def ask_gates(core: Core, request: GateRequest) -> GateRequest:
    """Lead operations on keys through the gates in front, by the classes of the keys."""
    return core.gates.ask(request, lambda one: judged(core, one))


def build_target(
    core: Core,
    scope: Scope,
    timeline: str,
    operations: list[Operation],
    expects: dict[str, int],
    head: int | None = None,
) -> Target:
    """What is asked for of one timeline, its values taken apart."""
    ledger = core.held.get(scope) or core.ledger(scope, create=True)
    ops: list[tuple[Any, ...]] = []
    try:
        for operation in operations:
            key, value, terms = operation.key, operation.value, operation.terms
            key = owned_key(key) if type(key) is str else check_key(key, owner=True)
            if operation.kind == "set":
                more = (terms,) if terms is not None else ()
                known = core.memos.get(ledger.number, key)
                ops.append(("set", key, ledger.splitter.split(value, known), *more))
            elif operation.kind == "append":
                if type(operation.value) is not list:
                    raise InvalidInputError(f"{scope}: append takes a list of items for {key!r}")
                parts = [ledger.splitter.split_item(item) for item in operation.value]
                if parts:
                    ops.append(("append", key, parts))
            elif operation.kind == "delete":
                ops.append(("delete", key))
            elif operation.kind == "expire":
                ops.append(("expire", key, operation.terms or NEVER))
            elif operation.kind == "trim":
                check_trim(operation.value)
                ops.append(("trim", key, operation.value))
            else:
                raise InvalidInputError(f"{scope}: unknown operation {operation.kind!r}")
    except InvalidValueError as error:
        raise refused(core, scope, timeline, operation, error) from None
    return Target(scope, timeline, ops, expects, head, ledger=ledger)


# ---- expiry -------------------------------------------------------------------------------------
# Changes of keys' expiry that are judged when they are built, and putting it off by reading.
#
# What is to be written is judged by the store's checked clock as its entry is built, so that
# nothing goes, or is put off, that somebody has set meanwhile.


Decide = Callable[[Stage, str], tuple[Any, ...] | None]
"""The operation on a key at a stage, if there is something to do."""


def judging(
    scope: Scope, timeline: str, keys: Sequence[str], decide: Decide, cause: Cause
) -> tuple[Change, list[str]]:
    """A change that decides for each key when it is built, and the list of keys it touched."""
    done: list[str] = []

    def special(stage: Stage, body: Body) -> None:
        ops = [op for key in keys if (op := decide(stage, key)) is not None]
        done[:] = [op[1] for op in ops]
        if not done:
            raise Conflict(f"{scope}: there is nothing left to do", keys)
        stage.add(ops, body)

    target = Target(scope, timeline, special=special, create=False)
    return Change([target], cause), done


def refresh(core: Core, scope: Scope, timeline: str, keys: Sequence[str]) -> None:
    """Put off the expiry of keys that were read. A read does not fail if this does."""
    if core.read_only:
        return
    change, _ = judging(scope, timeline, keys, _put_off, READ)
    if core.later is not None:
        core.later(change)
    else:
        with suppress(HoldfastError):
            core.run(change)


def _put_off(stage: Stage, key: str) -> tuple[Any, ...] | None:
    meta = meta_of(stage.live(key))
    return ("expire", key, Terms(ttl=meta.term, term=meta.term)) if meta.due(stage.now) else None


# ---- expectations -------------------------------------------------------------------------------
# What a change rests on and what it tells, looked up while its entries are built.


def answer_of(stage: Stage, op: tuple[Any, ...]) -> Any:
    """What an operation tells the caller besides the entry's number."""
    if op[0] == "delete":
        return stage.live(op[1]) is not None
    return going(staged_length(stage, op[1]), op[2]) if op[0] == "trim" else None


def check_expected(target: Target, stage: Stage, ephemerals: Ephemerals) -> None:
    """Refuse a change that rests on something that has changed since."""
    if target.head is not None and stage.sequence != (target.head or stage.ledger.before):
        raise Conflict(
            f"{target.scope}: entry {stage.sequence} was written since; read again and retry",
            [str(target.scope)],
        )
    expects, version = target.expects.items(), ephemerals.version
    changed = [key for key, expected in expects if version(stage, key) != expected]
    if changed:
        raise Conflict(
            f"{target.scope}: {', '.join(map(repr, changed[:5]))} changed since it was read; "
            "read again and retry",
            changed,
        )


def name_each_other(staged: list[tuple[Target, Stage]], bodies: list[Body]) -> None:
    """Note in each entry of a change which others belong to it, or were read for it.

    Whose its id is can be told from that: an entry alone that has one of the store rests on the
    state before it.
    """
    written: list[tuple[int, int, int]] = []
    reads: list[tuple[int, int, int]] = []
    entries: list[Body] = []
    for (target, stage), body in zip(staged, bodies, strict=True):
        place = (stage.ledger.number, stage.timeline.number)
        if target.ops or target.special:
            written.append((*place, stage.sequence + 1 + target.backup))
            entries.append(body)
        else:
            reads.append((*place, stage.sequence))
    if len(bodies) == 1 and bodies[0].change is not None:
        reads = [(*place, stage.sequence)]
    for number, body in enumerate(entries):
        body.also = written[:number] + written[number + 1 :]
        body.reads = reads


def failure(error: BaseException) -> HoldfastError:
    """What a caller is told of an error; any other than ours is a bug."""
    if isinstance(error, HoldfastError):
        return error
    if not isinstance(error, Exception):
        return interrupted(error)
    wrapped = InternalError(f"{type(error).__name__} while building an entry")
    wrapped.__cause__ = error
    return wrapped


def keyless(unknown: OutcomeUnknown) -> Unavailable:
    """What is told where nobody knows whether the keys of new scopes are stored."""
    error = Unavailable("the keys of a new scope may not be stored; nothing was written: try again")
    error.__cause__ = unknown
    return error


def interrupted(error: BaseException) -> OutcomeUnknown:
    """What is told of a change during whose commit the thread that made it was stopped."""
    return OutcomeUnknown(
        f"{type(error).__name__} came while this change was committed together with others; "
        "whether it was applied is not known: look, or give changes an id and send it again"
    )


def outrun(storage: Storage) -> HoldfastError:
    """Why changes that were built anew and anew are never taken.

    Where reads do not find what the commit finds, that is no contest but damage.
    """
    if storage.check():
        return DamagedRecordError(
            "the store's file is damaged: reads do not show what commits meet there. Nothing was "
            "applied; verify names the damage: run recovery, or restore the file from a backup",
            "store",
        )
    return Unavailable(
        "other writers were always faster; try again. If that never helps, something lies in the "
        "way that belongs to nobody: run verify, which names it"
    )
