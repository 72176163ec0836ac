"""What all handles of one open store share: keys, directory, caches, committer.

A change becomes an entry in three files: here what a caller asks for is checked, led through the
gates and taken apart; `group_commit` commits all that waits at one moment; `stage` makes the
entries.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import replace
from typing import Any

from holdfast.errors import (
    Conflict,
    HoldfastError,
    InvalidInputError,
    InvalidValueError,
)
from holdfast.seal.codec import Codec
from holdfast.seal.ring import Ring
from holdfast.seal.signer import Signer
from holdfast.storage.contract import Storage
from holdfast.store.commit.change import Change, Target, Ticket, Written, content_of, was_applied
from holdfast.store.commit.gates import Gates
from holdfast.store.commit.group_commit import Committer
from holdfast.store.commit.lookup_terms import keep_lookups
from holdfast.store.commit.stage import Stage
from holdfast.store.journal.declared import KINDS
from holdfast.store.journal.directory import Directory
from holdfast.store.journal.entry import Body
from holdfast.store.journal.ledger import Ledger, RowCache
from holdfast.store.journal.lifetime import NEVER, READ, Terms
from holdfast.store.journal.slot import meta_of
from holdfast.store.journal.timeline import Timeline
from holdfast.store.lease import Leases
from holdfast.store.names import background
from holdfast.store.names.arguments import (
    check_text,
)
from holdfast.store.names.cause import Cause
from holdfast.store.names.clock import Clock
from holdfast.store.names.meter import Meter
from holdfast.store.names.scope import Scope, check_key, owned_key
from holdfast.store.rules.classes import Classed
from holdfast.store.rules.ephemeral import Ephemeral, Ephemerals
from holdfast.store.rules.gate_request import Asked, GateRequest, Operation, judged, refused
from holdfast.store.rules.keep import Keep, check_trim
from holdfast.store.rules.lookup import Lookup
from holdfast.store.rules.sticky import Sticky
from holdfast.store.rules.subjects import Subject, Subjects
from holdfast.store.rules.upload_pins import Pins
from holdfast.store.tree.split import MemoCache
from holdfast.store.tree.value import copied

KINDS.update({kind.kind: kind for kind in (Classed, Ephemeral, Keep, Lookup, Sticky)})


class Core(Directory):
    """The shared inside of a store. Thread safe; handles of it are cheap."""

    def __init__(
        self,
        storage: Storage,
        lineage: bytes,
        *,
        instance: bytes,
        public: bytes,
        self_signed: bool,
        ring: Ring | None,
        ring_storage: Storage | None,
        signer: Signer | None,
        codec: Codec,
        clock: Clock,
        read_only: bool = False,
    ) -> None:
        super().__init__(storage, lineage, ring, codec, clock, read_only=read_only)
        self.instance = instance
        self.public = public
        self.self_signed = self_signed
        self.ring_storage = ring_storage
        self.signer = signer
        self.meter = Meter()
        self.gates = Gates(self.meter)
        self.near: RowCache | None = None  # there is none, unless who opens the store is given one
        self.ephemerals = Ephemerals()
        self.committer = Committer(self, self.lanes)
        self.pins = Pins(storage)
        self.announcing: list[int] = []
        """Scopes whose pruning this process is about to announce, once for each who does."""
        self.later: Callable[[Change], None] | None = None
        """Commits, behind who asks, what nobody waits for."""
        self.pump: Any = None
        """Commits for the async face of the store, if it has one."""
        self.leases = Leases(self)
        self.subjects = Subjects(self, self.leases)
        if ring is not None:
            codec.unseal = self.subjects.unseal
        self.memos = MemoCache()
        background.joined(self)

    def __reduce__(self) -> Any:
        raise TypeError("an open store cannot be pickled: hand over its URL, and open it there")

    guard: Any = None
    """What every way to a scope leads by, where somebody may not use all of the store; see
    `holdfast.access.guard`."""

    redact: Any = None
    """Makes of a value what people may see, where something is not for them."""

    def check_store(self) -> None:
        """Refuse what concerns the whole store, where somebody may not use all of it."""

    def check_lease(self, name: str) -> None:
        """Refuse a lease that somebody may not take."""

    def forget(self, ledger: Ledger) -> None:
        """Drop what is held of a scope, so that it is read again."""
        with self._lock:
            self.ephemerals.forget(ledger.number)
            super().forget(ledger)

    # changes

    def submit(self, change: Change) -> Ticket:
        """Queue a change."""
        if self.closed or self.read_only:
            self.check_writable()
        ticket = Ticket(change)
        self.committer.submit(ticket)
        return ticket

    def run(self, change: Change) -> list[Written]:
        """Commit a change and wait for it in this thread."""
        ticket = self.submit(change)
        self.committer.drive(ticket)
        if ticket.error is not None:
            raise ticket.error
        return ticket.result

    def stage(self, timeline: Timeline) -> Stage:
        """What the next entries of a timeline are built on."""
        return Stage(timeline, self.clock, keep_lookups)

    def split(self, ledger: Ledger, key: str, value: Any) -> Any:
        """Take a value apart under a scope's keys."""
        return ledger.splitter.split(value, self.memos.get(ledger.number, key))

    def prepared(self, ledger: Ledger, target: Target) -> Sequence[tuple[Any, ...]]:
        """A target's operations, taken apart under the keys that the scope has now."""
        if target.ledger is ledger or target.ledger is None:
            return target.ops
        again = ledger.splitter.again
        made: list[tuple[Any, ...]] = []
        for op in target.ops:
            if op[0] == "set":
                made.append(("set", op[1], again(op[2]), *op[3:]))
            elif op[0] == "append":
                made.append(("append", op[1], [again(part) for part in op[2]]))
            else:
                made.append(op)
        target.ops, target.ledger = made, ledger
        return made

    def close(self) -> None:
        """Commit what waits and release everything."""
        if self.closed:
            return
        try:
            while self.closing:
                self.closing.pop()()
            self.committer.drain()
            if self.pump is not None:
                self.pump.stop()
            self.leases.close()
        finally:
            self.pins.close()
            self.closed = "the store is closed; open it again"
            self.lanes.bell.ring()
            for held in (self.held, self.nodes, self.atoms, self.ephemerals):
                held.clear()  # at once: else it waits, in a cycle, for a slow garbage collection
            self.storage.close()
            if self.ring_storage is not None:
                self.ring_storage.close()


# ---- another storage ----------------------------------------------------------------------------
# The same store, seen in another storage: a copy, or rows as if some were others.


def seen_in(core: Core, storage: Storage) -> Core:
    """A store that is read in another storage with the keys of this one, and nothing cached.

    Nothing can be written. The ring belongs to the store that it is taken from: that must stay
    open as long.
    """
    core.check_store()  # nothing asks there
    return Core(
        storage,
        core.lineage,
        instance=core.instance,
        public=core.public,
        self_signed=core.self_signed,
        ring=core.ring,
        ring_storage=None,
        signer=None,
        codec=copy(core.codec),
        clock=core.clock,
        read_only=True,
    )


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
