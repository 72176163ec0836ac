"""Drift on the blocking face; `holdfast.sync` exports it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from holdfast.agents.again import again
from holdfast.agents.drift_cycles import DriftStatus, Keeping, NotedAlarm
from holdfast.agents.drift_signs import Alarm, Signal, Signs, noted
from holdfast.errors import HoldfastError, InvalidInputError
from holdfast.store.names.arguments import check_limit, listed
from holdfast.store.state import State


class CycleBlock:
    """One cycle while it runs: what is set here is noted when the block ends."""

    def __init__(self, action: str, task: str) -> None:
        self.action = action
        self.task = task
        self.progress: float | None = None
        self.signals: dict[str, float] = {}
        self.alarms: list[Alarm] = []
        """What it raised, once the block has ended."""


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
            raise InvalidInputError("Drift takes a state of holdfast.sync")
        signs = Signs(
            evidence,
            max_cycles,
            tuple(listed(signals, "signals")),
            tuple(listed(without, "without")),
        )
        self._state = state
        self._keeping = Keeping(state._handle, signs)

    def note(
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
        return self._note({
            "action": action,
            "task": task,
            "progress": progress,
            "seconds": seconds,
            "failed": failed,
            "signals": signals,
        })  # fmt: skip

    def _note(self, fields: Mapping[str, Any]) -> list[Alarm]:
        def step() -> list[Alarm]:
            plan, alarms = self._keeping.note(fields)
            self._state._run(plan)
            return alarms

        return again(step)

    @contextmanager
    def cycle(self, action: str = "", *, task: str = "") -> Iterator[CycleBlock]:
        """A block that is a cycle: its time, and whether it fails, are noted by themselves."""
        clock = self._state._handle.core.clock
        block = CycleBlock(action, task)
        begun = clock.ticks()
        try:
            yield block
        except Exception as error:
            try:
                self._note(noted(block, clock.ticks() - begun, failed=True))
            except HoldfastError as wrong:
                error.add_note(f"the cycle is not noted: {wrong}")
            raise
        block.alarms = self._note(noted(block, clock.ticks() - begun, failed=False))

    def status(self) -> DriftStatus:
        """How the work goes: counts and rates of the cycles that are looked at."""
        return self._keeping.status()

    def alarms(self, *, limit: int | None = None) -> list[NotedAlarm]:
        """The last alarms, at most a hundred, newest first."""
        check_limit(limit)
        return self._keeping.alarms(limit)

    def reset(self) -> None:
        """Begin anew after a refresh: what was usual before counts no more, the count goes on."""

        def step() -> None:
            plan = self._keeping.reset()
            if plan is not None:
                self._state._run(plan)

        again(step)
