"""The audit on the async face: what commits or reads runs on a thread."""

from __future__ import annotations

from datetime import datetime
from types import TracebackType
from typing import Any

from holdfast.access import audit as blocking
from holdfast.access.audit import Read
from holdfast.store.names.threads import read_away, surely, to_the_end


class Audit:
    """Notes each read of a sensitive value through this open store, from `start` to `stop`.

    Reads are all that a gate's `reading` is told of: see docs/state-classes.md. Each process that
    reads has its own; the notes of all come together. `every` is the longest time in seconds that
    a note waits in memory; `wait=True` commits each before the value is given, in the event loop
    that reads.
    """

    def __init__(self, store: Any, *, wait: bool = False, every: float = 1.0) -> None:
        self._blocking = blocking.Audit(store, wait=wait, every=every)

    async def __aenter__(self) -> Audit:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.stop()

    async def start(self) -> None:
        """Begin to note reads, until `stop` or the end of the store."""
        self._blocking.start()

    async def stop(self) -> None:
        """Note no more reads, and commit what waits; raises what keeps it from being committed."""
        await surely(self._blocking.stop)

    async def flush(self) -> None:
        """Commit all notes that wait; what fails stays, to be tried again."""
        await to_the_end(self._blocking.flush)

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
        return await read_away(
            lambda: self._blocking.reads(scope, actor=actor, since=since, until=until, limit=limit)
        )

    async def trim(self, before: datetime) -> int:
        """Remove notes of before a time, as they were committed; how many commits of them went.

        The past of `custom:$audit` keeps them until that is pruned.
        """
        return await to_the_end(self._blocking.trim, before)
