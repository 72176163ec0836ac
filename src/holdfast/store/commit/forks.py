"""Forks: numbers for timelines that are made in one group of changes.

The numbers of a scope's timelines have no gaps, so that whoever claims the next one has seen the
names of all before it. They are given when the group is built: a thousand forks at one moment
are one commit, and one that others have overtaken takes the next number instead.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from holdfast.errors import Conflict, InvalidInputError
from holdfast.store.journal.ledger import gone
from holdfast.store.journal.timeline import Timeline
from holdfast.store.names import rowkinds

if TYPE_CHECKING:
    from holdfast.store.commit.stage import Stage
    from holdfast.store.journal.directory import Directory
    from holdfast.store.journal.ledger import Ledger
    from holdfast.store.tree.tree import Node

MOST = rowkinds.UPLOADS
"""Timelines that a scope can have."""


@dataclass(frozen=True, slots=True)
class Fork:
    """A timeline that a change makes."""

    ledger: Ledger
    name: str
    root: Node
    """The index that it begins with."""
    built: bool
    """Whether all lookups are built that are declared there."""


class _Made:
    """The timelines of one scope that a group makes, behind those that are there."""

    def __init__(self, known: dict[str, int]) -> None:
        self.known = known
        self.last = next(reversed(known.values()))
        self.lines: dict[str, Timeline] = {}


class Forks:
    """The timelines that one group makes."""

    def __init__(self, core: Directory, token: object) -> None:
        self._core = core
        self._token = token
        self._made: dict[int, _Made] = {}
        self._closed: set[int] = set()
        """Scopes of which something in this group expects that they have no new timeline."""

    def stand_beside(self, stages: Iterable[Stage]) -> bool:
        """Whether a change can be in this group: the end of a scope, or a new key, for all its
        timelines cannot be beside a new one."""
        for stage in stages:
            if stage.absent and any(key[:1] == b"T" for key in stage.absent):
                made = self._made.get(stage.ledger.number)
                if made is not None and made.lines:
                    return False
                self._closed.add(stage.ledger.number)
        return True

    def must_wait(self, fork: Fork) -> bool:
        """Whether it is for the next group: the first to begin with an index saves its nodes."""
        if fork.ledger.number in self._closed:
            return True
        unsaved = fork.root.count > 0 and fork.root.place is None
        made = self._made.get(fork.ledger.number)
        return unsaved and made is not None and bool(made.lines)

    def line(self, fork: Fork) -> Timeline:
        """The new timeline, under the next number that is free."""
        ledger = fork.ledger
        made = self._made.get(ledger.number)
        if made is None:
            known = self._core.names(ledger)
            if ledger.erased():
                raise gone(ledger.scope)
            if not known:
                raise ledger.damage(rowkinds.line(b"T", ledger.number, 0), "it is missing")
            made = self._made[ledger.number] = _Made(known)
        if fork.name in made.known or fork.name in made.lines:
            raise Conflict(f"{ledger.scope} has a timeline {fork.name!r} already", [fork.name])
        number = made.last + len(made.lines) + 1
        if number >= MOST:
            raise InvalidInputError(f"{ledger.scope} has all the timelines that it can have")
        line = made.lines[fork.name] = Timeline(ledger, number)
        line.seen = self._token  # whoever is given this number finds nothing under it
        return line

    def undo(self, line: Timeline) -> bool:
        """Forget the newest of them, whose change has failed; False if this is not it."""
        made = self._made.get(line.ledger.number)
        if made is None or not made.lines or next(reversed(made.lines.values())) is not line:
            return False
        made.lines.popitem()
        return True

    def made(self) -> None:
        """The group is committed: nobody here need read these from the storage."""
        for made in self._made.values():
            for name, line in made.lines.items():
                self._core.register(name, line)
