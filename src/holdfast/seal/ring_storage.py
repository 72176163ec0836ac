"""The storage that a ring lies in: what is damaged there is damage of the ring.

An engine says of a file which of its rows cannot be had, and to run recovery. Of a ring nothing can
be recovered but from a copy: that is what `DamagedRingError` says.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from holdfast.errors import DamagedRecordError
from holdfast.seal.ring_masters import damaged
from holdfast.storage.contract import Batch, Moment, Storage
from holdfast.storage.wrappers.base import Around


class RingStorage(Around):
    """A storage whose damaged file is a damaged ring; `place` is how texts call it."""

    def __init__(self, storage: Storage, place: str) -> None:
        super().__init__(storage)
        self._place = place

    def get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        with self._of_ring():
            return super().get(keys)

    def scan(
        self, low: bytes, high: bytes, *, limit: int = 1000, reverse: bool = False
    ) -> list[tuple[bytes, bytes]]:
        with self._of_ring():
            return super().scan(low, high, limit=limit, reverse=reverse)

    def cells(self, low: bytes, high: bytes, *, limit: int = 1000) -> list[tuple[bytes, bytes]]:
        with self._of_ring():
            return super().cells(low, high, limit=limit)

    def commit(self, batch: Batch) -> None:
        with self._of_ring():
            super().commit(batch)

    @contextmanager
    def moment(self) -> Iterator[Moment]:
        with self._of_ring(), super().moment() as moment:
            yield moment

    @contextmanager
    def _of_ring(self) -> Iterator[None]:
        try:
            yield
        except DamagedRecordError as error:
            if type(error) is not DamagedRecordError:
                raise
            raise damaged(f"file ({self._place})") from None
