"""Restoring a backup into a new store, and what was erased since.

The row that makes a store of the others is written last: cut short, there is no store, and what is
there is refused by whoever opens it. What was erased in the store since the backup was made is
erased in the new one, too, if the store is at hand: its tombstones are put there with that row,
and its keys are not put into the ring.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass
from pathlib import Path

from holdfast.backup import manifest
from holdfast.backup.manifest import CELLS, RECORDS, RING, Backup, Row, damaged
from holdfast.backup.place import Place
from holdfast.errors import Conflict, HoldfastError, RefusedError
from holdfast.seal.ring import GONE, scope_of
from holdfast.storage import open_storage, shown, url_of
from holdfast.storage.contract import LAST, Batch, Storage
from holdfast.storage.rows import each, pages
from holdfast.store.inner import Core, StoreHandle, finish_erasures
from holdfast.store.names import rowkinds as rows
from holdfast.store.names.threads import safe_point
from holdfast.store.open import META, open_core, ring_place

_TURN = b"restoring"


@dataclass(frozen=True, slots=True)
class RestoredBackup:
    """A store that was made from a backup."""

    backup: Backup
    url: str
    """Of the new store, without a password."""
    rows: int
    erased: int | None
    """Scopes and subjects that were erased since, and are in the new store, too; None if that is
    not known, because the store that the backup is of was not at hand."""
    notes: tuple[str, ...]
    """What is needed to use it."""

    def __str__(self) -> str:
        lines = [f"backup {self.backup.id} is restored into {self.url}: {self.rows} rows"]
        return "\n".join([*lines, *(f"  {note}" for note in self.notes)])


def restore(core: Core | None, place: Place, backup: Backup, url: str | Path) -> RestoredBackup:
    """Make a store of a backup, where none is."""
    url = url_of(url)
    if core is not None and core.lineage.hex() != backup.lineage:
        core = None  # of another store, whose tombstones say nothing of this one
    ring_url = ring_place(url) if backup.encrypted else ""
    parts = manifest.parts_of(place, backup)
    with ExitStack() as opened:
        storage = _empty(opened, url)
        ring = _empty(opened, ring_url, private=True) if backup.keys else None
        found = (manifest.rows_of(place, part) for part in parts)
        turn = _Turn([storage] if ring is None else [storage, ring])
        try:
            turn.begin(url)
            new = _fill(turn, found, _Gone(core))
        except BaseException:  # cancelled, too: what was written so far is no store
            turn.undo()
            raise
        if not backup.encrypted and new:
            # What was erased since is dropped: in a plain store the rows are the content.
            with closing(open_core(url, key=None, create=False)) as made:
                finish_erasures(StoreHandle(made))
    return RestoredBackup(
        backup,
        shown(url),
        backup.rows,
        None if core is None else new,
        tuple(_notes(backup, core, ring_url, new)),
    )


def _empty(opened: ExitStack, url: str, *, private: bool = False) -> Storage:
    """A storage in which nothing is."""
    storage = open_storage(url, private=private)
    opened.callback(storage.close)
    if not _bare(storage):
        raise RefusedError(
            f"something is at {shown(url)} already, perhaps of a restore that was cut short; "
            "nothing was changed: name another place, or remove what is there"
        )
    return storage


def _bare(storage: Storage, cells: int = 0) -> bool:
    """Whether no record is there, and no more than this many cells."""
    return not storage.scan(b"", LAST, limit=1) and len(storage.cells(b"", LAST)) <= cells


class _Gone:
    """What was erased in the store that a backup is of, if that is at hand."""

    def __init__(self, core: Core | None) -> None:
        self._core = core
        self.rows: dict[bytes, bytes] = {}
        """Tombstones of scopes and of subjects."""
        self.keys: dict[bytes, bytes] = {}
        """What the ring says of those whose keys went."""
        if core is not None:
            self.rows = dict(each(core.storage.scan, b"U", rows.after(b"U")))
            for key, row in each(core.storage.scan, b"D", rows.after(b"D")):
                if rows.state_of(key) == rows.ERASED:
                    self.rows[key] = row
        if core is not None and core.ring is not None:
            self.keys = dict(each(core.ring.storage.scan, GONE, rows.after(GONE)))

    def takes(self, row: Row) -> bool:
        """Whether a row has to go with what is erased: its keys, and the name of a subject.

        What a scope held goes by its tombstone.
        """
        if row.table == RING:
            return row.key in self.keys or GONE + scope_of(row.key) in self.keys
        if row.table == CELLS and row.key.startswith(rows.SUBJECTS) and self._core is not None:
            id = self._core.subjects.read(row.key, row.content).id
            return rows.subject_tombstone(id) in self.rows
        return False


class _Turn:
    """Who restores into a place in which nothing was: a cell there holds a token of theirs.

    All that is written expects it, and so does undoing: of two who begin at once, one is refused,
    and nobody drops rows of another.
    """

    def __init__(self, places: list[Storage]) -> None:
        self._places = places
        self._token = os.urandom(16)
        self._begun: list[Storage] = []

    def begin(self, url: str) -> None:
        """Put the token there."""
        for storage in self._places:
            try:
                storage.commit(Batch(cells=[(_TURN, None, self._token)]))
            except Conflict:  # their token is there
                raise _busy(url) from None
            # Another turn may have come and gone since this one saw that nothing is there.
            if not _bare(storage, cells=1):
                storage.commit(Batch(cells=[(_TURN, self._token, None)]))
                raise _busy(url)
            self._begun.append(storage)

    def write(self, store: Batch, ring: Batch) -> None:
        """Commit rows of the store, and of its ring, if that is restored."""
        for storage, batch in zip(self._places, (store, ring), strict=False):
            if batch.puts or batch.cells:
                batch.cells.append((_TURN, self._token, self._token))
                storage.commit(batch)

    def finish(self, last: Batch) -> None:
        """Commit the rows that make it a store, and take the token away."""
        last.cells.append((_TURN, self._token, None))
        self._places[0].commit(last)
        for ring in self._places[1:]:
            ring.commit(Batch(cells=[(_TURN, self._token, None)]))

    def undo(self) -> None:
        """Leave nothing behind, as far as that can be done."""
        with suppress(HoldfastError):
            if not self._begun or self._places[0].get([META])[0] is not None:
                return
            mine = (_TURN, self._token, self._token)
            for storage in self._begun:
                for page in pages(storage.scan, b"", LAST):
                    storage.commit(Batch(drops=[key for key, _ in page], cells=[mine]))
                for page in pages(storage.cells, b"", LAST):
                    gone = [(key, content, None) for key, content in page if key != _TURN]
                    storage.commit(Batch(cells=[*gone, mine]))
                storage.commit(Batch(cells=[(_TURN, self._token, None)]))


def _busy(url: str) -> RefusedError:
    return RefusedError(
        f"somebody else restores into {shown(url)}; nothing was changed: wait for that, or name "
        "another place"
    )


def _fill(turn: _Turn, found: Iterable[list[Row]], gone: _Gone) -> int:
    """Write all rows, the one that makes it a store last; how many tombstones were new."""
    last: list[tuple[bytes, bytes]] = []
    new = dict(gone.rows)
    at = (-1, b"")
    for part in found:
        safe_point()
        at = manifest.in_order(part, at, "the backup")
        batch, keys = Batch(), Batch()
        for row in part:
            if row.table == RECORDS:
                new.pop(row.key, None)
            if row.table == RECORDS and row.key == META:
                last.append((row.key, row.content))
            elif not gone.takes(row):
                into = batch if row.table in (RECORDS, CELLS) else keys
                if row.table in (RECORDS, RING):
                    into.puts.append((row.key, row.content))
                else:
                    into.cells.append((row.key, None, row.content))
        turn.write(batch, keys)
    if not last:
        raise damaged("the backup")
    turn.write(Batch(), Batch(puts=list(gone.keys.items())))
    turn.finish(Batch(puts=[*last, *new.items()], absent=[META]))
    return len(new)


def _notes(backup: Backup, core: Core | None, ring_url: str, new: int) -> Iterator[str]:
    if backup.encrypted and not backup.keys:
        yield (
            f"to open it, put the ring of the store, which is not in the backup, at "
            f"{shown(ring_url)}, and give the master key"
        )
    elif backup.encrypted:
        yield "to open it, give the master key of when the backup was made"
    else:
        yield (
            "its signer is not in the backup: copy the file of the old store that ends in .sign to "
            "the new name, else new checkpoints are not signed"
        )
    if core is None:
        yield "what was erased since is in it again: the store it is of was not at hand to ask"
    elif new:
        yield f"{new} scopes or subjects that were erased since are erased in it, too"
        if backup.encrypted:
            yield "their rows, which nobody can read any more, are dropped by sweep()"
