"""A state machine of an agent."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from holdfast.agents.agent_keys import MayWait, may_wait
from holdfast.agents.machines.definition import MachineDefinition, check_blocking, check_definition
from holdfast.agents.machines.log import MachineLimits, Past, transitions_of
from holdfast.agents.machines.machine_records import (
    MAIN,
    MachineRecovered,
    MachineSnapshot,
    MachineStep,
    Replayed,
    Transition,
    problems_of,
)
from holdfast.errors import InvalidInputError
from holdfast.store.inner import handle_of
from holdfast.store.names.arguments import check_flag, check_function
from holdfast.store.names.face import (
    Blocks,
    Steps,
    calls,
    faced,
    give,
    quick,
    step_block,
    steps,
)
from holdfast.store.state import State


@faced
class Machine:
    """A machine of a definition, kept in a state under its name. Making one touches nothing."""

    @calls(definition=may_wait)
    def __init__(
        self,
        state: State,
        definition: MachineDefinition,
        name: str = MAIN,
        *,
        limits: MachineLimits | None = None,
    ) -> None:
        if not isinstance(state, State):
            raise InvalidInputError("Machine takes a state of the same face")
        if isinstance(definition, MayWait):
            check_definition(definition := definition.given)
        else:
            check_definition(definition)
            check_blocking(definition)
        self._state = state
        self._storage = handle_of(state).core.storage
        self.definition = definition
        self.name = name
        self._routines = Past(state, definition, name, limits or MachineLimits())

    def __repr__(self) -> str:
        return f"<Machine {self.name} of {self._state.scope}>"

    # going on

    @steps
    def start(self, **data: Any) -> Steps[MachineSnapshot]:
        """Enter the initial state; of one that is started, tell where it is.

        The first trigger starts a machine by itself. Giving data to one that is started is refused.
        """
        return (yield from self._routines.start(data))

    @steps
    def fire(self, trigger: str, /, **input: Any) -> Steps[Transition]:
        """Follow a trigger: guard, exit, action, work, entry, then one change that expects the
        state that it began in.

        Refused (`TransitionRefusedError`), failed and overtaken (`Conflict`) attempts leave the
        machine where it was, and are in its log. If the arrow has work, the intent is stored first;
        while it is open, others get `IncompleteTransitionError`.
        """
        return (yield from self._routines.fire(trigger, input))

    @step_block
    def working(self, trigger: str, /, **input: Any) -> Blocks[MachineStep]:
        """Do the work of a transition in a block: the intent is stored before, the outcome after.

        An error of the block is noted as a failed attempt. If the process ends, or is interrupted
        by something that is no `Exception`, the intent stays open; so it does if the block ends
        well, the transition is not made all the same, and its arrow has no `undo`.
        """
        step, seen, arrow = yield from self._routines.begin(trigger, input, intent=True)
        try:
            yield give(step)
        except Exception as error:
            yield from self._routines.fail(step, error, seen.intent, arrow.undo)
            raise
        yield from self._routines.finish(step, seen, arrow)

    @steps
    def save(
        self,
        data: Mapping[str, Any] | None = None,
        *,
        metadata: Mapping[str, Any] | None = None,
        if_version: int | None = None,
    ) -> Steps[MachineSnapshot]:
        """Set the data, the metadata or both as a new version; what is not given stays.

        With `if_version` only if the machine still has that version, else `Conflict`.
        """
        return (yield from self._routines.save(data, metadata, if_version))

    # what was interrupted

    @steps
    def recover(self) -> Steps[MachineRecovered]:
        """Settle a transition that was interrupted, by the choice that its arrow declares.

        For when nobody else works on the machine (a lease tells): who takes a transition over
        keeps the other from ending it, not from working. With the choice `ask` it stays open.
        """
        return (yield from self._routines.recover())

    @steps
    def settle(self, how: str, /, **data: Any) -> Steps[MachineRecovered]:
        """End an interrupted transition as you say: `complete` does the work again, `done` takes it
        as done (data are what it would have given), `roll_back` undoes it.
        """
        return (yield from self._routines.settle(how, data))

    # looking

    @quick
    def now(self) -> MachineSnapshot | None:
        """Where the machine is; None if it was never started."""
        return self._routines.snapshot()

    @quick
    def can(self, trigger: str, /, **input: Any) -> bool:
        """Whether an arrow and all rules allow a trigger now; guards are not asked."""
        return self._routines.can(trigger, input)

    def validate(self) -> tuple[str, ...]:
        """What is wrong with what is stored, as texts; empty if nothing is."""
        return problems_of(self._routines)

    def transitions(
        self,
        *,
        since: datetime | int | None = None,
        until: datetime | int | None = None,
        success: bool | None = None,
        limit: int | None = 100,
    ) -> list[Transition]:
        """The newest transitions that fit, oldest first; bounds are numbers or times, inclusive."""
        return transitions_of(
            self._routines.looker, since=since, until=until, success=success, limit=limit
        )

    # versions

    def version(self, version: int) -> MachineSnapshot:
        """The machine at one of its versions, as far as history is kept."""
        return self._routines.snapshot_of(version)

    def entry(self, version: int) -> str:
        """The entry that made a version, as a point: for `at`, `diff`, `fork`, `prune`."""
        return self._routines.looker.entry_of(version)

    @steps
    def roll_back(self, point: Any) -> Steps[MachineSnapshot]:
        """Make the machine what it was at a version (a number) or a checkpoint, as a new version.

        The machine alone: `State.restore` puts back all of an agent.
        """
        return (yield from self._routines.roll_back(point))

    @steps
    def replay(
        self,
        version: int,
        *,
        until: int | None = None,
        apply: Callable[[dict[str, Any], Transition], Any] | None = None,
        dry_run: bool = False,
    ) -> Steps[Replayed]:
        """Follow the log from a version on, up to a transition's number, and take up that place.

        Only transitions that succeeded; each must begin where the one before ended, else
        `ReplayError` and nothing changes. Data and metadata are those that the last of them left;
        with `apply(data, transition)`, data are what it makes of those of the version. Actions and
        work are not run.
        """
        if apply is not None:
            check_function(apply, "apply")
        check_flag(dry_run, "dry_run")
        routine = self._routines.replay(version, until=until, apply=apply, dry_run=dry_run)
        return (yield from routine)

    @steps
    def clean(self, before: datetime | None = None) -> Steps[int]:
        """Drop transitions from before a time (7 days ago) from the log; tells how many.

        The newest one stays. The versions that they made are not found any more.
        """
        return (yield from self._routines.clean(before))
