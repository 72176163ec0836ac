"""The same open store, as somebody may use it: what is read is checked where it is read.

A guarded core shares everything with the core of the store but its gates, which ask before each
change, and its guard, which every way to a scope leads by: the directory, the reader of keys, the
past, and the feed. So there is nothing that a new method of the store could forget.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

from holdfast.errors import AccessDeniedError
from holdfast.store.inner import Core, Gate, GateRequest, Gates, Owned
from holdfast.store.names.scope import Scope

GRANTS = Owned("$access/grants/")
PARENTS = Owned("$access/parents/")
"""A record each: the scope that a session is below of."""
PROTECTION = Owned("$access/protection/")
"""What is not shown to people."""
READ, WRITE, READ_WRITE, ADMIN = "read", "write", "read_write", "admin"
PERMISSIONS = {
    READ: frozenset((READ,)),
    WRITE: frozenset((WRITE,)),
    READ_WRITE: frozenset((READ, WRITE)),
    ADMIN: frozenset((READ, WRITE, ADMIN)),
}
"""What each permission lets one do. Nothing is implied beyond that."""
ADMIN_ONLY = frozenset(("delete scope", "erase scope", "erase subject", "prune", "sweep"))
"""What is asked for that takes more than writing."""
SYSTEM = (Scope("custom", "$access"), Scope("custom", "$audit"))
"""Scopes in which every change takes `admin`: who writes grants has them all."""
LEASES = Scope("custom", "$leases")
"""Who may take a lease has `write` of its name, as of a key of this scope, in which nothing is."""


class _Grants(Protocol):
    @property
    def generation(self) -> int: ...
    def applying(self, principal: str, scope: str) -> list[Any]: ...
    def explain(self, principal: str, scope: str, permission: str, *, key: str) -> str: ...


class Guard:
    """What somebody may do."""

    def __init__(self, access: _Grants, principal: str, core: Core) -> None:
        self._access = access
        self._core = core
        self.principal = principal
        self._token: object = None
        self._generation = -1
        self._held: dict[tuple[Scope, str], tuple[str, ...]] = {}
        """Prefixes of keys for which a permission is held, as long as no grant changes."""

    def may(self, scope: Scope, need: str, key: str | None = None, *, looked: bool = False) -> bool:
        """Whether a permission is held for a key, or (None) for all of a scope.

        `looked`: in this very call it was asked before, by `reach`, with the newest grants.
        """
        held = self._held.get((scope, need)) if looked else None
        if held is None:
            held = self._of(scope, need)
        return "" in held or (key is not None and key.startswith(held))

    def _of(self, scope: Scope, need: str, version: object = None) -> tuple[str, ...]:
        """Prefixes of keys for which a permission is held now; `version` is the storage's."""
        lanes = self._core.lanes
        if version is None:
            version = self._core.storage.version()
        token = (lanes.count, lanes.flying, version)
        if token != self._token:  # somebody has committed something, perhaps a grant
            if self._generation != self._access.generation:
                self._generation = self._access.generation
                self._held.clear()
            self._token = token
        held = self._held.get((scope, need))
        return self._prefixes(scope, need) if held is None else held

    def _prefixes(self, scope: Scope, need: str) -> tuple[str, ...]:
        found = self._access.applying(self.principal, str(scope))
        some = [one for one in found if need in PERMISSIONS[one.permission]]
        held = tuple(one.prefix for one in some)
        if all(one.until is None for one in found):  # else it may be over with the next call
            if len(self._held) > 10_000:
                self._held.clear()
            self._held[scope, need] = held
        return held

    def check(
        self, scope: Scope, need: str, key: str | None = None, *, looked: bool = False
    ) -> None:
        """Refuse what is not granted."""
        if not self.may(scope, need, key, looked=looked):
            told = self._access.explain(self.principal, str(scope), need, key=key or "")
            raise AccessDeniedError(told, self.principal, str(scope), need)

    def read(self, scope: Scope, key: str | None = None, *, looked: bool = False) -> None:
        """Refuse a read of a key, or of all of a scope."""
        self.check(scope, READ, key, looked=looked)

    def readable(self, scope: Scope) -> tuple[str, ...]:
        """What keys begin with that may be read: "" for all of them."""
        return self._of(scope, READ)

    def reads(self, scope: Scope, key: str | None = None) -> bool:
        """Whether a key, or all of a scope, may be read; lists leave out what may not."""
        return self.may(scope, READ, key)

    def reach(self, scope: Scope, version: object = None) -> None:
        """Refuse whoever has no grant at all for a scope: not even that it is there is told."""
        if not self._of(scope, READ, version) and not self.seen(scope):
            self.check(scope, READ)

    def seen(self, scope: Scope) -> bool:
        """Whether a scope is shown in lists."""
        return bool(self._access.applying(self.principal, str(scope)))

    def store(self) -> None:
        """Refuse what concerns the whole store."""
        found = self._access.applying(self.principal, "*")
        if not any(ADMIN in PERMISSIONS[one.permission] and one.target == "*" for one in found):
            raise AccessDeniedError(
                f"{self.principal} may not do what concerns the whole store; "
                f"access.grant({self.principal!r}, '*', 'admin') is missing",
                self.principal,
                "*",
                "admin",
            )


class _AccessGate(Gate):
    """Asks before each change."""

    access = True

    def __init__(self, guard: Guard) -> None:
        self._guard = guard

    def before(self, request: GateRequest) -> None:
        """Refuse what is not granted, key by key."""
        system = request.scope in SYSTEM
        for one in request.operations:
            need = ADMIN if system or one.kind in ADMIN_ONLY else WRITE
            self._guard.check(request.scope, need, one.key or None)


def guarded(core: Core, guard: Guard) -> Core:
    """A core that shares all with another but its gates and its guard."""
    shared, gate = core.gates, _AccessGate(guard)

    class GuardedGates(Gates):
        """The gates of the store behind one that asks; others are put there by who may all."""

        def add(self, one: Gate) -> None:
            guard.store()
            shared.add(one)

        def remove(self, one: Gate) -> None:
            guard.store()
            shared.remove(one)

    gates = GuardedGates(core.meter)

    class GuardedCore(Core):
        """The core of a store, for one principal."""

        @property
        def guard(self) -> Guard:
            return guard

        @property
        def gates(self) -> Gates:  # type: ignore[override]
            # The store's own gates may have changed: this one stands in front of them all.
            gates.front = [gate, *shared.front]
            gates.behind, gates.readers = shared.behind, shared.readers
            return gates

        def ledger(self, scope: Scope, *, create: bool = False) -> Any:
            guard.reach(scope)
            return super().ledger(scope, create=create)

        def current(self, scope: Scope, name: str = "main", version: object = None) -> Any:
            version = self.storage.version() if version is None else version
            guard.reach(scope, version)  # one look at the storage serves both
            return core.current(scope, name, version)

        def scopes(self) -> Iterator[Any]:
            return (one for one in super().scopes() if guard.seen(one[0]))

        def check_store(self) -> None:
            guard.store()

        def check_lease(self, name: str) -> None:
            guard.check(LEASES, WRITE, name)

    made: Core = object.__new__(GuardedCore)
    made.__dict__ = core.__dict__  # the same: what is closed, or rotated, is so for both
    return made
