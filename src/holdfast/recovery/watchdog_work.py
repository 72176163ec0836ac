"""What a watchdog is doing at this moment, and what is to be done when that is over."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from contextvars import copy_context
from typing import Any, TypeVar

from holdfast.store.names.scope import Scope
from holdfast.store.upkeep.background import at_work, is_at_work

_T = TypeVar("_T")


class Busy:
    """Looks, and answers to failures, one for each scope; `release` is called behind the last.

    The last one after `end`, that is: until then there may be more.
    """

    def __init__(self, release: Callable[[], Any]) -> None:
        self._release = release
        self._changed = threading.Condition()
        self._looks = 0
        self._answers: set[Scope] = set()
        self.over = False

    @contextmanager
    def work(self) -> Iterator[None]:
        """A block that is waited for."""
        with self._changed:
            self._looks += 1
        try:
            with at_work(self):
                yield
        finally:
            with self._changed:
                self._looks -= 1
            self._settle()

    def scopes(self) -> set[Scope]:
        """Those of which a failure is being answered."""
        with self._changed:
            return set(self._answers)

    def begin(
        self, pool: Executor, scope: Scope, function: Callable[[Any], _T], argument: Any
    ) -> Future[_T]:
        """Have a failure of a scope answered in a thread, under the cause and leases of here."""
        with self._changed:
            self._answers.add(scope)
        return pool.submit(copy_context().run, self._answer, scope, function, argument)

    def _answer(self, scope: Scope, function: Callable[[Any], _T], argument: Any) -> _T:
        try:
            with at_work(self):
                return function(argument)
        finally:
            with self._changed:
                self._answers.discard(scope)
            self._settle()

    def end(self) -> None:
        """Release when all of it is over; that is waited for, unless it is what calls this."""
        self.over = True
        self.wait()
        self._settle()

    def wait(self) -> None:
        """Until nothing is at work, unless that is what calls this."""
        if not is_at_work(self):
            with self._changed:
                self._changed.wait_for(lambda: not self._looks and not self._answers)

    def _settle(self) -> None:
        with self._changed:
            self._changed.notify_all()
            if self.over and not self._looks and not self._answers:
                self._release()
