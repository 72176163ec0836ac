"""What all handles of one open store share: keys, directory, caches, committer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from typing import Any

from holdfast.seal.codec import Codec
from holdfast.seal.ring import Ring
from holdfast.seal.signer import Signer
from holdfast.storage.contract import Storage
from holdfast.store.commit.change import Change, Target, Ticket, Written
from holdfast.store.commit.gates import Gates
from holdfast.store.commit.group_commit import Committer
from holdfast.store.commit.lookup_terms import keep_lookups
from holdfast.store.commit.meter import Meter
from holdfast.store.commit.outside_cache import Near
from holdfast.store.commit.stage import Stage
from holdfast.store.journal.declared import KINDS
from holdfast.store.journal.directory import Directory
from holdfast.store.journal.ledger import Ledger
from holdfast.store.journal.timeline import Timeline
from holdfast.store.lease import Leases
from holdfast.store.names import background
from holdfast.store.names.clock import Clock
from holdfast.store.rules.classes import Classed
from holdfast.store.rules.ephemeral import Ephemeral, Ephemerals
from holdfast.store.rules.keep import Keep
from holdfast.store.rules.lookup import Lookup
from holdfast.store.rules.sticky import Sticky
from holdfast.store.rules.subjects import Subjects
from holdfast.store.rules.upload_pins import Pins
from holdfast.store.tree.split import MemoCache

KINDS.update({kind.kind: kind for kind in (Classed, Ephemeral, Keep, Lookup, Sticky)})


class Core(Directory):
    """The shared inside of a store. Thread safe; handles of it are cheap."""

    def __init__(
        self,
        storage: Storage,
        lineage: bytes,
        *,
        instance: bytes,
        public: bytes,
        self_signed: bool,
        ring: Ring | None,
        ring_storage: Storage | None,
        signer: Signer | None,
        codec: Codec,
        clock: Clock,
        read_only: bool = False,
    ) -> None:
        super().__init__(storage, lineage, ring, codec, clock, read_only=read_only)
        self.instance = instance
        self.public = public
        self.self_signed = self_signed
        self.ring_storage = ring_storage
        self.signer = signer
        self.meter = Meter()
        self.gates = Gates(self.meter)
        self.near: Near | None = None  # there is none, unless who opens the store is given one
        self.ephemerals = Ephemerals()
        self.committer = Committer(self, self.lanes)
        self.pins = Pins(storage)
        self.announcing: list[int] = []
        """Scopes whose pruning this process is about to announce, once for each who does."""
        self.later: Callable[[Change], None] | None = None
        """Commits, behind who asks, what nobody waits for."""
        self.pump: Any = None
        """Commits for the async face of the store, if it has one."""
        self.leases = Leases(self)
        self.subjects = Subjects(self, self.leases)
        if ring is not None:
            codec.unseal = self.subjects.unseal
        self.memos = MemoCache()
        background.joined(self)

    def forget(self, ledger: Ledger) -> None:
        """Drop what is held of a scope, so that it is read again."""
        with self._lock:
            self.ephemerals.forget(ledger.number)
            super().forget(ledger)

    # changes

    def submit(self, change: Change) -> Ticket:
        """Queue a change."""
        self.check_writable()
        ticket = Ticket(change)
        self.committer.submit(ticket)
        return ticket

    def run(self, change: Change) -> list[Written]:
        """Commit a change and wait for it in this thread."""
        ticket = self.submit(change)
        self.committer.drive(ticket)
        return ticket.outcome()

    def stage(self, timeline: Timeline) -> Stage:
        """What the next entries of a timeline are built on."""
        return Stage(timeline, self.clock, keep_lookups)

    def split(self, ledger: Ledger, key: str, value: Any) -> Any:
        """Take a value apart under a scope's keys."""
        return ledger.splitter.split(value, self.memos.get(ledger.number, key))

    def prepared(self, ledger: Ledger, target: Target) -> Sequence[tuple[Any, ...]]:
        """A target's operations, taken apart under the keys that the scope has now."""
        if target.ledger is ledger or target.ledger is None:
            return target.ops
        again = ledger.splitter.again
        made: list[tuple[Any, ...]] = []
        for op in target.ops:
            if op[0] == "set":
                made.append(("set", op[1], again(op[2]), *op[3:]))
            elif op[0] == "append":
                made.append(("append", op[1], [again(part) for part in op[2]]))
            else:
                made.append(op)
        target.ops, target.ledger = made, ledger
        return made

    # after a commit

    def committed(self, results: list[tuple[Ticket, list[Written]]]) -> None:
        """Tell the gates what has become durable."""
        if self.gates.behind:
            for ticket, written in results:
                self.gates.after(ticket.change, written)

    def settled(self, group: list[Ticket]) -> None:
        """Tell the meter, and who waits, of changes whose outcome is known."""
        self.meter.saved(group)
        for ticket in group:
            if ticket.on_done is not None:
                ticket.on_done(ticket)

    def close(self) -> None:
        """Commit what waits and release everything."""
        if self.closed:
            return
        try:
            while self.closing:
                self.closing.pop()()
            self.committer.drain()
            if self.pump is not None:
                self.pump.stop()
            self.leases.close()
        finally:
            self.pins.close()
            self.closed = "the store is closed; open it again"
            self.lanes.bell.ring()
            for held in (self._ledgers, self.nodes, self.atoms, self.ephemerals):
                held.clear()  # at once: else it waits, in a cycle, for a slow garbage collection
            self.storage.close()
            if self.ring_storage is not None:
                self.ring_storage.close()


# ---- another storage ----------------------------------------------------------------------------
# The same store, seen in another storage: a copy, or rows as if some were others.


def seen_in(core: Core, storage: Storage) -> Core:
    """A store that is read in another storage with the keys of this one, and nothing cached.

    Nothing can be written. The ring belongs to the store that it is taken from: that must stay
    open as long.
    """
    return Core(
        storage,
        core.lineage,
        instance=core.instance,
        public=core.public,
        self_signed=core.self_signed,
        ring=core.ring,
        ring_storage=None,
        signer=None,
        codec=copy(core.codec),
        clock=core.clock,
        read_only=True,
    )
