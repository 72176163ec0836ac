"""Uploads: long bytes written ahead, in bounded memory, and named by an entry last.

What is written is cut, hashed and laid into the very tree that setting the whole value would make,
as it comes: chunks into packs, nodes into packs as soon as they are closed, and both are committed
every few MiB under a pin (`upload_pins`). At the end all that is left is the root, which the entry
names. So the key changes in one commit, and before it nothing is seen.

A chunk or node that the value had before is not written again but named where it lies; so are
chunks that repeat within the value.
"""

from __future__ import annotations

import os
from array import array
from bisect import bisect_left
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.errors import (
    Conflict,
    LimitExceededError,
    StateIntegrityError,
)
from holdfast.storage.contract import Batch
from holdfast.storage.rows import again
from holdfast.store.commit.core import Core
from holdfast.store.commit.stage import Stage, stand_beside_pruning
from holdfast.store.journal.ledger import Ledger, gone, sealed_again
from holdfast.store.names import rowkinds
from holdfast.store.rules.upload_pins import Pin
from holdfast.store.tree import refs
from holdfast.store.tree.split import CHUNK_MOST, Atom
from holdfast.store.tree.tree import Builder, Element, Node, Place, Trees
from holdfast.store.tree.value import AHEAD

if TYPE_CHECKING:
    pass

PIECE = 1 << 20
"""Bytes that are cut at a time."""
PACK = 64 * 1024
"""Bytes of a pack: larger than an entry's, for its chunks are mostly read one after the other."""
COMMIT = 4 << 20
"""Bytes of rows that are committed at a time."""
REPEATS = 16_384
"""Chunks of the value that are remembered, in case they repeat."""

_encode = msgspec.msgpack.Encoder().encode


class Upload:
    """One long value on its way into a scope; not for several threads at once."""

    def __init__(
        self,
        core: Core,
        ledger: Ledger,
        old: tuple[bytes, Any] | None,
        *,
        quiet: bool,
    ) -> None:
        self.core = core
        self.ledger = ledger
        self.quiet = quiet
        """Whether it is sensitive: then its rows are not compressed."""
        self.size = 0
        self.anchors: int | None = None
        """How often the timeline of the old value had been pruned; None if there is none."""
        self.number = int.from_bytes(os.urandom(rowkinds.SEQUENCE), "big") or 1
        self.pin = Pin(rowkinds.pin(ledger.number, self.number), ledger.seal.writer)
        self._buffer = bytearray()
        self._nodes = _NodePacks(self, old)
        self._values = _Packs(self, b"V", 1)
        self._builder = Builder(self._nodes, indexed=False)
        self._repeats: dict[bytes, Place] = {}
        self._pending: list[tuple[bytes, bytes]] = []
        self._waiting = 0

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Take more bytes."""
        self.size += len(data)
        most = self.ledger.codec.limits.long
        if self.size > most:
            raise LimitExceededError(
                f"{self.ledger.scope}: the value is longer than {most} bytes; "
                "write several, or give limits=holdfast.ValueLimits(long=...)"
            )
        for start in range(0, len(data), PIECE):
            self._buffer += data[start : start + PIECE]
            if len(self._buffer) >= PIECE:
                self._cut(last=False)

    def finish(self) -> list[Any]:
        """Store what is left; the shape by which an entry names the value."""
        self._cut(last=True)
        root = self._builder.finish()
        self._values.close()
        self._nodes.packs.close()
        if self._pending:
            self._commit()
        ref = refs.tree(refs.BYTES, root.hash, root.count, root.size)
        number = self.number if self.pin.value is not None else 0
        return [AHEAD, ref, root.place, number, self._values.count, self._nodes.packs.count]

    def enter(self, stage: Stage) -> None:
        """Let the entry that is built bring what was written: from then on it is no upload."""
        if self.pin.value is not None:
            stage.cells.append((self.pin.key, self.pin.value, None))
        if self.anchors is not None:
            stand_beside_pruning(stage, self.anchors)

    def abandon(self) -> None:
        """Drop what was written."""
        self.core.pins.abandon(self.pin)

    # chunks

    def _cut(self, *, last: bool) -> None:
        """Take off the chunks whose ends cannot be moved by what is still to come."""
        data = bytes(self._buffer)
        start = 0
        while start < len(data) and (last or start + CHUNK_MOST <= len(data)):
            atom, start = self.ledger.splitter.chunk(data, start)
            self._add(atom)
        del self._buffer[:start]

    def _add(self, atom: Atom) -> None:
        ref = atom.ref
        place = self._nodes.previous.find(ref)
        if place is None and ref[0] == refs.ATOM:
            place = self._repeats.get(ref)
            if place is None:
                place = self._values.lay(atom.data(self.ledger.codec))
                if len(self._repeats) >= REPEATS:
                    self._repeats.clear()
                self._repeats[ref] = place
        self._builder.push((None, ref, place), self.ledger.trees.end_of(None, ref))

    # rows

    def put(self, key: bytes, row: bytes) -> None:
        """Take a finished row."""
        self._pending.append((key, row))
        self._waiting += len(row)
        if self._waiting >= COMMIT:
            self._commit()

    def _commit(self) -> None:
        self.core.check_writable()

        def put() -> None:
            self._seal_again()
            absent = [self.ledger.tombstone, self.ledger.next_epoch()]
            if self.pin.value is None:
                absent.append(self._pending[0][0])  # the number is nobody else's
            self.core.pins.commit(self.pin, Batch(puts=self._pending, absent=absent))

        again(
            put,
            f"{self.ledger.scope}: its key was rotated again and again; try again",
            when=self._rekeyed,
        )
        self._pending, self._waiting = [], 0

    def _rekeyed(self, conflict: Conflict) -> bool:
        """Whether only the data key is another now: nothing is stored under one that is about to
        leave the ring. Else the scope is erased, or the pin gone with what was written."""
        if self.ledger.erased():
            raise gone(self.ledger.scope) from None
        if self.ledger.next_epoch() not in conflict.keys:
            return False
        self.ledger.seal.know(self.ledger.seal.epoch + 1)
        return True

    def _seal_again(self) -> None:
        """Seal rows that wait under the newest key, if it has been rotated since."""
        if self.core.ring is not None:
            epoch = self.ledger.seal.epoch
            self._pending = [
                (key, sealed_again(self.ledger, key, row, epoch) or row)
                for key, row in self._pending
            ]


class _Packs:
    """Lays bytes into packs of one kind."""

    def __init__(self, upload: Upload, kind: bytes, first: int) -> None:
        self._upload = upload
        self._line = rowkinds.line(kind, upload.ledger.number, rowkinds.UPLOADS)
        self._first = self._ordinal = first
        self._pack: list[bytes] = []
        self._used = 0

    @property
    def count(self) -> int:
        """Packs that are finished."""
        return self._ordinal - self._first

    def lay(self, data: bytes) -> Place:
        """Where the bytes will lie."""
        if self._used + len(data) > PACK:
            self.close()
        self._pack.append(data)
        self._used += len(data)
        return rowkinds.UPLOADS, self._upload.number, self._ordinal, len(self._pack) - 1

    def close(self) -> None:
        """Finish the pack that is open."""
        if self._pack:
            ledger, quiet = self._upload.ledger, self._upload.quiet
            key = rowkinds.pack(self._line, self._upload.number, self._ordinal)
            row = ledger.seal_row(key, _encode(self._pack), ledger.commit_pack, quiet=quiet)
            self._pack, self._used = [], 0
            self._ordinal += 1
            self._upload.put(key, row)


class _NodePacks:
    """What a builder makes nodes with: each is laid as soon as it is made, and let go."""

    def __init__(self, upload: Upload, old: tuple[bytes, Any] | None) -> None:
        self._trees = upload.ledger.trees
        self.packs = _Packs(upload, b"N", 0)
        self.previous = _Previous(self._trees, old)
        self.empty = self._trees.empty
        self._newest: dict[int, Node] = {}
        """Of each level: what the root is made of, at the end, may not be stored yet."""

    def make(self, level: int, elements: Sequence[Element], *, indexed: bool) -> Node:
        """A node that has its place."""
        node = self._trees.make(level, elements, indexed=indexed)
        place = self.previous.place(level, node.hash)
        node.place = place or self.packs.lay(self._trees.pack(node, {}))
        self._newest[level] = node
        return node

    def load(self, hint: Any, hash_: bytes) -> Node:
        """A node that was made last on its level."""
        return next(node for node in self._newest.values() if node.hash == hash_)


class _Previous:
    """The value that is replaced: its chunks by hash, in twelve bytes of memory or so for each."""

    def __init__(self, trees: Trees, old: tuple[bytes, Any] | None) -> None:
        self._trees = trees
        self._root: Node | None = None
        self._location: Any = None
        self._marks = array("Q")
        self._at: int | None = None
        """Where the chunk that was asked for last lies in it."""
        if old is not None and old[0][0] == refs.TREE and old[0][1] == refs.BYTES:
            # What is damaged is not taken over, and is no reason not to be replaced.
            with suppress(StateIntegrityError):
                root = trees.load(old[1], old[0][2:34])
                elements = enumerate(trees.walk(root))
                self._marks.extend(sorted(_mark(e[1]) | position for position, e in elements))
                self._root, self._location = root, old[1]

    def find(self, ref: bytes) -> Place | None:
        """The place of a chunk, if the value has it."""
        self._at = None
        mark = _mark(ref)
        number = bisect_left(self._marks, mark)
        while number < len(self._marks) and self._marks[number] >> 32 == mark >> 32:
            position = self._marks[number] & 0xFFFFFFFF
            assert self._root is not None
            _, found, place = next(self._trees.slice(self._root, position, position + 1))
            if found == ref:
                self._at = position
                return place  # type: ignore[no-any-return]
            number += 1
        return None

    def place(self, level: int, hash_: bytes) -> Place | None:
        """The place of the node of a level that holds the chunk found last, if it is this one."""
        node, hint, position = self._root, self._location, self._at
        if position is None or node is None:
            return None
        while node.level > level:
            for element in node.elements:
                if position < element[3]:
                    break
                position -= element[3]
            hint = element[2]
            node = self._trees.load(hint, element[1])
        if node.hash != hash_:
            return None
        return hint.place if type(hint) is Node else hint


def _mark(ref: bytes) -> int:
    """The beginning of a chunk's hash, with room for its position below."""
    return int.from_bytes(ref[1:5].ljust(4, b"\0"), "big") << 32
