"""Finding one moment to which several agents can return: looked at whole, before it is used."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from holdfast.checkpoints.group import Group, group_of
from holdfast.checkpoints.locate import Lineage, candidates
from holdfast.checkpoints.request import Locator
from holdfast.errors import (
    CheckpointNotFoundError,
    InvalidInputError,
    MissingError,
    PointNotFoundError,
    PrunedError,
    RecoveryValidationError,
    StateIntegrityError,
)
from holdfast.recovery import failures
from holdfast.recovery.changes_of_others import entry_rows
from holdfast.recovery.context import Settings
from holdfast.recovery.failures import AgentFailure
from holdfast.recovery.records import Tail
from holdfast.recovery.state_checks import Trials, Unasked, Untried, refusal
from holdfast.recovery.strategies import UnfitTarget, check_state, newest_of, readable
from holdfast.recovery.tails import MAIN, tail_text
from holdfast.store.inner import LineHandle, StoreHandle, Timeline
from holdfast.store.names.items import Checkpoint, said
from holdfast.store.names.scope import Scope
from holdfast.store.state import State

_FIT = (failures.NAMED, failures.TIME, failures.NOTHING, failures.NEWEST)
"""Strategies that lead to one moment."""


@dataclass(frozen=True, slots=True)
class Moment:
    """A state of each agent, all of one moment."""

    strategy: str
    points: Mapping[Scope, tuple[str, int]]
    """Empty: as they are."""
    why: str = ""
    """In what it is no moment of all of them, if there is nothing better; or who goes back further
    than the time that was asked for."""


def named_group(point: Any) -> Any:
    """What a group is known by, in every agent of it: its id, or the name that was given.

    The id of a checkpoint as a text is neither: each agent has one of that number.
    """
    if isinstance(point, Group):
        return point.id
    if isinstance(point, Checkpoint):
        id_ = said(point.metadata, "group", "")
        if not id_:
            raise CheckpointNotFoundError(
                f"{point.scope}: {point.id} is no part of a group, so it is no moment of several "
                "agents; CheckpointGroups.create makes one"
            )
        return id_
    if point is not None and type(point) not in (str, int):
        raise InvalidInputError(
            "the point of several agents is a group of checkpoints, its name or id, or a "
            f"checkpoint of it, not {type(point).__name__}"
        )
    return point


def _of_groups(handle: LineHandle, named: Any) -> Iterator[Checkpoint]:
    """Checkpoints of an agent that are part of a group: all, or those of a group's name or id."""
    for one in candidates(handle, Locator()):
        id_ = said(one.metadata, "group", "")
        if id_ and (named is None or named in (one.name, id_)):
            yield one


def undivided_cuts(lines: Mapping[Scope, Timeline], cuts: Mapping[Scope, int]) -> dict[Scope, int]:
    """The newest entry of each, at or before its cut, such that no change of several is divided.

    What lies behind a cut is read, and says what was changed along with it: clocks, by which a time
    is found in each timeline alone, differ between machines. An entry that cannot be read says
    nothing; then its change may be divided.
    """
    found = dict(cuts)
    scopes = {(line.ledger.number, line.number): scope for scope, line in lines.items()}
    todo = [(line, found[scope] + 1, line.sequence) for scope, line in lines.items()]
    while todo:
        for number, timeline, sequence in _changed_along(*todo.pop()):
            scope = scopes.get((number, timeline))
            if scope is None or sequence > found[scope]:
                continue
            line = lines[scope]
            if sequence - 1 <= line.ledger.before:
                raise PointNotFoundError(
                    f"{scope}: its first entry is of a change of several agents, of which a part "
                    "lies behind that time"
                )
            todo.append((line, sequence, found[scope]))
            found[scope] = sequence - 1
    return found


def _changed_along(line: Timeline, first: int, last: int) -> Iterator[tuple[int, int, int]]:
    """Entries of other timelines that are of one change with some of these."""
    for key, row in entry_rows(line, first, last):
        with suppress(PrunedError, StateIntegrityError):  # whom it was changed along with is lost
            yield from line.ledger.open_entry(key, row)[1].also


def _lacking(gone: Mapping[Scope, Tail]) -> str:
    """Which agents lost what, for people."""
    return "; ".join(f"{scope} lost {tail_text(tail)}" for scope, tail in gone.items())


class Moments:
    """Finds moments of agents of one store."""

    def __init__(self, store: StoreHandle, settings: Settings) -> None:
        self._store = store
        self._settings = settings

    def check_asked(self, scopes: Sequence[Scope], failure: AgentFailure) -> None:
        """Refuse a time or a group that is not there, before anything is kept."""
        if failure.at is not None:
            self._at(scopes, failure.at)
        named = failure.data().get("point")
        lines = map(self._store.line, scopes)
        if named is not None and not any(True for one in lines for _ in _of_groups(one, named)):
            raise CheckpointNotFoundError(
                f"none of the agents has a checkpoint of a group called {named!r}; make one with "
                "CheckpointGroups.create, or leave `point` out"
            )

    def look(
        self, scopes: Sequence[Scope], data: Mapping[str, Any]
    ) -> tuple[Moment | None, dict[str, str]]:
        lost = {Scope.parse(one): tail for one, tail in data["gone"].items()}
        gone = {one: tail for one, tail in lost.items() if MAIN in tail}
        passed: dict[str, str] = {}
        for name, found in self._moments(scopes, AgentFailure.of(data["failure"]), gone, passed):
            try:
                for scope in scopes:
                    self._check(scope, found.points.get(scope))
                return found, passed
            except Unasked as error:  # an older moment would lose more, for want of an answer
                passed[name] = str(error)
                break
            except (
                UnfitTarget,
                MissingError,
                StateIntegrityError,
                RecoveryValidationError,
            ) as error:
                passed[name] = str(error)[:500]
        return None, passed

    def _moments(
        self,
        scopes: Sequence[Scope],
        failure: AgentFailure,
        gone: Mapping[Scope, Tail],
        passed: dict[str, str],
    ) -> Iterator[tuple[str, Moment]]:
        """Moments that may serve, in the order of the strategies of the failure.

        Agents of which one has lost its newest entries are of no one moment as they are: it lacks
        what the others may have from it. So that comes last, and is said.
        """
        if failure.at is not None:
            points, why = self._at(scopes, failure.at)
            late = {one: tail for one, tail in gone.items() if points[one][1] >= tail[MAIN][0] - 1}
            if late:
                passed[str(failure.at)] = f"{_lacking(late)}, which may be of before that time"
            else:
                yield str(failure.at), Moment(failures.TIME, points, why)
            return
        kind = failure.kind
        known = self._settings.pinned(kind) or failures.kind_of(kind).strategies
        order = [one for one in known if one in _FIT]
        if not order:
            passed["order"] = f"none of {', '.join(known)} leads several agents to one moment"
        for name in [failures.NAMED] if failure.point is not None else order:
            if name == failures.NOTHING and gone:
                passed[name] = f"{_lacking(gone)}: the agents are not of one moment"
            elif name == failures.NOTHING:
                yield name, Moment(name, {})
            elif name == failures.NEWEST or failure.point is not None:
                yield from self._groups(scopes, name, failure.point, passed)
        if failures.NOTHING in passed:
            left = "what the others have of those stays, for there is no moment to return to"
            why = f"{passed.pop(failures.NOTHING)}; {left}"
            yield failures.NOTHING, Moment(failures.NOTHING, {}, why)

    def _at(self, scopes: Sequence[Scope], time: Any) -> tuple[dict[Scope, tuple[str, int]], str]:
        """Where each of them was at a time, and who goes back further than that, for people."""
        points = {one: self._store.line(one).history.points for one in scopes}
        then = {one: known.find(time)[1] for one, known in points.items()}
        cuts = undivided_cuts({one: known.line() for one, known in points.items()}, then)
        further = [f"{one} by {then[one] - n} entries" for one, n in cuts.items() if n < then[one]]
        why = (
            "changes of several of them lie on both sides of that time, by the clocks of who made "
            f"them, and are undone for all: further back goes {', '.join(further)}"
        )
        found = {one: known.find(cuts[one]) for one, known in points.items()}
        return found, why if further else ""

    def _groups(
        self, scopes: Sequence[Scope], strategy: str, named: Any, passed: dict[str, str]
    ) -> Iterator[tuple[str, Moment]]:
        first = self._store.line(scopes[0])
        known: dict[Scope, Lineage] = {}
        for one in _of_groups(first, named):
            try:
                members = {made.scope: made for made in group_of(self._store, one).checkpoints}
            except (CheckpointNotFoundError, StateIntegrityError) as error:
                # Damaged, or not whole: an older may serve.
                passed[one.name or one.id] = str(error)[:500]
                continue
            if not members.keys() >= set(scopes):
                passed[one.name or one.id] = "not all of the agents are part of that group"
                continue
            points = {scope: (members[scope].timeline, members[scope].sequence) for scope in scopes}
            aside = [str(scope) for scope, (line, _) in points.items() if line != MAIN]
            if named is None and aside:
                passed[one.name or one.id] = (
                    f"that of {', '.join(aside)} is of another timeline; name it as the point to "
                    "return to it"
                )
                continue
            if named is None and self._left(points, known):
                passed[one.name or one.id] = (
                    "a restore left it behind; name it as the point to return to it"
                )
                continue
            yield one.name or one.id, Moment(strategy, points)
        passed.setdefault("group", "no other checkpoint is of a group with all of them")

    def _left(self, points: Mapping[Scope, tuple[str, int]], known: dict[Scope, Lineage]) -> bool:
        """Whether a restore of any of them left a moment behind.

        `known` has those of the scopes that were asked about before: one reads all its restores.
        """
        for scope, (_, sequence) in points.items():
            if scope not in known:
                known[scope] = Lineage(self._store.line(scope))
            if sequence not in known[scope]:
                return True
        return False

    def _check(self, scope: Scope, point: tuple[str, int] | None) -> None:
        handle = self._store.line(scope)
        timeline, sequence = point or (handle.timeline, newest_of(handle))
        check_state(handle, timeline, sequence)
        why = self._refused(handle, timeline, sequence) if self._settings.validate else None
        if why is not None:
            raise RecoveryValidationError(f"{scope}: {why}")

    def _refused(self, handle: LineHandle, timeline: str, sequence: int) -> str | None:
        """Why checks refuse a state; of a damaged agent they are asked as it was then."""
        checks = self._settings.validate
        if readable(handle):
            with suppress(Untried), Trials(handle) as trials:  # else they are asked of a view
                return trials.refused(checks, handle, timeline, sequence)
        return refusal(checks, State(handle).at(f"{timeline}@{sequence}"), later=True)
