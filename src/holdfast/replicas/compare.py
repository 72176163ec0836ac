"""Comparing a range of rows on both sides, page by page, and taking over what differs."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from holdfast.replicas.judge import Judge
from holdfast.replicas.row_writer import Writer
from holdfast.storage.contract import LAST, Moment
from holdfast.store.names import rowkinds as rows
from holdfast.store.names.threads import safe_point
from holdfast.store.open import META

Row = tuple[bytes, bytes]
Difference = tuple[bytes, bytes | None, bytes | None]
"""Key, what the source has, what the replica has."""
PAGE = 1 << 20
"""Bytes of a page, about: what bounds memory."""
MOST = 1000
KEPT = 100
"""Findings that are told; the others are counted."""


class Findings:
    """What was found to be wrong, and left as it is."""

    def __init__(self) -> None:
        self._told: dict[str, None] = {}
        self._more = 0

    def add(self, key: bytes, what: str) -> None:
        """Note a row."""
        text = f"{rows.describe(key)}: {what}"
        if len(self._told) < KEPT or text in self._told:
            self._told[text] = None
        else:
            self._more += 1

    def told(self) -> tuple[str, ...]:
        """For people."""
        more = [f"and {self._more} more"] if self._more else []
        return (*self._told, *more)


def paged(read: Callable[..., list[Row]], low: bytes, high: bytes) -> Iterator[Row]:
    """Rows of a range; pages are of about as many bytes, whatever the rows are like."""
    limit = 64
    while page := read(low, high, limit=limit):
        safe_point()
        yield from page
        low = page[-1][0] + b"\0"
        size = sum(len(row) for _, row in page)
        limit = max(1, min(MOST, limit * PAGE // max(size, PAGE // 4)))


def differences(
    source: Iterator[Row], replica: Iterator[Row], counts: Callable[[bytes], bool]
) -> Iterator[Difference]:
    """What differs between two ranges, in the order of keys."""
    mine, theirs = next(source, None), next(replica, None)
    while mine is not None or theirs is not None:
        if theirs is None or (mine is not None and mine[0] < theirs[0]):
            assert mine is not None
            if counts(mine[0]):
                yield mine[0], mine[1], None
            mine = next(source, None)
        elif mine is None or theirs[0] < mine[0]:
            yield theirs[0], None, theirs[1]
            theirs = next(replica, None)
        else:
            if not counts(mine[0]):
                yield mine[0], None, theirs[1]
            elif mine[1] != theirs[1]:
                yield mine[0], mine[1], theirs[1]
            mine, theirs = next(source, None), next(replica, None)


class Comparison:
    """Brings ranges of a replica's rows to what its source has."""

    def __init__(self, judge: Judge, writer: Writer, findings: Findings) -> None:
        self._judge = judge
        self._moment: Moment = judge.moment
        self._writer = writer
        self._findings = findings

    def between(self, low: bytes, high: bytes) -> Iterator[Difference]:
        """What differs in a range."""
        source = paged(self._moment.scan, low, high)
        replica = paged(self._writer.rows.scan, low, high)
        return differences(source, replica, self._judge.counts)

    def copy(self) -> None:
        """Make all rows equal, whatever the replica has, but the one that makes it a store."""
        for key, mine, theirs in self.between(b"", LAST):
            if key == META:
                continue
            if mine is None:
                self._writer.drop(key)
            elif not self._judge.whole(key, mine):
                self._findings.add(key, "it is damaged in the store, and was not copied")
                if theirs is not None and not self._judge.whole(key, theirs):
                    self._writer.drop(key)
            elif theirs is None:
                self._writer.put(key, mine)
            else:
                self._writer.swap(key, theirs, mine)
            self._writer.ease()
        self._entomb()

    def take_over(self, low: bytes, high: bytes) -> None:
        """Make a range equal, as far as the source accounts for what differs."""
        for key, mine, theirs in self.between(low, high):
            self._entomb()
            if key[:1] in (b"M", b"F"):
                self._findings.add(key, "it is not the same in the replica; make that anew")
            elif mine is None:
                if self._judge.may_go(key):
                    self._writer.drop(key)
                elif not self._judge.came_since(key):
                    self._findings.add(key, "it is missing in the store; the replica keeps it")
            elif theirs is None:
                self._put(key, mine)
            elif self._judge.replaces(key, mine, theirs):
                self._swap(key, mine, theirs)
            else:
                self._findings.add(key, "store and replica differ; one of them is damaged")
            self._writer.ease()
        self._entomb()

    def _entomb(self) -> None:
        """Put tombstones that are newer than the moment: before their scopes' rows are dropped."""
        while self._judge.buried:
            key, row = self._judge.buried.popitem()
            if self._writer.storage.get([key])[0] is None:
                self._writer.put(key, row)

    def _put(self, key: bytes, row: bytes) -> None:
        if self._judge.whole(key, row):
            self._writer.put(key, row)
        else:
            self._findings.add(key, "it is damaged in the store, and was not copied")

    def _swap(self, key: bytes, mine: bytes, theirs: bytes) -> None:
        self._writer.swap(key, theirs, mine)
        if key[:1] == b"E" and len(mine) < len(theirs):
            gone = self._judge.correlation(key, theirs)
            if gone is not None:
                self._writer.drop(gone)
