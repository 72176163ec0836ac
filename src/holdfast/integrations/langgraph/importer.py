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
        wanted = {place: self._print(source.row(id, place)) for place in places}
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
            if known is not None and known.keys() >= wanted[place].keys():
                continue
            row, space = source.row(id, place), Space(place[0])
            writes = [one for one in row.writes if _name(one) not in (known or {})]
            outcome.imported += known is None
            outcome.writes += len(writes)
            if known is None and not self._dry_run:
                put_row(thread, space, row)
            elif not self._dry_run:  # writes that were to follow it when an import was cut short
                put_writes(thread, space, place[1], writes)
        if not outcome.imported + outcome.writes or self._dry_run:
            return
        found = self._here(id)
        for place, parts in wanted.items():
            for name in parts:
                if found.get(place, {}).get(name) != parts[name]:
                    raise StateIntegrityError(
                        f"checkpoint {place[1]}: {name} did not come back as it was"
                    )

    def _here(self, id: str) -> dict[Place, Print]:
        """Checkpoints as somebody reads them who knows nothing of them yet."""
        found = rows(Thread(core_of(self._store), id, self._types))
        return {(space.ns, row.checkpoint["id"]): self._print(row) for space, row in found}

    def _print(self, row: Row) -> Print:
        """Digests of the parts of a checkpoint, which are equal just for what is the same, types
        and order included. Writes are told one by one."""
        parts: dict[str, Any] = {"its parent": row.parent, "its metadata": row.metadata}
        parts["its values"] = [
            [name, sorted(value.items()) if isinstance(value, dict) else value]
            for name, value in sorted(row.checkpoint.items())
        ]
        parts |= {_name(one): [one.path, one.channel, one.value] for one in row.writes}
        codec = core_of(self._store).codec
        data = {
            name: codec.encode(codec.plain(self._types.plain(value)))
            for name, value in parts.items()
        }
        return {name: hashlib.blake2b(one, digest_size=16).digest() for name, one in data.items()}


def _name(write: Write) -> str:
    return f"write {write.idx} of task {write.task}"


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
