"""Threads for steps of recoveries, used again: starting one takes longer than most steps."""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Callable

LINGER = 1.0
"""Seconds for which a thread without work stays."""

Work = Callable[[], object]


class Threads:
    """As many as there is work at one moment; none keeps the process from ending."""

    def __init__(self) -> None:
        self._idle: list[queue.SimpleQueue[Work]] = []
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._idle.clear)  # there, they do not exist

    def run(self, work: Work) -> None:
        """Have it done by a thread."""
        try:
            orders = self._idle.pop()
        except IndexError:
            orders = queue.SimpleQueue()
            args = (orders,)
            threading.Thread(
                target=self._work, args=args, name="holdfast-recovery", daemon=True
            ).start()
        orders.put(work)

    def _work(self, orders: queue.SimpleQueue[Work]) -> None:
        while True:
            try:
                work = orders.get(timeout=LINGER)
            except queue.Empty:
                try:
                    self._idle.remove(orders)
                except ValueError:
                    continue  # it was just chosen: there is work on its way
                return
            work()
            del work  # nothing of it is held while nothing is done
            self._idle.append(orders)


THREADS = Threads()
