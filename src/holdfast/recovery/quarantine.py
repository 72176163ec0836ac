"""Quarantine: damaged rows as they were found, kept for whoever wants to know what happened.

A copy of each is kept in the scope of the agent's recoveries, with what was wrong with it. Whether
the row itself is still in its place is another matter: it stays there until it is healed, pruned or
erased with its scope.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from contextlib import suppress
from datetime import datetime
from functools import partial

from msgspec import Struct
from msgspec.structs import asdict, replace

from holdfast.errors import MissingError, StateIntegrityError
from holdfast.recovery.failure_kinds import OWNED, log
from holdfast.recovery.records import book_of
from holdfast.store.inner import BookPage, Finding, StoreHandle, moment
from holdfast.store.names.arguments import check_text
from holdfast.store.names.face import faced, writes
from holdfast.store.names.scope import Scope

PLACE = "quarantine/"
MOST_ROWS = 1000
"""That one recovery sets aside: who has more damage than this needs a copy of the whole store."""


class QuarantinedRow(Struct, kw_only=True, frozen=True):
    """What is kept of a damaged row."""

    place: str
    kind: str
    why: str
    content: bytes | None
    """As it was found; None if the row was missing, or was released."""
    recovery: str
    """The recovery that found it; empty if it was another check."""
    found_at: datetime
    released_at: datetime | None = None
    reason: str = ""
    """Why it was released."""
    digest: str = ""
    """SHA-256 of the row as it was found, in hexadecimal; empty if it was missing."""


class Quarantined(QuarantinedRow, kw_only=True, frozen=True):
    """A damaged row as it was found."""

    id: str
    """Its key in storage, in hexadecimal."""
    agent: Scope


@faced
class Quarantine:
    """The damaged rows of one agent that were set aside."""

    def __init__(self, store: StoreHandle, agent: Scope) -> None:
        self.agent = agent
        self._core = store.core
        self._book = book_of(store.line(OWNED.scope_beside(agent)), QuarantinedRow)

    @writes
    def add(self, findings: Iterable[Finding], recovery: str = "") -> list[str]:
        """Set aside what findings of `verify` are about; the ids of what was not there before."""
        rows = {one.row: one for one in findings if one.row and one.kind != "signature"}
        contents = self._core.storage.get([bytes.fromhex(row) for row in rows]) if rows else []
        now = moment(self._core.clock.claimed())
        new: list[str] = []
        for found, content in zip(rows.values(), contents, strict=True):
            if len(new) == MOST_ROWS:
                log.warning(
                    "%s: more than %d rows are damaged: the others are not set aside",
                    self.agent,
                    MOST_ROWS,
                )
                break
            row = QuarantinedRow(
                place=found.place,
                kind=found.kind,
                why=found.message[:1000],
                content=content,
                recovery=recovery,
                found_at=now,
                digest=_digest_of(content),
            )
            if self._book.step(partial(_added, found.row, row)):
                new.append(found.row)
        return new

    def list(self) -> list[Quarantined]:
        """All that was set aside, released ones included."""
        return [self._read(id, row) for id, row in self._book.all(PLACE).items()]

    def get(self, id: str) -> Quarantined:
        """One of them."""
        check_text(id, "the id of a damaged row", 200, least=1)
        row = self._book.get(PLACE + id)
        if row is None:
            raise MissingError(f"{self.agent}: nothing was set aside as {id!r}; `list` has them")
        return self._read(PLACE + id, row)

    @writes
    def release(self, id: str, reason: str = "") -> Quarantined:
        """Say that one is dealt with; its copy is let go, and stays in the history alone.

        One that was released before stays as it is, with the reason and time of then.
        """
        self.get(id)
        check_text(reason, "the reason", 2000)
        now = moment(self._core.clock.claimed())

        def released(page: BookPage[QuarantinedRow]) -> None:
            row = page.get(PLACE + id)
            if row is not None and row.released_at is None:
                digest = row.digest or _digest_of(row.content)
                row = replace(row, content=None, released_at=now, reason=reason, digest=digest)
                page.put(PLACE + id, row)

        self._book.step(released)
        return self.get(id)

    def _read(self, id: str, row: QuarantinedRow) -> Quarantined:
        first = row.digest or _digest_of(row.content)  # it was not kept from the beginning
        kept = {**asdict(row), "digest": first}
        return Quarantined(id=id[len(PLACE) :], agent=self.agent, **kept)


def _added(name: str, row: QuarantinedRow, page: BookPage[QuarantinedRow]) -> bool:
    """Keep a damaged row; False if one is kept that is not dealt with."""
    with suppress(StateIntegrityError):  # damaged in its turn: then it is set aside once more
        kept = page.get(PLACE + name)
        if kept is not None and kept.released_at is None:
            return False
    page.put(PLACE + name, row)
    return True


def _digest_of(content: bytes | None) -> str:
    return hashlib.sha256(content).hexdigest() if content is not None else ""
