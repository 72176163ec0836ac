"""Which entries of a timeline its newest state comes from.

A restore leaves a stretch behind: the entries after the point it returned to, up to itself. Whoever
asks for the newest good state does not mean one that was left on purpose. A restore that returns
into such a stretch takes it up again. An import leaves nothing: its timeline begins empty, so what
was before it is what there was, and no state that somebody returned from.
"""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.errors import MissingError, StateIntegrityError
from holdfast.store.inner import BEFORE, Ledger, LineHandle, read_save
from holdfast.store.names import rowkinds


class Lineage:
    """The stretches of a timeline that its newest state, or that at an entry, comes from."""

    def __init__(self, handle: LineHandle, at: int | None = None) -> None:
        self._stretches = list(_stretches(handle, at))

    def __contains__(self, sequence: int) -> bool:
        return any(low <= sequence <= high for low, high in self._stretches)


def _stretches(handle: LineHandle, at: int | None) -> Iterator[tuple[int, int]]:
    """First and last entry of each, the newest first; also if the newest state is damaged.

    Where a restore cannot be read any more, nobody knows what it left: nothing, then.
    """
    line = handle.history.points.line()
    ledger = line.ledger
    timeline, last = line.number, line.sequence if at is None else at
    while last > ledger.before:
        try:
            origin = _origin(ledger, timeline, last)
            first = origin
            key = rowkinds.entry(rowkinds.line(b"E", ledger.number, timeline), origin)
            came = (
                ledger.open_entry(key, ledger.storage.get([key])[0])[1].ops[0] if origin else None
            )
        except (MissingError, StateIntegrityError):
            first, came = 0, None
        own = timeline == line.number
        if own:
            yield first, last
            before = first - 1
        if came is None:
            return
        timeline, last = came[1], came[2]
        if last <= ledger.before and not own:  # it came from outside
            timeline, last = line.number, before


def _origin(ledger: Ledger, timeline: int, sequence: int) -> int:
    """The newest restore or fork up to an entry, which the index saved last names; 0 if none."""
    line = rowkinds.line(b"S", ledger.number, timeline)
    low, high = rowkinds.entry(line, 0), rowkinds.entry(line, sequence) + b"\0"
    for key, row in ledger.storage.scan(low, high, limit=1, reverse=True):
        save = read_save(ledger.open_row(key, row))
        return rowkinds.sequence_of(key) if save.kind == BEFORE else save.origin
    return 0
