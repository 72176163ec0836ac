"""Storage in the memory of this process: for tests, and for state that may be lost.

Everything is gone with the process, at either level of durability.
"""

from __future__ import annotations

import threading
from bisect import bisect_left, insort
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext

from holdfast.errors import StoreNotFoundError
from holdfast.storage.batch import (
    Life,
    Ranges,
    check_batch,
    check_durability,
    check_own,
    conflict,
    differs,
    opened_for_reading,
)
from holdfast.storage.contract import Batch, Limits, Moment
from holdfast.storage.rows import Row


class _Rows:
    """A mapping that can be scanned in key order."""

    def __init__(self, values: Mapping[bytes, bytes] | None = None) -> None:
        self.values = dict(values or {})
        self._keys = sorted(self.values)

    def set(self, key: bytes, value: bytes) -> None:
        if key not in self.values:
            # Moves the keys behind it: of a million, in 60 µs.
            insort(self._keys, key)
        self.values[key] = value

    def remove(self, key: bytes) -> None:
        if self.values.pop(key, None) is not None:
            del self._keys[bisect_left(self._keys, key)]

    def scan(self, low: bytes, high: bytes, limit: int, reverse: bool) -> list[Row]:
        first, last = bisect_left(self._keys, low), bisect_left(self._keys, high)
        if reverse:
            keys = self._keys[max(first, last - limit) : last][::-1]
        else:
            keys = self._keys[first : min(last, first + limit)]
        return [(key, self.values[key]) for key in keys]


class _Space:
    """The rows that all handles of one name share."""

    def __init__(self) -> None:
        self.records = _Rows()
        self.cells = _Rows()
        self.version = 0
        self.bytes = 0
        self.turn = threading.RLock()
        """Held by whoever commits or is about to."""
        self.rows = threading.Lock()
        """Held for moments only, so that a long turn does not hold up readers."""


_SPACES: dict[str, _Space] = {}
_SPACES_LOCK = threading.Lock()  # of two that open a name at once, one makes what it names


def open_memory(
    name: str = "", *, durability: str = "full", create: bool = True, read_only: bool = False
) -> MemoryStorage:
    """Open the space of that name, which lives as long as the process; "" is a fresh one."""
    check_durability(durability, MemoryStorage.limits)
    with _SPACES_LOCK:
        space = _SPACES.get(name) if name else None
        if space is None:
            if not create:
                raise StoreNotFoundError(
                    f"no storage 'memory:{name}' is in this process; open it with create=True"
                )
            space = _Space()
            if name:
                _SPACES[name] = space
    return MemoryStorage(space, read_only=read_only)


class MemoryStorage(Ranges):
    """A handle on rows in this process. Nothing survives the process; nothing is shared
    with another one."""

    limits = Limits("memory", durability=("full", "normal"), shared=False)

    def __init__(self, space: _Space | None = None, *, read_only: bool = False) -> None:
        self._space = space or _Space()
        self._read_only = read_only
        self._own = 0
        self._life = Life()

    def get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        self._life.check()
        with self._space.rows:
            values = self._space.records.values
            return [values.get(key) for key in keys]

    def _rows(self, table: str, low: bytes, high: bytes, limit: int, reverse: bool) -> list[Row]:
        self._life.check()
        with self._space.rows:
            rows = self._space.records if table == "records" else self._space.cells
            return rows.scan(low, high, limit, reverse)

    def commit(self, batch: Batch) -> None:
        if not batch.own or check_own:
            check_batch(batch, self.limits)
        self._life.check()
        if self._read_only:
            raise opened_for_reading()
        with self._space.turn:
            # Only the holder of the turn changes rows, so these reads need no other lock.
            failed = self._failed(batch)
            if failed:
                raise conflict(failed)
            records = self._space.records.values
            for key, value in batch.puts:
                if records.get(key, value) != value:
                    raise differs(key)
            with self._space.rows:
                self._apply(batch)

    def version(self) -> object:
        self._life.check()
        with self._space.rows:  # between the two, a commit of this handle would look like another's
            return self._space.version - self._own

    def turn(self, *, durable: bool = True) -> AbstractContextManager[object]:
        self._life.check()
        return self._space.turn

    def moment(self) -> AbstractContextManager[Moment]:
        self._life.check()
        with self._space.rows:
            still = _Space()
            still.records = _Rows(self._space.records.values)
            still.cells = _Rows(self._space.cells.values)
        return nullcontext(MemoryStorage(still, read_only=True))

    def size(self) -> int:
        self._life.check()
        return self._space.bytes

    def check(self) -> list[str]:
        self._life.check()
        return []

    def settle(self) -> bool:
        self._life.check()
        return True

    def close(self) -> None:
        self._life.end()

    def _failed(self, batch: Batch) -> list[bytes]:
        records, cells = self._space.records.values, self._space.cells.values
        failed = [key for key in batch.absent if key in records]
        failed += [key for key in batch.present if key not in records]
        failed += [key for key, expected, _ in batch.cells if cells.get(key) != expected]
        failed += [key for key, expected, _ in batch.swaps if records.get(key) != expected]
        return failed

    def _apply(self, batch: Batch) -> None:
        space = self._space
        for key, value in batch.puts:
            self._set(space.records, key, value)
        for key in batch.drops:
            self._set(space.records, key, None)
        for key, _, again in batch.swaps:
            self._set(space.records, key, again)
        for key, _, new in batch.cells:
            self._set(space.cells, key, new)
        space.version += 1
        self._own += 1

    def _set(self, rows: _Rows, key: bytes, value: bytes | None) -> None:
        old = rows.values.get(key)
        if old is not None:
            self._space.bytes -= len(key) + len(old)
        if value is None:
            rows.remove(key)
        else:
            rows.set(key, value)
            self._space.bytes += len(key) + len(value)
