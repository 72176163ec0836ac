"""What runs beside agents, by one table: each part is started, watched, started again and stopped.

A part that dies (its thread ends, a turn of it fails, it cannot be started) is made anew after a
pause that doubles from a second to a minute. How often that was, and why, is an alert, by which
`health` names it in every process.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from holdfast.errors import HoldfastError, LeaseHeldError, LeaseLostError, StoreClosedError
from holdfast.recovery.failure_kinds import log
from holdfast.store.inner import Asking, Core, Lease, running_lease
from holdfast.store.names.background import Background, Startable
from holdfast.store.names.cause import acting
from holdfast.store.names.scope import Scope

LOOK = 1.0
"""Seconds between two looks at the parts, and at a lease that another holds."""
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0
"""Seconds before a part that died is started again: at first, and after many times."""
STARTING, RUNNING, WAITING, FAILING, STOPPED = (
    "starting",
    "running",
    "waiting",
    "failing",
    "stopped",
)


@dataclass(frozen=True, slots=True)
class PartStatus:
    """How one part is."""

    name: str
    about: str
    state: str
    """starting, running, waiting (another process does it), failing or stopped"""
    restarts: int
    """How often it was started again, here."""
    error: str
    """How it died last, here; empty if it never did."""

    def __str__(self) -> str:
        again = f", started again {self.restarts} times" if self.restarts else ""
        why = f": {self.error}" if self.error else ""
        return f"{self.name}: {self.state} ({self.about}){again}{why}"


class Job(Startable):
    """Work in a thread, from `start` to `stop`; `work` is a turn of it."""

    def __init__(self, core: Core, name: str, interval: float) -> None:
        self._core = core
        self._name = name
        self._background = Background(core, f"holdfast-{name}", interval, self.work, self.end)

    def start(self) -> None:
        """Begin."""
        self._core.check_writable()
        self._background.start()

    def stop(self) -> None:
        """End, after the turn at work."""
        self._background.stop()

    @abstractmethod
    def work(self) -> Any:
        """Do a turn; gives the seconds until the next as a float, or None for the usual time."""

    def end(self) -> None:
        """Called behind the last turn."""


class Chore(Job):
    """What is due again and again, in one of several processes: the one that holds its lease."""

    def __init__(
        self, core: Core, name: str, interval: float, turn: Callable[[], Any], lease: float
    ) -> None:
        super().__init__(core, name, interval)
        self._turn = turn
        self._duration = lease
        self._lease: Lease | None = None

    @property
    def acting(self) -> bool:
        """Whether this process does the work."""
        return self._lease is not None and self._lease.held

    def work(self) -> Any:
        """Do a turn, unless another process does it."""
        if not self.acting:
            self.end()
            asking = Asking(self._core, f"holdfast/{self._name}", self._duration, None, None)
            self._lease = asking.take()
        lease = self._lease
        if lease is None:  # another does it
            return LOOK
        try:
            with lease.fencing(), acting("holdfast", reason=self._name):
                return self._turn()
        except LeaseLostError:
            if not lease.over:  # it is one of those that the turn itself took
                raise
            self.end()  # another does it from now on
            return LOOK

    def end(self) -> None:
        """Let another process take over."""
        lease, self._lease = self._lease, None
        if lease is not None:
            lease.release()


class AgentPart(Job):
    """An agent that is run here in a loop, unless another process runs it.

    `loop` makes a `Loop`, of either face, and `wait` waits for what its `run` gives.
    """

    def __init__(
        self, core: Core, scope: Scope, loop: Callable[[], Any], wait: Callable[[Any], Any]
    ) -> None:
        super().__init__(core, "agent", LOOK)
        self._lease = running_lease(scope)
        self._make, self._wait = loop, wait
        self._loop: Any = None
        self._over = False

    def stop(self) -> None:
        """Let it end after the step at work."""
        self._over = True
        if self._loop is not None:
            self._loop.stop()
        super().stop()

    @property
    def acting(self) -> bool:
        """Whether it runs here."""
        return self._loop is not None

    def work(self) -> Any:
        """Run it to its end; one that is done, or was stopped, is left alone."""
        held = self._core.leases.info(self._lease)
        if self._over or (held is not None and held.owner is not None and held.gone):
            return LOOK / 5  # a crash is answered first, by the watchdog
        self._loop = self._make()
        try:
            self._over = self._wait(self._loop.run()).outcome in ("done", "stopped")
        except LeaseHeldError:  # another runs it
            return LOOK
        finally:
            self._loop = None
        return LOOK


@dataclass(frozen=True, slots=True)
class PartPlan:
    """A row of the table: what a part is for, and how it is made; it is made anew each time."""

    about: str
    make: Callable[[], Any]


class _Part:
    def __init__(self, name: str, plan: PartPlan) -> None:
        self.name, self.plan = name, plan
        self.made: Any = None
        self.restarts, self.error, self.pause, self.due = 0, "", FIRST_PAUSE, 0.0
        self.failing = False

    @property
    def background(self) -> Background | None:
        return getattr(self.made, "_background", None)

    def wrong(self) -> str:
        """Why it does not work; empty if it does."""
        thread = self.background
        if thread is None:
            return self.error or "it was not started"
        return thread.error or ("" if thread.alive else "its thread has ended")

    def worked(self) -> bool:
        """Whether it did something well since it was made."""
        thread = self.background
        if thread is None or not thread.alive:
            return False
        return thread.turns > 0 or (isinstance(self.made, AgentPart) and self.made.acting)

    def status(self) -> PartStatus:
        thread, state = self.background, STOPPED
        if self.failing:
            state = FAILING
        elif thread is not None:
            acts = getattr(self.made, "acting", getattr(self.made, "running", True)) is not False
            state = RUNNING if acts else WAITING if thread.turns else STARTING
        return PartStatus(self.name, self.plan.about, state, self.restarts, self.error)


class Supervisor(Startable):
    """Starts the parts of a table, starts those again that die, and stops all of them."""

    def __init__(self, core: Core, plans: Mapping[str, PartPlan]) -> None:
        self._core = core
        self._parts = [_Part(name, plan) for name, plan in plans.items()]
        self._background = Background(core, "holdfast-supervisor", LOOK, self._turn)

    def start(self) -> None:
        """Start all parts, in their order; one that cannot be started is tried again."""
        self._core.check_writable()
        for part in self._parts:
            self._begin(part)
        self._background.start()

    def stop(self) -> None:
        """Stop all parts, the last first, each after what it is at."""
        self._background.stop()
        for part in reversed(self._parts):
            made, part.made, part.failing = part.made, None, False
            if made is not None:
                try:
                    made.stop()
                except StoreClosedError:  # then it has ended
                    continue
                except Exception:  # the others are stopped, too
                    log.exception("%s was not stopped well", part.name)

    def part(self, name: str) -> Any:
        """The part of a name, as it is at work now; None if it is not."""
        return next((one.made for one in self._parts if one.name == name), None)

    def status(self) -> tuple[PartStatus, ...]:
        """How each part is, in the order of the table."""
        return tuple(part.status() for part in self._parts)

    def _begin(self, part: _Part) -> None:
        try:
            part.made = part.plan.make()
            part.made.start()
        except StoreClosedError:
            raise
        except Exception as error:  # whatever it is, it is tried again
            part.made, part.error = None, f"{type(error).__name__}: {error}"[:1000]

    def _turn(self) -> None:
        now = self._core.clock.ticks()
        for part in self._parts:
            wrong = part.wrong()
            if wrong and (not part.failing or now >= part.due):
                part.error = wrong[:1000]
                part.due, part.pause = now + part.pause, min(2 * part.pause, LONGEST_PAUSE)
                if not part.failing:
                    part.failing = True
                    log.error("%s died, and is started again: %s", part.name, part.error)
                    continue
                part.restarts += 1
                made, part.made = part.made, None
                if made is not None:
                    with suppress(HoldfastError):  # it is dead
                        made.stop()
                self._begin(part)  # whether it works then, later looks say
            elif not wrong and part.failing and part.worked():
                part.failing, part.pause = False, FIRST_PAUSE
                log.warning("%s works again", part.name)
