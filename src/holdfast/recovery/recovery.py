"""Recoveries on the blocking face.

recovery = Recovery(store)
report = recovery.recover("agent:7", "agent_crash")
print(report)
"""

from __future__ import annotations

import contextvars
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from holdfast.agents.machines.definition import MachineDefinition
from holdfast.errors import (
    HoldfastError,
    InvalidInputError,
    InvalidValueError,
    LeaseHeldError,
    MissingError,
    ProcedureValidationError,
    RecoveryFailedError,
    StateIntegrityError,
)
from holdfast.recovery.agent_group import Together
from holdfast.recovery.changes_of_others import first_of_others
from holdfast.recovery.context import (
    ANY,
    Context,
    Settings,
    StepFunction,
    Strategy,
    machines_on_loop,
)
from holdfast.recovery.failure_kinds import (
    KEPT_ALERTS,
    KEPT_PROCEDURES,
    NOTHING,
    ORDER,
    PREFIX,
    SIGHTINGS,
    AgentFailure,
    kind_of,
    log,
)
from holdfast.recovery.heal import as_if_healed, copies_of, damage_of
from holdfast.recovery.health import BUDGET, Health, health_of, placement
from holdfast.recovery.lost_entries import Tails, depth_for
from holdfast.recovery.procedure import (
    BUILT_IN,
    FAILED_TRANSITION,
    RESTORE,
    SETTLE,
    STANDARD,
    VALIDATE,
    Procedure,
    twice,
)
from holdfast.recovery.quarantine import Quarantine
from holdfast.recovery.records import (
    FAILED,
    NOTICES,
    PAGE,
    RUNNING,
    KeptProcedure,
    ProcedureBook,
    Record,
    Records,
    RecoveryNotice,
    check_end,
    check_there,
    correlation_of,
    deliver,
    given_core,
    given_scope,
    is_own,
    notices,
    notices_scope,
    readable,
    recovered_agents,
)
from holdfast.recovery.report import (
    SLOW,
    RecoveryPlan,
    RecoveryReport,
    RecoveryStatistics,
    report_of,
    with_tail,
)
from holdfast.recovery.run import LEASE, Progress, Running, recovering
from holdfast.recovery.steps import STEPS, action_problems, losing_by
from holdfast.recovery.strategies import STRATEGIES, Looked, look
from holdfast.storage import url_of
from holdfast.store.inner import StoreHandle, erased_ids, moment
from holdfast.store.names.arguments import (
    by_name,
    check_count,
    check_function,
    check_limit,
    check_seconds,
    check_text,
    listed,
)
from holdfast.store.names.cause import acting
from holdfast.store.names.face import calls, faced, here, writes
from holdfast.store.names.scope import Scope
from holdfast.store.names.threads import safe_point, undivided
from holdfast.store.state import State
from holdfast.store.store import Store

WAITING = 32
"""Recoveries that one `Recovery` has at work, or waiting for each other, at a time, on the async
face: nothing else is to wait for a thread meanwhile."""


@faced
class Recovery:
    """Recovers the agents of a store, one recovery at a time for each agent, in any process.

    `procedures` stand over the built-in ones of their ids, and answer their triggers before them;
    two of one id are refused.
    `steps` are types of steps of your own: functions of the context and the step's action.
    `copies` are other open stores that hold copies of the agents, `defaults` what an agent begins
    with if nothing of it can be read. `validate` are functions that get a view of each state that
    may be returned to, and then the recovered one (of a group: each agent as it was then, alone):
    what is not None or True refuses it, and another is looked for.
    `strategies` are ways of your own to a good state, and `order` pins the order in which they are
    tried: one for all kinds of failure, or a mapping from kinds to orders ("" for those that it
    does not name); groups go back to a group of checkpoints, whatever it says.
    `machines` are definitions by the names of machines: `failed_transition` settles an open
    transition of those as its arrow declares, where the agent stands, if that state is good.

    Functions of yours may be async. Also on the async face they run on threads, and get the state
    as `holdfast.sync` has it; only functions of `machines` run on the loop there, as they always
    do.
    """

    @calls(machines=machines_on_loop)
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
        core = given_core(store, "Recovery")
        self._handle = StoreHandle(core)
        self._store = Store(self._handle)
        self.steps = {**STEPS}
        for name, function in by_name(steps, "steps").items():
            self.register(name, function)
        self._settings = Settings.of(
            core, STRATEGIES, strategies, order, copies, defaults, validate, machines
        )
        self._tails = Tails(self._handle)
        self._book = ProcedureBook(self._handle)
        self._procedures: dict[str, Procedure] = {}
        if problems := twice("procedures", [self.set(one) for one in procedures]):
            raise ProcedureValidationError(problems)

    def _of(self, agent: Any) -> Scope | None:
        return given_scope(self._handle, agent) if agent is not None else None

    # procedures

    @here
    def register(self, type: str, function: StepFunction) -> None:
        """Give a type of step of your own its function."""
        check_text(type, "the type of a step", 100, least=1)
        check_function(function, "the function of a step")
        self.steps[type] = function

    @here
    def set(self, procedure: Procedure | Mapping[str, Any]) -> Procedure:
        """Add a procedure here, or put it in place of the one of its id; `keep` does so for all.

        Refused with `ProcedureValidationError`, which lists everything that is wrong, and with
        `UnknownStepTypeError` if it has steps of a type that is not there.
        """
        made = self._checked(procedure)
        self._procedures.pop(made.id, None)
        self._procedures[made.id] = made
        return made

    def _checked(self, procedure: Procedure | Mapping[str, Any]) -> Procedure:
        made = procedure if isinstance(procedure, Procedure) else Procedure.of(procedure)
        made.check(self.steps)
        problems = list(action_problems(made, self.steps, self._settings.strategies))
        try:
            self._handle.core.codec.plain(made.data())  # it is kept with each recovery
        except InvalidValueError as error:
            problems.append(f"it cannot be kept: {error}")
        if problems:
            raise ProcedureValidationError(problems)
        return made

    @writes
    def keep(self, procedure: Procedure | Mapping[str, Any], agent: Any = None) -> Procedure:
        """Set a procedure for an agent, or for all, in the store: after a restart it is there, and
        other processes see it. Checked as `set` does."""
        made = self._checked(procedure)
        self._book.set([made], self._of(agent))
        return made

    @writes
    def drop(self, id: str, agent: Any = None) -> None:
        """Keep a procedure no longer that was kept for an agent, or for all."""
        check_text(id, "the id of a procedure", 200, least=1)
        self._book.remove(id, self._of(agent))

    def kept(self, agent: Any = None) -> list[KeptProcedure]:
        """Procedures that are kept in the store: all of them, or those for an agent and for all."""
        return self._book.kept(None if agent is None else ("", str(self._of(agent))))

    def procedures(self, agent: Any = None) -> list[Procedure]:
        """All procedures of an agent: the first that has a failure's trigger is used.

        In front are those set here, the last first; then those that are kept for the agent, those
        that are kept for all, and the built-in ones. Of one id the first is in force.
        """
        return list(reversed(self._known(self._of(agent)).values()))

    def _known(self, scope: Scope | None) -> dict[str, Procedure]:
        found: dict[str, Procedure] = {}
        for one in (*BUILT_IN, *self._book.all(scope), *self._procedures.values()):
            found.pop(one.id, None)  # so that it is asked before those that stand here
            found[one.id] = one
        return found

    def select(
        self, failure: AgentFailure, procedure: str | None = None, agent: Any = None
    ) -> Procedure:
        """The procedure of an id, or the one that answers a failure."""
        known = self._known(self._of(agent))
        if procedure is not None:
            check_text(procedure, "the id of a procedure", 200)
            if procedure not in known:
                raise MissingError(
                    f"there is no procedure {procedure!r}; there are {', '.join(known)}"
                )
            return self._checked(known[procedure])  # its steps may be of a type of others' own
        fits = (one for one in reversed(known.values()) if failure.kind in one.triggers)
        return self._checked(next(fits, known["standard_recovery"]))

    def _asked(
        self, failure: AgentFailure | str, point: Any = None, at: Any = None
    ) -> AgentFailure:
        """A failure as a caller names it, checked."""
        if not isinstance(failure, str | AgentFailure):
            raise InvalidInputError(
                "a failure is its kind, for example agent_crash, or a AgentFailure"
            )
        found = AgentFailure(failure) if isinstance(failure, str) else failure
        named = {"point": point, "at": at}
        found = replace(found, **{name: one for name, one in named.items() if one is not None})
        if found.point is not None and found.at is not None:
            raise InvalidInputError("give either point or at: one state is returned to")
        checked = found.check()
        try:
            self._handle.core.codec.plain(dict(checked.evidence))
        except InvalidValueError as error:
            raise InvalidInputError(f"the evidence of a failure cannot be kept: {error}") from None
        return checked

    def _chosen(self, scope: Scope, asked: AgentFailure, procedure: str | None) -> Procedure:
        """What answers a failure, as it is done: the functions in `validate` are asked by each
        procedure. Of records themselves, what changes nothing but damage.

        A point that none of its steps could return to is refused.
        """
        if is_own(scope):
            if procedure is None and not asked.names_state:
                return STANDARD
            raise InvalidInputError(
                f"{scope} keeps what recoveries did: it is mended where it is damaged, and neither "
                "put back to a point nor recovered by another procedure"
            )
        found = self.select(asked, procedure, scope)
        # Steps of users' own may do whatever they like.
        if asked.names_state and not any(
            step.type == RESTORE.type or self.steps.get(step.type) is not STEPS.get(step.type)
            for step in found.steps
        ):
            raise InvalidInputError(
                f"the procedure {found.id!r} restores nothing, so it does not return to a point or "
                "time: give it steps of type locate_checkpoint and restore_state, name another "
                "procedure, such as standard_recovery, or leave point and at out"
            )
        checking = (*found.steps, *found.validation)
        if not self._settings.validate or any(step.type == VALIDATE.type for step in checking):
            return found
        keys = {step.key for step in found.validation}
        named = (f"{VALIDATE.type}{more}" for more in ("", *range(len(keys))))
        step = replace(VALIDATE, id=next(name for name in named if name not in keys))
        return replace(found, validation=(*found.validation, step))

    # recovering

    @calls()
    @writes(threads=WAITING)
    def recover(
        self,
        agent: Any,
        failure: AgentFailure | str = "unknown",
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
        scope = given_scope(self._handle, agent)
        return self._recover(scope, self._asked(failure, point, at), procedure, wait, progress)

    def _recover(
        self,
        scope: Scope,
        asked: AgentFailure,
        procedure: str | None,
        wait: float,
        progress: Progress | None = None,
        *,
        looked: bool = False,
    ) -> RecoveryReport:
        if not is_own(scope):
            self._mend_notices()  # where its procedure is kept, and its end will be told
        chosen = self._chosen(scope, asked, procedure)
        self._check_there(scope)
        if not copies_of(self._handle.core, self._settings.copies):
            try:
                self._handle.line(scope).place()
            except StateIntegrityError as error:  # told before anything is kept of it
                raise RecoveryFailedError(
                    f"{scope}: nothing can be put back, for the row that names it is damaged "
                    f"({error}); give a copy of this store's files that has it, or erase the agent "
                    "and begin anew"
                ) from error
        if progress is not None:
            check_function(progress, "progress")
        safe_point()
        with recovering(self._store, scope, wait):
            if not looked:
                self._tails.look(depth_for(asked))
            past = self._mended_records(scope)
            settled = not self._end_unfinished(past)  # then nothing is written here
            asked = self._found(scope, asked)
            gone = self._tails.lost(scope, depth_for(asked), looked=settled)
            record = Records(self._handle, scope).begin(asked, chosen, gone)
            if gone is not None:  # whatever is written next takes the number of what is lost
                record.keep()
            return self._go_on(record, progress)

    def _found(self, scope: Scope, failure: AgentFailure) -> AgentFailure:
        """The failure with its point as TIMELINE@NUMBER: a name may be given to another checkpoint
        before a recovery that was killed goes on. Refused if that, or its time, is not there."""
        points = self._handle.line(scope).history.points
        with suppress(StateIntegrityError):  # then the recovery says what it can do
            if failure.at is not None:
                points.find(failure.at)
            if failure.point is not None:
                return replace(failure, point="{}@{}".format(*points.find(failure.point)))
        return failure

    def _mended_records(self, scope: Scope) -> list[Record]:
        """The recoveries of a scope; see to it that others can be kept, and those that were read.

        Damaged rows are set aside, with what is kept of this in the records of the records.
        """
        records = Records(self._handle, scope)
        found, why = records.look()
        try:
            check_end(records.handle)
        except StateIntegrityError as error:  # mended as all else that is damaged
            why = why or str(error)
        if why is None:
            return found
        try:
            self.recover(records.handle.scope, AgentFailure("corruption_detected", why[:1000]))
        except RecoveryFailedError as error:  # it names a recovery of the records
            raise RecoveryFailedError(f"{scope}: recoveries cannot be kept: {error}") from error
        return records.all()

    def _check_there(self, scope: Scope) -> None:
        """Refuse a scope that is not there and cannot be begun anew."""
        settings, core = self._settings, self._handle.core
        if settings.defaults is None and (not settings.copies or erased_ids(core, scope)):
            check_there(self._handle, scope)

    def _end_unfinished(
        self, past: Sequence[Record], progress: Progress | None = None
    ) -> list[RecoveryReport]:
        """Go on with those that others began; each is over then, and its report says how."""
        unfinished = [one for one in past if one.status == RUNNING]
        for one in unfinished:
            with suppress(RecoveryFailedError):
                one.end_with_agent()
                handle = self._handle.line(one.agent)
                other = first_of_others(handle, one.id, one.data.head)
                if other is None:
                    self._go_on(one, progress)
                else:  # going on would undo what was done since
                    since = f"others wrote since it began (entry {other.sequence})"
                    one.finish(FAILED, f"{since}, so it was not taken up again")
        return [report_of(one) for one in unfinished]

    @calls()
    @writes(threads=WAITING)
    def recover_each(
        self,
        agents: Iterable[Any],
        failure: AgentFailure | str = "unknown",
        *,
        procedure: str | None = None,
        wait: float = 0,
        beside: int = 32,
    ) -> dict[Scope, RecoveryReport | HoldfastError]:
        """Recover many agents, each by itself, `beside` at a time, in common commits.

        Gives each one's report, also of a recovery that failed; or the error, if none was begun.
        """
        check_count(beside, "beside")
        given = (given_scope(self._handle, one) for one in listed(agents, "agents"))
        scopes = list(dict.fromkeys(given))
        asked = self._asked(failure)
        self._tails.look(depth_for(asked))  # once: none of them has written since it failed

        def one(scope: Scope) -> RecoveryReport | HoldfastError:
            try:
                return self._recover(scope, asked, procedure, wait, looked=True)
            except RecoveryFailedError as error:  # its report says more
                return self._named_by(scope, error) or error
            except HoldfastError as error:  # one keeps no other from being recovered
                return error

        context = contextvars.copy_context()
        with ThreadPoolExecutor(max(beside, 1), "recovery") as pool:
            done = pool.map(lambda scope: context.copy().run(one, scope), scopes)
            return dict(zip(scopes, done, strict=True))

    @calls()
    @writes(threads=WAITING)
    def recover_group(
        self,
        agents: Iterable[Any],
        failure: AgentFailure | str = "unknown",
        *,
        point: Any = None,
        wait: float = 0,
    ) -> dict[Scope, RecoveryReport]:
        """Bring several agents back to one moment: all of them in one commit, or none.

        The moment is the newest group of checkpoints (`CheckpointGroups.create`) with all of them
        that is whole and passes every check, or `point`: a group, its name or id, or a checkpoint
        of it. Letters that they sent each other since, in the change in which they processed
        another, are taken back: they are sent again. One that is damaged is recovered by itself
        before that. Gives each one's report, all of one id; if there is no such moment,
        `RecoveryFailedError`, and none was put back.
        """
        asked = self._asked(failure, point)
        scopes = [given_scope(self._handle, agent) for agent in listed(agents, "agents")]
        for scope in scopes:
            check_there(self._handle, scope)
        together = Together(self._handle, self._settings, scopes, asked)
        for scope in scopes:
            if (damage := damage_of(self._handle.line(scope), self._tails)) is not None:
                self._recover(scope, damage.check(), None, wait)
        self._mend_notices()
        with ExitStack() as leases:
            for scope in sorted(set(scopes), key=str):  # so no two wait for each other
                leases.enter_context(recovering(self._store, scope, wait))
            for scope in scopes:
                self._end_unfinished(Records(self._handle, scope).all())
            return together.run()

    def _mend_notices(self) -> None:
        """What is kept of notices, alerts, procedures and what was found is in one scope."""
        line = self._handle.line(notices_scope())
        try:
            line.reader.tail(PREFIX + NOTICES, 1, False)  # of all others there are few
            for kept in (KEPT_ALERTS, KEPT_PROCEDURES, SIGHTINGS):
                line.reader.items(str(kept), None, "", False)
            check_end(line)
        except StateIntegrityError as error:  # mended before it is written to
            failure = AgentFailure("corruption_detected", str(error)[:1000])
            self.recover(notices_scope(), failure, wait=LEASE)  # who else writes there mends it too

    def plan(
        self,
        agent: Any,
        failure: AgentFailure | str = "unknown",
        *,
        procedure: str | None = None,
        point: Any = None,
        at: Any = None,
    ) -> RecoveryPlan:
        """What `recover` would do; nothing is written, and nothing is waited for."""
        asked = self._asked(failure, point, at)
        scope = given_scope(self._handle, agent)
        chosen = self._chosen(scope, asked, procedure)
        self._check_there(scope)
        asked = self._found(scope, asked)
        record = Records(self._handle, scope).draft(asked, chosen)
        settings = self._context(record).settings
        locating = [step for step in chosen.steps if step.type == "locate_checkpoint"]
        tail = self._tails.lost(scope, depth_for(asked))
        heals = any(step.type == "backup_current" for step in chosen.steps)
        copies = copies_of(self._handle.core, settings.copies) if heals else []
        with as_if_healed(self._handle, scope, asked, tail, copies) as (store, healed):
            record.data.gone = Tails(store).lost(scope) if healed else tail
            context = Context(store, record, settings)
            looked = Looked()
            for step in locating:  # what the first finds is put back; if it is critical, or nothing
                looked = look(context, context.order(step.action))
                if looked.target is not None or step.critical:
                    break
            target = looked.target
            losing = losing_by(context, target) if target is not None else "nothing"
        strategy = target.strategy if target is not None else None
        lost = None
        if target is not None or not locating:
            lost = with_tail(record, strategy, losing)
        return RecoveryPlan(
            scope,
            asked,
            chosen,
            strategy,
            target.point if target is not None else None,
            lost,
            looked.passed,
            target.keys if target is not None else (),
            healed,
        )

    @calls()
    @writes(threads=WAITING)
    def resume(
        self, agent: Any, *, wait: float = 0, progress: Progress | None = None
    ) -> list[RecoveryReport]:
        """Go on with recoveries of an agent whose process ended in the middle.

        Gives nothing if there are none, or if somebody is at it, for `wait` seconds. The lease of a
        process that died runs out half a minute after its end. One with steps of a type that is not
        known here cannot go on: it is undone, which ends it. One whose agent was changed by others
        since it began is ended as failed, and changes nothing: recover the agent anew. Gives also
        reports of those that did not succeed.
        """
        scope = given_scope(self._handle, agent)
        check_seconds(wait, "wait")
        if not Records(self._handle, scope).unsettled():
            return []
        try:
            with recovering(self._store, scope, wait):
                return self._end_unfinished(self._mended_records(scope), progress)
        except LeaseHeldError:
            return []  # somebody is at it

    def _go_on(self, record: Record, progress: Progress | None) -> RecoveryReport:
        unknown = record.procedure.unknown(self.steps)
        lost = "what is kept of it was damaged" if not record.procedure.steps else ""
        with undivided(), acting("recovery", correlation=correlation_of(record.id)):
            running = Running(self._context(record), self.steps, progress)
            if lost or unknown:
                why = lost or f"Unknown recovery step type: {', '.join(unknown)}"
                running.abandon(f"it cannot go on here: {why}")
            else:
                running.run()
        report = report_of(record)
        if report.warning:
            log.warning("%s: recovery %s: %s", record.agent, record.id, report.warning)
        return report

    def _context(self, record: Record) -> Context:
        """What a recovery has to work with."""
        settings, kind = self._settings, record.failure.kind
        if is_own(record.agent):  # checks and defaults are for agents
            settings = Settings(settings.copies, {}, strategies=STRATEGIES, order={ANY: ORDER})
        elif (
            settings.pinned(kind) is None
            and kind in FAILED_TRANSITION.triggers
            and any(step.type == SETTLE.type for step in record.procedure.steps)
            and settings.machines.knows_one(self._handle.line(record.agent))
        ):  # its machine stays where the open transition began, which is settled
            settings = replace(settings, order={kind: (NOTHING, *kind_of(kind).strategies)})
        return Context(self._handle, record, settings)

    # what can be asked about recoveries: nothing here recovers anything

    def reports(self, agent: Any, limit: int | None = None) -> list[RecoveryReport]:
        """What became of an agent's recoveries, the newest first."""
        check_limit(limit)
        records = Records(self._handle, given_scope(self._handle, agent))
        return readable(records.all(limit), report_of)

    def report(self, agent: Any, id: str) -> RecoveryReport:
        """What became of one recovery."""
        check_text(id, "the id of a recovery", 100, least=1)
        records = Records(self._handle, given_scope(self._handle, agent))
        return report_of(records.get(id))

    def _named_by(self, agent: Any, error: RecoveryFailedError) -> RecoveryReport | None:
        """The report that an error names, as far as there is one of this agent to be read."""
        with suppress(MissingError, StateIntegrityError):  # the error says enough
            if error.recovery:
                return self.report(agent, error.recovery)
        return None

    def statistics(self, agent: Any = None, *, slow: float = SLOW) -> RecoveryStatistics:
        """How recoveries went, of one agent or of all.

        Alarms tell of those that failed, took longer than `slow` seconds, or are still running
        after that time.
        """
        check_seconds(slow, "slow")
        wanted = self._of(agent)
        agents = [wanted] if wanted is not None else recovered_agents(self._handle)
        found = [one for scope in agents for one in self.reports(scope)]
        now = moment(self._handle.core.clock.claimed())
        ended = [one for one in found if one.finished_at is not None]
        alarms = [(one, f"took {one.seconds:.0f} s") for one in ended if one.seconds > slow]
        alarms += [(one, f"{one.status}: {one.why}") for one in ended if not one.success]
        for one in found:
            since = (now - one.started_at).total_seconds()
            if one.finished_at is None and since > slow:
                alarms.append((one, f"has not ended for {since:.0f} s"))
        return RecoveryStatistics(
            len(found),
            sum(one.success for one in ended),
            len(found) - len(ended),
            sum(one.seconds for one in ended) / len(ended) if ended else 0.0,
            max((one.seconds for one in ended), default=0.0),
            tuple(f"{one.agent}: {one.id} {said}" for one, said in alarms),
        )

    # those who want to know

    def notices(self, since: int = 0, limit: int = PAGE) -> list[RecoveryNotice]:
        """Notices of recoveries of the whole store that ended, from a number on."""
        check_count(since, "since")
        check_count(limit, "limit")
        return notices(self._handle, since, limit)

    @writes
    def deliver(
        self, state: Any, consumer: str, function: Callable[[Any, RecoveryNotice], Any]
    ) -> int:
        """Give a consumer each notice exactly once; how many there were.

        `function` gets a change of the consumer's state and the notice: what it writes there is
        committed together with the note that the notice was had, in whatever process.
        """
        check_function(function, "the function that gets notices")
        return deliver(self._handle, State(self._handle.of(state)), consumer, function)

    # how it is, and what was damaged

    def health(
        self,
        agent: Any = None,
        *,
        budget: float = BUDGET,
        url: str | Path = "",
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
        url = url_of(url)
        for what, text in {"url": url, "key": key or "", "signer": signer or ""}.items():
            check_text(text, what)
        placed = placement(url, key, signer, durability)
        return health_of(self._handle, self._of(agent), budget, placed)

    @here
    def quarantine(self, agent: Any) -> Quarantine:
        """The damaged rows of an agent that recoveries set aside: list, get, release."""
        return Quarantine(self._handle, given_scope(self._handle, agent))
