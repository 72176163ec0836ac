"""Drift: an agent's cycles of work, and when they have changed for the worse."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from math import exp, isfinite, log
from typing import Any

import msgspec

from holdfast.agents.agent_keys import OWN_DRIFT
from holdfast.errors import InvalidInputError
from holdfast.store.inner import Book, BookPage, handle_of, moment
from holdfast.store.names.arguments import check_face, check_flag, check_limit, check_text, listed
from holdfast.store.names.face import faced, quick, writes
from holdfast.store.state import State

# ---- drift signs --------------------------------------------------------------------------------
# When an agent's work has changed for the worse: statistics of its cycles, without any I/O.
#
# All signs are change detectors of one kind (a one-sided CUSUM): the last `RECENT` cycles are held
# against what was usual in the cycles before them. Each cycle adds the logarithm of how much
# likelier it is if the work has drifted than if it goes on as usual; the sum never falls below
# zero, and from `evidence` on it is an alarm. So neither one odd cycle nor a threshold that fits
# another agent decides, but what this agent is used to. With an evidence of 12, chance alone
# reaches an alarm from a given cycle about once in e^12 = 160,000 times, for as far as the cycles
# are independent.
#
# What is judged is a function of the cycles that are kept, and of nothing else: whoever loads them
# again judges as if there had been no restart.


RECENT = 30
"""Cycles in which a drift is looked for; what is usual is learned from those before."""
WINDOW = 240
"""Cycles that are looked at in all."""
LONGEST_LOOP = 6
"""Actions in the longest loop that is looked for."""
ENOUGH = 30
"""Measurements before which nothing is said about times and signals of one's own."""
KNOWN = 5
"""Measurements of an action before which nothing is said about its time."""
SHIFT = 1.5
"""Deviations by which a level must have moved to have drifted."""
FURTHEST = 2.5
"""Deviations further than so many are taken for these: no single measurement decides."""
LEAST = 0.7
"""The part of what is usual for agents in general below which no agent is believed to be."""
KINDS = ("repetition", "stall", "reversal", "errors", "time", "cycles")


class Cycle(msgspec.Struct, kw_only=True, frozen=True):
    """What is noted of one cycle of work."""

    number: int
    action: str = ""
    """What was done, as a short text; equal texts are the same action."""
    task: str = ""
    progress: float | None = None
    """How far the task is, in any unit that grows."""
    moved: int | None = None
    """1: the task is further than ever, -1: it fell back, 0: neither; None: nobody said."""
    seconds: float | None = None
    failed: bool = False
    signals: dict[str, float] = {}

    def after(self, cycles: Sequence[Cycle]) -> Cycle:
        """The same, with what it moved since these cycles."""
        if self.progress is None:
            return self
        steps = [one.progress for one in cycles if one.task == self.task]
        known = [step for step in steps if step is not None]
        moved = int(self.progress > max(known, default=0.0))
        if known and self.progress < known[-1]:
            moved = -1
        return msgspec.structs.replace(self, moved=moved)

    @classmethod
    def of(
        cls, action: Any, task: Any, progress: Any, seconds: Any, failed: Any, signals: Any
    ) -> Cycle:
        """A cycle that has no number yet; what could not be judged, or read again, is refused."""
        check_text(action, "the action of a cycle", 256)
        check_text(task, "the task of a cycle", 256)
        check_flag(failed, "failed of a cycle")
        if not isinstance(signals, Mapping | None):
            raise InvalidInputError("signals of a cycle are a mapping from names to numbers")
        for name in signals or ():
            check_text(name, "the name of a signal", 64, least=1)
        took = _number(seconds, "seconds")
        if (took or 0.0) < 0:
            raise InvalidInputError("the seconds of a cycle are not below 0")
        named = {name: _number(one, name) for name, one in (signals or {}).items()}
        return cls(
            number=0,
            action=action,
            task=task,
            progress=_number(progress, "progress"),
            seconds=took,
            failed=failed,
            signals={name: one for name, one in named.items() if one is not None},
        )


def _number(given: Any, name: str) -> float | None:
    """A measurement as it is kept, None for none."""
    if given is None:
        return None
    # No float is as great as some whole numbers.
    if type(given) is float or (type(given) is int and given.bit_length() < 1024):
        number = float(given)
        if isfinite(number):
            return number
    raise InvalidInputError(f"{name!r} of a cycle is a finite number")


@dataclass(frozen=True, slots=True)
class DriftSignal:
    """A number of one's own that is watched like the time of a cycle: tokens, a score, a queue.

    An alarm of the kind `signal:NAME` says that it `rises` (the default) or `falls` for good.
    """

    name: str
    direction: str = "rises"

    def __post_init__(self) -> None:
        check_text(self.name, "the name of a signal", 64, least=1)
        if self.direction not in ("rises", "falls"):
            raise InvalidInputError("the direction of a signal is rises or falls")


class DriftAlarm(msgspec.Struct, frozen=True):
    """A drift that was found, with what speaks for it."""

    kind: str
    """repetition, stall, reversal, errors, time, cycles or signal:NAME"""
    cycle: int
    """The cycle in which it was found."""
    since: int
    """The cycle in which it seems to have begun."""
    evidence: float
    """The logarithm of how much likelier these cycles are if the work has drifted."""
    details: dict[str, Any] = {}
    """`usual` and `recent`: shares of cycles, or levels, before and since; `actions` of a loop."""
    time: datetime | None = None
    """When it was given, of one that `alarms` tells."""

    @property
    def why(self) -> str:
        """It in one sentence."""
        text = _SENTENCES.get(self.kind, "the signal {name} was {usual} and is {recent}")
        shown = {name: _text(one) for name, one in self.details.items()}
        name = self.kind.partition(":")[2]
        return f"since cycle {self.since} " + text.format(name=name, **shown)


_SENTENCES = {
    "repetition": "the same {length} action(s) are repeated without progress: {actions}",
    "stall": "there is no progress in {recent} of the cycles; usual are {usual}",
    "reversal": "progress is lost in {recent} of the cycles; usual are {usual}",
    "errors": "{recent} of the cycles fail; usual are {usual}",
    "time": "a cycle takes {recent} times as long as usual",
    "cycles": "{recent} cycles were done without a refresh; the limit is {usual}",
}


def _text(one: Any) -> str:
    if isinstance(one, float):
        return f"{one:.3g}"
    return ", ".join(map(str, one)) if isinstance(one, list | tuple) else str(one)


@dataclass(frozen=True, slots=True)
class Signs:
    """What is looked for, and how much must speak for it."""

    evidence: float = 12.0
    """Less finds a drift sooner, and more often where there is none."""
    max_cycles: int | None = None
    """After so many cycles without a refresh there is an alarm whatever they were like."""
    signals: tuple[DriftSignal, ...] = ()
    without: tuple[str, ...] = ()
    """Kinds that are not looked for."""

    def __post_init__(self) -> None:
        if type(self.evidence) not in (int, float) or not 1 <= self.evidence <= 1000:
            raise InvalidInputError("evidence is a number from 1 to 1000")
        most = self.max_cycles
        if most is not None and (type(most) is not int or most < 1):
            raise InvalidInputError("max_cycles is a whole number from 1 on")
        if not all(isinstance(one, DriftSignal) for one in self.signals):
            raise InvalidInputError("signals are holdfast.agents.DriftSignal(...)")
        if len(set(self.signals)) < len(self.signals):
            raise InvalidInputError("a signal is given twice; it is watched once")
        kinds = {*KINDS, *(f"signal:{one.name}" for one in self.signals)}
        if unknown := set(self.without) - kinds:
            raise InvalidInputError(f"there is no kind {min(unknown)!r}; there are {sorted(kinds)}")

    def judge(
        self,
        cycles: Sequence[Cycle],
        alarmed: Mapping[str, int],
        begun: int = 0,
        *,
        progress: bool = True,
    ) -> list[DriftAlarm]:
        """The alarms that the last of these cycles raises.

        `alarmed` holds for each kind the cycle of its last alarm: what is older speaks for no
        other one. `begun` is the number of the last cycle before the last refresh. `progress`:
        whether the agent ever says how far it is; of one that never does, nobody knows whether it
        repeats itself in vain.
        """
        if not cycles:
            return []
        judging = _Judging(cycles[-WINDOW:], alarmed, self.evidence)
        found = [*judging.rates(), judging.times()]
        if progress:
            found.append(judging.repetition())
        found += [judging.signal(one) for one in self.signals]
        last, since = cycles[-1].number, max(begun, alarmed.get("cycles", 0))
        if self.max_cycles is not None and last - since >= self.max_cycles:
            details = {"usual": self.max_cycles, "recent": last - begun}
            found.append(DriftAlarm("cycles", last, begun + 1, self.evidence, details))
        return [one for one in found if one is not None and one.kind not in self.without]


def _cusum(steps: Iterable[float]) -> tuple[float, int]:
    """How much evidence is left at the end, and where that begins."""
    total, start = 0.0, 0
    for at, step in enumerate(steps):
        if total <= 0.0:
            total, start = 0.0, at
        total += step
    return total, start


def _median(values: Iterable[float]) -> float:
    found = sorted(values)
    return (found[len(found) // 2] + found[(len(found) - 1) // 2]) / 2


def _share(events: Sequence[bool | None], usual: float, weight: float) -> float:
    """How often something happens; `usual` counts like so many cycles that were seen."""
    known = [event for event in events if event is not None]
    return (sum(known) + usual * weight) / (len(known) + weight)


def _rate_steps(events: Sequence[bool | None], usual: float, drifted: float) -> list[float]:
    yes, no = log(drifted / usual), log((1 - drifted) / (1 - usual))
    return [0.0 if event is None else yes if event else no for event in events]


class _Judging:
    """One look at the cycles that are kept."""

    def __init__(self, cycles: Sequence[Cycle], alarmed: Mapping[str, int], needed: float) -> None:
        self._cycles = cycles
        self._alarmed = alarmed
        self._needed = needed
        self._cut = max(len(cycles) - RECENT, 0)
        self._moved = [one.moved for one in cycles]

    def _from(self, kind: str) -> int:
        """Where evidence may begin: not before an alarm of that kind that was given."""
        after = self._alarmed.get(kind, -1)
        first = self._cycles[0].number
        return max(self._cut, after + 1 - first)

    def _alarm(self, kind: str, evidence: float, start: int, **details: Any) -> DriftAlarm | None:
        if evidence < self._needed:
            return None
        at, last = self._cycles[start].number, self._cycles[-1].number
        return DriftAlarm(kind, last, at, round(evidence, 2), details)

    def _rate(
        self, kind: str, events: Sequence[bool | None], usual: float, weight: int, drifted: float
    ) -> DriftAlarm | None:
        start = self._from(kind)
        if start >= len(events) or not events[-1]:
            return None  # a cycle in which it did not happen never raises an alarm
        # However seldom it was seen: by luck alone it may have been.
        usual = max(_share(events[: self._cut], usual, weight), LEAST * usual)
        found, at = _cusum(_rate_steps(events[start:], usual, usual + (1 - usual) * drifted))
        recent = _share(events[start + at :], 0.0, 0.0) if found > 0 else 0.0
        return self._alarm(kind, found, start + at, usual=usual, recent=recent)

    def rates(self) -> list[DriftAlarm | None]:
        """Errors, no progress, and lost progress: how often they happen."""
        stuck = [None if one is None else one <= 0 for one in self._moved]
        lost = [None if one is None else one < 0 for one in self._moved]
        return [
            self._rate("errors", [one.failed for one in self._cycles], 0.06, 20, 0.5),
            self._rate("stall", stuck, 0.45, 10, 0.96),
            self._rate("reversal", lost, 0.05, 25, 0.5),
        ]

    def repetition(self) -> DriftAlarm | None:
        """The same action again and again, or the same few, without progress."""
        start = self._from("repetition")
        found = [self._loop(length, start) for length in range(1, LONGEST_LOOP + 1)]
        return max(
            (one for one in found if one is not None),
            key=lambda alarm: (alarm.evidence, -alarm.details["length"]),
            default=None,
        )

    def _loop(self, length: int, start: int) -> DriftAlarm | None:
        first = max(start, length)
        recent = self._again(length, first, len(self._cycles))
        # More than 3 times the same action; a loop of several is one when it is seen 3 times.
        least = max(3, 2 * length)
        if sum(recent) < least or not recent[-1]:
            return None
        usual = _share(self._again(length, length, self._cut), 0.1, 10)
        found, at = _cusum(_rate_steps(recent, usual, usual + (1 - usual) * 0.95))
        actions = [one.action for one in self._cycles[-length:]]
        if sum(recent[at:]) < least or (length > 1 and len(set(actions)) == 1):
            return None  # too little, or a shorter loop says it
        return self._alarm("repetition", found, first + at, length=length, actions=actions)

    def _again(self, length: int, low: int, high: int) -> list[bool]:
        """Whether cycles did what was done so many cycles before, and got no further."""
        cycles, moved = self._cycles, self._moved
        return [
            cycles[at].action == cycles[at - length].action != "" and moved[at] != 1
            for at in range(low, high)
        ]

    def times(self) -> DriftAlarm | None:
        """Cycles take longer and longer; each is compared with those of the same action."""
        return self._level("time", [
            (one.action, log(max(one.seconds, 0.001))) if one.seconds is not None else None
            for one in self._cycles
        ], KNOWN, logarithmic=True)  # fmt: skip

    def signal(self, signal: DriftSignal) -> DriftAlarm | None:
        """A number of one's own that goes on in one direction."""
        sign = 1.0 if signal.direction == "rises" else -1.0
        values = [one.signals.get(signal.name) for one in self._cycles]
        kind = f"signal:{signal.name}"
        return self._level(kind, [("", v) if v is not None else None for v in values], sign=sign)

    def _level(
        self,
        kind: str,
        values: Sequence[tuple[str, float] | None],
        known: int = ENOUGH,
        *,
        sign: float = 1.0,
        logarithmic: bool = False,
    ) -> DriftAlarm | None:
        """Whether what is measured has left its level, in deviations that are usual."""
        start = self._from(kind)
        before = [one for one in values[: self._cut] if one is not None]
        if start >= len(values) or values[-1] is None or len(before) < ENOUGH:
            return None
        groups: defaultdict[str, list[float]] = defaultdict(list)
        for group, value in before:
            groups[group].append(value)
        usual = {group: _median(found) for group, found in groups.items() if len(found) >= known}
        away = [abs(value - usual[group]) for group, value in before if group in usual]
        if len(away) <= len(usual):
            return None
        # Around medians of few values each, values lie closer than they will lie later.
        spread = 1.4826 * _median(away) * (len(away) / (len(away) - len(usual))) ** 0.5
        spread = max(spread, 0.1 if logarithmic else 0.0) or 1e-9
        off = [
            (one[1] - usual[one[0]]) * sign if one is not None and one[0] in usual else None
            for one in values[start:]
        ]
        steps = [
            0.0 if one is None
            else SHIFT * (max(min(one / spread, FURTHEST), -FURTHEST) - SHIFT / 2)
            for one in off
        ]  # fmt: skip
        found, at = _cusum(steps)
        since = [one for one in off[at:] if one is not None]
        shown: dict[str, Any] = {"spread": round(spread, 4)}
        if since and logarithmic:
            shown |= {"recent": exp(_median(since)), "usual": 1.0}
        elif since:
            shown |= {"recent": usual[""] + sign * _median(since), "usual": usual[""]}
        return self._alarm(kind, found, start + at, **shown)


# ---- drift --------------------------------------------------------------------------------------


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
        check_face(state, State, "Drift")
        watched, left_out = listed(signals, "signals"), listed(without, "without")
        self._signs = Signs(evidence, max_cycles, tuple(watched), tuple(left_out))
        self._storage = handle_of(state).core.storage
        self._handle = handle_of(state)
        self._status = Book(state, OWN_DRIFT, Status)
        self._cycles = Book(state, OWN_DRIFT, Cycle)
        self._alarms = Book(state, OWN_DRIFT, DriftAlarm)
        self._known: tuple[Status, list[Cycle]] = Status(), []
        """The last status that was seen and its cycles, as one: several threads may come by. It is
        checked against the status with each use."""

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
        new = Cycle.of(action, task, progress, seconds, failed, signals)

        def note(page: BookPage[Status]) -> tuple[list[DriftAlarm], tuple[Status, list[Cycle]]]:
            status, before = self._load(*page.versioned(STATUS))
            cycle = msgspec.structs.replace(new, number=status.cycles + 1).after(before)
            cycles = [*before[1 - WINDOW :], cycle]
            said = status.progress or cycle.progress is not None
            alarms = self._signs.judge(cycles, status.alarmed, status.begun, progress=said)
            alarmed = status.alarmed | {alarm.kind: alarm.cycle for alarm in alarms}
            after = Status(cycle.number, status.begun, alarmed, said)
            page.put(STATUS, after)
            kept = page.beside(self._cycles)
            if status.begun == status.cycles:  # what the list may still hold is of before
                kept.delete(CYCLES)
            kept.extend(CYCLES, [cycle])
            if cycle.number % WINDOW == 0:
                kept.trim(CYCLES, keep_last=WINDOW)
            if alarms:
                time, told = moment(self._handle.core.clock.claimed()), page.beside(self._alarms)
                told.extend(ALARMS, [msgspec.structs.replace(one, time=time) for one in alarms])
                told.trim(ALARMS, keep_last=MOST_ALARMS)
            return alarms, (after, cycles)

        alarms, self._known = self._status.step(note)
        return alarms

    @quick
    def status(self) -> DriftStatus:
        """How the work goes: counts and rates of the cycles that are looked at."""
        status, cycles = self._load(*self._status.versioned(STATUS))
        times = [one.seconds for one in cycles if one.seconds is not None]
        moves = [one.moved for one in cycles if one.moved is not None]
        repeats = 0
        for one in reversed(cycles):
            if one.action != cycles[-1].action or not one.action:
                break
            repeats += 1
            if one.moved == 1:
                break
        return DriftStatus(
            status.cycles,
            status.cycles - status.begun,
            len(cycles),
            sum(one.failed for one in cycles) / len(cycles) if cycles else 0.0,
            repeats,
            next((n for n, moved in enumerate(reversed(moves)) if moved == 1), len(moves)),
            sum(times) / len(times) if times else None,
        )

    def _load(self, found: Status | None, version: int) -> tuple[Status, list[Cycle]]:
        """The status and its cycles; these are read again if they are not those remembered."""
        known, status = self._known, found or Status()
        line = self._handle.reader.now()
        if line is not None and version <= line.origin:  # the state was put back since
            known = status.anew(), []
        elif (status.cycles, status.begun) != (known[0].cycles, known[0].begun) or not known[1]:
            known = status, self._cycles.tail(CYCLES, WINDOW)
        else:
            known = status, known[1]
        self._known = known
        return known

    @quick
    def alarms(self, *, limit: int | None = None) -> list[DriftAlarm]:
        """The last alarms, at most a hundred, newest first."""
        check_limit(limit)
        return self._alarms.tail(ALARMS, MOST_ALARMS if limit is None else limit)[::-1]

    @writes
    def reset(self) -> None:
        """Begin anew after a refresh: what was usual before counts no more, the count goes on."""

        def note(page: BookPage[Status]) -> None:
            status, _ = self._load(*page.versioned(STATUS))
            if status.begun != status.cycles:
                page.put(STATUS, status.anew())
                page.beside(self._cycles).delete(CYCLES)

        self._status.step(note, reason="refresh")


# ---- drift cycles -------------------------------------------------------------------------------
# The cycles of an agent as they are kept.
#
# Under `$drift/`, which restores leave alone, because cycles that were done stay done: `status` (a
# small mapping), `cycles` (a list, trimmed to what is looked at) and `alarms` (a list of the last).
#
# But the work itself goes back with the state: held against cycles of before, an agent that does it
# again gets no further. So what was noted before the newest restore, or fork, of the timeline is
# counted and not judged, whoever restored and however.


STATUS, CYCLES, ALARMS = "status", "cycles", "alarms"
MOST_ALARMS = 100
"""Alarms that are kept."""


class Status(msgspec.Struct):
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
    """An earlier version kept errors of before a restore in view."""

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
