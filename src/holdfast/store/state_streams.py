"""Long values on the blocking face; what they need is loaded when they are first used."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.store.history.handle import LineHandle, StoreHandle
    from holdfast.store.long.files import ReadFile, WriteFile
    from holdfast.store.names.items import Swept
    from holdfast.store.names.whole_files import Path


class ViewStreaming:
    """Reading long values."""

    _handle: LineHandle

    def open_read(self, key: str) -> ReadFile:
        """Bytes, read in bounded memory; what happens to the key later is not seen."""
        from holdfast.store.long.files import ReadFile
        from holdfast.store.long.read import LongReader

        return ReadFile(LongReader(self._handle.reader, key))

    def read_range(self, key: str, start: int | None = None, stop: int | None = None) -> bytes:
        """Bytes from start to stop, as with Python's slices, without reading the rest."""
        from holdfast.store.long.read import LongReader

        return LongReader(self._handle.reader, key).range(start, stop)

    def get_file(self, key: str, path: Path) -> int:
        """Write bytes into a file, which is there whole or not at all; returns how many."""
        from holdfast.store.long.files import save_file
        from holdfast.store.long.read import LongReader

        return save_file(LongReader(self._handle.reader, key), path)


class StateStreaming:
    """Writing long values."""

    _handle: LineHandle

    def open_write(self, key: str, *, if_version: int | None = None) -> WriteFile:
        """What is written becomes the value of the key when its block ends; any size, in bounded
        memory.

        It is the same value as `set` of those bytes. Chunks that the key's value had before are
        not stored again. Nothing is seen of it before the block ends without an error; then the
        last to end wins, or with `if_version` only if the key still has that version.
        """
        from holdfast.store.long.files import WriteFile
        from holdfast.store.long.write import LongWriter

        return WriteFile(LongWriter(self._handle, key, if_version))

    def put_file(self, key: str, path: Path, *, if_version: int | None = None) -> int:
        """Set a key to the content of a file; returns the entry's number."""
        from holdfast.store.long.files import load_file
        from holdfast.store.long.write import LongWriter

        return load_file(LongWriter(self._handle, key, if_version), path)


class StoreStreaming:
    """Clearing away what has expired or was never finished."""

    _handle: StoreHandle

    def sweep(self, *, limit: int | None = None, wait: bool = False) -> Swept:
        """Remove keys that have expired, `limit` at most, of every timeline of every scope, and
        what was written of long values whose writers are gone.

        A writer counts as gone once it has shown no sign of life for a minute, by this process's
        clock, while this process looked: at every sweep, and whenever it writes long values itself.
        With `wait` it takes that minute if there is reason to. Scopes that are damaged are named in
        what it gives, and the others swept.
        """
        from holdfast.store.upkeep.expiry import sweep_store

        return sweep_store(self._handle, limit, wait)
