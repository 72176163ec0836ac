"""Checkpoints, restore, fork, log and diff: everything that looks back along a timeline."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from itertools import chain
from typing import Any

import msgspec

from holdfast.errors import (
    CheckpointNotFoundError,
    Conflict,
    DamagedIndexError,
    InvalidInputError,
    ScopeNotFoundError,
    StateIntegrityError,
)
from holdfast.store.commit.change import Change, Fork, Target, Written
from holdfast.store.commit.group import Core
from holdfast.store.commit.stage import Keep, Packer, Stage, stand_on, sticky_of
from holdfast.store.history.diff import diff_states, index_of
from holdfast.store.history.merge_values import classes_along, declare_along
from holdfast.store.journal import entry as entries
from holdfast.store.journal.entry import Body, Envelope, Statement
from holdfast.store.journal.feed import link
from holdfast.store.journal.floor import floor_of, is_stated
from holdfast.store.journal.ledger import Ledger
from holdfast.store.journal.save import BEFORE
from holdfast.store.journal.signatures import signature_row, signers_of
from holdfast.store.journal.slot import Kept, keep_sticky
from holdfast.store.journal.timeline import Timeline
from holdfast.store.names import rowkinds as rows
from holdfast.store.names.arguments import (
    check_bounds,
    check_filters,
    check_flag,
    check_limit,
    check_new_timeline,
)
from holdfast.store.names.cause import Cause
from holdfast.store.names.items import TYPES, Checkpoint, Entry, Restored, TimelineInfo
from holdfast.store.names.scope import Scope, check_key
from holdfast.store.read.lookup_terms import Keeper, all_built
from holdfast.store.read.points import NO_CAUSE, Points, public_entry
from holdfast.store.read.reader import Reader, microseconds, moment
from holdfast.store.rules.lookup import Lookup, count_keys, derived
from holdfast.store.rules.sticky import apart, sticky_prefixes
from holdfast.store.tree import refs
from holdfast.store.tree.difference import tree_changes
from holdfast.store.tree.tree import Element, Node

_encode = msgspec.msgpack.Encoder().encode
Plan = tuple[Change, Callable[[list[Written]], Any]]
"""A change to commit, and what to make of the entries it became."""


_MARKS = (
    ". Pins and holds that were made since that point may be lost with it: mark again what is to "
    "stay"
)


class History:
    """The past of one timeline."""

    def __init__(self, core: Core, scope: Scope, timeline: str) -> None:
        self.core = core
        self.scope = scope
        self.timeline = timeline
        self.points = Points(core, scope, timeline)

    # checkpoints

    def signed(self, stage: Stage, body: Body) -> Checkpoint:
        """Build a checkpoint. Reading it back could fail after it is durable."""
        root = stage.fold().hash
        signer, prefix = self.core.signer, stage.ledger.prefix

        def sign(key: bytes, around: Callable[[Statement], bytes]) -> Statement:
            if signer is None:
                return Statement(entries.UNSIGNED, root, bytes(8), bytes(64), stage.checkpoint)
            kind = entries.HYBRID if signer.hybrid else entries.ED25519
            statement = Statement(kind, root, signer.key_id, bytes(64), stage.checkpoint)
            if signer.hybrid:
                return statement  # too long for the envelope: it gets a row of its own
            text = entries.signed_text(prefix, key, around(statement))
            return statement._replace(signature=signer.sign(text))

        stage.finish(body, sign=sign)
        key, row = stage.rows[-1]
        envelope, _ = entries.split_row(row)
        if signer is not None and signer.hybrid:
            stage.rows.append(signature_row(stage.ledger, key, stage.head, signer))
        return self.described(stage.timeline, self.timeline, stage.sequence, envelope, body)

    def described(
        self, line: Timeline, timeline: str, sequence: int, envelope: Envelope, body: Body
    ) -> Checkpoint:
        """A checkpoint for people."""
        assert envelope.statement is not None
        op = next(op for op in body.ops if op[0] == entries.CHECKPOINT)
        op = [*op, *([], "", b"")[len(op) - 4 :]]
        key = rows.entry(line.prefix, sequence)
        signed = envelope.statement.algorithm != entries.UNSIGNED
        return Checkpoint(
            f"{timeline}@{sequence}",
            self.scope,
            timeline,
            sequence,
            op[1],
            op[2],
            moment(body.time),
            tuple(op[4]),
            op[5],
            self.core.codec.decode(op[6]) if op[6] else {},
            envelope.statement.root.hex(),
            envelope.statement.key_id.hex() if signed else "",
            body.cause or NO_CAUSE,
            line.ledger.entry_hash(key, envelope.data).hex(),
        )

    def checkpoint_at(self, timeline: str, sequence: int) -> Checkpoint:
        """The checkpoint at an entry; refused if there is none."""
        line = self.points.line(timeline)
        if sequence <= line.ledger.before:
            raise CheckpointNotFoundError(f"{self.scope}: no checkpoint lies before all entries")
        _, envelope, body = line.ledger.entry_at(line.number, sequence)
        if envelope.statement is None:
            raise CheckpointNotFoundError(
                f"{self.scope}: {timeline}@{sequence} is no checkpoint; only those are signed: "
                "`checkpoints()` lists them"
            )
        return self.described(line, timeline, sequence, envelope, body)

    def checkpoints(
        self,
        *,
        type: str | None = None,
        tag: str | None = None,
        name: str | None = None,
        limit: int | None = None,
    ) -> list[Checkpoint]:
        """Checkpoints of this timeline, newest first; without those that cannot be read."""
        if type is not None and type not in TYPES:
            raise InvalidInputError(f"unknown type {type!r}; a checkpoint is {', '.join(TYPES)}")
        check_filters(tag=tag, name=name)
        check_limit(limit)
        found: list[Checkpoint] = []
        for line, sequence, envelope, body in self.points.statements(passed=[]):
            if limit is not None and len(found) >= limit:
                break
            item = self.described(line, self.timeline, sequence, envelope, body)
            wanted = (type is None or type == item.type) and (tag is None or tag in item.tags)
            if wanted and (name is None or name == item.name):
                found.append(item)
        return found

    # restore

    def plan_restore(
        self,
        point: Any,
        verify: str,
        cause: Cause | None,
        if_head: int | None = None,
        past_damage: bool = False,
        keep: Keep = sticky_of,
    ) -> Plan:
        """Return to the state at a point; the state before is kept as a checkpoint.

        `keep` gives, in the commit, how keys begin that stay as they are.
        Where damage keeps the state before from being read, that is done only on demand, and
        there is nothing to keep.
        """
        line = self.points.past_damage() if past_damage else self.points.line()
        damage = line.stranded
        timeline, sequence = self.points.find(point)
        source = self.points.view(timeline, sequence)
        root, checked = self.check_point(source, sequence, verify)
        foreign = source.number != line.number and keep is sticky_of  # else rules are seen to
        there = source, self.points.line(timeline)  # what is sensitive there now was so then
        if source.number != line.number:
            root = line.ledger.trees.own(root)
        if damage is not None and not past_damage:
            raise StateIntegrityError(
                f"{damage} The newest state cannot be read, so it cannot be kept: give "
                "past_damage=True to go back without keeping it"
            ) from None
        label = f"{timeline}@{sequence}"
        anchors = self.points.anchors(timeline, sequence)
        backup: list[Checkpoint] = []
        kept = [Kept(root, (), ())]  # what cannot be read cannot be kept

        def special(stage: Stage, body: Body) -> None:
            stand_on(stage, source, sequence, anchors)
            if damage is None:
                # The checkpoint of the state before, in front of the entry of the restore.
                op = [entries.CHECKPOINT, f"before restore of {label}", "recovery", str(self.scope)]
                backup[:] = [self.signed(stage, Body(body.time, [op], [], body.cause))]
                kept[:] = [keep_sticky(stage.ledger.trees, root, stage.fold(), apart(keep(stage)))]
            along = there if foreign and damage is None else None
            kept[:] = [self._become(stage, body, (source.number, sequence), root, kept[0], along)]

        def finish(written: list[Written]) -> Restored:
            if damage is not None:
                self.core.take_over(line)
            passed_over = str(damage) if damage is not None else ""
            passed_over += _MARKS if passed_over and self.timeline == "main" else ""
            return Restored(
                self.scope, self.timeline, written[0].sequence, label, kept[0].root.hash.hex(),
                backup[0] if backup else None, verify, count_keys(line.ledger.trees, kept[0].root),
                checked, left=kept[0].keys, passed_over=passed_over,
            )  # fmt: skip

        target = Target(self.scope, self.timeline, special=special, create=False, head=if_head)
        target.stranded = line if damage is not None else None
        target.backup = damage is None
        return Change([target], cause), finish

    def _become(
        self,
        stage: Stage,
        body: Body,
        point: tuple[int, int],
        root: Node,
        done: Kept,
        there: tuple[Timeline, Timeline] | None,
    ) -> Kept:
        """Build the entry of a restore to a point, with that index; what the state is then.

        `there` is the state, and the timeline, whose rules come along.
        """
        stage.become(done.root, stage.sequence + 1)
        stage.save(BEFORE)
        op = [entries.RESTORE, *point, done.root.hash]
        body.ops = [[*op, done.prefixes] if done.prefixes else op]
        packer = Packer(stage.ledger, stage.timeline.number, stage.sequence + 1)
        lookups = stage.declared.of(Lookup) if done.keys else ()
        more = Keeper(stage, packer, lookups).restored(root, done.keys)
        if there is not None:
            more += declare_along(stage, packer, there)
        if more:
            body.ops += more
            done = done._replace(root=stage.fold())
        stage.finish(body, packer)
        return done

    def dry_restore(self, point: Any, *, verify: str) -> Restored:
        """What a restore would do; nothing is changed."""
        timeline, sequence = self.points.find(point)
        source = self.points.view(timeline, sequence)
        root, checked = self.check_point(source, sequence, verify)
        label = f"{timeline}@{sequence}"
        line, now = self.points.past_damage(), self.core.clock.checked()
        prefixes = sticky_prefixes(line.declared)
        before = Reader(self.core, self.scope, self.timeline, line, now)
        # What is restored is judged by today: what has expired since does not come back.
        after = Reader(self.core, self.scope, timeline, source, now)
        diff = diff_states(before, after, without=prefixes)
        trees = line.ledger.trees
        kept = keep_sticky(trees, root, index_of(line), prefixes)
        for there in (source, self.points.line(timeline)) if source.number != line.number else ():
            if along := classes_along([there], line.declared):
                keys = apart(one.key for one in along)
                also = keep_sticky(trees, kept.root, index_of(there), keys)
                kept = kept._replace(root=also.root)
        return Restored(
            self.scope, self.timeline, line.sequence, label, kept.root.hash.hex(), None, verify,
            count_keys(trees, kept.root), checked, True, diff, kept.keys,
        )  # fmt: skip

    def differing(self, point: Any) -> list[str]:
        """All keys that a restore would change."""
        then, line = self.points.view(*self.points.find(point)), self.points.line()
        alone = sticky_prefixes(line.declared)
        found = tree_changes(line.ledger.trees, index_of(line), index_of(then))
        return [key for key, _, _ in found if not derived(key) and not key.startswith(alone)]

    def check_point(self, source: Timeline, sequence: int, verify: str) -> tuple[Node, int]:
        """The index at a point, checked: signature and root of a checkpoint, then what it holds.

        A saved index that is damaged only saves time: then it is made from entries.
        """
        if verify not in ("full", "references", "none"):
            raise InvalidInputError("verify is 'full', 'references' or 'none'")
        try:
            return self._checked(source, sequence, verify)
        except DamagedIndexError:  # the entries have it all
            again = Timeline(source.ledger, source.number).load(sequence, saves=False)
            with source.lock:
                source.take_over(again)
            return self._checked(source, sequence, verify)

    def _checked(self, source: Timeline, sequence: int, verify: str) -> tuple[Node, int]:
        root = fold_once(source)
        if sequence > source.ledger.before and verify != "none":
            key, envelope, _ = source.ledger.entry_at(source.number, sequence)
            where = f"{self.scope}: the checkpoint at entry {sequence}"
            if envelope.statement is not None and envelope.statement.root != root.hash:
                raise StateIntegrityError(f"{where} names another state than its entries give")
            if envelope.statement is not None:
                for wrong in signers_of(source.ledger, key, envelope, self.core.public)[1]:
                    raise StateIntegrityError(f"{where}: {wrong}")
        if verify == "none":
            return root, 0
        return root, check_values(source.ledger, root, read=verify == "full")

    # fork

    def plan_fork(self, name: str, point: Any, cause: Cause | None) -> Plan:
        """A new timeline that starts from a point; nothing is copied."""
        check_new_timeline(name)
        timeline, sequence = self.points.find(point)
        source = self.points.view(timeline, sequence)
        ledger = source.ledger
        anchors = self.points.anchors(timeline, sequence)
        root = lent_by(source)
        ended = rows.deletion(ledger.tombstone)  # a scope that is deleted meanwhile is not forked

        def special(stage: Stage, body: Body) -> None:
            if stage.sequence > ledger.before:
                raise Conflict(f"{self.scope}: overtaken by another fork; try again")
            rekeyed = ledger.next_epoch()  # before anything is sealed
            key = rows.line(b"T", ledger.number, stage.timeline.number)
            start = _encode([name, source.number, sequence])
            stage.rows.append((key, ledger.seal_row(key, start, ledger.commit_line)))
            stage.absent += [ended, rekeyed]
            stand_on(stage, source, sequence, anchors)
            if root is source.lent and root.place is not None:  # it lies with another fork
                stage.absent.append(rows.anchor(ledger.number, root.place[0], 1))
            stage.behind = link(ledger.number, source.number, max(sequence, ledger.before + 1))
            stage.become(root, stage.sequence + 1)
            stage.save(BEFORE)
            body.ops = [[entries.FORK, source.number, sequence, root.hash]]
            stage.finish(body)

        fork = Fork(ledger, name, root, all_built(source))
        target = Target(self.scope, name, special=special, create=False, fork=fork)
        return Change([target], cause), lambda _: name

    def timelines(self) -> list[TimelineInfo]:
        """All timelines of the scope that are not ended."""
        main = self.core.current(self.scope)  # what was deleted meanwhile is not asked
        if main is None:
            return []
        known = self.core.timelines(main.ledger)
        names = {number: name for number, name, _, _ in known}
        found = []
        for number, name, parent, start in self.core.lines(main.ledger):
            line = self.core.timeline(main.ledger, name)
            line.refresh()  # also of one that is ended meanwhile
            origin = names.get(parent) if number else None
            found.append(TimelineInfo(name, origin, start, line.sequence))
        return found

    # looking back

    def entries(
        self,
        *,
        newest_first: bool = True,
        low: int = 1,
        high: int | None = None,
        past_losses: bool = False,
    ) -> Iterator[tuple[bytes, Envelope, Body]]:
        """Entries of the timeline behind its floor, read page by page; a missing one is damage.
        `past_losses` leaves out those that are stated as lost."""
        try:
            floor = self.points.line().floor.sequence
            line = self.points.line()  # after the floor, which others may just have announced
        except ScopeNotFoundError:
            return
        high = line.sequence if high is None else min(high, line.sequence)
        low = max(low, floor + 1, line.ledger.before + 1)
        if low > high:
            return
        found = line.ledger.rows_of(b"E", line.number, low, high, limit=200, reverse=newest_first)
        expected, step, end = (high, -1, low - 1) if newest_first else (low, 1, high + 1)
        for key, row in chain(found, [(b"", b"")]):
            here = rows.sequence_of(key) if key else end
            if here != expected:
                missing = line.ledger.damage(rows.entry(line.prefix, expected), "it is missing")
                if not (past_losses and is_stated(line.ledger, missing)):
                    raise missing
            if not key:
                return
            expected = here + step
            try:
                opened = line.ledger.open_entry(key, row)
            except StateIntegrityError as error:  # which may be one that is stated
                if not (past_losses and is_stated(line.ledger, error)):
                    raise
            else:
                yield (key, *opened)

    def log(
        self,
        key: str | None = None,
        kind: str | None = None,
        actor: str | None = None,
        correlation: str | None = None,
        since: datetime | int | None = None,
        until: datetime | int | None = None,
        limit: int | None = 50,
        newest_first: bool = True,
    ) -> list[Entry]:
        """Entries that fit all that is given. A number bounds the sequence, a time the time."""
        key = check_key(key, owner=True) if key is not None else None
        if kind is not None and kind not in entries.KINDS:
            known = ", ".join(entries.KINDS)
            raise InvalidInputError(f"unknown kind {kind!r}; an entry is {known}")
        check_filters(actor=actor, correlation=correlation)
        check_bounds(numbers=True, since=since, until=until)
        check_limit(limit)
        check_flag(newest_first, "newest_first")
        low = since if isinstance(since, int) else 1
        high = until if isinstance(until, int) else None
        found: list[Entry] = []
        there = self.entries(newest_first=newest_first, low=low, high=high, past_losses=True)
        for row_key, envelope, body in there:
            if limit is not None and len(found) >= limit:
                break
            if isinstance(since, datetime) and body.time < microseconds(since):
                continue
            if isinstance(until, datetime) and body.time > microseconds(until):
                continue
            entry = self.entry(row_key, envelope, body)
            if (
                (key is None or key in entry.keys or self._moved(entry, key))
                and (kind is None or kind in entry.kinds)
                and (actor is None or actor == entry.cause.actor)
                and (correlation is None or correlation == entry.cause.correlation)
            ):
                found.append(entry)
        return found

    def entry(self, key: bytes, envelope: Envelope, body: Body) -> Entry:
        """An entry for people."""
        ledger = self.points.line().ledger
        return public_entry(self.core, ledger, self.timeline, key, envelope, body)

    def _moved(self, entry: Entry, key: str) -> bool:
        """Whether a restore changed a key, or a fork begins with it; neither names it."""
        if "restore" not in entry.kinds and "fork" not in entry.kinds:
            return False
        before = None
        if "restore" in entry.kinds:
            before = self.points.view(self.timeline, entry.sequence - 1).slot(key)
        after = self.points.view(self.timeline, entry.sequence).slot(key)
        return (before and before.described()) != (after and after.described())


def lent_by(source: Timeline) -> Node:
    """The index of a view as forks begin with it: the first saves what is not saved yet, and the
    others lead there, as long as that fork is not pruned."""
    with source.lock:
        root, lent = fold_once(source), source.lent
        if root.place is not None:
            return root
        place = lent.place if lent is not None else None
        pruned = place is not None and floor_of(source.ledger, place[0]).number
        if lent is None or pruned:
            lent = source.lent = source.ledger.trees.own(root)
        return lent


def fold_once(source: Timeline) -> Node:
    """The index of a view as one tree, which the view keeps.

    What is restored from the same point again then finds its nodes saved.
    """
    with source.lock:
        root = index_of(source)
        source.rebase(root, {})
        return root


# ---- state check --------------------------------------------------------------------------------
# Checking a state: each node of its index, and that each value is there and is itself.
#
# Values are opened and hashed, never built. Those of one record are checked together, so that no
# record is opened twice for values that lie near each other in the state.


AT_ONCE = 4096
"""Values that wait until their records are read: what bounds the memory."""


def check_values(ledger: Ledger, root: Node, *, read: bool, seen: set[Any] | None = None) -> int:
    """Check every node of an index, and that each value is there (`read`: and is itself).

    `seen` are places of nodes that were checked before and are passed over; new ones are added.
    """
    check = _Check(ledger, read, seen)
    check.tree(root)
    check.settle()
    return check.found


class _Check:
    def __init__(self, ledger: Ledger, read: bool, seen: set[Any] | None) -> None:
        self.ledger = ledger
        self.seen = seen
        self.read = read
        self.found = 0
        self.waiting = 0
        self.records: dict[Any, list[tuple[int, bytes]]] = {}
        """(timeline, sequence, ordinal) to (index, ref) of the atoms that must lie there."""

    def tree(self, root: Node) -> None:
        """Take in what a tree holds; loading a node checks it."""
        if self.seen is not None and root.place is not None:
            if root.place in self.seen:
                return
            self.seen.add(root.place)
        if root.level:
            load = self.ledger.trees.load
            for element in root.elements:
                self.tree(load(element[2], element[1]))
            return
        self.leaf(root.elements)
        if self.waiting >= AT_ONCE:
            self.settle()

    def leaf(self, elements: Sequence[Element]) -> None:
        records = self.records
        for _, ref, hint in elements:
            if ref[0] == refs.META:
                ref = refs.read_described(ref)[1]
            if ref[0] == refs.ATOM:
                record = hint[-4:-1]  # behind the entry that wrote a key, if it stands there
                if record in records:
                    records[record].append((hint[-1], ref))
                else:
                    records[record] = [(hint[-1], ref)]
            elif ref[0] != refs.ATOM_INLINE and (bare := refs.bare(ref))[0] == refs.TREE:
                # A value that is a tree itself; it counts as what it holds.
                if type(hint) is not Node:
                    hint = hint[-1] if type(hint[-1]) is Node else hint[-4:]
                self.found -= 1
                self.tree(self.ledger.trees.load(hint, refs.read_tree(bare)[1]))
        self.found += len(elements)
        self.waiting += len(elements)

    def settle(self) -> None:
        """Look at the records of all that waits, in the order in which they are stored."""
        records, self.records, self.waiting = self.records, {}, 0
        self.ledger.check_atoms(records, read=self.read)
