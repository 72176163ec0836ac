"""Pruning: the content of old entries is dropped, and the timeline says so itself.

What is promised: the state at the floor and at every entry behind it, and at the entries below it
that are kept, stays readable and provable; below it nothing else is. The chain of envelopes stays
whole, so that a witness, a chain that was exported and every signature above can still be checked
against it. An entry that was dropped by somebody else is still found: only what lies below a floor
that an anchor in the chain announces, and that no kept state uses, may be missing.

The steps, each of which may be the last one (killed, refused, storage lost):

1. Whoever prunes a scope puts a random token into the cell `A`; every commit of the steps below
   expects it there. Another one waits as long as that goes on (`pruner`), then puts its own there,
   which takes over: the first is told. Who finds one there does steps 4 and 5 for all timelines of
   the scope: nobody else comes back for them.
2. The states to be kept are saved as whole indexes, *bases*: at the floor, at the checkpoints that
   are kept, and at the sources of restores and forks that lie behind a floor, for these are made
   from their sources when they are verified. Nodes that older saves hold are shared, not copied.
   Until step 3 nothing leads to what is written here.
3. One commit adds the **anchor**: an entry that names the floor, the hash of the entry there and
   the commitments of all bases; the bases' rows `B`; and the row `A` that leads to the anchor. It
   expects that no other timeline has grown: a fork, a restore or a mark (`holds`) that rests on
   what is to be pruned is either seen here, or its own commit, which expects no further anchor,
   fails. A checkpoint of another scope that comes to rest on it (`holds`) changes the cell.
4. What kept states use is *marked*: from the bases of all timelines and from each index saved
   behind their floors. All that the states in between use is in one of these, or in rows behind
   the floor. A reference that is made later comes from a kept state, and so leads to what is
   marked.
5. The rest is dropped in slices: saves and packs of nodes and values; and of entries the bodies,
   so that a row is the envelope alone. An entry stays whole if a kept value lies in it, if it
   wrote a key that is kept (it says when and why), if its state is kept, if it brought a long
   value of which any part is kept; or if it is a restore, a fork, a merge or the rotation of a
   key, on which the past of later states rests, or tells of a loss.
6. The token is removed. While it is there, pruning again takes all of this up.

Nothing is moved: what stays lies where it was, so that readers and writers of other processes go
on. One that looked at a state which is pruned meanwhile gets `PrunedError`.

What stays of each pruned entry are the envelope (about 100 bytes, 193 of a checkpoint), the feed's
row and the rows of its correlation and of the id of its change, which keeps that from being
applied twice. Pruning again
reads all envelopes below the floor once more.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import islice, takewhile
from typing import Any

import msgspec

from holdfast.errors import (
    Conflict,
    DamagedIndexError,
    HoldfastError,
    InvalidInputError,
    PrunedError,
    StateIntegrityError,
    StillNeededError,
)
from holdfast.storage.contract import Batch
from holdfast.storage.rows import Row, again, pages
from holdfast.store.commit.change import Change, Target
from holdfast.store.commit.stage import Stage, node_packs
from holdfast.store.history.handle import LineHandle
from holdfast.store.journal import entry as entries
from holdfast.store.journal.entry import Body
from holdfast.store.journal.floor import (
    LOST,
    beside_pruning,
    floor_of,
    is_stated,
    read_base,
    stated,
)
from holdfast.store.journal.ledger import Ledger, gone
from holdfast.store.journal.save import DELTA, INDEX, Floor, Save, read_slot
from holdfast.store.journal.slot import slots_in
from holdfast.store.journal.timeline import Timeline
from holdfast.store.names import rowkinds
from holdfast.store.names.arguments import check_flag, check_text
from holdfast.store.names.cause import cause_now
from holdfast.store.names.cells import cell_at, commit_beside
from holdfast.store.names.items import Pruned
from holdfast.store.names.threads import Breath, safe_point
from holdfast.store.rules.classes import any_sensitive
from holdfast.store.rules.hold_reasons import PRUNE, REASONS
from holdfast.store.rules.upload_pins import SWEPT
from holdfast.store.tree import refs
from holdfast.store.tree.tree import Element, Node, Place
from holdfast.store.tree.value import AHEAD
from holdfast.store.upkeep.holds import (
    TOKEN,
    counted,
    marked_entries,
    needs,
    rests_of,
    rests_on,
    saves_of,
    sources_of,
)
from holdfast.store.upkeep.losses import newest_entry
from holdfast.store.upkeep.past_needs import PastNeeds

SLICE = 64
"""Rows that are dropped together: what bounds memory and the time that writers wait."""
PAUSE = 0.001
"""Seconds between two slices: those who wait for their turn to write get it."""
ATTEMPTS = 20
"""Whoever prunes the scope meanwhile, or comes to rest on it, costs one of them."""
MOST_BASES = 10_000
"""States kept below a floor: they are all named in one entry."""

_encode = msgspec.msgpack.Encoder().encode


def prune_state(
    handle: LineHandle,
    before: Any,
    *,
    keep: Iterable[Any] | None,
    dry_run: bool,
    reason: str | None,
    deed: str = PRUNE,
    alone: bool = False,
) -> Pruned:
    """Drop the content of entries before a point; see `State.prune`.

    What is marked stays, too, and what others rest on, as the table says for the deed (`holds`).
    Marks are asked for again in the commit that announces what goes; whoever adds one stands on the
    state (`stand_on`), and whoever comes to rest on one tells who prunes. `alone`: refused with
    `StillNeededError`, before anything goes, if any state but that at the point stays.
    """
    check_flag(dry_run, "dry_run")
    if reason is not None:
        check_text(reason, "the reason of a change")
    handle.ask("prune", str(getattr(before, "id", before)))
    points = handle.history.points
    if keep is not None and (isinstance(keep, str) or not isinstance(keep, Iterable)):
        raise InvalidInputError("keep takes a list of checkpoints or other points, or None for all")
    wanted = None if keep is None else [points.find(point) for point in keep]
    timeline, last = points.find(before)
    for name, _ in [(timeline, last), *(wanted or ())]:
        if name != handle.timeline:
            raise InvalidInputError(
                f"{handle.scope}: a point of {handle.timeline} is needed, not one of {name}; "
                "each timeline is pruned by itself"
            )
    kept = None if wanted is None else {sequence for _, sequence in wanted}
    if deed == PRUNE and kept is not None:
        _refuse_needed(handle, last, kept)
    pruner = Pruner(points.line().ledger)

    def step(damaged: bool = False) -> Pruned:
        try:
            work = _Pruning(handle, pruner, last, kept, deed, dry_run, damaged)
            if alone and work.kept != {last}:
                raise StillNeededError(f"{handle.scope}: {timeline}@{min(work.kept)} has to stay")
            return work.count() if dry_run else work.run(reason)
        except StateIntegrityError as error:  # or another one took over, and pruned what is missing
            if not dry_run:
                pruner.look()
            if damaged or not is_stated(points.line().ledger, error):
                raise
        return step(damaged=True)

    said = f"{handle.scope}: others forked, restored or marked all the time; try again"
    try:
        if dry_run:  # without the right to: somebody who has it may prune meanwhile
            return beside_pruning(points.line().ledger, step)
        return again(step, said, on=_Again, times=ATTEMPTS)
    except BaseException:
        pruner.give_up()  # also when cancelled: else others would wait for who is gone
        raise


def _refuse_needed(handle: LineHandle, last: int, kept: set[int]) -> None:
    """Refuse what somebody asks for by hand if what is needed would go.

    What comes to be held meanwhile lies behind the point, where nothing goes; what is marked
    meanwhile may not, and stays, too.
    """
    for need in needs(handle, PRUNE):
        why = REASONS[need.reason]
        if PRUNE in why.refused and need.at < last and need.at not in kept:
            held = "" if why.mark else "held: "
            raise StillNeededError(
                f"{handle.scope}: {handle.timeline}@{need.at} is {held}{need.text}; "
                f"{need.until}, or name it in keep="
            )


class _Again(Exception):
    """Others have made a restore or fork meanwhile: what is kept has to be found anew."""


class _Pruning:
    def __init__(
        self,
        handle: LineHandle,
        pruner: Pruner,
        last: int,
        wanted: set[int] | None,
        deed: str,
        dry_run: bool,
        damaged: bool = False,
    ) -> None:
        self.handle = handle
        self.damaged = damaged
        """Whether some states may be lost, as was stated: then each is tried."""
        self.core = handle.core
        self.storage = handle.core.storage
        self.pruner = pruner
        self._breath = Working(pruner)
        if not dry_run:
            handle.core.leases.stand()  # what is no entry expects no lease
            pruner.take()
        # Only now: an anchor that somebody else announced before the right was taken is seen.
        self.line = handle.history.points.line()
        self.ledger = self.line.ledger
        if pruner.key != rowkinds.pruner(self.ledger.number):
            raise gone(self.ledger.scope)
        self.cell = self.pruner.cell
        asked = REASONS["dependency"].stops(deed)
        self.rested = {one.sequence for one in rests_of(handle)} if asked else None
        """All that there are, as long as the cell is the same; None: they are not asked for."""
        self.old = self.line.floor
        self.needs = PastNeeds(self.line)
        self.last = max(last, self.old.sequence, self.ledger.before)
        self._seen = Marks(self.ledger, self.line.number, 0, self._breath)
        if damaged:
            self.last = self._lowered(self.last)
        known = [number for number, _, _, _ in self.core.timelines(self.ledger)]
        self.newest = known[-1]
        self.lines = [number for number in known if number not in self.ledger.ended]
        self.heads = {number: newest_entry(self.ledger, number) for number in self.lines}
        self.wanted = self._wanted(wanted)
        self.kept = self._kept()
        self.entries = self.rows = self.bytes = 0
        self.stay: list[int] = []
        """Entries up to the floor that are whole because something is kept, and may go later."""

    # what is kept

    def _wanted(self, named: set[int] | None) -> set[int]:
        """Points that are to stay: all checkpoints, or those named and all behind the floor."""
        statements = self.handle.history.points.statements
        if named is None:
            try:
                return {self.last, *(at for _, at, _, _ in statements())}
            except StateIntegrityError as error:  # one is missing
                if not is_stated(self.ledger, error):
                    raise
                return {self.last, *(at for _, at, _, _ in statements(passed=[]))}
        newest_first = (at for _, at, _, _ in statements(passed=[]))
        return {self.last, *named, *takewhile(lambda at: at > self.last, newest_first)}

    def _kept(self) -> set[int]:
        """Entries up to the floor whose states are needed, the floor itself included.

        The floor is lowered to where no state that stays is made of anything below it, and no
        more are needed than an anchor can name.
        """
        while True:
            stay = self.wanted | self._needed()
            for number in self.lines:
                stay.update(self._sources(number, floor_of(self.ledger, number).sequence))
            if self.damaged:
                stay = {at for at in stay if at in self.old.bases or self._there(at)}
            if (spared := self._spared(stay, self.line)) < self.last:
                self.last = spared
                continue
            found = {at for at in stay if at <= self.last} | {self.last}
            if len(found) <= MOST_BASES or self.last == self.old.sequence:
                return {at for at in found if at > self.ledger.before}
            self.last = max(sorted(found)[MOST_BASES - 1], self.old.sequence)

    def _lowered(self, last: int) -> int:
        """The floor, or the one before the damage if the state there is lost."""
        number = self.line.number
        rows = [key for _, key in stated(self.ledger) if rowkinds.line_of(key) == number]
        before = sorted({rowkinds.sequence_of(key) - 1 for key in rows}, reverse=True)
        tried = [last, *(at for at in before if self.old.sequence < at < last)]
        return next((at for at in tried if self._there(at)), self.old.sequence)

    def _there(self, at: int) -> bool:
        """Whether a state can be had; one that is stated to be lost cannot be kept."""
        try:
            if self.ledger.before < at:
                self._at(at)
        except StateIntegrityError as error:  # it is told, unless it was stated before
            if not is_stated(self.ledger, error):
                raise
            return False
        return True

    def _spared(self, stay: set[int], newest: Timeline | Stage) -> int:
        """The floor, lowered to what the newest state and those that stay need (`past_needs`)."""
        points = [(self.line.number, at) for at in stay]
        for number in self.lines:
            if number != self.line.number:
                kept = floor_of(self.ledger, number).bases
                points += [(number, at) for at in (*kept, self.heads[number])]
        needed = [*self.needs.of(newest), *self.needs.of_points(points)]
        return min([self.last, *(entry - 1 for entry in needed)])

    def _needed(self) -> set[int]:
        """Entries that others need, but those that are gone already."""
        before = self.ledger.before
        found = {*(self.rested or ()), *marked_entries(self.handle)}
        return {at for at in found if self.old.holds(at, before)}

    def _sources(self, number: int, behind: int) -> Iterator[int]:
        """Entries of the timeline that restores and forks of one begin from."""
        own = number == self.line.number
        low = max(behind, self.last if own else 0) + 1
        for timeline, entry in sources_of(self.ledger, number, low):
            if timeline == self.line.number:
                yield entry

    # running

    def count(self) -> Pruned:
        """What would be dropped; nothing is written."""
        marks = Marks(self.ledger, self.line.number, self.last, self._breath)
        # The floor of this one is not set yet.
        marks.saves(number for number in self.lines if number != self.line.number)
        for _, save in saves_of(self.ledger, self.line.number, self.last + 1):
            marks.save(save)
        for at in sorted(self.kept):
            marks.root(self._at(at).folded())
        floor = Floor(self.old.number, self.last, self.old.anchor, dict.fromkeys(self.kept, b""))
        for batch, dropped in self._slices(marks, floor):
            self._tally(batch, dropped)
        return self._pruned(floor, dry_run=True)

    def run(self, reason: str | None) -> Pruned:
        """Prune, or finish what was begun."""
        floor = self.old
        if self.last > self.ledger.before and (self.kept != set(floor.bases) or not floor.anchor):
            floor = self._announce(reason)
        self._drop(self.line.number, floor)
        if self.pruner.inherited:  # nobody else will finish what was begun on other timelines
            for number, *_ in self.core.lines(self.ledger):  # one that is ended was pruned whole
                if number != self.line.number:
                    self._drop(number, floor_of(self.ledger, number))
        self.pruner.leave()
        return self._pruned(floor)

    def _drop(self, number: int, floor: Floor) -> None:
        """Drop what no kept state uses of a timeline up to its floor."""
        if not floor.sequence:
            return
        marks = Marks(self.ledger, number, floor.sequence, self._breath)
        marks.saves(self.lines)
        for batch, dropped in self._slices(marks, floor):
            given_up = [key for key, _, new in batch.cells if new == SWEPT]
            self._commit(batch)
            self._tally(batch, dropped)
            for key in given_up:
                dropped, size = self.core.pins.drop(key)
                self.rows, self.bytes = self.rows + dropped, self.bytes + size
            safe_point()
            time.sleep(PAUSE)
        self.ledger.whole[number] = (floor.number, self.stay)

    def _pruned(self, floor: Floor, *, dry_run: bool = False) -> Pruned:
        kept = tuple(sorted(at for at in floor.bases if at < floor.sequence))
        return Pruned(
            self.handle.scope, self.handle.timeline, floor.sequence, floor.anchor, kept,
            self.entries, self.rows, self.bytes, dry_run,
        )  # fmt: skip

    def _tally(self, batch: Batch, dropped: int) -> None:
        self.entries += len(batch.swaps)
        self.rows += len(batch.drops)
        self.bytes += sum(len(old) - len(new) for _, old, new in batch.swaps) + dropped

    def _commit(self, batch: Batch) -> None:
        self.core.leases.stand()
        if not self.pruner.commit(batch):
            raise _Again  # rows were sealed again meanwhile

    # bases and the anchor

    def _at(self, sequence: int) -> Timeline:
        """A state that is to be kept: all of its index must be there, for entries go.

        Where loss was stated, one of which a saved index is damaged is made from entries, if they
        are whole.
        """
        view = Timeline(self.ledger, self.line.number).load(sequence)
        try:
            self._look_at(view)
        except DamagedIndexError:  # entries may have it all
            if not self.damaged:
                raise
            view = Timeline(self.ledger, self.line.number).load(sequence, saves=False)
            self._look_at(view)
        return view

    def _look_at(self, view: Timeline) -> None:
        if self.damaged:  # each by itself: what one lacks, another may share
            self._seen = Marks(self.ledger, self.line.number, 0, self._breath)
        self._seen.root(view.folded())

    def _announce(self, reason: str | None) -> Floor:
        """Save the states that are kept, then commit the anchor."""
        rekeyed = self.ledger.next_epoch()  # nothing may be stored under a key that is retired
        bases = {at: self.old.bases[at] for at in self.kept & self.old.bases.keys()}
        # Bases that no anchor names go: of one that was released, or never came to be.
        saved = rowkinds.line(b"B", self.ledger.number, self.line.number)
        named = self.old.bases.keys() | bases.keys()
        for page in pages(self.storage.scan, saved, rowkinds.after(saved), limit=SLICE):
            drops = [key for key, _ in page if rowkinds.sequence_of(key) not in named]
            if drops:
                self._commit(Batch(drops=drops))
        made: list[Row] = []
        for at in sorted(self.kept - bases.keys()):
            self._breath()
            row, bases[at] = self._base(self._at(at))
            made.append(row)
        key = rowkinds.entry(self.line.prefix, self.last)
        envelope = entries.split_row(self.storage.get([key])[0] or b"")[0]
        hash_ = self.ledger.entry_hash(key, envelope.data)
        op = [entries.PRUNE, self.last, hash_, sorted(bases.items())]
        coming = Floor(self.old.number + 1, self.last, 0, bases)
        # In this process, what begins to rest on something else from now on waits: see `stand_on`.
        self.ledger.pruning[self.line.number] = coming
        self.core.announcing.append(self.ledger.number)
        target = Target(self.handle.scope, self.handle.timeline, create=False)
        target.special = partial(self._special, op, made, rekeyed)
        try:
            written = self.core.run(Change([target], cause_now(reason=reason)))
        except Conflict:  # somebody came to rest on what would go: what is kept is found anew
            raise _Again from None
        finally:
            del self.ledger.pruning[self.line.number]
            self.core.announcing.remove(self.ledger.number)
        floor = coming._replace(anchor=written[0].sequence)
        line = self.core.timeline(self.ledger, self.handle.timeline)
        with line.lock:
            line.floor = floor
        self.ledger.views.clear()
        return floor

    def _special(
        self, op: list[Any], made: list[Row], rekeyed: bytes, stage: Stage, body: Body
    ) -> None:
        ledger, number = self.ledger, self.line.number
        if stage.ledger.number != ledger.number:
            raise gone(ledger.scope)
        self._check_since(stage)
        key = rowkinds.anchor(ledger.number, number, self.old.number + 1)
        leads = _encode(stage.sequence + 1)
        stage.rows += [*made, (key, ledger.seal_row(key, leads, ledger.commit_line))]
        stage.absent += [key, rekeyed]
        stage.absent.append(rowkinds.line(b"T", ledger.number, self.newest + 1))
        for other in self.lines:
            if other != number:
                line = rowkinds.line(b"E", ledger.number, other)
                stage.absent.append(rowkinds.entry(line, self.heads[other] + 1))
        stage.cells.append((self.pruner.key, self.cell, self.cell))
        body.ops = [op]
        stage.finish(body)

    def _check_since(self, stage: Stage) -> None:
        """Refuse if a restore, fork or mark that came meanwhile rests on what is not kept."""
        came: set[int] = set()
        for number, head in self.heads.items():
            self.heads[number] = newest_entry(self.ledger, number)
            came.update(self._sources(number, head))
        if self.pruner.look() != self.cell:  # others came to rest on the scope: on what is kept?
            self.cell = self.pruner.cell
            if self.rested is not None:
                found = rests_on(self.ledger)
                self.rested |= {one.sequence for one in found if one.timeline == self.line.number}
        came |= self._needed()
        if not self.kept.issuperset(at for at in came if self.ledger.before < at <= self.last):
            raise Conflict(f"{self.ledger.scope}: restored, forked or marked meanwhile; try again")
        if self._spared(came, stage) < self.last:
            raise Conflict(f"{self.ledger.scope}: its state rests on older entries; try again")

    def _base(self, view: Timeline) -> tuple[Row, bytes]:
        """The row of a state's saved index, and its commitment; its nodes are stored."""
        root = view.folded()
        nodes: list[Node] = []
        if root.count:
            self.ledger.trees.unsaved(root, nodes, self._breath)
        quiet = any_sensitive(slots_in(nodes), lambda: view.declared)
        # Nodes are stored behind those that another attempt may have left.
        ledger, at = self.ledger, view.sequence
        line = rowkinds.line(b"N", ledger.number, self.line.number)
        low, high = rowkinds.pack(line, at, rowkinds.BASES), rowkinds.pack(line, at + 1, 0)
        found = self.storage.scan(low, high, limit=1, reverse=True)
        ordinal = int.from_bytes(found[0][0][14:17], "big") + 1 if found else rowkinds.BASES
        places: dict[int, Place] = {}
        packs = node_packs(ledger, (self.line.number, at, ordinal), nodes, places, quiet=quiet)
        while waiting := list(islice(packs, SLICE)):
            self._commit(Batch(puts=waiting, absent=[ledger.next_epoch()]))
        place = (root.place or places[id(root)]) if root.count else 0
        self.ledger.trees.settle(nodes, places)
        save = Save(
            INDEX, 0, view.head, view.checkpoint, view.origin, 0, 0, root.hash, place, [], [], 0,
            view.merged,
        )  # fmt: skip
        plain = _encode(save)
        key = rowkinds.entry(
            rowkinds.line(b"B", self.ledger.number, self.line.number), view.sequence
        )
        row = self.ledger.seal_row(key, plain, self.ledger.commit_save, quiet=quiet)
        return (key, row), self.ledger.commit_save(plain)

    # dropping

    def _slices(self, marks: Marks, floor: Floor) -> Iterator[tuple[Batch, int]]:
        """What is to be dropped, in commits of bounded size, and the bytes of the rows that go.

        Each can be done again.
        """
        scan, self.stay = self.storage.scan, []
        for page in self._whole(marks.timeline, floor):
            batch = Batch()
            for key, row in page:
                self._entry(batch, key, row, marks, floor)
                self._breath()
            if batch.swaps:
                yield batch, sum(map(len, batch.drops))

        def place(key: bytes) -> tuple[int, int]:
            return rowkinds.sequence_of(key), int.from_bytes(key[14:17], "big")

        newest = rowkinds.anchor(self.ledger.number, marks.timeline, floor.number)
        kept: dict[bytes, Callable[[bytes], bool]] = {
            b"V": lambda key: place(key) in marks.values,
            b"N": lambda key: place(key) in marks.nodes,
            b"S": lambda _: False,
            b"C": lambda key: rowkinds.sequence_of(key) in floor.bases,
            b"B": lambda key: rowkinds.sequence_of(key) in floor.bases,
            b"A": lambda key: key >= newest,
        }
        for kind, stays in kept.items():
            line = rowkinds.line(kind, self.ledger.number, marks.timeline)
            high = (
                rowkinds.after(line) if kind == b"A" else rowkinds.entry(line, floor.sequence + 1)
            )
            for page in pages(scan, line, high, limit=SLICE):
                gone = [(key, row) for key, row in page if not stays(key)]
                if gone:
                    size = sum(len(key) + len(row) for key, row in gone)
                    yield Batch(drops=[key for key, _ in gone]), size

    def _whole(self, number: int, floor: Floor) -> Iterator[Sequence[Row]]:
        """Pages of entries up to the floor that may be whole.

        Those that this process left whole the last time, and those behind the floor of then: all
        envelopes of the past are looked at only if somebody else has pruned since.
        """
        line, low = rowkinds.line(b"E", self.ledger.number, number), 0
        anchor, left = self.ledger.whole.get(number, (0, []))
        if anchor and number == self.line.number and anchor == self.old.number:
            low = self.old.sequence + 1
            for first in range(0, len(left), SLICE):
                keys = [rowkinds.entry(line, at) for at in left[first : first + SLICE]]
                found = zip(keys, self.storage.get(keys), strict=True)
                yield [(key, row) for key, row in found if row is not None]
        end = rowkinds.entry(line, floor.sequence) + b"\0"
        yield from pages(self.storage.scan, rowkinds.entry(line, low), end, limit=SLICE)

    def _entry(self, batch: Batch, key: bytes, row: bytes, marks: Marks, floor: Floor) -> None:
        """Add an entry to what is dropped, and the upload that it brought, unless it stays."""
        sequence = rowkinds.sequence_of(key)
        try:
            if not entries.split_row(row)[1]:
                return  # done before
            if sequence in floor.bases or (sequence, 0) in marks.values:
                self.stay.append(sequence)
                return
            envelope, body = self.ledger.open_entry(key, row)
        except (PrunedError, StateIntegrityError):
            return  # done meanwhile; or damaged, which `verify` names
        long = [op[2] for op in body.ops if op[0] == entries.SET and type(op[2]) is list]
        uploads = [value[3] for value in long if value[0] == AHEAD and value[3]]
        if any(op[0] in entries.STAY for op in body.ops):
            return  # for good
        if not marks.uploads.isdisjoint(uploads):
            self.stay.append(sequence)
            return
        # As with one that was never finished: who finds the cell may drop the rows: `upload_pins`.
        batch.cells += [
            (rowkinds.pin(self.ledger.number, number), None, SWEPT) for number in uploads
        ]
        batch.swaps.append((key, row, envelope.data))


# ---- pruner -------------------------------------------------------------------------------------
# Who prunes a scope now, as a cell says, and who is told when something comes to rest on it.
#
# One prunes at a time. Others wait for it as long as they see it at work: its cell holds a beat
# that goes up with its commits, and beside long work without any. Where the cell stands still for
# `TERM` seconds, by the clock of who waits, or says that it was given up, it is taken over. Nothing
# rests on that wait: whoever lost the cell is told by its next commit, and nothing is wrong.


BEAT, TERM = 0.2, 2.0
"""Seconds after which who prunes shows that it goes on; and how long others wait for that."""
POLL = 0.01
"""Seconds between two looks of who waits."""
NOBODY = bytes(TOKEN)
"""The token where nobody is at work, and what was begun is to be finished."""


class Pruner:
    """The right to prune a scope; whoever takes it next takes it away.

    Its cell holds a random token(16), and behind that a beat(4), which goes up while it works, and
    a count(4), how often somebody came to rest on the scope (`holds`): what was found to be needed
    before that may no longer be all.
    """

    def __init__(self, ledger: Ledger) -> None:
        self.key = rowkinds.pruner(ledger.number)
        self.cell = os.urandom(TOKEN)
        """What the cell holds."""
        self.inherited = False
        """Whether somebody had it who did not come to an end, on whichever timeline."""
        self._taken = False
        self._shown = time.monotonic()
        """When its last beat was."""
        self._ledger = ledger
        self._storage = ledger.storage

    def take(self) -> None:
        """Be the one who prunes the scope, when nobody else is at work.

        Whoever had it before is told by its next commit. Who has it still, and begins anew, keeps
        it.
        """

        def step() -> None:
            held = self._free()
            if held is not None and self._is_mine(held):
                self.cell = held
                return
            self.cell, tombstone = os.urandom(TOKEN), [self._ledger.tombstone]
            self._taken = True  # or it may be, whatever comes of the commit
            self._storage.commit(Batch(cells=[(self.key, held, self.cell)], absent=tombstone))
            self.inherited = held is not None

        again(step, f"{self._ledger.scope}: others prune it, too; try again", times=ATTEMPTS)

    def _free(self) -> bytes | None:
        """What the cell holds once who has it is done, has given it up, or stands still."""
        since, shown = time.monotonic(), b""
        while True:
            if self._ledger.erased():
                raise gone(self._ledger.scope)
            held = cell_at(self._storage, self.key)
            if held is None or self._is_mine(held) or held.startswith(NOBODY):
                return held
            if held[: TOKEN + 4] != shown:  # not what somebody counted who came to rest on it
                since, shown = time.monotonic(), held[: TOKEN + 4]
            elif time.monotonic() - since > TERM:
                return held
            safe_point()
            time.sleep(POLL)

    def _is_mine(self, held: bytes) -> bool:
        return held[:TOKEN] == self.cell[:TOKEN]

    def beat(self) -> None:
        """Show now and then that it goes on, beside work that commits nothing."""
        if self._taken and self._is_due():
            self.commit(Batch())

    def _is_due(self) -> bool:
        return time.monotonic() - self._shown > BEAT

    def give_up(self) -> None:
        """Say that nobody is at work, and something is to be finished; if it cannot, others wait.

        Nothing, if it is not the one who prunes.
        """
        with suppress(HoldfastError):
            if self._taken:
                self._storage.commit(Batch(cells=[(self.key, self.look(), NOBODY)]))

    def leave(self) -> None:
        """All is pruned."""
        self.commit(Batch(), leave=True)
        self._taken = False

    def commit(self, batch: Batch, *, leave: bool = False) -> bool:
        """Commit, if it is still the one who prunes; False if rows were sealed again meanwhile."""
        batch.absent.append(self._ledger.tombstone)
        asked = batch.cells
        for _ in range(ATTEMPTS):
            new = counted(self.cell, beat=True) if self._is_due() else self.cell
            batch.cells = [*asked, (self.key, self.cell, None if leave else new)]
            try:
                commit_beside(self._storage, batch)
                if new != self.cell and not leave:
                    self.cell, self._shown = new, time.monotonic()
                return True
            except Conflict as conflict:  # others rest on it, or have taken over: `look` tells
                if self._ledger.erased():
                    raise gone(self._ledger.scope) from None
                if self.key not in conflict.keys:
                    return False
            self.look()
        raise Conflict(f"{self._ledger.scope}: others rest on it again and again; prune it again")

    def look(self) -> bytes:
        """What the cell holds, as others have counted in it; refused if it is somebody's own."""
        found = cell_at(self._storage, self.key) or b""
        if found[:TOKEN] != self.cell[:TOKEN]:
            raise Conflict(
                f"{self._ledger.scope}: another process prunes this scope now, and goes on"
            )
        self.cell = found
        return found


class Working(Breath):
    """Called once an item of long work: others get their turn, and see that it goes on."""

    def __init__(self, pruner: Pruner) -> None:
        super().__init__()
        self._pruner = pruner

    def __call__(self) -> None:
        super().__call__()
        self._pruner.beat()


# ---- mark ---------------------------------------------------------------------------------------
# Marking: which rows of a timeline, up to an entry, are in use by states that are kept.


@dataclass(eq=False)
class Marks:
    """Rows of timeline `timeline` up to entry `last`, and uploads, that something leads to.

    Memory grows with the nodes that are saved and with the rows that stay.
    """

    ledger: Ledger
    timeline: int
    last: int
    breathe: Callable[[], None] = lambda: None
    """Called once a node."""
    values: set[tuple[int, int]] = field(default_factory=set)
    """(sequence, ordinal) of entries (0) and of packs of atoms."""
    nodes: set[tuple[int, int]] = field(default_factory=set)
    """(sequence, ordinal) of packs of nodes."""
    uploads: set[int] = field(default_factory=set)
    _seen: set[Any] = field(default_factory=set)
    _past: bool = False
    """Whether what is marked may be lost, if that was stated."""

    def saves(self, timelines: Iterable[int]) -> None:
        """Mark what the saved indexes of timelines, and what is kept below their floors, use."""
        for timeline in timelines:
            floor = floor_of(self.ledger, timeline)
            for _, save in saves_of(self.ledger, timeline, floor.sequence + 1):
                self.save(save)
            for at, commitment in floor.bases.items():
                if commitment == LOST and floor.anchor:
                    continue  # an anchor says so: nothing has it any more
                self.save(read_base(self.ledger, timeline, at, commitment))

    def save(self, save: Save) -> None:
        """Mark what a saved index uses; one that is stated to be lost uses nothing."""
        self._past = True
        if save.kind != DELTA:
            if save.place:
                self._tree(tuple(save.place), save.root, index=True)
            return
        for key, packed in zip(save.keys, save.slots, strict=True):
            if packed:
                self._element(read_slot(key, packed), index=True)

    def root(self, root: Node) -> None:
        """Mark what an index uses that is not saved itself."""
        self._past = False
        if root.count:
            self._tree(root, root.hash, index=True)

    def _tree(self, hint: Any, hash_: bytes, *, index: bool) -> None:
        place = hint.place if type(hint) is Node else hint
        if place is not None:
            if place in self._seen:
                return
            self._seen.add(place)
            self._mark(self.nodes, place)
        self.breathe()
        try:
            node = self.ledger.trees.load(hint, hash_)
        except StateIntegrityError as error:  # it is told, unless it was stated before
            if not self._past or not is_stated(self.ledger, error):
                raise
            return  # what is kept, and the entries behind it, lead to all that it led to
        for element in node.elements:
            if node.level:
                self._tree(element[2], element[1], index=index)
            else:
                self._element(element, index=index)

    def _element(self, element: Element, *, index: bool) -> None:
        _, ref, hint = element
        if index:  # the entry that wrote a key says when and why it was written
            self._mark(self.values, (*hint[:2], 0))
        bare = refs.bare(ref)
        if bare[0] == refs.ATOM:
            self._mark(self.values, hint[-4:])
        elif bare[0] == refs.TREE:
            if type(hint) is not Node:
                hint = hint[-1] if type(hint[-1]) is Node else hint[-4:]
            self._tree(hint, refs.read_tree(bare)[1], index=False)

    def _mark(self, found: set[tuple[int, int]], place: Any) -> None:
        timeline, sequence, ordinal = place[:3]
        if timeline == rowkinds.UPLOADS:
            self.uploads.add(sequence)
        elif timeline == self.timeline and sequence <= self.last:
            found.add((sequence, ordinal))
