"""An agent that was deleted or erased, also while it is recovered, does not come back by that."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from holdfast.errors import ScopeErasedError, ScopeNotFoundError, StateIntegrityError
from holdfast.store.commit.core import Core
from holdfast.store.history.handle import LineHandle
from holdfast.store.journal.ledger import Ledger
from holdfast.store.journal.tombstones import erased_ids
from holdfast.store.names.scope import Scope

if TYPE_CHECKING:
    from holdfast.recovery.context import Context


def is_erased(context: Context, there: LineHandle, erased: set[bytes]) -> bool:
    """Whether what a copy has was erased here; `erased` are scopes that bore the agent's name.

    If nothing had the name again when the recovery began, nothing of the name comes back, from
    whatever store.
    """
    gone = context.record.absent or context.store.core.known(context.agent) is None
    return bool(erased) and (gone or there.history.points.line().ledger.id in erased)


def stays_erased(context: Context) -> str:
    """What is said of an agent that a copy still has."""
    return f"{context.agent} was erased in this store, and stays erased"


def scope_now(core: Core, agent: Scope) -> Ledger | None:
    """A scope as it is now; None if it is not there, or was erased or deleted since."""
    with suppress(StateIntegrityError):  # then it is there, and damaged
        core.current(agent)
    return core.known(agent)


def ended_since(core: Core, agent: Scope, id: bytes | None) -> str:
    """How a scope that had an id has ended since, for people; empty if it has not, or had none.

    What bears its name by now may be another one.
    """
    now = scope_now(core, agent) if id is not None else None
    if id is None or (now is not None and now.id == id):
        return ""
    return f"{agent} was {'erased' if id in erased_ids(core, agent) else 'deleted'} since it began"


def ledger_now(context: Context) -> Ledger | None:
    """The same of an agent that is recovered."""
    return scope_now(context.store.core, context.agent)


def unless_erased(context: Context, there: LineHandle) -> Callable[[Ledger], None]:
    """Asked of the scope that an entry is about to be written to, raises if what a copy has was
    erased here by then; raises at once if it was before.

    A scope of another number than now has, or of any if there is none, was made since. Whoever
    erases the scope itself later keeps the entry from being written.
    """
    core, agent = context.store.core, context.agent
    ledger = ledger_now(context)
    number = ledger.number if ledger is not None else None
    if is_erased(context, there, erased_ids(core, agent)):
        raise ScopeErasedError(stays_erased(context))

    def check(ledger: Ledger) -> None:
        if context.record.scope_id not in (None, ledger.id):
            raise ScopeNotFoundError(ended_since(core, agent, context.record.scope_id))
        erased = erased_ids(core, agent)
        if is_erased(context, there, erased) or (erased and ledger.number != number):
            raise ScopeErasedError(stays_erased(context))

    return check
