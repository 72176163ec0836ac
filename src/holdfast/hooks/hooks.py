"""Hooks: functions that are called before a change, or told of it behind.

hooks = Hooks(store)

@hooks.before("plan/*", scope="agent:*", priority="high")
def tidy(event, context):
    return Modified({**event.new, "tidied": True})

A hook in front stands in a gate: it sees the change before it is written, and may refuse or change
it. A background hook reads the feed from a position that is kept in a cell, so that it is told of
everything, also of what other processes write, and keeps nobody up (`hook_runner`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from functools import partial
from inspect import signature
from typing import Any

from holdfast.errors import (
    GateRefusedError,
    HoldfastError,
    HookBehindError,
    HookCancelledError,
    HookResultError,
    InvalidInputError,
    MissingError,
)
from holdfast.hooks.breaker import BreakerSettings
from holdfast.hooks.hook import (
    ALERT,
    PRIORITIES,
    REFUSE,
    SKIP,
    Hook,
    HookMetrics,
    ReplayReport,
    TimeRange,
    kept_results,
)
from holdfast.hooks.hook_events import (
    CHANGED,
    SAVED,
    STARTED,
    Cancel,
    Changed,
    Modified,
    Redirect,
    Replace,
    name_of,
)
from holdfast.hooks.hook_runner import HookRunner
from holdfast.store.inner import HOOKS, Gate, GateRequest, Operation, copied, core_of, handle_of
from holdfast.store.names.arguments import check_face, check_limit, check_run, check_text, is_async
from holdfast.store.names.cause import Cause, cause_now
from holdfast.store.names.face import both, ends, faced, here, taken
from holdfast.store.names.items import LongValue, Position
from holdfast.store.names.scope import check_key
from holdfast.store.names.threads import OnLoop
from holdfast.store.store import Store


@faced
class Hooks:
    """The hooks of one open store, in this process. They end with the store, or with `stop`.

    Hooks in front see what is written through this open store; background hooks see what anybody
    writes. Names tell them apart: the position of a background hook is kept under its name, and of
    several processes that have one of a name one is told of each event.
    """

    def __init__(self, store: Store) -> None:
        check_face(store, Store, "Hooks")
        self._store = store
        self._core = core_of(store)
        self._hooks: dict[str, Hook] = {}
        self._stopped: dict[str, Hook] = {}
        """Those that are called no more: what they have counted can be asked for still."""
        self._front: list[Hook] = []
        self._refusing: list[Hook] = []
        self._gate = _Front(self)

    @both
    def before(
        self,
        keys: str | Iterable[str] = "*",
        *,
        scope: str | Iterable[str] = "*",
        on: str | Iterable[str] = CHANGED,
        name: str | None = None,
        priority: str = "normal",
        on_open: str = SKIP,
        breaker: BreakerSettings = BreakerSettings.STANDARD,
    ) -> Callable[[Any], Any]:
        """Have `function(event, context)` called before a change of such keys is written.

        Those of a higher priority go first, and each sees the value as those before it left it. It
        is a plain function on both faces, and quick: the writer waits for it, and on the async face
        the whole event loop. What it raises refuses the change. If it fails again and again, its
        breaker opens: then changes go by without it (`on_open="skip"`), or are refused.
        """
        made = Hook(keys, scope, on, name or "", None, False, priority, breaker, on_open)
        own: Hooks = taken(self)
        return own._adds(made)

    @both
    def on_state_save(self, keys: str | Iterable[str] = "*", **more: Any) -> Callable[[Any], Any]:
        """Have a function called before state is saved, of keys or of an agent as a whole.

        Another name for `before`, with the events `state.changed` and `agent_state.saved`.
        """
        return self.before(keys, on=(CHANGED, SAVED), **more)

    @both
    def on_state_restore(self, **more: Any) -> Callable[[Any], Any]:
        """Have a function called before a scope is restored: `before`, with `restore.started`."""
        return self.before(on=STARTED["restore"], **more)

    @both
    def background(
        self,
        keys: str | Iterable[str] = "*",
        *,
        scope: str | Iterable[str] = "*",
        on: str | Iterable[str] = CHANGED,
        name: str | None = None,
        batch_size: int = 100,
        flush_interval: float = 0.05,
        max_concurrent: int = 10,
        timeout: float = 5.0,
        max_queue_size: int = 10_000,
        on_behind: str = ALERT,
        since: Position | None = None,
        breaker: BreakerSettings = BreakerSettings.STANDARD,
    ) -> Callable[[Any], Any]:
        """Have a function told of changes of such keys, behind them: `function(event, context)`.

        Nothing is lost: it goes on where it was when the process ended, and may be told of the last
        events twice. One that is new begins now, or at `since`. Events of one scope come in order;
        those of up to `max_concurrent` scopes side by side. On the async face it may be async. What
        raises, or takes longer than `timeout` seconds, is tried three times, then set aside: see
        `failed`. More than `max_queue_size` commits behind it warns, or with `on_behind="refuse"`
        refuses changes that it would be told of, by `HookBehindError`.
        """
        made = Hook(
            keys, scope, on, name or "", settings=breaker, batch_size=batch_size,
            flush_interval=flush_interval, max_concurrent=max_concurrent, timeout=timeout,
            max_queue_size=max_queue_size, on_behind=on_behind,
        )  # fmt: skip
        own: Hooks = taken(self)
        return own._adds(made, since, OnLoop() if own is not self else None)

    def _adds(
        self, made: Hook, since: Position | None = None, loop: OnLoop | None = None
    ) -> Callable[[Any], Any]:
        """What makes hooks of functions.

        On the async face there is a `loop` for those behind, where async functions run.
        """
        self._core.check_store()  # before a place is kept, or a thread begins: gates take as much
        what = "a background hook" if made.behind else "a hook in front"

        def add(function: Any) -> Any:
            if not made.behind and is_async(function):
                raise InvalidInputError(
                    f"{what} is a plain function on both faces, no `async def`: what has to wait "
                    "belongs behind, @hooks.background()"
                )
            check_run(function, what, awaited=loop is not None)
            with suppress(ValueError):  # of what is written in C nothing is known
                try:
                    signature(function).bind(None, None)
                except TypeError:
                    raise InvalidInputError(f"{what} is called with (event, context)") from None
            name = made.name or str(getattr(function, "__name__", ""))
            check_text(name, "the name of a hook", 100, least=1)
            check_key(name)  # results are kept under it
            if name in self._hooks:
                raise InvalidInputError(f"there is a hook {name!r} already; give this one a name=")
            called = function
            if loop is not None:
                loop.use()
                called = loop.wrap(function, what)
            hook = replace(made, name=name, function=called)
            if hook.behind:
                hook.runner = HookRunner(self._store, hook, self.named)
                hook.runner.start(since)
            self._hooks[name] = hook
            self._stand()
            return function

        return add

    def _stand(self) -> None:
        """Stand in the gate while there is a reason to; else changes pay nothing for hooks."""
        hooks = list(self._hooks.values())
        front = [one for one in hooks if not one.behind]
        self._front = sorted(front, key=lambda one: PRIORITIES.index(one.priority))
        self._refusing = [one for one in hooks if one.on_behind == REFUSE]
        self._core.gates.remove(self._gate)
        if self._front or self._refusing:
            self._core.gates.add(self._gate)

    @ends
    def remove(self, name: str) -> None:
        """Call a hook no more; a background hook ends what it is at, and its position stays."""
        hook = self.named(name)
        if hook.runner is not None:
            hook.runner.stop()
        self._stopped[name] = self._hooks.pop(name)
        self._stand()

    @ends
    def stop(self, *, drain: bool = True) -> None:
        """Call no hook any more. Background hooks are told of all that was committed until now
        first, unless `drain` is False: then they go on from there when they are made again."""
        try:
            if drain:
                self.drain()
        finally:
            for name in list(self._hooks):
                self.remove(name)

    def drain(self, name: str | None = None) -> None:
        """Wait until background hooks, or one of them, were told of all that is committed now."""
        some = [self.named(name)] if name is not None else list(self._hooks.values())
        for hook in some:
            if hook.runner is not None:
                hook.runner.drain()

    @here
    def metrics(self) -> dict[str, HookMetrics]:
        """What each hook has done, by its name; also of those that are called no more."""
        found = {}
        for hook in (self._stopped | self._hooks).values():
            with hook.lock:
                done, state, opened = hook.metrics, hook.breaker.state, hook.breaker.opened
                mean = done.seconds / max(1, done.runs)
                found[hook.name] = replace(done, mean_seconds=mean, breaker=state, opened=opened)
        return found

    def named(self, name: str) -> Hook:
        """A hook by its name."""
        if name not in self._hooks:
            known = ", ".join(self._hooks) or "none"
            raise MissingError(f"there is no hook {name!r} here; there are {known}")
        return self._hooks[name]

    def replay(
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
        return self.named(name).replay(self._store, since, mode, params)

    def changes(
        self,
        keys: str | Iterable[str] = "*",
        *,
        scope: str | Iterable[str] = "*",
        on: str | Iterable[str] = CHANGED,
        since: datetime | TimeRange | None = None,
        limit: int | None = 100,
    ) -> list[Changed]:
        """The log of changes, the newest first: events as hooks are told of them.

        It is a view of the journal: nothing is kept for it, and what is pruned is not in it.
        """
        check_limit(limit)
        return Hook(keys, scope, on).changes(self._store, since)[:limit]

    def failed(self, name: str, *, limit: int = 100) -> list[Mapping[str, Any]]:
        """Events that a background hook has failed at three times, the newest first."""
        hook = self.named(name)
        if hook.runner is None:
            raise InvalidInputError(f"the hook {name} stands in front; what it refuses, fails")
        return kept_results(self._store, name, "failed", limit)

    @here
    def list(self) -> list[str]:
        """The names of all hooks, those in front first, in the order in which they are called."""
        behind = [one.name for one in self._hooks.values() if one.behind]
        return [*(one.name for one in self._front), *behind]


class _Front(Gate):
    """The gate that hooks in front stand in."""

    def __init__(self, hooks: Hooks) -> None:
        self._hooks = hooks

    def before(self, request: GateRequest) -> GateRequest | None:
        """Ask the hooks about each operation."""
        if request.timeline.startswith("$"):  # a feature tries something, and asks to take it over
            return None
        scope = str(request.scope)
        operations, changed = list(request.operations), False
        for hook in self._hooks._refusing:
            if hook.metrics.behind > hook.max_queue_size and any(
                (name := name_of(one.key, "")) and hook.wants(name, scope, one.key)
                for one in operations
            ):
                raise HookBehindError(
                    f"{scope}: the background hook {hook.name} is {hook.metrics.behind} commits "
                    f"behind, and {hook.max_queue_size} is the most that was declared; try again "
                    "later"
                )
        told: list[list[Hook]] = [[] for _ in operations]  # of each operation, as it is now
        front, by = self._hooks._front, "nobody"  # who has changed what is to be asked about
        for _ in range(len(front) + 2):
            if not by:
                return replace(request, operations=operations) if changed else None
            by = ""
            for hook in front:
                for at, one in enumerate(operations):
                    name = name_of(one.key, STARTED.get(one.kind, one.kind))
                    if not name or hook in told[at] or not hook.wants(name, scope, one.key):
                        continue
                    if isinstance(one.value, LongValue) and not one.value.hash:
                        continue  # it is asked when all of it is there
                    told[at].append(hook)
                    result = self._ask(hook, name, request, one)
                    if isinstance(result, Replace):
                        # What features note beside it is not the user's.
                        own = [other for other in operations if other.key.startswith("$")]
                        operations = [*own, *result.operations]
                        told, changed, by = [[hook] for _ in operations], True, hook.name
                        break
                    if isinstance(result, Redirect):
                        operations[at] = replace(one, key=result.key, sensitive=None)
                        told[at], changed, by = [hook], True, hook.name
                    if isinstance(result, Modified):
                        operations[at], changed = replace(one, value=result.value), True
        raise HookResultError(f"{scope}: hooks redirect or replace in a circle; the last was {by}")

    def _ask(self, hook: Hook, name: str, request: GateRequest, one: Operation) -> Any:
        if hook.cached(one.key):
            return None
        if not hook.breaker.allow():
            hook.metrics.passed_over += 1
            self._hooks._core.meter.add(HOOKS, (hook.name, "passed_over"))
            if hook.on_open == SKIP:
                return None
            raise GateRefusedError(
                f"{request.scope}: the hook {hook.name} has failed too often and is not asked; "
                f"nothing was changed. It is tried again in {hook.breaker.wait():.0f} s; its last "
                f"failure: {hook.metrics.error}"
            )
        line = partial(handle_of(self._hooks._store).line, request.scope, request.timeline)
        cause = request.cause or cause_now() or Cause()
        place = (request.scope, request.timeline, one.key, one.kind, cause)
        old, new = (lambda: line().reader.get(one.key)), partial(copied, one.value)
        event = Changed(name, *place, _old=old, _new=new)
        outcome = hook.ask(event, attempt=request.attempt, data=hook.data)
        hook.count(outcome)
        self._hooks._core.meter.add(HOOKS, (hook.name, "failed" if outcome.error else "done"))
        result, raised = outcome.value, outcome.raised
        if isinstance(raised, HoldfastError) and not isinstance(raised, InvalidInputError):
            raise raised
        if raised is not None:  # what it was there to check is not let through
            raise GateRefusedError(
                f"{request.scope}: the hook {hook.name} failed with {outcome.error}; nothing was "
                "changed"
            ) from raised
        if isinstance(result, Cancel):
            raise HookCancelledError(
                f"{request.scope}: the hook {hook.name} refused the {one.kind} of "
                f"{one.key or 'the scope'}: {result.reason}",
                hook.name,
                result.reason,
            )
        wrong = ""
        if isinstance(result, Modified | Redirect | Replace) and name != CHANGED:
            wrong = f"can refuse what {name} tells of, not change it"
        elif isinstance(result, Modified) and one.kind not in ("set", "append"):
            wrong = f"gave Modified, and a {one.kind} has no value that it could modify"
        if wrong:
            raise HookResultError(f"{request.scope}: the hook {hook.name} {wrong}")
        return result
