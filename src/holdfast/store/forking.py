"""Forks: numbers for timelines that are made in one group of changes.

The numbers of a scope's timelines have no gaps, so that whoever claims the next one has seen the
names of all before it. They are given when the group is built: a thousand forks at one moment
are one commit, and one that others have overtaken takes the next number instead.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from holdfast.errors import Conflict, InvalidInputError
from holdfast.store import rows
from holdfast.store.timeline import Timeline

if TYPE_CHECKING:
    from holdfast.store.core import Core
    from holdfast.store.ledger import Ledger
    from holdfast.store.trees import Node

MOST = 1 << 8 * rows.TIMELINE
"""Timelines that a scope can have."""


@dataclass(frozen=True, slots=True)
class Fork:
    """A timeline that a change makes."""

    ledger: Ledger
    name: str
    root: Node
    """The index that it begins with."""


class Forks:
    """The timelines that one group makes."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._made: dict[int, dict[str, Timeline]] = {}

    def must_wait(self, fork: Fork) -> bool:
        """Whether it is for the next group: the first to begin with an index saves its nodes."""
        unsaved = fork.root.count > 0 and fork.root.place is None
        return unsaved and bool(self._made.get(fork.ledger.number))

    def line(self, fork: Fork) -> Timeline:
        """The new timeline, under the next number that is free."""
        ledger = fork.ledger
        made = self._made.setdefault(ledger.number, {})
        known = ledger.names if made else self._core.names(ledger)
        if not known:
            raise ledger.damage(rows.line(b"T", ledger.number, 0), "it is missing")
        if fork.name in known or fork.name in made:
            raise Conflict(f"{ledger.scope} has a timeline {fork.name!r} already", [fork.name])
        number = next(reversed(known.values())) + len(made) + 1
        if number >= MOST:
            raise InvalidInputError(f"{ledger.scope} has all the timelines that it can have")
        made[fork.name] = line = Timeline(ledger, number)
        return line

    def undo(self, line: Timeline) -> bool:
        """Forget the newest of them, whose change has failed; False if this is not it."""
        made = self._made.get(line.ledger.number)
        if not made or next(reversed(made.values())) is not line:
            return False
        made.popitem()
        return True
