"""What the store hands out besides values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple, TypeVar

from holdfast.store.names.cause import Cause
from holdfast.store.names.scope import Scope

TYPES = (
    "manual",
    "automatic",
    "scheduled",
    "triggered",
    "recovery",
    "migration",
    "routine",
    "pre_operation",
    "session_start",
    "post_operation",
)
"""The types of checkpoints."""
_Kind = TypeVar("_Kind")


class Position(dict[int, int]):
    """Where a reader of the feed is, and where to go on from; see `holdfast.store.read.watch`."""


@dataclass(frozen=True, slots=True)
class Item:
    """A value with what is known of it."""

    key: str
    value: Any
    version: int
    """The entry that gave the key this value; `set(..., if_version=)` takes it."""
    time: datetime
    cause: Cause
    expires: datetime | None = None
    class_: str = "standard"
    """Its state class: standard, trusted, sensitive or external."""

    def __repr__(self) -> str:
        value = MASK if self.class_ == "sensitive" else self.value
        return (
            f"Item(key={self.key!r}, value={value!r}, version={self.version}, time={self.time!r}, "
            f"cause={self.cause!r}, expires={self.expires!r}, class_={self.class_!r})"
        )


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of a timeline, without its values."""

    scope: Scope
    timeline: str
    sequence: int
    time: datetime
    operations: tuple[tuple[str, str], ...]
    """(kind, key) of each; the key is empty where there is none."""
    cause: Cause
    hash: str
    change: str | None = None
    also: tuple[tuple[str, str, int], ...] = ()
    """Entries of other scopes in the same change: (scope, timeline, sequence)."""
    clock_step: int = 0
    point: str = ""
    """Of a restore, fork or merge: where the state was taken from, TIMELINE@SEQUENCE."""
    position: Position | None = None
    """Where to go on after it; only of entries that the feed gave."""

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys that it changed."""
        return tuple(key for _, key in self.operations if key)

    @property
    def kinds(self) -> tuple[str, ...]:
        """What it did: set, append, delete, checkpoint, restore, fork, merge, delete scope."""
        return tuple(dict.fromkeys(kind for kind, _ in self.operations))


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A named point of a timeline that can be returned to."""

    id: str
    """TIMELINE@SEQUENCE, unique in its scope."""
    scope: Scope
    timeline: str
    sequence: int
    name: str
    type: str
    time: datetime
    tags: tuple[str, ...]
    description: str
    metadata: dict[str, Any]
    root: str
    """Commitment to the whole state, in hexadecimal."""
    signed_by: str
    """Key id of the signer; empty if it is not signed."""
    cause: Cause
    hash: str

    @property
    def warning(self) -> str:
        """That nobody vouches for it, and what to do; empty if it is signed."""
        why = "not signed: the signer was not here; open the store with signer=file:PATH"
        return "" if self.signed_by else why


def said(metadata: Mapping[str, Any], name: str, default: _Kind) -> _Kind:
    """What the metadata of a checkpoint says under a name that Holdfast writes itself.

    Whoever makes a checkpoint without a request may have put something else there: then nothing.
    """
    found = metadata.get(name, default)
    return found if type(found) is type(default) else default


@dataclass(frozen=True, slots=True)
class Restored:
    """What a restore did."""

    scope: Scope
    timeline: str
    sequence: int
    """The entry of the restore."""
    point: str
    root: str
    backup: Checkpoint | None
    """The state before: restore it to undo the restore."""
    verified: str
    """full (every value was read), references (every record exists) or none"""
    keys: int
    values_checked: int = 0
    dry_run: bool = False
    diff: Any = None
    left: tuple[str, ...] = ()
    """Sticky keys that differ from what they were at the point, and were left alone."""
    passed_over: str = ""
    """Why the state before could not be read and was not kept; or which sticky keys of it could not
    be read, and are those of the point. Empty if all of it could, or nobody asked."""


class Left(NamedTuple):
    """Something that a revert left alone."""

    key: str
    """Empty if it is an entry that changed no key by name: a checkpoint, a restore, a fork."""
    why: str
    entry: Entry
    """The entry that is in the way: its cause says whose it is."""


@dataclass(frozen=True, slots=True)
class Reverted:
    """What a revert did to one timeline of one scope, or would do."""

    scope: Scope
    timeline: str
    done: list[str]
    """Keys that are again what they were before the first of the entries."""
    left: list[Left]
    """What was left alone, and why."""
    entry: int | None
    """The entry that it became, which can be reverted in turn; None if there was nothing to do."""
    dry_run: bool = False
    diff: Any = None
    """Of a dry run: what would change."""

    def __str__(self) -> str:
        keys = f"{len(self.done)} keys" if len(self.done) != 1 else "1 key"
        at = f", {self.timeline}@{self.entry}" if self.entry is not None else ""
        head = f"{self.scope}: {keys} {'would go' if self.dry_run else 'went'} back{at}"
        lines = [head, *(f"  {key}" for key in self.done)]
        lines += [f"  left alone: {one.key}{': ' if one.key else ''}{one.why}" for one in self.left]
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class Pruned:
    """What was pruned; of a dry run: what would be."""

    scope: Scope
    timeline: str
    floor: int
    """History begins behind this entry, whose state is still there; 0 if nothing was pruned."""
    anchor: int
    """The entry that announces it; 0 if there is none."""
    kept: tuple[int, ...]
    """Entries below the floor whose states stay: checkpoints, sources of restores and forks."""
    entries: int
    """Entries that lost their content now."""
    rows: int
    """Rows that were dropped besides: values, saved indexes, signatures."""
    bytes: int
    dry_run: bool = False

    def __str__(self) -> str:
        done = "would lose" if self.dry_run else "lost"
        kept = f"; {len(self.kept)} states below it stay" if self.kept else ""
        return (
            f"{self.scope} {self.timeline}: history begins behind entry {self.floor}{kept}; "
            f"{self.entries} entries {done} their content, {self.rows} other rows, "
            f"{self.bytes} bytes in all"
        )


@dataclass(frozen=True, slots=True)
class Erased:
    """What `erase` removed, and what it cannot reach.

    All scopes that ever had the name are erased, deleted ones included. If it is cut short, the
    scope is gone for readers and writers, `verify` says what is left, and erasing again finishes.
    What stays holds no content: the tombstone, rows of the feed (numbers and hashes), and rows of
    change ids that other scopes share (with the name).
    """

    scope: Scope
    lives: int
    """Scopes that have had this name and are erased now, those of earlier calls included."""
    rows: int
    """Rows that this call dropped; 0 if an earlier one had finished."""
    bytes: int
    key_removed: bool
    """Whether this call took keys out of the ring; a plain store has none."""
    open: tuple[str, ...]
    """Where content or its name may still be, for people."""


@dataclass(frozen=True, slots=True)
class ErasedSubject:
    """What `erase_subject` removed, and what it cannot reach.

    If it is cut short, the subject's values are closed for readers and writers; erasing again, or
    writing for a subject of that name, finishes. What stays of the subject: its sealed parts, which
    nobody can open, and a tombstone with a random id and a time.
    """

    subject: str
    key_removed: bool
    """Whether this call took the key out of the ring."""
    open: tuple[str, ...]
    """Where content may still be, for people."""


@dataclass(frozen=True, slots=True)
class TimelineInfo:
    """A timeline of a scope."""

    name: str
    parent: str | None
    start: int
    """The entry of the parent that it starts from."""
    head: int


@dataclass(frozen=True, slots=True)
class ScopeInfo:
    """A scope of a store."""

    scope: Scope
    created: datetime


@dataclass(frozen=True, slots=True)
class Page:
    """Some of the answers; ask again with `after=page.after` while it is not None."""

    items: list[Any] = field(default_factory=list)
    after: str | None = None


@dataclass(frozen=True, slots=True)
class LongValue:
    """Stands for bytes that are too long to be handed around whole; `open_read` reads them."""

    size: int
    hash: str = ""
    """Commitment to the content, in hexadecimal; empty while it is not known."""

    def __repr__(self) -> str:
        return f"<{self.size} bytes{f', {self.hash[:16]}' if self.hash else ''}>"


@dataclass(frozen=True, slots=True)
class Hold:
    """Something that keeps a point from going."""

    point: str
    """TIMELINE@NUMBER; empty for a long value that no entry names yet."""
    reason: str
    """pin, hold (a legal one), restart, fork, operation, restore, recovery, dependency, newest,
    since, source, restored or upload"""
    text: str
    """The same for people, with what was said of it."""
    by: str
    """Who holds it: an actor, an operation, a recovery, a timeline or another checkpoint; empty if
    nobody said."""
    until: str
    """What ends it."""

    def __str__(self) -> str:
        by = f" ({self.by})" if self.by and self.by not in self.text else ""
        return f"{self.point or 'the scope'}: {self.text}{by}; {self.until}"


@dataclass(frozen=True, slots=True)
class Swept:
    """What a sweep removed: keys that have expired, values that were never finished, and what is
    left of scopes and subjects whose erase was not waited for or cut short."""

    uploads: int
    rows: int
    bytes: int
    waiting: int
    """Unfinished ones that were left alone: their writers may still live."""
    keys: int = 0
    """Expired keys."""
    erased: int = 0
    """Erased scopes whose rows were still there, and subjects whose keys were."""
    damaged: tuple[str, ...] = ()
    """Scopes that could not be swept, because something of them cannot be read."""


# ---- masks --------------------------------------------------------------------------------------
# What is shown in place of a value of class sensitive.


class Masked:
    """Stands for a value of class sensitive where it is not to be shown."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "<sensitive>"


MASK = Masked()
