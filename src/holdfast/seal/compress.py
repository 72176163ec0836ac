"""Compression of one record, never across records.

Small records go to lz4 (its 2 us beat zstd's set-up); larger ones, and those of which lz4 leaves
over two thirds, to zstd level 1: short texts repeat little, which is all that lz4 can use, but
their letters are not evenly frequent. What does not become at least a tenth smaller stays as it
is. A record's length tells about its content.
"""

from __future__ import annotations

import threading

import lz4.block
import zstandard

from holdfast.errors import DamagedRecordError, FormatError

NONE, LZ4, ZSTD, PADDED = 0, 1, 2, 3
NAMES = {"none": NONE, "lz4": LZ4, "zstd": ZSTD, "padded": PADDED}
BLOCK = 256
"""A padded record has a multiple of this length."""

SMALLEST = 200
"""Shorter ones are left as they are: they hardly get shorter, and there are many."""
LZ4_UP_TO = 16 * 1024
"""Longer ones take zstd at once: they are rare, and what it saves counts more than its time."""
MAX_PLAIN = 256 << 20
"""Largest length that is ever believed, whatever a header says."""

# What the formats can at most achieve; a header that promises more lies.
_MOST = {LZ4: 256, ZSTD: 32_768}


def squeeze(data: bytes, wanted: int | None = None) -> tuple[int, bytes]:
    """(method, bytes): compressed if it saves a tenth, else the data itself with method 0.

    The method follows from the length and what lz4 leaves of it, unless one is wanted.
    """
    length = len(data)
    if length < SMALLEST or wanted == NONE:
        return NONE, data
    method, small = NONE, data
    if wanted == LZ4 or (wanted is None and length <= LZ4_UP_TO):
        method, small = LZ4, lz4.block.compress(data, store_size=False)
    if wanted == ZSTD or (wanted is None and len(small) * 3 > length * 2):
        method, small = ZSTD, _local.compressor.compress(data)
    if len(small) * 10 > length * 9:
        return NONE, data
    return method, small


def pad(data: bytes) -> bytes:
    """Data of a length that tells little about it: a mark, and then zeros."""
    return data + b"\x80" + bytes(-(len(data) + 1) % BLOCK)


def expand(method: int, data: bytes, plain_length: int) -> bytes:
    """What `squeeze` was given; never more than `plain_length` bytes are made.

    Raises `DamagedRecordError` if the data does not give exactly that length, `FormatError` if
    the method is not known to this version.
    """
    if method == NONE:
        plain = data
    elif method == PADDED:
        plain = data.rstrip(b"\0")
        if len(data) != plain_length or plain[-1:] != b"\x80":
            raise DamagedRecordError("a padded record does not have the length or end it should")
        return plain[:-1]
    elif method not in _MOST:
        raise FormatError(
            f"a record is compressed with method {method}, which this version does not know; "
            "update holdfast"
        )
    elif plain_length > min(MAX_PLAIN, _MOST[method] * (len(data) + 1)):
        raise DamagedRecordError("a compressed record claims an impossible length")
    else:
        try:
            if method == LZ4:
                plain = bytes(lz4.block.decompress(data, uncompressed_size=plain_length))
            # The library believes the frame's own size and ignores max_output_size: look first.
            elif zstandard.frame_content_size(data) != plain_length:
                raise DamagedRecordError("a compressed record states another length than its head")
            else:
                plain = bytes(_local.decompressor.decompress(data, allow_extra_data=False))
        except (lz4.block.LZ4BlockError, zstandard.ZstdError, ValueError, OverflowError):
            raise DamagedRecordError("a compressed record cannot be expanded") from None
    if len(plain) != plain_length:
        raise DamagedRecordError("a record does not have the length that its header states")
    return plain


class _Local(threading.local):
    """Of each thread: these objects may not be used by two at once."""

    def __init__(self) -> None:
        self.compressor = zstandard.ZstdCompressor(level=1, write_content_size=True)
        self.decompressor = zstandard.ZstdDecompressor()


_local = _Local()
