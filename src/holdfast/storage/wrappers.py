"""Storages around a storage, with the same contract: a base for those that change a few of its
calls, and two for tests and measurements. Stack them in any order."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import cast

from holdfast.errors import InvalidInputError, OutcomeUnknown, Unavailable
from holdfast.storage.contract import Batch, Moment, Storage

_FREE = nullcontext()


class Around:
    """Every call is that of the inner storage, made inside of `calling` with its name."""

    def __init__(self, storage: Storage) -> None:
        self.inner = storage
        self.limits = storage.limits

    def calling(self, name: str) -> AbstractContextManager[object]:
        """A block for a call of this name; it may count it, fail it, or tell of its errors."""
        return _FREE

    def get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        with self.calling("get"):
            return self.inner.get(keys)

    def scan(
        self, low: bytes, high: bytes, *, limit: int = 1000, reverse: bool = False
    ) -> list[tuple[bytes, bytes]]:
        with self.calling("scan"):
            return self.inner.scan(low, high, limit=limit, reverse=reverse)

    def cells(self, low: bytes, high: bytes, *, limit: int = 1000) -> list[tuple[bytes, bytes]]:
        with self.calling("cells"):
            return self.inner.cells(low, high, limit=limit)

    def commit(self, batch: Batch) -> None:
        with self.calling("commit"):
            self.inner.commit(batch)

    def version(self) -> object:
        with self.calling("version"):
            return self.inner.version()

    def turn(self, *, durable: bool = True) -> AbstractContextManager[object]:
        with self.calling("turn"):
            return self.inner.turn() if durable else self.inner.turn(durable=False)

    @contextmanager
    def moment(self) -> Iterator[Moment]:
        with self.calling("moment"), self.inner.moment() as moment:
            yield moment

    def size(self) -> int:
        with self.calling("size"):
            return self.inner.size()

    def check(self) -> list[str]:
        with self.calling("check"):
            return self.inner.check()

    def settle(self) -> bool:
        with self.calling("settle"):
            return self.inner.settle()

    def close(self) -> None:
        with self.calling("close"):
            self.inner.close()


class Counting(Around):
    """Counts calls by name, commits that were applied, and the bytes they wrote."""

    def __init__(self, storage: Storage) -> None:
        super().__init__(storage)
        self.calls: Counter[str] = Counter()
        """Calls by name, also those that failed."""
        self.applied = 0
        self.bytes_written = 0
        """Keys and contents of records put and cells set, of applied commits."""
        self._lock = threading.Lock()  # several threads count

    def calling(self, name: str) -> AbstractContextManager[object]:
        with self._lock:
            self.calls[name] += 1
        return _FREE

    def commit(self, batch: Batch) -> None:
        super().commit(batch)
        written = sum(len(key) + len(value) for key, value in batch.puts)
        written += sum(len(key) + len(new) for key, _, new in batch.cells if new is not None)
        written += sum(len(key) + len(new) for key, _, new in batch.swaps)
        with self._lock:
            self.applied += 1
            self.bytes_written += written

    def reset(self) -> None:
        """Start counting again from zero."""
        with self._lock:
            self.calls.clear()
            self.applied = self.bytes_written = 0


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


class Faulty(Around):
    """Fails calls by a plan. `close` never fails, so that tests can clean up."""

    def __init__(self, storage: Storage, plan: Fault | Sequence[Fault] = ()) -> None:
        super().__init__(storage)
        self.plan: tuple[Fault, ...] = (plan,) if isinstance(plan, Fault) else tuple(plan)
        self.calls: Counter[str] = Counter()
        self.failed: list[tuple[str, int, str]] = []
        """What was made to fail: call, its number, mode."""
        self._lock = threading.Lock()  # several threads count

    def calling(self, name: str) -> AbstractContextManager[object]:
        if name != "close" and self._next(name):
            raise Unavailable(f"injected fault: {name} could not be served; try again")
        return _FREE

    def commit(self, batch: Batch) -> None:
        mode = self._next("commit")
        if mode == "before":
            raise Unavailable("injected fault: the commit was not applied; try again")
        if mode != "ambiguous-lost":
            self.inner.commit(batch)
        if mode:
            raise OutcomeUnknown("injected fault: the commit may or may not have been applied")

    @contextmanager
    def moment(self) -> Iterator[Moment]:
        with super().moment() as moment:
            yield _Failing(self, moment)

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


class _Failing(Around):
    """The reads of a moment, which fail as those of the storage do."""

    def __init__(self, faulty: Faulty, moment: Moment) -> None:
        self.inner = cast(Storage, moment)
        self._faulty = faulty

    def calling(self, name: str) -> AbstractContextManager[object]:
        return self._faulty.calling(name)
