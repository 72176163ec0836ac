"""A lock for tasks that may be taken again by whoever has it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

_held: ContextVar[tuple[_Level, ...]] = ContextVar("holdfast_levels", default=())
"""The levels that this is in, of all locks, the innermost last."""


@dataclass(eq=False, slots=True)
class _Level:
    """Inside a lock: who is in there takes turns, too."""

    of: NestingLock
    open: bool = True
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class NestingLock:
    """One at a time; what that one calls may go in again, also in tasks that it begins."""

    def __init__(self) -> None:
        self._all = _Level(self)

    @asynccontextmanager
    async def held(self) -> AsyncIterator[None]:
        """Be the one, in the block."""
        outer = await self._entered()
        inner = _Level(self)
        token = _held.set((*_held.get(), inner))
        try:
            yield
        finally:
            _held.reset(token)
            inner.open = False
            outer.lock.release()

    async def _entered(self) -> _Level:
        """The innermost level that this is in and that lasts, taken."""
        for level in reversed((self._all, *_held.get())):
            if level.of is self and level.open:
                await level.lock.acquire()
                if level.open:
                    return level
                level.lock.release()  # it ended meanwhile
        raise AssertionError
