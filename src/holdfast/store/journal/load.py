"""Reading a timeline's state: from the newest index saved, and the entries behind it.

Where a timeline was pruned, nothing but what is kept can be read below its floor: there a *base*,
a saved index that the anchor vouches for, stands in for the entries.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Self

from holdfast.errors import (
    DamagedIndexError,
    DamagedRecordError,
    PrunedError,
    ScopeNotFoundError,
    StateIntegrityError,
)
from holdfast.store.journal.floor import NO_FLOOR, Floor, floor_of, name_of, pruned, read_base
from holdfast.store.journal.ledger import Ledger, gone
from holdfast.store.journal.save import BEFORE, DELTA, Save, read_save
from holdfast.store.journal.slot import Slot
from holdfast.store.names import rowkinds
from holdfast.store.tree.tree import Node

DELTAS = 64
"""Most deltas on one full save: what opening has to read at most."""
ATTEMPTS = 5


class Loading(ABC):
    """The part of a timeline that makes its state from what is stored."""

    prefix: bytes
    sequence: int
    head: bytes
    base: Node
    overlay: dict[str, Slot | None]
    stored: dict[str, bytes]
    stranded: StateIntegrityError | None
    checkpoint: int
    origin: int
    merged: int
    gone: bool
    bare: bool
    saved: int
    behind: int
    deltas: int
    _floor: Floor | None
    _lazy: tuple[Any, bytes] | None

    def __init__(self, ledger: Ledger, number: int) -> None:
        self.ledger = ledger
        self.number = number

    def load(self, until: int | None = None, *, saves: bool = True) -> Self:
        """Read the state at the newest entry, or at entry `until`.

        A save that is damaged costs time, not state: then (or without `saves`) all entries are
        replayed. `verify` names it, and the next save takes its place.
        """
        try:
            self._load_whole(until, saves)
        except ScopeNotFoundError:  # erased while it was read
            self.sequence = self.ledger.before
        if self.sequence == self.ledger.before:  # no scope that is there has no entry
            self.gone = self.ledger.erased()
        if until is not None and self.sequence < until:
            scope = self.ledger.scope
            raise gone(scope) if self.gone else DamagedRecordError(f"{scope}: no entry {until}")
        return self

    def _load_whole(self, until: int | None, saves: bool) -> None:
        last = rowkinds.LAST_SEQUENCE if until is None else until
        for attempt in range(1, ATTEMPTS + 1):
            self.bare = not saves
            # The newest state is mostly had without the floor: it is not read before it is needed.
            lazy = until is None and saves and attempt == 1
            self._floor = None if lazy else floor_of(self.ledger, self.number)
            known = (self._floor or NO_FLOOR).number  # on the way the newest one may be read
            try:
                self._load(last, saves)
                return
            except (PrunedError, StateIntegrityError) as error:
                if attempt < ATTEMPTS and floor_of(self.ledger, self.number).number != known:
                    self.take_over(type(self)(self.ledger, self.number))
                    continue  # what was read was being pruned
                if isinstance(error, PrunedError) or not self.ledger.erased():
                    raise
                raise gone(self.ledger.scope) from None

    @property
    def floor(self) -> Floor:
        """Below which entry it was pruned."""
        if self._floor is None:
            self._floor = floor_of(self.ledger, self.number)
        return self._floor

    @floor.setter
    def floor(self, floor: Floor) -> None:
        self._floor = floor

    def _load(self, last: int, saves: bool) -> None:
        try:
            self._replay(last, self._take_saves(last) if saves else self._take_base(last))
        except DamagedIndexError:
            fresh = type(self)(self.ledger, self.number)
            fresh.bare, fresh.floor = True, self.floor
            fresh._replay(last, fresh._take_base(last))
            self.take_over(fresh)

    @abstractmethod
    def _replay(self, last: int, announced: dict[int, tuple[int, bytes]], again: int = 0) -> bool:
        """Apply the entries behind a save."""

    def _take_base(self, last: int) -> dict[int, tuple[int, bytes]]:
        """Start from what is kept at the floor, or at entry `last` below it.

        Without a floor that is the first entry. No entry behind it has to vouch for a base: the
        anchor has.
        """
        floor, before = self._floor or NO_FLOOR, self.ledger.before
        if not floor.sequence or last <= before:
            return {}
        if not floor.holds(last, before):
            raise pruned(self.ledger, name_of(self.ledger, self.number), last, floor)
        at = min(last, floor.sequence)
        self._take(at, read_base(self.ledger, self.number, at, floor.bases[at]))
        return {}

    def strand(self, why: StateIntegrityError) -> Self:
        """Know where the timeline ends, though not its state: for looking back and for restoring.

        Envelopes are clear, so that the newest entry and the newest checkpoint are found without
        opening any body.
        """
        self.stranded = why
        self.floor = floor_of(self.ledger, self.number)
        high = rowkinds.after(self.prefix)
        while page := self.ledger.storage.scan(self.prefix, high, limit=200, reverse=True):
            for key, row in page:
                if self.sequence == self.ledger.before:
                    envelope = self.ledger.envelope(key, row)
                    self.sequence = rowkinds.sequence_of(key)
                    self.head = self.ledger.entry_hash(key, envelope.data)
                if row[1:2] == b"\1":
                    self.checkpoint = rowkinds.sequence_of(key)
                    return self
            high = page[-1][0]
        return self

    def take_over(self, other: Loading) -> None:
        """Become what another one is."""
        for name, value in vars(other).items():
            if name != "lock":
                setattr(self, name, value)

    def _take_saves(self, last: int) -> dict[int, tuple[int, bytes]]:
        """Start from the newest save that is whole; returns what the chain must say of it."""
        floor = self._floor or NO_FLOOR
        if last <= floor.sequence:
            return self._take_base(last)
        line = rowkinds.line(b"S", self.ledger.number, self.number)
        low, high = rowkinds.entry(line, floor.sequence + 1), rowkinds.entry(line, last) + b"\0"
        saves: list[tuple[int, Save, bytes]] = []
        for key, row in self.ledger.storage.scan(low, high, limit=DELTAS + 1, reverse=True):
            plain = self.ledger.open_row(key, row)
            save = read_save(plain)
            saves.append((rowkinds.sequence_of(key), save, self.ledger.commit_save(plain)))
            if save.kind != DELTA:
                break
        if not saves or saves[-1][1].kind == DELTA:
            self._take_base(last)
            if not floor.sequence or not saves:
                return {}
        for sequence, save, _ in reversed(saves):
            self._take(sequence, save)
        return {saves[0][0]: (saves[0][1].kind, saves[0][2])}

    def _take(self, sequence: int, save: Save) -> None:
        if save.kind != DELTA:
            self.overlay, self.stored = {}, {}
            self._lazy = (tuple(save.place), save.root) if save.place else None
            self.base = self.ledger.trees.empty
            self.deltas = 0
        else:
            self.stored.update(zip(save.keys, save.slots, strict=True))
            self.deltas += 1
        self.saved = sequence
        self.sequence = sequence - (save.kind == BEFORE)
        self.head = save.head
        self.checkpoint = save.checkpoint
        self.origin, self.merged = save.origin, save.merged
        self.behind = save.behind
