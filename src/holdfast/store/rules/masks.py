"""Whether something is sensitive, where several states say different things of its class.

Each point and each timeline has its own declarations. What one of the states that are looked at
calls sensitive is masked, and its reads are told; and so is what the newest state of a timeline
calls so, in all of its past.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

from holdfast.errors import (
    DamagedIndexError,
    NewerFormatError,
    ScopeNotFoundError,
    StateIntegrityError,
    TimelineNotFoundError,
)
from holdfast.store.journal.declared import Declared
from holdfast.store.names.scope import Scope
from holdfast.store.rules.classes import SENSITIVE, class_of

if TYPE_CHECKING:
    from holdfast.store.journal.directory import Directory
    from holdfast.store.journal.slot import Slot
    from holdfast.store.journal.timeline import Timeline

_UNREAD = (StateIntegrityError, NewerFormatError, ScopeNotFoundError, TimelineNotFoundError)
Rules = Sequence[Declared]
"""What is declared in each of some states."""


class Looking(Protocol):
    """Somebody who reads a timeline: as much of a reader as is needed here."""

    @property
    def core(self) -> Directory:
        """The store that is read."""

    @property
    def scope(self) -> Scope:
        """The scope that is read."""

    @property
    def timeline(self) -> str:
        """The name of its timeline."""

    @property
    def at(self) -> Timeline | None:
        """The state of an older entry, if that is read."""

    def told(self, timeline: Timeline, read: Sequence[tuple[str, Slot]], rules: Rules = ()) -> None:
        """Keys are read: whoever is to know of that is told."""


def rules_of(*sides: tuple[Looking, Timeline]) -> Rules:
    """What is declared in states that are read, and in the newest of timelines whose past is."""
    found: dict[Declared, None] = {}
    for reader, line in sides:
        found[line.declared] = None
        if reader.at is not None:
            # What cannot be read, or is gone, says nothing: the past can be read all the same.
            with suppress(*_UNREAD):
                try:
                    newest = _newest(reader)
                except DamagedIndexError:
                    reader.core.rebuild(reader.scope, reader.timeline)
                    newest = _newest(reader)
                if newest is not None:
                    found[newest] = None
    return list(found)


def _newest(reader: Looking) -> Declared | None:
    line = reader.core.current(reader.scope, reader.timeline)
    return line.declared if line is not None else None


def sensitive(key: str, slots: Iterable[Slot | None], rules: Rules) -> bool:
    """Whether one of several values of a key is sensitive by one of the rules."""
    return any(
        class_of(key, slot.meta, declared) == SENSITIVE
        for slot in slots
        if slot is not None
        for declared in rules
    )


def class_by(key: str, meta: bytes, rules: Rules) -> str:
    """The class of a key by the first of the rules, unless another one says sensitive."""
    found = [class_of(key, meta, declared) for declared in rules]
    return SENSITIVE if SENSITIVE in found else found[0]


def masks(
    reader: Looking,
    line: Timeline,
    key: str,
    slots: Sequence[Slot | None],
    rules: Rules,
    *,
    reveal: bool = False,
) -> bool:
    """Whether values of a key are to be masked; if they are revealed, that is a read."""
    if not sensitive(key, slots, rules):
        return False
    if reveal:
        reader.told(line, [(key, slot) for slot in slots if slot is not None], rules)
    return not reveal
