"""Marking: which rows of a timeline, up to an entry, are in use by states that are kept."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from holdfast.store.journal.floor import LOST, floor_of, read_base
from holdfast.store.journal.ledger import Ledger
from holdfast.store.journal.save import BEFORE, DELTA, Floor, Save, read_save, read_slot
from holdfast.store.names import rowkinds
from holdfast.store.tree import refs
from holdfast.store.tree.tree import Element, Node


class Marks:
    """Rows of timeline `timeline` up to entry `last`, and uploads, that something leads to.

    Memory grows with the nodes that are saved and with the rows that stay.
    """

    def __init__(
        self,
        ledger: Ledger,
        timeline: int,
        last: int,
        breathe: Callable[[], None] = lambda: None,
    ) -> None:
        self.ledger = ledger
        self.timeline = timeline
        self.last = last
        self.values: set[tuple[int, int]] = set()
        """(sequence, ordinal) of entries (0) and of packs of atoms."""
        self.nodes: set[tuple[int, int]] = set()
        """(sequence, ordinal) of packs of nodes."""
        self.uploads: set[int] = set()
        self._seen: set[Any] = set()
        self._breathe = breathe
        """Called once a node."""

    def saves(self, timeline: int, floor: Floor) -> None:
        """Mark what the saved indexes of a timeline, and what is kept below its floor, use."""
        for _, save in saves_of(self.ledger, timeline, floor.sequence + 1):
            self.save(save)
        for at, commitment in floor.bases.items():
            if commitment == LOST and floor.anchor:
                continue  # an anchor says so: nothing has it any more
            self.save(read_base(self.ledger, timeline, at, commitment))

    def save(self, save: Save) -> None:
        """Mark what a saved index uses."""
        if save.kind != DELTA:
            if save.place:
                self._tree(tuple(save.place), save.root, index=True)
            return
        for key, packed in zip(save.keys, save.slots, strict=True):
            if packed:
                self._element(read_slot(key, packed), index=True)

    def root(self, root: Node) -> None:
        """Mark what an index uses that is not saved itself."""
        if root.count:
            self._tree(root, root.hash, index=True)

    def _tree(self, hint: Any, hash_: bytes, *, index: bool) -> None:
        place = hint.place if type(hint) is Node else hint
        if place is not None:
            if place in self._seen:
                return
            self._seen.add(place)
            self._mark(self.nodes, place)
        self._breathe()
        node = self.ledger.trees.load(hint, hash_)
        for element in node.elements:
            if node.level:
                self._tree(element[2], element[1], index=index)
            else:
                self._element(element, index=index)

    def _element(self, element: Element, *, index: bool) -> None:
        _, ref, hint = element
        if index:  # the entry that wrote a key says when and why it was written
            self._mark(self.values, (*hint[:2], 0))
        bare = refs.bare(ref)
        if bare[0] == refs.ATOM:
            self._mark(self.values, hint[-4:])
        elif bare[0] == refs.TREE:
            if type(hint) is not Node:
                hint = hint[-1] if type(hint[-1]) is Node else hint[-4:]
            self._tree(hint, refs.read_tree(bare)[1], index=False)

    def _mark(self, found: set[tuple[int, int]], place: Any) -> None:
        timeline, sequence, ordinal = place[:3]
        if timeline == rowkinds.UPLOADS:
            self.uploads.add(sequence)
        elif timeline == self.timeline and sequence <= self.last:
            found.add((sequence, ordinal))


def saves_of(ledger: Ledger, timeline: int, low: int) -> Iterator[tuple[int, Save]]:
    """(sequence, save) of the saved indexes of a timeline from an entry on."""
    line = rowkinds.line(b"S", ledger.number, timeline)
    start, high = rowkinds.entry(line, low), rowkinds.after(line)
    while page := ledger.storage.scan(start, high, limit=64):
        for key, row in page:
            yield rowkinds.sequence_of(key), read_save(ledger.open_row(key, row))
        start = page[-1][0] + b"\0"


def sources_of(ledger: Ledger, timeline: int, low: int) -> Iterator[tuple[int, int]]:
    """(timeline, entry) that restores and forks of a timeline, from an entry on, begin from."""
    line = rowkinds.line(b"E", ledger.number, timeline)
    for sequence, save in saves_of(ledger, timeline, low):
        if save.kind == BEFORE:
            key = rowkinds.entry(line, sequence)
            op = ledger.open_entry(key, ledger.storage.get([key])[0])[1].ops[0]
            yield op[1], op[2]


def mark_all(marks: Marks, timelines: list[int], without: int = -1) -> None:
    """Mark what all timelines of a scope use, but for one whose floor is not set yet."""
    for timeline in timelines:
        if timeline != without:
            marks.saves(timeline, floor_of(marks.ledger, timeline))
