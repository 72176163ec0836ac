"""A storage around another one, as a base for those that change a few of its calls."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager

from holdfast.storage.contract import Batch, Moment, Storage


class Around:
    """Every call is that of the inner storage."""

    def __init__(self, storage: Storage) -> None:
        self.inner = storage
        self.limits = storage.limits

    def get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        return self.inner.get(keys)

    def scan(
        self, low: bytes, high: bytes, *, limit: int = 1000, reverse: bool = False
    ) -> list[tuple[bytes, bytes]]:
        return self.inner.scan(low, high, limit=limit, reverse=reverse)

    def cells(self, low: bytes, high: bytes, *, limit: int = 1000) -> list[tuple[bytes, bytes]]:
        return self.inner.cells(low, high, limit=limit)

    def commit(self, batch: Batch) -> None:
        self.inner.commit(batch)

    def version(self) -> object:
        return self.inner.version()

    def turn(self) -> AbstractContextManager[object]:
        return self.inner.turn()

    def moment(self) -> AbstractContextManager[Moment]:
        return self.inner.moment()

    def size(self) -> int:
        return self.inner.size()

    def check(self) -> list[str]:
        return self.inner.check()

    def settle(self) -> bool:
        return self.inner.settle()

    def close(self) -> None:
        self.inner.close()
