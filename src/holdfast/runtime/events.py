"""The log of events: a ring in memory for what is new, batches in the store for what is to stay.

log = Events(store)
log.emit("agent:spawn", {"agent": "planner"}, correlation="run-42")
log.query("agent:*", limit=100, reverse=True)

Events tell what the infrastructure does. They lie in a scope of their own, `custom:$events`, that
keeps no past; what agents know lies in theirs. `emit` waits for nothing: events are written behind
it, a batch a key, and what does not fit into the queue is counted.
"""

from __future__ import annotations

import os
import threading
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import chain, count, islice
from math import inf
from typing import Any

from msgspec import Raw, Struct

from holdfast.errors import InvalidInputError
from holdfast.runtime.runtime_records import EVENTS, EventBatch, iso
from holdfast.store.inner import (
    EVENTS_LOGGED,
    Bell,
    Book,
    BookPage,
    Lookup,
    Range,
    check_ttl,
    core_of,
    handle_of,
    keep,
    microseconds,
)
from holdfast.store.names.arguments import (
    by_name,
    check_count,
    check_face,
    check_flag,
    check_limit,
    check_seconds,
    check_text,
)
from holdfast.store.names.background import Behind, Closable
from holdfast.store.names.face import Steps, ends, faced, here, led, wait, writes
from holdfast.store.names.patterns import Patterns
from holdfast.store.state import declare, stands
from holdfast.store.store import Store

SCOPE, THREAD = "$events", "holdfast-events"
RING, QUEUE, BATCH, FLUSH = 10_000, 5_000, 100, 1.0
KEPT = timedelta(days=30)
REACH = 60.0
"""Seconds that the events of a batch lie within, also if it could not be written for long."""
MOST_BATCH = 1000
"""Events of a batch: a value has at most so many terms of a lookup."""
DROPPED = "log:dropped"
"""The event that tells how many events did not fit into the queue."""
LARGE = frozenset(
    {
        *("content", "response", "text", "prompt", "message"),
        *("file_content", "data", "payload", "body", "result"),
    }
)
"""Names of fields whose long texts are left out."""
MOST_TEXT = 1000
"""Characters of a text, or of all that is in a list or mapping, that are kept."""
REFERENCES = ("id", "path", "file", "ref", "url")
"""What names of fields are, or end with behind `_`, that lead to the whole content: always kept."""
DECLARED = (
    keep.Keep(count=0),
    Lookup("time", EVENTS.prefix, {"time": "time"}),
    Lookup("correlation", EVENTS.prefix, {"correlation": "correlations[]"}),
    Lookup("session", EVENTS.prefix, {"session": "sessions[]"}),
)
"""What the scope of events is: it has no past, and batches are found by what is in them."""
FAR = 2.0**40
"""A time, in seconds, behind all others."""
_SECOND = 1_000_000


class Event(Struct, frozen=True):
    """Something that happened."""

    timestamp: float
    """Seconds since 1970; `timestamp_iso` is the same as ISO 8601 text."""
    event_name: str
    data: Mapping[str, Any]
    client_id: str = ""
    correlation_id: str = ""
    event_id: str = ""
    stripped: tuple[str, ...] = ()
    """Names of fields whose content was too long to be kept: what stands there says so only."""

    @property
    def event_type(self) -> str:
        """What stands before the first colon of the name."""
        return self.event_name.partition(":")[0]

    @property
    def session_id(self) -> str:
        """The session that it says it belongs to; empty if it does not."""
        found = self.data.get("session_id", self.data.get("session", ""))
        return found if isinstance(found, str) else ""

    timestamp_iso = iso("timestamp")


@dataclass(frozen=True, slots=True)
class EventStats:
    """What a log has seen since it was made."""

    emitted: int
    written: int
    """Events that are durable."""
    dropped: int
    """Events that did not fit into the queue, and are in the ring alone."""
    queued: int
    ring: int
    kinds: Mapping[str, int]
    """How many of each type are in the ring."""


@dataclass(frozen=True, slots=True)
class EventChain:
    """The events of one correlation, in their order."""

    correlation_id: str
    events: tuple[Event, ...]
    duration_ms: float
    event_types: tuple[str, ...]
    """Each type once, in the order in which they came."""


@faced
class Events:
    """The events of a store: those of this process in a ring, those of all processes behind it.

    The newest `ring` events are in memory. A thread writes what was emitted, in batches of `batch`,
    every `flush` seconds or once a batch is full; a killed process loses what was not written yet.
    At most `queue` events wait for that: `emit` drops what does not fit, counts it and tells it by
    an event `log:dropped`; `write` waits instead. What was written is deleted after `keep`. With
    `strip`, long content is left out, and marked. With `recover`, the events of the last hour are
    loaded into the ring. It ends with the store, or with `stop`, which writes what waits.
    """

    def __init__(
        self,
        store: Store,
        *,
        ring: int = RING,
        queue: int = QUEUE,
        batch: int = BATCH,
        flush: float = FLUSH,
        keep: float | timedelta | None = KEPT,
        strip: bool = True,
        recover: bool = False,
    ) -> None:
        check_face(store, Store, "Events")
        for name, number in (("ring", ring), ("queue", queue), ("batch", batch)):
            check_count(number, name, 1)
        if batch > min(queue, MOST_BATCH):
            raise InvalidInputError(f"batch is at most {MOST_BATCH}, and not more than queue")
        check_seconds(flush, "flush")
        self._strip = check_flag(strip, "strip")
        self._core = core_of(store)
        self._line = handle_of(store.custom(SCOPE))
        self._book = Book(store.custom(SCOPE), EVENTS, EventBatch)
        self._ring = Ring(ring)
        self._keep = check_ttl(keep, "keep") / _SECOND if keep is not None else None
        self._written = self._told = 0
        self._lock = threading.Lock()  # for moments only: who emits never waits for a commit
        self._bell = Bell()
        self._watching: tuple[Callable[[Event], None], ...] = ()
        """Are told of each event, in the thread that emits it."""
        self._mark, self._numbers = os.urandom(8).hex(), count()
        self._next_clean = 0.0
        self._behind: Behind[tuple[Event, Raw]] = Behind(
            self._core, THREAD, flush, self._commit, batch=batch, most=queue, turn=self.flush
        )
        if check_flag(recover, "recover"):
            since = self._core.clock.checked() / _SECOND - 3600
            for event in self.query(since=since, limit=None, durable=True):
                self._ring.add(event)

    # writing

    @here
    def emit(
        self,
        name: str,
        data: Mapping[str, Any] | None = None,
        *,
        client: str = "",
        correlation: str = "",
    ) -> Event:
        """Log an event, at once: it is in the ring, and written behind this.

        The data are values of a store. If the queue is full, the event is dropped there, and
        counted.
        """
        return self._logged(*self._made(name, data, client, correlation))

    @writes
    def write(
        self,
        name: str,
        data: Mapping[str, Any] | None = None,
        *,
        client: str = "",
        correlation: str = "",
    ) -> Event:
        """The same; if the queue is full, it waits until there is room, and drops nothing."""
        return self._logged(*self._made(name, data, client, correlation), wait=True)

    def _logged(self, event: Event, row: Raw, *, wait: bool = False) -> Event:
        while not self._added(event, row, wait):
            self.flush()
        if not self._behind.alive:
            self._behind.start()
        return event

    def _added(self, event: Event, row: Raw, wait: bool) -> bool:
        """Put an event into ring and queue, and tell who listens; False if it is to wait for room
        and there is none."""
        with self._lock:
            if wait and self._behind.full:
                return False
            self._ring.add(event)
            if not self._behind.put((event, row)):
                self._core.meter.add(EVENTS_LOGGED, ("dropped",))
        self._bell.ring()
        for watching in self._watching:
            watching(event)
        return True

    def _made(self, name: str, data: Any, client: str, correlation: str) -> tuple[Event, Raw]:
        """An event, and the bytes of it that will be stored: it is encoded once, and what cannot be
        is refused now, not with its whole batch."""
        check_text(name, "the name of an event", 200, least=1)
        check_text(client, "client", 200)
        check_text(correlation, "correlation", 200)
        kept: Mapping[str, Any] = {}
        stripped: tuple[str, ...] = ()
        codec = self._core.codec
        if data:
            given = by_name(data, "the data of an event")
            kept, stripped = stripped_of(given) if self._strip else (given, ())
            kept = codec.plain(kept)
        now = self._core.clock.claimed() / _SECOND
        id = f"evt_{self._mark}{next(self._numbers):08x}"
        row = codec.encode([now, name, kept, client, correlation, id, stripped])
        # Read back, because what the caller does to his data later is not part of it.
        return _event(codec.decode(row)), Raw(row)

    @writes
    def flush(self) -> None:
        """Write all that waits. What fails stays, to be tried again."""
        self._behind.flush()
        with self._lock:
            lost = self._behind.dropped - self._told
            self._told += lost
        if lost and self._added(*self._made(DROPPED, {"count": lost}, "", ""), True):
            self._behind.flush()
        elif lost:  # others have taken the room: it is told once there is some
            with self._lock:
                self._told -= lost

    def _commit(self, some: list[tuple[Event, Raw]]) -> None:
        """Write a batch; now and then delete what is too old."""
        first = some[0][0]
        while some[-1][0].timestamp >= first.timestamp + REACH:
            some.pop()  # for the next batch
        if not stands(self._line, DECLARED[1]):
            declare(self._line, DECLARED)
        now = self._core.clock.checked() / _SECOND
        if self._keep is not None and now >= self._next_clean:
            self._next_clean = now + 600
            self._delete(now - self._keep)
        record = EventBatch(
            self._core.codec.encode([row for _, row in some]),
            first.timestamp,
            sorted({one.correlation_id for one, _ in some if one.correlation_id}),
            sorted({one.session_id for one, _ in some if one.session_id}),
        )
        # Under the same name a batch that may have been written before is written once.
        name = f"{_name(first.timestamp)}-{first.event_id}"
        self._book.step(lambda page: page.put(name, record), reason="events")
        self._written += len(some)
        self._core.meter.add(EVENTS_LOGGED, ("logged",), count=len(some))

    def _delete(self, before: float) -> None:
        """Delete batches that begin before a time, without reading them."""
        end = EVENTS.prefix + _name(max(0.0, before))

        def note(page: BookPage[EventBatch]) -> int:
            old = [one for one in self._line.reader.keys(EVENTS.prefix, 100) if one < end]
            for key in old:
                page.delete(key.removeprefix(EVENTS.prefix))
            return len(old)

        while self._book.step(note, reason="old events"):
            pass

    @ends
    def stop(self, *, timeout: float | None = None) -> None:
        """Write what waits, and end the thread that writes; `emit` begins anew. What takes longer
        than `timeout` seconds is left to that thread, while the process lasts."""
        check_seconds(timeout, "timeout")
        self._behind.stop(timeout)

    @writes
    def clear(self) -> int:
        """Remove all events, from the ring and from the store; how many the store had."""
        there = len(self.query(limit=None, durable=True))
        with self._lock:
            self._ring.clear()
        self._delete(FAR)
        return there

    # reading

    def query(
        self,
        patterns: str | Iterable[str] = "*",
        *,
        client: str | None = None,
        since: datetime | float | None = None,
        until: datetime | float | None = None,
        limit: int | None = 100,
        reverse: bool = False,
        durable: bool = False,
    ) -> list[Event]:
        """Events whose names fit a pattern (`agent:*`), oldest first, or newest (`reverse`).

        From the ring, and where that does not reach back from the store. The ring has events of
        this process alone; with `durable` all come from the store, those of other processes too.
        """
        check_limit(limit)
        check_flag(reverse, "reverse")
        if str(patterns).upper().startswith("SELECT "):
            raise InvalidInputError("events are asked for by patterns and filters, not by SQL")
        fit = Patterns(patterns).fit
        low, high = _seconds(since, 0.0), _seconds(until, FAR)

        def wanted(event: Event) -> bool:
            known = client in (None, event.client_id) and fit(event.event_name)
            return known and low <= event.timestamp <= high

        mine: list[Event] = []
        if not check_flag(durable, "durable"):
            with self._lock:
                ring = self._ring
                reaches = ring.start < low or (ring.first == 1 and self._line.reader.now() is None)
                # The oldest come from the store: which of the ring's are left out is not known yet.
                most = limit if reverse or reaches else None
                mine = list(islice(filter(wanted, ring.events(fit, reverse=reverse)), most))
                if reaches or (reverse and len(mine) == limit):
                    return mine
                high = min(high, ring.start)
        self.flush()  # what has left the ring may still wait
        known = {one.event_id for one in mine}  # in the ring and in the store, too: told once
        stored = filter(wanted, self._stored(low, high, reverse))
        old = (one for one in stored if one.event_id not in known)
        return list(islice(chain(mine, old) if reverse else chain(old, mine), limit))

    def _stored(self, low: float, high: float, reverse: bool) -> Iterator[Event]:
        """Events in the store that may lie between two times; of those no more than are taken."""
        # A batch is found by its first event: one that begins a little before reaches into it.
        asked, order = {"time": Range(ge=low - REACH, le=high)}, "-time" if reverse else "time"
        after = None
        while True:
            page = self._book.find("time", asked, order=order, limit=10, after=after)
            for _, batch in page.items:
                found = self._events(batch)
                yield from reversed(found) if reverse else found
            if (after := page.after) is None:
                return

    def session_events(self, session: str, *, limit: int | None = 100) -> list[Event]:
        """The events of a session that are stored, oldest first."""
        check_limit(limit)
        return self._found("session", session)[:limit]

    def chain(self, correlation: str) -> EventChain:
        """The events of a correlation that are stored, with their types and how long they took."""
        mine = tuple(self._found("correlation", correlation))
        took = max(0.0, mine[-1].timestamp - mine[0].timestamp) * 1000 if mine else 0.0
        kinds = tuple(dict.fromkeys(one.event_type for one in mine))
        return EventChain(correlation, mine, took, kinds)

    def _found(self, of: str, value: str) -> list[Event]:
        """The events that are stored of a session, or of a correlation."""
        check_text(value, f"the {of}", 200, least=1)
        self.flush()
        page = self._book.find(of, {of: value})
        found = (event for _, batch in page.items for event in self._events(batch))
        mine = [event for event in found if getattr(event, f"{of}_id") == value]
        came: dict[str, float] = {}
        latest: defaultdict[str, float] = defaultdict(float)
        # Those of a process in the order in which they came, by whatever clock.
        for event in sorted(mine, key=lambda one: one.event_id):
            log = event.event_id[:-8]
            came[event.event_id] = latest[log] = max(latest[log], event.timestamp)
        return sorted(mine, key=lambda one: (came[one.event_id], one.event_id))

    def _events(self, batch: EventBatch) -> list[Event]:
        return [_event(row) for row in self._core.codec.decode(batch.events)]

    @here
    def stats(self) -> EventStats:
        """What this log has seen since it was made."""
        with self._lock:
            ring, behind = self._ring, self._behind
            kinds = Counter(one.event_type for one in ring.events(lambda _: True))
            seen = (ring.count, self._written, behind.dropped, len(behind), len(ring))
            return EventStats(*seen, dict(kinds.most_common()))

    @here
    def subscribe(
        self, patterns: str | Iterable[str] = "*", *, timeout: float | None = None
    ) -> EventSubscription:
        """The events of this process from now on, as you take them: `for event in …`.

        A slow reader keeps nobody up: it falls behind, and what has left the ring meanwhile is
        counted in `missed`. It ends with its block, or when none came for `timeout` seconds.
        """
        check_seconds(timeout, "timeout")
        return EventSubscription(self, Patterns(patterns), timeout)


class Ring:
    """The newest events, also by their names: there are few names, and a question is about some.

    Whoever uses it holds the log's lock.
    """

    def __init__(self, most: int) -> None:
        self.count = 0
        """Events that were ever put into it: the newest one has this number."""
        self._most = most
        self._all: dict[int, Event] = {}
        self._named: defaultdict[str, deque[int]] = defaultdict(deque)

    def __len__(self) -> int:
        return len(self._all)

    @property
    def first(self) -> int:
        """The number of the oldest event in it, or of the next, if there is none."""
        return self.count - len(self._all) + 1

    @property
    def start(self) -> float:
        """The time of the oldest event in it."""
        return self._all[self.first].timestamp if self._all else FAR

    def add(self, event: Event) -> None:
        """Put an event in; if it is full, the oldest one goes."""
        self.count += 1
        self._all[self.count] = event
        self._named[event.event_name].append(self.count)
        if len(self._all) > self._most:
            name = self._all.pop(self.count - self._most).event_name
            self._named[name].popleft()
            if not self._named[name]:
                del self._named[name]

    def events(self, fit: Callable[[str], bool], *, reverse: bool = False) -> Iterator[Event]:
        """Those whose names fit, in the order in which they came, or the other way round."""
        some = [named for name, named in self._named.items() if fit(name)]
        numbers = sorted(chain(*some)) if len(some) < len(self._named) else self._all
        return map(self._all.__getitem__, reversed(numbers) if reverse else numbers)

    def after(self, number: int) -> Iterator[Event]:
        """Those behind the event of a number, which is in it or was the last that left it."""
        return map(self._all.__getitem__, range(number + 1, self.count + 1))

    def clear(self) -> None:
        """Forget all of them."""
        self._all.clear()
        self._named.clear()


@faced
class EventSubscription(Closable):
    """Events as they come; what `Events.subscribe` gives."""

    def __init__(self, log: Events, patterns: Patterns, timeout: float | None) -> None:
        self.missed: int = 0
        """How many events left the ring before they were taken, whether they would have fit or
        not."""
        self._log = log
        self._patterns = patterns
        self._timeout = timeout if timeout is not None else inf
        self._at = log._ring.count
        self._over = False

    @here
    def close(self) -> None:
        """End it; who waits for an event has none."""
        self._over = True

    def __iter__(self) -> EventSubscription:
        return self

    def __next__(self) -> Event:
        event = led(self._next())
        if event is None:
            raise StopIteration
        return event

    def _next(self) -> Steps[Event | None]:
        log, ring, end = self._log, self._log._ring, time.monotonic() + self._timeout
        while not self._over:
            with log._lock:
                self.missed += max(0, ring.first - 1 - self._at)
                self._at = max(ring.first - 1, self._at)
                for event in ring.after(self._at):
                    self._at += 1
                    if self._patterns.fit(event.event_name):
                        return event
            pause = min(1.0, end - time.monotonic())
            if pause <= 0:
                break
            yield wait(log._bell, lambda: ring.count > self._at or self._over, pause)
        return None


# ---- stripping ----------------------------------------------------------------------------------


def stripped_of(data: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Data without long content, and the names of what was left out; references stay."""
    kept = dict(data)
    for name, value in data.items():
        kind = type(value)
        if kind is str:
            if len(value) > MOST_TEXT and name in LARGE:
                kept[name] = f"<stripped: {len(value)} chars>"
        elif kind in (list, dict) and not is_reference(name) and len(str(value)) > MOST_TEXT:
            kept[name] = f"<stripped: {kind.__name__} with {len(value)} items>"
    return kept, tuple(name for name, value in data.items() if kept[name] is not value)


def is_reference(name: object) -> bool:
    """Whether a field leads to something: an id, a path."""
    return isinstance(name, str) and name.rpartition("_")[2] in REFERENCES


def _name(seconds: float) -> str:
    """How the names of batches begin whose first event is of a time."""
    return f"{round(seconds * _SECOND):016x}"


def _event(row: list[Any]) -> Event:
    row[6] = tuple(row[6])
    return Event(*row)


def _seconds(time: datetime | float | None, default: float) -> float:
    if isinstance(time, datetime):
        return microseconds(time) / _SECOND
    check_seconds(time, "a time")
    return default if time is None else float(time)
