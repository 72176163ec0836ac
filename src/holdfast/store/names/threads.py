"""Work of the async face on threads, and what becomes of it when its task is cancelled.

A thread cannot be stopped from outside. So a call that changes something is told that it is
cancelled only when its work has an end: work that has not begun never begins; work that has begun
is finished, or stops itself at a safe point, where nothing is half done. That holds however often
the task is cancelled. Only reads are left behind: nobody sees what they find.

asyncio is loaded by whoever uses it: blocking programs load this file, too, and start faster.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar, copy_context
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from holdfast.store.names.arguments import check_run

if TYPE_CHECKING:
    import asyncio
    from concurrent.futures import Executor, Future

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
        self._lock = threading.Lock()  # it is begun or unwanted, never both
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


class TooMuch(BaseException):
    """What was begun in the loop turns out to be long: it is begun anew on a thread."""


class _Here(threading.local):
    """How many bytes this thread may still read for a call; without end if no loop runs in it."""

    left = inf


HERE = _Here()


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
        HERE.left = MUCH
        try:
            return function(*args)
        except TooMuch:
            pass
        finally:
            HERE.left = inf
    return await away(function, *args)


def leave_loop(size: int = MUCH + 1) -> None:
    """Called before so many bytes are read: if this runs in a loop, and they are too many for it,
    all that was begun is begun anew on a thread."""
    HERE.left -= size
    if HERE.left < 0:
        raise TooMuch


def stay_in_loop() -> None:
    """Called before what must not be done twice, though it only reads: somebody is told of it."""
    HERE.left = inf


# Functions of users, which may be async.


def called(function: Callable[..., Any], *arguments: Any) -> Any:
    """What a function gives; that of an async one is waited for, in a loop of its own."""
    import asyncio
    import inspect
    from concurrent.futures import ThreadPoolExecutor

    answer = function(*arguments)
    if not inspect.isawaitable(answer):
        return answer
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(_awaited(answer))
    with ThreadPoolExecutor(1) as pool:  # the loop of this thread waits as for any blocking call
        return pool.submit(copy_context().run, asyncio.run, _awaited(answer)).result()


async def _awaited(answer: Any) -> Any:
    return await answer


# ---- thread pauses ------------------------------------------------------------------------------
# Long work in Python beside other threads: it rests often enough that they get their turn.
#
# A thread that only computes gives way after five milliseconds, and another one has to wait for
# that several times: a writer once behind each call into the storage, an event loop two or three
# times until a task that slept goes on.


WORK = 0.001
REST = 0.0005
SHORT = 0.0001
"""Seconds: how long it works, how long it rests, and how long where somebody waits for it."""


class Breath:
    """Called once an item: rests if it has worked for a while and there are other threads."""

    def __init__(self, rest: float = REST) -> None:
        self._rest = rest
        self._since = time.perf_counter()

    def __call__(self) -> None:
        if time.perf_counter() - self._since > WORK:
            if threading.active_count() > 1:
                time.sleep(self._rest)
            self._since = time.perf_counter()


# ---- loop calls ---------------------------------------------------------------------------------
# Functions of users that threads of the async face call, and that may be async.


_left: ContextVar[Any] = ContextVar("holdfast_left", default=None)
"""The call of a function, as a future: if that is cancelled, what the function awaits is, too."""


def begun(function: Callable[[], _T], name: str, over: Callable[[Future[_T]], Any]) -> Future[_T]:
    """Call a function in a thread of its own, which keeps no program from ending: it may hang.

    If what this gives is cancelled, what the function awaits is, too, and what it comes to counts
    no more. `over` is told when the thread ends.
    """
    from concurrent.futures import Future, InvalidStateError

    call: Future[_T] = Future()

    def run() -> None:
        _left.set(call)
        with suppress(InvalidStateError):
            try:
                call.set_result(function())
            except BaseException as error:  # told to who waits, for it ends no thread of his
                call.set_exception(error)
        over(call)

    # No pool: the end of a program would wait for its threads.
    threading.Thread(target=run, name=name, daemon=True).start()
    return call


class OnLoop:
    """Calls functions from threads; what they give is waited for on the loop that was used last."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None

    def use(self) -> None:
        """Take the loop of who asks."""
        import asyncio

        self._loop = asyncio.get_running_loop()

    def wait(self, answer: Any) -> Any:
        """What an answer comes to, in a thread."""
        import asyncio
        import inspect

        if not inspect.isawaitable(answer):
            return answer
        assert self._loop is not None
        # Its task acts under the lease and the cause of this thread, whose context it gets.
        future = asyncio.run_coroutine_threadsafe(_settled(answer), self._loop)
        if (call := _left.get()) is not None:
            call.add_done_callback(lambda call: call.cancelled() and future.cancel())
        given, error = future.result()
        if error is not None:
            raise error
        return given

    def wrap(self, function: Any, name: str) -> Any:
        """A plain function in place of one that may be async; None for None."""
        if function is None:
            return None
        check_run(function, name, awaited=True)
        return lambda *arguments: self.wait(function(*arguments))


async def _settled(answer: Any) -> tuple[Any, BaseException | None]:
    """What an answer comes to, or what would end the loop with all that runs in it."""
    try:
        return await answer, None
    except (SystemExit, KeyboardInterrupt) as error:
        if is_interrupt(error):
            raise
        return None, error
