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
    outer: _Level | None = None
    """The level whose turn this one is."""
    open: bool = True
    """Whether the block is at work that made it."""
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    def end(self) -> None:
        """The block is over. Its turn is, too, once nobody is in here: a task that it has begun
        may be, and the last one out ends the turn of all that were over before."""
        self.open = False
        level = self
        while level.outer is not None and not level.open and not level.lock.locked():
            level = level.outer
            level.lock.release()


class NestingLock:
    """One at a time; what that one calls may go in again, also in tasks that it begins.

    While such a task is in, nobody else gets in, also if that one is out by then.
    """

    def __init__(self) -> None:
        self._all = _Level(self)

    @asynccontextmanager
    async def held(self) -> AsyncIterator[None]:
        """Be the one, in the block."""
        inner = _Level(self, await self._entered())
        token = _held.set((*_held.get(), inner))
        try:
            yield
        finally:
            inner.end()
            _held.reset(token)

    async def _entered(self) -> _Level:
        """The innermost level that this is in and that lasts, taken."""
        for level in reversed((self._all, *_held.get())):
            if level.of is self and level.open:
                await level.lock.acquire()
                if level.open:
                    return level
                level.lock.release()  # it ended meanwhile
        raise AssertionError
