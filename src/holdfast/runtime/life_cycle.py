"""The life cycle of a daemon: modules that start, share, get ready and end, in one order.

runtime = Runtime(store, modules=[entities, log, MyModule()])
async with runtime:
    await runtime.forever()

A module is any object. What it has of `startup(runtime)`, `context(shared)`, `ready(runtime)` and
`shutdown(runtime)`, plain or async, is called in that order; methods that are marked with
`@handles("name")` answer what is sent by name.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import AsyncExitStack, ExitStack, suppress
from datetime import datetime
from difflib import get_close_matches
from functools import partial
from inspect import signature
from typing import Any, Self

from holdfast.errors import InvalidInputError, MissingError, RuntimeStartError
from holdfast.store.names.arguments import (
    by_name,
    check_function,
    check_seconds,
    check_text,
    listed,
)
from holdfast.store.names.items import Page
from holdfast.store.names.scope import Scope
from holdfast.store.store_async import Store

STARTUP, CONTEXT, READY, SHUTDOWN = (
    f"system:{phase}" for phase in ("startup", "context", "ready", "shutdown")
)
USUAL = {STARTUP: "start", SHUTDOWN: "stop"}
"""What stands for a phase of Holdfast's own modules, which are started and stopped."""
PRIORITIES = ("highest", "high", "normal", "low", "lowest")
Handler = Callable[[Mapping[str, Any]], Any]

API: Mapping[str, Mapping[str, str]] = {
    "Entities": {
        "state:entity:create": "create type",
        "state:entity:bulk_create": "bulk_create entities",
        "state:entity:update": "update id properties",
        "state:entity:delete": "delete id",
        "state:entity:get": "get id",
        "state:entity:query": "query order=order_by",
        "state:relationship:create": "relate from type to",
        "state:relationship:delete": "unrelate from type to",
        "state:relationship:query": "relationships from_id=from to_id=to",
        "state:graph:traverse": "traverse from",
        "state:aggregate:count": "count",
    },
    "Queue": {
        "async_state:push": "push data ttl=ttl_seconds",
        "async_state:pop": "pop",
        "async_state:get_queue": "items",
        "async_state:delete": "delete",
        "async_state:expire_queue": "expire ttl=ttl_seconds",
    },
    "Events": {
        "monitor:get_events": "query patterns=event_patterns client=client_id",
        "monitor:query": "query patterns=event_patterns client=client_id",
        "monitor:get_stats": "stats",
        "monitor:clear_log": "clear",
        "monitor:get_session_events": "session_events session_id",
        "monitor:get_correlation_chain": "chain correlation_id",
    },
    "Observations": {
        "observation:subscribe": "subscribe observer target",
        "observation:unsubscribe": "unsubscribe id",
        "observation:list": "list",
        "observation:query": "query",
        "observation:replay": "replay",
        "observation:analyze": "analyze what=analysis_type",
    },
    "Requests": {
        "completion:submit": "submit session_id request",
        "completion:active": "active",
        "completion:waiting": "waiting session_id",
        "completion:sessions": "sessions",
    },
}
"""What the modules of a daemon answer, by their class: the method, the parameters that must be
there, in its order, and those that have another name there."""


def parameters_of(of: Any, usage: str) -> tuple[list[str], dict[str, str]]:
    """What a name of the API has to be given, in order, and what it may be, with what that is
    called there; of a module, or of its class."""
    method, *words = usage.split()
    must = [word for word in words if "=" not in word]
    renamed = dict(word.split("=") for word in words if "=" in word)
    own = [one for one in signature(getattr(of, method)).parameters if one != "self"]
    may = {renamed.get(one, one): one for one in own[len(must) :]}
    return ["queue_name"] * hasattr(of, "named") + must, may


def answers_of(module: Any) -> dict[str, Handler]:
    """What answers the names of the API that are known of the class of a module."""
    known = API.get(type(module).__name__, {})
    return {name: partial(_answer, module, usage) for name, usage in known.items()}


def _answer(module: Any, usage: str, data: Mapping[str, Any]) -> Any:
    """Answer a name of the API. Calls of a queue are those of the one of `queue_name`."""
    must, may = parameters_of(module, usage)
    wrong = [f"{name} is missing" for name in must if name not in data]
    wrong += [f"it has no parameter {name}" for name in data if name not in {*must, *may}]
    if wrong:
        known = ", ".join([*must, *may]) or "no parameters"
        raise InvalidInputError(f"{wrong[0]}; it takes {known}")
    args = [data[name] for name in must]
    of = module.named(args.pop(0)) if hasattr(module, "named") else module
    named = {own: data[name] for name, own in may.items() if name in data}
    return getattr(of, usage.split()[0])(*args, **named)


def known_of(handlers: Mapping[str, Any], name: str) -> Any:
    """What answers a name, of those that are known."""
    if name not in handlers:
        near = get_close_matches(name, handlers, 1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise MissingError(f"nobody here answers {name}{hint}")
    return handlers[name]


def handles(name: str, *, priority: str = "normal") -> Callable[[Any], Any]:
    """Mark a method of a module as what answers a name, or is told of a phase: `method(data)`,
    plain or async.

    Those of a higher priority are called first; the answer is that of the last one that gives
    something.
    """
    check_text(name, "the name of an event", 200, least=1)
    if priority not in PRIORITIES:
        raise InvalidInputError(f"priority is {', '.join(PRIORITIES)}")

    def mark(function: Any) -> Any:
        check_function(function, "a handler")
        function.__handles__ = (name, priority)
        return function

    return mark


class Runtime:
    """A daemon around an open store of `holdfast.open`; entered once, in one event loop.

    Phases run in order: `system:startup` of each module, in the order given; `system:context`, with
    what they share; `system:ready` when all are; only then is restored what shutdown kept.
    `system:shutdown` goes the other way round. A module that fails to start, or takes longer than
    `timeout` seconds, stops the start with its name, and those that had begun are ended. A plain
    method that blocks holds up all, also its own time limit.
    """

    def __init__(self, store: Store, modules: Iterable[Any] = (), *, timeout: float = 30.0) -> None:
        if not isinstance(store, Store):
            raise InvalidInputError("Runtime takes an open store of holdfast.open, not of sync")
        check_seconds(timeout, "timeout")
        self.store = store
        self.modules: tuple[Any, ...] = tuple(listed(modules, "modules"))
        for module in self.modules:
            if module is None or isinstance(module, type | str):
                raise InvalidInputError(f"a module is an object that was made, not {module!r}")
        self.shared: dict[str, Any] = {"store": store, "runtime": self}
        """What `system:context` hands to all modules; they may add to it in `startup`."""
        self.phase = ""
        """The last phase that was entered."""
        self._timeout = timeout
        self._taking: dict[Any, Any] = {}
        """Modules that keep something at the end, by where that lies."""
        for module in self.modules:
            if hasattr(module, "collect") and hasattr(module, "restore"):
                place = Scope("custom", f"$runtime/{name_of(module)}")
                if place in self._taking:
                    raise InvalidInputError(
                        f"two modules are called {name_of(module)}, and both keep something at the "
                        "end: give one another `name`"
                    )
                self._taking[place] = module
        self._handlers: dict[str, list[tuple[int, Handler]]] = {}
        self._ends = AsyncExitStack()
        """What ends all that has begun, the last first; what fails keeps no other from ending."""
        self._over = asyncio.Event()
        for module in self.modules:  # it answers by its marked methods, and by names known of it
            for name, function in answers_of(module).items():
                self._add(name, function)
            for attribute in dir(type(module)):
                marked = getattr(getattr(type(module), attribute, None), "__handles__", None)
                if marked is not None:
                    self._add(marked[0], getattr(module, attribute), marked[1])

    # handlers

    def _add(self, name: str, function: Handler, priority: str = "normal") -> None:
        known = [*self._handlers.get(name, ()), (PRIORITIES.index(priority), function)]
        self._handlers[name] = sorted(known, key=lambda one: one[0])

    async def send(self, name: str, data: Mapping[str, Any] | None = None) -> Any:
        """Have a name answered; what came of it as plain data, with times as numbers and as text.

        Refused with `MissingError` if nobody answers it, with `InvalidInputError` if what is given
        is not what it takes.
        """
        check_text(name, "the name of an event", 200, least=1)
        given, answer = by_name(data, name), None
        for _, function in known_of(self._handlers, name):
            found = await _awaited(function(dict(given)))
            answer = found if found is not None else answer
        return plain_of(answer)

    # phases

    async def __aenter__(self) -> Self:
        if self.phase:
            raise InvalidInputError("a runtime is entered once; make another one")
        from holdfast.checkpoints.shutdown import ShutdownCheckpoints

        kept = ShutdownCheckpoints(self.store, (), signals=(), participants=self._taking)
        if self._taking:
            # Below the modules, which are asked what they have left once all of them have ended:
            # what was at work may have been answered meanwhile.
            self._ends.push_async_exit(kept)
        try:
            for phase in (STARTUP, CONTEXT, READY):
                self.phase = phase
                for module in self.modules:
                    if phase == STARTUP:  # also one that fails half-way has something to end
                        self._ends.push_async_callback(self._lead, SHUTDOWN, module)
                    await self._lead(phase, module)
                await self._tell(phase)
            if self._taking:  # what was kept is given back once all are ready
                await kept.__aenter__()
        except BaseException:  # also a cancelled start: what had begun is ended
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *error: object) -> None:
        self.phase = SHUTDOWN
        self._ends.push_async_callback(self._tell, SHUTDOWN)
        try:
            await self._ends.aclose()
        finally:
            self._over.set()

    async def _lead(self, phase: str, module: Any) -> None:
        """Let one module do its part of a phase, in bounded time."""
        function = getattr(module, phase.removeprefix("system:"), None)
        given = [self.shared if phase == CONTEXT else self]
        if function is None:
            function, given = getattr(module, USUAL.get(phase, ""), None), []
        if function is None:
            return
        takes = signature(function).parameters
        given = given[: len(takes)]  # it need not take what it is given
        # A thread cannot be stopped from outside: what takes a `timeout` ends before this does.
        more = {"timeout": self._timeout / 2} if phase == SHUTDOWN and "timeout" in takes else {}
        limit, name = asyncio.timeout(self._timeout), name_of(module)
        try:
            async with limit:
                await _awaited(function(*given, **more))
        except Exception as error:
            failed = f"failed with {type(error).__name__}: {error}"
            said = f"took longer than {self._timeout:g} s" if limit.expired() else failed
            text = f"{phase}: the module {name} {said}"
            raise RuntimeStartError(text, name, phase) from error

    async def _tell(self, phase: str) -> None:
        """Tell handlers of a phase, and the log."""
        for _, function in self._handlers.get(phase, ()):
            await _awaited(function({"phase": phase}))
        for module in self.modules:
            if hasattr(module, "emit"):
                module.emit(phase, {"modules": [name_of(one) for one in self.modules]})

    def stop(self) -> None:
        """Let `forever` return; of this event loop's thread."""
        self._over.set()

    async def forever(self) -> None:
        """Wait for `stop`, SIGTERM or SIGINT."""
        loop = asyncio.get_running_loop()
        with ExitStack() as taken:
            for number in (signal.SIGTERM, signal.SIGINT):
                with suppress(RuntimeError, ValueError):  # not in the main thread, or on Windows
                    loop.add_signal_handler(number, self._over.set)
                    taken.callback(loop.remove_signal_handler, number)
            await self._over.wait()


def name_of(module: Any) -> str:
    """What a module is called: its `name`, or that of its class."""
    name = getattr(module, "name", None)
    return name if isinstance(name, str) and name else type(module).__name__


async def _awaited(answer: Any) -> Any:
    return await answer if isinstance(answer, Awaitable) else answer


def plain_of(thing: Any) -> Any:
    """A result as plain data: times as numbers, and as text under a name with `_iso`."""
    if isinstance(thing, datetime):
        return thing.isoformat()
    if isinstance(thing, Page):
        return plain_of(thing.items)
    if isinstance(thing, Mapping):
        return {name: plain_of(one) for name, one in thing.items()}
    if isinstance(thing, list | tuple):
        return [plain_of(one) for one in thing]
    kind: Any = type(thing)
    names = getattr(kind, "__struct_fields__", None) or getattr(kind, "__dataclass_fields__", None)
    if names is None:
        return thing
    times = [f"{name}_iso" for name in names if hasattr(kind, f"{name}_iso")]
    return {name: plain_of(getattr(thing, name)) for name in (*names, *times)}
