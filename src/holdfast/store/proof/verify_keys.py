"""Naming the keys of the newest states that use what is damaged."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from holdfast.store.journal.ledger import Ledger
from holdfast.store.journal.slot import Slot
from holdfast.store.journal.timeline import Timeline
from holdfast.store.proof.verify_nodes import DAMAGE

if TYPE_CHECKING:
    from holdfast.store.proof.verify import _Check

NAMED = 10
"""Keys that the text of a finding names; it has all of them as data."""


def name_keys(
    check: _Check, ledger: Ledger, timelines: list[int], damaged: Callable[[Slot], bool]
) -> None:
    """Add the finding that names the keys of timelines whose slots are damaged."""
    keys = sorted({key for number in timelines for key in _keys(ledger, number, damaged)})
    if keys:
        check.find(
            "damage",
            f"keys of {ledger.scope}",
            f"{len(keys)} keys of the newest state use damaged records: {', '.join(keys[:NAMED])}",
            str(ledger.scope),
            keys,
        )


def _keys(ledger: Ledger, number: int, damaged: Callable[[Slot], bool]) -> Iterator[str]:
    try:
        line = Timeline(ledger, number).load()
        yield from [key for key, slot in line.scan() if damaged(line.settled(slot))]
    except DAMAGE:
        return  # the state itself cannot be read; the findings say why
