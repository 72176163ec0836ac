"""Verifying the directory: which scopes there are, and which were erased.

It is read once. Whoever then meets a scope that it did not name has it read again: the scope may
have been made since, and may even have been erased since. Its tombstone stays.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

from holdfast.errors import ScopeNotFoundError
from holdfast.store.journal.ledger import Ledger
from holdfast.store.journal.tombstones import by_number, read_tombstone
from holdfast.store.names import rowkinds
from holdfast.store.proof.verify_leftovers import is_unswept
from holdfast.store.proof.verify_nodes import DAMAGE

if TYPE_CHECKING:
    from holdfast.store.proof.verify import _Check

_decode = msgspec.msgpack.Decoder().decode
_Rows = list[tuple[bytes, bytes]]


class DirectoryCheck:
    """The scopes that the directory names."""

    def __init__(self, check: _Check) -> None:
        self._check = check
        self._core = check.core
        self.ledgers: list[Ledger] = []
        """Every scope, deleted ones included, erased ones not."""
        self.ended: set[int] = set()
        """Numbers of the scopes that it says are deleted."""
        self.erased: dict[int, bytes] = {}
        """Those that it says are erased, and where the tombstone lies: the feed may name them."""
        self._unswept: set[int] = set()
        """Those of the erased whose rows are left for a sweep."""
        self._known: set[int] = set()
        """Numbers of the scopes that are not erased."""

    def run(self) -> None:
        """Read it."""
        for ledger in self._ledgers():
            self.ledgers.append(ledger)
            self._known.add(ledger.number)
        self.ledgers.sort(key=lambda ledger: (str(ledger.scope), ledger.number))

    def knows(self, number: int) -> bool:
        """Whether there is, or was, a scope of this number."""
        return self.is_known(number) or number in self.erased

    def is_known(self, number: int) -> bool:
        """Whether there is a scope of this number; it may have been made since it was read."""
        if number not in self._known and number not in self.erased:
            self._look_again()
        return number in self._known

    def name_of(self, number: int) -> str:
        """The scope of a number; empty if there was none when the directory was read."""
        return next((str(one.scope) for one in self.ledgers if one.number == number), "")

    def stray(self, key: bytes, number: int, message: str) -> None:
        """Find a row of a scope that is not there."""
        if self.is_known(number):
            return
        if number not in self.erased:
            self._check.find("unaccounted", rowkinds.describe(key), message)
        elif number not in self._unswept:
            at = self.erased[number]
            with suppress(*DAMAGE):  # found and named before
                tombstone = read_tombstone(self._core, at, self._core.storage.get([at])[0] or b"")
                self._check.leftovers.row(key, tombstone, at)

    def ends_now(self, ledger: Ledger) -> bool:
        """Whether it says of a scope that it is deleted, as of this moment."""
        return self._core.storage.get([rowkinds.deletion(ledger.tombstone)])[0] is not None

    def erased_meanwhile(self) -> bool:
        """Whether a scope was erased since it was read."""
        found = by_number(self._core).items()
        return any(key[21] == rowkinds.ERASED and n not in self.erased for n, (key, _) in found)

    def _look_again(self) -> None:
        newest: dict[int, bytes] = {}
        for key, row in self._rows():
            with suppress(*DAMAGE, ValueError):  # found and named before
                if key[21] == rowkinds.THERE:
                    newest[_decode(self._core.open_row(key, row))[1]] = key
                elif key[21] == rowkinds.ERASED:
                    newest[read_tombstone(self._core, key, row).number] = key
        for number, key in newest.items():
            if key[21] == rowkinds.THERE:
                self._known.add(number)
            elif number not in self.erased:
                self.erased[number] = key
                self._check.whole = False

    def _ledgers(self) -> Iterator[Ledger]:
        """Every scope, deleted ones included, erased ones not."""
        core = self._core
        opened: tuple[bytes, int] = (b"", 0)
        for key, row in self._not_erased():
            try:
                if key[21] == rowkinds.THERE:
                    ledger = core.ledger_of(key, row)
                    opened = (key[:21], ledger.number)
                    yield ledger
                else:
                    core.open_row(key, row)
                    if opened[0] == key[:21]:
                        self.ended.add(opened[1])
            except ScopeNotFoundError:  # erased since its row was read
                self.erased[_decode(core.open_row(key, row))[1]] = rowkinds.tombstone(key)
                self._check.whole = False
            except (*DAMAGE, ValueError) as error:
                self._check.find("damage", rowkinds.describe(key), str(error), row=key)

    def _not_erased(self) -> Iterator[tuple[bytes, bytes]]:
        """Rows of scopes that are not erased; of the others only the tombstone should be there."""
        life: _Rows = []
        for key, row in self._rows(tell=True):
            if life and life[0][0][:21] != key[:21]:
                yield from self._unless_erased(life)
                life = []
            life.append((key, row))
        yield from self._unless_erased(life)

    def _rows(self, *, tell: bool = False) -> Iterator[tuple[bytes, bytes]]:
        low = b"D"
        while page := self._core.storage.scan(low, b"E", limit=1000):
            for key, row in page:
                if len(key) == rowkinds.DIRECTORY:
                    yield key, row
                elif tell:
                    place = rowkinds.describe(key)
                    self._check.find("unaccounted", place, "nothing accounts for this row")
            low = page[-1][0] + b"\0"

    def _unless_erased(self, life: _Rows) -> _Rows:
        """The directory rows of one scope; none if it is erased, which is checked."""
        if not life or life[-1][0][21] != rowkinds.ERASED:
            return life
        key, row = life[-1]
        try:
            tombstone = read_tombstone(self._core, key, row)
        except DAMAGE as error:
            self._check.find("damage", rowkinds.describe(key), str(error), row=key)
            return []
        self.erased[tombstone.number] = key
        self._check.report.erased += 1
        if is_unswept(self._core, tombstone, key):
            # What it held is closed, and a sweep finds it by a row: it was not waited for.
            self._unswept.add(tombstone.number)
            self._check.report.unswept += 1
            return []
        if self._core.ring is not None and self._core.ring.holds(tombstone.id):
            self._check.leftovers.key_of_scope(tombstone, key)
        for left, _ in life[:-1]:
            self._check.leftovers.row(left, tombstone, key)
        return []
