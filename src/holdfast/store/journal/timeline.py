"""One line of a scope's history, as it is held in memory.

The state at an entry is the newest index saved before it and the fold of the entries since.
In memory that is a tree (`base`) and an `overlay` of the keys changed since; the tree is
changed only when a root is needed or a save is due.

Where a timeline was pruned, nothing but what is kept can be read below its floor: there a *base*,
a saved index that the anchor vouches for, stands in for the entries.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from operator import itemgetter
from typing import Any, Self, TypeVar

from holdfast.errors import (
    ChainError,
    DamagedIndexError,
    DamagedRecordError,
    NewerFormatError,
    PrunedError,
    ScopeNotFoundError,
    StateIntegrityError,
)
from holdfast.store.journal import entry
from holdfast.store.journal.declared import PREFIX, Declared, parse_declared
from holdfast.store.journal.entry import Body, split_row
from holdfast.store.journal.feed import Lanes
from holdfast.store.journal.floor import (
    announced_floor,
    floor_of,
    name_of,
    newest_told,
    pruned,
    read_base,
)
from holdfast.store.journal.ledger import Ledger, gone
from holdfast.store.journal.save import (
    BEFORE,
    DELTA,
    INDEX,
    NO_FLOOR,
    Floor,
    Save,
    read_save,
    read_slot,
)
from holdfast.store.journal.slot import Slot, edit_of, fold, keep_sticky, slot_of
from holdfast.store.names import rowkinds as rows
from holdfast.store.names.scope import SCOPED_LENGTH
from holdfast.store.tree.tree import Node, Trees

DELTAS = 64
"""Most deltas on one full save: what opening has to read at most."""
ATTEMPTS = 20
"""How often a state is read again that is being pruned meanwhile."""
DELTA_EVERY = 256
"""Entries between two saves: what opening and time travel have to replay at most."""
MOST_BEHIND = 4096
"""Keys that deltas may hold before the whole index is saved again."""
HEAVY = 1024
"""Atoms since the last save after which the next commit saves, whatever the entries."""
FOUND = 1024
"""Keys of the base that are remembered once looked up."""
TAIL = 256
"""Items appended to a list before they are worked into its tree."""


_S = TypeVar("_S", Slot, Slot | None)


class Timeline:
    """The newest known state of one timeline; or, as a copy, its state at an older entry."""

    def __init__(self, ledger: Ledger, number: int) -> None:
        self.ledger = ledger
        self.number = number
        self.lock = threading.RLock()  # index and overlay change together; who holds it reads on
        self.seen: object = None
        self.compared = False  # with what the feed names
        self.sequence = ledger.before
        self.prefix = rows.line(b"E", ledger.number, number)
        self.head = entry.first_hash(ledger.prefix, self.prefix)
        self.base: Node = ledger.trees.empty
        self._lazy: tuple[Any, bytes] | None = None
        self.overlay: dict[str, Slot | None] = {}
        self.stored: dict[str, bytes] = {}
        """Items of saved deltas, below the overlay: most are never looked at."""
        self.stranded: StateIntegrityError | None = None
        """Why the state cannot be made from what is stored; the entries still have their places."""
        self.order = (KeyOrder(), KeyOrder())
        """Of `stored` and of `overlay`, for ranges of keys."""
        self.found: dict[str, Slot] = {}
        """Keys of the base that were looked up."""
        self.fresh: set[str] = set()
        self.checkpoint = self.origin = self.merged = 0
        self.gone = False
        self._floor: Floor | None = NO_FLOOR
        self.bare = False
        """Made from entries alone: nor are states that these take over made from saved indexes."""
        self.saved = 0
        self.behind = 0
        self.deltas = 0
        self.atoms_since = self.earliest = self.latest = 0
        self.blocks: dict[str, int] = {}
        self.known: Declared | None = None
        self.told: float | None = None
        """How far ahead the wall clock was, as the newest entry written here says: whoever reads
        the timeline has to find a step in it, whatever else was written since."""
        self.lent: Node | None = None
        """Its tree as those begin with it who fork it, while it is not saved itself."""

    # loading

    def load(self, until: int | None = None, *, saves: bool = True) -> Self:
        """Read the state at the newest entry, or at entry `until`.

        A save that is damaged costs time, not state: then (or without `saves`) all entries are
        replayed. `verify` names it, and the next save takes its place.
        """
        try:
            self._load_whole(until, saves)
        except ScopeNotFoundError:  # erased while it was read
            self.sequence = self.ledger.before
        if self.sequence == self.ledger.before:  # no scope that is there has no entry
            self.gone = self.ledger.erased()
        if until is not None and self.sequence < until:
            scope = self.ledger.scope
            raise gone(scope) if self.gone else DamagedRecordError(f"{scope}: no entry {until}")
        return self

    def _load_whole(self, until: int | None, saves: bool) -> None:
        last = rows.LAST_SEQUENCE if until is None else until
        for attempt in range(1, ATTEMPTS + 1):
            self.bare = not saves
            # The newest state is mostly had without the floor: it is not read before it is needed.
            lazy = until is None and saves and attempt == 1
            self._floor = None if lazy else floor_of(self.ledger, self.number)
            known = (self._floor or NO_FLOOR).number  # on the way the newest one may be read
            try:
                self._load(last, saves)
                return
            except (PrunedError, StateIntegrityError) as error:
                # While it is pruned, or erased, what was found a moment ago may be gone.
                if attempt < ATTEMPTS and floor_of(self.ledger, self.number).number != known:
                    self.take_over(Timeline(self.ledger, self.number))
                    continue  # what was read was being pruned
                if isinstance(error, PrunedError) or not self.ledger.erased():
                    raise
                raise gone(self.ledger.scope) from None

    def compare(self, lanes: Lanes) -> None:
        """Refuse to write, for the first time, to one that ends before an entry that the feed
        names, and does not tell of that: what is written would take the number of a lost one."""
        ledger, last = self.ledger, lanes.named(self.ledger.number, self.number)
        if last > self.sequence:
            self.seen = None
            self.refresh()  # behind the feed: what that names was committed before
        if last > self.sequence and str(ledger.scope) not in lanes.recovered:
            known = newest_told(ledger, self.number)
            if known is None or last > known.last:
                key = rows.entry(self.prefix, self.sequence + 1)
                said = f"it is missing, and the feed names entries up to {last}"
                raise ledger.damage(key, f"{said}: nothing is written in its place")
        self.compared = True

    @property
    def floor(self) -> Floor:
        """Below which entry it was pruned."""
        if self._floor is None:
            self._floor = floor_of(self.ledger, self.number)
        return self._floor

    @floor.setter
    def floor(self, floor: Floor) -> None:
        self._floor = floor

    def _load(self, last: int, saves: bool) -> None:
        try:
            self._replay(last, self._take_saves(last) if saves else self._take_base(last))
        except DamagedIndexError:  # what was saved only saves time: the entries have it all
            fresh = Timeline(self.ledger, self.number)
            fresh.bare, fresh.floor = True, self.floor
            fresh._replay(last, fresh._take_base(last))
            self.take_over(fresh)

    def _take_base(self, last: int) -> dict[int, tuple[int, bytes]]:
        """Start from what is kept at the floor, or at entry `last` below it.

        Without a floor that is the first entry. No entry behind it has to vouch for a base: the
        anchor has.
        """
        floor, before = self._floor or NO_FLOOR, self.ledger.before
        if not floor.sequence or last <= before:
            return {}
        if not floor.holds(last, before):
            raise pruned(self.ledger, name_of(self.ledger, self.number), last, floor)
        at = min(last, floor.sequence)
        self._take(at, read_base(self.ledger, self.number, at, floor.bases[at]))
        return {}

    def strand(self, why: StateIntegrityError) -> Self:
        """Know where the timeline ends, though not its state: for looking back and for restoring.

        Envelopes are clear, so that the newest entry and the newest checkpoint are found without
        opening any body.
        """
        self.stranded = why
        self.floor = floor_of(self.ledger, self.number)
        for key, row in self.ledger.rows_of(b"E", self.number, limit=200, reverse=True):
            if self.sequence == self.ledger.before:
                self.sequence, self.head = rows.sequence_of(key), bytes(32)
                with suppress(DamagedRecordError):  # what follows a lost one names no hash
                    self.head = self.ledger.entry_hash(key, self.ledger.envelope(key, row).data)
            if row[1:2] == b"\1":
                self.checkpoint = rows.sequence_of(key)
                break
        return self

    def take_over(self, other: Timeline) -> None:
        """Become what another one is."""
        for name, value in vars(other).items():
            if name not in ("lock", "told"):
                setattr(self, name, value)

    def _take_saves(self, last: int) -> dict[int, tuple[int, bytes]]:
        """Start from the newest save that is whole; returns what the chain must say of it."""
        floor = self._floor or NO_FLOOR
        if last <= floor.sequence:
            return self._take_base(last)
        line = rows.line(b"S", self.ledger.number, self.number)
        low, high = rows.entry(line, floor.sequence + 1), rows.entry(line, last) + b"\0"
        saves: list[tuple[int, Save, bytes]] = []
        for key, row in self.ledger.storage.scan(low, high, limit=DELTAS + 1, reverse=True):
            plain = self.ledger.open_row(key, row)
            save = read_save(plain)
            saves.append((rows.sequence_of(key), save, self.ledger.commit_save(plain)))
            if save.kind != DELTA:
                break
        if not saves or saves[-1][1].kind == DELTA:
            self._take_base(last)
            if not floor.sequence or not saves:
                return {}
        for sequence, save, _ in reversed(saves):
            self._take(sequence, save)
        return {saves[0][0]: (saves[0][1].kind, saves[0][2])}

    def _take(self, sequence: int, save: Save) -> None:
        if save.kind != DELTA:
            self.overlay, self.stored = {}, {}
            self._lazy = (tuple(save.place), save.root) if save.place else None
            self.base = self.ledger.trees.empty
            self.deltas = 0
        else:
            self.stored.update(zip(save.keys, save.slots, strict=True))
            self.deltas += 1
        self.saved = sequence
        self.sequence = sequence - (save.kind == BEFORE)
        self.head = save.head
        self.checkpoint = save.checkpoint
        self.origin, self.merged = save.origin, save.merged
        self.behind = save.behind

    # following

    def _replay(self, last: int, announced: dict[int, tuple[int, bytes]], again: int = 0) -> bool:
        """Apply the entries behind the save; one of them must vouch for it.

        Tells whether entry `again`, applied before, is there: no more if the scope is erased.
        """
        limit = 1000
        stands = False
        while self.sequence < last:
            page = self.ledger.storage.scan(
                rows.entry(self.prefix, again or self.sequence + 1),
                rows.entry(self.prefix, last) + b"\0",
                limit=limit,
            )
            for key, row in page:
                if again and rows.sequence_of(key) == again:
                    stands = True
                    continue
                body = self.follow(key, row)
                if body.save and body.save[0] in announced:
                    kind, hash_ = announced.pop(body.save[0])
                    if (body.save[1], body.save[2]) != (kind, hash_):
                        raise DamagedIndexError(
                            f"{self.ledger.scope}: an index save is not the one that was announced"
                        )
            again = 0
            if len(page) < limit:
                break
        if announced and (next(iter(announced)) != self.sequence or not self._fits(last)):
            raise DamagedIndexError(f"{self.ledger.scope}: no entry vouches for an index save")
        return stands

    def _fits(self, last: int) -> bool:
        """Whether a save can be of this timeline, which ends here: its entries may be lost.

        An older state that was asked for is had from it though its entry is missing or damaged.
        """
        key = rows.entry(self.prefix, self.sequence)
        row = self.ledger.storage.get([key])[0]
        if row is None:
            return last < rows.LAST_SEQUENCE
        try:
            return self.ledger.entry_hash(key, split_row(row)[0].data) == self.head
        except StateIntegrityError:
            return True  # damaged, it contradicts nothing; `verify` names it

    def follow(self, key: bytes, row: bytes | None) -> Body:
        """Check the next entry against the chain and apply it."""
        sequence = rows.sequence_of(key)
        if sequence != self.sequence + 1:
            raise self._broken(f"entry {self.sequence + 1} is missing before entry {sequence}")
        envelope, body = self.ledger.open_entry(key, row)
        if envelope.before != self.head:
            raise self._broken(f"entry {sequence} does not follow from the entry before it")
        self.apply(sequence, body, checkpoint=envelope.statement is not None)
        self.head = self.ledger.entry_hash(key, envelope.data)
        return body

    def _broken(self, what: str) -> ChainError:
        return ChainError(f"{self.ledger.scope}: the chain is broken: {what}")

    def feed_of(self, sequence: int, body: Body) -> Iterator[tuple[bytes, Any]]:
        """(ref, place) of an entry's atoms, in the order in which its operations take them."""
        ref_of, number = self.ledger.splitter.ref_of, self.number
        line = rows.line(b"V", self.ledger.number, number)
        for ordinal in range(len(body.packs) + 1):
            atoms = body.atoms  # in the entry itself, and then in packs
            if ordinal:
                key = rows.pack(line, sequence, ordinal)
                atoms = self.ledger.atoms_in(key, self.ledger.storage.get([key])[0])
            for index, data in enumerate(atoms):
                ref = ref_of(data)
                yield ref, ((number, sequence, ordinal, index) if ref[0] else None)

    # applying

    def apply(self, sequence: int, body: Body, *, checkpoint: bool = False) -> None:
        """Fold one entry into the state."""
        if body.save and body.save[0] > self.saved:
            self.note_save(body.save[0], body.save[1], len(self.fresh))
            self.fresh = set()
        feed = self.feed_of(sequence, body)
        for op in body.ops:
            if op[0] <= entry.DELETE and op[1].startswith(PREFIX):
                self.redeclare()
            self.apply_op(sequence, op, feed)
        if checkpoint:
            self.checkpoint = sequence
        self.sequence = sequence
        self.atoms_since += len(body.atoms) + 8 * len(body.packs)
        self.latest = max(self.latest, body.time)  # of those since the last save
        self.earliest = min(self.earliest or body.time, body.time)

    def apply_op(self, sequence: int, op: Any, feed: Iterator[tuple[bytes, Any]]) -> None:
        """Fold one operation into the state."""
        code = op[0]
        if code in entry.KEYED:
            self.overlay[op[1]] = self.changed(sequence, op, feed, self.slot)
            self.fresh.add(op[1])
        elif code in (entry.RESTORE, entry.FORK):
            self.become(op[1], op[2], op[3], sequence, op[4] if len(op) > 4 else ())
        elif code in (entry.GONE, entry.END):
            self.gone = True
        elif code == entry.MERGE:
            self.merged = sequence
        elif code == entry.PRUNE:
            self.floor = announced_floor(self.floor, sequence, op)
        elif code not in (entry.CHECKPOINT, entry.REKEY, entry.LOST, entry.TAKEN, entry.SPOILT):
            raise NewerFormatError(
                f"{self.ledger.scope}: entry {sequence} holds an operation that this version does "
                "not know; use the newest version of Holdfast"
            )

    def changed(
        self, sequence: int, op: Any, feed: Iterator[tuple[bytes, Any]], find: Any
    ) -> Slot | None:
        """The slot of the key after an operation that names it."""
        code, key = op[0], op[1]
        if code == entry.DELETE:
            return None
        grower = self.ledger.grower
        try:
            if code == entry.SET:
                ref, location = next(feed) if op[2] == 1 else grower.grow(op[2], feed)
                return Slot(ref, location, self.number, sequence)
            old = find(key)
            if code == entry.META:
                return old.with_meta(op[2])  # type: ignore[no-any-return]
            if code == entry.PATCH:
                old = self.settled(old)
                ref, location = grower.patch(old.ref, old.location, op[2], feed)
                return Slot(ref, location, self.number, sequence)
            tail = (old.tail or ()) + tuple(grower.elements(None, op[2], feed))
            slot = Slot(old.ref, old.location, self.number, sequence, tail, old.meta)
            return self.settled(slot) if len(tail) > TAIL else slot
        except (StopIteration, AttributeError, TypeError, ValueError, IndexError):
            raise DamagedRecordError(
                f"{self.ledger.scope}: entry {sequence} cannot be applied to {key!r}"
            ) from None

    def settled(self, slot: _S) -> _S:
        """The slot with appended items worked into the list's tree."""
        if slot is None or not slot.tail:
            return slot
        ref, root = self.ledger.grower.extend(slot.ref, slot.location, list(slot.tail))
        return Slot(ref, root, slot.timeline, slot.sequence, None, slot.meta)

    def become(
        self, timeline: int, sequence: int, root: bytes, at: int, sticky: Sequence[str] = ()
    ) -> None:
        """Take over the state at an older entry, of this or another timeline of the scope.

        Keys under the prefixes `sticky` stay as they are.

        The save that a restore or fork writes for itself makes this rare: only a reader that
        comes by way of the entries needs it.
        """
        # Else the save that was written with this entry is what we stand on.
        if self.overlay or self.stored or self.root().hash != root:
            trees = self.ledger.trees
            then = trees.empty
            if sequence:
                then = folded_at(self.ledger, timeline, sequence, saves=not self.bare)
            if sticky:
                then = keep_sticky(trees, then, self.folded(), tuple(sticky)).root
            self.rebase(then, {})
        if self.base.hash != root:
            raise DamagedRecordError(
                f"{self.ledger.scope}: the state restored by entry {at} is not the one it names"
            )
        self.fresh = set()
        self.origin, self.merged = at, 0
        self.redeclare()

    # reading

    def root(self) -> Node:
        """The tree below the overlay, loaded when first needed."""
        if self.stranded is not None:
            raise self.stranded
        if self._lazy is not None:
            self.base = self.ledger.trees.load(*self._lazy)
            self._lazy = None
        return self.base

    def slot(self, key: str) -> Slot | None:
        """What is known of a key; None if it is not there."""
        # The overlay is looked at first: a fold that runs meanwhile only moves keys from it
        # into a new base, which is in place before the overlay is emptied.
        overlay = self.overlay
        if key in overlay:
            return overlay[key]
        if key in self.stored:
            packed = self.stored[key]
            return slot_of(read_slot(key, packed)) if packed else None
        found = self.found  # taken before the base, so that it is never newer than that
        slot = found.get(key)
        if slot is None:
            slot = self.slot_in(self.ledger, self.root(), key)
            if slot is not None:
                if len(found) >= FOUND:
                    found.clear()
                found[key] = slot
        return slot

    @staticmethod
    def slot_in(ledger: Ledger, root: Node, key: str) -> Slot | None:
        """What an index says of a key."""
        element = ledger.trees.find(root, key)
        return slot_of(element) if element is not None else None

    @property
    def declared(self) -> Declared:
        """What is declared of the scope, in this state of it."""
        found = self.known
        if found is None:
            with self.lock:
                found = parse_declared(self.ledger.scope, self.scan(PREFIX), self._plain)
                self.known = found
        return found

    def _plain(self, slot: Slot) -> Any:
        return self.ledger.value(slot.ref, slot.location, self.ledger.codec.plain_reader)

    def redeclare(self) -> None:
        """What is declared may have changed: it is looked up when next asked for."""
        self.known = None

    def version(self, slot: Slot | None) -> int:
        """The entry of this timeline that gave a key its present value; 0 if it is absent."""
        if slot is None:
            return 0
        if slot.timeline == self.number and slot.sequence > self.origin:
            return slot.sequence
        return self.origin or slot.sequence

    def edits(self) -> list[tuple[str, bytes | None, Any]]:
        """The overlay as edits of the tree, in key order."""
        found: list[tuple[str, bytes | None, Any]] = []
        for key in sorted({**self.stored, **self.overlay}):
            if key in self.overlay:
                slot = self.overlay[key] = self.settled(self.overlay[key])
                found.append(edit_of(key, slot))
            else:
                packed = self.stored[key]
                found.append(read_slot(key, packed) if packed else (key, None, None))
        return found

    def folded(self) -> Node:
        """The index as one tree: base and overlay. Nothing is changed."""
        return fold(self.ledger.trees, self.root(), self.edits())

    def rebase(self, base: Node, overlay: dict[str, Slot | None]) -> None:
        """Stand on another tree. The base comes first: see `slot`."""
        self.base, self._lazy, self.stranded = base, None, None
        self.found = {}
        self.stored = {}
        self.overlay = overlay

    def note_save(self, at: int, kind: int, keys: int) -> None:
        """A save was written; what is counted since then begins anew."""
        self.saved = at
        self.deltas = self.deltas + 1 if kind == DELTA else 0
        self.behind = self.behind + keys if kind == DELTA else 0
        self.atoms_since = self.earliest = self.latest = 0

    def refresh(self, token: object = None) -> None:
        """Follow entries that others have committed; `token` is the storage's version now."""
        if token is None:
            token = self.ledger.storage.version()
        if token == self.seen:
            return
        with self.lock:
            try:
                stands = self._replay(rows.LAST_SEQUENCE, {}, self.sequence)
            except PrunedError:  # where it stood lies below a floor now
                self.take_over(Timeline(self.ledger, self.number).load())
                stands = True
            except ScopeNotFoundError:  # erased while it was read
                stands = False
            except StateIntegrityError as error:  # of what was erased rows go one by one
                stands = not self.ledger.erased()
                if stands and not isinstance(error, DamagedRecordError):
                    raise
                if stands:  # as who opens the store now: rows were pruned, or passed by a restore
                    self.take_over(Timeline(self.ledger, self.number).load())
            self.gone = self.gone or (not stands and self.ledger.erased())
            self.seen = token

    def scan(self, prefix: str = "", after: str = "") -> Iterator[tuple[str, Slot]]:
        """Keys and slots in key order, of one moment."""
        found = timeline_range(self, max(prefix, after), behind(prefix))
        return ((one[0], slot_from(one)) for one in found if one[0] != after)

    # saving

    def due(self, patient: int = 1) -> int | None:
        """Which kind of save the next commit should write, if any."""
        if self.stranded is not None:
            return None  # there is no state to save
        since = self.sequence - max(self.saved, self.ledger.before)
        if since < DELTA_EVERY * patient and (self.atoms_since < HEAVY or patient > 1):
            return None
        enough = max(8 * DELTA_EVERY, min(self.root().count // 8, MOST_BEHIND))
        if self.saved == 0 or self.deltas >= DELTAS - 1 or self.behind + len(self.fresh) >= enough:
            return INDEX
        return DELTA


def folded_at(ledger: Ledger, timeline: int, sequence: int, *, saves: bool = True) -> Node:
    """The index at an entry, made from entries alone where a saved one is damaged."""
    try:
        return Timeline(ledger, timeline).load(sequence, saves=saves).folded()
    except DamagedIndexError:  # a saved index only saves time
        return Timeline(ledger, timeline).load(sequence, saves=False).folded()


# ---- ranges of keys -----------------------------------------------------------------------------
# A range of keys, in either direction, of an index and what changed.


Found = tuple[str, Any]
"""A key, and what is known of it in whatever form that is held: see `slot_from`."""


def behind(prefix: str) -> str:
    """The least text that sorts behind all that begin with one; behind all keys if it is empty."""
    text = prefix.rstrip("\U0010ffff")
    if not text:
        return "\U0010ffff" * (SCOPED_LENGTH + 1)
    last = ord(text[-1]) + 1
    return text[:-1] + chr(last if last != 0xD800 else 0xE000)


def timeline_range(
    timeline: Timeline, low: str, high: str, *, reverse: bool = False
) -> Iterator[Found]:
    """Keys from `low` to below `high`, of one moment."""
    base, changed = _held(timeline, low, high)
    return _merged(timeline.ledger.trees, base, changed, low, high, reverse)


def staged_range(
    timeline: Timeline, base: Node | None, overlay: Mapping[str, Any], low: str, high: str
) -> Iterator[Found]:
    """Keys from `low` to below `high` where entries are being built: an overlay on the timeline's
    own, or on an index in place of it."""
    changed: dict[str, Any] = {}
    if base is None:
        base, changed = _held(timeline, low, high)
    changed |= {key: held for key, held in overlay.items() if low <= key < high}
    return _merged(timeline.ledger.trees, base, changed, low, high, False)


def _held(timeline: Timeline, low: str, high: str) -> tuple[Node, dict[str, Any]]:
    """The tree, and what is held above it of the keys of a range, removed ones as None or empty."""
    with timeline.lock:  # of one moment
        below, above = timeline.order
        changed = below.within(timeline.stored, low, high)
        return timeline.root(), changed | above.within(timeline.overlay, low, high)


def count_below(trees: Trees, root: Node, prefix: str) -> int:
    """How many keys of an index begin with a text."""
    return _below(trees, root, behind(prefix)) - _below(trees, root, prefix)


def _below(trees: Trees, node: Node, key: str) -> int:
    """How many keys sort before one."""
    count = 0
    while True:
        position: int = bisect_left(node.elements, key, key=itemgetter(0))
        if node.level == 0:
            return count + position
        count += sum([int(element[3]) for element in node.elements[:position]])
        if position == len(node.elements):
            return count
        node = trees.load(node.elements[position][2], node.elements[position][1])


def slot_from(found: Found) -> Slot:
    """The slot of what a range gave."""
    key, held = found
    if type(held) is Slot:
        return held
    return slot_of(read_slot(key, held) if type(held) is bytes else held)


class KeyOrder:
    """The keys of a layer in order: a layer gets more keys, or another takes its place."""

    __slots__ = ("_keys", "_layer")

    def __init__(self) -> None:
        self._layer: Mapping[str, Any] = {}
        self._keys: list[str] = []

    def within(self, layer: Mapping[str, Any], low: str, high: str) -> dict[str, Any]:
        """What the layer says of the keys of a range."""
        if layer is not self._layer:
            self._layer, self._keys = layer, []
        keys = self._keys
        if len(keys) != len(layer):
            keys += islice(layer, len(keys), None)  # new ones come last, and sorting is soon done
            keys.sort()
        found = keys[bisect_left(keys, low) : bisect_left(keys, high)]
        return {key: layer[key] for key in found}


def _merged(
    trees: Trees, base: Node, changed: dict[str, Any], low: str, high: str, reverse: bool
) -> Iterator[Found]:
    mine = sorted(changed, reverse=not reverse)  # the next one last
    for element in trees.walk_back(base, high) if reverse else trees.walk(base, low):
        key = element[0]
        if (key < low) if reverse else (key >= high):
            break
        while mine and ((mine[-1] > key) if reverse else (mine[-1] < key)):
            name = mine.pop()
            if changed[name]:
                yield name, changed[name]
        if mine and mine[-1] == key:
            mine.pop()
            if changed[key]:
                yield key, changed[key]
        else:
            yield key, element
    for name in reversed(mine):
        if changed[name]:
            yield name, changed[name]
