"""Recoveries on the blocking face.

recovery = Recovery(store)
report = recovery.recover("agent:7", "agent_crash")
print(report)
"""

from __future__ import annotations

import contextvars
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from holdfast.errors import (
    HoldfastError,
    InvalidInputError,
    InvalidValueError,
    LeaseHeldError,
    ProcedureNotFoundError,
    ProcedureValidationError,
    RecoveryFailedError,
    ScopeNotFoundError,
    StateIntegrityError,
)
from holdfast.recovery.builtin import BUILT_IN, STANDARD
from holdfast.recovery.choice import Proposal, outcomes, propose
from holdfast.recovery.context import ANY, Context, Settings, StepFunction
from holdfast.recovery.failures import (
    COPY,
    DEFAULTS,
    JOURNAL,
    KEYS,
    NEWEST,
    NOTHING,
    Failure,
    kind_of,
)
from holdfast.recovery.health import BUDGET, Health, health_of
from holdfast.recovery.notices import PAGE, Notice, deliver, notices
from holdfast.recovery.notices import scope as notices_scope
from holdfast.recovery.placement import Placement
from holdfast.recovery.procedure import Procedure
from holdfast.recovery.quarantine import Quarantine
from holdfast.recovery.records import (
    Record,
    Records,
    given_scope,
    is_own,
    readable,
    recovered_agents,
)
from holdfast.recovery.reports import (
    RecoveryReport,
    RecoveryStatistics,
    report_of,
    statistics_of,
)
from holdfast.recovery.running import Progress, Running, lease_name
from holdfast.recovery.steps import STEPS
from holdfast.recovery.strategies import Strategy, look
from holdfast.recovery.together import GroupRecoveryReport, Together
from holdfast.store.arguments import (
    check_count,
    check_function,
    check_limit,
    check_seconds,
    check_text,
    listed,
)
from holdfast.store.blocking import State, Store
from holdfast.store.cause import acting
from holdfast.store.handles import StoreHandle
from holdfast.store.scopes import Scope

LEASE = 30.0
"""Seconds after which the recovery of a process that died can be taken up by another."""


OWN_ORDER = (NOTHING, KEYS, JOURNAL, NEWEST, COPY, DEFAULTS)
"""How the scopes that keep recoveries are mended: what loses least first."""
REMEMBERED = 200
"""Recoveries of an agent that the order of strategies is learned from: the newest."""


@dataclass(frozen=True, slots=True)
class RecoveryPlan:
    """What a recovery would do."""

    agent: Scope
    failure: Failure
    procedure: Procedure
    strategy: str | None
    """None if none serves."""
    point: str | None
    lost: str
    passed: dict[str, str]
    """Strategies that would not serve, and why."""
    keys: tuple[str, ...] = ()
    """The keys that would go back, if not all of them."""

    def __str__(self) -> str:
        head = f"{self.agent}: {self.failure.kind} is answered by {self.procedure.id}"
        lines = [f"  {step.key}" for step in self.procedure.steps]
        lines += [f"  passed over: {name}: {why}" for name, why in self.passed.items()]
        served = f"{self.strategy}, {self.point or 'nothing'}" if self.strategy else "none serves"
        keys = [f"  keys: {', '.join(self.keys)}"] if self.keys else []
        return "\n".join([head, *lines, f"  strategy: {served}", *keys, f"  lost: {self.lost}"])


class Recovery:
    """Recovers the agents of a store, one recovery at a time for each agent, in any process.

    `procedures` stand over the built-in ones of their ids, and answer their triggers before them.
    `steps` are types of steps of your own: functions of the context and the step's action.
    `copies` are other open stores that hold copies of the agents, `defaults` what an agent begins
    with if nothing of it can be read. `validate` are functions that get the recovered state: what
    is not None or True fails the recovery. `strategies` are ways of your own to a good state, and
    `order` pins the order in which they are tried: one for all kinds of failure, or a mapping from
    kinds to orders ("" for those that it does not name). Groups take of an order what leads to one
    moment (`as_it_is`, `newest_valid`), and nothing from copies.
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
    ) -> None:
        self._handle = StoreHandle(store._core)
        self._store = Store(self._handle)
        self.steps: dict[str, StepFunction] = {**STEPS}
        for name, function in (steps or {}).items():
            self.register(name, function)
        core = self._handle.core
        self._settings = Settings.of(core, strategies, order, copies, defaults, validate)
        self._together = Together(self._handle, self._settings)
        self._procedures: dict[str, Procedure] = {}
        for one in (*BUILT_IN, *procedures):
            self.set(one)

    # procedures

    def register(self, type: str, function: StepFunction) -> None:
        """Give a type of step of your own its function."""
        check_text(type, "the type of a step", 100, least=1)
        check_function(function, "the function of a step")
        self.steps[type] = function

    def set(self, procedure: Procedure | Mapping[str, Any]) -> Procedure:
        """Add a procedure, or put it in place of the one of its id.

        Refused with `ProcedureValidationError`, which lists everything that is wrong, and with
        `UnknownStepTypeError` if it has steps of a type that is not there.
        """
        made = procedure if isinstance(procedure, Procedure) else Procedure.of(procedure)
        made.check(self.steps)
        try:
            self._handle.core.codec.plain(made.data())  # it is kept with each recovery
        except InvalidValueError as error:
            raise ProcedureValidationError([f"it cannot be kept: {error}"]) from None
        self._procedures.pop(made.id, None)
        self._procedures[made.id] = made
        return made

    def procedures(self) -> list[Procedure]:
        """All procedures, those set last first: the first that has a failure's trigger is used."""
        return list(reversed(self._procedures.values()))

    def select(self, failure: Failure, procedure: str | None = None) -> Procedure:
        """The procedure of an id, or the one that answers a failure."""
        if procedure is not None:
            if procedure not in self._procedures:
                raise ProcedureNotFoundError(
                    f"there is no procedure {procedure!r}; there are {', '.join(self._procedures)}"
                )
            return self._procedures[procedure]
        for one in self.procedures():
            if failure.kind in one.triggers:
                return one
        return self._procedures["standard_recovery"]

    # recovering

    def recover(
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
        that is not there is refused, unless there are copies or defaults to begin it anew from.
        """
        scope = given_scope(agent)
        asked = _failure(failure, point, at)
        chosen = self._chosen(scope, asked, procedure)
        self._check_there(scope)
        if progress is not None:
            check_function(progress, "progress")
        with self._store.lease(lease_name(scope), duration=LEASE, wait=wait):
            self._mend_records(scope)
            self._end_unfinished(scope)
            return self._go_on(Records(self._handle, scope).begin(asked, chosen), progress)

    def _chosen(self, scope: Scope, asked: Failure, procedure: str | None) -> Procedure:
        """What answers a failure; of records themselves, what changes nothing but damage."""
        if not is_own(scope):
            return self.select(asked, procedure)
        if procedure is not None or asked.point is not None or asked.at is not None:
            raise InvalidInputError(
                f"{scope} keeps what recoveries did: it is mended where it is damaged, and neither "
                "put back to a point nor recovered by another procedure"
            )
        return STANDARD

    def _mend_records(self, scope: Scope) -> None:
        """See to it that recoveries of a scope can be kept, and those that were read.

        Damaged rows are set aside, with what is kept of this in the records of the records.
        """
        records = Records(self._handle, scope)
        why = records.look()[1]
        if why is not None:
            self.recover(records.handle.scope, Failure("corruption_detected", why[:1000]))

    def _check_there(self, scope: Scope) -> None:
        settings = self._settings
        if settings.copies or settings.defaults is not None:
            return
        try:
            there = bool(self._handle.line(scope).place()[2])
        except StateIntegrityError:
            there = True
        if not there:
            raise ScopeNotFoundError(f"there is no scope {scope} in this store to recover")

    def _end_unfinished(self, scope: Scope) -> None:
        for unfinished in Records(self._handle, scope).running():
            self._end(unfinished, None)

    def _end(self, record: Record, progress: Progress | None) -> RecoveryReport:
        with suppress(RecoveryFailedError):  # it is over, and its report says how
            self._go_on(record, progress)
        return report_of(record)

    def recover_each(
        self,
        agents: Iterable[Any],
        failure: Failure | str = "unknown",
        *,
        procedure: str | None = None,
        wait: float = 0,
        beside: int = 32,
    ) -> dict[Scope, RecoveryReport | HoldfastError]:
        """Recover many agents, each by itself, `beside` at a time: what they write is committed
        together.

        Gives each one's report, also of a recovery that failed; or the error, if none was begun.
        """
        check_count(beside, "beside")
        scopes = list(dict.fromkeys(given_scope(one) for one in listed(agents, "agents")))

        def one(scope: Scope) -> RecoveryReport | HoldfastError:
            try:
                return self.recover(scope, failure, procedure=procedure, wait=wait)
            except RecoveryFailedError as error:
                return self.report(scope, error.recovery) if error.recovery else error
            except HoldfastError as error:
                return error

        context = contextvars.copy_context()
        with ThreadPoolExecutor(max(beside, 1), "recovery") as pool:
            done = pool.map(lambda scope: context.copy().run(one, scope), scopes)
            return dict(zip(scopes, done, strict=True))

    def recover_group(
        self,
        agents: Iterable[Any],
        failure: Failure | str = "unknown",
        *,
        point: Any = None,
        at: Any = None,
        wait: float = 0,
    ) -> GroupRecoveryReport:
        """Bring several agents back to one moment: all of them in one commit, or none.

        The moment is the newest group of checkpoints (`CheckpointGroups.create`) with all of them
        that is whole and passes every check, the group called `point`, the time `at`, or, for
        failures that leave the state alone, now. Letters that they sent each other since, in the
        change in which they processed another, are taken back: they are sent again. If there is no
        such moment, `RecoveryFailedError`, and nothing was changed.
        """
        asked = _failure(failure, point, at)
        scopes = [given_scope(agent) for agent in listed(agents, "agents")]
        self._mend_groups()
        return self._together.recover(scopes, asked, wait, self._end_unfinished)

    def resume_groups(self, *, wait: float = 0) -> list[GroupRecoveryReport]:
        """Go on with recoveries of groups whose process ended in the middle.

        If somebody is at one, that is waited for `wait` seconds, then `LeaseHeldError`.
        """
        self._mend_groups()
        return self._together.resume(wait)

    def _mend_groups(self) -> None:
        """What is kept of groups, of notices and of scrubbing is in one scope."""
        try:
            self._together.reports(None)
        except StateIntegrityError as error:
            self.recover(notices_scope(), Failure("corruption_detected", str(error)[:1000]))

    def group_reports(self, limit: int | None = None) -> list[GroupRecoveryReport]:
        """What became of the recoveries of groups, the newest first."""
        return self._together.reports(limit)

    def plan(
        self,
        agent: Any,
        failure: Failure | str = "unknown",
        *,
        procedure: str | None = None,
        point: Any = None,
        at: Any = None,
    ) -> RecoveryPlan:
        """What `recover` would do; nothing is written, and nothing is waited for."""
        asked = _failure(failure, point, at)
        scope = given_scope(agent)
        chosen = self._chosen(scope, asked, procedure)
        records = Records(self._handle, scope)
        context = self._context(records.draft(asked, chosen))
        looked = look(context, context.order())
        target = looked.target
        return RecoveryPlan(
            context.agent,
            asked,
            chosen,
            target.strategy if target is not None else None,
            target.point if target is not None else None,
            target.lost if target is not None else "nothing",
            looked.passed,
            target.keys if target is not None else (),
        )

    def proposal(self, agent: Any, kind: str) -> Proposal:
        """The order of strategies that an agent's past recoveries speak for.

        It is used unless `order` pins another one.
        """
        check_text(kind, "the kind of a failure", 100, least=1)
        records = Records(self._handle, given_scope(agent))
        fixed = kind_of(kind).strategies
        return propose(kind, fixed, outcomes(records.all(REMEMBERED)))

    def resume(
        self, agent: Any, *, wait: float = 0, progress: Progress | None = None
    ) -> list[RecoveryReport]:
        """Go on with recoveries of an agent whose process ended in the middle.

        Gives nothing if there are none, or if somebody is at it, for `wait` seconds. The lease of a
        process that died runs out half a minute after its end. One with steps of a type that is not
        known here cannot go on: it is undone, which ends it. Gives also reports of those that did
        not succeed.
        """
        scope = given_scope(agent)
        records = Records(self._handle, scope)
        if not records.unsettled():
            return []
        try:
            with self._store.lease(lease_name(scope), duration=LEASE, wait=wait):
                self._mend_records(scope)
                return [self._end(one, progress) for one in records.running()]
        except LeaseHeldError:
            return []  # somebody is at it

    def _go_on(self, record: Record, progress: Progress | None) -> RecoveryReport:
        unknown = record.procedure.unknown(self.steps)
        lost = "what is kept of it was damaged" if not record.procedure.steps else ""
        with acting("recovery", correlation=f"recovery/{record.id}"):
            running = Running(self._context(record), self.steps, progress)
            if lost or unknown:
                why = lost or f"Unknown recovery step type: {', '.join(unknown)}"
                running.abandon(f"it cannot go on here: {why}")
            else:
                running.run()
        return report_of(record)

    def _context(self, record: Record) -> Context:
        settings, kind = self._settings, record.failure.kind
        if is_own(record.agent):  # checks and defaults are for agents
            settings = Settings(settings.copies, {}, order={ANY: OWN_ORDER})
        elif settings.pinned(kind) is None:
            settings = replace(settings, order={kind: self.proposal(record.agent, kind).order})
        return Context(self._handle, record, settings)

    def reports(self, agent: Any, limit: int | None = None) -> list[RecoveryReport]:
        """What became of an agent's recoveries, the newest first."""
        check_limit(limit)
        return readable(Records(self._handle, given_scope(agent)).all(limit), report_of)

    def report(self, agent: Any, id: str) -> RecoveryReport:
        """What became of one recovery."""
        check_text(id, "the id of a recovery", 100, least=1)
        return report_of(Records(self._handle, given_scope(agent)).get(id))

    def statistics(self, agent: Any = None) -> RecoveryStatistics:
        """How recoveries went, of one agent or of all, with alarms over what took too long."""
        agents = [given_scope(agent)] if agent is not None else recovered_agents(self._handle)
        found = [one for scope in agents for one in self.reports(scope)]
        return statistics_of(found)

    # those who want to know

    def notices(self, since: int = 0, limit: int = PAGE) -> list[Notice]:
        """Notices of recoveries of the whole store that came to a good end, from a number on."""
        check_count(since, "since")
        check_count(limit, "limit")
        return notices(self._handle, since, limit)

    def deliver(self, state: Any, consumer: str, function: Callable[[Any, Notice], Any]) -> int:
        """Give a consumer each notice exactly once; how many there were.

        `function` gets a change of the consumer's state and the notice: what it writes there is
        committed together with the note that the notice was had, in whatever process.
        """
        check_function(function, "the function that gets notices")
        return deliver(self._handle, State(state._handle), consumer, function)

    # how it is, and what was damaged

    def health(
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
        check_seconds(budget, "budget")
        scope = given_scope(agent) if agent is not None else None
        placement = Placement(url, key, signer, durability)
        return health_of(self._handle, scope, budget=budget, placement=placement)

    def quarantine(self, agent: Any) -> Quarantine:
        """The damaged rows of an agent that recoveries set aside: list, get, release."""
        return Quarantine(self._handle, given_scope(agent))


def _failure(failure: Failure | str, point: Any, at: Any) -> Failure:
    if not isinstance(failure, str | Failure):
        raise InvalidInputError("a failure is its kind, for example agent_crash, or a Failure")
    if isinstance(failure, str):
        failure = Failure(failure, point=point, at=at)
    elif point is not None or at is not None:
        failure = replace(failure, point=point, at=at)
    return failure.check()
