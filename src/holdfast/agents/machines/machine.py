"""A state machine of an agent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from msgspec import structs

from holdfast.agents.agent_keys import MayWait, may_wait
from holdfast.agents.machines.definition import (
    MachineArrow,
    MachineDefinition,
    check_definition,
)
from holdfast.agents.machines.machine_records import (
    INTERRUPTED,
    LOG,
    MAIN,
    MachineIntent,
    MachineRecovered,
    MachineSnapshot,
    Seen,
    Transition,
    wrong_in_log,
    wrong_with,
)
from holdfast.agents.machines.transition import Routines, call, refusals
from holdfast.errors import (
    Conflict,
    InvalidInputError,
    LimitExceededError,
    PointNotFoundError,
    RefusedError,
    ReplayError,
    TransitionRefusedError,
)
from holdfast.store.inner import ChangeParts, copied, look, own_step
from holdfast.store.names.arguments import (
    by_name,
    check_count,
    check_face,
    check_limit,
    check_moment,
    check_text,
)
from holdfast.store.names.face import (
    Steps,
    calls,
    faced,
    quick,
    read,
    steps,
    steps_of,
    writes,
)
from holdfast.store.state import State


@dataclass(frozen=True, slots=True)
class MachineLimits:
    """How far recovery goes without being asked twice."""

    checkpoint_age: timedelta | None = timedelta(hours=24)
    """A machine is rolled back to no checkpoint that is older; None: to any."""
    replayed: int = 100
    """A replay of more transitions is refused, and says how many there are."""
    log_age: timedelta = timedelta(days=7)
    """What `clean` keeps of the log."""

    def __post_init__(self) -> None:
        check_count(self.replayed, "replayed")
        for age in (self.checkpoint_age, self.log_age):
            if age is not None and (not isinstance(age, timedelta) or age <= timedelta(0)):
                raise InvalidInputError("an age is a timedelta, such as timedelta(hours=24)")


@faced
class Machine(Routines):
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
        check_face(state, State, "Machine")
        awaited = isinstance(definition, MayWait)
        definition = definition.given if isinstance(definition, MayWait) else definition
        check_definition(definition, awaited=awaited)
        super().__init__(state, definition, name)
        self._limits = limits or MachineLimits()

    # going on

    @steps
    def start(self, **data: Any) -> Steps[MachineSnapshot]:
        """Enter the initial state; of one that is started, tell where it is.

        The first trigger starts a machine by itself. Giving data to one that is started is refused.
        """
        seen = yield look(self._state, self._book.look_whole)
        if seen.now is None:
            self._refuse_open(seen)
            seen = yield from self._started(seen, data)
        elif data:
            raise TransitionRefusedError(
                f"{self._where} is started already; `save` changes its data",
                ["it is started already"],
            )
        snapshot = self._book.shown(self.definition, seen.now, seen.data or {}, seen.intent)
        assert snapshot is not None
        return snapshot

    @steps
    def fire(self, trigger: str, /, **input: Any) -> Steps[Transition]:
        """Follow a trigger: guard, exit, action, work, entry, then one change that expects the
        state that it began in.

        Refused (`TransitionRefusedError`), failed and overtaken (`Conflict`) attempts leave the
        machine where it was, and are in its log. If the arrow has work, the intent is stored first;
        while it is open, others get `IncompleteTransitionError`.
        """
        quick = self._quick(trigger, input)
        if quick is not None:
            seen, step = quick
            try:
                return (yield from self._apply(seen, step, "step"))
            except Conflict:
                pass  # it is elsewhere by now: look
            except RefusedError as error:
                yield from self._failed(step, error)
                raise
        step, seen, arrow = yield from self._begin(trigger, input)
        return (yield from self._carry_out(step, seen, arrow, work=arrow.work))

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
        seen = yield from self._look_at_rest()
        assert seen.now is not None
        if if_version is not None and seen.now.version != if_version:
            raise Conflict(
                f"{self._where} has version {seen.now.version}, not {if_version}; look again",
                [self._book.now_key],
            )
        step = self._step(seen.state, seen.state)
        step.data = copied(by_name(seen.data if data is None else data, "data"))
        told = seen.now.metadata if metadata is None else metadata
        step.metadata = copied(by_name(told, "metadata"))
        self._check_data(seen.state, step.data)
        yield from self._apply(seen, step, "save")
        saved: MachineSnapshot = yield look(self._state, self._snapshot)
        return saved

    # what was interrupted

    @steps
    def recover(self) -> Steps[MachineRecovered]:
        """Settle a transition that was interrupted, by the choice that its arrow declares.

        For when nobody else works on the machine (a lease tells): who takes a transition over
        keeps the other from ending it, not from working. With the choice `ask` it stays open.
        """
        seen = yield look(self._state, self._book.look)
        how, intent = "nothing", seen.intent
        if intent is not None:
            arrow = self._arrow_of(intent)
            # If a restore has put the machine elsewhere, nobody declared what then.
            here = arrow is not None and seen.state == intent.from_state
            how = arrow.recover if arrow is not None and here else "ask"
        if how in ("nothing", "ask"):
            return MachineRecovered(how, intent, (yield look(self._state, self._snapshot)))
        return (yield from steps_of(self.settle)(how))

    @steps
    def settle(self, how: str, /, **data: Any) -> Steps[MachineRecovered]:
        """End an interrupted transition as you say: `complete` does the work again, `done` takes it
        as done (data are what it would have given), `roll_back` undoes it.
        """
        if how not in ("complete", "done", "roll_back"):
            raise InvalidInputError(f"settle takes complete, done or roll_back, not {how!r}")
        seen = yield look(self._state, self._book.look)
        intent = seen.intent
        if intent is None:
            raise InvalidInputError(f"{self._where}: nothing was interrupted")
        arrow = self._arrow_of(intent)
        if how != "roll_back":
            self._check_completable(seen, intent, arrow, how)
        again = structs.replace(intent, attempt=intent.attempt + 1)
        given = copied(intent.input)  # functions may change theirs
        step = self._step(intent.from_state, intent.to_state, intent.trigger, given, intent.id)
        step.attempt = again.attempt
        # Who works on it from now on says so first: whoever did before cannot end it any more.
        try:
            yield from self._put_intent(seen, again)
        except Conflict as conflict:  # only one of two may work on it
            text = f"{self._where}: somebody else settles {intent.trigger!r}; look again"
            raise Conflict(text, conflict.keys) from conflict
        if arrow is not None and seen.now is not None:
            yield from self._give_data(seen, step, arrow)
        step.data.update(copied(data))
        if how == "roll_back":
            if arrow is not None and arrow.undo is not None:
                try:
                    yield call(arrow.undo, step)
                except Exception as error:  # it stays open
                    yield from self._failed(step, error)
                    raise
            yield from self._log_failure(step, INTERRUPTED, "step", again)
        else:
            assert arrow is not None
            known = how == "done"
            work = None if known else arrow.work
            yield from self._carry_out(step, seen, arrow, work=work, known=known)
        snapshot = yield look(self._state, self._snapshot)
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
        raise TransitionRefusedError(f"{self._where}: {text}", [text])

    # looking

    @quick
    def now(self) -> MachineSnapshot | None:
        """Where the machine is; None if it was never started."""
        return self._snapshot()

    @quick
    def can(self, trigger: str, /, **input: Any) -> bool:
        """Whether an arrow and all rules allow a trigger now; guards are not asked."""
        check_text(trigger, "a trigger", 128, least=1)
        seen = self._book.look()
        state = seen.state or self.definition.initial
        return seen.intent is None and not any(refusals(self.definition, state, trigger, input))

    def validate(self) -> tuple[str, ...]:
        """What is wrong with what is stored, as texts; empty if nothing is."""
        snapshot = self._snapshot()
        found = wrong_with(self.definition, snapshot) if snapshot is not None else ()
        return (*found, *wrong_in_log(self._book.newest_first()))

    def transitions(
        self,
        *,
        since: datetime | int | None = None,
        until: datetime | int | None = None,
        success: bool | None = None,
        limit: int | None = 100,
    ) -> list[Transition]:
        """The newest transitions that fit, oldest first; bounds are numbers or times, inclusive."""
        return self._book.transitions(since=since, until=until, success=success, limit=limit)

    # versions

    def version(self, version: int) -> MachineSnapshot:
        """The machine at one of its versions, as far as history is kept."""
        found = self._book.snapshot_at(self.definition, self._book.entry_of(version))
        assert found is not None
        return replace(found, version=version)  # on another timeline it was another one

    def entry(self, version: int) -> str:
        """The entry that made a version, as a point: for `at`, `diff`, `fork`, `prune`."""
        return self._book.entry_of(version)

    @steps
    def roll_back(self, point: Any) -> Steps[MachineSnapshot]:
        """Make the machine what it was at a version (a number) or a checkpoint, as a new version.

        The machine alone: `State.restore` puts back all of an agent.
        """
        wanted = yield read(lambda: self._at(point))
        seen = yield from self._look_at_rest()
        yield from self._put(seen, wanted, "roll_back")
        snapshot: MachineSnapshot = yield look(self._state, self._snapshot)
        return snapshot

    def _at(self, point: Any) -> MachineSnapshot:
        """The machine at a version, or at a checkpoint that is not too old."""
        if isinstance(point, int) and not isinstance(point, bool):
            return self.version(point)
        line, sequence = self._handle.history.points.find(point)
        entry = self._handle.on(line).history.log(since=sequence, until=sequence, limit=1)
        age, most = self._book.time() - entry[0].time, self._limits.checkpoint_age
        if most is not None and age > most:
            raise InvalidInputError(
                f"{self._book.agent}: that point is {age} old, and checkpoint_age is {most}; "
                "give Machine(limits=MachineLimits(checkpoint_age=None)) if it may be older"
            )
        found = self._book.snapshot_at(self.definition, f"{line}@{sequence}")
        if found is None:
            raise PointNotFoundError(
                f"{self._book.agent}: at that point there was no machine {self.name!r}"
            )
        return found

    @steps
    def replay(self, version: int, *, until: int | None = None) -> Steps[MachineSnapshot]:
        """Follow the log from a version on, up to a transition's number, and take up that place.

        Only transitions that succeeded; each must begin where the one before ended, else
        `ReplayError` and nothing changes. Data and metadata are those that the last of them left,
        and `replay_info` in the metadata says what was followed. Actions and work are not run.
        """
        check_count(version, "a version")
        check_limit(until, "until")
        seen = yield from self._look_at_rest()
        start = yield read(self.version, version)
        made: list[Transition] = yield read(lambda: self._following(start, until))
        end, last = start, made[-1] if made else None
        if last is not None:
            end = yield read(self.version, last.version)
        told = {
            "from_version": version,
            "transitions": len(made),
            "until": last.number if last is not None else None,
            "time": self._book.time(),
        }
        more = {"last_transition": last.id if last is not None else None, "replay_info": told}
        yield from self._put(seen, replace(end, metadata={**end.metadata, **more}), "replay")
        snapshot: MachineSnapshot = yield look(self._state, self._snapshot)
        return snapshot

    def _following(self, start: MachineSnapshot, until: int | None) -> list[Transition]:
        """Transitions after a version that succeeded; refused if there are too many, or one does
        not begin where the one before it ended."""
        looker, most, state = self._book, self._limits.replayed, start.state
        found: list[Transition] = []
        for one in looker.each(looker.place_of(start.version, after=True)):
            if until is not None and one.number > until:
                break
            if not one.success:
                continue
            if one.from_state != state:
                raise ReplayError(
                    f"{looker.agent}: transition {one.number} of the machine {self.name!r} "
                    f"begins in {one.from_state!r}, and the one before it ended in {state!r}; "
                    f"replay until {one.number - 1}",
                    one,
                )
            state = one.to_state
            found.append(one)
            if len(found) > most:
                raise LimitExceededError(
                    f"{looker.agent}: more than {most} transitions follow version {start.version} "
                    f"of the machine {self.name!r}; give until=, or Machine(limits=MachineLimits("
                    "replayed=…))"
                )
        return found

    @writes
    def clean(self, before: datetime | None = None) -> int:
        """Drop transitions from before a time (7 days ago) from the log; tells how many.

        The newest one stays. The versions that they made are not found any more.
        """
        if before is not None:
            check_moment(before, "before")
        oldest, book = before or self._book.time() - self._limits.log_age, self._book

        def trim(parts: ChangeParts) -> int:
            part = parts.part(self._handle)
            part.expects[book.log_key] = book.look().expects[book.log_key]
            last = max(book.log.length(LOG) - 1, 0)
            kept = (n for n, one in enumerate(book.each(0, last)) if one.timestamp >= oldest)
            if going := next(kept, last):
                book.log.page(part).trim(LOG, before=going)
            return going

        return own_step(self._state, trim)
