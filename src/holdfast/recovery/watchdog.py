"""The watchdog on the blocking face; `holdfast.sync` exports it."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Set
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from holdfast.agents.drift import Drift
from holdfast.errors import (
    InvalidInputError,
    LeaseHeldError,
    LeaseLostError,
    RecoveryFailedError,
    ScopeErasedError,
    ScopeNotFoundError,
    StateIntegrityError,
    StoreClosedError,
)
from holdfast.recovery.changes_of_others import first_of_others
from holdfast.recovery.failures import DAMAGED, Failure, found_failure
from holdfast.recovery.records import ROLLED_BACK, check_there, is_own, notices_scope
from holdfast.recovery.recovery import Recovery
from holdfast.recovery.report import RecoveryReport
from holdfast.recovery.run_slot import LEASE
from holdfast.recovery.scrub import Scrubbed, Scrubber, grouped
from holdfast.recovery.sightings import Sightings, Unanswered
from holdfast.recovery.user_calls import called, log
from holdfast.recovery.watchdog_beats import (
    SILENT,
    WATCHDOG_OWNER,
    Astray,
    Beats,
    Sighting,
    damage_of,
    lease_of,
    runs,
    status_of,
)
from holdfast.recovery.watchdog_work import Busy
from holdfast.store.commit.core import Core
from holdfast.store.history.handle import StoreHandle
from holdfast.store.lease.lease import Lease
from holdfast.store.lease.lease_cells import LeaseInfo
from holdfast.store.lease.wait import Asking
from holdfast.store.names.arguments import check_function, check_own, check_seconds
from holdfast.store.names.cause import acting
from holdfast.store.names.scope import Scope
from holdfast.store.state import Store
from holdfast.store.upkeep.background import Background

WATCHDOG = "recovery/watchdog"
"""The lease of the one watchdog that acts."""
SIDE_BY_SIDE = 8
"""Failures that are answered at the same time, of different agents."""


@dataclass(frozen=True, slots=True)
class Answered:
    """What a watchdog did about a failure."""

    agent: Scope
    failure: Failure
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


class Watchdog:
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

    def __init__(
        self,
        store: Any,
        recovery: Recovery | None = None,
        *,
        on_failure: Callable[[Scope, Failure], Any] | None = None,
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
        self._busy = Busy(self._release)
        self._waits: dict[Scope, Sighting] = {}
        """Damage that was found while another failure of its scope was answered."""
        Asking(core, WATCHDOG, lease, 0, None)  # refuses what can be no duration
        self._background = Background(
            core, "holdfast-watchdog", interval, self._turn, self._busy.wait
        )

    def __enter__(self) -> Watchdog:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Watch in a thread, until `stop` or the end of the store."""
        self._core.check_writable()
        self._background.start()

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
            except LeaseHeldError:
                return [], []
        lease = self._lease
        if lease is None:
            return [], []
        at_work = self._busy.scopes()
        with lease.fencing(), acting("watchdog"):
            try:
                over, due = self._pass_over(at_work), self._due(at_work)
            except StateIntegrityError as error:  # what it keeps itself is damaged
                failure = Failure("corruption_detected", str(error)[:1000])
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
        except Exception as error:
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
        except Exception as error:
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
        except Exception:
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
        with suppress(StateIntegrityError):
            if status_of(handle).begun >= one.cycle:
                return True
        if self._on_failure is not None:
            return False
        return first_of_others(handle, "", one.head) is not None

    def _head(self, agent: Scope) -> int | None:
        with suppress(StateIntegrityError):
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
