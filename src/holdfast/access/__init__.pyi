# Written by scripts/stubs.py from the blocking classes; not to be edited.

from datetime import datetime
from types import TracebackType
from typing import Any, Self

from holdfast.access.audit import Read as Read
from holdfast.store.store_async import Store

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
    ) -> list[Read]:
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
