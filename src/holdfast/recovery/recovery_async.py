"""Recoveries on the async face: what reads or writes runs on a thread."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from holdfast.agents.machines.definition import MachineDefinition
from holdfast.agents.machines.machine_async import Machine
from holdfast.agents.machines.records import MachineRecovered
from holdfast.errors import HoldfastError
from holdfast.recovery import quarantine
from holdfast.recovery import recovery as blocking
from holdfast.recovery.context import StepFunction
from holdfast.recovery.failures import Failure
from holdfast.recovery.group import TIMEOUT
from holdfast.recovery.group_report import GroupRecoveryReport
from holdfast.recovery.health import BUDGET, Health
from holdfast.recovery.machine_transitions import Machines
from holdfast.recovery.notices import PAGE, Notice
from holdfast.recovery.plan import RecoveryPlan
from holdfast.recovery.procedure import Procedure
from holdfast.recovery.quarantine import Quarantined
from holdfast.recovery.report import SLOW, RecoveryReport, RecoveryStatistics
from holdfast.recovery.run import Progress
from holdfast.recovery.strategies import Strategy
from holdfast.recovery.strategy_order import Proposal
from holdfast.store.names.loop_calls import OnLoop
from holdfast.store.names.scope import Scope
from holdfast.store.names.threads import read_away, to_the_end
from holdfast.store.state import State

WAITING = 32
"""Recoveries that one `Recovery` has at work, or waiting for each other, at a time."""


def machines_on_loop(
    store: Any, machines: Mapping[str, MachineDefinition] | None, calls: OnLoop
) -> Machines:
    """Machines whose functions run on the loop of who asks, as all functions of machines do."""

    def recover(state: State, definition: MachineDefinition, name: str) -> MachineRecovered:
        machine = Machine(store.scope(state.scope), definition, name)
        answer: MachineRecovered = calls.wait(machine.recover())
        return answer

    return Machines(machines, recover)


class Recovery:
    """Recovers the agents of a store; see `holdfast.sync.Recovery`.

    Functions of yours run on threads, and get the state as `holdfast.sync` has it; they may be
    async. Only functions of `machines` run on the loop, as they always do.
    """

    def __init__(
        self,
        store: Any,
        *,
        procedures: Iterable[Procedure | Mapping[str, Any]] = (),
        steps: Mapping[str, StepFunction] | None = None,
        strategies: Mapping[str, Strategy] | None = None,
        order: Sequence[str] | Mapping[str, Sequence[str]] | None = None,
        copies: Sequence[Any] = (),
        defaults: Mapping[str, Any] | None = None,
        validate: Sequence[Callable[[Any], Any]] = (),
        machines: Mapping[str, MachineDefinition] | None = None,
    ) -> None:
        self._calls = OnLoop()
        self._waiting = ThreadPoolExecutor(WAITING, "holdfast-recovering")
        """For what may wait for others, long: nothing else is to wait for a thread meanwhile."""
        self._blocking = blocking.Recovery(
            store,
            procedures=procedures,
            steps=steps,
            strategies=strategies,
            order=order,
            copies=copies,
            defaults=defaults,
            validate=validate,
            machines=machines_on_loop(store, machines, self._calls),
        )

    def register(self, type: str, function: StepFunction) -> None:
        """Give a type of step of your own its function."""
        self._blocking.register(type, function)

    def set(self, procedure: Procedure | Mapping[str, Any]) -> Procedure:
        """Add a procedure, or put it in place of the one of its id.

        Refused with `ProcedureValidationError`, which lists everything that is wrong, and with
        `UnknownStepTypeError` if it has steps of a type that is not there.
        """
        return self._blocking.set(procedure)

    def procedures(self) -> list[Procedure]:
        """All procedures, those set last first: the first that has a failure's trigger is used."""
        return self._blocking.procedures()

    def select(self, failure: Failure, procedure: str | None = None) -> Procedure:
        """The procedure of an id, or the one that answers a failure."""
        return self._blocking.select(failure, procedure)

    async def recover(
        self,
        agent: Any,
        failure: Failure | str = "unknown",
        *,
        procedure: str | None = None,
        point: Any = None,
        at: Any = None,
        wait: float = 0,
        progress: Progress | None = None,
    ) -> RecoveryReport:
        """Bring an agent back to a good state, by the procedure that answers the failure.

        If another recovers it, that is waited for `wait` seconds, then `LeaseHeldError`. What did
        not succeed was undone, and raises `RecoveryFailedError`, which names the report. A scope
        that is not there is refused, unless there are copies or defaults to begin it anew from (one
        that was erased: defaults); so is a point or a time that it does not have. What `progress`
        raises is logged.
        """
        self._calls.use()
        return await to_the_end(
            self._blocking.recover,
            agent,
            failure,
            procedure=procedure,
            point=point,
            at=at,
            wait=wait,
            pool=self._waiting,
            progress=progress,
        )

    async def recover_each(
        self,
        agents: Iterable[Any],
        failure: Failure | str = "unknown",
        *,
        procedure: str | None = None,
        wait: float = 0,
        beside: int = 32,
    ) -> dict[Scope, RecoveryReport | HoldfastError]:
        """Recover many agents, each by itself, `beside` at a time, in common commits.

        Gives each one's report, also of a recovery that failed; or the error, if none was begun.
        """
        self._calls.use()
        return await to_the_end(
            self._blocking.recover_each,
            agents,
            failure,
            procedure=procedure,
            wait=wait,
            pool=self._waiting,
            beside=beside,
        )

    async def recover_group(
        self,
        agents: Iterable[Any],
        failure: Failure | str = "unknown",
        *,
        point: Any = None,
        at: Any = None,
        wait: float = 0,
        timeout: float = TIMEOUT,
    ) -> GroupRecoveryReport:
        """Bring several agents back to one moment: all of them in one commit, or none.

        The moment is the newest group of checkpoints (`CheckpointGroups.create`) with all of them
        that is whole and passes every check, `point` (a group, its name, or a checkpoint of it),
        the time `at`, or, for failures that leave the state alone, now. Letters that they sent each
        other since, in the change in which they processed another, are taken back: they are sent
        again. If there is no such moment, or reading and checking them takes more than `timeout`
        seconds, `RecoveryFailedError`, and nothing was changed.
        """
        self._calls.use()
        return await to_the_end(
            self._blocking.recover_group,
            agents,
            failure,
            point=point,
            at=at,
            wait=wait,
            pool=self._waiting,
            timeout=timeout,
        )

    async def resume_groups(
        self, agent: Any = None, *, wait: float = 0
    ) -> list[GroupRecoveryReport]:
        """Go on with recoveries of groups, of all or of those with an agent, whose process ended
        in the middle.

        Gives the report of each that ended, well or not. If somebody is at one, that is waited for
        `wait` seconds, then it is left out. One whose agents were changed by others since it began
        is ended as failed, and changes nothing.
        """
        return await to_the_end(self._blocking.resume_groups, agent, pool=self._waiting, wait=wait)

    async def group_reports(self, limit: int | None = None) -> list[GroupRecoveryReport]:
        """What became of the recoveries of groups, the newest first."""
        return await read_away(self._blocking.group_reports, limit)

    async def plan(
        self,
        agent: Any,
        failure: Failure | str = "unknown",
        *,
        procedure: str | None = None,
        point: Any = None,
        at: Any = None,
    ) -> RecoveryPlan:
        """What `recover` would do; nothing is written, and nothing is waited for."""
        return await read_away(
            self._blocking.plan, agent, failure, procedure=procedure, point=point, at=at
        )

    async def proposal(self, agent: Any, kind: str) -> Proposal:
        """The order of strategies that an agent's past recoveries speak for.

        It is used unless `order` pins another one.
        """
        return await read_away(self._blocking.proposal, agent, kind)

    async def resume(
        self, agent: Any, *, wait: float = 0, progress: Progress | None = None
    ) -> list[RecoveryReport]:
        """Go on with recoveries of an agent whose process ended in the middle.

        Gives nothing if there are none, or if somebody is at it, for `wait` seconds. The lease of a
        process that died runs out half a minute after its end. One with steps of a type that is not
        known here cannot go on: it is undone, which ends it. One whose agent was changed by others
        since it began is ended as failed, and changes nothing: recover the agent anew. Gives also
        reports of those that did not succeed.
        """
        self._calls.use()
        return await to_the_end(
            self._blocking.resume, agent, pool=self._waiting, wait=wait, progress=progress
        )

    async def abandon(self, id: str, reason: str = "") -> RecoveryReport | GroupRecoveryReport:
        """End a recovery that was begun and never ended, of an agent or of a group.

        The agents are left as they are, and nobody goes on with it; what it had put back stands,
        and the report says so. If somebody is at it, `LeaseHeldError`.
        """
        return await to_the_end(self._blocking.abandon, id, reason)

    async def reports(self, agent: Any, limit: int | None = None) -> list[RecoveryReport]:
        """What became of an agent's recoveries, the newest first."""
        return await read_away(self._blocking.reports, agent, limit)

    async def report(self, agent: Any, id: str) -> RecoveryReport:
        """What became of one recovery."""
        return await read_away(self._blocking.report, agent, id)

    async def statistics(self, agent: Any = None, *, slow: float = SLOW) -> RecoveryStatistics:
        """How recoveries went, of one agent or of all, with groups that it was part of.

        Alarms tell of those that failed, took longer than `slow` seconds, or are still running
        after that time.
        """
        return await read_away(self._blocking.statistics, agent, slow=slow)

    async def notices(self, since: int = 0, limit: int = PAGE) -> list[Notice]:
        """Notices of recoveries of the whole store that ended, from a number on."""
        return await read_away(self._blocking.notices, since, limit)

    async def deliver(
        self, state: Any, consumer: str, function: Callable[[Any, Notice], Any]
    ) -> int:
        """Give a consumer each notice exactly once; how many there were.

        `function` gets a change of the consumer's state and the notice: what it writes there is
        committed together with the note that the notice was had, in whatever process.
        """
        return await to_the_end(self._blocking.deliver, state, consumer, function)

    async def health(
        self,
        agent: Any = None,
        *,
        budget: float = BUDGET,
        url: str = "",
        key: str | None = None,
        signer: str | None = None,
        durability: str = "full",
    ) -> Health:
        """How healthy the store, or one agent, is: from 0 to 100, with reasons and next steps.

        `budget` is for `verify`, in seconds, and again for the agents one by one. With what the
        store was opened with (`url`, `key`, `signer`, `durability`), it is also told whether
        secrets lie beside the store and whether the disk is full.
        """
        return await read_away(
            self._blocking.health,
            agent,
            budget=budget,
            url=url,
            key=key,
            signer=signer,
            durability=durability,
        )

    def quarantine(self, agent: Any) -> Quarantine:
        """The damaged rows of an agent that recoveries set aside: list, get, release."""
        return Quarantine(self._blocking.quarantine(agent))


class Quarantine:
    """The damaged rows of one agent that were set aside."""

    def __init__(self, quarantine: quarantine.Quarantine) -> None:
        self._blocking = quarantine

    async def list(self) -> list[Quarantined]:
        """All that was set aside, released ones included."""
        return await read_away(self._blocking.list)

    async def get(self, id: str) -> Quarantined:
        """One of them."""
        return await read_away(self._blocking.get, id)

    async def release(self, id: str, reason: str = "") -> Quarantined:
        """Say that one is dealt with; its copy is let go, and stays in the history alone.

        One that was released before stays as it is, with the reason and time of then.
        """
        return await to_the_end(self._blocking.release, id, reason)
