"""Counts what msgpack data would become, without building it.

16 MB of empty arrays become more than 1 GB of objects. The scan reads headers only, skips
over text and bytes, and stops at the first header that goes beyond the bounds, so its cost
is that of the items allowed, not of the bytes given.
"""

from __future__ import annotations

# Bytes a part takes when its first byte alone tells: small ints, nil, bools, numbers, short
# texts, and containers that are empty.
_FIXED = [0] * 256
for _b in range(256):
    if _b < 0x80 or _b >= 0xE0 or _b in (0x80, 0x90, 0xC0, 0xC2, 0xC3):
        _FIXED[_b] = 1
    elif 0xA0 <= _b < 0xC0:
        _FIXED[_b] = _b - 0xA0 + 1
for _b, _n in ((0xCA, 5), (0xCB, 9), (0xCC, 2), (0xCD, 3), (0xCE, 5), (0xCF, 9)):
    _FIXED[_b] = _n
for _b, _n in ((0xD0, 2), (0xD1, 3), (0xD2, 5), (0xD3, 9)):
    _FIXED[_b] = _n

# First byte -> bytes of the length that follows it.
_BLOB = {0xC4: 1, 0xC5: 2, 0xC6: 4, 0xD9: 1, 0xDA: 2, 0xDB: 4}
_EXT = {0xC7: 1, 0xC8: 2, 0xC9: 4}
_FIXED_EXT = {0xD4: 1, 0xD5: 2, 0xD6: 4, 0xD7: 8, 0xD8: 16}
_ARRAY = {0xDC: 2, 0xDD: 4}
_MAP = {0xDE: 2, 0xDF: 4}


class TooMuch(Exception):
    """The data goes beyond a bound; the text says which."""


def check_bounds(data: bytes, depth: int, items: int, nested: int) -> None:
    """Raises `TooMuch` beyond the bounds, ValueError where the data is not msgpack.

    Extensions of kind `nested` hold msgpack themselves and are counted with the rest.
    """
    left = items
    regions = [(0, len(data), 1)]
    while regions:
        start, end, level = regions.pop()
        left = _scan(data, start, end, level, depth, left, nested, regions)


def _scan(
    data: bytes,
    pos: int,
    end: int,
    level: int,
    depth: int,
    left: int,
    nested: int,
    regions: list[tuple[int, int, int]],
) -> int:
    """Reads the one part in data[pos:end]; what is nested in it is added to `regions`."""
    open_: list[int] = []
    parts = 1
    while True:
        if not parts:
            if not open_:
                break
            parts = open_.pop()
            continue
        if pos >= end:
            raise ValueError("cut short")
        parts -= 1
        first = data[pos]
        size = _FIXED[first]
        if size:
            pos += size
            continue
        count, pos, kind = _header(data, pos, first)
        if kind is None:
            pos += count
        elif kind < 0:
            left -= count
            if left < 0:
                raise TooMuch("more items than are allowed")
            if level + len(open_) > depth:
                raise TooMuch(f"more than {depth} levels")
            open_.append(parts)
            parts = -kind * count
        else:
            if kind == nested:
                regions.append((pos, pos + count, level + len(open_)))
            pos += count
    if pos != end:
        raise ValueError("does not end where it should")
    return left


def _header(data: bytes, pos: int, first: int) -> tuple[int, int, int | None]:
    """(length or count, position after the header, kind).

    Kind is None for text and bytes, -1 for an array, -2 for a map, else the extension's code.
    """
    if first & 0xF0 == 0x90:
        return first & 0x0F, pos + 1, -1
    if first & 0xF0 == 0x80:
        return first & 0x0F, pos + 1, -2
    for table, kind in ((_BLOB, None), (_ARRAY, -1), (_MAP, -2)):
        if first in table:
            after = pos + 1 + table[first]
            return int.from_bytes(data[pos + 1 : after], "big"), after, kind
    if first in _FIXED_EXT:
        return _FIXED_EXT[first], pos + 2, _code(data, pos + 1)
    if first in _EXT:
        after = pos + 1 + _EXT[first]
        return int.from_bytes(data[pos + 1 : after], "big"), after + 1, _code(data, after)
    raise ValueError("not msgpack")


def _code(data: bytes, pos: int) -> int:
    # Negative codes are reserved by msgpack and hold no parts: any code that is not ours.
    if pos >= len(data):
        raise ValueError("cut short")
    return data[pos] if data[pos] < 0x80 else 0
