"""The directory: which scopes there are. A name is known from its scope's row alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import msgspec

from holdfast.errors import StateIntegrityError
from holdfast.store import rows
from holdfast.store.scopes import Scope

if TYPE_CHECKING:
    from holdfast.store.core import Core

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


def _there(core: Core, damaged: Told) -> Iterator[tuple[bytes, bytes]]:
    """Rows of the scopes that are not deleted."""
    low, high = b"D", b"E"
    last: tuple[bytes, bytes, int] | None = None
    while page := core.storage.scan(low, high, limit=1000):
        for key, row in page:
            try:
                state = rows.state_of(key)
            except StateIntegrityError as error:
                damaged(key, error)
                continue
            if last is not None and key[1:17] != last[0][1:17] and last[2] == rows.THERE:
                yield last[:2]
            last = (key, row, state)
        low = page[-1][0] + b"\0"
    if last is not None and last[2] == rows.THERE:
        yield last[:2]
