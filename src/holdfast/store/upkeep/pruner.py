"""Who prunes a scope now, as a cell says, and who is told when something comes to rest on it.

One prunes at a time. Others wait for it as long as they see it at work: its cell holds a beat that
goes up with its commits, and beside long work without any. They ask for their turn in the cell, so
that who prunes again and again lets them have it. Where the cell stands still for `TERM` seconds,
by the clock of who waits, or says that it was given up, it is taken over. Nothing rests on that
wait: whoever lost the cell is told by its next commit, and nothing is wrong.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

from holdfast.errors import Conflict, HoldfastError
from holdfast.storage.contract import Batch, Storage
from holdfast.store.journal.ledger import gone
from holdfast.store.names import rowkinds
from holdfast.store.names.cell_counts import commit_beside
from holdfast.store.names.cells import Swap, cell_at
from holdfast.store.names.thread_pauses import Breath
from holdfast.store.names.threads import safe_point

if TYPE_CHECKING:
    from holdfast.store.journal.ledger import Ledger

ATTEMPTS = 20
TOKEN = 16
PAGE = 256
"""Cells that are read, or dropped, together."""
BEAT, TERM = 0.2, 2.0
"""Seconds after which who prunes shows that it goes on; and how long others wait for that."""
POLL, TURN = 0.01, 0.1
"""Seconds between two looks of who waits; and how long who was asked for it lets others begin."""
AT_WORK, ASKED, GIVEN_UP = range(3)
"""What the cell says of who prunes, behind the token: it goes on; and somebody waits; or nobody is
at work, and what was begun is to be finished."""


class Pruner:
    """The right to prune a scope; whoever takes it next takes it away.

    Its cell holds a random token(16), and behind that, once there is anything to say, state(1),
    beat(3) and count(4): how often somebody came to rest on the scope since (`notices`), for what
    was found to be needed before that may no longer be all. What came is named by cells of their
    own, so that nothing else has to be read in the commit that asks.
    """

    def __init__(self, ledger: Ledger) -> None:
        self.key = rowkinds.pruner(ledger.number)
        self.cell = os.urandom(TOKEN)
        """What the cell holds."""
        self.inherited = False
        """Whether somebody had it who did not come to an end, on whichever timeline."""
        self._taken = False
        self._shown = time.monotonic()
        """When its last beat was."""
        self._ledger = ledger
        self._storage = ledger.storage

    def take(self) -> None:
        """Be the one who prunes the scope, when nobody else is at work.

        Whoever had it before is told by its next commit. Who has it still, and begins anew, keeps
        it.
        """
        for _ in range(ATTEMPTS):
            held = self._free()
            if held is not None and self._is_mine(held):
                self.cell = held
                return
            self.cell, tombstone = os.urandom(TOKEN), [self._ledger.tombstone]
            self._taken = True  # or it may be, whatever comes of the commit
            try:
                self._storage.commit(Batch(cells=[(self.key, held, self.cell)], absent=tombstone))
                self.inherited = held is not None
                self._forget(mine=False)  # of others who were cut short
                return
            except Conflict:
                if self._ledger.erased():
                    raise gone(self._ledger.scope) from None
        raise Conflict(f"{self._ledger.scope}: others prune it, too; try again")

    def _free(self) -> bytes | None:
        """What the cell holds once who has it is done, has given it up, or stands still."""
        time.sleep(max(0.0, self._ledger.others_turn - time.monotonic()))
        held, since = cell_at(self._storage, self.key), time.monotonic()
        while held is not None and not self._is_mine(held) and _said(held)[0] != GIVEN_UP:
            if time.monotonic() - since > TERM:
                break
            if _said(held)[0] == AT_WORK:
                with suppress(Conflict):  # it went on; asked again next time
                    self._storage.commit(Batch(cells=[(self.key, held, _saying(held, ASKED))]))
            safe_point()
            time.sleep(POLL)
            if self._ledger.erased():
                raise gone(self._ledger.scope)
            now = cell_at(self._storage, self.key)
            if now is None or now[:TOKEN] != held[:TOKEN] or _said(now)[1] != _said(held)[1]:
                since = time.monotonic()
            held = now
        return held

    def _is_mine(self, held: bytes) -> bool:
        return held[:TOKEN] == self.cell[:TOKEN]

    def beat(self) -> None:
        """Show now and then that it goes on, beside work that commits nothing."""
        if self._taken and self._is_due():
            self._commit(Batch(absent=[self._ledger.tombstone]), leave=False)

    def _is_due(self) -> bool:
        return time.monotonic() - self._shown > BEAT

    def give_up(self) -> None:
        """Say that nobody is at work, and something is to be finished; if it cannot, others wait.

        Nothing, if it is not the one who prunes.
        """
        with suppress(HoldfastError):
            if self._taken:
                new = _saying(self.look(), GIVEN_UP)
                self._storage.commit(Batch(cells=[(self.key, self.cell, new)]))

    def commit(self, batch: Batch) -> bool:
        """Commit, if it is still the one who prunes; False if rows were sealed again meanwhile."""
        batch.absent.append(self._ledger.tombstone)
        return self._commit(batch, leave=False)

    def leave(self) -> None:
        """All is pruned."""
        self._commit(Batch(), leave=True)
        self._taken = False
        if _said(self.cell)[0] == ASKED:
            self._ledger.others_turn = time.monotonic() + TURN
        self._forget(mine=True)

    def came(self, timeline: int) -> set[int]:
        """Entries of a timeline that others came to rest on since it was taken."""
        mine = rowkinds.arrivals(self._ledger.number, self.cell[:TOKEN])
        named = (rowkinds.arrived_at(key) for page in self._pages(mine) for key, _ in page)
        return {sequence for line, sequence in named if line == timeline}

    def _pages(self, prefix: bytes) -> Iterator[list[tuple[bytes, bytes]]]:
        low = prefix + b"\0" if prefix == self.key else prefix
        while page := self._storage.cells(low, rowkinds.after(prefix), limit=PAGE):
            yield page
            low = page[-1][0] + b"\0"

    def _forget(self, *, mine: bool) -> None:
        """Drop what came while it pruned, or what others left."""
        own = rowkinds.arrivals(self._ledger.number, self.cell[:TOKEN])
        for page in self._pages(own if mine else self.key):
            over = [(key, by, None) for key, by in page if mine or not key.startswith(own)]
            with suppress(Conflict):  # somebody else was faster
                self._storage.commit(Batch(cells=[*over]))

    def _commit(self, batch: Batch, *, leave: bool) -> bool:
        asked = batch.cells
        for _ in range(ATTEMPTS):
            new = self.cell
            if self._is_due():
                state, beat, _ = _said(new)
                new = _saying(new, state, (beat + 1) % (1 << 24))
            batch.cells = [*asked, (self.key, self.cell, None if leave else new)]
            try:
                commit_beside(self._storage, batch)
                if new != self.cell and not leave:
                    self.cell, self._shown = new, time.monotonic()
                return True
            except Conflict as conflict:
                if self._ledger.erased():
                    raise gone(self._ledger.scope) from None
                if self.key not in conflict.keys:
                    return False
            self.look()
        raise Conflict(f"{self._ledger.scope}: others rest on it again and again; prune it again")

    def look(self) -> bytes:
        """What the cell holds, as others have counted in it; refused if it is somebody's own."""
        found = cell_at(self._storage, self.key) or b""
        if found[:TOKEN] != self.cell[:TOKEN]:
            raise Conflict(
                f"{self._ledger.scope}: another process prunes this scope now, and goes on"
            )
        self.cell = found
        return found


class Working(Breath):
    """Called once an item of long work: others get their turn, and see that it goes on."""

    def __init__(self, pruner: Pruner) -> None:
        super().__init__()
        self._pruner = pruner

    def __call__(self) -> None:
        super().__call__()
        self._pruner.beat()


def notices(storage: Storage, scope: int, at: bytes, by: bytes) -> list[Swap]:
    """What a commit that comes to rest on an entry expects, and tells whoever prunes its scope."""
    key = rowkinds.pruner(scope)
    held = cell_at(storage, key)
    if held is None:
        return [(key, None, None)]
    count = int.from_bytes(held[TOKEN:], "big") + 1
    told = held[:TOKEN] + count.to_bytes(8, "big")
    return [(key, held, told), (rowkinds.arrival(scope, held[:TOKEN], at, by), None, by)]


def taken_over(storage: Storage, scope: int) -> Swap:
    """What puts a new token into the cell of a scope, whoever it says prunes that now."""
    key = rowkinds.pruner(scope)
    return key, cell_at(storage, key), os.urandom(TOKEN)


def _said(held: bytes) -> tuple[int, int, int]:
    """(state, beat, count) of a cell."""
    rest = held[TOKEN:].rjust(8, b"\0")
    return rest[0], int.from_bytes(rest[1:4], "big"), int.from_bytes(rest[4:], "big")


def _saying(held: bytes, state: int, beat: int | None = None) -> bytes:
    """A cell with another state, and beat if one is given."""
    _, before, count = _said(held)
    beats = before if beat is None else beat
    return held[:TOKEN] + bytes([state]) + beats.to_bytes(3, "big") + count.to_bytes(4, "big")
