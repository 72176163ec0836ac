"""Verifying a timeline below its floor: the chain is whole, and nothing that is kept is missing.

Below the floor that an anchor announces, entries may be envelopes alone, and packs, saves and
nodes may be gone. What is there must be itself; and every state that is kept is read whole, down
to its values and the entries that wrote its keys. So what was dropped by somebody else is found,
unless nothing that can still be asked for rests on it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.errors import StateIntegrityError
from holdfast.store.journal import entry as entries
from holdfast.store.journal.entry import Body
from holdfast.store.journal.floor import (
    NO_FLOOR,
    Floor,
    anchored_floor,
    floor_of,
    newest_anchor_row,
    read_base,
)
from holdfast.store.journal.save import Save
from holdfast.store.names import rowkinds as rows
from holdfast.store.proof.verify_nodes import DAMAGE, damaged_row
from holdfast.store.read.state_check import check_values
from holdfast.store.upkeep.losses import told
from holdfast.store.upkeep.mark import Marks

if TYPE_CHECKING:
    from holdfast.store.journal.ledger import Ledger
    from holdfast.store.proof.verify import _Check
    from holdfast.store.proof.verify_line import LineCheck

PAGE = 500


def find_floors(check: _Check, ledger: Ledger, lines: list[int]) -> dict[int, Floor]:
    """The floors of a scope's timelines; of rows that lead to none, only leftovers may be there."""
    found: dict[int, Floor] = {}
    for number in lines:
        floor = NO_FLOOR
        try:
            floor = anchored_floor(ledger, number)
        except DAMAGE as error:
            key = damaged_row(error, newest_anchor_row(ledger, number))
            check.find("damage", rows.describe(key), str(error), str(ledger.scope), row=key)
            floor = floor_of(ledger, number)
        found[number] = check.floors[(ledger.number, number)] = floor
    check.swept = _is_pruned_now(check, ledger)
    if check.swept:
        check.report.pruning += 1
        return found
    for kind in (b"A", b"B"):
        prefix = low = kind + ledger.number.to_bytes(rows.SCOPE, "big")
        while page := check.core.storage.scan(low, rows.after(prefix), limit=1000):
            for key, _ in page:
                floor = found.get(rows.line_of(key), NO_FLOOR)
                named = (
                    rows.sequence_of(key) in floor.bases
                    if kind == b"B"
                    else floor.number and key[9:] == floor.number.to_bytes(4, "big")
                )
                if not named:
                    scope, what = str(ledger.scope), "no anchor names it"
                    check.find("unaccounted", rows.describe(key), what, scope, row=key)
            low = page[-1][0] + b"\0"
    return found


def pruned_meanwhile(check: _Check, ledger: Ledger) -> bool:
    """Whether a scope was, or may have been, pruned since its floors were read."""
    mine = {line: floor for (scope, line), floor in check.floors.items() if scope == ledger.number}
    try:
        moved = any(floor_of(ledger, line).number != mine[line].number for line in mine)
    except DAMAGE:
        return False  # found and named
    return moved or check.swept or _is_pruned_now(check, ledger)


def _is_pruned_now(check: _Check, ledger: Ledger) -> bool:
    """Whether somebody prunes a scope, or was cut short."""
    cell = rows.pruner(ledger.number)
    return bool(check.core.storage.cells(cell, cell + b"\0", limit=1))


class FloorCheck:
    """What is left of a timeline up to its floor."""

    def __init__(self, line: LineCheck, floor: Floor) -> None:
        self.line = line
        self.floor = floor
        self.ledger = line.ledger
        self.missing: set[int] = set()
        """Entries whose bodies are gone."""
        self.hashes: dict[int, bytes] = {}
        """Of the entries whose states are kept."""
        self.seen: set[Any] = set()

    def run(self) -> None:
        """Check all up to the floor, and stand there."""
        line = self.line.line
        end = rows.entry(line.prefix, self.floor.sequence) + b"\0"
        low = rows.entry(line.prefix, 0)
        while page := self.line.storage.scan(low, end, limit=PAGE):
            for key, row in page:
                self._entry(key, row)
            low = page[-1][0] + b"\0"
            self.line.report.entries += len(page)
        if line.sequence < self.floor.sequence:
            key = rows.entry(line.prefix, self.floor.sequence)
            self.line.find("chain", key, f"entries from {line.sequence + 1} on are missing")
        self.line.report.pruned += len(self.missing)
        head = line.head
        base = [self._base(at, hash_) for at, hash_ in sorted(self.floor.bases.items())][-1]
        if base is None:
            self.line.folding = False
        else:
            line._take(self.floor.sequence, base)
        line.sequence, line.head, line.floor = self.floor.sequence, head, self.floor
        self.line.checked = self.floor.sequence + 1

    def _entry(self, key: bytes, row: bytes) -> None:
        line, sequence = self.line.line, rows.sequence_of(key)
        if sequence != line.sequence + 1:
            message = f"entries {line.sequence + 1} to {sequence - 1} are missing"
            self.line.find("chain", key, message)
        try:
            envelope, sealed = entries.split_row(row)
        except DAMAGE as error:
            self.line.find("damage", key, str(error))
            line.sequence, line.head = sequence, b""
            return
        if line.head and envelope.before != line.head and sequence == line.sequence + 1:
            self.line.find("chain", key, "it does not follow from the entry before it")
        line.sequence, line.head = sequence, self.ledger.entry_hash(key, envelope.data)
        if sequence in self.floor.bases:
            self.hashes[sequence] = line.head
            if envelope.statement is not None:
                self.line.check_statement(key, envelope, whole=False)
        if not sealed:
            self.missing.add(sequence)
            return
        try:
            self._body(key, self.ledger.open_entry(key, row)[1])
        except DAMAGE as error:
            self.line.find("damage", key, str(error))

    def _body(self, key: bytes, body: Body) -> None:
        """An entry that stayed whole: of its packs, what is there must be what it commits to."""
        self.line.report.values += len(body.atoms)
        self.line.uploads.note(key, body)
        if body.ops and body.ops[0][0] in (entries.REKEY, entries.CHECKPOINT):
            alone = msgspec.structs.replace(body, change=None, cause=None)
            sequence = rows.sequence_of(key)
            self.line.check.accounts.note(self.ledger, self.line.line.number, sequence, alone)
        if body.ops and body.ops[0][0] == entries.LOST:
            self.line.losses.append(told(rows.sequence_of(key), body.ops[0]))
        prefix = rows.line(b"V", self.ledger.number, self.line.line.number)
        for ordinal, commitment in enumerate(body.packs, 1):
            pack = rows.pack(prefix, rows.sequence_of(key), ordinal)
            row = self.line.storage.get([pack])[0]
            if row is not None and self.ledger.commit_pack(self.ledger.open_row(pack, row)) != (
                commitment
            ):
                self.line.find("damage", pack, "it is not the pack that its entry commits to")

    def _base(self, at: int, commitment: bytes) -> Save | None:
        """Check a state that is kept; None if its saved index cannot be read."""
        number = self.line.line.number
        key = rows.entry(rows.line(b"B", self.ledger.number, number), at)
        try:
            base = read_base(self.ledger, number, at, commitment)
            self.line.report.saves += 1
            if at in self.hashes and base.head != self.hashes[at]:
                raise StateIntegrityError("it stands behind another entry than the one there is")
            if base.place:
                root = self.ledger.trees.load(tuple(base.place), base.root)
                self.line.report.values += check_values(
                    self.ledger, root, read=True, seen=self.seen
                )
            self._writers(key, base)
        except DAMAGE as error:
            self.line.find("damage", damaged_row(error, key), str(error))
            return None
        self._root(at, base)
        return base

    def _writers(self, key: bytes, base: Save) -> None:
        """The entries that wrote the keys of a kept state must be whole."""
        marks = Marks(self.ledger, self.line.line.number, self.floor.sequence)
        marks.save(base)
        lost = sorted({sequence for sequence, ordinal in marks.values if not ordinal})
        lost = [sequence for sequence in lost if sequence in self.missing]
        if lost:
            message = f"entries that kept keys rest on were dropped: {lost[:10]}"
            self.line.find("damage", key, message)

    def _root(self, at: int, base: Save) -> None:
        entry = rows.entry(self.line.line.prefix, at)
        row = self.line.storage.get([entry])[0]
        envelope = entries.split_row(row)[0] if row else None
        if envelope and envelope.statement and envelope.statement.root != base.root:
            self.line.find("root", entry, "the checkpoint names another state than is kept for it")


def check_anchor(line: LineCheck, key: bytes, op: list[Any]) -> None:
    """An anchor must name an entry before it as it is."""
    line.anchor = rows.sequence_of(key), op
    floor = rows.entry(line.line.prefix, op[1])
    row = line.storage.get([floor])[0]
    try:
        there = row and line.ledger.entry_hash(floor, entries.split_row(row)[0].data)
    except DAMAGE:
        return  # found and named where it stands
    if there != op[2] or rows.sequence_of(key) <= op[1]:
        line.find("chain", key, f"{rows.describe(floor)} is not the entry that it prunes up to")


def check_newest_anchor(line: LineCheck) -> None:
    """What was taken for the floor must be what the newest anchor of the chain says."""
    floor = line.floor
    if line.begin > floor.sequence and line.anchor is None:
        return  # the anchor was read before the check was stopped
    found = line.anchor[0] if line.anchor is not None else 0
    if found != floor.anchor:
        key = rows.anchor(line.ledger.number, line.line.number, max(floor.number, 1))
        said = f"the newest anchor is entry {found}" if found else "no entry is an anchor"
        line.find("chain", key, f"it should lead to the newest anchor ({floor.anchor}): {said}")
