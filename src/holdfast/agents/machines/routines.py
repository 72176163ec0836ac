"""What a machine does, as routines; `driving` says what they are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import replace
from secrets import token_hex
from typing import TYPE_CHECKING, Any

from holdfast.agents.keys import ATTEMPTS, sticky
from holdfast.agents.machines.driving import Call, Commit, Read, Routine
from holdfast.agents.machines.looking import Looker, Seen
from holdfast.agents.machines.records import (
    MOST_ERROR,
    MachineIntent,
    MachineRecovered,
    MachineSnapshot,
    Transition,
)
from holdfast.agents.machines.steps import MachineStep, concerns_data, is_bare, refusals, wanted
from holdfast.errors import (
    Conflict,
    HoldfastError,
    IncompleteTransitionError,
    InvalidInputError,
    MachineDataError,
    RefusedError,
    TransitionRefusedError,
)
from holdfast.store.arguments import check_text
from holdfast.store.cause import cause_now
from holdfast.store.compare import same
from holdfast.store.gates import Operation
from holdfast.store.reading import microseconds
from holdfast.store.writing import ScopedChange, build_change

if TYPE_CHECKING:
    from holdfast.agents.machines.definition import MachineArrow, MachineDefinition
    from holdfast.store.handles import LineHandle

INTERRUPTED = "interrupted, and rolled back"


class Routines:
    """What one machine of one timeline does."""

    def __init__(self, handle: LineHandle, definition: MachineDefinition, name: str) -> None:
        self.handle = handle
        self.definition = definition
        self.looker = Looker(handle, name)
        self.keys = self.looker.keys
        self.where = f"{self.looker.agent}: the machine {name!r}"
        self._bare = {
            (origin, trigger): arrow.to
            for origin, trigger, arrow in definition.arrows()
            if is_bare(definition, origin, arrow)
        }

    # beginning

    def start(self, data: Mapping[str, Any]) -> Routine[MachineSnapshot]:
        """Enter the initial state, unless it is started; then it must not be given data."""
        seen = yield Read(self.looker.look_whole)
        if seen.now is None:
            self.refuse_open(seen)
            seen = yield from self._started(seen, data)
        elif data:
            raise TransitionRefusedError(
                f"{self.where} is started already; `save` changes its data",
                ["it is started already"],
            )
        snapshot = self.looker.shown(self.definition, seen.now, seen.data or {}, seen.intent)
        assert snapshot is not None
        return snapshot

    def _started(self, seen: Seen, data: Mapping[str, Any]) -> Routine[Seen]:
        initial = self.definition.initial
        here = self.definition.states[initial]
        step = self._step("", initial, "", {}, token_hex(8))
        step.data = deepcopy({**here.data, **data})
        try:
            if here.enter is not None:
                merge(step, (yield Call(here.enter, step)))
            self._check_data(initial, step.data)
        except Exception as error:
            yield from self._failed(step, error, "start")
            raise
        # What the log of an earlier life left is gone on from; the data are not.
        seen.data = None
        try:
            yield from self._apply(seen, step, "start")
        except Conflict:
            seen = yield Read(self.looker.look_whole)
            if seen.now is None or data:
                raise
            return seen  # somebody else has just started it
        started: Seen = yield Read(self.looker.look_whole)
        return started

    # transitions

    def fire(self, trigger: str, input: Mapping[str, Any]) -> Routine[Transition]:
        """Follow a trigger to its end."""
        check_text(trigger, "a trigger", 128, least=1)
        quick = self._quick(trigger, input)
        if quick is not None:
            try:
                return (yield from self._made(*quick))
            except Conflict:
                pass  # it is elsewhere by now: look
        step, seen, arrow = yield from self.begin(trigger, input)
        return (yield from self._carry_out(step, seen, arrow, work=arrow.work))

    def _quick(self, trigger: str, input: Mapping[str, Any]) -> tuple[Seen, MachineStep] | None:
        """A transition that asks for nothing, from where the machine was last seen.

        Like a set, it is made without looking first: the change expects that nobody moved it.
        """
        seen = self.looker.last_seen()
        to = self._bare.get((seen.state, trigger))
        if to is None or input or seen.intent is not None:
            return None
        return seen, self._step(seen.state, to, trigger, {}, token_hex(8))

    def begin(
        self, trigger: str, input: Mapping[str, Any], *, intent: bool = False
    ) -> Routine[tuple[MachineStep, Seen, MachineArrow]]:
        """All that comes before actions and work; if there is work, the intent is stored."""
        check_text(trigger, "a trigger", 128, least=1)
        given = deepcopy(dict(input))
        seen = yield Read(self.looker.look)
        self.refuse_open(seen)
        if seen.now is None:
            seen = yield from self._started(seen, {})
            self.refuse_open(seen)
        arrow = self.definition.arrow(seen.state, trigger)
        step = self._step(seen.state, arrow.to if arrow else "", trigger, given, token_hex(8))
        try:
            problems = list(refusals(self.definition, seen.state, trigger, given))
            if problems or arrow is None:
                raise self._refused(trigger, problems)
            if concerns_data(self.definition, seen.state, arrow) or intent:
                yield from self._give_data(seen, step, arrow)
            if arrow.guard is not None:
                no = wanted((yield Call(arrow.guard, step)))
                if no is not None:
                    raise self._refused(trigger, [no])
            if arrow.work is not None or intent:
                yield from self._store_intent(seen, step)
        except Conflict as conflict:
            raise (yield from self._overtaken(step, conflict)) from conflict
        except Exception as error:
            yield from self._failed(step, error)
            raise
        return step, seen, arrow

    def _give_data(self, seen: Seen, step: MachineStep, arrow: MachineArrow) -> Routine[None]:
        yield Read(lambda: self.looker.read_data(seen))
        assert seen.now is not None
        kept = {name: deepcopy(step.input[name]) for name in arrow.keep if name in step.input}
        there = self.definition.states[arrow.to]
        step.data = {**deepcopy(there.data), **deepcopy(seen.data or {}), **kept}
        step.metadata = deepcopy(seen.now.get("metadata", {}))

    def _carry_out(
        self, step: MachineStep, seen: Seen, arrow: MachineArrow, *, work: Any
    ) -> Routine[Transition]:
        """Actions and work, then the one change that makes the transition."""
        here, there = self.definition.states.get(step.origin), self.definition.states[arrow.to]
        exit = here.exit if here is not None else None
        try:
            for function in (exit, arrow.action, work, there.enter):
                if function is not None:
                    merge(step, (yield Call(function, step)))
            if seen.data is not None:
                self._check_data(arrow.to, step.data)
        except Exception as error:
            yield from self.fail(step, seen, arrow, error)
            raise
        try:
            return (yield from self._made(seen, step))
        except Conflict as conflict:
            raise (yield from self._overtaken(step, conflict)) from conflict

    def _made(self, seen: Seen, step: MachineStep) -> Routine[Transition]:
        """The change itself; one that cannot be stored, or that a gate refuses, has failed."""
        try:
            return (yield from self._apply(seen, step, "step"))
        except RefusedError as error:
            yield from self._failed(step, error, close=seen.intent)
            raise

    def finish(self, step: MachineStep, seen: Seen, arrow: MachineArrow) -> Routine[Transition]:
        """End a transition whose work was done by the caller."""
        return (yield from self._carry_out(step, seen, arrow, work=None))

    def fail(
        self, step: MachineStep, seen: Seen, arrow: MachineArrow, error: Exception
    ) -> Routine[None]:
        """Note that it failed; work that was begun is undone first, if it can be."""
        if seen.intent is not None and arrow.undo is not None:
            yield Call(arrow.undo, step)
        yield from self._failed(step, error, close=seen.intent)

    def can(self, trigger: str, input: Mapping[str, Any]) -> bool:
        """Whether a trigger would be followed now, if its guard said yes."""
        check_text(trigger, "a trigger", 128, least=1)
        seen = self.looker.look()
        state = seen.state or self.definition.initial
        return seen.intent is None and not any(
            refusals(self.definition, state, trigger, dict(input))
        )

    # what was interrupted

    def recover(self) -> Routine[MachineRecovered]:
        """Settle an open intent by the choice that its arrow declares."""
        seen = yield Read(self.looker.look)
        if seen.intent is None:
            snapshot = yield Read(lambda: self.looker.snapshot(self.definition))
            return MachineRecovered("nothing", None, snapshot)
        arrow = self._arrow_of(seen.intent)
        how = arrow.recover if arrow is not None else "ask"
        if how == "complete" and seen.state != seen.intent.from_state:
            how = "ask"  # a restore has put the machine elsewhere: nobody declared what then
        if how == "ask":
            snapshot = yield Read(lambda: self.looker.snapshot(self.definition))
            return MachineRecovered("ask", seen.intent, snapshot)
        return (yield from self.settle(how, {}))

    def settle(self, how: str, data: Mapping[str, Any]) -> Routine[MachineRecovered]:
        """End an open intent: do the work again, take it as done, or roll it back."""
        if how not in ("complete", "done", "roll_back"):
            raise InvalidInputError(f"settle takes complete, done or roll_back, not {how!r}")
        seen = yield Read(self.looker.look)
        intent = seen.intent
        if intent is None:
            raise InvalidInputError(f"{self.where} has no transition that was interrupted")
        arrow = self._arrow_of(intent)
        if how != "roll_back":
            self._check_completable(seen, intent, arrow, how)
        again = replace(intent, attempt=intent.attempt + 1)
        step = self._step(
            intent.from_state, intent.to_state, intent.trigger, intent.input, intent.id
        )
        step.attempt = again.attempt
        # Who works on it from now on says so first: whoever did before cannot end it any more.
        try:
            yield from self._put_intent(seen, again)
        except Conflict as conflict:
            text = f"{self.where}: somebody else is settling {intent.trigger!r}; look again"
            raise Conflict(text, conflict.keys) from conflict
        if arrow is not None and seen.now is not None:
            yield from self._give_data(seen, step, arrow)
        step.data.update(deepcopy(dict(data)))
        if how == "roll_back":
            if arrow is not None and arrow.undo is not None:
                yield Call(arrow.undo, step)
            yield from self._log(step, INTERRUPTED, "step", again)
        else:
            assert arrow is not None
            work = arrow.work if how == "complete" else None
            yield from self._carry_out(step, seen, arrow, work=work)
        snapshot = yield Read(lambda: self.looker.snapshot(self.definition))
        return MachineRecovered("roll_back" if how == "roll_back" else "complete", again, snapshot)

    def _arrow_of(self, intent: MachineIntent) -> MachineArrow | None:
        arrow = self.definition.arrow(intent.from_state, intent.trigger)
        return arrow if arrow is not None and arrow.to == intent.to_state else None

    def _check_completable(
        self, seen: Seen, intent: MachineIntent, arrow: MachineArrow | None, how: str
    ) -> None:
        if arrow is None:
            text = "the definition has no such arrow any more; roll it back"
        elif seen.state != intent.from_state:
            text = f"the machine is not in {intent.from_state!r} any more; roll it back"
        elif how == "complete" and arrow.work is None:
            text = "no work is declared that could be done again; settle it as done, or roll back"
        else:
            return
        raise TransitionRefusedError(f"{self.where}: {text}", [text])

    def refuse_open(self, seen: Seen) -> None:
        """Refuse what would go over the head of who works on a transition."""
        if seen.intent is not None:
            raise IncompleteTransitionError(
                f"{self.where} is between {seen.intent.from_state!r} and "
                f"{seen.intent.to_state!r}, by {seen.intent.trigger!r}: somebody works on it, or "
                "was interrupted; then recover() or settle() it",
                seen.intent,
            )

    # data

    def save(
        self,
        data: Mapping[str, Any] | None,
        metadata: Mapping[str, Any] | None,
        if_version: int | None,
    ) -> Routine[MachineSnapshot]:
        """Set data, metadata or both, as a version of its own."""
        seen = yield Read(self.looker.look_whole)
        self.refuse_idle(seen)
        self.refuse_open(seen)
        assert seen.now is not None
        if if_version is not None and seen.now["version"] != if_version:
            raise Conflict(
                f"{self.where} has version {seen.now['version']}, not {if_version}; look again",
                [self.keys.now],
            )
        step = self._step(seen.state, seen.state, "", {}, token_hex(8))
        step.data = checked_fields(seen.data if data is None else data, "data")
        step.metadata = checked_fields(
            seen.now.get("metadata", {}) if metadata is None else metadata, "metadata"
        )
        self._check_data(seen.state, step.data)
        yield from self._apply(seen, step, "save")
        saved: MachineSnapshot = yield Read(lambda: self.looker.snapshot(self.definition))
        return saved

    def put(self, seen: Seen, wanted: MachineSnapshot, kind: str) -> Routine[Transition]:
        """Make the machine what it was at another version, as a new one."""
        step = self._step(seen.state, wanted.state, "", {}, token_hex(8))
        step.data, step.metadata = wanted.data, wanted.metadata
        if wanted.state not in self.definition:
            text = f"the state {wanted.state!r} is not in the definition any more"
            raise TransitionRefusedError(f"{self.where}: {text}", [text])
        self._check_data(wanted.state, step.data)
        return (yield from self._apply(seen, step, kind))

    def refuse_idle(self, seen: Seen) -> None:
        """Refuse what needs a machine that was started."""
        if seen.now is None:
            text = "it was never started"
            raise TransitionRefusedError(f"{self.where}: {text}; start() it", [text])

    def _check_data(self, state: str, data: dict[str, Any]) -> None:
        problems = self.definition.validate_data(state, data)
        if problems:
            raise MachineDataError(
                f"{self.where}: its data do not fit the state {state!r}: {'; '.join(problems)}",
                problems,
            )

    # storing

    def _step(
        self, origin: str, target: str, trigger: str, input: dict[str, Any], id: str
    ) -> MachineStep:
        change = ScopedChange(self.handle.reader)
        return MachineStep(id, self.looker.name, trigger, origin, target, input, change)

    def _apply(self, seen: Seen, step: MachineStep, kind: str) -> Routine[Transition]:
        """The one change: the new state, the data if they differ, the log, the intent's end."""
        made: Transition
        now: dict[str, Any]

        def plan() -> Any:
            nonlocal made, now
            made, operations = self._operations(seen, step, kind)
            now = operations[0].value
            return self.plan(operations, seen.expects, step)

        entry = yield from self._commit(seen, plan)
        self.looker.wrote(entry, made, now)
        return made

    def _commit(self, seen: Seen, plan: Callable[[], Any]) -> Routine[int]:
        """Commit a plan, again while others only add failed attempts to the log; the entry."""
        own = {self.keys.transitions, self.keys.intent}
        for _ in range(ATTEMPTS):
            try:
                entry: int = yield Commit(plan())
                return entry
            except Conflict as conflict:
                if not own.issuperset(conflict.keys):
                    raise
                again = yield Read(self.looker.look)
                if again.now != seen.now or again.intent != seen.intent:
                    raise
                seen.number, seen.version = again.number, again.version
                seen.expects |= again.expects
        raise Conflict(f"{self.where}: others were always faster; try again", [self.keys.now])

    def _operations(
        self, seen: Seen, step: MachineStep, kind: str
    ) -> tuple[Transition, list[Operation]]:
        keys, before = self.keys, seen.now
        made = self._transition(seen, step, kind, seen.version + 1)
        time = microseconds(made.timestamp)
        created = before["created"] if before is not None else time
        now = {
            "state": step.target,
            "version": made.version,
            "made": step.id,
            "created": created,
            "updated": max(created, time),
        }
        # Without data nobody was given metadata, either.
        metadata = before.get("metadata") if before and seen.data is None else step.metadata
        if metadata:
            now["metadata"] = metadata
        operations = [
            Operation("set", keys.now, now),
            Operation("append", keys.transitions, [made.stored()]),
        ]
        if before is None or (seen.data is not None and not same(seen.data, step.data)):
            operations.append(Operation("set", keys.data, step.data))
        if seen.intent is not None:
            operations.append(Operation("delete", keys.intent))
        if before is None:
            operations += sticky(self.handle, keys.sticky)
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

    def plan(
        self, operations: list[Operation], expects: dict[str, int], step: MachineStep | None = None
    ) -> Any:
        """A change of the machine's keys, and of what an action has written besides."""
        head = None
        if step is not None:
            step.change.over = True
            operations = [*operations, *step.change.operations]
            expects = {**step.change.expects, **expects}
            head = step.change.head
        target = (self.handle.scope, self.handle.timeline, operations, expects, head)
        change = build_change(self.handle.core, [target], cause=cause_now())
        return change, lambda written: written[0].sequence

    def _store_intent(self, seen: Seen, step: MachineStep) -> Routine[None]:
        intent = MachineIntent(
            step.id, step.trigger, step.origin, step.target, step.input, self.looker.time()
        )
        yield from self._put_intent(seen, intent)

    def _put_intent(self, seen: Seen, intent: MachineIntent) -> Routine[None]:
        """Say that this transition is being worked on; what it rests on must still be so."""
        operation = Operation("set", self.keys.intent, intent.stored())
        entry = yield from self._commit(seen, lambda: self.plan([operation], seen.expects))
        seen.expects[self.keys.intent] = entry
        seen.intent = intent

    def _failed(
        self,
        step: MachineStep,
        error: Exception,
        kind: str = "step",
        *,
        close: MachineIntent | None = None,
    ) -> Routine[None]:
        """Note a failed attempt; never in the way of its error."""
        try:
            yield from self._log(step, f"{type(error).__name__}: {error}", kind, close)
        except HoldfastError as wrong:
            error.add_note(f"{self.where}: the attempt is not in its log: {type(wrong).__name__}")

    def _log(
        self, step: MachineStep, why: str, kind: str, close: MachineIntent | None
    ) -> Routine[None]:
        """Add a failed attempt to the log, and end its intent if it is still the one."""
        keys = self.keys
        for _ in range(ATTEMPTS):
            seen = yield Read(self.looker.look)
            made = self._transition(seen, step, kind, seen.version, why[:MOST_ERROR])
            operations = [Operation("append", keys.transitions, [made.stored()])]
            expects = {keys.transitions: seen.expects[keys.transitions]}
            if close is not None and seen.intent == close:
                operations.append(Operation("delete", keys.intent))
                expects[keys.intent] = seen.expects[keys.intent]
            if seen.now is None:
                operations += sticky(self.handle, keys.sticky)
            try:
                yield Commit(self.plan(operations, expects))
            except Conflict:
                continue
            return
        raise Conflict(f"{self.where}: others were always faster; try again", [keys.transitions])

    def _overtaken(self, step: MachineStep, conflict: Conflict) -> Routine[Conflict]:
        """The error for who was slower than somebody else."""
        error = Conflict(
            f"{self.where}: somebody changed what {step.trigger!r} rests on before it was done; "
            "look again and retry",
            conflict.keys,
        )
        yield from self._failed(step, error)
        return error

    def _refused(self, trigger: str, problems: list[str]) -> TransitionRefusedError:
        return TransitionRefusedError(
            f"{self.where} does not follow {trigger!r}: {'; '.join(problems)}", problems
        )


def checked_fields(given: Any, what: str) -> dict[str, Any]:
    """A copy of a mapping whose names are texts."""
    if not isinstance(given, Mapping) or not all(isinstance(name, str) for name in given):
        raise InvalidInputError(f"{what} is a mapping of names to values")
    return deepcopy(dict(given))


def merge(step: MachineStep, answer: Any) -> None:
    """Take over what an action returned."""
    if answer is None:
        return
    if not isinstance(answer, Mapping):
        raise InvalidInputError("an action returns nothing, or a mapping of fields for the data")
    step.data.update(answer)
