"""Importing threads from LangGraph's own savers, verified and resumable.

Checkpoints are put in the order of their ids, each followed by what was written on top of it. An
import that was cut short is begun again: what is there and equal is skipped, so nothing has to be
noted about how far it came. A thread that went on in both places is not mixed but refused.

What `holdfast langgraph import` does, from a program that has the graph's classes:

    with closing(open_source("checkpoints.sqlite")) as source:
        outcomes = [Import(store, source).run(thread) for thread in source.threads()]
"""

from __future__ import annotations

import hashlib
import marshal
from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from langchain_core.messages import BaseMessage

from holdfast.errors import Conflict, InvalidInputError, RefusedError, StateIntegrityError
from holdfast.integrations.langgraph import put
from holdfast.integrations.langgraph.messages import only_messages
from holdfast.integrations.langgraph.put import Draft
from holdfast.integrations.langgraph.runs import parent_of
from holdfast.integrations.langgraph.saver import HoldfastSaver
from holdfast.integrations.langgraph.sources import Place, Row, Source, Write
from holdfast.integrations.langgraph.thread import Loaded, Past, Thread
from holdfast.integrations.langgraph.thread_records import Space, Writes
from holdfast.integrations.langgraph.types import Types
from holdfast.seal.codec import Codec
from holdfast.store.inner import core_of
from holdfast.store.names.cause import cause_now

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
        self._digests = Digests(core_of(store).codec, self._types)
        self._ids: dict[str, str] = {}
        """By the id that a thread has here, the one it has in the source."""

    def run(self, thread: str, under: str | None = None) -> Outcome:
        """Import one thread, by choice under another id; what stands in its way is told by the
        outcome.

        Raises if store or source cannot be used at all.
        """
        outcome = Outcome(thread)
        self._ids = {thread if under is None else under: thread}
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
        [here] = self._ids
        try:
            thread = Thread(core_of(self._store), here, self._types)
        except InvalidInputError as error:
            raise InvalidInputError(
                f"{error}; import it under another id: --thread ID --as OTHER"
            ) from None
        plan = self._compare(thread, places)
        if plan.differences:
            if not self._replace:
                raise Conflict(
                    f"thread {here!r} is here already and differs: {_told(plan.differences)}; "
                    "--replace deletes it here and imports it anew"
                )
            plan = _Plan(missing=places)
            outcome.replaced = True
        wanted = self._survey(thread, plan)
        if outcome.replaced and not self._dry_run:
            HoldfastSaver(self._store).delete_thread(here)
            thread = Thread(core_of(self._store), here, self._types)
        outcome.present = len(places) - len(plan.missing)
        self._put(thread, plan, outcome)
        if self._verify and not self._dry_run and wanted:
            self._check(thread, wanted, outcome)
        outcome.verified += len(plan.same)

    # what is there

    def _row(self, thread: Thread, place: Place) -> Row:
        return self._source.row(self._ids[thread.id], place)

    def _compare(self, thread: Thread, places: list[Place]) -> _Plan:
        """What is missing here, and what stands in the way of it."""
        here = self._prints(thread)
        plan = _Plan(missing=[place for place in places if place not in here])
        plan.more = bool(here.keys() - set(places))
        known = [place for place in places if place in here]
        newest: dict[str, str] = {}
        for ns, id in known:
            newest[ns] = max(id, newest.get(ns, ""))
        between = [id for ns, id in plan.missing if id < newest.get(ns, "")]
        plan.differences += [f"checkpoint {id} is missing between others" for id in between]
        for place in known:
            self._compare_one(place, self._row(thread, place), here[place], plan)
        if plan.more and (plan.missing or plan.writes):
            plan.differences.append("it went on both here and there")
        return plan

    def _compare_one(self, place: Place, row: Row, here: Print, plan: _Plan) -> None:
        there = self._print(row)
        parts = set(_differing(there, here))
        if not parts:
            plan.same.add(place)
        # Those that were to follow when the import was cut short are put now.
        missing = [write for write in row.writes if _name(write.task, write.idx) not in here]
        if missing:
            plan.writes[place] = missing
        more = {name for name in here.keys() - there.keys() if name.startswith(_WRITE)}
        plan.more |= bool(more)
        if missing or more:
            parts.discard(PENDING)
        parts -= {*more, *(_name(write.task, write.idx) for write in missing)}
        plan.differences += [f"checkpoint {place[1]}: {part}" for part in sorted(parts)]

    # putting

    def _survey(self, thread: Thread, plan: _Plan) -> dict[Place, Print]:
        """What is to come, as it should be: what cannot be taken is found before anything is."""
        wanted: dict[Place, Print] = {}
        for place in [*plan.writes, *plan.missing]:
            self._tell(thread.id, "reading", len(wanted), len(plan.missing))
            wanted[place] = self._print(self._row(thread, place))
        return wanted

    def _put(self, thread: Thread, plan: _Plan, outcome: Outcome) -> None:
        """Put what is missing."""
        for place, writes in plan.writes.items():
            self._put_writes(thread, place, writes)
            outcome.writes += len(writes)
        for place in plan.missing:
            self._tell(thread.id, "importing", outcome.imported, len(plan.missing))
            row = self._row(thread, place)
            if not self._dry_run:
                space = Space(place[0])
                put.put(thread, space, row.checkpoint, row.metadata, row.parent, lambda _: None)
            self._put_writes(thread, place, row.writes)
            outcome.imported += 1
            outcome.writes += len(row.writes)

    def _put_writes(self, thread: Thread, place: Place, writes: list[Write]) -> None:
        """Writes of all tasks on one checkpoint, as one change."""
        if not writes or self._dry_run:
            return
        space, id = Space(place[0]), place[1]
        draft = Draft(thread)
        newest = thread.newest(space)
        assert newest is not None
        key = space.writes if id == newest.record.id else space.late(id)
        for (task, path), group in groupby(writes, lambda write: (write.task, write.path)):
            items = [
                (write.idx, write.channel, self._types.plain(write.value, thread.parts.ref))
                for write in group
            ]
            draft.write(key, Writes(id, task, path, items).pack(thread.names))
        draft.expects[space.head] = newest.entry
        draft.commit(cause_now())

    # checking

    def _check(self, thread: Thread, wanted: dict[Place, Print], outcome: Outcome) -> None:
        found = self._prints(thread, wanted)
        for place, print in wanted.items():
            parts = _differing(print, found[place]) if place in found else ["it is missing"]
            outcome.verified += not parts
            outcome.differences += [f"checkpoint {place[1]}: {part}" for part in parts]

    def _prints(self, thread: Thread, wanted: Container[Place] | None = None) -> dict[Place, Print]:
        """Checkpoints as a saver reads them that knows nothing of them yet."""
        found: dict[Place, Print] = {}
        saver = HoldfastSaver(self._store, types=self._types)
        for space in thread.namespaces():
            where = {"thread_id": thread.id, "checkpoint_ns": space.ns}
            stored = Past(thread, space)
            for one, loaded in zip(saver.list({"configurable": where}), stored, strict=True):
                place = (space.ns, one.checkpoint["id"])
                if wanted is None or place in wanted:
                    self._tell(thread.id, "verifying", len(found), len(stored))
                    pending = one.pending_writes or []
                    print = self._parts(one.checkpoint, one.metadata, parent_of(one), pending)
                    found[place] = print | self._writes(_written(thread, loaded))
        return found

    def _print(self, row: Row) -> Print:
        pending = [(write.task, write.channel, write.value) for write in row.writes]
        print = self._parts(row.checkpoint, row.metadata, row.parent, pending)
        return print | self._writes(row.writes)

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

    def _writes(self, writes: Iterable[Write]) -> Print:
        """Writes one by one, with what a saver does not show: their paths and indices."""
        return {
            _name(write.task, write.idx): self._digests.of([write.path, write.channel, write.value])
            for write in writes
        }


_WRITE = "write "
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
    more: bool = False
    """whether something is only here: the thread went on"""
    differences: list[str] = field(default_factory=list)


def _name(task: str, index: int) -> str:
    return f"{_WRITE}{index} of task {task}"


def _written(thread: Thread, loaded: Loaded) -> Iterable[Write]:
    """What is stored on top of a checkpoint; see `merged` for which of two counts."""
    found: dict[tuple[str, int], Write] = {}
    for call in loaded.calls:
        for index, channel, plain in call.items if call.checkpoint == loaded.record.id else []:
            if index < 0 or (call.task, index) not in found:
                value = thread.build(plain, loaded.entry)
                found[call.task, index] = Write(call.task, call.path, index, channel, value)
    return found.values()


def _differing(one: Print, other: Print) -> list[str]:
    return [name for name in {**one, **other} if one.get(name) != other.get(name)]


def _told(differences: list[str]) -> str:
    more = len(differences) - MOST
    return "; ".join(differences[:MOST]) + (f"; and {more} more" if more > 0 else "")


# ---- digests ------------------------------------------------------------------------------------
# Digests of values, to compare what a source holds with what was stored of it.


MOST_KNOWN = 100_000
"""Messages that are recognised."""


class Digests:
    """Digests that are equal just for values that are the same, types and order included.

    Every checkpoint of a conversation holds the messages of the one before. Those met again are
    recognised by their bytes, in a tenth of the time that taking them apart needs.
    """

    def __init__(self, codec: Codec, types: Types) -> None:
        self._codec = codec
        self._types = types
        self._known: dict[bytes, bytes] = {}

    def of(self, value: Any) -> bytes:
        """The digest of a value."""
        if only_messages(value):
            return _digest(b"messages" + b"".join(map(self._message, value)))
        return _digest(self._codec.encode(self._codec.plain(self._types.plain(value))))

    def _message(self, message: BaseMessage) -> bytes:
        try:
            # Exact for the types of Python itself, and refuses all others.
            state = (
                message.__dict__,
                message.__pydantic_extra__,
                message.__pydantic_private__,
                sorted(message.__pydantic_fields_set__),
            )
            key = _digest(repr(type(message)).encode() + marshal.dumps(state, 2))
        except ValueError:
            return self._whole(message)
        known = self._known.get(key)
        if known is None:
            if len(self._known) >= MOST_KNOWN:
                self._known.clear()
            known = self._known[key] = self._whole(message)
        return known

    def _whole(self, message: BaseMessage) -> bytes:
        return _digest(self._codec.encode(self._codec.plain(self._types.plain(message))))


def _digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=16).digest()
