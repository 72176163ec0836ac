"""How large values may be."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.errors import InvalidInputError

DEEPEST = 400
"""Levels that can be kept: two calls for each fit on Python's stack, beside those of the caller."""


@dataclass(frozen=True)
class ValueLimits:
    """How large one value may be: nesting, parts in all containers together, encoded bytes.

    They hold for what one call writes. What is stored is read whatever they are: reading is bounded
    by the usual numbers of items and bytes, or by larger ones that are given, and by as many levels
    as can be kept. Only bytes beyond `size` are read in pieces, with `open_read`.
    """

    depth: int = 256
    """At most 400: a value is walked by calls, and Python's stack ends at 1,000 of them."""
    items: int = 1_000_000
    size: int = 256 << 20
    long: int = 1 << 38
    """Bytes of a value that is written with `open_write` or `put_file`; more than these 256 GiB
    cannot be given."""

    def __post_init__(self) -> None:
        for name in ("depth", "items", "size", "long"):
            value = getattr(self, name)
            if type(value) is not int or value < 1:
                raise InvalidInputError(f"the limit {name} is a number of at least 1")
        if self.depth > DEEPEST:
            raise InvalidInputError(f"the limit depth is at most {DEEPEST}: Python's stack ends")
        if self.long > 1 << 38:
            raise InvalidInputError("the limit long is at most 256 GiB: packs have short numbers")

    def to_read(self) -> ValueLimits:
        """What bounds reading: these, but none that is smaller than the usual one."""
        usual = ValueLimits()
        return ValueLimits(DEEPEST, max(self.items, usual.items), max(self.size, usual.size))
