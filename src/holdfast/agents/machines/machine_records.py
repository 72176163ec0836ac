"""What a machine keeps, and what of it is handed out.

Under `$machine/NAME/`: `now` (a `Place`), `data` (a mapping, written when it changes), and below
`log/`, which restores leave alone, `transitions` (a list of all attempts) and `intent` (the
transition whose work is being done). Each transition has a number, one more than the one before it;
versions count those that succeeded. Both are taken from the newest transition, which every change
of a machine expects, so that nobody else takes the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from time import perf_counter
from typing import TYPE_CHECKING, Any

from msgspec import Struct, structs

from holdfast.agents.agent_keys import MACHINE, OWN_MACHINES
from holdfast.errors import Conflict, PointNotFoundError, TransitionRefusedError
from holdfast.store.inner import (
    TRANSITIONS,
    Book,
    Books,
    Meter,
    ScopedChange,
    copied,
    moment,
)
from holdfast.store.names.arguments import (
    check_count,
    check_flag,
    check_limit,
    check_moment,
    check_name,
)
from holdfast.store.names.scope import check_key
from holdfast.store.state import View

if TYPE_CHECKING:
    from holdfast.agents.machines.definition import MachineDefinition
    from holdfast.store.inner import LineHandle


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
NOW, DATA, LOG, INTENT = "now", "data", "transitions", "intent"
"""What a machine keeps, by the ids in its books."""


class Place(Struct, kw_only=True):
    """Where a machine is, as it is stored; times are microseconds since 1970."""

    state: str
    version: int
    id: str = ""
    """Of the transition that made it."""
    created: int
    updated: int
    metadata: dict[str, Any] = {}


class Attempt(Struct, array_like=True):
    """A transition as it is stored."""

    number: int
    id: str
    kind: str
    origin: str
    target: str
    trigger: str
    time: int
    version: int
    error: str | None = None


class Transition(Struct, frozen=True):
    """One attempt to change a machine, as its log has it; failed ones too."""

    number: int
    id: str
    agent_id: str
    """The scope, as text."""
    machine: str
    kind: str
    """start, step (a trigger), save (data without a trigger), roll_back or replay"""
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


class MachineIntent(Struct, frozen=True, rename={"from_state": "from", "to_state": "to"}):
    """A transition with work inside that was begun, and has not ended as far as is known."""

    id: str
    """Of the transition, also when it is tried again: good as an idempotency key."""
    trigger: str
    from_state: str
    to_state: str
    input: dict[str, Any]
    """What the trigger brought along."""
    begun: datetime
    attempt: int = 1


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
    """Whether another timeline made it: it has no number here, and its version is below 0."""


@dataclass(frozen=True, slots=True)
class MachineRecovered:
    """What became of a transition that had been interrupted."""

    how: str
    """nothing (there was none), ask (it is still open: `settle` it), complete or roll_back"""
    intent: MachineIntent | None
    snapshot: MachineSnapshot | None
    """Where the machine is now."""


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


def machine_key(name: str, id: str) -> str:
    """Where a machine keeps something of itself."""
    return f"{MACHINE}{name}/{id}"


def machines_of(handle: LineHandle) -> list[str]:
    """The names of the machines of a scope."""
    found = handle.reader.keys(MACHINE)
    return sorted({key.removeprefix(MACHINE).partition("/")[0] for key in found})


def open_intents(handle: LineHandle) -> list[tuple[str, MachineIntent]]:
    """The machines of a scope that are at work on a transition, or were interrupted in one."""
    found = {name: MachineBook(handle, name).intents.get(INTENT) for name in machines_of(handle)}
    return [(name, one) for name, one in found.items() if one is not None]


@dataclass(slots=True)
class Seen:
    """A machine at one moment, with the versions of keys that a change of it expects."""

    now: Place | None
    intent: MachineIntent | None
    number: int
    """Of its newest transition."""
    version: int
    """The newest one that was given away."""
    expects: dict[str, int]
    data: dict[str, Any] | None = None
    """None if nobody needed it yet."""

    @property
    def state(self) -> str:
        """Where it is; empty if it was never started."""
        return self.now.state if self.now is not None else ""

    def works_on(self, intent: MachineIntent | None) -> bool:
        """Whether its intent is this one; values do not tell that: nan is not equal to itself."""
        mine = self.intent
        if mine is None or intent is None:
            return mine is intent
        return (mine.id, mine.attempt) == (intent.id, intent.attempt)


class MachineBook(Books):
    """What one machine of one timeline keeps.

    All of it is looked at by its versions alone while nobody else moved the machine.
    """

    def __init__(self, handle: LineHandle, name: str) -> None:
        name = check_name(name, "the name of a machine")
        own = View(handle)
        super().__init__(own)
        self.name = name
        self.agent = str(handle.scope)
        self.places = Book(own, OWN_MACHINES, Place, name=name)
        self.log = Book(own, OWN_MACHINES, Attempt, name=name, under="log/")
        self.intents = Book(own, OWN_MACHINES, MachineIntent, name=name, under="log/")
        # Also where it is: merging, undoing or restoring some keys leaves the log alone.
        paths = (NOW, DATA, "log/" + INTENT, "log/" + LOG)
        keys = [check_key(machine_key(name, path), owner=True) for path in paths]
        self.now_key, self.data_key, self.intent_key, self.log_key = keys
        self.expected = (self.now_key, self.intent_key, self.log_key)
        self._last = Seen(None, None, 0, 0, dict.fromkeys(self.expected, -1))

    def time(self) -> datetime:
        """The store's time, for people."""
        return moment(self.line.core.clock.claimed())

    def look(self) -> Seen:
        """All but the data; what has not changed since it was last seen is not read again."""
        versions = self.line.reader.versions(self.expected)
        if versions != [*self._last.expects.values()]:
            self._last = self._read(versions[2])
        return self.last_seen()

    def last_seen(self) -> Seen:
        """What was last seen or made here, without looking; somebody may have changed it since."""
        last = self._last
        return Seen(last.now, last.intent, last.number, last.version, last.expects.copy())

    def _read(self, log: int) -> Seen:
        now, now_version = self.places.versioned(NOW)
        intent, intent_version = self.intents.versioned(INTENT)
        # Read after its version: if somebody adds to it in between, a change gets a Conflict.
        newest = self.log.tail(LOG, 1)
        last = newest[0] if newest else None
        number, version = (last.number, last.version) if last is not None else (0, 0)
        if now is not None and not self._logged(now, last):
            # Another timeline made it: the entry that brought it here tells it from all others.
            now = structs.replace(now, version=-now_version)
        versions = (now_version, intent_version, log)
        expects = dict(zip(self.expected, versions, strict=True))
        return Seen(now, intent, number, version, expects)

    def _logged(self, now: Place, last: Attempt | None) -> bool:
        """Whether the log has what made a state; if it was cleaned, nobody can tell."""
        if last is None or now.version > last.version:
            return False
        newest = last.version == now.version and last.error is None
        made = last if newest else self._maker(now.version)
        return made is None or made.id == now.id

    def wrote(self, seen: Seen, entry: int, last: Attempt, **made: Any) -> None:
        """Remember what a change has just made, unless a gate may have made it something else."""
        if self.line.core.gates.front:
            return
        written = {self.log_key: True, self.now_key: NOW in made, self.intent_key: INTENT in made}
        expects = {key: entry if written[key] else seen.expects[key] for key in self.expected}
        now, intent = made.get(NOW, seen.now), made.get(INTENT, seen.intent)
        self._last = Seen(now, intent, last.number, last.version, expects)

    def look_whole(self) -> Seen:
        """All of it."""
        seen = self.look()
        self.read_data(seen)
        return seen

    def read_data(self, seen: Seen) -> dict[str, Any]:
        """The data of a machine that was looked at; they must not change until it is changed."""
        found = self.line.reader.versioned((self.data_key,), False)
        seen.data, seen.expects[self.data_key] = found.get(self.data_key, ({}, 0))
        return seen.data

    def snapshot_at(self, definition: MachineDefinition, point: Any) -> MachineSnapshot | None:
        """Where the machine was at a point of its scope."""
        then = MachineBook(self.line.view(point), self.name)
        return self.shown(definition, then.places.get(NOW), then.value(self.data_key, {}))

    def shown(
        self,
        definition: MachineDefinition,
        now: Place | None,
        data: dict[str, Any],
        pending: MachineIntent | None = None,
    ) -> MachineSnapshot | None:
        """What is stored, as it is handed out."""
        if now is None:
            return None
        return MachineSnapshot(
            self.agent,
            self.name,
            now.state,
            data,
            now.version,
            moment(now.created),
            moment(now.updated),
            copied(now.metadata),
            definition.prompt(now.state, data),
            pending,
            now.version < 0,
        )

    # the log

    def transition(self, one: Attempt) -> Transition:
        """A transition as it is handed out."""
        way = one.kind, one.origin, one.target, one.trigger
        when = moment(one.time)
        return Transition(
            one.number, one.id, self.agent, self.name, *way, when, one.version, one.error
        )

    def each(self, start: int = 0, stop: int | None = None) -> Iterator[Transition]:
        """Transitions by their places, oldest first, read page by page."""
        end = self.log.length(LOG) if stop is None else stop
        for place in range(start, end, PAGE):
            yield from map(self.transition, self.log.slice(LOG, place, min(place + PAGE, end)))

    def newest_first(self) -> Iterator[Transition]:
        """All transitions, read page by page."""
        for end in range(self.log.length(LOG), 0, -PAGE):
            yield from map(self.transition, reversed(self.log.slice(LOG, max(0, end - PAGE), end)))

    def transitions(
        self,
        *,
        since: datetime | int | None = None,
        until: datetime | int | None = None,
        success: bool | None = None,
        limit: int | None = None,
    ) -> list[Transition]:
        """Transitions that fit all that is given, the newest `limit` of them, oldest first."""
        for bound in (since, until):
            if isinstance(bound, int):
                check_count(bound, "the number of a transition")
            elif bound is not None:
                check_moment(bound, "a time")
        if success is not None:
            check_flag(success, "success")
        check_limit(limit)
        found: list[Transition] = []
        for one in self.newest_first():
            if limit is not None and len(found) >= limit:
                break
            first: Any = one.number if isinstance(since, int) else one.timestamp
            last: Any = one.number if isinstance(until, int) else one.timestamp
            if since is not None and first < since:
                if isinstance(since, int):
                    break
                continue
            if (until is None or last <= until) and success in (None, one.success):
                found.append(one)
        return found[::-1]

    def place_of(self, version: int, *, after: bool = False) -> int:
        """The place in the log of what made a version; with `after`, of what came after it."""
        low, high = 0, self.log.length(LOG)
        aim = version + after
        while low < high:  # versions never fall along the log
            middle = (low + high) // 2
            [found] = self.log.slice(LOG, middle, middle + 1)
            low, high = (middle + 1, high) if found.version < aim else (low, middle)
        return low

    # versions

    def _maker(self, version: int) -> Attempt | None:
        """The transition that made a version; None if the log has none."""
        place = self.place_of(version)
        found = self.log.slice(LOG, place, place + 1)
        made = [one for one in found if one.version == version and one.error is None]
        return made[0] if made else None

    def entry_of(self, version: int) -> str:
        """The entry (TIMELINE@NUMBER) that made a version."""
        check_count(abs(version) if type(version) is int else version, "a version")
        made = self._maker(version)
        if made is None:
            raise PointNotFoundError(
                f"{self.agent}: the log of the machine {self.name!r} knows no version {version}; "
                "see transitions()"
            )
        own = self.line.timeline
        lines = [one.name for one in self.line.history.timelines() if one.name != own]
        for line in (own, *lines):
            handle, near = self.line.on(line), 1
            with suppress(PointNotFoundError):
                near = handle.history.points.at_time(made.time)
            for since in (near, 1):  # the clock may have been set back
                if (found := self._entry(handle, made, since)) is not None:
                    return f"{line}@{found}"
        raise PointNotFoundError(
            f"{self.agent}: version {version} of the machine {self.name!r} is in no history that "
            "is kept"
        )

    def _entry(self, handle: LineHandle, made: Attempt, since: int) -> int | None:
        low, key = since, self.now_key
        while page := handle.history.log(key=key, since=low, limit=32, newest_first=False):
            for entry in page:
                found = handle.view(entry.sequence).reader.get(key)
                if found is not None and found.get("id") == made.id:
                    return entry.sequence
            low = page[-1].sequence + 1
        return None


# ---- record check -------------------------------------------------------------------------------
# Whether what a machine keeps is whole: its state, version, times, data, and its log.


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


def wrong_in_log(newest_first: Iterator[Transition]) -> Iterator[str]:
    """What is wrong with a log, as texts: numbers and versions are given one after the other."""
    later: Transition | None = None
    for one in newest_first:
        if later is not None and one.number + 1 != later.number:
            yield f"the log goes from transition {one.number} to {later.number}"
        if later is not None and later.version - one.version != later.success:
            yield f"transition {later.number} has version {later.version} after {one.version}"
        later = one
