"""How far a replica is behind its source."""

from __future__ import annotations

from holdfast.errors import HoldfastError
from holdfast.replicas.commits import check_ends, ends
from holdfast.replicas.judge import Judge
from holdfast.storage.contract import Moment, Storage
from holdfast.store.commit.core import Core
from holdfast.store.journal.feed import items_of
from holdfast.store.names import rowkinds
from holdfast.store.names.cells import row_at

MOST = 100_000
"""Entries that are counted."""


def lag(core: Core, replica: Storage) -> tuple[int, float]:
    """How many entries a replica lacks, and for how many seconds it has lacked the oldest.

    Refused if it holds what the source does not. It may be synced meanwhile, so that it is read
    first.
    """
    there = ends(replica)
    with core.storage.moment() as moment:
        check_ends(moment, there)
        return _behind(core, moment, {lane: number for lane, (number, _) in there.items()})


def _behind(core: Core, moment: Moment, position: dict[int, int]) -> tuple[int, float]:
    judge = Judge(core, moment)
    entries, oldest = 0, None
    for lane, (number, _) in ends(moment).items():
        after, first = position.get(lane, 0), True
        while after < number and entries < MOST:
            page = moment.scan(rowkinds.feed(lane, after + 1), rowkinds.after(b"F" + bytes([lane])))
            if not page:
                break
            for _, row in page:
                items = [item for item in items_of(row) if item.entries]
                entries += sum(item.entries for item in items)
                if first and items:
                    prefix = rowkinds.line(b"E", items[0].scope, items[0].timeline)
                    time = _time(judge, rowkinds.entry(prefix, items[0].first))
                    oldest = min(time, oldest or time) if time is not None else oldest
                first = False
            after = int.from_bytes(page[-1][0][2:], "big")
    if not entries or oldest is None:
        return min(entries, MOST), 0.0
    return min(entries, MOST), max(0.0, (core.clock.claimed() - oldest) / 1_000_000)


def _time(judge: Judge, key: bytes) -> int | None:
    row = row_at(judge.moment, key)
    try:
        body = judge.body(key, row) if row is not None else None
    except HoldfastError:
        return None
    return body.time if body is not None else None
