"""Runs of loops that a registry knows, and who may wait for the end of which; for both faces."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Generic, TypeVar

from holdfast.store.lease.lease import Lease

_Loop = TypeVar("_Loop")
ALIVE = ("running", "paused")
"""The states of an agent that has not ended, by itself or by an error."""

_within: ContextVar[tuple[Run[Any], ...]] = ContextVar("holdfast_loops", default=())
"""The runs that this is a part of: steps of their agents, and tasks that those begin."""


def still_runs(kept: Any, lease: Lease) -> bool:
    """Whether an agent that was spawned here still runs."""
    return lease.held and kept.status in ALIVE


class Run(Generic[_Loop]):
    """One run of a loop; `event` is of threads, or of asyncio."""

    def __init__(self, loop: _Loop, event: Callable[[], Any]) -> None:
        self.loop = loop
        self.over = event()
        self.passed = event()
        """Set when it is over, and while its own agent closes agents and waits for others."""
        self._closing = 0

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """The run itself: what is called in it belongs to it."""
        token = _within.set((*_within.get(), self))
        try:
            yield
        finally:
            _within.reset(token)
            self.over.set()
            self.passed.set()

    def _closes(self, more: int) -> None:
        self._closing += more
        if self._closing:
            self.passed.set()
        elif not self.over.is_set():
            self.passed.clear()


@contextmanager
def closing(runs: list[Run[Any]]) -> Iterator[list[Any]]:
    """The events to wait for until the runs have ended.

    An agent may end all, itself included: it does not wait for itself, nor for another that is
    about to do the same and waits for it.
    """
    mine = _within.get()
    for one in mine:
        one._closes(+1)
    try:
        yield [one.passed if mine else one.over for one in runs if one not in mine]
    finally:
        for one in mine:
            one._closes(-1)
