"""Building entries on a timeline before they are durable.

A stage is what the next entries rest on while a group is being put together. Readers see
nothing of it; it becomes the timeline's state when the commit has returned, and is dropped when
the commit has failed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import msgspec

from holdfast.errors import (
    Conflict,
    DamagedIndexError,
    DamagedRecordError,
    LimitExceededError,
    MissingError,
    ScopeNotFoundError,
)
from holdfast.seal.codec import MOST_WHOLE
from holdfast.seal.sealer import write_varint
from holdfast.store.journal import entry
from holdfast.store.journal.declared import (
    NOTHING,
    PREFIX,
    CheckingDeclaration,
    Declared,
    Plan,
    parse_declared,
)
from holdfast.store.journal.entry import Body, Statement
from holdfast.store.journal.feed import FeedItem
from holdfast.store.journal.ledger import PACK, Ledger
from holdfast.store.journal.lifetime import NONE, Meta
from holdfast.store.journal.save import BEFORE, DELTA, INDEX, NO_FLOOR, Save, pack_slot
from holdfast.store.journal.slot import Slot, edit_of, fold, meta_of, slots_in
from holdfast.store.journal.timeline import Found, Timeline, behind, slot_from, staged_range
from holdfast.store.names import rowkinds
from holdfast.store.names import rowkinds as rows
from holdfast.store.names.clock import STEP, Clock
from holdfast.store.names.scope import RESERVED
from holdfast.store.names.threads import SHORT, Breath
from holdfast.store.rules.classes import (
    EXTERNAL,
    SENSITIVE,
    STANDARD,
    any_sensitive,
    check_external,
    class_of,
    inferred,
)
from holdfast.store.rules.keep import going
from holdfast.store.rules.sticky import sticky_prefixes
from holdfast.store.rules.subjects import no_list
from holdfast.store.tree import refs
from holdfast.store.tree.split import Atom, Branch, Part, array_header, read_array_header
from holdfast.store.tree.tree import Node, Place, placed
from holdfast.store.tree.value import emit, emit_parts

Sign = Callable[[bytes, Callable[[Statement], bytes]], Statement]
"""Makes a checkpoint's statement from the entry's key and the envelope around a statement."""
_encode = msgspec.msgpack.Encoder().encode
_BYTE = [bytes([n]) for n in range(128)]
Laid = Sequence[tuple[Any, bytes, bytes]]
"""(place, ref, data) of atoms that are not stored yet."""
Ops = Sequence[tuple[Any, ...]]
"""What a caller asked for."""
Lookups = Callable[["Stage", Ops, "Packer"], Callable[[int, list[Any]], None] | None]
"""What keeps the lookups: called before the operations of an entry are applied, it gives what is to
be called behind them, with the entry's number and what it says so far."""


class Stage:
    """The state that the next entry of a timeline rests on."""

    def __init__(self, timeline: Timeline, clock: Clock, lookups: Lookups) -> None:
        self.timeline = timeline
        self.clock = clock
        self._lookups = lookups
        self.ledger = timeline.ledger
        self.start = timeline.sequence
        self.sequence = timeline.sequence
        self.head = timeline.head
        self.base: Node | None = None
        self.overlay: dict[str, Slot | None] = {}
        self.fresh: set[str] = set()
        self.checkpoint = timeline.checkpoint
        self.origin, self.merged = timeline.origin, timeline.merged
        self.gone = timeline.gone
        self.rows: list[tuple[bytes, bytes]] = []
        self.absent: list[bytes] = []
        self.cells: list[tuple[bytes, bytes | None, bytes | None]] = []
        self.behind: FeedItem | None = None
        """The entry of another timeline that this one begins behind."""
        self.laid: list[tuple[Any, bytes, bytes]] = []
        self.bodies: list[Body] = []
        self.announce: tuple[int, int, bytes] | None = None
        self.saves: list[tuple[int, int, list[Node], dict[int, Place], int]] = []
        self.remember: dict[str, Branch] = {}
        self.blocks: dict[str, int] = {}
        self.unruled = timeline.known is NOTHING
        """Whether it is known, without looking, that nothing is declared."""
        self._declared: Declared | None = None
        self._redeclared = False
        self._now = 0
        self._told = self.ahead = timeline.told if timeline.told is not None else clock.begun
        """How far ahead the wall clock is, and what the entries so far say of it."""

    # state

    @property
    def now(self) -> int:
        """The time by which expiry is judged: one for all that is committed together."""
        if not self._now:
            self._now = self.clock.checked()
        return self._now

    def live(self, key: str) -> Slot | None:
        """What is known of a key, unless it has expired."""
        slot = self.slot(key)
        return None if slot is not None and slot.meta and slot.over(self.now) else slot

    def slot(self, key: str) -> Slot | None:
        """What is known of a key after the entries staged so far."""
        if key in self.overlay:
            return self.overlay[key]
        if self.base is not None:
            return Timeline.slot_in(self.ledger, self.base, key)
        return self.timeline.slot(key)

    def range(self, low: str, high: str) -> Iterator[Found]:
        """Keys from `low` to below `high` after the entries staged so far."""
        return staged_range(self.timeline, self.base, self.overlay, low, high)

    def version(self, key: str) -> int:
        """The entry that wrote a key, 0 if it is absent."""
        slot = self.live(key)
        if slot is None:
            return 0
        if slot.timeline == self.timeline.number and slot.sequence > self.origin:
            return slot.sequence
        return self.origin or slot.sequence

    def fold(self) -> Node:
        """The index as one tree; the next entries build on it."""
        timeline = self.timeline
        if self.base is None:
            self.base = timeline.folded()
        if self.overlay:
            keys = sorted(self.overlay)
            edits = [edit_of(key, timeline.settled(self.overlay[key])) for key in keys]
            self.base = fold(self.ledger.trees, self.base, edits)
            self.overlay = {}
        return self.base

    def read(self, key: str) -> Any:
        """The value of a key in plain form, as it was before this group; None if there is none."""
        slot = self.timeline.slot(key)
        if slot is None:
            return None
        settled, codec = self.timeline.settled(slot), self.ledger.codec.plain_reader
        return self.ledger.value_of(key, settled, codec)

    def rule(self, key: str) -> Plan | None:
        """What is declared of writes to a key; None if nothing is. Declaring must not need what is
        declared, which may be just what cannot be read."""
        return None if self.unruled or key.startswith(PREFIX) else self.declared.rule(key)

    def ephemeral(self, key: str) -> bool:
        """Whether a key lives in the process only."""
        rule = self.rule(key)
        return rule is not None and rule.ephemeral

    @property
    def declared(self) -> Declared:
        """What is declared of the scope after the entries staged so far."""
        if not self._redeclared:
            known = self.timeline.known
            return known if known is not None else self.timeline.declared
        if self._declared is None:
            keys = ((one[0], slot_from(one)) for one in self.range(PREFIX, behind(PREFIX)))
            self._declared = parse_declared(self.ledger.scope, keys, self._short_value)
        return self._declared

    def _redeclare(self) -> None:
        self._declared, self._redeclared, self.unruled = None, True, False

    def _put(self, key: str, slot: Slot | None) -> None:
        self.overlay[key] = slot
        self.fresh.add(key)
        if key.startswith(PREFIX):
            self._redeclare()

    # operations

    def add(self, ops: Sequence[tuple[Any, ...]], body: Body) -> None:
        """Build the next entry from what the caller asked for."""
        sequence = self.sequence + 1
        packer = Packer(self.ledger, self.timeline.number, sequence)
        follow, ruled = None, not self.unruled
        for op in ops:
            ruled = ruled or op[1][:1] == RESERVED
        if ruled:
            follow = self._lookups(self, ops, packer)
        for op in ops:
            operate(self, sequence, op, packer, body.ops)
        if follow is not None:
            follow(sequence, body.ops)
        self.finish(body, packer)

    def finish(self, body: Body, packer: Packer | None = None, sign: Sign | None = None) -> None:
        """Seal the next entry and chain it."""
        ledger, timeline, seal = self.ledger, self.timeline, self.ledger.seal
        sequence = self.sequence + 1
        key = timeline.prefix + sequence.to_bytes(5, "big")
        if self.announce is not None:
            body.save, self.announce = self.announce, None
        if abs(self.ahead - self._told) >= STEP:
            body.step, self._told = round(self.ahead - self._told), self.ahead
        pack_rows: list[tuple[bytes, bytes]] = []
        quiet = False
        if packer is not None:
            quiet, body.atoms = packer.quiet, packer.packs[0]
            if len(packer.packs) > 1:
                pack_rows, body.packs = packer.rows()
        if (
            body.cause
            or body.save
            or body.packs
            or body.change
            or body.also
            or body.reads
            or body.step
        ):
            plain = entry.encode_body(body)
        else:  # as most are: the same without what is empty
            plain = _encode((body.time, body.ops, body.atoms))
        commitment = ledger.commit_body(plain)
        writer, epoch, statement = seal.writer, seal.epoch, None
        if sign is not None:
            around = (writer, epoch, self.head, commitment)
            statement = sign(key, partial(entry.make_envelope, *around))
            envelope = entry.make_envelope(*around, statement)
            self.checkpoint = sequence
        else:
            front = b"\1\0" + writer + (_BYTE[epoch] if epoch < 128 else write_varint(epoch))
            envelope = front + self.head + commitment
        sealed = seal.seal(
            ledger.ad(key) + envelope,
            plain,
            commitment,
            writer_outside=True,
            writer=writer,
            quiet=quiet,
        )
        if len(envelope) + len(sealed) > ledger.storage.limits.max_record:
            # Found here, only this change fails and not all that are committed with it.
            raise LimitExceededError(
                f"{ledger.scope}: the keys and names of this change do not fit into one entry; "
                "make several changes, or several values"
            )
        self.rows.append((key, envelope + sealed))
        if packer is not None:
            self.rows += pack_rows
            self.laid += packer.laid
        self.bodies.append(body)
        self.head = ledger.entry_hash(key, envelope)
        self.sequence = sequence

    def _set(self, sequence: int, key: str, part: Part, packer: Packer, *, how: int = 0) -> Any:
        if type(part) is Atom:
            ref, place = packer.lay(part)
            self._put(key, Slot(ref, place, self.timeline.number, sequence))
            return [entry.SET, key, 1, how] if how else [entry.SET, key, 1]
        assert type(part) is Branch
        tail = [how] if how else []
        old = self.slot(key)
        atoms: list[Atom] = []
        op: list[Any] | None = None
        if old is not None and refs.is_tree(old.ref):
            with suppress(DamagedIndexError, DamagedRecordError):  # then all of it is written
                old = self.timeline.settled(old)
                # A patch keeps parts of the value before: on damage it would stay damaged for ever.
                if part.before is None or part.before.ref != old.ref or self.ledger.met_damage:
                    self.ledger.check_value(old.ref, old.location)
                steps = self.ledger.grower.difference(old.ref, old.location, part, atoms)
                if steps is not None:
                    op = [entry.PATCH, key, steps]
        if op is None:
            atoms = []
            op = [entry.SET, key, emit(part, atoms), *tail]
        feed = iter([packer.lay(atom) for atom in atoms])
        slot = self.timeline.changed(sequence, op, feed, lambda _: old)
        assert slot is not None
        self._put(key, slot)
        part.ref = slot.ref
        self.remember[key] = part
        return op

    def _append(
        self, sequence: int, key: str, parts: list[Part], packer: Packer, old: Slot | None
    ) -> Any:
        length = old.length() if old is not None else None
        if length is not None:
            self._check_length(key, length + len(parts))
            atoms: list[Atom] = []
            op = [entry.APPEND, key, emit_parts(parts, atoms)]
            feed = iter([packer.lay(atom) for atom in atoms])
            self._put(key, self.timeline.changed(sequence, op, feed, lambda _: old))
            return op
        joined = self._lengthened(key, old, parts, packer.laid)
        if joined is None:
            joined = self._joined(key, self._items_of(key, old, packer.laid) + parts)
        return self._set(sequence, key, joined, packer, how=entry.APPENDED)

    def _lengthened(self, key: str, old: Slot | None, parts: list[Part], laid: Laid) -> Part | None:
        """A short list with more items, made of its bytes; None if it is none or becomes long."""
        if old is None or old.ref[0] > refs.ATOM:
            return None
        ledger = self.ledger
        data = self.atom(old.ref, old.location, laid)
        header = read_array_header(data)
        if header is None or not all(type(part) is Atom for part in parts):
            return None
        count, start = header[0] + len(parts), header[1]
        added = [part.data(ledger.codec) for part in parts]  # type: ignore[union-attr]
        joined = b"".join((array_header(count), data[start:], *added))
        self._check_length(key, count, len(joined))
        return ledger.splitter.atom(joined) if len(joined) <= refs.WHOLE else None

    def _items_of(self, key: str, old: Slot | None, laid: Laid) -> list[Part]:
        """The items of a list that is so short that it is kept whole."""
        if old is None:
            return []
        codec, splitter = self.ledger.codec, self.ledger.splitter
        value = self._short_value(old, laid)
        if type(value) is not list:
            raise no_list(self.ledger, key, old, value, stored=old.sequence <= self.start)
        return [splitter.atom(codec.encode(codec.plain(item))) for item in value]

    def _short_value(self, slot: Slot, laid: Laid = ()) -> Any:
        """The value of a slot in plain form, None if it is kept as a tree.

        `laid` are the atoms of the entry that is being built now.
        """
        if refs.is_tree(slot.ref):
            return None
        return self.ledger.codec.plain_reader.decode(self.atom(slot.ref, slot.location, laid))

    def atom(self, ref: bytes, place: Any, laid: Laid = ()) -> bytes:
        """The bytes of an atom; one of this group cannot be read from storage yet."""
        if ref[0] == refs.ATOM and place[1] > self.start:
            for some in (laid, self.laid):
                for at, found, data in reversed(some):
                    if at == place and found == ref:
                        return bytes(data)
        return self.ledger.atom(ref, place)

    def _joined(self, key: str, parts: list[Part]) -> Part:
        """A list of parts: one atom if it is short, else a branch."""
        if all(type(part) is Atom for part in parts):
            encoded = [part.data(self.ledger.codec) for part in parts]  # type: ignore[union-attr]
            data = array_header(len(parts)) + b"".join(encoded)
            self._check_length(key, len(parts), len(data))
            if len(data) <= refs.WHOLE:
                return self.ledger.splitter.atom(data)
        return Branch(refs.LIST, parts)

    def _check_length(self, key: str, items: int, size: int = 0) -> None:
        """Refuse a list that nobody could set; of a long one only the items are counted."""
        limits = self.ledger.codec.limits
        if items > limits.items or size > limits.size:
            raise LimitExceededError(
                f"{self.ledger.scope}: the list {key!r} would be longer than {limits.items} items "
                f"or {limits.size} bytes; begin another, or give limits=holdfast.ValueLimits(...)"
            )

    def become(self, root: Node, sequence: int) -> None:
        """Stand on another state from the entry that is built now on."""
        self.base = root
        self.overlay = {}
        self.fresh = set()
        self.origin, self.merged = sequence, 0
        self._redeclare()

    # saving

    def save(self, kind: int) -> None:
        """Write the index, or what changed in it, with the entry that is built next."""
        timeline = self.timeline
        at = self.sequence + (kind == BEFORE)
        root: Node | None = None
        keys: list[str] = []
        packed: list[bytes] = []
        slots: dict[str, Slot | None] = {}
        breath = Breath(SHORT)
        if kind == DELTA:
            slots = self._changed_slots(breath)
            roots = [s.location for s in slots.values() if s and type(s.location) is Node]
        else:
            root = self.fold()
            roots = [root] if root.count else []
        nodes: list[Node] = []
        for tree_root in roots:
            self.ledger.trees.unsaved(tree_root, nodes, breath)
        saved = slots_in(nodes) if root else [{k: s.meta for k, s in slots.items() if s}]
        quiet = any_sensitive(saved, lambda: self.declared)
        places: dict[int, Place] = {}
        start = (timeline.number, at, 0)
        packs = list(node_packs(self.ledger, start, nodes, places, quiet=quiet))
        if kind == DELTA:
            keys, packed = [*slots], [_packed(slot, places) for slot in slots.values()]
        place: Any = (root.place or places[id(root)]) if root and root.count else 0
        plain = _encode(
            Save(
                kind,
                self.saves[-1][0] if self.saves else timeline.saved,
                self.head,
                self.checkpoint,
                self.origin,
                *self._times(),
                root.hash if root else b"",
                place,
                keys,
                packed,
                timeline.behind + len(keys) if kind == DELTA else 0,
                self.merged,
            )
        )
        if kind == DELTA and len(plain) > MOST_ATOM:
            self.save(INDEX)  # a delta must fit into one row
            return
        row_key = rowkinds.entry(rowkinds.line(b"S", self.ledger.number, timeline.number), at)
        commitment = self.ledger.commit_save(plain)
        row = self.ledger.seal.seal(self.ledger.ad(row_key), plain, commitment, quiet=quiet)
        self.rows.extend(packs)
        self.rows.append((row_key, row))
        self.announce = (at, kind, commitment)
        self.saves.append((at, kind, nodes, places, len(keys)))
        self.fresh = set()

    def _changed_slots(self, breath: Breath) -> dict[str, Slot | None]:
        """What the keys are now that changed since the save before."""
        slots: dict[str, Slot | None] = {}
        for number, key in enumerate(sorted(self.timeline.fresh | self.fresh)):
            slots[key] = slot = self.slot(key)
            if not number & 31:
                breath()
            if slot is not None and slot.tail:
                breath()
                slots[key] = self.timeline.settled(slot)
        return slots

    def _times(self) -> tuple[int, int]:
        """Least and greatest claimed time of the entries since the save before."""
        times: list[int] = []
        first = 0
        if self.saves:
            at, kind = self.saves[-1][:2]
            first = at - (kind == BEFORE) - self.start
        elif self.timeline.earliest:
            times = [self.timeline.earliest, self.timeline.latest]
        times.extend(body.time for body in self.bodies[first:])
        return (min(times), max(times)) if times else (0, 0)

    # after the commit

    def publish(self, token: object) -> None:
        """The commit has returned: let readers see it."""
        timeline = self.timeline
        with timeline.lock:
            timeline.told = self._told
            for save in self.saves:
                self.ledger.trees.settle(save[2], save[3])
            for place, ref, data in self.laid:
                self.ledger.hold_atom(place, ref, data)
            if timeline.sequence != self.start:
                return  # a reader has followed the entries already
            if self.base is not None:
                timeline.rebase(self.base, self.overlay)
            else:
                timeline.overlay.update(self.overlay)
            if self.saves:
                timeline.fresh = self.fresh
            else:
                timeline.fresh |= self.fresh
            for at, kind, _, _, keys in self.saves:
                timeline.note_save(at, kind, keys)
            for body in self.bodies:
                timeline.atoms_since += len(body.atoms) + 8 * len(body.packs)
                timeline.latest = max(timeline.latest, body.time)
                timeline.earliest = min(timeline.earliest or body.time, body.time)
            if self.blocks:
                if len(timeline.blocks) > 256:
                    timeline.blocks.clear()
                timeline.blocks |= self.blocks
            timeline.sequence = self.sequence
            timeline.head = self.head
            timeline.checkpoint = self.checkpoint
            timeline.origin, timeline.merged = self.origin, self.merged
            timeline.gone = self.gone
            if self._redeclared:
                timeline.redeclare()
            if token is not None:
                timeline.seen = token


def _packed(slot: Slot | None, places: dict[int, Place]) -> bytes:
    """What a delta holds of a key."""
    if slot is None:
        return b""
    hint = slot.hint()
    if type(slot.location) is Node:
        hint = placed(hint, places)
    return pack_slot(slot.described() if slot.meta else slot.ref, hint)


# ---- packs --------------------------------------------------------------------------------------
# Laying the atoms of an entry into its row and into packs, and nodes of trees into theirs.


MOST_ATOM = MOST_WHOLE + 64
"""Most bytes of an encoded part, with what stands before its content."""


class Packer:
    """Lays the atoms of an entry into its row and, once that is full, into packs."""

    def __init__(self, ledger: Ledger, timeline: int, sequence: int) -> None:
        self.ledger = ledger
        self.at = (timeline, sequence)
        self.packs: list[list[bytes]] = [[]]
        self.used = 0
        self.laid: list[tuple[Any, bytes, bytes]] = []
        self.quiet = False
        """Whether the entry holds something sensitive: then its rows are not compressed."""

    def lay(self, atom: Atom) -> tuple[bytes, Any]:
        """(ref, place) of an atom in this entry."""
        data = atom.encoded
        if data is None:
            data = atom.data(self.ledger.codec)
        size = len(data)
        if size > MOST_ATOM:
            raise LimitExceededError(
                f"{self.ledger.scope}: a part of a value takes {size} bytes, and an object around "
                f"an object, which is kept whole, at most {MOST_WHOLE}; split it"
            )
        if self.used + size > PACK and (self.packs[-1] or len(self.packs) == 1):
            self.packs.append([])
            self.used = 0
        self.used += size
        pack = self.packs[-1]
        pack.append(data)
        if size <= refs.INLINE:
            return atom.ref, None
        place = (*self.at, len(self.packs) - 1, len(pack) - 1)
        self.laid.append((place, atom.ref, data))
        return atom.ref, place

    def rows(self) -> tuple[list[tuple[bytes, bytes]], list[bytes]]:
        """Rows of the packs, and the commitments that the entry names."""
        ledger = self.ledger
        line = rows.line(b"V", ledger.number, self.at[0])
        made: list[tuple[bytes, bytes]] = []
        commitments: list[bytes] = []
        for ordinal, pack in enumerate(self.packs[1:], 1):
            key = rows.pack(line, self.at[1], ordinal)
            plain = _encode(pack)
            commitments.append(ledger.commit_pack(plain))
            row = ledger.seal.seal(ledger.ad(key), plain, commitments[-1], quiet=self.quiet)
            made.append((key, row))
        return made, commitments


def node_packs(
    ledger: Ledger,
    at: tuple[int, int, int],
    nodes: Iterable[Node],
    places: dict[int, Place],
    *,
    quiet: bool,
) -> Iterator[tuple[bytes, bytes]]:
    """Rows of packs that hold nodes; `places` is told where each of them lies.

    `at` is the timeline, the entry and the number of the first pack.
    """
    timeline, sequence, ordinal = at
    line = rows.line(b"N", ledger.number, timeline)
    pack: list[bytes] = []
    used = 0
    breath = Breath(SHORT)

    def close() -> tuple[bytes, bytes]:
        key = rows.pack(line, sequence, ordinal)
        return key, ledger.seal_row(key, _encode(pack), ledger.commit_pack, quiet=quiet)

    for node in nodes:
        breath()
        data = ledger.trees.pack(node, places)
        if pack and used + len(data) > PACK:
            yield close()
            ordinal, pack, used = ordinal + 1, [], 0
        places[id(node)] = (timeline, sequence, ordinal, len(pack))
        pack.append(data)
        used += len(data)
    if pack:
        yield close()


# ---- operations ---------------------------------------------------------------------------------
# Operations of an entry that is being built: what was asked for, made of what is there.


def operate(
    stage: Stage, sequence: int, op: tuple[Any, ...], packer: Packer, made: list[Any]
) -> None:
    """Apply an operation to a stage, and add to `made` what the entry says of it."""
    kind, key = op[0], op[1]
    if kind == "set":
        rule = stage.rule(key)
        meta = _asked_meta(stage, key, op) if len(op) > 3 else NONE
        made.append(stage._set(sequence, key, op[2], packer))  # which leaves it without meta
        if rule is not None and rule.check is not None and not (len(op) > 3 and op[3].schema):
            meta = _checked(stage, rule.check, key, _value_of(stage, op[2]), meta)
        if meta is not NONE:
            made += _described(stage, key, meta)
        if rule is not None or meta is not NONE or inferred(key) is not STANDARD:
            _admit(stage, key, op[2:3], packer)
    elif kind == "append":
        old = stage.live(key)
        rule, meta = stage.rule(key), meta_of(old)
        if rule is not None and rule.check is not None:
            items = [_value_of(stage, part) for part in op[2]]
            made_now = _checked(stage, rule.check, key, items, meta, items=True)
            meta = made_now if old is None else meta
        made.append(stage._append(sequence, key, op[2], packer, old))
        made += _described(stage, key, meta)  # if it is so short that it was set whole
        _admit(stage, key, op[2], packer, within=1)
    elif kind == "delete":
        stage._put(key, None)
        made.append([entry.DELETE, key])
    elif kind == "trim":
        old = stage.live(key)
        if old is not None:
            made.append(staged_trim(stage, sequence, key, op[2], packer, old))
            made += _described(stage, key, meta_of(old))
            packer.quiet |= _class(stage, key) == SENSITIVE
    elif kind == "ahead":
        rule, meta = stage.rule(key), _asked_meta(stage, key, op)
        if rule is not None and rule.check is not None:
            # What stands for it: that it is bytes is known, which is not.
            some = stage.ledger.splitter.atom(stage.ledger.codec.encode(b""))
            meta = _checked(stage, rule.check, key, _value_of(stage, some), meta)
        ahead = [entry.SET, key, op[2]]
        stage._put(key, stage.timeline.changed(sequence, ahead, iter(()), None))
        made.append(ahead)
        made += _described(stage, key, meta)
        _admit(stage, key, (), packer)
    elif kind == "merge":
        point, hash_, rests = op[2:]  # the past that it rests on
        if rests != (stage.ledger.number, stage.origin, stage.merged):
            raise Conflict(f"{stage.ledger.scope}: restored or merged meanwhile; try again")
        before, stage.merged = stage.merged, sequence
        made.append([entry.MERGE, *point, hash_, before])
    else:
        assert kind == "expire"
        old = stage.live(key)
        if old is None:
            raise MissingError(f"{stage.ledger.scope} has no key {key!r} that could expire")
        known = meta_of(old)
        meta = op[2].meta(stage.now, known)
        kept = {"class_": known.class_, "schema": op[2].schema or known.schema}
        made += _described(stage, key, meta._replace(**kept))


def _asked_meta(stage: Stage, key: str, op: tuple[Any, ...]) -> Meta:
    """What is to be known of a key besides the value that it is set to."""
    if len(op) <= 3:
        return NONE
    old = meta_of(stage.live(key)) if op[3].keep else NONE
    return op[3].meta(stage.now, old._replace(schema=0))  # type: ignore[no-any-return]


def _checked(
    stage: Stage,
    check: CheckingDeclaration,
    key: str,
    value: Any,
    meta: Meta,
    *,
    items: bool = False,
) -> Meta:
    """Let a value, or items of a list, be looked at by what is declared for its key; what is known
    of it then."""
    version = check.admit(stage.ledger.scope, key, value, stage.read, items=items)
    return meta._replace(schema=version)


def _value_of(stage: Stage, part: Part) -> Any:
    """What was asked for, with moments as they are, objects as `Typed` and sealed parts open."""
    codec = stage.ledger.codec
    if type(part) is Atom:  # whose bytes are there already
        return codec.plain_viewer.decode(part.data(codec))
    return codec.plain_viewer.decode(codec.encode(stage.ledger.splitter.plain_of(part)))


def _described(stage: Stage, key: str, meta: Meta) -> list[Any]:
    """The operation, if it takes one, that says what is known of a key besides its value."""
    slot = stage.slot(key)
    assert slot is not None
    packed = meta.pack()
    if packed == slot.meta:
        return []
    stage._put(key, slot.with_meta(packed))
    return [[entry.META, key, packed]]


def _admit(
    stage: Stage, key: str, parts: Sequence[Part], packer: Packer, *, within: int = 0
) -> None:
    """Treat what was just written by its class; `within` is how deep in the value it lies."""
    class_ = _class(stage, key)
    if class_ is STANDARD:  # as most are
        return
    packer.quiet |= class_ == SENSITIVE
    if class_ == EXTERNAL:
        slot = stage.slot(key)
        assert slot is not None
        check_external(stage.ledger, key, parts, slot.size(), within)


def _class(stage: Stage, key: str) -> str:
    """The class of a key that is there; what parts of Holdfast keep is sensitive, or has none."""
    slot = stage.slot(key)
    assert slot is not None
    if key.startswith(PREFIX):
        return ""  # what is declared may be just what cannot be read
    class_ = class_of(key, slot.meta, stage.declared)
    return class_ if key[0] != RESERVED or class_ == SENSITIVE else ""


def staged_length(stage: Stage, key: str) -> int:
    """How many items a list has after the entries staged so far; 0 if it is absent."""
    slot = stage.live(key)
    if slot is None:
        return 0
    length = slot.length()
    return length if length is not None else len(stage._items_of(key, slot, ()))


def staged_trim(
    stage: Stage, sequence: int, key: str, trim: dict[str, int], packer: Packer, old: Slot
) -> list[Any]:
    """Trim a list, which is there, in the entry that is being built."""
    rule = stage.rule(key)
    if rule is not None and rule.check is not None:  # what stays was checked, item by item
        _checked(stage, rule.check, key, [], NONE, items=True)
    length = old.length()
    if length is None:
        items = stage._items_of(key, old, packer.laid)
        rest: list[Part] | None = items[going(len(items), trim) :]
    else:
        old = stage.timeline.settled(old)
        first = going(length, trim)
        rest = _short_rest(stage, old, first, packer)
    if rest is not None:
        return stage._set(sequence, key, stage._joined(key, rest), packer, how=entry.TRIMMED)  # type: ignore[no-any-return]
    op = [entry.PATCH, key, [[0, first, None, []]] if first else [], entry.TRIMMED]
    stage._put(key, stage.timeline.changed(sequence, op, iter(()), lambda _: old))
    return op


def _short_rest(stage: Stage, old: Slot, first: int, packer: Packer) -> list[Part] | None:
    """What is left of a list, if that is so short that it is kept whole."""
    _, hash_, count, _ = refs.read_tree(old.ref)
    if count - first > refs.WHOLE:
        return None
    ledger = stage.ledger
    rest = list(ledger.trees.slice(ledger.trees.load(old.location, hash_), first, count))
    if any(refs.is_tree(ref) for _, ref, _ in rest):
        return None
    if len(array_header(len(rest))) + sum(refs.size_of(ref) for _, ref, _ in rest) > refs.WHOLE:
        return None
    parts: list[Part] = []
    for _, ref, place in rest:
        at = place or (0, 0)
        value = stage._short_value(Slot(ref, place, at[0], at[1]), packer.laid)
        parts.append(ledger.splitter.atom(ledger.codec.encode(ledger.codec.plain(value))))
    return parts


# ---- the past -----------------------------------------------------------------------------------
# What an entry that is built rests on in the past: what is sticky, and what is not pruned
# meanwhile.


Keep = Callable[["Stage"], Iterable[str]]
"""Gives, in the commit of a restore, how keys begin that stay as they are."""


def sticky_of(stage: Stage) -> tuple[str, ...]:
    """The same, of the state that the next entry rests on: what a restore keeps by itself."""
    return sticky_prefixes(stage.declared)


def stand_on(stage: Stage, source: Timeline, sequence: int, number: int) -> None:
    """Let a commit that rests on an older state fail if that is pruned meanwhile, or deleted.

    `number` is that of the newest anchor when it was found that the state is kept.
    """
    ledger = stage.ledger
    if ledger.number != source.ledger.number:
        raise ScopeNotFoundError(
            f"{ledger.scope} was deleted meanwhile; one that is made again under its name is new"
        )
    coming = ledger.pruning.get(source.number, NO_FLOOR)
    if not coming.holds(sequence, ledger.before):
        raise Conflict(f"{ledger.scope}: entry {sequence} is being pruned; try again")
    stage.absent.append(rowkinds.anchor(ledger.number, source.number, number + 1))


def stand_beside_pruning(stage: Stage, anchors: int) -> None:
    """Refuse what shares parts with a value that was read before the timeline was pruned."""
    line = stage.timeline
    if line.floor.number != anchors or line.number in stage.ledger.pruning:
        raise Conflict(
            f"{stage.ledger.scope}: the timeline was pruned while this value was written, and "
            "parts that it shares with the one before may be gone; write it again"
        )
