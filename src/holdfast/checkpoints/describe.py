"""All that is known of a checkpoint: where it comes from, what it takes, whether it is whole."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from holdfast.checkpoints.create import Dependency, dependencies_of, stored_bytes
from holdfast.checkpoints.locate import examine
from holdfast.errors import PrunedError, StateIntegrityError, TimelineNotFoundError
from holdfast.seal import compress
from holdfast.store.inner import (
    Ancestry,
    Ledger,
    LineHandle,
    Node,
    Point,
    count_keys,
    entry,
    held,
    index_of,
    leaves,
    refs,
    slot_of,
)
from holdfast.store.names.items import Checkpoint, said

_METHODS = {method: name for name, method in compress.NAMES.items()}
_PAGE = 64


@dataclass(frozen=True, slots=True)
class Compression:
    """How the values of a state are stored. Small ones lie in the index, and are not counted."""

    records: dict[str, int]
    """Records that hold values of the state, by how each is packed: none, lz4, zstd, padded."""
    stored: int
    """Bytes of these records; they may hold values of other states, too."""


@dataclass(frozen=True, slots=True)
class Integrity:
    """Whether a checkpoint is what was written, as far as that was looked at."""

    hash: str
    """Commitment to the whole state."""
    checksum: str
    """Hash of the checkpoint's entry, which covers all of the history before it."""
    signed_by: str
    verification: str
    """full (every value was read), references (every record exists) or none"""
    valid: bool
    reason: str
    tamper_proof: bool
    """Whether a change would be found: it is signed, and what is signed was found to fit."""


@dataclass(frozen=True, slots=True)
class Description:
    """All that is known of a checkpoint."""

    checkpoint: Checkpoint
    trigger: str
    parent: str | None
    """The checkpoint that its state comes from, by way of restores and forks, too; None if there is
    none, or what lies between the two is pruned or damaged."""
    children: tuple[str, ...]
    """Checkpoints whose parent it is, of all timelines."""
    priority: str
    retention: dict[str, Any]
    dependencies: tuple[Dependency, ...]
    held: str
    """Why it may not be removed: operation, restore, or nothing."""
    group: str
    size: int
    """Bytes that the checkpoint itself takes."""
    keys: int
    state_size: int
    """Encoded bytes of the state that it covers."""
    compression: Compression | None
    """None if the state is damaged, or was not read."""
    integrity: Integrity


def describe(handle: LineHandle, which: Any, verify: str = "full") -> Description:
    """All that is known of the checkpoint at a point.

    The time that it takes grows with the state, unless `verify` is none, and with the number of
    checkpoints of the scope, which are all asked for their parents.
    """
    history = handle.history
    timeline, sequence = history.points.find(which)
    found = history.checkpoint_at(timeline, sequence)
    looked = examine(handle, found, verify)
    about = found.metadata
    lineage = Lineage(handle)
    root = _index(handle, found) if looked.valid else None
    trees = history.points.line(timeline).ledger.trees
    needed = {one.checkpoint.id: one.why for one in held(handle.on(timeline))}
    read = root is not None and verify == "full"
    return Description(
        found,
        said(about, "trigger", ""),
        lineage.parents.get(found.id),
        tuple(id for id, parent in lineage.parents.items() if parent == found.id),
        said(about, "priority", "medium"),
        said(about, "retention", {}),
        tuple(dependencies_of(handle, about)),
        needed.get(found.id, ""),
        said(about, "group", ""),
        stored_bytes(handle, found),
        count_keys(trees, root) if root is not None else 0,
        root.size if root is not None else 0,
        _compression(history.points.line(timeline).ledger, root) if read and root else None,
        Integrity(
            found.root,
            found.hash,
            found.signed_by,
            verify,
            looked.valid,
            looked.reason,
            bool(found.signed_by) and looked.valid and verify != "none",
        ),
    )


def _index(handle: LineHandle, found: Checkpoint) -> Node:
    return index_of(handle.history.points.view(found.timeline, found.sequence))


def _compression(ledger: Ledger, root: Node) -> Compression:
    places: set[tuple[int, int, int]] = set()
    for element in ledger.trees.walk(root):
        slot = slot_of(element)
        for ref, place in leaves(ledger, slot.ref, slot.location):
            if ref[0] == refs.ATOM:
                places.add(place[:3])
    wanted = [ledger.row_of(place) for place in sorted(places)]
    methods: Counter[str] = Counter()
    stored = 0
    for start in range(0, len(wanted), _PAGE):
        page = wanted[start : start + _PAGE]
        for key, row in zip(page, ledger.storage.get(page), strict=True):
            if row is not None:
                sealed = entry.split_row(row)[1] if key[:1] == b"E" else row
                methods[_METHODS[sealed[0] >> 1 & 3]] += 1
                stored += len(row)
    return Compression(dict(methods), stored)


class Lineage:
    """Which checkpoint the state of each one comes from, over all timelines of a scope."""

    def __init__(self, handle: LineHandle) -> None:
        line = handle.history.points.line()
        self._ancestry = Ancestry(line.ledger)
        self._names = {n: name for n, name, _, _ in handle.core.timelines(line.ledger)}
        self._known: dict[int, list[int]] = {}
        """Numbers of the entries that are checkpoints, by timeline, oldest first."""
        for number, name in self._names.items():
            other = handle.on(name).history.points
            found: list[int] = []
            with suppress(TimelineNotFoundError):  # it was ended, and has none
                found = [sequence for _, sequence, _, _ in other.statements()]
            self._known[number] = found[::-1]
        self.parents: dict[str, str | None] = {
            self._id((number, sequence)): self._parent((number, sequence))
            for number, found in self._known.items()
            for sequence in found[::-1]
        }

    def _id(self, point: Point) -> str:
        return f"{self._names[point[0]]}@{point[1]}"

    def _parent(self, point: Point) -> str | None:
        last = point[1] - 1
        try:
            while True:
                number = point[0]
                origin = self._ancestry.origin(point)  # of what is kept, also if `last` is not
                known = self._known.get(number, [])
                at = bisect_right(known, last)
                if at and known[at - 1] > origin:
                    return self._id((number, known[at - 1]))
                if not origin:
                    return None
                _, point = next(self._ancestry.parents(number, origin, 0))
                last = point[1]
        except (PrunedError, StateIntegrityError):
            return None  # what lies between the two is pruned or damaged
