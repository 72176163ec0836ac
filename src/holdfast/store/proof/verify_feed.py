"""Verifying the feed, and what it says is the newest entry of each timeline.

A store is verified while others write. A scope is judged as of the moment at which the feed was
read last before it: entries behind those that the feed named then are not looked at. Whatever is
found lying there is either newer, and then the feed names its entry once it is read again, or it
belongs to nothing. For rows and the feed's row are committed together.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.errors import StateIntegrityError
from holdfast.store.journal.feed import LANES, items_of
from holdfast.store.names import rowkinds

if TYPE_CHECKING:
    from holdfast.store.proof.verify import _Check
    from holdfast.store.proof.witness import Witness

Head = tuple[int, bytes]
"""(number, hash) of an entry."""


class _Named:
    """What the feed names of a timeline: number and hash of its newest entry, and how many."""

    __slots__ = ("count", "hash", "last")

    def __init__(self) -> None:
        self.last, self.hash, self.count = 0, b"", 0


class FeedCheck:
    """The lanes, each read once from its first row to its newest."""

    def __init__(self, check: _Check) -> None:
        self._check = check
        self._lanes: dict[int, Head] = {}
        self._heads: dict[tuple[int, int], _Named] = {}
        self._judged: dict[tuple[int, int], tuple[int, int]] = {}
        self.lines: dict[int, set[int]] = {}
        """Timelines of each scope that the feed names."""

    def run(self, witness: Witness | None) -> None:
        """Read all lanes, and compare them with what a witness saw."""
        for lane in range(LANES):
            expected = witness.lanes.get(lane) if witness is not None else None
            self._read(lane, expected)
            number = self._lanes[lane][0]
            if expected is not None and number < expected[0]:
                self._check.find(
                    "witness",
                    f"feed lane {lane}",
                    f"the witness saw {expected[0]} commits, only {number} are here: "
                    "it was put back",
                )

    def catch_up(self) -> None:
        """Read what was committed since."""
        for lane in range(LANES):
            self._read(lane, None)

    def named(self, scope: int) -> set[int]:
        """Timelines of a scope that the feed names."""
        return self.lines.get(scope, set())

    def judged(self, scope: int, timeline: int) -> Head:
        """The newest entry of a timeline that is known of now: that is what it is judged by."""
        line = scope, timeline
        found = self._heads.get(line, _Named())
        self._judged[line] = found.last, found.count
        return found.last, found.hash

    def counted(self, scope: int, timeline: int) -> int:
        """How many entries of a timeline the feed named when it was judged."""
        return self._judged[(scope, timeline)][1]

    def newest(self, scope: int, timeline: int) -> int:
        """The number of the newest entry of a timeline, as of this moment."""
        self.catch_up()
        return self._heads.get((scope, timeline), _Named()).last

    def moved(self) -> bool:
        """Whether something was committed that has not been looked at; nothing is of the erased."""
        self.catch_up()
        erased = self._check.directory.erased
        return any(
            found.last > self._judged.get(line, (0, 0))[0]
            for line, found in self._heads.items()
            if line[0] not in erased
        )

    def _read(self, lane: int, expected: Head | None) -> None:
        number, tag = self._lanes.get(lane, (0, bytes(32)))
        low = rowkinds.feed(lane, number + 1) if number else b"F" + bytes([lane])
        high = rowkinds.after(b"F" + bytes([lane]))
        while page := self._check.core.storage.scan(low, high, limit=1000):
            for key, row in page:
                if len(key) != rowkinds.FEED:
                    place = rowkinds.describe(key)
                    self._check.find("unaccounted", place, "nothing accounts for this row", row=key)
                    continue
                self._row(lane, key, row, number, tag)
                number, tag = int.from_bytes(key[2:], "big"), row[-32:]
                if expected is not None and expected[0] == number and expected[1] != tag:
                    place = rowkinds.describe(key)
                    self._check.find("witness", place, "the witness saw another row here")
            low = page[-1][0] + b"\0"
        self._lanes[lane] = (number, tag)

    def _row(self, lane: int, key: bytes, row: bytes, number: int, tag: bytes) -> None:
        """Check a row against the one before it, and note the entries that it names."""
        check = self._check
        at = int.from_bytes(key[2:], "big")
        if at != number + 1:
            missing = f"rows {number + 1} to {at - 1} are missing"
            check.find("feed", rowkinds.describe(key), missing)
        try:
            items = items_of(row)
        except StateIntegrityError as error:
            check.find("damage", rowkinds.describe(key), str(error))
            items = []
        if at == number + 1 and check.core.lanes.tag_of(lane, at, tag, row[:-32]) != row[-32:]:
            changed = "it was changed, or does not follow the row before it"
            check.find("feed", rowkinds.describe(key), changed)
        check.report.feed_rows += 1
        for item in items:
            if not item.entries:
                continue  # a link
            last = item.first + item.entries - 1
            line = (item.scope, item.timeline)
            found = self._heads.get(line)
            if found is None:
                found = self._heads[line] = _Named()
                self.lines.setdefault(item.scope, set()).add(item.timeline)
            found.count += item.entries
            if found.last < last:
                found.last, found.hash = last, item.hash
