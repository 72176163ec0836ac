"""Drift: an agent's cycles of work, and when they have changed for the worse."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec

from holdfast.agents.again import again
from holdfast.agents.agent_keys import DRIFT, own_change, sticky
from holdfast.agents.drift_signs import WINDOW, Cycle, DriftAlarm, DriftSignal, Signs, noted
from holdfast.errors import HoldfastError, InvalidInputError
from holdfast.store.inner import LineHandle, Plan, handle_of, moment
from holdfast.store.names.arguments import check_limit, listed
from holdfast.store.names.face import faced, quick, writes
from holdfast.store.state import State


class CycleBlock:
    """One cycle while it runs: what is set here is noted when the block ends."""

    def __init__(self, action: str, task: str) -> None:
        self.action = action
        self.task = task
        self.progress: float | None = None
        self.signals: dict[str, float] = {}
        self.alarms: list[DriftAlarm] = []
        """What it raised, once the block has ended."""


@faced
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
        signals: Iterable[DriftSignal] = (),
        without: Iterable[str] = (),
    ) -> None:
        if not isinstance(state, State):
            raise InvalidInputError("Drift takes a state of the same face")
        signs = Signs(
            evidence,
            max_cycles,
            tuple(listed(signals, "signals")),
            tuple(listed(without, "without")),
        )
        self._state = state
        self._storage = handle_of(state).core.storage
        self._keeping = Keeping(handle_of(state), signs)

    @writes
    def note(
        self,
        action: str = "",
        *,
        task: str = "",
        progress: float | None = None,
        seconds: float | None = None,
        failed: bool = False,
        signals: Mapping[str, float] | None = None,
    ) -> list[DriftAlarm]:
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

    def _note(self, fields: Mapping[str, Any]) -> list[DriftAlarm]:
        def step() -> list[DriftAlarm]:
            plan, alarms = self._keeping.note(fields)
            self._state._run(plan)
            return alarms

        return again(step)

    @contextmanager
    def cycle(self, action: str = "", *, task: str = "") -> Iterator[CycleBlock]:
        """A block that is a cycle: its time, and whether it fails, are noted by themselves."""
        clock = handle_of(self._state).core.clock
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

    @quick
    def status(self) -> DriftStatus:
        """How the work goes: counts and rates of the cycles that are looked at."""
        return self._keeping.status()

    @quick
    def alarms(self, *, limit: int | None = None) -> list[NotedAlarm]:
        """The last alarms, at most a hundred, newest first."""
        check_limit(limit)
        return self._keeping.alarms(limit)

    @writes
    def reset(self) -> None:
        """Begin anew after a refresh: what was usual before counts no more, the count goes on."""

        def step() -> None:
            plan = self._keeping.reset()
            if plan is not None:
                self._state._run(plan)

        again(step)


# ---- drift cycles -------------------------------------------------------------------------------
# The cycles of an agent as they are kept, and the changes that note them: for both faces.
#
# Under `$drift/`, which restores leave alone, because cycles that were done stay done: `status` (a
# small mapping), `cycles` (a list, trimmed to what is looked at) and `alarms` (a list of the last).
#
# But the work itself goes back with the state: held against cycles of before, an agent that does it
# again gets no further. So what was noted before the newest restore, or fork, of the timeline is
# counted and not judged, whoever restored and however. Only where errors are the reason to restore,
# again and again, they themselves stay in view: that a cycle failed is true whatever is undone.


STATUS, CYCLES, ALARMS = DRIFT + "status", DRIFT + "cycles", DRIFT + "alarms"
MOST_ALARMS = 100
"""Alarms that are kept."""


class Status(msgspec.Struct, omit_defaults=True):
    """What is kept besides the cycles themselves."""

    cycles: int = 0
    """Of the agent, ever."""
    begun: int = 0
    """How many there were at the last refresh, or when the state was last put back."""
    alarmed: dict[str, int] = {}
    """For each kind the cycle of its last alarm since."""
    progress: bool = False
    """Whether any cycle ever said how far its task is."""
    undone: int = 0
    """The last cycle before a restore because of an error: of those up to it, only the errors
    count."""

    def anew(self) -> Status:
        """The same, with nothing to be judged by what comes now."""
        return Status(self.cycles, self.cycles, progress=self.progress)


@dataclass(frozen=True, slots=True)
class DriftStatus:
    """How an agent's work goes, by the cycles that are looked at."""

    cycles: int
    """Of the agent, ever."""
    since_refresh: int
    looked_at: int
    error_rate: float
    """The share of cycles that failed."""
    repeats: int
    """How often the last action was done in a row without progress."""
    stalled: int
    """Cycles since the last progress, of those that say something about it."""
    seconds: float | None
    """The mean time of a cycle; None if nobody said it."""


@dataclass(frozen=True, slots=True)
class NotedAlarm:
    """An alarm that was given, and when."""

    alarm: DriftAlarm
    time: datetime


class Keeping:
    """The cycles of one timeline. What it remembers is checked against the status with each use."""

    def __init__(self, handle: LineHandle, signs: Signs) -> None:
        self._handle = handle
        self._signs = signs
        self._known: tuple[Status, list[Cycle]] = Status(), []
        """The last status that was seen and its cycles, as one: several threads may come by."""

    def note(self, fields: Mapping[str, Any]) -> tuple[Plan, list[DriftAlarm]]:
        """A change that notes a cycle, and the alarms that it raises."""
        cycle = Cycle.of(fields)
        parts = own_change(self)
        part = parts.part(self._handle)
        found = part.get(STATUS)
        status, before = self._load(found, part.expects[STATUS])
        cycle = msgspec.structs.replace(cycle, number=status.cycles + 1).after(before)
        cycles = [*before[1 - WINDOW :], cycle]
        said = status.progress or cycle.progress is not None
        alarms = self._signs.judge(cycles, status.alarmed, status.begun, progress=said)
        alarmed = status.alarmed | {alarm.kind: alarm.cycle for alarm in alarms}
        after = Status(cycle.number, status.begun, alarmed, said, status.undone)
        part.operations += sticky(self._handle, DRIFT)
        part.set(STATUS, msgspec.to_builtins(after))
        if status.begun == status.cycles:  # what the list may still hold is of before
            part.set(CYCLES, [msgspec.to_builtins(cycle)])
        else:
            part.append(CYCLES, msgspec.to_builtins(cycle))
        if cycle.number % WINDOW == 0:
            part.trim(CYCLES, keep_last=WINDOW)
        if alarms:
            part.extend(ALARMS, [self._data(alarm) for alarm in alarms])
            part.trim(ALARMS, keep_last=MOST_ALARMS)
        plan = parts.plan()
        assert plan is not None
        change, finish = plan

        def finished(written: Any) -> Any:
            self._known = after, cycles
            return finish(written)

        return (change, finished), alarms

    def reset(self) -> Plan | None:
        """A change after which only what comes now counts; None if there is nothing to forget."""
        parts = own_change(self, reason="refresh")
        part = parts.part(self._handle)
        found = part.get(STATUS)
        status, _ = self._load(found, part.expects[STATUS])
        if status.begun == status.cycles:
            return None
        part.set(STATUS, msgspec.to_builtins(status.anew()))
        part.delete(CYCLES)
        return parts.plan()

    def failed(self) -> Plan | None:
        """A change, right after a restore because of an error: what came before counts only as
        cycles that failed or did not."""
        parts = own_change(self, reason="restored after an error")
        part = parts.part(self._handle)
        status = msgspec.convert(part.get(STATUS, {}), Status)
        if not status.cycles:
            return None
        status.undone = status.cycles
        part.set(STATUS, msgspec.to_builtins(status))
        return parts.plan()

    def _load(self, found: Any, version: int) -> tuple[Status, list[Cycle]]:
        """The status and its cycles; these are read again if they are not those remembered."""
        known = self._known
        status = msgspec.convert(found or {}, Status)
        line = self._handle.reader.now()
        if line is not None and version <= line.origin:  # the state was put back since
            known = status.anew(), []
        elif _place(status) != _place(known[0]) or not known[1]:
            items = self._handle.reader.tail(CYCLES, WINDOW, False)
            known = (
                status,
                [
                    Cycle(number=one.number, failed=one.failed)
                    if one.number <= status.undone
                    else one
                    for one in msgspec.convert(items, list[Cycle])
                ],
            )
        else:
            known = status, known[1]
        self._known = known
        return known

    def _data(self, alarm: DriftAlarm) -> dict[str, Any]:
        time = moment(self._handle.core.clock.claimed())
        return {**msgspec.to_builtins(alarm), "time": time}

    def alarms(self, limit: int | None) -> list[NotedAlarm]:
        """The last alarms, newest first."""
        count = MOST_ALARMS if limit is None else limit
        return [
            NotedAlarm(msgspec.convert(item, DriftAlarm), time)
            for item in reversed(self._handle.reader.tail(ALARMS, count, False))
            if (time := item.pop("time"))
        ]

    def status(self) -> DriftStatus:
        """How the work goes."""
        found = self._handle.reader.versioned([STATUS], False)
        status, cycles = self._load(*found.get(STATUS, (None, 0)))
        times = [one.seconds for one in cycles if one.seconds is not None]
        moves = [one.moved for one in cycles if one.moved is not None]
        return DriftStatus(
            status.cycles,
            status.cycles - status.begun,
            len(cycles),
            sum(one.failed for one in cycles) / len(cycles) if cycles else 0.0,
            _repeats(cycles),
            next((n for n, moved in enumerate(reversed(moves)) if moved == 1), len(moves)),
            sum(times) / len(times) if times else None,
        )


def _place(status: Status) -> tuple[int, int, int]:
    """What the cycles that are remembered depend on."""
    return status.cycles, status.begun, status.undone


def _repeats(cycles: list[Cycle]) -> int:
    count = 0
    for one in reversed(cycles):
        if one.action != cycles[-1].action or not one.action:
            break
        count += 1
        if one.moved == 1:
            break
    return count
