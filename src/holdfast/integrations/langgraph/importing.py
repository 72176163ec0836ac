"""Importing threads from LangGraph's own savers, verified and resumable.

Checkpoints are put in the order of their ids, each followed by what was written on top of it. An
import that was cut short is begun again: what is there and equal is skipped, so nothing has to be
noted about how far it came. A thread that went on in both places is not mixed but refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from holdfast.errors import Conflict, RefusedError, StateIntegrityError
from holdfast.integrations.langgraph import putting
from holdfast.integrations.langgraph.digests import Digests
from holdfast.integrations.langgraph.drafts import Draft
from holdfast.integrations.langgraph.records import Space, Writes
from holdfast.integrations.langgraph.runs import parent_of
from holdfast.integrations.langgraph.saver import HoldfastSaver
from holdfast.integrations.langgraph.sources import Place, Row, Source, Write
from holdfast.integrations.langgraph.thread import Past, Thread
from holdfast.integrations.langgraph.types import Types
from holdfast.store.cause import cause_now

Print = dict[str, bytes]
"""What a checkpoint holds: a digest of each part, by its name."""
Tell = Callable[[str, str, int, int], None]
"""Is given (thread, what is done, checkpoints done, checkpoints in all)."""
PENDING = "pending writes"
MOST = 10
"""Differences that are told of one thread."""


@dataclass
class Outcome:
    """What became of one thread."""

    thread: str
    checkpoints: int = 0
    """in the source"""
    imported: int = 0
    """put now, or with `dry_run` to be put"""
    present: int = 0
    """there already, and equal"""
    writes: int = 0
    """pending writes that came along"""
    strays: int = 0
    """writes on top of checkpoints that the source does not have; they are left out"""
    verified: int = 0
    """read back and found equal"""
    replaced: bool = False
    error: str | None = None
    differences: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether all of it is here now."""
        return self.error is None and not self.differences


class Import:
    """Takes threads of a source into a store.

    store: an open store; `types` must be those that the graphs will read with, if they have any.
    replace: delete a thread that differs, and import it anew; otherwise it is refused.
    dry_run: read and compare everything, write nothing.
    verify: read back what was put, through a new saver, and compare it with the source.
    """

    def __init__(
        self,
        store: Any,
        source: Source,
        *,
        types: Types | None = None,
        replace: bool = False,
        dry_run: bool = False,
        verify: bool = True,
        tell: Tell | None = None,
    ) -> None:
        self._store = store
        self._source = source
        self._types = types or Types()
        self._replace = replace
        self._dry_run = dry_run
        self._verify = verify
        self._tell = tell or (lambda *_: None)
        self._digests = Digests(store._core.codec, self._types)

    def run(self, thread: str) -> Outcome:
        """Import one thread; what stands in its way is told by the outcome.

        Raises if store or source cannot be used at all.
        """
        outcome = Outcome(thread)
        try:
            with self._source.moment():
                self._run(outcome)
        except (RefusedError, Conflict, StateIntegrityError) as error:
            outcome.error = str(error)
        return outcome

    def _run(self, outcome: Outcome) -> None:
        source, id = self._source, outcome.thread
        places = source.places(id)
        outcome.checkpoints = len(places)
        outcome.strays = source.strays(id)
        thread = Thread(self._store._core, id, self._types)
        plan = self._compare(thread, places, outcome)
        if plan.differences:
            if not self._replace:
                raise Conflict(
                    f"thread {id!r} is here already and differs: {_told(plan.differences)}; "
                    "--replace deletes it here and imports it anew"
                )
            outcome.replaced = True
            if not self._dry_run:
                HoldfastSaver(self._store).delete_thread(id)
                thread = Thread(self._store._core, id, self._types)
            plan = _Plan(missing=places)
        outcome.present = len(places) - len(plan.missing)
        wanted = self._put(thread, plan, outcome)
        if self._verify and not self._dry_run and wanted:
            self._check(thread, wanted, outcome)
        outcome.verified += len(plan.same)

    # what is there

    def _compare(self, thread: Thread, places: list[Place], outcome: Outcome) -> _Plan:
        """What is missing here, and what stands in the way of it."""
        here = {(s.ns, i) for s in thread.namespaces() for i in _ids(thread, s)}
        plan = _Plan(missing=[place for place in places if place not in here])
        plan.more = here.difference(places)
        known = [place for place in places if place in here]
        newest = {ns: max(i for n, i in known if n == ns) for ns in {ns for ns, _ in known}}
        between = [p for p in plan.missing if p[1] < newest.get(p[0], "")]
        plan.differences += [f"checkpoint {id} is missing between others" for _, id in between]
        prints = self._prints(thread, set(known), outcome) if known else {}
        for place in known:
            row = self._source.row(thread.id, place)
            parts = _differing(self._print(row), prints[place])
            if PENDING in parts:
                parts.remove(PENDING)
                self._compare_writes(thread, place, row, plan)
            elif not parts:
                plan.same.add(place)
            plan.differences += [f"checkpoint {place[1]}: {part}" for part in parts]
        if plan.more and (plan.missing or plan.writes):
            plan.differences.append("it went on both here and there")
        return plan

    def _compare_writes(self, thread: Thread, place: Place, row: Row, plan: _Plan) -> None:
        """Writes that were to follow when the import was cut short are put later."""
        loaded = thread.find(Space(place[0]), place[1])
        assert loaded is not None
        here: dict[tuple[str, int], Any] = {}
        for call in loaded.calls:
            for index, channel, plain in call.items if call.checkpoint == place[1] else []:
                if index < 0 or (call.task, index) not in here:
                    value = self._digests.of(thread.build(plain))
                    here[call.task, index] = (call.path, channel, value)
        there = {(w.task, w.index): w for w in row.writes}
        for at in there.keys() & here.keys():
            write = there[at]
            if here[at] != (write.path, write.channel, self._digests.of(write.value)):
                told = f"a write to {write.channel!r}"
                plan.differences.append(f"checkpoint {place[1]}: {told}")
        if here.keys() - there.keys():
            plan.more.add(place)
        missing = [write for write in row.writes if (write.task, write.index) not in here]
        if missing:
            plan.writes[place] = missing

    # putting

    def _put(self, thread: Thread, plan: _Plan, outcome: Outcome) -> dict[Place, Print]:
        """Put what is missing; returns what it should be."""
        wanted: dict[Place, Print] = {}
        for place, writes in plan.writes.items():
            self._put_writes(thread, place, writes, outcome)
            wanted[place] = self._print(self._source.row(thread.id, place))
        for number, place in enumerate(plan.missing):
            self._tell(thread.id, "importing", number, len(plan.missing))
            row = self._source.row(thread.id, place)
            wanted[place] = self._print(row)
            if not self._dry_run:
                space = Space(place[0])
                putting.put(thread, space, row.checkpoint, row.metadata, row.parent, lambda _: None)
            outcome.imported += 1
            self._put_writes(thread, place, row.writes, outcome)
        return wanted

    def _put_writes(
        self, thread: Thread, place: Place, writes: list[Write], outcome: Outcome
    ) -> None:
        """Writes of all tasks on one checkpoint, as one change."""
        outcome.writes += len(writes)
        if not writes or self._dry_run:
            return
        space, id = Space(place[0]), place[1]
        draft = Draft(thread)
        newest = thread.newest(space)
        assert newest is not None
        key = space.writes if id >= newest.record.id else space.late(id)
        for (task, path), group in groupby(writes, lambda write: (write.task, write.path)):
            items = [
                (write.index, write.channel, self._types.plain(write.value, thread.parts.ref))
                for write in group
            ]
            draft.write(key, Writes(id, task, path, items).pack(thread.names))
        draft.expects[space.head] = newest.entry
        draft.commit(cause_now())

    # checking

    def _check(self, thread: Thread, wanted: dict[Place, Print], outcome: Outcome) -> None:
        found = self._prints(thread, set(wanted), outcome)
        for place, print in wanted.items():
            parts = _differing(print, found[place]) if place in found else ["it is missing"]
            outcome.verified += not parts
            outcome.differences += [f"checkpoint {place[1]}: {part}" for part in parts]

    def _prints(self, thread: Thread, wanted: set[Place], outcome: Outcome) -> dict[Place, Print]:
        """Checkpoints as a saver that knows nothing of them yet reads them."""
        found: dict[Place, Print] = {}
        saver = HoldfastSaver(self._store, types=self._types)
        for ns in sorted({ns for ns, _ in wanted}):
            for one in saver.list({"configurable": {"thread_id": thread.id, "checkpoint_ns": ns}}):
                place = (ns, one.checkpoint["id"])
                if place in wanted:
                    self._tell(thread.id, "verifying", len(found), len(wanted))
                    found[place] = self._parts(
                        one.checkpoint, one.metadata, parent_of(one), one.pending_writes or []
                    )
        return found

    def _print(self, row: Row) -> Print:
        pending = [(write.task, write.channel, write.value) for write in row.writes]
        return self._parts(row.checkpoint, row.metadata, row.parent, pending)

    def _parts(
        self, checkpoint: Any, metadata: Any, parent: str | None, pending: Iterable[Any]
    ) -> Print:
        parts = {"its parent": parent, "its metadata": metadata}
        for name, value in checkpoint.items():
            if name in _BY_NAME:
                told = _BY_NAME[name]
                parts |= {f"{told} {inner!r}": held for inner, held in value.items()}
            else:
                parts[f"its {name}"] = value
        parts[PENDING] = [list(write) for write in pending]
        return {name: self._digests.of(value) for name, value in parts.items()}


_BY_NAME = {
    "channel_values": "channel",
    "channel_versions": "the version of",
    "versions_seen": "versions seen by",
}


@dataclass
class _Plan:
    """What an import has to do."""

    missing: list[Place]
    writes: dict[Place, list[Write]] = field(default_factory=dict)
    """missing on top of checkpoints that are there"""
    same: set[Place] = field(default_factory=set)
    more: set[Place] = field(default_factory=set)
    """what is only here"""
    differences: list[str] = field(default_factory=list)


def _ids(thread: Thread, space: Space) -> list[str]:
    return [loaded.record.id for loaded in Past(thread, space)]


def _differing(one: Print, other: Print) -> list[str]:
    return [name for name in {**one, **other} if one.get(name) != other.get(name)]


def _told(differences: list[str]) -> str:
    more = len(differences) - MOST
    return "; ".join(differences[:MOST]) + (f"; and {more} more" if more > 0 else "")
