"""Long bytes under a key: read by position and written piece by piece, in bounded memory.

What is open stays as it was: records never change, so the root that was found when it was opened
is all that has to be held, whatever is written to the key meanwhile. What is written turns the key
over when it is closed; what turns out to be short is set like any other value, what is long becomes
an upload (below).
"""

from __future__ import annotations

import io
import os
import threading
from array import array
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from contextlib import suppress
from copy import deepcopy
from typing import Any, Self

import msgspec

from holdfast.errors import (
    Conflict,
    DamagedRecordError,
    GateRefusedError,
    InvalidInputError,
    LimitExceededError,
    MissingError,
    ReadOnlyError,
    StateIntegrityError,
)
from holdfast.seal.subject_keys import ERASED
from holdfast.storage.contract import Batch
from holdfast.storage.rows import ATTEMPTS, again
from holdfast.store.commit.change import Change, Target, ask_gates
from holdfast.store.commit.group import Core
from holdfast.store.commit.stage import Stage, stand_beside_pruning
from holdfast.store.history.handle import LineHandle
from holdfast.store.journal.entry import Body
from holdfast.store.journal.floor import floor_of, pruned
from holdfast.store.journal.ledger import Ledger, gone, sealed_again
from holdfast.store.names import rowkinds
from holdfast.store.names.arguments import check_index, check_version
from holdfast.store.names.cause import cause_now
from holdfast.store.names.items import LongValue
from holdfast.store.names.scope import check_key
from holdfast.store.names.threads import safe_point
from holdfast.store.names.whole_files import Path, check_path, whole_file
from holdfast.store.read.reader import Reader
from holdfast.store.rules.classes import SENSITIVE
from holdfast.store.rules.ephemeral import refuse_ephemeral
from holdfast.store.rules.gates import GateRequest, Operation
from holdfast.store.rules.subjects import erased
from holdfast.store.rules.upload_pins import Pin
from holdfast.store.tree import refs
from holdfast.store.tree.split import CHUNK_MOST, Atom
from holdfast.store.tree.tree import Builder, Element, Node, Place, Trees
from holdfast.store.tree.value import AHEAD

# ---- reading ------------------------------------------------------------------------------------


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
        reader.past_damage(lambda _: self._find())

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
        if (guard := self._reader.core.guard) is not None:
            guard.check(self._reader.scope, self.key)  # it may be over since this was opened
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
        if type(self._bytes) is bytes:
            yield self._bytes[start:stop]
            return
        assert type(self._bytes) is ByteTree
        try:
            yield from self._bytes.pieces(start, stop)
        except DamagedRecordError:  # what was pruned since it was opened is no damage
            ledger, number, sequence = self._opened
            floor = floor_of(ledger, number)
            if not floor.holds(sequence, ledger.before):
                raise pruned(ledger, self._reader.timeline, sequence, floor) from None
            raise


def _bytes_in(ref: bytes) -> int:
    """Bytes of a chunk: what it takes encoded, without its header."""
    size = refs.size_of(ref)
    return size - (2 if size < 259 else 3)


# ---- writing ------------------------------------------------------------------------------------


SHORT = 1 << 20
"""Bytes up to which a value is set by one entry, with its chunks beside it."""


class _Moved(Conflict):
    """The scope of this name is another one than that which the rows were written for."""


class LongWriter:
    """Bytes on their way to a key; several threads take turns, each with a whole piece.

    It ends by `commit` or `abort`. An error ends it, too: then nothing of it is ever seen.
    """

    def __init__(self, handle: LineHandle, key: str, if_version: int | None) -> None:
        if handle.reader.at is not None:
            raise ReadOnlyError(f"{handle.scope}: a view of the past cannot be changed; fork it")
        handle.core.check_writable()
        check_version(if_version)
        self._handle = handle
        self.key = check_key(key)
        self._expects = {self.key: if_version} if if_version is not None else {}
        self._cause = cause_now()
        self._short = bytearray()
        self._upload: Upload | None = None
        self._turn = threading.RLock()  # pieces of threads go in whole; a failed one ends it
        self.over = ""
        """Why it has ended; empty while it has not."""
        self.size = 0
        self.version: int | None = None
        """The entry that it became; None before."""

    def holds(self, size: int) -> bool:
        """Whether so many bytes more can be taken without cutting or storing any."""
        return self._upload is None and len(self._short) + size <= SHORT

    def write(self, data: bytes | bytearray | memoryview) -> int:
        """Take more bytes; returns how many."""
        data = as_bytes(data)
        with self._turn:
            self._check()
            try:
                if self.holds(len(data)):
                    self._short += data
                else:
                    self._begin().write(data)
            except BaseException:  # also Ctrl-C: nobody knows how much of the piece was taken
                self.abort("it failed before")
                raise
            self.size += len(data)
        return len(data)

    def commit(self) -> int:
        """Let the key have what was written; returns the entry's number."""
        with self._turn:
            self._check()
            try:
                if self._upload is None:
                    operation = Operation("set", self.key, bytes(self._short))
                    change, finish = self._handle._plan(
                        [operation], self._handle._version, expects=self._expects, cause=self._cause
                    )
                    version: int = finish(self._handle.core.run(change))
                else:
                    shape = self._upload.finish()
                    self._ask(refs.read_tree(shape[1])[1].hex())
                    version = self._named(self._upload, shape)
            except BaseException:  # whatever it is, nothing names rows, which would stay
                self.abort("it failed before")
                raise
            self.over, self.version = "it is closed", version
            return version

    def abort(self, why: str = "it was given up") -> None:
        """Forget what was written; the key stays as it is."""
        with self._turn:
            if not self.over:
                self.over = why
                self._short.clear()
                if self._upload is not None:
                    self._upload.abandon()

    def __del__(self) -> None:
        # Let go of unfinished. This runs anywhere, even inside a commit, so it only says so: the
        # thread that beats drops the rows.
        upload = getattr(self, "_upload", None)
        if upload is not None:
            upload.pin.over = True

    def _check(self) -> None:
        if self.over:
            raise InvalidInputError(
                f"{self._handle.scope}: {self.key!r} cannot be written on: {self.over}; "
                "open it again and write all of it"
            )
        self._handle.core.check_writable()

    # uploads

    def _begin(self) -> Upload:
        if self._upload is None:
            # Before anything is stored, by what is declared now; damage is told at the end.
            with suppress(StateIntegrityError):
                refuse_ephemeral(self._handle.reader.declared(), self.key, "long value")
            self._ask()
            self._upload = self._new_upload()
            self._upload.write(self._short)
            self._short.clear()
        return self._upload

    def _new_upload(self) -> Upload:
        core, handle = self._handle.core, self._handle
        quiet = True  # for all we know, if what is declared cannot be read
        # A state that cannot be read is told when the entry is built; here it only spares rows.
        with suppress(StateIntegrityError):
            quiet = handle.reader.class_of(self.key) == SENSITIVE
            timeline = handle.reader.now()
            slot = timeline.slot(self.key) if timeline is not None else None
            if timeline is not None and slot is not None:
                old = (slot.ref, slot.location)
                upload = Upload(core, timeline.ledger, old, quiet=quiet)
                upload.anchors = timeline.floor.number
                return upload

        def begin() -> Upload:
            ledger = core.ledger(handle.scope, create=True)
            # The keys of a scope that the entry will bring into being are durable before its rows;
            # while the master is rotated they are made anew.
            core.commit_ring([ledger])
            return Upload(core, ledger, None, quiet=quiet)

        otherwise = f"{handle.scope}: the master key is rotated again and again; try again"
        return again(begin, otherwise)

    def _ask(self, hash_: str = "") -> None:
        """Lead the value through the gates in front: how long it is so far, and when all of it is
        there its hash, are what they see."""
        core, handle = self._handle.core, self._handle
        if not core.gates.front:
            return
        operations = [Operation("set", self.key, LongValue(self.size, hash_))]
        request = GateRequest(handle.scope, handle.timeline, operations, self._cause)
        given = deepcopy(request)
        asked = ask_gates(core, request)
        self._cause, asked.cause = asked.cause, given.cause
        if asked != given:
            raise GateRefusedError(
                f"{handle.scope}: a gate replaces {self.key!r}, which is too long for that; "
                "set it whole"
            )

    def _named(self, upload: Upload, shape: list[Any]) -> int:
        """Commit the entry that names the upload; written anew if the scope is another one now."""
        for _ in range(ATTEMPTS):
            try:
                return self._enter(upload, shape)
            except _Moved:  # others made the scope first, or ended it: rows are sealed for one
                old, upload = upload, self._new_upload()
                self._upload = upload
                for piece in ByteTree(old.ledger, shape[1], shape[2]).pieces():
                    upload.write(piece)
                old.abandon()
                shape = upload.finish()
        raise Conflict(f"{self._handle.scope}: it was deleted again and again; try again")

    def _enter(self, upload: Upload, shape: list[Any]) -> int:
        core, pin = self._handle.core, upload.pin
        ledger: Ledger = upload.ledger

        def special(stage: Stage, body: Body) -> None:
            if stage.ledger.number != ledger.number:
                raise _Moved(f"{ledger.scope}: it was deleted meanwhile")
            refuse_ephemeral(stage.declared, self.key, "long value")
            upload.enter(stage)
            stage.add([("ahead", self.key, shape)], body)

        target = Target(self._handle.scope, self._handle.timeline, [], self._expects)
        target.special = special
        with pin.lock:  # its value stays what the commit expects
            try:
                written = core.run(Change([target], self._cause))
            except Conflict:
                core.pins.check(pin)  # that it was swept says more than what the commit met
                raise
            core.pins.let_go(pin)
        return written[0].sequence


def as_bytes(data: Any) -> bytes | bytearray | memoryview:
    """Something made of bytes, as such."""
    if type(data) in (bytes, bytearray):
        return data  # type: ignore[no-any-return]
    try:
        return memoryview(data).cast("B")
    except TypeError:
        raise InvalidInputError(
            f"only bytes can be written, not {type(data).__name__}; encode text first"
        ) from None


# ---- files --------------------------------------------------------------------------------------
# Files whose content is a long value: to write to, to read from, and those of the disk.


PIECE = 1 << 20


class WriteFile(io.BufferedIOBase):
    """A file whose content becomes the value of a key when its block ends, or it is closed.

    Inside a block closing only ends the writing, so that what wraps a file and closes it, as text
    files do, cannot finish what an error cuts short. An error gives it up, as does letting go of it
    unclosed: then the key stays as it is. It is written from the beginning to the end; threads take
    turns, each with a whole piece.
    """

    def __init__(self, writer: LongWriter) -> None:
        self._writer = writer
        self._block = False

    @property
    def version(self) -> int | None:
        """The entry that it became, which is the key's new version; None before."""
        return self._writer.version

    def writable(self) -> bool:
        """It is."""
        return True

    def write(self, data: Any, /) -> int:
        """Add bytes; returns how many."""
        if self.closed:
            raise ValueError("write to closed file")
        return self._writer.write(data)

    def tell(self) -> int:
        """How many bytes were written."""
        return self._writer.size

    def close(self) -> None:
        """Let the key have what was written, or leave that to the block; once is enough."""
        super().close()
        if not self._block and not self._writer.over:
            self._writer.commit()

    def abort(self) -> None:
        """Forget what was written."""
        self._writer.abort()
        super().close()

    def __enter__(self) -> Self:
        self._block = True
        return super().__enter__()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._block = False
        if kind is not None:
            self.abort()
        self.close()

    def __del__(self) -> None:
        """Nothing: the base would close it, and so finish what its owner has let go of."""


class ReadFile(io.BufferedIOBase):
    """The bytes under a key as they were when it was opened; threads take turns."""

    def __init__(self, reader: LongReader) -> None:
        self._reader = reader
        self._at = 0
        self._turn = threading.RLock()  # nobody moves the place between a read and its step

    @property
    def size(self) -> int:
        """How many bytes there are."""
        return self._reader.size

    @property
    def version(self) -> int:
        """The version of the key that is read."""
        return self._reader.version

    def readable(self) -> bool:
        """It is."""
        return True

    def seekable(self) -> bool:
        """It is."""
        return True

    def read(self, size: int | None = -1, /) -> bytes:
        """So many bytes, fewer only at the end; all that is left if none is given."""
        self._open()
        with self._turn:
            stop = self.size if size is None or size < 0 else self._at + size
            found = self._reader.read(self._at, stop)
            self._at += len(found)
        return found

    def read1(self, size: int = -1, /) -> bytes:
        """Some bytes, at most so many."""
        return self.read(PIECE if size < 0 else min(size, PIECE))

    def peek(self, size: int = 0, /) -> bytes:
        """Some of the bytes that come next, without going on."""
        self._open()
        with self._turn:
            return self._reader.read(self._at, self._at + 8192)

    def chunks(self, size: int = PIECE) -> Iterator[bytes]:
        """All that is left, in pieces of this size; a loop over the file itself gives lines."""
        check_piece(size)
        while piece := self.read(size):
            yield piece

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        """Go to a place; returns where it is."""
        self._open()
        with self._turn:
            self._at = sought(self._at, self.size, offset, whence)
            return self._at

    def tell(self) -> int:
        """Where the next read begins."""
        self._open()
        return self._at

    def _open(self) -> None:
        if self.closed:
            raise ValueError("I/O operation on closed file")


def sought(at: int, size: int, offset: int, whence: int) -> int:
    """The place that a seek asks for."""
    starts = {io.SEEK_SET: 0, io.SEEK_CUR: at, io.SEEK_END: size}
    if whence not in starts or type(offset) is not int or starts[whence] + offset < 0:
        raise InvalidInputError("seek goes to 0 or beyond; whence is 0, 1 or 2")
    return starts[whence] + offset


def check_piece(size: object) -> None:
    """Refuse what is no size of a piece."""
    if type(size) is not int or size < 1:
        raise InvalidInputError("the size of a piece is a number of at least 1")


def load_file(writer: LongWriter, path: Path) -> int:
    """Write a file's content and commit it."""
    try:
        with open(check_path(path), "rb") as source:
            while piece := source.read(PIECE):
                safe_point()
                writer.write(piece)
    except BaseException as error:  # also Ctrl-C: what was written so far is nobody's
        writer.abort()
        if isinstance(error, OSError):
            raise InvalidInputError(f"{path!r} cannot be read: {error.strerror}") from error
        raise
    return writer.commit()


def save_file(reader: LongReader, path: Path) -> int:
    """Write all bytes into a file."""
    with whole_file(path) as target:
        for piece in reader.pieces(0, reader.size):
            safe_point()
            target.write(piece)
    return reader.size


# ---- uploads ------------------------------------------------------------------------------------
# Long bytes written ahead, in bounded memory, and named by an entry last.
#
# What is written is cut, hashed and laid into the very tree that setting the whole value would
# make, as it comes: chunks into packs, nodes into packs as soon as they are closed, and both are
# committed every few MiB under a pin (`upload_pins`). At the end all that is left is the root,
# which the entry names. So the key changes in one commit, and before it nothing is seen.
#
# A chunk or node that the value had before is not written again but named where it lies; so are
# chunks that repeat within the value.


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
