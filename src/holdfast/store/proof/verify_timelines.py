"""Verifying the rows that name a scope's timelines.

Nothing commits to such a row but its seal. What it says of where the timeline starts, the entry
that began it says, too; a name stands nowhere else. A timeline whose row is damaged or missing is
looked at like any other: its entries are there.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

from holdfast.errors import DataKeyRemovedError, StateIntegrityError
from holdfast.store.journal import entry
from holdfast.store.journal.ledger import Ledger
from holdfast.store.names import rowkinds
from holdfast.store.proof.verify_nodes import DAMAGE

if TYPE_CHECKING:
    from holdfast.store.commit.core import Core
    from holdfast.store.proof.verify import _Check

MAIN = ("main", 0, 0)
"""What the row of the first timeline says."""
_decode = msgspec.msgpack.Decoder(tuple[str, int, int]).decode


def find_timelines(check: _Check, ledger: Ledger) -> list[int]:
    """Numbers of the timelines that a scope has or must have; what is off with their rows."""
    found: set[int] = set()
    for key, row in _rows(check.core, ledger):
        if len(key) != len(rowkinds.line(b"T", 0, 0)):
            _find(check, ledger, "unaccounted", key, "nothing accounts for this row")
            continue
        number = rowkinds.line_of(key)
        found.add(number)
        try:
            said, begun = _decode(ledger.open_row(key, row)), begun_at(ledger, number)
            if begun is not None and begun != (said[1:] if number else said):
                raise StateIntegrityError("it names another start than its first entry")
        except DataKeyRemovedError:
            raise  # nothing of the scope can be read
        except DAMAGE as error:
            _find(check, ledger, "damage", key, str(error))
        except msgspec.MsgspecError:
            _find(check, ledger, "damage", key, "it cannot be read")
    if 0 not in found:
        _find(check, ledger, "damage", rowkinds.line(b"T", ledger.number, 0), "it is missing")
    for number in sorted(check.feed.named(ledger.number) - found - {0}):
        message = "it is missing, and the feed names entries of this timeline"
        _find(check, ledger, "feed", rowkinds.line(b"T", ledger.number, number), message)
    return sorted(found | check.feed.named(ledger.number) | {0})


def begun_at(ledger: Ledger, number: int) -> tuple[object, ...] | None:
    """What the row of a timeline must say besides its name: where it starts. Of the first one it is
    all that it says; None if the entry that began it cannot be read."""
    if number == 0:
        return MAIN
    key = rowkinds.entry(rowkinds.line(b"E", ledger.number, number), ledger.before + 1)
    with suppress(*DAMAGE):
        op = ledger.open_entry(key, ledger.storage.get([key])[0])[1].ops[0]
        if op[0] == entry.FORK:
            return tuple(op[1:3])
    return None


def readable_timelines(core: Core, ledger: Ledger) -> dict[int, str]:
    """Names of the timelines whose rows can be read; the others were found and named before."""
    found: dict[int, str] = {}
    for key, row in _rows(core, ledger):
        with suppress(*DAMAGE, msgspec.MsgspecError):
            found[rowkinds.line_of(key)] = _decode(ledger.open_row(key, row))[0]
    return found


def _rows(core: Core, ledger: Ledger) -> Iterator[tuple[bytes, bytes]]:
    prefix = low = b"T" + ledger.number.to_bytes(rowkinds.SCOPE, "big")
    while page := core.storage.scan(low, rowkinds.after(prefix), limit=1000):
        yield from page
        low = page[-1][0] + b"\0"


def _find(check: _Check, ledger: Ledger, kind: str, key: bytes, message: str) -> None:
    check.find(kind, rowkinds.describe(key), message, str(ledger.scope), row=key)
