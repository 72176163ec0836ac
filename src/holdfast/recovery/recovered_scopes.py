"""Which scopes of a store recoveries have to do with."""

from __future__ import annotations

from contextlib import suppress

from holdfast.errors import InvalidScopeError
from holdfast.recovery.damaged_records import readable
from holdfast.recovery.records import OWNER, PREFIX, is_own
from holdfast.recovery.user_calls import log
from holdfast.store.history.handle import LineHandle, StoreHandle
from holdfast.store.journal import directory
from holdfast.store.names.scope import Scope


def recovered_agents(store: StoreHandle) -> list[Scope]:
    """Every scope that has had a recovery, or damaged rows that were set aside.

    One whose name is too long to be part of another is known by its recoveries only.
    """
    found: list[Scope | None] = []
    for scope in every_scope(store):
        if not is_own(scope) or scope.id == OWNER:
            continue
        name = scope.id.removeprefix(PREFIX)
        if ":" in name or name == "global":
            with suppress(InvalidScopeError):  # else a scope of somebody else, who may call it so
                found.append(Scope.parse(name))
        else:
            found += readable([scope], lambda one: _agent_of(store.line(one)))
    return [one for one in found if one is not None]


def _agent_of(handle: LineHandle) -> Scope | None:
    """Whose recoveries a scope keeps, as the first of them says."""
    first = handle.reader.items(PREFIX, 1, "", False)
    return Scope.parse(first[0][1]["agent"]) if first and "agent" in first[0][1] else None


def every_scope(store: StoreHandle, damaged: directory.Told | None = None) -> list[Scope]:
    """The scopes of a store by their names, as far as the directory can be read.

    A row of it that is damaged is told to `damaged`, or else logged: what is done for the others
    does not wait for it.
    """
    found = directory.scopes(store.core, damaged or _unnamed)
    return sorted((one[0] for one in found), key=str)


def _unnamed(key: bytes, error: Exception) -> None:
    del key
    log.warning("a scope is passed over: %s", error)
