"""What a machine does beneath its face: one transition, step by step, and how it is stored."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from secrets import token_hex
from time import perf_counter
from typing import TYPE_CHECKING, Any

from holdfast.agents.machines.definition import broken
from holdfast.agents.machines.machine_records import (
    INTENT,
    LOG,
    MOST_ERROR,
    NOW,
    Attempt,
    MachineBook,
    MachineIntent,
    MachineSnapshot,
    MachineStep,
    Place,
    Seen,
    Transition,
)
from holdfast.errors import (
    Conflict,
    HoldfastError,
    IncompleteTransitionError,
    InvalidInputError,
    LeaseLostError,
    MachineDataError,
    RefusedError,
    TransitionRefusedError,
)
from holdfast.store.inner import (
    ScopedChange,
    again_in_steps,
    build_change,
    copied,
    handle_of,
    look,
    same,
    sticky_along,
)
from holdfast.store.names.arguments import check_text
from holdfast.store.names.cause import cause_now
from holdfast.store.names.face import Step, Steps, ask, commit

if TYPE_CHECKING:
    from holdfast.agents.machines.definition import MachineArrow, MachineDefinition
    from holdfast.store.inner import Plan
    from holdfast.store.state import State


class Routines:
    """One machine of one timeline: what its public methods are made of."""

    def __init__(self, state: State, definition: MachineDefinition, name: str) -> None:
        self._state = state
        self._handle = handle_of(state)
        self._storage = self._handle.core.storage
        self._meter = self._handle.core.meter
        self.definition = definition
        self.name = name
        self._book = MachineBook(self._handle, name)
        self._where = f"{self._book.agent}: the machine {name!r}"

    def _snapshot(self) -> MachineSnapshot | None:
        seen = self._book.look_whole()
        return self._book.shown(self.definition, seen.now, seen.data or {}, seen.intent)

    def _step(
        self, origin: str, target: str, trigger: str = "", input: Any = None, id: str = ""
    ) -> MachineStep:
        """What functions of the user are given."""
        change = ScopedChange(self._handle.reader)
        id = id or token_hex(8)
        return MachineStep(id, self.name, trigger, origin, target, input or {}, change)

    # a transition

    def _started(self, seen: Seen, data: Mapping[str, Any]) -> Steps[Seen]:
        """Enter the initial state."""
        initial = self.definition.initial
        here = self.definition.states[initial]
        step = self._step("", initial)
        step.data = copied({**here.data, **data})
        try:
            if here.enter is not None:
                merge(step, (yield call(here.enter, step)))
            self._check_data(initial, step.data)
        except Exception as error:
            yield from self._failed(step, error, "start")
            raise
        # What the log of an earlier life left is gone on from; the data are not.
        seen.data = None
        try:
            yield from self._apply(seen, step, "start")
        except Conflict:  # perhaps because somebody else has just started it
            seen = yield look(self._state, self._book.look_whole)
            if seen.now is None or data:
                raise
            return seen
        started: Seen = yield look(self._state, self._book.look_whole)
        return started

    def _quick(self, trigger: str, input: Mapping[str, Any]) -> tuple[Seen, MachineStep] | None:
        """A transition that asks for nothing, from where the machine was last seen.

        Like a set, it is made without looking first: the change expects that nobody moved it.
        """
        seen = self._book.last_seen()
        known = not input and seen.intent is None and isinstance(trigger, str)
        arrow = self.definition.arrow(seen.state, trigger) if known else None
        if arrow is None or arrow.accepts or arrow.actors:
            return None
        asked = self.definition.states[seen.state].accepts
        if asked or concerns_data(self.definition, seen.state, arrow):
            return None
        return seen, self._step(seen.state, arrow.to, trigger)

    def _begin(
        self, trigger: str, input: Mapping[str, Any]
    ) -> Steps[tuple[MachineStep, Seen, MachineArrow]]:
        """All that comes before actions and work; if there is work, the intent is stored."""
        check_text(trigger, "a trigger", 128, least=1)
        given = copied(dict(input))
        seen = yield look(self._state, self._book.look)
        self._refuse_open(seen)
        if seen.now is None:
            seen = yield from self._started(seen, {})
            self._refuse_open(seen)
        arrow = self.definition.arrow(seen.state, trigger)
        step = self._step(seen.state, arrow.to if arrow else "", trigger, given)
        try:
            problems = list(refusals(self.definition, seen.state, trigger, given))
            if arrow is not None and any(unaccepted(self.definition, seen.state, arrow, given)):
                raise self._meter.invalid("machine", self._refused(trigger, problems))
            if problems or arrow is None:
                raise self._refused(trigger, problems)
            if concerns_data(self.definition, seen.state, arrow):
                yield from self._give_data(seen, step, arrow)
            if arrow.guard is not None:
                answer = yield call(arrow.guard, step)
                if answer is not True:
                    told = answer if isinstance(answer, str) and answer else "its guard says no"
                    raise self._refused(trigger, [told])
            if arrow.work is not None:
                begun = self._book.time()
                given = copied(step.input)  # functions may change theirs
                now = MachineIntent(step.id, trigger, step.origin, step.target, given, begun)
                yield from self._put_intent(seen, now)
        except Exception as error:
            late = self._overtaken(step, error)
            yield from self._failed(step, late)
            raise late from late.__cause__
        return step, seen, arrow

    def _give_data(self, seen: Seen, step: MachineStep, arrow: MachineArrow) -> Steps[None]:
        """Let a step have the data, as functions get them."""
        yield look(self._state, lambda: self._book.read_data(seen))
        assert seen.now is not None
        kept = {name: copied(step.input[name]) for name in arrow.keep if name in step.input}
        there = self.definition.states[arrow.to]
        step.data = {**copied(there.data), **copied(seen.data or {}), **kept}
        step.metadata = copied(seen.now.metadata)

    def _carry_out(
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
        happened = step.attempt > 1  # begun before
        try:
            for function in (exit, arrow.action, work, there.enter):
                if function is not None:
                    answer = yield call(function, step)
                    happened = happened or function is work
                    merge(step, answer)
            if seen.data is not None:
                self._check_data(arrow.to, step.data)
        except Exception as error:
            yield from self._fail(step, error, seen.intent, undo, happened=happened)
            raise
        try:
            return (yield from self._apply(seen, step, "step"))
        except (Conflict, RefusedError) as error:  # it cannot be stored, or others were faster
            told = self._overtaken(step, error)
            yield from self._fail(step, told, seen.intent, undo, happened=True)
            raise told from told.__cause__

    def _fail(
        self,
        step: MachineStep,
        error: Exception,
        intent: MachineIntent | None,
        undo: Callable[..., Any] | None,
        *,
        happened: bool = False,
    ) -> Steps[None]:
        """Note that it failed, undo its work if it is still this one's to end, and end its intent.

        `happened`: the work may have been done, by this attempt or one before it. Unless that is
        undone, the intent stays open: a new one would do the same work under another id.
        """
        if isinstance(error, LeaseLostError):
            return  # another holds the agent now: what was begun is theirs to settle
        close = intent
        if intent is not None and (undo is not None or happened):
            close, why = None, "what it has begun could not be read"
            try:
                seen = yield look(self._state, self._book.look)
                if not seen.works_on(intent):
                    why = ""  # another has taken it over
                elif undo is None:
                    why = "its work may have been done"
                else:
                    why = "its undo failed, too"
                    yield call(undo, step)
                    close, why = intent, ""
            except Exception as failed:
                why = f"{why} ({type(failed).__name__})"
            if why:
                told = f"{why}, so that {step.trigger!r} is still open: recover() or settle() it"
                error.add_note(f"{self._where}: {told}")
        yield from self._failed(step, error, close=close)

    def _put(self, seen: Seen, wanted: MachineSnapshot, kind: str) -> Steps[Transition]:
        """Make the machine what it was at another version, as a new one."""
        step = self._step(seen.state, wanted.state)
        step.data, step.metadata = wanted.data, wanted.metadata
        if wanted.state not in self.definition:
            text = f"the state {wanted.state!r} is not in the definition any more"
            raise TransitionRefusedError(f"{self._where}: {text}", [text])
        self._check_data(wanted.state, step.data)
        return (yield from self._apply(seen, step, kind))

    # what is stored

    def _plan(
        self,
        expects: dict[str, int],
        step: MachineStep | None = None,
        *,
        log: Attempt | None = None,
        data: dict[str, Any] | None = None,
        **kept: Any,
    ) -> Plan:
        """A change of what the machine keeps, and of what an action has written besides; its entry.

        `kept`: what becomes of `now` and of the `intent`.
        """
        book, part = self._book, ScopedChange(self._handle.reader, owner=True)
        if NOW in kept:
            book.places.page(part).put(NOW, kept[NOW])
        if log is not None:
            book.log.page(part).extend(LOG, [log])
        if data is not None:
            part.set(book.data_key, data)
        if INTENT in kept:
            book.intents.page(part).put(INTENT, kept[INTENT])
        head = None
        if step is not None:
            step.change.over = True
            part.operations += step.change.operations
            expects = {**step.change.expects, **expects}
            head = step.change.head
        # Not a change of parts, which looks for more: a transition costs little more than a set.
        known = part._reader.declared_here, part._reader.declared
        operations = [*part.operations, *sticky_along(part.operations, *known)]
        target = (self._handle.scope, self._handle.timeline, operations, expects, head)
        change = build_change(self._handle.core, [target], cause=cause_now())
        return change, lambda written: written[0].sequence

    def _apply(self, seen: Seen, step: MachineStep, kind: str) -> Steps[Transition]:
        """The one change: the new state, the data if they differ, the log, the intent's end."""
        record = self._attempt(seen, step, kind, seen.version + 1)
        before = seen.now
        created = before.created if before is not None else record.time
        # Without data nobody was given metadata, either.
        metadata = before.metadata if before and seen.data is None else step.metadata
        place = Place(
            state=step.target,
            version=record.version,
            id=record.id,
            created=created,
            updated=max(created, record.time),
            metadata=metadata,
        )
        kept: dict[str, Any] = {NOW: place}
        if before is None or seen.intent is not None:
            kept[INTENT] = None
        new = before is None or (seen.data is not None and not same(seen.data, step.data))
        data = step.data if new else None
        change, entry_of = self._plan(seen.expects, step, log=record, data=data, **kept)

        def finish(written: Any) -> Transition:  # also if who waits for it was cancelled
            self._book.wrote(seen, entry_of(written), record, **kept)
            made = self._book.transition(record)
            made.counted(self._meter, perf_counter() - step.begun)
            return made

        made: Transition = yield commit(self._state, (change, finish))
        return made

    def _attempt(
        self, seen: Seen, step: MachineStep, kind: str, version: int, error: str | None = None
    ) -> Attempt:
        way = (kind, step.origin, step.target, step.trigger)
        time = self._handle.core.clock.claimed()
        return Attempt(seen.number + 1, step.id, *way, time, version, error)

    def _put_intent(self, seen: Seen, intent: MachineIntent) -> Steps[None]:
        """Say that this transition is being worked on; what it rests on must still be so."""
        entry = yield commit(self._state, self._plan(seen.expects, intent=intent))
        seen.expects[self._book.intent_key] = entry
        seen.intent = intent

    def _failed(
        self,
        step: MachineStep,
        error: Exception,
        kind: str = "step",
        *,
        close: MachineIntent | None = None,
    ) -> Steps[None]:
        """Note a failed attempt; never in the way of its error."""
        try:
            yield from self._log_failure(step, f"{type(error).__name__}: {error}", kind, close)
        except HoldfastError as wrong:
            error.add_note(f"{self._where}: the attempt is not in its log: {type(wrong).__name__}")

    def _log_failure(
        self, step: MachineStep, why: str, kind: str, close: MachineIntent | None
    ) -> Steps[None]:
        """Add a failed attempt to the log, and end its intent if it is still the one."""
        told, book = False, self._book
        seconds = perf_counter() - step.begun

        def add() -> Steps[None]:
            nonlocal told
            seen = yield look(self._state, book.look)
            record = self._attempt(seen, step, kind, seen.version, why[:MOST_ERROR])
            if not told:  # it failed, whether or not that can be written down
                told = True
                book.transition(record).counted(self._meter, seconds)
            ends = close is not None and seen.works_on(close)
            kept = {INTENT: None} if ends else {}
            expects = {book.log_key: seen.expects[book.log_key]}
            if ends:
                expects[book.intent_key] = seen.expects[book.intent_key]
            entry = yield commit(self._state, self._plan(expects, log=record, **kept))
            book.wrote(seen, entry, record, **kept)

        yield from again_in_steps(add)

    # what is refused

    def _overtaken(self, step: MachineStep, error: Exception) -> Exception:
        """The error for who was slower than somebody else; any other as it is."""
        if not isinstance(error, Conflict):
            return error
        text = f"{self._where}: somebody changed what {step.trigger!r} rests on before it was done"
        told = Conflict(f"{text}; look again and retry", error.keys)
        told.__cause__ = error
        return told

    def _refused(self, trigger: str, problems: list[str]) -> TransitionRefusedError:
        return TransitionRefusedError(
            f"{self._where} does not follow {trigger!r}: {'; '.join(problems)}", problems
        )

    def _check_data(self, state: str, data: dict[str, Any]) -> None:
        """Refuse data that do not fit a state."""
        problems = self.definition.validate_data(state, data)
        if problems:
            error = MachineDataError(
                f"{self._where}: its data do not fit the state {state!r}: {'; '.join(problems)}",
                problems,
            )
            raise self._meter.invalid("machine", error)

    def _look_at_rest(self) -> Steps[Seen]:
        """All of a machine that was started and is not at work; any other is refused."""
        seen: Seen = yield look(self._state, self._book.look_whole)
        if seen.now is None:
            text = "it was never started"
            raise TransitionRefusedError(f"{self._where}: {text}; start() it", [text])
        self._refuse_open(seen)
        return seen

    def _refuse_open(self, seen: Seen) -> None:
        """Refuse what would go over the head of who works on a transition."""
        if seen.intent is not None:
            raise IncompleteTransitionError(
                f"{self._where} is between {seen.intent.from_state!r} and "
                f"{seen.intent.to_state!r}, by {seen.intent.trigger!r}: somebody works on it, or "
                "was interrupted; then recover() or settle() it",
                seen.intent,
            )


def call(function: Callable[..., Any], step: MachineStep) -> Step:
    """A step that calls a function of the user."""
    return ask(function, step, what="a function of a machine")


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
