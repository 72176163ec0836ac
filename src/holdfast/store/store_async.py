"""The async face of a store; `holdfast` itself exports it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Generator, Sequence
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any

from holdfast.errors import InvalidInputError
from holdfast.seal.limits import ValueLimits
from holdfast.seal.registry import Registry
from holdfast.storage.contract import Storage
from holdfast.store import state as blocking
from holdfast.store.commit.core import Core
from holdfast.store.commit.meter import Metrics
from holdfast.store.commits_async import Pump
from holdfast.store.history.handle import ChangeParts, StoreHandle
from holdfast.store.history.revert_store import revert_store
from holdfast.store.journal.entry import Cause
from holdfast.store.lease.wait_async import StoreLeasing
from holdfast.store.names.blocks import async_block
from holdfast.store.names.cause import acting, cause_now
from holdfast.store.names.clock import Clock
from holdfast.store.names.items import Erased, Page, Reverted
from holdfast.store.names.scope import Scope
from holdfast.store.names.threads import here_or_away, read_away, surely, to_the_end
from holdfast.store.open import open_core
from holdfast.store.open_cache import HOUR
from holdfast.store.proof.verify_report import Report
from holdfast.store.proof.witness import make_witness, store_identity, store_stats
from holdfast.store.rules.gates import Gate
from holdfast.store.state_async import Change, State
from holdfast.store.store_keys_async import StoreKeys, made
from holdfast.store.streams_async import StoreStreaming
from holdfast.store.watch_async import StoreFollowing


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
        core = await to_the_end(open_core, self._url, undo=Core.close, **self._options)
        waits = self._options.get("durability", "full") == "full"
        waits = waits or not core.storage.limits.embedded
        return Store(StoreHandle(core), self._commit or ("thread" if waits else "inline"))

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
    registry: Registry | None = None,
    limits: ValueLimits | None = None,
    clock: Clock | None = None,
    storage: Storage | None = None,
    cache: str | None = None,
    cache_ttl: float = HOUR,
) -> Opening:
    """Open a store, or create it: `async with holdfast.open(url) as store`, or await it.

    url: `sqlite:PATH` (default `holdfast.db`), `memory:`, or of a server (see docs/postgresql.md,
        docs/mongodb.md) `postgresql://` or `mongodb://`, then `USER:PASSWORD@HOST:PORT/DATABASE`.
    key: `file:PATH`, `env:NAME` or `passphrase:TEXT`; a store is encrypted if it is created
        with one. Without it `HOLDFAST_KEY` is used if it is set.
    durability: `full` (a write that returned survives power loss) or `normal` (kill -9).
    create: whether a store may be made where there is none.
    signer: `file:PATH` of the key that signs checkpoints and witnesses; `hybrid:PATH` for one
        that signs with Ed25519 and ML-DSA-65, of a new store.
    identity: what `Store.identity()` gave; another store is refused, and none is created.
    commit: `thread` or `inline`: where commits run; by default `thread` at `full`, and where
        the storage is on a server.
    registry, limits, clock: of named types, of values, and for times.
    storage: an engine of your own, already open; see docs/storage-engines.md. With a key, the URL
        says where the ring lies: beside the file that it names.
    cache: `redis://USER:PASSWORD@HOST:PORT/NUMBER`, asked for values before the storage is, and
        `cache_ttl`, seconds for which it keeps them; see docs/redis.md.
    """
    options = {
        "key": key,
        "durability": durability,
        "create": create,
        "read_only": read_only,
        "signer": signer,
        "identity": identity,
        "registry": registry,
        "limits": limits,
        "clock": clock,
        "storage": storage,
        "cache": cache,
        "cache_ttl": cache_ttl,
    }
    return Opening(url, options, commit)


class Store(StoreKeys, StoreFollowing, StoreStreaming, StoreLeasing):
    """One opened storage with its keys and its clock."""

    def __init__(self, handle: StoreHandle, mode: str) -> None:
        self._handle = handle
        self._core = handle.core
        self._pump = Pump(handle.core, mode)
        self._blocking = blocking.Store(handle)

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
        await surely(self._close)

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
        return await read_away(self._handle.scopes, kind, prefix, limit, after)

    async def delete(self, scope: Scope | str | State) -> None:
        """End a scope with all its timelines. A scope made again under its name starts empty.

        Its records stay in the storage, as all history does; `erase` removes them. Refused, with
        `StillNeededError`, while a checkpoint of it is on hold.
        """
        state = blocking.State(self._handle.of(scope))
        await to_the_end(self._blocking.delete, state)

    async def erase(
        self, scope: Scope | str | State, *, wait: bool = True, despite_holds: bool = False
    ) -> Erased:
        """End a scope and remove its content, its rows and its key; see `Erased` for what stays.

        `wait=False`: in an encrypted store it returns when the key is gone, however much the scope
        holds; `sweep` drops the rows. Refused, with `StillNeededError`, while a checkpoint of it is
        on hold or its state, which would tell of that, cannot be read, unless `despite_holds` says
        that the erasing counts for more.
        """
        state = blocking.State(self._handle.of(scope))
        return await to_the_end(self._blocking.erase, state, wait=wait, despite_holds=despite_holds)

    # changes

    @async_block
    async def change(
        self,
        *,
        reason: str | None = None,
        actor: str | None = None,
        correlation: str | None = None,
        parent: str | None = None,
        id: str | None = None,
    ) -> AsyncIterator[Change]:
        """One entry in each of several scopes, or none at all; its `id` is the store's own."""
        cause = cause_now(actor, reason, correlation, parent)
        change = Change(ChangeParts(self._handle, cause, id))
        yield change
        await made(self._core, change._parts.subjects)
        plan = await here_or_away(self._core.storage, change._parts.plan, away=to_the_end)
        if plan is not None:
            change.entries = await self._pump.commit(plan)

    async def revert(
        self, *, correlation: str, dry_run: bool = False, reason: str | None = None
    ) -> list[Reverted]:
        """Undo what a correlation did in all scopes, as one change; see `State.revert`."""
        return await to_the_end(
            lambda: revert_store(self._handle, correlation, dry_run=dry_run, reason=reason)
        )

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

    # proving

    def identity(self) -> str:
        """What to pin elsewhere: which store this is, whether encrypted, and who signs for it."""
        return store_identity(self._core)

    async def witness(self) -> str:
        """A small signed token over all that is in the store now. Keep it elsewhere."""
        return await to_the_end(make_witness, self._core)

    async def verify(
        self,
        scope: Scope | str | State | None = None,
        *,
        expect: str | None = None,
        identity: str | None = None,
        trust: Sequence[str] = (),
        require: int | None = None,
        budget: float | None = None,
        resume: str | None = None,
        parallel: bool = False,
        progress: Callable[[str, int], None] | None = None,
    ) -> Report:
        """Check everything that is stored, of one scope or of all; returns a report.

        `expect` takes a witness, `identity` what `identity()` gave. With `trust`, public keys, each
        checkpoint must be signed by `require` (1) of them. With a `budget` in seconds it
        stops when that is used up, and `resume=report.resume` goes on: between two entries, so
        that one entry with all its values is the least that a call does. What is not divided
        comes on top: the feed and the directory, which every call reads, what is kept below a
        pruned timeline's floor, long values that were written in pieces, and at the end rows that
        nothing accounts for, and the engine's own check. With `parallel`, a second
        Python process helps with scopes of over 50,000 entries in a SQLite file; it is given the
        keys of the scope through a pipe, and needs some 100 MB. A budget goes without.
        """
        return await to_the_end(
            lambda: self._blocking.verify(
                self._handle.of(scope).scope if scope is not None else None,
                expect=expect,
                identity=identity,
                trust=trust,
                require=require,
                budget=budget,
                resume=resume,
                parallel=parallel,
                progress=progress,
            )
        )

    async def stats(self) -> dict[str, Any]:
        """Figures of the store: scopes, entries, bytes, caches."""
        return await read_away(store_stats, self._core)

    def metrics(self) -> Metrics:
        """What was counted and timed since this store was opened, in this process."""
        return self._core.meter.read()
