"""What `put`, `put_writes` and the deletions write: one change each."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from typing import Any
from urllib.parse import unquote

from langgraph.checkpoint.base import WRITES_IDX_MAP

from holdfast.errors import Conflict
from holdfast.integrations.langgraph.messages import Kept, simple
from holdfast.integrations.langgraph.records import (
    INLINE,
    LOT,
    NAMES,
    PARTS,
    Record,
    Space,
    Writes,
    long_id,
    short_entries,
)
from holdfast.integrations.langgraph.thread import Loaded, Past, Thread, messages
from holdfast.store.cause import cause_now
from holdfast.store.change import Written
from holdfast.store.gates import Operation
from holdfast.store.writing import build_change

TRIES = 20
_FIELDS = frozenset(
    ("v", "id", "ts", "channel_values", "channel_versions", "versions_seen", "updated_channels")
)

Check = Callable[[Record | None], None]
"""Refuses a put that does not rest on the newest checkpoint."""


class Draft:
    """A change of one thread while it is put together."""

    def __init__(self, thread: Thread) -> None:
        self.thread = thread
        self.operations: list[Operation] = []
        self.expects: dict[str, int] = {}
        self.kept: dict[str, Any] = {}
        self._start_parts()

    def _start_parts(self) -> None:
        reader = self.thread.reader
        self._versions = {PARTS: reader.version(PARTS), NAMES: reader.version(NAMES)}
        self.thread.parts.begin(reader.length(PARTS))
        self.thread.names.begin(reader.get(NAMES, [], None, True))

    def note(self, kind: str, key: str, value: Any = None) -> None:
        """Add an operation."""
        self.operations.append(Operation(kind, key, value))

    def commit(self, correlation: str | None = None) -> list[Written]:
        """Write it; `Conflict` if somebody was faster."""
        thread = self.thread
        for key, new in ((PARTS, thread.parts.new), (NAMES, thread.names.new)):
            if new:
                # Numbers were given out: nobody else may have done so meanwhile.
                self.operations.insert(0, Operation("append", key, [*new]))
                self.expects[key] = self._versions[key]
        if not self.operations:
            return []
        line = thread.reader.now()
        life = line.ledger.number if line is not None else None
        target = (thread.scope, "main", self.operations, self.expects, None, life)
        change = build_change(
            thread.core, [target], cause=cause_now(correlation=correlation or None)
        )
        written = thread.core.run(change)
        thread.parts.stored()
        return written

    # channels

    def channels(
        self, space: Space, given: dict[str, Any], before: Loaded | None
    ) -> tuple[dict[str, Any], list[str]]:
        """Write what differs; returns short values in plain form, and who has a key of its own."""
        thread = self.thread
        known: dict[str, Any] = {}
        if before is not None:
            if thread.kept.get(space.ns, (0, {}))[0] != before.entry and before.record.apart:
                thread.values(space, before)  # reads and keeps what is stored
            version, known = thread.kept.get(space.ns, (0, {}))
            known = known if version == before.entry else {}
        was = set(before.record.apart) if before is not None else set()
        short: dict[str, Any] = {}
        apart: list[str] = []
        for name, value in given.items():
            if self._grown(space, name, value, known.get(name) if name in was else None):
                apart.append(name)
                continue
            if name in was and messages(value):
                thread.learn(space, name)
            plain = thread.types.plain(value, thread.parts.ref)
            data = thread.core.codec.encode(thread.core.codec.plain(plain))
            if len(data) <= INLINE:
                short[name] = plain
                continue
            apart.append(name)
            self._set(space, name, value, plain, data, known.get(name) if name in was else None)
        for name in was.difference(apart):
            self.note("delete", space.channel(name))
        return short, apart

    def _grown(self, space: Space, name: str, value: Any, known: Any) -> bool:
        """Whether a list of messages is the known one, or that one with more at its end."""
        if type(known) is not Kept or type(value) is not list:
            return False
        grown = known.grown(value)
        if grown is None:
            return False
        now, count = grown
        refs = [self.thread.parts.ref(message) for message in value[count:]]
        if refs:
            self.note("append", space.channel(name), refs)
            now.simple = known.simple and all(
                simple(self.thread.types.plain(message).value) for message in value[count:]
            )
        self.kept[name] = now
        return True

    def _set(
        self, space: Space, name: str, value: Any, plain: Any, data: bytes, known: Any
    ) -> None:
        digest = hashlib.sha256(data).digest()
        if known != digest:
            self.note("set", space.channel(name), plain)
        kept = None
        if messages(value):
            fields = [self.thread.types.plain(message).value for message in value]
            kept = Kept.of(value, all(map(simple, fields)))
        self.kept[name] = kept or digest


def put(
    thread: Thread,
    space: Space,
    checkpoint: dict[str, Any],
    metadata: dict[str, Any],
    parent: str | None,
    check: Check,
) -> None:
    """Make a checkpoint the newest of its namespace."""

    def draft() -> tuple[Draft, Callable[[list[Written]], None]]:
        before = thread.newest(space)
        check(before.record if before else None)
        made = Draft(thread)
        short, apart = made.channels(space, checkpoint.get("channel_values", {}), before)
        plain = thread.types.plain
        more = {name: value for name, value in checkpoint.items() if name not in _FIELDS}
        since, count = _own_writes(thread, space, checkpoint["id"], before)
        record = Record(
            checkpoint["id"],
            parent,
            checkpoint.get("v", 1),
            checkpoint.get("ts", ""),
            plain(checkpoint.get("channel_versions", {})),
            plain(checkpoint.get("versions_seen", {})),
            plain(checkpoint.get("updated_channels", False)),
            plain(metadata),
            short,
            apart,
            since,
            count,
            more=plain(more) if more else None,
        )
        made.expects[space.writes] = thread.reader.version(space.writes)
        _head(made, space, record, before)

        def done(written: list[Written]) -> None:
            thread.kept[space.ns] = (written[0].sequence, made.kept)

        return made, done

    _attempt(thread, draft, metadata.get("run_id"))


def _own_writes(thread: Thread, space: Space, id: str, before: Loaded | None) -> tuple[int, int]:
    """(where the writes on top of a new checkpoint begin, how many writes there are).

    Tasks may be faster than the checkpoint that they run on: their writes come before it.
    """
    since = before.record.since if before else 0
    known = thread.reader.slice(space.writes, since, None, True)
    count = since + len(known)
    early = (n for n, call in enumerate(known, since) if str(long_id(call[0])) >= id)
    return next(early, count), count


def _head(made: Draft, space: Space, record: Record, before: Loaded | None) -> None:
    """Write the record; the one before it goes into the log."""
    thread = made.thread
    made.expects[space.head] = before.entry if before else 0
    if before is not None:
        recent = before.record.recent
        if before.record.id != record.id:
            recent = (*recent, before.entry)
        twin = Past(thread, space).get(record.id) if before.record.id > record.id else None
        if twin is not None:  # put again: the newer one counts
            _log(made, space, [entry for entry in thread.log(space) if entry != twin.entry])
            recent = ()
        elif len(recent) >= LOT:
            made.note("append", space.log, [short_entries(recent)])
            recent = ()
        record = record._replace(recent=recent)
    made.note("set", space.head, record.pack(thread.names))


def _log(made: Draft, space: Space, entries: list[int]) -> None:
    lots = [short_entries(entries[n : n + LOT]) for n in range(0, len(entries), LOT)]
    made.note("set", space.log, lots)


def put_writes(
    thread: Thread,
    space: Space,
    checkpoint: str,
    writes: Iterable[tuple[str, Any]],
    task: str,
    path: str,
) -> None:
    """Note what a task wrote on top of a checkpoint, which may be put only later."""
    writes = list(writes)

    def draft() -> tuple[Draft, Callable[[list[Written]], None]]:
        before = thread.newest(space)
        made = Draft(thread)
        items = [
            (
                WRITES_IDX_MAP.get(channel, index),
                channel,
                thread.types.plain(value, thread.parts.ref),
            )
            for index, (channel, value) in enumerate(writes)
        ]
        call = Writes(checkpoint, task, path, items)
        newest = before is None or checkpoint >= before.record.id
        made.note(
            "append", space.writes if newest else space.late(checkpoint), [call.pack(thread.names)]
        )
        made.expects[space.head] = before.entry if before else 0
        return made, lambda _: None

    if writes:
        _attempt(thread, draft, None)


def _attempt(
    thread: Thread,
    draft: Callable[[], tuple[Draft, Callable[[list[Written]], None]]],
    correlation: Any,
) -> None:
    """Commit a draft; made anew when another process was faster."""
    with thread.lock:
        for attempt in range(1, TRIES + 1):
            made, done = draft()
            try:
                written = made.commit(correlation if type(correlation) is str else None)
            except Conflict:
                if attempt == TRIES:
                    raise
                continue
            if written:
                done(written)
            return


# removing


def remove(thread: Thread, space: Space, gone: set[str]) -> None:
    """Take checkpoints out of a namespace; the newest that stays becomes its head."""

    def draft() -> tuple[Draft, Callable[[list[Written]], None]]:
        made = Draft(thread)
        past = Past(thread, space)
        stay = [loaded for loaded in past if loaded.record.id not in gone]
        if len(stay) == len(past):
            return made, lambda _: None
        stay.reverse()
        for key in thread.reader.keys(space.late("")):
            if unquote(key.rpartition("/")[2]) in gone:
                made.note("delete", key)
        before = past.at(-1)
        made.expects[space.head] = before.entry
        if not stay:
            _clear(made, space, before)
        else:
            _shorten(made, space, stay, before)
        return made, lambda _: thread.forget(space)

    _attempt(thread, draft, None)


def _clear(made: Draft, space: Space, before: Loaded) -> None:
    for key in (space.head, space.log, space.writes, *map(space.channel, before.record.apart)):
        if made.thread.reader.exists(key):
            made.note("delete", key)


def _shorten(made: Draft, space: Space, stay: list[Loaded], before: Loaded) -> None:
    newest = stay[-1]
    thread = made.thread
    if newest.entry != before.entry:
        values = thread.plain_values(space, newest.record, thread.at(newest.entry))
        for name in set(before.record.apart).difference(newest.record.apart):
            made.note("delete", space.channel(name))
        for name in newest.record.apart:
            made.note("set", space.channel(name), values[name])
    # What was written on top of it is told from all that came since by its id.
    made.note("set", space.head, newest.record._replace(recent=()).pack(thread.names))
    _log(made, space, [loaded.entry for loaded in stay[:-1]])


def superseded(thread: Thread, space: Space) -> set[str]:
    """Checkpoints that the newest one of a namespace does not need.

    A delta channel whose value is not in the newest needs those before it, back to one that has
    the value.
    """
    past = Past(thread, space)
    if not past:
        return set()
    loaded: Loaded | None = past.at(-1)
    assert loaded is not None
    counters = loaded.record.metadata.get("counters_since_delta_snapshot")
    wanted = set(counters) if isinstance(counters, dict) else set()
    keep = {loaded.record.id}
    while loaded is not None and (wanted := wanted - {*loaded.record.values, *loaded.record.apart}):
        parent = loaded.record.parent
        loaded = past.get(parent) if parent else None
        if loaded is not None:
            keep.add(loaded.record.id)
    return {loaded.record.id for loaded in past} - keep
