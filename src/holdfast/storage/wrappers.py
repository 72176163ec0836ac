"""A storage around another one, as a base for those that change a few of its calls."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass

from holdfast.errors import InvalidInputError, OutcomeUnknown, Unavailable
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


# ---- faults -------------------------------------------------------------------------------------
# Wrappers: storages around a storage, with the same contract.
#
# They are for tests and measurements; stack them in any order.


MODES = ("before", "ambiguous-applied", "ambiguous-lost")
CALLS = (
    "get",
    "scan",
    "cells",
    "commit",
    "version",
    "turn",
    "moment",
    "size",
    "check",
    "settle",
    "*",
)


class Counting:
    """Counts calls by name, commits that were applied, and the bytes they wrote."""

    def __init__(self, storage: Storage) -> None:
        self.inner = storage
        self.limits = storage.limits
        self.calls: Counter[str] = Counter()
        """Calls by name, also those that failed."""
        self.applied = 0
        self.bytes_written = 0
        """Keys and contents of records put and cells set, of applied commits."""
        self._lock = threading.Lock()

    def get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        self._count("get")
        return self.inner.get(keys)

    def scan(
        self, low: bytes, high: bytes, *, limit: int = 1000, reverse: bool = False
    ) -> list[tuple[bytes, bytes]]:
        self._count("scan")
        return self.inner.scan(low, high, limit=limit, reverse=reverse)

    def cells(self, low: bytes, high: bytes, *, limit: int = 1000) -> list[tuple[bytes, bytes]]:
        self._count("cells")
        return self.inner.cells(low, high, limit=limit)

    def commit(self, batch: Batch) -> None:
        self._count("commit")
        self.inner.commit(batch)
        written = sum(len(key) + len(value) for key, value in batch.puts)
        written += sum(len(key) + len(new) for key, _, new in batch.cells if new is not None)
        written += sum(len(key) + len(new) for key, _, new in batch.swaps)
        with self._lock:
            self.applied += 1
            self.bytes_written += written

    def version(self) -> object:
        self._count("version")
        return self.inner.version()

    def turn(self) -> AbstractContextManager[object]:
        self._count("turn")
        return self.inner.turn()

    def moment(self) -> AbstractContextManager[Moment]:
        self._count("moment")
        return self.inner.moment()

    def size(self) -> int:
        self._count("size")
        return self.inner.size()

    def check(self) -> list[str]:
        self._count("check")
        return self.inner.check()

    def settle(self) -> bool:
        self._count("settle")
        return self.inner.settle()

    def close(self) -> None:
        self._count("close")
        self.inner.close()

    def reset(self) -> None:
        """Start counting again from zero."""
        with self._lock:
            self.calls.clear()
            self.applied = self.bytes_written = 0

    def _count(self, name: str) -> None:
        with self._lock:
            self.calls[name] += 1


@dataclass(frozen=True, slots=True)
class Fault:
    """Which call fails, and how.

    The `nth` call of that name (from 1; "*" counts calls of every name) fails, and with
    `onward` every later one too. `before`: not applied, `Unavailable`. `ambiguous-applied`:
    applied, then `OutcomeUnknown`. `ambiguous-lost`: not applied, `OutcomeUnknown`. Calls
    that only read fail with `Unavailable` in every mode.
    """

    call: str = "commit"
    nth: int = 1
    mode: str = "before"
    onward: bool = False

    def __post_init__(self) -> None:
        if self.mode not in MODES or self.call not in CALLS or self.nth < 1:
            raise InvalidInputError(
                f"a fault has nth >= 1, a mode of {MODES} and a call of {CALLS}"
            )


class Faulty:
    """Fails calls by a plan. `close` never fails, so that tests can clean up."""

    def __init__(self, storage: Storage, plan: Fault | Sequence[Fault] = ()) -> None:
        self.inner = storage
        self.limits = storage.limits
        self.plan: tuple[Fault, ...] = (plan,) if isinstance(plan, Fault) else tuple(plan)
        self.calls: Counter[str] = Counter()
        self.failed: list[tuple[str, int, str]] = []
        """What was made to fail: call, its number, mode."""
        self._lock = threading.Lock()

    def get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        self._read("get")
        return self.inner.get(keys)

    def scan(
        self, low: bytes, high: bytes, *, limit: int = 1000, reverse: bool = False
    ) -> list[tuple[bytes, bytes]]:
        self._read("scan")
        return self.inner.scan(low, high, limit=limit, reverse=reverse)

    def cells(self, low: bytes, high: bytes, *, limit: int = 1000) -> list[tuple[bytes, bytes]]:
        self._read("cells")
        return self.inner.cells(low, high, limit=limit)

    def commit(self, batch: Batch) -> None:
        mode = self._next("commit")
        if mode == "before":
            raise Unavailable("injected fault: the commit was not applied; try again")
        if mode != "ambiguous-lost":
            self.inner.commit(batch)
        if mode:
            raise OutcomeUnknown("injected fault: the commit may or may not have been applied")

    def version(self) -> object:
        self._read("version")
        return self.inner.version()

    @contextmanager
    def turn(self) -> Iterator[None]:
        self._read("turn")
        with self.inner.turn():
            yield

    @contextmanager
    def moment(self) -> Iterator[Moment]:
        self._read("moment")
        with self.inner.moment() as moment:
            yield _Failing(self, moment)

    def size(self) -> int:
        self._read("size")
        return self.inner.size()

    def check(self) -> list[str]:
        self._read("check")
        return self.inner.check()

    def settle(self) -> bool:
        self._read("settle")
        return self.inner.settle()

    def close(self) -> None:
        self.inner.close()

    def _read(self, call: str) -> None:
        if self._next(call):
            raise Unavailable(f"injected fault: {call} could not be served; try again")

    def _next(self, call: str) -> str:
        """Count the call; the mode in which it fails, "" if it does not."""
        with self._lock:
            self.calls[call] += 1
            self.calls["*"] += 1
            for fault in self.plan:
                number = self.calls[fault.call]
                hit = fault.call in (call, "*") and (
                    number == fault.nth or (fault.onward and number > fault.nth)
                )
                if hit:
                    self.failed.append((call, number, fault.mode))
                    return fault.mode
        return ""


class _Failing:
    """The reads of a moment, which fail as those of the storage do."""

    def __init__(self, faulty: Faulty, moment: Moment) -> None:
        self._faulty = faulty
        self._moment = moment

    def scan(
        self, low: bytes, high: bytes, *, limit: int = 1000, reverse: bool = False
    ) -> list[tuple[bytes, bytes]]:
        self._faulty._read("scan")
        return self._moment.scan(low, high, limit=limit, reverse=reverse)

    def cells(self, low: bytes, high: bytes, *, limit: int = 1000) -> list[tuple[bytes, bytes]]:
        self._faulty._read("cells")
        return self._moment.cells(low, high, limit=limit)
