"""One thread: reading its checkpoints, the newest and any older one."""

from __future__ import annotations

import gc
from bisect import bisect_left
from collections.abc import Iterator
from functools import cache
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.errors import DamagedRecordError, ScopeNotFoundError
from holdfast.integrations.langgraph.messages import (
    Kept,
    Parts,
    number_of,
    numbers,
    only_messages,
    places_in,
    runs,
    whole,
)
from holdfast.integrations.langgraph.thread_records import (
    COPYING,
    NAMES,
    PARTS,
    Names,
    Record,
    Space,
    Writes,
    long_entries,
    merged,
    scope_of,
    thread_of,
)
from holdfast.integrations.langgraph.types import Types
from holdfast.integrations.langgraph.write_queue import Turns
from holdfast.store.inner import PATCHED, Core, LineHandle, Reader, trace

if TYPE_CHECKING:
    from holdfast.integrations.langgraph.put import Draft


class Thread:
    """A thread's scope, and what is kept in memory of it.

    Safe for several threads of a program: writers take turns, and what they rest on is expected
    by their change, so that other processes cannot come between.
    """

    def __init__(self, core: Core, thread_id: Any, types: Types) -> None:
        self.core = core
        self.types = types
        self.scope = scope_of(thread_id)
        self.id = thread_of(self.scope)
        self.line = LineHandle(core, self.scope, "main")
        self.turns = Turns(self._draft)
        self.parts = Parts(core.codec, types)
        self.names = Names()
        self.names_version = 0
        """Of the stored list of names that is known."""
        self.held: dict[str, Any] = {}
        """Values of short keys, as they were after the entry that was written last from here."""
        self.partial = False
        """Whether it is being copied to from here."""
        self.space = cache(Space)
        """A namespace, by its name; its keys are built once."""
        self.heads: dict[str, tuple[int, Record]] = {}
        """By namespace: version of the head, and what it says."""
        self.lives: dict[int, int] = {}
        """By run, told by the address of its object, the number of the scope that it has seen last:
        made again, a thread has another one, and what it writes to that is refused."""
        self.past: dict[str, Past] = {}
        """By namespace: older checkpoints that delta channels were rebuilt from last."""
        self.kept: dict[str, tuple[int, dict[str, Any]]] = {}
        """By namespace: version of the head, and what its long channels held."""
        self.last = 0
        """The entry that was written last from here; while it is the newest of all, what was known
        then still holds."""
        self.last_names = 0
        """The version of the names that was known then."""

    def _draft(self, fresh: bool) -> Draft:
        from holdfast.integrations.langgraph.put import Draft

        return Draft(self, fresh=fresh)

    @property
    def reader(self) -> Reader:
        """Reads of the newest state."""
        return self.line.reader

    def at(self, entry: int) -> Reader:
        """Reads of the state at an entry."""
        return self.line.view(entry).reader

    def namespaces(self) -> list[Space]:
        """All namespaces that hold a checkpoint."""
        return [Space.of(key) for key in self.reader.keys("head")]

    # the newest

    def pinned(self) -> Reader:
        """Reads of the newest state that do not ask again and again whether it still is."""
        line = self.reader.now()
        return Reader(self.core, self.scope, "main", line) if line is not None else self.reader

    def as_left(self) -> Reader | None:
        """Reads of the state as the last change from here left it, as far as this process knows;
        the storage is not asked. None if it is known that somebody else has written since."""
        ledger = self.core.held.get(self.scope)
        line = ledger.timelines.get(0) if ledger is not None else None
        if line is None or line.gone or not 0 < self.last == line.sequence:
            return None
        return Reader(self.core, self.scope, "main", line)

    def life_now(self) -> int:
        """The number of the scope; 0 if it is not there."""
        line = self.reader.now()
        return line.ledger.number if line is not None else 0

    def check_life(self, life: int) -> None:
        """Refuse to go on reading a thread that was deleted: what is missing is no damage."""
        if life and self.life_now() != life:
            raise self._deleted()

    def _deleted(self) -> ScopeNotFoundError:
        return ScopeNotFoundError(f"thread {self.id!r} was deleted since it was read")

    def learn_names(self, reader: Reader, *, anew: bool = False) -> int:
        """Know all names that are stored; the version of their list.

        The list only grows, so a reader that came late does not make it shorter; `anew`: it may be
        that of another thread, made under the same id.
        """
        version = reader.version(NAMES)
        if version > self.names_version or (anew and version != self.names_version):
            self.names.learn(reader.get(NAMES, [], None, True))
            self.names_version = version
        return version

    def newest(
        self, space: Space, reader: Reader | None = None, *, writes: bool = False
    ) -> Loaded | None:
        """The newest checkpoint of a namespace; `writes`: with what was written on top of it."""
        reader = reader or self.pinned()
        while True:
            version, record = self.heads.get(space.ns, (0, None))
            if record is None or version != reader.version(space.head):
                self.check_whole(reader)  # a copy began by deleting all heads
                found = reader.versioned([space.head])
                if not found:
                    return None
                self.learn_names(reader)
                head, version = found[space.head]
                record = Record.unpack(head, self.names)
                self.heads[space.ns] = (version, record)
            loaded = Loaded(record, [], version, newest=True)
            if not writes:
                return loaded
            loaded = loaded._replace(calls=self._calls(space, record.id, reader))
            # A checkpoint that is put meanwhile takes away what was written on the one before.
            if reader.versions([space.head]) == [version]:
                return loaded

    def check_whole(self, reader: Reader) -> None:
        """Refuse to read a thread that another one was copied to in part."""
        if not self.partial and reader.version(COPYING):
            raise DamagedRecordError(
                f"{self.scope}: copying to this thread was cut short; delete it, and copy again"
            )

    def _calls(self, space: Space, id: str, reader: Reader) -> list[Writes]:
        """What was written on top of the newest checkpoint, and perhaps of one to come."""
        found = reader.get(space.writes, [], None, True)
        return self.unpacked(found, reader) + self.late(space, id, reader)[0]

    def late(self, space: Space, id: str, reader: Reader) -> tuple[list[Writes], bool]:
        """What tasks wrote on a checkpoint when it was the newest no more; whether this holds all
        that they wrote before, too."""
        found = reader.get(space.late(id), [], None, True)
        instead = found[:1] == [INSTEAD]
        return self.unpacked(found[instead:], reader), instead

    def unpacked(self, found: list[Any], reader: Reader) -> list[Writes]:
        """Calls of `put_writes`, as they are stored."""
        if found:
            self.learn_names(reader)
        return [Writes.unpack(call, self.names) for call in found]

    def values(self, space: Space, loaded: Loaded) -> dict[str, Any]:
        """All channels of a checkpoint, as new objects."""
        # Python's collector would walk what is being built, which is all in use, again and again,
        # for longer than building it takes. Another thread may resume it earlier.
        collects = gc.isenabled()
        gc.disable()
        try:
            return self._values(space, loaded)
        finally:
            if collects:
                gc.enable()

    def _values(self, space: Space, loaded: Loaded) -> dict[str, Any]:
        record, reader, newest = loaded.record, self.holding(loaded.entry), loaded.newest
        kept = self.known(space, loaded) if newest else {}
        if newest and kept.keys() >= set(record.apart):
            made = self.values_of(record.values, reader)
            return made | {name: kept[name].build() for name in record.apart}
        if not newest and loaded.page is not None:
            found = loaded.page.values(loaded, reader)
            if found is not None:
                return found
        apart = self.long_values(space, record, reader if newest else self.at(loaded.entry))
        if newest and reader.version(space.head) != loaded.entry:
            # Somebody put a checkpoint meanwhile; what this one was is the state at its entry.
            return self._values(space, loaded._replace(newest=False))
        values = self.values_of(apart, reader, found := {})
        if newest:
            self.kept[space.ns] = (loaded.entry, found)
        return self.values_of(record.values, reader) | values

    def known(self, space: Space, loaded: Loaded) -> dict[str, Kept]:
        """The long channels of a checkpoint whose messages are kept as bytes, all of them."""
        version, kept = self.kept.get(space.ns, (0, {}))
        if version != loaded.entry:
            return {}
        return {name: one for name, one in kept.items() if type(one) is Kept}

    def values_of(
        self, plain: dict[str, Any], reader: Reader, kept: dict[str, Kept] | None = None
    ) -> dict[str, Any]:
        """Channels of their plain forms, as new objects; `kept` gets those that are messages."""
        parts = self.read_parts(_numbers(plain), reader)
        values: dict[str, Any] = {}
        for name, value in plain.items():
            places = places_in(value)
            found = Kept.stored(self.types, places, parts) if places else None
            values[name] = self._build(value, parts) if found is None else found.build()
            if kept is not None and found is None and self.lists_messages(values[name]):
                found = Kept.of(values[name])
            if kept is not None and found is not None:
                kept[name] = found
        return values

    def long_values(self, space: Space, record: Record, reader: Reader) -> dict[str, Any]:
        """The channels that have a key of their own, as they are stored."""
        keys = {space.channel(name): name for name in record.apart}
        found = reader.get_many(list(keys), True)
        if len(found) != len(keys):
            missing = next(name for key, name in keys.items() if key not in found)
            raise DamagedRecordError(f"{self.scope}: the value of channel {missing!r} is missing")
        return {keys[key]: value for key, value in found.items()}

    def forget(self, space: Space) -> None:
        """Drop what is kept of a namespace."""
        self.heads.pop(space.ns, None)
        self.past.pop(space.ns, None)
        self.kept.pop(space.ns, None)

    # building

    def build(self, plain: Any, entry: int) -> Any:
        """Objects of a value in plain form, with its messages; it was written by an entry, or on
        top of the checkpoint that this entry put."""
        reader = self.pinned()
        if reader.at is None or entry <= reader.at.ledger.before:
            raise self._deleted()
        return self._build(plain, self.read_parts(_numbers(plain), reader))

    def _build(self, plain: Any, parts: dict[int, Any]) -> Any:
        """Objects of a plain form and the messages in it."""

        def build(place: Any) -> Any:
            return self.types.build(whole(place, parts[number_of(place)]))

        places = places_in(plain)
        if places is not None:
            return [*map(build, places)]
        return self.types.build(plain, lambda ref: build(ref.value))

    def holding(self, entry: int) -> Reader:
        """Reads of a state that has the messages of the checkpoint that an entry put.

        Messages are only ever added, so that the newest has those of every checkpoint, unless the
        thread was put back since, or deleted and made again: then their numbers mean others.
        """
        reader = self.pinned()
        line = reader.at
        if line is not None and line.ledger.before < entry and line.origin <= entry:
            return reader
        return self.at(entry)

    def read_parts(self, wanted: set[int], reader: Reader) -> dict[int, Any]:
        """Messages by their numbers, as they are stored in the state that `reader` sees."""
        parts: dict[int, Any] = {}
        for low, high in runs(wanted):
            found = reader.slice(PARTS, low, high, True)
            parts.update(zip(range(low, high), found, strict=False))
        if not wanted <= parts.keys():
            raise DamagedRecordError(f"{self.scope}: a message that is referred to is missing")
        return parts

    # older ones

    def log(self, space: Space) -> tuple[list[int], list[Writes]]:
        """The entries that put the checkpoints of a namespace, oldest first; those that were
        pruned are not among them, but for the newest, which needs no entry. And what was written
        on top of the newest."""
        reader = self.pinned()
        self.check_whole(reader)
        found = reader.versioned([space.head, space.log, space.writes])
        self.learn_names(reader)
        if space.head not in found:
            return [], []
        head, version = found[space.head]
        lots = chain.from_iterable(map(long_entries, found.get(space.log, ([], 0))[0]))
        before = [*lots, *Record.unpack(head, self.names).recent]
        pruned = reader.at.floor.sequence if reader.at is not None else 0
        order = [*(before if not pruned else (e for e in before if e > pruned)), version]
        return order, self.unpacked(found.get(space.writes, ([], 0))[0], reader)

    def find(self, space: Space, id: str) -> Loaded | None:
        """A checkpoint by its id."""
        newest = self.newest(space, writes=True)
        if newest is None or newest.record.id == id:
            return newest
        return Past(self, space, page=1).get(id)

    def pending(self, loaded: Loaded) -> list[tuple[str, str, Any]]:
        """(task, channel, value) of what was written on top of a checkpoint."""
        found = merged(loaded.calls, loaded.record.id)
        if not found:
            return []
        values = self.build([value for _, _, value in found], loaded.entry)
        return [(task, name, value) for (task, name, _), value in zip(found, values, strict=True)]

    def lists_messages(self, value: Any) -> bool:
        """Whether a value is a list of messages that are stored one by one."""
        return self.types.keeps_messages_apart and only_messages(value)

    def learn(self, space: Space, name: str, record: Record, reader: Reader) -> None:
        """Recognise the messages of a channel, so that those that stay are not stored again."""
        if name in record.apart:
            held = reader.get(space.channel(name), [], None, True)
        else:
            held = record.values.get(name)
        wanted = _numbers(held)
        for number, part in self.read_parts(wanted - self.parts.ids.keys(), reader).items():
            self.parts.learn(number, part)


def _numbers(plain: Any) -> set[int]:
    found: set[int] = set()
    numbers(plain, found)
    return found


# ---- thread past --------------------------------------------------------------------------------
# The checkpoints of a thread, in the order of putting.


MOST_READ = 512
PAGE = 100
"""Checkpoints whose records are read together."""


INSTEAD = None
"""Begins a list of late writes that holds all of them: some of those in the entries are gone."""


class Loaded(NamedTuple):
    """A checkpoint as stored, before its objects are built."""

    record: Record
    calls: list[Writes]
    """What was written on top of it, and perhaps of others."""
    entry: int
    """The state at this entry is this checkpoint."""
    newest: bool = False
    life: int = 0
    """The number of the scope, if it was read from the past; made again, that has another."""
    page: Page | None = None
    """Those that it was read with."""


class Past:
    """The checkpoints of one namespace; those near each other are read together."""

    def __init__(
        self, thread: Thread, space: Space, *, page: int = PAGE, known: Past | None = None
    ) -> None:
        self.thread = thread
        self.space = space
        self._page = page
        self.life = thread.life_now()
        self.order, self._newest_calls = thread.log(space)
        self._read: dict[int, Loaded] = {}
        if known is not None and self.order[: len(known.order)] == known.order:
            # What was put before is what it was; only the newest may have got more writes.
            self._read = {e: loaded for e, loaded in known._read.items() if not loaded.newest}
            while len(self._read) > MOST_READ:
                del self._read[min(self._read)]
        self._records: dict[int, Record] = {}
        self._late = set(thread.reader.keys(space.late("")))
        self.mixed = thread.reader.exists(space.mixed)
        """Whether ids, which tell the time, are not in the order of putting."""

    def __len__(self) -> int:
        return len(self.order)

    def at(self, position: int) -> Loaded:
        """A checkpoint by its position in the order of putting."""
        position %= len(self.order)
        entry = self.order[position]
        if entry not in self._read:
            self._load(position)
        loaded = self._read[entry]
        if not self._late or loaded.newest or self.space.late(loaded.record.id) not in self._late:
            return loaded
        late, instead = self.thread.late(self.space, loaded.record.id, self.thread.pinned())
        return loaded._replace(calls=late if instead else loaded.calls + late)

    def __iter__(self) -> Iterator[Loaded]:
        """All checkpoints, the newest first."""
        return (self.at(position) for position in reversed(range(len(self.order))))

    def get(self, id: str) -> Loaded | None:
        """A checkpoint by its id, or None if there is no such."""
        if self.order and self.at(-1).record.id == id:
            return self.at(-1)
        position = self.first_not_before(id)
        if position < len(self.order) and self.at(position).record.id == id:
            return self.at(position)
        # Ids tell the time: only clocks that went back, or an import, bring them out of order.
        self._page = PAGE
        return next((loaded for loaded in self if loaded.record.id == id), None)

    def parent(self, loaded: Loaded) -> Loaded | None:
        """The checkpoint that one rests on, if it is there: mostly the one that was put before."""
        id = loaded.record.parent
        if id is None:
            return None
        before = bisect_left(self.order, loaded.entry) - 1
        if before >= 0 and self.at(before).record.id == id:
            return self.at(before)
        return self.get(id)

    def first_not_before(self, id: str) -> int:
        """Position of the first checkpoint whose id is not less, as far as ids are in order."""
        return bisect_left(range(len(self.order)), id, key=lambda n: self.record(n).id)

    def record(self, position: int) -> Record:
        """What a checkpoint says, by its position in the order of putting."""
        entry = self.order[position]
        if entry in self._read:
            return self._read[entry].record
        if entry not in self._records:
            self._records |= scan(self.thread, self.space, entry, entry).records
        return self._found(self._records, entry)

    def _found(self, records: dict[int, Record], entry: int) -> Record:
        if entry not in records:
            self.thread.check_life(self.life)
            raise DamagedRecordError(
                f"{self.thread.scope}: entry {entry} should put a checkpoint and does not"
            )
        return records[entry]

    def _load(self, at: int) -> None:
        """Read one checkpoint and some that were put before it, with their writes."""
        order, thread, space = self.order, self.thread, self.space
        newest = at + 1 == len(order)
        line = thread.reader.now() if newest else None
        pruned = line is not None and order[at] <= line.floor.sequence
        if pruned and (loaded := thread.newest(space, writes=True)):
            self._read[order[at]] = loaded
            return
        first = at
        while first and at - first + 1 < self._page and order[first - 1] not in self._read:
            first -= 1
        found = scan(thread, space, order[first], order[at if newest else at + 1])
        page = Page(thread, space, found.changes)
        for entry in order[first : at + 1]:
            record = self._found(found.records, entry)
            own = found.calls.get(record.id, [])
            self._read[entry] = page.last = Loaded(record, own, entry, life=self.life, page=page)
        if newest:
            late, _ = thread.late(space, page.last.record.id, thread.pinned())
            calls = self._newest_calls + late
            page.last = self._read[order[at]] = page.last._replace(calls=calls, newest=True)


class Page:
    """Checkpoints that were read together.

    The long values of each are those of the last one without what was appended since: one replay
    serves them all. One that was set or taken away meanwhile is read at its own entry.
    """

    def __init__(self, thread: Thread, space: Space, changes: Changes) -> None:
        self._thread = thread
        self._space = space
        self._changes = changes
        self._held: tuple[dict[str, Any], dict[str, Kept]] | None = None
        """The long values of the last one, as stored; and those of them that are messages."""
        self.last: Loaded

    def values(self, loaded: Loaded, reader: Reader) -> dict[str, Any] | None:
        """All channels of one of them, as new objects; None if that has to be read by itself."""
        more: dict[str, int] = {}
        for key in map(self._space.channel, apart := loaded.record.apart):
            added = self._added(key, loaded.entry)
            if added is None:
                return None
            more[key] = added
        if self._held is None:
            thread, space, last = self._thread, self._space, self.last
            plain, kept = {}, thread.known(space, last)
            if not kept.keys() >= set(last.record.apart):
                plain = thread.long_values(space, last.record, thread.at(last.entry))
                thread.values_of(plain, thread.holding(last.entry), kept)
            self._held = plain, kept
        plain, kept = self._held
        made: dict[str, Any] = {}
        rest = dict(loaded.record.values)
        for name in apart:
            added = more[self._space.channel(name)]
            if name in kept:
                made[name] = kept[name].build(kept[name].count - added)
            elif name in plain:
                rest[name] = plain[name][: len(plain[name]) - added] if added else plain[name]
            else:
                return None
        return self._thread.values_of(rest, reader) | made

    def _added(self, key: str, since: int) -> int | None:
        """Items that were appended under a key; None if it was changed otherwise."""
        added = 0
        for entry, changes in self._changes.items():
            if since < entry <= self.last.entry:
                found = changes.get(key, 0 if EVERY not in changes else None)
                if found is None:
                    return None
                added += found
        return added


Changes = dict[int, dict[str, int | None]]
"""By entry, the channels that it changed, by key: items that it appended, None if it did else."""
EVERY = ""
"""Stands for all channels."""


class Scan:
    """What a range of entries put: checkpoints, and what was written on top of each."""

    def __init__(self, thread: Thread) -> None:
        self._thread = thread
        self.records: dict[int, Record] = {}
        """By entry."""
        self.calls: dict[str, list[Writes]] = {}
        """By the id of the checkpoint; the last one may have got more."""
        self.changes: Changes = {}
        self.open: list[Any] = []
        """The list of writes as it was last."""

    def head(self, entry: int, packed: Any) -> None:
        """A checkpoint was put; if it is put again, with the list of writes as it is then."""
        if packed is not None:
            record = self.records[entry] = Record.unpack(packed, self._thread.names)
            self.calls.pop(record.id, None)

    def writes(self, held: list[Any]) -> None:
        """The list of writes was this; a short list that grows is told whole every time."""
        if held[: len(self.open)] != self.open:
            self.close()
        self.open = held

    def close(self) -> None:
        """The list of writes is another one from here on."""
        for packed in self.open:
            call = Writes.unpack(packed, self._thread.names)
            self.calls.setdefault(call.checkpoint, []).append(call)
        self.open = []


class _Keys:
    """The keys of a namespace that tell what its checkpoints were."""

    def __init__(self, space: Space) -> None:
        self._own = (space.head, space.writes)
        self._channels = space.channel("")

    def __contains__(self, key: object) -> bool:
        return key in self._own or str(key).startswith(self._channels)


def scan(thread: Thread, space: Space, low: int, high: int) -> Scan:
    """Checkpoints that were put by entries low..high, and what was written meanwhile."""
    found = Scan(thread)
    for step in trace(thread.line.history, _Keys(space), low, high):
        value = step.value
        if step.kind == "restore":
            found.changes[step.sequence] = {EVERY: None}
            now = thread.at(step.sequence)
            found.head(step.sequence, now.get(space.head, None, None, True))
            found.writes(now.get(space.writes, [], None, True))
            continue
        if step.key not in (space.head, space.writes, ""):
            changes = found.changes.setdefault(step.sequence, {})
            before = changes.get(step.key, 0)
            added = len(value) if step.kind == "append" else None
            changes[step.key] = None if added is None or before is None else before + added
            continue
        if value is PATCHED:
            value = thread.at(step.sequence).get(step.key, None, None, True)
        if step.key == space.head:
            found.head(step.sequence, value)
        elif step.kind == "append":
            found.writes(found.open + value)
        elif step.key == space.writes:
            found.writes(value or [])
    found.close()
    return found
