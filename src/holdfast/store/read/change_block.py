"""A change while it is put together: its reads are expected, its writes are noted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any, NamedTuple
from unicodedata import normalize

from holdfast.errors import Conflict, InvalidInputError, ScopeNotFoundError
from holdfast.seal.subject_keys import ERASED
from holdfast.store.journal.lifetime import (
    NEVER,
    Meta,
    Terms,
    asked_expiry,
    asked_terms,
    read_meta,
    terms_of,
)
from holdfast.store.journal.slot import Slot
from holdfast.store.journal.timeline import Timeline
from holdfast.store.names.arguments import check_count, check_prefixes, check_version, listed
from holdfast.store.names.face import faced, here, quick
from holdfast.store.names.items import Page
from holdfast.store.names.scope import Scope, check_key
from holdfast.store.read.find import question
from holdfast.store.read.reader import Reader
from holdfast.store.rules.classes import SENSITIVE, class_of
from holdfast.store.rules.gates import Asked, Operation
from holdfast.store.rules.keep import going, trim_of
from holdfast.store.rules.lookup import Lookup
from holdfast.store.rules.subjects import erased
from holdfast.store.tree.value import copied

_MISSING: Any = object()


@faced
class ScopedChange:
    """The part of a change that concerns one timeline of one scope.

    Writes are noted and become durable when the block ends. What is read here is expected: if
    somebody changes it before, the change fails with `Conflict` and nothing of it is applied.
    Reads see the writes noted before them. The `owner` may write keys that parts of Holdfast own.
    """

    def __init__(self, reader: Reader, *, owner: bool = False) -> None:
        self._reader = reader
        self._storage = reader.core.storage
        self._owner = owner
        self.repeated: bool = False
        """Once the block has ended: whether it was not applied now, because it had been before
        under the same id. The state may have been put back since."""
        self.operations: list[Operation] = []
        self.over = False
        self.looked = False
        self.expects: dict[str, int] = {}
        self.head: int | None = None
        self._read_slots: dict[str, tuple[Timeline | None, Slot | None]] = {}
        self._read_keys: dict[str, list[str]] = {}

    # writing

    @here
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

    @here
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

    @here
    def persist(self, key: str) -> None:
        """Let a key never expire."""
        self._note("expire", key, terms=NEVER)

    @here
    def append(self, key: str, item: Any, *, subject: str | None = None) -> None:
        """Add an item to the end of a list, which is made if the key is absent."""
        self._note("append", key, [item], subject=subject)

    @here
    def extend(self, key: str, items: Iterable[Any], *, subject: str | None = None) -> None:
        """Add items to the end of a list."""
        self._note("append", key, listed(items, "extend"), subject=subject)

    @here
    def trim(self, key: str, *, keep_last: int | None = None, before: int | None = None) -> None:
        """Remove the oldest items of a list; see `State.trim`."""
        self._note("trim", key, trim_of(keep_last, before))

    @here
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

    @quick
    def get(self, key: str, default: Any = None, *, as_: Any = None) -> Any:
        """The value of a key, which must not change until this change is applied."""
        value = self._staged(key)
        if value is _MISSING:
            return default
        if value is ERASED:
            raise erased(self._reader.scope, key)
        if as_ is not None:
            from holdfast.seal.codec import convert

            return convert(value, as_, f"{self._reader.scope}: {key!r}")
        return value

    @quick
    def exists(self, key: str) -> bool:
        """Whether a key is there, which must not change until this change is applied."""
        return self._staged(key) is not _MISSING

    @quick
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

    @quick
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

    @quick
    def tail(self, key: str, count: int) -> list[Any]:
        """The last items of a list, which must not change until this change is applied."""
        check_count(count, "the count of tail")
        items = self._items(key, self._staged(key))
        return items[-count:] if count else []

    @quick
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


# ---- exact values -------------------------------------------------------------------------------
# Values exactly as they are stored, from one change into another.
#
# What is copied so keeps its subjects, its expiry and its class, wherever it goes: a value that was
# read and written again would be open, and last for ever.


class Exact(NamedTuple):
    """A value in plain form with its sealed parts as they are, and what is known of it."""

    value: Any
    meta: Meta


def exact(part: ScopedChange, key: str) -> Exact | None:
    """What is stored of a key, which must not change until the change is applied.

    What is sensitive by the rules of its scope, or by its name, stays so elsewhere.
    """
    found = part._stored(key)
    if found is None:
        return None
    line, slot = found
    value = line.ledger.value_of(key, line.settled(slot), line.ledger.codec.plain_reader)
    meta = read_meta(slot.meta)
    if class_of(key, slot.meta, line.declared) == SENSITIVE:
        meta = meta._replace(class_=SENSITIVE)
    return Exact(value, meta)


def put(part: ScopedChange, key: str, one: Exact) -> None:
    """Set a key to what was stored elsewhere."""
    part.operations.append(
        Operation("set", check_key(key, owner=True), one.value, terms_of(one.meta))
    )


def sensitive(part: ScopedChange, key: str) -> bool:
    """Whether a key is there and sensitive; this must not change until the change is applied."""
    found = part._stored(key)
    return found is not None and class_of(key, found[1].meta, found[0].declared) == SENSITIVE
