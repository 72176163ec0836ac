"""One thread that does what does not belong into a gate, at its time, one thing after the other."""

from __future__ import annotations

import heapq
import threading
from collections.abc import Callable

from holdfast.errors import StoreClosedError
from holdfast.store.inner import Core
from holdfast.store.names.scope import Scope

IDLE = 5.0
"""Seconds without work after which the thread ends; the next work begins another."""
LONGEST = 30.0
"""Seconds between two looks whether the store is still open."""

Work = Callable[[], None]


class Worker:
    """At most one piece of work waits for each agent, and one alarm is set: memory is bounded."""

    def __init__(self, core: Core, failed: Callable[[Scope, BaseException], None]) -> None:
        self._core = core
        self._failed = failed
        """Told what a piece of work failed with: the others are done all the same."""
        self._wake = threading.Condition()
        self._waiting: dict[Scope, Work] = {}
        self._alarms: dict[Scope, tuple[float, Work]] = {}
        self._heap: list[tuple[float, int, Scope]] = []
        self._count = 0
        self._busy = False
        self.stopped = False
        """What is at work is finished, and nothing else begun."""
        self._thread: threading.Thread | None = None

    def do(self, scope: Scope, work: Work) -> None:
        """Do this for an agent, as soon as possible; what waits already is enough."""
        with self._wake:
            here = threading.current_thread() is self._thread  # it belongs to what is at work
            if self.stopped and not here:
                return
            if self._waiting.setdefault(scope, work) is work:
                self._start()

    def at(self, scope: Scope, ticks: float, work: Work) -> None:
        """Do this for an agent at a time of the store's monotonic clock, instead of before."""
        with self._wake:
            if self.stopped or self._alarms.get(scope, (None,))[0] == ticks:
                return
            self._alarms[scope] = (ticks, work)
            self._count += 1
            heapq.heappush(self._heap, (ticks, self._count, scope))
            if len(self._heap) > 2 * len(self._alarms) + 64:  # alarms that were set anew
                self._heap = [(t, n, s) for n, (s, (t, _)) in enumerate(self._alarms.items())]
                heapq.heapify(self._heap)
            if self._thread is None or self._heap[0][0] == ticks:
                self._start()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until nothing waits and no alarm is due; False if that took too long."""
        with self._wake:
            self._wake.notify_all()
            return self._wake.wait_for(self._quiet, timeout)

    def stop(self) -> None:
        """Finish what waits, forget the alarms, and end."""
        with self._wake:
            self.stopped = True
            self._alarms.clear()
            self._heap.clear()
            self._wake.notify_all()
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def _quiet(self) -> bool:
        due = self._next() <= self._core.clock.ticks() and not self._core.closed
        return not self._waiting and not self._busy and not (due and self._heap)

    def _start(self) -> None:
        self._wake.notify_all()
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="holdfast-policies", daemon=True)
            self._thread.start()

    def _next(self) -> float:
        """When the next alarm is; those that were set anew are passed over."""
        heap = self._heap
        while heap and self._alarms.get(heap[0][2], (None,))[0] != heap[0][0]:
            heapq.heappop(heap)
        return heap[0][0] if heap else float("inf")

    def _take(self) -> tuple[Scope, Work] | None:
        """What to do now; waits for it. None: the thread ends."""
        while not self._core.closed:
            if self._next() <= self._core.clock.ticks():
                scope = heapq.heappop(self._heap)[2]
                self._waiting.setdefault(scope, self._alarms.pop(scope)[1])
            if self._waiting:
                scope = next(iter(self._waiting))
                return scope, self._waiting.pop(scope)
            if self.stopped:
                return None
            left = self._next() - self._core.clock.ticks()
            idle = left == float("inf")
            woken = self._wake.wait(IDLE if idle else min(left, LONGEST))
            if idle and not woken and not self._waiting and not self._alarms:
                return None  # what came as its time ran out did not begin another thread
        self._waiting.clear()
        return None

    def _run(self) -> None:
        while True:
            with self._wake:
                self._busy = False
                self._wake.notify_all()
                taken = self._take()
                if taken is None:
                    self._thread = None
                    self._wake.notify_all()
                    return
                self._busy = True
            scope, work = taken
            try:
                work()
            except StoreClosedError:
                continue
            except BaseException as error:  # also of a metric's function that would end the program
                self._failed(scope, error)
