"""What a machine keeps, and what of it is handed out.

Under `$machine/NAME/`: `now` (state, version, the id of the transition that made it, times,
metadata), `data` (a mapping, written when it changes), and below `log/`, which restores leave
alone, `transitions` (a list of all attempts) and `intent` (the transition whose work is being done,
or None: a key that is there is found faster than that one is not). Each transition has a number,
one more than the one before it; versions count those that succeeded. Both are taken from the newest
transition, which every change of a machine expects, so that nobody else takes the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields, replace
from datetime import datetime
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from holdfast.agents.agent_keys import (
    ATTEMPTS,
    DATA,
    LOG,
    MACHINE,
    NOW,
    again_in_steps,
    commit,
    look,
    sticky,
)
from holdfast.errors import (
    Conflict,
    DamagedRecordError,
    HoldfastError,
    IncompleteTransitionError,
    InvalidInputError,
    MachineDataError,
    PointNotFoundError,
    TransitionRefusedError,
)
from holdfast.store.inner import (
    TRANSITIONS,
    Meter,
    Operation,
    ScopedChange,
    build_change,
    copied,
    handle_of,
    microseconds,
    moment,
    same,
)
from holdfast.store.names.arguments import check_count, check_text
from holdfast.store.names.cause import cause_now
from holdfast.store.names.face import Step, Steps
from holdfast.store.names.scope import check_key

if TYPE_CHECKING:
    from holdfast.agents.machines.definition import MachineDefinition
    from holdfast.agents.machines.routines import Routines
    from holdfast.store.inner import LineHandle, Plan
    from holdfast.store.state import State


MAIN = "main"
"""The name of a machine that is given none."""
MOST_ERROR = 500
"""Characters of an error's text that a transition keeps."""
INTERRUPTED = "interrupted, and rolled back"
"""What the log says of a transition that was interrupted."""
NO_ARROW = "(no arrow)"
"""Stands for a trigger that leads nowhere, where transitions are counted."""
_ENDS = {
    TransitionRefusedError.__name__: "refused",
    Conflict.__name__: "overtaken",
    INTERRUPTED: "rolled_back",
}
TIME = 6
"""Where a stored transition has its time."""


class Keys(NamedTuple):
    """Where one machine keeps its things."""

    now: str
    data: str
    transitions: str
    intent: str
    sticky: str

    @classmethod
    def of(cls, name: str) -> Keys:
        """Those of a machine's name."""
        check_text(name, "the name of a machine", 100, least=1)
        if "/" in name:
            raise InvalidInputError(f"the name of a machine has no slash: {name!r}")
        place = check_key(f"{MACHINE}{name}", owner=True)
        log = place + LOG
        return cls(place + NOW, place + DATA, f"{log}transitions", f"{log}intent", log)


class Transition(msgspec.Struct, frozen=True):
    """One attempt to change a machine, as its log has it; failed ones too."""

    number: int
    id: str
    agent_id: str
    """The scope, as text."""
    machine: str
    kind: str
    """start, step (a trigger), save (data without a trigger), roll_back, replay or adopt (a state
    that another timeline made was restored)"""
    from_state: str
    """Empty where a machine begins."""
    to_state: str
    """Of an attempt that no arrow fits: empty."""
    trigger: str
    timestamp: datetime
    version: int
    """The newest version that had been given away after it."""
    error: str | None = None

    @property
    def success(self) -> bool:
        """Whether the machine is, or was, where it leads to."""
        return self.error is None

    @property
    def outcome(self) -> str:
        """succeeded, refused (no arrow, a guard or a rule), overtaken (by another), rolled_back
        (it was interrupted) or failed"""
        return "succeeded" if self.error is None else _ENDS.get(self.error.split(":")[0], "failed")

    def counted(self, meter: Meter, seconds: float | None = None) -> None:
        """Tell a meter of it. A trigger that no arrow fits may be any text, and is not told."""
        trigger = self.trigger if self.to_state else NO_ARROW
        way = (trigger, self.from_state, self.to_state)
        meter.add(TRANSITIONS, (self.machine, self.kind, *way, self.outcome), seconds)

    def stored(self) -> list[Any]:
        """What the log keeps: its fields in order, the error only of one that failed."""
        time = microseconds(self.timestamp)
        way = [self.kind, self.from_state, self.to_state, self.trigger]
        made = [self.number, self.id, *way, time, self.version]
        return made if self.error is None else [*made, self.error]

    @classmethod
    def of(cls, agent: str, machine: str, stored: Any) -> Transition:
        """The opposite of `stored`."""
        try:
            number, id, kind, origin, target, trigger, time, version, *error = stored
            when = moment(time)
        except (TypeError, ValueError):
            raise DamagedRecordError(
                f"{agent}: the log of the machine {machine!r} holds what is no transition"
            ) from None
        way = (kind, origin, target, trigger)
        return cls(number, id, agent, machine, *way, when, version, error[0] if error else None)


@dataclass(frozen=True, slots=True)
class MachineIntent:
    """A transition with work inside that was begun, and has not ended as far as is known."""

    id: str
    """Of the transition, also when it is tried again: good as an idempotency key."""
    trigger: str
    from_state: str
    to_state: str
    input: dict[str, Any] = field(compare=False)
    """What the trigger brought along. The id and the attempt say which intent it is; values do not
    tell that: nan is not equal to itself."""
    begun: datetime
    attempt: int = 1

    def stored(self) -> dict[str, Any]:
        """What is kept."""
        return {
            name: getattr(self, one.name) for name, one in zip(_INTENT, fields(self), strict=True)
        }

    @classmethod
    def of(cls, stored: Any) -> MachineIntent:
        """The opposite of `stored`."""
        try:
            return cls(*(stored[name] for name in _INTENT))
        except (KeyError, TypeError):
            raise DamagedRecordError("what a machine has begun cannot be read") from None


_INTENT = ("id", "trigger", "from", "to", "input", "begun", "attempt")
"""The fields of an intent as they are stored."""


@dataclass(frozen=True, slots=True)
class MachineSnapshot:
    """Where a machine is, or was at a version."""

    agent_id: str
    machine: str
    state: str
    data: dict[str, Any]
    version: int
    created_at: datetime
    updated_at: datetime
    metadata: dict[str, Any] = field(default_factory=dict)
    prompt: str = ""
    """What its state says, with the data filled in."""
    pending: MachineIntent | None = None
    """A transition that was begun and never ended; `recover` or `settle` ends it."""
    unnumbered: bool = False
    """Another timeline made it, and the next transition gives it its number here; until then its
    version is below 0."""


@dataclass(frozen=True, slots=True)
class MachineRecovered:
    """What became of a transition that had been interrupted."""

    how: str
    """nothing (there was none), ask (it is still open: `settle` it), complete or roll_back"""
    intent: MachineIntent | None
    snapshot: MachineSnapshot | None
    """Where the machine is now."""


@dataclass(frozen=True, slots=True)
class Replayed:
    """What a replay did, or would do."""

    from_version: int
    transitions: tuple[Transition, ...]
    """Those that were applied, in order."""
    snapshot: MachineSnapshot
    """Where the machine is now; of a dry run, where it would be."""
    dry_run: bool = False


@dataclass(slots=True)
class MachineStep:
    """What guards, actions and work are given.

    An action may change `data` and `metadata`, or return a mapping of fields for the data. What it
    writes with `change` (`step.change.set("haiku", text)`) is part of the transition: it is stored
    with it, or not at all; what is read there must not change until then.
    """

    id: str
    """Of the transition; the same when interrupted work is done again."""
    machine: str
    trigger: str
    origin: str
    target: str
    input: dict[str, Any]
    """What the trigger brought along."""
    change: ScopedChange = field(repr=False)
    data: dict[str, Any] = field(default_factory=dict, repr=False)
    metadata: dict[str, Any] = field(default_factory=dict, repr=False)
    attempt: int = 1
    """Greater if the work was begun before and interrupted."""
    begun: float = field(default_factory=perf_counter, repr=False)
    """When this attempt began, on a clock that only tells how long something takes."""


# ---- record reader ------------------------------------------------------------------------------
# Reading what a machine keeps.


PAGE = 256


_Known = tuple[list[int], dict[str, Any] | None, MachineIntent | None, int, int, bool]
"""Versions of its keys, what they are, number and version of the newest transition, whether the
state is adopted."""


def machines_of(handle: LineHandle) -> list[str]:
    """The names of the machines of a scope."""
    found = handle.reader.keys(MACHINE)
    return sorted({key.removeprefix(MACHINE).partition("/")[0] for key in found})


def open_intents(handle: LineHandle) -> list[tuple[str, MachineIntent]]:
    """The machines of a scope that are at work on a transition, or were interrupted in one."""
    found = {name: handle.reader.get(Keys.of(name).intent) for name in machines_of(handle)}
    return [(name, MachineIntent.of(one)) for name, one in found.items() if one is not None]


@dataclass(slots=True)
class Seen:
    """A machine at one moment, with the versions of keys that a change of it expects."""

    now: dict[str, Any] | None
    intent: MachineIntent | None
    number: int
    """Of its newest transition."""
    version: int
    """The newest one that was given away."""
    adopted: bool = False
    """Whether the state was made on another timeline and restored here, where the log does not
    know it: it is a version of its own, and gets its number with the next transition."""
    expects: dict[str, int] = field(default_factory=dict)
    data: dict[str, Any] | None = None
    """None if nobody needed it yet."""

    @property
    def state(self) -> str:
        """Where it is; empty if it was never started."""
        return self.now["state"] if self.now is not None else ""


class Looker:
    """One machine of one timeline, for reading."""

    def __init__(self, handle: LineHandle, name: str) -> None:
        self.handle = handle
        self.name = name
        self.keys = Keys.of(name)
        self.agent = str(handle.scope)
        self._known: _Known = ([-1, -1, -1], None, None, 0, 0, False)

    def time(self) -> datetime:
        """The store's time, for people."""
        return moment(self.handle.core.clock.claimed())

    def look(self) -> Seen:
        """All but the data; what has not changed since it was last seen is not read again."""
        keys = self.keys
        versions = self.handle.reader.versions((keys.now, keys.intent, keys.transitions))
        if versions != self._known[0]:
            self._known = self._read(versions[2])
        return self.last_seen()

    def last_seen(self) -> Seen:
        """What was last seen or made here, without looking; somebody may have changed it since."""
        versions, now, intent, number, version, adopted = self._known
        keys = self.keys
        expects = {
            keys.now: versions[0],  # merging, undoing or restoring some keys leaves the log alone
            keys.intent: versions[1],
            keys.transitions: versions[2],
        }
        return Seen(now, intent, number, version, adopted, expects)

    def _read(self, log: int) -> _Known:
        keys = self.keys
        found = self.handle.reader.versioned((keys.now, keys.intent), False)
        now, now_version = found.get(keys.now, (None, 0))
        stored, intent_version = found.get(keys.intent, (None, 0))
        intent = MachineIntent.of(stored) if stored is not None else None
        # Read after its version: if somebody adds to it in between, a change gets a Conflict.
        newest = self.handle.reader.tail(keys.transitions, 1)
        last = self.transition(newest[0]) if newest else None
        number, version = (last.number, last.version) if last is not None else (0, 0)
        adopted = now is not None and not self._logged(now, last)
        if now is not None and adopted:
            # Not numbered yet: the number of the entry that brought it here names it, and none of
            # the versions that the log gives, also if another state is adopted before then.
            now = {**now, "version": -now_version}
        return [now_version, intent_version, log], now, intent, number, version, adopted

    def _logged(self, now: dict[str, Any], last: Transition | None) -> bool:
        """Whether the log has what made a state; if it was cleaned, nobody can tell."""
        version = now.get("version", 0)
        if last is None or version > last.version:
            return False
        if last.version == version and last.success:
            return last.id == now.get("id")
        place = self.place_of(version)
        found = self.slice(place, place + 1)
        made = [one for one in found if one.version == version and one.success]
        return not made or made[0].id == now.get("id")

    def adoption(self, seen: Seen) -> Transition:
        """What the log says of a state that is adopted: when it was made, and what it is."""
        assert seen.now is not None
        now, made = seen.now, moment(seen.now["updated"])
        way = ("adopt", "", now["state"], "")
        id = now.get("id", "")
        return Transition(seen.number + 1, id, self.agent, self.name, *way, made, seen.version + 1)

    def wrote(self, seen: Seen, entry: int, last: Transition, now: dict[str, Any]) -> None:
        """Remember what a change has just made, unless a gate may have made it something else."""
        if self.handle.core.gates.front:
            return
        ended = seen.now is None or seen.intent is not None
        intent = entry if ended else seen.expects[self.keys.intent]
        self._known = [entry, intent, entry], now, None, last.number, last.version, False

    def noted(self, seen: Seen, entry: int, last: Transition, *, closed: bool) -> None:
        """The same of a change that has only added a failed attempt to the log, or also ended its
        intent."""
        if self.handle.core.gates.front:
            return
        versions = [seen.expects[self.keys.now], seen.expects[self.keys.intent], entry]
        intent = seen.intent
        if closed:
            versions[1], intent = entry, None
        self._known = versions, seen.now, intent, last.number, last.version, seen.adopted

    def look_whole(self) -> Seen:
        """All of it."""
        seen = self.look()
        self.read_data(seen)
        return seen

    def read_data(self, seen: Seen) -> dict[str, Any]:
        """The data of a machine that was looked at; they must not change until it is changed."""
        key = self.keys.data
        data, version = self.handle.reader.versioned((key,), False).get(key, ({}, 0))
        seen.expects[key] = version
        seen.data = data
        return seen.data

    def snapshot(self, definition: MachineDefinition) -> MachineSnapshot | None:
        """Where the machine is."""
        seen = self.look_whole()
        shown = self.shown(definition, seen.now, seen.data or {}, seen.intent)
        return replace(shown, unnumbered=True) if shown is not None and seen.adopted else shown

    def snapshot_at(self, definition: MachineDefinition, point: Any) -> MachineSnapshot | None:
        """Where the machine was at a point of its scope."""
        view = Looker(self.handle.view(point), self.name)
        found = view.handle.reader.get_many((self.keys.now, self.keys.data))
        return self.shown(definition, found.get(self.keys.now), found.get(self.keys.data, {}))

    def shown(
        self,
        definition: MachineDefinition,
        now: dict[str, Any] | None,
        data: dict[str, Any],
        pending: MachineIntent | None = None,
    ) -> MachineSnapshot | None:
        """What is stored, as it is handed out."""
        if now is None:
            return None
        try:
            return MachineSnapshot(
                self.agent,
                self.name,
                now["state"],
                data,
                now["version"],
                moment(now["created"]),
                moment(now["updated"]),
                copied(now.get("metadata", {})),
                definition.prompt(now["state"], data),
                pending,
            )
        except (KeyError, TypeError):
            raise DamagedRecordError(
                f"{self.agent}: what the machine {self.name!r} keeps cannot be read; restore a "
                "checkpoint"
            ) from None

    # the log

    def transition(self, stored: Any) -> Transition:
        """A transition as it is handed out."""
        return Transition.of(self.agent, self.name, stored)

    def slice(self, start: int, stop: int) -> list[Transition]:
        """Transitions by their places in the log."""
        found = self.handle.reader.slice(self.keys.transitions, start, stop)
        return [self.transition(one) for one in found]

    def length(self) -> int:
        """How many transitions the log has."""
        return self.handle.reader.length(self.keys.transitions)

    def newest_first(self) -> Iterator[Transition]:
        """All transitions, read page by page."""
        end = self.length()
        while end > 0:
            start = max(0, end - PAGE)
            yield from reversed(self.slice(start, end))
            end = start

    def place_of(self, version: int, *, after: bool = False) -> int:
        """The place in the log of what made a version; with `after`, of what came after it."""
        low, high = 0, self.length()
        aim = version + after
        while low < high:  # versions never fall along the log
            middle = (low + high) // 2
            [found] = self.slice(middle, middle + 1)
            low, high = (middle + 1, high) if found.version < aim else (low, middle)
        return low

    # versions

    def maker(self, version: int) -> Transition:
        """The transition that made a version."""
        seen = self.look()
        if seen.adopted and seen.now is not None and version == seen.now["version"]:
            return self.adoption(seen)
        place = self.place_of(version)
        for one in self.slice(place, place + 1):
            if one.version == version and one.success:
                return one
        raise PointNotFoundError(
            f"{self.agent}: the log of the machine {self.name!r} knows no version {version}; "
            "see transitions()"
        )

    def entry_of(self, version: int) -> str:
        """The entry (TIMELINE@NUMBER) that made a version."""
        check_number(version)
        made = self.maker(version)
        for line in self._lines():
            handle = self.handle.on(line)
            found = self._entry(handle, made, _begin(handle, made.timestamp))
            if found is None:  # the clock was set back since
                found = self._entry(handle, made, 1)
            if found is not None:
                return f"{line}@{found}"
        raise PointNotFoundError(
            f"{self.agent}: version {version} of the machine {self.name!r} is in no history that "
            "is kept"
        )

    def _lines(self) -> list[str]:
        """The timelines of the scope: this one, those that it comes from, then the others."""
        infos = {one.name: one for one in self.handle.history.timelines()}
        found: list[str] = []
        line: str | None = self.handle.timeline
        while line is not None:
            found.append(line)
            line = infos[line].parent if line in infos else None
        return [*found, *(name for name in infos if name not in found)]

    def _entry(self, handle: LineHandle, made: Transition, since: int) -> int | None:
        low = since
        while page := handle.history.log(
            key=self.keys.now, since=low, limit=32, newest_first=False
        ):
            for entry in page:
                found = handle.view(entry.sequence).reader.get(self.keys.now)
                if found is not None and found.get("id") == made.id:
                    return entry.sequence
            low = page[-1].sequence + 1
        return None


def check_number(version: object) -> None:
    """Refuse what can be no version; that of a state that is not numbered yet is below 0."""
    check_count(-version if type(version) is int and version < 0 else version, "a version")


def _begin(handle: LineHandle, time: datetime) -> int:
    """An entry before which nothing of a time is to be found, if clocks never step."""
    try:
        return handle.history.points.at_time(microseconds(time))
    except PointNotFoundError:
        return 1


# ---- record changes -----------------------------------------------------------------------------
# Changes of a machine's keys: a step, an intent, a failed attempt; and what is refused.


class Storing:
    """What one machine of one timeline can have stored."""

    def __init__(self, state: State, definition: MachineDefinition, name: str) -> None:
        self.state = state
        self.handle = handle = handle_of(state)
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

    def look(self, function: Callable[[], Any]) -> Step:
        """A step that looks at what is stored."""
        return look(self.state, function)

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
    ) -> Steps[Transition]:
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

    def _commit(self, seen: Seen, plan: Callable[[], Plan]) -> Steps[Any]:
        """Commit a plan, again while others only add failed attempts to the log; what it gives."""
        own = {self.keys.now, self.keys.transitions, self.keys.intent}
        for _ in range(ATTEMPTS):
            try:
                return (yield commit(self.state, plan()))
            except Conflict as conflict:  # failed attempts of others are in nobody's way
                if not conflict.keys or not own.issuperset(conflict.keys):
                    raise
                again = yield self.look(self.looker.look)
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

    def store_intent(self, seen: Seen, step: MachineStep) -> Steps[None]:
        """Say that a step is about to be worked on."""
        given = copied(step.input)  # functions may change theirs
        intent = MachineIntent(
            step.id, step.trigger, step.origin, step.target, given, self.looker.time()
        )
        yield from self.put_intent(seen, intent)

    def put_intent(self, seen: Seen, intent: MachineIntent) -> Steps[None]:
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
    ) -> Steps[None]:
        """Note a failed attempt; never in the way of its error."""
        try:
            yield from self.log_failure(step, f"{type(error).__name__}: {error}", kind, close)
        except HoldfastError as wrong:
            error.add_note(f"{self.where}: the attempt is not in its log: {type(wrong).__name__}")

    def log_failure(
        self, step: MachineStep, why: str, kind: str, close: MachineIntent | None
    ) -> Steps[None]:
        """Add a failed attempt to the log, and end its intent if it is still the one."""
        keys = self.keys
        told = False
        seconds = perf_counter() - step.begun

        def add() -> Steps[None]:
            nonlocal told
            seen = yield self.look(self.looker.look)
            made = self._transition(seen, step, kind, seen.version, why[:MOST_ERROR])
            if not told:  # it failed, whether or not that can be written down
                told = True
                made.counted(self.meter, seconds)
            operations = [Operation("append", keys.transitions, [made.stored()])]
            expects = {keys.transitions: seen.expects[keys.transitions]}
            if close is not None and seen.intent == close:
                operations.append(Operation("set", keys.intent, None))
                expects[keys.intent] = seen.expects[keys.intent]
            entry = yield commit(self.state, self.plan(operations, expects))
            self.looker.noted(seen, entry, made, closed=keys.intent in expects)

        yield from again_in_steps(add)

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


# ---- record check -------------------------------------------------------------------------------
# Whether what a machine keeps is whole: its state, version, times, data, and its log.


def problems_of(routines: Routines) -> tuple[str, ...]:
    """What is wrong with a machine, as texts."""
    snapshot = routines.snapshot()
    found = list(wrong_with(routines.definition, snapshot)) if snapshot is not None else []
    newest = routines.looker.newest_first()
    return (*found, *_log(newest))


def wrong_with(definition: MachineDefinition, snapshot: MachineSnapshot) -> Iterator[str]:
    """What is wrong with a snapshot, as texts."""
    if not snapshot.agent_id:
        yield "its agent has no name"
    if not snapshot.state:
        yield "its state has no name"
    if snapshot.version < 0 and not snapshot.unnumbered:
        yield f"its version {snapshot.version} is negative"
    if snapshot.updated_at < snapshot.created_at:
        yield "it was changed before it was made"
    yield from definition.validate_data(snapshot.state, snapshot.data)


def _log(newest_first: Iterator[Transition]) -> Iterator[str]:
    later: Transition | None = None
    for one in newest_first:
        if later is not None and one.number + 1 != later.number:
            yield f"the log goes from transition {one.number} to {later.number}"
        if later is not None and later.version - one.version != later.success:
            yield f"transition {later.number} has version {later.version} after {one.version}"
        later = one
