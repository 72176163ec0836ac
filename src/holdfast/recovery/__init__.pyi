# Written by scripts/stubs.py from the blocking classes; not to be edited.

import builtins
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from holdfast.agents.machines.definition import MachineDefinition
from holdfast.backup import Backups
from holdfast.checkpoints import Checkpoints, Policies
from holdfast.checkpoints.create import CheckpointResult
from holdfast.checkpoints.restore_request import RestoreResult
from holdfast.errors import HoldfastError
from holdfast.recovery.boot_recovery import BootItem as BootItem
from holdfast.recovery.boot_recovery import BootReport as BootReport
from holdfast.recovery.context import StepFunction, Strategy
from holdfast.recovery.failure_kinds import AgentFailure as AgentFailure
from holdfast.recovery.heal import Healed as Healed
from holdfast.recovery.health import Health as Health
from holdfast.recovery.health import HealthConcern as HealthConcern
from holdfast.recovery.procedure import Procedure as Procedure
from holdfast.recovery.procedure import RecoveryStep as RecoveryStep
from holdfast.recovery.quarantine import Quarantine
from holdfast.recovery.quarantine import Quarantined as Quarantined
from holdfast.recovery.records import KeptProcedure as KeptProcedure
from holdfast.recovery.records import RecoveryNotice as RecoveryNotice
from holdfast.recovery.records import RecoveryStepResult as RecoveryStepResult
from holdfast.recovery.report import RecoveryPlan as RecoveryPlan
from holdfast.recovery.report import RecoveryReport as RecoveryReport
from holdfast.recovery.report import RecoveryStatistics as RecoveryStatistics
from holdfast.recovery.run import Progress
from holdfast.recovery.scrub import Scrubbed as Scrubbed
from holdfast.recovery.scrub import ScrubStatus as ScrubStatus
from holdfast.recovery.setup.alerts import Alert as Alert
from holdfast.recovery.setup.alerts import Channel as Channel
from holdfast.recovery.setup.configuration import BackupPlace as BackupPlace
from holdfast.recovery.setup.configuration import Configuration as Configuration
from holdfast.recovery.setup.managed import Beside
from holdfast.recovery.setup.managed import RunningStatus as RunningStatus
from holdfast.recovery.setup.managed import SetUp as SetUp
from holdfast.recovery.setup.managed_async import set_up as set_up
from holdfast.recovery.setup.supervisor import PartStatus as PartStatus
from holdfast.recovery.strategies import RecoveryTarget as RecoveryTarget
from holdfast.recovery.strategies import UnfitTarget as UnfitTarget
from holdfast.recovery.watchdog import AnsweredFailure as AnsweredFailure
from holdfast.recovery.watchdog import UnansweredFailure as UnansweredFailure
from holdfast.replicas import Replicas
from holdfast.replicas.replica_sync import SyncReport
from holdfast.store.inner import Finding
from holdfast.store.names.items import Checkpoint, Entry
from holdfast.store.names.scope import Scope
from holdfast.store.state_async import State
from holdfast.store.store_async import Store

class Managed:
    """An agent that was set up: its store, its state, and what takes care of them.

    All that can be done with the agent's state is here: `checkpoint`, `restore`, `list`,
    `validate`, `recover`, `synchronise`, `history` and `status`, with its policies in force.
    """
    def __init__(self, store: Store, config: Configuration, beside: Beside) -> None: ...
    store: Store
    state: State
    backups: Backups | None
    replicas: Replicas | None
    recovery: Recovery
    scrubber: Scrubber | None
    policies: Policies
    checkpoints: Checkpoints
    report: SetUp
    async def close(self) -> None:
        """Stop all that runs beside the agent, each after what it is at; a store that was opened
        for it is closed.
        """
    async def checkpoint(self, request: Any = "", **fields: Any) -> CheckpointResult:
        """Make a checkpoint, as `Checkpoints.create` does; `sync=True` waits for the replicas."""
    async def restore(self, request: Any = None, **fields: Any) -> RestoreResult:
        """Return to a point, as `Checkpoints.restore` does."""
    async def list(self, *, limit: int | None = None, **where: Any) -> builtins.list[Checkpoint]:
        """Checkpoints of the agent, the newest first, as `Checkpoints.find` does."""
    async def validate(self) -> builtins.list[str]:
        """What is wrong with the agent's newest state: damage, or what a check refuses."""
    async def recover(self, failure: Any = "unknown", **more: Any) -> RecoveryReport:
        """Bring the agent back to a good state, as `Recovery.recover` does."""
    async def synchronise(self) -> SyncReport:
        """Bring all replicas up to now.

        One that went its own way, for it was promoted, or the store was put back, is left as it is;
        with `conflict_resolution: timestamp_wins` it follows again, once each scope has the state
        whose newest change is the later one, there or here.
        """
    async def history(self, *, limit: int | None = None) -> builtins.list[Entry]:
        """What was written to the agent, the newest first, with who and why."""
    async def status(self) -> RunningStatus:
        """How the agent and all that runs beside it are now."""
    async def __aenter__(self) -> Self: ...
    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...

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
    ) -> None: ...
    def register(self, type: str, function: StepFunction) -> None:
        """Give a type of step of your own its function."""
    def set(self, procedure: Procedure | Mapping[str, Any]) -> Procedure:
        """Add a procedure here, or put it in place of the one of its id; `keep` does so for all.

        Refused with `ProcedureValidationError`, which lists everything that is wrong, and with
        `UnknownStepTypeError` if it has steps of a type that is not there.
        """
    async def keep(self, procedure: Procedure | Mapping[str, Any], agent: Any = None) -> Procedure:
        """Set a procedure for an agent, or for all, in the store: after a restart it is there, and
        other processes see it. Checked as `set` does.
        """
    async def drop(self, id: str, agent: Any = None) -> None:
        """Keep a procedure no longer that was kept for an agent, or for all."""
    async def kept(self, agent: Any = None) -> list[KeptProcedure]:
        """Procedures that are kept in the store: all of them, or those for an agent and for all."""
    async def procedures(self, agent: Any = None) -> list[Procedure]:
        """All procedures of an agent: the first that has a failure's trigger is used.

        In front are those set here, the last first; then those that are kept for the agent, those
        that are kept for all, and the built-in ones. Of one id the first is in force.
        """
    async def select(
        self, failure: AgentFailure, procedure: str | None = None, agent: Any = None
    ) -> Procedure:
        """The procedure of an id, or the one that answers a failure."""
    async def recover(
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
    async def recover_each(
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
    async def recover_group(
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
    async def plan(
        self,
        agent: Any,
        failure: AgentFailure | str = "unknown",
        *,
        procedure: str | None = None,
        point: Any = None,
        at: Any = None,
    ) -> RecoveryPlan:
        """What `recover` would do; nothing is written, and nothing is waited for."""
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
    async def reports(self, agent: Any, limit: int | None = None) -> list[RecoveryReport]:
        """What became of an agent's recoveries, the newest first."""
    async def report(self, agent: Any, id: str) -> RecoveryReport:
        """What became of one recovery."""
    async def statistics(self, agent: Any = None, *, slow: float = ...) -> RecoveryStatistics:
        """How recoveries went, of one agent or of all.

        Alarms tell of those that failed, took longer than `slow` seconds, or are still running
        after that time.
        """
    async def notices(self, since: int = 0, limit: int = ...) -> list[RecoveryNotice]:
        """Notices of recoveries of the whole store that ended, from a number on."""
    async def deliver(
        self, state: Any, consumer: str, function: Callable[[Any, RecoveryNotice], Any]
    ) -> int:
        """Give a consumer each notice exactly once; how many there were.

        `function` gets a change of the consumer's state and the notice: what it writes there is
        committed together with the note that the notice was had, in whatever process.
        """
    async def health(
        self,
        agent: Any = None,
        *,
        budget: float = ...,
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
    def quarantine(self, agent: Any) -> Quarantine:
        """The damaged rows of an agent that recoveries set aside: list, get, release."""

class Scrubber:
    """Verifies a store little by little, and heals what one of its copies still has.

    `copies` are other open stores of the same lineage. A slice takes about `budget` seconds, and
    every `interval` seconds there is one, inside the block or between `start` and `stop`; of
    several processes, one does it. Damaged rows are set aside; what cannot be healed is told to
    `found(findings)`, by each pass as long as it is so; what that raises is logged. Each slice
    reads the feed from its beginning, and nodes of the scope that it goes on with: give a large
    store a large budget, seldom. Of the rows that belong to no scope, those of the directory
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
    ) -> None: ...
    async def start(self) -> None:
        """Scrub in a thread, until `stop` or the end of the store."""
    async def stop(self) -> None:
        """Stop, after the slice at work."""
    async def slice(self) -> Scrubbed | None:
        """Look at the next part of the store, now; None if another is at it."""
    async def status(self) -> ScrubStatus:
        """How far it is."""
    async def __aenter__(self) -> Self: ...
    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...

class Watchdog:
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
    ) -> None: ...
    async def start(self) -> None:
        """Watch in a thread, until `stop` or the end of the store."""
    async def stop(self) -> None:
        """Stop after what is being answered; another process may take over at once.

        A function that answers a failure may call it, and does not wait for its own end.
        """
    @property
    def acting(self) -> bool:
        """Whether this is the watchdog that acts, as far as it knows."""
    async def look(self) -> list[AnsweredFailure]:
        """Look once, now, and answer what is found; nothing if another watchdog acts.

        What is being answered since an earlier look is left to that.
        """
    async def unanswered(self) -> list[UnansweredFailure]:
        """Failures that were found and are not answered, those found first in front."""
    async def report(self, findings: Sequence[Finding]) -> None:
        """Take note of damage that a scrubber found (`found=watchdog.report`), to be answered by
        the watchdog that acts.
        """
    async def __aenter__(self) -> Self: ...
    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...

async def boot(
    store: Any,
    *,
    recovery: Recovery | None = None,
    scopes: Iterable[Any] | None = None,
    machines: Mapping[str, MachineDefinition] | None = None,
    ready: Callable[[], Any] | None = None,
    requests: Callable[[State, Any], Any] | None = None,
    effects: Callable[[State, Any], Any] | None = None,
    check: bool = True,
    wait: float = 0.0,
) -> BootReport:
    """Bring what was unfinished to its end, by the choice that was declared for it.

    Call it before anything works on these scopes (all, if none are given): agents that run under a
    lease are left alone, others cannot be told from those that were interrupted; leases of
    processes that died are waited for, `wait` seconds in all. `ready()` is waited for first. Then
    for each scope: recoveries go on; a state that cannot be read
    is recovered (`check=False`: not looked at); operations are undone, unless they were to be kept;
    transitions are settled as `machines` (definitions by the names of machines; those of `recovery`
    count, too) declare; effects
    with an idempotency key are to be done again, about others `effects(state, effect)` says done,
    repeat or drop, or nothing; handovers are reconciled; and letters that wait are given to
    `requests(state, letter)`, which may be called again after the next start: they stay in the
    mailbox until they are processed. What nobody declared anything about is `left` in the report.
    """
