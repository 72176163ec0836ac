# Written by scripts/stubs.py from the blocking classes; not to be edited.

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any, Self

from holdfast import Change, Watch
from holdfast.store.history.blame import Blamed
from holdfast.store.history.handle import LineHandle, StoreHandle
from holdfast.store.history.merge import Merged, Strategy
from holdfast.store.journal.declared import Declaration
from holdfast.store.lease import Lease, LeaseInfo
from holdfast.store.names.cause import Cause
from holdfast.store.names.items import (
    Checkpoint,
    Entry,
    Erased,
    ErasedSubject,
    Hold,
    Item,
    Page,
    Position,
    Pruned,
    Restored,
    Reverted,
    Swept,
    TimelineInfo,
)
from holdfast.store.names.meter import Metrics
from holdfast.store.names.scope import Scope
from holdfast.store.names.whole_files import Path
from holdfast.store.proof.prove import Proof
from holdfast.store.proof.verify_report import Report
from holdfast.store.read.reader import Reader
from holdfast.store.rules.gates import Asked, Gate, Operation
from holdfast.store.state_async import ChangePart, ReadStream, State, View, WriteStream
from holdfast.store.tree.difference import Diff
from holdfast.store.upkeep.rotate import Keyring, MasterRotated, Resealed

class MadeChangePart:
    """The part of a change that concerns one timeline of one scope.

    Writes are noted and become durable when the block ends. What is read here is expected: if
    somebody changes it before, the change fails with `Conflict` and nothing of it is applied.
    Reads see the writes noted before them. The `owner` may write keys that parts of Holdfast own.
    """
    def __init__(self, reader: Reader, *, owner: bool = False) -> None: ...
    repeated: bool
    operations: list[Operation]
    expects: dict[str, int]
    head: int | None
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
    ) -> None:
        """Set a key."""
    def expire(
        self,
        key: str,
        ttl: float | timedelta | None = None,
        *,
        expires: datetime | None = None,
        sliding: bool = False,
    ) -> None:
        """Let a key that is there expire; its value and version stay."""
    def persist(self, key: str) -> None:
        """Let a key never expire."""
    def append(self, key: str, item: Any, *, subject: str | None = None) -> None:
        """Add an item to the end of a list, which is made if the key is absent."""
    def extend(self, key: str, items: Iterable[Any], *, subject: str | None = None) -> None:
        """Add items to the end of a list."""
    def trim(self, key: str, *, keep_last: int | None = None, before: int | None = None) -> None:
        """Remove the oldest items of a list; see `State.trim`."""
    def delete(self, key: str, *, if_version: int | None = None) -> None:
        """Remove a key; one that is absent is no error."""
    async def get(self, key: str, default: Any = None, *, as_: Any = None) -> Any:
        """The value of a key, which must not change until this change is applied."""
    async def exists(self, key: str) -> bool:
        """Whether a key is there, which must not change until this change is applied."""
    async def keys(self, prefix: str = "") -> list[str]:
        """Keys, none of which may change (the whole timeline) until this change is applied."""
    async def find(
        self,
        lookup: str,
        where: Mapping[str, Any] | None = None,
        /,
        *,
        order: str | None = None,
        limit: int | None = None,
        after: str | None = None,
        values: bool = False,
        **terms: Any,
    ) -> Page:
        """What a lookup leads to; nothing (of the whole timeline) may change until this is applied.

        A lookup does not know what is noted here: ask before writing what it is about.
        """
    async def tail(self, key: str, count: int) -> list[Any]:
        """The last items of a list, which must not change until this change is applied."""
    async def length(self, key: str) -> int:
        """Number of items of a list, which must not change until this change is applied."""
    @property
    def target(self) -> Asked:
        """What `build_change` takes."""
    @property
    def empty(self) -> bool:
        """Whether nothing was written."""

class MadeView:
    """The state of one timeline as it was at one entry; it cannot be changed."""
    def __init__(self, handle: LineHandle) -> None: ...
    @property
    def scope(self) -> Scope:
        """The scope's name."""
    @property
    def timeline(self) -> str:
        """The timeline's name."""
    def __repr__(self) -> str: ...
    async def get(
        self, key: str, default: Any = None, *, as_: Any = None, plain: bool = False
    ) -> Any:
        """The value of a key, or the default; with `as_`, as an object of that type.

        With `plain=True`, here and in the reads below, objects are not built but given as
        `Typed`, so that a program without their classes can read them. What is returned belongs
        to the caller: changing it changes nothing in the store.
        """
    async def get_many(self, keys: Iterable[str], *, plain: bool = False) -> dict[str, Any]:
        """Values of those keys that are there, of one moment."""
    async def item(self, key: str) -> Item | None:
        """The value of a key with its version, time and cause; None if it is absent."""
    async def exists(self, key: str) -> bool:
        """Whether a key is there."""
    async def keys(
        self, prefix: str = "", *, limit: int | None = None, after: str = ""
    ) -> list[str]:
        """Keys in order; for the next page give the last key as `after`."""
    async def items(
        self, prefix: str = "", *, limit: int | None = None, after: str = "", plain: bool = False
    ) -> list[tuple[str, Any]]:
        """Keys and values in order, of one moment."""
    async def tail(self, key: str, count: int, *, plain: bool = False) -> list[Any]:
        """The last items of a list, without reading the rest."""
    async def slice(
        self, key: str, start: int | None = None, stop: int | None = None, *, plain: bool = False
    ) -> list[Any]:
        """Items of a list as with Python's slices, without reading the rest."""
    async def length(self, key: str) -> int:
        """Number of items of a list; 0 if the key is absent."""
    async def root(self) -> str:
        """Commitment to the whole state: equal for equal states of this scope."""
    async def find(
        self,
        lookup: str,
        where: Mapping[str, Any] | None = None,
        /,
        *,
        order: str | None = None,
        limit: int | None = None,
        after: str | None = None,
        values: bool = False,
        plain: bool = False,
        **terms: Any,
    ) -> Page:
        """Keys whose values have these terms: a page of keys, or (`values`) of (key, value).

        A term is asked for by its value, or a `Range`, or what it `Begins` with; those whose names
        are taken here, in a mapping in front. Answers are sorted by the lookup's terms, then by
        key; `order="due"`, or `"-due"` for the other direction, says by which, once all terms
        before it are asked for by value. For the next page give `after=page.after`.
        """
    async def declared(self) -> list[Declaration]:
        """All that is declared, sorted by kind and name."""
    def open_read(self, key: str) -> ReadStream:
        """Bytes, read in bounded memory; what happens to the key later is not seen."""
    async def read_range(
        self, key: str, start: int | None = None, stop: int | None = None
    ) -> bytes:
        """Bytes from start to stop, as with Python's slices, without reading the rest."""
    async def get_file(self, key: str, path: Path) -> int:
        """Write bytes into a file, which is there whole or not at all; returns how many."""

class MadeState(MadeView):
    """A handle on one timeline of one scope. Making one touches nothing."""
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

        On the async face, a `set` that is cancelled while it waits is withdrawn; one whose commit
        has begun is committed, and then the task ends. `exists` or `log` tells which it was.
        """
    async def set_many(self, values: Mapping[str, Any]) -> int:
        """Set several keys as one entry, all or none; returns its number."""
    async def delete(self, key: str, *, if_version: int | None = None) -> bool:
        """Remove a key; tells whether it was there."""
    async def append(self, key: str, item: Any, *, subject: str | None = None) -> int:
        """Add an item to the end of a list, which is made if the key is absent."""
    async def extend(self, key: str, items: Iterable[Any], *, subject: str | None = None) -> int:
        """Add items to the end of a list, as one entry."""
    async def update(self, key: str, function: Callable[[Any], Any], default: Any = None) -> Any:
        """Set a key to a function of its value; tried again when somebody was faster.

        The function may run several times and should have no effects of its own. Returns what
        it returned last.
        """
    def change(
        self,
        *,
        reason: str | None = None,
        actor: str | None = None,
        correlation: str | None = None,
        parent: str | None = None,
        id: str | None = None,
    ) -> AbstractAsyncContextManager[ChangePart]:
        """Several operations as one entry, committed when the block ends without an error.

        What is read inside is expected. With an `id` it is applied once, however often it is
        sent, also after a restart, and also after a restore to before it; `repeated` tells. Under
        an id of another change, or of another timeline, it is refused.
        """
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
    async def checkpoints(
        self,
        *,
        type: str | None = None,
        tag: str | None = None,
        name: str | None = None,
        limit: int | None = None,
    ) -> list[Checkpoint]:
        """Checkpoints of this timeline, newest first."""
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
    async def adopt(self, timeline: str | State, *, reason: str | None = None) -> Restored:
        """Take over the newest state of another timeline of the scope."""
    def at(self, point: Any) -> View:
        """The state at a point: an entry, a time, a checkpoint or its name."""
    def on(self, timeline: str) -> State:
        """A handle on another timeline of the scope."""
    async def fork(self, name: str, *, at: Any = None) -> State:
        """A new timeline that starts from a point (the newest state); nothing is copied."""
    async def timelines(self) -> list[TimelineInfo]:
        """All timelines of the scope."""
    async def diff(
        self, since: Any, until: Any = None, *, reveal: bool = False, plain: bool = False
    ) -> Diff:
        """What changed from one point to another, or to the newest state.

        Values of class sensitive are masked, unless `reveal` is given. Registered objects are
        compared by field; where one differs as a whole it is built, or with `plain` given as a
        `Typed`, as `get` does.
        """
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
    async def replay(
        self,
        function: Callable[[Any, Entry], Any],
        start: Any = None,
        *,
        since: int = 1,
        until: int | None = None,
    ) -> Any:
        """Lead entries, oldest first, through `function(state, entry) -> state`."""
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
    async def undo(self, *, reason: str | None = None) -> Reverted:
        """Undo the newest change of your own keys, by `revert`; undo again to have it back.

        A restore or a merge is undone by a restore of the state before it, the whole of it. What
        changed none of your keys is passed over: checkpoints, declarations, and what effects,
        agents, machines and other features note below `$`. `PointNotFoundError` if there is no
        change to undo, `RefusedError` if all of it stays.
        """
    async def history(self, key: str, *, limit: int | None = 50) -> list[Item]:
        """The versions of a key, newest first: each value with its entry, time and cause.

        Where the key was removed, the value is `holdfast.DELETED`. What a restore or merge brought
        counts as a version of its own; what the key was before a fork is in the other timeline.
        """
    async def blame(self, key: str, *, limit: int = 1000, reveal: bool = False) -> list[Blamed]:
        """Who wrote each part of a value: for each field and item the entry that gave it.

        At most `limit` versions of the key are looked at; what may be older than those has
        `exact=False`. Items of a list are known by their places. Values of class sensitive are
        masked, unless `reveal` is given.
        """
    async def merge(
        self,
        other: Any,
        *,
        strategy: Strategy = "ask",
        dry_run: bool = False,
        reason: str | None = None,
    ) -> Merged:
        """Bring what another timeline of the scope (its name, a state, a point) became into this.

        What only one of the two changed since their newest common past is taken from that one:
        by key, inside of values by field and by item. It becomes one entry; the other timeline
        stays as it is, and merging it again brings only what is new.

        `strategy` decides what both changed in different ways: `ours`, `theirs`, or a function that
        gets each `MergeConflict` and returns the value, or `DELETED`; it may be called again when
        somebody was faster, in another thread, and should have no effects of its own. With `ask` a
        merge that has conflicts changes nothing and raises `MergeConflictError`, which lists all of
        them. A dry run returns them, with the diff of what would change.
        """
    async def expire(
        self,
        key: str,
        ttl: float | timedelta | None = None,
        *,
        expires: datetime | None = None,
        sliding: bool = False,
    ) -> int:
        """Let a key expire after `ttl` seconds or at a time; its value and version stay.

        Returns the entry's number, that of the newest one if there is nothing to change. A key
        that is absent is refused with `MissingError`. With `sliding`, each read of the value
        begins the term anew (written after a tenth of it).
        """
    async def persist(self, key: str) -> int:
        """Let a key never expire; returns the entry's number, as `expire` does."""
    async def sweep(self, *, limit: int | None = None) -> int:
        """Remove keys that have expired, `limit` at most; tells how many.

        They read as absent without it. Each step looks at some thousand keys, not at values, and
        writes one entry (actor `system`); the state before can be travelled to, as always.
        """
    async def trim(
        self,
        key: str,
        *,
        keep_last: int | None = None,
        before: int | None = None,
        if_version: int | None = None,
    ) -> int:
        """Remove the oldest items of a list: all but the last few, or those before a position.

        Returns how many went; items move to the front by so many positions. `keep_last` may be
        repeated by anyone at any time; `before` is a position in the list as it is when the trim
        is applied, so where several trim, give `if_version` or read and trim in one change.
        """
    async def prune(
        self,
        before: Any,
        *,
        keep: Iterable[Any] | None = None,
        dry_run: bool = False,
        reason: str | None = None,
    ) -> Pruned:
        """Drop the content of this timeline's entries before a point, whose state stays.

        Below it the states of checkpoints stay, all or those in `keep`, and of what restores and
        forks rest on. Refused, with `StillNeededError`, if `keep` leaves out one that is pinned,
        on hold or held (`Checkpoints.held`). Nothing else can be had from there again:
        `PrunedError` names the anchor, an entry that announces it before anything is dropped, so
        that `verify` tells it from damage. Done in small commits beside readers and writers; cut
        short, prune again. A dry run says what would go, without writing. For keeping secrets use
        `erase`: copies and free pages may still hold what is dropped here.
        """
    async def why_kept(self, point: Any = None) -> list[Hold]:
        """What keeps a checkpoint or another point from going, whatever removes it.

        For each reason: who holds it, and what ends that. Empty: nothing does, and the rules of
        retention decide. Without a point, all that is kept of this timeline, and long values of the
        scope that are being written.
        """
    async def declare(self, *declarations: Declaration, rebuild: bool = False) -> int:
        """Set rules that every writer of this timeline follows from now on; see `holdfast.Sticky`.

        One entry, whose number is returned; what is declared already is not written again. A
        declaration of the same kind and name replaces the one before. A fork takes them along.
        With `rebuild=True` lookups among them are made anew from the values, beside other writers.
        """
    async def undeclare(self, *declarations: Declaration) -> int:
        """Take declarations back, by their kind and name; tells how many of them there were."""
    def open_write(self, key: str, *, if_version: int | None = None) -> WriteStream:
        """What is written becomes the value of the key when its block ends; any size, in bounded
        memory.

        It is the same value as `set` of those bytes. Chunks that the key's value had before are
        not stored again. Nothing is seen of it before the block ends without an error; then the
        last to end wins, or with `if_version` only if the key still has that version.
        """
    async def put_file(self, key: str, path: Path, *, if_version: int | None = None) -> int:
        """Set a key to the content of a file; returns the entry's number."""
    def watch(
        self,
        *,
        prefix: str = "",
        pattern: str | None = None,
        since: Position | None = None,
        timeout: float | None = None,
        past_pruned: bool = False,
    ) -> Watch:
        """Entries of this timeline as they are committed; see `Store.watch`."""
    async def prove(self, key: str, *, at: Any = None) -> Proof:
        """A proof of what a key was, or that it was absent, at a checkpoint.

        Without `at` it is the newest one in the present state's past, which what a restore has
        left behind is not. `holdfast-verify` checks it, without the store and without a key.
        Whoever has it can read the value, the checkpoint's name, time and cause, and what
        `Proof.reveals` names. A value of more than 1 MiB is refused.
        """
    async def export_chain(self, path: str | os.PathLike[str], *, feed: bool = False) -> int:
        """Write the timeline's chain to a file: envelopes and signatures, no content.

        `holdfast-verify` checks it without a key. With `feed` it also holds the rows of all lanes
        of the store (numbers and hashes, some 80 bytes a commit), so that a witness can be compared
        with it, and what the timeline itself tells of entries that it lost. Returns the number of
        entries.
        """
    async def cosign(self, checkpoint: Any, *, signer: str, verify: str = "full") -> Checkpoint:
        """Add a signature to a checkpoint: yours, who looked at the state and vouch for it.

        The state is checked first, as `restore` does. `signer` is `file:PATH`. The checkpoint's
        own bytes and hash stay; `verify(trust=[…], require=…)` counts the signatures.
        """

class MadeStore:
    """One opened storage with its keys and its clock."""
    def __init__(self, handle: StoreHandle) -> None: ...
    def __repr__(self) -> str: ...
    async def close(self) -> None:
        """Commit what waits and release everything; a second call does nothing.

        What somebody was given of a store (`Access.as_`) is open as long as that store is.
        """
    def scope(self, scope: Scope | str) -> State:
        """The state of a scope given as text (`agent:7`) or value."""
    def agent(self, id: str) -> State:
        """The state of an agent."""
    def workflow(self, id: str) -> State:
        """The state of a workflow."""
    def step(self, workflow: str, step: str) -> State:
        """The state of one step of a workflow."""
    def session(self, id: str) -> State:
        """The state of a session."""
    def custom(self, name: str) -> State:
        """The state of a namespace of your own."""
    @property
    def shared(self) -> State:
        """The state of the one global scope."""
    async def scopes(
        self,
        *,
        kind: str | None = None,
        prefix: str = "",
        limit: int | None = None,
        after: str | None = None,
    ) -> Page:
        """Scopes in the order of their names, by kind and by the beginning of their ids."""
    async def delete(self, scope: Scope | str | State) -> None:
        """End a scope with all its timelines. A scope made again under its name starts empty.

        Its records stay in the storage, as all history does; `erase` removes them. Refused, with
        `StillNeededError`, while a checkpoint of it is on hold.
        """
    async def erase(
        self, scope: Scope | str | State, *, wait: bool = True, despite_holds: bool = False
    ) -> Erased:
        """End a scope and remove its content, its rows and its key; see `Erased` for what stays.

        `wait=False`: in an encrypted store it returns when the key is gone, however much the scope
        holds; `sweep` drops the rows. Refused, with `StillNeededError`, while a checkpoint of it is
        on hold or its state, which would tell of that, cannot be read, unless `despite_holds` says
        that the erasing counts for more.
        """
    def change(
        self,
        *,
        reason: str | None = None,
        actor: str | None = None,
        correlation: str | None = None,
        parent: str | None = None,
        id: str | None = None,
    ) -> AbstractAsyncContextManager[Change]:
        """One entry in each of several scopes, or none at all; its `id` is the store's own."""
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
    def add_gate(self, gate: Gate) -> None:
        """Put a gate behind those that stand in front of every change."""
    def remove_gate(self, gate: Gate) -> None:
        """Take a gate away."""
    async def position(self) -> Position:
        """Where the feed ends now."""
    async def feed(
        self, since: Position | None = None, *, past_pruned: bool = False
    ) -> Iterator[Entry]:
        """Every entry committed since a position (the beginning); go on from `entry.position`.

        Gap-free in any process. Entries of one timeline come in order, a scope that is made again
        behind the end of the one before. It ends where the feed ends; ask again with the last
        position, or use `watch`. What was pruned: see there.
        """
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
    async def correlated(
        self,
        correlation: str,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        limit: int | None = None,
    ) -> list[Entry]:
        """Entries of all scopes that carry this correlation, by their time."""
    async def sweep(self, *, limit: int | None = None, wait: bool = False) -> Swept:
        """Remove keys that have expired, `limit` at most, of every timeline of every scope, and
        what was written of long values whose writers are gone.

        A writer counts as gone once it has shown no sign of life for a minute, by this process's
        clock, while this process looked: at every sweep, and whenever it writes long values itself.
        With `wait` it takes that minute if there is reason to. Scopes that are damaged are named in
        what it gives, and the others swept.
        """
    async def revert(
        self, *, correlation: str, dry_run: bool = False, reason: str | None = None
    ) -> list[Reverted]:
        """Undo what a correlation did in all scopes, as one change; see `State.revert`."""
    async def keyring(self) -> Keyring:
        """What the ring holds: generations, scopes, data keys; never a key."""
    async def begin_rotation(self, new_key: str) -> None:
        """Let a new master key open the store beside the old one, for as long as you like.

        `new_key` is `file:PATH` (made if it is missing, and durable before anything else),
        `env:NAME` or `passphrase:TEXT`. Processes that have the old key go on, but with it alone
        no new scope can be made (`KeyRetiringError`): open them again with the new key, or give
        it to them with `add_key`. Cut short, it is begun again with the same key.
        """
    async def finish_rotation(self) -> MasterRotated:
        """Retire the old master key: from now on only the new one opens the store.

        Every key is first found to open with the new one. Processes that have the old key alone
        keep the scopes that they have open; what else they ask for gives `KeyRetiredError`.
        The result says where the old key may still open something.
        """
    async def rotate_master(self, new_key: str) -> MasterRotated:
        """Begin and finish a rotation of the master key; see `begin_rotation`."""
    async def add_key(self, key: str) -> None:
        """Give this store the key that its master is, or will be, rotated to."""
    async def rotate(self, scope: Scope | str | None = None) -> int:
        """Give a scope a new data key for all that is written from now on; returns its epoch.

        Without a scope every one gets a new key, one after the other; returns how many there are.
        Other processes take it up with their next write; none of their writes fails. What was
        written before stays readable under its old key, until `reseal`.
        """
    async def reseal(self, scope: Scope | str | None = None) -> list[Resealed]:
        """Seal all records of a scope, or of all, under its newest data key; older keys go.

        Others go on reading and writing. History, roots and signatures do not change. Cut short,
        it is done again. If a record is damaged the others are sealed, the old key stays, and
        the damage is raised.
        """
    async def subjects(self, *, prefix: str = "") -> list[str]:
        """The names of all subjects that values are sealed for, in order."""
    async def erase_subject(self, name: str) -> ErasedSubject:
        """Remove a subject's key: nothing that was sealed for it can be read any more, anywhere.

        Nobody can write under the key once this has begun, also not who has it in memory. What is
        written later for the same name is sealed under a new key. Cut short, call it again.
        """
    def lease(
        self,
        name: str,
        *,
        duration: float = 30.0,
        wait: float | None = None,
        owner: str | None = None,
    ) -> AbstractAsyncContextManager[Lease]:
        """Hold a lease inside the block; one holder at a time, in any number of processes.

        All that this thread or task, and tasks that it begins, write to the store inside the block
        is under the lease: once another has taken it over, it is refused with `LeaseLostError`,
        and nothing is written. The lease is renewed in the background. Another gets it when the
        block ends, when it has seen no renewal for `duration` seconds, or at once if the process is
        known to be gone. If it is held, it is waited for without end, or for `wait` seconds (0: not
        at all), then `LeaseHeldError`.
        `owner` is told to others (by default host and process).
        """
    async def leases(self) -> list[LeaseInfo]:
        """All leases that were ever taken, by their names."""
    async def break_lease(self, name: str) -> str | None:
        """Take a lease from its holder, whose changes are refused from now on; tells who it was.

        For operators: without asking the holder, which may be at work.
        """
    def identity(self) -> str:
        """What to pin elsewhere: which store this is, whether encrypted, and who signs for it."""
    async def witness(self) -> str:
        """A small signed token over all that is in the store now. Keep it elsewhere."""
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
    async def stats(self) -> dict[str, Any]:
        """Figures of the store: scopes, entries, bytes, caches."""
    def metrics(self) -> Metrics:
        """What was counted and timed since this store was opened, in this process."""
    async def __aenter__(self) -> Self: ...
    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...
