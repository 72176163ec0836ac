"""Following what is committed, over all scopes: the feed, and the entries of a correlation.

Entries are read by the numbers that the feed names, so that those of a scope which has been
deleted since, its deletion included, are found like any other. Those of an erased scope are
passed over.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime

from holdfast.errors import DamagedRecordError, InvalidInputError, ScopeNotFoundError
from holdfast.store import rows
from holdfast.store.arguments import check_bounds, check_limit, check_text
from holdfast.store.core import Core
from holdfast.store.feed import LANES, in_order
from holdfast.store.history import public_entry
from holdfast.store.items import Entry, Position
from holdfast.store.ledger import Ledger
from holdfast.store.tombstones import by_number


def check_position(position: object) -> None:
    """Refuse what is no position: reading on from it would pass over entries, or repeat them."""
    if not isinstance(position, dict) or not all(
        type(lane) is int and 0 <= lane < LANES and type(number) is int and number >= 0
        for lane, number in position.items()
    ):
        raise InvalidInputError(
            "since is a position, as `store.position()` and `entry.position` give it; leave it "
            "out to begin at the beginning"
        )


class Follower:
    """Reads entries of any scope by its number."""

    def __init__(self, core: Core) -> None:
        self.core = core
        self._directory: dict[int, tuple[bytes, bytes]] = {}
        self._ledgers: dict[int, Ledger] = {}
        self._names: dict[int, dict[int, str]] = {}

    def feed(self, since: dict[int, int]) -> Iterator[Entry]:
        """Entries committed since a position, each with the position to go on from.

        Between the entries of one commit that position is still the one before it, so that who
        stops there gets them again rather than never.
        """
        core = self.core
        core.check_open()
        check_position(since)
        position = dict(since)
        for lane, number, items in in_order(core.lanes.rows_since(position)):
            found = [
                entry
                for item in items
                for entry in self.entries(
                    item.scope, item.timeline, item.first, item.first + item.entries - 1
                )
            ]
            for entry in found[:-1]:
                yield replace(entry, position=Position(position))
            position[lane] = number
            if found:
                yield replace(found[-1], position=Position(position))

    def correlated(
        self,
        correlation: str,
        since: datetime | None,
        until: datetime | None,
        limit: int | None,
    ) -> list[Entry]:
        """Entries of all scopes that carry a correlation, by claimed time."""
        core = self.core
        core.check_open()
        check_text(correlation, "a correlation")
        check_bounds(numbers=False, since=since, until=until)
        check_limit(limit)
        prefix = b"R" + core.tag(b"correlation", correlation)
        found: list[Entry] = []
        low = prefix
        while page := core.storage.scan(low, rows.after(prefix), limit=1000):
            for key, _ in page:
                number = int.from_bytes(key[17:23], "big")
                block = int.from_bytes(key[25:29], "big") * rows.BLOCK
                line = int.from_bytes(key[23:25], "big")
                found += [
                    entry
                    for entry in self.entries(number, line, max(1, block), block + rows.BLOCK - 1)
                    if entry.cause.correlation == correlation
                    and (since is None or entry.time >= since)
                    and (until is None or entry.time <= until)
                ]
            low = page[-1][0] + b"\0"
        found.sort(key=lambda entry: (entry.time, str(entry.scope), entry.sequence))
        return found[:limit]

    def entries(self, number: int, line: int, low: int, high: int) -> Iterator[Entry]:
        """Entries low..high of a timeline, as far as they are there; none of an erased scope."""
        ledger = self._ledger(number)
        name = self._name(ledger, line) if ledger is not None else None
        if ledger is None or name is None:
            return
        prefix = rows.line(b"E", number, line)
        while low <= high:
            page = ledger.storage.scan(
                rows.entry(prefix, low), rows.entry(prefix, high) + b"\0", limit=200
            )
            for key, row in page:
                yield public_entry(self.core, ledger, name, key, *ledger.open_entry(key, row))
            if len(page) < 200:
                return
            low = rows.sequence_of(page[-1][0]) + 1

    def _ledger(self, number: int) -> Ledger | None:
        """The scope, opened; None if it is erased."""
        if number not in self._ledgers:
            if number not in self._directory:
                self._directory = by_number(self.core)
            if number not in self._directory:
                raise DamagedRecordError(f"the directory knows no scope of number {number:x}")
            key, row = self._directory[number]
            if key[21] == rows.ERASED:
                return None
            try:
                self._ledgers[number] = self.core.ledger_of(key, row)
            except ScopeNotFoundError:
                return None  # erased since the directory was read
        return self._ledgers[number]

    def _name(self, ledger: Ledger, line: int) -> str | None:
        if line == 0:
            return "main"
        names = self._names.get(ledger.number, {})
        if line not in names:
            names = {number: name for number, name, _, _ in self.core.timelines(ledger)}
            self._names[ledger.number] = names
        if line not in names:
            if ledger.erased():
                return None
            raise DamagedRecordError(
                f"{ledger.scope}: the feed names timeline {line}, which is missing"
            )
        return names[line]
