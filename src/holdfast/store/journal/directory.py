"""The directory: which scopes there are. A name is known from its scope's row alone.

Its rows lie by name. Entries name scopes by number: those are looked up by reading all of it once,
and then what is new.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING

import msgspec

from holdfast.errors import ScopeNotFoundError, StateIntegrityError
from holdfast.store.journal.tombstones import new_numbers, read_tombstone
from holdfast.store.names import rowkinds
from holdfast.store.names.scope import Scope

if TYPE_CHECKING:
    from holdfast.store.commit.core import Core
    from holdfast.store.journal.ledger import Ledger

ROWS = 500_000
"""Scopes whose directory rows are kept by number."""
NAMES = 20_000
"""Scopes whose names are."""

_decode = msgspec.msgpack.Decoder().decode


Told = Callable[[bytes, StateIntegrityError], None]


def _raised(key: bytes, error: StateIntegrityError) -> None:
    del key
    raise error


def scopes(core: Core, damaged: Told = _raised) -> Iterator[tuple[Scope, int, bytes, int]]:
    """(scope, number, id, time it was made) of every scope that is not deleted.

    A row that is damaged is told to `damaged`, and the others follow; without it, it is raised.
    """
    for key, row in _there(core, damaged):
        try:
            text, number, scope_id, _, made, _ = _decode(core.open_row(key, row))
        except StateIntegrityError as error:
            damaged(key, error)
            continue
        yield Scope.parse(text), number, scope_id, made


def numbered(core: Core) -> Iterator[tuple[int, bytes]]:
    """(number, key of its row or tombstone) of every scope, deleted and erased ones, too, as far as
    the directory can be read."""
    low = b"D"
    while page := core.storage.scan(low, b"E", limit=1000):
        for key, row in page:
            with suppress(StateIntegrityError):
                if rowkinds.state_of(key) == rowkinds.THERE:
                    yield _decode(core.open_row(key, row))[1], key
                elif rowkinds.state_of(key) == rowkinds.ERASED:
                    yield read_tombstone(core, key, row).number, key
        low = page[-1][0] + b"\0"


def made(core: Core, scope: Scope) -> int:
    """The time at which a scope was made; pruning leaves it as it is."""
    tag = core.tag(b"directory", str(scope))
    for key, row in core.storage.scan(
        b"D" + tag, rowkinds.after(b"D" + tag), limit=1, reverse=True
    ):
        if rowkinds.state_of(key) == rowkinds.THERE:
            time: int = _decode(core.open_row(key, row))[4]
            return time
    raise ScopeNotFoundError(f"there is no {scope} any more")


def _there(core: Core, damaged: Told) -> Iterator[tuple[bytes, bytes]]:
    """Rows of the scopes that are not deleted."""
    low, high = b"D", b"E"
    last: tuple[bytes, bytes, int] | None = None
    while page := core.storage.scan(low, high, limit=1000):
        for key, row in page:
            try:
                state = rowkinds.state_of(key)
            except StateIntegrityError as error:
                damaged(key, error)
                continue
            if last is not None and key[1:17] != last[0][1:17] and last[2] == rowkinds.THERE:
                yield last[:2]
            last = (key, row, state)
        low = page[-1][0] + b"\0"
    if last is not None and last[2] == rowkinds.THERE:
        yield last[:2]


class Numbers:
    """What numbers in entries mean, as far as it was asked for. Thread safe."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._lock = threading.RLock()
        self._rows: dict[int, bytes] = {}
        self._names: dict[int, str] = {}
        self._there: set[int] = set()
        """Scopes that are not deleted, as of a state of the feed."""
        self._token: object = None

    def row(self, number: int) -> bytes | None:
        """The key of a scope's directory row (or tombstone), also if it is deleted since."""
        return self._rows.get(number) or self._find([number]).get(number)

    def _find(self, numbers: Iterable[int]) -> dict[int, bytes]:
        """The same of several; the directory is read at most once."""
        with self._lock:
            wanted = set(numbers)
            if not wanted <= self._rows.keys():
                self._rows |= new_numbers(self._core, set(self._rows.values()))
            found = {number: self._rows[number] for number in wanted & self._rows.keys()}
            for number in list(islice(self._rows, max(0, len(self._rows) - ROWS))):
                del self._rows[number]
            return found

    def scopes(self, numbers: Iterable[int]) -> dict[int, str]:
        """Names of scopes; those that are deleted or erased, by whomever, are left out."""
        with self._lock:
            token = self._core.lanes.token()
            if token != self._token:
                self._there.clear()
            self._token = token
            wanted = set(numbers)
            if not wanted <= self._there:
                self._look(wanted - self._there)
            return {number: self._names[number] for number in wanted & self._there}

    def _look(self, numbers: set[int]) -> None:
        """Learn the names of scopes that are there."""
        if len(self._names) > NAMES:
            self._names.clear()
            self._there.clear()
        found = self._find(numbers)
        ends = [
            end
            for key in found.values()
            for end in (rowkinds.deletion(key), rowkinds.tombstone(key))
        ]
        storage = self._core.storage
        ended = {
            key[:21] for key, row in zip(ends, storage.get(ends), strict=True) if row is not None
        }
        there = {number: key for number, key in found.items() if key[:21] not in ended}
        new = [number for number in there if number not in self._names]
        for number, row in zip(new, storage.get([there[n] for n in new]), strict=True):
            if row is not None:
                self._names[number] = _decode(self._core.open_row(there[number], row))[0]
        self._there |= there.keys() & self._names.keys()

    def timeline(self, ledger: Ledger, number: int) -> str | None:
        """The name of a timeline; None if there is none. Only those made since are read."""
        if number == 0:
            return "main"
        if number not in ledger.lines:
            with self._lock:
                last = next(reversed(ledger.lines), 0)
                try:
                    found = self._core.timelines(ledger, last)
                except ScopeNotFoundError:
                    return None  # erased since
                ledger.lines |= {line: name for line, name, _, _ in found}
        return ledger.lines.get(number)
