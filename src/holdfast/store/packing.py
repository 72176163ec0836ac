"""Laying the atoms of an entry into its row and into packs."""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.errors import LimitExceededError
from holdfast.seal.codec import MOST_WHOLE
from holdfast.store import refs, rows
from holdfast.store.ledger import PACK, Ledger
from holdfast.store.splitting import Atom

MOST_ATOM = MOST_WHOLE + 64
"""Most bytes of an encoded part, with what stands before its content."""
_encode = msgspec.msgpack.Encoder().encode


class Packer:
    """Lays the atoms of an entry into its row and, once that is full, into packs."""

    def __init__(self, ledger: Ledger, timeline: int, sequence: int) -> None:
        self.ledger = ledger
        self.at = (timeline, sequence)
        self.packs: list[list[bytes]] = [[]]
        self.used = 0
        self.laid: list[tuple[Any, bytes, bytes]] = []
        self.quiet = False
        """Whether the entry holds something sensitive: then its rows are not compressed."""

    def lay(self, atom: Atom) -> tuple[bytes, Any]:
        """(ref, place) of an atom in this entry."""
        data = atom.data(self.ledger.codec)
        size = len(data)
        if size > MOST_ATOM:
            raise LimitExceededError(
                f"{self.ledger.scope}: a part of a value takes {size} bytes, and an object around "
                f"an object, which is kept whole, at most {MOST_WHOLE}; split it"
            )
        if self.used + size > PACK and (self.packs[-1] or len(self.packs) == 1):
            self.packs.append([])
            self.used = 0
        self.used += size
        pack = self.packs[-1]
        pack.append(data)
        if size <= refs.INLINE:
            return atom.ref, None
        place = (*self.at, len(self.packs) - 1, len(pack) - 1)
        self.laid.append((place, atom.ref, data))
        return atom.ref, place

    def rows(self) -> tuple[list[tuple[bytes, bytes]], list[bytes]]:
        """Rows of the packs, and the commitments that the entry names."""
        if len(self.packs) == 1:
            return [], []
        ledger = self.ledger
        line = rows.line(b"V", ledger.number, self.at[0])
        made: list[tuple[bytes, bytes]] = []
        commitments: list[bytes] = []
        for ordinal, pack in enumerate(self.packs[1:], 1):
            key = rows.pack(line, self.at[1], ordinal)
            plain = _encode(pack)
            commitments.append(ledger.commit_pack(plain))
            row = ledger.seal.seal(ledger.ad(key), plain, commitments[-1], quiet=self.quiet)
            made.append((key, row))
        return made, commitments
