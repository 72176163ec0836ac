"""What is said of replicas."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.errors import HoldfastError
from holdfast.replicas.commits import check_ends, ends
from holdfast.replicas.judge import Judge
from holdfast.storage.contract import Moment, Storage
from holdfast.store.inner import Core, items_of
from holdfast.store.names import rowkinds
from holdfast.store.names.cells import row_at


@dataclass(frozen=True, slots=True)
class SyncedReplica:
    """What a sync did to one replica."""

    url: str
    """Without a password."""
    made: bool
    """Whether it was copied whole: it is new, or was made anew."""
    rows: int
    """That were written."""
    removed: int
    """Rows that were dropped: what was pruned or erased in the store."""
    bytes: int
    findings: tuple[str, ...]
    """What is damaged, here or there, and was left as it is."""
    error: str | None
    """Why it is not up to date, if it is not."""

    @property
    def ok(self) -> bool:
        """Whether it holds all that the store held when the sync began, and nothing is damaged."""
        return self.error is None and not self.findings

    def __str__(self) -> str:
        said = self.error or f"{self.rows} rows written, {self.removed} removed"
        return "\n".join([f"{self.url}: {said}", *(f"  {one}" for one in self.findings)])


@dataclass(frozen=True, slots=True)
class SyncReport:
    """What a sync did."""

    replicas: tuple[SyncedReplica, ...]

    @property
    def ok(self) -> bool:
        """Whether all replicas hold all that the store held when the sync began."""
        return all(one.ok for one in self.replicas)

    def __str__(self) -> str:
        return "\n".join(str(one) for one in self.replicas)


@dataclass(frozen=True, slots=True)
class ReplicaStatus:
    """How a replica is."""

    url: str
    """Without a password."""
    whole: bool
    """Whether it is a store that can be opened and promoted."""
    entries: int | None
    """That the store has and it has not, 100,000 at most; None if that is not known."""
    seconds: float | None
    """Since the oldest of them was written, by the writer's clock; 0 if there are none."""
    error: str | None
    """Why it cannot be told, or why the last sync of this process did not bring it up to date."""

    def __str__(self) -> str:
        if self.error is not None:
            return f"{self.url}: {self.error}"
        if not self.whole:
            return f"{self.url}: not made yet"
        if not self.entries:
            return f"{self.url}: up to date"
        return f"{self.url}: {self.entries} entries behind, for {self.seconds or 0:.1f} s"


# ---- lag ----------------------------------------------------------------------------------------
# How far a replica is behind its source.


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
