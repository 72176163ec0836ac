# Written by scripts/stubs.py from the blocking classes; not to be edited.

from collections.abc import Iterable
from datetime import datetime
from types import TracebackType
from typing import Any, Self

from holdfast.access.audit import AuditedRead as AuditedRead
from holdfast.access.grants import Grant as Grant
from holdfast.access.protection import CARD as CARD
from holdfast.access.protection import SSN as SSN
from holdfast.store.names.scope import Scope
from holdfast.store.store_async import Store

class Access:
    """The grants of a store. Whoever has this may change them.

    A grant, or its end, holds for every process with its next call.
    """
    def __init__(self, store: Store) -> None: ...
    async def grant(
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
    async def revoke(self, principal: str, target: str | Scope, *, prefix: str = "") -> bool:
        """End a grant; whether there was one."""
    async def parent(self, scope: str | Scope, above: str | Scope) -> None:
        """Say what a session is below of: grants of `above` that hold below hold for it, too.

        Of a step it is its workflow, of `custom:a/b` it is `custom:a`, and cannot be said.
        """
    async def check(
        self, principal: str, scope: str | Scope, permission: str = ..., *, key: str = ""
    ) -> bool:
        """Whether somebody may do something with a scope, or with one key of it; or with all scopes
        that fit a pattern.
        """
    async def explain(
        self, principal: str, scope: str | Scope, permission: str = ..., *, key: str = ""
    ) -> str:
        """Why somebody may do something, or which grant is missing."""
    def as_(self, principal: str) -> Store:
        """The same store as somebody may use it: every call is checked, and lists leave out what
        may not be read. Store-wide work (keys, verifying, erasing) needs `admin` of `*`.
        """
    async def show(self, scope: str | Scope) -> dict[str, Any]:
        """Who may do what with a scope, and what that is below of."""
    async def applying(self, principal: str, scope: str) -> list[Grant]:
        """The grants that hold for somebody and a scope, as of now."""
    async def list(self, principal: str | None = None) -> Iterable[Grant]:
        """All grants, or those of one principal; also those that are over."""

class Audit:
    """Notes each read of a sensitive value through this open store, from `start` to `stop`.

    Reads are all that a gate's `reading` is told of: see docs/rules.md. Each process that
    reads has its own; the notes of all come together. `every` is the longest time in seconds that
    a note waits in memory; `wait=True` commits each before the value is given, in the thread (or
    event loop) that reads.
    """
    def __init__(self, store: Store, *, wait: bool = False, every: float = 1.0) -> None: ...
    async def start(self) -> None:
        """Begin to note reads, until `stop` or the end of the store."""
    async def stop(self) -> None:
        """Note no more reads, and commit what waits; raises what keeps it from being committed."""
    async def flush(self) -> None:
        """Commit all notes that wait; what fails stays, to be tried again."""
    async def reads(
        self,
        scope: Any = None,
        *,
        actor: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        limit: int | None = 100,
    ) -> list[AuditedRead]:
        """What was read, by whom and when, newest first: of one scope, or of all."""
    async def trim(self, before: datetime) -> int:
        """Remove notes of before a time, as they were committed; how many commits of them went.

        The past of `custom:$audit` keeps them until that is pruned.
        """
    async def __aenter__(self) -> Self: ...
    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...

class Protection:
    """Protects fields inside values by their names, and what people are shown by patterns.

    It stands from when it is made until `stop`, for what is written and shown through this open
    store; each process that writes has its own. What was written before stays as it was. Keys that
    parts of Holdfast own (`$…`), and bytes, are left alone. Gates that were added before see
    fields open, later ones see them sealed.
    """
    def __init__(
        self,
        store: Store,
        *,
        redact: Iterable[str] = (),
        encrypt: Iterable[str] = (),
        hash: Iterable[str] = (),
    ) -> None: ...
    resealed: Any
    async def stop(self) -> None:
        """Protect and redact no more through this open store; what is sealed stays so."""
    async def keep(self) -> None:
        """Let the command line, too, redact by these patterns and names; the last call counts."""
    def redacted(self, value: Any) -> Any:
        """A value as people may see it: what fits a pattern, and what is encrypted, is hidden."""
    async def protect_value(self, value: Any, scope: str | Scope = "global") -> Any:
        """A value as it would be stored in a scope: fields sealed and hashed, nothing redacted.

        Sealed parts are opened by the store they were sealed in, and by no other.
        """
    async def hashed(self, value: Any, scope: str | Scope) -> str:
        """What a field that is hashed holds for a value in a scope, to look for it or compare."""
