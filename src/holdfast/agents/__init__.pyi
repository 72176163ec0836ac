# Written by scripts/stubs.py from the blocking classes; not to be edited.

import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any, Self

from holdfast.agents.agent import AsyncAgent
from holdfast.agents.agent_registry import AgentInfo as AgentInfo
from holdfast.agents.agent_registry import Make
from holdfast.agents.attached import Attachment
from holdfast.agents.attached import PersistentAgent as PersistentAgent
from holdfast.agents.drift import DriftAlarm as DriftAlarm
from holdfast.agents.drift import DriftSignal as DriftSignal
from holdfast.agents.drift import DriftStatus as DriftStatus
from holdfast.agents.effect_records import Effect as Effect
from holdfast.agents.effects import Doing, Errors
from holdfast.agents.folder import ImportedAgent as ImportedAgent
from holdfast.agents.handover import Check
from holdfast.agents.handover_package import Handover as Handover
from holdfast.agents.handover_package import HandoverPackage as HandoverPackage
from holdfast.agents.handover_package import Reconciled
from holdfast.agents.loop.check import LoopReport as LoopReport
from holdfast.agents.loop.decide import LoopResult as LoopResult
from holdfast.agents.loop.decide import LoopSettings as LoopSettings
from holdfast.agents.loop.decide import StepResult as StepResult
from holdfast.agents.machines.definition import MachineArrow as MachineArrow
from holdfast.agents.machines.definition import MachineDefinition as MachineDefinition
from holdfast.agents.machines.definition import MachineRule as MachineRule
from holdfast.agents.machines.definition import MachineState as MachineState
from holdfast.agents.machines.machine import MachineLimits as MachineLimits
from holdfast.agents.machines.machine_records import MachineIntent as MachineIntent
from holdfast.agents.machines.machine_records import MachineRecovered as MachineRecovered
from holdfast.agents.machines.machine_records import MachineSnapshot as MachineSnapshot
from holdfast.agents.machines.machine_records import MachineStep as MachineStep
from holdfast.agents.machines.machine_records import Transition as Transition
from holdfast.agents.mailbox import Letter as Letter
from holdfast.agents.mailbox import MailboxStatus as MailboxStatus
from holdfast.agents.mailbox_records import Box, Standing
from holdfast.agents.retry import RetryPolicy as RetryPolicy
from holdfast.agents.retry import failure_kind as failure_kind
from holdfast.agents.state.agent_state import Captured, Persisted
from holdfast.agents.state.components import Component as Component
from holdfast.agents.state.draft import Draft
from holdfast.agents.state.shapes import ExecutionState, Identity
from holdfast.agents.state.shapes import Message as Message
from holdfast.agents.state.shapes import Task as Task
from holdfast.agents.state.shapes import ToolCall as ToolCall
from holdfast.agents.tool_calls import Orphan, Repaired
from holdfast.store.inner import ChangeParts, Lease, ScopedChange
from holdfast.store.names.scope import Scope
from holdfast.store.names.whole_files import Path
from holdfast.store.state_async import State, View
from holdfast.store.store_async import Store

Agent = AsyncAgent

class AgentState:
    """The components of an agent: its conversation, tasks, goals, memory and so on, by type.

    Made from a State; made from a View, it reads the past. Making one touches nothing. Each
    component has keys of its own below `$agent/`: it is read and changed alone, and a checkpoint,
    a restore and a fork take all of them along. `components` are your own, beside the built-in
    ones.
    """
    def __init__(self, state: State | View, components: Iterable[Component] = ()) -> None: ...
    async def get(self, name: str) -> Any:
        """A component as an object; if nothing is stored, as its type is without arguments.

        Those that are optional (`emotional_state`, `state`) are None then.
        """
    async def load(self) -> dict[str, Any]:
        """All components of which something is stored, of one moment."""
    async def item(self, name: str, id: str) -> Any:
        """One item of a component that has them by ids; None if it is not there."""
    async def ids(self, name: str) -> list[str]:
        """The ids of the items of a component."""
    async def tail(self, path: str, count: int) -> list[Any]:
        """The last items of a list (`conversation`, `execution_trace/commands`)."""
    async def length(self, path: str) -> int:
        """Number of items of a list."""
    async def set(self, name: str, value: Any) -> None:
        """Set a component as a whole: an object of its type or plain data; None removes it.

        Only what differs is written. `AgentValidationError` tells everything that is wrong.
        """
    async def update(self, name: str, function: Callable[[Any], Any]) -> Any:
        """Set a component to what a function makes of it; run again when somebody was faster.

        Returns what the function returned last.
        """
    async def append(self, path: str, *items: Any) -> None:
        """Add items to a list (`conversation`, `execution_trace/commands`).

        A sliding context window lets go of its oldest messages; a fixed one that is full refuses.
        """
    async def put(self, name: str, id: str, item: Any) -> None:
        """Set one item of a component that has them by ids.

        A task that has ended is current no longer. None is a value like others, where the type
        allows it: `remove` removes.
        """
    async def remove(self, name: str, id: str) -> None:
        """Remove one item; `MissingError` if it is not there."""
    async def update_task(self, id: str, **fields: Any) -> None:
        """Change fields of a task, such as `status`, `progress`, `result` or `error`.

        One that is started becomes the current one, one that has ended is current no longer.
        """
    def change(
        self,
        *,
        reason: str | None = None,
        actor: str | None = None,
        correlation: str | None = None,
        id: str | None = None,
    ) -> AbstractAsyncContextManager[Draft]:
        """Several writes as one entry, committed when the block ends without an error.

        What is read inside is expected: if somebody changes it before, `Conflict`.
        """
    async def problems(self) -> list[str]:
        """All that is wrong with what is stored, by types and rules, each with its path."""
    async def validate(self) -> None:
        """Raise `AgentValidationError` if something is wrong with what is stored."""
    async def capture(self, checkpoint: Any, *, verify: str = "full") -> Captured:
        """All that a checkpoint covers and all that is known of it, as one object."""
    async def persisted(self) -> Persisted | None:
        """The state as one flat record; None if nothing was ever written."""

class Agents:
    """Who the agents of a store are, and those of them that run here.

        agents = Agents(store, {"greeter": lambda identity: Greeter()})
        agents.register("7", kind="greeter")
        agents.get("7").greet("ann")

    An identity is part of the agent's own scope, and stays when its state is restored. Whoever
    runs an agent holds its lease: it runs in one process, and what another still writes for it is
    refused. `kinds` say how agents are made, `fields` which attributes of a kind are kept if it
    does not say so itself. An agent of a process that died can be spawned `duration` seconds after.
    """
    def __init__(
        self,
        store: Store,
        kinds: Mapping[str, Make] | None = None,
        *,
        fields: Mapping[str, Iterable[str]] | None = None,
        duration: float = 30.0,
    ) -> None: ...
    async def __aenter__(self) -> Self: ...
    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...
    async def register(
        self,
        id: str,
        *,
        kind: str = "",
        name: str = "",
        version: str = "",
        description: str = "",
        metadata: dict[str, Any] | None = None,
    ) -> Identity:
        """Say who an agent is, now and after every restart; its kind stays what it is."""
    async def identity(self, id: str) -> Identity | None:
        """Who an agent is; None if it is not registered."""
    async def list(
        self,
        *,
        kind: str | None = None,
        prefix: str = "",
        limit: int | None = None,
        after: str | None = None,
    ) -> list[AgentInfo]:
        """Registered agents in the order of their ids; for the next page give the last as `after`.

        Each of them is looked at: the time grows with their number. One that is damaged has that as
        its status, and is among them whatever its kind is.
        """
    async def export_identities(self, path: str | os.PathLike[str], *, plain: bool = False) -> int:
        """Write all identities to a file, as JSON for people, whole or not at all; how many.

        Agents that are damaged are named in it, and in a warning of the log. From an encrypted
        store only with `plain=True`, for the file is readable by everybody who has it.
        """
    async def import_identities(self, path: str | os.PathLike[str]) -> int:
        """Register those agents of such a file that are not registered; tells how many."""
    def running(self) -> Mapping[str, Attached]:
        """The agents that run here, by ids.

        Without those that have ended, by their own `stop` or by an error, or whose lease another
        has by now; who ended so is spawned anew when it is asked for.
        """
    async def get(self, id: str, *, wait: float | None = 0) -> Any:
        """The agent itself; if it does not run here, it is spawned."""
    async def spawn(self, id: str, *, wait: float | None = 0) -> Attached:
        """Make a registered agent, take its lease, and start it with what was saved.

        If it runs elsewhere, that is waited for (None: without end), then `LeaseHeldError`.
        """
    async def run(self, id: str, **options: Any) -> LoopResult:
        """Run a registered agent in a loop, here, until it is done or stopped.

        See `Loop` for the options. While it runs, `loops()` has it; a refresh makes it anew by
        its kind.
        """
    def loops(self) -> Mapping[str, Loop]:
        """The loops that `run` runs here, by the ids of their agents."""
    async def stop(self, id: str) -> None:
        """Stop an agent that runs here, which saves it, and give its lease back.

        A loop ends after the step at work, and this does not wait for it: `run` returns then.
        """
    async def close(self) -> None:
        """Stop all that run here, and wait until they have ended: loops, after the step at work.

        From now on none is spawned or run: who waits for a lease to spawn one is refused, too. Of
        several errors, the first is raised at the end; those of loops are raised by `run`. An agent
        that calls this in its step waits for no loop. If this is cut short, agents that were not
        stopped yet run on, until it is called again.
        """

class Attached:
    """An agent that is kept: `save` and `restore`, or its whole life, which does both by itself.

        with attach(agent, state, fields=["plan", "memory"]) as kept:
            agent.work()
            kept.save()

    Entering starts it, which restores what was saved; leaving stops it, which saves. It belongs to
    one thread or task at a time. On the async face methods of the agent may be async.
    """
    def __init__(self, core: Attachment, state: State) -> None: ...
    @property
    def agent(self) -> Any:
        """The agent itself."""
    @property
    def agent_id(self) -> str:
        """The id of the agent that it is kept as."""
    @property
    def state(self) -> State:
        """Where it is kept."""
    @property
    def status(self) -> str | None:
        """running, paused, stopped or failed, by what this process did; None: not started here."""
    async def life(self) -> ExecutionState:
        """Where the agent is in its life, as it is stored."""
    async def save(self, *, replace: bool = False) -> int | None:
        """Store what differs from what is stored, as one entry; None if nothing does.

        The agent is validated first. `Conflict` if what is stored was changed by somebody else, or
        is of an earlier run and was not restored; with `replace` it is given up for that of now.
        """
    async def restore(self) -> bool:
        """Let the agent hold what is stored, and validate it; False if nothing is stored."""
    async def validate(self) -> None:
        """Raise `AgentValidationError` if `validate_state` of the agent finds it wrong."""
    async def start(self, *, restore: bool = True) -> bool:
        """Begin to run: restore what was saved, and save; tells whether there was something.

        If the run before had no end, or ended with an error, `handle_recovery` of the agent is
        called in between. With `restore=False` what is stored is given up for what the agent holds.
        """
    async def pause(self) -> None:
        """Save, and rest."""
    async def resume(self) -> None:
        """Restore what is stored, which somebody may have put back meanwhile, and run again."""
    async def stop(self) -> None:
        """Save, and end."""
    async def fail(self, error: BaseException) -> None:
        """End because of an error: what the agent holds is not saved, the last save stands."""
    async def __aenter__(self) -> Self: ...
    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...

class Drift:
    """Notes an agent's cycles of work and says when they have changed for the worse.

    Six kinds are looked for: `repetition` of an action, or of a loop of up to six, without
    progress; a `stall` and a `reversal` of progress; `errors`; growing `time`; and, with
    `max_cycles`, the number of `cycles` since the last refresh. `signals` are numbers of your own
    that rise or fall. `without` names kinds to leave out, `evidence` says how much must speak for
    a drift. Every alarm carries what speaks for it. Each cycle is one small entry; what is noted
    is left alone by restores, after which only later cycles are judged. One process at a time notes
    the cycles of an agent, or several do and see each other's.
    """
    def __init__(
        self,
        state: State,
        *,
        evidence: float = 12.0,
        max_cycles: int | None = None,
        signals: Iterable[DriftSignal] = (),
        without: Iterable[str] = (),
    ) -> None: ...
    async def note(
        self,
        action: str = "",
        *,
        task: str = "",
        progress: float | None = None,
        seconds: float | None = None,
        failed: bool = False,
        signals: Mapping[str, float] | None = None,
    ) -> list[DriftAlarm]:
        """Note a cycle; returns the alarms that it raises, mostly none.

        `action` says what was done: equal texts are the same action. `progress` is how far the
        task is, in any unit that grows. What is not given is not judged.
        """
    async def status(self) -> DriftStatus:
        """How the work goes: counts and rates of the cycles that are looked at."""
    async def alarms(self, *, limit: int | None = None) -> list[DriftAlarm]:
        """The last alarms, at most a hundred, newest first."""
    async def reset(self) -> None:
        """Begin anew after a refresh: what was usual before counts no more, the count goes on."""

class Effects:
    """What an agent does in the world, done once: intent before, result after.

    An effect is known by its name and id. Records are kept in the agent's scope and left alone by
    restores: going back does not make the mail unsent. Those of done effects stay for ever, or for
    `keep` (seconds or a timedelta): after that the same effect would be done again.
    """
    def __init__(self, state: State, *, keep: float | timedelta | None = None) -> None: ...
    def once(
        self,
        name: str,
        *,
        id: str | None = None,
        key: str | None = None,
        about: Any = None,
        harmless: Errors = (),
    ) -> AbstractAsyncContextManager[Doing]:
        """A block around what must not happen twice.

        It begins by recording the intent and ends with the result. If the effect is done, `due` is
        False and `result` that of then. If the block raises, or is cancelled, the effect is unknown
        (it may have happened), unless the error is a harmless one. A block that does not ask
        whether it is due is refused at its end.

        `key` is an idempotency key that the tool takes: then an effect whose end is unknown is
        done again with the same key. Without one, it is refused with `EffectUnknownError`, until
        `settle` says how it ended. `id` tells it from other effects of that name; it is the key
        where none is given. `about` is kept for whoever has to judge it. After one of the
        `harmless` errors this attempt has surely done nothing, and it may be begun again; it is
        still unknown if an attempt before was.
        """
    async def call(
        self,
        name: str,
        function: Callable[[Doing], Any] | Callable[[], Any],
        *,
        id: str | None = None,
        key: str | None = None,
        about: Any = None,
        harmless: Errors = (),
    ) -> Any:
        """Call a function with the effect, once; its result, or that of then.

        A function that takes no argument is called without it.
        """
    def tool(
        self,
        function: Callable[..., Any] | None = None,
        /,
        *,
        name: str | None = None,
        idempotent: bool = False,
        harmless: Errors = (),
    ) -> Any:
        """Make a function a tool whose calls are recorded and not repeated: `@effects.tool`.

        A call that is done gives the result of then. It is known by `call_id=`, which a tool takes
        besides its own arguments: give the id of the model's tool call. Without one, it is known by
        its arguments. A parameter called `effect` gets the effect. The effect's name is the
        function's, or `name`. With `idempotent` its id is an idempotency key, which the function
        passes on: a call whose end is unknown is done again with it. See `once` for the rest.

        On the async face a tool is awaited, and its function may be async.
        """
    async def plan(
        self,
        name: str,
        *,
        id: str | None = None,
        key: str | None = None,
        about: Any = None,
        into: ScopedChange | None = None,
    ) -> Effect:
        """Note that an effect is meant to happen: until it is begun, it is known not to have.

        With `into`, a change of this state's, it is noted together with what else that writes;
        also the change of a machine's step.
        """
    async def get(
        self, name: str, *, id: str | None = None, key: str | None = None
    ) -> Effect | None:
        """What is known of an effect; None if that is nothing."""
    async def all(self) -> list[Effect]:
        """All effects, in the order in which they were planned or begun."""
    async def unfinished(self) -> list[Effect]:
        """Effects that are not done: planned ones, and those whose end is unknown."""
    async def settle(
        self,
        name: str,
        how: str,
        *,
        id: str | None = None,
        key: str | None = None,
        result: Any = None,
        into: ScopedChange | None = None,
    ) -> Effect:
        """Say how an unfinished effect ended: `done` (with its result), `repeat` or `drop`.

        `repeat`: it did not happen, or may happen again; the next `once` begins it. `drop`: it is
        not wanted any more, and forgotten. `done` also says the result of one that lost it. With
        `into`, a change of this state's, it is said together with what else that writes: what the
        block would have written.
        """
    async def orphans(self, key: str = ...) -> tuple[Orphan, ...]:
        """Tool calls in a conversation that have no result, each with what is known of its effect.

        The id of the effect is that of the call. The whole list is read.
        """
    async def repair(self, key: str = ...) -> Repaired:
        """Give every tool call of a conversation its result, so that a model takes it again.

        A call whose effect is done gets its result; one whose end is unknown gets a result that
        says so; any other one gets a result that says that it was not carried out. A result
        without a call is removed. One change; effects stay as they are. Refused where something
        stands between a call and its result, or messages that must be written anew are sealed for
        a subject.
        """

class Handovers:
    """Tasks that agents of a store hand to each other, with the conversation that belongs to them.

    A task is offered, and the giver's until the taker accepts; then it and its messages move in one
    change over both scopes. An agent is given as its state, or by its scope: `agent:billing`, and
    takes part with its main timeline only. A check is a function of the state and the
    `HandoverPackage`: it returns nothing or True if all is well, else what is wrong; it may be
    called several times.
    """
    def __init__(self, store: Store) -> None: ...
    async def offer(
        self,
        giver: State | Scope | str,
        taker: State | Scope | str,
        task: str,
        *,
        reason: str,
        id: str | None = None,
        context: str = "move",
        check: Check | None = None,
    ) -> Handover:
        """Offer a task to another agent; it stays the giver's until the other accepts.

        `context`: the messages since the task came here (all, if it began here) `move`, are copied
        (`copy`), or stay (`none`). Under an `id` it is offered once, however often it is sent. It
        stands until it is answered or withdrawn.

        Refused with `HandoverValidationError` if there is no such task, it is over or offered
        already, a tool call in those messages has no result, an effect of the giver's has an
        unknown end, or the check finds something.
        """
    async def accept(
        self, taker: State | Scope | str, id: str, *, check: Check | None = None
    ) -> Handover:
        """Take the task that an offer is about: from now on it is the taker's.

        The giver's side is looked at again; if it is not in order, the offer stays. If the taker's
        is not (such a task or key is there, the check finds something), the offer is refused with
        that as the reason, and `HandoverValidationError` says so.
        """
    async def refuse(self, taker: State | Scope | str, id: str, *, reason: str) -> Handover:
        """Refuse an offer; the task stays the giver's."""
    async def withdraw(self, giver: State | Scope | str, id: str, *, reason: str) -> Handover:
        """Take an offer back, as its giver."""
    async def hand_over(
        self,
        giver: State | Scope | str,
        taker: State | Scope | str,
        task: str,
        *,
        reason: str,
        id: str | None = None,
        context: str = "move",
        check: Check | None = None,
    ) -> Handover:
        """Offer and accept, for a caller who answers for both; the check is the taker's.

        With an `id` it may be called again after a crash, and goes on where it was.
        """
    async def give_back(
        self,
        holder: State | Scope | str,
        task: str,
        *,
        reason: str,
        id: str | None = None,
        check: Check | None = None,
    ) -> Handover:
        """Offer a task to the agent that handed it here, with what has been said since."""
    async def offers(self, taker: State | Scope | str) -> list[Handover]:
        """Offers to an agent that wait for its answer, oldest first."""
    async def history(self, agent: State | Scope | str, task: str | None = None) -> list[Handover]:
        """All handovers by and to an agent, oldest first: who handed what to whom, and why."""
    async def owner(self, agent: State | Scope | str, task: str) -> Scope:
        """Who has a task that an agent has, or had once."""
    async def chain(self, agent: State | Scope | str, task: str) -> list[Handover]:
        """The way of a task that an agent has, or had once: what was accepted, oldest first."""
    async def reconcile(self, agent: State | Scope | str) -> Reconciled:
        """Make a state that was restored fit what was handed over since; call it after a restore.

        A handover stays made: tasks that another agent has are removed again, those that this one
        has are put back as they came.
        """

class Loop:
    """Runs an agent: letters, tasks, one step of work after the other, and what keeps it safe.

    `agent` has `step()`, which does a unit of work and returns a `StepResult`, the name of its
    action, or nothing; it may have `on_letter(mail)`, `check_tasks()` and what `PersistentAgent`
    names. Or it is a function that makes such an agent, from the state if it takes one: then a
    refresh begins with a new object. What the agent keeps is saved after every step, and with every
    letter in the same change. `fields` names attributes to keep of an agent that does not say so
    itself. On the async face each method of the agent may be async.

    A routine checkpoint is made every 30 minutes; after 2 hours, and when it drifts, a recovery
    checkpoint, and the agent is made anew; after an error the loop makes one, waits, and goes on
    from what was saved, until there were `max_errors` in a row, which raises the last one. SIGTERM
    ends it after the step at work. See `LoopSettings` for all intervals and limits. One process at
    a time runs an agent, by a lease. `drift` is a `Drift` of your own settings, or False for none.
    """
    def __init__(
        self,
        state: State,
        agent: Any,
        *,
        fields: Iterable[str] | None = None,
        drift: Drift | bool = True,
        signals: Iterable[int] = ...,
        settings: LoopSettings | None = None,
        **intervals: Any,
    ) -> None: ...
    async def run(self) -> LoopResult:
        """Run until the agent is done, somebody stops it, or it cannot go on.

        On the async face, cancelling the task ends it too, with a last checkpoint of what was
        saved.
        """
    def stop(self) -> None:
        """Let the loop end after the step at work; from any thread.

        If it does not run, the next run ends as soon as it begins.
        """
    async def restart(
        self, checkpoint: Any, *, clean: bool = False, reason: str = "asked for"
    ) -> None:
        """Let the agent go on from a checkpoint, before its next step; also of another process.

        With `clean`, without its conversation and short-term memory. If nobody runs the agent, the
        next who does begins so. It takes the place of one that was asked for before.
        """

class Machine:
    """A machine of a definition, kept in a state under its name. Making one touches nothing."""
    def __init__(
        self,
        state: State,
        definition: MachineDefinition,
        name: str = ...,
        *,
        limits: MachineLimits | None = None,
    ) -> None: ...
    async def start(self, **data: Any) -> MachineSnapshot:
        """Enter the initial state; of one that is started, tell where it is.

        The first trigger starts a machine by itself. Giving data to one that is started is refused.
        """
    async def fire(self, trigger: str, /, **input: Any) -> Transition:
        """Follow a trigger: guard, exit, action, work, entry, then one change that expects the
        state that it began in.

        Refused (`TransitionRefusedError`), failed and overtaken (`Conflict`) attempts leave the
        machine where it was, and are in its log. If the arrow has work, the intent is stored first;
        while it is open, others get `IncompleteTransitionError`.
        """
    async def save(
        self,
        data: Mapping[str, Any] | None = None,
        *,
        metadata: Mapping[str, Any] | None = None,
        if_version: int | None = None,
    ) -> MachineSnapshot:
        """Set the data, the metadata or both as a new version; what is not given stays.

        With `if_version` only if the machine still has that version, else `Conflict`.
        """
    async def recover(self) -> MachineRecovered:
        """Settle a transition that was interrupted, by the choice that its arrow declares.

        For when nobody else works on the machine (a lease tells): who takes a transition over
        keeps the other from ending it, not from working. With the choice `ask` it stays open.
        """
    async def settle(self, how: str, /, **data: Any) -> MachineRecovered:
        """End an interrupted transition as you say: `complete` does the work again, `done` takes it
        as done (data are what it would have given), `roll_back` undoes it.
        """
    async def now(self) -> MachineSnapshot | None:
        """Where the machine is; None if it was never started."""
    async def can(self, trigger: str, /, **input: Any) -> bool:
        """Whether an arrow and all rules allow a trigger now; guards are not asked."""
    async def validate(self) -> tuple[str, ...]:
        """What is wrong with what is stored, as texts; empty if nothing is."""
    async def transitions(
        self,
        *,
        since: datetime | int | None = None,
        until: datetime | int | None = None,
        success: bool | None = None,
        limit: int | None = 100,
    ) -> list[Transition]:
        """The newest transitions that fit, oldest first; bounds are numbers or times, inclusive."""
    async def version(self, version: int) -> MachineSnapshot:
        """The machine at one of its versions, as far as history is kept."""
    async def entry(self, version: int) -> str:
        """The entry that made a version, as a point: for `at`, `diff`, `fork`, `prune`."""
    async def roll_back(self, point: Any) -> MachineSnapshot:
        """Make the machine what it was at a version (a number) or a checkpoint, as a new version.

        The machine alone: `State.restore` puts back all of an agent.
        """
    async def replay(self, version: int, *, until: int | None = None) -> MachineSnapshot:
        """Follow the log from a version on, up to a transition's number, and take up that place.

        Only transitions that succeeded; each must begin where the one before ended, else
        `ReplayError` and nothing changes. Data and metadata are those that the last of them left,
        and `replay_info` in the metadata says what was followed. Actions and work are not run.
        """
    async def clean(self, before: datetime | None = None) -> int:
        """Drop transitions from before a time (7 days ago) from the log; tells how many.

        The newest one stays. The versions that they made are not found any more.
        """
    definition: MachineDefinition
    name: str

class Mail:
    """A letter that is being processed; what `change` writes is committed together with that."""
    def __init__(
        self, letter: Letter, parts: ChangeParts, box: Box, standing: Standing
    ) -> None: ...
    letter: Letter
    content: Any
    change: ScopedChange
    def send(self, to: State, content: Any) -> str:
        """Send a letter to another agent of this store, in the same commit; returns its id."""

class Mailbox:
    """Letters to an agent, each processed once: what was done with it is in the same change.

    A letter that was sent is never lost, whoever crashes; one whose processing was cut short is
    the next one again. Any number of processes may send; several may process, and each letter is
    done by one of them. After a restore the letters that came since are still there, and those that
    were processed since are processed again, because what that wrote was undone: guard effects
    outside by the letter's id. The last `keep` processed ones are kept for that. What fails is
    tried again as `retry` says (without it: 5 times in all, whatever the failure is), then set
    aside, so that those behind it go on; it stays so in a restore.
    """
    def __init__(
        self, state: State, *, keep: int = ..., retry: RetryPolicy | None = None
    ) -> None: ...
    async def send(self, content: Any, *, sender: str = "", id: str | None = None) -> str:
        """Put a letter into the mailbox; returns its id. With an `id` it is sent once.

        Another content under a known id is refused with `ChangeIdError`.
        """
    def next(self) -> AbstractAsyncContextManager[Mail | None]:
        """The next letter; it is processed when the block ends without an error.

        None if none waits, or the next is one that failed and it is too early to try it again.

        If somebody else was faster, or changed what was read, the block ends with `Conflict`, and
        nothing of it was applied. An error in the block counts as a failed attempt, and so does
        what it wrote if that is refused.
        """
    async def process(self, function: Callable[[Mail], Any], *, limit: int | None = None) -> int:
        """Process what waits, at most `limit` letters, by `function(mail)`; tells how many.

        The function runs again if somebody else was faster, or changed what it has read; after 5
        times in a row with the same letter that is an error like any other. An error ends this,
        after it has been counted. On the async face the function may be async.
        """
    async def waiting(self, *, limit: int | None = None) -> list[Letter]:
        """Letters that are not processed yet, the next one first."""
    async def set_aside(self) -> list[Letter]:
        """Letters that failed too often, oldest first."""
    async def retry(self, number: int) -> str:
        """Put a letter that was set aside behind all others; returns its id."""
    async def interrupted(self) -> list[str]:
        """Count attempts whose process ended before they did as failures (`daemon_restart`).

        For when a program starts, before anyone processes this mailbox: a loop and `boot` do it.
        Known of attempts that were made under a `retry` with kinds. Returns the ids of those that
        are set aside by it.
        """
    async def remove(self, number: int) -> None:
        """Let nobody process a letter that waits or was set aside; it stays in the history."""
    async def clear_failed(self) -> int:
        """Remove what was set aside; tells how many letters. They stay in the history."""
    async def clear_all(self) -> int:
        """Remove what waits and what was set aside; tells how many letters."""
    async def status(self) -> MailboxStatus:
        """How many came, are processed, wait, are set aside or were missed."""

def attach(
    agent: Any, state: State, *, fields: Iterable[str] | None = None, lease: Lease | None = None
) -> Attached:
    """Keep an agent, an object of any class, in a state. Nothing is touched yet.

    `fields` are the attributes that are kept. Without them, the agent says so itself (see
    `PersistentAgent`), or it is a dataclass, a msgspec Struct or a pydantic model, of which all
    fields are. What is written is under the lease, if one is given.
    """

async def check_loop(
    state: State, *, interval: float = 1800.0, tolerance: float = 300.0, limit: int = ...
) -> LoopReport:
    """Look at the newest checkpoints of an agent: are they whole, and were they made in time?

    Nothing is changed. `report.findings` is empty when all is well.
    """

async def export_agent(
    state: State,
    folder: str | os.PathLike[str],
    *,
    at: Any = None,
    plain: bool = False,
    reveal: bool = False,
) -> str:
    """Write a checkpoint of an agent (default: the newest) to a file for people; returns its path.

    The folder is there. A checkpoint that is exported again replaces its file; another one of the
    same second and type has its timeline and the number of its entry behind the type. Of a long id
    the beginning and a digest stand in the name. From an encrypted store only with `plain=True`.
    All of the state is read and checked; the components are held whole.
    """

async def import_folder(state: State, folder: Path, *, agent: str | None = None) -> ImportedAgent:
    """Take up an agent from a folder of files, as `docs/agents.md` lists them, in one change.

    `agent` is its name there, if it is another than the id of the state. Every file is read and
    checked first; if one is bad, `AgentValidationError` lists all that are, and nothing is
    written. An agent is taken up once: imported again, only letters that are new are added. The
    folder must not be written to meanwhile; it is not changed. At most 64 MiB at once.
    """

async def run(agent: Any, state: State | None = None, **options: Any) -> LoopResult:
    """Run an agent until it is done or stopped; see `Loop` for the options.

    Without a state, it is that of the `Agent`, or the attribute `state` of another agent.
    """
