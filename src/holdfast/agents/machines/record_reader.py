"""Reading what a machine keeps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from holdfast.agents.agent_keys import MACHINE
from holdfast.agents.machines.records import (
    Keys,
    MachineIntent,
    MachineSnapshot,
    Transition,
)
from holdfast.errors import DamagedRecordError, PointNotFoundError
from holdfast.store.names.arguments import check_count
from holdfast.store.read.reader import microseconds, moment
from holdfast.store.tree.value_copy import copied

if TYPE_CHECKING:
    from holdfast.agents.machines.definition import MachineDefinition
    from holdfast.store.history.handle import LineHandle

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
