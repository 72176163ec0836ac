"""Where long text and bytes are cut into chunks.

A cut follows from the few bytes before it, so that an insertion moves the chunks that it touches
and leaves the others as they were. It is keyed, so that the lengths of sealed chunks do not
fingerprint known content.

What is wanted is a hash of every window of some 32 bytes, of low entropy as text has it, at the
speed of C. Multiplying the bytes, read as one long number, by a secret number of sixteen bytes
gives each byte a keyed sum of the sixteen before it; doing so twice with a secret substitution
before each gives a window of 32 that no regularity of the content survives. (A pattern of byte
classes, found by a regular expression, took longer and left most of a plain English text uncut.)
"""

from __future__ import annotations

import hashlib
import re

LEAST, MOST = 4 * 1024, 32 * 1024
"""Bytes of a chunk; the last one may be shorter."""
_BLOCK = 4 * 1024
_BEFORE = 64
"""Bytes read before a block. More than the window, because carries come from further back; one
that would come from beyond is rare and merely moves a cut."""
_CUT = re.compile(rb"\x00[\x00-\x0f]", re.DOTALL)
"""One place in 4,096."""


class Cutter:
    """Finds the cuts of one scope."""

    def __init__(self, key: bytes) -> None:
        self._rounds = [_round(key, number) for number in range(2)]

    def end(self, data: bytes, start: int) -> int:
        """Where the chunk that begins at `start` ends. Looks at most `MOST` bytes ahead."""
        last = min(start + MOST, len(data))
        for block in range(start + LEAST, last, _BLOCK):
            mixed = self._mix(data[block - _BEFORE : min(block + _BLOCK, last)])
            found = _CUT.search(mixed, _BEFORE)
            if found:
                return block - _BEFORE + found.end()
        return last

    def _mix(self, data: bytes) -> bytes:
        size = len(data)
        for box, factor in self._rounds:
            product = int.from_bytes(data.translate(box), "little") * factor
            data = product.to_bytes(size + 16, "little")[:size]
        return data


def _round(key: bytes, number: int) -> tuple[bytes, int]:
    """A substitution of bytes and an odd factor of sixteen bytes."""
    secret = hashlib.shake_256(key + bytes([number])).digest(16 + 4 * 256)
    order = sorted(range(256), key=lambda byte: (secret[16 + 4 * byte : 20 + 4 * byte], byte))
    return bytes(order), int.from_bytes(secret[:16], "little") | 1
