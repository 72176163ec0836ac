"""From what a caller asks for to a change that can be committed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any
from unicodedata import normalize

from holdfast.errors import (
    Conflict,
    InvalidInputError,
    InvalidValueError,
    NewerFormatError,
    ScopeNotFoundError,
    StateIntegrityError,
)
from holdfast.seal.subject_parts import ERASED
from holdfast.store.commit.change import Change, Target
from holdfast.store.commit.core import Core
from holdfast.store.commit.outcome import content_of, was_applied
from holdfast.store.commit.refused_values import refused
from holdfast.store.commit.stage import Stage
from holdfast.store.journal.entry import Body, Cause
from holdfast.store.journal.lifetime import NEVER, Meta, Terms, asked_expiry, asked_terms
from holdfast.store.journal.slot import Slot
from holdfast.store.journal.timeline import Timeline
from holdfast.store.names.arguments import (
    check_count,
    check_prefixes,
    check_text,
    check_version,
    listed,
)
from holdfast.store.names.items import LongValue, Page
from holdfast.store.names.scope import Scope, check_key
from holdfast.store.read.find import question
from holdfast.store.read.reader import Reader
from holdfast.store.rules.classes import SENSITIVE, TRUSTED, class_of
from holdfast.store.rules.declared import NOTHING
from holdfast.store.rules.gates import Operation, Request
from holdfast.store.rules.lookup import Lookup
from holdfast.store.rules.subjects import Subject, erased
from holdfast.store.rules.trim import check_trim, going, trim_of
from holdfast.store.tree.value_copy import copied

MOST_OPERATIONS = 100_000
_MISSING: Any = object()


Asked = tuple[Scope, str, list[Operation], dict[str, int], int | None]
"""Scope, timeline, operations, expected versions, expected head."""


def build_change(
    core: Core,
    targets: Sequence[Asked],
    *,
    cause: Cause | None = None,
    id: str | None = None,
    looked: bool = False,
    shared: bool = False,
    attempt: int = 1,
    stored: Mapping[str, list[Any]] = MappingProxyType({}),
) -> Change:
    """A change of what is asked for in each scope; `looked` says that it rests on reads.

    `shared`: it is asked of the store, so that its id is the store's.
    `stored` has the shapes of long values that are in the scope already, by their keys.
    """
    core.check_writable()
    content = b""
    subjects: dict[str, Subject] = {}
    if id is not None:
        check_text(id, "the id of a change", 256, least=1)
        if not looked:  # what was read may be another value by now, and the change the same
            content = content_of(core, [(t[0], t[1], t[2]) for t in targets])
    scopes = [scope for scope, *_ in targets]
    made = []
    for scope, timeline, operations, expects, head in targets:
        if len(operations) > MOST_OPERATIONS:
            raise InvalidInputError(f"a change has at most {MOST_OPERATIONS} operations")
        due = cause
        if core.gates.front and operations:
            own = [replace(one, value=copied(one.value)) for one in operations]
            request = ask_gates(core, Request(scope, timeline, own, cause, attempt))
            operations, due = request.operations, request.cause
        if any(one.subject is not None for one in operations):
            if id is not None and was_applied(core, scopes, id, shared=shared):
                # It will only be found: a subject that was erased since does not come back for it.
                made.append(Target(scope, timeline, special=_not_found))
                continue
            operations = core.subjects.sealed(scope, operations, subjects)
        target = build_target(core, scope, timeline, operations, expects, head, stored)
        target.cause = (due or Cause()) if due != cause else None
        made.append(target)
    change = Change(made, cause, id, content, attempt, shared=shared)
    if subjects:
        change.fences += tuple(subjects.values())
    return change


def _not_found(stage: Stage, _: Body) -> None:
    """What a change that was applied becomes if nobody knows of that when it is committed."""
    raise Conflict(f"{stage.ledger.scope} was erased and made again meanwhile; send it again")


def ask_gates(core: Core, request: Request) -> Request:
    """Lead operations on keys through the gates in front, by the classes of the keys."""
    return core.gates.ask(request, lambda one: _judged(core, one))


def _judged(core: Core, request: Request) -> bool:
    """Note which operations are sensitive; whether all that is to be written is of class trusted.

    If that cannot be said, all may be sensitive and nothing is trusted.
    """
    try:
        found = _classes(core, request)
    except (StateIntegrityError, NewerFormatError, ScopeNotFoundError):
        found = [SENSITIVE] * len(request.operations)
    for operation, class_ in zip(request.operations, found, strict=True):
        operation.sensitive = class_ == SENSITIVE
    return all(class_ == TRUSTED for class_ in found)


def _classes(core: Core, request: Request) -> list[str]:
    """The class of each key that is to be written, as it will be.

    What a stored value was given counts for operations that keep it.
    """
    line = core.current(request.scope, request.timeline)
    declared = line.declared if line is not None else NOTHING
    metas: dict[str, bytes] = {}
    found: list[str] = []
    for one in request.operations:
        key, terms = one.key, one.terms
        if one.kind == "set" and not (terms is not None and terms.keep):
            metas[key] = Meta(class_=terms.class_ if terms is not None else "").pack()
        elif key not in metas:
            slot = line.slot(key) if line is not None else None
            expired = slot is not None and slot.over(core.clock.checked())
            metas[key] = b"" if slot is None or expired else slot.meta
        found.append(class_of(key, metas[key], declared))
        if one.kind == "delete":
            metas[key] = b""
    return found


def build_target(
    core: Core,
    scope: Scope,
    timeline: str,
    operations: list[Operation],
    expects: dict[str, int],
    head: int | None = None,
    stored: Mapping[str, list[Any]] = MappingProxyType({}),
) -> Target:
    """What is asked for of one timeline, its values taken apart."""
    ledger = core.ledger(scope, create=True)
    ops: list[tuple[Any, ...]] = []
    key = ""
    try:
        for operation in operations:
            key = check_key(operation.key, owner=True)
            if operation.kind == "set":
                terms = (operation.terms,) if operation.terms is not None else ()
                if type(operation.value) is LongValue and key in stored:
                    ops.append(("ahead", key, stored[key], *terms))
                    continue
                ops.append(("set", key, core.split(ledger, key, operation.value), *terms))
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


class ScopedChange:
    """The part of a change that concerns one timeline of one scope.

    Writes are noted and become durable when the block ends. What is read here is expected: if
    somebody changes it before, the change fails with `Conflict` and nothing of it is applied.
    Reads see the writes noted before them. The `owner` may write keys that parts of Holdfast own.
    """

    repeated = False
    """Once the block has ended: whether it was not applied now, because it had been before under
    the same id. The state may have been put back since."""

    def __init__(self, reader: Reader, *, owner: bool = False) -> None:
        self._reader = reader
        self.storage = reader.core.storage
        self._owner = owner
        self.operations: list[Operation] = []
        self.over = False
        self.looked = False
        self.expects: dict[str, int] = {}
        self.head: int | None = None
        self._read_slots: dict[str, tuple[Timeline | None, Slot | None]] = {}
        self._read_keys: dict[str, list[str]] = {}

    # writing

    def set(
        self,
        key: str,
        value: Any,
        *,
        if_version: int | None = None,
        ttl: float | timedelta | None = None,
        expires: datetime | None = None,
        sliding: bool = False,
        class_: str | None = None,
        subject: str | None = None,
    ) -> None:
        """Set a key."""
        terms = asked_terms(ttl, expires, sliding, class_)
        self._note("set", key, value, if_version, terms, subject)

    def expire(
        self,
        key: str,
        ttl: float | timedelta | None = None,
        *,
        expires: datetime | None = None,
        sliding: bool = False,
    ) -> None:
        """Let a key that is there expire; its value and version stay."""
        self._note("expire", key, terms=asked_expiry(ttl, expires, sliding))

    def persist(self, key: str) -> None:
        """Let a key never expire."""
        self._note("expire", key, terms=NEVER)

    def append(self, key: str, item: Any, *, subject: str | None = None) -> None:
        """Add an item to the end of a list, which is made if the key is absent."""
        self._note("append", key, [item], subject=subject)

    def extend(self, key: str, items: Iterable[Any], *, subject: str | None = None) -> None:
        """Add items to the end of a list."""
        self._note("append", key, listed(items, "extend"), subject=subject)

    def trim(self, key: str, *, keep_last: int | None = None, before: int | None = None) -> None:
        """Remove the oldest items of a list; see `State.trim`."""
        self._note("trim", key, trim_of(keep_last, before))

    def delete(self, key: str, *, if_version: int | None = None) -> None:
        """Remove a key; one that is absent is no error."""
        self._note("delete", key, None, if_version)

    def _check_open(self) -> None:
        """Refuse what would be noted too late, and never be written."""
        if self.over:
            raise InvalidInputError(
                f"{self._reader.scope}: this change is over; what it writes must stand in its block"
            )

    def _note(
        self,
        kind: str,
        key: str,
        value: Any = None,
        if_version: int | None = None,
        terms: Terms | None = None,
        subject: str | None = None,
    ) -> None:
        self._check_open()
        key = check_key(key, owner=self._owner)
        check_version(if_version)
        if if_version is not None and self.expects.setdefault(key, if_version) != if_version:
            raise Conflict(
                f"{self._reader.scope}: {key!r} has version {self.expects[key]}, not {if_version}; "
                "read again and retry",
                [key],
            )
        # The caller may change its object before the block ends; what was meant is what it is now.
        self.operations.append(Operation(kind, key, copied(value), terms, subject))

    # reading

    def get(self, key: str, default: Any = None, *, as_: Any = None) -> Any:
        """The value of a key, which must not change until this change is applied."""
        value = self._staged(key)
        if value is _MISSING:
            return default
        if value is ERASED:
            raise erased(self._reader.scope, key)
        if as_ is not None:
            from holdfast.seal.typed import convert

            return convert(value, as_, f"{self._reader.scope}: {key!r}")
        return value

    def exists(self, key: str) -> bool:
        """Whether a key is there, which must not change until this change is applied."""
        return self._staged(key) is not _MISSING

    def keys(self, prefix: str = "") -> list[str]:
        """Keys, none of which may change (the whole timeline) until this change is applied."""
        check_prefixes(prefix=prefix)
        self._expect_head()
        prefix = normalize("NFC", prefix)
        if prefix not in self._read_keys:  # the same when it is asked again, as with values
            self._read_keys[prefix] = self._reader.keys(prefix)
        found = set(self._read_keys[prefix])
        for operation in self.operations:
            if operation.key.startswith(prefix) and operation.kind not in ("expire", "trim"):
                (found.discard if operation.kind == "delete" else found.add)(operation.key)
        return sorted(found)

    def find(
        self,
        lookup: str,
        where: Mapping[str, Any] | None = None,
        /,
        *,
        order: str | None = None,
        limit: int | None = None,
        after: str | None = None,
        values: bool = False,
        **terms: Any,
    ) -> Page:
        """What a lookup leads to; nothing (of the whole timeline) may change until this is applied.

        A lookup does not know what is noted here: ask before writing what it is about.
        """
        asked = question(lookup, where, terms, order, limit, after)
        for one in self._reader.declared().of(Lookup):
            if one.name == lookup and any(one.covers(noted.key) for noted in self.operations):
                raise InvalidInputError(
                    f"{self._reader.scope}: the lookup {lookup!r} does not know what this change "
                    "has written; find before you write"
                )
        self._expect_head()
        return self._reader.find(asked, values, False)

    def tail(self, key: str, count: int) -> list[Any]:
        """The last items of a list, which must not change until this change is applied."""
        check_count(count, "the count of tail")
        items = self._items(key, self._staged(key))
        return items[-count:] if count else []

    def length(self, key: str) -> int:
        """Number of items of a list, which must not change until this change is applied."""
        return len(self._items(key, self._staged(key)))

    def _items(self, key: str, value: Any) -> list[Any]:
        if value is _MISSING:
            return []
        if value is ERASED:
            raise erased(self._reader.scope, key)
        if type(value) is not list:
            raise InvalidInputError(f"{self._reader.scope}: the value of {key!r} is not a list")
        return value

    def _staged(self, key: str) -> Any:
        key = check_key(key, owner=True)
        value = _MISSING
        known = False
        for operation in self.operations:
            if operation.key != key:
                continue
            if operation.kind == "set":
                value, known = copied(operation.value), True
            elif operation.kind == "delete":
                value, known = _MISSING, True
            elif operation.kind in ("append", "trim"):
                if not known:
                    value, known = self._read(key), True
                items = self._items(key, value)
                if operation.kind == "append":
                    value = items + copied(operation.value)
                elif value is not _MISSING:
                    value = items[going(len(items), operation.value) :]
        return value if known else self._read(key)

    def _read(self, key: str) -> Any:
        """What is stored; read again it is the same: who compares it with what was made of it, and
        then writes nothing, must not have looked at two moments."""
        found = self._stored(key)
        if found is None:
            return _MISSING
        timeline, slot = found
        try:
            value = self._reader.value(timeline, key, slot)
        except ScopeNotFoundError:
            raise Conflict(f"{self._reader.scope} was erased since it was read; retry") from None
        self._reader.told(timeline, [(key, slot)])
        return value

    def _stored(self, key: str) -> tuple[Timeline, Slot] | None:
        """Where a value is that was there before this change; it is expected as what is read."""
        self.looked = True
        if key not in self._read_slots:
            now = self._reader.now()
            found = self._reader.live(now, key) if now is not None else None
            self._read_slots[key] = now, found
            self.expects.setdefault(key, now.version(found) if now is not None else 0)
        timeline, slot = self._read_slots[key]
        return (timeline, slot) if timeline is not None and slot is not None else None

    def _expect_head(self) -> None:
        self.looked = True
        if self.head is None:
            timeline = self._reader.now()
            self.head = timeline.sequence if timeline is not None else 0

    @property
    def target(self) -> Asked:
        """What `build_change` takes."""
        reader = self._reader
        return reader.scope, reader.timeline, self.operations, self.expects, self.head

    @property
    def _place(self) -> tuple[Scope, str]:
        """The timeline that it concerns."""
        return self._reader.scope, self._reader.timeline

    @property
    def empty(self) -> bool:
        """Whether nothing was written."""
        return not self.operations
