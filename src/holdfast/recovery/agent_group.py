"""Several agents recovered to one moment: all of them, or none.

A moment is a group of checkpoints that were made in one commit, a time, or now. It is looked at
whole before anything is changed: every value of every agent is read, and every check asked. Then
one commit puts all of them back and notes that it did, so there is nothing to undo; a process that
ends before it has changed nothing, and what is left to do after it can be done again.

What the agents told each other, or themselves, since the moment is undone with the rest. A letter
that one of them sent while it processed another will be sent again when that is processed again: it
is taken back in the same commit. Letters from elsewhere stay, and so do those that were sent by
themselves: those are facts, and sent again under their id they are still one. Tasks that were
handed over since stay where they are.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import wait as wait_for
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

from holdfast.agents.agent_keys import again
from holdfast.agents.handover import Handovers
from holdfast.agents.mailbox_numbers import letters_taken_back, mend_numbers
from holdfast.checkpoints.group import Group, group_of
from holdfast.checkpoints.locate import Lineage, candidates
from holdfast.checkpoints.request import Locator
from holdfast.checkpoints.restore_request import damaged_sticky, past_damage
from holdfast.errors import (
    CheckpointNotFoundError,
    GateRefusedError,
    InvalidInputError,
    LeaseHeldError,
    LeaseLostError,
    MissingError,
    OutcomeUnknown,
    PointNotFoundError,
    PrunedError,
    RecoveryFailedError,
    RecoveryValidationError,
    ScopeNotFoundError,
    StateIntegrityError,
    StoreClosedError,
    Unavailable,
)
from holdfast.recovery import failures
from holdfast.recovery.changes_of_others import (
    changes_after,
    damage_text,
    entry_rows,
    first_of_others,
    lost_text,
    of_others,
)
from holdfast.recovery.context import Settings
from holdfast.recovery.failures import AgentFailure, log
from holdfast.recovery.heal import copies_of, is_called_for, set_aside
from holdfast.recovery.lost_entries import (
    MAIN,
    Tails,
    depth_for,
    sticky_replayed,
    tail_text,
    tell_tail,
)
from holdfast.recovery.procedure import PROCEDURE_TIMEOUT
from holdfast.recovery.quarantine import Quarantine
from holdfast.recovery.records import (
    FAILED,
    GROUPS,
    RUNNING,
    SUCCEEDED,
    Tail,
    check_writable,
    correlation_of,
    counted,
    ended_since,
    letting_go,
    new_id,
    notice_of,
    notices_scope,
    planned,
    signed_as,
)
from holdfast.recovery.report import GroupRecoveryReport, group_report
from holdfast.recovery.run import Slot, recovering
from holdfast.recovery.strategies import (
    UNFIT,
    Unasked,
    UnfitTarget,
    check_state,
    end_trials,
    lacking,
    newest_of,
    readable,
    refusal,
    trial,
    unreadable,
)
from holdfast.store.inner import (
    Asked,
    Body,
    Change,
    LineHandle,
    Operation,
    Stage,
    StoreHandle,
    Target,
    Timeline,
    Written,
    build_change,
    moment,
    settle_after,
)
from holdfast.store.names.cause import acting, cause_now
from holdfast.store.names.items import Checkpoint, said
from holdfast.store.names.scope import Scope
from holdfast.store.state import State
from holdfast.store.store import Store

# Finding one moment to which several agents can return: looked at whole, before it is used.

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
            except (*UNFIT, RecoveryValidationError) as error:  # an older one may serve
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
        known: dict[Scope, Lineage] = {}
        for one in _of_groups(self._store.line(scopes[0]), named):
            try:
                members = {made.scope: made for made in group_of(self._store, one).checkpoints}
                if not members.keys() >= set(scopes):
                    raise UnfitTarget("not all of the agents are part of that group")
                points = {
                    scope: (members[scope].timeline, members[scope].sequence) for scope in scopes
                }
                aside = [str(scope) for scope, (line, _) in points.items() if line != MAIN]
                if named is None and aside:
                    raise UnfitTarget(
                        f"that of {', '.join(aside)} is of another timeline; name it as the point "
                        "to return to it"
                    )
                if named is None and self._left(points, known):
                    raise UnfitTarget(
                        "a restore left it behind; name it as the point to return to it"
                    )
            except UNFIT as error:  # damaged, not whole, or not meant: an older may serve
                passed[one.name or one.id] = str(error)[:500]
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
        point = f"{timeline}@{sequence}"
        if not readable(handle):
            return refusal(checks, State(handle).at(point), later=True)
        with trial(handle, point) as state:
            return refusal(checks, state, later=True)


# Going back to it.

TIMEOUT = PROCEDURE_TIMEOUT / 1000
"""Seconds that checks of a group may take, if nothing else is said: those of a procedure."""
_GOES_ON = (LeaseLostError, OutcomeUnknown, StoreClosedError, Unavailable)
"""After these, another process, or this one later, goes on where it stands."""


@contextmanager
def _timed(steps: dict[str, float], name: str) -> Iterator[None]:
    """Note how long something took, with what it took before it was taken up again."""
    begun = time.monotonic()
    yield
    steps[name] = steps.get(name, 0.0) + time.monotonic() - begun


class _Plan(NamedTuple):
    """How one agent of a group goes back."""

    target: Target
    finish: Callable[[list[Written]], Any]
    unsent: int
    """Letters that are taken out of its inbox."""
    damaged: tuple[str, ...]
    """Sticky keys that cannot be read, and are what could be replayed of them."""
    unread: bool
    """Whether some or all of its sticky keys could not be read."""


class Together:
    """Recovers several agents of a store at once."""

    def __init__(self, store: StoreHandle, settings: Settings) -> None:
        self._store = store
        self._blocking = Store(store)
        self._settings = settings
        self._handle = store.line(notices_scope())
        self._tails = Tails(store)
        self._moments = Moments(store, settings)

    # from the failure to the end

    def recover(
        self,
        agents: Iterable[Scope],
        failure: AgentFailure,
        wait: float,
        timeout: float,
        settle: Callable[[Scope], None],
    ) -> GroupRecoveryReport:
        """Begin one and bring it to its end; `settle` ends what was begun of one agent alone."""
        scopes = sorted(set(agents), key=str)
        if not scopes:
            raise InvalidInputError("a group has one or more agents")
        with self._leases(scopes, wait):
            for scope in scopes:
                settle(scope)
            self._moments.check_asked(scopes, failure)
            now = moment(self._store.core.clock.claimed())
            newest = max(self._handle.reader.keys(GROUPS, None, ""), default="")
            id_ = new_id(now, newest.removeprefix(GROUPS))
            steps: dict[str, float] = {}
            with _timed(steps, "set_aside"):
                healed = {str(scope): self._healed(id_, scope, failure) for scope in scopes}
            for scope in scopes:
                check_writable(self._store, scope)
            data = {
                "agents": [str(scope) for scope in scopes],
                "failure": failure.data(),
                "status": RUNNING,
                "started_at": now,
                "heads": {str(scope): self._store.line(scope).place()[2] for scope in scopes},
                "scopes": {str(scope): self._store.core.ledger(scope).id for scope in scopes},
                "gone": {scope: tail for scope, tail in healed.items() if tail is not None},
                "timeout": timeout,
                "steps": steps,
            }
            self._blocking._core.run(self._note(id_, data))
            return self._brought_to_end(id_, data)

    def _healed(self, id_: str, scope: Scope, failure: AgentFailure) -> Tail | None:
        """Set aside what is damaged or lost of an agent, and heal it from copies, before anything
        is kept or looked for; newest entries that are lost after that."""
        tail = self._tails.lost(scope, depth_for(failure))
        if tail is not None:
            Quarantine(self._store, scope).add(self._tails.findings(scope, tail), id_)
        copies = copies_of(self._store.core, self._settings.copies)
        handle = self._store.line(scope)
        if is_called_for(failure, tail, unreadable(handle)):
            set_aside(self._store, scope, copies, id_)
            return self._tails.lost(scope)
        return tail

    def resume(self, wait: float, member: Scope | None = None) -> list[GroupRecoveryReport]:
        """Go on with those, of all or with a member, whose process ended in the middle, but for
        those somebody is at."""
        ended = []
        for id_, found in self.all():
            if found["status"] != RUNNING or (member and str(member) not in found["agents"]):
                continue
            try:
                with self._leases([Scope.parse(one) for one in found["agents"]], wait):
                    self._take_up(id_)
            except LeaseHeldError:  # somebody is at it
                continue
            except _GOES_ON:  # it goes on later, so nothing is ended here
                raise
            except Exception:  # one that cannot be ended keeps no other from its end
                log.warning("recovery %s of a group did not succeed", id_, exc_info=True)
            data = self._get(id_)
            if data is not None and data["status"] != RUNNING:
                ended.append(group_report(id_, data))
        return ended

    def _take_up(self, id_: str) -> None:
        """Go on with one that another began, unless that would undo what was done since."""
        data = self._get(id_)
        if data is None or data["status"] != RUNNING:
            return None  # another ended it meanwhile
        for agent, head in data["heads"].items() if "strategy" not in data else ():
            other = first_of_others(self._store.line(Scope.parse(agent)), id_, head)
            if other is not None:
                why = f"others wrote to {agent} since it began (entry {other.sequence})"
                why += ", so it was not taken up again, and changed nothing"
                return self._finish(id_, data, FAILED, why)
        self._brought_to_end(id_, data)
        return None

    def abandon(self, id_: str, why: str) -> GroupRecoveryReport | None:
        """End one that never ended, and change nothing more; None if there is no such one."""
        data = self._get(id_)
        if data is None or data["status"] != RUNNING:
            return None
        with self._leases([Scope.parse(one) for one in data["agents"]], 0):
            data = self._get(id_)
            if data is not None and data["status"] == RUNNING:
                stands = "; that all of them are back stands" if data.get("points") else ""
                self._finish(id_, data, SUCCEEDED if "strategy" in data else FAILED, why + stands)
        return group_report(id_, self._get(id_) or {})

    def _brought_to_end(self, id_: str, data: dict[str, Any]) -> GroupRecoveryReport:
        """Go on, and see to it that whatever is raised ends it first: nothing is left half."""
        try:
            with acting("recovery", correlation=correlation_of(id_)):
                return self._go_on(id_, data)
        except (RecoveryFailedError, *_GOES_ON):  # ended, or to be gone on with
            raise
        except Exception as error:  # also a bug: nothing stays half
            kept = self._get(id_)
            if kept is not None and kept["status"] == RUNNING:
                status = SUCCEEDED if "strategy" in kept else FAILED
                self._finish(id_, kept, status, f"{type(error).__name__}: {error}")
                known = isinstance(error, StateIntegrityError | MissingError)  # of a member
                if known and kept["status"] == FAILED:
                    raise self._failed(id_, kept, "failed, and changed nothing") from error
            raise

    def reports(self, limit: int | None) -> list[GroupRecoveryReport]:
        """What became of them, the newest first."""
        return [group_report(id_, data) for id_, data in self.all()][:limit]

    def _leases(self, scopes: Iterable[Scope], wait: float) -> ExitStack:
        """All of their leases, in one order, so that no two wait for each other."""
        with ExitStack() as stack:
            for scope in sorted(scopes, key=str):
                stack.enter_context(recovering(self._blocking, scope, wait))
            return stack.pop_all()

    def _go_on(self, id_: str, data: dict[str, Any]) -> GroupRecoveryReport:
        scopes = [Scope.parse(one) for one in data["agents"]]
        steps = data["steps"]
        if "strategy" not in data:
            with _timed(steps, "look"):
                found, data["passed"] = self._looked(scopes, data)
            if found is None:
                passed = "; ".join(f"{name}: {why}" for name, why in data["passed"].items())
                self._finish(id_, data, FAILED, passed)
                how = "failed, and changed nothing: there is no moment to return to"
                raise self._failed(id_, data, how)
            with _timed(steps, "put_back"):
                self._put_back(id_, data, found)
        with _timed(steps, "reconcile"):
            for one in data.get("unread", ()):
                state = State(self._store.line(Scope.parse(one)))
                again(lambda state=state: mend_numbers(state))  # type: ignore[misc]
            lines = [self._store.line(scope) for scope in scopes]
            Handovers(self._blocking)._reconcile(lines)
        with _timed(steps, "check"):
            bad = list(filter(None, (unreadable(line) for line in lines if data["points"])))
        if bad:
            why = f"all are back, but that cannot be read whole: {'; '.join(bad)}"
            self._finish(id_, data, FAILED, why)
            raise self._failed(id_, data)
        self._finish(id_, data, SUCCEEDED)
        return group_report(id_, data)

    def _failed(
        self, id_: str, data: Mapping[str, Any], how: str = "failed"
    ) -> RecoveryFailedError:
        text = f"recovery {id_} of {len(data['agents'])} agents {how}: {data['why']}"
        return RecoveryFailedError(text, id_)

    def _looked(
        self, scopes: Sequence[Scope], data: Mapping[str, Any]
    ) -> tuple[Moment | None, dict[str, str]]:
        """Look for a moment; checks, which may hang, get as long as the recovery was given."""
        if not self._settings.validate:
            return self._moments.look(scopes, data)
        seconds = data.get("timeout", TIMEOUT)
        slot = Slot()
        try:
            looked = slot.do(lambda: self._moments.look(scopes, data))
            wait_for([looked], seconds)
            if looked.done():
                return looked.result()
            return None, {"time": f"to read and check moments took more than {seconds:g} s"}
        finally:
            slot.end()
            for scope in scopes:  # one that was given up cannot end its trial
                end_trials(self._store.line(scope))

    # putting them back

    def _put_back(self, id_: str, data: dict[str, Any], found: Moment) -> None:
        """One commit: all of them, their inboxes, and the note that it was done."""
        data["strategy"] = found.strategy
        data["why"] = found.why
        data["points"] = {str(scope): "{}@{}".format(*at) for scope, at in found.points.items()}
        again(lambda: self._commit(id_, data, found))  # what others wrote meanwhile counts as lost

    def _commit(self, id_: str, data: dict[str, Any], found: Moment) -> None:
        with ExitStack() as stack:
            for scope in found.points:  # what bears its name by now may be another one
                if ended := ended_since(self._store.core, scope, data["scopes"][str(scope)]):
                    raise ScopeNotFoundError(ended)
            plans = {scope: self._plan(stack, id_, scope, found) for scope in found.points}
            data["unsent"] = {str(scope): one.unsent for scope, one in plans.items() if one.unsent}
            data["lost"] = {
                str(scope): self._lost(id_, data, scope, found, one.damaged)
                for scope, one in plans.items()
            }
            data["unread"] = [str(scope) for scope, one in plans.items() if one.unread]
            note = self._note(id_, data)
            targets = [one.target for one in plans.values()]
            written = self._store.core.run(Change([*targets, *note.targets], note.cause))
        for (scope, plan), one in zip(plans.items(), written, strict=False):
            plan.finish([one])
            settle_after(self._store.line(scope))

    def _lost(
        self,
        id_: str,
        data: Mapping[str, Any],
        scope: Scope,
        found: Moment,
        damaged: Sequence[str],
    ) -> str:
        """What an agent loses by going back, with what others wrote since the recovery began."""
        handle, head = self._store.line(scope), data["heads"][str(scope)]
        timeline, sequence = found.points[scope]
        if timeline != handle.timeline:
            lost = lacking(handle, timeline, head)
        else:
            after = changes_after(handle, sequence, head)
            lost = lost_text(after, sum(1 for _ in of_others(handle, id_, head)))
        return damage_text(lost, damaged)

    def _plan(self, stack: ExitStack, id_: str, scope: Scope, found: Moment) -> _Plan:
        handle = self._store.line(scope)
        point, reason = "{}@{}".format(*found.points[scope]), f"recovery {id_}"
        head = handle.place()[2]
        damaged = damaged_sticky(handle)
        replayed = sticky_replayed(handle, point, reason, damaged=bool(damaged))
        there = stack.enter_context(replayed)
        way = stack.enter_context(past_damage(handle, there, "full", reason))
        change, finish = handle.plan_restore(way.point, "full", reason, head, True, way.keep)
        target = change.targets[0]
        stranded = target.stranded is not None  # then sticky keys will be those of the point
        sticky = handle.view(there) if stranded else way.line
        members = {str(one) for one in found.points}
        operations, count = letters_taken_back(sticky.reader, handle.view(point).reader, members)
        if operations:
            self._also(handle, target, operations)
        return _Plan(target, finish, count, way.damaged, stranded or bool(damaged))

    def _also(self, handle: LineHandle, target: Target, operations: list[Operation]) -> None:
        """Let the entry that restores be followed by one that changes the inbox, in its commit."""
        core, restores = handle.core, target.special
        assert restores is not None
        asked: Asked = (handle.scope, handle.timeline, operations, {}, None)
        inbox = build_change(core, [asked], cause=cause_now()).targets[0]

        def special(stage: Stage, body: Body) -> None:
            restores(stage, body)
            stage.add(core.prepared(stage.ledger, inbox), Body(body.time, [], [], body.cause))

        target.special = special

    # what is kept

    def _note(self, id_: str, data: Mapping[str, Any]) -> Change:
        return planned(self._handle, {GROUPS + id_: dict(data)}, reason=f"recovery {id_}")

    def _finish(self, id_: str, data: dict[str, Any], status: str, why: str = "") -> None:
        """Let members tell what they lost, then keep how it ended, and let go of what was held.

        In this order: one that has ended is not taken up again.
        """
        for agent, tail in data.get("gone", {}).items() if status == SUCCEEDED else ():
            tell_tail(self._store.line(Scope.parse(agent)), tail, id_)
        core = self._store.core
        data |= {"status": status, "finished_at": moment(core.clock.claimed())}
        data |= {"signed": core.signer is not None}
        data["why"] = "; ".join(filter(None, [data.get("why", ""), why]))[:2000]
        try:
            self._store.core.run(self._ending(id_, data, self._let_go(id_, data)))
        except (StateIntegrityError, MissingError, GateRefusedError):
            # A member is damaged, or no more; that may keep no recovery from its end.
            log.warning("recovery %s: what it held of members is held", id_, exc_info=True)
            self._store.core.run(self._ending(id_, data, []))
        counted(self._store.core.meter, data)

    def _let_go(self, id_: str, data: Mapping[str, Any]) -> list[Target]:
        """What lets go of the states before, where there was something to put back."""
        plans = [
            letting_go(self._store.line(Scope.parse(one)), id_, data["heads"][one], data["status"])
            for one in data.get("points", ())
        ]
        return [target for plan in plans if plan is not None for target in plan[0].targets]

    def _ending(self, id_: str, data: Mapping[str, Any], along: Sequence[Target]) -> Change:
        """The change that says how one ended, with notices, under a signature."""
        failure, status = AgentFailure.of(data["failure"]), data["status"]
        return planned(
            self._handle,
            {GROUPS + id_: dict(data)},
            notices=[notice_of(agent, id_, failure, status) for agent in data["agents"]],
            sign=self._handle.plan_checkpoint(signed_as(id_), "recovery", [status], "", None),
            along=along,
            reason=f"recovery {id_}",
        )

    def all(self) -> list[tuple[str, dict[str, Any]]]:
        """(id, what is kept) of each, the newest first."""
        found = self._handle.reader.items(GROUPS, None, "", False)
        return [(key[len(GROUPS) :], value) for key, value in reversed(found)]

    def _get(self, id_: str) -> dict[str, Any] | None:
        found: dict[str, Any] | None = self._handle.reader.get(GROUPS + id_, None, None, False)
        return found
