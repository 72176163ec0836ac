"""The checkpoints of a thread, in the order of putting."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.errors import DamagedRecordError
from holdfast.integrations.langgraph.records import Record, Space, Writes
from holdfast.store.history.trace import PATCHED, trace

if TYPE_CHECKING:
    from holdfast.integrations.langgraph.thread import Thread

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

    def _kept_newest(self) -> Loaded | None:
        """The newest checkpoint, if the entry that put it was pruned."""
        line = self.thread.reader.now()
        if line is None or self.order[-1] > line.floor.sequence:
            return None
        return self.thread.newest(self.space, writes=True)

    def _load(self, at: int) -> None:
        """Read one checkpoint and some that were put before it, with their writes."""
        order, thread, space = self.order, self.thread, self.space
        newest = at + 1 == len(order)
        if newest and order[at] not in self._read and (loaded := self._kept_newest()):
            self._read[order[at]] = loaded
            return
        first = at
        while first and at - first + 1 < self._page and order[first - 1] not in self._read:
            first -= 1
        found = scan(thread, space, order[first], order[at if newest else at + 1])
        for entry in order[first : at + 1]:
            record = self._found(found.records, entry)
            own = found.calls.get(record.id, [])
            self._read[entry] = Loaded(record, own, entry, life=self.life)
        if newest:
            record = self._found(found.records, order[at])
            late, _ = thread.late(space, record.id, thread.pinned())
            calls = self._newest_calls + late
            self._read[order[at]] = Loaded(record, calls, order[at], True, self.life)


class Scan:
    """What a range of entries put: checkpoints, and what was written on top of each."""

    def __init__(self, thread: Thread) -> None:
        self._thread = thread
        self.records: dict[int, Record] = {}
        """By entry."""
        self.calls: dict[str, list[Writes]] = {}
        """By the id of the checkpoint; the last one may have got more."""
        self._open: list[Any] = []

    def head(self, entry: int, packed: Any) -> None:
        """A checkpoint was put; if it is put again, with the list of writes as it is then."""
        if packed is not None:
            record = self.records[entry] = Record.unpack(packed, self._thread.names)
            self.calls.pop(record.id, None)

    def writes(self, held: list[Any]) -> None:
        """The list of writes was this; a short list that grows is told whole every time."""
        if held[: len(self._open)] != self._open:
            self.close()
        self._open = held

    def more(self, calls: list[Any]) -> None:
        """The list of writes grew by these."""
        self._open = self._open + calls

    def close(self) -> None:
        """The list of writes is another one from here on."""
        for packed in self._open:
            call = Writes.unpack(packed, self._thread.names)
            self.calls.setdefault(call.checkpoint, []).append(call)
        self._open = []


def scan(thread: Thread, space: Space, low: int, high: int) -> Scan:
    """Checkpoints that were put by entries low..high, and what was written meanwhile."""
    found = Scan(thread)
    for step in trace(thread.line.history, (space.head, space.writes), low, high):
        value = step.value
        if step.kind == "restore":
            now = thread.at(step.sequence)
            found.head(step.sequence, now.get(space.head, None, None, True))
            found.writes(now.get(space.writes, [], None, True))
            continue
        if value is PATCHED:
            value = thread.at(step.sequence).get(step.key, None, None, True)
        if step.key == space.head:
            found.head(step.sequence, value)
        elif step.kind == "append":
            found.more(value)
        elif step.key == space.writes:
            found.writes(value or [])
    found.close()
    return found
