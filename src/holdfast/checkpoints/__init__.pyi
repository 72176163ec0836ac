# Written by scripts/stubs.py from the blocking classes; not to be edited.

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from holdfast.checkpoints.checkpoint_group import Group
from holdfast.checkpoints.create import CheckpointResult
from holdfast.checkpoints.export_file import Export as Export
from holdfast.checkpoints.export_import import Imported as Imported
from holdfast.checkpoints.locate import Description
from holdfast.checkpoints.operation import AsyncOperationBlock
from holdfast.checkpoints.policy.optimizer import Cost, Proposal
from holdfast.checkpoints.policy.policies import Explained
from holdfast.checkpoints.policy.policy import Condition as Condition
from holdfast.checkpoints.policy.policy import Policy as Policy
from holdfast.checkpoints.policy.policy import PolicyFrequency as PolicyFrequency
from holdfast.checkpoints.policy.policy import PolicyRetention as PolicyRetention
from holdfast.checkpoints.policy.policy import PolicySetting as PolicySetting
from holdfast.checkpoints.policy.policy_engine import Triggered
from holdfast.checkpoints.policy.tracker import PolicyEvent as PolicyEvent
from holdfast.checkpoints.request import CheckpointRequest as CheckpointRequest
from holdfast.checkpoints.request import Locator as Locator
from holdfast.checkpoints.request import RestoreRequest as RestoreRequest
from holdfast.checkpoints.restore_request import RestoreResult, Simulation
from holdfast.checkpoints.retention import JudgedCheckpoint as JudgedCheckpoint
from holdfast.checkpoints.retention import LinePlan as LinePlan
from holdfast.checkpoints.retention import RetentionPlan as RetentionPlan
from holdfast.checkpoints.retention import RetentionRule as RetentionRule
from holdfast.checkpoints.schedule import Cron as Cron
from holdfast.checkpoints.schedule import Every as Every
from holdfast.checkpoints.schedule import ScheduleInfo as ScheduleInfo
from holdfast.checkpoints.schedule import Target
from holdfast.checkpoints.scheduler import ScheduledRun as ScheduledRun
from holdfast.checkpoints.shutdown import Participant as Participant
from holdfast.checkpoints.shutdown import ShutdownCheckpoints as ShutdownCheckpoints
from holdfast.store.inner import Held
from holdfast.store.names.items import Checkpoint, Pruned, Restored, Reverted
from holdfast.store.names.scope import Scope
from holdfast.store.state_async import State
from holdfast.store.store_async import Store

class CheckpointGroups:
    """Checkpoints over several scopes of one store, each made and restored in one commit."""
    def __init__(self, store: Store) -> None: ...
    async def create(
        self, states: Iterable[Any], request: CheckpointRequest | str = "", **fields: Any
    ) -> Group:
        """One checkpoint in each state, at one moment; a state or a scope that is there."""
    async def of(self, member: Checkpoint) -> Group:
        """The group that a checkpoint is one of."""
    async def restore(
        self,
        group: Group,
        *,
        verify: str = "full",
        dependencies: str = "exist",
        reason: str | None = None,
    ) -> list[Restored]:
        """Return to all states of a group, or to none."""

class Checkpoints:
    """The checkpoints of one state: made on request, found, described, restored.

    `sync` is called with a checkpoint whose request says `sync=True`, and brings it to the peers;
    it raises if one of them did not get it. It may be async on the async face, as all functions
    that methods of this class are given.
    """
    def __init__(
        self, state: State, *, sync: Callable[[Checkpoint], Any] | None = None
    ) -> None: ...
    async def create(
        self, request: CheckpointRequest | str = "", **fields: Any
    ) -> CheckpointResult:
        """Make a checkpoint as a `CheckpointRequest` says, given whole or by its fields."""
    async def locate(self, **where: Any) -> Checkpoint:
        """The newest checkpoint that fits: id, name, type, tag, trigger, at, before, valid.

        `at` is a time, and means the last one not later; `before` a point, and means the last one
        before it; with `valid=True` damaged ones are passed over, and backups of restores unless
        their id, name or type is given.
        """
    async def find(self, *, limit: int | None = None, **where: Any) -> list[Checkpoint]:
        """All checkpoints that fit what `locate` takes, newest first."""
    async def inspect(self, which: Any, *, verify: str = "full") -> Description:
        """All that is known of a checkpoint, after looking at what it covers."""
    async def restore(self, request: Any = None, **fields: Any) -> RestoreResult:
        """Return to a point as a `RestoreRequest` says, given whole or by its fields.

        Instead of a point, what `locate` takes says which checkpoint is meant. With `validate`, a
        function that gets the state: if it raises, or returns something but None and True, the
        state before is put back, and `StateValidationError` says so.
        """
    async def confirm(self, restored: Any) -> Checkpoint | None:
        """Say that a restore (its result, or its backup) is good: its backup is let go.

        None if it has none, as a recovery from what could not be read.
        """
    async def recover(self, **where: Any) -> RestoreResult:
        """Return to the newest checkpoint that is whole, of those that fit; again, if done again.

        Damaged ones are passed over: the report names each that was tried, with the reason. Also
        where damage keeps the newest state from being read; then that state is not kept. What
        the checkpoint rests on is no reason to pass it over: the report says how that is.
        """
    async def simulate(
        self, function: Callable[[State], Any], request: Any = None, **fields: Any
    ) -> Simulation:
        """Run a function on the state as a restore would leave it, on a timeline of its own.

        The state itself is not touched. The timeline stays, named in the result; if something
        fails, or is cancelled, it is ended.
        """
    async def held(self) -> list[Held]:
        """Checkpoints that may not be removed: of operations, restores and recoveries."""
    def operation(
        self,
        name: str,
        *,
        on_error: str = "revert",
        tags: Sequence[str] = (),
        description: str = "",
    ) -> AsyncOperationBlock:
        """A block, or a function, with a checkpoint before it: see `OperationBlock`."""
    async def finish(self, checkpoint: Any, how: str) -> Reverted | None:
        """Decide about an operation that never ended: `revert` what it did, or `keep` it."""

class Optimizer:
    """Says which policies cost most and what longer intervals would save.

    It reads all checkpoints of an agent's history, each time it is asked about an agent.
    """
    def __init__(self, store: Store, *, defaults: Iterable[Policy] = ...) -> None: ...
    async def costs(self, agent: Any) -> list[Cost]:
        """What policies have cost, the dearest first, by the checkpoints in the history.

        Damaged entries are passed over; `verify` names them.
        """
    async def propose(self, agent: Any) -> list[Proposal]:
        """For each policy the shortest longer interval that is worth it, the best first.

        To take one, give its policy to `Policies.set`.
        """

class Policies:
    """The checkpoint policies of a store's agents, at work for as long as the store is open.

    One of them watches a store in a process: it sees this process's writes, and takes note of
    others' when it next looks. With `watch=False` policies are set and explained, and nothing
    fires. `defaults` replaces the two default policies. `metrics` are the names of your own, whose
    values you give with `record`.
    """
    def __init__(
        self,
        store: Store,
        *,
        defaults: Iterable[Policy] = ...,
        metrics: Iterable[str] = (),
        watch: bool = True,
    ) -> None: ...
    async def __aenter__(self) -> Self: ...
    async def close(self) -> None:
        """Make the checkpoints that are on their way, and watch no longer.

        Closing the store does the same.
        """
    async def set(self, agent: Any, policy: Policy | Mapping[str, Any]) -> Policy:
        """Give an agent a policy, in place of the one of its id, its own or a default one.

        Refused with `PolicyValidationError`, which lists everything that is wrong.
        """
    async def get(self, agent: Any, id: str) -> Policy | None:
        """The policy that an agent has under an id, its own or a default one."""
    async def list(self, agent: Any) -> list[Policy]:
        """All policies of an agent, the highest priority first; also those that are off."""
    async def remove(self, agent: Any, id: str) -> None:
        """Take a policy of its own from an agent; a default one of that id is in force again."""
    async def schedule(self, agent: Any) -> Sequence[ScheduleInfo]:
        """Store a schedule for each policy of an agent that has an interval, default ones too.

        An agent's own policies have theirs from the moment they are set. A `Scheduler` of any
        process then makes their checkpoints in time, also if the process that wrote is gone.
        """
    async def report(self, agent: Any, kind: str, name: str = "") -> None:
        """Tell of an `error`, a `user_action` or a `system_event`, which may have a name."""
    async def record(self, agent: Any, metric: str, value: float) -> None:
        """Give the newest value of a metric of your own."""
    async def evaluate(self, agent: Any, event: PolicyEvent = ...) -> Triggered:
        """Whether a policy would fire now, which, and why; nothing is done.

        With an event of your own: if this happened now, with the metrics that it brings along.
        """
    async def explain(self, agent: Any) -> tuple[Explained, ...]:
        """For each policy what each condition reads now, and why it does or does not fire."""
    def fired(self) -> tuple[tuple[Scope, Triggered], ...]:
        """The last hundred checkpoints that policies made in this process, oldest first."""
    def errors(self) -> tuple[str, ...]:
        """The last hundred things that went wrong; a policy never fails a write."""
    async def wait(self, timeout: float | None = None) -> bool:
        """Wait until all that is due is done; False if it took longer than `timeout` seconds."""
    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...

class Retention:
    """The retention of a store's checkpoints and of its past.

    `rules` take the place of the default ones, by type: `{"manual": RetentionRule(max_count=10)}`.
    """
    def __init__(
        self, store: Store, *, rules: Mapping[str, RetentionRule] | None = None
    ) -> None: ...
    async def plan(self, scope: Any) -> RetentionPlan:
        """What would go, and why; nothing is changed."""
    async def run(self, what: RetentionPlan | Any, *, confirm: bool = False) -> list[Pruned]:
        """Prune what a plan says, or a new plan of a scope; what has to stay by now stays.

        `confirm=True` answers the questions of the plan; else they are raised as
        `NotConfirmedError`.
        """
    async def end(self, scope: Any, timeline: str, reason: str | None = None) -> Pruned:
        """End a timeline that nothing needs: a trial, a simulation, a failed import.

        The chain says so, then its content is dropped; its name is not used again. Refused, with
        `StillNeededError`, if a checkpoint of it is pinned, on hold or of an operation that is not
        over, or if any other timeline uses something of it, or a checkpoint of another scope rests
        on it. Cut short, end it again.
        """
    async def pin(self, checkpoint: Checkpoint, reason: str = "pinned") -> None:
        """Keep a checkpoint whatever the rules say, until it is unpinned."""
    async def unpin(self, checkpoint: Checkpoint) -> bool:
        """Take a pin back; tells whether there was one."""
    async def hold(self, checkpoint: Checkpoint, reason: str) -> None:
        """Put a legal hold on a checkpoint: no rule and no unpinning removes it."""
    async def lift(self, checkpoint: Checkpoint) -> bool:
        """Lift a hold; tells whether there was one."""
    async def marked(self, scope: Any) -> dict[str, str]:
        """Ids of the checkpoints of a scope that are pinned, on hold or to go on from, and why.

        `State.why_kept` tells of all that keeps one.
        """
    async def clear(self, checkpoint: Checkpoint, reason: str = "cleared") -> None:
        """Let a checkpoint go when retention is run next, whatever its rule says.

        Not one that is pinned, on hold or needed: that stays until it no longer is.
        """

class Scheduler:
    """Checkpoints at intervals and by the calendar, in one of several processes.

    Inside its block, or between `start` and `stop`, a thread runs what is due, if no other process
    does so already; the others take over when that one ends or is no more. Schedules are stored:
    they outlive processes, and what was missed meanwhile is run once. Schedules of policies follow
    `policies`, which knows your defaults and metrics (without it: the two default policies, no
    metrics of your own); retention that is scheduled follows `rules`, as `Retention` does. `lease`
    is the time in seconds after which another process takes over from one that is gone.

    Also of the async face, what is due is run in a thread, so that cancelling a task neither stops
    nor tears what is being saved.
    """
    def __init__(
        self,
        store: Store,
        *,
        policies: Policies | None = None,
        rules: Mapping[str, RetentionRule] | None = None,
        lease: float = 30.0,
    ) -> None: ...
    async def every(
        self,
        seconds: float,
        target: Target,
        *,
        jitter: float = 0.0,
        name: str | None = None,
        retention: bool = False,
    ) -> ScheduleInfo:
        """Make a checkpoint of `target` each so many seconds.

        By the monotonic clock: setting the wall clock neither leaves out nor repeats any. With
        `jitter` schedules that begin together are spread over so many seconds, each by its name.
        A slot in which nothing was written since the last checkpoint makes none. A schedule of the
        same target and name (by default that of the scope) gets this interval, and goes on as it is
        if it has it.
        With `retention` no checkpoints are made: those of `target` that may go are let go. What has
        to be confirmed stays, and the schedule says `failed`: NotConfirmedError.
        """
    async def cron(
        self,
        expression: str,
        target: Target,
        *,
        zone: str = "UTC",
        jitter: float = 0.0,
        name: str | None = None,
        retention: bool = False,
    ) -> ScheduleInfo:
        """The same by the calendar: `cron("0 3 * * *", agent, zone="Europe/Berlin")`.

        Each moment that the expression names is run once, through daylight saving and whatever
        else is done to clocks; of several that were missed, one is run.
        """
    async def remove(self, name: str) -> None:
        """Remove a schedule; what it made stays."""
    async def schedules(self) -> list[ScheduleInfo]:
        """All schedules of the store, by their names; what is damaged is among them, and named."""
    async def start(self) -> None:
        """Begin to run what is due, in a thread, until `stop` or the end of the store."""
    async def stop(self) -> None:
        """Stop running, after what is being saved or done just now; another may take over."""
    @property
    def running(self) -> bool:
        """Whether this process runs the schedules, as far as it knows; if not, another may."""
    async def run_due(self) -> list[ScheduledRun]:
        """Run what is due now, if no other process does so, in this thread; for loops of your own.

        From then on this process is the runner, until `stop`.
        """
    async def __aenter__(self) -> Self: ...
    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...

async def export_checkpoint(
    state: State,
    path: str | os.PathLike[str],
    *,
    at: Any = None,
    format: str = "holdfast",
    key: str | None = None,
    plain: bool = False,
    unsigned: bool = False,
    reveal: bool = False,
) -> Export:
    """Write a checkpoint (default: the newest) with all of its state to one file.

    The file stands for itself: whoever has it can take it over into any store. It is signed by the
    store's signer, and encrypted with `key` (`file:PATH`, which is made if it is missing,
    `env:NAME` or `passphrase:TEXT`), which has nothing to do with the store's own. From an
    encrypted store a file without a key is written only with `plain=True`, and where the signer is
    not at hand one without a signature only with `unsigned=True`.

    `format="json"` is for people and `"protobuf"` for other programs: not encrypted, not signed,
    not to be imported, and what is of class sensitive is masked in them unless `reveal` is given.
    Every value is read and checked. Memory is bounded by the longest value, of long bytes and
    lists by a piece; json and protobuf hold values whole.
    """

async def import_checkpoint(
    state: State,
    path: str | os.PathLike[str],
    *,
    key: str | None = None,
    trust: Sequence[str] | None = None,
    untrusted: bool = False,
    limit: int = ...,
    reason: str | None = None,
) -> Imported:
    """Let the state be what is in an exported file, of whatever scope and store.

    The file must be signed by one of the public keys in `trust` (default: the store's own signer);
    with `untrusted=True` it is taken whoever signed it, if anybody did. What came from a scope that
    was erased in this store is refused, as is more content than `limit` bytes.

    It is read into a timeline of its own, compared there with what was signed, and then restored
    from: all or nothing, sticky keys and declarations left alone, and `restore(result.backup)`
    undoes it. A scope that declares nothing gets the declarations of the file.
    """

async def inspect_export(
    path: str | os.PathLike[str], *, key: str | None = None, trust: Sequence[str] | None = None
) -> Export:
    """What is in an exported file, without a store. All of it is read and checked.

    With `trust`, a file that none of these public keys signed is refused; without, `Export.signer`
    is whoever says so.
    """
