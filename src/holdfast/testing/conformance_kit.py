"""What the checks of the conformance suite are made of."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from holdfast.errors import Conflict
from holdfast.storage.contract import MAX_KEY, Batch, Storage

Make = Callable[[], Storage]


class CheckFailedError(AssertionError):
    """The engine does not do what the contract says."""


def expect(holds: bool, reason: str) -> None:
    """Fail the check with this reason unless it holds."""
    if not holds:
        raise CheckFailedError(reason)


def raises(kind: type[Exception], call: Callable[[], object], reason: str) -> Exception:
    """The error of that kind that the call raises; none of it fails the check."""
    try:
        call()
    except kind as error:
        return error
    raise CheckFailedError(f"no {kind.__name__}: {reason}")


@contextmanager
def opened(make: Make, count: int = 1) -> Iterator[list[Storage]]:
    """Handles; those of a shared engine are closed again, others belong to the caller."""
    handles = [make() for _ in range(count)]
    try:
        yield handles
    finally:
        for handle in handles:
            if handle.limits.shared:
                handle.close()


def fresh_prefix() -> bytes:
    """The start of keys that no other check uses."""
    return b"\x01" + secrets.token_bytes(7)


def end_of(prefix: bytes) -> bytes:
    """A key above all keys with this prefix."""
    return prefix + b"\xff" * (MAX_KEY - len(prefix))


def race(calls: list[Callable[[], None]]) -> list[Exception | None]:
    """Run the calls at one moment, each in a thread; what each of them raised."""
    start = threading.Barrier(len(calls))
    results: list[Exception | None] = [None] * len(calls)

    def run(number: int) -> None:
        start.wait()
        try:
            calls[number]()
        except Exception as error:
            results[number] = error

    threads = [threading.Thread(target=run, args=(number,)) for number in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def only_conflicts(results: list[Exception | None]) -> int:
    """How many calls succeeded; anything but a conflict is a failure of the check."""
    for result in results:
        if result is not None and not isinstance(result, Conflict):
            raise result
    return results.count(None)


def commits(handles: list[Storage], batches: list[Batch]) -> list[Callable[[], None]]:
    """Calls that commit each batch on its handle."""
    pairs = zip(handles, batches, strict=True)
    return [lambda s=s, b=b: s.commit(b) for s, b in pairs]  # type: ignore[misc]


def fail_in_turn(s: Storage) -> None:
    """Raise KeyError inside a turn."""
    with s.turn():
        raise KeyError


def all_keys(s: Storage, prefix: bytes, limit: int) -> list[bytes]:
    """All keys under a prefix, read page by page."""
    found: list[bytes] = []
    low = prefix
    while rows := s.scan(low, end_of(prefix), limit=limit):
        found += [key for key, _ in rows]
        low = found[-1] + b"\x00"
    return found
