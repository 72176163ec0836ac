"""Checks of the conformance suite: what versions tell, and which ranges are read."""

from __future__ import annotations

from functools import partial
from typing import Any

from holdfast.errors import InvalidInputError
from holdfast.storage.contract import Batch
from holdfast.testing.conformance_kit import Make, end_of, expect, fresh_prefix, opened, raises


def version_tells_commits(make: Make) -> None:
    """The version changes with every commit of another handle, of any kind, and not by reading."""
    p = fresh_prefix()
    batches = {
        "puts": Batch(puts=[(p, b"1"), (p + b"a", b"1")]),
        "new cells": Batch(cells=[(p, None, b"1")]),
        "swaps": Batch(swaps=[(p, b"1", b"2")]),
        "drops": Batch(drops=[p + b"a"]),
        "cells": Batch(cells=[(p, b"1", b"2")]),
        "removed cells": Batch(cells=[(p, b"2", None)]),
    }
    with opened(make, 2) as (one, two):
        for number, (what, batch) in enumerate(batches.items()):
            writer, other = (one, two) if number % 2 else (two, one)
            before = [one.version(), two.version()]
            one.get([p]), two.scan(p, end_of(p)), one.cells(p, end_of(p)), two.size()
            expect([one.version(), two.version()] == before, "reading changed the version")
            writer.commit(batch)
            moved = other.version() != before[1 if other is two else 0]
            expect(moved, f"a commit of nothing but {what} left the version")


def ranges_are_checked(make: Make) -> None:
    """Bounds that are no bytes, and limits below zero, are refused by name."""
    p = fresh_prefix()
    wrong: list[Any] = [("a", b"b", 1), (b"a", "b", 1), (b"a", None, 1), (p, end_of(p), -1)]
    with opened(make) as (s,):
        s.commit(Batch(puts=[(p, b"1")], cells=[(p, None, b"1")]))
        for read in (s.scan, s.cells):
            expect(read(p, end_of(p), limit=0) == [], "a limit of 0 gives rows")
            expect(read(end_of(p), p) == [], "a range from high to low gives rows")
            for low, high, limit in wrong:
                ask = partial(read, low, high, limit=limit)
                raises(InvalidInputError, ask, "a range that is none is answered")
