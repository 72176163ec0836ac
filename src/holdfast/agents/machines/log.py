"""The past of a machine: its log, its versions, going back to one, replaying from one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from holdfast.agents.agent_keys import commit
from holdfast.agents.machines.machine_records import (
    PAGE,
    Looker,
    MachineSnapshot,
    Replayed,
    Transition,
)
from holdfast.agents.machines.routines import Routines
from holdfast.errors import InvalidInputError, LimitExceededError, PointNotFoundError, ReplayError
from holdfast.store.inner import Operation
from holdfast.store.names.arguments import check_count, check_flag, check_limit, check_moment
from holdfast.store.names.face import Steps, read

if TYPE_CHECKING:
    from holdfast.agents.machines.definition import MachineDefinition
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


def transitions_of(
    looker: Looker,
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
    for one in looker.newest_first():
        if limit is not None and len(found) >= limit:
            break
        if isinstance(since, int) and one.number < since:
            break
        if _within(one, since, until) and success in (None, one.success):
            found.append(one)
    return found[::-1]


class Past(Routines):
    """What one machine of one timeline does, also with its past."""

    def __init__(
        self, state: State, definition: MachineDefinition, name: str, limits: MachineLimits
    ) -> None:
        super().__init__(state, definition, name)
        self._limits = limits

    # the log

    def clean(self, before: datetime | None) -> Steps[int]:
        """Drop what the log has from before a time; the newest transition always stays."""
        looker, log = self.looker, self.looker.keys.transitions
        if before is not None:
            check_moment(before, "before")
        oldest = before or looker.time() - self._limits.log_age
        seen = yield self.look(looker.look)
        going: int = yield read(lambda: self._older(oldest))
        if going:
            trim = Operation("trim", log, {"before": going})
            plan = self.plan([trim], {log: seen.expects[log]})
            yield commit(self.state, plan)
        return going

    def _older(self, time: datetime) -> int:
        """How many transitions, from the oldest on, are from before a time."""
        last = max(self.looker.length() - 1, 0)
        for start in range(0, last, PAGE):
            for place, one in enumerate(self.looker.slice(start, min(start + PAGE, last)), start):
                if one.timestamp >= time:
                    return place
        return last

    # versions

    def snapshot_of(self, version: int) -> MachineSnapshot:
        """The machine at one of its versions."""
        entry = self.looker.entry_of(version)
        found = self.looker.snapshot_at(self.definition, entry)
        assert found is not None
        # On another timeline it was another one.
        return replace(found, version=version, unnumbered=version < 0)

    def _at(self, point: Any) -> MachineSnapshot:
        """The machine at a version, or at a checkpoint that is not too old."""
        if isinstance(point, int) and not isinstance(point, bool):
            return self.snapshot_of(point)
        handle = self.looker.handle
        line, sequence = handle.history.points.find(point)
        entry = handle.on(line).history.log(since=sequence, until=sequence, limit=1)
        age, most = self.looker.time() - entry[0].time, self._limits.checkpoint_age
        if most is not None and age > most:
            raise InvalidInputError(
                f"{self.looker.agent}: that point is {age} old, and checkpoint_age is {most}; "
                "give Machine(limits=MachineLimits(checkpoint_age=None)) if it may be older"
            )
        found = self.looker.snapshot_at(self.definition, f"{line}@{sequence}")
        if found is None:
            raise PointNotFoundError(
                f"{self.looker.agent}: at that point there was no machine {self.looker.name!r}"
            )
        return found

    def roll_back(self, point: Any) -> Steps[MachineSnapshot]:
        """Make the machine what it was at a version or checkpoint, as a new version."""
        wanted = yield read(lambda: self._at(point))
        seen = yield self.look(self.looker.look_whole)
        self.refuse_idle(seen)
        self.refuse_open(seen)
        yield from self.put(seen, wanted, "roll_back")
        snapshot: MachineSnapshot = yield self.look(self.snapshot)
        return snapshot

    # replay

    def replay(
        self,
        version: int,
        *,
        until: int | None,
        apply: Callable[[dict[str, Any], Transition], Any] | None,
        dry_run: bool,
    ) -> Steps[Replayed]:
        """Follow the log from a version on, each transition from where the one before ended."""
        check_count(version, "a version")
        check_limit(until, "until")
        seen = yield self.look(self.looker.look_whole)
        self.refuse_idle(seen)
        self.refuse_open(seen)
        start = yield read(lambda: self.snapshot_of(version))
        made = yield read(lambda: self._following(version, until))
        self._check_origins(start, made)
        end = start
        if made:
            end = yield read(lambda: self.snapshot_of(made[-1].version))
        data = end.data
        if apply is not None:
            data = start.data
            for one in made:
                data = apply(data, one)
        told = {
            "from_version": version,
            "transitions": len(made),
            "until": made[-1].number if made else None,
            "time": self.looker.time(),
        }
        last = made[-1].id if made else None
        metadata = {**end.metadata, "last_transition": last, "replay_info": told}
        wanted = replace(end, data=data, metadata=metadata)
        if not dry_run:
            yield from self.put(seen, wanted, "replay")
            wanted = yield self.look(self.snapshot)
        return Replayed(version, tuple(made), wanted, dry_run)

    def _following(self, version: int, until: int | None) -> list[Transition]:
        """Transitions after a version that succeeded; refused if there are too many."""
        looker, most = self.looker, self._limits.replayed
        place, end = looker.place_of(version, after=True), looker.length()
        found: list[Transition] = []
        while place < end:
            for one in looker.slice(place, min(place + PAGE, end)):
                if until is not None and one.number > until:
                    return found
                if one.success:
                    found.append(one)
            if len(found) > most:
                raise LimitExceededError(
                    f"{looker.agent}: more than {most} transitions follow version {version} of the "
                    f"machine {looker.name!r}; give until=, or Machine(limits=MachineLimits("
                    "replayed=…))"
                )
            place += PAGE
        return found

    def _check_origins(self, start: MachineSnapshot, made: list[Transition]) -> None:
        state = start.state
        for one in made:
            if one.from_state != state:
                raise ReplayError(
                    f"{self.looker.agent}: transition {one.number} of the machine "
                    f"{self.looker.name!r} begins in {one.from_state!r}, and the one before it "
                    f"ended in {state!r}; replay until {one.number - 1}",
                    one,
                )
            state = one.to_state


def _within(one: Transition, since: datetime | int | None, until: datetime | int | None) -> bool:
    for bound, late in ((since, False), (until, True)):
        if bound is None:
            continue
        place: Any = one.number if isinstance(bound, int) else one.timestamp
        if place > bound if late else place < bound:
            return False
    return True
