"""One hook: its function, what it is told of, and how it has fared.

What background hooks gave, and what they failed at, lies in a scope of its own, `custom:$hooks`,
that keeps no past; their places are cells (`Cursor`). So any process, also one that has no hooks
itself, can tell how they fare.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from operator import itemgetter
from time import monotonic, perf_counter
from typing import Any

from holdfast.errors import HookResultError, InvalidInputError, MissingError
from holdfast.hooks.breaker import Breaker, BreakerSettings
from holdfast.hooks.hook_events import (
    BEHIND,
    EVENTS,
    FRONT,
    NAMES,
    RESULTS,
    Cache,
    Changed,
    Continue,
    HookContext,
    Skipped,
    name_of,
)
from holdfast.store.inner import LANES, SWEPT, TOLD, core_of, cursors, handle_of, keep, own_step
from holdfast.store.names.arguments import by_name, check_count, check_seconds
from holdfast.store.names.items import Entry, Position
from holdfast.store.names.patterns import Patterns
from holdfast.store.names.scope import KINDS, Scope
from holdfast.store.names.threads import is_interrupt
from holdfast.store.store import Store

SKIP, REFUSE, ALERT = "skip", "refuse", "alert"
MODES = ("exact", "modified", "simulate", "debug")
"""Of a replay."""
PRIORITIES = ("highest", "high", "normal", "low", "lowest")
Function = Callable[[Changed, HookContext], Any]
SCOPE = "custom:$hooks"
KEPT = 1000
"""Results of a hook that are kept."""
CURSOR = "hook/"
"""How the names of cursors of hooks begin."""
_place = itemgetter("event", "scope", "timeline", "entry", "key")


@dataclass(slots=True)
class HookMetrics:
    """What one hook has done in this process."""

    name: str
    runs: int = 0
    failures: int = 0
    skipped: int = 0
    """Times that it had nothing to do, or was not asked because of `Cache`."""
    seconds: float = 0.0
    mean_seconds: float = 0.0
    """How long a run takes on average."""
    breaker: str = "closed"
    opened: int = 0
    """How often its breaker has opened."""
    passed_over: int = 0
    """Changes that went by unasked while its breaker was open."""
    behind: int = 0
    """Commits that a background hook has yet to be told of."""
    error: str = ""
    """The last failure."""


@dataclass(slots=True)
class HookOutcome:
    """What a hook gave for one event."""

    event: Mapping[str, Any]
    """Its name, scope, timeline, entry and key."""
    value: Any = None
    """The result itself; None for nothing."""
    error: str = ""
    seconds: float = 0.0
    before: str = ""
    """In a replay: what it gave when it happened, if that is kept: of the last 1,000 events of a
    background hook. What a hook in front gave is not kept: what became of it is in the journal."""
    raised: BaseException | None = None

    @property
    def result(self) -> str:
        """The name of the result, or `failed`."""
        return "failed" if self.error else type(self.value or Continue()).__name__

    @property
    def same(self) -> bool:
        """Whether it gave what it gave then, as far as that is known."""
        return self.before in ("", self.result)

    def fail(self, error: BaseException) -> None:
        """It raised something."""
        self.raised, self.error = error, f"{type(error).__name__}: {error}"[:500]


@dataclass(frozen=True, slots=True)
class TimeRange:
    """From a time to another; None stands for no bound."""

    since: datetime | None = None
    until: datetime | None = None

    @classmethod
    def last_hour(cls) -> TimeRange:
        """From an hour ago until now."""
        return cls(datetime.now(UTC) - timedelta(hours=1))


@dataclass(frozen=True, slots=True)
class ReplayReport:
    """What a replay of a hook came to."""

    hook: str
    mode: str
    results: tuple[HookOutcome, ...]

    @property
    def differences(self) -> tuple[HookOutcome, ...]:
        """Events for which the hook gave something else than it did then."""
        return tuple(one for one in self.results if not one.same)

    @property
    def failures(self) -> tuple[HookOutcome, ...]:
        """Events that the hook failed at."""
        return tuple(one for one in self.results if one.error)

    def __str__(self) -> str:
        said = f"{self.hook} ({self.mode}): {len(self.results)} events"
        given = Counter(one.result for one in self.results)
        shown = ", ".join(f"{name} {count}" for name, count in given.items())
        ended = f"{len(self.differences)} differ, {len(self.failures)} failed"
        lines = [f"{said}, {ended}{f' ({shown})' if shown else ''}"]
        for one in (*self.differences, *self.failures):
            place = f"{one.event['scope']} {one.event['timeline']}@{one.event['entry']}"
            what = f"{one.before or 'unknown'} then, {one.result} now"
            lines.append(f"  {place} {one.event['key']}: {one.error or what}")
        return "\n".join(dict.fromkeys(lines))


@dataclass(slots=True, eq=False)
class Hook:
    """One function that is told of events, and what it is told of. Patterns may be texts."""

    keys: Any
    scopes: Any
    on: Any
    """Names of events."""
    name: str = ""
    function: Any = None
    behind: bool = True
    priority: str = "normal"
    settings: BreakerSettings = BreakerSettings.STANDARD
    on_open: str = SKIP
    batch_size: int = 100
    flush_interval: float = 0.05
    max_concurrent: int = 10
    timeout: float = 5.0
    max_queue_size: int = 10_000
    on_behind: str = ALERT
    breaker: Breaker = field(init=False)
    metrics: HookMetrics = field(init=False)
    data: dict[str, Any] = field(init=False, default_factory=dict)
    runner: Any = field(init=False, default=None)
    """Of a background hook: what tells it of events (`hook_runner`)."""
    unasked: list[tuple[Patterns, float]] = field(init=False, default_factory=list)
    """Keys that it is not asked about until a time (`Cache`)."""
    lock: threading.Lock = field(init=False, default_factory=threading.Lock)

    def __post_init__(self) -> None:
        for name, words in (
            ("priority", PRIORITIES),
            ("on_open", (SKIP, REFUSE)),
            ("on_behind", (ALERT, REFUSE)),
        ):
            if getattr(self, name) not in words:
                raise InvalidInputError(f"{name} is {', '.join(words)}")
        check_count(self.batch_size, "batch_size", 1)
        check_count(self.max_concurrent, "max_concurrent", 1)
        check_count(self.max_queue_size, "max_queue_size")
        check_seconds(self.flush_interval, "flush_interval")
        check_seconds(self.timeout, "timeout")
        if callable(self.keys):
            raise InvalidInputError(
                "write it with parentheses: @hooks.before(), @hooks.background()"
            )
        given = (self.keys, self.scopes, self.on)
        self.keys, self.scopes, self.on = (Patterns(getattr(one, "texts", one)) for one in given)
        for text in self.on.texts:
            if not any(map(Patterns(text).fit, EVENTS)):
                names = ", ".join(sorted(EVENTS))
                raise InvalidInputError(f"no event is named like {text!r}; there are {names}")
        for text in self.scopes.texts:
            kind = text.partition(":")[0]
            if kind not in KINDS and not {*"*?"} & {*kind}:
                kinds = ", ".join(KINDS)
                raise InvalidInputError(f"no scope is named like {text!r}; kinds are {kinds}")
        self.breaker, self.metrics = Breaker(self.settings), HookMetrics(self.name)

    def wants(self, name: str, scope: str, key: str) -> bool:
        """Whether it is told of an event."""
        fits = self.on.fit(name) and self.scopes.fit(scope) and (not key or self.keys.fit(key))
        return bool(fits)

    def cached(self, key: str) -> bool:
        """Whether it said that it need not be asked about a key just now; that is counted."""
        if not self.unasked:
            return False
        now = monotonic()
        with self.lock:
            self.unasked = [one for one in self.unasked if one[1] > now]
            found = any(one.fit(key) for one, _ in self.unasked)
            self.metrics.skipped += found
        return found

    def events(self, store: Store, entry: Entry) -> list[Changed]:
        """The events of an entry that it is told of, in order."""
        found: list[Changed] = []
        if entry.timeline.startswith("$"):
            return found  # a feature tries something: when it is taken over, that is told
        swept = [("sweep", "")] if entry.cause == SWEPT else []
        for kind, at in (*entry.operations, *swept):
            name, scope, key = name_of(at, NAMES.get(kind, "")), entry.scope, at
            if at.startswith(TOLD):
                name, key = at.removeprefix(TOLD), ""
            further = kind == "delete scope" and entry.timeline != "main"  # each has such an entry
            if further or not name or not self.on.fit(name):
                continue
            value = partial(_value, store, entry, at or TOLD + name)
            old, new = partial(value, entry.sequence - 1), partial(value, entry.sequence)
            if at != key and (about := new()):  # of which scope, it says itself
                scope = Scope.parse(about.get("scope", scope))
            if self.wants(name, str(scope), key):
                place = (scope, entry.timeline, key, kind, entry.cause, entry.sequence)
                found.append(Changed(name, *place, entry.time, old, new))
        return found

    def ask(self, event: Changed, **context: Any) -> HookOutcome:
        """Call the function: what it gave, or how it failed. Who asks has it counted, or not."""
        begun, made = perf_counter(), HookOutcome(event.place)
        try:
            result = self.function(event, HookContext(self.name, **context))
            fit = BEHIND if self.behind else FRONT
            if result is not None and not isinstance(result, fit):
                where = "behind a change" if self.behind else "in front of one"
                names = ", ".join(one.__name__ for one in fit)
                raise HookResultError(
                    f"the hook {self.name} gave {type(result).__name__}, which means nothing "
                    f"{where}; it may give {names}, or nothing"
                )
            made.value = result
        except BaseException as error:  # whatever it is, it has failed; who asks decides
            if is_interrupt(error):
                raise
            made.fail(error)
        made.seconds = perf_counter() - begun
        return made

    def count(self, outcome: HookOutcome) -> None:
        """Note how a call ended."""
        result, error, seconds = outcome.value, outcome.error, outcome.seconds
        with self.lock:
            self.metrics.runs += 1
            self.metrics.seconds += seconds
            self.metrics.skipped += isinstance(result, Skipped)
            if isinstance(result, Cache):
                self.unasked.append((Patterns(result.key), monotonic() + result.ttl))
            if error:
                self.metrics.failures += 1
                self.metrics.error = error
        if error:
            self.breaker.failure()
        else:
            self.breaker.success(seconds)

    def changes(self, store: Store, since: datetime | TimeRange | None) -> list[Changed]:
        """The events of a time that it is told of, the newest first."""
        time = since if isinstance(since, TimeRange) else TimeRange(since)
        entries: list[Entry] = []
        for info in store.scopes().items:
            state = store.scope(info.scope)
            told = self.scopes.fit(str(info.scope)) or info.scope.id == "$told"
            for line in state.timelines() if told else ():
                log = state.on(line.name).log
                entries += log(since=time.since, until=time.until, limit=None, newest_first=False)
        entries.sort(key=lambda one: one.time)
        return [event for entry in entries for event in self.events(store, entry)][::-1]

    def replay(
        self,
        store: Store,
        since: datetime | TimeRange | None,
        mode: str,
        params: Mapping[str, Any] | None,
    ) -> ReplayReport:
        """Call the function with the events of a time; nothing of what it gives is done."""
        if mode not in MODES:
            raise InvalidInputError(f"mode is {', '.join(MODES)}")
        given = by_name(params, "params")
        if given and mode not in ("modified", "simulate"):
            raise InvalidInputError("params go with mode='modified', or 'simulate'")
        kept = kept_results(store, self.name, "results", 2 * KEPT) if self.behind else []
        before = {_place(one): str(one["result"]) for one in reversed(kept)}
        found = []
        for event in reversed(self.changes(store, since)):
            told = self.ask(event, params=given, replay=mode)
            told.before = before.get(_place(told.event), "")
            if mode != "debug":
                told.seconds = 0.0
            found.append(told)
        return ReplayReport(self.name, mode, tuple(found))


def _value(store: Store, entry: Entry, key: str, sequence: int) -> Any:
    """A value as it was at an entry; None if there was none, or that entry is pruned."""
    try:
        return store.scope(entry.scope).at(f"{entry.timeline}@{sequence}").get(key)
    except MissingError:
        return None


# ---- what any process can tell of a background hook ---------------------------------------------


def hook_records(store: Store) -> list[dict[str, Any]]:
    """All background hooks that this store has ever had: how many commits each is `behind`, how
    many results of it are kept (`told`), how often it gave each, and the last failure of those."""
    found = []
    for name, position in sorted(cursors(core_of(store), CURSOR).items()):
        kept = kept_results(store, name, "results", 2 * KEPT)
        results = dict(Counter(one["result"] for one in kept))
        error = next((one["error"] for one in kept if one["error"]), "")
        behind = lag(core_of(store).lanes.position(), position)
        known = {"name": name, "behind": behind, "told": len(kept)}
        found.append({**known, "results": results, "error": error})
    return found


def lag(heads: Mapping[int, int], at: Position | None) -> int:
    """How many commits up to some lie behind a position."""
    at = at or Position()
    return sum(max(0, heads.get(lane, 0) - at.get(lane, 0)) for lane in range(LANES))


def keep_results(store: Store, name: str, results: list[dict[str, Any]]) -> None:
    """Keep what a hook gave, the newest of it, and what it failed at."""
    line, failed = handle_of(store).line(SCOPE), [one for one in results if one["error"]]

    def note(parts: Any) -> None:
        part = parts.part(line)
        wanted = keep.Keep(count=0)
        if wanted not in line.reader.declared().all:
            part.set(wanted.key, wanted.data())
        for kind, some in (("results", results[-KEPT:]), ("failed", failed)):
            if some:
                key = f"{RESULTS.prefix}{kind}/{name}"
                part.extend(key, some)
                if line.reader.length(key) + len(some) > KEPT + KEPT // 4:
                    part.trim(key, keep_last=KEPT)

    own_step(handle_of(store), note, reason=f"results of the hook {name}")


def kept_results(store: Store, name: str, kind: str, limit: int) -> list[Mapping[str, Any]]:
    """What is kept of a hook, the newest first: its `results`, or what it `failed` at."""
    key, reader = f"{RESULTS.prefix}{kind}/{name}", handle_of(store).line(SCOPE).reader
    there = reader.length(key)
    return list(reversed(reader.slice(key, max(0, there - limit), there, False)))
