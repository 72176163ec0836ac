"""The loop that runs an agent."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterable
from types import FrameType
from typing import Any

from holdfast.agents.drift import Drift
from holdfast.agents.loop.decide import LoopResult, LoopSettings
from holdfast.agents.loop.turns import LoopStore, Running, Turns
from holdfast.agents.mailbox import MAIN, Mailbox
from holdfast.checkpoints.shutdown import TakenSignals
from holdfast.errors import InvalidInputError
from holdfast.store.inner import Bell, handle_of
from holdfast.store.names.arguments import check_face, check_flag, check_function, listed
from holdfast.store.names.face import (
    Steps,
    ask,
    faced,
    here,
    steps,
    wait,
    writes,
)
from holdfast.store.names.face import taken as blocking_of
from holdfast.store.state import State

OPTIONS = ("fields", "drift", "signals", "settings")
"""What a loop takes besides the fields of its settings."""
NEVER = {getattr(signal, name, None) for name in ("SIGKILL", "SIGSTOP")}
"""Signals that end or stop a process without asking it."""
LOOK = 0.25
"""Seconds after which a loop that waits sees that a signal wants it to end: one that comes just
before the main thread begins to wait, or to another thread, does not end the wait."""


@faced
class Loop:
    """Runs an agent: letters, tasks, one step of work after the other, and what keeps it safe.

    `agent` has `step()`, which does a unit of work and returns a `StepResult`, the name of its
    action, or nothing; it may have `on_letter(mail)`, `check_tasks()` and what `PersistentAgent`
    names. Or it is a function that makes such an agent, from the state if it takes one: then a
    refresh begins with a new object. What the agent keeps is saved after every step, and with every
    letter in the same change. `fields` names attributes to keep of an agent that does not say so
    itself. On the async face each method of the agent may be async.

    A routine checkpoint is made every 30 minutes; after 2 hours, and when it drifts, a recovery
    checkpoint, and the agent is made anew; after an error the loop makes one, waits, and goes on
    from what was saved, until there were `max_errors` in a row, which raises the last one. SIGTERM
    ends it after the step at work. See `LoopSettings` for all intervals and limits. One process at
    a time runs an agent, by a lease. `drift` is a `Drift` of your own settings, or False for none.
    """

    def __init__(
        self,
        state: State,
        agent: Any,
        *,
        fields: Iterable[str] | None = None,
        drift: Drift | bool = True,
        signals: Iterable[int] = (signal.SIGTERM,),
        settings: LoopSettings | None = None,
        **intervals: Any,
    ) -> None:
        check_face(state, State, "Loop")
        if settings is not None and (intervals or not isinstance(settings, LoopSettings)):
            raise InvalidInputError("give settings=LoopSettings(...), or its fields by name")
        known = LoopSettings.__dataclass_fields__
        if unknown := intervals.keys() - known.keys():
            names = ", ".join((*OPTIONS, *known))
            raise InvalidInputError(f"a loop has no {min(unknown)!r}; there are {names}")
        self._settings = settings or LoopSettings(**intervals)
        if not isinstance(agent, type) and hasattr(agent, "step"):
            check_function(agent.step, "step of the agent")
        elif not callable(agent):
            raise InvalidInputError(
                "a loop runs an agent with step(), or a class or function that makes one; "
                f"{type(agent).__name__} has no step()"
            )
        watching = drift if isinstance(drift, Drift) else None
        if watching is None and check_flag(drift, "drift"):
            watching = Drift(state)
        self._store = LoopStore(handle_of(state))
        mailbox = None  # of a fork, on which a loop tries something out
        if handle_of(state).timeline == MAIN:
            mailbox = Mailbox(state, retry=self._settings.retry)
        self._running = Running(
            handle_of(state),
            state,
            agent,
            tuple(listed(fields, "fields")) if fields is not None else None,
            self._settings,
            self._store,
            mailbox,
            watching,
        )
        self._signals = Stopping(listed(signals, "signals"), self._stopped)
        self._bell = Bell()
        self._turns: Turns | None = None
        self._stop = False

    @steps
    def run(self) -> Steps[LoopResult]:
        """Run until the agent is done, somebody stops it, or it cannot go on.

        On the async face, cancelling the task ends it too, with a last checkpoint of what was
        saved.
        """
        return (yield from self._run())

    def _run(self) -> Steps[LoopResult]:
        if self._turns is not None:
            raise InvalidInputError("this loop runs already; make another for another agent")
        own = yield ask(lambda state: state, self._running.state)  # of the face that runs it
        self._turns = turns = Turns(self._running, own, self._wait)
        turns.stopped = turns.stopped or self._stop
        try:
            self._signals.take()
            result = yield from turns.run()
            if result.outcome == "stopped":  # else it is for the next run
                self._stop = False
            return result
        finally:
            self._signals.give_back()
            self._turns = None

    def _wait(self, seconds: float) -> Steps[None]:
        end = time.monotonic() + seconds
        while not self._is_stopped():
            left = end - time.monotonic()
            if left <= 0:
                return
            yield wait(self._bell, self._is_stopped, min(left, self._signals.look))

    def _is_stopped(self) -> bool:
        return self._turns is None or self._turns.stopped

    @here
    def stop(self) -> None:
        """Let the loop end after the step at work; from any thread.

        If it does not run, the next run ends as soon as it begins.
        """
        self._stop = True
        self._stopped()
        self._bell.ring()

    def _stopped(self) -> None:
        """Also of a signal, which runs between two steps of the main thread: that may hold the lock
        of the bell just then. So it does no more; the loop looks while it waits."""
        if self._turns is not None:
            self._turns.stopped = True

    @writes
    def restart(self, checkpoint: Any, *, clean: bool = False, reason: str = "asked for") -> None:
        """Let the agent go on from a checkpoint, before its next step; also of another process.

        With `clean`, without its conversation and short-term memory. If nobody runs the agent, the
        next who does begins so. It takes the place of one that was asked for before.
        """
        check_flag(clean, "clean")
        self._store.ask(checkpoint, clean, reason, restores=True, instead=True)


@steps
def run(agent: Any, state: State | None = None, **options: Any) -> Steps[LoopResult]:
    """Run an agent until it is done or stopped; see `Loop` for the options.

    Without a state, it is that of the `Agent`, or the attribute `state` of another agent.
    """
    kept = getattr(agent, "_kept", None)  # of a holdfast.agents.Agent
    own = kept.state if kept is not None else getattr(agent, "state", None)
    found = state if state is not None else own
    if found is None:
        raise InvalidInputError("say where the agent is kept: run(agent, store.agent('7'))")
    return (yield from Loop(blocking_of(found), agent, **options)._run())


class Stopping:
    """Signals that end a loop; one that comes a second time does what it did before."""

    def __init__(self, numbers: list[int], stop: Any) -> None:
        for number in numbers:
            if not isinstance(number, int) or number not in signal.valid_signals():
                raise InvalidInputError("signals are those of Python's module: [signal.SIGTERM]")
            if number in NEVER:
                raise InvalidInputError(f"no program can take the signal {number:d}")
        self._numbers = numbers
        self.look = LOOK if numbers else threading.TIMEOUT_MAX
        """Seconds for which a loop waits at most without a look whether one came."""
        self._stop = stop
        self._taken: TakenSignals | None = None
        self._came: set[int] = set()

    def take(self) -> None:
        """Be called on the signals, also on those that wait because they were blocked."""
        if not self._numbers:
            return
        self._taken = TakenSignals(self._called)
        self._taken.take(self._numbers)
        if hasattr(signal, "pthread_sigmask"):  # those that were held back until now come, too
            signal.pthread_sigmask(signal.SIG_UNBLOCK, self._numbers)

    def give_back(self) -> None:
        """Let the signals do what they did."""
        if self._taken is not None:
            self._taken.give_back()
        self._came = set()

    def _called(self, number: int, frame: FrameType | None) -> None:
        assert self._taken is not None
        before = self._taken.before(number)
        if not callable(before):
            signal.signal(number, before)  # it does it also while a step keeps Python from running
        elif number in self._came:
            before(number, frame)
        self._came.add(number)
        self._stop()
