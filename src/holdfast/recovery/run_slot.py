"""Slots, in which the steps of a recovery are done, and the leases that they are done under."""

from __future__ import annotations

import contextvars
import queue
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import TypeVar

from holdfast.errors import LeaseHeldError
from holdfast.recovery.step_threads import THREADS
from holdfast.store.lease.lease import Lease, leases_now
from holdfast.store.lease.lease_names import lease_name
from holdfast.store.lease.wait import Asking, taken
from holdfast.store.state import Store

T = TypeVar("T")
LEASE = 30.0
"""Seconds after which the recovery of a process that died can be taken up by another."""
FIRST = "0"
"""The slot that every recovery needs."""


def correlation_of(recovery: str) -> str:
    """What entries of a recovery are known by."""
    return f"recovery/{recovery}"


def recovering_lease(agent: object, *slot: str) -> str:
    """The lease under which an agent is recovered, one recovery at a time, or of a slot of it."""
    return lease_name("recovery", str(agent), *slot)


@contextmanager
def recovering(store: Store, agent: object, wait: float) -> Iterator[None]:
    """A block under the lease of an agent's recovery; that of its first slot is taken along."""
    name, first = recovering_lease(agent), recovering_lease(agent, FIRST)
    lease = taken(Asking(store._core, name, LEASE, wait, None, first))
    try:
        with lease.fencing():
            yield
    finally:
        lease.release()


def _had_along(store: Store, name: str) -> Lease | None:
    """The lease of a slot, if it was taken along, and nobody was given up in it."""
    others = (one.along for one in leases_now() if one.core is store._core)
    return next((one for one in others if one and one.name == name and not one.over), None)


class Slot:
    """A thread and a lease, under which one step after the other is done.

    All slots of an agent are of whoever holds the lease of the agent: one that is held is of a step
    that was given up, or of a process that died.
    """

    def __init__(self, store: Store, name: str) -> None:
        self._store = store
        self._name = name
        self._lease = _had_along(store, name) or self._taken()
        self._work: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        context = contextvars.copy_context()
        THREADS.run(lambda: context.run(self._run))

    def _taken(self) -> Lease:
        try:
            return self._asked(0)
        except LeaseHeldError:
            self._store.break_lease(self._name)
            return self._asked(LEASE)

    def _asked(self, wait: float) -> Lease:
        return taken(Asking(self._store._core, self._name, LEASE, wait, None))

    def do(self, work: Callable[[], None]) -> None:
        """Let the thread do something."""
        self._work.put(work)

    def answer(self, work: Callable[[], T]) -> Future[T]:
        """Let the thread do something, and give what it gives or raises."""
        future: Future[T] = Future()

        def answered() -> None:
            try:
                future.set_result(work())
            except BaseException as error:
                future.set_exception(error)

        self.do(answered)
        return future

    def _run(self) -> None:
        with self._lease.fencing():
            while (work := self._work.get()) is not None:
                work()

    def close(self, *, idle: bool) -> None:
        """Nothing more is to be done; what is still being done is refused if it writes."""
        self._work.put(None)
        if not (idle and _had_along(self._store, self._name) is self._lease):
            self._lease.release()

    def give_up(self) -> None:
        """What it writes from now on is refused; its thread ends once its step returns."""
        self._store.break_lease(self._name)
        self._lease.over = True
