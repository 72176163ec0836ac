"""What gates are asked about: the operations of a change, and reads of what is sensitive."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from holdfast.errors import (
    InvalidValueError,
    NewerFormatError,
    ScopeNotFoundError,
    StateIntegrityError,
)
from holdfast.store.journal.declared import NOTHING
from holdfast.store.journal.directory import Directory
from holdfast.store.journal.lifetime import Meta, Terms
from holdfast.store.names.cause import Cause
from holdfast.store.names.items import MASK
from holdfast.store.names.scope import Scope
from holdfast.store.rules.classes import SENSITIVE, TRUSTED, class_of, inferred

KEYED = frozenset(("set", "append", "delete", "trim", "expire"))
"""Operations on keys: those that a gate may put in place of others."""


@dataclass(slots=True)
class Operation:
    """One operation of a change, as a gate sees it: values as the caller gave them, in a copy that
    the gate may change."""

    kind: str
    """set, append, delete, trim, expire, checkpoint, cosign, restore, fork, merge, sweep, delete
    scope, erase scope or (with the scope `global`) erase subject"""
    key: str = ""
    value: Any = None
    """Of long bytes that are written in pieces: a `LongValue`, which says how many there are so
    far. A gate is asked when they have become long and once more, with all of them, at the end; it
    may refuse them, and not replace them."""
    terms: Terms | None = None
    """When the key is to expire, and its class, if that was asked for."""
    subject: str | None = None
    """Whom a value that is set, or each item that is appended, is sealed for; a gate sees it open,
    and may name somebody."""
    sensitive: bool | None = field(default=None, compare=False, kw_only=True)
    """Whether its key is, by what is declared and stored when gates are asked; None if that was not
    judged yet. Then `repr` goes by what the operation itself tells."""

    def __repr__(self) -> str:
        named = self.terms.class_ if self.terms is not None else ""
        hidden = self.sensitive or named == SENSITIVE
        if self.sensitive is None and self.key and not named:
            hidden = inferred(self.key) == SENSITIVE
        return f"Operation({self.kind!r}, {self.key!r}, {MASK if hidden else self.value!r})"


@dataclass(frozen=True, slots=True)
class GateReading:
    """A read of keys of class sensitive."""

    scope: Scope
    timeline: str
    entry: int
    """The entry whose state is read."""
    keys: tuple[str, ...]
    cause: Cause


@dataclass(slots=True)
class GateRequest:
    """A change to one timeline of one scope, before it is built.

    A gate may change it in place or return another request: other operations, another cause. It
    may not send them elsewhere, to another scope or timeline.
    """

    scope: Scope
    timeline: str
    operations: list[Operation] = field(default_factory=list)
    cause: Cause | None = None
    attempt: int = 1


Asked = tuple[Scope, str, list[Operation], dict[str, int], int | None]
"""Scope, timeline, operations, expected versions, expected head."""


def judged(core: Directory, request: GateRequest) -> bool:
    """Note which operations are sensitive; whether all that is to be written is of class trusted.

    If that cannot be said, all may be sensitive and nothing is trusted.
    """
    try:
        found = _classes(core, request)
    except (StateIntegrityError, NewerFormatError, ScopeNotFoundError):
        # What is damaged, or new, may be just what says that a key is sensitive.
        found = [SENSITIVE] * len(request.operations)
    for operation, class_ in zip(request.operations, found, strict=True):
        operation.sensitive = class_ == SENSITIVE
    return all(class_ == TRUSTED for class_ in found)


def _classes(core: Directory, request: GateRequest) -> list[str]:
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


def refused(
    core: Directory, scope: Scope, timeline: str, operation: Operation, error: InvalidValueError
) -> InvalidValueError:
    """The error for a value that cannot be stored, which now says where it was to be written.

    Of what is sensitive it does not say where in the value: names in a path are part of that.
    """
    judged(core, GateRequest(scope, timeline, [operation]))
    masked = operation.subject is not None or bool(operation.sensitive)
    return error.placed(scope, operation.key, masked=masked)
