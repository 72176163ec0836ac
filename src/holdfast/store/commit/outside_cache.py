"""Values from a cache outside of the process: what may lie there, and how that is used.

Only rows with the atoms of values (entries, packs) are asked for there, and only by a reader who
holds the refs of those atoms: an index that came from the engine says by its hashes what they must
be. So neither an old nor a foreign nor a forged row is ever believed; it is read from the engine
instead, and put in its place. Nodes of trees are not kept there: a node says where its children
lie, and no hash covers that, so that a node of another copy of the store could lead astray.

What is sensitive is never put there. A row tells by its seal whether it holds something that was
so when it was written; a reader tells it of the key that is read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from holdfast.errors import DamagedRecordError
from holdfast.seal.sealer import sealed_under
from holdfast.store.commit.meter import CACHE, Meter
from holdfast.store.journal.entry import split_row
from holdfast.store.journal.ledger import Found, Ledger, Wanted

if TYPE_CHECKING:
    from holdfast.storage.redis import RedisCache


class Near:
    """The cache in front of one open store."""

    def __init__(self, cache: RedisCache, meter: Meter) -> None:
        self._cache = cache
        self._meter = meter
        cache.tell = self._tell

    def atoms(self, ledger: Ledger, wanted: Mapping[bytes, Wanted]) -> dict[bytes, list[Found]]:
        """The atoms of those rows that the cache has, and has as they must be."""
        found: dict[bytes, list[Found]] = {}
        rows = self._cache.get(list(wanted))
        if rows is None:
            self._tell("read", "failed", len(wanted))
            return found
        for key, row in rows.items():
            atoms = ledger.named_atoms(key, row, wanted[key])
            if atoms is not None:
                found[key] = atoms
        self._tell("read", "hit", len(found))
        self._tell("read", "wrong", len(rows) - len(found))
        self._tell("read", "miss", len(wanted) - len(rows))
        return found

    def offer(self, ledger: Ledger, rows: Iterable[tuple[bytes, bytes | None]]) -> None:
        """Put rows there that were read from the engine, or committed, if they may lie there."""
        encrypted = ledger.seal.encrypted
        self._cache.put((k, row) for k, row in rows if row and _may_leave(k, row, encrypted))

    def left(self) -> str:
        """What an erase says of the cache: rows that are dropped leave it, but for these."""
        return (
            "rows of it in the cache that could not be reached there, or that another process has "
            f"put there meanwhile: they expire, {self._cache.ttl:g} s after that at the latest"
        )

    def _tell(self, call: str, result: str, count: int) -> None:
        if count:
            self._meter.add(CACHE, (call, result), count=count)


def _may_leave(key: bytes, row: bytes, encrypted: bool) -> bool:
    """Whether it is sure that a row held nothing sensitive when it was written.

    One that did is padded in an encrypted store, and in a plain one not compressed. There, what is
    short or cannot be made shorter is not compressed either, and so is left out with it.
    """
    try:
        start = len(split_row(row)[0].data) if key[:1] == b"E" else 0
        _, packed, quiet = sealed_under(row, start)
    except DamagedRecordError:
        return False  # what cannot be read may hold anything
    return not quiet if encrypted else packed
