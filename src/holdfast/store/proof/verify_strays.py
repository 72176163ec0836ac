"""Verifying that every row belongs somewhere: to a scope and a timeline that there are.

Only the first row of each is looked for, so that it costs little; what belongs to a timeline is
accounted for where that is read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.store.names import rowkinds
from holdfast.store.proof.verify_timelines import readable_timelines
from holdfast.store.proof.verify_uploads import is_pinned

if TYPE_CHECKING:
    from holdfast.store.journal.ledger import Ledger
    from holdfast.store.proof.verify import _Check

_OF_TIMELINE = (b"E", b"V", b"S", b"N", b"C", b"A", b"B")
_WITH_UPLOADS = (b"V", b"N")


def check_kinds(check: _Check) -> None:
    """Find rows of kinds that there are not."""
    for kind in (b"G", b"H", b"J", b"L", b"M", b"O", b"P", b"Q"):
        for key, _ in check.core.storage.scan(kind, rowkinds.after(kind), limit=100):
            if key != b"Mstore":
                check.find("unaccounted", rowkinds.describe(key), "nothing accounts for this row")
    for low, high in ((b"", b"A"), (b"W", b"\xff" * 64)):
        for key, _ in check.core.storage.scan(low, high, limit=100):
            check.find("unaccounted", rowkinds.describe(key), "nothing accounts for this row")


def check_scopes(check: _Check, kind: bytes) -> None:
    """Find rows of scopes that the directory does not name."""
    low = kind
    while found := check.core.storage.scan(low, rowkinds.after(kind), limit=1):
        key = found[0][0]
        if len(key) < len(kind) + rowkinds.SCOPE:
            check.find(
                "unaccounted", rowkinds.describe(key), "nothing accounts for this row", row=key
            )
            low = key + b"\0"
            continue
        number = rowkinds.scope_of(key)
        if number in check.directory.erased or not is_pinned(check.core.storage, number):
            check.directory.stray(key, number, "it belongs to no scope")
        low = rowkinds.after(key[:7])


def check_timelines(check: _Check, ledger: Ledger, known: set[int]) -> None:
    """Find rows of timelines that a scope does not have, or of none."""
    for kind in _OF_TIMELINE:
        prefix = low = kind + ledger.number.to_bytes(rowkinds.SCOPE, "big")
        while found := check.core.storage.scan(low, rowkinds.after(prefix), limit=1):
            key = found[0][0]
            line, least = rowkinds.line_of(key), rowkinds.LENGTHS.get(kind, 10)
            if len(key) < least or (kind == b"E" and rowkinds.sequence_of(key) <= ledger.before):
                _find(check, ledger, key, "nothing accounts for this row")
                low = key + b"\0"
                continue
            if line == rowkinds.UPLOADS and kind in _WITH_UPLOADS:
                break  # the last one
            if line not in known:
                known = known | _now(check, ledger)
            if line not in known:
                _find(check, ledger, key, "it belongs to no timeline")
            low = rowkinds.after(key[:9])


def _now(check: _Check, ledger: Ledger) -> set[int]:
    """The timelines as of this moment: one may have been forked since they were listed."""
    return set(readable_timelines(check.core, ledger))


def _find(check: _Check, ledger: Ledger, key: bytes, message: str) -> None:
    check.find("unaccounted", rowkinds.describe(key), message, str(ledger.scope), row=key)
