"""The async face; its names are exported by `holdfast` itself.

Reads of embedded engines run in the event loop: they take microseconds. A commit at `full` waits
for the disk and runs on the store's one writer thread; at `normal` it runs in the loop, once for
all changes that wait at that moment. What may take long (restore, verify, diff) leaves the loop.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Generator, Iterable, Sequence
from contextlib import AbstractContextManager, asynccontextmanager
from datetime import datetime
from types import TracebackType
from typing import Any, TypeVar

from holdfast import sync
from holdfast.errors import Conflict, InvalidInputError, StoreClosedError
from holdfast.store.cause import acting, cause_now
from holdfast.store.change import Ticket, Written
from holdfast.store.compare import Diff
from holdfast.store.core import Core
from holdfast.store.entries import Cause
from holdfast.store.gates import Gate
from holdfast.store.handles import UPDATES, ChangeParts, LineHandle, StoreHandle
from holdfast.store.history import Plan
from holdfast.store.items import Checkpoint, Entry, Item, Page, Restored, TimelineInfo
from holdfast.store.opening import open_core
from holdfast.store.scopes import Scope
from holdfast.store.verify import Report
from holdfast.store.witness import Position, make_witness, store_identity, store_stats
from holdfast.store.writing import ScopedChange

_T = TypeVar("_T")


class Opening:
    """What `holdfast.open` returns: await it, or use it with `async with`."""

    def __init__(self, url: str, options: dict[str, Any], commit: str | None) -> None:
        self._url = url
        self._options = options
        self._commit = commit
        self._store: Store | None = None

    async def _open(self) -> Store:
        if self._commit not in (None, "thread", "inline"):
            raise InvalidInputError("commit is 'thread' or 'inline'")
        core = await asyncio.to_thread(open_core, self._url, **self._options)
        full = self._options.get("durability", "full") == "full"
        return Store(StoreHandle(core), self._commit or ("thread" if full else "inline"))

    def __await__(self) -> Generator[Any, None, Store]:
        return self._open().__await__()

    async def __aenter__(self) -> Store:
        self._store = await self._open()
        return self._store

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._store is not None:
            await self._store.close()


def open(
    url: str = "sqlite:",
    *,
    key: str | None = None,
    durability: str = "full",
    create: bool = True,
    read_only: bool = False,
    signer: str | None = None,
    identity: str | None = None,
    commit: str | None = None,
    **options: Any,
) -> Opening:
    """Open a store, or create it: `async with holdfast.open(url) as store`, or await it.

    url: `sqlite:PATH` (default `holdfast.db`) or `memory:`.
    key: `file:PATH`, `env:NAME` or `passphrase:TEXT`; a store is encrypted if it is created
        with one. Without it `HOLDFAST_KEY` is used if it is set.
    durability: `full` (a write that returned survives power loss) or `normal` (kill -9).
    create: whether a store may be made where there is none.
    signer: `file:PATH` of the key that signs checkpoints and witnesses.
    identity: what `Store.identity()` gave; another store is refused, and none is created.
    commit: `thread` or `inline`: where commits run; by default `thread` at `full`.
    Further options: `registry` (named types), `limits` (of values), `clock`.
    """
    options |= {
        "key": key if key is not None else os.environ.get("HOLDFAST_KEY"),
        "durability": durability,
        "create": create,
        "read_only": read_only,
        "signer": signer,
        "identity": identity,
    }
    return Opening(url, options, commit)


class _Pump:
    """Commits what waits, and wakes the tasks that wait for it."""

    def __init__(self, core: Core, mode: str) -> None:
        self._core = core
        self._inline = mode == "inline"
        self._wake = threading.Semaphore(0)
        self._thread: threading.Thread | None = None
        self._stopped = False
        self._lock = threading.Lock()
        self._done: dict[asyncio.AbstractEventLoop, deque[asyncio.Future[None]]] = {}
        self._scheduled: set[asyncio.AbstractEventLoop] = set()

    async def commit(self, plan: Plan) -> Any:
        """Commit a change; cancelling withdraws it only while it waits."""
        change, finish = plan
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        if self._stopped:
            raise StoreClosedError("the store is closed; open it again")
        ticket = Ticket(change)
        ticket.on_done = lambda _: self._finished(loop, future)
        self._core.check_writable()
        self._core.committer.submit(ticket)
        self._start(loop)
        try:
            await asyncio.shield(future)
        except asyncio.CancelledError:
            if not self._core.committer.withdraw(ticket):
                await future  # it is on its way: its outcome stands, then the task ends
            raise
        return finish(ticket.outcome())

    def _start(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._inline:
            if loop not in self._scheduled:
                self._scheduled.add(loop)
                loop.call_soon(self._drain, loop)
            return
        if self._thread is None:
            with self._lock:
                if self._thread is None:
                    self._thread = threading.Thread(
                        target=self._work, name="holdfast-writer", daemon=True
                    )
                    self._thread.start()
        self._wake.release()

    def _drain(self, loop: asyncio.AbstractEventLoop) -> None:
        self._scheduled.discard(loop)
        self._core.committer.drain()

    def _work(self) -> None:
        while True:
            self._wake.acquire()
            if self._stopped:
                return
            self._core.committer.drain()

    def _finished(self, loop: asyncio.AbstractEventLoop, future: asyncio.Future[None]) -> None:
        """Wake the waiting task; one call into the loop serves all that finish together."""
        with self._lock:
            waiting = self._done.setdefault(loop, deque())
            waiting.append(future)
            first = len(waiting) == 1
        if first:
            try:
                loop.call_soon_threadsafe(self._resolve, loop)
            except RuntimeError:
                with self._lock:
                    self._done.pop(loop, None)  # the loop is gone, and with it who waited

    def _resolve(self, loop: asyncio.AbstractEventLoop) -> None:
        with self._lock:
            waiting = self._done.pop(loop, deque())
        for future in waiting:
            if not future.done():
                future.set_result(None)

    def stop(self) -> None:
        """Commit what waits and end the writer thread."""
        self._core.committer.drain()
        self._stopped = True
        if self._thread is not None:
            self._wake.release()
            self._thread.join()


class View:
    """The state of one timeline as it was at one entry; it cannot be changed."""

    def __init__(self, handle: LineHandle) -> None:
        self._handle = handle
        self._read = handle.reader

    async def _do(self, function: Callable[..., _T], *args: Any) -> _T:
        """Run a read: here if the engine does not wait for a network, else in a thread."""
        if self._handle.core.storage.limits.embedded:
            return function(*args)
        return await asyncio.to_thread(function, *args)

    @property
    def scope(self) -> Scope:
        """The scope's name."""
        return self._handle.scope

    @property
    def timeline(self) -> str:
        """The timeline's name."""
        return self._handle.timeline

    def place(self) -> tuple[Scope, str, int]:
        """(scope, timeline, entry) that a read made now would see."""
        return self._handle.place()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.scope} {self.timeline}>"

    async def get(self, key: str, default: Any = None, *, as_: Any = None) -> Any:
        """The value of a key, or the default; with `as_`, as an object of that type.

        What is returned belongs to the caller: changing it changes nothing in the store.
        """
        return await self._do(self._read.get, key, default, as_)

    async def get_many(self, keys: Iterable[str]) -> dict[str, Any]:
        """Values of those keys that are there, of one moment."""
        return await self._do(self._read.get_many, keys)

    async def item(self, key: str) -> Item | None:
        """The value of a key with its version, time and cause; None if it is absent."""
        return await self._do(self._read.item, key)

    async def exists(self, key: str) -> bool:
        """Whether a key is there."""
        return await self._do(self._read.exists, key)

    async def keys(
        self, prefix: str = "", *, limit: int | None = None, after: str = ""
    ) -> list[str]:
        """Keys in order; for the next page give the last key as `after`."""
        return await self._do(self._read.keys, prefix, limit, after)

    async def items(
        self, prefix: str = "", *, limit: int | None = None, after: str = ""
    ) -> list[tuple[str, Any]]:
        """Keys and values in order, of one moment."""
        return await self._do(self._read.items, prefix, limit, after)

    async def tail(self, key: str, count: int) -> list[Any]:
        """The last items of a list, without reading the rest."""
        return await self._do(self._read.tail, key, count)

    async def slice(self, key: str, start: int | None = None, stop: int | None = None) -> list[Any]:
        """Items of a list as with Python's slices, without reading the rest."""
        return await self._do(self._read.slice, key, start, stop)

    async def length(self, key: str) -> int:
        """Number of items of a list; 0 if the key is absent."""
        return await self._do(self._read.length, key)

    async def root(self) -> str:
        """Commitment to the whole state: equal for equal states of this scope."""
        return await asyncio.to_thread(self._handle.root)


class State(View):
    """A handle on one timeline of one scope. Making one touches nothing."""

    def __init__(self, handle: LineHandle, pump: _Pump) -> None:
        super().__init__(handle)
        self._pump = pump

    async def _run(self, plan: Plan) -> Any:
        return await self._pump.commit(plan)

    async def set(self, key: str, value: Any, *, if_version: int | None = None) -> int:
        """Set a key; returns the entry's number, which is the key's new version.

        With `if_version` (0: the key must be absent) it is applied only if the key still has
        that version, else `Conflict`. Setting a long value again stores what differs.
        """
        return await self._run(self._handle.plan_set(key, value, if_version))  # type: ignore[no-any-return]

    async def delete(self, key: str, *, if_version: int | None = None) -> bool:
        """Remove a key; tells whether it was there."""
        return await self._run(self._handle.plan_delete(key, if_version))  # type: ignore[no-any-return]

    async def append(self, key: str, item: Any) -> int:
        """Add an item to the end of a list, which is made if the key is absent."""
        return await self._run(self._handle.plan_extend(key, [item]))  # type: ignore[no-any-return]

    async def extend(self, key: str, items: Iterable[Any]) -> int:
        """Add items to the end of a list, as one entry."""
        return await self._run(self._handle.plan_extend(key, items))  # type: ignore[no-any-return]

    async def update(self, key: str, function: Callable[[Any], Any], default: Any = None) -> Any:
        """Set a key to a function of its value; tried again when somebody was faster.

        The function may run several times and should have no effects of its own. Returns what
        it returned last.
        """
        for attempt in range(1, UPDATES + 1):
            plan, after = self._handle.plan_update(key, function, default, attempt)
            try:
                await self._run(plan)
                return after
            except Conflict:
                if attempt == UPDATES:
                    raise
        raise AssertionError

    @asynccontextmanager
    async def change(
        self,
        *,
        reason: str | None = None,
        actor: str | None = None,
        correlation: str | None = None,
        parent: str | None = None,
        id: str | None = None,
    ) -> AsyncIterator[ChangePart]:
        """Several operations as one entry, committed when the block ends without an error.

        What is read inside is expected. With an `id` it is applied once, however often it is
        sent, also after a restart.
        """
        cause = cause_now(actor, reason, correlation, parent)
        parts = ChangeParts(StoreHandle(self._handle.core), cause, id)
        yield ChangePart(parts.part(self._handle))
        plan = parts.plan()
        if plan is not None:
            await self._run(plan)

    async def checkpoint(
        self,
        name: str = "",
        *,
        type: str = "manual",
        tags: Sequence[str] = (),
        description: str = "",
        metadata: dict[str, Any] | None = None,
    ) -> Checkpoint:
        """A named point to return to. Nothing is copied, whatever the state's size."""
        plan = self._handle.plan_checkpoint(name, type, tags, description, metadata)
        return await self._away(plan)  # type: ignore[no-any-return]

    async def _away(self, plan: Plan) -> Any:
        """Commit something whose building may take long: never in the loop."""
        change, finish = plan
        return finish(await asyncio.to_thread(self._handle.core.run, change))

    async def checkpoints(
        self,
        *,
        type: str | None = None,
        tag: str | None = None,
        name: str | None = None,
        limit: int | None = None,
    ) -> list[Checkpoint]:
        """Checkpoints of this timeline, newest first."""
        return await asyncio.to_thread(
            lambda: self._handle.history.checkpoints(type=type, tag=tag, name=name, limit=limit)
        )

    async def restore(
        self,
        point: Any,
        *,
        verify: str = "full",
        reason: str | None = None,
        dry_run: bool = False,
        if_head: int | None = None,
    ) -> Restored:
        """Return to the state at a point, of any timeline of the scope; all or nothing.

        The point is verified first (`full`: every value is read and checked; `references`: every
        record exists; `none`). The state before becomes a checkpoint in the same commit:
        `restore(result.backup)` undoes the restore. A dry run returns the diff and changes
        nothing. With `if_head`, it is refused if other entries were written since that one.
        """
        history = self._handle.history
        if dry_run:
            return await asyncio.to_thread(lambda: history.dry_restore(point, verify=verify))
        plan = await asyncio.to_thread(self._handle.plan_restore, point, verify, reason, if_head)
        return await self._away(plan)  # type: ignore[no-any-return]

    async def adopt(self, timeline: str | State, *, reason: str | None = None) -> Restored:
        """Take over the newest state of another timeline of the scope."""
        other = timeline if isinstance(timeline, State) else self.on(timeline)
        return await self.restore(other, reason=reason or f"adopted {other.timeline}")

    def at(self, point: Any) -> View:
        """The state at a point: an entry, a time, a checkpoint or its name."""
        return View(self._handle.view(point))

    def on(self, timeline: str) -> State:
        """A handle on another timeline of the scope."""
        return State(LineHandle(self._handle.core, self.scope, timeline), self._pump)

    async def fork(self, name: str, *, at: Any = None) -> State:
        """A new timeline that starts from a point (the newest state); nothing is copied."""
        for _ in range(50):
            try:
                plan = await asyncio.to_thread(self._handle.plan_fork, name, at)
                return self.on(await self._away(plan))
            except Conflict as conflict:
                if name in conflict.keys:
                    raise
        raise Conflict(f"{self.scope}: other forks were always faster; try again")

    async def timelines(self) -> list[TimelineInfo]:
        """All timelines of the scope."""
        return await asyncio.to_thread(self._handle.history.timelines)

    async def diff(self, since: Any, until: Any = None) -> Diff:
        """What changed from one point to another, or to the newest state."""
        return await asyncio.to_thread(self._handle.diff, since, until)

    async def log(
        self,
        *,
        key: str | None = None,
        kind: str | None = None,
        actor: str | None = None,
        correlation: str | None = None,
        since: datetime | int | None = None,
        until: datetime | int | None = None,
        limit: int | None = 50,
        newest_first: bool = True,
    ) -> list[Entry]:
        """Entries that fit all that is given; bounds are entries' numbers or times."""
        return await asyncio.to_thread(
            lambda: self._handle.history.log(
                key=key,
                kind=kind,
                actor=actor,
                correlation=correlation,
                since=since,
                until=until,
                limit=limit,
                newest_first=newest_first,
            )
        )

    async def replay(
        self,
        function: Callable[[Any, Entry], Any],
        start: Any = None,
        *,
        since: int = 1,
        until: int | None = None,
    ) -> Any:
        """Lead entries, oldest first, through `function(state, entry) -> state`."""
        return await asyncio.to_thread(self._handle.replay, function, start, since, until)


class ChangePart:
    """The part of a change that concerns one timeline; reads are awaited, writes are noted."""

    def __init__(self, part: ScopedChange) -> None:
        self._part = part
        self.set = part.set
        self.append = part.append
        self.extend = part.extend
        self.delete = part.delete

    async def get(self, key: str, default: Any = None, *, as_: Any = None) -> Any:
        """The value of a key, which must not change until this change is applied."""
        return self._part.get(key, default, as_=as_)

    async def exists(self, key: str) -> bool:
        """Whether a key is there, which must not change until this change is applied."""
        return self._part.exists(key)

    async def keys(self, prefix: str = "") -> list[str]:
        """Keys, none of which may change (the whole timeline) until this change is applied."""
        return self._part.keys(prefix)

    async def tail(self, key: str, count: int) -> list[Any]:
        """The last items of a list, which must not change until this change is applied."""
        return self._part.tail(key, count)

    async def length(self, key: str) -> int:
        """Number of items of a list, which must not change until this change is applied."""
        return self._part.length(key)


class Change:
    """A change over several scopes: `change[state]` is the part for one of them."""

    def __init__(self, parts: ChangeParts) -> None:
        self._parts = parts
        self.entries: list[Written] = []
        """What it became, once the block has ended."""

    def __getitem__(self, state: State) -> ChangePart:
        return ChangePart(self._parts.part(state._handle))


class Store:
    """One opened storage with its keys and its clock."""

    def __init__(self, handle: StoreHandle, mode: str) -> None:
        self._handle = handle
        self._core = handle.core
        self._pump = _Pump(handle.core, mode)
        self._blocking = sync.Store(handle)

    async def __aenter__(self) -> Store:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    def __repr__(self) -> str:
        return repr(self._blocking)

    async def close(self) -> None:
        """Commit what waits and release everything; a second call does nothing."""
        await asyncio.to_thread(self._close)

    def _close(self) -> None:
        if not self._core.closed:
            self._pump.stop()
            self._core.close()

    # scopes

    def scope(self, scope: Scope | str) -> State:
        """The state of a scope given as text (`agent:7`) or value."""
        return State(self._handle.line(scope), self._pump)

    def agent(self, id: str) -> State:
        """The state of an agent."""
        return self.scope(Scope("agent", id))

    def workflow(self, id: str) -> State:
        """The state of a workflow."""
        return self.scope(Scope("workflow", id))

    def step(self, workflow: str, step: str) -> State:
        """The state of one step of a workflow."""
        return self.scope(Scope.step(workflow, step))

    def session(self, id: str) -> State:
        """The state of a session."""
        return self.scope(Scope("session", id))

    def custom(self, name: str) -> State:
        """The state of a namespace of your own."""
        return self.scope(Scope("custom", name))

    @property
    def shared(self) -> State:
        """The state of the one global scope."""
        return self.scope(Scope("global"))

    async def scopes(
        self,
        *,
        kind: str | None = None,
        prefix: str = "",
        limit: int | None = None,
        after: str | None = None,
    ) -> Page:
        """Scopes in the order of their names, by kind and by the beginning of their ids."""
        return await asyncio.to_thread(self._handle.scopes, kind, prefix, limit, after)

    async def delete(self, scope: Scope | str | State) -> None:
        """End a scope with all its timelines. A scope made again under its name starts empty.

        Its records stay in the storage until they are pruned; only erasing makes them unreadable.
        """
        name = scope.scope if isinstance(scope, State) else scope
        await asyncio.to_thread(self._blocking.delete, name)

    # changes

    @asynccontextmanager
    async def change(
        self,
        *,
        reason: str | None = None,
        actor: str | None = None,
        correlation: str | None = None,
        parent: str | None = None,
        id: str | None = None,
    ) -> AsyncIterator[Change]:
        """A change over several scopes: one entry in each, in one commit, or none at all."""
        cause = cause_now(actor, reason, correlation, parent)
        change = Change(ChangeParts(self._handle, cause, id))
        yield change
        plan = change._parts.plan()
        if plan is not None:
            change.entries = await self._pump.commit(plan)

    def acting(
        self,
        actor: str | None = None,
        *,
        reason: str | None = None,
        correlation: str | None = None,
        parent: str | None = None,
        component: str | None = None,
        operation: str | None = None,
    ) -> AbstractContextManager[Cause]:
        """Name the cause of all that this thread or task writes inside the block."""
        return acting(
            actor,
            reason=reason,
            correlation=correlation,
            parent=parent,
            component=component,
            operation=operation,
        )

    def add_gate(self, gate: Gate) -> None:
        """Put a gate behind those that stand in front of every change."""
        self._core.gates.add(gate)

    def remove_gate(self, gate: Gate) -> None:
        """Take a gate away."""
        self._core.gates.remove(gate)

    # following

    async def position(self) -> Position:
        """Where the feed ends now."""
        return await asyncio.to_thread(self._blocking.position)

    async def feed(self, since: Position | None = None) -> AsyncIterator[tuple[Entry, Position]]:
        """Every entry committed since a position (the beginning), and the position behind it.

        Gap-free in any process. Entries of one timeline come in order. It ends where the feed
        ends; ask again with the last position.
        """
        rows = self._blocking.feed(since)
        while page := await asyncio.to_thread(_take, rows, 200):
            for pair in page:
                yield pair

    async def correlated(self, correlation: str, *, limit: int | None = None) -> list[Entry]:
        """Entries of all scopes that carry this correlation, by their time."""
        return await asyncio.to_thread(self._handle.correlated, correlation, limit)

    # proving

    def identity(self) -> str:
        """What to pin elsewhere: which store this is, whether encrypted, and who signs for it."""
        return store_identity(self._core)

    async def witness(self) -> str:
        """A small signed token over all that is in the store now. Keep it elsewhere."""
        return await asyncio.to_thread(make_witness, self._core)

    async def verify(
        self,
        scope: Scope | str | None = None,
        *,
        expect: str | None = None,
        identity: str | None = None,
        budget: float | None = None,
        resume: str | None = None,
        progress: Callable[[str, int], None] | None = None,
    ) -> Report:
        """Check everything that is stored, of one scope or of all; returns a report.

        `expect` takes a witness, `identity` what `identity()` gave. With a `budget` in seconds it
        stops when that is used up, and `resume=report.resume` goes on.
        """
        return await asyncio.to_thread(
            lambda: self._blocking.verify(
                scope,
                expect=expect,
                identity=identity,
                budget=budget,
                resume=resume,
                progress=progress,
            )
        )

    async def stats(self) -> dict[str, Any]:
        """Figures of the store: scopes, entries, bytes, caches."""
        return await asyncio.to_thread(store_stats, self._core)


def _take(rows: Any, count: int) -> list[tuple[Entry, Position]]:
    found = []
    for pair in rows:
        found.append(pair)
        if len(found) == count:
            break
    return found
