"""Verifying one timeline by replaying it."""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.errors import NewerFormatError, StateIntegrityError
from holdfast.store.journal import entry
from holdfast.store.journal.entry import Body, Envelope
from holdfast.store.journal.floor import Floor
from holdfast.store.journal.ledger import Ledger
from holdfast.store.journal.save import BEFORE, DELTA, Save, may_be_tree, read_save, read_slot
from holdfast.store.journal.slot import Slot
from holdfast.store.journal.timeline import Timeline
from holdfast.store.names import rowkinds as rows
from holdfast.store.proof.cosign import signers_of
from holdfast.store.proof.verify_feed import Head
from holdfast.store.proof.verify_floor import FloorCheck, check_anchor, check_newest_anchor
from holdfast.store.proof.verify_keys import name_keys
from holdfast.store.proof.verify_lookups import check_lookups
from holdfast.store.proof.verify_losses import check_losses, check_merge, is_lost, stands_on_save
from holdfast.store.proof.verify_nodes import DAMAGE, NodeCheck, newest_index
from holdfast.store.proof.verify_uploads import UploadCheck
from holdfast.store.read.state_check import leaves
from holdfast.store.tree import refs
from holdfast.store.tree.tree import Node
from holdfast.store.upkeep.losses import Loss, told

if TYPE_CHECKING:
    from holdfast.store.proof.verify import _Check

PAGE = 2000
LOOK = 100
"""Short entries after which it is looked whether the time is used up; of others, after each."""
ROUNDS = 10
"""Looks at what lies behind the newest entry: while others write, there is always something."""
_BEHIND = {
    b"E": "the feed knows no such entry",
    b"V": "no entry names this pack",
    b"S": "no entry announces this save",
    b"N": "no save uses these nodes",
    b"C": "it lies beside no checkpoint",
}
"""Rows with the number of an entry, and what is said of those that belong to none."""


class LineCheck:
    """One timeline: its entries, values, checkpoints and saves."""

    def __init__(
        self,
        check: _Check,
        nodes: NodeCheck,
        uploads: UploadCheck,
        ledger: Ledger,
        number: int,
        begin: int,
        head: Head,
        floor: Floor,
    ) -> None:
        self.check = check
        self.report = check.report
        self.ledger = ledger
        self.storage = ledger.storage
        self.nodes = nodes
        self.uploads = uploads
        self.begin, self.floor = begin if begin > floor.sequence else 0, floor
        self.anchor: tuple[int, list[Any]] | None = None
        """The newest anchor that was read: its number and what it says."""
        self.head = head
        """The newest entry that is looked at: what lies behind it is newer, or nothing's."""
        self.line = Timeline(ledger, number)
        self.folding = True
        self.heavy = False  # whether the last entry may have taken long
        self.stepped = self.begin  # up to which entry nodes were read, if that is done in steps
        self.damaged: set[tuple[int, int]] = set()
        self.losses: list[Loss] = []  # that its entries tell of
        self.told: dict[int, list[Loss]] = {}  # that timelines tell of, where that was asked for
        self.other = False  # whether the newest entry is another one than the feed names
        self.newest = 0
        self.announced: dict[int, tuple[int, bytes]] = {}
        self.packs: set[bytes] = set()
        self.points: set[int] = set()
        """Checkpoints of the page that is looked at."""
        self.checked = self.begin
        """Saves below this entry have been looked at."""
        self.with_nodes = nodes.saved(number)
        """The entries at which nodes were saved, as far as they have been read."""

    def find(self, kind: str, key: bytes, message: str) -> None:
        """Note a finding in this scope."""
        if kind == "unaccounted" and is_lost(self, self.line.number, rows.sequence_of(key)):
            return  # it was stored with an entry that is told to be lost
        self.check.find(kind, rows.describe(key), message, str(self.ledger.scope), row=key)
        if key[:1] in b"EV" and len(key) >= 14:
            self.damaged.add((self.line.number, rows.sequence_of(key)))

    def run(self) -> None:
        """Check everything of this timeline."""
        if self.begin:
            self._go_on()
        elif self.floor.sequence:
            FloorCheck(self, self.floor).run()
        self.since = self.checked  # below it they were looked at before, or pruning left them
        line, head = self.line, self.head
        self.newest = newest_index(self.ledger, line.number, head[0])
        high = rows.entry(line.prefix, head[0] + 1)
        while True:
            page = self.storage.scan(rows.entry(line.prefix, line.sequence + 1), high, limit=PAGE)
            ends = len(page) < PAGE
            if self.check.end is None:
                self._entries(page, head)
            else:
                self._entries(self._in_time(page), head)
                ends = ends and (not page or line.sequence == rows.sequence_of(page[-1][0]))
                page = [one for one in page if rows.sequence_of(one[0]) <= line.sequence]
                self._read_nodes(ends)
            self.report.entries += len(page)
            self._values(page, ends)
            self._signatures(page, ends)
            self.check.accounts.settle()
            if ends:
                break
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

    def _name_keys(self) -> None:
        """Name the keys that use what was found to be damaged, also by a part of the work alone."""
        if self.damaged:
            name_keys(self.check, self.ledger, [self.line.number], self._uses_damaged)

    def _in_time(self, page: list[tuple[bytes, bytes]]) -> Iterator[tuple[bytes, bytes]]:
        """Rows of a page until the time is used up: at least one, so that it gets on."""
        for count, one in enumerate(page):
            if (self.heavy or (count and count % LOOK == 0)) and self.check.late():
                return
            self.heavy = False
            yield one

    def _read_nodes(self, ends: bool) -> None:
        """Read the nodes that were saved with the entries that were just read."""
        line = self.line
        self.nodes.read(line.number, self.stepped, None if ends else line.sequence)
        self.nodes.finish()
        self.stepped = line.sequence
        self.with_nodes = self.nodes.saved(line.number)

    def _go_on(self) -> None:
        """Take up where the check was stopped."""
        line = self.line
        try:
            line.load(self.begin)
            key = rows.entry(line.prefix, self.begin)
            _, body = self.ledger.open_entry(key, self.storage.get([key])[0])
            if body.save:
                self.announced[body.save[0]] = (body.save[1], body.save[2])
        except DAMAGE:
            # Found and named before the stop; the next saved index may help.
            self.line = Timeline(self.ledger, line.number)
            self.line.sequence, self.line.head = self.begin, b""
            self._stop_folding()

    def _end(self) -> None:
        """The directory must say of the scope what its last entry says."""
        line, number = self.line, self.ledger.number
        ended = number in self.check.directory.ended
        if not self.folding or line.number or line.gone == ended:
            return
        if line.gone:
            ended = self.check.directory.ends_now(self.ledger)  # since the directory was read
        if line.gone != ended:
            key = rows.entry(line.prefix, line.sequence)
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
        """Look at one entry and name all that is off."""
        line = self.line
        sequence = rows.sequence_of(key)
        whole = sequence == line.sequence + 1
        if not whole:
            self.find("chain", key, f"entries {line.sequence + 1} to {sequence - 1} are missing")
            self._stop_folding()
        try:
            envelope, _ = entry.split_row(row)
        except DAMAGE as error:
            self.find("damage", key, str(error))
            self._stop_folding()
            line.sequence, line.head = sequence, b""
            return
        if line.head and envelope.before != line.head:
            self.find("chain", key, "it does not follow from the entry before it")
            self._stop_folding()
        try:
            start = len(envelope.data)
            writer, commitment = envelope.writer, envelope.commitment
            body = self.ledger.open_body(key, row, start, writer, commitment)
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
            self._stop_folding()
            whole = False
        line.sequence = sequence
        line.head = self.ledger.entry_hash(key, envelope.data)
        self.other |= sequence == expected[0] and line.head != expected[1]
        if envelope.statement is not None:
            self.check_statement(key, envelope, whole=whole)

    def _leads(self, key: bytes, sequence: int, body: Body) -> None:
        """Check what an entry leads to; one that only sets short values leads nowhere."""
        if body.save and body.save[0] > self.floor.sequence:
            self.announced[body.save[0]] = (body.save[1], body.save[2])
            self._compare_save(body.save, key)
        self.check.accounts.note(self.ledger, self.line.number, sequence, body)
        if body.packs:
            self._packs(sequence, body)
        elif not body.atoms:
            self.uploads.note(key, body)
        first = body.ops[0] if body.ops else [0]
        if first[0] == entry.MERGE:
            check_merge(self, key, first)
        elif first[0] == entry.PRUNE:
            check_anchor(self, key, first)
        elif first[0] == entry.LOST:
            self.losses.append(told(sequence, first))

    def _fold(self, key: bytes, sequence: int, body: Body) -> None:
        """Fold an entry into the state."""
        if self.line.gone:
            self.find("chain", key, "it stands behind the entry that ends its timeline")
        try:
            self.line.apply(sequence, body)
        except DAMAGE as error:
            if not stands_on_save(self, key, body):
                self.find("damage", key, str(error))
                self._stop_folding()

    def _stop_folding(self) -> None:
        """The state can no longer be made from entries; the next saved index may help."""
        self.folding = False

    def _packs(self, sequence: int, body: Body) -> None:
        self.heavy = True
        line = rows.line(b"V", self.ledger.number, self.line.number)
        for ordinal, commitment in enumerate(body.packs, 1):
            key = rows.pack(line, sequence, ordinal)
            self.packs.add(key)
            try:
                plain = self.ledger.open_row(key, self.storage.get([key])[0])
                if self.ledger.commit_pack(plain) != commitment:
                    raise StateIntegrityError("it is not the pack that its entry commits to")
                self.report.values += len(self.ledger.atoms_in(key, self.storage.get([key])[0]))
            except DAMAGE as error:
                self.find("damage", key, str(error))
                self._stop_folding()

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
            self._stop_folding()
            return None
        self.line.rebase(root, {})
        return root

    # values that no entry names

    def _values(self, page: list[tuple[bytes, bytes]], ends: bool) -> None:
        if not page:
            return
        line = rows.line(b"V", self.ledger.number, self.line.number)
        first = rows.sequence_of(page[0][0])
        low = rows.pack(line, first if first > self.ledger.before + 1 else 0, 0)
        last = rows.sequence_of(page[-1][0])
        high = rows.pack(line, (self.head[0] if ends else last) + 1, 0)
        while found := self.storage.scan(low, high, limit=1000):
            for key, _ in found:
                if key not in self.packs:
                    self.find("unaccounted", key, "no entry names this pack")
            low = found[-1][0] + b"\0"
        self.packs.clear()

    def _signatures(self, page: list[tuple[bytes, bytes]], ends: bool) -> None:
        """Signatures that lie beside no checkpoint."""
        line = rows.line(b"C", self.ledger.number, self.line.number)
        first = rows.sequence_of(page[0][0]) if page else self.line.sequence + 1
        low = rows.entry(line, first if first > self.ledger.before + 1 else 0)
        last = self.head[0] if ends else rows.sequence_of(page[-1][0])
        high = rows.entry(line, last + 1)
        while found := self.storage.scan(low, high, limit=1000):
            for key, _ in found:
                if rows.sequence_of(key) not in self.points or len(key) != 22:
                    self.find("unaccounted", key, "it lies beside no checkpoint")
            low = found[-1][0] + b"\0"
        self.points.clear()

    # saves and nodes

    def _compare_save(self, save: tuple[int, int, bytes], key: bytes) -> None:
        """Check a saved index against the state that the entries give at that point."""
        at, kind, commitment = save
        row_key = rows.entry(rows.line(b"S", self.ledger.number, self.line.number), at)
        self.report.saves += 1
        try:
            plain = self.ledger.open_row(row_key, self.storage.get([row_key])[0])
            if self.ledger.commit_save(plain) != commitment:
                raise StateIntegrityError(f"it is not the one that {rows.describe(key)} announces")
            stored = read_save(plain)
            if stored.kind != kind:
                raise StateIntegrityError("it is of another kind than its entry says")
            self._save_trees(row_key, stored)
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

    def _save_trees(self, key: bytes, stored: Save) -> None:
        """Check that a save leads to the nodes that it names."""
        if stored.kind != DELTA:
            if stored.place:
                self.nodes.expect(tuple(stored.place), stored.root, key)
            return
        for name, packed in zip(stored.keys, stored.slots, strict=True):
            if not may_be_tree(packed):
                continue
            _, ref, hint = read_slot(name, packed)
            if refs.is_tree(ref):
                root = refs.read_tree(refs.bare(ref))[1]
                self.nodes.expect(hint[-4:], root, key)

    def _unannounced(self, below: int) -> None:
        """Saves, and packs of nodes, that no entry announces.

        An entry announces a save at its own number or at the one before it, so all below the
        newest entry that was read have been announced.
        """
        line = rows.line(b"S", self.ledger.number, self.line.number)
        low, high = rows.entry(line, self.checked), rows.entry(line, below)
        while page := self.storage.scan(low, high, limit=1000):
            for key, _ in page:
                if len(key) != rows.LENGTHS[b"S"] or rows.sequence_of(key) not in self.announced:
                    self.find("unaccounted", key, "no entry announces this save")
            low = page[-1][0] + b"\0"
        self._unused(self.checked, below)
        self.checked = below

    def _unused(self, low: int, high: int) -> None:
        """Packs of nodes, saved at these entries, that no entry announces."""
        line, saved = rows.line(b"N", self.ledger.number, self.line.number), self.with_nodes
        for at in saved[bisect_left(saved, low) : bisect_left(saved, high)]:
            if at not in self.announced:
                self.find("unaccounted", rows.pack(line, at, 0), "no save uses these nodes")

    def nodes_came(self) -> None:
        """Check what could not be, while the nodes were read elsewhere."""
        self.with_nodes = self.nodes.saved(self.line.number)
        self._unused(self.since, self.checked)

    def _behind(self) -> None:
        """What lies behind the newest entry that was looked at, and is not newer.

        A save at that entry's own number may be announced by the entry that follows it; nodes
        of a base are there before the anchor that announces it, however far behind that comes.
        """
        ledger, number = self.ledger, self.line.number
        first = self.head[0] + 1
        for kind, message in _BEHIND.items():
            line = rows.line(kind, ledger.number, number)
            low = rows.entry(line, first - (kind in b"SN"))
            for _ in range(ROUNDS):
                page = self.storage.scan(low, rows.after(line), limit=1000)
                if not page:
                    break
                newest = self.check.feed.newest(ledger.number, number)
                for key, _ in page:
                    sequence = rows.sequence_of(key)
                    said = sequence >= first or rows.of_base(key) or self._announced(sequence)
                    if len(key) != rows.LENGTHS[kind] or sequence > newest or not said:
                        self.find("feed" if kind == b"E" else "unaccounted", key, message)
                low = max(rows.entry(line, newest + 1), page[-1][0] + b"\0")

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

    def _uses_damaged(self, slot: Slot) -> bool:
        """Whether a value has something in a damaged row."""
        places: list[Any] = [place for _, place in leaves(self.ledger, slot.ref, slot.location)]
        return any(place is not None and place[:2] in self.damaged for place in places)
