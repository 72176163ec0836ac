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
from collections.abc import Callable, Container
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from langchain_core.messages import BaseMessage

from holdfast.errors import Conflict, InvalidInputError, RefusedError, StateIntegrityError
from holdfast.integrations.langgraph import put
from holdfast.integrations.langgraph.history import tuple_of
from holdfast.integrations.langgraph.messages import only_messages
from holdfast.integrations.langgraph.runs import parent_of
from holdfast.integrations.langgraph.saver import HoldfastSaver
from holdfast.integrations.langgraph.sources import Place, Row, Source, Write
from holdfast.integrations.langgraph.thread import Loaded, Past, Thread
from holdfast.integrations.langgraph.thread_records import Space
from holdfast.integrations.langgraph.types import Types
from holdfast.seal.codec import Codec
from holdfast.store.inner import core_of

Print = dict[str, bytes]
"""What a checkpoint holds: a digest of each part, by its name."""
Tell = Callable[[str, str, int, int], None]
"""Is given (thread, what is done, checkpoints done, checkpoints in all)."""
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
        self._from = ""
        """The id in the source of the thread at hand."""

    def run(self, thread: str, under: str | None = None) -> Outcome:
        """Import one thread, by choice under another id; what stands in its way is told by the
        outcome.

        Raises if store or source cannot be used at all.
        """
        outcome = Outcome(thread)
        self._from = thread
        try:
            with self._source.moment():
                self._run(outcome, thread if under is None else under)
        except (RefusedError, Conflict, StateIntegrityError) as error:
            # It stands in the way of this thread only: the others are taken.
            outcome.error = str(error)
        return outcome

    def _run(self, outcome: Outcome, here: str) -> None:
        places = self._source.places(outcome.thread)
        outcome.checkpoints = len(places)
        outcome.strays = self._source.strays(outcome.thread)
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
            plan.missing, plan.writes, plan.same = places, {}, set()
            outcome.replaced = True
            if not self._dry_run:
                HoldfastSaver(self._store).delete_thread(here)
                thread = Thread(core_of(self._store), here, self._types)
        outcome.present = len(places) - len(plan.missing)
        outcome.verified = len(plan.same)
        self._put(thread, plan, outcome)
        if self._verify and not self._dry_run:
            self._check(thread, plan, outcome)

    # what is there

    def _compare(self, thread: Thread, places: list[Place]) -> _Plan:
        """What is missing here, and what stands in the way of it.

        All is read before anything is put: what cannot be taken is found now.
        """
        here = self._prints(thread)
        plan = _Plan(more=bool(here.keys() - set(places)))
        newest: dict[str, str] = {}
        for place in places:
            self._tell(thread.id, "reading", len(plan.wanted), len(places))
            row = self._source.row(self._from, place)
            plan.wanted[place] = self._print(row)
            if place in here:
                self._compare_one(place, row, here[place], plan)
                newest[place[0]] = max(place[1], newest.get(place[0], ""))
            else:
                plan.missing.append(place)
        between = [id for ns, id in plan.missing if id < newest.get(ns, "")]
        plan.differences += [f"checkpoint {id} is missing between others" for id in between]
        if plan.more and (plan.missing or plan.writes):
            plan.differences.append("it went on both here and there")
        return plan

    def _compare_one(self, place: Place, row: Row, here: Print, plan: _Plan) -> None:
        there = plan.wanted[place]
        # Those that were to follow when the import was cut short are put now.
        missing = [write for write in row.writes if _name(write) not in here]
        more = {name for name in here.keys() - there.keys() if name.startswith(_WRITE)}
        plan.more |= bool(more)
        if missing:
            plan.writes[place] = missing
        parts = {*_differing(there, here)} - more - {*map(_name, missing)}
        if not parts and not missing and not more:
            plan.same.add(place)
        plan.differences += [f"checkpoint {place[1]}: {part}" for part in sorted(parts)]

    # putting

    def _put(self, thread: Thread, plan: _Plan, outcome: Outcome) -> None:
        """Put what is missing."""
        for place, writes in plan.writes.items():
            self._put_writes(thread, place, writes)
            outcome.writes += len(writes)
        for place in plan.missing:
            self._tell(thread.id, "importing", outcome.imported, len(plan.missing))
            row = self._source.row(self._from, place)
            if not self._dry_run:
                space = Space(place[0])
                put.put(thread, space, row.checkpoint, row.metadata, row.parent, lambda _: None)
            self._put_writes(thread, place, row.writes)
            outcome.imported += 1
            outcome.writes += len(row.writes)

    def _put_writes(self, thread: Thread, place: Place, writes: list[Write]) -> None:
        if self._dry_run:
            return
        for (task, path), group in groupby(writes, lambda write: (write.task, write.path)):
            items = [(write.idx, write.channel, write.value) for write in group]
            space = Space(place[0])
            put.put_writes(thread, space, place[1], items, task, path, None, patient=False)

    # checking

    def _check(self, thread: Thread, plan: _Plan, outcome: Outcome) -> None:
        wanted = {place: plan.wanted[place] for place in [*plan.writes, *plan.missing]}
        found = self._prints(thread, wanted)
        for place, print in wanted.items():
            parts = _differing(print, found[place]) if place in found else ["it is missing"]
            outcome.verified += not parts
            outcome.differences += [f"checkpoint {place[1]}: {part}" for part in parts]

    def _prints(self, thread: Thread, wanted: Container[Place] | None = None) -> dict[Place, Print]:
        """Checkpoints as somebody reads them who knows nothing of them yet."""
        found: dict[Place, Print] = {}
        fresh = Thread(thread.core, thread.id, self._types)
        for space in fresh.namespaces():
            past = Past(fresh, space)
            for loaded in past:
                place = (space.ns, loaded.record.id)
                if wanted is None or place in wanted:
                    self._tell(thread.id, "verifying", len(found), len(past))
                    one = tuple_of(fresh, space, loaded, fresh.values(space, loaded))
                    checkpoint: Any = one.checkpoint
                    writes = _written(fresh, loaded)
                    row = Row(checkpoint, {**one.metadata}, parent_of(one), writes)
                    found[place] = self._print(row)
        return found

    def _print(self, row: Row) -> Print:
        """Writes are told one by one, with what a saver does not show: their paths and indices."""
        parts: dict[str, Any] = {"its parent": row.parent, "its metadata": row.metadata}
        for name, value in row.checkpoint.items():
            if name in _BY_NAME:
                told = _BY_NAME[name]
                parts |= {f"{told} {inner!r}": held for inner, held in value.items()}
            else:
                parts[f"its {name}"] = value
        for write in row.writes:
            parts[_name(write)] = [write.path, write.channel, write.value]
        return {name: self._digests.of(value) for name, value in parts.items()}


_WRITE = "write "
_BY_NAME = {
    "channel_values": "channel",
    "channel_versions": "the version of",
    "versions_seen": "versions seen by",
}


@dataclass
class _Plan:
    """What an import has to do."""

    wanted: dict[Place, Print] = field(default_factory=dict)
    """what the source has"""
    missing: list[Place] = field(default_factory=list)
    writes: dict[Place, list[Write]] = field(default_factory=dict)
    """missing on top of checkpoints that are there"""
    same: set[Place] = field(default_factory=set)
    more: bool = False
    """whether something is only here: the thread went on"""
    differences: list[str] = field(default_factory=list)


def _name(write: Write) -> str:
    return f"{_WRITE}{write.idx} of task {write.task}"


def _written(thread: Thread, loaded: Loaded) -> list[Write]:
    """What is stored on top of a checkpoint; see `merged` for which of two counts."""
    found: dict[tuple[str, int], Write] = {}
    for call in loaded.calls:
        for index, channel, plain in call.items if call.checkpoint == loaded.record.id else []:
            if index < 0 or (call.task, index) not in found:
                value = thread.build(plain, loaded.entry)
                found[call.task, index] = Write(call.task, call.path, index, channel, value)
    return [*found.values()]


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
