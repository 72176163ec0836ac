"""Procedures that are kept in the store: for one agent, or for all.

They are in the scope of notices, not with the agent: that may be damaged just when its procedure is
wanted. Every process that recovers sees them, and they are there after a restart.
"""

from __future__ import annotations

import hashlib

from msgspec import Struct

from holdfast.errors import MissingError
from holdfast.recovery.failures import KEPT_PROCEDURES
from holdfast.recovery.procedure import Procedure
from holdfast.recovery.records import notices_scope
from holdfast.store.inner import Book, BookPage, StoreHandle
from holdfast.store.names.scope import Scope
from holdfast.store.state import State

ALL = "all"


class KeptProcedure(Struct):
    """A procedure as it is kept."""

    procedure: dict[str, object]
    """Plain data, which `Procedure.of` reads."""
    agent: str = ""
    """Whose it is; empty: it is for all."""


class ProcedureBook:
    """The procedures of a store's agents."""

    def __init__(self, store: StoreHandle) -> None:
        notices = State(store.line(notices_scope()))
        self._book: Book[KeptProcedure] = Book(notices, KEPT_PROCEDURES, KeptProcedure)

    def set(self, procedures: list[Procedure], agent: Scope | None) -> None:
        """Keep some, each in place of the one of its id; those that are kept so are left."""

        def note(page: BookPage[KeptProcedure]) -> None:
            for one in procedures:
                made = KeptProcedure(one.data(), str(agent or ""))
                if page.get(_id(agent, one.id)) != made:
                    page.put(_id(agent, one.id), made)

        self._book.step(note, reason="procedures of recoveries")

    def remove(self, id: str, agent: Scope | None) -> None:
        """Keep one no longer."""

        def note(page: BookPage[KeptProcedure]) -> None:
            if not page.exists(_id(agent, id)):
                whose = agent if agent is not None else "all agents"
                raise MissingError(
                    f"no procedure {id!r} is kept for {whose}; `recovery.procedures(agent)` "
                    "lists them"
                )
            page.delete(_id(agent, id))

        self._book.step(note, reason="procedures of recoveries")

    def look(self) -> None:
        """Read all of them; raises if any is damaged."""
        self._book.all()

    def all(self, agent: Scope | None) -> dict[str, Procedure]:
        """Those that are kept for all, and then those of an agent, by their ids."""
        found: dict[str, Procedure] = {}
        for whose in dict.fromkeys((None, agent)):
            for one in self._book.all(_id(whose, "")).values():
                made = Procedure.of(one.procedure)
                found.pop(made.id, None)  # so that it is asked before those for all
                found[made.id] = made
        return found


def _id(agent: Scope | None, id: str) -> str:
    """Whose it is, however long that name is, then the id."""
    if agent is None:
        return f"{ALL}/{id}"
    return f"{hashlib.sha256(str(agent).encode('utf-8', 'surrogatepass')).hexdigest()[:32]}/{id}"
