"""Calls of a storage in the middle of which a task is cancelled."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from holdfast.storage.contract import Storage
from holdfast.storage.wrappers import Counting


class Middle:
    """The call of a storage that takes long, and says that it has begun."""

    def __init__(self) -> None:
        self.names: tuple[str, ...] = ()
        self.left = 0
        self.commits = 0
        self.busy = False
        self.begun: Callable[[], object] = lambda: None
        self._told = threading.Event()
        """The task was cancelled as often as it is to be."""
        self._loop: int | None = None
        """The thread of the event loop, which cannot wait for itself."""
        self._lock = threading.Lock()

    def cancels(
        self, task: asyncio.Task[Any], names: tuple[str, ...] = ("commit",), number: int = 1
    ) -> None:
        """Cancel a task, three times, in the call of that number of those with these names."""
        loop = asyncio.get_running_loop()

        def again(times: int) -> None:
            task.cancel()
            if times > 1:
                loop.call_soon(again, times - 1)
            else:
                self._told.set()

        self._told.clear()
        self._loop = threading.get_ident()
        self.names, self.left = names, number
        self.begun = lambda: loop.call_soon_threadsafe(again, 3)

    def called(self, name: str) -> None:
        """Another call."""
        with self._lock:
            self.commits += name == "commit"
            counts = name in self.names and self.left > 0
            self.left -= counts
        if counts and not self.left:
            self.busy = True
            self.begun()
            if threading.get_ident() != self._loop:
                assert self._told.wait(60)  # however late the loop is: it is cancelled in here
            time.sleep(0.03)  # for a task that does not wait for this to be told
            self.busy = False


class Slow(Counting):
    """A storage whose calls come to a middle."""

    def __init__(self, inner: Storage, middle: Middle) -> None:
        super().__init__(inner)
        self._middle = middle

    def calling(self, name: str) -> AbstractContextManager[object]:
        found = super().calling(name)
        self._middle.called(name)
        return found
