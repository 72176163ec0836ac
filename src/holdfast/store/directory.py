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


def scopes(
    core: Core, damaged: Callable[[bytes, Exception], None] | None = None
) -> Iterator[tuple[Scope, int, bytes, int]]:
    """(scope, number, id, time it was made) of every scope that is not deleted.

    A row that is damaged is told to `damaged`, and the others follow; without it, it is raised.
    """
    for key, row in _there(core):
        try:
            text, number, scope_id, _, made, _ = _decode(core.open_row(key, row))
        except StateIntegrityError as error:
            if damaged is None:
                raise
            damaged(key, error)
            continue
        yield Scope.parse(text), number, scope_id, made


def _there(core: Core) -> Iterator[tuple[bytes, bytes]]:
    """Rows of the scopes that are not deleted."""
    low, high = b"D", b"E"
    last: tuple[bytes, bytes] | None = None
    while page := core.storage.scan(low, high, limit=1000):
        for key, row in page:
            if last is not None and key[1:17] != last[0][1:17] and last[0][21] == rows.THERE:
                yield last
            last = (key, row)
        low = page[-1][0] + b"\0"
    if last is not None and last[0][21] == rows.THERE:
        yield last
