"""What `put`, `put_writes` and the deletions write."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterator
from typing import Any
from urllib.parse import unquote

from holdfast.errors import Conflict, InvalidValueError
from holdfast.integrations.langgraph.messages import BEGIN, Kept
from holdfast.integrations.langgraph.runs import remember
from holdfast.integrations.langgraph.thread import INSTEAD, Loaded, Past, Thread
from holdfast.integrations.langgraph.thread_records import (
    COUNTERS,
    INLINE,
    LOT,
    NAMES,
    PARTS,
    Record,
    Space,
    Writes,
    deltas_in,
    long_id,
    run_in,
    short_entries,
)
from holdfast.integrations.langgraph.types import LISTED, Types
from holdfast.integrations.langgraph.write_queue import Job
from holdfast.seal.codec import Typed
from holdfast.store.inner import WHOLE, Operation, Written, build_change
from holdfast.store.names.cause import Cause, cause_now

_FIELDS = frozenset(
    ("v", "id", "ts", "channel_values", "channel_versions", "versions_seen", "updated_channels")
)

RECORDS = Types()
"""For what is not the graph's own: metadata."""


Check = Callable[[Record | None], None]
"""Refuses a put that does not rest on the newest checkpoint."""


def put(
    thread: Thread,
    space: Space,
    checkpoint: dict[str, Any],
    metadata: dict[str, Any],
    parent: str | None,
    check: Check,
    by: int = 0,
) -> None:
    """Make a checkpoint the newest of its namespace. `by`: see `Thread.lives`."""

    def apply(draft: Draft) -> None:
        draft.runs.append(by)
        before = thread.newest(space, draft.reader)
        try:
            check(before.record if before else None)
        except Conflict:
            # Is it that what it rests on is not there at all?
            if before and parent and thread.find(space, parent) is None:
                raise Conflict(
                    f"thread {thread.id!r} has no checkpoint {parent} to go on from: there never "
                    "was one, or the thread was deleted since; nothing of this step is stored"
                ) from None
            raise
        _check_once(draft, space, checkpoint["id"], before)
        short, apart = draft.channels(space, checkpoint.get("channel_values", {}), before)
        more = {name: value for name, value in checkpoint.items() if name not in _FIELDS}
        updated = checkpoint.get("updated_channels", False)
        record = Record(
            checkpoint["id"],
            parent,
            checkpoint.get("v", 1),
            checkpoint.get("ts", ""),
            dict(checkpoint.get("channel_versions", {})),
            {node: dict(seen) for node, seen in checkpoint.get("versions_seen", {}).items()},
            list(updated) if isinstance(updated, (list, tuple)) else updated,
            RECORDS.plain(metadata),
            short,
            apart,
            more=RECORDS.plain(more) if more else None,
        )
        _pass_over(draft, space, checkpoint["id"])
        _head(draft, space, record, before)

    cause = cause_now(correlation=run_in(metadata))
    thread.turns.run(Job(apply, cause, puts=space.ns))


def _check_once(draft: Draft, space: Space, id: str, before: Loaded | None) -> None:
    """Refuse a checkpoint that was put before; the newest may be put again."""
    if before is None or before.record.id == id:
        return
    if before.record.id < id and _before_all(draft.get(space.mixed), id):
        return
    if Past(draft.thread, space).get(id) is not None:
        raise Conflict(
            f"thread {draft.thread.id!r}: checkpoint {id} was put before, and others since; "
            "nothing is stored. Give the checkpoint an id of its own"
        )


def _before_all(mixed: Any, id: str) -> bool:
    """Whether no checkpoint before the newest can have an id that is not less than this one."""
    return mixed is None or (mixed is not True and mixed < id)


def _pass_over(draft: Draft, space: Space, id: str) -> None:
    """Take away what was written on top of other checkpoints than the one that is put.

    Tasks may be faster than the checkpoint that they run on: their writes come before it, and stay.
    """
    if not draft.alone:
        draft.expects[space.writes] = draft.reader.version(space.writes)
    known = [*(draft.get(space.writes) or []), *draft.calls.get(space.writes, [])]
    stay = [call for call in known if str(long_id(call[0])) >= id]
    draft.calls[space.writes] = stay
    if stay != known:
        draft.note("set" if stay else "delete", space.writes, stay or None)


def _head(made: Draft, space: Space, record: Record, before: Loaded | None) -> None:
    """Write the record; the one before it goes into the log."""
    made.expects[space.head] = before.entry if before else 0
    if before is not None:
        recent = before.record.recent
        if before.record.id != record.id:
            recent = (*recent, before.entry)
        if before.record.id > record.id and _before_all(made.get(space.mixed), before.record.id):
            made.note("set", space.mixed, before.record.id)
        if len(recent) >= LOT:
            made.note("append", space.log, [short_entries(recent)])
            recent = ()
        record = record._replace(recent=recent)
    if COUNTERS in record.metadata or made.get(space.needs) is not None:
        # The first entry that its delta channels are made of. If they are all in it, its own: for
        # those that follow will rest on it.
        if before is None or not deltas_in(record):
            needed = made.entry
        elif before.record.id == record.parent:
            needed = int(made.get(space.needs) or before.entry)
        else:
            needed = _oldest(made, space, record)
        _note_needs(made, space, needed)
    made.heads[space.ns] = record
    made.note("set", space.head, made.packed(record))


def _oldest(made: Draft, space: Space, record: Record) -> int:
    resting = _resting(Past(made.thread, space), record)
    return min((loaded.entry for loaded in resting), default=made.entry)


def _resting(past: Past, record: Record) -> Iterator[Loaded]:
    """The checkpoints that delta channels of one are made of, back to those with their values."""
    wanted = deltas_in(record)
    loaded = past.get(record.parent) if wanted and record.parent else None
    while loaded is not None and wanted:
        yield loaded
        wanted = wanted.intersection(loaded.record.versions)  # others were first written here
        wanted = wanted.difference(loaded.record.values, loaded.record.apart)
        loaded = past.parent(loaded)


def _note_needs(made: Draft, space: Space, entry: int) -> None:
    if made.get(space.needs) != entry:
        made.note("set", space.needs, entry)


def put_writes(
    thread: Thread,
    space: Space,
    checkpoint: str,
    writes: list[tuple[int, str, Any]],
    task: str,
    path: str,
    run: str | None,
    by: int = 0,
    *,
    patient: bool = False,
    relaxed: bool = False,
) -> None:
    """Note (index, channel, value) of what a task wrote on top of a checkpoint, which may be put
    only later. `patient`: a checkpoint may follow at once. `relaxed`: it makes this durable.

    If the thread was deleted since the checkpoint was put, or its run has seen it, `Conflict`.
    """

    def apply(draft: Draft) -> None:
        draft.runs.append(by)
        # Asked here, not before: another change of the run may have made the thread meanwhile.
        if thread.lives.get(by, 0) not in (0, draft.life):
            raise Conflict(
                f"thread {thread.id!r}: checkpoint {checkpoint} is of a thread deleted since; "
                "nothing of this step is stored"
            )
        before = thread.newest(space, draft.reader)
        plain = []
        name = ""
        try:
            for n, name, value in writes:
                plain.append((n, name, thread.types.plain(value, thread.parts.ref)))
        except InvalidValueError as error:
            raise error.placed(f"thread {thread.id!r}", name) from None
        head = draft.heads.get(space.ns) or (before.record if before else None)
        # One that is not there yet has a newer id; but clocks go back, and some are put again.
        to_come = head is None or (
            checkpoint > head.id and _before_all(draft.get(space.mixed), checkpoint)
        )
        newest = to_come or (head is not None and checkpoint == head.id)
        # On a checkpoint that is not there yet, only the run that puts it can write.
        own = to_come or (newest and head is not None and run_in(head.metadata) == run)
        call = Writes(checkpoint, task, path, plain, None if own else run)
        key = space.writes if newest else space.late(checkpoint)
        draft.write(key, call.pack(thread.names))
        draft.expects[space.head] = before.entry if before else 0

    # Errors and interrupts end a step: no checkpoint follows that they could go along with. And
    # with delta channels, LangGraph holds the checkpoint back until the writes are stored.
    followed = all(n >= 0 for n, _, _ in writes)
    _, last = thread.heads.get(space.ns, (0, None))
    patient = patient and followed and not (last is not None and COUNTERS in last.metadata)
    cause = cause_now(correlation=run)
    thread.turns.run(Job(apply, cause, patient=patient, relaxed=relaxed and followed))


# removing


def remove(
    thread: Thread,
    space: Space,
    chosen: Callable[[Past], set[str]],
    runs: Collection[str] = frozenset(),
) -> None:
    """Take chosen checkpoints out of a namespace, and what these runs wrote on top of others.

    The newest that stays becomes the head of the namespace.
    """

    def apply(draft: Draft) -> None:
        # Lists of writes take the place of those that are stored: one that is added meanwhile, or
        # together with this, would be lost.
        if draft.operations:
            raise Conflict(f"thread {thread.id!r}: this has to be a change of its own")
        draft.whole = True
        past = Past(thread, space)
        gone = chosen(past) if past else set()
        stay: list[Loaded] = []
        fewer: set[str] = set()
        """Checkpoints on top of which something was written that goes."""
        for loaded in reversed([loaded for loaded in past if loaded.record.id not in gone]):
            calls = [call for call in loaded.calls if call.run not in runs]
            if len(calls) < len(loaded.calls):
                fewer.add(loaded.record.id)
            stay.append(loaded._replace(calls=calls))
        if len(stay) == len(past) and not fewer:
            return
        for key in thread.reader.keys(space.late("")):
            if unquote(key.rpartition("/")[2]) in gone:
                draft.note("delete", key)
        before = past.at(-1)
        thread.forget(space)
        if stay:
            _shorten(draft, space, stay, before, fewer)
            return
        keys = [space.head, space.log, space.mixed, space.needs, space.writes]
        for key in [*keys, *map(space.channel, before.record.apart)]:
            if thread.reader.exists(key):
                draft.note("delete", key)

    thread.turns.run(Job(apply, cause_now(), puts=space.ns))


def _shorten(
    made: Draft, space: Space, stay: list[Loaded], before: Loaded, fewer: set[str]
) -> None:
    newest = stay[-1]
    thread = made.thread
    for loaded in stay[:-1]:
        id = loaded.record.id
        if id in fewer:  # the entries still have all that was written
            packed = [call.pack(thread.names) for call in loaded.calls if call.checkpoint == id]
            made.note("set", space.late(id), [INSTEAD, *packed])
    if newest.entry != before.entry:
        values = thread.long_values(space, newest.record, thread.at(newest.entry))
        for name in set(before.record.apart).difference(newest.record.apart):
            made.note("delete", space.channel(name))
        for name in newest.record.apart:
            made.note("set", space.channel(name), values[name])
    if newest.entry != before.entry or newest.record.id in fewer:
        packed = [call.pack(thread.names) for call in newest.calls]
        if packed or thread.reader.exists(space.writes):
            made.note("set" if packed else "delete", space.writes, packed or None)
        late = space.late(newest.record.id)
        if thread.reader.exists(late):
            made.note("delete", late)
    if made.get(space.needs) is not None:
        _note_needs(made, space, _oldest(made, space, newest.record))
    made.note("set", space.head, newest.record._replace(recent=()).pack(thread.names))
    entries = [loaded.entry for loaded in stay[:-1]]
    lots = [short_entries(entries[n : n + LOT]) for n in range(0, len(entries), LOT)]
    made.note("set", space.log, lots)


def superseded(past: Past) -> set[str]:
    """Checkpoints that the newest one of a namespace does not need.

    A delta channel whose value is not in the newest needs those before it, back to one that has
    the value.
    """
    newest = past.at(-1).record
    keep = {newest.id, *(loaded.record.id for loaded in _resting(past, newest))}
    return {loaded.record.id for loaded in past} - keep


# ---- thread draft -------------------------------------------------------------------------------
# A change of one thread while it is put together.


MESSAGES = 16
"""Messages up to which a list lies in the head itself."""
_APPENDED: Any = object()


class Draft:
    """A change of one thread while it is put together."""

    def __init__(self, thread: Thread, *, fresh: bool = True) -> None:
        self.thread = thread
        self.operations: list[Operation] = []
        self.expects: dict[str, int] = {}
        self.kept: dict[str, dict[str, Any]] = {}
        """By namespace, what long channels hold after this change."""
        self.heads: dict[str, Record] = {}
        """By namespace, the checkpoint that this change puts."""
        self.calls: dict[str, list[Any]] = {}
        """Writes that this change adds."""
        self.runs: list[int] = []
        """Whose it is: these have seen the scope that it is written to."""
        self.whole = False
        """Whether nothing may come between what is read for it and its entry."""
        self._exact = True
        """Whether the values of short channels are encoded as they are."""
        # All that is read for a change is of one moment; if that is over, the change fails: then
        # it is put together again, and the storage is asked what is the newest (`fresh`).
        self.reader = reader = (None if fresh else thread.as_left()) or thread.pinned()
        line = reader.at
        self._before = line.sequence if line is not None else 0
        self.life = line.ledger.number if line is not None else 0
        self.alone = 0 < self._before == thread.last
        """Whether nobody else has written since this thread's last change."""
        self._versions: dict[str, int] = {}
        if self.alone and thread.last_names == thread.names_version:
            thread.parts.again()
        else:
            thread.held.clear()
            self._versions = {NAMES: thread.learn_names(reader, anew=True)}
            self._versions[PARTS] = reader.version(PARTS)
            thread.parts.begin(self._versions[PARTS], reader.length(PARTS))
        thread.names.begin()
        ledger = line.ledger if line is not None else thread.core.ledger(thread.scope, create=True)
        # What gates look at has to be there as a value.
        thread.parts.atom = ledger.splitter.atom if not thread.core.gates.front else None

    def get(self, key: str) -> Any:
        """The value of a short key before this change, read once as long as nobody else writes."""
        held = self.thread.held
        if key not in held:
            held[key] = self.reader.get(key, None, None, True)
        return held[key]

    @property
    def entry(self) -> int:
        """The least number that its entry can have."""
        return self._before + 1

    def note(self, kind: str, key: str, value: Any = None) -> None:
        """Add an operation."""
        self.operations.append(Operation(kind, key, value))

    def write(self, key: str, call: list[Any]) -> None:
        """Add to a list of writes."""
        self.calls.setdefault(key, []).append(call)
        self.note("append", key, [call])

    def commit(self, cause: Cause | None, *, relaxed: bool = False) -> list[Written]:
        """Write it; `Conflict` if somebody was faster."""
        thread = self.thread
        for key, new in ((PARTS, thread.parts.new), (NAMES, thread.names.new)):
            if new:
                self.operations.insert(0, Operation("append", key, [*new]))
        if not self.operations:
            return []
        # Numbers were given out or used: they must still mean what they meant.
        self.expects |= self._versions
        # That there is no new entry is told faster than that keys are the same.
        same = self.alone or self.whole
        expects, head = ({}, self._before) if same else (self.expects, None)
        target = (thread.scope, "main", self.operations, expects, head)
        change = build_change(thread.core, [target], cause=cause)
        change.relaxed = relaxed
        written = thread.core.run(change)
        entry = written[0].sequence
        for by in filter(None, self.runs):
            remember(thread.lives, by, thread.core.ledger(thread.scope).number)
        thread.parts.stored(entry)
        if thread.names.new:
            thread.names.stored()
            thread.names_version = entry
        # What others wrote between changed no list that was expected: it is known to its end.
        thread.last, thread.last_names = entry, thread.names_version
        if entry != self.entry:
            thread.held.clear()
        for operation in self.operations:
            thread.held.pop(operation.key, None)
        for ns, record in self.heads.items():
            thread.heads[ns] = (entry, record)
        for ns, kept in self.kept.items():
            thread.kept[ns] = (entry, kept)
        return written

    def packed(self, record: Record) -> Any:
        """A record as it is stored: encoded, if there is nothing in it that has to be checked."""
        found = record.pack(self.thread.names)
        make = self.thread.parts.atom
        plain = self._exact and record.more is None and type(found[7]) is list and found[4][0]
        if make is None or not plain or type(record.v) is not int or type(record.ts) is not str:
            return found
        try:
            data = self.thread.core.codec.encode(found)
        except (OverflowError, UnicodeEncodeError):  # an id of a message may be no Unicode
            return found
        return make(data) if len(data) <= WHOLE else found

    # channels

    def channels(
        self, space: Space, given: dict[str, Any], before: Loaded | None
    ) -> tuple[dict[str, Any], list[str]]:
        """Write what differs; returns short values in plain form, and who has a key of its own."""
        thread = self.thread
        version, known = thread.kept.get(space.ns, (0, {}))
        if before is not None and before.record.apart and version != before.entry:
            thread.values(space, before)  # reads and keeps what is stored
            version, known = thread.kept.get(space.ns, (0, {}))
        if before is None or version != before.entry:
            known = {}
        kept = self.kept[space.ns] = {}
        was = set(before.record.apart) if before is not None else set()
        short: dict[str, Any] = {}
        apart: list[str] = []
        name = ""
        try:
            for name, value in given.items():
                same: Any = known.get(name)
                plain = self._channel(space, name, value, same, before)
                if plain is _APPENDED:
                    apart.append(name)
                    continue
                if type(plain) is Typed and plain.name == LISTED:
                    short[name] = plain
                    continue
                exact = thread.core.codec.plain(plain)
                data = thread.core.codec.encode(exact)
                begins = type(plain) is list and plain and plain[0] is BEGIN
                if len(data) <= INLINE and not begins:
                    short[name] = plain
                    self._exact &= exact is plain
                    continue
                apart.append(name)
                digest = hashlib.sha256(data).digest()
                kept.setdefault(name, digest)
                if name not in was or same != digest:
                    self.note("set", space.channel(name), plain)
        except InvalidValueError as error:
            raise error.placed(f"thread {thread.id!r}", name) from None
        for name in was.difference(apart):
            self.note("delete", space.channel(name))
        return short, apart

    def _channel(
        self, space: Space, name: str, value: Any, same: Any, before: Loaded | None
    ) -> Any:
        """The plain form of a channel's value; `same` is what is known of the one before.

        `_APPENDED` if it has a key of its own and only what is new was added there.
        """
        thread, place = self.thread, self.thread.parts.place
        kept = same.grown(value) if type(same) is Kept and type(value) is list else None
        if kept is not None:
            places = [place(new, plain=True) for new in value[same.count :]]
            if kept.places is None:
                if places:
                    self.note("append", space.channel(name), places)
                self.kept[space.ns][name] = kept
                return _APPENDED
            places = [*kept.places, *places]
        elif not thread.lists_messages(value):
            return thread.types.plain(value, thread.parts.ref)
        else:
            if before is not None:
                thread.learn(space, name, before.record, self.reader)
            kept, places = Kept.of(value), [*map(place, value)]
        short = len(places) <= MESSAGES
        if kept is not None:
            kept.places = places if short else None
            self.kept[space.ns][name] = kept
        return Typed(LISTED, 1, places) if short else [BEGIN, *places]
