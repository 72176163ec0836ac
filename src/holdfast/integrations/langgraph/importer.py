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
from dataclasses import dataclass
from typing import Any

from holdfast.errors import Conflict, RefusedError, StateIntegrityError
from holdfast.integrations.langgraph.copy import Row, Write, put_row, put_writes, rows
from holdfast.integrations.langgraph.saver import HoldfastSaver
from holdfast.integrations.langgraph.sources import Place, Source
from holdfast.integrations.langgraph.thread import Thread
from holdfast.integrations.langgraph.thread_records import Space
from holdfast.integrations.langgraph.types import Types
from holdfast.seal.codec import Codec
from holdfast.store.inner import core_of

Print = dict[str, bytes]
"""What a checkpoint holds: a digest of it, and of each write on top of it, by their names."""


@dataclass
class Outcome:
    """What became of one thread."""

    thread: str
    checkpoints: int = 0
    """in the source"""
    imported: int = 0
    """put now and read back as they were; with `dry_run`, to be put"""
    present: int = 0
    """there already, and equal"""
    writes: int = 0
    """pending writes that came along"""
    replaced: bool = False
    error: str | None = None

    @property
    def ok(self) -> bool:
        """Whether all of it is here now."""
        return self.error is None


class Import:
    """Takes threads of a source into a store.

    store: an open store; `types` must be those that the graphs will read with, if they have any.
    replace: delete a thread that differs, and import it anew; otherwise it is refused.
    dry_run: read and compare everything, write nothing.
    """

    def __init__(
        self,
        store: Any,
        source: Source,
        *,
        types: Types | None = None,
        replace: bool = False,
        dry_run: bool = False,
    ) -> None:
        self._store = store
        self._source = source
        self._types = types or Types()
        self._replace = replace
        self._dry_run = dry_run
        self._digests = Digests(core_of(store).codec, self._types)

    def run(self, thread: str) -> Outcome:
        """Import one thread; what stands in its way is told by the outcome.

        Raises if store or source cannot be used at all.
        """
        outcome = Outcome(thread)
        try:
            with self._source.moment():
                self._run(outcome)
        except (RefusedError, Conflict, StateIntegrityError) as error:
            # It stands in the way of this thread only: the others are taken.
            outcome.error = str(error)
        return outcome

    def _run(self, outcome: Outcome) -> None:
        id, source = outcome.thread, self._source
        places = source.places(id)
        outcome.checkpoints = len(places)
        # All is read before anything is put: what cannot be taken is found now.
        wanted = {place: self._digests.print(source.row(id, place)) for place in places}
        here = self._here(id)
        difference = _difference(wanted, here)
        if difference:
            if not self._replace:
                raise Conflict(
                    f"thread {id!r} is here already and differs: {difference}; --replace deletes "
                    "it here and imports it anew"
                )
            outcome.replaced, here = True, {}
            if not self._dry_run:
                HoldfastSaver(self._store).delete_thread(id)
        thread = Thread(core_of(self._store), id, self._types)
        for place in places:
            known = here.get(place)
            outcome.present += known is not None
            if known is None or known.keys() < wanted[place].keys():
                self._put(thread, place, known, outcome)
        if outcome.imported + outcome.writes and not self._dry_run:
            self._check(wanted, self._here(id))

    def _here(self, id: str) -> dict[Place, Print]:
        """Checkpoints as somebody reads them who knows nothing of them yet."""
        found = rows(Thread(core_of(self._store), id, self._types))
        return {(space.ns, row.checkpoint["id"]): self._digests.print(row) for space, row in found}

    def _put(self, thread: Thread, place: Place, known: Print | None, outcome: Outcome) -> None:
        """Put what is missing of a checkpoint: all, or writes that were to follow it."""
        row = self._source.row(outcome.thread, place)
        space = Space(place[0])
        writes = [one for one in row.writes if _name(one) not in (known or {})]
        outcome.imported += known is None
        outcome.writes += len(writes)
        if self._dry_run:
            return
        if known is None:
            put_row(thread, space, row)
        else:
            put_writes(thread, space, place[1], writes)

    def _check(self, wanted: dict[Place, Print], found: dict[Place, Print]) -> None:
        for place, parts in wanted.items():
            held = found.get(place, {})
            for name in parts:
                if held.get(name) != parts[name]:
                    raise StateIntegrityError(
                        f"checkpoint {place[1]}: {name} did not come back as it was"
                    )


_WRITE = "write "


def _name(write: Write) -> str:
    return f"{_WRITE}{write.idx} of task {write.task}"


def _difference(wanted: dict[Place, Print], here: dict[Place, Print]) -> str:
    """What stands in the way of going on from what is here; empty if nothing does."""
    places = list(wanted)
    count = sum(place in here for place in places)
    more, less = bool(here.keys() - wanted.keys()), count < len(places)
    for place in places[:count]:
        if place not in here:
            return f"checkpoint {place[1]} is missing between others"
        for name in wanted[place].keys() & here[place].keys():
            if wanted[place][name] != here[place][name]:
                return f"checkpoint {place[1]}: {name}"
        # Those that were to follow when the import was cut short are put now.
        more |= bool(here[place].keys() - wanted[place].keys())
        less |= bool(wanted[place].keys() - here[place].keys())
    return "it went on both here and there" if more and less else ""


class Digests:
    """Digests that are equal just for values that are the same, types and order included."""

    def __init__(self, codec: Codec, types: Types) -> None:
        self._codec = codec
        self._types = types

    def print(self, row: Row) -> Print:
        """Digests of the parts of a checkpoint. Writes are told one by one."""
        parts: dict[str, Any] = {"its parent": row.parent, "its metadata": row.metadata}
        parts["its values"] = [
            [name, sorted(value.items()) if isinstance(value, dict) else value]
            for name, value in sorted(row.checkpoint.items())
        ]
        parts |= {_name(one): [one.path, one.channel, one.value] for one in row.writes}
        return {name: self._of(value) for name, value in parts.items()}

    def _of(self, value: Any) -> bytes:
        data = self._codec.encode(self._codec.plain(self._types.plain(value)))
        return hashlib.blake2b(data, digest_size=16).digest()
