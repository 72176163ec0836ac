"""Anchors that were lost: the row that leads to one is made again, or another one is announced.

The chain may still have an anchor whose row is lost: then nothing else is. If the anchor itself is
lost, nothing says any more what the scope begins with. Another one is announced: an entry that
names the same floor, and of the states that were kept those that something else vouches for
(`floors`). The one at the floor is named in any case, as lost if it is. What is lost stays so; but
from then on `verify` tells pruning from tampering again, and the scope can be pruned further.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import NamedTuple

import msgspec

from holdfast.errors import Conflict, StateIntegrityError
from holdfast.storage.contract import Batch
from holdfast.store.commit.change import Change, Target
from holdfast.store.commit.core import Core
from holdfast.store.commit.stage import Stage
from holdfast.store.history.handle import LineHandle
from holdfast.store.journal import entry as entries
from holdfast.store.journal.entry import Body
from holdfast.store.journal.floor import (
    LOST,
    NO_FLOOR,
    Floor,
    all_rows,
    anchored_floor,
    floor_of,
    led_to,
    newest_anchor_row,
    number_of,
    without_anchor,
)
from holdfast.store.journal.ledger import Ledger, gone
from holdfast.store.names import rowkinds
from holdfast.store.names.cause import cause_now
from holdfast.store.names.scope import Scope
from holdfast.store.upkeep.losses import hash_of

_encode = msgspec.msgpack.Encoder().encode


class LostAnchor(NamedTuple):
    """A timeline that was pruned, and whose newest anchor cannot be found by its row."""

    timeline: str
    number: int
    """Of the timeline."""
    key: bytes
    """Of the row that leads, or should lead, to the anchor."""
    floor: Floor
    states: tuple[int, ...]
    """Entries whose states were kept, and are lost with the anchor."""
    entry: int = 0
    """The anchor itself, as the row has it; 0 if that cannot be read."""
    certain: bool = False
    """Whether only who has the key can have written that: then the entry did nothing else."""

    def keys(self, ledger: Ledger) -> list[bytes]:
        """Of rows that are, or may be, damaged, or that nobody believes any more."""
        base = rowkinds.line(b"B", ledger.number, self.number)
        found = [self.key, *(rowkinds.entry(base, at) for at in self.states)]
        line = rowkinds.line(b"E", ledger.number, self.number)
        return [*found, *([rowkinds.entry(line, self.entry)] if self.entry else ())]


def lost_anchors(core: Core, scope: Scope) -> list[LostAnchor]:
    """The timelines of a scope whose anchors are lost, but for those that are ended."""
    ledger = core.known(scope)
    if ledger is None or not _was_pruned(ledger):
        return []
    found = []
    for number, name, _, _ in core.timelines(ledger):
        lost = _lost(ledger, number, name)
        if lost is not None and not _ended(ledger, number):
            found.append(lost)
    return found


def _was_pruned(ledger: Ledger) -> bool:
    """Whether any timeline of a scope has rows that only pruning makes."""
    ranges = (kind + ledger.number.to_bytes(rowkinds.SCOPE, "big") for kind in (b"A", b"B"))
    return any(ledger.storage.scan(low, rowkinds.after(low), limit=1) for low in ranges)


def _lost(ledger: Ledger, number: int, name: str) -> LostAnchor | None:
    ledger.floors.pop(number, None)  # as it is stored, not as it was read before
    try:
        if anchored_floor(ledger, number).number:
            return None
        floor = without_anchor(ledger, number, 1) if any(_kept(ledger, number)) else NO_FLOOR
    except StateIntegrityError:
        floor = floor_of(ledger, number)
    if not floor.number:
        return None
    key = rowkinds.anchor(ledger.number, number, floor.number)
    if floor.anchor:
        return LostAnchor(name, number, key, floor, ())
    every = {*_kept(ledger, number), *floor.bases}
    states = sorted(at for at in every if floor.bases.get(at, LOST) == LOST)
    led, sealed = led_to(ledger, number), ledger.seal.encrypted
    return LostAnchor(name, number, key, floor, tuple(states), led, sealed)


def _kept(ledger: Ledger, number: int) -> Iterator[int]:
    """Entries whose states have rows of their own."""
    line = rowkinds.line(b"B", ledger.number, number)
    return (rowkinds.sequence_of(key) for key, _ in all_rows(ledger, line))


def _ended(ledger: Ledger, number: int) -> bool:
    """Whether a timeline's newest entry ends it: behind that nobody writes."""
    line = rowkinds.line(b"E", ledger.number, number)
    try:
        for key, row in ledger.storage.scan(line, rowkinds.after(line), limit=1, reverse=True):
            ops = ledger.open_entry(key, row)[1].ops
            return any(op[0] in (entries.GONE, entries.END) for op in ops)
    except StateIntegrityError:
        pass
    return False


def leading_rows(core: Core, scope: Scope) -> dict[bytes, bytes]:
    """Rows that lead to anchors which the chain still has, as they should be."""
    ledger, found = core.known(scope), dict[bytes, bytes]()
    for lost in lost_anchors(core, scope):
        if ledger is not None and lost.floor.anchor:
            leads = _encode(lost.floor.anchor)
            found[lost.key] = ledger.seal_row(lost.key, leads, ledger.commit_line)
    return found


def announce_again(handle: LineHandle, lost: LostAnchor, reason: str) -> None:
    """Commit another anchor in place of a lost one, if there is another sign of pruning.

    The state of the timeline stays as it is, readable or not.
    """
    line = handle.history.points.line()
    if lost.floor.sequence:
        target = Target(handle.scope, handle.timeline, create=False)
        target.special = _special(line.ledger, lost)
        target.stranded = line if line.stranded is not None else None
        handle.core.run(Change([target], cause_now(reason=reason)))
    handle.core.lost()  # what is held of the scope goes by the anchor that was lost


def drop_unnamed(core: Core, scope: Scope) -> None:
    """Drop what leads to older anchors, and states that were kept and that no anchor names, as far
    as anchors can be read; one that nothing else tells of is none."""
    ledger = core.known(scope)
    for number, *_ in core.timelines(ledger) if ledger is not None else ():
        assert ledger is not None
        floor, line = floor_of(ledger, number), rowkinds.line(b"A", ledger.number, number)
        if (floor.sequence and not floor.anchor) or _ended(ledger, number):
            continue
        leading = [key for key, _ in ledger.storage.scan(line, rowkinds.after(line))]
        base = rowkinds.line(b"B", ledger.number, number)
        drops = [key for key in leading if not floor.anchor or number_of(key) < floor.number]
        drops += [rowkinds.entry(base, at) for at in _kept(ledger, number) if at not in floor.bases]
        if drops:
            with suppress(Conflict):  # it was pruned meanwhile: whoever did that drops the rest
                following = rowkinds.anchor(ledger.number, number, floor.number + 1)
                core.leases.commit(Batch(drops=drops, absent=[following]))


def _special(ledger: Ledger, lost: LostAnchor) -> Callable[[Stage, Body], None]:
    floor = lost.floor
    at = rowkinds.entry(rowkinds.line(b"E", ledger.number, lost.number), floor.sequence)
    row = ledger.storage.get([at])[0]
    hash_ = hash_of(ledger, at, row) if row is not None else b""
    op = [entries.PRUNE, floor.sequence, hash_, sorted(floor.bases.items())]
    before = newest_anchor_row(ledger, lost.number)

    def special(stage: Stage, body: Body) -> None:
        if stage.ledger.number != ledger.number:
            raise gone(ledger.scope)
        anchor = stage.sequence + 1
        # Without a row nobody knows how many anchors there were: no more than entries.
        number = number_of(before) + 1 if before else anchor
        key = rowkinds.anchor(ledger.number, lost.number, number)
        stage.rows.append((key, ledger.seal_row(key, _encode(anchor), ledger.commit_line)))
        stage.absent += [key, ledger.next_epoch()]
        body.ops = [op]
        stage.finish(body)

    return special
