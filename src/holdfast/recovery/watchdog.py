"""Finding agents that failed, and having them recovered.

What was found and is not answered yet is kept in the scope of notices, a key for each agent:
written before anything is done about it, so that a watchdog that takes over from one that died goes
on with it, and removed when it is answered.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, suppress
from contextvars import copy_context
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from msgspec import Struct
from msgspec.structs import asdict, replace

from holdfast.agents.agent_keys import OWN_DRIFT
from holdfast.agents.drift import STATUS, Drift, Status
from holdfast.errors import (
    InvalidInputError,
    InvalidScopeError,
    LeaseLostError,
    RecoveryFailedError,
    ScopeErasedError,
    ScopeNotFoundError,
    StateIntegrityError,
    StoreClosedError,
)
from holdfast.recovery.failure_kinds import (
    DAMAGED,
    PREFIX,
    SIGHTINGS,
    AgentFailure,
    found_failure,
    grouped,
    log,
)
from holdfast.recovery.heal import damage_of
from holdfast.recovery.records import (
    ROLLED_BACK,
    book_of,
    check_there,
    given_core,
    hashed,
    is_own,
    notices_scope,
)
from holdfast.recovery.recovery import Recovery
from holdfast.recovery.report import RecoveryReport
from holdfast.recovery.run import LEASE
from holdfast.recovery.strategies import refusal
from holdfast.store.inner import (
    Asking,
    Book,
    BookPage,
    Core,
    Finding,
    Lease,
    LeaseInfo,
    LineHandle,
    StoreHandle,
    lease_parts,
    moment,
    running_lease,
)
from holdfast.store.names.arguments import check_function, check_own, check_seconds
from holdfast.store.names.background import Background, Startable, at_work, is_at_work
from holdfast.store.names.cause import acting
from holdfast.store.names.face import calls, ends, faced, here, writes
from holdfast.store.names.scope import Scope
from holdfast.store.names.threads import called
from holdfast.store.state import State, View
from holdfast.store.store import Store

# Failures that were found and are not answered yet, as they are kept.

SILENT = ("agent_crash", "missed_beats")
"""Kinds of failure of which nobody is heard any more: whoever ran the agent does not."""

OPEN = SIGHTINGS.removeprefix(PREFIX)
CYCLES = PREFIX + "watch/cycles/"
"""For each agent the cycle up to which its alarms are answered."""
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 3600.0
"""Seconds before an answer that failed is tried again: at first, and after many times."""


class Sighting(NamedTuple):
    """What is wrong with a scope; the term of the lease under which the agent ran, 0 if it ran
    under none; and the newest cycle that speaks for it, 0 if it is not that."""

    scope: Scope
    failure: AgentFailure
    term: int = 0
    cycle: int = 0


class _Known(Struct, kw_only=True, frozen=True):
    """What is told of a failure that is not answered yet, and kept of it."""

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


class UnansweredFailure(_Known, kw_only=True, frozen=True):
    """A failure that was found, and not answered yet."""

    agent: Scope
    failure: AgentFailure


class SightingRecord(_Known, kw_only=True, frozen=True):
    """What is kept of such a failure."""

    agent: str
    failure: dict[str, Any]


class Sightings:
    """The failures of a store's agents that are not answered."""

    def __init__(self, store: StoreHandle) -> None:
        self._store = store
        self._handle = store.line(notices_scope())
        self._book = book_of(self._handle, SightingRecord)
        self._pauses: dict[Scope, tuple[int, float]] = {}
        """For each failure that was answered in vain here: how often, and when it is tried again by
        the monotonic clock. Wall clocks of several machines say nothing of each other."""

    def all(self) -> list[UnansweredFailure]:
        """All of them, those found first in front."""
        found = self._book.readable(OPEN).values()
        return sorted(map(_read, found), key=lambda one: one.found_at)

    def due(self) -> list[UnansweredFailure]:
        """Those that are to be answered now: all but those for which a pause lasts here."""
        found, now = [], self._store.core.clock.ticks()
        for one in self.all():
            tries, end = self._pauses.get(one.agent, (0, 0.0))
            if not (one.tries == tries > 0 and now < end):
                found.append(one)
        return found

    def add(self, sighting: Sighting) -> None:
        """Keep a new one. Of an agent one is kept, the gravest.

        What gives way is found again, if it is still so once that is answered.
        """
        scope, failure, term, cycle = sighting
        kept = self._book.get(OPEN + hashed(scope))
        if kept is None or _grave(failure) > _grave(_read(kept).failure):
            now = moment(self._store.core.clock.claimed())
            about: dict[str, Any] = {"agent": scope, "failure": failure.check(), "term": term}
            about |= {"cycle": cycle, "found_at": now, "due": now}
            self._keep(UnansweredFailure(tries=0, error="", **about))

    def _keep(self, one: UnansweredFailure) -> None:
        self._book.step(lambda page: page.put(OPEN + hashed(one.agent), _data(one)))

    def failed(self, one: UnansweredFailure, error: str, *, recovered: bool = False) -> None:
        """An answer failed; the next is tried after a pause, which doubles each time."""
        pause, tries = min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** min(one.tries, 20)), one.tries + 1
        due = moment(self._store.core.clock.claimed()) + timedelta(seconds=pause)
        self._keep(replace(one, tries=tries, error=error[:1000], due=due, recovered=recovered))
        self._pauses[one.agent] = tries, self._store.core.clock.ticks() + pause

    def answered(self, one: UnansweredFailure) -> None:
        """It is over."""
        self._pauses.pop(one.agent, None)
        self._over(one, None)

    def settled(self, one: UnansweredFailure) -> None:
        """Its state is recovered: whatever else is to be done, its alarms are answered."""
        self._over(one, _data(replace(one, recovered=True)))

    def _over(self, one: UnansweredFailure, left: SightingRecord | None) -> None:
        name = hashed(one.agent)

        def over(page: BookPage[SightingRecord]) -> None:
            if left is not None:
                page.put(OPEN + name, left)
            else:
                page.delete(OPEN + name)
            if one.cycle:
                page.change.set(CYCLES + name, one.cycle)

        self._book.step(over)

    def cycle(self, scope: Scope) -> int:
        """The cycle up to which alarms of an agent are answered."""
        return int(self._handle.reader.get(CYCLES + hashed(scope), 0, None, False))


def _grave(failure: AgentFailure) -> int:
    """A holder that is gone comes before damage, and that before one that went astray."""
    return 2 if failure.kind in SILENT else 1 if failure.kind in DAMAGED else 0


def _data(one: UnansweredFailure) -> SightingRecord:
    told = {"agent": str(one.agent), "failure": one.failure.data()}
    return SightingRecord(**asdict(one) | told)


def _read(kept: SightingRecord) -> UnansweredFailure:
    scope, failure = Scope.parse(kept.agent), AgentFailure(**kept.failure)
    return UnansweredFailure(**{**asdict(kept), "agent": scope, "failure": failure})


# What a watchdog looks at: leases without beats, processes that are gone, alarms of drift.

WATCHDOG_OWNER, BOOT_OWNER = "watchdog ", "boot"
"""How the owner of an agent's lease begins while a watchdog has it, and who it is at boot."""


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
                kind, text = "missed_beats", f"not heard for {quiet:.3g} s"
                if info.gone:
                    kind, text = "agent_crash", "the process that ran it is gone"
                evidence = {"owner": info.owner, "term": info.term, "silent": round(quiet, 3)}
                yield Sighting(scope, AgentFailure(kind, text, evidence=evidence), info.term)
        self._seen = seen


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
            with suppress(InvalidScopeError):  # a lease of another's own that bears such a name
                if core.known(scope := Scope("agent", parts[1])) is not None:
                    yield info, scope
    if hashed:  # only those whose ids are too long for the name of a lease
        for scope, *_ in core.scopes():
            name = lease_of(scope)
            if name in hashed:
                yield hashed[name], scope


def lease_of(scope: Scope) -> str | None:
    """The lease of who runs an agent; None for what is no agent."""
    return running_lease(scope) if scope.kind == "agent" else None


def status_of(handle: LineHandle) -> Status:
    """What is kept of the drift of an agent."""
    return Book(State(handle), OWN_DRIFT, Status).get(STATUS) or Status()


class Astray:
    """Alarms of drift that nobody answers."""

    def __init__(self, core: Core) -> None:
        self._store = StoreHandle(core)
        self._before: dict[Scope, int] = {}

    def found(self, answered: Callable[[Scope], int]) -> Iterator[Sighting]:
        """Agents whose alarms stand since the last look: a loop answers its own in between.

        `answered(scope)` gives the cycle up to which alarms are answered.
        """
        before, self._before = self._before, {}
        for info, scope in running(self._store.core):
            try:
                status = status_of(self._store.line(scope))
                known = answered(scope)
            except StateIntegrityError as error:  # it cannot be looked at: that is the failure
                failure = AgentFailure("corruption_detected", str(error)[:1000])
                yield Sighting(scope, failure, info.term)
                continue
            new = {kind: cycle for kind, cycle in status.alarmed.items() if cycle > known}
            if new:
                self._before[scope] = status.begun
            if new and before.get(scope) == status.begun:
                evidence = {"alarms": new, "cycles": status.cycles}
                kind = "error_rate" if "errors" in new else "drift"
                text = f"alarms: {', '.join(sorted(new))}"
                failure = AgentFailure(kind, text, evidence=evidence)
                yield Sighting(scope, failure, info.term, status.cycles)


# the watchdog

WATCHDOG = "recovery/watchdog"
"""The lease of the one watchdog that acts."""
SIDE_BY_SIDE = 8
"""Failures that are answered at the same time, of different agents."""


@dataclass(frozen=True, slots=True)
class AnsweredFailure:
    """What a watchdog did about a failure."""

    agent: Scope
    failure: AgentFailure
    outcome: str
    """recovered, told (the function was called), passed (another runs it by now, or the agent is no
    more) or failed"""
    report: RecoveryReport | None = None
    """Of the recovery, if there was one now."""
    error: str = ""
    """Why it failed: it is tried again after a pause, or, if this watchdog has lost its own lease
    meanwhile, by the one that acts now."""


@faced
class Watchdog(Startable):
    """Finds agents that failed, and has them recovered.

    Looked at are the agents that somebody runs, by their leases (`Agents`, `Loop`): no beat for as
    long as the lease lasts (`missed_beats`), or the process is known to be gone (`agent_crash`);
    alarms of `Drift` that stand for two looks (`drift`, `error_rate`); and what a scrubber tells
    (`report`) of states that cannot be read or have lost their newest entries.
    Of `states`, whoever runs them, the newest one is given to the checks of `recovery` (`validate`)
    when it is another: one that they refuse is `validation_failed`.
    Each failure is kept, then answered by `recovery` (one with its defaults if none is given), with
    the agent's lease taken from whoever holds it, so that what that one still writes is refused;
    then `restart(id)` is called, for example `agents.spawn`, if somebody ran it. Or
    `on_failure(scope, failure)` is called instead. What fails is tried again after a pause that
    doubles from a second to an hour, and so is damage that is still there behind its answer.

    Every `interval` seconds there is a look, inside the block or between `start` and `stop`. Of
    several processes one acts; another takes over `lease` seconds after its end, and counts silent
    seconds from then on.
    """

    @calls("on_failure", "restart")
    def __init__(
        self,
        store: Any,
        recovery: Recovery | None = None,
        *,
        on_failure: Callable[[Scope, AgentFailure], Any] | None = None,
        restart: Callable[[str], Any] | None = None,
        states: Sequence[Scope] = (),
        interval: float = 5.0,
        lease: float = 30.0,
    ) -> None:
        core = given_core(store, "a watchdog")
        if recovery is not None and not isinstance(recovery, Recovery):
            raise InvalidInputError("recovery is a Recovery of the same face")
        if recovery is not None and on_failure is not None:
            raise InvalidInputError("give either recovery or on_failure: one of them answers")
        for name, function in (("on_failure", on_failure), ("restart", restart)):
            if function is not None:
                check_function(function, name)
        check_seconds(interval, "interval")
        check_own(core, "that recovery", recovery and recovery._handle)
        self._handle = StoreHandle(core)
        self._store = Store(self._handle)
        self._core = core
        self._recovery = recovery or Recovery(store)
        self._on_failure = on_failure
        self._restart = restart
        self._states = dict.fromkeys(states, 0)
        """Whose newest state is checked, and the entry up to which it was found good."""
        self._beats = Beats(core)
        self._astray = Astray(core)
        self._sightings = Sightings(self._handle)
        self._lease: Lease | None = None
        self._looking = threading.Lock()
        """One look at a time: two would find, and answer, the same failure."""
        self._at_work: set[Scope] = set()
        """Those of which a failure is being answered."""
        self._answers: list[Future[AnsweredFailure]] = []
        self._over = False
        core.check_store()
        self._asking = Asking(core, WATCHDOG, lease, None, None)
        self._background = Background(core, "holdfast-watchdog", interval, self._turn, self._wait)

    @calls()
    @here(awaited=True)
    def start(self) -> None:
        """Watch in a thread, until `stop` or the end of the store."""
        self._core.check_writable()
        self._background.start()

    @ends
    def stop(self) -> None:
        """Stop after what is being answered; another process may take over at once.

        A function that answers a failure may call it, and does not wait for its own end.
        """
        self._background.stop()
        self._over = True
        self._wait()
        self._settle()

    def _wait(self) -> None:
        """Until nothing is at work, unless that is what calls this: it would wait for itself."""
        if not is_at_work(self):
            with self._looking:
                wait(self._answers)

    def _settle(self) -> None:
        """Give the lease back behind the last answer, whoever waits for it."""
        if self._over and not self._at_work:
            lease, self._lease = self._lease, None
            if lease is not None:
                lease.release()

    @property
    def acting(self) -> bool:
        """Whether this is the watchdog that acts, as far as it knows."""
        return self._lease is not None and self._lease.held

    @calls()
    @writes
    def look(self) -> list[AnsweredFailure]:
        """Look once, now, and answer what is found; nothing if another watchdog acts.

        What is being answered since an earlier look is left to that.
        """
        over, asked = self._ask()
        wait(asked)
        return over + [one.result() for one in asked]

    def _turn(self) -> None:
        def tell(answer: Future[AnsweredFailure]) -> None:
            """Log what was raised where nobody waits for it."""
            error = answer.exception()
            if error is not None and not isinstance(error, StoreClosedError):
                log.error("the watchdog could not do its work just now", exc_info=error)

        for one in self._ask()[1]:
            one.add_done_callback(tell)

    def _ask(self) -> tuple[list[AnsweredFailure], list[Future[AnsweredFailure]]]:
        """Look, and have it answered: one that takes long keeps nothing found later waiting. What
        was done at once, and what was begun."""
        with self._looking, at_work(self):
            lease = self._lease
            if lease is None or not lease.held:
                lease = self._asking.take()
                if lease is None:  # another acts
                    return [], []
                self._lease, self._over = lease, False
            with lease.fencing(), acting("watchdog"):
                self._recovery._mend_notices()  # beside them it keeps what it found
                over = self._pass_over()
                for sighting in self._found():
                    if sighting.scope not in self._at_work:  # else it is found again, if still so
                        self._sightings.add(sighting)
                due = [one for one in self._sightings.due() if one.agent not in self._at_work]
                return over, self._answer_all(due)

    def _pass_over(self) -> list[AnsweredFailure]:
        """Let go of failures of who runs an agent no more, or of an agent that is no more: no newer
        one waits for them."""
        over = []
        for one in self._sightings.all():
            if one.agent in self._at_work:
                continue
            try:
                check_there(self._handle, one.agent)
                past = one.failure.kind not in DAMAGED and self._is_over(one, self._info(one.agent))
            except (ScopeNotFoundError, ScopeErasedError):
                past = True  # it was deleted or erased, and does not begin anew by itself
            if past:
                self._sightings.answered(one)
                over.append(AnsweredFailure(one.agent, one.failure, "passed"))
        return over

    def _info(self, scope: Scope) -> LeaseInfo | None:
        """The lease of who runs an agent, if there was ever one."""
        name = lease_of(scope)
        return self._core.leases.info(name) if name is not None else None

    def unanswered(self) -> list[UnansweredFailure]:
        """Failures that were found and are not answered, those found first in front."""
        return self._sightings.all()

    # finding

    def _found(self) -> Iterator[Sighting]:
        yield from self._beats.silent()
        yield from self._astray.found(self._sightings.cycle)
        for scope in self._states:
            if why := self._refusal(scope):
                failure = AgentFailure("validation_failed", why[:1000])
                yield Sighting(scope, failure, self._runs(scope))

    def _refusal(self, scope: Scope) -> str | None:
        """Why the checks refuse the newest state of a scope; damage is found by other ways."""
        handle = self._handle.line(scope)
        with suppress(ScopeNotFoundError, StateIntegrityError):  # the other looks tell of that
            head = handle.place()[2]
            if not head or self._states.get(scope) == head:
                return None
            checks = self._recovery._settings.validate
            why = refusal(checks, View(handle.view(head)))
            if why is None and scope in self._states:
                self._states[scope] = head
            return why
        return None

    @writes
    def report(self, findings: Sequence[Finding]) -> None:
        """Take note of damage that a scrubber found (`found=watchdog.report`), to be answered by
        the watchdog that acts."""
        for text, those in grouped(findings).items():
            failure = found_failure(those)
            if text and failure is not None and self._is_damaged(scope := Scope.parse(text)):
                self._sightings.add(Sighting(scope, failure, self._runs(scope)))
        self._background.wake()

    def _runs(self, scope: Scope) -> int:
        """The term under which somebody runs a scope, or ran it and is gone; 0 if nobody does."""
        info = self._info(scope)
        return info.term if info is not None and runs(info) else 0

    def _is_damaged(self, scope: Scope) -> bool:
        """Whether the newest state of a scope is damaged, or newer ones are lost."""
        if is_own(scope):
            return False  # whoever recovers next mends what is kept of recoveries
        try:
            return damage_of(self._handle.line(scope), self._recovery._tails) is not None
        except ScopeNotFoundError:
            return False  # it is gone

    # answering

    def _answer_all(self, found: list[UnansweredFailure]) -> list[Future[AnsweredFailure]]:
        """Side by side: one that takes long keeps no other waiting."""
        if not found:
            return []
        self._at_work |= {one.agent for one in found}  # before any begins: it may stop all
        pool = ThreadPoolExecutor(min(SIDE_BY_SIDE, len(found)), "holdfast-answers")
        try:  # under the cause and the leases of here
            begun = [pool.submit(copy_context().run, self._answered, one) for one in found]
        finally:
            pool.shutdown(wait=False)
        self._answers = [*begun, *(one for one in self._answers if not one.done())]
        return begun

    def _answered(self, one: UnansweredFailure) -> AnsweredFailure:
        try:
            return self._answered_or_kept(one)
        except LeaseLostError as error:  # others that were answered have their answers all the same
            return AnsweredFailure(
                one.agent, one.failure, "failed", error=f"LeaseLostError: {error}"
            )
        finally:
            self._at_work.discard(one.agent)
            self._settle()

    def _answered_or_kept(self, one: UnansweredFailure) -> AnsweredFailure:
        report, recovered, restart = None, one.recovered, self._restart
        try:
            name, info = lease_of(one.agent), self._info(one.agent)
            if self._is_over(one, info):
                outcome = "passed"
            elif self._on_failure is not None:
                if one.failure.kind in SILENT and name is not None:
                    self._core.leases.break_(name, one.term)
                called(self._on_failure, one.agent, one.failure)
                outcome = "told"
            else:
                outcome = "recovered"
                if not recovered:
                    with ExitStack() as held:
                        if name is not None:
                            # In place of who holds it, whose writes are refused from now on. That
                            # may be a watchdog that was killed: this is the one that acts.
                            if info is not None and info.owner is not None:
                                self._core.leases.break_(name, info.term)
                            owner = f"{WATCHDOG_OWNER}{os.getpid()}"
                            lease = self._store.lease(name, duration=LEASE, wait=0, owner=owner)
                            held.enter_context(lease)
                        report = self._recovery.recover(one.agent, one.failure)
                        if one.cycle:
                            Drift(self._store.scope(one.agent)).reset()
                            self._sightings.settled(one)
                    recovered = True
                if restart is not None and name is not None and one.term:
                    called(restart, one.agent.id)
        except Exception as error:  # whatever it is, it is tried again
            # Where only the agent's own lease was taken from it, that is an answer that failed.
            lost = isinstance(error, LeaseLostError) and not self.acting
            if lost or isinstance(error, StoreClosedError):
                raise  # another watchdog goes on with it
            log.warning("%s: %s was answered in vain", one.agent, one.failure.kind, exc_info=True)
            if one.cycle and isinstance(error, RecoveryFailedError) and restart is not None:
                # One that ran, if astray, until it was to be recovered, and is where it was, is
                # started: from then on it is another one's, and the next alarm is answered.
                undone = self._recovery._named_by(one.agent, error)
                if undone is not None and undone.status == ROLLED_BACK:
                    try:
                        called(restart, one.agent.id)
                    except Exception:  # theirs; the answer failed in any case
                        log.warning("%s: it was not started again", one.agent, exc_info=True)
            text = f"{type(error).__name__}: {error}"
            self._sightings.failed(one, text, recovered=recovered)
            return AnsweredFailure(one.agent, one.failure, "failed", error=text)
        if one.failure.kind in DAMAGED and self._is_damaged(one.agent):
            self._sightings.failed(one, "it is still damaged")  # so not at each look
        else:
            self._sightings.answered(one)
        return AnsweredFailure(one.agent, one.failure, outcome, report)

    def _is_over(self, one: UnansweredFailure, info: LeaseInfo | None) -> bool:
        """Whether somebody else runs the agent by now, so that this failure is none of theirs.

        Damage is theirs, too, as long as it is there.
        """
        if one.failure.kind == "validation_failed" and one.agent in self._states:
            return self._refusal(one.agent) is None
        if one.failure.kind in DAMAGED:
            return one.tries > 0 and not self._is_damaged(one.agent)
        if one.cycle and not one.recovered:
            with suppress(StateIntegrityError):  # then it is answered
                if status_of(self._handle.line(one.agent)).begun >= one.cycle:
                    return True  # the alarm was answered otherwise
        if info is None or info.owner is None or info.owner.startswith(WATCHDOG_OWNER):
            return False
        return info.term != one.term
