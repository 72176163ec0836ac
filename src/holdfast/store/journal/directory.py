"""The directory: which scopes there are. A name is known from its scope's row alone.

Its rows lie by name. Entries name scopes by number: those are looked up by reading all of it once,
and then what is new. `Directory` is what an open store is made on: it opens scopes, and knows
nothing of how they are changed.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby, islice
from typing import TypeVar

import msgspec

from holdfast.errors import (
    Conflict,
    DamagedRecordError,
    FormatError,
    HoldfastError,
    KeyMissingError,
    ReadOnlyError,
    ScopeNotFoundError,
    StateIntegrityError,
    TimelineNotFoundError,
)
from holdfast.seal.codec import Codec
from holdfast.seal.ring import Ring, ScopeKeys
from holdfast.seal.sealer import Commitments, KeySeal, PlainSeal, Seal, new_writer
from holdfast.seal.subject_keys import says_erased
from holdfast.storage.contract import Storage
from holdfast.storage.rows import each
from holdfast.store.journal.feed import Lanes, end_of
from holdfast.store.journal.floor import no_body
from holdfast.store.journal.ledger import AtomCache, Ledger, gone
from holdfast.store.journal.timeline import Timeline
from holdfast.store.names import background, rowkinds
from holdfast.store.names.clock import Clock, Lapses
from holdfast.store.names.scope import Scope
from holdfast.store.tree.tree import NodeCache

ROWS = 500_000
"""Scopes whose directory rows are kept by number."""
NAMES = 20_000
"""Scopes whose names are."""
LEDGERS = 1000
"""Scopes that are held open."""
IN_LOGS = (
    "logs of the engine (for SQLite, the -wal files), because somebody went on reading there: the "
    "same call again, or the next erase, empties them once they are free, and so does closing the "
    "store everywhere; a database server keeps its own for as long as it is set to"
)
"""What is said if a storage could not settle."""

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder().decode
_T = TypeVar("_T")


Told = Callable[[bytes, StateIntegrityError], None]


def _raised(key: bytes, error: StateIntegrityError) -> None:
    del key
    raise error


def scopes(core: Directory, damaged: Told = _raised) -> Iterator[tuple[Scope, int, bytes, int]]:
    """(scope, number, id, time it was made) of every scope that is not deleted.

    A row that is damaged is told to `damaged`, and the others follow; without it, it is raised.
    """
    for _, named in groupby(each(core.storage.scan, b"D", b"E"), lambda one: one[0][1:17]):
        *_, (key, row) = named  # the last of a name's rows says whether it is there
        try:
            if rowkinds.state_of(key) != rowkinds.THERE:
                continue
            text, number, scope_id, _, made, _ = _decode(core.open_row(key, row))
        except StateIntegrityError as error:  # it hides one scope, and no others
            damaged(key, error)
            continue
        yield Scope.parse(text), number, scope_id, made


def numbered(core: Directory) -> Iterator[tuple[int, bytes]]:
    """(number, key of its row or tombstone) of every scope, deleted and erased ones, too, as far as
    the directory can be read."""
    for key, row in each(core.storage.scan, b"D", b"E"):
        # What cannot be read has no number; `verify` names it.
        with suppress(StateIntegrityError, FormatError, KeyMissingError, ValueError):
            if (number := _number_in(core, key, row)) is not None:
                yield number, key


def made(core: Directory, scope: Scope) -> int:
    """The time at which a scope was made; pruning leaves it as it is."""
    for key, row in core.newest(core.tag(b"directory", str(scope))):
        if rowkinds.state_of(key) == rowkinds.THERE:
            time: int = _decode(core.open_row(key, row))[4]
            return time
    raise ScopeNotFoundError(f"there is no {scope} any more")


class Numbers:
    """What numbers in entries mean, as far as it was asked for. Thread safe."""

    def __init__(self, core: Directory) -> None:
        self._core = core
        self._lock = threading.RLock()  # naming one number looks for others
        self._rows: dict[int, bytes] = {}
        self._names: dict[int, str] = {}

    def row(self, number: int) -> bytes | None:
        """The key of a scope's directory row (or tombstone), also if it is deleted since."""
        return self._rows.get(number) or self._find([number]).get(number)

    def _find(self, numbers: Iterable[int]) -> dict[int, bytes]:
        """The same of several; the directory is read at most once."""
        with self._lock:
            wanted = set(numbers)
            if not wanted <= self._rows.keys():
                new = _numbered(self._core, seen=set(self._rows.values()))
                self._rows |= {number: key for number, key, _ in new}
            found = {number: self._rows[number] for number in wanted & self._rows.keys()}
            for number in list(islice(self._rows, max(0, len(self._rows) - ROWS))):
                del self._rows[number]
            return found

    def scopes(self, numbers: Iterable[int]) -> dict[int, str]:
        """Names of scopes; those that are deleted or erased, by whomever, are left out."""
        with self._lock:
            if len(self._names) > NAMES:
                self._names.clear()
            found = self._find(numbers)
            ends = [
                (key, rowkinds.deletion(key), rowkinds.tombstone(key)) for key in found.values()
            ]
            read = iter(self._core.storage.get([key for keys in ends for key in keys]))
            for (number, key), row, *over in zip(found.items(), read, read, read, strict=True):
                if row is None or over != [None, None]:
                    self._names.pop(number, None)
                elif number not in self._names:
                    self._names[number] = _decode(self._core.open_row(key, row))[0]
            return {number: self._names[number] for number in found if number in self._names}

    def timeline(self, ledger: Ledger, number: int) -> str | None:
        """The name of a timeline; None if there is none. Only those made since are read."""
        if number and number not in ledger.lines:
            self._core.names(ledger)
        return ledger.lines.get(number) if number else "main"


@dataclass(eq=False, repr=False)
class Directory:
    """The scopes of an open store, opened when they are asked for, with their timelines; and the
    rows that belong to the store itself. Thread safe."""

    storage: Storage
    lineage: bytes
    ring: Ring | None
    codec: Codec
    clock: Clock
    read_only: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        self.closed = ""
        self.closing: list[Callable[[], None]] = []
        """What is to be done first when the store is closed; it may still write."""
        self.writer = new_writer()
        self.atoms = AtomCache()
        self.nodes = NodeCache()
        key = self.ring.store_key if self.ring is not None else None
        self._seal: Seal = KeySeal({1: key}, 1, self.writer) if key else PlainSeal(self.writer)
        self.commitments = Commitments(key, salt=self.lineage)
        self._commit_row = self.commitments.domain(b"store-row")
        self.lanes = Lanes(self.storage, self.commitments.domain(b"feed"))
        self.lapses = Lapses(self.clock)
        self.held: OrderedDict[Scope, Ledger] = OrderedDict()
        self._lock = threading.RLock()  # a scope, a timeline, is one object, whoever asks first
        self.numbers = Numbers(self)

    def check_writable(self) -> None:
        """Refuse if this store cannot take changes."""
        self.check_open()
        if self.read_only:
            raise ReadOnlyError("the store was opened for reading; open it without read_only")

    def check_open(self) -> None:
        """Refuse if the store is closed."""
        if self.closed:
            raise background.over(self.closed)

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
        except DamagedRecordError as error:  # the seal does not know what it opens: it is said here
            place, why = rowkinds.describe(key), str(error) if row else rowkinds.HELD
            raise DamagedRecordError(f"{place}: {why}", place) from None

    def decoded(self, key: bytes, row: bytes, decode: Callable[[bytes], _T]) -> _T:
        """What a row of the store says; it is damaged if that cannot be decoded."""
        plain = self.open_row(key, row)
        try:
            return decode(plain)
        except msgspec.MsgspecError:
            place = rowkinds.describe(key)
            raise DamagedRecordError(f"{place}: it cannot be decoded", place) from None

    def tag(self, label: bytes, text: str) -> bytes:
        """16 bytes that stand for a name in row keys; keyed in an encrypted store."""
        return self.commitments.tag(label, text.encode("utf-8", "surrogatepass"))

    def settle(self, *, data: bool = True) -> bool:
        """Empty the engine's logs of what was removed, those of the ring and, if rows went from
        there too, of the data: a row that is gone still lies in them. Whether all could be."""
        storages = [self.ring.storage] if self.ring is not None else []
        storages += [self.storage] if data else []
        return False not in [storage.settle() for storage in storages]

    # directory

    def ledger(self, scope: Scope, *, create: bool = False) -> Ledger:
        """The scope, opened; brought into being if it may be."""
        ledger = self.held.get(scope)
        if ledger is not None:
            return ledger
        self.check_open()
        with self._lock:
            if (ledger := self.held.get(scope)) is None:
                ledger = self._find(scope, create)
                if ledger is None:
                    raise ScopeNotFoundError(f"there is no scope {scope} in this store")
                self.held[scope] = ledger
                self._evict()
            return ledger

    def known(self, scope: Scope) -> Ledger | None:
        """The scope, opened, or None if there is none."""
        with suppress(ScopeNotFoundError):
            return self.ledger(scope)
        return None

    def _evict(self) -> None:
        while len(self.held) > LEDGERS:
            for scope, ledger in self.held.items():
                if ledger.birth is None:
                    ledger.stale = True
                    del self.held[scope]
                    break
            else:
                return

    def _find(self, scope: Scope, create: bool) -> Ledger | None:
        tag = self.tag(b"directory", str(scope))
        found = self.newest(tag)
        incarnation = 0
        if found:
            key, row = found[0]
            incarnation = int.from_bytes(key[17:21], "big")
            if rowkinds.state_of(key) == rowkinds.THERE:
                try:
                    ledger = self.ledger_of(key, row)
                except ScopeNotFoundError:
                    return self._find(scope, create)  # erased since: there is a newer row
                if ledger.scope != scope:
                    raise DamagedRecordError(f"{rowkinds.describe(key)}: it names another scope")
                return ledger
        if not create:
            return None
        number, _, before = _decode(self.open_row(*found[0]))[:3] if found else (0, 0, 0)
        ledger = self._make(scope, tag, incarnation + 1, before)
        ledger.behind = end_of(self.storage, number) if found else None
        return ledger

    def newest(self, tag: bytes) -> list[tuple[bytes, bytes]]:
        """The last of a name's rows in the directory, if it has any."""
        return self.storage.scan(b"D" + tag, rowkinds.after(b"D" + tag), limit=1, reverse=True)

    def _make(self, scope: Scope, tag: bytes, incarnation: int, before: int) -> Ledger:
        number = int.from_bytes(os.urandom(rowkinds.SCOPE), "big")
        scope_id, salt = os.urandom(16), os.urandom(16)
        ring_rows: list[tuple[bytes, bytes]] = []
        keys = None
        if self.ring is not None:
            keys, ring_rows = self.ring.stage_scope(scope_id)
        key = rowkinds.directory(tag, incarnation, rowkinds.THERE)
        ledger = self._ledger(key, scope, number, scope_id, salt, before, keys)
        plain = _encode([str(scope), number, scope_id, salt, self.clock.claimed(), before])
        # The number's own row keeps two scopes from ever sharing it.
        claim = rowkinds.line(b"T", number, 0)
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
            tombstone=rowkinds.tombstone(key),
            home=self,
            seal=seal,
            commitments=commitments,
            no_body=no_body,
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
        return scopes(self)

    def forget(self, ledger: Ledger) -> None:
        """Drop what is held of a scope, so that it is read again."""
        with self._lock:
            ledger.stale = True
            if self.held.get(ledger.scope) is ledger:
                del self.held[ledger.scope]
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
            for ledger in self.held.values():
                ledger.stale = True
            self.held.clear()

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
        timeline: Timeline | None = ledger.timelines.get(number)
        if timeline is None:
            with self._lock:
                timeline = ledger.timelines.get(number)
                if timeline is None:
                    timeline, count = Timeline(ledger, number), self.lanes.count
                    if ledger.birth is None:
                        token = self.storage.version()
                        timeline.load()
                        timeline.seen = token
                    ledger.timelines[number] = timeline
                    # A commit on its way may rest on an object that was held before: what it
                    # brings is told here (`Core.published`) only if it returns from now on.
                    if self.lanes.flying is not None or self.lanes.count != count:
                        timeline.seen = None
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
                for number, name, _, _ in self.timelines(ledger, last):
                    ledger.names[name], ledger.lines[number] = number, name
            return ledger.names

    def timelines(self, ledger: Ledger, after: int = -1) -> list[tuple[int, str, int, int]]:
        """(number, name, parent's number, entry it starts from) of the timelines behind one."""
        prefix = b"T" + ledger.number.to_bytes(rowkinds.SCOPE, "big")
        with self._lock:  # rows of timelines are never changed: those read before are kept
            found, low = ledger.made, prefix
            if found:
                low = rowkinds.line(b"T", ledger.number, found[-1][0]) + b"\0"
            for key, row in each(self.storage.scan, low, rowkinds.after(prefix)):
                name, parent, start = _decode(ledger.open_row(key, row))
                found.append((rowkinds.line_of(key), name, parent, start))
            return [one for one in found if one[0] > after]

    def lines(self, ledger: Ledger) -> list[tuple[int, str, int, int]]:
        """The same of all timelines that are not ended."""

        found = []
        for one in self.timelines(ledger):
            if one[0] in ledger.ended:
                continue
            if one[0]:
                line = self.timeline(ledger, one[1])
                line.refresh()
                if line.gone:  # for good: nothing of it is held any longer
                    ledger.ended.add(one[0])
                    ledger.timelines.pop(one[0], None)
                    continue
            found.append(one)
        return found

    def stranded(self, scope: Scope, name: str, why: StateIntegrityError) -> Timeline:
        """A timeline whose newest state is damaged, for looking back and for restoring."""
        ledger = self.ledger(scope)
        number = 0 if name == "main" else self._timeline_number(ledger, name)
        return Timeline(ledger, number).strand(why)

    def register(self, name: str, timeline: Timeline) -> None:
        """Use a timeline that was just made, unless it has been loaded meanwhile.

        What is committed here is told to the object that it rests on; see `Core.published`.
        """
        with self._lock:
            timeline.ledger.timelines.setdefault(timeline.number, timeline)
            timeline.ledger.names[name] = timeline.number
            timeline.ledger.lines[timeline.number] = name

    def take_over(self, timeline: Timeline) -> None:
        """A stranded timeline has a state again: use it from now on."""
        with self._lock:
            timeline.seen = None  # the one before may have been told of more
            timeline.ledger.timelines[timeline.number] = timeline
            timeline.ledger.views.clear()

    def reload(self, scope: Scope, name: str, saves: bool) -> None:
        """Read a timeline's state again, for what is held of it may have been pruned away.

        Without `saves` from its entries alone; the next save replaces the damage. Who reads the one
        before goes on: it stays as it is.
        """
        ledger = self.ledger(scope)
        again = Timeline(ledger, self.timeline(ledger, name).number).load(saves=saves)
        if not saves:
            again.saved = 0
        self.take_over(again)

    def current(self, scope: Scope, name: str = "main", version: object = None) -> Timeline | None:
        """A timeline that has followed every entry committed before this call, or before the
        storage was at a `version`."""
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
        timeline.refresh(version)
        if timeline.gone:
            self.ended(timeline, name)
            return self.current(scope, name)
        return timeline


# ---- tombstones ---------------------------------------------------------------------------------
# The directory rows that end a scope: that it is deleted, or (its tombstone) erased.


class Tombstone(msgspec.Struct, array_like=True, frozen=True):
    """All that stays of an erased scope. Its first fields are those of a deletion."""

    number: int
    time: int
    last: int
    """The highest number that any of its entries had."""
    id: bytes


def read_tombstone(core: Directory, key: bytes, row: bytes) -> Tombstone:
    """The tombstone in a directory row."""
    plain = core.open_row(key, row)
    try:
        return msgspec.msgpack.decode(plain, type=Tombstone)
    except msgspec.MsgspecError:
        raise DamagedRecordError(f"{rowkinds.describe(key)}: it is no tombstone") from None


def deletion(core: Directory, ledger: Ledger, last: int, *, erase: bool) -> tuple[bytes, bytes]:
    """The row that says that a scope is deleted, or erased; `last` is its highest entry."""
    if erase:
        return entomb(core, ledger.tombstone, ledger.number, last, ledger.id)
    key = rowkinds.deletion(ledger.tombstone)
    return key, core.seal_row(key, _encode([ledger.number, core.clock.claimed(), last]))


def entomb(core: Directory, key: bytes, number: int, last: int, id: bytes) -> tuple[bytes, bytes]:
    """The row that says that a scope is erased."""
    return key, core.seal_row(key, _encode(Tombstone(number, core.clock.claimed(), last, id)))


def keyless(core: Directory, key: bytes, scope: Scope, id: bytes) -> HoldfastError:
    """The error for a scope, of a directory row's key, that the ring has no key for."""
    if core.storage.get([rowkinds.tombstone(key)])[0] is not None:
        return gone(scope)
    if _ring_says_erased(core, id):
        return KeyMissingError(
            f"the ring says that {scope} was erased, and these are files of before that: nobody "
            "can read it any more; erase it here, too"
        )
    return KeyMissingError(
        f"the ring holds no key for {scope}; use the ring that belongs to this store, or a copy of "
        "it, if its file was damaged. If these are files of earlier, the scope may have been "
        "erased since"
    )


def erased_since(core: Directory, key: bytes, row: bytes) -> bool:
    """Whether the ring says that the scope of a directory row was erased.

    So it is in a copy of the store's files made before, which has no tombstone of it.
    """
    return _ring_says_erased(core, _decode(core.open_row(key, row))[2])


def _ring_says_erased(core: Directory, id: bytes) -> bool:
    return core.ring is not None and says_erased(core.ring, id)


def by_number(core: Directory) -> dict[int, tuple[bytes, bytes]]:
    """The directory row of every scope by its number; of an erased one, its tombstone."""
    return {number: (key, row) for number, key, row in _numbered(core)}


def erased_ids(core: Directory, scope: Scope | None = None) -> set[bytes]:
    """The ids of all scopes that were erased in this store, or of those that bore a name."""
    found = _numbered(core, scope)
    return {
        read_tombstone(core, key, row).id for _, key, row in found if key[21] == rowkinds.ERASED
    }


def numbers_of(core: Directory, scope: Scope) -> set[int]:
    """The numbers of all scopes that have had a name."""
    return {number for number, _, _ in _numbered(core, scope)}


def _numbered(
    core: Directory, scope: Scope | None = None, seen: Collection[bytes] = ()
) -> Iterator[tuple[int, bytes, bytes]]:
    """Number, key and row of every scope, or of those that bore a name; not of rows seen before."""
    prefix = b"D" + (core.tag(b"directory", str(scope)) if scope is not None else b"")
    for key, row in each(core.storage.scan, prefix, rowkinds.after(prefix)):
        # A held place says which name is lost, and no number.
        if row and key not in seen and (number := _number_in(core, key, row)) is not None:
            yield number, key, row


def _number_in(core: Directory, key: bytes, row: bytes) -> int | None:
    """The number of the scope that a row of the directory is about; None if it is a deletion."""
    if rowkinds.state_of(key) == rowkinds.DELETED:
        return None
    if rowkinds.state_of(key) == rowkinds.ERASED:
        return read_tombstone(core, key, row).number
    number: int = _decode(core.open_row(key, row))[1]
    return number
