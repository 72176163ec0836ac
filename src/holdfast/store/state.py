"""The blocking face of a store; `holdfast.sync` exports it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from datetime import datetime, timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Any

from holdfast.errors import Conflict
from holdfast.store.commit.change import Written
from holdfast.store.commit.lookup_build import settle_after
from holdfast.store.commit.request import ScopedChange
from holdfast.store.history.checkpoint import Plan
from holdfast.store.history.handle import UPDATES, ChangeParts, LineHandle, StoreHandle
from holdfast.store.history.restore import restore_state
from holdfast.store.journal.entry import Cause
from holdfast.store.journal.lifetime import asked_terms
from holdfast.store.lease.wait import StoreLeasing
from holdfast.store.names.arguments import (
    check_flag,
)
from holdfast.store.names.blocks import block
from holdfast.store.names.cause import acting, cause_now
from holdfast.store.names.items import Checkpoint, Entry, Item, Page, Restored, TimelineInfo
from holdfast.store.names.scope import Scope
from holdfast.store.read.watch import LineFollowing, StoreFollowing
from holdfast.store.rules.gates import Gate
from holdfast.store.rules.trim import StateTrimming
from holdfast.store.state_declarations import StateDeclaring, ViewDeclaring
from holdfast.store.state_expiry import StateLasting
from holdfast.store.state_lookups import StateLookups, ViewFinding
from holdfast.store.state_merge import StateMerging
from holdfast.store.state_proofs import StateProving, StoreProving
from holdfast.store.state_prune import StatePruning
from holdfast.store.state_revert import StateUndoing, StoreUndoing
from holdfast.store.state_streams import StateStreaming, StoreStreaming, ViewStreaming
from holdfast.store.store_keys import StoreKeys
from holdfast.store.tree.difference import Diff
from holdfast.store.upkeep.erase import erase_scope

if TYPE_CHECKING:
    from holdfast.store.names.items import Erased


class View(ViewDeclaring, ViewFinding, ViewStreaming):
    """The state of one timeline as it was at one entry; it cannot be changed."""

    def __init__(self, handle: LineHandle) -> None:
        self._handle = handle
        self._read = handle.reader

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

    def get(self, key: str, default: Any = None, *, as_: Any = None, plain: bool = False) -> Any:
        """The value of a key, or the default; with `as_`, as an object of that type.

        With `plain=True`, here and in the reads below, objects are not built but given as
        `Typed`, so that a program without their classes can read them. What is returned belongs
        to the caller: changing it changes nothing in the store.
        """
        return self._read.get(key, default, as_, plain)

    def get_many(self, keys: Iterable[str], *, plain: bool = False) -> dict[str, Any]:
        """Values of those keys that are there, of one moment."""
        return self._read.get_many(keys, plain)

    def item(self, key: str) -> Item | None:
        """The value of a key with its version, time and cause; None if it is absent."""
        return self._read.item(key)

    def exists(self, key: str) -> bool:
        """Whether a key is there."""
        return self._read.exists(key)

    def class_of(self, key: str) -> str:
        """The state class of a key; of one that is absent, what it would have."""
        return self._read.class_of(key)

    def keys(self, prefix: str = "", *, limit: int | None = None, after: str = "") -> list[str]:
        """Keys in order; for the next page give the last key as `after`."""
        return self._read.keys(prefix, limit, after)

    def items(
        self, prefix: str = "", *, limit: int | None = None, after: str = "", plain: bool = False
    ) -> list[tuple[str, Any]]:
        """Keys and values in order, of one moment."""
        return self._read.items(prefix, limit, after, plain)

    def tail(self, key: str, count: int, *, plain: bool = False) -> list[Any]:
        """The last items of a list, without reading the rest."""
        return self._read.tail(key, count, plain)

    def slice(
        self, key: str, start: int | None = None, stop: int | None = None, *, plain: bool = False
    ) -> list[Any]:
        """Items of a list as with Python's slices, without reading the rest."""
        return self._read.slice(key, start, stop, plain)

    def length(self, key: str) -> int:
        """Number of items of a list; 0 if the key is absent."""
        return self._read.length(key)

    def root(self) -> str:
        """Commitment to the whole state: equal for equal states of this scope."""
        return self._handle.root()


class State(
    View,
    LineFollowing,
    StateUndoing,
    StateDeclaring,
    StateTrimming,
    StateLookups,
    StateStreaming,
    StateMerging,
    StateProving,
    StatePruning,
    StateLasting,
):
    """A handle on one timeline of one scope. Making one touches nothing."""

    def _run(self, plan: Plan) -> Any:
        change, finish = plan
        return finish(self._handle.core.run(change))

    def set(
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
        return self._run(self._handle.plan_set(key, value, if_version, terms, subject))  # type: ignore[no-any-return]

    def delete(self, key: str, *, if_version: int | None = None) -> bool:
        """Remove a key; tells whether it was there."""
        plan = self._handle.plan_delete(key, if_version)
        return plan is not None and self._run(plan)

    def append(self, key: str, item: Any, *, subject: str | None = None) -> int:
        """Add an item to the end of a list, which is made if the key is absent."""
        return self._run(self._handle.plan_extend(key, [item], subject))  # type: ignore[no-any-return]

    def extend(self, key: str, items: Iterable[Any], *, subject: str | None = None) -> int:
        """Add items to the end of a list, as one entry."""
        return self._run(self._handle.plan_extend(key, items, subject))  # type: ignore[no-any-return]

    def update(self, key: str, function: Callable[[Any], Any], default: Any = None) -> Any:
        """Set a key to a function of its value; tried again when somebody was faster.

        The function may run several times and should have no effects of its own. Returns what
        it returned last.
        """
        for attempt in range(1, UPDATES + 1):
            plan, after = self._handle.plan_update(key, function, default, attempt)
            try:
                self._run(plan)
                return after
            except Conflict:
                if attempt == UPDATES:
                    raise
        raise AssertionError

    @block
    def change(
        self,
        *,
        reason: str | None = None,
        actor: str | None = None,
        correlation: str | None = None,
        parent: str | None = None,
        id: str | None = None,
    ) -> Iterator[ScopedChange]:
        """Several operations as one entry, committed when the block ends without an error.

        What is read inside is expected. With an `id` it is applied once, however often it is
        sent, also after a restart, and also after a restore to before it; `repeated` tells. Under
        an id of another change, or of another timeline, it is refused.
        """
        cause = cause_now(actor, reason, correlation, parent)
        parts = ChangeParts(self._handle, cause, id)
        yield parts.part(self._handle)
        plan = parts.plan()
        if plan is not None:
            self._run(plan)

    def checkpoint(
        self,
        name: str = "",
        *,
        type: str = "manual",
        tags: Sequence[str] = (),
        description: str = "",
        metadata: dict[str, Any] | None = None,
    ) -> Checkpoint:
        """A named point to return to. Nothing is copied, whatever the state's size."""
        return self._run(self._handle.plan_checkpoint(name, type, tags, description, metadata))  # type: ignore[no-any-return]

    def checkpoints(
        self,
        *,
        type: str | None = None,
        tag: str | None = None,
        name: str | None = None,
        limit: int | None = None,
    ) -> list[Checkpoint]:
        """Checkpoints of this timeline, newest first."""
        return self._handle.history.checkpoints(type=type, tag=tag, name=name, limit=limit)

    def restore(
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
        if check_flag(dry_run, "dry_run"):
            return self._handle.history.dry_restore(point, verify=verify)
        return restore_state(self._handle, point, verify, reason, if_head, past_damage)[0]

    def adopt(self, timeline: str | State, *, reason: str | None = None) -> Restored:
        """Take over the newest state of another timeline of the scope."""
        other = timeline if isinstance(timeline, State) else self.on(timeline)
        return self.restore(other, reason=reason or f"adopted {other.timeline}")

    def at(self, point: Any) -> View:
        """The state at a point: an entry, a time, a checkpoint or its name."""
        return View(self._handle.view(point))

    def on(self, timeline: str) -> State:
        """A handle on another timeline of the scope."""
        return State(self._handle.on(timeline))

    def fork(self, name: str, *, at: Any = None) -> State:
        """A new timeline that starts from a point (the newest state); nothing is copied."""
        for _ in range(50):
            try:
                built = self._run(self._handle.plan_fork(name, at))
            except Conflict as conflict:
                if name in conflict.keys:
                    raise
                continue
            fork = self.on(name)
            if not built:
                settle_after(fork._handle)
            return fork
        raise Conflict(f"{self.scope}: other forks were always faster; try again")

    def timelines(self) -> list[TimelineInfo]:
        """All timelines of the scope."""
        return self._handle.history.timelines()

    def diff(
        self, since: Any, until: Any = None, *, reveal: bool = False, plain: bool = False
    ) -> Diff:
        """What changed from one point to another, or to the newest state.

        Values of class sensitive are masked, unless `reveal` is given. Registered objects are
        compared by field; where one differs as a whole it is built, or with `plain` given as a
        `Typed`, as `get` does.
        """
        return self._handle.diff(since, until, reveal, plain)

    def log(
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
        return self._handle.history.log(
            key=key,
            kind=kind,
            actor=actor,
            correlation=correlation,
            since=since,
            until=until,
            limit=limit,
            newest_first=newest_first,
        )

    def replay(
        self,
        function: Callable[[Any, Entry], Any],
        start: Any = None,
        *,
        since: int = 1,
        until: int | None = None,
    ) -> Any:
        """Lead entries, oldest first, through `function(state, entry) -> state`."""
        return self._handle.replay(function, start, since, until)


class Change:
    """A change over several scopes: `change[state]` is the part for one of them."""

    def __init__(self, parts: ChangeParts) -> None:
        self._parts = parts
        self.entries: list[Written] = []
        """What it became, once the block has ended."""

    def __getitem__(self, state: State | Scope | str) -> ScopedChange:
        return self._parts.part(state)

    @property
    def repeated(self) -> bool:
        """Once the block has ended: whether it had been applied before, and so was not now."""
        return self._parts.repeated


class Store(StoreFollowing, StoreStreaming, StoreUndoing, StoreKeys, StoreLeasing, StoreProving):
    """One opened storage with its keys and its clock."""

    def __init__(self, handle: StoreHandle) -> None:
        self._handle = handle
        self._core = handle.core

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Store {self._core.lineage.hex()[:8]} on {self._core.storage.limits.name}>"

    def close(self) -> None:
        """Commit what waits and release everything; a second call does nothing."""
        self._core.close()

    # scopes

    def scope(self, scope: Scope | str) -> State:
        """The state of a scope given as text (`agent:7`) or value."""
        return State(self._handle.line(scope))

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

    def scopes(
        self,
        *,
        kind: str | None = None,
        prefix: str = "",
        limit: int | None = None,
        after: str | None = None,
    ) -> Page:
        """Scopes in the order of their names, by kind and by the beginning of their ids."""
        return self._handle.scopes(kind, prefix, limit, after)

    def delete(self, scope: Scope | str | State) -> None:
        """End a scope with all its timelines. A scope made again under its name starts empty.

        Its records stay in the storage, as all history does; `erase` removes them. Refused, with
        `StillNeededError`, while a checkpoint of it is on hold.
        """
        change, finish = self._handle.plan_delete(scope, None)
        finish(self._core.run(change))

    def erase(
        self, scope: Scope | str | State, *, wait: bool = True, despite_holds: bool = False
    ) -> Erased:
        """End a scope and remove its content, its rows and its key; see `Erased` for what stays.

        `wait=False`: in an encrypted store it returns when the key is gone, however much the scope
        holds; `sweep` drops the rows. Refused, with `StillNeededError`, while a checkpoint of it is
        on hold or its state, which would tell of that, cannot be read, unless `despite_holds` says
        that the erasing counts for more.
        """
        return erase_scope(self._handle, scope, wait, despite_holds=despite_holds)

    # changes

    @block
    def change(
        self,
        *,
        reason: str | None = None,
        actor: str | None = None,
        correlation: str | None = None,
        parent: str | None = None,
        id: str | None = None,
    ) -> Iterator[Change]:
        """One entry in each of several scopes, or none at all; its `id` is the store's own."""
        cause = cause_now(actor, reason, correlation, parent)
        change = Change(ChangeParts(self._handle, cause, id))
        yield change
        plan = change._parts.plan()
        if plan is not None:
            change.entries = plan[1](self._core.run(plan[0]))

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
