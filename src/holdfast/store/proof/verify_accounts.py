"""Verifying the rows that lead from a change's id, or a correlation, to entries."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from holdfast.store.commit.outcome import Outcome, id_tag
from holdfast.store.journal import entry
from holdfast.store.journal.entry import Body
from holdfast.store.journal.floor import NO_FLOOR
from holdfast.store.names import rowkinds
from holdfast.store.proof.verify_timelines import readable_timelines
from holdfast.store.upkeep.dependencies import check_noted

if TYPE_CHECKING:
    from holdfast.store.journal.ledger import Ledger
    from holdfast.store.proof.verify import _Check


class Accounts:
    """Looks up every row that the entries call for, and counts them.

    If all are there and no more are stored than were called for, nothing was added either.
    """

    def __init__(self, check: _Check) -> None:
        self._check = check
        self._wanted: dict[bytes, tuple[str, str]] = {}
        """Rows that entries call for: what is said if one is missing, and of which scope."""
        self._block: tuple[int, int, int] = (0, 0, -1)
        self._correlations: set[str] = set()
        self.ids = 0
        self.epochs = 0
        self.stored_epochs = 0
        self.correlations = 0
        self._lines: dict[tuple[str, str], list[tuple[int, int, int]]] | None = None
        """(number before the first entry, scope, timeline) for each that has had a name."""

    def note(self, ledger: Ledger, line: int, sequence: int, body: Body) -> None:
        """Take what an entry calls for into account."""
        if line == 0 and body.ops and body.ops[0][0] == entry.REKEY:
            key = rowkinds.epoch(ledger.number, body.ops[0][1])
            message = "it is missing: a fork could rest on a key that is gone"
            self._wanted[key] = message, str(ledger.scope)
            self.epochs += 1
        check_noted(self._check, ledger, line, sequence, body)
        if body.change is not None:
            self._id(ledger, line, sequence, body)
        if body.cause is not None and body.cause.correlation is not None:
            self._correlation(ledger, line, sequence, body.cause.correlation)

    def _id(self, ledger: Ledger, line: int, sequence: int, body: Body) -> None:
        assert body.change is not None
        alone = not body.also and not body.reads
        tag = id_tag(self._check.core, ledger if alone else None, body.change)
        message = "it is missing: its change could be applied once more"
        self._wanted[rowkinds.change(tag)] = message, ""
        # Of the entries of one change, the first by number that is not erased stands for it.
        others = [other for other in body.also if other[0] not in self._check.directory.erased]
        stands = all((ledger.number, line) <= other[:2] for other in others)
        self.ids += stands and not self._is_pruned(ledger.number, line, sequence)

    def _correlation(self, ledger: Ledger, line: int, sequence: int, correlation: str) -> None:
        scope = ledger.number
        block = (scope, line, sequence // rowkinds.BLOCK)
        if block != self._block:
            self._block, self._correlations = block, set()
        if correlation in self._correlations:
            return
        self._correlations.add(correlation)
        self.correlations += self.counts_block(scope, line, block[2])
        tag = self._check.core.tag(b"correlation", correlation)
        key = rowkinds.correlation(tag, scope, line, sequence)
        message = "it is missing: entries of a correlation would not be found"
        self._wanted[key] = message, str(ledger.scope)

    def _is_pruned(self, scope: int, line: int, sequence: int) -> bool:
        return sequence <= self._check.floors.get((scope, line), NO_FLOOR).sequence

    def counts_block(self, scope: int, line: int, block: int) -> bool:
        """Whether all entries of a block can say which correlations they have."""
        return not self._is_pruned(scope, line, max(block * rowkinds.BLOCK, 1))

    def of_pruned(self, plain: bytes) -> bool:
        """Whether the entry that stands for a change with an id is pruned."""
        if not any(floor.sequence for floor in self._check.floors.values()):
            return False
        if self._lines is None:
            self._lines = {}
            for ledger in self._check.directory.ledgers:
                for number, name in readable_timelines(self._check.core, ledger).items():
                    named = self._lines.setdefault((str(ledger.scope), name), [])
                    named.append((ledger.before, ledger.number, number))
        found: list[tuple[int, int, int]] = []
        for scope, name, sequence, *_ in Outcome(*msgspec.msgpack.decode(plain)).places:
            lives = [life for life in self._lines.get((scope, name), ()) if life[0] < sequence]
            if lives:
                found.append((*max(lives)[1:], sequence))
        return bool(found) and self._is_pruned(*min(found))

    def forget(self) -> None:
        """The scope that calls for what was not looked up yet has been erased."""
        self._wanted = {}

    def settle(self) -> None:
        """Look up what was called for since the last time."""
        wanted, self._wanted = self._wanted, {}
        keys = list(wanted)
        for start in range(0, len(keys), 1000):
            page = keys[start : start + 1000]
            for key, row in zip(page, self._check.core.storage.get(page), strict=True):
                if row is None:
                    self._check.find("damage", rowkinds.describe(key), *wanted[key], row=key)

    def compare(self, kind: bytes, stored: int, called: int) -> None:
        """Compare the number of rows with what was called for, if all entries were read."""
        report = self._check.report
        if report.findings or report.unswept or stored == called:
            return
        if self._check.leftovers:
            return  # what is left of the erased, or is just being dropped
        if stored > called and report.losses:
            return  # those of entries that are lost stay: a change with an id is applied once
        if stored > called and self._check.feed.moved():
            return  # rows of entries that were written since
        if not self._check.directory.erased_meanwhile():
            what = rowkinds.describe(kind)
            message = f"{stored} are stored, the entries call for {called}"
            self._check.find("unaccounted", what, message)
