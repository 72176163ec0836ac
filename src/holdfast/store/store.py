"""The blocking face of a store; `holdfast.sync` exports it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from typing import TYPE_CHECKING, Any

from holdfast.store.commit.change import Written
from holdfast.store.history.checkpoint import Plan
from holdfast.store.history.handle import ChangeParts, StoreHandle
from holdfast.store.lease import Asking, Lease, LeaseInfo, check_name, taking
from holdfast.store.names.arguments import check_filters, check_function, check_seconds
from holdfast.store.names.background import Closable
from holdfast.store.names.cause import Cause, acting, cause_now
from holdfast.store.names.face import Blocks, end, ends, faced, give, here, step_block, writes
from holdfast.store.names.items import Entry, Page, Position
from holdfast.store.names.scope import Scope
from holdfast.store.proof.witness import make_witness, store_identity, store_stats
from holdfast.store.read.change_block import ScopedChange
from holdfast.store.read.watch import Follower, Place, Watch
from holdfast.store.rules.gates import Gate
from holdfast.store.state import State, committed, run_plan
from holdfast.store.upkeep.erase import erase_scope

if TYPE_CHECKING:
    from holdfast.store.names.items import Erased, ErasedSubject, Reverted, Swept
    from holdfast.store.names.meter import Metrics
    from holdfast.store.proof.verify_report import Report
    from holdfast.store.upkeep.rotate import Keyring, MasterRotated, Resealed


@faced
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


@faced(by_hand="holdfast.store.store_async:Store")
class Store(Closable):
    """One opened storage with its keys and its clock."""

    def __init__(self, handle: StoreHandle) -> None:
        self._handle = handle
        self._core = handle.core
        self._storage = handle.core.storage

    def _run(self, plan: Plan, away: bool = False) -> Any:
        return run_plan(self._core, plan)

    def __repr__(self) -> str:
        return f"<Store {self._core.lineage.hex()[:8]} on {self._core.storage.limits.name}>"

    @ends
    def close(self) -> None:
        """Commit what waits and release everything; a second call does nothing.

        What somebody was given of a store (`Access.as_`) is open as long as that store is.
        """
        if self._core.guard is None:
            self._core.close()

    # scopes

    @here
    def scope(self, scope: Scope | str) -> State:
        """The state of a scope given as text (`agent:7`) or value."""
        return State(self._handle.line(scope))

    @here
    def agent(self, id: str) -> State:
        """The state of an agent."""
        return self.scope(Scope("agent", id))

    @here
    def workflow(self, id: str) -> State:
        """The state of a workflow."""
        return self.scope(Scope("workflow", id))

    @here
    def step(self, workflow: str, step: str) -> State:
        """The state of one step of a workflow."""
        return self.scope(Scope.step(workflow, step))

    @here
    def session(self, id: str) -> State:
        """The state of a session."""
        return self.scope(Scope("session", id))

    @here
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

    @writes
    def delete(self, scope: Scope | str | State) -> None:
        """End a scope with all its timelines. A scope made again under its name starts empty.

        Its records stay in the storage, as all history does; `erase` removes them. Refused, with
        `StillNeededError`, while a checkpoint of it is on hold.
        """
        self._run(self._handle.plan_delete(scope, None))

    @writes
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

    @step_block
    def change(
        self,
        *,
        reason: str | None = None,
        actor: str | None = None,
        correlation: str | None = None,
        parent: str | None = None,
        id: str | None = None,
    ) -> Blocks[Change]:
        """One entry in each of several scopes, or none at all; its `id` is the store's own."""
        cause = cause_now(actor, reason, correlation, parent)
        change = Change(ChangeParts(self._handle, cause, id))
        yield give(change)
        change.entries = yield from committed(self, change._parts)

    @here
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

    @here
    def add_gate(self, gate: Gate) -> None:
        """Put a gate behind those that stand in front of every change."""
        self._core.check_store()
        self._core.gates.add(gate)

    @here
    def remove_gate(self, gate: Gate) -> None:
        """Take a gate away."""
        self._core.check_store()
        self._core.gates.remove(gate)

    # following

    def position(self) -> Position:
        """Where the feed ends now."""
        return Place.now(self._core).position

    def feed(self, since: Position | None = None, *, past_pruned: bool = False) -> Iterator[Entry]:
        """Every entry committed since a position (the beginning); go on from `entry.position`.

        Gap-free in any process. Entries of one timeline come in order, a scope that is made again
        behind the end of the one before. It ends where the feed ends; ask again with the last
        position, or use `watch`. What was pruned: see there.
        """
        follower = Follower(self._core, past_pruned=past_pruned)
        yield from follower.feed(since if since is not None else {})

    @here
    def watch(
        self,
        scope: Scope | str | None = None,
        *,
        prefix: str = "",
        pattern: str | None = None,
        since: Position | None = None,
        timeout: float | None = None,
        past_pruned: bool = False,
    ) -> Watch:
        """Entries as they are committed, by any process, from now or from a position on.

        Of one scope with all its timelines, or of all; with a `prefix` or a shell-like `pattern`
        (`*` also stands for `/`), those that changed such a key. A restore, a fork and the end
        of a scope name no keys and are always given. None is ever left out. Each entry carries
        the position behind it. Without an entry for `timeout` seconds the watch ends. Where
        entries were pruned, `PrunedError` has the position behind them, or with `past_pruned` they,
        and nothing else, are passed over.
        """
        name = self._handle.line(scope).scope if scope is not None else None
        return Watch(self._core, name, None, prefix, pattern, since, timeout, past_pruned)

    def correlated(
        self,
        correlation: str,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        limit: int | None = None,
    ) -> list[Entry]:
        """Entries of all scopes that carry this correlation, by their time."""
        return Follower(self._core).correlated(correlation, since, until, limit)

    # upkeep

    @writes
    def sweep(self, *, limit: int | None = None, wait: bool = False) -> Swept:
        """Remove keys that have expired, `limit` at most, of every timeline of every scope, and
        what was written of long values whose writers are gone.

        A writer counts as gone once it has shown no sign of life for a minute, by this process's
        clock, while this process looked: at every sweep, and whenever it writes long values itself.
        With `wait` it takes that minute if there is reason to. Scopes that are damaged are named in
        what it gives, and the others swept.
        """
        self._core.check_store()
        from holdfast.store.upkeep.expiry import sweep_store

        return sweep_store(self._handle, limit, wait)

    @writes
    def revert(
        self, *, correlation: str, dry_run: bool = False, reason: str | None = None
    ) -> list[Reverted]:
        """Undo what a correlation did in all scopes, as one change; see `State.revert`."""
        from holdfast.store.history.revert import revert_store

        return revert_store(self._handle, correlation, dry_run=dry_run, reason=reason)

    # keys

    def keyring(self) -> Keyring:
        """What the ring holds: generations, scopes, data keys; never a key."""
        self._core.check_store()
        from holdfast.store.upkeep.rotate import show_keyring

        return show_keyring(self._handle.core)

    @writes
    def begin_rotation(self, new_key: str) -> None:
        """Let a new master key open the store beside the old one, for as long as you like.

        `new_key` is `file:PATH` (made if it is missing, and durable before anything else),
        `env:NAME` or `passphrase:TEXT`. Processes that have the old key go on, but with it alone
        no new scope can be made (`KeyRetiringError`): open them again with the new key, or give
        it to them with `add_key`. Cut short, it is begun again with the same key.
        """
        self._core.check_store()
        from holdfast.store.upkeep.rotate import begin_rotation

        begin_rotation(self._handle.core, new_key)

    @writes
    def finish_rotation(self) -> MasterRotated:
        """Retire the old master key: from now on only the new one opens the store.

        Every key is first found to open with the new one. Processes that have the old key alone
        keep the scopes that they have open; what else they ask for gives `KeyRetiredError`.
        The result says where the old key may still open something.
        """
        self._core.check_store()
        from holdfast.store.upkeep.rotate import finish_rotation

        return finish_rotation(self._handle.core)

    @writes
    def rotate_master(self, new_key: str) -> MasterRotated:
        """Begin and finish a rotation of the master key; see `begin_rotation`."""
        self._core.check_store()
        self.begin_rotation(new_key)
        return self.finish_rotation()

    @writes
    def add_key(self, key: str) -> None:
        """Give this store the key that its master is, or will be, rotated to."""
        self._core.check_store()
        from holdfast.store.upkeep.rotate import add_key

        add_key(self._handle.core, key)

    @writes
    def rotate(self, scope: Scope | str | None = None) -> int:
        """Give a scope a new data key for all that is written from now on; returns its epoch.

        Without a scope every one gets a new key, one after the other; returns how many there are.
        Other processes take it up with their next write; none of their writes fails. What was
        written before stays readable under its old key, until `reseal`.
        """
        self._core.check_store()
        from holdfast.store.upkeep.rotate import rotate_all, rotate_scope

        return rotate_all(self._handle) if scope is None else rotate_scope(self._handle, scope)

    @writes
    def reseal(self, scope: Scope | str | None = None) -> list[Resealed]:
        """Seal all records of a scope, or of all, under its newest data key; older keys go.

        Others go on reading and writing. History, roots and signatures do not change. Cut short,
        it is done again. If a record is damaged the others are sealed, the old key stays, and
        the damage is raised.
        """
        self._core.check_store()
        from holdfast.store.upkeep.rotate import reseal

        return reseal(self._handle, scope)

    def subjects(self, *, prefix: str = "") -> list[str]:
        """The names of all subjects that values are sealed for, in order."""
        self._core.check_store()
        return self._handle.core.subjects.names(prefix)

    @writes
    def erase_subject(self, name: str) -> ErasedSubject:
        """Remove a subject's key: nothing that was sealed for it can be read any more, anywhere.

        Nobody can write under the key once this has begun, also not who has it in memory. What is
        written later for the same name is sealed under a new key. Cut short, call it again.
        """
        self._core.check_store()
        from holdfast.store.upkeep.erase import erase_subject

        return erase_subject(self._handle.core, name)

    # leases

    @step_block
    def lease(
        self,
        name: str,
        *,
        duration: float = 30.0,
        wait: float | None = None,
        owner: str | None = None,
    ) -> Blocks[Lease]:
        """Hold a lease inside the block; one holder at a time, in any number of processes.

        All that this thread or task, and tasks that it begins, write to the store inside the block
        is under the lease: once another has taken it over, it is refused with `LeaseLostError`,
        and nothing is written. The lease is renewed in the background. Another gets it when the
        block ends, when it has seen no renewal for `duration` seconds, or at once if the process is
        known to be gone. If it is held, it is waited for without end, or for `wait` seconds (0: not
        at all), then `LeaseHeldError`.
        `owner` is told to others (by default host and process).
        """
        self._core.check_lease(name)
        lease = yield from taking(Asking(self._core, name, duration, wait, owner))
        try:
            with lease.fencing():
                yield give(lease)
        finally:
            yield end(lease.release)

    def leases(self) -> list[LeaseInfo]:
        """All leases that were ever taken, by their names."""
        self._core.check_store()
        return self._core.leases.infos()

    @writes
    def break_lease(self, name: str) -> str | None:
        """Take a lease from its holder, whose changes are refused from now on; tells who it was.

        For operators: without asking the holder, which may be at work.
        """
        self._core.check_store()
        return self._core.leases.break_(check_name(name))

    # proving

    @here
    def identity(self) -> str:
        """What to pin elsewhere: which store this is, whether encrypted, and who signs for it."""
        return store_identity(self._handle.core)

    @writes
    def witness(self) -> str:
        """A small signed token over all that is in the store now. Keep it elsewhere."""
        self._core.check_store()
        return make_witness(self._handle.core)

    @writes
    def verify(
        self,
        scope: Scope | str | State | None = None,
        *,
        expect: str | None = None,
        identity: str | None = None,
        trust: Sequence[str] = (),
        require: int | None = None,
        budget: float | None = None,
        resume: str | None = None,
        progress: Callable[[str, int], None] | None = None,
    ) -> Report:
        """Check everything that is stored, of one scope or of all; returns a report.

        `expect` takes a witness, `identity` what `identity()` gave. With `trust`, public keys, each
        checkpoint must be signed by `require` (1) of them. With a `budget` in seconds it
        stops when that is used up, and `resume=report.resume` goes on: between two entries, so
        that one entry with all its values is the least that a call does. What is not divided
        comes on top: the feed and the directory, which every call reads, what is kept below a
        pruned timeline's floor, long values that were written in pieces, and at the end rows that
        nothing accounts for, and the engine's own check.
        """
        from holdfast.store.proof.verify import (
            verify_store,  # a program that only reads starts sooner
        )

        check_filters(expect=expect, identity=identity, resume=resume)
        check_seconds(budget, "budget")
        if progress is not None:
            check_function(progress, "progress")
        return verify_store(
            self._handle.core,
            self._handle.of(scope).scope if scope is not None else None,
            expect=expect,
            identity=identity,
            trust=trust,
            require=require,
            budget=budget,
            resume=resume,
            progress=progress,
        )

    def stats(self) -> dict[str, Any]:
        """Figures of the store: scopes, entries, bytes, caches."""
        self._core.check_store()
        return store_stats(self._handle.core)

    @here
    def metrics(self) -> Metrics:
        """What was counted and timed since this store was opened, in this process."""
        return self._handle.core.meter.read()
