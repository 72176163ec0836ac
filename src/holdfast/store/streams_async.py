"""Long values on the async face: what cuts, hashes or waits leaves the event loop."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator
from types import TracebackType

from holdfast.errors import InvalidInputError
from holdfast.store.history.handle import LineHandle
from holdfast.store.long.files import PIECE, check_piece, sought
from holdfast.store.long.long_reader import LongReader
from holdfast.store.long.long_writer import LongWriter, as_bytes
from holdfast.store.names.threads import read_away, surely, to_the_end


class WriteStream:
    """Bytes on their way to a key: `async with state.open_write(key) as f: await f.write(data)`.

    The key changes when the block ends; with an error, nothing happens to it. A write that is
    cancelled ends it, too: what follows in the block is refused. Tasks take turns, each with a
    whole piece.
    """

    def __init__(self, handle: LineHandle, key: str, if_version: int | None) -> None:
        self._writer = LongWriter(handle, key, if_version)
        self._closed = False
        self._turn = asyncio.Lock()

    @property
    def version(self) -> int | None:
        """The entry that it became, which is the key's new version; None before it is closed."""
        return self._writer.version

    @property
    def size(self) -> int:
        """How many bytes were written."""
        return self._writer.size

    async def write(self, data: bytes | bytearray | memoryview) -> int:
        """Add bytes; returns how many."""
        data = as_bytes(data)
        async with self._turn:
            if self._writer.holds(len(data)):
                return self._writer.write(data)
            try:
                return await to_the_end(self._writer.write, data)
            except asyncio.CancelledError:
                # Nobody is told whether it was written: going on would leave it out, or double it.
                await surely(self._writer.abort, "a write was cancelled")
                raise

    async def close(self) -> None:
        """Let the key have what was written; a second call does nothing."""
        if not self._closed:
            self._closed = True
            await surely(self._writer.commit)

    async def abort(self) -> None:
        """Forget what was written."""
        self._closed = True
        await surely(self._writer.abort)

    async def __aenter__(self) -> WriteStream:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is not None:
            await self.abort()
        else:
            await self.close()


class ReadStream:
    """The bytes under a key as they are when it is opened: `async with state.open_read(key) as f`.

    `async for piece in f` gives all that is left, in pieces. Tasks take turns.
    """

    def __init__(self, handle: LineHandle, key: str) -> None:
        self._handle = handle
        self._key = key
        self._opened: LongReader | None = None
        self._at = 0
        self._turn = asyncio.Lock()

    @property
    def _reader(self) -> LongReader:
        if self._opened is None:
            raise InvalidInputError(
                f"{self._handle.scope}: {self._key!r} is not open; use `async with`"
            )
        return self._opened

    @property
    def size(self) -> int:
        """How many bytes there are."""
        return self._reader.size

    @property
    def version(self) -> int:
        """The version of the key that is read."""
        return self._reader.version

    async def read(self, size: int | None = -1) -> bytes:
        """So many bytes, fewer only at the end; all that is left if none is given."""
        reader = self._reader
        async with self._turn:
            stop = reader.size if size is None or size < 0 else self._at + size
            if reader.holds(self._at, stop):
                found = reader.read(self._at, stop)
            else:
                found = await to_the_end(reader.read, self._at, stop)
            self._at += len(found)
        return found

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Go to a place; returns where it is."""
        self._at = sought(self._at, self.size, offset, whence)
        return self._at

    def tell(self) -> int:
        """Where the next read begins."""
        return self._at

    async def chunks(self, size: int = PIECE) -> AsyncIterator[bytes]:
        """All that is left, in pieces of this size."""
        check_piece(size)
        while piece := await self.read(size):
            yield piece

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self.chunks()

    async def __aenter__(self) -> ReadStream:
        self._opened = await read_away(LongReader, self._handle.reader, self._key)
        self._at = 0
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._opened = None
