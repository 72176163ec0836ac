"""Drift on the async face; `holdfast` itself exports it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from holdfast.agents.again import again_async
from holdfast.agents.drift import CycleBlock
from holdfast.agents.drift_cycles import DriftStatus, Keeping, NotedAlarm
from holdfast.agents.drift_signs import Alarm, Signal, Signs, noted
from holdfast.errors import HoldfastError, InvalidInputError
from holdfast.store.names.arguments import check_limit, listed
from holdfast.store.state_async import State


class Drift:
    """Notes an agent's cycles of work and says when they have changed for the worse.

    Six kinds are looked for: `repetition` of an action, or of a loop of up to six, without
    progress; a `stall` and a `reversal` of progress; `errors`; growing `time`; and, with
    `max_cycles`, the number of `cycles` since the last refresh. `signals` are numbers of your own
    that rise or fall. `without` names kinds to leave out, `evidence` says how much must speak for
    a drift. Every alarm carries what speaks for it. Each cycle is one small entry; what is noted
    is left alone by restores, after which only later cycles are judged. One process at a time notes
    the cycles of an agent, or several do and see each other's.
    """

    def __init__(
        self,
        state: State,
        *,
        evidence: float = 12.0,
        max_cycles: int | None = None,
        signals: Iterable[Signal] = (),
        without: Iterable[str] = (),
    ) -> None:
        if not isinstance(state, State):
            raise InvalidInputError("Drift takes a state; those of holdfast.sync have its own")
        signs = Signs(
            evidence,
            max_cycles,
            tuple(listed(signals, "signals")),
            tuple(listed(without, "without")),
        )
        self._state = state
        self._keeping = Keeping(state._handle, signs)

    async def note(
        self,
        action: str = "",
        *,
        task: str = "",
        progress: float | None = None,
        seconds: float | None = None,
        failed: bool = False,
        signals: Mapping[str, float] | None = None,
    ) -> list[Alarm]:
        """Note a cycle; returns the alarms that it raises, mostly none.

        `action` says what was done: equal texts are the same action. `progress` is how far the
        task is, in any unit that grows. What is not given is not judged.
        """
        return await self._note({
            "action": action,
            "task": task,
            "progress": progress,
            "seconds": seconds,
            "failed": failed,
            "signals": signals,
        })  # fmt: skip

    async def _note(self, fields: Mapping[str, Any]) -> list[Alarm]:
        async def step() -> list[Alarm]:
            plan, alarms = await self._state._do(self._keeping.note, fields)
            await self._state._run(plan)
            return alarms

        return await again_async(step)

    @asynccontextmanager
    async def cycle(self, action: str = "", *, task: str = "") -> AsyncIterator[CycleBlock]:
        """A block that is a cycle: its time, and whether it fails, are noted by themselves."""
        clock = self._state._handle.core.clock
        block = CycleBlock(action, task)
        begun = clock.ticks()
        try:
            yield block
        except Exception as error:
            try:
                await self._note(noted(block, clock.ticks() - begun, failed=True))
            except HoldfastError as wrong:
                error.add_note(f"the cycle is not noted: {wrong}")
            raise
        block.alarms = await self._note(noted(block, clock.ticks() - begun, failed=False))

    async def status(self) -> DriftStatus:
        """How the work goes: counts and rates of the cycles that are looked at."""
        return await self._state._do(self._keeping.status)

    async def alarms(self, *, limit: int | None = None) -> list[NotedAlarm]:
        """The last alarms, at most a hundred, newest first."""
        check_limit(limit)
        return await self._state._do(self._keeping.alarms, limit)

    async def reset(self) -> None:
        """Begin anew after a refresh: what was usual before counts no more, the count goes on."""

        async def step() -> None:
            plan = await self._state._do(self._keeping.reset)
            if plan is not None:
                await self._state._run(plan)

        await again_async(step)
