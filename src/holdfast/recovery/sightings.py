"""Failures that were found and are not answered yet, as they are kept.

In the scope of notices, a key for each agent: written before anything is done about it, so that a
watchdog that takes over from one that died goes on with it, and removed when it is answered.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from holdfast.recovery.failures import DAMAGED, AgentFailure
from holdfast.recovery.records import PREFIX, notices_scope, write
from holdfast.store.inner import StoreHandle, moment
from holdfast.store.names.scope import Scope

SILENT = ("agent_crash", "missed_beats")
"""Kinds of failure of which nobody is heard any more: whoever ran the agent does not."""

OPEN = PREFIX + "watch/open/"
CYCLES = PREFIX + "watch/cycles/"
"""For each agent the cycle up to which its alarms are answered."""
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 3600.0
"""Seconds before an answer that failed is tried again: at first, and after many times."""


@dataclass(frozen=True, slots=True)
class Sighting:
    """Something that is wrong with a scope."""

    scope: Scope
    failure: AgentFailure
    term: int = 0
    """Of the lease under which the agent ran; 0 if it ran under none."""
    cycle: int = 0
    """The newest cycle that speaks for it; 0 if it is not that."""


@dataclass(frozen=True, slots=True)
class Unanswered:
    """A failure that was found, and not answered yet."""

    agent: Scope
    failure: AgentFailure
    found_at: datetime
    tries: int
    """How often it was answered in vain."""
    error: str
    """How the last of these ended."""
    due: datetime
    """When it is tried again, by the wall clock of the watchdog that answered in vain; one that
    takes over from it tries at once."""
    term: int = 0
    cycle: int = 0
    recovered: bool = False
    """Whether its state is recovered, and only its start is missing."""


class Sightings:
    """The failures of a store's agents that are not answered."""

    def __init__(self, store: StoreHandle) -> None:
        self._store = store
        self._handle = store.line(notices_scope())
        self._pauses: dict[str, tuple[int, float]] = {}
        """For each failure that was answered in vain here: how often, and when it is tried again by
        the monotonic clock. Wall clocks of several machines say nothing of each other."""

    def _now(self) -> datetime:
        return moment(self._store.core.clock.claimed())

    def all(self) -> list[Unanswered]:
        """All of them, those found first in front."""
        items = self._handle.reader.items(OPEN, None, "", False)
        return sorted((_read(value) for _, value in items), key=lambda one: one.found_at)

    def due(self) -> list[Unanswered]:
        """Those that are to be answered now: all but those for which a pause lasts here."""
        return [one for one in self.all() if not self._pauses_for(one)]

    def _pauses_for(self, one: Unanswered) -> bool:
        tries, end = self._pauses.get(_name(one.agent), (0, 0.0))
        return one.tries == tries > 0 and self._store.core.clock.ticks() < end

    def add(self, sighting: Sighting) -> None:
        """Keep a new one. Of an agent one is kept, the gravest.

        What gives way is found again, if it is still so once that is answered.
        """
        kept = self._handle.reader.get(OPEN + _name(sighting.scope), None, None, False)
        if kept is not None and not _goes_before(sighting, _read(kept)):
            return
        now = self._now()
        failure = sighting.failure.check()
        one = Unanswered(
            sighting.scope, failure, now, 0, "", now, term=sighting.term, cycle=sighting.cycle
        )
        write(self._handle, {OPEN + _name(one.agent): _data(one)})

    def failed(self, one: Unanswered, error: str, *, recovered: bool = False) -> None:
        """An answer failed; the next is tried after a pause, which doubles each time."""
        pause = min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** min(one.tries, 20))
        due = self._now() + timedelta(seconds=pause)
        kept = replace(one, tries=one.tries + 1, error=error[:1000], due=due, recovered=recovered)
        write(self._handle, {OPEN + _name(one.agent): _data(kept)})
        self._pauses[_name(one.agent)] = one.tries + 1, self._store.core.clock.ticks() + pause

    def answered(self, one: Unanswered) -> None:
        """It is over."""
        self._pauses.pop(_name(one.agent), None)
        name = _name(one.agent)
        write(self._handle, {CYCLES + name: one.cycle} if one.cycle else {}, drop=OPEN + name)

    def settled(self, one: Unanswered) -> None:
        """Its state is recovered: whatever else is to be done, its alarms are answered."""
        name = _name(one.agent)
        kept = _data(replace(one, recovered=True))
        write(self._handle, {CYCLES + name: one.cycle, OPEN + name: kept})

    def cycle(self, scope: Scope) -> int:
        """The cycle up to which alarms of an agent are answered."""
        return int(self._handle.reader.get(CYCLES + _name(scope), 0, None, False))


def _goes_before(sighting: Sighting, kept: Unanswered) -> bool:
    """Whether a failure is not to wait for the answer of another one of the agent."""
    return _grave(sighting.failure) > _grave(kept.failure)


def _grave(failure: AgentFailure) -> int:
    """A holder that is gone comes before damage, and that before one that went astray."""
    return 2 if failure.kind in SILENT else 1 if failure.kind in DAMAGED else 0


def _name(scope: Scope) -> str:
    """What stands for a scope in a key, however long its name is."""
    return hashlib.sha256(str(scope).encode("utf-8", "surrogatepass")).hexdigest()[:32]


def _data(one: Unanswered) -> dict[str, Any]:
    plain = {name: getattr(one, name) for name in one.__slots__}
    return plain | {"agent": str(one.agent), "failure": one.failure.data()}


def _read(data: Any) -> Unanswered:
    scope, failure = Scope.parse(data["agent"]), AgentFailure.of(data["failure"])
    kept = {name: value for name, value in data.items() if name in Unanswered.__slots__}
    return Unanswered(**{**kept, "agent": scope, "failure": failure})
