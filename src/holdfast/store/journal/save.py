"""Saved indexes: what opening and time travel start from instead of the first entry.

And floors, below which a saved index is all that is left of a timeline.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from holdfast.errors import DamagedIndexError
from holdfast.store.tree import refs
from holdfast.store.tree.tree import Element

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder().decode

INDEX, DELTA, BEFORE = 0, 1, 2
"""The whole index; what changed in it since the save before; the whole index as it stands before
the entry of the same number, which is a restore or fork to just this state."""


class Save(NamedTuple):
    """A saved index, or what changed in it since the save before."""

    kind: int  # INDEX, DELTA or BEFORE
    previous: int  # sequence of the save before, 0 if none
    head: bytes  # hash of the entry that the save stands at
    checkpoint: int  # sequence of the newest checkpoint
    origin: int  # sequence of the newest restore or fork
    earliest: int  # least and greatest claimed time of the entries since the save before
    latest: int
    root: bytes  # of the whole index
    place: Any  # of the root's node; 0 if the index is empty
    keys: list[str]  # of a delta: the keys that changed, in order
    slots: list[bytes]  # what each is now: see `pack_slot`
    behind: int  # keys in the deltas since the whole index was saved, this one included
    merged: int  # sequence of the newest merge since that restore or fork, 0 if none


def pack_slot(ref: bytes, hint: Any) -> bytes:
    """What a delta holds of a key; empty bytes stand for a key that was removed.

    Packed each on its own: most are never looked at, and a row of them is read much faster.
    """
    return _encode((ref, hint))


def may_be_tree(packed: bytes) -> bool:
    """Whether a slot may lead to nodes; most do not, which is told without unpacking them.

    A ref of an atom is shorter than 256 bytes, so that its first byte is the fourth one here.
    """
    return bool(packed) and (packed[3] > refs.ATOM or packed[1] != 0xC4)


def read_slot(key: str, packed: bytes) -> Element:
    """An index element from what a delta holds."""
    try:
        ref, hint = _decode(packed)
        return key, ref, tuple(hint)
    except (msgspec.DecodeError, TypeError, ValueError):
        raise DamagedIndexError("an index save cannot be read") from None


def read_save(plain: bytes) -> Save:
    """A save from the plain bytes of its row."""
    try:
        return Save(*_decode(plain))
    except (msgspec.DecodeError, TypeError):
        raise DamagedIndexError("an index save cannot be read") from None


class Floor(NamedTuple):
    """What the newest anchor of a timeline says."""

    number: int
    """Which of the timeline's anchors it is; 0 if it has none."""
    sequence: int
    """Entries up to this one are pruned."""
    anchor: int
    """The entry that says so; 0 if there is none, or it is lost."""
    bases: dict[int, bytes]
    """Entries up to the floor, the last one included, whose states are kept: what their saved
    indexes are committed to."""

    def holds(self, sequence: int, before: int) -> bool:
        """Whether the state at an entry can be had; `before` is the number before the first."""
        return sequence >= self.sequence or sequence <= before or sequence in self.bases


NO_FLOOR = Floor(0, 0, 0, {})
