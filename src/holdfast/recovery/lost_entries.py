"""Entries that are lost: at the end of a timeline, where the feed alone names them, or damaged.

Nothing in what is left of a timeline shows that its newest entries were dropped. So the feed is
asked before a recovery writes anything. One that succeeds lets the timeline tell itself what is
lost, under a signature: then it is not reported again, and `verify` lists it as known.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from holdfast.checkpoints.create import make
from holdfast.checkpoints.request import CheckpointRequest
from holdfast.checkpoints.restore_request import put_together
from holdfast.errors import PrunedError, ScopeNotFoundError, StateIntegrityError
from holdfast.recovery.changes_of_others import entry_rows, some
from holdfast.recovery.failure_kinds import DAMAGED, AgentFailure, log
from holdfast.recovery.records import Tail
from holdfast.store.inner import (
    CHECKPOINT,
    TABLE,
    Body,
    Envelope,
    FeedHeads,
    LineHandle,
    Slot,
    Sticky,
    StoreHandle,
    Timeline,
    find_loss,
    loss_text,
    newest_entry,
    numbered,
    refs,
    sticky_prefixes,
    tell,
)
from holdfast.store.inner import entry as entries
from holdfast.store.names import rowkinds
from holdfast.store.names.scope import RESERVED, Scope

MAIN = "main"
NEWEST_ROWS = 1000
"""Of each lane of the feed, that are asked when nothing speaks for damage."""


class Tails:
    """Finds lost tails in one store."""

    def __init__(self, store: StoreHandle) -> None:
        self._store = store
        self._feed = FeedHeads(store.core.lanes)

    def look(self, depth: int | None) -> None:
        """Read the feed for what `lost` is asked about next."""
        self._feed.look(depth)

    def lost(self, scope: Scope, depth: int | None = None, *, looked: bool = False) -> Tail | None:
        """What is lost at the end of a scope's timelines, and no entry of them tells of.

        With `depth`, only so many of the newest rows of each lane of the feed are asked whether
        there is anything; so what others have written over since may stay unnoticed. With `looked`
        it goes by the last look.
        """
        core = self._store.core
        found: Tail = {}
        try:
            if not looked:
                self.look(depth)  # first: all that it names is there
            ledger = self._store.line(scope).history.points.line().ledger
            for number, name, _, _ in core.timelines(ledger):
                # How many entries the feed names; by a part of it, the newest of them.
                newest, count = self._feed.named(ledger.number, number)
                named = newest if count is None else ledger.before + count
                if named > newest_entry(ledger, number):
                    lost = find_loss(core, ledger, number)
                    found |= {name: [lost.first, lost.last]} if lost is not None else {}
        except (ScopeNotFoundError, StateIntegrityError):
            # Nothing of it can be compared with the feed.
            return None
        return found or None

    def unlisted(self) -> set[int]:
        """Numbers of scopes that the feed names and the directory does not, as far as it can be
        read."""
        self.look(None)  # first: the directory has all that it names
        return self._feed.scopes() - {number for number, _ in numbered(self._store.core)}


def tell_tail(handle: LineHandle, tail: Tail, recovery: str) -> None:
    """Let timelines tell what they lost, and sign that; done again, it does what is left of it."""
    name = f"losses of recovery {recovery}"
    for line in map(handle.on, tail):
        try:
            told, found = tell(line, f"recovery {recovery}"), line.history.points.statements()
            signed = any(op[:2] == [CHECKPOINT, name] for *_, body in found for op in body.ops)
            if told is not None or not signed:
                make(line, CheckpointRequest(name, "recovery"))
        except StateIntegrityError:  # then `verify` goes on telling of it
            log.warning("%s: what it lost cannot be noted", handle.scope, exc_info=True)


def depth_for(failure: AgentFailure) -> int | None:
    """How much of the feed is asked: all of it if something speaks for damage."""
    return None if failure.kind in DAMAGED else NEWEST_ROWS


def tail_text(tail: Tail) -> str:
    """What is lost, for people."""
    texts = [(loss_text(*lost), name) for name, lost in tail.items()]
    return "; ".join(text + f", of timeline {name}" * (name != MAIN) for text, name in texts)


# Replaying the journal behind a damaged entry: what is whole is done again, the rest is named.
#
# Behind an entry that cannot be read nobody knows what it had changed. What later entries set or
# delete does not depend on that. Items appended to a list are appended again; the list may lack
# what the damaged entry added, so it is named as doubtful. A change of a part of a value is done
# again only if that value was set since, else it is left out and named. A checkpoint whose signed
# root is that of the state so far, or a restore to an older state, ends all doubt.
#
# A lost entry may have been the one that declared which keys are sticky. For what the parts of
# this library keep, that is known without it; for other keys, from the newest state, if that can
# be read.

MOST_LOST = 100_000
"""Entries that are named of those that are missing in a row."""
MOST_NAMED = 1000
"""Entries and keys that a report names, of each kind."""


@dataclass(slots=True)
class Salvaged:
    """What came of replaying entries."""

    applied: int = 0
    lost: list[int] = field(default_factory=list)
    """Entries that could not be read, or not be done again."""
    named: dict[int, list[str]] = field(default_factory=dict)
    """The keys that those of them had changed of which that can be read."""
    doubtful: list[str] = field(default_factory=list)
    """Keys that may lack what lost entries did to them."""
    changes: Counter[str] = field(default_factory=Counter)
    """How often entries that could be read changed each key."""
    left_out: Counter[str] = field(default_factory=Counter)
    """Keys of which later changes were left out, which rest on what is lost, and how many."""

    def __str__(self) -> str:
        text = self.of()
        return f"{text}; doubtful keys: {some(self.doubtful)}" if self.doubtful else text

    def of(self, keys: Sequence[str] = ()) -> str:
        """What is lost, of some keys or of all."""
        if not self.lost:
            return "nothing"
        entries = "entries" if len(self.lost) > 1 else "entry"
        text = f"what {entries} {some(map(str, self.lost))} did"
        known = keys or sorted({key for named in self.named.values() for key in named})
        sure = keys or len(self.named) == len(self.lost)
        text += f"{'' if sure else ', at least'} to {some(known)}" if known else ""
        more = [
            f"{n} of {key}" for key, n in sorted(self.left_out.items()) if key in keys or not keys
        ]
        return f"{text}; later changes that rest on that: {some(more)}" if more else text

    def data(self) -> dict[str, Any]:
        """Plain data, kept as the result of a step: what the text names only some of."""
        return {
            "lost_entries": self.lost[:MOST_NAMED],
            "doubtful_keys": self.doubtful[:MOST_NAMED],
        }


class Salvage:
    """Entries of one timeline behind a state that is whole, replayed in memory."""

    def __init__(self, handle: LineHandle, whole: int, last: int) -> None:
        self._handle = handle
        source = handle.history.points.view(handle.timeline, whole)
        self.line = Timeline(source.ledger, source.number)
        """The state that they come to."""
        if whole:
            self.line.load(whole, saves=not source.bare)
        self._whole = whole
        self._last = last
        self._sure: set[str] | None = None
        """Keys that were set since an entry was lost; None as long as none was."""
        self._doubtful: set[str] = set()
        self.result = Salvaged()

    def replay(self) -> Salvaged:
        """Go through the entries."""
        expected = self.line.sequence + 1
        for key, row in entry_rows(self.line, expected, self._last):
            sequence = rowkinds.sequence_of(key)
            self._lose(expected, sequence)
            expected = sequence + 1
            try:
                envelope, body = self.line.ledger.open_entry(key, row)
                self._entry(sequence, envelope, body)
            except (PrunedError, StateIntegrityError):  # named as lost; what follows is done again
                self._lose(sequence, sequence + 1)
        self._lose(expected, self._last + 1)
        if self.result.lost:
            self._declare_again()
        self.result.doubtful = sorted(self._doubtful)
        return self.result

    def put_together(
        self, reason: str, *, sticky_alone: bool = False
    ) -> AbstractContextManager[str]:
        """What was replayed as a point to return to, on a timeline of its own; with `sticky_alone`
        only sticky keys and declarations, the others as they were before."""
        label = f"{self._handle.timeline}@{self._last}, replayed"
        some = sticky_prefixes(self.line.declared) if sticky_alone else None
        return put_together(self._handle, self._whole, self.line, label, reason, some)

    def _declare_again(self) -> None:
        """Let keys be sticky whose declaration may have been in a lost entry."""
        line = self.line
        owned = ((key, TABLE.index.rule(key)) for key, _ in line.scan(RESERVED))
        wanted = {rule.sticky(key) for key, rule in owned if rule is not None} - {""}
        with suppress(StateIntegrityError):  # then the parts of this library alone
            wanted.update(self._handle.reader.declared().prefixes(Sticky))
        codec = line.ledger.codec
        for rule in map(Sticky, sorted(wanted - set(line.declared.prefixes(Sticky)))):
            ref = refs.inline(codec.encode(codec.plain(rule.data())))
            line.overlay[rule.key] = Slot(ref, None, line.number, line.sequence)
        line.redeclare()

    def _lose(self, first: int, end: int) -> None:
        if first < end:
            self._sure = set()
            # A number that is damaged itself may be two billion further on.
            self.result.lost += range(first, min(end, first + MOST_LOST))

    def _entry(self, sequence: int, envelope: Envelope, body: Body) -> None:
        overlay = self.line.overlay
        named = [op[1] for op in body.ops if op[0] in entries.KEYED]
        self.result.changes.update(named)
        before = {key: overlay[key] for key in named if key in overlay}
        try:
            feed = self.line.feed_of(sequence, body)
            for op in body.ops:
                self._operation(sequence, op, feed)
        except StateIntegrityError:
            for key in named:  # all of an entry, or nothing
                overlay.pop(key, None)
            overlay.update(before)
            self.result.named[sequence] = named
            raise
        self.line.sequence = sequence
        self.result.applied += 1
        statement = envelope.statement
        if (
            statement is not None
            and self._sure is not None
            and self.line.folded().hash == statement.root
        ):
            self._all_sure()

    def _all_sure(self) -> None:
        self._sure, self._doubtful = None, set()
        self.result.left_out.clear()

    def _operation(self, sequence: int, op: list[object], feed: Iterator[object]) -> None:
        line, code = self.line, op[0]
        if code not in entries.KEYED:
            line.apply_op(sequence, op, feed)  # type: ignore[arg-type]
            if code in (entries.RESTORE, entries.FORK):
                self._all_sure()
            return
        key = str(op[1])
        old = line.slot(key)
        listed = old is not None and old.length() is not None  # as a tree
        if code == entries.APPEND and self._sure is not None and not listed:
            old = line.overlay[key] = self._grown(sequence, key, old)
        line.apply_op(sequence, op, feed)  # type: ignore[arg-type]
        if self._sure is None or key in self._sure:
            return
        if code in (entries.SET, entries.DELETE):
            self._sure.add(key)
            self._doubtful.discard(key)
            self.result.left_out.pop(key, None)
            return
        self._doubtful.add(key)
        if code != entries.APPEND:
            line.overlay[key] = old
            self.result.left_out[key] += 1

    def _grown(self, sequence: int, key: str, old: Slot | None) -> Slot:
        """A list kept as a tree, to append to: the entry that made it one is lost."""
        ledger = self.line.ledger
        codec, items = ledger.codec, []
        if old is not None and old.ref[0] <= refs.ATOM:
            value = ledger.value_of(key, old, codec.plain_reader)
            items = value if type(value) is list else []
        # Their bytes are nowhere by themselves, so they are part of the tree, however long.
        elements = [(None, refs.inline(codec.encode(codec.plain(one))), None) for one in items]
        root = ledger.trees.build(elements)
        ref = refs.tree(refs.LIST, root.hash, root.count, root.size)
        meta = old.meta if old is not None else b""
        return Slot(ref, root, self.line.number, sequence, None, meta)


@contextmanager
def sticky_replayed(handle: LineHandle, point: Any, reason: str, *, damaged: bool) -> Iterator[Any]:
    """A point to return to, in the block, with the sticky keys that were written since it.

    A restore keeps those by itself, unless they cannot be read, all or some (`damaged`): what has
    happened in the world is not undone, so they are replayed as far as they can be.
    """
    line = handle.history.points.past_damage()
    timeline, sequence = handle.history.points.find(point)
    if (line.stranded is None and not damaged) or timeline != handle.timeline:
        yield point
        return
    salvage = Salvage(handle, sequence, line.sequence)
    salvage.replay()
    with salvage.put_together(reason, sticky_alone=True) as there:
        yield there
