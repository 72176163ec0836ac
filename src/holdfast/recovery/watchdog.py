"""The watchdog on the blocking face; `holdfast.sync` exports it."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Set
from concurrent.futures import Executor, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from contextvars import copy_context
from dataclasses import dataclass, replace
from typing import Any, Self, TypeVar

import msgspec

from holdfast.agents.drift import STATUS, Drift, Status
from holdfast.errors import (
    InvalidInputError,
    InvalidScopeError,
    LeaseHeldError,
    LeaseLostError,
    RecoveryFailedError,
    ScopeErasedError,
    ScopeNotFoundError,
    StateIntegrityError,
    StoreClosedError,
)
from holdfast.recovery.changes_of_others import first_of_others
from holdfast.recovery.failures import DAMAGED, AgentFailure, found_failure, grouped, log
from holdfast.recovery.records import ROLLED_BACK, check_there, is_own, notices_scope
from holdfast.recovery.recovery import Recovery
from holdfast.recovery.report import RecoveryReport
from holdfast.recovery.run import LEASE
from holdfast.recovery.scrub import Scrubbed, Scrubber
from holdfast.recovery.sightings import SILENT, Sighting, Sightings, Unanswered
from holdfast.recovery.strategies import check_state
from holdfast.recovery.tails import Tails, tail_text
from holdfast.store.inner import (
    Asking,
    Core,
    Lease,
    LeaseInfo,
    LineHandle,
    StoreHandle,
    lease_parts,
    running_lease,
)
from holdfast.store.names.arguments import check_function, check_own, check_seconds
from holdfast.store.names.background import Background, Startable, at_work, is_at_work
from holdfast.store.names.cause import acting
from holdfast.store.names.face import calls, ends, faced, here, writes
from holdfast.store.names.scope import Scope
from holdfast.store.names.threads import called
from holdfast.store.state import State
from holdfast.store.store import Store

# What a watchdog looks at: leases without beats, processes that are gone, alarms of drift.

WATCHDOG_OWNER, BOOT_OWNER = "watchdog ", "boot"
"""How the owner of an agent's lease begins while a watchdog has it, and who it is at boot."""
FEWEST = 20
"""Cycles before which nothing is said about the share of them that fails."""


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


def _silence(info: LeaseInfo, quiet: float) -> AgentFailure:
    evidence = {"owner": info.owner, "term": info.term, "silent": round(quiet, 3)}
    if info.gone:
        return AgentFailure("agent_crash", "the process that ran it is gone", evidence=evidence)
    text = f"not heard for {quiet:.3g} s"
    return AgentFailure("missed_beats", text, evidence=evidence)


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


def damage_of(handle: LineHandle, tails: Tails) -> AgentFailure | None:
    """What is wrong with the newest state of a scope; damage that is past harms nobody now."""
    try:
        check_state(handle, handle.timeline, handle.place()[2])
    except StateIntegrityError as error:  # the newest state; what is past harms nobody
        return AgentFailure("corruption_detected", str(error)[:1000])
    tail = tails.lost(handle.scope)
    if tail is not None:  # nothing in what is left of it shows that
        return AgentFailure("structure_invalid", f"lost: {tail_text(tail)}")
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
            except StateIntegrityError as error:  # it cannot be looked at: that is the failure
                failure = AgentFailure("corruption_detected", str(error)[:1000])
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
            return Sighting(scope, AgentFailure(kind, text, evidence=evidence))
        if status.cycles - max(answered, status.begun) < FEWEST:
            return None
        now = Drift(State(handle)).status()
        if now.looked_at >= FEWEST and now.error_rate > self._most:
            evidence["error_rate"] = now.error_rate
            text = f"{now.error_rate:.0%} of its cycles fail"
            return Sighting(scope, AgentFailure("error_rate", text, evidence=evidence))
        return None


# What a watchdog is doing at this moment, and what is to be done when that is over.

_T = TypeVar("_T")


class Busy:
    """Looks, and answers to failures, one for each scope; `release` is called behind the last.

    The last one after `end`, that is: until then there may be more.
    """

    def __init__(self, release: Callable[[], Any]) -> None:
        self._release = release
        self._changed = threading.Condition()
        """Answers end on threads of their own, beside looks and whoever waits for both."""
        self._looks = 0
        self._answers: set[Scope] = set()
        self.over = False

    @contextmanager
    def work(self) -> Iterator[None]:
        """A block that is waited for."""
        with self._changed:
            self._looks += 1
        try:
            with at_work(self):
                yield
        finally:
            with self._changed:
                self._looks -= 1
            self._settle()

    def scopes(self) -> set[Scope]:
        """Those of which a failure is being answered."""
        with self._changed:
            return set(self._answers)

    def begin(
        self, pool: Executor, scope: Scope, function: Callable[[Any], _T], argument: Any
    ) -> Future[_T]:
        """Have a failure of a scope answered in a thread, under the cause and leases of here."""
        with self._changed:
            self._answers.add(scope)
        return pool.submit(copy_context().run, self._answer, scope, function, argument)

    def _answer(self, scope: Scope, function: Callable[[Any], _T], argument: Any) -> _T:
        try:
            with at_work(self):
                return function(argument)
        finally:
            with self._changed:
                self._answers.discard(scope)
            self._settle()

    def end(self) -> None:
        """Release when all of it is over; that is waited for, unless it is what calls this."""
        self.over = True
        self.wait()
        self._settle()

    def wait(self) -> None:
        """Until nothing is at work, unless that is what calls this."""
        if not is_at_work(self):
            with self._changed:
                self._changed.wait_for(lambda: not self._looks and not self._answers)

    def _settle(self) -> None:
        with self._changed:
            self._changed.notify_all()
            if self.over and not self._looks and not self._answers:
                self._release()


# the watchdog

WATCHDOG = "recovery/watchdog"
"""The lease of the one watchdog that acts."""
SIDE_BY_SIDE = 8
"""Failures that are answered at the same time, of different agents."""


@dataclass(frozen=True, slots=True)
class Answered:
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


_Asked = tuple[list[Answered], list[Future[Answered]]]
"""What a look did at once, and what it has begun."""


def _tell(answer: Future[Answered]) -> None:
    """Log what was raised where nobody waits for it."""
    error = answer.exception()
    if error is not None and not isinstance(error, StoreClosedError):
        log.error("the watchdog could not do its work just now", exc_info=error)


class _NotStarted(Exception):
    """An agent is recovered, and was not started; the cause says why."""


@faced
class Watchdog(Startable):
    """Finds agents that failed, and has them recovered.

    Looked at are the agents that somebody runs, by their leases (`Agents`, `Loop`): no beat for as
    long as the lease lasts (`missed_beats`), or the process is known to be gone (`agent_crash`);
    alarms of `Drift` that stand for two looks (`drift`, `error_rate`), and a share of failed cycles
    above `error_rate`; a state that cannot be read; and all that a `scrubber` finds of states that
    cannot be read or have lost their newest entries, also if another was told of it before.
    Each failure is kept, then answered by `recovery` (one with its defaults if none is given), with
    the agent's lease taken from whoever holds it, so that what that one still writes is refused;
    then `restart(id)` is called, for example `agents.spawn`, if somebody ran it. Or
    `on_failure(scope, failure)` is called instead. What fails is tried again after a pause that
    doubles from a second to an hour; damage that is answered and still there, not before there is
    more of it.

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
        scrubber: Scrubber | None = None,
        error_rate: float = 0.5,
        interval: float = 5.0,
        lease: float = 30.0,
    ) -> None:
        core = getattr(store, "_core", None)
        if not isinstance(core, Core):
            raise InvalidInputError("a watchdog is made from an open store")
        if recovery is not None and not isinstance(recovery, Recovery):
            raise InvalidInputError("recovery is a Recovery of the same face")
        if recovery is not None and on_failure is not None:
            raise InvalidInputError("give either recovery or on_failure: one of them answers")
        for name, function in (("on_failure", on_failure), ("restart", restart)):
            if function is not None:
                check_function(function, name)
        if scrubber is not None and not isinstance(scrubber, Scrubber):
            raise InvalidInputError("scrubber is a Scrubber of the same face")
        if type(error_rate) not in (int, float) or not 0 <= error_rate <= 1:
            raise InvalidInputError("error_rate is a share from 0 to 1")
        check_seconds(interval, "interval")
        check_own(core, "that recovery", recovery and recovery._handle)
        check_own(core, "that scrubber", scrubber and scrubber._handle)
        self._handle = StoreHandle(core)
        self._store = Store(self._handle)
        self._core = core
        self._recovery = recovery or Recovery(store)
        self._on_failure = on_failure
        self._restart = restart
        self._scrubber = scrubber
        self._beats = Beats(core)
        self._astray = Astray(core, error_rate)
        self._sightings = Sightings(self._handle)
        self._duration = lease
        self._lease: Lease | None = None
        self._looking = threading.Lock()
        """One look at a time: two would find, and answer, the same failure."""
        self._busy = Busy(self._release)
        self._waits: dict[Scope, Sighting] = {}
        """Damage that was found while another failure of its scope was answered."""
        Asking(core, WATCHDOG, lease, 0, None)  # refuses what can be no duration
        self._background = Background(
            core, "holdfast-watchdog", interval, self._turn, self._busy.wait
        )

    @calls()
    @here
    def __enter__(self) -> Self:
        return super().__enter__()

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
        self._busy.end()

    def _release(self) -> None:
        lease, self._lease = self._lease, None
        if lease is not None:
            lease.release()

    @property
    def acting(self) -> bool:
        """Whether this is the watchdog that acts, as far as it knows."""
        return self._lease is not None and self._lease.held

    @calls()
    @writes
    def look(self) -> list[Answered]:
        """Look once, now, and answer what is found; nothing if another watchdog acts.

        What is being answered since an earlier look is left to that.
        """
        over, asked = self._ask()
        wait(asked)
        return over + [one.result() for one in asked]

    def _turn(self) -> None:
        for one in self._ask()[1]:
            one.add_done_callback(_tell)

    def _ask(self) -> _Asked:
        """Look, and have it answered: one that takes long keeps nothing found later waiting."""
        with self._looking, self._busy.work():
            return self._look()

    def _look(self) -> _Asked:
        if not self.acting:
            try:
                self._lease = Asking(self._core, WATCHDOG, self._duration, 0, None).take()
                self._busy.over = False
            except LeaseHeldError:  # another acts
                return [], []
        lease = self._lease
        if lease is None:
            return [], []
        at_work = self._busy.scopes()
        with lease.fencing(), acting("watchdog"):
            try:
                over, due = self._pass_over(at_work), self._due(at_work)
            except StateIntegrityError as error:  # what it keeps itself is damaged
                failure = AgentFailure("corruption_detected", str(error)[:1000])
                self._recovery.recover(notices_scope(), failure)
                over, due = self._pass_over(at_work), self._due(at_work)
            return over, self._answer_all(due)

    def _pass_over(self, at_work: Set[Scope]) -> list[Answered]:
        """Let go of failures of who runs an agent no more, or of an agent that is no more: no newer
        one waits for them."""
        over = []
        for one in self._sightings.all():
            if one.agent not in at_work and self._is_over_now(one):
                self._sightings.answered(one)
                over.append(Answered(one.agent, one.failure, "passed"))
        return over

    def _is_over_now(self, one: Unanswered) -> bool:
        try:
            check_there(self._handle, one.agent)
        except (ScopeNotFoundError, ScopeErasedError):
            return True  # it was deleted or erased, and does not begin anew by itself
        name = lease_of(one.agent)
        if one.failure.kind in DAMAGED or name is None:
            return False
        return self._is_over(one, self._core.leases.info(name))

    def _due(self, at_work: Set[Scope]) -> list[Unanswered]:
        for sighting in self._found():
            if sighting.scope not in at_work:
                self._sightings.add(sighting)
            elif sighting.failure.kind in DAMAGED:  # all else is found again, if it is still so
                self._waits[sighting.scope] = sighting
        return [one for one in self._sightings.due() if one.agent not in at_work]

    def unanswered(self) -> list[Unanswered]:
        """Failures that were found and are not answered, those found first in front."""
        return self._sightings.all()

    # finding

    def _found(self) -> Iterator[Sighting]:
        waits, self._waits = self._waits, {}
        yield from (one for scope, one in waits.items() if self._is_damaged(scope))
        yield from self._beats.silent()
        lasting = self._sightings.lasting()
        for one in self._astray.found(self._sightings.cycle):
            if one.failure.kind not in DAMAGED or one.scope not in lasting:
                yield one
        scrubbed = self._scrubber.slice() if self._scrubber is not None else None
        if scrubbed is not None:
            yield from self._damaged(scrubbed, lasting)
        if self._scrubber is None or (scrubbed is not None and scrubbed.finished):
            for scope in lasting:
                if not self._is_damaged(scope):
                    self._sightings.mended(scope)

    def _damaged(self, scrubbed: Scrubbed, lasting: Set[Scope]) -> Iterator[Sighting]:
        """All damage that is left, for another may have been told of it, or one that was killed.

        What was answered and lasts nevertheless is answered again if there is more of it.
        """
        new = grouped(scrubbed.findings)
        for text, findings in grouped(scrubbed.left).items():
            failure = found_failure(findings)
            if not text or failure is None:
                continue
            scope = Scope.parse(text)
            if (text in new or scope not in lasting) and self._is_damaged(scope):
                yield Sighting(scope, failure, term=self._runs(scope))

    def _runs(self, scope: Scope) -> int:
        """The term under which somebody runs a scope, or ran it and is gone; 0 if nobody does."""
        name = lease_of(scope)
        info = self._core.leases.info(name) if name is not None else None
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

    def _answer_all(self, found: list[Unanswered]) -> list[Future[Answered]]:
        """Side by side: one that takes long keeps no other waiting."""
        if not found:
            return []
        pool = ThreadPoolExecutor(min(SIDE_BY_SIDE, len(found)), "holdfast-answers")
        try:
            return [self._busy.begin(pool, one.agent, self._answered, one) for one in found]
        finally:
            pool.shutdown(wait=False)

    def _answered(self, one: Unanswered) -> Answered:
        try:
            return self._answered_or_kept(one)
        except LeaseLostError as error:  # others that were answered have their answers all the same
            return Answered(one.agent, one.failure, "failed", error=f"LeaseLostError: {error}")

    def _is_out(self, error: Exception) -> bool:
        """Whether this watchdog can do nothing more; where an agent's own lease was taken from it,
        that is an answer that failed."""
        return isinstance(error, StoreClosedError) or (
            isinstance(error, LeaseLostError) and not self.acting
        )

    def _answered_or_kept(self, one: Unanswered) -> Answered:
        try:
            done = self._answer(one)
        except Exception as error:  # whatever it is, it is tried again
            if self._is_out(error):
                raise  # another watchdog goes on with it
            log.warning("%s: %s was answered in vain", one.agent, one.failure.kind, exc_info=True)
            cause = error.__cause__ if isinstance(error, _NotStarted) else error
            recovered = one.recovered or cause is not error
            text = f"{type(cause).__name__}: {cause}"
            term = self._started_again(one) if self._was_undone(one, error) else one.term
            head = self._head(one.agent)
            self._sightings.failed(one, text, term=term, head=head, recovered=recovered)
            return Answered(one.agent, one.failure, "failed", error=text)
        lasts = one.failure.kind in DAMAGED and self._is_damaged(one.agent)
        self._sightings.answered(one, lasts=lasts)
        return done

    def _answer(self, one: Unanswered) -> Answered:
        name = lease_of(one.agent)
        info = self._core.leases.info(name) if name is not None else None
        if self._is_over(one, info) or self._is_past(one):
            return Answered(one.agent, one.failure, "passed")
        if self._on_failure is not None:
            if one.failure.kind in SILENT and name is not None:
                self._core.leases.break_(name, one.term)
            called(self._on_failure, one.agent, one.failure)
            return Answered(one.agent, one.failure, "told")
        report = None
        if not one.recovered:
            with self._in_place_of(name, info):
                report = self._recovery.recover(one.agent, one.failure)
                if one.cycle:
                    Drift(self._store.scope(one.agent)).reset()
                    self._sightings.settled(one)
        if self._restart is not None and name is not None and one.term:
            self._start(self._restart, one.agent)
        return Answered(one.agent, one.failure, "recovered", report)

    def _start(self, restart: Callable[[str], Any], agent: Scope) -> None:
        try:
            called(restart, agent.id)
        except Exception as error:  # a user's function: tried again later
            if self._is_out(error):
                raise  # another watchdog goes on with it
            raise _NotStarted from error

    def _was_undone(self, one: Unanswered, error: Exception) -> bool:
        if not isinstance(error, RecoveryFailedError):
            return False
        report = self._recovery._named_by(one.agent, error)
        return report is not None and report.status == ROLLED_BACK

    def _started_again(self, one: Unanswered) -> int:
        """Start an agent that ran, if astray, until it was to be recovered, and that is where it
        was; the term of whoever runs it then."""
        name = lease_of(one.agent)
        if not one.cycle or self._restart is None or name is None:
            return one.term
        try:
            called(self._restart, one.agent.id)
        except Exception:  # logged; the answer failed in any case
            log.warning("%s: it was not started again", one.agent, exc_info=True)
        info = self._core.leases.info(name)
        return info.term if info is not None and info.owner is not None else one.term

    def _is_over(self, one: Unanswered, info: LeaseInfo | None) -> bool:
        """Whether somebody else runs the agent by now, so that this failure is none of theirs.

        Damage is theirs, too, as long as it is there.
        """
        if info is None or info.owner is None or info.owner.startswith(WATCHDOG_OWNER):
            return False
        if one.failure.kind in DAMAGED:
            return one.tries > 0 and not self._is_damaged(one.agent)
        return info.term != one.term

    def _is_past(self, one: Unanswered) -> bool:
        """Whether the alarm of one astray was answered otherwise, or a recovery that is tried again
        would undo what was written since."""
        if not one.cycle or one.recovered:
            return False
        handle = self._handle.line(one.agent)
        with suppress(StateIntegrityError):  # then it is answered
            if status_of(handle).begun >= one.cycle:
                return True
        if self._on_failure is not None:
            return False
        return first_of_others(handle, "", one.head) is not None

    def _head(self, agent: Scope) -> int | None:
        with suppress(StateIntegrityError):  # then it is not compared
            return int(self._handle.line(agent).place()[2])
        return None

    @contextmanager
    def _in_place_of(self, name: str | None, info: LeaseInfo | None) -> Iterator[None]:
        """Hold an agent's lease in place of who holds it, whose writes are refused from now on.

        That may be a watchdog that was killed: there is one that acts, and it is this one.
        """
        if name is None:
            yield
            return
        if info is not None and info.owner is not None:
            self._core.leases.break_(name, info.term)
        owner = f"{WATCHDOG_OWNER}{os.getpid()}"
        with self._store.lease(name, duration=LEASE, wait=0, owner=owner):
            yield
