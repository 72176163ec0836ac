"""Verifying one timeline by replaying it."""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import islice
from typing import Any

import msgspec

from holdfast.errors import NewerFormatError, StateIntegrityError
from holdfast.storage.rows import each
from holdfast.store.history.checkpoint import check_values
from holdfast.store.journal import entry
from holdfast.store.journal.entry import Body, Envelope
from holdfast.store.journal.floor import (
    Loss,
    all_told,
    anchored_floor,
    floor_of,
    newest_anchor_row,
    read_base,
    told,
)
from holdfast.store.journal.ledger import Ledger, leaves
from holdfast.store.journal.save import (
    BEFORE,
    DELTA,
    NO_FLOOR,
    Floor,
    Save,
    may_be_tree,
    read_save,
    read_slot,
)
from holdfast.store.journal.signatures import signers_of
from holdfast.store.journal.slot import Slot
from holdfast.store.journal.timeline import Timeline, slot_from, timeline_range
from holdfast.store.names import rowkinds as rows
from holdfast.store.names.cells import cell_at
from holdfast.store.proof.verify_nodes import UploadCheck, damaged_row, newest_index
from holdfast.store.proof.verify_report import DAMAGE, KnownLoss
from holdfast.store.proof.verify_rows import Head, Verification
from holdfast.store.read.lookup_terms import Progress, Terms, read_progress
from holdfast.store.rules.lookup import Lookup
from holdfast.store.tree import refs
from holdfast.store.tree.tree import Node
from holdfast.store.upkeep.losses import find_loss, newest_entry
from holdfast.store.upkeep.prune import Marks

PAGE = 2000
FLOOR_PAGE = 500
LOOK = 100
"""Entries that are read together where there is little time."""


class LineCheck:
    """One timeline: its entries, values, checkpoints and saves."""

    def __init__(
        self, check: Verification, uploads: UploadCheck, number: int, begin: int, head: Head
    ) -> None:
        self.check = check
        self.report = check.report
        self.uploads, self.nodes = uploads, uploads.nodes
        self.ledger = ledger = uploads.ledger
        self.storage, floor = ledger.storage, check.floors[ledger.number, number]
        self.begin, self.floor = begin if begin > floor.sequence else 0, floor
        self.anchor = 0
        """The newest anchor that was read."""
        self.head = head
        """The newest entry that is looked at: what lies behind it is newer, or nothing's."""
        self.line = Timeline(ledger, number)
        self.folding = True
        """Whether the state can be made from entries; if not, the next saved index may help."""
        self.heavy = False  # whether the last entry may have taken long
        self.missing: set[int] = set()
        """Entries up to the floor whose bodies are gone."""
        self.seen: set[Any] = set()
        """Values of the states that are kept below the floor."""
        self.damaged: set[tuple[int, int]] = set()
        self.losses: list[Loss] = []  # that its entries tell of
        self.told: dict[int, list[Loss]] = {}  # that timelines tell of, where that was asked for
        self.other = False  # whether the newest entry is another one than the feed names
        self.newest = 0
        self.announced: set[int] = set()
        """Entries at which indexes are saved, as entries say."""
        self.packs: set[bytes] = set()
        self.points: set[int] = set()
        """Checkpoints of the page that is looked at."""
        self.checked = self.begin
        """Saves below this entry have been looked at."""
        self.looked = self.begin + 1 if self.begin else 0
        """So have values and signatures."""

    def _line(self, kind: bytes) -> bytes:
        return rows.line(kind, self.ledger.number, self.line.number)

    def find(self, kind: str, key: bytes, message: str) -> None:
        """Note a finding in this scope."""
        if kind == "unaccounted" and is_lost(self, self.line.number, rows.sequence_of(key)):
            return  # it was stored with an entry that is told to be lost
        self.check.row(kind, key, message, self.ledger)
        if key[:1] in b"EV" and len(key) >= 14 and kind != "feed":  # which spoils no key
            self.damaged.add((self.line.number, rows.sequence_of(key)))

    def run(self) -> None:
        """Check everything of this timeline."""
        if self.begin:
            self._go_on()
        elif self.floor.sequence:
            self._below()
        line, head = self.line, self.head
        self.newest = newest_index(self.ledger, line.number, head[0])
        high = rows.entry(line.prefix, head[0] + 1)
        limit = PAGE if self.check.end is None else min(PAGE, LOOK)
        ends, read = False, self.begin
        while not ends:
            low = rows.entry(line.prefix, line.sequence + 1)
            page = self.storage.scan(low, high, limit=limit)
            ends = len(page) < limit
            # The nodes first, also those up to the floor: entries and saves lead to them.
            self.nodes.read(line.number, read, None if ends else rows.sequence_of(page[-1][0]))
            self.nodes.finish()
            self._entries(self._until_late(page), head)
            ends = ends and (not page or line.sequence == rows.sequence_of(page[-1][0]))
            read = line.sequence
            self._beside(head[0] if ends else line.sequence)
            self.check.accounts.settle()
            if not ends:
                self._unannounced(line.sequence)
                self.check.pause(self.ledger, line.number, line.sequence, self._name_keys)
        check_losses(self)
        self._unannounced(head[0])
        self._behind()
        check_newest_anchor(self)
        self._end()
        self.uploads.read[line.number] = line.sequence
        if self.folding and not line.gone:
            check_lookups(self.check, line)
        self._name_keys()

    def _until_late(self, page: list[tuple[bytes, bytes]]) -> Iterator[tuple[bytes, bytes]]:
        """Rows of a page until a long one has used up the time: at least one, so it gets on."""
        for one in page:
            if self.heavy and self.check.late():
                return
            self.heavy = False
            self.report.entries += 1
            yield one

    def _name_keys(self) -> None:
        """Name the keys that use what was found to be damaged, also by a part of the work alone."""
        if self.damaged:

            def uses(slot: Slot) -> bool:
                for ref, place in leaves(self.ledger, slot.ref, slot.location):
                    if place is not None and place[:2] in self.damaged:
                        try:  # beside what is damaged there, others are whole
                            self.ledger.check_atoms({place[:3]: [(place[3], ref)]}, read=True)
                        except DAMAGE:
                            return True
                return False

            self.check.name_keys(self.ledger, [self.line.number], uses)

    def _go_on(self) -> None:
        """Take up where the check was stopped."""
        line = self.line
        if self.begin > self.head[0]:
            message = "it was verified before, and the feed does not name it now: it was put back"
            self.find("feed", rows.entry(line.prefix, self.begin), message)
        try:
            line.load(self.begin)
            *_, body = self.ledger.entry_at(line.number, self.begin)
            self.announced.update(body.save[:1] if body.save else ())
        except DAMAGE:
            # Found and named before the stop; the next saved index may help.
            self.line = Timeline(self.ledger, line.number)
            self.line.sequence, self.line.head = self.begin, b""
            self.folding = False

    def _end(self) -> None:
        """The directory must say of the scope what its last entry says."""
        line, number = self.line, self.ledger.number
        ended = number in self.check.directory.ended
        if not self.folding or line.number or line.gone == ended:
            return
        if line.gone:
            ended = self.check.directory.ends_now(self.ledger)  # since the directory was read
        if line.gone != ended:
            # What is missing is the row that says so; what is too much, the last entry's to judge.
            last = rows.entry(line.prefix, line.sequence)
            key = rows.deletion(self.ledger.tombstone) if line.gone else last
            states = ("there", "deleted")
            says = f"the directory says that the scope is {states[ended]}"
            self.find("chain", key, f"{says}, its last entry that it is {states[line.gone]}")

    # entries

    def _entries(self, page: Iterable[tuple[bytes, bytes]], expected: tuple[int, bytes]) -> None:
        """Take each entry that is as it should be; any other is looked at closely.

        Without objects on the way and with few calls: the speed of verifying is decided here.
        """
        line, ledger = self.line, self.ledger
        ad, open_ = ledger.ad, ledger.seal.open
        commit, entry_hash = ledger.commit_body, ledger.entry_hash
        clear, end, decode = entry.clear_part, entry.CLEAR, entry.read_body
        last, values = expected[0], 0
        for key, row in page:
            sequence = line.sequence + 1
            try:
                version, flags, writer, epoch, before, commitment = clear(row)
                if (
                    before != line.head
                    or int.from_bytes(key[9:14], "big") != sequence
                    or sequence == last
                    or version != entry.FORMAT
                    or flags
                    or epoch >= 128
                ):
                    self._entry(key, row, expected)
                    continue
                plain = open_(ad(key), row, writer, end)
                if commit(plain) != commitment:
                    self._entry(key, row, expected)
                    continue
                body = decode(plain)
            except (*DAMAGE, struct.error, msgspec.MsgspecError):
                self._entry(key, row, expected)
                continue
            values += len(body.atoms)
            rest = body.cause or body.save or body.change or body.packs
            if rest or not body.atoms or body.ops[0][0] not in entry.KEYED:
                self._leads(key, sequence, body)
            if self.folding:
                self._fold(key, sequence, body)
            line.sequence = sequence
            line.head = entry_hash(key, row[:end])
        self.report.values += values

    def _entry(self, key: bytes, row: bytes, expected: tuple[int, bytes]) -> None:
        """Look at one entry and name all that is off; up to the floor its body may be gone."""
        line = self.line
        sequence = rows.sequence_of(key)
        below = sequence <= self.floor.sequence
        whole = sequence == line.sequence + 1
        if not whole:
            self.find("chain", key, f"entries {line.sequence + 1} to {sequence - 1} are missing")
            self.folding = False
        try:
            envelope, sealed = entry.split_row(row)
        except DAMAGE as error:
            self.find("damage", key, str(error))
            self.folding = False
            line.sequence, line.head = sequence, b""
            return
        if line.head and envelope.before != line.head:
            self.find("chain", key, "it does not follow from the entry before it")
            self.folding = False
        try:
            if below and not sealed:
                self.missing.add(sequence)
            else:
                start, commitment = len(envelope.data), envelope.commitment
                body = self.ledger.open_body(key, row, start, envelope.writer, commitment)
                self.report.values += len(body.atoms)
                self._leads(key, sequence, body)
                if self.folding:
                    self._fold(key, sequence, body)
                if envelope.statement and str(self.ledger.scope) not in body.ops[0]:
                    self.find("chain", key, "the checkpoint says that it is one of another scope")
        except NewerFormatError:
            raise
        except DAMAGE as error:
            self.find("damage", key, str(error))
            self.folding = False
            whole = False
        line.sequence = sequence
        line.head = self.ledger.entry_hash(key, envelope.data)
        self.other |= sequence == expected[0] and line.head != expected[1]
        if envelope.statement is not None and (not below or sequence in self.floor.bases):
            self.check_statement(key, envelope, whole=whole)

    def _leads(self, key: bytes, sequence: int, body: Body) -> None:
        """Check what an entry leads to; one that only sets short values leads nowhere.

        Of one up to the floor, what it leads to may be gone, but for data keys and dependencies.
        """
        first: list[Any] = body.ops[0] if body.ops else [0]
        below = sequence <= self.floor.sequence
        if body.save and body.save[0] > self.floor.sequence:
            self.announced.add(body.save[0])
            self._compare_save(body.save, key)
        noted = msgspec.structs.replace(body, change=None, cause=None) if below else body
        self.check.accounts.note(self.ledger, self.line.number, sequence, noted)
        if body.packs:
            self._packs(sequence, body)
        elif not body.atoms:
            self.uploads.note(key, body)
        if first[0] == entry.LOST:
            self.losses.append(told(sequence, first))
        elif first[0] == entry.MERGE and not below:
            # What was merged must still be the history that it was, and the merge before be named.
            _, timeline, at, hash_, before = first
            merged = rows.entry(rows.line(b"E", self.ledger.number, timeline), at)
            if not self.is_entry(merged, hash_) and not is_lost(self, timeline, at):
                self.find("chain", key, f"{rows.describe(merged)} is not the entry that it merged")
            if self.folding and before != self.line.merged:
                self.find("chain", key, "it names another merge before it than there is")
        elif first[0] == entry.PRUNE and not below:
            self.anchor = sequence
            floor = rows.entry(self.line.prefix, first[1])
            if not self.is_entry(floor, first[2]) or sequence <= first[1]:
                said = f"{rows.describe(floor)} is not the entry that it prunes up to"
                self.find("chain", key, said)

    def is_entry(self, key: bytes, hash_: bytes) -> bool:
        """Whether an entry of the scope has this hash; a damaged one is named where it stands."""
        row = self.storage.get([key])[0]
        try:
            there = row and self.ledger.entry_hash(key, entry.split_row(row)[0].data)
        except DAMAGE:
            return True
        return there == hash_

    def _fold(self, key: bytes, sequence: int, body: Body) -> None:
        """Fold an entry into the state."""
        if self.line.gone:
            self.find("chain", key, "it stands behind the entry that ends its timeline")
        try:
            self.line.apply(sequence, body)
        except DAMAGE as error:
            if not stands_on_save(self, key, body):
                self.find("damage", key, str(error))
                self.folding = False

    def _packs(self, sequence: int, body: Body) -> None:
        self.heavy = True
        for ordinal, commitment in enumerate(body.packs, 1):
            key = rows.pack(self._line(b"V"), sequence, ordinal)
            self.packs.add(key)
            row = self.storage.get([key])[0]
            if row is None and sequence <= self.floor.sequence:
                continue
            try:
                plain = self.ledger.open_row(key, row)
                if self.ledger.commit_pack(plain) != commitment:
                    raise StateIntegrityError("it is not the pack that its entry commits to")
                self.report.values += len(self.ledger.atoms_in(key, row))
            except DAMAGE as error:
                self.find("damage", key, str(error))
                self.folding = False

    def check_statement(self, key: bytes, envelope: Envelope, *, whole: bool) -> None:
        """Check the signatures of a checkpoint and, if all before it is whole, its root."""
        statement = envelope.statement
        assert statement is not None
        self.line.checkpoint = rows.sequence_of(key)
        self.points.add(self.line.checkpoint)
        self.report.checkpoints += 1
        self.report.signed += statement.algorithm != entry.UNSIGNED
        try:
            valid, wrong = signers_of(self.ledger, key, envelope, self.check.public)
        except DAMAGE as error:
            valid, wrong = set(), [str(error)]
        for message in (*wrong, *self.check.trust.missing(valid)):
            self.find("signature", key, message)
        if self.folding and whole:
            root = self._folded()
            if root is not None and root.hash != statement.root:
                self.find("root", key, "the checkpoint names another state than the entries give")

    def _folded(self) -> Node | None:
        """The index as the entries give it; None if its nodes are damaged, which is known."""
        self.heavy = True
        try:
            root = self.line.folded()
        except DAMAGE:
            self.folding = False
            return None
        self.line.rebase(root, {})
        return root

    # up to the floor: the chain is whole, and nothing that is kept is missing
    #
    # Entries may be envelopes alone there, and packs, saves and nodes may be gone. What is there
    # must be itself; and every state that is kept is read whole, down to its values and the
    # entries that wrote its keys. So what was dropped by somebody else is found, unless nothing
    # that can still be asked for rests on it.

    def _below(self) -> None:
        """Check all up to the floor, and stand there."""
        line, floor = self.line, self.floor
        self.folding = False
        for key, row in self.ledger.rows_of(b"E", line.number, 0, floor.sequence, limit=FLOOR_PAGE):
            self._entry(key, row, self.head)
            self.report.entries += 1
        if line.sequence < floor.sequence:
            key = rows.entry(line.prefix, floor.sequence)
            self.find("chain", key, f"entries from {line.sequence + 1} on are missing")
        self.report.pruned += len(self.missing)
        head = line.head
        base = [self._base(at, hash_) for at, hash_ in sorted(floor.bases.items())][-1]
        if base is not None:
            line._take(floor.sequence, base)
            self.folding = True
        line.sequence, line.head, line.floor = floor.sequence, head, floor
        self.checked = self.looked = floor.sequence + 1
        self.packs.clear()
        self.points.clear()

    def _base(self, at: int, commitment: bytes) -> Save | None:
        """Check a state that is kept; None if its saved index cannot be read."""
        ledger, key = self.ledger, rows.entry(self._line(b"B"), at)
        kept = rows.entry(self.line.prefix, at)
        row = self.storage.get([kept])[0]
        try:
            base = read_base(ledger, self.line.number, at, commitment)
            self.report.saves += 1
            envelope = entry.split_row(row)[0] if row else None
            if envelope and base.head != ledger.entry_hash(kept, envelope.data):
                raise StateIntegrityError("it stands behind another entry than the one there is")
            if base.place:
                root = ledger.trees.load(tuple(base.place), base.root)
                self.report.values += check_values(ledger, root, read=True, seen=self.seen)
            # The entries that wrote the keys of a kept state must be whole.
            marks = Marks(ledger, self.line.number, self.floor.sequence)
            marks.save(base)
            written = {sequence for sequence, ordinal in marks.values if not ordinal}
            if lost := sorted(written & self.missing):
                said = f"entries that kept keys rest on were dropped: {lost[:10]}"
                self.find("damage", key, said)
        except DAMAGE as error:
            self.find("damage", damaged_row(error, key), str(error))
            return None
        if envelope and envelope.statement and envelope.statement.root != base.root:
            self.find("root", kept, "the checkpoint names another state than is kept for it")
        return base

    # rows that no entry names

    def _strays(self, kind: bytes, low: int, high: int, named: Callable[[bytes], bool]) -> None:
        """Find rows of a kind, at entries from `low` to before `high`, that none of them names."""
        for key, _ in self.ledger.rows_of(kind, self.line.number, low, high - 1):
            if not named(key):
                self.find("unaccounted", key, rows.ROW[kind].stray)

    def _beside(self, last: int) -> None:
        """Values and signatures that lie beside the entries that were just read."""

        def signed(key: bytes) -> bool:
            return rows.sequence_of(key) in self.points and len(key) == rows.LENGTHS[b"C"]

        self._strays(b"V", self.looked, last + 1, self.packs.__contains__)
        self._strays(b"C", self.looked, last + 1, signed)
        self.looked = last + 1
        self.packs.clear()
        self.points.clear()

    # saves and nodes

    def _compare_save(self, save: tuple[int, int, bytes], key: bytes) -> None:
        """Check a saved index against the state that the entries give at that point."""
        at, kind, commitment = save
        row_key = rows.entry(self._line(b"S"), at)
        self.report.saves += 1
        try:
            plain = self.ledger.open_row(row_key, self.storage.get([row_key])[0])
            if self.ledger.commit_save(plain) != commitment:
                raise StateIntegrityError(f"it is not the one that {rows.describe(key)} announces")
            stored = read_save(plain)
            if stored.kind != kind:
                raise StateIntegrityError("it is of another kind than its entry says")
            # It must lead to the nodes that it names.
            if stored.kind != DELTA and stored.place:
                self.nodes.expect(tuple(stored.place), stored.root, row_key)
            slots = zip(stored.keys, stored.slots, strict=True) if stored.kind == DELTA else ()
            for slot in (read_slot(*one) for one in slots if may_be_tree(one[1])):
                if refs.is_tree(slot[1]):
                    hash_ = refs.read_tree(refs.bare(slot[1]))[1]
                    self.nodes.expect(slot[2][-4:], hash_, row_key)
        except DAMAGE as error:
            self.find("damage", row_key, str(error))
            return
        if kind in (DELTA, BEFORE):
            return
        if self.folding:
            if at != self.newest:
                return  # bound by its entry; the newest one is compared with the state itself
            root = self._folded()
            if root is not None and root.hash != stored.root:
                self.find("root", row_key, "the saved index is not what the entries give")
        elif self.line.sequence == at:
            head = self.line.head
            self.line._take(at, stored)
            self.line.head = head  # as the entries gave it
            self.folding = True

    def _unannounced(self, below: int) -> None:
        """Saves, and packs of nodes, that no entry announces.

        An entry announces a save at its own number or at the one before it, so all below the
        newest entry that was read have been announced.
        """

        def announced(key: bytes) -> bool:
            return len(key) == rows.LENGTHS[b"S"] and rows.sequence_of(key) in self.announced

        self._strays(b"S", self.checked, below, announced)
        line, saved = self._line(b"N"), self.nodes.saved[self.line.number]
        for at in saved[bisect_left(saved, self.checked) : bisect_left(saved, below)]:
            if at not in self.announced:
                self.find("unaccounted", rows.pack(line, at, 0), rows.ROW[b"N"].stray)
        self.checked = below

    def _behind(self) -> None:
        """What lies behind the newest entry that was looked at, and is not newer.

        A save at that entry's own number may be announced by the entry that follows it; nodes
        of a base are there before the anchor that announces it, however far behind that comes.
        Only so much is looked at: while others write, there is always more.
        """
        ledger, number = self.ledger, self.line.number
        first = self.head[0] + 1
        for kind in (kind for kind in rows.LENGTHS if kind != b"B"):
            line = rows.line(kind, ledger.number, number)
            low = rows.entry(line, first - (kind in b"SN"))
            page = self.storage.scan(low, rows.after(line), limit=1000, reverse=True)
            # Asked behind the scan: it names all that was there.
            newest = self.check.feed.newest(ledger.number, number) if page else 0
            for key, row in reversed(page):
                sequence = rows.sequence_of(key)
                if kind == b"E" and not row:
                    self.find("damage", key, rows.HELD)
                    continue
                said = sequence >= first or rows.of_base(key) or self._announced(sequence)
                if len(key) != rows.LENGTHS[kind] or sequence > newest or not said:
                    found = "feed" if kind == b"E" else "unaccounted"
                    self.find(found, key, rows.ROW[kind].stray)

    def _announced(self, sequence: int) -> bool:
        """Whether a save at the number of the newest entry is announced, by it or the next one."""
        if sequence in self.announced:
            return True
        key = rows.entry(self.line.prefix, sequence + 1)
        row = self.storage.get([key])[0]
        try:
            body = self.ledger.open_entry(key, row)[1] if row is not None else None
        except DAMAGE:
            return True  # found and named when that entry is looked at
        return body is not None and body.save is not None and body.save[0] == sequence


# ---- verify floors ------------------------------------------------------------------------------


def find_floors(check: Verification, ledger: Ledger, lines: list[int]) -> dict[int, Floor]:
    """The floors of a scope's timelines; of rows that lead to none, only leftovers may be there."""
    found: dict[int, Floor] = {}
    for number in lines:
        floor = NO_FLOOR
        try:
            floor = anchored_floor(ledger, number)
        except DAMAGE as error:
            key = damaged_row(error, newest_anchor_row(ledger, number))
            check.row("damage", key, str(error), ledger)
            floor = floor_of(ledger, number)
        found[number] = check.floors[(ledger.number, number)] = floor
    check.swept = _is_pruned_now(check, ledger)
    if check.swept:
        check.report.pruning += 1
        return found
    for kind in (b"A", b"B"):
        prefix = kind + ledger.number.to_bytes(rows.SCOPE, "big")
        for key, _ in each(check.core.storage.scan, prefix, rows.after(prefix)):
            floor = found.get(rows.line_of(key), NO_FLOOR)
            newest = bool(floor.number) and key[9:] == floor.number.to_bytes(4, "big")
            if not (rows.sequence_of(key) in floor.bases if kind == b"B" else newest):
                check.row("unaccounted", key, rows.ROW[kind].stray, ledger)
    return found


def pruned_meanwhile(check: Verification, ledger: Ledger) -> bool:
    """Whether a scope was, or may have been, pruned since its floors were read."""
    mine = {line: floor for (scope, line), floor in check.floors.items() if scope == ledger.number}
    try:
        moved = any(floor_of(ledger, line).number != mine[line].number for line in mine)
    except DAMAGE:
        return False  # found and named
    return moved or check.swept or _is_pruned_now(check, ledger)


def _is_pruned_now(check: Verification, ledger: Ledger) -> bool:
    """Whether somebody prunes a scope, or was cut short."""
    return cell_at(check.core.storage, rows.pruner(ledger.number)) is not None


def check_newest_anchor(line: LineCheck) -> None:
    """What was taken for the floor must be what the newest anchor of the chain says."""
    floor = line.floor
    found = line.anchor
    if line.begin > floor.sequence and not found:
        return  # the anchor was read before the check was stopped
    if found != floor.anchor:
        key = rows.anchor(line.ledger.number, line.line.number, max(floor.number, 1))
        said = f"the newest anchor is entry {found}" if found else "no entry is an anchor"
        line.find("chain", key, f"it should lead to the newest anchor ({floor.anchor}): {said}")


# ---- verify lookups -----------------------------------------------------------------------------
# Verifying lookups: the terms that the values give, compared with those that are kept.
#
# Of each timeline's newest state. What older states held was written by the entries, which are
# checked as such.


LOOKUP_PAGE = 500


def check_lookups(check: Verification, line: Timeline) -> None:
    """Compare every lookup that is built with the values, by number and sum: that takes no room."""
    scope, terms = str(line.ledger.scope), Terms(line.ledger)

    def wanted(lookup: Lookup) -> Iterator[str]:
        for low, high in lookup.spans():
            walk = timeline_range(line, low, high)
            while page := [(found[0], slot_from(found)) for found in islice(walk, LOOKUP_PAGE)]:
                with suppress(*DAMAGE):  # only sooner: whose value it is says so below
                    line.ledger.fetch_atoms((slot.ref, slot.location) for _, slot in page)
                for key, slot in page:
                    yield from terms.keys(lookup, key, line.settled(slot)) or ()

    with suppress(*DAMAGE):
        for lookup in line.declared.of(Lookup):
            with suppress(*DAMAGE):  # what cannot be read has been found and named before
                progress = read_progress(line.ledger, line.slot(lookup.built))
                if progress != Progress(lookup.fingerprint, None):
                    continue
                stored = (name for name, _ in timeline_range(line, lookup.home, lookup.end))
                if _sum(wanted(lookup)) != _sum(stored):
                    message = "its terms are not those of the values; "
                    again = "declare it with rebuild=True: that makes it anew"
                    check.find("lookup", f"lookup {lookup.name} of {scope}", message + again, scope)


def _sum(names: Iterable[str]) -> tuple[int, int]:
    count = total = 0
    for name in names:
        count, total = count + 1, total + hash(name)
    return count, total


# ---- verify losses ------------------------------------------------------------------------------
# Verifying that a timeline has what the feed names, but for what it tells itself is lost.
#
# What was stored with entries that are told to be lost is accounted for by that: other timelines
# may lead to it. One that begins from a lost state is judged by the index that it saved of it.


def check_losses(check: LineCheck) -> None:
    """Compare a timeline that was read to its end with the feed.

    How many entries the feed names shows whether anything is lost: only then it is read again, to
    see what.
    """
    line, ledger = check.line, check.ledger
    for loss in check.losses:
        place = rows.describe(rows.entry(line.prefix, loss.at))
        check.report.losses.append(KnownLoss(str(ledger.scope), place, str(loss)))
    surplus = check.losses[-1].surplus if check.losses else 0
    counted = check.check.feed.counted(ledger.number, line.number)
    # Less than there is was named if others write meanwhile, or rows of the feed are damaged.
    whole = ledger.before + counted - line.sequence <= surplus
    if whole and not check.other and (check.losses or line.sequence >= check.head[0]):
        return
    lost = find_loss(check.check.core, ledger, line.number)
    if lost is None:
        return  # it was told before the check was stopped, or others have written meanwhile
    if lost.last > line.sequence:
        said = f"the feed names entry {lost.last}, the newest here is {line.sequence}"
        message = f"{said}: the scope was put back, or entries were dropped"
    elif lost.first == line.sequence:
        message = "it is not the entry that the feed names"
    else:
        message = f"{lost}, were dropped, and others have taken their numbers"
    key = rows.entry(line.prefix, min(lost.first, line.sequence + 1))
    check.find("feed", key, message)


def is_lost(check: LineCheck, timeline: int, sequence: int) -> bool:
    """Whether a timeline tells that its entry of this number is lost; another one may be there."""
    if timeline not in check.told:
        check.told[timeline] = list(all_told(check.ledger, timeline))
    return any(loss.first <= sequence <= loss.last for loss in check.told[timeline])


def stands_on_save(check: LineCheck, key: bytes, body: Body) -> bool:
    """Take the state that an entry has from a lost one from its save; False if it is not that.

    All of that state must be there: what is missing is found.
    """
    op, line, ledger = body.ops[0], check.line, check.ledger
    if op[0] not in (entry.RESTORE, entry.FORK):
        return False
    missing = op[2] > newest_entry(ledger, op[1])  # found and named with its own timeline
    if not missing and not is_lost(check, op[1], op[2]):
        return False
    sequence = rows.sequence_of(key)
    saved = rows.entry(rows.line(b"S", ledger.number, line.number), sequence)
    try:
        save = read_save(ledger.open_row(saved, check.storage.get([saved])[0]))
        root = ledger.trees.load(tuple(save.place), op[3]) if save.place else ledger.trees.empty
        line.rebase(root, {})
        line.apply(sequence, body)
        check_values(ledger, root, read=True)
    except DAMAGE as error:
        check.find("damage", key, str(error))
        check.folding = False
    return True
