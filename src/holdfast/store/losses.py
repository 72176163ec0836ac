"""Entries that the feed names and a timeline does not have any more.

Nothing in what is left of a timeline shows that its newest entries were dropped: all of it can be
read, and what is written next takes the number of a lost one. The feed still names each entry that
was ever committed, with the hash of the last of each commit. So a commit is *lost* if the entry
that it ended with is not here, or another one is in its place; and a timeline has lost something
if the feed names more entries of it than it has.

What is lost stays lost. An entry can say so: it names the numbers, and how far the feed had been
read. `verify` then tells of it as something that is known, and judges the timeline by what the feed
names behind that. The entry is part of the chain like any other: in a timeline that was put back it
is missing, and all that the feed names counts again.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

from holdfast.errors import Conflict, PrunedError, StateIntegrityError
from holdfast.storage.contract import Batch
from holdfast.store import entries, rows
from holdfast.store.cause import cause_now
from holdfast.store.change import Change, Target
from holdfast.store.core import Core
from holdfast.store.entries import Body
from holdfast.store.feed import LANES, FeedItem, Position, items_of
from holdfast.store.handles import LineHandle
from holdfast.store.ledger import Ledger, gone
from holdfast.store.stage import Stage

PAGE = 1000


class Loss(NamedTuple):
    """Entries of a timeline that are lost."""

    first: int
    last: int
    """The lowest and the highest number of an entry that is lost."""
    surplus: int
    """How many more entries the feed names, all in all, than the timeline has."""
    position: Position
    """How far the feed was read."""
    at: int = 0
    """The entry that says so; 0 if none does."""

    def __str__(self) -> str:
        return loss_text(self.first, self.last)

    def operation(self) -> list[object]:
        """What the entry that tells of it says."""
        lanes = sorted(self.position.items())
        return [entries.LOST, self.first, self.last, self.surplus, lanes]


def loss_text(first: int, last: int) -> str:
    """What is lost, for people."""
    if first == last:
        return f"entry {first}, which the feed names"
    return f"entries {first} to {last}, which the feed names"


def told(sequence: int, op: list[object]) -> Loss:
    """What an entry says is lost."""
    _, first, last, surplus, lanes = op
    return Loss(first, last, surplus, dict(lanes), sequence)  # type: ignore[arg-type, call-overload]


def newest_told(ledger: Ledger, number: int) -> Loss | None:
    """The newest loss that a timeline tells of; what cannot be read is passed over."""
    line = rows.line(b"E", ledger.number, number)
    high = rows.after(line)
    while page := ledger.storage.scan(line, high, limit=PAGE, reverse=True):
        for key, row in page:
            with suppress(PrunedError, StateIntegrityError):
                for op in ledger.open_entry(key, row)[1].ops:
                    if op[0] == entries.LOST:
                        return told(rows.sequence_of(key), op)
        high = page[-1][0]
    return None


def find_loss(core: Core, ledger: Ledger, number: int) -> Loss | None:
    """What a timeline has lost that none of its entries tells of."""
    known = newest_told(ledger, number)
    line = rows.line(b"E", ledger.number, number)
    newest = ledger.storage.scan(line, rows.after(line), limit=1, reverse=True)
    here = rows.sequence_of(newest[0][0]) if newest else ledger.before
    # The feed after the timeline: so it names all that is here. Its rows before their entries: so
    # these are here, unless they are lost.
    position = {lane: core.lanes.end(lane)[0] for lane in range(LANES)}
    commits = _Commits(ledger, number, known.position if known is not None else {}, position)
    named = known.at - 1 + known.surplus if known is not None else ledger.before
    head, last = here, 0
    lowest: FeedItem | None = None
    for item, there in commits.look():
        named += item.entries
        if there:
            head = max(head, _last(item))
        else:
            last = max(last, _last(item))
            lowest = item if lowest is None or item.first < lowest.first else lowest
    if lowest is None:
        return None
    return Loss(commits.first(lowest, here), last, named - head, position)


def hash_of(ledger: Ledger, key: bytes, row: bytes) -> bytes:
    """The hash of an entry; empty if its envelope cannot be read."""
    try:
        return ledger.entry_hash(key, entries.split_row(row)[0].data)
    except StateIntegrityError:
        return b""


class _Commits:
    """What the feed names of one timeline, between two positions."""

    def __init__(self, ledger: Ledger, number: int, since: Position, until: Position) -> None:
        self._ledger = ledger
        self._number = number
        self._since, self._until = since, until

    def look(self) -> Iterator[tuple[FeedItem, bool]]:
        """Each commit, and whether the entry that it ended with is here."""
        for lane, until in self._until.items():
            low, high = rows.feed(lane, self._since.get(lane, 0) + 1), rows.feed(lane, until + 1)
            while page := self._ledger.storage.scan(low, high, limit=PAGE):
                yield from self._looked_up(page)
                low = page[-1][0] + b"\0"

    def _looked_up(self, page: list[tuple[bytes, bytes]]) -> Iterator[tuple[FeedItem, bool]]:
        ledger, mine = self._ledger, []
        for _, row in page:
            with suppress(StateIntegrityError):  # one that cannot be read names nothing
                found = items_of(row)
                mine += [i for i in found if (i.scope, i.timeline) == (ledger.number, self._number)]
        line = rows.line(b"E", ledger.number, self._number)
        keys = [rows.entry(line, _last(item)) for item in mine]
        for item, key, there in zip(mine, keys, ledger.storage.get(keys), strict=True):
            yield item, there is not None and hash_of(ledger, key, there) == item.hash

    def first(self, lost: FeedItem, here: int) -> int:
        """The first entry of a commit that is lost; some of its entries may be here.

        Those are the ones up to the newest of all, or before what was written later.
        """
        last = _last(lost)
        if lost.first == last:
            return last
        later = [i.first for i, there in self.look() if there and lost.first <= i.first <= last]
        return min([*later, *([max(lost.first, here + 1)] if here < last else [])], default=last)


def _last(item: FeedItem) -> int:
    return item.first + item.entries - 1


def drop_behind(handle: LineHandle) -> int:
    """Drop rows that belong to entries behind the newest one, which are lost; how many.

    Values, saved indexes, nodes and signatures of a lost entry lie where those of the one that
    takes its number are to lie. Nothing is dropped once that is there.
    """
    line = handle.history.points.line()
    storage, head = line.ledger.storage, handle.place()[2]
    following, dropped = rows.entry(line.prefix, head + 1), 0
    for kind in (b"V", b"S", b"N", b"C"):
        prefix = rows.line(kind, line.ledger.number, line.number)
        while page := storage.scan(rows.entry(prefix, head + 1), rows.after(prefix), limit=PAGE):
            batch = Batch(drops=[key for key, _ in page], absent=[following])
            try:
                handle.core.leases.commit(batch)
            except Conflict:
                return dropped  # somebody has written since
            dropped += len(page)
    return dropped


def tell(handle: LineHandle, reason: str) -> Loss | None:
    """Let a timeline tell what it has lost, if that is something; the loss that was told."""
    ledger = handle.history.points.line().ledger
    lost = find_loss(handle.core, ledger, handle.history.points.line().number)
    if lost is None:
        return None

    def special(stage: Stage, body: Body) -> None:
        if stage.ledger.number != ledger.number:
            raise gone(ledger.scope)
        body.ops = [lost.operation()]
        stage.finish(body)

    target = Target(handle.scope, handle.timeline, special=special, create=False)
    written = handle.core.run(Change([target], cause_now(reason=reason)))[0]
    return lost._replace(at=written.sequence)
