"""The loop on the async face; `holdfast` itself exports it."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

from holdfast.agents.drift_async import Drift
from holdfast.agents.loop.calls import Asked, Call, Wait
from holdfast.agents.loop.check import MOST, LoopReport, check_line
from holdfast.agents.loop.decide import LoopResult, LoopSettings
from holdfast.agents.loop.loop import Stopping, check_agent, chosen, own_state
from holdfast.agents.loop.loop_run import Running
from holdfast.agents.loop.loop_store import LoopStore
from holdfast.agents.loop.turns import Turns
from holdfast.agents.mailbox_async import Mail, Mailbox
from holdfast.checkpoints.retention_rules import Rule
from holdfast.errors import InvalidInputError
from holdfast.store.names.arguments import check_flag, listed
from holdfast.store.names.threads import read_away, surely, to_the_end
from holdfast.store.state_async import State


class Loop:
    """Runs an agent: letters, tasks, one step of work after the other, and what keeps it safe.

    `agent` has `step()`, which does a unit of work and returns a `Worked`, the name of its action,
    or nothing; it may have `on_letter(mail)`, `check_tasks()` and what `PersistentAgent` names.
    Or it is a function that makes such an agent, from the state if it takes one: then a refresh
    begins with a new object. What the agent keeps is saved after every step, and with every letter
    in the same change. `fields` names attributes to keep of an agent that does not say so itself.
    Each method of the agent may be async.

    A routine checkpoint is made every 30 minutes; after 2 hours, and when it drifts, a recovery
    checkpoint, and the agent is made anew; after an error the loop makes one, waits, and goes on
    from what was saved, until there were `max_errors` in a row, which raises the last one. SIGTERM
    ends it after the step at work. See `LoopSettings` for all intervals and limits. One process at
    a time runs an agent, by a lease. `drift` is a `Drift` of your own settings, or False for none.
    `report_to` is an agent that gets a letter about each recovery checkpoint. With `retention`, old
    checkpoints go after each routine one, by these rules and the default ones ({}: only those).
    """

    def __init__(
        self,
        state: State,
        agent: Any,
        *,
        fields: Iterable[str] | None = None,
        drift: Drift | bool = True,
        report_to: State | None = None,
        retention: Mapping[str, Rule] | None = None,
        signals: Iterable[int] = (signal.SIGTERM,),
        settings: LoopSettings | None = None,
        **intervals: Any,
    ) -> None:
        if not isinstance(state, State) or not isinstance(report_to, State | None):
            raise InvalidInputError("Loop takes a state; those of holdfast.sync have its own")
        self._settings = chosen(settings, intervals)
        check_agent(agent)
        watching = drift if isinstance(drift, Drift) else None
        if watching is None and check_flag(drift, "drift"):
            watching = Drift(state)
        told = report_to._handle if report_to is not None else None
        self._store = LoopStore(state._handle, self._settings, retention, told)
        self._running = Running(
            state._handle,
            state,
            agent,
            tuple(listed(fields, "fields")) if fields is not None else None,
            self._settings,
            self._store,
            Mailbox(state, retry=self._settings.retry)._box,
            Mail,
            watching._keeping if watching is not None else None,
            awaits=True,
        )
        self._signals = Stopping(listed(signals, "signals"), self.stop)
        self._wake = asyncio.Event()
        self._turns: Turns | None = None
        self._stop = False
        self._loop: asyncio.AbstractEventLoop | None = None

    async def run(self) -> LoopResult:
        """Run until the agent is done, somebody stops it, or it cannot go on.

        Cancelling the task ends it too, with a last checkpoint of what was saved.
        """
        if self._turns is not None:
            raise InvalidInputError("this loop runs already; make another for another agent")
        self._signals.check()
        self._turns = turns = Turns(self._running)
        self._loop = asyncio.get_running_loop()
        self._wake.clear()
        turns.stopped = turns.stopped or self._stop
        try:
            self._signals.take()
            asking = turns.run()
            answer: Any = None
            error: BaseException | None = None
            while True:
                try:
                    asked = asking.throw(error) if error is not None else asking.send(answer)
                except StopIteration as end:
                    if end.value.outcome == "stopped":  # else it is for the next run
                        self._stop = False
                    return end.value  # type: ignore[no-any-return]
                answer = error = None
                try:
                    answer = await self._do(asked)
                except BaseException as wrong:
                    error = wrong
        finally:
            self._signals.give_back()
            self._turns = None

    async def _do(self, asked: Asked) -> Any:
        if isinstance(asked, Wait):
            return await self._wait(asked.seconds)
        if isinstance(asked, Call):
            answer = asked.function(*asked.arguments)
            return await answer if hasattr(answer, "__await__") else answer
        return await surely(asked.function, *asked.arguments, undo=asked.undo)

    async def _wait(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while self._turns is not None and not self._turns.stopped:
            left = end - time.monotonic()
            if left <= 0:
                return
            with suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), min(left, self._signals.look))
                return

    def stop(self) -> None:
        """Let the loop end after the step at work; from any thread.

        If it does not run, the next run ends as soon as it begins.
        """
        self._stop = True
        if self._turns is not None:
            self._turns.stopped = True
        if self._loop is not None:
            with suppress(RuntimeError):  # the event loop is over, and this one with it
                self._loop.call_soon_threadsafe(self._wake.set)

    async def restart(
        self, checkpoint: Any, *, clean: bool = False, reason: str = "asked for"
    ) -> None:
        """Let the agent go on from a checkpoint, before its next step; also of another process.

        With `clean`, only what `survive` names is left of it. If nobody runs the agent, the next
        who does begins so. It takes the place of one that was asked for before.
        """
        check_flag(clean, "clean")
        await to_the_end(self._store.ask_restart, checkpoint, clean, reason)

    async def withdraw_restart(self) -> bool:
        """Take back a restart that is asked for, by whomever; tells whether there was one.

        The agent goes on from what is saved. One that has begun is carried out all the same.
        """
        return await to_the_end(self._store.withdraw_restart)


async def run(agent: Any, state: State | None = None, **options: Any) -> LoopResult:
    """Run an agent until it is done or stopped; see `Loop` for the options.

    Without a state, it is that of the `Agent`, or the attribute `state` of another agent.
    """
    return await Loop(own_state(agent, state), agent, **options).run()


async def check_loop(
    state: State, *, interval: float = 1800.0, tolerance: float = 300.0, limit: int = MOST
) -> LoopReport:
    """Look at the newest checkpoints of an agent: are they whole, and were they made in time?

    Nothing is changed. `report.findings` is empty when all is well.
    """
    if not isinstance(state, State):
        raise InvalidInputError("check_loop takes a state; those of holdfast.sync have their own")
    return await read_away(check_line, state._handle, interval, tolerance, limit)
