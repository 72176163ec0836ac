"""Work in the background of an open store: a thread that does something again, and what is started
and stopped with a block."""

from __future__ import annotations

import logging
import os
import threading
import weakref
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import islice
from math import inf
from typing import Any, Generic, Protocol, Self, TypeVar

from holdfast.errors import StoreClosedError, StoreForkedError
from holdfast.store.names.face import calls, here

log = logging.getLogger("holdfast.background")

_T = TypeVar("_T")
_working: ContextVar[tuple[object, ...]] = ContextVar("holdfast_background", default=())


@contextmanager
def at_work(whose: object) -> Iterator[None]:
    """A block that is work of somebody, also what it calls in other threads and tasks."""
    token = _working.set((*_working.get(), whose))
    try:
        yield
    finally:
        _working.reset(token)


def is_at_work(whose: object) -> bool:
    """Whether this is called by the work of somebody, which cannot wait for its own end."""
    return any(one is whose for one in _working.get())


class Closable(ABC):
    """What is closed at the end of a block."""

    @abstractmethod
    def close(self) -> None:
        """End it."""

    @here
    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Startable(ABC):
    """What works from `start` to `stop`, or as long as a block lasts."""

    @abstractmethod
    def start(self) -> None:
        """Begin."""

    @abstractmethod
    def stop(self) -> None:
        """End."""

    @calls()
    @here
    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


class Home(Protocol):
    """The open store that something works for."""

    closing: list[Callable[[], Any]]
    """Called before it is closed."""

    def check_open(self) -> None: ...


class Background(Startable):
    """Does something again and again in a thread, until it is stopped or the store is closed.

    Between two turns lie `interval` seconds, or as many as the turn says by giving a float; `wake`
    ends the pause. `last` is called behind the last turn, by whoever stops it.
    """

    def __init__(
        self,
        home: Home,
        name: str,
        interval: float,
        turn: Callable[[], Any],
        last: Callable[[], Any] | None = None,
    ) -> None:
        self._home = home
        self._name = name
        self._interval = interval
        self._turn = turn
        self._last = last
        self._end = threading.Event()
        self._stirred = threading.Event()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()  # of two that start or stop it, one does
        self.error = ""
        """How the last turn failed; empty if it did not."""
        self.turns = 0
        """How many turns did not fail."""

    @property
    def alive(self) -> bool:
        """Whether its thread is there, between `start` and `stop`."""
        return self._thread is not None and self._thread.is_alive()

    def start(self) -> None:
        """Begin; a second call does nothing."""
        self._home.check_open()
        with self._lock:  # whoever stops it meanwhile finds a thread that can be waited for
            if self._thread is None:
                # Its own: a turn that stops it, and starts it anew, still sees that it is stopped.
                self._end, self._stirred = threading.Event(), threading.Event()
                self._home.closing.append(self.stop)
                args = (self._end, self._stirred)
                self._thread = threading.Thread(
                    target=self._work, args=args, name=self._name, daemon=True
                )
                self._thread.start()

    def wake(self) -> None:
        """Let the next turn begin now, or behind the one at work."""
        self._stirred.set()

    def rest(self, seconds: float) -> bool:
        """Pause within a turn, until that is over, it is woken or it is to end; if not to end."""
        self._stirred.wait(seconds)
        self._stirred.clear()
        return not self._end.is_set()

    def stop(self, timeout: float | None = None) -> None:
        """End after the turn at work; what that calls does not wait for it.

        What has no end within `timeout` seconds is left at its work.
        """
        with self._lock:
            self._end.set()
            self._stirred.set()
            thread, self._thread = self._thread, None
        if self.stop in self._home.closing:
            self._home.closing.remove(self.stop)
        if is_at_work(self):
            return  # a thread that waits for itself waits for ever

        def finish() -> None:
            if thread is not None:
                thread.join()
            if self._last is not None:
                self._last()

        if timeout is None:
            finish()
        else:
            later = threading.Thread(target=finish, name=self._name, daemon=True)
            later.start()
            later.join(timeout)

    def _work(self, end: threading.Event, stirred: threading.Event) -> None:
        while not end.is_set():
            pause = None
            try:
                with at_work(self):
                    pause = self._turn()
                self.error, self.turns = "", self.turns + 1
            except StoreClosedError:
                return
            except BaseException as error:
                # Whatever it is, also what would end a program: the next turn may do better, for
                # the storage may serve again.
                self.error = f"{type(error).__name__}: {error}"
                log.exception("%s could not do its work just now", self._name)
            if not end.is_set():  # what wakes it may have been heard within the turn
                stirred.wait(pause if type(pause) is float else self._interval)
                stirred.clear()


class Behind(Background, Generic[_T]):
    """Things that wait in memory and are done behind who brings them: in order, by the batch.

    `done(batch)` does them, and takes off the end of the batch what is for the next one. If it
    raises, they stay, and the same batch is tried again. At most `most` things wait. `turn` is what
    the thread does instead of `flush` alone, which is then part of it.
    """

    def __init__(
        self,
        home: Home,
        name: str,
        interval: float,
        done: Callable[[list[_T]], object],
        *,
        batch: int,
        most: float = inf,
        turn: Callable[[], Any] | None = None,
    ) -> None:
        super().__init__(home, name, interval, turn or self.flush, turn or self.flush)
        self.dropped = 0
        """Things for which there was no room."""
        self._done = done
        self._size, self._most = batch, most
        self._queue: deque[_T] = deque()
        self._batch: list[_T] = []
        """What is under way, or failed."""
        # The thread flushes, and so does whoever asks for it: one at a time, so that batches keep
        # their order.
        self._flushing = threading.Lock()
        # Of the queue, which others extend while a batch is taken off it; never held while one is
        # done.
        self._room = threading.Lock()

    def __len__(self) -> int:
        return len(self._queue)

    @property
    def full(self) -> bool:
        """Whether there is no room for another thing."""
        return len(self._queue) >= self._most

    def put(self, thing: _T) -> bool:
        """Have something done; False if there is no room, and it is dropped."""
        with self._room:
            if self.full:
                self.dropped += 1
                return False
            self._queue.append(thing)
            waiting = len(self._queue)
        if waiting % self._size == 0:
            self.wake()
        return True

    def flush(self) -> None:
        """Do all that waits now. What comes meanwhile is not waited for."""
        with self._flushing:
            left = len(self._queue)
            while left > 0:
                with self._room:
                    self._batch = self._batch or list(islice(self._queue, self._size))
                self._done(self._batch)
                with self._room:
                    for _ in self._batch:
                        self._queue.popleft()
                left -= len(self._batch)
                self._batch = []


# ---- stores carried through a fork --------------------------------------------------------------
# Stores carried through `os.fork()`: in the child they are over.
#
# It has none of the threads that serve a call, and whoever held a lock is not there to open it:
# what were allowed to go on would wait for ever.


_FORKED = "this store was opened before os.fork(); open it again in the child"


class Opened(Protocol):
    """A store that is open, or says why it is not."""

    closed: str


_open: weakref.WeakSet[Opened] = weakref.WeakSet()


def joined(core: Opened) -> None:
    """Note an open store, for a child that inherits it."""
    _open.add(core)


def over(why: str) -> StoreClosedError:
    """The error for a call to a store that is closed, or carried through a fork."""
    return StoreForkedError(why) if why is _FORKED else StoreClosedError(why)


def _in_child() -> None:
    for core in list(_open):
        core.closed = core.closed or _FORKED
    _open.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
