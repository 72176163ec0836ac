"""Files whose content is a long value: to write to, to read from, and those of the disk."""

from __future__ import annotations

import io
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Self

from holdfast.errors import InvalidInputError
from holdfast.store.long.long_reader import LongReader
from holdfast.store.long.long_writer import LongWriter
from holdfast.store.names.threads import safe_point
from holdfast.store.names.whole_files import Path, check_path, whole_file

if TYPE_CHECKING:
    from types import TracebackType

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

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
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
        self._turn = threading.RLock()

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
    except BaseException as error:
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
