"""What a machine does, in steps that serve both faces."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from secrets import token_hex
from typing import TYPE_CHECKING, Any

from holdfast.agents.machines.definition import broken
from holdfast.agents.machines.machine_records import (
    INTERRUPTED,
    MachineIntent,
    MachineRecovered,
    MachineSnapshot,
    MachineStep,
    Seen,
    Storing,
    Transition,
)
from holdfast.errors import (
    Conflict,
    InvalidInputError,
    LeaseLostError,
    RefusedError,
    TransitionRefusedError,
)
from holdfast.store.inner import copied
from holdfast.store.names.arguments import check_text
from holdfast.store.names.cause import cause_now
from holdfast.store.names.face import Step, Steps, ask

if TYPE_CHECKING:
    from holdfast.agents.machines.definition import MachineArrow, MachineDefinition
    from holdfast.store.state import State


class Routines(Storing):
    """What one machine of one timeline does."""

    def __init__(self, state: State, definition: MachineDefinition, name: str) -> None:
        super().__init__(state, definition, name)
        self._bare = {
            (origin, trigger): arrow.to
            for origin, trigger, arrow in definition.arrows()
            if is_bare(definition, origin, arrow)
        }

    # beginning

    def start(self, data: Mapping[str, Any]) -> Steps[MachineSnapshot]:
        """Enter the initial state, unless it is started; then it must not be given data."""
        seen = yield self.look(self.looker.look_whole)
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

    def _started(self, seen: Seen, data: Mapping[str, Any]) -> Steps[Seen]:
        initial = self.definition.initial
        here = self.definition.states[initial]
        step = self.step("", initial, "", {}, token_hex(8))
        step.data = copied({**here.data, **data})
        try:
            if here.enter is not None:
                merge(step, (yield _call(here.enter, step)))
            self.check_data(initial, step.data)
        except Exception as error:
            yield from self.failed(step, error, "start")
            raise
        # What the log of an earlier life left is gone on from; the data are not.
        seen.data = None
        try:
            yield from self.apply(seen, step, "start")
        except Conflict:  # perhaps because somebody else has just started it
            seen = yield self.look(self.looker.look_whole)
            if seen.now is None or data:
                raise
            return seen
        started: Seen = yield self.look(self.looker.look_whole)
        return started

    # transitions

    def fire(self, trigger: str, input: Mapping[str, Any]) -> Steps[Transition]:
        """Follow a trigger to its end."""
        quick = self._quick(trigger, input)
        if quick is not None:
            seen, step = quick
            try:
                return (yield from self.apply(seen, step, "step", done_again=True))
            except Conflict:
                pass  # it is elsewhere by now: look
            except RefusedError as error:
                yield from self.failed(step, error)
                raise
        step, seen, arrow = yield from self.begin(trigger, input)
        return (yield from self.carry_out(step, seen, arrow, work=arrow.work))

    def _quick(self, trigger: str, input: Mapping[str, Any]) -> tuple[Seen, MachineStep] | None:
        """A transition that asks for nothing, from where the machine was last seen.

        Like a set, it is made without looking first: the change expects that nobody moved it.
        """
        if input or not isinstance(trigger, str):
            return None
        seen = self.looker.last_seen()
        to = self._bare.get((seen.state, trigger))
        if to is None or seen.intent is not None:
            return None
        return seen, self.step(seen.state, to, trigger, {}, token_hex(8))

    def begin(
        self, trigger: str, input: Mapping[str, Any], *, intent: bool = False
    ) -> Steps[tuple[MachineStep, Seen, MachineArrow]]:
        """All that comes before actions and work; if there is work, the intent is stored."""
        check_text(trigger, "a trigger", 128, least=1)
        given = copied(dict(input))
        seen = yield self.look(self.looker.look)
        self.refuse_open(seen)
        if seen.now is None:
            seen = yield from self._started(seen, {})
            self.refuse_open(seen)
        arrow = self.definition.arrow(seen.state, trigger)
        step = self.step(seen.state, arrow.to if arrow else "", trigger, given, token_hex(8))
        try:
            problems = list(refusals(self.definition, seen.state, trigger, given))
            if arrow is not None and any(unaccepted(self.definition, seen.state, arrow, given)):
                raise self.meter.invalid("machine", self._refused(trigger, problems))
            if problems or arrow is None:
                raise self._refused(trigger, problems)
            if concerns_data(self.definition, seen.state, arrow) or intent:
                yield from self.give_data(seen, step, arrow)
            if arrow.guard is not None:
                no = wanted((yield _call(arrow.guard, step)))
                if no is not None:
                    raise self._refused(trigger, [no])
            if arrow.work is not None or intent:
                yield from self.store_intent(seen, step)
        except Conflict as conflict:  # the slower one is told, and its attempt noted
            slower = self.overtaken(step, conflict)
            yield from self.failed(step, slower)
            raise slower from conflict
        except Exception as error:
            yield from self.failed(step, error)
            raise
        return step, seen, arrow

    def give_data(self, seen: Seen, step: MachineStep, arrow: MachineArrow) -> Steps[None]:
        """Let a step have the data, as functions get them."""
        yield self.look(lambda: self.looker.read_data(seen))
        assert seen.now is not None
        kept = {name: copied(step.input[name]) for name in arrow.keep if name in step.input}
        there = self.definition.states[arrow.to]
        step.data = {**copied(there.data), **copied(seen.data or {}), **kept}
        step.metadata = copied(seen.now.get("metadata", {}))

    def carry_out(
        self,
        step: MachineStep,
        seen: Seen,
        arrow: MachineArrow,
        *,
        work: Any,
        known: bool = False,
    ) -> Steps[Transition]:
        """Actions and work, then the one change that makes the transition.

        `known`: the work is known to be done, so that an error undoes nothing and leaves it open.
        """
        undo = None if known else arrow.undo
        here, there = self.definition.states.get(step.origin), self.definition.states[arrow.to]
        exit = here.exit if here is not None else None
        happened = work is None or step.attempt > 1  # done by the caller, or begun before
        try:
            for function in (exit, arrow.action, work, there.enter):
                if function is not None:
                    answer = yield _call(function, step)
                    happened = happened or function is work
                    merge(step, answer)
            if seen.data is not None:
                self.check_data(arrow.to, step.data)
        except Exception as error:
            yield from self.fail(step, error, seen.intent, undo, happened=happened)
            raise
        try:
            return (yield from self.apply(seen, step, "step"))
        except Conflict as conflict:  # the slower one is told, and its attempt noted
            slower = self.overtaken(step, conflict)
            yield from self.fail(step, slower, seen.intent, undo, happened=True)
            raise slower from conflict
        except RefusedError as error:  # it cannot be stored, or a gate says no
            yield from self.fail(step, error, seen.intent, undo, happened=True)
            raise

    def finish(self, step: MachineStep, seen: Seen, arrow: MachineArrow) -> Steps[Transition]:
        """End a transition whose work was done by the caller."""
        return (yield from self.carry_out(step, seen, arrow, work=None))

    def fail(
        self,
        step: MachineStep,
        error: Exception,
        intent: MachineIntent | None,
        undo: Callable[..., Any] | None,
        *,
        happened: bool = False,
    ) -> Steps[None]:
        """Note that it failed, and end its intent unless something of the work may be left.

        `happened`: the work may have been done, by this attempt or one before it.
        """
        if isinstance(error, LeaseLostError):
            return  # another holds the agent now: what was begun is theirs to settle
        if intent is not None and (undo is not None or happened):
            nothing_left = yield from self._undone(step, error, intent, undo)
            intent = intent if nothing_left else None
        yield from self.failed(step, error, close=intent)

    def _undone(
        self,
        step: MachineStep,
        error: Exception,
        intent: MachineIntent,
        undo: Callable[..., Any] | None,
    ) -> Steps[bool]:
        """Undo work, if it is still this one's to end; whether that was done.

        If not, the intent stays open: a new one would do the same work under another id.
        """
        wrong = "what it has begun could not be read"
        try:
            seen = yield self.look(self.looker.look)
            if seen.intent != intent:
                return False  # another has taken it over
            if undo is not None:
                wrong = "its undo failed, too"
                yield _call(undo, step)
                return True
            why = "its work may have been done"
        except Exception as failed:
            why = f"{wrong} ({type(failed).__name__})"
        error.add_note(
            f"{self.where}: {why}, so that {step.trigger!r} is still open: recover() or settle() it"
        )
        return False

    def can(self, trigger: str, input: Mapping[str, Any]) -> bool:
        """Whether a trigger would be followed now, if its guard said yes."""
        check_text(trigger, "a trigger", 128, least=1)
        seen = self.looker.look()
        state = seen.state or self.definition.initial
        return seen.intent is None and not any(
            refusals(self.definition, state, trigger, dict(input))
        )

    # without a trigger

    def save(
        self,
        data: Mapping[str, Any] | None,
        metadata: Mapping[str, Any] | None,
        if_version: int | None,
    ) -> Steps[MachineSnapshot]:
        """Set data, metadata or both, as a version of its own."""
        seen = yield self.look(self.looker.look_whole)
        self.refuse_idle(seen)
        self.refuse_open(seen)
        assert seen.now is not None
        if if_version is not None and seen.now["version"] != if_version:
            raise Conflict(
                f"{self.where} has version {seen.now['version']}, not {if_version}; look again",
                [self.keys.now],
            )
        step = self.step(seen.state, seen.state, "", {}, token_hex(8))
        step.data = checked_fields(seen.data if data is None else data, "data")
        step.metadata = checked_fields(
            seen.now.get("metadata", {}) if metadata is None else metadata, "metadata"
        )
        self.check_data(seen.state, step.data)
        yield from self.apply(seen, step, "save")
        saved: MachineSnapshot = yield self.look(self.snapshot)
        return saved

    def put(self, seen: Seen, wanted: MachineSnapshot, kind: str) -> Steps[Transition]:
        """Make the machine what it was at another version, as a new one."""
        step = self.step(seen.state, wanted.state, "", {}, token_hex(8))
        step.data, step.metadata = wanted.data, wanted.metadata
        if wanted.state not in self.definition:
            text = f"the state {wanted.state!r} is not in the definition any more"
            raise TransitionRefusedError(f"{self.where}: {text}", [text])
        self.check_data(wanted.state, step.data)
        return (yield from self.apply(seen, step, kind))

    def _refused(self, trigger: str, problems: list[str]) -> TransitionRefusedError:
        return TransitionRefusedError(
            f"{self.where} does not follow {trigger!r}: {'; '.join(problems)}", problems
        )

    # transitions that were interrupted, and how they end

    def recover(self) -> Steps[MachineRecovered]:
        """Settle an open intent by the choice that its arrow declares."""
        seen = yield self.look(self.looker.look)
        if seen.intent is None:
            snapshot = yield self.look(self.snapshot)
            return MachineRecovered("nothing", None, snapshot)
        arrow = self._arrow_of(seen.intent)
        how = arrow.recover if arrow is not None else "ask"
        if seen.state != seen.intent.from_state:
            how = "ask"  # a restore has put the machine elsewhere: nobody declared what then
        if how == "ask":
            snapshot = yield self.look(self.snapshot)
            return MachineRecovered("ask", seen.intent, snapshot)
        return (yield from self.settle(how, {}))

    def settle(self, how: str, data: Mapping[str, Any]) -> Steps[MachineRecovered]:
        """End an open intent: do the work again, take it as done, or roll it back."""
        if how not in ("complete", "done", "roll_back"):
            raise InvalidInputError(f"settle takes complete, done or roll_back, not {how!r}")
        seen = yield self.look(self.looker.look)
        intent = seen.intent
        if intent is None:
            raise InvalidInputError(f"{self.where}: nothing was interrupted")
        arrow = self._arrow_of(intent)
        if how != "roll_back":
            self._check_completable(seen, intent, arrow, how)
        again = replace(intent, attempt=intent.attempt + 1)
        given = copied(intent.input)  # functions may change theirs
        step = self.step(intent.from_state, intent.to_state, intent.trigger, given, intent.id)
        step.attempt = again.attempt
        # Who works on it from now on says so first: whoever did before cannot end it any more.
        try:
            yield from self.put_intent(seen, again)
        except Conflict as conflict:  # only one of two may work on it
            text = f"{self.where}: somebody else settles {intent.trigger!r}; look again"
            raise Conflict(text, conflict.keys) from conflict
        if arrow is not None and seen.now is not None:
            yield from self.give_data(seen, step, arrow)
        step.data.update(copied(dict(data)))
        if how == "roll_back":
            if arrow is not None and arrow.undo is not None:
                try:
                    yield _call(arrow.undo, step)
                except Exception as error:  # it stays open
                    yield from self.failed(step, error)
                    raise
            yield from self.log_failure(step, INTERRUPTED, "step", again)
        else:
            assert arrow is not None
            known = how == "done"
            work = None if known else arrow.work
            yield from self.carry_out(step, seen, arrow, work=work, known=known)
        snapshot = yield self.look(self.snapshot)
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


def _call(function: Callable[..., Any], step: MachineStep) -> Step:
    """A step that calls a function of the user."""
    return ask(function, step, what="a function of a machine")


def checked_fields(given: Any, what: str) -> dict[str, Any]:
    """A copy of a mapping whose names are texts."""
    if not isinstance(given, Mapping) or not all(isinstance(name, str) for name in given):
        raise InvalidInputError(f"{what} is a mapping of names to values")
    return copied(dict(given))


def merge(step: MachineStep, answer: Any) -> None:
    """Take over what an action returned."""
    if answer is None:
        return
    if not isinstance(answer, Mapping):
        raise InvalidInputError("an action returns nothing, or a mapping of fields for the data")
    step.data.update(answer)


# ---- what may be followed -----------------------------------------------------------------------


def refusals(
    definition: MachineDefinition, state: str, trigger: str, input: dict[str, Any]
) -> Iterator[str]:
    """What speaks against a trigger in a state, but for what its guard says."""
    here = definition.states.get(state)
    arrow = definition.arrow(state, trigger)
    if here is None:
        yield f"the state {state!r} is not in the definition any more"
        return
    if arrow is None:
        known = [name for origin, name, _ in definition.arrows() if origin == state]
        leads = f"{', '.join(map(repr, known))} do" if known else "nothing does"
        yield f"{trigger!r} leads nowhere from {state!r}; {leads}"
        return
    if arrow.actors:
        cause = cause_now()
        if cause is None or cause.actor not in arrow.actors:
            yield f"{trigger!r} is for {', '.join(arrow.actors)} alone; see Store.acting"
    yield from unaccepted(definition, state, arrow, input)


def unaccepted(
    definition: MachineDefinition, state: str, arrow: MachineArrow, input: dict[str, Any]
) -> Iterable[str]:
    """What the rules of a state and of an arrow have against what a trigger brings along."""
    return broken((*definition.states[state].accepts, *arrow.accepts), input)


def concerns_data(definition: MachineDefinition, state: str, arrow: MachineArrow) -> bool:
    """Whether the machine's data has to be known to follow an arrow."""
    here, there = definition.states[state], definition.states[arrow.to]
    asked = (arrow.guard, arrow.action, arrow.work, arrow.keep, here.exit)
    return any(asked) or any((there.enter, there.data, there.rules, there.check))


def is_bare(definition: MachineDefinition, state: str, arrow: MachineArrow) -> bool:
    """Whether an arrow can be followed without asking anything or anybody."""
    asked = (arrow.accepts, arrow.actors, definition.states[state].accepts)
    return not any(asked) and not concerns_data(definition, state, arrow)


def wanted(answer: Any) -> str | None:
    """Why a guard says no; None if it says yes."""
    if answer is True:
        return None
    return answer if isinstance(answer, str) and answer else "its guard says no"
