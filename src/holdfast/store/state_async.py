"""The async face of a scope's state.

Reads of embedded engines run in the event loop: they take microseconds. What may take long
(restore, diff, log, long values) leaves it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any, TypeVar

from holdfast.errors import Conflict
from holdfast.store import state as blocking
from holdfast.store.commit.change import Written
from holdfast.store.commits_async import Pump, pump_of, subjects_made
from holdfast.store.history.checkpoint import Plan
from holdfast.store.history.handle import UPDATES, ChangeParts, LineHandle, plan_trim
from holdfast.store.history.restore import settle_after
from holdfast.store.journal.lifetime import NEVER, Terms, asked_expiry, asked_terms
from holdfast.store.made import MadeState, MadeView
from holdfast.store.names.arguments import listed
from holdfast.store.names.blocks import async_block
from holdfast.store.names.cause import cause_now
from holdfast.store.names.items import Checkpoint, Item, Page, Position
from holdfast.store.names.scope import Scope
from holdfast.store.names.threads import MUCH, here_or_away, to_the_end
from holdfast.store.read.change_block import ScopedChange
from holdfast.store.rules.keep import trim_of
from holdfast.store.streams_async import ReadStream, WriteStream
from holdfast.store.tree.value import copied, copied_plain, is_longer
from holdfast.store.watch_async import Watch

_T = TypeVar("_T")


class View(MadeView):
    """The state of one timeline as it was at one entry; it cannot be changed."""

    __blocking__: type = blocking.View

    @classmethod
    def _of(cls, found: blocking.View) -> View:
        """The async face of a blocking view."""
        return cls(found._handle)

    @property
    def _blocking(self) -> blocking.View:
        return blocking.View(self._handle)

    def __init__(self, handle: LineHandle) -> None:
        self._handle = handle
        self._read = handle.reader
        self._storage = handle.core.storage

    def _do(self, function: Callable[..., _T], *args: Any) -> Awaitable[_T]:
        """Run a read: here if it is little and waits for no network, else in a thread."""
        return here_or_away(self._storage, function, *args)

    @property
    def scope(self) -> Scope:
        return self._handle.scope

    @property
    def timeline(self) -> str:
        return self._handle.timeline

    async def get(
        self, key: str, default: Any = None, *, as_: Any = None, plain: bool = False
    ) -> Any:
        return await here_or_away(self._storage, self._read.get, key, default, as_, plain)

    async def get_many(self, keys: Iterable[str], *, plain: bool = False) -> dict[str, Any]:
        names = listed(keys, "get_many")  # an iterator gives them once, and it may be begun anew
        return await here_or_away(self._storage, self._read.get_many, names, plain)

    async def item(self, key: str) -> Item | None:
        return await here_or_away(self._storage, self._read.item, key)

    async def exists(self, key: str) -> bool:
        return await here_or_away(self._storage, self._read.exists, key)

    async def keys(
        self, prefix: str = "", *, limit: int | None = None, after: str = ""
    ) -> list[str]:
        return await here_or_away(self._storage, self._read.keys, prefix, limit, after)

    async def items(
        self, prefix: str = "", *, limit: int | None = None, after: str = "", plain: bool = False
    ) -> list[tuple[str, Any]]:
        return await here_or_away(self._storage, self._read.items, prefix, limit, after, plain)

    async def tail(self, key: str, count: int, *, plain: bool = False) -> list[Any]:
        return await here_or_away(self._storage, self._read.tail, key, count, plain)

    async def slice(
        self, key: str, start: int | None = None, stop: int | None = None, *, plain: bool = False
    ) -> list[Any]:
        return await here_or_away(self._storage, self._read.slice, key, start, stop, plain)

    async def length(self, key: str) -> int:
        return await here_or_away(self._storage, self._read.length, key)

    def open_read(self, key: str) -> ReadStream:
        return ReadStream(self._handle, key)


class State(View, MadeState):
    """A handle on one timeline of one scope. Making one touches nothing."""

    __blocking__ = blocking.State

    @classmethod
    def _of(cls, found: blocking.View) -> State:
        """The async face of a blocking state; it commits as its store does."""
        return cls(found._handle, pump_of(found._handle.core))

    @property
    def _blocking(self) -> blocking.State:
        return blocking.State(self._handle)

    def __init__(self, handle: LineHandle, pump: Pump) -> None:
        super().__init__(handle)
        self._pump = pump

    async def _run(self, plan: Plan) -> Any:
        return await self._pump.commit(plan)

    async def _make(self, plan: Callable[..., Plan], *args: Any) -> Any:
        """Plan a change, which may look up its scope, and commit it."""
        return await self._pump.commit(await self._plan(plan, *args))

    def _plan(self, function: Callable[..., _T], *args: Any) -> Awaitable[_T]:
        return here_or_away(self._storage, function, *args, away=to_the_end)

    async def _write(
        self, plan: Callable[..., Plan], key: str, value: Any, subject: str | None, *args: Any
    ) -> Any:
        """Plan and commit a change to a value as it is now, whatever its owner does while it waits.

        If nothing waits before it is encoded, for a network, a subject's key or a thread, it need
        not be copied. What is long is encoded on a thread, if it is plain data.
        """
        own = copied_plain(value) if is_longer(value, MUCH) else None
        if own is None and (subject is not None or not self._storage.limits.embedded):
            value = copied(value)
        await subjects_made(self._handle.core, [subject])
        if own is None:
            return await self._make(plan, key, value, *args, subject)
        return await self._pump.commit(await to_the_end(plan, key, own, *args, subject))

    async def set(
        self,
        key: str,
        value: Any,
        *,
        if_version: int | None = None,
        ttl: float | timedelta | None = None,
        expires: datetime | None = None,
        sliding: bool = False,
        class_: str | None = None,
        subject: str | None = None,
    ) -> int:
        terms = asked_terms(ttl, expires, sliding, class_)
        return await self._write(self._handle.plan_set, key, value, subject, if_version, terms)  # type: ignore[no-any-return]

    async def delete(self, key: str, *, if_version: int | None = None) -> bool:
        plan = await self._do(self._handle.plan_delete, key, if_version)
        return plan is not None and await self._pump.commit(plan)

    async def append(self, key: str, item: Any, *, subject: str | None = None) -> int:
        return await self._write(self._handle.plan_extend, key, [item], subject)  # type: ignore[no-any-return]

    async def extend(self, key: str, items: Iterable[Any], *, subject: str | None = None) -> int:
        return await self._write(self._handle.plan_extend, key, listed(items, "extend"), subject)  # type: ignore[no-any-return]

    async def update(self, key: str, function: Callable[[Any], Any], default: Any = None) -> Any:
        make = self._handle.plan_update
        for attempt in range(1, UPDATES + 1):
            plan, after = await self._plan(make, key, function, default, attempt)
            try:
                await self._run(plan)
                return after
            except Conflict:
                if attempt == UPDATES:
                    raise
        raise AssertionError

    @async_block
    async def change(
        self,
        *,
        reason: str | None = None,
        actor: str | None = None,
        correlation: str | None = None,
        parent: str | None = None,
        id: str | None = None,
    ) -> AsyncIterator[ChangePart]:
        cause = cause_now(actor, reason, correlation, parent)
        parts = ChangeParts(self._handle, cause, id)
        yield ChangePart(parts.part(self._handle))
        await subjects_made(self._handle.core, parts.subjects)
        plan = await self._plan(parts.plan)
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
        make = self._handle.plan_checkpoint
        plan = await self._do(make, name, type, tags, description, copied(metadata))
        return await self._pump.commit(plan, away=True)  # type: ignore[no-any-return]

    def on(self, timeline: str) -> State:
        return State(self._handle.on(timeline), self._pump)

    async def fork(self, name: str, *, at: Any = None) -> State:
        for _ in range(50):
            try:
                plan = await self._pump.plan(self.scope, self._handle.plan_fork, name, at)
                built = await self._pump.commit(plan, away=True)  # many share a commit
            except Conflict as conflict:
                if name in conflict.keys:
                    raise
                continue
            fork = self.on(name)
            if not built:
                await to_the_end(settle_after, fork._handle)
            return fork
        raise Conflict(f"{self.scope}: other forks were always faster; try again")

    async def trim(
        self,
        key: str,
        *,
        keep_last: int | None = None,
        before: int | None = None,
        if_version: int | None = None,
    ) -> int:
        trim = trim_of(keep_last, before)
        plan = await self._do(plan_trim, self._handle, key, trim, if_version)
        return await self._pump.commit(plan) if plan is not None else 0

    async def expire(
        self,
        key: str,
        ttl: float | timedelta | None = None,
        *,
        expires: datetime | None = None,
        sliding: bool = False,
    ) -> int:
        return await self._last(key, asked_expiry(ttl, expires, sliding))

    async def persist(self, key: str) -> int:
        return await self._last(key, NEVER)

    async def _last(self, key: str, terms: Terms) -> int:
        plan = await self._do(self._handle.plan_expire, key, terms)
        if plan is None:
            return (await self._do(self._handle.place))[2]
        return await self._pump.commit(plan)  # type: ignore[no-any-return]

    def open_write(self, key: str, *, if_version: int | None = None) -> WriteStream:
        return WriteStream(self._handle, key, if_version)

    def watch(
        self,
        *,
        prefix: str = "",
        pattern: str | None = None,
        since: Position | None = None,
        timeout: float | None = None,
        past_pruned: bool = False,
    ) -> Watch:
        line = self._handle
        place = (line.core, line.scope, line.timeline)
        return Watch(*place, prefix, pattern, since, timeout, past_pruned)


class ChangePart:
    """The part of a change that concerns one timeline; reads are awaited, writes are noted."""

    def __init__(self, part: ScopedChange) -> None:
        self._part = part
        self._storage = part.storage
        self.set = part.set
        self.append = part.append
        self.extend = part.extend
        self.delete = part.delete
        self.expire = part.expire
        self.persist = part.persist
        self.trim = part.trim

    @property
    def repeated(self) -> bool:
        """Once the block has ended: whether it had been applied before, and so was not now."""
        return self._part.repeated

    async def get(self, key: str, default: Any = None, *, as_: Any = None) -> Any:
        """The value of a key, which must not change until this change is applied."""
        return await here_or_away(self._storage, partial(self._part.get, key, default, as_=as_))

    async def exists(self, key: str) -> bool:
        """Whether a key is there, which must not change until this change is applied."""
        return await here_or_away(self._storage, self._part.exists, key)

    async def keys(self, prefix: str = "") -> list[str]:
        """Keys, none of which may change (the whole timeline) until this change is applied."""
        return await here_or_away(self._storage, self._part.keys, prefix)

    async def find(
        self, lookup: str, where: Mapping[str, Any] | None = None, /, **asked: Any
    ) -> Page:
        """What a lookup leads to, asked as in `State.find`, of a timeline that must not change."""
        return await here_or_away(self._storage, partial(self._part.find, lookup, where, **asked))

    async def tail(self, key: str, count: int) -> list[Any]:
        """The last items of a list, which must not change until this change is applied."""
        return await here_or_away(self._storage, self._part.tail, key, count)

    async def length(self, key: str) -> int:
        """Number of items of a list, which must not change until this change is applied."""
        return await here_or_away(self._storage, self._part.length, key)


class Change:
    """A change over several scopes: `change[state]` is the part for one of them."""

    def __init__(self, parts: ChangeParts) -> None:
        self._parts = parts
        self.entries: list[Written] = []
        """What it became, once the block has ended."""

    def __getitem__(self, state: State | Scope | str) -> ChangePart:
        return ChangePart(self._parts.part(state))

    @property
    def repeated(self) -> bool:
        """Once the block has ended: whether it had been applied before, and so was not now."""
        return self._parts.repeated
