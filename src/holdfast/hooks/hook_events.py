"""What hooks are told, and what they may answer.

An event is a view of what the store tells anyway: the gates before a change, the feed behind it.
`state.changed` is told of each key; other names follow from what an entry did, see `NAMES`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Any

from holdfast.errors import InvalidInputError
from holdfast.store.inner import TOLD, Operation, Owned
from holdfast.store.names.arguments import (
    check_count,
    check_seconds,
    check_text,
    is_seconds,
    listed,
)
from holdfast.store.names.cause import Cause
from holdfast.store.names.patterns import Patterns
from holdfast.store.names.scope import Scope, check_key

CHANGED = "state.changed"
AGENT = "$agent/"
"""How keys begin that hold an agent's own state."""
NAMES = {
    "restore": "restore.completed",
    "prune": "cleanup.completed",
    "sweep": "cleanup.completed",
    "delete scope": "agent_state.deleted",
}
"""Names of events by what an entry did, where that is about no key."""
SAVED = "agent_state.saved"
COMMITTED = frozenset((CHANGED, SAVED, "agent_state.deleted"))
"""Names of events that entries alone tell of; others are announced, too (`announce`)."""
STARTED = {
    "restore": "restore.started",
    "sweep": "cleanup.started",
    "prune": "cleanup.started",
}
"""Names of events in front, by what is asked for."""
_ENDS = ("started", "completed", "failed")
EVENTS = {
    *(*COMMITTED, *NAMES.values(), *STARTED.values(), "backup.progress", "backup.deleted"),
    *(f"{one}.{end}" for one in ("restore", "rollback", "backup", "cleanup") for end in _ENDS),
    *(f"validation.{end}" for end in _ENDS),
    *(f"migration_{end}" for end in (*_ENDS, "step_completed", "rollback_completed")),
    *("checkpoint", "fork", "merge", "delete scope", "erase scope"),
    *("rebuild", "cosign", "rotate key"),
}
"""All names of events; those of the last two lines are told in front alone."""
RESULTS = Owned("$hooks/")
"""results/NAME: a list of what a hook gave, the newest last; failed/NAME: events set aside."""
Owned(TOLD)


@dataclass(frozen=True)
class Changed:
    """Something that happened, or is about to: of a key, or of a scope as a whole.

    Values are read when you first ask for them, and are copies.
    """

    name: str
    """`state.changed`, `restore.completed` …"""
    scope: Scope
    timeline: str
    key: str
    """Empty for what is about no key."""
    kind: str
    """set, append, delete, expire, trim; or restore, delete scope …"""
    cause: Cause
    entry: int | None = None
    """The entry that did it; None in front: there is none yet. Of what a backup, recovery or
    migration tells of itself, the one of `custom:$told` that says so."""
    time: datetime | None = None
    _old: Callable[[], Any] = field(default=lambda: None, repr=False, compare=False)
    _new: Callable[[], Any] = field(default=lambda: None, repr=False, compare=False)

    @property
    def place(self) -> dict[str, Any]:
        """What tells it from others, as plain data."""
        told = {"event": self.name, "scope": str(self.scope), "timeline": self.timeline}
        return {**told, "entry": self.entry, "key": self.key}

    @cached_property
    def old(self) -> Any:
        """The value before; None if there was none."""
        return self._old()

    @cached_property
    def new(self) -> Any:
        """The value after; None if there is none. Of an `append` in front: the items to add."""
        return self._new()


@dataclass(slots=True)
class HookContext:
    """What a hook is given beside the event; `data` is its own, and kept between its calls."""

    hook: str
    attempt: int = 1
    params: Mapping[str, Any] = field(default_factory=dict)
    """Of a replay with `params`."""
    replay: str = ""
    """The mode of a replay; empty for what happens now. In `simulate`, reach nothing outside."""
    data: dict[str, Any] = field(default_factory=dict)


# ---- results ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Continue:
    """Go on; the same as None."""


@dataclass(frozen=True, slots=True)
class Modified:
    """In front: write this value instead. Of an `append`: add these items."""

    value: Any


@dataclass(frozen=True, slots=True)
class Cancel:
    """In front: refuse the change; its caller gets `HookCancelledError` with the reason."""

    reason: str

    def __post_init__(self) -> None:
        check_text(self.reason, "the reason of Cancel", least=1)


@dataclass(frozen=True, slots=True)
class Redirect:
    """In front: do it to another key of the same scope."""

    key: str

    def __post_init__(self) -> None:
        check_key(self.key)


@dataclass(frozen=True, slots=True)
class Replace:
    """In front: do these operations instead of all that the change would do to the scope."""

    operations: Iterable[Operation]

    def __post_init__(self) -> None:
        found = listed(self.operations, "Replace")
        if not all(isinstance(one, Operation) for one in found):
            raise InvalidInputError(
                "Replace takes operations: holdfast.Operation('set', key, value)"
            )
        for one in found:
            check_key(one.key)
        object.__setattr__(self, "operations", tuple(found))


@dataclass(frozen=True, slots=True)
class Retry:
    """Behind: call the hook again after `delay` seconds, `max_attempts` times in all."""

    delay: float = 1.0
    max_attempts: int = 3

    def __post_init__(self) -> None:
        check_count(self.max_attempts, "max_attempts", 1)
        if not is_seconds(self.delay, most=60):
            raise InvalidInputError("delay is a number of seconds of 0 to 60")


@dataclass(frozen=True, slots=True)
class Fork:
    """Behind: call these background hooks, too, by their names, with the same event."""

    hooks: Iterable[str]

    def __post_init__(self) -> None:
        object.__setattr__(self, "hooks", tuple(listed(self.hooks, "Fork")))


@dataclass(frozen=True, slots=True)
class Cache:
    """Do not ask this hook about keys that fit a pattern for `ttl` seconds, in this process."""

    key: str
    ttl: float

    def __post_init__(self) -> None:
        Patterns(self.key)
        check_seconds(self.ttl, "ttl")


@dataclass(frozen=True, slots=True)
class Skipped:
    """The hook had nothing to do, and says why: it is counted as such."""

    reason: str = ""


FRONT = (Continue, Modified, Cancel, Redirect, Replace, Cache, Skipped)
BEHIND = (Continue, Retry, Fork, Cache, Skipped)


# ---- events of entries --------------------------------------------------------------------------


def name_of(key: str, whole: str) -> str:
    """The event that an operation on a key is; `whole` if it is about none. Empty for what is no
    business of hooks."""
    if not key:
        return whole
    if key.startswith(AGENT):
        return SAVED
    return "" if key.startswith("$") else CHANGED
