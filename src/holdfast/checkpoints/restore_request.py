"""Restores as they are asked for: located, checked, in part or from elsewhere, recovered."""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import chain, count
from typing import Any, NamedTuple

from holdfast.checkpoints.create import (
    Dependency,
    agent_id,
    check_dependencies,
    held_one,
    make,
    release,
    unmet,
)
from holdfast.checkpoints.locate import Tried, locate
from holdfast.checkpoints.request import CheckpointRequest, Locator, RestoreRequest
from holdfast.errors import (
    CheckpointNotFoundError,
    Conflict,
    RestoreValidationError,
    StateIntegrityError,
    StateValidationError,
)
from holdfast.storage.rows import again
from holdfast.store.inner import (
    MISSING,
    NOTHING,
    PREFIX,
    TABLE,
    Asked,
    Body,
    Diff,
    Keep,
    Ledger,
    LineHandle,
    Meta,
    Node,
    Operation,
    Reader,
    Rules,
    Slot,
    Stage,
    StoreHandle,
    Timeline,
    Written,
    apart,
    beside_pruning,
    build_change,
    count_keys,
    derived,
    ended_if_it_fails,
    entry,
    ephemeral_prefixes,
    expiry_changes,
    index_of,
    masked_changes,
    meta_along,
    meta_of,
    moment,
    refs,
    restore_state,
    rules_of,
    same,
    settle_after,
    show_changes,
    shown_value,
    sticky_of,
    sticky_prefixes,
    terms_of,
    told,
    tree_changes,
)
from holdfast.store.names.arguments import unawaited
from holdfast.store.names.cause import Cause, cause_now
from holdfast.store.names.items import Checkpoint, Restored
from holdfast.store.names.scope import check_key
from holdfast.store.rules.classes import sensitive

# ---- restore in part ----------------------------------------------------------------------------
# Bringing keys of one state into another: some of an older state, or those of another scope.
#
# Keys that differ are set or deleted, together with a backup, in one commit. A key that is asked
# for by its name is set also if it is what it is to be: whoever undoes what was there before finds
# that somebody else wants it so. What does not fit into one entry is put together on a timeline of
# its own, which is then adopted in one entry: all or nothing, however many keys there are; what
# others wrote to other keys meanwhile stays. Sticky keys, declarations and what is derived from
# other keys are left alone, as by every restore; unless they are to come along, because those of
# now are damaged, or there are none.


MOST_KEYS, MOST_NAMES, MOST_BYTES = 2000, 256 * 1024, 4 << 20
"""What one entry takes: keys, bytes of their names, bytes of their values."""
MOST_LEFT = 10_000
"""Keys that others may write while a state is put together on a timeline of its own."""


class Differs(NamedTuple):
    """A key that is not what it is to become."""

    key: str
    now: Slot | None
    then: Slot | None


class Bringing:
    """What it takes to give keys of one timeline the values they have in another state."""

    def __init__(
        self,
        handle: LineHandle,
        source: Timeline,
        label: str,
        keys: Sequence[str] | None,
        prefixes: Sequence[str] | None,
        reason: str | None,
        *,
        sticky: bool = False,
        instead: Mapping[str, Operation] | None = None,
        rules: Rules | None = None,
    ) -> None:
        """Of some keys and prefixes; of all, if both are None.

        `rules` say what is sensitive there, if more does than what is declared in the source.
        """
        self.handle = handle
        self.core = handle.core
        self.source = source
        self.label = label
        self.keys = sorted({check_key(key, owner=True) for key in keys or ()})
        whole = keys is None and prefixes is None
        named = (check_key(prefix + "*", owner=True)[:-1] for prefix in prefixes or ())
        self.prefixes = [""] if whole else list(apart(named))
        self.cause = cause_now(reason=reason)
        self.sticky = sticky
        """Whether sticky keys and declarations come along, too."""
        self.instead = instead or {}
        """By keys that come along: what is written besides, or in their place."""
        self.rules = rules or [source.declared]
        """By what it is judged whether something of the source is sensitive."""
        self._same_line = False
        self.declared = NOTHING
        """What is declared in the newest state."""
        self.time = 0
        """By which expiry is judged."""
        self.left: list[str] = []
        self.root: list[Node] = []
        self.backup: list[Checkpoint] = []

    def run(self, if_head: int | None) -> tuple[Restored, Written | None]:
        """Do it; also what it became, None if nothing differs."""
        attempts = count(1)

        def step() -> tuple[Restored, Written | None]:
            now, attempt = self._now(), next(attempts)
            pieces = self._pieces(now)
            first, second = next(pieces, []), next(pieces, None)
            if not first:
                return self._result(now.sequence if now else 0, now), None
            if second is None:
                written = self._change(first, now, if_head, attempt)
                return self._result(written.sequence, now), written
            return self._adopt(chain([first, second], pieces), now, if_head)

        if if_head is not None:
            return step()
        # Compared with what they wrote, it may be less, or other keys.
        return again(step, f"{self.handle.scope}: others were always faster; try again")

    def spread(self) -> None:
        """Do it in as many entries as it takes, with no backup: on a timeline of its own."""
        self._write(self.handle, self._pieces(self._now()))

    def dry_run(self, verify: str, checked: int) -> Restored:
        """What it would do."""
        now = self._now()
        handle = self.handle
        diff = Diff(f"{handle.timeline}@{now.sequence if now else 0}", self.label)
        rules = list(dict.fromkeys([self.declared, *self.rules]))
        for one in self._differing(now):
            before = _shown(now.ledger, one.now) if now else MISSING
            after = _shown(self.source.ledger, one.then)
            if sensitive(one.key, [one.now, one.then], rules):
                masked_changes(one.key, before, after, diff)
            else:
                show_changes(self.handle.core.codec, one.key, (before, after), diff)
            if one.now is not None and one.then is not None:
                expiry_changes(one.key, meta_of(one.now), meta_of(one.then), diff)
        done = self._result(now.sequence if now else 0, now)
        return replace(done, dry_run=True, diff=diff, verified=verify, values_checked=checked)

    # what differs

    def _now(self) -> Timeline | None:
        """The newest state as it is at this moment; None if there is no scope yet."""
        self.time = self.core.clock.checked()
        sequence = self.handle.place()[2]
        if not sequence:
            return None
        now = self.handle.history.points.view(self.handle.timeline, sequence)
        self.declared, self._same_line = now.declared, now.number == self.source.number
        return now

    def _differing(self, now: Timeline | None) -> Iterator[Differs]:
        """Keys that are to change, in order of the parts asked for; notes those left alone."""
        self.left = []
        declared = now.declared if now is not None else NOTHING
        alone, never = sticky_prefixes(declared), (PREFIX, *ephemeral_prefixes(declared))
        if self.sticky:
            alone, never = (), ephemeral_prefixes(declared)
        if self._elsewhere(now):
            own = self.handle.scope == self.source.ledger.scope
            never += TABLE.index.left_behind(own=own)
        # One that has expired by today counts as absent, then as now.
        below = ((key, False) for prefix in self.prefixes for key in self._below(now, prefix))
        named = ((key, True) for key in self.keys if not key.startswith(tuple(self.prefixes)))
        for key, asked in chain(below, named):
            for one in self._differences(now, key, named=asked):
                if derived(one.key) or one.key.startswith(never):
                    continue
                if one.key.startswith(alone):
                    self.left.append(one.key)
                else:
                    yield one

    def _below(self, now: Timeline | None, prefix: str) -> Iterator[str]:
        """Keys that begin with a text and may differ."""
        if now is not None and not self._elsewhere(now):
            trees, then = now.ledger.trees, index_of(self.source)
            yield from (key for key, _, _ in tree_changes(trees, index_of(now), then, prefix))
            return
        yield from (key for key, _ in self.source.scan(prefix))
        if now is not None:
            for key, _ in now.scan(prefix):
                if self.source.slot(key) is None:
                    yield key

    def _wanted(self, key: str | None) -> bool:
        """Whether a key is one of those asked for."""
        if key is None:
            return False
        at = bisect_left(self.keys, key)
        return key.startswith(tuple(self.prefixes)) or self.keys[at : at + 1] == [key]

    def _differences(
        self, now: Timeline | None, key: str, *, named: bool = False
    ) -> Iterator[Differs]:
        """A key that differs, and what comes along with it."""
        for one in self._difference(now, key, named=named):
            yield one
            beside = TABLE.index.along(key)
            if beside is not None and not self._wanted(beside):
                yield from self._difference(now, beside)

    def _difference(
        self, now: Timeline | None, key: str, *, named: bool = False
    ) -> Iterator[Differs]:
        one = Differs(key, self._settled(now, key), self._settled(self.source, key))
        if one.now is None or one.then is None or now is None:
            differs = one.now is not one.then
        elif not self._elsewhere(now):
            differs = one.now.ref != one.then.ref or meta_of(one.now) != self._meta(one)
        else:  # the refs of two scopes cannot be compared
            differs = meta_of(one.now) != self._meta(one) or not same(
                _plain(now.ledger, one.key, one.now), _plain(self.source.ledger, one.key, one.then)
            )
        if differs or (named and one.then is not None):
            yield one

    def _elsewhere(self, now: Timeline | None) -> bool:
        """Whether it comes from another scope, or from a copy of this one in another store."""
        there = self.source.ledger
        return (
            now is None
            or now.ledger.number != there.number
            or now.ledger.storage is not there.storage
        )

    def _settled(self, line: Timeline | None, key: str) -> Slot | None:
        slot = line.slot(key) if line is not None else None
        if line is None or slot is None or slot.over(self.time):
            return None
        return line.settled(slot)

    def _meta(self, one: Differs) -> Meta:
        """Expiry and class that come along; what is sensitive by the rules of there stays so.

        The past of the same timeline goes by those of now, and so does what brings its own along.
        """
        meta, there, here = meta_of(one.then), self.source, self.handle
        if here.scope == there.ledger.scope and (self.sticky or self._same_line):
            return meta
        return meta_along(one.key, meta, self.rules, self.declared)

    def _pieces(self, now: Timeline | None) -> Iterator[list[Differs]]:
        """What differs, in pieces that fit into one entry each."""
        piece: list[Differs] = []
        names = size = 0
        for one in self._differing(now):
            more = refs.size_of(one.then.ref) if one.then is not None else 0
            name = len(one.key.encode()) + 16
            if piece and (
                len(piece) == MOST_KEYS or names + name > MOST_NAMES or size + more > MOST_BYTES
            ):
                yield piece
                piece, names, size = [], 0, 0
            piece.append(one)
            names, size = names + name, size + more
        if piece:
            yield piece

    # writing

    def _operations(self, piece: list[Differs]) -> list[Operation]:
        found: list[Operation] = []
        for one in piece:
            other = self.instead.get(one.key)
            if other is not None and other.key == one.key:
                found.append(other)
                continue
            if one.then is None:
                found.append(Operation("delete", one.key))
            else:
                value = _plain(self.source.ledger, one.key, one.then)
                found.append(Operation("set", one.key, value, terms_of(self._meta(one))))
            found += [other] if other is not None else []
        return found

    def _change(
        self, piece: list[Differs], now: Timeline | None, if_head: int | None, attempt: int
    ) -> Written:
        """All of it as one entry, behind the backup; what was looked at is expected."""
        handle, core = self.handle, self.core
        expects = {one.key: now.version(one.now) if now else 0 for one in piece}
        asked = (handle.scope, handle.timeline, self._operations(piece), expects, if_head)
        seen = told(asked, handle.reader)
        change = build_change(core, [seen], cause=self.cause, looked=True, attempt=attempt)
        target = change.targets[0]

        def special(stage: Stage, body: Body) -> None:
            packed = core.codec.encode({"restores": self.label})
            name = f"before restore of {self.label}"
            op = [entry.CHECKPOINT, name, "recovery", str(handle.scope), [], "", packed]
            self.backup[:] = [
                handle.history.signed(stage, Body(body.time, [op], [], body.cause)),
            ]
            stage.add(target.prepared(stage.ledger), body)
            self.root[:] = [stage.fold()]

        target.special, target.backup, target.create = special, True, now is None
        if now and target.ledger and target.ledger.number != now.ledger.number:
            raise Conflict(f"{handle.scope} was deleted meanwhile", [str(handle.scope)])
        return core.run(change)[0]

    def _adopt(
        self, pieces: Iterator[list[Differs]], now: Timeline | None, if_head: int | None
    ) -> tuple[Restored, Written]:
        """Put the state together on a timeline of its own, then adopt it in one entry."""
        handle, core = self.handle, self.core
        head = now.sequence if now is not None else 0
        if now is None:  # there is nothing to fork yet
            head = make(handle, CheckpointRequest("before the first state", "recovery")).sequence
        if if_head is not None and if_head != head:
            raise Conflict(f"{handle.scope}: entry {head} was written since {if_head}")
        history = handle.history
        with _trial(handle, head, self.cause) as trial:
            begun = history.points.view(handle.timeline, head)
            self._write(trial, pieces)
            change, finish = history.plan_restore(
                "{1}@{2}".format(*trial.place()),
                verify="references",
                cause=self.cause,
                if_head=if_head,
                keep=lambda stage: self._left_alone(begun, stage),
            )
            written = core.run(change)
        done: Restored = finish(written)
        return replace(done, point=self.label, left=tuple(self.left)), written[0]

    def _write(self, line: LineHandle, pieces: Iterator[list[Differs]]) -> None:
        """An entry for each piece."""
        for piece in pieces:
            asked: Asked = (line.scope, line.timeline, self._operations(piece), {}, None)
            self.core.run(build_change(self.core, [asked], cause=self.cause))

    def _left_alone(self, begun: Timeline, stage: Stage) -> list[str]:
        """What stays as it is when the timeline is adopted: what came along is to be taken over,
        sticky or not."""
        others = (
            key
            for key in _since(begun, stage)
            if not (derived(key) or self._wanted(key) or self._wanted(TABLE.index.leader(key)))
        )
        found = _few(others, [*self.prefixes, *self.keys], stage)
        return [*(() if self.sticky else sticky_of(stage)), *found]

    def _result(self, sequence: int, now: Timeline | None) -> Restored:
        ledger = now.ledger if now is not None else self.source.ledger
        root = self.root[0] if self.root else index_of(now) if now else ledger.trees.empty
        return Restored(
            self.handle.scope,
            self.handle.timeline,
            sequence,
            self.label,
            root.hash.hex(),
            self.backup[0] if self.backup else None,
            "none",
            count_keys(ledger.trees, root),
            left=tuple(self.left),
        )


@contextmanager
def put_together(
    handle: LineHandle,
    point: int,
    source: Timeline,
    label: str,
    reason: str,
    prefixes: Sequence[str] | None = None,
) -> Iterator[str]:
    """All of a state, sticky keys and declarations too, on a timeline of its own.

    It begins at an entry of this one; with `prefixes`, other keys are as they are there. Gives the
    point on it, to return to in the block; if that fails, the timeline is ended.
    """
    with _trial(handle, point, cause_now(reason=reason)) as trial:
        Bringing(trial, source, label, None, prefixes, reason, sticky=True).spread()
        yield "{1}@{2}".format(*trial.place())


@contextmanager
def _trial(
    handle: LineHandle,
    at: int,
    cause: Cause | None,
    name: str = "",
    failed: str = "the restore was not done",
) -> Iterator[LineHandle]:
    """A timeline on which a state is put together; if the block fails, it is ended."""
    name = name or f"restore-{os.urandom(6).hex()}"
    fork, forked = handle.history.plan_fork(name, at, cause)
    trial = handle.on(forked(handle.core.run(fork)))
    with ended_if_it_fails(trial, failed):
        yield trial


def _since(begun: Timeline, stage: Stage, prefixes: Iterable[str] = ("",)) -> Iterator[str]:
    """Keys that were written since such a timeline was begun."""
    trees, before, now = stage.ledger.trees, index_of(begun), stage.fold()
    for prefix in prefixes:
        yield from (key for key, _, _ in tree_changes(trees, before, now, prefix))


def _few(keys: Iterable[str], taken: Iterable[str], stage: Stage) -> list[str]:
    """Keys that stay as they are when it is adopted, and so does what begins with one of them.

    Nothing of that is to be taken over; nor are there very many, or is something else declared.
    """
    scope, found, taken = stage.ledger.scope, [], sorted(taken)
    for key in keys:
        at = bisect_left(taken, key)
        if key.startswith(PREFIX) or any(one.startswith(key) for one in taken[at : at + 1]):
            raise Conflict(f"{scope}: {key!r} was written meanwhile; try again", [key])
        found.append(key)
        if len(found) > MOST_LEFT:
            raise Conflict(f"{scope}: others wrote very many keys meanwhile; try again")
    return found


def _plain(ledger: Ledger, key: str, slot: Slot) -> Any:
    """A value in plain form: what is written again is exactly what was stored."""
    return ledger.value_of(key, slot, ledger.codec.plain_reader)


def _shown(ledger: Ledger, slot: Slot | None) -> Any:
    return shown_value(ledger, slot.ref, slot.location) if slot is not None else MISSING


# ---- restore request ----------------------------------------------------------------------------


FAILED = "the simulation failed"


@dataclass(frozen=True, slots=True)
class RestoreResult:
    """What became of a request; one that fails raises instead."""

    success: bool
    """False only of a dry run: the restore is refused, for what `dependencies` says of these."""
    agent_id: str
    restored_from: str
    """The point, TIMELINE@NUMBER; behind the scope, if it is another one."""
    restored_to: str
    """The entry of the restore, TIMELINE@NUMBER; of a dry run, the newest entry."""
    backup_created: str | None
    """Id of the checkpoint of the state before, which is held until `confirm`."""
    restored_at: datetime | None
    """None if nothing was changed."""
    restored: Restored
    dependencies: tuple[Dependency, ...] = ()
    tried: tuple[Tried, ...] = ()
    """Checkpoints that were looked at to find one that is whole."""

    def __str__(self) -> str:
        head = f"{self.agent_id}: restored {self.restored_from}, of {len(self.tried)} tried"
        lines = [
            f"  {one.id} {one.name}: {'whole' if one.valid else one.reason}" for one in self.tried
        ]
        lines += [f"  it rests on {one}" for one in self.dependencies]
        lines += [f"  {self.restored.passed_over}"] if self.restored.passed_over else []
        return "\n".join([head, *lines])


@dataclass(frozen=True, slots=True)
class Simulation:
    """What a function did to a restored state that nobody else saw."""

    result: Any
    """What the function returned."""
    timeline: str
    """The timeline that it ran on, which stays and can be looked at."""
    diff: Diff
    """What the function changed."""
    restored: RestoreResult


def restore(handle: LineHandle, request: RestoreRequest) -> RestoreResult:
    """Do a restore as it is asked for, but for what it is to be validated with."""
    request.check()
    tried: list[Tried] = []
    source, timeline, sequence = _meant(handle, request, tried)
    about: dict[str, Any] = {}
    with suppress(CheckpointNotFoundError):  # a point that is none says nothing
        about = source.history.checkpoint_at(timeline, sequence).metadata if sequence else {}
    wanted = "ignore" if request.dry_run else request.dependencies
    dependencies = check_dependencies(handle, about, wanted)
    refused = unmet(dependencies, request.dependencies) if request.dry_run else []
    written: Written | None = None
    point = f"{timeline}@{sequence}"
    if source.scope != handle.scope or request.partial:
        restored, written = _bring(handle, source, timeline, sequence, request)
    elif request.dry_run:
        restored = handle.history.dry_restore(point, verify=request.verify)
    else:
        how = restore_past_damage if request.past_damage else restore_state
        restored, written = how(handle, point, request.verify, request.reason, request.if_head)
    return RestoreResult(
        not refused,
        agent_id(handle),
        restored.point,
        f"{handle.timeline}@{restored.sequence}",
        restored.backup.id if restored.backup is not None else None,
        moment(written.time) if written is not None else None,
        restored,
        tuple(dependencies),
        tuple(tried),
    )


def _meant(
    handle: LineHandle, request: RestoreRequest, tried: list[Tried] | None = None
) -> tuple[LineHandle, str, int]:
    """Whose point is meant, and which."""
    given = request.source
    source = StoreHandle(handle.core).of(given) if given is not None else handle
    point = request.point if request.point is not None else locate(source, request.where, tried)
    return source, *source.history.points.find(point)


def _bring(
    handle: LineHandle, source: LineHandle, timeline: str, sequence: int, request: RestoreRequest
) -> tuple[Restored, Written | None]:
    history = source.history
    then = history.points.view(timeline, sequence)
    _, checked = history.check_point(then, sequence, request.verify)
    label = f"{timeline}@{sequence}"
    if source.scope != handle.scope:
        label = f"{source.scope} {label}"
    rules = rules_of((Reader(source.core, source.scope, timeline, then), then))
    asked = (request.keys, request.prefixes, request.reason)
    bringing = Bringing(handle, then, label, *asked, rules=rules)
    if request.dry_run:
        return bringing.dry_run(request.verify, checked), None
    handle.ask("restore", label)
    restored, written = bringing.run(request.if_head)
    settle_after(handle)
    return replace(restored, verified=request.verify, values_checked=checked), written


# after a restore


def failed(answer: Any) -> str | None:
    """Why a validation failed, by what it returned; None if it did not."""
    if answer is None or answer is True:
        return None
    if unawaited(answer):
        return "it is to be awaited, which holdfast.checkpoints.Checkpoints does"
    return answer if isinstance(answer, str) and answer else "it was not accepted"


def roll_back(handle: LineHandle, result: RestoreResult, why: str) -> StateValidationError:
    """Put back the state before a restore; gives the error to raise."""
    text = f"{handle.scope}: Restored state validation failed: {why}"
    restored = result.restored
    if result.restored_at is None:
        return StateValidationError(f"{text}; nothing had been changed")
    if restored.backup is None:
        return StateValidationError(
            f"{text}; the state before could not be kept, so this one stays: restore another point"
        )
    reason = f"the restore of {restored.point} failed its validation"
    back, _ = restore_state(handle, restored.backup, "references", reason)
    assert back.backup is not None
    between = handle.history.log(
        since=restored.sequence + 1, until=back.backup.sequence - 1, limit=1000
    )
    ids = [restored.backup.id, *([] if between else [back.backup.id])]
    release(handle, ids, "rolled back")
    more = f"; {len(between)} entries of others are kept in {back.backup.id}" if between else ""
    return StateValidationError(f"{text}; the state before is back{more}", back, between)


def confirm(handle: LineHandle, which: Any) -> Checkpoint | None:
    """Say that a restore is good: its backup is no longer held; None if it has none."""
    if isinstance(which, RestoreResult):
        which = which.restored
    point = which.backup if isinstance(which, Restored) else which
    if point is None and which is not None:
        return None
    found = held_one(handle, point, "restore")
    return release(handle, [found.checkpoint.id], "confirmed")


# simulation


def rehearse(handle: LineHandle, request: RestoreRequest) -> tuple[LineHandle, RestoreResult]:
    """Do a restore on a timeline of its own, which begins with the newest state.

    If it fails, that timeline is ended; if what comes behind it does, the caller ends it.
    """
    problems = request.problems()
    if request.dry_run is True:
        problems.append("a simulation restores, on a timeline of its own: leave out dry_run")
    if request.validate is not None:
        problems.append("what a simulation runs can validate itself: leave out validate")
    if problems:
        raise RestoreValidationError(problems)
    source, timeline, sequence = _meant(handle, request)
    handle.ask("fork", "simulation")
    head = handle.place()[2]
    if request.if_head not in (None, head):
        raise Conflict(f"{handle.scope}: its newest entry is {head}, not {request.if_head}")
    there = replace(
        request, point=f"{timeline}@{sequence}", where=Locator(), source=source.scope, if_head=None
    )
    name = f"simulation-{os.urandom(6).hex()}"
    with _trial(handle, head, cause_now(), name, FAILED) as trial:
        return trial, restore(trial, there)


# ---- restore past damage ------------------------------------------------------------------------
# Going back past damage: sticky keys that cannot be read any more are those of the point.
#
# A restore leaves sticky keys as they are. If the value of one is damaged, what it leaves could not
# be read whole. So the state is put together on a timeline of its own, where those keys are what
# they were at the point and the others what they are now, and is adopted in one entry; sticky keys
# that others write meanwhile stay.
#
# Who owns such keys may have something else stand in for them (`Owned`, unreadable): that nothing
# was known at the point of what happened since does not mean that it has not happened.


class Way(NamedTuple):
    """How to return to a point so that all of what is there then can be read."""

    point: str
    """The point to restore: the one that was asked for, or one that was put together from it."""
    keep: Keep
    """What that restore leaves alone."""
    damaged: tuple[str, ...] = ()
    """Sticky keys that cannot be read now, and will be those of the point."""
    left: tuple[str, ...] = ()
    """Sticky keys that are other than at the point, and stay."""


def damaged_keys(line: Timeline, prefix: str = "") -> list[str]:
    """Keys that begin with a text and whose values cannot be read; a damaged index raises."""
    return [key for key, slot in line.scan(prefix) if is_damaged(line, slot)]


def is_damaged(line: Timeline, slot: Slot) -> bool:
    """Whether a value cannot be read."""
    try:
        settled = line.settled(slot)
        line.ledger.check_value(settled.ref, settled.location)
    except StateIntegrityError:  # that is what is asked
        return True
    return False


def stand_ins(handle: LineHandle, source: Timeline, keys: Iterable[str]) -> dict[str, Operation]:
    """What is written for some damaged keys that are taken from another state."""
    found: dict[str, Operation] = {}
    for key in keys:
        rule = TABLE.index.rule(key)
        if rule is not None and rule.unreadable is not None:
            operation = rule.unreadable(handle, source, key)
            found |= {key: operation} if operation is not None else {}
    return found


def damaged_sticky(handle: LineHandle) -> list[str]:
    """Sticky keys whose newest values cannot be read.

    None if the newest state cannot be read at all: a restore does not keep its sticky keys.
    """
    points = handle.history.points
    line = points.past_damage()
    if line.stranded is not None:
        return []
    now = points.view(handle.timeline, line.sequence)
    return [key for prefix in sticky_prefixes(now.declared) for key in damaged_keys(now, prefix)]


@contextmanager
def past_damage(handle: LineHandle, point: str, verify: str, reason: str | None) -> Iterator[Way]:
    """How to return to a point (TIMELINE@NUMBER), to be done in the block.

    If it is not done, the timeline on which the state was put together is ended.
    """
    damaged = damaged_sticky(handle)
    if not damaged:
        yield Way(point, sticky_of)
        return
    history, core, cause = handle.history, handle.core, cause_now(reason=reason)
    timeline, sequence = history.points.find(point)
    source = history.points.view(timeline, sequence)
    history.check_point(source, sequence, verify)
    begun = history.points.view(handle.timeline, handle.place()[2])
    with _trial(handle, begun.sequence, cause) as trial:
        # First the damaged ones: what is kept of them may be looked at.
        instead = stand_ins(handle, source, damaged)
        Bringing(trial, source, point, damaged, None, reason, sticky=True, instead=instead).spread()
        change, finish = trial.history.plan_restore(point, verify="none", cause=cause)
        left = finish(core.run(change)).left
        yield Way(
            "{1}@{2}".format(*trial.place()),
            lambda stage: _few(_since(begun, stage, sticky_of(stage)), damaged, stage),
            tuple(damaged),
            left,
        )


def restore_past_damage(
    handle: LineHandle, point: str, verify: str, reason: str | None, if_head: int | None
) -> tuple[Restored, Written]:
    """Return to a point, whatever is damaged now; also what that became."""

    def step() -> tuple[Restored, Written]:
        with past_damage(handle, point, verify, reason) as way:
            change, finish = handle.plan_restore(way.point, verify, reason, if_head, True, way.keep)
            written = handle.core.run(change)
        done = finish(written)
        if way.damaged:  # told in terms of what was asked for
            keys = ", ".join(way.damaged[:10]) + (" …" if len(way.damaged) > 10 else "")
            done = replace(
                done,
                point=point,
                left=tuple(sorted({*way.left, *done.left})),
                passed_over=f"sticky keys that could not be read are those of {point}: {keys}",
            )
        return done, written[0]

    done = beside_pruning(step) if if_head is None else step()
    settle_after(handle)
    return done
