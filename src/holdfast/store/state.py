"""The state of a scope, on the blocking face; `holdfast.sync` exports it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import islice
from typing import TYPE_CHECKING, Any

from holdfast.errors import Conflict, DamagedRecordError, InvalidInputError
from holdfast.storage.rows import ATTEMPTS
from holdfast.store.commit.change import Written
from holdfast.store.commit.group import Core
from holdfast.store.history.checkpoint import Plan
from holdfast.store.history.handle import ChangeParts, LineHandle, plan_trim
from holdfast.store.history.restore import (
    rebuild_lookup,
    restore_state,
    settle_after,
    settle_lookups,
)
from holdfast.store.journal.declared import MOST_BYTES, Declaration
from holdfast.store.journal.lifetime import NEVER, Terms, asked_expiry, asked_terms
from holdfast.store.names.arguments import check_count, check_flag
from holdfast.store.names.cause import cause_now
from holdfast.store.names.face import (
    Blocks,
    Steps,
    commit,
    faced,
    give,
    here,
    pause,
    planned,
    quick,
    step_block,
    steps,
    write,
    writes,
)
from holdfast.store.names.items import (
    Checkpoint,
    Entry,
    Item,
    Page,
    Position,
    Restored,
    TimelineInfo,
)
from holdfast.store.names.scope import RESERVED, Scope, check_key
from holdfast.store.read import lookup_terms
from holdfast.store.read.change_block import ScopedChange
from holdfast.store.read.find import question
from holdfast.store.read.reader import anew
from holdfast.store.read.watch import Watch
from holdfast.store.rules.classes import Classed
from holdfast.store.rules.ephemeral import Ephemeral
from holdfast.store.rules.gates import Operation
from holdfast.store.rules.keep import trim_of
from holdfast.store.rules.lookup import Lookup
from holdfast.store.rules.sticky import sticky_along
from holdfast.store.tree.difference import DELETED, Diff, same

if TYPE_CHECKING:
    from holdfast.store.history.blame import Blamed
    from holdfast.store.history.merge import Merged, Strategy
    from holdfast.store.long import ReadFile, WriteFile
    from holdfast.store.names.items import Hold, Pruned, Reverted
    from holdfast.store.names.whole_files import Path
    from holdfast.store.proof.prove import Proof


def run_plan(core: Core, plan: Plan) -> Any:
    """Commit what is planned; what became of it."""
    change, finish = plan
    return finish(core.run(change))


def committed(owner: State | Any, parts: ChangeParts) -> Steps[list[Written]]:
    """Commit what a block of a state or a store has put together; the entries that it became."""
    plan = yield planned(parts.plan)
    return (yield commit(owner, plan)) if plan is not None else []


@faced(by_hand="holdfast.store.state_async:View")
class View:
    """The state of one timeline as it was at one entry; it cannot be changed."""

    def __init__(self, handle: LineHandle) -> None:
        self._handle = handle
        self._read = handle.reader
        self._storage = handle.core.storage

    @property
    def scope(self) -> Scope:
        """The scope's name."""
        return self._handle.scope

    @property
    def timeline(self) -> str:
        """The timeline's name."""
        return self._handle.timeline

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.scope} {self.timeline}>"

    @quick
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

    @quick
    def item(self, key: str) -> Item | None:
        """The value of a key with its version, time and cause; None if it is absent."""
        return self._read.item(key)

    @quick
    def exists(self, key: str) -> bool:
        """Whether a key is there."""
        return self._read.exists(key)

    @quick
    def keys(self, prefix: str = "", *, limit: int | None = None, after: str = "") -> list[str]:
        """Keys in order; for the next page give the last key as `after`."""
        return self._read.keys(prefix, limit, after)

    @quick
    def items(
        self, prefix: str = "", *, limit: int | None = None, after: str = "", plain: bool = False
    ) -> list[tuple[str, Any]]:
        """Keys and values in order, of one moment."""
        return self._read.items(prefix, limit, after, plain)

    @quick
    def tail(self, key: str, count: int, *, plain: bool = False) -> list[Any]:
        """The last items of a list, without reading the rest."""
        return self._read.tail(key, count, plain)

    @quick
    def slice(
        self, key: str, start: int | None = None, stop: int | None = None, *, plain: bool = False
    ) -> list[Any]:
        """Items of a list as with Python's slices, without reading the rest."""
        return self._read.slice(key, start, stop, plain)

    @quick
    def length(self, key: str) -> int:
        """Number of items of a list; 0 if the key is absent."""
        return self._read.length(key)

    def root(self) -> str:
        """Commitment to the whole state: equal for equal states of this scope."""
        return self._handle.root()

    @quick
    def find(
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
        return self._read.find(question(lookup, where, terms, order, limit, after), values, plain)

    @quick
    def declared(self) -> list[Declaration]:
        """All that is declared, sorted by kind and name."""
        return list(self._handle.reader.declared().all)

    # long values

    @here
    def open_read(self, key: str) -> ReadFile:
        """Bytes, read in bounded memory; what happens to the key later is not seen."""
        from holdfast.store.long import LongReader, ReadFile

        return ReadFile(LongReader(self._handle.reader, key))

    def read_range(self, key: str, start: int | None = None, stop: int | None = None) -> bytes:
        """Bytes from start to stop, as with Python's slices, without reading the rest."""
        from holdfast.store.long import LongReader

        return LongReader(self._handle.reader, key).range(start, stop)

    @writes
    def get_file(self, key: str, path: Path) -> int:
        """Write bytes into a file, which is there whole or not at all; returns how many."""
        from holdfast.store.long import LongReader, save_file

        return save_file(LongReader(self._handle.reader, key), path)


@faced(by_hand="holdfast.store.state_async:State")
class State(View):
    """A handle on one timeline of one scope. Making one touches nothing."""

    def _run(self, plan: Plan, away: bool = False) -> Any:
        """Commit what is planned; where the async face does that is its own business."""
        change, finish = plan
        return finish(self._handle.core.run(change))

    @writes
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

        On the async face, a `set` that is cancelled while it waits is withdrawn; one whose commit
        has begun is committed, and then the task ends. `exists` or `log` tells which it was.
        """
        terms = None
        if ttl is not None or expires is not None or sliding is not False or class_ is not None:
            terms = asked_terms(ttl, expires, sliding, class_)
        return self._run(self._handle.plan_set(key, value, if_version, terms, subject))  # type: ignore[no-any-return]

    @steps
    def set_many(self, values: Mapping[str, Any]) -> Steps[int]:
        """Set several keys as one entry, all or none; returns its number."""
        if not isinstance(values, Mapping):
            raise InvalidInputError("set_many takes a mapping of keys to values")
        parts = ChangeParts(self._handle, cause_now(), None)
        for key, value in values.items():
            parts.part(self._handle).set(key, value)
        written = yield from committed(self, parts)
        return written[0].sequence if written else self._handle.place()[2]

    @steps
    def delete(self, key: str, *, if_version: int | None = None) -> Steps[bool]:
        """Remove a key; tells whether it was there."""
        plan = yield planned(self._handle.plan_delete, key, if_version)
        return plan is not None and (yield commit(self, plan))

    @writes
    def append(self, key: str, item: Any, *, subject: str | None = None) -> int:
        """Add an item to the end of a list, which is made if the key is absent."""
        return self._run(self._handle.plan_extend(key, [item], subject))  # type: ignore[no-any-return]

    @writes
    def extend(self, key: str, items: Iterable[Any], *, subject: str | None = None) -> int:
        """Add items to the end of a list, as one entry."""
        return self._run(self._handle.plan_extend(key, items, subject))  # type: ignore[no-any-return]

    @steps
    def update(self, key: str, function: Callable[[Any], Any], default: Any = None) -> Steps[Any]:
        """Set a key to a function of its value; tried again when somebody was faster.

        The function may run several times and should have no effects of its own. Returns what
        it returned last.
        """
        for attempt in range(1, ATTEMPTS + 1):
            made, after = yield planned(self._handle.plan_update, key, function, default, attempt)
            try:
                yield commit(self, made)
                break
            except Conflict:  # of the value that the function got, which is read anew
                if attempt == ATTEMPTS:
                    raise
        return after

    @step_block
    def change(
        self,
        *,
        reason: str | None = None,
        actor: str | None = None,
        correlation: str | None = None,
        parent: str | None = None,
        id: str | None = None,
    ) -> Blocks[ScopedChange]:
        """Several operations as one entry, committed when the block ends without an error.

        What is read inside is expected. With an `id` it is applied once, however often it is
        sent, also after a restart, and also after a restore to before it; `repeated` tells. Under
        an id of another change, or of another timeline, it is refused.
        """
        cause = cause_now(actor, reason, correlation, parent)
        parts = ChangeParts(self._handle, cause, id)
        yield give(parts.part(self._handle))
        yield from committed(self, parts)

    @steps
    def checkpoint(
        self,
        name: str = "",
        *,
        type: str = "manual",
        tags: Sequence[str] = (),
        description: str = "",
        metadata: dict[str, Any] | None = None,
    ) -> Steps[Checkpoint]:
        """A named point to return to. Nothing is copied, whatever the state's size."""
        more = (name, type, tags, description, metadata)
        plan = yield planned(self._handle.plan_checkpoint, *more)
        return (yield commit(self, plan, away=True))  # type: ignore[no-any-return]

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

    @writes
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

    @writes
    def adopt(self, timeline: str | State, *, reason: str | None = None) -> Restored:
        """Take over the newest state of another timeline of the scope."""
        other = timeline if isinstance(timeline, State) else self.on(timeline)
        return self.restore(other, reason=reason or f"adopted {other.timeline}")

    @here
    def at(self, point: Any) -> View:
        """The state at a point: an entry, a time, a checkpoint or its name."""
        return View(self._handle.view(point))

    @here
    def on(self, timeline: str) -> State:
        """A handle on another timeline of the scope."""
        return State(self._handle.on(timeline))

    @steps
    def fork(self, name: str, *, at: Any = None) -> Steps[State]:
        """A new timeline that starts from a point (the newest state); nothing is copied."""
        for _ in range(ATTEMPTS):
            made = yield planned(self._handle.plan_fork, name, at)
            yield pause(0)  # all that are asked for at this moment are planned before the first
            try:
                built = yield commit(self, made, away=True)  # is committed: many share a commit
            except Conflict as conflict:
                if name in conflict.keys:  # there is one of this name; else of this number
                    raise
                continue
            fork = self.on(name)
            if not built:
                yield write(settle_after, fork._handle)
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
        bounds = (since, until, limit, newest_first)
        return self._handle.history.log(key, kind, actor, correlation, *bounds)

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

    @writes
    def revert(
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
        from holdfast.store.history.revert import revert_state

        return revert_state(
            self._handle,
            correlation=correlation,
            entries=entries,
            actor=actor,
            dry_run=dry_run,
            reason=reason,
        )

    @writes
    def undo(self, *, reason: str | None = None) -> Reverted:
        """Undo the newest change of your own keys, by `revert`; undo again to have it back.

        A restore or a merge is undone by a restore of the state before it, the whole of it. What
        changed none of your keys is passed over: checkpoints, declarations, and what effects,
        agents, machines and other features note below `$`. `PointNotFoundError` if there is no
        change to undo, `RefusedError` if all of it stays.
        """
        from holdfast.store.history.revert import undo_newest

        return undo_newest(self._handle, reason)

    def history(self, key: str, *, limit: int | None = 50) -> list[Item]:
        """The versions of a key, newest first: each value with its entry, time and cause.

        Where the key was removed, the value is `holdfast.DELETED`. What a restore or merge brought
        counts as a version of its own; what the key was before a fork is in the other timeline.
        """
        return list(self._versions(key, limit))

    def _versions(self, key: str, limit: int | None) -> Iterator[Item]:
        key = check_key(key, owner=True)
        for entry in self._handle.history.log(key=key, limit=limit):
            item = self._handle.view(entry.sequence).reader.item(key) or Item(
                key, DELETED, entry.sequence, entry.time, entry.cause
            )
            yield replace(item, version=entry.sequence, time=entry.time, cause=entry.cause)

    def blame(self, key: str, *, limit: int = 1000, reveal: bool = False) -> list[Blamed]:
        """Who wrote each part of a value: for each field and item the entry that gave it.

        At most `limit` versions of the key are looked at; what may be older than those has
        `exact=False`. Items of a list are known by their places. Values of class sensitive are
        masked, unless `reveal` is given.
        """
        from holdfast.store.history.blame import blame_value

        check_count(limit, "limit")
        check_flag(reveal, "reveal")
        found = list(islice(self._versions(key, limit + 1), limit + 1))
        hide = None if reveal else self._handle.core.redact
        return blame_value(found[:limit], whole=len(found) <= limit, reveal=reveal, hide=hide)

    @writes
    def merge(
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
        from holdfast.store.history.merge import merge_state

        return merge_state(self._handle, other, strategy=strategy, dry_run=dry_run, reason=reason)

    # how long keys and items last

    @steps
    def expire(
        self,
        key: str,
        ttl: float | timedelta | None = None,
        *,
        expires: datetime | None = None,
        sliding: bool = False,
    ) -> Steps[int]:
        """Let a key expire after `ttl` seconds or at a time; its value and version stay.

        Returns the entry's number, that of the newest one if there is nothing to change. A key
        that is absent is refused with `MissingError`. With `sliding`, each read of the value
        begins the term anew (written after a tenth of it).
        """
        return (yield from self._last(key, asked_expiry(ttl, expires, sliding)))

    @steps
    def persist(self, key: str) -> Steps[int]:
        """Let a key never expire; returns the entry's number, as `expire` does."""
        return (yield from self._last(key, NEVER))

    def _last(self, key: str, terms: Terms) -> Steps[int]:
        plan = yield planned(self._handle.plan_expire, key, terms)
        if plan is None:
            return (yield planned(self._handle.place))[2]  # type: ignore[no-any-return]
        return (yield commit(self, plan))  # type: ignore[no-any-return]

    @writes
    def sweep(self, *, limit: int | None = None) -> int:
        """Remove keys that have expired, `limit` at most; tells how many.

        They read as absent without it. Each step looks at some thousand keys, not at values, and
        writes one entry (actor `system`); the state before can be travelled to, as always.
        """
        from holdfast.store.upkeep.expiry import sweep_state

        return sweep_state(self._handle, limit)

    @steps
    def trim(
        self,
        key: str,
        *,
        keep_last: int | None = None,
        before: int | None = None,
        if_version: int | None = None,
    ) -> Steps[int]:
        """Remove the oldest items of a list: all but the last few, or those before a position.

        Returns how many went; items move to the front by so many positions. `keep_last` may be
        repeated by anyone at any time; `before` is a position in the list as it is when the trim
        is applied, so where several trim, give `if_version` or read and trim in one change.
        """
        trim = trim_of(keep_last, before)
        plan = yield planned(plan_trim, self._handle, key, trim, if_version)
        return (yield commit(self, plan)) if plan is not None else 0

    @writes
    def prune(
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
        from holdfast.store.upkeep.prune import prune_state

        return prune_state(self._handle, before, keep=keep, dry_run=dry_run, reason=reason)

    def why_kept(self, point: Any = None) -> list[Hold]:
        """What keeps a checkpoint or another point from going, whatever removes it.

        For each reason: who holds it, and what ends that. Empty: nothing does, and the rules of
        retention decide. Without a point, all that is kept of this timeline, and long values of the
        scope that are being written.
        """
        from holdfast.store.upkeep.holds import why_kept

        return why_kept(self._handle, point)

    # rules

    @writes
    def declare(self, *declarations: Declaration, rebuild: bool = False) -> int:
        """Set rules that every writer of this timeline follows from now on; see `holdfast.Sticky`.

        One entry, whose number is returned; what is declared already is not written again. A
        declaration of the same kind and name replaces the one before. A fork takes them along.
        With `rebuild=True` lookups among them are made anew from the values, beside other writers.
        """
        return declare(self._handle, declarations, rebuild=rebuild)

    @writes
    def undeclare(self, *declarations: Declaration) -> int:
        """Take declarations back, by their kind and name; tells how many of them there were."""
        return undeclare(self._handle, declarations)

    # long values

    @here
    def open_write(self, key: str, *, if_version: int | None = None) -> WriteFile:
        """What is written becomes the value of the key when its block ends; any size, in bounded
        memory.

        It is the same value as `set` of those bytes. Chunks that the key's value had before are
        not stored again. Nothing is seen of it before the block ends without an error; then the
        last to end wins, or with `if_version` only if the key still has that version.
        """
        from holdfast.store.long import LongWriter, WriteFile

        return WriteFile(LongWriter(self._handle, key, if_version))

    @writes
    def put_file(self, key: str, path: Path, *, if_version: int | None = None) -> int:
        """Set a key to the content of a file; returns the entry's number."""
        from holdfast.store.long import LongWriter, load_file

        return load_file(LongWriter(self._handle, key, if_version), path)

    # following and proving

    @here
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
        line = self._handle
        place = (line.core, line.scope, line.timeline)
        return Watch(*place, prefix, pattern, since, timeout, past_pruned)

    def prove(self, key: str, *, at: Any = None) -> Proof:
        """A proof of what a key was, or that it was absent, at a checkpoint.

        Without `at` it is the newest one in the present state's past, which what a restore has
        left behind is not. `holdfast-verify` checks it, without the store and without a key.
        Whoever has it can read the value, the checkpoint's name, time and cause, and what
        `Proof.reveals` names. A value of more than 1 MiB is refused.
        """
        from holdfast.store.proof.prove import prove_key

        return prove_key(self._handle, key, at)

    @writes
    def export_chain(self, path: str | os.PathLike[str], *, feed: bool = False) -> int:
        """Write the timeline's chain to a file: envelopes and signatures, no content.

        `holdfast-verify` checks it without a key. With `feed` it also holds the rows of all lanes
        of the store (numbers and hashes, some 80 bytes a commit), so that a witness can be compared
        with it, and what the timeline itself tells of entries that it lost. Returns the number of
        entries.
        """
        from holdfast.store.proof.prove import export_chain

        return export_chain(self._handle, path, feed)

    @writes
    def cosign(self, checkpoint: Any, *, signer: str, verify: str = "full") -> Checkpoint:
        """Add a signature to a checkpoint: yours, who looked at the state and vouch for it.

        The state is checked first, as `restore` does. `signer` is `file:PATH`. The checkpoint's
        own bytes and hash stay; `verify(trust=[…], require=…)` counts the signatures.
        """
        from holdfast.store.proof.cosign import cosign

        return cosign(self._handle, checkpoint, signer, verify)


# ---- declarations -------------------------------------------------------------------------------
# Declaring rules of a state, and taking them back.


def declare(
    handle: LineHandle, declarations: tuple[Declaration, ...], *, rebuild: bool = False
) -> int:
    """Declare, and do what follows; the entry's number."""
    check_flag(rebuild, "rebuild")

    def put() -> int:
        plan = plan_declare(handle, declarations)
        entry: int = run_plan(handle.core, plan) if plan is not None else handle.place()[2]
        return entry

    entry = anew(put)
    _settle(handle, declarations)
    if rebuild:
        for one in declarations:
            if isinstance(one, Lookup):
                rebuild_lookup(handle, one.name)
    return entry


def stands(handle: LineHandle, *declarations: Declaration) -> bool:
    """Whether that is declared, and lookups are built: who declared it may have been killed in
    between, and declaring it again goes on."""
    line = handle.reader.now()
    if line is None or not lookup_terms.all_built(line):
        return False
    return all(one in line.declared.all for one in declarations)


def undeclare(handle: LineHandle, declarations: tuple[Declaration, ...]) -> int:
    """Take declarations back, and do what follows; how many of them there were."""
    plan = plan_undeclare(handle, declarations)
    count: int = run_plan(handle.core, plan) if plan is not None else 0
    _settle(handle, declarations)
    return count


def _settle(handle: LineHandle, declarations: tuple[Declaration, ...]) -> None:
    """Do what follows from declarations, or goes on after it was cut short: build lookups."""
    if any(isinstance(one, Lookup | Classed) for one in declarations):
        anew(lambda: settle_lookups(handle))


def plan_declare(handle: LineHandle, declarations: tuple[Declaration, ...]) -> Plan | None:
    """A change that declares what differs from what is declared; None if nothing does."""
    _check(declarations)
    try:
        known = {one.key: one.data() for one in handle.reader.declared().all}
    except DamagedRecordError:
        known = {}  # declaring anew is what helps
    wanted = {one.key: one.data() for one in declarations}
    codec = handle.core.codec
    for key, data in wanted.items():
        size = len(codec.encode(codec.plain(data)))
        if size > MOST_BYTES:
            raise InvalidInputError(
                f"{handle.scope}: what {key!r} declares takes {size} bytes; at most {MOST_BYTES}"
            )
    operations = [
        Operation("set", one.key, wanted[one.key])
        for one in {one.key: one for one in declarations}.values()
        if one.key not in known or not same(known[one.key], wanted[one.key])
        if not _check_fit(handle, one)
    ]
    beside = {key: value for one in declarations for key, value in one.along().items()}
    if beside:
        # In front: what is declared is known once its own operation is done.
        exists = handle.reader.exists
        more = [Operation("set", key, value) for key, value in beside.items() if not exists(key)]
        operations = [*more, *operations, *sticky_along(more, handle.reader.declared)]
    return handle._plan(operations, handle._version) if operations else None


def plan_undeclare(handle: LineHandle, declarations: tuple[Declaration, ...]) -> Plan | None:
    """A change that takes back those of the declarations that are there; None if none is."""
    _check(declarations)
    wanted = {one.key for one in declarations}
    found = [one.key for one in handle.reader.declared().all if one.key in wanted]
    operations = [Operation("delete", key) for key in found]

    def finish(_: list[Written]) -> int:
        line = handle.reader.now()
        if line is not None:
            handle.core.ephemerals.box(line)  # what is no longer ephemeral goes at once
        return len(found)

    return handle._plan(operations, finish) if found else None


def _check(declarations: tuple[Declaration, ...]) -> None:
    for one in declarations:
        if not isinstance(one, Declaration):
            raise InvalidInputError(
                f"what is declared is made like holdfast.Sticky('effects/'), not a "
                f"{type(one).__name__}"
            )


def _check_fit(handle: LineHandle, one: Declaration) -> bool:
    """Refuse what does not fit the state as it is; True if a later one has taken its place."""
    if isinstance(one, Lookup):
        # A value with too many terms could never be part of it.
        lookup_terms.check_values(handle.reader.now(), one)
    elif not isinstance(one, Ephemeral):
        return one.check_fit(handle.reader.get, lambda: handle.reader.declared().all)
    elif one.prefix.startswith(RESERVED):
        raise InvalidInputError(
            f"{handle.scope}: keys that begin with $ are those of parts of Holdfast, which "
            f"rely on them: {one.prefix!r} cannot be declared ephemeral"
        )
    elif handle.reader.stored_keys(one.prefix):  # they would be hidden
        raise InvalidInputError(
            f"{handle.scope}: keys that begin with {one.prefix!r} are stored; delete them before "
            "you declare them ephemeral"
        )
    return False
