"""Finding failure on the async face: what reads or writes runs on a thread.

Async functions of users run on the loop from which they were given, plain ones on the thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any

from holdfast.agents.machines.definition import MachineDefinition
from holdfast.errors import InvalidInputError
from holdfast.recovery import boot as booting
from holdfast.recovery import scrub, watchdog
from holdfast.recovery.boot import BootReport
from holdfast.recovery.failures import Failure
from holdfast.recovery.recovery_async import Recovery, machines_on_loop
from holdfast.recovery.scrub import Scrubbed, ScrubStatus
from holdfast.recovery.sightings import Unanswered
from holdfast.recovery.watchdog import Answered
from holdfast.store import state
from holdfast.store.names.loop_calls import OnLoop
from holdfast.store.names.scope import Scope
from holdfast.store.names.threads import read_away, surely, to_the_end
from holdfast.store.proof.verify_report import Finding


class Scrubber:
    """Verifies a store little by little, and heals what one of its copies still has.

    `copies` are other open stores of the same lineage. A slice takes about `budget` seconds, and
    every `interval` seconds there is one, inside the block or between `start` and `stop`; of
    several processes, one does it. Damaged rows are set aside; what cannot be healed is told to
    `found(findings)`, once; if that raises, it is logged, and told again by the next pass. Each
    slice reads the feed from its beginning, and nodes of the scope that it goes on with: give a
    large store a large budget, seldom. Of the rows that belong to no scope, those of the directory
    and of erased subjects are healed; the feed and those of change ids are verified alone. Without
    a copy, rows whose content follows from the rest are made again.
    """

    def __init__(
        self,
        store: Any,
        *,
        copies: Sequence[Any] = (),
        budget: float = 1.0,
        interval: float = 60.0,
        found: Callable[[Sequence[Finding]], Any] | None = None,
    ) -> None:
        self._calls = OnLoop()
        self._blocking = scrub.Scrubber(
            store,
            copies=copies,
            budget=budget,
            interval=interval,
            found=self._calls.wrap(found, "found"),
        )

    async def __aenter__(self) -> Scrubber:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.stop()

    async def start(self) -> None:
        """Scrub in a thread, until `stop` or the end of the store."""
        self._calls.use()
        self._blocking.start()

    async def stop(self) -> None:
        """Stop, after the slice at work."""
        await surely(self._blocking.stop)

    async def slice(self) -> Scrubbed | None:
        """Look at the next part of the store, now; None if another is at it."""
        self._calls.use()
        return await to_the_end(self._blocking.slice)

    async def status(self) -> ScrubStatus:
        """How far it is."""
        return await read_away(self._blocking.status)


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
        self._calls = OnLoop()
        self._scrubber = scrubber
        self._recovery = recovery
        self._blocking = watchdog.Watchdog(
            store,
            _recovery(recovery),
            on_failure=self._calls.wrap(on_failure, "on_failure"),
            restart=self._calls.wrap(restart, "restart"),
            scrubber=scrubber._blocking if isinstance(scrubber, Scrubber) else scrubber,
            error_rate=error_rate,
            interval=interval,
            lease=lease,
        )

    async def __aenter__(self) -> Watchdog:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.stop()

    def _use(self) -> None:
        self._calls.use()
        for part in (self._scrubber, self._recovery):
            if part is not None:
                part._calls.use()

    async def start(self) -> None:
        """Watch in a thread, until `stop` or the end of the store."""
        self._use()
        self._blocking.start()

    async def stop(self) -> None:
        """Stop after what is being answered; another process may take over at once.

        A function that answers a failure may call it, and does not wait for its own end.
        """
        await surely(self._blocking.stop)

    @property
    def acting(self) -> bool:
        """Whether this is the watchdog that acts, as far as it knows."""
        return self._blocking.acting

    async def look(self) -> list[Answered]:
        """Look once, now, and answer what is found; nothing if another watchdog acts.

        What is being answered since an earlier look is left to that.
        """
        self._use()
        return await to_the_end(self._blocking.look)

    async def unanswered(self) -> list[Unanswered]:
        """Failures that were found and are not answered, those found first in front."""
        return await read_away(self._blocking.unanswered)


def _recovery(given: Any) -> Any:
    if given is not None and not isinstance(given, Recovery):
        raise InvalidInputError("recovery is a Recovery of the same face")
    return given._blocking if given is not None else None


async def boot(
    store: Any,
    *,
    recovery: Recovery | None = None,
    scopes: Iterable[Any] | None = None,
    machines: Mapping[str, MachineDefinition] | None = None,
    ready: Callable[[], Any] | None = None,
    requests: Callable[[state.State, Any], Any] | None = None,
    effects: Callable[[state.State, Any], Any] | None = None,
    check: bool = True,
    wait: float = 0.0,
) -> BootReport:
    """Bring what was unfinished to its end, by the choice that was declared for it.

    Call it before anything works on these scopes (all, if none are given): agents that run under a
    lease are left alone, others cannot be told from those that were interrupted; leases of
    processes that died are waited for, `wait` seconds in all. `ready()` is waited for first. Then
    recoveries of groups go on, and for each scope: recoveries go on; a state that cannot be read
    is recovered (`check=False`: not looked at); operations are undone, unless they were to be kept;
    transitions are settled as `machines` (definitions by the names of machines; those of `recovery`
    count, too) declare; effects
    with an idempotency key are to be done again, about others `effects(state, effect)` says done,
    repeat or drop, or nothing; handovers are reconciled; and letters that wait are given to
    `requests(state, letter)`, which may be called again after the next start: they stay in the
    mailbox until they are processed. What nobody declared anything about is `left` in the report.
    """
    calls = OnLoop()
    calls.use()
    if isinstance(recovery, Recovery):
        recovery._calls.use()
    return await to_the_end(
        booting.run,
        store,
        _recovery(recovery),
        scopes,
        machines_on_loop(store, machines, calls),
        calls.wrap(ready, "ready"),
        calls.wrap(requests, "requests"),
        calls.wrap(effects, "effects"),
        check,
        wait,
    )
