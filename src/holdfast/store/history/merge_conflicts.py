"""What both sides of a merge changed in different ways, as callers see it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from holdfast.errors import PrunedError
from holdfast.store.names.items import Entry
from holdfast.store.names.masked import MASK
from holdfast.store.names.scope import Scope
from holdfast.store.tree.difference import DELETED, contrast

Span = tuple[Entry | None, Entry | None]
"""Between which entries a side last wrote or removed a key; None: before the first one."""
_NEVER = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class MergeConflict:
    """One thing that both timelines changed in different ways.

    Values are as `get(…, plain=True)` gives them; `DELETED` stands where there is none, `ERASED`
    for what was sealed for a subject that is erased. Those of class sensitive are masked; a
    function that decides has them in the attributes, and `repr` and `str` do not show them.
    """

    key: str
    path: str
    """The key, then the way into the value: `plan.steps[3].done`."""
    base: Any
    """What it was when both had it in common; `DELETED` also if that cannot be said."""
    ours: Any
    theirs: Any
    our_entry: Entry | None
    """The entry that last wrote (or removed) the key on our side: its time, its cause. None if
    there is none, or if that entry was pruned."""
    their_entry: Entry | None
    sensitive: bool = False
    """Whether the key is of class sensitive."""

    def masked(self) -> MergeConflict:
        """The same without values, or where in them it is: for keys of class sensitive."""
        names = ("base", "ours", "theirs")
        hidden: dict[str, Any] = {
            name: MASK for name in names if getattr(self, name) is not DELETED
        }
        return replace(self, path=self.key, **hidden)

    def __repr__(self) -> str:
        one = self.masked() if self.sensitive else self
        named = ((name, getattr(one, name)) for name in self.__slots__)
        return f"MergeConflict({', '.join(f'{name}={value!r}' for name, value in named)})"

    def __str__(self) -> str:
        one = self.masked() if self.sensitive else self
        base, ours, theirs = contrast(one.base, one.ours, one.theirs)
        return (
            f"{one.path}: was {base}\n"
            f"  ours: {ours}{_told(one.our_entry)}\n"
            f"  theirs: {theirs}{_told(one.their_entry)}"
        )


def newer(scope: Scope, key: str, ours: Span, theirs: Span) -> bool:
    """Whether theirs was written, or removed, after ours; refused if nothing says so."""
    (low, high), (after, until) = (
        [entry.time if entry is not None else _NEVER for entry in span] for span in (ours, theirs)
    )
    if after <= high and low < until:
        raise PrunedError(
            f"{scope}: the entry that removed {key!r} was pruned, so nothing says which side is "
            "the newest, and nothing was merged. Give another strategy: ours, theirs, both or a "
            "function"
        )
    return after > high


def _told(entry: Entry | None) -> str:
    if entry is None:
        return ""
    who = f" by {entry.cause.actor}" if entry.cause.actor else ""
    when = entry.time.isoformat(" ", "seconds")
    return f"  ({entry.timeline}@{entry.sequence}{who}, {when})"
