# Written by scripts/stubs.py from the blocking classes; not to be edited.

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any, Self

from holdfast.agents.mailbox import Letter
from holdfast.agents.retry import RetryPolicy
from holdfast.hooks.breaker import Breaker
from holdfast.runtime.bus import Bus as Bus
from holdfast.runtime.bus import Message as Message
from holdfast.runtime.cached import Cached as Cached
from holdfast.runtime.cached import Composition as Composition
from holdfast.runtime.cached import Compositions as Compositions
from holdfast.runtime.cached import Conversation as Conversation
from holdfast.runtime.cached import Conversations as Conversations
from holdfast.runtime.entities import Entity as Entity
from holdfast.runtime.entities import Graph as Graph
from holdfast.runtime.entities import Relationship as Relationship
from holdfast.runtime.events import Event as Event
from holdfast.runtime.events import EventChain as EventChain
from holdfast.runtime.events import EventStats as EventStats
from holdfast.runtime.life_cycle import Runtime as Runtime
from holdfast.runtime.life_cycle import handles as handles
from holdfast.runtime.requests import Request as Request
from holdfast.store.names.items import Page
from holdfast.store.names.patterns import Patterns
from holdfast.store.state_async import State, View
from holdfast.store.store_async import Store

class Entities:
    """The entities of one state, or of a view of its past, which can only be read.

    They are part of the state: a checkpoint, a fork, a restore and an erasure take them along.
    Entities are given by their ids, or as what `create` and `get` returned. Ids are text of 1 to
    200 characters without a slash, a backslash and two dots in a row.
    """
    def __init__(self, state: View) -> None: ...
    async def create(
        self, type: str, properties: Mapping[str, Any] | None = None, *, id: str | None = None
    ) -> Entity:
        """Make an entity; its id is `TYPE_` and eight hexadecimal digits unless you give one.

        Refused with `EntityExistsError` if there is one of that id, which stays as it is. A
        property of None is left out.
        """
    async def bulk_create(self, entities: Iterable[Mapping[str, Any]]) -> list[Entity]:
        """Make several in one change, all or none: mappings with `type`, `properties` and `id`."""
    async def update(self, id: str | Entity, properties: Mapping[str, Any]) -> Entity:
        """Set some properties, and leave the others; one that is set to None is deleted."""
    async def delete(self, id: str | Entity, *, restrict: bool = False) -> bool:
        """Delete an entity with its properties and relationships; whether it was there.

        With `restrict` it is refused with `StillNeededError` while a relationship leads to it.
        """
    async def get(self, id: str | Entity, *, include: Iterable[str] = ()) -> Entity:
        """An entity; `include=["relationships"]` brings those, too."""
    async def exists(self, id: str | Entity) -> bool:
        """Whether there is an entity of an id."""
    async def index(self, name: str) -> None:
        """Let entities be found by ranges of a property, and sorted by it, without reading them.

        It is a declaration of the scope: say it once. Names with `.`, `[` or `]` cannot be indexed.
        """
    async def query(
        self,
        type: str | None = None,
        *,
        where: Mapping[str, Any] | None = None,
        order: str | None = None,
        limit: int | None = 100,
        after: str | None = None,
        include: Iterable[str] = (),
    ) -> Page:
        """Entities of a type with such properties, a page of them, sorted by id or by a property.

        A property is asked for by its value, a `Range`, what it `Begins` with, or None: that there
        is none. 1, 1.0, "1" and True are four values. `order` is a property, with `-` in front for
        the other direction; entities without it are left out. Equality needs no preparation.
        Ranges and order read the entities, 10,000 at most, unless the property has an `index`.
        """
    async def count(
        self,
        type: str | None = None,
        *,
        where: Mapping[str, Any] | None = None,
        group_by: str | None = None,
        target: str = "entities",
    ) -> int | dict[Any, int]:
        """How many entities, or relationships, there are: in all, or by `type` or a property."""
    async def relate(
        self,
        from_id: str | Entity,
        type: str,
        to_id: str | Entity,
        metadata: Mapping[str, Any] | None = None,
    ) -> Relationship:
        """Make a relationship between two entities, which must be there, also when it is durable.

        The same once more is one: its metadata are replaced.
        """
    async def unrelate(self, from_id: str | Entity, type: str, to_id: str | Entity) -> bool:
        """Delete a relationship; whether it was there."""
    async def relationships(
        self,
        *,
        from_id: str | Entity | None = None,
        to_id: str | Entity | None = None,
        type: str | None = None,
        limit: int | None = None,
    ) -> list[Relationship]:
        """Relationships: from an entity, to one, of a type, in the order of their ends."""
    async def traverse(
        self,
        start: str | Entity,
        *,
        direction: str = "outgoing",
        types: Iterable[str] | None = None,
        depth: int = 1,
        include_entities: bool = False,
    ) -> Graph:
        """What can be reached from an entity by relationships, up to five steps away."""

class EventSubscription:
    """Events as they come; what `Events.subscribe` gives."""
    def __init__(self, log: Events, patterns: Patterns, timeout: float | None) -> None: ...
    missed: int
    def close(self) -> None:
        """End it; who waits for an event has none."""
    def __aiter__(self) -> EventSubscription: ...
    async def __anext__(self) -> Event: ...
    async def __aenter__(self) -> Self: ...
    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...

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
        ring: int = ...,
        queue: int = ...,
        batch: int = ...,
        flush: float = ...,
        keep: float | timedelta | None = ...,
        strip: bool = True,
        recover: bool = False,
    ) -> None: ...
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
    async def write(
        self,
        name: str,
        data: Mapping[str, Any] | None = None,
        *,
        client: str = "",
        correlation: str = "",
    ) -> Event:
        """The same; if the queue is full, it waits until there is room, and drops nothing."""
    async def flush(self) -> None:
        """Write all that waits. What fails stays, to be tried again."""
    async def stop(self, *, timeout: float | None = None) -> None:
        """Write what waits, and end the thread that writes; `emit` begins anew. What takes longer
        than `timeout` seconds is left to that thread, while the process lasts.
        """
    async def clear(self) -> int:
        """Remove all events, from the ring and from the store; how many the store had."""
    async def query(
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
    async def session_events(self, session: str, *, limit: int | None = 100) -> list[Event]:
        """The events of a session that are stored, oldest first."""
    async def chain(self, correlation: str) -> EventChain:
        """The events of a correlation that are stored, with their types and how long they took."""
    def stats(self) -> EventStats:
        """What this log has seen since it was made."""
    def subscribe(
        self, patterns: str | Iterable[str] = "*", *, timeout: float | None = None
    ) -> EventSubscription:
        """The events of this process from now on, as you take them: `for event in …`.

        A slow reader keeps nobody up: it falls behind, and what has left the ring meanwhile is
        counted in `missed`. It ends with its block, or when none came for `timeout` seconds.
        """

class Observations:
    """The observations of one log, kept as entities.

    `deliver(observer, events)` is called with what each observer is to be told, in batches of 10 or
    after 100 ms, from a queue of 1,000; what does not fit is counted in `dropped`. After five
    failures within five minutes nothing is delivered for a minute. It ends with the store, or with
    `stop`.
    """
    def __init__(
        self,
        entities: Entities,
        log: Events,
        *,
        deliver: Callable[[str, list[Event]], Any] | None = None,
    ) -> None: ...
    breaker: Breaker
    @property
    def dropped(self) -> int:
        """Events that were observed and not delivered: the queue was full, or the breaker open."""
    async def start(self) -> int:
        """Bring back the subscriptions that are kept, and observe; how many there are."""
    async def stop(self, *, timeout: float | None = None) -> None:
        """Observe no more, and deliver what waits; subscriptions stay as they are.

        A `deliver` that has no end within `timeout` seconds is left at its work.
        """
    async def subscribe(
        self,
        observer: str | Entity,
        target: str | Entity,
        events: str | Iterable[str] = "*",
        *,
        filter: Mapping[str, Any] | None = None,
    ) -> str:
        """Let an agent observe another; returns the id. Both must be entities.

        `filter` has `exclude` (patterns of names), `content_match` (`field`, and `value` with an
        `operator` equals, contains, gt or lt, or a `pattern`), `sampling_rate` (0 to 1) and
        `rate_limit` (`max_events` 10 in `window_seconds` 1.0).
        """
    async def unsubscribe(self, id: str) -> bool:
        """End a subscription; whether it was there."""
    async def ended(self, agent: str | Entity) -> int:
        """End all subscriptions of an agent that is no more; how many. Those that observed it are
        told by `observation:target_terminated`. The event `agent:terminated` does the same.
        """
    def observing(
        self, target: str, name: str, data: Mapping[str, Any] | None = None
    ) -> AbstractAsyncContextManager[None]:
        """A block around what an agent does: observers are told when it begins and when it ends."""
    async def query(
        self,
        *,
        observer: str | None = None,
        target: str | None = None,
        events: str | Iterable[str] = "*",
        limit: int = 100,
    ) -> list[Event]:
        """Observations that were told (`observe:begin`), the newest first; 1,000 at most."""
    async def replay(
        self,
        *,
        observer: str | None = None,
        target: str | None = None,
        speed: float = 1.0,
        target_agent: str | None = None,
        as_new_events: bool = False,
        limit: int = 100,
    ) -> list[Event]:
        """Give what was observed once more, oldest first, with its pauses divided by `speed`.

        `speed=0` leaves them out. With `as_new_events` each is emitted as an event of its own name,
        of `target_agent` if one is given; what was stripped of an event is not made up, and such an
        event is never emitted as if it were whole.
        """
    async def analyze(
        self, what: str = "frequency", *, observer: str | None = None, target: str | None = None
    ) -> dict[str, Any]:
        """What the newest 1,000 observations say: `frequency`, `errors` or `performance`."""
    async def list(
        self, *, observer: str | None = None, target: str | None = None
    ) -> list[dict[str, Any]]:
        """Subscriptions, and how much each has observed in this process."""

class Queue:
    """A named queue of one state. Any number of threads and processes may push and pop.

    An item is lost by nothing but its end: after `ttl` seconds (an hour unless you say otherwise;
    None: never) it is passed over. Who pops an item and crashes has it no more: use `Requests`, or
    a `Mailbox`, where work must not get lost. It is state: a restore brings back what was in it.
    """
    def __init__(self, state: State, name: str) -> None: ...
    name: str
    def named(self, name: str) -> Queue:
        """Another queue of the same state; it is there with the first item."""
    async def push(self, *items: Any, ttl: float | timedelta | None = ...) -> int:
        """Put items at the end, in one change; returns how many there are, expired ones included.

        `ttl` is seconds, or a timedelta; None: for ever.
        """
    async def pop(self, count: int = 1) -> list[Any]:
        """Take items from the front, the oldest first, fewer if there are no more."""
    async def peek(self, count: int = 1) -> list[Any]:
        """The items at the front, which stay there: another may have them when you pop."""
    async def items(self) -> list[Any]:
        """All items that have not expired, the oldest first."""
    async def delete(self) -> int:
        """Remove all items; tells how many there were, expired ones included."""
    async def expire(self, ttl: float | timedelta) -> None:
        """Let all that is there, and what is pushed until then, end after some time."""

class Requests:
    """Requests of sessions, answered by a worker: a function of a `Request`, plain or async.

    What it returns is the answer. What it raises is tried again as `retry` says, and so is a
    conflict of what it wrote by `change`; then the request is set aside and its answer is
    `RequestFailedError`. An attempt that takes longer than `timeout` seconds has failed; a plain
    function cannot be stopped and goes on, its answer counts no more. While 200 go on so, requests
    wait. Sessions are worked at side by side, `concurrency` at a time. Answers are kept for `keep`
    seconds. Queues appear with their first request and cost nothing while they are empty.

    With `memory=True` what waits, and what is at work, is kept by `collect` and comes back by
    `restore`: give it to `Runtime`, or to `ShutdownCheckpoints` whose block ends after `stop`. A
    killed process loses it. There is no `request.change` then.
    """
    def __init__(
        self,
        store: Store,
        worker: Callable[[Request], Any],
        *,
        retry: RetryPolicy | None = None,
        concurrency: int = 8,
        timeout: float = 300.0,
        keep: float | timedelta = ...,
        memory: bool = False,
    ) -> None: ...
    async def start(self) -> None:
        """Begin to work at what waits, until `stop` or the end of the store."""
    async def stop(self, *, timeout: float | None = None) -> None:
        """Take up no more; what is at work has its end, up to its time limit.

        What has not ended after `timeout` seconds is interrupted, and tried again after the next
        start.
        """
    async def submit(self, session: str, content: Any, *, id: str | None = None) -> str:
        """Put a request behind those of its session; durable when this returns. Gives its ticket,
        `SESSION/ID`.

        Under an `id` it is one request, however often it is submitted.
        """
    async def result(self, ticket: str, *, timeout: float | None = None) -> Any:
        """The answer of a request, which is waited for; `TimeoutError` after `timeout` seconds.

        `RequestFailedError` if it has failed for good.
        """
    def active(self) -> dict[str, Request]:
        """Requests that are at work in this process, by their tickets."""
    async def waiting(self, session: str) -> list[Letter]:
        """Requests of a session that are not answered yet, also the one at work, which is first."""
    async def sessions(self) -> list[str]:
        """Sessions that have requests which are not answered."""
    def collect(self) -> Any:
        """What waits and what is, or was interrupted, at work: for `ShutdownCheckpoints`."""
    def restore(self, kept: Any) -> None:
        """Take up again what was kept; what was at work counts as failed, with `daemon_restart`."""
