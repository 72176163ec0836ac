"""Whose turn it is to write to a thread, and what is written together.

LangGraph hands a task's writes and the checkpoint that follows to different threads of a pool,
a moment apart. Writes of a run wait for that moment: what comes together becomes one entry and
one commit, which halves what a step costs on disk. A checkpoint never waits, nor do writes that
are put outside of a run, where nothing follows.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from holdfast.errors import Conflict
from holdfast.storage.rows import again
from holdfast.store.names.cause import Cause

if TYPE_CHECKING:
    from holdfast.integrations.langgraph.put import Draft


GATHER = 0.005
"""Seconds that writes wait for the checkpoint after them."""
MOST, TRIES = 64, 20
"""Writes in one change, and how often it is tried against others that write the thread, too."""


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
        self._change = threading.Condition()  # let go of while the one that leads writes
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
        try:
            # What this process knows mostly is the newest; if not, committing tells.
            self._together([job])
        except Conflict:  # another process was faster, if it is the storage that says so
            anew = partial(self._together, [job], fresh=True)
            again(anew, when=lambda conflict: bool(conflict.keys), times=TRIES)
