"""What gates are asked about: the operations of a change, and reads of what is sensitive."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from holdfast.store.journal.lifetime import Terms
from holdfast.store.names.cause import Cause
from holdfast.store.names.items import MASK
from holdfast.store.names.scope import Scope
from holdfast.store.rules.classes import SENSITIVE, inferred

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
