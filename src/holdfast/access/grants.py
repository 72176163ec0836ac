"""Who may read and write what: grants, kept where all else is kept, and asked at every call.

access = Access(store)
access.grant("agent_123", "agent:agent_123", "read_write")
mine = access.as_("agent_123")          # a store of the same kind; every call is checked

Grants are records of the scope `custom:$access`: journalled, signed with its checkpoints, put back
with it. Whoever holds the store itself may do everything: what protects is that others are given
`as_(…)`, or reach the store through a service.

A guarded core shares everything with the core of the store but its gates, which ask before each
change, and its guard, which every way to a scope leads by: the directory, the reader of keys, the
past, and the feed. So there is nothing that a new method of the store could forget.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any

from msgspec import Struct

from holdfast.errors import AccessDeniedError, InvalidInputError
from holdfast.store.inner import (
    TABLE,
    Book,
    BookPage,
    Core,
    Gate,
    GateRequest,
    Gates,
    Owned,
    StoreHandle,
    core_of,
)
from holdfast.store.names.arguments import check_face, check_flag, check_moment, check_text
from holdfast.store.names.face import faced, here, writes
from holdfast.store.names.patterns import Patterns
from holdfast.store.names.scope import KINDS, Scope
from holdfast.store.store import Store

GRANTS = Owned("$access/grants/")
PARENTS = Owned("$access/parents/")
"""A record each: the scope that a session is below of."""
PROTECTION = Owned("$access/protection/")
"""What is not shown to people."""
READS = Owned("$reads/")
"""Notes of reads of sensitive values, in the scope of the audit."""
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
MOST_DEPTH = 16
"""How far up a scope's parents are looked for."""


class ParentRecord(Struct):
    """What a scope is below of."""

    parent: str


class Grant(Struct, frozen=True):
    """A permission that somebody has."""

    principal: str
    target: str
    """A scope (`agent:7`), a kind (`agent:*`), or a pattern of scopes; `*` is all of them.

    Scopes in which parts of Holdfast keep what is theirs (`custom:$access`) fit their name or `*`.
    """
    permission: str
    """read, write, read_write or admin"""
    prefix: str = ""
    """Of keys that begin so; empty: of all."""
    below: bool = False
    """Whether it holds for the scopes below the target, too."""
    until: datetime | None = None

    def __str__(self) -> str:
        more = f" keys {self.prefix}*" if self.prefix else ""
        more += " and below" if self.below else ""
        more += f" until {self.until.isoformat()}" if self.until is not None else ""
        return f"{self.principal} may {self.permission} {self.target}{more}"


@faced
class Access:
    """The grants of a store. Whoever has this may change them.

    A grant, or its end, holds for every process with its next call.
    """

    def __init__(self, store: Store) -> None:
        check_face(store, Store, "Access")
        self._store = store
        state = store.custom(SYSTEM[0].id)
        self._grants = Book(state, GRANTS, Grant)
        self._parents = Book(state, PARENTS, ParentRecord)
        self._core = core_of(store)
        self._seen: Any = 0
        self._known: dict[str, list[Grant]] = {}
        self._held: dict[tuple[str, Scope | str, str], tuple[str, ...]] = {}
        """What guards have found, as long as no grant changes."""
        self._above: dict[str, str] = {}

    # grants

    @writes
    def grant(
        self,
        principal: str,
        target: str | Scope,
        permission: str,
        *,
        prefix: str = "",
        below: bool = False,
        until: datetime | None = None,
    ) -> Grant:
        """Let somebody read, write, read_write or admin a scope, or those that fit a pattern.

        With `prefix` only keys that begin so; with `below` also the scopes below it; with `until`
        up to a time. Another grant for the same principal, target and prefix replaces it.
        """
        check_text(principal, "the principal", 200, least=1)
        if permission not in PERMISSIONS:
            raise InvalidInputError(f"a permission is {', '.join(PERMISSIONS)}")
        check_text(prefix, "prefix", 200)
        check_flag(below, "below")
        if until is not None:
            check_moment(until, "until")
            if until.timestamp() <= self._now():
                raise InvalidInputError("until is a time to come; this grant would never hold")
        made = Grant(principal, check_target(target), permission, prefix, below, until)
        id = _id(made.principal, made.target, made.prefix)
        self._grants.step(lambda page: page.put(id, made), reason=f"grant: {made}")
        return made

    @writes
    def revoke(self, principal: str, target: str | Scope, *, prefix: str = "") -> bool:
        """End a grant; whether there was one."""
        id = _id(principal, check_target(target), prefix)

        def note(page: BookPage[Grant]) -> bool:
            there = page.exists(id)
            page.delete(id)
            return there

        return self._grants.step(note, reason=f"revoke: {principal} {target}")

    @writes
    def parent(self, scope: str | Scope, above: str | Scope) -> None:
        """Say what a session is below of: grants of `above` that hold below hold for it, too.

        Of a step it is its workflow, of `custom:a/b` it is `custom:a`, and cannot be said.
        """
        child, name = Scope.parse(scope), str(Scope.parse(above))
        if child.kind != "session":
            raise InvalidInputError(f"what {child} is below of follows from its name")
        self._refresh()
        if str(child) in (name, *self._chain(name)):
            raise InvalidInputError(f"{child} cannot be below of itself")
        key = child.id.encode().hex()
        self._parents.step(lambda page: page.put(key, ParentRecord(name)), reason="parent")

    # questions

    def check(
        self, principal: str, scope: str | Scope, permission: str = READ, *, key: str = ""
    ) -> bool:
        """Whether somebody may do something with a scope, or with one key of it; or with all scopes
        that fit a pattern."""
        if permission not in PERMISSIONS:
            raise InvalidInputError(f"a permission is {', '.join(PERMISSIONS)}")
        found = self.applying(principal, check_target(scope))
        some = [PERMISSIONS[one.permission] for one in found if key.startswith(one.prefix)]
        return PERMISSIONS[permission] <= frozenset[str]().union(*some)

    def explain(
        self, principal: str, scope: str | Scope, permission: str = READ, *, key: str = ""
    ) -> str:
        """Why somebody may do something, or which grant is missing."""
        name = check_target(scope)
        found = [str(one) for one in self.applying(principal, name)]
        what = f"{permission} {name}" + (f" {key}" if key else "")
        if self.check(principal, scope, permission, key=key):
            return f"{principal} may {what}: {'; '.join(found)}"
        have = f"; there is: {'; '.join(found)}" if found else ""
        return (
            f"{principal} may not {what}; access.grant({principal!r}, {name!r}, {permission!r}) is "
            f"missing{have}"
        )

    @here
    def as_(self, principal: str) -> Store:
        """The same store as somebody may use it: every call is checked, and lists leave out what
        may not be read. Store-wide work (keys, verifying, erasing) needs `admin` of `*`."""
        check_text(principal, "the principal", 200, least=1)
        core = core_of(self._store)
        core.check_store()  # who was given a part of the store gives nobody another
        return Store(StoreHandle(guarded(core, Guard(self, principal))))

    def show(self, scope: str | Scope) -> dict[str, Any]:
        """Who may do what with a scope, and what that is below of."""
        name = str(Scope.parse(scope))
        holders = [str(one) for who in self._refresh() for one in self.applying(who, name)]
        return {"scope": name, "below": self._chain(name), "grants": holders}

    def applying(self, principal: str, scope: str) -> list[Grant]:
        """The grants that hold for somebody and a scope, as of now."""
        known = self._refresh().get(principal, ())
        for one in TABLE.index.beside:  # what is kept beside a scope goes with it
            scope = scope.removeprefix(f"custom:{one.prefix}")
        chain = self._chain(scope)
        return [
            one
            for one in known
            if (one.until is None or one.until.timestamp() > self._now())
            and any(fits(one.target, above) for above in (scope, *(chain if one.below else ())))
        ]

    def _refresh(self, version: object = None) -> dict[str, list[Grant]]:
        """The grants by principals: another mapping once any has changed, in whatever process.

        `version` is the storage's now, if that was asked.
        """
        line = self._core.current(SYSTEM[0], "main", version)
        seen = (line.ledger.number, line.sequence) if line is not None else None
        if seen != self._seen:
            known: dict[str, list[Grant]] = {}
            for made in self._grants.all().values():
                known.setdefault(made.principal, []).append(made)
            self._above = {
                f"session:{bytes.fromhex(key).decode()}": one.parent
                for key, one in self._parents.all().items()
            }
            self._known, self._held = known, {}
            self._seen = seen  # at last: until then nobody takes the others for the newest
        return self._known

    def list(self, principal: str | None = None) -> Iterable[Grant]:
        """All grants, or those of one principal; also those that are over."""
        known = self._refresh()
        wanted = sorted(known) if principal is None else [principal]
        return [one for who in wanted for one in known.get(who, ())]

    def _chain(self, scope: str) -> Any:
        """The scopes that one is below of, the nearest first."""
        found = [scope]
        while len(found) <= MOST_DEPTH and (above := self._parent_of(found[-1])):
            found.append(above)
        return found[1:]

    def _parent_of(self, scope: str) -> str | None:
        """What a scope is below of; None if that is nothing."""
        kind, _, id = scope.partition(":")
        above, slash, _ = id.rpartition("/")
        if kind == "step":
            return f"workflow:{Scope.parse(scope).workflow}"
        return f"{kind}:{above}" if kind == "custom" and slash else self._above.get(scope)

    def _now(self) -> float:
        return self._core.clock.checked() / 1e6


def fits(target: str, scope: str) -> bool:
    """Whether a scope is one that a grant is for."""
    if target == scope or target == "*":
        return True
    return "*" in target and not scope.startswith("custom:$") and Patterns(target).fit(scope)


def check_target(target: Any) -> str:
    """The text of a scope, or of a pattern of scopes, if it is one."""
    if isinstance(target, Scope) and "*" in target.id:  # it would fit others, too
        raise InvalidInputError(f"{target} as a target is a pattern; give it as text to mean that")
    if not isinstance(target, str) or "*" not in target:
        return str(Scope.parse(target))
    Patterns(target)
    if target != "*" and target.partition(":")[0] not in KINDS:
        raise InvalidInputError(
            f"a pattern of scopes begins with a kind ({', '.join(KINDS)}), as agent:*, or is *"
        )
    return target


def _id(principal: str, target: str, prefix: str) -> str:
    """What tells a grant from others; names may hold what keys may not."""
    text = "\0".join((principal, target, prefix))
    return hashlib.sha256(text.encode()).hexdigest()[:32]


# ---- guard --------------------------------------------------------------------------------------


class Guard(Gate):
    """What somebody may do; asked at every way to a scope, and as a gate before each change."""

    access = True

    def __init__(self, access: Access, principal: str) -> None:
        self._access = access
        self.principal = principal
        self._token: object = None

    def held(
        self, scope: Scope | str, need: str = READ, version: object = None, *, looked: bool = False
    ) -> tuple[str, ...]:
        """What keys begin with for which a permission is held: "" for all of a scope.

        `version` is the storage's now, if it was asked. `looked`: in this very call it was asked
        before, by `reach`, with the newest grants.
        """
        if not looked:
            token = self._access._core.lanes.token(version)
            if token != self._token:  # somebody has committed something, perhaps a grant
                self._access._refresh(version)
                self._token = token
        memory = self._access._held  # another thread may put another one there, for newer grants
        held = memory.get((self.principal, scope, need))
        if held is None:
            found = self._access.applying(self.principal, str(scope))
            held = tuple(one.prefix for one in found if need in PERMISSIONS[one.permission])
            if all(one.until is None for one in found):  # else it may be over with the next call
                if len(memory) > 10_000:
                    memory.clear()
                memory[self.principal, scope, need] = held
        return held

    def check(
        self, scope: Scope | str, key: str | None = None, need: str = READ, *, looked: bool = False
    ) -> None:
        """Refuse what is not granted for a key, or (None) for all of a scope."""
        held = self.held(scope, need, looked=looked)
        if "" not in held and not (key is not None and key.startswith(held)):
            told = self._access.explain(self.principal, str(scope), need, key=key or "")
            raise AccessDeniedError(told, self.principal, str(scope), need)

    def reach(self, scope: Scope, version: object = None) -> None:
        """Refuse whoever has no grant at all for a scope: not even that it is there is told."""
        if not self.held(scope, READ, version) and not self.seen(scope):
            self.check(scope)

    def seen(self, scope: Scope) -> bool:
        """Whether a scope is shown in lists."""
        return bool(self._access.applying(self.principal, str(scope)))

    def store(self) -> None:
        """Refuse what concerns the whole store."""
        self.check("*", need=ADMIN)

    def before(self, request: GateRequest) -> None:
        """Refuse a change of what is not granted, key by key."""
        system = request.scope in SYSTEM
        for one in request.operations:
            need = ADMIN if system or one.kind in ADMIN_ONLY else WRITE
            self.check(request.scope, one.key or None, need)


def guarded(core: Core, guard: Guard) -> Core:
    """A core that shares all with another but its gates and its guard."""
    shared = core.gates

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
            gates.front = [guard, *shared.front]
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
            guard.check(LEASES, name, WRITE)

    made: Core = object.__new__(GuardedCore)
    made.__dict__ = core.__dict__  # the same: what is closed, or rotated, is so for both
    return made
