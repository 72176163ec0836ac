"""Whose turn it is to write to a thread, and what is written together.

LangGraph hands a task's writes and the checkpoint that follows to different threads of a pool,
a moment apart. Writes of a run wait for that moment: what comes together becomes one entry and
one commit, which halves what a step costs on disk. A checkpoint never waits, nor do writes that
are put outside of a run, where nothing follows.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from holdfast.errors import Conflict
from holdfast.store.names.cause import Cause

if TYPE_CHECKING:
    from holdfast.integrations.langgraph.put import Draft


GATHER = 0.005
"""Seconds that writes wait for the checkpoint after them."""
MOST = 64
TRIES = 20


@dataclass(eq=False)
class Job:
    """Something to be written."""

    apply: Callable[[Draft], None]
    """Adds it to a draft; may be called several times."""
    cause: Cause | None = None
    puts: str | None = None
    """The namespace whose newest checkpoint it changes: an entry can hold one of each."""
    patient: bool = False
    """Whether it may wait for a checkpoint to come."""
    relaxed: bool = False
    """Whether it may be lost in a power loss until the next checkpoint."""
    done: bool = False
    error: BaseException | None = field(default=None)


class Turns:
    """One writer at a time; it writes for all that wait."""

    def __init__(self, draft: Callable[[bool], Draft]) -> None:
        self._draft = draft
        self._change = threading.Condition()
        self._waiting: deque[Job] = deque()
        self._busy = False

    def run(self, job: Job) -> None:
        """Write it, or have it written; raises what stood in its way."""
        with self._change:
            self._waiting.append(job)
            try:
                if job.patient:
                    # Not as the one who leads: the checkpoint's own thread then writes both, and
                    # no thread has to be woken before something is written.
                    self._change.wait_for(lambda: job.done, GATHER)
                while not job.done:
                    if self._busy:
                        self._change.wait()
                    else:
                        self._lead(job)
            finally:
                if job in self._waiting:  # who waited for it is gone
                    self._waiting.remove(job)
        if job.error is not None:
            raise job.error

    def _take(self) -> list[Job]:
        """Jobs that can be written together."""
        taken: list[Job] = []
        spaces: set[str] = set()
        while self._waiting and len(taken) < MOST:
            space = self._waiting[0].puts
            if space is not None:
                if space in spaces:
                    break
                spaces.add(space)
            taken.append(self._waiting.popleft())
        return taken

    def _lead(self, own: Job) -> None:
        """Write what waits. If that is broken off, by Ctrl-C perhaps, others write their own."""
        self._busy = True
        jobs: list[Job] = []
        try:
            jobs = self._take()
            self._change.release()
            try:
                self._write(jobs)
            finally:
                self._change.acquire()
        finally:
            self._busy = False
            left = [job for job in jobs if not job.done and job is not own]
            self._waiting.extendleft(reversed(left))
            self._change.notify_all()

    def _write(self, jobs: list[Job]) -> None:
        try:
            if len(jobs) > 1:
                self._together(jobs)
                for job in jobs:
                    job.done = True
                return
        except Exception:
            pass  # One of them stands in the way of the others: each for itself.
        for job in jobs:
            try:
                self._alone(job)
            except Exception as error:
                job.error = error
            job.done = True

    def _together(self, jobs: list[Job], *, fresh: bool = False) -> None:
        draft = self._draft(fresh)
        cause: Any = None
        for job in jobs:
            job.apply(draft)
            cause = job.cause if job.puts is not None or cause is None else cause
        draft.commit(cause, relaxed=all(job.relaxed for job in jobs))

    def _alone(self, job: Job) -> None:
        for attempt in range(TRIES):
            try:
                # What this process knows mostly is the newest; if not, committing tells.
                self._together([job], fresh=attempt > 0)
                return
            except Conflict as conflict:
                # Another process was faster, if it is the storage that says so.
                if attempt == TRIES - 1 or (attempt and not conflict.keys):
                    raise


# ---- turn queue ---------------------------------------------------------------------------------
# Whose turn it is on a thread (`busy="wait"`): other runs of this process wait for its end.
#
# LangGraph does not tell a saver when a run ends: siblings of a task that failed, or that waits for
# an answer, work on. But a run asks for its first checkpoint while its loop is being entered, and
# what a loop has to undo lies on its stack of exits: what is put at the bottom of that is called
# when the last task has ended, however the run ends.


_PAUSE = 0.01
_DEEP = 10
"""Callers that are looked at: savers may be wrapped."""
_ENTERS = ("__enter__", "__aenter__")
_UPDATES = ("perform_superstep", "aperform_superstep")


class Queue:
    """Lets one run at a time work on a thread, within this process.

    A run has its turn until its loop is left, or is gone. Who waits for `patience` seconds without
    a sign of it gets `Conflict`. One whose loop is not to be seen, because a saver around this one
    is called in another thread, does not queue: it is refused as without a queue.
    """

    def __init__(self, patience: float) -> None:
        self.patience = patience
        self._runs: dict[str, _Run] = {}
        self._lock = threading.Lock()  # whose turn it is, is found out and noted in one step

    def turn(self, thread: str, ns: str, *, blocking: bool) -> Iterator[float]:
        """Pauses to make until the run that asks has the thread to itself.

        An update of the state waits as well, and takes no turn. Who only looks need not wait, nor
        a subgraph, which runs within a run.
        """
        loop, updates = _asking()
        if (ns or loop is None) and not updates:
            return
        begun = time.monotonic()
        while (ahead := self._ahead(thread, loop)) is not None:
            if blocking:
                _check_may_wait(thread)
            waited = time.monotonic() - max(begun, ahead.last)
            if waited >= self.patience:
                raise Conflict(
                    f"thread {thread!r}: waited {self.patience:g} seconds for the run that is at "
                    "work on it, without a sign of it; nothing was read or stored. Let it end (a "
                    "stream that was begun: read it to its end, or close it), or open the saver "
                    "with more patience"
                )
            yield _PAUSE

    def _ahead(self, thread: str, loop: Any) -> _Run | None:
        """The run that has to end first; if there is none, it is the turn of the one that asks."""
        with self._lock:
            run = self._runs.get(thread)
            if run is not None and run.busy(self.patience):
                return run if run.loop() is not loop else None
            if loop is not None:
                run = self._runs[thread] = _Run(loop)
                loop.stack.callback(self._over, thread, run)
            return None

    def _over(self, thread: str, run: _Run) -> None:
        with self._lock:
            if self._runs.get(thread) is run:
                del self._runs[thread]

    def noticed(self, thread: str) -> None:
        """The run that has the turn put something: a sign of it."""
        run = self._runs.get(thread)
        if run is not None:
            run.last = time.monotonic()


class _Run:
    def __init__(self, loop: Any) -> None:
        self.loop = weakref.ref(loop)
        self.last = time.monotonic()

    def busy(self, patience: float) -> bool:
        """Whether it has not ended. A loop that could not be entered does not tell its end."""
        loop = self.loop()
        if loop is None:
            return False
        entered = getattr(loop, "status", "input") != "input"
        return entered or time.monotonic() - self.last < patience


def _asking() -> tuple[Any, bool]:
    """(the loop of the run that begins with this call, whether it is an update of the state)."""
    frame = inspect.currentframe()
    for _ in range(_DEEP):
        frame = frame.f_back if frame is not None else None
        if frame is None:
            break
        if not frame.f_globals.get("__name__", "").startswith("langgraph.pregel"):
            continue
        if frame.f_code.co_name in _UPDATES:
            return None, True
        if frame.f_code.co_name in _ENTERS:
            loop = frame.f_locals.get("self")
            return (loop if hasattr(loop, "stack") else None), False
    return None, False


def _check_may_wait(thread: str) -> None:
    """A blocking call in a running loop would wait for what that loop has to do."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise Conflict(
        f"thread {thread!r}: another run is at work on it, and a blocking call in a running event "
        "loop cannot wait for that; use ainvoke or aupdate_state"
    )
