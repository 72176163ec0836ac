"""What all handles of one open store share: keys, directory, caches, committer."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import msgspec

from holdfast.errors import (
    Conflict,
    DamagedRecordError,
    ReadOnlyError,
    ScopeNotFoundError,
    StateIntegrityError,
    TimelineNotFoundError,
)
from holdfast.seal.codec import Codec
from holdfast.seal.ring import Ring, ScopeKeys
from holdfast.seal.sealer import Commitments, KeySeal, PlainSeal, Seal, new_writer
from holdfast.seal.signer import Signer
from holdfast.storage.contract import Storage
from holdfast.store.commit import process_fork
from holdfast.store.commit.change import Change, Target, Ticket, Written
from holdfast.store.commit.feed_links import end_of
from holdfast.store.commit.group_commit import Committer
from holdfast.store.commit.meter import Meter
from holdfast.store.commit.outside_cache import Near
from holdfast.store.journal import directory
from holdfast.store.journal.feed import Lanes
from holdfast.store.journal.ledger import Ledger
from holdfast.store.journal.timeline import Timeline
from holdfast.store.journal.tombstones import keyless
from holdfast.store.lease.lease import Leases
from holdfast.store.names import rowkinds as rows
from holdfast.store.names.clock import Clock
from holdfast.store.names.lapse import Lapses
from holdfast.store.names.scope import Scope
from holdfast.store.rules.ephemeral import Ephemerals
from holdfast.store.rules.gates import Gates
from holdfast.store.rules.pins import Pins
from holdfast.store.rules.subjects import Subjects
from holdfast.store.tree.node_cache import AtomCache, MemoCache, NodeCache

LEDGERS = 1000

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder().decode


class Core:
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
        self.storage = storage
        self.lineage = lineage
        self.instance = instance
        self.public = public
        self.self_signed = self_signed
        self.ring = ring
        self.ring_storage = ring_storage
        self.signer = signer
        self.codec = codec
        self.clock = clock
        self.read_only = read_only
        self.closed = ""
        self.closing: list[Callable[[], None]] = []
        """What is to be done first when the store is closed; it may still write."""
        self.writer = new_writer()
        self.meter = Meter()
        self.gates = Gates(self.meter)
        self.near: Near | None = None  # there is none, unless who opens the store is given one
        self.atoms = AtomCache()
        self.nodes = NodeCache()
        self.ephemerals = Ephemerals()
        key = ring.store_key if ring is not None else None
        self._seal: Seal = KeySeal({1: key}, 1, self.writer) if key else PlainSeal(self.writer)
        self.commitments = Commitments(key, salt=lineage)
        self._commit_row = self.commitments.domain(b"store-row")
        self.lanes = Lanes(storage, self.commitments.domain(b"feed"))
        self.committer = Committer(self, self.lanes)
        self.pins = Pins(storage)
        self.announcing: list[int] = []
        """Scopes whose pruning this process is about to announce, once for each who does."""
        self.later: Callable[[Change], None] | None = None
        """Commits, behind who asks, what nobody waits for."""
        self.lapses = Lapses(clock)
        self.leases = Leases(self)
        self.subjects = Subjects(self)
        if ring is not None:
            codec.unseal = self.subjects.unseal
        self._ledgers: OrderedDict[Scope, Ledger] = OrderedDict()
        self._lock = threading.RLock()
        self.memos = MemoCache()
        self.numbers = directory.Numbers(self)
        process_fork.joined(self)

    # rows of the store itself

    def _ad(self, key: bytes) -> bytes:
        return b"holdfast/ad/1\0" + self.lineage + bytes(16) + bytes([len(key)]) + key

    def seal_row(self, key: bytes, plain: bytes) -> bytes:
        """A row that belongs to the store, not to a scope."""
        return self._seal.seal(self._ad(key), plain, self._commit_row(plain))

    def open_row(self, key: bytes, row: bytes) -> bytes:
        """The plain bytes of a row of the store."""
        try:
            return self._seal.open(self._ad(key), row)
        except DamagedRecordError as error:
            place = rows.describe(key)
            raise DamagedRecordError(f"{place}: {error}", place) from None

    def tag(self, label: bytes, text: str) -> bytes:
        """16 bytes that stand for a name in row keys; keyed in an encrypted store."""
        return self.commitments.tag(label, text.encode("utf-8", "surrogatepass"))

    # directory

    def ledger(self, scope: Scope, *, create: bool = False) -> Ledger:
        """The scope, opened; brought into being if it may be."""
        ledger = self._ledgers.get(scope)
        if ledger is not None:
            return ledger
        self.check_open()
        with self._lock:
            if (ledger := self._ledgers.get(scope)) is None:
                ledger = self._find(scope, create)
                if ledger is None:
                    raise ScopeNotFoundError(f"there is no scope {scope} in this store")
                self._ledgers[scope] = ledger
                self._evict()
            return ledger

    def known(self, scope: Scope) -> Ledger | None:
        """The scope, opened, or None if there is none."""
        with suppress(ScopeNotFoundError):
            return self.ledger(scope)
        return None

    def _evict(self) -> None:
        while len(self._ledgers) > LEDGERS:
            for scope, ledger in self._ledgers.items():
                if ledger.birth is None:
                    ledger.stale = True
                    del self._ledgers[scope]
                    break
            else:
                return

    def _find(self, scope: Scope, create: bool) -> Ledger | None:
        tag = self.tag(b"directory", str(scope))
        found = self._newest(tag)
        incarnation = 0
        if found:
            key, row = found[0]
            incarnation = int.from_bytes(key[17:21], "big")
            if rows.state_of(key) == rows.THERE:
                try:
                    ledger = self.ledger_of(key, row)
                except ScopeNotFoundError:
                    return self._find(scope, create)  # erased since: there is a newer row
                if ledger.scope != scope:
                    raise DamagedRecordError(f"{rows.describe(key)}: it names another scope")
                return ledger
        if not create:
            return None
        number, _, before = _decode(self.open_row(*found[0]))[:3] if found else (0, 0, 0)
        ledger = self._make(scope, tag, incarnation + 1, before)
        ledger.behind = end_of(self.storage, number) if found else None
        return ledger

    def _newest(self, tag: bytes) -> list[tuple[bytes, bytes]]:
        """The last of a name's rows in the directory, if it has any."""
        return self.storage.scan(b"D" + tag, rows.after(b"D" + tag), limit=1, reverse=True)

    def _make(self, scope: Scope, tag: bytes, incarnation: int, before: int) -> Ledger:
        number = int.from_bytes(os.urandom(rows.SCOPE), "big")
        scope_id, salt = os.urandom(16), os.urandom(16)
        ring_rows: list[tuple[bytes, bytes]] = []
        keys = None
        if self.ring is not None:
            keys, ring_rows = self.ring.stage_scope(scope_id)
        key = rows.directory(tag, incarnation, rows.THERE)
        ledger = self._ledger(key, scope, number, scope_id, salt, before, keys)
        plain = _encode([str(scope), number, scope_id, salt, self.clock.claimed(), before])
        # The number's own row keeps two scopes from ever sharing it.
        claim = rows.line(b"T", number, 0)
        line = ledger.seal_row(claim, _encode(["main", 0, 0]), ledger.commit_line)
        ledger.birth = [(key, self.seal_row(key, plain)), (claim, line)]
        ledger.ring_birth = ring_rows
        return ledger

    def _ledger(
        self,
        key: bytes,
        scope: Scope,
        number: int,
        scope_id: bytes,
        salt: bytes,
        before: int,
        keys: ScopeKeys | None = None,
    ) -> Ledger:
        seal: Seal
        if self.ring is None:
            seal, commitments = PlainSeal(self.writer), Commitments(None, salt=salt)
        else:
            keys = keys or self.ring.scope_keys(scope_id)
            if keys is None:
                raise keyless(self, key, scope, scope_id)
            reload = partial(self._data_keys, scope_id)
            seal = KeySeal(keys.data, keys.epoch, self.writer, reload)
            commitments = Commitments(keys.commitment, salt=salt)
        return Ledger(
            scope,
            number,
            scope_id,
            before=before,
            tombstone=rows.tombstone(key),
            lineage=self.lineage,
            storage=self.storage,
            seal=seal,
            commitments=commitments,
            codec=self.codec,
            nodes=self.nodes,
            atoms=self.atoms,
        )

    def _data_keys(self, scope_id: bytes) -> dict[int, bytes]:
        """A scope's data keys as the ring has them now; none if it was erased."""
        assert self.ring is not None
        self.ring.forget(scope_id)
        keys = self.ring.scope_keys(scope_id)
        return keys.data if keys is not None else {}

    def ledger_of(self, key: bytes, row: bytes) -> Ledger:
        """The scope that a directory row names, opened; also one that is deleted."""
        text, number, scope_id, salt, _, before = _decode(self.open_row(key, row))
        return self._ledger(key, Scope.parse(text), number, scope_id, salt, before)

    def scopes(self) -> Iterator[tuple[Scope, int, bytes, int]]:
        """(scope, number, id, time it was made) of every scope that is not deleted."""
        return directory.scopes(self)

    def forget(self, ledger: Ledger) -> None:
        """Drop what is held of a scope, so that it is read again."""
        with self._lock:
            ledger.stale = True
            self.ephemerals.forget(ledger.number)
            if self._ledgers.get(ledger.scope) is ledger:
                del self._ledgers[ledger.scope]
            if self.ring is not None:
                self.ring.forget(ledger.id)  # it may be erased: then nobody shall have its key

    def ended(self, timeline: Timeline, name: str) -> None:
        """Look the name of a scope up again that was ended; refuse a timeline that was, alone."""
        ledger = timeline.ledger
        if timeline.number:
            main = self.timeline(ledger)
            main.refresh()
            if not main.gone:
                raise TimelineNotFoundError(
                    f"{ledger.scope}: {name!r} was ended; `timelines()` lists those that are there"
                )
        self.forget(ledger)
        again = self.known(ledger.scope)
        if again is not None and again.number == ledger.number:
            raise DamagedRecordError(
                f"{ledger.scope}: its last entry says that it is deleted, the directory does not"
            )

    def lost(self) -> None:
        """Nothing that is held can be trusted to be what is stored."""
        with self._lock:
            for ledger in self._ledgers.values():
                ledger.stale = True
            self._ledgers.clear()

    def commit_ring(self, ledgers: Sequence[Ledger]) -> None:
        """Make the keys of new scopes durable, before anything sealed with them is."""
        if not ledgers:
            return
        with self._lock:  # a long value may be on its way into the same new scope
            born = [ledger for ledger in ledgers if ledger.ring_birth]
            if born and self.ring is not None:
                try:
                    self.ring.commit([row for ledger in born for row in ledger.ring_birth])
                except Conflict:  # the master is being rotated: their keys are made anew
                    for ledger in born:
                        self.forget(ledger)
                    raise
            for ledger in born:
                ledger.ring_birth = []

    # timelines

    def timeline(self, ledger: Ledger, name: str = "main") -> Timeline:
        """A timeline of a scope, loaded."""
        number = 0 if name == "main" else self._timeline_number(ledger, name)
        timeline = ledger.timelines.get(number)
        if timeline is None:
            with self._lock:
                timeline = ledger.timelines.get(number)
                if timeline is None:
                    timeline = Timeline(ledger, number)
                    if ledger.birth is None:
                        token = self.storage.version()
                        timeline.load()
                        timeline.seen = token
                    ledger.timelines[number] = timeline
        return timeline

    def _timeline_number(self, ledger: Ledger, name: str) -> int:
        if name not in ledger.names and name not in self.names(ledger):
            main = self.timeline(ledger)
            main.refresh()
            if main.gone:
                return 0  # deleted, perhaps made again: the caller sees that and looks anew
            raise TimelineNotFoundError(
                f"{ledger.scope} has no timeline {name!r}; `timelines()` lists them"
            )
        return ledger.names[name]

    def names(self, ledger: Ledger) -> dict[str, int]:
        """Numbers of all timelines by their names; only those made since are read."""
        with self._lock:
            last = next(reversed(ledger.names.values()), -1)
            with suppress(ScopeNotFoundError):  # erased meanwhile, as the state of it says, too
                ledger.names |= {name: n for n, name, _, _ in self.timelines(ledger, last)}
            return ledger.names

    def timelines(self, ledger: Ledger, after: int = -1) -> list[tuple[int, str, int, int]]:
        """(number, name, parent's number, entry it starts from) of the timelines behind one."""
        prefix = b"T" + ledger.number.to_bytes(rows.SCOPE, "big")
        found = []
        low = prefix if after < 0 else rows.line(b"T", ledger.number, after) + b"\0"
        while page := self.storage.scan(low, rows.after(prefix), limit=1000):
            for key, row in page:
                name, parent, start = _decode(ledger.open_row(key, row))
                found.append((rows.line_of(key), name, parent, start))
            low = page[-1][0] + b"\0"
        return found

    def lines(self, ledger: Ledger) -> list[tuple[int, str, int, int]]:
        """The same of all timelines that are not ended."""

        def there(name: str) -> bool:
            line = self.timeline(ledger, name)
            line.refresh()
            return not line.gone

        return [one for one in self.timelines(ledger) if not one[0] or there(one[1])]

    def stranded(self, scope: Scope, name: str, why: StateIntegrityError) -> Timeline:
        """A timeline whose newest state is damaged, for looking back and for restoring."""
        ledger = self.ledger(scope)
        number = 0 if name == "main" else self._timeline_number(ledger, name)
        return Timeline(ledger, number).strand(why)

    def register(self, name: str, timeline: Timeline) -> None:
        """Use a timeline that was just made, unless it has been loaded meanwhile.

        There is one object for a timeline: what is committed here is told to that one alone.
        """
        with self._lock:
            timeline.ledger.timelines.setdefault(timeline.number, timeline)
            timeline.ledger.names[name] = timeline.number

    def take_over(self, timeline: Timeline) -> None:
        """A stranded timeline has a state again: use it from now on."""
        with self._lock:
            timeline.ledger.timelines[timeline.number] = timeline

    def rebuild(self, scope: Scope, name: str) -> None:
        """Make a timeline's state from its entries alone; the next save replaces the damage."""
        ledger = self.ledger(scope)
        number = self.timeline(ledger, name).number
        again = Timeline(ledger, number).load(saves=False)
        again.saved = 0
        with self._lock:
            ledger.timelines[number] = again
            ledger.views.clear()

    def current(self, scope: Scope, name: str = "main") -> Timeline | None:
        """A timeline that has followed every entry committed before this call."""
        ledger = self.known(scope)
        if ledger is None:
            return None
        if ledger.birth is not None:
            # It was to be made here, and is not yet: another process may have made it.
            found = self._find(scope, create=False)
            if found is None:
                return None
            if found.number != ledger.number:
                self.forget(ledger)
                return self.current(scope, name)
        timeline = self.timeline(ledger, name)
        timeline.refresh()
        if timeline.gone:
            self.ended(timeline, name)
            return self.current(scope, name)
        return timeline

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

    def check_writable(self) -> None:
        """Refuse if this store cannot take changes."""
        self.check_open()
        if self.read_only:
            raise ReadOnlyError("the store was opened for reading; open it without read_only")

    def check_open(self) -> None:
        """Refuse if the store is closed."""
        if self.closed:
            raise process_fork.over(self.closed)

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
