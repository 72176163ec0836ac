"""Quarantine: damaged rows as they were found, kept for whoever wants to know what happened.

A copy of each is kept in the scope of the agent's recoveries, with what was wrong with it. Whether
the row itself is still in its place is another matter: it stays there until it is healed, pruned or
erased with its scope.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from holdfast.errors import MissingError, StateIntegrityError
from holdfast.recovery.failures import PREFIX, log
from holdfast.recovery.records import scope_of, write
from holdfast.store.inner import Finding, LineHandle, StoreHandle, moment
from holdfast.store.names.arguments import check_text
from holdfast.store.names.face import faced, writes
from holdfast.store.names.scope import Scope

PLACE = PREFIX + "quarantine/"
MOST_ROWS = 1000
"""That one recovery sets aside: who has more damage than this needs a copy of the whole store."""


@dataclass(frozen=True, slots=True)
class Quarantined:
    """A damaged row as it was found."""

    id: str
    """Its key in storage, in hexadecimal; damaged again in another way, with a number behind it."""
    agent: Scope
    place: str
    kind: str
    why: str
    content: bytes | None
    """None if the row was missing."""
    recovery: str
    """The recovery that found it; empty if it was another check."""
    found_at: datetime
    released_at: datetime | None = None
    reason: str = ""
    """Why it was released."""
    digest: str = ""
    """SHA-256 of the row as it was found, in hexadecimal; empty if it was missing."""


@faced
class Quarantine:
    """The damaged rows of one agent that were set aside."""

    def __init__(self, store: StoreHandle, agent: Scope) -> None:
        self.agent = agent
        self._core = store.core
        self._handle: LineHandle = store.line(scope_of(agent))

    @writes
    def add(self, findings: Iterable[Finding], recovery: str = "") -> list[str]:
        """Set aside what findings of `verify` are about; the ids of what was not there before."""
        rows = {one.row: one for one in findings if one.row and one.kind != "signature"}
        contents = self._core.storage.get([bytes.fromhex(row) for row in rows]) if rows else []
        known: dict[str, list[str]] = {}
        for key in self._handle.reader.keys(PLACE, None, "") if rows else ():
            known.setdefault(key[len(PLACE) :].partition(".")[0], []).append(key)
        now = moment(self._core.clock.claimed())
        new: list[str] = []
        for found, content in zip(rows.values(), contents, strict=True):
            digest = _digest_of(content)
            before = known.get(found.row, [])
            if any(self._digest(key) == digest for key in before):
                continue
            if len(new) == MOST_ROWS:
                log.warning(
                    "%s: more than %d rows are damaged: the others are not set aside",
                    self.agent,
                    MOST_ROWS,
                )
                break
            new.append(f"{found.row}.{len(before) + 1}" if before else found.row)
            kept: dict[str, Any] = {
                "place": found.place,
                "kind": found.kind,
                "why": found.message[:1000],
                "content": content,
                "recovery": recovery,
                "found_at": now,
                "digest": digest,
            }
            write(self._handle, {PLACE + new[-1]: kept})
        return new

    def list(self) -> list[Quarantined]:
        """All that was set aside, released ones included."""
        found = self._handle.reader.items(PLACE, None, "", False)
        return [self._read(key[len(PLACE) :], value) for key, value in found]

    def get(self, id: str) -> Quarantined:
        """One of them."""
        check_text(id, "the id of a damaged row", 200, least=1)
        value = self._value(PLACE + id)
        if value is None:
            raise MissingError(f"{self.agent}: nothing was set aside as {id!r}; `list` has them")
        return self._read(id, value)

    @writes
    def release(self, id: str, reason: str = "") -> Quarantined:
        """Say that one is dealt with; its copy is let go, and stays in the history alone.

        One that was released before stays as it is, with the reason and time of then.
        """
        found = self.get(id)
        check_text(reason, "the reason", 2000)
        if found.released_at is not None:
            return found
        now = moment(self._core.clock.claimed())
        kept = {name: getattr(found, name) for name in Quarantined.__slots__[2:]}
        more = {"content": None, "released_at": now, "reason": reason}
        write(self._handle, {PLACE + id: kept | more})
        return self.get(id)

    def _value(self, key: str) -> Any:
        return self._handle.reader.get(key, None, None, False)

    def _digest(self, key: str) -> str | None:
        """Of a row that was set aside; None if that is damaged in its turn."""
        try:
            return self._read("", self._value(key)).digest
        except StateIntegrityError:  # then it is set aside once more
            return None

    def _read(self, id: str, value: Mapping[str, Any]) -> Quarantined:
        first = {"digest": _digest_of(value["content"])}  # it was not kept from the beginning
        return Quarantined(id, self.agent, **{**first, **value})


def _digest_of(content: bytes | None) -> str:
    return hashlib.sha256(content).hexdigest() if content is not None else ""
