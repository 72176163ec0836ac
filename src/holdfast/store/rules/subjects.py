"""Subjects: persons whose values are sealed under a key of their own, in whatever scope they lie.

What is written with `subject=` is sealed for that subject (`holdfast.seal.subject_keys`) before
anything else is done with it: behind this point nobody but readers meets its plain text. The
subject's key is in the ring, under a random id; a cell leads from the name, as a keyed tag, to the
id.

Making a subject: its key is durable in the ring first, then the cell is put.
Erasing one: 1. One commit swaps the cell to say so and puts a tombstone. Every change that seals
for a subject expects its cell as it was, so that nobody writes under the key from then on, also
not who has it in memory; and readers look for the tombstone whenever others have committed.
2. The key leaves the ring, which notes the id, and the engine's log. 3. The cell goes: a subject of
the same name is another one. Cut short, whoever erases or needs the name next, or sweeps, goes on.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple
from unicodedata import normalize

import msgspec

from holdfast.errors import (
    Conflict,
    DamagedRecordError,
    ErasedError,
    InvalidInputError,
    InvalidValueError,
    KeyMissingError,
    MissingError,
    OutcomeUnknown,
    Unavailable,
)
from holdfast.seal.codec import Codec, Typed, altered
from holdfast.seal.ring import Ring
from holdfast.seal.subject_keys import (
    ERASED,
    ID,
    KEY,
    SEALED,
    PartSeal,
    SubjectRow,
    drop_subject,
    put_subject,
    read_subject,
    says_erased,
)
from holdfast.storage.contract import Batch
from holdfast.storage.rows import again, each
from holdfast.store.journal.directory import IN_LOGS, Directory
from holdfast.store.journal.ledger import Ledger
from holdfast.store.journal.slot import Slot
from holdfast.store.lease import Fence, Leases
from holdfast.store.names import rowkinds
from holdfast.store.names.arguments import check_prefixes, check_text
from holdfast.store.names.cells import cell_at
from holdfast.store.names.items import ErasedSubject
from holdfast.store.names.scope import Scope
from holdfast.store.names.threads import leave_loop
from holdfast.store.rules.gates import Operation
from holdfast.store.tree import refs
from holdfast.store.tree.difference import Diff, Difference, same, value_changes

HELD = 4096
"""Subjects whose keys are kept in memory."""
_OTHERS = "others were always faster to make or erase this subject; try again"

_encode = msgspec.msgpack.Encoder().encode


class _Named(msgspec.Struct, array_like=True, frozen=True):
    """What the cell of a name says."""

    id: bytes
    erasing: bool = False


_read_named = msgspec.msgpack.Decoder(_Named).decode


class Subject:
    """A subject that a change seals for: it is committed only if the subject is still there."""

    def __init__(
        self, subjects: Subjects, name: str, key: bytes, cell: bytes, seal: PartSeal
    ) -> None:
        self._subjects = subjects
        self.core = subjects.core
        self.name = name
        self.key = key
        self.cell = cell
        self.seal = seal

    def check(self) -> None:
        """Whether it is gone shows when the change is committed."""

    def lost(self) -> Conflict:
        """It was erased since the change was built."""
        self._subjects.forget(self)
        return Conflict(
            "a subject that this seals for was erased meanwhile; nothing was written: what is "
            "written now, if that is still meant, is sealed for a new subject of that name"
        )


class Subjects:
    """The subjects of one open store. Safe for threads."""

    def __init__(self, core: Directory, leases: Leases) -> None:
        self.core = core
        self._leases = leases
        self._named: OrderedDict[str, tuple[Subject, object]] = OrderedDict()
        """With the token of the storage at which the cell was last looked at."""
        self._seals: OrderedDict[bytes, tuple[PartSeal | None, object]] = OrderedDict()
        """The same by id, with None for those that are erased."""
        self._lock = threading.Lock()  # of both tables; for moments only
        self._local = threading.local()
        self.resealed: str | None = None
        """How the names of subjects begin for whom a gate seals parts by itself, each time anew."""

    # sealing

    def sealed(
        self, scope: Scope, operations: list[Operation], used: dict[str, Subject]
    ) -> list[Operation]:
        """The operations with values sealed for whom they name, who is noted in `used`."""
        if all(operation.subject is None for operation in operations):
            return operations
        made = []
        for operation in operations:
            try:
                made.append(self._sealed(operation, used))
            except InvalidValueError as error:
                raise error.placed(scope, operation.key, masked=True) from None
        return made

    def _sealed(self, operation: Operation, used: dict[str, Subject]) -> Operation:
        name, value = operation.subject, operation.value
        if name is None:
            return operation
        if operation.kind not in ("set", "append"):
            raise InvalidInputError(f"{operation.kind} takes no subject")
        name, codec, single = check_subject(name), self.core.codec, operation.kind == "set"
        parts = [value] if single else value
        if type(parts) is not list:
            return Operation(operation.kind, operation.key, value, operation.terms)  # to be refused
        plain = [codec.encode(codec.plain(one, 1 if single else 2)) for one in parts]
        if name not in used:
            used[name] = self.of(name)  # only now: for what is refused nobody is made
        made = [Typed(SEALED, 1, used[name].seal.seal(one)) for one in plain]
        return Operation(
            operation.kind, operation.key, made[0] if single else made, operation.terms
        )

    def part(self, name: str, value: Any) -> Typed:
        """A part of a value in plain form, sealed; not fenced: a part that is written while its
        subject is erased is erased with it."""
        return Typed(SEALED, 1, self.of(name).seal.seal(self.core.codec.encode(value)))

    def strange(self, parts: Sequence[bytes]) -> int:
        """How many sealed parts no gate would seal anew if they were written back."""
        if self.resealed is None:
            return len(parts)
        names = [self.name_of(one[:ID]) or "" for one in parts]
        return sum(not name.startswith(self.resealed) for name in names)

    # opening

    def unseal(self, payload: bytes, codec: Codec) -> Any:
        """What a sealed part holds; `ERASED` if its subject is erased."""
        if type(payload) is not bytes or len(payload) < ID:
            raise DamagedRecordError("a part that is sealed for a subject is not whole")
        noted: list[bytes] | None = getattr(self._local, "noted", None)
        if noted is not None:
            noted.append(payload)
        seal = self._seal_of(payload[:ID])
        return codec.decode(seal.open(payload)) if seal is not None else ERASED

    @contextmanager
    def noting(self) -> Iterator[list[bytes]]:
        """Note the sealed parts that this thread opens inside the block."""
        noted: list[bytes] = []
        self._local.noted = noted
        try:
            yield noted
        finally:
            self._local.noted = None

    def _seal_of(self, id: bytes) -> PartSeal | None:
        """What opens a subject's parts; None if it is erased, by whomever."""
        with self._lock:
            held = self._seals.get(id)
        if held is not None and held[0] is None:
            return None
        seal, seen = held or (None, None)
        token = self.core.storage.version()
        if seal is not None and seen == token:
            return seal
        if self.core.storage.get([rowkinds.subject_tombstone(id)])[0] is not None:
            seal = None
        elif seal is None:
            ring = self.ring()
            row = read_subject(ring, id)
            if row is not None:
                seal = row.seal(ring, id)
            elif not says_erased(ring, id):
                raise _no_key()
        self._keep(self._seals, id, (seal, token))
        return seal

    def _keep(self, held: OrderedDict[Any, Any], key: Any, value: Any) -> None:
        with self._lock:
            held[key] = value
            held.move_to_end(key)
            if len(held) > HELD:
                held.popitem(last=False)

    def ring(self) -> Ring:
        """Where their keys are; refused where nothing is encrypted."""
        if self.core.ring is None:
            raise InvalidInputError(
                "the store is not encrypted, so nothing can be sealed for a subject; create one "
                "with key=, or leave subject= out and delete or erase what is about them by scope"
            )
        return self.core.ring

    # names

    def expect(self, names: Iterable[str | None]) -> None:
        """Called before a change for subjects is planned: making one waits for the disk, and so
        leaves the event loop."""
        for name in names:
            if name is not None and check_subject(name) not in self._named:
                leave_loop()

    def of(self, name: str) -> Subject:
        """The subject of a name; one that is not there is made."""
        ring = self.ring()
        with self._lock:
            held, seen = self._named.get(name, (None, None))
        token = self.core.storage.version()
        if held is not None and (seen == token or self.cell(held.key) == held.cell):
            self._keep(self._named, name, (held, token))
            return held
        key = rowkinds.subject(self.core.tag(b"subject", name))

        def step() -> Subject:
            cell = self.cell(key)
            if cell is None:
                return self._make(ring, name, key)
            return self._found(ring, name, key, cell)

        made = again(step, _OTHERS)
        self._keep(self._named, name, (made, token))
        return made

    def cell(self, key: bytes) -> bytes | None:
        """The cell of a name."""
        return cell_at(self.core.storage, key)

    def _make(self, ring: Ring, name: str, key: bytes) -> Subject:
        """A new subject; `Conflict` if somebody else has made one."""
        self._leases.stand()
        id, row = os.urandom(ID), SubjectRow(name, os.urandom(KEY))
        put_subject(ring, id, row)
        cell = self.core.seal_row(key, _encode(_Named(id)))
        try:
            self.core.storage.commit(Batch(cells=[(key, None, cell)]))
        except Conflict:  # what nothing was sealed for is needed by nobody
            drop_subject(ring, id, erased=False)
            raise
        except OutcomeUnknown as unknown:
            raise Unavailable(
                "whether the subject is made is not known; nothing else was written: try again"
            ) from unknown
        return Subject(self, name, key, cell, row.seal(ring, id))

    def _found(self, ring: Ring, name: str, key: bytes, cell: bytes) -> Subject:
        """The subject that a cell names; `Conflict` if it is erased, which is finished here."""
        named = self.read(key, cell)
        row = read_subject(ring, named.id) if not named.erasing else None
        if row is not None:
            return Subject(self, name, key, cell, row.seal(ring, named.id))
        if not named.erasing and not says_erased(ring, named.id):
            raise _no_key()
        self._erase(ring, key, cell, named)  # cut short; or a copy that was made before
        raise Conflict(_OTHERS)

    def read(self, key: bytes, cell: bytes) -> _Named:
        """What a cell says."""
        return self.core.decoded(key, cell, _read_named)

    def cells(self) -> Iterator[tuple[bytes, bytes]]:
        """The cells of all names."""
        return each(self.core.storage.cells, rowkinds.SUBJECTS, rowkinds.after(rowkinds.SUBJECTS))

    def names(self, prefix: str) -> list[str]:
        """The names of the subjects that are there."""
        self.core.check_open()
        check_prefixes(prefix=prefix)
        ring, found = self.core.ring, []
        for key, cell in self.cells() if ring is not None else ():
            assert ring is not None
            named = self.read(key, cell)
            row = read_subject(ring, named.id) if not named.erasing else None
            if row is not None and row.name.startswith(normalize("NFC", prefix)):
                found.append(row.name)
        return sorted(found)

    def name_of(self, id: bytes) -> str | None:
        """The name of a subject; None if it is erased."""
        row = read_subject(self.ring(), id)
        return row.name if row is not None else None

    # erasing

    def forget(self, subject: Subject) -> None:
        """Drop what is held of a subject, so that it is looked up again."""
        with self._lock:
            if self._named.get(subject.name, (None,))[0] is subject:
                del self._named[subject.name]
            self._seals.pop(subject.seal.id, None)

    def erase(self, name: str) -> ErasedSubject:
        """Remove a subject's key; who asks has led that through the gates."""
        core, ring = self.core, self.ring()
        key = rowkinds.subject(core.tag(b"subject", name))
        with self._lock:
            self._named.pop(name, None)
        if self.cell(key) is None:
            raise MissingError(
                "nothing is sealed for a subject of that name; `subjects()` lists them"
            )

        def step() -> tuple[int, bool]:
            cell = self.cell(key)
            if cell is None:
                return 0, ring.storage.settle()  # somebody else was faster
            return self._erase(ring, key, cell, self.read(key, cell))

        removed, settled = again(step, _OTHERS)
        still = _STILL_OPEN if settled else (*_STILL_OPEN, IN_LOGS)
        return ErasedSubject(name, removed > 0, still)

    def finish(self) -> int:
        """Finish what somebody began to erase, whoever that was; how many subjects those were."""
        ring, done = self.core.ring, 0
        for key, cell in self.cells() if ring is not None else ():
            assert ring is not None
            with suppress(Conflict, DamagedRecordError):  # finished meanwhile; or `verify` names it
                named = self.read(key, cell)
                if named.erasing:
                    self._erase(ring, key, cell, named)
                    done += 1
        return done

    def _erase(self, ring: Ring, key: bytes, cell: bytes, named: _Named) -> tuple[int, bool]:
        """Erase the subject of a cell; `Conflict` if it has changed.

        How many rows of the ring that were, and whether its log is rid of them.
        """
        core = self.core
        if not named.erasing:
            erasing = core.seal_row(key, _encode(_Named(named.id, True)))
            tombstone = rowkinds.subject_tombstone(named.id)
            row = core.seal_row(tombstone, _encode(core.clock.claimed()))
            self._leases.commit(
                Batch(puts=[(tombstone, row)], absent=[tombstone], cells=[(key, cell, erasing)])
            )
            cell = erasing
        self._keep(self._seals, named.id, (None, core.storage.version()))
        removed, settled = drop_subject(ring, named.id), ring.storage.settle()
        with suppress(Conflict):  # somebody else has finished it
            core.storage.commit(Batch(cells=[(key, cell, None)]))
        return removed, settled


_STILL_OPEN = (
    (
        "copies of the ring made before still hold the key: together with the master key they "
        "open what it sealed; rotate_master(), and destroying the old key, ends that"
    ),
    "what programs have read, and keep in memory or wrote elsewhere, or without subject=",
    "names of scopes and keys, causes and tags: they are never sealed for a subject",
)


def check_subject(name: object) -> str:
    """The name of a subject, in the form in which it is kept."""
    check_text(name, "a subject", 256, least=1)
    return normalize("NFC", str(name))


def _no_key() -> KeyMissingError:
    return KeyMissingError(
        "the ring holds no key for a subject, and does not say that it is erased; use the ring "
        "that belongs to this store"
    )


def erased(scope: Scope, key: str) -> ErasedError:
    """The error for a value whose subject is erased."""
    return ErasedError(
        f"{scope}: the value of {key!r} was sealed for a subject that has been erased; nobody can "
        "read it any more: set it anew, or delete it"
    )


def no_list(
    ledger: Ledger, key: str, slot: Slot, value: Any, *, stored: bool
) -> InvalidInputError | ErasedError:
    """The error for what append and trim cannot change.

    `value` is the slot's in plain form, unless it is kept as a tree; `stored`: that can be read.
    """
    sealed = slot.ref[0] == refs.TYPED and refs.read_typed(slot.ref)[0] == SEALED
    if sealed and stored:
        value = ledger.value(slot.ref, slot.location, ledger.codec.plain_reader)
    opened = ledger.codec.plain_viewer.opened(value)
    if opened is ERASED:
        return erased(ledger.scope, key)
    if sealed or opened is not value:
        why = (
            "is sealed for a subject as a whole, and append and trim would have to write it back "
            "open; if it is a list, use update, which seals it again. A list that is begun with "
            "append(..., subject=) is sealed item by item"
        )
    else:
        why = "is not a list; append and trim need a list or an absent key"
    return InvalidInputError(f"{ledger.scope}: the value of {key!r} {why}")


class Kept(NamedTuple):
    """Whom a value that is about to be updated is sealed for."""

    name: str
    id: bytes

    def check(self, scope: Scope, key: str, fences: Iterable[Fence]) -> None:
        """Refuse to seal what was read for this subject for another one of its name."""
        for fence in fences:
            if type(fence) is Subject and fence.name == self.name and fence.seal.id != self.id:
                raise erased(scope, key)


def kept_subject(
    subjects: Subjects, ledger: Ledger, slot: Slot, key: str, opened: int
) -> Kept | None:
    """Whom the value of a slot is sealed for; `opened` sealed parts were found in it."""
    if not opened:
        return None
    exact = ledger.value(slot.ref, slot.location, subjects.core.codec.plain_reader)
    if opened > 1 or type(exact) is not Typed or exact.name != SEALED:
        raise InvalidInputError(
            f"{ledger.scope}: parts of the value of {key!r} are sealed for subjects, and update "
            "would write them back open; use append, extend and trim, or set it with subject="
        )
    name = subjects.name_of(exact.value[:ID])
    if name is None:
        raise erased(ledger.scope, key)
    return Kept(name, exact.value[:ID])


# ---- subject values -----------------------------------------------------------------------------
# Values with parts that are sealed for subjects, as they are stored and as they look.


class Shown(NamedTuple):
    """A value in plain form, and what it is to those who look."""

    stored: Any
    """With its sealed parts as they are."""
    value: Any
    ids: frozenset[bytes]
    """The subjects that parts of it are sealed for."""


def has_sealed(value: Any) -> bool:
    """Whether a part of a value in plain form is sealed for a subject."""
    if type(value) is Typed:
        return value.name == SEALED or has_sealed(value.value)
    if type(value) is dict:
        return any(map(has_sealed, value.values()))
    return type(value) is list and any(map(has_sealed, value))


def shown(subjects: Subjects, stored: Any) -> Shown:
    """A value in plain form with its sealed parts opened; the very same if there are none."""
    codec = subjects.core.codec.plain_viewer

    def opened(_: Any, part: Any) -> Any:
        return codec.opened(part) if type(part) is Typed and part.name == SEALED else part

    with subjects.noting() as parts:
        value = altered(stored, opened)
    return Shown(stored, value, frozenset(part[:ID] for part in parts))


def opened_changes(subjects: Subjects, key: str, before: Any, after: Any, found: Diff) -> None:
    """Add how two values in plain form differ, with their sealed parts opened."""
    was, now, listed = shown(subjects, before), shown(subjects, after), len(found)
    value_changes(key, key, was.value, now.value, found)
    if len(found) == listed and not same(before, after):
        alike(key, now.value, found)


def alike(key: str, value: Any, found: Diff) -> None:
    """Add that a value changed and looks as before: it is sealed for another subject, or anew."""
    found.changes.append(Difference(key, key, "changed", value, value))
