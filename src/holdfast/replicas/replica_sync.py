"""One sync of one replica: up to a moment of its source."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from os import urandom
from random import choice

import msgspec

from holdfast.errors import HoldfastError, RefusedError, ReplicaSplitError
from holdfast.replicas.commits import Commits, check_ends, ends
from holdfast.replicas.compare import Comparison, Difference, Judge, differences, paged
from holdfast.replicas.replica_cell import Claim, Writer, cell_of, mark_of
from holdfast.storage.contract import LAST, Batch, Moment, Storage
from holdfast.storage.rows import each
from holdfast.store.inner import Core, items_of
from holdfast.store.names import rowkinds
from holdfast.store.names.cells import row_at
from holdfast.store.open import META

# ---- reports ------------------------------------------------------------------------------------
# What is said of replicas.


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
    compared: int = 0
    """Rows written before that were compared with the store's: a sample, unless all were."""
    split: bool = False
    """Whether it went its own way: it holds what the store does not, or follows no more."""

    @property
    def ok(self) -> bool:
        """Whether it holds all that the store held when the sync began, and nothing is damaged."""
        return self.error is None and not self.findings

    def __str__(self) -> str:
        done = f"{self.rows} rows written, {self.removed} removed"
        said = self.error or done + f", a sample of {self.compared} compared" * bool(self.compared)
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
    there, entries, oldest = ends(replica), 0, None
    with core.storage.moment() as moment:
        check_ends(moment, there)
        judge = Judge(core, moment)
        for lane, (number, _) in ends(moment).items():
            after = there[lane][0] if lane in there else 0
            low, high = rowkinds.feed(lane, after + 1), rowkinds.feed(lane, number + 1)
            for key, row in each(moment.scan, low, high):
                items = [item for item in items_of(row) if item.entries]
                entries += sum(item.entries for item in items)
                if items and key == low:
                    prefix = rowkinds.line(b"E", items[0].scope, items[0].timeline)
                    first = rowkinds.entry(prefix, items[0].first)
                    with suppress(HoldfastError):  # then its time is not known
                        body = judge.body(first, row_at(moment, first) or b"")
                        oldest = min(body.time, oldest or body.time) if body is not None else oldest
                if entries >= MOST:
                    break
    if not entries or oldest is None:
        return min(entries, MOST), 0.0
    return min(entries, MOST), max(0.0, (core.clock.claimed() - oldest) / 1_000_000)


# ---- replica sync -------------------------------------------------------------------------------


_decode = msgspec.msgpack.Decoder().decode
WHOLE = [
    kind.key
    for kind in rowkinds.ROWS
    if not kind.is_scoped and (kind.sealed == rowkinds.STORE_KEY or kind.check == rowkinds.CALLED)
]
"""Kinds of rows that belong to no scope, or whose keys do not begin with it."""


def check_place(core: Core, storage: Storage, *, remake: bool = False) -> None:
    """Refuse to write where something else is than a replica of this store."""
    meta = storage.get([META])[0]
    marked = cell_of(storage) is not None
    if meta is None:
        empty = not storage.scan(b"", LAST, limit=1) and not storage.cells(b"", LAST, limit=1)
        if not marked and not empty:
            raise RefusedError(
                "something else than a replica is there; nothing was changed: name another place"
            )
    elif meta != core.storage.get([META])[0]:
        raise RefusedError(
            "another store is there; nothing was changed: name another place, or remove that store"
        )
    elif not marked and not remake:
        raise ReplicaSplitError(
            "what is there is a store of its own: a replica that was promoted, or a copy; nothing "
            "was changed. To have it follow, and lose what only it holds, make it anew (remake)"
        )


def sync(
    core: Core, storage: Storage, *, named: str = "", full: bool = False, remake: bool = False
) -> SyncedReplica:
    """Bring a replica up to now, or make it; `named` is what the report calls it."""
    if not full and not remake and _is_up_to_date(core, storage):
        sample = sample_of(core.storage)
        if not differing(sample, storage):  # else it is judged, at one moment, below
            return SyncedReplica(named, False, 0, 0, 0, (), None, len(sample))
    claim = Claim(storage, anew=remake)
    claim.take(lambda: check_place(core, storage, remake=remake))
    try:
        claim.check_other(core.storage)
        with core.storage.moment() as moment:
            return _Sync(core, moment, claim).run(named, full=full, remake=remake)
    finally:
        claim.release()


SAMPLE = 64
"""Rows that each sync compares besides."""


def sample_of(source: Moment) -> list[tuple[bytes, bytes]]:
    """Some rows that lie together, anywhere: over time all are among them."""
    kinds = [kind.key for kind in rowkinds.ROWS if kind.layout]
    low = choice(kinds) + urandom(8)
    return source.scan(low, LAST, limit=SAMPLE) or source.scan(b"", LAST, limit=SAMPLE)


def differing(sample: list[tuple[bytes, bytes]], replica: Storage) -> list[tuple[bytes, bytes]]:
    """Those that a replica does not hold as they are."""
    held = replica.get([key for key, _ in sample])
    return [one for one, row in zip(sample, held, strict=True) if row != one[1]]


def _is_up_to_date(core: Core, storage: Storage) -> bool:
    """Whether a replica lacks nothing that the source holds now. Nothing is written for that.

    Who follows finds it so most of the time, and a claim is two commits. No moment is needed: all
    that is read is read since this began, and a lane of the feed never loses a row.
    """
    held, mark = mark_of(storage)
    if mark is None or not mark.whole or mark.token or cell_of(core.storage) == held:
        return False
    if storage.get([META]) != core.storage.get([META]) or ends(storage) != ends(core.storage):
        return False
    return next(_cells(core.storage, storage), None) is None


def _cells(source: Moment, replica: Moment, *, pins: bool = False) -> Iterator[Difference]:
    """Cells that are to become others: (key, what the replica has, what it is to have).

    Pins are of values on their way, which are not copied; those of a replica are its own.
    """
    here, there = paged(source.cells, b"", LAST), paged(replica.cells, b"", LAST)
    for key, mine, theirs in differences(here, there, _is_copied):
        if _is_copied(key) or (pins and key != rowkinds.FOLLOWS):
            yield key, theirs, mine


def _is_copied(cell: bytes) -> bool:
    kind = rowkinds.cell_kind(cell)
    return kind is None or kind.copied


class _Sync:
    def __init__(self, core: Core, moment: Moment, claim: Claim) -> None:
        self._moment = moment
        self._claim = claim
        self._judge = Judge(core, moment)
        self._writer = Writer(claim)
        self._comparison = Comparison(self._judge, self._writer)

    def run(self, named: str, *, full: bool, remake: bool) -> SyncedReplica:
        make = remake or not self._claim.whole or self._claim.storage.get([META])[0] is None
        if make:
            self._make()
        else:
            self._follow(full=full)
        sample = [] if make or full else sample_of(self._moment)
        for key, row in differing(sample, self._claim.storage):
            if self._judge.whole(key, row):
                self._judge.note(key, "the replica has it otherwise; sync(full=True) mends")
        done, found = self._writer, self._judge.told()
        counts = done.sent, done.removed, done.bytes
        return SyncedReplica(named, make, *counts, found, None, len(sample))

    def _make(self) -> None:
        """Copy everything; the row that makes it a store is written last."""
        self._claim.commit(Batch(drops=[META]), whole=False)
        self._comparison.copy()
        self._write(_cells(self._moment, self._writer.storage, pins=True))
        self._writer.put(META, row_at(self._moment, META) or b"")
        self._writer.flush(whole=True)

    def _follow(self, *, full: bool) -> None:
        """Copy what came since, then what was changed besides."""
        cells = list(_cells(self._moment, self._writer.storage))
        counts = [one for one in cells if one[0].startswith(rowkinds.BESIDE)]
        others = [one for one in cells if not one[0].startswith(rowkinds.BESIDE)]
        rests: dict[bytes, list[Difference]] = {}
        for one in others:
            if one[0][:1] == b"R" and one[2] is not None:
                rests.setdefault(rowkinds.ends_of(one[0])[1], []).append(one)
        commits = Commits(self._judge, self._writer, rests)
        commits.check()
        before, after = self._in_turn(others)
        self._write(before)
        commits.run()
        if full:
            self._compare(self._directory())
            self._comparison.take_over(b"", LAST)
        else:
            self._changed(counts, commits)
        self._writer.flush()
        left = [one for some in rests.values() for one in some]
        self._write([*after, *left, *counts])

    def _in_turn(self, others: list[Difference]) -> tuple[list[Difference], list[Difference]]:
        """Cells to write before the rows, and after them.

        As in the source itself, a scope is said to be pruned while rows of it may be left over.
        """
        before = [one for one in others if one[2] is not None and one[0][:1] not in b"AR"]
        after = [one for one in others if one[2] is None]
        for one in others:
            if one[0][:1] == b"A" and one[2] is not None:
                line = b"T" + one[0][1:7]
                known = self._writer.storage.scan(line, rowkinds.after(line), limit=1)
                (before if known else after).append(one)
        return before, after

    def _write(self, swaps: Iterable[Difference]) -> None:
        for swap in swaps:
            self._writer.cell(swap)
            self._writer.ease()
        self._writer.flush()

    # what was changed without the feed

    def _changed(self, counts: list[Difference], commits: Commits) -> None:
        scopes = {rowkinds.scope_of(key) for key, _, _ in counts if len(key) > 1} | commits.erased
        kinds = {kind for key, _, _ in counts if key == rowkinds.BESIDE for kind in WHOLE}
        if commits.unread:
            kinds |= {b"I", b"R"}
        if b"D" in kinds:
            scopes |= self._directory()
        self._compare(scopes)
        for kind in sorted(kinds):
            self._comparison.take_over(kind, rowkinds.after(kind))

    def _directory(self) -> set[int]:
        """Put new tombstones there; the scopes whose names are to go."""
        scopes: set[int] = set()
        for key, mine, theirs in self._comparison.between(b"D", b"E"):
            if mine is not None and theirs is None and rowkinds.state_of(key) == rowkinds.ERASED:
                self._writer.put(key, mine)
            elif (
                mine is None
                and rowkinds.state_of(key) == rowkinds.THERE
                and self._judge.may_go(key)
            ):
                scopes.add(_decode(self._judge.core.open_row(key, theirs or b""))[1])
        self._writer.flush()
        return scopes

    def _compare(self, scopes: Iterable[int]) -> None:
        """Compare all of some scopes; of one that is erased all goes."""
        for scope in sorted(scopes):
            number = scope.to_bytes(rowkinds.SCOPE, "big")
            for kind in rowkinds.OF_SCOPE:
                self._comparison.take_over(kind + number, rowkinds.after(kind + number))
        self._writer.flush()
