"""Reading long bytes by position, in bounded memory, at the state of one moment.

What is open stays as it was: records never change, so the root that was found when it was opened
is all that has to be held, whatever is written to the key meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from holdfast.errors import (
    DamagedIndexError,
    DamagedRecordError,
    InvalidInputError,
    MissingError,
)
from holdfast.seal.subject_keys import ERASED
from holdfast.store.journal.floor import floor_of, pruned
from holdfast.store.journal.ledger import Ledger
from holdfast.store.names.arguments import check_index
from holdfast.store.names.scope import check_key
from holdfast.store.read.reader import Reader
from holdfast.store.rules.subjects import erased
from holdfast.store.tree import refs
from holdfast.store.tree.tree import Node

AT_ONCE = 64
"""Chunks that are read together."""
WINDOW = 1 << 18
"""Bytes that are read ahead: many short reads cost little more than a long one."""


class ByteTree:
    """Bytes that are kept as a tree, by position."""

    def __init__(self, ledger: Ledger, ref: bytes, location: Any) -> None:
        self._ledger = ledger
        self.ref = ref
        self._location = location
        root = node = self._root()
        while node.level:
            node = ledger.trees.load(node.elements[-1][2], node.elements[-1][1])
        last = node.elements[-1][1]
        # What the chunks take encoded, without their headers; only the last may have a short one.
        self.size = root.size - 3 * (root.count - 1) - refs.size_of(last) + _bytes_in(last)

    def pieces(self, start: int = 0, stop: int | None = None) -> Iterator[bytes]:
        """The bytes from start to stop in pieces, each of a chunk."""
        stop = self.size if stop is None else stop
        group: list[tuple[int, bytes, Any]] = []
        for at, ref, place in self._chunks(self._root(), 0, self.size, start, stop):
            group.append((at, ref, place))
            if len(group) == AT_ONCE:
                yield from self._read(group, start, stop)
                group = []
        yield from self._read(group, start, stop)

    def _read(self, group: list[tuple[int, bytes, Any]], start: int, stop: int) -> Iterator[bytes]:
        decode = self._ledger.codec.plain_reader.decode
        atoms = self._ledger.read_atoms([(ref, place) for _, ref, place in group])
        for (at, _, _), atom in zip(group, atoms, strict=True):
            chunk: bytes = decode(atom)
            low, high = max(start - at, 0), min(stop - at, len(chunk))
            yield chunk if high - low == len(chunk) else chunk[low:high]

    def _root(self) -> Node:
        return self._ledger.trees.load(self._location, refs.read_tree(self.ref)[1])

    def _chunks(
        self, node: Node, at: int, end: int, start: int, stop: int
    ) -> Iterator[tuple[int, bytes, Any]]:
        """(position, ref, place) of the chunks that a range touches; the node covers at..end."""
        last = len(node.elements) - 1
        for number, element in enumerate(node.elements):
            if at >= stop:
                return
            if number == last:
                after = end
            elif node.level:
                after = at + element[4] - 3 * element[3]  # of the chunks only the last is short
            else:
                after = at + _bytes_in(element[1])
            if after > start:
                if node.level:
                    child = self._ledger.trees.load(element[2], element[1])
                    yield from self._chunks(child, at, after, start, stop)
                else:
                    yield at, element[1], element[2]
            at = after


class LongReader:
    """The bytes under a key as they were when it was opened; not for several threads at once."""

    def __init__(self, reader: Reader, key: str) -> None:
        self._reader = reader
        self.key = check_key(key, owner=True)
        self._window = (0, b"")
        try:
            self._find()
        except DamagedIndexError:
            reader.rebuild()
            self._find()

    def _find(self) -> None:
        reader = self._reader
        timeline = reader.now()
        slot = reader.live(timeline, self.key) if timeline is not None else None
        if timeline is None or slot is None:
            raise MissingError(f"{reader.scope} has no key {self.key!r}; `keys()` lists them")
        self._limits = timeline.ledger.codec.limits
        self._opened = timeline.ledger, timeline.number, timeline.sequence
        self.version = timeline.version(slot)
        reader.told(timeline, [(self.key, slot)])
        self._bytes: ByteTree | bytes
        if slot.ref[0] == refs.TREE and slot.ref[1] == refs.BYTES:
            self._bytes = ByteTree(timeline.ledger, slot.ref, slot.location)
            self.size = self._bytes.size
            return
        value = None if refs.is_tree(slot.ref) else reader.value(timeline, self.key, slot, True)
        if value is ERASED:
            raise erased(reader.scope, self.key)
        if type(value) is not bytes:
            raise InvalidInputError(
                f"{reader.scope}: the value of {self.key!r} is not bytes; `get` reads it"
            )
        self._bytes, self.size = value, len(value)

    def read(self, start: int, stop: int) -> bytes:
        """The bytes from start to stop, or to the end."""
        start, stop = min(start, self.size), min(stop, self.size)
        if stop - start > WINDOW:
            return b"".join(self.pieces(start, stop))
        at, held = self._window
        if not at <= start <= stop <= at + len(held):
            at, held = start, b"".join(self.pieces(start, min(start + WINDOW, self.size)))
            self._window = at, held
        return held[start - at : stop - at]

    def holds(self, start: int, stop: int) -> bool:
        """Whether a read would not have to wait for storage."""
        at, held = self._window
        return at <= start and min(stop, self.size) <= at + len(held)

    def range(self, start: int | None, stop: int | None) -> bytes:
        """The bytes from start to stop, as with Python's slices."""
        check_index(start, "start")
        check_index(stop, "stop")
        low, high, _ = slice(start, stop).indices(self.size)
        limit = self._limits.size
        if high - low > limit:
            raise InvalidInputError(
                f"{self._reader.scope}: {high - low} bytes at once are more than the limit of "
                f"{limit}; read in pieces"
            )
        return b"".join(self.pieces(low, max(low, high)))

    def pieces(self, start: int, stop: int) -> Iterator[bytes]:
        """The bytes from start to stop in pieces, none of which is long."""
        again = False
        while start < stop:
            if type(self._bytes) is bytes:
                yield self._bytes[start:stop]
                return
            assert type(self._bytes) is ByteTree
            try:
                for piece in self._bytes.pieces(start, stop):
                    start += len(piece)
                    yield piece
            except DamagedRecordError as error:
                self._check_kept()
                if again or not isinstance(error, DamagedIndexError):
                    raise
                again = True
                self._find_again()

    def _check_kept(self) -> None:
        """Refuse what was pruned since it was opened: then what is missing is no damage."""
        ledger, number, sequence = self._opened
        floor = floor_of(ledger, number)
        if not floor.holds(sequence, ledger.before):
            raise pruned(ledger, self._reader.timeline, sequence, floor)

    def _find_again(self) -> None:
        """A saved node is damaged: the entries give it again, if the key still has the value."""
        before = self._bytes
        self._reader.rebuild()
        self._find()
        if getattr(self._bytes, "ref", None) != getattr(before, "ref", None):
            raise DamagedRecordError(
                f"{self._reader.scope}: a record of {self.key!r} is damaged, and the key has "
                "changed since it was opened; read it with at()"
            )


def _bytes_in(ref: bytes) -> int:
    """Bytes of a chunk: what it takes encoded, without its header."""
    size = refs.size_of(ref)
    return size - (2 if size < 259 else 3)
