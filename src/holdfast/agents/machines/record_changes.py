"""Changes of a machine's keys: a step, an intent, a failed attempt; and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from time import perf_counter
from typing import TYPE_CHECKING, Any

from holdfast.agents.agent_keys import ATTEMPTS, sticky
from holdfast.agents.machines.drive import Commit, Read, Routine
from holdfast.agents.machines.record_reader import Looker, Seen
from holdfast.agents.machines.records import (
    MOST_ERROR,
    TIME,
    MachineIntent,
    MachineSnapshot,
    Transition,
)
from holdfast.agents.machines.step import MachineStep
from holdfast.errors import (
    Conflict,
    HoldfastError,
    IncompleteTransitionError,
    MachineDataError,
    TransitionRefusedError,
)
from holdfast.store.commit.request import ScopedChange, build_change
from holdfast.store.names.cause import cause_now
from holdfast.store.rules.gates import Operation
from holdfast.store.tree.difference import same
from holdfast.store.tree.value_copy import copied

if TYPE_CHECKING:
    from holdfast.agents.machines.definition import MachineDefinition
    from holdfast.store.history.checkpoint import Plan
    from holdfast.store.history.handle import LineHandle


class Storing:
    """What one machine of one timeline can have stored."""

    def __init__(self, handle: LineHandle, definition: MachineDefinition, name: str) -> None:
        self.handle = handle
        self.meter = handle.core.meter
        self.definition = definition
        self.looker = Looker(handle, name)
        self.keys = self.looker.keys
        self.where = f"{self.looker.agent}: the machine {name!r}"
        self._declared = False
        """Whether its log was seen to be sticky: that is asked until it is so, for it is a read."""

    def snapshot(self) -> MachineSnapshot | None:
        """Where the machine is."""
        return self.looker.snapshot(self.definition)

    def step(
        self, origin: str, target: str, trigger: str, input: dict[str, Any], id: str
    ) -> MachineStep:
        """What functions of the user are given."""
        change = ScopedChange(self.handle.reader)
        return MachineStep(id, self.looker.name, trigger, origin, target, input, change)

    def plan(
        self, operations: list[Operation], expects: dict[str, int], step: MachineStep | None = None
    ) -> Plan:
        """A change of the machine's keys, and of what an action has written besides; its entry.

        Restores leave the log alone from then on, also if it came here with a state from elsewhere.
        """
        head = None
        if not self._declared:
            declaring = sticky(self.handle, self.keys.sticky)
            self._declared = not declaring
            operations = [*operations, *declaring]
        if step is not None:
            step.change.over = True
            operations = [*operations, *step.change.operations]
            expects = {**step.change.expects, **expects}
            head = step.change.head
        target = (self.handle.scope, self.handle.timeline, operations, expects, head)
        change = build_change(self.handle.core, [target], cause=cause_now())
        return change, lambda written: written[0].sequence

    def apply(
        self, seen: Seen, step: MachineStep, kind: str, *, done_again: bool = False
    ) -> Routine[Transition]:
        """The one change: the new state, the data if they differ, the log, the intent's end.

        `done_again`: whether the caller looks and tries once more if it is overtaken.
        """

        def plan() -> Plan:
            made, operations = self._operations(seen, step, kind)
            now = operations[0].value
            change, entry_of = self.plan(operations, seen.expects, step)
            change.done_again = done_again

            def finish(written: Any) -> Transition:  # also if who waits for it was cancelled
                self.looker.wrote(seen, entry_of(written), made, now)
                made.counted(self.meter, perf_counter() - step.begun)
                return made

            return change, finish

        made: Transition = yield from self._commit(seen, plan)
        return made

    def _commit(self, seen: Seen, plan: Callable[[], Plan]) -> Routine[Any]:
        """Commit a plan, again while others only add failed attempts to the log; what it gives."""
        own = {self.keys.now, self.keys.transitions, self.keys.intent}
        for _ in range(ATTEMPTS):
            try:
                return (yield Commit(plan()))
            except Conflict as conflict:
                if not conflict.keys or not own.issuperset(conflict.keys):
                    raise
                again = yield Read(self.looker.look)
                if not same(again.now, seen.now) or again.intent != seen.intent:
                    raise
                seen.number, seen.version = again.number, again.version
                seen.expects |= again.expects
        raise Conflict(f"{self.where}: others were always faster; try again", [self.keys.now])

    def _operations(
        self, seen: Seen, step: MachineStep, kind: str
    ) -> tuple[Transition, list[Operation]]:
        keys, before = self.keys, seen.now
        if before is None:  # the scope may be another one of that name by now
            self._declared = False
        records = []
        if seen.adopted:
            adopted = self.looker.adoption(seen)
            records.append(adopted.stored())
            seen = replace(seen, number=adopted.number, version=adopted.version)
        made = self._transition(seen, step, kind, seen.version + 1)
        record = made.stored()
        time = record[TIME]
        created = before["created"] if before is not None else time
        now = {
            "state": step.target,
            "version": made.version,
            "id": made.id,
            "created": created,
            "updated": max(created, time),
        }
        # Without data nobody was given metadata, either.
        metadata = before.get("metadata") if before and seen.data is None else step.metadata
        if metadata:
            now["metadata"] = metadata
        operations = [
            Operation("set", keys.now, now),
            Operation("append", keys.transitions, [*records, record]),
        ]
        if before is None or (seen.data is not None and not same(seen.data, step.data)):
            operations.append(Operation("set", keys.data, step.data))
        if before is None or seen.intent is not None:
            operations.append(Operation("set", keys.intent, None))
        return made, operations

    def _transition(
        self, seen: Seen, step: MachineStep, kind: str, version: int, error: str | None = None
    ) -> Transition:
        return Transition(
            seen.number + 1,
            step.id,
            self.looker.agent,
            self.looker.name,
            kind,
            step.origin,
            step.target,
            step.trigger,
            self.looker.time(),
            version,
            error,
        )

    def store_intent(self, seen: Seen, step: MachineStep) -> Routine[None]:
        """Say that a step is about to be worked on."""
        given = copied(step.input)  # functions may change theirs
        intent = MachineIntent(
            step.id, step.trigger, step.origin, step.target, given, self.looker.time()
        )
        yield from self.put_intent(seen, intent)

    def put_intent(self, seen: Seen, intent: MachineIntent) -> Routine[None]:
        """Say that this transition is being worked on; what it rests on must still be so."""
        operation = Operation("set", self.keys.intent, intent.stored())
        entry = yield from self._commit(seen, lambda: self.plan([operation], seen.expects))
        seen.expects[self.keys.intent] = entry
        seen.intent = intent

    def failed(
        self,
        step: MachineStep,
        error: Exception,
        kind: str = "step",
        *,
        close: MachineIntent | None = None,
    ) -> Routine[None]:
        """Note a failed attempt; never in the way of its error."""
        try:
            yield from self.log_failure(step, f"{type(error).__name__}: {error}", kind, close)
        except HoldfastError as wrong:
            error.add_note(f"{self.where}: the attempt is not in its log: {type(wrong).__name__}")

    def log_failure(
        self, step: MachineStep, why: str, kind: str, close: MachineIntent | None
    ) -> Routine[None]:
        """Add a failed attempt to the log, and end its intent if it is still the one."""
        keys = self.keys
        seconds = perf_counter() - step.begun
        for attempt in range(ATTEMPTS):
            seen = yield Read(self.looker.look)
            made = self._transition(seen, step, kind, seen.version, why[:MOST_ERROR])
            if not attempt:  # it failed, whether or not that can be written down
                made.counted(self.meter, seconds)
            operations = [Operation("append", keys.transitions, [made.stored()])]
            expects = {keys.transitions: seen.expects[keys.transitions]}
            if close is not None and seen.intent == close:
                operations.append(Operation("set", keys.intent, None))
                expects[keys.intent] = seen.expects[keys.intent]
            change, entry_of = self.plan(operations, expects)
            change.done_again = attempt < ATTEMPTS - 1
            try:
                entry = yield Commit((change, entry_of))
            except Conflict:
                continue
            self.looker.noted(seen, entry, made, closed=keys.intent in expects)
            return
        raise Conflict(f"{self.where}: others were always faster; try again", [keys.transitions])

    def overtaken(self, step: MachineStep, conflict: Conflict) -> Conflict:
        """The error for who was slower than somebody else."""
        return Conflict(
            f"{self.where}: somebody changed what {step.trigger!r} rests on before it was done; "
            "look again and retry",
            conflict.keys,
        )

    def check_data(self, state: str, data: dict[str, Any]) -> None:
        """Refuse data that do not fit a state."""
        problems = self.definition.validate_data(state, data)
        if problems:
            error = MachineDataError(
                f"{self.where}: its data do not fit the state {state!r}: {'; '.join(problems)}",
                problems,
            )
            raise self.meter.invalid("machine", error)

    def refuse_idle(self, seen: Seen) -> None:
        """Refuse what needs a machine that was started."""
        if seen.now is None:
            text = "it was never started"
            raise TransitionRefusedError(f"{self.where}: {text}; start() it", [text])

    def refuse_open(self, seen: Seen) -> None:
        """Refuse what would go over the head of who works on a transition."""
        if seen.intent is not None:
            raise IncompleteTransitionError(
                f"{self.where} is between {seen.intent.from_state!r} and "
                f"{seen.intent.to_state!r}, by {seen.intent.trigger!r}: somebody works on it, or "
                "was interrupted; then recover() or settle() it",
                seen.intent,
            )
