"""One hook: its function, what it is told of, and how it has fared."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from time import monotonic, perf_counter
from typing import Any

from holdfast.errors import HookResultError, MissingError
from holdfast.hooks.breaker import Breaker
from holdfast.hooks.hook_events import (
    BEHIND,
    FRONT,
    NAMES,
    Cache,
    Changed,
    Continue,
    HookContext,
    Skipped,
    name_of,
)
from holdfast.store.inner import TOLD
from holdfast.store.names.items import Entry
from holdfast.store.names.patterns import Patterns
from holdfast.store.store import Store

SKIP, REFUSE, ALERT = "skip", "refuse", "alert"
Function = Callable[[Changed, HookContext], Any]


@dataclass(slots=True)
class HookMetrics:
    """What one hook has done in this process."""

    name: str
    runs: int = 0
    failures: int = 0
    skipped: int = 0
    """Times that it had nothing to do, or was not asked because of `Cache`."""
    seconds: float = 0.0
    breaker: str = "closed"
    opened: int = 0
    """How often its breaker has opened."""
    passed_over: int = 0
    """Changes that went by unasked while its breaker was open."""
    behind: int = 0
    """Commits that a background hook has yet to be told of."""
    error: str = ""
    """The last failure."""

    @property
    def mean_seconds(self) -> float:
        """How long a run takes on average."""
        return self.seconds / self.runs if self.runs else 0.0


@dataclass(slots=True)
class HookOutcome:
    """What one call of a hook came to."""

    result: Any = None
    error: str = ""
    raised: BaseException | None = None
    seconds: float = 0.0

    @property
    def name(self) -> str:
        """The name of the result, or `failed`."""
        return "failed" if self.error else type(self.result or Continue()).__name__

    def fail(self, error: BaseException) -> None:
        """It raised something."""
        self.raised, self.error = error, f"{type(error).__name__}: {error}"[:500]


@dataclass(slots=True, eq=False)
class Hook:
    """One function that is told of events, and what it is told of. Patterns may be texts."""

    name: str
    function: Function
    keys: Any
    scopes: Any
    on: Any
    """Names of events."""
    behind: bool = True
    priority: int = 0
    breaker: Breaker = field(default_factory=Breaker)
    on_open: str = SKIP
    batch_size: int = 100
    flush_interval: float = 0.05
    max_concurrent: int = 10
    timeout: float = 5.0
    max_queue_size: int = 10_000
    on_behind: str = ALERT
    metrics: HookMetrics = field(init=False)
    data: dict[str, Any] = field(default_factory=dict)
    runner: Any = None
    """Of a background hook: what tells it of events (`hook_runner`)."""
    unasked: list[tuple[Patterns, float]] = field(default_factory=list)
    """Keys that it is not asked about until a time (`Cache`)."""
    lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self.keys, self.scopes, self.on = map(Patterns, (self.keys, self.scopes, self.on))
        self.metrics = HookMetrics(self.name)

    def wants(self, name: str, scope: str, key: str) -> bool:
        """Whether it is told of an event."""
        fits = self.on.fit(name) and self.scopes.fit(scope) and (not key or self.keys.fit(key))
        return bool(fits)

    def cached(self, key: str) -> bool:
        """Whether it said that it need not be asked about a key just now."""
        if not self.unasked:
            return False
        now = monotonic()
        self.unasked = [one for one in self.unasked if one[1] > now]
        return any(one.fit(key) for one, _ in self.unasked)

    def events(self, store: Store, entry: Entry) -> list[Changed]:
        """The events of an entry that it is told of, in order."""
        scope, found = str(entry.scope), []
        for kind, key in entry.operations:
            name = name_of(kind, key, NAMES)
            if key.startswith(TOLD):
                name, key = key.removeprefix(TOLD), ""
            if name and self.wants(name, scope, key):
                place = (entry.scope, entry.timeline, key, kind, entry.cause, entry.sequence)
                value = partial(_value, store, entry, key or TOLD + name)
                old, new = partial(value, entry.sequence - 1), partial(value, entry.sequence)
                found.append(Changed(name, *place, entry.time, old, new))
        return found

    def ask(self, event: Changed, context: HookContext) -> HookOutcome:
        """Call the function: what it gave, or how it failed. Who asks has it counted, or not."""
        begun, made = perf_counter(), HookOutcome()
        try:
            result = self.function(event, context)
            fit = BEHIND if self.behind else FRONT
            if result is not None and not isinstance(result, fit):
                where = "behind a change" if self.behind else "in front of one"
                names = ", ".join(one.__name__ for one in fit)
                raise HookResultError(
                    f"the hook {self.name} gave {type(result).__name__}, which means nothing "
                    f"{where}; it may give {names}, or nothing"
                )
            made.result = result
        except Exception as error:  # whatever it is, it has failed; who asks decides
            made.fail(error)
        made.seconds = perf_counter() - begun
        return made

    def count(self, outcome: HookOutcome) -> None:
        """Note how a call ended."""
        result, error, seconds = outcome.result, outcome.error, outcome.seconds
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


def _value(store: Store, entry: Entry, key: str, sequence: int) -> Any:
    """A value as it was at an entry; None if there was none, or that entry is pruned."""
    try:
        return store.scope(entry.scope).at(f"{entry.timeline}@{sequence}").get(key)
    except MissingError:
        return None
