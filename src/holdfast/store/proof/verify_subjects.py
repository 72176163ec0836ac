"""Verifying subjects: cells of their names, tombstones, and the ring beside both."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.seal.subjects import holds_subject, read_subject, says_erased
from holdfast.store.names import rowkinds
from holdfast.store.proof.verify_nodes import DAMAGE

if TYPE_CHECKING:
    from holdfast.store.proof.verify import _Check


def check_subjects(check: _Check) -> None:
    """Check every subject that is there, and that nothing is left of those that are erased."""
    _tombstones(check)
    core, ring = check.core, check.core.ring
    for key, cell in core.subjects.cells():
        place = rowkinds.describe(key)
        if ring is None or len(key) != rowkinds.SUBJECT:
            check.find("unaccounted", place, "nothing accounts for this cell")
            continue
        try:
            named = core.subjects.read(key, cell)
            if named.erasing:
                check.leftovers.cell_of_subject(key, cell, named.id)
                continue
            check.report.subjects += 1
            if read_subject(ring, named.id) is None and core.subjects.cell(key) == cell:
                known = says_erased(ring, named.id)
                message = "the ring says that it is erased" if known else "its key is missing"
                check.find("erasure" if known else "damage", place, message)
        except DAMAGE as error:
            check.find("damage", place, str(error))


def _tombstones(check: _Check) -> None:
    core, ring = check.core, check.core.ring
    low = b"U"
    while page := core.storage.scan(low, rowkinds.after(b"U"), limit=1000):
        for key, row in page:
            place = rowkinds.describe(key)
            if ring is None or len(key) != rowkinds.SUBJECT_TOMBSTONE:
                check.find("unaccounted", place, "nothing accounts for this row")
                continue
            check.report.subjects_erased += 1
            try:
                core.open_row(key, row)
            except DAMAGE as error:
                check.find("damage", place, str(error), row=key)
            if holds_subject(ring, key[1:]):
                check.leftovers.key_of_subject(key)
        low = page[-1][0] + b"\0"
