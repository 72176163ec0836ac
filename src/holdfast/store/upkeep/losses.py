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

Rows that were stored with a lost entry lie where those of the entry that takes its number would
lie. Other timelines may have begun from the lost state and lead to them. So of a scope that has
other timelines none is dropped: entries that do nothing take the numbers, and what is lost is
nobody's past.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import partial

from holdfast.errors import Conflict, InvalidInputError, StateIntegrityError
from holdfast.storage.contract import Batch
from holdfast.storage.rows import pages
from holdfast.store.commit.group import Core
from holdfast.store.commit.stage import Stage
from holdfast.store.history.handle import LineHandle
from holdfast.store.journal import entry as entries
from holdfast.store.journal.entry import Body
from holdfast.store.journal.feed import LANES, FeedItem, Position, items_of
from holdfast.store.journal.floor import Loss, Stated, hash_of, newest_told, row_print
from holdfast.store.journal.ledger import Ledger
from holdfast.store.journal.save import INDEX, read_save
from holdfast.store.names import rowkinds

PAGE = 1000


def newest_entry(ledger: Ledger, number: int) -> int:
    """The number of the newest entry of a timeline that is here."""
    line = rowkinds.line(b"E", ledger.number, number)
    newest = ledger.storage.scan(line, rowkinds.after(line), limit=1, reverse=True)
    return rowkinds.sequence_of(newest[0][0]) if newest else ledger.before


def find_loss(core: Core, ledger: Ledger, number: int) -> Loss | None:
    """What a timeline has lost that none of its entries tells of."""
    known = newest_told(ledger, number)
    here = newest_entry(ledger, number)
    # The feed after the timeline: so it names all that is here. Its rows before their entries: so
    # these are here, unless they are lost.
    position = {lane: core.lanes.end(lane)[0] for lane in range(LANES)}
    since = known.position if known is not None else Position()
    commits = partial(_commits, ledger, number, since, position)
    named = known.head + known.surplus if known is not None else ledger.before
    head, last, first = here, 0, rowkinds.LAST_SEQUENCE
    lowest: FeedItem | None = None
    for item, there in commits():
        named += item.entries
        if there:
            head = max(head, _last(item))
        else:
            first, last = min(first, _last(item)), max(last, _last(item))
            lowest = item if lowest is None or item.first < lowest.first else lowest
    if lowest is None:
        return None
    if lowest.entries > 1:
        # Some of its entries may be here: those up to the newest of all, or before what was
        # written later.
        high = _last(lowest)
        later = [i.first for i, there in commits() if there and lowest.first <= i.first <= high]
        first = min(first, *later, max(lowest.first, here + 1) if here < high else high)
    return Loss(first, last, head, named - head, position)


def _commits(
    ledger: Ledger, number: int, since: Position, until: Position
) -> Iterator[tuple[FeedItem, bool]]:
    """Each commit that the feed names of a timeline between two positions, and whether the entry
    that it ended with is here."""
    line, prefix = (ledger.number, number), rowkinds.line(b"E", ledger.number, number)
    for lane, last in until.items():
        low, high = (rowkinds.feed(lane, at + 1) for at in (since.get(lane, 0), last))
        for page in pages(ledger.storage.scan, low, high, limit=PAGE):
            mine: list[FeedItem] = []
            for _, row in page:
                with suppress(StateIntegrityError):  # one that cannot be read names nothing
                    mine += [
                        i for i in items_of(row) if i.entries and (i.scope, i.timeline) == line
                    ]
            keys = [rowkinds.entry(prefix, _last(item)) for item in mine]
            for item, key, there in zip(mine, keys, ledger.storage.get(keys), strict=True):
                yield item, there is not None and hash_of(ledger, key, there) == item.hash


def _last(item: FeedItem) -> int:
    return item.first + item.entries - 1


def make_room(handle: LineHandle, last: int) -> int:
    """Let nothing of lost entries, up to `last`, be in the way of the next; how many rows went.

    A timeline that is the only one of its scope leads to nothing of them: all of it is dropped.
    """
    ledger = handle.history.points.line().ledger
    handle.core.lanes.recovered.add(str(handle.scope))  # or nothing could be written there
    head = handle.place()[2]
    alone = len(handle.core.timelines(ledger)) == 1
    line, dropped = handle.history.points.line(), 0
    following = rowkinds.entry(line.prefix, head + 1)
    # Somebody has written: what is left belongs to the new entry.
    with suppress(Conflict):
        for kind in (b"S", b"C", *((b"V", b"N") if alone else ())):
            prefix = rowkinds.line(kind, ledger.number, line.number)
            low, high = rowkinds.entry(prefix, head + 1), rowkinds.after(prefix)
            for page in pages(ledger.storage.scan, low, high, limit=PAGE):
                drops = [key for key, _ in page]
                handle.core.leases.commit(Batch(drops=drops, absent=[following]))
                dropped += len(page)
    announce = _unannounced(ledger, line.number, head)
    last = max(head + (announce is not None), 0 if alone else last)
    nodes = rowkinds.line(b"N", ledger.number, line.number)

    def special(stage: Stage, body: Body) -> None:
        """Entries that do nothing, with the numbers behind the newest one."""
        if stage.sequence == head:
            stage.announce = announce
        end = min(last, stage.sequence + PAGE)
        while True:
            stage.finish(Body(body.time, [[entries.TAKEN]], [], body.cause))
            low = rowkinds.entry(nodes, stage.sequence)
            # The next commit may save the state that it rests on: its nodes lie under that number.
            if stage.sequence >= end and not ledger.storage.scan(low, rowkinds.after(low), limit=1):
                return

    while newest_entry(ledger, line.number) < last:
        handle.write(special, "numbers of lost entries", ledger=ledger)
    return dropped


def _unannounced(ledger: Ledger, number: int, head: int) -> tuple[int, int, bytes] | None:
    """The save at the newest entry, if that one was lost which said that it is there."""
    keys = [
        rowkinds.entry(rowkinds.line(kind, ledger.number, number), head) for kind in (b"S", b"E")
    ]
    save, entry = ledger.storage.get(keys)
    if save is None or entry is None:
        return None
    try:
        said = ledger.open_entry(keys[1], entry)[1].save
        if said is not None and said[0] == head:
            return None
        plain = ledger.open_row(keys[0], save)
        return head, read_save(plain).kind, ledger.commit_save(plain)
    except StateIntegrityError:  # nobody can make use of it
        return None


def _lies(ledger: Ledger, at: int) -> bool:
    """Whether rows of a saved index lie at an entry of main, which may be left of a lost one."""
    lines = (rowkinds.entry(rowkinds.line(kind, ledger.number, 0), at) for kind in (b"S", b"N"))
    return any(ledger.storage.scan(low, rowkinds.after(low), limit=1) for low in lines)


def tell(handle: LineHandle, reason: str) -> Loss | None:
    """Let a timeline tell what it has lost, if that is something; the loss that was told."""
    ledger = handle.history.points.line().ledger
    lost = find_loss(handle.core, ledger, handle.history.points.line().number)
    if lost is None:
        return None
    handle.core.lanes.recovered.add(str(handle.scope))

    def special(stage: Stage, body: Body) -> None:
        body.ops = [lost.operation()]
        stage.finish(body)

    return lost._replace(at=handle.write(special, reason, ledger=ledger).sequence)


MOST_STATED = 1000
"""Rows that one statement names."""
NO_SIGNER = (
    "give it (signer=, --signer), or put its file back from a copy of the store's files; a store "
    "has one signer for good"
)
STATED = frozenset(("damage", "chain", "root", "signature", "unaccounted"))
"""Kinds of findings that can be stated; what the feed names and is missing is told (`tell`)."""


def state_losses(handle: LineHandle, found: Iterable[tuple[str, bytes]], reason: str) -> list[str]:
    """State, in signed checkpoints of main, that rows are damaged for good; the ids of these.

    `found`: kind and row of each finding. The newest state has to be whole: it is what stays.
    """
    ledger = handle.history.points.line().ledger
    if handle.core.signer is None:
        raise InvalidInputError(
            f"{handle.scope}: a statement of loss is signed, the signer is not here: {NO_SIGNER}"
        )
    rows = dict.fromkeys(found)
    prints = zip(rows, ledger.storage.get([key for _, key in rows]), strict=True)
    said = [Stated(kind, key, row_print(key, row)) for (kind, key), row in prints]
    made: list[str] = []
    anew = any(key[:1] in (b"N", b"S") for _, key in rows)
    if anew:  # of a saved index nothing is lost: the newest state is saved as its entries give it
        with suppress(StateIntegrityError):  # an index that was saved later is whole
            handle.core.reload(handle.scope, "main", saves=False)
    for start in range(0, len(said), MOST_STATED):

        def special(stage: Stage, body: Body, start: int = start) -> None:
            if not start:
                stage.announce = stage.announce or _unannounced(ledger, 0, stage.sequence)
                if anew and stage.announce is None and not _lies(ledger, stage.sequence):
                    stage.save(INDEX)
            op = [entries.CHECKPOINT, "stated loss", "recovery", str(handle.scope)]
            body.ops = [op, [entries.SPOILT, said[start : start + MOST_STATED]]]
            # In place of what it made before, if others were faster.
            made[start // MOST_STATED :] = [handle.history.signed(stage, body).id]

        handle.on("main").write(special, reason, ledger=ledger)
    return made
