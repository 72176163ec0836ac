"""The directory rows that end a scope: that it is deleted, or (its tombstone) erased."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec

from holdfast.errors import DamagedRecordError, HoldfastError, KeyMissingError
from holdfast.seal.subjects import says_erased
from holdfast.store.journal.ledger import Ledger, gone
from holdfast.store.names import rowkinds as rows

if TYPE_CHECKING:
    from holdfast.store.commit.core import Core
    from holdfast.store.names.scope import Scope

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder().decode


class Tombstone(msgspec.Struct, array_like=True, frozen=True):
    """All that stays of an erased scope. Its first fields are those of a deletion."""

    number: int
    time: int
    last: int
    """The highest number that any of its entries had."""
    id: bytes


def read_tombstone(core: Core, key: bytes, row: bytes) -> Tombstone:
    """The tombstone in a directory row."""
    plain = core.open_row(key, row)
    try:
        return msgspec.msgpack.decode(plain, type=Tombstone)
    except msgspec.MsgspecError:
        raise DamagedRecordError(f"{rows.describe(key)}: it is no tombstone") from None


def deletion(core: Core, ledger: Ledger, last: int, *, erase: bool) -> tuple[bytes, bytes]:
    """The row that says that a scope is deleted, or erased; `last` is its highest entry."""
    if erase:
        return entomb(core, ledger.tombstone, ledger.number, last, ledger.id)
    key = rows.deletion(ledger.tombstone)
    return key, core.seal_row(key, _encode([ledger.number, core.clock.claimed(), last]))


def entomb(core: Core, key: bytes, number: int, last: int, id: bytes) -> tuple[bytes, bytes]:
    """The row that says that a scope is erased."""
    return key, core.seal_row(key, _encode(Tombstone(number, core.clock.claimed(), last, id)))


def keyless(core: Core, key: bytes, scope: Scope, id: bytes) -> HoldfastError:
    """The error for a scope, of a directory row's key, that the ring has no key for."""
    if core.storage.get([rows.tombstone(key)])[0] is not None:
        return gone(scope)
    if _ring_says_erased(core, id):
        return KeyMissingError(
            f"the ring says that {scope} was erased, and these are files of before that: nobody "
            "can read it any more; erase it here, too"
        )
    return KeyMissingError(
        f"the ring holds no key for {scope}; use the ring that belongs to this store, or a copy of "
        "it, if its file was damaged. If these are files of earlier, the scope may have been "
        "erased since"
    )


def erased_since(core: Core, key: bytes, row: bytes) -> bool:
    """Whether the ring says that the scope of a directory row was erased.

    So it is in a copy of the store's files made before, which has no tombstone of it.
    """
    return _ring_says_erased(core, _decode(core.open_row(key, row))[2])


def _ring_says_erased(core: Core, id: bytes) -> bool:
    return core.ring is not None and says_erased(core.ring, id)


def by_number(core: Core) -> dict[int, tuple[bytes, bytes]]:
    """The directory row of every scope by its number; of an erased one, its tombstone."""
    return {number: (key, row) for number, key, row in _numbered(core, b"D", set())}


def new_numbers(core: Core, seen: set[bytes]) -> dict[int, bytes]:
    """Numbers and keys of directory rows that were not seen before; they are now."""
    return {number: key for number, key, _ in _numbered(core, b"D", seen)}


def erased_ids(core: Core, scope: Scope | None = None) -> set[bytes]:
    """The ids of all scopes that were erased in this store, or of those that bore a name."""
    prefix = b"D" + (core.tag(b"directory", str(scope)) if scope is not None else b"")
    found = _numbered(core, prefix, set())
    return {read_tombstone(core, key, row).id for _, key, row in found if key[21] == rows.ERASED}


def numbers_of(core: Core, scope: Scope) -> set[int]:
    """The numbers of all scopes that have had a name."""
    prefix = b"D" + core.tag(b"directory", str(scope))
    return {number for number, _, _ in _numbered(core, prefix, set())}


def _numbered(core: Core, prefix: bytes, seen: set[bytes]) -> Iterator[tuple[int, bytes, bytes]]:
    low = prefix
    while page := core.storage.scan(low, rows.after(prefix), limit=1000):
        for key, row in page:
            if key in seen or rows.state_of(key) == rows.DELETED:
                continue
            if rows.state_of(key) == rows.THERE:
                yield _decode(core.open_row(key, row))[1], key, row
            else:
                yield read_tombstone(core, key, row).number, key, row
        seen.update(key for key, _ in page)
        low = page[-1][0] + b"\0"
