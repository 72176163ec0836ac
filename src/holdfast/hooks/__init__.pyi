# Written by scripts/stubs.py from the blocking classes; not to be edited.

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any

from holdfast.hooks.breaker import Breaker as Breaker
from holdfast.hooks.breaker import BreakerSettings as BreakerSettings
from holdfast.hooks.built_in import backup_on_change as backup_on_change
from holdfast.hooks.built_in import persistence as persistence
from holdfast.hooks.built_in import validation as validation
from holdfast.hooks.hook import Hook
from holdfast.hooks.hook import HookMetrics as HookMetrics
from holdfast.hooks.hook import ReplayReport as ReplayReport
from holdfast.hooks.hook import TimeRange as TimeRange
from holdfast.hooks.hook_events import Cache as Cache
from holdfast.hooks.hook_events import Cancel as Cancel
from holdfast.hooks.hook_events import Changed as Changed
from holdfast.hooks.hook_events import Continue as Continue
from holdfast.hooks.hook_events import Fork as Fork
from holdfast.hooks.hook_events import HookContext as HookContext
from holdfast.hooks.hook_events import Modified as Modified
from holdfast.hooks.hook_events import Redirect as Redirect
from holdfast.hooks.hook_events import Replace as Replace
from holdfast.hooks.hook_events import Retry as Retry
from holdfast.hooks.hook_events import Skipped as Skipped
from holdfast.store.names.items import Position
from holdfast.store.store_async import Store

class Hooks:
    """The hooks of one open store, in this process. They end with the store, or with `stop`.

    Hooks in front see what is written through this open store; background hooks see what anybody
    writes. Names tell them apart: the position of a background hook is kept under its name, and of
    several processes that have one of a name one is told of each event.
    """
    def __init__(self, store: Store) -> None: ...
    def before(
        self,
        keys: str | Iterable[str] = "*",
        *,
        scope: str | Iterable[str] = "*",
        on: str | Iterable[str] = ...,
        name: str | None = None,
        priority: str = "normal",
        on_open: str = ...,
        breaker: BreakerSettings = ...,
    ) -> Callable[[Any], Any]:
        """Have `function(event, context)` called before a change of such keys is written.

        Those of a higher priority go first, and each sees the value as those before it left it. It
        is a plain function on both faces, and quick: the writer waits for it, and on the async face
        the whole event loop. What it raises refuses the change. If it fails again and again, its
        breaker opens: then changes go by without it (`on_open="skip"`), or are refused.
        """
    def on_state_save(self, keys: str | Iterable[str] = "*", **more: Any) -> Callable[[Any], Any]:
        """Have a function called before state is saved, of keys or of an agent as a whole.

        Another name for `before`, with the events `state.changed` and `agent_state.saved`.
        """
    def on_state_restore(self, **more: Any) -> Callable[[Any], Any]:
        """Have a function called before a scope is restored: `before`, with `restore.started`."""
    def background(
        self,
        keys: str | Iterable[str] = "*",
        *,
        scope: str | Iterable[str] = "*",
        on: str | Iterable[str] = ...,
        name: str | None = None,
        batch_size: int = 100,
        flush_interval: float = 0.05,
        max_concurrent: int = 10,
        timeout: float = 5.0,
        max_queue_size: int = 10000,
        on_behind: str = ...,
        since: Position | None = None,
        breaker: BreakerSettings = ...,
    ) -> Callable[[Any], Any]:
        """Have a function told of changes of such keys, behind them: `function(event, context)`.

        Nothing is lost: it goes on where it was when the process ended, and may be told of the last
        events twice. One that is new begins now, or at `since`. Events of one scope come in order;
        those of up to `max_concurrent` scopes side by side. On the async face it may be async. What
        raises, or takes longer than `timeout` seconds, is tried three times, then set aside: see
        `failed`. More than `max_queue_size` commits behind it warns, or with `on_behind="refuse"`
        refuses changes that it would be told of, by `HookBehindError`.
        """
    async def remove(self, name: str) -> None:
        """Call a hook no more; a background hook ends what it is at, and its position stays."""
    async def stop(self, *, drain: bool = True) -> None:
        """Call no hook any more. Background hooks are told of all that was committed until now
        first, unless `drain` is False: then they go on from there when they are made again.
        """
    async def drain(self, name: str | None = None) -> None:
        """Wait until background hooks, or one of them, were told of all that is committed now."""
    def metrics(self) -> dict[str, HookMetrics]:
        """What each hook has done, by its name; also of those that are called no more."""
    async def named(self, name: str) -> Hook:
        """A hook by its name."""
    async def replay(
        self,
        name: str,
        since: datetime | TimeRange | None = None,
        *,
        mode: str = "simulate",
        params: Mapping[str, Any] | None = None,
    ) -> ReplayReport:
        """Call a hook with what is in the journal of a time: what it would give, and what it gave.

        Nothing that it gives is written, in any mode. `simulate` says so to the hook
        (`context.replay`), which then reaches nothing outside; `exact` and `debug` call it as if it
        happened now, `debug` with how long it took; `modified` gives it `params`. What it gave then
        is known of the last 1,000 events of a background hook.
        """
    async def changes(
        self,
        keys: str | Iterable[str] = "*",
        *,
        scope: str | Iterable[str] = "*",
        on: str | Iterable[str] = ...,
        since: datetime | TimeRange | None = None,
        limit: int | None = 100,
    ) -> list[Changed]:
        """The log of changes, the newest first: events as hooks are told of them.

        It is a view of the journal: nothing is kept for it, and what is pruned is not in it.
        """
    async def failed(self, name: str, *, limit: int = 100) -> list[Mapping[str, Any]]:
        """Events that a background hook has failed at three times, the newest first."""
    def list(self) -> list[str]:
        """The names of all hooks, those in front first, in the order in which they are called."""
