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
from holdfast.store.commit.lookup_build import settle_after
from holdfast.store.commit.request import ScopedChange
from holdfast.store.commits_async import Pump
from holdfast.store.history.blame import Blame, blame_value
from holdfast.store.history.checkpoint import Plan
from holdfast.store.history.handle import UPDATES, ChangeParts, LineHandle
from holdfast.store.history.revert import revert_state
from holdfast.store.journal.lifetime import asked_terms
from holdfast.store.names.arguments import listed
from holdfast.store.names.blocks import async_block
from holdfast.store.names.cause import cause_now
from holdfast.store.names.items import (
    Checkpoint,
    Entry,
    Item,
    Page,
    Restored,
    Reverted,
    TimelineInfo,
)
from holdfast.store.names.scope import Scope
from holdfast.store.names.threads import MUCH, here_or_away, read_away, to_the_end
from holdfast.store.state_declarations_async import StateDeclaring, StateTrimming, ViewDeclaring
from holdfast.store.state_expiry_async import StateLasting
from holdfast.store.state_lookups_async import StateLookups, ViewFinding
from holdfast.store.state_merge import AsyncStateMerging
from holdfast.store.state_proofs_async import StateProving
from holdfast.store.state_prune import AsyncStatePruning
from holdfast.store.store_keys_async import made
from holdfast.store.streams_async import StateStreaming, ViewStreaming
from holdfast.store.tree.difference import Diff
from holdfast.store.tree.value_copy import copied, copied_plain, is_longer
from holdfast.store.watch_async import LineFollowing

_T = TypeVar("_T")


class View(ViewDeclaring, ViewFinding, ViewStreaming):
    """The state of one timeline as it was at one entry; it cannot be changed."""

    def __init__(self, handle: LineHandle) -> None:
        self._handle = handle
        self._read = handle.reader
        self._storage = handle.core.storage

    def _do(self, function: Callable[..., _T], *args: Any) -> Awaitable[_T]:
        """Run a read: here if it is little and waits for no network, else in a thread."""
        return here_or_away(self._storage, function, *args)

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

    async def get(
        self, key: str, default: Any = None, *, as_: Any = None, plain: bool = False
    ) -> Any:
        """The value of a key, or the default; with `as_`, as an object of that type.

        With `plain=True`, here and in the reads below, objects are not built but given as
        `Typed`, so that a program without their classes can read them. What is returned belongs
        to the caller: changing it changes nothing in the store.
        """
        return await here_or_away(self._storage, self._read.get, key, default, as_, plain)

    async def get_many(self, keys: Iterable[str], *, plain: bool = False) -> dict[str, Any]:
        """Values of those keys that are there, of one moment."""
        names = listed(keys, "get_many")  # an iterator gives them once, and it may be begun anew
        return await here_or_away(self._storage, self._read.get_many, names, plain)

    async def item(self, key: str) -> Item | None:
        """The value of a key with its version, time and cause; None if it is absent."""
        return await here_or_away(self._storage, self._read.item, key)

    async def exists(self, key: str) -> bool:
        """Whether a key is there."""
        return await here_or_away(self._storage, self._read.exists, key)

    async def class_of(self, key: str) -> str:
        """The state class of a key; of one that is absent, what it would have."""
        return await here_or_away(self._storage, self._read.class_of, key)

    async def keys(
        self, prefix: str = "", *, limit: int | None = None, after: str = ""
    ) -> list[str]:
        """Keys in order; for the next page give the last key as `after`."""
        return await here_or_away(self._storage, self._read.keys, prefix, limit, after)

    async def items(
        self, prefix: str = "", *, limit: int | None = None, after: str = "", plain: bool = False
    ) -> list[tuple[str, Any]]:
        """Keys and values in order, of one moment."""
        return await here_or_away(self._storage, self._read.items, prefix, limit, after, plain)

    async def tail(self, key: str, count: int, *, plain: bool = False) -> list[Any]:
        """The last items of a list, without reading the rest."""
        return await here_or_away(self._storage, self._read.tail, key, count, plain)

    async def slice(
        self, key: str, start: int | None = None, stop: int | None = None, *, plain: bool = False
    ) -> list[Any]:
        """Items of a list as with Python's slices, without reading the rest."""
        return await here_or_away(self._storage, self._read.slice, key, start, stop, plain)

    async def length(self, key: str) -> int:
        """Number of items of a list; 0 if the key is absent."""
        return await here_or_away(self._storage, self._read.length, key)

    async def root(self) -> str:
        """Commitment to the whole state: equal for equal states of this scope."""
        return await read_away(self._handle.root)


class State(
    View,
    LineFollowing,
    StateDeclaring,
    StateTrimming,
    StateLookups,
    StateStreaming,
    AsyncStateMerging,
    StateProving,
    AsyncStatePruning,
    StateLasting,
):
    """A handle on one timeline of one scope. Making one touches nothing."""

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
        await made(self._handle.core, [subject])
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
        """Set a key; returns the entry's number, which is the key's new version.

        With `if_version` (0: the key must be absent) it is applied only if the key still has
        that version, else `Conflict`. Setting a long value again stores what differs. With `ttl`
        (seconds) or `expires` it is absent from then on; with `sliding`, reads begin the term anew.
        `class_` names the state class, if it is not the one declared or told by the key. With
        `subject` it is sealed for that person: `Store.erase_subject` closes it for ever.
        """
        terms = asked_terms(ttl, expires, sliding, class_)
        return await self._write(self._handle.plan_set, key, value, subject, if_version, terms)  # type: ignore[no-any-return]

    async def delete(self, key: str, *, if_version: int | None = None) -> bool:
        """Remove a key; tells whether it was there."""
        plan = await self._do(self._handle.plan_delete, key, if_version)
        return plan is not None and await self._pump.commit(plan)

    async def append(self, key: str, item: Any, *, subject: str | None = None) -> int:
        """Add an item to the end of a list, which is made if the key is absent."""
        return await self._write(self._handle.plan_extend, key, [item], subject)  # type: ignore[no-any-return]

    async def extend(self, key: str, items: Iterable[Any], *, subject: str | None = None) -> int:
        """Add items to the end of a list, as one entry."""
        return await self._write(self._handle.plan_extend, key, listed(items, "extend"), subject)  # type: ignore[no-any-return]

    async def update(self, key: str, function: Callable[[Any], Any], default: Any = None) -> Any:
        """Set a key to a function of its value; tried again when somebody was faster.

        The function may run several times and should have no effects of its own. Returns what
        it returned last.
        """
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
        """Several operations as one entry, committed when the block ends without an error.

        What is read inside is expected. With an `id` it is applied once, however often it is
        sent, also after a restart, and also after a restore to before it; `repeated` tells. Under
        an id of another change, or of another timeline, it is refused.
        """
        cause = cause_now(actor, reason, correlation, parent)
        parts = ChangeParts(self._handle, cause, id)
        yield ChangePart(parts.part(self._handle))
        await made(self._handle.core, parts.subjects)
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
        """A named point to return to. Nothing is copied, whatever the state's size."""
        make = self._handle.plan_checkpoint
        plan = await self._do(make, name, type, tags, description, copied(metadata))
        return await self._pump.commit(plan, away=True)  # type: ignore[no-any-return]

    async def checkpoints(
        self,
        *,
        type: str | None = None,
        tag: str | None = None,
        name: str | None = None,
        limit: int | None = None,
    ) -> list[Checkpoint]:
        """Checkpoints of this timeline, newest first."""
        return await read_away(
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
        past_damage: bool = False,
    ) -> Restored:
        """Return to the state at a point, of any timeline of the scope; all or nothing.

        The point is verified first (`full`: every value is read and checked; `references`: every
        record exists; `none`). The state before becomes a checkpoint in the same commit:
        `restore(result.backup)` undoes the restore. A dry run returns the diff and changes
        nothing. With `if_head`, it is refused if other entries were written since that one.

        If damaged entries keep the newest state from being read, a restore is refused unless
        `past_damage` is given: then nothing can be kept of that state, and the result says why.
        """
        return await to_the_end(
            blocking.State(self._handle).restore,
            point,
            verify=verify,
            reason=reason,
            dry_run=dry_run,
            if_head=if_head,
            past_damage=past_damage,
        )

    async def adopt(self, timeline: str | State, *, reason: str | None = None) -> Restored:
        """Take over the newest state of another timeline of the scope."""
        other = timeline if isinstance(timeline, State) else self.on(timeline)
        return await self.restore(other, reason=reason or f"adopted {other.timeline}")

    def at(self, point: Any) -> View:
        """The state at a point: an entry, a time, a checkpoint or its name."""
        return View(self._handle.view(point))

    def on(self, timeline: str) -> State:
        """A handle on another timeline of the scope."""
        return State(self._handle.on(timeline), self._pump)

    async def fork(self, name: str, *, at: Any = None) -> State:
        """A new timeline that starts from a point (the newest state); nothing is copied."""
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

    async def timelines(self) -> list[TimelineInfo]:
        """All timelines of the scope."""
        return await read_away(self._handle.history.timelines)

    async def diff(
        self, since: Any, until: Any = None, *, reveal: bool = False, plain: bool = False
    ) -> Diff:
        """What changed from one point to another, or to the newest state.

        Values of class sensitive are masked, unless `reveal` is given. Registered objects are
        compared by field; where one differs as a whole it is built, or with `plain` given as a
        `Typed`, as `get` does.
        """
        return await read_away(self._handle.diff, since, until, reveal, plain)

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
        """Entries that fit all that is given; bounds are entries' numbers or times.

        With a key: those that changed what it holds, restores among them, and the fork that a
        timeline began with if it had the key then. What came before is in the other timeline.
        """
        return await read_away(
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

    async def revert(
        self,
        *,
        correlation: str | None = None,
        entries: Iterable[Any] | None = None,
        actor: str | None = None,
        dry_run: bool = False,
        reason: str | None = None,
    ) -> Reverted:
        """Undo what some entries did: all of a correlation, those given, or all of an actor.

        Each key that they changed goes back to what it was before the first of them, in one new
        entry, which can be reverted in turn. A key that somebody else changed since is left alone
        and named in `left`, with their entry. Checkpoints, restores and forks stay.
        """
        return await to_the_end(
            lambda: revert_state(
                self._handle,
                correlation=correlation,
                entries=entries,
                actor=actor,
                dry_run=dry_run,
                reason=reason,
            )
        )

    async def blame(
        self,
        key: str,
        path: str | Sequence[str | int] | None = None,
        *,
        limit: int = 1000,
        reveal: bool = False,
    ) -> Blame:
        """Who wrote each part of a value: for each field and item the entry that gave it.

        `path` (`steps[3].done`, or `["steps", 3, "done"]`) asks for one part only. At most `limit`
        versions of the key are looked at; what is older than those is marked so. Values of class
        sensitive are masked, unless `reveal` is given.
        """
        return await read_away(blame_value, self._handle, key, path, limit, reveal)

    async def replay(
        self,
        function: Callable[[Any, Entry], Any],
        start: Any = None,
        *,
        since: int = 1,
        until: int | None = None,
    ) -> Any:
        """Lead entries, oldest first, through `function(state, entry) -> state`."""
        return await read_away(self._handle.replay, function, start, since, until)


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
