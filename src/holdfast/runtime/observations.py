"""Observations: agents that are told of what other agents do.

observations = Observations(entities, log)
observations.subscribe("critic", "writer", "message:*", filter={"sampling_rate": 0.5})

A subscription is an entity of the type `observation_subscription`, with relationships to both
agents, so that it is there after a restart; rate limiters are made anew. Whatever passes through
the log, or is done inside `observing`, is compared with the subscriptions. What fits is told by two
events, `observe:begin` and `observe:end`, under one id.
"""

from __future__ import annotations

import operator
import random
import secrets
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from itertools import islice, product
from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, ValidationError, convert, field

from holdfast.errors import HoldfastError, InvalidInputError
from holdfast.hooks.breaker import Breaker, BreakerSettings
from holdfast.runtime.entities import Entities, Entity, alike, check_id, is_subscription
from holdfast.runtime.events import Event, Events
from holdfast.runtime.runtime_records import SUBSCRIPTION
from holdfast.store.names.arguments import (
    by_name,
    check_count,
    check_plain_function,
    check_seconds,
    ran,
)
from holdfast.store.names.background import Behind
from holdfast.store.names.face import calls, ends, faced, writes
from holdfast.store.names.patterns import Expression, Patterns
from holdfast.store.names.threads import is_interrupt

THREAD = "holdfast-observations"
MOST_QUERIED = 1000
QUEUE, BATCH, INTERVAL = 1000, 10, 0.1
BREAKER = BreakerSettings(failures=5, window=300.0, open=60.0)
OPERATORS: Mapping[str, Callable[[Any, Any], Any]] = {
    "equals": alike,
    "contains": lambda value, found: value in found,
    "gt": operator.lt,
    "lt": operator.gt,
}
"""What compares the value of a filter with what is found."""
OWN = ("observe:", "observation:")
"""Events that tell of observations are not observed: each would make two more."""


class RateLimiter(Struct, forbid_unknown_fields=True, dict=True):
    """At most `max_events` in any `window_seconds`. One agent's flood is no other's."""

    max_events: Annotated[int, Meta(ge=1)] = 10
    window_seconds: Annotated[float, Meta(gt=0)] = 1.0

    def __post_init__(self) -> None:
        self._passed: deque[float] = deque(maxlen=self.max_events)

    def allow(self, now: float) -> bool:
        """Whether one more may pass at a time; then it has passed."""
        if len(self._passed) == self.max_events and now - self._passed[0] < self.window_seconds:
            return False
        self._passed.append(now)
        return True


class ContentMatch(Struct, forbid_unknown_fields=True, dict=True):
    """What the data of an event must have: a value, compared by an operator, or a pattern."""

    field: Annotated[str, Meta(min_length=1, max_length=200)]
    value: Any = UNSET
    pattern: str | None = None
    operator: Literal["equals", "contains", "gt", "lt"] = "equals"

    def __post_init__(self) -> None:
        if self.pattern is None and self.value is UNSET:
            raise ValueError("content_match has a pattern, or a value")
        compared = partial(OPERATORS[self.operator], self.value)
        self._compared = compared if self.pattern is None else Expression(self.pattern).found

    def fits(self, data: Any) -> bool:
        """Whether the data of an event fit."""
        for name in self.field.split("."):
            data = data.get(name) if isinstance(data, Mapping) else None
        try:
            return bool(self._compared(data))
        except TypeError:  # values of two kinds that cannot be compared do not fit
            return False


class Filter(Struct, forbid_unknown_fields=True):
    """What is left out of the events of a subscription, in the order in which it is asked."""

    exclude: list[str] = []
    content_match: ContentMatch | None = None
    sampling_rate: Annotated[float, Meta(ge=0, le=1)] = 1.0
    rate_limit: RateLimiter = field(default_factory=RateLimiter)


class ObserverInfo:
    """A subscription at work: its filter is plain data, refused if nobody understands it."""

    def __init__(self, id: str, told: Mapping[str, Any]) -> None:
        # What its entity says: others may have given that more properties, or taken some.
        try:
            self._asked = convert(told.get("filter", {}), Filter)
        except ValidationError as error:
            raise InvalidInputError(f"nobody understands this filter: {error}") from None
        self.id, self.events = id, told.get("events", "*")
        self.observer, self.target = told.get("observer", ""), told.get("target", "")
        self.observed = self.limited = 0
        self._named = Patterns(self.events).fit
        self._excluded = Patterns(self._asked.exclude).fit if self._asked.exclude else None

    def wants(self, name: str, data: Mapping[str, Any], now: float) -> bool:
        """Whether an event is observed: excluded, content, sample and limit, in that order."""
        asked, match = self._asked, self._asked.content_match
        if not self._named(name) or (self._excluded is not None and self._excluded(name)):
            return False
        if match is not None and not match.fits(data):
            return False
        if asked.sampling_rate < 1 and random.random() >= asked.sampling_rate:
            return False
        if not asked.rate_limit.allow(now):
            self.limited += 1
            return False
        self.observed += 1
        return True


@faced
class Observations:
    """The observations of one log, kept as entities.

    `deliver(observer, events)` is called with what each observer is to be told, in batches of 10 or
    after 100 ms, from a queue of 1,000; what does not fit is counted in `dropped`. After five
    failures within five minutes nothing is delivered for a minute. It ends with the store, or with
    `stop`.
    """

    @calls("deliver")
    def __init__(
        self,
        entities: Entities,
        log: Events,
        *,
        deliver: Callable[[str, list[Event]], Any] | None = None,
    ) -> None:
        if not isinstance(entities, Entities) or not isinstance(log, Events):
            raise InvalidInputError("Observations takes Entities and Events of the same face")
        if deliver is not None:
            check_plain_function(deliver, "deliver")
        self.breaker: Breaker = Breaker(BREAKER)
        self._entities = entities
        self._log = log
        self._deliver = deliver
        self._by_target: dict[str, dict[str, ObserverInfo]] = {}
        self._lock = threading.Lock()  # of who observes whom, and of what limiters count
        self._later: deque[Callable[[], Any]] = deque()
        """Commits, and looks that take long: whoever emits an event does not wait for them."""
        self._behind: Behind[tuple[str, Event]] = Behind(
            log._core, THREAD, INTERVAL, self._delivered, batch=BATCH, most=QUEUE, turn=self._turn
        )

    @property
    def dropped(self) -> int:
        """Events that were observed and not delivered: the queue was full, or the breaker open."""
        return self._behind.dropped

    @calls()
    @writes
    def start(self) -> int:
        """Bring back the subscriptions that are kept, and observe; how many there are."""
        kept = self._entities.query(SUBSCRIPTION, limit=None).items
        for entity in kept:
            self._add(ObserverInfo(entity.id, entity.properties))
        self._watch(self._passed)
        self._behind.start()
        self._log.emit("observation:restored", {"count": len(kept)})
        self._log.emit("observation:ready", {"subscriptions": len(kept)})
        return len(kept)

    @ends
    def stop(self, *, timeout: float | None = None) -> None:
        """Observe no more, and deliver what waits; subscriptions stay as they are.

        A `deliver` that has no end within `timeout` seconds is left at its work.
        """
        check_seconds(timeout, "timeout")
        self._watch()
        self._behind.stop(timeout)

    def _watch(self, *mine: Callable[[Event], None]) -> None:
        others = [one for one in self._log._watching if one != self._passed]
        self._log._watching = (*others, *mine)

    # subscriptions

    @writes
    def subscribe(
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
        roles = {"observer": check_id(observer), "target": check_id(target)}
        told: dict[str, Any] = {**roles, "events": list(Patterns(events).texts)}
        told["filter"] = by_name(filter, "filter")
        info = ObserverInfo(f"sub_{secrets.token_hex(6)}", told)
        self._entities._made(SUBSCRIPTION, info.id, told, roles)
        self._add(info)
        return info.id

    @writes
    def unsubscribe(self, id: str) -> bool:
        """End a subscription; whether it was there."""
        self._forget(id)
        return is_subscription(self._entities, check_id(id)) and self._entities.delete(id)

    @writes
    def ended(self, agent: str | Entity) -> int:
        """End all subscriptions of an agent that is no more; how many. Those that observed it are
        told by `observation:target_terminated`. The event `agent:terminated` does the same."""
        return sum(map(self.unsubscribe, self._forgotten(check_id(agent))))

    def _forgotten(self, agent: str) -> list[str]:
        """Observe no more for, or of, an agent; the ids of subscriptions that are to be deleted."""
        found = [one for one in self._infos() if agent in (one.observer, one.target)]
        self._forget(*(one.id for one in found))
        for info in found:
            if agent == info.target:
                told = {"observer": info.observer, "target": agent, "subscription": info.id}
                self._log.emit("observation:target_terminated", told)
        return [info.id for info in found]

    def _add(self, info: ObserverInfo) -> None:
        with self._lock:
            self._by_target.setdefault(info.target, {})[info.id] = info

    def _forget(self, *ids: str) -> None:
        with self._lock:
            for known, id in product(self._by_target.values(), ids):
                known.pop(id, None)

    def _infos(self) -> Iterable[ObserverInfo]:
        with self._lock:
            return [one for known in self._by_target.values() for one in known.values()]

    # observing

    def _passed(self, event: Event) -> None:
        """What the log tells of each event, in the thread that emits it."""
        name, ids = event.event_name, ("agent_id", "agent", "source_agent")
        named = (event.data.get(one) for one in ids)
        source = next((one for one in named if isinstance(one, str)), "")
        if not source or name.startswith(OWN):
            return
        for info in self._wanting(source, name, event.data):
            id, gone = secrets.token_hex(6), list(event.stripped)
            self._tell(info, "observe:begin", id, name, event.data, stripped=gone)
            self._tell(info, "observe:end", id, name, event.data, stripped=gone)
        if name == "agent:terminated":
            self._later.extend(partial(self.unsubscribe, id) for id in self._forgotten(source))
            self._behind.wake()

    @contextmanager
    def observing(
        self, target: str, name: str, data: Mapping[str, Any] | None = None
    ) -> Iterator[None]:
        """A block around what an agent does: observers are told when it begins and when it ends."""
        given = dict(data or {})
        known = [(one, secrets.token_hex(6)) for one in self._wanting(target, name, given)]
        for info, id in known:
            self._tell(info, "observe:begin", id, name, given)
        begun, error = time.monotonic(), ""
        try:
            yield
        except BaseException as raised:  # whatever ends it, observers are told that it ended
            error = type(raised).__name__
            raise
        finally:
            took = (time.monotonic() - begun) * 1000
            for info, id in known:
                self._tell(info, "observe:end", id, name, given, duration_ms=took, error=error)

    def _wanting(self, target: str, name: str, data: Mapping[str, Any]) -> list[ObserverInfo]:
        if target not in self._by_target:
            return []
        now = time.monotonic()
        with self._lock:  # limiters count, and several threads emit
            known = self._by_target[target].values()
            some = [one for one in known if one.wants(name, data, now)]
        if self._log._core.storage.limits.embedded:
            return [one for one in some if self._there(one)]
        self._later.extend(partial(self._there, one) for one in some)
        return some

    def _there(self, info: ObserverInfo) -> bool:
        """Whether a subscription is still kept: it goes with its agents, whoever deletes them."""
        try:
            there = self._entities.exists(info.id)
        except HoldfastError:  # nobody knows just now, and who emits an event is not to fail
            return True
        if not there:
            self._forget(info.id)
        return there

    def _tell(
        self, info: ObserverInfo, what: str, id: str, name: str, data: Any, **more: Any
    ) -> None:
        told = {"observation_id": id, "subscription": info.id, "observer": info.observer}
        told |= {"target": info.target, "event": name, "data": data, **more}
        event = self._log.emit(what, told, client=info.observer)
        if self._deliver is not None:
            self._behind.put((info.observer, event))

    def _turn(self) -> None:
        for _ in range(len(self._later)):
            self._later[0]()
            self._later.popleft()
        self._behind.flush()

    def _delivered(self, some: list[tuple[str, Event]]) -> None:
        assert self._deliver is not None
        if not self.breaker.allow():
            self._behind.dropped += len(some)
            return
        for observer in dict.fromkeys(name for name, _ in some):
            events = [event for name, event in some if name == observer]
            try:
                ran(self._deliver(observer, events), "deliver")
            except BaseException as error:  # one that fails keeps no other from being told
                if is_interrupt(error):
                    raise
                self.breaker.failure()
                self._behind.dropped += len(events)
            else:
                self.breaker.success()

    # looking

    def query(
        self,
        *,
        observer: str | None = None,
        target: str | None = None,
        events: str | Iterable[str] = "*",
        limit: int = 100,
    ) -> list[Event]:
        """Observations that were told (`observe:begin`), the newest first; 1,000 at most."""
        check_count(limit, "limit")
        fit, most = Patterns(events).fit, min(limit, MOST_QUERIED)
        few = most if target is None and events == "*" else None  # else which is not known yet
        told = self._log.query("observe:begin", client=observer, limit=few, reverse=True)
        found = (
            one for one in told if target in (None, one.data["target"]) and fit(one.data["event"])
        )
        return list(islice(found, most))

    @writes
    def replay(
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
        check_seconds(speed, "speed")
        some = self.query(observer=observer, target=target, limit=limit)[::-1]
        before = some[0].timestamp if some else 0.0
        for one in some:
            if speed:
                time.sleep(min(60.0, max(0.0, one.timestamp - before) / speed))
            before = one.timestamp
            if as_new_events and not one.stripped and not one.data.get("stripped"):
                data = dict(one.data["data"])
                if target_agent is not None:
                    data["agent_id"] = target_agent
                self._log.emit(one.data["event"], {**data, "replayed": one.event_id})
        return some

    def analyze(
        self, what: str = "frequency", *, observer: str | None = None, target: str | None = None
    ) -> dict[str, Any]:
        """What the newest 1,000 observations say: `frequency`, `errors` or `performance`."""
        if what not in ("frequency", "errors", "performance"):
            raise InvalidInputError("analyze takes frequency, errors or performance")
        begun = self.query(observer=observer, target=target, limit=MOST_QUERIED)
        if what == "frequency":
            counts = Counter(one.data["event"] for one in begun)
            span = begun[0].timestamp - begun[-1].timestamp if len(begun) > 1 else 0.0
            rate = len(begun) / span if span > 0 else float(len(begun))
            return {"total": len(begun), "events": dict(counts), "per_second": rate}
        since = begun[-1].timestamp if begun else None
        ended = self._log.query("observe:end", since=since, limit=None)
        ends = {one.data["observation_id"]: one for one in ended}
        over = [(one, end) for one in begun if (end := ends.get(one.data["observation_id"]))]
        if what == "errors":
            failed = Counter(end.data["error"] for _, end in over if end.data.get("error"))
            total = failed.total()
            return {"total": total, "errors": dict(failed), "rate": total / max(1, len(begun))}
        took: dict[str, list[float]] = {}
        for one, end in over:
            length = end.data.get("duration_ms", (end.timestamp - one.timestamp) * 1000)
            took.setdefault(one.data["event"], []).append(length)
        return {
            name: {"count": len(some), "mean_ms": sum(some) / len(some), "max_ms": max(some)}
            for name, some in took.items()
        }

    def list(
        self, *, observer: str | None = None, target: str | None = None
    ) -> list[dict[str, Any]]:
        """Subscriptions, and how much each has observed in this process."""
        shown = ("id", "observer", "target", "observed", "limited", "events")
        return [
            {name: getattr(one, name) for name in shown}
            for one in self._infos()
            if observer in (None, one.observer) and target in (None, one.target)
            if self._there(one)
        ]
