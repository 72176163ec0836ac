"""Bringing keys of one state into another: some of an older state, or those of another scope.

Keys that differ are set or deleted, together with a backup, in one commit. A key that is asked for
by its name is set also if it is what it is to be: whoever undoes what was there before finds that
somebody else wants it so. What does not fit into
one entry is put together on a timeline of its own, which is then adopted in one entry: all or
nothing, however many keys there are; what others wrote to other keys meanwhile stays. Sticky keys,
declarations and what is derived from other keys are left alone, as by every restore; unless they
are to come along, because those of now are damaged, or there are none.
"""

from __future__ import annotations

import os
import re
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain
from typing import Any, NamedTuple

from holdfast.checkpoints.create import make
from holdfast.checkpoints.policy.policy import PREFIX as POLICIES
from holdfast.checkpoints.request import CheckpointRequest
from holdfast.errors import Conflict
from holdfast.store.inner import (
    ASKING,
    MISSING,
    NOTHING,
    PREFIX,
    UPDATES,
    Asked,
    Body,
    Diff,
    Ledger,
    LineHandle,
    Meta,
    Node,
    Operation,
    Rules,
    Slot,
    Stage,
    Timeline,
    Written,
    apart,
    build_change,
    companion,
    count_keys,
    derived,
    ended_if_it_fails,
    entry,
    ephemeral_prefixes,
    expiry_changes,
    index_of,
    leader,
    masked_changes,
    meta_along,
    meta_of,
    refs,
    same,
    show_changes,
    shown_value,
    sticky_of,
    sticky_prefixes,
    terms_of,
    told,
    tree_changes,
)
from holdfast.store.names.cause import cause_now
from holdfast.store.names.items import Checkpoint, Restored
from holdfast.store.names.scope import check_key
from holdfast.store.rules.classes import sensitive

MOST_KEYS, MOST_NAMES, MOST_BYTES = 2000, 256 * 1024, 4 << 20
"""What one entry takes: keys, bytes of their names, bytes of their values."""
MOST_LEFT = 10_000
"""Keys that others may write while a state is put together on a timeline of its own."""
ADOPTIONS = 5
"""How often it is put together anew, because they wrote more, or a key that begins one of these."""


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
        guard: Callable[[Ledger], None] | None = None,
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
        self.prefixes = [""] if whole else _apart(prefixes or ())
        self.cause = cause_now(reason=reason)
        self.sticky = sticky
        """Whether sticky keys and declarations come along, too."""
        self.instead = instead or {}
        """By keys that come along: what is written besides, or in their place."""
        self.guard = guard or (lambda _: None)
        """Asked of the scope before anything is written to it, raises if that is not to be."""
        self._rules = rules
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
        adoptions = 0
        for attempt in range(1, UPDATES + 1):
            now = self._now()
            pieces = self._pieces(now)
            first = next(pieces, [])
            second = next(pieces, None)
            try:
                if not first:
                    return self._result(now.sequence if now else 0, now), None
                if second is None:
                    written = self._change(first, now, if_head, attempt)
                    return self._result(written.sequence, now), written
                adoptions += 1
                return self._adopt(chain([first, second], pieces), now, if_head)
            except Conflict:
                if if_head is not None or attempt == UPDATES or adoptions == ADOPTIONS:
                    raise
        raise AssertionError

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

    @property
    def rules(self) -> Rules:
        """By what it is judged whether something of the source is sensitive."""
        return self._rules or [self.source.declared]

    def _differing(self, now: Timeline | None) -> Iterator[Differs]:
        """Keys that are to change, in order of the parts asked for; notes those left alone."""
        self.left = []
        declared = now.declared if now is not None else NOTHING
        alone, never = sticky_prefixes(declared), (PREFIX, *ephemeral_prefixes(declared))
        if self.sticky:
            alone, never = (), ephemeral_prefixes(declared)
        if self._elsewhere(now):
            never += ASKING
        if self.handle.scope != self.source.ledger.scope:
            never += (POLICIES,)  # each agent has its own
        for one in self._compared(now):
            if derived(one.key) or one.key.startswith(never):
                continue
            if one.key.startswith(alone):
                self.left.append(one.key)
            else:
                yield one

    def _compared(self, now: Timeline | None) -> Iterator[Differs]:
        """Keys that differ. One that has expired by today counts as absent, then as now."""
        for prefix in self.prefixes:
            for key in self._below(now, prefix):
                yield from self._differences(now, key)
        for key in self.keys:
            if not key.startswith(tuple(self.prefixes)):
                yield from self._differences(now, key, named=True)

    def _below(self, now: Timeline | None, prefix: str) -> Iterator[str]:
        """Keys that begin with a text and may differ."""
        then = index_of(self.source)
        if now is not None and not self._elsewhere(now):
            for key, _, _ in tree_changes(now.ledger.trees, index_of(now), then, prefix):
                yield key
            return
        yield from _keys(self.source, then, prefix)
        if now is not None:
            for key in _keys(now, index_of(now), prefix):
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
            beside = companion(key)
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
        return [operation for one in piece for operation in self._written(one)]

    def _written(self, one: Differs) -> list[Operation]:
        other = self.instead.get(one.key)
        if other is not None and other.key == one.key:
            return [other]
        if one.then is None:
            own = Operation("delete", one.key)
        else:
            value = _plain(self.source.ledger, one.key, one.then)
            own = Operation("set", one.key, value, terms_of(self._meta(one)))
        return [own, other] if other is not None else [own]

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
            self.guard(stage.ledger)
            packed = core.codec.encode({"restores": self.label})
            name = f"before restore of {self.label}"
            op = [entry.CHECKPOINT, name, "recovery", str(handle.scope), [], "", packed]
            self.backup[:] = [
                handle.history.signed(stage, Body(body.time, [op], [], body.cause)),
            ]
            stage.add(core.prepared(stage.ledger, target), body)
            self.root[:] = [stage.fold()]

        target.special, target.backup, target.create = special, True, now is None
        change.done_again = if_head is None and attempt < UPDATES
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
        self.guard(history.points.line().ledger)
        fork, forked = history.plan_fork(new_name(), head, self.cause)
        trial = handle.on(forked(core.run(fork)))
        with ended_if_it_fails(trial, "the restore was not done"):
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
        return [*(() if self.sticky else sticky_of(stage)), *self._since(begun, stage)]

    def _since(self, begun: Timeline, stage: Stage) -> list[str]:
        """Other keys that were written since a timeline of its own was begun."""
        scope = self.handle.scope
        found: list[str] = []
        for key, _, _ in tree_changes(stage.ledger.trees, index_of(begun), stage.fold()):
            if derived(key) or self._wanted(key) or self._wanted(leader(key)):
                continue
            at = bisect_left(self.keys, key)
            next_ = self.keys[at : at + 1]
            if any(one.startswith(key) for one in [*self.prefixes, *next_]):
                raise Conflict(f"{scope}: {key!r} was written meanwhile; try again", [key])
            found.append(key)
            if len(found) > MOST_LEFT:
                raise Conflict(f"{scope}: others wrote very many keys meanwhile; try again")
        return found

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
    fork, forked = handle.history.plan_fork(new_name(), point, cause_now(reason=reason))
    trial = handle.on(forked(handle.core.run(fork)))
    with ended_if_it_fails(trial, "the restore was not done"):
        Bringing(trial, source, label, None, prefixes, reason, sticky=True).spread()
        yield "{1}@{2}".format(*trial.place())


def new_name() -> str:
    """The name of a timeline on which a state is put together."""
    return f"restore-{os.urandom(6).hex()}"


def is_put_together(timeline: str) -> bool:
    """Whether a timeline was made for a restore, by its name: what is on it may be a part of it."""
    return re.fullmatch("restore-[0-9a-f]{12}", timeline) is not None


def _apart(prefixes: Sequence[str]) -> list[str]:
    """Prefixes in normal form, none the beginning of another."""
    return list(apart(check_key(prefix + "*", owner=True)[:-1] for prefix in prefixes))


def _keys(line: Timeline, root: Node, prefix: str) -> Iterator[str]:
    """Keys of an index that begin with a text."""
    for element in line.ledger.trees.walk(root, prefix):
        if not element[0].startswith(prefix):
            return
        yield element[0]


def _plain(ledger: Ledger, key: str, slot: Slot) -> Any:
    """A value in plain form: what is written again is exactly what was stored."""
    return ledger.value_of(key, slot, ledger.codec.plain_reader)


def _shown(ledger: Ledger, slot: Slot | None) -> Any:
    return shown_value(ledger, slot.ref, slot.location) if slot is not None else MISSING
