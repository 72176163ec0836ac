"""What every engine checks before it touches anything: a batch, a range, its own handle.

Kept in one place so that all engines refuse the same things by the same names.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterable

from holdfast.errors import (
    Conflict,
    DamagedRecordError,
    InvalidInputError,
    LimitExceededError,
    ReadOnlyError,
    StoreClosedError,
    StoreForkedError,
)
from holdfast.storage import contract
from holdfast.storage.contract import MAX_CELL, MAX_KEY, Batch, Limits
from holdfast.storage.rows import Row

_LENGTH = bytes.__len__
"""One call that both measures and refuses what is not bytes."""


check_own = bool(os.environ.get("HOLDFAST_CHECK_BATCHES"))
"""Whether those that the store makes itself are checked as well: in tests, or to find a defect."""


def check_batch(batch: Batch, limits: Limits) -> None:
    """Refuse what no engine can store. Engines need not ask it of the store's own batches."""
    put_keys: set[bytes] = set()
    if batch.puts:
        keys, values = zip(*batch.puts, strict=True)
        _check_keys(keys)
        _check_values(keys, values, limits.max_record, "record")
        put_keys = set(keys)
        if len(put_keys) != len(keys):
            seen: dict[bytes, bytes] = {}
            for key, value in batch.puts:
                if seen.setdefault(key, value) != value:
                    told = f"the batch puts record {key.hex()} twice, with other bytes"
                    raise InvalidInputError(told)
    if batch.absent and not put_keys.issuperset(batch.absent):
        _check_keys(batch.absent)
    for column in (batch.present, batch.drops, batch.blanks):
        if column:
            _check_keys(column)
    if batch.drops and not put_keys.isdisjoint(batch.drops):
        raise InvalidInputError("a batch cannot put and drop the same record; send two batches")
    if batch.cells:
        names = [key for key, _, _ in batch.cells]
        _check_keys(names)
        if len(set(names)) != len(names):
            raise InvalidInputError("a batch may name each cell only once")
        for place in (1, 2):
            given = [(cell[0], cell[place]) for cell in batch.cells]
            filled = {key: value for key, value in given if value is not None}
            if filled:
                _check_values(filled, filled.values(), MAX_CELL, "cell")
    if batch.swaps:
        again = [key for key, _, _ in batch.swaps]
        _check_keys(again)
        others = {*put_keys, *batch.drops}
        if len(set(again)) != len(again) or not others.isdisjoint(again):
            raise InvalidInputError("a record that is sealed again is named once in its batch")
        _check_values(again, [new for _, _, new in batch.swaps], limits.max_record, "record")


def check_range(low: bytes, high: bytes, limit: int) -> None:
    """Refuse a scan whose bounds are no bytes or whose limit is negative."""
    if type(low) is not bytes or type(high) is not bytes:
        raise InvalidInputError("the bounds of a scan must be bytes")
    if limit < 0:
        raise InvalidInputError("the limit of a scan must not be negative")


class Ranges(ABC):
    """`scan` and `cells` of an engine or of a moment, by one question."""

    def scan(
        self, low: bytes, high: bytes, *, limit: int = 1000, reverse: bool = False
    ) -> list[Row]:
        check_range(low, high, limit)
        return self._rows("records", low, high, limit, reverse)

    def cells(self, low: bytes, high: bytes, *, limit: int = 1000) -> list[Row]:
        check_range(low, high, limit)
        return self._rows("cells", low, high, limit, False)

    @abstractmethod
    def _rows(self, table: str, low: bytes, high: bytes, limit: int, reverse: bool) -> list[Row]:
        """The rows of `records` or `cells` in a range that was checked."""


class Life:
    """Whether a handle may be used: not when it is closed, nor in a forked child."""

    def __init__(self) -> None:
        self._pid = contract.process_number
        self._closed = False

    def check(self) -> None:
        """Refuse a handle that may not be used."""
        if self._pid != contract.process_number:
            raise forked()
        if self._closed:
            raise StoreClosedError("this storage is closed; open it again")

    def end(self) -> bool:
        """Whether there is something to close; the first call in the process that opened it."""
        first = self._pid == contract.process_number and not self._closed
        self._closed = self._closed or first
        return first


def forked() -> StoreForkedError:
    """The error for a handle that a process has inherited."""
    return StoreForkedError("this storage was opened before os.fork(); open it again in the child")


def check_durability(durability: str, limits: Limits) -> None:
    """Refuse a level that the engine does not name."""
    if durability not in limits.durability:
        known = ", ".join(limits.durability)
        raise InvalidInputError(
            f"durability {durability!r} is not offered by {limits.name}; use one of: {known}"
        )


def conflict(keys: list[bytes]) -> Conflict:
    """The error for expectations that did not hold."""
    return Conflict(
        f"{len(keys)} expectation(s) of the batch do not hold; nothing was applied: "
        "read again and retry",
        keys,
    )


def differs(key: bytes) -> DamagedRecordError:
    """The error for a record that is there with other bytes."""
    return DamagedRecordError(
        f"record {key.hex()} is already stored with other bytes, and records never change; "
        "nothing was applied: run verify on the store",
        place=f"record {key.hex()}",
    )


def opened_for_reading() -> ReadOnlyError:
    """The error for a commit on a handle that may only read."""
    return ReadOnlyError("this storage was opened for reading; open it again to write")


def _check_keys(keys: Iterable[bytes]) -> None:
    if _longest(keys, "the key of a record or cell") > MAX_KEY:
        raise InvalidInputError(f"the key of a record or cell has at most {MAX_KEY} bytes")


def _longest(items: Iterable[bytes], what: str) -> int:
    try:
        return max(map(_LENGTH, items))
    except TypeError:
        raise InvalidInputError(f"{what} must be bytes") from None


def _check_values(keys: Iterable[bytes], values: Iterable[bytes], most: int, what: str) -> None:
    if _longest(values, f"the content of a {what}") <= most:
        return
    place = next(f"{what} {k.hex()}" for k, v in zip(keys, values, strict=True) if len(v) > most)
    raise LimitExceededError(
        f"{place} is larger than the limit of {most} bytes; split it into several", path=place
    )
