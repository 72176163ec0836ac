"""Laying the atoms of an entry into its row and into packs, and nodes of trees into theirs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from holdfast.errors import LimitExceededError
from holdfast.seal.codec import MOST_WHOLE
from holdfast.store.journal.ledger import PACK, Ledger
from holdfast.store.names import rowkinds as rows
from holdfast.store.names.thread_pauses import SHORT, Breath
from holdfast.store.tree import refs
from holdfast.store.tree.split import Atom
from holdfast.store.tree.tree import Node, Place

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


def node_packs(
    ledger: Ledger,
    at: tuple[int, int, int],
    nodes: Iterable[Node],
    places: dict[int, Place],
    *,
    quiet: bool,
) -> Iterator[tuple[bytes, bytes]]:
    """Rows of packs that hold nodes; `places` is told where each of them lies.

    `at` is the timeline, the entry and the number of the first pack.
    """
    timeline, sequence, ordinal = at
    line = rows.line(b"N", ledger.number, timeline)
    pack: list[bytes] = []
    used = 0
    breath = Breath(SHORT)

    def close() -> tuple[bytes, bytes]:
        key = rows.pack(line, sequence, ordinal)
        return key, ledger.seal_row(key, _encode(pack), ledger.commit_pack, quiet=quiet)

    for node in nodes:
        breath()
        data = ledger.trees.pack(node, places)
        if pack and used + len(data) > PACK:
            yield close()
            ordinal, pack, used = ordinal + 1, [], 0
        places[id(node)] = (timeline, sequence, ordinal, len(pack))
        pack.append(data)
        used += len(data)
    if pack:
        yield close()
