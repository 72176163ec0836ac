"""Work of the async face on threads, and what becomes of it when its task is cancelled.

A thread cannot be stopped from outside. So a call that changes something is told that it is
cancelled only when its work has an end: work that has not begun never begins; work that has begun
is finished, or stops itself at a safe point, where nothing is half done. That holds however often
the task is cancelled. Only reads are left behind: nobody sees what they find.

asyncio is loaded by whoever uses it: blocking programs load this file, too, and start faster.
"""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Hashable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    import asyncio
    from concurrent.futures import Executor

    from holdfast.storage.contract import Storage

_T = TypeVar("_T")

MUCH = 64 * 1024
"""Bytes of values that an event loop takes apart or puts together itself: some milliseconds."""


class Stopped(BaseException):
    """Work ends at a safe point, because its task was cancelled; no `except Exception` keeps it."""


class _Work(Generic[_T]):
    """A function on its way to a thread, or running there."""

    def __init__(self, function: Callable[[], _T], pool: Executor | None = None) -> None:
        import asyncio

        self._function = function
        self._lock = threading.Lock()
        self._begun = False
        self.unwanted = False
        run = partial(copy_context().run, self._run)
        self.done = asyncio.get_running_loop().run_in_executor(pool, run)

    def _run(self) -> _T | None:
        with self._lock:
            if self.unwanted:
                return None
            self._begun = True
        _current.set(self)
        return self._function()

    def give_up(self) -> bool:
        """Let it not begin, or stop at its next safe point; tells whether it will never begin."""
        with self._lock:
            self.unwanted = True
            return not self._begun

    def leave(self) -> None:
        """Wait for it no longer; what it comes to is nobody's."""
        self.give_up()
        self.done.add_done_callback(lambda done: done.cancelled() or done.exception())


_current: ContextVar[Any] = ContextVar("holdfast_work", default=None)
"""The work that runs in this context, if somebody may give it up: `unwanted` says that."""


def is_interrupt(error: BaseException) -> bool:
    """Whether the program is to end: whatever else a user's function raises is its own failure.

    An interrupt of the keyboard reaches the main thread alone.
    """
    main = threading.current_thread() is threading.main_thread()
    return main and isinstance(error, KeyboardInterrupt)


def safe_point() -> None:
    """Stop here if whoever asked for this work was cancelled; for between two steps of long work.

    What was done so far stands for itself, or the errors' way undoes it.
    """
    work = _current.get()
    if work is not None and work.unwanted:
        raise Stopped


@contextmanager
def undivided() -> Iterator[None]:
    """A block in which no safe point stops: what is begun in it is also finished."""
    token = _current.set(None)
    try:
        yield
    finally:
        _current.reset(token)


async def to_the_end(
    function: Callable[..., _T],
    *args: Any,
    undo: Callable[[_T], object] | None = None,
    pool: Executor | None = None,
    **named: Any,
) -> _T:
    """Run on a thread what changes something; cancelled, it has its end first (see above).

    What was finished all the same is given to `undo`, if nobody is there to have it any more: a
    lease, an open file.
    """
    return await _ended(_Work(partial(function, *args, **named), pool), undo, sure=False)


async def surely(
    function: Callable[..., _T],
    *args: Any,
    undo: Callable[[_T], object] | None = None,
    **named: Any,
) -> _T:
    """The same for what must also begin: what ends, closes, undoes or gives back something."""
    return await _ended(_Work(partial(function, *args, **named)), undo, sure=True)


async def _ended(work: _Work[_T], undo: Callable[[_T], object] | None, *, sure: bool) -> _T:
    import asyncio

    cancelled: asyncio.CancelledError | None = None
    while not work.done.done():
        try:
            await asyncio.wait([work.done])
        except asyncio.CancelledError as error:
            cancelled = cancelled or error
            if not sure and work.give_up():
                work.leave()
                raise
    if cancelled is None:
        return work.done.result()  # type: ignore[return-value]
    wrong = work.done.exception()
    if wrong is None and undo is not None:
        try:
            await surely(undo, work.done.result())
        except Exception as error:
            wrong = error
    raise cancelled from None if isinstance(wrong, Stopped) else wrong


async def read_away(
    function: Callable[..., _T], *args: Any, pool: Executor | None = None, **named: Any
) -> _T:
    """Run on a thread what only reads; cancelled, it is told so at once, and the read is left."""
    import asyncio

    work = _Work(partial(function, *args, **named), pool)
    try:
        await asyncio.wait([work.done])
    except asyncio.CancelledError:
        work.leave()
        raise
    return work.done.result()  # type: ignore[return-value]


class _TooMuch(BaseException):
    """What was begun in the loop turns out to be long: it is begun anew on a thread."""


class _Here(threading.local):
    """How many bytes this thread may still read for a call; without end if no loop runs in it."""

    left = inf


_here = _Here()


async def here_or_away(
    storage: Storage,
    function: Callable[..., _T],
    *args: Any,
    away: Callable[..., Awaitable[_T]] = read_away,
) -> _T:
    """Run what only reads: here if it is little and waits for no network, else away.

    How much it is shows on the way (see `leave_loop`), and then it is begun anew: so little
    costs nothing more, and what it does before it has read all must bear that it is done twice.
    What calls functions of users goes away with `to_the_end`: they are not left at work.
    """
    if storage.limits.embedded:
        _here.left = MUCH
        try:
            return function(*args)
        except _TooMuch:
            pass
        finally:
            _here.left = inf
    return await away(function, *args)


def leave_loop(size: int = MUCH + 1) -> None:
    """Called before so many bytes are read: if this runs in a loop, and they are too many for it,
    all that was begun is begun anew on a thread."""
    _here.left -= size
    if _here.left < 0:
        raise _TooMuch


def stay_in_loop() -> None:
    """Called before what must not be done twice, though it only reads: somebody is told of it."""
    _here.left = inf


class _Asked(Generic[_T]):
    """A read that a task waits for; it is made in the task's context."""

    def __init__(self, function: Callable[[], _T], found: asyncio.Future[_T]) -> None:
        self.found = found
        self._function = function
        self._context = copy_context()

    def read(self) -> _T | BaseException:
        if self.found.cancelled():
            return Stopped()
        try:
            return self._context.run(self._function)
        except BaseException as error:
            return error

    def tell(self, found: _T | BaseException) -> None:
        if self.found.done():
            return  # cancelled
        if isinstance(found, BaseException):
            self.found.set_exception(found)
        else:
            self.found.set_result(found)


class TogetherAway(Generic[_T]):
    """Reads on one thread, one after the other, what many tasks ask for at one moment.

    For what is little as a rule and may be much: a thread for each would cost more than the reads.
    """

    def __init__(self) -> None:
        self._asked: dict[tuple[asyncio.AbstractEventLoop, Hashable], list[_Asked[_T]]] = {}

    async def read(self, about: Hashable, function: Callable[..., _T], *args: Any) -> _T:
        """As `read_away`; reads about different things do not wait for each other."""
        import asyncio

        loop = asyncio.get_running_loop()
        key = loop, about
        if key not in self._asked:
            self._asked[key] = []
            loop.call_soon(self._start, key)  # behind all tasks that run now
        found: asyncio.Future[_T] = loop.create_future()
        self._asked[key].append(_Asked(partial(function, *args), found))
        return await found

    def _start(self, key: tuple[asyncio.AbstractEventLoop, Hashable]) -> None:
        asked = self._asked.pop(key)

        def tell(done: asyncio.Future[list[_T | BaseException] | None]) -> None:
            for one, found in zip(asked, done.result() or (), strict=True):
                one.tell(found)

        try:
            _Work(lambda: [one.read() for one in asked]).done.add_done_callback(tell)
        except RuntimeError as error:  # the loop is about to close
            for one in asked:
                one.tell(error)
