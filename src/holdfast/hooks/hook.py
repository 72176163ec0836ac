"""One hook: its function, what it is told of, and how it has fared."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from time import monotonic, perf_counter
from typing import Any

from holdfast.errors import HookResultError
from holdfast.hooks.breaker import Breaker
from holdfast.hooks.hook_events import BEHIND, FRONT, Cache, Changed, HookContext, Skipped
from holdfast.store.names.patterns import Patterns

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

    def call(self, event: Changed, context: HookContext) -> Any:
        """Call the function; what it gave, counted and timed. Raises what it raises."""
        begun = perf_counter()
        try:
            result = self.ask(event, context)
        except BaseException as error:  # whatever it is, it has failed; who calls decides
            self.count(perf_counter() - begun, f"{type(error).__name__}: {error}")
            raise
        self.count(perf_counter() - begun)
        return result

    def ask(self, event: Changed, context: HookContext) -> Any:
        """The same, not counted."""
        result = self.function(event, context)
        self.check(result)
        if isinstance(result, Cache):
            self.unasked.append((Patterns(result.key), monotonic() + result.ttl))
        if isinstance(result, Skipped):
            self.metrics.skipped += 1
        return result

    def check(self, result: Any) -> None:
        """Refuse what it may not give where it stands."""
        fit = BEHIND if self.behind else FRONT
        if result is None or isinstance(result, fit):
            return
        where = "behind a change" if self.behind else "in front of one"
        names = ", ".join(one.__name__ for one in fit)
        raise HookResultError(
            f"the hook {self.name} gave {type(result).__name__}, which means nothing {where}; it "
            f"may give {names}, or nothing"
        )

    def count(self, seconds: float, error: str = "") -> None:
        """Note how a call ended."""
        with self.lock:
            self.metrics.runs += 1
            self.metrics.seconds += seconds
            if error:
                self.metrics.failures += 1
                self.metrics.error = error[:500]
        if error:
            self.breaker.failure()
        else:
            self.breaker.success(seconds)
