"""What a watchdog looks at: leases without beats, processes that are gone, alarms of drift."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from holdfast.agents.drift_cycles import STATUS, Keeping, Status
from holdfast.agents.drift_signs import Signs
from holdfast.errors import InvalidScopeError, StateIntegrityError
from holdfast.recovery.failures import Failure
from holdfast.recovery.strategies import check_state
from holdfast.recovery.tails import Tails, tail_text
from holdfast.store.commit.core import Core
from holdfast.store.history.handle import LineHandle, StoreHandle
from holdfast.store.lease.lease_cells import LeaseInfo
from holdfast.store.lease.lease_names import lease_parts, running_lease
from holdfast.store.names.scope import Scope

SILENT = ("agent_crash", "missed_beats")
"""Kinds of failure of which nobody is heard any more: whoever ran the agent does not."""
WATCHDOG_OWNER, BOOT_OWNER = "watchdog ", "boot"
"""How the owner of an agent's lease begins while a watchdog has it, and who it is at boot."""
FEWEST = 20
"""Cycles before which nothing is said about the share of them that fails."""


@dataclass(frozen=True, slots=True)
class Sighting:
    """Something that is wrong with a scope."""

    scope: Scope
    failure: Failure
    term: int = 0
    """Of the lease under which the agent ran; 0 if it ran under none."""
    cycle: int = 0
    """The newest cycle that speaks for it; 0 if it is not that."""


class Beats:
    """Who is heard, and since when not, on the clock of this process.

    As with leases, wall clocks are not compared: a holder is silent for as long as this process has
    itself seen no beat.
    """

    def __init__(self, core: Core) -> None:
        self._core = core
        self._seen: dict[str, tuple[tuple[int, int], float]] = {}

    def silent(self) -> Iterator[Sighting]:
        """Agents whose holder is gone, or has not been heard for as long as its lease lasts."""
        seen: dict[str, tuple[tuple[int, int], float]] = {}
        for info, scope in running(self._core):
            now = self._core.clock.ticks()
            beat = (info.term, info.beats)
            known = self._seen.get(info.name)
            since = known[1] if known is not None and known[0] == beat else now
            seen[info.name] = beat, since
            quiet = now - since
            if info.gone or quiet >= info.duration:
                yield Sighting(scope, _silence(info, quiet), term=info.term)
        self._seen = seen


def _silence(info: LeaseInfo, quiet: float) -> Failure:
    evidence = {"owner": info.owner, "term": info.term, "silent": round(quiet, 3)}
    if info.gone:
        return Failure("agent_crash", "the process that ran it is gone", evidence=evidence)
    text = f"not heard for {quiet:.3g} s"
    return Failure("missed_beats", text, evidence=evidence)


def runs(info: LeaseInfo) -> bool:
    """Whether a lease is of somebody who runs an agent, or ran it and is gone.

    Whoever mends an agent in its stead holds its lease, too: that nobody ran it is still so if that
    one is gone.
    """
    owner = info.owner
    return owner is not None and owner != BOOT_OWNER and not owner.startswith(WATCHDOG_OWNER)


def running(core: Core) -> Iterator[tuple[LeaseInfo, Scope]]:
    """Leases of agents that somebody runs, as far as is known, and the agents."""
    hashed: dict[str, LeaseInfo] = {}
    for info in core.leases.infos():
        parts = lease_parts(info.name)
        if not runs(info):
            continue
        if parts is None:
            hashed[info.name] = info
        elif len(parts) == 2 and parts[0] == "agent":
            scope = _agent(parts[1])
            if scope is not None and core.known(scope) is not None:
                yield info, scope
    if hashed:  # only those whose ids are too long for the name of a lease
        for scope, *_ in core.scopes():
            name = lease_of(scope)
            if name in hashed:
                yield hashed[name], scope


def _agent(id: str) -> Scope | None:
    """The agent of an id; None if a lease of another's own bears such a name."""
    try:
        return Scope("agent", id)
    except InvalidScopeError:
        return None


def lease_of(scope: Scope) -> str | None:
    """The lease of who runs an agent; None for what is no agent."""
    return running_lease(scope) if scope.kind == "agent" else None


def damage_of(handle: LineHandle, tails: Tails) -> Failure | None:
    """What is wrong with the newest state of a scope; damage that is past harms nobody now."""
    try:
        check_state(handle, handle.timeline, handle.place()[2])
    except StateIntegrityError as error:
        return Failure("corruption_detected", str(error)[:1000])
    tail = tails.lost(handle.scope)
    if tail is not None:  # nothing in what is left of it shows that
        return Failure("structure_invalid", f"lost: {tail_text(tail)}")
    return None


def status_of(handle: LineHandle) -> Status:
    """What is kept of the drift of an agent."""
    return msgspec.convert(handle.reader.get(STATUS, None, None, False) or {}, Status)


class Astray:
    """Alarms of drift, and shares of failed cycles, that nobody answers."""

    def __init__(self, core: Core, most: float) -> None:
        self._store = StoreHandle(core)
        self._most = most
        self._before: dict[Scope, int] = {}

    def found(self, answered: Callable[[Scope], int]) -> Iterator[Sighting]:
        """Agents whose alarms stand since the last look: a loop answers its own in between.

        `answered(scope)` gives the cycle up to which alarms are answered.
        """
        before, self._before = self._before, {}
        for info, scope in running(self._store.core):
            handle = self._store.line(scope)
            try:
                status = status_of(handle)
                sighting = self._sighting(handle, status, answered(scope))
            except StateIntegrityError as error:
                failure = Failure("corruption_detected", str(error)[:1000])
                yield Sighting(scope, failure, term=info.term)
                continue
            if sighting is None:
                continue
            self._before[scope] = status.begun
            if before.get(scope) == status.begun:
                yield replace(sighting, term=info.term, cycle=status.cycles)

    def _sighting(self, handle: LineHandle, status: Status, answered: int) -> Sighting | None:
        scope = handle.scope
        new = {kind: cycle for kind, cycle in status.alarmed.items() if cycle > answered}
        evidence: dict[str, Any] = {"alarms": new, "cycles": status.cycles}
        if new:
            kind = "error_rate" if "errors" in new else "drift"
            text = f"alarms: {', '.join(sorted(new))}"
            return Sighting(scope, Failure(kind, text, evidence=evidence))
        if status.cycles - max(answered, status.begun) < FEWEST:
            return None
        now = Keeping(handle, Signs()).status()
        if now.looked_at >= FEWEST and now.error_rate > self._most:
            evidence["error_rate"] = now.error_rate
            text = f"{now.error_rate:.0%} of its cycles fail"
            return Sighting(scope, Failure("error_rate", text, evidence=evidence))
        return None
